//! The entries of a tar in any dialect, one after the other, with limits on everything held in
//! memory.
//!
//! The `tar` crate parses single headers; the walk is our own because long names and extended
//! headers of hostile archives may claim any size, and because reports read gigabyte archives in
//! one pass.

use std::io::{self, Read};

use super::Error;

/// Tars consist of blocks of this size.
const BLOCK_BYTES: u64 = 512;
/// Maximum bytes of a long name or an extended header; systems limit paths to 4 KiB.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;
/// Maximum long names and extended headers of one entry; no program writes more than four.
const MAX_EXTENSIONS: usize = 16;
/// Maximum bytes after the end marker; tape padding is 10 KiB.
const MAX_TRAILER_BYTES: u64 = 1 << 20;

/// Limits on the content of an archive.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of any kind.
    pub entries: u64,
    /// Total bytes of all files.
    pub total: u64,
    /// Bytes of one file.
    pub file: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 1_000_000,
            total: 40 << 30,
            file: 10 << 30,
        }
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Symlink,
    /// Another name of an earlier file.
    HardLink,
    /// A device or a pipe, which are not accepted from untrusted archives.
    Other,
}

/// The header of one entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name as written in the archive.
    pub name: Vec<u8>,
    /// File, folder or link.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Length of the content.
    pub size: u64,
    /// Target of a link.
    pub target: Vec<u8>,
}

/// Reads an uncompressed tar. Its `Read` yields the content of the current entry.
pub struct Reader<R> {
    input: R,
    /// Unread content of the current entry, and the padding after it.
    left: u64,
    padding: u64,
    limits: Limits,
    /// Entries, their bytes, and bytes of long names and extended headers so far.
    entries: u64,
    total: u64,
    extensions: u64,
}

/// Fields of extended headers, which apply to the next entry.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> Reader<R> {
    /// Starts before the first entry. Exceeding `limits` is an error, whether entries are read or
    /// skipped.
    pub fn new(input: R, limits: Limits) -> Self {
        Self {
            input,
            left: 0,
            padding: 0,
            limits,
            entries: 0,
            total: 0,
            extensions: 0,
        }
    }

    /// The next entry, after skipping the rest of the previous one; `None` once the compressed
    /// stream has been read to its end, too, and is known to be complete.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let mut extended = Extended::default();
        for _ in 0..=MAX_EXTENSIONS {
            self.skip(self.left + self.padding)?;
            (self.left, self.padding) = (0, 0);
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            self.left = header
                .entry_size()
                .map_err(|error| Error::Malformed(format!("not a tar archive: {error}")))?;
            self.padding = padding(self.left);
            match header.entry_type().as_byte() {
                b'L' => extended.name = Some(until_nul(&self.extension()?)),
                b'K' => extended.target = Some(until_nul(&self.extension()?)),
                b'x' | b'X' => parse_pax(&self.extension()?, &mut extended)?,
                // Global headers contain comments, nothing about names.
                b'g' => drop(self.extension()?),
                b'S' => return Err(sparse()),
                kind => return self.entry(&header, kind, extended).map(Some),
            }
        }
        Err(Error::Malformed(format!(
            "more than {MAX_EXTENSIONS} extended headers before one entry"
        )))
    }

    fn entry(
        &mut self,
        header: &tar::Header,
        kind: u8,
        extended: Extended,
    ) -> Result<Entry, Error> {
        let name = extended
            .name
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let kind = match kind {
            // The oldest dialect marks folders only by a trailing slash.
            b'0' | 0 if name.ends_with(b"/") => Kind::Folder,
            b'0' | b'7' | 0 => Kind::File,
            b'5' => Kind::Folder,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            _ => Kind::Other,
        };
        // Only files have content; some programs leave a size on links.
        let size = extended.size.unwrap_or(self.left);
        (self.left, self.padding) = match kind {
            Kind::File | Kind::Other => (size, padding(size)),
            Kind::Folder | Kind::Symlink | Kind::HardLink => (0, 0),
        };
        let own_target = || header.link_name_bytes().unwrap_or_default().into_owned();
        let entry = Entry {
            name,
            kind,
            mode: header.mode().unwrap_or(0o644) & 0o7777,
            size: self.left,
            target: extended.target.unwrap_or_else(own_target),
        };
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(Error::TooLarge(format!(
                "more than {} entries",
                self.limits.entries
            )));
        }
        self.count_content(&entry.name, entry.size)?;
        Ok(entry)
    }

    /// Counts the content of the entry `name`, which may also be a copy of another one's.
    pub(super) fn count_content(&mut self, name: &[u8], size: u64) -> Result<(), Error> {
        let Limits { total, file, .. } = self.limits;
        self.total = self.total.saturating_add(size);
        let why = if size > file {
            format!("`{}` has {size} bytes, more than {file}", show(name))
        } else if self.total.saturating_add(self.extensions) > total {
            format!("more than {total} bytes unpacked")
        } else {
            return Ok(());
        };
        Err(Error::TooLarge(why))
    }

    /// The next header, or `None` at the end marker or the end of the stream.
    fn header(&mut self) -> Result<Option<tar::Header>, Error> {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES as usize);
        self.input
            .by_ref()
            .take(BLOCK_BYTES)
            .read_to_end(&mut bytes)
            .map_err(input_error)?;
        // Some programs omit the end marker.
        if bytes.is_empty() {
            return Ok(None);
        }
        let header =
            tar::Header::from_byte_slice(bytes.first_chunk::<512>().ok_or_else(cut)?).clone();
        let header_sum = sum(header.as_bytes());
        if header_sum == 0 {
            let mut trailer = (&mut self.input).take(MAX_TRAILER_BYTES);
            io::copy(&mut trailer, &mut io::sink()).map_err(input_error)?;
            return Ok(None);
        }
        // The checksum field itself counts as eight blanks.
        let blank = header_sum - sum(&header.as_bytes()[148..156]) + 8 * u32::from(b' ');
        match header.cksum() {
            Ok(stored) if stored == blank => Ok(Some(header)),
            _ => Err(Error::Malformed(
                "not a tar archive: a header has the wrong checksum".into(),
            )),
        }
    }

    fn extension(&mut self) -> Result<Vec<u8>, Error> {
        if self.left > MAX_EXTENSION_BYTES {
            return Err(Error::TooLarge(format!(
                "a name in the archive claims to have {} bytes",
                self.left
            )));
        }
        self.extensions += self.left;
        let mut data = Vec::new();
        self.read_to_end(&mut data).map_err(input_error)?;
        Ok(data)
    }

    fn skip(&mut self, count: u64) -> Result<(), Error> {
        let skipped =
            io::copy(&mut (&mut self.input).take(count), &mut io::sink()).map_err(input_error)?;
        if skipped == count { Ok(()) } else { Err(cut()) }
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let count = self.input.by_ref().take(self.left).read(buffer)?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the archive ends inside a file",
            ));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Classifies a failed read: malformed if decompression failed, else an error of the disk or
/// connection.
pub(super) fn input_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Error::Malformed(format!("not a valid gzip stream: {error}"))
        }
        io::ErrorKind::UnexpectedEof => cut(),
        _ => Error::Input(error),
    }
}

/// The start of a name, for messages.
pub(super) fn show(name: &[u8]) -> String {
    let mut text: String = String::from_utf8_lossy(name).chars().take(200).collect();
    text.retain(|c| !c.is_control());
    text
}

fn cut() -> Error {
    Error::Malformed("the archive is truncated".into())
}

fn sparse() -> Error {
    Error::Malformed("the archive contains a sparse file; pack it without `--sparse`".into())
}

fn padding(size: u64) -> u64 {
    (BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().map(|byte| u32::from(*byte)).sum()
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// Parses records of the form `<length> <key>=<value>\n`, where the length includes the whole
/// record.
fn parse_pax(mut data: &[u8], extended: &mut Extended) -> Result<(), Error> {
    let bad = || Error::Malformed("not a tar archive: an extended header is damaged".into());
    while !data.is_empty() && data[0] != 0 {
        let blank = data.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
        let length = std::str::from_utf8(&data[..blank])
            .ok()
            .and_then(|text| text.parse::<usize>().ok());
        let length = length
            .filter(|length| (blank + 2..=data.len()).contains(length))
            .ok_or_else(bad)?;
        let record = data[blank + 1..length]
            .strip_suffix(b"\n")
            .ok_or_else(bad)?;
        data = &data[length..];
        let equals = record
            .iter()
            .position(|byte| *byte == b'=')
            .ok_or_else(bad)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => extended.name = Some(value.to_vec()),
            b"linkpath" => extended.target = Some(value.to_vec()),
            b"size" => {
                let size = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                extended.size = Some(size.ok_or_else(bad)?);
            }
            _ if key.starts_with(b"GNU.sparse.") => return Err(sparse()),
            _ => {}
        }
    }
    Ok(())
}
