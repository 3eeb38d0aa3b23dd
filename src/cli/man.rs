//! `sonobuoy man`: one man page per command, from the same table as the help.
//!
//! Owns the necessary subset of roff: no tables, no requests beyond those of man(7).

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Arg, ArgMatches, Command};

use super::{manual, pages};
use crate::names::VERSION;
use base::clock;

/// Writes the pages into the given folder.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let dir = matches.get_one::<String>("dir").map_or(Path::new("."), Path::new);
    pages::write(dir, &pages::Kind { joint: "-", ending: ".1", page })?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: &Command, name: &str) -> String {
    let (title, mut roff) = (name.replace(' ', "-"), String::new());
    let about = command.get_about().map_or_else(String::new, ToString::to_string);
    put(&mut roff, &[".TH ", &plain(&title.to_uppercase()), " 1 ", &today(), " \"sonobuoy ", VERSION]);
    put(&mut roff, &["\" \"Sonobuoy\"\n.nh\n.ad l\n.SH NAME\n"]);
    text(&mut roff, &format!("{title} - {about}"));
    put(&mut roff, &[".SH SYNOPSIS\n"]);
    let usage = command.clone().bin_name(name).render_usage().to_string();
    for (index, line) in usage.trim_start_matches("Usage:").lines().enumerate() {
        let line = line.trim();
        let rest = line.strip_prefix(name).unwrap_or(line);
        put(&mut roff, &[if index > 0 { ".br\n" } else { "" }, "\\fB", &plain(name), "\\fR", &plain(rest)]);
        roff.push('\n');
    }
    put(&mut roff, &[".SH DESCRIPTION\n"]);
    text(&mut roff, &format!("{about}."));
    // A single line covers everything; of several, the first is a title and the others keep their layout.
    let note = command.get_after_help().map_or_else(String::new, ToString::to_string);
    let examples = note.split_once('\n');
    if examples.is_none() && !note.is_empty() {
        roff.push_str(".PP\n");
        text(&mut roff, &note);
    }
    // In the order of the help: arguments, flags without a heading, then by heading.
    let mut headings = vec![None];
    for arg in command.get_arguments() {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    arguments(&mut roff, command, "ARGUMENTS", &|arg| arg.is_positional());
    for heading in headings {
        let title = heading.map_or_else(|| "OPTIONS".to_owned(), str::to_uppercase);
        let its = |arg: &Arg| !arg.is_positional() && arg.get_help_heading() == heading;
        arguments(&mut roff, command, &title, &its);
    }
    let mut title_due = true;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        if std::mem::take(&mut title_due) {
            roff.push_str(".SH COMMANDS\n");
        }
        let about = inner.get_about().map_or_else(String::new, ToString::to_string);
        put(&mut roff, &[".TP\n\\fB", &plain(&title), "\\-", &plain(inner.get_name()), "\\fR(1)\n"]);
        text(&mut roff, &about);
    }
    if let Some((head, lines)) = examples {
        put(&mut roff, &[".SH EXAMPLES\n", &plain(head), "\n.PP\n.nf\n"]);
        for line in lines.lines() {
            put(&mut roff, &[&plain(line), "\n"]);
        }
        roff.push_str(".fi\n");
    }
    let examples = manual::examples(name);
    if !examples.is_empty() {
        roff.push_str(".SH EXAMPLES\n");
    }
    for (index, (call, meaning)) in examples.iter().enumerate() {
        roff.push_str(if index > 0 { ".PP\n" } else { "" });
        text(&mut roff, meaning);
        put(&mut roff, &[".PP\n.nf\n", &plain(call), "\n.fi\n"]);
    }
    for (title, rows) in manual::sections(name) {
        put(&mut roff, &[".SH ", title, "\n"]);
        for (word, meaning) in rows {
            put(&mut roff, &[".TP\n\\fB", &plain(word), "\\fR\n"]);
            text(&mut roff, meaning);
        }
    }
    if let Some((parent, _)) = name.rsplit_once(' ') {
        put(&mut roff, &[".SH SEE ALSO\n\\fB", &plain(&parent.replace(' ', "-")), "\\fR(1)\n"]);
    }
    roff
}

/// A section with the given arguments, omitted if empty.
fn arguments(roff: &mut String, command: &Command, title: &str, belongs: &dyn Fn(&Arg) -> bool) {
    let mut title_due = true;
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && belongs(arg)) {
        if std::mem::take(&mut title_due) {
            put(roff, &[".SH ", title, "\n"]);
        }
        roff.push_str(".TP\n");
        if let Some(short) = arg.get_short() {
            put(roff, &["\\fB\\-", short.encode_utf8(&mut [0; 4]), "\\fR, "]);
        }
        if let Some(long) = arg.get_long() {
            put(roff, &["\\fB\\-\\-", &plain(long), "\\fR"]);
        }
        let takes_values = arg.get_action().takes_values();
        if takes_values {
            let value = arg.get_value_names().and_then(<[_]>::first).map_or("", |value| value.as_str());
            let (before, after) = match (arg.is_positional(), arg.is_require_equals_set()) {
                (true, _) => ("", ""),
                (false, true) => ("[=", "]"),
                (false, false) => (" ", ""),
            };
            put(roff, &[before, "\\fI", &plain(value), "\\fR", after]);
        }
        roff.push('\n');
        if let Some(help) = arg.get_help() {
            text(roff, &help.to_string());
        }
        if takes_values && !arg.is_hide_default_value_set() {
            let defaults: Vec<_> =
                arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
            if !defaults.is_empty() {
                text(roff, &format!("[default: {}]", defaults.join(", ")));
            }
        }
        let values = arg.get_possible_values();
        if takes_values && !values.is_empty() {
            let names: Vec<_> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
            text(roff, &format!("[one of: {}]", names.join(", ")));
        }
    }
}

fn put(roff: &mut String, parts: &[&str]) {
    for part in parts {
        roff.push_str(part);
    }
}

/// Text that roff fills; source lines are kept short, as convention requires.
fn text(roff: &mut String, words: &str) {
    const WIDTH: usize = 78;
    let mut width = 0;
    for word in words.split_ascii_whitespace() {
        let word = plain(word);
        if width > 0 {
            let fits = width + word.len() < WIDTH;
            roff.push(if fits { ' ' } else { '\n' });
            width = if fits { width + 1 } else { 0 };
        }
        roff.push_str(&word);
        width += word.len();
    }
    roff.push('\n');
}

/// Literal text: in words for a command line, roff must not replace quotes or dashes.
fn plain(text: &str) -> String {
    let mut roff = String::with_capacity(text.len() + 8);
    for (index, c) in text.char_indices() {
        let sign = match c {
            '\\' => "\\e",
            '-' => "\\-",
            '\'' => "\\(aq",
            '`' => "\\(ga",
            '^' => "\\(ha",
            '~' => "\\(ti",
            // A leading dot would start a request.
            '.' if index == 0 => "\\&.",
            _ => {
                roff.push(c);
                continue;
            }
        };
        roff.push_str(sign);
    }
    roff
}

/// The date of a page; `SOURCE_DATE_EPOCH` overrides it for reproducible pages.
fn today() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let time =
        given.map_or_else(SystemTime::now, |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    clock::rfc3339(time).chars().take(10).collect()
}
