//! File names from elsewhere as names that Windows can have.
//!
//! Pure, and compiled everywhere, so that every system tests it.

#![cfg_attr(
    not(windows),
    allow(dead_code, reason = "only Windows needs it, every system tests it")
)]

/// Device names of Windows, with any extension.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

/// One part of a path as a valid name on Windows: invalid characters become `%` and two hexadecimal
/// digits. The name differs from the part if any were replaced.
pub(super) fn for_windows(part: &[u8]) -> String {
    let mut name = String::with_capacity(part.len());
    for chunk in part.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '<' | '>' | ':' | '"' | '|' | '?' | '*' | '\\' | '/' | '\0'..='\x1f' => {
                    name += &escaped(c as u8);
                }
                c => name.push(c),
            }
        }
        name.extend(chunk.invalid().iter().map(|&byte| escaped(byte)));
    }
    if let Some(last @ ('.' | ' ')) = name.chars().next_back() {
        name.pop();
        name += &escaped(last as u8);
    }
    if is_device(&name) {
        let first = name.remove(0);
        name.insert_str(0, &escaped(first as u8));
    }
    name
}

fn escaped(byte: u8) -> String {
    format!("%{byte:02X}")
}

fn is_device(name: &str) -> bool {
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_ascii_lowercase();
    let numbered = |kind: &str| {
        stem.strip_prefix(kind).is_some_and(|rest| {
            let mut rest = rest.chars();
            matches!(
                (rest.next(), rest.next()),
                (Some('0'..='9' | '¹' | '²' | '³'), None)
            )
        })
    };
    DEVICES.contains(&&*stem) || numbered("com") || numbered("lpt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_invalid_on_windows_are_escaped() {
        for (given, expected) in [
            (&b"plain.txt"[..], "plain.txt"),
            (b"with space", "with space"),
            ("größe".as_bytes(), "größe"),
            (b"12:30:00.log", "12%3A30%3A00.log"),
            (b"a\\b", "a%5Cb"),
            (b"what?*<>|\"", "what%3F%2A%3C%3E%7C%22"),
            (b"line\nbreak", "line%0Abreak"),
            (b"dot.", "dot%2E"),
            (b"dots...", "dots..%2E"),
            (b"blank ", "blank%20"),
            (b"con", "%63on"),
            (b"NUL.txt", "%4EUL.txt"),
            (b"com1", "%63om1"),
            (b"lpt9.tar.gz", "%6Cpt9.tar.gz"),
            (b"con .txt", "%63on .txt"),
            (b"console", "console"),
            (b"com10", "com10"),
            (b"com", "com"),
            (b"\xff\xfe", "%FF%FE"),
        ] {
            assert_eq!(for_windows(given), expected);
        }
    }
}
