//! Calls to the docker program, for its own images.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Pulls an image into the daemon.
pub(crate) fn pull(image: &str) -> Result<()> {
    twice(|| docker(&["pull", image], Show::Progress)).map(drop)
}

/// Removes an image from the daemon.
pub(crate) fn remove(image: &str) -> Result<()> {
    twice(|| docker(&["rmi", image], Show::Progress)).map(drop)
}

/// Whether the daemon has an image.
pub(crate) fn is_here(image: &str) -> bool {
    docker(&["inspect", "--type=image", image], Show::Nothing).is_ok()
}

/// The images of its tests, as listed by the conformance image.
pub(crate) fn test_images(conformance: &str, env: &[(String, String)]) -> Result<Vec<String>> {
    let mut words: Vec<String> = ["run", "--rm", "--entrypoint=e2e.test"].map(ToOwned::to_owned).into();
    words.extend(env.iter().map(|(name, value)| format!("--env={name}={value}")));
    words.extend([conformance.to_owned(), "--list-images".to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let listed = docker(&words, Show::Errors)?;
    Ok(listed.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// What to show of docker's output.
#[derive(PartialEq)]
enum Show {
    /// Everything, on stderr.
    Progress,
    /// Only its stderr; stdout is returned.
    Errors,
    Nothing,
}

fn docker(words: &[&str], show: Show) -> Result<String> {
    let mut command = Command::new("docker");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    if show == Show::Progress {
        command.stdout(std::io::stderr());
    }
    command.stderr(if show == Show::Nothing { Stdio::null() } else { Stdio::inherit() });
    let output = command
        .output()
        .with_context(|| format!("cannot start `docker {}`; is docker installed?", words.join(" ")))?;
    if !output.status.success() {
        bail!("`docker {}` failed ({})", words.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn twice(step: impl Fn() -> Result<String>) -> Result<String> {
    step().or_else(|error| {
        log::warn!("{error:#}; retrying once");
        step()
    })
}
