//! The tests that have finished, from progress updates: if a plugin never sends a result, another run can resume there.
//!
//! One line per test in a file of the run. Best effort: write errors are ignored.

use std::fs::{File, create_dir_all};
use std::io::{self, Write as _};
use std::path::Path;

use crate::layout;
use client::protocol::ResultId;

/// Maximum bytes of one plugin; the names of all tests of Kubernetes have two MiB.
const MAX_BYTES: u64 = 4 << 20;

/// Notes the test that the message of an update reports, in the folder of a run.
pub(crate) fn note(run_dir: &Path, id: &ResultId, message: &str) {
    if !id.is_global() || layout::ran_test(message).is_none() || message.contains('\n') {
        return;
    }
    let path = run_dir.join(layout::ran(&id.plugin));
    let append = || -> io::Result<()> {
        path.parent().map_or(Ok(()), create_dir_all)?;
        let mut file = File::options().create(true).append(true).open(&path)?;
        if file.metadata()?.len() < MAX_BYTES {
            // One write, since several threads append.
            file.write_all(format!("{message}\n").as_bytes())?;
        }
        Ok(())
    };
    if let Err(error) = append() {
        log::debug!("`{}`: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_tests_are_noted_up_to_the_limit() {
        let folder = base::temp::Folder::new().unwrap();
        let (id, node) = (ResultId::global("e2e"), ResultId::on_node("e2e", "n"));
        for message in ["Test Suite starting", "PASSED [sig-a] a", "FAILED b", "PASSED two\nlines", ""] {
            note(&folder, &id, message);
        }
        note(&folder, &node, "PASSED c");
        let path = folder.join(layout::ran("e2e"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "PASSED [sig-a] a\nFAILED b\n");
        File::options().write(true).open(&path).unwrap().set_len(MAX_BYTES).unwrap();
        note(&folder, &id, "PASSED d");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MAX_BYTES);
        assert_eq!(layout::plugin_of_ran(&layout::ran("e2e")), Some("e2e"));
    }
}
