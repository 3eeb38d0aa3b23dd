//! The end of a worker whose run on this machine was killed: it takes the plugin's processes with it. Where a plugin has
//! no worker, a process that does nothing else holds on.
//!
//! Starts the thread `lifeline`, which lives as long as the process, since only the end of the run ends its wait.

use std::io::BufRead as _;

use base::sys;

/// What has been killed may take a moment, and may have started others before.
const PASSES: usize = 100;

/// What a worker is told that holds a lifeline beside its work.
pub(crate) const BESIDE: &str = "stdin";
/// What a process is told that has no other work.
pub(crate) const ALONE: &str = "alone";

/// Holds on as `how` says to whatever has `results` as its results folder.
pub(crate) fn hold(how: &str, results: String) -> std::io::Result<()> {
    match how {
        BESIDE => {
            std::thread::Builder::new().name("lifeline".into()).spawn(|| watch(results))?;
        }
        ALONE => watch(results),
        _ => {}
    }
    Ok(())
}

/// Holds on to standard input: each line is the number of a process group. When it closes, the run that held its
/// other end is gone, and so are they, and every other process whose environment names the folder of `results`.
fn watch(results: String) {
    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let groups: Vec<u32> = lines.filter_map(|line| line.trim().parse().ok()).collect();
    groups.into_iter().for_each(sys::kill_group);
    // What has left its group, and what was started in the moment in which the run could not tell any more.
    for _ in 0..PASSES {
        if !sys::kill_bearing(&results) {
            break;
        }
    }
    log::error!("the run is gone, and the plugin with it");
    std::process::exit(1);
}
