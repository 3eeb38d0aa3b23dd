//! Checks whether the archive of a conformance run meets the certification programme, and writes
//! its submission.
//!
//! Owns the programme's rules as far as files can prove them: without network access, it does not
//! know which versions are still accepted or whether a product's pages are reachable. Reports all
//! problems as findings; only unreadable input is an error. The submission is a folder with the
//! run's log and JUnit file, the unmodified description of the product, and how to reproduce the
//! run; it is created under a temporary name and renamed, and overwrites nothing.

pub mod ai;
mod suite;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde_json::Value;

use crate::{ArchiveSource, ExtractedFiles, PassAction};
use base::at::At as _;
use client::protocol::GLOBAL;
use model::item::plain;
use model::layout;
use model::plugin::focus::listed_test;
use model::suite_log::{SuiteLog, minor};
use model::verdict::TestOutcome;
use oci::Reference;
use suite::{Junit, REQUIRED};
use yaml::{self, Content, Error, Node, typed};

/// The plugin that runs the tests.
const E2E: &str = "e2e";
/// Focus of a certified run.
const FOCUS: &str = r"\[Conformance\]";
/// The log of the tests.
const LOG: &str = "e2e.log";
/// Maximum tests named in a finding.
const MAX_NAMES: usize = 10;

/// An examined archive.
pub struct Candidate {
    /// The version of Kubernetes, as `v1.33`; empty if unknown.
    pub version: String,
    /// The number of required tests, and of those that passed.
    pub required: (usize, usize),
    /// The problems that prevent certification, each with the file that proves it.
    pub findings: Vec<String>,
    files: ExtractedFiles,
    log: String,
    junit: String,
}

/// Examines the archive; compares its tests with `names`, if there are any.
pub fn examine(archive: &str, names: &[String]) -> Result<Candidate> {
    let folder = format!("{}/{}/{GLOBAL}/", layout::plugin(E2E), layout::RESULTS);
    let log = format!("{folder}{LOG}");
    let is_junit = |name: &str| {
        let file = name.strip_prefix(&folder).unwrap_or_default();
        file.starts_with("junit") && file.ends_with(".xml") && !file.contains('/')
    };
    let (mut junits, mut brought) = (Vec::new(), false);
    let files = ArchiveSource::open(archive)?.extract(|_, name, _, _| {
        junits.extend(is_junit(name).then(|| name.to_owned()));
        brought |= name.starts_with(&folder);
        Ok(PassAction::keep_if(
            [log.as_str(), layout::SERVER_VERSION, layout::CONFIG].contains(&name)
                || is_junit(name)
                || layout::is_definition(name),
        ))
    })?;
    ensure!(
        brought,
        "it contains no results of the plugin `{E2E}`, which runs the conformance tests"
    );
    junits.sort();
    let mut candidate = Candidate {
        version: String::new(),
        required: (0, 0),
        findings: Vec::new(),
        files,
        log,
        junit: junits.first().cloned().unwrap_or_default(),
    };
    candidate.parts()?;
    let junit = candidate.junit(&junits, names);
    let log = candidate.log(junit.as_ref())?;
    candidate.versions(&log)?;
    Ok(candidate)
}

impl Candidate {
    fn find(&mut self, file: &str, what: impl Display) {
        self.findings.push(format!("{file}: {what}"));
    }

    fn find_tests(
        &mut self,
        file: &str,
        what: impl Display,
        tests: impl ExactSizeIterator<Item: Display>,
    ) {
        let names = list_names(tests);
        self.find(file, format!("{what}{names}"));
    }

    /// A document of the archive; null if it is missing.
    fn json(&self, path: &str) -> Result<Value> {
        Ok(self.files.document(path)?.unwrap_or_default())
    }

    /// Examines other parts whose results count as the plugin's.
    fn parts(&mut self) -> Result<()> {
        if self.json(layout::CONFIG)?["Resumes"]
            .as_str()
            .is_some_and(|run| !run.is_empty())
        {
            self.find(
                layout::CONFIG,
                "the run continued another one, but all tests must run in one: run without \
                 `--resume`",
            );
        }
        for name in self.files.folders(layout::PLUGINS) {
            let path = layout::definition(&name);
            if self.json(&path)?["Definition"]["sonobuoy-config"]["part-of"] != E2E {
                continue;
            }
            let what = if layout::is_attempt(&name, E2E) {
                "failed tests were run again, but all must pass the first time: run without \
                 `--retry-failed`"
            } else {
                "tests ran in several parts, but all must run in one: run without `--split`"
            };
            self.find(&path, what);
        }
        Ok(())
    }

    /// Examines the outcomes of tests.
    fn junit(&mut self, all: &[String], names: &[String]) -> Option<Junit> {
        let [path] = all else {
            let folder = format!("{}/{}/{GLOBAL}", layout::plugin(E2E), layout::RESULTS);
            let what = match all.len() {
                0 => "there is no JUnit file".into(),
                many => format!(
                    "there are {many} JUnit files: the tests ran in parallel, or results of two \
                     runs are mixed"
                ),
            };
            self.find(&folder, what);
            return None;
        };
        let junit = Junit::read(BufReader::new(self.files.open(path)?))
            .inspect_err(|error| self.find(path, format!("cannot be read: {error:#}")))
            .ok()?;
        let number = junit.number();
        self.required = (
            number,
            junit
                .required
                .get(&TestOutcome::Passed)
                .map_or(0, BTreeSet::len),
        );
        if number == 0 {
            self.find(
                path,
                "lists no test with [Conformance] in its name: is this the JUnit file of a \
                 conformance image?",
            );
        }
        let of = |outcome| junit.required.get(&outcome);
        for (names, what) in [
            (of(TestOutcome::Skipped), "did not run"),
            (of(TestOutcome::Failed), "failed"),
            (
                of(TestOutcome::Flaky),
                "passed only when retried, which a certified run may not do",
            ),
            (
                Some(&junit.repeated).filter(|names| !names.is_empty()),
                "listed more than once: results of two runs are mixed, or tests were retried",
            ),
        ] {
            if let Some(names) = names {
                let what = format!("{} of {number} required tests {what}", names.len());
                self.find_tests(path, what, names.iter());
            }
        }
        let names = names
            .iter()
            .map(|line| plain(listed_test(line).unwrap_or(line)));
        let missing: Vec<&str> = names
            .filter(|name| name.contains(REQUIRED) && !junit.lists(name))
            .collect();
        if !missing.is_empty() {
            let tests = if missing.len() == 1 {
                "test of the list is"
            } else {
                "tests of the list are"
            };
            self.find_tests(
                path,
                format!("{} required {tests} missing", missing.len()),
                missing.iter(),
            );
        }
        if junit.properties.is_empty() {
            self.find(
                path,
                "does not say how the suite was started (it has no <properties>)",
            );
        }
        self.suite_end(path, &junit);
        // `FlakeAttempts` is not among them: it permits retries, but whether a test was retried is
        // what outcomes and the log's count of flaked tests say.
        for (key, fine, means) in [
            ("FocusStrings", FOCUS, "other tests were chosen"),
            ("SkipStrings", "", "tests were skipped"),
            ("LabelFilter", "", "tests were chosen by labels"),
            ("FocusFiles", "", "tests were chosen by files"),
            ("SkipFiles", "", "tests were skipped by files"),
            ("DryRun", "false", "no test ran at all"),
            ("ParallelTotal", "1", "tests ran in parallel"),
            ("SemVerFilter", "", "tests were chosen by versions"),
        ] {
            if let Some(value) = junit.properties.get(key).filter(|value| *value != fine) {
                self.find(
                    path,
                    format!(
                        "{means} ({key} is `{value}`): run with `--mode certified-conformance`"
                    ),
                );
            }
        }
        Some(junit)
    }

    /// Examines how the suite as a whole ended: it may fail although no test did.
    fn suite_end(&mut self, path: &str, junit: &Junit) {
        let property = |key| junit.properties.get(key).map_or("", String::as_str);
        let reason = property("SpecialSuiteFailureReason");
        if !reason.is_empty() {
            self.find(
                path,
                format!("the suite ended early, so tests may not have run: {reason}"),
            );
        } else if property("SuiteSucceeded") == "false" {
            self.find(path, "states that the suite did not succeed");
        }
    }

    /// Examines the end of the log, and whether it belongs to the same run as the JUnit file.
    fn log(&mut self, junit: Option<&Junit>) -> Result<SuiteLog> {
        let path = self.log.clone();
        let Some(content) = self.files.open(&path) else {
            self.find(&path, "is missing");
            return Ok(SuiteLog::default());
        };
        let log = SuiteLog::read(BufReader::new(content)).with_context(|| format!("`{path}`"))?;
        match log.ends[..] {
            [] => self.find(
                &path,
                "has no ending: the tests did not finish (a line `Ran N of M Specs`)",
            ),
            [(ran, all)] => self.end(&path, &log, ran, all, junit),
            _ => self.find(
                &path,
                format!("contains the endings of {} runs", log.ends.len()),
            ),
        }
        let seed = junit.and_then(|junit| junit.properties.get("RandomSeed"));
        if seed.is_some_and(|seed| !log.seeds.is_empty() && !log.seeds.contains(seed)) {
            self.find(
                &path,
                "is not from the run that wrote the JUnit file: their random seeds differ",
            );
        }
        Ok(log)
    }

    /// Checks that the tests match the server's minor version, which is in the image's tag and in a
    /// verbose log.
    fn versions(&mut self, log: &SuiteLog) -> Result<()> {
        self.version = self.json(layout::SERVER_VERSION)?["gitVersion"]
            .as_str()
            .and_then(minor)
            .unwrap_or_default();
        if self.version.is_empty() {
            self.find(
                layout::SERVER_VERSION,
                "does not state the cluster's version",
            );
            return Ok(());
        }
        let path = layout::definition(E2E);
        let definition = self.json(&path)?;
        let image = definition["Definition"]["spec"]["image"]
            .as_str()
            .unwrap_or_default();
        let tag = Reference::parse(image)
            .ok()
            .and_then(|image| minor(&image.tag?));
        if tag.is_none() && log.versions.iter().all(|(who, _)| *who != "tests") {
            let what = format!(
                "does not state the version of the tests: its image is `{image}`; use one with a \
                 version as its tag, such as `conformance:{}.0`",
                self.version
            );
            self.find(&path, what);
        }
        let tag = tag.iter().map(|version| (&path, "tests", version));
        let log_path = self.log.clone();
        let log = log
            .versions
            .iter()
            .map(|(who, version)| (&log_path, *who, version));
        for (path, who, version) in tag.chain(log) {
            if *version != self.version {
                let what = format!(
                    "states {version} for the {who}, but the cluster is {}",
                    self.version
                );
                self.find(path, what);
            }
        }
        Ok(())
    }

    fn end(&mut self, path: &str, log: &SuiteLog, ran: usize, all: usize, junit: Option<&Junit>) {
        let [_, failed, pending, flaked] = log.counts;
        if !log.passed || [failed, pending, flaked] != [0; 3] {
            self.find(
                path,
                format!(
                    "the suite did not pass: {failed} failed, {pending} pending, {flaked} flaked"
                ),
            );
        }
        let Some(&Junit {
            tests, ran: listed, ..
        }) = junit
        else {
            return;
        };
        if all != tests {
            self.find(
                path,
                format!("the suite has {all} tests, but the JUnit file lists {tests}"),
            );
        }
        if ran != listed {
            self.find(
                path,
                format!(
                    "{ran} tests ran, but the JUnit file says {listed}: they are not from the \
                     same run"
                ),
            );
        }
    }
}

/// The first names of a finding, one to a line, and the number of others.
fn list_names(tests: impl ExactSizeIterator<Item: Display>) -> String {
    let more = tests.len().saturating_sub(MAX_NAMES);
    let mut lines: String = tests
        .take(MAX_NAMES)
        .map(|name| format!("\n    {name}"))
        .collect();
    if more > 0 {
        lines.push_str(&format!("\n    and {more} more"));
    }
    lines
}

/// File names of a submission.
const FILES: [&str; 4] = ["README.md", "e2e.log", "junit_01.xml", "PRODUCT.yaml"];

/// Writes the submission into the folder `into`, which must not exist or be empty; returns the
/// paths of its files.
pub fn write(candidate: &Candidate, product: &Product, into: &Path) -> Result<Vec<PathBuf>> {
    check(into)?;
    write_folder(into, |making| fill(candidate, product, making))?;
    Ok(FILES.map(|name| into.join(name)).to_vec())
}

/// Writes a new folder: under a temporary name until it is complete.
fn write_folder(into: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let write = || {
        let above = into
            .parent()
            .filter(|above| !above.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs::create_dir_all(above)?;
        let beside = base::temp::Folder::inside(above)?;
        let making = beside.join("submission");
        fs::create_dir(&making)?;
        fill(&making)?;
        if into.exists() {
            fs::remove_dir(into)?;
        }
        anyhow::Ok(fs::rename(&making, into)?)
    };
    write().with_context(|| format!("cannot write `{}`", into.display()))
}

fn fill(candidate: &Candidate, product: &Product, making: &Path) -> Result<()> {
    let [readme, log, junit, description] = FILES.map(|name| making.join(name));
    for (path, of) in [(log, &candidate.log), (junit, &candidate.junit)] {
        let mut content = candidate
            .files
            .open(of)
            .with_context(|| format!("`{of}` is missing"))?;
        io::copy(&mut content, &mut File::create_new(path)?)?;
    }
    fs::write(description, &product.text)?;
    let text = include_str!("submission.md")
        .replace("@PRODUCT@", &product.name)
        .replace("@VERSION@", &candidate.version)
        .replace("@REQUIRED@", &candidate.required.0.to_string());
    Ok(fs::write(readme, text)?)
}

/// Fails if `into` has content that would be overwritten.
pub fn check(into: &Path) -> Result<()> {
    let first = base::if_exists(fs::read_dir(into))
        .at("cannot use", into)?
        .and_then(|mut entries| entries.next());
    ensure!(
        first.is_none(),
        "`{}` is not empty; name a new folder",
        into.display()
    );
    Ok(())
}

/// Keys, and whether a value is required.
const KEYS: [(&str, bool); 10] = [
    ("vendor", true),
    ("name", true),
    ("version", true),
    ("type", true),
    ("description", true),
    ("website_url", true),
    ("documentation_url", true),
    ("contact_email_address", true),
    ("repo_url", false),
    ("product_logo_url", false),
];
/// Forms of values: end of the key, pattern, problem with other values. A link without an
/// extension, such as that of a shared drive, may lead to a logo.
const FORMS: [(&str, &str, &str); 4] = [
    (
        "type",
        "^(?:distribution|hosted platform|installer)$",
        " is `{}`; write distribution, hosted platform or installer",
    ),
    (
        "contact_email_address",
        r"^[^@ ,]+@[^. ,][^ ,]*\.[^ ,]*$",
        ": `{}` is not an e-mail address",
    ),
    (
        "_url",
        r"^https?://[^/?#\s]*\.[^/?#\s]*(?:[/?#]\S*)?$",
        ": `{}` is not a URL; write it with https://",
    ),
    (
        "product_logo_url",
        r"(?i)^[^?#]*/(?:[^/?#.]*|[^/?#]*\.(?:svg|ai|eps))(?:[?#]|$)",
        ": `{}` is not an SVG, AI or EPS file",
    ),
];

/// A valid description.
#[derive(Debug)]
pub struct Product {
    /// The product's name.
    pub name: String,
    /// The unmodified text.
    pub text: String,
}

impl Product {
    /// Reads a description; an error names all problems.
    pub fn read(text: String) -> Result<Self, Vec<String>> {
        let broken = |error: Error| vec![error.to_string()];
        let node = yaml::document(&text).map_err(broken)?;
        let entries = typed::entries("the description", &node).map_err(broken)?;
        let mut wrong = Vec::new();
        for (key, value) in entries {
            let name = key.text.as_str();
            let checked = if KEYS.iter().any(|(known, _)| *known == name) {
                scalar(name, value).and_then(|said| {
                    mistake(name, &said).map_or(Ok(()), |why| Err(value.position.error(why)))
                })
            } else {
                let keys = KEYS.map(|(key, _)| key).join(", ");
                Err(key
                    .position
                    .error(format!("`{name}` is unknown; use {keys}")))
            };
            wrong.extend(checked.err().map(|error| error.to_string()));
        }
        let text_of = |key: &str| {
            node.get(key)
                .map(|value| scalar(key, value).unwrap_or_else(|_| key.to_owned()))
        };
        let missing = KEYS
            .iter()
            .filter(|(key, required)| *required && text_of(key).is_none_or(|text| text.is_empty()));
        wrong.extend(missing.map(|(key, _)| format!("`{key}` is missing or empty")));
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Self {
            name: text_of("name").unwrap_or_default(),
            text,
        })
    }
}

/// The text of a scalar: `1.0` is equivalent to `"1.0"`.
fn scalar(key: &str, value: &Node) -> Result<String, Error> {
    match &value.content {
        Content::Null => Ok(String::new()),
        Content::Number(number) => Ok(number.to_string()),
        Content::Bool(flag) => Ok(flag.to_string()),
        _ => typed::text(key, value).map(|text| text.trim().to_owned()),
    }
}

/// The problem with the value of a key, if any.
fn mistake(key: &str, value: &str) -> Option<String> {
    let fits = |pattern: &str| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(value));
    let (.., problem) = FORMS
        .iter()
        .find(|(end, pattern, _)| key.ends_with(end) && !fits(pattern))
        .filter(|_| !value.is_empty())?;
    Some(format!("`{key}`{}", problem.replace("{}", value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "vendor: V\nname: Fine\nversion: v1.0\ntype: distribution\ndescription: D\nwebsite_url: https://a.example\n\
        documentation_url: https://a.example/docs\ncontact_email_address: a@b.example\n";

    #[test]
    fn complete_description_is_accepted() {
        let text = format!("{GOOD}product_logo_url: https://a.example/l.SVG?x\nrepo_url: ~\n");
        let product = Product::read(text.clone()).unwrap();
        assert_eq!((product.name.as_str(), product.text), ("Fine", text));
        assert!(Product::read(GOOD.replace("v1.0", "1.0")).is_ok());
        assert!(
            Product::read(format!(
                "{GOOD}product_logo_url: https://a.example/file/1/view?usp=x\n"
            ))
            .is_ok()
        );
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let check = |from: &str, to: &str, words: &[&str]| {
            let wrong = Product::read(GOOD.replacen(from, to, 1)).unwrap_err();
            assert_eq!(wrong.len(), words.len(), "{wrong:?}");
            for (wrong, words) in wrong.iter().zip(words) {
                assert!(wrong.contains(words), "{wrong}");
            }
        };
        check("vendor: V\n", "", &["`vendor` is missing"]);
        check(
            "vendor: V",
            "vendor: ' '",
            &["`vendor` is missing or empty"],
        );
        check(
            "version: v1.0",
            "version: [1.0]",
            &["line 3, column 10: `version` must be text, not a list"],
        );
        check(
            "distribution",
            "Distro",
            &["`type` is `Distro`; write distribution, hosted platform or installer"],
        );
        check(
            "https://a.example\n",
            "a.example\n",
            &["`website_url`: `a.example` is not a URL"],
        );
        check("a@b.example", "a at b", &["is not an e-mail address"]);
        check(
            "vendor: V\n",
            "vendor: V\nlogo: x\n",
            &["line 2, column 1: `logo` is unknown"],
        );
        check(
            "vendor: V\n",
            "product_logo_url: https://a.example/l.png\n",
            &["is not an SVG", "`vendor` is missing"],
        );
        check(GOOD, "[]", &["the description` must be a map, not a list"]);
        check(GOOD, "a: [", &["line"]);
    }
}
