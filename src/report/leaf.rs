//! Every leaf of a tree with its location: the second pass of every view but text.

use super::overview::{Overview, Plugin, open_tree};
use super::select::Select;
use super::source::Files;
use super::survey::{Survey, Told};
use serde_json::Value;

use crate::causes::Failure;
use crate::item::read::Visit;
use crate::item::{ATTEMPTS, DURATION, FAILURE, Item, LINK, REMEDY, RESUMED, UNKNOWN};
use crate::layout;

/// A leaf and its location.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a> {
    /// The leaf itself.
    pub item: &'a Item,
    /// The names of its ancestors, without the plugin's.
    pub path: &'a [String],
    /// Its node.
    pub node: Option<&'a str>,
    /// Its source file, relative to the plugin's folder.
    pub file: Option<&'a str>,
    /// Duration in seconds.
    pub duration: Option<f64>,
}

impl<'a> Leaf<'a> {
    /// Its status, never empty.
    pub(crate) fn status(&self) -> &'a str {
        if self.item.status.is_empty() { UNKNOWN } else { &self.item.status }
    }

    /// Whether it represents a missing result.
    pub(crate) fn is_error(&self) -> bool {
        self.file.is_some_and(|file| layout::deliverer("", file).1.split('/').next() == Some(layout::ERRORS))
    }

    /// The names of its ancestors without the node's.
    pub(crate) fn group(&self) -> &'a [String] {
        match (self.node, self.path) {
            (Some(node), [first, rest @ ..]) if first == node => rest,
            (_, path) => path,
        }
    }
}

impl Leaf<'_> {
    /// Duration from its result, else from the run's files.
    pub(crate) fn took(&self, plugin: &str, survey: &Survey) -> Option<f64> {
        self.duration.or_else(|| self.told(plugin, survey)?.duration())
    }

    /// The data of its file about this test.
    pub(crate) fn told<'s>(&self, plugin: &str, survey: &'s Survey) -> Option<&'s Told> {
        let (plugin, file) = layout::deliverer(plugin, self.file?);
        survey.told(plugin, file, &self.item.name)
    }

    /// The failure text: the parts with the reason, else all details.
    pub(crate) fn complaint(&self) -> String {
        let details = &self.item.details;
        let known = [FAILURE, "error"].iter().filter_map(|key| details.get(*key)?.as_str());
        let known: Vec<&str> =
            self.item.meta.get("error").map(String::as_str).into_iter().chain(known).collect();
        if !known.is_empty() {
            return known.join("\n");
        }
        let aside = |key: &str| {
            key.starts_with("system-") || [ATTEMPTS, DURATION, REMEDY, LINK, RESUMED].contains(&key)
        };
        let rest = details.iter().filter(|(key, _)| !aside(key));
        let lines = rest.map(|(key, value)| match value {
            Value::String(text) => format!("{key}: {text}"),
            other => format!("{key}: {other}"),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Passes the leaf to `take` as a failure.
    pub(crate) fn failure<T>(&self, plugin: &str, take: impl FnOnce(&Failure<'_>) -> T) -> T {
        let text = self.complaint();
        let detail = |key| self.item.details.get(key).and_then(Value::as_str);
        let (test, node) = (&self.item.name, self.node);
        take(&Failure { plugin, node, test, text: &text, remedy: detail(REMEDY), link: detail(LINK) })
    }
}

/// Calls `visit` with each leaf of a plugin in the order of the tree.
pub(crate) fn each(
    files: &Files,
    plugin: &str,
    node: Option<&str>,
    visit: impl FnMut(&Leaf<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let walk = Walk { above: Vec::new(), names: Vec::new(), visit };
    Select::new(node, walk).run(open_tree(files, plugin)?)
}

impl Overview<'_> {
    /// Calls `visit` with each selected leaf of a plugin.
    pub(crate) fn leaves(
        &self,
        plugin: &Plugin,
        mut visit: impl FnMut(&Leaf<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        each(&self.opened.files, &plugin.name, self.node, |leaf| {
            let duration = leaf.took(&plugin.name, &self.opened.survey);
            visit(&Leaf { duration, ..*leaf })
        })
    }
}

struct Walk<F> {
    /// For each ancestor: whether it is a node, and its file.
    above: Vec<(bool, Option<String>)>,
    /// Names of the ancestors except the first.
    names: Vec<String>,
    visit: F,
}

fn place(item: &Item) -> (bool, Option<String>) {
    (item.meta.get("type").is_some_and(|kind| kind == "node"), item.meta.get("file").cloned())
}

impl<F: FnMut(&Leaf<'_>) -> anyhow::Result<()>> Visit for Walk<F> {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        if !self.above.is_empty() {
            self.names.push(item.name.clone());
        }
        self.above.push(place(&item));
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.above.pop();
        self.names.pop();
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        let (is_node, file) = place(&item);
        let node = self.above.iter().position(|(is_node, _)| *is_node);
        let node = match node {
            Some(at) => at.checked_sub(1).and_then(|at| self.names.get(at)),
            None => is_node.then_some(&item.name),
        };
        let file = file.as_ref().or_else(|| self.above.iter().rev().find_map(|(_, file)| file.as_ref()));
        (self.visit)(&Leaf {
            item: &item,
            path: &self.names,
            node: node.map(String::as_str),
            file: file.map(String::as_str),
            duration: item.duration(),
        })
    }
}
