//! `results diff`: what changed between two archives, test by test.
//!
//! A test is the same in both if plugin, node and name match; of several with one name the first is compared with the
//! first, the second with the second. Files and suites may have other names. Results of a plugin or node in only one
//! archive are one change. The first archive is held as one number per test, so that runs of any size can be
//! compared.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::Result;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::archive::Archive;
use super::case::{Case, Cases};
use super::many::{self, Column, Took, Version};
use super::run::{FAILED_CODE, Report, SCHEMA_VERSION, UNKNOWN_CODE};
use super::snapshot::Objects;
use super::terminal::{BOLD, GREEN, RED, Terminal, YELLOW};
use super::times::spoken;
use super::words::count;
use crate::item::{FAILED, FLAKY, PASSED, TIMEOUT, UNKNOWN};
use crate::layout;
use base::visible;

/// Factor and minimum in seconds from which a test is reported as slower.
const SLOWER: f64 = 3.0;
const SLOW: f64 = 1.0;
/// Maximum length of one failure's reason, and bytes of all.
const WHY: usize = 4 << 10;
const ALL_WHY: usize = 500 << 10;
/// Maximum tests of a kind in the text.
const MAX_LISTED: usize = 200;

/// The change of a test, in order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Fails now but did not before, or is new and fails.
    NewlyFailing,
    /// Failed before and still fails.
    StillFailing,
    /// Failed before and passes now.
    Fixed,
    /// Present before, absent now.
    Vanished,
    /// Absent before; does not fail.
    Appeared,
    /// Any other change of status.
    Changed,
    /// Same status, but much slower.
    Slower,
}

/// Each kind with its name in JSON and in text.
const KINDS: [(Kind, &str, &str); 7] = [
    (Kind::NewlyFailing, "newlyFailing", "Newly failing"),
    (Kind::StillFailing, "stillFailing", "Still failing"),
    (Kind::Fixed, "fixed", "Fixed"),
    (Kind::Vanished, "vanished", "Vanished"),
    (Kind::Appeared, "appeared", "Appeared"),
    (Kind::Changed, "changed", "Changed otherwise"),
    (Kind::Slower, "slower", "Much slower"),
];

impl Kind {
    /// Its name in JSON.
    pub(crate) fn key(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Its name in text.
    pub(crate) fn title(self) -> &'static str {
        KINDS[self as usize].2
    }
}

/// One changed test.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    #[serde(skip)]
    pub kind: Kind,
    pub plugin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub test: String,
    /// Number of tests it represents.
    #[serde(skip_serializing_if = "is_one")]
    pub tests: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The reason of the failure, for the page.
    #[serde(skip)]
    pub why: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

/// All changes, and the number of unchanged tests.
#[derive(Default)]
pub(crate) struct Diff {
    /// All changes, by kind.
    pub changes: Vec<Change>,
    /// Number of unchanged tests.
    pub unchanged: u64,
    /// Facts of nodes that changed.
    pub facts: Vec<String>,
    /// The two runs in brief.
    pub runs: [Column; 2],
    /// Objects of the cluster that changed, if they are compared.
    pub objects: Option<Objects>,
    /// Bytes left for reasons of failures.
    room: usize,
}

/// Numbers tests of equal names, and hashes each test to one key.
#[derive(Default)]
struct Seen(HashMap<u64, u32>);

impl Seen {
    fn key(&mut self, case: &Case<'_>) -> u64 {
        let hash = |nth: u32| {
            let mut hasher = DefaultHasher::new();
            // The wording of a missing result's reason varies.
            let name = if case.is_error() { "" } else { case.name };
            (case.plugin, case.node, name, nth).hash(&mut hasher);
            hasher.finish()
        };
        let nth = self.0.entry(hash(0)).and_modify(|nth| *nth += 1).or_insert(0);
        hash(*nth)
    }
}

/// A test of the first archive: its status, as a number, and whether the second archive has it.
struct Before {
    status: usize,
    met: bool,
    seconds: Option<f64>,
}

/// Results of a plugin from one node, or overall.
#[derive(Default)]
struct NodeResults {
    tests: u64,
    failed: u64,
}

/// All places of an archive, by plugin and node, which is empty for none.
#[derive(Default)]
struct ResultsByNode(BTreeMap<String, BTreeMap<String, NodeResults>>);

impl ResultsByNode {
    fn of(report: &Report<'_>) -> Self {
        let mut all = Self::default();
        for plugin in &report.plugins {
            for suite in &plugin.suites {
                let nodes = all.0.entry(plugin.name.to_owned()).or_default();
                let place = nodes.entry(suite.node.clone().unwrap_or_default()).or_default();
                place.tests += suite.counts.sum() - suite.errors;
                place.failed += suite.counts.of(FAILED);
            }
        }
        all
    }

    fn get(&self, plugin: &str, node: &str) -> Option<&NodeResults> {
        self.0.get(plugin)?.get(node)
    }

    /// The number of tests of a plugin, or its node, that the other archive lacks as a whole, if there are several.
    fn only_here(&self, other: &Self, plugin: &str, node: &str) -> Option<u64> {
        let tests = if !other.0.contains_key(plugin) {
            self.0.get(plugin)?.values().map(|place| place.tests).sum()
        } else if other.get(plugin, node).is_none_or(|place| place.tests == 0) {
            self.get(plugin, node)?.tests
        } else {
            0
        };
        (tests > 1).then_some(tests)
    }

    /// One change for all tests of each such plugin or node.
    fn changes(&self, other: &Self, kind: Kind) -> Vec<Change> {
        let mut changes = Vec::new();
        for (plugin, nodes) in &self.0 {
            let is_whole = !other.0.contains_key(plugin);
            for node in nodes.keys().take(if is_whole { 1 } else { usize::MAX }) {
                if let Some(tests) = self.only_here(other, plugin, node) {
                    let node = Some(node.as_str()).filter(|node| !is_whole && !node.is_empty());
                    let test = format!("all {}", count(tests, "test"));
                    changes.push(Change { tests, ..Change::new(kind, plugin, node, test) });
                }
            }
        }
        changes
    }
}

fn failing(status: &str) -> bool {
    matches!(status, FAILED | TIMEOUT)
}

impl Diff {
    /// Compares two archives. Results of a plugin, or its node, in only one of them appear or vanish as a whole.
    pub(crate) fn between(before: &Archive, after: &Archive) -> Result<Self> {
        let runs = [Report::read(before, None)?, Report::read(after, None)?];
        let mut diff =
            Self { room: ALL_WHY, runs: [Column::of(&runs[0]), Column::of(&runs[1])], ..Self::default() };
        let mut statuses = Vec::<String>::new();
        let mut old = HashMap::new();
        let (was, is) = (ResultsByNode::of(&runs[0]), ResultsByNode::of(&runs[1]));
        each(&runs[0], |key, case| {
            let status = statuses.iter().position(|status| status == case.status).unwrap_or_else(|| {
                statuses.push(case.status.to_owned());
                statuses.len() - 1
            });
            old.insert(key, Before { status, met: false, seconds: case.duration });
        })?;
        diff.changes = was.changes(&is, Kind::Vanished);
        each(&runs[1], |key, case| {
            let (plugin, node) = (case.plugin, case.node.unwrap_or_default());
            let before = old.get_mut(&key).map(|before| {
                before.met = true;
                (statuses[before.status].clone(), before.seconds)
            });
            // A place with only an error before is fixed, and is reported below.
            let told = was.get(plugin, node).is_some_and(|place| place.tests == 0)
                || is.only_here(&was, plugin, node).is_some() && !case.is_error();
            if before.is_some() || !told || failing(case.status) || case.status == UNKNOWN {
                let (status, took) = before.unzip();
                diff.note(case, status, took.flatten());
            }
        })?;
        let mut appeared = is.changes(&was, Kind::Appeared);
        appeared
            .retain(|change| was.get(&change.plugin, change.node.as_deref().unwrap_or_default()).is_none());
        diff.changes.append(&mut appeared);
        each(&runs[0], |key, case| {
            let (plugin, node) = (case.plugin, case.node.unwrap_or_default());
            let told = !case.is_error() && was.only_here(&is, plugin, node).is_some();
            if old.get(&key).is_some_and(|before| !before.met) && !told {
                let now = is.get(plugin, node).filter(|place| case.is_error() && place.tests > 0);
                let (kind, after) = match now {
                    None => (Kind::Vanished, None),
                    Some(place) if place.failed == 0 && failing(case.status) => (Kind::Fixed, Some(PASSED)),
                    Some(place) => (Kind::Changed, Some(if place.failed > 0 { FAILED } else { PASSED })),
                };
                let (before, after) = (Some(case.status.to_owned()), after.map(str::to_owned));
                diff.changes.push(Change { before, after, ..Change::of(kind, case) });
            }
        })?;
        diff.facts = before.facts.changes(&after.facts);
        diff.changes.sort_by(|a, b| {
            (a.kind, &a.plugin, &a.test, &a.node).cmp(&(b.kind, &b.plugin, &b.test, &b.node))
        });
        Ok(diff)
    }

    fn note(&mut self, case: &Case<'_>, before: Option<String>, was: Option<f64>) {
        let after = case.status;
        let kind = match before.as_deref() {
            Some(before) if failing(before) && failing(after) => Kind::StillFailing,
            Some(before) if before == after => {
                let (was, is) = (was.unwrap_or_default(), case.duration.unwrap_or_default());
                if was > 0.0 && is >= SLOW && is >= SLOWER * was {
                    let (before, after) = (Some(spoken(was)), Some(spoken(is)));
                    self.changes.push(Change { before, after, ..Change::of(Kind::Slower, case) });
                } else {
                    self.unchanged += 1;
                }
                return;
            }
            _ if failing(after) => Kind::NewlyFailing,
            None => Kind::Appeared,
            Some(before) if failing(before) && after == PASSED => Kind::Fixed,
            Some(_) => Kind::Changed,
        };
        let mut change = Change { before, after: Some(after.to_owned()), ..Change::of(kind, case) };
        if failing(after) && self.room > 0 {
            change.why = visible::cut(&case.reason(), WHY).into_owned();
            self.room = self.room.saturating_sub(change.why.len());
        }
        self.changes.push(change);
    }

    /// The exit code for `--fail-on limit`, with the reason; see the table in `docs/results.md`.
    pub(crate) fn ending(&self, limit: &str) -> Option<(u8, String)> {
        let newly = |status: &str| {
            let is = |side: &Option<String>| side.as_deref() == Some(status);
            tests(self.changes.iter().filter(|change| is(&change.after) && !is(&change.before)))
        };
        let of = |kind| tests(self.changes.iter().filter(|change| change.kind == kind));
        let rules = [
            (FAILED_CODE, "newly failing", "failed incomplete unknown flaky", of(Kind::NewlyFailing)),
            (FAILED_CODE, "newly flaky", "flaky", newly(FLAKY)),
            (UNKNOWN_CODE, "vanished", "vanished incomplete unknown flaky", of(Kind::Vanished)),
            (UNKNOWN_CODE, "newly unknown", "unknown flaky", newly(UNKNOWN)),
        ];
        let rule = rules
            .into_iter()
            .find(|(_, _, limits, tests)| *tests > 0 && limits.split(' ').any(|known| known == limit));
        rule.map(|(code, words, _, tests)| (code, format!("{} {words}", count(tests, "test"))))
    }

    /// The changes of each kind that has any.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (Kind, &[Change])> {
        self.changes.chunk_by(|a, b| a.kind == b.kind).map(|changes| (changes[0].kind, changes))
    }

    /// Writes the text report.
    pub(crate) fn write_text(&self, terminal: &mut Terminal<'_>) -> Result<()> {
        // Counts of each kind, by plugin: the summary.
        let mut plugins = BTreeMap::<&str, Vec<String>>::new();
        for (kind, changes) in self.kinds() {
            let colour = match kind {
                Kind::NewlyFailing => RED,
                Kind::Fixed => GREEN,
                Kind::StillFailing => YELLOW,
                _ => BOLD,
            };
            terminal.painted(colour, &format!("{}: {}", kind.title(), tests(changes)))?;
            terminal.list(changes.iter().map(Change::line), MAX_LISTED)?;
            terminal.gap()?;
            for changes in changes.chunk_by(|a, b| a.plugin == b.plugin) {
                let told = format!("{} {}", tests(changes), kind.title().to_lowercase());
                plugins.entry(&changes[0].plugin).or_default().push(told);
            }
        }
        let [before, after] = &self.runs;
        let versions = many::versions(before, after).into_iter();
        let versions = versions
            .map(|Version { name, before, after }| format!("{name}: {} -> {}", known(before), known(after)));
        terminal.section("Versions that changed", &versions.collect::<Vec<_>>(), usize::MAX)?;
        let durations = many::durations(before, after).into_iter().filter(Took::differs);
        let durations = durations.map(|Took { plugin, before, after }| {
            format!("{}: {} -> {}", plugin.unwrap_or("the run"), spoken(before), spoken(after))
        });
        terminal.section("Durations that changed", &durations.collect::<Vec<_>>(), usize::MAX)?;
        terminal.section("Facts of nodes that changed", &self.facts, MAX_LISTED)?;
        for (plugin, counts) in plugins {
            terminal.line(&format!("{plugin}: {}", counts.join(", ")))?;
        }
        terminal.line(&format!("Unchanged: {}", self.unchanged))
    }
}

fn known(version: &str) -> &str {
    if version.is_empty() { "unknown" } else { version }
}

/// Number of tests in changes.
pub(crate) fn tests<'c>(changes: impl IntoIterator<Item = &'c Change>) -> u64 {
    changes.into_iter().map(|change| change.tests).sum()
}

/// The JSON document.
impl Serialize for Diff {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let [before, after] = &self.runs;
        let mut map = out.serialize_map(None)?;
        map.serialize_entry("schemaVersion", &SCHEMA_VERSION)?;
        map.serialize_entry("before", &before.archive)?;
        map.serialize_entry("after", &after.archive)?;
        for (kind, name, _) in KINDS {
            let changes = self.kinds().find(|(of, _)| *of == kind);
            map.serialize_entry(name, changes.map_or(&[][..], |(_, changes)| changes))?;
        }
        if let Some(objects) = &self.objects {
            map.serialize_entry("objects", objects)?;
        }
        map.serialize_entry("versions", &many::versions(before, after))?;
        map.serialize_entry("durations", &many::durations(before, after))?;
        map.serialize_entry("facts", &self.facts)?;
        map.serialize_entry("unchanged", &self.unchanged)?;
        map.end()
    }
}

impl Change {
    fn new(kind: Kind, plugin: &str, node: Option<&str>, test: String) -> Self {
        let (plugin, node) = (plugin.to_owned(), node.map(str::to_owned));
        Self { kind, plugin, node, test, tests: 1, before: None, after: None, why: String::new() }
    }

    fn of(kind: Kind, case: &Case<'_>) -> Self {
        Self::new(kind, case.plugin, case.node, case.name.to_owned())
    }

    fn line(&self) -> String {
        let node = self.node.as_ref().map(|node| format!(" [{node}]")).unwrap_or_default();
        let statuses = match (&self.before, &self.after) {
            (Some(before), Some(after)) if before != after => format!(" ({before} -> {after})"),
            (None, Some(only)) | (Some(only), None) => format!(" ({only})"),
            _ => String::new(),
        };
        format!("  {}{node}{statuses}: {}", self.plugin, self.test)
    }
}

/// Visits every case of every plugin, each with its key.
fn each(report: &Report<'_>, mut visit: impl FnMut(u64, &Case<'_>)) -> Result<()> {
    let mut seen = Seen::default();
    for plugin in &report.plugins {
        // A listed plugin may have no tree; an unreadable one is an error.
        if report.opened.files.has(&layout::tree(plugin.name)) {
            Cases { readable: true, ..plugin.cases }.each(|case| {
                visit(seen.key(case), case);
                Ok(())
            })?;
        }
    }
    Ok(())
}
