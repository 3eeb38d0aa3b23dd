//! Reads the log of Ginkgo: the suite's final result, its seed, and the versions of tests and
//! server if verbose.
//!
//! Does not judge. Long lines are cut and none are stored: a line of dots may be long, and a log
//! has gigabytes.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use crate::verdict::SuiteClaims;

/// Maximum bytes of a relevant line.
const MAX_LINE_BYTES: u64 = 4 << 10;
/// Bytes at the end of a log that are read for how its last suite ended.
const END_BYTES: u64 = 256 << 10;

/// Prefixes of the versions of tests and server in a verbose log.
const VERSIONS: [(&str, &str); 2] = [
    ("tests", "e2e test version: "),
    ("server", "kube-apiserver version: "),
];

/// The relevant content of a log.
#[derive(Debug, Default, PartialEq)]
pub struct SuiteLog {
    /// The minor versions of `tests` and `server`, if the log is verbose.
    pub versions: BTreeSet<(&'static str, String)>,
    /// The seeds of the order of tests.
    pub seeds: BTreeSet<String>,
    /// The numbers of tests that ran and of all tests, for each end of a suite.
    pub ends: Vec<(usize, usize)>,
    /// The counts of `Passed`, `Failed`, `Pending` and `Flaked` of the last suite.
    pub counts: [usize; 4],
    /// Whether the last result is that the suite passed.
    pub passed: bool,
}

impl SuiteLog {
    /// Reads a whole log, or the end of one.
    pub fn read(mut input: impl BufRead) -> io::Result<Self> {
        let mut log = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if input
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)?
                == 0
            {
                return Ok(log);
            }
            let is_complete = line.ends_with(b"\n");
            log.take(uncoloured(&String::from_utf8_lossy(&line)).trim());
            if !is_complete {
                input.skip_until(b'\n')?;
            }
        }
    }

    fn take(&mut self, line: &str) {
        self.versions.extend(
            VERSIONS
                .iter()
                .filter_map(|(who, mark)| Some((*who, minor(line.split_once(mark)?.1)?))),
        );
        if let Some(seed) = line.strip_prefix("Random Seed: ") {
            self.seeds
                .extend(seed.split_whitespace().next().map(str::to_owned));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["Ran", ran, "of", all, "Specs", ..] = words[..]
            && let (Ok(ran), Ok(all)) = (ran.parse(), all.parse())
        {
            self.ends.push((ran, all));
            self.passed = false;
        }
        if line.starts_with("SUCCESS!") || line.starts_with("FAIL!") {
            let count = |word: &str| {
                let at = words.iter().position(|other| *other == word)?;
                words.get(at.checked_sub(1)?)?.parse().ok()
            };
            self.counts =
                ["Passed", "Failed", "Pending", "Flaked"].map(|word| count(word).unwrap_or(0));
        }
        match line {
            "Test Suite Passed" => self.passed = true,
            "Test Suite Failed" => self.passed = false,
            _ => {}
        }
    }
}

impl SuiteLog {
    /// What the end of the log claims about the last suite: how many tests ran, and failed. `None`
    /// without an end.
    pub fn claims(&self) -> Option<SuiteClaims> {
        let (ran, _) = self.ends.last()?;
        let [_, failed, ..] = self.counts;
        Some(SuiteClaims {
            tests: *ran as u64,
            failures: failed as u64,
            not_run: 0,
        })
    }
}

/// Reads the end of a log, which says how its last suite ended.
pub fn read_end(mut log: impl Read + Seek) -> io::Result<SuiteLog> {
    let size = log.seek(SeekFrom::End(0))?;
    log.seek(SeekFrom::Start(size.saturating_sub(END_BYTES)))?;
    SuiteLog::read(BufReader::new(log.take(END_BYTES)))
}

/// `v1.33` of `v1.33.1`.
pub fn minor(version: &str) -> Option<String> {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || parts.next()?.parse::<u32>().ok();
    Some(format!("v{}.{}", number()?, number()?))
}

/// A line without terminal colours.
fn uncoloured(line: &str) -> String {
    line.split("\x1b[")
        .enumerate()
        .map(|(at, part)| {
            part.split_once('m')
                .filter(|_| at > 0)
                .map_or(part, |(_, rest)| rest)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_versions_and_seed_are_found() {
        let dots = "S".repeat(100_000);
        let text = format!(
            "Random Seed: 7 - will randomize all specs\n  I1122 e2e.go:116] e2e test version: \
             v1.33.1\nI1122 e2e.go:125] kube-apiserver version: v1.34.2-k+3 \n{dots}\nRan 3 of 9 \
             Specs in 0.9 seconds\n\x1b[1mSUCCESS!\x1b[0m -- \x1b[32m3 Passed\x1b[0m | 0 Failed | \
             1 Flaked | 2 Pending | 6 Skipped\nPASS\n\nTest Suite Passed"
        );
        let log = SuiteLog::read(text.as_bytes()).unwrap();
        let expected = SuiteLog {
            versions: BTreeSet::from([("tests", "v1.33".into()), ("server", "v1.34".into())]),
            seeds: BTreeSet::from(["7".into()]),
            ends: vec![(3, 9)],
            counts: [3, 0, 2, 1],
            passed: true,
        };
        assert_eq!(log, expected);
    }

    #[test]
    fn end_of_a_long_log_is_enough() {
        let text = format!(
            "Ran 9 of 9 Specs\n{}\nRan 3 of 9 Specs in 1 s\nFAIL! -- 1 Passed | 2 Failed\n",
            "line\n".repeat(1 << 20)
        );
        let log = read_end(io::Cursor::new(text)).unwrap();
        let claims = log.claims().unwrap();
        assert_eq!((claims.tests, claims.failures, log.ends.len()), (3, 2, 1));
        assert_eq!(read_end(io::Cursor::new("")).unwrap().claims(), None);
    }

    #[test]
    fn unfinished_suite_has_not_passed() {
        for text in [
            "",
            "Test Suite Passed\nRan 1 of 2 Specs",
            "Test Suite Passed\nTest Suite Failed",
        ] {
            assert!(!SuiteLog::read(text.as_bytes()).unwrap().passed, "{text}");
        }
        assert_eq!(
            SuiteLog::read(&b"FAIL! -- 1 Passed | 2 Failed"[..])
                .unwrap()
                .counts,
            [1, 2, 0, 0]
        );
    }
}
