//! Checks a plugin before use: valid names, and readable files in its config map.

use std::collections::HashSet;

use anyhow::{Result, bail};

use super::{Definition, DriverKind, RESERVED, RESULT_FORMATS, is_junit};
use crate::names::is_label;
use base::yaml;

/// Maximum length of a label value, which contains the plugin's name.
const MAX_LABEL: usize = 63;
/// Maximum length of a name with a config map: the volume `sonobuoy-<name>-vol` must be a DNS label.
const MAX_CONFIG_MAP_NAME: usize = 50;

/// Checks one definition.
pub(crate) fn check(definition: &Definition) -> Result<()> {
    check_name_of(definition)?;
    check_content(definition)
}

/// Checks everything but the name, which can be overridden.
pub(crate) fn check_content(definition: &Definition) -> Result<()> {
    let (name, format) = (definition.name(), &*definition.config.result_format);
    if !format.is_empty() && !RESULT_FORMATS.contains(&format) {
        bail!("plugin `{name}`: unknown result format `{format}`; use one of {}", RESULT_FORMATS.join(", "));
    }
    for (file, text) in &definition.config_map {
        // JSON is YAML, so one parser reads both, as in the original.
        let is_yaml = [".json", ".yaml", ".yml"].iter().any(|end| file.ends_with(end));
        if is_yaml && let Err(error) = yaml::document(text) {
            bail!("plugin `{name}`: `{file}` in its config-map, {error}");
        }
    }
    Ok(())
}

/// Checks that the name of a definition works in Kubernetes: an RFC 1123 subdomain that fits into a label, and not the
/// reserved one.
pub(crate) fn check_name_of(definition: &Definition) -> Result<()> {
    let name = definition.name();
    if name.is_empty() {
        bail!("a plugin has no name; set `plugin-name` in `sonobuoy-config`");
    }
    if name == RESERVED {
        bail!("`{RESERVED}` is reserved; choose another `plugin-name`");
    }
    if name.len() > MAX_LABEL {
        bail!(
            "plugin name `{name}` has {} characters, but a Kubernetes label allows only {MAX_LABEL}",
            name.len()
        );
    }
    if !name.split('.').all(is_label) {
        bail!(
            "plugin name `{name}` cannot be used in Kubernetes: only a-z, 0-9, `-` and `.`, starting and \
             ending with a letter or digit"
        );
    }
    if !definition.config_map.is_empty() && (name.contains('.') || name.len() > MAX_CONFIG_MAP_NAME) {
        bail!(
            "plugin `{name}` has a config-map, so its name may have no `.` and at most {MAX_CONFIG_MAP_NAME} \
             characters: it becomes part of a volume's name"
        );
    }
    Ok(())
}

/// Checks definitions that will run together.
pub(crate) fn check_all(definitions: &[Definition]) -> Result<()> {
    let mut seen = HashSet::new();
    for definition in definitions {
        check(definition)?;
        let name = definition.name();
        if !seen.insert(name) {
            bail!("two plugins are called `{name}`; leave one out, or rename one with `-p FILE@newname`");
        }
    }
    definitions.iter().try_for_each(|definition| check_part(definition, definitions))
}

/// Checks that a part of another plugin's results is valid.
fn check_part(definition: &Definition, all: &[Definition]) -> Result<()> {
    let Some(whole) = &definition.config.part_of else { return Ok(()) };
    let name = definition.name();
    let Some(of) = all.iter().find(|other| other.name() == whole && other.name() != name) else {
        bail!("plugin `{name}` is part of `{whole}`, which is not a plugin of this run; add it with `-p`");
    };
    for (one, definition) in [(name, definition), (whole, of)] {
        let config = &definition.config;
        if config.driver != DriverKind::Job || !is_junit(&config.result_format) {
            bail!("plugin `{name}` is part of `{whole}`: `{one}` must be a Job with results in JUnit");
        }
    }
    if of.config.part_of.is_some() {
        bail!("plugin `{name}` is part of `{whole}`, which is itself part of another one");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::DriverKind;
    use super::*;
    use base::json::json;

    fn plugin(name: &str, files: &[(&str, &str)]) -> Definition {
        let mut definition = Definition::new(name, DriverKind::Job, json!({"name": "plugin"}));
        definition.config_map = files.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        definition
    }

    #[test]
    fn names_follow_kubernetes() {
        let long = "a".repeat(64);
        for name in ["e2e", "systemd-logs", "05-openshift-upgrade", "a.b", "x"] {
            check(&plugin(name, &[])).expect(name);
        }
        for (name, words) in [
            ("", "no name"),
            ("sonobuoy", "reserved"),
            ("systemd_logs", "cannot be used"),
            ("E2E", "cannot be used"),
            ("-a", "cannot be used"),
            ("a-", "cannot be used"),
            ("a..b", "cannot be used"),
            ("a b", "cannot be used"),
            ("ä", "cannot be used"),
            (long.as_str(), "64 characters"),
        ] {
            let error = check(&plugin(name, &[])).expect_err(name).to_string();
            assert!(error.contains(words), "{name}: {error}");
        }
    }

    #[test]
    fn config_map_files_are_readable() {
        check(&plugin("p", &[("a.yaml", "#@ x\n---\na: 1\n"), ("b.json", "{\"a\": 1}"), ("c.txt", "{")]))
            .unwrap();
        for (file, text) in [("a.yaml", "a: b: c"), ("a.yml", "["), ("a.json", "{")] {
            let error = check(&plugin("p", &[(file, text)])).expect_err(file).to_string();
            assert!(error.contains(&format!("`{file}` in its config-map, line ")), "{error}");
        }
        assert!(check(&plugin("a.b", &[("c.txt", "")])).is_err(), "a volume's name has no dot");
        assert!(
            check(&plugin(&"a".repeat(51), &[("c.txt", "")])).is_err(),
            "a volume's name has 63 characters"
        );
    }

    #[test]
    fn results_have_a_known_format() {
        let with = |format: &str| {
            let mut plugin = plugin("p", &[]);
            plugin.config.result_format = format.into();
            check(&plugin)
        };
        for format in ["", "raw", "junit", "e2e", "gojson", "manual"] {
            with(format).unwrap();
        }
        for format in ["xml", "JUnit", "junit "] {
            let error = format!("{:#}", with(format).expect_err(format));
            assert!(error.starts_with("plugin `p`: unknown result format `"), "{error}");
            assert!(error.ends_with("use one of raw, junit, gojson, manual, e2e"), "{error}");
        }
    }

    #[test]
    fn names_are_unique() {
        let twice = [plugin("a", &[]), plugin("a", &[])];
        assert!(check_all(&twice).unwrap_err().to_string().contains("two plugins are called `a`"));
        check_all(&[plugin("a", &[]), plugin("b", &[])]).unwrap();
    }
}
