//! Opens an archive for a view: its plugins, their trees, and what the view needs of other files.

use std::collections::HashSet;

use anyhow::{Result, anyhow, bail, ensure};
use serde::Deserialize;

use super::facts::FactTables;
use super::files::{ContentReader, ExtractedFiles};
use super::health;
use super::logs::Tails;
use super::source::{ArchiveSource, PassAction, absent};
use super::survey::Survey;
use crate::layout::{
    self, CONFIG, EXCLUDED, HEALTH, INFO, PLUGINS, QUERY_ERRORS, RECEIVED, RUN_LOG, SERVER_VERSION, WHY,
};

/// Far beyond the plugins of any run; reports have a section for each.
const MAX_PLUGINS: usize = 10_000;

/// Files that describe the whole run.
const ABOUT: [&str; 9] =
    [INFO, CONFIG, RUN_LOG, SERVER_VERSION, HEALTH, QUERY_ERRORS, RECEIVED, WHY, EXCLUDED];

/// An archive with its trees extracted.
pub(crate) struct OpenedArchive {
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
    /// The ends of logs, depending on the depth.
    pub tails: Tails,
}

/// The part of an archive to read; each level includes the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// As the original: plugins only if the archive lists them, and no more than their trees.
    Trees,
    /// Also data about the run, to the end of the archive; unlisted plugins are found by their trees.
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
    pub(crate) fn open(archive: &str, plugin: Option<&str>, depth: Depth) -> Result<Self> {
        let source = ArchiveSource::open(archive)?;
        let mut survey = Survey::default();
        let mut facts = FactTables::new(depth == Depth::Page);
        let mut tails = Tails::default();
        // The files that the original's modes need and that have not been extracted; unknown before the list of plugins.
        let mut missing = plugin.map(|name| match name {
            health::NAME => vec![HEALTH.to_owned()],
            name => vec![layout::tree(name)],
        });
        let mut has_objects = false;
        let files = source.extract(|files, name, stat, content| {
            if depth == Depth::Trees {
                if missing.is_none() && files.has(INFO) {
                    let plugins = listed(files).unwrap_or_default();
                    // Without plugins, everything is read.
                    let never = plugins.is_empty().then(String::new);
                    let trees = plugins.iter().map(|name| layout::tree(name));
                    missing = Some(never.into_iter().chain([HEALTH.into()]).chain(trees).collect());
                }
                let is_there = |name: &mut String| files.has(name);
                while missing.as_mut().and_then(|missing| missing.pop_if(is_there)).is_some() {}
                if missing.as_ref().is_some_and(Vec::is_empty) {
                    return Ok(PassAction::Stop);
                }
            } else if let Some(found) = layout::delivered(name) {
                if plugin.is_none_or(|plugin| plugin == found.plugin) {
                    survey.arrived(found, stat);
                    if depth >= Depth::Nodes {
                        facts.see(found, content)?;
                    }
                    if depth >= Depth::Tests {
                        survey.tests(found, content);
                    }
                }
            } else {
                if name == INFO {
                    survey.packed = survey.packed.or(stat.modified);
                }
                has_objects |= layout::resource_file(name).is_some();
                if depth >= Depth::Nodes {
                    facts.see_cluster(name, content);
                }
                if depth == Depth::Page {
                    tails.see(name, stat, content)?;
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
            if plugin != health::NAME && !has_tree(&plugin) {
                let known: Vec<_> = files.folders(PLUGINS).into_iter().filter(has_tree).collect();
                let known = match known.join(", ") {
                    none if none.is_empty() => "no results of any plugin".into(),
                    known => format!("results of {known}"),
                };
                bail!("{}; it has {known}", absent(&layout::tree(&plugin)));
            }
            plugins = vec![plugin];
        } else if depth == Depth::Trees {
            ensure!(
                // Only a snapshot without a run has no plugins, but has the health of the cluster.
                !plugins.is_empty() || files.has(QUERY_ERRORS),
                "no plugins specified by either the --plugin flag or tarball metadata{}",
                if files.has(INFO) || files.has(CONFIG) { "" } else { "; it is not a Sonobuoy archive" }
            );
            plugins.push(health::NAME.into());
        } else {
            plugins.extend(files.folders(PLUGINS).into_iter().filter(has_tree));
            plugins = distinct(plugins)?;
            ensure!(
                !plugins.is_empty()
                    || has_objects
                    || [QUERY_ERRORS, HEALTH, WHY].iter().any(|name| files.has(name)),
                "it contains neither results nor a snapshot of a cluster; it is not a Sonobuoy archive"
            );
        }
        Ok(Self { source, files, plugins, survey, facts, tails })
    }

    /// Opens the tree of a plugin.
    pub(crate) fn tree(&self, plugin: &str) -> Result<ContentReader<'_>> {
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
    let Some(bytes) = files.small(INFO)? else { return Ok(Vec::new()) };
    let info = Option::<Info>::deserialize(&mut serde_json::Deserializer::from_slice(&bytes));
    let info = info.map_err(|error| anyhow!("`{INFO}`: {error}"))?;
    distinct(info.and_then(|info| info.plugins).unwrap_or_default())
}

/// Each plugin once, in order.
fn distinct(mut plugins: Vec<String>) -> Result<Vec<String>> {
    let mut seen = HashSet::new();
    plugins.retain(|name| seen.insert(name.clone()));
    ensure!(
        plugins.len() <= MAX_PLUGINS,
        "the archive names more than {MAX_PLUGINS} plugins; it is not one of a run"
    );
    Ok(plugins)
}
