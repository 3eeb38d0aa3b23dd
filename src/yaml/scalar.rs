//! Meaning of unquoted words in YAML 1.1, as read by kubectl's Go library: `0644` is octal, `yes`
//! is a boolean, a date stays text, base-60 numbers do not exist. Also tells which texts must be
//! quoted so that readers of every version take them for text.

use serde_json::Number;

use super::Content;

/// The meaning of a word without quotes; `Err` for numbers that JSON cannot express.
pub fn resolve(word: &str) -> Result<Content, &'static str> {
    if matches!(unsigned(word), ".inf" | ".Inf" | ".INF")
        || matches!(word, ".nan" | ".NaN" | ".NAN")
    {
        return Err("infinity and not-a-number cannot be used here");
    }
    Ok(match word {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Content::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Content::Bool(false)
        }
        _ => number(word).map_or_else(|| Content::Text(word.to_owned()), Content::Number),
    })
}

/// Whether text must be quoted because some reader would interpret it as another type.
pub(super) fn is_ambiguous(word: &str) -> bool {
    !matches!(resolve(word), Ok(Content::Text(_)))
        || matches!(word, "<<" | "=")
        || is_date(word)
        || is_sixty_based(word)
}

/// `2001-01-01`, with or without a time of day.
fn is_date(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() > 5
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[5..]
            .iter()
            .all(|b| b.is_ascii_digit() || b"-:.+ tTzZ".contains(b))
}

/// `190:20:30`, a number in older versions.
fn is_sixty_based(word: &str) -> bool {
    let digits = unsigned(word);
    digits.contains(':')
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || b":._".contains(&b))
}

fn unsigned(word: &str) -> &str {
    word.strip_prefix(['+', '-']).unwrap_or(word)
}

/// An integer with a prefix for its base, or a float.
fn number(word: &str) -> Option<Number> {
    match word.as_bytes()[0] {
        b'.' => float(word),
        b'+' | b'-' | b'0'..=b'9' => {
            let word = word.replace('_', "");
            integer(&word).or_else(|| float(&word))
        }
        _ => None,
    }
}

fn integer(word: &str) -> Option<Number> {
    let digits = unsigned(word);
    let negative = word.starts_with('-');
    let lower = digits.to_ascii_lowercase();
    let (digits, base) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (lower.as_str(), 10),
    };
    // from_str_radix would accept a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let size = u64::from_str_radix(digits, base).ok()?;
    if negative {
        0_i64.checked_sub_unsigned(size).map(Number::from)
    } else {
        Some(size.into())
    }
}

/// A decimal float; whole numbers become integers, as they do when passing through Go's JSON.
fn float(word: &str) -> Option<Number> {
    let digits = unsigned(word);
    let plain = digits
        .bytes()
        .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let value: f64 = if plain {
        word.parse().ok()?
    } else {
        return None;
    };
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Some((value as i64).into());
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    #[test]
    fn scalars_are_typed_like_go() {
        for (word, meaning) in [
            ("0644", json!(420)),
            ("0400", json!(256)),
            ("0o644", json!(420)),
            ("08", json!(8)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("-0b101", json!(-5)),
            ("1_000", json!(1000)),
            ("+12", json!(12)),
            ("-12", json!(-12)),
            (
                "18446744073709551615",
                json!(18_446_744_073_709_551_615_u64),
            ),
            ("-9223372036854775808", json!(i64::MIN)),
            ("1e3", json!(1000)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("5.", json!(5)),
            ("100000000000000000000", json!(1e20)),
            ("yes", json!(true)),
            ("y", json!(true)),
            ("On", json!(true)),
            ("n", json!(false)),
            ("OFF", json!(false)),
            ("yEs", json!("yEs")),
            ("~", json!(null)),
            ("Null", json!(null)),
            ("2001-01-01", json!("2001-01-01")),
            ("2001-01-01T00:00:00Z", json!("2001-01-01T00:00:00Z")),
            ("12:30:45", json!("12:30:45")),
            ("1.19.0", json!("1.19.0")),
            ("--1", json!("--1")),
            ("-", json!("-")),
            ("0x", json!("0x")),
            ("1e", json!("1e")),
            (".", json!(".")),
            ("v1", json!("v1")),
        ] {
            let node = super::super::Node {
                position: Default::default(),
                content: resolve(word).unwrap(),
            };
            assert_eq!(node.into_value(), meaning, "{word}");
        }
        for word in [".inf", "-.Inf", "+.INF", ".nan"] {
            assert!(resolve(word).is_err(), "{word}");
        }
    }

    #[test]
    fn ambiguous_scalars_are_detected() {
        for word in [
            "",
            "~",
            "null",
            "n",
            "Y",
            "yes",
            "off",
            "true",
            "8099",
            "0644",
            "0x1",
            "1e3",
            "1.5",
            ".5",
            "-.inf",
            ".nan",
            "2001-01-01",
            "2001-12-14 21:59:43.10 -5",
            "1:30",
            "190:20:30",
            "0o7",
            "1_000",
            "<<",
            "=",
            "+1",
            "0b1",
            "08",
        ] {
            assert!(is_ambiguous(word), "{word}");
        }
        for word in [
            "v1.30.0",
            "Job",
            "hello world",
            "1.19.0-rc.1",
            "/node",
            "e2e",
            "yEs",
            "-v=4",
            "--level=info",
            "a",
        ] {
            assert!(!is_ambiguous(word), "{word}");
        }
    }
}
