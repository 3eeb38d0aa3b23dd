//! Child processes in groups of their own, so that whatever they start ends with them.
//!
//! Nothing of a group outlives its [`Group`]. What leaves its group (`setsid`) becomes a child of this process when its
//! parent ends, if [`adopt_strays`] was called, and is found by [`end_strays`].

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group};

/// So much of the end of a log goes into a message.
const TAIL_BYTES: u64 = 4 << 10;
/// So many lines of it.
const TAIL_LINES: usize = 20;

/// The group of one child; killed when this is dropped.
pub(super) struct Group(Pid);

/// With whom a child talks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// It has nothing to read, and everything it says goes into the log.
    Alone,
    /// Standard input and output are those of whoever started it.
    WithUs,
}

/// Starts `command`; what it says on standard error goes into `log`.
pub(super) fn start(command: &mut Command, log: &Path, talk: Talk) -> io::Result<(Group, Child)> {
    let log = File::options().create(true).append(true).open(log)?;
    command.stderr(log.try_clone()?).process_group(0);
    match talk {
        Talk::Alone => command.stdin(Stdio::null()).stdout(log),
        Talk::WithUs => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
    };
    let child = command.spawn()?;
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| io::Error::other("a process without a number"))?;
    Ok((Group(id), child))
}

impl Group {
    /// Its number.
    pub(super) fn id(&self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Asks all of it to end.
    pub(super) fn terminate(&self) {
        // It may be gone already.
        let _ = kill_process_group(self.0, Signal::TERM);
    }

    /// Ends all of it.
    pub(super) fn kill(&self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes this process the parent of whatever its children leave behind.
pub(super) fn adopt_strays() {
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        log::debug!("processes that plugins leave behind go to another parent: {error}");
    }
}

/// Kills all children of this process and waits for them. Only for when it has none that somebody still needs.
pub(super) fn end_strays() {
    // The children of one that is killed are adopted in turn.
    loop {
        let strays = children();
        for stray in &strays {
            let _ = rustix::process::kill_process(*stray, Signal::KILL);
        }
        for stray in &strays {
            let _ = rustix::process::waitpid(Some(*stray), WaitOptions::empty());
        }
        if strays.is_empty() {
            return;
        }
    }
}

/// The children of all threads of this process; none where the system does not tell.
fn children() -> Vec<Pid> {
    let of_thread = |task: io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        Some(text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect::<Vec<_>>())
    };
    std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(of_thread).flatten().collect()
}

/// How a process ended, for people.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
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
