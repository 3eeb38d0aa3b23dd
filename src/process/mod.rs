//! Everything a plugin sent, files and error reports, into its `sonobuoy_results.yaml`.
//!
//! One file that cannot be read gives one item that says why; it never fails the whole. `apart` does this in a process
//! of its own with bounds of its own.

mod apart;
mod failure;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod gojson;
mod junit;

pub(crate) use apart::{COMMAND, child, in_program, limits, process_apart, unprocessed};
#[cfg(fuzzing)]
pub(crate) use fuzz::{file as fuzz_file, tree as fuzz_tree};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::item::read::{self, Visit, Writer};
use crate::item::tree::{Finished, Tree};
use crate::item::{FAILED, Item, PASSED, Tally, UNKNOWN};
use crate::layout::{ERROR_FILE, ERRORS, RESULTS, TREE};
use crate::plugin;

/// How large an error report may be; it holds a pod at most.
const ERROR_LIMIT: u64 = 16 << 20;
/// How large a manual result with anchors may be; it is held in memory.
const EXPANDED_LIMIT: u64 = 4 << 20;

/// How the files of a plugin are to be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// The plugin's name.
    pub name: String,
    /// Whether there is a result for each node.
    pub per_node: bool,
    /// The result format; junit, e2e, gojson, manual, anything else is raw.
    pub format: String,
    /// Which files to read, by base name; none leaves that to the format.
    pub files: Vec<String>,
}

impl From<&plugin::Config> for Rules {
    fn from(config: &plugin::Config) -> Self {
        Self {
            name: config.plugin_name.clone(),
            per_node: config.driver == plugin::Driver::DaemonSet,
            format: config.result_format.clone(),
            files: config.result_files.clone(),
        }
    }
}

/// What the results of a plugin came to, or those of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// `passed`, `failed`, `unknown`, or a sum of custom statuses.
    pub status: String,
    /// Leaves by status.
    pub counts: BTreeMap<String, u64>,
    /// The same for each node of a plugin that runs on each: a node that also reported an error is there twice.
    pub nodes: Vec<(String, Outcome)>,
}

/// Reads `results/` and `errors/` in a plugin's folder and writes `sonobuoy_results.yaml` there.
pub(crate) fn process(dir: &Path, rules: &Rules) -> anyhow::Result<Outcome> {
    let path = dir.join(TREE);
    for custom in [false, true] {
        let mut run = Run { dir, rules, tree: Tree::create(&path, custom)?, nodes: Vec::new() };
        run.everything().with_context(|| format!("cannot process `{}`", dir.display()))?;
        if let Finished::Written(tally) = run.tree.finish(&path)? {
            let status = tally.status(tally.has_custom());
            let counts = counts(&tally, &status);
            return Ok(Outcome { status, counts, nodes: run.nodes });
        }
    }
    anyhow::bail!("the results in `{}` changed while they were read", dir.display())
}

struct Run<'a> {
    dir: &'a Path,
    rules: &'a Rules,
    tree: Tree,
    nodes: Vec<(String, Outcome)>,
}

/// What a walk looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Results,
    Errors,
}

impl Run<'_> {
    fn everything(&mut self) -> anyhow::Result<()> {
        let root = Item { name: self.rules.name.clone(), ..Item::default() };
        self.tree.enter(&with_meta(root, &[("type", "summary")]), UNKNOWN)?;
        for (folder, look) in [(RESULTS, Look::Results), (ERRORS, Look::Errors)] {
            if self.rules.per_node {
                self.each_node(folder, look)?;
            } else {
                self.walk(Path::new(folder), look)?;
            }
        }
        Ok(())
    }

    fn each_node(&mut self, folder: &str, look: Look) -> anyhow::Result<()> {
        for (folder_name, kind) in list(&self.dir.join(folder))? {
            if !kind.is_dir() {
                continue;
            }
            let name = folder_name.to_string_lossy().into_owned();
            let node = Item { name: name.clone(), ..Item::default() };
            self.tree.enter(&with_meta(node, &[("type", "node")]), UNKNOWN)?;
            self.walk(&Path::new(folder).join(folder_name), look)?;
            let (tally, status) = match look {
                // Nobody was there to pass anything.
                Look::Errors => self.tree.leave_skipped(),
                Look::Results => self.tree.leave(None),
            };
            let counts = counts(&tally, &status);
            self.nodes.push((name, Outcome { status, counts, nodes: Vec::new() }));
        }
        Ok(())
    }

    /// All files below `folder` that are looked for, in the order of their names.
    fn walk(&mut self, folder: &Path, look: Look) -> anyhow::Result<()> {
        for (name, kind) in list(&self.dir.join(folder))? {
            let path = folder.join(&name);
            // Names need not be UTF-8; only what is shown of them is.
            let name = name.to_string_lossy();
            if kind.is_dir() {
                self.walk(&path, look)?;
            } else if look == Look::Errors {
                if name == ERROR_FILE {
                    self.error(&path)?;
                }
            } else if self.selected(&name) {
                self.file(&path, &name)?;
            }
        }
        Ok(())
    }

    fn selected(&self, name: &str) -> bool {
        if !self.rules.files.is_empty() {
            return self.rules.files.iter().any(|file| file == name);
        }
        match self.rules.format.as_str() {
            "junit" | "e2e" => name.ends_with(".xml"),
            "gojson" => name.ends_with(".json"),
            "manual" => name.ends_with(".yaml") || name.ends_with(".yml"),
            _ => true,
        }
    }

    fn file(&mut self, path: &Path, name: &str) -> anyhow::Result<()> {
        let item = Item { name: name.to_owned(), ..Item::default() };
        let shown = shown(path);
        let typed = with_meta(item.clone(), &[("file", &shown), ("type", "file")]);
        let mark = self.tree.mark();
        let result = match self.rules.format.as_str() {
            "junit" | "e2e" => self.open(path).and_then(|file| {
                self.tree.enter(&typed, PASSED)?;
                junit::read(BufReader::with_capacity(64 << 10, file), &mut self.tree)?;
                self.tree.leave(None);
                Ok(())
            }),
            "gojson" => self.open(path).and_then(|file| {
                self.tree.enter(&typed, PASSED)?;
                let result = gojson::read(BufReader::with_capacity(64 << 10, file), &mut self.tree);
                // What was read before an error is kept.
                let error = result.err().map(|error| format!("{error:#}"));
                self.tree.leave(error.as_deref());
                Ok(())
            }),
            "manual" => self.manual(path, &typed),
            _ => {
                let item = with_meta(Item { status: PASSED.into(), ..item }, &[("file", &shown)]);
                return match fs::metadata(self.dir.join(path)) {
                    Ok(_) => Ok(self.tree.leaf(&item)?),
                    Err(error) => {
                        let failed = Item { status: FAILED.into(), ..item };
                        Ok(self.tree.leaf(&with_meta(failed, &[("error", &error.to_string())]))?)
                    }
                };
            }
        };
        if let Err(error) = result {
            self.tree.back(mark)?;
            let reason = format!("{error:#}");
            log::warn!("cannot read the result `{}`: {reason}", self.dir.join(path).display());
            let unknown = Item { status: UNKNOWN.into(), ..typed };
            // As the original has it: only the log says what is wrong within a manual result.
            let silent = self.rules.format == "manual" && self.open(path).is_ok();
            let why = [("error", reason.as_str())];
            let why = if silent { &why[..0] } else { &why[..] };
            self.tree.leaf(&with_meta(unknown, why))?;
        }
        Ok(())
    }

    fn manual(&mut self, path: &Path, typed: &Item) -> anyhow::Result<()> {
        let mark = self.tree.mark();
        let result = read::read(
            self.open(path)?,
            Writer::Plugin,
            &mut Manual { tree: &mut self.tree, file: typed, depth: 0 },
        );
        match result {
            Err(error) if error.is::<read::Reference>() => {
                self.tree.back(mark)?;
                let mut text = String::new();
                let size = self.open(path)?.take(EXPANDED_LIMIT + 1).read_to_string(&mut text)?;
                anyhow::ensure!(size as u64 <= EXPANDED_LIMIT, "a file this large may not use anchors");
                read::read_expanded(&text, &mut Manual { tree: &mut self.tree, file: typed, depth: 0 })
            }
            other => other,
        }
    }

    fn error(&mut self, path: &Path) -> anyhow::Result<()> {
        let item = match self.open(path) {
            Ok(file) => failure::read(BufReader::new(file.take(ERROR_LIMIT)), ERROR_FILE),
            Err(error) => {
                let unread = Item { name: ERROR_FILE.into(), status: UNKNOWN.into(), ..Item::default() };
                with_meta(unread, &[("error", &format!("{error:#}"))])
            }
        };
        Ok(self.tree.leaf(&with_meta(item, &[("file", &shown(path))]))?)
    }

    /// Opens a regular file of the plugin; links that lead elsewhere and pipes are refused.
    fn open(&self, path: &Path) -> anyhow::Result<File> {
        let full = self.dir.join(path);
        let real = full.canonicalize()?;
        anyhow::ensure!(
            real.starts_with(self.dir.canonicalize()?),
            "it is a link that leads out of the results"
        );
        anyhow::ensure!(fs::metadata(&real)?.is_file(), "it is not a regular file");
        Ok(File::open(real)?)
    }
}

/// Takes a manual result over: everything but the name and meta of its root, which are those of the file.
struct Manual<'t> {
    tree: &'t mut Tree,
    file: &'t Item,
    depth: usize,
}

impl Manual<'_> {
    fn item(&self, item: Item) -> Item {
        if self.depth > 0 {
            return item;
        }
        Item { name: self.file.name.clone(), meta: self.file.meta.clone(), ..item }
    }
}

impl Visit for Manual<'_> {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        let item = self.item(item);
        self.depth += 1;
        Ok(self.tree.enter(&item, &item.status)?)
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.depth -= 1;
        self.tree.leave(None);
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        let item = self.item(item);
        Ok(self.tree.leaf(&item)?)
    }
}

/// Leaves by status; a group without any is one itself.
fn counts(tally: &Tally, status: &str) -> BTreeMap<String, u64> {
    match tally.children() {
        0 => BTreeMap::from([(status.to_owned(), 1)]),
        _ => tally.counts().clone(),
    }
}

/// A path below the folder of a plugin as archives write it, whatever this system has between folders.
fn shown(path: &Path) -> String {
    path.iter().map(OsStr::to_string_lossy).collect::<Vec<_>>().join("/")
}

fn with_meta(mut item: Item, meta: &[(&str, &str)]) -> Item {
    item.meta.extend(meta.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    item
}

/// The names in a folder, sorted, with what they are; none if there is no such folder.
fn list(dir: &Path) -> anyhow::Result<Vec<(OsString, fs::FileType)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("cannot read `{}`", dir.display()))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        names.push((entry.file_name(), entry.file_type()?));
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sent_nothing_counts_as_one_that_is_unknown() {
        let dir = base::temp::Folder::new().unwrap();
        let rules =
            |per_node| Rules { name: "p".into(), per_node, format: "junit".into(), files: Vec::new() };
        fs::create_dir_all(dir.join("results/n1")).unwrap();
        let unknown =
            Outcome { status: UNKNOWN.into(), counts: [(UNKNOWN.into(), 1)].into(), nodes: Vec::new() };
        assert_eq!(process(&dir, &rules(false)).unwrap(), unknown);
        let nodes = vec![("n1".to_owned(), unknown.clone())];
        assert_eq!(process(&dir, &rules(true)).unwrap(), Outcome { nodes, ..unknown });
    }
}
