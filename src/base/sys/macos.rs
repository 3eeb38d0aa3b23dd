//! What macOS does in its own way: it adopts no strays, and `ps` tells the environment of processes.

use std::io;
use std::process::Command;

use rustix::process::{Pid, getpid};

/// There is no such thing; [`super::kill_bearing`] finds what was left behind.
pub fn adopt_strays() -> io::Result<()> {
    Ok(())
}

/// None are ours, as above.
pub fn end_strays() {}

/// All other processes that have `value` as the value of a variable, as far as the system tells: it keeps the
/// environment of its own programs to itself.
pub(super) fn bearing(value: &str) -> Vec<Pid> {
    let Ok(listed) = Command::new("/bin/ps").args(["-axwwE", "-o", "pid=,command="]).output() else {
        return Vec::new();
    };
    let own = getpid();
    let wanted = format!("={value}");
    let of_line = |line: &str| {
        let (pid, words) = line.trim_start().split_once(' ')?;
        let bears = words
            .match_indices(&wanted)
            .any(|(at, _)| matches!(words.as_bytes().get(at + wanted.len()), None | Some(b' ')));
        Pid::from_raw(pid.parse().ok()?).filter(|&pid| bears && pid != own)
    };
    String::from_utf8_lossy(&listed.stdout).lines().filter_map(of_line).collect()
}
