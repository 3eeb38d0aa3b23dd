//! Injected faults.

use std::time::Duration;

/// A fault, the requests that it applies to, and its repetitions. The first match applies.
#[derive(Clone, Debug)]
pub struct Fault {
    beginning: String,
    left: usize,
    skip: usize,
    pub(super) kind: Kind,
    pub(super) retry_after: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Status(u16, String, String),
    /// Closes the connection without a response.
    Drop,
    /// Delays the response.
    Slow(Duration),
    /// Closes the connection after this many bytes of the response's body.
    Cut(usize),
    /// Repeats this line forever as the response's body.
    Endless(String),
    /// 410, with a token for an inconsistent continuation.
    Gone,
    /// Responds with this text.
    Garbage(String),
}

impl Fault {
    /// For requests with this prefix: `GET /api/v1/nodes`.
    pub fn on(beginning: &str) -> Self {
        let kind = Kind::Status(500, "InternalError".into(), "internal error".into());
        Self {
            beginning: beginning.into(),
            left: 1,
            skip: 0,
            kind,
            retry_after: None,
        }
    }

    /// Number of repetitions; once by default.
    pub fn times(mut self, times: usize) -> Self {
        self.left = times;
        self
    }

    /// Skips this many requests first.
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Responds with a `Status`.
    pub fn status(mut self, code: u16, reason: &str, message: &str) -> Self {
        self.kind = Kind::Status(code, reason.into(), message.into());
        self
    }

    /// Adds `Retry-After` to a status.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Closes the connection without a response.
    pub fn dropped(mut self) -> Self {
        self.kind = Kind::Drop;
        self
    }

    /// Delays the response.
    pub fn slow(mut self, by: Duration) -> Self {
        self.kind = Kind::Slow(by);
        self
    }

    /// Closes the connection within the response's body.
    pub fn cut(mut self, after: usize) -> Self {
        self.kind = Kind::Cut(after);
        self
    }

    /// Responds with 200 and repeats the line forever.
    pub fn endless(mut self, line: &str) -> Self {
        self.kind = Kind::Endless(line.into());
        self
    }

    /// Responds with 410 in the middle of paging, with a current token.
    pub fn gone(mut self) -> Self {
        self.kind = Kind::Gone;
        self
    }

    /// Responds with 200 and this text.
    pub fn garbage(mut self, text: &str) -> Self {
        self.kind = Kind::Garbage(text.into());
        self
    }

    /// Whether it applies to this request; counts requests.
    pub(super) fn strikes(&mut self, request: &str) -> bool {
        if self.left == 0 || !request.starts_with(&self.beginning) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.left -= 1;
        true
    }
}
