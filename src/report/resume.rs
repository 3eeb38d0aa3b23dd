//! The state of an interrupted run: its selection of tests, and the ones already run.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::failed::is_suite_node;
use super::source::Source;
use crate::item::read::{Visit, Writer, read};
use crate::item::{FAILED, FAILURE, Item, SKIPPED, TIMEOUT, UNKNOWN, plain};
use crate::layout;
use crate::plugin::focus::{FOCUS, SKIP};

/// A run that was interrupted.
#[derive(Debug, PartialEq)]
pub(crate) struct Interrupted {
    /// Its id.
    pub run: String,
    /// The focus and the skip pattern of its plugin.
    pub focus: String,
    /// See `focus`.
    pub skip: String,
    /// The tests that have run, with the reason if failed, else empty.
    pub ran: BTreeMap<String, String>,
}

/// Maximum bytes of a failure's reason passed to the next run, and of all reasons.
const MAX_FAILURE_BYTES: usize = 1 << 10;
const MAX_FAILURES_BYTES: usize = 64 << 10;

/// The interrupted run of a plugin in an archive.
pub(crate) fn interrupted(archive: &str, plugin: &str) -> anyhow::Result<Interrupted> {
    let source = Source::open(archive)?;
    let wanted = |name: &str| {
        name == layout::CONFIG
            || layout::is_definition(name)
            || layout::is_tree(name)
            || layout::plugin_of_ran(name).is_some()
    };
    let mut failed = BTreeSet::new();
    source.each(|name, _, _| {
        let found = layout::delivered(name).filter(|found| !found.is_result);
        failed.extend(found.map(|found| found.plugin.to_owned()));
        Ok(())
    })?;
    let files = source.collect(wanted, |_| false)?;
    let json = |path: &str| -> anyhow::Result<Value> {
        Ok(files.small(path)?.and_then(|bytes| base::json::from_slice(&bytes).ok()).unwrap_or_default())
    };
    let (mut focuses, mut skip, mut ran, mut is_whole) = (Vec::new(), String::new(), BTreeMap::new(), true);
    for name in files.folders(layout::PLUGINS)? {
        let definition = json(&format!("{}/{}", layout::plugin(&name), layout::DEFINITIONS[0]))?;
        let whole = definition.pointer("/Definition/sonobuoy-config/part-of").and_then(Value::as_str);
        if whole.unwrap_or(&name) != plugin || layout::is_attempt(&name, plugin) {
            continue;
        }
        let variables = definition.pointer("/Definition/spec/env").and_then(Value::as_array);
        let env = |wanted: &str| {
            let mut all = variables.into_iter().flatten();
            all.find(|variable| variable["name"] == wanted)?["value"].as_str().map(str::to_owned)
        };
        focuses.push(env(FOCUS).unwrap_or_default());
        skip = env(SKIP).unwrap_or(skip);
        is_whole &= !failed.contains(&name);
        if let Some(told) = files.small(&layout::ran(&name))? {
            let told = String::from_utf8_lossy(&told).into_owned();
            ran.extend(told.lines().filter_map(|line| {
                let why = if line.starts_with(layout::FAILED_TEST) { FAILED } else { "" };
                Some((layout::ran_test(line)?.to_owned(), why.to_owned()))
            }));
        }
    }
    ensure!(!focuses.is_empty(), "it has no plugin `{plugin}`");
    ensure!(!is_whole, "all of its tests have run; `--rerun-failed` runs the failed ones again");
    if let Some(tree) = files.open(&layout::tree(plugin))? {
        let mut seen = Ran { ran: &mut ran, room: MAX_FAILURES_BYTES };
        read(tree, Writer::Aggregator, &mut seen)?;
    }
    let config = json(layout::CONFIG)?;
    // The interrupted run may itself have resumed another one.
    for (name, why) in config["ResumedTests"].as_object().into_iter().flatten() {
        ran.entry(name.clone()).or_insert_with(|| why.as_str().unwrap_or_default().to_owned());
    }
    ensure!(!ran.is_empty(), "it does not say which tests have run; start a new run");
    let run = config["UUID"].as_str().map(str::to_owned);
    let run = run.context("it does not say which run it belongs to")?;
    Ok(Interrupted { run, focus: focuses.join("|"), skip, ran })
}

struct Ran<'r> {
    ran: &'r mut BTreeMap<String, String>,
    /// Bytes left for reasons of failures.
    room: usize,
}

impl Visit for Ran<'_> {
    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        let name = plain(&item.name);
        let is_test = name != layout::ERROR_FILE && !is_suite_node(name) && !name.is_empty();
        // An unreadable file is a leaf, too.
        if is_test
            && ![SKIPPED, UNKNOWN, ""].contains(&item.status.as_str())
            && !item.meta.contains_key("file")
        {
            let mut why = String::new();
            if [FAILED, TIMEOUT].contains(&item.status.as_str()) {
                let told = item.details.get(FAILURE).and_then(Value::as_str).unwrap_or(FAILED);
                let end = (0..=MAX_FAILURE_BYTES.min(self.room).min(told.len())).rev();
                let end = end.into_iter().find(|at| told.is_char_boundary(*at)).unwrap_or_default();
                self.room -= end;
                told[..end].clone_into(&mut why);
                if why.trim().is_empty() {
                    FAILED.clone_into(&mut why);
                }
            }
            self.ran.insert(name.to_owned(), why);
        }
        Ok(())
    }
}
