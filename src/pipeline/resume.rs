//! What the next container of the same run finds in the folder of runs: the identity of the run,
//! its last status, and the marker that it is over.

use std::fs;

use anyhow::Result;
use serde_json::Value;

use super::context::{ClusterRun, uid};
use super::permissions::FreshPermissions;
use super::publisher::StatusPublisher;
use base::at::At as _;
use base::{archive, small, temp};
use kube::Resource;
use model::{config, layout, names, status};

/// Maximum size of an identity file.
const MAX_IDENTITY_BYTES: u64 = 4 << 10;

impl ClusterRun<'_> {
    /// Creates the folder of runs, or cleans the one of an earlier container.
    pub(super) fn prepare_folder(&self) -> Result<()> {
        fs::create_dir_all(self.folder).at("cannot create", self.folder)?;
        // A killed container may have left a part of them.
        for name in [layout::LAST_STATUS, layout::COMPLETE] {
            temp::clean(self.folder, name).at("cannot read", self.folder)?;
        }
        Ok(())
    }

    /// Whether an earlier container of this pod has completed the run.
    pub(super) fn is_complete(&self, pod_uid: Option<&str>) -> bool {
        let marker = fs::read_to_string(self.folder.join(layout::COMPLETE)).ok();
        pod_uid.is_some() && marker.as_deref() == pod_uid
    }

    /// Records that the run is over: the next container of the pod only publishes its last status.
    /// Without this record it resumes the run, which then still needs its state and results.
    pub(super) fn record_end(
        &self,
        publisher: &StatusPublisher<'_>,
        pod: &Value,
        last_status: &status::Run,
    ) -> bool {
        let marker = self.folder.join(layout::COMPLETE);
        // Whoever finds the marker must also find the status.
        let recorded = publisher
            .store(last_status)
            .and_then(|()| temp::write(&marker, 0o600, uid(pod)).at("cannot write", &marker));
        if let Err(error) = &recorded {
            log::warn!(
                "cannot record that the run is over; if this container is restarted, it packs the \
                 archive again: {error:#}"
            );
        }
        recorded.is_ok()
    }

    /// Removes what only a resumed run needs: its keys, and its results, which are in the archive.
    pub(super) fn remove_run(&self, uuid: &str) {
        let run_dir = self.folder.join(uuid);
        for folder in [layout::state_dir(&run_dir), run_dir] {
            if let Err(error) = base::if_exists(fs::remove_dir_all(&folder)) {
                log::warn!("cannot remove `{}`: {error}", folder.display());
            }
        }
    }

    /// The last status of a complete run; that of a failed run if it cannot be read, so that no
    /// command waits for it forever.
    pub(super) fn last_status(&self) -> status::Run {
        let path = self.folder.join(layout::LAST_STATUS);
        let text = fs::read_to_string(&path).at("cannot read", &path);
        let parsed = text.and_then(|text| status::Run::parse(&text).at("cannot read", &path));
        let why = match parsed {
            Ok(last) if last.status == status::COMPLETE => return last,
            Ok(last) => format!("`{}` says `{}`", path.display(), last.status),
            Err(error) => format!("{error:#}"),
        };
        let error = format!(
            "the run is complete, but its last status cannot be read: {why}; its archive is in \
             `{}` of the aggregator's pod",
            self.folder.display()
        );
        log::error!("{error}");
        status::Run {
            status: status::FAILED.into(),
            error: Some(error),
            ..status::Run::default()
        }
    }

    /// Identity that the cluster gives this run, one value per line: uid and version of its two
    /// config maps, which a recreated pod finds unchanged, and the uid of this pod.
    pub(super) fn identity(
        &self,
        pod_uid: Option<&str>,
        permissions: &FreshPermissions<'_>,
    ) -> String {
        let settings = self.map_version(names::CONFIG_MAP, permissions);
        let plugins = self.map_version(names::PLUGINS_MAP, permissions);
        let mut lines = Vec::new();
        if let (Some(settings), Some(plugins)) = (settings, plugins) {
            lines.push(format!("{settings} {plugins}"));
        }
        lines.extend(pod_uid.map(str::to_owned));
        lines.join("\n")
    }

    /// Uid and version of a config map of the run.
    fn map_version(&self, name: &str, permissions: &FreshPermissions<'_>) -> Option<String> {
        let namespace = &self.config.namespace;
        let get = || self.client.get(&Resource::CONFIG_MAPS, namespace, name);
        let map = match permissions.retry_forbidden(get) {
            Ok(map) => map,
            Err(error) => {
                log::debug!("only this pod resumes the run: {error}");
                return None;
            }
        };
        let metadata = &map["metadata"];
        let uid = metadata["uid"].as_str()?;
        let version = metadata["resourceVersion"].as_str()?;
        Some(format!("{uid}@{version}"))
    }

    /// Interrupted run with this `identity`. A folder that outlives pods may contain others.
    pub(super) fn interrupted_run(&self, identity: &str) -> Result<Option<String>> {
        let entries = fs::read_dir(self.folder).at("cannot read", self.folder)?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let uuid = name.to_str().and_then(layout::run_of_state);
            let Some(uuid) = uuid.filter(|uuid| config::is_run(uuid)) else {
                continue;
            };
            let path = entry.path().join(layout::IDENTITY);
            let stored = small::read(&path, MAX_IDENTITY_BYTES).and_then(small::text);
            let why = match stored {
                Ok(stored) if share_a_line(&stored, identity) => return Ok(Some(uuid.to_owned())),
                Ok(_) => "this is another run".to_owned(),
                Err(error) => format!("its state cannot be read: {error}"),
            };
            log::warn!("run {uuid} was interrupted and is not resumed: {why}");
        }
        Ok(None)
    }

    /// Moves archives of earlier runs aside, so that they are not mistaken for this run's.
    pub(super) fn move_earlier_archives(&self) {
        let earlier = self.folder.join(layout::EARLIER);
        for path in archive::finished(self.folder).unwrap_or_default() {
            let target = earlier.join(path.file_name().unwrap_or_default());
            let moved = fs::create_dir_all(&earlier).and_then(|()| {
                for (from, to) in layout::seal(&path).iter().zip(layout::seal(&target)) {
                    // Archives from older versions have no seal.
                    let _ = fs::rename(from, to);
                }
                fs::rename(&path, &target)
            });
            match moved {
                Ok(()) => log::info!(
                    "the archive of an earlier run is kept as `{}`",
                    target.display()
                ),
                Err(error) => log::warn!("cannot move `{}` aside: {error}", path.display()),
            }
        }
    }
}

/// One of the values is enough: a pod that replaces another one has the same config maps, a
/// container that is restarted has the same pod.
fn share_a_line(a: &str, b: &str) -> bool {
    a.lines().any(|line| b.lines().any(|other| other == line))
}
