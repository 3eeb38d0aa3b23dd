//! Suggests the intended command, flag or argument for an unknown one.
//!
//! Owns the words that users know from other programs. Hidden commands and flags are never suggested: they are for
//! machines.

use std::path::Path;

use clap::{Arg, Command};

use super::table;
use crate::plugin::builtin;
use base::near::{self, asked};

/// Commands of other programs, with the equivalent here.
const COMMANDS: &[(&str, &str)] = &[
    ("start", "run"),
    ("create", "run"),
    ("stop", "delete"),
    ("remove", "delete"),
    ("rm", "delete"),
    ("clean", "delete"),
    ("cleanup", "delete"),
    ("fetch", "retrieve"),
    ("copy", "retrieve"),
    ("cp", "retrieve"),
    ("report", "results"),
    ("generate", "gen"),
    ("template", "gen"),
    ("ps", "status"),
    ("agent", "worker"),
    ("watch", "status --watch"),
    ("ls", "plugin list"),
    ("tests", "e2e"),
    ("snapshot", "query"),
    ("pods", "get pod"),
    ("plugin remove", "plugin uninstall"),
    ("plugin rm", "plugin uninstall"),
    ("plugin delete", "plugin uninstall"),
    ("plugin add", "plugin install"),
    ("plugin ls", "plugin list"),
    ("images save", "images download"),
    ("images rm", "images delete"),
    ("gen manifest", "gen"),
];

/// The hint for a version that is requested in another way.
pub(super) const VERSION: &str = "; `sonobuoy --version` prints the version";
/// Flags of other programs, with the equivalent here.
const FLAGS: &[(&str, &str)] = &[
    ("ns", "namespace"),
    ("verbose", "level"),
    ("log-level", "level"),
    ("loglevel", "level"),
    ("quiet", "level"),
    ("silent", "level"),
    ("cluster", "context"),
    ("image", "plugin-image"),
    ("env", "plugin-env"),
    ("focus", "e2e-focus"),
    ("skip", "e2e-skip"),
    ("follow", "watch"),
    ("nodes", "local-nodes"),
    ("dir", "retrieve"),
    ("progress", "output"),
    ("format", "output"),
];

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set())
}

/// The commands that `word` may mean below `path`; others are given in full.
pub(super) fn command(word: &str, path: &[String]) -> String {
    let table = table::shown();
    let lower = word.to_lowercase();
    let here = path.iter().fold(&table, |here, part| here.find_subcommand(part).unwrap_or(here));
    let near = near::near(word, visible(here).map(Command::get_name));
    let prefix = path.iter().map(|part| format!("{part} ")).collect::<String>();
    if !near.is_empty() {
        return asked(near.into_iter().map(|name| format!("{prefix}{name}")));
    }
    let whole = format!("{prefix}{lower}");
    let exact = COMMANDS.iter().filter(|(other, _)| *other == whole).map(|(_, name)| (*name).to_owned());
    let elsewhere = visible(&table).flat_map(|group| {
        let same = visible(group).filter(|inner| inner.get_name() == lower);
        same.map(|_| format!("{} {lower}", group.get_name()))
    });
    asked(exact.chain(elsewhere).take(3))
}

/// An example of the missing argument.
pub(super) fn missing(path: &[String]) -> &'static str {
    match path.join(" ").as_str() {
        "plugin install" => {
            "; write a name and where the definition is, as in `plugin install disk disk.yaml`"
        }
        "gen plugin" => "; or `--example shell` for one that works as it is",
        "results" => "; `results latest` takes the newest in this folder",
        "results diff" => "; write the earlier archive and the later one",
        _ => "",
    }
}

/// The flags of the command that `flag`, with its dashes, may mean.
pub(super) fn flag(flag: &str, path: &[String]) -> String {
    let word = flag.trim_start_matches('-').to_lowercase();
    if word == "version" {
        return VERSION.into();
    }
    let command = command_at(path);
    let longs: Vec<&str> = shown_flags(&command).filter_map(Arg::get_long).collect();
    let others: Vec<_> = FLAGS.iter().filter(|(_, name)| longs.contains(name)).collect();
    let known = longs.iter().chain(others.iter().map(|(other, _)| other)).copied();
    let meant = near::near(&word, known).into_iter().map(|found| {
        let other = others.iter().find(|(other, _)| *other == found);
        format!("--{}", other.map_or(found, |(_, name)| name))
    });
    asked(meant)
}

/// The same letter in the case that the command has.
pub(super) fn short(flag: &str, path: &[String]) -> String {
    let Some(letter) = flag.chars().nth(1) else { return String::new() };
    if letter == 'V' {
        return VERSION.into();
    }
    let command = command_at(path);
    let shorts = shown_flags(&command).filter_map(Arg::get_short);
    asked(shorts.filter(|short| short.eq_ignore_ascii_case(&letter)).map(|short| format!("-{short}")))
}

fn command_at(path: &[String]) -> Command {
    table::command_at(path).unwrap_or_default()
}

fn shown_flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

/// The probable meaning of an unexpected argument.
pub(super) fn argument(word: &str, path: &[String]) -> String {
    let command = command_at(path);
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if number && has("wait") {
        return asked([format!("--wait={word}")]);
    }
    let definition = [".yaml", ".yml"].iter().any(|ending| word.to_lowercase().ends_with(ending));
    if has("plugin") && (definition || builtin::DEFAULT.contains(&word) || Path::new(word).exists()) {
        return asked([format!("-p {word}")]);
    }
    if matches!(command.get_name(), "status" | "logs" | "delete" | "wait") {
        return format!("; a namespace is named by `-n {word}`");
    }
    String::new()
}
