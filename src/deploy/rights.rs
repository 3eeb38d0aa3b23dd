//! Permissions in the cluster: accounts, roles and their bindings.
//!
//! The original has one account, for the aggregator and every plugin alike. A plugin that declares
//! permissions has its own account; one that declares none keeps the original's. A hardened
//! aggregator has an account with only the verbs that it uses.
//! `delete` finds all of them by names and labels. Those of a run that removes itself belong to its
//! namespace, so that the cluster deletes them with it.

use anyhow::{Result, bail};
use serde_json::Value;

use super::Plan;
use base::json::json;
use model::config;
use model::names::{self, AGGREGATOR_ACCOUNT, LABEL_ALL, SONOBUOY};
use model::plugin::{Definition, Permissions};
use oci::Reference;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The uid of an owner that is created with its object; until then, the server accepts any.
pub(super) const UID_OF_NEW_OWNER: &str = "new";
/// The original's verbs of a reader.
const READ: [&str; 3] = ["get", "list", "watch"];
/// Kubernetes' kinds that can be read by name: without subresources, since a `get` of `pods/exec`,
/// `pods/attach`, `pods/portforward` or of a `proxy` is remote control, and `*` includes all of
/// them.
const READABLE: &[&str] = &[
    "apiservices",
    "certificatesigningrequests",
    "clusterrolebindings",
    "clusterroles",
    "clustertrustbundles",
    "componentstatuses",
    "configmaps",
    "controllerrevisions",
    "cronjobs",
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "customresourcedefinitions",
    "daemonsets",
    "deployments",
    "deviceclasses",
    "devicetaintrules",
    "endpoints",
    "endpointslices",
    "events",
    "flowschemas",
    "horizontalpodautoscalers",
    "ingressclasses",
    "ingresses",
    "ipaddresses",
    "jobs",
    "leasecandidates",
    "leases",
    "limitranges",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "namespaces",
    "networkpolicies",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "podcertificaterequests",
    "poddisruptionbudgets",
    "pods",
    "podsecuritypolicies",
    "podtemplates",
    "priorityclasses",
    "prioritylevelconfigurations",
    "replicasets",
    "replicationcontrollers",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourcequotas",
    "resourceslices",
    "rolebindings",
    "roles",
    "runtimeclasses",
    "secrets",
    "serviceaccounts",
    "servicecidrs",
    "services",
    "statefulsets",
    "storageclasses",
    "storageversionmigrations",
    "storageversions",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
    "volumeattachments",
    "volumeattributesclasses",
];

/// Permissions of the run as a whole, set by `--aggregator-permissions`.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    ClusterAdmin,
    ClusterRead,
    NamespaceAdmin,
}

impl Level {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "clusterAdmin" => Self::ClusterAdmin,
            "clusterRead" => Self::ClusterRead,
            // The original's documentation names this level `namespaced`.
            "namespaceAdmin" | "namespaced" => Self::NamespaceAdmin,
            _ => bail!(
                "aggregator permissions `{text}` are unknown; choose clusterAdmin, clusterRead or \
                 namespaceAdmin"
            ),
        })
    }

    /// Description for messages.
    fn described(self) -> &'static str {
        match self {
            Self::ClusterAdmin => "cluster-admin",
            Self::ClusterRead => "a reader of the whole cluster and admin of its namespace",
            Self::NamespaceAdmin => "admin of its namespace",
        }
    }
}

/// Accounts of a run.
pub(super) struct RunAccounts<'a> {
    run: &'a config::Run,
    plugins: &'a [Definition],
    level: Level,
    /// Whether the aggregator has a separate account.
    apart: bool,
}

impl<'a> RunAccounts<'a> {
    pub(super) fn new(plan: &'a Plan, plugins: &'a [Definition]) -> Result<Self> {
        let run = &plan.run;
        let level = Level::parse(&run.aggregator_permissions)?;
        let original = is_original(&run.worker_image);
        let rights = Self {
            run,
            plugins,
            level,
            apart: plan.harden && !original,
        };
        for (plugin, _) in rights.declared() {
            let name = plugin.name();
            if original {
                bail!(
                    "plugin `{name}` has `permissions`, but the image `{}` starts every plugin \
                     with all rights of the run: use another image, or remove `permissions` from \
                     the definition",
                    run.worker_image
                );
            }
            let named = plugin
                .pod_spec
                .as_ref()
                .and_then(|pod| pod["serviceAccountName"].as_str())
                .unwrap_or_default();
            if !["", &run.service_account_name, names::SERVICE_ACCOUNT].contains(&named) {
                bail!(
                    "plugin `{name}` has `permissions`, but its pod runs as the account \
                     `{named}`: remove one of both from the definition"
                );
            }
        }
        rights.check_marks()?;
        if let Some(plugin) = rights.undeclared().next().filter(|_| plan.declared_only) {
            bail!(
                "the definition of plugin `{0}` does not say what it needs: write `permissions` \
                 (none, read, admin or a list of rules) below its `sonobuoy-config`, or leave out \
                 --plugin-permissions",
                plugin.name()
            );
        }
        Ok(rights)
    }

    /// Rejects marks of nodes by a run whose account may not write them.
    fn check_marks(&self) -> Result<()> {
        let reader = !self.apart && self.level == Level::ClusterRead;
        let is_denied = reader || self.level == Level::NamespaceAdmin;
        if is_denied && !self.run.mark_nodes.is_empty() {
            bail!(
                "--mark-nodes {}: the run is {}, which does not include conditions of nodes; \
                 choose `--aggregator-permissions clusterAdmin`{}",
                self.run.mark_nodes,
                self.level.described(),
                if reader { ", or `--harden on`" } else { "" }
            );
        }
        Ok(())
    }

    /// Notes about plugins that declare no permissions. An account that a definition names is its
    /// author's choice and not reported.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.apart {
            return notes;
        }
        let run_account = self.run.service_account_name.as_str();
        for plugin in self.undeclared() {
            let pod = plugin.pod_spec.as_ref();
            let account = pod.map(|pod| pod["serviceAccountName"].as_str());
            let who = match account {
                Some(None | Some("" | "default")) => "the account `default` of its namespace",
                Some(Some(account)) if account != run_account => continue,
                _ => self.level.described(),
            };
            notes.push(format!(
                "`{}` runs as {who}: its definition does not say what it needs",
                plugin.name()
            ));
        }
        notes
    }

    /// Whether the aggregator deletes the namespace, and with it all that the run has created.
    fn removes_itself(&self) -> bool {
        self.makes_namespace() && self.run.remove_after_seconds > 0
    }

    /// Whether the run creates its namespace.
    pub(super) fn makes_namespace(&self) -> bool {
        self.level == Level::ClusterAdmin
    }

    /// The account of the aggregator.
    pub(super) fn aggregator(&self) -> &str {
        if self.apart && !self.run.existing_service_account {
            AGGREGATOR_ACCOUNT
        } else {
            &self.run.service_account_name
        }
    }

    /// All accounts to create.
    pub(super) fn accounts(&self) -> Vec<Value> {
        let account = |name: &str, has_token: bool| {
            let mut account = json!({
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"labels": names::labels(), "name": name, "namespace": self.run.namespace},
            });
            if !has_token {
                account["automountServiceAccountToken"] = json!(false);
            }
            account
        };
        let mut accounts = Vec::new();
        if !self.run.existing_service_account {
            if self.is_shared() {
                accounts.push(account(&self.run.service_account_name, true));
            }
            if self.apart {
                accounts.push(account(AGGREGATOR_ACCOUNT, true));
            }
        }
        for (plugin, permissions) in self.declared() {
            accounts.push(account(
                &names::plugin_account(plugin.name()),
                *permissions != Permissions::None,
            ));
        }
        accounts
    }

    /// All bindings and roles.
    pub(super) fn roles(&self) -> Vec<Value> {
        let mut roles = Vec::new();
        if self.is_shared() {
            let names = [names::SERVICE_ACCOUNT, names::RUN_ROLE];
            roles.extend(self.everything(&self.run.service_account_name, names));
        }
        if self.apart && !self.run.existing_service_account {
            roles.extend(self.of_aggregator());
        }
        for (plugin, permissions) in self.declared() {
            roles.extend(self.of_plugin(plugin, permissions));
        }
        roles
    }

    /// Plugins with separate accounts.
    fn declared(&self) -> impl Iterator<Item = (&'a Definition, &'a Permissions)> {
        self.plugins
            .iter()
            .filter_map(|plugin| Some((plugin, plugin.config.permissions.as_ref()?)))
    }

    fn undeclared(&self) -> impl Iterator<Item = &'a Definition> {
        self.plugins
            .iter()
            .filter(|plugin| plugin.config.permissions.is_none())
    }

    /// Whether any pod still uses the run's shared account.
    fn is_shared(&self) -> bool {
        !self.apart || self.undeclared().next().is_some()
    }

    /// All permissions of the run, for one account.
    fn everything(&self, account: &str, names: [&str; 2]) -> Vec<Value> {
        let cluster: Vec<Value> = match self.level {
            Level::ClusterAdmin => vec![any(&["*"]), urls()],
            // The original's reader can control every pod.
            Level::ClusterRead if !self.apart => vec![any(&READ), urls()],
            Level::ClusterRead => read_rules().chain([urls()]).collect(),
            Level::NamespaceAdmin => Vec::new(),
        };
        let namespace = match self.level {
            // The cluster-wide rules cover the namespace.
            Level::ClusterAdmin => Vec::new(),
            Level::ClusterRead | Level::NamespaceAdmin => vec![any(&["*"])],
        };
        self.granted(account, names, &cluster, &namespace)
    }

    /// Rules of the aggregator: reads everything for the snapshot, including logs of pods and, if
    /// the snapshot includes nodes, the settings and health of kubelets through their proxy,
    /// which is control over each kubelet; reviews tokens, creates and deletes the plugins'
    /// objects, and writes its status to its pod. Without a snapshot, it reads only the nodes and
    /// what its own objects consist of.
    fn of_aggregator(&self) -> Vec<Value> {
        let name = AGGREGATOR_ACCOUNT;
        let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        let logs = || rule("", "pods/log", &["get"]);
        let mut rules = Vec::from([logs()]);
        if self.run.takes_snapshot() {
            rules.extend(read_rules());
        } else {
            rules.extend([
                rule("", "pods", &READ),
                rule("apps", "daemonsets", &["get"]),
                rule("", "secrets", &["get"]),
                rule("", "configmaps", &["get"]),
                rule("", "events", &["list"]),
            ]);
        }
        rules.extend([
            rule(
                "",
                "pods",
                &["create", "patch", "delete", "deletecollection"],
            ),
            rule(
                "apps",
                "daemonsets",
                &["create", "delete", "deletecollection"],
            ),
            rule("", "secrets", &["create", "delete"]),
            rule("", "configmaps", &["create", "patch"]),
            rule("", "events", &["create"]),
        ]);
        let mut cluster = Vec::new();
        if self.level != Level::NamespaceAdmin {
            if self.run.takes_snapshot() {
                cluster.extend(read_rules().chain([logs(), urls()]));
            } else {
                cluster.push(rule("", "nodes", &READ));
            }
            cluster.push(rule("authentication.k8s.io", "tokenreviews", &["create"]));
            if !self.run.mark_nodes.is_empty() {
                cluster.push(rule("", "nodes/status", &["patch"]));
            }
            if self.removes_itself() {
                let mut rule = rule("", "namespaces", &["delete"]);
                rule["resourceNames"] = json!([self.run.namespace]);
                cluster.push(rule);
            }
            if self.queries_kubelets() {
                cluster.push(rule("", "nodes/proxy", &["get"]));
            }
            cluster.extend(self.pod_policies());
        }
        self.granted(name, [name, name], &cluster, &rules)
    }

    /// Whether the snapshot includes nodes, and so what their kubelets say.
    fn queries_kubelets(&self) -> bool {
        let chosen = self.run.resources.as_ref();
        chosen.is_none_or(|chosen| chosen.iter().any(|kind| kind.eq_ignore_ascii_case("nodes")))
    }

    fn of_plugin(&self, plugin: &Definition, permissions: &Permissions) -> Vec<Value> {
        let account = names::plugin_account(plugin.name());
        let names = [&*account, &account];
        let mut rules = match permissions {
            Permissions::Admin => return self.everything(&account, names),
            Permissions::None => Vec::new(),
            Permissions::Read if self.level == Level::NamespaceAdmin => read_rules().collect(),
            Permissions::Read => read_rules().chain([urls()]).collect(),
            Permissions::Rules(rules) => rules.iter().map(|rule| json!(rule)).collect(),
        };
        rules.extend(self.pod_policies());
        match self.level {
            Level::NamespaceAdmin => self.granted(&account, names, &[], &rules),
            _ => self.granted(&account, names, &rules, &[]),
        }
    }

    /// Lets pods of an account be as privileged as their definition says, where a policy requires
    /// it: OpenShift, and Kubernetes before v1.25. Grants no access to the API.
    fn pod_policies(&self) -> Option<Value> {
        (self.level == Level::ClusterAdmin).then(|| {
            json!({
                "apiGroups": ["security.openshift.io", "policy"],
                "resources": ["securitycontextconstraints", "podsecuritypolicies"],
                "verbs": ["use"],
            })
        })
    }

    /// The roles of an account with their bindings: in the whole cluster, and in the namespace of
    /// the run.
    fn granted(
        &self,
        account: &str,
        [cluster, own]: [&str; 2],
        all: &[Value],
        here: &[Value],
    ) -> Vec<Value> {
        let namespace = &self.run.namespace;
        let version = format!("{RBAC_GROUP}/v1");
        let mut objects = Vec::new();
        for (kind, name, rules) in [
            ("ClusterRole", format!("{cluster}-{namespace}"), all),
            ("Role", own.to_owned(), here),
        ] {
            if rules.is_empty() {
                continue;
            }
            let mut metadata =
                json!({"labels": {LABEL_ALL: SONOBUOY, "namespace": namespace}, "name": name});
            if kind == "Role" {
                metadata["namespace"] = json!(namespace);
            } else if self.removes_itself() {
                metadata["ownerReferences"] = json!([{
                    "apiVersion": "v1", "kind": "Namespace", "name": namespace,
                    "uid": UID_OF_NEW_OWNER,
                }]);
            }
            objects.push(json!({
                "apiVersion": version,
                "kind": format!("{kind}Binding"),
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
            }));
            objects.push(
                json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules}),
            );
        }
        objects
    }
}

/// Reads all objects, and controls nothing: no subresource supports `list` or `watch`, and only
/// kinds without subresources are read by name.
fn read_rules() -> impl Iterator<Item = Value> {
    let by_name = json!({"apiGroups": ["*"], "resources": READABLE, "verbs": ["get"]});
    [any(&["list", "watch"]), by_name].into_iter()
}

fn any(verbs: &[&str]) -> Value {
    json!({"apiGroups": ["*"], "resources": ["*"], "verbs": verbs})
}

fn urls() -> Value {
    json!({"nonResourceURLs": ["/metrics", "/logs", "/logs/*"], "verbs": ["get"]})
}

/// Image of the original, whose aggregator cannot resume a run and keeps all results in memory.
pub(super) const ORIGINAL: &str = "sonobuoy/sonobuoy";

/// Whether an image is the original's, in any registry and version.
pub(super) fn is_original(image: &str) -> bool {
    let name = Reference::parse(image.split('@').next().unwrap_or(image));
    name.is_ok_and(|name| format!("/{}", name.repository).ends_with(&format!("/{ORIGINAL}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plugin::DriverKind;

    /// Accounts, and each role's name and rules, of a run with these plugins.
    fn made(
        level: &str,
        plugins: &[(&str, Option<Permissions>)],
    ) -> (Vec<String>, Vec<(String, String)>) {
        let plugins: Vec<_> = plugins
            .iter()
            .map(|(name, permissions)| {
                let mut plugin = Definition::new(*name, DriverKind::Job, json!({}));
                plugin.config.permissions.clone_from(permissions);
                plugin
            })
            .collect();
        let run = config::Run {
            aggregator_permissions: level.into(),
            ..config::Run::standard()
        };
        let plan = Plan {
            run,
            harden: true,
            ..Plan::default()
        };
        let rights = RunAccounts::new(&plan, &plugins).unwrap();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let roles = rights
            .roles()
            .chunks(2)
            .map(|pair| (name(&pair[1]), pair[1]["rules"].to_string()))
            .collect();
        (rights.accounts().iter().map(name).collect(), roles)
    }

    #[test]
    fn declared_permissions_are_granted_exactly() {
        let rules = Permissions::Rules(
            serde_json::from_value(json!([{"resources": ["pods"], "verbs": ["get"]}])).unwrap(),
        );
        let plugins = [
            ("a", Some(Permissions::None)),
            ("b", Some(Permissions::Read)),
            ("c", Some(Permissions::Admin)),
            ("d", Some(rules)),
        ];
        let (accounts, roles) = made("clusterAdmin", &plugins);
        let own = [
            "sonobuoy-aggregator",
            "sonobuoy-plugin-a",
            "sonobuoy-plugin-b",
            "sonobuoy-plugin-c",
            "sonobuoy-plugin-d",
        ];
        assert_eq!(accounts, own);
        let of = |name: &str| {
            roles
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, rules)| rules.as_str())
        };
        let aggregator = of("sonobuoy-aggregator-sonobuoy").unwrap();
        assert!(aggregator.contains("tokenreviews"), "{aggregator}");
        assert!(!aggregator.contains(r#""verbs":["*"]"#), "{aggregator}");
        assert!(
            !of("sonobuoy-aggregator")
                .unwrap()
                .contains(r#""verbs":["*"]"#)
        );
        assert!(!of("sonobuoy-plugin-a-sonobuoy").unwrap().contains("get"));
        assert!(
            of("sonobuoy-plugin-b-sonobuoy")
                .unwrap()
                .contains(r#""verbs":["list","watch"]"#)
        );
        assert!(
            of("sonobuoy-plugin-c-sonobuoy")
                .unwrap()
                .contains(r#""verbs":["*"]"#)
        );
        assert!(of("sonobuoy-plugin-d-sonobuoy").unwrap().contains("pods"));
        assert_eq!(of(names::RUN_ROLE), None, "no account needs it");
        let (accounts, roles) = made(
            "clusterAdmin",
            &[("e", None), ("a", Some(Permissions::None))],
        );
        assert_eq!(
            accounts,
            [
                names::SERVICE_ACCOUNT,
                AGGREGATOR_ACCOUNT,
                "sonobuoy-plugin-a"
            ]
        );
        assert_eq!(roles[0].0, names::RUN_ROLE);
    }

    #[test]
    fn aggregator_permissions_are_minimal() {
        for level in ["clusterAdmin", "clusterRead", "namespaceAdmin"] {
            let (_, roles) = made(level, &[]);
            let rules = &roles
                .iter()
                .find(|(name, _)| name == AGGREGATOR_ACCOUNT)
                .unwrap()
                .1;
            let rules: Vec<Value> = serde_json::from_str(rules).unwrap();
            let verbs = |resource: &str| {
                let of = rules.iter().find(|rule| rule["resources"][0] == resource);
                of.map_or(Value::Null, |rule| rule["verbs"].clone())
            };
            // The authority's certificate is published there, and updated after a restart.
            assert_eq!(verbs("configmaps"), json!(["create", "patch"]), "{level}");
            assert_eq!(verbs("secrets"), json!(["create", "delete"]), "{level}");
            assert_eq!(verbs("events"), json!(["create"]), "{level}");
            assert_eq!(verbs("*"), json!(["list", "watch"]), "{level}");
            assert_eq!(verbs("pods/log"), json!(["get"]), "{level}");
            assert_eq!(rules.len(), 8, "{level}: {rules:?}");
        }
    }

    /// Whether rules allow a request, decided as the authorizer of Kubernetes does.
    fn allow(rules: &str, verb: &str, group: &str, resource: &str) -> bool {
        let rules: Vec<Value> = serde_json::from_str(rules).unwrap();
        let has = |list: &Value, wanted: &[&str]| {
            list.as_array()
                .into_iter()
                .flatten()
                .any(|entry| wanted.iter().any(|wanted| entry == wanted))
        };
        let any_subresource = resource
            .split_once('/')
            .map(|(_, part)| format!("*/{part}"));
        rules.iter().any(|rule| {
            has(&rule["verbs"], &["*", verb])
                && has(&rule["apiGroups"], &["*", group])
                && has(
                    &rule["resources"],
                    &["*", resource, any_subresource.as_deref().unwrap_or("*")],
                )
        })
    }

    #[test]
    fn readers_control_no_pod_and_no_kubelet() {
        const CONTROL: [(&str, &str); 9] = [
            ("", "pods/exec"),
            ("", "pods/attach"),
            ("", "pods/portforward"),
            ("", "pods/proxy"),
            ("", "services/proxy"),
            ("", "nodes/proxy"),
            ("", "pods/ephemeralcontainers"),
            ("", "pods/log"),
            (
                "subresources.kubevirt.io",
                "virtualmachineinstances/console",
            ),
        ];
        let read = [
            ("p", Some(Permissions::Read)),
            ("q", Some(Permissions::Admin)),
            ("undeclared", None),
        ];
        for level in ["clusterAdmin", "clusterRead", "namespaceAdmin"] {
            let (_, roles) = made(level, &read);
            let rules = |name: &str| {
                roles
                    .iter()
                    .find(|(known, _)| known == name)
                    .map(|(_, rules)| rules)
            };
            let mut readers =
                vec![rules("sonobuoy-plugin-p-sonobuoy").or_else(|| rules("sonobuoy-plugin-p"))];
            if level == "clusterRead" {
                readers.extend([rules("sonobuoy-plugin-q-sonobuoy"), rules(names::RUN_ROLE)]);
            }
            for rules in readers {
                let rules = rules.unwrap();
                for (group, resource) in CONTROL {
                    for verb in ["get", "create", "update", "patch"] {
                        assert!(
                            !allow(rules, verb, group, resource),
                            "{level}: {verb} {resource}: {rules}"
                        );
                    }
                }
                for verb in ["get", "list", "watch"] {
                    assert!(
                        allow(rules, verb, "", "secrets")
                            && allow(rules, verb, "apps", "daemonsets")
                    );
                }
                assert!(allow(rules, "list", "example.com", "anything"), "{rules}");
                assert!(!allow(rules, "delete", "", "pods") && !allow(rules, "create", "", "pods"));
            }
        }
    }

    #[test]
    fn aggregator_controls_no_pod_and_a_kubelet_only_for_the_snapshot() {
        let rules = |resources: Option<Vec<String>>| {
            let run = config::Run {
                resources,
                ..config::Run::standard()
            };
            let plan = Plan {
                run,
                harden: true,
                ..Plan::default()
            };
            let roles = RunAccounts::new(&plan, &[]).unwrap().roles();
            let is_cluster_role = |role: &&Value| role["kind"] == "ClusterRole";
            roles.iter().find(is_cluster_role).unwrap()["rules"].to_string()
        };
        let (all, some) = (rules(None), rules(Some(vec!["Pods".into()])));
        for resource in [
            "pods/exec",
            "pods/attach",
            "pods/portforward",
            "pods/proxy",
            "services/proxy",
        ] {
            assert!(
                !allow(&all, "get", "", resource) && !allow(&all, "create", "", resource),
                "{resource}"
            );
        }
        assert!(allow(&all, "get", "", "pods/log") && allow(&some, "get", "", "pods/log"));
        assert!(allow(&all, "get", "", "nodes/proxy") && !allow(&some, "get", "", "nodes/proxy"));
        assert!(!allow(&all, "create", "", "nodes/proxy"));
    }

    #[test]
    fn aggregator_without_snapshot_reads_only_nodes_and_its_own_objects() {
        for level in ["clusterAdmin", "clusterRead", "namespaceAdmin"] {
            let run = config::Run {
                resources: Some(Vec::new()),
                aggregator_permissions: level.into(),
                ..config::Run::standard()
            };
            let plan = Plan {
                run,
                harden: true,
                ..Plan::default()
            };
            let roles = RunAccounts::new(&plan, &[]).unwrap().roles();
            let rules = |kind: &str| {
                let role = roles.iter().find(|role| role["kind"] == kind);
                role.map_or("[]".into(), |role| role["rules"].to_string())
            };
            let (cluster, own) = (rules("ClusterRole"), rules("Role"));
            let has_cluster_role = level != "namespaceAdmin";
            assert_eq!(allow(&cluster, "watch", "", "nodes"), has_cluster_role);
            for kind in ["pods", "pods/log", "secrets", "configmaps", "nodes/proxy"] {
                for verb in READ {
                    assert!(!allow(&cluster, verb, "", kind), "{level}: {verb} {kind}");
                }
            }
            assert!(allow(&own, "watch", "", "pods") && allow(&own, "get", "", "configmaps"));
            assert!(!allow(&own, "list", "", "secrets") && !allow(&own, "list", "", "services"));
        }
    }

    #[test]
    fn run_that_removes_itself_may_delete_its_namespace_alone() {
        let roles = |seconds: u64, level: &str| {
            let run = config::Run {
                resources: Some(Vec::new()),
                remove_after_seconds: seconds,
                aggregator_permissions: level.into(),
                ..config::Run::standard()
            };
            let plan = Plan {
                run,
                harden: true,
                ..Plan::default()
            };
            RunAccounts::new(&plan, &[]).unwrap().roles()
        };
        let made = roles(1, "clusterAdmin");
        let of_cluster: Vec<_> = made
            .iter()
            .filter(|object| object["kind"].as_str().unwrap().starts_with("Cluster"))
            .collect();
        assert_eq!(of_cluster.len(), 2);
        for object in &of_cluster {
            let owner = &object["metadata"]["ownerReferences"][0];
            assert_eq!(owner["name"], "sonobuoy", "{object}");
        }
        let rule = json!({
            "apiGroups": [""], "resources": ["namespaces"], "verbs": ["delete"],
            "resourceNames": ["sonobuoy"],
        });
        let has_rule = |roles: &[Value]| {
            let rules = roles.iter().flat_map(|role| role["rules"].as_array());
            rules.flatten().any(|other| *other == rule)
        };
        assert!(has_rule(&made));
        assert!(!has_rule(&roles(0, "clusterAdmin")));
        // Its namespace was there before.
        assert!(!has_rule(&roles(1, "clusterRead")));
    }

    #[test]
    fn readable_kinds_are_sorted_and_have_no_subresource() {
        assert!(READABLE.is_sorted());
        assert!(READABLE.iter().all(|kind| !kind.contains(['/', '*'])));
    }

    #[test]
    fn plugin_permissions_never_exceed_those_of_the_run() {
        let all = [
            ("a", Some(Permissions::None)),
            ("b", Some(Permissions::Read)),
            ("c", Some(Permissions::Admin)),
        ];
        let (_, roles) = made("namespaceAdmin", &all);
        let names: Vec<_> = roles.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "sonobuoy-aggregator",
                "sonobuoy-plugin-b",
                "sonobuoy-plugin-c"
            ]
        );
        let (_, roles) = made("clusterRead", &all);
        let of = |name: &str| &roles.iter().find(|(known, _)| known == name).unwrap().1;
        assert!(
            !of("sonobuoy-plugin-c-sonobuoy").contains(r#""verbs":["*"]"#),
            "{roles:?}"
        );
        assert!(of("sonobuoy-plugin-c").contains(r#""verbs":["*"]"#));
    }
}
