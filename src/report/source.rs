//! Source of results: an archive, a folder with an unpacked one, or standard input.
//!
//! An archive is one compressed stream without random access. It is read once, extracting the wanted files and
//! skipping the rest, and only as far as needed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::spool::{self, Spool};
use crate::layout::{self, META, PLUGINS, RESOURCES};
use base::archive::{Entry, Gunzip, Kind, Limits, Reader};
use base::at::At as _;
use base::near;
use base::sys;

/// Maximum size of a file held in memory: lists that grow with the cluster, the log, definitions.
const MAX_HELD_BYTES: u64 = 16 << 20;
/// Maximum size of a file that describes the whole run.
const MAX_SMALL_BYTES: u64 = 1 << 20;
const SMALL: [&str; 4] = [layout::SERVER_VERSION, layout::INFO, layout::CONFIG, layout::WHY];

/// The word for the newest archive of the current folder.
const LATEST: &str = "latest";

/// Far beyond what an aggregator's disk holds: 5,000 nodes with 1,000 files each.
const LIMITS: Limits = Limits { entries: 10_000_000, total: 100 << 30, file: 100 << 30 };

/// Longer than any path of a system; reports repeat names, so long ones would exhaust memory.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The archive of a given name: a file or an unpacked archive, or the newest archive of a folder; `latest` is that of
/// the current folder.
pub(crate) fn locate(name: &str) -> anyhow::Result<String> {
    let folder = match name {
        LATEST if !Path::new(name).exists() => Path::new("."),
        name => Path::new(name),
    };
    let is_unpacked = || [META, PLUGINS, RESOURCES].iter().any(|part| folder.join(part).exists());
    if name == "-" || !folder.is_dir() || is_unpacked() {
        return Ok(name.to_owned());
    }
    let entries = fs::read_dir(folder).at("cannot read", folder)?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    // Names begin with the start time of the run.
    let newest = names.filter(|name| layout::run_of_archive(name).is_some()).max();
    let newest = newest.with_context(|| {
        format!("no `*_sonobuoy_*.tar.gz` in `{}`; `sonobuoy retrieve` fetches one", folder.display())
    })?;
    Ok(if folder == Path::new(".") { newest } else { folder.join(newest).display().to_string() })
}

/// An archive or a folder.
pub(crate) struct Source {
    place: Place,
    /// The label in messages.
    label: String,
}

enum Place {
    Folder(PathBuf),
    /// A seekable file.
    File(File),
}

/// A file that can be read twice.
pub(crate) trait Content: Read + Seek {}

impl<R: Read + Seek> Content for R {}

/// Metadata of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970; only from archives, since folders are copied.
    pub modified: Option<u64>,
}

/// Extracted files of a source.
pub(crate) struct Files {
    folder: Option<PathBuf>,
    spool: Spool,
}

impl Source {
    /// Opens the source of a name, as resolved by [`locate`]; `-` is standard input.
    pub(crate) fn open(name: &str) -> anyhow::Result<Self> {
        if name == "-" {
            return Ok(Self { place: Place::File(standard_input()?), label: "standard input".into() });
        }
        let label = locate(name)?;
        let meta = fs::metadata(&label).map_err(|error| {
            anyhow::anyhow!("stat {name}: {}{}", reason(&error), near::hint(name, [LATEST]))
        })?;
        if meta.is_dir() {
            return Ok(Self { place: Place::Folder(PathBuf::from(&label)), label });
        }
        let file = File::open(&label).map_err(|error| anyhow::anyhow!("open {label}: {}", reason(&error)))?;
        Ok(Self { place: Place::File(file), label })
    }

    /// The label in messages.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Extracts the files that are `wanted`, by name and size, and stops reading when there is `enough`.
    pub(crate) fn collect(
        &self,
        mut wanted: impl FnMut(&str) -> bool,
        mut enough: impl FnMut(&Files) -> bool,
    ) -> anyhow::Result<Files> {
        let mut files = Files { folder: None, spool: Spool::default() };
        let mut walk = match &self.place {
            Place::Folder(path) => return Ok(Files { folder: Some(path.clone()), ..files }),
            Place::File(_) => self.walk()?,
        };
        while let Some((name, _)) = walk.next()? {
            if wanted(&name) && !files.spool.has(&name) {
                files.spool.add(&name, &mut walk.reader).map_err(broken)?;
                if enough(&files) {
                    break;
                }
            }
        }
        Ok(files)
    }

    /// Reads the whole source once: extracts the files that are `wanted`, and passes the others to `visit`, as
    /// [`Self::each`] does.
    pub(crate) fn pass(
        &self,
        mut wanted: impl FnMut(&str, Stat) -> bool,
        mut visit: impl FnMut(&str, Stat, &mut dyn Read) -> anyhow::Result<()>,
    ) -> anyhow::Result<Files> {
        let folder = match &self.place {
            Place::Folder(path) => Some(path.clone()),
            Place::File(_) => None,
        };
        let mut files = Files { folder, spool: Spool::default() };
        self.each(|name, stat, content| match wanted(name, stat) {
            true if files.folder.is_none() => files.spool.add(name, content).map_err(broken),
            true => Ok(()),
            false => visit(name, stat, content),
        })?;
        Ok(files)
    }

    /// Passes every file with its content to `visit`, in the order of the archive, or sorted for a folder.
    pub(crate) fn each(
        &self,
        mut visit: impl FnMut(&str, Stat, &mut dyn Read) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match &self.place {
            Place::Folder(path) => each_in_folder(path, "", &mut visit),
            Place::File(_) => {
                let mut walk = self.walk()?;
                while let Some((name, entry)) = walk.next()? {
                    let stat =
                        Stat { size: entry.size, modified: Some(entry.modified).filter(|time| *time > 0) };
                    visit(&name, stat, &mut walk.reader)?;
                }
                Ok(())
            }
        }
    }

    /// Prepares to fetch files one after the other; `wanted` is the number of uses of each.
    pub(crate) fn fetch(&self, wanted: HashMap<String, usize>) -> anyhow::Result<Fetch> {
        Ok(match &self.place {
            Place::Folder(path) => Fetch::Folder(path.clone()),
            Place::File(_) => Fetch::Stream { walk: Box::new(self.walk()?), wanted, spool: Spool::default() },
        })
    }

    fn walk(&self) -> anyhow::Result<Walk> {
        let Place::File(file) = &self.place else { anyhow::bail!("`{}` is a folder", self.label) };
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        let mut head = [0; 2];
        let count = file.read(&mut head)?;
        if count < 2 || head != [0x1f, 0x8b] {
            if count < 2 {
                anyhow::bail!(
                    "the file is empty, or has only begun to be written; fetch it again with `sonobuoy retrieve`"
                );
            }
            anyhow::bail!("could not make a gzip reader: gzip: invalid header; it is not a Sonobuoy archive");
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(Walk { reader: Reader::new(Gunzip::new(BufReader::with_capacity(128 << 10, file)), LIMITS) })
    }
}

impl Files {
    /// Opens a file at its start; `None` if it does not exist.
    pub(crate) fn open(&self, name: &str) -> anyhow::Result<Option<Box<dyn Content + '_>>> {
        match &self.folder {
            None => Ok(self.spool.open(name).map(|content| Box::new(content) as _)),
            Some(folder) => Ok(open_in(folder, name)?.map(|file| Box::new(file) as _)),
        }
    }

    /// The bytes of a small file.
    pub(crate) fn small(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(content) = self.open(name)? else { return Ok(None) };
        let limit = if SMALL.contains(&name) { MAX_SMALL_BYTES } else { MAX_HELD_BYTES };
        let mut bytes = Vec::new();
        content.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read `{name}`"))?;
        anyhow::ensure!(bytes.len() as u64 <= limit, "`{name}` is larger than {} MiB", limit >> 20);
        Ok(Some(bytes))
    }

    /// The names of the folders in `folder`.
    pub(crate) fn folders(&self, folder: &str) -> anyhow::Result<Vec<String>> {
        let mut names = std::collections::BTreeSet::new();
        match &self.folder {
            None => {
                for name in self.spool.names() {
                    let below = name.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
                    names.extend(
                        below.and_then(|rest| rest.split_once('/')).map(|(first, _)| first.to_owned()),
                    );
                }
            }
            Some(top) => {
                for entry in fs::read_dir(top.join(folder)).into_iter().flatten() {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        names.insert(entry.file_name().to_string_lossy().into_owned());
                    }
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Whether a file of that name exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.folder {
            None => self.spool.has(name),
            Some(folder) => clean(name).is_some_and(|name| folder.join(name).is_file()),
        }
    }
}

/// The error for a missing file, in the words of the original.
pub(crate) fn absent(name: &str) -> anyhow::Error {
    anyhow::anyhow!("failed to find file \"{name}\" in archive")
}

/// Returns the files of a source, in roughly their stored order.
pub(crate) enum Fetch {
    /// A folder, whose files are opened by name.
    Folder(PathBuf),
    /// An archive, whose files before the requested one are spooled.
    Stream {
        /// The position in the stream.
        walk: Box<Walk>,
        /// Number of outstanding uses of each file.
        wanted: HashMap<String, usize>,
        /// Files that were passed already.
        spool: Spool,
    },
}

impl Fetch {
    /// Copies a file to `out`, with `head` before it.
    pub(crate) fn copy(&mut self, name: &str, head: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Self::Folder(folder) => {
                let mut file = open_in(folder, name)?.ok_or_else(|| absent(name))?;
                out.write_all(head.as_bytes())?;
                io::copy(&mut file, out)?;
            }
            Self::Stream { walk, wanted, spool } => {
                while !spool.has(name) {
                    // A plugin may send a link, which has no content; that is not an error.
                    let Some((found, _)) = walk.next_with_links()? else { return Err(absent(name)) };
                    match wanted.get(&found) {
                        Some(1) if found == name => {
                            out.write_all(head.as_bytes())?;
                            copy(&mut walk.reader, out)?;
                            return Ok(());
                        }
                        Some(_) => spool.add(&found, &mut walk.reader).map_err(broken)?,
                        None => {}
                    }
                }
                let mut content = spool.open(name).ok_or_else(|| absent(name))?;
                out.write_all(head.as_bytes())?;
                io::copy(&mut content, out)?;
            }
        }
        Ok(())
    }
}

/// Copies and distinguishes errors of the two sides, since the reader of standard output may close it.
fn copy(input: &mut impl Read, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => out.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error.into())),
        }
    }
}

/// A pass over an archive.
pub(crate) struct Walk {
    reader: Reader<Gunzip<BufReader<File>>>,
}

impl Walk {
    /// The next regular file, its name normalised.
    fn next(&mut self) -> anyhow::Result<Option<(String, Entry)>> {
        while let Some((name, entry)) = self.next_with_links()? {
            if matches!(entry.kind, Kind::File) {
                return Ok(Some((name, entry)));
            }
        }
        Ok(None)
    }

    /// The next regular file or symbolic link.
    fn next_with_links(&mut self) -> anyhow::Result<Option<(String, Entry)>> {
        while let Some(entry) = self.reader.next_entry().map_err(|error| broken(error.into()))? {
            let length = entry.name.len();
            if length > MAX_NAME_BYTES {
                return Err(broken(anyhow::anyhow!(
                    "a name in it has {length} bytes, but at most {MAX_NAME_BYTES} are possible"
                )));
            }
            if let (Kind::File | Kind::Symlink, Some(name)) =
                (entry.kind, clean(&String::from_utf8_lossy(&entry.name)))
            {
                return Ok(Some((name, entry)));
            }
        }
        Ok(None)
    }
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
fn open_in(folder: &Path, name: &str) -> anyhow::Result<Option<File>> {
    let Some(name) = clean(name) else { return Ok(None) };
    let path = folder.join(name);
    let real = match path.canonicalize() {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other.at("cannot read", &path)?,
    };
    if !real.starts_with(folder.canonicalize()?) || !real.is_file() {
        return Ok(None);
    }
    File::open(&real).map(Some).at("cannot read", &path)
}

fn each_in_folder(
    folder: &Path,
    below: &str,
    visit: &mut impl FnMut(&str, Stat, &mut dyn Read) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = folder.join(below);
    let unreadable = || format!("cannot read `{}`", path.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?));
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (name, kind) in names {
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        if kind.is_dir() {
            each_in_folder(folder, &name, visit)?;
        } else if kind.is_file()
            && let Some(mut file) = open_in(folder, &name)?
        {
            visit(&name, Stat { size: file.metadata()?.len(), modified: None }, &mut file)?;
        }
    }
    Ok(())
}

/// Standard input as a seekable file: itself if it is one, else a copy.
fn standard_input() -> anyhow::Result<File> {
    let input = sys::stdin_file()?;
    if input.metadata().is_ok_and(|about| about.is_file()) {
        return Ok(input);
    }
    let mut copy = spool::temporary().context("cannot copy standard input to a temporary file")?;
    io::copy(&mut BufReader::with_capacity(128 << 10, input), &mut copy)
        .context("cannot copy standard input to a temporary file")?;
    Ok(copy.into_file())
}

/// The message of a system error without its number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}
