//! Limits of a run's resources, section by section, and time limits for temporary problems of plugin pods: every key with
//! its default. 0 means unlimited where documented.
//!
//! The table in `aggregator::limits` defines the subject of each limit, and the effect of exceeding it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PodLogs;
use base::clock::span;
use base::json::is_default;

/// All limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Limits {
    /// Of pod logs.
    pub pod_logs: PodLogs,
    /// Of what one worker sends.
    #[serde(skip_serializing_if = "is_default")]
    pub results: ResultLimits,
    /// Of all results of a plugin.
    #[serde(skip_serializing_if = "is_default")]
    pub plugin: Share,
    /// Of the run.
    #[serde(skip_serializing_if = "is_default")]
    pub run: Whole,
    /// Of progress updates.
    #[serde(skip_serializing_if = "is_default")]
    pub progress: ProgressLimits,
    /// Of connections to the aggregator.
    #[serde(skip_serializing_if = "is_default")]
    pub connections: Connections,
    /// Of processing the results of a plugin.
    #[serde(skip_serializing_if = "is_default")]
    pub processing: Processing,
    /// Of the snapshot.
    #[serde(skip_serializing_if = "is_default")]
    pub snapshot: Snapshot,
}

/// Maximum data of one worker, and the reserved disk space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "limit", rename_all = "PascalCase", default)]
pub(crate) struct ResultLimits {
    /// Bytes of one result as sent. An end-to-end suite sends tens of MiB, the logs of a large node a few GiB.
    pub bytes: u64,
    /// Bytes that the archive of one result may unpack to.
    pub unpacked_bytes: u64,
    /// Entries of that archive.
    pub entries: u64,
    /// Bytes reserved on the aggregator's disk for status, logs and errors.
    pub free_bytes: u64,
    /// Files and folders reserved there, for the same reason.
    pub free_inodes: u64,
}

impl Default for ResultLimits {
    fn default() -> Self {
        Self {
            bytes: 10 << 30,
            unpacked_bytes: 40 << 30,
            entries: 1_000_000,
            free_bytes: 64 << 20,
            free_inodes: 4_096,
        }
    }
}

/// Maximum disk usage of all results of a plugin. 0 means an equal share, plus space that no other plugin can need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "limit", rename_all = "PascalCase", default)]
pub(crate) struct Share {
    /// Bytes, unpacked.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

/// Maximum disk usage of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "limit", rename_all = "PascalCase", default)]
pub(crate) struct Whole {
    /// Bytes of the volume: half for results, half for the archive made from them. 0 means unlimited.
    pub bytes: u64,
}

impl Default for Whole {
    fn default() -> Self {
        Self { bytes: 100 << 30 }
    }
}

/// Maximum memory of the aggregator for progress updates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "limit", rename_all = "PascalCase", default)]
pub(crate) struct ProgressLimits {
    /// Bytes of one update; a suite with all of its 7,000 tests failed needs about 1 MiB.
    pub bytes: u64,
    /// Bytes of all updates being read at the same time.
    pub reading_bytes: u64,
    /// Bytes kept for all results together.
    pub kept_bytes: u64,
}

impl Default for ProgressLimits {
    fn default() -> Self {
        Self { bytes: 1 << 20, reading_bytes: 16 << 20, kept_bytes: 24 << 20 }
    }
}

/// Connections to the aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "limit", rename_all = "PascalCase", default)]
pub(crate) struct Connections {
    /// Threads, each of which serves one connection at a time; further connections wait.
    pub threads: u64,
}

impl Default for Connections {
    fn default() -> Self {
        Self { threads: base::http::Limits::default().threads as u64 }
    }
}

/// Limits for processing the results of one plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "limit", rename_all = "PascalCase", default)]
pub(crate) struct Processing {
    /// Timeout; a GiB of results takes a minute.
    #[serde(with = "span")]
    pub time: Duration,
}

impl Default for Processing {
    fn default() -> Self {
        Self { time: Duration::from_secs(600) }
    }
}

/// Time limit of the snapshot and the logs after the plugins have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "limit", rename_all = "PascalCase", default)]
pub(crate) struct Snapshot {
    /// After this long, stops querying nodes that have not responded; a tenth of the run's time limit later everything ends.
    /// 0 means unlimited.
    #[serde(with = "span")]
    pub time: Duration,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self { time: Duration::from_secs(120) }
    }
}

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
