//! `sonobuoy plugin`: manages plugins installed for use by name.

use anyhow::{Result, bail};

use super::flag::Args;
use super::{form, output};
use crate::plugin::{self, Installed};

/// Runs the subcommand.
pub(crate) fn run(args: Args) -> Result<u8> {
    let installed = Installed::open()?;
    let Some((name, args)) = args.subcommand() else { bail!("no subcommand") };
    let argument = |id| args.text(id).unwrap_or_default();
    let text = match name {
        "list" => list(args, &installed)?,
        "show" => {
            let loaded = installed.show(argument("name"))?;
            loaded.notes.iter().for_each(|note| log::warn!("{note}"));
            format!("{}\n", loaded.definition.to_full_yaml())
        }
        "install" => install(&installed, argument("save-as"), argument("source"))?,
        _ => format!("Uninstalled plugin file {}\n", installed.uninstall(argument("name"))?.display()),
    };
    output::data(&text)?;
    Ok(0)
}

fn list(args: Args, installed: &Installed) -> Result<String> {
    let (mut blocks, mut rows) = (Vec::new(), Vec::new());
    for (path, loaded) in installed.list()? {
        let definition = match loaded {
            Ok(loaded) => loaded.definition,
            Err(error) => {
                log::error!("{error:#}");
                continue;
            }
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let (name, file, config) = (definition.name(), path.display().to_string(), &definition.config);
        let (source, description) = (&config.source_url, &config.description);
        blocks.push(format!(
            "Run as: {stem}\nFilename: {file}\nPlugin name (in aggregator): {name}\nSource URL: {source}\nDescription: {description}\n",
        ));
        rows.push([&*stem, name, config.driver.name(), &file, source, description].map(str::to_owned));
    }
    let head = ["name", "plugin", "driver", "file", "source", "description"];
    Ok(form::table(args, head, &rows).unwrap_or_else(|| blocks.join("---\n")))
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
