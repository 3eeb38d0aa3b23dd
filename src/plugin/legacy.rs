//! The flat form of v0.8: `name`, `driver`, `resultType` and a PodSpec with a worker container written by hand.
//!
//! Converted to the current form: the container that produces results becomes the plugin's container; the worker and
//! whatever only it needed are dropped, since every pod now gets a worker.

use serde_json::{Map, Value};

use super::shape::driver;
use super::{Definition, Loaded, shape};
use base::json::json;
use base::yaml::{Content, Error, Node, typed};

/// The config map of the worker's configuration, which no longer exists.
const PLACEHOLDER: &str = "__SONOBUOY_CONFIGMAP__";
/// The volume that every plugin gets.
const RESULTS: &str = "results";

/// Converts a definition of the flat form.
pub(super) fn convert(node: &Node) -> Result<Loaded, Error> {
    let old_name = match node.get("name") {
        Some(name) => typed::text("name", name)?,
        None => return Err(node.place.error("`name` is missing")),
    };
    let name = old_name.replace('_', "-");
    let Some(spec) = node.get("spec") else {
        return Err(node.place.error("`spec` is missing; it must be a PodSpec"));
    };
    let mut parts = shape::Parts::default();
    let Value::Object(mut pod) = parts.pod("spec", spec)? else {
        return Err(typed::wrong("spec", spec, "a map"));
    };
    let mut notes = vec![format!("the definition of `{old_name}` uses the v0.8 format and was converted")];
    if name != old_name {
        notes.push(format!("the plugin `{old_name}` is now called `{name}`: names cannot contain `_`"));
    }
    let gone = remove_volumes(&mut pod);
    let (mut producers, workers): (Vec<Value>, Vec<Value>) =
        take_list(&mut pod, "containers").into_iter().partition(|container| !runs_worker(container));
    if producers.is_empty() {
        return Err(spec
            .place
            .error("the only container is the worker; the one that produces results is missing"));
    }
    if workers.is_empty() {
        notes.push("there is no worker container; every pod now gets one automatically".into());
    }
    if !gone.is_empty() {
        let mounts = producers.iter().flat_map(|container| mounts_of(container, &gone));
        let places: Vec<String> = mounts.map(|place| format!(", mounted at `{place}`")).collect();
        notes.push(format!(
            "the volume `{}` of `{PLACEHOLDER}`{} was dropped: workers are told by their environment, and there is no such \
             file",
            gone.join("`, `"),
            places.concat()
        ));
    }
    for container in &mut producers {
        remove_mounts(container, &gone);
    }
    let spec = producers.remove(0);
    pod.insert("containers".into(), Value::Array(producers));
    let mut definition = Definition::new(name, driver(node, "driver")?, spec);
    if let Some(Content::Text(spelling)) = node.get("driver").map(|value| &value.content) {
        definition.config.driver_spelling.clone_from(spelling);
    }
    if let Some(kind) = node.get("resultType") {
        let kind = typed::text("resultType", kind)?;
        if kind.replace('_', "-") != definition.config.plugin_name {
            notes.push(format!(
                "`resultType` {kind} was dropped: results are stored under the plugin's name, `{}`",
                definition.config.plugin_name
            ));
        }
        // The one type whose results were JUnit in a tar.
        if kind == "e2e" {
            definition.config.result_format = "junit".into();
        }
    }
    definition.pod_spec = Some(Value::Object(pod));
    notes.append(&mut parts.notes);
    Ok(Loaded { definition, notes, misspelt: None })
}

fn take_list(pod: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match pod.remove(key) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Removes the volumes of the worker's configuration, whose names it returns, and `results`, which every pod gets.
fn remove_volumes(pod: &mut Map<String, Value>) -> Vec<String> {
    let name = |volume: &Value| volume["name"].as_str().unwrap_or_default().to_owned();
    let (gone, kept): (Vec<Value>, Vec<Value>) =
        take_list(pod, "volumes").into_iter().partition(|volume| volume["configMap"]["name"] == PLACEHOLDER);
    let kept: Vec<Value> = kept.into_iter().filter(|volume| name(volume) != RESULTS).collect();
    if !kept.is_empty() {
        pod.insert("volumes".into(), Value::Array(kept));
    }
    gone.iter().map(name).collect()
}

/// Where a container has volumes that are gone.
fn mounts_of<'c>(container: &'c Value, gone: &'c [String]) -> impl Iterator<Item = &'c str> {
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let of_gone = mounts.filter(|mount| gone.iter().any(|name| mount["name"] == json!(name)));
    of_gone.filter_map(|mount| mount["mountPath"].as_str())
}

fn remove_mounts(container: &mut Value, gone: &[String]) {
    let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) else { return };
    mounts.retain(|mount| !gone.iter().any(|name| mount["name"] == json!(name)));
}

/// Whether a container runs `sonobuoy worker`, directly or through a shell.
fn runs_worker(container: &Value) -> bool {
    let words = |key: &str| {
        container[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>()
    };
    let line = [words("command"), words("args")].concat().join(" ");
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        let program = word.rsplit(['/', '\\']).next().unwrap_or(word);
        if matches!(program, "sonobuoy" | "sonobuoy.exe") && words.clone().next() == Some("worker") {
            return true;
        }
    }
    false
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
    fn the_producer_is_kept_and_the_worker_dropped() {
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
    fn what_cannot_be_converted_is_refused_with_its_place() {
        for (text, line, words) in [
            ("name: a\ndriver: Job\n", 1, "`spec` is missing"),
            ("name: a\ndriver: Pod\nspec: {containers: [{name: x}]}\n", 2, "write Job or DaemonSet"),
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
