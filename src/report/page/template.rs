//! Fills the HTML template of a page.
//!
//! `{{name}}` is a value, escaped, and `{{&name}}` is markup. `{{#name}}…{{/name}}` appears once for each element of a
//! list, or once unless the value is empty, zero or missing; `{{^name}}…{{/name}}` appears only then. A name is that of a
//! member of the innermost object that has it; `.` is the innermost value itself. Whole numbers are counts, whose
//! thousands are separated. Sections of one name do not nest.

use std::io::Write;

use serde_json::Value;

use super::super::words::number;
use base::visible;

/// Maximum readable letters of an anchor.
const READABLE: usize = 40;
/// Letters of a digest, five bits each.
const LETTERS: u32 = 8;

/// Writes a template; `values` are the objects around it, the innermost last.
pub(super) fn fill(mut template: &str, values: &[&Value], out: &mut dyn Write) -> anyhow::Result<()> {
    while let Some((text, rest)) = template.split_once("{{") {
        out.write_all(text.as_bytes())?;
        let (tag, rest) = rest.split_once("}}").unwrap_or((rest, ""));
        template = rest;
        let name = tag.trim_start_matches(['#', '^', '&']);
        let value = match name {
            "." => values.last().copied(),
            name => values.iter().rev().find_map(|value| value.get(name)),
        };
        let value = value.unwrap_or(&Value::Null);
        if tag.starts_with(['#', '^']) {
            let (inner, after) = template.split_once(&format!("{{{{/{name}}}}}")).unwrap_or((template, ""));
            template = after;
            let around = |value| [values, &[value]].concat();
            let is_empty = matches!(value, Value::Null | Value::Bool(false))
                || value.as_u64() == Some(0)
                || value.as_str().is_some_and(str::is_empty)
                || value.as_array().is_some_and(Vec::is_empty);
            match (tag.starts_with('#'), value) {
                (true, Value::Array(list)) => {
                    list.iter().try_for_each(|element| fill(inner, &around(element), out))?;
                }
                (true, value) if !is_empty => fill(inner, &around(value), out)?,
                (false, _) if is_empty => fill(inner, values, out)?,
                _ => {}
            }
            continue;
        }
        match (value, value.as_u64()) {
            (Value::String(text), _) if tag.starts_with('&') => out.write_all(text.as_bytes())?,
            (Value::String(text), _) => out.write_all(escape(text).as_bytes())?,
            (_, Some(count)) => out.write_all(number(count).as_bytes())?,
            // Without a needless `.0`.
            (other, _) => write!(out, "{}", other.as_f64().unwrap_or_default())?,
        }
    }
    Ok(out.write_all(template.as_bytes())?)
}

/// Escapes text for any place in the page, including attributes; control characters, which HTML refuses, and those
/// that reverse the order of letters become visible escapes.
pub(super) fn escape(text: &str) -> String {
    let text = visible::text(text);
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A sentence with words between backticks as code.
pub(super) fn prose(text: &str) -> String {
    let parts = text.split('`').map(escape).enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part } else { format!("<code>{part}</code>") }).collect()
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

/// FNV-1a, cut to the bits that an anchor shows.
pub(super) fn digest(names: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in names.iter().flat_map(|name| name.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash & ((1 << (5 * LETTERS)) - 1)
}

/// A digest as letters and digits.
pub(super) fn letters(hash: u64) -> String {
    let letter = |at| char::from(b"0123456789abcdefghjkmnpqrstvwxyz"[(hash >> (5 * at) & 31) as usize]);
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
            "list": [{"name": "one", "inner": ["p", "q"]}, {"inner": []}],
        });
        for (template, expected) in [
            ("{{name}} {{&markup}} {{count}} {{x}}", "&lt;a&gt; &amp; b <b> 12,345 1.5"),
            (
                "{{#list}}{{name}}:{{#inner}}[{{.}}]{{/inner}}{{^inner}}-{{/inner}};{{/list}}",
                "one:[p][q];&lt;a&gt; &amp; b:-;",
            ),
            ("{{#none}}x{{/none}}{{#empty}}x{{/empty}}{{#zero}}x{{/zero}}{{#absent}}x{{/absent}}.", "."),
            ("{{#count}}{{count}} {{name}}{{/count}}{{^zero}}none{{/zero}}", "12,345 &lt;a&gt; &amp; bnone"),
        ] {
            let mut out = Vec::new();
            fill(template, &[&page], &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn words_between_backticks_are_code() {
        assert_eq!(prose("run `a <b>` and `c`"), "run <code>a &lt;b&gt;</code> and <code>c</code>");
        assert_eq!(prose("`open"), "<code>open</code>");
    }

    #[test]
    fn places_keep_their_names() {
        assert_eq!(anchor("plugin", &["e2e"]), "plugin-e2e");
        assert_eq!(anchor("t", &["e2e", "", "a test"]), anchor("t", &["e2e", "", "a test"]));
        assert_eq!(anchor("plugin", &["a b"]).len(), "plugin-".len() + 8);
        assert_ne!(anchor("t", &["a", "b"]), anchor("t", &["ab", ""]));
    }
}
