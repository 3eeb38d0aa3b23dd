//! What the tests of this room share: a run directory that goes away, archives that no packer would make.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::limits::Refusal;
use super::receipt::Sender;
use super::store::Store;
use super::upload::Upload;
use crate::config;
use crate::layout::state_dir;
use client::protocol::{GZIP, ResultId};

/// A run directory in a folder of its own.
pub(super) struct Scratch(base::temp::Folder);

impl Scratch {
    pub(super) fn new() -> Self {
        Self(base::temp::Folder::new().unwrap())
    }

    pub(super) fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    pub(super) fn open(&self, expected: &[ResultId]) -> Store {
        Store::open(&self.run(), expected, limits()).unwrap()
    }

    /// Every file and folder below the run directory, with what is in the files.
    pub(super) fn tree(&self) -> Vec<String> {
        let mut out = Vec::new();
        walk(&self.run(), "", &mut out);
        out
    }

    /// What uploads have left beside the run directory.
    pub(super) fn leftovers(&self) -> usize {
        std::fs::read_dir(state_dir(&self.run()).join("incoming")).unwrap().count()
    }

    /// Everything in the scratch folder but the run and its state.
    pub(super) fn strangers(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| !name.starts_with("run")).collect()
    }
}

fn walk(dir: &Path, prefix: &str, out: &mut Vec<String>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            let before = out.len();
            walk(&entry.path(), &format!("{name}/"), out);
            if out.len() == before {
                out.push(format!("{name}/"));
            }
        } else if kind.is_file() {
            let text = std::fs::read(entry.path()).unwrap();
            out.push(format!("{name}={}", String::from_utf8_lossy(&text[..text.len().min(100)])));
        } else {
            out.push(format!("{name}@"));
        }
    }
}

/// Limits that tests reach.
pub(super) fn limits() -> config::Limits {
    let results = config::Results {
        bytes: 2 << 20,
        unpacked_bytes: 1 << 20,
        entries: 1_000,
        free_bytes: 0,
        free_inodes: 0,
    };
    config::Limits { results, ..config::Limits::default() }
}

/// Uploads a file called `name`.
pub(super) fn put(store: &Store, id: &ResultId, name: &str, body: &[u8]) -> Result<(), Refusal> {
    let disposition = format!("attachment;filename={name}");
    send(store, id, Upload { disposition: Some(&disposition), ..plain(body) })
}

/// Uploads a gzip tar.
pub(super) fn put_tar(store: &Store, id: &ResultId, body: &[u8]) -> Result<(), Refusal> {
    send(store, id, Upload { kind: Some(GZIP), disposition: Some("attachment"), ..plain(body) })
}

pub(super) fn send(store: &Store, id: &ResultId, upload: Upload<'_, &[u8]>) -> Result<(), Refusal> {
    store.accept(id, upload).map(|_| ())
}

pub(super) fn plain(body: &[u8]) -> Upload<'_, &[u8]> {
    Upload {
        body,
        length: None,
        kind: None,
        disposition: None,
        digest: None,
        is_error: false,
        meter: std::sync::Arc::default(),
        sender: Sender::default(),
    }
}

/// One entry of a tar: kind, name, mode, link target, content.
pub(super) type TarEntry<'a> = (tar::EntryType, &'a str, u32, &'a str, &'a [u8]);

/// A gzip tar of exactly these entries, however evil.
pub(super) fn tar_gz(entries: &[TarEntry<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(gzip());
    for (kind, name, mode, link, content) in entries {
        let mut header = tar::Header::new_gnu();
        // The library would refuse the names that matter here.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// A gzip tar of one file of so many zeros.
pub(super) fn bomb(size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    let mut gzip = gzip();
    gzip.write_all(header.as_bytes()).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), size + 1024), &mut gzip).unwrap();
    gzip.finish().unwrap()
}

fn gzip() -> flate2::write::GzEncoder<Vec<u8>> {
    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast())
}
