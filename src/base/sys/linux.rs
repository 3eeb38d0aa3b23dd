//! Linux only: processes found in `/proc`, adoption of orphans.

use std::io;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// Makes this process the parent of orphaned descendants.
pub fn adopt_strays() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

/// Kills all children of this process and waits for them. Call only when no child is needed any more.
pub fn end_strays() {
    // The children of a killed process are adopted in turn.
    loop {
        let strays = children();
        for stray in &strays {
            let _ = kill_process(*stray, Signal::KILL);
        }
        for stray in &strays {
            let _ = waitpid(Some(*stray), WaitOptions::empty());
        }
        if strays.is_empty() {
            return;
        }
    }
}

/// The children of all threads of this process; empty where the system does not report them.
fn children() -> Vec<Pid> {
    let of_thread = |task: io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        Some(text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect::<Vec<_>>())
    };
    std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(of_thread).flatten().collect()
}

/// All other processes that have `value` as the value of a variable.
pub(super) fn bearing(value: &str) -> Vec<Pid> {
    let told = |pid: Pid| {
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
    let own = getpid();
    pids.filter(|&pid| pid != own && told(pid)).collect()
}
