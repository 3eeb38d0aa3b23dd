//! The results of one plugin processed in a process of their own, so that whatever they hold costs nobody but them.
//!
//! The child is this program with the command [`COMMAND`]. It knows nothing but the folder of the plugin: its
//! environment is empty but for what its system demands. It bounds its own memory and time before it opens the first
//! file, and writes the outcome to stdout and its log to stderr. Where no child can be started (the library without the program), the work is done here.
//! Starts the thread `log of results`, and joins it.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::{Outcome, Rules, process};
use crate::causes;
use crate::config::Processing;
use crate::item::tree::{Finished, Tree};
use crate::item::{FAILED, Item, OTHER, UNKNOWN};
use crate::layout::TREE;
use base::clock;
use base::stop::Stop;
use base::sys;

/// The command of the child, which no help shows.
pub(crate) const COMMAND: &str = "process-results";

/// What the child may say; ten thousand nodes with all known statuses take half.
const OUTCOME: u64 = 4 << 20;
/// Maximum bytes of the child's log to repeat.
const LOG: u64 = 4 << 20;
/// The longest status of a plugin or a node: one that adds up a thousand others is said in the tree alone.
const STATUS: usize = 4 << 10;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// From now on this program is the one to start.
pub(crate) fn in_program(path: PathBuf) {
    PROGRAM.get_or_init(|| path);
}

/// As [`process`], in a child if there can be one, which gets no more than `limits` say.
pub(crate) fn process_apart(dir: &Path, rules: &Rules, limits: &Processing) -> anyhow::Result<Outcome> {
    let Some(program) = PROGRAM.get() else { return process(dir, rules) };
    let mut command = Command::new(program);
    let time = limits.time.as_millis().to_string();
    command.arg(COMMAND).arg(dir).args([limits.memory_bytes.to_string(), time]);
    command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(sys::VITAL.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            log::warn!("results are not processed in a process of their own: {error}");
            return process(dir, rules);
        }
    };
    let said = child.stderr.take();
    let told = std::thread::scope(|scope| {
        // What it logs is logged here, where it neither spoils a board nor is lost.
        let log = || said.into_iter().for_each(relog);
        let logging = std::thread::Builder::new().name("log of results".into()).spawn_scoped(scope, log);
        let told = (|| {
            logging.context("cannot start a thread")?;
            let mut stdin = child.stdin.take().context("its input")?;
            stdin.write_all(&serde_json::to_vec(rules)?)?;
            drop(stdin);
            let mut text = Vec::new();
            child.stdout.take().context("its output")?.take(OUTCOME + 1).read_to_end(&mut text)?;
            anyhow::Ok(text)
        })();
        if told.is_err() {
            // It may have ended by itself.
            let _ = child.kill();
        }
        told
    });
    let status = child.wait().context("the process that reads its results cannot be waited for")?;
    if let Some(reason) = end_reason(status, limits) {
        bail!("its results could not be processed: {reason}");
    }
    let text = told.context("its results could not be processed")?;
    serde_json::from_slice(&text).context("its results could not be processed: the output is invalid")
}

/// Logs what the child logs.
fn relog(mut said: impl io::Read) {
    let lines = io::BufReader::new(said.by_ref().take(LOG)).lines();
    for line in lines.map_while(Result::ok) {
        let level = match &line {
            line if line.contains(" level=error ") => log::Level::Error,
            line if line.contains(" level=warning ") => log::Level::Warn,
            _ => log::Level::Info,
        };
        log::log!(level, "{}", causes::message(&line));
    }
    // A full pipe would block the child.
    let _ = io::copy(&mut said, &mut io::sink());
}

/// The limits of a child, as it is told them in words.
pub(crate) fn limits(memory: &str, time: &str) -> Option<Processing> {
    let time = Duration::from_millis(time.parse().ok()?);
    Some(Processing { memory_bytes: memory.parse().ok()?, time })
}

/// The child: takes its limits, reads its rules, and says what came out.
pub(crate) fn child(
    dir: &Path,
    limits: &Processing,
    mut rules: impl io::Read,
    mut out: impl io::Write,
) -> anyhow::Result<()> {
    if let Err(error) = sys::bound_memory(limits.memory_bytes) {
        // What cannot be bounded here is bounded by the container.
        log::debug!("the memory cannot be limited: {error}");
    }
    let time = limits.time;
    let started =
        std::thread::Builder::new().name("time limit".into()).stack_size(64 << 10).spawn(move || {
            Stop::new().wait(time);
            std::process::exit(TIMED_OUT);
        });
    started.context("cannot limit the time")?;
    let mut text = Vec::new();
    rules.read_to_end(&mut text)?;
    let rules: Rules = serde_json::from_slice(&text).context("no rules")?;
    let outcome = short(process(dir, &rules)?, usize::try_from(OUTCOME).unwrap_or(usize::MAX));
    serde_json::to_writer(&mut out, &outcome)?;
    Ok(out.flush()?)
}

/// How the child says that its time was over.
const TIMED_OUT: i32 = 124;

/// Why the child did not end well; its own words are in the log.
fn end_reason(status: ExitStatus, limits: &Processing) -> Option<String> {
    if let Some(signal) = sys::ended_by_signal(status) {
        const KILL: i32 = 9;
        return Some(match signal {
            KILL => "the system ended the process that read them; it had too little memory".into(),
            _ => format!(
                "reading them took more than {} MiB of memory (`Limits.Processing.MemoryBytes`, signal {signal})",
                limits.memory_bytes >> 20
            ),
        });
    }
    match status.code() {
        Some(0) => None,
        Some(TIMED_OUT) => Some(format!(
            "reading them took more than {} (`Limits.Processing.Time`)",
            clock::duration(limits.time)
        )),
        _ => Some(format!("the process that read them ended with {status}; the log says why")),
    }
}

/// An outcome of which only what is longer than `most` bytes of JSON is cut: first the counts of nodes.
fn short(mut outcome: Outcome, most: usize) -> Outcome {
    let cut = |status: &mut String| {
        if let Some((at, _)) = status.char_indices().nth(STATUS) {
            status.truncate(at);
            status.push('…');
        }
    };
    cut(&mut outcome.status);
    outcome.nodes.iter_mut().for_each(|(_, node)| cut(&mut node.status));
    if serde_json::to_vec(&outcome).is_ok_and(|json| json.len() > most) {
        for (_, node) in &mut outcome.nodes {
            let all = std::mem::take(&mut node.counts);
            for (status, count) in all {
                let status = if crate::item::is_known(&status) { status } else { OTHER.into() };
                *node.counts.entry(status).or_default() += count;
            }
            if !crate::item::is_known(&node.status) {
                node.status = OTHER.into();
            }
        }
    }
    outcome
}

/// Writes the tree of a plugin whose results could not be processed: one item that says why.
pub(crate) fn unprocessed(dir: &Path, rules: &Rules, reason: &str) -> anyhow::Result<Outcome> {
    let path = dir.join(TREE);
    let mut tree = Tree::create(&path, false)?;
    let root = Item { name: rules.name.clone(), ..Item::default() };
    tree.enter(&super::with_meta(root, &[("type", "summary")]), UNKNOWN)?;
    let item = Item { name: "post-processing".into(), status: FAILED.into(), ..Item::default() };
    tree.leaf(&super::with_meta(item, &[("error", reason)]))?;
    let Finished::Written(tally) = tree.finish(&path)? else { bail!("unknown kind of failure") };
    Ok(Outcome { status: tally.status(false), counts: tally.counts().clone(), nodes: Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_told_of_many_nodes_is_short_and_adds_up() {
        let counts: BTreeMap<String, u64> =
            (0..1_000).map(|number| (format!("made up {number}"), 2)).collect();
        let node = Outcome { status: "x".repeat(300_000), counts, nodes: Vec::new() };
        let nodes = (0..100).map(|number| (format!("n{number}"), node.clone())).collect();
        let outcome = short(Outcome { nodes, ..node }, 1 << 20);
        assert!(serde_json::to_vec(&outcome).unwrap().len() < 1 << 20);
        assert_eq!(outcome.nodes[7].1.counts, [(OTHER.to_owned(), 2_000)].into());
        assert_eq!(outcome.counts.len(), 1_000, "the plugin as a whole is told");
    }

    #[test]
    fn a_plugin_whose_results_cannot_be_read_has_a_tree_that_says_so() {
        let dir = base::temp::Folder::new().unwrap();
        let rules = Rules { name: "p".into(), per_node: true, format: "junit".into(), ..Rules::default() };
        let outcome = unprocessed(&dir, &rules, "too much").unwrap();
        assert_eq!((outcome.status.as_str(), outcome.counts[FAILED]), (FAILED, 1));
        let text = std::fs::read_to_string(dir.join(TREE)).unwrap();
        assert!(text.contains("error: too much"), "{text}");
    }

    #[cfg(unix)] // its scripts
    #[test]
    fn how_a_child_ended_is_said_in_words() {
        for (script, words) in [
            ("exit 0", None),
            ("exit 1", Some("the log says why")),
            ("exit 124", Some("took more than 10m0s (`Limits.Processing.Time`)")),
            (
                "kill -6 $$",
                Some("took more than 256 MiB of memory (`Limits.Processing.MemoryBytes`, signal 6)"),
            ),
            ("kill -9 $$", Some("it had too little memory")),
        ] {
            let status = Command::new("sh").args(["-c", script]).status().unwrap();
            match (end_reason(status, &Processing::default()), words) {
                (None, None) => {}
                (Some(reason), Some(words)) => assert!(reason.contains(words), "{script}: {reason}"),
                (reason, _) => panic!("{script}: {reason:?}"),
            }
        }
    }
}
