//! The error of whoever wrote the command line, which is printed with the usage of the command.
//!
//! Does not know what is wrong: whoever makes one says it.

use std::fmt;

/// An error of whoever wrote the command line; the usage is printed with it.
#[derive(Debug)]
pub(crate) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// An error that is printed with the usage of its command.
pub(crate) fn error(message: impl Into<String>) -> anyhow::Error {
    Error(message.into()).into()
}
