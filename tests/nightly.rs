//! The manifest of nightly runs: it has exactly the objects of the Helm chart, and its command line
//! is valid.

use serde_json::Value;

use crate::support::Sonobuoy;
use crate::support::diff::assert_golden;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/nightly/chart");

/// The name that the image has where no registry has it.
const IMAGE: &str = concat!("localhost/sonobuoy:v", env!("CARGO_PKG_VERSION"));

/// The chart's template, filled in as Helm does it: it only uses values, `toJson`, and `required`
/// with a message; that of a missing value is the error.
fn rendered(namespace: &str, image: &str) -> Result<String, String> {
    let read = |name: &str| std::fs::read_to_string(format!("{CHART}/{name}")).unwrap();
    let mut values: Value = serde_yaml::from_str(&read("values.yaml")).unwrap();
    assert_eq!(
        values["image"], "",
        "no image of somebody else is the default"
    );
    values["image"] = image.into();
    let template = read("templates/nightly.yaml");
    let mut parts = template.split("{{ ");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" }}").unwrap();
        let (name, is_json) = name
            .strip_suffix(" | toJson")
            .map_or((name, false), |name| (name, true));
        let (message, name) = name
            .strip_prefix("required \"")
            .and_then(|rest| rest.split_once("\" "))
            .map_or((None, name), |(message, name)| (Some(message), name));
        let value = match name.strip_prefix(".Values.") {
            Some(name) => &values[name],
            None => &Value::from(if name == ".Release.Namespace" {
                namespace
            } else {
                panic!("{name}")
            }),
        };
        assert!(!value.is_null(), "{name} is not in values.yaml");
        if let Some(message) = message.filter(|_| value == "") {
            return Err(message.into());
        }
        text += &match value {
            Value::String(word) if !is_json => word.clone(),
            value => value.to_string(),
        };
        text += rest;
    }
    Ok(text)
}

#[test]
fn chart_without_an_image_names_the_setting() {
    let message = rendered("any", "").unwrap_err();
    assert!(message.contains("`image` is not set"), "{message}");
    assert!(message.contains("--set image="), "{message}");
}

#[test]
fn manifest_has_the_objects_of_the_chart() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: sonobuoy-nightly\n---\n";
    let objects = rendered("sonobuoy-nightly", IMAGE).unwrap();
    let text = format!("{namespace}{objects}");
    assert_golden("../../docs/nightly/nightly.yaml", &text);
    let objects: Vec<Value> = text
        .split("\n---\n")
        .map(|object| serde_yaml::from_str(object).unwrap())
        .collect();
    let job = objects
        .iter()
        .find(|object| object["kind"] == "CronJob")
        .unwrap();
    let night = &job["spec"]["jobTemplate"]["spec"];
    // `Forbid` skips every later night while one is active.
    assert!(night["activeDeadlineSeconds"].as_u64().unwrap() < 24 * 60 * 60);
    let pod = &night["template"]["spec"];
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
