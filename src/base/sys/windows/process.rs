//! Processes in jobs, the console's events, and what the machine says of itself.

use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, OnceLock, PoisonError};

use win32job::{ExtendedLimitInfo, Job};

use super::super::Signal;

/// What of the environment a program needs, whoever starts it: without `SystemRoot` not even sockets work.
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

/// A process and all that it has started; killed when this is dropped.
#[derive(Debug)]
pub struct Group {
    id: u32,
    /// Closing it ends all that is in it.
    job: Mutex<Option<Job>>,
}

impl Group {
    /// Starts `command` as the first of a group.
    pub fn spawn(command: &mut Command) -> io::Result<(Self, Child)> {
        let job = mortal_job()?;
        let mut child = command.spawn()?;
        // What it starts before this is still in the job of this process, which ends with it.
        if let Err(error) = job.assign_process(child.as_raw_handle() as isize) {
            // One that has ended already cannot be assigned.
            if child.try_wait()?.is_none() {
                let _ = child.kill();
                return Err(io::Error::other(error));
            }
        }
        Ok((Self { id: child.id(), job: Mutex::new(Some(job)) }, child))
    }

    /// Its number, for [`kill_group`].
    pub fn id(&self) -> u32 {
        self.id
    }

    /// There is no way to ask: it is ended.
    pub fn terminate(&self) {
        self.kill();
    }

    /// Ends all of it.
    pub fn kill(&self) {
        drop(self.job.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn mortal_job() -> io::Result<Job> {
    let mut limits = ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    Job::create_with_limit_info(&limits).map_err(io::Error::other)
}

/// Puts this process into a job that ends with it, and everything that it starts.
pub fn adopt_strays() -> io::Result<()> {
    static OWN: OnceLock<Job> = OnceLock::new();
    let job = mortal_job()?;
    job.assign_current_process().map_err(io::Error::other)?;
    // The system closes it when this process is gone.
    let _ = OWN.set(job);
    Ok(())
}

/// They end with this process, as above.
pub fn end_strays() {}

/// Nothing is left to do: a group ends with whoever has started it.
pub fn kill_group(_id: u32) {}

/// As above.
pub fn kill_bearing(_value: &str) -> bool {
    false
}

/// Does nothing: Windows has no such limit.
pub fn survive_file_limit() -> io::Result<()> {
    Ok(())
}

/// No process ends by a signal.
pub fn ended_by_signal(_status: ExitStatus) -> Option<i32> {
    None
}

/// Calls `act` when Ctrl-C or Ctrl-Break is pressed, the console is closed, or the session ends, until the next call of this.
pub fn on_signal(_kinds: &[Signal], act: impl FnMut() + Send + 'static) -> io::Result<()> {
    static ACT: Mutex<Option<Box<dyn FnMut() + Send>>> = Mutex::new(None);
    let act_now = || ACT.lock().unwrap_or_else(PoisonError::into_inner);
    if act_now().replace(Box::new(act)).is_some() {
        return Ok(());
    }
    ctrlc::set_handler(move || act_now().iter_mut().for_each(|act| act())).map_err(io::Error::other)
}

/// What this machine is called in its network.
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The folders that may be the user's own, the likeliest first, as Kubernetes' own programs look for them.
pub fn homes(variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let on_drive = variable("HOMEDRIVE").zip(variable("HOMEPATH")).map(|(drive, path)| drive + &path);
    let given = [variable("HOME"), on_drive, variable("USERPROFILE")];
    given.into_iter().flatten().filter(|home| !home.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_looked_for_as_kubernetes_does() {
        let set = |known: &'static [(&str, &str)]| {
            homes(&move |name| {
                known.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(set(&[("USERPROFILE", "C:\\Users\\me")]), [PathBuf::from("C:\\Users\\me")]);
        let all = [("HOME", "H:\\"), ("HOMEDRIVE", "D:"), ("HOMEPATH", "\\me"), ("USERPROFILE", "C:\\me")];
        let all: &'static [(&str, &str)] = Box::leak(Box::new(all));
        assert_eq!(set(all), ["H:\\", "D:\\me", "C:\\me"].map(PathBuf::from));
        assert!(set(&[]).is_empty());
    }
}
