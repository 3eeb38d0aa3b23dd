//! Patterns in Go's RE2 syntax, translated for the `regex` crate or rejected with the reason.
//!
//! Both are automata with the same power but differ in syntax: Go accepts `[\w-.]`, `\Q…\E`, a lone
//! `{`; the crate accepts set operations in classes, `(?x)`, stacked repetition; `\d`, `\s`, `\w`
//! and `\b` are ASCII in Go. The translation covers only these differences; the crate reports all
//! other errors. Patterns match anywhere unless they use `^` and `$`.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

use crate::visible::cut;

/// Go's limit for a counted repetition.
const MAX_REPEAT: u32 = 1000;
/// Maximum memory of a compiled pattern; the longest skip lists need a tenth.
const MAX_PATTERN_BYTES: usize = 32 << 20;
const POSIX: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Compiles a Go pattern; the error names the rejected pattern and the reason.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let mut reader = Translator {
        rest: pattern.chars().peekable(),
        out: String::new(),
    };
    let translated = reader.translate();
    let compiled = translated.and_then(|()| {
        RegexBuilder::new(&reader.out)
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "too large; repeat less".into(),
                // The lines before show the translation.
                other => other
                    .to_string()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .trim_start_matches("error: ")
                    .to_owned(),
            })
    });
    compiled.map_err(|reason| format!("`{}` is not a valid pattern: {reason}", cut(pattern, 80)))
}

/// Makes text match itself, escaping exactly what Go escapes.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

struct Translator<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

impl Translator<'_> {
    fn translate(&mut self) -> Result<(), String> {
        let mut is_repeated = false;
        while let Some(c) = self.rest.next() {
            let sign = match c {
                '*' | '+' | '?' => Some(c.to_string()),
                '{' => self.count()?,
                _ => None,
            };
            match (&sign, c) {
                (Some(sign), _) if is_repeated => {
                    return Err(format!("`{sign}` repeats a repetition; put it in (?:…)"));
                }
                (Some(sign), _) => {
                    self.out.push_str(sign);
                    self.out.extend(self.rest.next_if_eq(&'?'));
                }
                (None, '(') => self.group()?,
                (None, '[') => self.class()?,
                (None, '\\') if self.rest.next_if_eq(&'Q').is_some() => {
                    while let Some(c) = self.rest.next() {
                        if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                            break;
                        }
                        self.literal(c);
                    }
                }
                (None, '\\') => {
                    if let Some(c) = self.escape(false)? {
                        self.literal(c);
                    }
                }
                (None, ')' | '|' | '^' | '$' | '.') => self.out.push(c),
                (None, c) => self.literal(c),
            }
            is_repeated = sign.is_some();
        }
        Ok(())
    }

    fn literal(&mut self, c: char) {
        if c.is_alphanumeric() {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("\\x{{{:X}}}", u32::from(c)));
        }
    }

    /// The text up to `end`, which is skipped.
    fn until(&mut self, end: char) -> Result<String, String> {
        let text = std::iter::from_fn(|| self.rest.next_if(|c| *c != end)).collect();
        self.rest
            .next()
            .map(|_| text)
            .ok_or_else(|| format!("missing closing `{end}`"))
    }

    /// A counted repetition after its `{`; `None` if that is only a brace, as in Go.
    fn count(&mut self) -> Result<Option<String>, String> {
        let mut ahead = self.rest.clone();
        let text: String =
            std::iter::from_fn(|| ahead.next_if(|c| c.is_ascii_digit() || *c == ',')).collect();
        let (low, high) = text.split_once(',').unwrap_or((&text, "0"));
        // For Go, a number with a leading zero is not a count.
        let is_count = |text: &str| {
            text == "0" || !text.is_empty() && !text.starts_with('0') && !text.contains(',')
        };
        if ahead.next() != Some('}') || !is_count(low) || !(high.is_empty() || is_count(high)) {
            return Ok(None);
        }
        let fits = |text: &str| {
            text.is_empty() || text.parse::<u32>().is_ok_and(|count| count <= MAX_REPEAT)
        };
        if !fits(low) || !fits(high) {
            return Err(format!("`{{{text}}}` repeats more than {MAX_REPEAT} times"));
        }
        self.rest = ahead;
        Ok(Some(format!("{{{text}}}")))
    }

    /// A group after its `(`: Go has fewer flags, and names may start with a digit.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        let ahead: String = self.rest.clone().take(3).collect();
        if ahead.starts_with("?P<") || ahead.starts_with("?<") && !ahead.ends_with(['=', '!']) {
            let name = self.until('>')?;
            let name = name.split_once('<').map_or("", |(_, name)| name);
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("`{name}` is not a valid group name"));
            }
            self.out.push_str(&format!("?P<_{name}>"));
        } else if ahead.starts_with('?') {
            for c in self.rest.by_ref() {
                self.out.push(c);
                match c {
                    ':' | ')' => break,
                    'x' | 'u' | 'R' => {
                        return Err(format!("unknown flag `{c}`; RE2 has i, m, s and U"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A class after its `[`.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        self.out.extend(self.rest.next_if_eq(&'^'));
        let mut first = true;
        while let Some(c) = self.rest.next() {
            if c == ']' && !first {
                self.out.push(']');
                return Ok(());
            }
            first = false;
            if c == '[' && self.posix()? {
                continue;
            }
            let Some(low) = self.member(c)? else { continue };
            self.literal(low);
            let mut ahead = self.rest.clone();
            if ahead.next() == Some('-')
                && let Some(c) = ahead.next().filter(|c| *c != ']')
            {
                self.rest = ahead;
                self.out.push('-');
                let high = self
                    .member(c)?
                    .ok_or("a range must end with a character, not a set")?;
                self.literal(high);
            }
        }
        Err("missing closing `]`".into())
    }

    /// A character of a class, or `None` for a set, which is already written.
    fn member(&mut self, c: char) -> Result<Option<char>, String> {
        if c == '\\' {
            self.escape(true)
        } else {
            Ok(Some(c))
        }
    }

    /// Copies `[:name:]` after its first bracket; false if that is just a bracket.
    fn posix(&mut self) -> Result<bool, String> {
        let ahead: String = self.rest.clone().collect();
        let Some((name, _)) = ahead
            .strip_prefix(':')
            .and_then(|text| text.split_once(":]"))
        else {
            return Ok(false);
        };
        if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("`[:{name}:]` is not a known class"));
        }
        self.out.push_str(&format!("[:{name}:]"));
        self.rest.nth(name.chars().count() + 2);
        Ok(true)
    }

    /// A character after its `\`, or `None` for anything else, which is already written.
    fn escape(&mut self, in_class: bool) -> Result<Option<char>, String> {
        let c = self.rest.next().ok_or("a lone `\\` at the end")?;
        let text = match c {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            's' => r"[\t\n\f\r\x20]",
            'S' => r"[^\t\n\f\r\x20]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            'A' if !in_class => r"\A",
            'z' if !in_class => r"\z",
            'b' if !in_class => r"(?-u:\b)",
            'B' if !in_class => r"(?-u:\B)",
            'p' | 'P' => &self.property(c == 'P')?,
            'a' => return Ok(Some('\x07')),
            'f' => return Ok(Some('\x0c')),
            'n' => return Ok(Some('\n')),
            'r' => return Ok(Some('\r')),
            't' => return Ok(Some('\t')),
            'v' => return Ok(Some('\x0b')),
            'x' | '0'..='7' => return self.code(c).map(Some),
            c if c.is_ascii_punctuation() => return Ok(Some(c)),
            c => return Err(format!("`\\{c}` has no meaning here in RE2")),
        };
        self.out.push_str(text);
        Ok(None)
    }

    /// A character by its number, in octal or after `\x`.
    fn code(&mut self, first: char) -> Result<char, String> {
        let (text, base) = match first {
            'x' if self.rest.next_if_eq(&'{').is_some() => (self.until('}')?, 16),
            'x' => (
                Some(self.digits(2, 16))
                    .filter(|text| text.len() == 2)
                    .unwrap_or_default(),
                16,
            ),
            first => (format!("{first}{}", self.digits(2, 8)), 8),
        };
        // For Go, one octal digit other than 0 is a back-reference.
        let fits = matches!(first, 'x' | '0') || text.len() > 1;
        let number = u32::from_str_radix(&text, base)
            .ok()
            .filter(|_| fits && !text.starts_with('+'));
        number.and_then(char::from_u32).ok_or_else(|| {
            format!("`\\{first}{text}` is not a character; RE2 has no back-references")
        })
    }

    fn digits(&mut self, max: usize, base: u32) -> String {
        std::iter::from_fn(|| self.rest.next_if(|c| c.is_digit(base)))
            .take(max)
            .collect()
    }

    /// A Unicode class after `\p` or `\P`, by the names that Go knows: categories and scripts.
    fn property(&mut self, negated: bool) -> Result<String, String> {
        let name = match self.rest.next() {
            Some('{') => self.until('}')?,
            c => c.into_iter().collect(),
        };
        let (negated, name) = name
            .strip_prefix('^')
            .map_or((negated, &*name), |rest| (!negated, rest));
        let is_known = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        if !is_known {
            return Err(format!("`{name}` is not a Unicode class"));
        }
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let compiled = compile(pattern).unwrap_or_else(|error| panic!("{error}"));
        for text in matching {
            assert!(compiled.is_match(text), "{pattern} matches {text:?}");
        }
        for text in others {
            assert!(
                !compiled.is_match(text),
                "{pattern} does not match {text:?}"
            );
        }
    }

    #[test]
    fn patterns_match_like_go() {
        check(
            "kube-system|sonobuoy",
            &["kube-system", "my-sonobuoy-2"],
            &["default"],
        );
        check(r"[^\w-.]+", &["a b", "ä"], &["a-b.c", "-"]);
        check(r"[\d-x]", &["3", "-", "x"], &["y"]);
        check(r"[]a]", &["]", "a"], &["b"]);
        check(r"[^]a]", &["b"], &["]", "a"]);
        check(r"[a-]", &["a", "-"], &["b"]);
        check(r"[+--]", &["+", ",", "-"], &["."]);
        check(r"^[a&&b]$", &["a", "&", "b"], &["c"]);
        check(r"^[a-z--m]$", &["z", "-", "M"], &["~", ","]);
        check(r"^[[a]b]$", &["[b]", "ab]"], &["a", "b"]);
        check(r"^[a~~b]$", &["~", "a", "b"], &[]);
        check(r"^[[:alpha:]_]$", &["a", "_"], &["1", "ä", ":"]);
        check(r"^[[:^alpha:]]$", &["1"], &["a"]);
        check(r"^[[:x]$", &["[", ":", "x"], &["y"]);
        check(r"\Qa.b*\E+", &["a.b*", "a.b**"], &["aXb*"]);
        check(r"^\Qa.b", &["a.b"], &["axb"]);
        check(r"^\d$", &["1"], &["\u{0661}"]);
        check(r"^\w$", &["a", "_"], &["ä"]);
        check(r"^\s$", &[" ", "\t"], &["\u{a0}", "\u{b}"]);
        check(r"^\D\S\W$", &["aä-"], &["1a-"]);
        check(r"\bfoo\b", &["a foo", "äfoo"], &["afoo"]);
        check(r"a\Bb", &["ab"], &["a b"]);
        check(r"\Aa\z", &["a"], &["a\n", "ba"]);
        check(r"(?P<n>a)(?P<1x>b)(?<m>c)", &["abc"], &["ab"]);
        check(r"(?i)ABC(?-i:d)", &["abcd"], &["abcD"]);
        check(r"(?s:a.b)", &["a\nb"], &[]);
        check(r"a.b", &["axb"], &["a\nb"]);
        check(r"(?m)^b$", &["a\nb\nc"], &["ab"]);
        check(r"(?U)a+", &["a"], &[]);
        check(r"a{2}b{1,}c{0,1}", &["aab"], &["ab"]);
        check(r"a{,2}", &["a{,2}"], &["aa"]);
        check(r"{x} a{01} {", &["{x} a{01} {"], &["{x} a {"]);
        check(r"\pN\p{Greek}\PN\p{^Lu}", &["1αaa"], &["1aaa"]);
        check(r"[\pN\p{Greek}]", &["1", "α"], &["a"]);
        check(r"\x41\x{1F600}\101\0\_\-\/\#", &["A\u{1f600}A\0_-/#"], &[]);
        check(r"\a\f\t\n\r\v", &["\x07\x0c\t\n\r\x0b"], &[]);
        check(r"# x", &["a# x"], &["ax"]);
        check("", &["", "x"], &[]);
        check("a||b", &["x"], &[]);
        check("()*^*", &["x"], &[]);
        check("ä-ö", &["ä-ö"], &["a"]);
        check(r"(a??)b", &["b"], &[]);
    }

    #[test]
    fn patterns_invalid_in_go_are_refused() {
        for (pattern, words) in [
            ("(", "unclosed group"),
            (")", "unopened group"),
            ("[a", "missing closing `]`"),
            ("[b-a]", "the start must be <= the end"),
            ("[a-\\d]", "not a set"),
            ("[[:foo:]]", "not a known class"),
            ("*a", "repetition operator missing"),
            ("a|*", "repetition operator missing"),
            ("(?i)*", "repetition operator missing"),
            ("a**", "repeats a repetition"),
            ("a???", "repeats a repetition"),
            ("a{2}{3}", "repeats a repetition"),
            ("a{1001}", "more than 1000"),
            ("a{2,1}", "the start must be <= the end"),
            ("(?=a)", "look-around"),
            ("(?!a)", "look-around"),
            ("(?<=a)", "look-around"),
            ("(?>a)", "unrecognized flag"),
            ("(?x)a b", "unknown flag `x`"),
            ("(?u)a", "unknown flag `u`"),
            ("(?i", "expected flag"),
            ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
            ("(?P<a-b>x)", "not a valid group name"),
            ("\\", "lone"),
            ("\\1", "back-references"),
            ("(a)\\8", "no meaning"),
            ("\\C", "no meaning"),
            ("\\Z", "no meaning"),
            ("\\E", "no meaning"),
            ("\\ä", "no meaning"),
            ("\\y", "no meaning"),
            ("\\xZ", "is not a character"),
            ("\\p{script=Greek}", "not a Unicode class"),
            ("\\p{Nowhere}", "Unicode property not found"),
            ("((((a{100}){100}){100}){100})", "too large"),
        ] {
            let error = compile(pattern).expect_err(pattern);
            assert!(
                error.contains(words) && !error.contains('\n'),
                "{pattern}: {error}"
            );
        }
        assert!(compile(&"(".repeat(10_000)).is_err());
        assert!(compile(&format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000))).is_err());
    }

    #[test]
    fn quoting_equals_that_of_go() {
        let text = r"a\.+*?()|[]{}^$#&-~ /b";
        assert_eq!(quote(text), r"a\\\.\+\*\?\(\)\|\[\]\{\}\^\$#&-~ /b");
        check(&format!("^{}$", quote(text)), &[text], &[]);
    }

    /// Random patterns, with what Go's `regexp` says about each: refused, or which inputs match.
    #[test]
    fn patterns_agree_with_go() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/patterns/go.json"
        );
        let said: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let inputs: Vec<&str> = said["inputs"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|input| input.as_str())
            .collect();
        for case in said["cases"].as_array().unwrap() {
            let pattern = case[0].as_str().unwrap();
            let ours = compile(pattern).ok().map(|regex| {
                inputs
                    .iter()
                    .map(|input| if regex.is_match(input) { '1' } else { '0' })
                    .collect::<String>()
            });
            assert_eq!(ours.as_deref(), case[1].as_str(), "{pattern:?}");
        }
    }

    #[test]
    fn fuzz_findings_stay_fixed() {
        crate::testing::corpus("pattern").for_each(|bytes| crate::fuzzing::pattern(&bytes));
    }
}
