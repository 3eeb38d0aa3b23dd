//! The file name that a sender wishes for its result: the `filename` of a `Content-Disposition` header.
//!
//! Reads the header exactly as the servers that existing workers were written against do (RFC 2183 with the
//! continuations and encodings of RFC 2231), and makes the name harmless. Whatever is not valid means "no name".

use std::collections::BTreeMap;

use client::protocol::DEFAULT_FILE_NAME;

/// File systems refuse longer names.
const MAX_NAME_BYTES: usize = 255;

/// The name to store a body under; [`DEFAULT_FILE_NAME`] when the header gives none that can be used.
pub(super) fn file_name(header: Option<&str>) -> String {
    header
        .and_then(parameters)
        .and_then(|parameters| parameters.get("filename").cloned())
        .and_then(|wish| harmless(&wish))
        .unwrap_or_else(|| DEFAULT_FILE_NAME.into())
}

/// The last component of `wish`, if it can be a file name. The end of an overlong name is kept, because
/// processing goes by suffix.
fn harmless(wish: &str) -> Option<String> {
    let name = wish.rsplit(['/', '\\']).next()?;
    if matches!(name, "" | "." | "..") || name.chars().any(char::is_control) {
        return None;
    }
    let mut from = name.len().saturating_sub(MAX_NAME_BYTES);
    while !name.is_char_boundary(from) {
        from += 1;
    }
    Some(name[from..].to_owned())
}

/// All parameters by lower-case name, with the pieces of RFC 2231 put together; `None` if anything is malformed.
fn parameters(header: &str) -> Option<BTreeMap<String, String>> {
    let kind = header.split(';').next()?;
    disposition_type(kind.trim())?;
    let mut rest = header[kind.len()..].trim_start();
    let mut plain = BTreeMap::new();
    let mut pieces: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    while !rest.is_empty() {
        let Some((name, value, after)) = parameter(rest) else {
            // A semicolon at the end is common and means nothing.
            if rest.trim() == ";" {
                break;
            }
            return None;
        };
        let group = match name.split_once('*') {
            Some((base, _)) => pieces.entry(base.to_owned()).or_default(),
            None => &mut plain,
        };
        if group.get(&name).is_some_and(|earlier| *earlier != value) {
            return None;
        }
        group.insert(name, value);
        rest = after.trim_start();
    }
    for (base, pieces) in &pieces {
        if let Some(value) = joined(base, pieces) {
            plain.insert(base.clone(), value);
        }
    }
    Some(plain)
}

/// `attachment`, `form-data`, or anything of the form `type` or `type/subtype`.
fn disposition_type(text: &str) -> Option<()> {
    let (kind, rest) = token(text);
    let subtype = match rest.strip_prefix('/') {
        None => rest.is_empty(),
        Some(subtype) => !subtype.is_empty() && token(subtype).1.is_empty(),
    };
    (!kind.is_empty() && subtype).then_some(())
}

/// One `; name=value` and what follows it.
fn parameter(text: &str) -> Option<(String, String, &str)> {
    let (name, rest) = token(text.trim_start().strip_prefix(';')?.trim_start());
    if name.is_empty() {
        return None;
    }
    let (value, rest) = value(rest.trim_start().strip_prefix('=')?.trim_start())?;
    Some((name.to_ascii_lowercase(), value, rest))
}

/// A token, or a quoted string without its quotes.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (word, rest) = token(text);
        return (!word.is_empty()).then(|| (word.to_owned(), rest));
    };
    let mut out = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &quoted[at + 1..])),
            '\r' | '\n' => return None,
            // Only specials are escaped, so that unescaped Windows paths survive.
            '\\' => match chars.next_if(|(_, next)| is_special(*next)) {
                Some((_, escaped)) => out.push(escaped),
                None => out.push('\\'),
            },
            _ => out.push(c),
        }
    }
    None
}

/// The longest token at the beginning, and the rest.
fn token(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_graphic() || is_special(c)).unwrap_or(text.len());
    text.split_at(end)
}

fn is_special(c: char) -> bool {
    "()<>@,;:\\\"/[]?=".contains(c)
}

/// The value of `base` from `base*`, or from `base*0`, `base*1*` and so on.
fn joined(base: &str, pieces: &BTreeMap<String, String>) -> Option<String> {
    if let Some(whole) = pieces.get(&format!("{base}*")) {
        return with_charset(whole).map(|bytes| lossy(&bytes));
    }
    let mut out = Vec::new();
    for number in 0.. {
        if let Some(plain) = pieces.get(&format!("{base}*{number}")) {
            out.extend_from_slice(plain.as_bytes());
        } else if let Some(encoded) = pieces.get(&format!("{base}*{number}*")) {
            let part = if number == 0 { with_charset(encoded) } else { unescaped(encoded) };
            out.extend(part.unwrap_or_default());
        } else {
            return (number > 0).then(|| lossy(&out));
        }
    }
    None
}

/// `charset'language'percent-encoded`; only charsets that are a part of UTF-8.
fn with_charset(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.splitn(3, '\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    matches!(charset.to_ascii_lowercase().as_str(), "utf-8" | "us-ascii").then(|| unescaped(encoded))?
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, name: &str) {
        assert_eq!(file_name(Some(header)), name, "{header}");
    }

    #[test]
    fn tokens_and_quoted_strings() {
        assert_eq!(file_name(None), "result");
        check("attachment;filename=a.tar.gz", "a.tar.gz");
        check("attachment; filename=a.xml", "a.xml");
        check("ATTACHMENT ; FileName = a.xml", "a.xml");
        check("form-data; name=x; filename=\"a b.xml\"", "a b.xml");
        check("attachment; filename=\"a\\\"b.xml\"", "a\"b.xml");
        check("attachment; filename=\"ä.xml\"", "ä.xml");
        check("attachment; filename=a.xml;", "a.xml");
        check("attachment; filename=a.xml ; ", "a.xml");
        check("attachment; filename=a; filename=a", "a");
        check("attachment/x; filename=a", "a");
    }

    #[test]
    fn what_is_invalid_is_no_name() {
        for header in [
            "",
            ";filename=a",
            "attachment",
            "attachment;filename",
            "attachment;filename=",
            "attachment;filename=\"\"",
            "attachment;filename=a b",
            "attachment;filename=a(1).xml",
            "attachment;filename=ä.xml",
            "attachment;filename=a/b",
            "attachment;filename=a=b",
            "attachment;filename=\"a",
            "attachment;filename=a;filename=b",
            "attachment;;filename=a",
            "attachment,filename=a",
            "attach ment;filename=a",
            "attachment/;filename=a",
            "attachment; filename*=latin-1''a",
            "attachment; filename*=utf-8'a",
            "attachment; filename*=utf-8''%zz",
        ] {
            check(header, "result");
        }
    }

    #[test]
    fn encodings_and_continuations() {
        check("attachment; filename*=utf-8''%e2%82%ac.xml", "€.xml");
        check("attachment; filename*=US-ASCII'en'a%20b", "a b");
        check("attachment; filename=plain; filename*=utf-8''starred", "starred");
        check("attachment; filename*0=a; filename*1=b.xml", "ab.xml");
        check("attachment; filename*1=b; filename*0=a", "ab");
        check("attachment; filename*0*=utf-8''%e2%82; filename*1*=%ac; filename*2=.xml", "€.xml");
        check("attachment; filename*1=b", "result");
    }

    #[test]
    fn names_stay_in_their_folder() {
        check("attachment; filename=\"../../etc/passwd\"", "passwd");
        check("attachment; filename=\"..\"", "result");
        check("attachment; filename=\"a/\"", "result");
        check("attachment; filename=\"c:\\temp\\a.xml\"", "a.xml");
        check("attachment; filename*=utf-8''a%00b", "result");
        check("attachment; filename*=utf-8''..%2fb", "b");
        check("attachment; filename*=utf-8''a%0ab", "result");
        let long = format!("attachment; filename={}.xml", "a".repeat(300));
        let name = file_name(Some(&long));
        assert!(name.len() == 255 && name.ends_with("aaa.xml"), "{name}");
        assert_eq!(file_name(Some(&format!("attachment; filename=\"{}\"", "€".repeat(100)))).len(), 255);
    }

    #[test]
    fn no_header_panics_or_escapes() {
        let alphabet = b"a*0'%2f\\\"/;= \t.x\xc3\xa4(\0";
        let random = ring::rand::SystemRandom::new();
        let mut bytes = [0_u8; 48];
        for _ in 0..20_000 {
            ring::rand::SecureRandom::fill(&random, &mut bytes).unwrap();
            let tail: Vec<u8> =
                bytes.iter().map(|byte| alphabet[usize::from(*byte) % alphabet.len()]).collect();
            let header = format!("attachment; filename{}", String::from_utf8_lossy(&tail));
            let name = file_name(Some(&header));
            assert!(harmless(&name).as_deref() == Some(&name), "{header:?} gave {name:?}");
        }
    }
}
