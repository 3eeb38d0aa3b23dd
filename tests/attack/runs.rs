//! Concurrent and consecutive runs: none affects another.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::run;
use crate::support::Sonobuoy;
use crate::support::api_server::ApiServer;
use crate::support::cluster::Cluster;
use crate::support::peer::Peer;

pub(super) const CASES: usize = VOLUME + ROLES;
const VOLUME: usize = 5;
const ROLES: usize = 4;

const CONFIG_MAPS: &str = "/api/v1/namespaces/sonobuoy/configmaps";

/// The two config maps of a run, created anew.
fn config_maps(cluster: &Cluster) {
    for name in ["sonobuoy-config-cm", "sonobuoy-plugins-cm"] {
        let path = format!("{CONFIG_MAPS}/{name}");
        cluster.api.remove(&path);
        cluster.api.put(&path, json!({}));
    }
}

/// The pod of the aggregator, created anew.
fn pod(cluster: &Cluster) {
    cluster.api.remove(&cluster.path("sonobuoy"));
    cluster.own_pod(json!({"sonobuoy-component": "aggregator"}));
}

const BEAT: &str = "GET /api/v1/health/global/p HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// A run interrupted after its first result, and the environment of its worker.
fn interrupted() -> (Cluster, BTreeMap<String, String>) {
    let cluster = Cluster::new(&[])
        .plugin("p", "Job", "")
        .plugin("q", "Job", "");
    config_maps(&cluster);
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("p").send("global"), 200);
    let told = cluster.environment(&cluster.pod_on("p", "global"));
    cluster.wait_for_status(|status| status["plugins"][0]["status"] == "complete");
    cluster.worker("q");
    aggregator.signal(rustix::process::Signal::KILL);
    aggregator.end();
    (cluster, told)
}

#[test]
fn only_a_recreated_pod_resumes_its_run() {
    type Change = fn(&Cluster);
    let cases: [(&str, bool, Change); VOLUME - 1] = [
        ("the pod alone is new", true, pod),
        ("the same manifest is applied again", false, |cluster| {
            config_maps(cluster);
            pod(cluster);
        }),
        ("a plugin was repaired", false, |cluster| {
            cluster.api.merge(
                &format!("{CONFIG_MAPS}/sonobuoy-plugins-cm"),
                &json!({"data": {"a": "b"}}),
            );
            pod(cluster);
        }),
        ("the config maps cannot be read", false, |cluster| {
            cluster.api.forbid("get", "configmaps");
            pod(cluster);
        }),
    ];
    for (case, resumes, change) in cases {
        let (cluster, old) = interrupted();
        let pods = cluster.pods("p").into_iter().chain(cluster.pods("q"));
        let pods: Vec<String> = pods
            .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        change(&cluster);
        // Objects of the first pod are deleted with it.
        pods.iter()
            .for_each(|name| cluster.api.remove(&cluster.path(name)));
        cluster
            .api
            .list("/api/v1/namespaces/sonobuoy/secrets")
            .iter()
            .for_each(|secret| {
                let name = secret["metadata"]["name"].as_str().unwrap();
                cluster
                    .api
                    .remove(&format!("/api/v1/namespaces/sonobuoy/secrets/{name}"));
            });
        let aggregator = cluster.start("");
        let q = cluster.worker("q");
        assert_eq!(
            aggregator.said().contains("resuming run"),
            resumes,
            "{case}: {}",
            aggregator.said()
        );
        if resumes {
            let certificate = Some((&*old["CLIENT_CERT"], &*old["CLIENT_KEY"]));
            let answer = Peer::new(&old["AGGREGATOR_URL"], &old["CA_CERT"], certificate).say(BEAT);
            assert!(answer.starts_with("HTTP/1.1 200"), "{case}: {answer}");
        } else {
            let new = cluster.environment(&cluster.pod_on("p", "global"));
            let certificate = Some((&*old["CLIENT_CERT"], &*old["CLIENT_KEY"]));
            let answer = Peer::new(&new["AGGREGATOR_URL"], &new["CA_CERT"], certificate).say(BEAT);
            assert!(
                !answer.starts_with("HTTP/1.1 200"),
                "{case}: the certificate of another run was accepted"
            );
            assert_eq!(
                cluster.worker("p").send("global"),
                200,
                "{case}: its plugin runs again"
            );
        }
        assert_eq!(q.send("global"), 200, "{case}");
        aggregator.ends_well();
    }
}

#[test]
fn states_of_other_runs_on_a_volume_are_untouched() {
    let (mut cluster, _) = interrupted();
    let runs = cluster.folder.join("runs");
    let names = || {
        std::fs::read_dir(&runs)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
    };
    let first = names()
        .find_map(|name| name.strip_suffix(".state").map(str::to_owned))
        .unwrap();
    // A state of another run, an unreadable one, and one whose name leads out of the folder.
    cluster
        .folder
        .write("runs/second.state/identity", "another");
    std::fs::create_dir_all(runs.join("third.state/identity")).unwrap();
    let own = std::fs::read_to_string(runs.join(format!("{first}.state/identity"))).unwrap();
    cluster.folder.write("runs/..state/identity", &own);
    config_maps(&cluster);
    pod(&cluster);
    // An interrupted run's ID in a manifest does not make it the same run.
    cluster.settings["UUID"] = first.clone().into();
    for name in ["p", "q"] {
        cluster.pods(name).iter().for_each(|pod| {
            cluster
                .api
                .remove(&cluster.path(pod["metadata"]["name"].as_str().unwrap()));
        });
    }
    let aggregator = cluster.start("");
    for plugin in ["p", "q"] {
        assert_eq!(cluster.worker(plugin).send("global"), 200);
    }
    let log = aggregator.log.clone();
    aggregator.ends_well();
    let said = std::fs::read_to_string(log).unwrap();
    for words in [
        "run second was interrupted and is not resumed: this is another run",
        "its state cannot be read",
        "is that of an interrupted run",
    ] {
        assert!(said.contains(words), "no `{words}`: {said}");
    }
    for left in [
        first.clone(),
        format!("{first}.state"),
        "second.state".into(),
        "third.state".into(),
    ] {
        assert!(names().any(|name| name == left), "{left} is gone");
    }
    let config: Value = serde_json::from_str(&cluster.archive().text("meta/config.json")).unwrap();
    assert_ne!(config["UUID"], first.as_str());
}

/// The path of a cluster role or binding.
fn role(kind: &str, name: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")
}

#[test]
fn no_permission_is_inherited_from_an_earlier_run() {
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let labels = |namespace: &str| json!({"component": "sonobuoy", "namespace": namespace});
    let put = |api: &ApiServer, name: &str, labels: Value| {
        for kind in ["clusterroles", "clusterrolebindings"] {
            api.put(
                &role(kind, name),
                json!({"metadata": {"labels": labels}, "rules": everything}),
            );
        }
    };
    let plugin = "sonobuoy-config: {driver: Job, plugin-name: p, permissions: read}\nspec: {name: plugin, image: i}\n";
    let call = |config: &str| {
        Sonobuoy::new(&format!(
            "run --kubeconfig {config} -p p.yaml --rbac Enable"
        ))
        .file("p.yaml", plugin)
    };

    // Objects of this namespace are replaced, or removed if this run has none of that name; those
    // of others stay.
    let (api, _folder, config) = run::cluster();
    put(&api, "sonobuoy-plugin-p-sonobuoy", labels("sonobuoy"));
    put(&api, "sonobuoy-plugin-old-sonobuoy", labels("sonobuoy"));
    put(&api, "sonobuoy-plugin-p-other", labels("other"));
    call(&config).stderr_has("removing clusterroles of an earlier run: sonobuoy-plugin-old-sonobuoy, sonobuoy-plugin-p-sonobuoy").run();
    let rules = |name: &str| {
        api.get(&role("clusterroles", name))
            .map(|role| role["rules"].to_string())
    };
    let own = rules("sonobuoy-plugin-p-sonobuoy").unwrap();
    assert!(
        own.contains(r#""verbs":["list","watch"]"#) && !own.contains(r#""verbs":["*"]"#),
        "{own}"
    );
    assert_eq!(rules("sonobuoy-plugin-old-sonobuoy"), None);
    assert!(
        api.get(&role("clusterrolebindings", "sonobuoy-plugin-old-sonobuoy"))
            .is_none()
    );
    assert_eq!(
        rules("sonobuoy-plugin-p-other").unwrap(),
        everything.to_string()
    );

    // Foreign objects are untouched, and the run is rejected before any object is created.
    for labels in [
        json!({"component": "sonobuoy", "namespace": "other"}),
        json!({}),
        json!({"namespace": "sonobuoy"}),
    ] {
        let (api, _folder, config) = run::cluster();
        put(&api, "sonobuoy-plugin-p-sonobuoy", labels);
        call(&config)
            .status(1)
            .stderr_has("`kubectl delete clusterrole sonobuoy-plugin-p-sonobuoy`")
            .stderr_has("`kubectl delete clusterrolebinding sonobuoy-plugin-p-sonobuoy`")
            .stderr_has("nothing was created")
            .run();
        let left = api
            .get(&role("clusterroles", "sonobuoy-plugin-p-sonobuoy"))
            .unwrap();
        assert_eq!(left["rules"], everything);
    }
}
