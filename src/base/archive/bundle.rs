//! Finished archives as one stream, the same bytes each time, so that a reader can resume after losing the connection.

use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

use super::at;

/// How the names of finished archives end. Unfinished ones end differently.
const ENDING: &str = ".tar.gz";

/// The finished archives in a folder, by name.
pub fn finished(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| at(folder, &error))?;
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(ENDING))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    Ok(found)
}

/// Writes `files` to `out` as one gzip tar under their base names, without the first `skip` bytes. What is already
/// compressed is not compressed again.
pub fn bundle(files: &[PathBuf], skip: u64, out: impl Write) -> io::Result<()> {
    let gzip = GzBuilder::new().mtime(0).write(Skipping { left: skip, out }, Compression::none());
    let mut tar = tar::Builder::new(gzip);
    for path in files {
        let mut add = || {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            let mut header = tar::Header::new_gnu();
            header.set_size(size);
            header.set_mode(0o644);
            // Whatever was appended in the meantime was not announced.
            tar.append_data(
                &mut header,
                path.file_name().unwrap_or_default(),
                BufReader::new(file).take(size),
            )
        };
        add().map_err(
            |error| if error.kind() == io::ErrorKind::BrokenPipe { error } else { at(path, &error) },
        )?;
    }
    tar.into_inner()?.finish()?.out.flush()
}

/// Drops the first bytes that pass through.
struct Skipping<W> {
    left: u64,
    out: W,
}

impl<W: Write> Write for Skipping<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
        if skipped > 0 {
            self.left -= skipped as u64;
            return Ok(skipped);
        }
        self.out.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_continues_the_same_stream() {
        let folder = crate::temp::Folder::new().unwrap();
        let content: Vec<u8> =
            (0..200_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
        fs::write(folder.join("b.tar.gz"), &content).unwrap();
        fs::write(folder.join("a.tar.gz"), b"first").unwrap();
        fs::write(folder.join("c.tar.gz.partial"), b"unfinished").unwrap();
        let files = finished(&folder).unwrap();
        assert_eq!(files, [folder.join("a.tar.gz"), folder.join("b.tar.gz")]);
        let mut whole = Vec::new();
        bundle(&files, 0, &mut whole).unwrap();
        for offset in [0, 1, 9, 10, 511, 70_000, whole.len() - 1, whole.len(), whole.len() + 5] {
            let mut rest = Vec::new();
            bundle(&files, offset as u64, &mut rest).unwrap();
            assert!(rest == whole[offset.min(whole.len())..], "{offset}");
        }
        let mut reader =
            super::super::Reader::new(super::super::Gunzip::new(&whole[..]), super::super::Limits::default());
        let first = reader.next_entry().unwrap().unwrap();
        assert_eq!((first.name.as_slice(), first.size), (&b"a.tar.gz"[..], 5));
    }
}
