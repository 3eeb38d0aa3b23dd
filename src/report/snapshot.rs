//! Compares two snapshots of a cluster: objects changed, added and removed, by kind, namespace and name.
//!
//! Volatile fields are ignored: `status`, versions and identities in `metadata`, the times of a lease, events and
//! measured values. Snapshots are streamed several times: memory holds two numbers per object, and changed objects
//! are kept in a temporary file.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};

use anyhow::Context as _;
use serde::de::DeserializeSeed as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::source::Source;
use super::spool;
use crate::layout;
use base::json::Saved;
use base::json::json;
use base::visible;

/// Fields of `metadata` that differ between two reads of the same object.
const IDENTITY: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];
/// Maximum differences to report per object; the rest is counted.
const TOLD: usize = 100;
/// Longer values are cut.
const VALUE: usize = 1000;
/// Maximum objects per kind of change in the text, and maximum width of a value.
const MAX_LISTED: usize = 200;
const SHOWN: usize = 80;

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
    differences: Vec<Difference>,
    /// Number of differences not reported.
    #[serde(skip_serializing_if = "is_zero")]
    more: usize,
}

#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
}

impl Objects {
    /// Compares two snapshots; `None` if neither holds any object.
    pub(crate) fn between(before: &Source, after: &Source) -> anyhow::Result<Option<Self>> {
        let mut old = HashMap::new();
        each(before, |name, object| {
            old.insert(key(name), (digest(&object), false));
            Ok(())
        })?;
        let mut found = Self::default();
        let mut places = HashMap::new();
        each(after, |name, object| {
            match old.get_mut(&key(name)) {
                None => found.appeared.push(name.clone()),
                Some((digest_before, met)) => {
                    *met = true;
                    if *digest_before == digest(&object) {
                        found.unchanged += 1;
                    } else {
                        places.insert(key(name), (0_u64, 0_usize));
                    }
                }
            }
            Ok(())
        })?;
        if old.is_empty() && found.appeared.is_empty() {
            return Ok(None);
        }
        if !places.is_empty() || old.values().any(|(_, met)| !met) {
            found.look_closer(before, after, &old, places)?;
        }
        found.changed.sort_by(|a, b| a.name.cmp(&b.name));
        found.appeared.sort();
        found.vanished.sort();
        Ok(Some(found))
    }

    /// Reads both again for removed objects and for the paths of differences.
    fn look_closer(
        &mut self,
        before: &Source,
        after: &Source,
        old: &HashMap<u64, (u64, bool)>,
        mut places: HashMap<u64, (u64, usize)>,
    ) -> anyhow::Result<()> {
        let writing = "cannot write a temporary file";
        let mut spool = BufWriter::new(spool::temporary().context(writing)?);
        let mut end = 0;
        each(before, |name, object| {
            let key = key(name);
            if let Some(place) = places.get_mut(&key) {
                let text = object.to_string();
                *place = (end, text.len());
                end += text.len() as u64;
                spool.write_all(text.as_bytes()).context(writing)?;
            } else if old.get(&key).is_some_and(|(_, met)| !met) {
                self.vanished.push(name.clone());
            }
            Ok(())
        })?;
        let spool = spool.into_inner().map_err(std::io::IntoInnerError::into_error).context(writing)?;
        let mut file = spool.into_file();
        each(after, |name, object| {
            let Some((at, length)) = places.remove(&key(name)) else { return Ok(()) };
            let mut text = vec![0; length];
            file.seek(SeekFrom::Start(at)).context("cannot read a temporary file")?;
            file.read_exact(&mut text).context("cannot read a temporary file")?;
            let earlier = serde_json::from_slice(&text).context("a temporary file is broken")?;
            let mut differences = Vec::new();
            compare(&mut String::new(), Some(&earlier), Some(&object), &mut differences);
            let more = differences.len().saturating_sub(TOLD);
            differences.truncate(TOLD);
            self.changed.push(Changed { name: name.clone(), differences, more });
            Ok(())
        })
    }

    /// Writes the text report.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        title(out, "Objects changed", self.changed.len())?;
        for changed in self.changed.iter().take(MAX_LISTED) {
            writeln!(out, "  {}", changed.name)?;
            for Difference { path, before, after } in &changed.differences {
                writeln!(
                    out,
                    "    {}: {} -> {}",
                    visible::line(path),
                    shown(before.as_ref()),
                    shown(after.as_ref())
                )?;
            }
            if changed.more > 0 {
                writeln!(out, "    and {} more", changed.more)?;
            }
        }
        end(out, self.changed.len())?;
        for (text, names) in [("Objects appeared", &self.appeared), ("Objects vanished", &self.vanished)] {
            title(out, text, names.len())?;
            for name in names.iter().take(MAX_LISTED) {
                writeln!(out, "  {name}")?;
            }
            end(out, names.len())?;
        }
        Ok(writeln!(out, "Objects unchanged: {}", self.unchanged)?)
    }
}

fn title(out: &mut dyn Write, text: &str, count: usize) -> anyhow::Result<()> {
    if count > 0 {
        writeln!(out, "{text}: {count}")?;
    }
    Ok(())
}

fn end(out: &mut dyn Write, count: usize) -> anyhow::Result<()> {
    if count > MAX_LISTED {
        writeln!(out, "  and {} more", count - MAX_LISTED)?;
    }
    if count > 0 {
        writeln!(out)?;
    }
    Ok(())
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.kind.clone();
        if self.group != "core" {
            let _ = write!(text, ".{}", self.group);
        }
        text.push(' ');
        if !self.namespace.is_empty() {
            let _ = write!(text, "{}/", self.namespace);
        }
        f.write_str(&visible::line(&(text + &self.name)))
    }
}

/// The core group has no name except in files.
fn group<S: Serializer>(group: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if group == "core" { "" } else { group })
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn key(name: &Name) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Neither by kind, which old files lack, nor by version, which a new server may change.
    (&name.group, &name.plural, &name.namespace, &name.name).hash(&mut hasher);
    hasher.finish()
}

fn digest(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Finds the paths at which two values differ.
fn compare(path: &mut String, before: Option<&Value>, after: Option<&Value>, out: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    let length = path.len();
    match (before, after) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let simple = key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
                match (simple, path.is_empty()) {
                    (true, true) => path.push_str(key),
                    (true, false) => _ = write!(path, ".{key}"),
                    (false, _) => _ = write!(path, "[{}]", json!(key)),
                }
                compare(path, a.get(key), b.get(key), out);
                path.truncate(length);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            if let (Some(a), Some(b)) = (by_name(a), by_name(b)) {
                let find = |list: &[(&str, &'_ Value)], name: &str| list.iter().position(|(n, _)| *n == name);
                for name in a.iter().chain(&b).map(|(name, _)| *name).collect::<BTreeSet<_>>() {
                    let _ = write!(path, "[{name}]");
                    compare(path, find(&a, name).map(|i| a[i].1), find(&b, name).map(|i| b[i].1), out);
                    path.truncate(length);
                }
                return;
            }
            for index in 0..a.len().max(b.len()) {
                let _ = write!(path, "[{index}]");
                compare(path, a.get(index), b.get(index), out);
                path.truncate(length);
            }
        }
        _ => out.push(Difference { path: path.clone(), before: before.map(cut), after: after.map(cut) }),
    }
}

/// The elements of a list by name, for lists of named elements such as containers and variables.
fn by_name(list: &[Value]) -> Option<Vec<(&str, &Value)>> {
    let named: Option<Vec<_>> = list.iter().map(|item| Some((item.get("name")?.as_str()?, item))).collect();
    let named = named.filter(|named| !named.is_empty())?;
    let unique: BTreeSet<_> = named.iter().map(|(name, _)| name).collect();
    (unique.len() == named.len()).then_some(named)
}

fn cut(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() <= VALUE {
        return value.clone();
    }
    let text = value.as_str().map_or(text, str::to_owned);
    json!(text.chars().take(VALUE).chain(['…']).collect::<String>())
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(none)".into() };
    let text = visible::line(&value.to_string()).into_owned();
    if text.chars().count() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN - 1).chain(['…']).collect()
}

/// Visits every compared object, without its volatile fields.
fn each(source: &Source, mut visit: impl FnMut(&Name, Value) -> anyhow::Result<()>) -> anyhow::Result<()> {
    source.each(|file, _, content| {
        let Some(base) = of_file(file) else { return Ok(()) };
        let mut failed = None;
        let mut take = |mut object: Value| {
            let mut name = base.clone();
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            name.name = text("/metadata/name").unwrap_or_default();
            name.namespace = text("/metadata/namespace").unwrap_or(name.namespace);
            name.kind = text("/kind").unwrap_or(name.kind);
            clean(&name, &mut object);
            visit(&name, object).map_err(|error| failed = Some(error)).is_ok()
        };
        let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(64 << 10, content));
        let read = Saved(&mut take).deserialize(&mut reader);
        match failed {
            Some(error) => Err(error),
            None => read.with_context(|| format!("`{file}` is not a list of objects")),
        }
    })
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
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.retain(|field, _| !IDENTITY.contains(&field.as_str()));
    }
    if name.plural == "leases"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("renewTime");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_by_their_path() {
        let check = |before: Value, after: Value, expected: &[&str]| {
            let mut found = Vec::new();
            compare(&mut String::new(), Some(&before), Some(&after), &mut found);
            let found: Vec<_> = found
                .iter()
                .map(|d| format!("{}: {} -> {}", d.path, shown(d.before.as_ref()), shown(d.after.as_ref())))
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
    fn files_say_what_is_in_them() {
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
