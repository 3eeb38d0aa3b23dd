//! Compares two snapshots of a cluster: objects changed, added and removed, by kind, namespace and name.
//!
//! Volatile fields are ignored: `status`, versions and identities in `metadata`, the times of a lease, events and
//! measured values. Snapshots are streamed: memory holds the names of the objects, a temporary file those of the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context as _, Result};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::archive::{ArchiveSource, ExtractedFiles, PassAction, objects};
use super::terminal::TextOutput;
use crate::layout;
use base::json::{is_default, json, list};
use base::visible;

/// Fields of `metadata` that differ between two reads of the same object.
const IDENTITY: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];
/// Maximum differences to report per object; the rest is counted.
const TOLD: usize = 100;
/// Longer values are cut.
const VALUE: usize = 1000;
/// Maximum width of a value in the text.
const SHOWN: usize = 79;

/// Fields that name the element of a list.
const NAMES: [&str; 4] = ["mount", "name", "server", "device"];

/// The changes of objects.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Objects {
    changed: Vec<Changed>,
    appeared: Vec<Name>,
    vanished: Vec<Name>,
    unchanged: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Name {
    /// The kind as in file names: `deployments`.
    #[serde(skip)]
    plural: String,
    kind: String,
    #[serde(serialize_with = "group")]
    group: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct Changed {
    #[serde(flatten)]
    name: Name,
    differences: Vec<FieldDifference>,
    /// Number of differences not reported.
    #[serde(skip_serializing_if = "is_default")]
    more: usize,
}

#[derive(Debug, PartialEq, Serialize)]
struct FieldDifference {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
}

impl Objects {
    /// Compares two snapshots; `None` if neither holds any object.
    pub(crate) fn between(before: &ArchiveSource, after: &ArchiveSource) -> Result<Option<Self>> {
        // The objects of the first snapshot by key, and the names of those that the second one lacks so far.
        let (mut old, mut left) = (ExtractedFiles::default(), BTreeMap::new());
        each(before, |name, object| {
            old.add(&name.key(), object.to_string().as_bytes())?;
            left.insert(name.key(), Some(name));
            Ok(())
        })?;
        let mut found = Self::default();
        each(after, |name, object| {
            // An object listed in several versions is compared once.
            match left.insert(name.key(), None) {
                None => found.appeared.push(name),
                Some(None) => {}
                Some(Some(_)) => {
                    let mut differences = Vec::new();
                    compare("", old.document(&name.key())?.as_ref(), Some(&object), &mut differences);
                    let more = differences.len().saturating_sub(TOLD);
                    differences.truncate(TOLD);
                    if differences.is_empty() {
                        found.unchanged += 1;
                    } else {
                        found.changed.push(Changed { name, differences, more });
                    }
                }
            }
            Ok(())
        })?;
        if left.is_empty() {
            return Ok(None);
        }
        found.vanished = left.into_values().flatten().collect();
        found.changed.sort_by(|a, b| a.name.cmp(&b.name));
        found.appeared.sort();
        found.vanished.sort();
        Ok(Some(found))
    }

    /// Writes the text report.
    pub(crate) fn write_text(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        let shown = |value: &Option<Value>| match value {
            Some(value) => visible::cut(&value.to_string(), SHOWN).into_owned(),
            None => "(none)".into(),
        };
        let changed = self.changed.iter().map(|Changed { name, differences, more }| {
            let differences = differences.iter().map(|FieldDifference { path, before, after }| {
                format!("{path}: {} -> {}", shown(before), shown(after))
            });
            json!({"name": name.to_string(), "differences": list(differences), "further": more})
        });
        let names = |names: &[Name]| names.iter().map(Name::to_string).collect::<Vec<_>>();
        let others = [("Objects appeared", &self.appeared), ("Objects vanished", &self.vanished)];
        let others = others.map(|(title, objects)| json!({"title": title, "names": names(objects)}));
        let values = json!({
            "changed": list(changed), "others": others, "unchanged": self.unchanged,
        });
        terminal.fill(include_str!("snapshot.txt"), &[&values])
    }
}

impl Name {
    /// Neither by kind, which old files lack, nor by version, which a new server may change.
    fn key(&self) -> String {
        [&*self.group, &self.plural, &self.namespace, &self.name].join("/")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.group == "core" { String::new() } else { format!(".{}", self.group) };
        let gap = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{}{group} {}{gap}{}", self.kind, self.namespace, self.name)
    }
}

/// The core group has no name except in files.
fn group<S: Serializer>(group: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if group == "core" { "" } else { group })
}

/// Finds the paths at which two values differ.
fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, out: &mut Vec<FieldDifference>) {
    if before == after {
        return;
    }
    match (before.and_then(parts), after.and_then(parts)) {
        (Some(a), Some(b)) => {
            for step in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                compare(&format!("{path}{step}"), a.get(step).copied(), b.get(step).copied(), out);
            }
        }
        _ => out.push(FieldDifference {
            path: path.trim_start_matches('.').to_owned(),
            before: before.map(cut),
            after: after.map(cut),
        }),
    }
}

/// The parts of an object or a list by their step in a path: `.field`, `[name]` if all elements have names, else `[0]`;
/// `None` for a value without parts.
pub(super) fn parts(value: &Value) -> Option<BTreeMap<String, &Value>> {
    let is_simple = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let field = |key: &String| if is_simple(key) { format!(".{key}") } else { format!("[{}]", json!(key)) };
    let named =
        |element: &Value| NAMES.iter().find_map(|name| Some(format!("[{}]", element.get(name)?.as_str()?)));
    match value {
        Value::Object(map) => Some(map.iter().map(|(key, value)| (field(key), value)).collect()),
        Value::Array(list) => {
            let by_name: Option<BTreeMap<_, _>> =
                list.iter().map(|element| Some((named(element)?, element))).collect();
            let by_index = || (0..).map(|at| format!("[{at}]")).zip(list).collect();
            Some(by_name.filter(|named| named.len() == list.len()).unwrap_or_else(by_index))
        }
        _ => None,
    }
}

fn cut(value: &Value) -> Value {
    match value.to_string() {
        text if text.len() <= VALUE => value.clone(),
        text => json!(visible::cut(value.as_str().unwrap_or(&text), VALUE)),
    }
}

/// Visits every compared object, without its volatile fields.
fn each(source: &ArchiveSource, mut visit: impl FnMut(Name, Value) -> Result<()>) -> Result<()> {
    let all = source.extract(|_, file, _, content| {
        let Some(base) = of_file(file) else { return Ok(PassAction::Skip) };
        let mut failed = None;
        let read = objects(content, |mut object| {
            let mut name = base.clone();
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            name.name = text("/metadata/name").unwrap_or_default();
            name.namespace = text("/metadata/namespace").unwrap_or(name.namespace);
            name.kind = text("/kind").unwrap_or(name.kind);
            clean(&name, &mut object);
            visit(name, object).map_err(|error| failed = Some(error)).is_ok()
        });
        match failed {
            Some(error) => Err(error),
            None => {
                read.with_context(|| format!("`{file}` is not a list of objects")).map(|()| PassAction::Skip)
            }
        }
    });
    all.map(drop)
}

/// The kind of objects in a file, from its name; `None` for other files and for volatile kinds.
fn of_file(file: &str) -> Option<Name> {
    let (namespace, name) = layout::resource_file(file)?;
    let stem = name.strip_suffix(".json")?;
    let mut parts = stem.splitn(3, '_');
    let (group, plural) = match (parts.next(), parts.next(), parts.next()) {
        (Some(group), Some(_), Some(plural)) => (group, plural),
        _ => ("core", stem),
    };
    let name = Name {
        plural: plural.to_owned(),
        kind: plural.to_owned(),
        group: group.to_owned(),
        namespace: namespace.to_owned(),
        name: String::new(),
    };
    (plural != "events" && group != "metrics.k8s.io").then_some(name)
}

fn clean(name: &Name, object: &mut Value) {
    let mut fields = |pointer: &str, keep: &dyn Fn(&str) -> bool| {
        if let Some(fields) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            fields.retain(|field, _| keep(field));
        }
    };
    fields("", &|field| field != "status");
    fields("/metadata", &|field| !IDENTITY.contains(&field));
    if name.plural == "leases" {
        fields("/spec", &|field| field != "renewTime");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_by_their_path() {
        let shown = |value: &Option<Value>| value.as_ref().map_or("(none)".into(), Value::to_string);
        let check = |before: Value, after: Value, expected: &[&str]| {
            let mut found = Vec::new();
            compare("", Some(&before), Some(&after), &mut found);
            let found: Vec<_> = found
                .iter()
                .map(|d| format!("{}: {} -> {}", d.path, shown(&d.before), shown(&d.after)))
                .collect();
            assert_eq!(found, expected);
        };
        check(json!({"spec": {"replicas": 1}}), json!({"spec": {"replicas": 2}}), &["spec.replicas: 1 -> 2"]);
        check(
            json!({"metadata": {"labels": {"a.b/c": "x"}}}),
            json!({"metadata": {"labels": {}}}),
            &[r#"metadata.labels["a.b/c"]: "x" -> (none)"#],
        );
        check(
            json!({"c": [{"name": "a", "v": 1}, {"name": "b"}]}),
            json!({"c": [{"name": "b"}, {"name": "a", "v": 2}]}),
            &["c[a].v: 1 -> 2"],
        );
        check(json!({"l": [1, 2]}), json!({"l": [1, 3, 4]}), &["l[1]: 2 -> 3", "l[2]: (none) -> 4"]);
        check(json!({"a": 1}), json!({"a": 1}), &[]);
    }

    #[test]
    fn files_are_identified_by_content() {
        let check = |file: &str, expected: Option<(&str, &str, &str)>| {
            let found = of_file(file);
            let found = found.as_ref().map(|n| (n.group.as_str(), n.plural.as_str(), n.namespace.as_str()));
            assert_eq!(found, expected, "{file}");
        };
        check("resources/cluster/core_v1_nodes.json", Some(("core", "nodes", "")));
        check("resources/ns/a/apps_v1_deployments.json", Some(("apps", "deployments", "a")));
        check("resources/ns/a/Pods.json", Some(("core", "Pods", "a")));
        check("resources/ns/a/core_v1_events.json", None);
        check("resources/ns/a/metrics.k8s.io_v1beta1_pods.json", None);
        check("podlogs/a/b/logs/c.txt", None);
    }
}
