//! Why tests failed: one card per cause, with its failures.

use std::io::Write;

use super::super::words::number;
use super::digest::{Digest, Group};
use super::escape::{anchor, escape, prose};
use crate::causes::Cause;

/// Maximum failures of a cause that start unfolded.
const CARDS: usize = 5;

/// Writes the section, if anything failed or is unknown.
pub(super) fn write(digest: &Digest, out: &mut dyn Write) -> anyhow::Result<()> {
    for (class, id, title) in
        [("failed", "failures", "Why it failed"), ("unknown", "unknown", "What is unknown, and why")]
    {
        let groups: Vec<&Group> = digest.groups.iter().filter(|group| group.class == class).collect();
        if groups.is_empty() {
            continue;
        }
        writeln!(out, "<section id=\"{id}\" class=\"causes\">\n<h2>{title}</h2>")?;
        for (at, group) in groups.iter().enumerate() {
            // Few causes start unfolded; of many only the first does.
            cause(group, groups.len() <= 3 || at == 0, out)?;
        }
        writeln!(out, "</section>")?;
    }
    Ok(())
}

fn cause(group: &Group, open: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let Cause { cause, count, remedy, link, plugins, .. } = &group.cause;
    writeln!(
        out,
        "<details class=\"cause {}\" id=\"{}\"{}><summary><b>{} ×</b> <span>{}</span> <small>{} · {}</small></summary><div>",
        group.class,
        anchor("cause", &[group.class, cause]),
        if open { " open" } else { "" },
        number(*count),
        escape(cause),
        escape(&group.cause.extent()),
        escape(&plugins.join(", "))
    )?;
    if let Some(remedy) = remedy {
        write!(out, "<p class=\"remedy\"><b>What helps:</b> {}", prose(remedy))?;
        // A link from a plugin is untrusted: shown, not followed.
        match link.as_deref().filter(|link| link.starts_with("https://") || link.starts_with("http://")) {
            Some(link) => writeln!(out, " <a href=\"{0}\" rel=\"noreferrer\">{0}</a></p>", escape(link))?,
            None => writeln!(out, "</p>")?,
        }
    }
    let (first, rest) = group.cards.split_at(group.cards.len().min(CARDS));
    first.iter().try_for_each(|card| writeln!(out, "{card}"))?;
    if !rest.is_empty() {
        writeln!(out, "<details class=\"all\"><summary>{} more</summary>", number(rest.len() as u64))?;
        rest.iter().try_for_each(|card| writeln!(out, "{card}"))?;
        writeln!(out, "</details>")?;
    }
    let more = count - (group.cards.len() as u64).min(*count);
    if more > 0 {
        writeln!(
            out,
            "<p class=\"soft\">and {} more of this cause, listed with their plugins</p>",
            number(more)
        )?;
    }
    Ok(writeln!(out, "</div></details>")?)
}
