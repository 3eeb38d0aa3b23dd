//! Finds certificate authorities in the order of Go programs, so that a machine configured for one of them works here, too.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::small;
use crate::sys::variable;

/// Bundles of distributions, to which administrators add their own authorities.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Maximum bytes of a certificate file; the bundle of a distribution has 250 KB.
const MAX_BYTES: u64 = 16 << 20;

/// The authorities in `$SSL_CERT_FILE`, else in the distribution's bundle, and those in the folders of `$SSL_CERT_DIR`.
///
/// Empty if the system has no bundle, as in an empty container: the built-in public ones apply then.
pub fn authorities() -> Result<Vec<CertificateDer<'static>>> {
    let folders: Vec<PathBuf> =
        variable("SSL_CERT_DIR").map_or_else(Vec::new, |folders| std::env::split_paths(&folders).collect());
    among(variable("SSL_CERT_FILE").map(PathBuf::from).as_deref(), &BUNDLES.map(Path::new), &folders)
}

/// The authorities in `$SSL_CERT_FILE` as PEM, without other content of the file; empty without the variable.
pub fn named() -> Result<String> {
    let Some(path) = variable("SSL_CERT_FILE") else { return Ok(String::new()) };
    let found = among(Some(Path::new(&path)), &[], &[])?;
    Ok(found.iter().map(|found| super::pem("CERTIFICATE", found)).collect())
}

fn among(
    named: Option<&Path>,
    bundles: &[&Path],
    folders: &[PathBuf],
) -> Result<Vec<CertificateDer<'static>>> {
    let mut found = match named {
        // If a file is named, it must exist: falling back to the bundle would hide a typo.
        Some(path) => {
            let shown = || format!("certificates in `{}` (SSL_CERT_FILE)", path.display());
            let pem = small::read(path, MAX_BYTES).with_context(shown)?;
            let found = certificates(&pem).with_context(shown)?;
            ensure!(!found.is_empty(), "{}: it contains none; the file must be PEM", shown());
            found
        }
        None => bundles.iter().find_map(|path| readable(path)).unwrap_or_default(),
    };
    let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    found.extend(files.filter_map(|file| readable(&file.path())).flatten());
    Ok(found)
}

fn readable(path: &Path) -> Option<Vec<CertificateDer<'static>>> {
    certificates(&small::read_regular(path, MAX_BYTES).ok()?).ok().filter(|found| !found.is_empty())
}

/// The certificates of a PEM text.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    #[test]
    fn named_file_precedes_bundles_and_folders_add_to_it() {
        let scratch = crate::temp::Folder::new().unwrap();
        let path = |name: &str| scratch.join(name);
        fs::create_dir_all(path("folder")).unwrap();
        fs::write(path("bundle"), ONE.repeat(2)).unwrap();
        fs::write(path("other"), ONE).unwrap();
        fs::write(path("empty"), "").unwrap();
        fs::write(path("folder/a.pem"), ONE.repeat(4)).unwrap();
        fs::write(path("folder/README"), "no certificate").unwrap();
        let (absent, empty, bundle, other) = (path("absent"), path("empty"), path("bundle"), path("other"));
        let bundles: [&Path; 4] = [&absent, &empty, &bundle, &other];
        let folders = [path("folder"), path("absent")];
        let count = |named: Option<&Path>, bundles: &[&Path], folders: &[PathBuf]| {
            among(named, bundles, folders).map(|found| found.len()).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(count(None, &bundles, &[]), Ok(2));
        assert_eq!(count(Some(&other), &bundles, &[]), Ok(1));
        assert_eq!(count(Some(&other), &bundles, &folders), Ok(5));
        assert_eq!(count(None, &[], &folders), Ok(4));
        assert_eq!(count(None, &[], &[]), Ok(0), "an empty container");
        let endless = PathBuf::from(if cfg!(unix) { "/dev/zero" } else { "absent" });
        for wrong in [&absent, &empty, &endless] {
            let error = count(Some(wrong), &bundles, &folders).unwrap_err();
            assert!(error.contains("SSL_CERT_FILE") && error.contains(wrong.to_str().unwrap()), "{error}");
        }
    }
}
