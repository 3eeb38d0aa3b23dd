//! Request for an archive of a run in a cluster: which one, source and destination. `retrieve` fetches it by a
//! command in the
//! pod, `download` from the status service.

use std::path::Path;

use super::service::Credentials;
use base::kube;

/// A retrieval.
pub(crate) struct Retrieval<'a> {
    /// Access to the cluster; without it, the archive comes from the status service.
    pub client: Option<&'a kube::Client>,
    /// The namespace of the run.
    pub namespace: &'a str,
    /// Directory in the container.
    pub from: &'a str,
    /// Local directory.
    pub into: &'a Path,
    /// Name that replaces the archive's.
    pub name: Option<&'a str>,
    /// Whether to fetch the current files of an unfinished run.
    pub partial: bool,
    /// Credentials of the run's status service.
    pub service: Option<&'a Credentials>,
    /// Whether to replace existing files.
    pub force: bool,
    /// Whether to keep the seal next to the archive.
    pub keep_seal: bool,
    /// Receives the bytes transferred and the total; 0 if unknown.
    pub watch: &'a dyn Fn(u64, u64),
}
