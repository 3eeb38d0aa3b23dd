//! Checks whether the archive of a conformance run meets the certification programme, and writes its submission.
//!
//! Owns the programme's rules as far as files can prove them: without network access, it does not know which versions are
//! still accepted or whether a product's pages are reachable. Reports all problems as findings; only unreadable input is an
//! error.

mod junit;
mod log;
mod product;
mod submission;

pub(crate) use product::Product;
pub(crate) use submission::{check, write};

use std::fmt;
use std::io::BufReader;

use anyhow::Context as _;
use serde_json::Value;

use crate::image::lists::listed;
use crate::item::plain;
use crate::layout;
use crate::report::{Files, Source};
use base::oci::Reference;
use client::protocol::GLOBAL;
use junit::Junit;
use log::Log;

/// The plugin that runs the tests.
const E2E: &str = "e2e";
/// Focus of a certified run.
const FOCUS: &str = r"\[Conformance\]";
/// The log of the tests.
const LOG: &str = "e2e.log";
/// Maximum tests named in a finding.
const MAX_NAMES: usize = 10;

/// A problem that prevents certification.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    /// The file with the evidence.
    pub file: String,
    /// Description of the problem.
    pub what: String,
    /// The tests concerned.
    pub tests: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)?;
        for name in self.tests.iter().take(MAX_NAMES) {
            write!(f, "\n    {name}")?;
        }
        match self.tests.len().saturating_sub(MAX_NAMES) {
            0 => Ok(()),
            more => write!(f, "\n    and {more} more"),
        }
    }
}

/// An examined archive.
pub(crate) struct Candidate {
    /// The version of Kubernetes, as `v1.33`; empty if unknown.
    pub version: String,
    /// The number of required tests, and of those that passed.
    pub required: (usize, usize),
    /// The problems.
    pub findings: Vec<Finding>,
    files: Files,
    log: String,
    junit: String,
}

/// Examines the archive; compares its tests with `names`, if given.
pub(crate) fn examine(archive: &str, names: Option<&str>) -> anyhow::Result<Candidate> {
    let source = Source::open(archive)?;
    let folder = format!("{}/{}/{GLOBAL}/", layout::plugin(E2E), layout::RESULTS);
    let log = format!("{folder}{LOG}");
    let is_junit = |name: &str| {
        let file = name.strip_prefix(&folder).unwrap_or_default();
        file.starts_with("junit") && file.ends_with(".xml") && !file.contains('/')
    };
    let (mut junits, mut brought) = (Vec::new(), false);
    source.each(|name, _, _| {
        junits.extend(is_junit(name).then(|| name.to_owned()));
        brought |= name.starts_with(&folder);
        Ok(())
    })?;
    anyhow::ensure!(
        brought,
        "it contains no results of the plugin `{E2E}`, which runs the conformance tests"
    );
    junits.sort();
    let files = source.collect(
        |name| {
            [log.as_str(), layout::SERVER_VERSION, layout::CONFIG].contains(&name)
                || is_junit(name)
                || layout::is_definition(name)
        },
        |_| false,
    )?;
    let mut candidate = Candidate {
        version: String::new(),
        required: (0, 0),
        findings: Vec::new(),
        files,
        log,
        junit: junits.first().cloned().unwrap_or_default(),
    };
    candidate.parts()?;
    let junit = candidate.junit(&junits, names)?;
    let log = candidate.log(junit.as_ref())?;
    candidate.versions(&log)?;
    Ok(candidate)
}

impl Candidate {
    fn find(&mut self, file: &str, what: impl Into<String>) {
        self.find_tests(file, what, Vec::new());
    }

    fn find_tests(&mut self, file: &str, what: impl Into<String>, tests: Vec<String>) {
        self.findings.push(Finding { file: file.to_owned(), what: what.into(), tests });
    }

    /// A document of the archive; null if it is missing.
    fn json(&self, path: &str) -> anyhow::Result<Value> {
        let text = self.files.small(path)?;
        text.map_or(Ok(Value::Null), |text| {
            base::json::from_slice(&text).with_context(|| format!("`{path}`"))
        })
    }

    /// Examines other parts whose results count as the plugin's.
    fn parts(&mut self) -> anyhow::Result<()> {
        if self.json(layout::CONFIG)?["Resumes"].as_str().is_some_and(|run| !run.is_empty()) {
            let what = "the run continued another one, but all tests must run in one: run without `--resume`";
            self.find(layout::CONFIG, what);
        }
        for name in self.files.folders(layout::PLUGINS)? {
            let path = format!("{}/{}", layout::plugin(&name), layout::DEFINITIONS[0]);
            if self.json(&path)?["Definition"]["sonobuoy-config"]["part-of"] != E2E {
                continue;
            }
            let what = match layout::is_attempt(&name, E2E) {
                true => {
                    "failed tests were run again, but all must pass the first time: run without `--retry-failed`"
                }
                false => "tests ran in several parts, but all must run in one: run without `--split`",
            };
            self.find(&path, what);
        }
        Ok(())
    }

    /// Examines the outcomes of tests.
    fn junit(&mut self, all: &[String], names: Option<&str>) -> anyhow::Result<Option<Junit>> {
        let [path] = all else {
            let what = match all.len() {
                0 => "there is no JUnit file".to_owned(),
                many => format!(
                    "there are {many} JUnit files: the tests ran in parallel, or results of two runs are mixed"
                ),
            };
            let folder = format!("{}/{}/{GLOBAL}", layout::plugin(E2E), layout::RESULTS);
            self.find(&folder, what);
            return Ok(None);
        };
        let Some(content) = self.files.open(path)? else { return Ok(None) };
        let read = Junit::read(BufReader::new(content));
        let junit = match read {
            Ok(junit) => junit,
            Err(error) => {
                self.find(path, format!("cannot be read: {error:#}"));
                return Ok(None);
            }
        };
        self.required = (junit.required(), junit.passed.len());
        if junit.required() == 0 {
            self.find(path, "lists no test with [Conformance] in its name: is this the JUnit file of a conformance image?");
        }
        for (set, what) in [
            (&junit.skipped, "did not run"),
            (&junit.failed, "failed"),
            (&junit.flaky, "passed only when retried, which a certified run may not do"),
            (&junit.repeated, "listed more than once: results of two runs are mixed, or tests were retried"),
        ] {
            if !set.is_empty() {
                let what = format!("{} of {} required tests {what}", set.len(), junit.required());
                self.find_tests(path, what, set.iter().cloned().collect());
            }
        }
        let names = names.unwrap_or_default().lines().map(|line| plain(listed(line).unwrap_or(line)));
        let missing: Vec<String> = names
            .filter(|name| name.contains("[Conformance]") && !junit.lists(name))
            .map(str::to_owned)
            .collect();
        if !missing.is_empty() {
            let what = match missing.len() {
                1 => "1 required test of the list is missing".to_owned(),
                many => format!("{many} required tests of the list are missing"),
            };
            self.find_tests(path, what, missing);
        }
        if junit.properties.is_empty() {
            self.find(path, "does not say how the suite was started (it has no <properties>)");
        }
        for (key, fine, means) in [
            ("FocusStrings", FOCUS, "other tests were chosen"),
            ("SkipStrings", "", "tests were skipped"),
            ("LabelFilter", "", "tests were chosen by labels"),
            ("FocusFiles", "", "tests were chosen by files"),
            ("SkipFiles", "", "tests were skipped by files"),
            ("DryRun", "false", "no test ran at all"),
            ("ParallelTotal", "1", "tests ran in parallel"),
            ("FlakeAttempts", "0", "failed tests were retried"),
        ] {
            if let Some(value) = junit.properties.get(key).filter(|value| *value != fine) {
                self.find(
                    path,
                    format!("{means} ({key} is `{value}`): run with `--mode certified-conformance`"),
                );
            }
        }
        Ok(Some(junit))
    }

    /// Examines the end of the log, and whether it belongs to the same run as the JUnit file.
    fn log(&mut self, junit: Option<&Junit>) -> anyhow::Result<Log> {
        let path = self.log.clone();
        let Some(content) = self.files.open(&path)? else {
            self.find(&path, "is missing");
            return Ok(Log::default());
        };
        let log = Log::read(BufReader::new(content)).with_context(|| format!("`{path}`"))?;
        match log.ends[..] {
            [] => self.find(&path, "has no ending: the tests did not finish (a line `Ran N of M Specs`)"),
            [(ran, all)] => self.end(&path, &log, ran, all, junit),
            _ => self.find(&path, format!("contains the endings of {} runs", log.ends.len())),
        }
        let seed = junit.and_then(|junit| junit.properties.get("RandomSeed"));
        if seed.is_some_and(|seed| !log.seeds.is_empty() && !log.seeds.contains(seed)) {
            self.find(&path, "is not from the run that wrote the JUnit file: their random seeds differ");
        }
        Ok(log)
    }

    /// Checks that the tests match the server's minor version, which is in the image's tag and in a verbose log.
    fn versions(&mut self, log: &Log) -> anyhow::Result<()> {
        self.version =
            self.json(layout::SERVER_VERSION)?["gitVersion"].as_str().and_then(minor).unwrap_or_default();
        if self.version.is_empty() {
            self.find(layout::SERVER_VERSION, "does not state the cluster's version");
            return Ok(());
        }
        let path = format!("{}/{}", layout::plugin(E2E), layout::DEFINITIONS[0]);
        let definition = self.json(&path)?;
        let image = definition["Definition"]["spec"]["image"].as_str().unwrap_or_default();
        let tag = Reference::parse(image).ok().and_then(|image| minor(&image.tag?));
        if tag.is_none() && log.versions.iter().all(|(who, _)| *who != "tests") {
            let what = format!(
                "does not state the version of the tests: its image is `{image}`; use one with a version as its tag, such as `conformance:{}.0`",
                self.version
            );
            self.find(&path, what);
        }
        let tag = tag.iter().map(|version| (&path, "tests", version));
        let log = log.versions.iter().map(|(who, version)| (&self.log, *who, version));
        let others = tag.chain(log).filter(|(.., version)| **version != self.version);
        let others: Vec<_> = others.map(|(path, who, version)| (path.clone(), who, version)).collect();
        for (path, who, version) in others {
            self.find(&path, format!("states {version} for the {who}, but the cluster is {}", self.version));
        }
        Ok(())
    }

    fn end(&mut self, path: &str, log: &Log, ran: usize, all: usize, junit: Option<&Junit>) {
        let [_, failed, pending, flaked] = log.counts;
        if !log.passed || [failed, pending, flaked] != [0; 3] {
            let what = format!("the suite did not pass: {failed} failed, {pending} pending, {flaked} flaked");
            self.find(path, what);
        }
        let Some(junit) = junit else { return };
        if all != junit.tests {
            let what = format!("the suite has {all} tests, but the JUnit file lists {}", junit.tests);
            self.find(path, what);
        }
        if ran != junit.ran {
            let what = format!(
                "{ran} tests ran, but the JUnit file says {}: they are not from the same run",
                junit.ran
            );
            self.find(path, what);
        }
    }
}

/// `v1.33` of `v1.33.1`.
fn minor(version: &str) -> Option<String> {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || parts.next()?.parse::<u32>().ok();
    Some(format!("v{}.{}", number()?, number()?))
}
