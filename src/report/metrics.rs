//! `results --format openmetrics`: the outcome of runs as metrics, for node exporter's textfile collector.
//!
//! Of several archives, each sample has the label `archive`. The archive of a single one is only in `run_info`, so that
//! runs of every night continue the same series.

use std::time::UNIX_EPOCH;

use super::many::{Cell, Column};
use base::clock::parse_rfc3339;
use base::openmetrics::{Metrics, Sample};

/// A further label of a plugin's sample, and the value.
type Value = (Option<(&'static str, String)>, f64);

/// The document.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn text(columns: &[Column]) -> String {
    let several = columns.len() > 1;
    let archive = |column: &Column| ("archive", column.archive.clone());
    let labels = |column: &Column| several.then(|| archive(column)).into_iter().collect::<Vec<_>>();
    let each = |of: &dyn Fn(&Column) -> Option<f64>| -> Vec<Sample> {
        columns.iter().filter_map(|column| Some((labels(column), of(column)?))).collect()
    };
    let cells = |of: &dyn Fn(&Cell) -> Vec<Value>| -> Vec<Sample> {
        let all = columns.iter().flat_map(|column| column.plugins.iter().map(move |cell| (column, cell)));
        all.flat_map(|(column, (plugin, cell))| {
            of(cell).into_iter().map(move |(label, value)| {
                let plugin = ("plugin", plugin.clone());
                (labels(column).into_iter().chain([plugin]).chain(label).collect(), value)
            })
        })
        .collect()
    };
    let mut metrics = Metrics::default();
    let mut gauge =
        |name: &str, help: &str, samples| metrics.gauge(&format!("sonobuoy_{name}"), help, samples);
    let version = |column: &Column, name| column.versions.get(name).cloned().unwrap_or_default();
    let info = columns.iter().map(|column| {
        let known = [
            archive(column),
            ("status", column.status.word().to_owned()),
            ("kubernetes", version(column, "Kubernetes")),
            ("version", version(column, "Sonobuoy")),
        ];
        (known.into(), 1.0)
    });
    gauge("run_info", "The archive, its verdict, and versions.", info.collect());
    let started = |column: &Column| {
        let since = parse_rfc3339(column.started.as_deref()?)?.duration_since(UNIX_EPOCH).ok()?;
        Some(since.as_secs_f64())
    };
    gauge("run_start_time_seconds", "Start of the run, since 1970.", each(&started));
    let took = |column: &Column| Some(column.duration?.seconds());
    gauge("run_duration_seconds", "Duration of the run.", each(&took));
    let passed = |of: &str| f64::from(u8::from(of == crate::item::PASSED));
    gauge("run_passed", "1 if every plugin passed.", each(&|column| Some(passed(column.status.word()))));
    gauge("plugin_passed", "1 if the plugin passed.", cells(&|cell| vec![(None, passed(&cell.status))]));
    let took = |cell: &Cell| cell.duration.map(|span| (None, span.seconds())).into_iter().collect();
    gauge("plugin_duration_seconds", "Duration of the plugin.", cells(&took));
    let tests = |cell: &Cell| {
        let counts = [
            ("passed", cell.passed),
            ("failed", cell.failed),
            ("flaky", cell.flaky.unwrap_or_default()),
            ("skipped", cell.skipped),
        ];
        counts.map(|(status, count)| (Some(("status", status.to_owned())), count as f64)).into()
    };
    gauge("tests", "Tests by status.", cells(&tests));
    metrics.finish()
}
