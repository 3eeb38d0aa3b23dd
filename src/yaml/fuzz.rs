//! Invariants of the YAML reader and writer for any bytes; called by the fuzzers and, with their
//! corpus, by a test.

use super::{parse_all, write};

/// Checks that a text is either read or rejected with a position, and that reading survives a round
/// trip.
pub fn consistent(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parse_all(text) {
        Ok(documents) => {
            for document in documents {
                let written = write(&document);
                assert_eq!(
                    parse_all(&written).expect("what was written"),
                    [document],
                    "{written}"
                );
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Fuzzers stop at every panic, even a caught one; the parser's known panics are silenced.
#[cfg(fuzzing)]
pub(super) fn tolerate_parser() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let end = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic
                .location()
                .is_some_and(|place| place.file().contains("libyaml-safer"))
            {
                end(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_findings_stay_fixed() {
        base::testing::corpus("yaml").for_each(|bytes| super::consistent(&bytes));
    }
}
