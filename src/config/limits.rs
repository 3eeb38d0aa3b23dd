//! Limits of a run's resources, section by section: every key with its default. 0 means unlimited where documented.
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
