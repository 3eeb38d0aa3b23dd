//! Every case of a tree, which is an item without children, with its location; and the part of a tree to show: all of
//! it, or the first item of a name and its descendants.

use anyhow::{Result, anyhow, ensure};
use serde::ser::{Error as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::archive::OpenedArchive;
use super::survey::JunitDetails;
use crate::item::read::items;
use crate::item::{ATTEMPTS, DURATION, FAILURE, Item, LINK, REMEDY, RESUMED, UNKNOWN};
use crate::layout;
use crate::remedies::ReportedFailure;
use base::Joined as _;
use base::json::json;

/// An item without children and its location.
pub(crate) struct Case<'a> {
    pub name: &'a str,
    /// Never empty.
    pub status: &'a str,
    /// The names of the items above, without the plugin's.
    path: Vec<&'a str>,
    pub node: Option<&'a str>,
    /// Its source file, relative to the plugin's folder.
    pub file: Option<&'a str>,
    /// Why the result is missing.
    pub error: Option<&'a str>,
    pub item: &'a Item,
    /// Duration in seconds, from its result, else from its file.
    pub duration: Option<f64>,
    pub plugin: &'a str,
    /// The root of the tree, or the selected item.
    pub root: &'a Item,
    /// The item of its node.
    pub node_item: Option<&'a Item>,
    /// The data of its file about this test.
    pub told: Option<&'a JunitDetails>,
}

impl<'a> Case<'a> {
    /// The test in the JSON document, without what is unknown.
    fn json(&self) -> Value {
        let details = Some(&self.item.details).filter(|details| !details.is_empty());
        let mut test = json!({
            "name": self.name, "status": self.status, "path": self.path, "node": self.node, "file": self.file,
            "error": self.error, "details": details, "duration": self.duration,
        });
        test.as_object_mut().into_iter().for_each(|test| test.retain(|_, value| !value.is_null()));
        test
    }

    /// Whether it represents a missing result.
    pub(crate) fn is_error(&self) -> bool {
        self.file.is_some_and(|file| layout::deliverer("", file).1.split('/').next() == Some(layout::ERRORS))
    }

    /// The names of the items above, without those of the plugin and the node.
    pub(crate) fn group(&self) -> impl Iterator<Item = &'a str> {
        self.path
            .iter()
            .copied()
            .skip(usize::from(self.node.is_some() && self.path.first() == self.node.as_ref()))
    }

    /// A detail that is text.
    pub(crate) fn detail(&self, key: &str) -> Option<&'a str> {
        self.item.details.get(key)?.as_str()
    }

    /// The failure text: the parts with the reason, else all details.
    pub(crate) fn reason(&self) -> String {
        let known = [self.error, self.detail(FAILURE), self.detail("error")].into_iter().flatten();
        let known: Vec<&str> = known.collect();
        if !known.is_empty() {
            return known.join("\n");
        }
        let aside = |key: &str| {
            key.starts_with("system-") || [ATTEMPTS, DURATION, REMEDY, LINK, RESUMED].contains(&key)
        };
        let rest = self.item.details.iter().filter(|(key, _)| !aside(key));
        let lines = rest.map(|(key, value)| match value {
            Value::String(text) => format!("{key}: {text}"),
            other => format!("{key}: {other}"),
        });
        lines.joined("\n")
    }

    /// Adds the test to a list of the `max` slowest, the slowest first.
    pub(crate) fn keep_if_slow(&self, slowest: &mut Vec<Value>, max: usize, id: Option<&str>) {
        let Some(seconds) = self.duration else { return };
        let at = slowest.partition_point(|other| other["seconds"].as_f64() >= Some(seconds));
        if at < max {
            let Self { name, plugin, node, .. } = *self;
            let test = json!({"seconds": seconds, "id": id, "name": name, "plugin": plugin, "node": node});
            slowest.insert(at, test);
            slowest.truncate(max);
        }
    }

    /// Passes the case to `take` as a failure.
    pub(crate) fn failure<T>(&self, take: impl FnOnce(&ReportedFailure<'_>) -> T) -> T {
        let Self { plugin, node, name, .. } = *self;
        let (text, remedy, link) = (self.reason(), self.detail(REMEDY), self.detail(LINK));
        take(&ReportedFailure { plugin, node, test: name, text: &text, remedy, link })
    }
}

/// The cases of a plugin's tree, which is read anew for each use.
#[derive(Clone, Copy)]
pub(crate) struct Cases<'a> {
    /// The archive.
    pub archive: &'a OpenedArchive,
    /// The plugin.
    pub plugin: &'a str,
    /// The selected item, as in [`items`]; `None` for all.
    pub node: Option<&'a str>,
    /// Whether the tree can be read; an unreadable one has no cases.
    pub readable: bool,
}

impl Cases<'_> {
    /// Calls `visit` with each case in the order of the tree.
    pub(crate) fn each(self, mut visit: impl FnMut(&Case<'_>) -> Result<()>) -> Result<()> {
        if !self.readable {
            return Ok(());
        }
        let found = items(self.archive.tree(self.plugin)?, self.node, |above, item| {
            let around = above.iter().chain([&item]);
            let file = around.clone().rev().find_map(|item| item.meta.get("file")).map(String::as_str);
            let is_node = |item: &&Item| item.meta.get("type").is_some_and(|kind| kind == "node");
            let node_item = around.clone().find(is_node);
            let told = file.and_then(|file| {
                let (plugin, file) = layout::deliverer(self.plugin, file);
                self.archive.survey.told(plugin, file, &item.name)
            });
            visit(&Case {
                name: &item.name,
                status: if item.status.is_empty() { UNKNOWN } else { &item.status },
                path: above.iter().skip(1).map(|item| &*item.name).collect(),
                node: node_item.map(|item| &*item.name),
                file,
                error: item.meta.get("error").map(String::as_str),
                duration: item.duration().or_else(|| told?.duration()),
                item: &item,
                plugin: self.plugin,
                root: above.first().unwrap_or(&item),
                node_item,
                told,
            })
        })?;
        ensure!(found, missing(self.node));
        Ok(())
    }
}

/// As a list, streamed.
impl Serialize for Cases<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut list = out.serialize_seq(None)?;
        let mut failed = None;
        let read = self.each(|case| {
            list.serialize_element(&case.json()).map_err(|error| {
                failed = Some(error);
                anyhow!("not written")
            })
        });
        match (failed, read) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(S::Error::custom(format!("{error:#}"))),
            (None, Ok(())) => list.end(),
        }
    }
}

/// The error for a tree without the selected item.
pub(super) fn missing(name: Option<&str>) -> String {
    format!("node named {:?} not found", name.unwrap_or_default())
}
