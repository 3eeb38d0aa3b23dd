//! Makes a status document small enough for the annotation that carries it.
//!
//! What people look for stays longest: first long texts are shortened, then nodes that are done are folded into
//! one entry with a count, then nodes at work, then failed ones beyond the first, whatever their results are called.
//! What one plugin says never takes the place of another. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::item;
use crate::status::{self, Entry, Run};
use client::protocol::Progress;

/// The size of a status document that an annotation can hold: the API refuses more than 256 KiB of annotations in
/// all, and quotes in the document are escaped on the way.
pub(crate) const ANNOTATION_BYTES: usize = 200 << 10;

/// What stands for the node in an entry of many.
const MANY: &str = "*";

/// `run` in at most `limit` bytes of JSON, marked as truncated if anything had to go.
pub(crate) fn fit(mut run: Run, limit: usize) -> Run {
    if size(&run) <= limit {
        return run;
    }
    run.truncated = true;
    for (text, list) in [(200, 1_000), (100, 100), (60, 10)] {
        shorten(&mut run, text, list);
        if size(&run) <= limit {
            return run;
        }
    }
    let stages: [fn(&Entry) -> bool; 4] = [
        |entry| entry.status == status::COMPLETE && entry.result_status != "failed",
        |entry| entry.status == status::COMPLETE,
        |entry| entry.status == status::RUNNING && entry.message.is_none(),
        |entry| entry.status == status::RUNNING,
    ];
    for folds in stages {
        fold(&mut run, 0, folds);
        if size(&run) <= limit {
            return run;
        }
    }
    for kept in [200, 20, 0] {
        fold(&mut run, kept, |entry| entry.node != MANY);
        if size(&run) <= limit {
            return run;
        }
    }
    run.error = run.error.map(|error| cut(error, limit / 8));
    for entry in run.plugins.iter_mut().flatten() {
        entry.result_status.clear();
    }
    fold(&mut run, 0, |_| true);
    if size(&run) <= limit {
        return run;
    }
    // Hundreds of plugins: that they are there and how they stand is still worth telling.
    for entry in run.plugins.iter_mut().flatten() {
        (entry.result_counts, entry.message, entry.plugin) =
            (None, None, cut(std::mem::take(&mut entry.plugin), 100));
    }
    let mut room = limit.saturating_sub(size(&Run { plugins: None, ..run.clone() }));
    if let Some(entries) = &mut run.plugins {
        let fits = |entry: &Entry| {
            let left = room.checked_sub(bytes(entry) + 1);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let fitting = entries.iter().map(fits).take_while(|fits| *fits).count();
        entries.truncate(fitting);
    }
    run
}

fn size(run: &Run) -> usize {
    bytes(run)
}

/// How long the JSON of `document` is.
fn bytes(document: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, document).map_or(usize::MAX, |()| count.0)
}

/// Cuts every text after `text` characters and every list of names after `list`.
fn shorten(run: &mut Run, text: usize, list: usize) {
    for entry in run.plugins.iter_mut().flatten() {
        entry.message = entry.message.take().map(|message| cut(message, text));
        entry.result_status = cut(std::mem::take(&mut entry.result_status), text);
        entry.result_counts = entry.result_counts.take().map(|counts| few(counts, text, list));
        entry.progress = entry.progress.take().map(|progress| {
            let names =
                |names: &[String]| names.iter().take(list).map(|name| cut(name.clone(), text)).collect();
            // Others hold it, too; only what stays of it is copied.
            let Progress { name, node, timestamp, msg, total, completed, errors, failures, .. } = &*progress;
            Arc::new(Progress {
                name: name.clone(),
                node: node.clone(),
                timestamp: timestamp.clone(),
                msg: cut(msg.clone(), text),
                total: *total,
                completed: *completed,
                errors: names(errors),
                failures: names(failures),
                ..Progress::default()
            })
        });
    }
}

/// The first `list` of `counts`, their names cut after `text` characters; the others are one count.
fn few(counts: BTreeMap<String, u64>, text: usize, list: usize) -> BTreeMap<String, u64> {
    let mut few = BTreeMap::new();
    for (at, (status, count)) in counts.into_iter().enumerate() {
        let status = if at < list { cut(status, text) } else { item::OTHER.into() };
        *few.entry(status).or_default() += count;
    }
    few
}

fn cut(mut text: String, most: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// Folds the entries of each plugin that `folds` says, beyond the first `kept`, into one for each pair of status
/// and result. It stands where the first of them stood.
fn fold(run: &mut Run, kept: usize, folds: impl Fn(&Entry) -> bool) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut places: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    for entry in run.plugins.take().unwrap_or_default() {
        let key = (entry.plugin.clone(), entry.status.clone(), entry.result_status.clone());
        if entry.node == MANY {
            // From an earlier stage; later entries of its kind join it.
            places.insert(key, entries.len());
            entries.push(entry);
            continue;
        }
        if !folds(&entry) {
            entries.push(entry);
            continue;
        }
        let seen = seen.entry(entry.plugin.clone()).or_default();
        *seen += 1;
        if *seen <= kept {
            entries.push(entry);
            continue;
        }
        match places.get(&key) {
            Some(at) => join(&mut entries[*at], &entry),
            None => {
                places.insert(key, entries.len());
                entries.push(first(entry));
            }
        }
    }
    run.plugins = Some(entries);
}

fn first(entry: Entry) -> Entry {
    Entry {
        plugin: entry.plugin,
        node: MANY.into(),
        status: entry.status,
        result_status: entry.result_status,
        result_counts: entry.result_counts,
        count: Some(1),
        timed_out: entry.timed_out,
        message: entry.message,
        ..Entry::default()
    }
}

fn join(many: &mut Entry, one: &Entry) {
    many.count = Some(many.count.unwrap_or(1) + one.count.unwrap_or(1));
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

    /// `nodes` nodes: the first `failed` failed with words, the next `running` at work, the rest done.
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
                entry.progress = Some(Arc::new(Progress { failures, ..Progress::default() }));
            }
            entry
        };
        Run { plugins: Some((0..nodes).map(entry).collect()), ..Run::default() }
    }

    fn total(run: &Run) -> u64 {
        run.plugins.iter().flatten().map(|entry| entry.count.unwrap_or(1)).sum()
    }

    #[test]
    fn any_number_of_nodes_fits_and_none_is_forgotten() {
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
            let fitted = fit(document, ANNOTATION_BYTES);
            assert!(size(&fitted) <= ANNOTATION_BYTES, "{nodes} {failed} {running}: {}", size(&fitted));
            assert_eq!(total(&fitted), nodes as u64, "{nodes} {failed} {running}");
            assert_eq!(fitted.truncated, whole > ANNOTATION_BYTES, "{nodes} {failed} {running}");
        }
    }

    #[test]
    fn failures_are_shown_before_what_went_well() {
        let fitted = fit(run(10_000, 30, 0), ANNOTATION_BYTES);
        let entries = fitted.plugins.unwrap();
        assert_eq!(entries.len(), 31);
        assert!(entries[..30].iter().all(|entry| entry.status == status::FAILED && entry.message.is_some()));
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
        let fitted = fit(document, ANNOTATION_BYTES);
        assert!(fitted.truncated && size(&fitted) <= ANNOTATION_BYTES);
        let entries = fitted.plugins.unwrap();
        assert_eq!(entries.len(), 3);
        assert!(entries.iter().all(|entry| entry.count.is_none()));
        assert!(entries[0].progress.as_ref().unwrap().failures.len() >= 100);
    }

    #[test]
    fn what_one_plugin_says_hides_no_other() {
        let huge = "x".repeat(5 << 20);
        let counts: BTreeMap<String, u64> =
            (0..200_000).map(|number| (format!("status {number}"), 1)).collect();
        let loud = [
            Entry { result_status: huge.clone(), ..Entry::default() },
            Entry { message: Some(huge.clone()), ..Entry::default() },
            Entry { result_counts: Some(counts), ..Entry::default() },
            Entry { result_counts: Some([(huge.clone(), 1)].into()), ..Entry::default() },
        ];
        for loud in loud {
            let mut document = run(4, 1, 1);
            document.plugins.as_mut().unwrap().insert(0, Entry { plugin: "loud".into(), ..loud });
            let fitted = fit(document, ANNOTATION_BYTES);
            assert!(size(&fitted) <= ANNOTATION_BYTES && fitted.truncated);
            assert_eq!(total(&fitted), 5);
            let counts = fitted.plugins.unwrap().remove(0).result_counts;
            assert!(counts.is_none_or(|counts| counts.values().sum::<u64>() == 200_000 || counts.len() == 1));
        }
        // A status of its own on each of many nodes.
        let entry = |number| Entry {
            plugin: "loud".into(),
            node: format!("n{number}"),
            result_status: format!("{number:01000}"),
            ..Entry::default()
        };
        let mut document = run(4, 4, 0);
        document.plugins.as_mut().unwrap().extend((0..20_000).map(entry));
        let fitted = fit(document, ANNOTATION_BYTES);
        assert!(size(&fitted) <= ANNOTATION_BYTES);
        assert_eq!(total(&fitted), 20_004);
    }

    #[test]
    fn a_small_document_stays_as_it_is() {
        let document = run(10, 2, 2);
        assert_eq!(fit(document.clone(), ANNOTATION_BYTES), document);
    }

    #[test]
    fn thousands_of_plugins_leave_at_least_the_run() {
        let entry = |number| Entry { plugin: format!("{number:0100}"), ..Entry::default() };
        let document = Run { plugins: Some((0..9_000).map(entry).collect()), ..Run::default() };
        let fitted = fit(document, ANNOTATION_BYTES);
        assert!(size(&fitted) <= ANNOTATION_BYTES && fitted.truncated);
        assert!(fitted.plugins.unwrap().len() > 500);
    }
}
