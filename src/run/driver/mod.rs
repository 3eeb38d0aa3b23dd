//! Starts plugins and watches them.
//!
//! Owns the objects or processes of a plugin, in a cluster or on this machine, and the judgement of
//! their state. Does not know the aggregator: sends each [`Finding`] down a channel.

pub mod cluster;
mod container;
mod follower;
pub mod local;
mod monitor;
mod node;
mod objects;
mod pod;
pub mod process;
pub mod roster;
mod silence;
mod verdict;
mod waves;

pub use node::refusal;
pub use verdict::{PodVerdict, judge};

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use base::stop::Stop;
use base::{hex, sha256};
use client::protocol::{Finding, ResultId};
use model::config;
use model::plugin::Definition;

/// A plugin of a run, ready to start.
pub struct PluginLaunch<'a> {
    /// The definition.
    pub definition: &'a Definition,
    /// Expected results: one for the cluster, or one per node.
    pub ids: Vec<ResultId>,
}

/// Time for the containers of a run that is over to end: no result is awaited any more. It has to be
/// the first one that a pod gets, since not every node shortens a time that has begun. The namespace
/// controller first looks for what is left 5 s after the deletion of a namespace; if it finds pods
/// then, it looks again only after half of the grace period in their specs.
pub const POD_GRACE: Duration = Duration::from_secs(2);

/// 16 hexadecimal characters that distinguish the objects of a plugin from those of other runs; the
/// same after a restart.
pub fn session(config: &config::Run, plugin: &str) -> String {
    hex(&sha256(format!("{}/{plugin}", config.uuid)).as_ref()[..8])
}

/// Runs plugins.
pub trait Driver: Sync {
    /// Starts the plugin and watches it until `stop`. Returns an error only if the start fails;
    /// later failures are sent to `findings`.
    fn run(
        &self,
        plugin: &PluginLaunch<'_>,
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) -> anyhow::Result<()>;

    /// Removes the objects of a plugin after the run.
    fn remove(&self, plugin: &Definition) -> anyhow::Result<()>;
}
