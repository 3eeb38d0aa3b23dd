//! The tests that have run, as progress tells: should a plugin never send a result, another run can go on from there.
//!
//! A line for each in a file of the run. It is a help, so what cannot be written is left out.

use std::fs::{File, create_dir_all};
use std::io::{self, Write as _};
use std::path::Path;

use crate::layout;
use client::protocol::ResultId;

/// So much is kept of one plugin; the names of all tests there are take two MiB.
const MAX_RAN_BYTES: u64 = 4 << 20;

/// Notes a test in the folder of a run, if the message of an update is about one.
pub(super) fn note(run_dir: &Path, id: &ResultId, message: &str) {
    if !id.is_global() || layout::ran_test(message).is_none() || message.contains('\n') {
        return;
    }
    let path = run_dir.join(layout::ran(&id.plugin));
    let append = || -> io::Result<()> {
        path.parent().map_or(Ok(()), create_dir_all)?;
        let mut file = File::options().create(true).append(true).open(&path)?;
        if file.metadata()?.len() < MAX_RAN_BYTES {
            // As one piece, whoever writes beside it.
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
    fn only_tests_that_have_ended_are_noted_and_no_more_than_fit() {
        let folder = base::temp::Folder::new().unwrap();
        let (id, node) = (ResultId::global("e2e"), ResultId::on_node("e2e", "n"));
        for message in ["Test Suite starting", "PASSED [sig-a] a", "FAILED b", "PASSED two\nlines", ""] {
            note(&folder, &id, message);
        }
        note(&folder, &node, "PASSED c");
        let path = folder.join(layout::ran("e2e"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "PASSED [sig-a] a\nFAILED b\n");
        File::options().write(true).open(&path).unwrap().set_len(MAX_RAN_BYTES).unwrap();
        note(&folder, &id, "PASSED d");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MAX_RAN_BYTES);
        assert_eq!(layout::plugin_of_ran(&layout::ran("e2e")), Some("e2e"));
    }
}
