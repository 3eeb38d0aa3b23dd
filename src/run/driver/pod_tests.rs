//! Tests the objects of a plugin in a cluster, field by field.

use std::collections::BTreeMap;

use super::*;
use model::names::SERVICE_ACCOUNT;

fn with_launch(definition: &Definition, check: impl Fn(ClusterLaunch<'_>)) {
    let config = config::Run {
        namespace: "ns".into(),
        worker_image: "worker:1".into(),
        image_pull_secrets: "pull".into(),
        custom_annotations: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        service_account_name: "account".into(),
        server: config::Server {
            advertise_address: "10.0.0.1:8080".into(),
            ..config::Server::default()
        },
        ..config::Run::standard()
    };
    check(ClusterLaunch {
        definition,
        session: "0123456789abcdef".into(),
        config: &config,
        ca_cert: "PEM".into(),
        owner: ("sonobuoy", "uid"),
        audience: None,
    });
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect()
}

#[test]
fn worker_receives_the_plugins_results_path() {
    let mounts = |old| json!([{"name": "results", "mountPath": "/tmp/sonobuoy/results"}, old]);
    for (old, told) in [
        (
            json!({"name": "results", "mountPath": "/old"}),
            json!("/old"),
        ),
        (
            json!({"name": "results", "mountPath": "/old", "subPath": "part"}),
            Value::Null,
        ),
        (json!({"name": "other", "mountPath": "/old"}), Value::Null),
    ] {
        let spec = json!({"name": "main", "image": "i", "volumeMounts": mounts(old)});
        with_launch(&Definition::new("p", DriverKind::Job, spec), |launch| {
            let env = launch.worker_env();
            let found = env
                .iter()
                .find(|variable| variable["name"] == env::RESULTS_MOUNT);
            assert_eq!(
                found.map_or(Value::Null, |variable| variable["value"].clone()),
                told
            );
        });
    }
}

#[test]
fn worker_is_as_restricted_as_its_plugin() {
    let check = |context: Value, expected: Value| {
        let spec = json!({"name": "main", "image": "i", "securityContext": context});
        with_launch(&Definition::new("p", DriverKind::Job, spec), |launch| {
            assert_eq!(launch.worker()["securityContext"], expected);
        });
    };
    let restricted = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true});
    check(restricted.clone(), restricted);
    check(json!({"privileged": true}), Value::Null);
}

#[test]
fn worker_has_the_resources_of_the_configuration() {
    let definition = Definition::new("p", DriverKind::Job, json!({"name": "main", "image": "i"}));
    let small = json!({
        "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"},
    });
    for (configured, expected) in [
        ("{}", small),
        (
            r#"{"WorkerResources": {"Requests": {}, "Limits": {"memory": "1Gi"}}}"#,
            json!({"limits": {"memory": "1Gi"}}),
        ),
        (
            r#"{"WorkerResources": {"Requests": {}, "Limits": {}}}"#,
            Value::Null,
        ),
    ] {
        with_launch(&definition, |launch| {
            let mut config = launch.config.clone();
            config.overlay(configured).unwrap();
            let worker = ClusterLaunch {
                config: &config,
                ..launch
            }
            .worker();
            assert_eq!(worker["resources"], expected, "{configured}");
        });
    }
}

#[test]
fn container_name_and_sidecars_are_optional() {
    let mut definition = Definition::new("p", DriverKind::Job, json!({"name": "", "image": "i"}));
    definition.pod_spec = Some(json!({"containers": null}));
    with_launch(&definition, |launch| {
        assert_eq!(
            names(&launch.pod_spec()["containers"]),
            ["plugin", WORKER_CONTAINER]
        );
    });
}

#[test]
fn termination_message_path_of_a_definition_is_kept() {
    for (key, value) in [
        ("terminationMessagePath", "/said"),
        ("terminationMessagePolicy", "File"),
    ] {
        let spec = json!({"name": "main", key: value});
        with_launch(
            &Definition::new("p", DriverKind::Job, spec.clone()),
            |launch| {
                assert_eq!(launch.plugin()[key], value);
                assert_ne!(
                    launch.plugin()["terminationMessagePolicy"],
                    "FallbackToLogsOnError"
                );
            },
        );
    }
}

#[test]
fn job_is_a_bare_pod_with_the_worker_last() {
    let mut definition =
        Definition::new("p", DriverKind::Job, json!({"name": "main", "image": "i"}));
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
        assert_eq!(
            names(&spec["containers"]),
            ["car", "main", WORKER_CONTAINER]
        );
        assert_eq!(
            spec["containers"][1]["terminationMessagePolicy"],
            "FallbackToLogsOnError"
        );
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
fn daemon_set_selects_its_run_and_copies_annotations() {
    let definition = Definition::new("p", DriverKind::DaemonSet, json!({"name": "main"}));
    with_launch(&definition, |launch| {
        let set = launch.object();
        assert_eq!(
            set["metadata"]["name"],
            "sonobuoy-p-daemon-set-0123456789abcdef"
        );
        assert_eq!(
            set["spec"]["selector"]["matchLabels"],
            json!({"sonobuoy-run": "0123456789abcdef"})
        );
        let template = &set["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"], json!({"team": "blue"}));
        assert_eq!(template["metadata"]["labels"], set["metadata"]["labels"]);
        assert_eq!(
            set["metadata"]["labels"]["app.kubernetes.io/component"],
            "plugin"
        );
        assert_eq!(names(&template["spec"]["volumes"]), ["root", "results"]);
        assert_eq!(template["spec"]["serviceAccountName"], "account");
        assert_eq!(template["spec"]["containers"][1]["args"], Value::Null);
    });
}

#[test]
fn plugin_receives_its_node_name_unless_set() {
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
        let definition = Definition::new("p", DriverKind::Job, json!({"name": "main", "env": env}));
        with_launch(&definition, |launch| {
            assert_eq!(launch.pod_spec()["containers"][0]["env"], json!([expected]));
        });
    }
}

#[test]
fn worker_listens_at_the_plugins_progress_port() {
    let ports = |launch: &ClusterLaunch<'_>| {
        let containers = launch.pod_spec()["containers"].clone();
        let ports = containers.as_array().unwrap().iter().map(|container| {
            let env = container["env"].as_array().unwrap().iter();
            let own: Vec<_> = env
                .filter(|variable| variable["name"] == env::PROGRESS_PORT)
                .collect();
            assert_eq!(own.len(), 1, "{container}");
            own[0]["value"].as_str().unwrap_or_default().to_owned()
        });
        ports.collect::<Vec<_>>()
    };
    for (told, expected) in [
        (json!("8101"), "8101"),
        (json!(""), "8099"),
        (Value::Null, "8099"),
    ] {
        let spec = json!({"name": "main", "env": [{"name": env::PROGRESS_PORT, "value": told}]});
        with_launch(
            &Definition::new("p", DriverKind::Job, spec.clone()),
            |launch| {
                assert_eq!(ports(&launch)[1], expected);
            },
        );
        // In the node's network, another plugin or run has another port.
        let mut definition = Definition::new("p", DriverKind::DaemonSet, spec);
        for (session, expected) in [("0123456789abcdef", "20291"), ("ffff456789abcdef", "25535")] {
            with_launch(&definition, |launch| {
                assert_eq!(
                    ports(&ClusterLaunch {
                        session: session.into(),
                        ..launch
                    }),
                    [expected, expected]
                );
            });
        }
        definition.pod_spec =
            Some(json!({"containers": [{"name": "beside"}], "hostNetwork": true}));
        with_launch(&definition, |launch| {
            assert_eq!(ports(&launch), ["20291", "20291", "20291"]);
        });
    }
}

#[test]
fn done_file_of_a_plugin_without_sidecars_counts_soon() {
    let sidecar = json!([{"name": "beside", "restartPolicy": "Always"}]);
    let init = json!([{"name": "before"}]);
    for (pod_spec, given, expected) in [
        (None, None, Some("500ms")),
        (None, Some("2s"), Some("2s")),
        (Some(json!({"containers": []})), None, Some("500ms")),
        (Some(json!({"initContainers": init})), None, Some("500ms")),
        (Some(json!({"containers": sidecar})), None, None),
        (Some(json!({"initContainers": sidecar})), None, None),
    ] {
        let given = given.map(|delay| json!({"name": env::DONE_FILE_DELAY, "value": delay}));
        let spec = json!({"name": "main", "env": given.as_slice()});
        let mut definition = Definition::new("p", DriverKind::Job, spec);
        definition.pod_spec.clone_from(&pod_spec);
        with_launch(&definition, |launch| {
            let worker = launch.worker();
            let mut variables = worker["env"].items();
            let delay = variables.find(|variable| variable["name"] == env::DONE_FILE_DELAY);
            let delay = delay.and_then(|variable| variable["value"].as_str());
            assert_eq!(delay, expected, "{pod_spec:?}");
        });
    }
}

#[test]
fn worker_inherits_variables_and_keeps_its_own() {
    let env = json!([{"name": "SONOBUOY_DONE_FILE_DELAY", "value": "1s"}, {"name": "RESULT_TYPE", "value": "x"}]);
    let definition = Definition::new("p", DriverKind::Job, json!({"name": "main", "env": env}));
    with_launch(&definition, |launch| {
        let spec = launch.pod_spec();
        let env = spec["containers"][1]["env"].as_array().unwrap();
        let value = |name: &str| {
            env.iter()
                .find(|entry| entry["name"] == name)
                .map(|entry| entry["value"].clone())
        };
        assert_eq!(value("RESULT_TYPE"), Some(json!("p")));
        assert_eq!(value("SONOBUOY_DONE_FILE_DELAY"), Some(json!("1s")));
        assert_eq!(
            value("AGGREGATOR_URL"),
            Some(json!("https://10.0.0.1:8080"))
        );
        let names: Vec<_> = env
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_lowercase())
            .collect();
        assert!(names.is_sorted(), "{names:?}");
        let key = env
            .iter()
            .find(|entry| entry["name"] == "CLIENT_KEY")
            .unwrap();
        assert_eq!(
            key["valueFrom"]["secretKeyRef"]["name"],
            "sonobuoy-plugin-p-0123456789abcdef"
        );
    });
}

#[test]
fn declared_permissions_select_the_account() {
    let check = |permissions: Option<Permissions>, named: Value, account: &str, bare: bool| {
        let mut definition = Definition::new("p", DriverKind::Job, json!({"name": "main"}));
        definition.config.permissions = permissions;
        definition.pod_spec = Some(json!({"serviceAccountName": named}));
        with_launch(&definition, |launch| {
            let spec = launch.pod_spec();
            assert_eq!(
                spec["serviceAccountName"].as_str().unwrap_or_default(),
                account
            );
            assert_eq!(spec["automountServiceAccountToken"] == false, bare);
            let mounts = spec["containers"][0]["volumeMounts"].to_string();
            assert_eq!(mounts.contains(ACCOUNT_DIR), bare, "{mounts}");
        });
    };
    for named in [json!(null), json!("account"), json!(SERVICE_ACCOUNT)] {
        check(
            Some(Permissions::None),
            named.clone(),
            "sonobuoy-plugin-p",
            true,
        );
        check(Some(Permissions::Read), named, "sonobuoy-plugin-p", false);
    }
    check(
        Some(Permissions::None),
        json!("theirs"),
        "sonobuoy-plugin-p",
        true,
    );
    check(None, json!("account"), "account", false);
}
