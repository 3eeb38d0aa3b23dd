//! The headers of an upload: the file name in `Content-Disposition`, and the digest in `Repr-Digest`. Pure.
//!
//! Reads `Content-Disposition` as the servers that existing workers were written against do (RFC 2183 with the encoding of
//! RFC 2231), and makes the name harmless; an invalid header means no name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;

use crate::aggregator::store::Sha256;
use base::visible::tail;
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
    Some(tail(name, MAX_NAME_BYTES).to_owned())
}

const TOKEN: &str = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]+";

/// Patterns of a parameter with its semicolon, of a whole header (`attachment`, `form-data`, or anything of the form
/// `type` or `type/subtype`; a semicolon at the end is common), and of an escape.
static PATTERNS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    let parameter = format!(r#";\s*({TOKEN})\s*=\s*(?:({TOKEN})|"((?:[^"\\\r\n]|\\[^\r\n])*)")"#);
    let header = format!(r"^\s*{TOKEN}(?:/{TOKEN})?\s*(?:{parameter}\s*)*;?\s*$");
    // Only specials are escaped, so that unescaped Windows paths survive.
    let escape = r#"\\([()<>@,;:\\"/\[\]?=])"#;
    [&parameter, &header, escape].map(|pattern| Regex::new(pattern).expect("a valid pattern"))
});

/// All parameters by lower-case name; `None` if anything is malformed.
fn parameters(text: &str) -> Option<BTreeMap<String, String>> {
    let [parameter, header, escape] = &*PATTERNS;
    let mut parameters = BTreeMap::new();
    for found in parameter.captures_iter(Some(text).filter(|text| header.is_match(text))?) {
        let value = match found.get(2) {
            Some(word) => word.as_str().to_owned(),
            None => escape.replace_all(&found[3], "$1").into_owned(),
        };
        if *parameters.entry(found[1].to_ascii_lowercase()).or_insert_with(|| value.clone()) != value {
            return None;
        }
    }
    Some(parameters)
}

/// `charset'language'percent-encoded`; only charsets that are a part of UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.splitn(3, '\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    let is_known = matches!(charset.to_ascii_lowercase().as_str(), "utf-8" | "us-ascii");
    if is_known { base::percent_decoded(encoded) } else { None }
}

/// The value of `Repr-Digest` in a response.
pub(super) fn digest_text(digest: &Sha256) -> String {
    format!("sha-256=:{}:", STANDARD.encode(digest))
}

/// The SHA-256 in all lines of `Repr-Digest`, if any; other kinds are ignored. `None` for a malformed line or two
/// digests that differ.
pub(super) fn announced_digest<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Option<Sha256>> {
    let mut found = None;
    for member in lines.flat_map(|line| line.split(',')) {
        let (kind, value) = member.trim().split_once('=')?;
        let (value, parameters) = value.strip_prefix(':').and_then(|value| value.split_once(':'))?;
        if !parameters.is_empty() && !parameters.starts_with(';') {
            return None;
        }
        if kind.eq_ignore_ascii_case("sha-256") {
            let digest: Sha256 = STANDARD.decode(value).ok().and_then(|d| d.try_into().ok())?;
            if *found.get_or_insert(digest) != digest {
                return None;
            }
        }
    }
    Some(found)
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
    fn invalid_file_names_are_ignored() {
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
    fn rfc_2231_file_names_are_decoded() {
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
    fn header_never_panics_or_escapes_its_folder() {
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

    #[test]
    fn digests_are_those_of_rfc_9530() {
        let (zeros, ones) = (digest_text(&[0; 32]), digest_text(&[1; 32]));
        let check = |lines: &[&str], expected| {
            assert_eq!(announced_digest(lines.iter().copied()), expected, "{lines:?}");
        };
        check(&[], Some(None));
        for lines in [
            &[zeros.as_str()][..],
            &[&format!("sha-512=:AA==:, {}", zeros.replace("sha", "SHA"))],
            &[&format!("{zeros};q=1")],
            &["sha-512=:AA==:", &zeros],
            &[&zeros, &zeros],
            &[&zeros, "crc-32=:AQIDBA==:"],
        ] {
            check(lines, Some(Some([0; 32])));
        }
        check(&["sha-512=:AA==:"], Some(None));
        check(&[&zeros, &ones], None);
        for bad in ["", "sha-256", "sha-256=AA==", "sha-256=:AA==:", "sha-256=:%%:", "sha-256=::"] {
            check(&[bad], None);
            check(&[&zeros, bad], None);
        }
        check(&[&format!("{zeros}x")], None);
    }
}
