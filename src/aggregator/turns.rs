//! Who may upload for which result now, as the state of the run has it.

use std::sync::Arc;
use std::time::Instant;

use super::attempt::{Attempt, Uploads};
use super::state::{State, Taken};
use client::protocol::ResultId;

impl State {
    /// Begins an upload for `id` of that length, unless too many others go on.
    pub(super) fn begin(
        &mut self,
        id: &ResultId,
        length: Option<u64>,
        now: Instant,
    ) -> Result<Arc<Attempt>, Taken> {
        self.takes(id)?;
        self.uploads(id).ok_or(Taken::Unexpected)?.begin(length, now).ok_or(Taken::Uploading)
    }

    /// An upload for `id` has ended, well or not.
    pub(super) fn end(&mut self, id: &ResultId, attempt: &Arc<Attempt>) {
        if let Some(uploads) = self.uploads(id) {
            uploads.end(attempt);
        }
    }

    /// Counts one more report of an error for `id`; false if there were too many.
    pub(super) fn may_report(&mut self, id: &ResultId) -> bool {
        self.uploads(id).is_some_and(Uploads::may_report)
    }

    /// Nobody waits for any upload any more.
    pub(super) fn abandon_uploads(&mut self) {
        for id in self.ids().cloned().collect::<Vec<_>>() {
            if let Some(uploads) = self.uploads(&id) {
                uploads.abandon();
            }
        }
    }
}
