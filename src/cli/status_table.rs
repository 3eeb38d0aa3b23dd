//! The status of a run as text: tables and sentences.
//!
//! Columns are right-aligned with three spaces before each, as scripts of the original expect.

use std::collections::{BTreeMap, HashSet};

use super::{output, shown};
use crate::board::{self, Trouble};
use crate::status::{COMPLETE, FAILED, POST_PROCESSING, RUNNING, Run};
use base::Joined as _;
use base::visible;
use client::protocol::Progress;

/// The page for bug reports.
const BUGS: &str = "the page that this program comes from";
/// Maximum lines of messages, and letters of each, so that the table stays on the screen.
const MAX_NOTES: usize = 12;
const MAX_NOTE: usize = 440;
/// Of a long note, the characters that are kept at its end.
const NOTE_END: usize = 150;
/// Maximum nodes to name for one message.
const MAX_PLACES: usize = 3;

/// A table of the run, the state in a sentence, and notes; with `all`, one row per plugin and node.
pub(crate) fn whole(run: &Run, all: bool) -> String {
    let table = if all { self::all(run) } else { summary(run) };
    format!(
        "{table}\n{}\n{}",
        sentence(run),
        notes(run).into_iter().map(|note| note + "\n").collect::<String>()
    )
}

/// The lines of `text` that were not printed before, each with the time.
pub(crate) fn news(text: &str, printed: &mut HashSet<String>) -> String {
    let mut new = String::new();
    for line in text.lines() {
        // Columns grow with others; that is not news.
        let words = line.split_whitespace().joined(" ");
        if !words.is_empty() && printed.insert(words) {
            new.push_str(&format!("{} {}\n", shown::time(), line.trim_end()));
        }
    }
    new
}

/// One row per plugin, status and result.
fn summary(run: &Run) -> String {
    let mut groups: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    let mut entries: BTreeMap<&str, (u64, Option<&Progress>)> = BTreeMap::new();
    for entry in run.plugins.iter().flatten() {
        let count = entry.count.unwrap_or(1);
        *groups.entry((&entry.plugin, &entry.status, &entry.result_status)).or_default() += count;
        let known = entries.entry(&entry.plugin).or_default();
        *known = (known.0 + count, entry.progress.as_deref());
    }
    let rows = groups.iter().map(|((plugin, status, result), count)| {
        // Progress of several nodes does not fit into one cell.
        let shown = entries.get(plugin).and_then(|(count, progress)| progress.filter(|_| *count == 1));
        [(*plugin).into(), (*status).into(), (*result).into(), count.to_string(), cell(shown)]
    });
    output::table(["plugin", "status", "result", "count", "progress"], &rows.collect::<Vec<_>>(), true)
}

/// The columns of [`rows`].
pub(crate) const HEAD: [&str; 5] = ["plugin", "node", "status", "result", "progress"];

fn all(run: &Run) -> String {
    output::table(HEAD, &rows(run), true)
}

/// One row per plugin and node.
pub(crate) fn rows(run: &Run) -> Vec<[String; 5]> {
    let rows = run.plugins.iter().flatten().map(|entry| {
        let node = match entry.count {
            Some(count) if count > 1 => format!("{count} nodes"),
            _ => entry.node.clone(),
        };
        let progress = cell(entry.progress.as_deref());
        [entry.plugin.clone(), node, entry.status.clone(), entry.result_status.clone(), progress]
    });
    rows.collect()
}

/// The state of the run in the original's words, which scripts look for.
fn sentence(run: &Run) -> String {
    match &*run.status {
        RUNNING => "Sonobuoy is still running. Runs can take 60 minutes or more depending on cluster and plugin configuration.".into(),
        FAILED => "Sonobuoy has failed. You can see what happened with `sonobuoy logs`.".into(),
        COMPLETE => "Sonobuoy has completed. Use `sonobuoy retrieve` to get results.".into(),
        POST_PROCESSING => "Sonobuoy plugins have completed. Preparing results for download.".into(),
        other => format!("Sonobuoy is in unknown state \"{}\". Please report a bug at {BUGS}", visible::line(other)),
    }
}

/// The state for an aggregator that publishes no status, from the phase of its pod.
pub(crate) fn silent_sentence(phase: &str, no_image: Option<&str>) -> String {
    match (phase, no_image) {
        ("Running", _) => "The Sonobuoy aggregator is running but is unable to obtain the plugin status information.\n\nIf this state persists, use kubectl to debug further.".into(),
        ("Pending", Some(said)) => format!("The Sonobuoy aggregator is in the 'Pending' state and the container seems unable to pull the image.\n\nPod has the attached message: {}", visible::line(said)),
        ("Pending", None) => "The Sonobuoy aggregator is in the 'Pending' state. This is normal as the pod is created and begins to run, but if this state persists, use kubectl to debug further.".into(),
        ("Succeeded", _) => format!("The Sonobuoy aggregator ran successfully but has stopped. If you didn't intend for this to happen, submit a bug to {BUGS}."),
        (other, _) => format!("The Sonobuoy aggregator is in the '{}' state. Use kubectl to debug further.", visible::line(other)),
    }
}

/// Further notes on a run, one per line: why it failed, the fate of its archive, running tests, problems of plugins.
/// Limited to the height of a screen.
fn notes(run: &Run) -> Vec<String> {
    let error = run.error.as_deref().map(visible::line).unwrap_or_default();
    let own = match (&*run.status, run.upload.as_deref()) {
        (FAILED, _) if !error.is_empty() => Some(format!("The run has failed: {error}.")),
        (COMPLETE, Some(FAILED)) => Some(format!(
            "Its archive could not be uploaded: {}.",
            visible::line(run.not_uploaded().unwrap_or_default())
        )),
        (COMPLETE, Some(RUNNING)) => Some("Its archive is being uploaded.".into()),
        (COMPLETE, Some(COMPLETE)) => Some("Its archive was uploaded.".into()),
        _ => None,
    };
    let aggregator = run.message.as_deref().map(|message| visible::line(message).into_owned());
    let mut lines: Vec<String> =
        own.into_iter().chain(aggregator).chain(tests(run)).chain(troubles(run)).collect();
    if lines.len() > MAX_NOTES {
        let more = lines.len() - (MAX_NOTES - 1);
        lines.truncate(MAX_NOTES - 1);
        lines.push(format!("and {more} more messages; `sonobuoy status --json` has all of them"));
    }
    lines
}

/// Problems of plugins, a line of limited length per plugin and cause.
fn troubles(run: &Run) -> Vec<String> {
    let line = |trouble: &Trouble| {
        let line = board::sentence(trouble, MAX_PLACES);
        let length = line.chars().count();
        if length <= MAX_NOTE {
            return line;
        }
        // The remedy is at the end.
        let end: String = line.chars().skip(length - NOTE_END).collect();
        format!("{} {end}", visible::cut(&line, MAX_NOTE - NOTE_END))
    };
    board::troubles(run).iter().map(line).collect()
}

/// Running tests, one line per plugin that reports them.
fn tests(run: &Run) -> Vec<String> {
    let open = run.plugins.iter().flatten().filter(|entry| entry.status == RUNNING);
    let tests = open.filter_map(|entry| {
        let test = board::running(entry.progress.as_deref()?)?;
        Some(visible::line(&format!("{} on {} runs {test}", entry.plugin, entry.node)).into_owned())
    });
    tests.collect()
}

fn cell(progress: Option<&Progress>) -> String {
    let Some(progress) = progress else { return String::new() };
    let failed = i64::try_from(progress.failures.len()).unwrap_or(i64::MAX);
    let left = progress.total.saturating_sub(progress.completed).saturating_sub(failed);
    let mut text = format!("Passed:{:3}, Failed:{failed:3}", progress.completed);
    if left >= 0 {
        text.push_str(&format!(", Remaining:{left:3}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Entry;

    fn run() -> Run {
        let entry = |plugin: &str, node: &str, status: &str, result: &str| Entry {
            plugin: plugin.into(),
            node: node.into(),
            status: status.into(),
            result_status: result.into(),
            ..Entry::default()
        };
        let progress =
            Progress { total: 10, completed: 3, failures: vec!["x".into()], ..Progress::default() };
        Run {
            plugins: Some(vec![
                entry("logs", "n1", "complete", "passed"),
                entry("logs", "n2", "running", ""),
                entry("logs", "n3", "complete", "passed"),
                Entry { progress: Some(progress.into()), ..entry("e2e", "global", "running", "") },
            ]),
            ..Run::default()
        }
    }

    #[test]
    fn tables_equal_those_of_the_original() {
        assert_eq!(
            summary(&run()),
            concat!(
                "   PLUGIN     STATUS   RESULT   COUNT                                PROGRESS\n",
                "      e2e    running                1   Passed:  3, Failed:  1, Remaining:  6\n",
                "     logs   complete   passed       2                                        \n",
                "     logs    running                1                                        \n",
            )
        );
        assert_eq!(
            all(&run()),
            concat!(
                "   PLUGIN     NODE     STATUS   RESULT                                PROGRESS\n",
                "     logs       n1   complete   passed                                        \n",
                "     logs       n2    running                                                 \n",
                "     logs       n3   complete   passed                                        \n",
                "      e2e   global    running            Passed:  3, Failed:  1, Remaining:  6\n",
            )
        );
    }

    #[test]
    fn names_and_messages_stay_in_their_cells() {
        let evil = "x\n   e2e   complete   passed\r\u{1b}[2J\u{202e}";
        let entry = Entry {
            plugin: evil.into(),
            node: evil.into(),
            status: evil.into(),
            result_status: evil.into(),
            message: Some(evil.into()),
            ..Entry::default()
        };
        let run = Run { plugins: Some(vec![entry]), status: evil.into(), ..Run::default() };
        let failed = Run { status: FAILED.into(), error: Some(evil.into()), ..Run::default() };
        let texts = [troubles(&run).concat(), sentence(&run), notes(&failed).concat()];
        for (text, lines) in
            [summary(&run), all(&run)].iter().map(|text| (text, 2)).chain(texts.iter().map(|text| (text, 1)))
        {
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(text.contains(r"x\n   e2e") && text.contains(r"\r\u001b[2J\u202e"), "{text}");
            assert!(!text.trim_end().contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        }
    }

    #[test]
    fn surplus_results_leave_no_negative_remainder() {
        let progress = Progress { total: 1, completed: 3, ..Progress::default() };
        assert_eq!(cell(Some(&progress)), "Passed:  3, Failed:  0");
    }
}
