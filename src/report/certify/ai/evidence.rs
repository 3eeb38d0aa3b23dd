//! Entries of `evidence`: links, results of the suite, and files beside PRODUCT.yaml.

use std::path::{Component, Path, PathBuf};

/// The beginning of an entry that is written as the address of a file.
const FILE: &str = "file://";

/// An entry of `evidence`.
#[derive(Debug, PartialEq)]
pub(super) enum Evidence<'e> {
    /// A page, which the programme requests.
    Link,
    /// A result of the suite, perhaps with the name of a test.
    Artifact { test: Option<&'e str> },
    /// A file of the vendor, relative to PRODUCT.yaml.
    File(PathBuf),
}

impl<'e> Evidence<'e> {
    /// Reads an entry as the programme's checker does; `artifacts` are the results of the suite.
    pub(super) fn read(entry: &'e str, artifacts: &[&str]) -> Result<Self, String> {
        let entry = entry.trim();
        if entry.starts_with("http://") || entry.starts_with("https://") {
            return Ok(Self::Link);
        }
        let path = entry.strip_prefix(FILE).unwrap_or(entry);
        let (path, test) = match path.split_once('#') {
            Some((path, test)) => (path.trim(), Some(test)),
            None => (path, None),
        };
        let path = Path::new(without_product_folder(path.trim_start_matches('/')));
        if path.as_os_str().is_empty() {
            return Err(format!("`{entry}` names no file"));
        }
        let is_below = |part: Component<'_>| matches!(part, Component::Normal(_));
        if !path.components().all(is_below) {
            return Err(format!(
                "`{entry}` leads out of the folder of the product's file"
            ));
        }
        let is_artifact = |path: &Path| artifacts.iter().any(|name| path == Path::new(name));
        if is_artifact(path) {
            return Ok(Self::Artifact { test });
        }
        let name = path.file_name().map(std::ffi::OsStr::to_ascii_lowercase);
        if name.is_some_and(|name| is_artifact(Path::new(&name))) {
            return Err(format!(
                "`{entry}` has the name of a result of the suite, as which the programme reads it; \
                 rename it"
            ));
        }
        Ok(Self::File(path.to_owned()))
    }
}

/// A path without the folder that the product will have in the programme's repository,
/// `vX.Y/PRODUCT/`.
fn without_product_folder(path: &str) -> &str {
    let below = |path: &'_ str| -> Option<usize> {
        let (version, rest) = path.strip_prefix('v')?.split_once('/')?;
        let (major, minor) = version.split_once('.')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (_, below) = rest.split_once('/')?;
        (is_number(major) && is_number(minor)).then(|| path.len() - below.len())
    };
    &path[below(path).unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTIFACTS: [&str; 3] = ["e2e.log", "results.json", "junit.xml"];

    #[test]
    fn entries_are_read_as_the_checker_reads_them() {
        let artifact = |test| Ok(Evidence::Artifact { test });
        let file = |path: &str| Ok(Evidence::File(path.into()));
        for (entry, expected) in [
            ("https://a.example/x", Ok(Evidence::Link)),
            ("e2e.log", artifact(None)),
            (" junit.xml#TestA/b", artifact(Some("TestA/b"))),
            ("file://junit.xml#TestA", artifact(Some("TestA"))),
            ("file://v1.37/fine/results.json", artifact(None)),
            ("v1.37/fine/docs/gang.md", file("docs/gang.md")),
            ("v1.37/fine.md", file("v1.37/fine.md")),
            ("notes/v1.37.md", file("notes/v1.37.md")),
        ] {
            assert_eq!(Evidence::read(entry, &ARTIFACTS), expected, "{entry}");
        }
    }

    #[test]
    fn entries_that_are_no_file_of_the_product_are_refused() {
        for (entry, words) in [
            ("", "names no file"),
            ("file://#TestA", "names no file"),
            ("../other/x.md", "leads out of"),
            ("a/../../x.md", "leads out of"),
            ("old/junit.xml", "rename it"),
            ("E2E.log", "rename it"),
        ] {
            let error = Evidence::read(entry, &ARTIFACTS).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
