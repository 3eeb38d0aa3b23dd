//! Settings of TLS for connections to other servers: trust of this machine or of a kubeconfig, the
//! client's certificate; and the error messages for missing trust.
//!
//! Opens no connection. Starts no thread.

#[cfg(feature = "program")]
mod client;

#[cfg(feature = "program")]
pub use client::server_name;
#[cfg(feature = "program")]
pub use client::{Identity, Trust, client_config, named};

/// The TLS error behind a failed request, wherever the HTTP client has put it.
pub fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// The error of a connection that the dialer could not open.
#[cfg(feature = "program")]
pub fn unwrapped(unconnected: Box<dyn std::error::Error + Send + Sync>) -> std::io::Error {
    unconnected
        .downcast()
        .map_or_else(std::io::Error::other, |error| *error)
}

/// The error of a request, with a remedy if the server's certificate is not trusted or the server
/// does not speak TLS.
#[cfg(feature = "program")]
pub fn explained(mut error: ureq::Error) -> anyhow::Error {
    use rustls::{CertificateError::UnknownIssuer, Error};
    if let ureq::Error::Other(unconnected) = error {
        error = ureq::Error::Io(unwrapped(unconnected));
    }
    let remedy = match tls_error(&error) {
        Some(Error::InvalidCertificate(UnknownIssuer)) => {
            "the server's certificate is signed by an unknown authority; set SSL_CERT_FILE to a \
             PEM file with that authority"
        }
        Some(Error::InvalidMessage(_)) => "the server does not speak TLS",
        // An error of a crate below rustls, whose message is only this name.
        Some(why) if why.to_string().contains("CaUsedAsEndEntity") => {
            "the server's certificate is that of an authority (CA:TRUE), as `openssl req -x509` \
             makes it; give the server one with `basicConstraints=CA:FALSE`"
        }
        Some(_) => return error.into(),
        None => {
            // Its prefix names a layer and no cause.
            return match error {
                ureq::Error::Io(error) => error.into(),
                other => other.into(),
            };
        }
    };
    anyhow::Error::new(error).context(remedy)
}

/// Whether a request failed because the two sides do not trust each other, which no retry changes.
#[cfg(feature = "program")]
pub fn is_distrust(error: &anyhow::Error) -> bool {
    error
        .downcast_ref()
        .is_some_and(|error| tls_error(error).is_some())
}

/// What precedes the 65 bytes of an uncompressed point in the description of a P-256 key.
pub const P256_KEY: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Wraps DER bytes as one PEM block.
pub fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let mut lines = base64::engine::general_purpose::STANDARD.encode(der);
    for end in (1..=lines.len().div_ceil(64)).rev() {
        lines.insert(lines.len().min(end * 64), '\n');
    }
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}
