//! Groups failures by cause, and knows the remedies of common ones.
//!
//! Pure: texts in, values out. Owns the masking (numbers, addresses, identifiers, times, names of nodes), the choice of a
//! failure's significant line, and the table of remedies. Does not know the origin or the display of texts.

mod contact;
mod image;
mod known;
mod mask;
mod why;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher as _};

use serde::Serialize;

pub(crate) use contact::{message, unreached, why_unreached};
pub(crate) use image::{is_local_image, load_commands, missing_image};
use mask::mask;
pub(crate) use why::{Event, Why};

/// Maximum length of a cause.
const CAUSE: usize = 200;
/// Maximum lines of an example, and their maximum length.
const LINES: usize = 6;
const LINE: usize = 300;
/// Maximum distinct causes; further ones are combined.
const CAUSES: usize = 2_000;
/// Maximum bytes of a failure searched for its significant line.
const LOOKED_AT: usize = 64 << 10;

/// The remedy for the cause that a text indicates, if known.
pub(crate) fn remedy(text: &str) -> Option<&'static str> {
    known::find(text).map(|known| known.remedy)
}

/// Appends the remedy to a text, unless the text has one, which follows a semicolon.
pub(crate) fn advised(text: &str) -> String {
    match remedy(text).filter(|_| !text.contains("; ")) {
        Some(remedy) => format!("{text}; {remedy}"),
        None => text.to_owned(),
    }
}

/// One failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failure<'a> {
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

/// Failures with a common cause.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cause {
    /// Their common text.
    pub cause: String,
    /// The number of failures.
    pub count: u64,
    /// The number of distinct tests, by name.
    pub tests: usize,
    /// The number of nodes; 0 if unknown.
    pub nodes: usize,
    /// The plugins concerned.
    pub plugins: Vec<String>,
    /// One of the failures.
    pub example: Example,
    /// The remedy.
    pub remedy: Option<String>,
    /// Link to more information.
    pub link: Option<String>,
    /// Its number, in order of first occurrence.
    #[serde(skip)]
    pub place: usize,
    #[serde(skip)]
    seen: [HashSet<u64>; 2],
}

/// One failure of a cause.
#[derive(Debug, Serialize)]
pub(crate) struct Example {
    /// The plugin.
    pub plugin: String,
    /// The node.
    pub node: Option<String>,
    /// The test.
    pub test: String,
    /// The first lines, starting with the significant one.
    pub lines: Vec<String>,
}

/// Failures, grouped by their causes.
#[derive(Default)]
pub(crate) struct Causes {
    of: HashMap<String, usize>,
    list: Vec<Cause>,
    nodes: HashSet<String>,
}

impl Causes {
    /// An empty collection; `nodes` are the names to mask.
    pub(crate) fn new<'n>(nodes: impl IntoIterator<Item = &'n str>) -> Self {
        Self { nodes: nodes.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// The cause of a text, as used for grouping.
    pub(crate) fn name(&self, failure: &Failure<'_>) -> String {
        let text = head(failure.text, LOOKED_AT);
        let mut lines = text.lines().skip(speaking(text));
        let line = lines.next().unwrap_or_default().trim_end();
        // A line that ends in a colon announces the next one.
        let next = lines.find(|line| !line.trim().is_empty()).filter(|_| line.ends_with(':'));
        let line = &next.map_or_else(|| line.to_owned(), |next| format!("{line} {}", next.trim()));
        if line.trim().is_empty() {
            return format!("{}: no reason given", cut(&mask(failure.test, &self.nodes), CAUSE));
        }
        cut(&mask(once(line), &self.nodes), CAUSE).into_owned()
    }

    /// Adds a failure; returns the index of its cause.
    pub(crate) fn add(&mut self, failure: &Failure<'_>) -> usize {
        let mut name = self.name(failure);
        if self.list.len() >= CAUSES && !self.of.contains_key(&name) {
            name = "other causes".into();
        }
        let place = *self.of.entry(name.clone()).or_insert_with(|| {
            let place = self.list.len();
            self.list.push(Cause::new(name, place, failure));
            place
        });
        self.list[place].count(failure);
        place
    }

    /// The causes, by descending number of failures.
    pub(crate) fn list(mut self) -> Vec<Cause> {
        self.list.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.cause.cmp(&b.cause)));
        self.list
    }
}

impl Cause {
    fn new(cause: String, place: usize, failure: &Failure<'_>) -> Self {
        let text = head(failure.text, LOOKED_AT);
        let lines =
            text.lines().skip(speaking(text)).map(str::trim_end).filter(|line| !line.trim().is_empty());
        let example = Example {
            plugin: failure.plugin.to_owned(),
            node: failure.node.map(str::to_owned),
            test: failure.test.to_owned(),
            lines: lines.take(LINES).map(|line| cut(once(line), LINE).into_owned()).collect(),
        };
        let remedy = failure.remedy.or_else(|| remedy(text));
        Self {
            cause,
            count: 0,
            tests: 0,
            nodes: 0,
            plugins: Vec::new(),
            example,
            remedy: remedy.map(str::to_owned),
            link: failure.link.map(str::to_owned),
            place,
            seen: [HashSet::new(), HashSet::new()],
        }
    }

    fn count(&mut self, failure: &Failure<'_>) {
        self.count += 1;
        if self.seen[0].insert(digest(&(failure.plugin, failure.test))) {
            self.tests += 1;
        }
        if failure.node.is_some_and(|node| self.seen[1].insert(digest(&node))) {
            self.nodes += 1;
        }
        if !self.plugins.iter().any(|plugin| plugin == failure.plugin) {
            self.plugins.push(failure.plugin.to_owned());
        }
    }

    /// The numbers of tests and nodes, for display.
    pub(crate) fn extent(&self) -> String {
        let of = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        match self.nodes {
            0 => of(self.tests, "test"),
            nodes => format!("{} on {}", of(self.tests, "test"), of(nodes, "node")),
        }
    }
}

fn digest(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Removes a repetition from a line, as in files with a message beside the text that begins with it.
fn once(line: &str) -> &str {
    let doubled = ["", "[FAILED] ", "Error: "].iter().find_map(|between| {
        let half = line.len().checked_sub(between.len() + 1)? / 2;
        let (first, rest) = (line.get(..half)?, line.get(half..)?);
        let second = rest.strip_prefix(' ')?.strip_prefix(between)?;
        (first == second && !first.trim().is_empty()).then_some(first)
    });
    let line = doubled.unwrap_or(line);
    line.strip_prefix("[FAILED] ").unwrap_or(line)
}

/// Index of the significant line of a failure: the first with a known cause, else the first that is not a bare location.
fn speaking(text: &str) -> usize {
    let lines = || text.lines().enumerate().take(400);
    let told = lines().find(|(_, line)| !frame(line) && known::find(line).is_some());
    told.or_else(|| lines().find(|(_, line)| !frame(line))).map_or(0, |(at, _)| at)
}

/// Whether a line contains only a location.
fn frame(line: &str) -> bool {
    let line = line.trim().trim_end_matches([':', '{', '}', ',']).trim();
    let place = |word: &str| {
        let (file, number) = word.split_once(':').unwrap_or((word, "1"));
        let number = number.trim_end_matches(':');
        [".go", ".rs", ".py", ".sh", ".js"].iter().any(|end| file.ends_with(end))
            && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
    };
    line.is_empty()
        || ["Unexpected error", "occurred", "Full Stack Trace", "Expected", "to equal", "goroutine "]
            .contains(&line)
        || line.starts_with("goroutine ")
        || line.starts_with("<*") && !line.contains(' ')
        || line.starts_with('<') && line.contains(" | 0x") && line.ends_with('>')
        || line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|word| !word.contains(' '))
        || place(line.strip_prefix("In [It] at: ").unwrap_or(line).split(' ').next().unwrap_or_default())
            && line.split(' ').count() <= 3
}

/// At most `limit` bytes from the beginning.
fn head(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    match head(text, limit) {
        whole if whole.len() == text.len() => text.into(),
        part => format!("{part}…").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_tells_the_cause_speaks() {
        for (text, cause) in [
            (
                "test/e2e/framework/pod.go:123\nUnexpected error:\n    <*errors.errorString | 0xc0001>: {\n  timed out waiting for the condition\n}\noccurred",
                "timed out waiting for the condition",
            ),
            ("[FAILED] something odd\nIn [It] at: test/e2e/a.go:12 @ 01/02/26", "something odd"),
            // A message, followed by the text that begins with it.
            ("something odd [FAILED] something odd\nIn [It] at: test/e2e/a.go:12", "something odd"),
            ("odd: 1 odd: 1\nmore", "odd: <n>"),
            (
                "it ended, and said last:\n\n  no disk 3 here\nmore",
                "it ended, and said last: no disk <n> here",
            ),
            (
                "first\nGet \"https://10.0.0.1:443/api\": dial tcp 10.0.0.1:443: connect: connection refused",
                "Get \"https://<ip>:443/api\": dial tcp <ip>:443: connect: connection refused",
            ),
            ("", "a test 7: no reason given"),
            ("\n  \n", "a test 7: no reason given"),
        ] {
            let failure = Failure { test: "a test 7", text, ..Failure::default() };
            let expected = cause.replace("a test 7", "a test <n>");
            assert_eq!(Causes::default().name(&failure), expected, "{text}");
        }
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
            causes.add(&Failure { plugin: "p", node: Some(node), test, text, ..Failure::default() });
        }
        causes.add(&Failure {
            plugin: "q",
            test: "d",
            text: "odd",
            remedy: Some("help"),
            ..Failure::default()
        });
        let list = causes.list();
        let shown: Vec<_> = list.iter().map(|c| (c.cause.as_str(), c.count, c.extent())).collect();
        assert_eq!(
            shown,
            [
                ("dial tcp <ip>:443: i/o timeout", 3, "2 tests on 2 nodes".to_owned()),
                ("odd", 2, "2 tests on 1 node".to_owned()),
            ]
        );
        assert_eq!(list[0].example.lines, ["dial tcp 10.0.0.1:443: i/o timeout"]);
        assert!(list[0].remedy.as_ref().unwrap().contains("waited for"));
        assert_eq!(list[1].plugins, ["p", "q"]);
    }
}
