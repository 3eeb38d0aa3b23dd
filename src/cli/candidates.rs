//! `sonobuoy __complete WORD...`: candidates for the last word of a command line, which the scripts
//! of [`super::completion`] ask for, so that they are the same for every version.
//!
//! The output is that of the original, so that its installed scripts keep working: one line per
//! candidate, `WORD` or `WORD<TAB>DESCRIPTION`, then a directive for the shell: `:0` files, `:16`
//! folders, `:4` nothing. After `--flag=`, a candidate is only the value. `__completeNoDesc` omits
//! descriptions.
//!
//! Accepts any words, never fails, and changes nothing. Only for names of namespaces it asks the
//! cluster, briefly.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Command};

use super::completion::{CALL, CALL_WITHOUT_DESCRIPTIONS};
use super::flag::{VERSIONS, shown_flags, visible};
use super::{arguments, output, usage};
use crate::deploy::CHECKS;
use base::stop::Stop;
use kube::{Client, Config, Options, Resource, Selector};
use model::names;
use model::plugin::{Installed, RESERVED, builtin, focus::Mode};

/// The name by which kubectl asks for candidates.
const OF_KUBECTL: &str = "kubectl_complete-sonobuoy";
/// Maximum time for the names of namespaces.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(2);

/// The directives for the shell.
const FILES: &str = ":0\n";
const NOTHING: &str = ":4\n";
const FOLDERS: &str = ":16\n";

/// Common values of flags that also accept others, so that the table cannot list them.
const USUAL_VALUES: &[(&str, &[&str])] = &[
    (
        "aggregator-permissions",
        &["clusterAdmin", "clusterRead", "namespaceAdmin"],
    ),
    ("format", &["raw", "junit", "gojson", "manual"]),
    ("image-pull-policy", &["Always", "IfNotPresent", "Never"]),
    ("input", &["online", "offline", "-"]),
    ("kubernetes-version", &VERSIONS),
    ("mode", &["tests", "tags", "tagCounts"]),
    (
        "namespace-psa-enforce-level",
        &["privileged", "baseline", "restricted"],
    ),
    ("platform", &["all", "linux/amd64", "linux/arm64"]),
    (
        "priority",
        &[
            "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
        ],
    ),
    ("security-context-mode", &["nonroot", "none"]),
    ("skip-preflight", &CHECKS),
];

/// Prints the candidates for the last of the words, if the call asks for them. Such calls are not
/// in the table, whose parser would reject most of the words.
pub(crate) fn answer(args: &[OsString]) -> Option<ExitCode> {
    let (call, words) = match args {
        [program, words @ ..]
            if Path::new(program)
                .file_name()
                .is_some_and(|name| name == OF_KUBECTL) =>
        {
            (CALL.as_ref(), words)
        }
        [_, call, words @ ..] if call == CALL || call == CALL_WITHOUT_DESCRIPTIONS => {
            (&**call, words)
        }
        _ => return None,
    };
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (word, before) = words
        .split_last()
        .map_or(("", &words[..]), |(word, before)| (word.as_str(), before));
    let mut answer = Completions {
        text: String::new(),
        word,
        kept: "",
        described: call == CALL,
        end: NOTHING,
    };
    candidates(&arguments::for_display(), before, &mut answer);
    answer.text.push_str(answer.end);
    output::print(&answer.text);
    Some(ExitCode::SUCCESS)
}

struct Completions<'w> {
    text: String,
    /// The existing text, which every candidate starts with, ignoring case.
    word: &'w str,
    /// The part of the word that every candidate repeats.
    kept: &'w str,
    described: bool,
    /// The directive on the last line.
    end: &'static str,
}

impl Completions<'_> {
    fn offer(&mut self, candidate: &str, about: &str) {
        let full = format!("{}{candidate}", self.kept);
        if full
            .get(..self.word.len())
            .is_some_and(|begun| begun.eq_ignore_ascii_case(self.word))
        {
            self.text.push_str(&full);
            let about = about
                .lines()
                .next()
                .filter(|about| self.described && !about.is_empty());
            self.text.extend(
                about
                    .into_iter()
                    .flat_map(|about| ["\t", about])
                    .chain(["\n"]),
            );
        }
    }

    /// Offers names that need no quoting and are safe on a terminal.
    fn offer_safe(&mut self, names: impl IntoIterator<Item = String>, about: &str) {
        let is_safe = |name: &String| {
            name.chars()
                .all(|c| c.is_alphanumeric() || "._-:+@/".contains(c))
        };
        names
            .into_iter()
            .filter(is_safe)
            .for_each(|name| self.offer(&name, about));
    }
}

fn candidates(table: &Command, before: &[String], answer: &mut Completions) {
    let mut command = table;
    // The command so far that `help` is about.
    let mut topic = None;
    let mut arguments = 0;
    let mut flags_are_over = false;
    let mut awaiting: Option<&Arg> = None;
    for word in before {
        if awaiting.take().is_some() {
            continue;
        }
        if !flags_are_over && word == "--" {
            flags_are_over = true;
        } else if !flags_are_over && word.len() > 1 && word.starts_with('-') {
            awaiting = usage::awaited(table, command, word);
        } else if topic.is_some() {
            topic = topic.and_then(|topic: &Command| topic.find_subcommand(word));
        } else if let Some(inner) = command
            .find_subcommand(word)
            .filter(|_| arguments == 0 && !flags_are_over)
        {
            command = inner;
            topic = (inner.get_name() == "help").then_some(table);
        } else {
            arguments += 1;
        }
    }
    let word = answer.word;
    if let Some(flag) = awaiting {
        return values(flag, answer);
    }
    if !flags_are_over && word.starts_with('-') {
        match usage::flag(table, command, word) {
            Some((flag, Some(at))) => {
                // Shells treat all of `-xVALUE` as one word, but of `--x=VALUE` only the value.
                match word.split_at(at) {
                    (begun, value) if begun.ends_with('=') => answer.word = value,
                    (begun, _) => answer.kept = begun,
                }
                return values(flag, answer);
            }
            Some((flag, None))
                if !word.starts_with("--") && command.get_arguments().any(|own| own == flag) =>
            {
                answer.offer(word, &help(flag));
            }
            _ => {}
        }
        return flags(command, answer);
    }
    if let Some(topic) = topic {
        return commands(topic, answer);
    }
    if arguments == 0 && !flags_are_over {
        commands(command, answer);
    }
    match command.get_positionals().nth(arguments) {
        Some(argument) => values(argument, answer),
        // With no other candidates for an empty word, flags are offered.
        None if word.is_empty() && answer.text.is_empty() && !flags_are_over => {
            flags(command, answer);
        }
        None => {}
    }
}

fn commands(command: &Command, answer: &mut Completions) {
    for inner in visible(command) {
        answer.offer(
            inner.get_name(),
            &inner
                .get_about()
                .map_or_else(String::new, ToString::to_string),
        );
    }
}

fn flags(command: &Command, answer: &mut Completions) {
    for flag in shown_flags(command) {
        if let Some(long) = flag.get_long() {
            answer.offer(&format!("--{long}"), &help(flag));
        }
    }
}

fn help(flag: &Arg) -> String {
    flag.get_help()
        .map_or_else(String::new, ToString::to_string)
}

/// Values of a flag or argument.
fn values(arg: &Arg, answer: &mut Completions) {
    let id = arg.get_long().unwrap_or_else(|| arg.get_id().as_str());
    let name = arg
        .get_value_names()
        .and_then(<[_]>::first)
        .map_or("", |name| name.as_str());
    if let Some(comma) = answer
        .word
        .rfind(',')
        .filter(|_| arg.get_value_delimiter().is_some())
    {
        answer.kept = &answer.word[..=comma];
    }
    if !arg.get_action().takes_values() {
        // Switches take no separate value, so this is `--switch=`.
        return ["true", "false"]
            .iter()
            .for_each(|value| answer.offer(value, ""));
    }
    let only = arg.get_possible_values();
    for value in &only {
        let mode = Mode::named(value.get_name()).filter(|_| id == "mode");
        let about = mode
            .and_then(|mode| mode.description.split(". ").next())
            .unwrap_or_default();
        answer.offer(value.get_name(), about);
    }
    for (_, words) in USUAL_VALUES
        .iter()
        .filter(|(flag, _)| only.is_empty() && *flag == id)
    {
        words.iter().for_each(|word| answer.offer(word, ""));
    }
    if id == "plugin" {
        builtin::names().for_each(|plugin| answer.offer(plugin, "built-in plugin"));
        if name == "NAME" {
            answer.offer(RESERVED, "the run itself");
        }
    }
    if id == "plugin" || id == "name" && arg.is_positional() {
        answer.offer_safe(Installed::names(), "installed plugin");
    }
    match id {
        "context" => answer.offer_safe(Config::contexts(&Options::default()), ""),
        "namespace" | "dns-namespace" => answer.offer_safe(namespaces().unwrap_or_default(), ""),
        _ if ["ARCHIVE", "BEFORE", "AFTER"].contains(&name) => {
            answer.offer("latest", "the newest archive of this folder");
            answer.offer_safe(report::archives(Path::new(".")).unwrap_or_default(), "");
        }
        _ => {}
    }
    answer.end = match name {
        "DIR" => FOLDERS,
        "FILE" | "ARCHIVE" | "BEFORE" | "AFTER" | "SOURCE" | "PLUGIN" | "NAME,..." => FILES,
        _ => NOTHING,
    };
}

fn namespaces() -> Option<Vec<String>> {
    let options = Options {
        request_timeout: Some(CLUSTER_TIMEOUT),
        ..Options::default()
    };
    let config = Config::find(&options).ok()?;
    let client = Client::new(names::USER_AGENT, config, &Stop::new()).ok()?;
    let namespaces = client
        .list(&Resource::NAMESPACES, "", &Selector::all())
        .ok()?;
    Some(
        namespaces
            .iter()
            .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_words_belong_to_existing_flags() {
        let table = arguments::for_display();
        for (flag, words) in USUAL_VALUES {
            let free =
                |arg: &Arg| arg.get_long() == Some(*flag) && arg.get_possible_values().is_empty();
            assert!(usage::below(&table, &free).is_some(), "{flag} {words:?}");
        }
    }
}
