//! `sonobuoy gen`: prints the objects of a run, its configuration, and plugin definitions; and
//! `sonobuoy schema`: the JSON Schemas of those that users write.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::Command;

use super::cluster::ClusterFlags;
use super::file::{base_name, read_text};
use super::flag::{Filled as _, Variation, Varied, examples, invalid, is_of, visible, words};
use super::manifest::read_manifest;
use super::output;
use super::run_flags::{
    DefaultPodSpecFlag, Harden, HardenFlag, NodeFlags, Placed, RbacFlag, RbacMode, RunFlags,
    StatusServiceKind, placed_text,
};
use super::run_plan::{Purpose, RunRequest};
use crate::deploy;
use crate::image;
use base::at::At as _;
use base::json::json;
use base::temp;
use model::config;
use model::names;
use model::plugin::{self, Definition, DriverKind, builtin};

/// The differences of the printed objects from those of `run`.
const OF_ORIGINAL: &str = "By default, this prints the objects of the original. With --harden on, \
                           it prints those of `run`, except that `run` collects journals with its \
                           own image (-p systemd-logs-native), has the e2e tests print their \
                           names (E2E_EXTRA_GINKGO_ARGS), and with --registry passes their \
                           registries.";

/// Declares the defaults of the original.
pub(crate) struct OfOriginal;

impl Variation for OfOriginal {
    fn change(arg: clap::Arg) -> clap::Arg {
        if is_of::<RbacFlag>(&arg) {
            return arg.default_value(RbacMode::Enable.word());
        }
        if is_of::<HardenFlag>(&arg) {
            return arg.default_value(Harden::Off.word());
        }
        arg
    }
}

/// The flags of `run`, with the defaults of the original.
type PrintedFlags = Varied<RunFlags, OfOriginal>;

/// Print the objects of a run, as YAML
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = OF_ORIGINAL)]
pub(crate) struct GenArgs {
    #[command(subcommand)]
    command: Option<GenCommand>,
    #[command(flatten)]
    objects: GenConfigArgs,
}

#[derive(clap::Subcommand)]
enum GenCommand {
    Config(GenConfigArgs),
    DefaultImageConfig(GenImageConfigArgs),
    #[command(hide = true)]
    Cli(GenCliArgs),
    Plugin(GenPluginArgs),
}

/// Print the run's configuration as JSON
#[derive(clap::Args)]
struct GenConfigArgs {
    #[command(flatten)]
    run: PrintedFlags,
    #[command(flatten)]
    nodes: NodeFlags,
}

/// Print the registries of the e2e tests' images
#[derive(clap::Args)]
struct GenImageConfigArgs {
    // Accepted, as in the original.
    #[command(flatten)]
    _cluster: ClusterFlags,
}

/// Write a Markdown page for each command
#[derive(clap::Args)]
struct GenCliArgs {
    /// Folder to write them into
    #[arg(value_name = "DIR")]
    dir: String,
}

/// Print a new plugin definition
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = examples(&[
        ("An example that works as it is", "sonobuoy gen plugin --example python"),
        (
            "From an image",
            "sonobuoy gen plugin --name disk --image registry.local/disk:v1 --type DaemonSet",
        ),
    ])
)]
struct GenPluginArgs {
    #[command(subcommand)]
    command: Option<GenPluginCommand>,
    /// Example in this language, ready for `run --local`
    #[arg(
        long,
        value_name = "WORD",
        value_parser = words(builtin::LANGUAGES),
        conflicts_with_all = [
            "image", "format", "cmd", "args", "env", "node_selector", "config_maps",
            "description", "url", "show_default_pod_spec",
        ]
    )]
    example: Option<&'static str>,
    /// Name of the plugin
    #[arg(short, long, value_name = "NAME", required_unless_present = "example")]
    name: Option<String>,
    /// Image of its container
    #[arg(short, long, value_name = "IMAGE", required_unless_present = "example")]
    image: Option<String>,
    /// Once for the cluster, or on every node
    #[arg(
        short = 't',
        long = "type",
        value_name = "WORD",
        value_enum,
        default_value_t = PluginType::Job
    )]
    plugin_type: PluginType,
    /// Format of its results: raw, junit, gojson, manual
    #[arg(short, long, value_name = "WORD", default_value = "raw")]
    format: String,
    /// Command of the container, one word at a time
    #[arg(short, long, value_name = "WORD", default_value = "./run.sh")]
    cmd: Vec<String>,
    /// Argument of the command, one word at a time
    #[arg(short, long = "arg", value_name = "WORD")]
    args: Vec<String>,
    /// Environment variable; without = it is removed
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Label of the nodes it runs on
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    node_selector: Vec<String>,
    #[command(flatten)]
    config_maps: ConfigMapFlag,
    /// What it does
    #[arg(short = 'D', long, value_name = "TEXT")]
    description: Option<String>,
    /// Where its definition comes from
    #[arg(short, long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    default_pod_spec: DefaultPodSpecFlag,
}

#[derive(clap::Subcommand)]
enum GenPluginCommand {
    /// Print the definition of the built-in e2e plugin
    E2e(GenE2eArgs),
    /// Print the definition of the built-in systemd-logs plugin
    SystemdLogs(GenBuiltInArgs),
    /// Print the definition of the built-in hello plugin
    Hello(GenBuiltInArgs),
    /// Print the definition of the built-in host-facts plugin
    HostFacts(GenBuiltInArgs),
    /// Print the definition of the built-in network plugin
    Network(GenBuiltInArgs),
    /// Print the definition of the built-in systemd-logs-native plugin
    SystemdLogsNative(GenBuiltInArgs),
}

/// The built-in e2e plugin
#[derive(clap::Args)]
struct GenE2eArgs {
    #[command(flatten)]
    run: PrintedFlags,
    #[command(flatten, next_help_heading = None)]
    config_maps: ConfigMapFlag,
}

/// A built-in plugin without tests
#[derive(clap::Args)]
struct GenBuiltInArgs {
    #[command(flatten)]
    run: PrintedFlags,
}

/// Files of a plugin
#[derive(clap::Args)]
struct ConfigMapFlag {
    /// File that the plugin finds in its configuration folder
    #[arg(long = "configmap", value_name = "FILE", value_parser = placed_text())]
    config_maps: Vec<Placed<String>>,
}

/// How often a new plugin runs.
#[derive(Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(super) enum PluginType {
    Job,
    DaemonSet,
}

impl PluginType {
    fn driver(self) -> DriverKind {
        match self {
            Self::Job => DriverKind::Job,
            Self::DaemonSet => DriverKind::DaemonSet,
        }
    }
}

/// Print the JSON Schema of plugin definitions or configuration files, for editors
#[derive(clap::Args)]
pub(crate) struct SchemaArgs {
    /// Whose schema
    #[arg(value_name = "NAME")]
    name: SchemaName,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SchemaName {
    Plugin,
    Config,
}

/// Runs the command or its subcommand; `commands` are those that the help of `gen cli` describes.
pub(crate) fn run(args: &GenArgs, level: &str, commands: fn() -> Command) -> Result<()> {
    let text = match &args.command {
        None => manifest(&args.objects, level)?,
        Some(GenCommand::Config(args)) => {
            let nodes = Some(&args.nodes);
            let request = RunRequest::new(Purpose::Print, &args.run.flags, nodes, level)?;
            request.check()?;
            format!("{}\n", request.config.to_json())
        }
        Some(GenCommand::Cli(args)) => return write_pages(args, commands()),
        Some(GenCommand::Plugin(args)) => match &args.command {
            None => new_plugin(args)?,
            Some(GenPluginCommand::E2e(args)) => {
                let request = RunRequest::new(Purpose::Print, &args.run.flags, None, level)?
                    .with_config_maps(&args.config_maps.config_maps);
                built_in(request, builtin::E2E)?
            }
            Some(GenPluginCommand::SystemdLogs(args)) => {
                built_in(args.request(level)?, builtin::SYSTEMD_LOGS)?
            }
            Some(GenPluginCommand::Hello(args)) => built_in(args.request(level)?, builtin::HELLO)?,
            Some(GenPluginCommand::HostFacts(args)) => {
                built_in(args.request(level)?, builtin::HOST_FACTS)?
            }
            Some(GenPluginCommand::Network(args)) => {
                built_in(args.request(level)?, builtin::NETWORK)?
            }
            Some(GenPluginCommand::SystemdLogsNative(args)) => {
                built_in(args.request(level)?, builtin::SYSTEMD_LOGS_NATIVE)?
            }
        },
        Some(GenCommand::DefaultImageConfig(_)) => {
            format!("{}\n", yaml::write(&image::registries()))
        }
    };
    output::data(&text);
    Ok(())
}

impl GenBuiltInArgs {
    fn request<'a>(&'a self, level: &'a str) -> Result<RunRequest<'a>> {
        RunRequest::new(Purpose::Print, &self.run.flags, None, level)
    }
}

/// The definition of a built-in plugin, changed by flags.
fn built_in(request: RunRequest, name: &str) -> Result<String> {
    let plan = request.plan(Some(name))?;
    Ok(plan.prepared()?.iter().map(Definition::to_yaml).collect())
}

/// Prints one schema.
pub(crate) fn schema(args: &SchemaArgs) -> Result<()> {
    let schema = match args.name {
        SchemaName::Config => config::Run::schema(),
        SchemaName::Plugin => plugin::schema(),
    };
    output::line(serde_json::to_string_pretty(&schema)?);
    Ok(())
}

/// Writes a Markdown page with the help of each command.
fn write_pages(args: &GenCliArgs, commands: Command) -> Result<()> {
    let dir = Path::new(if args.dir.is_empty() { "." } else { &args.dir });
    std::fs::create_dir_all(dir).at("cannot create", dir)?;
    let mut commands = vec![commands];
    while let Some(mut command) = commands.pop() {
        commands.extend(visible(&command).cloned());
        let help = command.render_help();
        let name = command.get_bin_name().unwrap_or_default();
        let file = dir.join(name.replace(' ', "_") + ".md");
        temp::write(&file, 0o666, format!("# {name}\n\n```\n{help}```\n"))
            .at("cannot write", &file)?;
    }
    Ok(())
}

fn manifest(args: &GenConfigArgs, level: &str) -> Result<String> {
    let flags = &args.run.flags;
    if let Some(file) = flags.run.file.filled() {
        return read_manifest(file);
    }
    if flags.run.status_service != StatusServiceKind::None {
        bail!(
            "only `run` can create a status service, since it keeps the credentials; leave out \
             --status-service"
        );
    }
    let plan = RunRequest::new(Purpose::Print, flags, Some(&args.nodes), level)?.plan(None)?;
    let objects = plan.manifest()?;
    if let Err(error) = plan.check_selection() {
        log::warn!("{error:#}; `run` rejects it");
    }
    Ok(format!("{}\n", deploy::to_yaml(&objects)))
}

/// A new definition: an example in a language, or from flags.
fn new_plugin(args: &GenPluginArgs) -> Result<String> {
    match args.example {
        Some(language) => example(language, args.name.filled(), args.plugin_type),
        None => Ok(format!("{}\n", definition(args)?.to_yaml())),
    }
}

/// A definition that works as it is, as text with comments.
pub(super) fn example(
    language: &str,
    name: Option<&str>,
    plugin_type: PluginType,
) -> Result<String> {
    let text = builtin::example(language, name, plugin_type.driver())
        .context("no example exists in this language")?;
    plugin::check(&plugin::read(&text)?.definition)?;
    Ok(text)
}

/// A new definition from flags.
fn definition(args: &GenPluginArgs) -> Result<Definition> {
    let driver = args.plugin_type.driver();
    let mut spec = json!({"name": "plugin", "command": args.cmd});
    if let Some(image) = args.image.filled() {
        spec["image"] = json!(image);
    }
    if !args.args.is_empty() {
        spec["args"] = json!(args.args);
    }
    let name = args.name.clone().unwrap_or_default();
    let mut definition = Definition::new(name, driver, spec);
    definition.config.result_format.clone_from(&args.format);
    definition.config.description = args.description.clone().unwrap_or_default();
    definition.config.source_url = args.url.clone().unwrap_or_default();
    let mut env = BTreeMap::new();
    for pair in &args.env {
        match pair.split_once('=') {
            Some((name, "")) => env.insert(name, json!({"name": name})),
            Some((name, value)) => env.insert(name, json!({"name": name, "value": value})),
            None => env.remove(pair.as_str()),
        };
    }
    if !env.is_empty() {
        definition.spec["env"] = env.into_values().collect();
        definition.set_env(BTreeMap::<&str, &str>::new());
    }
    let parse_label = |label: &'_ String| match label.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(invalid("node-selector", label, "write KEY=VALUE")),
    };
    let labels = args
        .node_selector
        .iter()
        .map(parse_label)
        .collect::<Result<BTreeMap<_, _>>>()?;
    let shows_default = args.default_pod_spec.show_default_pod_spec;
    definition.pod_spec =
        shows_default.then(|| plugin::default_spec(driver, names::SERVICE_ACCOUNT));
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
    for path in &args.config_maps.config_maps {
        let path = &path.value;
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
