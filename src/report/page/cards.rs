//! The pass over all tests: failures by cause, the slowest, and the list of each plugin's tests. Holds a bounded number of
//! all three.

use std::collections::HashMap;

use serde_json::Value;

use super::super::run::{Case, PluginReport, Report, column};
use super::super::template::{anchor, digest, escape, fill, letters};
use super::super::words::spoken;
use crate::item::{DURATION, FAILED, PASSED, SKIPPED, UNKNOWN, plain};
use crate::remedies::{Cause, Causes};
use base::Joined as _;
use base::json::{json, list};
use base::visible::{head, tail};
use base::yaml::natural;

/// Maximum bytes of one detail, from both ends, of those of failures, and of those of other tests of a plugin.
const DETAIL: usize = 12 << 10;
const DETAILS: usize = 500 << 10;
const OTHER_DETAILS: usize = 150 << 10;
/// Maximum failures with details, and maximum per cause.
const FAILURES: usize = 2_000;
const OF_ONE_CAUSE: usize = 100;
/// Number of slowest tests to show.
const SLOWEST: usize = 10;
/// Maximum tests to list per plugin, and overall; browsers on phones fail at about five times as many.
const ROWS: u64 = 8_000;
const ALL_ROWS: u64 = 10_000;
/// From this number on, passed tests without further data do not unfold: foldable rows are the most expensive.
const MANY_ROWS: u64 = 1_000;

/// The failures of one kind, by cause.
#[derive(Default)]
struct FailureGroup {
    causes: Vec<Cause>,
    /// By the number of the cause.
    cards: HashMap<usize, Vec<Value>>,
}

/// The tests of a plugin, rows below their headings.
#[derive(Default)]
struct TestList {
    /// Rows become text at once, since there are thousands.
    blocks: Vec<(String, Vec<u8>)>,
    rows: u64,
}

/// The result of the pass.
#[derive(Default)]
pub(super) struct Digest {
    /// Failures, and unknown results.
    groups: [FailureGroup; 2],
    /// The slowest tests.
    pub slowest: Vec<Value>,
    /// By plugin, in the given order.
    lists: Vec<TestList>,
}

/// Assigns an anchor to each listed test; of several with one name the later are numbered.
#[derive(Default)]
struct Anchors(HashMap<u64, u32>);

impl Anchors {
    fn next(&mut self, case: &Case<'_>) -> String {
        let of = digest(&[case.plugin, case.node.unwrap_or_default(), case.name]);
        let nth = self.0.entry(of).and_modify(|nth| *nth += 1).or_insert(1);
        if *nth == 1 { format!("t-{}", letters(of)) } else { format!("t-{}-{nth}", letters(of)) }
    }
}

impl Digest {
    /// Reads every test of these plugins once.
    pub(super) fn read(report: &Report<'_>, plugins: &[&PluginReport<'_>]) -> anyhow::Result<Self> {
        let mut digest = Self::default();
        let mut causes = [(); 2].map(|()| Causes::new(report.node_names()));
        let mut anchors = Anchors::default();
        // The number of the card of each test and cause.
        let mut first = HashMap::new();
        let (mut room, mut cards, mut listed) = (DETAILS, 0, 0);
        for plugin in plugins {
            let (mut list, mut room_of_rows) = (TestList::default(), OTHER_DETAILS);
            plugin.cases.each(|case| {
                let (mut is_card, mut is_chip) = (false, false);
                let is_listed = list.rows < ROWS.min(ALL_ROWS - listed);
                let mut id = is_listed.then(|| anchors.next(case));
                if let Some(at) = [FAILED, UNKNOWN].iter().position(|class| *class == column(case.status)) {
                    let cause = case.failure(|failure| causes[at].add(failure));
                    let of_cause = digest.groups[at].cards.entry(cause).or_default();
                    let test = (at, cause, self::digest(&[case.plugin, case.name]));
                    let known = first.get(&test).zip(case.node);
                    is_card = known.is_none() && cards < FAILURES && of_cause.len() < OF_ONE_CAUSE;
                    let chips =
                        known.and_then(|(card, _)| of_cause.get_mut::<usize>(*card)?["nodes"].as_array_mut());
                    let chips = chips.filter(|chips| chips.len() < OF_ONE_CAUSE);
                    is_chip = chips.is_some();
                    if is_card || is_chip {
                        id.get_or_insert_with(|| anchors.next(case));
                    }
                    if let Some(chips) = chips {
                        chips.push(json!({"id": id, "node": case.node}));
                    } else if is_card {
                        first.insert(test, of_cause.len());
                        cards += 1;
                        of_cause.push(card(case, id.as_deref(), plugins.len() > 1, &mut room));
                    }
                }
                case.keep_if_slow(&mut digest.slowest, SLOWEST, id.as_deref());
                if is_listed || is_chip {
                    let details = if is_card { Vec::new() } else { details(case, &mut room_of_rows) };
                    list.add(case, id, is_card, details, plugin.total > MANY_ROWS)?;
                }
                Ok(())
            })?;
            listed += list.rows.min(ALL_ROWS - listed);
            digest.lists.push(list);
        }
        for (group, causes) in digest.groups.iter_mut().zip(causes) {
            group.causes = causes.list();
            for chips in group.cards.values_mut().flatten().filter_map(|card| card["nodes"].as_array_mut()) {
                chips.sort_by_cached_key(|chip| natural(chip["node"].as_str().unwrap_or_default()));
            }
        }
        Ok(digest)
    }

    /// The sections of failures and of unknown results, each with its causes.
    pub(super) fn groups(&self) -> Vec<Value> {
        let titles = [("failures", "Why it failed", FAILED), ("unknown", "Undetermined results", UNKNOWN)];
        let groups = self.groups.iter().zip(titles).filter(|(group, _)| !group.causes.is_empty());
        let sections = groups.map(|(group, (id, title, class))| {
            let causes = group.causes.iter().enumerate().map(|(at, cause)| {
                let cards = group.cards.get(&cause.index).map_or(&[][..], Vec::as_slice);
                let chips = cards.iter().filter_map(|card| card["nodes"].as_array()).map(Vec::len);
                let listed = chips.sum::<usize>() + cards.len();
                // A link from a plugin is untrusted: shown, not followed.
                let is_web = |link: &&String| link.starts_with("https://") || link.starts_with("http://");
                json!({
                    "class": class, "id": anchor("cause", &[class, &cause.cause]), "headline": headline(cause),
                    "rerun": rerun(cause),
                    // Few causes start unfolded; of many only the first does.
                    "open": group.causes.len() <= 3 || at == 0,
                    "count": cause.count, "extent": cause.extent(), "plugins": cause.plugins,
                    "remedy": cause.remedy, "link": cause.link.as_ref().filter(is_web),
                    "cards": cards,
                    "more": cause.count.saturating_sub(listed as u64),
                })
            });
            json!({"id": id, "title": title, "causes": list(causes)})
        });
        sections.collect()
    }

    /// The list of the plugin at an index, and the number of its rows.
    pub(super) fn list(&self, at: usize) -> (Vec<Value>, u64) {
        let TestList { blocks, rows } = &self.lists[at];
        let blocks =
            blocks.iter().map(|(above, rows)| json!({"above": above, "rows": String::from_utf8_lossy(rows)}));
        (blocks.collect(), *rows)
    }
}

impl TestList {
    /// Adds a row; tests with a card link to it.
    fn add(
        &mut self,
        case: &Case<'_>,
        id: Option<String>,
        is_card: bool,
        details: Vec<Value>,
        is_long: bool,
    ) -> anyhow::Result<()> {
        self.rows += 1;
        let above = case.node.into_iter().chain(case.group()).joined(" › ");
        if self.blocks.last().is_none_or(|(last, _)| *last != above) {
            self.blocks.push((above, Vec::new()));
        }
        let class = column(case.status);
        // Rows without content are as short as possible, since they are most of a conformance run.
        let is_short = class == SKIPPED || class == PASSED && is_long;
        let kind = match is_short && details.is_empty() {
            _ if is_card => "link",
            true => "plain",
            false => "row",
        };
        let row = json!({
            kind: true, "class": class, "id": id, "name": case.name, "details": details,
            "duration": case.duration.filter(|_| kind != "plain" || class != SKIPPED),
            "passed": class == PASSED, "status": (class == "other").then_some(case.status),
        });
        let rows = self.blocks.last_mut().map(|(_, rows)| rows);
        rows.map_or(Ok(()), |rows| fill(include_str!("row.html"), &[&row], escape, rows))
    }
}

/// One failure with all its data; `many` tells whether there are several plugins.
fn card(case: &Case<'_>, id: Option<&str>, many: bool, room: &mut usize) -> Value {
    let class = column(case.status);
    let small = [
        many.then(|| case.plugin.to_owned()),
        case.node.map(|node| format!("on {node}")),
        case.duration.map(spoken),
        Some(case.status.to_owned()).filter(|status| status != class),
    ];
    json!({
        "class": class, "id": id, "node": case.node, "name": case.name, "small": small.into_iter().flatten().joined(" · "),
        "above": case.group().joined(" › "), "nodes": [], "details": details(case, room),
        "file": case.file,
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
    let is_safe = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    match &cause.plugins[..] {
        [plugin] if plugin == "e2e" => {
            let focus = cause.names.iter().map(|name| regex::escape(plain(name))).joined("|");
            let focus = focus.replace(|c: char| c == '\'' || c.is_control(), ".");
            (!focus.is_empty()).then(|| format!("sonobuoy run --wait --e2e-focus '{focus}'"))
        }
        plugins => {
            let all = plugins.iter().all(is_safe);
            all.then(|| format!("sonobuoy run --wait -p {}", plugins.join(" -p ")))
        }
    }
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
    let (first, last) = (head(&text, limit / 2), tail(&text, limit / 2));
    format!("{first}\n[… {} bytes left out …]\n{last}", text.len() - first.len() - last.len())
}
