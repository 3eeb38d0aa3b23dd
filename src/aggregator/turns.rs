//! Which uploads may begin, as the state of the run has it.

use std::sync::Arc;

use super::attempt::Uploads;
use super::state::{State, Taken};
use base::http::Meter;
use client::protocol::ResultId;

impl State {
    /// Begins an upload for `id`: one that `must_be_alone` not beside another such.
    pub(super) fn begin(&mut self, id: &ResultId, must_be_alone: Option<&Arc<Meter>>) -> Result<(), Taken> {
        self.takes(id)?;
        let begins = |uploads: &mut Uploads| must_be_alone.is_none_or(|upload| uploads.begin(upload));
        if self.uploads(id).is_some_and(begins) { Ok(()) } else { Err(Taken::Uploading) }
    }

    /// Ends an upload for `id`.
    pub(super) fn end(&mut self, id: &ResultId, upload: &Arc<Meter>) {
        if let Some(uploads) = self.uploads(id) {
            uploads.end(upload);
        }
    }

    /// Counts one more error report for `id`; false if there were too many.
    pub(super) fn may_report(&mut self, id: &ResultId) -> bool {
        self.uploads(id).is_some_and(Uploads::may_report)
    }

    /// Ends all uploads.
    pub(super) fn abandon_uploads(&mut self) {
        for id in self.ids().cloned().collect::<Vec<_>>() {
            if let Some(uploads) = self.uploads(&id) {
                uploads.abandon();
            }
        }
    }
}
