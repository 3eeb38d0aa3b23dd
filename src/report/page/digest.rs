//! One pass over all tests: the cards of failures below their causes, the rows of every plugin, and
//! the slowest tests.

use std::collections::HashMap;

use anyhow::Result;
use regex::escape as pattern_of;

use super::html::{Html, anchor, each, html, prose, text};
use crate::run::{Case, PluginReport, Report, SlowTests, column};
use crate::words::{count, number, spoken};
use base::Joined as _;
use base::visible::{head, tail};
use model::item::{DURATION, FAILED, FAILURE, Failure, OTHER, PASSED, SKIPPED, UNKNOWN, plain};
use model::layout;
use model::plugin::builtin;
use model::remedies::{Cause, Causes};
use yaml::natural;

/// Maximum bytes of one detail, from both ends, of those of failures, and of those of other tests
/// of a plugin.
const MAX_DETAIL_BYTES: usize = 12 << 10;
const MAX_FAILURE_DETAILS_BYTES: usize = 500 << 10;
const MAX_ROW_DETAILS_BYTES: usize = 150 << 10;
/// Maximum failures with a card, and maximum cards, and nodes of a card, per cause.
const MAX_CARDS: usize = 2_000;
const MAX_CARDS_OF_CAUSE: usize = 100;
const MAX_CHIPS: usize = 100;
/// Maximum tests to list per plugin, and overall; browsers on phones fail at about five times as
/// many.
const MAX_ROWS_OF_PLUGIN: u64 = 8_000;
const MAX_ROWS: u64 = 10_000;
/// From this number on, passed tests without further data do not unfold: foldable rows are the most
/// expensive.
const MANY_ROWS: u64 = 1_000;
/// Maximum bytes of a skip reason.
const MAX_REASON_BYTES: usize = 300;
/// Number of causes that all start unfolded; of more only the first does.
const MAX_OPEN_CAUSES: usize = 3;

/// What the pass finds.
pub(super) struct Digest {
    /// Failures and unknown results, each with its causes.
    pub groups: Vec<CauseGroup>,
    pub slowest: SlowTests,
    /// By plugin, in the order of the report.
    pub lists: Vec<TestList>,
}

/// A section of causes.
pub(super) struct CauseGroup {
    id: &'static str,
    title: &'static str,
    class: &'static str,
    causes: Vec<(Cause, Vec<Card>)>,
}

/// One failure with all its data, and the nodes with the same one.
struct Card {
    id: String,
    class: &'static str,
    name: String,
    /// The plugin, if there are several, the duration, and a custom status.
    about: Vec<String>,
    group: String,
    chips: Vec<Chip>,
    failure: Failure,
    details: Vec<Detail>,
    file: Option<String>,
}

/// A node with a failure, and the anchor of its test.
struct Chip {
    id: String,
    node: String,
}

/// A detail of a test.
struct Detail {
    key: String,
    text: String,
}

/// The tests of a plugin, rows below their headings.
#[derive(Default)]
pub(super) struct TestList {
    /// Rows become markup at once, since there are thousands.
    blocks: Vec<(String, Html)>,
    /// Number of rows, and how many of them are of skipped tests.
    rows: u64,
    skipped_rows: u64,
}

/// What the cards and rows of a page share.
struct Pass {
    /// Of several tests with one name the later are numbered.
    anchors: HashMap<String, u32>,
    causes: [Causes; 2],
    /// The cards of each cause.
    cards: [HashMap<usize, Vec<Card>>; 2],
    /// The number of the card of each test and cause.
    first_cards: HashMap<(usize, usize, u64), usize>,
    card_count: usize,
    /// Bytes left for details of failures.
    room: usize,
    has_several_plugins: bool,
}

/// How a failure is shown.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    /// As a row only.
    Row,
    /// As a card, to which its row links.
    Card,
    /// As a node of the card of another failure.
    Chip,
}

impl Digest {
    /// Reads every test once.
    pub(super) fn read(report: &Report<'_>) -> Result<Self> {
        let mut pass = Pass {
            anchors: HashMap::new(),
            causes: [(); 2].map(|()| Causes::new(report.node_names())),
            cards: [(); 2].map(|()| HashMap::new()),
            first_cards: HashMap::new(),
            card_count: 0,
            room: MAX_FAILURE_DETAILS_BYTES,
            has_several_plugins: report.plugins.len() > 1,
        };
        let mut slowest = SlowTests::default();
        let mut lists = Vec::new();
        let mut rows_left = MAX_ROWS;
        for plugin in &report.plugins {
            let list = pass.read_plugin(plugin, rows_left, &mut slowest)?;
            rows_left = rows_left.saturating_sub(list.rows);
            lists.push(list);
        }
        Ok(Self {
            groups: pass.into_groups(),
            slowest,
            lists,
        })
    }
}

impl Pass {
    fn read_plugin(
        &mut self,
        plugin: &PluginReport<'_>,
        rows_left: u64,
        slowest: &mut SlowTests,
    ) -> Result<TestList> {
        let mut list = TestList::default();
        let mut row_room = MAX_ROW_DETAILS_BYTES;
        let max_rows = MAX_ROWS_OF_PLUGIN.min(rows_left);
        // Skipped tests say least: they get the room that the others leave.
        let ran = plugin.total - plugin.counts.of(SKIPPED);
        let max_skipped = max_rows.saturating_sub(ran);
        plugin.cases.each(|case| {
            let is_listed = if column(case.status) == SKIPPED {
                list.skipped_rows < max_skipped
            } else {
                list.rows - list.skipped_rows < max_rows
            };
            let mut id = is_listed.then(|| self.next_anchor(case));
            let form = self.add_failure(case, &mut id);
            slowest.add(case, id.as_deref());
            if is_listed || form == Shown::Chip {
                let is_long = plugin.total > MANY_ROWS;
                list.add(case, id, form == Shown::Card, is_long, &mut row_room);
            }
            Ok(())
        })?;
        Ok(list)
    }

    fn next_anchor(&mut self, case: &Case<'_>) -> String {
        let names = [case.plugin, case.node.unwrap_or_default(), case.name];
        let first = anchor("t", &names);
        let nth = self
            .anchors
            .entry(first.clone())
            .and_modify(|nth| *nth += 1)
            .or_insert(1);
        if *nth == 1 {
            first
        } else {
            format!("{first}-{nth}")
        }
    }

    /// Adds a failure or an unknown result to its cause; other tests are rows.
    fn add_failure(&mut self, case: &Case<'_>, id: &mut Option<String>) -> Shown {
        let class = column(case.status);
        let Some(group) = [FAILED, UNKNOWN].iter().position(|known| *known == class) else {
            return Shown::Row;
        };
        let cause = case.add_to(&mut self.causes[group]);
        let test = (group, cause, base::digest(&(case.plugin, case.name)));
        let first = self.first_cards.get(&test).copied();
        if let (Some(place), Some(node)) = (first, case.node) {
            let chips = self.cards[group]
                .get(&cause)
                .map_or(MAX_CHIPS, |cards| cards[place].chips.len());
            if chips >= MAX_CHIPS {
                return Shown::Row;
            }
            let id = id.get_or_insert_with(|| self.next_anchor(case)).clone();
            if let Some(cards) = self.cards[group].get_mut(&cause) {
                let node = node.to_owned();
                cards[place].chips.push(Chip { id, node });
            }
            return Shown::Chip;
        }
        let of_cause = self.cards[group].entry(cause).or_default().len();
        let is_full = self.card_count >= MAX_CARDS || of_cause >= MAX_CARDS_OF_CAUSE;
        if first.is_some() || is_full {
            return Shown::Row;
        }
        let id = id.get_or_insert_with(|| self.next_anchor(case)).clone();
        let card = Card::new(case, id, self.has_several_plugins, &mut self.room);
        self.first_cards.insert(test, of_cause);
        self.card_count += 1;
        self.cards[group].entry(cause).or_default().push(card);
        Shown::Card
    }

    fn into_groups(self) -> Vec<CauseGroup> {
        let titles = [
            ("failures", "Why it failed", FAILED),
            ("unknown", "Could not be read", UNKNOWN),
        ];
        let mut groups = Vec::new();
        for ((causes, mut cards), (id, title, class)) in
            self.causes.into_iter().zip(self.cards).zip(titles)
        {
            let causes: Vec<_> = causes
                .list()
                .into_iter()
                .map(|cause| {
                    let mut cards = cards.remove(&cause.index).unwrap_or_default();
                    for card in &mut cards {
                        card.chips.sort_by_cached_key(|chip| natural(&chip.node));
                    }
                    (cause, cards)
                })
                .collect();
            if !causes.is_empty() {
                groups.push(CauseGroup {
                    id,
                    title,
                    class,
                    causes,
                });
            }
        }
        groups
    }
}

impl Card {
    fn new(case: &Case<'_>, id: String, has_several_plugins: bool, room: &mut usize) -> Self {
        let class = column(case.status);
        let plugin = has_several_plugins.then(|| case.plugin.to_owned());
        let status = Some(case.status.to_owned()).filter(|status| status != class);
        let chips = case.node.map(|node| Chip {
            id: id.clone(),
            node: node.to_owned(),
        });
        let mut failure = case.failure();
        failure.trace = shortened(failure.rest().into_owned(), room);
        failure.message = shortened(failure.message, room);
        Self {
            id,
            class,
            name: if case.is_error() && !failure.message.is_empty() {
                failure.message.clone()
            } else {
                case.title().to_owned()
            },
            about: [plugin, case.duration.map(spoken), status]
                .into_iter()
                .flatten()
                .collect(),
            group: case.group().joined(" › "),
            chips: chips.into_iter().collect(),
            failure,
            details: details(case, room),
            file: case.file.map(str::to_owned),
        }
    }

    fn write(&self, page: &mut Html) {
        let mut about = self.about.clone();
        match &self.chips[..] {
            [] => {}
            [chip] => about.push(format!("on {}", chip.node)),
            chips => about.push(count(chips.len(), "node")),
        }
        html!(
            page,
            "\n<details class=\"t ",
            self.class,
            "\" id=\"",
            text(&self.id),
            "\" data-s=\"",
            self.class,
            "\"",
        );
        if let [chip] = &self.chips[..] {
            html!(page, " data-node=\"", text(&chip.node), "\"");
        }
        html!(
            page,
            "><summary>",
            text(&self.name),
            " <small>",
            text(about.join(" · ")),
            "</small></summary><div>",
        );
        if !self.group.is_empty() {
            html!(page, "<p class=\"key\">", text(&self.group), "</p>");
        }
        self.write_failure(page);
        write_details(page, &self.details);
        if let Some(file) = &self.file {
            html!(page, "\n<p class=\"key\">from ", text(file), "</p>");
        }
        html!(page, "</div></details>");
        if self.chips.len() > 1 {
            html!(page, "\n<p class=\"chips\">");
            for chip in &self.chips {
                html!(
                    page,
                    "<a href=\"#",
                    text(&chip.id),
                    "\">",
                    text(&chip.node),
                    "</a> "
                );
            }
            html!(page, "</p>");
        }
    }

    fn write_failure(&self, page: &mut Html) {
        let Failure { message, trace } = &self.failure;
        // A missing result is named after its message.
        if !message.is_empty() && *message != self.name {
            html!(page, "\n<p class=\"message\">", text(message), "</p>");
        }
        if !trace.is_empty() {
            html!(page, "<pre tabindex=\"0\">", text(trace), "</pre>");
        }
        if message.is_empty() && trace.is_empty() && self.details.is_empty() {
            html!(page, "\n<p class=\"soft\">The plugin gave no details.</p>");
        }
    }
}

impl CauseGroup {
    /// Writes the section.
    pub(super) fn write(&self, page: &mut Html, report: &Report<'_>) {
        html!(
            page,
            "\n<section id=\"",
            self.id,
            "\" class=\"causes\">\n<h2>",
            self.title,
            "</h2>",
        );
        for (at, (cause, cards)) in self.causes.iter().enumerate() {
            let is_open = self.causes.len() <= MAX_OPEN_CAUSES || at == 0;
            self.write_cause(page, report, cause, cards, is_open);
        }
        html!(page, "\n</section>");
    }

    fn write_cause(
        &self,
        page: &mut Html,
        report: &Report<'_>,
        cause: &Cause,
        cards: &[Card],
        is_open: bool,
    ) {
        let id = anchor("cause", &[self.class, &cause.cause]);
        html!(
            page,
            "\n<details class=\"cause ",
            self.class,
            "\" id=\"",
            text(id),
            "\""
        );
        if let Some(command) = rerun(report, cause) {
            html!(page, " data-rerun=\"", text(command), "\"");
        }
        let open = if is_open { " open" } else { "" };
        html!(
            page,
            open,
            "><summary><b>",
            text(title(cause)),
            "</b>",
            &about(cause),
            "<span class=\"message\">",
            &headline(cause),
            "</span></summary><div>",
        );
        self.write_remedy(page, cause);
        for card in cards {
            card.write(page);
        }
        let listed: usize = cards.iter().map(|card| card.chips.len().max(1)).sum();
        let further = cause.count.saturating_sub(listed as u64);
        if further > 0 {
            html!(
                page,
                "\n<p class=\"soft\">and ",
                text(number(further)),
                " more of this cause, listed with their plugins</p>",
            );
        }
        html!(page, "\n</div></details>");
    }

    fn write_remedy(&self, page: &mut Html, cause: &Cause) {
        let Some(remedy) = &cause.remedy else { return };
        html!(
            page,
            "\n<p class=\"remedy\"><b>Suggested fix:</b> ",
            &prose(remedy)
        );
        // A link from a plugin is untrusted: shown, not followed.
        let is_web = |link: &&String| link.starts_with("https://") || link.starts_with("http://");
        if let Some(link) = cause.link.as_ref().filter(is_web) {
            html!(
                page,
                " <a href=\"",
                text(link),
                "\" rel=\"noreferrer\">",
                text(link),
                "</a>",
            );
        }
        html!(page, "</p>");
    }
}

/// What leads a cause: its test, or the plugin of results without a test.
fn title(cause: &Cause) -> String {
    let further = |tests: usize| format!(" and {} more", number(tests));
    match (cause.names.first(), cause.tests) {
        (None, _) => cause.plugins.join(", "),
        (Some(first), 0 | 1) => plain(&first.test).to_owned(),
        (Some(first), tests) => plain(&first.test).to_owned() + &further(tests - 1),
    }
}

/// The extent of a cause, and its plugins, unless they lead it.
fn about(cause: &Cause) -> Html {
    let mut parts = Vec::new();
    let nodes = cause.nodes.count();
    match (cause.count, cause.tests, &cause.example.node) {
        (1, _, Some(node)) => parts.push(format!("on {node}")),
        (1, _, None) => {}
        // The test leads the cause.
        (_, 1, _) if nodes > 0 => parts.push(count(nodes, "node")),
        (all, 1, _) => parts.push(format!("{} times", number(all))),
        (..) => parts.push(cause.extent()),
    }
    if cause.tests == 1 && cause.varies() {
        parts.push("values differ".to_owned());
    }
    if !cause.names.is_empty() {
        parts.push(cause.plugins.join(", "));
    }
    let mut about = Html::default();
    if !parts.is_empty() {
        html!(about, " <small>", text(parts.join(" · ")), "</small>");
    }
    about
}

/// The example of a cause, with what varies between failures dimmed.
fn headline(cause: &Cause) -> Html {
    let mut markup = Html::default();
    let (example, _) = cause.headline();
    if cause.count == 1 || example == cause.cause {
        html!(markup, text(example));
        return markup;
    }
    let mut rest = &*example;
    let varying = |markup: &mut Html, part: &str| {
        if !part.is_empty() {
            html!(markup, "<span class=\"vary\">", text(part), "</span>");
        }
    };
    for part in cause.cause.split(['<', '…']) {
        let literal = part.split_once('>').map_or(part, |(_, literal)| literal);
        let parts = rest.split_once(literal).filter(|_| !literal.is_empty());
        if let Some((before, after)) = parts {
            varying(&mut markup, before);
            html!(markup, text(literal));
            rest = after;
        }
    }
    varying(&mut markup, rest);
    markup
}

/// The command that runs the tests of a cause again. Only a plugin that this program contains can
/// be started by its name, and only the conformance tests by theirs.
fn rerun(report: &Report<'_>, cause: &Cause) -> Option<String> {
    // A run without a cluster has no version of Kubernetes.
    let is_local = report.kubernetes_version.is_empty();
    let [plugin] = &cause.plugins[..] else {
        return None;
    };
    if !is_built_in(report, plugin) {
        return None;
    }
    if plugin == builtin::E2E {
        let focus = cause
            .names
            .iter()
            .map(|place| pattern_of(plain(&place.test)))
            .joined("|")
            .replace(|c: char| c == '\'' || c.is_control(), ".");
        let works = !focus.is_empty() && !is_local;
        return works.then(|| format!("sonobuoy run --wait --e2e-focus '{focus}'"));
    }
    let place = if is_local { "--local" } else { "--wait" };
    Some(format!("sonobuoy run {place} -p {plugin}"))
}

/// Whether a plugin is the built-in one of its name, and no file of that name: its program is the
/// same. Very old archives do not say which program ran.
fn is_built_in(report: &Report<'_>, plugin: &str) -> bool {
    let Some(definition) = builtin::named(plugin) else {
        return false;
    };
    let path = layout::definition(plugin);
    let Ok(Some(stored)) = report.opened.files.document(&path) else {
        return true;
    };
    let program = &stored["Definition"]["spec"]["command"][0];
    [Some(definition), builtin::without_image(plugin)]
        .into_iter()
        .flatten()
        .any(|known| known.spec["command"][0] == *program)
}

impl TestList {
    /// Adds a row; tests with a card link to it.
    fn add(
        &mut self,
        case: &Case<'_>,
        id: Option<String>,
        is_card: bool,
        is_long: bool,
        room: &mut usize,
    ) {
        let class = column(case.status);
        self.rows += 1;
        self.skipped_rows += u64::from(class == SKIPPED);
        let heading = case.node.into_iter().chain(case.group()).joined(" › ");
        if self.blocks.last().is_none_or(|(last, _)| *last != heading) {
            self.blocks.push((heading, Html::default()));
        }
        let Some((_, rows)) = self.blocks.last_mut() else {
            return;
        };
        let id = id.unwrap_or_default();
        if is_card {
            html!(
                rows,
                "<p class=\"r ",
                class,
                "\" data-of=\"",
                text(&id),
                "\"><a href=\"#",
                text(&id),
                "\">",
                text(case.title()),
                "</a>",
            );
            write_aside(rows, case.duration.map(spoken));
            html!(rows, "</p>");
            return;
        }
        let details = row_details(case, room);
        // Rows without content are as short as possible, since they are most of a conformance run.
        let is_short = class == SKIPPED || class == PASSED && is_long;
        if is_short && details.is_empty() {
            let passed = if class == PASSED { " passed" } else { "" };
            html!(
                rows,
                "<p class=\"k",
                passed,
                "\" id=\"",
                text(&id),
                "\">",
                text(case.title()),
            );
            let aside = match class {
                SKIPPED => skip_reason(case, room),
                _ => case.duration.map(spoken),
            };
            write_aside(rows, aside);
            return;
        }
        html!(
            rows,
            "<details class=\"r ",
            class,
            "\" id=\"",
            text(&id),
            "\"><summary>",
            text(case.title()),
        );
        write_aside(rows, case.duration.map(spoken));
        if class == SKIPPED {
            write_aside(rows, skip_reason(case, room));
        }
        write_aside(rows, (class == OTHER).then(|| case.status.to_owned()));
        html!(rows, "</summary>");
        if !details.is_empty() {
            html!(rows, "<div>");
            write_details(rows, &details);
            html!(rows, "</div>");
        }
        html!(rows, "</details>");
    }

    /// Writes all rows.
    pub(super) fn write(&self, page: &mut Html) {
        html!(
            page,
            each(&self.blocks, |page, (heading, rows)| {
                html!(
                    page,
                    "\n<div class=\"group\"><p class=\"key\">",
                    text(heading),
                    "</p>\n",
                    rows,
                    "</div>",
                );
            }),
        );
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// What a plugin has besides the rows: `1,470 more in the archive, 1,000 of them skipped`.
    pub(super) fn missing(&self, plugin: &PluginReport<'_>) -> Option<String> {
        let missing = plugin.total.saturating_sub(self.rows);
        let skipped = plugin
            .counts
            .of(SKIPPED)
            .saturating_sub(self.skipped_rows)
            .min(missing);
        let which = match skipped {
            0 => String::new(),
            all if all == missing => ", all skipped".to_owned(),
            some => format!(", {} of them skipped", number(some)),
        };
        (missing > 0).then(|| format!("{} more in the archive{which}", number(missing)))
    }
}

fn write_aside(rows: &mut Html, aside: Option<String>) {
    if let Some(aside) = aside {
        html!(rows, " <i>", text(aside), "</i>");
    }
}

fn write_details(page: &mut Html, details: &[Detail]) {
    for detail in details {
        html!(
            page,
            "\n<p class=\"key\">",
            text(&detail.key),
            "</p><pre tabindex=\"0\">",
            text(&detail.text),
            "</pre>",
        );
    }
}

/// The reason of a skipped test, according to its file.
fn skip_reason(case: &Case<'_>, room: &mut usize) -> Option<String> {
    let reason = case.from_file.map(|details| details.skipped.trim())?;
    let reason = reason.lines().next().unwrap_or_default();
    // Ginkgo writes the word for every test that was not selected.
    if reason.is_empty() || reason == SKIPPED || *room == 0 {
        return None;
    }
    let reason = head(reason, MAX_REASON_BYTES.min(*room)).to_owned();
    *room -= reason.len();
    Some(reason)
}

/// The details of a test without those that say why it failed.
fn details(case: &Case<'_>, room: &mut usize) -> Vec<Detail> {
    let is_known = |key: &str| {
        key == DURATION || key == FAILURE || key == "error" && column(case.status) == FAILED
    };
    let mut details = Vec::new();
    for (key, value) in &case.item.details {
        if is_known(key) {
            continue;
        }
        let text = match value.as_str() {
            Some(text) => text.to_owned(),
            None => format!("{value:#}"),
        };
        details.push(Detail {
            key: key.clone(),
            text: shortened(text, room),
        });
    }
    details
}

/// All details of a test, with why it failed.
fn row_details(case: &Case<'_>, room: &mut usize) -> Vec<Detail> {
    let mut all = Vec::new();
    if [FAILED, UNKNOWN].contains(&column(case.status)) {
        let reason = case.failure().text();
        if !reason.is_empty() {
            all.push(Detail {
                key: FAILURE.to_owned(),
                text: shortened(reason, room),
            });
        }
    }
    all.extend(details(case, room));
    all
}

/// The two ends of a long text, whose length is taken from the room.
fn shortened(text: String, room: &mut usize) -> String {
    let limit = MAX_DETAIL_BYTES.min(*room);
    let text = if text.len() <= limit {
        text
    } else {
        let (first, last) = (head(&text, limit / 2), tail(&text, limit / 2));
        let omitted = text.len() - first.len() - last.len();
        format!("{first}\n[… {omitted} bytes left out …]\n{last}")
    };
    *room -= text.len().min(*room);
    text
}
