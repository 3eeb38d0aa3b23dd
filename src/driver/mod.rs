//! Starts plugins and watches them.
//!
//! Owns the objects or processes of a plugin, in a cluster or on this machine, and the judgement of their state.
//! Does not know the aggregator: sends each [`Finding`] down a channel.

pub(crate) mod cluster;
mod container;
pub(crate) mod lifeline;
pub(crate) mod local;
mod monitor;
mod node;
mod pod;
pub(crate) mod process;
pub(crate) mod roster;
mod silence;
mod verdict;
mod waves;

pub(crate) use node::refusal;
pub(crate) use verdict::{PodVerdict, judge};

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::backplane::Identity;
use crate::plugin::Definition;
use base::stop::Stop;
use client::protocol::{Finding, ResultId};

/// A plugin of a run, ready to start.
#[derive(Clone)]
pub(crate) struct PluginLaunch<'a> {
    /// The definition.
    pub definition: &'a Definition,
    /// 16 hexadecimal characters that distinguish its objects from those of other runs.
    pub session: String,
    /// Expected results: one for the cluster, or one per node.
    pub ids: Vec<ResultId>,
    /// Time limit.
    pub limit: Option<Duration>,
    /// Credentials of its workers.
    pub proof: Proof,
}

/// How the workers of a plugin authenticate.
#[derive(Clone)]
pub(crate) enum Proof {
    /// A client certificate that all workers share.
    Certificate(Identity),
    /// A token that Kubernetes issues to each pod, with this audience.
    PodToken(String),
    /// One token per result.
    Tokens(BTreeMap<ResultId, String>),
}

/// Runs plugins.
pub(crate) trait Driver: Sync {
    /// Starts the plugin and watches it until `stop`. Returns an error only if the start fails; later failures are
    /// sent to `findings`.
    fn run(
        &self,
        plugin: &PluginLaunch<'_>,
        findings: &SyncSender<Finding>,
        stop: &Stop,
    ) -> anyhow::Result<()>;

    /// Removes the objects of the plugin after the run.
    fn remove(&self, plugin: &PluginLaunch<'_>) -> anyhow::Result<()>;
}
