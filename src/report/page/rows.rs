//! Every test of a plugin, a row each that unfolds; tests shown as failures link to their card.

use std::io::Write;

use super::super::leaf::Leaf;
use super::super::overview::{Overview, Plugin};
use super::super::times::spoken;
use super::super::words::{number, shown};
use super::digest::{Digest, Places, class, details};
use super::escape::escape;

/// Maximum tests to list per plugin, and overall; browsers on phones fail at about five times as many.
const ROWS: u64 = 8_000;
const ALL_ROWS: u64 = 10_000;
/// From this number on, passed tests without further data do not unfold: foldable rows are the most expensive.
const MANY_ROWS: u64 = 1_000;
/// Maximum bytes of details of tests that did not fail.
const DETAILS: usize = 150 << 10;

/// Writes the list.
pub(super) fn write(
    overview: &Overview<'_>,
    plugin: &Plugin,
    digest: &Digest,
    written: &mut u64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let total = plugin.total();
    let title =
        if total == 1 { "The one result".to_owned() } else { format!("All {} results", number(total)) };
    writeln!(out, "<details class=\"all\"><summary>{title}</summary>\n<div class=\"rows\">")?;
    let mut list = List {
        places: Places::default(),
        written: 0,
        limit: ROWS.min(ALL_ROWS - *written),
        room: DETAILS,
        many: total > MANY_ROWS,
        above: None,
        digest,
    };
    overview.leaves(plugin, |leaf| list.row(&plugin.name, leaf, out))?;
    if list.above.is_some() {
        writeln!(out, "</div>")?;
    }
    writeln!(out, "</div>")?;
    *written += list.written;
    if total > list.written {
        writeln!(out, "<p class=\"soft\">and {} more in the archive</p>", number(total - list.written))?;
    }
    Ok(writeln!(out, "</details>")?)
}

struct List<'d> {
    places: Places,
    written: u64,
    limit: u64,
    room: usize,
    /// Whether rows are as short as possible.
    many: bool,
    /// The heading of the current rows.
    above: Option<String>,
    digest: &'d Digest,
}

impl List<'_> {
    fn row(&mut self, plugin: &str, leaf: &Leaf<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
        let place = self.places.of(plugin, leaf);
        // The targets of links from the slowest tests are always listed.
        let linked = || {
            self.digest.slowest.iter().any(|slow| slow.anchor == place && !self.digest.shown.contains(&place))
        };
        if self.written >= self.limit && !linked() {
            return Ok(());
        }
        self.written += 1;
        let above = leaf
            .node
            .into_iter()
            .chain(leaf.group().iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" › ");
        if self.above.as_ref() != Some(&above) {
            if self.above.is_some() {
                writeln!(out, "</div>")?;
            }
            writeln!(out, "<div class=\"group\"><p class=\"key\">{}</p>", escape(&above))?;
            self.above = Some(above);
        }
        let class = class(leaf);
        let name = escape(shown(&leaf.item.name));
        let took = leaf.duration.map(|seconds| format!(" <i>{}</i>", spoken(seconds))).unwrap_or_default();
        if self.digest.shown.contains(&place) {
            // Counted with its card.
            return Ok(writeln!(
                out,
                "<p class=\"r {class}\" data-of=\"{place}\"><a href=\"#{place}\">{name}</a>{took}</p>"
            )?);
        }
        let status =
            if class == "other" { format!(" <i>{}</i>", escape(leaf.status())) } else { String::new() };
        let told = if self.room > 0 { details(leaf, &mut self.room) } else { None };
        if class == "skipped" && told.is_none() {
            // Most rows of a conformance run, without content to unfold: as short as possible.
            return Ok(writeln!(out, "<p class=\"k\" id=\"{place}\">{name}")?);
        }
        if self.many && class == "passed" && told.is_none() {
            return Ok(writeln!(out, "<p class=\"k passed\" id=\"{place}\">{name}{took}")?);
        }
        // The style sheet has the properties that most rows share.
        let body = told.map(|told| format!("<div>{told}</div>")).unwrap_or_default();
        Ok(writeln!(
            out,
            "<details class=\"r {class}\" id=\"{place}\"><summary>{name}{took}{status}</summary>{body}</details>"
        )?)
    }
}
