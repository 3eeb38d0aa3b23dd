//! Certificates of a run, and the TLS settings of both sides.
//!
//! Owns identities: every run has a separate authority, which signs the certificates of the aggregator and its workers, and
//! seals the archive. A worker's certificate determines the results that it may send:
//!
//! | its URI | made | may send |
//! | --- | --- | --- |
//! | `sonobuoy://plugin/P/node/N` | for a key that never leaves the worker: it asks over TLS with a [`SigningRequest`] and proves by a token which pod it is; short-lived | the result of plugin P on node N (`global` for the cluster) |
//! | `sonobuoy://plugin/P` | with its key by the aggregator, where workers cannot ask: they are the original's, or tokens may not be reviewed | all results of plugin P |
//!
//! A client without a certificate is a guest, admitted by [`open_server_config`] only to request one. Callers review tokens.
//! Knows nothing about HTTP and routes. Starts no thread.

mod authority;
mod der;
mod identity;
mod request;
mod seal;
mod server;
#[cfg(test)]
mod tests;

pub use authority::Authority;
pub(crate) use authority::not_after;
pub(crate) use identity::Caller;
pub use identity::Identity;
pub(crate) use identity::plugin_of;
pub use request::SigningRequest;
pub(crate) use seal::{MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal, Statement};
pub(crate) use server::open_server_config;
pub use server::server_config;
