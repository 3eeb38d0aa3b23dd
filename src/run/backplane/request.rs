//! A certificate request (PKCS #10), reduced to the key and the proof that its sender holds it.
//!
//! Ignores the names in it: the sender's identity determines the certificate's content. Hostile
//! input; keys other than ECDSA P-256 are rejected.

use anyhow::{Context as _, ensure};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;

use super::der;
use base::tls::P256_KEY;

/// ecdsa-with-SHA256.
const ECDSA_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// A key to be certified.
#[derive(Debug)]
pub struct SigningRequest {
    /// The uncompressed point.
    key: Vec<u8>,
}

impl SigningRequest {
    /// Reads a request in PEM and checks its signature.
    pub fn from_pem(text: &[u8]) -> anyhow::Result<Self> {
        let request = CertificateSigningRequestDer::from_pem_slice(text)
            .ok()
            .context("the body is not a PEM certificate request (`CERTIFICATE REQUEST`)")?;
        let [signed, key, algorithm, signature] =
            parts(&request).context("the certificate request is damaged")?;
        let key = key
            .strip_prefix(P256_KEY)
            .filter(|key| key.len() == 65 && key[0] == 4);
        let key = key.context("the certificate request contains a key other than ECDSA P-256")?;
        ensure!(
            algorithm == ECDSA_SHA256,
            "the certificate request is not signed with ECDSA and SHA-256"
        );
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
            .verify(signed, signature)
            .ok()
            .context("the certificate request is not signed with its own key")?;
        Ok(Self { key: key.to_vec() })
    }
}

impl rcgen::PublicKeyData for SigningRequest {
    fn der_bytes(&self) -> &[u8] {
        &self.key
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// The signed part of a request, the key in it, the algorithm of the signature, and the signature.
fn parts(whole: &[u8]) -> Option<[&[u8]; 4]> {
    let mut rest = whole;
    let mut parts = der::expect(&mut rest, der::SEQUENCE).filter(|_| rest.is_empty())?;
    let signed = der::signed_element(&mut parts)?;
    let algorithm = der::expect(&mut parts, der::SEQUENCE)?;
    let signature = der::expect(&mut parts, der::BIT_STRING).filter(|_| parts.is_empty())?;
    let mut fields = der::expect(&mut &*signed, der::SEQUENCE)?;
    // Version and subject; then the key.
    der::expect(&mut fields, der::INTEGER)?;
    der::expect(&mut fields, der::SEQUENCE)?;
    let key = der::signed_element(&mut fields)?;
    Some([signed, key, algorithm, signature.strip_prefix(&[0])?])
}

#[cfg(test)]
mod tests {
    use base::tls::pem;

    use super::*;

    fn request(params: rcgen::CertificateParams, key: &rcgen::KeyPair) -> Vec<u8> {
        params.serialize_request(key).unwrap().der().to_vec()
    }

    fn read(der: &[u8]) -> anyhow::Result<SigningRequest> {
        SigningRequest::from_pem(pem("CERTIFICATE REQUEST", der).as_bytes())
    }

    #[test]
    fn key_of_a_request_is_read_beside_any_names() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let named = rcgen::CertificateParams::new(["kubernetes.default".to_owned()]).unwrap();
        for params in [rcgen::CertificateParams::default(), named] {
            assert_eq!(
                read(&request(params, &key)).unwrap().key,
                key.public_key_raw()
            );
        }
    }

    #[test]
    fn invalid_request_is_refused_with_reason() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let good = request(rcgen::CertificateParams::default(), &key);
        let mut forged = good.clone();
        *forged.last_mut().unwrap() ^= 1;
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let other = request(rcgen::CertificateParams::default(), &other);
        let longer = [good.as_slice(), &[0]].concat();
        for (der, words) in [
            (&forged[..], "not signed with its own key"),
            (&other, "other than ECDSA P-256"),
            (&good[..good.len() - 1], "damaged"),
            (&longer, "damaged"),
            (&[], "damaged"),
            (&[0x30, 0x00], "damaged"),
        ] {
            let error = read(der).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        for text in ["", "no request", &pem("CERTIFICATE", &good)] {
            let error = SigningRequest::from_pem(text.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains("not a PEM certificate request"), "{error}");
        }
    }

    #[test]
    fn truncated_or_changed_request_is_an_error() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let good = request(rcgen::CertificateParams::default(), &key);
        for at in 0..good.len() {
            read(&good[..at]).unwrap_err();
            let mut changed = good.clone();
            changed[at] ^= 0x55;
            read(&changed).unwrap_err();
        }
    }
}
