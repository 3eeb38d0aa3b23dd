//! A folder into a gzip tar.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::{Compression, write::GzEncoder};

use super::at;
use super::parallel::Parallel;
use crate::sys::{self, FileId};

/// Beyond this the disk is slower.
const THREADS: usize = 8;

/// Packs everything inside `dir` and hands `out` back, flushed to the last byte of gzip.
///
/// Names are relative to `dir` without `./`, in the order of a walk sorted by name; `dir` itself is not an entry.
/// Symbolic links and special files are left out, as is the file `except`, so that an archive can lie in the
/// folder that it is made of. A file that grows meanwhile is cut at the size it had, one that shrinks is filled
/// with zeros, one that vanishes is left out: a folder of live logs still gives a sound archive.
pub fn pack<W: Write>(dir: &Path, except: Option<&Path>, out: W) -> io::Result<W> {
    pack_into(dir, except, GzEncoder::new(out, Compression::default()))?.finish()
}

/// The same with every processor there is.
pub(super) fn pack_parallel<W: Write>(dir: &Path, except: Option<&Path>, out: W) -> io::Result<W> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS);
    if threads < 2 {
        return pack(dir, except, out);
    }
    std::thread::scope(|scope| pack_into(dir, except, Parallel::new(scope, threads, out)?)?.finish())
}

fn pack_into<W: Write>(dir: &Path, except: Option<&Path>, gzip: W) -> io::Result<W> {
    let id = |path| FileId::of(path).map_err(|error| at(path, &error));
    let except = except.map(id).transpose()?.flatten();
    let mut tar = tar::Builder::new(gzip);
    pack_folder(&mut tar, dir, Path::new(""), except.as_ref())?;
    tar.into_inner()
}

fn pack_folder<W: Write>(
    tar: &mut tar::Builder<W>,
    dir: &Path,
    name: &Path,
    except: Option<&FileId>,
) -> io::Result<()> {
    let read = |error| at(dir, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        names.push(entry.map_err(read)?.file_name());
    }
    names.sort_unstable();
    for file_name in names {
        let (path, name) = (dir.join(&file_name), name.join(&file_name));
        let meta = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| at(&path, &error))?,
        };
        if meta.is_dir() {
            let mut header = header(&meta, tar::EntryType::Directory);
            tar.append_data(&mut header, &name, io::empty())?;
            pack_folder(tar, &path, &name, except)?;
        } else if meta.is_file() && !except.is_some_and(|except| except.is(&path, &meta)) {
            pack_file(tar, &path, &name)?;
        }
    }
    Ok(())
}

fn pack_file<W: Write>(tar: &mut tar::Builder<W>, path: &Path, name: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| at(path, &error))?,
    };
    // Of the open file, not of the name: it may have been replaced.
    let meta = file.metadata().map_err(|error| at(path, &error))?;
    let mut header = header(&meta, tar::EntryType::Regular);
    header.set_size(meta.len());
    tar.append_data(
        &mut header,
        name,
        io::BufReader::with_capacity(64 << 10, file).chain(io::repeat(0)).take(meta.len()),
    )
    .map_err(|error| at(path, &error))
}

fn header(meta: &fs::Metadata, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    let (user, group) = sys::owner(meta);
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    header.set_mode(sys::mode(meta));
    header.set_uid(user);
    header.set_gid(group);
    header.set_mtime(meta.modified().map_or(0, since));
    header.set_size(0);
    header
}
