//! Errors of command lines: invalid flags, missing arguments, flags that exclude each other.
//!
//! Owns the wording of these errors; `cli` prints them with the usage of the command.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

pub(crate) use super::mistake::{Error, error};
use super::suggest;
use super::table::name;
use base::near;

/// The arguments after the program's name, as far as valid.
pub(crate) fn words(args: &[OsString]) -> Vec<String> {
    args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// The log level of a command line that could not be parsed.
pub(crate) fn level(args: &[OsString]) -> String {
    let words = words(args);
    let mut level = "info".to_owned();
    for (index, word) in words.iter().enumerate() {
        if let Some(value) = word.strip_prefix("--level=") {
            level = value.to_owned();
        } else if word == "--level" {
            level = words.get(index + 1).cloned().unwrap_or(level);
        }
    }
    level
}

/// The arguments with the command's words first, so that any flag may precede them, as in the original; and those
/// words.
pub(crate) fn ordered(table: &Command, args: &[OsString]) -> (Vec<OsString>, Vec<String>) {
    let words = words(args);
    let mut command = table;
    let (mut path, mut places) = (Vec::new(), Vec::new());
    let mut index = 0;
    while let Some(word) = words.get(index) {
        let mut takes_next = false;
        if word == "--" {
            break;
        } else if let Some(long) = word.strip_prefix("--") {
            takes_next =
                flag(table, command, &|arg| arg.get_long() == Some(long)).is_some_and(needs_next_word);
        } else if word.starts_with('-') && word.chars().count() == 2 {
            let short = word.chars().nth(1);
            takes_next = flag(table, command, &|arg| arg.get_short() == short).is_some_and(needs_next_word);
        } else if !word.starts_with('-') {
            let Some(inner) = command.find_subcommand(word) else { break };
            path.push(inner.get_name().to_owned());
            places.push(index + 1);
            command = inner;
        }
        index += 1 + usize::from(takes_next);
    }
    let front = places.iter().map(|place| &args[*place]);
    let rest =
        args.iter().enumerate().skip(1).filter(|(place, _)| !places.contains(place)).map(|(_, arg)| arg);
    (args.iter().take(1).chain(front).chain(rest).cloned().collect(), path)
}

/// The flag of this command, else of a subcommand, else of any: flags may precede their command.
pub(crate) fn flag<'t>(
    table: &'t Command,
    command: &'t Command,
    wanted: &dyn Fn(&Arg) -> bool,
) -> Option<&'t Arg> {
    below(command, wanted).or_else(|| below(table, wanted))
}

fn below<'t>(command: &'t Command, wanted: &dyn Fn(&Arg) -> bool) -> Option<&'t Arg> {
    let own = command.get_arguments().find(|arg| wanted(arg));
    own.or_else(|| command.get_subcommands().find_map(|inner| below(inner, wanted)))
}

/// Whether the next word is the value of this flag.
pub(crate) fn needs_next_word(flag: &Arg) -> bool {
    flag.get_action().takes_values() && !flag.is_require_equals_set()
}

/// Converts a parser error; `None` if help was requested.
pub(crate) fn judge(error: &clap::Error, path: &[String]) -> anyhow::Result<()> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(" ")),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let flag = argument.split(['[', ' ', '=']).next().filter(|flag| !flag.is_empty());
    let flag = flag.unwrap_or_else(|| argument.trim_matches(['[', ']', '<', '>', '.']));
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let message = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return Ok(()),
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {word:?} for {:?}{}", name(path), suggest::command(&word, path))
        }
        ErrorKind::UnknownArgument if argument.starts_with("--") => {
            format!("unknown flag: {flag}{}", suggest::flag(flag, path))
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            format!("unknown shorthand flag: {argument}{}", suggest::short(&argument, path))
        }
        ErrorKind::UnknownArgument if path.is_empty() => {
            format!("unknown command {argument:?} for \"sonobuoy\"{}", suggest::command(&argument, path))
        }
        ErrorKind::UnknownArgument => {
            format!("{:?} takes no argument {argument:?}{}", name(path), suggest::argument(&argument, path))
        }
        ErrorKind::ArgumentConflict => match context(ContextKind::InvalidSubcommand) {
            Some(word) => format!("{:?} takes no argument {word:?}", name(path)),
            None => {
                let other = context(ContextKind::PriorArg).unwrap_or_default();
                let other = other.split(['[', ' ']).next().unwrap_or_default();
                format!("{flag} and {other} cannot be used together; leave one out")
            }
        },
        ErrorKind::InvalidValue if value.is_empty() => {
            let hint =
                if flag == "--v" || flag == "-v" { "; `sonobuoy --version` prints the version" } else { "" };
            format!("flag needs an argument: {flag}{hint}")
        }
        ErrorKind::InvalidValue => {
            let known = context(ContextKind::ValidValue).unwrap_or_default();
            let known: Vec<&str> = known.split(' ').filter(|word| !word.is_empty()).collect();
            let listed = if known.is_empty() {
                String::new()
            } else {
                format!(": it must be one of {}", known.join(", "))
            };
            format!("invalid argument {value:?} for {flag:?}{listed}{}", near::hint(&value, known))
        }
        ErrorKind::ValueValidation => {
            let cause =
                std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
            format!("invalid argument {value:?} for {flag:?}{cause}")
        }
        ErrorKind::MissingRequiredArgument => format!("missing: {argument}{}", suggest::missing(path)),
        _ => first_line(&error.to_string()),
    };
    Err(self::error(message))
}

/// The parser's message without its surroundings.
fn first_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.lines().next().unwrap_or_default().to_owned()
}
