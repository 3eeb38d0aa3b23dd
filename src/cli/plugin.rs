//! `sonobuoy plugin`: manages plugins installed for use by name.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::ArgMatches;

use super::output;
use crate::plugin::{self, Installed};
use base::sys;

/// Runs the subcommand.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let installed = Installed::open(&sys::variable).map_err(|reason| anyhow!("{reason}"))?;
    let argument =
        |matches: &ArgMatches, id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
    let text = match matches.subcommand() {
        Some(("list", _)) => list(&installed)?,
        Some(("show", matches)) => {
            let loaded = installed.show(&argument(matches, "name"))?;
            loaded.notes.iter().for_each(|note| log::warn!("{note}"));
            format!("{}\n", loaded.definition.to_full_yaml())
        }
        Some(("install", matches)) => {
            install(&installed, &argument(matches, "save-as"), &argument(matches, "source"))?
        }
        Some(("uninstall", matches)) => {
            format!(
                "Uninstalled plugin file {}\n",
                installed.uninstall(&argument(matches, "name"))?.display()
            )
        }
        _ => return super::help(&["plugin".into()]),
    };
    output::data(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(installed: &Installed) -> Result<String> {
    let mut blocks = Vec::new();
    for (path, loaded) in installed.list()? {
        let definition = match loaded {
            Ok(loaded) => loaded.definition,
            Err(error) => {
                log::error!("{error:#}");
                continue;
            }
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        blocks.push(format!(
            "Run as: {stem}\nFilename: {}\nPlugin name (in aggregator): {}\nSource URL: {}\nDescription: {}\n",
            path.display(),
            definition.name(),
            definition.config.source_url,
            definition.config.description,
        ));
    }
    Ok(blocks.join("---\n"))
}

fn install(installed: &Installed, save_as: &str, source: &str) -> Result<String> {
    let loaded = plugin::one(source)?;
    plugin::check_content(&loaded.definition)?;
    // The name in the file is replaceable at each run.
    if let Err(error) = plugin::check_name_of(&loaded.definition) {
        log::warn!("{error}; it runs under another name, as with `-p {save_as}@newname`");
    }
    loaded.notes.iter().for_each(|note| log::warn!("{note}"));
    let path = installed.install(save_as, &loaded.definition)?;
    let container = loaded.definition.spec["name"].as_str().unwrap_or_default();
    Ok(format!("Installed plugin {container} into file {} from source {source}\n", path.display()))
}
