//! Finds the readable ones among thousands of sockets, without a thread for each.
//!
//! On Linux the system reports each change once. Elsewhere the caller tries all sockets every few milliseconds: other
//! systems serve only a handful.

#[cfg(not(target_os = "linux"))]
pub use everywhere::Poller;
#[cfg(target_os = "linux")]
pub use linux::Poller;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use rustix::buffer::spare_capacity;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, EventData, EventFlags};

    /// The watched sockets.
    #[derive(Debug)]
    pub struct Poller(OwnedFd);

    impl Poller {
        /// Watches no socket yet.
        pub fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// Watches `socket` under the number `id`.
        pub fn add(&self, socket: impl AsFd, id: u64) -> io::Result<()> {
            Ok(epoll::add(&self.0, socket, EventData::new_u64(id), flags())?)
        }

        /// Watches `socket` no longer.
        pub fn remove(&self, socket: impl AsFd) {
            // A socket that was never added needs no removal.
            let _ = epoll::delete(&self.0, socket);
        }

        /// Waits up to `limit`; returns the sockets that are readable or have ended.
        pub fn wait(&self, limit: Duration) -> io::Result<Option<Vec<u64>>> {
            let mut events = Vec::with_capacity(256);
            let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
            match epoll::wait(&self.0, spare_capacity(&mut events), Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {
                    Ok(Some(events.iter().map(|event| event.data.u64()).collect()))
                }
                Err(error) => Err(error.into()),
            }
        }
    }

    fn flags() -> EventFlags {
        EventFlags::IN | EventFlags::RDHUP | EventFlags::ET
    }
}

#[cfg(not(target_os = "linux"))]
mod everywhere {
    use std::io;
    use std::time::Duration;

    /// Interval between two attempts.
    const INTERVAL: Duration = Duration::from_millis(10);

    /// Watches nothing.
    #[derive(Debug)]
    pub struct Poller;

    impl Poller {
        /// Watches no socket yet.
        pub fn new() -> io::Result<Self> {
            Ok(Self)
        }

        /// Watches `socket` under the number `id`.
        pub fn add<S>(&self, _: &S, _: u64) -> io::Result<()> {
            Ok(())
        }

        /// Watches `socket` no longer.
        pub fn remove<S>(&self, _: &S) {}

        /// Waits for a few milliseconds; `None`, since each socket may be readable.
        pub fn wait(&self, limit: Duration) -> io::Result<Option<Vec<u64>>> {
            std::thread::park_timeout(limit.min(INTERVAL));
            Ok(None)
        }
    }
}
