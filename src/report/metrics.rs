//! `results --format openmetrics`: the outcome of runs as metrics, for node exporter's textfile collector.
//!
//! Of several archives, each sample has the label `archive`. The archive of a single one is only in `run_info`, so that
//! runs of every night continue the same series.

use std::time::UNIX_EPOCH;

use super::many::Column;
use crate::item::PASSED;
use base::clock::parse_rfc3339;
use base::openmetrics::{Metrics, Sample};

/// Each metric with its help.
const METRICS: [(&str, &str); 7] = [
    ("sonobuoy_run_info", "The archive, its verdict, and versions."),
    ("sonobuoy_run_start_time_seconds", "Start of the run, since 1970."),
    ("sonobuoy_run_duration_seconds", "Duration of the run."),
    ("sonobuoy_run_passed", "1 if every plugin passed."),
    ("sonobuoy_plugin_passed", "1 if the plugin passed."),
    ("sonobuoy_plugin_duration_seconds", "Duration of the plugin."),
    ("sonobuoy_tests", "Tests by status."),
];

/// The document.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn text(columns: &[Column]) -> String {
    let mut samples: [Vec<Sample>; METRICS.len()] = Default::default();
    let passed = |status: &str| f64::from(u8::from(status == PASSED));
    for column in columns {
        let archive = ("archive", column.archive.clone());
        let own = if columns.len() > 1 { vec![archive.clone()] } else { Vec::new() };
        let version = |name| column.versions.get(name).cloned().unwrap_or_default();
        let info = [
            archive,
            ("status", column.status.word().to_owned()),
            ("kubernetes", version("Kubernetes")),
            ("version", version("Sonobuoy")),
        ];
        samples[0].push((info.into(), 1.0));
        let since = |started: &String| parse_rfc3339(started)?.duration_since(UNIX_EPOCH).ok();
        let started = column.started.as_ref().and_then(since);
        samples[1].extend(started.map(|since| (own.clone(), since.as_secs_f64())));
        samples[2].extend(column.duration.map(|span| (own.clone(), span.seconds())));
        samples[3].push((own.clone(), passed(column.status.word())));
        for (plugin, cell) in &column.plugins {
            let own = [&own[..], &[("plugin", plugin.clone())]].concat();
            samples[4].push((own.clone(), passed(&cell.status)));
            samples[5].extend(cell.duration.map(|span| (own.clone(), span.seconds())));
            let flaky = cell.flaky.unwrap_or_default();
            let counts = [
                ("passed", cell.passed),
                ("failed", cell.failed),
                ("flaky", flaky),
                ("skipped", cell.skipped),
            ];
            samples[6].extend(counts.map(|(status, count)| {
                ([&own[..], &[("status", status.to_owned())]].concat(), count as f64)
            }));
        }
    }
    let mut metrics = Metrics::default();
    METRICS.iter().zip(samples).for_each(|((name, help), samples)| metrics.gauge(name, help, samples));
    metrics.finish()
}
