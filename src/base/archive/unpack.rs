//! Safely unpacks an untrusted gzip tar into a folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};

use super::read::{Kind, Reader, input_error, show};
use super::{Error, Gunzip, Limits};
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

/// Maximum warnings about an archive: a hostile one must not flood the log.
const MAX_WARNINGS: u32 = 5;

/// Unpacks the gzip tar `input` into the existing folder `into`, which should be empty.
///
/// Nothing is written outside `into`: names are normalised (`./x` and `/x` become `x`); entries that climb out with `..`,
/// entries below more than 256 folders, hard links, devices and pipes are skipped. Symbolic links are created last, and only
/// if their target is inside. Set-user-id bits and owners are dropped; everything stays writable for its owner. A later entry
/// replaces an earlier file of the same name; if the file system ignores case, a name that differs only in case gets a
/// suffix. Characters that the system does not allow are escaped. After an error the folder contains the entries before it.
///
/// Returns the number of skipped entries.
pub fn unpack(input: impl Read, into: &Path, limits: &Limits) -> Result<u64, Error> {
    unpack_within(input, into, limits, |_| true)
}

/// Like [`unpack`], but calls `room` with the number of bytes before creating a file, folder or link, and fails if it returns
/// false.
pub fn unpack_within(
    input: impl Read,
    into: &Path,
    limits: &Limits,
    room: impl Fn(u64) -> bool,
) -> Result<u64, Error> {
    let mut to =
        Destination { into, room: &room, left: limits.entries, max: limits.entries, skipped: 0, warnings: 0 };
    let mut reader = Reader::new(Gunzip::new(BufReader::with_capacity(64 << 10, input)), *limits);
    let (mut links, mut link_bytes) = (Vec::new(), 0);
    let mut buffer = vec![0; 64 << 10];
    while let Some(entry) = reader.next_entry()? {
        to.count()?;
        let (name, escaped) = match clean(&entry.name) {
            // The packed folder itself, as `./`; its mode does not apply here.
            Ok((name, _)) if name.as_os_str().is_empty() => continue,
            Ok(cleaned) => cleaned,
            Err(why) => {
                to.skip(&entry.name, why);
                continue;
            }
        };
        let path = into.join(&name);
        match entry.kind {
            Kind::Folder => to.make_folder(&path, entry.mode)?,
            Kind::File => {
                to.make_way(&path)?;
                to.claim(entry.size)?;
                let created = create(&path, &name, entry.mode);
                let (mut file, own) = created.map_err(output_error(&path))?;
                if escaped || own != name {
                    let (from, own) = (show(&entry.name), own.display());
                    to.warn(&format!(
                        "`{from}` in an archive was renamed to `{own}`: this system does not allow its name"
                    ));
                }
                write_file(&mut reader, &mut file, &path, &mut buffer)?;
            }
            Kind::Symlink => {
                // A NUL ends a target, as on every system.
                let target = entry.target.split(|byte| *byte == 0).next().unwrap_or_default();
                link_bytes += LINK_BYTES + entry.name.len() + target.len();
                if link_bytes > MAX_LINK_NAME_BYTES {
                    let why = format!("more than {MAX_LINK_NAME_BYTES} bytes of link names");
                    return Err(Error::TooLarge(why));
                }
                links.push([target.to_vec(), entry.name]);
            }
            Kind::Other => to.skip(&entry.name, "it is a hard link or a special file"),
        }
    }
    to.make_links(&links)?;
    Ok(to.skipped)
}

/// The folder to unpack into, with the limits on entries and space.
struct Destination<'a> {
    into: &'a Path,
    room: &'a dyn Fn(u64) -> bool,
    /// Number of entries that may follow, and that there may be in all.
    left: u64,
    max: u64,
    skipped: u64,
    warnings: u32,
}

impl Destination<'_> {
    /// Counts an entry, or a folder that an entry implies.
    fn count(&mut self) -> Result<(), Error> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| Error::TooLarge(format!("more than {} entries", self.max)))?;
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

    fn skip(&mut self, name: &[u8], reason: &str) {
        self.skipped += 1;
        self.warn(&format!("skipped `{}` in an archive: {reason}", show(name)));
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
        for folder in missing.into_iter().rev() {
            self.count()?;
            self.claim(0)?;
            fs::create_dir(folder).map_err(output_error(folder))?;
        }
        Ok(())
    }

    /// Whether a folder exists, as all parents of `into` do.
    fn is_made(&self, folder: &Path) -> Result<bool, Error> {
        let found = crate::found(folder.symlink_metadata()).map_err(output_error(folder))?;
        Ok(found.is_some() || folder == self.into)
    }

    fn make_folder(&mut self, path: &Path, mode: u32) -> Result<(), Error> {
        self.make_way(path)?;
        // Owner bits are added so that its contents can be written, whatever the archive says.
        let mode = mode & 0o777 | 0o700;
        if !self.is_made(path)? {
            self.claim(0)?;
            return sys::dir_builder(mode).create(path).map_err(output_error(path));
        }
        // An existing folder is not opened further: it may be private by intent.
        let about = path.metadata().map_err(output_error(path))?;
        sys::set_mode(path, sys::mode(&about) & mode | 0o700).map_err(output_error(path))
    }

    /// Creates the links whose targets are inside. Targets may contain other links, so there is a second pass; since links are
    /// created last and replace nothing, no file is ever written through one.
    fn make_links(&mut self, links: &[[Vec<u8>; 2]]) -> Result<(), Error> {
        let root = self.into.canonicalize().map_err(output_error(self.into))?;
        for last in [false, true] {
            for [target, name] in links {
                let Ok(path) = clean(name).map(|(name, _)| self.into.join(name)) else { continue };
                let made = last && path.symlink_metadata().is_ok_and(|found| found.is_symlink());
                if !made && !self.make_link(&root, &path, target)? && last {
                    self.skip(name, "it does not lead to anything inside the folder");
                }
            }
        }
        Ok(())
    }

    fn make_link(&mut self, root: &Path, path: &Path, target: &[u8]) -> Result<bool, Error> {
        let target = sys::path(target);
        let Some(parent) = path.parent() else { return Ok(false) };
        if target.has_root() || self.make_way(path).is_err() {
            return Ok(false);
        }
        // Both ends are actually resolved: a chain of links can lead out although each name looks harmless.
        let inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(root));
        if !inside(parent) || !inside(&parent.join(&target)) {
            return Ok(false);
        }
        // Links take no space before they are created.
        self.claim(0)?;
        Ok(sys::symlink(&target, path).is_ok())
    }
}

/// The name as a path below the folder, and whether it contains escapes; empty for the folder itself. `Err` is the reason to
/// skip the entry.
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
                let own = sys::file_name(part);
                escaped |= *sys::bytes_of(&own) != *part;
                path.push(own);
            }
        }
    }
    if path.components().count() > MAX_LEVELS {
        Err("it is below too many folders")
    } else {
        Ok((path, escaped))
    }
}

/// Opens a file to write and returns it with its name, which has a suffix if this system considers the requested one equal to
/// that of another file.
fn create(path: &Path, name: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let mut options = OpenOptions::new();
    options.write(true).mode(mode & 0o777 | 0o600).no_follow();
    for number in 0..=MAX_NAMESAKES {
        let suffix = if number == 0 { String::new() } else { format!("~{number}") };
        let numbered = |path: &Path| {
            let mut numbered = path.as_os_str().to_owned();
            numbered.push(&suffix);
            PathBuf::from(numbered)
        };
        match options.clone().create_new(true).open(numbered(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return Ok((opened?, numbered(name))),
        }
        // The existing file may have another name, which differs in case.
        if number == 0 && !path.canonicalize().is_ok_and(|real| !real.ends_with(name)) {
            return Ok((options.truncate(true).open(path)?, name.to_owned()));
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn write_file(reader: &mut impl Read, file: &mut File, path: &Path, buffer: &mut [u8]) -> Result<(), Error> {
    loop {
        match reader.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => file.write_all(&buffer[..count]).map_err(output_error(path))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(input_error(error)),
        }
    }
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
        Error::Malformed(format!("the archive contradicts itself at {}", at(path)(error)))
    }
}
