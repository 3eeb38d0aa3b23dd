//! `sonobuoy doctor`, and the checks of `run --doctor`.

use anyhow::{Result, bail};
use serde_json::Value;

use super::afterwards::AfterwardsFlags;
use super::clusters::{self, ClustersFlags, Fleet, Printed};
use super::flag::{Filled as _, Hidden, Varied, examples, interrupted, usage_error, words};
use super::manifest::{checks, objects, read_given, skipped};
use super::output::{self, DocumentForm};
use super::run_args::BeforeRunFlags;
use super::run_flags::{NodeFlags, ProgressFlags, RunFlags};
use super::run_plan::{Purpose, RunRequest};
use crate::deploy::Preflight;
use crate::doctor::{self, Check, Subject};
use kube::Client;

/// Exit code if a run would fail.
const NOT_READY: u8 = 3;

/// Check whether a cluster is ready for a run
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Check whether this run would succeed", "sonobuoy doctor -p disk.yaml"),
    (
        "Measure the network of every node, for a pipeline",
        "sonobuoy doctor --measure-from all --format junit",
    ),
]))]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    flags: RunFlags,
    #[command(flatten)]
    progress: ProgressFlags,
    #[command(flatten)]
    clusters: ClustersFlags,
    #[command(flatten)]
    nodes: NodeFlags,
    // A command line of `run` can be checked by replacing one word.
    #[command(flatten)]
    afterwards: Varied<AfterwardsFlags, Hidden>,
    #[command(flatten)]
    before: Varied<BeforeRunFlags, Hidden>,
    #[command(flatten)]
    scope: ScopeFlags,
}

/// What to check, and how to print it
#[derive(clap::Args)]
#[command(next_help_heading = "Scope")]
struct ScopeFlags {
    /// Nodes to measure the network from: a number, `all`, or names
    #[arg(
        long,
        value_name = "N|all|NAME,...",
        value_delimiter = ',',
        default_value = doctor::SAMPLE
    )]
    measure_from: Vec<String>,
    /// What to print: a line for each cause, or everything
    #[arg(
        long,
        value_name = "WORD",
        default_value = "text",
        value_parser = words(doctor::FORMATS)
    )]
    format: &'static str,
}

impl DoctorArgs {
    /// The checks of several clusters, if several are named.
    pub(crate) fn fleet(&self) -> Option<Fleet<'_>> {
        let mut fleet = Fleet::new(
            "doctor",
            &self.clusters,
            &self.flags.cluster,
            self.flags.access().namespace,
        )?;
        fleet.refuse_streams(&self.flags);
        fleet.refuse("--format junit", self.scope.format == "junit");
        fleet.refuse("--certify", self.afterwards.flags.certify.is_some());
        fleet.progress = self.progress.output;
        if self.scope.format == "json" {
            fleet.printed = Printed::Documents(DocumentForm::Json);
        }
        Some(fleet)
    }
}

impl DoctorArgs {
    /// The arguments for one of several clusters.
    pub(crate) fn narrowed(self) -> Self {
        Self {
            clusters: self.clusters.narrowed(),
            ..self
        }
    }
}

/// Runs the command in one cluster or in several.
pub(crate) fn dispatch(args: DoctorArgs, level: &str) -> Result<u8> {
    if let Some(fleet) = args.fleet() {
        return clusters::run(&fleet);
    }
    run(&args.narrowed(), level)
}

/// Runs the command.
pub(super) fn run(args: &DoctorArgs, level: &str) -> Result<u8> {
    check_nodes(&args.nodes)?;
    let flags = &args.flags;
    let rbac = args.before.flags.rbac_mode(flags);
    let request = RunRequest::new(Purpose::Run, flags, Some(&args.nodes), level)?.with_rbac(rbac);
    let stop = output::stop_on_signal()?;
    let client = flags.cluster.client()?.under(&stop);
    let format = args.scope.format;
    let tell = |check: &Check| {
        if format == "text" {
            output::print(&check.lines());
        }
    };
    let checks = match doctor::reach(&client) {
        (server, true) => {
            let (objects, namespace) =
                objects(request, read_given(flags.run.file.filled())?, |_| Ok(()))?;
            let skip = skipped(&flags.preflight)?;
            let pull_secret = flags.images.image_pull_secret.filled();
            let preflight = checks(&flags.preflight, pull_secret, &objects, &namespace, &skip);
            let nodes: Vec<&str> = args.scope.measure_from.iter().map(String::as_str).collect();
            examine(&client, server, &objects, &preflight, &nodes, &tell)?
        }
        (server, false) => {
            tell(&server);
            vec![server]
        }
    };
    output::print(&match format {
        "text" => doctor::verdict(&checks),
        _ => doctor::show(&checks, format),
    });
    Ok(if doctor::is_ready(&checks) {
        0
    } else {
        NOT_READY
    })
}

/// Rejects a number of nodes, or all of them, which `--nodes` selected in version 0.60.0.
fn check_nodes(flags: &NodeFlags) -> Result<()> {
    let nodes = flags.nodes.filled().unwrap_or_default();
    if nodes == "all" || nodes.parse::<u32>().is_ok() {
        return Err(usage_error(format!(
            "--nodes names the nodes of plugins, as in `run`; --measure-from {nodes} selects the \
             nodes to measure from"
        )));
    }
    Ok(())
}

/// Checks the cluster for `run --doctor`.
pub(super) fn examine_before(
    client: &Client,
    objects: &[Value],
    preflight: &Preflight,
) -> Result<()> {
    let tell = |check: &Check| check.lines().lines().for_each(|line| log::info!("{line}"));
    let checks = match doctor::reach(client) {
        (server, true) => examine(client, server, objects, preflight, &[doctor::SAMPLE], &tell)?,
        (server, false) => {
            tell(&server);
            vec![server]
        }
    };
    log::info!("{}", doctor::verdict(&checks).trim_end());
    if !doctor::is_ready(&checks) {
        bail!("`--doctor` found something that would fail: nothing was created");
    }
    Ok(())
}

fn examine(
    client: &Client,
    server: Check,
    objects: &[Value],
    preflight: &Preflight,
    nodes: &[&str],
    tell: &dyn Fn(&Check),
) -> Result<Vec<Check>> {
    let subject = Subject::new(objects, preflight.namespace)?;
    let checks = doctor::examine(client, server, &subject, preflight, nodes, tell)?;
    if client.stop().stopped() {
        return Err(interrupted(
            "interrupted; everything that was created for the checks has been removed",
        ));
    }
    Ok(checks)
}
