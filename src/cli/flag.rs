//! The kinds of flags, access to their values, and errors in them.
//!
//! Owns the syntax of a flag's value (`--x=v`, bare, lists, any case), not its meaning. Every
//! flag's id is its long name. Switches are plain here, for help, man pages and completions;
//! [`accepting_values`] converts them for parsing: scripts may write `--all=true` and
//! `--all=false`.

use std::ffi::OsStr;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::image::release;
use base::{pattern, sys};
use model::verdict::Exit;

/// The flags and arguments of a call. A flag that the command lacks counts as absent.
#[derive(Clone, Copy)]
pub(crate) struct Args<'m>(pub(crate) &'m ArgMatches);

impl<'m> Args<'m> {
    /// The value of a flag; `None` if absent or empty.
    pub(crate) fn text(self, id: &str) -> Option<&'m str> {
        self.all(id).next().filter(|value| !value.is_empty())
    }

    /// The value of a flag; empty if absent.
    pub(crate) fn word(self, id: &str) -> &'m str {
        self.all(id).next().unwrap_or_default()
    }

    /// The value of a flag, else of an environment variable.
    pub(crate) fn text_or(self, id: &str, variable: &str) -> Option<String> {
        self.text(id)
            .map(str::to_owned)
            .or_else(|| sys::variable(variable))
    }

    /// The subcommand and its flags; without one, an empty name and these flags.
    pub(crate) fn subcommand(self) -> (&'m str, Self) {
        self.0
            .subcommand()
            .map_or(("", self), |(name, matches)| (name, Self(matches)))
    }

    /// All values of a flag, in order.
    pub(crate) fn all(self, id: &str) -> impl Iterator<Item = &'m str> + use<'m> {
        self.0
            .try_get_many::<String>(id)
            .ok()
            .flatten()
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// The values of a flag as they were written.
    pub(crate) fn raw(self, id: &str) -> impl Iterator<Item = &'m OsStr> + use<'m> {
        self.0.try_get_raw(id).ok().flatten().into_iter().flatten()
    }

    /// Whether a switch is on.
    pub(crate) fn on(self, id: &str) -> bool {
        self.0
            .try_get_one(id)
            .ok()
            .flatten()
            .copied()
            .unwrap_or_default()
    }

    /// The number of a flag; 0 if absent.
    pub(crate) fn number(self, id: &str) -> i64 {
        self.0
            .try_get_one(id)
            .ok()
            .flatten()
            .copied()
            .unwrap_or_default()
    }

    /// The duration of a flag; zero if absent.
    pub(crate) fn duration(self, id: &str) -> Duration {
        self.0
            .try_get_one(id)
            .ok()
            .flatten()
            .copied()
            .unwrap_or_default()
    }

    /// Whether a flag is on the command line.
    pub(crate) fn given(self, id: &str) -> bool {
        matches!(self.0.try_get_raw(id), Ok(Some(_)))
            && self.0.value_source(id) == Some(ValueSource::CommandLine)
    }
}

/// A command whose repeated flags behave as in the original: the last one counts.
pub(crate) fn command(name: &'static str, about: &'static str) -> Command {
    Command::new(name)
        .about(about)
        .args_override_self(true)
        .disable_help_subcommand(true)
}

/// A positional argument.
pub(crate) fn argument(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name.to_lowercase()).value_name(name).help(help)
}

/// A flag declared as in a usage line: `-n --name NAME`.
fn flag(usage: &'static str, help: &'static str) -> Arg {
    usage
        .split(' ')
        .fold(Arg::default().help(help), |arg, word| {
            match (word.strip_prefix("--"), word.strip_prefix('-')) {
                (Some(name), _) => arg.id(name).long(name),
                (None, Some(letter)) => arg.short(letter.chars().next()),
                (None, None) => arg.value_name(word),
            }
        })
}

/// A flag with one word as its value; the last use counts.
pub(crate) fn text(usage: &'static str, help: &'static str) -> Arg {
    flag(usage, help).allow_hyphen_values(true)
}

/// A repeatable flag; each use adds one value, unsplit.
pub(crate) fn repeated(usage: &'static str, help: &'static str) -> Arg {
    text(usage, help).action(ArgAction::Append)
}

/// A repeatable flag with comma-separated values; its first use replaces the default.
pub(crate) fn list(usage: &'static str, help: &'static str) -> Arg {
    repeated(usage, help).value_delimiter(',')
}

/// A flag without a value.
pub(crate) fn switch(usage: &'static str, help: &'static str) -> Arg {
    flag(usage, help).action(ArgAction::SetTrue)
}

/// A flag with a number of seconds, also written as a duration such as `1h30m`: for settings that
/// hold whole seconds.
pub(crate) fn seconds(usage: &'static str, help: &'static str) -> Arg {
    text(usage, help).value_parser(move |word: &str| {
        if let Ok(count) = word.parse::<i64>() {
            return Ok(count);
        }
        // Fractions of a second are rounded up.
        let whole = base::clock::parse_duration(word)
            .and_then(|span| i64::try_from(span.as_millis().div_ceil(1_000)).ok());
        whole.ok_or("write seconds, or a duration such as 90m or 1h30m")
    })
}

/// A flag with a duration; a plain number is one of minutes, as in the original.
pub(crate) fn duration(usage: &'static str, help: &'static str) -> Arg {
    text(usage, help).value_parser(move |word: &str| {
        let minutes = word
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(60))
            .map(Duration::from_secs);
        let duration = minutes.or_else(|| base::clock::parse_duration(word));
        duration.ok_or("write minutes, or a duration such as 90m or 1h30m")
    })
}

/// A flag with an integer.
pub(crate) fn number(usage: &'static str, help: &'static str, range: RangeInclusive<i64>) -> Arg {
    text(usage, help).value_parser(move |word: &str| {
        let number = word
            .parse::<i64>()
            .ok()
            .filter(|number| range.contains(number));
        number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
    })
}

/// A flag with a regular expression.
pub(crate) fn regex(usage: &'static str, help: &'static str) -> Arg {
    text(usage, help)
        .value_name("REGEX")
        .value_parser(|word: &str| pattern::compile(word).map(|_| word.to_owned()))
}

/// A flag with a version of Kubernetes, or one of the words.
pub(crate) fn version(
    usage: &'static str,
    words: &'static [&'static str],
    help: &'static str,
) -> Arg {
    text(usage, help).value_parser(move |word: &str| {
        if word.is_empty() || words.contains(&word) {
            return Ok(word.to_owned());
        }
        let (last, others) = words.split_last().unwrap_or((&"", &[]));
        let others: String = others.iter().map(|word| format!(", {word}")).collect();
        release::parse(word).map_err(|why| format!("{why}{others} or {last}"))
    })
}

/// A flag with one of the words of a usage line: `-t --type Job|DaemonSet`.
pub(crate) fn choice(usage: &'static str, help: &'static str) -> Arg {
    let words = usage.rsplit(' ').next().unwrap_or_default();
    one_of(usage, &words.split('|').collect::<Vec<_>>(), help)
}

/// A flag with one of `words`, accepted in any case and read in the spelling given here.
pub(crate) fn one_of(usage: &'static str, words: &[&'static str], help: &'static str) -> Arg {
    let known = words.to_vec();
    let canonical = move |given: String| -> String {
        known
            .iter()
            .find(|word| word.eq_ignore_ascii_case(&given))
            .map_or(given, |word| (*word).into())
    };
    text(usage, help)
        .value_name("WORD")
        .ignore_case(true)
        .value_parser(PossibleValuesParser::new(words).map(canonical))
}

/// A flag whose value needs `=`, with a separate meaning without one.
pub(crate) fn bare(arg: Arg, meaning: &'static str) -> Arg {
    arg.num_args(0..=1)
        .require_equals(true)
        .default_missing_value(meaning)
}

/// The command and all its subcommands, with switches that also accept `=true` and `=false`.
pub(crate) fn accepting_values(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action() {
            ArgAction::SetTrue => bare(arg.action(ArgAction::Set), "true")
                .value_name("BOOL")
                .default_value("false")
                .value_parser(boolean),
            _ => arg,
        })
        .mut_subcommands(accepting_values)
}

/// Parses a bool in the spellings of the original's flag library.
fn boolean(word: &str) -> Result<bool, String> {
    match word.to_lowercase().as_str() {
        "1" | "t" | "true" => Ok(true),
        "0" | "f" | "false" => Ok(false),
        _ => Err("write true or false".into()),
    }
}

/// An error that `cli` prints differently from others.
#[derive(Debug)]
pub(crate) enum Error {
    /// In the command line; printed with the usage of the command.
    Usage(String),
    /// Ctrl-C.
    Interrupted(String),
    /// Of a command that has judged results; printed before the verdict, which decides the exit
    /// code.
    Judged(String, Option<Exit>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (Self::Usage(message) | Self::Interrupted(message) | Self::Judged(message, _)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for Error {}

/// An error in the command line.
pub(crate) fn usage_error(message: impl Into<String>) -> anyhow::Error {
    Error::Usage(message.into()).into()
}

/// An error in the value of a flag.
pub(crate) fn invalid(id: &str, value: &str, remedy: &str) -> anyhow::Error {
    usage_error(format!(
        "invalid argument {value:?} for \"--{id}\": {remedy}"
    ))
}

/// The end of a command that Ctrl-C interrupted.
pub(crate) fn interrupted(message: impl Into<String>) -> anyhow::Error {
    Error::Interrupted(message.into()).into()
}
