//! Definitions built into the program: those in plugins.d.

use super::{Definition, DriverKind, read};
use crate::names::OWN_IMAGE;

/// The end-to-end tests of Kubernetes.
pub const E2E: &str = "e2e";
/// The journal of every node. The name means the original's plugin, since manifests are compared
/// with the original's.
pub const SYSTEMD_LOGS: &str = "systemd-logs";
/// The same, in the image of this program.
pub const SYSTEMD_LOGS_NATIVE: &str = "systemd-logs-native";
/// A greeting: the smallest plugin.
pub const HELLO: &str = "hello";
/// The facts of every node.
pub const HOST_FACTS: &str = "host-facts";
/// What every node reaches.
pub const NETWORK: &str = "network";

/// Default plugins of a run.
pub const DEFAULT: &[&str] = &[E2E, SYSTEMD_LOGS];

/// Path of this program in its image.
pub const OWN_PROGRAM: &str = "/sonobuoy";

const SOURCES: &[(&str, &str)] = &[
    (E2E, include_str!("../../../plugins.d/e2e.yaml")),
    (
        SYSTEMD_LOGS,
        include_str!("../../../plugins.d/systemd-logs-original.yaml"),
    ),
    (HELLO, include_str!("../../../plugins.d/hello.yaml")),
    (
        HOST_FACTS,
        include_str!("../../../plugins.d/host-facts.yaml"),
    ),
    (NETWORK, include_str!("../../../plugins.d/network.yaml")),
    (
        SYSTEMD_LOGS_NATIVE,
        include_str!("../../../plugins.d/systemd-logs.yaml"),
    ),
];

/// Examples of plugins, by programming language.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "shell",
        include_str!("../../../plugins.d/examples/shell.yaml"),
    ),
    (
        "python",
        include_str!("../../../plugins.d/examples/python.yaml"),
    ),
    ("go", include_str!("../../../plugins.d/examples/go.yaml")),
    (
        "rust",
        include_str!("../../../plugins.d/examples/rust.yaml"),
    ),
];
/// Languages with an example.
pub const LANGUAGES: &[&str] = &["shell", "python", "go", "rust"];

/// Prefix of an example's lines that only apply to a DaemonSet.
const DAEMON_SET_ONLY: &str = "#| ";

/// A definition that runs unchanged, with its comments, under its own name or under `name`.
pub fn example(language: &str, name: Option<&str>, driver: DriverKind) -> Option<String> {
    let (_, text) = EXAMPLES.iter().find(|(known, _)| *known == language)?;
    let mut text = (*text).to_owned();
    if let Some(name) = name {
        text = text.replacen(&format!("example-{language}\n"), &format!("{name}\n"), 1);
    }
    if driver == DriverKind::DaemonSet {
        text = text
            .replacen("driver: Job\n", "driver: DaemonSet\n", 1)
            .lines()
            // In the printed text, comments on the choice are moot.
            .filter(|line| !line.contains("--type DaemonSet"))
            .map(|line| line.replacen(DAEMON_SET_ONLY, "", 1) + "\n")
            .collect();
    }
    Some(text)
}

/// Names of all built-in definitions.
pub fn names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(name, _)| *name)
}

/// The built-in definition of that name.
pub fn named(name: &str) -> Option<Definition> {
    let (_, text) = SOURCES.iter().find(|(known, _)| *known == name)?;
    // A test reads all definitions.
    let mut definition = read(text).ok()?.definition;
    name.clone_into(&mut definition.config.plugin_name);
    Some(definition)
}

/// A replacement of the built-in definition of that name that uses only this program's image.
pub fn without_image(name: &str) -> Option<Definition> {
    let mut definition = named(SYSTEMD_LOGS_NATIVE).filter(|_| name == SYSTEMD_LOGS)?;
    name.clone_into(&mut definition.config.plugin_name);
    Some(definition)
}

/// Runs a plugin of this program's image in pods that end with its result, instead of those of a
/// DaemonSet, which sleep.
pub fn end_with_result(definition: &mut Definition) {
    let is_own =
        definition.config.driver == DriverKind::DaemonSet && definition.spec["image"] == OWN_IMAGE;
    let Some(command) = definition.spec["command"].as_array_mut().filter(|_| is_own) else {
        return;
    };
    let words = command.len();
    if command
        .first()
        .is_some_and(|program| program == OWN_PROGRAM)
    {
        command.retain(|word| word != "--sleep=-1");
    }
    if command.len() < words {
        definition.config.set_driver(DriverKind::Nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_plugins_need_not_sleep() {
        for (name, driver) in [
            ("host-facts", DriverKind::Nodes),
            (SYSTEMD_LOGS, DriverKind::DaemonSet),
            (E2E, DriverKind::Job),
        ] {
            let mut definition = named(name).unwrap();
            end_with_result(&mut definition);
            assert_eq!(definition.config.driver, driver, "{name}");
            assert!(
                !definition.spec.to_string().contains("--sleep") || driver != DriverKind::Nodes,
                "{name}"
            );
            assert!(
                definition
                    .to_yaml()
                    .contains(&format!("driver: {}", driver.name())),
                "{name}"
            );
        }
    }

    #[test]
    fn examples_are_valid_under_any_name() {
        assert!(
            EXAMPLES
                .iter()
                .map(|(language, _)| *language)
                .eq(LANGUAGES.iter().copied())
        );
        for language in LANGUAGES {
            for (name, driver, expected) in [
                (None, DriverKind::Job, format!("example-{language}")),
                (Some("mine"), DriverKind::DaemonSet, "mine".into()),
            ] {
                let loaded = read(&example(language, name, driver).unwrap()).unwrap();
                assert_eq!(
                    (loaded.notes.len(), loaded.definition.name()),
                    (0, &*expected),
                    "{language}"
                );
                assert_eq!(loaded.definition.config.driver, driver, "{language}");
                let text = loaded.definition.to_yaml();
                assert_eq!(
                    text.contains(DAEMON_SET_ONLY),
                    driver == DriverKind::Job,
                    "{language}"
                );
                super::super::check(&loaded.definition).unwrap();
            }
        }
    }

    #[test]
    fn built_in_definitions_are_valid_and_named() {
        for (name, text) in SOURCES {
            let loaded = read(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(loaded.notes.len(), 0, "{name}");
            super::super::check(&loaded.definition).unwrap();
            assert_eq!(named(name).unwrap().name(), *name);
        }
        for name in DEFAULT {
            assert!(named(name).is_some(), "{name}");
        }
        assert_eq!(named("none"), None);
    }
}
