//! `sonobuoy gather hello`: the smallest plugin, which works on every system.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::flag::Filled as _;
use super::gather_flags::HelloArgs;
use super::output;
use base::at::At as _;
use base::sys::{self, variable};
use base::temp;
use model::names::env;
use model::{item, layout};

/// Writes the greeting for the worker, or prints it where there is no results folder.
pub(super) fn run(args: &HelloArgs) -> Result<()> {
    let text = greeting(&sys::host_name())?;
    let flag = args.output.filled().map(str::to_owned);
    let Some(folder) = flag.or_else(|| variable(env::RESULTS_DIR)) else {
        output::print(&text);
        return Ok(());
    };
    let folder = Path::new(&folder)
        .canonicalize()
        .with_context(|| format!("cannot write the greeting into `{folder}`"))?;
    let result = folder.join(layout::HELLO);
    temp::write(&result, 0o666, text.as_bytes()).at("cannot write", &result)?;
    // The worker reads the result as soon as `done` names it.
    let done = folder.join("done");
    temp::write(&done, 0o666, result.as_os_str().as_encoded_bytes()).at("cannot write", &done)
}

/// A result in the format `manual`. The name of a machine may contain any character, so that it is
/// quoted as JSON, which is YAML.
fn greeting(machine: &str) -> Result<String> {
    let name = serde_json::to_string(&format!("greeting from {machine}"))?;
    let status = item::PASSED;
    let mut text = format!("name: hello\nstatus: {status}\nitems:\n");
    writeln!(text, "- name: {name}\n  status: {status}")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_is_yaml_for_every_name_of_a_machine() {
        for machine in ["node-1", "a: \"b\"\n- c", ""] {
            let text = greeting(machine).unwrap();
            let tree: serde_json::Value = serde_yaml::from_str(&text).unwrap();
            assert_eq!(tree["status"], "passed", "{text}");
            assert_eq!(tree["items"][0]["name"], format!("greeting from {machine}"));
        }
    }
}
