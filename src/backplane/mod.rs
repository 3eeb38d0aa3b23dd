//! Certificates of a run, and the TLS settings of both sides.
//!
//! Owns who is who: every run has its own authority, which signs one certificate for the aggregator and one for
//! each plugin; a plugin's name stands in its certificate. Knows nothing of HTTP, routes or results. Starts no
//! thread.

mod authority;
mod der;
mod identity;
mod server;
#[cfg(test)]
mod tests;

pub use authority::Authority;
pub use identity::Identity;
pub(crate) use identity::plugin_of;
pub use server::server_config;
