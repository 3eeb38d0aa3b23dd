//! Time limits for temporary problems of plugin pods: every value with its reason and its default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use base::clock::span;

/// Duration after which a problem counts as a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "grace period", rename_all = "PascalCase", default)]
pub(crate) struct Grace {
    /// A pod that no node accepts: an autoscaler needs minutes to add one.
    #[serde(with = "span")]
    pub unschedulable: Duration,
    /// An image that cannot be pulled: registries may recover.
    #[serde(with = "span")]
    pub image_pull: Duration,
    /// A container that cannot be created, usually because of a missing config map or secret.
    #[serde(with = "span")]
    pub creation: Duration,
    /// A container that has exited while the result is outstanding: a sidecar may still be working on it.
    #[serde(with = "span")]
    pub terminated: Duration,
    /// Maximum restarts of a container.
    pub restarts: u64,
    /// A pod whose containers all succeeded without a result, which may be in transit.
    #[serde(with = "span")]
    pub ended: Duration,
    /// An expected node without a pod, counted from the last pod of the plugin that appeared on any node: in a large cluster
    /// the controller takes minutes to create them all.
    #[serde(with = "span")]
    pub no_pod: Duration,
    /// A running worker without any contact: the network blocks it, or its clock is wrong.
    #[serde(with = "span")]
    pub silence: Duration,
    /// A worker whose heartbeats stopped: its node may be rebooting.
    #[serde(with = "span")]
    pub silent: Duration,
    /// A node that is not ready: it may be rebooting, which some tests cause. 0 never gives a node up.
    // The alias is the key of version 0.60.0.
    #[serde(with = "span", alias = "NodeLost")]
    pub node_not_ready: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            unschedulable: Duration::from_secs(300),
            image_pull: Duration::from_secs(300),
            creation: Duration::from_secs(60),
            terminated: Duration::from_secs(300),
            restarts: 2,
            ended: Duration::from_secs(10),
            no_pod: Duration::from_secs(60),
            silence: Duration::from_secs(180),
            silent: Duration::from_secs(300),
            node_not_ready: Duration::from_secs(120),
        }
    }
}

/// Repetitions of what was lost through no fault of the plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "retry", rename_all = "PascalCase", default)]
pub(crate) struct Retries {
    /// Further pods of a Job whose node or pod was lost.
    pub node_lost: u64,
}

impl Default for Retries {
    fn default() -> Self {
        Self { node_lost: 1 }
    }
}
