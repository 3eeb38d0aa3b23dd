//! Text on a terminal: colours, columns, lists, and lines that fit.
//!
//! Escapes for colours are written here, so all other text is made safe to display first.

use std::io::Write;

use anyhow::Result;
use serde_json::Value;

use super::template::fill;
use base::Joined as _;
use base::visible;

pub(super) const BOLD: &str = "1";
pub(super) const DIM: &str = "2";
pub(super) const RED: &str = "31";
pub(super) const GREEN: &str = "32";
pub(super) const YELLOW: &str = "33";

/// Lines that are continued below their indentation.
const WRAP: &str = "wrap";
/// Styles of lines in templates.
const STYLES: [(&str, &str); 6] = [
    ("[wrap]", WRAP),
    ("[bold]", BOLD),
    ("[dim]", DIM),
    ("[red]", RED),
    ("[green]", GREEN),
    ("[yellow]", YELLOW),
];

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

    /// Fills a template and writes its lines. A style may precede a line: `[wrap]` continues a long one below its
    /// indentation, the others paint it.
    pub(super) fn fill(&mut self, template: &str, values: &[&Value]) -> Result<()> {
        let mut text = Vec::new();
        fill(template, values, |text| visible::line(text).into_owned(), &mut text)?;
        for line in String::from_utf8_lossy(&text).lines() {
            let styled = STYLES.iter().find_map(|(name, colour)| Some((*colour, line.strip_prefix(name)?)));
            match styled.unwrap_or(("", line)) {
                (WRAP, line) => self.wrapped(line)?,
                (colour, line) => self.painted(colour, line)?,
            }
        }
        Ok(())
    }

    /// Writes text over several lines.
    fn wrapped(&mut self, text: &str) -> Result<()> {
        let width = self.look.width.unwrap_or(100).clamp(40, 120);
        let indent = text.len() - text.trim_start().len() + 2;
        let (mut line, mut empty) = (String::new(), true);
        for word in text.split(' ') {
            if !empty && line.chars().count() + 1 + word.chars().count() > width {
                writeln!(self.out, "{}", line.trim_end())?;
                (line, empty) = (" ".repeat(indent), true);
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
