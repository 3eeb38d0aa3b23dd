//! Certificates of runs' authorities, kept for checking the seals of archives: one file for each run in the user's
//! directory, `~/.sonobuoy/authorities` or below `$SONOBUOY_DIR`.
//!
//! The first certificate of a run is final: another one that the namespace publishes later is rejected.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::state;
use crate::config;
use crate::names::{AUTHORITY_KEY, AUTHORITY_MAP, RUN_KEY};
use crate::plugin;
use base::at::At as _;
use base::kube::{Client, Resource};
use base::small;
use base::sys;
use base::temp::NewFile;

const FOLDER: &str = "authorities";
/// Time for an aggregator to start if its node has the image.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the scheduler to place a pod.
const SCHEDULE_TIMEOUT: Duration = Duration::from_millis(500);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Time limit of one attempt to read a certificate, including the connection.
const LEARN_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a certificate file.
const MAX_CERTIFICATE_BYTES: u64 = 64 << 10;

/// The stored certificates.
#[derive(Clone, Debug)]
pub(crate) struct Authorities {
    folder: PathBuf,
}

impl Authorities {
    /// The user's certificates, if a directory for them is known.
    pub(crate) fn of_user() -> Result<Self> {
        Ok(Self { folder: plugin::user_folder()?.join(FOLDER) })
    }

    /// Certificate of a run and its file, if stored. An empty file, as older versions left it on a full disk, counts
    /// as absent.
    pub(crate) fn of(&self, run: &str) -> Option<(PathBuf, String)> {
        let path = self.path(run)?;
        let certificate = read(&path).ok().filter(|certificate| !certificate.is_empty())?;
        Some((path, certificate))
    }

    /// File of a run's certificate; none for a name that is a path.
    pub(crate) fn path(&self, run: &str) -> Option<PathBuf> {
        config::is_run(run).then(|| self.folder.join(format!("{run}.pem")))
    }

    /// Stores the certificate of a run. Fails if a different one is stored already.
    pub(crate) fn keep(&self, run: &str, certificate: &str) -> Result<()> {
        let path = self.path(run).with_context(|| format!("`{run}` cannot be the name of a run"))?;
        let is_torn = match read(&path) {
            Ok(kept) if kept == certificate => return Ok(()),
            Ok(kept) if !kept.is_empty() => bail!(
                "the run's authority is not the one that was kept in `{}` when it began",
                path.display()
            ),
            Err(error) if !is_absent(&error) => return Err(error),
            kept => kept.is_ok(),
        };
        let write = || {
            sys::dir_builder(0o700).recursive(true).create(&self.folder)?;
            let mut file = NewFile::create(&path, 0o600)?;
            file.write_all(certificate.as_bytes())?;
            file.commit(is_torn)
        };
        write().at("cannot keep the authority's certificate in", &path)
    }

    /// Stores the certificate of a run that was just started: its aggregator publishes it at startup. The wait is
    /// short, since later calls look for it again.
    pub(crate) fn learn_soon(&self, client: &Client, namespace: &str) {
        let client = client.once(LEARN_TIMEOUT);
        let began = Instant::now();
        while !self.learn(&client, namespace) {
            let waited = began.elapsed();
            let pod = || state::find(&client, namespace).ok().flatten();
            let starts = || pod().is_some_and(|pod| pod["spec"]["nodeName"].is_string());
            let hopeless = waited > START_TIMEOUT || waited > SCHEDULE_TIMEOUT && !starts();
            if hopeless || client.stop().wait(LOOK_INTERVAL) {
                return;
            }
        }
    }

    /// Stores the certificate of the run in a namespace, if published; returns whether it is stored now. Never delays
    /// a command for long: a later command can store it, too.
    pub(crate) fn learn(&self, client: &Client, namespace: &str) -> bool {
        let Some((run, certificate)) = shown(client, namespace) else { return false };
        match self.keep(&run, &certificate) {
            Ok(()) => true,
            Err(error) => {
                log::warn!("{error:#}");
                false
            }
        }
    }
}

/// Run and certificate published in the namespace. Older aggregators publish none.
fn shown(client: &Client, namespace: &str) -> Option<(String, String)> {
    let client = client.once(LEARN_TIMEOUT);
    let map = client.get(&Resource::CONFIG_MAPS, namespace, AUTHORITY_MAP);
    let map = map.inspect_err(|error| log::debug!("the authority of the run is not known: {error}")).ok()?;
    let text = |key: &str| map["data"][key].as_str().map(str::to_owned);
    let certificate = text(AUTHORITY_KEY).filter(|text| text.len() as u64 <= MAX_CERTIFICATE_BYTES)?;
    Some((text(RUN_KEY)?, certificate))
}

fn is_absent(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Reads a certificate.
pub(crate) fn read(path: &Path) -> Result<String> {
    small::read(path, MAX_CERTIFICATE_BYTES).and_then(small::text).at("cannot read", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_authority_is_kept_in_its_folder() {
        let folder = base::temp::Folder::new().unwrap();
        let kept = Authorities { folder: folder.join("a/b") };
        assert_eq!(kept.of("r"), None);
        kept.keep("r", "first").unwrap();
        kept.keep("r", "first").unwrap();
        let error = kept.keep("r", "second").unwrap_err().to_string();
        assert!(error.contains("is not the one that was kept"), "{error}");
        let path = folder.join("a/b/r.pem");
        assert_eq!(kept.of("r"), Some((path.clone(), "first".into())));
        std::fs::write(&path, "").unwrap();
        assert_eq!(kept.of("r"), None, "a full disk left nothing of it");
        kept.keep("r", "first").unwrap();
        assert_eq!(kept.of("r").unwrap().1, "first");
        for run in ["", "../r", "a/b", ".r", "r\n", "r r", &"r".repeat(200)] {
            assert!(kept.keep(run, "x").is_err() && kept.of(run).is_none(), "{run:?}");
        }
        assert_eq!(std::fs::read_dir(folder.join("a/b")).unwrap().count(), 1);
    }
}
