//! `results diff`: what changed between two archives, test by test.
//!
//! A test is the same in both if plugin, node and name match; of several with one name the first is compared with the
//! first, the second with the second. Files and suites may have other names. Results of a plugin or node in only one
//! archive are one change. The first archive is held as one number per test, so that runs of any size can be
//! compared.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write;

use serde::Serialize;

use super::column::{self, Column};
use super::health;
use super::json::SCHEMA_VERSION;
use super::leaf::{self, Leaf};
use super::look::{Look, fit};
use super::open::Opened;
use super::overview::{FAILED_CODE, Overview, UNKNOWN_CODE};
use super::snapshot::Objects;
use super::times::spoken;
use super::words::count;
use crate::item::{FAILED, FLAKY, PASSED, TIMEOUT, UNKNOWN};
use crate::layout;
use base::json::json;
use base::visible;

/// Factor and minimum in seconds from which a test is reported as slower.
const SLOWER: f32 = 3.0;
const SLOW: f32 = 1.0;
/// Maximum size of one failure's reason, and of all.
const WHY: usize = 4 << 10;
const ALL_WHY: usize = 500 << 10;
/// Maximum tests of a kind in the text.
const MAX_LISTED: usize = 200;

/// The change of a test, in order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
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
pub(crate) const KINDS: [(Kind, &str, &str); 7] = [
    (Kind::NewlyFailing, "newlyFailing", "Newly failing"),
    (Kind::StillFailing, "stillFailing", "Still failing"),
    (Kind::Fixed, "fixed", "Fixed"),
    (Kind::Vanished, "vanished", "Vanished"),
    (Kind::Appeared, "appeared", "Appeared"),
    (Kind::Changed, "changed", "Changed otherwise"),
    (Kind::Slower, "slower", "Much slower"),
];

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
#[derive(Debug, Default)]
pub(crate) struct Diff {
    changes: Vec<Change>,
    /// Number of unchanged tests.
    pub unchanged: u64,
    /// Facts of nodes that changed.
    pub facts: Vec<String>,
    /// The two runs in brief.
    pub runs: [Column; 2],
    /// Bytes left for reasons of failures.
    room: usize,
}

/// Numbers tests of equal names, and hashes each test to one key.
#[derive(Default)]
struct Keys {
    seen: HashMap<u64, u32>,
}

impl Keys {
    fn of(&mut self, plugin: &str, leaf: &Leaf<'_>) -> u64 {
        let hash = |nth: u32| {
            let mut hasher = DefaultHasher::new();
            // The wording of a missing result's reason varies.
            let name = if leaf.is_error() { "" } else { &leaf.item.name };
            (plugin, leaf.node, name, nth).hash(&mut hasher);
            hasher.finish()
        };
        let nth = self.seen.entry(hash(0)).and_modify(|nth| *nth += 1).or_insert(0);
        hash(*nth)
    }
}

/// A test of the first archive: its status, as a number, and whether the second archive has it.
struct Before {
    status: u32,
    met: bool,
    /// Duration; 0 if unknown.
    seconds: f32,
}

/// Results of a plugin from one node, or overall.
#[derive(Default)]
struct Place {
    tests: u64,
    failed: u64,
}

/// All places of an archive, by plugin and node.
struct Places(BTreeMap<String, BTreeMap<String, Place>>);

impl Places {
    fn of(opened: &Opened) -> anyhow::Result<Self> {
        let mut places = Self(BTreeMap::new());
        each(opened, |_, plugin, leaf| {
            if !places.0.contains_key(plugin) {
                places.0.insert(plugin.to_owned(), BTreeMap::new());
            }
            let (Some(nodes), node) = (places.0.get_mut(plugin), leaf.node.unwrap_or_default()) else {
                return;
            };
            if !nodes.contains_key(node) {
                nodes.insert(node.to_owned(), Place::default());
            }
            let Some(place) = nodes.get_mut(node) else { return };
            place.tests += u64::from(!leaf.is_error());
            place.failed += u64::from(failing(leaf.status()));
        })?;
        Ok(places)
    }

    fn get(&self, plugin: &str, node: Option<&str>) -> Option<&Place> {
        self.0.get(plugin)?.get(node.unwrap_or_default())
    }

    /// Whether the archive has no test of the plugin from that node.
    fn lacks(&self, plugin: &str, node: Option<&str>) -> bool {
        self.get(plugin, node).is_none_or(|place| place.tests == 0)
    }

    /// Adds one change for all tests of a place, or of a plugin, that the other archive lacks.
    fn only_here(&self, other: &Self, kind: Kind, changes: &mut Vec<Change>) {
        let mut all = |plugin: &str, node: Option<&str>, tests: u64| {
            if tests > 1 {
                let test = format!("all {}", count(tests, "test"));
                changes.push(Change { tests, ..Change::new(kind, plugin, node, test) });
            }
        };
        for (plugin, nodes) in &self.0 {
            if other.0.contains_key(plugin) {
                let gone =
                    nodes.iter().map(|(node, place)| (Some(node.as_str()).filter(|n| !n.is_empty()), place));
                gone.filter(|(node, _)| other.lacks(plugin, *node))
                    .for_each(|(node, place)| all(plugin, node, place.tests));
            } else {
                all(plugin, None, nodes.values().map(|place| place.tests).sum());
            }
        }
    }

    /// Whether such a change covers the test.
    fn is_told(&self, other: &Self, plugin: &str, leaf: &Leaf<'_>) -> bool {
        let tests = match other.0.contains_key(plugin) {
            true if !other.lacks(plugin, leaf.node) => return false,
            true => self.get(plugin, leaf.node).map_or(0, |place| place.tests),
            false => self.0.get(plugin).into_iter().flat_map(BTreeMap::values).map(|place| place.tests).sum(),
        };
        tests > 1 && !leaf.is_error()
    }
}

fn failing(status: &str) -> bool {
    matches!(status, FAILED | TIMEOUT)
}

impl Diff {
    /// Compares two archives. Results of a plugin, or its node, in only one of them appear or vanish as a whole.
    pub(crate) fn between(before: &Opened, after: &Opened) -> anyhow::Result<Self> {
        let (was, is) = (Places::of(before)?, Places::of(after)?);
        let mut statuses = Vec::<String>::new();
        let mut old = HashMap::new();
        each(before, |keys, plugin, leaf| {
            let status = statuses.iter().position(|status| status == leaf.status()).unwrap_or_else(|| {
                statuses.push(leaf.status().to_owned());
                statuses.len() - 1
            });
            let status = u32::try_from(status).unwrap_or(u32::MAX);
            old.insert(keys.of(plugin, leaf), Before { status, met: false, seconds: seconds(leaf) });
        })?;
        let status_of = |before: &Before| statuses[before.status as usize].clone();
        let mut diff = Self { room: ALL_WHY, ..Self::default() };
        was.only_here(&is, Kind::Vanished, &mut diff.changes);
        each(after, |keys, plugin, leaf| {
            let before = old.get_mut(&keys.of(plugin, leaf)).map(|before| {
                before.met = true;
                (status_of(before), before.seconds)
            });
            // A place with only an error before is fixed, and is reported below.
            let told = was.get(plugin, leaf.node).is_some_and(|place| place.tests == 0)
                || is.is_told(&was, plugin, leaf);
            if before.is_none() && told && !failing(leaf.status()) && leaf.status() != UNKNOWN {
                return;
            }
            let (status, took) = before.unzip();
            diff.note(plugin, leaf, status, took.unwrap_or_default());
        })?;
        let mut appeared = Vec::new();
        is.only_here(&was, Kind::Appeared, &mut appeared);
        appeared.retain(|change| was.get(&change.plugin, change.node.as_deref()).is_none());
        diff.changes.append(&mut appeared);
        each(before, |keys, plugin, leaf| {
            if old.get(&keys.of(plugin, leaf)).is_some_and(|before| !before.met)
                && !was.is_told(&is, plugin, leaf)
            {
                let now = is.get(plugin, leaf.node).filter(|place| leaf.is_error() && place.tests > 0);
                let (kind, after) = match now {
                    None => (Kind::Vanished, None),
                    Some(place) if place.failed == 0 && failing(leaf.status()) => (Kind::Fixed, Some(PASSED)),
                    Some(place) => (Kind::Changed, Some(if place.failed > 0 { FAILED } else { PASSED })),
                };
                let mut change = Change::of(kind, plugin, leaf);
                change.before = Some(leaf.status().to_owned());
                change.after = after.map(str::to_owned);
                diff.changes.push(change);
            }
        })?;
        diff.facts = before.facts.changes(&after.facts);
        let run = |opened| anyhow::Ok(Column::of(&Overview::read(opened, None)?));
        diff.runs = [run(before)?, run(after)?];
        diff.changes.sort_by(|a, b| {
            (a.kind, &a.plugin, &a.test, &a.node).cmp(&(b.kind, &b.plugin, &b.test, &b.node))
        });
        Ok(diff)
    }

    fn note(&mut self, plugin: &str, leaf: &Leaf<'_>, before: Option<String>, was: f32) {
        let after = leaf.status();
        let kind = match &before {
            None if failing(after) => Kind::NewlyFailing,
            None => Kind::Appeared,
            Some(before) if failing(before) && failing(after) => Kind::StillFailing,
            Some(before) if before == after => {
                let is = seconds(leaf);
                if was > 0.0 && is >= SLOW && is >= SLOWER * was {
                    let told = |seconds: f32| Some(spoken(seconds.into()));
                    let slower = Change::of(Kind::Slower, plugin, leaf);
                    self.changes.push(Change { before: told(was), after: told(is), ..slower });
                } else {
                    self.unchanged += 1;
                }
                return;
            }
            Some(_) if failing(after) => Kind::NewlyFailing,
            Some(before) if failing(before) && after == PASSED => Kind::Fixed,
            Some(_) => Kind::Changed,
        };
        let mut change = Change { before, after: Some(after.to_owned()), ..Change::of(kind, plugin, leaf) };
        if failing(after) && self.room > 0 {
            let text = leaf.complaint();
            let end =
                text.char_indices().map(|(at, _)| at).take_while(|at| *at <= WHY).last().unwrap_or_default();
            change.why = if text.len() > WHY { format!("{}…", &text[..end]) } else { text };
            self.room = self.room.saturating_sub(change.why.len());
        }
        self.changes.push(change);
    }

    /// The exit code for `--fail-on limit`, with the reason; see the table in `docs/results.md`.
    pub(crate) fn ending(&self, limit: &str) -> Option<(u8, String)> {
        let told = |code, words: &str, counts: &dyn Fn(&Change) -> bool| {
            let tests = self.changes.iter().filter(|change| counts(change)).map(|change| change.tests).sum();
            (tests > 0).then(|| (code, format!("{} {words}", count(tests, "test"))))
        };
        let newly = |change: &Change, status: &str| {
            change.after.as_deref() == Some(status) && change.before.as_deref() != Some(status)
        };
        let failing =
            || told(FAILED_CODE, "newly failing", &|change: &Change| change.kind == Kind::NewlyFailing);
        let flaky = || told(FAILED_CODE, "newly flaky", &|change: &Change| newly(change, FLAKY));
        let vanished = || told(UNKNOWN_CODE, "vanished", &|change: &Change| change.kind == Kind::Vanished);
        let unknown = || told(UNKNOWN_CODE, "newly unknown", &|change: &Change| newly(change, UNKNOWN));
        match limit {
            "failed" => failing(),
            "vanished" => vanished(),
            "incomplete" => failing().or_else(vanished),
            "unknown" => failing().or_else(vanished).or_else(unknown),
            "flaky" => failing().or_else(flaky).or_else(vanished).or_else(unknown),
            _ => None,
        }
    }

    /// The changes of a kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.kind == kind)
    }

    /// Number of tests of a kind.
    pub(crate) fn tests(&self, kind: Kind) -> u64 {
        self.of(kind).map(|change| change.tests).sum()
    }

    /// All changes.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Writes one JSON document.
    pub(crate) fn write_json(
        &self,
        before: &Opened,
        after: &Opened,
        objects: Option<&Objects>,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        writeln!(out, "{{\n\"schemaVersion\": {SCHEMA_VERSION},")?;
        writeln!(
            out,
            "\"before\": {},\n\"after\": {},",
            json!(before.source.label()),
            json!(after.source.label())
        )?;
        for (kind, name, _) in KINDS {
            let changes: Vec<_> = self.of(kind).collect();
            writeln!(out, "\"{name}\": {},", serde_json::to_string(&changes)?)?;
        }
        if let Some(objects) = objects {
            writeln!(out, "\"objects\": {},", serde_json::to_string(objects)?)?;
        }
        let [was, is] = &self.runs;
        let versions: Vec<_> = column::changed(was, is)
            .into_iter()
            .map(|(name, before, after)| json!({"name": name, "before": before, "after": after}))
            .collect();
        writeln!(out, "\"versions\": {},", json!(versions))?;
        let durations: Vec<_> = self
            .durations()
            .map(|(plugin, before, after)| json!({"plugin": plugin, "before": before, "after": after}))
            .collect();
        writeln!(out, "\"durations\": {},", json!(durations))?;
        writeln!(out, "\"facts\": {},", json!(self.facts))?;
        Ok(writeln!(out, "\"unchanged\": {}\n}}", self.unchanged)?)
    }

    /// Writes the text report.
    pub(crate) fn write_text(&self, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
        for (kind, _, title) in KINDS {
            let rows = self.of(kind).count();
            if rows == 0 {
                continue;
            }
            let colour = match kind {
                Kind::NewlyFailing => "31",
                Kind::Fixed => "32",
                Kind::StillFailing => "33",
                _ => "1",
            };
            let title = format!("{title}: {}", self.tests(kind));
            writeln!(out, "{}", if look.colour { format!("\x1b[{colour}m{title}\x1b[0m") } else { title })?;
            for change in self.of(kind).take(MAX_LISTED) {
                writeln!(out, "{}", fit(&change.line(), look.width))?;
            }
            if rows > MAX_LISTED {
                writeln!(out, "  and {} more", rows - MAX_LISTED)?;
            }
            writeln!(out)?;
        }
        self.write_runs(out)?;
        if !self.facts.is_empty() {
            writeln!(out, "Facts of nodes that changed: {}", self.facts.len())?;
            for change in self.facts.iter().take(MAX_LISTED) {
                writeln!(out, "  {}", fit(&visible::line(change), look.width))?;
            }
            if self.facts.len() > MAX_LISTED {
                writeln!(out, "  and {} more", self.facts.len() - MAX_LISTED)?;
            }
            writeln!(out)?;
        }
        // Counts of each kind, by plugin: the summary.
        let mut plugins = BTreeMap::<&str, BTreeMap<Kind, u64>>::new();
        for change in &self.changes {
            *plugins.entry(&change.plugin).or_default().entry(change.kind).or_default() += change.tests;
        }
        for (plugin, counts) in plugins {
            let counts = KINDS.iter().filter_map(|(kind, _, title)| {
                Some(format!("{} {}", counts.get(kind)?, title.to_lowercase()))
            });
            writeln!(out, "{}: {}", visible::line(plugin), counts.collect::<Vec<_>>().join(", "))?;
        }
        Ok(writeln!(out, "Unchanged: {}", self.unchanged)?)
    }
}

impl Diff {
    /// Duration of the run and each plugin before and after; the run has no name.
    pub(crate) fn durations(&self) -> impl Iterator<Item = (Option<&str>, f64, f64)> {
        let [before, after] = &self.runs;
        let run = before.duration.zip(after.duration).map(|(before, after)| (None, before, after));
        let plugins = before.plugins.iter().filter_map(|(name, cell)| {
            let now = after.plugins.get(name)?;
            Some((Some(name.as_str()), cell.duration?, now.duration?))
        });
        run.into_iter().chain(plugins)
    }

    /// Writes the differences in versions, and durations that differ considerably.
    fn write_runs(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let [before, after] = &self.runs;
        let known =
            |version: &str| if version.is_empty() { "unknown".to_owned() } else { version.to_owned() };
        let versions = column::changed(before, after)
            .into_iter()
            .map(|(name, before, after)| format!("{name}: {} -> {}", known(before), known(after)));
        let durations = self
            .durations()
            .filter(|(_, before, after)| before.max(*after) > column::LONGER * before.min(*after) + 1.0);
        let durations = durations.map(|(plugin, before, after)| {
            format!("{}: {} -> {}", plugin.unwrap_or("the run"), spoken(before), spoken(after))
        });
        for (title, lines) in [
            ("Versions that changed", versions.collect::<Vec<_>>()),
            ("Durations that changed", durations.collect()),
        ] {
            if !lines.is_empty() {
                writeln!(out, "{title}: {}", lines.len())?;
                lines.iter().try_for_each(|line| writeln!(out, "  {}", visible::line(line)))?;
                writeln!(out)?;
            }
        }
        Ok(())
    }
}

impl Change {
    fn new(kind: Kind, plugin: &str, node: Option<&str>, test: String) -> Self {
        let (plugin, node) = (plugin.to_owned(), node.map(str::to_owned));
        Self { kind, plugin, node, test, tests: 1, before: None, after: None, why: String::new() }
    }

    fn of(kind: Kind, plugin: &str, leaf: &Leaf<'_>) -> Self {
        Self::new(kind, plugin, leaf.node, leaf.item.name.clone())
    }

    fn line(&self) -> String {
        let node = self.node.as_ref().map(|node| format!(" [{node}]")).unwrap_or_default();
        let statuses = match (&self.before, &self.after) {
            (Some(before), Some(after)) if before != after => format!(" ({before} -> {after})"),
            (None, Some(only)) | (Some(only), None) => format!(" ({only})"),
            _ => String::new(),
        };
        // Names of tests are untrusted: a terminal must not interpret them.
        visible::line(&format!("  {}{node}{statuses}: {}", self.plugin, self.test)).into_owned()
    }
}

/// Duration of a test; 0 if unknown.
fn seconds(leaf: &Leaf<'_>) -> f32 {
    leaf.duration.unwrap_or_default() as f32
}

/// Visits every leaf of every plugin.
fn each(opened: &Opened, mut visit: impl FnMut(&mut Keys, &str, &Leaf<'_>)) -> anyhow::Result<()> {
    let mut keys = Keys::default();
    for plugin in opened.plugins.iter().filter(|plugin| *plugin != health::NAME) {
        if opened.files.has(&layout::tree(plugin)) {
            leaf::each(&opened.files, plugin, None, |leaf| {
                let duration = leaf.took(plugin, &opened.survey);
                visit(&mut keys, plugin, &Leaf { duration, ..*leaf });
                Ok(())
            })?;
        }
    }
    Ok(())
}
