//! Reads definitions from text: YAML or JSON, plain or wrapped in a ConfigMap, current or from
//! v0.8. Describes the current form as a JSON Schema, for editors.

use std::collections::BTreeMap;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::shape::{self, CONTAINER, POD, Parts, driver, empty};
use super::{Config, Definition, DriverKind, Loaded, Permissions, RESULT_FORMATS};
use crate::names::{CONFIG_KEY, RESULTS_VOLUME, SERVICE_ACCOUNT, env};
use base::json::{self, json};
use kube::Object as _;
use yaml::typed::{self, Ignored, Rules, schema_of};
use yaml::{self, Content, Error, Node};

const NO_DEFINITION: &str = "there is no plugin definition";

/// Reads a text with a single definition.
pub fn read(text: &str) -> Result<Loaded, Error> {
    let [loaded]: [Loaded; 1] = read_all(text)?.try_into().map_err(|all: Vec<Loaded>| {
        let names: Vec<_> = all.iter().map(|loaded| loaded.definition.name()).collect();
        let message = format!(
            "must contain one definition, not {} ({})",
            names.len(),
            names.join(", ")
        );
        yaml::Position { line: 1, column: 1 }.error(message)
    })?;
    Ok(loaded)
}

/// Reads the definitions of a text: one, or all that its ConfigMap contains; never none.
pub fn read_all(text: &str) -> Result<Vec<Loaded>, Error> {
    let nodes = documents(text)?;
    let Some(first) = nodes.first().filter(|first| is_object(first)) else {
        return Ok(vec![only(&nodes)?]);
    };
    let is_alone = nodes.len() < 2;
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter(|node| !node.is_null()) {
        if is_config_map(node) && (is_alone || node.get("data").is_some_and(has_definition)) {
            all.extend(unwrap(node)?);
        } else if is_object(node) && !is_alone {
            others.push(format!("{} `{}`", plain(node, "kind"), name_of(node)));
        } else {
            all.push(read_definition(node)?);
        }
    }
    let others = others.join(", ");
    let Some(loaded) = all.first_mut() else {
        return Err(first
            .position
            .error(format!("there is no plugin definition; it has {others}")));
    };
    if !others.is_empty() {
        loaded.notes.push(format!(
            "ignored, since they do not define a plugin: {others}"
        ));
    }
    Ok(all)
}

/// The text of a key; empty for a missing key or another type.
fn plain<'n>(node: &'n Node, key: &str) -> &'n str {
    match node.get(key).map(|value| &value.content) {
        Some(Content::Text(text)) => text,
        _ => "",
    }
}

/// The name of an object of the cluster.
fn name_of(node: &Node) -> &str {
    node.get("metadata").map_or("", |meta| plain(meta, "name"))
}

/// Whether a document is an object of the cluster, such as the pod of an aggregator.
fn is_object(node: &Node) -> bool {
    node.get("apiVersion").is_some() && !["", "manifest"].contains(&plain(node, "kind"))
}

/// Whether a ConfigMap contains a definition, and not only the settings of a run.
fn has_definition(data: &Node) -> bool {
    data.entries()
        .iter()
        .any(|(key, _)| is_definition_file(&key.text))
}

/// The documents of a text. One that starts like JSON is read as JSON, as in the Kubernetes
/// decoder, else as YAML.
fn documents(text: &str) -> Result<Vec<Node>, Error> {
    if text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return Ok(vec![yaml::json(text)?]);
    }
    yaml::written(text)
}

/// The definition in the only document.
fn only(documents: &[Node]) -> Result<Loaded, Error> {
    if let Some(second) = documents.iter().skip(1).find(|node| !node.is_null()) {
        let message = "a second document begins here, but a file has one plugin definition; write \
                       each into a file of its own, and name each with `-p`";
        return Err(second.position.error(message));
    }
    let absent = || yaml::Position { line: 1, column: 1 }.error(NO_DEFINITION);
    read_definition(documents.first().ok_or_else(absent)?)
}

fn is_config_map(node: &Node) -> bool {
    plain(node, "kind") == "ConfigMap" && plain(node, "apiVersion") == "v1"
}

fn unwrap(map: &Node) -> Result<Vec<Loaded>, Error> {
    let data = map
        .get("data")
        .ok_or_else(|| map.position.error("this ConfigMap has no `data`"))?;
    let mut all = Vec::new();
    for (key, node) in data.entries() {
        let text = typed::text(&format!("data.{}", key.text), node)?;
        if key.text.ends_with(".tmpl") {
            let message = format!(
                "`data.{}` is a v0.10 template, which is not supported; create a new one with \
                 `sonobuoy gen plugin`",
                key.text
            );
            return Err(key.position.error(message));
        }
        if !is_definition_file(&key.text) {
            continue;
        }
        let mut loaded = documents(text)
            .and_then(|nodes| only(&nodes))
            .map_err(|error| {
                node.position
                    .error(format!("in `data.{}` of the ConfigMap: {error}", key.text))
            })?;
        loaded.notes.insert(
            0,
            format!(
                "taken from `{}` of the ConfigMap `{}`",
                key.text,
                name_of(map)
            ),
        );
        all.push(loaded);
    }
    if all.is_empty() {
        return Err(data
            .position
            .error("this ConfigMap has no entry named *.yaml, *.yml or *.json"));
    }
    Ok(all)
}

/// Excludes the settings of a run, which are JSON as well.
fn is_definition_file(name: &str) -> bool {
    name != CONFIG_KEY
        && [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
}

fn read_definition(node: &Node) -> Result<Loaded, Error> {
    match &node.content {
        Content::Null => return Err(node.position.error(NO_DEFINITION)),
        Content::Map(_) => {}
        _ => {
            return Err(node.position.error(format!(
                "a plugin definition must be a map, not {}",
                node.kind()
            )));
        }
    }
    check_kind(node)?;
    let mut parts = Parts::default();
    if node.get("sonobuoy-config").is_none()
        && node.get("driver").is_some()
        && node.get("name").is_some()
    {
        return convert(node);
    }
    let Some(section) = node.get("sonobuoy-config") else {
        let words = "`sonobuoy-config` is missing: put it beside `spec`, with `driver` (Job or \
                     DaemonSet) and `plugin-name`";
        return Err(node.position.error(words));
    };
    let (file, misspelt) = file(node, section, &mut parts.notes)?;
    let spec = match node.get("spec") {
        Some(spec) => parts.value("spec", spec, CONTAINER)?,
        None => empty(CONTAINER),
    };
    let pod_spec = node
        .get("podSpec")
        .map(|pod| parts.value("podSpec", pod, POD))
        .transpose()?;
    let volumes = node
        .get("extra-volumes")
        .map(|list| parts.list("extra-volumes", list, "Volume"));
    let definition = Definition {
        config: file.sonobuoy_config,
        spec,
        pod_spec,
        extra_volumes: volumes.transpose()?.unwrap_or_default(),
        config_map: file.config_map,
    };
    Ok(Loaded {
        definition,
        built_in: false,
        notes: parts.notes,
        misspelt,
    })
}

fn check_kind(node: &Node) -> Result<(), Error> {
    for (key, expected) in [("apiVersion", "sonobuoy/v0"), ("kind", "manifest")] {
        if let Some(value) = node.get(key) {
            let text = typed::text(key, value)?;
            if text != expected && !text.is_empty() {
                let message = format!(
                    "`{key}` is `{text}`; in a plugin definition it must be `{expected}` or absent"
                );
                return Err(value.position.error(message));
            }
        }
    }
    Ok(())
}

/// Keys that published definitions contain and no program has ever read.
const FORMER: &[&str] = &["sonobuoy-config.result-type", "sonobuoy-config.source_url"];

/// The keys of a definition; what Kubernetes defines is read by [`shape`].
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    sonobuoy_config: Config,
    config_map: BTreeMap<String, String>,
    spec: IgnoredAny,
    #[serde(rename = "podSpec")]
    pod_spec: IgnoredAny,
    extra_volumes: IgnoredAny,
    #[serde(rename = "apiVersion")]
    api_version: IgnoredAny,
    kind: IgnoredAny,
}

/// Reads all but the container and the pod; unknown keys are noted, and the first that resembles a
/// known one is returned.
fn file(
    node: &Node,
    section: &Node,
    notes: &mut Vec<String>,
) -> Result<(File, Option<Error>), Error> {
    const KEY: &str = "sonobuoy-config";
    let rules = Rules {
        former: FORMER,
        ..Rules::default()
    };
    typed::entries(KEY, section)?;
    let driver = driver(section, &format!("{KEY}.driver"))?;
    let mut file: File = typed::read_over("", node, &Value::Null, &rules)?;
    file.sonobuoy_config.driver = driver;
    let mut misspelt = None;
    for (unknown, why) in rules
        .ignored
        .take()
        .into_iter()
        .filter(|(_, why)| *why != Ignored::Former)
    {
        // The misspelt key is the only explanation of a missing name.
        if file.sonobuoy_config.plugin_name.is_empty()
            && unknown.message.ends_with("`plugin-name`?")
        {
            return Err(unknown);
        }
        notes.push(format!("{unknown}; it is ignored"));
        misspelt = misspelt.or(Some(unknown).filter(|_| why == Ignored::Misspelt));
    }
    Ok((file, misspelt))
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        value.deserialize_any(WordOrRules)
    }
}

struct WordOrRules;

impl<'de> Visitor<'de> for WordOrRules {
    type Value = Permissions;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("none, read, admin or a list of rules")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Permissions, E> {
        match word {
            "none" => Ok(Permissions::None),
            "read" => Ok(Permissions::Read),
            "admin" => Ok(Permissions::Admin),
            _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Permissions, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Permissions::Rules)
    }
}

/// A rule of RBAC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "field of a rule", rename_all = "camelCase")]
pub struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_groups: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Vec<String>>,
    verbs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_names: Option<Vec<String>>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Option::is_none")]
    non_resource_urls: Option<Vec<String>>,
}

/// The page whose table describes the keys, also to editors.
const DOCUMENTATION: &str = include_str!("../../../docs/plugins.md");

/// The schema of one definition.
pub fn schema() -> Value {
    let mut config = schema_of::<Config>();
    config["type"] = json!("object");
    config["required"] = json!(["driver", "plugin-name"]);
    config["additionalProperties"] = json!(false);
    let keys = &mut config["properties"];
    keys["driver"] = json!({"anyOf": [
        {"enum": DriverKind::ALL.map(DriverKind::name)},
        {"pattern": format!("^({})$", DriverKind::ALL.map(|driver| in_any_case(driver.name())).join("|"))},
    ]});
    keys["result-format"] = json!({"enum": RESULT_FORMATS});
    let words = [Permissions::None, Permissions::Read, Permissions::Admin];
    keys["permissions"] =
        json!({"anyOf": [{"enum": words}, {"type": "array", "items": schema_of::<Rule>()}]});
    for former in FORMER {
        keys[former.rsplit('.').next().unwrap_or_default()] =
            json!({"description": "Has no effect.", "deprecated": true});
    }
    yaml::schema::describe(&mut config, &["Keys of sonobuoy-config"], DOCUMENTATION);
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "Sonobuoy plugin", "type": "object",
        "required": ["sonobuoy-config", "spec"], "additionalProperties": false,
        "properties": {
            "apiVersion": {"enum": ["sonobuoy/v0"]}, "kind": {"enum": ["manifest"]}, "sonobuoy-config": config,
            "spec": shape::schema(CONTAINER), "podSpec": shape::schema(POD),
            "extra-volumes": shape::schema("[]Volume"), "config-map": shape::schema("{}text"),
        },
        "definitions": shape::schemas(),
    })
}

/// A pattern for a word in any case.
fn in_any_case(word: &str) -> String {
    word.chars()
        .map(|letter| {
            format!(
                "[{}{}]",
                letter.to_ascii_uppercase(),
                letter.to_ascii_lowercase()
            )
        })
        .collect()
}

/// Placeholder for the worker's config map, which no longer exists.
const PLACEHOLDER: &str = "__SONOBUOY_CONFIGMAP__";
/// Results directory of a worker of v0.8.
const RESULTS_DIR: &str = "/tmp/results";

/// Converts a definition of the flat form of v0.8: `name`, `driver`, `resultType` and a PodSpec
/// with a handwritten worker container. The container that produces results becomes the plugin's
/// container; the worker and its private volumes are dropped, since every pod now gets a worker.
fn convert(node: &Node) -> Result<Loaded, Error> {
    let text = |key| {
        node.get(key)
            .map_or(Ok(""), |value| typed::text(key, value))
    };
    let old_name = text("name")?;
    let name = old_name.replace('_', "-");
    let Some(spec) = node.get("spec") else {
        return Err(node
            .position
            .error("`spec` is missing; it must be a PodSpec"));
    };
    let mut parts = Parts::default();
    let mut pod = parts.value("spec", spec, POD)?;
    let mut notes = vec![format!(
        "the definition of `{old_name}` uses the v0.8 format and was converted"
    )];
    if name != old_name {
        notes.push(format!(
            "the plugin `{old_name}` is now called `{name}`: names cannot contain `_`"
        ));
    }
    let containers = std::mem::take(json::list_in(&mut pod, "containers"));
    let (workers, mut producers): (Vec<Value>, Vec<Value>) =
        containers.into_iter().partition(runs_worker);
    if producers.is_empty() {
        return Err(spec
            .position
            .error("the only container is the worker; the one that produces results is missing"));
    }
    if workers.is_empty() {
        notes.push("there is no worker container; every pod now gets one automatically".into());
    }
    let volumes = json::list_in(&mut pod, "volumes");
    let gone: Vec<String> = volumes
        .extract_if(.., |volume| volume["configMap"]["name"] == PLACEHOLDER)
        .map(|volume| volume["name"].text().to_owned())
        .collect();
    let mounts = producers
        .iter_mut()
        .filter_map(|one| one.get_mut("volumeMounts")?.as_array_mut());
    let is_gone = |mount: &mut Value| gone.iter().any(|name| mount["name"] == name.as_str());
    let unmounted = mounts.flat_map(|mounts| mounts.extract_if(.., is_gone));
    let places: String = unmounted
        .map(|mount| format!(", mounted at `{}`", mount["mountPath"].text()))
        .collect();
    if !gone.is_empty() {
        notes.push(format!(
            "the volume `{}` of `{PLACEHOLDER}`{places} was dropped: workers are configured \
             through environment variables, and there is no such file",
            gone.join("`, `")
        ));
    }
    if let Some(shared) = shared_volume(&workers, &producers) {
        let inits = pod
            .get_mut("initContainers")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        let mounts = producers
            .iter_mut()
            .chain(inits)
            .filter_map(|one| one["volumeMounts"].as_array_mut());
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
    let mut definition =
        Definition::new(name.as_str(), driver(node, "driver")?, producers.remove(0));
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
    Ok(Loaded {
        definition,
        built_in: false,
        notes,
        misspelt: None,
    })
}

/// The volume that carries results to the worker: mounted at its results directory, else shared
/// with a producer.
fn shared_volume<'c>(workers: &'c [Value], producers: &'c [Value]) -> Option<String> {
    let mut env = workers.iter().flat_map(|worker| worker["env"].items());
    let folder = env
        .find(|variable| variable["name"] == env::OLD_RESULTS_DIR && variable["value"].is_string());
    let folder = folder
        .map_or(RESULTS_DIR, |variable| variable["value"].text())
        .trim_end_matches('/');
    let mounts = |one: &'c Value| one["volumeMounts"].items();
    let of_producers = producers.iter().flat_map(mounts);
    let is_shared = |mount: &&Value| {
        of_producers
            .clone()
            .any(|other| other["name"] == mount["name"])
    };
    let shared: Vec<&Value> = workers.iter().flat_map(mounts).filter(is_shared).collect();
    shared
        .iter()
        .find(|mount| mount["mountPath"].text().trim_end_matches('/') == folder)
        .or(shared.first())
        .map(|mount| mount["name"].text().to_owned())
}

/// Renames the volume `shared` to the program's name. Another volume of that name gets the free
/// one.
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
    let words: Vec<&str> = container["command"]
        .items()
        .chain(container["args"].items())
        .filter_map(Value::as_str)
        .flat_map(str::split_ascii_whitespace)
        .collect();
    let is_ours = |word: &str| {
        matches!(
            word.rsplit(['/', '\\']).next(),
            Some("sonobuoy" | "sonobuoy.exe")
        )
    };
    words
        .windows(2)
        .any(|pair| is_ours(pair[0]) && pair[1] == "worker")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "sonobuoy-config:
  driver: daemonset
  plugin-name: p
  result-format: junit
  result-files: [a.xml]
  result-type: ignored
  skip-cleanup: yes
  results-anywhere: yes
  description: d
  source-url: u
  source_url: ignored
  order: -2
  timeout: 90m
  part-of: q
  permissions: none
  worker: none
  waves: {parallel: 10%}
spec:
  image: i
  env:
  - name: A
    value: \"1\"
  resources: {}
  command:
podSpec:
  hostNetwork: on
  volumes:
  - name: v
    configMap:
      name: c
      defaultMode: 0644
extra-volumes:
- name: w
  emptyDir: {}
config-map:
  f: text
";

    #[test]
    fn every_key_is_read_and_written() {
        let loaded = read(FULL).unwrap();
        assert_eq!(loaded.notes, Vec::<String>::new());
        let expected = json!({
            "sonobuoy-config": {
                "driver": "daemonset", "plugin-name": "p", "result-format": "junit", "result-files": ["a.xml"],
                "skip-cleanup": true, "results-anywhere": true, "description": "d", "source-url": "u", "order": -2,
                "timeout": "1h30m0s", "part-of": "q", "permissions": "none", "worker": "none",
                "waves": {"parallel": "10%", "order": "name"},
            },
            "spec": {"name": "", "image": "i", "env": [{"name": "A", "value": "1"}]},
            "podSpec": {
                "containers": null, "hostNetwork": true,
                "volumes": [{"name": "v", "configMap": {"name": "c", "defaultMode": 420}}],
            },
            "extra-volumes": [{"name": "w", "emptyDir": {}}],
            "config-map": {"f": "text"},
        });
        assert_eq!(loaded.definition.to_value(), expected);
        assert_eq!(loaded.definition.config.driver, DriverKind::DaemonSet);
        assert_eq!(
            read(&loaded.definition.to_yaml()).unwrap(),
            loaded,
            "what is written is read back"
        );
        assert_eq!(read(&expected.to_string()).unwrap(), loaded, "JSON as well");
    }

    #[test]
    fn types_are_checked_with_position_and_remedy() {
        let head = "sonobuoy-config: {driver: Job, plugin-name: p}\n";
        for (text, line, column, words) in [
            ("", 1, 1, "there is no plugin definition"),
            ("[]", 1, 1, "a plugin definition must be a map, not a list"),
            ("spec: {}", 1, 1, "`sonobuoy-config` is missing"),
            (
                "sonobuoy-config: x",
                1,
                18,
                "`sonobuoy-config` must be a map, not text",
            ),
            (
                "sonobuoy-config: {plugin-name: p}",
                1,
                18,
                "`sonobuoy-config.driver` is missing; write Job, DaemonSet or Nodes",
            ),
            (
                "sonobuoy-config: {driver: Deployment}",
                1,
                27,
                "`Deployment`; write Job, DaemonSet or Nodes",
            ),
            (
                "sonobuoy-config: {driver: Job, plugin-name: 12}",
                1,
                45,
                "quote it, as in \"12\"",
            ),
            (
                "sonobuoy-config: {driver: Job, order: x}",
                1,
                39,
                "a whole number without quotes",
            ),
            (
                "sonobuoy-config: {driver: Job, timeout: 5}",
                1,
                41,
                "must be a duration in quotes",
            ),
            (
                "sonobuoy-config: {driver: Job, timeout: soon}",
                1,
                41,
                "write it as 90s, 5m or 1h30m",
            ),
            (
                "sonobuoy-config: {driver: Job, skip-cleanup: 'true'}",
                1,
                46,
                "without quotes",
            ),
            (
                "sonobuoy-config: {driver: Job, result-files: a}",
                1,
                46,
                "must be a list",
            ),
            (
                "apiVersion: v1\nkind: Pod",
                1,
                13,
                "must be `sonobuoy/v0` or absent",
            ),
        ] {
            check(text, line, column, words);
        }
        for (text, column, words) in [
            (
                "spec: {env: [{name: a, value: 3}]}",
                31,
                "`spec.env[0].value` must be text, not a number: quote it, as in \"3\"",
            ),
            (
                "spec: {env: [{name: a, value: yes}]}",
                31,
                "must be text, not a boolean: quote it, as in \"true\"",
            ),
            ("spec: {args: [a, 1]}", 18, "`spec.args[1]`"),
            (
                "spec: {command: run}",
                17,
                "`spec.command` must be a list, not text",
            ),
            (
                "spec: {image: [x]}",
                15,
                "`spec.image` must be text, not a list",
            ),
            ("spec: text", 7, "`spec` must be a map, not text"),
            ("podSpec: {hostPID: 'yes'}", 20, "`podSpec.hostPID`"),
            (
                "podSpec: {nodeSelector: {a: 1}}",
                29,
                "`podSpec.nodeSelector.a`",
            ),
            (
                "podSpec: {containers: [{env: [{name: a, value: 1.5}]}]}",
                48,
                "`podSpec.containers[0].env[0].value`",
            ),
            (
                "extra-volumes: {}",
                16,
                "`extra-volumes` must be a list, not a map",
            ),
            ("config-map: {a: 1}", 17, "`config-map.a`"),
            (
                "config-map: {a: {b: c}}",
                17,
                "`config-map.a` must be text, not a map",
            ),
        ] {
            check(&format!("{head}{text}"), 2, column, words);
        }
    }

    #[test]
    fn unknown_keys_are_noted_and_near_ones_rejected() {
        for (key, note, is_misspelt) in [
            (
                "resultformat",
                "unknown key `resultformat` in `sonobuoy-config`; did you mean `result-format`?",
                true,
            ),
            (
                "plugin_name",
                "did you mean `plugin-name`?; it is ignored",
                true,
            ),
            ("skipcleanup", "did you mean `skip-cleanup`?", true),
            (
                "maintainer",
                "line 1, column 64: unknown key `maintainer` in `sonobuoy-config`; it is ignored",
                false,
            ),
            ("source_url", "", false),
            ("result-type", "", false),
            (
                ".podspec",
                "line 2, column 1: unknown key `podspec`; did you mean `podSpec`?",
                true,
            ),
            (".configmap", "did you mean `config-map`?", true),
            (
                ".result-format",
                "line 2, column 1: unknown key `result-format`; it is ignored",
                false,
            ),
        ] {
            let text = match key.split_once('.') {
                Some((_, key)) => {
                    format!("sonobuoy-config: {{driver: Job, plugin-name: p}}\n{key}: x")
                }
                None => format!(
                    "sonobuoy-config: {{driver: Job, plugin-name: p, description: d, {key}: x}}"
                ),
            };
            let loaded = read(&text).unwrap();
            assert_eq!(loaded.misspelt.is_some(), is_misspelt, "{key}");
            assert!(
                loaded.notes.concat().contains(note),
                "{key}: {:?}",
                loaded.notes
            );
            assert_eq!(
                loaded.notes.is_empty(),
                note.is_empty(),
                "{key}: {:?}",
                loaded.notes
            );
        }
        // The misspelt key is the only explanation of a missing name.
        let nameless = "sonobuoy-config: {driver: Job, plugin_name: p}";
        check(
            nameless,
            1,
            32,
            "unknown key `plugin_name` in `sonobuoy-config`; did you mean `plugin-name`?",
        );
    }

    fn check(text: &str, line: usize, column: usize, words: &str) {
        let error = read(text).expect_err(text);
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text}: {error}"
        );
        assert!(error.message.contains(words), "{text}: {error}");
    }

    #[test]
    fn second_values_and_documents_are_rejected() {
        let head = "sonobuoy-config:\n  plugin-name: p\n  driver: Job\n";
        check(
            &format!("{head}  driver: DaemonSet\n"),
            4,
            3,
            "`driver` is already set in line 3",
        );
        check(
            &format!("{head}spec: {{image: a, image: b}}\n"),
            4,
            18,
            "`image` is already set in line 4",
        );
        check(
            &format!("{head}---\n{head}"),
            5,
            1,
            "a second document begins here",
        );
        let json =
            r#"{"sonobuoy-config": {"driver": "Job", "plugin-name": "p", "driver": "DaemonSet"}}"#;
        check(json, 1, 59, "`driver` is already set in line 1");
        check(
            &format!("{FLOW}\n---\n{FLOW}\n"),
            3,
            1,
            "a second document begins here",
        );
        for ending in ["---\n", "...\n", "---\n# end\n"] {
            assert_eq!(
                read(&format!("{head}{ending}")).unwrap().definition.name(),
                "p",
                "{ending}"
            );
        }
    }

    const FLOW: &str = r#"{"sonobuoy-config": {"driver": "Job", "plugin-name": "p"}}"#;

    #[test]
    fn config_maps_are_unwrapped() {
        let wrapped = |data: &str| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: cm}}\ndata:\n{data}")
        };
        let entry = |key: &str, name: &str| {
            format!(
                "  {key}: |\n    sonobuoy-config:\n      driver: Job\n      plugin-name: {name}\n"
            )
        };
        let two = wrapped(
            &[
                entry("a.yaml", "a"),
                entry("b.json", "b"),
                entry("notes", "c"),
            ]
            .concat(),
        );
        let names: Vec<_> = read_all(&two)
            .unwrap()
            .iter()
            .map(|loaded| loaded.definition.name().to_owned())
            .collect();
        assert_eq!(names, ["a", "b"]);
        check(&two, 1, 1, "must contain one definition, not 2 (a, b)");
        assert_eq!(
            read(&wrapped(&entry("a.yml", "a"))).unwrap().notes,
            ["taken from `a.yml` of the ConfigMap `cm`"]
        );
        check(
            &wrapped("  a.yaml: '['\n"),
            5,
            11,
            "in `data.a.yaml` of the ConfigMap: line",
        );
        check(&wrapped("  a.tmpl: x\n"), 5, 3, "v0.10 template");
        check(&wrapped("  a: x\n"), 5, 3, "no entry");
        check("apiVersion: v1\nkind: ConfigMap\n", 1, 1, "no `data`");
    }

    #[test]
    fn damaged_text_never_panics_and_definitions_round_trip() {
        let rounds = std::env::var("SONOBUOY_FUZZ_ROUNDS")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(3000);
        let legacy = "name: a_b\ndriver: Job\nspec: {containers: [{name: x, command: [sh, -c, \
                      /sonobuoy worker job]}, {name: y}]}\n";
        let odd = "a: &a [1, 0644, ~, .5, yes]\nb: {<<: {x: *a}, ? y : !!str 1}\nc: |2-\n   \
                   t\n\nd: >+\n  f\n\n---\n- e\n";
        let json = r#"{"sonobuoy-config": {"driver": "Job", "plugin-name": "\u0061"}, "spec": {"args": [1.5]}}"#;
        let seeds = [FULL, legacy, odd, json].map(|text| text.chars().collect::<Vec<char>>());
        let signs: Vec<char> = "\n\t :-?#&*!|>'\"%@`{}[],<~=.\\0a\u{85}\u{feff}ä\u{1}"
            .chars()
            .collect();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % (below.max(1) as u64)).unwrap()
        };
        for _ in 0..rounds {
            let mut text = seeds[random(seeds.len())].clone();
            for _ in 0..=random(6) {
                let at = random(text.len());
                match random(4) {
                    0 => drop(text.drain(at..(at + random(9)).min(text.len()))),
                    1 => text.insert(at, signs[random(signs.len())]),
                    2 => text.truncate(text.len().max(at)),
                    _ => {
                        let piece = text[at..(at + random(20)).min(text.len())].to_vec();
                        let to = random(text.len());
                        text.splice(to..to, piece);
                    }
                }
            }
            let text: String = text.into_iter().collect();
            for value in yaml::parse_all(&text).into_iter().flatten() {
                assert_eq!(
                    yaml::parse(&yaml::write(&value)).as_ref(),
                    Ok(&value),
                    "{text:?}"
                );
            }
            for loaded in read_all(&text).into_iter().flatten() {
                let again = read(&loaded.definition.to_yaml())
                    .unwrap_or_else(|error| panic!("{error}: {text:?}"));
                assert_eq!(again.definition, loaded.definition, "{text:?}");
            }
            let _ = base::pattern::compile(&text);
            let _ = yaml::json(&text);
        }
    }

    #[test]
    fn every_key_is_described_and_of_a_type() {
        let schema = schema();
        let keys = schema["properties"]["sonobuoy-config"]["properties"]
            .as_object()
            .unwrap();
        for (key, schema) in keys {
            assert!(schema["description"].is_string(), "{key}");
            let is_typed = ["type", "enum", "anyOf", "deprecated"]
                .iter()
                .any(|word| !schema[word].is_null());
            assert!(is_typed, "{key}: {schema}");
        }
        assert_eq!(in_any_case("Job"), "[Jj][Oo][Bb]");
    }

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
        for words in [
            "the v0.8 format",
            "now called `e2e-tests`",
            "`resultType` e2e was dropped",
        ] {
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
        let elsewhere =
            json!([{"name": "data", "mountPath": "/d"}, {"name": "out", "mountPath": "/r/"}]);
        let kept = json!({"name": "results", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}});
        let data = json!({"name": "data", "emptyDir": {}});
        for (volumes, worker, env, expected) in [
            (&plain, &both, json!([]), json!([data])),
            (&memory, &both, json!([]), json!([data, kept])),
            (
                &memory,
                &elsewhere,
                json!([{"name": "RESULTS_DIR", "value": "/r"}]),
                json!([data, kept]),
            ),
        ] {
            let text = pod(volumes.clone(), worker.clone(), env).to_string();
            let definition = read(&text).unwrap().definition.to_value();
            let mounts = [("data", "/data"), ("results", "/out")];
            let mounts = mounts.map(|(name, path)| json!({"name": name, "mountPath": path}));
            assert_eq!(definition["spec"]["volumeMounts"], json!(mounts), "{text}");
            let pod = &definition["podSpec"];
            assert_eq!(
                pod["initContainers"][0]["volumeMounts"],
                json!([mounts[1]]),
                "{text}"
            );
            assert_eq!(
                (&pod["volumes"], &pod["serviceAccountName"]),
                (&expected, &json!("own")),
                "{text}"
            );
        }
        // A similar volume with its own content is kept.
        let swapped = json!([{"name": "results", "hostPath": {"path": "/h"}}, {"name": "out", "emptyDir": {}}]);
        let text = pod(
            swapped,
            json!([{"name": "out", "mountPath": "/tmp/results"}]),
            json!([]),
        )
        .to_string();
        let definition = read(&text).unwrap().definition.to_value();
        assert_eq!(
            definition["podSpec"]["volumes"],
            json!([{"name": "out", "hostPath": {"path": "/h"}}])
        );
    }

    #[test]
    fn inconvertible_definition_is_refused_with_its_position() {
        for (text, line, words) in [
            ("name: a\ndriver: Job\n", 1, "`spec` is missing"),
            (
                "name: a\ndriver: Pod\nspec: {containers: [{name: x}]}\n",
                2,
                "write Job, DaemonSet or Nodes",
            ),
            (
                "name: a\ndriver: Job\nspec: {containers: [{command: [/sonobuoy, worker, job]}]}\n",
                3,
                "the only container",
            ),
            (
                "name: a\ndriver: Job\nspec: {containers: {}}\n",
                3,
                "must be a list",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!(error.line, line, "{error}");
            assert!(error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn workers_are_recognized_by_their_command() {
        for (container, expected) in [
            (
                json!({"command": ["sh", "-c", "/sonobuoy worker global -v 5 --logtostderr"]}),
                true,
            ),
            (
                json!({"command": ["/sonobuoy"], "args": ["worker", "single-node"]}),
                true,
            ),
            (
                json!({"command": ["sh", "-c", "sonobuoy worker daemonset; sleep 1"]}),
                true,
            ),
            (
                json!({"command": ["/sonobuoy"], "args": ["gather", "host-facts"]}),
                false,
            ),
            (json!({"command": ["./run.sh"], "args": ["worker"]}), false),
            (json!({}), false),
        ] {
            assert_eq!(runs_worker(&container), expected, "{container}");
        }
    }
}
