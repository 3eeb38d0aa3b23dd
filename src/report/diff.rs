//! `results diff`: what changed between two archives, test by test.
//!
//! A test is the same in both if plugin, node and name are; of several with one name the first is compared with the
//! first, the second with the second. Files and suites may be called otherwise. The first archive is held as one
//! number a test, so that runs of any size can be compared.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write;

use serde::Serialize;

use super::facts::Facts;
use super::health;
use super::json::SCHEMA_VERSION;
use super::leaf::{self, Leaf};
use super::open::Opened;
use super::overview::FAILED_CODE;
use super::snapshot::Objects;
use super::survey::Survey;
use super::times::spoken;
use super::words::count;
use crate::item::{FAILED, PASSED, TIMEOUT};
use crate::layout;
use base::json::json;
use base::visible;

/// How many times as long a test takes that is much slower, and how many seconds at least.
const SLOWER: f32 = 3.0;
const SLOW: f32 = 1.0;
/// How many tests of a kind the text lists.
const LISTED: usize = 200;

/// What became of a test. The order is that in which people want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// It did not fail before and does now, or is new and fails.
    NewlyFailing,
    /// It failed before and still does.
    StillFailing,
    /// It failed before and passes now.
    Fixed,
    /// It was there before and is not now.
    Vanished,
    /// It was not there before, and does not fail.
    Appeared,
    /// Any other change of status.
    Changed,
    /// Its status is the same, and it takes much longer.
    Slower,
}

const KINDS: [(Kind, &str, &str); 7] = [
    (Kind::NewlyFailing, "newlyFailing", "Newly failing"),
    (Kind::StillFailing, "stillFailing", "Still failing"),
    (Kind::Fixed, "fixed", "Fixed"),
    (Kind::Vanished, "vanished", "Vanished"),
    (Kind::Appeared, "appeared", "Appeared"),
    (Kind::Changed, "changed", "Changed otherwise"),
    (Kind::Slower, "slower", "Much slower"),
];

/// One test that is not as it was.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    #[serde(skip)]
    kind: Kind,
    plugin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    test: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

/// Everything that is not as it was, and how many tests are.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    changes: Vec<Change>,
    unchanged: u64,
    /// Facts of nodes that are not as they were.
    facts: Vec<String>,
}

/// How the text is printed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// With colours.
    pub colour: bool,
    /// Lines are cut at so many columns.
    pub width: Option<usize>,
}

/// Numbers tests, so that two of one name are told apart, and makes one number of all that tells a test.
#[derive(Default)]
struct Keys {
    seen: HashMap<u64, u32>,
}

impl Keys {
    fn of(&mut self, plugin: &str, leaf: &Leaf<'_>) -> u64 {
        let hash = |nth: u32| {
            let mut hasher = DefaultHasher::new();
            (plugin, leaf.node, &leaf.item.name, nth).hash(&mut hasher);
            hasher.finish()
        };
        let nth = self.seen.entry(hash(0)).and_modify(|nth| *nth += 1).or_insert(0);
        hash(*nth)
    }
}

/// What is remembered of a test of the first archive: its status, as a number, and whether it was met again.
struct Before {
    status: u32,
    met: bool,
    /// How long it took; 0 if nobody knows.
    seconds: f32,
}

impl Diff {
    /// Compares two archives. A plugin that only one of them has appears or vanishes with all its tests.
    pub(crate) fn between(before: &Opened, after: &Opened) -> anyhow::Result<Self> {
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
        let mut diff = Self::default();
        each(after, |keys, plugin, leaf| {
            let before = old.get_mut(&keys.of(plugin, leaf)).map(|before| {
                before.met = true;
                (status_of(before), before.seconds)
            });
            let (status, was) = before.unzip();
            diff.note(plugin, leaf, status, was.unwrap_or_default());
        })?;
        each(before, |keys, plugin, leaf| {
            if old.get(&keys.of(plugin, leaf)).is_some_and(|before| !before.met) {
                let status = Some(leaf.status().to_owned());
                diff.changes.push(change(Kind::Vanished, plugin, leaf, status, None));
            }
        })?;
        diff.facts = Facts::read(&before.source)?.changes(&Facts::read(&after.source)?);
        diff.changes.sort_by(|a, b| {
            (a.kind, &a.plugin, &a.test, &a.node).cmp(&(b.kind, &b.plugin, &b.test, &b.node))
        });
        Ok(diff)
    }

    fn note(&mut self, plugin: &str, leaf: &Leaf<'_>, before: Option<String>, was: f32) {
        let failing = |status: &str| matches!(status, FAILED | TIMEOUT);
        let after = leaf.status();
        let kind = match &before {
            None if failing(after) => Kind::NewlyFailing,
            None => Kind::Appeared,
            Some(before) if failing(before) && failing(after) => Kind::StillFailing,
            Some(before) if before == after => {
                let is = seconds(leaf);
                if was > 0.0 && is >= SLOW && is >= SLOWER * was {
                    let told = |seconds: f32| Some(spoken(seconds.into()));
                    self.changes.push(change(Kind::Slower, plugin, leaf, told(was), told(is)));
                } else {
                    self.unchanged += 1;
                }
                return;
            }
            Some(_) if failing(after) => Kind::NewlyFailing,
            Some(before) if failing(before) && after == PASSED => Kind::Fixed,
            Some(_) => Kind::Changed,
        };
        self.changes.push(change(kind, plugin, leaf, before, Some(after.to_owned())));
    }

    /// The exit code of a command that was told `--fail-on limit`, with the reason: only what newly fails counts.
    pub(crate) fn ending(&self, limit: &str) -> Option<(u8, String)> {
        let failing = self.of(Kind::NewlyFailing).count();
        let told = || (FAILED_CODE, format!("{} newly failing", count(failing as u64, "test")));
        (limit != "never" && failing > 0).then(told)
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.kind == kind)
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
        writeln!(out, "\"facts\": {},", json!(self.facts))?;
        Ok(writeln!(out, "\"unchanged\": {}\n}}", self.unchanged)?)
    }

    /// Writes it for people.
    pub(crate) fn write_text(&self, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
        for (kind, _, title) in KINDS {
            let count = self.of(kind).count();
            if count == 0 {
                continue;
            }
            let colour = match kind {
                Kind::NewlyFailing => "31",
                Kind::Fixed => "32",
                Kind::StillFailing => "33",
                _ => "1",
            };
            let title = format!("{title}: {count}");
            writeln!(out, "{}", if look.colour { format!("\x1b[{colour}m{title}\x1b[0m") } else { title })?;
            for change in self.of(kind).take(LISTED) {
                writeln!(out, "{}", fit(&change.line(), look.width))?;
            }
            if count > LISTED {
                writeln!(out, "  and {} more", count - LISTED)?;
            }
            writeln!(out)?;
        }
        if !self.facts.is_empty() {
            writeln!(out, "Facts of nodes that changed: {}", self.facts.len())?;
            for change in self.facts.iter().take(LISTED) {
                writeln!(out, "  {}", fit(&visible::line(change), look.width))?;
            }
            if self.facts.len() > LISTED {
                writeln!(out, "  and {} more", self.facts.len() - LISTED)?;
            }
            writeln!(out)?;
        }
        // How many of each kind, by plugin: the whole in a few lines.
        let mut plugins = BTreeMap::<&str, BTreeMap<Kind, usize>>::new();
        for change in &self.changes {
            *plugins.entry(&change.plugin).or_default().entry(change.kind).or_default() += 1;
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

impl Change {
    fn line(&self) -> String {
        let node = self.node.as_ref().map(|node| format!(" [{node}]")).unwrap_or_default();
        let statuses = match (&self.before, &self.after) {
            (Some(before), Some(after)) if before != after => format!(" ({before} -> {after})"),
            (None, Some(only)) | (Some(only), None) => format!(" ({only})"),
            _ => String::new(),
        };
        // What a test is called may hold anything; a terminal must not obey it.
        visible::line(&format!("  {}{node}{statuses}: {}", self.plugin, self.test)).into_owned()
    }
}

fn change(
    kind: Kind,
    plugin: &str,
    leaf: &Leaf<'_>,
    before: Option<String>,
    after: Option<String>,
) -> Change {
    Change {
        kind,
        plugin: plugin.to_owned(),
        node: leaf.node.map(str::to_owned),
        test: leaf.item.name.clone(),
        before,
        after,
    }
}

/// How long a test took; 0 if nobody knows.
fn seconds(leaf: &Leaf<'_>) -> f32 {
    leaf.duration.unwrap_or_default() as f32
}

/// Every leaf of every plugin.
fn each(opened: &Opened, mut visit: impl FnMut(&mut Keys, &str, &Leaf<'_>)) -> anyhow::Result<()> {
    let mut keys = Keys::default();
    let survey = Survey::read(&opened.source, &opened.plugins)?;
    for plugin in opened.plugins.iter().filter(|plugin| *plugin != health::NAME) {
        if opened.files.has(&layout::tree(plugin)) {
            leaf::each(&opened.files, plugin, None, |leaf| {
                let duration = leaf.duration.or_else(|| survey.duration(plugin, leaf));
                visit(&mut keys, plugin, &Leaf { duration, ..*leaf });
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Cuts a line to a width.
pub(super) fn fit(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if width > 20 && line.chars().count() > width => {
            let cut: String = line.chars().take(width - 1).collect();
            format!("{cut}…")
        }
        _ => line.to_owned(),
    }
}
