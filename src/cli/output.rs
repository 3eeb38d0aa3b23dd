//! Standard output: data goes there and nothing else, and a reader that leaves ends the program quietly.

use std::fmt;
use std::io::{self, Write};

/// Standard output. Not buffered beyond a line: wrap it in a `BufWriter` for much data.
pub(crate) struct Output(io::Stdout);

/// Whoever read standard output has left; [`left`] recognises it in a chain of errors.
#[derive(Debug)]
struct Left;

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

impl std::error::Error for Left {}

/// Standard output.
pub(crate) fn stdout() -> Output {
    Output(io::stdout())
}

/// Writes `text` as it is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Whether `error` comes from a reader of standard output that has left, as opposed to any other closed pipe.
pub(crate) fn left(error: &anyhow::Error) -> bool {
    let mut inner = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()?.get_ref());
    inner.any(<dyn std::error::Error + Send + Sync>::is::<Left>)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark)
    }
}

fn mark(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(error.kind(), Left),
        // `write_all` goes on after this one by itself.
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("cannot write to standard output: {error}")),
    }
}
