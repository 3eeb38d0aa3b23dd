//! One command for many clusters: `--contexts` and `--kubeconfigs`.
//!
//! Reports unknown contexts, absent files and clusters named twice, before anything starts. Each
//! cluster gets a process of this program with the same command line for that cluster alone:
//! processes share no locks, signals or output, so that neither a hang nor a crash in one cluster
//! affects another. They report events, whose sum is the board, or print a document. The merged
//! report is the comparison of their archives. Starts the threads `cluster`, at most `--parallel`,
//! and joins them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};

use super::afterwards::{AfterwardsFlags, OutputFiles};
use super::cluster::{self, ClusterFlags, RunAccess};
use super::color::ColorChoice;
use super::flag::{interrupted, invalid, usage_error, within};
use super::output::{self, DocumentForm, ProgressForm, TableForm};
use super::results::{self, Part};
use super::run_flags::RunFlags;
use super::verdict::{ending, error_after_verdict};
use crate::progress_view::{
    About, Board, ProgressOutput, Scene, Task, Trouble, Unit, of_run, report_event,
};
use base::at::At as _;
use base::json::{self, json};
use base::stop::{Stop, caught};
use base::{logger, near, percent_encoded, sys, temp};
use kube::{Config, Options};
use model::plugin::STDIN;
use model::status::{FAILED, Run};
use report::{self, Many, TextOutput};
use run::driver::process::{Talk, ending as process_ending, start, tail};

/// The log of a cluster's latest command, and the mark of its unfinished run, in its folder.
const LOG: &str = "sonobuoy.log";
const MARK: &str = "running";
/// Maximum bytes of output to read from a process.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// How many clusters are worked in at once, unless a flag says otherwise.
pub(super) const MAX_CLUSTERS_AT_ONCE: usize = 8;

/// A choice of several clusters
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Several clusters")]
pub(crate) struct ClustersFlags {
    /// Do this in the clusters of these contexts, with a folder for each
    #[arg(
        long,
        value_name = "NAME,...|all",
        value_delimiter = ',',
        hide_short_help = true
    )]
    contexts: Vec<String>,
    /// Do this in the clusters of these kubeconfigs, or of all in a folder
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        conflicts_with = "contexts",
        hide_short_help = true
    )]
    kubeconfigs: Vec<String>,
    /// With several clusters: at most so many at once
    #[arg(
        long,
        value_name = "N",
        value_parser = within::<usize>(1..=1_000),
        default_value_t = MAX_CLUSTERS_AT_ONCE,
        hide_short_help = true
    )]
    pub parallel: usize,
    /// In the process of one of several clusters: its folder
    #[arg(long, value_name = "DIR", hide = true)]
    one_of_several: Option<String>,
    /// In the process of one of several clusters: `run` waits for the run that another has started
    #[arg(long, hide = true)]
    only_wait: bool,
}

impl ClustersFlags {
    /// Whether this process is for one of several clusters, which the process that has started it
    /// names.
    pub(crate) fn is_one_of_several(&self) -> bool {
        self.one_of_several.is_some()
    }

    /// The folder of the one cluster among several that this process is for.
    pub(crate) fn one_folder(&self) -> Option<&str> {
        self.one_of_several.as_deref()
    }

    /// Whether this process waits for a run that another has started.
    pub(crate) fn only_waits(&self) -> bool {
        self.is_one_of_several() && self.only_wait
    }

    /// The flags for one of several clusters: the choice is made.
    pub(crate) fn narrowed(self) -> Self {
        if !self.is_one_of_several() {
            return self;
        }
        Self {
            contexts: Vec::new(),
            kubeconfigs: Vec::new(),
            ..self
        }
    }

    /// Whether a call is for several clusters, and this process for all of them.
    fn are_chosen(&self) -> bool {
        let names_some = !self.contexts.is_empty() || !self.kubeconfigs.is_empty();
        names_some && !self.is_one_of_several()
    }
}

/// What to print of each cluster.
#[derive(Clone, Copy)]
pub(super) enum Printed {
    /// What its process has printed, below its name.
    Text,
    /// Each line as its process prints it.
    Lines,
    /// The names of files, as its process has printed them, for scripts.
    FileNames,
    /// Rows of one table from the documents of its process.
    Status(Option<TableForm>),
    /// The document of its process, in a document of all.
    Documents(DocumentForm),
}

/// A command in several clusters.
pub(crate) struct Fleet<'a> {
    command: &'static str,
    clusters: &'a ClustersFlags,
    cluster: &'a ClusterFlags,
    /// The given flags that have no meaning for several clusters.
    refused: Vec<&'static str>,
    /// Whether all have the same namespace, or each run has its own.
    pub names_namespace: bool,
    pub progress: Option<ProgressForm>,
    /// Whether the process of a cluster reports events.
    pub has_events: bool,
    /// Whether only a board or heartbeats show the progress.
    pub is_quiet: bool,
    /// The merged report on all archives, if requested.
    pub reports: Option<&'a AfterwardsFlags>,
    /// Whether clusters with an archive in their folder are left out.
    pub resumes: bool,
    /// The folder with those of the clusters, if they are kept.
    pub folder: Option<&'a str>,
    pub printed: Printed,
}

impl<'a> Fleet<'a> {
    /// The command in several clusters, if several are chosen.
    pub(super) fn new(
        command: &'static str,
        clusters: &'a ClustersFlags,
        cluster: &'a ClusterFlags,
        namespace: Option<&str>,
    ) -> Option<Self> {
        let access = RunAccess {
            cluster,
            namespace,
            credentials: None,
        };
        let names_namespace = access.names_namespace();
        clusters.are_chosen().then(|| Self {
            command,
            clusters,
            cluster,
            refused: Vec::new(),
            names_namespace,
            progress: None,
            has_events: false,
            is_quiet: false,
            reports: None,
            resumes: false,
            folder: None,
            printed: Printed::Text,
        })
    }

    /// Refuses a flag, with its value, if it is given.
    pub(super) fn refuse(&mut self, flag: &'static str, is_given: bool) {
        self.refused.extend(is_given.then_some(flag));
    }

    /// Refuses a flag with standard input or output as its file.
    pub(super) fn refuse_stream(&mut self, flag: &'static str, file: &Option<String>) {
        self.refuse(flag, file.as_deref() == Some("-"));
    }

    /// Refuses plugins, manifests and credentials from standard input.
    pub(super) fn refuse_streams(&mut self, flags: &RunFlags) {
        let mut plugins = flags.plugins.plugins.iter();
        self.refuse("--plugin -", plugins.any(|source| source == STDIN));
        self.refuse_stream("--file -", &flags.run.file);
        self.refuse_stream("--credentials -", &flags.run.credentials.credentials);
    }

    /// Rejects flags that have no meaning for several clusters.
    fn check(&self) -> Result<()> {
        // One kubeconfig may have the contexts.
        let names_kubeconfig =
            self.cluster.kubeconfig.is_some() && !self.clusters.kubeconfigs.is_empty();
        let refused = [
            ("--kubeconfig", names_kubeconfig),
            ("--context", self.cluster.context.is_some()),
        ];
        let of_cluster = refused
            .iter()
            .filter_map(|(flag, is_given)| is_given.then_some(flag));
        if let Some(flag) = self.refused.iter().chain(of_cluster).next() {
            return Err(usage_error(format!(
                "{flag} cannot be used with several clusters"
            )));
        }
        Ok(())
    }

    /// How to show the progress.
    fn progress_output(&self) -> ProgressOutput {
        if self.is_quiet {
            return output::or_quiet(self.progress);
        }
        match output::or_log(self.progress) {
            // With a report, standard output is for that.
            ProgressOutput::Log if self.has_events && self.reports.is_none() => {
                ProgressOutput::Plain
            }
            output => output,
        }
    }
}

/// Runs a command in each cluster; returns the worst exit code: an error, else a failed transfer,
/// else bad results.
pub(super) fn run(fleet: &Fleet<'_>) -> Result<u8> {
    fleet.check()?;
    let clusters = find_clusters(fleet)?;
    let files = fleet
        .reports
        .map(|flags| OutputFiles::open(flags, None))
        .transpose()?;
    let temporary = match fleet.folder {
        Some(_) => None,
        None => Some(temp::Folder::new()?),
    };
    let root = match (fleet.folder, &temporary) {
        (Some(folder), _) => Path::new(folder),
        (None, Some(folder)) => folder,
        (None, None) => Path::new("."),
    };
    let stop = Stop::new();
    output::stop_on_interrupt(&stop)?;
    let work = Work {
        fleet,
        root,
        stop: &stop,
        clusters: Mutex::new(clusters),
    };
    output::with_board(fleet.progress_output(), |board| work.run(board))?;
    let clusters = work.lock();
    if fleet.is_quiet {
        log_errors(&clusters);
    }
    if stop.stopped() {
        return Err(interrupted_fleet(fleet, &clusters));
    }
    let code_of_report = match &files {
        Some(files) => report(fleet, files, &clusters)?,
        None => {
            fleet.show(&clusters);
            0
        }
    };
    let codes = clusters
        .iter()
        .filter_map(|cluster| cluster.code)
        .chain([code_of_report]);
    Ok(codes.filter(|code| *code > 0).min().unwrap_or_default())
}

fn log_errors(clusters: &[Cluster]) {
    for cluster in clusters.iter().filter(|cluster| !cluster.error.is_empty()) {
        log::error!("{}: {}", cluster.name, cluster.error);
    }
}

/// The error of a command that Ctrl-C has ended.
fn interrupted_fleet(fleet: &Fleet<'_>, clusters: &[Cluster]) -> anyhow::Error {
    let unfinished = clusters
        .iter()
        .filter(|cluster| cluster.code.is_none_or(|code| code == output::INTERRUPTED))
        .count();
    let all = clusters.len();
    let remedy = match (fleet.folder, fleet.reports) {
        (Some(folder), Some(_)) => format!("; `--resume {folder}` continues"),
        _ => String::new(),
    };
    interrupted(format!(
        "interrupted: {unfinished} of {all} clusters are not done{remedy}"
    ))
}

/// A cluster, and what has become of it.
#[derive(Default)]
struct Cluster {
    /// Its context, or the name of its kubeconfig without an extension.
    name: String,
    /// Its kubeconfig, unless a context selects it.
    path: Option<PathBuf>,
    /// The namespace of its context, if other contexts have the same server.
    namespace: Option<String>,
    begun: bool,
    /// The exit code of its process, once ended.
    code: Option<u8>,
    /// Why it is not 0.
    error: String,
    /// The events of its process.
    scene: Scene,
    /// Other output.
    printed: String,
}

impl Cluster {
    /// The flags that select it.
    fn flags(&self) -> Vec<OsString> {
        let cluster = self.path.as_ref().map_or_else(
            || word("context", &self.name),
            |path| word("kubeconfig", path),
        );
        let namespace = self.namespace.as_ref().map(|name| word("namespace", name));
        iter::once(cluster).chain(namespace).collect()
    }

    fn task(&self) -> Task {
        let counts = !self.scene.tasks.is_empty();
        let mut task = self.scene.as_task(&self.name);
        if !counts {
            (task.unit, task.total) = (Unit::Once, 1);
        }
        let Some(code) = self.code else { return task };
        let failed = code != 0 || self.scene.tasks.iter().any(|task| task.result == FAILED);
        (task.over, task.note) = (true, String::new());
        task.result = match code {
            output::INTERRUPTED => "interrupted",
            _ if failed => FAILED,
            _ if counts => "done",
            _ => "",
        }
        .into();
        if !counts {
            (task.done, task.failed) = (1, u64::from(failed));
        }
        task
    }

    /// The row of `status`.
    fn row(&self) -> [String; 5] {
        let run = Run::parse(&self.printed)
            .ok()
            .filter(|_| !self.printed.is_empty());
        let Some(run) = run else {
            return [&self.name, "unknown", "", "", &*self.error].map(str::to_owned);
        };
        run_row(&self.name, &run)
    }
}

/// The columns of [`run_row`].
pub(super) fn run_head(place: &str) -> [&str; 5] {
    [place, "status", "results", "failed", "message"]
}

/// A run as a row among others.
pub(super) fn run_row(place: &str, run: &Run) -> [String; 5] {
    let task = of_run(run, &About::default()).as_task(place);
    let message = run.message.as_ref().or(run.error.as_ref());
    [
        place.to_owned(),
        run.status.clone(),
        format!("{}/{}", task.done, task.total),
        task.failed.to_string(),
        // What follows the first line are commands.
        message
            .and_then(|message| message.lines().next())
            .unwrap_or_default()
            .to_owned(),
    ]
}

/// The work in all clusters.
struct Work<'a> {
    fleet: &'a Fleet<'a>,
    root: &'a Path,
    stop: &'a Stop,
    clusters: Mutex<Vec<Cluster>>,
}

/// The merged report on the runs in several clusters; returns the exit code of `--fail-on`.
fn report(fleet: &Fleet<'_>, files: &OutputFiles<'_>, clusters: &[Cluster]) -> Result<u8> {
    let limit = fleet
        .reports
        .map(|flags| flags.verdict.limit())
        .context("no report was requested")?;
    let mut many = Many::default();
    let mut worst = None;
    for cluster in clusters {
        let name = &cluster.name;
        let Some(archive) = &cluster.scene.product else {
            many.add_missing(name, &cluster.error);
            continue;
        };
        let part = Part::default();
        match results::add(&mut many, archive, part, Some(name), limit, worst.clone()) {
            Ok(exit) => worst = exit,
            Err(error) => many.add_missing(name, &format!("{error:#}")),
        }
    }
    let written = files.write(
        |out| report::write_many_junit(&many, out),
        |out| report::write_many_html(&many, out),
    );
    if fleet.progress == Some(ProgressForm::Json) {
        output::line(report_event(&many.json()));
    } else {
        let mut out = output::buffered(false);
        many.write_text(&mut TextOutput {
            look: ColorChoice::Auto.resolve(),
            out: &mut out,
        })?;
        out.flush()?;
    }
    match written {
        Ok(()) => Ok(ending(worst)),
        Err(error) => Err(error_after_verdict(&error, worst)),
    }
}

impl Fleet<'_> {
    /// Prints what each process has printed.
    fn show(&self, clusters: &[Cluster]) {
        if self.has_events {
            return;
        }
        match self.printed {
            Printed::Lines => {}
            Printed::Documents(form) => show_documents(form, clusters),
            Printed::Status(form) => show_status(form, clusters),
            Printed::FileNames => show_texts(clusters, false),
            Printed::Text => show_texts(clusters, true),
        }
    }
}

fn show_documents(form: DocumentForm, clusters: &[Cluster]) {
    let documents = clusters.iter().map(|cluster| {
        let document = json::from_slice(cluster.printed.as_bytes()).unwrap_or_default();
        json!({
            "cluster": cluster.name, "exit": cluster.code, "error": cluster.error,
            "document": document,
        })
    });
    output::print(&output::document(form, &documents.collect()));
}

fn show_status(form: Option<TableForm>, clusters: &[Cluster]) {
    let rows: Vec<_> = clusters.iter().map(Cluster::row).collect();
    let head = run_head("cluster");
    output::print(&output::in_form(form, head, &rows, || {
        output::table(head, &rows, false)
    }));
}

fn show_texts(clusters: &[Cluster], has_names: bool) {
    for cluster in clusters {
        if cluster.printed.trim().is_empty() {
            continue;
        }
        if has_names {
            output::line(format!("{}:", cluster.name));
        }
        output::data(&cluster.printed);
    }
}

impl Work<'_> {
    fn run(&self, board: &Board) -> Result<()> {
        let parallel = self.fleet.clusters.parallel.min(self.lock().len());
        let each = || {
            while !self.stop.stopped() && self.next(board) {}
        };
        thread::scope(|scope| {
            let start = |_| base::thread("cluster").spawn_scoped(scope, each);
            let threads = (0..parallel).map(start).collect::<Vec<_>>();
            for thread in threads {
                // `next` has caught the panics of its work.
                let _ = thread?.join();
            }
            Ok(())
        })
    }

    /// Does the work in the next cluster; false if there is none.
    fn next(&self, board: &Board) -> bool {
        let mut clusters = self.lock();
        let Some(at) = clusters.iter().position(|cluster| !cluster.begun) else {
            return false;
        };
        clusters[at].begun = true;
        let (folder, flags) = (folder(&clusters[at].name), clusters[at].flags());
        drop(clusters);
        let update = |change: &mut dyn FnMut(&mut Cluster)| {
            let mut clusters = self.lock();
            change(&mut clusters[at]);
            board.show(self.scene(&clusters));
        };
        update(&mut |_| ());
        let ended = caught(|| {
            self.process(&self.root.join(folder), flags, &mut |line| {
                if let Printed::Lines = self.fleet.printed {
                    return output::data(line);
                }
                update(&mut |cluster| {
                    if !self.fleet.has_events || !cluster.scene.adopt(line) {
                        cluster.printed.push_str(line);
                    }
                });
            })
        });
        let (code, error) = ended.unwrap_or_else(|error| (1, format!("{error:#}")));
        update(&mut |cluster| {
            cluster.code = Some(code);
            cluster.error = if code == 0 {
                String::new()
            } else {
                error.clone()
            };
        });
        true
    }

    /// Runs the process of the cluster that `flag` selects; returns its exit code and its last
    /// message.
    fn process(
        &self,
        folder: &Path,
        flags: Vec<OsString>,
        handle_line: &mut dyn FnMut(&str),
    ) -> Result<(u8, String)> {
        fs::create_dir_all(folder).at("cannot create", folder)?;
        let mark = folder.join(MARK);
        if self.fleet.resumes
            && let Ok(archive) = report::locate(&folder.display().to_string())
        {
            handle_line(&crate::progress_view::archive_event(&archive));
            return Ok((0, String::new()));
        }
        // The run may have gone on without a command that watches it.
        let only_waits = self.fleet.resumes && mark.exists();
        let words = words(folder, flags, only_waits);
        let mut begun = false;
        let ended = process(&words, &folder.join(LOG), self.stop, &mut |line| {
            if self.fleet.reports.is_some() && !std::mem::replace(&mut begun, true) {
                // Without the mark, `--resume` starts another run.
                let _ = fs::write(&mark, "");
            }
            handle_line(line);
        });
        if !self.stop.stopped() {
            let _ = fs::remove_file(&mark);
        }
        ended
    }

    fn scene(&self, clusters: &[Cluster]) -> Scene {
        let troubles = clusters.iter().flat_map(|cluster| {
            let causes_of_run = cluster.scene.troubles.iter().map(|trouble| &trouble.cause);
            let causes = causes_of_run
                .chain([&cluster.error])
                .filter(|cause| !cause.is_empty());
            causes.map(|cause| Trouble {
                task: cluster.name.clone(),
                cause: cause.clone(),
                places: Vec::new(),
            })
        });
        let (all, over) = (
            clusters.len(),
            clusters
                .iter()
                .filter(|cluster| cluster.code.is_some())
                .count(),
        );
        let tasks: Vec<_> = clusters
            .iter()
            .filter(|cluster| cluster.begun)
            .map(Cluster::task)
            .collect();
        Scene {
            title: format!("{} in {all} clusters", self.fleet.command),
            state: if over == all { "over" } else { "at work" }.into(),
            footer: vec![
                format!("{over} of {all} done, {} waiting", all - tasks.len()),
                "Ctrl-C ends this command, not the runs".into(),
            ],
            tasks,
            troubles: troubles.collect(),
            ..Scene::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Cluster>> {
        base::lock(&self.clusters)
    }
}

/// The command line for a cluster: that of this process, with the cluster that `flags` select. The
/// command narrows its arguments itself. Flags may precede the command.
fn words(folder: &Path, flags: Vec<OsString>, only_waits: bool) -> Vec<OsString> {
    let mut words = vec![word("one-of-several", folder)];
    words.extend(flags);
    if only_waits {
        words.push("--only-wait".into());
    }
    words.extend(std::env::args_os().skip(1));
    words
}

/// A flag with its value.
fn word(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    word
}

/// Runs this program with `words`; passes each line of its output to `handle_line`. Returns the
/// exit code and the last message.
fn process(
    words: &[OsString],
    log: &Path,
    stop: &Stop,
    handle_line: &mut dyn FnMut(&str),
) -> Result<(u8, String)> {
    File::create(log).at("cannot write", log)?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    // Another cluster's status service must not answer for this one.
    command.args(words).env(
        "SONOBUOY_CREDENTIALS",
        log.with_file_name("credentials.json"),
    );
    command.env(cluster::ONE_OF_MANY, "true");
    let (group, mut child) =
        start(&mut command, log, Talk::WithUs).context("cannot start this program")?;
    drop(child.stdin.take());
    let hook = stop.on_stop(move || {
        group.terminate();
    });
    let mut output = BufReader::new(
        child
            .stdout
            .take()
            .context("no output")?
            .take(MAX_OUTPUT_BYTES),
    );
    let mut line = Vec::new();
    while output
        .read_until(b'\n', &mut line)
        .context("cannot read its output")?
        > 0
    {
        handle_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    drop(output);
    let status = child.wait().context("cannot wait for its end")?;
    // Also kills what the process has left behind.
    drop(hook);
    let message = Some(logger::message(&tail(log))).filter(|message| !message.is_empty());
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    Ok((
        code,
        message.unwrap_or_else(|| format!("its process {}", process_ending(status))),
    ))
}

/// The word for all contexts.
const ALL: &str = "all";

/// The clusters of a call.
fn find_clusters(fleet: &Fleet<'_>) -> Result<Vec<Cluster>> {
    let options = fleet.cluster.options()?;
    let named: Vec<&str> = fleet
        .clusters
        .contexts
        .iter()
        .map(String::as_str)
        .filter(|name| !name.is_empty())
        .collect();
    let all = named.contains(&ALL);
    let mut clusters = match named.is_empty() {
        true => kubeconfigs(&fleet.clusters.kubeconfigs)?,
        false => contexts(&options, &named, all)?,
    };
    let servers: Vec<_> = clusters
        .iter()
        .map(|cluster| Server::find(&options, cluster))
        .collect();
    if !fleet.names_namespace {
        for (cluster, server) in clusters.iter_mut().zip(&servers) {
            cluster.namespace = server.namespace_apart(&servers);
        }
    }
    let mut owners = BTreeMap::<String, String>::new();
    let mut chosen = Vec::new();
    for (cluster, server) in clusters.into_iter().zip(servers) {
        let run = server.address.map(|address| {
            let namespace = cluster.namespace.as_deref().unwrap_or_default();
            format!("{address} {namespace}")
        });
        let keys = run
            .into_iter()
            .chain([folder(&cluster.name).to_lowercase()]);
        let twins: Vec<_> = keys
            .filter_map(|key| owners.insert(key, cluster.name.clone()))
            .collect();
        if let Some(other) = twins.first() {
            let problem = format!(
                "`{other}` and `{}` are the same cluster, or share a folder",
                cluster.name
            );
            ensure!(
                all,
                usage_error(format!(
                    "{problem}; name one of them, or contexts with different namespaces"
                ))
            );
            log::warn!("{problem}: `{}` is left out", cluster.name);
        } else {
            chosen.push(cluster);
        }
    }
    Ok(chosen)
}

/// The API server of a cluster, and the namespace of its context.
#[derive(Default)]
struct Server {
    /// With its proxy: a tunnel may give several clusters the same address.
    address: Option<String>,
    namespace: Option<String>,
}

impl Server {
    /// What the kubeconfig says; nothing if it cannot be read, which the cluster's own process
    /// reports.
    fn find(options: &Options, cluster: &Cluster) -> Self {
        let mut options = options.clone();
        match &cluster.path {
            Some(path) => options.path = Some(path.clone()),
            None => options.context = Some(cluster.name.clone()),
        }
        let Ok(config) = Config::find(&options) else {
            return Self::default();
        };
        Self {
            address: Some(format!("{} {:?}", config.server, config.proxy)),
            namespace: config.namespace,
        }
    }

    /// The namespace, if it is what tells this context from others of the same server.
    fn namespace_apart(&self, all: &[Self]) -> Option<String> {
        let shares_address =
            |other: &&Self| self.address.is_some() && other.address == self.address;
        let is_shared = all.iter().filter(shares_address).nth(1).is_some();
        self.namespace.clone().filter(|_| is_shared)
    }
}

fn contexts(options: &Options, named: &[&str], all: bool) -> Result<Vec<Cluster>> {
    let contexts = Config::contexts(options);
    let names: Vec<&str> = contexts.iter().map(String::as_str).collect();
    if names.is_empty() {
        // Says what is wrong with the kubeconfig.
        Config::find(options)?;
        bail!("the kubeconfig has no contexts");
    }
    let is_unknown = |name: &&&str| **name != ALL && !names.contains(*name);
    if let Some(name) = named.iter().find(is_unknown) {
        let (names, hint) = (names.join(", "), near::hint(name, names.iter().copied()));
        return Err(invalid(
            "contexts",
            name,
            &format!("the kubeconfig has {names}{hint}"),
        ));
    }
    let chosen = if all { &names } else { named };
    Ok(chosen
        .iter()
        .map(|name| Cluster {
            name: (*name).to_owned(),
            ..Cluster::default()
        })
        .collect())
}

/// The files, those in a folder, and those of `FOLDER/*`, for shells that leave it as it is.
fn kubeconfigs(paths: &[String]) -> Result<Vec<Cluster>> {
    let mut files = Vec::new();
    for path in paths {
        let path = Path::new(path);
        let folder = if path.ends_with("*") {
            path.parent().unwrap_or(path)
        } else {
            path
        };
        if fs::metadata(folder).at("cannot read", folder)?.is_dir() {
            let entries = fs::read_dir(folder).at("cannot read", folder)?;
            let start = files.len();
            files.extend(
                entries
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| path.is_file()),
            );
            files[start..].sort();
        } else {
            files.push(path.to_owned());
        }
    }
    ensure!(!files.is_empty(), "--kubeconfigs: the folder is empty");
    let cluster = |path: PathBuf| {
        let name = path
            .file_stem()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        Cluster {
            name,
            path: Some(path),
            ..Cluster::default()
        }
    };
    Ok(files.into_iter().map(cluster).collect())
}

/// The name of a cluster's folder: characters that not every system allows are written as `%XX`,
/// which is unambiguous.
fn folder(name: &str) -> String {
    let text = percent_encoded(name);
    let text = text
        .strip_prefix('.')
        .map_or_else(|| text.clone(), |rest| format!("%2E{rest}"));
    // Windows has names that mean devices, and drops dots at the end.
    if sys::can_have(&text) && !text.ends_with('.') {
        text
    } else {
        format!("{text}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_contexts_are_valid_and_distinct() {
        for (name, expected) in [
            ("kind-a", "kind-a"),
            (
                "arn:aws:eks:eu-west-1:1:cluster/a",
                "arn%3Aaws%3Aeks%3Aeu-west-1%3A1%3Acluster%2Fa",
            ),
            ("admin@a.example", "admin%40a.example"),
            (".", "%2E"),
            ("..", "%2E.%"),
            ("../../etc", "%2E.%2F..%2Fetc"),
            ("a%2Fb", "a%252Fb"),
            ("a b\n", "a%20b%0A"),
            ("ü", "%C3%BC"),
        ] {
            assert_eq!(folder(name), expected);
        }
    }
}
