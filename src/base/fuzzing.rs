//! What the fuzzers call; their corpus is also a test.

pub use crate::archive::consistent as archive;
use crate::pattern::{compile, quote};

/// Any bytes are compiled as a pattern or refused, a compiled pattern matches in linear time, and
/// quoted text matches itself.
pub fn pattern(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match compile(text) {
        Ok(pattern) => _ = pattern.is_match(&"ab1 \n".repeat(200)),
        Err(why) => assert!(!why.is_empty()),
    }
    if text.len() < 1_000 {
        let quoted = compile(&format!("^(?s:{})$", quote(text))).expect("what is quoted");
        assert!(quoted.is_match(text));
    }
}
