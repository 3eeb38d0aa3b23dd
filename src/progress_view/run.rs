//! The status of a run as a scene: the progress of its plugins, summed over nodes. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use super::{Scene, Steps, Task, Trouble, Unit, span};
use base::Joined as _;
use base::clock;
use client::protocol::{GLOBAL, Progress};
use model::item;
use model::layout;
use model::remedies;
use model::status::{self, Entry, Run};

/// What the watching command knows in addition to the status.
#[derive(Default)]
pub(crate) struct About {
    /// The title.
    pub title: String,
    /// The time limit, in words.
    pub limit: String,
    /// What the user can do meanwhile.
    pub hint: String,
    /// Average duration of a test in an earlier run, if known.
    pub per_test: Option<Duration>,
}

/// The plugin whose steps are tests.
const TESTS: &str = "e2e";
/// Shorter delays are not mentioned.
const LONG: Duration = Duration::from_secs(60);
/// Maximum number of pending nodes to name.
const MAX_NAMED: usize = 2;
/// With more pending nodes than this, none is named: the plugin is simply running.
const FEW: u64 = 10;

/// The scene of a run.
pub(crate) fn of_run(run: &Run, about: &About) -> Scene {
    let mut plugins: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in run.plugins.iter().flatten() {
        plugins.entry(&entry.plugin).or_default().push(entry);
    }
    let mut tasks = Vec::new();
    for (name, entries) in &plugins {
        let mut others = plugins.keys();
        let is_split = others.any(|other| layout::is_other_part(other, name));
        let mut task = task(name, entries, is_split);
        if task.coarsest().unit == Unit::Tests {
            task.per_step = about.per_test;
        }
        tasks.push(task);
    }
    let mut footer = vec![waited_for(run, &plugins)];
    if run.status == status::RUNNING {
        footer.extend([about.limit.clone(), about.hint.clone()]);
    }
    footer.retain(|part| !part.is_empty());
    Scene {
        title: about.title.clone(),
        state: run.status.clone(),
        tasks,
        troubles: troubles(run),
        footer,
        began: run.started,
        ended: clock::parse_rfc3339(&run.archive.created)
            .filter(|_| run.archive.created != clock::ZERO),
        product: Some(run.archive.name.clone()).filter(|name| !name.is_empty()),
    }
}

fn count(entry: &Entry) -> u64 {
    entry.count.unwrap_or(1)
}

fn is_over(entry: &Entry) -> bool {
    entry.status != status::RUNNING
}

/// Whether the result is known to be bad.
fn has_failed(entry: &Entry) -> bool {
    entry.status == status::FAILED || entry.result_status == status::FAILED
}

fn task(name: &str, entries: &[&Entry], is_joined: bool) -> Task {
    let sum = |wanted: &dyn Fn(&Entry) -> bool| -> u64 {
        entries
            .iter()
            .filter(|entry| wanted(entry))
            .map(|entry| count(entry))
            .sum()
    };
    let steps_of_entries = entries.iter().filter_map(|entry| steps(entry, is_joined));
    let steps = steps_of_entries.reduce(|sum, steps| Steps {
        unit: sum.unit,
        done: sum.done.saturating_add(steps.done),
        total: sum.total.saturating_add(steps.total),
        failed: sum.failed.saturating_add(steps.failed),
    });
    let progress = entries.iter().filter_map(|entry| entry.progress.as_deref());
    let newest = progress.max_by_key(|progress| &progress.timestamp);
    let once = entries.iter().all(|entry| entry.node == GLOBAL);
    Task {
        name: name.to_owned(),
        unit: if once { Unit::Once } else { Unit::Nodes },
        done: sum(&is_over),
        total: sum(&|_| true),
        failed: sum(&has_failed),
        steps,
        note: newest.map(last_message).unwrap_or_default(),
        over: entries.iter().all(|entry| is_over(entry)),
        result: result(entries),
        per_step: None,
    }
}

/// The latest message, with its age if old: the plugin may hang.
fn last_message(progress: &Progress) -> String {
    if let Some(running) = running(progress) {
        return format!("RUNNING {running}");
    }
    lasting(&progress.msg, clock::parse_rfc3339(&progress.timestamp))
}

/// The running test, and its elapsed time, if long.
pub(crate) fn running(progress: &Progress) -> Option<String> {
    status::running_of(progress).map(|(name, since)| lasting(name, since))
}

/// Appends the elapsed time, if long.
fn lasting(what: &str, since: Option<SystemTime>) -> String {
    let since = since.and_then(|at| at.elapsed().ok());
    match since.filter(|since| *since >= LONG && !what.is_empty()) {
        Some(since) => format!("{what}, for {}", span(since)),
        None => what.to_owned(),
    }
}

/// Steps of one entry, failed ones included: from the result, else from its progress. A result
/// joined with those of other parts counts more than this entry.
fn steps(entry: &Entry, is_joined: bool) -> Option<Steps> {
    let progress = entry.progress.as_deref()?;
    let count_of = |number: i64| u64::try_from(number).unwrap_or(0);
    let (mut passed, mut failed) = (0, 0);
    for (status, count) in entry.result_counts.iter().flatten() {
        match status.as_str() {
            "passed" | "complete" | item::FLAKY => passed += count,
            "failed" => failed += count,
            _ => {}
        }
    }
    let done = passed + failed;
    if done > 0 && !is_joined {
        return Some(Steps {
            unit: Unit::Tests,
            done,
            total: done,
            failed,
        });
    }
    let failed = progress.failures.len() as u64;
    let done = count_of(progress.completed).saturating_add(failed);
    let unit = if entry.plugin.split('-').next() == Some(TESTS) {
        Unit::Tests
    } else {
        Unit::Steps
    };
    Some(Steps {
        unit,
        done,
        total: count_of(progress.total).max(done),
        failed,
    })
}

/// The worst of the results.
fn result(entries: &[&Entry]) -> String {
    if entries.iter().any(|entry| has_failed(entry)) {
        return status::FAILED.into();
    }
    let mut words: Vec<&String> = entries.iter().map(|entry| &entry.result_status).collect();
    words.retain(|word| !word.is_empty());
    // Results other than `passed` are more informative.
    let others = words.iter().filter(|word| **word != "passed");
    let word = others.min().or(words.first());
    word.map_or_else(String::new, |word| (*word).clone())
}

/// The problems of the plugins of a run, each cause once.
pub(crate) fn troubles(run: &Run) -> Vec<Trouble> {
    let mut troubles: Vec<Trouble> = Vec::new();
    // Causes that differ only in numbers, hashes and the like are the same.
    let mut keys: HashMap<(&str, String), usize> = HashMap::new();
    let mut cause_keys: HashMap<String, String> = HashMap::new();
    let entries = run.plugins.iter().flatten();
    let nodes: HashSet<String> = entries.map(|entry| entry.node.clone()).collect();
    let messages = run
        .plugins
        .iter()
        .flatten()
        .filter_map(|entry| Some((entry, entry.message.as_ref()?)));
    for (entry, cause) in messages {
        // Causes that differ only in the name of the node are the same.
        let node_name = format!("`{}`", entry.node);
        let cause = cause
            .replace(&format!("node {node_name}"), "the node")
            .replace(&node_name, "the node")
            .split_whitespace()
            .joined(" ");
        let key = cause_keys
            .entry(cause.clone())
            .or_insert_with(|| remedies::cause_key(&cause, &nodes));
        let key = (&*entry.plugin, key.clone());
        let place = match count(entry) {
            1 => entry.node.clone(),
            nodes => format!("{nodes} nodes"),
        };
        match keys.get(&key) {
            Some(at) => troubles[*at].places.push(place),
            None => {
                keys.insert(key, troubles.len());
                troubles.push(Trouble {
                    task: entry.plugin.clone(),
                    places: vec![place],
                    cause,
                });
            }
        }
    }
    troubles
}

fn waited_for(run: &Run, plugins: &BTreeMap<&str, Vec<&Entry>>) -> String {
    match run.status.as_str() {
        status::POST_PROCESSING => return "results are processed and packed".into(),
        status::RUNNING => {}
        _ => return String::new(),
    }
    let pending = plugins
        .iter()
        .filter_map(|(name, entries)| pending_part(name, entries));
    let pending = pending.joined("; ");
    if pending.is_empty() {
        pending
    } else {
        format!("waiting for {pending}")
    }
}

/// The part of a plugin that is waited for: its test, or its nodes.
fn pending_part(name: &str, entries: &[&Entry]) -> Option<String> {
    let open: Vec<_> = entries.iter().filter(|entry| !is_over(entry)).collect();
    let nodes: u64 = open.iter().map(|entry| count(entry)).sum();
    let first = open.iter().take(MAX_NAMED);
    let named: Vec<&str> = first.map(|entry| entry.node.as_str()).collect();
    let more = nodes.saturating_sub(named.len() as u64);
    Some(match nodes {
        0 => return None,
        _ if named == [GLOBAL] => {
            let progress = open.first().and_then(|entry| entry.progress.as_deref());
            match progress.and_then(running) {
                Some(test) => format!("{name}: {test}"),
                None => name.to_owned(),
            }
        }
        1..=FEW if more == 0 => format!("{name} on {}", named.join(", ")),
        1..=FEW => format!("{name} on {} and {more} more", named.join(", ")),
        _ => format!("{name} on {nodes} nodes"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::protocol::Progress;

    fn entry(plugin: &str, node: &str, state: &str, result: &str) -> Entry {
        Entry {
            plugin: plugin.into(),
            node: node.into(),
            status: state.into(),
            result_status: result.into(),
            ..Entry::default()
        }
    }

    fn progress(total: i64, completed: i64, failures: &[&str]) -> Progress {
        let failures = failures.iter().map(|&name| name.into()).collect();
        Progress {
            total,
            completed,
            failures,
            msg: format!("at {completed}"),
            ..Progress::default()
        }
    }

    fn shown(state: &str, entries: Vec<Entry>) -> Scene {
        let run = Run {
            plugins: Some(entries),
            status: state.into(),
            ..Run::default()
        };
        of_run(
            &run,
            &About {
                title: "t".into(),
                limit: "l".into(),
                hint: "h".into(),
                per_test: None,
            },
        )
    }

    #[test]
    fn progress_is_summed_and_failures_counted_once() {
        let told = |node: &str, done: i64, failures: &[&str]| Entry {
            progress: Some(progress(10, done, failures).into()),
            ..entry("p", node, "running", "")
        };
        let folded = Entry {
            count: Some(5),
            ..entry("p", "n9", "complete", "passed")
        };
        let scene = shown(
            "running",
            vec![
                told("n1", 3, &["x"]),
                told("n2", 4, &[]),
                entry("p", "n3", "failed", ""),
                folded,
            ],
        );
        let task = &scene.tasks[0];
        assert_eq!(
            (task.done, task.total, task.failed, task.over),
            (6, 8, 1, false)
        );
        assert_eq!(
            task.steps,
            Some(Steps {
                unit: Unit::Steps,
                done: 8,
                total: 20,
                failed: 1
            })
        );
        assert_eq!(scene.footer, ["waiting for p on n1, n2", "l", "h"]);
    }

    #[test]
    fn results_of_other_parts_are_not_counted_again() {
        let part = |name: &str, done: i64, counted: Option<u64>| Entry {
            progress: Some(progress(done, done, &[]).into()),
            result_counts: counted.map(|count| [("passed".to_owned(), count)].into()),
            ..entry(name, "global", "complete", "passed")
        };
        let scene = shown(
            "complete",
            vec![part("e2e", 24, Some(39)), part("e2e-part-2", 15, None)],
        );
        let steps: Vec<_> = scene
            .tasks
            .iter()
            .filter_map(|task| task.steps.map(|steps| steps.total))
            .collect();
        assert_eq!(steps, [24, 15]);
    }

    #[test]
    fn last_line_states_the_result() {
        let counts = [
            ("passed".to_owned(), 57),
            ("failed".to_owned(), 2),
            ("skipped".to_owned(), 6_000),
        ];
        let e2e = Entry {
            progress: Some(progress(57, 57, &[]).into()),
            result_counts: Some(counts.into()),
            ..entry("e2e", "global", "complete", "failed")
        };
        let scene = shown("complete", vec![e2e]);
        let task = &scene.tasks[0];
        assert_eq!(
            task.steps,
            Some(Steps {
                unit: Unit::Tests,
                done: 59,
                total: 59,
                failed: 2
            })
        );
        assert_eq!(
            (task.result.as_str(), task.over, task.failed),
            ("failed", true, 1)
        );
        assert_eq!(scene.footer, [""; 0], "nothing is waited for");
    }

    #[test]
    fn equal_causes_on_many_nodes_are_one_trouble() {
        let trouble = |node: &str, cause: &str| Entry {
            message: Some(cause.replace("NODE", &format!("`{node}`"))),
            ..entry("p", node, "running", "")
        };
        let entries = vec![
            trouble("a", "NODE is full"),
            trouble("b", "NODE is full"),
            trouble("c", "killed 2 times (exit code 137)"),
            trouble("d", "killed 3 times (exit code 137)"),
            trouble("e", "killed 3 times (exit code 1)"),
        ];
        let troubles = shown("running", entries).troubles;
        let told: Vec<_> = troubles
            .iter()
            .map(|one| (one.places.join(" "), one.cause.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("a b".to_owned(), "the node is full"),
                ("c d".to_owned(), "killed 2 times (exit code 137)"),
                ("e".to_owned(), "killed 3 times (exit code 1)"),
            ]
        );
    }

    #[test]
    fn few_pending_nodes_are_named() {
        let nodes = |count: usize| {
            (0..count)
                .map(|node| entry("p", &format!("n{node}"), "running", ""))
                .collect()
        };
        for (count, expected) in [
            (1, "waiting for p on n0"),
            (2, "waiting for p on n0, n1"),
            (5, "waiting for p on n0, n1 and 3 more"),
            (30, "waiting for p on 30 nodes"),
        ] {
            assert_eq!(shown("running", nodes(count)).footer[0], expected);
        }
        assert_eq!(
            shown("running", vec![entry("e2e", "global", "running", "")]).footer[0],
            "waiting for e2e"
        );
        assert_eq!(
            shown("post-processing", nodes(1)).footer[0],
            "results are processed and packed"
        );
    }
}
