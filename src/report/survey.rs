//! Data of an archive's files that its trees lack: duration, class name and messages of each JUnit test, and arrival
//! times of results.
//!
//! The trees omit them, since users of the original compare whole trees. An unreadable file yields nothing; its
//! plugin's tree has the reason. Memory grows with the number of tests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufReader, Read};
use std::sync::Arc;

use super::source::Stat;
use crate::layout::Delivered;
use base::xml::{Lexer, Token};

/// Maximum number of tests; each costs about 40 bytes.
const TESTS: usize = 2_000_000;
/// Maximum bytes of class names, source files and skip reasons together.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// Data of a JUnit test other than its status and failure.
#[derive(Default)]
pub(crate) struct JunitDetails {
    /// Duration in seconds.
    seconds: f32,
    /// Length in bytes of the message at the start of its failure; the rest is its text.
    pub message: u32,
    /// Its class; empty if the file names none.
    pub class: Arc<str>,
    /// Its source file; empty if the file names none.
    pub source: Arc<str>,
    /// The skip reason; empty if the file has none.
    pub skipped: Arc<str>,
}

/// The collected data.
#[derive(Default)]
pub(crate) struct Survey {
    /// By plugin, file and name of the test.
    tests: HashMap<u64, JunitDetails>,
    /// Class names, source files and reasons, each once, and their size.
    texts: HashSet<Arc<str>>,
    text_bytes: usize,
    /// Start of a suite according to its file, by plugin and file.
    pub stamps: BTreeMap<(String, String), String>,
    /// Modification time of the last file of a plugin and node, in seconds since 1970.
    pub written: BTreeMap<(String, String), u64>,
    /// Time when packing of the archive began.
    pub packed: Option<u64>,
}

fn key(plugin: &str, file: &str, test: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (plugin, file, test).hash(&mut hasher);
    hasher.finish()
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

    fn junit(&mut self, plugin: &str, file: &str, content: &mut dyn Read) -> Result<(), base::xml::Error> {
        let mut lexer = Lexer::new(BufReader::with_capacity(64 << 10, content));
        // The open test, and whether the following text is its skip reason.
        let (mut test, mut is_skip) = (None, false);
        loop {
            match lexer.next_token()? {
                Token::End => return Ok(()),
                Token::Open => {}
                Token::Text if is_skip => {
                    let skipped = self.text(lexer.text());
                    self.change(test, |test| test.skipped = skipped);
                    continue;
                }
                Token::Text => continue,
                Token::Close => {
                    is_skip = false;
                    continue;
                }
            }
            is_skip = false;
            match lexer.name() {
                "testsuite" => {
                    if let Some(stamp) = lexer.attribute("timestamp").filter(|stamp| !stamp.is_empty()) {
                        let place = (plugin.to_owned(), file.to_owned());
                        self.stamps.entry(place).or_insert_with(|| stamp.to_owned());
                    }
                }
                "testcase" => {
                    let seconds = lexer.attribute("time").and_then(|time| time.trim().parse::<f32>().ok());
                    let seconds = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
                    let name = lexer.attribute("name").unwrap_or_default();
                    let class = self.text(lexer.attribute("classname").unwrap_or_default());
                    let source = self.text(lexer.attribute("file").unwrap_or_default());
                    let key = key(plugin, file, name);
                    // Of several tests with one name the first counts.
                    test = Some(key).filter(|key| self.tests.len() < TESTS && !self.tests.contains_key(key));
                    if test.is_some() {
                        let seconds = seconds.unwrap_or_default();
                        self.tests
                            .insert(key, JunitDetails { seconds, class, source, ..JunitDetails::default() });
                    }
                }
                "failure" => {
                    let message = lexer.attribute("message").unwrap_or_default().trim_start().len();
                    let message = u32::try_from(message).unwrap_or_default();
                    self.change(test, |test| test.message = message);
                }
                "skipped" => {
                    let reason = lexer.attribute("message").unwrap_or_default();
                    is_skip = reason.is_empty();
                    let skipped = self.text(reason);
                    self.change(test, |test| test.skipped = skipped);
                }
                _ => {}
            }
        }
    }

    fn change(&mut self, test: Option<u64>, change: impl FnOnce(&mut JunitDetails)) {
        if let Some(test) = test.and_then(|key| self.tests.get_mut(&key)) {
            change(test);
        }
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        let text = text.trim();
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = if self.text_bytes + text.len() > MAX_TEXT_BYTES { "" } else { text }.into();
        self.text_bytes += text.len();
        self.texts.insert(Arc::clone(&text));
        text
    }

    /// The data of a test's file about it.
    pub(crate) fn told(&self, plugin: &str, file: &str, test: &str) -> Option<&JunitDetails> {
        self.tests.get(&key(plugin, file, test))
    }
}

impl JunitDetails {
    /// Duration of the test in seconds.
    pub(crate) fn duration(&self) -> Option<f64> {
        // Without the digits added by widening the number.
        self.seconds.to_string().parse().ok().filter(|seconds| *seconds > 0.0)
    }
}
