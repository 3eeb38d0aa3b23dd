//! The command line: parses, calls one thing below, prints.
//!
//! One file per command, with `run(matches)`. This file finds the command, prints help and errors, and decides exit
//! codes: 0, or 1 for any error; a command with further codes returns them itself. Data goes to stdout (`output`),
//! everything else to stderr.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;

use clap::ArgMatches;

use crate::names::VERSION;
use base::{logger, sys, visible};

mod check;
mod cluster;
mod flag;
mod mistake;
mod output;
mod overrides;
mod pages;
mod run_flag;
mod table;
mod transfers;
mod upload;
mod usage;

mod afterwards;
mod aggregator;
mod certify;
mod choice;
mod complete;
mod completion;
mod delete;
mod doctor;
mod e2e;
mod fetching;
#[cfg(target_os = "linux")]
mod gather;
#[cfg(not(target_os = "linux"))]
#[path = "gather_elsewhere.rs"]
mod gather;
mod generate;
mod get;
mod image_call;
mod images;
mod kit;
mod local;
mod logs;
mod man;
mod manifest;
mod manual;
mod markdown;
mod modes;
mod plugin;
mod post_process;
mod query;
mod report;
mod request;
mod results;
mod retrieve;
mod run;
mod shown;
mod splat;
mod status;
mod status_table;
mod suggest;
mod verify;
mod verify_images;
mod version;
mod wait;
mod waiting;
mod worker;

/// Runs the program with its arguments, the first being its name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    std::panic::set_hook(Box::new(report_bug));
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some((call, words)) = args.get(1..).and_then(<[OsString]>::split_first)
        && complete::is_call(call)
    {
        return complete::run(call, words);
    }
    if let Err(error) = sys::survive_file_limit() {
        log::debug!("the limit of a file's size ends this program: {error}");
    }
    // The most common first attempts.
    if let [_, word] = args.as_slice()
        && (word == "--version" || word == "-V")
    {
        let printed = output::print(&format!("sonobuoy {VERSION}\n"));
        return end(printed.map(|()| ExitCode::SUCCESS), &[]);
    }
    let table = table::parsed();
    let (ordered, path) = usage::ordered(&table, &args);
    match table.try_get_matches_from(ordered) {
        Ok(matches) => {
            logger::init(level(&matches));
            end(obey(&matches, &path), &path)
        }
        Err(error) => {
            logger::init(&usage::level(&args));
            end(usage::judge(&error, &path).and_then(|()| help(&path)), &path)
        }
    }
}

/// Prints the help of a command.
fn help(path: &[String]) -> anyhow::Result<ExitCode> {
    match table::command_at(table::shown(), path) {
        Ok(mut command) => {
            let mut text = command.render_help().to_string();
            let examples = manual::examples(&table::name(path));
            if !examples.is_empty() {
                text.push_str("\nExamples:\n");
            }
            for (call, meaning) in examples {
                text.push_str(&format!("  {meaning}\n    {call}\n"));
            }
            output::print(&text)?;
        }
        Err(word) => {
            let parent: Vec<String> = path.iter().take_while(|part| **part != word).cloned().collect();
            let hint = suggest::command(&word, &parent);
            return Err(usage::error(format!("no help for {word:?}: there is no such command{hint}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn level(matches: &ArgMatches) -> &str {
    if matches.get_flag("debug") {
        "debug"
    } else {
        matches.get_one::<String>("level").map_or("info", |level| level)
    }
}

fn obey(matches: &ArgMatches, path: &[String]) -> anyhow::Result<ExitCode> {
    if matches.get_flag("debug") {
        log::warn!("--debug is an old name; use --level=debug");
    }
    if table::GROUPS.iter().any(|group| *group == path) {
        return help(path);
    }
    check::flags(matches)?;
    let Some((name, matches)) = matches.subcommand() else { return help(&[]) };
    match name {
        "aggregator" => aggregator::run(matches),
        "certify" => certify::run(matches),
        "completion" if !matches.contains_id("shell") => help(path),
        "completion" => completion::run(matches),
        "delete" => delete::run(matches),
        "doctor" => doctor::run(matches),
        "e2e" => e2e::run(matches),
        "gather" => gather::run(matches),
        "gen" => match matches.subcommand() {
            Some(("cli", matches)) => markdown::run(matches),
            _ => generate::run(matches),
        },
        "get" => get::run(matches),
        "help" => help(&matches.get_many("command").unwrap_or_default().cloned().collect::<Vec<_>>()),
        "images" => images::run(matches),
        "logs" => logs::run(matches),
        "man" => man::run(matches),
        "modes" => modes::run(matches),
        "plugin" => plugin::run(matches),
        "post-process" => post_process::run(matches),
        "query" => query::run(matches),
        "results" => results::run(matches),
        "retrieve" => retrieve::run(matches),
        "run" => run::run(matches),
        "splat" => splat::run(matches),
        "status" => status::run(matches),
        "verify" => verify::run(matches),
        "version" => version::run(matches),
        "wait" => wait::run(matches),
        "worker" => worker::run(matches),
        _ => help(&[]),
    }
}

/// Ends the program and reports an error once: after `Error:` on a terminal, else in the log; with the usage of the
/// command if the command line is invalid.
fn end(outcome: anyhow::Result<ExitCode>, path: &[String]) -> ExitCode {
    let error = match outcome {
        Ok(code) => return code,
        Err(error) => error,
    };
    if output::left(&error) {
        return ExitCode::SUCCESS;
    }
    if let Some(interrupted) = error.downcast_ref::<shown::Interrupted>() {
        log::warn!("{interrupted}");
        return ExitCode::from(shown::INTERRUPTED);
    }
    let mut message = format!("{error:#}");
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(base::kube::Error::is_unreached) {
        message.push_str("; check the address in the kubeconfig, VPN, proxy and firewall");
    }
    let is_terminal = std::io::stderr().is_terminal();
    let is_usage = error.is::<usage::Error>();
    if is_terminal || is_usage {
        let mut text = format!("Error: {message}\n");
        if is_usage {
            let usage = table::command_at(table::shown(), path)
                .map_or_else(|_| String::new(), |mut command| command.render_usage().to_string());
            let name = table::name(path);
            text.push_str(&format!("\n{usage}\n\nRun `{name} --help` for all flags.\n\n"));
        }
        let text = visible::without_codes(&text);
        let _ = std::io::stderr().write_all(visible::text(&text).as_bytes());
    }
    if !is_terminal {
        // Scripts of the original look for it in the log.
        log::error!("{message}");
    }
    ExitCode::FAILURE
}

/// Reports a panic in one line, since it is a bug of this program; a closed stdout is not.
fn report_bug(panic: &std::panic::PanicHookInfo) {
    // The YAML parser panics on a few texts; `yaml` converts that to an error.
    if panic.location().is_some_and(|place| place.file().contains("libyaml-safer")) {
        return;
    }
    let reason = panic.payload();
    let reason = (reason.downcast_ref::<&str>().copied())
        .or_else(|| reason.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given");
    if reason.starts_with("failed printing to stdout") && reason.contains("Broken pipe") {
        std::process::exit(0);
    }
    let place =
        panic.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
    let _ = std::io::stderr().write_all(
        format!(
            "sonobuoy: this is a bug, please report it: {}{place} ({})\n",
            visible::line(reason),
            VERSION
        )
        .as_bytes(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_together() {
        table::parsed().debug_assert();
        table::shown().debug_assert();
    }

    /// All words in the table, and some others.
    fn pool(command: &clap::Command, words: &mut Vec<String>) {
        words.push(command.get_name().to_owned());
        for arg in command.get_arguments() {
            words.extend(arg.get_long().map(|long| format!("--{long}")));
            words.extend(arg.get_short().map(|short| format!("-{short}")));
        }
        command.get_subcommands().for_each(|inner| pool(inner, words));
    }

    #[test]
    fn no_line_of_words_makes_the_parser_panic() {
        let table = table::parsed();
        let mut words = Vec::new();
        pool(&table, &mut words);
        words.extend(
            [
                "", "-", "--", "=", "-=", "--=", "--wait=", "-v=", "x", "7", "-xv", "v1.2", "--é", "-é=",
                "\u{fffd}",
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
                line.push(if next(4) == 0 { format!("{one}={other}").into() } else { one.into() });
            }
            let (ordered, path) = usage::ordered(&table, &line);
            assert_eq!(ordered.len(), line.len(), "{line:?}");
            match table.clone().try_get_matches_from(ordered) {
                Ok(matches) => {
                    right += 1;
                    // Accepted or rejected, the call must return.
                    let _ = check::flags(&matches);
                }
                Err(error) => {
                    if let Err(error) = usage::judge(&error, &path) {
                        let message = error.to_string();
                        assert!(!message.is_empty() && !message.contains('\n'), "{line:?}: {message:?}");
                    }
                }
            }
        }
        assert!(right > 10, "only {right} lines were right");
    }
}
