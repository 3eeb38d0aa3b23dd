//! The end of a worker whose run on this machine was killed: it takes the plugin's processes with it.
//!
//! Starts the thread `lifeline`, which lives as long as the process, since only the end of the run ends its wait.

use std::io::BufRead as _;

use rustix::process::{Pid, Signal, kill_process_group};

/// Holds on to standard input: each line is the number of a process group. When it closes, the run that held its
/// other end is gone, and so are they.
pub fn hold() -> std::io::Result<()> {
    let watch = || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        let groups: Vec<Pid> = lines.filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect();
        for group in groups {
            // Most have ended long ago.
            let _ = kill_process_group(group, Signal::KILL);
        }
        log::error!("the run is gone, and the plugin with it");
        std::process::exit(1);
    };
    std::thread::Builder::new().name("lifeline".into()).spawn(watch)?;
    Ok(())
}
