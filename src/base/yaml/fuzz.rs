//! What must hold for any bytes as YAML; called by the fuzzers and, with their corpus, by a test.

use super::{parse_all, write};

/// A text is read, or refused with a place; what was read survives being written and read again.
pub fn consistent(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_all(text) {
        Ok(documents) => {
            for document in documents {
                let written = write(&document);
                assert_eq!(parse_all(&written).expect("what was written"), [document], "{written}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_fuzzers_found_stays_sound() {
        crate::testing::corpus("yaml").for_each(|bytes| super::consistent(&bytes));
    }
}
