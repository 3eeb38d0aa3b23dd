//! Processes in jobs, the console and its events, sockets, and host information.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle as _, OwnedSocket};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, OnceLock};

use rustix::net::{AddressFamily, SocketType, ipproto};
use win32job::{ExtendedLimitInfo, Job};

use super::super::Signal;
use crate::lock;

/// Environment variables that every program needs: without `SystemRoot` not even sockets work.
pub const INHERITED: &[&str] = &[
    "COMPUTERNAME",
    "COMSPEC",
    "HOME",
    "PATH",
    "PATHEXT",
    "SystemDrive",
    "SystemRoot",
    "TEMP",
    "TMP",
    "TZ",
    "USERNAME",
    "USERPROFILE",
    "windir",
];

/// A process with all its descendants; killed when dropped.
pub struct Group {
    id: u32,
    /// Closing the job kills all its processes.
    job: Mutex<Option<Job>>,
}

impl Group {
    /// Starts `command` as the leader of a group.
    pub fn spawn(command: &mut Command) -> io::Result<(Self, Child)> {
        let job = mortal_job()?;
        let mut child = command.spawn()?;
        // Children started before this are still in the job of this process, which ends with it.
        if let Err(error) = job.assign_process(child.as_raw_handle() as isize) {
            // An ended process cannot be assigned.
            if child.try_wait()?.is_none() {
                let _ = child.kill();
                return Err(io::Error::other(error));
            }
        }
        Ok((
            Self {
                id: child.id(),
                job: Mutex::new(Some(job)),
            },
            child,
        ))
    }

    /// Its number, for [`kill_group`].
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Kills the group: Windows cannot request termination.
    pub fn terminate(&self) -> bool {
        self.kill();
        true
    }

    /// Kills the group.
    pub fn kill(&self) {
        drop(lock(&self.job).take());
    }
}

fn mortal_job() -> io::Result<Job> {
    let mut limits = ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    Job::create_with_limit_info(&limits).map_err(io::Error::other)
}

/// Moves this process and its future descendants into a job that ends with it.
pub fn adopt_strays() -> io::Result<()> {
    static PROCESS_JOB: OnceLock<Job> = OnceLock::new();
    let job = mortal_job()?;
    job.assign_current_process().map_err(io::Error::other)?;
    // The system closes the job with this process.
    let _ = PROCESS_JOB.set(job);
    Ok(())
}

/// Does nothing: descendants end with this process.
pub fn end_strays(_limit: std::time::Duration) {}

/// Does nothing: a group ends with the process that started it.
pub fn kill_group(_id: u32) {}

/// Does nothing, for the same reason.
pub fn kill_bearing(_value: &str) -> bool {
    false
}

/// Does nothing: the standard library passes only the standard streams on.
pub fn withhold_inherited_files() {}

/// Does nothing: what is created has the permissions of its folder.
pub fn create_private_files() {}

/// Does nothing: Windows has no such limit.
pub fn survive_file_limit() -> io::Result<()> {
    Ok(())
}

/// Always `None`: Windows has no fatal signals.
pub fn ended_by_signal(_status: ExitStatus) -> Option<i32> {
    None
}

/// Calls `act` when Ctrl-C or Ctrl-Break is pressed, the console is closed, or the session ends,
/// until called again.
pub fn on_signal(_kinds: &[Signal], act: impl FnMut() + Send + 'static) -> io::Result<()> {
    static ACT: Mutex<Option<Box<dyn FnMut() + Send>>> = Mutex::new(None);
    let act_now = || lock(&ACT);
    if act_now().replace(Box::new(act)).is_some() {
        return Ok(());
    }
    ctrlc::set_handler(move || act_now().iter_mut().for_each(|act| act())).map_err(io::Error::other)
}

/// This machine's network name.
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

pub(crate) fn tcp_socket(family: AddressFamily) -> io::Result<OwnedSocket> {
    // The standard library initialises the socket library only with its own first socket.
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.get().is_none() {
        rustix::net::wsa_startup()?;
        let _ = STARTED.set(());
    }
    Ok(rustix::net::socket(
        family,
        SocketType::STREAM,
        Some(ipproto::TCP),
    )?)
}

/// Returns `needed`: Windows has no relevant limit.
pub fn raise_open_files(needed: u64) -> u64 {
    needed
}

/// Columns and rows of a terminal, 0 where unknown; `None` if `output` is not one.
pub fn terminal_size(output: impl AsHandle) -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(output)?;
    Some((width.0.into(), height.0.into()))
}

/// The program that opens a file as the user's desktop does, with its first arguments.
pub const OPENER: &[&str] = &["rundll32", "url.dll,FileProtocolHandler"];

/// Whether the console supports colours; enables them.
pub fn colours() -> bool {
    anstyle_query::windows::enable_ansi_colors() == Some(true)
}

/// Whether the console shows more than ASCII: its output is UTF-16.
pub fn shows_unicode() -> bool {
    true
}
