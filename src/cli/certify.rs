//! `sonobuoy certify`: checks the archive of a conformance run, and writes the submission.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ArgMatches;

use super::flag::Args;
use super::mistake;
use super::{output, run_args};
use crate::certify::{self, Product};
use crate::image::kit::Kit;
use crate::remote::seal;
use crate::report;

/// Exit code if requirements of certification are not met.
const NOT_READY: u8 = 3;

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let archive = args.text("archive").context("no archive given")?;
    let names = args.text("tests").map(run_args::tests).transpose()?.map(|names| names.join("\n"));
    check_seal(archive)?;
    ready(archive, args.text("product"), args.text("output").map(Path::new), names.as_deref())
}

/// Checks the seal of an archive, and warns if it has none or cannot be checked.
fn check_seal(archive: &str) -> anyhow::Result<()> {
    let archive = PathBuf::from(report::locate(archive)?);
    if seal::is_beside(&archive) {
        seal::check_file(&archive, None, false)?.tell();
    } else {
        log::warn!("`{}` was not checked: there is no seal beside it", archive.display());
    }
    Ok(())
}

/// The requested submission.
pub(super) struct Submission {
    pub(super) into: PathBuf,
    pub(super) product: String,
    /// The names of the tests, if a kit has them.
    pub(super) tests: Option<String>,
}

impl Submission {
    /// Reads `--certify` and `--product`, and reports every error that is detectable before the run.
    pub(super) fn asked(matches: &ArgMatches) -> anyhow::Result<Option<Self>> {
        let args = Args(matches);
        let Some(into) = args.text("certify").map(PathBuf::from) else { return Ok(None) };
        let Some(path) = args.text("product") else {
            return Err(mistake::error(
                "--certify: a submission describes a product; name its description by --product FILE",
            ));
        };
        certify::check(&into)?;
        if let Err(wrong) = Product::read(run_args::read_text(path)?) {
            anyhow::bail!("`{path}` does not describe a product: {}", wrong.join("; "));
        }
        let kit = args.text("kit").map(|path| Kit::read(Path::new(path))).transpose()?.flatten();
        let tests = kit.filter(|kit| !kit.tests.is_empty()).map(|kit| kit.tests.join("\n"));
        Ok(Some(Self { into, product: path.into(), tests }))
    }
}

/// Checks an archive and a product, and writes the submission if ready and requested.
pub(super) fn ready(
    archive: &str,
    product: Option<&str>,
    into: Option<&Path>,
    names: Option<&str>,
) -> anyhow::Result<u8> {
    if into.is_some() && product.is_none() {
        return Err(mistake::error(
            "a submission describes a product; name its description by --product FILE",
        ));
    }
    if let Some(into) = into {
        certify::check(into)?;
    }
    let described = product.map(|path| run_args::read_text(path).map(|text| (path, Product::read(text))));
    let described = described.transpose()?;
    let candidate =
        certify::examine(archive, names).with_context(|| format!("could not process archive: {archive}"))?;
    let (required, passed) = candidate.required;
    let of = if candidate.version.is_empty() { String::new() } else { format!(" of {}", candidate.version) };
    let mut text = format!("{passed} of {required} conformance tests{of} passed\n");
    let mut findings = candidate.findings.clone();
    if let Some((path, Err(wrong))) = &described {
        findings.extend(wrong.iter().map(|why| format!("{path}: {why}")));
    }
    if !findings.is_empty() {
        text.push_str("Not ready for certification:\n");
        text.extend(findings.iter().map(|finding| format!("  {finding}\n")));
        output::print(&text)?;
        return Ok(NOT_READY);
    }
    match (into, described) {
        (Some(into), Some((_, Ok(product)))) => {
            let paths = certify::write(&candidate, &product, into)?;
            text.extend(paths.iter().map(|path| format!("{}\n", path.display())));
            output::print(&text)?;
            log::info!(
                "submit these four files, and nothing else, as {}/<product>/ in a pull request whose title names {} and {}",
                candidate.version,
                candidate.version,
                product.name
            );
        }
        _ => output::print(&format!(
            "{text}Ready for certification: write the submission with --product FILE -o DIR\n"
        ))?,
    }
    Ok(0)
}
