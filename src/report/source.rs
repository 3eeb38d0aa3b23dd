//! Source of results: an archive, a folder with an unpacked one, or standard input.
//!
//! An archive is one compressed stream without random access. It is read once, extracting the wanted files and
//! skipping the rest, and only as far as needed.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::files::ExtractedFiles;
use crate::layout::{self, META, PLUGINS, RESOURCES};
use base::archive::{Gunzip, Kind, Limits, Reader};
use base::at::{At as _, entries};
use base::json::Page;
use base::near;
use base::sys;
use base::temp;

/// The word for the newest archive of the current folder.
const LATEST: &str = "latest";

/// Far beyond what an aggregator's disk holds: 5,000 nodes with 1,000 files each.
const LIMITS: Limits = Limits { entries: 10_000_000, total: 100 << 30, file: 100 << 30 };

/// Longer than any path of a system; reports repeat names, so long ones would exhaust memory.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The archive of a given name: a file or an unpacked archive, or the newest archive of a folder; `latest` is that of
/// the current folder.
pub(crate) fn locate(name: &str) -> Result<String> {
    let folder = match name {
        LATEST if !Path::new(name).exists() => Path::new("."),
        name => Path::new(name),
    };
    let is_unpacked = || [META, PLUGINS, RESOURCES].iter().any(|part| folder.join(part).exists());
    if name == "-" || !folder.is_dir() || is_unpacked() {
        return Ok(name.to_owned());
    }
    let newest = archives(folder)?.into_iter().next().with_context(|| {
        format!("no `*_sonobuoy_*.tar.gz` in `{}`; `sonobuoy retrieve` fetches one", folder.display())
    })?;
    Ok(if folder == Path::new(".") { newest } else { folder.join(newest).display().to_string() })
}

/// The names of the archives in a folder, newest first.
pub(crate) fn archives(folder: &Path) -> Result<Vec<String>> {
    // Names begin with the start time of the run.
    let names = entries(folder)?.into_iter().rev().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| layout::run_of_archive(name).is_some()).collect())
}

/// An archive or a folder.
pub(crate) struct ArchiveSource {
    /// A seekable archive; `None` for a folder.
    archive: Option<File>,
    /// The path, also in messages.
    pub label: String,
}

/// Metadata of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970; only from archives, since folders are copied.
    pub modified: Option<u64>,
}

/// The treatment of a file during a pass.
pub(crate) enum PassAction {
    /// Extracts it, unless a file of that name was extracted before.
    Keep,
    /// Goes on to the next file.
    Skip,
    /// Ends the pass.
    Stop,
}

impl PassAction {
    /// Extracts a file if it is `wanted`.
    pub(crate) fn keep_if(wanted: bool) -> Self {
        if wanted { Self::Keep } else { Self::Skip }
    }
}

impl ArchiveSource {
    /// Opens the source of a name, as resolved by [`locate`]; `-` is standard input.
    pub(crate) fn open(name: &str) -> Result<Self> {
        if name == "-" {
            return Ok(Self { archive: Some(standard_input()?), label: "standard input".into() });
        }
        let label = locate(name)?;
        let meta = fs::metadata(&label)
            .map_err(|error| anyhow!("stat {name}: {}{}", reason(&error), near::hint(name, [LATEST])))?;
        let open = || File::open(&label).map_err(|error| anyhow!("open {label}: {}", reason(&error)));
        Ok(Self { archive: (!meta.is_dir()).then(open).transpose()?, label })
    }

    /// Passes every file to `visit`, in the order of the archive, or sorted for a folder; it selects the files to extract
    /// and may end the pass.
    pub(crate) fn extract(
        &self,
        mut visit: impl FnMut(&ExtractedFiles, &str, Stat, &mut dyn Read) -> Result<PassAction>,
    ) -> Result<ExtractedFiles> {
        let mut files = ExtractedFiles::default();
        let mut take = |name: &str, stat: Stat, content: &mut dyn Read| {
            let next = visit(&files, name, stat, content)?;
            if let PassAction::Keep = next {
                files.add(name, content).map_err(broken)?;
            }
            anyhow::Ok(next)
        };
        let Some(archive) = &self.archive else {
            let folder = Path::new(&self.label);
            for name in names(folder)? {
                let Some(mut file) = open_in(folder, &name)? else { continue };
                let stat = Stat { size: file.metadata()?.len(), modified: None };
                if let PassAction::Stop = take(&name, stat, &mut file)? {
                    break;
                }
            }
            return Ok(files);
        };
        let mut reader = reader(archive)?;
        while let Some(entry) = reader.next_entry().map_err(|error| broken(error.into()))? {
            let length = entry.name.len();
            if length > MAX_NAME_BYTES {
                return Err(broken(anyhow!(
                    "a name in it has {length} bytes, but at most {MAX_NAME_BYTES} are possible"
                )));
            }
            // A plugin may send a link, which has no content; that is not an error.
            let (Kind::File | Kind::Symlink, Some(name)) =
                (entry.kind, clean(&String::from_utf8_lossy(&entry.name)))
            else {
                continue;
            };
            let stat = Stat { size: entry.size, modified: Some(entry.modified).filter(|time| *time > 0) };
            if let PassAction::Stop = take(&name, stat, &mut reader)? {
                break;
            }
        }
        Ok(files)
    }
}

fn reader(mut file: &File) -> Result<Reader<impl Read>> {
    file.rewind()?;
    let mut head = [0; 2];
    let count = file.read(&mut head)?;
    ensure!(
        count == 2,
        "the file is empty, or has only begun to be written; fetch it again with `sonobuoy retrieve`"
    );
    ensure!(
        head == [0x1f, 0x8b],
        "could not make a gzip reader: gzip: invalid header; it is not a Sonobuoy archive"
    );
    file.rewind()?;
    Ok(Reader::new(Gunzip::new(BufReader::with_capacity(128 << 10, file)), LIMITS))
}

/// Passes each object of a list to `take`, until it returns false.
pub(crate) fn objects(content: &mut dyn Read, mut take: impl FnMut(Value) -> bool) -> serde_json::Result<()> {
    let content = BufReader::with_capacity(64 << 10, content);
    Page(&mut take).deserialize(&mut serde_json::Deserializer::from_reader(content)).map(drop)
}

/// The error for a missing file, in the words of the original.
pub(crate) fn absent(name: &str) -> anyhow::Error {
    anyhow!("failed to find file \"{name}\" in archive")
}

fn broken(error: anyhow::Error) -> anyhow::Error {
    error.context("cannot read the archive")
}

/// The name without `./`, `//` and `..`, with slashes for Windows separators; `None` if it leads outside.
pub(crate) fn clean(name: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Opens a regular file of a folder; links to the outside count as missing.
fn open_in(folder: &Path, name: &str) -> Result<Option<File>> {
    let path = folder.join(name);
    let Some(real) = base::found(path.canonicalize()).at("cannot read", &path)? else { return Ok(None) };
    if !real.starts_with(folder.canonicalize()?) || !real.is_file() {
        return Ok(None);
    }
    File::open(&real).map(Some).at("cannot read", &path)
}

/// The names of the files below a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let (mut folders, mut files) = (vec![String::new()], Vec::new());
    while let Some(below) = folders.pop() {
        for entry in entries(&folder.join(&below))? {
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = if below.is_empty() { name } else { format!("{below}/{name}") };
            if entry.file_type()?.is_dir() { &mut folders } else { &mut files }.push(name);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Standard input as a seekable file: itself if it is one, else a copy.
fn standard_input() -> Result<File> {
    let input = sys::stdin_file()?;
    if input.metadata().is_ok_and(|about| about.is_file()) {
        return Ok(input);
    }
    let copied = || {
        let mut copy = temp::file(temp::dir())?;
        io::copy(&mut BufReader::with_capacity(128 << 10, input), &mut copy)?;
        io::Result::Ok(copy)
    };
    copied().context("cannot copy standard input to a temporary file; `TMPDIR` names its folder")
}

/// The message of a system error without its number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}
