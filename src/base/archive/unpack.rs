//! A gzip tar of a stranger into a folder, without harm.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::read::{Entry, Kind, Reader, input_error};
use super::{Error, Gunzip, at};
use crate::sys::{self, Open as _};

/// Links are made when all else is there; until then their names may take this much memory.
const LINK_NAMES: usize = 64 << 20;
/// So many names may differ in nothing that the file system looks at.
const MAX_NAMESAKES: u32 = 1_000;

/// How much an archive may unpack to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of any kind.
    pub entries: u64,
    /// Bytes of all files together.
    pub total: u64,
    /// Bytes of one file.
    pub file: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 1_000_000, total: 40 << 30, file: 10 << 30 }
    }
}

/// What came out of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Regular files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries left out because they would have left the folder or are neither file, folder nor harmless link.
    pub skipped: u64,
    /// Files that got another name, since this system cannot have theirs or takes it for another file's.
    pub renamed: u64,
}

/// Unpacks the gzip tar `input` into the existing folder `into`, which should be empty.
///
/// Nothing is written outside `into`: names are cleaned (`./x` and `/x` become `x`), an entry that climbs out with
/// `..` is skipped, and so are hard links, devices and pipes. Symbolic links are made last, and only when they
/// lead to something inside. Set-user-id bits and owners are dropped; everything stays writable for its owner.
/// A later entry replaces an earlier file of the same name; where case makes no difference, a name that differs in
/// case alone gets an ending. What a system cannot have in a name is escaped. On an error the folder holds what was unpacked so far.
pub fn unpack(input: impl Read, into: &Path, limits: &Limits) -> Result<Unpacked, Error> {
    let mut reader = Reader::new(Gunzip::new(BufReader::with_capacity(64 << 10, input)));
    let mut done = Unpacked::default();
    let (mut entries, mut total) = (0_u64, 0_u64);
    // Name and target of each link, a NUL behind both: an archive can have a million of them.
    let mut links = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while let Some(entry) = reader.next_entry()? {
        entries += 1;
        total = total.saturating_add(entry.size);
        check_limits(&entry, entries, total.saturating_add(reader.extensions()), limits)?;
        let Some((name, escaped)) = clean(&entry.name) else {
            skip(&mut done, &entry.name, "its name leaves the folder");
            continue;
        };
        if name.as_os_str().is_empty() {
            // The packed folder itself, as `./`; its mode is not ours to take over.
            continue;
        }
        let path = into.join(&name);
        match entry.kind {
            Kind::Folder => make_folder(&path, entry.mode)?,
            Kind::File => {
                let mut file = create(&path, &name, entry.mode)?;
                let kept = file.name.as_deref().unwrap_or(&name);
                if escaped || file.name.is_some() {
                    rename(&mut done, &entry.name, kept);
                }
                write_file(&mut reader, &mut file.file, &path, &mut buffer)?;
                done.files += 1;
                done.bytes += entry.size;
            }
            Kind::Symlink => {
                if links.len() + entry.name.len() + entry.target.len() > LINK_NAMES {
                    return Err(Error::TooLarge(format!("more than {LINK_NAMES} bytes of names of links")));
                }
                // Where a target has a NUL it ends, here as in every system.
                let target = entry.target.split(|byte| *byte == 0).next().unwrap_or_default();
                links.extend([&entry.name, &b"\0"[..], target, b"\0"].concat());
            }
            Kind::Other => skip(&mut done, &entry.name, "it is a hard link or a special file"),
        }
    }
    make_links(into, &links, &mut done)?;
    Ok(done)
}

fn check_limits(entry: &Entry, entries: u64, total: u64, limits: &Limits) -> Result<(), Error> {
    if entries > limits.entries {
        return Err(Error::TooLarge(format!("more than {} entries", limits.entries)));
    }
    if entry.size > limits.file {
        return Err(Error::TooLarge(format!(
            "`{}` has {} bytes, more than {}",
            show(&entry.name),
            entry.size,
            limits.file
        )));
    }
    if total > limits.total {
        return Err(Error::TooLarge(format!("more than {} bytes unpacked", limits.total)));
    }
    Ok(())
}

/// The name as a path below the folder, and whether anything in it had to be escaped; empty for the folder itself,
/// `None` if it leads out of it.
fn clean(name: &[u8]) -> Option<(PathBuf, bool)> {
    if name.contains(&0) {
        return None;
    }
    let (mut path, mut escaped) = (PathBuf::new(), false);
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            // `a/../b` is harmless, `../b` is not.
            b".." => {
                if !path.pop() {
                    return None;
                }
            }
            part => {
                let own = sys::file_name(part);
                escaped |= *sys::bytes_of(&own) != *part;
                path.push(own);
            }
        }
    }
    Some((path, escaped))
}

fn make_folder(path: &Path, mode: u32) -> Result<(), Error> {
    // Owner bits are added so that what belongs inside can be written, whatever the archive says.
    let mode = mode & 0o777 | 0o700;
    let made = sys::dir_builder(0o755).recursive(true).create(path);
    made.and_then(|()| sys::set_mode(path, mode)).map_err(|error| output_error(path, &error))
}

/// A file to be written, and its name if that is not the one that was asked for.
struct Created {
    file: File,
    name: Option<PathBuf>,
}

fn create(path: &Path, name: &Path, mode: u32) -> Result<Created, Error> {
    let open = |path: &Path, fresh: bool| {
        let mut options = OpenOptions::new();
        options.write(true).mode(mode & 0o777 | 0o600).no_follow();
        if fresh {
            options.create_new(true)
        } else {
            options.truncate(true)
        };
        options.open(path)
    };
    let file = match (open(path, true), path.parent()) {
        // Archives need not list the folders of their files.
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(parent).and_then(|()| open(path, true))
        }
        (other, _) => other,
    };
    let created = match file {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if path.canonicalize().map_or(true, |real| real.ends_with(name)) {
                open(path, false).map(|file| Created { file, name: None })
            } else {
                namesake(path, name, |path| open(path, true))
            }
        }
        other => other.map(|file| Created { file, name: None }),
    };
    created.map_err(|error| output_error(path, &error))
}

/// A file beside the one whose name this system takes for the same.
fn namesake(path: &Path, name: &Path, open: impl Fn(&Path) -> io::Result<File>) -> io::Result<Created> {
    for number in 1..=MAX_NAMESAKES {
        let numbered = |path: &Path| {
            let mut numbered = path.as_os_str().to_owned();
            numbered.push(format!("~{number}"));
            PathBuf::from(numbered)
        };
        match open(&numbered(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| Created { file, name: Some(numbered(name)) }),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn write_file(reader: &mut impl Read, file: &mut File, path: &Path, buffer: &mut [u8]) -> Result<(), Error> {
    loop {
        match reader.read(buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => file.write_all(&buffer[..count]).map_err(|error| output_error(path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(input_error(error)),
        }
    }
}

/// Makes the links that lead to something inside. A link may lead through another one, so there is a second round;
/// since links are made last and replace nothing, no file is ever written through one.
fn make_links(into: &Path, links: &[u8], done: &mut Unpacked) -> Result<(), Error> {
    if links.is_empty() {
        return Ok(());
    }
    let root = into.canonicalize().map_err(|error| output_error(into, &error))?;
    for last in [false, true] {
        let mut words = links.split(|byte| *byte == 0);
        while let (Some(name), Some(target)) = (words.next(), words.next()) {
            let Some(path) = clean(name).map(|(name, _)| into.join(name)) else { continue };
            let made = last && path.symlink_metadata().is_ok_and(|found| found.is_symlink());
            if !made && !make_link(&root, &path, target) && last {
                skip(done, name, "it leads to nothing inside the folder");
            }
        }
    }
    Ok(())
}

fn make_link(root: &Path, path: &Path, target: &[u8]) -> bool {
    let target = sys::path(target);
    let Some(parent) = path.parent() else { return false };
    if target.has_root() || fs::create_dir_all(parent).is_err() {
        return false;
    }
    // Both ends are resolved for real: a chain of links can lead out although each name looks harmless.
    let inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(root));
    inside(parent) && inside(&parent.join(&target)) && sys::symlink(&target, path).is_ok()
}

fn output_error(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::InvalidFilename => {
            Error::Malformed(format!("the archive contradicts itself at {}", at(path, error)))
        }
        _ => Error::Output(at(path, error)),
    }
}

fn skip(done: &mut Unpacked, name: &[u8], reason: &str) {
    // A hostile archive shall not flood the log.
    if done.skipped < 5 {
        log::warn!("left out `{}` of an archive: {reason}", show(name));
    }
    done.skipped += 1;
}

fn rename(done: &mut Unpacked, name: &[u8], kept: &Path) {
    if done.renamed < 5 {
        log::warn!(
            "`{}` of an archive is `{}` here: this system cannot have its name",
            show(name),
            kept.display()
        );
    }
    done.renamed += 1;
}

fn show(name: &[u8]) -> String {
    let mut text: String = String::from_utf8_lossy(name).chars().take(200).collect();
    text.retain(|c| !c.is_control());
    text
}
