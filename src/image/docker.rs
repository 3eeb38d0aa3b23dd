//! Calls docker, or podman if docker is missing, for local images.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::lists::image_names;

/// Arguments that confine a container of the conformance image.
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

/// Pulls an image into the daemon; shows docker's output unless `quiet`.
pub(crate) fn pull(image: &str, quiet: bool) -> Result<()> {
    twice(&["pull", "--", image], quiet)
}

/// Removes an image from the daemon; shows docker's output unless `quiet`.
pub(crate) fn remove(image: &str, quiet: bool) -> Result<()> {
    twice(&["rmi", "--", image], quiet)
}

fn twice(words: &[&str], quiet: bool) -> Result<()> {
    let first = docker(words, quiet).inspect_err(|error| log::warn!("{error:#}; retrying once"));
    first.or_else(|_| docker(words, quiet)).map(drop)
}

/// Saves an image of the daemon to an archive.
pub(crate) fn save(image: &str, path: &Path) -> Result<()> {
    docker(
        &["save", "--output", &path.to_string_lossy(), "--", image],
        true,
    )
    .map(drop)
}

/// Whether the daemon has an image.
pub(crate) fn is_here(image: &str) -> bool {
    docker(&["inspect", "--type=image", "--", image], true).is_ok()
}

/// The images of the tests, as listed by the conformance image, whose program runs without network
/// and privileges.
pub(crate) fn test_images(conformance: &str, env: &[(String, String)]) -> Result<Vec<String>> {
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("--env={name}={value}"))
        .collect();
    let options = CONFINED.into_iter().chain(env.iter().map(String::as_str));
    let words: Vec<_> = options
        .chain(["--", conformance, "--list-images"])
        .collect();
    image_names(&docker(&words, true)?, conformance)
}

/// Runs docker; returns its output if `quiet`, and shows it otherwise.
fn docker(words: &[&str], quiet: bool) -> Result<String> {
    let call = |program: &str| {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null());
        if !quiet {
            command.stdout(std::io::stderr()).stderr(Stdio::inherit());
        }
        command.output()
    };
    // Podman takes the same arguments.
    let output = call("docker").or_else(|error| match error.kind() {
        ErrorKind::NotFound => call("podman").map_err(|_| error),
        _ => Err(error),
    });
    let words = words.join(" ");
    let output = output.with_context(|| {
        format!("cannot start `docker {words}`; is docker or podman installed?")
    })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let message = message.lines().rfind(|line| !line.trim().is_empty());
        let message = message
            .map(|line| format!(": {}", line.trim()))
            .unwrap_or_default();
        bail!("`docker {words}` failed ({}){message}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
