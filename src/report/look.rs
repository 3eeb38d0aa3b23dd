//! Print settings of comparisons in text: colours, columns and line width.

use std::io::Write;

use base::visible;

/// Print settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Whether to use colours.
    pub colour: bool,
    /// Maximum width of lines.
    pub width: Option<usize>,
}

/// Cuts a line to a width.
pub(super) fn fit(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if width > 20 && line.chars().count() > width => {
            let cut: String = line.chars().take(width - 1).collect();
            format!("{cut}…")
        }
        _ => line.to_owned(),
    }
}

/// Writes columns as wide as their content.
pub(super) fn table(rows: &[Vec<String>], look: Look, out: &mut dyn Write) -> anyhow::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| visible::width(rows.iter().map(|row| &*row[at]));
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", visible::line(cell)));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", fit(line.trim_end(), look.width))?;
    }
    Ok(())
}
