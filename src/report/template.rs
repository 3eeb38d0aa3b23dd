//! Fills templates: the page, a row of its tests, markdown.
//!
//! `{{name}}` is a value, escaped for its format, and `{{&name}}` is markup. `{{#name}}…{{/name}}`
//! appears once for each element of a list, or once unless the value is empty, zero or missing;
//! `{{^name}}…{{/name}}` appears only then. A name is that of a member of the innermost object that
//! has it; `.` is the innermost value itself. Whole numbers are counts, whose thousands are
//! separated; a list is its elements, separated by commas. `{{name|filter}}` changes a value first.
//! The end of a section repeats the name with its filters, and sections with equal ends do not
//! nest.

use std::borrow::Cow;
use std::io::Write;
use std::slice;

use serde_json::Value;

use super::words::{minute, named, number, size, spoken};
use base::Joined as _;
use base::{visible, xml};
use model::item::plain;

/// Maximum readable letters of an anchor.
const READABLE: usize = 40;
/// Letters of a digest, five bits each.
const LETTERS: u32 = 8;

/// Makes a text harmless in a format.
type Escape = fn(&str) -> String;

/// Writes a template; `values` are the objects around it, the innermost last.
pub(super) fn fill(
    mut template: &str,
    values: &[&Value],
    escape: Escape,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    while let Some((before, rest)) = template.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let (tag, rest) = rest.split_once("}}").unwrap_or((rest, ""));
        template = rest;
        let wanted = tag.trim_start_matches(['#', '^', '&']);
        let mut parts = wanted.split('|');
        let value = match parts.next().unwrap_or_default() {
            "." => values.last().copied(),
            name => values.iter().rev().find_map(|value| value.get(name)),
        };
        let value = Cow::Borrowed(value.unwrap_or(&Value::Null));
        let value = parts.fold(value, |value, part| Cow::Owned(filter(&value, part)));
        if !tag.starts_with(['#', '^']) {
            let text = text(&value);
            let text = if tag.starts_with('&') {
                text
            } else {
                escape(&text)
            };
            out.write_all(text.as_bytes())?;
            continue;
        }
        let (inner, after) = template
            .split_once(&format!("{{{{/{wanted}}}}}"))
            .unwrap_or((template, ""));
        template = after;
        let each = match &*value {
            Value::Array(list) => list,
            Value::Null | Value::Bool(false) => &[][..],
            other if other == 0 || other == "" => &[],
            other => slice::from_ref(other),
        };
        if tag.starts_with('#') {
            each.iter()
                .try_for_each(|one| fill(inner, &[values, &[one]].concat(), escape, out))?;
        } else if each.is_empty() {
            fill(inner, values, escape, out)?;
        }
    }
    Ok(out.write_all(template.as_bytes())?)
}

fn text(value: &Value) -> String {
    match (value, value.as_u64()) {
        (Value::String(text), _) => text.clone(),
        (Value::Array(list), _) => list.iter().map(text).joined(", "),
        (_, Some(count)) => number(count),
        // Without a needless `.0`.
        (value, _) => value
            .as_f64()
            .map(|number| number.to_string())
            .unwrap_or_default(),
    }
}

/// The value that a filter, a word with its argument, makes of another.
fn filter(value: &Value, filter: &str) -> Value {
    let (filter, argument) = filter.split_once(' ').unwrap_or((filter, ""));
    let text = value.as_str().unwrap_or_default();
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let at = argument.parse().unwrap_or(0).min(list.len());
    match filter {
        "count" => list.len().into(),
        "first" => list[..at].into(),
        "rest" => list[at..].into(),
        "named" => named(
            &list.iter().filter_map(Value::as_str).collect::<Vec<_>>(),
            list.len() as u64,
        )
        .into(),
        "digits" => value.to_string().into(),
        "took" => value.as_f64().map(spoken).into(),
        "size" => value.as_u64().map(size).into(),
        "minute" => minute(text).into(),
        "plain" => plain(text).into(),
        "prose" => prose(text).into(),
        // The argument is the kind of the anchor.
        _ => anchor(argument, &[text]).into(),
    }
}

/// Escapes text for any place in the page, including attributes; control characters, which HTML
/// refuses, and those that reverse the order of letters become visible escapes.
pub(super) fn escape(text: &str) -> String {
    xml::escape(&visible::text(text), false)
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// A sentence with words between backticks as code.
fn prose(text: &str) -> String {
    text.split('`')
        .map(escape)
        .enumerate()
        .map(|(at, part)| {
            if at % 2 == 0 {
                part
            } else {
                format!("<code>{part}</code>")
            }
        })
        .collect()
}

/// The anchor of an entry: readable for a single name, and the same in every run and version.
pub(super) fn anchor(kind: &str, names: &[&str]) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    match names {
        [name] if name.len() <= READABLE && !name.is_empty() && name.chars().all(harmless) => {
            format!("{kind}-{name}")
        }
        names => format!("{kind}-{}", letters(digest(names))),
    }
}

/// FNV-1a.
fn digest(names: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in names.iter().flat_map(|name| name.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// The lowest bits of a digest as letters and digits.
fn letters(hash: u64) -> String {
    let letter =
        |at| char::from(b"0123456789abcdefghjkmnpqrstvwxyz"[(hash >> (5 * at) & 31) as usize]);
    (0..LETTERS).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    #[test]
    fn templates_escape_repeat_and_omit() {
        let page = json!({
            "name": "<a> & b", "markup": "<b>", "count": 12_345, "x": 1.5, "none": null, "empty": [], "zero": 0,
            "words": ["a", "b", "c"], "plugin": "e2e",
            "list": [{"name": "one", "inner": ["p", "q"]}, {"inner": []}],
        });
        for (template, expected) in [
            (
                "{{name}} {{&markup}} {{count}} {{x}}",
                "&lt;a&gt; &amp; b <b> 12,345 1.5",
            ),
            (
                "{{#list}}{{name}}:{{#inner}}[{{.}}]{{/inner}}{{^inner}}-{{/inner}};{{/list}}",
                "one:[p][q];&lt;a&gt; &amp; b:-;",
            ),
            (
                "{{#none}}x{{/none}}{{#empty}}x{{/empty}}{{#zero}}x{{/zero}}{{#absent}}x{{/\
                 absent}}.",
                ".",
            ),
            (
                "{{#count}}{{count}} {{name}}{{/count}}{{^zero}}none{{/zero}}",
                "12,345 &lt;a&gt; &amp; bnone",
            ),
            (
                "{{#words|count}}{{.}}: {{words|first 2}} +{{words|rest 2|count}}{{/words|count}}",
                "3: a, b +1",
            ),
            (
                "{{count|digits}} {{x|took}} {{plugin|id plugin}}",
                "12345 1.5 s plugin-e2e",
            ),
        ] {
            let mut out = Vec::new();
            fill(template, &[&page], escape, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn backticks_are_rendered_as_code() {
        assert_eq!(
            prose("run `a <b>` and `c`"),
            "run <code>a &lt;b&gt;</code> and <code>c</code>"
        );
        assert_eq!(prose("`open"), "<code>open</code>");
    }

    #[test]
    fn template_names_are_kept() {
        assert_eq!(anchor("plugin", &["e2e"]), "plugin-e2e");
        assert_eq!(
            anchor("t", &["e2e", "", "a test"]),
            anchor("t", &["e2e", "", "a test"])
        );
        assert_eq!(anchor("plugin", &["a b"]).len(), "plugin-".len() + 8);
        assert_ne!(anchor("t", &["a", "b"]), anchor("t", &["ab", ""]));
    }
}
