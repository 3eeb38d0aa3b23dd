//! Patterns in Go's RE2 syntax, translated for the `regex` crate or rejected with the reason.
//!
//! Both are automata with the same power but differ in syntax: Go accepts `[\w-.]`, `\Q…\E`, a lone `{`; the crate
//! accepts set operations in classes, `(?x)`, stacked repetition; `\d`, `\s`, `\w` and `\b` are ASCII in Go. So the text is
//! parsed by Go's rules and written anew, with every literal escaped. Patterns match anywhere unless they use `^` and `$`.

use std::collections::HashSet;
use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Go's limit for a counted repetition.
const MAX_REPEAT: u32 = 1000;
/// Maximum memory of a compiled pattern; the longest skip lists need a tenth.
const MAX_PATTERN_BYTES: usize = 32 << 20;
const POSIX: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Compiles a Go pattern; the error names the rejected pattern and the reason.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let refuse = |reason: &str| format!("`{}` is not a valid pattern: {reason}", shortened(pattern));
    let translated = translate(pattern).map_err(|reason| refuse(&reason))?;
    RegexBuilder::new(&translated).size_limit(MAX_PATTERN_BYTES).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => refuse("too large; repeat less"),
        regex::Error::Syntax(text) => {
            refuse(text.lines().last().unwrap_or("syntax error").trim_start_matches("error: "))
        }
        other => refuse(&other.to_string()),
    })
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

fn shortened(pattern: &str) -> String {
    if pattern.chars().count() <= 80 {
        pattern.into()
    } else {
        format!("{}…", pattern.chars().take(79).collect::<String>())
    }
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut reader = Reader { rest: pattern.chars().peekable(), out: String::new() };
    reader.whole()?;
    Ok(reader.out)
}

struct Reader<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

/// What precedes a repetition operator.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Nothing,
    Atom,
    Repetition,
}

/// Meaning of an escape.
enum Escape {
    /// One character.
    Char(char),
    /// A set, as an item of a class.
    Set(String),
    /// A position between characters.
    Place(&'static str),
    /// Starts literal text up to `\E`.
    Literal,
}

impl Reader<'_> {
    fn whole(&mut self) -> Result<(), String> {
        let mut open = 0_usize;
        let mut names = HashSet::new();
        let mut last = Last::Nothing;
        while let Some(c) = self.rest.next() {
            last = match c {
                '(' => {
                    open += self.group(&mut names)?;
                    Last::Nothing
                }
                ')' => {
                    open = open.checked_sub(1).ok_or("unexpected `)`")?;
                    self.out.push(')');
                    Last::Atom
                }
                '|' => {
                    self.out.push('|');
                    Last::Nothing
                }
                '^' | '$' | '.' => {
                    self.out.push(c);
                    Last::Atom
                }
                '[' => {
                    self.class()?;
                    Last::Atom
                }
                '*' | '+' | '?' => self.repetition(&c.to_string(), last)?,
                '{' => match self.count()? {
                    Some(count) => self.repetition(&count, last)?,
                    None => self.literal('{'),
                },
                '\\' => match self.escape()? {
                    Escape::Char(c) => self.literal(c),
                    Escape::Set(set) => {
                        self.out.push_str(&format!("[{set}]"));
                        Last::Atom
                    }
                    Escape::Place(place) => {
                        self.out.push_str(place);
                        Last::Atom
                    }
                    Escape::Literal => self.quoted(last),
                },
                c => self.literal(c),
            };
        }
        if open > 0 { Err("missing closing `)`".into()) } else { Ok(()) }
    }

    fn literal(&mut self, c: char) -> Last {
        if c.is_alphanumeric() {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("\\x{{{:X}}}", u32::from(c)));
        }
        Last::Atom
    }

    /// The text after `\Q`.
    fn quoted(&mut self, mut last: Last) -> Last {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                break;
            }
            last = self.literal(c);
        }
        last
    }

    fn repetition(&mut self, sign: &str, last: Last) -> Result<Last, String> {
        match last {
            Last::Nothing => return Err(format!("nothing to repeat before `{sign}`")),
            Last::Repetition => return Err(format!("`{sign}` repeats a repetition; put it in (?:…)")),
            Last::Atom => {}
        }
        self.out.push_str(sign);
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        Ok(Last::Repetition)
    }

    /// A counted repetition after its `{`; none if that is just a brace, as in Go.
    fn count(&mut self) -> Result<Option<String>, String> {
        let mut ahead = self.rest.clone();
        let mut text = String::new();
        loop {
            match ahead.next() {
                Some('}') => break,
                Some(c) if c.is_ascii_digit() || c == ',' => text.push(c),
                _ => return Ok(None),
            }
        }
        let (low, high) = text.split_once(',').map_or((text.as_str(), None), |(low, high)| (low, Some(high)));
        // For Go, a number with a leading zero is not a count.
        let is_number = |t: &str| !t.is_empty() && !t.contains(',') && (t == "0" || !t.starts_with('0'));
        if !is_number(low) || high.is_some_and(|high| !high.is_empty() && !is_number(high)) {
            return Ok(None);
        }
        let number = |t: &str| t.parse::<u32>().ok().filter(|n| *n <= MAX_REPEAT);
        let bounds = (number(low), high.filter(|high| !high.is_empty()).map(number));
        match bounds {
            (None, _) | (_, Some(None)) => {
                return Err(format!("`{{{text}}}` repeats more than {MAX_REPEAT} times"));
            }
            (Some(low), Some(Some(high))) if high < low => {
                return Err(format!("the maximum of `{{{text}}}` is below its minimum"));
            }
            _ => {}
        }
        self.rest = ahead;
        Ok(Some(format!("{{{text}}}")))
    }

    /// A group after its `(`; returns how many more parentheses are open. Numbers and names of groups do not matter here.
    fn group(&mut self, names: &mut HashSet<String>) -> Result<usize, String> {
        if self.rest.next_if_eq(&'?').is_none() {
            self.out.push_str("(?:");
            return Ok(1);
        }
        let mut ahead = self.rest.clone();
        let named = match (ahead.next(), ahead.next()) {
            (Some('P'), Some('<')) => 2,
            (Some('P'), Some('=' | '>'))
            | (Some('<'), Some('=' | '!'))
            | (Some('=' | '!' | '>' | '#'), _) => {
                return Err("RE2 has no look-around, atomic groups, back-references or comments".into());
            }
            (Some('<'), _) => 1,
            _ => 0,
        };
        if named > 0 {
            self.rest.nth(named - 1);
            let name: String = std::iter::from_fn(|| self.rest.next_if(|c| *c != '>')).collect();
            let fits = self.rest.next().is_some()
                && !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !fits {
                return Err(format!("`{name}` is not a valid group name"));
            }
            if !names.insert(name.clone()) {
                return Err(format!("two groups are called `{name}`"));
            }
            self.out.push_str("(?:");
            return Ok(1);
        }
        self.flags()
    }

    /// Flags after `(?`, for a group or for the rest.
    fn flags(&mut self) -> Result<usize, String> {
        let mut flags = String::new();
        loop {
            match self.rest.next() {
                Some(c @ ('i' | 'm' | 's' | 'U')) => flags.push(c),
                Some('-') if !flags.contains('-') => flags.push('-'),
                Some(end @ (':' | ')')) if !flags.ends_with('-') && (end == ':' || !flags.is_empty()) => {
                    self.out.push_str(&format!("(?{flags}{end}"));
                    return Ok(usize::from(end == ':'));
                }
                Some(c) => {
                    return Err(format!("unknown flag `{c}` in `(?{flags}{c}`; RE2 has i, m, s and U"));
                }
                None => return Err("missing closing `)`".into()),
            }
        }
    }

    /// A class after its `[`.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.rest.next().ok_or("missing closing `]`")?;
            if c == ']' && !first {
                break;
            }
            first = false;
            if c == '['
                && let Some(name) = self.posix()?
            {
                self.out.push_str(&name);
                continue;
            }
            let low = match c {
                '\\' => match self.escape()? {
                    Escape::Char(c) => c,
                    Escape::Set(set) => {
                        self.out.push_str(&set);
                        continue;
                    }
                    Escape::Place(_) | Escape::Literal => {
                        return Err("`\\A`, `\\z`, `\\b`, `\\B` and `\\Q` have no meaning in a class".into());
                    }
                },
                c => c,
            };
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']');
            self.literal(low);
            if is_range {
                self.rest.next();
                let high = self.range_end()?;
                if high < low {
                    return Err(format!("the range `{low}-{high}` is backwards"));
                }
                self.out.push('-');
                self.literal(high);
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn range_end(&mut self) -> Result<char, String> {
        match self.rest.next() {
            Some('\\') => match self.escape()? {
                Escape::Char(c) => Ok(c),
                _ => Err("a range must end with a character, not a set".into()),
            },
            Some(c) => Ok(c),
            None => Err("missing closing `]`".into()),
        }
    }

    /// `[:name:]` in a class after its `[`; none if that is just a bracket.
    fn posix(&mut self) -> Result<Option<String>, String> {
        let ahead: String = self.rest.clone().collect();
        let Some((name, _)) = ahead.strip_prefix(':').and_then(|text| text.split_once(":]")) else {
            return Ok(None);
        };
        if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("`[:{name}:]` is not a known class"));
        }
        self.rest.nth(name.chars().count() + 2);
        Ok(Some(format!("[:{name}:]")))
    }

    /// An escape after its `\`.
    fn escape(&mut self) -> Result<Escape, String> {
        let c = self.rest.next().ok_or("a lone `\\` at the end")?;
        Ok(match c {
            'd' => Escape::Set("0-9".into()),
            'D' => Escape::Set("[^0-9]".into()),
            's' => Escape::Set(r"\t\n\f\r\x20".into()),
            'S' => Escape::Set(r"[^\t\n\f\r\x20]".into()),
            'w' => Escape::Set("0-9A-Za-z_".into()),
            'W' => Escape::Set("[^0-9A-Za-z_]".into()),
            'p' | 'P' => Escape::Set(self.property(c == 'P')?),
            'A' => Escape::Place(r"\A"),
            'z' => Escape::Place(r"\z"),
            'b' => Escape::Place(r"(?-u:\b)"),
            'B' => Escape::Place(r"(?-u:\B)"),
            'Q' => Escape::Literal,
            'a' => Escape::Char('\x07'),
            'f' => Escape::Char('\x0c'),
            'n' => Escape::Char('\n'),
            'r' => Escape::Char('\r'),
            't' => Escape::Char('\t'),
            'v' => Escape::Char('\x0b'),
            'x' => Escape::Char(self.hexadecimal()?),
            '0'..='7' => Escape::Char(self.octal(c)?),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Escape::Char(c),
            c => return Err(format!("`\\{c}` has no meaning in RE2")),
        })
    }

    fn octal(&mut self, first: char) -> Result<char, String> {
        let next_is_octal = self.rest.peek().is_some_and(|c| c.is_digit(8));
        if first != '0' && !next_is_octal {
            return Err(format!("`\\{first}` refers back to a group, which RE2 does not support"));
        }
        let mut value = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.rest.next_if(|c| c.is_digit(8)) else { break };
            value = value * 8 + digit.to_digit(8).unwrap_or_default();
        }
        char::from_u32(value).ok_or_else(|| "no such character".into())
    }

    fn hexadecimal(&mut self) -> Result<char, String> {
        let braced = self.rest.next_if_eq(&'{').is_some();
        let limit = if braced { 8 } else { 2 };
        let digits: String = (0..limit).map_while(|_| self.rest.next_if(char::is_ascii_hexdigit)).collect();
        let ends = if braced { self.rest.next() == Some('}') } else { digits.len() == 2 };
        let value = u32::from_str_radix(&digits, 16).ok().filter(|_| ends);
        value
            .and_then(char::from_u32)
            .ok_or_else(|| "`\\x` needs two hexadecimal digits, or braces as in `\\x{10FFFF}`".into())
    }

    /// A Unicode class after `\p` or `\P`, by the names that Go knows: categories and scripts.
    fn property(&mut self, mut negated: bool) -> Result<String, String> {
        let mut name: String = match self.rest.next() {
            Some('{') => {
                let name = std::iter::from_fn(|| self.rest.next_if(|c| *c != '}')).collect();
                self.rest.next().ok_or("missing closing `}`")?;
                name
            }
            Some(c) => c.into(),
            None => return Err("`\\p` needs the name of a class".into()),
        };
        if let Some(rest) = name.strip_prefix('^') {
            negated = !negated;
            name = rest.to_owned();
        }
        let fits = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        if !fits {
            return Err(format!("`{name}` is not a Unicode class"));
        }
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }
}

/// Any bytes are compiled as a pattern or refused, a compiled pattern matches in linear time, and quoted text matches
/// itself.
#[cfg(any(fuzzing, test))]
pub fn consistent(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match compile(text) {
        Ok(pattern) => _ = pattern.is_match(&"ab1 \n".repeat(200)),
        Err(why) => assert!(!why.is_empty()),
    }
    if text.len() < 1_000 {
        let quoted = compile(&format!("^(?s:{})$", quote(text))).expect("what is quoted");
        assert!(quoted.is_match(text));
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
            assert!(!compiled.is_match(text), "{pattern} does not match {text:?}");
        }
    }

    #[test]
    fn patterns_mean_what_go_means() {
        check("kube-system|sonobuoy", &["kube-system", "my-sonobuoy-2"], &["default"]);
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
    fn what_go_refuses_is_refused() {
        for (pattern, words) in [
            ("(", "missing closing `)`"),
            (")", "unexpected `)`"),
            ("[a", "missing closing `]`"),
            ("[b-a]", "is backwards"),
            ("[a-\\d]", "not a set"),
            ("[[:foo:]]", "not a known class"),
            ("*a", "nothing to repeat"),
            ("a|*", "nothing to repeat"),
            ("(?i)*", "nothing to repeat"),
            ("a**", "repeats a repetition"),
            ("a???", "repeats a repetition"),
            ("a{2}{3}", "repeats a repetition"),
            ("a{1001}", "more than 1000"),
            ("a{2,1}", "below its minimum"),
            ("(?=a)", "look-around"),
            ("(?!a)", "look-around"),
            ("(?<=a)", "look-around"),
            ("(?>a)", "atomic"),
            ("(?x)a b", "unknown flag `x`"),
            ("(?u)a", "unknown flag `u`"),
            ("(?i", "missing closing"),
            ("(?P<n>a)(?P<n>b)", "two groups"),
            ("(?P<a-b>x)", "not a valid group name"),
            ("\\", "lone"),
            ("\\1", "refers back"),
            ("(a)\\8", "no meaning"),
            ("\\C", "no meaning"),
            ("\\Z", "no meaning"),
            ("\\E", "no meaning"),
            ("\\ä", "no meaning"),
            ("\\y", "no meaning"),
            ("\\xZ", "two hexadecimal digits"),
            ("\\p{script=Greek}", "not a Unicode class"),
            ("\\p{Nowhere}", "not a "),
            ("((((a{100}){100}){100}){100})", "too large"),
        ] {
            let error = compile(pattern).expect_err(pattern);
            assert!(error.contains(words) && !error.contains('\n'), "{pattern}: {error}");
        }
        assert!(compile(&"(".repeat(10_000)).is_err());
        assert!(compile(&format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000))).is_err());
    }

    #[test]
    fn quoting_is_that_of_go() {
        let text = r"a\.+*?()|[]{}^$#&-~ /b";
        assert_eq!(quote(text), r"a\\\.\+\*\?\(\)\|\[\]\{\}\^\$#&-~ /b");
        check(&format!("^{}$", quote(text)), &[text], &[]);
    }

    /// Random patterns, with what Go's `regexp` says about each: refused, or which inputs match.
    #[test]
    fn go_says_the_same() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/patterns/go.json");
        let said: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let inputs: Vec<&str> =
            said["inputs"].as_array().unwrap().iter().filter_map(|input| input.as_str()).collect();
        for case in said["cases"].as_array().unwrap() {
            let pattern = case[0].as_str().unwrap();
            let ours = compile(pattern).ok().map(|regex| {
                inputs.iter().map(|input| if regex.is_match(input) { '1' } else { '0' }).collect::<String>()
            });
            assert_eq!(ours.as_deref(), case[1].as_str(), "{pattern:?}");
        }
    }

    #[test]
    fn what_fuzzers_found_stays_sound() {
        crate::testing::corpus("pattern").for_each(|bytes| consistent(&bytes));
    }
}
