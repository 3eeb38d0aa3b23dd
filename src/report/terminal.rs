//! Text on a terminal: colours, columns, lists, and lines that fit.
//!
//! Escapes for colours are written here, so all other text is made safe to display first.

use std::io::Write;

use anyhow::Result;

use super::words::number;
use base::Joined as _;
use base::visible;

/// A column of text is not cut to fewer characters.
const MIN_TEXT_COLUMN: usize = 12;

pub(super) const DIM: &str = "2";
pub(super) const BOLD: &str = "1";
/// The colours of verdicts, and of changes.
const COLOURS: [(&str, &str); 4] = [
    ("other", BOLD),
    ("failed", "31"),
    ("passed", "32"),
    ("unknown", "33"),
];

/// The colour of a verdict or of a change.
pub(super) fn colour(word: &str) -> Option<&'static str> {
    COLOURS
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, colour)| *colour)
}

/// Print settings.
#[derive(Clone, Copy, Default)]
pub struct Look {
    /// Whether to use colours.
    pub colour: bool,
    /// Maximum width of lines.
    pub width: Option<usize>,
}

/// A destination of text.
pub struct TextOutput<'o> {
    /// Settings.
    pub look: Look,
    /// The output.
    pub out: &'o mut dyn Write,
}

/// Text as for a file.
pub(super) fn as_file(write: impl FnOnce(&mut TextOutput<'_>) -> Result<()>) -> Result<String> {
    let mut out = Vec::new();
    write(&mut TextOutput {
        look: Look::default(),
        out: &mut out,
    })?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

impl TextOutput<'_> {
    /// Writes a line in a colour, cut to the width.
    pub(super) fn painted(&mut self, colour: &str, text: &str) -> Result<()> {
        let mut text = visible::line(text).trim_end().to_owned();
        if let Some(width) = self
            .look
            .width
            .filter(|width| *width > 20 && text.chars().count() > *width)
        {
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

    /// Writes columns as wide as their content, numbers `right`-aligned from a column on, lines in
    /// these colours. The first row has the heads. Columns that do not fit are left out, and named.
    pub(super) fn table(
        &mut self,
        rows: impl IntoIterator<Item = Vec<String>>,
        right: usize,
        colours: &[&str],
    ) -> Result<()> {
        let rows: Vec<_> = rows.into_iter().collect();
        let columns = rows.first().map_or(0, Vec::len);
        let width = |at: usize| visible::width(rows.iter().map(|row| &*row[at]));
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let fitting_columns = self.fitting_columns(&widths, right);
        for (line, row) in rows.iter().enumerate() {
            let cells = row
                .iter()
                .zip(&widths)
                .take(fitting_columns)
                .enumerate()
                .map(|(at, (cell, width))| {
                    let cell = visible::line(cell);
                    if at < right {
                        format!("{cell:width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                });
            self.painted(
                colours.get(line).copied().unwrap_or_default(),
                &cells.joined("  "),
            )?;
        }
        let left_out: Vec<_> = rows
            .first()
            .into_iter()
            .flat_map(|heads| &heads[fitting_columns..])
            .map(|head| head.trim())
            .collect();
        if !left_out.is_empty() {
            self.wrapped(&format!("  (too narrow for {})", left_out.join(", ")))?;
        }
        Ok(())
    }

    /// How many columns fit into the width: numbers as a whole, texts with their beginning. Two are
    /// always shown.
    fn fitting_columns(&self, widths: &[usize], right: usize) -> usize {
        let Some(width) = self.look.width else {
            return widths.len();
        };
        let mut end = 0;
        let mut count = 0;
        for (at, column) in widths.iter().enumerate() {
            let needed = match at < right {
                true => (*column).min(MIN_TEXT_COLUMN),
                false => *column,
            };
            if end + needed > width {
                break;
            }
            end += column + 2;
            count += 1;
        }
        count.max(2).min(widths.len())
    }

    /// Writes a line, cut to the width.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        self.painted("", text)
    }

    /// Writes an empty line.
    pub(super) fn blank(&mut self) -> Result<()> {
        Ok(writeln!(self.out)?)
    }

    /// Writes the first `max` of some lines, indented, and the number of others.
    pub(super) fn list<T: AsRef<str>>(&mut self, lines: &[T], max: usize) -> Result<()> {
        for line in lines.iter().take(max) {
            self.line(&format!("  {}", line.as_ref()))?;
        }
        if lines.len() > max {
            self.line(&format!("  and {} more", number(lines.len() - max)))?;
        }
        Ok(())
    }

    /// Writes a list below its title and its length; nothing without lines.
    pub(super) fn section<T: AsRef<str>>(
        &mut self,
        title: &str,
        lines: &[T],
        max: usize,
    ) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.line(&format!("{title}: {}", number(lines.len())))?;
        self.list(lines, max)?;
        self.blank()
    }

    /// Writes a line that is continued below its indentation.
    pub(super) fn wrapped(&mut self, text: &str) -> Result<()> {
        let text = &*visible::line(text);
        let width = self.look.width.unwrap_or(100).clamp(40, 120);
        let indent = text.len() - text.trim_start().len() + 2;
        let mut words = text.split(' ');
        let mut line = words.next().unwrap_or_default().to_owned();
        for word in words {
            if line.chars().count() + 1 + word.chars().count() > width {
                writeln!(self.out, "{}", line.trim_end())?;
                line = " ".repeat(indent);
            } else {
                line.push(' ');
            }
            line.push_str(word);
        }
        Ok(writeln!(self.out, "{line}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: usize) -> String {
        let rows = [
            ["  PLUGIN", "STATUS", "PASSED", "FAILED", "DURATION"],
            ["  systemd-logs", "failed", "1,200", "17", "2m 3s"],
        ];
        let mut out = Vec::new();
        let mut text = TextOutput {
            look: Look {
                colour: false,
                width: Some(width),
            },
            out: &mut out,
        };
        let rows = rows.iter().map(|row| row.map(str::to_owned).to_vec());
        text.table(rows, 2, &[]).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn narrow_table_leaves_columns_out() {
        assert_eq!(
            table(80),
            "  PLUGIN        STATUS  PASSED  FAILED  DURATION\n  \
             systemd-logs  failed   1,200      17     2m 3s\n"
        );
        assert_eq!(
            table(40),
            "  PLUGIN        STATUS  PASSED  FAILED\n  \
             systemd-logs  failed   1,200      17\n  \
             (too narrow for DURATION)\n"
        );
        assert!(table(21).contains("systemd-logs  fail"), "{}", table(21));
    }
}
