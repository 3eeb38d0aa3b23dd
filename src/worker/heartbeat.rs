//! Tells the aggregator every 15 seconds that this worker is alive.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use base::stop::Stop;
use client::{Client, Error};

/// Often enough that a lost worker is noticed within a minute.
const PERIOD: Duration = Duration::from_secs(15);

/// Sends heartbeats until `stop`. The first comes at a random moment of the first period, so that the workers of
/// a large cluster, which start together, do not beat together.
pub(super) fn run(client: &Client, stop: &Stop) {
    let share = RandomState::new().hash_one(0) % 1000;
    let mut pause = PERIOD.mul_f64(share as f64 / 1000.0);
    while !stop.wait(pause) {
        pause = PERIOD;
        match client.heartbeat() {
            Ok(()) => log::trace!("heartbeat"),
            Err(Error::Refused { status: 404 | 405, .. }) => {
                log::debug!("this aggregator knows no heartbeats");
                return;
            }
            // One that is missed is not news: the next follows soon, and the result is sent with retries.
            Err(error) => log::debug!("{error}"),
        }
    }
}
