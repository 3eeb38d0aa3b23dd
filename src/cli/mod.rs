//! The command line: parses, calls one thing below, prints.
//!
//! Each command is a function of its arguments, in its own file or with related commands; some
//! return an exit code. This file finds it, and prints help and errors, which exit with 1. Data
//! goes to stdout (`output`), everything else to stderr.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Result;

use base::{logger, sys, visible};
use model::names::VERSION;
use model::verdict::code_after_error;

mod arguments;
mod candidates;
mod cluster;
mod color;
mod file;
mod flag;
mod output;
mod run_args;
mod run_flags;
mod run_plan;
mod usage;
mod verdict;

mod afterwards;
mod answers;
mod certify;
mod clusters;
mod comparison;
mod completion;
mod containers;
mod delete;
mod doctor;
mod e2e;
mod each;
#[cfg(target_os = "linux")]
mod gather;
mod gather_flags;
mod generate;
mod hello;
mod images;
mod load;
mod local;
mod logs;
mod manifest;
mod plugins;
mod query;
mod results;
mod retrieve;
mod run;
mod status;
mod transfer;
mod version;
mod wait;

use arguments::{Arguments, Subcommand};
use flag::{Error, usage_error};

#[cfg(not(target_os = "linux"))]
mod gather {
    /// Reports that the command needs Linux, which every node runs.
    pub(super) fn run(_: &super::gather_flags::GatherArgs) -> anyhow::Result<()> {
        anyhow::bail!(
            "`sonobuoy gather` reads `/proc`, `/sys` and the journal of a Linux node; this \
             machine runs {}",
            std::env::consts::OS
        )
    }
}

/// An old name of `--kubernetes-version`.
const OLD_VERSION: &str = "--kube-conformance-image-version";

/// The program in the images for Linux and for Windows.
const OWN_PATHS: [&str; 2] = ["/sonobuoy", "/sonobuoy.exe"];

/// All commands, for man pages.
pub fn commands() -> clap::Command {
    arguments::for_display()
}

/// Runs the program with its arguments, the first being its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    std::panic::set_hook(Box::new(report_bug));
    sys::withhold_inherited_files();
    let args = without_own_path(args.into_iter().collect());
    if let Some(code) = candidates::answer(&args) {
        return code;
    }
    if let Err(error) = sys::survive_file_limit() {
        log::debug!("the limit of a file's size ends this program: {error}");
    }
    // The most common first attempts.
    if let [_, word] = &args[..]
        && (word == "--version" || word == "-V")
    {
        output::line(format!("sonobuoy {VERSION}"));
        return end(Ok(0), &[]);
    }
    let table = arguments::parsed();
    let (ordered, path) = usage::ordered(&table, &args);
    if usage::asks_for_help(&args, &path) {
        return end(help(&path).map(|()| 0), &path);
    }
    let is_old = args
        .iter()
        .any(|arg| arg.to_string_lossy().starts_with(OLD_VERSION));
    match table
        .try_get_matches_from(ordered)
        .and_then(arguments::typed)
    {
        Ok(arguments) => {
            let is_debug = arguments.global.debug;
            logger::init(if is_debug {
                "debug"
            } else {
                arguments.global.level
            });
            if is_old {
                log::warn!("{OLD_VERSION} is an old name; use --kubernetes-version");
            }
            if is_debug {
                log::warn!("--debug is an old name; use --level=debug");
            }
            end(dispatch(arguments), &path)
        }
        Err(error) => {
            let mut levels = args
                .iter()
                .filter_map(|arg| arg.to_str()?.strip_prefix("--level="));
            logger::init(levels.next_back().unwrap_or("info"));
            end(
                usage::judge(&error, &path)
                    .and_then(|()| match wants_summary(&args) {
                        true => print_help(arguments::summary_at(&path), &path),
                        false => help(&path),
                    })
                    .map(|()| 0),
                &path,
            )
        }
    }
}

/// The arguments without the path of this program in its image. The image of the original has no
/// entry point, so the arguments of its containers begin with the program.
fn without_own_path(mut args: Vec<OsString>) -> Vec<OsString> {
    if args
        .get(1)
        .is_some_and(|word| OWN_PATHS.iter().any(|path| word == path))
    {
        args.remove(1);
    }
    args
}

/// Whether a call for help is one for its summary: `-h` and not `--help`.
fn wants_summary(args: &[OsString]) -> bool {
    args.iter().any(|arg| arg == "-h") && !args.iter().any(|arg| arg == "--help")
}

/// Prints the help of a command.
fn help(path: &[String]) -> Result<()> {
    print_help(arguments::command_at(path), path)
}

fn print_help(command: Result<clap::Command, String>, path: &[String]) -> Result<()> {
    match command {
        Ok(mut command) => {
            output::print(&command.render_help().to_string());
            Ok(())
        }
        Err(word) => {
            let parent: Vec<String> = path
                .iter()
                .take_while(|part| **part != word)
                .cloned()
                .collect();
            let hint = usage::similar_command(&word, &parent);
            Err(usage_error(format!(
                "no help for {word:?}: unknown command{hint}"
            )))
        }
    }
}

/// Runs the command; returns the exit code.
fn dispatch(arguments: Arguments) -> Result<u8> {
    let level = arguments.global.level;
    let ended = match arguments.command {
        // These choose their exit code.
        Subcommand::Aggregator(args) => return containers::aggregator(&args),
        Subcommand::Certify(args) => return certify::run(&args),
        Subcommand::Doctor(args) => return doctor::dispatch(*args, level),
        Subcommand::Each(args) => return each::dispatch(&args, level),
        Subcommand::Results(args) => return results::run(&args),
        Subcommand::Retrieve(args) => return retrieve::dispatch(args),
        Subcommand::Run(args) => return run::dispatch(*args, level),
        Subcommand::Status(args) => return status::dispatch(args),
        Subcommand::Wait(args) => return wait::dispatch(*args, level),
        Subcommand::Delete(args) => return delete::dispatch(args),
        // These cannot fail.
        Subcommand::Completion(args) => {
            completion::run(&args);
            return Ok(0);
        }
        Subcommand::Modes(args) => {
            e2e::modes(&args);
            return Ok(0);
        }
        Subcommand::Version(args) => {
            version::run(&args);
            return Ok(0);
        }
        // The others succeed or fail.
        Subcommand::E2e(args) => e2e::run(&args),
        Subcommand::Gather(args) => match &args.command {
            gather_flags::GatherCommand::Hello(args) => hello::run(args),
            _ => gather::run(&args),
        },
        Subcommand::Gen(args) => generate::run(&args, level, arguments::for_display),
        Subcommand::Get(args) => logs::get(&args),
        Subcommand::Help(args) => help(&args.command),
        Subcommand::Images(args) => images::run(&args),
        Subcommand::Logs(args) => logs::run(&args),
        Subcommand::Plugin(args) => plugins::run(&args),
        Subcommand::PostProcess(args) => containers::post_process(&args),
        Subcommand::Query(args) => query::run(&args),
        Subcommand::Schema(args) => generate::schema(&args),
        Subcommand::Splat(args) => containers::splat(&args),
        Subcommand::Verify(args) => results::verify(&args),
        Subcommand::Worker(args) => containers::worker(&args),
    };
    ended.map(|()| 0)
}

/// The exit code of the program. Reports an error, and output that could not be written.
fn end(outcome: Result<u8>, path: &[String]) -> ExitCode {
    let code = outcome.unwrap_or_else(|error| end_with_error(&error, path));
    let (code, failure) = output::exit_code(code);
    if let Some(message) = failure {
        report_error(&message, None);
    }
    code.into()
}

/// Reports the error of a command, with the usage of the command if the command line is invalid;
/// returns the exit code.
fn end_with_error(error: &anyhow::Error, path: &[String]) -> u8 {
    let special = error.downcast_ref();
    if let Some(Error::Interrupted(message)) = special {
        log::warn!("{message}");
        return output::INTERRUPTED;
    }
    if output::is_interrupted() {
        log::warn!("interrupted: {error:#}");
        return output::INTERRUPTED;
    }
    let is_usage = matches!(special, Some(Error::Usage(_)));
    let mut message = format!("{error:#}");
    let of_cluster = || {
        error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<kube::Error>())
    };
    if of_cluster().any(kube::Error::is_unreached) {
        message.push_str("; check the address in the kubeconfig, VPN, proxy and firewall");
    }
    let is_run = path.first().is_some_and(|command| command == "run");
    if is_run && of_cluster().any(kube::Error::is_unconfigured) {
        message.push_str("; `run --local` needs no cluster");
    }
    let usage = is_usage.then(|| usage_of(path));
    report_error(&message, usage.as_deref());
    match special {
        Some(Error::Judged(_, exit)) => code_after_error(verdict::ending(exit.clone())),
        _ => code_after_error(0),
    }
}

/// The usage of a command below an error in its command line.
fn usage_of(path: &[String]) -> String {
    let Ok(mut command) = arguments::command_at(path) else {
        return String::new();
    };
    let (line, name) = (command.render_usage(), arguments::name(path));
    format!("\n{line}\n\nRun `{name} --help` for all flags.\n\n")
}

/// Reports an error once: after `Error:` on a terminal, else in the log; after `Error:` in any case
/// if `usage` follows.
fn report_error(message: &str, usage: Option<&str>) {
    let is_terminal = std::io::stderr().is_terminal();
    if is_terminal || usage.is_some() {
        output::error(&format!("Error: {message}\n{}", usage.unwrap_or_default()));
    }
    if !is_terminal {
        // Scripts of the original look for it in the log.
        log::error!("{message}");
    }
}

/// Reports a panic in one line, since it is a bug of this program.
fn report_bug(panic: &std::panic::PanicHookInfo) {
    // The YAML parser panics on a few texts; `yaml` converts that to an error.
    if panic
        .location()
        .is_some_and(|place| place.file().contains("libyaml-safer"))
    {
        return;
    }
    let reason = panic.payload();
    let reason = (reason.downcast_ref::<&str>().copied())
        .or_else(|| reason.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given");
    let place = panic
        .location()
        .map(|place| format!(" at {}:{}", place.file(), place.line()));
    let (place, reason) = (place.unwrap_or_default(), visible::line(reason));
    output::error(&format!(
        "sonobuoy: this is a bug, please report it: {reason}{place} ({VERSION})\n"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_table_is_consistent() {
        arguments::parsed().debug_assert();
    }

    /// All words in the table, and some others.
    fn pool(command: &clap::Command, words: &mut Vec<String>) {
        words.push(command.get_name().to_owned());
        for arg in command.get_arguments() {
            words.extend(arg.get_long().map(|long| format!("--{long}")));
            words.extend(arg.get_short().map(|short| format!("-{short}")));
        }
        command
            .get_subcommands()
            .for_each(|inner| pool(inner, words));
    }

    #[test]
    fn parser_never_panics() {
        let table = arguments::parsed();
        let mut words = Vec::new();
        pool(&table, &mut words);
        words.extend(
            [
                "", "-", "--", "=", "-=", "--=", "--wait=", "-v=", "x", "7", "-xv", "v1.2", "--é",
                "-é=", "\u{fffd}",
            ]
            .map(str::to_owned),
        );
        // A fixed seed, so that failures are reproducible.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |bound: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed >> 33).unwrap() % bound
        };
        let mut right = 0;
        for _ in 0..300 {
            let mut line = vec![OsString::from("sonobuoy")];
            for _ in 0..next(6) {
                let (one, other) = (&words[next(words.len())], &words[next(words.len())]);
                line.push(if next(4) == 0 {
                    format!("{one}={other}").into()
                } else {
                    one.into()
                });
            }
            let (ordered, path) = usage::ordered(&table, &line);
            assert_eq!(ordered.len(), line.len(), "{line:?}");
            match table.clone().try_get_matches_from(ordered) {
                Ok(_) => right += 1,
                Err(error) => match usage::judge(&error, &path) {
                    Ok(()) => right += 1,
                    Err(error) => {
                        let message = error.to_string();
                        assert!(
                            !message.is_empty() && !message.contains('\n'),
                            "{line:?}: {message:?}"
                        );
                    }
                },
            }
        }
        assert!(right > 10, "only {right} lines were right");
    }
}
