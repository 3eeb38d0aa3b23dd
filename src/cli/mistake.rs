//! An error in the command line, printed with the usage of the command.
//!
//! Does not know the cause: callers supply the message.

use std::fmt;

/// An error in the command line.
#[derive(Debug)]
pub(crate) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Creates an error that is printed with the usage of its command.
pub(crate) fn error(message: impl Into<String>) -> anyhow::Error {
    Error(message.into()).into()
}

/// The error of a flag's value.
pub(crate) fn invalid(id: &str, value: &str, remedy: &str) -> anyhow::Error {
    error(format!("invalid argument {value:?} for \"--{id}\": {remedy}"))
}
