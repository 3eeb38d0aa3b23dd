//! Runs as the columns of a comparison: their times, versions, and the outcome of each plugin. Several archives, of
//! clusters or of days, side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::metrics;
use super::run::{Report, SCHEMA_VERSION, Verdict};
use super::terminal::Terminal;
use super::times::{Span, spoken};
use crate::item::{FAILED, FLAKY, PASSED, SKIPPED, TIMEOUT};
use crate::layout;
use base::json::json;

/// Factor from which a plugin's longer duration is reported.
const LONGER: f64 = 1.1;
/// Maximum failed tests in the text.
const MAX_LISTED: usize = 50;
/// Maximum failed tests to hold.
const MAX_REMEMBERED: usize = 20_000;

/// One archive.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Column {
    /// The label.
    pub archive: String,
    /// Start of the run.
    pub started: Option<String>,
    /// Its verdict.
    pub status: Verdict,
    /// Duration of the run.
    pub duration: Option<Span>,
    /// Versions and images, by name.
    pub versions: BTreeMap<String, String>,
    /// By plugin.
    pub(super) plugins: BTreeMap<String, Cell>,
}

/// A plugin in an archive.
#[derive(Debug, Serialize)]
pub(super) struct Cell {
    pub(super) status: String,
    pub(super) passed: u64,
    pub(super) failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flaky: Option<u64>,
    pub(super) skipped: u64,
    pub(super) duration: Option<Span>,
}

impl Column {
    /// The column of an archive.
    pub(crate) fn of(report: &Report<'_>) -> Self {
        // The API server's version, the program's, and the image of each plugin, unless unreadable.
        let known = [("Kubernetes", &report.kubernetes_version), ("Sonobuoy", &report.version)];
        let known = known.into_iter().filter(|(_, version)| !version.is_empty());
        let mut versions: BTreeMap<_, _> =
            known.map(|(name, version)| (name.to_owned(), version.clone())).collect();
        let mut plugins = BTreeMap::new();
        for plugin in &report.plugins {
            let image = layout::DEFINITIONS.iter().find_map(|name| {
                let path = format!("{}/{name}", layout::plugin(plugin.name));
                let definition: Value = report.opened.files.json(&path).ok()??;
                Some(definition.pointer("/Definition/spec/image")?.as_str()?.to_owned())
            });
            versions.extend(image.map(|image| (format!("image of {}", plugin.name), image)));
            let cell = Cell {
                status: plugin.status.clone(),
                passed: plugin.counts.of(PASSED),
                failed: plugin.counts.of(FAILED),
                flaky: Some(plugin.counts.of(FLAKY)).filter(|flaky| *flaky > 0),
                skipped: plugin.counts.of(SKIPPED),
                duration: plugin.duration,
            };
            plugins.insert(plugin.name.to_owned(), cell);
        }
        Self {
            archive: report.archive.to_owned(),
            started: report.started.clone(),
            status: report.status,
            duration: report.duration,
            versions,
            plugins,
        }
    }
}

/// A version that differs between two archives; empty if an archive lacks it.
#[derive(Serialize)]
pub(super) struct Version<'c> {
    pub name: &'c str,
    pub before: &'c str,
    pub after: &'c str,
}

/// Seconds that a plugin took before and after; the whole run has no name.
#[derive(Serialize)]
pub(super) struct Took<'c> {
    pub plugin: Option<&'c str>,
    pub before: f64,
    pub after: f64,
}

impl Took<'_> {
    /// Whether the durations differ considerably.
    pub(super) fn differs(&self) -> bool {
        self.before.max(self.after) > LONGER * self.before.min(self.after) + 1.0
    }
}

/// Versions that differ between two archives.
pub(super) fn versions<'c>(before: &'c Column, after: &'c Column) -> Vec<Version<'c>> {
    let names: BTreeSet<_> = before.versions.keys().chain(after.versions.keys()).collect();
    let of = |column: &'c Column, name| column.versions.get(name).map_or("", String::as_str);
    let pairs =
        names.into_iter().map(|name| Version { name, before: of(before, name), after: of(after, name) });
    pairs.filter(|version| version.before != version.after).collect()
}

/// Known durations of the run and of each plugin in both archives.
pub(super) fn durations<'c>(before: &'c Column, after: &'c Column) -> Vec<Took<'c>> {
    let took = |plugin, before: Option<Span>, after: Option<Span>| {
        Some(Took { plugin, before: before?.seconds(), after: after?.seconds() })
    };
    let plugins = before.plugins.iter().filter_map(|(name, cell)| {
        took(Some(name.as_str()), cell.duration, after.plugins.get(name)?.duration)
    });
    took(None, before.duration, after.duration).into_iter().chain(plugins).collect()
}

/// The archives, in the order given, and the tests that failed in any.
#[derive(Default)]
pub(crate) struct Many {
    columns: Vec<Column>,
    /// By plugin, node and name, the status in each archive.
    failed: BTreeMap<(String, String, String), BTreeMap<usize, String>>,
}

impl Many {
    /// Adds the next archive.
    pub(crate) fn add(&mut self, report: &Report<'_>) -> anyhow::Result<()> {
        let at = self.columns.len();
        self.columns.push(Column::of(report));
        for plugin in &report.plugins {
            plugin.cases.each(|case| {
                if let FAILED | TIMEOUT = case.status {
                    let node = case.node.unwrap_or_default().to_owned();
                    let key = (plugin.name.to_owned(), node, case.name.to_owned());
                    if self.failed.len() < MAX_REMEMBERED || self.failed.contains_key(&key) {
                        self.failed.entry(key).or_default().insert(at, case.status.to_owned());
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes a text table.
    pub(crate) fn write_text(&self, terminal: &mut Terminal<'_>) -> anyhow::Result<()> {
        for (at, column) in self.columns.iter().enumerate() {
            let took = column.duration.map(|span| format!(", {}", spoken(span.seconds())));
            let started = column.started.as_deref().unwrap_or("unknown start");
            let (took, archive) = (took.unwrap_or_default(), &column.archive);
            terminal.line(&format!("{:>3}  {archive}  ({started}{took})", at + 1))?;
        }
        terminal.gap()?;
        let rows = self.rows(
            "PLUGIN",
            "all",
            |column| &column.plugins,
            |cell| match cell.failed {
                0 => cell.status.clone(),
                failed => format!("{failed} failed"),
            },
        );
        terminal.table(&rows, usize::MAX, |_| "")?;
        // Versions are shown only if they differ.
        let mut rows = self.rows("VERSION", "", |column| &column.versions, String::clone);
        rows.retain(|row| row[0] == "VERSION" || row[1..].iter().any(|cell| *cell != row[1]));
        if rows.len() > 1 {
            terminal.gap()?;
            terminal.table(&rows, usize::MAX, |_| "")?;
        }
        if self.failed.is_empty() {
            return Ok(());
        }
        terminal.gap()?;
        terminal.line("Failed anywhere (x), by number of the archive:")?;
        let mut failed: Vec<_> = self.failed.iter().collect();
        failed.sort_by_key(|(key, statuses)| (std::cmp::Reverse(statuses.len()), *key));
        let lines = failed.into_iter().map(|((plugin, node, test), statuses)| {
            let mark = |at| if statuses.contains_key(&at) { 'x' } else { '.' };
            let marks: String = (0..self.columns.len()).map(mark).collect();
            let node = if node.is_empty() { String::new() } else { format!(" [{node}]") };
            format!("  {marks}  {plugin}{node}: {}", test.trim())
        });
        terminal.list(lines, MAX_LISTED)
    }

    /// The rows of a table with a column for each archive: the verdicts in a row named `all`, if any, then each name
    /// that any archive has.
    fn rows<V>(
        &self,
        title: &str,
        all: &str,
        of: impl Fn(&Column) -> &BTreeMap<String, V>,
        text: impl Fn(&V) -> String,
    ) -> Vec<Vec<String>> {
        let row = |name: &str, cell: &dyn Fn(usize, &Column) -> String| {
            let cells = self.columns.iter().enumerate().map(|(at, column)| cell(at, column));
            std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
        };
        let mut rows = vec![row(title, &|at, _| (at + 1).to_string())];
        if !all.is_empty() {
            rows.push(row(all, &|_, column| column.status.word().to_owned()));
        }
        let names: BTreeSet<_> = self.columns.iter().flat_map(|column| of(column).keys()).collect();
        rows.extend(
            names
                .into_iter()
                .map(|name| row(name, &|_, column| of(column).get(name).map_or_else(|| "-".into(), &text))),
        );
        rows
    }

    /// The document for monitoring systems.
    pub(crate) fn metrics(&self) -> String {
        metrics::text(&self.columns)
    }

    /// The JSON document.
    pub(crate) fn json(&self) -> Value {
        let failed = self.failed.iter().map(|((plugin, node, test), statuses)| {
            let statuses: Vec<_> = (0..self.columns.len()).map(|at| statuses.get(&at)).collect();
            json!({"plugin": plugin, "node": node, "test": test, "statuses": statuses})
        });
        let failed: Vec<_> = failed.collect();
        json!({"schemaVersion": SCHEMA_VERSION, "archives": self.columns, "failed": failed})
    }
}
