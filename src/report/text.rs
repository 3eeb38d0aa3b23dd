//! The original's modes of showing the trees of an archive, and the health of its cluster: report,
//! detailed, dump, readable.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, BufRead as _, BufReader, Read, Write};

use anyhow::{Result, ensure};
use serde::Serialize;

use super::archive::{HEALTH_NAME, OpenedArchive, PassAction, absent, clean};
use super::files::ExtractedFiles;
use super::run::{Report, missing, read_health};
use super::words::named;
use base::Joined as _;
use base::json::{self, json};
use base::visible::line;
use model::health::{Detail, Health, Part};
use model::item::read::items;
use model::item::{FAILED, FLAKY, Item, PASSED, SKIPPED, TIMEOUT};
use model::layout;

/// The amount of output.
#[derive(Clone, Copy, PartialEq)]
pub enum ViewMode {
    /// Counts and the names of failed tests.
    Report,
    /// Every item without children, with its file.
    Detailed,
    /// The tree as stored.
    Dump,
    /// The tree with escaped line ends restored.
    Readable,
}

/// What to show.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The mode.
    pub mode: ViewMode,
    /// Only the first item of this name and its descendants.
    pub node: Option<&'a str>,
    /// Omits file names before their contents.
    pub skip_prefix: bool,
}

impl View<'_> {
    /// Shows `plugins` one after the other; returns the last error after trying all, and logs the
    /// earlier ones.
    pub fn show(
        self,
        archive: &OpenedArchive,
        plugins: &[String],
        out: &mut dyn Write,
    ) -> Result<()> {
        let (mut errors, mut found) = (Vec::new(), false);
        for (at, plugin) in plugins.iter().enumerate() {
            match self.show_one(archive, plugin, out) {
                // The item need not be in every tree.
                Ok(false) => continue,
                Ok(true) => found |= plugin != HEALTH_NAME || plugins.len() == 1,
                Err(error) => errors.push(error),
            }
            if at + 1 < plugins.len() && plugin != HEALTH_NAME {
                writeln!(out)?;
            }
        }
        if let Some(last) = errors.pop() {
            errors.iter().for_each(|earlier| log::error!("{earlier:#}"));
            return Err(last);
        }
        ensure!(
            found || self.node.is_none(),
            "{}: {}",
            known_nodes(archive)?,
            missing(self.node)
        );
        Ok(())
    }

    /// Shows a plugin; returns whether it has the selected item.
    fn show_one(self, archive: &OpenedArchive, plugin: &str, out: &mut dyn Write) -> Result<bool> {
        if plugin == HEALTH_NAME {
            return self.show_health(&archive.files, out).map(|()| true);
        }
        let mut tree = archive.tree(plugin)?;
        match self.mode {
            ViewMode::Report => self.summary(tree, out),
            ViewMode::Detailed => self.detailed(archive, plugin, out),
            ViewMode::Dump => Ok(io::copy(&mut tree, out).map(|_| true)?),
            ViewMode::Readable => readable(tree, out).map(|()| true),
        }
    }

    /// Writes counts of results, and the names of failures.
    fn summary(self, tree: impl Read, out: &mut dyn Write) -> Result<bool> {
        let (mut root, mut counts) = (None, BTreeMap::<String, u64>::new());
        let (mut failures, mut flaky) = (Vec::new(), Vec::new());
        let has_items = items(tree, self.node, |above, item| {
            let top = above.first().unwrap_or(&item);
            root.get_or_insert_with(|| (top.name.clone(), top.status.clone()));
            match item.status.as_str() {
                FAILED | TIMEOUT => failures.push(item.name),
                FLAKY => flaky.push(item.name),
                _ => {}
            }
            *counts.entry(item.status).or_default() += 1;
            Ok(())
        })?;
        let Some((name, status)) = root else {
            return Ok(has_items);
        };
        let total: u64 = counts.values().sum();
        let mut count = |status: &str| counts.remove(status).unwrap_or_default();
        let (passed, failed, skipped) = (
            count(PASSED),
            count(FAILED) + count(TIMEOUT),
            count(SKIPPED),
        );
        writeln!(
            out,
            "Plugin: {}\nStatus: {}\nTotal: {total}",
            line(&name),
            line(&status)
        )?;
        writeln!(
            out,
            "Passed: {passed}\nFailed: {failed}\nSkipped: {skipped}"
        )?;
        for (status, count) in &counts {
            writeln!(out, "{}: {count}", line(status))?;
        }
        for (title, names) in [("Failed", failures), ("Flaky", flaky)] {
            if !names.is_empty() {
                writeln!(out, "\n{title} tests:")?;
            }
            for name in names {
                // The prefix of newer test runners must be omitted to run a test again.
                writeln!(out, "{}", line(name.strip_prefix("[It]").unwrap_or(&name)))?;
            }
        }
        Ok(has_items)
    }

    /// Writes each item without children as JSON, or its file.
    fn detailed(self, archive: &OpenedArchive, plugin: &str, out: &mut dyn Write) -> Result<bool> {
        // Most trees name no files, and their archives are not read again.
        let mut files = None;
        items(archive.tree(plugin)?, self.node, |path, mut item| {
            let above = path.iter().map(|item| &*item.name).joined("|");
            let Some(file) = file_of(plugin, &item) else {
                item.meta.insert("path".into(), above);
                return Ok(writeln!(out, "{}", go_json(&item))?);
            };
            let files = match &mut files {
                Some(files) => files,
                none => none.insert(self.named(archive, plugin)?),
            };
            let mut content = files.open(&file).ok_or_else(|| absent(&file))?;
            if !self.skip_prefix {
                let gap = if path.is_empty() { "" } else { "|" };
                write!(out, "{above}{gap}{} ", item.name)?;
            }
            Ok(io::copy(&mut content, out).map(drop)?)
        })
    }

    /// Extracts the files that a tree names.
    fn named(self, archive: &OpenedArchive, plugin: &str) -> Result<ExtractedFiles> {
        let mut wanted = HashSet::new();
        items(archive.tree(plugin)?, self.node, |_, item| {
            wanted.extend(file_of(plugin, &item));
            Ok(())
        })?;
        archive.source.extract(|_, name, _, _| {
            Ok(if wanted.is_empty() {
                PassAction::Stop
            } else {
                PassAction::keep_if(wanted.remove(name))
            })
        })
    }

    fn show_health(self, files: &ExtractedFiles, out: &mut dyn Write) -> Result<()> {
        if self.mode == ViewMode::Detailed {
            let mut file = files
                .open(layout::HEALTH)
                .ok_or_else(|| absent(layout::HEALTH))?;
            return Ok(io::copy(&mut file, out).map(drop)?);
        }
        let health = read_health(files)?.unwrap_or_default();
        match self.mode {
            ViewMode::Report => write_health(&health, out),
            ViewMode::Readable => {
                let mut text = Vec::new();
                write_health_yaml(&health, &mut text)?;
                readable(text.as_slice(), out)
            }
            ViewMode::Dump | ViewMode::Detailed => write_health_yaml(&health, out),
        }
    }
}

/// Prints the health as text.
fn write_health(health: &Health, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "Run Details:\nAPI Server version: {}",
        line(&health.api_version)
    )?;
    for (title, what, part) in [
        ("Node", "nodes", &health.node_health),
        ("Pods", "pods", &health.pod_health),
    ] {
        let is_node = what == "nodes";
        if is_node || !part.details.is_empty() {
            writeln!(out, "{title} health: {}", part.share())?;
        }
        if part.details.is_empty() || part.healthy_nodes >= part.total_nodes {
            continue;
        }
        writeln!(out, "Details for failed {what}:")?;
        for detail in part.unwell() {
            let Detail {
                ready,
                reason,
                message,
                ..
            } = detail;
            let text = format!("{} Ready:{ready}: {reason}: {message}", detail.full_name());
            writeln!(out, "{}", line(&text))?;
        }
        out.write_all(if is_node { b"\n" } else { b"" })?;
    }
    let mut title = "Errors detected in files:\n";
    for (kind, files) in health
        .error_summary
        .iter()
        .filter(|(_, files)| !files.is_empty())
    {
        writeln!(out, "{}{}:", std::mem::take(&mut title), line(kind))?;
        let mut lines: Vec<_> = files.iter().collect();
        // Highest first; files with equal counts stay sorted by name.
        lines.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let width = lines
            .first()
            .map_or(0, |(_, count)| count.to_string().len());
        lines
            .iter()
            .try_for_each(|(file, count)| writeln!(out, "{count:width$} {}", line(file)))?;
    }
    Ok(())
}

/// Prints the health as YAML, in the form and order of the original.
fn write_health_yaml(health: &Health, out: &mut dyn Write) -> Result<()> {
    for (name, part) in [
        ("node_health", &health.node_health),
        ("pod_health", &health.pod_health),
    ] {
        let Part {
            total_nodes,
            healthy_nodes,
            details,
        } = part;
        let head = if details.is_empty() {
            ""
        } else {
            "  details:\n"
        };
        write!(
            out,
            "{name}:\n  total_nodes: {total_nodes}\n  healthy_nodes: {healthy_nodes}\n{head}"
        )?;
        for detail in details {
            let fields = json!(detail);
            for key in ["name", "healthy", "ready", "reason", "message", "namespace"] {
                let before = if key == "name" { "  - " } else { "    " };
                let entry = fields
                    .get(key)
                    .map(|value| yaml::entry(before, key, value, 4));
                out.write_all(entry.unwrap_or_default().as_bytes())?;
            }
        }
    }
    let [version, summary] = [json!(health.api_version), json!(health.error_summary)];
    let rest = yaml::entry("", "api_version", &version, 0)
        + &yaml::entry("", "error_summary", &summary, 0);
    // The original ends this text with an empty line.
    Ok(writeln!(out, "{rest}")?)
}

/// The nodes that could have been requested.
pub fn known_nodes(archive: &OpenedArchive) -> Result<String> {
    let report = Report::read(archive, None)?;
    let nodes: Vec<&str> = report
        .node_names()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    Ok(match nodes.len() as u64 {
        0 => "no item of that name; no plugin ran on nodes".into(),
        all => format!("no item of that name; nodes are {}", named(&nodes, all)),
    })
}

/// The path of an item's file in the archive.
fn file_of(plugin: &str, item: &Item) -> Option<String> {
    let file = item.meta.get("file").filter(|file| !file.is_empty())?;
    let path = format!("{}/{file}", layout::plugin(plugin));
    Some(clean(&path).unwrap_or(path))
}

/// An item as JSON, byte for byte as Go writes it: markup escaped, floats without a needless `.0`.
fn go_json(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Go));
    json::escaped(String::from_utf8_lossy(&text).into_owned())
}

struct Go;

impl serde_json::ser::Formatter for Go {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, number: f64) -> io::Result<()> {
        match number.abs() {
            // `1e+21` but `1e-7`: Go shortens only exponents below zero.
            1e21.. => write!(out, "{}", format!("{number:e}").replace('e', "e+")),
            size if size != 0.0 && size < 1e-6 => write!(out, "{number:e}"),
            _ => write!(out, "{number}"),
        }
    }
}

/// Copies text with escaped line feeds and tabs restored.
fn readable(input: impl Read, out: &mut dyn Write) -> Result<()> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut piece = Vec::new();
    while input
        .by_ref()
        .take(64 << 10)
        .read_until(b'\\', &mut piece)?
        > 0
    {
        if piece.pop_if(|last| *last == b'\\').is_some() {
            let restored = match input.fill_buf()?.first() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                _ => b'\\',
            };
            input.consume(usize::from(restored != b'\\'));
            piece.push(restored);
        }
        out.write_all(&piece)?;
        piece.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_equals_that_of_go() {
        let json = json::json!({"b": [1.0, 1.5, 1e21, 1e-7, -3, null], "a": "<&>\u{1}\u{8}\"\\\n\u{2028}ä"});
        let expected =
            r#"{"a":"\u003c\u0026\u003e\u0001\b\"\\\n\u2028ä","b":[1,1.5,1e+21,1e-7,-3,null]}"#;
        assert_eq!(go_json(&json), expected);
    }
}
