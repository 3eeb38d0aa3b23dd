//! Opens an archive for a view: its plugins and their trees.

use std::collections::HashSet;

use serde::Deserialize;

use super::facts::Facts;
use super::health;
use super::source::{Files, Source, Stat, absent};
use super::survey::Survey;
use super::tails::Tails;
use crate::layout::{
    self, CONFIG, HEALTH, INFO, PLUGINS, QUERY_ERRORS, RUN_LOG, SERVER_VERSION, is_definition, is_tree,
};

/// Far beyond the plugins of any run; reports have a section for each.
const MAX_PLUGINS: usize = 10_000;

/// An archive with its trees extracted.
pub(crate) struct Opened {
    /// The source of further files.
    pub source: Source,
    /// The small files, trees included.
    pub files: Files,
    /// The requested plugins, in stored order, the cluster's health last.
    pub plugins: Vec<String>,
    /// Data from other files, depending on the depth.
    pub survey: Survey,
    /// Facts of nodes, depending on the depth.
    pub facts: Facts,
    /// The ends of logs, depending on the depth.
    pub tails: Tails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    plugins: Option<Vec<String>>,
}

/// The part of an archive to read; each level includes the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// As the original: plugins only if the archive lists them.
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

/// Reads the files needed for `plugin`, or for all plugins and the health of the cluster.
pub(crate) fn open(archive: &str, plugin: Option<&str>, depth: Depth) -> anyhow::Result<Opened> {
    let source = Source::open(archive)?;
    if depth > Depth::Trees {
        return whole(source, plugin, depth);
    }
    let tree = plugin.map(layout::tree);
    let only_health = plugin == Some(health::NAME);
    let wanted = |name: &str| match &tree {
        Some(_) if only_health => name == HEALTH,
        Some(tree) => name == tree || name == CONFIG,
        None => [INFO, CONFIG, QUERY_ERRORS, SERVER_VERSION, HEALTH].contains(&name) || is_tree(name),
    };
    let mut listed: Option<Vec<String>> = None;
    // Number of listed plugins whose trees are complete.
    let mut complete = 0;
    let enough = |files: &Files| match &tree {
        Some(_) if only_health => true,
        Some(tree) => files.has(tree),
        None => {
            if listed.is_none() && files.has(INFO) {
                listed = Some(plugins(files).unwrap_or_default());
            }
            let left = listed.as_deref().unwrap_or_default().iter().skip(complete);
            complete += left.take_while(|plugin| files.has(&layout::tree(plugin))).count();
            files.has(HEALTH) && complete > 0 && listed.as_ref().is_some_and(|all| complete == all.len())
        }
    };
    let files = source.collect(wanted, enough)?;
    let plugins = match plugin {
        Some(plugin) if !only_health && tree.as_ref().is_some_and(|tree| !files.has(tree)) => {
            note_age(&files);
            return Err(not_there(&source, plugin));
        }
        Some(plugin) => vec![plugin.to_owned()],
        None => {
            let mut all = plugins(&files)?;
            anyhow::ensure!(
                // Only a snapshot without a run has no plugins, but has the health of the cluster.
                !all.is_empty() || files.has(QUERY_ERRORS),
                "no plugins specified by either the --plugin flag or tarball metadata{}",
                if files.has(INFO) || files.has(CONFIG) { "" } else { "; it is not a Sonobuoy archive" }
            );
            all.push(health::NAME.into());
            all
        }
    };
    let is_missing = |plugin: &String| plugin != health::NAME && !files.has(&layout::tree(plugin));
    if plugins.iter().any(is_missing) {
        note_age(&files);
    }
    Ok(Opened {
        source,
        files,
        plugins,
        survey: Survey::default(),
        facts: Facts::default(),
        tails: Tails::default(),
    })
}

fn whole(source: Source, plugin: Option<&str>, depth: Depth) -> anyhow::Result<Opened> {
    let about = [INFO, CONFIG, RUN_LOG, SERVER_VERSION, HEALTH, QUERY_ERRORS, layout::RECEIVED, layout::WHY];
    let mut survey = Survey::default();
    let mut facts = Facts::new(depth == Depth::Page);
    let mut tails = Tails::default();
    let (mut packed, mut has_objects) = (None, false);
    let wanted = |name: &str, stat: Stat| {
        packed = packed.or(stat.modified.filter(|_| name == INFO));
        about.contains(&name) || is_tree(name) || is_definition(name)
    };
    let files = source.pass(wanted, |name, stat, content| {
        has_objects |= layout::resource_file(name).is_some();
        if let Some(found) = layout::delivered(name) {
            if plugin.is_some_and(|plugin| plugin != found.plugin) {
                return Ok(());
            }
            survey.arrived(found, stat);
            if depth >= Depth::Nodes {
                facts.see(found, content)?;
            }
            if depth >= Depth::Tests {
                survey.tests(found, content);
            }
        } else if depth == Depth::Page && Tails::wants(name) {
            tails.see(name, stat, content)?;
        } else if depth >= Depth::Nodes {
            facts.see_cluster(name, content);
        }
        Ok(())
    })?;
    survey.packed = packed;
    facts.complete();
    let found = files.folders(PLUGINS)?.into_iter().filter(|name| files.has(&layout::tree(name)));
    let mut all = distinct(plugins(&files)?.into_iter().chain(found))?;
    let is_snapshot = has_objects || [QUERY_ERRORS, HEALTH].iter().any(|name| files.has(name));
    anyhow::ensure!(
        !all.is_empty() || is_snapshot || files.has(layout::WHY),
        "it contains neither results nor a snapshot of a cluster; it is not a Sonobuoy archive"
    );
    if let Some(plugin) = plugin {
        let name = layout::tree(plugin);
        if plugin != health::NAME && !files.has(&name) {
            return Err(not_there(&source, plugin));
        }
        all = vec![plugin.to_owned()];
    }
    Ok(Opened { source, files, plugins: all, survey, facts, tails })
}

/// The error for a plugin without results, which lists the plugins with results.
fn not_there(source: &Source, plugin: &str) -> anyhow::Error {
    let error = absent(&layout::tree(plugin));
    let Ok(files) = source.collect(is_tree, |_| false) else { return error };
    let known = files.folders(PLUGINS).unwrap_or_default();
    let known: Vec<String> = known.into_iter().filter(|name| files.has(&layout::tree(name))).collect();
    match known.len() {
        0 => anyhow::anyhow!("{error}; it has no results of any plugin"),
        _ => anyhow::anyhow!("{error}; it has results of {}", known.join(", ")),
    }
}

fn plugins(files: &Files) -> anyhow::Result<Vec<String>> {
    let Some(bytes) = files.small(INFO)? else { return Ok(Vec::new()) };
    let info = Option::<Info>::deserialize(&mut serde_json::Deserializer::from_slice(&bytes));
    let info = info.map_err(|error| anyhow::anyhow!("`{INFO}`: {error}"))?;
    distinct(info.and_then(|info| info.plugins).unwrap_or_default())
}

/// Each plugin once, in order.
fn distinct(names: impl IntoIterator<Item = String>) -> anyhow::Result<Vec<String>> {
    let mut seen = HashSet::new();
    let plugins: Vec<String> =
        names.into_iter().filter(|name| seen.insert(name.clone())).take(MAX_PLUGINS + 1).collect();
    anyhow::ensure!(
        plugins.len() <= MAX_PLUGINS,
        "the archive names more than {MAX_PLUGINS} plugins; it is not one of a run"
    );
    Ok(plugins)
}

/// Logs that an archive is too old to hold results.
fn note_age(files: &Files) {
    let version = files.small(CONFIG).ok().flatten().and_then(|bytes| {
        let config = base::json::from_slice(&bytes).ok()?;
        Some(config.get("Version")?.as_str()?.to_owned())
    });
    let Some(version) = version else { return };
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
    if let (Some(Some(0)), Some(Some(minor))) = (numbers.next(), numbers.next())
        && minor < 15
    {
        log::warn!("the archive was made by {version}; results that can be shown are written since v0.15.1");
    }
}
