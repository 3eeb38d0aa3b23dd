//! The flat form of v0.8: `name`, `driver`, `resultType` and a PodSpec with a handwritten worker container.
//!
//! Converted to the current form: the container that produces results becomes the plugin's container; the worker and
//! its private volumes are dropped, since every pod now gets a worker.

use serde_json::Value;

use super::shape::{POD, Parts, driver};
use super::{Definition, Loaded};
use crate::names::{RESULTS_VOLUME, SERVICE_ACCOUNT, env};
use base::json::{self, json};
use base::kube::Object as _;
use base::yaml::{Error, Node, typed};

/// Placeholder for the worker's config map, which no longer exists.
const PLACEHOLDER: &str = "__SONOBUOY_CONFIGMAP__";
/// Results directory of a worker of v0.8.
const RESULTS_DIR: &str = "/tmp/results";

/// Converts a definition of the flat form, which has a name and a driver.
pub(super) fn convert(node: &Node) -> Result<Loaded, Error> {
    let text = |key| node.get(key).map_or(Ok(""), |value| typed::text(key, value));
    let old_name = text("name")?;
    let name = old_name.replace('_', "-");
    let Some(spec) = node.get("spec") else {
        return Err(node.position.error("`spec` is missing; it must be a PodSpec"));
    };
    let mut parts = Parts::default();
    let mut pod = parts.value("spec", spec, POD)?;
    let mut notes = vec![format!("the definition of `{old_name}` uses the v0.8 format and was converted")];
    if name != old_name {
        notes.push(format!("the plugin `{old_name}` is now called `{name}`: names cannot contain `_`"));
    }
    let containers = std::mem::take(json::list_in(&mut pod, "containers"));
    let (workers, mut producers): (Vec<Value>, Vec<Value>) = containers.into_iter().partition(runs_worker);
    if producers.is_empty() {
        return Err(spec
            .position
            .error("the only container is the worker; the one that produces results is missing"));
    }
    if workers.is_empty() {
        notes.push("there is no worker container; every pod now gets one automatically".into());
    }
    let volumes = json::list_in(&mut pod, "volumes");
    let gone = volumes.extract_if(.., |volume| volume["configMap"]["name"] == PLACEHOLDER);
    let gone: Vec<String> = gone.map(|volume| volume["name"].text().to_owned()).collect();
    let mounts = producers.iter_mut().filter_map(|one| one.get_mut("volumeMounts")?.as_array_mut());
    let is_gone = |mount: &mut Value| gone.iter().any(|name| mount["name"] == name.as_str());
    let unmounted = mounts.flat_map(|mounts| mounts.extract_if(.., is_gone));
    let places: String =
        unmounted.map(|mount| format!(", mounted at `{}`", mount["mountPath"].text())).collect();
    if !gone.is_empty() {
        notes.push(format!(
            "the volume `{}` of `{PLACEHOLDER}`{places} was dropped: workers are told by their environment, and there is no such file",
            gone.join("`, `")
        ));
    }
    if let Some(shared) = shared_volume(&workers, &producers) {
        let inits = pod.get_mut("initContainers").and_then(Value::as_array_mut).into_iter().flatten();
        let mounts = producers.iter_mut().chain(inits).filter_map(|one| one["volumeMounts"].as_array_mut());
        rename(mounts.flatten(), &shared);
        rename(json::list_in(&mut pod, "volumes").iter_mut(), &shared);
    }
    // Every pod gets a results volume without options.
    json::list_in(&mut pod, "volumes")
        .retain(|volume| *volume != json!({"name": RESULTS_VOLUME, "emptyDir": {}}));
    if pod["serviceAccountName"].is_null() && pod["serviceAccount"].is_null() {
        // Plugins of v0.8 ran with all permissions of the run.
        pod["serviceAccountName"] = json!(SERVICE_ACCOUNT);
    }
    if pod["volumes"] == json!([])
        && let Value::Object(pod) = &mut pod
    {
        pod.remove("volumes");
    }
    let mut definition = Definition::new(name.as_str(), driver(node, "driver")?, producers.remove(0));
    definition.config.driver_spelling = text("driver")?.to_owned();
    let kind = text("resultType")?;
    if !kind.is_empty() && kind.replace('_', "-") != name {
        notes.push(format!(
            "`resultType` {kind} was dropped: results are stored under the plugin's name, `{name}`"
        ));
    }
    // The only type whose results were JUnit in a tar.
    if kind == "e2e" {
        definition.config.result_format = "junit".into();
    }
    pod["containers"] = Value::Array(producers);
    definition.pod_spec = Some(pod);
    notes.append(&mut parts.notes);
    Ok(Loaded { definition, built_in: false, notes, misspelt: None })
}

/// The volume that carries results to the worker: mounted at its results directory, else shared with a producer.
fn shared_volume<'c>(workers: &'c [Value], producers: &'c [Value]) -> Option<String> {
    let mut env = workers.iter().flat_map(|worker| worker["env"].items());
    let folder =
        env.find(|variable| variable["name"] == env::OLD_RESULTS_DIR && variable["value"].is_string());
    let folder = folder.map_or(RESULTS_DIR, |variable| variable["value"].text()).trim_end_matches('/');
    let mounts = |one: &'c Value| one["volumeMounts"].items();
    let of_producers = producers.iter().flat_map(mounts);
    let is_shared = |mount: &&Value| of_producers.clone().any(|other| other["name"] == mount["name"]);
    let shared: Vec<&Value> = workers.iter().flat_map(mounts).filter(is_shared).collect();
    let at_folder = shared.iter().find(|mount| mount["mountPath"].text().trim_end_matches('/') == folder);
    at_folder.or(shared.first()).map(|mount| mount["name"].text().to_owned())
}

/// Renames the volume `shared` to the program's name. Another volume of that name gets the free one.
fn rename<'v>(named: impl Iterator<Item = &'v mut Value>, shared: &str) {
    for value in named {
        if value["name"] == shared {
            value["name"] = json!(RESULTS_VOLUME);
        } else if value["name"] == RESULTS_VOLUME {
            value["name"] = json!(shared);
        }
    }
}

/// Whether a container runs `sonobuoy worker`, directly or through a shell.
fn runs_worker(container: &Value) -> bool {
    let words = container["command"].items().chain(container["args"].items());
    let words: Vec<&str> = words.filter_map(Value::as_str).flat_map(str::split_ascii_whitespace).collect();
    let is_ours = |word: &str| matches!(word.rsplit(['/', '\\']).next(), Some("sonobuoy" | "sonobuoy.exe"));
    words.windows(2).any(|pair| is_ours(pair[0]) && pair[1] == "worker")
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    const E2E: &str = "name: e2e_tests
driver: Job
resultType: e2e
spec:
  tolerations:
  - key: CriticalAddonsOnly
    operator: Exists
  restartPolicy: Never
  containers:
  - name: e2e
    image: conformance
    env:
    - {name: E2E_FOCUS, value: x}
    volumeMounts:
    - {name: results, mountPath: /tmp/results}
    - {name: config, mountPath: /etc/sonobuoy}
    - {name: data, mountPath: /data}
  - name: side
    image: side
  - name: job
    command: [sh, -c, /sonobuoy worker job -v 5 --logtostderr && sleep 3600]
    image: old
  volumes:
  - {name: results, emptyDir: {}}
  - {name: config, configMap: {name: __SONOBUOY_CONFIGMAP__}}
  - {name: data, hostPath: {path: /data}}
";

    #[test]
    fn producer_is_kept_and_worker_dropped() {
        let loaded = read(E2E).unwrap();
        assert_eq!(
            loaded.definition.to_value(),
            json!({
                "sonobuoy-config": {"driver": "Job", "plugin-name": "e2e-tests", "result-format": "junit"},
                "spec": {
                    "name": "e2e", "image": "conformance", "env": [{"name": "E2E_FOCUS", "value": "x"}],
                    "volumeMounts": [
                        {"name": "results", "mountPath": "/tmp/results"},
                        {"name": "data", "mountPath": "/data"},
                    ],
                },
                "podSpec": {
                    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
                    "restartPolicy": "Never",
                    "serviceAccountName": "sonobuoy-serviceaccount",
                    "containers": [{"name": "side", "image": "side"}],
                    "volumes": [{"name": "data", "hostPath": {"path": "/data"}}],
                },
            })
        );
        let notes = loaded.notes.join("; ");
        for words in ["the v0.8 format", "now called `e2e-tests`", "`resultType` e2e was dropped"] {
            assert!(notes.contains(words), "{notes}");
        }
    }

    #[test]
    fn shared_volume_keeps_name_and_options() {
        let pod = |volumes: Value, worker: Value, env: Value| {
            let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
            json!({"name": "a", "driver": "Job", "spec": {
                "serviceAccountName": "own",
                "containers": [
                    {"name": "p", "volumeMounts": [mount("data", "/data"), mount("out", "/out")]},
                    {"name": "w", "command": ["/sonobuoy", "worker", "job"], "env": env, "volumeMounts": worker},
                ],
                "initContainers": [{"name": "i", "volumeMounts": [mount("out", "/out")]}],
                "volumes": volumes,
            }})
        };
        let plain = json!([{"name": "out", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]);
        let memory = json!([{"name": "data", "emptyDir": {}}, {"name": "out", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]);
        let both = json!([{"name": "data", "mountPath": "/d"}, {"name": "out", "mountPath": "/tmp/results"}]);
        let elsewhere = json!([{"name": "data", "mountPath": "/d"}, {"name": "out", "mountPath": "/r/"}]);
        let kept = json!({"name": "results", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}});
        let data = json!({"name": "data", "emptyDir": {}});
        for (volumes, worker, env, expected) in [
            (&plain, &both, json!([]), json!([data])),
            (&memory, &both, json!([]), json!([data, kept])),
            (&memory, &elsewhere, json!([{"name": "RESULTS_DIR", "value": "/r"}]), json!([data, kept])),
        ] {
            let text = pod(volumes.clone(), worker.clone(), env).to_string();
            let definition = read(&text).unwrap().definition.to_value();
            let mounts = [("data", "/data"), ("results", "/out")];
            let mounts = mounts.map(|(name, path)| json!({"name": name, "mountPath": path}));
            assert_eq!(definition["spec"]["volumeMounts"], json!(mounts), "{text}");
            let pod = &definition["podSpec"];
            assert_eq!(pod["initContainers"][0]["volumeMounts"], json!([mounts[1]]), "{text}");
            assert_eq!((&pod["volumes"], &pod["serviceAccountName"]), (&expected, &json!("own")), "{text}");
        }
        // A similar volume with its own content is kept.
        let swapped =
            json!([{"name": "results", "hostPath": {"path": "/h"}}, {"name": "out", "emptyDir": {}}]);
        let text = pod(swapped, json!([{"name": "out", "mountPath": "/tmp/results"}]), json!([])).to_string();
        let definition = read(&text).unwrap().definition.to_value();
        assert_eq!(definition["podSpec"]["volumes"], json!([{"name": "out", "hostPath": {"path": "/h"}}]));
    }

    #[test]
    fn inconvertible_definition_is_refused_with_its_position() {
        for (text, line, words) in [
            ("name: a\ndriver: Job\n", 1, "`spec` is missing"),
            ("name: a\ndriver: Pod\nspec: {containers: [{name: x}]}\n", 2, "write Job, DaemonSet or Nodes"),
            (
                "name: a\ndriver: Job\nspec: {containers: [{command: [/sonobuoy, worker, job]}]}\n",
                3,
                "the only container",
            ),
            ("name: a\ndriver: Job\nspec: {containers: {}}\n", 3, "must be a list"),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!(error.line, line, "{error}");
            assert!(error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn workers_are_recognized_by_their_command() {
        for (container, expected) in [
            (json!({"command": ["sh", "-c", "/sonobuoy worker global -v 5 --logtostderr"]}), true),
            (json!({"command": ["/sonobuoy"], "args": ["worker", "single-node"]}), true),
            (json!({"command": ["sh", "-c", "sonobuoy worker daemonset; sleep 1"]}), true),
            (json!({"command": ["/sonobuoy"], "args": ["gather", "host-facts"]}), false),
            (json!({"command": ["./run.sh"], "args": ["worker"]}), false),
            (json!({}), false),
        ] {
            assert_eq!(runs_worker(&container), expected, "{container}");
        }
    }
}
