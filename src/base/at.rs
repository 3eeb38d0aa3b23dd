//! Errors that name the file or folder they concern, and the entries of a folder.

use std::fs::{self, DirEntry};
use std::path::Path;

use anyhow::Error;

/// Adds the failed operation and its path to an error.
pub trait At<T> {
    /// Adds `what` and this `path`, as in "cannot read `path`".
    fn at(self, what: &str, path: impl AsRef<Path>) -> anyhow::Result<T>;
}

impl<T, E: Into<Error>> At<T> for Result<T, E> {
    fn at(self, what: &str, path: impl AsRef<Path>) -> anyhow::Result<T> {
        self.map_err(|error| name(error.into(), what, path.as_ref()))
    }
}

/// The entries of a folder, sorted by name.
pub fn entries(folder: &Path) -> anyhow::Result<Vec<DirEntry>> {
    let mut entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .at("cannot read", folder)?;
    entries.sort_unstable_by_key(DirEntry::file_name);
    Ok(entries)
}

#[cold]
fn name(error: Error, what: &str, path: &Path) -> Error {
    error.context(format!("{what} `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_its_file() {
        let read = std::fs::read("/nonexistent/a").at("cannot read", "/nonexistent/a");
        assert!(format!("{:#}", read.unwrap_err()).starts_with("cannot read `/nonexistent/a`: "));
    }
}
