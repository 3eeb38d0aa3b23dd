//! Checks an archive against its seal, and the seal against its run: the only check, for every
//! command.
//!
//! Keeps the certificates of runs' authorities for that: one file for each run in the user's
//! directory, `~/.sonobuoy/authorities` or below `$SONOBUOY_DIR`, with the server from which it was
//! learned. A certificate is learned only for the run that this machine starts or retrieves, and
//! the first one is final. If the identifier of a run is derived from its authority's key, no other
//! can be learned.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::state;
use base::archive::{Gunzip, Limits, Reader};
use base::at::At as _;
use base::temp::NewFile;
use base::{small, sys, visible};
use kube::{self, Client, Resource, Trust};
use model::names::{AUTHORITY_KEY, AUTHORITY_MAP, RUN_KEY};
use model::{config, layout, plugin};
use run::backplane::{
    MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal, Statement, certificate_in, ensure_authority,
    is_derived,
};

/// Result of a successful check.
pub(crate) struct Checked {
    /// Content of the seal.
    pub statement: Statement,
    /// The certificate that verified the signature; none if the signature was not checked.
    pub authority: Option<KnownAuthority>,
}

impl Checked {
    /// Logs the result.
    pub(crate) fn log(&self) {
        let Statement { run, name, .. } = &self.statement;
        match &self.authority {
            Some(authority) => log::info!(
                "`{name}` is sealed by the authority of run {run} ({}): name, size and SHA-256 \
                 are right",
                authority.origin()
            ),
            None => log::warn!(
                "the seal of `{name}` was not checked: the certificate of the authority of run \
                 {run} is not kept here; size and SHA-256 are as stated"
            ),
        }
    }
}

/// An archive to be checked.
pub(crate) struct SealedFile<'a> {
    /// The name that it has, or with which it was sent.
    pub name: &'a str,
    /// The file with its content.
    pub path: &'a Path,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
}

impl SealedFile<'_> {
    /// The run of the archive: the one in its name, else the one in its content.
    pub(crate) fn run(&self) -> Option<String> {
        let named = layout::run_of_archive(self.name).map(str::to_owned);
        named.or_else(|| run_in_content(self.path).ok().flatten())
    }
}

/// Checks an archive against its seal: its run, size and digest, and the signature if the authority
/// is known.
pub(crate) fn check(
    seal: &Seal,
    file: &SealedFile,
    authority: Option<KnownAuthority>,
) -> Result<Checked> {
    let statement = seal.statement()?;
    if let Some(run) = layout::run_of_archive(file.name) {
        ensure!(
            run == statement.run,
            "the archive is named after run {run}, and the seal beside it is for run {}",
            statement.run
        );
    }
    if let Some(authority) = &authority {
        seal.verify(&authority.certificate).with_context(|| {
            format!(
                "with the certificate in `{}`, {}",
                authority.path.display(),
                authority.origin()
            )
        })?;
    }
    if (file.size, &file.sha256) != (statement.size, &statement.sha256) {
        bail!(
            "the archive is not the one that was sealed as `{}`: it has {} bytes with SHA-256 {}, \
             the seal is for {} bytes with {}",
            statement.name,
            file.size,
            file.sha256,
            statement.size,
            statement.sha256
        );
    }
    match file.run() {
        Some(run) if run == statement.run => Ok(Checked {
            statement,
            authority,
        }),
        Some(run) => bail!(
            "the archive contains the results of run {}, and the seal beside it is for run {}",
            visible::line(&run),
            statement.run
        ),
        None => bail!("neither the name nor the content of the archive says of which run it is"),
    }
}

/// The run in the settings that an archive contains.
fn run_in_content(path: &Path) -> Result<Option<String>> {
    let mut reader = Reader::new(
        Gunzip::new(BufReader::new(File::open(path)?)),
        Limits::default(),
    );
    while let Some(entry) = reader.next_entry()? {
        let name = entry.name.strip_prefix(b"./").unwrap_or(&entry.name);
        if name != layout::CONFIG.as_bytes() {
            continue;
        }
        let mut text = Vec::new();
        (&mut reader)
            .take(MAX_CONFIG_BYTES)
            .read_to_end(&mut text)?;
        let settings: serde_json::Value = serde_json::from_slice(&text)?;
        return Ok(settings["UUID"].as_str().map(str::to_owned));
    }
    Ok(None)
}

/// Whether a seal, or a part of one, is next to an archive.
pub(crate) fn is_beside(archive: &Path) -> bool {
    layout::seal(archive).iter().any(|part| part.exists())
}

/// Checks a file against the seal next to it, with the certificate in `authority` or the stored
/// one; checks only size and digest without a certificate or if `digest_only`.
pub(crate) fn check_file(
    archive: &Path,
    authority: Option<&Path>,
    digest_only: bool,
) -> Result<Checked> {
    let [statement, signature] = layout::seal(archive);
    let part = |path: &Path, max| {
        small::read(path, max).with_context(|| {
            format!(
                "cannot read `{}`, a part of the seal that `sonobuoy retrieve` puts beside the \
                 archive",
                path.display()
            )
        })
    };
    let seal = Seal {
        statement: part(&statement, MAX_STATEMENT_BYTES)?,
        signature: if digest_only {
            Vec::new()
        } else {
            part(&signature, MAX_SIGNATURE_BYTES)?
        },
    };
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let authority = match authority {
        _ if digest_only => None,
        Some(path) => Some(KnownAuthority::read(path).at("cannot read", path)?),
        None => Authorities::of_user()
            .ok()
            .and_then(|known| known.of(&seal.statement().ok()?.run)),
    };
    let file = SealedFile {
        name: &name,
        path: archive,
        size: archive.metadata().at("cannot read", archive)?.len(),
        sha256: base::hex(base::file_sha256(archive).at("cannot read", archive)?),
    };
    check(&seal, &file, authority)
}

const FOLDER: &str = "authorities";
/// Before the server from which a certificate was learned, in the first line of its file.
const LEARNED: &str = "# learned from ";
/// Time for an aggregator to start if its node has the image.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two looks for a certificate; the scheduler places a pod within one.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of one attempt to read a certificate, including the connection.
const LEARN_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of a certificate file.
const MAX_CERTIFICATE_BYTES: u64 = 64 << 10;
/// Maximum size of the settings of a run in its archive.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// The certificate of a run's authority, in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownAuthority {
    /// The file.
    pub path: PathBuf,
    /// The certificate, PEM.
    pub certificate: String,
    /// The server from which it was learned; none in files of other programs and older versions.
    pub server: Option<String>,
}

impl KnownAuthority {
    /// Reads a file, which is empty if an older version found the disk full.
    fn read(path: &Path) -> io::Result<Self> {
        let text = small::read(path, MAX_CERTIFICATE_BYTES).and_then(small::text)?;
        let server = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix(LEARNED))
            .map(visible::line);
        let server = server.map(|server| server.to_string());
        Ok(Self {
            path: path.to_owned(),
            certificate: text,
            server,
        })
    }

    /// Where the certificate comes from, for people.
    pub(crate) fn origin(&self) -> String {
        match &self.server {
            Some(server) => format!("learned from {server}"),
            None => format!("from `{}`", self.path.display()),
        }
    }
}

/// The stored certificates.
pub(crate) struct Authorities {
    folder: PathBuf,
}

impl Authorities {
    /// The user's certificates, if a directory for them is known.
    pub(crate) fn of_user() -> Result<Self> {
        Ok(Self {
            folder: plugin::user_folder()?.join(FOLDER),
        })
    }

    /// The authority of a run, if stored. An empty file counts as absent.
    pub(crate) fn of(&self, run: &str) -> Option<KnownAuthority> {
        let stored = KnownAuthority::read(&self.path(run)?).ok()?;
        (!stored.certificate.is_empty()).then_some(stored)
    }

    /// File of a run's certificate; none for a name that is a path.
    fn path(&self, run: &str) -> Option<PathBuf> {
        config::is_run(run).then(|| self.folder.join(format!("{run}.pem")))
    }

    /// Stores the certificate of a run that was learned from `server`. Fails if it cannot be that
    /// of the run, or if a different one is stored already.
    pub(crate) fn keep(&self, run: &str, certificate: &str, server: &str) -> Result<()> {
        let path = self
            .path(run)
            .with_context(|| format!("`{run}` cannot be the name of a run"))?;
        let certificate = certificate_in(certificate).with_context(|| {
            format!("the certificate of the authority of run {run} cannot be read")
        })?;
        ensure_authority(run, &certificate)?;
        if let Some(known) = self.of(run) {
            ensure!(
                certificate_in(&known.certificate).is_ok_and(|known| known == certificate),
                "{server} names another authority for run {run} than the one in `{}`, {}",
                path.display(),
                known.origin()
            );
            return Ok(());
        }
        let write = || {
            sys::dir_builder(0o700)
                .recursive(true)
                .create(&self.folder)?;
            let mut file = NewFile::create(&path, 0o600)?;
            write!(file, "{LEARNED}{}\n{certificate}", visible::line(server))?;
            // Replaces nothing but an empty file.
            file.commit(path.exists())
        };
        write().at("cannot keep the authority's certificate in", &path)
    }

    /// Stores the certificate of a run that was just started, as [`Self::learn`] does: its
    /// aggregator publishes it at startup. The wait is short, since `retrieve` looks for it
    /// again.
    pub(crate) fn learn_soon(
        &self,
        client: &Client,
        namespace: &str,
        run: Option<&str>,
    ) -> Option<String> {
        let client = client.once(LEARN_TIMEOUT);
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let learned = self.learn(&client, namespace, run);
            if learned.is_some() || Instant::now() >= end || client.stop().wait(LOOK_INTERVAL) {
                return learned;
            }
            let pod = state::find(&client, namespace).ok().flatten();
            if !pod.is_some_and(|pod| pod["spec"]["nodeName"].is_string()) {
                return None;
            }
        }
    }

    /// Stores the certificate of `run` if it is the one that is published in the namespace; returns
    /// the run whose certificate is stored now. If the aggregator chooses the identifier
    /// (`None`), it must be derived from the authority's key, so that the certificate cannot be
    /// that of another run. Never delays a command for long.
    pub(crate) fn learn(
        &self,
        client: &Client,
        namespace: &str,
        run: Option<&str>,
    ) -> Option<String> {
        let (published, certificate) = published(client, namespace)?;
        if run.map_or_else(|| !is_derived(&published), |run| run != published) {
            log::debug!("the authority of run {published} was not asked for, and is not kept");
            return None;
        }
        let stored = self.keep(&published, &certificate, &describe_server(client.config()));
        stored.inspect_err(|error| log::warn!("{error:#}")).ok()?;
        Some(published)
    }
}

/// The address of an API server, and whom it has to be certified by.
fn describe_server(config: &kube::Config) -> String {
    let server = &config.server;
    let authority = match &config.trust {
        _ if !server.starts_with("https:") => "not encrypted".to_owned(),
        Trust::System => "certified by an authority of this machine".to_owned(),
        Trust::Anybody => "whose certificate was not checked".to_owned(),
        Trust::Authorities(pem) => match CertificateDer::from_pem_slice(pem) {
            Ok(first) => {
                format!(
                    "certified by the authority with SHA-256 {}",
                    base::hex(base::sha256(&first))
                )
            }
            Err(_) => "certified by an unreadable authority".to_owned(),
        },
    };
    format!("{server} ({authority})")
}

/// Run and certificate published in the namespace. Older aggregators publish none.
fn published(client: &Client, namespace: &str) -> Option<(String, String)> {
    let client = client.once(LEARN_TIMEOUT);
    let map = client.get(&Resource::CONFIG_MAPS, namespace, AUTHORITY_MAP);
    let map = map
        .inspect_err(|error| log::debug!("the authority of the run is not known: {error}"))
        .ok()?;
    let text = |key: &str| map["data"][key].as_str().map(str::to_owned);
    let certificate =
        text(AUTHORITY_KEY).filter(|text| text.len() as u64 <= MAX_CERTIFICATE_BYTES / 2)?;
    Some((text(RUN_KEY)?, certificate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::backplane::Authority;

    fn authority() -> Authority {
        Authority::new(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn first_authority_is_kept_with_its_server() {
        let folder = base::temp::Folder::new().unwrap();
        let authorities = Authorities {
            folder: folder.join("a/b"),
        };
        let [first, second] =
            [authority(), authority()].map(|authority| authority.certificate_pem());
        assert_eq!(authorities.of("r"), None);
        authorities.keep("r", &first, "https://a").unwrap();
        authorities
            .keep(
                "r",
                &format!("# learned from https://b\n{first}"),
                "https://c",
            )
            .unwrap();
        let error = authorities
            .keep("r", &second, "https://b")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("https://b names another authority for run r"),
            "{error}"
        );
        assert!(error.ends_with("learned from https://a"), "{error}");
        let path = folder.join("a/b/r.pem");
        let known = authorities.of("r").unwrap();
        assert_eq!(
            (&known.path, known.server.as_deref()),
            (&path, Some("https://a"))
        );
        assert_eq!(certificate_in(&known.certificate).unwrap(), first);
        std::fs::write(&path, "").unwrap();
        assert_eq!(authorities.of("r"), None, "a full disk left nothing of it");
        authorities
            .keep("r", &first, "https://a\n# learned from https://b")
            .unwrap();
        let server = authorities.of("r").unwrap().server.unwrap();
        assert!(
            server.starts_with("https://a") && server.contains("https://b"),
            "{server}"
        );
        for run in ["", "../r", "a/b", ".r", "r\n", "r r", &"r".repeat(200)] {
            let kept = authorities.keep(run, &first, "https://a");
            assert!(kept.is_err() && authorities.of(run).is_none(), "{run:?}");
        }
        assert_eq!(std::fs::read_dir(folder.join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn derived_run_accepts_no_other_authority() {
        let folder = base::temp::Folder::new().unwrap();
        let authorities = Authorities {
            folder: folder.to_owned(),
        };
        let (own, other) = (authority(), authority());
        let error = authorities
            .keep(&own.run(), &other.certificate_pem(), "https://b")
            .unwrap_err();
        assert!(
            error.to_string().contains("is derived from another key"),
            "{error:#}"
        );
        assert_eq!(authorities.of(&own.run()), None);
        authorities
            .keep(&own.run(), &own.certificate_pem(), "https://a")
            .unwrap();
    }

    #[test]
    fn server_is_described_with_its_authority() {
        let certificate = authority().certificate_pem();
        let sha256 = base::hex(base::sha256(
            CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap(),
        ));
        let certified = format!("https://a (certified by the authority with SHA-256 {sha256})");
        for (server, trust, expected) in [
            (
                "https://a",
                Trust::Authorities(certificate.into_bytes()),
                &*certified,
            ),
            (
                "https://a",
                Trust::System,
                "https://a (certified by an authority of this machine)",
            ),
            (
                "https://a",
                Trust::Anybody,
                "https://a (whose certificate was not checked)",
            ),
            ("http://a", Trust::System, "http://a (not encrypted)"),
        ] {
            let config = kube::Config {
                server: server.into(),
                trust,
                ..kube::Config::default()
            };
            assert_eq!(describe_server(&config), expected);
        }
    }
}
