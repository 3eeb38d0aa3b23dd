//! Makes a status document small enough for the annotation that carries it.
//!
//! Two stages: long texts and lists are shortened; then the entries of a plugin are merged into one
//! entry with a count for each status and result, except for the first failed and unfinished ones.
//! No plugin displaces another. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::item;
use crate::status::{self, Entry, Run};
use base::visible::{cut, cut_before_advice};
use client::protocol::Progress;

/// The size of a status document that an annotation can hold: the API refuses more than 256 KiB of
/// annotations in all, and quotes in the document are escaped on the way.
const ANNOTATION_BYTES: usize = 200 << 10;

/// The node of an entry that several were merged into.
const MANY: &str = "*";
/// Maximum length of a text and of a list once a document has to be shortened.
const MAX_ITEMS: usize = 100;
/// Maximum length of the message of an entry then, which is a cause and its remedy.
const MAX_MESSAGE: usize = 400;
/// Maximum numbers of entries of one plugin, status and result that are not merged: the first
/// number that fits.
const MAX_KEPT: [usize; 4] = [200, 50, 10, 0];

/// `run` in at most `ANNOTATION_BYTES` of JSON, marked as truncated if anything was lost.
pub fn shorten(mut run: Run) -> Run {
    if size(&run) <= ANNOTATION_BYTES {
        return run;
    }
    run.truncated = true;
    shorten_texts(&mut run);
    if size(&run) <= ANNOTATION_BYTES {
        return run;
    }
    let mut entries = run.plugins.take().unwrap_or_default();
    for max in MAX_KEPT {
        run.plugins = Some(merge(&entries, max));
        if size(&run) <= ANNOTATION_BYTES {
            return run;
        }
    }
    // Hundreds of plugins, or of results that only one node has.
    for entry in &mut entries {
        (entry.result_counts, entry.message) = (None, None);
        entry.result_status.clear();
    }
    let mut merged = merge(&entries, 0);
    while size(&run) > ANNOTATION_BYTES && !merged.is_empty() {
        run.plugins = Some(merged.clone());
        merged.truncate(merged.len() / 2);
    }
    run
}

/// The length of the JSON of `document`.
fn size(document: &Run) -> usize {
    serde_json::to_string(document).map_or(usize::MAX, |text| text.len())
}

/// Shortens every text and every list.
fn shorten_texts(run: &mut Run) {
    run.error = run
        .error
        .take()
        .map(|error| cut(&error, ANNOTATION_BYTES / 8).into());
    for entry in run.plugins.iter_mut().flatten() {
        entry.plugin = cut(&entry.plugin, MAX_ITEMS).into();
        // The message says as much.
        entry.lost = None;
        entry.message = entry
            .message
            .take()
            .map(|message| cut_before_advice(&message, MAX_MESSAGE));
        entry.result_status = cut(&entry.result_status, MAX_ITEMS).into();
        entry.result_counts = entry.result_counts.take().map(few);
        entry.progress = entry.progress.take().map(|progress| {
            let names = |names: &[String]| {
                names
                    .iter()
                    .take(MAX_ITEMS)
                    .map(|name| cut(name, MAX_ITEMS).into())
                    .collect()
            };
            // Shared with others: only the rest is copied.
            let Progress {
                name,
                node,
                timestamp,
                msg,
                total,
                completed,
                errors,
                failures,
                ..
            } = &*progress;
            Arc::new(Progress {
                name: name.clone(),
                node: node.clone(),
                timestamp: timestamp.clone(),
                msg: cut(msg, MAX_ITEMS).into(),
                total: *total,
                completed: *completed,
                errors: names(errors),
                failures: names(failures),
                ..Progress::default()
            })
        });
    }
}

/// The first of `counts` with shortened names; the others are one count.
fn few(counts: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut few = BTreeMap::new();
    for (at, (status, count)) in counts.into_iter().enumerate() {
        let status = if at < MAX_ITEMS {
            cut(&status, MAX_ITEMS).into()
        } else {
            item::OTHER.into()
        };
        *few.entry(status).or_default() += count;
    }
    few
}

/// Merges the entries of each plugin into one for each pair of status and result, at the position
/// of the first, except for at most `max` failed or unfinished ones.
fn merge(entries: &[Entry], max: usize) -> Vec<Entry> {
    let mut groups: BTreeMap<_, (usize, Option<usize>)> = BTreeMap::new();
    let mut merged: Vec<Entry> = Vec::new();
    for entry in entries {
        let (seen, place) = groups
            .entry((&entry.plugin, &entry.status, &entry.result_status))
            .or_default();
        *seen += 1;
        // A count says enough of a success.
        let is_success = entry.status == status::COMPLETE && entry.result_status != "failed";
        if !is_success && *seen <= max {
            merged.push(entry.clone());
        } else if let Some(at) = *place {
            join(&mut merged[at], entry);
        } else {
            *place = Some(merged.len());
            merged.push(Entry {
                node: MANY.into(),
                count: Some(1),
                progress: None,
                last_heartbeat: None,
                identity: None,
                ..entry.clone()
            });
        }
    }
    merged
}

fn join(many: &mut Entry, one: &Entry) {
    many.count = many.count.map(|count| count + 1);
    many.timed_out |= one.timed_out;
    if let Some(counts) = &one.result_counts {
        let sums = many.result_counts.get_or_insert_default();
        for (status, count) in counts {
            *sums.entry(status.clone()).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nodes` nodes: the first `failed` failed with words, the next `running` at work, the rest
    /// done.
    fn run(nodes: usize, failed: usize, running: usize) -> Run {
        let entry = |number| {
            let mut entry = Entry {
                plugin: "systemd-logs".into(),
                node: format!("ip-10-0-0-{number:05}.eu-central-1.compute.internal"),
                status: status::COMPLETE.into(),
                result_status: "passed".into(),
                result_counts: Some([("passed".into(), 2)].into()),
                ..Entry::default()
            };
            if number < failed {
                entry.status = status::FAILED.into();
                entry.message = Some("no pod was scheduled on the node, ".repeat(20));
            } else if number < failed + running {
                entry.status = status::RUNNING.into();
                entry.result_counts = None;
                entry.last_heartbeat = Some(7);
                let failures = vec!["[sig-network] a test".into(); 50];
                entry.progress = Some(Arc::new(Progress {
                    failures,
                    ..Progress::default()
                }));
            }
            entry
        };
        Run {
            plugins: Some((0..nodes).map(entry).collect()),
            ..Run::default()
        }
    }

    fn total(run: &Run) -> u64 {
        run.plugins
            .iter()
            .flatten()
            .map(|entry| entry.count.unwrap_or(1))
            .sum()
    }

    #[test]
    fn any_number_of_nodes_fits() {
        for (nodes, failed, running) in [
            (100, 5, 5),
            (5_000, 0, 5_000),
            (5_000, 3, 100),
            (5_000, 5_000, 0),
            (10_000, 2_000, 4_000),
            (10_000, 1, 0),
        ] {
            let document = run(nodes, failed, running);
            let whole = size(&document);
            let fitted = shorten(document);
            assert!(
                size(&fitted) <= ANNOTATION_BYTES,
                "{nodes} {failed} {running}: {}",
                size(&fitted)
            );
            assert_eq!(total(&fitted), nodes as u64, "{nodes} {failed} {running}");
            assert_eq!(
                fitted.truncated,
                whole > ANNOTATION_BYTES,
                "{nodes} {failed} {running}"
            );
        }
    }

    #[test]
    fn shortened_message_keeps_its_remedy() {
        let mut document = run(2_000, 2_000, 0);
        let remedy = "; look at its pod, its node and the network";
        for entry in document.plugins.iter_mut().flatten() {
            entry.message.as_mut().unwrap().push_str(remedy);
        }
        let message = shorten(document).plugins.unwrap()[0]
            .message
            .clone()
            .unwrap();
        assert!(
            message.ends_with(remedy) && message.len() <= MAX_MESSAGE,
            "{message}"
        );
    }

    #[test]
    fn failures_precede_successes() {
        let fitted = shorten(run(10_000, 30, 0));
        let entries = fitted.plugins.unwrap();
        assert_eq!(entries.len(), 31);
        assert!(
            entries[..30]
                .iter()
                .all(|entry| entry.status == status::FAILED && entry.message.is_some())
        );
        let many = &entries[30];
        assert_eq!((many.node.as_str(), many.count), ("*", Some(9_970)));
        assert_eq!(many.result_counts.as_ref().unwrap()["passed"], 2 * 9_970);
    }

    #[test]
    fn long_lists_are_shortened_before_nodes_are_folded() {
        let mut document = run(3, 0, 0);
        document.plugins.as_mut().unwrap()[0].progress = Some(Arc::new(Progress {
            msg: "ä".repeat(50_000),
            failures: vec!["[sig-network] a test with a long name ".repeat(10); 6_000],
            ..Progress::default()
        }));
        let fitted = shorten(document);
        assert!(fitted.truncated && size(&fitted) <= ANNOTATION_BYTES);
        let entries = fitted.plugins.unwrap();
        assert_eq!(entries.len(), 3);
        assert!(entries.iter().all(|entry| entry.count.is_none()));
        assert!(entries[0].progress.as_ref().unwrap().failures.len() >= 100);
    }

    #[test]
    fn message_of_one_plugin_hides_no_other() {
        let huge = "x".repeat(5 << 20);
        let counts: BTreeMap<String, u64> = (0..200_000)
            .map(|number| (format!("status {number}"), 1))
            .collect();
        let loud = [
            Entry {
                result_status: huge.clone(),
                ..Entry::default()
            },
            Entry {
                message: Some(huge.clone()),
                ..Entry::default()
            },
            Entry {
                result_counts: Some(counts),
                ..Entry::default()
            },
            Entry {
                result_counts: Some([(huge.clone(), 1)].into()),
                ..Entry::default()
            },
        ];
        for loud in loud {
            let mut document = run(4, 1, 1);
            document.plugins.as_mut().unwrap().insert(
                0,
                Entry {
                    plugin: "loud".into(),
                    ..loud
                },
            );
            let fitted = shorten(document);
            assert!(size(&fitted) <= ANNOTATION_BYTES && fitted.truncated);
            assert_eq!(total(&fitted), 5);
            let counts = fitted.plugins.unwrap().remove(0).result_counts;
            assert!(
                counts.is_none_or(
                    |counts| counts.values().sum::<u64>() == 200_000 || counts.len() == 1
                )
            );
        }
        // Each of many nodes has a different status.
        let entry = |number| Entry {
            plugin: "loud".into(),
            node: format!("n{number}"),
            result_status: format!("{number:01000}"),
            ..Entry::default()
        };
        let mut document = run(4, 4, 0);
        document
            .plugins
            .as_mut()
            .unwrap()
            .extend((0..20_000).map(entry));
        let fitted = shorten(document);
        assert!(size(&fitted) <= ANNOTATION_BYTES);
        assert_eq!(total(&fitted), 20_004);
    }

    #[test]
    fn small_document_is_unchanged() {
        let document = run(10, 2, 2);
        assert_eq!(shorten(document.clone()), document);
    }

    #[test]
    fn run_is_kept_beside_thousands_of_plugins() {
        let entry = |number| Entry {
            plugin: format!("{number:0100}"),
            ..Entry::default()
        };
        let document = Run {
            plugins: Some((0..9_000).map(entry).collect()),
            ..Run::default()
        };
        let fitted = shorten(document);
        assert!(size(&fitted) <= ANNOTATION_BYTES && fitted.truncated);
        assert!(fitted.plugins.unwrap().len() > 500);
    }
}
