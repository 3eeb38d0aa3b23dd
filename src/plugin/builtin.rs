//! The definitions that are part of the program: those in plugins.d.

use super::{Definition, read};

/// The end-to-end tests of Kubernetes.
pub(crate) const E2E: &str = "e2e";
/// The journal of every node. By this name it is the original's, as manifests are compared with those it wrote.
pub(crate) const SYSTEMD_LOGS: &str = "systemd-logs";
/// The same, by our own image.
pub(crate) const SYSTEMD_LOGS_NATIVE: &str = "systemd-logs-native";

/// What a run starts that names no plugin.
pub(crate) const DEFAULT: &[&str] = &[E2E, SYSTEMD_LOGS];

/// Our program in that image.
pub(crate) const OWN_PROGRAM: &str = "/sonobuoy";

const SOURCES: &[(&str, &str)] = &[
    (E2E, include_str!("../../plugins.d/e2e.yaml")),
    (SYSTEMD_LOGS, include_str!("../../plugins.d/systemd-logs-original.yaml")),
    ("host-facts", include_str!("../../plugins.d/host-facts.yaml")),
    ("network", include_str!("../../plugins.d/network.yaml")),
    (SYSTEMD_LOGS_NATIVE, include_str!("../../plugins.d/systemd-logs.yaml")),
];

/// The names of all of them.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(name, _)| *name)
}

/// The built-in definition of that name.
pub(crate) fn named(name: &str) -> Option<Definition> {
    let (_, text) = SOURCES.iter().find(|(known, _)| *known == name)?;
    // A test reads every one of them.
    let mut definition = read(text).ok()?.definition;
    name.clone_into(&mut definition.config.plugin_name);
    Some(definition)
}

/// A definition of ours that does, without an image of others, what the built-in one of that name does.
pub(crate) fn without_image(name: &str) -> Option<Definition> {
    let mut own = named(SYSTEMD_LOGS_NATIVE).filter(|_| name == SYSTEMD_LOGS)?;
    name.clone_into(&mut own.config.plugin_name);
    Some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_can_be_read_and_is_called_as_it_is_asked_for() {
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
