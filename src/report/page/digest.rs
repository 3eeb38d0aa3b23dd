//! The pass over all tests that computes the summary of the page: causes of failures, slowest tests, distribution of
//! durations. Holds a bounded number of failures, already rendered.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::leaf::Leaf;
use super::super::logs::Logs;
use super::super::overview::{Overview, columns};
use super::super::times::spoken;
use super::super::words::shown;
use super::escape::{digest, ends, escape, letters};
use super::of_log;
use crate::causes::{Cause, Causes};
use crate::item;

/// Maximum bytes of one detail, from both ends.
const DETAIL: usize = 12 << 10;
/// Maximum bytes of all details.
const DETAILS: usize = 500 << 10;
/// Maximum failures with details, and maximum per cause.
const FAILURES: usize = 2_000;
const OF_ONE_CAUSE: usize = 100;
/// Number of slowest tests to show.
const SLOWEST: usize = 10;
/// Maximum tests to hold for distinguishing equal names; further ones are numbered.
const PLACES: usize = 200_000;
/// Maximum number of logs linked from a failure.
const LINKS: usize = 2;

/// The bounds of the histogram in seconds, with labels.
pub(super) const BOUNDS: [(f64, &str); 8] = [
    (0.1, "under 0.1 s"),
    (1.0, "0.1 to 1 s"),
    (5.0, "1 to 5 s"),
    (15.0, "5 to 15 s"),
    (60.0, "15 to 60 s"),
    (300.0, "1 to 5 min"),
    (1800.0, "5 to 30 min"),
    (f64::INFINITY, "over 30 min"),
];

/// A slow test.
pub(super) struct Slow {
    pub seconds: f64,
    pub name: String,
    pub plugin: String,
    pub node: Option<String>,
    pub anchor: Place,
}

/// A cause with its rendered failures.
pub(super) struct Group {
    pub cause: Cause,
    /// `failed` or `unknown`.
    pub class: &'static str,
    pub cards: Vec<String>,
}

/// The result of the pass.
pub(super) struct Digest {
    /// Failures before unknown results.
    pub groups: Vec<Group>,
    pub slowest: Vec<Slow>,
    pub histogram: [u64; BOUNDS.len()],
    /// Anchors of tests that are shown as failures.
    pub shown: HashSet<Place>,
}

/// The anchor of a test in the page.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    of: u64,
    nth: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t-{}", letters(self.of))?;
        if self.nth > 0 { write!(f, "-{}", self.nth + 1) } else { Ok(()) }
    }
}

/// Assigns an anchor to each test; of several with one name the later are numbered.
#[derive(Default)]
pub(super) struct Places {
    met: u32,
    of: HashMap<u64, u32>,
}

impl Places {
    pub(super) fn of(&mut self, plugin: &str, leaf: &Leaf<'_>) -> Place {
        let of = digest(&[plugin, leaf.node.unwrap_or_default(), &leaf.item.name]);
        self.met += 1;
        let room = self.of.len() < PLACES;
        let nth = match self.of.get_mut(&of) {
            Some(nth) => {
                *nth += 1;
                *nth
            }
            None if room => {
                self.of.insert(of, 0);
                0
            }
            // A number that no other test has.
            None => self.met,
        };
        Place { of, nth }
    }
}

impl Digest {
    /// Reads every test once.
    pub(super) fn read(overview: &Overview<'_>, logs: &Logs) -> anyhow::Result<Self> {
        let mut pass = Pass {
            overview,
            logs,
            room: DETAILS,
            cards: 0,
            groups: [Part::new(overview), Part::new(overview)],
        };
        let mut digest = Self {
            groups: Vec::new(),
            slowest: Vec::new(),
            histogram: [0; BOUNDS.len()],
            shown: HashSet::new(),
        };
        for plugin in overview.plugins.iter().filter(|plugin| plugin.error.is_none()) {
            let mut places = Places::default();
            overview.leaves(plugin, |leaf| {
                let place = places.of(&plugin.name, leaf);
                digest.time(&plugin.name, leaf, place);
                let class = class(leaf);
                if class == "failed" || class == "unknown" {
                    pass.failure(&plugin.name, leaf, class, place, &mut digest.shown);
                }
                Ok(())
            })?;
        }
        for (part, class) in pass.groups.into_iter().zip(["failed", "unknown"]) {
            let mut cards = part.cards;
            for cause in part.causes.list() {
                let cards = cards.remove(&cause.place).unwrap_or_default();
                digest.groups.push(Group { cause, class, cards });
            }
        }
        Ok(digest)
    }

    fn time(&mut self, plugin: &str, leaf: &Leaf<'_>, place: Place) {
        let Some(seconds) = leaf.duration else { return };
        let at = BOUNDS.iter().position(|(bound, _)| seconds < *bound).unwrap_or(BOUNDS.len() - 1);
        self.histogram[at] += 1;
        if self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|last| last.seconds < seconds) {
            let slow = Slow {
                seconds,
                name: leaf.item.name.clone(),
                plugin: plugin.to_owned(),
                node: leaf.node.map(str::to_owned),
                anchor: place,
            };
            let at = self.slowest.partition_point(|other| other.seconds >= seconds);
            self.slowest.insert(at, slow);
            self.slowest.truncate(SLOWEST);
        }
    }
}

struct Part {
    causes: Causes,
    cards: HashMap<usize, Vec<String>>,
}

impl Part {
    fn new(overview: &Overview<'_>) -> Self {
        Self { causes: Causes::new(overview.node_names()), cards: HashMap::new() }
    }
}

struct Pass<'o> {
    overview: &'o Overview<'o>,
    logs: &'o Logs,
    room: usize,
    cards: usize,
    groups: [Part; 2],
}

impl Pass<'_> {
    fn failure(
        &mut self,
        plugin: &str,
        leaf: &Leaf<'_>,
        class: &str,
        place: Place,
        shown: &mut HashSet<Place>,
    ) {
        let part = &mut self.groups[usize::from(class == "unknown")];
        let cause = leaf.failure(plugin, |failure| part.causes.add(failure));
        let cards = part.cards.entry(cause).or_default();
        if self.cards >= FAILURES || cards.len() >= OF_ONE_CAUSE {
            return;
        }
        self.cards += 1;
        cards.push(card(
            self.logs,
            plugin,
            leaf,
            class,
            place,
            self.overview.plugins.len() > 1,
            &mut self.room,
        ));
        shown.insert(place);
    }
}

/// Renders one failure with all its data.
fn card(
    logs: &Logs,
    plugin: &str,
    leaf: &Leaf<'_>,
    class: &str,
    place: Place,
    many: bool,
    room: &mut usize,
) -> String {
    let mut small = Vec::new();
    if many {
        small.push(escape(plugin));
    }
    small.extend(leaf.node.map(|node| format!("on {}", escape(node))));
    small.extend(leaf.duration.map(spoken));
    if leaf.status() != class {
        small.push(escape(leaf.status()));
    }
    let mut text = format!(
        "<details class=\"t {class}\" id=\"{place}\" data-s=\"{class}\"><summary>{} <small>{}</small></summary><div>",
        escape(shown(&leaf.item.name)),
        small.join(" · ")
    );
    if !leaf.group().is_empty() {
        text.push_str(&format!("<p class=\"key\">{}</p>", escape(&leaf.group().join(" › "))));
    }
    text.push_str(
        &details(leaf, room).unwrap_or_else(|| "<p class=\"soft\">The plugin gave no details.</p>".into()),
    );
    let links: Vec<String> = logs
        .of_pod(plugin, leaf.node)
        .take(LINKS)
        .map(|log| format!("<a href=\"#{}\">log of {}</a>", of_log(log), escape(log.container())))
        .collect();
    if !links.is_empty() {
        text.push_str(&format!("<p class=\"key\">{}</p>", links.join(" · ")));
    }
    if let Some(file) = leaf.file {
        text.push_str(&format!("<p class=\"key\">from {}</p>", escape(file)));
    }
    text.push_str("</div></details>");
    text
}

/// All details of a test; `None` without any.
pub(super) fn details(leaf: &Leaf<'_>, room: &mut usize) -> Option<String> {
    let error = leaf.item.meta.get("error").map(|error| ("error".to_owned(), error.clone()));
    let told = leaf.item.details.iter().filter(|(key, _)| key.as_str() != item::DURATION);
    let told = told.map(|(key, value)| match value {
        Value::String(text) => (key.clone(), text.clone()),
        other => (key.clone(), serde_json::to_string_pretty(other).unwrap_or_default()),
    });
    let mut out = String::new();
    for (key, text) in error.into_iter().chain(told) {
        let text = ends(&text, DETAIL.min(*room));
        *room -= text.len().min(*room);
        out.push_str(&format!(
            "<p class=\"key\">{}</p><pre tabindex=\"0\">{}</pre>",
            escape(&key),
            escape(&text)
        ));
    }
    (!out.is_empty()).then_some(out)
}

/// The column, one of six, of a leaf.
pub(super) fn class(leaf: &Leaf<'_>) -> &'static str {
    let one = [(leaf.status().to_owned(), 1)].into();
    columns(&one).into_iter().find(|(_, count)| *count > 0).map_or("other", |(class, _)| class)
}
