//! macOS only: it adopts no orphans, and `ps` reports the environment of processes.

use std::io::{self, IsTerminal as _};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, getpid};

/// Unsupported; [`super::kill_bearing`] finds orphans.
pub fn adopt_strays() -> io::Result<()> {
    Ok(())
}

/// Does nothing, as no orphans are adopted.
pub fn end_strays(_limit: Duration) {}

/// Whether this process probably runs under `nohup`, which the system does not report: then no
/// terminal shows its output.
pub(super) fn ignores_hangups() -> bool {
    !io::stdout().is_terminal() && !io::stderr().is_terminal()
}

/// All other processes that have `value` as the value of a variable, as far as the system reports
/// it: it hides the environment of system programs.
pub(super) fn bearing(value: &str) -> Vec<Pid> {
    let Ok(listed) = Command::new("/bin/ps")
        .args(["-axwwE", "-o", "pid=,command="])
        .output()
    else {
        return Vec::new();
    };
    let own_pid = getpid();
    let wanted = format!("={value}");
    let of_line = |line: &str| {
        let (pid, words) = line.trim_start().split_once(' ')?;
        let bears = words
            .match_indices(&wanted)
            .any(|(at, _)| matches!(words.as_bytes().get(at + wanted.len()), None | Some(b' ')));
        Pid::from_raw(pid.parse().ok()?).filter(|&pid| bears && pid != own_pid)
    };
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter_map(of_line)
        .collect()
}
