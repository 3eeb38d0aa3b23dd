//! The pod of a plugin in a cluster: the plugin's containers, the worker beside them, the volumes they share.
//!
//! Owns what is common to both drivers' manifests, and the manifests themselves. Pure: makes API objects, creates
//! none. The definition is taken as it is; nothing in a pod spec of its own is overridden.

use serde_json::{Map, Value};

use crate::config;
use crate::names::{
    ANNOTATION_DRIVER, LABEL_ALL, LABEL_PART, LABEL_PLUGIN, LABEL_SESSION, PLUGIN, RESULTS_VOLUME, RUNS_DIR,
    SERVICE_ACCOUNT, SONOBUOY, TOKEN_DIR, WORKER_CONTAINER, env, plugin_account, worker_secret,
};
use crate::plugin::pod::default_spec;
use crate::plugin::{Definition, Driver, Permissions};
use base::json::json;
use client::env as var;
use client::protocol::ResultId;

/// The volume with the pod's token, and the token in it.
const TOKEN_VOLUME: &str = "sonobuoy-identity";
const TOKEN: &str = "token";
/// The volume that stands for an account's in pods without one: the cluster's authority and the namespace.
const CLUSTER_VOLUME: &str = "sonobuoy-cluster";
/// Where an account's is.
const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long a token counts; the kubelet puts a new one there in time.
const TOKEN_SECONDS: u32 = 3600;

/// All that a plugin's objects are made of.
pub(crate) struct Launch<'a> {
    /// What to run.
    pub definition: &'a Definition,
    /// 16 hexadecimal characters, new for each launch.
    pub session: &'a str,
    /// The run's settings.
    pub config: &'a config::Run,
    /// The run's authority, PEM.
    pub ca_cert: &'a str,
    /// Name and uid of the aggregator's pod, which owns everything.
    pub owner: (&'a str, &'a str),
    /// For whom the pod's token is made, if that is how it proves who it is.
    pub audience: Option<&'a str>,
}

impl Launch<'_> {
    /// The name of the secret with the worker's certificate.
    pub(crate) fn secret_name(&self) -> String {
        worker_secret(self.definition.name(), self.session)
    }

    /// The name of the pod or DaemonSet.
    pub(crate) fn object_name(&self) -> String {
        object_name(self.definition, self.session)
    }

    /// Selects the objects of this launch.
    pub(crate) fn selector(&self) -> String {
        format!("{LABEL_SESSION}={}", self.session)
    }

    /// The secret with the worker's certificate and key.
    pub(crate) fn secret(&self, certificate: &str, key: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": self.secret_name(),
                "namespace": self.config.namespace,
                "ownerReferences": self.owners(),
            },
            "stringData": {"tls.crt": certificate, "tls.key": key},
        })
    }

    /// The pod of a Job plugin, or the DaemonSet of the other kind.
    pub(crate) fn object(&self) -> Value {
        let metadata = json!({
            "name": self.object_name(),
            "namespace": self.config.namespace,
            "labels": self.labels(),
            "annotations": self.object_annotations(),
            "ownerReferences": self.owners(),
        });
        match self.definition.config.driver {
            Driver::Job => {
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.pod_spec()})
            }
            Driver::DaemonSet => {
                let mut template = json!({"labels": self.labels()});
                if !self.config.custom_annotations.is_empty() {
                    template["annotations"] = json!(self.config.custom_annotations);
                }
                json!({
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "metadata": metadata,
                    "spec": {
                        "selector": {"matchLabels": {LABEL_SESSION: self.session}},
                        "template": {"metadata": template, "spec": self.pod_spec()},
                    },
                })
            }
        }
    }

    /// The spec of the plugin's pods.
    pub(crate) fn pod_spec(&self) -> Value {
        let mut spec = match &self.definition.pod_spec {
            Some(spec) => spec.clone(),
            None => default_spec(self.definition.config.driver, &self.config.service_account_name),
        };
        if self.config.plugin_accounts
            && self.definition.config.permissions.is_some()
            && self.has_own_account()
        {
            self.set_account(&mut spec);
        }
        push(&mut spec, "containers", [self.plugin()]);
        if self.definition.config.worker {
            push(&mut spec, "containers", [self.worker()]);
        }
        if !self.config.image_pull_secrets.is_empty() {
            push(&mut spec, "imagePullSecrets", [json!({"name": self.config.image_pull_secrets})]);
        }
        // Who defines it means the same volume, perhaps of another kind.
        let given = spec["volumes"].as_array().into_iter().flatten().chain(&self.definition.extra_volumes);
        if !given.into_iter().any(|volume| volume["name"] == RESULTS_VOLUME) {
            push(&mut spec, "volumes", [json!({"name": RESULTS_VOLUME, "emptyDir": {}})]);
        }
        if self.is_bare() {
            let authority = json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}], "optional": true});
            let namespace = json!([{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]);
            let sources = json!([{"configMap": authority}, {"downwardAPI": {"items": namespace}}]);
            push(&mut spec, "volumes", [json!({"name": CLUSTER_VOLUME, "projected": {"sources": sources}})]);
        }
        if let Some(audience) = self.audience {
            let token = json!({
                "audience": audience, "expirationSeconds": TOKEN_SECONDS, "path": TOKEN,
            });
            let sources = json!([{"serviceAccountToken": token}]);
            push(&mut spec, "volumes", [json!({"name": TOKEN_VOLUME, "projected": {"sources": sources}})]);
        }
        push(&mut spec, "volumes", self.definition.extra_volumes.iter().cloned());
        spec
    }

    /// The plugin's own container; it is told which node it runs on, which no manifest can know, and called
    /// `plugin` if the definition has no name for it, since Kubernetes asks for one.
    fn plugin(&self) -> Value {
        let mut plugin = self.definition.spec.clone();
        if plugin["name"].as_str().is_none_or(str::is_empty) {
            plugin["name"] = json!("plugin");
        }
        if plugin["terminationMessagePath"].is_null() && plugin["terminationMessagePolicy"].is_null() {
            // Why it failed is often told by its log alone.
            plugin["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        }
        let told =
            plugin["env"].as_array().into_iter().flatten().any(|variable| variable["name"] == var::NODE_NAME);
        if !told {
            push(&mut plugin, "env", [json!({"name": var::NODE_NAME, "valueFrom": node_name()})]);
        }
        if self.is_bare() {
            // Without an account it still has to know whom to trust, and cannot ask where the aggregator is.
            let told = plugin["env"].as_array().into_iter().flatten();
            if told.into_iter().all(|variable| variable["name"] != env::AGGREGATOR_URL) {
                let url = format!("https://{}", self.config.server.advertise_address);
                push(&mut plugin, "env", [json!({"name": env::AGGREGATOR_URL, "value": url})]);
            }
            let mount = json!({"name": CLUSTER_VOLUME, "mountPath": ACCOUNT_DIR, "readOnly": true});
            push(&mut plugin, "volumeMounts", [mount]);
        }
        if !self.definition.config.worker {
            // It speaks for itself. What refers to another variable stands behind it.
            let own = self.channel_env();
            if let Value::Array(env) = &mut plugin["env"] {
                env.retain(|variable| !own.iter().any(|own| own["name"] == variable["name"]));
            }
            push(&mut plugin, "env", own);
            push(&mut plugin, "volumeMounts", self.audience.map(|_| token_mount()));
        }
        plugin
    }

    /// What whoever speaks to the aggregator has to know.
    fn channel_env(&self) -> Vec<Value> {
        let name = self.definition.name();
        let id = match self.definition.config.driver {
            Driver::Job => ResultId::global(name),
            Driver::DaemonSet => ResultId::on_node(name, var::NODE_NAME),
        };
        // No manifest can know the node.
        let path = |path: String| match self.definition.config.driver {
            Driver::Job => path,
            Driver::DaemonSet => path.replacen(var::NODE_NAME, "$(NODE_NAME)", 1),
        };
        let secret =
            |key: &str| json!({"valueFrom": {"secretKeyRef": {"name": self.secret_name(), "key": key}}});
        let text = |value: &str| json!({"value": value});
        let url = format!("https://{}", self.config.server.advertise_address);
        let mut env = vec![
            (var::RESULT_TYPE, text(name)),
            (var::AGGREGATOR_URL, text(&url)),
            (var::CA_CERT, text(self.ca_cert)),
            (var::RESULT_URL, text(&format!("{url}{}", path(id.result_path())))),
            (var::PROGRESS_URL, text(&format!("{url}{}", path(id.progress_path())))),
        ];
        match self.audience {
            Some(_) => env.push((var::TOKEN_FILE, text(&format!("{TOKEN_DIR}/{TOKEN}")))),
            None => env.extend([(var::CLIENT_CERT, secret("tls.crt")), (var::CLIENT_KEY, secret("tls.key"))]),
        }
        let named = |(name, mut value): (&str, Value)| {
            value["name"] = json!(name);
            value
        };
        env.into_iter().map(named).collect()
    }

    /// Runs the pod as the plugin's own account.
    fn set_account(&self, spec: &mut Value) {
        spec["serviceAccountName"] = json!(plugin_account(self.definition.whole()));
        if self.is_bare() {
            spec["automountServiceAccountToken"] = json!(false);
        }
    }

    /// Whether the pod has no token of an account.
    fn is_bare(&self) -> bool {
        let automount = |pod: &Value| pod["automountServiceAccountToken"] == true;
        self.config.plugin_accounts
            && self.definition.config.permissions == Some(Permissions::None)
            && !self.definition.pod_spec.as_ref().is_some_and(automount)
            && self.has_own_account()
    }

    /// Whether the pod runs as the plugin's own account: unless its definition names one that is not the run's.
    fn has_own_account(&self) -> bool {
        let named = self.definition.pod_spec.as_ref().and_then(|pod| pod["serviceAccountName"].as_str());
        ["", &self.config.service_account_name, SERVICE_ACCOUNT].contains(&named.unwrap_or_default())
    }

    fn worker(&self) -> Value {
        let (command, args) = match self.definition.config.driver {
            Driver::Job => {
                (json!(["/sonobuoy"]), json!(["worker", "global", "--level=trace", "-v=6", "--logtostderr"]))
            }
            Driver::DaemonSet => (
                json!([
                    "/sonobuoy",
                    "worker",
                    "single-node",
                    "--level=trace",
                    "-v=6",
                    "--logtostderr",
                    "--sleep=-1"
                ]),
                Value::Null,
            ),
        };
        let mut worker = json!({
            "name": WORKER_CONTAINER,
            "image": self.config.worker_image,
            "imagePullPolicy": self.config.image_pull_policy,
            "command": command,
            "env": self.worker_env(),
            "volumeMounts": [{"name": RESULTS_VOLUME, "mountPath": self.config.results_dir}],
        });
        if !args.is_null() {
            worker["args"] = args;
        }
        push(&mut worker, "volumeMounts", self.audience.map(|_| token_mount()));
        let own = &self.definition.spec["securityContext"];
        // A plugin made for the `restricted` level of Pod Security shall not fail by the container beside it.
        if own["allowPrivilegeEscalation"] == false {
            worker["securityContext"] = own.clone();
        }
        worker
    }

    /// The worker's own variables, and those of the plugin that it has no say in, sorted by name in any case.
    fn worker_env(&self) -> Vec<Value> {
        let field = |path: &str| json!({"valueFrom": {"fieldRef": {"fieldPath": path}}});
        let text = |value: &str| json!({"value": value});
        let mut env = self.channel_env();
        env.retain(|variable| {
            ![var::RESULT_URL, var::PROGRESS_URL].iter().any(|url| variable["name"] == *url)
        });
        for (name, mut value) in [
            (var::NODE_NAME, json!({"valueFrom": node_name()})),
            (env::OLD_RESULTS_DIR, text(&self.config.results_dir)),
            (env::RESULTS_DIR, text(&self.config.results_dir)),
            (env::PROGRESS_PORT, text(self.progress_port())),
            ("SONOBUOY_DIR", text(RUNS_DIR)),
            (env::NAMESPACE, field("metadata.namespace")),
            (env::PLUGIN_POD, field("metadata.name")),
            (env::WORKER_CONTAINER, text(WORKER_CONTAINER)),
        ] {
            value["name"] = json!(name);
            env.push(value);
        }
        if let Some(mount) = self.definition.results_mount(&self.config.results_dir) {
            env.push(json!({"name": env::RESULTS_MOUNT, "value": mount}));
        }
        if self.definition.config.results_anywhere {
            env.push(json!({"name": env::RESULTS_ANYWHERE, "value": "true"}));
        }
        let own = env.len();
        for variable in self.definition.spec["env"].as_array().into_iter().flatten() {
            if !env[..own].iter().any(|mine| mine["name"] == variable["name"]) {
                env.push(variable.clone());
            }
        }
        env.sort_by_key(|variable| variable["name"].as_str().unwrap_or_default().to_lowercase());
        env
    }

    /// Where the plugin was told to report: both ends have to agree.
    fn progress_port(&self) -> &str {
        let told = self.definition.spec["env"].as_array().into_iter().flatten().rev();
        let told =
            told.filter(|variable| variable["name"] == env::PROGRESS_PORT).find_map(|v| v["value"].as_str());
        told.filter(|port| port.parse::<u16>().is_ok()).unwrap_or(&self.config.progress_updates_port)
    }

    fn labels(&self) -> Value {
        json!({
            LABEL_ALL: SONOBUOY,
            LABEL_PART: PLUGIN,
            LABEL_PLUGIN: self.definition.name(),
            LABEL_SESSION: self.session,
            "tier": "analysis",
        })
    }

    fn object_annotations(&self) -> Value {
        let mut annotations = Map::new();
        annotations.insert(ANNOTATION_DRIVER.into(), json!(self.definition.config.driver_spelling));
        annotations.insert(LABEL_PLUGIN.into(), json!(self.definition.name()));
        annotations
            .extend(self.config.custom_annotations.iter().map(|(key, value)| (key.clone(), json!(value))));
        Value::Object(annotations)
    }

    fn owners(&self) -> Value {
        json!([{"apiVersion": "v1", "kind": "Pod", "name": self.owner.0, "uid": self.owner.1}])
    }
}

/// The name of the pod or DaemonSet of a plugin.
pub(crate) fn object_name(definition: &Definition, session: &str) -> String {
    let kind = match definition.config.driver {
        Driver::Job => "job",
        Driver::DaemonSet => "daemon-set",
    };
    format!("sonobuoy-{}-{kind}-{session}", definition.name())
}

fn token_mount() -> Value {
    json!({"name": TOKEN_VOLUME, "mountPath": TOKEN_DIR, "readOnly": true})
}

fn node_name() -> Value {
    json!({"fieldRef": {"fieldPath": "spec.nodeName"}})
}

fn push(object: &mut Value, key: &str, items: impl IntoIterator<Item = Value>) {
    let mut items = items.into_iter().peekable();
    if items.peek().is_none() {
        return;
    }
    match &mut object[key] {
        Value::Array(list) => list.extend(items),
        slot => *slot = items.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn with_launch(definition: &Definition, check: impl Fn(Launch<'_>)) {
        let config = config::Run {
            namespace: "ns".into(),
            worker_image: "worker:1".into(),
            image_pull_secrets: "pull".into(),
            custom_annotations: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            service_account_name: "account".into(),
            server: config::Server { advertise_address: "10.0.0.1:8080".into(), ..config::Server::default() },
            ..config::Run::default()
        };
        check(Launch {
            definition,
            session: "0123456789abcdef",
            config: &config,
            ca_cert: "PEM",
            owner: ("sonobuoy", "uid"),
            audience: None,
        });
    }

    fn names(list: &Value) -> Vec<&str> {
        list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_worker_is_told_by_which_other_way_its_plugin_reaches_the_results() {
        let mounts = |old| json!([{"name": "results", "mountPath": "/tmp/sonobuoy/results"}, old]);
        for (old, told) in [
            (json!({"name": "results", "mountPath": "/old"}), json!("/old")),
            (json!({"name": "results", "mountPath": "/old", "subPath": "part"}), Value::Null),
            (json!({"name": "other", "mountPath": "/old"}), Value::Null),
        ] {
            let spec = json!({"name": "main", "image": "i", "volumeMounts": mounts(old)});
            with_launch(&Definition::new("p", Driver::Job, spec), |launch| {
                let env = launch.worker_env();
                let found = env.iter().find(|variable| variable["name"] == env::RESULTS_MOUNT);
                assert_eq!(found.map_or(Value::Null, |variable| variable["value"].clone()), told);
            });
        }
    }

    #[test]
    fn a_worker_is_as_restricted_as_its_plugin() {
        let check = |context: Value, expected: Value| {
            let spec = json!({"name": "main", "image": "i", "securityContext": context});
            with_launch(&Definition::new("p", Driver::Job, spec), |launch| {
                assert_eq!(launch.worker()["securityContext"], expected);
            });
        };
        let restricted = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true});
        check(restricted.clone(), restricted);
        check(json!({"privileged": true}), Value::Null);
    }

    #[test]
    fn a_definition_may_leave_out_the_container_s_name_and_side_cars() {
        let mut definition = Definition::new("p", Driver::Job, json!({"name": "", "image": "i"}));
        definition.pod_spec = Some(json!({"containers": null}));
        with_launch(&definition, |launch| {
            assert_eq!(names(&launch.pod_spec()["containers"]), ["plugin", WORKER_CONTAINER]);
        });
    }

    #[test]
    fn a_definition_says_itself_where_its_last_words_are() {
        for (key, value) in [("terminationMessagePath", "/said"), ("terminationMessagePolicy", "File")] {
            let spec = json!({"name": "main", key: value});
            with_launch(&Definition::new("p", Driver::Job, spec.clone()), |launch| {
                assert_eq!(launch.plugin()[key], value);
                assert_ne!(launch.plugin()["terminationMessagePolicy"], "FallbackToLogsOnError");
            });
        }
    }

    #[test]
    fn a_job_is_a_bare_pod_with_side_cars_first_and_the_worker_last() {
        let mut definition = Definition::new("p", Driver::Job, json!({"name": "main", "image": "i"}));
        definition.pod_spec = Some(json!({"containers": [{"name": "car"}], "hostname": "kept"}));
        definition.extra_volumes = vec![json!({"name": "more"})];
        with_launch(&definition, |launch| {
            let pod = launch.object();
            assert_eq!(
                (&pod["kind"], &pod["metadata"]["name"]),
                (&json!("Pod"), &json!("sonobuoy-p-job-0123456789abcdef"))
            );
            assert_eq!(
                pod["metadata"]["annotations"],
                json!({"sonobuoy-driver": "Job", "sonobuoy-plugin": "p", "team": "blue"})
            );
            assert_eq!(
                pod["metadata"]["ownerReferences"],
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "sonobuoy", "uid": "uid"}])
            );
            let spec = &pod["spec"];
            assert_eq!(names(&spec["containers"]), ["car", "main", WORKER_CONTAINER]);
            assert_eq!(spec["containers"][1]["terminationMessagePolicy"], "FallbackToLogsOnError");
            assert_eq!(names(&spec["volumes"]), ["results", "more"]);
            assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
            assert_eq!(
                (&spec["hostname"], &spec["tolerations"]),
                (&json!("kept"), &Value::Null),
                "a given spec is used as it is"
            );
        });
    }

    #[test]
    fn a_daemon_set_selects_its_session_and_its_pods_carry_only_the_custom_annotations() {
        let definition = Definition::new("p", Driver::DaemonSet, json!({"name": "main"}));
        with_launch(&definition, |launch| {
            let set = launch.object();
            assert_eq!(set["metadata"]["name"], "sonobuoy-p-daemon-set-0123456789abcdef");
            assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"sonobuoy-run": "0123456789abcdef"}));
            let template = &set["spec"]["template"];
            assert_eq!(template["metadata"]["annotations"], json!({"team": "blue"}));
            assert_eq!(template["metadata"]["labels"], set["metadata"]["labels"]);
            assert_eq!(names(&template["spec"]["volumes"]), ["root", "results"]);
            assert_eq!(template["spec"]["serviceAccountName"], "account");
            assert_eq!(template["spec"]["containers"][1]["args"], Value::Null);
        });
    }

    #[test]
    fn the_plugin_is_told_its_node_unless_its_definition_tells_another() {
        for (env, expected) in [
            (
                json!(null),
                json!({"name": var::NODE_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
            ),
            (
                json!([{"name": var::NODE_NAME, "value": "mine"}]),
                json!({"name": var::NODE_NAME, "value": "mine"}),
            ),
        ] {
            let definition = Definition::new("p", Driver::Job, json!({"name": "main", "env": env}));
            with_launch(&definition, |launch| {
                assert_eq!(launch.pod_spec()["containers"][0]["env"], json!([expected]));
            });
        }
    }

    #[test]
    fn the_worker_listens_where_the_plugin_was_told_to_report() {
        for (told, expected) in [(json!("8101"), "8101"), (json!(""), "8099"), (Value::Null, "8099")] {
            let spec = json!({"name": "main", "env": [{"name": env::PROGRESS_PORT, "value": told}]});
            with_launch(&Definition::new("p", Driver::DaemonSet, spec), |launch| {
                let env = launch.pod_spec()["containers"][1]["env"].clone();
                let port =
                    env.as_array().unwrap().iter().find(|variable| variable["name"] == env::PROGRESS_PORT);
                assert_eq!(port.unwrap()["value"], expected);
            });
        }
    }

    #[test]
    fn the_worker_inherits_the_plugins_variables_but_keeps_its_own() {
        let env = json!([{"name": "SONOBUOY_DONE_FILE_DELAY", "value": "1s"}, {"name": "RESULT_TYPE", "value": "x"}]);
        let definition = Definition::new("p", Driver::Job, json!({"name": "main", "env": env}));
        with_launch(&definition, |launch| {
            let spec = launch.pod_spec();
            let env = spec["containers"][1]["env"].as_array().unwrap();
            let value = |name: &str| {
                env.iter().find(|entry| entry["name"] == name).map(|entry| entry["value"].clone())
            };
            assert_eq!(value("RESULT_TYPE"), Some(json!("p")));
            assert_eq!(value("SONOBUOY_DONE_FILE_DELAY"), Some(json!("1s")));
            assert_eq!(value("AGGREGATOR_URL"), Some(json!("https://10.0.0.1:8080")));
            let names: Vec<_> =
                env.iter().map(|entry| entry["name"].as_str().unwrap().to_lowercase()).collect();
            assert!(names.is_sorted(), "{names:?}");
            let key = env.iter().find(|entry| entry["name"] == "CLIENT_KEY").unwrap();
            assert_eq!(key["valueFrom"]["secretKeyRef"]["name"], "sonobuoy-plugin-p-0123456789abcdef");
        });
    }

    #[test]
    fn a_plugin_that_needs_nothing_has_no_token_and_one_with_an_account_of_its_own_keeps_it() {
        let check = |permissions: Option<Permissions>, named: Value, account: &str, bare: bool| {
            let mut definition = Definition::new("p", Driver::Job, json!({"name": "main"}));
            definition.config.permissions = permissions;
            definition.pod_spec = Some(json!({"serviceAccountName": named}));
            with_launch(&definition, |launch| {
                let config = config::Run { plugin_accounts: true, ..launch.config.clone() };
                let launch = Launch { config: &config, ..launch };
                let spec = launch.pod_spec();
                assert_eq!(spec["serviceAccountName"].as_str().unwrap_or_default(), account);
                assert_eq!(spec["automountServiceAccountToken"] == false, bare);
                let mounts = spec["containers"][0]["volumeMounts"].to_string();
                assert_eq!(mounts.contains(ACCOUNT_DIR), bare, "{mounts}");
            });
        };
        for named in [json!(null), json!("account"), json!(SERVICE_ACCOUNT)] {
            check(Some(Permissions::None), named.clone(), "sonobuoy-plugin-p", true);
            check(Some(Permissions::Read), named, "sonobuoy-plugin-p", false);
        }
        check(Some(Permissions::None), json!("theirs"), "theirs", false);
        check(None, json!("account"), "account", false);
    }
}
