//! `results --format junit`: one JUnit file from the results of any plugin. A plugin is a suite, or
//! a suite per node.

use std::collections::BTreeMap;
use std::io::Write;
use std::iter;

use anyhow::Result;
use serde_json::Value;

use super::diff::{ChangeKind, Diff, TestChange};
use super::junit::{HEAD, element, tag};
use super::many::Many;
use super::run::{Case, Counts, NodeReport, PluginReport, Report};
use super::survey::JunitDetails;
use base::Joined as _;
use base::clock::{parse_rfc3339, rfc3339};
use model::item::{
    ATTEMPTS, FAILED, FAILURE, FLAKY, Failure, Item, MessageMark, OTHER, PASSED, RESUMED, SKIPPED,
    TIMEOUT, UNKNOWN,
};

fn testcase(name: &str, class: &str, source: &str, seconds: f64, inside: &str) -> String {
    // Without rounding noise.
    let time = ((seconds * 1e6).round() / 1e6).to_string();
    let source = Some(source).filter(|source| !source.is_empty());
    let about = [
        ("name", Some(name)),
        ("classname", Some(class)),
        ("time", Some(&time)),
        ("file", source),
    ];
    format!("{}>{inside}</testcase>\n", tag("testcase", &about))
}

/// The head of a suite, or of all suites, which have no `skipped` in schemas.
fn head(
    element: &str,
    name: &str,
    counts: &Counts,
    seconds: Option<f64>,
    more: &[(&str, Option<&str>)],
) -> String {
    let skipped = counts.of(SKIPPED) + counts.of(OTHER);
    let [tests, failures, errors, skipped] =
        [counts.sum(), counts.of(FAILED), counts.of(UNKNOWN), skipped]
            .map(|number| number.to_string());
    // To the millisecond: schemas allow no more digits in a suite.
    let time = seconds.map(|seconds| ((seconds * 1e3).round() / 1e3).to_string());
    let about = [
        ("name", Some(name)),
        ("tests", Some(&tests)),
        ("failures", Some(&failures)),
        ("errors", Some(&errors)),
        (
            "skipped",
            Some(&*skipped).filter(|_| element == "testsuite"),
        ),
        ("time", time.as_deref()),
    ];
    tag(element, &[&about[..], more].concat()) + ">\n"
}

/// Writes one document.
pub fn write(report: &Report<'_>, out: &mut dyn Write) -> Result<()> {
    let mut counts = report.counts.clone();
    let broken = report
        .plugins
        .iter()
        .filter(|plugin| plugin.error.is_some())
        .count() as u64;
    counts.add(UNKNOWN, broken + u64::from(report.why.is_some()));
    let seconds = report.duration.map(|span| span.seconds());
    write!(
        out,
        "{HEAD}\n{}",
        head("testsuites", "sonobuoy", &counts, seconds, &[])
    )?;
    if let Some(why) = &report.why {
        // CI systems show nothing except tests.
        let sentences = why.sentences();
        let message = sentences.first().map(String::as_str).unwrap_or_default();
        let error = element(
            "error",
            Some("run"),
            Some(message),
            Some(&sentences.join("\n")),
        );
        broken_suite("sonobuoy", "the run brings results", &error, out)?;
    }
    for plugin in &report.plugins {
        match &plugin.error {
            Some(error) => {
                broken_suite(
                    plugin.name,
                    plugin.name,
                    &element("error", None, Some(error), None),
                    out,
                )?;
            }
            None => write_plugin(report, plugin, out)?,
        }
    }
    Ok(writeln!(out, "</testsuites>")?)
}

/// A suite with one test, which is an error.
fn broken_suite(name: &str, test: &str, error: &str, out: &mut dyn Write) -> Result<()> {
    let (_, suite) = suite(
        name,
        None,
        &[(UNKNOWN, testcase(test, name, "", 0.0, error))],
    );
    Ok(out.write_all(suite.as_bytes())?)
}

/// The status and the element of a test.
type Test = (&'static str, String);

/// A suite whose tests are known, and their counts.
fn suite(name: &str, seconds: Option<f64>, tests: &[Test]) -> (Counts, String) {
    let mut counts = Counts::default();
    tests.iter().for_each(|(status, _)| counts.add(status, 1));
    let elements: String = tests.iter().map(|(_, element)| &**element).collect();
    let head = head("testsuite", name, &counts, seconds, &[]);
    (counts, format!("{head}{elements}</testsuite>\n"))
}

fn write_all(
    name: &str,
    suites: impl Iterator<Item = (Counts, String)>,
    out: &mut dyn Write,
) -> Result<()> {
    let (mut all, mut text) = (Counts::default(), String::new());
    for (counts, suite) in suites {
        all.add_all(&counts);
        text += &suite;
    }
    Ok(write!(
        out,
        "{HEAD}\n{}{text}</testsuites>\n",
        head("testsuites", name, &all, None, &[])
    )?)
}

/// Writes the changes between two archives: a suite per plugin and node. New failures are failures,
/// removed or newly unknown tests are errors, all others pass or are skipped, with the kind of
/// change.
pub fn write_diff(diff: &Diff, out: &mut dyn Write) -> Result<()> {
    let mut suites = BTreeMap::<_, Vec<_>>::new();
    for change in &diff.changes {
        let node = change.node.iter().map(String::as_str);
        suites
            .entry(iter::once(&*change.plugin).chain(node).joined("/"))
            .or_default()
            .push(changed(change));
    }
    write_all(
        "sonobuoy results diff",
        suites.iter().map(|(name, tests)| suite(name, None, tests)),
        out,
    )
}

/// Writes several archives: a suite for each, with its plugins as tests; a cluster without an
/// archive is an error.
pub fn write_many(many: &Many, out: &mut dyn Write) -> Result<()> {
    let suites = many.columns.iter().enumerate().map(|(at, column)| {
        let test = |name: &str, status, inside: &str| {
            (status, testcase(name, &column.archive, "", 0.0, inside))
        };
        let missing = column.error.as_ref().map(|error| {
            test(
                "the run brings results",
                UNKNOWN,
                &element("error", None, Some(error), None),
            )
        });
        let plugins = column
            .plugins
            .iter()
            .map(|(name, cell)| match &*cell.status {
                status if status == FAILED || cell.failed > 0 => {
                    let names = many.failed(at, name).join("\n");
                    test(
                        name,
                        FAILED,
                        &element("failure", None, Some(&cell.word()), Some(&names)),
                    )
                }
                UNKNOWN => test(name, UNKNOWN, &element("error", None, Some(UNKNOWN), None)),
                _ => test(name, PASSED, ""),
            });
        let tests: Vec<_> = missing.into_iter().chain(plugins).collect();
        suite(&column.archive, column.duration, &tests)
    });
    write_all("sonobuoy", suites, out)
}

fn changed(change: &TestChange) -> Test {
    let [before, after] =
        [&change.before, &change.after].map(|status| status.as_deref().unwrap_or("absent"));
    let message = &format!("{}: {before} -> {after}", change.kind.title());
    let (status, inside) = match change.kind {
        ChangeKind::NewlyFailing => (
            FAILED,
            element("failure", Some(FAILED), Some(message), Some(&change.why)),
        ),
        kind if kind == ChangeKind::Vanished || after == UNKNOWN => (
            UNKNOWN,
            element("error", Some(UNKNOWN), Some(message), None),
        ),
        ChangeKind::StillFailing | ChangeKind::Changed => {
            (SKIPPED, element("skipped", None, Some(message), None))
        }
        _ => (PASSED, element("system-out", None, None, Some(message))),
    };
    (
        status,
        testcase(&change.test, &change.plugin, "", 0.0, &inside),
    )
}

fn write_plugin(report: &Report<'_>, plugin: &PluginReport<'_>, out: &mut dyn Write) -> Result<()> {
    // The number of cases that the current suite still has.
    let (mut suites, mut left) = (plugin.suites.iter(), 0);
    plugin.cases.each(|case| {
        if left == 0
            && let Some(suite) = suites.next()
        {
            out.write_all(suite_head(report, plugin, suite).as_bytes())?;
            left = suite.counts.sum();
        }
        left = left.saturating_sub(1);
        let end = if left == 0 { "</testsuite>\n" } else { "" };
        Ok(write!(out, "{}{end}", test(case))?)
    })
}

fn suite_head(report: &Report<'_>, plugin: &PluginReport<'_>, suite: &NodeReport) -> String {
    let node = Some(&*suite.name).filter(|name| !name.is_empty());
    let span = plugin
        .nodes
        .iter()
        .find(|known| Some(&*known.name) == node)
        .map_or(plugin.duration, |node| node.duration);
    let stamp = report
        .opened
        .survey
        .stamps
        .get(&(plugin.name.to_owned(), suite.file.clone()));
    // In UTC and without a zone, as readers of JUnit expect.
    let utc = |text: &String| parse_rfc3339(text).or_else(|| parse_rfc3339(&format!("{text}Z")));
    let began = stamp
        .map_or(span.map(|span| span.from), utc)
        .map(|time| rfc3339(time).chars().take(19).collect::<String>());
    let name = node.map_or_else(
        || plugin.name.to_owned(),
        |node| format!("{}/{node}", plugin.name),
    );
    let more = [("timestamp", began.as_deref()), ("hostname", node)];
    head("testsuite", &name, &suite.counts, suite.seconds, &more)
}

fn test(case: &Case<'_>) -> String {
    let item = case.item;
    let none = JunitDetails::default();
    let from_file = case.from_file.unwrap_or(&none);
    let place = iter::once(case.plugin).chain(case.group()).joined(".");
    let class = if from_file.class.is_empty() {
        &place
    } else {
        &*from_file.class
    };
    let status = case.status;
    let failure = case.failure();
    let mut inside = match status {
        PASSED => String::new(),
        SKIPPED => element(
            "skipped",
            None,
            Some(&*from_file.skipped).filter(|reason| !reason.is_empty()),
            None,
        ),
        FAILED | TIMEOUT => {
            let failure = element(
                "failure",
                Some(status),
                Some(&failure.message),
                Some(&failure.trace),
            );
            failure + &attempts(item, "rerunFailure", 1)
        }
        FLAKY => attempts(item, "flakyFailure", 0),
        UNKNOWN => {
            let reason = case.error.unwrap_or("the result is unknown");
            element("error", Some(UNKNOWN), Some(reason), Some(&failure.text()))
        }
        // Neither good nor bad, which JUnit cannot express.
        custom => element("skipped", None, Some(&format!("status: {custom}")), None),
    };
    if let Some(run) = case.detail(RESUMED) {
        inside += &element(
            "system-out",
            None,
            None,
            Some(&format!("ran in run {run}, which this one continues")),
        );
    }
    for name in ["system-out", "system-err"] {
        inside += &case
            .detail(name)
            .map(|text| element(name, None, None, Some(text)))
            .unwrap_or_default();
    }
    let name = if case.is_error() {
        case.title()
    } else {
        case.name
    };
    testcase(
        name,
        class,
        &from_file.source,
        case.duration.unwrap_or_default(),
        &inside,
    )
}

/// The failed attempts of a test, without the first ones, in the form of Surefire.
fn attempts(item: &Item, name: &str, first: usize) -> String {
    let attempts = item
        .details
        .get(ATTEMPTS)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let failure = |attempt: &Value| {
        let text = |key: &str| attempt[key].as_str().unwrap_or_default();
        let failure = Failure::split(text(FAILURE), MessageMark::default());
        element(
            name,
            Some(text("status")),
            Some(&failure.message),
            Some(&failure.trace),
        )
    };
    attempts
        .skip(first)
        .filter(|attempt| attempt["status"] != PASSED)
        .map(failure)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_have_their_message_and_trace() {
        let mut item = Item::new("a test", FLAKY);
        let failed = serde_json::json!({"status": FAILED, FAILURE: "no disk a.go:1: no disk\nb"});
        let passed = serde_json::json!({"status": PASSED});
        item.details
            .insert(ATTEMPTS.into(), vec![failed, passed].into());
        assert_eq!(
            attempts(&item, "flakyFailure", 0),
            "<flakyFailure type=\"failed\" message=\"no disk\">a.go:1: no disk\nb</flakyFailure>"
        );
    }
}
