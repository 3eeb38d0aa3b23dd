//! Runs the program with little memory: excessive use kills it by a signal, which fails the test.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::watchdog::Watchdog;

/// Address space in KiB: threads' stacks and arenas take most of it, and debug builds more than
/// others.
const SPACE: u32 = 1_500_000;

/// Result of a bounded run.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program under a wrapper that limits its memory; only Linux supports the limit, other systems
/// run it without.
fn within_space() -> Command {
    if cfg!(not(target_os = "linux")) {
        return Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
    }
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -v {SPACE} && exec \"$0\" \"$@\""))
        .arg(env!("CARGO_BIN_EXE_sonobuoy"));
    command
}

/// Runs the program in `folder`, which is also its home.
pub fn bounded(args: &[&OsStr], folder: &Path) -> Ended {
    let child = within_space()
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let watchdog = Watchdog::over(&child);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .chars()
            .take(4_000)
            .collect::<String>()
    };
    let ended = Ended {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    };
    assert!(!watchdog.bit(), "it hung: {args:?}: {ended:?}");
    ended
}
