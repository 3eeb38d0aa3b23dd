//! Process groups, signals, sockets, the terminal, and host information.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, ipproto};
use rustix::process::{
    Pid, Resource, Rlimit, getrlimit, kill_process, kill_process_group, setrlimit,
};

use super::super::Signal;
#[cfg(target_os = "linux")]
pub use super::super::linux::{adopt_strays, end_strays};
#[cfg(target_os = "linux")]
use super::super::linux::{bearing, ignores_hangups};
#[cfg(target_os = "macos")]
pub use super::super::macos::{adopt_strays, end_strays};
#[cfg(target_os = "macos")]
use super::super::macos::{bearing, ignores_hangups};

/// Environment variables that every program needs.
pub const INHERITED: &[&str] = &[
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER",
];
/// macOS rejects larger limits instead of capping them.
const MAX_FILES_ON_MACOS: u64 = 10_240;

/// A process with its descendants, except those that left the group; killed when dropped.
pub struct Group(Pid);

impl Group {
    /// Starts `command` as the leader of a group.
    pub fn spawn(command: &mut Command) -> io::Result<(Self, Child)> {
        let child = command.process_group(0).spawn()?;
        Ok((Self(Pid::from_child(&child)), child))
    }

    /// Its number, for [`kill_group`].
    pub fn id(&self) -> u32 {
        self.0.as_raw_nonzero().get().cast_unsigned()
    }

    /// Sends SIGTERM to the group; false if all its processes belong to other users.
    pub fn terminate(&self) -> bool {
        // The group may have ended.
        kill_process_group(self.0, rustix::process::Signal::TERM) != Err(rustix::io::Errno::PERM)
    }

    /// Kills the group.
    pub fn kill(&self) {
        let _ = kill_process_group(self.0, rustix::process::Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills the group with this number.
pub fn kill_group(id: u32) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // Most groups ended long before.
        let _ = kill_process_group(id, rustix::process::Signal::KILL);
    }
}

/// Kills every other process that has `value` as the value of a variable; returns whether any was
/// killed.
pub fn kill_bearing(value: &str) -> bool {
    // Processes that may not be killed, and zombies, are not retried.
    let kill = |pid: &Pid| kill_process(*pid, rustix::process::Signal::KILL).is_ok();
    bearing(value).iter().filter(|pid| kill(pid)).count() > 0
}

/// Keeps all files and sockets that this process was started with, except its standard streams,
/// from the programs that it starts. What it opens later is kept from them anyway.
pub fn withhold_inherited_files() {
    const FIRST_AFTER_STREAMS: i32 = 3;
    close_fds::set_fds_cloexec(FIRST_AFTER_STREAMS, &[]);
}

/// From now on, only the owner may use what this process creates.
pub fn create_private_files() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error instead of killing this
/// process.
pub fn survive_file_limit() -> io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).map(drop)
}

/// The signal that ended a process.
pub fn ended_by_signal(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Calls `act` for each signal of `kinds` until called again. The thread `signals` lives as long as
/// the process, since any signal may be followed by another one. A process that `nohup` has started
/// stays deaf to the end of its terminal.
pub fn on_signal(kinds: &[Signal], mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let call_number = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    let (mut read, write) = UnixStream::pair()?;
    for kind in kinds {
        let number = match kind {
            Signal::Hangup if ignores_hangups() => continue,
            Signal::Hangup => SIGHUP,
            Signal::Interrupt => SIGINT,
            Signal::Terminate => SIGTERM,
        };
        signal_hook::low_level::pipe::register(number, write.try_clone()?)?;
    }
    crate::thread("signals").spawn(move || {
        while read.read_exact(&mut [0]).is_ok() {
            if CALLS.load(Ordering::Relaxed) == call_number {
                act();
            }
        }
    })?;
    Ok(())
}

/// This machine's network name.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn tcp_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// Maximum open files and sockets of this process; raised to `needed` if the system permits.
pub fn raise_open_files(needed: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|&current| current < needed) else {
        return needed;
    };
    let wanted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = [wanted, wanted.min(MAX_FILES_ON_MACOS)]
        .into_iter()
        .find(|&number| {
            number > current
                && setrlimit(
                    Resource::Nofile,
                    Rlimit {
                        current: Some(number),
                        ..limit
                    },
                )
                .is_ok()
        });
    raised.unwrap_or(current)
}

/// Columns and rows of a terminal, 0 where unknown; `None` if `output` is not one.
pub fn terminal_size(output: impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// The program that opens a file as the user's desktop does, with its first arguments.
pub const OPENER: &[&str] = if cfg!(target_os = "macos") {
    &["open"]
} else {
    &["xdg-open"]
};

/// Whether terminals of this system support colours.
pub fn colours() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether the terminal shows more than ASCII, according to the user's locale.
pub fn shows_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(std::env::var_os);
    let first = set
        .into_iter()
        .find(|value| !value.is_empty())
        .unwrap_or_default();
    first
        .to_string_lossy()
        .to_lowercase()
        .replace('-', "")
        .contains("utf8")
}
