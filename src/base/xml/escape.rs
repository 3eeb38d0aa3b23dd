//! Escaping of text in XML.

/// Escapes a text so that XML parsers return it, as far as XML can express it.
pub fn escape(text: &str, in_attribute: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' if in_attribute => out.push_str("&quot;"),
            '\n' | '\t' if in_attribute => out.push_str(&format!("&#{};", u32::from(c))),
            '\r' => out.push_str("&#13;"),
            '\n' | '\t' => out.push(c),
            // XML cannot express these characters in any form.
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}
