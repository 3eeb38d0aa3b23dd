//! Files that may be missing.

use std::io;

/// The result of an access to a file or folder; `None` if it does not exist.
pub fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
