//! `sonobuoy delete`: removes the objects of a run from the cluster.

use std::time::Duration;

use anyhow::Result;

use super::cluster::{self, ClusterFlags, NamespaceFlag};
use super::clusters::{self, ClustersFlags, Fleet};
use super::flag::{examples, parse_minutes};
use super::output;
use super::run_flags::{RbacMode, WaitOutput};
use crate::deploy::{self, Removal};
use model::nodes::check_condition;

/// Remove a run from the cluster
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Clean up", "sonobuoy delete --wait"),
    (
        "Remove the verdicts of `run --mark-nodes` from all nodes",
        "sonobuoy delete --unmark-nodes example.com/DiskChecked",
    ),
]))]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    namespace: NamespaceFlag,
    /// Whether to remove RBAC objects; Detect asks the cluster
    #[arg(long, value_name = "WORD", value_enum, default_value_t = RbacMode::Detect)]
    rbac: RbacMode,
    /// Also remove what e2e tests and other runs left behind
    #[arg(long)]
    all: bool,
    /// Remove only this condition, which `run --mark-nodes` has written, from all nodes, and no run
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = parse_condition,
        conflicts_with_all = ["namespace", "all", "wait"]
    )]
    unmark_nodes: Option<String>,
    /// Show what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Wait until everything is gone, at most this long (minutes, or a duration such as 90s); an
    /// hour without a value
    #[arg(
        long,
        value_name = "MINUTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "60",
        default_value = "0",
        hide_default_value = true,
        value_parser = parse_minutes,
    )]
    wait: Duration,
    /// What to print while waiting
    #[arg(long, value_name = "WORD", value_enum, default_value_t = WaitOutput::Progress)]
    wait_output: WaitOutput,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    clusters: ClustersFlags,
}

impl DeleteArgs {
    /// The removal from several clusters, if several are named.
    pub(crate) fn fleet(&self) -> Option<Fleet<'_>> {
        Fleet::new(
            "delete",
            &self.clusters,
            &self.cluster,
            self.namespace.namespace.as_deref(),
        )
    }

    /// The arguments for one of several clusters.
    pub(crate) fn narrowed(self) -> Self {
        Self {
            clusters: self.clusters.narrowed(),
            ..self
        }
    }
}

/// Runs the command in one cluster or in several.
pub(crate) fn dispatch(args: DeleteArgs) -> Result<u8> {
    if let Some(fleet) = args.fleet() {
        return clusters::run(&fleet);
    }
    run(&args.narrowed()).map(|()| 0)
}

/// The type of a condition. An empty one is an error: without the flag, the command deletes a run.
fn parse_condition(text: &str) -> Result<String, String> {
    check_condition(text).map_err(|reason| format!("it {reason}"))?;
    Ok(text.to_owned())
}

/// Removes a condition from all nodes.
fn unmark(args: &DeleteArgs, condition: &str) -> Result<()> {
    let nodes = deploy::unmark_nodes(&args.cluster.client()?, condition, args.dry_run)?;
    let dry = if args.dry_run { " (dry run)" } else { "" };
    for node in &nodes {
        output::line(format!("node/{node}: condition `{condition}` removed{dry}"));
    }
    if nodes.is_empty() {
        log::info!("no node has the condition `{condition}`");
    }
    Ok(())
}

/// Runs the command.
pub(super) fn run(args: &DeleteArgs) -> Result<()> {
    if let Some(condition) = &args.unmark_nodes {
        return unmark(args, condition);
    }
    let client = args.cluster.client()?;
    let removal = Removal {
        namespace: cluster::namespace(args.namespace.namespace.as_deref())?,
        rbac: args.rbac.has_rbac(&args.cluster)?,
        all: args.all,
        dry_run: args.dry_run,
    };
    let remaining = removal.issue(&client)?;
    if args.wait.is_zero() || args.dry_run {
        return Ok(());
    }
    remaining.wait(&client, args.wait, &mut |state| {
        // The original prints it to standard output.
        if args.wait_output == WaitOutput::Progress {
            output::print(&format!("\n{state}\n"));
        }
    })
}
