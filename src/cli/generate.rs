//! `sonobuoy gen`: prints the objects of a run, its configuration, and plugin definitions;
//! `sonobuoy schema`: the JSON Schemas of those that users write; and `sonobuoy plugin`: manages
//! definitions installed for use by name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::flag::{Args, invalid};
use super::manifest::read_manifest;
use super::run_args::{Purpose, RunArgs, base_name, read_text};
use super::{output, table, usage};
use crate::deploy;
use crate::image;
use base::at::At as _;
use base::json::json;
use base::temp;
use kube::Object as _;
use model::config;
use model::names;
use model::plugin::{self, Definition, DriverKind, Installed, builtin};

/// Runs the command or its subcommand.
pub(crate) fn run(args: Args) -> Result<()> {
    let text = match args.subcommand() {
        ("", args) => manifest(args)?,
        ("config", args) => {
            let request = RunArgs::new(args, Purpose::Print)?;
            request.check()?;
            format!("{}\n", request.config.to_json())
        }
        ("cli", args) => return pages(Path::new(args.text("dir").unwrap_or("."))),
        ("plugin", args) => match args.subcommand() {
            ("", args) => new_plugin(args)?,
            (name, args) => {
                let plan = RunArgs::new(args, Purpose::Print)?.plan(Some(name))?;
                plan.prepared()?.iter().map(Definition::to_yaml).collect()
            }
        },
        // `default-image-config`
        _ => format!("{}\n", yaml::write(&image::registries())),
    };
    output::data(&text);
    Ok(())
}

/// Prints one schema.
pub(crate) fn schema(args: Args) -> Result<()> {
    let schema = if args.word("name") == "config" {
        config::Run::schema()
    } else {
        plugin::schema()
    };
    output::line(serde_json::to_string_pretty(&schema)?);
    Ok(())
}

/// Writes a Markdown page with the help of each command.
fn pages(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).at("cannot create", dir)?;
    let mut commands = vec![table::shown()];
    while let Some(mut command) = commands.pop() {
        commands.extend(usage::visible(&command).cloned());
        let help = command.render_help();
        let name = command.get_bin_name().unwrap_or_default();
        let file = dir.join(name.replace(' ', "_") + ".md");
        temp::write(&file, 0o666, format!("# {name}\n\n```\n{help}```\n"))
            .at("cannot write", &file)?;
    }
    Ok(())
}

fn manifest(args: Args) -> Result<String> {
    if let Some(file) = args.text("file") {
        return read_manifest(file);
    }
    if args.word("status-service") != "none" {
        bail!(
            "only `run` can create a status service, since it keeps the credentials; leave out \
             --status-service"
        );
    }
    let plan = RunArgs::new(args, Purpose::Print)?.plan(None)?;
    let objects = plan.manifest()?;
    if let Err(error) = plan.check_selection() {
        log::warn!("{error:#}; `run` rejects it");
    }
    Ok(format!("{}\n", deploy::to_yaml(&objects)))
}

/// A new definition: an example in a language, or from flags.
fn new_plugin(args: Args) -> Result<String> {
    let Some(language) = args.text("example") else {
        return Ok(format!("{}\n", definition(args)?.to_yaml()));
    };
    let text = builtin::example(language, args.text("name"), driver(args))
        .context("no example exists in this language")?;
    plugin::check(&plugin::read(&text)?.definition)?;
    Ok(text)
}

fn driver(args: Args) -> DriverKind {
    args.text("type")
        .and_then(DriverKind::parse)
        .unwrap_or(DriverKind::Job)
}

/// A new definition from flags.
fn definition(args: Args) -> Result<Definition> {
    let text = |id: &str| args.word(id).to_owned();
    let words = |id: &str| args.all(id).collect::<Vec<_>>();
    let mut spec = json!({"name": "plugin", "command": words("cmd")});
    if let Some(image) = args.text("image") {
        spec["image"] = json!(image);
    }
    if !words("arg").is_empty() {
        spec["args"] = json!(words("arg"));
    }
    let mut definition = Definition::new(text("name"), driver(args), spec);
    definition.config.result_format = text("format");
    definition.config.description = text("description");
    definition.config.source_url = text("url");
    let mut env = BTreeMap::new();
    for pair in args.all("env") {
        match pair.split_once('=') {
            Some((name, "")) => env.insert(name, json!({"name": name})),
            Some((name, value)) => env.insert(name, json!({"name": name, "value": value})),
            None => env.remove(pair),
        };
    }
    if !env.is_empty() {
        definition.spec["env"] = env.into_values().collect();
        definition.set_env(BTreeMap::<&str, &str>::new());
    }
    let label = |label| match str::split_once(label, '=') {
        Some((key, value)) if !key.is_empty() => Ok((key, value)),
        _ => Err(invalid("node-selector", label, "write KEY=VALUE")),
    };
    let labels = args
        .all("node-selector")
        .map(label)
        .collect::<Result<BTreeMap<_, _>>>()?;
    let default = || plugin::default_spec(driver(args), names::SERVICE_ACCOUNT);
    definition.pod_spec = args.on("show-default-podspec").then(default);
    if !labels.is_empty() {
        let spec = definition.pod_spec.get_or_insert_with(|| {
            log::warn!(
                "with --node-selector alone the plugin's pod has none of the defaults, such as \
                 restartPolicy; --show-default-podspec writes them out"
            );
            // The original writes only the selector; scripts edit this text, and a pod spec is used
            // unchanged.
            json!({"containers": null})
        });
        spec["nodeSelector"] = json!(labels);
    }
    for path in args.all("configmap") {
        definition
            .config_map
            .insert(base_name(path)?, read_text(path)?);
    }
    plugin::check_content(&definition)?;
    // The original prints it, and the name may be changed before the plugin runs.
    if let Err(error) = plugin::check_name_of(&definition) {
        log::warn!("{error}; change it, or run it under another name, as with `-p FILE@newname`");
    }
    Ok(definition)
}

/// Runs `plugin`.
pub(crate) fn plugin(args: Args) -> Result<()> {
    let installed = Installed::open()?;
    let (name, args) = args.subcommand();
    let text = match name {
        "list" => installed_plugins(args, &installed)?,
        "show" => {
            let loaded = installed.show(args.word("name"))?;
            loaded.notes.iter().for_each(|note| log::warn!("{note}"));
            format!("{}\n", loaded.definition.to_full_yaml())
        }
        "install" => install_plugin(&installed, args.word("save-as"), args.word("source"))?,
        _ => format!(
            "Uninstalled plugin file {}\n",
            installed.uninstall(args.word("name"))?.display()
        ),
    };
    output::data(&text);
    Ok(())
}

fn installed_plugins(args: Args, installed: &Installed) -> Result<String> {
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
        let (name, file, config) = (
            definition.name(),
            path.display().to_string(),
            &definition.config,
        );
        let (source, description) = (&config.source_url, &config.description);
        blocks.push(format!(
            "Run as: {stem}\nFilename: {file}\nPlugin name (in aggregator): {name}\nSource URL: \
             {source}\nDescription: {description}\n",
        ));
        rows.push(
            [
                &*stem,
                name,
                config.driver.name(),
                &file,
                source,
                description,
            ]
            .map(str::to_owned),
        );
    }
    let head = ["name", "plugin", "driver", "file", "source", "description"];
    Ok(output::in_form(args.text("output"), head, &rows, || {
        blocks.join("---\n")
    }))
}

fn install_plugin(installed: &Installed, save_as: &str, source: &str) -> Result<String> {
    let loaded = plugin::one(source)?;
    plugin::check_content(&loaded.definition)?;
    // The name in the file is replaceable at each run.
    if let Err(error) = plugin::check_name_of(&loaded.definition) {
        log::warn!("{error}; it runs under another name, as with `-p {save_as}@newname`");
    }
    loaded.notes.iter().for_each(|note| log::warn!("{note}"));
    let path = installed.install(save_as, &loaded.definition)?;
    let container = loaded.definition.spec["name"].text();
    Ok(format!(
        "Installed plugin {container} into file {} from source {source}\n",
        path.display()
    ))
}
