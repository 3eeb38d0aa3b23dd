//! Generates a key that never leaves this process, and the request to certify it (PKCS #10).
//!
//! The request contains no name: the accompanying token determines the certificate's subject. ECDSA P-256.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

use super::Error;
use base::tls::{P256_KEY, pem};

/// Version 1 and an empty subject.
const VERSION_AND_SUBJECT: &[u8] = &[0x02, 0x01, 0x00, 0x30, 0x00];
const NO_ATTRIBUTES: &[u8] = &[0xa0, 0x00];
const ECDSA_WITH_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// This process's key, and the request for its certificate.
pub(super) struct Key {
    /// PKCS #8, PEM.
    pub(super) key_pem: String,
    /// The request to post, PEM.
    pub(super) request_pem: String,
}

impl Key {
    /// Generates a new key.
    pub(super) fn new() -> Result<Self, Error> {
        let random = SystemRandom::new();
        let wrong = |what: &dyn std::fmt::Display| Error::Settings(format!("cannot generate a key: {what}"));
        let der =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(|e| wrong(&e))?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.as_ref(), &random)
            .map_err(|e| wrong(&e))?;
        let public = key.public_key().as_ref();
        let named = element(SEQUENCE, &[VERSION_AND_SUBJECT, P256_KEY, public, NO_ATTRIBUTES]);
        let signature = key.sign(&random, &named).map_err(|e| wrong(&e))?;
        let proof = element(BIT_STRING, &[&[0], signature.as_ref()]);
        let request = element(SEQUENCE, &[&named, ECDSA_WITH_SHA256, &proof]);
        Ok(Self {
            key_pem: pem("PRIVATE KEY", der.as_ref()),
            request_pem: pem("CERTIFICATE REQUEST", &request),
        })
    }
}

/// Encodes one DER element of at most 255 bytes.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
    let mut out = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
    out.extend(content);
    out
}
