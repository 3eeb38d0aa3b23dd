//! The protocol between worker and aggregator: routes, result ids, progress, error reports.
//!
//! Data only, no I/O. `docs/protocol.md` describes the protocol for authors of clients in other
//! languages; change both together.

use std::fmt;
use std::time::Duration;

use crate::{Error, env};
use base::json::{is_default, nullable};
use base::{percent_encoded, visible};
use serde::{Deserialize, Serialize};

/// The node name of a result for the whole cluster.
pub const GLOBAL: &str = "global";
/// The file that a plugin writes into its results folder when finished; contains the path of the
/// result.
pub const DONE_FILE: &str = "done";
/// The only content type whose body is unpacked; it must match exactly.
pub const GZIP: &str = "application/gzip";
/// The name of a result whose sender gives no usable file name.
pub const DEFAULT_FILE_NAME: &str = "result";
/// Marks a PUT as a worker's error report instead of a plugin's result; servers without support
/// store the body as a result.
pub const ERROR_HEADER: &str = "X-Sonobuoy-Error";
/// Digest of the body, RFC 9530: `sha-256=:<base64>:`. Sent by workers, verified, and returned.
pub const DIGEST_HEADER: &str = "Repr-Digest";
/// In a 5xx response: the bytes themselves are invalid, so retrying is useless. The status code is
/// that of older servers.
pub const FINAL_HEADER: &str = "X-Sonobuoy-Final";
/// In a heartbeat: the current problem of the result, percent-encoded, which is not a failure yet.
pub const TROUBLE_HEADER: &str = "X-Sonobuoy-Trouble";
/// In the response to a heartbeat: the maximum bytes of a folder's files.
pub const FOLDER_LIMIT_HEADER: &str = "X-Sonobuoy-Folder-Limit";
/// The path to POST a certificate request to.
pub const CERTIFICATE_PATH: &str = "/api/v1/certificate";
/// In the response to a certificate request: seconds until the next request.
pub const RENEW_HEADER: &str = "X-Sonobuoy-Renew-After";
/// The interval of a worker's heartbeats.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// The name and version of this client. Heartbeats of others never promise another one.
pub const USER_AGENT: &str = concat!("sonobuoy/", env!("CARGO_PKG_VERSION"));
/// In the response to a heartbeat: all other containers of the worker's pod have succeeded, see
/// [`ContainersEnd`].
pub const CONTAINERS_HEADER: &str = "X-Sonobuoy-Containers";
/// The prefix of all routes.
const API: &str = "/api/v1";

/// Identifies a result: of one plugin, on one node or for the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResultId {
    /// The plugin's name.
    pub plugin: String,
    /// The node's name, or [`GLOBAL`].
    pub node: String,
}

impl ResultId {
    /// Read from [`RESULT_URL`](env::RESULT_URL) or [`PROGRESS_URL`](env::PROGRESS_URL), since
    /// `NODE_NAME` is set for plugins that run once, too; else from
    /// [`RESULT_TYPE`](env::RESULT_TYPE) and [`NODE_NAME`](env::NODE_NAME), where no node means
    /// the whole cluster.
    pub fn from_env() -> Result<Self, Error> {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads the same variables through `lookup`; an empty value counts as missing.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let variable = |name: &str| lookup(name).filter(|value| !value.is_empty());
        for name in [env::RESULT_URL, env::PROGRESS_URL] {
            let url = variable(name).and_then(|url| url.parse::<ureq::http::Uri>().ok());
            if let Some(Route::Result(id) | Route::Progress(id)) =
                url.and_then(|url| Route::parse(url.path()))
            {
                return Ok(id);
            }
        }
        let missing =
            || Error::Settings(format!("not set in the environment: {}", env::RESULT_TYPE));
        let plugin = variable(env::RESULT_TYPE).ok_or_else(missing)?;
        Ok(variable(env::NODE_NAME).map_or_else(
            || Self::global(&plugin),
            |node| Self::on_node(&plugin, node),
        ))
    }

    /// The result of `plugin` on `node`.
    pub fn on_node(plugin: impl Into<String>, node: impl Into<String>) -> Self {
        Self {
            plugin: plugin.into(),
            node: node.into(),
        }
    }

    /// The result of `plugin` for the whole cluster.
    pub fn global(plugin: impl Into<String>) -> Self {
        Self {
            plugin: plugin.into(),
            node: GLOBAL.into(),
        }
    }

    /// Whether the result is for the whole cluster.
    pub fn is_global(&self) -> bool {
        self.node == GLOBAL
    }

    /// The path to PUT this result to.
    pub fn result_path(&self) -> String {
        self.path("results")
    }

    /// The path to POST progress to.
    pub fn progress_path(&self) -> String {
        self.path("progress")
    }

    /// The path to GET as a heartbeat.
    pub fn health_path(&self) -> String {
        self.path("health")
    }

    fn path(&self, kind: &str) -> String {
        if self.is_global() {
            format!("{API}/{kind}/global/{}", percent_encoded(&self.plugin))
        } else {
            format!(
                "{API}/{kind}/by-node/{}/{}",
                percent_encoded(&self.node),
                percent_encoded(&self.plugin)
            )
        }
    }
}

impl fmt::Display for ResultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.plugin, self.node)
    }
}

/// Meaning of a request path, regardless of its method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A result; only PUT.
    Result(ResultId),
    /// Progress; only POST.
    Progress(ResultId),
    /// A heartbeat; only GET.
    Health(ResultId),
    /// A request for a certificate; only POST, and the only one that needs no client certificate.
    Certificate,
}

impl Route {
    /// Reads the path of a request, still percent-encoded and without its query; `None` if it is
    /// not a route. `by_node`, an early spelling, is read as `by-node`.
    pub fn parse(path: &str) -> Option<Self> {
        let segments: Vec<String> = path
            .strip_prefix('/')?
            .split('/')
            .map(decode)
            .collect::<Option<_>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (kind, id) = match segments[..] {
            ["api", "v1", "certificate"] => return Some(Self::Certificate),
            ["api", "v1", kind, "global", plugin] => (kind, ResultId::global(plugin)),
            ["api", "v1", kind, "by-node" | "by_node", node, plugin] => {
                (kind, ResultId::on_node(plugin, node))
            }
            _ => return None,
        };
        match kind {
            "results" => Some(Self::Result(id)),
            "progress" => Some(Self::Progress(id)),
            "health" => Some(Self::Health(id)),
            _ => None,
        }
    }
}

/// Whether a `User-Agent` is that of this client, in any version.
pub fn is_own_agent(agent: &str) -> bool {
    USER_AGENT.split('/').next() == agent.split_once('/').map(|(name, _)| name)
}

/// The end of all containers of a plugin's pod but the worker's, each with exit code 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainersEnd {
    /// They may be started again, and change the result.
    Succeeded,
    /// They will not be started again.
    SucceededForGood,
}

impl ContainersEnd {
    /// The value of [`CONTAINERS_HEADER`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::SucceededForGood => "succeeded-for-good",
        }
    }

    /// Reads the value of [`CONTAINERS_HEADER`]; `None` for one of a later version.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Succeeded, Self::SucceededForGood]
            .into_iter()
            .find(|end| end.name() == name)
    }
}

/// A missing result, as reported to the aggregator by the driver or worker of the plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The result that is missing.
    pub id: ResultId,
    /// The content of `error.json`: an object whose `error` is a readable message.
    pub report: serde_json::Map<String, serde_json::Value>,
    /// The kind of failure.
    pub kind: FailureKind,
}

/// The kinds of failure. In `error.json` the first words of the message identify the kind, because
/// its readers look there: [`Failure::timed_out`] and [`Failure::skipped`] write these words,
/// [`FailureKind::of`] reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Any other failure.
    #[default]
    Failed,
    /// A time limit was exceeded.
    TimedOut,
    /// No failure, but no process can send a result: the node is gone, or the plugin may not run
    /// there.
    Skipped,
    /// The node of the pod, or the pod on it, was lost.
    NodeLost,
}

/// The loss of a node, or of a plugin's pod on it, before the result arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// The node; empty if the pod had none yet.
    pub node: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// The message of the node's condition; for a pod a whole sentence.
    pub reason: String,
    /// Whether only the pod was lost: evicted, preempted or deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pod: bool,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, reason, .. } = self;
        if self.pod {
            return f.write_str(reason);
        }
        let time = self.since.get(11..19).unwrap_or(&self.since);
        write!(f, "node `{node}` was lost at {time}: {reason}")
    }
}

impl FailureKind {
    /// The kind of an archived message; the word `timeout` anywhere means a time limit, for
    /// compatibility.
    pub fn of(sentence: &str) -> Self {
        if sentence.starts_with(SKIPPED) {
            Self::Skipped
        } else if sentence.contains(TIMEOUT) {
            Self::TimedOut
        } else {
            Self::Failed
        }
    }
}

/// Prefix of messages about skipped results, and about time limits.
const SKIPPED: &str = "skipped: ";
const TIMEOUT: &str = "timeout";
/// The message of every exceeded time limit in `error.json`: programs compare it with that of
/// VMware's Sonobuoy.
const TIMEOUT_SENTENCE: &str = "Plugin timeout while waiting for results so there are no results. \
                                Check pod logs or other cluster details for more information as \
                                to why this occurred.";
/// Keys of a report: its message, and the cause where the message is a fixed sentence.
const ERROR: &str = "error";
const CAUSE: &str = "failure";

impl Failure {
    /// A failure described only by a message; the numbers of the system's errors are left out.
    pub fn new(id: ResultId, error: impl AsRef<str>) -> Self {
        let error = visible::without_codes(error.as_ref()).into_owned();
        let mut report = serde_json::Map::new();
        report.insert(ERROR.into(), serde_json::Value::String(error));
        Self {
            id,
            report,
            kind: FailureKind::Failed,
        }
    }

    /// A result that no process can send.
    pub fn skipped(id: ResultId, why: &str) -> Self {
        Self {
            kind: FailureKind::Skipped,
            ..Self::new(id, format!("{SKIPPED}{why}"))
        }
    }

    /// A result that exceeded its time limit.
    pub fn timed_out(id: ResultId, why: &str) -> Self {
        let mut failure = Self {
            kind: FailureKind::TimedOut,
            ..Self::new(id, TIMEOUT_SENTENCE)
        };
        failure
            .report
            .insert(CAUSE.into(), format!("{TIMEOUT}: {why}").into());
        failure
    }

    /// A result that was lost with its node or pod.
    pub fn lost(id: ResultId, lost: &Lost) -> Self {
        let mut failure = Self {
            kind: FailureKind::NodeLost,
            ..Self::new(id, lost.to_string())
        };
        if let Ok(lost) = serde_json::to_value(lost) {
            failure.report.insert("lost".into(), lost);
        }
        failure
    }

    /// The same failure, with an earlier cause first.
    #[must_use]
    pub fn because(mut self, cause: &str) -> Self {
        self.set_error(format!("{cause}; {}", self.error()));
        self
    }

    /// The message that describes it.
    pub fn error(&self) -> &str {
        Self::error_in(&self.report)
    }

    /// The message in the content of an `error.json`.
    pub fn error_in(report: &serde_json::Map<String, serde_json::Value>) -> &str {
        let text = |key: &str| report.get(key).and_then(serde_json::Value::as_str);
        let is_timeout = text(ERROR) == Some(TIMEOUT_SENTENCE);
        text(CAUSE)
            .filter(|_| is_timeout)
            .or(text(ERROR))
            .unwrap_or_default()
    }

    fn set_error(&mut self, message: String) {
        let key = if self.kind == FailureKind::TimedOut {
            CAUSE
        } else {
            ERROR
        };
        self.report.insert(key.into(), message.into());
    }
}

/// A driver's or worker's finding about a plugin's results.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A result will not arrive.
    Failure(Failure),
    /// A problem that may be temporary, for the status; `None` when it is solved.
    Trouble(ResultId, Option<String>),
    /// A node has joined, and its result is now expected, too.
    Expect(ResultId),
    /// What ran for a result was lost; a failure follows, or another pod.
    Lost(ResultId, Lost),
    /// All containers but the worker's have succeeded; `None` when they run again.
    Ended(ResultId, Option<ContainersEnd>),
}

impl Finding {
    /// Appends to the message of a failure or problem.
    pub fn add(&mut self, words: &str) {
        match self {
            Self::Failure(failure) => {
                failure.set_error(format!("{}{words}", failure.error()));
            }
            Self::Trouble(_, Some(trouble)) => trouble.push_str(words),
            Self::Trouble(_, None) | Self::Expect(_) | Self::Lost(..) | Self::Ended(..) => {}
        }
    }
}

/// Progress of a plugin, as posted and as shown in the status document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The plugin; set by the aggregator.
    pub name: String,
    /// The node or [`GLOBAL`]; set by the aggregator.
    pub node: String,
    /// Time of arrival, RFC 3339; set by the aggregator. Omitted until then, since readers reject
    /// an empty time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timestamp: String,
    /// A readable message.
    pub msg: String,
    /// The number of tests.
    pub total: i64,
    /// The number of tests that have passed or were skipped.
    pub completed: i64,
    /// Errors so far.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub errors: Vec<String>,
    /// Names of failed tests so far.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub failures: Vec<String>,
    /// Incremental form: adds the appended counts to the total, too.
    #[serde(rename = "appendtotals", skip_serializing_if = "std::ops::Not::not")]
    pub append_totals: bool,
    /// Incremental form: the number of additional tests that have passed.
    #[serde(rename = "appendcompleted", skip_serializing_if = "is_default")]
    pub append_completed: i64,
    /// Incremental form: names of additional failed tests.
    #[serde(
        rename = "appendfailing",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "nullable"
    )]
    pub append_failing: Vec<String>,
}

/// Decodes one path segment; `None` if it is empty, malformed, not UTF-8, or could be a path (`/`,
/// `\`, NUL, only dots).
fn decode(segment: &str) -> Option<String> {
    let text = base::percent_decoded(segment)?;
    let harmless =
        !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\\', '\0']);
    harmless.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_keeps_the_fixed_message_beside_its_cause() {
        let failure =
            Failure::timed_out(ResultId::global("p"), "after 1h").because("node `n` is not ready");
        let mut finding = Finding::Failure(failure);
        finding.add(", while it ran x");
        let Finding::Failure(failure) = finding else {
            unreachable!()
        };
        assert_eq!(
            failure.error(),
            "node `n` is not ready; timeout: after 1h, while it ran x"
        );
        assert_eq!(failure.report["error"], TIMEOUT_SENTENCE);
        assert_eq!(FailureKind::of(TIMEOUT_SENTENCE), FailureKind::TimedOut);
        // The report of a plugin may have a field of that name.
        let report = serde_json::json!({"error": "broken", "failure": "x"});
        assert_eq!(Failure::error_in(report.as_object().unwrap()), "broken");
    }

    #[test]
    fn environment_identifies_the_result() {
        let check = |plugin: &str, node: Option<&str>, expected: Option<ResultId>| {
            let lookup = |name: &str| match name {
                env::RESULT_TYPE => Some(plugin.to_owned()),
                env::NODE_NAME => node.map(str::to_owned),
                _ => None,
            };
            assert_eq!(ResultId::read(lookup).ok(), expected, "{plugin} {node:?}");
        };
        check("p", Some("n"), Some(ResultId::on_node("p", "n")));
        check("p", Some(""), Some(ResultId::global("p")));
        check("p", None, Some(ResultId::global("p")));
        check("", Some("n"), None);
        let told = |result: &str, progress: &str| {
            let lookup = |name: &str| match name {
                env::RESULT_URL => Some(result.to_owned()),
                env::PROGRESS_URL => Some(progress.to_owned()),
                env::NODE_NAME => Some("n".into()),
                _ => Some("p".into()),
            };
            ResultId::read(lookup).ok()
        };
        let [result, progress] = ["results/global/q", "progress/global/r"]
            .map(|path| format!("https://[::1]:8080/api/v1/{path}"));
        // `NODE_NAME` is set for plugins that run once, too.
        assert_eq!(told(&result, &progress), Some(ResultId::global("q")));
        assert_eq!(told("", &progress), Some(ResultId::global("r")));
        assert_eq!(
            told("nonsense", "https://a/api/v1/certificate"),
            Some(ResultId::on_node("p", "n"))
        );
    }

    #[test]
    fn paths_are_formatted_and_parsed() {
        for id in [
            ResultId::global("e2e"),
            ResultId::on_node("a.b_c", "node-1"),
            ResultId::on_node("p", "n ä%"),
        ] {
            assert_eq!(
                Route::parse(&id.result_path()),
                Some(Route::Result(id.clone()))
            );
            assert_eq!(
                Route::parse(&id.progress_path()),
                Some(Route::Progress(id.clone()))
            );
            assert_eq!(Route::parse(&id.health_path()), Some(Route::Health(id)));
        }
        assert_eq!(
            Route::parse("/api/v1/results/by_node/n/p"),
            Some(Route::Result(ResultId::on_node("p", "n"))),
            "an early spelling"
        );
        assert_eq!(
            Route::parse("/%61pi/v1/results/by%2Dnode/n%31/p"),
            Some(Route::Result(ResultId::on_node("p", "n1"))),
            "any letter may be encoded"
        );
        assert_eq!(
            Route::parse("/api/v1/results/by-node/global/p"),
            Some(Route::Result(ResultId::global("p"))),
            "the node called global is the cluster"
        );
    }

    #[test]
    fn certificates_have_one_route() {
        assert_eq!(Route::parse(CERTIFICATE_PATH), Some(Route::Certificate));
        assert_eq!(Route::parse("/api/v1/certificate/x"), None);
    }

    #[test]
    fn other_paths_are_not_routes() {
        for path in [
            "",
            "/",
            "/api/v1/results",
            "/api/v1/results/global/",
            "/api/v1/results/global/p/",
            "/api/v1/results/by-node/n",
            "/api/v1/results/by-node//p",
            "/api/v1/results/global/..",
            "/api/v1/results/global/a%2Fb",
            "/api/v1/results/global/%zz",
            "/api/v1/results/global/%ff",
            "/api/v2/results/global/p",
            "/api/v1/other/global/p",
            "api/v1/results/global/p",
        ] {
            assert_eq!(Route::parse(path), None, "{path}");
        }
    }

    #[test]
    fn progress_ignores_unknown_keys_and_reads_null_lists() {
        let progress: Progress = serde_json::from_str(
            r#"{"msg":"m","total":3,"skipped":2,"failures":null,"appendcompleted":1}"#,
        )
        .unwrap();
        assert_eq!(
            (
                progress.total,
                progress.append_completed,
                progress.failures.len()
            ),
            (3, 1, 0)
        );
    }
}
