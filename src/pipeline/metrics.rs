//! A running run as metrics: `GET /metrics` of the status service.
//!
//! One series for each plugin, never for each node, so that a run of any size costs a monitoring system the same.

use std::collections::BTreeMap;

use crate::names::VERSION;
use crate::status::{self, Run};
use base::openmetrics::{Metrics, Sample};

/// The results of a plugin in numbers.
#[derive(Default)]
struct PluginCounts {
    expected: u64,
    received: u64,
    failed: u64,
    /// Age in seconds of the oldest last heartbeat of awaited results.
    silence: Option<u64>,
}

/// The document of a status.
pub(super) fn text(run: &Run) -> String {
    let mut plugins = BTreeMap::<&str, PluginCounts>::new();
    for entry in run.plugins.iter().flatten() {
        let results = plugins.entry(&entry.plugin).or_default();
        let count = entry.count.unwrap_or(1);
        results.expected += count;
        match entry.status.as_str() {
            status::COMPLETE => results.received += count,
            status::FAILED => results.failed += count,
            _ => results.silence = results.silence.max(entry.last_heartbeat),
        }
    }
    let each = |of: &dyn Fn(&PluginCounts) -> Option<u64>| -> Vec<Sample> {
        let known = plugins.iter().filter_map(|(name, results)| Some((*name, of(results)?)));
        known.map(|(name, number)| (vec![("plugin", name.to_owned())], number as f64)).collect()
    };
    let states = [status::RUNNING, status::POST_PROCESSING, status::COMPLETE, status::FAILED];
    let mut metrics = Metrics::default();
    let mut gauge =
        |name: &str, help: &str, samples| metrics.gauge(&format!("sonobuoy_{name}"), help, samples);
    gauge("run_info", "Version of the aggregator.", vec![(vec![("version", VERSION.into())], 1.0)]);
    let state = |state: &str| (vec![("state", state.into())], f64::from(u8::from(run.status == state)));
    gauge("run_state", "1 for the state of the run.", states.map(state).into());
    gauge("results_expected", "Results that the run expects.", each(&|of| Some(of.expected)));
    gauge("results_received", "Results that have arrived.", each(&|of| Some(of.received)));
    gauge("results_failed", "Results that will not arrive.", each(&|of| Some(of.failed)));
    let help = "Longest silence of a worker whose result is awaited.";
    gauge("heartbeat_age_seconds", help, each(&|of| of.silence));
    gauge(
        "received_bytes",
        "Bytes of the results that have arrived.",
        vec![(vec![], run.received_bytes as f64)],
    );
    gauge(
        "archive_bytes",
        "Size of the archive; 0 until it is complete.",
        vec![(vec![], run.archive.size as f64)],
    );
    metrics.counter(
        "sonobuoy_refusals",
        "Requests of workers that were refused.",
        [(vec![], run.refusals as f64)],
    );
    metrics.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use status::Entry;

    #[test]
    fn results_are_counted_by_plugin_with_the_longest_silence() {
        let entry = |plugin: &str, status: &str, last_heartbeat, count| Entry {
            plugin: plugin.into(),
            status: status.into(),
            last_heartbeat,
            count,
            ..Entry::default()
        };
        let plugins = vec![
            entry("a", status::RUNNING, Some(4), None),
            entry("a", status::RUNNING, Some(40), None),
            entry("a", status::COMPLETE, Some(400), Some(7)),
            entry("b", status::FAILED, None, None),
        ];
        let run = Run { plugins: Some(plugins), received_bytes: 12, refusals: 2, ..Run::default() };
        let text = text(&run);
        for line in [
            "sonobuoy_run_state{state=\"running\"} 1",
            "sonobuoy_run_state{state=\"complete\"} 0",
            "sonobuoy_results_expected{plugin=\"a\"} 9",
            "sonobuoy_results_received{plugin=\"a\"} 7",
            "sonobuoy_results_failed{plugin=\"b\"} 1",
            "sonobuoy_heartbeat_age_seconds{plugin=\"a\"} 40",
            "sonobuoy_received_bytes 12",
            "sonobuoy_refusals_total 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("heartbeat_age_seconds{plugin=\"b\"}"), "{text}");
    }
}
