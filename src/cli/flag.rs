//! What flags have in common: parsers of their values, the syntax of the original, and errors.
//!
//! Owns the syntax of a flag's value (`--x=v`, bare, lists, any case), not its meaning: each
//! command declares its flags in a struct. Switches are plain in it, for help, man pages and
//! completions; [`accepting_values`] converts them for parsing: scripts may write `--all=true` and
//! `--all=false`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, Str, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::image::release;
use base::Joined as _;
use base::pattern;
use model::verdict::Exit;

/// Examples below the help of a command: what each does, and the command line.
pub(crate) fn examples(rows: &[(&str, &str)]) -> String {
    let rows = rows
        .iter()
        .map(|(purpose, line)| format!("  {purpose}:\n    {line}"));
    format!("Examples:\n{}", rows.joined("\n"))
}

pub(crate) fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
}

pub(crate) fn shown_flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

/// The command and all its subcommands, with switches that also accept `=true` and `=false`.
pub(crate) fn accepting_values(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action() {
            ArgAction::SetTrue => arg
                .action(ArgAction::Set)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .default_value("false")
                .value_name(BOOL)
                .value_parser(parse_bool),
            _ => arg,
        })
        .mut_subcommands(accepting_values)
}

/// The command and all its subcommands, with all switches shown without a value. A switch that
/// overrides a setting is declared with a value, since its absence has a meaning.
pub(crate) fn showing_switches(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let names = arg.get_value_names().unwrap_or_default();
            if !names.iter().any(|name| name == BOOL) {
                return arg;
            }
            arg.action(ArgAction::SetTrue)
                .num_args(0)
                .require_equals(false)
                .default_missing_value(None)
                .value_parser(clap::value_parser!(bool))
        })
        .mut_subcommands(showing_switches)
}

/// The command and all its subcommands with every flag in the help, not only in the long one.
pub(crate) fn showing_all(command: Command) -> Command {
    command
        .mut_args(|arg| arg.hide_short_help(false))
        .mut_subcommands(showing_all)
}

/// The name of the value of a switch.
pub(crate) const BOOL: &str = "BOOL";

/// The text of an optional flag. An empty one counts as absent: an unset variable of a script
/// leaves it.
pub(crate) trait Filled {
    /// The text, unless it is absent or empty.
    fn filled(&self) -> Option<&str>;
}

impl Filled for Option<String> {
    fn filled(&self) -> Option<&str> {
        self.as_deref().filter(|text| !text.is_empty())
    }
}

/// Seconds, also written as a duration such as `1h30m`: for settings that hold whole seconds.
pub(crate) fn parse_seconds(word: &str) -> Result<i64, &'static str> {
    if let Ok(count) = word.parse::<i64>() {
        return Ok(count);
    }
    // Fractions of a second are rounded up.
    let seconds = base::clock::parse_duration(word)
        .and_then(|duration| i64::try_from(duration.as_millis().div_ceil(1_000)).ok());
    seconds.ok_or("write seconds, or a duration such as 90m or 1h30m")
}

/// A duration; a plain number is one of minutes, as in the original.
pub(crate) fn parse_minutes(word: &str) -> Result<Duration, &'static str> {
    let minutes = word
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(60))
        .map(Duration::from_secs);
    let duration = minutes.or_else(|| base::clock::parse_duration(word));
    duration.ok_or("write minutes, or a duration such as 90m or 1h30m")
}

/// A regular expression.
pub(crate) fn parse_regex(word: &str) -> Result<String, String> {
    pattern::compile(word).map(|_| word.to_owned())
}

/// The words that a version of Kubernetes may be.
pub(crate) const VERSIONS: [&str; 3] = ["auto", "ignore", "latest"];

/// A version of Kubernetes, or one of [`VERSIONS`].
pub(crate) fn parse_version(word: &str) -> Result<String, String> {
    if word.is_empty() || VERSIONS.contains(&word) {
        return Ok(word.to_owned());
    }
    let [auto, ignore, latest] = VERSIONS;
    release::parse(word).map_err(|reason| format!("{reason}, {auto}, {ignore} or {latest}"))
}

/// A range up to this number or more is one without an end for people.
const NO_LIMIT: i64 = u32::MAX as i64;

/// A parser of numbers in a range.
pub(crate) fn within<N: TryFrom<i64> + Clone + Send + Sync + 'static>(
    range: RangeInclusive<i64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |word| {
        let number = word
            .parse::<i64>()
            .ok()
            .filter(|number| range.contains(number))
            .and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| match range.end() {
            end if *end >= NO_LIMIT => format!("write a number, at least {}", range.start()),
            end => format!("write a number from {} to {end}", range.start()),
        })
    }
}

/// A parser of some words, in any case; the value has the spelling given here.
pub(crate) fn words(known: &'static [&'static str]) -> impl TypedValueParser<Value = &'static str> {
    PossibleValuesParser::new(known).map(|given| {
        let canonical = known.iter().find(|word| word.eq_ignore_ascii_case(&given));
        canonical.copied().unwrap_or_default()
    })
}

/// Parses a bool in the spellings of the original's flag library.
pub(crate) fn parse_bool(word: &str) -> Result<bool, String> {
    match word.to_lowercase().as_str() {
        "1" | "t" | "true" => Ok(true),
        "0" | "f" | "false" => Ok(false),
        _ => Err("write true or false".into()),
    }
}

/// How a command declares the flags of another in its own way.
pub(crate) trait Variation {
    /// The flag as the command declares it.
    fn change(arg: Arg) -> Arg;
}

/// The flags of `T` as `V` declares them.
#[derive(Clone)]
pub(crate) struct Varied<T, V> {
    pub flags: T,
    variation: PhantomData<V>,
}

impl<T, V> From<T> for Varied<T, V> {
    fn from(flags: T) -> Self {
        Self {
            flags,
            variation: PhantomData,
        }
    }
}

impl<T: clap::Args, V: Variation> clap::Args for Varied<T, V> {
    fn augment_args(command: Command) -> Command {
        // Without an order, a flag gets that of its place in the command.
        let mut scratch = Command::default().next_display_order(None);
        if let Some(heading) = command.get_next_help_heading() {
            // A flag keeps the heading under which it was declared first.
            scratch = scratch.next_help_heading(Str::from(heading.to_owned()));
        }
        let declared = T::augment_args(scratch);
        command.args(declared.get_arguments().cloned().map(V::change))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: clap::FromArgMatches, V> clap::FromArgMatches for Varied<T, V> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Self::from)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches_mut(matches).map(Self::from)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.flags.update_from_arg_matches(matches)
    }
}

/// Hides flags that are accepted, but have no effect.
#[derive(Clone)]
pub(crate) struct Hidden;

impl Variation for Hidden {
    fn change(arg: Arg) -> Arg {
        arg.hide(true)
    }
}

/// Whether a flag is one of those of `T`.
pub(crate) fn is_of<T: clap::Args>(arg: &Arg) -> bool {
    let declared = T::augment_args(Command::default());
    declared
        .get_arguments()
        .any(|other| other.get_id() == arg.get_id())
}

/// The command and all its subcommands with the syntax of the original: repeated flags are
/// allowed, the last one counts; values may begin with a hyphen; words may be in any case.
pub(crate) fn like_original(command: Command) -> Command {
    command
        .args_override_self(true)
        .disable_help_subcommand(true)
        .mut_args(|arg| {
            if arg.is_positional() || !arg.get_action().takes_values() {
                return arg;
            }
            let takes_several = arg
                .get_num_args()
                .is_some_and(|count| count.max_values() > 1);
            let is_choice = !arg.get_possible_values().is_empty();
            // Several values end at the next flag.
            arg.allow_hyphen_values(!takes_several)
                .ignore_case(is_choice)
        })
        .mut_subcommands(like_original)
}

/// An error that `cli` prints differently from others.
#[derive(Debug)]
pub(crate) enum Error {
    /// In the command line; printed with the usage of the command.
    Usage(String),
    /// Of a command that has judged results; printed before the verdict, which decides the exit
    /// code.
    Judged(String, Option<Exit>),
    /// Ctrl-C.
    Interrupted(String),
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
