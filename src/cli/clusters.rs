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

use super::afterwards::{OutputFiles, ending, error_after_verdict, look};
use super::flag::{Args, interrupted, invalid, usage_error};
use super::{cluster, output, results};
use crate::progress_view::{
    About, Board, ProgressOutput, Scene, Task, Trouble, Unit, of_run, report_event,
};
use base::at::At as _;
use base::json::{self, json};
use base::stop::{Stop, caught};
use base::{logger, near, percent_encoded, sys, temp};
use kube::{Config, Options};
use model::status::{FAILED, Run};
use report::{self, Many, TextOutput};
use run::driver::process::{Talk, ending as process_ending, start, tail};

/// The log of a cluster's latest command, and the mark of its unfinished run, in its folder.
const LOG: &str = "sonobuoy.log";
const MARK: &str = "running";
/// Maximum bytes of output to read from a process.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// Flags of the whole, which no process gets as they are.
const OF_ALL: &[&str] = &[
    "contexts",
    "kubeconfigs",
    "parallel",
    "retrieve",
    "resume",
    "dir",
    "junit",
    "html",
    "fail-on",
    "annotations",
];

/// Whether a call is for many clusters.
pub(super) fn are_chosen(args: Args) -> bool {
    args.given("contexts") || args.given("kubeconfigs")
}

/// Runs a command in each cluster; returns the worst exit code: an error, else a failed transfer,
/// else bad results.
pub(super) fn run(args: Args, command: &str) -> Result<u8> {
    check(args)?;
    let is_run = ["run", "wait"].contains(&command);
    let asked = |flags: &[&str]| is_run && flags.iter().any(|flag| args.given(flag));
    let is_dry = args.text("dry-run").is_some_and(|word| word != "none");
    let reports = !is_dry && asked(&["retrieve", "resume", "junit", "html", "fail-on"]);
    let waits = command == "wait" || reports || asked(&["wait", "delete"]);
    let has_events = is_run && waits && !is_dry || command == "status" && args.on("watch");
    // The folder with those of the clusters, if they are kept.
    let kept = ["resume", "retrieve", "dir"]
        .into_iter()
        .filter(|flag| *flag != "resume" || reports);
    let kept = kept
        .filter_map(|flag| args.text(flag))
        .map(Path::new)
        .next();
    let clusters = clusters(args)?;
    let files = OutputFiles::open(args)?;
    let passing = kept.is_none().then(temp::Folder::new).transpose()?;
    let root = passing.as_deref().or(kept).unwrap_or(Path::new("."));
    let stop = Stop::new();
    output::stop_on_interrupt(&stop)?;
    let fleet = Fleet {
        args,
        command,
        has_events,
        reports,
        root,
        stop: &stop,
        clusters: Mutex::new(clusters),
    };
    let is_quiet = ["retrieve", "status"].contains(&command) && !has_events;
    let how = match output::or_log(args) {
        _ if is_quiet => output::or_quiet(args),
        ProgressOutput::Log if has_events => ProgressOutput::Plain,
        how => how,
    };
    output::with_board(how, |board| fleet.work(board))?;
    let clusters = fleet.lock();
    for cluster in clusters
        .iter()
        .filter(|cluster| is_quiet && !cluster.error.is_empty())
    {
        log::error!("{}: {}", cluster.name, cluster.error);
    }
    if stop.stopped() {
        let codes = clusters.iter().map(|cluster| cluster.code);
        let left = codes
            .filter(|code| code.is_none_or(|code| code == output::INTERRUPTED))
            .count();
        let again = match kept {
            Some(root) if reports => format!("; `--resume {}` continues", root.display()),
            _ => String::new(),
        };
        let all = clusters.len();
        return Err(interrupted(format!(
            "interrupted: {left} of {all} clusters are not done{again}"
        )));
    }
    let bad = if reports {
        report(args, &files, &clusters)?
    } else {
        fleet.show(&clusters);
        0
    };
    let codes = clusters
        .iter()
        .filter_map(|cluster| cluster.code)
        .chain([bad]);
    Ok(codes.filter(|code| *code > 0).min().unwrap_or_default())
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
        let task = of_run(&run, &About::default()).as_task(&self.name);
        let message = run.message.or(run.error).unwrap_or_default();
        let results = format!("{}/{}", task.done, task.total);
        [
            self.name.clone(),
            run.status,
            results,
            task.failed.to_string(),
            message,
        ]
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
    stop: &'a Stop,
    clusters: Mutex<Vec<Cluster>>,
}

/// The merged report on the runs in several clusters; returns the exit code of `--fail-on`.
fn report(args: Args, files: &OutputFiles<'_>, clusters: &[Cluster]) -> Result<u8> {
    let mut many = Many::default();
    let mut worst = None;
    for Cluster {
        name, scene, error, ..
    } in clusters
    {
        match &scene.product {
            Some(archive) => {
                match results::add(args, &mut many, archive, Some(name), worst.clone()) {
                    Ok(ended) => worst = ended,
                    Err(error) => many.add_missing(name, &format!("{error:#}")),
                }
            }
            None => many.add_missing(name, error),
        }
    }
    let written = files.write(
        |out| report::write_many_junit(&many, out),
        |out| report::write_many_html(&many, out),
    );
    if output::is_json(args) {
        output::line(report_event(&many.json()));
    } else {
        let mut out = output::buffered(false);
        many.write_text(&mut TextOutput {
            look: look(args),
            out: &mut out,
        })?;
        out.flush()?;
    }
    match written {
        Ok(()) => Ok(ending(worst)),
        Err(error) => Err(error_after_verdict(&error, worst)),
    }
}

/// Rejects flags that have no meaning for several clusters.
fn check(args: Args) -> Result<()> {
    let problem = "cannot be used with several clusters";
    for (flag, value) in [("file", "-"), ("credentials", "-"), ("format", "junit")] {
        ensure!(
            args.word(flag) != value,
            usage_error(format!("--{flag} {value} {problem}"))
        );
    }
    for flag in ["kubeconfig", "context", "local", "certify"] {
        // One file may have the contexts.
        let is_allowed = flag == "kubeconfig" && !args.given("kubeconfigs");
        ensure!(
            is_allowed || !args.given(flag),
            usage_error(format!("--{flag} {problem}"))
        );
    }
    Ok(())
}

impl Fleet<'_> {
    fn is_json(&self) -> bool {
        self.args.on("json")
            || ["output", "format"]
                .iter()
                .any(|flag| self.args.word(flag) == "json")
    }

    /// Prints what each process has printed.
    fn show(&self, clusters: &[Cluster]) {
        if self.has_events {
            return;
        }
        let word = self
            .args
            .text("output")
            .filter(|_| self.command == "status");
        if self.is_json() || word == Some("yaml") {
            let document = clusters.iter().map(|cluster| {
                let printed = json::from_slice(cluster.printed.as_bytes()).unwrap_or_default();
                json!({"cluster": cluster.name, "exit": cluster.code, "error": cluster.error, "document": printed})
            });
            output::print(&output::document(
                word.unwrap_or("json"),
                &document.collect(),
            ));
            return;
        }
        if self.command == "status" {
            let rows: Vec<_> = clusters.iter().map(Cluster::row).collect();
            let head = ["cluster", "status", "results", "failed", "message"];
            output::print(&output::in_form(word, head, &rows, || {
                output::table(head, &rows, false)
            }));
            return;
        }
        for cluster in clusters
            .iter()
            .filter(|cluster| !cluster.printed.trim().is_empty())
        {
            // Scripts read the names of files.
            if self.command != "retrieve" {
                output::line(format!("{}:", cluster.name));
            }
            output::data(&cluster.printed);
        }
    }

    fn work(&self, board: &Board) -> Result<()> {
        let parallel = usize::try_from(self.args.number("parallel"))?.min(self.lock().len());
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
                update(&mut |cluster| {
                    if !self.has_events || !cluster.scene.adopt(line) {
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
        hear: &mut dyn FnMut(&str),
    ) -> Result<(u8, String)> {
        fs::create_dir_all(folder).at("cannot create", folder)?;
        let mark = folder.join(MARK);
        let resumes = self.reports && self.args.text("resume").is_some();
        if resumes && let Ok(archive) = report::locate(&folder.display().to_string()) {
            hear(&crate::progress_view::archive_event(&archive));
            return Ok((0, String::new()));
        }
        // The run may have gone on without a command that watches it.
        let command = if resumes && mark.exists() {
            "wait"
        } else {
            self.command
        };
        let words = self.words(command, folder, flags);
        let mut begun = false;
        let ended = process(&words, &folder.join(LOG), self.stop, &mut |line| {
            if self.reports && !std::mem::replace(&mut begun, true) {
                // Without the mark, `--resume` starts another run.
                let _ = fs::write(&mark, "");
            }
            hear(line);
        });
        if !self.stop.stopped() {
            let _ = fs::remove_file(&mark);
        }
        ended
    }

    /// The command line for a cluster.
    fn words(&self, command: &str, folder: &Path, flags: Vec<OsString>) -> Vec<OsString> {
        let args = self.args;
        // Some flags depend on their order; no two values share a place.
        let mut given = BTreeMap::new();
        for id in args
            .0
            .ids()
            .map(clap::Id::as_str)
            .filter(|id| args.given(id) && !OF_ALL.contains(id))
        {
            let places = args.0.indices_of(id).into_iter().flatten();
            let values = args.0.get_raw(id).into_iter().flatten();
            given.extend(places.zip(values.map(|value| word(id, value))));
        }
        let mut words = vec![command.into()];
        words.extend(given.into_values());
        words.extend(flags);
        if self.has_events || command == "status" {
            words.push(word("output", "json"));
        }
        if self.reports {
            words.push(word("retrieve", folder));
        } else if command == "retrieve" {
            words.extend(["--".into(), folder.into()]);
        }
        words
    }

    fn scene(&self, clusters: &[Cluster]) -> Scene {
        let troubles = clusters.iter().flat_map(|cluster| {
            let own = cluster.scene.troubles.iter().map(|trouble| &trouble.cause);
            let causes = own
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
            title: format!("{} in {all} clusters", self.command),
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

/// A flag with its value.
fn word(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    word
}

/// Runs this program with `words`; passes each line of its output to `hear`. Returns the exit code
/// and the last message.
fn process(
    words: &[OsString],
    log: &Path,
    stop: &Stop,
    hear: &mut dyn FnMut(&str),
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
        hear(&String::from_utf8_lossy(&line));
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
fn clusters(args: Args) -> Result<Vec<Cluster>> {
    let options = cluster::options(args)?;
    let named: Vec<&str> = args
        .all("contexts")
        .filter(|name| !name.is_empty())
        .collect();
    let all = named.contains(&ALL);
    let found = match named.is_empty() {
        true => kubeconfigs(args.all("kubeconfigs"))?,
        false => contexts(&options, &named, all)?,
    };
    let mut found = found;
    let servers: Vec<_> = found
        .iter()
        .map(|cluster| Server::find(&options, cluster))
        .collect();
    if !cluster::names_namespace(args) {
        for (cluster, server) in found.iter_mut().zip(&servers) {
            cluster.namespace = server.namespace_apart(&servers);
        }
    }
    let mut seen = BTreeMap::<String, String>::new();
    let mut chosen = Vec::new();
    for (cluster, server) in found.into_iter().zip(servers) {
        let run = server.address.map(|address| {
            let namespace = cluster.namespace.as_deref().unwrap_or_default();
            format!("{address} {namespace}")
        });
        let keys = run
            .into_iter()
            .chain([folder(&cluster.name).to_lowercase()]);
        let twins: Vec<_> = keys
            .filter_map(|key| seen.insert(key, cluster.name.clone()))
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
    let known: Vec<&str> = contexts.iter().map(String::as_str).collect();
    if known.is_empty() {
        // Says what is wrong with the kubeconfig.
        Config::find(options)?;
        bail!("the kubeconfig has no contexts");
    }
    if let Some(name) = named
        .iter()
        .find(|name| **name != ALL && !known.contains(*name))
    {
        let (names, hint) = (known.join(", "), near::hint(name, known.iter().copied()));
        return Err(invalid(
            "contexts",
            name,
            &format!("the kubeconfig has {names}{hint}"),
        ));
    }
    let chosen = if all { &known } else { named };
    Ok(chosen
        .iter()
        .map(|name| Cluster {
            name: (*name).to_owned(),
            ..Cluster::default()
        })
        .collect())
}

/// The files, those in a folder, and those of `FOLDER/*`, for shells that leave it as it is.
fn kubeconfigs<'a>(paths: impl Iterator<Item = &'a str>) -> Result<Vec<Cluster>> {
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
