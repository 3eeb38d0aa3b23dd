//! The original's modes of showing an archive: report, detailed, dump, readable.

use std::collections::HashMap;
use std::io::{Read, Write};

use serde_json::Value;

use super::compact;
use super::health::{self, Health};
use super::leaf;
use super::select::{NoSuchItem, Select};
use super::source::{self, Fetch, Files, Source, absent};
use crate::item::read::Visit;
use crate::item::{FAILED, FLAKY, Item, PASSED, SKIPPED, TIMEOUT};
use crate::layout;
use base::visible::line;

/// Maximum number of nodes in an error.
const NODES_LISTED: usize = 20;

/// The amount of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Counts and the names of failed tests.
    Report,
    /// Every leaf, with its file.
    Detailed,
    /// The tree as stored.
    Dump,
    /// The tree with escaped line ends restored.
    Readable,
}

/// What to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The mode.
    pub mode: Mode,
    /// Only the first item of this name and its descendants.
    pub node: Option<&'a str>,
    /// Omits file names before their contents.
    pub skip_prefix: bool,
}

/// Shows `plugins` one after the other; returns the last error after trying all, and logs the earlier ones.
pub(crate) fn show(
    source: &Source,
    files: &Files,
    plugins: &[String],
    view: View<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // A run on one machine has no cluster, hence no health to show in detail.
    let no_cluster = !files.has(layout::HEALTH) && !files.has(layout::SERVER_VERSION);
    let plugins = match plugins {
        [others @ .., last]
            if !others.is_empty() && last == health::NAME && no_cluster && view.mode == Mode::Detailed =>
        {
            others
        }
        all => all,
    };
    let mut last = Ok(());
    let (mut missing, mut found) = (None, false);
    for (at, plugin) in plugins.iter().enumerate() {
        match show_one(source, files, plugin, view, out) {
            Ok(()) => found |= plugin != health::NAME,
            Err(error) if error.is::<NoSuchItem>() => {
                missing = Some(error);
                continue;
            }
            Err(error) => {
                if let Err(earlier) = std::mem::replace(&mut last, Err(error)) {
                    log::error!("{earlier:#}");
                }
            }
        }
        if at + 1 < plugins.len() && plugin != health::NAME {
            writeln!(out)?;
        }
    }
    match missing {
        // The item need not be in every tree.
        Some(error) if !found && last.is_ok() => Err(error.context(known_nodes(files, plugins))),
        _ => last,
    }
}

/// The nodes that could have been requested.
pub(crate) fn known_nodes(files: &Files, plugins: &[String]) -> String {
    let mut nodes = std::collections::BTreeSet::new();
    for plugin in plugins.iter().filter(|plugin| *plugin != health::NAME) {
        let nodes_of = leaf::each(files, plugin, None, |leaf| {
            nodes.extend(leaf.node.map(str::to_owned));
            Ok(())
        });
        // The error of an unreadable tree was reported before.
        drop(nodes_of);
    }
    let listed: Vec<&str> = nodes.iter().map(String::as_str).take(NODES_LISTED).collect();
    match nodes.len() {
        0 => "no item of that name; no plugin ran on nodes".into(),
        all if all > listed.len() => {
            format!("no item of that name; nodes are {}, and {} more", listed.join(", "), all - listed.len())
        }
        _ => format!("no item of that name; nodes are {}", listed.join(", ")),
    }
}

fn show_one(
    source: &Source,
    files: &Files,
    plugin: &str,
    view: View<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if plugin == health::NAME {
        return show_health(files, view.mode, out);
    }
    let name = layout::tree(plugin);
    let open = || files.open(&name)?.ok_or_else(|| absent(&name));
    match view.mode {
        Mode::Report => {
            let mut report = Select::new(view.node, Report::default());
            report.run(open()?)?;
            report.inner.write(out)
        }
        Mode::Detailed => {
            let mut wanted = Select::new(view.node, Wanted { plugin, files: HashMap::new() });
            wanted.run(open()?)?;
            let files = source.fetch(wanted.inner.files)?;
            let detailed = Detailed { plugin, files, skip_prefix: view.skip_prefix, path: Vec::new(), out };
            Select::new(view.node, detailed).run(open()?)
        }
        Mode::Dump => Ok(std::io::copy(&mut open()?, out).map(drop)?),
        Mode::Readable => readable(open()?, out),
    }
}

fn show_health(files: &Files, mode: Mode, out: &mut dyn Write) -> anyhow::Result<()> {
    match mode {
        Mode::Report => Health::read(files)?.unwrap_or_default().report(out),
        Mode::Detailed => {
            let mut file = files.open(layout::HEALTH)?.ok_or_else(|| absent(layout::HEALTH))?;
            Ok(std::io::copy(&mut file, out).map(drop)?)
        }
        Mode::Dump => Health::read(files)?.unwrap_or_default().write_yaml(out),
        Mode::Readable => {
            let mut text = Vec::new();
            Health::read(files)?.unwrap_or_default().write_yaml(&mut text)?;
            readable(text.as_slice(), out)
        }
    }
}

/// Counts leaves and collects failures.
#[derive(Default)]
struct Report {
    root: Option<(String, String)>,
    total: u64,
    counts: std::collections::BTreeMap<String, u64>,
    failed: Vec<String>,
    flaky: Vec<String>,
}

impl Visit for Report {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        self.root.get_or_insert((item.name, item.status));
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        self.root.get_or_insert_with(|| (item.name.clone(), item.status.clone()));
        self.total += 1;
        if item.status == FAILED || item.status == TIMEOUT {
            self.failed.push(item.name);
        } else if item.status == FLAKY {
            self.flaky.push(item.name);
        }
        *self.counts.entry(item.status).or_default() += 1;
        Ok(())
    }
}

impl Report {
    fn write(mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let (name, status) = self.root.unwrap_or_default();
        let mut count = |status: &str| self.counts.remove(status).unwrap_or_default();
        let (passed, failed, skipped) = (count(PASSED), count(FAILED) + count(TIMEOUT), count(SKIPPED));
        writeln!(out, "Plugin: {}\nStatus: {}\nTotal: {}", line(&name), line(&status), self.total)?;
        writeln!(out, "Passed: {passed}\nFailed: {failed}\nSkipped: {skipped}")?;
        for (status, count) in &self.counts {
            writeln!(out, "{}: {count}", line(status))?;
        }
        for (title, names) in [("Failed", &self.failed), ("Flaky", &self.flaky)] {
            if !names.is_empty() {
                writeln!(out, "\n{title} tests:")?;
            }
            for name in names {
                // The prefix of newer test runners must be omitted to run a test again.
                writeln!(out, "{}", line(name.strip_prefix("[It]").unwrap_or(name)))?;
            }
        }
        Ok(())
    }
}

/// The path of a leaf's file in the archive.
fn file_of(plugin: &str, item: &Item) -> Option<String> {
    let file = item.meta.get("file").filter(|file| !file.is_empty())?;
    let path = format!("{}/{file}", layout::plugin(plugin));
    Some(source::clean(&path).unwrap_or(path))
}

/// Determines the files of the leaves.
struct Wanted<'a> {
    plugin: &'a str,
    files: HashMap<String, usize>,
}

impl Visit for Wanted<'_> {
    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        if let Some(file) = file_of(self.plugin, &item) {
            *self.files.entry(file).or_default() += 1;
        }
        Ok(())
    }
}

struct Detailed<'a> {
    plugin: &'a str,
    files: Fetch,
    skip_prefix: bool,
    path: Vec<String>,
    out: &'a mut dyn Write,
}

impl Visit for Detailed<'_> {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        self.path.push(item.name);
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.path.pop();
        Ok(())
    }

    fn leaf(&mut self, mut item: Item) -> anyhow::Result<()> {
        if let Some(file) = file_of(self.plugin, &item) {
            self.path.push(item.name);
            let head = if self.skip_prefix { String::new() } else { self.path.join("|") + " " };
            self.path.pop();
            return self.files.copy(&file, &head, self.out);
        }
        item.meta.insert("path".into(), self.path.join("|"));
        let mut line = String::from("{\"name\":");
        compact::string(&mut line, &item.name);
        line.push_str(",\"status\":");
        compact::string(&mut line, &item.status);
        line.push_str(",\"meta\":");
        compact::object(&mut line, item.meta.iter(), |out, text| compact::string(out, text));
        if !item.details.is_empty() {
            line.push_str(",\"details\":");
            compact::object(&mut line, item.details.iter(), |out: &mut String, value: &Value| {
                compact::value(out, value);
            });
        }
        line.push_str("}\n");
        self.out.write_all(line.as_bytes())?;
        Ok(())
    }
}

/// Copies text with escaped `
/// ` and `\t` restored.
fn readable(mut input: impl Read, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut backslash = false;
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let mut text = Vec::with_capacity(count + 1);
        for &byte in &buffer[..count] {
            match (std::mem::take(&mut backslash), byte) {
                (true, b'n') => text.push(b'\n'),
                (true, b't') => text.push(b'\t'),
                (pending, byte) => {
                    if pending {
                        text.push(b'\\');
                    }
                    backslash = byte == b'\\';
                    if !backslash {
                        text.push(byte);
                    }
                }
            }
        }
        out.write_all(&text)?;
    }
    if backslash {
        out.write_all(b"\\")?;
    }
    Ok(())
}
