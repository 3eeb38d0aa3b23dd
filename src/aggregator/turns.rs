//! One upload of a result at a time: the second is told so, unless the first makes room.
//!
//! Knows no connection; when an upload makes room is [`super::attempt`]'s.

use std::sync::Arc;
use std::time::Instant;

use super::attempt::Attempt;
use super::state::{State, Taken};
use client::protocol::ResultId;

impl State {
    /// Begins an upload for `id`, unless another one goes on.
    pub(super) fn begin(&mut self, id: &ResultId, now: Instant) -> Result<Arc<Attempt>, Taken> {
        self.takes(id)?;
        let upload = self.upload(id).ok_or(Taken::Unexpected)?;
        if upload.as_ref().is_some_and(|other| !other.yields(now)) {
            return Err(Taken::Uploading);
        }
        Ok(Arc::clone(upload.insert(Arc::default())))
    }

    /// An upload for `id` has ended, well or not.
    pub(super) fn end(&mut self, id: &ResultId, attempt: &Arc<Attempt>) {
        if let Some(upload) = self.upload(id) {
            upload.take_if(|upload| Arc::ptr_eq(upload, attempt));
        }
    }
}
