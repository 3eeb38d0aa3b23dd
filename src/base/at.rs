//! Errors that name the file or folder they concern.

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
