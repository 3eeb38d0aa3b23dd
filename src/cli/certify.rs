//! `sonobuoy certify`: checks the archive of a conformance run, and writes the submission.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::file::read_text;
use super::flag::{Filled as _, examples, usage_error};
use super::run_plan::read_tests;
use super::{comparison, output};
use crate::image::kit::Kit;
use crate::remote::seal;
use base::words::count;
use report::certify::ai::Programme;
use report::certify::{self, Product};
use report::{Look, TextOutput};

/// Exit code if an archive cannot be submitted.
const NOT_READY: u8 = 3;
const NO_PRODUCT: &str = "a submission describes a product; name its description by --product FILE";
const READY: &str = "Ready for certification: write the submission with --product FILE -o DIR\n";

/// Check a conformance run and write its submission for certification; needs no cluster
#[derive(clap::Args)]
#[command(after_help = examples(&[
    (
        "Check a run and write its submission",
        "sonobuoy certify run.tar.gz --product product.yaml -o submission",
    ),
    (
        "The same for AI conformance",
        "sonobuoy certify run.tar.gz --program ai --checklist AIConformance-1.37.yaml --product \
         product.yaml -o submission",
    ),
]))]
pub(crate) struct CertifyArgs {
    /// Archive of the run, or its unpacked folder
    #[arg(value_name = "ARCHIVE")]
    archive: String,
    /// Programme that certifies
    #[arg(long, value_enum, default_value = "kubernetes")]
    program: Program,
    /// Description of the product (YAML), as the submission's PRODUCT.yaml
    #[arg(long, value_name = "FILE")]
    product: Option<String>,
    /// Checklist of the AI programme for the cluster's version, as the programme publishes it
    #[arg(long, value_name = "FILE")]
    checklist: Option<String>,
    /// Rules of the AI programme instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    rules: Option<String>,
    /// New folder to write the submission into; without it, only checks
    #[arg(short, long, value_name = "DIR")]
    output: Option<String>,
    #[arg(
        help = "Names of tests, one per line: those with [Conformance] must be in the archive",
        long,
        value_name = "FILE"
    )]
    tests: Option<String>,
}

/// A programme that certifies.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Program {
    /// Certified Kubernetes: the conformance tests
    Kubernetes,
    /// Certified Kubernetes AI Conformance: the AI conformance suite, and answers to a checklist
    Ai,
}

/// Runs the command.
pub(crate) fn run(args: &CertifyArgs) -> Result<u8> {
    comparison::check_names([&args.archive])?;
    if args.program == Program::Ai {
        return run_ai(args);
    }
    for (flag, value) in [("checklist", &args.checklist), ("rules", &args.rules)] {
        if value.filled().is_some() {
            return Err(usage_error(format!("--{flag} is for --program ai")));
        }
    }
    let tests = args.tests.filled().map(read_tests).transpose()?;
    check_seal(&args.archive)?;
    Submission {
        into: args.output.filled().map(Path::new),
        product: args.product.filled(),
        tests: tests.unwrap_or_default(),
    }
    .judge(&args.archive)
    .map(|judgement| judgement.print())
}

/// Checks a run of the AI conformance suite.
fn run_ai(args: &CertifyArgs) -> Result<u8> {
    let Some(checklist) = args.checklist.filled() else {
        return Err(usage_error(
            "--program ai: name the programme's docs/AIConformance-X.Y.yaml by --checklist FILE",
        ));
    };
    if args.tests.filled().is_some() {
        return Err(usage_error("--tests is for --program kubernetes"));
    }
    let checklist_text = read_text(checklist)?;
    let rules = args
        .rules
        .filled()
        .map(|path| anyhow::Ok((path, read_text(path)?)))
        .transpose()?;
    let rules = rules
        .as_ref()
        .map(|(path, text): &(&str, String)| (*path, text.as_str()));
    let programme = Programme::read((checklist, &checklist_text), rules)?;
    check_seal(&args.archive)?;
    AiSubmissionRequest {
        programme: &programme,
        into: args.output.filled().map(Path::new),
        product: args.product.filled(),
    }
    .judge(&args.archive)
    .map(|judgement| judgement.print())
}

/// The requested check for the AI programme, and its submission.
struct AiSubmissionRequest<'a> {
    programme: &'a Programme,
    into: Option<&'a Path>,
    product: Option<&'a str>,
}

impl AiSubmissionRequest<'_> {
    /// Checks an archive and the product; writes the submission if requested, unless the run or the
    /// product's file has a problem. What nobody has answered yet stays open in it.
    fn judge(&self, archive: &str) -> Result<Judgement> {
        check_target(self.into, self.product)?;
        let candidate = self
            .programme
            .examine(archive)
            .with_context(|| format!("could not process archive: {archive}"))?;
        let submission = match self.product {
            Some(path) => candidate.fill(path, &read_text(path)?),
            None => candidate.without_product(),
        };
        let version = self.programme.version();
        let [tests, passed, failed, skipped] = candidate.counts;
        let mut text = format!(
            "{} of the AI conformance suite, {version}: {passed} passed, {failed} failed, \
             {skipped} skipped\n",
            count(tests, "test")
        );
        let findings = [&*candidate.findings, &submission.findings].concat();
        if !findings.is_empty() {
            return Ok(Judgement::not_ready(text, &findings));
        }
        let mut details = Vec::new();
        submission.write_text(&mut TextOutput {
            look: Look::default(),
            out: &mut details,
        })?;
        text.push_str(&String::from_utf8_lossy(&details));
        let paths = match (self.into, self.product) {
            (Some(into), Some(product)) => candidate.write(&submission, archive, product, into)?,
            _ => Vec::new(),
        };
        let is_complete = submission.is_complete();
        if !is_complete {
            text.push_str("Not ready for certification: the answers to MUST are not complete\n");
        } else if paths.is_empty() {
            text.push_str(READY);
        }
        text.extend(paths.iter().map(|path| format!("{}\n", path.display())));
        let next = (is_complete && !paths.is_empty()).then(|| {
            format!(
                "submit these files, and nothing else, as {version}/<product>/ in a pull request \
                 to the programme"
            )
        });
        let code = if is_complete { 0 } else { NOT_READY };
        Ok(Judgement { text, code, next })
    }
}

/// Checks the folder of a submission, which needs a product, before an archive is read.
fn check_target(into: Option<&Path>, product: Option<&str>) -> Result<()> {
    let Some(into) = into else {
        return Ok(());
    };
    if product.is_none() {
        return Err(usage_error(NO_PRODUCT));
    }
    certify::check(into)
}

/// Checks the seal of an archive, and warns if it has none or cannot be checked.
fn check_seal(archive: &str) -> Result<()> {
    let archive = PathBuf::from(report::locate(archive)?);
    if seal::is_beside(&archive) {
        let checked = seal::check_file(&archive, None, false)?;
        if checked.authority.is_none() {
            checked.log();
        }
    } else if archive.exists() {
        log::warn!(
            "`{}` was not checked: it has no seal beside it",
            archive.display()
        );
    }
    Ok(())
}

/// Whether an archive can be submitted. Its files are written.
pub(super) struct Judgement {
    text: String,
    code: u8,
    /// What to do with the files.
    next: Option<String>,
}

impl Judgement {
    /// What prevents certification, below what is known of the tests.
    fn not_ready(mut text: String, findings: &[String]) -> Self {
        text.push_str("Not ready for certification:\n");
        text.extend(findings.iter().map(|finding| format!("  {finding}\n")));
        Self {
            text,
            code: NOT_READY,
            next: None,
        }
    }

    /// Prints it; returns the exit code.
    pub(super) fn print(&self) -> u8 {
        output::print(&self.text);
        self.next.iter().for_each(|next| log::info!("{next}"));
        self.code
    }
}

/// The requested check of a product, and its submission.
pub(super) struct Submission<'a> {
    into: Option<&'a Path>,
    product: Option<&'a str>,
    /// The names of the tests, if known.
    tests: Vec<String>,
}

impl<'a> Submission<'a> {
    /// Checks the folder of `--certify` and the file of `--product`: every error that is detectable
    /// before the run.
    pub(super) fn prepare(
        into: Option<&'a str>,
        product: Option<&'a str>,
        kit: Option<&str>,
    ) -> Result<Option<Self>> {
        let Some(into) = into.map(Path::new) else {
            return Ok(None);
        };
        let Some(path) = product else {
            return Err(usage_error(
                "--certify: a submission describes a product; name its description by --product \
                 FILE",
            ));
        };
        certify::check(into)?;
        if let Err(wrong) = Product::read(read_text(path)?) {
            bail!("`{path}` does not describe a product: {}", wrong.join("; "));
        }
        let kit = kit
            .map(|path| Kit::read(Path::new(path)))
            .transpose()?
            .flatten();
        let tests = kit.unwrap_or_default().tests;
        Ok(Some(Self {
            into: Some(into),
            product: Some(path),
            tests,
        }))
    }

    /// Checks an archive and the product, and writes the submission if ready and requested.
    pub(super) fn judge(&self, archive: &str) -> Result<Judgement> {
        check_target(self.into, self.product)?;
        let described = self
            .product
            .map(|path| read_text(path).map(Product::read))
            .transpose()?;
        let candidate = certify::examine(archive, &self.tests)
            .with_context(|| format!("could not process archive: {archive}"))?;
        let (required, passed) = candidate.required;
        let version = &candidate.version;
        let of = if version.is_empty() {
            String::new()
        } else {
            format!(" of {version}")
        };
        let mut text = format!("{passed} of {required} conformance tests{of} passed\n");
        let mut findings = candidate.findings.clone();
        if let (Some(path), Some(Err(wrong))) = (self.product, &described) {
            findings.extend(wrong.iter().map(|why| format!("{path}: {why}")));
        }
        if !findings.is_empty() {
            return Ok(Judgement::not_ready(text, &findings));
        }
        let (Some(into), Some(Ok(product))) = (self.into, described) else {
            text.push_str(READY);
            return Ok(Judgement {
                text,
                code: 0,
                next: None,
            });
        };
        let paths = certify::write(&candidate, &product, into)?;
        text.extend(paths.iter().map(|path| format!("{}\n", path.display())));
        let next = format!(
            "submit these four files, and nothing else, as {version}/<product>/ in a pull request \
             whose title names {version} and {}",
            product.name
        );
        Ok(Judgement {
            text,
            code: 0,
            next: Some(next),
        })
    }
}
