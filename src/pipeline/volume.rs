//! The folder of the aggregator, which may be a volume: finds this run's folder in it, and files of earlier runs.
//!
//! Starts no thread.

use std::fs;

use super::cluster::{ClusterRun, FreshPermissions};
use crate::{config, layout, names};
use base::archive;
use base::at::At as _;
use base::kube::{self, Resource};
use base::small;

/// Maximum size of an identity file.
const MAX_IDENTITY_BYTES: u64 = 4 << 10;

impl ClusterRun<'_> {
    /// Identity that the cluster gives this run, one value per line: uid and version of its two config maps, which a
    /// recreated pod finds unchanged, and the uid of this pod.
    pub(super) fn identity(&self, pod: Option<&str>, rights: &FreshPermissions<'_>) -> String {
        let of_map = |name: &str| {
            let mut get = || self.client.get(&Resource::CONFIG_MAPS, &self.config.namespace, name);
            let map = rights.ask(&mut get, |answer| answer.as_ref().is_err_and(kube::Error::is_forbidden));
            let map = map.map_err(|error| log::debug!("only this pod resumes the run: {error}")).ok()?;
            let metadata = &map["metadata"];
            Some(format!("{}@{}", metadata["uid"].as_str()?, metadata["resourceVersion"].as_str()?))
        };
        let maps = of_map(names::CONFIG_MAP).zip(of_map(names::PLUGINS_MAP));
        let maps = maps.map(|(settings, plugins)| format!("{settings} {plugins}"));
        maps.into_iter().chain(pod.map(str::to_owned)).collect::<Vec<_>>().join("\n")
    }

    /// Interrupted run with this `identity`. A folder that outlives pods may contain others.
    pub(super) fn interrupted(&self, identity: &str) -> anyhow::Result<Option<String>> {
        for entry in fs::read_dir(self.folder).at("cannot read", self.folder)?.flatten() {
            let name = entry.file_name();
            let uuid = name.to_str().and_then(layout::run_of_state);
            let Some(uuid) = uuid.filter(|uuid| config::is_run(uuid)) else { continue };
            let known = small::read(&entry.path().join(layout::IDENTITY), MAX_IDENTITY_BYTES);
            let why = match known.and_then(small::text) {
                Ok(known) if known.lines().any(|line| identity.lines().any(|own| own == line)) => {
                    return Ok(Some(uuid.to_owned()));
                }
                Ok(_) => "this is another run".to_owned(),
                Err(error) => format!("its state cannot be read: {error}"),
            };
            log::warn!("run {uuid} was interrupted and is not resumed: {why}");
        }
        Ok(None)
    }

    /// Moves archives of earlier runs aside, so that they are not mistaken for this run's.
    pub(super) fn put_aside(&self) {
        let earlier = self.folder.join(layout::EARLIER);
        for path in archive::finished(self.folder).unwrap_or_default() {
            let aside = earlier.join(path.file_name().unwrap_or_default());
            let moved = fs::create_dir_all(&earlier).and_then(|()| {
                for (from, to) in layout::seal(&path).iter().zip(layout::seal(&aside)) {
                    // Archives from older versions have no seal.
                    let _ = fs::rename(from, to);
                }
                fs::rename(&path, &aside)
            });
            match moved {
                Ok(()) => log::info!("the archive of an earlier run is kept as `{}`", aside.display()),
                Err(error) => log::warn!("cannot move `{}` aside: {error}", path.display()),
            }
        }
    }
}
