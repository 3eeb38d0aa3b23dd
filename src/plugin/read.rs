//! Definitions from text: YAML or JSON, plain or wrapped in a ConfigMap, of today or of v0.8.

use std::collections::BTreeMap;

use super::shape::driver;
use super::{Config, Definition, Loaded, Permissions, legacy, shape};
use base::clock;
use base::yaml::{self, Content, Error, Node};

/// Reads the one definition of a text.
pub(crate) fn read(text: &str) -> Result<Loaded, Error> {
    let mut all = read_all(text)?;
    if all.len() > 1 {
        let names: Vec<_> = all.iter().map(|loaded| loaded.definition.name()).collect();
        let message = format!("holds {} definitions ({}), one is needed", names.len(), names.join(", "));
        return Err(yaml::Place { line: 1, column: 1 }.error(message));
    }
    all.pop().ok_or_else(|| yaml::Place { line: 1, column: 1 }.error("holds no plugin definition"))
}

/// Reads the definitions of a text: one, or as many as its ConfigMap wraps.
pub(crate) fn read_all(text: &str) -> Result<Vec<Loaded>, Error> {
    let node = parse(text)?;
    if is_config_map(&node) { unwrap(&node) } else { Ok(vec![one(&node)?]) }
}

/// Text that begins like JSON is read as JSON, as the Kubernetes decoder does, else as YAML.
fn parse(text: &str) -> Result<Node, Error> {
    if text.trim_start().starts_with('{')
        && let Ok(node) = yaml::json(text)
    {
        return Ok(node);
    }
    yaml::document(text)
}

fn is_config_map(node: &Node) -> bool {
    let is = |key, text: &str| node.get(key).is_some_and(|n| n.content == Content::Text(text.into()));
    is("kind", "ConfigMap") && is("apiVersion", "v1")
}

fn unwrap(map: &Node) -> Result<Vec<Loaded>, Error> {
    let data = map.get("data").ok_or_else(|| map.place.error("this ConfigMap has no `data`"))?;
    let name = map.get("metadata").and_then(|meta| meta.get("name"));
    let name = name.map_or(Ok("(no name)"), |node| shape::text("metadata.name", node))?;
    let mut all = Vec::new();
    for (key, node) in data.entries() {
        let text = shape::text(&format!("data.{}", key.text), node)?;
        if key.text.ends_with(".tmpl") {
            let message =
                format!("`data.{}` is a template of v0.10, which is not read; {NEW_FORM}", key.text);
            return Err(key.place.error(message));
        }
        if !is_definition_file(&key.text) {
            continue;
        }
        let mut loaded = parse(text).and_then(|node| one(&node)).map_err(|error| {
            node.place.error(format!("`data.{}` of the ConfigMap, there {error}", key.text))
        })?;
        loaded.notes.insert(0, format!("taken from `{}` of the ConfigMap `{name}`", key.text));
        all.push(loaded);
    }
    if all.is_empty() {
        return Err(data.place.error("no entry of this ConfigMap is named *.yaml, *.yml or *.json"));
    }
    Ok(all)
}

const NEW_FORM: &str = "write it anew with `sonobuoy gen plugin`";

fn is_definition_file(name: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end))
}

fn one(node: &Node) -> Result<Loaded, Error> {
    match &node.content {
        Content::Null => return Err(node.place.error("holds no plugin definition")),
        Content::Map(_) => {}
        _ => return Err(shape::wrong("the definition", node, "a map")),
    }
    check_kind(node)?;
    if node.get("sonobuoy-config").is_none() && node.get("driver").is_some() && node.get("name").is_some() {
        return legacy::convert(node);
    }
    let config = match node.get("sonobuoy-config") {
        Some(node) => config(node)?,
        None => {
            return Err(node
                .place
                .error("`sonobuoy-config` is missing; it needs `driver` and `plugin-name`"));
        }
    };
    let mut parts = shape::Parts::default();
    let spec = parts.container(node.get("spec"))?;
    let pod_spec = node.get("podSpec").map(|pod| parts.pod("podSpec", pod)).transpose()?;
    let extra_volumes = node.get("extra-volumes").map(|list| parts.volumes(list)).transpose()?;
    let config_map = match node.get("config-map") {
        Some(map) => {
            let entries = shape::text_map("config-map", map)?;
            entries.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
        }
        None => BTreeMap::new(),
    };
    let definition =
        Definition { config, spec, pod_spec, extra_volumes: extra_volumes.unwrap_or_default(), config_map };
    Ok(Loaded { definition, notes: parts.notes })
}

fn check_kind(node: &Node) -> Result<(), Error> {
    for (key, expected) in [("apiVersion", "sonobuoy/v0"), ("kind", "manifest")] {
        if let Some(value) = node.get(key) {
            let text = shape::text(key, value)?;
            if text != expected && !text.is_empty() {
                let message = format!("`{key}` is `{text}`; a plugin definition has `{expected}` or none");
                return Err(value.place.error(message));
            }
        }
    }
    Ok(())
}

fn config(node: &Node) -> Result<Config, Error> {
    if !matches!(node.content, Content::Map(_)) {
        return Err(shape::wrong("sonobuoy-config", node, "a map"));
    }
    let text = |key: &str| match node.get(key) {
        Some(value) => shape::text(&format!("sonobuoy-config.{key}"), value).map(str::to_owned),
        None => Ok(String::new()),
    };
    let driver_spelling = text("driver")?;
    let result_files = match node.get("result-files") {
        Some(list) => {
            shape::texts("sonobuoy-config.result-files", list)?.into_iter().map(str::to_owned).collect()
        }
        None => Vec::new(),
    };
    let flag = |key: &str| match node.get(key) {
        None => Ok(false),
        Some(Node { content: Content::Bool(flag), .. }) => Ok(*flag),
        Some(other) => {
            Err(shape::wrong(&format!("sonobuoy-config.{key}"), other, "true or false without quotes"))
        }
    };
    let order = match node.get("order") {
        None => 0,
        Some(value) => match &value.content {
            Content::Number(number) if number.is_i64() => number.as_i64().unwrap_or_default(),
            _ => return Err(shape::wrong("sonobuoy-config.order", value, "a whole number")),
        },
    };
    let timeout = match node.get("timeout") {
        None => None,
        Some(value) => {
            let span = clock::parse_duration(shape::text("sonobuoy-config.timeout", value)?);
            let wrong = || {
                value.place.error(
                    "`sonobuoy-config.timeout` is not a duration; write it as 90s, 5m or 1h30m".to_owned(),
                )
            };
            Some(span.ok_or_else(wrong)?)
        }
    };
    let worker = match node.get("worker") {
        None => true,
        Some(value) => match shape::text("sonobuoy-config.worker", value)? {
            "none" => false,
            _ => {
                return Err(value
                    .place
                    .error("`sonobuoy-config.worker` can only be none; leave it out for a worker"));
            }
        },
    };
    Ok(Config {
        permissions: node.get("permissions").map(permissions).transpose()?,
        worker,
        driver: driver(node, "sonobuoy-config.driver")?,
        driver_spelling,
        plugin_name: text("plugin-name")?,
        result_format: text("result-format")?,
        result_files,
        skip_cleanup: flag("skip-cleanup")?,
        results_anywhere: flag("results-anywhere")?,
        description: text("description")?,
        source_url: text("source-url")?,
        order,
        timeout,
    })
}

/// A word, or rules of RBAC: lists of texts by name.
fn permissions(node: &Node) -> Result<Permissions, Error> {
    const KEY: &str = "sonobuoy-config.permissions";
    const KEYS: [&str; 5] = ["apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs"];
    let Content::List(rules) = &node.content else {
        let wrong = || node.place.error(format!("`{KEY}` must be none, read, admin or a list of rules"));
        return Permissions::parse(shape::text(KEY, node)?).ok_or_else(wrong);
    };
    let rule = |(at, rule): (usize, &Node)| {
        let mut fields = serde_json::Map::new();
        if !matches!(rule.content, Content::Map(_)) {
            return Err(shape::wrong(&format!("{KEY}[{at}]"), rule, "a map"));
        }
        for (key, value) in rule.entries() {
            let path = format!("{KEY}[{at}].{}", key.text);
            if !KEYS.contains(&&*key.text) {
                let words = format!("`{path}` is not part of a rule; there are {}", KEYS.join(", "));
                return Err(key.place.error(words));
            }
            fields.insert(key.text.clone(), shape::texts(&path, value)?.into());
        }
        if fields.get("verbs").is_none() {
            return Err(rule.place.error(format!("`{KEY}[{at}]` has no `verbs`")));
        }
        Ok(fields.into())
    };
    rules.iter().enumerate().map(rule).collect::<Result<_, _>>().map(Permissions::Rules)
}

#[cfg(test)]
mod tests {
    use super::super::Driver;
    use super::*;
    use base::json::json;

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
                "timeout": "1h30m0s",
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
        assert_eq!(loaded.definition.config.driver, Driver::DaemonSet);
        assert_eq!(read(&loaded.definition.to_yaml()).unwrap(), loaded, "what is written is read back");
        assert_eq!(read(&expected.to_string()).unwrap(), loaded, "JSON as well");
    }

    #[test]
    fn types_are_checked_with_place_and_remedy() {
        let head = "sonobuoy-config: {driver: Job, plugin-name: p}\n";
        for (text, line, column, words) in [
            ("", 1, 1, "holds no plugin definition"),
            ("[]", 1, 1, "`the definition` is a list, a map is needed"),
            ("spec: {}", 1, 1, "`sonobuoy-config` is missing"),
            ("sonobuoy-config: x", 1, 18, "`sonobuoy-config` is text, a map is needed"),
            (
                "sonobuoy-config: {plugin-name: p}",
                1,
                18,
                "`sonobuoy-config.driver` is missing; write Job or DaemonSet",
            ),
            ("sonobuoy-config: {driver: Deployment}", 1, 27, "`Deployment`; write Job or DaemonSet"),
            ("sonobuoy-config: {driver: Job, plugin-name: 12}", 1, 45, "quote it, as in \"12\""),
            ("sonobuoy-config: {driver: Job, order: x}", 1, 39, "a whole number is needed"),
            ("sonobuoy-config: {driver: Job, timeout: 5}", 1, 41, "is a number, text is needed"),
            ("sonobuoy-config: {driver: Job, timeout: soon}", 1, 41, "write it as 90s, 5m or 1h30m"),
            ("sonobuoy-config: {driver: Job, skip-cleanup: 'true'}", 1, 46, "without quotes"),
            ("sonobuoy-config: {driver: Job, result-files: a}", 1, 46, "a list is needed"),
            ("apiVersion: v1\nkind: Pod", 1, 13, "has `sonobuoy/v0` or none"),
        ] {
            check(text, line, column, words);
        }
        for (text, column, words) in [
            (
                "spec: {env: [{name: a, value: 3}]}",
                31,
                "`spec.env[0].value` is a number, text is needed: quote it, as in \"3\"",
            ),
            (
                "spec: {env: [{name: a, value: yes}]}",
                31,
                "is a boolean, text is needed: quote it, as in \"true\"",
            ),
            ("spec: {args: [a, 1]}", 18, "`spec.args[1]`"),
            ("spec: {command: run}", 17, "`spec.command` is text, a list is needed"),
            ("spec: {image: [x]}", 15, "`spec.image` is a list, text is needed"),
            ("spec: text", 7, "`spec` is text, a map is needed"),
            ("podSpec: {hostPID: 'yes'}", 20, "`podSpec.hostPID`"),
            ("podSpec: {nodeSelector: {a: 1}}", 29, "`podSpec.nodeSelector.a`"),
            (
                "podSpec: {containers: [{env: [{name: a, value: 1.5}]}]}",
                48,
                "`podSpec.containers[0].env[0].value`",
            ),
            ("extra-volumes: {}", 16, "`extra-volumes` is a map, a list is needed"),
            ("config-map: {a: 1}", 17, "`config-map.a`"),
            ("config-map: {a: {b: c}}", 17, "`config-map.a` is a map, text is needed"),
        ] {
            check(&format!("{head}{text}"), 2, column, words);
        }
    }

    fn check(text: &str, line: usize, column: usize, words: &str) {
        let error = read(text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.message.contains(words), "{text}: {error}");
    }

    #[test]
    fn config_maps_are_unwrapped() {
        let wrapped =
            |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: cm}}\ndata:\n{data}");
        let entry = |key: &str, name: &str| {
            format!("  {key}: |\n    sonobuoy-config:\n      driver: Job\n      plugin-name: {name}\n")
        };
        let two = wrapped(&[entry("a.yaml", "a"), entry("b.json", "b"), entry("notes", "c")].concat());
        let names: Vec<_> =
            read_all(&two).unwrap().iter().map(|loaded| loaded.definition.name().to_owned()).collect();
        assert_eq!(names, ["a", "b"]);
        check(&two, 1, 1, "holds 2 definitions (a, b)");
        assert_eq!(
            read(&wrapped(&entry("a.yml", "a"))).unwrap().notes,
            ["taken from `a.yml` of the ConfigMap `cm`"]
        );
        check(&wrapped("  a.yaml: '['\n"), 5, 11, "`data.a.yaml` of the ConfigMap, there line");
        check(&wrapped("  a.tmpl: x\n"), 5, 3, "template of v0.10");
        check(&wrapped("  a: x\n"), 5, 3, "no entry");
        check("apiVersion: v1\nkind: ConfigMap\n", 1, 1, "no `data`");
    }

    #[test]
    fn no_damage_to_a_text_makes_a_panic_and_what_is_read_can_be_written() {
        let rounds =
            std::env::var("SONOBUOY_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
        let legacy = "name: a_b\ndriver: Job\nspec: {containers: [{name: x, command: [sh, -c, /sonobuoy worker job]}, {name: y}]}\n";
        let odd = "a: &a [1, 0644, ~, .5, yes]\nb: {<<: {x: *a}, ? y : !!str 1}\nc: |2-\n   t\n\nd: >+\n  f\n\n---\n- e\n";
        let json =
            r#"{"sonobuoy-config": {"driver": "Job", "plugin-name": "\u0061"}, "spec": {"args": [1.5]}}"#;
        let seeds = [FULL, legacy, odd, json].map(|text| text.chars().collect::<Vec<char>>());
        let signs: Vec<char> = "\n\t :-?#&*!|>'\"%@`{}[],<~=.\\0a\u{85}\u{feff}ä\u{1}".chars().collect();
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
                assert_eq!(yaml::parse(&yaml::write(&value)).as_ref(), Ok(&value), "{text:?}");
            }
            for loaded in read_all(&text).into_iter().flatten() {
                let again =
                    read(&loaded.definition.to_yaml()).unwrap_or_else(|error| panic!("{error}: {text:?}"));
                assert_eq!(again.definition, loaded.definition, "{text:?}");
            }
            let _ = base::pattern::compile(&text);
            let _ = yaml::json(&text);
        }
    }
}
