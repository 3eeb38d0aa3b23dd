//! Checks a run of the AI conformance suite, fills the programme's checklist, and writes the
//! submission.
//!
//! The programme's rules are data (`docs/ai-conformance-rules.yaml`), and its checklist is a file
//! that the user gives, so that a new version needs no new program. A requirement whose test passed
//! is filled in; for every other one, a person answers in the product's file, which has the
//! checklist's form. As for the other programme, all problems are findings, and no check needs the
//! network.

mod document;
mod evidence;
mod rules;
mod suite;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::{check, list_names, write_folder};
use crate::archive::{ArchiveSource, Depth, OpenedArchive, PassAction};
use crate::files::ExtractedFiles;
use crate::run::Report;
use crate::terminal::TextOutput;
use base::words::count;
use client::protocol::GLOBAL;
use document::{Category, Document, Requirement};
use evidence::Evidence;
use model::layout;
use model::suite_log::minor;
use model::verdict::TestOutcome;
use rules::Rules;
use suite::{EventStream, SuiteTests, SuiteText};

/// The file that a submission describes its product in.
const PRODUCT: &str = "PRODUCT.yaml";

/// The rules of the programme, and the checklist of one version.
pub struct Programme {
    rules: Rules,
    checklist: Document,
    /// The path of the checklist.
    path: String,
    /// The minor version of Kubernetes that the checklist is for, as `v1.37`.
    version: String,
}

impl Programme {
    /// Reads a checklist that was not filled in, with the built-in rules or those in `rules`, each
    /// a path and its text.
    pub fn read(checklist: (&str, &str), rules: Option<(&str, &str)>) -> Result<Self> {
        let (rules_path, rules) = rules.unwrap_or(("the built-in rules", rules::BUILT_IN));
        let rules = match Rules::read(rules) {
            Ok(rules) => rules,
            Err(why) => bail!("`{rules_path}` has no rules of the programme: {why}"),
        };
        let (path, text) = checklist;
        let read = Document::read(text).and_then(|checklist| {
            check_checklist(&checklist, &rules).map(|version| (checklist, version))
        });
        match read {
            Ok((checklist, version)) => Ok(Self {
                rules,
                checklist,
                path: path.to_owned(),
                version,
            }),
            Err(wrong) => bail!(
                "`{path}` is no checklist of the programme: {}; take \
                 docs/AIConformance-X.Y.yaml unchanged",
                wrong.join("; ")
            ),
        }
    }
}

/// Checks a checklist; returns its version, or all its problems.
fn check_checklist(checklist: &Document, rules: &Rules) -> Result<String, Vec<String>> {
    let mut wrong = Vec::new();
    let version = checklist.member("kubernetesVersion").and_then(minor);
    if version.is_none() {
        wrong.push("`metadata.kubernetesVersion` states no version".to_owned());
    }
    for name in &rules.categories {
        if checklist.category(name).is_none() {
            wrong.push(format!("the category `{name}` is missing"));
        }
    }
    for category in &checklist.categories {
        let mut ids = BTreeSet::new();
        for requirement in &category.requirements {
            let place = place(category, &requirement.id);
            let Requirement {
                id,
                level,
                status,
                evidence,
                ..
            } = requirement;
            if id.is_empty() || !ids.insert(id) {
                wrong.push(format!("`{place}` needs an `id` of its own"));
            }
            if rules.level(level).is_none() {
                wrong.push(format!(
                    "the level of `{place}` is `{level}`, which is unknown"
                ));
            }
            if !status.is_empty() || !evidence.is_empty() {
                wrong.push(format!(
                    "`{place}` is filled in, which the product's file is for"
                ));
            }
        }
    }
    match version {
        Some(version) if wrong.is_empty() => Ok(version),
        _ => Err(wrong),
    }
}

fn place(category: &Category, id: &str) -> String {
    format!("{}/{id}", category.name)
}

/// A requirement that a passed test proves.
#[derive(Debug, PartialEq)]
pub struct ProvenRequirement {
    /// `category/id`.
    pub place: String,
    /// The name of the test.
    pub test: String,
}

/// A requirement that nobody has answered.
#[derive(Debug, PartialEq)]
pub struct OpenRequirement {
    /// `category/id`.
    pub place: String,
    /// The level of the requirement.
    pub level: String,
    /// Whether the submission is complete without an answer.
    pub is_optional: bool,
    /// The text of the requirement.
    pub description: String,
    /// Why no test proves it; empty if there is no test for it.
    pub reason: String,
}

/// An examined archive.
pub struct AiCandidate<'p> {
    /// The number of tests, and how many of them passed, failed and were skipped.
    pub counts: [usize; 4],
    /// The problems of the run, each with the file that proves it.
    pub findings: Vec<String>,
    programme: &'p Programme,
    files: ExtractedFiles,
    tests: SuiteTests,
}

/// A checklist filled in from a run and from a product's file.
pub struct AiSubmission {
    /// The problems of the product's file.
    pub findings: Vec<String>,
    /// What the tests prove, in the order of the checklist.
    pub proven: Vec<ProvenRequirement>,
    /// What a person has to answer, in the order of the checklist.
    pub open: Vec<OpenRequirement>,
    /// What is accepted, but reviewers will ask about.
    pub remarks: Vec<String>,
    document: Document,
    /// The vendor's own files, by the path below the product's file.
    copies: BTreeSet<PathBuf>,
}

impl Programme {
    /// The minor version of Kubernetes that the checklist is for.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Examines the archive of a run of the suite.
    pub fn examine(&self, archive: &str) -> Result<AiCandidate<'_>> {
        let rules = &self.rules;
        let folder = self.result_folder();
        let mut has_result = false;
        let mut streams = Vec::new();
        let paths = [&rules.log, &rules.events].map(|name| format!("{folder}{name}"));
        let files = ArchiveSource::open(archive)?.extract(|_, name, _, _| {
            has_result |= name.starts_with(&folder);
            if name.starts_with(&folder) && name.ends_with(&format!("/{}", rules.events)) {
                streams.push(name.to_owned());
            }
            let is_wanted = name == layout::SERVER_VERSION || paths.iter().any(|path| path == name);
            Ok(PassAction::keep_if(is_wanted))
        })?;
        ensure!(
            has_result,
            "it contains no results of the plugin `{}`, which runs the AI conformance suite",
            rules.plugin
        );
        let mut candidate = AiCandidate {
            counts: [0; 4],
            findings: Vec::new(),
            programme: self,
            files,
            tests: SuiteTests::default(),
        };
        if streams.len() > 1 {
            let what = format!(
                "holds {} results of suites: {}",
                streams.len(),
                streams.join(", ")
            );
            candidate.find(folder.trim_end_matches('/'), what);
        }
        candidate.check_suite(&paths)?;
        candidate.check_version()?;
        Ok(candidate)
    }

    fn result_folder(&self) -> String {
        let plugin = layout::plugin(&self.rules.plugin);
        format!("{plugin}/{}/{GLOBAL}/", layout::RESULTS)
    }
}

impl AiCandidate<'_> {
    fn find(&mut self, file: &str, what: impl Display) {
        self.findings.push(format!("{file}: {what}"));
    }

    fn find_tests(&mut self, file: &str, what: &str, names: &[&str]) {
        if !names.is_empty() {
            let number = count(names.len(), "test");
            self.find(file, format!("{number} {what}{}", list_names(names.iter())));
        }
    }

    /// Checks log and stream, and that they tell the same.
    fn check_suite(&mut self, [log_path, events_path]: &[String; 2]) -> Result<()> {
        let Some(events) = self.files.open(events_path) else {
            self.find(events_path, "is missing");
            return Ok(());
        };
        let stream = match EventStream::read(BufReader::new(events)) {
            Ok(stream) => stream,
            Err(error) => {
                self.find(events_path, format!("{error:#}"));
                return Ok(());
            }
        };
        self.check_stream(events_path, &stream);
        match self.files.open(log_path) {
            None => self.find(log_path, "is missing"),
            Some(log) => {
                let log = SuiteText::read(BufReader::new(log))
                    .with_context(|| format!("`{log_path}`"))?;
                self.check_log(log_path, &log, &stream.tests);
            }
        }
        self.tests = stream.tests;
        let number = |outcome| self.tests.with(Some(outcome)).len();
        self.counts = [
            self.tests.number(),
            number(TestOutcome::Passed),
            number(TestOutcome::Failed),
            number(TestOutcome::Skipped),
        ];
        Ok(())
    }

    fn check_stream(&mut self, path: &str, stream: &EventStream) {
        let tests = &stream.tests;
        if tests.number() == 0 {
            self.find(path, "has no test: did the suite run?");
        }
        self.find_tests(path, "failed", &tests.with(Some(TestOutcome::Failed)));
        if tests.with(Some(TestOutcome::Failed)).is_empty()
            && let Some(reason) = &stream.failure
        {
            self.find(
                path,
                format!("the suite failed, but none of its tests: {reason}"),
            );
        }
        let repeated = tests.repeated();
        if stream.packages.len() > 1 {
            let packages = stream
                .packages
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>();
            let what = format!(
                "holds the results of several suites: {}",
                packages.join(", ")
            );
            self.find(path, what);
        } else if !repeated.is_empty() {
            let what = "ran more than once: results of two runs are mixed";
            self.find_tests(path, what, &repeated);
        }
        let unfinished = tests.with(None);
        if !unfinished.is_empty() {
            self.find_tests(
                path,
                "began and did not end: the stream is cut",
                &unfinished,
            );
        } else if stream.ended == 0 {
            self.find(path, "has no end: the stream is cut");
        }
    }

    fn check_log(&mut self, path: &str, log: &SuiteText, stream: &SuiteTests) {
        if log.tests.number() == 0 {
            let what = if log.is_ginkgo {
                "is a log of Ginkgo, but must be the text of `go test -v`"
            } else {
                "has no line `--- PASS`, but must be the text of `go test -v`"
            };
            return self.find(path, what);
        }
        let differing: BTreeSet<&str> = stream
            .differing(&log.tests)
            .into_iter()
            .chain(log.tests.differing(stream))
            .collect();
        let differing: Vec<&str> = differing.into_iter().collect();
        let what = format!(
            "ended otherwise than in `{}`: the files are not from the same run",
            self.programme.rules.events
        );
        self.find_tests(path, &what, &differing);
    }

    /// Checks that the cluster has the version of the checklist.
    fn check_version(&mut self) -> Result<()> {
        let document = self.files.document(layout::SERVER_VERSION)?;
        let version = document.unwrap_or_default()["gitVersion"]
            .as_str()
            .and_then(minor);
        let programme = self.programme;
        match version {
            None => self.find(
                layout::SERVER_VERSION,
                "does not state the cluster's version",
            ),
            Some(version) if version != programme.version => self.find(
                &programme.path,
                format!(
                    "is the checklist of {}, but the cluster is {version}",
                    programme.version
                ),
            ),
            Some(_) => {}
        }
        Ok(())
    }

    /// Fills the checklist from the tests and from a product's file.
    pub fn fill(&self, product_path: &str, product: &str) -> AiSubmission {
        let mut filling = Filling {
            candidate: self,
            path: product_path,
            submission: AiSubmission {
                findings: Vec::new(),
                proven: Vec::new(),
                open: Vec::new(),
                remarks: Vec::new(),
                document: Document::default(),
                copies: BTreeSet::new(),
            },
        };
        match Document::read(product) {
            Ok(product) => filling.fill(&product),
            Err(wrong) => wrong.iter().for_each(|why| filling.find(why)),
        }
        filling.submission
    }

    /// What the tests alone prove, and what is open without a product's file.
    pub fn without_product(&self) -> AiSubmission {
        let mut submission = self.fill("", "{}");
        submission.findings.clear();
        submission
    }

    /// Writes the submission into the folder `into`, which must not exist or be empty; returns the
    /// paths of its files.
    pub fn write(
        &self,
        submission: &AiSubmission,
        archive: &str,
        product_path: &str,
        into: &Path,
    ) -> Result<Vec<PathBuf>> {
        check(into)?;
        let rules = &self.programme.rules;
        let mut names: Vec<PathBuf> = [PRODUCT]
            .into_iter()
            .chain(rules.artifacts())
            .map(PathBuf::from)
            .collect();
        write_folder(into, |making| {
            fs::write(making.join(PRODUCT), submission.document.text())?;
            let folder = self.programme.result_folder();
            for name in [&rules.log, &rules.events] {
                let content = self.files.open(&format!("{folder}{name}"));
                let mut content = content.with_context(|| format!("`{name}` is missing"))?;
                std::io::copy(&mut content, &mut fs::File::create_new(making.join(name))?)?;
            }
            self.write_junit(archive, &making.join(&rules.junit))?;
            let product_folder = Path::new(product_path).parent().unwrap_or(Path::new(""));
            for name in &submission.copies {
                let copy = making.join(name);
                fs::create_dir_all(copy.parent().unwrap_or(making))?;
                fs::copy(product_folder.join(name), copy)?;
            }
            Ok(())
        })?;
        names.extend(submission.copies.iter().cloned());
        Ok(names.iter().map(|name| into.join(name)).collect())
    }

    fn write_junit(&self, archive: &str, path: &Path) -> Result<()> {
        let plugin = &self.programme.rules.plugin;
        let opened = OpenedArchive::open(archive, Some(plugin), Depth::Run)?;
        let mut report = Report::read(&opened, None)?;
        // The submission is about the suite alone.
        report.why = None;
        crate::suites::write(&report, &mut fs::File::create_new(path)?)
    }
}

impl AiSubmission {
    /// Whether the programme's checker would accept it, apart from pages that it requests.
    pub fn is_complete(&self) -> bool {
        self.findings.is_empty() && self.open.iter().all(|requirement| requirement.is_optional)
    }

    /// Writes what tests prove, what a person has to answer, and what reviewers ask about.
    pub fn write_text(&self, out: &mut TextOutput<'_>) -> Result<()> {
        if !self.proven.is_empty() {
            out.line("Proven by tests:")?;
        }
        for ProvenRequirement { place, test } in &self.proven {
            out.line(&format!("  {place}: {test}"))?;
        }
        if !self.open.is_empty() {
            out.line(
                "To answer by a person, with status, evidence and notes in the product's file:",
            )?;
        }
        for (at, open) in self.open.iter().enumerate() {
            let OpenRequirement {
                place,
                level,
                description,
                reason,
                ..
            } = open;
            out.line(&format!("  {}. {place} ({level})", at + 1))?;
            out.wrapped(&format!("    {description}"))?;
            if !reason.is_empty() {
                out.wrapped(&format!("    {reason}"))?;
            }
        }
        if !self.remarks.is_empty() {
            out.line("Accepted, but reviewers will ask:")?;
        }
        for remark in &self.remarks {
            out.wrapped(&format!("  {remark}"))?;
        }
        Ok(())
    }
}

/// A checklist that is being filled in.
struct Filling<'f> {
    candidate: &'f AiCandidate<'f>,
    /// The path of the product's file.
    path: &'f str,
    submission: AiSubmission,
}

impl Filling<'_> {
    fn find(&mut self, what: impl Display) {
        self.submission
            .findings
            .push(format!("{}: {what}", self.path));
    }

    fn fill(&mut self, product: &Document) {
        self.fill_metadata(product);
        self.find_unknown(product);
        for category in &self.candidate.programme.checklist.categories {
            let requirements = category
                .requirements
                .iter()
                .map(|requirement| {
                    let answer = product.requirement(&category.name, &requirement.id);
                    self.fill_requirement(category, requirement, answer)
                })
                .collect();
            self.submission.document.categories.push(Category {
                name: category.name.clone(),
                requirements,
            });
        }
    }

    fn fill_metadata(&mut self, product: &Document) {
        let programme = self.candidate.programme;
        let rules = &programme.rules;
        for member in &rules.metadata {
            let checklist_value = programme.checklist.member(&member.name);
            // A checklist states its version, and has placeholders besides.
            let default = checklist_value.filter(|value| rules.mistake(member, value).is_none());
            let value = product.member(&member.name).or(default).unwrap_or_default();
            if value.is_empty() {
                if !member.optional {
                    self.find(format!("`metadata.{}` is missing or empty", member.name));
                }
                continue;
            }
            if let Some(mistake) = rules.mistake(member, value) {
                self.find(format!("in `metadata`, {mistake}"));
            }
            let entry = (member.name.clone(), value.to_owned());
            self.submission.document.metadata.push(entry);
        }
        let stated = product.member("kubernetesVersion").and_then(minor);
        if stated.is_some_and(|stated| stated != programme.version) {
            let version = &programme.version;
            self.find(format!(
                "`metadata.kubernetesVersion` must be {version}, as the checklist's"
            ));
        }
    }

    /// Finds answers to what the checklist does not ask.
    fn find_unknown(&mut self, product: &Document) {
        let programme = self.candidate.programme;
        let members: Vec<&str> = programme
            .rules
            .metadata
            .iter()
            .map(|member| member.name.as_str())
            .collect();
        for (key, _) in &product.metadata {
            let is_known = |name: &&str| *name == key || document::snake_case(name) == *key;
            if !members.iter().any(is_known) {
                self.find(format!(
                    "`metadata.{key}` is unknown; use {}",
                    members.join(", ")
                ));
            }
        }
        for category in &product.categories {
            if programme.checklist.category(&category.name).is_none() {
                self.find(format!("the checklist has no category `{}`", category.name));
                continue;
            }
            for requirement in &category.requirements {
                let id = &requirement.id;
                if programme
                    .checklist
                    .requirement(&category.name, id)
                    .is_none()
                {
                    self.find(format!("the checklist has no `{}`", place(category, id)));
                }
            }
        }
    }

    /// A requirement with its answer, and with the evidence of its test.
    fn fill_requirement(
        &mut self,
        category: &Category,
        requirement: &Requirement,
        answer: Option<&Requirement>,
    ) -> Requirement {
        let rules = &self.candidate.programme.rules;
        let place = place(category, &requirement.id);
        let mut filled = requirement.clone();
        if let Some(answer) = answer {
            filled.status.clone_from(&answer.status);
            filled.evidence.clone_from(&answer.evidence);
            filled.notes.clone_from(&answer.notes);
            let is_changed = |asked: &str, told: &str| !told.is_empty() && asked != told;
            if is_changed(&requirement.description, &answer.description)
                || is_changed(&requirement.level, &answer.level)
            {
                self.submission.remarks.push(format!(
                    "{}: description or level of `{place}` differ from the checklist's, which are written",
                    self.path
                ));
            }
        }
        let test = rules.test_of(&requirement.id).unwrap_or_default();
        let outcome = self.candidate.tests.outcome(test);
        if outcome == Some(TestOutcome::Passed) {
            if filled.status.is_empty() {
                filled.status.clone_from(&rules.proves);
            }
            if filled.status == rules.proves {
                let artifacts = rules.artifacts().map(str::to_owned);
                let missing = artifacts
                    .into_iter()
                    .filter(|name| !filled.evidence.contains(name));
                let missing: Vec<String> = missing.collect();
                filled.evidence.extend(missing);
                self.submission.proven.push(ProvenRequirement {
                    place: place.clone(),
                    test: test.to_owned(),
                });
            }
        }
        self.check_answer(&place, &filled);
        filled
    }

    /// Checks status, notes and evidence as the programme does.
    fn check_answer(&mut self, place: &str, filled: &Requirement) {
        let rules = &self.candidate.programme.rules;
        let Requirement {
            id,
            level,
            status,
            evidence,
            notes,
            ..
        } = filled;
        let level_rule = rules.level(level);
        let is_optional = level_rule.is_some_and(|level| level.optional);
        if status.is_empty() {
            if !evidence.is_empty() {
                self.find(format!("`{place}` has evidence, but no `status`"));
            }
            self.submission.open.push(OpenRequirement {
                place: place.to_owned(),
                level: level.clone(),
                is_optional,
                description: filled.description.clone(),
                reason: self.reason(id),
            });
            return;
        }
        let allowed = level_rule.map_or(&rules.statuses, |level| &level.statuses);
        let may_not_apply = rules.may_not_apply(id, status);
        if !rules.statuses.contains(status) {
            let statuses = rules.statuses.join(", ");
            self.find(format!(
                "the status of `{place}` is `{status}`; write one of {statuses}"
            ));
        } else if may_not_apply {
            self.submission.remarks.push(format!(
                "`{place}` is {level} and `{status}`: reviewers check the reason in its `notes`"
            ));
        } else if !allowed.contains(status) {
            let needed = allowed.join(" or ");
            self.find(format!(
                "`{place}` is {level} and must be {needed}, but is `{status}`"
            ));
        }
        if rules.explained.contains(status) && notes.trim().is_empty() {
            self.find(format!(
                "`{place}` is `{status}`, which its `notes` must explain"
            ));
        }
        if *status == rules.proves && evidence.is_empty() {
            self.submission.remarks.push(format!(
                "`{place}` is `{status}` without evidence: reviewers ask for a page or a file"
            ));
        }
        for entry in evidence {
            if let Err(why) = self.check_evidence(filled, entry) {
                self.find(format!("the evidence of `{place}`: {why}"));
            }
        }
    }

    /// Checks an entry of `evidence`; a file of the vendor becomes part of the submission.
    fn check_evidence(&mut self, filled: &Requirement, entry: &str) -> Result<(), String> {
        let rules = &self.candidate.programme.rules;
        match Evidence::read(entry, &rules.artifacts())? {
            Evidence::Link => Ok(()),
            Evidence::Artifact { test } => {
                let test = test.or_else(|| rules.test_of(&filled.id));
                let Some(test) = test else { return Ok(()) };
                match self.candidate.tests.outcome(test) {
                    None => Err(format!("`{entry}` does not contain the test `{test}`")),
                    Some(TestOutcome::Skipped) if filled.status == rules.proves => Err(format!(
                        "`{test}` was skipped, which is no evidence that it is `{}`",
                        filled.status
                    )),
                    Some(_) => Ok(()),
                }
            }
            Evidence::File(path) => {
                let folder = Path::new(self.path).parent().unwrap_or(Path::new(""));
                if !folder.join(&path).is_file() {
                    let folder = folder.join("").display().to_string();
                    let place = if folder.is_empty() { "./" } else { &folder };
                    return Err(format!("there is no file `{entry}` in `{place}`"));
                }
                self.submission.copies.insert(path);
                Ok(())
            }
        }
    }

    /// Why no test proves a requirement; empty if there is no test for it.
    fn reason(&self, requirement: &str) -> String {
        let programme = self.candidate.programme;
        let Some(test) = programme.rules.test_of(requirement) else {
            return String::new();
        };
        let tests = &self.candidate.tests;
        match tests.outcome(test) {
            None => format!("{test} did not run"),
            Some(TestOutcome::Skipped) if !tests.last_line(test).is_empty() => {
                format!("{test} was skipped: {}", tests.last_line(test))
            }
            Some(TestOutcome::Skipped) => format!("{test} was skipped"),
            Some(_) => format!("{test} failed"),
        }
    }
}
