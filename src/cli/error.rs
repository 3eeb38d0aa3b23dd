//! Errors that end the program in a special way: in the command line, and Ctrl-C.
//!
//! Does not know the cause: callers supply the message.

use std::fmt;

/// An error that `cli` prints differently from others.
#[derive(Debug)]
pub(crate) enum Error {
    /// In the command line; printed with the usage of the command.
    Usage(String),
    /// Ctrl-C.
    Interrupted(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (Self::Usage(message) | Self::Interrupted(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for Error {}

/// An error in the command line.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Error::Usage(message.into()).into()
}

/// An error in the value of a flag.
pub(crate) fn invalid(id: &str, value: &str, remedy: &str) -> anyhow::Error {
    usage(format!("invalid argument {value:?} for \"--{id}\": {remedy}"))
}

/// The end of a command that Ctrl-C interrupted.
pub(crate) fn interrupted(message: impl Into<String>) -> anyhow::Error {
    Error::Interrupted(message.into()).into()
}
