//! Converts all files and error reports of a plugin to its `sonobuoy_results.yaml`.
//!
//! An unreadable file becomes one item with the reason, and so does an expected result without
//! files; neither fails the whole. Memory is bounded for any input, time by
//! [`ReadingRules::limit`].

mod ending;
mod failure;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod gojson;
mod junit;
mod merge;

#[cfg(any(fuzzing, test))]
pub use fuzz::{file as fuzz_file, tree as fuzz_tree};

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Deserialize;

use base::archive::Dropped;
use base::at::{At as _, entries};
use base::json::json;
use base::{Joined as _, clock, visible};
use ending::SuiteEnd;
use merge::AttemptIndex;
use model::item::read::{self, Writer};
use model::item::tree::Tree;
use model::item::{
    ERROR, FAILED, FILE, Item, OTHER, PASSED, SKIPPED, Step, UNKNOWN, is_known, plain,
};
use model::layout::{self, ERROR_FILE, ERRORS, RESULTS, TREE};
use model::plugin;
use model::verdict::{Outcome, SuiteContent, Tally};

/// Maximum size of an error report, which contains at most a pod.
const ERROR_LIMIT: u64 = 16 << 20;
/// Maximum size of a manual result that is held in memory: one with anchors, and one in JSON.
const EXPANDED_LIMIT: u64 = 4 << 20;

/// Maximum size of one node's part of the tree, if there are several nodes; 20,000 tests take 5
/// MiB.
const MAX_NODE_BYTES: u64 = 64 << 20;

/// Maximum unreadable files of a plugin named in the log: each node often has the same problem.
const MAX_LOGGED_ERRORS: u64 = 5;

/// The end of the names of files that may be logs of a suite.
const LOG_SUFFIX: &str = ".log";

/// Maximum size of a manual result whose keys are named.
const MAX_NAMED_KEYS_BYTES: usize = 64 << 10;

/// Maximum files named where none could be read, and keys where none is known.
const MAX_NAMED: usize = 3;

/// Maximum distinct statuses of a node; a plugin may invent one for each test.
const MAX_NODE_STATUSES: usize = 32;
/// Maximum length of a node's status, which may combine many.
const MAX_STATUS_BYTES: usize = 4 << 10;

/// An expected result, as listed in the archive.
#[derive(Clone, Deserialize)]
pub struct Expected {
    /// Name of the plugin.
    pub plugin: String,
    /// Name of the node.
    pub node: String,
    /// Why the result is missing.
    #[serde(default)]
    pub error: Option<String>,
    /// What could not be kept of its archive.
    #[serde(default)]
    pub dropped: Dropped,
}

/// Rules for reading the files of a plugin.
#[derive(Default)]
pub struct ReadingRules {
    /// Name of the plugin.
    pub name: String,
    /// Whether there is a result for each node.
    pub per_node: bool,
    /// Format of the results: junit, e2e, gojson, manual; any other is raw.
    pub format: String,
    /// Base names of the files to read; if empty, the format decides.
    pub files: Vec<String>,
    /// Sibling plugins whose results are merged into this one's.
    pub parts: Vec<String>,
    /// Sibling folders with further attempts at failed tests, in order.
    pub attempts: Vec<String>,
    /// Name of the interrupted run that this one resumes, and its finished tests with their
    /// errors, empty for passed ones.
    pub resumed: (String, BTreeMap<String, String>),
    /// Expected results of the plugin and its parts.
    pub expected: Vec<Expected>,
    /// Deadline, and the time limit it results from.
    pub limit: Option<(Instant, Duration)>,
}

impl ReadingRules {
    /// Fails after the deadline.
    fn check_time(&self) -> io::Result<()> {
        match self.limit {
            Some((end, limit)) if Instant::now() >= end => Err(io::Error::other(format!(
                "reading them took more than {} (`Limits.Processing.Time`)",
                clock::duration(limit)
            ))),
            _ => Ok(()),
        }
    }

    fn selects(&self, name: &str) -> bool {
        if !self.files.is_empty() {
            return self.files.iter().any(|file| file == name);
        }
        match self.format.as_str() {
            format if plugin::is_junit(format) => name.ends_with(".xml"),
            "gojson" => name.ends_with(".json"),
            "manual" => name.ends_with(".yaml") || name.ends_with(".yml"),
            _ => true,
        }
    }

    /// Why none of the files of a result was read.
    fn nothing_read(&self, found: &[String]) -> String {
        let named = match found {
            [] => return "the result contains no file".into(),
            found if found.len() > MAX_NAMED => {
                format!(
                    "{} and {} more",
                    quoted(&found[..MAX_NAMED]),
                    found.len() - MAX_NAMED
                )
            }
            found => quoted(found),
        };
        let format = &self.format;
        let pattern = match format.as_str() {
            _ if !self.files.is_empty() => {
                let files = quoted(&self.files);
                return format!(
                    "no {files} in the result (found {named}); `result-files` names what is read"
                );
            }
            format if plugin::is_junit(format) => "*.xml",
            "gojson" => "*.json",
            _ => "*.yaml",
        };
        format!(
            "no {pattern} in the result (found {named}); `result-format: {format}` reads {pattern}"
        )
    }
}

/// Outcome of a plugin, or of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginOutcome {
    /// `passed`, `failed`, `unknown`, or a sum of custom statuses.
    pub status: String,
    /// Number of items without children by status.
    pub counts: BTreeMap<String, u64>,
    /// Outcomes by node, for a plugin that runs on each: a node that also reported an error
    /// appears twice. With parts or further attempts, outcomes of these.
    pub nodes: Vec<(String, PluginOutcome)>,
    /// Expected results without files.
    pub missing: usize,
}

/// Reads `results/` and `errors/` of a plugin and its parts, and writes `sonobuoy_results.yaml`
/// into the plugin's folder.
pub fn process(dir: &Path, rules: &ReadingRules) -> Result<PluginOutcome> {
    let path = dir.join(TREE);
    let index = AttemptIndex::read(dir, rules)?;
    let mut builder = TreeBuilder::new(dir, rules, &index, &path)?;
    builder
        .everything(dir)
        .and_then(|()| Ok(rules.check_time()?))
        .at("cannot process", dir)?;
    builder.finish(&path)
}

/// The outcome of one node of a plugin, from the files of its result, before the plugin has ended.
/// Uses the file `scratch`, and leaves none.
pub fn process_node(
    dir: &Path,
    rules: &ReadingRules,
    node: &str,
    scratch: &Path,
) -> Result<PluginOutcome> {
    let index = AttemptIndex::default();
    let mut builder = TreeBuilder::new(dir, rules, &index, scratch)?;
    builder
        .result_of_node(node)
        .and_then(|()| Ok(rules.check_time()?))
        .at("cannot process", dir.join(RESULTS).join(node))?;
    let outcome = builder.finish(scratch)?;
    fs::remove_file(scratch).at("cannot remove", scratch)?;
    Ok(outcome)
}

impl PluginOutcome {
    /// Derives the outcome from counts of items.
    fn of(counts: BTreeMap<String, u64>) -> Self {
        Self {
            status: Tally::of(&counts).status(false),
            counts,
            ..Self::default()
        }
    }

    /// The outcome of a node or part of this name: the worst, since a node whose results are there
    /// and have failed all the same is listed twice.
    pub fn of_node(&self, name: &str) -> Option<&Self> {
        let outcomes = self
            .nodes
            .iter()
            .filter(|(other, _)| other == name)
            .map(|(_, outcome)| outcome);
        // Of equal ones, the first.
        outcomes
            .rev()
            .max_by_key(|outcome| Outcome::of(&outcome.status, &outcome.counts))
    }
}

/// Writes the tree of a plugin whose results could not be processed: one item with the reason.
pub fn unprocessed(dir: &Path, rules: &ReadingRules, reason: &str) -> Result<()> {
    let path = dir.join(TREE);
    let mut tree = Tree::create(&path)?;
    tree.enter(
        &Item::new(&rules.name, "").with_meta("type", "summary"),
        UNKNOWN,
    )?;
    tree.item(&Item::new("post-processing", FAILED).with_meta("error", reason))?;
    tree.finish(&path).map(drop)
}

/// A file whose reads fail after the deadline.
struct Timed<'a> {
    file: File,
    rules: &'a ReadingRules,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.rules.check_time()?;
        self.file.read(buffer)
    }
}

/// The files of a plugin.
struct PluginFiles<'a> {
    dir: PathBuf,
    rules: &'a ReadingRules,
    /// Prefix of their paths in the tree.
    prefix: String,
}

impl<'a> PluginFiles<'a> {
    /// Files of the plugin in `dir`, or of a sibling.
    fn beside(dir: &Path, plugin: &str, rules: &'a ReadingRules) -> Self {
        if plugin == rules.name {
            return Self {
                dir: dir.to_owned(),
                rules,
                prefix: String::new(),
            };
        }
        Self {
            dir: dir.with_file_name(plugin),
            rules,
            prefix: layout::beside(plugin),
        }
    }

    /// Path relative to the processed plugin's folder, with the separators of archives.
    fn archive_path(&self, path: &Path) -> String {
        self.prefix.clone() + &path.iter().map(OsStr::to_string_lossy).joined("/")
    }

    /// Path and displayed name of each file below `folder`, sorted; names need not be UTF-8.
    fn list(&self, folder: &Path) -> Result<Vec<(PathBuf, String)>> {
        let mut files = Vec::new();
        for entry in list(&self.dir.join(folder))? {
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                files.append(&mut self.list(&path)?);
            } else {
                files.push((path, entry.file_name().to_string_lossy().into_owned()));
            }
        }
        Ok(files)
    }

    /// Opens a regular file of the plugin; rejects pipes, and links that lead outside.
    fn open(&self, path: &Path) -> Result<Timed<'a>> {
        let real = self.dir.join(path).canonicalize()?;
        ensure!(
            real.starts_with(self.dir.canonicalize()?),
            "it is a link that leads out of the results"
        );
        ensure!(fs::metadata(&real)?.is_file(), "it is not a regular file");
        Ok(Timed {
            file: File::open(real)?,
            rules: self.rules,
        })
    }

    /// Opens a file that says how a plugin's tests ended, which an empty one does not.
    fn open_result(&self, path: &Path) -> Result<Timed<'a>> {
        let file = self.open(path)?;
        // The first word is the original's whole reason.
        ensure!(file.file.metadata()?.len() > 0, "EOF: the file is empty");
        Ok(file)
    }
}

struct TreeBuilder<'a> {
    files: PluginFiles<'a>,
    rules: &'a ReadingRules,
    index: &'a AttemptIndex,
    tree: Tree,
    /// Each node with its status, in a tree without custom statuses and in one with them, and its
    /// counts.
    nodes: Vec<(String, [String; 2], BTreeMap<String, u64>)>,
    parts: Vec<(String, PluginOutcome)>,
    /// End of the current node's part in the tree.
    limit: u64,
    /// Number of expected results without files.
    missing: usize,
    unreadable: u64,
    /// Tests in the tree so far, if there are parts.
    written_tests: HashSet<String>,
    /// Tests of the previous run that are not written yet.
    resumed: BTreeMap<String, String>,
    /// What the JUnit files of each folder of the current result contain.
    suites: BTreeMap<PathBuf, SuiteContent>,
}

impl<'a> TreeBuilder<'a> {
    /// An empty tree, which becomes the file `path`.
    fn new(
        dir: &Path,
        rules: &'a ReadingRules,
        index: &'a AttemptIndex,
        path: &Path,
    ) -> Result<Self> {
        Ok(Self {
            files: PluginFiles::beside(dir, &rules.name, rules),
            rules,
            index,
            tree: Tree::create(path)?,
            nodes: Vec::new(),
            parts: Vec::new(),
            limit: u64::MAX,
            missing: 0,
            unreadable: 0,
            written_tests: HashSet::new(),
            resumed: rules.resumed.1.clone(),
            suites: BTreeMap::new(),
        })
    }

    /// Completes the file `path`.
    fn finish(self, path: &Path) -> Result<PluginOutcome> {
        if let more @ 1.. = self.unreadable.saturating_sub(MAX_LOGGED_ERRORS) {
            log::warn!(
                "cannot read {more} more results of plugin `{}`",
                self.rules.name
            );
        }
        let tally = self.tree.finish(path)?;
        let custom = tally.has_custom();
        let nodes = self
            .nodes
            .into_iter()
            .map(|(name, [verdict, sum], counts)| {
                (
                    name,
                    PluginOutcome {
                        status: if custom { sum } else { verdict },
                        counts,
                        ..PluginOutcome::default()
                    },
                )
            });
        let attempts = self
            .index
            .attempts
            .iter()
            .cloned()
            .map(|(name, counts)| (name, PluginOutcome::of(counts)));
        let status = tally.status(custom);
        let counts = tally.counts_or(&status);
        Ok(PluginOutcome {
            status,
            counts,
            nodes: nodes.chain(self.parts).chain(attempts).collect(),
            missing: self.missing,
        })
    }

    /// Reads the result of one node.
    fn result_of_node(&mut self, node: &str) -> Result<()> {
        self.tree.enter(
            &Item::new(&self.rules.name, "").with_meta("type", "summary"),
            UNKNOWN,
        )?;
        let (plugin, folder) = (&self.rules.name, Path::new(RESULTS).join(node));
        self.node(node, false, |run| {
            let nothing_read = run.folder(&folder)?;
            run.dropped(plugin, Some(node))?;
            Ok(nothing_read)
        })
    }

    fn everything(&mut self, dir: &Path) -> Result<()> {
        self.tree.enter(
            &Item::new(&self.rules.name, "").with_meta("type", "summary"),
            UNKNOWN,
        )?;
        for source in std::iter::once(&self.rules.name).chain(&self.rules.parts) {
            self.files = PluginFiles::beside(dir, source, self.rules);
            let before = self.tree.counted();
            for folder in [RESULTS, ERRORS] {
                if self.rules.per_node {
                    self.each_node(source, folder)?;
                } else if let Some(reason) = self.folder(Path::new(folder))?
                    && !list(&self.files.dir.join(folder))?.is_empty()
                {
                    let item = Item::new(folder, UNKNOWN).with_meta(ERROR, &reason);
                    self.tree.item(&item)?;
                }
            }
            if !self.rules.per_node {
                self.dropped(source, None)?;
            }
            self.missing(source)?;
            if *source != self.rules.name {
                let mut counts = self.tree.counted();
                counts.retain(|status, count| {
                    *count -= before.get(status).copied().unwrap_or_default();
                    *count > 0
                });
                self.parts.push((source.clone(), PluginOutcome::of(counts)));
            }
        }
        // Tests that no file lists.
        for (name, why) in std::mem::take(&mut self.resumed) {
            let mut item = Item {
                name,
                ..Item::default()
            };
            self.index.resume(&mut item, why, &self.rules.resumed.0);
            self.tree.item(&item)?;
        }
        Ok(())
    }

    fn each_node(&mut self, plugin: &str, folder: &str) -> Result<()> {
        for entry in list(&self.files.dir.join(folder))? {
            if entry.file_type()?.is_dir() {
                let path = Path::new(folder).join(entry.file_name());
                let (node, is_error) = (
                    entry.file_name().to_string_lossy().into_owned(),
                    folder == ERRORS,
                );
                self.node(&node, is_error, |run| {
                    let nothing_read = run.folder(&path)?;
                    if !is_error {
                        run.dropped(plugin, Some(&node))?;
                    }
                    Ok(nothing_read)
                })?;
            }
        }
        Ok(())
    }

    /// Adds an item for each result of `plugin`, or only that of `node`, of which something could
    /// not be kept: what is missing may have failed.
    fn dropped(&mut self, plugin: &str, node: Option<&str>) -> Result<()> {
        let rules = self.rules;
        for result in &rules.expected {
            let is_on_node = node.is_none_or(|node| result.node == node);
            if result.plugin == plugin && is_on_node && !result.dropped.is_empty() {
                let message = result.dropped.to_string();
                let item = Item::new("archive", UNKNOWN).with_meta("error", &message);
                self.tree.item(&item)?;
            }
        }
        Ok(())
    }

    fn node(
        &mut self,
        name: &str,
        is_error: bool,
        inside: impl FnOnce(&mut Self) -> Result<Option<String>>,
    ) -> Result<()> {
        self.tree
            .enter(&Item::new(name, "").with_meta("type", "node"), UNKNOWN)?;
        self.limit = self.tree.written() + MAX_NODE_BYTES;
        let nothing_read = inside(self)?;
        // Without a result, no test can have passed.
        let (tally, statuses) = self.tree.leave(nothing_read.as_deref(), is_error);
        let mut counts = tally.counts_or(&statuses[0]);
        if counts.len() > MAX_NODE_STATUSES {
            for (status, count) in std::mem::take(&mut counts) {
                let status = if is_known(&status) {
                    status
                } else {
                    OTHER.into()
                };
                *counts.entry(status).or_default() += count;
            }
        }
        let short = |status: String| {
            if status.len() <= MAX_STATUS_BYTES {
                status
            } else {
                OTHER.into()
            }
        };
        self.nodes
            .push((name.to_owned(), statuses.map(short), counts));
        Ok(())
    }

    /// Adds a failure for each expected result of `plugin` that has no files.
    fn missing(&mut self, plugin: &str) -> Result<()> {
        for Expected { node, error, .. } in self
            .rules
            .expected
            .iter()
            .filter(|one| one.plugin == plugin)
        {
            let at = |folder: &str| self.files.dir.join(folder).join(node);
            let why = match error {
                _ if at(ERRORS).join(ERROR_FILE).is_file() => continue,
                None if at(RESULTS).is_dir() => continue,
                Some(why) => why,
                None => "its files are missing",
            };
            self.missing += 1;
            let report = json!({ "error": why }).to_string();
            let item = failure::read(report.as_bytes()).with_meta("error", why);
            if self.rules.per_node {
                self.node(node, true, |run| run.tree.item(&item).map(|()| None))?;
            } else {
                self.tree.item(&item)?;
            }
        }
        Ok(())
    }

    /// Reads all files below a folder of results or errors that match. Returns the reason if that
    /// is no file of a result.
    fn folder(&mut self, folder: &Path) -> Result<Option<String>> {
        let is_error = folder.starts_with(ERRORS);
        let files = self.files.list(folder)?;
        let mut is_nothing_read = true;
        for (path, name) in &files {
            match is_error {
                true if name == ERROR_FILE => self.error(path)?,
                false if self.rules.selects(name) && !self.repeats(folder, path) => {
                    is_nothing_read = false;
                    self.file(path, name)?;
                }
                _ => {}
            }
        }
        self.check_logs(&files)?;
        let names: Vec<_> = files.into_iter().map(|(_, name)| name).collect();
        Ok((is_nothing_read && !is_error).then(|| self.rules.nothing_read(&names)))
    }

    /// Whether a path is a link to a file that is read by its own name, or to a folder, whose files
    /// are. Of raw results each name counts, as for the original.
    fn repeats(&self, folder: &Path, path: &Path) -> bool {
        let dir = &self.files.dir;
        let format = self.rules.format.as_str();
        let is_read = plugin::is_junit(format) || matches!(format, "gojson" | "manual");
        if !is_read || !dir.join(path).is_symlink() {
            return false;
        }
        let [Ok(target), Ok(folder)] = [path, folder].map(|path| dir.join(path).canonicalize())
        else {
            return false;
        };
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        target.starts_with(folder) && (target.is_dir() || self.rules.selects(&name))
    }

    /// Adds an unknown item for each log of a suite that claims more than the JUnit files beside it
    /// contain.
    fn check_logs(&mut self, files: &[(PathBuf, String)]) -> Result<()> {
        let suites = std::mem::take(&mut self.suites);
        for (path, name) in files {
            let Some(content) = path.parent().and_then(|folder| suites.get(folder)) else {
                continue;
            };
            if !name.ends_with(LOG_SUFFIX) {
                continue;
            }
            // One that cannot be read claims nothing.
            let log = self.files.open(path).ok();
            let Some(claims) = log
                .and_then(|log| model::suite_log::read_end(log.file).ok())
                .and_then(|log| log.claims())
            else {
                continue;
            };
            // A log counts the tests that ran.
            let mut ran = SuiteContent {
                tests: content.tests.saturating_sub(content.not_run),
                ..*content
            };
            if let Some(reason) = ran.refute(&claims) {
                let item = Item::new(name, UNKNOWN).with_meta(FILE, &self.files.archive_path(path));
                self.tree.item(&item.with_meta(ERROR, &reason))?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &str) -> Result<()> {
        self.rules.check_time()?;
        let item = Item::new(name, "").with_meta(FILE, &self.files.archive_path(path));
        let typed = item.clone().with_meta("type", "file");
        let mark = self.tree.mark();
        self.tree.limit(self.limit);
        let result = match self.rules.format.as_str() {
            format if plugin::is_junit(format) => self.junit(path, &typed),
            "gojson" => self.files.open_result(path).and_then(|file| {
                self.tree.enter(&typed, PASSED)?;
                let result = gojson::read(file, &typed.meta[FILE], &mut self.tree);
                // Items before an error are kept, and one more says that the rest is unknown.
                let error = result.err().map(|error| format!("{error:#}"));
                if let Some(error) = &error
                    && !self.tree.counted().is_empty()
                {
                    self.tree.item(&item.with_meta(ERROR, error))?;
                }
                self.tree.leave(error.as_deref(), false);
                Ok(())
            }),
            "manual" => self.manual(path, &typed),
            _ => {
                self.tree.limit(u64::MAX);
                let item = match fs::metadata(self.files.dir.join(path)) {
                    Ok(_) => Item {
                        status: PASSED.into(),
                        ..item
                    },
                    Err(error) => Item {
                        status: FAILED.into(),
                        ..item
                    }
                    .with_meta("error", &visible::without_codes(&error.to_string())),
                };
                return self.tree.item(&item);
            }
        };
        self.tree.limit(u64::MAX);
        if let Err(error) = result {
            self.tree.back(mark)?;
            let reason = format!("{error:#}");
            self.unreadable += 1;
            if self.unreadable <= MAX_LOGGED_ERRORS {
                log::warn!(
                    "cannot read the result `{}` of plugin `{}`: {reason}",
                    path.display(),
                    self.rules.name
                );
            }
            self.tree.item(
                &Item {
                    status: UNKNOWN.into(),
                    ..typed
                }
                .with_meta("error", &reason),
            )?;
        }
        Ok(())
    }

    fn junit(&mut self, path: &Path, typed: &Item) -> Result<()> {
        let file = self.files.open_result(path)?;
        let end = SuiteEnd::read(self.files.open(path)?).unwrap_or_default();
        let archive_path = self.files.archive_path(path);
        let mark = self.tree.mark();
        self.tree.enter(typed, PASSED)?;
        let is_first = self.files.prefix.is_empty();
        let Self {
            index,
            rules,
            tree,
            written_tests,
            resumed,
            ..
        } = self;
        let (resumed_before, run) = (resumed.clone(), &rules.resumed.0);
        let (mut written, mut left_out) = (0, 0);
        let read = junit::read(file, end.as_ref(), &archive_path, &mut |step| {
            let Step::Item(mut item) = step else {
                return tree.step(step);
            };
            let is_elsewhere = match &*item.status {
                SKIPPED => !is_first || index.ran.contains(&item.name),
                // Each part lists the suite's setup and teardown.
                PASSED => !is_first && written_tests.contains(&item.name),
                _ => false,
            };
            if is_elsewhere {
                left_out += 1;
                return Ok(());
            }
            match resumed
                .remove(plain(&item.name))
                .filter(|_| item.status == SKIPPED)
            {
                Some(why) => index.resume(&mut item, why, run),
                None => index.judge(&mut item),
            }
            if !index.ran.is_empty() {
                written_tests.insert(item.name.clone());
            }
            written += 1;
            tree.item(&item)
        });
        match read {
            Ok(content) => {
                let folder = path.parent().unwrap_or(path).to_owned();
                self.suites.entry(folder).or_default().add(content);
            }
            Err(error) => {
                self.resumed = resumed_before;
                return Err(error);
            }
        }
        if written == 0 && left_out > 0 {
            // Other parts contain all of its tests.
            return self.tree.back(mark);
        }
        self.tree.leave(None, false);
        Ok(())
    }

    /// Copies a manual result: everything but the name and meta of its root, which describe the
    /// file.
    fn manual(&mut self, path: &Path, typed: &Item) -> Result<()> {
        let mark = self.tree.mark();
        let mut head = Vec::new();
        self.files
            .open_result(path)?
            .take(EXPANDED_LIMIT + 1)
            .read_to_end(&mut head)?;
        let no_status = no_status(&head);
        let is_json =
            head.trim_ascii_start().starts_with(b"{") || head.trim_ascii_start().starts_with(b"[");
        if is_json
            && head.len() as u64 <= EXPANDED_LIMIT
            && read::read_json(&head, &mut renaming(&mut self.tree, typed, &no_status))?
        {
            return Ok(());
        }
        drop(head);
        let file = self.files.open(path)?;
        let read = read::read(
            file,
            Writer::Plugin,
            &mut renaming(&mut self.tree, typed, &no_status),
        );
        match read {
            Err(error) if error.downcast_ref() == Some(&read::ANCHORS) => {
                self.tree.back(mark)?;
                let mut text = String::new();
                let size = self
                    .files
                    .open(path)?
                    .take(EXPANDED_LIMIT + 1)
                    .read_to_string(&mut text)?;
                ensure!(
                    size as u64 <= EXPANDED_LIMIT,
                    "a file this large may not use anchors"
                );
                read::read_expanded(&text, &mut renaming(&mut self.tree, typed, &no_status))
            }
            other => other,
        }
    }

    fn error(&mut self, path: &Path) -> Result<()> {
        let item = match self.files.open(path) {
            Ok(file) => failure::read(file.take(ERROR_LIMIT)),
            Err(error) => Item::new(ERROR_FILE, UNKNOWN).with_meta("error", &format!("{error:#}")),
        };
        self.tree
            .item(&item.with_meta("file", &self.files.archive_path(path)))
    }
}

/// Why a manual result without `items` says nothing; names the keys that it has instead.
fn no_status(text: &[u8]) -> String {
    let document = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() <= MAX_NAMED_KEYS_BYTES)
        .and_then(|text| yaml::document(text).ok());
    let keys: Vec<String> = document
        .iter()
        .flat_map(yaml::Node::entries)
        .map(|(key, _)| key.text.clone())
        .collect();
    let keys = match keys.len() {
        0 => String::new(),
        _ => format!(", but {}", quoted(&keys[..keys.len().min(MAX_NAMED)])),
    };
    format!(
        "it has no `status`{keys}: a result has `name`, `status`, and `items` if there are several"
    )
}

/// Copies another tree, whose root gets the name and meta of `root`; `no_status` is the error of one
/// without status and items.
fn renaming<'t>(
    tree: &'t mut Tree,
    root: &'t Item,
    no_status: &'t str,
) -> impl FnMut(Step) -> Result<()> + 't {
    let mut root = Some(root);
    move |mut step| {
        let has_items = matches!(step, Step::Enter(_));
        if let Step::Enter(item) | Step::Item(item) = &mut step
            && let Some(root) = root.take()
        {
            (item.name, item.meta) = (root.name.clone(), root.meta.clone());
            if item.status.is_empty() && !has_items {
                item.meta.insert(ERROR.to_owned(), no_status.to_owned());
            }
        }
        tree.step(step)
    }
}

/// Names in backticks.
fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).joined(", ")
}

/// The entries of a folder, sorted; none if it does not exist.
fn list(dir: &Path) -> Result<Vec<fs::DirEntry>> {
    if dir.try_exists().at("cannot read", dir)? {
        entries(dir)
    } else {
        Ok(Vec::new())
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod reader_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_file_fails_its_own_node() {
        let dir = base::temp::Folder::new().unwrap();
        // Few long names, since the number of tests takes the time.
        let test = format!("<testcase name='{}'/>", "t".repeat(32 << 10));
        let suites = |count: usize| format!("<testsuite>{}</testsuite>", test.repeat(count));
        for (node, count) in [("a", 1), ("b", 2_100), ("c", 1)] {
            fs::create_dir_all(dir.join("results").join(node)).unwrap();
            fs::write(
                dir.join("results").join(node).join("junit.xml"),
                suites(count),
            )
            .unwrap();
        }
        let rules = ReadingRules {
            name: "p".into(),
            per_node: true,
            format: "junit".into(),
            ..ReadingRules::default()
        };
        let outcome = process(&dir, &rules).unwrap();
        let statuses: Vec<_> = outcome
            .nodes
            .iter()
            .map(|(name, node)| (name.as_str(), node.status.as_str()))
            .collect();
        assert_eq!(statuses, [("a", PASSED), ("b", UNKNOWN), ("c", PASSED)]);
        let tree = fs::read_to_string(dir.join(TREE)).unwrap();
        assert!(
            tree.contains("error: its node has too many results"),
            "{tree}"
        );
    }

    #[test]
    fn result_that_is_not_complete_is_unknown() {
        let expected = |node: &str, entries| {
            let dropped = Dropped {
                entries,
                first: vec!["`x`: it is a device".into()],
            };
            Expected {
                plugin: "p".into(),
                node: node.into(),
                error: None,
                dropped,
            }
        };
        for (per_node, names) in [(true, ["n1", "n2"]), (false, ["global", "other"])] {
            let dir = base::temp::Folder::new().unwrap();
            for name in &names[..if per_node { 2 } else { 1 }] {
                fs::create_dir_all(dir.join("results").join(name)).unwrap();
                fs::write(dir.join("results").join(name).join("f"), "").unwrap();
            }
            let expected = vec![expected(names[0], 1), expected(names[1], 0)];
            let expected = expected
                .into_iter()
                .take(if per_node { 2 } else { 1 })
                .collect();
            let rules = ReadingRules {
                name: "p".into(),
                per_node,
                expected,
                ..ReadingRules::default()
            };
            let outcome = process(&dir, &rules).unwrap();
            let nodes: Vec<_> = outcome
                .nodes
                .iter()
                .map(|(_, node)| node.status.as_str())
                .collect();
            assert_eq!(
                nodes,
                if per_node {
                    vec![UNKNOWN, PASSED]
                } else {
                    Vec::new()
                }
            );
            assert_eq!((outcome.status.as_str(), outcome.missing), (UNKNOWN, 0));
            let tree = fs::read_to_string(dir.join(TREE)).unwrap();
            assert!(
                tree.contains("1 entry of the result could not be kept: `x`: it is a device"),
                "{tree}"
            );
        }
    }

    #[test]
    fn missing_results_count_as_unknown() {
        let dir = base::temp::Folder::new().unwrap();
        let rules = |per_node| ReadingRules {
            name: "p".into(),
            per_node,
            format: "junit".into(),
            ..ReadingRules::default()
        };
        fs::create_dir_all(dir.join("results/n1")).unwrap();
        let unknown = PluginOutcome {
            status: UNKNOWN.into(),
            counts: [(UNKNOWN.into(), 1)].into(),
            ..PluginOutcome::default()
        };
        assert_eq!(process(&dir, &rules(false)).unwrap(), unknown);
        let nodes = vec![("n1".to_owned(), unknown.clone())];
        assert_eq!(
            process(&dir, &rules(true)).unwrap(),
            PluginOutcome { nodes, ..unknown }
        );
    }
}
