//! Errors that name the file or folder they concern, and the entries of a folder.

use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
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

/// Whether a path is a URL that stands where a file is expected.
pub fn is_url(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.starts_with("https://") || path.starts_with("http://")
}

#[cold]
fn name(error: Error, what: &str, path: &Path) -> Error {
    let is_missing = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::NotFound);
    let error = match is_missing && is_url(path) {
        true => Error::msg("it is a URL, and this has to be a file; download it first"),
        false => error,
    };
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

    #[test]
    fn url_instead_of_a_file_is_named() {
        let url = "https://host.invalid/a";
        let read = std::fs::read(url).at("cannot read", url);
        assert_eq!(
            format!("{:#}", read.unwrap_err()),
            "cannot read `https://host.invalid/a`: it is a URL, and this has to be a file; \
             download it first"
        );
    }
}
