//! Applies configuration files to settings, as Go does: keys are case-insensitive, unknown keys are ignored, lists are
//! replaced, maps are merged; null clears lists and optional values and leaves everything else alone.

use std::collections::BTreeMap;

use super::{Field, Grace, Identity, Limits, MAX_ATTEMPTS, PodLogs, Redaction, Run, Selection, Server};
use base::clock;
use base::pattern;
use base::yaml::typed::{self, Overlay};
use base::yaml::{self, Error, Node};

/// Applies a file to settings.
pub(super) fn overlay(run: &mut Run, text: &str) -> Result<(), Error> {
    let whole = yaml::json(text)?;
    each("", &whole, |key, path, node| match key {
        "description" => run.description.overlay(path, node),
        "uuid" => {
            run.uuid.overlay(path, node)?;
            if run.uuid.is_empty() || super::is_run(&run.uuid) {
                return Ok(());
            }
            let words =
                "may have letters, digits, `-`, `_` and `.`, at most 128, and does not begin with a dot";
            Err(node.place.error(format!("`{path}` is `{}`; the ID of a run {words}", run.uuid)))
        }
        "version" => run.version.overlay(path, node),
        "resultsdir" => run.results_dir.overlay(path, node),
        "querydir" => run.query_dir.overlay(path, node),
        "resources" => run.resources.overlay(path, node),
        "filters" => each(path, node, |key, path, node| match key {
            "namespaces" => set_pattern(&mut run.filters.namespaces, path, node),
            "labelselector" => run.filters.label_selector.overlay(path, node),
            _ => Ok(()),
        }),
        "limits" => each(path, node, |key, path, node| match key {
            "podlogs" => pod_logs(&mut run.limits.pod_logs, path, node),
            _ => limits(&mut run.limits, key, path, node),
        }),
        "qps" => run.qps.overlay(path, node),
        "burst" => run.burst.overlay(path, node),
        "server" => server(&mut run.server, path, node),
        "plugins" => run.plugins.overlay(path, node),
        "pluginsearchpath" => run.plugin_search_path.overlay(path, node),
        "namespace" => run.namespace.overlay(path, node),
        "skipplugins" => run.skip_plugins.overlay(path, node),
        "workerimage" => run.worker_image.overlay(path, node),
        "imagepullpolicy" => run.image_pull_policy.overlay(path, node),
        "forceimagepullpolicy" => run.force_image_pull_policy.overlay(path, node),
        "imagepullsecrets" => run.image_pull_secrets.overlay(path, node),
        "customannotations" => run.custom_annotations.overlay(path, node),
        "aggregatorpermissions" => run.aggregator_permissions.overlay(path, node),
        "aggregatortolerations" => set_tolerations(&mut run.aggregator_tolerations, path, node),
        "serviceaccountname" => run.service_account_name.overlay(path, node),
        "existingserviceaccount" => run.existing_service_account.overlay(path, node),
        "e2edockerconfigfile" => run.e2e_docker_config_file.overlay(path, node),
        "namespacepsaenforcelevel" => run.namespace_psa_enforce_level.overlay(path, node),
        "progressupdatesport" => run.progress_updates_port.overlay(path, node),
        "securitycontextmode" => run.security_context_mode.overlay(path, node),
        "graces" => graces(&mut run.graces, path, node),
        "plugintimeouts" => run.plugin_timeouts.overlay(path, node),
        "redaction" => redaction(&mut run.redaction, path, node),
        "identity" => set_identity(&mut run.identity, path, node),
        "resumes" => run.resumes.overlay(path, node),
        "resumedtests" => run.resumed_tests.overlay(path, node),
        "retryfailed" => {
            run.retry_failed.overlay(path, node)?;
            if (0..=MAX_ATTEMPTS).contains(&run.retry_failed) {
                return Ok(());
            }
            Err(node.place.error(format!("`{path}` must be a number from 0 to {MAX_ATTEMPTS}")))
        }
        _ => Ok(()),
    })?;
    let logs = &run.limits.pod_logs;
    if logs.since_seconds.is_some() && logs.since_time.is_some() {
        let words = "`Limits.PodLogs` has both SinceSeconds and SinceTime; remove one";
        return Err(whole.place.error(words));
    }
    Ok(())
}

fn set_identity(slot: &mut Identity, path: &str, node: &Node) -> Result<(), Error> {
    let mut text = String::new();
    text.overlay(path, node)?;
    if !text.is_empty() {
        let words = || node.place.error(format!("`{path}` is `{text}`; write node, plugin or auto"));
        *slot = Identity::parse(&text).ok_or_else(words)?;
    }
    Ok(())
}

fn pod_logs(logs: &mut PodLogs, path: &str, node: &Node) -> Result<(), Error> {
    each(path, node, |key, path, node| match key {
        "namespaces" => set_pattern(&mut logs.namespaces, path, node),
        "sonobuoynamespace" => logs.sonobuoy_namespace.overlay(path, node),
        "fieldselectors" => logs.field_selectors.overlay(path, node),
        "labelselector" => logs.label_selector.overlay(path, node),
        "previous" => logs.previous.overlay(path, node),
        "sinceseconds" => logs.since_seconds.overlay(path, node),
        "sincetime" => set_time(&mut logs.since_time, path, node),
        "timestamps" => logs.timestamps.overlay(path, node),
        "taillines" => logs.tail_lines.overlay(path, node),
        "limitbytes" => logs.limit_bytes.overlay(path, node),
        _ => Ok(()),
    })
}

fn limits(limits: &mut Limits, section: &str, path: &str, node: &Node) -> Result<(), Error> {
    if limits.section(section).is_none() {
        return Ok(());
    }
    each(path, node, |key, path, node| {
        let mut fields = limits.section(section).unwrap_or_default();
        if section == "connections" && super::limits::UNUSED_CONNECTIONS.contains(&key) {
            log::warn!("`{path}` no longer has an effect; use `Limits.Connections.Threads`");
            return Ok(());
        }
        match fields.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(key)) {
            Some((_, limit)) => limit.overlay(path, node),
            // A key of version 0.60.0; memory is now bounded without it.
            None if path.eq_ignore_ascii_case("Limits.Processing.MemoryBytes") => Ok(()),
            // Ignoring an unknown limit would mean having no limit.
            None => {
                let known: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
                Err(node.place.error(format!("`{path}` is not a limit; valid keys are {}", known.join(", "))))
            }
        }
    })
}

fn server(server: &mut Server, path: &str, node: &Node) -> Result<(), Error> {
    each(path, node, |key, path, node| match key {
        "bindaddress" => server.bind_address.overlay(path, node),
        "bindport" => {
            server.bind_port.overlay(path, node)?;
            if (0..=65535).contains(&server.bind_port) {
                Ok(())
            } else {
                Err(node
                    .place
                    .error(format!("`{path}` is {}, but a port is at most 65535", server.bind_port)))
            }
        }
        "advertiseaddress" => server.advertise_address.overlay(path, node),
        "timeoutseconds" => server.timeout_seconds.overlay(path, node),
        "statusport" => server.status_port.overlay(path, node),
        _ => Ok(()),
    })
}

fn graces(grace: &mut Grace, path: &str, node: &Node) -> Result<(), Error> {
    each(path, node, |key, path, node| {
        match key {
        "unschedulable" => grace.unschedulable.overlay(path, node),
        "imagepull" => grace.image_pull.overlay(path, node),
        "creation" => grace.creation.overlay(path, node),
        "terminated" => grace.terminated.overlay(path, node),
        "restarts" => grace.restarts.overlay(path, node),
        "ended" => grace.ended.overlay(path, node),
        "nopod" => grace.no_pod.overlay(path, node),
        "silence" => grace.silence.overlay(path, node),
        "silent" => grace.silent.overlay(path, node),
        "nodelost" => grace.node_lost.overlay(path, node),
        // Ignoring an unknown key would mean ignoring a grace period.
        _ => Err(node.place.error(format!(
            "`{path}` is not a grace period; valid keys are Unschedulable, ImagePull, Creation, Terminated, Restarts, Ended, NoPod, Silence, Silent and NodeLost"
        ))),
    }
    })
}

fn redaction(rules: &mut Redaction, path: &str, node: &Node) -> Result<(), Error> {
    if node.is_null() {
        *rules = Redaction::default();
    }
    each(path, node, |key, path, node| match key {
        "off" => rules.off.overlay(path, node),
        _ => rule(rules, key, path, node),
    })
}

/// Reads a file of redaction rules, which can only hide more.
pub(super) fn rules(text: &str) -> Result<Redaction, Error> {
    let whole = yaml::document(text)?;
    typed::entries("the rules", &whole)?;
    let mut rules = Redaction::default();
    each("", &whole, |key, path, node| rule(&mut rules, key, path, node))?;
    Ok(rules)
}

fn rule(rules: &mut Redaction, key: &str, path: &str, node: &Node) -> Result<(), Error> {
    let patterns = || {
        if node.is_null() {
            return Ok(Vec::new());
        }
        typed::list(path, node, |path, item| {
            let mut text = String::new();
            set_pattern(&mut text, path, item)?;
            if key == "text" && pattern::compile(&text).is_ok_and(|pattern| pattern.is_match("")) {
                let words = format!("`{path}`: `{text}` matches the empty string, and so everything");
                return Err(item.place.error(words));
            }
            Ok(text)
        })
    };
    match key {
        "env" => rules.env = patterns()?,
        "text" => rules.text = patterns()?,
        "fields" => rules.fields.overlay(path, node)?,
        // Ignoring an unknown rule would mean hiding nothing.
        _ => {
            return Err(node
                .place
                .error(format!("`{path}` is not a rule; valid keys are env, text and fields")));
        }
    }
    Ok(())
}

/// Calls `entry` with each key of a map, in lower case, its path as written, and its value; null has no entries.
fn each(
    path: &str,
    node: &Node,
    mut entry: impl FnMut(&str, &str, &Node) -> Result<(), Error>,
) -> Result<(), Error> {
    if node.is_null() {
        return Ok(());
    }
    let whole = if path.is_empty() { "the configuration" } else { path };
    typed::entries(whole, node)?.iter().try_for_each(|(key, value)| {
        let path = if path.is_empty() { key.text.clone() } else { format!("{path}.{}", key.text) };
        entry(&key.text.to_ascii_lowercase(), &path, value)
    })
}

fn set_pattern(field: &mut String, path: &str, node: &Node) -> Result<(), Error> {
    field.overlay(path, node)?;
    pattern::compile(field).map(drop).map_err(|error| node.place.error(format!("`{path}`: {error}")))
}

fn set_time(field: &mut Option<String>, path: &str, node: &Node) -> Result<(), Error> {
    field.overlay(path, node)?;
    if let Some(text) = field {
        let Some(time) = clock::parse_rfc3339(text) else {
            let words = format!("`{path}` is not a time; write it as 2006-01-02T15:04:05Z");
            return Err(node.place.error(words));
        };
        // Kubernetes writes and accepts whole seconds in UTC.
        let whole = clock::rfc3339(time);
        *text = format!("{}Z", whole.split('.').next().unwrap_or_default().trim_end_matches('Z'));
    }
    Ok(())
}

impl Overlay for Field {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        each(path, node, |key, path, node| match key {
            "kind" => self.kind.overlay(path, node),
            "path" => self.path.overlay(path, node),
            _ => Ok(()),
        })?;
        if self.kind.is_empty() || self.path.is_empty() {
            return Err(node.place.error(format!("`{path}` needs a kind and a path")));
        }
        Ok(())
    }
}

impl Overlay for Selection {
    fn overlay(&mut self, path: &str, node: &Node) -> Result<(), Error> {
        each(path, node, |key, path, node| if key == "name" { self.name.overlay(path, node) } else { Ok(()) })
    }
}

fn set_tolerations(field: &mut Vec<BTreeMap<String, String>>, path: &str, node: &Node) -> Result<(), Error> {
    if node.is_null() {
        field.clear();
        return Ok(());
    }
    *field = typed::list(path, node, |path, item| {
        let toleration: BTreeMap<String, String> = typed::read(path, item)?;
        for (key, value) in &toleration {
            let known: &[&str] = match key.as_str() {
                "key" | "value" => continue,
                "effect" => &["NoSchedule", "NoExecute", "PreferNoSchedule", ""],
                "operator" => &["Equal", "Exists", ""],
                // The original keeps it and ignores it.
                _ => {
                    log::warn!("`{path}.{key}` has no effect; a toleration has key, value, effect, operator");
                    continue;
                }
            };
            if !known.contains(&value.as_str()) {
                let known = known.split_last().map_or(known, |(_, rest)| rest).join(", ");
                return Err(item
                    .place
                    .error(format!("`{path}.{key}` is `{value}`, but must be one of {known}")));
            }
        }
        Ok(toleration)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Run, Error> {
        let mut run = Run::default();
        run.overlay(text).map(|()| run)
    }

    #[test]
    fn defaults_are_written_in_the_order_and_form_of_the_original() {
        let mut run = Run { version: "V".into(), worker_image: "I".into(), ..Run::default() };
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
                "progress": {"KeptBytes": 5}, "Connections": {"uploads": 6, "threads": 7}, "Processing": {"memoryBytes": 1, "Time": "1s"}, "Snapshot": {"time": "90s"}},
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
            r#""Ended":"10s","NoPod":"1m0s","Silence":"3m0s","Silent":"5m0s","NodeLost":"5m0s"},"PluginTimeouts":{"e2e":"2h0m0s","p":"1m30s"},"#,
            r#""Redaction":{"Env":["_PIN$"],"Fields":[{"Kind":"Pod","Path":"spec.*"}]}}"#,
        );
        let run = read(text).unwrap();
        assert_eq!(run.to_json(), expected);
        let mut again = Run::empty();
        again.overlay(expected).unwrap();
        assert_eq!(again, run, "what is written is read back where absent means zero");
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (text, line, column, words) in [
            ("", 1, 1, "empty, but"),
            ("{\n\"UUID\": }", 2, 9, "expected value"),
            ("[]", 1, 1, "`the configuration` must be a map, not a list"),
            ("{\"uuid\": 3}", 1, 10, "`uuid` must be text, not a number: quote it"),
            ("{\"UUID\": \"../x\"}", 1, 10, "`UUID` is `../x`; the ID of a run may have"),
            ("{\"UUID\": \"a/b\"}", 1, 10, "`UUID` is `a/b`; the ID of a run may have"),
            (r#"{"UUID": "a\\b"}"#, 1, 10, r"`UUID` is `a\b`; the ID of a run may have"),
            (
                "{\"Server\":\n {\"bindport\": \"80\"}}",
                2,
                15,
                "`Server.bindport` must be a whole number without quotes, not text",
            ),
            ("{\"Server\": {\"bindport\": 70000}}", 1, 25, "at most 65535"),
            ("{\"Burst\": 1.5}", 1, 11, "a whole number"),
            ("{\"Graces\": {\"ImagePull\": 5}}", 1, 26, "a duration in quotes"),
            ("{\"Graces\": {\"Image\": \"5m\"}}", 1, 22, "`Graces.Image` is not a grace period"),
            ("{\"Graces\": {\"Restarts\": -1}}", 1, 25, "cannot be negative"),
            ("{\"Limits\": {\"Results\": {\"Byte\": 1}}}", 1, 33, "`Limits.Results.Byte` is not a limit"),
            ("{\"Limits\": {\"Snapshot\": {\"times\": 1}}}", 1, 35, "`Limits.Snapshot.times` is not a limit"),
            ("{\"PluginTimeouts\": {\"p\": \"soon\"}}", 1, 26, "`PluginTimeouts.p` is not a duration"),
            ("{\"QPS\": \"fast\"}", 1, 9, "a number without quotes"),
            ("{\"SkipPlugins\": \"true\"}", 1, 17, "without quotes"),
            ("{\"Resources\": \"pods\"}", 1, 15, "must be a list"),
            ("{\"Resources\": [1]}", 1, 16, "`Resources[0]`"),
            ("{\"Plugins\": [\"e2e\"]}", 1, 14, "`Plugins[0]` must be a map, not text"),
            ("{\"CustomAnnotations\": {\"a\": 1}}", 1, 29, "`CustomAnnotations.a`"),
            ("{\"AggregatorTolerations\": [{\"effect\": \"Never\"}]}", 1, 28, "one of NoSchedule, NoExecute"),
            ("{\"AggregatorTolerations\": [{\"operator\": \"In\"}]}", 1, 28, "one of Equal, Exists"),
            (
                "{\"Redaction\": {\"text\": [\"(\"]}}",
                1,
                25,
                "`Redaction.text[0]`: `(` is not a valid pattern",
            ),
            ("{\"Redaction\": {\"texts\": []}}", 1, 25, "`Redaction.texts` is not a rule"),
            ("{\"Limits\": {\"PodLogs\": {\"SinceTime\": \"x\"}}}", 1, 38, "is not a time"),
            ("{\"Filters\": {\"Namespaces\": \"(\"}}", 1, 28, "`Filters.Namespaces`"),
            (
                "{\"Limits\": {\"PodLogs\": {\"SinceTime\": \"2020-01-01T00:00:00Z\", \"SinceSeconds\": 1}}}",
                1,
                1,
                "both SinceSeconds and SinceTime",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.message.contains(words), "{text}: {error}");
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        }
    }
}
