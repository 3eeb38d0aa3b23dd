//! The Kubernetes API: a small blocking client on top of ureq.
//!
//! Owns finding the server and authenticating ([`Config`]), requests as pure values ([`Request`]),
//! lists in pages, watches that resume, logs, exec, discovery. Knows kinds of objects only by their
//! paths, and nothing about the rest of this project. Starts no thread: every call blocks, and ends
//! with the client's [`Stop`](base::stop::Stop).
//!
//! ```text
//! kubeconfig        how to reach it
//! request, error    pure values
//! client            sends, retries
//! list_watch, delay, exec, discovery
//! ```

mod client;
mod delay;
mod discovery;
mod error;
mod exec;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod kubeconfig;
mod list_watch;
mod request;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_reach;

pub use base::tls::{Identity, Trust, client_config};
pub use client::{Client, sent_requests};
pub use delay::{Delay, is_delayed};
pub use discovery::{Discovery, Kind, Rules};
pub use error::{Error, Obstacle, Stage};
pub use exec::Exit;
pub use kubeconfig::{Config, Options};
pub use list_watch::{Event, forget_managers};
pub use request::{Method, Object, Request, Resource, Selector};
