//! Child processes with a log, and their exit status.
//!
//! No process of a group outlives its [`Group`]. Processes that leave the group (`setsid`) become children of this
//! process
//! when their parent ends, if [`base::sys::adopt_strays`] was called, and are found by [`base::sys::end_strays`].
//! Starts no thread.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use base::sys::{self, Group};

/// Bytes from the end of a log quoted in a message.
const TAIL_BYTES: u64 = 4 << 10;
/// Lines from the end of a log quoted in a message.
const TAIL_LINES: usize = 20;

/// Standard input and output of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Talk {
    /// Input is empty, output goes into the log.
    Alone,
    /// Both are inherited from this process.
    WithUs,
}

/// Starts `command`, with standard error going to `log`.
pub(crate) fn start(command: &mut Command, log: &Path, talk: Talk) -> io::Result<(Group, Child)> {
    let log = File::options().create(true).append(true).open(log)?;
    command.stderr(log.try_clone()?);
    match talk {
        Talk::Alone => command.stdin(Stdio::null()).stdout(log),
        Talk::WithUs => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
    };
    Group::spawn(command)
}

/// Describes an exit status.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), sys::ended_by_signal(status)) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let read = || {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut text = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut text)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&text).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
