//! Checks an archive against its seal, and the seal against its run.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::authority::Authorities;
use crate::backplane::{MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal, Statement};
use crate::layout;
use base::at::At as _;
use base::small;

/// Result of a successful check.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        Some(path) => Some((path.to_owned(), super::authority::read(path)?)),
        None => Authorities::of_user().ok().and_then(|kept| kept.of(&run)),
    };
    let size = archive.metadata().at("cannot read", archive)?.len();
    let sha256 = base::hex(base::file_sha256(archive).at("cannot read", archive)?);
    check(&seal, size, &sha256, certificate.as_ref())
}
