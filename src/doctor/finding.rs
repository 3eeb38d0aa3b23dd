//! Checks and their findings, one for each cause with the names of the affected objects; their
//! formats.
//!
//! Pure. `remedies` decides which texts are equivalent.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use base::json::json;
use base::{Joined as _, visible};
use model::remedies::{self, Causes, ReportedFailure};
use report::junit::{HEAD, element, tag};

/// Values of `--format`.
pub(crate) const FORMATS: &[&str] = &["text", "json", "junit"];
/// Maximum names in the line of a finding.
const MAX_NAMES: usize = 3;

/// A check.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Summary.
    pub seen: String,
    /// Why it was skipped, in whole or in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Problems found.
    pub findings: Vec<CheckFinding>,
    /// Measurements by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, Value>,
}

/// Severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// A run, or one of its plugins, will fail.
    Fails,
    /// A run may fail.
    Warns,
}

/// A problem.
#[derive(Debug, Serialize)]
pub(crate) struct CheckFinding {
    /// Severity.
    pub severity: Severity,
    /// Cause.
    pub cause: String,
    /// Affected objects, if it concerns a subset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extent: Option<Extent>,
    /// Remedy.
    pub remedy: Option<String>,
}

/// Number of affected objects.
#[derive(Debug, Serialize)]
pub(crate) struct Extent {
    /// Affected.
    pub count: usize,
    /// Total.
    pub of: usize,
    /// `nodes`, `objects`, `images`, `rights`.
    pub unit: &'static str,
    /// Their names.
    pub names: Vec<String>,
}

impl Check {
    /// A check without findings.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// A skipped check.
    pub(crate) fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self {
            name,
            skipped: Some(why.into()),
            ..Self::default()
        }
    }

    /// A check that makes a run fail for one cause.
    pub(crate) fn failed(name: &'static str, cause: impl Into<String>) -> Self {
        let mut check = Self::new(name);
        check.fail(cause, None);
        check
    }

    /// Adds a finding that makes a run fail.
    pub(crate) fn fail(&mut self, cause: impl Into<String>, remedy: Option<&str>) {
        self.add(Severity::Fails, cause, remedy);
    }

    /// Adds a finding about the whole. The cause provides the default remedy.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        cause: impl Into<String>,
        remedy: Option<&str>,
    ) {
        let cause = cause.into();
        let remedy = remedy
            .or_else(|| remedies::remedy(&cause))
            .map(str::to_owned);
        self.findings.push(CheckFinding {
            severity,
            cause,
            extent: None,
            remedy,
        });
    }

    /// Adds one finding that makes a run fail for each cause among `found`: affected object,
    /// problem, and remedy; the cause provides the default remedy.
    pub(crate) fn add_all(
        &mut self,
        (unit, of): (&'static str, usize),
        failures: impl IntoIterator<Item = (String, String, Option<String>)>,
    ) {
        let failures: Vec<_> = failures.into_iter().collect();
        let mut causes = Causes::new(failures.iter().map(|(name, ..)| name.as_str()));
        let first = self.findings.len();
        for (name, text, remedy) in failures {
            let at = first
                + causes.add(&ReportedFailure {
                    text: essence(&text),
                    ..ReportedFailure::default()
                });
            if at == self.findings.len() {
                self.fail(text, remedy.as_deref());
                self.findings[at].extent = Some(Extent {
                    count: 0,
                    of,
                    unit,
                    names: Vec::new(),
                });
            }
            if let Some(Extent { count, names, .. }) = &mut self.findings[at].extent
                && !names.contains(&name)
            {
                *count += 1;
                names.push(name);
            }
        }
    }

    /// Removes findings that an earlier check has reported with the same remedy.
    pub(crate) fn once(&mut self, earlier: &[Self]) {
        let remedies: Vec<&String> = earlier
            .iter()
            .flat_map(|check| &check.findings)
            .filter_map(|one| one.remedy.as_ref())
            .collect();
        let before = self.findings.len();
        self.findings.retain(|CheckFinding { remedy, cause, .. }| {
            !remedies
                .iter()
                .any(|told| remedy.as_ref() == Some(*told) || cause.contains(&**told))
        });
        if self.findings.is_empty() && before > 0 && self.seen.is_empty() {
            self.skipped = Some("not possible, for a reason above".into());
        }
    }

    fn has(&self, severity: Severity) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity == severity)
    }

    /// `passed`, `warned`, `failed` or `skipped`.
    pub(crate) fn status(&self) -> &'static str {
        match self.skipped {
            _ if self.has(Severity::Fails) => "failed",
            _ if self.has(Severity::Warns) => "warned",
            Some(_) => "skipped",
            None => "passed",
        }
    }

    /// Formats the check as text, a line for each cause.
    pub(crate) fn lines(&self) -> String {
        let word = |finding: &CheckFinding| {
            if finding.severity == Severity::Fails {
                "FAIL"
            } else {
                "warn"
            }
        };
        let mut lines: Vec<_> = self
            .findings
            .iter()
            .map(|finding| (word(finding), finding.sentence()))
            .collect();
        match &self.skipped {
            Some(why) => lines.push(("skip", why.clone())),
            None if lines.is_empty() => lines.push(("ok", self.seen.clone())),
            None => {}
        }
        let line = |(word, text): (&str, String)| {
            format!(
                "{word:<4}  {:<9}  {}\n",
                self.name,
                visible::line(&visible::without_codes(&text))
            )
        };
        lines.into_iter().map(line).collect()
    }
}

impl CheckFinding {
    /// One line for display, without the remedy.
    pub(crate) fn line(&self) -> String {
        match &self.extent {
            None => self.cause.clone(),
            Some(Extent {
                count,
                of,
                unit,
                names,
            }) => {
                let first = names.iter().take(MAX_NAMES).map(String::as_str);
                let more = if *count > MAX_NAMES { ", …" } else { "" };
                format!(
                    "{count} of {of} {unit}: {} ({}{more})",
                    self.cause,
                    first.joined(", ")
                )
            }
        }
    }

    fn sentence(&self) -> String {
        let remedy = self.remedy.as_ref().map(|remedy| format!("; {remedy}"));
        self.line() + &remedy.unwrap_or_default()
    }
}

/// Part of a text that identifies its cause: pods violate a level in different fields and
/// containers.
fn essence(text: &str) -> &str {
    text.split_once("violates PodSecurity \"")
        .and_then(|(_, rest)| rest.split_once("\":"))
        .map_or(text, |(_, fields)| &text[..text.len() - fields.len()])
}

/// Whether no finding prevents a run.
pub(crate) fn is_ready(checks: &[Check]) -> bool {
    !checks.iter().any(|check| check.has(Severity::Fails))
}

/// Last line of the text: the conclusion from all checks.
pub(crate) fn verdict(checks: &[Check]) -> String {
    let findings = || checks.iter().flat_map(|check| &check.findings);
    let failures = findings()
        .filter(|finding| finding.severity == Severity::Fails)
        .count();
    match (failures, findings().count()) {
        (0, 0) => "ready\n".into(),
        (0, warnings) => format!("ready; warnings: {warnings}\n"),
        (1, _) => "not ready: 1 problem\n".into(),
        _ => format!("not ready: {failures} problems\n"),
    }
}

/// Formats checks for programs, in one of [`FORMATS`].
pub(crate) fn show(checks: &[Check], format: &str) -> String {
    match format {
        "json" => {
            let with_status = checks.iter().map(|check| {
                let mut with_status = json!(check);
                with_status["status"] = json!(check.status());
                with_status
            });
            let document =
                json!({"fit": is_ready(checks), "checks": with_status.collect::<Value>()});
            format!("{document:#}\n")
        }
        _ => junit(checks),
    }
}

fn junit(checks: &[Check]) -> String {
    let of = |status: &str| {
        checks
            .iter()
            .filter(|check| check.status() == status)
            .count()
    };
    let (tests, failed, skipped) = (
        checks.len().to_string(),
        of("failed").to_string(),
        of("skipped").to_string(),
    );
    let counts = [
        ("tests", Some(&*tests)),
        ("failures", Some(&*failed)),
        ("errors", Some("0")),
    ];
    let all = [&[("name", Some("sonobuoy"))], &counts[..]].concat();
    let skipped = [("skipped", Some(&*skipped))];
    let suite = [&[("name", Some("doctor"))], &counts[..], &skipped].concat();
    let mut out = format!(
        "{HEAD}\n{}>\n{}>\n",
        tag("testsuites", &all),
        tag("testsuite", &suite)
    );
    for check in checks {
        let case = [("name", Some(check.name)), ("classname", Some("doctor"))];
        let case = tag("testcase", &case);
        out += &format!("{case}>{}</testcase>\n", junit_outcome(check));
    }
    out + "</testsuite>\n</testsuites>\n"
}

/// The element inside the test case of a check.
fn junit_outcome(check: &Check) -> String {
    let mut sentences: Vec<String> = Vec::new();
    sentences.extend(check.findings.iter().map(CheckFinding::sentence));
    match (check.status(), &check.skipped) {
        ("failed", _) => {
            let mut failures = check.findings.iter();
            let first = failures.find(|finding| finding.severity == Severity::Fails);
            let message = first.map(CheckFinding::line).unwrap_or_default();
            let text = sentences.join("\n");
            element("failure", None, Some(&message), Some(&text))
        }
        ("skipped", Some(why)) => element("skipped", None, Some(why), None),
        _ => {
            sentences.insert(0, check.seen.clone());
            element("system-out", None, None, Some(&sentences.join("\n")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_causes_are_one_finding_with_examples() {
        let mut check = Check::new("echo");
        let refused = |node: u8| {
            let text = format!(
                "cannot reach the aggregator: no connection to 10.0.0.{node}:8080: Connection \
                 refused"
            );
            (format!("node-{node}"), text, None)
        };
        let odd = (
            "node-9".to_owned(),
            "odd".to_owned(),
            Some("look".to_owned()),
        );
        check.add_all(("nodes", 40), (1..6).map(refused).chain([odd]));
        let lines: Vec<_> = check.findings.iter().map(CheckFinding::line).collect();
        assert_eq!(
            lines,
            [
                "5 of 40 nodes: cannot reach the aggregator: no connection to 10.0.0.1:8080: \
                 Connection refused (node-1, node-2, node-3, …)",
                "1 of 40 nodes: odd (node-9)",
            ]
        );
        assert!(
            check.findings[0]
                .remedy
                .as_ref()
                .unwrap()
                .contains("network policy")
        );
        assert_eq!(check.findings[1].remedy.as_deref(), Some("look"));
        assert_eq!(check.status(), "failed");
    }

    #[test]
    fn pods_that_violate_one_level_are_one_finding() {
        let mut check = Check::new("objects");
        let refused = |pod: &str, field: &str| {
            (
                pod.to_owned(),
                format!("violates PodSecurity \"baseline:latest\": {field}"),
                None,
            )
        };
        check.add_all(
            ("objects", 9),
            [refused("a", "hostPID"), refused("b", "privileged")],
        );
        let [only] = &check.findings[..] else {
            panic!("{check:?}")
        };
        assert_eq!(
            only.line(),
            "2 of 9 objects: violates PodSecurity \"baseline:latest\": hostPID (a, b)"
        );
    }

    #[test]
    fn causes_are_listed_by_first_occurrence() {
        let mut first = Check::new("images");
        first.fail("`x:1` is missing", Some("push it"));
        let mut second = Check::new("echo");
        second.fail("ErrImagePull", Some("push it"));
        second.fail("no image; push it", None);
        second.add(Severity::Warns, "slow", None);
        let repeated = [first];
        second.once(&repeated);
        assert_eq!((second.findings.len(), second.status()), (1, "warned"));
        let mut third = Check::new("nodes");
        third.fail("ErrImagePull", Some("push it"));
        third.once(&repeated);
        assert_eq!(third.status(), "skipped");
    }

    fn diagnosis() -> Vec<Check> {
        let mut nodes = Check::new("nodes");
        nodes.add_all(
            ("nodes", 2),
            [(
                "a".to_owned(),
                "not <ready>".to_owned(),
                Some("look".to_owned()),
            )],
        );
        let mut server = Check::new("server");
        server.seen = "v1.33.4".into();
        vec![server, nodes, Check::skipped("echo", "no node")]
    }

    #[test]
    fn text_has_a_line_per_cause() {
        assert_eq!(
            diagnosis().iter().map(Check::lines).collect::<String>() + &verdict(&diagnosis()),
            "ok    server     v1.33.4\n\
             FAIL  nodes      1 of 2 nodes: not <ready> (a); look\n\
             skip  echo       no node\n\
             not ready: 1 problem\n"
        );
    }

    #[test]
    fn json_equals_the_text() {
        let json: serde_json::Value = serde_json::from_str(&show(&diagnosis(), "json")).unwrap();
        assert_eq!(json["fit"], false);
        assert_eq!(json["checks"][1]["status"], "failed");
        assert_eq!(
            json["checks"][1]["findings"][0]["extent"],
            json!({"count": 1, "of": 2, "unit": "nodes", "names": ["a"]})
        );
        let junit = show(&diagnosis(), "junit");
        assert!(
            junit.contains(
                r#"<testsuite name="doctor" tests="3" failures="1" errors="0" skipped="1">"#
            ),
            "{junit}"
        );
        assert!(
            junit.contains(r#"<failure message="1 of 2 nodes: not &lt;ready&gt; (a)">"#),
            "{junit}"
        );
    }
}
