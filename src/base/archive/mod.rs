//! Gzip tars: packing a folder, and safely unpacking into one.
//!
//! Owns the container format, its dialects and all limits on hostile input. Does not know what the
//! files mean. Everything is streamed: memory does not grow with the archive.

#[cfg(any(fuzzing, test))]
mod fuzz;
mod pack;
mod read;
mod survey;
#[cfg(test)]
mod tests;
mod tree;
mod unpack;

use std::fmt;

/// Decompresses a gzip stream of one or more members.
pub use flate2::bufread::MultiGzDecoder as Gunzip;
#[cfg(any(fuzzing, test))]
pub use fuzz::consistent;
pub use pack::{PackError, Packed, bundle, finished, pack, pack_file, pack_live, pack_open};
pub use read::{Entry, Kind, Limits, Reader};
pub use survey::Survey;
pub use tree::TreeDigest;
pub use unpack::{Dropped, Unpacked, unpack, unpack_within};

/// Maximum depth of folders that are read, since each open one holds a descriptor: more than the
/// levels that are unpacked, so that a reader sees that an archive has too many.
const MAX_OPEN_LEVELS: usize = 300;

/// Why an archive could not be read; callers distinguish the sender's fault from their own.
#[derive(Debug)]
pub enum Error {
    /// It is not a gzip tar, or it is truncated or damaged: the sender's fault; sending it again
    /// may help.
    Malformed(String),
    /// It exceeds the [`Limits`].
    TooLarge(String),
    /// It could not be read from its disk or connection.
    Input(std::io::Error),
    /// One of its files could not be written; the error names the path.
    Output(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) | Self::TooLarge(reason) => f.write_str(reason),
            Self::Input(error) | Self::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
