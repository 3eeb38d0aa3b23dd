//! Time limits for temporary problems of plugin pods: every value with its reason and its default.

use std::time::Duration;

use serde::{Serialize, Serializer};

use base::clock;

/// Duration after which a problem counts as a failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Grace {
    /// A pod that no node accepts: an autoscaler needs minutes to add one.
    #[serde(serialize_with = "span")]
    pub unschedulable: Duration,
    /// An image that cannot be pulled: registries may recover.
    #[serde(serialize_with = "span")]
    pub image_pull: Duration,
    /// A container that cannot be created, usually because of a missing config map or secret.
    #[serde(serialize_with = "span")]
    pub creation: Duration,
    /// A container that has exited while the result is outstanding: a sidecar may still be working on it.
    #[serde(serialize_with = "span")]
    pub terminated: Duration,
    /// Maximum restarts of a container.
    pub restarts: u64,
    /// A pod whose containers all succeeded without a result, which may be in transit.
    #[serde(serialize_with = "span")]
    pub ended: Duration,
    /// An expected node without a pod, counted from the last pod of the plugin that appeared on any node: in a large cluster
    /// the controller takes minutes to create them all.
    #[serde(serialize_with = "span")]
    pub no_pod: Duration,
    /// A running worker without any contact: the network blocks it, or its clock is wrong.
    #[serde(serialize_with = "span")]
    pub silence: Duration,
    /// A worker whose heartbeats stopped: its node may be rebooting.
    #[serde(serialize_with = "span")]
    pub silent: Duration,
    /// A node that is not ready: it may be rebooting, which some tests cause.
    #[serde(serialize_with = "span")]
    pub node_lost: Duration,
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
            node_lost: Duration::from_secs(300),
        }
    }
}

pub(super) fn span<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&clock::duration(*value))
}

pub(super) fn spans<S: Serializer>(
    values: &std::collections::BTreeMap<String, Duration>,
    out: S,
) -> Result<S::Ok, S::Error> {
    out.collect_map(values.iter().map(|(name, value)| (name, clock::duration(*value))))
}
