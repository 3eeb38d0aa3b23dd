//! Invariants for any response of a registry; called by the fuzzer and, with its corpus, by a test.

use super::registry::fields;
use super::{Descriptor, Reference};
use base::json;

/// Checks that bytes are read as a challenge, a name and a manifest, or rejected, and that names
/// survive a round trip.
pub fn consistent(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let held: usize = fields(&text)
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    assert!(held <= text.len());
    if let Ok(name) = Reference::parse(&text) {
        let written = name.to_string();
        assert_eq!(
            Reference::parse(&written).map(|name| name.to_string()).ok(),
            Some(written)
        );
    }
    if let Ok(document) = json::from_slice(bytes) {
        let lists = ["manifests", "layers"]
            .map(|key| document[key].as_array().cloned().unwrap_or_default());
        for value in lists
            .iter()
            .flatten()
            .chain([&document["config"], &document])
        {
            if let Some(blob) = Descriptor::read(value) {
                assert_eq!(
                    Descriptor::read(&serde_json::to_value(&blob).expect("it is JSON"))
                        .map(|blob| blob.digest),
                    Some(blob.digest)
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_findings_stay_fixed() {
        base::testing::corpus("registry").for_each(|bytes| super::consistent(&bytes));
    }
}
