//! Configuration files laid over settings, as Go does it: keys in any case, unknown ones ignored, lists replaced, maps
//! merged; null empties lists and optional values and leaves all else.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Field, Grace, Identity, PodLogs, Redaction, Results, Run, Selection, Server};
use base::clock;
use base::pattern;
use base::yaml::{self, Content, Error, Node};

/// Lays a file over settings.
pub(super) fn overlay(run: &mut Run, text: &str) -> Result<(), Error> {
    let whole = yaml::json(text)?;
    each("", &whole, |key, path, node| match key {
        "description" => set_text(&mut run.description, path, node),
        "uuid" => set_text(&mut run.uuid, path, node),
        "version" => set_text(&mut run.version, path, node),
        "resultsdir" => set_text(&mut run.results_dir, path, node),
        "querydir" => set_text(&mut run.query_dir, path, node),
        "resources" => set_texts(&mut run.resources, path, node),
        "filters" => each(path, node, |key, path, node| match key {
            "namespaces" => set_pattern(&mut run.filters.namespaces, path, node),
            "labelselector" => set_text(&mut run.filters.label_selector, path, node),
            _ => Ok(()),
        }),
        "limits" => each(path, node, |key, path, node| match key {
            "podlogs" => pod_logs(&mut run.limits.pod_logs, path, node),
            "results" => results(&mut run.limits.results, path, node),
            "snapshot" => each(path, node, |key, path, node| match key {
                "time" => set_span(&mut run.limits.snapshot.time, path, node),
                _ => Err(node.place.error(format!("`{path}` is not a limit; there is Time"))),
            }),
            _ => Ok(()),
        }),
        "qps" => set_float(&mut run.qps, path, node),
        "burst" => set_integer(&mut run.burst, path, node),
        "server" => server(&mut run.server, path, node),
        "plugins" => set_selections(&mut run.plugins, path, node),
        "pluginsearchpath" => set_texts(&mut run.plugin_search_path, path, node),
        "namespace" => set_text(&mut run.namespace, path, node),
        "skipplugins" => set_flag(&mut run.skip_plugins, path, node),
        "workerimage" => set_text(&mut run.worker_image, path, node),
        "imagepullpolicy" => set_text(&mut run.image_pull_policy, path, node),
        "forceimagepullpolicy" => set_flag(&mut run.force_image_pull_policy, path, node),
        "imagepullsecrets" => set_text(&mut run.image_pull_secrets, path, node),
        "customannotations" => set_map(&mut run.custom_annotations, path, node, set_text),
        "aggregatorpermissions" => set_text(&mut run.aggregator_permissions, path, node),
        "aggregatortolerations" => set_tolerations(&mut run.aggregator_tolerations, path, node),
        "serviceaccountname" => set_text(&mut run.service_account_name, path, node),
        "existingserviceaccount" => set_flag(&mut run.existing_service_account, path, node),
        "e2edockerconfigfile" => set_text(&mut run.e2e_docker_config_file, path, node),
        "namespacepsaenforcelevel" => set_text(&mut run.namespace_psa_enforce_level, path, node),
        "progressupdatesport" => set_text(&mut run.progress_updates_port, path, node),
        "securitycontextmode" => set_text(&mut run.security_context_mode, path, node),
        "graces" => graces(&mut run.graces, path, node),
        "plugintimeouts" => set_map(&mut run.plugin_timeouts, path, node, set_span),
        "redaction" => redaction(&mut run.redaction, path, node),
        "identity" => set_identity(&mut run.identity, path, node),
        "pluginaccounts" => set_flag(&mut run.plugin_accounts, path, node),
        _ => Ok(()),
    })?;
    let logs = &run.limits.pod_logs;
    if logs.since_seconds.is_some() && logs.since_time.is_some() {
        let words = "`Limits.PodLogs` has both SinceSeconds and SinceTime; leave one out";
        return Err(whole.place.error(words));
    }
    Ok(())
}

fn set_identity(slot: &mut Identity, path: &str, node: &Node) -> Result<(), Error> {
    let mut text = String::new();
    set_text(&mut text, path, node)?;
    if !text.is_empty() {
        let words = || node.place.error(format!("`{path}` is `{text}`; write node, plugin or auto"));
        *slot = Identity::parse(&text).ok_or_else(words)?;
    }
    Ok(())
}

fn pod_logs(logs: &mut PodLogs, path: &str, node: &Node) -> Result<(), Error> {
    each(path, node, |key, path, node| match key {
        "namespaces" => set_pattern(&mut logs.namespaces, path, node),
        "sonobuoynamespace" => set_optional(&mut logs.sonobuoy_namespace, path, node, set_flag),
        "fieldselectors" => set_texts(&mut logs.field_selectors, path, node),
        "labelselector" => set_text(&mut logs.label_selector, path, node),
        "previous" => set_flag(&mut logs.previous, path, node),
        "sinceseconds" => set_optional(&mut logs.since_seconds, path, node, set_integer),
        "sincetime" => set_optional(&mut logs.since_time, path, node, set_time),
        "timestamps" => set_flag(&mut logs.timestamps, path, node),
        "taillines" => set_optional(&mut logs.tail_lines, path, node, set_integer),
        "limitbytes" => set_optional(&mut logs.limit_bytes, path, node, set_integer),
        _ => Ok(()),
    })
}

fn results(limits: &mut Results, path: &str, node: &Node) -> Result<(), Error> {
    each(path, node, |key, path, node| match key {
        "bytes" => set_count(&mut limits.bytes, path, node),
        "unpackedbytes" => set_count(&mut limits.unpacked_bytes, path, node),
        "entries" => set_count(&mut limits.entries, path, node),
        "freebytes" => set_count(&mut limits.free_bytes, path, node),
        // A limit that is not known would be one that does not hold.
        _ => {
            let words =
                format!("`{path}` is not a limit; there are Bytes, UnpackedBytes, Entries and FreeBytes");
            Err(node.place.error(words))
        }
    })
}

fn server(server: &mut Server, path: &str, node: &Node) -> Result<(), Error> {
    each(path, node, |key, path, node| match key {
        "bindaddress" => set_text(&mut server.bind_address, path, node),
        "bindport" => {
            set_integer(&mut server.bind_port, path, node)?;
            if (0..=65535).contains(&server.bind_port) {
                Ok(())
            } else {
                Err(node.place.error(format!("`{path}` is {}, a port is at most 65535", server.bind_port)))
            }
        }
        "advertiseaddress" => set_text(&mut server.advertise_address, path, node),
        "timeoutseconds" => set_integer(&mut server.timeout_seconds, path, node),
        "statusport" => set_integer(&mut server.status_port, path, node),
        _ => Ok(()),
    })
}

fn graces(grace: &mut Grace, path: &str, node: &Node) -> Result<(), Error> {
    each(path, node, |key, path, node| {
        match key {
        "unschedulable" => set_span(&mut grace.unschedulable, path, node),
        "imagepull" => set_span(&mut grace.image_pull, path, node),
        "creation" => set_span(&mut grace.creation, path, node),
        "terminated" => set_span(&mut grace.terminated, path, node),
        "restarts" => set_count(&mut grace.restarts, path, node),
        "ended" => set_span(&mut grace.ended, path, node),
        "nopod" => set_span(&mut grace.no_pod, path, node),
        "nodelost" => set_span(&mut grace.node_lost, path, node),
        // A grace that is not known would be one that is not kept.
        _ => Err(node.place.error(format!(
            "`{path}` is not a grace; there are Unschedulable, ImagePull, Creation, Terminated, Restarts, Ended, NoPod and NodeLost"
        ))),
    }
    })
}

fn redaction(rules: &mut Redaction, path: &str, node: &Node) -> Result<(), Error> {
    if node.is_null() {
        *rules = Redaction::default();
    }
    each(path, node, |key, path, node| match key {
        "off" => set_flag(&mut rules.off, path, node),
        _ => rule(rules, key, path, node),
    })
}

/// Reads a file of rules, which can only hide more.
pub(super) fn rules(text: &str) -> Result<Redaction, Error> {
    let whole = yaml::document(text)?;
    if !matches!(whole.content, Content::Map(_)) {
        return Err(wrong("the rules", &whole, "an object"));
    }
    let mut rules = Redaction::default();
    each("", &whole, |key, path, node| rule(&mut rules, key, path, node))?;
    Ok(rules)
}

fn rule(rules: &mut Redaction, key: &str, path: &str, node: &Node) -> Result<(), Error> {
    let patterns = || {
        let read = list(path, node, |path, item| {
            let mut text = String::new();
            set_pattern(&mut text, path, item)?;
            if key == "text" && pattern::compile(&text).is_ok_and(|pattern| pattern.is_match("")) {
                let words = format!("`{path}`: `{text}` matches the empty text, thus everything");
                return Err(item.place.error(words));
            }
            Ok(text)
        });
        read.map(Option::unwrap_or_default)
    };
    match key {
        "env" => rules.env = patterns()?,
        "text" => rules.text = patterns()?,
        "fields" => {
            rules.fields = list(path, node, |path, item| {
                let mut field = Field { kind: String::new(), path: String::new() };
                each(path, item, |key, path, node| match key {
                    "kind" => set_text(&mut field.kind, path, node),
                    "path" => set_text(&mut field.path, path, node),
                    _ => Ok(()),
                })?;
                if field.kind.is_empty() || field.path.is_empty() {
                    return Err(item.place.error(format!("`{path}` needs a kind and a path")));
                }
                Ok(field)
            })?
            .unwrap_or_default();
        }
        // A rule that is not known would be one that hides nothing.
        _ => return Err(node.place.error(format!("`{path}` is not a rule; there are env, text and fields"))),
    }
    Ok(())
}

/// Calls `entry` with each key of a map, in lower case, its path as written, and its value; null has no entries.
fn each(
    path: &str,
    node: &Node,
    mut entry: impl FnMut(&str, &str, &Node) -> Result<(), Error>,
) -> Result<(), Error> {
    match &node.content {
        Content::Null => Ok(()),
        Content::Map(entries) => entries.iter().try_for_each(|(key, value)| {
            let path = if path.is_empty() { key.text.clone() } else { format!("{path}.{}", key.text) };
            entry(&key.text.to_ascii_lowercase(), &path, value)
        }),
        _ => Err(wrong(if path.is_empty() { "the configuration" } else { path }, node, "an object")),
    }
}

fn set_text(field: &mut String, path: &str, node: &Node) -> Result<(), Error> {
    match &node.content {
        Content::Null => {}
        Content::Text(text) => field.clone_from(text),
        _ => return Err(wrong(path, node, "text in quotes")),
    }
    Ok(())
}

fn set_pattern(field: &mut String, path: &str, node: &Node) -> Result<(), Error> {
    set_text(field, path, node)?;
    pattern::compile(field).map(drop).map_err(|error| node.place.error(format!("`{path}`: {error}")))
}

fn set_time(field: &mut String, path: &str, node: &Node) -> Result<(), Error> {
    set_text(field, path, node)?;
    let Some(time) = clock::parse_rfc3339(field) else {
        return Err(node.place.error(format!("`{path}` is not a time; write it as 2006-01-02T15:04:05Z")));
    };
    // Kubernetes writes and takes whole seconds in UTC.
    let text = clock::rfc3339(time);
    *field = format!("{}Z", text.split('.').next().unwrap_or_default().trim_end_matches('Z'));
    Ok(())
}

fn set_span(field: &mut Duration, path: &str, node: &Node) -> Result<(), Error> {
    match &node.content {
        Content::Null => Ok(()),
        Content::Text(text) => match clock::parse_duration(text) {
            Some(span) => {
                *field = span;
                Ok(())
            }
            None => {
                Err(node.place.error(format!("`{path}` is not a duration; write it as 90s, 5m or 1h30m")))
            }
        },
        _ => Err(wrong(path, node, "a duration in quotes, as in \"5m\"")),
    }
}

fn set_flag(field: &mut bool, path: &str, node: &Node) -> Result<(), Error> {
    match &node.content {
        Content::Null => {}
        Content::Bool(flag) => *field = *flag,
        _ => return Err(wrong(path, node, "true or false without quotes")),
    }
    Ok(())
}

fn set_integer(field: &mut i64, path: &str, node: &Node) -> Result<(), Error> {
    match &node.content {
        Content::Null => {}
        Content::Number(number) if number.is_i64() => *field = number.as_i64().unwrap_or_default(),
        _ => return Err(wrong(path, node, "a whole number without quotes")),
    }
    Ok(())
}

fn set_count(field: &mut u64, path: &str, node: &Node) -> Result<(), Error> {
    let mut count = i64::try_from(*field).unwrap_or(i64::MAX);
    set_integer(&mut count, path, node)?;
    *field = u64::try_from(count)
        .map_err(|_| node.place.error(format!("`{path}` is {count}, it cannot be negative")))?;
    Ok(())
}

fn set_float(field: &mut f64, path: &str, node: &Node) -> Result<(), Error> {
    match &node.content {
        Content::Null => {}
        Content::Number(number) => *field = number.as_f64().unwrap_or_default(),
        _ => return Err(wrong(path, node, "a number without quotes")),
    }
    Ok(())
}

fn set_optional<T: Default>(
    field: &mut Option<T>,
    path: &str,
    node: &Node,
    set: impl FnOnce(&mut T, &str, &Node) -> Result<(), Error>,
) -> Result<(), Error> {
    *field = if node.is_null() {
        None
    } else {
        let mut value = T::default();
        set(&mut value, path, node)?;
        Some(value)
    };
    Ok(())
}

fn set_texts(field: &mut Option<Vec<String>>, path: &str, node: &Node) -> Result<(), Error> {
    *field = list(path, node, |path, item| {
        let mut text = String::new();
        set_text(&mut text, path, item).map(|()| text)
    })?;
    Ok(())
}

fn set_selections(field: &mut Option<Vec<Selection>>, path: &str, node: &Node) -> Result<(), Error> {
    *field = list(path, node, |path, item| {
        let mut name = String::new();
        each(
            path,
            item,
            |key, path, node| if key == "name" { set_text(&mut name, path, node) } else { Ok(()) },
        )?;
        Ok(Selection { name })
    })?;
    Ok(())
}

fn set_map<T: Default>(
    field: &mut BTreeMap<String, T>,
    path: &str,
    node: &Node,
    set: impl Fn(&mut T, &str, &Node) -> Result<(), Error>,
) -> Result<(), Error> {
    if node.is_null() {
        field.clear();
    }
    let Content::Map(entries) = &node.content else { return each(path, node, |_, _, _| Ok(())) };
    for (key, value) in entries {
        let mut entry = T::default();
        set(&mut entry, &format!("{path}.{}", key.text), value)?;
        field.insert(key.text.clone(), entry);
    }
    Ok(())
}

fn set_tolerations(field: &mut Vec<BTreeMap<String, String>>, path: &str, node: &Node) -> Result<(), Error> {
    *field = list(path, node, |path, item| {
        let mut toleration = BTreeMap::new();
        set_map(&mut toleration, path, item, set_text)?;
        for (key, value) in &toleration {
            let known: &[&str] = match key.as_str() {
                "key" | "value" => continue,
                "effect" => &["NoSchedule", "NoExecute", "PreferNoSchedule", ""],
                "operator" => &["Equal", "Exists", ""],
                // The original keeps it and makes nothing of it.
                _ => {
                    log::warn!("`{path}.{key}` has no effect; a toleration has key, value, effect, operator");
                    continue;
                }
            };
            if !known.contains(&value.as_str()) {
                let known = known.split_last().map_or(known, |(_, rest)| rest).join(", ");
                return Err(item.place.error(format!("`{path}.{key}` is `{value}`, it is one of {known}")));
            }
        }
        Ok(toleration)
    })?
    .unwrap_or_default();
    Ok(())
}

fn list<T>(
    path: &str,
    node: &Node,
    mut item: impl FnMut(&str, &Node) -> Result<T, Error>,
) -> Result<Option<Vec<T>>, Error> {
    match &node.content {
        Content::Null => Ok(None),
        Content::List(items) => {
            let read = items.iter().enumerate().map(|(at, node)| item(&format!("{path}[{at}]"), node));
            read.collect::<Result<_, _>>().map(Some)
        }
        _ => Err(wrong(path, node, "a list")),
    }
}

fn wrong(path: &str, node: &Node, needed: &str) -> Error {
    let kind = if node.kind() == "a map" { "an object" } else { node.kind() };
    node.place.error(format!("`{path}` is {kind}, {needed} is needed"))
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
    fn every_key_is_read_in_any_case_and_laid_over_the_defaults() {
        let text = r#"{
            "description": "d", "UUID": "u", "VERSION": "v", "resultsDir": "/r", "QueryDir": "/q", "Resources": [],
            "filters": {"namespaces": "[^\\w-.]+"},
            "Limits": {"podlogs": {"SonobuoyNamespace": null, "FieldSelectors": null, "SinceTime": "2020-01-01T02:00:00+02:00",
                "TailLines": 5, "LimitBytes": 6, "Previous": true, "Timestamps": true, "LimitSize": "", "LimitTime": ""},
                "results": {"BYTES": 1, "unpackedBytes": 2, "Entries": 3}, "Snapshot": {"time": "90s"}},
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
            r#""Results":{"Bytes":1,"UnpackedBytes":2,"Entries":3,"FreeBytes":67108864},"Snapshot":{"Time":"1m30s"}},"QPS":0.5,"#,
            r#""Server":{"bindaddress":"0.0.0.0","bindport":443,"advertiseaddress":"","timeoutseconds":0},"#,
            r#""Plugins":[{"name":"e2e"}],"PluginSearchPath":null,"Namespace":"n","SkipPlugins":true,"WorkerImage":"w","#,
            r#""ImagePullPolicy":"IfNotPresent","ForceImagePullPolicy":true,"ImagePullSecrets":"","#,
            r#""CustomAnnotations":{"A":"b"},"AggregatorPermissions":"clusterAdmin","#,
            r#""AggregatorTolerations":[{"key":"k","operator":"Exists"}],"ServiceAccountName":"sonobuoy-serviceaccount","#,
            r#""ExistingServiceAccount":true,"E2EDockerConfigFile":"f","ProgressUpdatesPort":"1","SecurityContextMode":"nonroot","#,
            r#""Graces":{"Unschedulable":"5m0s","ImagePull":"10s","Creation":"1m0s","Terminated":"5m0s","Restarts":0,"#,
            r#""Ended":"10s","NoPod":"1m0s","NodeLost":"5m0s"},"PluginTimeouts":{"e2e":"2h0m0s","p":"1m30s"},"#,
            r#""Redaction":{"Env":["_PIN$"],"Fields":[{"Kind":"Pod","Path":"spec.*"}]}}"#,
        );
        let run = read(text).unwrap();
        assert_eq!(run.to_json(), expected);
        let mut again = Run::empty();
        again.overlay(expected).unwrap();
        assert_eq!(again, run, "what is written is read back where absent means zero");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, line, column, words) in [
            ("", 1, 1, "nothing there"),
            ("{\n\"UUID\": }", 2, 9, "expected value"),
            ("[]", 1, 1, "`the configuration` is a list, an object is needed"),
            ("{\"uuid\": 3}", 1, 10, "`uuid` is a number, text in quotes is needed"),
            (
                "{\"Server\":\n {\"bindport\": \"80\"}}",
                2,
                15,
                "`Server.bindport` is text, a whole number without quotes",
            ),
            ("{\"Server\": {\"bindport\": 70000}}", 1, 25, "at most 65535"),
            ("{\"Burst\": 1.5}", 1, 11, "a whole number"),
            ("{\"Graces\": {\"ImagePull\": 5}}", 1, 26, "a duration in quotes"),
            ("{\"Graces\": {\"Image\": \"5m\"}}", 1, 22, "`Graces.Image` is not a grace"),
            ("{\"Graces\": {\"Restarts\": -1}}", 1, 25, "cannot be negative"),
            ("{\"Limits\": {\"Results\": {\"Byte\": 1}}}", 1, 33, "`Limits.Results.Byte` is not a limit"),
            ("{\"Limits\": {\"Snapshot\": {\"times\": 1}}}", 1, 35, "`Limits.Snapshot.times` is not a limit"),
            ("{\"PluginTimeouts\": {\"p\": \"soon\"}}", 1, 26, "`PluginTimeouts.p` is not a duration"),
            ("{\"QPS\": \"fast\"}", 1, 9, "a number without quotes"),
            ("{\"SkipPlugins\": \"true\"}", 1, 17, "without quotes"),
            ("{\"Resources\": \"pods\"}", 1, 15, "a list is needed"),
            ("{\"Resources\": [1]}", 1, 16, "`Resources[0]`"),
            ("{\"Plugins\": [\"e2e\"]}", 1, 14, "`Plugins[0]` is text, an object is needed"),
            ("{\"CustomAnnotations\": {\"a\": 1}}", 1, 29, "`CustomAnnotations.a`"),
            ("{\"AggregatorTolerations\": [{\"effect\": \"Never\"}]}", 1, 28, "one of NoSchedule, NoExecute"),
            ("{\"AggregatorTolerations\": [{\"operator\": \"In\"}]}", 1, 28, "one of Equal, Exists"),
            ("{\"Redaction\": {\"text\": [\"(\"]}}", 1, 25, "`Redaction.text[0]`: `(` is not a pattern"),
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
