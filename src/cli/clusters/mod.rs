//! One command for many clusters: `--contexts` and `--kubeconfigs`.
//!
//! Each cluster gets a process of this program with the same command line for that cluster alone: processes share no
//! locks, signals or output, so that neither a hang nor a crash in one cluster affects another. They report events, whose
//! sum is the board, or print a document. The merged report is the comparison of their archives. Starts the threads
//! `cluster`, at most `--parallel`, and joins them.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};

use super::afterwards::{OutputFiles, ending, look};
use super::flag::Args;
use super::shown::{self, Plain};
use super::{error, form, output, results};
use crate::board::{About, Board, Scene, Task, Trouble, Unit, of_run, report_event};
use crate::report::{self, Many, TextOutput};
use crate::status::{FAILED, Run};
use base::at::At as _;
use base::json::{self, json};
use base::stop::{Stop, caught};
use base::temp;
use serde_json::Value;

mod child;
mod select;

use select::SelectedCluster;

/// The log of a cluster's latest command, and the mark of its unfinished run, in its folder.
const LOG: &str = "sonobuoy.log";
const MARK: &str = "running";

/// Whether a call is for many clusters.
pub(super) fn are_chosen(args: Args) -> bool {
    args.given("contexts") || args.given("kubeconfigs")
}

/// Runs a command in each cluster; returns the worst exit code: an error, else a failed transfer, else bad results.
pub(super) fn run(args: Args, command: &str) -> Result<u8> {
    check(args)?;
    let is_run = ["run", "wait"].contains(&command);
    let asked = |flags: &[&str]| is_run && flags.iter().any(|flag| args.given(flag));
    let reports = asked(&["retrieve", "resume", "junit", "html", "fail-on"]);
    let waits = command == "wait" || reports || asked(&["wait", "delete"]);
    let is_dry = args.text("dry-run").is_some_and(|word| word != "none");
    let has_events = is_run && waits && !is_dry || command == "status" && args.on("watch");
    let reports = reports && !is_dry;
    // The folder with those of the clusters, if they are kept.
    let kept = ["resume", "retrieve", "dir"].into_iter().filter(|flag| *flag != "resume" || reports);
    let kept = kept.filter_map(|flag| args.text(flag)).map(Path::new).next();
    let clusters = select::clusters(args)?;
    let files = OutputFiles::open(args)?;
    let passing = match kept {
        Some(_) => None,
        None => Some(temp::Folder::new().context("cannot create a temporary folder")?),
    };
    let root = passing.as_deref().or(kept).unwrap_or(Path::new("."));
    let stop = Stop::new();
    shown::stop_on_interrupt(&stop)?;
    let outcomes = clusters
        .iter()
        .map(|cluster| ClusterOutcome { name: cluster.name.clone(), ..ClusterOutcome::default() });
    let outcomes = Mutex::new(outcomes.collect());
    let fleet =
        Fleet { args, command, has_events, reports, root, clusters: &clusters, stop: &stop, outcomes };
    let plain = if has_events { Plain::Stdout } else { Plain::Log };
    let is_quiet = ["retrieve", "status"].contains(&command) && !has_events;
    let how = if is_quiet { shown::or_quiet(args) } else { shown::or_plain(args) };
    shown::with(how, plain, |board| fleet.work(board))?;
    let outcomes = fleet.lock();
    for outcome in outcomes.iter().filter(|outcome| is_quiet && !outcome.error.is_empty()) {
        log::error!("{}: {}", outcome.name, outcome.error);
    }
    if stop.stopped() {
        let is_open = |outcome: &&ClusterOutcome| outcome.code.is_none_or(|code| code == shown::INTERRUPTED);
        let left = outcomes.iter().filter(is_open).count();
        let again = match kept {
            Some(root) if reports => format!("; `--resume {}` continues", root.display()),
            _ => String::new(),
        };
        let text = format!("interrupted: {left} of {} clusters are not done{again}", clusters.len());
        return Err(error::interrupted(text));
    }
    let bad = if reports {
        report(args, &files, &outcomes)?
    } else {
        fleet.show(&outcomes)?;
        0
    };
    let codes = outcomes.iter().filter_map(|outcome| outcome.code).chain([bad]);
    Ok(codes.filter(|code| *code > 0).min().unwrap_or_default())
}

/// What has become of a cluster.
#[derive(Default)]
struct ClusterOutcome {
    name: String,
    begun: bool,
    /// The exit code of its process, once ended.
    code: Option<u8>,
    /// Why it is not 0.
    error: String,
    scene: Scene,
    printed: String,
    /// The archive, once fetched.
    archive: Option<PathBuf>,
}

impl ClusterOutcome {
    fn task(&self, has_events: bool) -> Task {
        let mut task = match has_events {
            true => self.scene.as_task(&self.name),
            false => Task { name: self.name.clone(), unit: Unit::Once, total: 1, ..Task::default() },
        };
        let Some(code) = self.code else { return task };
        let failed = code != 0 || self.scene.tasks.iter().any(|task| task.result == FAILED);
        (task.over, task.note) = (true, String::new());
        task.result = match code {
            shown::INTERRUPTED => "interrupted",
            _ if failed => FAILED,
            _ if has_events => "done",
            _ => "",
        }
        .into();
        if !has_events {
            (task.done, task.failed) = (1, u64::from(failed));
        }
        task
    }

    fn hear(&mut self, line: &str, has_events: bool) {
        if !has_events || !self.scene.adopt(line) {
            self.printed.push_str(line);
        }
    }

    /// The row of `status`.
    fn row(&self) -> [String; 5] {
        let run = Run::parse(&self.printed).ok().filter(|_| !self.printed.is_empty());
        let Some(run) = run else { return [&self.name, "unknown", "", "", &*self.error].map(str::to_owned) };
        let task = of_run(&run, &About::default()).as_task(&self.name);
        let message = run.message.or(run.error).unwrap_or_default();
        let results = format!("{}/{}", task.done, task.total);
        [self.name.clone(), run.status, results, task.failed.to_string(), message]
    }
}

/// The work in all clusters.
struct Fleet<'a> {
    args: Args<'a>,
    command: &'a str,
    /// Whether processes report events.
    has_events: bool,
    /// Whether there is a merged report.
    reports: bool,
    root: &'a Path,
    clusters: &'a [SelectedCluster],
    stop: &'a Stop,
    /// In the order of the clusters.
    outcomes: Mutex<Vec<ClusterOutcome>>,
}

/// The merged report on the runs in several clusters; returns the exit code of `--fail-on`.
fn report(args: Args, files: &OutputFiles<'_>, outcomes: &[ClusterOutcome]) -> Result<u8> {
    let mut many = Many::default();
    let mut worst = None;
    for ClusterOutcome { name, archive, error, .. } in outcomes {
        match archive.as_ref().map(|archive| archive.display().to_string()) {
            Some(archive) => match results::add(args, &mut many, &archive, Some(name), worst.clone()) {
                Ok(ended) => worst = ended,
                Err(error) => many.add_missing(name, &format!("{error:#}")),
            },
            None => many.add_missing(name, error),
        }
    }
    files.write(|out| report::write_many_junit(&many, out), |out| report::write_many_html(&many, out))?;
    if shown::is_json(args) {
        output::print(&format!("{}\n", report_event(&many.json())))?;
    } else {
        let mut out = output::buffered(false);
        many.write_text(&mut TextOutput { look: look(args), out: &mut out })?;
        out.flush()?;
    }
    Ok(ending(worst))
}

/// Rejects flags that have no meaning for several clusters.
fn check(args: Args) -> Result<()> {
    let conflict = |flag: &str| Err(error::usage(format!("{flag} cannot be used with several clusters")));
    if args.given("kubeconfig") && args.given("kubeconfigs") {
        return conflict("--kubeconfig");
    }
    for (flag, value) in [("file", "-"), ("credentials", "-"), ("format", "junit")] {
        if args.text(flag) == Some(value) {
            return conflict(&format!("--{flag} {value}"));
        }
    }
    match ["context", "local", "certify"].into_iter().find(|flag| args.given(flag)) {
        Some(flag) => conflict(&format!("--{flag}")),
        None => Ok(()),
    }
}

impl Fleet<'_> {
    fn is_json(&self) -> bool {
        self.args.on("json") || ["output", "format"].iter().any(|flag| self.args.text(flag) == Some("json"))
    }

    /// Prints what each process has printed.
    fn show(&self, outcomes: &[ClusterOutcome]) -> Result<()> {
        if self.has_events {
            return Ok(());
        }
        let word = self.args.text("output").filter(|_| self.command == "status");
        if self.is_json() || word == Some("yaml") {
            let document = outcomes.iter().map(|outcome| {
                let printed = json::from_slice(outcome.printed.as_bytes()).unwrap_or_default();
                json!({"cluster": outcome.name, "exit": outcome.code, "error": outcome.error, "document": printed})
            });
            return output::print(&form::document(word.unwrap_or("json"), &Value::Array(document.collect())));
        }
        if self.command == "status" {
            let rows: Vec<_> = outcomes.iter().map(ClusterOutcome::row).collect();
            let head = ["cluster", "status", "results", "failed", "message"];
            let table = form::table(self.args, head, &rows);
            return output::print(&table.unwrap_or_else(|| output::table(head, &rows, false)));
        }
        for outcome in outcomes.iter().filter(|outcome| !outcome.printed.trim().is_empty()) {
            // Scripts read the names of files.
            if self.command != "retrieve" {
                output::print(&format!("{}:\n", outcome.name))?;
            }
            output::data(&outcome.printed)?;
        }
        Ok(())
    }

    fn work(&self, board: &Board) -> Result<()> {
        let next = AtomicUsize::new(0);
        let parallel = usize::try_from(self.args.number("parallel"))?.min(self.clusters.len());
        let each = || -> Result<()> {
            while !self.stop.stopped() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(cluster) = self.clusters.get(at) else { break };
                self.one(at, cluster, board)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let start = |_| thread::Builder::new().name("cluster".into()).spawn_scoped(scope, each);
            let threads = (0..parallel).map(start).collect::<Vec<_>>();
            let join = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Result<()>>>| {
                thread.context("cannot start a thread")?.join().unwrap_or(Ok(()))
            };
            threads.into_iter().map(join).fold(Ok(()), Result::and)
        })
    }

    /// Fails only if the output is closed.
    fn one(&self, at: usize, cluster: &SelectedCluster, board: &Board) -> Result<()> {
        let mut closed = Ok(());
        let update = |change: &mut dyn FnMut(&mut ClusterOutcome)| {
            let mut outcomes = self.lock();
            change(&mut outcomes[at]);
            let shown = board.show(self.scene(&outcomes));
            if shown.is_err() {
                self.stop.stop();
            }
            shown
        };
        update(&mut |outcome| outcome.begun = true)?;
        let folder = self.root.join(&cluster.folder);
        let ended = caught(|| {
            self.process(cluster, &folder, &mut |line| {
                closed = update(&mut |outcome| outcome.hear(line, self.has_events));
            })
        });
        closed?;
        update(&mut |outcome| {
            let (code, error) = match &ended {
                Ok((code, error)) => (*code, error.clone()),
                Err(error) => (1, format!("{error:#}")),
            };
            outcome.error = if code == 0 { String::new() } else { error };
            (outcome.code, outcome.archive) = (Some(code), outcome.scene.product.take().map(PathBuf::from));
        })
    }

    /// Runs the process of a cluster; returns its exit code and its last message.
    fn process(
        &self,
        cluster: &SelectedCluster,
        folder: &Path,
        hear: &mut dyn FnMut(&str),
    ) -> Result<(u8, String)> {
        fs::create_dir_all(folder).at("cannot create", folder)?;
        let mark = folder.join(MARK);
        let resumes = self.reports && self.args.text("resume").is_some();
        if resumes && let Ok(archive) = report::locate(&folder.display().to_string()) {
            hear(&crate::board::archive_event(&archive));
            return Ok((0, String::new()));
        }
        // The run may have gone on without a command that watches it.
        let command = if resumes && mark.exists() { "wait" } else { self.command };
        let words = child::words(self, command, cluster, folder);
        let mut begun = false;
        let ended = child::run(&words, &folder.join(LOG), self.stop, &mut |line| {
            if self.reports && !std::mem::replace(&mut begun, true) {
                // Without the mark, the run is only not found again.
                let _ = fs::write(&mark, "");
            }
            hear(line);
        });
        if !self.stop.stopped() {
            let _ = fs::remove_file(&mark);
        }
        ended
    }

    fn scene(&self, outcomes: &[ClusterOutcome]) -> Scene {
        let troubles = outcomes.iter().flat_map(|outcome| {
            let own = outcome.scene.troubles.iter().map(|trouble| &trouble.cause);
            let causes = own.chain([&outcome.error]).filter(|cause| !cause.is_empty());
            causes.map(|cause| Trouble {
                task: outcome.name.clone(),
                cause: cause.clone(),
                ..Trouble::default()
            })
        });
        let over = outcomes.iter().filter(|outcome| outcome.code.is_some()).count();
        let begun = || outcomes.iter().filter(|outcome| outcome.begun);
        let waiting = self.clusters.len() - begun().count();
        let state = if over == self.clusters.len() { "over" } else { "at work" };
        Scene {
            title: format!("{} in {} clusters", self.command, self.clusters.len()),
            state: state.into(),
            tasks: begun().map(|outcome| outcome.task(self.has_events)).collect(),
            troubles: troubles.collect(),
            footer: vec![
                format!("{over} of {} done, {waiting} waiting", self.clusters.len()),
                "Ctrl-C ends this command, not the runs".into(),
            ],
            ..Scene::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ClusterOutcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
