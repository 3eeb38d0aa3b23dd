//! Command lines before and after the parser: flags in any place, and errors in this program's words.
//!
//! Owns the wording of these errors; `cli` prints them with the usage of the command.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::table::name;
use super::{error, suggest};
use base::near;

/// The arguments with the command's words first, so that any flag may precede them, as in the original; and those
/// words.
pub(crate) fn ordered(table: &Command, args: &[OsString]) -> (Vec<OsString>, Vec<String>) {
    let mut command = table;
    let mut path = Vec::new();
    let (mut front, mut rest) = (args.iter().take(1).collect::<Vec<_>>(), Vec::new());
    let mut words = args.iter().skip(1);
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
    (front.into_iter().chain(rest).chain(words).cloned().collect(), path)
}

/// The flag of a word, or the last one of `-xyz`, and the offset of its value in the word, if any. Flags may precede
/// their command: any that the command lacks is looked up in its subcommands, then in all commands.
pub(crate) fn flag<'t>(
    table: &'t Command,
    command: &'t Command,
    word: &str,
) -> Option<(&'t Arg, Option<usize>)> {
    let find = |wanted: &dyn Fn(&Arg) -> bool| below(command, wanted).or_else(|| below(table, wanted));
    if let Some(long) = word.strip_prefix("--") {
        let end = long.find('=').unwrap_or(long.len());
        let flag = find(&|arg| arg.get_long() == Some(&long[..end]))?;
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
    (value.is_none() && flag.get_action().takes_values() && !flag.is_require_equals_set()).then_some(flag)
}

/// The first such argument of a command or of those below it.
pub(crate) fn below<'t>(command: &'t Command, wanted: &dyn Fn(&Arg) -> bool) -> Option<&'t Arg> {
    let own = command.get_arguments().find(|arg| wanted(arg));
    own.or_else(|| command.get_subcommands().find_map(|inner| below(inner, wanted)))
}

/// Converts a parser error; `Ok` if it only asks for help.
pub(crate) fn judge(wrong: &clap::Error, path: &[String]) -> anyhow::Result<()> {
    let context = |kind| match wrong.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let argument = context(ContextKind::InvalidArg);
    let flag = argument.split(['[', ' ', '=']).find(|flag| !flag.is_empty()).unwrap_or_default();
    let flag = flag.trim_matches(['<', '>', ']']);
    let value = context(ContextKind::InvalidValue);
    let message = match wrong.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingSubcommand => return Ok(()),
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand);
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
            word if word.is_empty() => {
                let other = context(ContextKind::PriorArg);
                let other = other.split(['[', ' ']).next().unwrap_or_default();
                format!("{flag} and {other} cannot be used together; leave one out")
            }
            word => format!("{:?} takes no argument {word:?}", name(path)),
        },
        ErrorKind::InvalidValue if value.is_empty() => {
            let hint = if ["--v", "-v"].contains(&flag) { suggest::VERSION } else { "" };
            format!("flag needs an argument: {flag}{hint}")
        }
        ErrorKind::InvalidValue => {
            let known = context(ContextKind::ValidValue);
            let hint = near::hint(&value, known.split(' '));
            format!(
                "invalid argument {value:?} for {flag:?}: it must be one of {}{hint}",
                known.replace(' ', ", ")
            )
        }
        ErrorKind::ValueValidation => {
            let cause = std::error::Error::source(wrong).map(ToString::to_string).unwrap_or_default();
            // Some causes name the value themselves.
            match cause.starts_with('`') {
                true => format!("{flag}: {cause}"),
                false => format!("invalid argument {value:?} for {flag:?}: {cause}"),
            }
        }
        ErrorKind::MissingRequiredArgument => format!("missing: {argument}{}", suggest::missing(path)),
        // The parser's message without its surroundings.
        _ => wrong.to_string().trim_start_matches("error: ").lines().next().unwrap_or_default().to_owned(),
    };
    Err(error::usage(message))
}
