//! Settings of a worker from its environment. Empty equals unset; all missing variables are reported at once.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use crate::names::{self, env};
use base::clock;
use client::protocol::ResultId;
use client::{Access, Retry, env as var};

/// Time for a sidecar to delete the done file again and post-process the plugin's results.
const DONE_DELAY: Duration = Duration::from_secs(5);
/// Grace period after a termination request, as in a pod with a longer one than Kubernetes' default; results often
/// arrive within it.
const GRACE: Duration = Duration::from_secs(60);

/// Whether a worker submits for the cluster or for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One result of the plugin for the whole cluster.
    Global,
    /// One result of the plugin on this node.
    Node,
}

/// Settings of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerSettings {
    /// Address of the aggregator, and credentials.
    pub access: Access,
    /// Result to submit.
    pub id: ResultId,
    /// Directory of the done file.
    pub results_dir: PathBuf,
    /// Mount path of that directory in the plugin's container.
    pub results_mount: Option<PathBuf>,
    /// Whether the done file may name paths outside it.
    pub results_anywhere: bool,
    /// Loopback port for progress; 0 is any free port, `None` no port at all.
    pub progress_port: Option<u16>,
    /// Minimum age of a done file.
    pub done_delay: Duration,
    /// Time limit of a submission with retries.
    pub retry_limit: Duration,
    /// Grace period after a termination request.
    pub grace: Duration,
}

impl WorkerSettings {
    /// Reads the environment through `lookup`.
    pub(crate) fn read(scope: Scope, lookup: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let given = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let (access, mut missing) = match Access::read(given) {
            Ok(access) => (access, Vec::new()),
            Err(missing) => (Access::default(), missing),
        };
        let plugin = given(var::RESULT_TYPE).unwrap_or_default();
        if plugin.is_empty() {
            missing.push(var::RESULT_TYPE);
        }
        let node = given(var::NODE_NAME).unwrap_or_default();
        if scope == Scope::Node && node.is_empty() {
            missing.push(var::NODE_NAME);
        }
        if !missing.is_empty() {
            bail!("not set in the environment: {}", missing.join(", "));
        }
        let duration = |name: &str, default| match given(name) {
            None => default,
            Some(text) => clock::parse_duration(&text).unwrap_or_else(|| {
                log::warn!("{name}: `{text}` is not a duration like `5s`, using {default:?}");
                default
            }),
        };
        Ok(Self {
            access,
            id: match scope {
                Scope::Global => ResultId::global(plugin),
                Scope::Node => ResultId::on_node(plugin, node),
            },
            results_dir: given(env::RESULTS_DIR).unwrap_or_else(|| names::RESULTS_DIR.into()).into(),
            results_mount: given(env::RESULTS_MOUNT).map(PathBuf::from),
            results_anywhere: given(env::RESULTS_ANYWHERE).as_deref() == Some("true"),
            progress_port: match given(env::PROGRESS_PORT) {
                None => Some(names::PROGRESS_PORT),
                Some(text) => text.parse().ok().or_else(|| {
                    log::warn!("{}: `{text}` is not a port, progress is not relayed", env::PROGRESS_PORT);
                    None
                }),
            },
            done_delay: duration(env::DONE_FILE_DELAY, DONE_DELAY),
            retry_limit: duration(env::UPLOAD_LIMIT, Retry::default().limit),
            grace: duration(env::SHUTDOWN_GRACE, GRACE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scope: Scope, pairs: &[(&str, &str)]) -> anyhow::Result<WorkerSettings> {
        WorkerSettings::read(scope, |name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const NEEDED: [(&str, &str); 5] = [
        ("AGGREGATOR_URL", "https://10.0.0.1:8080"),
        ("CA_CERT", "ca"),
        ("CLIENT_CERT", "cert"),
        ("CLIENT_KEY", "key"),
        ("RESULT_TYPE", "e2e"),
    ];

    #[test]
    fn missing_or_empty_settings_are_named_at_once() {
        let error = read(Scope::Node, &[("CA_CERT", "ca"), ("CLIENT_KEY", ""), ("RESULT_TYPE", "")]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "not set in the environment: AGGREGATOR_URL, CLIENT_CERT, CLIENT_KEY, RESULT_TYPE, NODE_NAME"
        );
    }

    #[test]
    fn absent_settings_have_defaults_and_old_names_are_ignored() {
        let mut pairs = NEEDED.to_vec();
        pairs.extend([("RESULTS_DIR", "/old"), ("MASTER_URL", "https://old"), ("SONOBUOY_RESULTS_DIR", "")]);
        let settings = read(Scope::Global, &pairs).unwrap();
        assert_eq!(settings.results_dir, PathBuf::from("/tmp/sonobuoy/results"));
        assert_eq!(settings.progress_port, Some(8099));
        assert_eq!(settings.done_delay, Duration::from_secs(5));
        assert_eq!(settings.id, ResultId::global("e2e"));
        assert_eq!(settings.access.aggregator_url, "https://10.0.0.1:8080");
    }

    #[test]
    fn settings_are_parsed_and_nonsense_falls_back() {
        let mut pairs = NEEDED.to_vec();
        pairs.extend([
            ("NODE_NAME", "node-1"),
            ("SONOBUOY_RESULTS_DIR", "/r"),
            ("SONOBUOY_PROGRESS_PORT", "99999"),
            ("SONOBUOY_DONE_FILE_DELAY", "150ms"),
            ("SONOBUOY_UPLOAD_LIMIT", "soon"),
        ]);
        let settings = read(Scope::Node, &pairs).unwrap();
        assert_eq!(settings.id, ResultId::on_node("e2e", "node-1"));
        assert_eq!(settings.results_dir, PathBuf::from("/r"));
        assert_eq!(settings.progress_port, None);
        assert_eq!(settings.done_delay, Duration::from_millis(150));
        assert_eq!(settings.retry_limit, Duration::from_secs(3600));
    }
}
