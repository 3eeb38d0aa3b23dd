//! Values to YAML, byte for byte like the original: block style, keys sorted, long lines folded,
//! ambiguous text quoted. Definitions are embedded as text in other objects, so equal values must
//! yield equal text.

use serde_json::Value;

use super::scalar::is_ambiguous;

/// Longer keys are written after a `?`; readers look for the colon only within 1024 characters.
const SIMPLE_KEY: usize = 500;
/// Like [`SIMPLE_KEY`], for the library that writes results.
const SIMPLE_KEY_OF_RESULTS: usize = 128;
/// A line breaks at the first blank after this column.
const WIDTH: usize = 80;

/// Writes one document, ending with a line feed, without `---`.
pub fn write(value: &Value) -> String {
    let mut writer = Writer {
        out: String::new(),
        simple_key: SIMPLE_KEY,
    };
    writer.node(value, true, 0, 0);
    writer.out
}

/// Text on one line, quoted if necessary.
pub fn key_text(text: &str) -> String {
    let mut writer = Writer {
        out: String::with_capacity(text.len() + 2),
        simple_key: SIMPLE_KEY,
    };
    writer.line(text, None);
    writer.out
}

/// One entry of a map, for callers with their own order of keys, which write line by line: the text
/// `before` it, the key, and the value; continuation lines are indented further than `indent`.
pub fn entry(before: &str, key: &str, value: &Value, indent: usize) -> String {
    let mut writer = Writer {
        out: before.to_owned(),
        simple_key: SIMPLE_KEY_OF_RESULTS,
    };
    writer.key(key, indent);
    writer.node(value, false, indent + 2, indent);
    writer.out
}

/// `text` as written between double quotes; long texts can be escaped piece by piece.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| escape(&mut out, c));
    out
}

struct Writer {
    out: String,
    simple_key: usize,
}

impl Writer {
    /// Writes a value and ends its line; `inline` continues the line of a list's dash, unlike that
    /// of a key. Entries of a map are indented to `map_at`, items of a list to `list_at`.
    fn node(&mut self, value: &Value, inline: bool, map_at: usize, list_at: usize) {
        let (before, nested) = if inline { ("", "") } else { (" ", "\n") };
        match value {
            Value::Object(map) if !map.is_empty() => {
                self.out.push_str(nested);
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_cached_key(|(key, _)| natural(key));
                for (at, (key, value)) in entries.into_iter().enumerate() {
                    if at > 0 || !inline {
                        self.pad(map_at);
                    }
                    self.key(key, map_at);
                    self.node(value, false, map_at + 2, map_at);
                }
            }
            Value::Array(list) if !list.is_empty() => {
                self.out.push_str(nested);
                for (at, value) in list.iter().enumerate() {
                    if at > 0 || !inline {
                        self.pad(list_at);
                    }
                    self.out.push_str("- ");
                    self.node(value, true, list_at + 2, list_at + 2);
                }
            }
            other => {
                self.out.push_str(before);
                self.scalar(other, map_at.max(2));
                self.out.push('\n');
            }
        }
    }

    /// Writes a key and its colon.
    fn key(&mut self, key: &str, indent: usize) {
        let long = key.len() > self.simple_key;
        if long {
            self.out.push_str("? ");
        }
        self.line(key, None);
        if long {
            self.out.push('\n');
            self.pad(indent);
        }
        self.out.push(':');
    }

    /// Writes a scalar or an empty list or map, without the line feed after it.
    fn scalar(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) if is_block(text) => self.block(text, indent),
            Value::String(text) => self.line(text, Some(indent)),
            // Only empty lists and maps get here besides scalars; their JSON is valid YAML.
            other => self.out.push_str(&other.to_string()),
        }
    }

    /// Writes text in a single-line style, quoted if necessary; folded if lines may continue at
    /// `indent`.
    fn line(&mut self, text: &str, indent: Option<usize>) {
        if !text.chars().all(is_printable) || is_ambiguous(text) {
            self.out.push('"');
            self.folded(text, indent, true);
            self.out.push('"');
        } else if is_plain(text) {
            self.folded(text, indent, false);
        } else {
            self.out.push('\'');
            self.folded(&text.replace('\'', "''"), indent, false);
            self.out.push('\'');
        }
    }

    /// Writes text that may be broken at blanks inside it, between double quotes also where several
    /// follow each other.
    fn folded(&mut self, text: &str, indent: Option<usize>, escaped: bool) {
        let mut column = self
            .out
            .rsplit('\n')
            .next()
            .map_or(0, |line| line.chars().count());
        let mut after_blank = false;
        for (at, c) in text.char_indices() {
            let rest = &text[at + c.len_utf8()..];
            let next_is_blank = rest.starts_with(' ');
            let inside = at > 0 && !rest.is_empty() && (escaped || !next_is_blank);
            match indent {
                Some(indent) if c == ' ' && !after_blank && column > WIDTH && inside => {
                    self.out.push('\n');
                    self.pad(indent);
                    column = indent;
                    if next_is_blank {
                        self.out.push('\\');
                        column += 1;
                    }
                }
                _ => {
                    let before = self.out.len();
                    match escaped {
                        true => escape(&mut self.out, c),
                        false => self.out.push(c),
                    }
                    column += self.out[before..].chars().count();
                }
            }
            after_blank = c == ' ';
        }
    }

    fn block(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        // An indented first line would be taken for the indentation of the block.
        if text.starts_with([' ', '\n']) {
            self.out.push('2');
        }
        self.out
            .push_str(match (text.ends_with('\n'), text.ends_with("\n\n")) {
                (false, _) => "-",
                (true, false) => "",
                (true, true) => "+",
            });
        let body = text.strip_suffix('\n').unwrap_or(text);
        for line in body.split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.pad(indent);
                self.out.push_str(line);
            }
        }
    }

    fn pad(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
    }
}

fn escape(out: &mut String, c: char) {
    let escape = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\0' => "\\0",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\x0b' => "\\v",
        '\x0c' => "\\f",
        '\r' => "\\r",
        '\x1b' => "\\e",
        '\u{85}' => "\\N",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        c if is_printable(c) => return out.push(c),
        c => &match u32::from(c) {
            code @ 0..=0xff => format!("\\x{code:02X}"),
            code @ 0x100..=0xffff => format!("\\u{code:04X}"),
            code => format!("\\U{code:08X}"),
        },
    };
    out.push_str(escape);
}

/// Whether text needs no quotes, as far as its characters are concerned.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let first = chars.next().unwrap_or(' ');
    let followed_by_blank = chars.next().is_none_or(|c| c == ' ');
    let starts_badly = " #,[]{}&*!|>'\"%@`".contains(first)
        || ("?:-".contains(first) && followed_by_blank)
        || text.starts_with("---")
        || text.starts_with("...");
    !starts_badly && !text.ends_with([' ', ':']) && !text.contains(": ") && !text.contains(" #")
}

/// Whether the original writes a character literally in every style on one line; characters beyond
/// the BMP are escaped.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
        && !matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether text of several lines can be a literal block: a block would preserve it, and at least
/// one line is not blank, so that readers agree on the indentation.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && text.chars().all(|c| is_printable(c) || c == '\n')
        && text.split('\n').all(|line| !line.ends_with(' '))
        && !text.trim().is_empty()
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    Sign(char),
    /// The number of significant digits, the digits, and the number of digits with leading zeros.
    Number(usize, String, usize),
    Letter(char),
}

/// Sort key in natural order: punctuation before numbers, numbers by value, letters last.
pub fn natural(key: &str) -> impl Ord + use<> {
    let mut tokens = Vec::new();
    let mut rest = key.chars().peekable();
    while let Some(c) = rest.next() {
        if !c.is_ascii_digit() {
            tokens.push(if c.is_alphabetic() {
                Token::Letter(c)
            } else {
                Token::Sign(c)
            });
            continue;
        }
        let mut digits = String::from(c);
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let count = digits.len();
        let digits = digits.trim_start_matches('0').to_owned();
        tokens.push(Token::Number(digits.len(), digits, count));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use base::json::json;

    #[test]
    fn output_equals_that_of_go() {
        let value = json!({
            "b": {"list": [{"x": 1, "a": "n"}, ["p", []], {}]},
            "a": "true",
            "text": "one\n two\n\nthree\n",
            "strip": "x\ny",
            "keep": "x\n\n",
            "indented": "  x\ny",
            "nothing": null,
        });
        let expected = "a: \"true\"\nb:\n  list:\n  - a: \"n\"\n    x: 1\n  - - p\n    - []\n  - \
                        {}\nindented: |2-\n    x\n  y\nkeep: |+\n  x\n\nnothing: null\nstrip: \
                        |-\n  x\n  y\ntext: |\n  one\n   two\n\n  three\n";
        assert_eq!(write(&value), expected);
        assert_eq!(parse(expected).unwrap(), value);
    }

    #[test]
    fn long_lines_are_folded_like_go() {
        let words = |count: usize| vec!["word"; count].join(" ");
        for (text, expected) in [
            (words(17), format!("{}\n  word", words(16))),
            (
                format!("{} ", words(17)),
                format!("'{}\n  word '", words(16)),
            ),
            (
                format!("{}\t", words(17)),
                format!("\"{}\n  word\\t\"", words(16)),
            ),
            (
                format!("{}  x", words(17)),
                format!("{}\n  word  x", words(16)),
            ),
            (
                format!("{}  x\t", words(16)),
                format!("\"{}\n  \\ x\\t\"", words(16)),
            ),
        ] {
            let written = write(&json!({ "a": text }));
            assert_eq!(written, format!("a: {expected}\n"));
            assert_eq!(parse(&written).unwrap(), json!({ "a": text }));
        }
    }

    #[test]
    fn keys_are_sorted_naturally() {
        let mut keys = [
            "b",
            "a10",
            "a2",
            "a-b",
            "ab",
            "a",
            "A",
            "a_",
            "plugin-10",
            "plugin-9",
            "plugin-1",
            "1",
        ];
        keys.sort_by_cached_key(|key| natural(key));
        assert_eq!(
            keys,
            [
                "1",
                "A",
                "a",
                "a-b",
                "a_",
                "a2",
                "a10",
                "ab",
                "b",
                "plugin-1",
                "plugin-9",
                "plugin-10"
            ]
        );
    }

    #[test]
    fn written_values_are_read_back() {
        for text in pieces() {
            for value in [
                json!(text),
                json!({(text.as_str()): text, "k": [text, [text]]}),
                json!([[{ "a": text }]]),
            ] {
                let written = write(&value);
                assert_eq!(
                    parse(&written).unwrap_or_else(|e| panic!("{e}: {written:?}")),
                    value,
                    "{written:?}"
                );
            }
        }
    }

    #[test]
    fn output_is_equal_under_yaml_1_1() {
        let script =
            "import json, sys, yaml\njson.dump(yaml.safe_load(sys.stdin.buffer), sys.stdout)";
        let python = std::process::Command::new("python3")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn();
        let Ok(mut python) = python else {
            base::testing::skipped("python3", "not installed");
            return;
        };
        // That reader rejects U+FFFE even if escaped.
        let texts: Vec<String> = pieces()
            .into_iter()
            .filter(|text| !text.contains('\u{fffe}'))
            .collect();
        let value = json!({"list": texts, "map": texts.iter().map(|text| (text.clone(), json!(1))).collect::<serde_json::Map<_, _>>()});
        std::io::Write::write_all(&mut python.stdin.take().unwrap(), write(&value).as_bytes())
            .unwrap();
        let output = python.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("No module named 'yaml'") {
            base::testing::skipped("pyyaml", "python3 has no PyYAML");
            return;
        }
        assert!(output.status.success(), "{errors}");
        let read: Value = serde_json::from_slice(&output.stdout).unwrap();
        for (text, read) in texts.iter().zip(read["list"].as_array().unwrap()) {
            assert_eq!(read, text, "{:?}", write(&json!([text])));
        }
        assert_eq!(read, value);
    }

    /// Combinations of two or three pieces with a meaning in YAML.
    fn pieces() -> Vec<String> {
        let parts = [
            "",
            " ",
            "\n",
            "\t",
            "\r",
            "a",
            "-",
            ":",
            "#",
            "?",
            "'",
            "\"",
            "\\",
            "[",
            "{",
            ",",
            "&",
            "*",
            "!",
            "|",
            ">",
            "%",
            "@",
            "`",
            "~",
            "yes",
            "null",
            "0",
            "1e3",
            "0x1",
            ".",
            "<<",
            "=",
            "---",
            "\u{0}",
            "\u{85}",
            "\u{a0}",
            "\u{2028}",
            "\u{feff}",
            "\u{fffe}",
            "ä",
            "\u{1f600}",
            "2001-01-01",
        ];
        let mut all = Vec::new();
        for a in parts {
            for b in parts {
                all.push(format!("{a}{b}"));
                all.extend(["", " ", "\n", "a", ":", "#", "-"].map(|c| format!("{a}{b}{c}")));
            }
        }
        all.sort();
        all.dedup();
        all
    }
}
