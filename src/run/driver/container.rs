//! Runs a container of a definition as a process on this machine: resolves command and environment
//! as the kubelet does.
//!
//! Pure except for looking up commands. Features that need an image, a volume or a cluster object
//! are rejected with an error that names the plugin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{bail, ensure};
use regex::{Captures, Regex};
use serde_json::Value;

use base::{sys, temp};
use kube::Object as _;

use model::plugin::{self, Definition, builtin};

/// Values of the pod's fields.
#[derive(Default)]
pub(super) struct PodFields<'a> {
    /// `spec.nodeName`
    pub node: &'a str,
    /// `metadata.name`
    pub pod: &'a str,
    /// `metadata.namespace`
    pub namespace: &'a str,
    /// Volumes that are directories of the node, from [`host_volumes`].
    pub volumes: &'a [(String, String)],
}

/// A process to start.
#[derive(Debug)]
pub(super) struct ProcessSpec {
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Complete environment.
    pub env: BTreeMap<String, String>,
    /// Working directory, if the definition sets one.
    pub dir: Option<PathBuf>,
}

/// The containers of a definition: init containers, which run in order, and containers that run
/// together, the plugin's last, as in a pod.
pub(super) fn containers(definition: &Definition) -> (Vec<&Value>, Vec<&Value>) {
    let pod = definition.pod_spec.as_ref().unwrap_or(&Value::Null);
    let together = pod["containers"]
        .items()
        .chain([&definition.spec])
        .collect();
    (pod["initContainers"].items().collect(), together)
}

/// Volumes of a definition that are directories of the node, by name; this machine is the node.
pub(super) fn host_volumes(definition: &Definition) -> Vec<(String, String)> {
    let default = plugin::default_spec(definition.config.driver, "");
    let pod = definition.pod_spec.as_ref().unwrap_or(&default);
    let volumes = pod["volumes"].items().chain(&definition.extra_volumes);
    let folders = volumes.filter_map(|volume| {
        let (name, path) = (
            volume["name"].as_str()?,
            volume["hostPath"]["path"].as_str()?,
        );
        Some((name.to_owned(), path.to_owned()))
    });
    folders.collect()
}

/// Maps a path below a mounted directory of the node to this machine; returns other text unchanged.
fn on_host(text: &str, container: &Value, facts: &PodFields<'_>) -> String {
    let mut mounts = container["volumeMounts"].items();
    let host_path = mounts.find_map(|mount| {
        let (name, point) = (mount["name"].as_str()?, mount["mountPath"].as_str()?);
        let (_, folder) = facts.volumes.iter().find(|(known, _)| known == name)?;
        match text.strip_prefix(point.trim_end_matches('/'))? {
            "" | "/" => Some(folder.clone()),
            rest => rest
                .starts_with('/')
                .then(|| folder.trim_end_matches('/').to_owned() + rest),
        }
    });
    host_path.unwrap_or_else(|| text.to_owned())
}

/// Checks that a definition can run on this machine, before anything is started: that its commands
/// exist, and that the files of its config-map can.
pub fn check(definition: &Definition) -> anyhow::Result<()> {
    let plugin = definition.name();
    let (first, together) = containers(definition);
    for value in first.into_iter().chain(together) {
        let container = resolve(plugin, value, &PodFields::default(), &[])?;
        let Some(program) = container.command.first() else {
            bail!(
                "plugin `{plugin}`: container `{}` has no `command`; `--local` starts commands of \
                 this machine, not images, so name one, or run the plugin in a cluster",
                container.name
            );
        };
        if program.contains("$(") {
            continue;
        }
        let path = container.env.get("PATH");
        let folder = container.dir.as_deref().unwrap_or(Path::new(""));
        if sys::find_program(program.as_ref(), path.map(String::as_ref), folder).is_none() {
            bail!(
                "plugin `{plugin}`: the command `{program}` of container `{}` is not on this \
                 machine; `--local` starts commands of this machine, not images, so install it, \
                 or run the plugin in a cluster",
                container.name
            );
        }
        if let Some(dir) = container.dir
            && !dir.is_dir()
        {
            bail!(
                "plugin `{plugin}`: its `workingDir` `{}` is not a folder on this machine",
                dir.display()
            );
        }
    }
    for file in definition.config_map.keys() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !matches!(file.as_str(), "" | "." | "..") && file.chars().all(plain),
            "plugin `{plugin}`: `{file}` in its config-map is not a file name"
        );
    }
    Ok(())
}

/// Resolves one container. `given` overrides the environment of the definition, as in the original.
pub(super) fn resolve(
    plugin: &str,
    container: &Value,
    facts: &PodFields<'_>,
    given: &[(String, String)],
) -> anyhow::Result<ProcessSpec> {
    let name = container["name"]
        .as_str()
        .filter(|name| !name.is_empty())
        .unwrap_or("plugin")
        .to_owned();
    let mut listed = BTreeMap::new();
    for entry in container["env"].items() {
        let Some(key) = entry["name"].as_str() else {
            continue;
        };
        if given.iter().any(|(name, _)| name == key) {
            continue;
        }
        let value = match (entry["value"].as_str(), &entry["valueFrom"]) {
            (Some(value), _) => on_host(value, container, facts),
            (None, Value::Null) => String::new(),
            (None, from) => match value_from(from, facts) {
                Some(value) => value,
                None if optional(from) => continue,
                None => bail!(
                    "plugin `{plugin}`: `{key}` of container `{name}` comes from a cluster \
                     ({from}); with `--local`, give it a `value`"
                ),
            },
        };
        listed.insert(key.to_owned(), value);
    }
    listed.extend(given.iter().cloned());
    // Sorted as in the original, since the order decides which references resolve.
    let mut listed: Vec<_> = listed.into_iter().collect();
    listed.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    let mut env = BTreeMap::new();
    // A container has these from its image.
    for name in sys::INHERITED {
        if let Ok(value) = std::env::var(name) {
            // The container's working directory may differ.
            let value = if *name == "TMPDIR" {
                temp::dir().to_string_lossy().into_owned()
            } else {
                value
            };
            env.insert((*name).to_owned(), value);
        }
    }
    for (name, value) in listed {
        let value = expand(&value, &env);
        env.insert(name, value);
    }
    let strings = |key: &str| container[key].items().filter_map(Value::as_str);
    let mut command: Vec<String> = strings("command").map(|word| expand(word, &env)).collect();
    if !command.is_empty() {
        command.extend(strings("args").map(|word| expand(word, &env)));
    }
    // The image of this build contains this program.
    if let Some(program) = command
        .first_mut()
        .filter(|program| *program == builtin::OWN_PROGRAM)
        && let Ok(own) = std::env::current_exe()
    {
        *program = own.to_string_lossy().into_owned();
    }
    let dir = container["workingDir"]
        .as_str()
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from);
    Ok(ProcessSpec {
        name,
        command,
        env,
        dir,
    })
}

fn value_from(from: &Value, facts: &PodFields<'_>) -> Option<String> {
    let text = match from["fieldRef"]["fieldPath"].as_str()? {
        "spec.nodeName" => facts.node,
        "metadata.name" => facts.pod,
        "metadata.namespace" => facts.namespace,
        "status.hostIP" | "status.podIP" | "status.hostIPs" | "status.podIPs" => "127.0.0.1",
        "spec.serviceAccountName" => "",
        _ => return None,
    };
    Some(text.to_owned())
}

fn optional(from: &Value) -> bool {
    ["secretKeyRef", "configMapKeyRef"]
        .iter()
        .any(|key| from[key]["optional"].as_bool() == Some(true))
}

/// Replaces `$(NAME)` by its value; `$$` is a literal dollar, an unknown name is left unchanged.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    static REFERENCE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\$\$|\$\(([^)]*)\)").expect("a valid pattern"));
    let expanded = REFERENCE.replace_all(text, |reference: &Captures<'_>| {
        let Some(name) = reference.get(1) else {
            return "$".to_owned();
        };
        let value = env.get(name.as_str()).map(String::as_str);
        value.unwrap_or(&reference[0]).to_owned()
    });
    expanded.into_owned()
}

#[cfg(test)]
mod tests {
    use base::json::json;

    use super::*;
    use model::plugin::DriverKind;

    const FACTS: PodFields<'_> = PodFields {
        node: "n1",
        pod: "p1",
        namespace: "ns",
        volumes: &[],
    };

    fn env<'a>(container: &'a ProcessSpec, name: &str) -> Option<&'a str> {
        container.env.get(name).map(String::as_str)
    }

    #[test]
    fn references_are_expanded_as_in_a_pod() {
        let vars = [("A".to_owned(), "1".to_owned())].into();
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(A", "$(A"),
            ("größe$(A)", "größe1"),
        ] {
            assert_eq!(expand(text, &vars), expected, "{text}");
        }
    }

    #[test]
    fn local_container_has_the_environment_of_its_pod() {
        let value = json!({
            "name": "c",
            "command": ["sh", "-c", "$(OUT)"],
            "args": ["$(NODE)", "$(NONE)"],
            "env": [
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "OUT", "value": "$(RESULTS_DIR)/out"},
                {"name": "RESULTS_DIR", "value": "/old"},
                {"name": "PATH", "value": "/own"},
                {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
                {"name": "EMPTY"},
                {"name": "ABLE", "value": "$(ZERO)"},
                {"name": "ZERO", "value": "0"},
            ],
        });
        let given = [("RESULTS_DIR".to_owned(), "/r".to_owned())];
        let container = resolve("p", &value, &FACTS, &given).unwrap();
        // OUT sorts before RESULTS_DIR, so its reference is unresolved.
        assert_eq!(
            container.command,
            ["sh", "-c", "$(RESULTS_DIR)/out", "n1", "$(NONE)"]
        );
        assert_eq!(env(&container, "RESULTS_DIR"), Some("/r"));
        assert_eq!(env(&container, "PATH"), Some("/own"));
        assert_eq!(env(&container, "MAYBE"), None);
        assert_eq!(env(&container, "EMPTY"), Some(""));
        assert_eq!(env(&container, "ABLE"), Some("$(ZERO)"));
    }

    #[test]
    fn host_folders_and_own_program_are_mapped() {
        let definition = Definition::new("p", DriverKind::DaemonSet, json!({}));
        let volumes = host_volumes(&definition);
        assert_eq!(
            volumes,
            [("root".to_owned(), "/".to_owned())],
            "as every DaemonSet has it"
        );
        let facts = PodFields {
            volumes: &volumes,
            ..FACTS
        };
        let value = json!({
            "name": "c",
            "image": "$SONOBUOY_IMAGE",
            "command": ["/sonobuoy", "gather"],
            "volumeMounts": [{"name": "root", "mountPath": "/node"}, {"name": "other", "mountPath": "/other"}],
            "env": [
                {"name": "ROOT", "value": "/node"},
                {"name": "ETC", "value": "/node/etc"},
                {"name": "NODES", "value": "/nodes"},
                {"name": "OTHER", "value": "/other"},
            ],
        });
        let container = resolve("p", &value, &facts, &[]).unwrap();
        let values = ["ROOT", "ETC", "NODES", "OTHER"].map(|name| env(&container, name).unwrap());
        assert_eq!(values, ["/", "/etc", "/nodes", "/other"]);
        assert_eq!(
            container.command,
            [std::env::current_exe().unwrap().to_str().unwrap(), "gather"]
        );
    }

    #[test]
    fn cluster_only_features_are_named() {
        let value = json!({"name": "c", "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s"}}}]});
        let error = resolve("p", &value, &FACTS, &[]).unwrap_err().to_string();
        assert!(error.contains("`p`") && error.contains("`K`"), "{error}");
    }

    #[test]
    fn local_command_must_exist() {
        let check = |spec: Value, words: &str| {
            let result = check(&Definition::new("p", DriverKind::Job, spec));
            match (result, words) {
                (Ok(()), "") => {}
                (Err(error), words) if !words.is_empty() => {
                    assert!(error.to_string().contains(words), "{error}");
                }
                (result, _) => panic!("{words}: {result:?}"),
            }
        };
        check(json!({"name": "c", "command": ["sh"]}), "");
        check(json!({"name": "c", "command": ["/bin/sh"]}), "");
        check(json!({"name": "c", "args": ["x"]}), "has no `command`");
        check(
            json!({"name": "c", "command": ["no-such-command"]}),
            "`no-such-command`",
        );
        check(
            json!({"name": "c", "command": ["/etc/passwd"]}),
            "not on this machine",
        );
        check(
            json!({"name": "c", "command": ["sh"], "workingDir": "/no/such"}),
            "workingDir",
        );
    }
}
