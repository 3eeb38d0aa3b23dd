//! The manifest of nightly runs: it has exactly the objects of the Helm chart, and its command line
//! is valid.

use serde_json::Value;

use crate::support::Sonobuoy;
use crate::support::diff::assert_golden;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/nightly/chart");

/// The chart's template, filled in as Helm does it: it only uses values, and `toJson`.
fn rendered(namespace: &str) -> String {
    let read = |name: &str| std::fs::read_to_string(format!("{CHART}/{name}")).unwrap();
    let values: Value = serde_yaml::from_str(&read("values.yaml")).unwrap();
    let template = read("templates/nightly.yaml");
    let mut parts = template.split("{{ ");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" }}").unwrap();
        let (name, is_json) = name
            .strip_suffix(" | toJson")
            .map_or((name, false), |name| (name, true));
        let value = match name.strip_prefix(".Values.") {
            Some(name) => &values[name],
            None => &Value::from(if name == ".Release.Namespace" {
                namespace
            } else {
                panic!("{name}")
            }),
        };
        assert!(!value.is_null(), "{name} is not in values.yaml");
        text += &match value {
            Value::String(word) if !is_json => word.clone(),
            value => value.to_string(),
        };
        text += rest;
    }
    text
}

#[test]
fn manifest_has_the_objects_of_the_chart() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: sonobuoy-nightly\n---\n";
    let text = format!("{namespace}{}", rendered("sonobuoy-nightly"));
    assert_golden("../../docs/nightly/nightly.yaml", &text);
    let objects: Vec<Value> = text
        .split("\n---\n")
        .map(|object| serde_yaml::from_str(object).unwrap())
        .collect();
    let job = objects
        .iter()
        .find(|object| object["kind"] == "CronJob")
        .unwrap();
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    // No verb on everything, and nothing beyond the namespace except nodes and reviews of tokens.
    for role in objects
        .iter()
        .filter(|object| object["kind"].as_str().unwrap().ends_with("Role"))
    {
        assert!(!role["rules"].to_string().contains('*'), "{role}");
    }
    for key in ["initContainers", "containers"] {
        let container = &pod[key][0];
        let words = ["command", "args"]
            .iter()
            .flat_map(|key| container[key].as_array().into_iter().flatten());
        let words = words
            .map(|word| word.as_str().unwrap())
            .skip(1)
            .filter(|word| !word.starts_with("--config"));
        // Without a cluster, the first error is its absence.
        Sonobuoy::with(words)
            .status(1)
            .stderr_has("no cluster configured")
            .run_any();
    }
}
