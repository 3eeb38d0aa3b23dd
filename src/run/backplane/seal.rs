//! The seal of an archive: a statement of its name, size and digest, signed by the authority of its
//! run.
//!
//! The statement is a file for `sha256sum -c`, the signature one for `openssl dgst -sha256
//! -verify`. Owns both formats; parses untrusted ones. Opens no file. Starts no thread.
//!
//! Unless the configuration names the run, its identifier is derived from the authority's key. The
//! name of its archive then says which authority may have sealed it.

use anyhow::{Context as _, ensure};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::der;
use base::sha256;
use base::tls::pem;

/// Maximum bytes of a statement.
pub const MAX_STATEMENT_BYTES: u64 = 4 << 10;
/// Maximum bytes of a signature, including those of other kinds of keys.
pub const MAX_SIGNATURE_BYTES: u64 = 1 << 10;

/// Prefixes of the lines of a statement.
const HEAD: &str = "# archive of a Sonobuoy run, sealed by the authority of that run\n# run ";
const SIZE: &str = "\n# size ";

/// Identity and digest of an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The UUID of the run.
    pub run: String,
    /// The original name of the archive, without folder.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
}

/// The contents of the files for a statement and its signature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seal {
    /// The text of the statement.
    pub statement: Vec<u8>,
    /// The signature, ECDSA in DER.
    pub signature: Vec<u8>,
}

impl Statement {
    /// The signed text.
    pub fn to_text(&self) -> String {
        let Self {
            run,
            name,
            size,
            sha256,
        } = self;
        format!("{HEAD}{run}{SIZE}{size}\n{sha256}  {name}\n")
    }

    /// Reads exactly the output of [`Statement::to_text`]; rejects any ambiguous text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (run, rest) = text.strip_prefix(HEAD)?.split_once(SIZE)?;
        let (size, rest) = rest.split_once('\n')?;
        let (sha256, name) = rest.strip_suffix('\n')?.split_once("  ")?;
        let word =
            |text: &str| !text.is_empty() && text.chars().all(|c| !c.is_control() && c != ' ');
        let digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (run, name, sha256) = (run.to_owned(), name.to_owned(), sha256.to_owned());
        let read = Self {
            run,
            name,
            size: size.parse().ok()?,
            sha256,
        };
        // One statement has one text, so that a signature covers what is read here and nothing
        // else: `+12` as a size, for example, would parse as well.
        (word(&read.run) && word(&read.name) && digest && read.to_text() == text).then_some(read)
    }
}

impl Seal {
    /// The statement, without verifying its signature.
    pub fn statement(&self) -> anyhow::Result<Statement> {
        Statement::parse(&self.statement)
            .context("the seal is damaged: it does not describe an archive")
    }

    /// Verifies the statement's signature with this authority's certificate, and that a run whose
    /// identifier is derived from a key has this one. Ignores the certificate's expiry, since
    /// archives are kept for years.
    pub fn verify(&self, certificate: &str) -> anyhow::Result<()> {
        let key = public_key(certificate).context("the authority's certificate cannot be read")?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
            .verify(&self.statement, &self.signature)
            .ok()
            .context("the seal is not that of this run's authority, or it is damaged")?;
        ensure_authority(&self.statement()?.run, certificate)
    }
}

/// Fails if `run` is derived from another key than that of the certificate. The identifiers of
/// other runs say nothing about their authorities.
pub fn ensure_authority(run: &str, certificate: &str) -> anyhow::Result<()> {
    ensure!(
        !is_derived(run) || run_of_authority(certificate)? == run,
        "the certificate is not that of run {run}: its identifier is derived from another key"
    );
    Ok(())
}

/// The identifier of a run that is derived from the key in its authority's certificate.
fn run_of_authority(certificate: &str) -> anyhow::Result<String> {
    public_key(certificate).map(|key| run_of_key(&key))
}

/// A UUID of version 8: the first bits of the SHA-256 of a public key.
pub(super) fn run_of_key(public_key: &[u8]) -> String {
    let digest = sha256(public_key);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest.as_ref()[..16]);
    // Version 8, whose other bits have a meaning of the application, and the variant of RFC 9562.
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let digits = base::hex(uuid);
    let part = |from: usize, to: usize| &digits[from..to];
    [
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32),
    ]
    .join("-")
}

/// Whether the identifier of a run is a UUID of version 8. Runs of the original have version 4.
pub fn is_derived(run: &str) -> bool {
    let is_digit = |digit: char| matches!(digit, '0'..='9' | 'a'..='f');
    let lengths = run.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12])
        && run.chars().all(|c| c == '-' || is_digit(c))
        && run[14..].starts_with('8')
        && run[19..].starts_with(['8', '9', 'a', 'b'])
}

/// The first certificate of a PEM text, in PEM without anything else.
pub fn certificate_in(text: &str) -> anyhow::Result<String> {
    let certificate = CertificateDer::from_pem_slice(text.as_bytes())?;
    Ok(pem("CERTIFICATE", &certificate))
}

/// The point of the key in the first certificate of a PEM text.
pub(super) fn public_key(certificate: &str) -> anyhow::Result<Vec<u8>> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let anchor = webpki::anchor_from_trusted_cert(&certificate)?;
    let mut info = anchor.subject_public_key_info.as_ref();
    let point =
        der::expect(&mut info, der::SEQUENCE).and_then(|_| der::expect(&mut info, der::BIT_STRING));
    // The first byte is the number of unused bits.
    let point = point
        .and_then(|bits| bits.strip_prefix(&[0]))
        .context("it contains no key")?;
    Ok(point.to_vec())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backplane::Authority;

    fn statement() -> Statement {
        Statement {
            run: "11111111-2222-4333-8444-555555555555".into(),
            name: "202401010000_sonobuoy_11111111-2222-4333-8444-555555555555.tar.gz".into(),
            size: 12_345,
            sha256: "0123456789abcdef".repeat(4),
        }
    }

    fn authority() -> Authority {
        Authority::new(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn seal_is_valid_for_its_authority_alone() {
        let (own, other) = (authority(), authority());
        let seal = own.seal(&statement()).unwrap();
        assert_eq!(seal.statement().unwrap(), statement());
        seal.verify(&own.certificate_pem()).unwrap();
        let again = Authority::from_pem(&own.to_pem())
            .unwrap()
            .seal(&statement())
            .unwrap();
        again.verify(&own.certificate_pem()).unwrap();
        let error = seal
            .verify(&other.certificate_pem())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("is not that of this run's authority"),
            "{error}"
        );
        for wrong in [
            "",
            "nonsense",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let error = seal.verify(wrong).unwrap_err().to_string();
            assert!(
                error.contains("certificate cannot be read"),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn identifier_derived_from_a_key_names_its_authority() {
        let (own, other) = (authority(), authority());
        let run = own.run();
        assert!(is_derived(&run), "{run}");
        assert_eq!(run_of_authority(&own.certificate_pem()).unwrap(), run);
        assert_eq!(Authority::from_pem(&own.to_pem()).unwrap().run(), run);
        assert_ne!(other.run(), run);
        let of_run = Statement {
            run: run.clone(),
            ..statement()
        };
        own.seal(&of_run)
            .unwrap()
            .verify(&own.certificate_pem())
            .unwrap();
        // Another authority signs correctly, but the run is not its own.
        let forged = other
            .seal(&of_run)
            .unwrap()
            .verify(&other.certificate_pem());
        let error = forged.unwrap_err().to_string();
        assert!(error.contains("is derived from another key"), "{error}");
        for free in [
            "",
            "static",
            "11111111-2222-4333-8444-555555555555",
            &run.to_uppercase(),
        ] {
            assert!(!is_derived(free), "{free}");
            ensure_authority(free, &other.certificate_pem()).unwrap();
        }
    }

    #[test]
    fn every_changed_bit_and_truncation_is_detected() {
        let own = authority();
        let (certificate, seal) = (own.certificate_pem(), own.seal(&statement()).unwrap());
        for at in 0..seal.statement.len() * 8 {
            let mut wrong = seal.clone();
            wrong.statement[at / 8] ^= 1 << (at % 8);
            assert!(
                wrong.verify(&certificate).is_err(),
                "bit {at} of the statement"
            );
            assert_ne!(
                wrong.statement().ok(),
                Some(statement()),
                "bit {at} of the statement"
            );
        }
        for at in 0..seal.signature.len() * 8 {
            let mut wrong = seal.clone();
            wrong.signature[at / 8] ^= 1 << (at % 8);
            assert!(
                wrong.verify(&certificate).is_err(),
                "bit {at} of the signature"
            );
        }
        for end in 0..seal.signature.len() {
            let cut = Seal {
                signature: seal.signature[..end].to_vec(),
                ..seal.clone()
            };
            assert!(
                cut.verify(&certificate).is_err(),
                "a signature of {end} bytes"
            );
        }
        let longer = Seal {
            signature: [&seal.signature[..], &[0]].concat(),
            ..seal
        };
        assert!(longer.verify(&certificate).is_err());
    }

    #[test]
    fn statement_is_unambiguous() {
        let text = statement().to_text();
        assert_eq!(Statement::parse(text.as_bytes()), Some(statement()));
        let swap = |from: &str, to: &str| text.replacen(from, to, 1);
        for wrong in [
            String::new(),
            swap("# size 12345", "# size 012345"),
            swap("# size 12345", "# size +12345"),
            swap("# size 12345", "# size -1"),
            swap("# size 12345", "# size 99999999999999999999"),
            swap("0123456789abcdef", "0123456789abcdeg"),
            swap("0123456789abcdef", "0123456789abcde"),
            swap("  2024", " 2024"),
            swap("  2024", "   2024"),
            swap(".tar.gz\n", ".tar.gz"),
            swap(".tar.gz\n", ".tar.gz\n\n"),
            swap(".tar.gz\n", ".tar.gz\r\n"),
            swap("# run 1", "# run \n1"),
            format!("{text}{text}"),
        ] {
            assert_eq!(Statement::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(Statement::parse(&[0xff; 40]), None);
    }
}
