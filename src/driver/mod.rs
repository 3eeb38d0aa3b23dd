//! Starts plugins and watches them.
//!
//! Owns what a plugin needs to run, in a cluster or on this machine, and the judgement of what becomes of it.
//! Does not know the aggregator: what it finds out is a [`Finding`] down a channel.

pub(crate) mod cluster;
mod container;
pub(crate) mod lifeline;
pub(crate) mod local;
mod monitor;
mod node;
mod pod;
mod process;
pub(crate) mod roster;
mod silence;
mod verdict;

pub(crate) use node::refusal;
pub(crate) use verdict::{Verdict, judge};

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::backplane::Identity;
use crate::plugin::Definition;
use base::stop::Stop;
use client::protocol::{Finding, ResultId};

/// One plugin of a run, ready to be started.
pub(crate) struct Plugin<'a> {
    /// What to run.
    pub definition: &'a Definition,
    /// 16 hexadecimal characters, which tell its objects from those of other runs.
    pub session: String,
    /// What it has to bring: one result for the cluster, or one for each node.
    pub ids: Vec<ResultId>,
    /// How long it may take.
    pub limit: Option<Duration>,
    /// How its workers prove who they are.
    pub proof: Proof,
}

impl Plugin<'_> {
    /// The same launch with another definition.
    pub(crate) fn with<'d>(&self, definition: &'d Definition) -> Plugin<'d> {
        Plugin {
            definition,
            session: self.session.clone(),
            ids: self.ids.clone(),
            limit: self.limit,
            proof: self.proof.clone(),
        }
    }
}

/// How the workers of a plugin prove who they are.
#[derive(Clone)]
pub(crate) enum Proof {
    /// By this certificate, which all of them share.
    Certificate(Identity),
    /// By a token that Kubernetes makes for each pod and for this audience.
    PodToken(String),
    /// By one of these, each for one result.
    Tokens(BTreeMap<ResultId, String>),
}

/// A way to run plugins.
pub(crate) trait Driver: Sync {
    /// Starts the plugin and watches it until `stop`. An error means that it could not be started; what goes wrong
    /// later goes into `findings`.
    fn run(&self, plugin: &Plugin<'_>, findings: &SyncSender<Finding>, stop: &Stop) -> anyhow::Result<()>;

    /// Takes away what is left of the plugin when the run is over.
    fn remove(&self, plugin: &Plugin<'_>) -> anyhow::Result<()>;
}
