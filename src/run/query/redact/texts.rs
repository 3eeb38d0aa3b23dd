//! Patterns of secrets inside texts: scripts, files, addresses, logs.

use std::borrow::Cow;
use std::ops::Range;

use regex::{Captures, Match, Regex};

use super::HIDDEN;

/// The rule for bearer tokens, which must contain a digit: "bearer authentication-failed" is prose.
pub(super) const BEARER: &str = "bearer tokens";
/// Secrets that are recognised without a name: tokens in headers, JSON web tokens, and passwords in
/// URLs.
pub(super) const NAMELESS: [(&str, &str); 4] = [
    (
        "authorization headers",
        r#"(?i)\bauthorization["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+([^\s"',;]+)"#,
    ),
    (BEARER, r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)"),
    (
        "web tokens",
        r"\b(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",
    ),
    (
        "passwords in addresses",
        r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*:([^\s:/@]+)@",
    ),
];
/// Name and value in any text: the first group is the name, the second its value.
const ANYWHERE: [&str; 5] = [
    // A variable, a flag or a parameter of a URL, unless the shell expands the value.
    r#"(?:^|[\s"';&(?:,{])[-_]{0,2}([A-Za-z][\w.-]*)=("[^"]*"|'[^']*'|[^\s"'$;&)][^\s"';&)]*)"#,
    // A member of JSON.
    r#""([A-Za-z][\w./-]*)"\s*:\s*("(?:[^"\\]|\\.)*")"#,
    // A member of JSON inside a text in JSON.
    r#"\\+"([A-Za-z][\w./-]*)\\+"\s*:\s*\\+"((?:[^"\\]|\\+[^"\\])*)"#,
    // An entry of YAML in braces, or of a dictionary of Python.
    r#"[{,]\s*'?([A-Za-z][\w./-]*)'?\s*:\s+('[^']*'|"[^"]*"|[^\s"'{}\[\],][^\s"',}]*)"#,
    // An element of XML.
    r"<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?>\s*([^<>\s][^<>]*)</",
];
/// Name and value in scripts and files.
const SCRIPTS: [&str; 2] = [
    // A flag and the word after it.
    r#"(?:^|[\s"'(])--?([A-Za-z][\w.-]*)\s+("[^"]*"|'[^']*'|[^\s"'$;&|()<>-][^\s"';&|)]*)"#,
    // A line `name: value` or `name = value` of YAML, INI and properties.
    r#"(?m)^[ \t]*(?:-[ \t]+)?["']?([A-Za-z_][\w./-]*)["']?[ \t]*(?::|=|:=|=>)[ \t]+("[^"\n]*"|'[^'\n]*'|[^\s"'|>{\[&*!#][^\n]*?)[ \t\r,;]*$"#,
];
/// Secrets in scripts after flags of one letter, which mean a password only to these programs, and
/// in `.netrc`. The group is the secret.
const PROGRAMS: [&str; 5] = [
    r#"\b(?:mysql\w*|mariadb[\w-]*)\b[^|;&\n]*?\s-p([^\s"';&|)$][^\s"';&|)]*)"#,
    r#"\bsshpass\s+-p\s*["']?([^\s"'$][^\s"']*)"#,
    r#"\bredis-cli\b[^|;&\n]*?\s-a\s+["']?([^\s"'$][^\s"']*)"#,
    r#"\b(?:curl|wget)\b[^|;&\n]*?\s(?:-u|--user)[\s=]?["']?[^\s:'"]*:([^\s"'$][^\s"']*)"#,
    r"\b(?:machine\s+\S+|default)\s+(?:(?:login|account)\s+\S+\s+)*password\s+(\S+)",
];
/// Occurs in each text that one of them matches.
const FLAGS: [&str; 5] = ["-p", "-a", "-u", "-user", "password"];
/// Text in base64 that begins like a file in PEM.
const PEM_START: &str = "LS0tLS1CRUdJTi";
const ENCODED_PEM: &str = r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/\s]{2,}={0,2}";

/// How a text is read.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A value of any object, such as a message.
    Prose,
    /// A variable, an argument, or a file of a config map: a script, or settings.
    Script,
}

/// The compiled patterns.
pub(super) struct Texts {
    anywhere: Vec<Regex>,
    scripts: Vec<Regex>,
    programs: Vec<Regex>,
    encoded_pem: Regex,
}

impl Texts {
    /// Compiles the patterns.
    pub(super) fn new() -> Result<Self, regex::Error> {
        let compile = |patterns: &[&str]| -> Result<Vec<Regex>, regex::Error> {
            patterns.iter().map(|pattern| Regex::new(pattern)).collect()
        };
        Ok(Self {
            anywhere: compile(&ANYWHERE)?,
            scripts: compile(&SCRIPTS)?,
            programs: compile(&PROGRAMS)?,
            encoded_pem: Regex::new(ENCODED_PEM)?,
        })
    }

    /// Hides the values that `is_secret` selects by their names.
    pub(super) fn hide_named<'t>(
        &self,
        text: &'t str,
        kind: Kind,
        is_secret: impl Fn(&str, &str) -> bool,
    ) -> Cow<'t, str> {
        let scripts = if kind == Kind::Script {
            &*self.scripts
        } else {
            &[]
        };
        let patterns = self.anywhere.iter().chain(scripts);
        patterns.fold(Cow::Borrowed(text), |text, pattern| {
            substitute(text, pattern, |found| {
                let value = inside_quotes(found.get(2)?);
                is_secret(&found[1], value.1).then_some(value.0)
            })
        })
    }

    /// Hides the secrets that follow flags of one letter, and those of `.netrc`.
    pub(super) fn hide_arguments<'t>(
        &self,
        text: &'t str,
        is_secret: impl Fn(&str) -> bool,
    ) -> Cow<'t, str> {
        if !FLAGS.iter().any(|flag| text.contains(flag)) {
            return Cow::Borrowed(text);
        }
        self.programs
            .iter()
            .fold(Cow::Borrowed(text), |text, pattern| {
                substitute(text, pattern, |found| {
                    found
                        .get(1)
                        .filter(|value| is_secret(value.as_str()))
                        .map(|value| value.range())
                })
            })
    }

    /// Hides what `is_key` selects of the files in PEM that are encoded once more.
    pub(super) fn hide_encoded_keys<'t>(
        &self,
        text: Cow<'t, str>,
        is_key: impl Fn(&str) -> bool,
    ) -> Cow<'t, str> {
        if !text.contains(PEM_START) {
            return text;
        }
        substitute(text, &self.encoded_pem, |found| {
            found
                .get(0)
                .filter(|text| is_key(text.as_str()))
                .map(|text| text.range())
        })
    }
}

/// The place and the text of a value without the quotes around it.
fn inside_quotes(value: Match<'_>) -> (Range<usize>, &str) {
    let text = value.as_str();
    let is_quoted = text.len() > 1 && text.starts_with(['"', '\'']);
    match text.get(1..text.len() - 1).filter(|_| is_quoted) {
        Some(inner) => (value.start() + 1..value.end() - 1, inner),
        None => (value.range(), text),
    }
}

/// Hides the part of each match that `secret` returns.
pub(super) fn substitute<'t>(
    text: Cow<'t, str>,
    pattern: &Regex,
    secret: impl Fn(&Captures<'_>) -> Option<Range<usize>>,
) -> Cow<'t, str> {
    let mut clean = String::new();
    let mut end_of_last = 0;
    for part in pattern
        .captures_iter(&text)
        .filter_map(|found| secret(&found))
    {
        clean.push_str(&text[end_of_last..part.start]);
        clean.push_str(HIDDEN);
        end_of_last = part.end;
    }
    if end_of_last == 0 {
        return text;
    }
    clean.push_str(&text[end_of_last..]);
    Cow::Owned(clean)
}
