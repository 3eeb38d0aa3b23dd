//! Groups failures by cause, and knows the remedies of common ones.
//!
//! Pure: texts in, values out. Owns the masking (numbers, addresses, identifiers, times, names of
//! nodes), the choice of a failure's significant line, the table of remedies, why a run failed as a
//! whole, and a worker's message about an unreachable aggregator. Does not know the origin or the
//! display of texts.

mod known;
mod mask;
mod places;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use base::Joined as _;
use base::digest;
use base::logger;
use base::visible::{cut_bytes, head};
use base::words::count;
pub use known::{ImageUser, is_local_image, load_commands, missing_image, remedy};
use mask::mask;
pub use places::{MAX_NAMED, NodeList, TestPlace, TestPlaces};

/// Maximum length of a cause.
const MAX_CAUSE_BYTES: usize = 200;
/// Maximum lines of an example, and their maximum length.
const MAX_LINES: usize = 6;
const MAX_LINE_BYTES: usize = 300;
/// Maximum names of tests per cause.
const MAX_NAMES: usize = 10;
/// Maximum distinct causes; further ones are combined.
const MAX_CAUSES: usize = 2_000;
/// Maximum bytes and lines of a failure searched for its significant line.
const MAX_TEXT_BYTES: usize = 64 << 10;
const MAX_TEXT_LINES: usize = 400;

/// Maximum causes kept of a run that failed as a whole, by descending number of results, and in a
/// report.
const MAX_REASONS: usize = 20;
const MAX_TOLD: usize = 3;

/// Lines that contain only a location, or announce the next line.
static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^\s*(?:|Unexpected error|occurred|Full Stack Trace|Expected|to equal|goroutine(?: .*)?|<\*\S*|<.* \| 0x.*>|\[[^ ]*\]",
        r"|(?:In \[It\] at: )?[^ :]*\.(?:go|rs|py|sh|js)(?::[\d:]*)?(?: [^ ]+){0,2})[\s:{},]*$",
    ))
    .expect("a valid pattern")
});

/// A text without what varies between nodes and repetitions of one cause.
pub fn cause_key(text: &str, nodes: &HashSet<String>) -> String {
    mask(&cut_bytes(text, 5 * MAX_CAUSE_BYTES), nodes)
}

/// Appends the remedy to a text, unless the text has one, which follows a semicolon.
pub fn advised(text: &str) -> String {
    match remedy(text).filter(|_| !text.contains("; ")) {
        Some(remedy) => format!("{text}; {remedy}"),
        None => text.to_owned(),
    }
}

/// One failure.
#[derive(Default)]
pub struct ReportedFailure<'a> {
    /// The plugin.
    pub plugin: &'a str,
    /// The node, if the failure is specific to one.
    pub node: Option<&'a str>,
    /// The name of the test.
    pub test: &'a str,
    /// The whole message; empty without one.
    pub text: &'a str,
    /// The plugin's remedy.
    pub remedy: Option<&'a str>,
    /// The plugin's link to more information.
    pub link: Option<&'a str>,
}

impl ReportedFailure<'_> {
    /// Whether the test has a name of its own, unlike a missing result, which is named after its
    /// failure.
    fn is_named_apart(&self) -> bool {
        let Some(line) = significant(self.text).next() else {
            return false;
        };
        // That of a crashed program ends where its output begins.
        let title = self.test.lines().next().unwrap_or_default();
        let is_crash = title.ends_with(LAST_OUTPUT) && line.starts_with(title);
        !is_crash && !self.test.contains(without_label(line.trim()))
    }
}

/// Failures with a common cause.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// Their common text.
    pub cause: String,
    /// The number of failures.
    pub count: u64,
    /// The number of distinct tests.
    pub tests: usize,
    /// The nodes; none if unknown.
    #[serde(with = "node_count")]
    pub nodes: NodeList,
    /// The plugins concerned.
    pub plugins: Vec<String>,
    /// The first tests, without tests named after their failure, such as missing results.
    #[serde(rename = "testNames", with = "test_names")]
    pub names: Vec<TestPlace>,
    /// One of the failures.
    pub example: Example,
    /// The remedy.
    pub remedy: Option<String>,
    /// Link to more information.
    pub link: Option<String>,
    /// Its number, in order of first occurrence.
    #[serde(skip)]
    pub index: usize,
}

/// Nodes as their number.
mod node_count {
    use super::NodeList;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(nodes: &NodeList, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(nodes.count())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<NodeList, D::Error> {
        u64::deserialize(input).map(NodeList::of_count)
    }
}

/// Tests as their names.
mod test_names {
    use super::TestPlace;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(tests: &[TestPlace], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(tests.iter().map(|place| &place.test))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Vec<TestPlace>, D::Error> {
        let names = Vec::<String>::deserialize(input)?.into_iter();
        Ok(names
            .map(|test| TestPlace {
                test,
                ..TestPlace::default()
            })
            .collect())
    }
}

/// One failure of a cause.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Example {
    /// The plugin.
    pub plugin: String,
    /// The node.
    pub node: Option<String>,
    /// The test.
    pub test: String,
    /// The first lines, starting with the significant one.
    lines: Vec<String>,
}

/// Failures, grouped by their causes.
#[derive(Default)]
pub struct Causes {
    of: HashMap<String, usize>,
    list: Vec<Cause>,
    nodes: HashSet<String>,
    /// Digests of the tests and nodes of each cause.
    known: HashSet<u64>,
}

impl Causes {
    /// An empty collection; `nodes` are the names to mask.
    pub fn new<'n>(nodes: impl IntoIterator<Item = &'n str>) -> Self {
        Self {
            nodes: nodes.into_iter().map(str::to_owned).collect(),
            ..Self::default()
        }
    }

    /// The cause of a text, as used for grouping.
    fn name(&self, failure: &ReportedFailure<'_>) -> String {
        let mut lines = significant(failure.text);
        let Some(line) = lines.next() else {
            return format!(
                "{}: no reason given",
                cut_bytes(&mask(failure.test, &self.nodes), MAX_CAUSE_BYTES)
            );
        };
        // A line that ends in a colon announces the next one.
        let line = match lines.next() {
            Some(next) if line.ends_with(':') => format!("{line} {}", next.trim()),
            _ => line.to_owned(),
        };
        // Masking takes long, and rarely shortens a line to less than a fifth.
        cut_bytes(
            &mask(
                &cut_bytes(without_label(&line), 5 * MAX_CAUSE_BYTES),
                &self.nodes,
            ),
            MAX_CAUSE_BYTES,
        )
    }

    /// Adds a failure; returns the index of its cause.
    pub fn add(&mut self, failure: &ReportedFailure<'_>) -> usize {
        let mut name = self.name(failure);
        if self.list.len() >= MAX_CAUSES && !self.of.contains_key(&name) {
            name = "other causes".into();
        }
        let index = *self.of.entry(name.clone()).or_insert(self.list.len());
        if index == self.list.len() {
            self.list.push(Cause::new(name, index, failure));
        }
        let cause = &mut self.list[index];
        cause.count += 1;
        let is_new = self
            .known
            .insert(digest(&(index, failure.plugin, failure.test)));
        cause.tests += usize::from(is_new);
        if is_new && cause.names.len() < MAX_NAMES && failure.is_named_apart() {
            cause.names.push(TestPlace {
                plugin: failure.plugin.to_owned(),
                test: failure.test.to_owned(),
                ..TestPlace::default()
            });
        }
        if let Some(node) = failure.node {
            let place = (index, failure.plugin, failure.test, node);
            let is_named =
                |named: &&mut TestPlace| (&*named.plugin, &*named.test) == (place.1, place.2);
            if let Some(named) = cause.names.iter_mut().find(is_named)
                && self.known.insert(digest(&place))
            {
                named.nodes.add(node);
            }
            if self.known.insert(digest(&(index, node))) {
                cause.nodes.add(node);
            }
        }
        if !cause.plugins.iter().any(|plugin| plugin == failure.plugin) {
            cause.plugins.push(failure.plugin.to_owned());
        }
        index
    }

    /// The causes, by descending number of failures.
    pub fn list(mut self) -> Vec<Cause> {
        self.list
            .sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.cause.cmp(&b.cause)));
        self.list
    }
}

impl Cause {
    fn new(cause: String, index: usize, failure: &ReportedFailure<'_>) -> Self {
        let lines = significant(failure.text)
            .take(MAX_LINES)
            .map(|line| cut_bytes(without_label(line), MAX_LINE_BYTES));
        let example = Example {
            plugin: failure.plugin.to_owned(),
            node: failure.node.map(str::to_owned),
            test: failure.test.to_owned(),
            lines: lines.collect(),
        };
        Self {
            cause,
            example,
            remedy: failure
                .remedy
                .or_else(|| remedy(failure.text))
                .map(str::to_owned),
            link: failure.link.map(str::to_owned),
            index,
            ..Self::default()
        }
    }

    /// The significant text of the example, and the lines after it.
    pub fn headline(&self) -> (String, &[String]) {
        let (headline, rest) = match &self.example.lines[..] {
            [] => (self.cause.clone(), &[][..]),
            [first, second, rest @ ..] if first.ends_with(':') => {
                (format!("{first} {}", second.trim()), rest)
            }
            [first, rest @ ..] => (first.trim().to_owned(), rest),
        };
        // The last output of a program may be all that is known.
        let rest = match rest {
            [only] if headline.ends_with(only.trim()) => &[],
            rest => rest,
        };
        (cut_bytes(&headline, MAX_CAUSE_BYTES), rest)
    }

    /// The numbers of tests and nodes, for display.
    pub fn extent(&self) -> String {
        let tests = count(self.tests, "test");
        let extent = match self.nodes.count() {
            0 => tests,
            nodes => format!("{tests} on {}", count(nodes, "node")),
        };
        if self.varies() {
            format!("{extent}, values differ")
        } else {
            extent
        }
    }

    /// Whether the headline, which is that of one failure, has parts that differ between failures.
    pub fn varies(&self) -> bool {
        self.count > 1 && !self.example.lines.is_empty() && self.headline().0 != self.cause
    }
}

/// A line without the label that Ginkgo writes before a failure.
fn without_label(line: &str) -> &str {
    line.strip_prefix("[FAILED] ").unwrap_or(line)
}

/// Announces the output of a program that crashed, which says why.
pub const LAST_OUTPUT: &str = "its last output:";
/// Announces the traceback of Python, which ends with the exception.
const TRACEBACK: &str = "Traceback (most recent call last):";
/// The beginnings of lines in which other languages say why a program crashed.
const CRASHES: [&str; 4] = [
    "panic: ",
    "fatal error: ",
    "Exception in thread ",
    "Fatal error: ",
];

/// The message of a crashed program, complete with the line of its output that says why.
pub fn crash_message(message: &str, output: &str) -> Option<String> {
    let lines: Vec<_> = output
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let cause = lines.get(crash_line(&lines)?)?;
    message
        .ends_with(LAST_OUTPUT)
        .then(|| format!("{message} {}", cause.trim()))
}

/// The line of a crashed program's output that says why it crashed: what its language writes to
/// standard error, which may precede what the program wrote to standard output before and its
/// language flushed only at the end; else the last line.
fn crash_line(lines: &[&str]) -> Option<usize> {
    let after_traceback = lines
        .iter()
        .rposition(|line| line.trim_end() == TRACEBACK)
        .and_then(|start| {
            let is_exception = |line: &&str| !line.starts_with([' ', '\t']);
            let offset = lines[start + 1..].iter().position(is_exception)?;
            Some(start + 1 + offset)
        });
    let is_crash = |line: &&str| CRASHES.iter().any(|start| line.starts_with(start));
    after_traceback
        .or_else(|| lines.iter().position(is_crash))
        .or(lines.len().checked_sub(1))
}

/// The lines of a failure that are not blank, from the significant one: the first with a known
/// cause, else the first that is not a bare location. The line of a crashed program's output that
/// says why follows what announces the output.
fn significant(text: &str) -> impl Iterator<Item = &str> {
    let text = head(text, MAX_TEXT_BYTES);
    let mut lines: Vec<_> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.trim().is_empty())
        .collect();
    let quoted = quoted_source(&lines);
    let searched = || {
        let lines = lines.iter().enumerate().zip(&quoted).take(MAX_TEXT_LINES);
        lines
            .filter(|((_, line), is_quoted)| !**is_quoted && !frame(line))
            .map(|(line, _)| line)
    };
    let crashed = searched()
        .find(|(_, line)| line.contains(LAST_OUTPUT))
        .map(|(at, _)| at);
    let best_line = searched()
        .find(|(_, line)| remedy(line).is_some())
        .or_else(|| searched().next());
    let first = crashed.or(best_line.map(|(at, _)| at)).unwrap_or(0);
    if let Some(at) = crashed
        && lines[at].ends_with(LAST_OUTPUT)
        && let Some(offset) = crash_line(&lines[at + 1..])
    {
        let cause = lines.remove(at + 1 + offset);
        lines.insert(at + 1, cause);
    }
    lines.into_iter().skip(first)
}

/// Whether each line quotes source code: the indented ones below a location in the traceback of
/// Python.
fn quoted_source(lines: &[&str]) -> Vec<bool> {
    let mut is_below_location = false;
    lines
        .iter()
        .map(|line| {
            let is_indented = line.starts_with([' ', '\t']);
            let is_location = line.trim_start().starts_with("File \"") && line.contains(", line ");
            is_below_location = is_location || is_indented && is_below_location;
            is_below_location
        })
        .collect()
}

/// A text without the lines that quote source code.
fn without_source(text: &str) -> Cow<'_, str> {
    if !text.contains("File \"") {
        return text.into();
    }
    let lines: Vec<_> = text.lines().collect();
    let quoted = quoted_source(&lines);
    lines
        .into_iter()
        .zip(quoted)
        .filter(|(_, is_quoted)| !is_quoted)
        .map(|(line, _)| line)
        .joined("\n")
        .into()
}

fn frame(line: &str) -> bool {
    FRAME.is_match(line)
}

/// Start of a worker's log message about an unreachable aggregator.
const UNREACHED: &str = "cannot reach the aggregator: ";

/// Formats the message.
pub fn unreached(why: &str) -> String {
    format!("{UNREACHED}{why}")
}

/// The last reason in a log with this message.
pub fn why_unreached(log: &str) -> Option<String> {
    log.lines().rev().find_map(|line| {
        Some(logger::message(line).split_once(UNREACHED)?.1.to_owned())
            .filter(|why| !why.is_empty())
    })
}

/// An error in the place of a result.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Time of the error, RFC 3339.
    pub time: String,
    /// The plugin.
    pub plugin: String,
    /// The node, `global` for a plugin that runs once.
    pub node: String,
    /// The error message.
    pub error: String,
}

/// Why a run has no results.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Why {
    /// The number of expected results.
    results: u64,
    /// The first error.
    first: Event,
    causes: Vec<Cause>,
}

impl Why {
    /// Summarises all errors of a run, which must not be empty.
    pub fn new(mut errors: Vec<Event>) -> Self {
        errors.sort_by(|a, b| a.time.cmp(&b.time));
        let mut causes = Causes::new(errors.iter().map(|error| error.node.as_str()));
        for Event {
            plugin,
            node,
            error,
            ..
        } in &errors
        {
            let node = Some(node.as_str()).filter(|node| *node != client::protocol::GLOBAL);
            causes.add(&ReportedFailure {
                plugin,
                node,
                test: plugin,
                text: error,
                ..ReportedFailure::default()
            });
        }
        Self {
            results: errors.len() as u64,
            causes: causes.list().into_iter().take(MAX_REASONS).collect(),
            first: errors.into_iter().next().unwrap_or_default(),
        }
    }

    /// Formats for display: the outcome, the causes by count, each with its remedy, and the first
    /// event.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![match self.results {
            1 => "The run failed as a whole: its only result did not arrive.".to_owned(),
            all => format!("The run failed as a whole: none of its {all} results arrived."),
        }];
        for reason in self.causes.iter().take(MAX_TOLD) {
            let on = match reason.nodes.count() {
                0 => String::new(),
                nodes => format!(" on {}", count(nodes, "node")),
            };
            let remedy = reason
                .remedy
                .as_ref()
                .map_or_else(String::new, |remedy| format!(" -> {remedy}"));
            sentences.push(format!("{} x{on}: {}{remedy}", reason.count, reason.cause));
        }
        if self.causes.len() > MAX_TOLD {
            sentences.push(format!(
                "There are {} more causes.",
                self.causes.len() - MAX_TOLD
            ));
        }
        let Event {
            time, plugin, node, ..
        } = &self.first;
        sentences.push(format!("It began with {plugin} on {node} at {time}."));
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_with_the_cause_is_chosen() {
        for (text, cause) in [
            (
                "test/e2e/framework/pod.go:123\nUnexpected error:\n    <*errors.errorString | \
                 0xc0001>: {\n  timed out waiting for the condition\n}\noccurred",
                "timed out waiting for the condition",
            ),
            (
                "[FAILED] something odd\nIn [It] at: test/e2e/a.go:12 @ 01/02/26",
                "something odd",
            ),
            ("odd: 1\nmore", "odd: <n>"),
            (
                "it ended, and said last:\n\n  no disk 3 here\nmore",
                "it ended, and said last: no disk <n> here",
            ),
            (
                "first\nGet \"https://10.0.0.1:443/api\": dial tcp 10.0.0.1:443: connect: \
                 connection refused",
                "Get \"https://<ip>:443/api\": dial tcp <ip>:443: connect: connection refused",
            ),
            // A crashed program: the last line says why, and source code that it quotes means
            // nothing.
            (
                "container `c` ended and left no result; its last output:\nTraceback (most recent \
                 call last):\n  File \"a.py\", line 3, in <module>\n    fail(\"timed out \
                 waiting\")\nKeyError: 'URL'",
                "container `c` ended and left no result; its last output: KeyError: 'URL'",
            ),
            (
                "it ended; its last output:\n  File \"a.py\", line 3\n    x = \"timed out \
                 waiting\n        ^\nSyntaxError: odd",
                "it ended; its last output: SyntaxError: odd",
            ),
            // What the program wrote before is flushed after the traceback.
            (
                "it ended; its last output:\nTraceback (most recent call last):\n  File \"a.py\", \
                 line 3\nKeyError: 'URL'\nstarting",
                "it ended; its last output: KeyError: 'URL'",
            ),
            (
                "it ended; its last output:\nstarting\npanic: no disk\n\ngoroutine 1 [running]:",
                "it ended; its last output: panic: no disk",
            ),
            ("", "a test 7: no reason given"),
            ("\n  \n", "a test 7: no reason given"),
        ] {
            let failure = ReportedFailure {
                test: "a test 7",
                text,
                ..ReportedFailure::default()
            };
            let expected = cause.replace("a test 7", "a test <n>");
            assert_eq!(Causes::default().name(&failure), expected, "{text}");
        }
    }

    #[test]
    fn result_of_a_crashed_program_is_no_test() {
        let output = "Traceback (most recent call last):\nKeyError: 'URL'\nstarting";
        let title = "it ended; its last output:";
        let message = crash_message(title, output).unwrap();
        assert_eq!(message, "it ended; its last output: KeyError: 'URL'");
        let mut causes = Causes::default();
        causes.add(&ReportedFailure {
            test: &format!("{title}\n{output}"),
            text: &format!("{message}\n{output}"),
            ..ReportedFailure::default()
        });
        let [cause] = &causes.list()[..] else {
            panic!("one cause")
        };
        assert_eq!(cause.cause, message);
        assert_eq!(cause.names, []);
    }

    #[test]
    fn failures_of_one_cause_are_counted_together() {
        let mut causes = Causes::new(["n1", "n2"]);
        for (node, test, text) in [
            ("n1", "a", "dial tcp 10.0.0.1:443: i/o timeout"),
            ("n2", "a", "dial tcp 10.0.0.2:443: i/o timeout"),
            ("n2", "b", "dial tcp 10.0.0.3:443: i/o timeout\nmore"),
            ("n1", "c", "odd"),
        ] {
            causes.add(&ReportedFailure {
                plugin: "p",
                node: Some(node),
                test,
                text,
                ..ReportedFailure::default()
            });
        }
        causes.add(&ReportedFailure {
            plugin: "q",
            test: "d",
            text: "odd",
            remedy: Some("help"),
            ..ReportedFailure::default()
        });
        let list = causes.list();
        let shown: Vec<_> = list
            .iter()
            .map(|c| (c.cause.as_str(), c.count, c.extent()))
            .collect();
        assert_eq!(
            shown,
            [
                (
                    "dial tcp <ip>:443: i/o timeout",
                    3,
                    "2 tests on 2 nodes, values differ".to_owned()
                ),
                ("odd", 2, "2 tests on 1 node".to_owned()),
            ]
        );
        assert_eq!(
            list[0].example.lines,
            ["dial tcp 10.0.0.1:443: i/o timeout"]
        );
        assert!(list[0].remedy.as_ref().unwrap().contains("waited for"));
        assert_eq!(list[1].plugins, ["p", "q"]);
    }

    #[test]
    fn written_contact_is_read_back() {
        let log = format!(
            "time=\"t\" level=error msg=\"{}\"\ntime=\"t\" level=error msg=\"{}\"\nlevel=info \
             msg=\"x\"\n",
            unreached("first"),
            unreached("`https://a:1`: \\\"quoted\\\" timeout")
        );
        assert_eq!(
            why_unreached(&log).as_deref(),
            Some("`https://a:1`: \"quoted\" timeout")
        );
        for nothing in ["", "cannot reach the aggregator: ", "else"] {
            assert_eq!(why_unreached(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn run_without_results_lists_causes_by_count() {
        let event = |time: &str, node: &str, error: &str| Event {
            time: time.into(),
            plugin: "p".into(),
            node: node.into(),
            error: error.into(),
        };
        let refused =
            "cannot reach the aggregator: no connection to 10.0.0.1:8080: Connection refused";
        let why = Why::new(vec![
            event("2026-01-01T00:00:05Z", "n1", refused),
            event("2026-01-01T00:00:03Z", "global", "odd"),
            event("2026-01-01T00:00:04Z", "n2", refused),
        ]);
        let told = why.sentences();
        assert_eq!(
            told[0],
            "The run failed as a whole: none of its 3 results arrived."
        );
        assert!(
            told[1].starts_with(
                "2 x on 2 nodes: cannot reach the aggregator: no connection to <ip>:8080"
            ),
            "{told:?}"
        );
        assert!(
            told[1].contains(" -> a network policy or firewall"),
            "{told:?}"
        );
        assert_eq!(
            told[2..],
            [
                "1 x: odd",
                "It began with p on global at 2026-01-01T00:00:03Z."
            ]
        );
        let text = serde_json::to_string(&why).unwrap();
        let again: Why = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
