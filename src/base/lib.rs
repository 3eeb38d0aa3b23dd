//! A toolkit of files, time, threads and text, which knows nothing about Kubernetes or Sonobuoy.
//!
//! Reusable by any program. Modules import only downwards in the layers of the map in the program's
//! `lib.rs`. The feature `program` adds parts that the client for plugins does not need.

#[cfg(feature = "program")]
pub mod at;
#[cfg(feature = "program")]
pub mod dial;
#[cfg(feature = "program")]
pub mod fair;
#[cfg(feature = "program")]
pub mod fetch;
#[cfg(feature = "program")]
pub mod live;
#[cfg(feature = "program")]
pub mod logger;
#[cfg(feature = "program")]
pub mod near;
#[cfg(feature = "program")]
pub mod openmetrics;
#[cfg(feature = "program")]
pub mod pattern;
#[cfg(feature = "program")]
pub mod proxy;
#[cfg(feature = "program")]
pub mod workflow;
#[cfg(feature = "program")]
pub mod xml;

pub mod ahead;
pub mod archive;
pub mod clock;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod hex;
mod joined;
pub mod json;
pub mod quota;
pub mod retry;
pub mod small;
pub mod stop;
pub mod sys;
pub mod temp;
#[doc(hidden)]
pub mod testing;
mod threads;
pub mod tls;
pub mod visible;
pub mod words;

pub use hex::{Hashing, digest, file_sha256, hex, percent_decoded, percent_encoded, sha256};
pub use joined::Joined;
pub use small::if_exists;
pub use threads::{in_parallel, lock, thread};
