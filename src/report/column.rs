//! A run as one column of a comparison: its time, versions, and the outcome of each plugin.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::overview::{Overview, columns};
use crate::layout;

/// Factor from which a plugin's longer duration is reported.
pub(crate) const LONGER: f64 = 1.1;

/// One archive.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Column {
    /// The label.
    pub archive: String,
    /// Start of the run.
    pub started: Option<String>,
    /// Its verdict.
    pub status: &'static str,
    /// Duration in seconds.
    pub duration: Option<f64>,
    /// Versions and images, by name.
    pub versions: BTreeMap<String, String>,
    /// By plugin.
    pub plugins: BTreeMap<String, Cell>,
}

/// A plugin in an archive.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    /// Its status.
    pub status: String,
    /// Number of tests that passed.
    pub passed: u64,
    /// Number that failed.
    pub failed: u64,
    /// Number that failed and passed on retry.
    #[serde(skip_serializing_if = "is_none")]
    pub flaky: u64,
    /// Number that were skipped.
    pub skipped: u64,
    /// Duration in seconds.
    pub duration: Option<f64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Column {
    /// The column of an archive.
    pub(crate) fn of(overview: &Overview<'_>) -> Self {
        let seconds = |plugin: Option<&str>| {
            let span =
                plugin.map_or_else(|| overview.times.whole(), |plugin| overview.times.of(plugin, None));
            span.map(|span| span.length().as_secs_f64())
        };
        let plugins = overview.plugins.iter().map(|plugin| {
            let [(_, failed), _, (_, flaky), (_, passed), _, (_, skipped)] = columns(&plugin.counts);
            let duration = seconds(Some(&plugin.name));
            (
                plugin.name.clone(),
                Cell { status: plugin.status.clone(), passed, failed, flaky, skipped, duration },
            )
        });
        Self {
            archive: overview.opened.source.label().to_owned(),
            started: overview.times.run.as_ref().map(|(from, _)| from.clone()),
            status: overview.verdict().word(),
            duration: seconds(None),
            versions: versions(overview),
            plugins: plugins.collect(),
        }
    }
}

/// The API server's version, the program's, and the image of each plugin.
fn versions(overview: &Overview<'_>) -> BTreeMap<String, String> {
    let known = [("Kubernetes", &overview.kubernetes), ("Sonobuoy", &overview.version)];
    let known = known.into_iter().map(|(name, version)| (name.to_owned(), version.clone()));
    let images = overview
        .plugins
        .iter()
        .filter_map(|plugin| Some((format!("image of {}", plugin.name), image(overview, &plugin.name)?)));
    known.chain(images).filter(|(_, version)| !version.is_empty()).collect()
}

/// An unreadable definition names no image.
fn image(overview: &Overview<'_>, plugin: &str) -> Option<String> {
    layout::DEFINITIONS.iter().find_map(|name| {
        let bytes = overview.opened.files.small(&format!("{}/{name}", layout::plugin(plugin))).ok()??;
        let definition: Value = base::json::from_slice(&bytes).ok()?;
        Some(definition.pointer("/Definition/spec/image")?.as_str()?.to_owned())
    })
}

/// Values that differ between two archives: name, before and after; empty if an archive lacks the value.
pub(crate) fn changed<'c>(before: &'c Column, after: &'c Column) -> Vec<(&'c str, &'c str, &'c str)> {
    let names: std::collections::BTreeSet<&String> =
        before.versions.keys().chain(after.versions.keys()).collect();
    let of = |column: &'c Column, name: &str| column.versions.get(name).map_or("", String::as_str);
    names
        .into_iter()
        .map(|name| (name.as_str(), of(before, name), of(after, name)))
        .filter(|(_, before, after)| before != after)
        .collect()
}
