//! Decides which nodes a DaemonSet's pods will run on, as the DaemonSet controller does.
//!
//! Owns node selectors, required node affinity (all operators, match fields) and taints against tolerations.
//! Pure: works on API objects. Ignores preferred affinity, as the controller does, and affinity between pods,
//! for which nothing can be predicted.

use serde_json::Value;

/// Further tolerations that the controller adds to every DaemonSet pod: key, effect.
pub(super) const ADDED: [(&str, &str); 4] = [
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Taints of nodes that are not ready, which is judged by their condition.
pub(super) const DOWN: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Why a pod of `spec` (a PodSpec) will not run on `node`, once that is ready; `None` if it will.
pub(crate) fn refusal(spec: &Value, node: &Value) -> Option<String> {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let labels = &node["metadata"]["labels"];
    if let Some(wanted) = spec["nodeName"].as_str().filter(|wanted| !wanted.is_empty() && *wanted != name) {
        return Some(format!("the plugin names node `{wanted}`"));
    }
    for (key, value) in spec["nodeSelector"].as_object().into_iter().flatten() {
        if labels[key].as_str() != value.as_str() {
            return Some(format!("label `{key}` is not `{}`", value.as_str().unwrap_or_default()));
        }
    }
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if !required.is_null() {
        let terms = required["nodeSelectorTerms"].as_array().map_or(&[][..], Vec::as_slice);
        if !terms.iter().any(|term| term_matches(term, name, labels)) {
            return Some("the required node affinity does not match".into());
        }
    }
    let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    taints.iter().find(|taint| repels(taint) && !tolerated(spec, taint)).map(|taint| {
        let text = |key: &str| taint[key].as_str().unwrap_or_default();
        format!("taint `{}:{}` is not tolerated", text("key"), text("effect"))
    })
}

/// A term without expressions and fields matches nothing, as in the scheduler.
fn term_matches(term: &Value, name: &str, labels: &Value) -> bool {
    let list = |key: &str| term[key].as_array().map_or(&[][..], Vec::as_slice);
    let (expressions, fields) = (list("matchExpressions"), list("matchFields"));
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        requirement_holds(expression, labels[key].as_str())
    }) && fields.iter().all(|field| {
        // The only field that selects nodes.
        field["key"] == "metadata.name" && requirement_holds(field, Some(name))
    })
}

fn requirement_holds(requirement: &Value, actual: Option<&str>) -> bool {
    let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
    let contains = |actual: &str| values.iter().any(|value| value.as_str() == Some(actual));
    // Gt and Lt compare integers; other values never match.
    let numbers = || {
        let [limit] = values else { return None };
        Some((actual?.parse::<i64>().ok()?, limit.as_str()?.parse::<i64>().ok()?))
    };
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => actual.is_some_and(contains),
        "NotIn" => !actual.is_some_and(contains),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => numbers().is_some_and(|(actual, limit)| actual > limit),
        "Lt" => numbers().is_some_and(|(actual, limit)| actual < limit),
        _ => false,
    }
}

/// Whether a taint keeps pods off a node; `PreferNoSchedule` does not.
fn repels(taint: &Value) -> bool {
    matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"))
}

fn tolerated(spec: &Value, taint: &Value) -> bool {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (key, effect) = (text(taint, "key"), text(taint, "effect"));
    let on_host_network = spec["hostNetwork"] == true;
    let added = DOWN.contains(&key.as_str())
        || ADDED.contains(&(key.as_str(), effect.as_str()))
        || (on_host_network && key == "node.kubernetes.io/network-unavailable" && effect == "NoSchedule");
    let tolerations = spec["tolerations"].as_array().map_or(&[][..], Vec::as_slice);
    added
        || tolerations.iter().any(|toleration| {
            let of = |name: &str| text(toleration, name);
            let effect_fits = of("effect").is_empty() || of("effect") == effect;
            effect_fits
                && match of("operator").as_str() {
                    "Exists" => of("key").is_empty() || of("key") == key,
                    "" | "Equal" => of("key") == key && of("value") == text(taint, "value"),
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
            let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
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
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            check(&json!({"tolerations": [toleration]}), &tainted("NoSchedule"), fits);
        }
        check(&json!({}), &tainted("NoExecute"), false);
        let no_network = json!({"spec": {"taints": [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]}});
        check(&json!({}), &no_network, false);
        check(&json!({"hostNetwork": true}), &no_network, true);
    }
}
