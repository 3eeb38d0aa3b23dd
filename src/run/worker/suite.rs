//! Derives progress from the log of a suite that posts none: the conformance tests of Kubernetes
//! 1.33, for one, only report their number, and `go test` reports nothing.
//!
//! Ginkgo prints a dot for each passed test, and the name of a failed one after it. With `-v`, it
//! prints the name of each test: before it runs, below a rule, or after its dot if several run in
//! parallel. `--poll-progress-after` names slow tests. `go test -v` names each test before and
//! after it runs, but never the number of tests. Starts no thread.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use super::senders::Senders;
use base::clock;
use base::json::json;
use base::lock;
use base::stop::Stop;
use client::Client;
use model::go_test::{GoTestLine, log_line};
use model::status;
use model::verdict::TestOutcome;

/// Log of the tests, in the results directory.
const LOG: &str = "e2e.log";
/// Interval between two reads of the log.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum bytes of a line that is parsed.
const MAX_LINE_BYTES: usize = 4 << 10;
/// Maximum names of failures reported.
const MAX_FAILURES: usize = 1_000;
/// Maximum slow tests tracked.
const MAX_SLOW: usize = 64;
/// Line above the name of a test.
const RULE: &str = "----------";
/// Line between a rule and the name of a slow test, always present if several run in parallel.
const PROCESS: &str = "Progress Report for Ginkgo Process";
const POLLING: &str = "Automatically polling progress:";
/// Separates the name of a slow test from its duration.
const RUNTIME: &str = " (Spec Runtime: ";
/// Suffixes of a dot whose test did not pass.
const FAILED: [&str; 5] = [
    " [FAILED]",
    " [TIMEDOUT]",
    " [PANICKED!]",
    " [INTERRUPTED]",
    " Failure [",
];

/// Progress read from a log.
#[derive(Default)]
struct Suite {
    total: usize,
    completed: usize,
    failures: Vec<String>,
    failed: usize,
    /// Incomplete current line.
    line: Vec<u8>,
    /// Whether it follows a dot.
    after_dot: bool,
    /// Expected kind of the next line.
    next: LineKind,
    /// Current test, if the log names it.
    running: Option<String>,
    /// Slow tests that run beside others, with their start.
    slow: Vec<(String, SystemTime)>,
    /// Changes to report, each with the numbers of completed and failed tests.
    told: Vec<(String, usize, usize)>,
}

/// Kind of a line, as announced by the previous one.
#[derive(Default, PartialEq)]
enum LineKind {
    #[default]
    Anything,
    /// Name of the current test, or the start of a report.
    BelowRule,
    /// Name of a failed test.
    Failed,
    /// Name of a passed test.
    Passed,
    /// Name of a slow test.
    Slow,
}

impl Suite {
    /// Reads more of the log.
    fn take(&mut self, text: &[u8]) {
        const DOT: &[u8] = "•".as_bytes();
        for byte in text {
            if *byte == b'\n' {
                self.end_of_line();
                self.line.clear();
                continue;
            }
            if self.line.len() < MAX_LINE_BYTES {
                self.line.push(*byte);
            }
            if self.line.ends_with(DOT) {
                self.plain_dot();
                self.after_dot = true;
                self.line.clear();
            } else if self.after_dot
                && self
                    .line
                    .first()
                    .is_some_and(|byte| *byte != b' ' && *byte != DOT[0])
            {
                self.plain_dot();
            } else if self.line.len() == MAX_LINE_BYTES {
                // A line of skipped tests before the next dot.
                self.line.clear();
            }
        }
    }

    /// Counts a dot: a passed test without a name.
    fn plain_dot(&mut self) {
        if std::mem::take(&mut self.after_dot) {
            self.completed += 1;
            match self.running.take() {
                Some(name) => self.ended("PASSED", &name),
                None => {
                    if self.next != LineKind::Passed {
                        // Any of the slow tests may have ended.
                        self.slow.clear();
                    }
                    self.tell("");
                }
            }
        }
    }

    /// Counts a finished test; keeps other slow tests.
    fn ended(&mut self, word: &str, name: &str) {
        self.slow.retain(|(slow, _)| slow != name);
        self.tell(&format!("{word} {name}"));
        if let Some((slow, since)) = self.slow.first() {
            self.tell(&status::running_test(slow, Some(*since)));
        }
    }

    fn end_of_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        if self.total == 0
            && let Some(test_line) = go_test(&line)
        {
            return self.take_go_test(&test_line);
        }
        let inner = line.trim();
        match std::mem::take(&mut self.next) {
            _ if self.after_dot && FAILED.iter().any(|mark| line.starts_with(mark)) => {
                self.after_dot = false;
                self.next = LineKind::Failed;
            }
            LineKind::Failed => {
                self.running = None;
                let name = name(&line);
                self.fail(name.clone());
                self.ended("FAILED", &name);
            }
            LineKind::Passed if is_test(&line) => self.ended("PASSED", &name(&line)),
            LineKind::Slow => self.is_slow(inner),
            LineKind::BelowRule if inner.starts_with(PROCESS) => self.next = LineKind::BelowRule,
            LineKind::BelowRule if inner == POLLING => self.next = LineKind::Slow,
            LineKind::BelowRule if is_test(&line) => {
                let name = name(&line);
                self.tell(&status::running_test(&name, None));
                self.running = Some(name);
            }
            _ => self.plain_line(&line),
        }
    }

    /// Counts a test of Go.
    fn take_go_test(&mut self, line: &GoTestLine<'_>) {
        let message = match line {
            GoTestLine::Run(name) => status::running_test(name, None),
            GoTestLine::End(TestOutcome::Failed, name) => {
                self.fail((*name).to_owned());
                format!("FAILED {name}")
            }
            GoTestLine::End(outcome, name) => {
                self.completed += 1;
                format!("{} {name}", outcome.status().to_uppercase())
            }
        };
        self.told.push((message, self.completed, self.failed));
    }

    fn fail(&mut self, name: String) {
        self.failed += 1;
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(name);
        }
    }

    fn plain_line(&mut self, line: &str) {
        if line.trim_start().starts_with(RULE) {
            self.next = LineKind::BelowRule;
        } else if self.after_dot && self.running.is_none() && line.ends_with(" seconds]") {
            self.next = LineKind::Passed;
        }
        self.plain_dot();
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["Will", "run", chosen, "of", _, "specs"] = words[..] {
            self.total = chosen.parse().unwrap_or_default();
        }
    }

    /// Records a slow test: reported unless it runs alone and was named before.
    fn is_slow(&mut self, line: &str) {
        let Some((name, runtime)) = line.rsplit_once(RUNTIME) else {
            return;
        };
        let is_known = |slow: &(String, SystemTime)| slow.0 == name;
        if self.running.is_some() || self.slow.len() >= MAX_SLOW || self.slow.iter().any(is_known) {
            return;
        }
        let runtime = clock::parse_duration(runtime.trim_end_matches(')')).unwrap_or_default();
        let since = SystemTime::now()
            .checked_sub(runtime)
            .unwrap_or(SystemTime::UNIX_EPOCH);
        self.tell(&status::running_test(name, Some(since)));
        self.slow.push((name.to_owned(), since));
    }

    fn tell(&mut self, message: &str) {
        if self.total == 0 {
            return;
        }
        if message.is_empty() {
            // The last dot includes all previous ones.
            self.told.pop_if(|(last, ..)| last.is_empty());
        }
        self.told
            .push((message.to_owned(), self.completed, self.failed));
    }

    fn update(&self, (message, completed, failed): &(String, usize, usize)) -> Vec<u8> {
        let update = json!({
            "msg": message, "total": self.total, "completed": completed, "failed": failed,
            "failures": self.failures[..self.failures.len().min(*failed)],
        });
        update.to_string().into_bytes()
    }
}

/// What a line of `go test -v` says about a test that is not inside another one.
fn go_test(line: &str) -> Option<GoTestLine<'_>> {
    let test_line = log_line(line).filter(|_| !line.starts_with(char::is_whitespace))?;
    let (GoTestLine::Run(name) | GoTestLine::End(_, name)) = test_line;
    (!name.contains('/')).then_some(test_line)
}

/// Whether a line below a rule is the name of a test, and not of the suite's setup or teardown.
fn is_test(line: &str) -> bool {
    let word = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    word.is_some_and(|(word, _)| !word.contains("Suite"))
}

/// Name of a test without its node type and labels.
fn name(line: &str) -> String {
    let line = line.trim().replacen("[It] ", "", 1);
    match line.rsplit_once(" [sig-") {
        Some((name, labels))
            if labels.ends_with(']') && !labels[..labels.len() - 1].contains(']') =>
        {
            name.to_owned()
        }
        _ => line,
    }
}

/// Follows the log in `folder` until `stop`, or until the suite reports its own progress.
pub(super) fn run(folder: &Path, client: &Client, senders: &Mutex<Senders>, stop: &Stop) {
    let (mut suite, mut file) = (Suite::default(), None);
    while !stop.wait(INTERVAL) {
        if file.is_none() {
            match base::if_exists(File::open(folder.join(LOG))) {
                Ok(opened) => file = opened,
                Err(error) => return log::debug!("`{LOG}` is not followed: {error}"),
            }
        }
        let mut piece = [0; 64 << 10];
        while let Some(count @ 1..) = file.as_mut().and_then(|file| file.read(&mut piece).ok()) {
            suite.take(&piece[..count]);
        }
        for told in std::mem::take(&mut suite.told) {
            let update = suite.update(&told);
            if !lock(senders).stands_in(&update) {
                return;
            }
            if let Err(error) = client.relay_progress(&update) {
                log::debug!("progress is lost: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Suite, Vec<String>) {
        let (mut suite, mut told) = (Suite::default(), Vec::new());
        for piece in pieces {
            suite.take(piece);
            let new = suite.told.drain(..);
            told.extend(
                new.map(|(message, completed, failed)| format!("{} {message}", completed + failed)),
            );
        }
        (suite, told)
    }

    const LOG: &str = "Running Suite: Kubernetes e2e suite\n\nWill run 5 of 6741 \
         specs\nSSSS•SS••SSS\n------------------------------\n• [FAILED] [0.251 \
         seconds]\n[sig-node] Lease [It] lease API should be available [Conformance] [sig-node, \
         Conformance]\n/test/e2e/common/node/lease.go:73\n------------------------------\n";
    const VERBOSE: &str = "------------------------------\n[SynchronizedBeforeSuite]\n[SynchronizedBeforeSuite] \
         PASSED [0.020 seconds]\n------------------------------\n[sig-apps] Job should run \
         [Conformance] [sig-apps, Conformance]\n/job.go:73\n  STEP: x\n• [4.058 \
         seconds]\n------------------------------\nSSSS\n------------------------------\n\
         [sig-apps] Job hangs [sig-apps]\n/job.go:79\n  STEP: [x]\n\x20 \
         ------------------------------\n  Automatically polling progress:\n    [sig-apps] Job \
         hangs (Spec Runtime: 1m20.022s)\n";

    #[test]
    fn tests_are_counted_however_the_log_is_split() {
        let bytes = [LOG, VERBOSE].concat().into_bytes();
        let lease = "[sig-node] Lease lease API should be available [Conformance]";
        let job = "[sig-apps] Job should run [Conformance]";
        let expected = [
            "1 ".to_owned(),
            "2 ".into(),
            "3 ".into(),
            format!("4 FAILED {lease}"),
            format!("4 RUNNING {job}"),
            format!("5 PASSED {job}"),
            "5 RUNNING [sig-apps] Job hangs".into(),
        ];
        let (_, by_byte) = told(bytes.chunks(1));
        assert_eq!(by_byte, expected);
        for at in 0..bytes.len() {
            let (suite, mut told) = told([&bytes[..at], &bytes[at..]]);
            assert_eq!((suite.total, suite.completed), (5, 4), "{at}");
            assert_eq!(suite.failures, [lease]);
            // Of the dots in one piece, the last includes all previous ones.
            let dots = told.len() - 4;
            assert!((1..=2).contains(&dots), "{at}: {told:?}");
            assert_eq!(told.split_off(dots), expected[3..], "{at}");
            assert_eq!(told.last(), Some(&expected[2]), "{at}");
        }
    }

    #[test]
    fn log_without_a_number_of_tests_is_no_progress() {
        let (suite, told) = told([LOG.replace("Will run", "Ran").as_bytes()]);
        assert_eq!(
            (suite.completed, suite.failures.len(), told.len()),
            (3, 1, 0)
        );
    }

    #[test]
    fn longest_running_parallel_test_is_reported() {
        let report = |process: u32, name: &str| {
            format!(
                "  ------------------------------\n  Progress Report for Ginkgo Process \
                 #{process}\n  Automatically polling progress:\n    {name} (Spec Runtime: \
                 1m20.022s)\n      /pods.go:227\n  ------------------------------\n"
            )
        };
        // A repeated report of a finished test has no rule above it.
        let again = "\n  Timeline >>\n  Automatically polling progress:\n    [sig-a] a hangs \
                     (Spec Runtime: 1m20.022s)\n";
        let log = format!(
            "Will run 9 of 99 specs\nSSS\n{}{}------------------------------\n• [28.073 \
             seconds]\n[sig-b] b [It] passes \
             [sig-b]\n/b.go:1\n{}------------------------------\n• [FAILED] [198.232 \
             seconds]\n[sig-a] a [It] hangs [sig-a]\n/a.go:1\n{again}•",
            report(2, "[sig-a] a hangs"),
            report(1, "[sig-c] c hangs"),
            report(2, "[sig-a] a hangs"),
        );
        let (suite, told) = told(log.as_bytes().chunks(1).chain([&b"\n"[..]]));
        let told: Vec<&str> = told
            .iter()
            .map(|line| line.split(" since ").next().unwrap())
            .collect();
        let a = "1 RUNNING [sig-a] a hangs";
        let begins = ["0 RUNNING [sig-a] a hangs", "0 RUNNING [sig-c] c hangs"];
        assert_eq!(told[..2], begins);
        let rest = [
            "1 ",
            "1 PASSED [sig-b] b passes",
            a,
            "2 FAILED [sig-a] a hangs",
            "2 RUNNING [sig-c] c hangs",
            "3 ",
        ];
        assert_eq!(told[2..], rest);
        assert_eq!(suite.slow, [], "an unnamed one that passed may be any");
    }

    #[test]
    fn line_of_any_length_uses_bounded_memory() {
        let mut line = b"Will run 2 of 9 specs\n".to_vec();
        line.extend(std::iter::repeat_n(b'S', 100_000));
        line.extend("•SSSS".as_bytes());
        let (suite, _) = told([&line[..]]);
        assert_eq!((suite.total, suite.completed), (2, 1));
        assert!(suite.line.capacity() <= 2 * MAX_LINE_BYTES);
    }

    #[test]
    fn tests_of_go_are_named_and_counted() {
        let log = "\u{16}=== RUN   TestA\n=== RUN   TestA/x\n    a.go:1: --- FAIL: no\n    --- FAIL: TestA/x \
                   (0.1s)\n\u{16}--- FAIL: TestA (0.1s)\n=== RUN   TestB\n--- SKIP: TestB (0.0s)\nFAIL\n";
        let (suite, told) = told(log.as_bytes().chunks(7));
        let expected = [
            "0 RUNNING TestA",
            "1 FAILED TestA",
            "1 RUNNING TestB",
            "2 SKIPPED TestB",
        ];
        assert_eq!(told, expected);
        assert_eq!((suite.completed, suite.failures), (1, vec!["TestA".into()]));
    }

    #[test]
    fn labels_are_removed_from_names() {
        for (line, expected) in [
            (
                "[sig-a] A [It] b [Conformance] [sig-a, Conformance]",
                "[sig-a] A b [Conformance]",
            ),
            ("[sig-a] A b [Conformance]", "[sig-a] A b [Conformance]"),
            ("b", "b"),
            ("[It] x [sig-a]", "x"),
        ] {
            assert_eq!(name(line), expected);
        }
    }
}
