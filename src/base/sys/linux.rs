//! Linux only: a single call that syncs a file system, changes of folders, processes found in `/proc`, adoption of orphans.

use std::fs::File;
use std::io;
use std::path::Path;
#[cfg(feature = "program")]
use std::{mem::MaybeUninit, os::fd::OwnedFd, sync::Arc, thread};

#[cfg(feature = "program")]
use rustix::fs::inotify;
#[cfg(feature = "program")]
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// Syncs a whole tree. A tree can have a million files; one call for the file system is cheaper than one per file.
pub fn sync_tree(path: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(path)?).map_err(io::Error::from)
}

/// Watches folders until it is dropped.
#[cfg(feature = "program")]
pub struct Changes {
    events: Arc<OwnedFd>,
    watches: Vec<i32>,
    reader: Option<thread::JoinHandle<()>>,
}

#[cfg(feature = "program")]
impl Changes {
    /// Calls `changed` when a file in `folders` appears, disappears, or is closed after writing.
    pub fn watch<'p>(
        folders: impl IntoIterator<Item = &'p Path>,
        changed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        use inotify::WatchFlags as On;
        let events = Arc::new(inotify::init(inotify::CreateFlags::CLOEXEC)?);
        let what = On::CREATE | On::CLOSE_WRITE | On::MOVE | On::DELETE;
        let watches = folders.into_iter().map(|folder| Ok(inotify::add_watch(&events, folder, what)?));
        let mut all = Self { watches: watches.collect::<io::Result<_>>()?, events, reader: None };
        let events = Arc::clone(&all.events);
        let read = move || {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&*events, &mut buffer);
            // A watch is ignored once it or its folder is removed.
            while reader.next().is_ok_and(|event| !event.events().contains(inotify::ReadFlags::IGNORED)) {
                changed();
            }
        };
        all.reader = Some(thread::Builder::new().name("changes".into()).spawn(read)?);
        Ok(all)
    }
}

#[cfg(feature = "program")]
impl Drop for Changes {
    fn drop(&mut self) {
        for watch in &self.watches {
            let _ = inotify::remove_watch(&self.events, *watch);
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Makes this process the parent of orphaned descendants.
#[cfg(feature = "program")]
pub fn adopt_strays() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(getpid())).map_err(io::Error::from)
}

/// Kills all children of this process and waits for them. Call only when no child is needed any more.
#[cfg(feature = "program")]
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
#[cfg(feature = "program")]
fn children() -> Vec<Pid> {
    let of_thread = |task: io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        Some(text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect::<Vec<_>>())
    };
    std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(of_thread).flatten().collect()
}

/// All other processes that have `value` as the value of a variable.
#[cfg(feature = "program")]
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
