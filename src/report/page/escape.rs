//! Text of an archive inside the page, and names of places in it that are the same in every run.

use base::visible;

/// How much of a name is readable in the name of its place.
const READABLE: usize = 40;

/// Text for anywhere in the page, attributes included; control characters, which HTML refuses, and those that turn the
/// order of letters round are shown as escapes.
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

/// A place by what it shows: readable where one name tells it, and the same in every run and every version.
pub(super) fn anchor(kind: &str, names: &[&str]) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    match names {
        [name] if name.len() <= READABLE && !name.is_empty() && name.chars().all(harmless) => {
            format!("{kind}-{name}")
        }
        names => format!("{kind}-{}", digest(names)),
    }
}

/// FNV-1a, as letters and digits.
fn digest(names: &[&str]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in names.iter().flat_map(|name| name.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut text = String::new();
    for _ in 0..8 {
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
    fn places_keep_their_names() {
        assert_eq!(anchor("plugin", &["e2e"]), "plugin-e2e");
        assert_eq!(anchor("t", &["e2e", "", "a test"]), anchor("t", &["e2e", "", "a test"]));
        assert_eq!(anchor("plugin", &["a b"]).len(), "plugin-".len() + 8);
        assert_ne!(anchor("t", &["a", "b"]), anchor("t", &["ab", ""]));
    }
}
