//! Lists of a version's e2e tests: reading, unpacking, combining; and the tags in their names.
//!
//! A list is plain text or gzip, one name per line. A list that starts with `#OTHER` is relative to
//! the list OTHER: `+name` adds a test, `-name` removes one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use ureq::http::StatusCode;

use super::release;
use base::at::At as _;
use base::fetch::fetch;
use base::small;
use oci::Reference;

/// Maximum unpacked bytes of a list; a real one has about 1 MiB.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// Maximum length of a chain of references between lists.
const MAX_REFERENCES: usize = 32;

/// Each `[...]` in the names, with the number of its tests.
pub(crate) fn tags(names: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        let mut rest = name.as_str();
        while let Some(start) = rest.find('[') {
            let Some(length) = rest[start..].find(']') else {
                break;
            };
            *counts.entry(&rest[start..=start + length]).or_default() += 1;
            rest = &rest[start + length + 1..];
        }
    }
    counts
}

/// The lines of a list that are not blank.
pub(super) fn lines(list: &str) -> Vec<String> {
    list.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The names that the program of a conformance image lists, each of which could be a name.
pub(super) fn image_names(list: &str, conformance: &str) -> Result<Vec<String>> {
    let names = lines(list);
    for name in &names {
        Reference::parse(name)
            .with_context(|| format!("`{conformance}` lists an image that is not one"))?;
    }
    Ok(names)
}

/// Source of lists.
pub(crate) enum ListSource<'a> {
    /// Standard input, and where the lists are that it refers to.
    Stdin(Option<&'a str>),
    File(&'a Path),
    Online(&'a str),
}

impl ListSource<'_> {
    /// The complete list, sorted, with all its references resolved.
    pub(crate) fn resolve(&self, name: &str) -> Result<Vec<String>> {
        let mut changes = Vec::new();
        let mut text = self.read(name)?;
        while let Some(other) = text.lines().next().and_then(|line| line.strip_prefix('#')) {
            let other = other.trim().to_owned();
            if changes.len() >= MAX_REFERENCES {
                bail!("the list {name} leads to a chain of more than {MAX_REFERENCES} lists");
            }
            // The reference becomes part of a path, so it must be a version.
            let other = release::parse(&other)
                .map_err(|why| anyhow!("the list {name} refers to another: {why}"))?;
            let base = match self {
                ListSource::Stdin(None) => {
                    bail!(
                        "the list refers to the list of {other}; say where lists are with `--url`"
                    )
                }
                ListSource::Stdin(Some(url)) => ListSource::Online(url).read(&other)?,
                _ => self.read(&other)?,
            };
            changes.push(std::mem::replace(&mut text, base));
        }
        // Lines are kept verbatim: trailing blanks belong to the names.
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        for change in changes.iter().rev() {
            for line in change
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
            {
                // Some tests share a name; each has a separate line.
                if let Some(name) = line.strip_prefix('-') {
                    names
                        .iter()
                        .position(|known| known == name)
                        .map(|at| names.swap_remove(at));
                } else {
                    names.push(line.strip_prefix('+').unwrap_or(line).to_owned());
                }
            }
        }
        // A list without references keeps its order.
        if !changes.is_empty() {
            names.sort();
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<String> {
        let (place, mut bytes) = match self {
            ListSource::Stdin(_) => {
                let bytes = small::read_from(std::io::stdin().lock(), MAX_LIST_BYTES);
                (
                    "standard input".to_owned(),
                    bytes.context("failed to read standard input")?,
                )
            }
            ListSource::File(file) => {
                let beside = file.with_file_name(format!("{name}.gz"));
                let path = if file.as_os_str() == name {
                    *file
                } else {
                    beside.as_path()
                };
                (
                    path.display().to_string(),
                    small::read(path, MAX_LIST_BYTES).at("cannot read", path)?,
                )
            }
            ListSource::Online(base) => {
                let url = format!("{base}/{name}.gz");
                let bytes = fetch(&url, MAX_LIST_BYTES).map_err(|error| {
                    // An unreachable server may have the list.
                    let missing = error.downcast_ref() == Some(&StatusCode::NOT_FOUND);
                    let what = if missing {
                        "there is no list"
                    } else {
                        "failed to get the list"
                    };
                    error.context(format!(
                        "{what} for Kubernetes {name}; use your own with `--input FILE`"
                    ))
                })?;
                (url, bytes)
            }
        };
        if bytes.starts_with(&[0x1f, 0x8b]) {
            bytes = small::read_from(MultiGzDecoder::new(&*bytes), MAX_LIST_BYTES)
                .with_context(|| format!("failed to unpack `{place}`"))?;
        }
        small::text(bytes).map_err(|error| anyhow!("`{place}` is not a list of tests: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_counted_in_order() {
        let names = ["[sig-b] x [Slow]", "[sig-a] y [Slow] [", "z"].map(str::to_owned);
        let counts: Vec<_> = tags(&names).into_iter().collect();
        assert_eq!(counts, [("[Slow]", 2), ("[sig-a]", 1), ("[sig-b]", 1)]);
    }
}
