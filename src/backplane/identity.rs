//! A certificate with its key, and whose it is.

use rustls::pki_types::CertificateDer;

/// What stands before a plugin's name in the URI that identifies it.
pub(super) const PLUGIN_URI: &str = "sonobuoy://plugin/";

/// One certificate and its private key, both PEM; the key is SEC1, which workers written in Go insist on.
#[derive(Clone)]
pub struct Identity {
    /// The certificate alone, without its authority.
    pub cert_pem: String,
    /// The private key, `EC PRIVATE KEY`.
    pub key_pem: String,
}

/// The plugin to which a client certificate belongs: what its one URI says, else its one DNS name. The second is
/// for certificates that another program had signed by the same authority.
pub(crate) fn plugin_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut uris = parsed.valid_uri_names();
    if let Some(uri) = uris.next() {
        return match uris.next() {
            None => unescape(uri.strip_prefix(PLUGIN_URI)?),
            Some(_) => None,
        };
    }
    let mut names = parsed.valid_dns_names();
    let name = names.next()?;
    names.next().is_none().then(|| name.to_owned())
}

/// Writes a plugin's name so that it can stand in a URI.
pub(super) fn escape(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (&[high, low], after) = rest.split_first_chunk::<2>()?;
            rest = after;
            let digit = |byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            out.push(digit(high)? << 4 | digit(low)?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok().filter(|name| !name.is_empty())
}
