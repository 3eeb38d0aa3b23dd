//! What an archive says about its run, in numbers per plugin and per node: the JSON document, and
//! the source of the other views. `docs/results.md` describes the schema, which changes only
//! together with [`super::SCHEMA_VERSION`].
//!
//! Counts the cases of each tree, and passes them on: a case is an item without children, with its
//! location. The part of a tree to show is all of it, or the first item of a name and its
//! descendants.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use anyhow::{Result, anyhow, ensure};
use serde::ser::{Error as _, SerializeSeq as _};
use serde::{Deserialize as _, Serialize, Serializer};
use serde_json::Value;

use super::SCHEMA_VERSION;
use super::archive::{HEALTH_NAME, OpenedArchive};
use super::files::ExtractedFiles;
use super::survey::{self, Arrival, JunitDetails, Period};
use super::words::{count, majority, number};
use base::Joined as _;
use base::clock::parse_rfc3339;
use base::json::json;
use model::health::{FailedQuery, Health, Part};
use model::item::read::items;
use model::item::{
    ATTEMPTS, DURATION, FAILED, FAILURE, FLAKY, Failure, Item, LINK, MessageMark, OTHER, PASSED,
    REMEDY, RESUMED, SKIPPED, TIMEOUT, UNKNOWN, plain,
};
use model::layout::{self, HEALTH, QUERY_ERRORS};
use model::remedies::{Cause, Causes, ReportedFailure, TestPlace, TestPlaces, Why, crash_message};
use model::verdict::{Exit, Limit, Outcome, PluginResult, exit_of_run};
use yaml::natural;

/// Numbers of cases by status.
#[derive(Clone, Default)]
pub struct Counts(pub BTreeMap<String, u64>);

/// The columns of every view, from bad to good.
const COLUMNS: [&str; 6] = [FAILED, UNKNOWN, FLAKY, PASSED, OTHER, SKIPPED];

/// The column of a status: timeouts are failures, and custom statuses are [`OTHER`].
pub(crate) fn column(status: &str) -> &'static str {
    let other = if status == TIMEOUT { FAILED } else { OTHER };
    COLUMNS
        .into_iter()
        .find(|column| *column == status)
        .unwrap_or(other)
}

/// An archive in numbers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report<'a> {
    schema_version: u32,
    /// The label of the archive.
    pub archive: &'a str,
    /// The version of Sonobuoy that created it.
    pub version: String,
    /// The run's id.
    pub run_id: String,
    /// The interrupted run that this run resumed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resumes: String,
    /// The version of the API server.
    pub kubernetes_version: String,
    /// The first and the last known timestamp, as recorded.
    pub started: Option<String>,
    /// See `started`.
    ended: Option<String>,
    /// From start to end.
    pub duration: Option<Period>,
    /// The worst outcome of all plugins.
    pub status: Outcome,
    /// The cases of all plugins.
    pub counts: Counts,
    /// The cluster.
    #[serde(serialize_with = "summary")]
    pub health: Option<Health>,
    /// Why the run failed as a whole, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// Causes of failures, and of unknown results; see [`Self::explain`].
    pub causes: Vec<Cause>,
    /// See `causes`.
    pub unknown_causes: Vec<Cause>,
    /// Nodes that the snapshot lacks data of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The nodes that each plugin did not run on, with the reasons.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub excluded: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether the run continues, and these are its results so far.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unfinished: bool,
    /// Each plugin, from bad to good.
    pub plugins: Vec<PluginReport<'a>>,
    /// The archive itself.
    #[serde(skip)]
    pub opened: &'a OpenedArchive,
}

/// A node that the snapshot lacks data of.
#[derive(Serialize)]
pub struct LeftOut {
    pub node: String,
    pub error: String,
}

/// A plugin in numbers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginReport<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its status.
    pub status: String,
    /// Number of cases.
    pub total: u64,
    /// All its cases.
    pub counts: Counts,
    /// From its first start to its last result.
    pub duration: Option<Period>,
    /// The times of its results, sorted by node.
    pub arrivals: Vec<Arrival>,
    /// Its nodes in natural order, if it runs on each; duplicates in the tree are merged.
    pub nodes: Vec<NodeReport>,
    /// Nodes unlike the majority.
    pub odd_nodes: Vec<String>,
    /// The error reading its tree.
    pub error: Option<String>,
    /// Its selected cases.
    #[serde(rename = "tests")]
    pub cases: Cases<'a>,
    /// Consecutive cases of a node, or of none, in stored order: a node that also reported an
    /// error has two.
    #[serde(skip)]
    pub suites: Vec<NodeReport>,
}

/// A node in numbers, or consecutive cases of one.
#[derive(Clone, Default, Serialize)]
pub struct NodeReport {
    /// Its name; empty for cases of no node.
    pub name: String,
    /// Its status.
    pub status: String,
    /// All its cases.
    pub counts: Counts,
    /// From its start to its result.
    pub duration: Option<Period>,
    /// Equal for nodes whose cases have the same names and statuses.
    #[serde(skip)]
    likeness: u64,
    /// The file of the first case.
    #[serde(skip)]
    pub file: String,
    /// Number of missing results among the cases.
    #[serde(skip)]
    pub errors: u64,
    /// The sum of all known durations.
    #[serde(skip)]
    pub seconds: Option<f64>,
}

/// With the statuses that every reader expects.
impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut all: BTreeMap<&str, u64> = [PASSED, FAILED, SKIPPED, TIMEOUT, UNKNOWN]
            .map(|status| (status, 0))
            .into();
        all.extend(
            self.0
                .iter()
                .map(|(status, count)| (status.as_str(), *count)),
        );
        all.serialize(out)
    }
}

impl Counts {
    /// Counts `count` more of a status.
    pub fn add(&mut self, status: &str, count: u64) {
        *self.0.entry(status.to_owned()).or_default() += count;
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other
            .0
            .iter()
            .for_each(|(status, count)| self.add(status, *count));
    }

    /// Number of all cases.
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// Number of cases in a column.
    pub fn of(&self, wanted: &str) -> u64 {
        self.0
            .iter()
            .filter(|(status, _)| column(status) == wanted)
            .map(|(_, count)| count)
            .sum()
    }

    /// The columns that are not 0.
    pub fn shares(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COLUMNS
            .into_iter()
            .map(|column| (column, self.of(column)))
            .filter(|(_, count)| *count > 0)
    }
}

impl<'a> Report<'a> {
    /// Reads every tree once, or the part of it below the first item named `node`; an unreadable
    /// tree is recorded, not an error.
    pub fn read(opened: &'a OpenedArchive, node: Option<&'a str>) -> Result<Self> {
        let files = &opened.files;
        let config: Value = files.json(layout::CONFIG)?;
        let server: Value = files.json(layout::SERVER_VERSION)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let health = read_health(files)?;
        let mut kubernetes_version = text(&server["gitVersion"]);
        if let Some(health) = health.as_ref().filter(|_| kubernetes_version.is_empty()) {
            kubernetes_version.clone_from(&health.api_version);
        }
        let (arrivals, run) = survey::times(files);
        let mut of = HashMap::<String, Vec<Arrival>>::new();
        arrivals
            .into_iter()
            .for_each(|arrival| of.entry(arrival.plugin.clone()).or_default().push(arrival));
        let mut plugins: Vec<_> = opened
            .plugins
            .iter()
            .filter(|name| *name != HEALTH_NAME)
            .map(|name| {
                let cases = Cases {
                    archive: opened,
                    plugin: name,
                    node,
                    readable: true,
                };
                PluginReport::read(cases, of.remove(name).unwrap_or_default())
            })
            .collect();
        // From bad to good in every view; equal ones in stored order.
        plugins.sort_by_key(|plugin| Reverse(plugin.outcome()));
        let mut counts = Counts::default();
        plugins
            .iter()
            .for_each(|plugin| counts.add_all(&plugin.counts));
        let (started, ended) = run.unzip();
        let at = |text: &Option<String>| parse_rfc3339(text.as_deref()?);
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            archive: &opened.source.label,
            version: text(&config["Version"]),
            run_id: text(&config["UUID"]),
            resumes: text(&config["Resumes"]),
            kubernetes_version,
            duration: at(&started)
                .zip(at(&ended))
                .map(|(from, to)| Period { from, to }),
            started,
            ended,
            status: Outcome::worst(plugins.iter().map(PluginReport::outcome)),
            counts,
            health,
            // The report works without it, too.
            why: files.json(layout::WHY).unwrap_or_default(),
            causes: Vec::new(),
            unknown_causes: Vec::new(),
            left_out: left_out(files),
            excluded: files.json(layout::EXCLUDED)?,
            unfinished: files.has(layout::PARTIAL),
            plugins,
            opened,
        })
    }

    /// Reads the trees of plugins that did not pass again for the causes.
    pub fn explain(&mut self) -> Result<()> {
        let mut causes = [(); 2].map(|()| Causes::new(self.node_names()));
        for plugin in self
            .plugins
            .iter()
            .filter(|plugin| plugin.outcome() != Outcome::Passed)
        {
            plugin.cases.each(|case| {
                let at = match case.status {
                    FAILED | TIMEOUT => 0,
                    UNKNOWN => 1,
                    _ => return Ok(()),
                };
                case.add_to(&mut causes[at]);
                Ok(())
            })?;
        }
        [self.causes, self.unknown_causes] = causes.map(Causes::list);
        Ok(())
    }

    /// The outcome in one sentence.
    pub fn headline(&self) -> String {
        let [failed, unknown, flaky, other, skipped] =
            [FAILED, UNKNOWN, FLAKY, OTHER, SKIPPED].map(|column| self.counts.of(column));
        let ran = self.counts.sum() - skipped;
        let aside = [(flaky, "flaky"), (skipped, "skipped")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", number(count)))
            .joined(", ");
        let rest = if aside.is_empty() {
            aside
        } else {
            format!(" ({aside})")
        };
        let sentence = match self.status {
            Outcome::Failed if failed == 0 => "Failed".into(),
            Outcome::Failed => format!(
                "{} failed of {} that ran{rest}",
                number(failed),
                number(ran)
            ),
            Outcome::Unknown if self.plugins.iter().any(|plugin| plugin.error.is_some()) => {
                "Not all results could be read".into()
            }
            Outcome::Unknown if ran + skipped == 0 => "No results".into(),
            Outcome::Unknown => format!(
                "{} of {} unknown{rest}",
                number(unknown),
                count(ran, "test")
            ),
            Outcome::Passed if ran == 0 => format!("Nothing ran{rest}"),
            Outcome::Passed if other > 0 => {
                format!("Nothing failed of {} that ran{rest}", number(ran))
            }
            Outcome::Passed if ran == 1 => format!("The one test that ran passed{rest}"),
            Outcome::Passed => format!("All {} that ran passed{rest}", number(ran)),
        };
        if self.unfinished {
            sentence + "; the run continues"
        } else {
            sentence
        }
    }

    /// The exit code for a limit, with the reason; `None` means 0.
    pub fn exit(&self, limit: Limit) -> Option<Exit> {
        let plugins: Vec<_> = self.plugins.iter().map(PluginReport::result).collect();
        exit_of_run(&plugins, limit)
    }

    /// The names of all nodes.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.plugins
            .iter()
            .flat_map(|plugin| &plugin.nodes)
            .map(|node| node.name.as_str())
    }
}

/// Writes a document on one line; an error of the output keeps its type.
pub fn write_json(document: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, document).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

impl<'a> PluginReport<'a> {
    fn read(cases: Cases<'a>, arrivals: Vec<Arrival>) -> Self {
        let (mut status, mut suites) = (String::new(), Vec::<NodeReport>::new());
        let read = cases.each(|case| {
            let name = case.node.unwrap_or_default();
            if suites.last().is_none_or(|suite| suite.name != name) {
                case.root.status.clone_into(&mut status);
                let status = case.node_item.map_or("", |node| &node.status).to_owned();
                let (name, file) = (name.to_owned(), case.file.unwrap_or_default().to_owned());
                suites.push(NodeReport {
                    name,
                    file,
                    status,
                    ..NodeReport::default()
                });
            }
            suites
                .last_mut()
                .into_iter()
                .for_each(|suite| suite.add(case));
            Ok(())
        });
        let error = read.err().map(|error| format!("{error:#}"));
        if error.is_some() {
            (status, suites) = Default::default();
        }
        let mut counts = Counts::default();
        let mut nodes = Vec::<NodeReport>::new();
        // The index of each node.
        let mut node_indexes = HashMap::new();
        for suite in &suites {
            counts.add_all(&suite.counts);
            if suite.name.is_empty() {
                continue;
            }
            let at = *node_indexes.entry(&*suite.name).or_insert(nodes.len());
            let Some(node) = nodes.get_mut(at) else {
                nodes.push(suite.clone());
                continue;
            };
            // Its errors follow its results.
            if suite.outcome() > node.outcome() {
                node.status.clone_from(&suite.status);
            }
            node.counts.add_all(&suite.counts);
            node.likeness = node.likeness.rotate_left(1) ^ suite.likeness;
        }
        for arrival in &arrivals {
            if let Some(node) = node_indexes
                .get(&*arrival.node)
                .and_then(|at| nodes.get_mut(*at))
            {
                node.duration = Period::around(node.duration.into_iter().chain(arrival.span()));
            }
        }
        nodes.sort_by_cached_key(|node| natural(&node.name));
        // Without a majority no node is odd.
        let usual = majority(nodes.iter().map(|node| node.likeness));
        let odd = nodes
            .iter()
            .filter(|node| usual.is_some_and(|usual| usual != node.likeness));
        Self {
            name: cases.plugin,
            status: if status.is_empty() {
                UNKNOWN.into()
            } else {
                status
            },
            total: counts.sum(),
            counts,
            duration: Period::around(arrivals.iter().filter_map(Arrival::span)),
            arrivals,
            odd_nodes: odd.map(|node| node.name.clone()).collect(),
            nodes,
            cases: Cases {
                readable: error.is_none(),
                ..cases
            },
            suites,
            error,
        }
    }

    /// The plugin's outcome.
    pub fn outcome(&self) -> Outcome {
        Outcome::of(&self.status, &self.counts.0)
    }

    /// What decides the exit code.
    fn result(&self) -> PluginResult<'_> {
        PluginResult {
            name: self.name,
            status: &self.status,
            counts: &self.counts.0,
            nodes: self.nodes.iter().map(NodeReport::outcome).collect(),
        }
    }
}

impl NodeReport {
    /// The node's outcome.
    pub fn outcome(&self) -> Outcome {
        Outcome::of(&self.status, &self.counts.0)
    }

    fn add(&mut self, case: &Case<'_>) {
        self.counts.add(case.status, 1);
        self.errors += u64::from(case.is_error());
        self.seconds = case
            .duration
            .map(|took| took + self.seconds.unwrap_or_default())
            .or(self.seconds);
        // In order: one plugin is not expected to reorder its tests.
        let name = if Some(case.name) == case.node {
            ""
        } else {
            case.name
        };
        self.likeness = base::digest(&(self.likeness, name, case.status));
    }
}

/// An item without children and its location.
pub struct Case<'a> {
    pub name: &'a str,
    /// Never empty.
    pub status: &'a str,
    /// The names of the items above, without the plugin's.
    path: Vec<&'a str>,
    pub node: Option<&'a str>,
    /// Its source file, relative to the plugin's folder.
    pub file: Option<&'a str>,
    /// Why the result is missing.
    pub error: Option<&'a str>,
    pub item: &'a Item,
    /// Duration in seconds, from its result, else from its file.
    pub duration: Option<f64>,
    pub plugin: &'a str,
    /// The root of the tree, or the selected item.
    root: &'a Item,
    /// The item of its node.
    node_item: Option<&'a Item>,
    /// The data of its file about this test.
    pub from_file: Option<&'a JunitDetails>,
}

impl<'a> Case<'a> {
    /// The test in the JSON document, without what is unknown.
    fn json(&self) -> Value {
        let details = Some(&self.item.details).filter(|details| !details.is_empty());
        let failure = (column(self.status) == FAILED).then(|| self.failure());
        let failure = failure.filter(|failure| !failure.message.is_empty());
        let message = failure.as_ref().map(|failure| &failure.message);
        let trace = failure
            .as_ref()
            .map(Failure::rest)
            .filter(|trace| !trace.is_empty());
        let mut test = json!({
            "name": self.name, "status": self.status, "path": self.path, "node": self.node, "file": self.file,
            "error": self.error, "message": message, "trace": trace, "details": details, "duration": self.duration,
        });
        test.as_object_mut()
            .into_iter()
            .for_each(|test| test.retain(|_, value| !value.is_null()));
        test
    }

    /// Whether it represents a missing result.
    pub fn is_error(&self) -> bool {
        self.file.is_some_and(|file| {
            layout::deliverer("", file).1.split('/').next() == Some(layout::ERRORS)
        })
    }

    /// The names of the items above, without those of the plugin and the node.
    pub fn group(&self) -> impl Iterator<Item = &'a str> {
        self.path.iter().copied().skip(usize::from(
            self.node.is_some() && self.path.first() == self.node.as_ref(),
        ))
    }

    /// The name on one line: that of a missing result is its whole failure.
    pub(crate) fn title(&self) -> &'a str {
        plain(self.name).lines().next().unwrap_or_default()
    }

    /// A detail that is text.
    pub fn detail(&self, key: &str) -> Option<&'a str> {
        self.item.details.get(key)?.as_str()
    }

    /// Why it failed: the parts with the reason, else all details.
    pub fn failure(&self) -> Failure {
        let marks = self
            .from_file
            .map(|details| (details.failure, details.error))
            .unwrap_or_default();
        // Where a result is missing, the failure is the cause behind a fixed message.
        let message = self
            .detail("error")
            .filter(|_| !self.is_error() || self.detail(FAILURE).is_none());
        let mut failure = Failure::default();
        for (text, mark) in [
            (self.error, MessageMark::default()),
            (self.detail(FAILURE), marks.0),
            (message, marks.1),
        ] {
            if let Some(text) = text {
                failure.add(&Failure::split(text, mark));
            }
        }
        if failure.message.is_empty() {
            failure = Failure::split(&self.further_details(), MessageMark::default());
        }
        if let Some(message) = crash_message(&failure.message, &failure.rest()) {
            failure.trace = failure.rest().into_owned();
            failure.message = message;
        }
        failure
    }

    /// The details that may say why it failed, in lines.
    fn further_details(&self) -> String {
        let aside = |key: &str| {
            key.starts_with("system-") || [ATTEMPTS, DURATION, REMEDY, LINK, RESUMED].contains(&key)
        };
        let line = |(key, value): (&String, &Value)| match value {
            Value::String(text) => format!("{key}: {text}"),
            other => format!("{key}: {other}"),
        };
        self.item
            .details
            .iter()
            .filter(|(key, _)| !aside(key))
            .map(line)
            .joined("\n")
    }

    /// Adds the case to `causes` as a failure; returns the index of its cause.
    pub fn add_to(&self, causes: &mut Causes) -> usize {
        let Self {
            plugin, node, name, ..
        } = *self;
        let (failure, remedy, link) = (self.failure(), self.detail(REMEDY), self.detail(LINK));
        causes.add(&ReportedFailure {
            plugin,
            node,
            test: name,
            text: &failure.text(),
            remedy,
            link,
        })
    }
}

/// The durations of tests.
#[derive(Default)]
pub(crate) struct SlowTests(TestPlaces<SlowTest>);

/// The longest duration of a test on any node.
#[derive(Default)]
pub(crate) struct SlowTest {
    pub seconds: f64,
    /// The anchor of this test on the page.
    pub id: Option<String>,
}

impl SlowTests {
    /// Adds a test with a duration; `id` is its anchor on the page.
    pub(crate) fn add(&mut self, case: &Case<'_>, id: Option<&str>) {
        let Some(seconds) = case.duration else { return };
        let test = (case.plugin, case.name, 0);
        let slowest = self.0.add(test, case.node, SlowTest::default);
        if slowest.id.is_none() || seconds > slowest.seconds {
            *slowest = SlowTest {
                seconds,
                id: id.map(str::to_owned),
            };
        }
    }

    /// The `max` slowest tests, the slowest first.
    pub(crate) fn into_slowest(self, max: usize) -> Vec<(TestPlace, SlowTest)> {
        let mut tests = self.0.into_list();
        tests.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
        tests.truncate(max);
        tests
    }
}

/// The cases of a plugin's tree, which is read anew for each use.
#[derive(Clone, Copy)]
pub struct Cases<'a> {
    /// The archive.
    pub archive: &'a OpenedArchive,
    /// The plugin.
    pub plugin: &'a str,
    /// The selected item, as in [`items`]; `None` for all.
    pub node: Option<&'a str>,
    /// Whether the tree can be read; an unreadable one has no cases.
    pub readable: bool,
}

impl Cases<'_> {
    /// Calls `visit` with each case in the order of the tree.
    pub fn each(self, mut visit: impl FnMut(&Case<'_>) -> Result<()>) -> Result<()> {
        if !self.readable {
            return Ok(());
        }
        let is_readable = items(self.archive.tree(self.plugin)?, self.node, |above, item| {
            let around = above.iter().chain([&item]);
            let file = around
                .clone()
                .rev()
                .find_map(|item| item.meta.get("file"))
                .map(String::as_str);
            let is_node = |item: &&Item| item.meta.get("type").is_some_and(|kind| kind == "node");
            let node_item = around.clone().find(is_node);
            let from_file = file.and_then(|file| {
                let (plugin, file) = layout::deliverer(self.plugin, file);
                self.archive.survey.details_of(plugin, file, &item.name)
            });
            visit(&Case {
                name: &item.name,
                status: if item.status.is_empty() {
                    UNKNOWN
                } else {
                    &item.status
                },
                path: above.iter().skip(1).map(|item| &*item.name).collect(),
                node: node_item.map(|item| &*item.name),
                file,
                error: item.meta.get("error").map(String::as_str),
                duration: item.duration().or_else(|| from_file?.duration),
                item: &item,
                plugin: self.plugin,
                root: above.first().unwrap_or(&item),
                node_item,
                from_file,
            })
        })?;
        ensure!(is_readable, missing(self.node));
        Ok(())
    }
}

/// As a list, streamed.
impl Serialize for Cases<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut list = out.serialize_seq(None)?;
        let mut failed = None;
        let read = self.each(|case| {
            list.serialize_element(&case.json()).map_err(|error| {
                failed = Some(error);
                anyhow!("not written")
            })
        });
        match (failed, read) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(S::Error::custom(format!("{error:#}"))),
            (None, Ok(())) => list.end(),
        }
    }
}

/// The error for a tree without the selected item.
pub(super) fn missing(name: Option<&str>) -> String {
    format!("node named {:?} not found", name.unwrap_or_default())
}

/// Reads the health of the cluster; `None` if the run had no cluster.
pub(super) fn read_health(files: &ExtractedFiles) -> Result<Option<Health>> {
    let Some(bytes) = files.small(HEALTH)? else {
        return Ok(None);
    };
    // The original ignores content after the document.
    Option::deserialize(&mut serde_json::Deserializer::from_slice(&bytes))
        .map_err(|error| anyhow!("`{HEALTH}`: {error}"))
}

/// Nodes or pods in the JSON document.
pub(super) fn summary_of(part: &Part) -> Value {
    json!({"total": part.total_nodes, "healthy": part.healthy_nodes, "unhealthy": part.unwell()})
}

/// The health in the JSON document.
fn summary<S: Serializer>(health: &Option<Health>, out: S) -> Result<S::Ok, S::Error> {
    let summary = health.as_ref().map(|health| {
        json!({
            "nodes": summary_of(&health.node_health),
            "pods": summary_of(&health.pod_health),
            "suspiciousLogLines": health.error_summary,
        })
    });
    summary.serialize(out)
}

/// The nodes in an archive's list of failed queries, each once with its errors; empty if the list
/// is missing or too large.
fn left_out(files: &ExtractedFiles) -> Vec<LeftOut> {
    let failed: Vec<FailedQuery> = files.list(QUERY_ERRORS);
    let mut nodes = BTreeMap::<String, Vec<String>>::new();
    for FailedQuery { name, error, .. } in failed
        .into_iter()
        .filter(|failed| failed.queryobj == "Nodes")
    {
        let (node, error) = match name.split_once('/') {
            Some((node, what)) => (node.to_owned(), format!("{what}: {error}")),
            None => (name, error),
        };
        nodes.entry(node).or_default().push(error);
    }
    nodes
        .into_iter()
        .map(|(node, errors)| LeftOut {
            node,
            error: errors.join("; "),
        })
        .collect()
}
