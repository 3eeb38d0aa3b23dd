//! JSON on one line, byte for byte as Go writes it: markup escaped, floats without a needless `.0`.

use serde_json::Value;

/// Appends a value.
pub(crate) fn value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => string(out, text),
        Value::Number(number) if number.is_f64() => float(out, number.as_f64().unwrap_or_default()),
        Value::Array(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                self::value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => object(out, map.iter(), self::value),
        other => out.push_str(&other.to_string()),
    }
}

/// Appends an object, its entries in the order given.
pub(crate) fn object<'a, V: 'a>(
    out: &mut String,
    entries: impl Iterator<Item = (&'a String, &'a V)>,
    value: impl Fn(&mut String, &V),
) {
    out.push('{');
    for (at, (key, item)) in entries.enumerate() {
        if at > 0 {
            out.push(',');
        }
        string(out, key);
        out.push(':');
        value(out, item);
    }
    out.push('}');
}

/// Appends a string.
pub(crate) fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn float(out: &mut String, number: f64) {
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        // `1e+21` but `1e-7`: Go shortens only exponents below zero.
        out.push_str(&format!("{number:e}").replace('e', if size < 1.0 { "e" } else { "e+" }));
    } else {
        out.push_str(&number.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_go_writes() {
        let json =
            base::json::json!({"b": [1.0, 1.5, 1e21, 1e-7, -3, null], "a": "<&>\u{1}\u{8}\"\\\n\u{2028}ä"});
        let mut out = String::new();
        value(&mut out, &json);
        assert_eq!(out, r#"{"a":"\u003c\u0026\u003e\u0001\b\"\\\n\u2028ä","b":[1,1.5,1e+21,1e-7,-3,null]}"#);
    }
}
