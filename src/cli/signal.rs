//! Signals of the system as calls: the only place that knows both.
//!
//! Starts the thread `signals`, which lives as long as the process: nobody could say when the last signal came.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use anyhow::Context as _;

pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Calls `act` for each signal of `kinds` that arrives, beginning now.
pub(crate) fn on(kinds: &[i32], mut act: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let (mut read, write) = UnixStream::pair().context("cannot prepare for signals")?;
    for kind in kinds {
        let write = write.try_clone().context("cannot prepare for signals")?;
        signal_hook::low_level::pipe::register(*kind, write).context("cannot catch signals")?;
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        while read.read_exact(&mut [0]).is_ok() {
            act();
        }
    })?;
    Ok(())
}
