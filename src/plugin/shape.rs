//! The types of the Kubernetes fields that definitions commonly have, checked where the text still has places: a
//! number where text is needed is found with line and column, instead of by the API server in the middle of a run.
//! Fields not listed here pass unseen. What is right becomes text, a driver or a tree.

use serde_json::Value;

use super::Driver;
use crate::yaml::{Content, Error, Node};

/// What a field must hold.
enum Shape {
    Text,
    Flag,
    Integer,
    Texts,
    TextMap,
    Map(&'static [Field]),
    List(&'static [Field]),
}

type Field = (&'static str, Shape);

use Shape::{Flag, Integer, List, Map, Text, TextMap, Texts};

const ENV: &[Field] = &[("name", Text), ("value", Text), ("valueFrom", Map(&[]))];
const MOUNT: &[Field] = &[
    ("name", Text),
    ("mountPath", Text),
    ("subPath", Text),
    ("subPathExpr", Text),
    ("mountPropagation", Text),
    ("readOnly", Flag),
];
const PORT: &[Field] = &[
    ("name", Text),
    ("containerPort", Integer),
    ("hostPort", Integer),
    ("protocol", Text),
    ("hostIP", Text),
];
const SECURITY: &[Field] = &[
    ("privileged", Flag),
    ("runAsUser", Integer),
    ("runAsGroup", Integer),
    ("runAsNonRoot", Flag),
    ("readOnlyRootFilesystem", Flag),
    ("allowPrivilegeEscalation", Flag),
    ("fsGroup", Integer),
];
const CONTAINER: &[Field] = &[
    ("name", Text),
    ("image", Text),
    ("command", Texts),
    ("args", Texts),
    ("workingDir", Text),
    ("env", List(ENV)),
    ("envFrom", List(&[])),
    ("volumeMounts", List(MOUNT)),
    ("volumeDevices", List(&[])),
    ("ports", List(PORT)),
    ("resources", Map(&[])),
    ("lifecycle", Map(&[])),
    ("livenessProbe", Map(&[])),
    ("readinessProbe", Map(&[])),
    ("startupProbe", Map(&[])),
    ("securityContext", Map(SECURITY)),
    ("imagePullPolicy", Text),
    ("terminationMessagePath", Text),
    ("terminationMessagePolicy", Text),
    ("restartPolicy", Text),
    ("stdin", Flag),
    ("stdinOnce", Flag),
    ("tty", Flag),
];
const VOLUME: &[Field] = &[
    ("name", Text),
    ("hostPath", Map(&[("path", Text), ("type", Text)])),
    (
        "configMap",
        Map(&[("name", Text), ("defaultMode", Integer), ("optional", Flag), ("items", List(ITEM))]),
    ),
    (
        "secret",
        Map(&[("secretName", Text), ("defaultMode", Integer), ("optional", Flag), ("items", List(ITEM))]),
    ),
    ("emptyDir", Map(&[("medium", Text)])),
    ("projected", Map(&[("defaultMode", Integer)])),
    ("downwardAPI", Map(&[("defaultMode", Integer)])),
];
const ITEM: &[Field] = &[("key", Text), ("path", Text), ("mode", Integer)];
const TOLERATION: &[Field] =
    &[("key", Text), ("operator", Text), ("value", Text), ("effect", Text), ("tolerationSeconds", Integer)];
const POD: &[Field] = &[
    ("containers", List(CONTAINER)),
    ("initContainers", List(CONTAINER)),
    ("volumes", List(VOLUME)),
    ("restartPolicy", Text),
    ("dnsPolicy", Text),
    ("serviceAccountName", Text),
    ("serviceAccount", Text),
    ("automountServiceAccountToken", Flag),
    ("nodeName", Text),
    ("nodeSelector", TextMap),
    ("hostname", Text),
    ("subdomain", Text),
    ("schedulerName", Text),
    ("priorityClassName", Text),
    ("runtimeClassName", Text),
    ("priority", Integer),
    ("terminationGracePeriodSeconds", Integer),
    ("activeDeadlineSeconds", Integer),
    ("hostNetwork", Flag),
    ("hostPID", Flag),
    ("hostIPC", Flag),
    ("shareProcessNamespace", Flag),
    ("enableServiceLinks", Flag),
    ("affinity", Map(&[])),
    ("securityContext", Map(SECURITY)),
    ("dnsConfig", Map(&[])),
    ("imagePullSecrets", List(&[("name", Text)])),
    ("hostAliases", List(&[("ip", Text), ("hostnames", Texts)])),
    ("tolerations", List(TOLERATION)),
    ("topologySpreadConstraints", List(&[])),
];

/// Checks a core/v1 Container.
pub(super) fn container(node: &Node) -> Result<(), Error> {
    map("spec", node, CONTAINER)
}

/// Checks a core/v1 PodSpec.
pub(super) fn pod(key: &str, node: &Node) -> Result<(), Error> {
    map(key, node, POD)
}

/// Checks a list of core/v1 Volumes.
pub(super) fn volumes(node: &Node) -> Result<(), Error> {
    list("extra-volumes", node, VOLUME)
}

fn map(path: &str, node: &Node, fields: &'static [Field]) -> Result<(), Error> {
    let Content::Map(entries) = &node.content else { return Err(wrong(path, node, "a map")) };
    for (name, shape) in fields {
        if let Some((_, value)) = entries.iter().find(|(key, value)| key.text == *name && !value.is_null()) {
            check(&format!("{path}.{name}"), value, shape)?;
        }
    }
    Ok(())
}

fn list(path: &str, node: &Node, fields: &'static [Field]) -> Result<(), Error> {
    let Content::List(items) = &node.content else { return Err(wrong(path, node, "a list")) };
    items.iter().enumerate().try_for_each(|(at, item)| map(&format!("{path}[{at}]"), item, fields))
}

fn check(path: &str, node: &Node, shape: &Shape) -> Result<(), Error> {
    match (shape, &node.content) {
        (Text, _) => text(path, node).map(drop),
        (Flag, Content::Bool(_)) => Ok(()),
        (Flag, _) => Err(wrong(path, node, "true or false without quotes")),
        (Integer, Content::Number(number)) if !number.is_f64() => Ok(()),
        (Integer, _) => Err(wrong(path, node, "a whole number without quotes")),
        (Texts, _) => texts(path, node).map(drop),
        (TextMap, _) => text_map(path, node).map(drop),
        (Map(fields), _) => map(path, node, fields),
        (List(fields), _) => list(path, node, fields),
    }
}

/// Text, or an error that says how to write it.
pub(super) fn text<'n>(path: &str, node: &'n Node) -> Result<&'n str, Error> {
    match &node.content {
        Content::Text(text) => Ok(text),
        Content::Number(number) => Err(quote(path, node, &number.to_string())),
        Content::Bool(flag) => Err(quote(path, node, &flag.to_string())),
        _ => Err(wrong(path, node, "text")),
    }
}

/// A list of text.
pub(super) fn texts<'n>(path: &str, node: &'n Node) -> Result<Vec<&'n str>, Error> {
    let Content::List(items) = &node.content else { return Err(wrong(path, node, "a list")) };
    items.iter().enumerate().map(|(at, item)| text(&format!("{path}[{at}]"), item)).collect()
}

/// A map of text.
pub(super) fn text_map<'n>(path: &str, node: &'n Node) -> Result<Vec<(&'n str, &'n str)>, Error> {
    let Content::Map(entries) = &node.content else { return Err(wrong(path, node, "a map")) };
    entries
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| Ok((key.text.as_str(), text(&format!("{path}.{}", key.text), value)?)))
        .collect()
}

/// The driver named in a map.
pub(super) fn driver(node: &Node, path: &str) -> Result<Driver, Error> {
    let Some(value) = node.get("driver") else {
        return Err(node.place.error(format!("`{path}` is missing; write Job or DaemonSet")));
    };
    let text = text(path, value)?;
    Driver::parse(text)
        .ok_or_else(|| value.place.error(format!("`{path}` is `{text}`; write Job or DaemonSet")))
}

/// A node as JSON, keys without value left out, as Go leaves them out.
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

/// The error for a value of the wrong kind.
pub(super) fn wrong(path: &str, node: &Node, needed: &str) -> Error {
    node.place.error(format!("`{path}` is {}, {needed} is needed", node.kind()))
}

fn quote(path: &str, node: &Node, value: &str) -> Error {
    node.place.error(format!("`{path}` is {}, text is needed: quote it, as in \"{value}\"", node.kind()))
}
