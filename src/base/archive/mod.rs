//! Gzip tars: a folder packed into one, and one unpacked into a folder without harm.
//!
//! Owns the container format, its dialects and every limit on hostile input. Does not know what the files mean.
//! Everything streams: memory does not grow with the archive.

mod bundle;
mod file;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod gunzip;
mod pack;
mod parallel;
mod read;
#[cfg(test)]
mod tests;
mod unpack;

pub use bundle::{bundle, finished};
pub use file::{Packed, pack_file};
#[cfg(any(fuzzing, test))]
pub use fuzz::consistent;
pub use gunzip::Gunzip;
pub use pack::pack;
pub use read::{Entry, Kind, Reader};
pub use unpack::{Limits, unpack};

/// Why an archive could not be read; callers tell the sender's fault from their own.
#[derive(Debug)]
pub enum Error {
    /// It is not a gzip tar, or it is cut or damaged: its sender's fault, and sending it again may help.
    Malformed(String),
    /// It goes beyond the [`Limits`].
    TooLarge(String),
    /// Its bytes could not be fetched: the disk or connection it comes from.
    Input(std::io::Error),
    /// A file of it could not be written, with the path.
    Output(std::io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(reason) | Self::TooLarge(reason) => f.write_str(reason),
            Self::Input(error) | Self::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// The same error with the path before it, since the system's own words leave it out.
fn at(path: &std::path::Path, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}
