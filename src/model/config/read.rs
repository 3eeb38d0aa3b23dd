//! Applies configuration files to settings, as Go does, and checks values that have the right type;
//! loads the aggregator's.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use anyhow::bail;
use serde::de::{Deserialize, Deserializer, Error as _};

use super::{MAX_ATTEMPTS, Redaction, Run, Toleration};
use crate::names::{VERSION, env};
use crate::nodes::check_condition;
use base::at::At as _;
use base::{clock, json, pattern};
use client::protocol::HEARTBEAT_INTERVAL;
use yaml::typed::{self, Ignored, Rules};
use yaml::{self, Error};

impl Run {
    /// Applies a configuration file to these settings; values that it lacks are unchanged. Case
    /// does not matter in keys, unknown keys are ignored, and likely mistakes reported.
    pub fn overlay(&mut self, text: &str) -> Result<(), Error> {
        let document = yaml::json(text)?;
        let rules = Rules {
            any_case: true,
            ..Rules::default()
        };
        let read: Self = typed::read_over("", &document, &json::value(self), &rules)?;
        let logs = &read.limits.pod_logs;
        if logs.since_seconds.is_some() && logs.since_time.is_some() {
            return Err(document
                .position
                .error("`Limits.PodLogs` has both SinceSeconds and SinceTime; remove one"));
        }
        for (unknown, _) in rules
            .ignored
            .take()
            .into_iter()
            .filter(|(_, why)| *why != Ignored::Unknown)
        {
            log::warn!("{unknown}; it is ignored");
        }
        *self = read;
        Ok(())
    }
}

impl Redaction {
    /// Adds the rules of a YAML or JSON file, which can only hide more, and enables redaction.
    pub fn add(&mut self, file: &str) -> Result<(), Error> {
        let document = yaml::document(file)?;
        let mut entries = typed::entries("the rules", &document)?.iter();
        if let Some((key, value)) = entries.find(|(key, _)| key.text.eq_ignore_ascii_case("off")) {
            return Err(value
                .position
                .error(format!("`{}` is not a rule for a file", key.text)));
        }
        let rules = Rules {
            any_case: true,
            ..Rules::default()
        };
        let more: Self = typed::read_over("", &document, &serde_json::Value::Null, &rules)?;
        self.off = false;
        self.env.extend(more.env);
        self.text.extend(more.text);
        self.fields.extend(more.fields);
        Ok(())
    }
}

/// Reads a value and checks it; `why` continues the sentence that begins with its path.
fn checked<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    value: D,
    is_valid: impl Fn(&T) -> bool,
    why: impl Fn(&T) -> String,
) -> Result<T, D::Error> {
    let value = T::deserialize(value)?;
    if is_valid(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom(why(&value)))
    }
}

pub(super) fn uuid<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let words =
        "may have letters, digits, `-`, `_` and `.`, at most 128, and does not begin with a dot";
    let why = |id: &String| format!("is `{id}`; the ID of a run {words}");
    checked(value, |id| id.is_empty() || is_run(id), why)
}

pub(super) fn port<'de, D: Deserializer<'de>>(value: D) -> Result<i64, D::Error> {
    checked(
        value,
        |port| (0..=65535).contains(port),
        |port| format!("is {port}, but a port is at most 65535"),
    )
}

/// How long a worker may be silent, which is at least the time between two of its heartbeats and a
/// lost one.
pub(super) fn silent<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
    let minimum = HEARTBEAT_INTERVAL * 2;
    let silent = clock::span::deserialize(value)?;
    if silent >= minimum {
        return Ok(silent);
    }
    Err(D::Error::custom(format!(
        "is `{}`; the minimum is {}, since workers send a heartbeat every {}",
        clock::duration(silent),
        clock::duration(minimum),
        clock::duration(HEARTBEAT_INTERVAL)
    )))
}

pub(super) fn attempts<'de, D: Deserializer<'de>>(value: D) -> Result<i64, D::Error> {
    let why = |_: &_| format!("must be a number from 0 to {MAX_ATTEMPTS}");
    checked(value, |count| (0..=MAX_ATTEMPTS).contains(count), why)
}

/// The type of a condition of nodes; empty for none.
pub(super) fn condition<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let text = String::deserialize(value)?;
    if !text.is_empty() {
        check_condition(&text).map_err(D::Error::custom)?;
    }
    Ok(text)
}

pub(super) fn pattern<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let text = String::deserialize(value)?;
    pattern::compile(&text).map_err(|error| D::Error::custom(format!(": {error}")))?;
    Ok(text)
}

/// Quantities of Kubernetes, by resource.
pub(super) fn quantities<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let why =
        |_: &_| "has a quantity that Kubernetes does not know; write it as 2, 500m or 1Gi".into();
    checked(
        value,
        |all: &BTreeMap<String, String>| all.values().all(|text| is_quantity(text)),
        why,
    )
}

fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 14] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi",
    ];
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    number.parse::<f64>().is_ok() && SUFFIXES.contains(&suffix)
}

pub(super) fn text<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    checked(
        value,
        |text: &String| !text.is_empty(),
        |_| "is empty".into(),
    )
}

/// Patterns of a redaction rule.
pub(super) fn patterns<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Pattern(#[serde(deserialize_with = "pattern")] String);
    Ok(Vec::<Pattern>::deserialize(value)?
        .into_iter()
        .map(|pattern| pattern.0)
        .collect())
}

/// Patterns for any text, which must not match everything.
pub(super) fn text_patterns<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Pattern(#[serde(deserialize_with = "narrow")] String);
    fn narrow<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
        let text = pattern(value)?;
        if pattern::compile(&text).is_ok_and(|pattern| pattern.is_match("")) {
            return Err(D::Error::custom(format!(
                ": `{text}` matches the empty string, and so everything"
            )));
        }
        Ok(text)
    }
    Ok(Vec::<Pattern>::deserialize(value)?
        .into_iter()
        .map(|pattern| pattern.0)
        .collect())
}

/// A time in the form that Kubernetes writes and accepts: whole seconds in UTC.
pub(super) fn time<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let Some(text) = Option::<String>::deserialize(value)? else {
        return Ok(None);
    };
    let time = clock::parse_rfc3339(&text)
        .ok_or_else(|| D::Error::custom("is not a time; write it as 2006-01-02T15:04:05Z"))?;
    Ok(Some(format!(
        "{}Z",
        clock::rfc3339(time).split('.').next().unwrap_or_default()
    )))
}

impl TryFrom<BTreeMap<String, String>> for Toleration {
    type Error = String;

    fn try_from(entries: BTreeMap<String, String>) -> Result<Self, String> {
        for (key, value) in &entries {
            let choices: &[&str] = match key.as_str() {
                "key" | "value" => continue,
                "effect" => &["NoSchedule", "NoExecute", "PreferNoSchedule"],
                "operator" => &["Equal", "Exists"],
                // The original keeps it and ignores it.
                _ => {
                    log::warn!(
                        "`{key}` of a toleration has no effect; it has key, value, effect, \
                         operator"
                    );
                    continue;
                }
            };
            if !value.is_empty() && !choices.contains(&value.as_str()) {
                return Err(format!(
                    "has the {key} `{value}`, but it must be one of {}",
                    choices.join(", ")
                ));
            }
        }
        Ok(Self(entries))
    }
}

/// Files with the aggregator's configuration: in the working directory, and the system's.
const CANDIDATES: [&str; 2] = ["config.json", "/etc/sonobuoy/config.json"];

/// The aggregator's environment.
pub struct Environment<'e> {
    /// An environment variable's value, if it is set.
    pub variable: &'e dyn Fn(&str) -> Option<String>,
    /// The machine's name.
    pub host_name: Option<String>,
}

/// Loads the aggregator's configuration: `$SONOBUOY_CONFIG` if set, else `config.json` here, else
/// the system's.
///
/// As in the original, a missing key means zero, except where zero would only break the run (no
/// port, no results folder, no search path): those get the default.
pub fn load(environment: &Environment) -> anyhow::Result<Run> {
    let path = (environment.variable)("SONOBUOY_CONFIG").filter(|path| !path.is_empty());
    let candidates = path.map_or_else(|| CANDIDATES.map(str::to_owned).to_vec(), |path| vec![path]);
    for path in &candidates {
        if let Some(text) =
            base::if_exists(std::fs::read_to_string(path)).at("cannot read", path)?
        {
            let mut run = Run::default();
            run.overlay(&text).at("configuration", path)?;
            complete(&mut run, environment);
            return Ok(run);
        }
    }
    bail!(
        "no configuration: there is no `{}`; set SONOBUOY_CONFIG to one",
        candidates.join("` and no `")
    )
}

/// Fills in required values, and those that only this machine knows.
fn complete(run: &mut Run, environment: &Environment) {
    let default = Run::standard();
    run.version = VERSION.into();
    if let Some(folder) = (environment.variable)(env::OLD_RESULTS_DIR) {
        run.results_dir = folder;
    }
    for (field, value) in [
        (&mut run.results_dir, default.results_dir),
        (&mut run.namespace, default.namespace),
        (&mut run.worker_image, default.worker_image),
        (&mut run.service_account_name, default.service_account_name),
        (
            &mut run.progress_updates_port,
            default.progress_updates_port,
        ),
        (&mut run.server.bind_address, default.server.bind_address),
    ] {
        if field.is_empty() {
            *field = value;
        }
    }
    if run.server.bind_port == 0 {
        run.server.bind_port = default.server.bind_port;
    }
    if run.qps == 0.0 {
        run.qps = default.qps;
    }
    if run.burst == 0 {
        run.burst = default.burst;
    }
    if run.plugin_search_path.is_none() {
        run.plugin_search_path = default.plugin_search_path;
    }
    let address = &run.server.advertise_address;
    run.server.advertise_address = match &**address {
        "" => advertised(run.server.bind_port, environment),
        address => in_url(address),
    };
}

/// The address for workers: the pod's, else the machine's name.
fn advertised(port: i64, environment: &Environment) -> String {
    let ip = (environment.variable)(env::ADVERTISE_IP).filter(|ip| !ip.is_empty());
    let host = ip
        .or_else(|| environment.host_name.clone())
        .filter(|host| !host.is_empty());
    host.map(|host| format!("{}:{port}", in_url(&host)))
        .unwrap_or_default()
}

/// A host as URLs require it: only IPv6 gets brackets.
fn in_url(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// Whether a text is a valid ID of a run, which becomes part of the names of files and objects.
pub fn is_run(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && !id.starts_with('.')
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A random UUID, version 4.
pub fn new_uuid() -> String {
    use ring::rand::SecureRandom;
    let mut bytes = [0_u8; 16];
    // The system's random source does not fail once it has started; TLS would not work without it
    // either.
    let _ = ring::rand::SystemRandom::new().fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = base::hex(bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Run, Error> {
        let mut run = Run::standard();
        run.overlay(text).map(|()| run)
    }

    #[test]
    fn defaults_are_printed_like_the_original() {
        let mut run = Run {
            version: "V".into(),
            worker_image: "I".into(),
            ..Run::standard()
        };
        let expected = concat!(
            r#"{"Description":"DEFAULT","UUID":"","Version":"V","ResultsDir":"/tmp/sonobuoy/results","Resources":null,"#,
            r#""Filters":{"Namespaces":".*","LabelSelector":""},"Limits":{"PodLogs":{"Namespaces":"kube-system","#,
            r#""SonobuoyNamespace":true,"FieldSelectors":[],"LabelSelector":"","Previous":false,"SinceSeconds":null,"#,
            r#""SinceTime":null,"Timestamps":false,"TailLines":null,"LimitBytes":null}},"QPS":30,"Burst":50,"#,
            r#""Server":{"bindaddress":"0.0.0.0","bindport":8080,"advertiseaddress":"","timeoutseconds":21600},"#,
            r#""Plugins":null,"PluginSearchPath":["./plugins.d","/etc/sonobuoy/plugins.d","~/sonobuoy/plugins.d"],"#,
            r#""Namespace":"sonobuoy","WorkerImage":"I","ImagePullPolicy":"IfNotPresent","ImagePullSecrets":"","#,
            r#""AggregatorPermissions":"clusterAdmin","ServiceAccountName":"sonobuoy-serviceaccount","#,
            r#""NamespacePSAEnforceLevel":"privileged","ProgressUpdatesPort":"8099","SecurityContextMode":"nonroot"}"#,
        );
        assert_eq!(run.to_json(), expected);
        run.description = "<a & b>\u{2028}".into();
        assert!(run.to_json().contains(r#""\u003ca \u0026 b\u003e\u2028""#));
    }

    #[test]
    fn every_key_is_read_in_any_case_and_overrides_the_default() {
        let text = r#"{
            "description": "d", "UUID": "u", "VERSION": "v", "resultsDir": "/r", "QueryDir": "/q", "Resources": [],
            "filters": {"namespaces": "[^\\w-.]+"},
            "Limits": {"podlogs": {"SonobuoyNamespace": null, "FieldSelectors": null, "SinceTime": "2020-01-01T02:00:00+02:00",
                "TailLines": 5, "LimitBytes": 6, "Previous": true, "Timestamps": true, "LimitSize": "", "LimitTime": ""},
                "results": {"BYTES": 1, "unpackedBytes": 2, "Entries": 3}, "plugin": {"inodes": 4}, "Run": {"Bytes": 0},
                "progress": {"KeptBytes": 5}, "Connections": {"threads": 7}, "Processing": {"Time": "1s"}, "Snapshot": {"time": "90s"}},
            "qps": 0.5, "Burst": 0, "Server": {"BindPort": 443, "timeoutSeconds": 0},
            "Plugins": [{"Name": "e2e"}], "PluginSearchPath": null, "Namespace": "n", "SkipPlugins": true,
            "WorkerImage": "w", "ForceImagePullPolicy": true, "CustomAnnotations": {"A": "b"},
            "AggregatorTolerations": [{"key": "k", "operator": "Exists"}], "ExistingServiceAccount": true,
            "E2EDockerConfigFile": "f", "NamespacePSAEnforceLevel": "", "ProgressUpdatesPort": "1",
            "Graces": {"imagePull": "10s", "Restarts": 0}, "plugintimeouts": {"e2e": "2h", "p": "90s"},
            "redaction": {"OFF": false, "env": ["_PIN$"], "Fields": [{"KIND": "Pod", "path": "spec.*"}]},
            "Kubeconfig": 3, "PluginNamespace": "x", "LoadedPlugins": null, "Unknown": {"a": [1]}
        } trailing"#;
        let expected = concat!(
            r#"{"Description":"d","UUID":"u","Version":"v","ResultsDir":"/r","QueryDir":"/q","Resources":[],"#,
            r#""Filters":{"Namespaces":"[^\\w-.]+","LabelSelector":""},"Limits":{"PodLogs":{"Namespaces":"kube-system","#,
            r#""SonobuoyNamespace":null,"FieldSelectors":null,"LabelSelector":"","Previous":true,"SinceSeconds":null,"#,
            r#""SinceTime":"2020-01-01T00:00:00Z","Timestamps":true,"TailLines":5,"LimitBytes":6},"#,
            r#""Results":{"Bytes":1,"UnpackedBytes":2,"Entries":3,"FreeBytes":67108864,"FreeInodes":4096},"Plugin":{"Bytes":0,"Inodes":4},"Run":{"Bytes":0},"#,
            r#""Progress":{"Bytes":1048576,"ReadingBytes":16777216,"KeptBytes":5},"Connections":{"Threads":7},"Processing":{"Time":"1s"},"#,
            r#""Snapshot":{"Time":"1m30s"}},"QPS":0.5,"#,
            r#""Server":{"bindaddress":"0.0.0.0","bindport":443,"advertiseaddress":"","timeoutseconds":0},"#,
            r#""Plugins":[{"name":"e2e"}],"PluginSearchPath":null,"Namespace":"n","SkipPlugins":true,"WorkerImage":"w","#,
            r#""ImagePullPolicy":"IfNotPresent","ForceImagePullPolicy":true,"ImagePullSecrets":"","#,
            r#""CustomAnnotations":{"A":"b"},"AggregatorPermissions":"clusterAdmin","#,
            r#""AggregatorTolerations":[{"key":"k","operator":"Exists"}],"ServiceAccountName":"sonobuoy-serviceaccount","#,
            r#""ExistingServiceAccount":true,"E2EDockerConfigFile":"f","ProgressUpdatesPort":"1","SecurityContextMode":"nonroot","#,
            r#""Graces":{"Unschedulable":"5m0s","ImagePull":"10s","Creation":"1m0s","Terminated":"5m0s","Restarts":0,"#,
            r#""Ended":"10s","NoPod":"1m0s","Silence":"3m0s","Silent":"5m0s","NodeNotReady":"2m0s"},"PluginTimeouts":{"e2e":"2h0m0s","p":"1m30s"},"#,
            r#""Redaction":{"Env":["_PIN$"],"Fields":[{"Kind":"Pod","Path":"spec.*"}]}}"#,
        );
        let run = read(text).unwrap();
        assert_eq!(run.to_json(), expected);
        let mut again = Run::default();
        again.overlay(expected).unwrap();
        assert_eq!(
            again, run,
            "what is written is read back where absent means zero"
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_position() {
        for (text, line, column, words) in [
            ("", 1, 1, "empty, but"),
            ("{\n\"UUID\": }", 2, 9, "expected value"),
            ("[]", 1, 1, "`the configuration` must be a map, not a list"),
            (
                "{\"UUID\": \"a\",\n\"UUID\": \"b\"}",
                2,
                1,
                "`UUID` is already set in line 1",
            ),
            (
                "{\"Graces\": {\"Silent\": \"29s\"}}",
                1,
                23,
                "`Graces.Silent` is `29s`; the minimum is 30s",
            ),
            (
                "{\"uuid\": 3}",
                1,
                10,
                "`uuid` must be text, not a number: quote it",
            ),
            (
                "{\"UUID\": \"../x\"}",
                1,
                10,
                "`UUID` is `../x`; the ID of a run may have",
            ),
            (
                "{\"UUID\": \"a/b\"}",
                1,
                10,
                "`UUID` is `a/b`; the ID of a run may have",
            ),
            (
                r#"{"UUID": "a\\b"}"#,
                1,
                10,
                r"`UUID` is `a\b`; the ID of a run may have",
            ),
            (
                "{\"Server\":\n {\"bindport\": \"80\"}}",
                2,
                15,
                "`Server.bindport` must be a whole number without quotes, not text",
            ),
            (
                "{\"Server\": {\"bindport\": 70000}}",
                1,
                25,
                "at most 65535",
            ),
            ("{\"Burst\": 1.5}", 1, 11, "a whole number"),
            (
                "{\"Graces\": {\"ImagePull\": 5}}",
                1,
                26,
                "a duration in quotes",
            ),
            (
                "{\"Graces\": {\"Image\": \"5m\"}}",
                1,
                22,
                "`Graces.Image` is not a grace period",
            ),
            (
                "{\"Graces\": {\"Restarts\": -1}}",
                1,
                25,
                "cannot be negative",
            ),
            (
                "{\"Limits\": {\"Results\": {\"Byte\": 1}}}",
                1,
                33,
                "`Limits.Results.Byte` is not a limit",
            ),
            (
                "{\"Limits\": {\"Snapshot\": {\"times\": 1}}}",
                1,
                35,
                "`Limits.Snapshot.times` is not a limit",
            ),
            (
                "{\"PluginTimeouts\": {\"p\": \"soon\"}}",
                1,
                26,
                "`PluginTimeouts.p` is not a duration",
            ),
            ("{\"QPS\": \"fast\"}", 1, 9, "a number without quotes"),
            ("{\"SkipPlugins\": \"true\"}", 1, 17, "without quotes"),
            ("{\"Resources\": \"pods\"}", 1, 15, "must be a list"),
            ("{\"Resources\": [1]}", 1, 16, "`Resources[0]`"),
            (
                "{\"Plugins\": [\"e2e\"]}",
                1,
                14,
                "`Plugins[0]` must be a map, not text",
            ),
            (
                "{\"CustomAnnotations\": {\"a\": 1}}",
                1,
                29,
                "`CustomAnnotations.a`",
            ),
            (
                "{\"AggregatorTolerations\": [{\"effect\": \"Never\"}]}",
                1,
                28,
                "one of NoSchedule, NoExecute",
            ),
            (
                "{\"AggregatorTolerations\": [{\"operator\": \"In\"}]}",
                1,
                28,
                "one of Equal, Exists",
            ),
            (
                "{\"Redaction\": {\"text\": [\"(\"]}}",
                1,
                25,
                "`Redaction.text[0]`: `(` is not a valid pattern",
            ),
            (
                "{\"Redaction\": {\"texts\": []}}",
                1,
                25,
                "`Redaction.texts` is not a rule",
            ),
            (
                "{\"Limits\": {\"PodLogs\": {\"SinceTime\": \"x\"}}}",
                1,
                38,
                "is not a time",
            ),
            (
                "{\"Filters\": {\"Namespaces\": \"(\"}}",
                1,
                28,
                "`Filters.Namespaces`",
            ),
            (
                "{\"Limits\": {\"PodLogs\": {\"SinceTime\": \"2020-01-01T00:00:00Z\", \
                 \"SinceSeconds\": 1}}}",
                1,
                1,
                "both SinceSeconds and SinceTime",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.message.contains(words), "{text}: {error}");
            assert_eq!(
                (error.line, error.column),
                (line, column),
                "{text}: {error}"
            );
        }
    }

    fn environment<'e>(
        variable: &'e dyn Fn(&str) -> Option<String>,
        host: &str,
    ) -> Environment<'e> {
        Environment {
            variable,
            host_name: Some(host.to_owned()),
        }
    }

    #[test]
    fn absent_keys_are_zero() {
        let mut run = Run::default();
        run.overlay(r#"{"Server": {"bindport": 443}, "Plugins": [{"name": "a"}], "Filters": {"Namespaces": "[^\\w-.]+"}}"#)
            .unwrap();
        let none = |_: &str| None;
        complete(&mut run, &environment(&none, "pod"));
        assert_eq!(
            run.server.timeout_seconds, 0,
            "no limit unless one is given"
        );
        assert_eq!(
            run.limits.pod_logs.namespaces, "",
            "no logs unless asked for"
        );
        assert_eq!(
            (run.server.bind_port, run.server.advertise_address.as_str()),
            (443, "pod:443")
        );
        assert_eq!(
            (run.results_dir.as_str(), run.burst),
            ("/tmp/sonobuoy/results", 50)
        );
        assert_eq!(
            run.uuid, "",
            "the aggregator derives it from the key of the run's authority"
        );
    }

    #[test]
    fn address_is_that_of_the_pod() {
        for (ip, expected) in [
            ("10.0.0.1", "10.0.0.1:8080"),
            ("fd00::1", "[fd00::1]:8080"),
            ("host.example", "host.example:8080"),
            ("", "pod:8080"),
        ] {
            let variable = |name: &str| (name == "SONOBUOY_ADVERTISE_IP").then(|| ip.to_owned());
            assert_eq!(advertised(8080, &environment(&variable, "pod")), expected);
        }
        let none = |_: &str| None;
        assert_eq!(advertised(1, &environment(&none, "")), "");
        for (told, expected) in [
            ("fd00::1", "[fd00::1]"),
            ("[fd00::1]:443", "[fd00::1]:443"),
            ("10.0.0.1", "10.0.0.1"),
            ("host:8080", "host:8080"),
        ] {
            let mut run = Run::default();
            run.server.advertise_address = told.into();
            complete(&mut run, &environment(&none, "pod"));
            assert_eq!(run.server.advertise_address, expected);
        }
    }

    #[test]
    fn missing_or_broken_file_is_named() {
        let missing =
            |name: &str| (name == "SONOBUOY_CONFIG").then(|| "/nonexistent/c.json".to_owned());
        let error = format!("{:#}", load(&environment(&missing, "pod")).unwrap_err());
        assert!(
            error.contains("there is no `/nonexistent/c.json`"),
            "{error}"
        );
        let folder = |name: &str| (name == "SONOBUOY_CONFIG").then(|| "/".to_owned());
        let error = format!("{:#}", load(&environment(&folder, "pod")).unwrap_err());
        assert!(error.contains("cannot read `/`"), "{error}");
    }
}
