//! Reads archives: packed ones, folders with unpacked ones, or standard input.
//!
//! An archive is one compressed stream without random access. It is read once, and only as far as a
//! view needs: the files for later are extracted, small ones to memory, many or large ones to disk,
//! and others are seen as they pass.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Deserialize;

use super::facts::FactTables;
use super::files::{ContentReader, ExtractedFiles};
use super::survey::Survey;
use base::Joined as _;
use base::archive::{Gunzip, Kind, Limits, Reader};
use base::at::{At as _, entries, is_url};
use base::near;
use base::sys;
use base::temp;
use model::layout::{
    self, CONFIG, EXCLUDED, HEALTH, INFO, META, PARTIAL, PLUGINS, QUERY_ERRORS, RECEIVED,
    RESOURCES, RUN_LOG, SERVER_VERSION, WHY,
};

/// Far beyond the plugins of any run; reports have a section for each.
const MAX_PLUGINS: usize = 10_000;

/// Files that describe the whole run.
const ABOUT: [&str; 10] = [
    INFO,
    PARTIAL,
    CONFIG,
    RUN_LOG,
    SERVER_VERSION,
    HEALTH,
    QUERY_ERRORS,
    RECEIVED,
    WHY,
    EXCLUDED,
];

/// The name of the health of the cluster in the list of plugins.
pub(super) const HEALTH_NAME: &str = "sonobuoy";

/// An archive with its trees extracted.
pub struct OpenedArchive {
    /// The source of further files.
    pub source: ArchiveSource,
    /// The small files, trees included.
    pub files: ExtractedFiles,
    /// The requested plugins, in stored order, the cluster's health last.
    pub plugins: Vec<String>,
    /// Data from other files, depending on the depth.
    pub survey: Survey,
    /// Facts of nodes, depending on the depth.
    pub facts: FactTables,
}

/// The part of an archive to read; each level includes the previous one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// As the original: plugins only if the archive lists them, and no more than their trees.
    Trees,
    /// Also data about the run, to the end of the archive; unlisted plugins are found by their
    /// trees.
    Run,
    /// Also the duration of each test.
    Tests,
    /// Also facts of nodes, in tables.
    Nodes,
    /// Also all facts, and logs of pods.
    Page,
}

impl OpenedArchive {
    /// Reads the files needed for `plugin`, or for all plugins and the health of the cluster.
    pub fn open(archive: &str, plugin: Option<&str>, depth: Depth) -> Result<Self> {
        let source = ArchiveSource::open(archive)?;
        let mut survey = Survey::default();
        let mut facts = FactTables::new(depth == Depth::Page);
        // The files that the original's modes need and that have not been extracted; unknown before
        // the list of plugins.
        let mut missing = plugin.map(|name| match name {
            HEALTH_NAME => vec![HEALTH.to_owned()],
            name => vec![layout::tree(name)],
        });
        let mut has_objects = false;
        let files = source.extract(|files, name, size, content| {
            if depth == Depth::Trees {
                if missing.is_none() && files.has(INFO) {
                    let plugins = listed(files).unwrap_or_default();
                    // Without plugins, everything is read.
                    let never = plugins.is_empty().then(String::new);
                    let trees = plugins.iter().map(|name| layout::tree(name));
                    missing = Some(
                        never
                            .into_iter()
                            .chain([HEALTH.into()])
                            .chain(trees)
                            .collect(),
                    );
                }
                if let Some(missing) = &mut missing {
                    while missing.pop_if(|name| files.has(name)).is_some() {}
                    if missing.is_empty() {
                        // What follows is read all the same: the end of the stream shows whether it
                        // is whole.
                        return Ok(PassAction::Skip);
                    }
                }
            } else if let Some(found) = layout::delivered(name) {
                if plugin.is_none_or(|plugin| plugin == found.plugin) {
                    if depth >= Depth::Nodes {
                        facts.see(found, content)?;
                    }
                    if depth >= Depth::Tests && found.is_result && found.file.ends_with(".xml") {
                        // What can be read counts; the plugin's tree has the reason for the rest.
                        let _ = survey.junit(found.plugin, found.file, content);
                    }
                }
            } else {
                has_objects |= layout::resource_file(name).is_some();
                if depth >= Depth::Nodes {
                    facts.see_cluster(name, content);
                }
                if depth == Depth::Page {
                    survey.log(name, size, content)?;
                }
            }
            Ok(PassAction::keep_if(
                ABOUT.contains(&name) || layout::is_tree(name) || layout::is_definition(name),
            ))
        })?;
        facts.complete();
        let has_tree = |plugin: &String| files.has(&layout::tree(plugin));
        let mut plugins = listed(&files)?;
        if let Some(plugin) = plugin.map(str::to_owned) {
            if plugin != HEALTH_NAME && !has_tree(&plugin) {
                let with_tree = files.folders(PLUGINS).into_iter().filter(has_tree);
                let names = with_tree.joined(", ");
                let contents = if names.is_empty() {
                    "no results of any plugin".to_owned()
                } else {
                    format!("results of {names}")
                };
                bail!("{}; it has {contents}", absent(&layout::tree(&plugin)));
            }
            plugins = vec![plugin];
        } else if depth == Depth::Trees {
            ensure!(
                // Only a snapshot without a run has no plugins, but has the health of the cluster.
                !plugins.is_empty() || files.has(QUERY_ERRORS),
                "no plugins specified by either the --plugin flag or tarball metadata{}",
                if files.has(INFO) || files.has(CONFIG) {
                    ""
                } else {
                    "; it is not a Sonobuoy archive"
                }
            );
            plugins.push(HEALTH_NAME.into());
        } else {
            plugins.extend(files.folders(PLUGINS).into_iter().filter(has_tree));
            plugins = distinct(plugins)?;
            ensure!(
                !plugins.is_empty()
                    || has_objects
                    || [QUERY_ERRORS, HEALTH, WHY]
                        .iter()
                        .any(|name| files.has(name)),
                "it contains neither results nor a snapshot of a cluster; it is not a Sonobuoy \
                 archive"
            );
        }
        Ok(Self {
            source,
            files,
            plugins,
            survey,
            facts,
        })
    }

    /// Opens the tree of a plugin.
    pub fn tree(&self, plugin: &str) -> Result<ContentReader<'_>> {
        let name = layout::tree(plugin);
        self.files.open(&name).ok_or_else(|| absent(&name))
    }
}

/// The plugins that the archive lists.
fn listed(files: &ExtractedFiles) -> Result<Vec<String>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Info {
        plugins: Option<Vec<String>>,
    }
    let Some(bytes) = files.small(INFO)? else {
        return Ok(Vec::new());
    };
    let info = Option::<Info>::deserialize(&mut serde_json::Deserializer::from_slice(&bytes))
        .map_err(|error| anyhow!("`{INFO}`: {error}"))?;
    distinct(info.and_then(|info| info.plugins).unwrap_or_default())
}

/// Each plugin once, in order.
fn distinct(mut plugins: Vec<String>) -> Result<Vec<String>> {
    let mut names_so_far = HashSet::new();
    plugins.retain(|name| names_so_far.insert(name.clone()));
    ensure!(
        plugins.len() <= MAX_PLUGINS,
        "the archive names more than {MAX_PLUGINS} plugins; it is not one of a run"
    );
    Ok(plugins)
}

/// The word for the newest archive of the current folder.
const LATEST: &str = "latest";

/// Far beyond what an aggregator's disk holds: 5,000 nodes with 1,000 files each.
const LIMITS: Limits = Limits {
    entries: 10_000_000,
    total: 100 << 30,
    file: 100 << 30,
};

/// Longer than any path of a system; reports repeat names, so long ones would exhaust memory.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The archive of a given name: a file or an unpacked archive, or the newest archive of a folder;
/// `latest` is that of the current folder.
pub fn locate(name: &str) -> Result<String> {
    let folder = match name {
        LATEST if !Path::new(name).exists() => Path::new("."),
        name => Path::new(name),
    };
    let is_unpacked = || {
        [META, PLUGINS, RESOURCES]
            .iter()
            .any(|part| folder.join(part).exists())
    };
    if name == "-" || !folder.is_dir() || is_unpacked() {
        return Ok(name.to_owned());
    }
    let newest = archives(folder)?.into_iter().next().with_context(|| {
        format!(
            "no `*_sonobuoy_*.tar.gz` in `{}`; `sonobuoy retrieve` fetches one",
            folder.display()
        )
    })?;
    Ok(if folder == Path::new(".") {
        newest
    } else {
        folder.join(newest).display().to_string()
    })
}

/// The names of the archives in a folder, newest first.
pub fn archives(folder: &Path) -> Result<Vec<String>> {
    let names = entries(folder)?
        .into_iter()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names
        .filter(|name| layout::run_of_archive(name).is_some())
        .collect();
    names.sort_by_cached_key(|name| Reverse(Age::of(&folder.join(name))));
    Ok(names)
}

/// The newest of some archives.
pub fn newest(paths: &[PathBuf]) -> Option<&Path> {
    paths
        .iter()
        .max_by_key(|path| Age::of(path))
        .map(PathBuf::as_path)
}

/// What orders archives from the oldest to the newest. Their names state the minute in which their
/// runs began; within a minute, the time of the last change decides, since the rest of the name is
/// random.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    minute: String,
    modified: Option<SystemTime>,
    name: String,
}

impl Age {
    fn of(path: &Path) -> Self {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self {
            minute: layout::start_of_archive(&name)
                .unwrap_or_default()
                .to_owned(),
            modified: path.metadata().and_then(|about| about.modified()).ok(),
            name,
        }
    }
}

/// An archive or a folder.
pub struct ArchiveSource {
    /// A seekable archive; `None` for a folder.
    archive: Option<File>,
    /// The path, also in messages.
    pub label: String,
}

/// The treatment of a file during a pass.
pub enum PassAction {
    /// Extracts it, unless a file of that name was extracted before.
    Keep,
    /// Goes on to the next file.
    Skip,
    /// Ends the pass.
    Stop,
}

impl PassAction {
    /// Extracts a file if it is `wanted`.
    pub fn keep_if(wanted: bool) -> Self {
        if wanted { Self::Keep } else { Self::Skip }
    }
}

impl ArchiveSource {
    /// Opens the source of a name, as resolved by [`locate`]; `-` is standard input.
    pub fn open(name: &str) -> Result<Self> {
        if name == "-" {
            return Ok(Self {
                archive: Some(standard_input()?),
                label: "standard input".into(),
            });
        }
        let label = locate(name)?;
        let meta = fs::metadata(&label).map_err(|error| {
            if is_url(Path::new(name)) {
                return anyhow!(
                    "it is a URL, and this has to be a file; `curl -L {name} | sonobuoy results \
                     -` reads it"
                );
            }
            anyhow!(
                "stat {name}: {}{}",
                reason(&error),
                near::hint(name, [LATEST])
            )
        })?;
        // An archive is read several times.
        ensure!(
            meta.is_dir() || meta.is_file(),
            "it is neither a file nor a folder; `-` reads an archive from standard input"
        );
        let open =
            || File::open(&label).map_err(|error| anyhow!("open {label}: {}", reason(&error)));
        Ok(Self {
            archive: (!meta.is_dir()).then(open).transpose()?,
            label,
        })
    }

    /// Passes every file to `visit`, with its size, in the order of the archive, or sorted for a
    /// folder; it selects the files to extract and may end the pass.
    pub fn extract(
        &self,
        mut visit: impl FnMut(&ExtractedFiles, &str, u64, &mut dyn Read) -> Result<PassAction>,
    ) -> Result<ExtractedFiles> {
        let mut files = ExtractedFiles::default();
        let mut take = |name: &str, size: u64, content: &mut dyn Read| {
            let next = visit(&files, name, size, content)?;
            if let PassAction::Keep = next {
                files.add(name, content).map_err(broken)?;
            }
            anyhow::Ok(next)
        };
        let Some(archive) = &self.archive else {
            let folder = Path::new(&self.label);
            for name in names(folder)? {
                let Some(mut file) = open_in(folder, &name)? else {
                    continue;
                };
                if let PassAction::Stop = take(&name, file.metadata()?.len(), &mut file)? {
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
            if let PassAction::Stop = take(&name, entry.size, &mut reader)? {
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
        "the file is empty, or has only begun to be written; fetch it again with `sonobuoy \
         retrieve`"
    );
    ensure!(
        head == [0x1f, 0x8b],
        "could not make a gzip reader: gzip: invalid header; it is not a Sonobuoy archive"
    );
    file.rewind()?;
    Ok(Reader::new(
        Gunzip::new(BufReader::with_capacity(128 << 10, file)),
        LIMITS,
    ))
}

/// The error for a missing file, in the words of the original.
pub(crate) fn absent(name: &str) -> anyhow::Error {
    anyhow!("failed to find file \"{name}\" in archive")
}

fn broken(error: anyhow::Error) -> anyhow::Error {
    error.context("cannot read the archive")
}

/// The name without `./`, `//` and `..`, with slashes for Windows separators; `None` if it leads
/// outside.
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
    let Some(real) = base::if_exists(path.canonicalize()).at("cannot read", &path)? else {
        return Ok(None);
    };
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
            let name = if below.is_empty() {
                name
            } else {
                format!("{below}/{name}")
            };
            if entry.file_type()?.is_dir() {
                &mut folders
            } else {
                &mut files
            }
            .push(name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_end_of_an_archive_is_an_error_at_any_depth() {
        let folder = temp::Folder::new().unwrap();
        let run = folder.join("run");
        fs::create_dir_all(run.join(layout::plugin("p"))).unwrap();
        fs::create_dir_all(run.join(META)).unwrap();
        fs::write(run.join(INFO), r#"{"plugins":["p"]}"#).unwrap();
        fs::write(run.join(HEALTH), "null").unwrap();
        fs::write(run.join(layout::tree("p")), "name: p\nstatus: passed\n").unwrap();
        let path = folder.join("a.tar.gz");
        base::archive::pack_file(&run, &path)
            .unwrap()
            .0
            .commit(false)
            .unwrap();
        let whole = fs::read(&path).unwrap();
        let mut wrong_sum = whole.clone();
        let at = whole.len() - 8;
        wrong_sum[at] ^= 1;
        let name = path.display().to_string();
        for depth in [Depth::Trees, Depth::Run, Depth::Page] {
            let open = |bytes: &[u8]| {
                fs::write(&path, bytes).unwrap();
                OpenedArchive::open(&name, None, depth).map(|archive| archive.plugins.len())
            };
            assert!(open(&whole).is_ok());
            assert!(open(&whole[..whole.len() - 4]).is_err(), "cut");
            assert!(open(&wrong_sum).is_err(), "wrong checksum");
        }
    }

    #[test]
    fn only_a_marked_archive_is_unfinished() {
        let folder = temp::Folder::new().unwrap();
        fs::create_dir_all(folder.join(layout::plugin("p"))).unwrap();
        fs::create_dir_all(folder.join(META)).unwrap();
        fs::write(folder.join(CONFIG), "{}").unwrap();
        fs::write(folder.join(layout::tree("p")), "name: p\nstatus: passed\n").unwrap();
        let headline = || {
            let name = folder.display().to_string();
            let opened = OpenedArchive::open(&name, None, Depth::Run).unwrap();
            super::super::Report::read(&opened, None)
                .unwrap()
                .headline()
        };
        assert!(!headline().contains("the run continues"));
        fs::write(folder.join(PARTIAL), "").unwrap();
        assert!(headline().contains("the run continues"));
    }
}
