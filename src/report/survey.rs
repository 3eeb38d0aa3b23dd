//! What the files of an archive tell beside its trees: how long each test of a JUnit file took, and when results came.
//!
//! The trees leave durations out, since readers of the original compare them whole. A file that cannot be read tells
//! nothing; why is in its plugin's tree. Memory grows with the tests that took any time.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufReader, Read};

use super::source::Stat;
use crate::layout::Delivered;
use base::xml::{Lexer, Token};

/// How many tests are remembered; each costs about 20 bytes.
const TESTS: usize = 2_000_000;

/// What was found.
#[derive(Default)]
pub(crate) struct Survey {
    /// Seconds, by plugin, file and name of the test.
    durations: HashMap<u64, f32>,
    /// When a suite began, as its file says, by plugin and file.
    pub stamps: BTreeMap<(String, String), String>,
    /// When the last file of a plugin and node was written, in seconds since 1970.
    pub written: BTreeMap<(String, String), u64>,
    /// When the archive was about to be packed.
    pub packed: Option<u64>,
}

fn key(plugin: &str, file: &str, test: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (plugin, file, test).hash(&mut hasher);
    hasher.finish()
}

impl Survey {
    /// Notes when a file came.
    pub(crate) fn arrived(&mut self, found: Delivered<'_>, stat: Stat) {
        if let Some(modified) = stat.modified {
            let place = (found.plugin.to_owned(), found.node.to_owned());
            let last = self.written.entry(place).or_default();
            *last = modified.max(*last);
        }
    }

    /// Reads how long tests took, if a file tells; what was understood until an error is worth having.
    pub(crate) fn tests(&mut self, found: Delivered<'_>, content: &mut dyn Read) {
        if found.is_result && found.file.ends_with(".xml") {
            let _ = self.junit(found.plugin, found.file, content);
        }
    }

    fn junit(&mut self, plugin: &str, file: &str, content: &mut dyn Read) -> Result<(), base::xml::Error> {
        let mut lexer = Lexer::new(BufReader::with_capacity(64 << 10, content));
        loop {
            match lexer.next_token()? {
                Token::End => return Ok(()),
                Token::Open => {}
                Token::Text | Token::Close => continue,
            }
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
                    if let (Some(seconds), true) = (seconds, self.durations.len() < TESTS) {
                        let name = lexer.attribute("name").unwrap_or_default();
                        self.durations.entry(key(plugin, file, name)).or_insert(seconds);
                    }
                }
                _ => {}
            }
        }
    }

    /// How long a test took, as its file says.
    pub(crate) fn duration(&self, plugin: &str, file: &str, test: &str) -> Option<f64> {
        let seconds = *self.durations.get(&key(plugin, file, test))?;
        // Not the digits that a longer number makes of a shorter one.
        seconds.to_string().parse().ok()
    }
}
