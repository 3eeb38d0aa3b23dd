//! `sonobuoy gen`: prints the objects of a run, its configuration, and plugin definitions.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ArgMatches;

use super::flag::value;
use super::{manifest, output, request, usage};
use crate::deploy;
use crate::image;
use crate::names;
use crate::plugin::{self, Definition, Driver, builtin, pod};
use base::json::json;
use base::yaml;

/// Runs the command or its subcommand.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let text = match matches.subcommand() {
        None => manifest(matches)?,
        Some(("config", matches)) => {
            let run = request::settings(matches)?;
            request::check(matches, &run)?;
            format!("{}\n", run.to_json())
        }
        Some(("default-image-config", _)) => format!("{}\n", yaml::write(&image::registries())),
        Some(("plugin", matches)) => match matches.subcommand() {
            None => new_plugin(matches)?,
            Some((name, matches)) => built_in(name, matches)?,
        },
        Some((name, _)) => return Err(anyhow::anyhow!("`gen {name}`: unknown")),
    };
    output::data(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn manifest(matches: &ArgMatches) -> Result<String> {
    if let Some(file) = value(matches, "file") {
        return manifest::text(file);
    }
    if matches.get_one::<String>("status-service").is_some_and(|kind| kind != "none") {
        bail!(
            "only `run` can create a status service, since it keeps the credentials; leave out --status-service"
        );
    }
    let plan = request::plan(matches, None)?;
    let objects = plan.manifest()?;
    if let Err(error) = plan.check_selection() {
        log::warn!("{error:#}; `run` rejects it");
    }
    Ok(format!("{}\n", deploy::to_yaml(&objects)))
}

fn built_in(name: &str, matches: &ArgMatches) -> Result<String> {
    let plan = request::plan(matches, Some(name))?;
    match &plan.prepared()?[..] {
        [definition] => Ok(definition.to_yaml()),
        _ => bail!("there is no built-in plugin `{name}`"),
    }
}

/// A new definition: an example in a language, or from flags.
fn new_plugin(matches: &ArgMatches) -> Result<String> {
    let Some(language) = matches.get_one::<String>("example") else {
        return Ok(format!("{}\n", definition(matches)?.to_yaml()));
    };
    let name = matches.get_one::<String>("name").map(String::as_str);
    let driver =
        matches.get_one::<String>("type").and_then(|word| Driver::parse(word)).unwrap_or(Driver::Job);
    let text = builtin::example(language, name, driver).context("there is no example")?;
    plugin::check(&plugin::read(&text)?.definition)?;
    Ok(text)
}

/// A new definition from flags.
fn definition(matches: &ArgMatches) -> Result<Definition> {
    let text = |id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
    let many = |id: &str| matches.get_many::<String>(id).into_iter().flatten();
    let driver = Driver::parse(&text("type")).unwrap_or(Driver::Job);
    let mut spec = json!({"name": "plugin", "command": many("cmd").collect::<Vec<_>>()});
    if !text("image").is_empty() {
        spec["image"] = json!(text("image"));
    }
    if many("arg").next().is_some() {
        spec["args"] = json!(many("arg").collect::<Vec<_>>());
    }
    let mut definition = Definition::new(text("name"), driver, spec);
    definition.config.result_format = text("format");
    definition.config.description = text("description");
    definition.config.source_url = text("url");
    crate::plugin::check_format(&definition.config.result_format)?;
    let mut env = BTreeMap::new();
    for pair in many("env") {
        match pair.split_once('=') {
            Some((name, "")) => env.insert(name, json!({"name": name})),
            Some((name, value)) => env.insert(name, json!({"name": name, "value": value})),
            None => env.remove(pair.as_str()),
        };
    }
    if !env.is_empty() {
        definition.spec["env"] = env.into_values().collect();
        definition.set_env(&BTreeMap::new());
    }
    let labels = many("node-selector").map(|label| match label.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key, value)),
        _ => {
            Err(usage::error(format!("invalid argument {label:?} for \"--node-selector\": write KEY=VALUE")))
        }
    });
    let labels = labels.collect::<Result<BTreeMap<_, _>>>()?;
    if matches.get_flag("show-default-podspec") {
        definition.pod_spec = Some(pod::default_spec(driver, names::SERVICE_ACCOUNT));
    } else if !labels.is_empty() {
        // The original writes only the selector; scripts edit this text, and a pod spec is used unchanged.
        definition.pod_spec = Some(json!({"containers": null}));
        log::warn!(
            "with --node-selector alone the plugin's pod has none of the defaults, such as restartPolicy; \
             --show-default-podspec writes them out"
        );
    }
    if let Some(spec) = &mut definition.pod_spec
        && !labels.is_empty()
    {
        spec["nodeSelector"] = json!(labels);
    }
    for path in many("configmap") {
        definition.config_map.insert(request::base_name(path)?, request::read_text(path)?);
    }
    plugin::check_content(&definition)?;
    // The original prints it, and the name may be changed before the plugin runs.
    if let Err(error) = plugin::check_name_of(&definition) {
        log::warn!("{error}; change it, or run it under another name, as with `-p FILE@newname`");
    }
    Ok(definition)
}
