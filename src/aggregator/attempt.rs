//! The upload of a result that is under way: one at a time, until another takes over from one that is slow.
//!
//! A worker whose connection died silently begins again and must not wait for the dead one.

use std::sync::Arc;
use std::time::Duration;

use base::http::Meter;

/// Maximum error reports in the place of one result; a worker has one to send, or a few.
const MAX_REPORTS: u32 = 16;
/// How long an upload waits for another of the same result to end.
pub(super) const TURN_TIMEOUT: Duration = Duration::from_secs(2);

/// The upload of a result, measured by its connection.
#[derive(Default)]
pub(super) struct Uploads {
    current: Option<Arc<Meter>>,
    reports: u32,
}

impl Uploads {
    /// Begins an upload; false while another one makes progress. A slow one is ended.
    pub(super) fn begin(&mut self, upload: &Arc<Meter>) -> bool {
        let free = self.current.as_ref().is_none_or(|current| current.evicted() || current.is_stalled());
        if free && let Some(slow) = self.current.replace(Arc::clone(upload)) {
            slow.evict();
        }
        free
    }

    /// Ends an upload, unless another has taken over.
    pub(super) fn end(&mut self, upload: &Arc<Meter>) {
        self.current.take_if(|current| Arc::ptr_eq(current, upload));
    }

    /// The bytes that the upload under way has brought.
    pub(super) fn bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |upload| upload.bytes())
    }

    /// Whether an upload is under way.
    pub(super) fn any(&self) -> bool {
        self.current.is_some()
    }

    /// Counts one more error report; false if there were too many.
    pub(super) fn may_report(&mut self) -> bool {
        self.reports = self.reports.saturating_add(1);
        self.reports <= MAX_REPORTS
    }

    /// Ends the upload under way.
    pub(super) fn abandon(&self) {
        self.current.iter().for_each(|current| current.evict());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_upload_at_a_time_until_it_ends_or_is_ended() {
        let mut uploads = Uploads::default();
        let [first, second, third]: [Arc<Meter>; 3] = Default::default();
        assert!(uploads.begin(&first) && !uploads.begin(&second));
        uploads.end(&second);
        assert!(!uploads.begin(&second), "only the one under way can end");
        uploads.end(&first);
        assert!(uploads.begin(&second));
        second.evict();
        assert!(uploads.begin(&third) && !uploads.begin(&first));
    }
}
