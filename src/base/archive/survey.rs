//! What a folder contains at one moment, without its content: its size before it is packed, and
//! whether it is still the same afterwards.

use std::io;
use std::path::{Path, PathBuf};

use super::{MAX_OPEN_LEVELS, PackError};
use crate::retry::patiently;
use crate::sys::{Entry, Folder, Version};

/// A folder at one moment.
pub struct Survey {
    /// The sum of the lengths of all files.
    pub bytes: u64,
    /// The largest file, and its length.
    pub largest: (PathBuf, u64),
    /// A digest of each entry in the order of the walk: eight bytes for each, whatever their
    /// names.
    entries: Vec<u64>,
}

impl Survey {
    /// Surveys a folder that was opened as `dir`; paths only appear in errors.
    pub fn take(folder: &Folder, dir: &Path) -> Result<Self, PackError> {
        let mut survey = Self {
            bytes: 0,
            largest: (PathBuf::new(), 0),
            entries: Vec::new(),
        };
        walk(folder, dir, 1, &mut |path, digest, length| {
            survey.bytes = survey.bytes.saturating_add(length);
            if length > survey.largest.1 {
                survey.largest = (path.to_owned(), length);
            }
            survey.entries.push(digest);
            true
        })?;
        Ok(survey)
    }

    /// The first entry of the folder that is different by now. Of one that is new or gone, this is
    /// its folder, whose time of modification has changed.
    pub fn difference(&self, folder: &Folder, dir: &Path) -> Result<Option<PathBuf>, PackError> {
        let (mut before, mut changed) = (self.entries.iter(), None);
        walk(folder, dir, 1, &mut |path, digest, _| {
            let is_same = before.next() == Some(&digest);
            if !is_same {
                changed = Some(path.to_owned());
            }
            is_same
        })?;
        if changed.is_none() && before.next().is_some() {
            changed = Some(dir.to_owned());
        }
        Ok(changed)
    }
}

/// Passes the path, a digest and the length of each entry to `visit`, each folder before its
/// entries, until it returns false. Returns whether it always returned true.
fn walk(
    folder: &Folder,
    dir: &Path,
    level: usize,
    visit: &mut impl FnMut(&Path, u64, u64) -> bool,
) -> Result<bool, PackError> {
    let unreadable = |path: &Path, error: io::Error| PackError::Unreadable(path.to_owned(), error);
    let metadata = folder.metadata().map_err(|error| unreadable(dir, error))?;
    if !visit(dir, crate::digest(&(dir, Version::of(&metadata))), 0) {
        return Ok(false);
    }
    if level > MAX_OPEN_LEVELS {
        return Ok(true);
    }
    let mut names = patiently(|| folder.names()).map_err(|error| unreadable(dir, error))?;
    names.sort_unstable();
    for name in names {
        let path = dir.join(&name);
        let entry = patiently(|| folder.entry(&name)).map_err(|error| unreadable(&path, error))?;
        let goes_on = match entry {
            Some(Entry::Folder(inner, _)) => walk(&inner, &path, level + 1, visit)?,
            Some(Entry::File(_, metadata)) => visit(
                &path,
                crate::digest(&(&path, Version::of(&metadata))),
                metadata.len(),
            ),
            Some(Entry::Link(target)) => visit(&path, crate::digest(&(&path, target)), 0),
            Some(Entry::Special) => visit(&path, crate::digest(&path), 0),
            // Gone since it was listed: the next survey lists it no more.
            None => visit(&path, 0, 0),
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// The path that differs after `change`, relative to the folder.
    fn difference(change: impl Fn(&Path)) -> Option<String> {
        let root = crate::temp::Folder::new().unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        for (name, text) in [("a", "1"), ("sub/b", "22"), ("sub/c", "3"), ("z", "4")] {
            fs::write(root.join(name), text).unwrap();
        }
        let past = SystemTime::now() - Duration::from_secs(9);
        for name in ["a", "sub/b", "sub/c", "z", "sub", ""] {
            fs::File::open(root.join(name))
                .unwrap()
                .set_modified(past)
                .unwrap();
        }
        let folder = Folder::open(&root).unwrap();
        let survey = Survey::take(&folder, &root).unwrap();
        assert_eq!(
            (survey.bytes, &survey.largest),
            (5, &(root.join("sub/b"), 2))
        );
        change(&root);
        let path = survey.difference(&folder, &root).unwrap()?;
        Some(
            path.strip_prefix(&*root)
                .unwrap()
                .to_string_lossy()
                .into_owned(),
        )
    }

    #[test]
    #[cfg(unix)]
    fn every_change_is_noticed_and_named() {
        assert_eq!(difference(|_| {}), None);
        assert_eq!(
            difference(|root| fs::write(root.join("sub/b"), "2").unwrap()).unwrap(),
            "sub/b"
        );
        assert_eq!(
            difference(|root| fs::write(root.join("sub/b"), "xx").unwrap()).unwrap(),
            "sub/b"
        );
        assert_eq!(
            difference(|root| fs::write(root.join("z"), "longer").unwrap()).unwrap(),
            "z"
        );
        assert_eq!(
            difference(|root| fs::remove_file(root.join("sub/c")).unwrap()).unwrap(),
            "sub"
        );
        assert_eq!(
            difference(|root| fs::write(root.join("sub/new"), "").unwrap()).unwrap(),
            "sub"
        );
        assert_eq!(
            difference(|root| fs::remove_file(root.join("z")).unwrap()).unwrap(),
            ""
        );
        let replace = |root: &Path| {
            fs::rename(root.join("a"), root.join("sub/a")).unwrap();
        };
        assert_eq!(difference(replace).unwrap(), "");
    }
}
