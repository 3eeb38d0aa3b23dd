//! Child processes with a log, and their exit status.
//!
//! No process of a group outlives its [`Group`]. Processes that leave the group (`setsid`) become
//! children of this process when their parent ends, if [`base::sys::adopt_strays`] was called, and
//! are found by [`base::sys::end_strays`].
//!
//! When the run on this machine was killed, its lifeline kills a plugin's processes: inside the
//! worker, or in a separate keeper process if the plugin has no worker. Starts the thread
//! `lifeline`, which lives as long as the process, since only the end of the run unblocks it.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use base::sys::{self, Group};

/// Bytes from the end of a log quoted in a message.
const TAIL_BYTES: u64 = 4 << 10;
/// Lines from the end of a log quoted in a message.
const TAIL_LINES: usize = 20;

/// Passes over the process table: killed processes may linger, and may have started others before.
const PASSES: usize = 100;

/// Argument of a worker, which holds the lifeline on standard input.
pub const BESIDE: &str = "stdin";
/// Argument of a keeper, which does nothing else.
pub const ALONE: &str = "alone";

/// Standard input and output of a child.
pub enum Talk {
    /// Input is empty, output goes into the log.
    Alone,
    /// Both are inherited from this process.
    WithUs,
}

/// Starts `command`, with standard error going to `log`.
pub fn start(command: &mut Command, log: &Path, talk: Talk) -> io::Result<(Group, Child)> {
    let log = File::options().create(true).append(true).open(log)?;
    command.stderr(log.try_clone()?);
    match talk {
        Talk::Alone => command.stdin(Stdio::null()).stdout(log),
        Talk::WithUs => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
    };
    Group::spawn(command)
}

/// Describes an exit status.
pub fn ending(status: ExitStatus) -> String {
    match (status.code(), sys::ended_by_signal(status)) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// The last lines of a log.
pub fn tail(log: &Path) -> String {
    let end = read_end(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn read_end(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut end = Vec::new();
    // A process that is still writing must not make the end endless.
    file.take(TAIL_BYTES).read_to_end(&mut end)?;
    Ok(end)
}

/// Holds the lifeline in mode `how` for the processes whose results directory is `results`.
pub fn hold_lifeline(how: &str, results: String) -> io::Result<()> {
    match how {
        BESIDE => {
            base::thread("lifeline").spawn(|| watch(results))?;
        }
        ALONE => watch(results),
        _ => {}
    }
    Ok(())
}

/// Reads standard input: each line is the number of a process group. At its end the run is gone:
/// kills these groups and every process whose environment names the directory `results`.
fn watch(results: String) {
    let lines = io::stdin().lock().lines().map_while(Result::ok);
    let groups: Vec<u32> = lines.filter_map(|line| line.trim().parse().ok()).collect();
    groups.into_iter().for_each(sys::kill_group);
    // Processes that left their group, or that the run started but could not announce any more.
    for _ in 0..PASSES {
        if !sys::kill_bearing(&results) {
            break;
        }
    }
    log::error!("the run is gone, and the plugin with it");
    std::process::exit(1);
}
