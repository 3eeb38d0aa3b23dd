//! The objects, their versions and their history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Path of an object or a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The subresource: `log`, `status`, `proxy/configz`.
    pub(super) sub: String,
}

/// A served kind.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: &'static str,
    /// Its path.
    pub path: String,
    /// Its state after the change.
    pub object: Value,
    pub(super) version: u64,
    pub(super) place: Place,
}

#[derive(Default)]
pub(super) struct Store {
    objects: BTreeMap<Place, Value>,
    past: Vec<Change>,
    pub(super) version: u64,
    pub(super) oldest: u64,
    serial: u64,
}

impl Kind {
    pub(super) fn new(group_version: &str, plural: &str, kind: &str, namespaced: bool) -> Self {
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let [group, version, plural, kind] = [group, version, plural, kind].map(str::to_owned);
        Self {
            group,
            version,
            plural,
            kind,
            namespaced,
        }
    }

    pub(super) fn serves(&self, place: &Place) -> bool {
        self.group == place.group && self.version == place.version && self.plural == place.plural
    }

    pub(super) fn group_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// The built-in kinds, as far as tests use them.
pub(super) fn kinds() -> Vec<Kind> {
    [
        ("v1", "namespaces", "Namespace", false),
        ("v1", "nodes", "Node", false),
        ("v1", "persistentvolumes", "PersistentVolume", false),
        ("v1", "pods", "Pod", true),
        ("v1", "configmaps", "ConfigMap", true),
        ("v1", "secrets", "Secret", true),
        ("v1", "services", "Service", true),
        ("v1", "serviceaccounts", "ServiceAccount", true),
        ("v1", "events", "Event", true),
        ("v1", "resourcequotas", "ResourceQuota", true),
        (
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            true,
        ),
        ("apps/v1", "daemonsets", "DaemonSet", true),
        ("apps/v1", "deployments", "Deployment", true),
        ("batch/v1", "jobs", "Job", true),
        (
            "rbac.authorization.k8s.io/v1",
            "clusterroles",
            "ClusterRole",
            false,
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "clusterrolebindings",
            "ClusterRoleBinding",
            false,
        ),
        ("rbac.authorization.k8s.io/v1", "roles", "Role", true),
        (
            "rbac.authorization.k8s.io/v1",
            "rolebindings",
            "RoleBinding",
            true,
        ),
    ]
    .into_iter()
    .map(|(group_version, plural, kind, namespaced)| {
        Kind::new(group_version, plural, kind, namespaced)
    })
    .collect()
}

/// Reads a decoded path of the API; a collection has no name.
pub(super) fn parse(path: &str) -> Option<Place> {
    let mut parts = path.trim_start_matches('/').split('/');
    let mut place = Place::default();
    match parts.next()? {
        "api" => {}
        "apis" => place.group = parts.next()?.to_owned(),
        _ => return None,
    }
    place.version = parts.next()?.to_owned();
    let rest: Vec<&str> = parts.collect();
    let rest = match rest.as_slice() {
        // Subresources of a namespace.
        ["namespaces", _, "status" | "finalize"] => rest.as_slice(),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            place.namespace = (*namespace).to_owned();
            rest
        }
        rest => rest,
    };
    let (plural, rest) = rest.split_first()?;
    place.plural = (*plural).to_owned();
    if let Some((name, sub)) = rest.split_first() {
        place.name = (*name).to_owned();
        place.sub = sub.join("/");
    }
    Some(place)
}

impl Place {
    pub(super) fn path(&self) -> String {
        let root = if self.group.is_empty() {
            "/api".to_owned()
        } else {
            format!("/apis/{}", self.group)
        };
        let namespace = if self.namespace.is_empty() {
            String::new()
        } else {
            format!("namespaces/{}/", self.namespace)
        };
        format!(
            "{root}/{}/{namespace}{}/{}",
            self.version, self.plural, self.name
        )
    }

    /// Whether an object belongs to this collection.
    pub(super) fn holds(&self, other: &Self) -> bool {
        self.group == other.group
            && self.version == other.version
            && self.plural == other.plural
            && (self.namespace.is_empty() || self.namespace == other.namespace)
    }

    fn object(&self) -> Self {
        Self {
            sub: String::new(),
            ..self.clone()
        }
    }
}

impl Store {
    pub(super) fn get(&self, place: &Place) -> Option<Value> {
        self.objects.get(&place.object()).cloned()
    }

    pub(super) fn list(&self, collection: &Place) -> Vec<Value> {
        let all = self
            .objects
            .iter()
            .filter(|(place, _)| collection.holds(place));
        all.map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn put(
        &mut self,
        place: &Place,
        kind: &str,
        mut object: Value,
    ) -> (Value, Vec<Change>) {
        let place = place.object();
        let known = self.objects.get(&place).cloned();
        object["kind"] = kind.into();
        object["apiVersion"] = if place.group.is_empty() {
            place.version.clone().into()
        } else {
            format!("{}/{}", place.group, place.version).into()
        };
        object["metadata"]["name"] = place.name.clone().into();
        if !place.namespace.is_empty() {
            object["metadata"]["namespace"] = place.namespace.clone().into();
        }
        self.serial += 1;
        let uid = match &known {
            Some(known) => known["metadata"]["uid"].clone(),
            None => format!("00000000-0000-4000-8000-{:012}", self.serial).into(),
        };
        object["metadata"]["uid"] = uid;
        if object["metadata"]["creationTimestamp"].is_null() {
            object["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z".into();
        }
        let change = self.record(
            if known.is_some() { "MODIFIED" } else { "ADDED" },
            &place,
            object,
        );
        (change.object.clone(), vec![change])
    }

    pub(super) fn merge(&mut self, place: &Place, patch: &Value) -> Option<(Value, Vec<Change>)> {
        let place = place.object();
        let mut object = self.objects.get(&place)?.clone();
        merge(&mut object, patch);
        let meta = &object["metadata"];
        let done = !meta["deletionTimestamp"].is_null()
            && meta["finalizers"].as_array().is_none_or(Vec::is_empty);
        let change = self.record("MODIFIED", &place, object);
        let mut changes = vec![change.clone()];
        if done {
            changes.extend(self.remove(&place));
        }
        Some((change.object, changes))
    }

    /// Deletes as a real server does: finalizers delay the deletion of an object, but objects in a
    /// namespace do not.
    pub(super) fn delete(&mut self, place: &Place) -> Option<(Value, Vec<Change>)> {
        let place = place.object();
        let object = self.objects.get(&place)?.clone();
        if object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|held| !held.is_empty())
        {
            let mut patch = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:01Z"}});
            if place.plural == "namespaces" {
                patch["status"]["phase"] = "Terminating".into();
            }
            return self.merge(&place, &patch);
        }
        Some((object, self.remove(&place)))
    }

    pub(super) fn remove(&mut self, place: &Place) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut going = vec![place.object()];
        // One pass per generation: a set may own thousands.
        while !going.is_empty() {
            let (mut owners, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
            for place in going {
                let Some(object) = self.objects.get(&place).cloned() else {
                    continue;
                };
                owners.extend(object["metadata"]["uid"].as_str().map(str::to_owned));
                if place.plural == "namespaces" {
                    namespaces.insert(place.name.clone());
                }
                changes.push(self.record("DELETED", &place, object));
            }
            let below = self.objects.iter().filter(|(other, object)| {
                let owned = object["metadata"]["ownerReferences"]
                    .as_array()
                    .into_iter()
                    .flatten();
                let mut owned = owned.filter_map(|reference| reference["uid"].as_str());
                namespaces.contains(&other.namespace) || owned.any(|uid| owners.contains(uid))
            });
            going = below.map(|(other, _)| other.clone()).collect();
        }
        changes
    }

    pub(super) fn compact(&mut self) {
        self.version += 1;
        self.oldest = self.version;
        self.past.clear();
    }

    pub(super) fn since(&self, version: u64) -> &[Change] {
        &self.past[self
            .past
            .partition_point(|change| change.version <= version)..]
    }

    fn record(&mut self, kind: &'static str, place: &Place, mut object: Value) -> Change {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if kind == "DELETED" {
            self.objects.remove(place);
        } else {
            self.objects.insert(place.clone(), object.clone());
        }
        let change = Change {
            kind,
            path: place.path(),
            object,
            version: self.version,
            place: place.clone(),
        };
        self.past.push(change.clone());
        change
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// A strategic merge patch of `target` as one of RFC 7386: lists whose elements have a `type` are
/// merged by it.
pub(super) fn strategic(target: &Value, patch: Value) -> Value {
    match patch {
        Value::Object(fields) => {
            let merged = fields.into_iter().map(|(name, value)| {
                let value = strategic(&target[&name], value);
                (name, value)
            });
            Value::Object(merged.collect())
        }
        Value::Array(changes) if changes.iter().any(|change| change["type"].is_string()) => {
            let mut elements = target.as_array().cloned().unwrap_or_default();
            for change in changes {
                let known = elements
                    .iter()
                    .position(|element| element["type"] == change["type"]);
                match known {
                    Some(index) if change["$patch"] == "delete" => drop(elements.remove(index)),
                    Some(index) => merge(&mut elements[index], &change),
                    None => elements.push(change),
                }
            }
            Value::Array(elements)
        }
        other => other,
    }
}

/// Whether an object has these labels (`a=b,c!=d,e,!f,g in (x,y),h notin (z)`) and fields
/// (`a.b=c`).
pub(super) fn selected(object: &Value, labels: &str, fields: &str) -> bool {
    let label = |name: &str| object["metadata"]["labels"][name].as_str();
    let mut depth = 0;
    let terms = labels.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    let by_labels = terms
        .map(str::trim)
        .filter(|term| !term.is_empty())
        .all(|term| {
            if let Some((name, set)) = term.split_once(" notin ") {
                return !label(name.trim()).is_some_and(|value| within(set, value));
            }
            if let Some((name, set)) = term.split_once(" in ") {
                return label(name.trim()).is_some_and(|value| within(set, value));
            }
            match compared(term) {
                Some((name, same, value)) => (label(name) == Some(value)) == same,
                None => match term.strip_prefix('!') {
                    Some(name) => label(name).is_none(),
                    None => label(term).is_some(),
                },
            }
        });
    by_labels
        && fields
            .split(',')
            .filter(|term| !term.is_empty())
            .all(|term| {
                let (path, same, value) = compared(term).unwrap_or((term, true, ""));
                let pointer = format!("/{}", path.replace('.', "/"));
                (object
                    .pointer(&pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    == value)
                    == same
            })
}

fn within(set: &str, value: &str) -> bool {
    set.trim()
        .trim_matches(['(', ')'])
        .split(',')
        .any(|member| member.trim() == value)
}

fn compared(term: &str) -> Option<(&str, bool, &str)> {
    let (name, value) = term.split_once('=')?;
    let same = !name.ends_with('!');
    Some((
        name.trim_end_matches('!').trim(),
        same,
        value.trim_start_matches('=').trim(),
    ))
}
