//! Loads the aggregator's configuration: candidate files, the meaning of missing keys, and the advertised address.
//!
//! As in the original, a missing key means zero, except where zero would only break the run (no port, no results folder,
//! no search path): those get the default.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Run;
use crate::names::{VERSION, env};
use base::at::At as _;

/// The system's file, the second candidate.
const SYSTEM: &str = "/etc/sonobuoy/config.json";
/// The file in the working directory.
const LOCAL: &str = "config.json";

/// The aggregator's environment.
pub(crate) struct Environment<'e> {
    /// An environment variable's value, if it is set.
    pub variable: &'e dyn Fn(&str) -> Option<String>,
    /// The machine's name.
    pub host_name: Option<String>,
}

/// Loads the aggregator's configuration: `$SONOBUOY_CONFIG` if set, else `config.json` here, else the system's.
pub(crate) fn load(environment: &Environment) -> Result<Run> {
    let candidates = match (environment.variable)("SONOBUOY_CONFIG").filter(|path| !path.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => vec![PathBuf::from(LOCAL), PathBuf::from(SYSTEM)],
    };
    let (path, text) = first(&candidates)?;
    let mut run = Run::default();
    run.overlay(&text).at("configuration", path)?;
    complete(&mut run, environment);
    Ok(run)
}

/// The first file that exists.
fn first(candidates: &[PathBuf]) -> Result<(&Path, String)> {
    for path in candidates {
        if let Some(text) = base::found(std::fs::read_to_string(path)).at("cannot read", path)? {
            return Ok((path, text));
        }
    }
    let names: Vec<_> = candidates.iter().map(|path| format!("`{}`", path.display())).collect();
    anyhow::bail!("no configuration: there is no {}; set SONOBUOY_CONFIG to one", names.join(" and no "))
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
        (&mut run.progress_updates_port, default.progress_updates_port),
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
    if run.uuid.is_empty() {
        run.uuid = new_uuid();
    }
    let told = &run.server.advertise_address;
    if told.is_empty() {
        run.server.advertise_address = advertised(run.server.bind_port, environment);
    } else if told.parse::<Ipv6Addr>().is_ok() {
        // The address becomes part of URLs.
        run.server.advertise_address = format!("[{told}]");
    }
}

/// The address for workers: the pod's, else the machine's name. Only IPv6 gets brackets.
fn advertised(port: i64, environment: &Environment) -> String {
    match (environment.variable)(env::ADVERTISE_IP).filter(|ip| !ip.is_empty()) {
        Some(ip) if ip.parse::<Ipv6Addr>().is_ok() => format!("[{ip}]:{port}"),
        Some(host) => format!("{host}:{port}"),
        None => match &environment.host_name {
            Some(host) if !host.is_empty() => format!("{host}:{port}"),
            _ => String::new(),
        },
    }
}

/// Whether a text is a valid ID of a run, which becomes part of the names of files and objects.
pub(crate) fn is_run(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && !id.starts_with('.')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A random UUID, version 4.
pub(crate) fn new_uuid() -> String {
    use ring::rand::SecureRandom;
    let mut bytes = [0_u8; 16];
    // The system's random source does not fail once it has started; TLS would not work without it either.
    let _ = ring::rand::SystemRandom::new().fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = base::hex(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'e>(variable: &'e dyn Fn(&str) -> Option<String>, host: &str) -> Environment<'e> {
        Environment { variable, host_name: Some(host.to_owned()) }
    }

    #[test]
    fn absent_keys_are_zero() {
        let mut run = Run::default();
        run.overlay(r#"{"Server": {"bindport": 443}, "Plugins": [{"name": "a"}], "Filters": {"Namespaces": "[^\\w-.]+"}}"#)
            .unwrap();
        let none = |_: &str| None;
        complete(&mut run, &environment(&none, "pod"));
        assert_eq!(run.server.timeout_seconds, 0, "no limit unless one is given");
        assert_eq!(run.limits.pod_logs.namespaces, "", "no logs unless asked for");
        assert_eq!((run.server.bind_port, run.server.advertise_address.as_str()), (443, "pod:443"));
        assert_eq!((run.results_dir.as_str(), run.burst), ("/tmp/sonobuoy/results", 50));
        assert_eq!((run.uuid.len(), run.uuid.as_bytes()[14]), (36, b'4'));
        assert_ne!(run.uuid, new_uuid());
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
        let missing = |name: &str| (name == "SONOBUOY_CONFIG").then(|| "/nonexistent/c.json".to_owned());
        let error = format!("{:#}", load(&environment(&missing, "pod")).unwrap_err());
        assert!(error.contains("there is no `/nonexistent/c.json`"), "{error}");
        let folder = |name: &str| (name == "SONOBUOY_CONFIG").then(|| "/".to_owned());
        let error = format!("{:#}", load(&environment(&folder, "pod")).unwrap_err());
        assert!(error.contains("cannot read `/`"), "{error}");
    }
}
