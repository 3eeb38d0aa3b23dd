//! All tests of the page: the pass that computes its summary (causes of failures, slowest tests, durations), and the
//! list of each plugin's tests. Holds a bounded number of both.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::case::Case;
use super::super::logs::Logs;
use super::super::run::{Counts, Plugin, Report};
use super::super::times::spoken;
use super::of_log;
use super::template::{anchor, digest, escape, fill, letters, prose};
use crate::item::{DURATION, plain};
use crate::remedies::{Cause, Causes};
use base::Joined as _;
use base::json::json;

/// Maximum bytes of one detail, from both ends, of those of failures, and of those of other tests of a plugin.
const DETAIL: usize = 12 << 10;
const DETAILS: usize = 500 << 10;
const OTHER_DETAILS: usize = 150 << 10;
/// Maximum failures with details, maximum per cause, and those of a cause that start unfolded.
const FAILURES: usize = 2_000;
const OF_ONE_CAUSE: usize = 100;
const UNFOLDED: usize = 5;
/// Number of slowest tests to show.
const SLOWEST: usize = 10;
/// Maximum tests to hold for distinguishing equal names; further ones are numbered.
const PLACES: usize = 200_000;
/// Maximum number of logs linked from a failure.
const LINKS: usize = 2;
/// Maximum tests to list per plugin, and overall; browsers on phones fail at about five times as many.
const ROWS: u64 = 8_000;
const ALL_ROWS: u64 = 10_000;
/// From this number on, passed tests without further data do not unfold: foldable rows are the most expensive.
const MANY_ROWS: u64 = 1_000;

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
    pub place: Place,
}

/// The failures of one kind, by cause.
struct Group {
    causes: Vec<Cause>,
    /// By the number of the cause.
    cards: HashMap<usize, Vec<Value>>,
}

/// The result of the pass.
pub(super) struct Digest {
    /// Failures, and unknown results.
    groups: [Group; 2],
    pub slowest: Vec<Slow>,
    pub histogram: [u64; BOUNDS.len()],
    /// Tests that are shown as failures.
    shown: HashSet<Place>,
    /// Failures of the same test on other nodes, which link to their rows.
    others: HashSet<Place>,
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
struct Places {
    met: u32,
    of: HashMap<u64, u32>,
}

impl Places {
    fn of(&mut self, case: &Case<'_>) -> Place {
        let of = digest(&[case.plugin, case.node.unwrap_or_default(), case.name]);
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
    pub(super) fn read(report: &Report<'_>, logs: &Logs<'_>) -> anyhow::Result<Self> {
        let group = || Group { causes: Vec::new(), cards: HashMap::new() };
        let mut digest = Self {
            groups: [group(), group()],
            slowest: Vec::new(),
            histogram: [0; BOUNDS.len()],
            shown: HashSet::new(),
            others: HashSet::new(),
        };
        let mut causes = [(); 2].map(|()| Causes::new(report.node_names()));
        let mut room = DETAILS;
        let mut first = HashMap::new();
        for plugin in &report.plugins {
            let mut places = Places::default();
            plugin.cases.each(|case| {
                let place = places.of(case);
                digest.time(case, place);
                let at = match class(case) {
                    "failed" => 0,
                    "unknown" => 1,
                    _ => return Ok(()),
                };
                let cause = case.failure(|failure| causes[at].add(failure));
                let cards = digest.groups[at].cards.entry(cause).or_default();
                let test = (at, cause, letters(self::digest(&[case.plugin, case.name])));
                if let (Some(card), Some(node)) = (first.get(&test).copied(), case.node) {
                    let chips = cards.get_mut(card).and_then(|card: &mut Value| card["nodes"].as_array_mut());
                    if let Some(chips) = chips.filter(|chips| chips.len() < OF_ONE_CAUSE) {
                        digest.others.insert(place);
                        chips.push(json!({"id": place.to_string(), "node": node}));
                    }
                } else if digest.shown.len() < FAILURES && cards.len() < OF_ONE_CAUSE {
                    first.insert(test, cards.len());
                    digest.shown.insert(place);
                    cards.push(card(logs, case, place, report.plugins.len() > 1, &mut room));
                }
                Ok(())
            })?;
        }
        for (group, causes) in digest.groups.iter_mut().zip(causes) {
            group.causes = causes.list();
            let chips = group.cards.values_mut().flatten().filter_map(|card| card["nodes"].as_array_mut());
            chips.for_each(|chips| {
                chips.sort_by_cached_key(|chip| natural(chip["node"].as_str().unwrap_or_default()));
            });
        }
        Ok(digest)
    }

    fn time(&mut self, case: &Case<'_>, place: Place) {
        let Some(seconds) = case.duration else { return };
        let at = BOUNDS.iter().position(|(bound, _)| seconds < *bound).unwrap_or(BOUNDS.len() - 1);
        self.histogram[at] += 1;
        let at = self.slowest.partition_point(|other| other.seconds >= seconds);
        if at < SLOWEST {
            let (name, plugin) = (case.name.to_owned(), case.plugin.to_owned());
            let node = case.node.map(str::to_owned);
            self.slowest.insert(at, Slow { seconds, name, plugin, node, place });
            self.slowest.truncate(SLOWEST);
        }
    }

    /// The sections of failures and of unknown results, each with its causes.
    pub(super) fn groups(&self) -> Vec<Value> {
        let titles =
            [("failures", "Why it failed", "failed"), ("unknown", "What is unknown, and why", "unknown")];
        let groups = self.groups.iter().zip(titles).filter(|(group, _)| !group.causes.is_empty());
        let sections = groups.map(|(group, (id, title, class))| {
            let causes = group.causes.iter().enumerate().map(|(at, cause)| {
                let cards = group.cards.get(&cause.place).map_or(&[][..], Vec::as_slice);
                let chips =
                    cards.iter().filter_map(|card| card["nodes"].as_array()).map(Vec::len).sum::<usize>();
                let (first, rest) = cards.split_at(cards.len().min(UNFOLDED));
                // A link from a plugin is untrusted: shown, not followed.
                let link = cause.link.as_ref();
                let link = link.filter(|link| link.starts_with("https://") || link.starts_with("http://"));
                json!({
                    "class": class, "id": anchor("cause", &[class, &cause.cause]), "cause": headline(cause),
                    "rerun": rerun(cause),
                    // Few causes start unfolded; of many only the first does.
                    "open": group.causes.len() <= 3 || at == 0,
                    "count": cause.count, "extent": cause.extent(), "plugins": cause.plugins.join(", "),
                    "remedy": cause.remedy.as_deref().map(prose), "link": link,
                    "parts": [{"cards": first, "folded": 0}, {"cards": rest, "folded": rest.len()}],
                    "more": cause.count.saturating_sub((cards.len() + chips) as u64),
                })
            });
            json!({"id": id, "title": title, "causes": causes.collect::<Vec<_>>()})
        });
        sections.collect()
    }

    /// The tests of a plugin below their headings, and their number; tests shown as failures link to their cards.
    pub(super) fn blocks(&self, plugin: &Plugin<'_>, listed: u64) -> anyhow::Result<(Vec<Value>, u64)> {
        // Rows become text at once, since there are thousands.
        let mut blocks = Vec::<(String, Vec<u8>)>::new();
        let (mut places, mut room, mut written) = (Places::default(), OTHER_DETAILS, 0);
        plugin.cases.each(|case| {
            let place = places.of(case);
            // The targets of links from the slowest tests are always listed.
            let is_shown = self.shown.contains(&place);
            let linked = || {
                self.others.contains(&place)
                    || !is_shown && self.slowest.iter().any(|slow| slow.place == place)
            };
            if written >= ROWS.min(ALL_ROWS - listed) && !linked() {
                return Ok(());
            }
            written += 1;
            let above = case.node.into_iter().chain(case.group());
            let above = above.joined(" › ");
            if blocks.last().is_none_or(|(last, _)| *last != above) {
                blocks.push((above, Vec::new()));
            }
            let class = class(case);
            let details = if is_shown || room == 0 { Vec::new() } else { details(case, &mut room) };
            // Rows without content are as short as possible, since they are most of a conformance run.
            let is_short = class == "skipped" || class == "passed" && plugin.total > MANY_ROWS;
            let kind = match () {
                () if is_shown => "link",
                () if is_short && details.is_empty() => "plain",
                () => "row",
            };
            let row = json!({
                kind: true, "class": class, "id": place.to_string(), "name": plain(case.name),
                "took": case.duration.filter(|_| kind != "plain" || class != "skipped").map(spoken),
                "passed": if class == "passed" { " passed" } else { "" },
                "other": (class == "other").then_some(case.status),
                "unfolds": !details.is_empty(), "details": details,
            });
            blocks.last_mut().map_or(Ok(()), |(_, rows)| fill(include_str!("row.html"), &[&row], rows))
        })?;
        let blocks =
            blocks.iter().map(|(above, rows)| json!({"above": above, "rows": String::from_utf8_lossy(rows)}));
        Ok((blocks.collect(), written))
    }
}

/// One failure with all its data; `many` tells whether there are several plugins.
fn card(logs: &Logs<'_>, case: &Case<'_>, place: Place, many: bool, room: &mut usize) -> Value {
    let class = class(case);
    let small = [
        many.then(|| case.plugin.to_owned()),
        case.node.map(|node| format!("on {node}")),
        case.duration.map(spoken),
        Some(case.status.to_owned()).filter(|status| status != class),
    ];
    let links = logs.of_pod(case.plugin, case.node).take(LINKS).map(|log| {
        let file = log.name.rsplit('/').next().unwrap_or_default();
        let container = file.strip_suffix(".txt").unwrap_or(file);
        format!("<a href=\"#{}\">log of {}</a>", of_log(log), escape(container))
    });
    json!({
        "class": class, "id": place.to_string(), "name": plain(case.name),
        "small": small.into_iter().flatten().joined(" · "), "above": case.group().joined(" › "),
        "nodes": [], "details": details(case, room), "logs": links.joined(" · "), "file": case.file,
    })
}

/// The example of a cause as markup, with what varies between failures dimmed.
fn headline(cause: &Cause) -> String {
    let (example, _) = cause.headline();
    if cause.count == 1 || example == cause.cause {
        return escape(&example);
    }
    let (mut out, mut rest) = (String::new(), &*example);
    let varying = |text: &str| {
        if text.is_empty() { String::new() } else { format!("<span class=\"vary\">{}</span>", escape(text)) }
    };
    for part in
        cause.cause.split(['<', '…']).map(|part| part.split_once('>').map_or(part, |(_, literal)| literal))
    {
        let Some((before, after)) = rest.split_once(part).filter(|_| !part.is_empty()) else { continue };
        out.push_str(&varying(before));
        out.push_str(&escape(part));
        rest = after;
    }
    out + &varying(rest)
}

/// The command that runs the tests of a cause again; none if a name could mean something to a shell.
fn rerun(cause: &Cause) -> Option<String> {
    let names = cause.names.iter().map(|name| regex::escape(plain(name)));
    let focus = names.collect::<Vec<_>>().join("|").replace(|c: char| c == '\'' || c.is_control(), ".");
    match &cause.plugins[..] {
        [plugin] if plugin == "e2e" => {
            (!focus.is_empty()).then(|| format!("sonobuoy run --wait --e2e-focus '{focus}'"))
        }
        plugins => {
            let is_safe =
                |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            let all = plugins.iter().all(is_safe);
            all.then(|| {
                plugins
                    .iter()
                    .fold("sonobuoy run --wait".into(), |text, plugin| format!("{text} -p {plugin}"))
            })
        }
    }
}

/// A key that sorts `vm-2` before `vm-10`.
fn natural(name: &str) -> String {
    let mut key = String::new();
    for part in name.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        key.push_str(&format!("{digits:0>20}{}", &part[digits.len()..]));
    }
    key
}

/// All details of a test.
fn details(case: &Case<'_>, room: &mut usize) -> Vec<Value> {
    let error = case.error.map(|error| ("error", error.to_owned()));
    let told = case.item.details.iter().filter(|(key, _)| key.as_str() != DURATION);
    let told = told.map(|(key, value)| match value {
        Value::String(text) => (key.as_str(), text.clone()),
        other => (key.as_str(), serde_json::to_string_pretty(other).unwrap_or_default()),
    });
    let shortened = error.into_iter().chain(told).map(|(key, text)| {
        let text = ends(text, DETAIL.min(*room));
        *room -= text.len().min(*room);
        json!({"key": key, "text": text})
    });
    shortened.collect()
}

/// The two ends of a long text.
fn ends(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let is_whole = |at: &usize| text.is_char_boundary(*at);
    let first = (0..=limit / 2).rev().find(is_whole).unwrap_or_default();
    let last = (text.len() - limit / 2..text.len()).find(is_whole).unwrap_or(text.len());
    format!("{}\n[… {} bytes left out …]\n{}", &text[..first], last - first, &text[last..])
}

/// The column, one of six, of a case.
fn class(case: &Case<'_>) -> &'static str {
    let one = Counts([(case.status.to_owned(), 1)].into());
    one.shares().next().map_or("other", |(class, _)| class)
}
