//! Calls docker, or podman if docker is missing, for local images.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Pulls an image into the daemon; shows docker's output unless `quiet`.
pub(crate) fn pull(image: &str, quiet: bool) -> Result<()> {
    twice(|| docker(&["pull", image], if quiet { Show::Failure } else { Show::Progress })).map(drop)
}

/// Removes an image from the daemon; shows docker's output unless `quiet`.
pub(crate) fn remove(image: &str, quiet: bool) -> Result<()> {
    twice(|| docker(&["rmi", image], if quiet { Show::Failure } else { Show::Progress })).map(drop)
}

/// Saves an image of the daemon to an archive.
pub(crate) fn save(image: &str, path: &Path) -> Result<()> {
    docker(&["save", "--output", &path.to_string_lossy(), image], Show::Failure).map(drop)
}

/// Whether the daemon has an image.
pub(crate) fn is_here(image: &str) -> bool {
    docker(&["inspect", "--type=image", image], Show::Nothing).is_ok()
}

/// The images of the tests, as listed by the conformance image, whose program runs without network and privileges.
pub(crate) fn test_images(conformance: &str, env: &[(String, String)]) -> Result<Vec<String>> {
    const CONFINED: [&str; 9] = [
        "run",
        "--rm",
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--memory=2g",
        "--pids-limit=256",
        "--entrypoint=e2e.test",
    ];
    let mut words: Vec<String> = CONFINED.map(ToOwned::to_owned).into();
    words.extend(env.iter().map(|(name, value)| format!("--env={name}={value}")));
    words.extend([conformance.to_owned(), "--list-images".to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let listed = docker(&words, Show::Errors)?;
    Ok(listed.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Output of docker to show.
#[derive(PartialEq)]
enum Show {
    /// Everything, on stderr.
    Progress,
    /// Only its stderr; stdout is returned.
    Errors,
    /// Only its stderr, as part of the error on failure.
    Failure,
    Nothing,
}

fn docker(words: &[&str], show: Show) -> Result<String> {
    let call = |program: &str| {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        if show == Show::Progress {
            command.stdout(std::io::stderr());
        }
        command.stderr(match show {
            Show::Nothing => Stdio::null(),
            Show::Failure => Stdio::piped(),
            Show::Progress | Show::Errors => Stdio::inherit(),
        });
        command.output()
    };
    // Podman takes the same arguments.
    let output = call("docker").or_else(|error| match error.kind() {
        ErrorKind::NotFound => call("podman").map_err(|_| error),
        _ => Err(error),
    });
    let words = words.join(" ");
    let output =
        output.with_context(|| format!("cannot start `docker {words}`; is docker or podman installed?"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().rev().find(|line| !line.trim().is_empty());
        let said = said.map_or_else(String::new, |line| format!(": {}", line.trim()));
        bail!("`docker {words}` failed ({}){said}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn twice(step: impl Fn() -> Result<String>) -> Result<String> {
    step().or_else(|error| {
        log::warn!("{error:#}; retrying once");
        step()
    })
}
