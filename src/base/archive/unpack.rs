//! Safely unpacks an untrusted gzip tar into a folder.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};

use ring::digest::{Context, Digest, SHA256};
use serde::{Deserialize, Serialize};

use super::read::{Entry, Kind, Reader, input_error, show};
use super::{Error, Gunzip, Limits, TreeDigest};
use crate::retry::patiently;
use crate::small::at;
use crate::sys::{self, Open as _};

/// Maximum memory of the names of links, which are created last.
const MAX_LINK_NAME_BYTES: usize = 8 << 20;
/// Memory of a link, excluding its name and target.
const LINK_BYTES: usize = size_of::<[Vec<u8>; 2]>();
/// Maximum depth of folders, since a traversal later holds one descriptor open for each level.
const MAX_LEVELS: usize = 256;
/// Maximum names that the file system considers equal.
const MAX_NAMESAKES: u32 = 1_000;

/// Maximum warnings about an archive, and names of dropped entries: a hostile one must not flood
/// the log.
const MAX_WARNINGS: usize = 5;

/// What was unpacked.
#[derive(Debug)]
pub struct Unpacked {
    /// The entries that were not.
    pub dropped: Dropped,
    /// Digest of everything that was written.
    pub digest: TreeDigest,
}

/// The entries of an archive that were not unpacked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dropped {
    /// How many there are.
    pub entries: u64,
    /// The first of them, with the reason.
    pub first: Vec<String>,
}

impl Dropped {
    /// Whether everything was unpacked.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, first) = (self.entries, self.first.join("; "));
        let more = count.saturating_sub(self.first.len() as u64);
        let entries = if count == 1 {
            "1 entry"
        } else {
            &format!("{count} entries")
        };
        write!(f, "{entries} of the result could not be kept: {first}")?;
        if more > 0 {
            write!(f, "; and {more} more")
        } else {
            Ok(())
        }
    }
}

/// Unpacks the gzip tar `input` into the folder `into`, which is created unless it exists, and
/// should be empty.
///
/// Nothing is written outside `into`: names are normalised (`./x` and `/x` become `x`); entries
/// that climb out with `..`, entries below more than 256 folders, devices and pipes are dropped. A
/// hard link becomes a copy of the file that it names. Symbolic links are created last, and only if
/// their target is inside. Set-user-id bits and owners are dropped; everything stays writable for
/// its owner. A later entry replaces an earlier file of the same name; if the file system ignores
/// case, a name that differs only in case gets a suffix. Characters that the system does not allow
/// are escaped. After an error the folder contains the entries before it.
pub fn unpack(input: impl Read, into: &Path, limits: &Limits) -> Result<Unpacked, Error> {
    unpack_within(input, into, limits, |_| true)
}

/// Like [`unpack`], but calls `room` with the number of bytes before creating a file, folder or
/// link, and fails if it returns false.
pub fn unpack_within(
    input: impl Read,
    into: &Path,
    limits: &Limits,
    room: impl Fn(u64) -> bool,
) -> Result<Unpacked, Error> {
    let mut to = Destination {
        into,
        room: &room,
        left: limits.entries,
        max: limits.entries,
        dropped: Dropped::default(),
        warnings: 0,
        digest: TreeDigest::new().map_err(Error::Output)?,
        buffer: vec![0; 64 << 10],
    };
    sys::dir_builder(0o755)
        .recursive(true)
        .create(into)
        .map_err(output_error(into))?;
    let mut reader = Reader::new(
        Gunzip::new(BufReader::with_capacity(64 << 10, input)),
        *limits,
    );
    let mut links = Links::default();
    while let Some(entry) = reader.next_entry()? {
        to.count()?;
        let (name, is_escaped) = match clean(&entry.name) {
            // The packed folder itself, as `./`; its mode does not apply here.
            Ok((name, _)) if name.as_os_str().is_empty() => continue,
            Ok(cleaned) => cleaned,
            Err(why) => {
                to.drop_entry(&entry.name, why);
                continue;
            }
        };
        match entry.kind {
            Kind::Folder => to.make_folder(&into.join(&name), entry.mode)?,
            Kind::File => to.write_file(&mut reader, &entry, &name, is_escaped)?,
            Kind::HardLink => match to.linked_file(&entry, &name)? {
                Ok((file, size)) => {
                    reader.count_content(&entry.name, size)?;
                    let copy = Entry { size, ..entry };
                    to.write_file(&mut Copied(file.take(size)), &copy, &name, is_escaped)?;
                }
                Err(why) => to.drop_entry(&entry.name, &why),
            },
            Kind::Symlink => links.push(entry)?,
            Kind::Other => to.drop_entry(&entry.name, "it is a device, a pipe or a socket"),
        }
    }
    to.make_links(&links.links)?;
    Ok(Unpacked {
        dropped: to.dropped,
        digest: to.digest,
    })
}

/// Symbolic links, which are created last.
#[derive(Default)]
struct Links {
    /// Target and name of each.
    links: Vec<[Vec<u8>; 2]>,
    bytes: usize,
}

impl Links {
    fn push(&mut self, entry: Entry) -> Result<(), Error> {
        // A NUL ends a target, as on every system.
        let target = entry
            .target
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        self.bytes += LINK_BYTES + entry.name.len() + target.len();
        if self.bytes > MAX_LINK_NAME_BYTES {
            let why = format!("more than {MAX_LINK_NAME_BYTES} bytes of link names");
            return Err(Error::TooLarge(why));
        }
        self.links.push([target.to_vec(), entry.name]);
        Ok(())
    }
}

/// A file on the disk in place of the content of an entry.
struct Copied(io::Take<File>);

impl Read for Copied {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        patiently(|| self.0.read(buffer))
    }
}

/// The folder to unpack into, with the limits on entries and space.
struct Destination<'a> {
    into: &'a Path,
    room: &'a dyn Fn(u64) -> bool,
    /// Number of entries that may follow, and that there may be in all.
    left: u64,
    max: u64,
    dropped: Dropped,
    warnings: usize,
    digest: TreeDigest,
    buffer: Vec<u8>,
}

impl Destination<'_> {
    /// Counts an entry, or a folder that an entry implies.
    fn count(&mut self) -> Result<(), Error> {
        let entries_left = self.left.checked_sub(1);
        self.left = entries_left
            .ok_or_else(|| Error::TooLarge(format!("more than {} entries", self.max)))?;
        Ok(())
    }

    /// Reserves space.
    fn claim(&self, bytes: u64) -> Result<(), Error> {
        if (self.room)(bytes) {
            return Ok(());
        }
        Err(Error::Output(io::Error::other("no space is left for it")))
    }

    fn warn(&mut self, text: &str) {
        self.warnings += 1;
        if self.warnings <= MAX_WARNINGS {
            log::warn!("{text}");
        }
    }

    fn drop_entry(&mut self, name: &[u8], reason: &str) {
        self.dropped.entries += 1;
        let entry = format!("`{}`: {reason}", show(name));
        self.warn(&format!("an entry of an archive was dropped, {entry}"));
        if self.dropped.first.len() < MAX_WARNINGS {
            self.dropped.first.push(entry);
        }
    }

    /// Writes the file `name` with the content of `entry`, which `content` yields.
    fn write_file(
        &mut self,
        content: &mut impl Read,
        entry: &Entry,
        name: &Path,
        is_escaped: bool,
    ) -> Result<(), Error> {
        let path = self.into.join(name);
        self.make_way(&path)?;
        self.claim(entry.size)?;
        let Created {
            mut file,
            name: own_name,
            replaces,
        } = create(&path, name, entry.mode).map_err(output_error(&path))?;
        if let Some(sha256) = replaces {
            self.digest.remove_file(&own_name, sha256.as_ref());
        }
        if is_escaped || own_name != name {
            let (from, own_name) = (show(&entry.name), own_name.display());
            self.warn(&format!(
                "`{from}` in an archive was renamed to `{own_name}`: this system does not allow \
                 its name"
            ));
        }
        let mut sha256 = Context::new(&SHA256);
        loop {
            match content.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => {
                    let piece = &self.buffer[..count];
                    sha256.update(piece);
                    file.write_all(piece).map_err(output_error(&path))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(input_error(error)),
            }
        }
        self.digest.add_file(&own_name, sha256.finish().as_ref());
        Ok(())
    }

    /// Opens the file that the hard link `entry` called `name` refers to, with its length; or the
    /// reason why it is dropped. Symbolic links do not exist yet, so nothing leads out.
    fn linked_file(
        &self,
        entry: &Entry,
        name: &Path,
    ) -> Result<Result<(File, u64), String>, Error> {
        let absent = || {
            Ok(Err(format!(
                "it is a hard link to `{}`, which is not there",
                show(&entry.target)
            )))
        };
        let Ok((target, _)) = clean(&entry.target) else {
            return absent();
        };
        let path = self.into.join(target);
        let metadata = crate::if_exists(path.symlink_metadata()).map_err(output_error(&path));
        let Ok(Some(metadata)) = metadata else {
            return absent();
        };
        // Also by another spelling, where the file system ignores case: writing the file would
        // empty it before it is read.
        let is_itself = || path.canonicalize().ok() == self.into.join(name).canonicalize().ok();
        if !metadata.is_file() || is_itself() {
            return absent();
        }
        let file = File::open(&path).map_err(output_error(&path))?;
        Ok(Ok((file, metadata.len())))
    }

    /// Creates the missing parent folders of `path`: archives need not list them.
    fn make_way(&mut self, path: &Path) -> Result<(), Error> {
        let mut missing = Vec::new();
        for folder in path.ancestors().skip(1) {
            if self.is_made(folder)? {
                break;
            }
            missing.push(folder);
        }
        // From the outermost inwards.
        for folder in missing.into_iter().rev() {
            self.count()?;
            self.claim(0)?;
            fs::create_dir(folder).map_err(output_error(folder))?;
            self.note_folder(folder);
        }
        Ok(())
    }

    /// Adds a folder that was created.
    fn note_folder(&mut self, path: &Path) {
        if let Ok(name) = path.strip_prefix(self.into) {
            self.digest.add_folder(name);
        }
    }

    /// Whether a folder exists, as all parents of `into` do.
    fn is_made(&self, folder: &Path) -> Result<bool, Error> {
        let metadata = crate::if_exists(folder.symlink_metadata()).map_err(output_error(folder))?;
        Ok(metadata.is_some() || folder == self.into)
    }

    fn make_folder(&mut self, path: &Path, mode: u32) -> Result<(), Error> {
        self.make_way(path)?;
        // Owner bits are added so that its contents can be written, whatever the archive says.
        let mode = mode & 0o777 | 0o700;
        if !self.is_made(path)? {
            self.claim(0)?;
            sys::dir_builder(mode)
                .create(path)
                .map_err(output_error(path))?;
            self.note_folder(path);
            return Ok(());
        }
        // An existing folder is not opened further: it may be private by intent.
        let about = path.metadata().map_err(output_error(path))?;
        sys::set_mode(path, sys::mode(&about) & mode | 0o700).map_err(output_error(path))
    }

    /// Creates the links whose targets are inside. Targets may contain other links, so there is a
    /// second pass; since links are created last and replace nothing, no file is ever written
    /// through one.
    fn make_links(&mut self, links: &[[Vec<u8>; 2]]) -> Result<(), Error> {
        let root = self.into.canonicalize().map_err(output_error(self.into))?;
        for last in [false, true] {
            for [target, name] in links {
                let Ok(path) = clean(name).map(|(name, _)| self.into.join(name)) else {
                    continue;
                };
                let made = last
                    && path
                        .symlink_metadata()
                        .is_ok_and(|found| found.is_symlink());
                if !made && !self.make_link(&root, &path, target)? && last {
                    let why = format!(
                        "it is a link to `{}`, which is not inside the folder",
                        show(target)
                    );
                    self.drop_entry(name, &why);
                }
            }
        }
        Ok(())
    }

    fn make_link(&mut self, root: &Path, path: &Path, target: &[u8]) -> Result<bool, Error> {
        let target = sys::path(target);
        let Some(parent) = path.parent() else {
            return Ok(false);
        };
        if target.has_root() || self.make_way(path).is_err() {
            return Ok(false);
        }
        // Both ends are actually resolved: a chain of links can lead out although each name looks
        // harmless.
        let inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(root));
        if !inside(parent) || !inside(&parent.join(&target)) {
            return Ok(false);
        }
        // Links take no space before they are created.
        self.claim(0)?;
        let is_made = sys::symlink(&target, path).is_ok();
        if is_made && let Ok(name) = path.strip_prefix(self.into) {
            self.digest.add_link(name, &target);
        }
        Ok(is_made)
    }
}

/// The name as a path below the folder, and whether it contains escapes; empty for the folder
/// itself. `Err` is the reason to skip the entry.
fn clean(name: &[u8]) -> Result<(PathBuf, bool), &'static str> {
    const OUT: &str = "its name leads out of the folder";
    if name.contains(&0) {
        return Err(OUT);
    }
    let (mut path, mut escaped) = (PathBuf::new(), false);
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            // `a/../b` is harmless, `../b` is not.
            b".." => {
                if !path.pop() {
                    return Err(OUT);
                }
            }
            part => {
                let file_name = sys::file_name(part);
                escaped |= *sys::bytes_of(&file_name) != *part;
                path.push(file_name);
            }
        }
    }
    if path.components().count() > MAX_LEVELS {
        Err("it is below too many folders")
    } else {
        Ok((path, escaped))
    }
}

/// A file that was opened to write an entry.
struct Created {
    file: File,
    /// Its name, which has a suffix if this system considers the requested one equal to that of
    /// another file.
    name: PathBuf,
    /// SHA-256 of the content that it had before.
    replaces: Option<Digest>,
}

fn create(path: &Path, name: &Path, mode: u32) -> io::Result<Created> {
    let mut options = OpenOptions::new();
    options.write(true).mode(mode & 0o777 | 0o600).no_follow();
    for number in 0..=MAX_NAMESAKES {
        let suffix = if number == 0 {
            String::new()
        } else {
            format!("~{number}")
        };
        let numbered = |path: &Path| {
            let mut numbered = path.as_os_str().to_owned();
            numbered.push(&suffix);
            PathBuf::from(numbered)
        };
        match options.clone().create_new(true).open(numbered(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => {
                return Ok(Created {
                    file: opened?,
                    name: numbered(name),
                    replaces: None,
                });
            }
        }
        // The existing file may have another name, which differs in case.
        if number == 0 && !path.canonicalize().is_ok_and(|real| !real.ends_with(name)) {
            // Reading a folder here fails as opening it does.
            let replaces = Some(crate::file_sha256(path)?);
            return Ok(Created {
                file: options.truncate(true).open(path)?,
                name: name.to_owned(),
                replaces,
            });
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn output_error(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, IsADirectory, NotADirectory, NotFound};
    move |error| {
        match error.kind() {
            NotADirectory | IsADirectory | AlreadyExists | InvalidFilename => {}
            // The error of Windows for a folder that is a file.
            NotFound if path.ancestors().any(Path::is_file) => {}
            _ => return Error::Output(at(path)(error)),
        }
        Error::Malformed(format!(
            "the archive contradicts itself at {}",
            at(path)(error)
        ))
    }
}
