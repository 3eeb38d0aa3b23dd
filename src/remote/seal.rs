//! Checks an archive against its seal, and the seal against its run. Keeps the certificates of runs' authorities for that:
//! one file for each run in the user's directory, `~/.sonobuoy/authorities` or below `$SONOBUOY_DIR`.
//!
//! The first certificate of a run is final: another one that the namespace publishes later is rejected.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::state;
use crate::backplane::{MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal, Statement};
use crate::names::{AUTHORITY_KEY, AUTHORITY_MAP, RUN_KEY};
use crate::{config, layout, plugin};
use base::at::At as _;
use base::kube::{Client, Resource};
use base::temp::NewFile;
use base::{small, sys};

/// Result of a successful check.
pub(crate) struct Checked {
    /// Content of the seal.
    pub statement: Statement,
    /// Whether the signature was verified with the authority's certificate.
    pub signed: bool,
}

impl Checked {
    /// Logs the result.
    pub(crate) fn tell(&self) {
        let Statement { run, name, .. } = &self.statement;
        if self.signed {
            log::info!("`{name}` is sealed by the authority of run {run}: name, size and SHA-256 are right");
        } else {
            log::warn!(
                "the seal of `{name}` was not checked: the certificate of the authority of run {run} is not kept here; size and SHA-256 are as stated"
            );
        }
    }
}

/// Checks an archive of this size and digest against its seal, including the signature if the certificate is known.
pub(crate) fn check(
    seal: &Seal,
    size: u64,
    sha256: &str,
    certificate: Option<&(PathBuf, String)>,
) -> Result<Checked> {
    let statement = seal.statement()?;
    let verify = |(path, text): &(PathBuf, String)| seal.verify(text).at("with the certificate in", path);
    let signed = certificate.map(verify).transpose()?.is_some();
    if (size, sha256) != (statement.size, &statement.sha256) {
        bail!(
            "the archive is not the one that was sealed as `{}`: it has {size} bytes with SHA-256 {sha256}, the seal is for {} bytes \
             with {}",
            statement.name,
            statement.size,
            statement.sha256
        );
    }
    Ok(Checked { statement, signed })
}

/// Whether a seal, or a part of one, is next to an archive.
pub(crate) fn is_beside(archive: &Path) -> bool {
    layout::seal(archive).iter().any(|part| part.exists())
}

/// Checks a file against the seal next to it, with the certificate in `authority` or the stored one; checks only size
/// and digest without a certificate or if `digest_only`.
pub(crate) fn check_file(archive: &Path, authority: Option<&Path>, digest_only: bool) -> Result<Checked> {
    let [statement, signature] = layout::seal(archive);
    let part = |path: &Path, max| {
        small::read(path, max).with_context(|| {
            format!(
                "cannot read `{}`, a part of the seal that `sonobuoy retrieve` puts beside the archive",
                path.display()
            )
        })
    };
    let seal = Seal {
        statement: part(&statement, MAX_STATEMENT_BYTES)?,
        signature: if digest_only { Vec::new() } else { part(&signature, MAX_SIGNATURE_BYTES)? },
    };
    let run = seal.statement()?.run;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    if let Some(own) = layout::run_of_archive(&name).filter(|own| *own != run) {
        bail!("the archive is named after run {own}, and the seal beside it is for run {run}");
    }
    let certificate = match authority {
        _ if digest_only => None,
        Some(path) => Some((path.to_owned(), read(path).at("cannot read", path)?)),
        None => Authorities::of_user().ok().and_then(|kept| kept.of(&run)),
    };
    let size = archive.metadata().at("cannot read", archive)?.len();
    let sha256 = base::hex(base::file_sha256(archive).at("cannot read", archive)?);
    check(&seal, size, &sha256, certificate.as_ref())
}

const FOLDER: &str = "authorities";
/// Time for an aggregator to start if its node has the image.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two looks for a certificate; the scheduler places a pod within one.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of one attempt to read a certificate, including the connection.
const LEARN_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a certificate file.
const MAX_CERTIFICATE_BYTES: u64 = 64 << 10;

/// The stored certificates.
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
        let kept = base::found(read(&path)).at("cannot read", &path)?;
        match kept.as_deref() {
            None | Some("") => {}
            Some(kept) if kept == certificate => return Ok(()),
            Some(_) => bail!(
                "the run's authority is not the one that was kept in `{}` when it began",
                path.display()
            ),
        }
        let write = || {
            sys::dir_builder(0o700).recursive(true).create(&self.folder)?;
            let mut file = NewFile::create(&path, 0o600)?;
            file.write_all(certificate.as_bytes())?;
            file.commit(kept.is_some())
        };
        write().at("cannot keep the authority's certificate in", &path)
    }

    /// Stores the certificate of a run that was just started: its aggregator publishes it at startup. The wait is
    /// short, since later calls look for it again.
    pub(crate) fn learn_soon(&self, client: &Client, namespace: &str) {
        let client = client.once(LEARN_TIMEOUT);
        let end = Instant::now() + START_TIMEOUT;
        while !self.learn(&client, namespace) && Instant::now() < end && !client.stop().wait(LOOK_INTERVAL) {
            let pod = state::find(&client, namespace).ok().flatten();
            if !pod.is_some_and(|pod| pod["spec"]["nodeName"].is_string()) {
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

/// Reads a certificate.
fn read(path: &Path) -> io::Result<String> {
    small::read(path, MAX_CERTIFICATE_BYTES).and_then(small::text)
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
