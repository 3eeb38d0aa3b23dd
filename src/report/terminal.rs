//! Text on a terminal: colours, columns, lists, and lines that fit.
//!
//! Escapes for colours are written here, so all other text is made safe to display first.

use std::io::Write;

use anyhow::Result;
use base::Joined as _;
use base::visible;

pub(super) const BOLD: &str = "1";
pub(super) const DIM: &str = "2";
pub(super) const RED: &str = "31";
pub(super) const GREEN: &str = "32";
pub(super) const YELLOW: &str = "33";

/// Print settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Whether to use colours.
    pub colour: bool,
    /// Maximum width of lines.
    pub width: Option<usize>,
}

/// A destination of text.
pub(crate) struct Terminal<'o> {
    /// Settings.
    pub look: Look,
    /// The output.
    pub out: &'o mut dyn Write,
}

impl Terminal<'_> {
    /// Writes a line, cut to the width.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        self.painted("", text)
    }

    /// Writes a line in a colour.
    pub(super) fn painted(&mut self, colour: &str, text: &str) -> Result<()> {
        let safe = visible::line(text);
        let mut text = safe.trim_end().to_owned();
        if let Some(width) = self.look.width.filter(|width| *width > 20 && text.chars().count() > *width) {
            text = visible::cut(&text, width - 1).into_owned();
        }
        Ok(writeln!(self.out, "{}", self.paint(colour, &text))?)
    }

    /// Safe text in a colour.
    pub(super) fn paint(&self, colour: &str, text: &str) -> String {
        if self.look.colour && !colour.is_empty() {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Writes an empty line.
    pub(super) fn gap(&mut self) -> Result<()> {
        Ok(writeln!(self.out)?)
    }

    /// Writes at most `max` lines, and the number of others.
    pub(super) fn list(&mut self, mut lines: impl Iterator<Item = String>, max: usize) -> Result<()> {
        lines.by_ref().take(max).try_for_each(|line| self.line(&line))?;
        match lines.count() {
            0 => Ok(()),
            more => Ok(writeln!(self.out, "  and {} more", super::words::number(more))?),
        }
    }

    /// Writes a title with the length of a list, the list, and an empty line; nothing for an empty list.
    pub(super) fn section(&mut self, title: &str, lines: &[String], max: usize) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.line(&format!("{title}: {}", lines.len()))?;
        self.list(lines.iter().map(|line| format!("  {line}")), max)?;
        self.gap()
    }

    /// Writes columns as wide as their content, numbers `right`-aligned from a column on.
    pub(super) fn table(
        &mut self,
        rows: &[Vec<String>],
        right: usize,
        colour: impl Fn(usize) -> &'static str,
    ) -> Result<()> {
        let columns = rows.first().map_or(0, Vec::len);
        let width = |at: usize| visible::width(rows.iter().map(|row| &*row[at]));
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (at, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                let cell = visible::line(cell);
                if at < right { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            self.painted(colour(at), &cells.joined("  "))?;
        }
        Ok(())
    }

    /// Writes text over several lines; the first and the others start with the given prefixes.
    pub(super) fn wrapped(&mut self, text: &str, first: &str, others: &str) -> Result<()> {
        let width = self.look.width.unwrap_or(100).clamp(40, 120);
        let (mut line, mut empty) = (first.to_owned(), true);
        for word in visible::line(text).split(' ') {
            if !empty && line.chars().count() + 1 + word.chars().count() > width {
                writeln!(self.out, "{}", line.trim_end())?;
                (line, empty) = (others.to_owned(), true);
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        Ok(writeln!(self.out, "{line}")?)
    }
}
