//! `results diff --format html`: the changes between two runs, as a page like that of one run.

use std::io::Write;

use super::super::column;
use super::super::diff::{Change, Diff, KINDS, Kind};
use super::super::snapshot::Objects;
use super::super::times::spoken;
use super::super::words::{count, number, shown};
use super::escape::{anchor, escape};
use super::{frame, minute};

/// Maximum tests of a kind to list.
const MAX_LISTED: usize = 5_000;
const FACTS: usize = 2_000;

/// Writes the page.
pub(crate) fn write_diff(diff: &Diff, objects: Option<&Objects>, out: &mut dyn Write) -> anyhow::Result<()> {
    let headline = headline(diff);
    let failing = diff.of(Kind::NewlyFailing).count() > 0;
    frame::begin("Sonobuoy, two runs compared", &headline, if failing { "failed" } else { "passed" }, out)?;
    write!(out, "<nav aria-label=\"Contents\"><a href=\"#runs\">The two runs</a>")?;
    for (kind, name, title) in KINDS {
        let count = diff.tests(kind);
        if count > 0 {
            let class = class(kind);
            write!(
                out,
                "<a class=\"{class}\" href=\"#{name}\"><span class=\"dot\"></span>{title} <b>{}</b></a>",
                number(count)
            )?;
        }
    }
    writeln!(out, "</nav>\n</div></header>\n<main>")?;
    let classes = ["failed", "unknown", "passed", "other"].into_iter().filter_map(|wanted| {
        let titles: Vec<&str> = KINDS
            .iter()
            .filter(|(kind, ..)| class(*kind) == wanted && diff.of(*kind).next().is_some())
            .map(|(_, _, title)| *title)
            .collect();
        (!titles.is_empty()).then(|| (wanted, titles.join(", ").to_lowercase()))
    });
    let classes: Vec<(&str, String)> = classes.collect();
    frame::tools(classes.iter().map(|(class, word)| (*class, word.as_str())), out)?;
    runs(diff, out)?;
    for (kind, name, title) in KINDS {
        tests(diff, kind, name, title, out)?;
    }
    facts(diff, out)?;
    if let Some(objects) = objects {
        let mut text = Vec::new();
        objects.write_text(&mut text)?;
        writeln!(
            out,
            "<section id=\"objects\">\n<h2>Objects of the cluster</h2>\n<pre tabindex=\"0\">{}</pre>\n</section>",
            escape(&String::from_utf8_lossy(&text))
        )?;
    }
    frame::end("The two archives hold everything in full.", out)
}

/// The comparison in one sentence.
fn headline(diff: &Diff) -> String {
    let told: Vec<String> = KINDS
        .iter()
        .filter_map(|(kind, _, title)| match diff.tests(*kind) {
            0 => None,
            count => Some(format!("{} {}", number(count), title.to_lowercase())),
        })
        .take(3)
        .collect();
    if told.is_empty() { "No test changed".into() } else { told.join(", ") }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::NewlyFailing | Kind::StillFailing => "failed",
        Kind::Fixed => "passed",
        Kind::Slower => "unknown",
        Kind::Vanished | Kind::Appeared | Kind::Changed => "other",
    }
}

/// The two runs side by side, with differences marked.
fn runs(diff: &Diff, out: &mut dyn Write) -> anyhow::Result<()> {
    let [before, after] = &diff.runs;
    let mut rows = vec![
        ("Archive".to_owned(), before.archive.clone(), after.archive.clone(), false),
        ("Result".into(), before.status.into(), after.status.into(), before.status != after.status),
    ];
    let started = |started: &Option<String>| started.as_deref().map(minute).unwrap_or_default();
    rows.push(("Started".into(), started(&before.started), started(&after.started), false));
    for (plugin, was, is) in diff.durations() {
        let name = plugin.map_or_else(|| "Took".to_owned(), |plugin| format!("{plugin} took"));
        let longer = was.max(is) > column::LONGER * was.min(is) + 1.0;
        rows.push((name, spoken(was), spoken(is), longer));
    }
    let versions = column::changed(before, after);
    for (name, version) in &before.versions {
        if let Some(now) = after.versions.get(name).filter(|now| *now == version) {
            rows.push((name.clone(), version.clone(), now.clone(), false));
        }
    }
    for (name, was, is) in versions {
        rows.push((name.to_owned(), was.to_owned(), is.to_owned(), true));
    }
    writeln!(
        out,
        "<section id=\"runs\">\n<h2>The two runs</h2>\n<table>\
         <tr><th><span class=\"soft\">What</span></th><th>Before</th><th>After</th></tr>"
    )?;
    for (name, was, is, marked) in rows {
        let is = if marked { format!("<mark>{}</mark>", escape(&is)) } else { escape(&is) };
        writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{is}</td></tr>",
            escape(&name),
            escape(&was)
        )?;
    }
    Ok(writeln!(
        out,
        "</table>\n<p class=\"soft\">{} did not change.</p>\n</section>",
        count(diff.unchanged, "test")
    )?)
}

fn tests(diff: &Diff, kind: Kind, name: &str, title: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let all = diff.of(kind).count();
    if all == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "<section id=\"{name}\">\n<h2>{title}: {}</h2>\n<div class=\"rows\">",
        number(diff.tests(kind))
    )?;
    let mut plugin = None;
    for change in diff.of(kind).take(MAX_LISTED) {
        if plugin != Some(&change.plugin) {
            if plugin.is_some() {
                writeln!(out, "</div>")?;
            }
            plugin = Some(&change.plugin);
            writeln!(out, "<div class=\"group\"><p class=\"key\">{}</p>", escape(&change.plugin))?;
        }
        row(change, class(kind), name, out)?;
    }
    writeln!(out, "</div></div>")?;
    if all > MAX_LISTED {
        writeln!(out, "<p class=\"soft\">and {} more</p>", number((all - MAX_LISTED) as u64))?;
    }
    Ok(writeln!(out, "</section>")?)
}

fn row(change: &Change, class: &str, kind: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let node = change.node.as_deref().unwrap_or_default();
    let statuses = [&change.before, &change.after].map(|status| status.as_deref().unwrap_or("absent"));
    let mut small = Vec::new();
    if !node.is_empty() {
        small.push(format!("on {node}"));
    }
    if statuses[0] != statuses[1] {
        small.push(statuses.join(" → "));
    }
    let why = match change.why.trim() {
        "" => String::new(),
        why => format!("<div><pre tabindex=\"0\">{}</pre></div>", escape(why)),
    };
    Ok(writeln!(
        out,
        "<details class=\"r {class} plain\" id=\"{}\"><summary>{} <i>{}</i></summary>{why}</details>",
        anchor(kind, &[&change.plugin, node, &change.test]),
        escape(shown(&change.test)),
        escape(&small.join(" · "))
    )?)
}

fn facts(diff: &Diff, out: &mut dyn Write) -> anyhow::Result<()> {
    if diff.facts.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<section id=\"facts\" class=\"facts\">\n<h2>Facts of nodes that changed: {}</h2>\n<ul>",
        number(diff.facts.len() as u64)
    )?;
    for fact in diff.facts.iter().take(FACTS) {
        writeln!(out, "<li>{}</li>", escape(&fact.replace(" -> ", " → ")))?;
    }
    writeln!(out, "</ul>")?;
    if diff.facts.len() > FACTS {
        writeln!(out, "<p class=\"soft\">and {} more</p>", number((diff.facts.len() - FACTS) as u64))?;
    }
    Ok(writeln!(out, "</section>")?)
}
