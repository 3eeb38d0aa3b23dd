//! Which of thousands of sockets have something to say, without a thread for each.
//!
//! On Linux the system tells, once each time something arrives. Elsewhere everybody is named every few moments; whoever
//! asks looks at each socket anyway, and most machines that are not Linux serve a handful.

#[cfg(not(target_os = "linux"))]
pub use everywhere::Poller;
#[cfg(target_os = "linux")]
pub use linux::Poller;

/// What [`Poller::wait`] found.
#[derive(Debug)]
pub enum Found {
    /// These have something to say, or have gone.
    These(Vec<u64>),
    /// Nobody knows; all shall be looked at.
    #[cfg_attr(target_os = "linux", allow(dead_code, reason = "Linux knows"))]
    Anybody,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use rustix::buffer::spare_capacity;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, EventData, EventFlags};

    use super::Found;

    /// Sockets that are told of.
    #[derive(Debug)]
    pub struct Poller(OwnedFd);

    impl Poller {
        /// Without any socket.
        pub fn new() -> io::Result<Self> {
            Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
        }

        /// From now on `socket` is told of as `id`.
        pub fn add(&self, socket: impl AsFd, id: u64) -> io::Result<()> {
            Ok(epoll::add(&self.0, socket, EventData::new_u64(id), flags())?)
        }

        /// `socket` is told of again if there is something that was not read yet.
        pub fn again(&self, socket: impl AsFd, id: u64) -> io::Result<()> {
            Ok(epoll::modify(&self.0, socket, EventData::new_u64(id), flags())?)
        }

        /// `socket` is not told of any more.
        pub fn remove(&self, socket: impl AsFd) {
            // One that was never added needs no removal.
            let _ = epoll::delete(&self.0, socket);
        }

        /// Waits until somebody has something to say, or `limit` is over.
        pub fn wait(&self, limit: Duration) -> io::Result<Found> {
            let mut events = Vec::with_capacity(256);
            let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
            match epoll::wait(&self.0, spare_capacity(&mut events), Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {
                    Ok(Found::These(events.iter().map(|event| event.data.u64()).collect()))
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

    use super::Found;

    /// How often everybody is looked at.
    const LOOK: Duration = Duration::from_millis(10);

    /// Sockets that are looked at.
    #[derive(Debug)]
    pub struct Poller;

    impl Poller {
        /// Without any socket.
        pub fn new() -> io::Result<Self> {
            Ok(Self)
        }

        /// From now on `socket` is told of as `id`.
        pub fn add<S>(&self, _: &S, _: u64) -> io::Result<()> {
            Ok(())
        }

        /// Nobody forgets it meanwhile.
        pub fn again<S>(&self, _: &S, _: u64) -> io::Result<()> {
            Ok(())
        }

        /// `socket` is not told of any more.
        pub fn remove<S>(&self, _: &S) {}

        /// Waits a moment.
        pub fn wait(&self, limit: Duration) -> io::Result<Found> {
            // It is woken by nothing, so it sleeps as little as it can bear.
            std::thread::park_timeout(limit.min(LOOK));
            Ok(Found::Anybody)
        }
    }
}
