//! `sonobuoy post-process`: recreates the items of every plugin in an unpacked archive.

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::Path;

use super::flag::Args;
use super::output;
use crate::layout;
use crate::plugin::DriverKind;
use crate::process::{self, Expected, ReadingRules};
use base::at::{At as _, entries};
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
    let mut plugins = Vec::new();
    for entry in entries(&dir)? {
        if entry.file_type()?.is_dir() {
            plugins.push((entry.file_name(), definition(&entry.path())));
        }
    }
    let mut outcomes = Vec::new();
    for (folder, definition) in plugins.iter().filter(|(_, definition)| definition.part_of.is_none()) {
        let (path, shown) = (dir.join(folder), folder.to_string_lossy().into_owned());
        let given = Some(&definition.plugin_name).filter(|name| !name.is_empty());
        let name = given.unwrap_or(&shown).clone();
        let own = plugins.iter().filter(|(_, other)| other.part_of.as_ref() == Some(&name));
        let own = own.map(|(part, _)| part.to_string_lossy().into_owned());
        let (attempts, parts) = own.partition(|part| layout::is_attempt(part, &name));
        let rules = ReadingRules {
            per_node: match definition.driver.as_str() {
                "" => looks_per_node(&path),
                driver => DriverKind::parse(driver).is_some_and(DriverKind::is_per_node),
            },
            format: definition.result_format.clone(),
            files: definition.result_files.clone().unwrap_or_default(),
            expected: expected.clone(),
            name,
            attempts,
            parts,
            ..ReadingRules::default()
        };
        outcomes.push((shown, process::process(&path, &rules)?.status));
    }
    Ok(outcomes)
}

/// What a stored definition says about results.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct StoredDefinition {
    plugin_name: String,
    driver: String,
    result_format: String,
    result_files: Option<Vec<String>>,
    part_of: Option<String>,
}

/// The stored definition of a plugin; the default if it is unreadable, since the results are still usable.
fn definition(dir: &Path) -> StoredDefinition {
    let mut paths = layout::DEFINITIONS.iter().map(|file| dir.join(file));
    let Some(path) = paths.find(|path| path.symlink_metadata().is_ok()) else {
        return StoredDefinition::default();
    };
    let read = || {
        let document: Value = serde_json::from_slice(&fs::read(&path)?)?;
        // The definition may also be unwrapped.
        let config = document.pointer("/Definition/sonobuoy-config").or(document.get("sonobuoy-config"));
        anyhow::Ok(config.map(StoredDefinition::deserialize).transpose()?.unwrap_or_default())
    };
    read().at("cannot read", &path).inspect_err(|error| log::warn!("{error:#}")).unwrap_or_default()
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
