//! Lists of the e2e tests of a version: read, unpacked, put together; and the tags of their names.
//!
//! A list is plain text or gzip, one name a line. A list that begins with `#OTHER` is the difference to the list
//! OTHER: `+name` adds a test, `-name` removes one.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};

use super::release;
use base::fetch::{Refused, fetch};

/// More than any list has, unpacked: a real one has about 1 MiB.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// So many lists may refer to each other.
const MAX_REFERENCES: usize = 32;

/// Each `[...]` of the names, with how many tests bear it.
pub(crate) fn tags(names: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        let mut rest = name.as_str();
        while let Some(start) = rest.find('[') {
            let Some(length) = rest[start..].find(']') else { break };
            *counts.entry(&rest[start..=start + length]).or_default() += 1;
            rest = &rest[start + length + 1..];
        }
    }
    counts
}

/// Where lists come from.
pub(crate) enum Source<'a> {
    Stdin,
    File(&'a Path),
    Online(&'a str),
}

impl Source<'_> {
    /// The list, sorted, with everything that it refers to.
    pub(crate) fn whole(&self, name: &str, url: Option<&str>) -> anyhow::Result<Vec<String>> {
        let mut changes = Vec::new();
        let mut text = self.read(name)?;
        let mut seen = 0;
        while let Some(other) = text.lines().next().and_then(|line| line.strip_prefix('#')) {
            let other = other.trim().to_owned();
            seen += 1;
            if seen > MAX_REFERENCES {
                bail!(
                    "the list {name} refers to one that refers to another, more than {MAX_REFERENCES} times"
                );
            }
            // It becomes part of a path: nothing but a version is one.
            let other =
                release::parse(&other).map_err(|why| anyhow!("the list {name} refers to another: {why}"))?;
            let base = match (self, url) {
                (Source::Stdin, None) => {
                    bail!("the list refers to that of {other}; name where lists are with `--url`")
                }
                (Source::Stdin, Some(url)) => Source::Online(url).read(&other)?,
                _ => self.read(&other)?,
            };
            changes.push(std::mem::replace(&mut text, base));
        }
        // Lines as they are: blanks at their end belong to the names.
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        for change in changes.iter().rev() {
            for line in change.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                // Some tests have one name together, and each of them is a line.
                if let Some(name) = line.strip_prefix('-') {
                    names.iter().position(|known| known == name).map(|at| names.swap_remove(at));
                } else {
                    names.push(line.strip_prefix('+').unwrap_or(line).to_owned());
                }
            }
        }
        // A list that stands alone keeps its order.
        if !changes.is_empty() {
            names.sort();
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let (place, bytes) = match self {
            Source::Stdin => {
                let mut bytes = Vec::new();
                std::io::stdin()
                    .lock()
                    .take(MAX_LIST_BYTES)
                    .read_to_end(&mut bytes)
                    .context("reading standard input")?;
                ("standard input".to_owned(), bytes)
            }
            Source::File(file) => {
                let beside = file.with_file_name(format!("{name}.gz"));
                let path = if file.as_os_str() == name { *file } else { beside.as_path() };
                (
                    path.display().to_string(),
                    std::fs::read(path).with_context(|| format!("reading `{}`", path.display()))?,
                )
            }
            Source::Online(base) => {
                let url = format!("{base}/{name}.gz");
                let bytes = fetch(&url, MAX_LIST_BYTES).map_err(|error| {
                    // A server that is not reached says nothing about the list.
                    let missing = error.downcast_ref::<Refused>().is_some_and(Refused::is_not_found);
                    let what = if missing { "there is no list" } else { "cannot get the list" };
                    error.context(format!(
                        "{what} for Kubernetes {name}; use one of your own with `--input FILE`"
                    ))
                })?;
                (url, bytes)
            }
        };
        let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = Vec::new();
            let decoder = flate2::read::MultiGzDecoder::new(bytes.as_slice());
            decoder
                .take(MAX_LIST_BYTES)
                .read_to_end(&mut unpacked)
                .with_context(|| format!("unpacking `{place}`"))?;
            unpacked
        } else {
            bytes
        };
        String::from_utf8(bytes)
            .map_err(|error| anyhow!("`{place}` is not a list of tests: {}", error.utf8_error()))
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
