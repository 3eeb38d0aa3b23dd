//! Writes the log of a container or kubelet into its file in the snapshot.
//!
//! Owns the limits of size and time, the removal of secrets, and the cut of what exceeds a limit.
//! Starts no thread.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Read, Write as _};
use std::time::{Duration, Instant};

use super::{Fault, Query};
use base::at::At as _;
use base::clock;

/// Maximum bytes of a line handled at once; longer lines are split.
const PIECE: u64 = 64 << 10;
/// Maximum silence in the middle of a log: a log that is not followed ends by itself.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a log; cuts off an endless one.
pub(super) const LOG_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_LOG_BYTES: u64 = 1 << 30;

/// Writes a log into its file in the snapshot, without secrets, and passes each line to `see`.
/// Returns why it was cut, if it was: after `timeout`, or at the limit of its size.
pub(super) fn keep_log(
    query: &Query<'_>,
    stream: impl Read,
    place: &str,
    timeout: Duration,
    mut see: impl FnMut(&str),
) -> Result<Option<String>, Fault> {
    let end = Instant::now().checked_add(timeout);
    let path = query.folder.join(place);
    super::create_parent(&path)?;
    let mut file = BufWriter::new(File::create(&path).at("cannot write", &path)?);
    let mut filter = query.redactor.map(super::Redactor::lines);
    // The server should enforce the limit; one that does not must not fill the disk.
    let limit = query
        .config
        .limits
        .pod_logs
        .limit_bytes
        .and_then(|bytes| u64::try_from(bytes).ok());
    let mut stream = BufReader::new(stream).take(limit.unwrap_or(MAX_LOG_BYTES));
    let (mut line, mut begins) = (Vec::new(), true);
    let broken = loop {
        line.clear();
        let read = (&mut stream).take(PIECE).read_until(b'\n', &mut line);
        if !line.is_empty() {
            let text = String::from_utf8_lossy(&line);
            // A line in several pieces is one line.
            if begins {
                see(&text);
            }
            begins = line.ends_with(b"\n");
            match filter.as_mut().map(|filter| filter.line(&text)) {
                Some(clean) if clean != text => file.write_all(clean.as_bytes()),
                _ => file.write_all(&line),
            }
            .at("cannot write", &path)?;
        }
        match read {
            Ok(0) if limit.is_none() && stream.limit() == 0 => {
                break Some(format!(
                    "the log was cut after {MAX_LOG_BYTES} bytes; `LimitBytes` sets another limit"
                ));
            }
            Ok(0) => break None,
            Ok(_) if end.is_some_and(|end| Instant::now() >= end) => {
                break Some(format!(
                    "the log did not end within {} and was cut",
                    clock::duration(timeout)
                ));
            }
            Ok(_) => {}
            Err(error) => break Some(format!("the log was cut off: {error}")),
        }
    };
    file.flush().at("cannot write", &path)?;
    Ok(broken)
}
