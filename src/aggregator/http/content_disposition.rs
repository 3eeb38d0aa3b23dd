//! The file name that a worker requests for its result: the `filename` of a `Content-Disposition` header.
//!
//! Reads the header as the servers that existing workers were written against do: RFC 2183 with the encoding of RFC 2231, and
//! makes the name harmless. An invalid header means no name.

use std::collections::BTreeMap;

use client::protocol::DEFAULT_FILE_NAME;

/// File systems refuse longer names.
const MAX_NAME_BYTES: usize = 255;

/// The name to store a body under; [`DEFAULT_FILE_NAME`] without a usable one.
pub(super) fn file_name(header: &str) -> String {
    let parameters = parameters(header).unwrap_or_default();
    let encoded = parameters.get("filename*").and_then(|value| decoded(value));
    let name = encoded.as_ref().or_else(|| parameters.get("filename"));
    name.and_then(|name| harmless(name)).unwrap_or_else(|| DEFAULT_FILE_NAME.into())
}

/// The last component of `wish`, if it can be a file name. The end of an overlong name is kept, because
/// the suffix decides on its format.
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

/// All parameters by lower-case name; `None` if anything is malformed.
fn parameters(header: &str) -> Option<BTreeMap<String, String>> {
    let kind = header.split(';').next()?;
    disposition_type(kind.trim())?;
    let mut rest = header[kind.len()..].trim();
    let mut parameters = BTreeMap::new();
    // A semicolon at the end is common and means nothing.
    while !matches!(rest, "" | ";") {
        let (name, value, after) = parameter(rest)?;
        if *parameters.entry(name).or_insert_with(|| value.clone()) != value {
            return None;
        }
        rest = after.trim_start();
    }
    Some(parameters)
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

/// `charset'language'percent-encoded`; only charsets that are a part of UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.splitn(3, '\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    let is_known = matches!(charset.to_ascii_lowercase().as_str(), "utf-8" | "us-ascii");
    if is_known { base::percent_decoded(encoded) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, name: &str) {
        assert_eq!(file_name(header), name, "{header}");
    }

    #[test]
    fn tokens_and_quoted_strings() {
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
    fn encodings_and_their_continuations_that_no_worker_sends() {
        check("attachment; filename*=utf-8''%e2%82%ac.xml", "€.xml");
        check("attachment; filename*=US-ASCII'en'a%20b", "a b");
        check("attachment; filename=plain; filename*=utf-8''starred", "starred");
        check("attachment; filename*0=a; filename*1=b.xml", "result");
        check("attachment; filename*0*=utf-8''%e2; filename=plain", "plain");
        check("attachment; filename*=utf-8''%ff", "result");
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
        let name = file_name(&long);
        assert!(name.len() == 255 && name.ends_with("aaa.xml"), "{name}");
        assert_eq!(file_name(&format!("attachment; filename=\"{}\"", "€".repeat(100))).len(), 255);
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
            let name = file_name(&header);
            assert!(harmless(&name).as_deref() == Some(&name), "{header:?} gave {name:?}");
        }
    }
}
