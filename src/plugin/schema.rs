//! The JSON Schema of definitions, for editors: `sonobuoy-config` from its type, the parts of Kubernetes from their table.

use serde_json::Value;

use super::read::{FORMER, Rule};
use super::{Config, DriverKind, Permissions, RESULT_FORMATS, shape};
use base::json::json;
use base::yaml::typed::schema_of;

/// Descriptions of the keys of `sonobuoy-config`, which editors show.
const KEYS: [(&str, &str); 14] = [
    ("plugin-name", "Name of the plugin and of its results."),
    (
        "driver",
        "Job: once for the cluster. DaemonSet: on every node. Nodes: on every node, in pods that end.",
    ),
    ("waves", "With the driver Nodes: how many nodes at once, and in which order."),
    ("result-format", "Format of the result files; raw if absent."),
    ("result-files", "Names of the files that contain results; by default those of the format."),
    (
        "permissions",
        "Permissions in the cluster: none, read, admin or RBAC rules; by default those of the run.",
    ),
    ("timeout", "Time limit, such as 90m; 0s for none; by default that of the run."),
    ("order", "Plugins with a lower number run first."),
    ("skip-cleanup", "Keep the pods after the run."),
    ("results-anywhere", "Accept results outside $RESULTS_DIR."),
    ("worker", "none: the plugin sends its result itself."),
    ("part-of", "Name of the plugin whose results include those of this one."),
    ("description", "Free text."),
    ("source-url", "Where the definition is published."),
];

/// The schema of one definition.
pub(crate) fn schema() -> Value {
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
    for (key, about) in KEYS {
        keys[key]["description"] = json!(about);
    }
    for former in FORMER {
        keys[former.rsplit('.').next().unwrap_or_default()] =
            json!({"description": "Has no effect.", "deprecated": true});
    }
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "Sonobuoy plugin", "type": "object",
        "required": ["sonobuoy-config", "spec"], "additionalProperties": false,
        "properties": {
            "apiVersion": {"enum": ["sonobuoy/v0"]}, "kind": {"enum": ["manifest"]}, "sonobuoy-config": config,
            "spec": shape::schema(shape::CONTAINER), "podSpec": shape::schema(shape::POD),
            "extra-volumes": shape::schema("[]Volume"), "config-map": shape::schema("{}text"),
        },
        "definitions": shape::schemas(),
    })
}

/// A pattern for a word in any case.
fn in_any_case(word: &str) -> String {
    word.chars()
        .map(|letter| format!("[{}{}]", letter.to_ascii_uppercase(), letter.to_ascii_lowercase()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described_and_of_a_type() {
        let schema = schema();
        let keys = schema["properties"]["sonobuoy-config"]["properties"].as_object().unwrap();
        assert_eq!(keys.len(), KEYS.len() + FORMER.len());
        for (key, schema) in keys {
            assert!(schema["description"].is_string(), "{key}");
            let is_typed = ["type", "enum", "anyOf", "deprecated"].iter().any(|word| !schema[word].is_null());
            assert!(is_typed, "{key}: {schema}");
        }
        assert_eq!(in_any_case("Job"), "[Jj][Oo][Bb]");
    }
}
