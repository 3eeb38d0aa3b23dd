//! Why a run failed as a whole: the document in its archive, and the introduction of reports.

use serde::{Deserialize, Serialize};

use super::{Causes, ReportedFailure};

/// Maximum causes kept, by descending number of results.
const MAX_CAUSES: usize = 20;
/// Maximum causes in a report.
const MAX_TOLD: usize = 3;

/// An error in the place of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    /// Time of the error, RFC 3339.
    pub time: String,
    /// The plugin.
    pub plugin: String,
    /// The node, `global` for a plugin that runs once.
    pub node: String,
    /// The error message.
    pub error: String,
}

/// The common cause of several errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Reason {
    /// The first significant line, masked.
    cause: String,
    /// The number of results.
    count: u64,
    /// The number of nodes; 0 for plugins that run once.
    nodes: usize,
    /// The remedy.
    remedy: Option<String>,
}

/// Why a run has no results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Why {
    /// The number of expected results.
    results: u64,
    /// The first error.
    first: Event,
    causes: Vec<Reason>,
}

impl Why {
    /// Summarises all errors of a run, which must not be empty.
    pub(crate) fn new(mut errors: Vec<Event>) -> Self {
        errors.sort_by(|a, b| a.time.cmp(&b.time));
        let mut causes = Causes::new(errors.iter().map(|error| error.node.as_str()));
        for Event { plugin, node, error, .. } in &errors {
            let node = Some(node.as_str()).filter(|node| *node != client::protocol::GLOBAL);
            causes.add(&ReportedFailure {
                plugin,
                node,
                test: plugin,
                text: error,
                ..ReportedFailure::default()
            });
        }
        let reason = |cause: super::Cause| Reason {
            cause: cause.cause,
            count: cause.count,
            nodes: cause.nodes.len(),
            remedy: cause.remedy,
        };
        Self {
            results: errors.len() as u64,
            causes: causes.list().into_iter().take(MAX_CAUSES).map(reason).collect(),
            first: errors.into_iter().next().unwrap_or_default(),
        }
    }

    /// Formats for display: the outcome, the causes by count, each with its remedy, and the first event.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut told = vec![match self.results {
            1 => "The run failed as a whole: its only result did not arrive.".to_owned(),
            all => format!("The run failed as a whole: none of its {all} results arrived."),
        }];
        for reason in self.causes.iter().take(MAX_TOLD) {
            let on = match reason.nodes {
                0 => String::new(),
                1 => " on 1 node".into(),
                nodes => format!(" on {nodes} nodes"),
            };
            let remedy = reason.remedy.as_ref().map_or_else(String::new, |remedy| format!(" -> {remedy}"));
            told.push(format!("{} x{on}: {}{remedy}", reason.count, reason.cause));
        }
        if self.causes.len() > MAX_TOLD {
            told.push(format!("There are {} more causes.", self.causes.len() - MAX_TOLD));
        }
        let Event { time, plugin, node, .. } = &self.first;
        told.push(format!("It began with {plugin} on {node} at {time}."));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_results_lists_causes_by_count() {
        let event = |time: &str, node: &str, error: &str| Event {
            time: time.into(),
            plugin: "p".into(),
            node: node.into(),
            error: error.into(),
        };
        let refused = "cannot reach the aggregator: no connection to 10.0.0.1:8080: Connection refused";
        let why = Why::new(vec![
            event("2026-01-01T00:00:05Z", "n1", refused),
            event("2026-01-01T00:00:03Z", "global", "odd"),
            event("2026-01-01T00:00:04Z", "n2", refused),
        ]);
        let told = why.sentences();
        assert_eq!(told[0], "The run failed as a whole: none of its 3 results arrived.");
        assert!(
            told[1].starts_with("2 x on 2 nodes: cannot reach the aggregator: no connection to <ip>:8080"),
            "{told:?}"
        );
        assert!(told[1].contains(" -> a network policy or firewall"), "{told:?}");
        assert_eq!(told[2..], ["1 x: odd", "It began with p on global at 2026-01-01T00:00:03Z."]);
        let text = serde_json::to_string(&why).unwrap();
        assert_eq!(serde_json::from_str::<Why>(&text).unwrap(), why);
    }
}
