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
use super::flag::{parse_minutes, shown_flags, usage_error, visible};
use base::near::{self, question};
use model::plugin::{builtin, focus};

/// Commands of other programs, with the equivalent here.
const COMMANDS: &[(&str, &str)] = &[
    ("apply", "run"),
    ("create", "run"),
    ("exec", "run"),
    ("launch", "run"),
    ("start", "run"),
    ("test", "run"),
    ("up", "run"),
    ("conformance", "run --mode certified-conformance"),
    ("local", "run --local"),
    ("rerun", "run --rerun-failed"),
    ("retry", "run --rerun-failed"),
    ("resume", "run --resume"),
    ("abort", "delete"),
    ("cancel", "delete"),
    ("clean", "delete"),
    ("cleanup", "delete"),
    ("destroy", "delete"),
    ("down", "delete"),
    ("kill", "delete"),
    ("remove", "delete"),
    ("rm", "delete"),
    ("stop", "delete"),
    ("uninstall", "delete"),
    ("copy", "retrieve"),
    ("cp", "retrieve"),
    ("download", "retrieve"),
    ("fetch", "retrieve"),
    ("pull", "retrieve"),
    ("compare", "results diff"),
    ("describe", "results"),
    ("facts", "results --facts"),
    ("html", "results --format html"),
    ("inspect", "results"),
    ("junit", "results --format junit"),
    ("open", "results --open"),
    ("report", "results"),
    ("show", "results"),
    ("view", "results"),
    ("events", "status --watch"),
    ("list", "status --all-namespaces"),
    ("ls", "status --all-namespaces"),
    ("ps", "status --all-namespaces"),
    ("runs", "status --all-namespaces"),
    ("watch", "status --watch"),
    ("tail", "logs --follow"),
    ("check", "doctor"),
    ("preflight", "doctor"),
    ("lint", "plugin check"),
    ("validate", "plugin check"),
    ("init", "plugin new"),
    ("generate", "gen"),
    ("manifest", "gen"),
    ("template", "gen"),
    ("export", "results --format json"),
    ("agent", "worker"),
    ("info", "version"),
    ("man", "help"),
    ("snapshot", "query"),
    ("tests", "e2e"),
    ("pods", "get pod"),
    ("get logs", "logs"),
    ("get plugins", "plugin list"),
    ("get results", "results"),
    ("get runs", "status --all-namespaces"),
    ("get status", "status"),
    ("plugin add", "plugin install"),
    ("plugin create", "plugin new"),
    ("plugin delete", "plugin uninstall"),
    ("plugin describe", "plugin show"),
    ("plugin gen", "plugin new"),
    ("plugin get", "plugin show"),
    ("plugin init", "plugin new"),
    ("plugin lint", "plugin check"),
    ("plugin ls", "plugin list"),
    ("plugin remove", "plugin uninstall"),
    ("plugin rm", "plugin uninstall"),
    ("plugin run", "run -p"),
    ("plugin test", "run --local -p"),
    ("plugin validate", "plugin check"),
    ("plugin verify", "plugin check"),
    ("images rm", "images delete"),
    ("images save", "images download"),
    ("gen manifest", "gen"),
];

/// The hint for a version that is requested in another way.
const VERSION: &str = "; `sonobuoy --version` prints the version";
/// The hint for colours where no flag decides about them.
const COLOURS: &str = "; `NO_COLOR=1` in the environment turns colours off";
/// Flags of other programs, with the equivalent here and its value; the first that a command has
/// counts.
const FLAGS: &[(&str, &str)] = &[
    ("ns", "namespace"),
    ("verbose", "level=debug"),
    ("log-level", "level"),
    ("loglevel", "level"),
    ("quiet", "level=error"),
    ("silent", "level=error"),
    ("cluster", "context"),
    ("image", "plugin-image"),
    ("env", "plugin-env"),
    ("focus", "e2e-focus"),
    ("skip", "e2e-skip"),
    ("follow", "watch"),
    ("nodes", "local-nodes"),
    ("dir", "retrieve"),
    ("out-dir", "retrieve"),
    ("output-dir", "retrieve"),
    ("progress", "output"),
    ("format", "output"),
    ("json", "format=json"),
    ("json", "output=json"),
    ("yaml", "format=yaml"),
    ("yaml", "output=yaml"),
    ("junit", "format=junit"),
    ("html", "format=html"),
    ("markdown", "format=markdown"),
    ("csv", "format=csv"),
    ("browser", "open"),
    ("web", "open"),
    ("no-color", "color=never"),
    ("no-colour", "color=never"),
    ("colour", "color"),
    ("kubernetes-version", "version"),
    ("kube-version", "kubernetes-version"),
    ("lines", "tail"),
    ("output", "filename"),
    ("out", "filename"),
];
/// Letters of other programs, with the equivalent flag here.
const LETTERS: &[(char, &str)] = &[
    ('f', "watch"),
    ('o', "filename"),
    ('q', "level=error"),
    ('s', "short"),
    ('w', "wait"),
];
/// Flags of other programs that have nothing to decide here.
const NEEDLESS: [&str; 4] = ["y", "yes", "assume-yes", "force"];
/// The hint for them.
const UNASKED: &str = "; nothing is asked, so leave it out";

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

/// Whether a command line asks for the help of the command at `path` in the way of other programs,
/// as in `run help`.
pub(crate) fn asks_for_help(args: &[OsString], path: &[String]) -> bool {
    let is_alone = args.len() == path.len() + 2;
    is_alone && !path.is_empty() && args.last().is_some_and(|word| word == "help")
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
                similar_letter(&argument, path)
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
        ErrorKind::InvalidUtf8 => {
            "an argument is not UTF-8, which names of files have to be here: rename the file, or \
             pipe its content into `-`"
                .into()
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
    let prefix = path
        .iter()
        .map(|part| format!("{part} "))
        .collect::<String>();
    let full_name = format!("{prefix}{lower}");
    let exact = COMMANDS
        .iter()
        .filter(|(other, _)| *other == full_name)
        .map(|(_, name)| (*name).to_owned());
    let elsewhere = visible(&table).flat_map(|group| {
        let same = visible(group).filter(|inner| inner.get_name() == lower);
        same.map(|_| format!("{} {lower}", group.get_name()))
    });
    let commands: Vec<_> = exact.chain(elsewhere).take(3).collect();
    if !commands.is_empty() {
        return question(commands);
    }
    let siblings = near::similar(word, visible(parent).map(Command::get_name));
    question(siblings.into_iter().map(|name| format!("{prefix}{name}")))
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
        "certify" => "; `certify latest` takes the newest in this folder",
        "verify" => "; `verify latest` takes the newest in this folder",
        "plugin check" => "; name a definition, as in `plugin check disk.yaml`",
        "plugin show" | "plugin uninstall" => "; `plugin list` lists the plugins",
        "completion" => "; name your shell, as in `completion bash`",
        "schema" => "; `schema plugin` is that of definitions",
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
        .filter(|(_, meant)| has_flag(&command, meant))
        .collect();
    let candidates = longs
        .iter()
        .chain(others.iter().map(|(other, _)| other))
        .copied();
    let suggestions: Vec<_> = near::similar(&word, candidates)
        .into_iter()
        .map(|found| {
            let other = others.iter().find(|(other, _)| *other == found);
            format!("--{}", other.map_or(found, |(_, meant)| meant))
        })
        .collect();
    if suggestions.is_empty() && word.starts_with("no-colo") {
        return COLOURS.into();
    }
    if suggestions.is_empty() && NEEDLESS.contains(&&*word) {
        return UNASKED.into();
    }
    question(suggestions)
}

/// Whether a command has a flag that is named with or without a value.
fn has_flag(command: &Command, flag: &str) -> bool {
    let name = flag.split('=').next();
    shown_flags(command).any(|arg| arg.get_long() == name)
}

/// The same letter in the case that the command has, else the flag that it may mean.
fn similar_letter(flag: &str, path: &[String]) -> String {
    let Some(letter) = flag.chars().nth(1) else {
        return String::new();
    };
    if letter == 'V' {
        return VERSION.into();
    }
    let command = command_at(path);
    let shorts = shown_flags(&command).filter_map(Arg::get_short);
    let other_case: Vec<_> = shorts
        .filter(|short| short.eq_ignore_ascii_case(&letter))
        .map(|short| format!("-{short}"))
        .collect();
    if !other_case.is_empty() {
        return question(other_case);
    }
    if NEEDLESS.contains(&&*letter.to_string()) {
        return UNASKED.into();
    }
    let flags = LETTERS
        .iter()
        .filter(|(other, flag)| *other == letter && has_flag(&command, flag));
    question(flags.map(|(_, flag)| format!("--{flag}")))
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
    if has("wait") && parse_minutes(word).is_ok() {
        return question([format!("--wait={word}")]);
    }
    if word == "all" && has("all") {
        return question(["--all"]);
    }
    if path == ["plugin", "list"] {
        return question([format!("plugin show {word}")]);
    }
    if has("mode") && focus::NAMES.contains(&word) {
        return question([format!("--mode {word}")]);
    }
    let definition = [".yaml", ".yml"]
        .iter()
        .any(|ending| word.to_lowercase().ends_with(ending));
    if has("plugin")
        && (definition || builtin::names().any(|name| name == word) || Path::new(word).exists())
    {
        return question([format!("-p {word}")]);
    }
    if matches!(command.get_name(), "status" | "logs" | "delete" | "wait") {
        return format!("; a namespace is named by `-n {word}`");
    }
    String::new()
}
