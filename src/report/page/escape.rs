//! Escapes text of an archive for the page, and names anchors that are the same in every run.

use base::visible;

/// Maximum readable letters of an anchor.
const READABLE: usize = 40;
/// Letters of a digest, five bits each.
const LETTERS: u32 = 8;

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
    let mut parts = text.split('`');
    let mut out = escape(parts.next().unwrap_or_default());
    let mut code = true;
    for part in parts {
        out.push_str(if code { "<code>" } else { "</code>" });
        out.push_str(&escape(part));
        code = !code;
    }
    if !code {
        out.push_str("</code>");
    }
    out
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
pub(super) fn letters(mut hash: u64) -> String {
    let mut text = String::new();
    for _ in 0..LETTERS {
        text.push(char::from(b"0123456789abcdefghjkmnpqrstvwxyz"[(hash & 31) as usize]));
        hash >>= 5;
    }
    text
}

/// The two ends of a long text.
pub(super) fn ends(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    let (mut first, mut last) = (limit / 2, text.len() - limit / 2);
    while !text.is_char_boundary(first) {
        first -= 1;
    }
    while !text.is_char_boundary(last) {
        last += 1;
    }
    format!("{}\n[… {} bytes left out …]\n{}", &text[..first], last - first, &text[last..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

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
