//! A temporary run directory, and archives that no packer creates.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::aggregator::limits::Refusal;
use crate::aggregator::run::Sender;
use crate::aggregator::store::{Store, Upload};
use client::protocol::ResultId;
use model::config;
use model::layout::state_dir;

/// A run directory in a temporary folder.
pub(crate) struct Scratch(base::temp::Folder);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(base::temp::Folder::new().unwrap())
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    pub(crate) fn open(&self, expected: &[ResultId]) -> Store {
        Store::open(&self.run(), expected, limits()).unwrap()
    }

    /// Every file and folder below the run directory, with contents.
    pub(crate) fn tree(&self) -> Vec<String> {
        let mut out = Vec::new();
        walk(&self.run(), "", &mut out);
        out
    }

    /// Leftovers of uploads next to the run directory.
    pub(crate) fn leftovers(&self) -> usize {
        std::fs::read_dir(state_dir(&self.run()).join("incoming"))
            .unwrap()
            .count()
    }

    /// Everything in the scratch folder except the run and its state.
    pub(crate) fn strangers(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names
            .map(|name| name.into_string().unwrap())
            .filter(|name| !name.starts_with("run"))
            .collect()
    }
}

fn walk(dir: &Path, prefix: &str, out: &mut Vec<String>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(Result::unwrap)
        .collect();
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
            out.push(format!(
                "{name}={}",
                String::from_utf8_lossy(&text[..text.len().min(100)])
            ));
        } else {
            out.push(format!("{name}@"));
        }
    }
}

/// Limits low enough for tests.
pub(crate) fn limits() -> config::Limits {
    let results = config::ResultLimits {
        bytes: 2 << 20,
        unpacked_bytes: 1 << 20,
        entries: 1_000,
        free_bytes: 0,
        free_inodes: 0,
    };
    config::Limits {
        results,
        ..config::Limits::default()
    }
}

/// Uploads a file called `name`.
pub(crate) fn put(store: &Store, id: &ResultId, name: &str, body: &[u8]) -> Result<(), Refusal> {
    send(
        store,
        id,
        Upload {
            name: Some(name.into()),
            ..plain(body)
        },
    )
}

/// Uploads a gzip tar.
pub(crate) fn put_tar(store: &Store, id: &ResultId, body: &[u8]) -> Result<(), Refusal> {
    send(
        store,
        id,
        Upload {
            is_archive: true,
            name: Some("result".into()),
            ..plain(body)
        },
    )
}

pub(crate) fn send(store: &Store, id: &ResultId, upload: Upload<&[u8]>) -> Result<(), Refusal> {
    store.accept(id, upload).map(|_| ())
}

pub(crate) fn plain(body: &[u8]) -> Upload<&[u8]> {
    Upload {
        body,
        length: None,
        is_archive: false,
        name: None,
        digest: None,
        is_error: false,
        meter: std::sync::Arc::default(),
        sender: Sender::default(),
    }
}

/// One entry of a tar: kind, name, mode, link target, content.
pub(crate) type TarEntry<'a> = (tar::EntryType, &'a str, u32, &'a str, &'a [u8]);

/// A gzipped tar of exactly these entries.
pub(crate) fn tar_gz(entries: &[TarEntry<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(gzip());
    for (kind, name, mode, link, content) in entries {
        let mut header = tar::Header::new_gnu();
        // The library rejects the names under test.
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

/// A gzipped tar with one file of zeros.
pub(crate) fn bomb(size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    let mut gzip = gzip();
    gzip.write_all(header.as_bytes()).unwrap();
    std::io::copy(
        &mut std::io::Read::take(std::io::repeat(0), size + 1024),
        &mut gzip,
    )
    .unwrap();
    gzip.finish().unwrap()
}

fn gzip() -> flate2::write::GzEncoder<Vec<u8>> {
    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast())
}
