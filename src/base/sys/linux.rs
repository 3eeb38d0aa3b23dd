//! Linux only: processes found in `/proc`, adoption of orphans.

use std::io;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// Interval of checks for the end of killed children.
const REAP_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum characters of a command that is named.
const MAX_COMMAND_CHARS: usize = 200;

/// Makes this process the parent of orphaned descendants.
pub fn adopt_strays() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

/// Kills all children of this process and waits for them, up to `limit`. Call only when no child is
/// needed any more. A process of another user cannot be killed: it is named and left behind.
pub fn end_strays(limit: Duration) {
    let deadline = Instant::now() + limit;
    let (_sender, never) = channel::<()>();
    loop {
        let strays = children();
        for stray in &strays {
            let _ = kill_process(*stray, Signal::KILL);
        }
        let alive: Vec<Pid> = strays
            .iter()
            .copied()
            .filter(|stray| !is_reaped(*stray))
            .collect();
        if strays.is_empty() {
            return;
        }
        if alive.is_empty() {
            // The children of a killed process are adopted in turn.
            continue;
        }
        if Instant::now() >= deadline {
            for stray in alive {
                let number = stray.as_raw_nonzero();
                log::warn!(
                    "process {number} ({}) cannot be ended, and is left behind",
                    command_of(stray)
                );
            }
            return;
        }
        let _ = never.recv_timeout(REAP_INTERVAL);
    }
}

/// Whether a child has ended; nothing of it remains then.
fn is_reaped(child: Pid) -> bool {
    !matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None))
}

/// The command of a process, quoted.
fn command_of(process: Pid) -> String {
    let path = format!("/proc/{}/cmdline", process.as_raw_nonzero());
    let bytes = std::fs::read(path).unwrap_or_default();
    let words = String::from_utf8_lossy(&bytes).replace('\0', " ");
    let command: String = words.trim().chars().take(MAX_COMMAND_CHARS).collect();
    format!("`{}`", command.escape_debug())
}

/// The children of all threads of this process; empty where the system does not report them.
fn children() -> Vec<Pid> {
    let of_thread = |task: io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        Some(
            text.split_whitespace()
                .filter_map(|word| Pid::from_raw(word.parse().ok()?))
                .collect::<Vec<_>>(),
        )
    };
    std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .filter_map(of_thread)
        .flatten()
        .collect()
}

/// Whether this process was started to ignore SIGHUP, or already does.
pub(super) fn ignores_hangups() -> bool {
    // The first signal is the last bit.
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & HANGUP != 0)
}

/// All other processes that have `value` as the value of a variable.
pub(super) fn bearing(value: &str) -> Vec<Pid> {
    let bears_value = |pid: Pid| {
        let environment =
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        let mut values = environment.split(|&byte| byte == 0).filter_map(|entry| {
            let equals = entry.iter().position(|&byte| byte == b'=')?;
            Some(&entry[equals + 1..])
        });
        values.any(|found| found == value.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let own_pid = getpid();
    pids.filter(|&pid| pid != own_pid && bears_value(pid))
        .collect()
}
