//! The journal of a run: its [`Record`]s in order of time.
//!
//! One JSON object per line after its checksum, appended with one write and synced before any
//! response. Knows nothing of the files that hold the results. Needs no lock: the file is opened
//! for appending, and every record *begins* with the line break, so a record that was cut by a
//! crash or a full disk spoils no other.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::aggregator::run::Record;
use base::at::At as _;
use base::stop::Stop;
use base::sys::{Open as _, try_lock};
use client::protocol::ResultId;

/// Maximum bytes of a record: the list of expected results of 100,000 nodes with long names.
const MAX_RECORD_BYTES: u64 = 64 << 20;

/// Time for a killed aggregator to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The open journal.
pub(super) struct Journal {
    file: File,
}

/// What a journal contains.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Replayed {
    /// All intact records.
    pub records: Vec<Record>,
    /// Whether the first record is damaged: it has the results that the run expected at its start.
    pub lacks_start: bool,
}

impl Replayed {
    /// The results that the run expects: those of its start, and of nodes that joined later.
    pub(super) fn expected(&self) -> Vec<ResultId> {
        let ids = self.records.iter().filter_map(|record| match record {
            Record::Expected(ids) => Some(ids),
            _ => None,
        });
        ids.flatten().cloned().collect()
    }
}

impl Journal {
    /// Opens or creates the journal at `path`, and reads its records. Only one process may open it:
    /// two would disagree about what has arrived.
    pub(super) fn open(path: &Path) -> anyhow::Result<(Self, Replayed)> {
        let open = || {
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)?;
            lock(&file)?;
            let replayed = replay(BufReader::new(&file))?;
            anyhow::Ok((Self { file }, replayed))
        };
        open().at("cannot open the journal", path)
    }

    /// Appends `record`; it is on the disk when this returns.
    pub(super) fn append(&self, record: &Record) -> std::io::Result<()> {
        // One write: in append mode, the lines of two threads never mix.
        (&self.file).write_all(line(record)?.as_bytes())?;
        // The new length of the file, without which the line would be lost, is synced as well.
        self.file.sync_data()
    }
}

/// Locks the file for this process; the system unlocks it when the process ends.
fn lock(file: &File) -> anyhow::Result<()> {
    let (never, end) = (Stop::new(), Instant::now() + LOCK_TIMEOUT);
    loop {
        match try_lock(file) {
            Ok(true) => return Ok(()),
            Ok(false) if Instant::now() < end => {
                never.wait(Duration::from_millis(20));
            }
            Ok(false) => bail!("another aggregator is working on this run; stop that one first"),
            // Some network file systems have no locks, and one aggregator works without.
            Err(error) => {
                log::warn!("the journal cannot be locked against a second aggregator: {error}");
                return Ok(());
            }
        }
    }
}

pub(crate) fn line(record: &Record) -> serde_json::Result<String> {
    let json = serde_json::to_string(record)?;
    Ok(format!("\n{} {json}", checksum(json.as_bytes())))
}

/// Detects damage: a name with one wrong letter would be another name, whose result would be
/// awaited until the end.
fn checksum(json: &[u8]) -> String {
    let mut sum = flate2::Crc::new();
    sum.update(json);
    format!("{:08x}", sum.sum())
}

/// The record of one line, unless it is torn or damaged.
fn parse(line: &[u8]) -> Option<Record> {
    let (sum, json) = line.trim_ascii().split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    (sum == checksum(json).as_bytes())
        .then(|| serde_json::from_slice(json).ok())
        .flatten()
}

/// Reads all records. Torn ones are skipped: their results were never acknowledged.
pub(crate) fn replay(mut input: impl BufRead) -> std::io::Result<Replayed> {
    let mut replayed = Replayed::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input
            .by_ref()
            .take(MAX_RECORD_BYTES)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok(replayed);
        }
        match parse(&line) {
            Some(record) => replayed.records.push(record),
            None if line.trim_ascii().is_empty() => {}
            None => {
                log::warn!("a damaged record in the journal was skipped");
                replayed.lacks_start |= replayed.records.is_empty();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::run::Receipt;
    use client::protocol::FailureKind;

    fn records() -> Vec<Record> {
        let id = ResultId::on_node("p", "n\n1");
        vec![
            Record::Expected(vec![id.clone(), ResultId::global("q")]),
            Record::Started {
                plugin: "p".into(),
                at: "t".into(),
            },
            Record::Accepted {
                id: id.clone(),
                receipt: Receipt {
                    size: 3,
                    ..Receipt::default()
                },
            },
            Record::Failed {
                id,
                error: "timeout".into(),
                kind: FailureKind::TimedOut,
                at: "t".into(),
            },
        ]
    }

    fn text() -> Vec<u8> {
        records()
            .iter()
            .flat_map(|record| line(record).unwrap().into_bytes())
            .collect()
    }

    #[test]
    fn appended_records_are_read_back() {
        let folder = base::temp::Folder::new().unwrap();
        let path = folder.join("journal");
        for times in 1..3 {
            let (journal, _) = Journal::open(&path).unwrap();
            records()
                .iter()
                .for_each(|record| journal.append(record).unwrap());
            drop(journal);
            assert_eq!(Journal::open(&path).unwrap().1.records.len(), 4 * times);
        }
        let _first = Journal::open(&path).unwrap();
        let second = Journal::open(&path).map(|_| ()).unwrap_err();
        assert!(
            format!("{second:#}").contains("another aggregator is working"),
            "{second:#}"
        );
    }

    #[test]
    fn truncation_loses_only_the_truncated_records() {
        let text = text();
        for end in 0..=text.len() {
            let whole = replay(&text[..end]).unwrap().records;
            assert_eq!(whole, records()[..whole.len()], "cut at {end}");
        }
        assert_eq!(replay(&text[..]).unwrap().records, records());
        let mut torn = text[..text.len() - 5].to_vec();
        torn.extend(&text);
        assert_eq!(
            replay(&torn[..]).unwrap().records.len(),
            7,
            "records after a torn one are read"
        );
    }

    #[test]
    fn damage_never_panics() {
        let random = ring::rand::SystemRandom::new();
        let mut dice = [0_u8; 8];
        for _ in 0..5_000 {
            ring::rand::SecureRandom::fill(&random, &mut dice).unwrap();
            let mut text = text();
            for pair in dice.chunks(2) {
                let at = usize::from(pair[0]) % text.len();
                text[at] = pair[1];
            }
            assert!(replay(&text[..]).unwrap().records.len() <= 5);
        }
    }

    #[test]
    fn wrong_byte_loses_one_record() {
        let text = text();
        for at in 0..text.len() {
            for flip in [0x01, 0x02, 0x20, 0x80] {
                let mut text = text.clone();
                text[at] ^= flip;
                let replayed = replay(&text[..]).unwrap().records;
                assert!(
                    replayed.iter().all(|record| records().contains(record)),
                    "{at}: {replayed:?}"
                );
                assert!(replayed.len() >= records().len() - 2, "{at}");
            }
        }
    }
}
