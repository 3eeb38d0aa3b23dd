//! Numbers with their nouns, in sentences.

use crate::Joined as _;

/// `1 test`, `2,000 tests`.
pub fn count(count: impl ToString, noun: &str) -> String {
    let number = number(count);
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// 12,345.
pub fn number(count: impl ToString) -> String {
    count
        .to_string()
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .joined(",")
}
