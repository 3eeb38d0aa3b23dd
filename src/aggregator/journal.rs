//! The journal of a run: what was expected and what was accepted, in the order in which it became true.
//!
//! One JSON object a line, appended with one write and synced before anybody is told. Knows nothing of the files
//! that hold the results. Needs no lock: the file is opened for appending, and every record *begins* with the line
//! break, so a record that was cut by a crash or a full disk spoils no other.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::protocol::ResultId;

/// No record of ours is longer: the list of expected results of 100,000 nodes with long names.
const LONGEST_RECORD: u64 = 64 << 20;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Record {
    /// The run began with these results expected.
    Expected(Vec<ResultId>),
    /// A real result is in place.
    Accepted {
        /// Which.
        id: ResultId,
        /// SHA-256 of the body as it was sent, in hexadecimal; empty if it is not known any more.
        sha256: String,
        /// Bytes of the body.
        size: u64,
        /// When, RFC 3339.
        at: String,
    },
    /// An error stands where the result should be.
    Failed {
        /// Which.
        id: ResultId,
        /// The sentence.
        error: String,
        /// Whether a time limit was the reason.
        timed_out: bool,
        /// When, RFC 3339.
        at: String,
    },
}

/// The open journal.
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Opens or creates the journal at `path` and reads what is in it.
    pub(super) fn open(path: &Path) -> anyhow::Result<(Self, Vec<Record>)> {
        let open = || {
            let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
            let records = replay(BufReader::new(&file))?;
            anyhow::Ok((Self { file }, records))
        };
        open().with_context(|| format!("journal `{}`", path.display()))
    }

    /// Appends `record`; it is on the disk when this returns.
    pub(super) fn append(&self, record: &Record) -> std::io::Result<()> {
        let line = format!("\n{}", serde_json::to_string(record)?);
        (&self.file).write_all(line.as_bytes())?;
        self.file.sync_data()
    }
}

/// All whole records. Torn ones are left out: whoever wrote them was never told that they stand.
fn replay(mut input: impl BufRead) -> std::io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(LONGEST_RECORD).read_until(b'\n', &mut line)? == 0 {
            return Ok(records);
        }
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(error) => log::warn!("a torn record in the journal is left out: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let id = ResultId::on_node("p", "n\n1");
        vec![
            Record::Expected(vec![id.clone(), ResultId::global("q")]),
            Record::Accepted { id: id.clone(), sha256: "00".into(), size: 3, at: "t".into() },
            Record::Failed { id, error: "timeout".into(), timed_out: true, at: "t".into() },
        ]
    }

    fn text() -> Vec<u8> {
        records()
            .iter()
            .flat_map(|record| format!("\n{}", serde_json::to_string(record).unwrap()).into_bytes())
            .collect()
    }

    #[test]
    fn what_was_appended_is_read_again() {
        let path = std::env::temp_dir().join(format!("sonobuoy-journal-{}", std::process::id()));
        for times in 1..3 {
            let (journal, _) = Journal::open(&path).unwrap();
            records().iter().for_each(|record| journal.append(record).unwrap());
            assert_eq!(Journal::open(&path).unwrap().1.len(), 3 * times);
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_cut_anywhere_loses_only_what_was_cut() {
        let text = text();
        for end in 0..=text.len() {
            let whole = replay(&text[..end]).unwrap();
            assert_eq!(whole, records()[..whole.len()], "cut at {end}");
        }
        assert_eq!(replay(&text[..]).unwrap(), records());
        let mut torn = text[..text.len() - 5].to_vec();
        torn.extend(&text);
        assert_eq!(replay(&torn[..]).unwrap().len(), 5, "records after a torn one are read");
    }

    #[test]
    fn damage_is_never_a_panic() {
        let random = ring::rand::SystemRandom::new();
        let mut dice = [0_u8; 8];
        for _ in 0..5_000 {
            ring::rand::SecureRandom::fill(&random, &mut dice).unwrap();
            let mut text = text();
            for pair in dice.chunks(2) {
                let at = usize::from(pair[0]) % text.len();
                text[at] = pair[1];
            }
            assert!(replay(&text[..]).unwrap().len() <= 4);
        }
    }
}
