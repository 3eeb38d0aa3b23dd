//! The OpenMetrics text format: families of samples with escaped labels.
//!
//! Restricted to what older readers of the Prometheus text format, such as node exporter's textfile
//! collector, read as well. Does not know what is measured.

use std::fmt::Write as _;

use crate::Joined as _;

/// The content type of a response.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A document.
#[derive(Default)]
pub struct Metrics(String);

/// The labels and the value of a sample.
pub type Sample = (Vec<(&'static str, String)>, f64);

impl Metrics {
    /// Adds a family of gauges; nothing without samples.
    pub fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.family(name, "gauge", "", help, samples);
    }

    /// Adds a family of counters, whose samples get the suffix `_total`.
    pub fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.family(name, "counter", "_total", help, samples);
    }

    fn family(
        &mut self,
        name: &str,
        kind: &str,
        suffix: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        for (labels, value) in samples {
            let labels = labels
                .iter()
                .map(|(label, text)| format!("{label}=\"{}\"", escaped(text)));
            let labels = labels.joined(",");
            let labels = if labels.is_empty() {
                labels
            } else {
                format!("{{{labels}}}")
            };
            let _ = writeln!(self.0, "{name}{suffix}{labels} {value}");
        }
    }

    /// The text of the document.
    pub fn finish(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_without_samples_are_omitted_and_labels_escaped() {
        let mut metrics = Metrics::default();
        metrics.gauge("a", "None.", []);
        metrics.gauge(
            "b",
            "Some.",
            [
                (vec![("x", "1".into()), ("y", "\"\\\n".into())], 0.5),
                (vec![], 1e9),
            ],
        );
        metrics.counter("c", "Counted.", [(vec![], 3.0)]);
        assert_eq!(
            metrics.finish(),
            "# HELP b Some.\n# TYPE b gauge\nb{x=\"1\",y=\"\\\"\\\\\\n\"} 0.5\nb 1000000000\n# \
             HELP c Counted.\n# TYPE c counter\nc_total 3\n# EOF\n"
        );
    }
}
