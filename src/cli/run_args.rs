//! The arguments of `sonobuoy run`, which `run`, `run --local`, `wait` and `doctor` share.

use super::afterwards::AfterwardsFlags;
use super::clusters::{ClustersFlags, Fleet};
use super::flag::{Filled as _, examples, within};
use super::load::LoadFlags;
use super::run_flags::{NodeFlags, ProgressFlags, RbacMode, RunFlags};

/// Run plugins, in a cluster or on this machine
#[derive(clap::Args)]
#[command(after_help = examples(&[
    (
        "Try a plugin on this machine",
        "sonobuoy run --local -p disk.yaml --local-nodes 3",
    ),
    (
        "One conformance test, to see whether it works",
        "sonobuoy run --wait --mode quick",
    ),
    (
        "Everything a pipeline needs",
        "sonobuoy run --wait --retrieve . --junit report.xml --delete --fail-on unknown",
    ),
    (
        "Events for another program",
        "sonobuoy run --wait=2h --timeout 90m -p disk.yaml --output json",
    ),
]))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub run: RunFlags,
    #[command(flatten)]
    pub progress: ProgressFlags,
    #[command(flatten)]
    pub clusters: ClustersFlags,
    #[command(flatten)]
    pub nodes: NodeFlags,
    #[command(flatten)]
    pub afterwards: AfterwardsFlags,
    #[command(flatten)]
    pub before: BeforeRunFlags,
    #[command(flatten)]
    pub local: LocalFlags,
}

/// What happens before the objects are created
#[derive(Clone, clap::Args)]
pub(crate) struct BeforeRunFlags {
    /// Create nothing: print the objects, or have the server validate each; client without a value
    #[arg(
        long,
        value_name = "WORD",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "client",
        value_enum,
        default_value_t = DryRun::None,
        help_heading = "Cluster"
    )]
    pub dry_run: DryRun,
    #[command(flatten)]
    pub load: LoadFlags,
    /// First check whether the cluster is fit for the run
    #[arg(long, help_heading = "Cluster", hide_short_help = true)]
    pub doctor: bool,
    /// Wait for the end, and print how long each part of the run took
    #[arg(long, help_heading = "Waiting")]
    pub timings: bool,
}

/// Who reads the objects instead of creating them.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DryRun {
    None,
    Client,
    Server,
}

/// A run on this machine
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "On this machine")]
pub(crate) struct LocalFlags {
    /// Run the plugins' commands on this machine, without a cluster
    #[arg(long)]
    pub local: bool,
    #[arg(
        long,
        value_name = "N",
        value_parser = within::<usize>(1..=1_000),
        help = "With --local: how many nodes a DaemonSet plugin sees [default: 1]",
        hide_short_help = true
    )]
    pub local_nodes: Option<usize>,
}

impl BeforeRunFlags {
    /// Whether the run has roles; objects that are only printed ask no cluster.
    pub(crate) fn rbac_mode(&self, flags: &RunFlags) -> RbacMode {
        match flags.run.rbac.rbac {
            RbacMode::Detect if self.dry_run == DryRun::Client => RbacMode::Enable,
            mode => mode,
        }
    }
}

impl RunArgs {
    /// The run in several clusters, if several are named.
    pub(crate) fn fleet(&self) -> Option<Fleet<'_>> {
        let mut fleet = Fleet::new(
            "run",
            &self.clusters,
            &self.run.cluster,
            self.run.access().namespace,
        )?;
        fleet.refuse_streams(&self.run);
        fleet.refuse("--local", self.local.local);
        fleet.refuse("--certify", self.afterwards.certify.is_some());
        fleet.refuse("--baseline", self.afterwards.baseline.is_some());
        fleet.progress = self.progress.output;
        fleet.has_events = self.has_events();
        let retrieve = self.afterwards.retrieve.filled();
        fleet.folder = retrieve;
        if self.has_report() {
            let resumed = self.run.e2e.resume.filled();
            fleet.reports = Some(&self.afterwards);
            fleet.folder = resumed.or(retrieve);
            fleet.resumes = resumed.is_some();
        }
        Some(fleet)
    }

    /// Whether several clusters need one report.
    fn has_report(&self) -> bool {
        let is_requested = self.afterwards.asks_for_report() || self.run.e2e.resume.is_some();
        is_requested && self.before.dry_run == DryRun::None
    }

    /// Whether the process of one of several clusters reports events.
    fn has_events(&self) -> bool {
        let waits = !self.run.waiting.wait.is_zero() || self.afterwards.delete;
        (waits || self.has_report()) && self.before.dry_run == DryRun::None
    }

    /// The arguments for one of several clusters, whose results are reported as a whole.
    pub(crate) fn narrowed(self) -> Self {
        let Some(folder) = self.clusters.one_folder().map(str::to_owned) else {
            return self;
        };
        let (has_report, has_events) = (self.has_report(), self.has_events());
        Self {
            run: self.run.narrowed(),
            progress: match has_events {
                true => self.progress.narrowed(),
                false => self.progress,
            },
            clusters: self.clusters.narrowed(),
            afterwards: self
                .afterwards
                .narrowed(Some(folder).filter(|_| has_report)),
            ..self
        }
    }
}
