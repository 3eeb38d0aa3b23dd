//! What somebody wants of a run in a cluster: which archive, from where, and where to. How it comes is told in
//! `retrieve`, by a command in the pod, and `download`, from the status service.

use std::path::Path;

use super::service::Credentials;
use base::kube;

/// What is fetched, and where to.
pub(crate) struct Retrieval<'a> {
    /// Access to the cluster; without it, the archive comes from the status service.
    pub client: Option<&'a kube::Client>,
    /// The namespace of the run.
    pub namespace: &'a str,
    /// The folder in the container.
    pub from: &'a str,
    /// The folder here.
    pub into: &'a Path,
    /// A name instead of the archive's own.
    pub name: Option<&'a str>,
    /// What has arrived so far, of a run that is not over.
    pub partial: bool,
    /// The way to the run's own status service.
    pub service: Option<&'a Credentials>,
    /// Whether files that exist are replaced.
    pub force: bool,
    /// Whether the seal is kept beside the archive.
    pub keep_seal: bool,
    /// Is told how many bytes have come, and of how many; 0 if nobody knows.
    pub watch: &'a dyn Fn(u64, u64),
}
