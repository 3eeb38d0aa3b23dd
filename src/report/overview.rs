//! Counts of an archive, per plugin and per node. The first of the two passes of every view but text.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::health::{self, Health};
use super::open::Opened;
use super::select::Select;
use super::source;
use super::source::Files;
use super::times::Times;
use super::words::count;
use crate::causes::{Cause, Causes, Why};
use crate::item::read::Visit;
use crate::item::{FAILED, FLAKY, Item, PASSED, SKIPPED, TIMEOUT, UNKNOWN};
use crate::layout;

/// The exit code of `--fail-on` if something failed.
pub(crate) const FAILED_CODE: u8 = 3;
/// The exit code of `--fail-on` if nothing failed but something is unknown.
pub(crate) const UNKNOWN_CODE: u8 = 4;

/// Leaves by status.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The verdict on a run, ordered from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Nothing failed and nothing is unknown; custom statuses are not failures.
    Passed,
    /// Something is undetermined, but nothing failed.
    Unknown,
    /// Something failed or timed out.
    Failed,
}

/// An archive in numbers.
pub(crate) struct Overview<'a> {
    /// The archive.
    pub opened: &'a Opened,
    /// The selected item, as in `Select`; `None` for all.
    pub node: Option<&'a str>,
    /// The version of Sonobuoy that created it.
    pub version: String,
    /// The run's id.
    pub run: String,
    /// The interrupted run that this run resumed.
    pub resumes: String,
    /// The version of the API server.
    pub kubernetes: String,
    /// Start and end times.
    pub times: Times,
    /// Each plugin.
    pub plugins: Vec<Plugin>,
    /// The cluster.
    pub health: Option<Health>,
    /// Why the run failed as a whole, if so.
    pub why: Option<Why>,
}

/// A plugin in numbers.
#[derive(Debug, Default)]
pub(crate) struct Plugin {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
    /// All its leaves.
    pub counts: Counts,
    /// Its nodes, if it runs on each; duplicates in the tree are merged.
    pub nodes: Vec<Node>,
    /// The leaves of each node item of the tree, in its order.
    pub node_items: Vec<Counts>,
    /// The error reading its tree.
    pub error: Option<String>,
}

/// A node in numbers.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
    /// All its leaves.
    pub counts: Counts,
    /// Equal for nodes whose leaves have the same names and statuses.
    pub likeness: u64,
}

/// The displayed settings of the run.
#[derive(Default, Deserialize)]
struct Config {
    #[serde(rename = "Version")]
    version: Option<String>,
    #[serde(rename = "UUID")]
    run: Option<String>,
    #[serde(rename = "Resumes")]
    resumes: Option<String>,
}

#[derive(Default, Deserialize)]
struct Server {
    #[serde(rename = "gitVersion")]
    version: Option<String>,
}

/// The recorded failure of the run; `None` if the file is too large or broken.
fn why(files: &Files) -> Option<Why> {
    json(files, layout::WHY).ok().flatten()
}

impl<'a> Overview<'a> {
    /// Reads every tree once; an unreadable tree is recorded, not an error.
    pub(crate) fn read(opened: &'a Opened, node: Option<&'a str>) -> anyhow::Result<Self> {
        let files = &opened.files;
        let config: Config = json(files, layout::CONFIG)?.unwrap_or_default();
        let server: Server = json(files, layout::SERVER_VERSION)?.unwrap_or_default();
        let health = Health::read(files)?;
        let mut kubernetes = server.version.unwrap_or_default();
        if let Some(health) = health.as_ref().filter(|_| kubernetes.is_empty()) {
            kubernetes.clone_from(&health.api_version);
        }
        let plugins = opened.plugins.iter().filter(|plugin| *plugin != health::NAME);
        Ok(Self {
            opened,
            node,
            version: config.version.unwrap_or_default(),
            run: config.run.unwrap_or_default(),
            resumes: config.resumes.unwrap_or_default(),
            kubernetes,
            times: Times::read(files, &opened.survey),
            plugins: plugins.map(|plugin| Plugin::read(files, plugin, node)).collect(),
            health,
            why: why(files),
        })
    }

    /// The worst verdict of all plugins.
    pub(crate) fn verdict(&self) -> Verdict {
        self.plugins.iter().map(Plugin::verdict).max().unwrap_or(Verdict::Unknown)
    }

    /// The exit code for `--fail-on limit`, with the reason; see the table in `docs/results.md`.
    pub(crate) fn ending(&self, limit: &str) -> Option<(u8, String)> {
        let incomplete =
            || self.plugins.iter().any(|plugin| plugin.error.is_some() || plugin.status == UNKNOWN);
        match (self.verdict(), limit) {
            (Verdict::Failed, "failed" | "unknown" | "incomplete" | "flaky") => {
                Some((FAILED_CODE, self.verdict_text(Verdict::Failed, FAILED)))
            }
            (Verdict::Unknown, "unknown" | "flaky") => {
                Some((UNKNOWN_CODE, self.verdict_text(Verdict::Unknown, UNKNOWN)))
            }
            (Verdict::Unknown, "incomplete") if incomplete() => {
                Some((UNKNOWN_CODE, self.verdict_text(Verdict::Unknown, UNKNOWN)))
            }
            (Verdict::Passed, "flaky") => {
                let flaky = self.counts().get(FLAKY).copied().filter(|flaky| *flaky > 0)?;
                let verb = if flaky == 1 { "is" } else { "are" };
                let with = self.plugins.iter().filter(|plugin| plugin.counts.contains_key(FLAKY));
                let names: Vec<&str> = with.map(|plugin| plugin.name.as_str()).collect();
                Some((FAILED_CODE, format!("{} {verb} flaky in {}", count(flaky, "test"), names.join(", "))))
            }
            _ => None,
        }
    }

    /// Number of tests and plugins with a verdict: `4 tests failed in e2e`.
    fn verdict_text(&self, verdict: Verdict, column: &str) -> String {
        let bad: Vec<&Plugin> = self.plugins.iter().filter(|plugin| plugin.verdict() == verdict).collect();
        let counted = |plugin: &Plugin| {
            columns(&plugin.counts).iter().find(|(name, _)| *name == column).map_or(0, |(_, count)| *count)
        };
        let tests: u64 = bad.iter().map(|plugin| counted(plugin)).sum();
        let named = bad.iter().filter(|plugin| tests == 0 || counted(plugin) > 0);
        let names: Vec<&str> = named.map(|plugin| plugin.name.as_str()).collect();
        let verb = if column == FAILED {
            "failed"
        } else if tests == 1 {
            "is unknown"
        } else {
            "are unknown"
        };
        match (tests, &names[..]) {
            (_, []) => "the archive has no results".into(),
            (0, _) => format!("the results of {} {verb}", names.join(", ")),
            (tests, _) => format!("{} {verb} in {}", count(tests, "test"), names.join(", ")),
        }
    }

    /// Plugins from bad to good, equal ones in stored order.
    pub(crate) fn by_severity(&self) -> Vec<&Plugin> {
        let mut plugins: Vec<&Plugin> = self.plugins.iter().collect();
        plugins.sort_by_key(|plugin| std::cmp::Reverse(plugin.verdict()));
        plugins
    }

    /// The names of all nodes.
    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().flat_map(|plugin| &plugin.nodes).map(|node| node.name.as_str())
    }

    /// Causes of failures, and of unknown results.
    pub(crate) fn causes(&self) -> anyhow::Result<(Vec<Cause>, Vec<Cause>)> {
        let mut causes = [Causes::new(self.node_names()), Causes::new(self.node_names())];
        for plugin in
            self.plugins.iter().filter(|plugin| plugin.error.is_none() && plugin.verdict() != Verdict::Passed)
        {
            self.leaves(plugin, |leaf| {
                let at = match leaf.status() {
                    FAILED | TIMEOUT => 0,
                    UNKNOWN => 1,
                    _ => return Ok(()),
                };
                leaf.failure(&plugin.name, |failure| causes[at].add(failure));
                Ok(())
            })?;
        }
        let [failed, unknown] = causes;
        Ok((failed.list(), unknown.list()))
    }

    /// The leaves of all plugins.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = Counts::new();
        for (status, count) in self.plugins.iter().flat_map(|plugin| &plugin.counts) {
            *sum.entry(status.clone()).or_default() += count;
        }
        sum
    }
}

impl Verdict {
    /// The verdict in one word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Passed => PASSED,
            Self::Unknown => UNKNOWN,
            Self::Failed => FAILED,
        }
    }

    fn of(status: &str, counts: &Counts) -> Self {
        let any =
            |statuses: &[&str]| statuses.iter().any(|status| counts.get(*status).is_some_and(|n| *n > 0));
        if status == FAILED || any(&[FAILED, TIMEOUT]) {
            Self::Failed
        } else if status == UNKNOWN || any(&[UNKNOWN, ""]) {
            Self::Unknown
        } else {
            Self::Passed
        }
    }
}

impl Plugin {
    fn read(files: &Files, name: &str, node: Option<&str>) -> Self {
        let plugin = Self { name: name.to_owned(), ..Self::default() };
        let mut select = Select::new(node, Counting { plugin, depth: 0, places: HashMap::new(), node: None });
        let result = open_tree(files, name).and_then(|tree| select.run(tree));
        let mut plugin = match result {
            Ok(()) => select.inner.plugin,
            Err(error) => {
                let error = Some(format!("{error:#}"));
                Self { name: name.to_owned(), status: UNKNOWN.into(), error, ..Self::default() }
            }
        };
        if plugin.status.is_empty() {
            plugin.status = UNKNOWN.into();
        }
        plugin
    }

    /// The plugin's verdict.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.error.is_some() {
            return Verdict::Unknown;
        }
        Verdict::of(&self.status, &self.counts)
    }

    /// All leaves.
    pub(crate) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Size of the largest group of equal nodes, and the other nodes.
    pub(crate) fn odd_nodes(&self) -> (usize, Vec<&Node>) {
        let mut alike = BTreeMap::<u64, usize>::new();
        for node in &self.nodes {
            *alike.entry(node.likeness).or_default() += 1;
        }
        let Some((&likeness, &count)) = alike.iter().max_by_key(|(_, count)| **count) else {
            return (0, Vec::new());
        };
        // Without a majority no node is odd.
        if count * 2 <= self.nodes.len() {
            return (count, Vec::new());
        }
        (count, self.nodes.iter().filter(|node| node.likeness != likeness).collect())
    }
}

impl Node {
    /// The node's verdict.
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(&self.status, &self.counts)
    }
}

/// The five counts of every view, and further ones.
pub(crate) fn columns(counts: &Counts) -> [(&'static str, u64); 6] {
    let of = |status: &str| counts.get(status).copied().unwrap_or_default();
    let (passed, failed, skipped, unknown) =
        (of(PASSED), of(FAILED) + of(TIMEOUT), of(SKIPPED), of(UNKNOWN) + of(""));
    let flaky = of(FLAKY);
    let other = counts.values().sum::<u64>() - passed - failed - skipped - unknown - flaky;
    [
        (FAILED, failed),
        (UNKNOWN, unknown),
        (FLAKY, flaky),
        (PASSED, passed),
        ("other", other),
        (SKIPPED, skipped),
    ]
}

/// Reads a plugin's tree.
pub(crate) fn open_tree<'f>(files: &'f Files, plugin: &str) -> anyhow::Result<Box<dyn source::Content + 'f>> {
    let name = layout::tree(plugin);
    files.open(&name)?.ok_or_else(|| source::absent(&name))
}

struct Counting {
    plugin: Plugin,
    depth: usize,
    /// The index of each node among those of the plugin.
    places: HashMap<String, usize>,
    /// The node being counted, and the depth of its item.
    node: Option<(Node, usize)>,
}

impl Counting {
    fn root(&mut self, item: &Item) {
        if self.depth == 0 {
            self.plugin.status.clone_from(&item.status);
        }
    }

    fn begin_node(&mut self, item: &Item) {
        if self.node.is_none() && item.meta.get("type").is_some_and(|kind| kind == "node") {
            let node = Node {
                name: item.name.clone(),
                status: item.status.clone(),
                counts: Counts::new(),
                likeness: 0,
            };
            self.node = Some((node, self.depth));
        }
    }

    fn end_node(&mut self) {
        let Some((node, _)) = self.node.take_if(|(_, depth)| *depth == self.depth) else { return };
        self.plugin.node_items.push(node.counts.clone());
        let at = *self.places.entry(node.name.clone()).or_insert(self.plugin.nodes.len());
        match self.plugin.nodes.get_mut(at) {
            // Its errors follow its results.
            Some(other) => {
                if node.verdict() > other.verdict() {
                    other.status = node.status;
                }
                node.counts
                    .into_iter()
                    .for_each(|(status, count)| *other.counts.entry(status).or_default() += count);
                other.likeness ^= node.likeness.rotate_left(1);
            }
            None => self.plugin.nodes.push(node),
        }
    }
}

impl Visit for Counting {
    fn enter(&mut self, item: Item) -> anyhow::Result<()> {
        self.root(&item);
        self.begin_node(&item);
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.depth -= 1;
        self.end_node();
        Ok(())
    }

    fn leaf(&mut self, item: Item) -> anyhow::Result<()> {
        self.root(&item);
        self.begin_node(&item);
        let status = if item.status.is_empty() { UNKNOWN.into() } else { item.status };
        if let Some((node, _)) = &mut self.node {
            *node.counts.entry(status.clone()).or_default() += 1;
            // In order: one plugin is not expected to reorder its leaves.
            let mut hasher = DefaultHasher::new();
            let name = if item.name == node.name { "" } else { &item.name };
            (node.likeness, name, &status).hash(&mut hasher);
            node.likeness = hasher.finish();
        }
        *self.plugin.counts.entry(status).or_default() += 1;
        self.end_node();
        Ok(())
    }
}

/// Parses a JSON file; `None` if broken. Without an intermediate tree, since a small text can become a large one.
fn json<T: DeserializeOwned>(files: &Files, name: &str) -> anyhow::Result<Option<T>> {
    Ok(files.small(name)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}
