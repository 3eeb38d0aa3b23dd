//! What must hold for any bytes as an archive; called by the fuzzer and, with its corpus, by a
//! test.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::{Limits, unpack};
use crate::temp;

/// Any bytes are unpacked inside their folder and within the limits, or refused, both as a gzip tar
/// and as a tar inside gzip.
pub fn consistent(bytes: &[u8]) {
    let mut stored = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    stored.write_all(bytes).expect("memory");
    let limits = Limits {
        entries: 50,
        total: 1 << 20,
        file: 1 << 19,
    };
    for archive in [bytes, &stored.finish().expect("memory")] {
        let outer = temp::Folder::new().expect("a folder");
        let into = outer.join("in");
        fs::create_dir_all(&into).expect("a folder");
        let _ = unpack(archive, &into, &limits);
        assert_eq!(
            fs::read_dir(&outer).expect("a folder").count(),
            1,
            "files outside the folder"
        );
        let (files, size) = inside(&into, &into.canonicalize().expect("a folder"));
        assert!(size <= limits.total && files <= 10_000);
    }
}

/// The number of files and their bytes; checks that nothing leads out and nothing is locked or
/// privileged.
fn inside(dir: &Path, root: &Path) -> (u64, u64) {
    let (mut files, mut size) = (0, 0);
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let meta = fs::symlink_metadata(&path).expect("an entry");
        files += 1;
        if meta.is_symlink() {
            assert!(
                path.canonicalize()
                    .expect("no dangling link")
                    .starts_with(root),
                "{path:?} leads out"
            );
        } else if meta.is_dir() {
            assert_eq!(crate::sys::mode(&meta) & 0o7700, 0o700);
            let (below, bytes) = inside(&path, root);
            (files, size) = (files + below, size + bytes);
        } else {
            assert!(meta.is_file() && crate::sys::mode(&meta) & 0o7600 == 0o600);
            size += meta.len();
        }
    }
    (files, size)
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_findings_stay_fixed() {
        crate::testing::corpus("archive").for_each(|bytes| super::consistent(&bytes));
    }
}
