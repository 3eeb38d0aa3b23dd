//! Certificates of a run, and the TLS settings of both sides.
//!
//! Owns who is who: every run has its own authority, which signs one certificate for the aggregator and one for
//! each plugin; a plugin's name stands in its certificate. Knows nothing of HTTP, routes or results. Starts no
//! thread.
//!
//! The client's half (`Credentials`) compiles without the command line; making certificates and serving needs it.

#[cfg(feature = "cli")]
mod authority;
mod credentials;
#[cfg(feature = "cli")]
mod der;
#[cfg(feature = "cli")]
mod identity;
#[cfg(feature = "cli")]
mod server;
#[cfg(all(test, feature = "cli"))]
mod tests;

#[cfg(feature = "cli")]
pub use authority::Authority;
pub use credentials::Credentials;
#[cfg(feature = "cli")]
pub use identity::{Identity, plugin_of};
#[cfg(feature = "cli")]
pub use server::server_config;

/// Wraps DER bytes as one PEM block.
fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for start in (0..text.len()).step_by(64) {
        out.push_str(&text[start..text.len().min(start + 64)]);
        out.push('\n');
    }
    out.push_str("-----END ");
    out.push_str(label);
    out.push_str("-----\n");
    out
}
