//! Decides which nodes a DaemonSet's pods will run on, as the DaemonSet controller does.
//!
//! Owns node selectors, required node affinity (all operators, match fields) and taints against
//! tolerations. Pure: works on API objects. Ignores preferred affinity, as the controller does, and
//! affinity between pods, for which nothing can be predicted.

use std::cmp::Ordering;

use serde_json::Value;

use base::json::json;
use kube::Object as _;

/// Further tolerations that the controller adds to every DaemonSet pod: key, effect.
pub(super) const ADDED: [(&str, &str); 4] = [
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Taints of nodes that are not ready, which is judged by their condition.
pub(super) const DOWN: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// Drops the fields of a node that neither [`refusal`] nor a ring of nodes reads; the list of images
/// alone can be long.
pub fn shrink_node(node: &mut Value) {
    *node = json!({
        "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]},
        "spec": {"taints": node["spec"]["taints"]},
        "status": {
            "conditions": node.condition("Ready").as_slice(),
            "addresses": node["status"]["addresses"],
            "daemonEndpoints": node["status"]["daemonEndpoints"],
        },
    });
}

/// Why a pod of `spec` (a PodSpec) will not run on `node`, once that is ready; `None` if it will.
pub fn refusal(spec: &Value, node: &Value) -> Option<String> {
    let name = node.name();
    let labels = &node["metadata"]["labels"];
    if let Some(wanted) = spec["nodeName"]
        .as_str()
        .filter(|wanted| !wanted.is_empty() && *wanted != name)
    {
        return Some(format!("the plugin names node `{wanted}`"));
    }
    for (key, value) in spec["nodeSelector"].as_object().into_iter().flatten() {
        if labels[key].as_str() != value.as_str() {
            return Some(format!("label `{key}` is not `{}`", value.text()));
        }
    }
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if !required.is_null()
        && !required["nodeSelectorTerms"]
            .items()
            .any(|term| term_matches(term, name, labels))
    {
        return Some("the required node affinity does not match".into());
    }
    // `PreferNoSchedule` keeps no pods away.
    let repels = |taint: &&Value| taint["effect"] == "NoSchedule" || taint["effect"] == "NoExecute";
    let taint = node["spec"]["taints"]
        .items()
        .filter(repels)
        .find(|taint| !tolerated(spec, taint))?;
    Some(format!(
        "taint `{}:{}` is not tolerated",
        taint["key"].text(),
        taint["effect"].text()
    ))
}

/// A term without expressions and fields matches nothing, as in the scheduler.
fn term_matches(term: &Value, name: &str, labels: &Value) -> bool {
    let (mut expressions, mut fields) = (
        term["matchExpressions"].items(),
        term["matchFields"].items(),
    );
    expressions.len() + fields.len() > 0
        && expressions.all(|expression| holds(expression, labels[expression["key"].text()].as_str()))
        // The only field that selects nodes.
        && fields.all(|field| field["key"] == "metadata.name" && holds(field, Some(name)))
}

fn holds(requirement: &Value, actual: Option<&str>) -> bool {
    let mut values = requirement["values"].items();
    // Gt and Lt compare integers; other values never match.
    let ordering = |actual: Option<&str>| {
        let limit = requirement["values"][0].text().parse::<i64>().ok()?;
        Some(actual?.parse::<i64>().ok()?.cmp(&limit))
    };
    match requirement["operator"].text() {
        "In" => actual.is_some_and(|actual| values.any(|value| value == actual)),
        "NotIn" => !actual.is_some_and(|actual| values.any(|value| value == actual)),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => values.len() == 1 && ordering(actual) == Some(Ordering::Greater),
        "Lt" => values.len() == 1 && ordering(actual) == Some(Ordering::Less),
        _ => false,
    }
}

fn tolerated(spec: &Value, taint: &Value) -> bool {
    let (key, effect) = (taint["key"].text(), taint["effect"].text());
    DOWN.contains(&key)
        || ADDED.contains(&(key, effect))
        || spec["hostNetwork"] == true
            && (key, effect) == ("node.kubernetes.io/network-unavailable", "NoSchedule")
        || spec["tolerations"].items().any(|toleration| {
            let of = |name: &str| toleration[name].text();
            ["", effect].contains(&of("effect"))
                && match of("operator") {
                    "Exists" => ["", key].contains(&of("key")),
                    "" | "Equal" => of("key") == key && of("value") == taint["value"].text(),
                    _ => false,
                }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn node() -> Value {
        json!({
            "metadata": {"name": "n1", "labels": {"os": "linux", "cores": "8"}},
            "spec": {"taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "soft", "effect": "PreferNoSchedule"},
            ]},
        })
    }

    fn check(spec: &Value, node: &Value, fits: bool) {
        let refusal = refusal(spec, node);
        assert_eq!(refusal.is_none(), fits, "{spec} on {node}: {refusal:?}");
    }

    fn affinity(term: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
    }

    #[test]
    fn selectors_and_names() {
        check(&json!({}), &node(), true);
        check(&json!({"nodeSelector": {"os": "linux"}}), &node(), true);
        check(&json!({"nodeSelector": {"os": "windows"}}), &node(), false);
        check(&json!({"nodeSelector": {"gone": ""}}), &node(), false);
        check(&json!({"nodeName": "n1"}), &node(), true);
        check(&json!({"nodeName": "n2"}), &node(), false);
    }

    #[test]
    fn every_operator_and_match_fields() {
        for (operator, key, values, fits) in [
            ("In", "os", vec!["linux", "x"], true),
            ("In", "os", vec!["x"], false),
            ("In", "gone", vec!["x"], false),
            ("NotIn", "os", vec!["linux"], false),
            ("NotIn", "gone", vec!["linux"], true),
            ("Exists", "os", vec![], true),
            ("Exists", "gone", vec![], false),
            ("DoesNotExist", "gone", vec![], true),
            ("DoesNotExist", "os", vec![], false),
            ("Gt", "cores", vec!["7"], true),
            ("Gt", "cores", vec!["8"], false),
            ("Lt", "cores", vec!["9"], true),
            ("Lt", "os", vec!["9"], false),
            ("Gt", "cores", vec!["1", "2"], false),
            ("Near", "os", vec!["linux"], false),
        ] {
            let term =
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            check(&affinity(&term), &node(), fits);
        }
        let field = |operator: &str, value: &str| {
            affinity(
                &json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": [value]}]}),
            )
        };
        check(&field("In", "n1"), &node(), true);
        check(&field("NotIn", "n1"), &node(), false);
        check(&affinity(&json!({})), &node(), false);
        let none = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}});
        check(&none, &node(), false);
    }

    #[test]
    fn taints_and_tolerations() {
        let tainted = |effect: &str| json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
        for (toleration, fits) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "k", "value": "v"}), true),
            (
                json!({"key": "k", "operator": "Equal", "value": "w"}),
                false,
            ),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            check(
                &json!({"tolerations": [toleration]}),
                &tainted("NoSchedule"),
                fits,
            );
        }
        check(&json!({}), &tainted("NoExecute"), false);
        let no_network = json!({"spec": {"taints": [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]}});
        check(&json!({}), &no_network, false);
        check(&json!({"hostNetwork": true}), &no_network, true);
    }
}
