//! One upload of a result at a time, and few small ones beside it: another is told so, unless one of them makes room.
//!
//! Knows no connection; when an upload makes room is [`super::attempt`]'s.

use std::sync::Arc;
use std::time::Instant;

use super::attempt::{Attempt, BESIDE};
use super::state::{State, Taken};
use client::protocol::ResultId;

/// So many small ones at a time.
const MAX_BESIDE: usize = 2;

/// So many reports of errors are taken in the place of one result; a worker has one to tell, or a few.
const MAX_REPORTS: u32 = 16;

/// The uploads of a result that are under way.
#[derive(Default)]
pub(super) struct Uploads {
    large: Vec<Arc<Attempt>>,
    small: Vec<Arc<Attempt>>,
    /// How many reports of errors came instead.
    reports: u32,
}

impl State {
    /// Begins an upload for `id` of that length, unless too many others go on.
    pub(super) fn begin(
        &mut self,
        id: &ResultId,
        length: Option<u64>,
        now: Instant,
    ) -> Result<Arc<Attempt>, Taken> {
        self.takes(id)?;
        let uploads = self.uploads(id).ok_or(Taken::Unexpected)?;
        let (uploads, most) = match length {
            Some(..=BESIDE) => (&mut uploads.small, MAX_BESIDE),
            _ => (&mut uploads.large, 1),
        };
        if uploads.len() >= most {
            let made = uploads.iter().position(|other| other.yields(now)).ok_or(Taken::Uploading)?;
            uploads.swap_remove(made);
        }
        let attempt = Arc::default();
        uploads.push(Arc::clone(&attempt));
        Ok(attempt)
    }

    /// An upload for `id` has ended, well or not.
    pub(super) fn end(&mut self, id: &ResultId, attempt: &Arc<Attempt>) {
        if let Some(uploads) = self.uploads(id) {
            uploads.large.retain(|upload| !Arc::ptr_eq(upload, attempt));
            uploads.small.retain(|upload| !Arc::ptr_eq(upload, attempt));
        }
    }

    /// Counts one more report of an error for `id`; false if there were too many.
    pub(super) fn may_report(&mut self, id: &ResultId) -> bool {
        let Some(uploads) = self.uploads(id) else { return false };
        uploads.reports = uploads.reports.saturating_add(1);
        uploads.reports <= MAX_REPORTS
    }

    /// Nobody waits for any upload any more.
    pub(super) fn abandon_uploads(&mut self) {
        for id in self.ids().cloned().collect::<Vec<_>>() {
            let uploads = self.uploads(&id).map(|uploads| uploads.large.iter().chain(&uploads.small));
            uploads.into_iter().flatten().for_each(|upload| upload.abandon());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_upload_and_two_small_ones_go_on_at_a_time() {
        let id = ResultId::global("p");
        let mut state = State::new(vec![id.clone()], 0);
        for (length, most) in [(None, 1), (Some(BESIDE + 1), 1), (Some(BESIDE), 2), (Some(0), 2)] {
            let mut begin = || state.begin(&id, length, Instant::now());
            let begun: Vec<_> = (0..most).map(|_| begin().unwrap()).collect();
            assert_eq!(begin().err(), Some(Taken::Uploading), "{length:?}");
            state.end(&id, &begun[0]);
            let again = state.begin(&id, length, Instant::now()).unwrap();
            begun[1..].iter().chain([&again]).for_each(|attempt| state.end(&id, attempt));
        }
    }
}
