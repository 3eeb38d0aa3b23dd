//! Whether the disk still holds what arrived, once no more results do. Starts no thread.

use std::path::Path;

use anyhow::ensure;

use super::Store;
use crate::aggregator::run::ResultState;
use base::at::At as _;
use client::protocol::{Failure, ResultId};

/// Compares the files of all results with what arrived, except those that were unpacked. One that differs, or cannot be read,
/// becomes a failure; returns how many did.
pub(crate) fn verify(store: &Store) -> usize {
    let arrived: Vec<(ResultId, String)> = store.lock().arrived().collect();
    let mut failed = 0;
    for (id, sha256) in arrived {
        if let Err(error) = check(&store.results(&id), &sha256) {
            failed += 1;
            store.lock().settle(&id, ResultState::Awaited);
            let why = format!("the aggregator's disk does not hold the result that arrived: {error:#}");
            store.record(&Failure::new(id, why));
        }
    }
    failed
}

/// Compares the only file of a result.
fn check(folder: &Path, sha256: &str) -> anyhow::Result<()> {
    let files =
        folder.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>).at("cannot read", folder)?;
    ensure!(files.len() == 1, "it has {} files", files.len());
    let file = files[0].path();
    let found = base::hex(base::file_sha256(&file).at("cannot read", &file)?);
    ensure!(found == sha256, "SHA-256 {found} instead of {sha256}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::store::Upload;
    use crate::aggregator::tests::fixture::{Scratch, plain};
    use crate::config::Limits;

    #[test]
    fn an_altered_or_missing_result_fails_unless_it_was_unpacked() {
        let scratch = Scratch::new();
        let ids = ["sound", "altered", "gone", "packed"].map(ResultId::global);
        let open = || Store::open(&scratch.run(), &ids, Limits::default()).unwrap();
        let store = open();
        let [_, altered, gone, packed] = &ids;
        for id in &ids[..3] {
            store.accept(id, Upload { name: Some("f".into()), ..plain(b"x") }).unwrap();
        }
        let folder = base::temp::Folder::new().unwrap();
        std::fs::write(folder.join("f"), "x").unwrap();
        let archive = base::archive::pack(&folder, None, Vec::new()).unwrap();
        store.accept(packed, Upload { is_archive: true, ..plain(&archive) }).unwrap();
        assert_eq!(verify(&store), 0);
        // The digests outlive the aggregator.
        drop(store);
        let store = open();
        for id in [altered, packed] {
            std::fs::write(store.results(id).join("f"), "y").unwrap();
        }
        std::fs::remove_file(store.results(gone).join("f")).unwrap();
        assert_eq!(verify(&store), 2);
        assert_eq!(verify(&store), 0, "each fails once");
        let list = serde_json::to_value(store.lock().received()).unwrap();
        for (at, words) in [(0, None), (1, Some("SHA-256")), (2, Some("it has 0 files")), (3, None)] {
            assert_eq!(list[at]["error"].is_string(), words.is_some(), "{list}");
            assert_eq!(list[at]["failed"].is_string(), words.is_some(), "{list}");
            if let Some(words) = words {
                let report =
                    store.results(&ids[at]).parent().unwrap().with_file_name("errors/global/error.json");
                assert!(std::fs::read_to_string(report).unwrap().contains(words));
            }
        }
    }
}
