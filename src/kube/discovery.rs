//! The kinds of objects on a server, and the client's permissions for them.
//!
//! Owns parsing both forms of discovery (aggregated, and group by group for servers before 1.27),
//! mapping a manifest to its path, access reviews and the server's version. A group that does not
//! answer is data, not an error.

use anyhow::anyhow;
use serde_json::Value;

use super::client::Client;
use super::error::Error;
use super::request::{Method, Object as _, Request, Resource, group_version, path_of};
use base::json::json;

/// Aggregated discovery if the server supports it, else the plain list of groups.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                      application/json";

/// All kinds of objects on a server.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// Every group, version and kind; within a group the preferred version comes first.
    pub kinds: Vec<Kind>,
    /// `group/version` that could not be read, and why.
    pub failures: Vec<(String, String)>,
}

/// One kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// Its path.
    pub resource: Resource,
    /// Supported verbs: `list`, `create`, ….
    pub verbs: Vec<String>,
    /// Whether this is the server's preferred version of its group.
    pub preferred: bool,
}

impl Kind {
    /// Whether this verb is supported.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

impl Discovery {
    /// Each kind once, in the server's preferred version, else in the first version that has it.
    pub fn preferred(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().enumerate().filter_map(|(index, kind)| {
            let same = |other: &Kind| {
                other.resource.group == kind.resource.group
                    && other.resource.plural == kind.resource.plural
            };
            let has_better = !kind.preferred
                && self
                    .kinds
                    .iter()
                    .any(|other| same(other) && other.preferred);
            (!has_better && !self.kinds[..index].iter().any(same)).then_some(kind)
        })
    }

    /// The path of a manifest's kind.
    pub fn find(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.kinds.iter().find(|known| {
            known.resource.kind == kind && known.resource.api_version() == api_version
        })
    }
}

impl Client {
    /// Queries all kinds. It is only an error if the server does not answer at all.
    pub fn discover(&self) -> Result<Discovery, Error> {
        let mut discovery = Discovery::default();
        for root in ["/api", "/apis"] {
            let answer = self.send(&Request::raw(Method::GET, root).header("accept", ACCEPT))?;
            match answer["kind"].as_str() {
                Some("APIGroupDiscoveryList") => discovery.read_aggregated(&answer),
                Some("APIVersions") => {
                    for version in answer["versions"].items().filter_map(Value::as_str) {
                        self.read_plain(&mut discovery, "", version, true);
                    }
                }
                Some("APIGroupList") => {
                    for group in answer["groups"].items() {
                        let name = group["name"].text();
                        let preferred = group["preferredVersion"]["version"].text();
                        for version in group["versions"].items() {
                            let version = version["version"].text();
                            self.read_plain(&mut discovery, name, version, version == preferred);
                        }
                    }
                }
                _ => return Err(anyhow!("`GET {root}`: not a Kubernetes API server").into()),
            }
        }
        if self.stop().stopped() {
            Err(Error::Stopped)
        } else {
            Ok(discovery)
        }
    }

    /// The server's version: `gitVersion`, `major`, `minor`, ….
    pub fn version(&self) -> Result<Value, Error> {
        self.send(&Request::raw(Method::GET, "/version"))
    }

    /// Whether the client may use `verb` on a kind; an empty namespace means in all of them.
    pub fn allowed(&self, verb: &str, resource: &Resource, namespace: &str) -> Result<bool, Error> {
        let (plural, sub) = resource
            .plural
            .split_once('/')
            .unwrap_or((&resource.plural, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": resource.group, "version": resource.version, "resource": plural,
                "subresource": sub, "namespace": namespace,
            }},
        });
        let answer = self.create(&Resource::ACCESS_REVIEWS, "", &review)?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// What the client may do in a namespace, as far as the server's authorizers can tell in
    /// advance; nothing if they cannot.
    pub fn rules(&self, namespace: &str) -> Rules {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        });
        match self.create(&Resource::RULES_REVIEWS, "", &review) {
            Ok(answer) => Rules(answer["status"].clone()),
            Err(error) => {
                log::debug!("the rules in namespace `{namespace}` are not known: {error}");
                Rules::default()
            }
        }
    }

    fn read_plain(&self, found: &mut Discovery, group: &str, version: &str, preferred: bool) {
        match self.send(&Request::raw(Method::GET, path_of(group, version))) {
            Ok(answer) => {
                // A slash means a subresource.
                let entries = answer["resources"].items();
                for entry in entries.filter(|entry| !entry["name"].text().contains('/')) {
                    let names = [&entry["name"], &entry["kind"]];
                    let namespaced = entry["namespaced"] == true;
                    found.add(
                        [group, version],
                        names,
                        &entry["verbs"],
                        namespaced,
                        preferred,
                    );
                }
            }
            Err(why) => found
                .failures
                .push((group_version(group, version), why.to_string())),
        }
    }
}

impl Discovery {
    fn add(
        &mut self,
        [group, version]: [&str; 2],
        [plural, kind]: [&Value; 2],
        verbs: &Value,
        namespaced: bool,
        preferred: bool,
    ) {
        let resource = Resource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            plural: plural.text().to_owned().into(),
            kind: kind.text().to_owned().into(),
            namespaced,
        };
        let verbs = verbs
            .items()
            .filter_map(Value::as_str)
            .map(Into::into)
            .collect();
        self.kinds.push(Kind {
            resource,
            verbs,
            preferred,
        });
    }

    fn read_aggregated(&mut self, answer: &Value) {
        for entry in answer["items"].items() {
            let group = entry.name();
            for (index, version) in entry["versions"].items().enumerate() {
                let name = version["version"].text();
                if version["freshness"] == "Stale" {
                    self.failures.push((
                        group_version(group, name),
                        "the server behind it does not answer".into(),
                    ));
                }
                for entry in version["resources"].items() {
                    let (kind, namespaced) = (
                        &entry["responseKind"]["kind"],
                        entry["scope"] == "Namespaced",
                    );
                    if !kind.is_null() {
                        let names = [&entry["resource"], kind];
                        self.add(
                            [group, name],
                            names,
                            &entry["verbs"],
                            namespaced,
                            index == 0,
                        );
                    }
                }
            }
        }
    }
}
/// The rules of a client in a namespace, which may not be all of them.
#[derive(Default)]
pub struct Rules(Value);

impl Rules {
    /// Whether the rules say that the client may use `verb` on a kind. A rule for certain names
    /// does not count, and neither does any if an authorizer could not be asked, which might
    /// refuse.
    pub fn allow(&self, verb: &str, resource: &Resource) -> bool {
        let has = |rule: &Value, list: &str, wanted: &str| {
            rule[list]
                .items()
                .any(|entry| entry == "*" || *entry == *wanted)
        };
        self.0["incomplete"] != true
            && self.0["resourceRules"].items().any(|rule| {
                has(rule, "verbs", verb)
                    && has(rule, "apiGroups", &resource.group)
                    && has(rule, "resources", &resource.plural)
                    && rule["resourceNames"].items().next().is_none()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_allow_only_what_is_certain() {
        let rule = |verbs: Value, groups: Value, kinds: Value, names: Value| json!({"verbs": verbs, "apiGroups": groups, "resources": kinds, "resourceNames": names});
        let all = || json!(["*"]);
        for (rule, incomplete, expected) in [
            (rule(all(), all(), all(), Value::Null), false, true),
            (rule(all(), all(), all(), Value::Null), true, false),
            (
                rule(
                    json!(["get", "create"]),
                    json!([""]),
                    json!(["pods"]),
                    json!([]),
                ),
                false,
                true,
            ),
            (
                rule(json!(["get"]), all(), all(), Value::Null),
                false,
                false,
            ),
            (
                rule(all(), json!(["apps"]), all(), Value::Null),
                false,
                false,
            ),
            (
                rule(all(), all(), json!(["secrets"]), Value::Null),
                false,
                false,
            ),
            (rule(all(), all(), all(), json!(["one"])), false, false),
        ] {
            let status = json!({"resourceRules": [rule], "incomplete": incomplete});
            let allowed = Rules(status.clone()).allow("create", &Resource::PODS);
            assert_eq!(allowed, expected, "{status}");
        }
        assert!(!Rules::default().allow("create", &Resource::PODS));
    }
}
