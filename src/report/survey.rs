//! Data of an archive's files that its trees lack: duration, class name and messages of each JUnit test, and arrival
//! times of results.
//!
//! The trees omit them, since users of the original compare whole trees. An unreadable file yields nothing; its
//! plugin's tree has the reason. Memory grows with the number of tests.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Read};

use super::source::Stat;
use crate::layout::Delivered;
use base::xml::{Lexer, Token};

/// Maximum bytes of the data of all tests.
const MAX_BYTES: usize = 64 << 20;

/// Data of a JUnit test other than its status and failure.
#[derive(Default)]
pub(crate) struct JunitDetails {
    /// Duration in seconds.
    seconds: f64,
    /// Length in bytes of the message at the start of its failure; the rest is its text.
    pub message: usize,
    /// Its class; empty if the file names none.
    pub class: String,
    /// Its source file; empty if the file names none.
    pub source: String,
    /// The skip reason; empty if the file has none.
    pub skipped: String,
}

/// The collected data.
#[derive(Default)]
pub(crate) struct Survey {
    /// By plugin, file and name of the test.
    tests: HashMap<u64, JunitDetails>,
    /// Bytes of their data.
    bytes: usize,
    /// Start of a suite according to its file, by plugin and file.
    pub stamps: BTreeMap<(String, String), String>,
    /// Modification time of the last file of a plugin and node, in seconds since 1970.
    pub written: BTreeMap<(String, String), u64>,
    /// Time when packing of the archive began.
    pub packed: Option<u64>,
}

impl Survey {
    /// Records the arrival time of a file.
    pub(crate) fn arrived(&mut self, found: Delivered<'_>, stat: Stat) {
        if let Some(modified) = stat.modified {
            let place = (found.plugin.to_owned(), found.node.to_owned());
            let last = self.written.entry(place).or_default();
            *last = modified.max(*last);
        }
    }

    /// Reads the tests of a JUnit file, up to its first error.
    pub(crate) fn tests(&mut self, found: Delivered<'_>, content: &mut dyn Read) {
        if found.is_result && found.file.ends_with(".xml") {
            let _ = self.junit(found.plugin, found.file, content);
        }
    }

    fn junit(&mut self, plugin: &str, file: &str, content: &mut dyn Read) -> anyhow::Result<()> {
        let mut lexer = Lexer::new(BufReader::with_capacity(64 << 10, content));
        // The open test, unless it is ignored, and whether the following text is its skip reason.
        let (mut test, mut is_skip) = (None::<&mut JunitDetails>, false);
        loop {
            let token = lexer.next_token()?;
            let was_skip = std::mem::replace(&mut is_skip, false);
            let reason = match (token, lexer.name()) {
                (Token::End, _) => return Ok(()),
                (Token::Text, _) if was_skip => lexer.text().trim(),
                (Token::Open, "skipped") => {
                    let reason = lexer.attribute("message").unwrap_or_default().trim();
                    is_skip = reason.is_empty();
                    reason
                }
                (Token::Open, "failure") => {
                    let message = lexer.attribute("message").unwrap_or_default().trim_start().len();
                    if let Some(test) = &mut test {
                        test.message = message;
                    }
                    continue;
                }
                (Token::Open, "testsuite") => {
                    if let Some(stamp) = lexer.attribute("timestamp").filter(|stamp| !stamp.is_empty()) {
                        let place = (plugin.to_owned(), file.to_owned());
                        self.stamps.entry(place).or_insert_with(|| stamp.to_owned());
                    }
                    continue;
                }
                (Token::Open, "testcase") => {
                    let text = |name| lexer.attribute(name).unwrap_or_default().trim().to_owned();
                    let details = JunitDetails {
                        seconds: text("time").parse().unwrap_or_default(),
                        class: text("classname"),
                        source: text("file"),
                        ..JunitDetails::default()
                    };
                    self.bytes += size_of::<JunitDetails>() + details.class.len() + details.source.len();
                    let name = lexer.attribute("name").unwrap_or_default();
                    test = match self.tests.entry(base::digest(&(plugin, file, name))) {
                        Entry::Vacant(entry) if self.bytes <= MAX_BYTES => Some(entry.insert(details)),
                        // Of several tests with one name the first counts.
                        _ => None,
                    };
                    continue;
                }
                _ => continue,
            };
            self.bytes += reason.len();
            if let Some(test) = test.as_mut().filter(|_| self.bytes <= MAX_BYTES) {
                reason.clone_into(&mut test.skipped);
            }
        }
    }

    /// The data of a test's file about it.
    pub(crate) fn told(&self, plugin: &str, file: &str, test: &str) -> Option<&JunitDetails> {
        self.tests.get(&base::digest(&(plugin, file, test)))
    }
}

impl JunitDetails {
    /// Duration of the test in seconds.
    pub(crate) fn duration(&self) -> Option<f64> {
        Some(self.seconds).filter(|seconds| seconds.is_finite() && *seconds > 0.0)
    }
}
