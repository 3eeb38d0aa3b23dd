//! What is wrong with a command line: wrong flags, missing arguments, flags that exclude each other.
//!
//! Owns the words of these errors; they are printed together with the usage of the command, by `cli`.

use std::ffi::OsString;
use std::fmt;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// An error of whoever wrote the command line; the usage is printed with it.
#[derive(Debug)]
pub(crate) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// An error that is printed with the usage of its command.
pub(crate) fn error(message: impl Into<String>) -> anyhow::Error {
    Error(message.into()).into()
}

/// Whether any error of this command is printed with its usage, as the original does.
pub(crate) fn shows_usage(path: &[String]) -> bool {
    match path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["gen", "plugin", _] => true,
        [first, ..] => ["e2e", "plugin", "worker"].contains(&first),
        [] => true,
    }
}

/// What a command is called: `sonobuoy gen plugin`.
pub(crate) fn name(path: &[String]) -> String {
    std::iter::once("sonobuoy").chain(path.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// The command at `path`, ready to print its help; `Err` has the word that names none.
pub(crate) fn command(mut table: Command, path: &[String]) -> Result<Command, String> {
    table.build();
    let mut command = table;
    for word in path {
        command = command.find_subcommand(word).cloned().ok_or_else(|| word.clone())?;
    }
    Ok(command.bin_name(name(path)))
}

/// The arguments after the program's own name, as far as they can be read.
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

/// The arguments with the command's words in front, so that any flag may stand before them, as in the original;
/// and those words.
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

/// The flag of this command, or of one below it, or else of any: flags may stand before the command that has them.
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

/// Whether the word after this flag is its value.
pub(crate) fn needs_next_word(flag: &Arg) -> bool {
    flag.get_action().takes_values() && !flag.is_require_equals_set()
}

/// Turns what the parser says into an error; it is none when help was asked for.
pub(crate) fn judge(error: &clap::Error, path: &[String]) -> anyhow::Result<()> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(" ")),
        _ => None,
    };
    let suggestion = |kind| match error.get(kind) {
        // Underscores stand only in flags of Go's logging, which are taken but do nothing.
        Some(ContextValue::String(text)) if text.contains('_') => String::new(),
        Some(ContextValue::String(text)) => format!("; did you mean `{text}`?"),
        Some(ContextValue::Strings(texts)) if !texts.is_empty() => {
            format!("; did you mean `{}`?", texts.join("` or `"))
        }
        _ => String::new(),
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let flag = argument.split(['[', ' ', '=']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let message = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return Ok(()),
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            let hint = suggestion(ContextKind::SuggestedSubcommand);
            format!("unknown command {word:?} for {:?}{hint}", name(path))
        }
        ErrorKind::UnknownArgument if argument.starts_with("--") => {
            format!("unknown flag: {flag}{}", suggestion(ContextKind::SuggestedArg))
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            format!("unknown shorthand flag: {argument}")
        }
        ErrorKind::UnknownArgument if path.is_empty() => {
            format!("unknown command {argument:?} for \"sonobuoy\"")
        }
        ErrorKind::UnknownArgument => {
            let number = !argument.is_empty() && argument.bytes().all(|byte| byte.is_ascii_digit());
            let waits =
                path.first().is_some_and(|first| ["run", "wait", "gen", "delete"].contains(&first.as_str()));
            let hint =
                if number && waits { format!("; did you mean `--wait={argument}`?") } else { String::new() };
            format!("{:?} takes no argument {argument:?}{hint}", name(path))
        }
        ErrorKind::ArgumentConflict => match context(ContextKind::InvalidSubcommand) {
            Some(word) => format!("{:?} takes no argument {word:?}", name(path)),
            None => {
                let other = context(ContextKind::PriorArg).unwrap_or_default();
                let other = other.split(['[', ' ']).next().unwrap_or_default();
                format!("{flag} and {other} exclude each other; leave one out")
            }
        },
        ErrorKind::InvalidValue if value.is_empty() => format!("flag needs an argument: {flag}"),
        ErrorKind::InvalidValue => {
            let known = context(ContextKind::ValidValue).map_or_else(String::new, |known| {
                format!(": it is one of {}", known.split(' ').collect::<Vec<_>>().join(", "))
            });
            format!(
                "invalid argument {value:?} for {flag:?}{known}{}",
                suggestion(ContextKind::SuggestedValue)
            )
        }
        ErrorKind::ValueValidation => {
            let cause =
                std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
            format!("invalid argument {value:?} for {flag:?}{cause}")
        }
        ErrorKind::MissingRequiredArgument => format!("missing: {argument}"),
        _ => first_line(&error.to_string()),
    };
    Err(self::error(message))
}

/// The parser's own words, without what it adds around them.
fn first_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.lines().next().unwrap_or_default().to_owned()
}
