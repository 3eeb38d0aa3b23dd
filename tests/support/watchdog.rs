//! Kills a program that exceeds the time limit of a test.

use std::process::Child;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::system::kill;

/// Long enough for a busy machine, short enough to find a hang.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Watches one process until its end is reported, or until dropped.
pub struct Watchdog {
    ended: SyncSender<()>,
    thread: JoinHandle<bool>,
}

impl Watchdog {
    pub fn over(child: &Child) -> Self {
        let id = child.id();
        let (ended, end) = sync_channel(0);
        let thread = std::thread::spawn(move || {
            let hangs = end.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
            if hangs {
                kill(id);
            }
            hangs
        });
        Self { ended, thread }
    }

    /// Whether the process had to be killed.
    pub fn bit(self) -> bool {
        drop(self.ended);
        self.thread.join().unwrap()
    }
}
