//! `sonobuoy certify`: checks the archive of a conformance run, and writes the submission.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ArgMatches;

use super::flag::value;
use super::{output, request, usage};
use crate::certify::{self, Finding, Product};
use crate::image::kit::Kit;
use crate::plugin::mode::{CERTIFIED, Mode};
use crate::remote::seal;
use crate::report;
use base::at::At as _;
use base::small;

/// The list of all tests of a version has one or two MiB.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// Exit code if requirements of certification are not met.
const NOT_READY: u8 = 3;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let archive = value(matches, "archive").context("no archive given")?;
    let names = value(matches, "tests").map(|path| {
        if let Some(kit) = Kit::read(Path::new(path)).ok().flatten() {
            return Ok(kit.tests.join("\n").into_bytes());
        }
        small::read(Path::new(path), MAX_LIST_BYTES).at("cannot read", path)
    });
    let names = names.transpose()?.map(|names| String::from_utf8_lossy(&names).into_owned());
    check_seal(archive)?;
    let code =
        ready(archive, value(matches, "product"), value(matches, "output").map(Path::new), names.as_deref())?;
    Ok(ExitCode::from(code))
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
        let Some(into) = value(matches, "certify").map(PathBuf::from) else { return Ok(None) };
        let Some(path) = value(matches, "product") else {
            return Err(usage::error(
                "--certify: a submission describes a product; name its description by --product FILE",
            ));
        };
        // `wait` has no flags to select tests.
        if request::has_value(matches, "local") && !Mode::is_certified(matches.get_one("mode")) {
            return Err(usage::error(format!("--certify: certification requires `--mode {CERTIFIED}`")));
        }
        certify::check(&into)?;
        if let Err(wrong) = Product::read(request::read_text(path)?) {
            anyhow::bail!("`{path}` does not describe a product: {}", wrong.join("; "));
        }
        let kit = matches.try_get_one::<String>("kit").ok().flatten().filter(|path| !path.is_empty());
        let kit = kit.map(|path| Kit::read(Path::new(path))).transpose()?.flatten();
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
        return Err(usage::error("a submission describes a product; name its description by --product FILE"));
    }
    if let Some(into) = into {
        certify::check(into)?;
    }
    let described = product.map(|path| request::read_text(path).map(|text| (path, Product::read(text))));
    let described = described.transpose()?;
    let candidate =
        certify::examine(archive, names).with_context(|| format!("could not process archive: {archive}"))?;
    let (required, passed) = candidate.required;
    let of = if candidate.version.is_empty() { String::new() } else { format!(" of {}", candidate.version) };
    let mut text = format!("{passed} of {required} conformance tests{of} passed\n");
    let mut findings: Vec<String> = candidate.findings.iter().map(Finding::to_string).collect();
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
