//! Lines at the end of a terminal that are redrawn repeatedly, and other output above them.
//!
//! Owns the escapes and the position of the lines. Concurrent output to the terminal goes through
//! [`around`], as in `logger`. Does not interpret lines, which must not contain control characters
//! except colours. Draws on standard error, so that standard output carries only data. Starts no
//! thread.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::{lock, sys};

/// Size of a terminal that does not report one.
const DEFAULT_SIZE: Size = Size {
    columns: 80,
    rows: 24,
};
/// Minimum time between two redraws.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Characters per line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// A line and its width, excluding colours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Text of the line.
    pub text: String,
    /// Columns.
    pub width: usize,
}

static SCREEN: Mutex<Screen> = Mutex::new(Screen::new());

/// Whether standard error supports redrawing.
pub fn possible() -> bool {
    std::io::stderr().is_terminal() && sys::colours()
}

/// Current size of the terminal.
pub fn size() -> Size {
    let (columns, rows) = sys::terminal_size(std::io::stderr()).unwrap_or_default();
    let or = |found: usize, usual: usize| if found == 0 { usual } else { found };
    Size {
        columns: or(columns, DEFAULT_SIZE.columns),
        rows: or(rows, DEFAULT_SIZE.rows),
    }
}

/// Replaces the drawn lines; an empty list removes them.
pub fn draw(lines: Vec<Line>) {
    let mut screen = lock(&SCREEN);
    screen.lines = lines;
    let text = screen.frame(size().columns);
    write_to_terminal(&text);
}

/// Runs `write`, which writes other output, above the drawn lines.
pub fn around<T>(write: impl FnOnce() -> T) -> T {
    let mut screen = lock(&SCREEN);
    if screen.lines.is_empty() && screen.drawn.is_empty() {
        // A slow reader of standard output must not block other threads.
        drop(screen);
        return write();
    }
    write_to_terminal(&screen.erasure(size().columns));
    let written = write();
    // Frequent output does not redraw the frame each time: the next tick does.
    if screen
        .latest
        .is_none_or(|latest| latest.elapsed() >= INTERVAL)
    {
        let text = screen.frame(size().columns);
        write_to_terminal(&text);
    }
    written
}

fn write_to_terminal(text: &str) {
    // A closed terminal is not an error.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The latest lines, and those on the terminal.
struct Screen {
    lines: Vec<Line>,
    /// Widths of the drawn lines; the cursor is at the start of the line after them.
    drawn: Vec<usize>,
    /// Width of the terminal at that time.
    columns: usize,
    latest: Option<Instant>,
}

impl Screen {
    const fn new() -> Self {
        Self {
            lines: Vec::new(),
            drawn: Vec::new(),
            columns: 0,
            latest: None,
        }
    }

    /// Moves up to the first line. A terminal that became narrower has wrapped the lines.
    fn up(&self, columns: usize) -> String {
        let rows: usize = self
            .drawn
            .iter()
            .map(|width| width.div_ceil(columns.max(1)).max(1))
            .sum();
        if rows == 0 {
            String::new()
        } else {
            format!("\r\x1b[{rows}A")
        }
    }

    fn erasure(&mut self, columns: usize) -> String {
        let mut text = self.up(columns);
        if !text.is_empty() {
            text.push_str("\x1b[J");
        }
        self.drawn.clear();
        text
    }

    fn frame(&mut self, columns: usize) -> String {
        let mut text = if columns == self.columns {
            self.up(columns)
        } else {
            self.erasure(columns)
        };
        for line in &self.lines {
            let _ = writeln!(text, "{}\x1b[K", line.text);
        }
        text.push_str("\x1b[J");
        self.drawn = self.lines.iter().map(|line| line.width).collect();
        self.columns = columns;
        self.latest = Some(Instant::now());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Emulates the parts of a terminal that determine its visible content.
    struct Terminal {
        rows: Vec<Vec<char>>,
        at: (usize, usize),
        columns: usize,
    }

    impl Terminal {
        fn new(columns: usize) -> Self {
            Self {
                rows: vec![Vec::new()],
                at: (0, 0),
                columns,
            }
        }

        /// Wraps long lines, as terminals do when they become narrower.
        fn resize(&mut self, columns: usize) {
            let (row, _) = self.at;
            let above: usize = self.rows[..row]
                .iter()
                .map(|row| row.len().div_ceil(columns).max(1))
                .sum();
            self.rows = (self.rows.iter())
                .flat_map(|row| match row.len() {
                    0 => vec![Vec::new()],
                    _ => row.chunks(columns).map(<[char]>::to_vec).collect(),
                })
                .collect();
            self.at = (above, 0);
            self.columns = columns;
        }

        fn write(&mut self, text: &str) {
            let mut rest = text.chars();
            while let Some(c) = rest.next() {
                match c {
                    '\n' => self.at = (self.at.0 + 1, 0),
                    '\r' => self.at.1 = 0,
                    '\x1b' => {
                        assert_eq!(rest.next(), Some('['));
                        let body: String = rest.by_ref().take_while(char::is_ascii_digit).collect();
                        // `take_while` has consumed the letter; the text before it determines its
                        // meaning.
                        match body.parse::<usize>() {
                            Ok(rows) => {
                                self.at.0 = self.at.0.checked_sub(rows).expect("above the screen");
                            }
                            Err(_) => self.clear(),
                        }
                    }
                    c => {
                        assert!(self.at.1 < self.columns, "a line is broken");
                        let row = &mut self.rows[self.at.0];
                        row.resize(row.len().max(self.at.1 + 1), ' ');
                        row[self.at.1] = c;
                        self.at.1 += 1;
                    }
                }
                self.rows
                    .resize(self.rows.len().max(self.at.0 + 1), Vec::new());
            }
        }

        /// Handles both kinds of clearing: the rest of the line and everything below is redrawn or
        /// removed.
        fn clear(&mut self) {
            self.rows[self.at.0].truncate(self.at.1);
            if self.at.1 == 0 {
                self.rows.truncate(self.at.0 + 1);
            }
        }

        fn shown(&self) -> Vec<String> {
            let mut rows: Vec<String> = self.rows.iter().map(|row| row.iter().collect()).collect();
            while rows.last().is_some_and(String::is_empty) {
                rows.pop();
            }
            rows
        }
    }

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts
            .iter()
            .map(|text| Line {
                text: (*text).into(),
                width: text.len(),
            })
            .collect()
    }

    #[test]
    fn frames_replace_each_other_below_printed_lines() {
        let (mut screen, mut terminal) = (Screen::new(), Terminal::new(20));
        terminal.write("before\n");
        for (texts, expected) in [
            (&["one", "two"][..], &["before", "one", "two"][..]),
            (&["three"], &["before", "three"]),
            (&["a", "b", "c"], &["before", "a", "b", "c"]),
        ] {
            screen.lines = lines(texts);
            let frame = screen.frame(20);
            terminal.write(&frame);
            assert_eq!(terminal.shown(), expected);
        }
        let erasure = screen.erasure(20);
        terminal.write(&erasure);
        terminal.write("a message\n");
        let frame = screen.frame(20);
        terminal.write(&frame);
        assert_eq!(terminal.shown(), ["before", "a message", "a", "b", "c"]);
        screen.lines.clear();
        let frame = screen.frame(20);
        terminal.write(&frame);
        assert_eq!(terminal.shown(), ["before", "a message"]);
        assert_eq!(screen.erasure(20), "", "there is nothing left to erase");
    }

    #[test]
    fn narrower_terminal_keeps_no_remains() {
        let (mut screen, mut terminal) = (Screen::new(), Terminal::new(20));
        terminal.write("before\n");
        screen.lines = lines(&["0123456789abcdef", "", "short"]);
        let frame = screen.frame(20);
        terminal.write(&frame);
        terminal.resize(6);
        assert_eq!(
            terminal.shown(),
            ["before", "012345", "6789ab", "cdef", "", "short"]
        );
        screen.lines = lines(&["012…", "short"]);
        let frame = screen.frame(6);
        terminal.write(&frame);
        assert_eq!(terminal.shown(), ["before", "012…", "short"]);
    }
}
