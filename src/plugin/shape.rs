//! The Kubernetes parts of definitions: their types, checked while line and column are known, so that a number in
//! place of text is reported before the run; and their canonical form, the same as
//! that of Kubernetes' own programs. `kubernetes.txt` lists the fields.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{DriverKind, quantity};
use base::json::json;
use base::yaml::typed::{self, entries, text, wrong};
use base::yaml::{Content, Error, Node};

pub(super) const POD: &str = "PodSpec";
pub(super) const CONTAINER: &str = "Container";

/// A field of a Kubernetes type.
struct KubernetesField {
    name: &'static str,
    kind: &'static str,
    written: Written,
}

/// When a field is written.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    Always,
    OrNull,
    Given,
    Filled,
}

static TYPES: LazyLock<HashMap<&str, Vec<KubernetesField>>> = LazyLock::new(|| {
    let mut types: HashMap<_, Vec<_>> = HashMap::new();
    let mut of = "";
    for line in include_str!("kubernetes.txt").lines().filter(|line| !line.starts_with('#')) {
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            match word.split_once(':') {
                None => of = word,
                Some((name, mark)) => types.entry(of).or_default().push(field(name, mark)),
            }
        }
    }
    types
});

fn field(name: &'static str, mark: &'static str) -> KubernetesField {
    for (prefix, written) in [("!*", Written::OrNull), ("!", Written::Always), ("*", Written::Given)] {
        if let Some(kind) = mark.strip_prefix(prefix) {
            return KubernetesField { name, kind, written };
        }
    }
    KubernetesField { name, kind: mark, written: Written::Filled }
}

/// The JSON Schemas of all types, by name.
pub(super) fn schemas() -> Map<String, Value> {
    let of = |fields: &[KubernetesField]| {
        let properties = fields.iter().map(|field| (field.name.to_owned(), schema(field.kind)));
        let properties: Map<_, _> = properties.collect();
        json!({"type": ["object", "null"], "additionalProperties": false, "properties": properties})
    };
    TYPES.iter().map(|(name, fields)| ((*name).to_owned(), of(fields))).collect()
}

/// The JSON Schema of a kind; those of types refer to [`schemas`].
pub(super) fn schema(kind: &str) -> Value {
    match kind {
        "any" => json!({}),
        "text" | "time" => json!({"type": ["string", "null"]}),
        "flag" => json!({"type": ["boolean", "null"]}),
        "int32" | "int64" => json!({"type": ["integer", "null"]}),
        "port" => json!({"type": ["integer", "string", "null"]}),
        "quantity" => json!({"type": ["number", "string", "null"]}),
        _ => match (kind.strip_prefix("[]"), kind.strip_prefix("{}")) {
            (Some(item), _) => json!({"type": ["array", "null"], "items": schema(item)}),
            (_, Some(value)) => json!({"type": ["object", "null"], "additionalProperties": schema(value)}),
            _ => json!({"$ref": format!("#/definitions/{kind}")}),
        },
    }
}

/// Reads Kubernetes parts and collects notes for the user.
#[derive(Default)]
pub(super) struct Parts {
    /// Omitted fields, with reasons.
    pub(super) notes: Vec<String>,
}

impl Parts {
    /// A core/v1 Container; a missing one has only an empty name.
    pub(super) fn container(&mut self, node: Option<&Node>) -> Result<Value, Error> {
        node.map_or_else(|| Ok(empty(CONTAINER)), |node| self.value("spec", node, CONTAINER))
    }

    /// A core/v1 PodSpec.
    pub(super) fn pod(&mut self, key: &str, node: &Node) -> Result<Value, Error> {
        self.value(key, node, POD)
    }

    /// A list of core/v1 Volumes.
    pub(super) fn volumes(&mut self, node: &Node) -> Result<Vec<Value>, Error> {
        self.list("extra-volumes", node, "Volume")
    }

    fn value(&mut self, path: &str, node: &Node, kind: &'static str) -> Result<Value, Error> {
        if kind == "any" {
            return Ok(tree(node));
        }
        if node.is_null() {
            return Ok(empty(kind));
        }
        if let Some(kind) = kind.strip_prefix("[]") {
            return Ok(Value::Array(self.list(path, node, kind)?));
        }
        if let Some(kind) = kind.strip_prefix("{}") {
            let entries = entries(path, node)?.iter();
            let read = entries.map(|(key, node)| {
                Ok((key.text.clone(), self.value(&format!("{path}.{}", key.text), node, kind)?))
            });
            return read.collect::<Result<_, _>>().map(Value::Object);
        }
        match (kind, &node.content) {
            ("text" | "time", _) => text(path, node).map(Value::from),
            ("flag", _) => typed::read::<bool>(path, node).map(Value::from),
            ("int32" | "int64", Content::Number(number)) if !number.is_f64() => {
                let fits =
                    number.as_i64().is_some_and(|whole| kind == "int64" || i32::try_from(whole).is_ok());
                if fits {
                    Ok(json!(number))
                } else {
                    Err(node.position.error(format!("`{path}` is too large")))
                }
            }
            ("int32" | "int64", _) => Err(wrong(path, node, "a whole number without quotes")),
            ("port", Content::Number(number)) if number.is_i64() => Ok(json!(number)),
            ("port", Content::Text(text)) => Ok(json!(text)),
            ("port", _) => Err(wrong(path, node, "a whole number or a name")),
            ("quantity", Content::Number(number)) => size(path, node, &number.to_string()),
            ("quantity", Content::Text(text)) => size(path, node, text),
            ("quantity", _) => Err(wrong(path, node, "a quantity such as 500m or 1Gi")),
            _ => self.object(path, node, kind),
        }
    }

    fn object(&mut self, path: &str, node: &Node, kind: &str) -> Result<Value, Error> {
        let entries = entries(path, node)?;
        let fields = fields(kind);
        let mut object = Map::new();
        for field in fields {
            let given = entries.iter().find(|(key, value)| key.text == field.name && !value.is_null());
            let value = match given {
                Some((_, node)) => self.value(&format!("{path}.{}", field.name), node, field.kind)?,
                None if field.written == Written::Always => empty(field.kind),
                None if field.written == Written::OrNull => Value::Null,
                None => continue,
            };
            if field.written != Written::Filled || !is_empty(&value) {
                object.insert(field.name.to_owned(), value);
            }
        }
        for (key, value) in entries {
            if value.is_null() || fields.iter().any(|field| field.name == key.text) {
                continue;
            }
            // Fields of later Kubernetes versions are passed on.
            if may_become_a_field(&key.text, fields) {
                object.insert(key.text.clone(), tree(value));
                self.notes
                    .push(format!("unknown field `{path}.{}` is passed on; check its spelling", key.text));
            } else {
                self.notes.push(format!("`{path}.{}` is left out: {}", key.text, why(&key.text, fields)));
            }
        }
        Ok(Value::Object(object))
    }

    fn list(&mut self, path: &str, node: &Node, kind: &'static str) -> Result<Vec<Value>, Error> {
        typed::list(path, node, |path, item| self.value(path, item, kind))
    }
}

fn fields(kind: &str) -> &'static [KubernetesField] {
    TYPES.get(kind).map(Vec::as_slice).unwrap_or_default()
}

fn is_field(kind: &str, name: &str) -> bool {
    fields(kind).iter().any(|field| field.name == name)
}

/// Whether an unknown key may be a field of a later Kubernetes: well-formed, and not a known field in the wrong place
/// or case.
fn may_become_a_field(key: &str, fields: &[KubernetesField]) -> bool {
    key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.bytes().all(|b| b.is_ascii_alphanumeric())
        && !fields.iter().any(|field| field.name.eq_ignore_ascii_case(key))
        && !is_field(POD, key)
        && !is_field(CONTAINER, key)
}

fn why(key: &str, fields: &[KubernetesField]) -> String {
    if let Some(field) = fields.iter().find(|field| field.name.eq_ignore_ascii_case(key)) {
        return format!("it is spelled `{}`", field.name);
    }
    match (is_field(POD, key), is_field(CONTAINER, key)) {
        (true, false) => "it is a field of the pod, in `podSpec`".into(),
        (false, true) => "it is a field of a container".into(),
        _ => "there is no such field".into(),
    }
}

/// Default value of a missing field.
fn empty(kind: &str) -> Value {
    match kind {
        "text" => json!(""),
        "flag" => json!(false),
        "int32" | "int64" | "port" => json!(0),
        "quantity" => json!("0"),
        _ => TYPES.get(kind).map_or(Value::Null, |fields| {
            let always = fields.iter().filter(|field| field.written == Written::Always);
            let mut object: Map<_, _> =
                always.map(|field| (field.name.to_owned(), empty(field.kind))).collect();
            let null = fields.iter().filter(|field| field.written == Written::OrNull);
            object.extend(null.map(|field| (field.name.to_owned(), Value::Null)));
            Value::Object(object)
        }),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn size(path: &str, node: &Node, text: &str) -> Result<Value, Error> {
    quantity::canonical(text).map(Value::from).ok_or_else(|| {
        let message = format!("`{path}` is `{text}`, which is not a quantity; write it as 2, 500m or 1Gi");
        node.position.error(message)
    })
}

/// The driver named in a map.
pub(super) fn driver(node: &Node, path: &str) -> Result<DriverKind, Error> {
    let Some(value) = node.get("driver") else {
        return Err(node.position.error(format!("`{path}` is missing; write Job, DaemonSet or Nodes")));
    };
    let text = text(path, value)?;
    DriverKind::parse(text)
        .ok_or_else(|| value.position.error(format!("`{path}` is `{text}`; write Job, DaemonSet or Nodes")))
}

/// A node as JSON, without null values, as in Go.
pub(super) fn tree(node: &Node) -> Value {
    match &node.content {
        Content::Map(entries) => Value::Object(
            entries
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.text.clone(), tree(value)))
                .collect(),
        ),
        Content::List(items) => items.iter().map(tree).collect(),
        _ => node.clone().into_value(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::yaml;

    fn pod(text: &str) -> (Value, Vec<String>) {
        let mut parts = Parts::default();
        let value = parts.pod("podSpec", &yaml::document(text).unwrap()).unwrap();
        (value, parts.notes)
    }

    #[test]
    fn every_kind_in_the_table_exists() {
        let basic = ["text", "flag", "int32", "int64", "quantity", "port", "time", "any"];
        assert!(TYPES.len() > 90);
        for field in TYPES.values().flatten() {
            let kind = field.kind.trim_start_matches(['[', ']', '{', '}']);
            assert!(basic.contains(&kind) || TYPES.contains_key(kind), "{}: {kind}", field.name);
        }
    }

    #[test]
    fn parts_are_formatted_like_kubernetes() {
        for (text, expected) in [
            ("{}", json!({"containers": null})),
            (
                "{containers: [], hostNetwork: false, nodeSelector: {}, dnsPolicy: ''}",
                json!({"containers": []}),
            ),
            ("containers: [{}, null]", json!({"containers": [{"name": ""}, {"name": ""}]})),
            (
                "containers: [{name: a, args: [], tty: false, stdin: true, resources: {limits: {}}}]",
                json!({"containers": [{"name": "a", "stdin": true}]}),
            ),
            (
                "containers: [{name: a, resources: {limits: {cpu: 0.5, memory: 1024Mi}, requests: {cpu: 1}}}]",
                json!({"containers": [{
                    "name": "a",
                    "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "1"}},
                }]}),
            ),
            (
                "containers: [{name: a, env: [{value: ''}, {name: B, valueFrom: {}}], livenessProbe: {httpGet: {path: /}}}]",
                json!({"containers": [{
                    "name": "a", "env": [{"name": ""}, {"name": "B", "valueFrom": {}}],
                    "livenessProbe": {"httpGet": {"path": "/", "port": 0}},
                }]}),
            ),
            (
                "{containers: [], securityContext: {runAsUser: 0, runAsNonRoot: false}, terminationGracePeriodSeconds: 0}",
                json!({
                    "containers": [], "securityContext": {"runAsNonRoot": false, "runAsUser": 0},
                    "terminationGracePeriodSeconds": 0,
                }),
            ),
            (
                "{containers: [], volumes: [{hostPath: {}}, {name: e, emptyDir: {medium: ''}}, {name: c, configMap: {items: []}}]}",
                json!({"containers": [], "volumes": [
                    {"name": "", "hostPath": {"path": ""}}, {"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {}},
                ]}),
            ),
        ] {
            assert_eq!(pod(text), (expected, Vec::new()), "{text}");
        }
    }

    #[test]
    fn misplaced_fields_are_omitted_and_future_ones_kept() {
        let text = "{containers: [{name: a, tolerations: [], volumes: [{}], Image: i, some-key: 1}], image: i, \
                    fieldOfTomorrow: {a: [1]}, nothing: null}";
        let (value, notes) = pod(text);
        assert_eq!(value, json!({"containers": [{"name": "a"}], "fieldOfTomorrow": {"a": [1]}}));
        assert_eq!(
            notes,
            [
                "`podSpec.containers[0].tolerations` is left out: it is a field of the pod, in `podSpec`",
                "`podSpec.containers[0].volumes` is left out: it is a field of the pod, in `podSpec`",
                "`podSpec.containers[0].Image` is left out: it is spelled `image`",
                "`podSpec.containers[0].some-key` is left out: there is no such field",
                "`podSpec.image` is left out: it is a field of a container",
                "unknown field `podSpec.fieldOfTomorrow` is passed on; check its spelling",
            ]
        );
    }

    #[test]
    fn wrong_kinds_are_refused_everywhere() {
        for (text, words) in [
            ("{priority: 3000000000}", "`podSpec.priority` is too large"),
            ("{overhead: {cpu: much}}", "`podSpec.overhead.cpu` is `much`, which is not a quantity"),
            ("{overhead: {cpu: [1]}}", "`podSpec.overhead.cpu` must be a quantity"),
            ("{affinity: {nodeAffinity: []}}", "`podSpec.affinity.nodeAffinity` must be a map"),
            (
                "{containers: [{livenessProbe: {tcpSocket: {port: 1.5}}}]}",
                ".port` must be a whole number or a name",
            ),
        ] {
            let error = Parts::default().pod("podSpec", &yaml::document(text).unwrap()).expect_err(text);
            assert!(error.message.contains(words), "{text}: {error}");
        }
    }
}
