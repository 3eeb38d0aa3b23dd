//! Writes the verdict of each node into a condition of the Node, where schedulers and controllers
//! look.
//!
//! A node is marked as soon as all its results are in, and again at the end of the run if the
//! verdict has changed. A node that no longer exists needs no mark. Starts the thread `marks`, and
//! joins it.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::context::RunContext;
use base::json::json;
use base::stop::{Stop, StopOnDrop};
use base::words::count;
use base::{Joined as _, clock, visible};
use kube::{self, Object as _, Request, Resource};
use model::item::{UNKNOWN, is_failure};
use model::plugin::Definition;
use model::status::{self, Entry};
use model::verdict::Outcome;
use model::{config, layout};
use run::process::{self, PluginOutcome, ReadingRules};

/// Time limit of the marks that are missing at the end of a run.
const FINISH_TIMEOUT: Duration = Duration::from_secs(180);
/// Time limit for retries of one request.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of the message of a condition, and of the cause of one missing result in it.
const MAX_MESSAGE_BYTES: usize = 1_024;
const MAX_CAUSE_BYTES: usize = 256;
/// File for the tree of one node.
const SCRATCH: &str = "node.yaml";

/// Marks the nodes of a run.
pub(super) struct NodeMarker<'a> {
    client: kube::Client,
    /// The type of the condition.
    condition: &'a str,
    /// The identifier of the run.
    run: &'a str,
    /// The nodes that are marked.
    marks: BTreeMap<String, Mark>,
    /// The first refusal for lack of permissions, which the next request would get, too.
    refusal: Option<String>,
}

/// What a node's condition says.
struct Mark {
    results: ResultCounts,
    verdict: NodeVerdict,
}

/// The numbers of a node's results: while they are the same, so is its verdict.
#[derive(Clone, Copy, PartialEq)]
struct ResultCounts {
    all: usize,
    missing: usize,
}

/// What one plugin came to on a node.
enum NodeResult {
    Read(PluginOutcome),
    /// There is no result, for this reason.
    Missing(String),
}

/// The content of a condition.
#[derive(Debug, PartialEq)]
struct NodeVerdict {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Runs `run`, and marks nodes meanwhile. What `run` gets marks the others, once no result changes
/// any more, and returns why some could not be marked.
pub(super) fn beside<T>(
    marker: Option<NodeMarker<'_>>,
    context: &RunContext<'_>,
    stop: &Stop,
    run: impl FnOnce(&mut dyn FnMut() -> Option<String>) -> Result<T>,
) -> Result<T> {
    let over = &stop.child();
    thread::scope(|scope| {
        // Also if the run fails or panics.
        let _over = StopOnDrop(over);
        let mut marking = None;
        if let Some(marker) = marker {
            let follow = || marker.follow(context, over);
            marking = Some(base::thread("marks").spawn_scoped(scope, follow)?);
        }
        run(&mut || {
            over.stop();
            let marker = marking.take()?.join();
            let marker = marker.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            marker.finish(context, stop)
        })
    })
}

impl NodeResult {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Read(outcome) => Outcome::of(&outcome.status, &outcome.counts),
            Self::Missing(_) => Outcome::Unknown,
        }
    }

    fn describe(&self, plugin: &str) -> String {
        let outcome = match self {
            Self::Missing(cause) => {
                let cause = visible::cut_bytes(&visible::line(cause), MAX_CAUSE_BYTES);
                return format!("{plugin} has no result: {cause}");
            }
            Self::Read(outcome) => outcome,
        };
        match self.outcome() {
            Outcome::Passed => format!("{plugin} passed"),
            Outcome::Unknown => format!("{plugin} is unknown"),
            Outcome::Failed => {
                let all: u64 = outcome.counts.values().sum();
                let failed = outcome
                    .counts
                    .iter()
                    .filter(|(status, _)| is_failure(status));
                let failed: u64 = failed.map(|(_, count)| count).sum();
                format!("{plugin} failed ({failed} of {})", count(all, "test"))
            }
        }
    }
}

impl NodeVerdict {
    /// The verdict of the plugins that ran on a node; the worst is first in the message.
    fn of(results: &[(&str, NodeResult)], run: &str) -> Self {
        let outcome = Outcome::worst(results.iter().map(|(_, result)| result.outcome()));
        let is_missing = |result: &NodeResult| matches!(result, NodeResult::Missing(_));
        let (status, reason) = match outcome {
            Outcome::Passed => ("True", "Passed"),
            Outcome::Failed => ("False", "Failed"),
            Outcome::Unknown if results.iter().any(|(_, result)| is_missing(result)) => {
                ("Unknown", "NoResult")
            }
            Outcome::Unknown => ("Unknown", "Unknown"),
        };
        let mut sorted: Vec<_> = results.iter().collect();
        sorted.sort_by_key(|(plugin, result)| (std::cmp::Reverse(result.outcome()), *plugin));
        let plugins = sorted
            .iter()
            .map(|(plugin, result)| result.describe(plugin));
        let message = format!("run {run}: {}", plugins.joined("; "));
        Self {
            status,
            reason,
            message: visible::cut_bytes(&message, MAX_MESSAGE_BYTES),
        }
    }
}

impl<'a> NodeMarker<'a> {
    /// The marker of a run, if it marks nodes.
    pub(super) fn new(config: &'a config::Run, client: &kube::Client) -> Option<Self> {
        (!config.mark_nodes.is_empty()).then(|| Self {
            client: client.clone().retry_timeout(RETRY_TIMEOUT),
            condition: &config.mark_nodes,
            run: &config.uuid,
            marks: BTreeMap::new(),
            refusal: None,
        })
    }

    /// Marks each node as its results are complete, until `stop`. What cannot be marked is left to
    /// the end of the run.
    pub(super) fn follow(mut self, context: &RunContext<'_>, stop: &Stop) -> Self {
        context.aggregator.publish(stop, |status| {
            if !stop.stopped() && self.refusal.is_none() {
                for (node, error) in self.mark_all(status, context, stop) {
                    log::debug!("node `{node}` is marked later: {error}");
                }
            }
            Ok(())
        });
        self
    }

    /// Marks all nodes by their processed results; returns why some are not.
    pub(super) fn finish(mut self, context: &RunContext<'_>, stop: &Stop) -> Option<String> {
        self.refusal = None;
        let status = context.aggregator.status();
        let condition = self.condition;
        let marked = stop.within(FINISH_TIMEOUT, |over| self.mark_all(&status, context, over));
        let failures = match marked {
            Ok(failures) => failures,
            Err(error) => return Some(format!("no node got the condition `{condition}`: {error}")),
        };
        log::info!(
            "{} got the condition `{condition}`",
            count(self.marks.len(), "node")
        );
        let (node, error) = failures.first()?;
        Some(format!(
            "{} did not get the condition `{condition}`, such as `{node}`: {error}",
            count(failures.len(), "node")
        ))
    }

    /// Marks the nodes whose results are complete; returns those that could not be marked, with the
    /// reasons.
    fn mark_all(
        &mut self,
        status: &status::Run,
        context: &RunContext<'_>,
        stop: &Stop,
    ) -> Vec<(String, String)> {
        let client = self.client.under(stop);
        let mut reader = ResultReader::new(context);
        let mut failures = Vec::new();
        for (node, entries) in by_node(status, context) {
            let is_complete = entries.iter().all(|entry| entry.status != status::RUNNING);
            if !is_complete {
                continue;
            }
            let results = ResultCounts::of(&entries);
            let is_processed = entries.iter().any(|entry| !entry.result_status.is_empty());
            let mark = self.marks.get(node);
            if !is_processed && mark.is_some_and(|mark| mark.results == results) {
                continue;
            }
            let read = entries
                .iter()
                .map(|entry| (&*entry.plugin, reader.read(entry)));
            let verdict = NodeVerdict::of(&read.collect::<Vec<_>>(), self.run);
            if mark.is_some_and(|mark| mark.verdict == verdict) {
                continue;
            }
            match self.write(&client, node, &verdict) {
                Ok(()) => {
                    self.marks
                        .insert(node.to_owned(), Mark { results, verdict });
                }
                Err(error) => failures.push((node.to_owned(), error)),
            }
        }
        failures
    }

    /// Writes the condition of one node.
    fn write(
        &mut self,
        client: &kube::Client,
        node: &str,
        verdict: &NodeVerdict,
    ) -> Result<(), String> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let written = self.patch(client, node, verdict);
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.is_not_found() => {
                log::debug!("node `{node}` is gone, and gets no condition");
                Ok(())
            }
            Err(error) if error.is_forbidden() => {
                let refusal = format!(
                    "{error}; the account of the aggregator needs the verb `patch` for \
                     `nodes/status`, and `get` for `nodes`"
                );
                self.refusal = Some(refusal.clone());
                Err(refusal)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn patch(
        &self,
        client: &kube::Client,
        node: &str,
        verdict: &NodeVerdict,
    ) -> Result<(), kube::Error> {
        let node_object = client.get(&Resource::NODES, "", node)?;
        let now = clock::now();
        let mut condition = json!({
            "type": self.condition,
            "status": verdict.status,
            "reason": verdict.reason,
            "message": verdict.message,
            "lastHeartbeatTime": now,
        });
        let before = node_object.condition(self.condition);
        // Without this field, the time of the last change remains.
        if before.is_none_or(|before| before["status"] != verdict.status) {
            condition["lastTransitionTime"] = json!(now);
        }
        let patch = json!({"status": {"conditions": [condition]}});
        let request = Request::strategic_patch(&Resource::NODES, "", node, &patch);
        client.send(&request.subresource("status")).map(drop)
    }
}

impl ResultCounts {
    fn of(entries: &[&Entry]) -> Self {
        let missing = entries
            .iter()
            .filter(|entry| entry.status == status::FAILED);
        Self {
            all: entries.len(),
            missing: missing.count(),
        }
    }
}

/// The results of plugins that run on nodes, by node.
fn by_node<'s>(
    status: &'s status::Run,
    context: &RunContext<'_>,
) -> BTreeMap<&'s str, Vec<&'s Entry>> {
    let per_node = context.plugins.iter().map(|plugin| plugin.definition);
    let per_node: Vec<_> = per_node
        .filter(|definition| definition.config.driver.is_per_node())
        .map(Definition::name)
        .collect();
    let mut nodes: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in status.plugins.iter().flatten() {
        if per_node.contains(&&*entry.plugin) {
            nodes.entry(&entry.node).or_default().push(entry);
        }
    }
    nodes
}

/// Reads results of single nodes.
struct ResultReader<'c> {
    context: &'c RunContext<'c>,
    /// By plugin; they list all results, so they are made once.
    rules: BTreeMap<String, ReadingRules>,
}

impl<'c> ResultReader<'c> {
    fn new(context: &'c RunContext<'c>) -> Self {
        Self {
            context,
            rules: BTreeMap::new(),
        }
    }

    /// The result of an entry: as it was processed, or what its files say so far.
    fn read(&mut self, entry: &Entry) -> NodeResult {
        if entry.status == status::FAILED {
            return NodeResult::Missing(entry.message.clone().unwrap_or_default());
        }
        if !entry.result_status.is_empty() {
            return NodeResult::Read(PluginOutcome {
                status: entry.result_status.clone(),
                counts: entry.result_counts.clone().unwrap_or_default(),
                ..PluginOutcome::default()
            });
        }
        let outcome = self.process(entry).unwrap_or_else(|error| {
            log::debug!("`{}` on `{}`: {error:#}", entry.plugin, entry.node);
            None
        });
        // Without an outcome, the status is neither passed nor failed.
        NodeResult::Read(outcome.unwrap_or(PluginOutcome {
            status: UNKNOWN.into(),
            ..PluginOutcome::default()
        }))
    }

    fn process(&mut self, entry: &Entry) -> Result<Option<PluginOutcome>> {
        let context = self.context;
        let mut plugins = context.plugins.iter();
        let Some(plugin) = plugins.find(|plugin| plugin.definition.name() == entry.plugin) else {
            return Ok(None);
        };
        let rules = self
            .rules
            .entry(entry.plugin.clone())
            .or_insert_with(|| context.rules(plugin));
        let dir = context.run_dir.join(layout::plugin(&entry.plugin));
        let scratch = layout::state_dir(context.run_dir).join(SCRATCH);
        let outcome = process::process_node(&dir, rules, &entry.node, &scratch)?;
        Ok(outcome.of_node(&entry.node).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: &str, counts: &[(&str, u64)]) -> NodeResult {
        NodeResult::Read(PluginOutcome {
            status: status.into(),
            counts: counts
                .iter()
                .map(|(status, count)| ((*status).to_owned(), *count))
                .collect(),
            ..PluginOutcome::default()
        })
    }

    #[test]
    fn worst_result_is_the_verdict_of_a_node() {
        let missing = || NodeResult::Missing("node `n` was lost".into());
        let check = |results: &[(&str, NodeResult)], status: &str, reason: &str, message: &str| {
            let verdict = NodeVerdict::of(results, "r");
            assert_eq!((verdict.status, verdict.reason), (status, reason));
            assert_eq!(verdict.message, format!("run r: {message}"));
        };
        let passed = || read("passed", &[("passed", 2), ("flaky", 1)]);
        check(
            &[("b", passed()), ("a", passed())],
            "True",
            "Passed",
            "a passed; b passed",
        );
        check(
            &[
                ("a", passed()),
                (
                    "b",
                    read("failed", &[("failed", 1), ("timeout", 1), ("passed", 3)]),
                ),
            ],
            "False",
            "Failed",
            "b failed (2 of 5 tests); a passed",
        );
        check(
            &[("a", passed()), ("b", missing())],
            "Unknown",
            "NoResult",
            "b has no result: node `n` was lost; a passed",
        );
        check(
            &[("a", read("failed", &[("failed", 1)])), ("b", missing())],
            "False",
            "Failed",
            "a failed (1 of 1 test); b has no result: node `n` was lost",
        );
        check(
            &[("a", read("unknown", &[("unknown", 1), ("passed", 1)]))],
            "Unknown",
            "Unknown",
            "a is unknown",
        );
        check(&[], "Unknown", "Unknown", "");
    }

    #[test]
    fn long_and_hostile_causes_are_cut_to_one_line() {
        let results = [(
            "a",
            NodeResult::Missing(format!("x\n\u{1b}[31m{}", "ü".repeat(5_000))),
        )];
        let verdict = NodeVerdict::of(&results, "r");
        assert!(
            verdict.message.len() <= MAX_MESSAGE_BYTES,
            "{}",
            verdict.message.len()
        );
        assert!(
            !verdict.message.contains(char::is_control),
            "{}",
            verdict.message
        );
    }
}
