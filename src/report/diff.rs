//! `results diff`: what changed between two archives, test by test.
//!
//! A test is the same in both if plugin, node and name match; of several with one name the first is
//! compared with the first, the second with the second. Files and suites may have other names.
//! Results of a plugin or node in only one archive are one change. The first archive is held as a
//! digest, a status and a duration per test, so that large runs can be compared.
//!
//! Two snapshots are compared object by object: changed, added and removed, by kind, namespace and
//! name. Volatile fields are ignored: `status`, versions and identities in `metadata`, the times of
//! a lease, events and measured values. Snapshots are streamed: memory holds the names of the
//! objects, a temporary file those of the first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use super::SCHEMA_VERSION;
use super::archive::{ArchiveSource, OpenedArchive, PassAction};
use super::facts::parts;
use super::files::{ExtractedFiles, objects};
use super::many::ArchiveColumn;
use super::run::{Case, Cases, Report};
use super::terminal::{TextOutput, colour};
use super::words::{count, number, spoken};
use base::Joined as _;
use base::json::{is_default, json};
use base::visible;
use model::item::{FAILED, FLAKY, PASSED, UNKNOWN, is_failure, plain};
use model::remedies::{TestPlace, TestPlaces};
use model::verdict::{Changes, Exit, FailOn, exit_of_changes};
use model::{layout, names};
use yaml::natural;

/// Factor and minimum in seconds from which a test is reported as slower.
const SLOWER: f64 = 3.0;
const SLOW: f64 = 1.0;
/// Maximum entries of a list in the text.
const MAX_LISTED: usize = 200;
/// Factor from which a plugin's longer duration is reported.
const LONGER: f64 = 1.1;
/// Maximum length of one failure's reason, and bytes of all.
const WHY: usize = 4 << 10;
const ALL_WHY: usize = 500 << 10;

/// The change of a test, in order of importance, which is that of [`KINDS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
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

/// The name of each kind in JSON and in text, and its class on the page.
const KINDS: [[&str; 3]; 7] = [
    ["newlyFailing", "Newly failing", "failed"],
    ["stillFailing", "Still failing", "failed"],
    ["fixed", "Fixed", "passed"],
    ["vanished", "Vanished", "other"],
    ["appeared", "Appeared", "other"],
    ["changed", "Changed otherwise", "other"],
    ["slower", "Much slower", "unknown"],
];

impl ChangeKind {
    /// Its key in JSON, and its anchor on the page.
    pub(super) fn id(self) -> &'static str {
        KINDS[self as usize][0]
    }

    /// Its name in text.
    pub(super) fn title(self) -> &'static str {
        KINDS[self as usize][1]
    }

    /// Its class on the page, and its colour on a terminal.
    pub(super) fn class(self) -> &'static str {
        KINDS[self as usize][2]
    }
}

/// One changed test.
#[derive(Serialize)]
pub struct TestChange {
    #[serde(skip)]
    pub kind: ChangeKind,
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

fn is_one(count: &u64) -> bool {
    *count == 1
}

/// All changes, and the number of unchanged tests.
#[derive(Default)]
pub struct Diff {
    /// All changes, by kind.
    pub changes: Vec<TestChange>,
    /// Number of unchanged tests.
    pub unchanged: u64,
    /// Whether both archives are of one run.
    is_same_run: bool,
    /// Facts of nodes that changed.
    pub facts: Vec<String>,
    /// The two runs in brief.
    pub runs: [ArchiveColumn; 2],
    /// Objects of the cluster that changed, if they are compared.
    pub objects: Option<Objects>,
    /// Bytes left for reasons of failures.
    room: usize,
}

/// By plugin, the nodes in its results, one without a name for a plugin that runs once, each with
/// whether any of its tests failed; `None` if the node delivered only an error.
type Delivered<'r> = BTreeMap<&'r str, BTreeMap<&'r str, Option<bool>>>;

fn delivered<'r>(report: &'r Report<'_>) -> Delivered<'r> {
    let mut all = Delivered::new();
    for plugin in &report.plugins {
        for suite in &plugin.suites {
            let failed = all
                .entry(plugin.name)
                .or_default()
                .entry(&*suite.name)
                .or_default();
            if suite.counts.sum() > suite.errors {
                *failed = Some(failed.unwrap_or_default() || suite.counts.of(FAILED) > 0);
            }
        }
    }
    all
}

/// Tests of a plugin, or of one of its nodes, that one archive lacks as a whole: a change for all
/// of them.
type Folded = BTreeMap<(ChangeKind, String, Option<String>), TestChange>;

/// Adds a test that the other archive lacks; `other` is what that has.
fn fold(all: &mut Folded, other: &Delivered<'_>, change: TestChange) -> Option<TestChange> {
    let (plugin, node) = (change.plugin.clone(), change.node.clone());
    let node = match other.get(&*plugin) {
        None => None,
        Some(nodes)
            if nodes
                .get(node.as_deref().unwrap_or_default())
                .is_none_or(Option::is_none) =>
        {
            node
        }
        Some(_) => return Some(change),
    };
    all.entry((change.kind, plugin, node))
        .and_modify(|all| all.tests += 1)
        .or_insert(change);
    None
}

impl Diff {
    /// Compares two archives. Results of a plugin, or its node, in only one of them appear or
    /// vanish as a whole.
    pub fn between(before: &OpenedArchive, after: &OpenedArchive) -> Result<Self> {
        let runs = [Report::read(before, None)?, Report::read(after, None)?];
        let [was, is] = runs.each_ref().map(delivered);
        let facts = before.facts.changes(&after.facts);
        let [first, second] = &runs;
        let is_same_run = first.archive == second.archive
            || !first.run_id.is_empty() && first.run_id == second.run_id;
        let mut diff = Self {
            room: ALL_WHY,
            is_same_run,
            runs: runs.each_ref().map(ArchiveColumn::of),
            facts,
            ..Self::default()
        };
        // Status and duration of each test that only the first archive has so far.
        let mut old = HashMap::new();
        each(&runs[0], |key, case| {
            old.insert(key, (case.status.to_owned(), case.duration));
        })?;
        let mut folded = Folded::new();
        each(&runs[1], |key, case| {
            let before = old.remove(&key);
            let was_error = was
                .get(case.plugin)
                .and_then(|nodes| nodes.get(case.node.unwrap_or_default()))
                == Some(&None);
            if before.is_some() || is_failure(case.status) || case.status == UNKNOWN {
                diff.note(case, before);
            } else if !was_error {
                let change = TestChange::of(ChangeKind::Appeared, case, None, Some(case.status));
                diff.changes.extend(fold(&mut folded, &was, change));
            }
            // Else the error is fixed, which is reported below.
        })?;
        each(&runs[0], |key, case| {
            if !old.contains_key(&key) {
                return;
            }
            let now = is
                .get(case.plugin)
                .and_then(|nodes| *nodes.get(case.node.unwrap_or_default())?);
            let (kind, after) = match now.filter(|_| case.is_error()) {
                None => (ChangeKind::Vanished, None),
                Some(false) if is_failure(case.status) => (ChangeKind::Fixed, Some(PASSED)),
                Some(failed) => (
                    ChangeKind::Changed,
                    Some(if failed { FAILED } else { PASSED }),
                ),
            };
            let change = TestChange::of(kind, case, Some(case.status.to_owned()), after);
            diff.changes.extend(if case.is_error() {
                Some(change)
            } else {
                fold(&mut folded, &is, change)
            });
        })?;
        diff.changes.extend(
            folded
                .into_iter()
                .map(|((.., node), first)| match first.tests {
                    1 => first,
                    tests => {
                        let test = format!("all {}", count(tests, "test"));
                        TestChange {
                            node,
                            test,
                            before: None,
                            after: None,
                            ..first
                        }
                    }
                }),
        );
        diff.changes.sort_by_cached_key(|change| {
            let node = change.node.as_deref().unwrap_or_default();
            let (plugin, test) = (change.plugin.clone(), change.test.clone());
            (change.kind, plugin, test, natural(node))
        });
        Ok(diff)
    }

    /// Records a test of the second archive, with its status and duration in the first.
    fn note(&mut self, case: &Case<'_>, before: Option<(String, Option<f64>)>) {
        let after = case.status;
        let (before, was) = before.unzip();
        let mut change = TestChange::of(ChangeKind::Changed, case, before, Some(after));
        change.kind = match change.before.as_deref() {
            Some(before) if is_failure(before) && is_failure(after) => ChangeKind::StillFailing,
            Some(before) if before == after => {
                let (was, is) = (
                    was.flatten().unwrap_or_default(),
                    case.duration.unwrap_or_default(),
                );
                if was == 0.0 || is < SLOW.max(SLOWER * was) {
                    self.unchanged += 1;
                    return;
                }
                (change.before, change.after) = (Some(spoken(was)), Some(spoken(is)));
                ChangeKind::Slower
            }
            _ if is_failure(after) => ChangeKind::NewlyFailing,
            None => ChangeKind::Appeared,
            Some(before) if is_failure(before) && after == PASSED => ChangeKind::Fixed,
            Some(_) => ChangeKind::Changed,
        };
        if is_failure(after) && self.room > 0 {
            change.why = visible::cut(&case.failure().text(), WHY).into_owned();
            self.room = self.room.saturating_sub(change.why.len());
        }
        self.changes.push(change);
    }

    /// The exit code for `--fail-on`, with the reason; `None` means 0.
    pub fn exit(&self, fail_on: FailOn) -> Option<Exit> {
        let newly = |status: &str| {
            let is = |side: &Option<String>| side.as_deref() == Some(status);
            tests(
                self.changes
                    .iter()
                    .filter(|change| is(&change.after) && !is(&change.before)),
            )
        };
        let of = |kind| tests(self.changes.iter().filter(|change| change.kind == kind));
        let changes = Changes {
            newly_failing: of(ChangeKind::NewlyFailing),
            newly_flaky: newly(FLAKY),
            vanished: of(ChangeKind::Vanished),
            newly_unknown: newly(UNKNOWN),
        };
        exit_of_changes(&changes, fail_on)
    }

    /// The changes of each kind that has any.
    pub fn kinds(&self) -> impl Iterator<Item = (ChangeKind, &[TestChange])> {
        self.changes
            .chunk_by(|a, b| a.kind == b.kind)
            .map(|changes| (changes[0].kind, changes))
    }

    /// What a reader should know first: that nothing was compared with something else.
    pub(super) fn remark(&self) -> Option<String> {
        self.is_same_run
            .then(|| "Both archives are of the same run.".to_owned())
    }

    /// Versions that differ; empty if an archive lacks it.
    pub(super) fn versions(&self) -> Vec<VersionChange> {
        let names: BTreeSet<_> = self
            .runs
            .iter()
            .flat_map(|run| run.versions.keys())
            .collect();
        let mut changes = Vec::new();
        for name in names {
            let [before, after] = self
                .runs
                .each_ref()
                .map(|run| run.versions.get(name).cloned().unwrap_or_default());
            if before != after {
                let name = name.clone();
                changes.push(VersionChange {
                    name,
                    before,
                    after,
                });
            }
        }
        changes
    }

    /// Durations of the run, and of each plugin in both archives.
    fn durations(&self) -> Vec<DurationChange> {
        let [before, after] = &self.runs;
        let change = |plugin: Option<&String>, before: Option<f64>, after: Option<f64>| {
            Some(DurationChange {
                plugin: plugin.cloned(),
                before: before?,
                after: after?,
            })
        };
        let plugins = before.plugins.iter().filter_map(|(name, cell)| {
            let other = after.plugins.get(name)?;
            change(Some(name), cell.duration, other.duration)
        });
        change(None, before.duration, after.duration)
            .into_iter()
            .chain(plugins)
            .collect()
    }

    /// Durations that changed more than they usually do.
    pub(super) fn longer_durations(&self) -> Vec<DurationChange> {
        let mut durations = self.durations();
        durations.retain(|DurationChange { before, after, .. }| {
            before.max(*after) > LONGER * before.min(*after) + 1.0
        });
        durations
    }

    /// The JSON document.
    pub fn json(&self) -> Value {
        let [before, after] = &self.runs;
        let mut document = json!({
            "schemaVersion": SCHEMA_VERSION, "before": before.archive, "after": after.archive,
            "versions": self.versions(), "durations": self.durations(),
            "facts": self.facts, "unchanged": self.unchanged,
        });
        if self.is_same_run {
            document["sameRun"] = json!(true);
        }
        for [key, ..] in KINDS {
            document[key] = json!([]);
        }
        for (kind, changes) in self.kinds() {
            document[kind.id()] = json!(changes);
        }
        if let Some(objects) = &self.objects {
            document["objects"] = json!(objects);
        }
        document
    }

    /// Writes the text report.
    pub fn write_text(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        if let Some(remark) = self.remark() {
            terminal.line(&remark)?;
            terminal.blank()?;
        }
        for (kind, changes) in self.kinds() {
            let style = colour(kind.class()).unwrap_or_default();
            let title = format!("{}: {}", kind.title(), tests(changes));
            terminal.painted(style, &title)?;
            for of_plugin in changes.chunk_by(|a, b| a.plugin == b.plugin) {
                let groups: Vec<_> = ChangeGroup::all(of_plugin)
                    .iter()
                    .map(ChangeGroup::text)
                    .collect();
                terminal.list(&groups, MAX_LISTED)?;
            }
            terminal.blank()?;
        }
        let or_unknown = |version: &String| match &**version {
            "" => "unknown".to_owned(),
            version => version.to_owned(),
        };
        let versions = self.versions();
        let versions = versions.iter().map(|change| {
            let (before, after) = (or_unknown(&change.before), or_unknown(&change.after));
            format!("{}: {before} -> {after}", change.name)
        });
        terminal.section(
            "Versions that changed",
            &versions.collect::<Vec<_>>(),
            usize::MAX,
        )?;
        let durations = self.longer_durations();
        let durations = durations.iter().map(|change| {
            let what = change.plugin.as_deref().unwrap_or("the run");
            let (before, after) = (spoken(change.before), spoken(change.after));
            format!("{what}: {before} -> {after}")
        });
        terminal.section(
            "Durations that changed",
            &durations.collect::<Vec<_>>(),
            usize::MAX,
        )?;
        terminal.section("Facts of nodes that changed", &self.facts, MAX_LISTED)?;
        for (plugin, counts) in self.summary() {
            terminal.line(&format!("{plugin}: {counts}"))?;
        }
        terminal.line(&format!("Unchanged: {}", self.unchanged))
    }

    /// The number of changes of each kind, by plugin.
    fn summary(&self) -> BTreeMap<&str, String> {
        let mut summary = BTreeMap::<&str, String>::new();
        for (kind, changes) in self.kinds() {
            for of_plugin in changes.chunk_by(|a, b| a.plugin == b.plugin) {
                let counts = summary.entry(&of_plugin[0].plugin).or_default();
                let gap = if counts.is_empty() { "" } else { ", " };
                let (tests, title) = (tests(of_plugin), kind.title().to_lowercase());
                counts.push_str(&format!("{gap}{tests} {title}"));
            }
        }
        summary
    }
}

/// A version in both archives.
#[derive(Serialize)]
pub(super) struct VersionChange {
    pub name: String,
    pub before: String,
    pub after: String,
}

/// A duration in both archives, in seconds; of the run, if of no plugin.
#[derive(Serialize)]
pub(super) struct DurationChange {
    pub plugin: Option<String>,
    pub before: f64,
    pub after: f64,
}

/// Equal changes of a test on several nodes.
pub(super) struct ChangeGroup<'d> {
    pub place: TestPlace,
    pub changes: Vec<&'d TestChange>,
}

impl<'d> ChangeGroup<'d> {
    /// Groups the changes of one kind.
    pub(super) fn all(changes: &'d [TestChange]) -> Vec<Self> {
        let mut places = TestPlaces::<Vec<&TestChange>>::default();
        for change in changes {
            // Durations differ on each node.
            let variant = match change.kind {
                ChangeKind::Slower => 0,
                _ => base::digest(&(&change.before, &change.after)),
            };
            places
                .add(
                    (&change.plugin, &change.test, variant),
                    change.node.as_deref(),
                    Vec::new,
                )
                .push(change);
        }
        let list = places.into_list().into_iter();
        list.map(|(place, changes)| Self { place, changes })
            .collect()
    }

    /// The status before and after, or the duration, if it is the same for all and differs.
    pub(super) fn moved(&self) -> Option<[Option<&'d str>; 2]> {
        let sides = |change: &'d TestChange| [change.before.as_deref(), change.after.as_deref()];
        let first = sides(self.changes[0]);
        let is_equal = self.changes.iter().all(|change| sides(change) == first);
        (is_equal && first[0] != first[1]).then_some(first)
    }

    /// `p (passed -> failed): a test on n1, n2 and 3 more`.
    fn text(&self) -> String {
        let moved = self.moved().map(|sides| {
            let sides = sides.into_iter().flatten().joined(" -> ");
            format!(" ({sides})")
        });
        let plugin = &self.place.plugin;
        let test = self.place.text();
        format!("{plugin}{}: {}", moved.unwrap_or_default(), plain(&test))
    }
}

/// Number of tests in changes.
pub(crate) fn tests<'c>(changes: impl IntoIterator<Item = &'c TestChange>) -> u64 {
    changes.into_iter().map(|change| change.tests).sum()
}

impl TestChange {
    fn of(kind: ChangeKind, case: &Case<'_>, before: Option<String>, after: Option<&str>) -> Self {
        let (plugin, test) = (case.plugin.to_owned(), case.name.to_owned());
        let (node, after) = (case.node.map(str::to_owned), after.map(str::to_owned));
        Self {
            kind,
            plugin,
            node,
            test,
            tests: 1,
            before,
            after,
            why: String::new(),
        }
    }
}

/// Visits every case of every plugin, each with a key that is the same in both archives.
fn each(report: &Report<'_>, mut visit: impl FnMut(u64, &Case<'_>)) -> Result<()> {
    // Number of further tests with the same plugin, node and name so far.
    let mut namesakes = HashMap::new();
    for plugin in &report.plugins {
        // A listed plugin may have no tree; an unreadable one is an error.
        if !report.opened.files.has(&layout::tree(plugin.name)) {
            continue;
        }
        Cases {
            readable: true,
            ..plugin.cases
        }
        .each(|case| {
            // The wording of a missing result's reason varies.
            let name = if case.is_error() { "" } else { case.name };
            let key = |nth: u32| base::digest(&(case.plugin, case.node, name, nth));
            let nth = namesakes
                .entry(key(0))
                .and_modify(|nth| *nth += 1)
                .or_insert(0);
            visit(key(*nth), case);
            Ok(())
        })?;
    }
    Ok(())
}

/// Fields of `metadata` that differ between two reads of the same object.
const IDENTITY: [&str; 6] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
];
/// Maximum differences to report per object; the rest is counted.
const MAX_DIFFERENCES: usize = 100;
/// Longer values are cut.
const MAX_VALUE_BYTES: usize = 1000;
/// Maximum width of a value in the text.
const MAX_PRINTED_BYTES: usize = 79;

/// The changes of objects.
#[derive(Default, Serialize)]
pub struct Objects {
    changed: Vec<Changed>,
    appeared: Vec<Name>,
    vanished: Vec<Name>,
    unchanged: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Name {
    /// The kind as in file names: `deployments`.
    #[serde(skip)]
    plural: String,
    kind: String,
    /// Empty for the core group.
    group: String,
    namespace: String,
    name: String,
}

#[derive(Serialize)]
struct Changed {
    #[serde(flatten)]
    name: Name,
    differences: Vec<FieldDifference>,
    /// Number of differences not reported.
    #[serde(skip_serializing_if = "is_default")]
    more: usize,
}

#[derive(Serialize)]
struct FieldDifference {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
}

impl Objects {
    /// Compares two snapshots; `None` if neither holds any object.
    pub fn between(before: &ArchiveSource, after: &ArchiveSource) -> Result<Option<Self>> {
        // The objects of the first snapshot by key, and the names of those that the second one
        // lacks so far.
        let (mut old, mut left) = (ExtractedFiles::default(), BTreeMap::new());
        each_object(before, |name, object| {
            old.add(&name.key(), object.to_string().as_bytes())?;
            left.insert(name.key(), Some(name));
            Ok(())
        })?;
        let mut changes = Self::default();
        each_object(after, |name, object| {
            // An object listed in several versions is compared once.
            match left.insert(name.key(), None) {
                None => changes.appeared.push(name),
                Some(None) => {}
                Some(Some(_)) => {
                    let mut differences = Vec::new();
                    compare(
                        "",
                        old.document(&name.key())?.as_ref(),
                        Some(&object),
                        &mut differences,
                    );
                    let more = differences.len().saturating_sub(MAX_DIFFERENCES);
                    differences.truncate(MAX_DIFFERENCES);
                    if differences.is_empty() {
                        changes.unchanged += 1;
                    } else {
                        changes.changed.push(Changed {
                            name,
                            differences,
                            more,
                        });
                    }
                }
            }
            Ok(())
        })?;
        if left.is_empty() {
            return Ok(None);
        }
        changes.vanished = left.into_values().flatten().collect();
        changes.changed.sort_by(|a, b| a.name.cmp(&b.name));
        changes.appeared.sort();
        changes.vanished.sort();
        Ok(Some(changes))
    }

    /// Writes the text report.
    pub fn write_text(&self, terminal: &mut TextOutput<'_>) -> Result<()> {
        let short_value = |value: &Option<Value>| match value {
            Some(value) => visible::cut(&value.to_string(), MAX_PRINTED_BYTES).into_owned(),
            None => "(none)".into(),
        };
        if !self.changed.is_empty() {
            terminal.line(&format!("Objects changed: {}", number(self.changed.len())))?;
        }
        for changed in self.changed.iter().take(MAX_LISTED) {
            terminal.line(&format!("  {}", changed.name.text()))?;
            for difference in &changed.differences {
                let (before, after) = (
                    short_value(&difference.before),
                    short_value(&difference.after),
                );
                terminal.line(&format!("    {}: {before} -> {after}", difference.path))?;
            }
            if changed.more > 0 {
                terminal.line(&format!("    and {} more", number(changed.more)))?;
            }
        }
        if self.changed.len() > MAX_LISTED {
            let more = number(self.changed.len() - MAX_LISTED);
            terminal.line(&format!("  and {more} more"))?;
        }
        if !self.changed.is_empty() {
            terminal.blank()?;
        }
        for (title, names) in [
            ("Objects appeared", &self.appeared),
            ("Objects vanished", &self.vanished),
        ] {
            let names: Vec<_> = names.iter().map(Name::text).collect();
            terminal.section(title, &names, MAX_LISTED)?;
        }
        terminal.line(&format!("Objects unchanged: {}", self.unchanged))
    }
}

impl Name {
    /// Neither by kind, which old files lack, nor by version, which a new server may change.
    fn key(&self) -> String {
        [&*self.group, &self.plural, &self.namespace, &self.name].join("/")
    }

    /// The object in words.
    fn text(&self) -> String {
        let Self {
            kind,
            group,
            namespace,
            name,
            ..
        } = self;
        let dot = if group.is_empty() { "" } else { "." };
        let gap = if namespace.is_empty() { "" } else { "/" };
        format!("{kind}{dot}{group} {namespace}{gap}{name}")
    }
}

/// Finds the paths at which two values differ.
fn compare(
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    out: &mut Vec<FieldDifference>,
) {
    if before == after {
        return;
    }
    match (before.and_then(parts), after.and_then(parts)) {
        (Some(a), Some(b)) => {
            for step in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                compare(
                    &format!("{path}{step}"),
                    a.get(step).copied(),
                    b.get(step).copied(),
                    out,
                );
            }
        }
        _ => out.push(FieldDifference {
            path: path.trim_start_matches('.').to_owned(),
            before: before.map(cut),
            after: after.map(cut),
        }),
    }
}

fn cut(value: &Value) -> Value {
    match value.to_string() {
        text if text.len() <= MAX_VALUE_BYTES => value.clone(),
        text => json!(visible::cut(
            value.as_str().unwrap_or(&text),
            MAX_VALUE_BYTES
        )),
    }
}

/// Visits every compared object, without its volatile fields.
fn each_object(
    source: &ArchiveSource,
    mut visit: impl FnMut(Name, Value) -> Result<()>,
) -> Result<()> {
    let all = source.extract(|_, file, _, content| {
        let Some(base) = of_file(file) else {
            return Ok(PassAction::Skip);
        };
        let mut failed = None;
        let read = objects(content, |mut object| {
            let mut name = base.clone();
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            };
            name.name = text("/metadata/name").unwrap_or_default();
            name.namespace = text("/metadata/namespace").unwrap_or(name.namespace);
            name.kind = text("/kind").unwrap_or(name.kind);
            if is_of_run(&object) {
                return true;
            }
            clean(&name, &mut object);
            visit(name, object)
                .map_err(|error| failed = Some(error))
                .is_ok()
        });
        match failed {
            Some(error) => Err(error),
            None => read
                .with_context(|| format!("`{file}` is not a list of objects"))
                .map(|()| PassAction::Skip),
        }
    });
    all.map(drop)
}

/// Whether an object belongs to a run, of which each cluster has others at other times.
fn is_of_run(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    labels[names::LABEL_ALL] == names::SONOBUOY
        || labels[names::LABEL_MANAGED_BY] == names::SONOBUOY
        // Kubernetes' record of the address of a service has no labels of the service.
        || object["spec"]["parentRef"]["name"] == names::AGGREGATOR_SERVICE
}

/// The kind of objects in a file, from its name; `None` for other files and for volatile kinds.
fn of_file(file: &str) -> Option<Name> {
    let (namespace, name) = layout::resource_file(file)?;
    let stem = name.strip_suffix(".json")?;
    let (group, plural) = match stem.splitn(3, '_').collect::<Vec<_>>()[..] {
        ["core", _, plural] => ("", plural),
        [group, _, plural] => (group, plural),
        _ => ("", stem),
    };
    let is_volatile = plural == "events" || group == "metrics.k8s.io";
    let [plural, kind, group, namespace] = [plural, plural, group, namespace].map(str::to_owned);
    (!is_volatile).then(|| Name {
        plural,
        kind,
        group,
        namespace,
        name: String::new(),
    })
}

fn clean(name: &Name, object: &mut Value) {
    let mut fields = |pointer: &str, keep: &dyn Fn(&str) -> bool| {
        if let Some(fields) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            fields.retain(|field, _| keep(field));
        }
    };
    fields("", &|field| field != "status");
    fields("/metadata", &|field| !IDENTITY.contains(&field));
    if name.plural == "leases" {
        fields("/spec", &|field| field != "renewTime");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_by_their_path() {
        let shown =
            |value: &Option<Value>| value.as_ref().map_or("(none)".into(), Value::to_string);
        let check = |before: Value, after: Value, expected: &[&str]| {
            let mut found = Vec::new();
            compare("", Some(&before), Some(&after), &mut found);
            let found: Vec<_> = found
                .iter()
                .map(|d| format!("{}: {} -> {}", d.path, shown(&d.before), shown(&d.after)))
                .collect();
            assert_eq!(found, expected);
        };
        check(
            json!({"spec": {"replicas": 1}}),
            json!({"spec": {"replicas": 2}}),
            &["spec.replicas: 1 -> 2"],
        );
        check(
            json!({"metadata": {"labels": {"a.b/c": "x"}}}),
            json!({"metadata": {"labels": {}}}),
            &[r#"metadata.labels["a.b/c"]: "x" -> (none)"#],
        );
        check(
            json!({"c": [{"name": "a", "v": 1}, {"name": "b"}]}),
            json!({"c": [{"name": "b"}, {"name": "a", "v": 2}]}),
            &["c[a].v: 1 -> 2"],
        );
        check(
            json!({"l": [1, 2]}),
            json!({"l": [1, 3, 4]}),
            &["l[1]: 2 -> 3", "l[2]: (none) -> 4"],
        );
        check(json!({"a": 1}), json!({"a": 1}), &[]);
    }

    #[test]
    fn objects_of_runs_are_recognized() {
        let check = |object: Value, expected: bool| assert_eq!(is_of_run(&object), expected);
        check(
            json!({"metadata": {"labels": {"component": "sonobuoy"}}}),
            true,
        );
        let namespace =
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "sonobuoy"}}});
        check(namespace, true);
        let parent = json!({"namespace": "n", "name": "sonobuoy-aggregator"});
        check(json!({"spec": {"parentRef": parent}}), true);
        check(
            json!({"metadata": {"labels": {"component": "etcd"}}}),
            false,
        );
        check(json!({"metadata": {"name": "sonobuoy"}}), false);
    }

    #[test]
    fn files_are_identified_by_content() {
        let check = |file: &str, expected: Option<(&str, &str, &str)>| {
            let found = of_file(file);
            let found = found
                .as_ref()
                .map(|n| (n.group.as_str(), n.plural.as_str(), n.namespace.as_str()));
            assert_eq!(found, expected, "{file}");
        };
        check(
            "resources/cluster/core_v1_nodes.json",
            Some(("", "nodes", "")),
        );
        check(
            "resources/ns/a/apps_v1_deployments.json",
            Some(("apps", "deployments", "a")),
        );
        check("resources/ns/a/Pods.json", Some(("", "Pods", "a")));
        check("resources/ns/a/core_v1_events.json", None);
        check("resources/ns/a/metrics.k8s.io_v1beta1_pods.json", None);
        check("podlogs/a/b/logs/c.txt", None);
    }
}
