//! Converts the events of `go test -json` to items, one for each finished test.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use anyhow::{Result, anyhow, ensure};

use base::visible::tail;
use model::go_test::GoTestEvent;
use model::item::read::Metered;
use model::item::tree::Tree;
use model::item::{DURATION, ERROR, FAILED, FAILURE, FILE, Item, PASSED, SKIPPED, UNKNOWN};

/// Maximum bytes kept from the end of a test's output, which contains the failure.
const OUTPUT_LIMIT: usize = 32 << 10;
/// Maximum bytes held for all running tests; the file contains the rest.
const OUTPUTS_LIMIT: usize = 8 << 20;
/// Maximum bytes of the names of tests and packages that have begun and not ended.
const UNFINISHED_LIMIT: usize = 32 << 20;
/// Overhead of a test's output besides its text.
const OUTPUT_COST: usize = 128;

/// Output of running tests.
#[derive(Default)]
struct TestOutputs {
    of: HashMap<(String, String), String>,
    size: usize,
}

impl TestOutputs {
    fn add(&mut self, event: GoTestEvent) {
        // The frame of `go test` repeats the event that ends a test.
        let line = event.output.trim_start();
        if ["=== ", "--- "].iter().any(|frame| line.starts_with(frame)) {
            return;
        }
        let key = (event.package, event.test);
        let cost = if self.of.contains_key(&key) {
            0
        } else {
            cost(&key)
        };
        if self.size + cost + event.output.len() > OUTPUTS_LIMIT {
            return;
        }
        self.size += cost + event.output.len();
        let text = self.of.entry(key).or_default();
        text.push_str(&event.output);
        if text.len() > OUTPUT_LIMIT {
            let start = text.len() - tail(text, OUTPUT_LIMIT).len();
            text.drain(..start);
            self.size -= start;
        }
    }

    fn take(&mut self, event: &GoTestEvent) -> String {
        let key = (event.package.clone(), event.test.clone());
        let Some(text) = self.of.remove(&key) else {
            return String::new();
        };
        self.size -= cost(&key) + text.len();
        text
    }
}

fn cost((package, test): &(String, String)) -> usize {
    package.len() + test.len() + OUTPUT_COST
}

/// Packages and tests that have begun and not ended.
#[derive(Default)]
struct Unfinished {
    /// Tests, by package and name.
    tests: HashSet<(String, String)>,
    /// Packages, with whether a test of it failed.
    packages: HashMap<String, bool>,
    size: usize,
}

impl Unfinished {
    fn begin_test(&mut self, event: &GoTestEvent) -> Result<()> {
        let key = (event.package.clone(), event.test.clone());
        self.grow(cost(&key))?;
        self.tests.insert(key);
        Ok(())
    }

    fn end_test(&mut self, event: &GoTestEvent, status: &str) -> Result<()> {
        let key = (event.package.clone(), event.test.clone());
        if self.tests.remove(&key) {
            self.size = self.size.saturating_sub(cost(&key));
        }
        if status == FAILED {
            *self.package(&event.package)? = true;
        }
        Ok(())
    }

    fn package(&mut self, name: &str) -> Result<&mut bool> {
        if !self.packages.contains_key(name) {
            self.grow(name.len() + OUTPUT_COST)?;
        }
        Ok(self.packages.entry(name.to_owned()).or_default())
    }

    /// Ends a package; returns whether a test of it failed.
    fn end_package(&mut self, name: &str) -> bool {
        self.packages.remove(name).unwrap_or_default()
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.size += bytes;
        ensure!(
            self.size <= UNFINISHED_LIMIT,
            "too many tests and packages have begun and not ended"
        );
        Ok(())
    }

    /// What did not end, sorted, each with what it is.
    fn list(self) -> Vec<(String, &'static str)> {
        let tests = self
            .tests
            .into_iter()
            .map(|(_, test)| (test, "the test began and did not end"));
        // Tests that failed need no package; programs that filter events omit those of packages.
        let packages = self
            .packages
            .into_iter()
            .filter(|(name, has_failed)| !name.is_empty() && !has_failed);
        let packages = packages.map(|(name, _)| (name, "the package began and did not end"));
        let mut all: Vec<_> = tests.chain(packages).collect();
        all.sort();
        all
    }
}

/// Adds the tests of a file to the current group, and what failed or did not end besides. After an
/// error, previous tests are kept. `file` is the path for items that are not tests.
pub(super) fn read(input: impl Read, file: &str, tree: &mut Tree) -> Result<()> {
    let (last, bytes_read) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let metered = Metered {
        input,
        bytes_read: bytes_read.clone(),
    };
    let input = Last {
        input: BufReader::with_capacity(64 << 10, metered),
        last: last.clone(),
    };
    let (mut outputs, mut unfinished) = (TestOutputs::default(), Unfinished::default());
    let mut is_empty = true;
    for event in serde_json::Deserializer::from_reader(input).into_iter::<Option<GoTestEvent>>() {
        bytes_read.set(0);
        let event = event
            .map_err(|error| reason(&error, last.get()))?
            .unwrap_or_default();
        is_empty = false;
        if event.test.is_empty() {
            package_event(event, &mut outputs, &mut unfinished, file, tree)?;
            continue;
        }
        let status = match event.action.as_str() {
            "output" => {
                outputs.add(event);
                continue;
            }
            "run" => {
                unfinished.begin_test(&event)?;
                continue;
            }
            "pause" | "cont" | "bench" | "attr" | "artifacts" => continue,
            "pass" => PASSED,
            "fail" => FAILED,
            "skip" => SKIPPED,
            _ => UNKNOWN,
        };
        unfinished.end_test(&event, status)?;
        let output = outputs.take(&event);
        let mut item = Item::new(event.test, status);
        if status == FAILED && !output.trim().is_empty() {
            item = item.with(FAILURE, output.trim());
        }
        if let Some(seconds) = event.elapsed.filter(|seconds| *seconds > 0.0) {
            item = item.with(DURATION, seconds);
        }
        tree.item(&item)?;
    }
    ensure!(!is_empty, "it has no event of `go test -json`");
    for (name, reason) in unfinished.list() {
        tree.item(
            &Item::new(name, UNKNOWN)
                .with_meta(FILE, file)
                .with_meta(ERROR, reason),
        )?;
    }
    Ok(())
}

/// Takes an event about a whole package: one that fails without a failed test did not build, or
/// ended its process.
fn package_event(
    event: GoTestEvent,
    outputs: &mut TestOutputs,
    unfinished: &mut Unfinished,
    file: &str,
    tree: &mut Tree,
) -> Result<()> {
    match event.action.as_str() {
        "start" => drop(unfinished.package(&event.package)?),
        "output" => outputs.add(event),
        "pass" | "skip" => {
            unfinished.end_package(&event.package);
            outputs.take(&event);
        }
        "fail" => {
            let has_failed_test = unfinished.end_package(&event.package);
            let output = outputs.take(&event);
            if !has_failed_test {
                let text = match output.trim() {
                    "" => "the package failed, but none of its tests",
                    output => output,
                };
                tree.item(
                    &Item::new(event.package, FAILED)
                        .with_meta(FILE, file)
                        .with(FAILURE, text),
                )?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Records the last byte read, which errors refer to.
struct Last<R> {
    input: R,
    last: Rc<Cell<u8>>,
}

impl<R: Read> Read for Last<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        buffer[..count]
            .last()
            .into_iter()
            .for_each(|byte| self.last.set(*byte));
        Ok(count)
    }
}

/// Reason of a read error. It becomes part of the item, so common reasons use the original's words.
fn reason(error: &serde_json::Error, last: u8) -> anyhow::Error {
    if error.is_eof() {
        return anyhow!("unexpected EOF");
    }
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let context = match text.strip_suffix(&place).unwrap_or(&text) {
        "expected value" => "looking for beginning of value",
        "trailing comma" if last == b']' => "looking for beginning of value",
        "trailing comma" | "key must be a string" => "looking for beginning of object key string",
        "expected `:`" => "after object key",
        "expected `,` or `}`" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        _ => return anyhow!(text),
    };
    let quoted = match char::from(last) {
        '"' => "\"".into(),
        c @ ('\'' | '\\' | '\t' | '\r' | '\n') => c.escape_debug().to_string(),
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\0'..='\u{1f}' | '\u{7f}' => format!("\\x{last:02x}"),
        '\u{80}'..='\u{a0}' | '\u{ad}' => format!("\\u{last:04x}"),
        c => c.to_string(),
    };
    anyhow!("invalid character '{quoted}' {context}")
}
