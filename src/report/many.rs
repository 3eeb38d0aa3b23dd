//! Several archives side by side, a column each: of clusters, or of days.

use std::collections::BTreeMap;
use std::io::Write;

use super::column::Column;
use super::json::SCHEMA_VERSION;
use super::look::{Look, fit, table};
use super::overview::Overview;
use super::times::spoken;
use crate::item::{FAILED, TIMEOUT};
use base::visible;

/// Maximum failed tests in the text.
const MAX_LISTED: usize = 50;
/// Maximum failed tests to hold.
const MAX_REMEMBERED: usize = 20_000;

/// The archives, in the order given.
#[derive(Default)]
pub(crate) struct Many {
    columns: Vec<Column>,
    /// Tests that failed in any archive: plugin, node and name, with the status in each archive.
    failed: BTreeMap<(String, String, String), BTreeMap<usize, String>>,
}

impl Many {
    /// Adds the next archive.
    pub(crate) fn add(&mut self, overview: &Overview<'_>) -> anyhow::Result<()> {
        let at = self.columns.len();
        self.columns.push(Column::of(overview));
        for plugin in overview.plugins.iter().filter(|plugin| plugin.error.is_none()) {
            overview.leaves(plugin, |leaf| {
                let key =
                    (plugin.name.clone(), leaf.node.unwrap_or_default().to_owned(), leaf.item.name.clone());
                if let FAILED | TIMEOUT = leaf.status()
                    && (self.failed.len() < MAX_REMEMBERED || self.failed.contains_key(&key))
                {
                    self.failed.entry(key).or_default().insert(at, leaf.status().to_owned());
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes a text table.
    pub(crate) fn write_text(&self, look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
        for (at, column) in self.columns.iter().enumerate() {
            let took = column.duration.map(|seconds| format!(", {}", spoken(seconds))).unwrap_or_default();
            let started = column.started.as_deref().unwrap_or("unknown start");
            let line = format!("{:>3}  {}  ({started}{took})", at + 1, column.archive);
            writeln!(out, "{}", fit(&visible::line(&line), look.width))?;
        }
        writeln!(out)?;
        let numbers = (1..=self.columns.len()).map(|number| number.to_string());
        let mut rows = vec![std::iter::once("PLUGIN".to_owned()).chain(numbers).collect::<Vec<_>>()];
        let all = std::iter::once("all".to_owned())
            .chain(self.columns.iter().map(|column| column.status.to_owned()));
        rows.push(all.collect());
        let mut names: Vec<&String> = self.columns.iter().flat_map(|column| column.plugins.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let cells = self.columns.iter().map(|column| match column.plugins.get(name) {
                Some(cell) if cell.failed > 0 => format!("{} failed", cell.failed),
                Some(cell) => cell.status.clone(),
                None => "-".into(),
            });
            rows.push(std::iter::once(name.clone()).chain(cells).collect());
        }
        table(&rows, look, out)?;
        // Versions are shown only if they differ.
        let numbers = (1..=self.columns.len()).map(|number| number.to_string());
        let mut rows = vec![std::iter::once("VERSION".to_owned()).chain(numbers).collect::<Vec<_>>()];
        let mut versions: Vec<&String> =
            self.columns.iter().flat_map(|column| column.versions.keys()).collect();
        versions.sort_unstable();
        versions.dedup();
        for name in versions {
            let cells = self.columns.iter().map(|column| column.versions.get(name));
            if cells.clone().any(|cell| cell != self.columns[0].versions.get(name)) {
                let cells = cells.map(|cell| cell.map_or("-", String::as_str).to_owned());
                rows.push(std::iter::once(name.clone()).chain(cells).collect());
            }
        }
        if rows.len() > 1 {
            writeln!(out)?;
            table(&rows, look, out)?;
        }
        if self.failed.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nFailed anywhere (x), by number of the archive:")?;
        let mut failed: Vec<_> = self.failed.iter().collect();
        failed.sort_by_key(|(key, statuses)| (std::cmp::Reverse(statuses.len()), *key));
        for ((plugin, node, test), statuses) in failed.iter().take(MAX_LISTED) {
            let marks: String = (0..self.columns.len())
                .map(|at| if statuses.contains_key(&at) { 'x' } else { '.' })
                .collect();
            let node = if node.is_empty() { String::new() } else { format!(" [{node}]") };
            let line = format!("  {marks}  {plugin}{node}: {}", test.trim());
            writeln!(out, "{}", fit(&visible::line(&line), look.width))?;
        }
        if failed.len() > MAX_LISTED {
            writeln!(out, "  and {} more", failed.len() - MAX_LISTED)?;
        }
        Ok(())
    }

    /// Writes one JSON document.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let failed: Vec<_> = self
            .failed
            .iter()
            .map(|((plugin, node, test), statuses)| {
                let statuses: Vec<_> = (0..self.columns.len()).map(|at| statuses.get(&at)).collect();
                base::json::json!({"plugin": plugin, "node": node, "test": test, "statuses": statuses})
            })
            .collect();
        let document = base::json::json!({
            "schemaVersion": SCHEMA_VERSION, "archives": self.columns, "failed": failed,
        });
        Ok(writeln!(out, "{document:#}")?)
    }
}
