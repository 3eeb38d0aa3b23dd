//! SHA-256 of large results whose senders compare the quick digest: taken from the disk when no more results arrive.
//!
//! It is the larger part of the work of receiving, and nobody waits for it while a worker does. The CRC-32 of the receipt
//! tells whether the disk still holds what arrived. Starts no thread.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::digests::{Digest, Digests};
use super::store::Store;
use base::at::At as _;
use base::hex;
use client::protocol::ResultId;

/// How much is read at a time.
const BLOCK: usize = 256 << 10;

/// Takes all that have waited. A result that is not what arrived keeps its CRC-32 in the receipt alone, and is named.
pub(super) fn digest_rest(store: &Store) {
    let waiting: Vec<(ResultId, String)> = store.lock().quick_alone().collect();
    for (id, crc32) in waiting {
        match digests_of(&store.results(&id)) {
            Ok(found) if hex(found.crc32) == crc32 => store.lock().digested(&id, &found),
            Ok(_) => log::error!(
                "`{id}`: its file on the disk is not what arrived (CRC-32 {crc32}); is the disk sound?"
            ),
            Err(error) => log::error!("`{id}`: its digest cannot be taken: {error:#}"),
        }
    }
}

/// The digests of the only file of a result.
fn digests_of(folder: &Path) -> anyhow::Result<Digests> {
    let mut files =
        folder.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>).at("cannot read", folder)?;
    let file = files.pop().context("its folder is empty")?.path();
    ensure!(files.is_empty(), "there are several files");
    let digests = || -> io::Result<Digests> {
        let (mut digest, mut file) = (Digest::new(true), File::open(&file)?);
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block)? {
                0 => return Ok(digest.finish()),
                count => digest.update(&block[..count]),
            }
        }
    };
    digests().at("cannot read", &file)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Scratch, plain};
    use super::super::upload::Upload;
    use super::*;
    use crate::config::Limits;

    /// The receipt of `id` as it comes into the archive.
    fn receipt(store: &Store, id: &ResultId) -> serde_json::Value {
        digest_rest(store);
        let list = serde_json::to_value(store.lock().received()).unwrap();
        let of = |line: &&serde_json::Value| line["plugin"] == id.plugin;
        list.as_array().unwrap().iter().find(of).unwrap().clone()
    }

    #[test]
    fn the_receipt_has_sha_256_in_the_end_if_the_disk_still_holds_what_arrived() {
        let scratch = Scratch::new();
        let ids = ["sound", "spoiled", "gone"].map(ResultId::global);
        let open = || Store::open(&scratch.run(), &ids, Limits::default()).unwrap();
        let body = vec![7; 3 << 20];
        let length = Some(body.len() as u64);
        let store = open();
        for id in &ids {
            let upload =
                Upload { length, is_quick_wanted: true, disposition: Some("a;filename=f"), ..plain(&body) };
            let digests = store.accept(id, upload).unwrap();
            assert_eq!((digests.sha256, digests.text(false).as_str()), (None, ""));
        }
        // What waits outlives the aggregator.
        drop(store);
        let store = open();
        let [sound, spoiled, gone] = &ids;
        let file = |id: &ResultId| store.results(id).join("f");
        std::fs::write(file(spoiled), [&body[1..], b"8"].concat()).unwrap();
        std::fs::remove_file(file(gone)).unwrap();
        let digest = hex(ring::digest::digest(&ring::digest::SHA256, &body));
        let told = receipt(&store, sound);
        assert_eq!((&told["sha256"], &told["crc32"]), (&digest.into(), &serde_json::Value::Null));
        for id in [spoiled, gone] {
            let told = receipt(&store, id);
            assert_eq!(
                (&told["sha256"], told["crc32"].as_str().map(str::len)),
                (&"".into(), Some(8)),
                "{told}"
            );
        }
    }
}
