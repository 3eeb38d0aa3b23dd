//! Runs as the columns of a comparison: their times, versions, and the outcome of each plugin.
//! Several archives, of clusters or of days, side by side: as text, as JSON, and as metrics for
//! node exporter's textfile collector.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::time::UNIX_EPOCH;

use serde::Serialize;
use serde_json::Value;

use super::SCHEMA_VERSION;
use super::run::Report;
use super::terminal::TextOutput;
use super::words::{self, spoken};
use base::clock::parse_rfc3339;
use base::json::{is_default, json, list};
use base::openmetrics::Metrics;
use model::item::{FAILED, FLAKY, PASSED, SKIPPED, is_failure, plain};
use model::layout;
use model::remedies::{TestPlace, TestPlaces};
use model::verdict::Outcome;

/// Maximum failed tests in the text.
const MAX_LISTED: usize = 50;
/// Maximum failed tests to hold.
const MAX_REMEMBERED: usize = 20_000;

/// One archive.
#[derive(Default, Serialize)]
pub struct ArchiveColumn {
    /// The label.
    pub archive: String,
    /// Start of the run.
    pub started: Option<String>,
    /// Its verdict.
    pub status: Outcome,
    /// Duration of the run in seconds.
    pub duration: Option<f64>,
    /// Versions and images, by name; of several archives also facts of nodes.
    pub versions: BTreeMap<String, String>,
    /// By plugin.
    pub(super) plugins: BTreeMap<String, PluginCell>,
    /// Why a cluster has no archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// A plugin in an archive.
#[derive(Serialize)]
pub(super) struct PluginCell {
    pub status: String,
    pub passed: u64,
    pub failed: u64,
    #[serde(skip_serializing_if = "is_default")]
    flaky: u64,
    pub skipped: u64,
    pub duration: Option<f64>,
}

impl ArchiveColumn {
    /// The column of an archive.
    pub fn of(report: &Report<'_>) -> Self {
        // The API server's version, the program's, and the image of each plugin, unless unreadable.
        let mut versions = BTreeMap::new();
        for (name, version) in [
            ("Kubernetes", &report.kubernetes_version),
            ("Sonobuoy", &report.version),
        ] {
            if !version.is_empty() {
                versions.insert(name.to_owned(), version.clone());
            }
        }
        let mut plugins = BTreeMap::new();
        for plugin in &report.plugins {
            if let Some(image) = image_of(report, plugin.name) {
                versions.insert(format!("image of {}", plugin.name), image);
            }
            let cell = PluginCell {
                status: plugin.status.clone(),
                passed: plugin.counts.of(PASSED),
                failed: plugin.counts.of(FAILED),
                flaky: plugin.counts.of(FLAKY),
                skipped: plugin.counts.of(SKIPPED),
                duration: plugin.duration.map(|span| span.seconds()),
            };
            plugins.insert(plugin.name.to_owned(), cell);
        }
        Self {
            archive: report.archive.to_owned(),
            started: report.started.clone(),
            status: report.status,
            duration: report.duration.map(|span| span.seconds()),
            versions,
            plugins,
            error: None,
        }
    }
}

/// The image of a plugin according to its definition.
fn image_of(report: &Report<'_>, plugin: &str) -> Option<String> {
    for name in layout::DEFINITIONS {
        let path = format!("{}/{name}", layout::plugin(plugin));
        let Ok(definition) = report.opened.files.json::<Value>(&path) else {
            continue;
        };
        if let Some(image) = definition.pointer("/Definition/spec/image")
            && let Some(image) = image.as_str()
        {
            return Some(image.to_owned());
        }
    }
    None
}

impl PluginCell {
    pub(super) fn word(&self) -> String {
        match self.failed {
            0 => self.status.clone(),
            failed => format!("{failed} failed"),
        }
    }
}

/// A failed test in words.
fn test(place: &TestPlace) -> String {
    format!("{}: {}", place.plugin, plain(&place.text()))
}

/// The node of a key, in which none is empty.
fn node_of(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

/// Lines below a title.
pub(super) struct List {
    pub title: String,
    pub lines: Vec<String>,
}

impl List {
    fn new(title: impl Into<String>, lines: Vec<String>) -> Self {
        Self {
            title: title.into(),
            lines,
        }
    }
}

/// The archives, in the order given, and the tests that failed in any.
#[derive(Default)]
pub struct Many {
    pub columns: Vec<ArchiveColumn>,
    /// Whether they are of several clusters.
    clusters: bool,
    /// By plugin, node and name, the status in each archive.
    failed: BTreeMap<(String, String, String), BTreeMap<usize, String>>,
    /// By cause, the number of failures and unknown results in each archive.
    causes: BTreeMap<String, BTreeMap<usize, u64>>,
}

impl Many {
    /// Adds the next archive; `cluster` is the name of its cluster, if they are of several.
    pub fn add(&mut self, report: &mut Report<'_>, cluster: Option<&str>) -> anyhow::Result<()> {
        let at = self.columns.len();
        report.explain()?;
        for cause in report.causes.iter().chain(&report.unknown_causes) {
            let counts = self.causes.entry(cause.headline().0).or_default();
            *counts.entry(at).or_default() += cause.count;
        }
        let mut column = ArchiveColumn::of(report);
        column.versions.extend(report.opened.facts.common());
        if let Some(cluster) = cluster {
            (column.archive, self.clusters) = (cluster.to_owned(), true);
        }
        self.columns.push(column);
        for plugin in &report.plugins {
            plugin.cases.each(|case| {
                if is_failure(case.status) {
                    let node = case.node.unwrap_or_default().to_owned();
                    let key = (plugin.name.to_owned(), node, case.name.to_owned());
                    if self.failed.len() < MAX_REMEMBERED || self.failed.contains_key(&key) {
                        let statuses = self.failed.entry(key).or_default();
                        statuses.insert(at, case.status.to_owned());
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Adds a cluster that has no archive.
    pub fn add_missing(&mut self, cluster: &str, error: &str) {
        let (archive, error) = (cluster.to_owned(), Some(error.to_owned()));
        self.columns.push(ArchiveColumn {
            archive,
            error,
            ..ArchiveColumn::default()
        });
        self.clusters = true;
    }

    /// The archives by their start, as their places in the order given.
    pub(super) fn by_start(&self) -> Vec<usize> {
        let mut places: Vec<_> = (0..self.columns.len()).collect();
        places.sort_by_key(|at| self.columns[*at].started.as_deref());
        places
    }

    /// The archive of the last run.
    pub fn newest(&self) -> &str {
        self.by_start()
            .last()
            .map_or("", |at| &self.columns[*at].archive)
    }

    /// The tests that failed in any archive, with those archives, in most of them first.
    pub(super) fn failed_tests(&self) -> Vec<(TestPlace, BTreeSet<usize>)> {
        let mut places = TestPlaces::<BTreeSet<usize>>::default();
        for ((plugin, node, test), statuses) in &self.failed {
            places
                .add((plugin, test, 0), node_of(node), BTreeSet::new)
                .extend(statuses.keys());
        }
        let mut tests = places.into_list();
        tests.sort_by(|(a, in_a), (b, in_b)| {
            let names = (&a.plugin, &a.test).cmp(&(&b.plugin, &b.test));
            in_b.len().cmp(&in_a.len()).then(names)
        });
        tests
    }

    /// A row for each name that any archive has, with the text in each.
    fn rows<V>(
        &self,
        of: impl Fn(&ArchiveColumn) -> &BTreeMap<String, V>,
        text: impl Fn(&V) -> String,
    ) -> Vec<Vec<String>> {
        let mut names = BTreeSet::new();
        for column in &self.columns {
            names.extend(of(column).keys());
        }
        let mut rows = Vec::new();
        for name in names {
            let mut row = vec![name.clone()];
            for column in &self.columns {
                row.push(match of(column).get(name) {
                    Some(value) => text(value),
                    None => "-".to_owned(),
                });
            }
            rows.push(row);
        }
        rows
    }

    /// The verdicts on the archives and on each plugin.
    fn outcomes(&self) -> Vec<Vec<String>> {
        let mut all = vec!["all".to_owned()];
        for column in &self.columns {
            all.push(column.status.word().to_owned());
        }
        let mut rows = vec![all];
        rows.extend(self.rows(|column| &column.plugins, PluginCell::word));
        rows
    }

    /// The versions and facts that differ.
    fn differing(&self) -> Vec<Vec<String>> {
        let mut rows = self.rows(|column| &column.versions, String::clone);
        rows.retain(|row| {
            let cells = row[1..].iter().zip(&self.columns);
            // A cluster without an archive differs from nothing.
            let read = cells.filter(|(_, column)| column.error.is_none());
            let values: BTreeSet<&String> = read.map(|(cell, _)| cell).collect();
            values.len() > 1
        });
        rows
    }

    /// A row for each cluster, below a head: its name, its verdict, its plugins, and what differs.
    pub(super) fn matrix(&self) -> Vec<Vec<String>> {
        // The rows of archives become columns.
        let columns = [self.outcomes(), self.differing()].concat();
        let mut labels = vec!["CLUSTER"];
        labels.extend(self.columns.iter().map(|column| &*column.archive));
        let mut rows = Vec::new();
        for (at, label) in labels.into_iter().enumerate() {
            let mut row = vec![label.to_owned()];
            row.extend(columns.iter().map(|column| column[at].clone()));
            rows.push(row);
        }
        rows
    }

    /// Archives that are missing, causes, failed tests, and what became worse.
    pub(super) fn lists(&self) -> [List; 4] {
        let legend = if self.clusters {
            ""
        } else {
            " (x), by number of the archive"
        };
        [
            List::new("Without an archive", self.missing_lines()),
            List::new(format!("Causes{legend}"), self.cause_lines()),
            List::new(format!("Failed anywhere{legend}"), self.failed_lines()),
            List::new("Became worse, and fails since", self.worse_lines()),
        ]
    }

    fn missing_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for column in &self.columns {
            if let Some(error) = &column.error {
                lines.push(format!("{}: {error}", column.archive));
            }
        }
        lines
    }

    fn cause_lines(&self) -> Vec<String> {
        let mut causes: Vec<_> = self.causes.iter().collect();
        causes.sort_by_key(|(_, counts)| Reverse(counts.len()));
        let mut lines = Vec::new();
        for (cause, counts) in causes {
            let archives = counts.keys().copied().collect();
            lines.push(self.marked(&archives, cause));
        }
        lines
    }

    fn failed_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (place, archives) in self.failed_tests() {
            lines.push(self.marked(&archives, &test(&place)));
        }
        lines
    }

    fn worse_lines(&self) -> Vec<String> {
        let mut places = TestPlaces::<usize>::default();
        for (since, (plugin, node, name)) in self.worse() {
            // Nodes on which a test fails since different archives have a line each.
            let variant = since as u64;
            places.add((plugin, name, variant), node_of(node), || since);
        }
        let mut lines = Vec::new();
        for (place, since) in places.into_list() {
            let started = self.columns[since].started.as_deref();
            let started = started.unwrap_or("unknown start");
            let test = test(&place);
            lines.push(format!("since {}  ({started})  {test}", since + 1));
        }
        lines
    }

    /// A line of a list, with the archives that it applies to.
    fn marked(&self, archives: &BTreeSet<usize>, text: &str) -> String {
        if self.clusters {
            let names: Vec<_> = archives
                .iter()
                .map(|at| &*self.columns[*at].archive)
                .collect();
            return format!("{}: {text}", words::named(&names, names.len() as u64));
        }
        let mark = |at| if archives.contains(&at) { 'x' } else { '.' };
        let marks: String = (0..self.columns.len()).map(mark).collect();
        format!("{marks}  {text}")
    }

    /// The tests that fail in the newest archive but not in the oldest, and the archive since which
    /// they fail without a break, latest first; none unless the archives are in order of time.
    fn worse(&self) -> Vec<(usize, &(String, String, String))> {
        let mut worse = Vec::new();
        let is_in_order = self.columns.is_sorted_by_key(|column| &column.started);
        if !is_in_order || self.clusters {
            return worse;
        }
        for (key, statuses) in &self.failed {
            let latest_first = (0..self.columns.len()).rev();
            let failing = latest_first.take_while(|at| statuses.contains_key(at));
            // A test that has always failed did not become worse.
            if let Some(since) = failing.last()
                && since > 0
            {
                worse.push((since, key));
            }
        }
        worse.sort_by_key(|(since, _)| Reverse(*since));
        worse
    }

    /// Writes a text table.
    pub fn write_text(&self, terminal: &mut TextOutput<'_>) -> anyhow::Result<()> {
        if self.clusters {
            terminal.table(self.matrix(), usize::MAX, &[])?;
        } else {
            for (at, column) in self.columns.iter().enumerate() {
                let archive = &column.archive;
                let started = column.started.as_deref().unwrap_or("unknown start");
                let took = match column.duration {
                    Some(seconds) => format!(", {}", spoken(seconds)),
                    None => String::new(),
                };
                terminal.painted("", &format!("{:>3}  {archive}  ({started}{took})", at + 1))?;
            }
            for (title, rows) in [("PLUGIN", self.outcomes()), ("VERSION", self.differing())] {
                if !rows.is_empty() {
                    writeln!(terminal.out)?;
                    let numbers = (1..=self.columns.len()).map(|number| number.to_string());
                    let head = iter::once(title.to_owned()).chain(numbers).collect();
                    terminal.table(iter::once(head).chain(rows), usize::MAX, &[])?;
                }
            }
        }
        for list in self.lists() {
            if !list.lines.is_empty() {
                terminal.blank()?;
                terminal.line(&format!("{}:", list.title))?;
                terminal.list(&list.lines, MAX_LISTED)?;
            }
        }
        Ok(())
    }

    /// The headline of several clusters.
    pub(super) fn headline(&self) -> String {
        let columns = self.columns.iter();
        let failed = columns
            .clone()
            .filter(|column| column.status == Outcome::Failed)
            .count();
        let missing = columns.filter(|column| column.error.is_some()).count();
        let all = words::count(self.columns.len() as u64, "cluster");
        format!("{all}: {failed} failed, {missing} without an archive")
    }

    /// The failed tests of a plugin in an archive.
    pub(super) fn failed(&self, at: usize, plugin: &str) -> Vec<String> {
        let mut places = TestPlaces::<()>::default();
        for ((of, node, name), statuses) in &self.failed {
            if of == plugin && statuses.contains_key(&at) {
                places.add((of, name, 0), node_of(node), || ());
            }
        }
        let tests = places.into_list().into_iter().take(MAX_LISTED);
        tests.map(|(place, ())| test(&place)).collect()
    }

    /// The document for monitoring systems. Of several archives, each sample has the label
    /// `archive`; the archive of a single one is only in `run_info`, so that runs of every
    /// night continue the same series.
    pub fn metrics(&self) -> String {
        let mut metrics = Metrics::default();
        let passed = |status: &str| f64::from(u8::from(status == PASSED));
        let archive = |column: &ArchiveColumn| ("archive", column.archive.clone());
        let infos = self.columns.iter().map(|column| {
            let version = |name| column.versions.get(name).cloned().unwrap_or_default();
            let labels = vec![
                archive(column),
                ("status", column.status.word().to_owned()),
                ("kubernetes", version("Kubernetes")),
                ("version", version("Sonobuoy")),
            ];
            (labels, 1.0)
        });
        metrics.gauge(
            "sonobuoy_run_info",
            "The archive, its verdict, and versions.",
            infos,
        );
        let archive_label = |column| match self.columns.len() {
            0 | 1 => Vec::new(),
            _ => vec![archive(column)],
        };
        let mut of_runs = |name, help, value: &dyn Fn(&ArchiveColumn) -> Option<f64>| {
            let samples = self
                .columns
                .iter()
                .filter_map(|column| Some((archive_label(column), value(column)?)));
            metrics.gauge(name, help, samples);
        };
        of_runs(
            "sonobuoy_run_start_time_seconds",
            "Start of the run, since 1970.",
            &|column| {
                let started = parse_rfc3339(column.started.as_ref()?)?;
                Some(started.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
            },
        );
        of_runs(
            "sonobuoy_run_duration_seconds",
            "Duration of the run.",
            &|column| column.duration,
        );
        of_runs(
            "sonobuoy_run_passed",
            "1 if every plugin passed.",
            &|column| Some(passed(column.status.word())),
        );
        let plugins = self.columns.iter().flat_map(|column| {
            let label = move |name: &String| {
                [archive_label(column), vec![("plugin", name.clone())]].concat()
            };
            column
                .plugins
                .iter()
                .map(move |(name, cell)| (label(name), cell))
        });
        let verdicts = plugins
            .clone()
            .map(|(labels, cell)| (labels, passed(&cell.status)));
        metrics.gauge(
            "sonobuoy_plugin_passed",
            "1 if the plugin passed.",
            verdicts,
        );
        let durations = plugins
            .clone()
            .filter_map(|(labels, cell)| Some((labels, cell.duration?)));
        metrics.gauge(
            "sonobuoy_plugin_duration_seconds",
            "Duration of the plugin.",
            durations,
        );
        let tests = plugins.flat_map(|(labels, cell)| {
            let PluginCell {
                passed,
                failed,
                flaky,
                skipped,
                ..
            } = *cell;
            [
                ("passed", passed),
                ("failed", failed),
                ("flaky", flaky),
                ("skipped", skipped),
            ]
            .map(|(status, count)| {
                (
                    [&labels[..], &[("status", status.to_owned())]].concat(),
                    count as f64,
                )
            })
        });
        metrics.gauge("sonobuoy_tests", "Tests by status.", tests);
        metrics.finish()
    }

    /// The JSON document.
    pub fn json(&self) -> Value {
        let places = || 0..self.columns.len();
        let failed = self.failed.iter().map(|((plugin, node, test), statuses)| {
            let statuses = places().map(|at| statuses.get(&at));
            json!({"plugin": plugin, "node": node, "test": test, "statuses": list(statuses)})
        });
        let causes = self.causes.iter().map(|(cause, counts)| {
            let counts = places().map(|at| counts.get(&at).unwrap_or(&0));
            json!({"cause": cause, "counts": list(counts)})
        });
        let worse = self.worse().into_iter().map(|(since, (plugin, node, test))| {
            json!({"plugin": plugin, "node": node, "test": test, "since": self.columns[since].archive})
        });
        json!({
            "schemaVersion": SCHEMA_VERSION, "archives": self.columns, "failed": list(failed),
            "causes": list(causes), "worse": list(worse),
        })
    }
}
