//! Kills a plugin's processes when the run on this machine was killed. Runs inside the worker, or in a separate
//! keeper
//! process if the plugin has no worker.
//!
//! Starts the thread `lifeline`, which lives as long as the process, since only the end of the run unblocks it.

use std::io::BufRead as _;

use base::sys;

/// Passes over the process table: killed processes may linger, and may have started others before.
const PASSES: usize = 100;

/// Argument of a worker, which holds the lifeline on standard input.
pub(crate) const BESIDE: &str = "stdin";
/// Argument of a keeper, which does nothing else.
pub(crate) const ALONE: &str = "alone";

/// Holds the lifeline in mode `how` for the processes whose results directory is `results`.
pub(crate) fn hold(how: &str, results: String) -> std::io::Result<()> {
    match how {
        BESIDE => {
            base::thread("lifeline").spawn(|| watch(results))?;
        }
        ALONE => watch(results),
        _ => {}
    }
    Ok(())
}

/// Reads standard input: each line is the number of a process group. At its end the run is gone: kills these groups
/// and every process whose environment names the directory `results`.
fn watch(results: String) {
    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
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
