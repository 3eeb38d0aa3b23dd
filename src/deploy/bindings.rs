//! Bindings that somebody else made for the account of a plugin, which then has more permissions
//! than its definition says.
//!
//! Reads only. Knows the accounts of plugins from the objects of the run. Starts no thread.

use anyhow::Result;
use serde_json::Value;

use base::visible;
use kube::{Client, Error, Object as _, Resource, Selector};
use model::names;
use model::plugin::{self, Permissions};

/// The account of a plugin, and what its definition says that it needs.
struct RestrictedAccount {
    plugin: String,
    name: String,
    permissions: &'static str,
}

/// Describes each binding that is not an object of the run and whose subject is the account of a
/// plugin with `permissions: none` or `read`. Without permission to list bindings, there is nothing
/// to say.
pub(crate) fn foreign_bindings(client: &Client, objects: &[Value], namespace: &str) -> Vec<String> {
    let accounts = restricted_accounts(objects).unwrap_or_default();
    let mut descriptions = Vec::new();
    if accounts.is_empty() {
        return descriptions;
    }
    for resource in [Resource::CLUSTER_ROLE_BINDINGS, Resource::ROLE_BINDINGS] {
        let bindings = match client.list(&resource, "", &Selector::all()) {
            Err(error) if resource.namespaced && error.is_forbidden() => {
                client.list(&resource, namespace, &Selector::all())
            }
            bindings => bindings,
        };
        let bindings = bindings.inspect_err(log_failure).unwrap_or_default();
        let foreign = bindings
            .iter()
            .filter(|binding| !is_in(objects, &resource, binding));
        for binding in foreign {
            let has = |account: &&RestrictedAccount| {
                binding["subjects"]
                    .items()
                    .any(|subject| account.is(subject, namespace))
            };
            let bound = accounts.iter().filter(has);
            descriptions.extend(bound.map(|account| account.describe(&resource, binding)));
        }
    }
    descriptions
}

/// Without these permissions, the account of a plugin cannot be examined; the run does not need it.
fn log_failure(error: &Error) {
    log::debug!("bindings of plugins' accounts are not checked: {error}");
}

/// The accounts of plugins that must not control anything.
fn restricted_accounts(objects: &[Value]) -> Result<Vec<RestrictedAccount>> {
    let is_definitions =
        |object: &&Value| object["kind"] == "ConfigMap" && object.name() == names::PLUGINS_MAP;
    let definitions = objects
        .iter()
        .filter(is_definitions)
        .flat_map(|map| map["data"].as_object());
    let mut accounts = Vec::new();
    for text in definitions
        .flat_map(|data| data.values())
        .filter_map(Value::as_str)
    {
        for loaded in plugin::read_all(text)? {
            let definition = loaded.definition;
            let permissions = match definition.config.permissions {
                Some(Permissions::None) => "none",
                Some(Permissions::Read) => "read",
                _ => continue,
            };
            let plugin = definition.name().to_owned();
            accounts.push(RestrictedAccount {
                name: names::plugin_account(&plugin),
                plugin,
                permissions,
            });
        }
    }
    Ok(accounts)
}

/// Whether a binding is one of the run's objects.
fn is_in(objects: &[Value], resource: &Resource, binding: &Value) -> bool {
    objects.iter().any(|object| {
        object["kind"] == *resource.kind
            && object.name() == binding.name()
            && (!resource.namespaced || object.namespace() == binding.namespace())
    })
}

impl RestrictedAccount {
    /// Whether a subject of a binding is this account, by its own name or by the group of its
    /// namespace.
    fn is(&self, subject: &Value, namespace: &str) -> bool {
        let name = subject["name"].text();
        match subject["kind"].text() {
            "ServiceAccount" => name == self.name && subject["namespace"] == namespace,
            "User" => name == format!("system:serviceaccount:{namespace}:{}", self.name),
            "Group" => name == format!("system:serviceaccounts:{namespace}"),
            _ => false,
        }
    }

    fn describe(&self, resource: &Resource, binding: &Value) -> String {
        let Self {
            plugin,
            name,
            permissions,
        } = self;
        let role = &binding["roleRef"];
        let place = match binding.namespace() {
            "" => String::new(),
            namespace => format!(" in namespace `{}`", visible::line(namespace)),
        };
        format!(
            "plugin `{plugin}` declares `permissions: {permissions}`, but the {} `{}`{place}, \
             which is not part of the run, gives its account `{name}` the {} `{}` as well: delete \
             that binding, or declare what the plugin needs",
            resource.kind,
            visible::line(binding.name()),
            visible::line(role["kind"].text()),
            visible::line(role["name"].text()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;
    use base::stop::Stop;
    use fake_api_server::{ApiServer, Fault};

    const CLUSTER: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    const LOCAL: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings";

    fn objects() -> Vec<Value> {
        let definition = |name: &str, permissions: &str| {
            format!(
                "sonobuoy-config: {{driver: Job, plugin-name: {name}, permissions: \
                 {permissions}}}\nspec: {{image: i}}\n"
            )
        };
        let data = json!({"a.yaml": definition("a", "none"), "b.yaml": definition("b", "read"), "c.yaml": definition("c", "admin")});
        let own = json!({"kind": "ClusterRoleBinding", "metadata": {"name": "own"}});
        vec![
            json!({"kind": "ConfigMap", "metadata": {"name": names::PLUGINS_MAP}, "data": data}),
            own,
        ]
    }

    fn binding(kind: &str, name: &str) -> Value {
        let mut subject = json!({"kind": kind, "name": name});
        if kind == "ServiceAccount" {
            subject["namespace"] = json!("ns");
        }
        json!({"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [subject]})
    }

    fn found(api: &ApiServer) -> Vec<String> {
        let client = Client::new("test/1", kube::Config::plain(api.url()), &Stop::new()).unwrap();
        foreign_bindings(&client, &objects(), "ns")
    }

    #[test]
    fn foreign_binding_of_a_restricted_account_is_described() {
        for (place, kind, subject, expected) in [
            (
                CLUSTER,
                "ServiceAccount",
                "sonobuoy-plugin-a",
                "plugin `a` declares `permissions: none`",
            ),
            (
                LOCAL,
                "ServiceAccount",
                "sonobuoy-plugin-b",
                "plugin `b` declares `permissions: read`",
            ),
            (
                CLUSTER,
                "User",
                "system:serviceaccount:ns:sonobuoy-plugin-a",
                "the ClusterRole `cluster-admin`",
            ),
            (
                LOCAL,
                "Group",
                "system:serviceaccounts:ns",
                "the RoleBinding `stray` in namespace `ns`",
            ),
            (CLUSTER, "ServiceAccount", "sonobuoy-plugin-c", ""),
            (CLUSTER, "Group", "system:authenticated", ""),
            (CLUSTER, "User", "sonobuoy-plugin-a", ""),
        ] {
            let api = ApiServer::start();
            api.put(&format!("{place}/stray"), binding(kind, subject));
            api.put(
                &format!("{CLUSTER}/own"),
                binding("ServiceAccount", "sonobuoy-plugin-a"),
            );
            let descriptions = found(&api);
            assert_eq!(
                descriptions.is_empty(),
                expected.is_empty(),
                "{kind} {subject}: {descriptions:?}"
            );
            assert!(
                descriptions.join("\n").contains(expected),
                "{kind} {subject}: {descriptions:?}"
            );
        }
    }

    #[test]
    fn forbidden_list_of_bindings_is_no_finding() {
        let api = ApiServer::start();
        api.put(
            &format!("{CLUSTER}/stray"),
            binding("ServiceAccount", "sonobuoy-plugin-a"),
        );
        for path in [
            CLUSTER,
            "/apis/rbac.authorization.k8s.io/v1/rolebindings",
            LOCAL,
        ] {
            api.fault(Fault::on(&format!("GET {path}")).status(
                403,
                "Forbidden",
                "bindings are forbidden",
            ));
        }
        assert_eq!(found(&api), Vec::<String>::new());
    }
}
