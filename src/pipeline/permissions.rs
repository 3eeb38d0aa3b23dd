//! Requests whose refusal may pass: the permissions of a run that has just begun.

use std::time::{Duration, Instant};

use base::stop::Stop;

/// Time during which refusals are retried: a run's permissions are created just before its pod, and
/// a busy server applies them late.
const SETTLING_TIME: Duration = Duration::from_secs(4);
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Permissions of a run that has just begun.
pub(super) struct FreshPermissions<'a> {
    stop: &'a Stop,
    /// Time from which refusals are final.
    settled: Instant,
}

impl<'a> FreshPermissions<'a> {
    pub(super) fn new(stop: &'a Stop) -> Self {
        Self {
            stop,
            settled: Instant::now() + SETTLING_TIME,
        }
    }

    /// Sends a request, repeatedly while its refusal may pass; returns the last answer.
    pub(super) fn request<T>(
        &self,
        mut send: impl FnMut() -> T,
        is_refused: impl Fn(&T) -> bool,
    ) -> T {
        loop {
            let answer = send();
            let is_final = !is_refused(&answer) || Instant::now() >= self.settled;
            if is_final || self.stop.wait(RETRY_INTERVAL) {
                return answer;
            }
        }
    }

    /// Sends a request to the API, repeatedly while it is forbidden.
    pub(super) fn retry_forbidden<T>(
        &self,
        send: impl FnMut() -> Result<T, kube::Error>,
    ) -> Result<T, kube::Error> {
        self.request(send, |answer| {
            answer.as_ref().is_err_and(kube::Error::is_forbidden)
        })
    }
}
