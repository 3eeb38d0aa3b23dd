//! Streams a part of a file to a registry and reports progress.

use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom};
use std::path::Path;

use crate::at::At as _;
use anyhow::Result;

/// A part of a file being sent.
pub(super) struct Piece<'a> {
    pub(super) path: &'a Path,
    pub(super) from: u64,
    pub(super) length: u64,
    /// Receives the number of bytes sent of the file.
    pub(super) sent: &'a dyn Fn(u64),
}

impl Piece<'_> {
    pub(super) fn open(&self) -> Result<impl Read + '_> {
        let mut file = File::open(self.path).at("cannot read", self.path)?;
        file.seek(SeekFrom::Start(self.from))?;
        Ok(Told { file: file.take(self.length), at: self.from, sent: self.sent })
    }
}

/// Reports each read.
struct Told<'a> {
    file: std::io::Take<File>,
    at: u64,
    sent: &'a dyn Fn(u64),
}

impl Read for Told<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.at += count as u64;
        (self.sent)(self.at);
        Ok(count)
    }
}
