//! The program in little memory: what takes more ends it by a signal, which no test expects.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::watchdog::Watchdog;

/// All address space there is, in KiB: threads' stacks and arenas take most of it, and a debug build more than another.
const SPACE: u32 = 1_500_000;

/// What came of it.
#[derive(Debug)]
pub struct Ended {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program behind what bounds it; other systems than Linux know no such limit, and all else is looked at there, too.
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

/// Runs the program in `folder`, which is its home, too.
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
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(4_000).collect::<String>();
    let ended =
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) };
    assert!(!watchdog.bit(), "it hung: {args:?}: {ended:?}");
    ended
}
