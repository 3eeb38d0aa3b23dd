//! Why a test failed: the message of its framework, and the trace below it.
//!
//! Trees join both with a blank, as the original does. The file of the test knows where the message
//! ends. Where there is no such file, the message is the first line, unless the line repeats its
//! beginning after a place (`no disk a.go:1: no disk`).

use std::borrow::Cow;

use base::digest;

/// What test frameworks write before a message in its trace.
const ANNOUNCEMENTS: [&str; 2] = ["[FAILED] ", "Error: "];
/// Maximum length of a line that is searched for a repetition.
const MAX_SEARCHED_BYTES: usize = 4 << 10;

/// Why a test failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// What went wrong, in the words of the framework.
    pub message: String,
    /// Where, and what else it says; may repeat the message.
    pub trace: String,
}

/// Finds the message of a test's file at the start of the text in the tree.
#[derive(Clone, Copy, Default)]
pub struct MessageMark {
    length: usize,
    digest: u64,
}

impl MessageMark {
    /// The mark of a message.
    pub fn new(message: &str) -> Self {
        let message = message.trim();
        Self {
            length: message.len(),
            digest: digest(&message),
        }
    }

    /// The message at the start of a text, and the rest; `None` if there is no message, or the text
    /// begins with something else.
    fn split(self, text: &str) -> Option<(&str, &str)> {
        let (message, rest) = text.split_at_checked(self.length)?;
        let is_found = self.length > 0 && digest(&message) == self.digest;
        is_found.then_some((message, rest))
    }
}

impl Failure {
    /// The two parts of a text in a tree.
    pub fn split(text: &str, mark: MessageMark) -> Self {
        let text = text.trim();
        let line = text.lines().next().unwrap_or_default();
        let (message, trace) = match (mark.split(text), repeated_length(line)) {
            (Some(parts), _) => parts,
            (None, Some(length)) => text.split_at(length),
            // A trace that begins with the message.
            (None, None) => (line, text),
        };
        // The blank that joins both; what follows is the indentation of the trace.
        let trace = trace.strip_prefix(' ').unwrap_or(trace);
        Self {
            message: without_announcement(message).to_owned(),
            trace: trace.trim_start_matches(['\r', '\n']).trim_end().to_owned(),
        }
    }

    /// Adds the text of another part.
    pub fn add(&mut self, other: &Self) {
        if self.message.is_empty() {
            self.clone_from(other);
            return;
        }
        if !self.trace.is_empty() {
            self.trace.push('\n');
        }
        self.trace.push_str(&other.text());
    }

    /// The trace without the message where it begins with it; the place before it remains.
    pub fn rest(&self) -> Cow<'_, str> {
        if self.message.is_empty() {
            return Cow::Borrowed(&self.trace);
        }
        let place_ends = self
            .trace
            .find(&*self.message)
            .filter(|at| is_place(&self.trace[..*at]));
        let Some(start) = place_ends else {
            return Cow::Borrowed(&self.trace);
        };
        let after = &self.trace[start + self.message.len()..];
        if !after.is_empty() && !after.starts_with(['\r', '\n']) {
            return Cow::Borrowed(&self.trace);
        }
        let place = without_announcement(&self.trace[..start]).trim_end_matches([' ', ':']);
        match place {
            "" => Cow::Borrowed(after.trim_start_matches(['\r', '\n'])),
            place => Cow::Owned(format!("{place}{after}")),
        }
    }

    /// Both parts, each thing once.
    pub fn text(&self) -> String {
        match (&*self.message, &*self.rest()) {
            (message, "") => message.to_owned(),
            ("", rest) => rest.to_owned(),
            (message, rest) => format!("{message}\n{rest}"),
        }
    }
}

/// The length of the message that a line begins with and ends with, with at most a place between.
fn repeated_length(line: &str) -> Option<usize> {
    let line = line.trim_end();
    if line.len() > MAX_SEARCHED_BYTES {
        return None;
    }
    let mut length = longest_border(line.as_bytes());
    while length > 0 {
        if let (Some(message), Some(end)) = (line.get(..length), line.get(length..))
            && let Some(between) = end.strip_suffix(message)
            && let Some(between) = between.strip_prefix(' ')
            && is_place(between)
            && !message.trim().is_empty()
        {
            return Some(length);
        }
        length = longest_border(&line.as_bytes()[..length]);
    }
    None
}

/// The length of the longest proper beginning of a text that is also its end.
fn longest_border(text: &[u8]) -> usize {
    // The failure function of Knuth, Morris and Pratt.
    let mut borders = vec![0; text.len()];
    let mut length = 0;
    for at in 1..text.len() {
        while length > 0 && text[at] != text[length] {
            length = borders[length - 1];
        }
        length += usize::from(text[at] == text[length]);
        borders[at] = length;
    }
    borders.last().copied().unwrap_or(0)
}

/// Whether a text before a message is nothing, an announcement, or a place such as `a.go:12: `.
fn is_place(text: &str) -> bool {
    let text = without_announcement(text).trim();
    text.is_empty() || text.ends_with(':') && !text.contains(char::is_whitespace)
}

fn without_announcement(text: &str) -> &str {
    ANNOUNCEMENTS
        .iter()
        .find_map(|announcement| text.strip_prefix(announcement))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str, message: &str) -> (String, String) {
        let failure = Failure::split(text, MessageMark::new(message));
        (failure.message, failure.trace)
    }

    #[test]
    fn message_of_the_file_separates_from_the_trace() {
        for (text, message, expected) in [
            (
                "no disk  at a.go:1\nmore",
                "no disk",
                ("no disk", " at a.go:1\nmore"),
            ),
            ("two\nlines trace", "two\nlines", ("two\nlines", "trace")),
            ("no disk", "no disk", ("no disk", "")),
            // The mark of another test of the same name.
            ("no disk", "no memory", ("no disk", "no disk")),
            ("no memory\nx", "no disk", ("no memory", "no memory\nx")),
        ] {
            let (message, trace) = parts(text, message);
            assert_eq!((&*message, &*trace), expected, "{text}");
        }
    }

    #[test]
    fn repeated_message_is_found_without_a_file() {
        for (text, expected) in [
            ("no disk a.go:1: no disk", ("no disk", "a.go:1: no disk")),
            ("odd: 1 odd: 1\nmore", ("odd: 1", "odd: 1\nmore")),
            (
                "odd [FAILED] odd\nIn [It]",
                ("odd", "[FAILED] odd\nIn [It]"),
            ),
            (
                "[FAILED] odd\nat a.go:1",
                ("odd", "[FAILED] odd\nat a.go:1"),
            ),
            (
                "a disk and a disk",
                ("a disk and a disk", "a disk and a disk"),
            ),
            ("ä ä", ("ä", "ä")),
            ("", ("", "")),
        ] {
            let (message, trace) = parts(text, "");
            assert_eq!((&*message, &*trace), expected, "{text}");
        }
    }

    #[test]
    fn shown_text_repeats_nothing() {
        for (text, expected) in [
            ("no disk a.go:1: no disk", "no disk\na.go:1"),
            ("odd [FAILED] odd\nIn [It]", "odd\nIn [It]"),
            ("odd odd", "odd"),
            ("[FAILED] odd\nat a.go:1", "odd\nat a.go:1"),
            ("odd\noddly", "odd\noddly"),
            ("odd", "odd"),
        ] {
            let failure = Failure::split(text, MessageMark::default());
            assert_eq!(failure.text(), expected, "{text}");
        }
    }
}
