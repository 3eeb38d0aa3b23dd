//! Command lines before and after the parser: flags in any place, errors in this program's words,
//! and suggestions for unknown commands, flags and arguments.
//!
//! Owns the wording of these errors, and the words that users know from other programs; `cli`
//! prints errors with the usage of the command. Hidden commands and flags are never suggested: they
//! are for machines.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::arguments::{self, name};
use super::flag::{shown_flags, usage_error, visible};
use base::near::{self, question};
use model::plugin::builtin;

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
const VERSION: &str = "; `sonobuoy --version` prints the version";
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

/// The arguments with the command's words first, so that any flag may precede them, as in the
/// original; and those words.
pub(crate) fn ordered(table: &Command, args: &[OsString]) -> (Vec<OsString>, Vec<String>) {
    let mut command = table;
    let mut path = Vec::new();
    let mut words = args.iter();
    let (mut front, mut rest) = (Vec::from_iter(words.next()), Vec::new());
    while let Some(arg) = words.next() {
        let word = arg.to_string_lossy();
        if word.len() > 1 && word.starts_with('-') && word != "--" {
            rest.push(arg);
            if awaited(table, command, &word).is_some() {
                rest.extend(words.next());
            }
        } else if let Some(inner) = command.find_subcommand(&*word) {
            path.push(inner.get_name().to_owned());
            front.push(arg);
            command = inner;
        } else {
            rest.push(arg);
            break;
        }
    }
    (
        front
            .into_iter()
            .chain(rest)
            .chain(words)
            .cloned()
            .collect(),
        path,
    )
}

/// The flag of a word, or the last one of `-xyz`, and the offset of its value in the word, if any.
/// Flags may precede their command: any that the command lacks is looked up in its subcommands,
/// then in all commands.
pub(crate) fn flag<'t>(
    table: &'t Command,
    command: &'t Command,
    word: &str,
) -> Option<(&'t Arg, Option<usize>)> {
    let find =
        |wanted: &dyn Fn(&Arg) -> bool| below(command, wanted).or_else(|| below(table, wanted));
    if let Some(long) = word.strip_prefix("--") {
        let end = long.find('=').unwrap_or(long.len());
        let name = &long[..end];
        let is_alias = |arg: &Arg| {
            arg.get_all_aliases()
                .is_some_and(|names| names.contains(&name))
        };
        let flag = find(&|arg| arg.get_long() == Some(name) || is_alias(arg))?;
        return Some((flag, (end < long.len()).then_some(end + 3)));
    }
    let mut last = None;
    for (at, short) in word.char_indices().skip(1) {
        let flag = find(&|arg| arg.get_short() == Some(short))?;
        last = Some((flag, None));
        if flag.get_action().takes_values() {
            let value = at + short.len_utf8();
            let equals = usize::from(word[value..].starts_with('='));
            return Some((flag, (value < word.len()).then_some(value + equals)));
        }
    }
    last
}

/// The flag whose value is the next word.
pub(crate) fn awaited<'t>(table: &'t Command, command: &'t Command, word: &str) -> Option<&'t Arg> {
    let (flag, value) = flag(table, command, word)?;
    (value.is_none() && flag.get_action().takes_values() && !flag.is_require_equals_set())
        .then_some(flag)
}

/// The first such argument of a command or of those below it.
pub(crate) fn below<'t>(command: &'t Command, wanted: &dyn Fn(&Arg) -> bool) -> Option<&'t Arg> {
    let direct = command.get_arguments().find(|arg| wanted(arg));
    direct.or_else(|| {
        command
            .get_subcommands()
            .find_map(|inner| below(inner, wanted))
    })
}

/// Converts a parser error; `Ok` if it only asks for help.
pub(crate) fn judge(wrong: &clap::Error, path: &[String]) -> anyhow::Result<()> {
    let context = |kind| match wrong.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let first = |usage: &str| {
        let word = usage
            .split(['[', ' ', '='])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        word.trim_matches(['<', '>', ']']).to_owned()
    };
    let argument = context(ContextKind::InvalidArg);
    let flag = &*first(&argument);
    let value = context(ContextKind::InvalidValue);
    let message = match wrong.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingSubcommand => return Ok(()),
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand);
            format!(
                "unknown command {word:?} for {:?}{}",
                name(path),
                similar_command(&word, path)
            )
        }
        ErrorKind::UnknownArgument if argument.starts_with("--") => {
            format!("unknown flag: {flag}{}", similar_flag(flag, path))
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            format!(
                "unknown shorthand flag: {argument}{}",
                other_case(&argument, path)
            )
        }
        ErrorKind::UnknownArgument if path.is_empty() => {
            format!(
                "unknown command {argument:?} for \"sonobuoy\"{}",
                similar_command(&argument, path)
            )
        }
        ErrorKind::UnknownArgument => {
            format!(
                "{:?} takes no argument {argument:?}{}",
                name(path),
                meaning_of(&argument, path)
            )
        }
        ErrorKind::ArgumentConflict => match context(ContextKind::InvalidSubcommand) {
            word if word.is_empty() => {
                let other = first(&context(ContextKind::PriorArg));
                format!("{flag} and {other} cannot be used together; leave one out")
            }
            word => format!("{:?} takes no argument {word:?}", name(path)),
        },
        ErrorKind::InvalidValue if value.is_empty() => {
            let hint = if ["--v", "-v"].contains(&flag) {
                VERSION
            } else {
                ""
            };
            format!("flag needs an argument: {flag}{hint}")
        }
        ErrorKind::InvalidValue => {
            let choices = context(ContextKind::ValidValue);
            let hint = near::hint(&value, choices.split(' '));
            format!(
                "invalid argument {value:?} for {flag:?}: it must be one of {}{hint}",
                choices.replace(' ', ", ")
            )
        }
        ErrorKind::ValueValidation => {
            let cause = std::error::Error::source(wrong)
                .map(ToString::to_string)
                .unwrap_or_default();
            // Some causes name the value themselves.
            match cause.starts_with('`') {
                true => format!("{flag}: {cause}"),
                false => format!("invalid argument {value:?} for {flag:?}: {cause}"),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            format!("missing: {argument}{}", example_of_missing(path))
        }
        // The parser's message without its surroundings.
        _ => wrong
            .to_string()
            .trim_start_matches("error: ")
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    };
    Err(usage_error(message))
}

/// The commands that `word` may mean below `path`; others are given in full.
pub(crate) fn similar_command(word: &str, path: &[String]) -> String {
    let table = arguments::for_display();
    let lower = word.to_lowercase();
    let mut parent = &table;
    for part in path {
        parent = parent.find_subcommand(part).unwrap_or(parent);
    }
    let siblings = near::similar(word, visible(parent).map(Command::get_name));
    let prefix = path
        .iter()
        .map(|part| format!("{part} "))
        .collect::<String>();
    if !siblings.is_empty() {
        return question(siblings.into_iter().map(|name| format!("{prefix}{name}")));
    }
    let full_name = format!("{prefix}{lower}");
    let exact = COMMANDS
        .iter()
        .filter(|(other, _)| *other == full_name)
        .map(|(_, name)| (*name).to_owned());
    let elsewhere = visible(&table).flat_map(|group| {
        let same = visible(group).filter(|inner| inner.get_name() == lower);
        same.map(|_| format!("{} {lower}", group.get_name()))
    });
    question(exact.chain(elsewhere).take(3))
}

/// An example of the missing argument.
fn example_of_missing(path: &[String]) -> &'static str {
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
fn similar_flag(flag: &str, path: &[String]) -> String {
    let word = flag.trim_start_matches('-').to_lowercase();
    if word == "version" {
        return VERSION.into();
    }
    let command = command_at(path);
    let longs: Vec<&str> = shown_flags(&command).filter_map(Arg::get_long).collect();
    let others: Vec<_> = FLAGS
        .iter()
        .filter(|(_, name)| longs.contains(name))
        .collect();
    let candidates = longs
        .iter()
        .chain(others.iter().map(|(other, _)| other))
        .copied();
    let suggestions = near::similar(&word, candidates).into_iter().map(|found| {
        let other = others.iter().find(|(other, _)| *other == found);
        format!("--{}", other.map_or(found, |(_, name)| name))
    });
    question(suggestions)
}

/// The same letter in the case that the command has.
fn other_case(flag: &str, path: &[String]) -> String {
    let Some(letter) = flag.chars().nth(1) else {
        return String::new();
    };
    if letter == 'V' {
        return VERSION.into();
    }
    let command = command_at(path);
    let shorts = shown_flags(&command).filter_map(Arg::get_short);
    question(
        shorts
            .filter(|short| short.eq_ignore_ascii_case(&letter))
            .map(|short| format!("-{short}")),
    )
}

fn command_at(path: &[String]) -> Command {
    arguments::command_at(path).unwrap_or_default()
}

/// The probable meaning of an unexpected argument.
fn meaning_of(word: &str, path: &[String]) -> String {
    let command = command_at(path);
    let has = |name: &str| {
        command
            .get_arguments()
            .any(|arg| arg.get_long() == Some(name))
    };
    let number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    if number && has("wait") {
        return question([format!("--wait={word}")]);
    }
    let definition = [".yaml", ".yml"]
        .iter()
        .any(|ending| word.to_lowercase().ends_with(ending));
    if has("plugin") && (definition || builtin::DEFAULT.contains(&word) || Path::new(word).exists())
    {
        return question([format!("-p {word}")]);
    }
    if matches!(command.get_name(), "status" | "logs" | "delete" | "wait") {
        return format!("; a namespace is named by `-n {word}`");
    }
    String::new()
}
