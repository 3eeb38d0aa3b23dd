//! `sonobuoy plugin`: manages definitions installed for use by name, checks definitions without a
//! cluster, and begins new ones.

use anyhow::{Context as _, Result};

use super::flag::{Filled as _, examples, words};
use super::generate::{PluginType, example};
use super::output::{self, TableFormFlag};
use base::visible;
use kube::Object as _;
use model::config;
use model::plugin::{self, Definition, Installed, builtin};
use run::driver::local;

/// Where a built-in plugin is, in place of a file.
const BUILT_IN: &str = "built in";

/// Write, check and install plugins
#[derive(clap::Args)]
pub(crate) struct PluginArgs {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(clap::Subcommand)]
enum PluginCommand {
    /// List the installed and the built-in plugins
    List(TableFormFlag),
    /// Print an installed or built-in plugin
    Show(NamedPluginArgs),
    /// Check definitions as `run` does, without a cluster
    Check(CheckArgs),
    /// Print a plugin that works as it is, to begin with
    New(NewArgs),
    /// Install a plugin from a file, URL or standard input (-)
    Install(InstallArgs),
    /// Remove an installed plugin
    Uninstall(NamedPluginArgs),
}

/// A plugin with a name
#[derive(clap::Args)]
struct NamedPluginArgs {
    /// Name that `plugin list` prints after "Run as"
    #[arg(value_name = "NAME")]
    name: String,
}

/// Definitions to check
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Check a definition while you write it", "sonobuoy plugin check disk.yaml"),
]))]
struct CheckArgs {
    /// Definition, as `-p` of `run` takes it: file, folder, URL, name, or - for standard input
    #[arg(value_name = "PLUGIN", required = true)]
    plugins: Vec<String>,
}

/// A plugin to begin with
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("A plugin in Python, on every node", "sonobuoy plugin new python --type DaemonSet"),
    ("Run it on this machine", "sonobuoy run --local -p mine.yaml"),
]))]
struct NewArgs {
    /// Its language
    #[arg(
        value_name = "LANGUAGE",
        default_value = builtin::LANGUAGES[0],
        value_parser = words(builtin::LANGUAGES)
    )]
    language: &'static str,
    /// Name of the plugin
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,
    /// Once for the cluster, or on every node
    #[arg(
        short = 't',
        long = "type",
        value_name = "WORD",
        value_enum,
        default_value_t = PluginType::Job
    )]
    plugin_type: PluginType,
}

/// A plugin to install
#[derive(clap::Args)]
struct InstallArgs {
    /// Name to install it under
    #[arg(value_name = "SAVE-AS")]
    save_as: String,
    /// File or URL of its definition, or - for standard input
    #[arg(value_name = "SOURCE")]
    source: String,
}

/// Runs the command.
pub(crate) fn run(args: &PluginArgs) -> Result<()> {
    let text = match &args.command {
        PluginCommand::Check(args) => return check(&args.plugins),
        PluginCommand::New(args) => example(args.language, args.name.filled(), args.plugin_type)?,
        PluginCommand::List(form) => list(*form, &Installed::open()?)?,
        PluginCommand::Show(args) => show(&Installed::open()?, &args.name)?,
        PluginCommand::Install(args) => install(&Installed::open()?, &args.save_as, &args.source)?,
        PluginCommand::Uninstall(args) => {
            let path = Installed::open()?.uninstall(&args.name)?;
            format!("Uninstalled plugin file {}\n", path.display())
        }
    };
    output::data(&text);
    Ok(())
}

/// Checks the definitions of each source, and those of all together; prints a line for each that a
/// run accepts.
fn check(sources: &[String]) -> Result<()> {
    let installed = Installed::by_name();
    let folders = config::Run::standard().plugin_search_path;
    let mut definitions = Vec::new();
    let mut errors = Vec::new();
    for source in sources {
        match plugin::find(
            source,
            installed.as_ref(),
            folders.as_deref().unwrap_or_default(),
        ) {
            Ok(found) => {
                for loaded in found {
                    loaded.notes.iter().for_each(|note| log::warn!("{note}"));
                    describe_valid(source, &loaded.definition);
                    definitions.push(loaded.definition);
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if let Some(last) = errors.pop() {
        errors.iter().for_each(|error| log::error!("{error:#}"));
        return Err(last);
    }
    plugin::check_all(&definitions)
}

/// Prints that a definition is valid, and warns if it cannot run on this machine.
fn describe_valid(source: &str, definition: &Definition) {
    let (name, driver) = (definition.name(), definition.config.driver.name());
    let format = match &*definition.config.result_format {
        "" => "raw",
        format => format,
    };
    output::line(format!(
        "{}: plugin `{name}` is valid: driver {driver}, result-format {format}",
        visible::line(source)
    ));
    if let Err(error) = local::check(definition) {
        log::warn!("{error:#}");
    }
}

fn show(installed: &Installed, name: &str) -> Result<String> {
    let loaded = installed.show(name)?;
    loaded.notes.iter().for_each(|note| log::warn!("{note}"));
    Ok(format!("{}\n", loaded.definition.to_full_yaml()))
}

/// A plugin in the list.
struct ListedPlugin {
    /// What `-p` takes.
    run_as: String,
    file: String,
    definition: Definition,
}

impl ListedPlugin {
    /// The block of the original's list.
    fn block(&self) -> String {
        let Self {
            run_as,
            file,
            definition,
        } = self;
        let config = &definition.config;
        format!(
            "Run as: {run_as}\nFilename: {file}\nPlugin name (in aggregator): {}\nSource URL: \
             {}\nDescription: {}\n",
            definition.name(),
            config.source_url,
            config.description
        )
    }

    fn row(&self) -> [String; 6] {
        let config = &self.definition.config;
        [
            self.run_as.clone(),
            self.definition.name().to_owned(),
            config.driver.name().to_owned(),
            self.file.clone(),
            config.source_url.clone(),
            config.description.clone(),
        ]
    }
}

/// The installed plugins, then the built-in ones whose names are not taken by those.
fn list(form: TableFormFlag, installed: &Installed) -> Result<String> {
    let mut plugins = Vec::new();
    for (path, loaded) in installed.list()? {
        match loaded {
            Ok(loaded) => plugins.push(ListedPlugin {
                run_as: path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                file: path.display().to_string(),
                definition: loaded.definition,
            }),
            Err(error) => log::error!("{error:#}"),
        }
    }
    for name in builtin::names() {
        if !plugins.iter().any(|plugin| plugin.run_as == name) {
            plugins.push(ListedPlugin {
                run_as: name.to_owned(),
                file: BUILT_IN.to_owned(),
                definition: builtin::named(name).context("a built-in plugin")?,
            });
        }
    }
    let head = ["name", "plugin", "driver", "file", "source", "description"];
    let rows: Vec<_> = plugins.iter().map(ListedPlugin::row).collect();
    Ok(output::in_form(form.output, head, &rows, || {
        let blocks: Vec<_> = plugins.iter().map(ListedPlugin::block).collect();
        blocks.join("---\n")
    }))
}

fn install(installed: &Installed, save_as: &str, source: &str) -> Result<String> {
    let loaded = plugin::load_only(source)?;
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
