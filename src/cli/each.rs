//! `sonobuoy each`: one command on every node, its outputs side by side.
//!
//! Generates a definition with the driver `Nodes`, and starts it as `run` does, in a namespace of
//! its own, which is deleted however the run ended: by this command, or else by the aggregator.
//! `answers` reads and prints what the nodes have answered. In the pods, `gather::command` starts
//! the command. Starts the thread `answers`, and joins it.

use std::collections::BTreeSet;
use std::env::consts::OS;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args as _, Command, FromArgMatches as _};
use serde_json::Value;

use super::answers::{Answers, EachForm};
use super::cluster::ClusterFlags;
use super::clusters::{self, ClustersFlags, Fleet, Printed};
use super::flag::{
    Filled as _, Variation, Varied, accepting_values, examples, interrupted, like_original,
    usage_error, within,
};
use super::output;
use super::run;
use super::run_args::RunArgs;
use super::run_flags::{NodeFlags, Placed};
use crate::deploy;
use crate::remote::state::{RunState, StatusSource};
use crate::remote::{Retrieval, RetrievalError};
use ::run::driver;
use base::at::At as _;
use base::json::json;
use base::stop::{Stop, StopOnDrop};
use base::sys::Signal;
use base::temp;
use kube::{Client, Resource};
use model::nodes::Choice;
use model::{config, names, plugin, status};

/// Where pods with `--host` see the node's file system.
const NODE_ROOT: &str = "/node";
/// Where pods with `--image` find this program.
const PROGRAM_DIR: &str = "/sonobuoy-each";
/// Time for a pod to be scheduled and started, and to deliver.
const POD_SECONDS: u64 = 120;
/// The number of waves without `--max-parallel`: a tenth of the nodes at once, or more.
const DEFAULT_WAVES: u64 = 10;
/// Time after the end of a run in which this command fetches the answers; then the aggregator
/// deletes the namespace.
const REMOVAL_SECONDS: u64 = 300;
/// Time between two looks at the answers so far, in durations of the last one.
const PAUSE_PER_LOOK: u32 = 4;
/// Exists once the user has been told what `--host` may do.
const HOST_NOTE: &str = "each-host-noted";
const INTERRUPTION: &str =
    "interrupted: the command is stopped on the nodes, and its pods are deleted";

/// Run one command on every node, and show equal outputs once
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Which kernel?", "sonobuoy each --host -- uname -r"),
    (
        "A pipe needs a shell",
        "sonobuoy each --host -- sh -c 'df -h / | tail -1'",
    ),
    (
        "In an image, on some nodes",
        "sonobuoy each --image busybox:1.37 --nodes gpu=true -- nslookup example.com",
    ),
    ("Without a cluster", "sonobuoy each --local -- uname -r"),
]))]
pub(crate) struct EachArgs {
    /// Run a command of the node itself, as root: it may read and change everything on the node; a
    /// command that begins with / needs no flag
    #[arg(long, conflicts_with = "image")]
    host: bool,
    /// Run the command in this image, without privileges
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Run the command once on this machine, without a cluster
    #[arg(long, conflicts_with_all = ["image", "host"])]
    local: bool,
    /// Seconds that the command may take on a node; then it is killed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        value_parser = within::<u64>(1..=86_400)
    )]
    timeout: u64,
    /// Equal outputs once, a row per node, or a line of JSON per node as it finishes
    #[arg(short, long, value_name = "WORD", value_enum, default_value_t = EachForm::Grouped)]
    output: EachForm,
    /// Print nothing: the exit code is the answer
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    nodes: Varied<NodeFlags, OfEach>,
    /// Image of aggregator and workers, and of the pods with --host
    #[arg(
        long,
        value_name = "IMAGE",
        help_heading = "Images",
        hide_short_help = true
    )]
    sonobuoy_image: Option<String>,
    /// Pull policy of all images
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "IfNotPresent",
        help_heading = "Images",
        hide_short_help = true
    )]
    image_pull_policy: String,
    #[command(flatten)]
    clusters: ClustersFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// The command and its arguments, after --; pipes and variables need a shell
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<String>,
}

/// The flags for nodes of `run`, all of whose plugins are meant here.
struct OfEach;

impl Variation for OfEach {
    fn change(arg: clap::Arg) -> clap::Arg {
        let has_effect = arg.get_id() != "joined";
        arg.help_heading("Nodes").hide(!has_effect)
    }
}

/// Runs the command in one cluster or in several.
pub(super) fn dispatch(args: &EachArgs, level: &str) -> Result<u8> {
    args.check()?;
    match args.fleet() {
        Some(fleet) => clusters::run(&fleet),
        None => args.run(level),
    }
}

impl EachArgs {
    /// Checks what the parser cannot.
    fn check(&self) -> Result<()> {
        let program = self.program();
        if program.is_empty() {
            return Err(usage_error("the command is empty; write it after `--`"));
        }
        if self.local {
            ensure!(
                OS == "linux",
                "--local starts the command as on a node, which runs Linux, and this machine runs \
                 {OS}; leave out --local to run it on the nodes of a cluster"
            );
        } else if self.image.filled().is_none() && !self.is_on_host() {
            return Err(usage_error(format!(
                "where to find `{program}`? --host runs the command of each node itself, as root; \
                 --image IMAGE runs it in an image, without privileges"
            )));
        }
        Ok(())
    }

    fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    fn is_on_host(&self) -> bool {
        self.host || self.image.is_none() && self.program().starts_with('/')
    }

    /// The command in several clusters, if several are named.
    fn fleet(&self) -> Option<Fleet<'_>> {
        let mut fleet = Fleet::new("each", &self.clusters, &self.cluster, None)?;
        fleet.refuse("--local", self.local);
        // Each run has its own namespace.
        fleet.names_namespace = true;
        fleet.is_quiet = true;
        if self.output == EachForm::Json {
            fleet.printed = Printed::Lines;
        }
        Some(fleet)
    }

    fn run(&self, level: &str) -> Result<u8> {
        if level == "info" {
            // The outputs are the answer; a run tells more about itself.
            log::set_max_level(log::LevelFilter::Warn);
        }
        let folder = temp::Folder::new()?;
        let namespace = format!("sonobuoy-each-{}", &config::new_uuid()[..8]);
        let run_args = self.run_args(&folder, &namespace)?;
        if self.local {
            let code = run::run(&run_args, level)?;
            return self.conclude(&folder, code, &BTreeSet::new());
        }
        let client = self.cluster.client()?;
        check_permissions(&client)?;
        if self.is_on_host() {
            note_what_host_means();
        }
        delete_if_interrupted(&client, &namespace)?;
        let (ended, printed) = self.run_in_cluster(&client, &run_args, level, &namespace);
        let concluded = ended.and_then(|code| self.conclude(&folder, code, &printed));
        let removed = remove_namespace(&client, &namespace);
        if output::is_interrupted() {
            removed?;
            return Err(interrupted(INTERRUPTION));
        }
        match (concluded, removed) {
            (Ok(code), removed) => removed.map(|()| code),
            (Err(error), Ok(())) => Err(deploy::without_leftovers(error)),
            (Err(error), Err(failure)) => {
                log::error!("{failure:#}");
                Err(error)
            }
        }
    }

    /// Runs the command; meanwhile prints the answers that arrive, if they are wanted at once.
    /// Returns the nodes whose answers are printed.
    fn run_in_cluster(
        &self,
        client: &Client,
        run_args: &RunArgs,
        level: &str,
        namespace: &str,
    ) -> (Result<u8>, BTreeSet<String>) {
        let mut printed = BTreeSet::new();
        if self.output != EachForm::Json || self.quiet {
            return (run::run(run_args, level), printed);
        }
        let over = Stop::new();
        let follower = client.under(&over);
        let ended = std::thread::scope(|scope| {
            let follow = || {
                if let Err(error) = self.follow(&follower, namespace, &mut printed) {
                    log::debug!("answers are printed at the end: {error:#}");
                }
            };
            base::thread("answers").spawn_scoped(scope, follow)?;
            let _over = StopOnDrop(&over);
            run::run(run_args, level)
        });
        (ended, printed)
    }

    /// Prints answers soon after they arrive, until the client is stopped. Each look fetches all of
    /// them, so that the pause after it grows with their size.
    fn follow(
        &self,
        client: &Client,
        namespace: &str,
        printed: &mut BTreeSet<String>,
    ) -> Result<()> {
        let folder = temp::Folder::new()?;
        let retrieval = Retrieval {
            client: Some(client),
            partial: true,
            force: true,
            keep_seal: false,
            ..Retrieval::new(namespace, &folder)
        };
        let mut arrived = 0;
        let mut next_look = Instant::now();
        StatusSource::pod(client.clone()).follow(namespace, |state| {
            if let Some(RunState::Told(run)) = &state {
                arrived = ended_nodes(run);
            }
            if arrived > printed.len() as u64 && Instant::now() >= next_look {
                let begin = Instant::now();
                if let Err(error) = self.print_arrived(&retrieval, client.stop(), printed) {
                    log::debug!("cannot look at the answers so far: {error:#}");
                }
                next_look = Instant::now() + begin.elapsed() * PAUSE_PER_LOOK;
            }
            true
        })
    }

    fn print_arrived(
        &self,
        retrieval: &Retrieval<'_>,
        stop: &Stop,
        printed: &mut BTreeSet<String>,
    ) -> Result<()> {
        let paths = retrieval.fetch(stop).map_err(RetrievalError::into_error)?;
        let Some(path) = paths.first() else {
            return Ok(());
        };
        let answers = Answers::read(&path.to_string_lossy())?;
        answers.print_lines(self.cluster_name(), printed)
    }

    /// Prints the answers in the archive, and returns the exit code.
    fn conclude(&self, folder: &Path, code_of_run: u8, printed: &BTreeSet<String>) -> Result<u8> {
        if code_of_run == output::INTERRUPTED {
            return Ok(code_of_run);
        }
        let archives = report::archives(folder)?;
        let Some(name) = archives.first() else {
            ensure!(code_of_run != 0, "the run has left no archive");
            return Ok(code_of_run);
        };
        let mut answers = Answers::read(&folder.join(name).to_string_lossy())?;
        answers.add_excluded(&self.choice())?;
        if !self.quiet {
            match self.output {
                EachForm::Json => {
                    answers.print_lines(self.cluster_name(), &mut printed.clone())?;
                }
                form => answers.print(form)?,
            }
        }
        let Some(exit) = answers.exit() else {
            return Ok(0);
        };
        if !self.quiet {
            output::error(&format!("exit {}: {}\n", exit.code, exit.reason));
        }
        Ok(exit.code)
    }

    /// Which nodes the flags choose.
    fn choice(&self) -> Choice {
        let flags = &self.nodes.flags;
        Choice {
            only: flags.nodes.filled().unwrap_or_default().to_owned(),
            sample: flags.sample.map_or(0, |placed| placed.value),
            per_zone: flags.per_zone.map_or(0, |placed| placed.value),
            ..Choice::default()
        }
    }

    /// The name of the cluster, if this process is for one of several.
    fn cluster_name(&self) -> Option<&str> {
        let cluster = &self.cluster;
        let name = cluster.context.as_deref().or_else(|| {
            let path = Path::new(cluster.kubeconfig.as_deref()?);
            path.file_stem()?.to_str()
        });
        name.filter(|_| self.clusters.is_one_of_several())
    }

    /// The definition of the plugin. JSON is YAML.
    fn definition(&self) -> Value {
        let is_in_image = self.image.is_some();
        let program = match is_in_image {
            true => format!("{PROGRAM_DIR}/sonobuoy"),
            false => "/sonobuoy".to_owned(),
        };
        let mut words = vec![program, "gather".into(), "command".into()];
        let mut pod = json!({
            "containers": [],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": driver::POD_GRACE.as_secs(),
        });
        let mut container = json!({
            "name": "command",
            "image": self.image.as_deref().unwrap_or(names::OWN_IMAGE),
            "imagePullPolicy": self.image_pull_policy,
            // The result is complete once its name is in the done file.
            "env": [{"name": names::env::DONE_FILE_DELAY, "value": "0s"}],
        });
        if is_in_image {
            pod["initContainers"] = json!([self.program_carrier()]);
            pod["volumes"] = json!([{"name": "program", "emptyDir": {}}]);
            container["securityContext"] = unprivileged();
            container["volumeMounts"] = json!([{"name": "program", "mountPath": PROGRAM_DIR}]);
        } else if !self.local {
            words.extend(["--chroot".into(), NODE_ROOT.into()]);
            for field in ["hostNetwork", "hostPID", "hostIPC"] {
                pod[field] = json!(true);
            }
            pod["dnsPolicy"] = json!("ClusterFirstWithHostNet");
            pod["volumes"] = json!([{"name": "root", "hostPath": {"path": "/"}}]);
            container["securityContext"] = json!({"privileged": true, "runAsUser": 0});
            container["volumeMounts"] = json!([{"name": "root", "mountPath": NODE_ROOT}]);
        }
        words.extend(["--timeout".into(), self.timeout.to_string(), "--".into()]);
        // Kubernetes expands `$(NAME)`, and reads `$$` as `$`.
        words.extend(self.command.iter().map(|word| word.replace('$', "$$")));
        container["command"] = json!(words);
        json!({
            "sonobuoy-config": {
                "plugin-name": names::EACH, "driver": "Nodes", "permissions": "none",
                "result-format": "manual", "result-files": ["each.json"],
            },
            "podSpec": pod,
            "spec": container,
        })
    }

    /// The container that copies this program for one of another image.
    fn program_carrier(&self) -> Value {
        json!({
            "name": "program",
            "image": names::OWN_IMAGE,
            "imagePullPolicy": self.image_pull_policy,
            "command": ["/sonobuoy", "gather", "carry", PROGRAM_DIR],
            "securityContext": unprivileged(),
            "volumeMounts": [{"name": "program", "mountPath": PROGRAM_DIR}],
        })
    }

    /// The settings of the run.
    fn settings(&self) -> Value {
        let level = if self.is_on_host() {
            "privileged"
        } else {
            "baseline"
        };
        json!({
            "RemoveAfterSeconds": if self.local { 0 } else { REMOVAL_SECONDS },
            "NamespacePSAEnforceLevel": level,
            // Somebody waits for the answer.
            "Graces": {"ImagePull": "1m", "Unschedulable": "1m", "NodeNotReady": "30s"},
        })
    }

    /// The time limit of the whole run, in seconds.
    fn run_seconds(&self) -> u64 {
        let share = self.nodes.flags.max_parallel.as_ref().and_then(|placed| {
            let percent = placed.value.strip_suffix('%')?.parse::<u64>().ok()?;
            (1..=100).contains(&percent).then_some(percent)
        });
        let waves = share.map_or(DEFAULT_WAVES, |percent| 100_u64.div_ceil(percent));
        (self.timeout + POD_SECONDS) * waves
    }

    /// The flags of the same names of `run`.
    fn words_of_flags(&self) -> Vec<String> {
        let nodes = &self.nodes.flags;
        let number = |flag: Option<Placed<u64>>| flag.map(|placed| placed.value.to_string());
        let text = |flag: &Option<Placed<String>>| flag.filled().map(str::to_owned);
        let flags = [
            ("nodes", text(&nodes.nodes)),
            ("sample", number(nodes.sample)),
            ("per-zone", number(nodes.per_zone)),
            ("max-parallel", text(&nodes.max_parallel)),
            ("sonobuoy-image", self.sonobuoy_image.clone()),
        ];
        let mut words = Vec::new();
        for (flag, value) in flags {
            if let Some(value) = value {
                words.push(format!("--{flag}={value}"));
            }
        }
        words
    }

    /// The arguments of `run` that do this; the definition and the archive are in `folder`.
    fn run_args(&self, folder: &Path, namespace: &str) -> Result<RunArgs> {
        let write = |name: &str, content: &Value| {
            let path = folder.join(name);
            fs::write(&path, content.to_string()).at("cannot write", &path)?;
            anyhow::Ok(path.to_string_lossy().into_owned())
        };
        let definition = write("each.yaml", &self.definition())?;
        let settings = write("settings.json", &self.settings())?;
        let seconds = self.run_seconds();
        let mut words: Vec<String> = vec!["run".into(), "--no-snapshot".into()];
        words.push(format!("--plugin={definition}"));
        words.push(format!("--config={settings}"));
        words.push(format!("--retrieve={}", folder.display()));
        words.push(format!("--timeout={seconds}s"));
        words.extend(self.words_of_flags());
        if self.local {
            words.push("--local".into());
        } else {
            words.push(format!("--namespace={namespace}"));
            words.push(format!("--image-pull-policy={}", self.image_pull_policy));
            words.push(format!("--wait={}s", seconds + POD_SECONDS));
            words.push("--wait-output=Silent".into());
            // Workers reach the aggregator by its address.
            words.push("--skip-preflight=dnscheck".into());
        }
        let command = RunArgs::augment_args(Command::new("run"));
        let mut run = accepting_values(like_original(command))
            .try_get_matches_from(words)
            .and_then(|mut matches| RunArgs::from_arg_matches_mut(&mut matches))
            .context("this is a bug: `run` does not know its flags")?;
        run.run.cluster = self.cluster.clone();
        run.afterwards.is_shown_by_caller = true;
        Ok(run)
    }
}

/// What Pod Security requires of a container at its level `restricted`, except for the user, which
/// is that of the image.
fn unprivileged() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// The number of nodes that have answered, or will not.
fn ended_nodes(run: &status::Run) -> u64 {
    let entries = run.plugins.iter().flatten();
    let ended = entries.filter(|entry| entry.status != status::RUNNING);
    ended.map(|entry| entry.count.unwrap_or(1)).sum()
}

/// Checks what the creation of the run does not: that its answers can be fetched, and that it can
/// be removed.
fn check_permissions(client: &Client) -> Result<()> {
    let exec = Resource {
        plural: "pods/exec".into(),
        ..Resource::PODS
    };
    let needed = [
        ("create", exec, "it fetches the outputs"),
        (
            "delete",
            Resource::NAMESPACES,
            "it removes the namespace that it makes",
        ),
    ];
    for (verb, resource, purpose) in needed {
        match client.allowed(verb, &resource, "") {
            Ok(true) => {}
            Ok(false) => bail!(
                "your account may not {verb} {}, by which {purpose}; nothing was created. Ask for \
                 the rights that docs/each.md lists",
                resource.plural
            ),
            Err(error) => log::debug!("{}: {error}", resource.plural),
        }
    }
    Ok(())
}

/// Says once per user what `--host` may do.
fn note_what_host_means() {
    let note = plugin::user_folder().map(|folder| folder.join(HOST_NOTE));
    if note.as_ref().is_ok_and(|note| note.exists()) {
        return;
    }
    log::warn!(
        "the command runs as root on each node, in a privileged pod: it may read and change \
         everything there. This is said once; SECURITY.md has more"
    );
    let written = note.and_then(|note| {
        if let Some(folder) = note.parent() {
            fs::create_dir_all(folder).at("cannot create", folder)?;
        }
        fs::write(&note, "").at("cannot write", &note)
    });
    if let Err(error) = written {
        log::debug!("{error:#}");
    }
}

/// Until the run is waited for, deletes what it has created when a signal arrives.
fn delete_if_interrupted(client: &Client, namespace: &str) -> Result<()> {
    let (client, namespace) = (client.clone(), namespace.to_owned());
    let signals = [Signal::Hangup, Signal::Interrupt, Signal::Terminate];
    output::on_signal(&signals, move || {
        match remove_namespace(&client, &namespace) {
            Ok(()) => log::error!("{INTERRUPTION}"),
            Err(error) => log::error!("{error:#}"),
        }
        temp::exit(output::INTERRUPTED.into());
    })
}

fn remove_namespace(client: &Client, namespace: &str) -> Result<()> {
    driver::cluster::remove_namespace(client, namespace).with_context(|| {
        format!(
            "cannot delete the namespace `{namespace}`; the aggregator does it within \
             {REMOVAL_SECONDS} s after the run, and `kubectl delete namespace {namespace}` now"
        )
    })
}
