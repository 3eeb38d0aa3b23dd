//! `sonobuoy post-process`: recreates the items of every plugin in an unpacked archive.

use anyhow::Context as _;
use serde_json::Value;
use std::fs;
use std::path::Path;

use super::flag::Args;
use super::output;
use crate::layout;
use crate::plugin::Driver;
use crate::process::{self, Expected, Rules};
use base::at::At as _;
use base::visible;

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    for (name, status) in process(Path::new(args.text("dir").context("no folder given")?))? {
        output::print(&format!("{}\n", visible::line(&format!("{name}: {status}"))))?;
    }
    Ok(0)
}

/// Writes the items of every plugin; returns the plugins and their statuses.
pub(super) fn process(archive: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let expected: Vec<Expected> = fs::read(archive.join(layout::RECEIVED))
        .ok()
        .and_then(|list| serde_json::from_slice(&list).ok())
        .unwrap_or_default();
    let dir = archive.join(layout::PLUGINS);
    let about = dir.symlink_metadata().at("cannot read", &dir)?;
    anyhow::ensure!(
        about.is_dir(),
        "`{}` is a link or a file, and not the folder of an archive",
        dir.display()
    );
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).at("cannot read", &dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name());
        }
    }
    names.sort_unstable();
    let mut outcomes = Vec::new();
    let wholes: Vec<Option<String>> = names.iter().map(|name| whole(&dir.join(name))).collect();
    for name in names.iter().zip(&wholes).filter_map(|(name, whole)| whole.is_none().then_some(name)) {
        let plugin = dir.join(name);
        let mut rules = Rules { expected: expected.clone(), ..rules(&plugin, &name.to_string_lossy()) };
        let own = names.iter().zip(&wholes).filter(|(_, whole)| whole.as_ref() == Some(&rules.name));
        let own = own.map(|(part, _)| part.to_string_lossy().into_owned());
        (rules.attempts, rules.parts) = own.partition(|part| layout::is_attempt(part, &rules.name));
        outcomes.push((name.to_string_lossy().into_owned(), process::process(&plugin, &rules)?.status));
    }
    Ok(outcomes)
}

/// The rules in the stored definition.
fn rules(dir: &Path, name: &str) -> Rules {
    let definition = layout::DEFINITIONS.iter().find_map(|file| definition(&dir.join(file)));
    let definition = definition.unwrap_or_default();
    // The definition may also be unwrapped.
    let config = definition.pointer("/Definition/sonobuoy-config").or(definition.get("sonobuoy-config"));
    let text =
        |key: &str| config.and_then(|config| config.get(key)).and_then(Value::as_str).unwrap_or_default();
    let files = config.and_then(|config| config.get("result-files")).and_then(Value::as_array);
    Rules {
        name: if text("plugin-name").is_empty() { name } else { text("plugin-name") }.to_owned(),
        per_node: match text("driver") {
            "" => looks_per_node(dir),
            driver => Driver::parse(driver).is_some_and(Driver::is_per_node),
        },
        format: text("result-format").to_owned(),
        files: files.into_iter().flatten().filter_map(|file| file.as_str().map(str::to_owned)).collect(),
        ..Rules::default()
    }
}

/// The plugin that a stored part belongs to.
fn whole(dir: &Path) -> Option<String> {
    let definition = definition(&dir.join(layout::DEFINITIONS[0]))?;
    definition.pointer("/Definition/sonobuoy-config/part-of")?.as_str().map(str::to_owned)
}

/// A stored definition; `None` if unreadable, since the results are still usable.
fn definition(path: &Path) -> Option<Value> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .inspect_err(|error| log::warn!("`{}` is not JSON: {error}", path.display()))
            .ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            log::warn!("cannot read `{}`: {error}", path.display());
            None
        }
    }
}

/// Guesses the driver from the folders: results of the whole cluster are in a folder of that name or in no folder.
fn looks_per_node(dir: &Path) -> bool {
    let folders = |name: &str| {
        let entries = fs::read_dir(dir.join(name)).into_iter().flatten().flatten();
        entries.map(|entry| (entry.path().is_dir(), entry.file_name())).collect::<Vec<_>>()
    };
    let found = [folders(layout::RESULTS), folders(layout::ERRORS)].concat();
    !found.is_empty() && found.iter().all(|(is_dir, name)| *is_dir && name != client::protocol::GLOBAL)
}
