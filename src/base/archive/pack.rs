//! Packs a folder into a gzip tar.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::{Compression, write::GzEncoder};

use super::at;
use crate::sys::{self, FileId, Folder, Opened};

/// Packs everything inside `dir` and returns `out`, flushed to the last byte of gzip.
///
/// Names are relative to `dir` without `./`, in the order of a walk sorted by name; `dir` itself is not an entry.
/// Symbolic links and special files are left out, as is the file `except`, so that an archive can be inside the folder
/// it is made from. A file that grows in the meantime is cut off at its previous size, one that shrinks is padded with
/// zeros, one that vanishes is left out: a folder of live logs still yields a valid archive.
pub fn pack<W: Write>(dir: &Path, except: Option<&Path>, out: W) -> io::Result<W> {
    pack_open(&open(dir)?, dir, except, out)
}

/// The same of a folder that was opened as `dir`: only its own content is packed, whatever becomes of its name.
pub fn pack_open<W: Write>(folder: &Folder, dir: &Path, except: Option<&Path>, out: W) -> io::Result<W> {
    pack_into(folder, dir, except, GzEncoder::new(out, Compression::default()))?.finish()
}

fn open(dir: &Path) -> io::Result<Folder> {
    Folder::open(dir).map_err(|error| at(dir, &error))
}

fn pack_into<W: Write>(folder: &Folder, dir: &Path, except: Option<&Path>, gzip: W) -> io::Result<W> {
    let id = |path| FileId::of(path).map_err(|error| at(path, &error));
    let except = except.map(id).transpose()?.flatten();
    let mut tar = tar::Builder::new(gzip);
    pack_folder(&mut tar, folder, dir, Path::new(""), except.as_ref())?;
    tar.into_inner()
}

/// Packs a folder that was opened as `dir`; the paths in it are for errors alone.
fn pack_folder<W: Write>(
    tar: &mut tar::Builder<W>,
    folder: &Folder,
    dir: &Path,
    name: &Path,
    except: Option<&FileId>,
) -> io::Result<()> {
    let mut names = folder.names().map_err(|error| at(dir, &error))?;
    names.sort_unstable();
    for file_name in names {
        let (path, name) = (dir.join(&file_name), name.join(&file_name));
        match folder.entry(&file_name).map_err(|error| at(&path, &error))? {
            Some((Opened::Folder(inner), meta)) => {
                let mut header = header(&meta, tar::EntryType::Directory);
                tar.append_data(&mut header, &name, io::empty())?;
                pack_folder(tar, &inner, &path, &name, except)?;
            }
            Some((Opened::File(file), meta)) if !except.is_some_and(|except| except.is(&path, &meta)) => {
                pack_file(tar, file, &meta, &name).map_err(|error| at(&path, &error))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn pack_file<W: Write>(
    tar: &mut tar::Builder<W>,
    file: File,
    meta: &fs::Metadata,
    name: &Path,
) -> io::Result<()> {
    let mut header = header(meta, tar::EntryType::Regular);
    header.set_size(meta.len());
    let content = io::BufReader::with_capacity(64 << 10, file).chain(io::repeat(0)).take(meta.len());
    tar.append_data(&mut header, name, content)
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
