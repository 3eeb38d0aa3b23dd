//! Misbehaviour on demand.

use std::time::Duration;

/// What goes wrong, with which requests, how often. The first that fits is taken.
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
    /// The connection is closed without an answer.
    Drop,
    /// The answer comes after this time.
    Slow(Duration),
    /// The connection is closed after so many bytes of the answer's body.
    Cut(usize),
    /// The answer's body is this line, for ever.
    Endless(String),
    /// 410, with a token to go on inconsistently.
    Gone,
    /// The answer is this text.
    Garbage(String),
}

impl Fault {
    /// For requests that begin so: `GET /api/v1/nodes`.
    pub fn on(beginning: &str) -> Self {
        let kind = Kind::Status(500, "InternalError".into(), "internal error".into());
        Self { beginning: beginning.into(), left: 1, skip: 0, kind, retry_after: None }
    }

    /// So often; once by default.
    pub fn times(mut self, times: usize) -> Self {
        self.left = times;
        self
    }

    /// Lets so many pass first.
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Answers with a `Status`.
    pub fn status(mut self, code: u16, reason: &str, message: &str) -> Self {
        self.kind = Kind::Status(code, reason.into(), message.into());
        self
    }

    /// Adds `Retry-After` to a status.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Closes the connection without an answer.
    pub fn dropped(mut self) -> Self {
        self.kind = Kind::Drop;
        self
    }

    /// Answers late.
    pub fn slow(mut self, by: Duration) -> Self {
        self.kind = Kind::Slow(by);
        self
    }

    /// Closes the connection within the answer's body.
    pub fn cut(mut self, after: usize) -> Self {
        self.kind = Kind::Cut(after);
        self
    }

    /// Answers 200 and does not end: the line comes again and again.
    pub fn endless(mut self, line: &str) -> Self {
        self.kind = Kind::Endless(line.into());
        self
    }

    /// 410 in the middle of paging, with a token of the present.
    pub fn gone(mut self) -> Self {
        self.kind = Kind::Gone;
        self
    }

    /// Answers 200 with this text.
    pub fn garbage(mut self, text: &str) -> Self {
        self.kind = Kind::Garbage(text.into());
        self
    }

    /// Whether it strikes now; counts.
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
