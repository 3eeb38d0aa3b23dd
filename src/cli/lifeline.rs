//! The end of a worker whose run on this machine was killed: it takes the plugin's processes with it.
//!
//! Starts the thread `lifeline`, which lives as long as the process, since only the end of the run ends its wait.

use std::io::BufRead as _;

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

/// What has been killed may take a moment, and may have started others before.
const PASSES: usize = 100;

/// Holds on to standard input: each line is the number of a process group. When it closes, the run that held its
/// other end is gone, and so are they, and every other process whose environment names the folder of `results`.
pub(crate) fn hold(results: String) -> std::io::Result<()> {
    let watch = move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        let groups: Vec<Pid> = lines.filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect();
        for group in groups {
            // Most have ended long ago.
            let _ = kill_process_group(group, Signal::KILL);
        }
        // What has left its group, and what was started in the moment in which the run could not tell any more.
        for _ in 0..PASSES {
            if !sweep(&results) {
                break;
            }
        }
        log::error!("the run is gone, and the plugin with it");
        std::process::exit(1);
    };
    std::thread::Builder::new().name("lifeline".into()).spawn(watch)?;
    Ok(())
}

/// Kills every process but this one that has the folder as the value of a variable. Whether there was one.
fn sweep(folder: &str) -> bool {
    let own = getpid();
    let told = |pid: Pid| {
        let environment =
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        let mut values = environment.split(|&byte| byte == 0).filter_map(|entry| {
            let equals = entry.iter().position(|&byte| byte == b'=')?;
            Some(&entry[equals + 1..])
        });
        values.any(|value| value == folder.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    // One that may not be killed, or is a corpse that nobody has buried, is not tried again.
    pids.filter(|&pid| pid != own && told(pid)).filter(|&pid| kill_process(pid, Signal::KILL).is_ok()).count()
        > 0
}
