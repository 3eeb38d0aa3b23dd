//! The terminal.

/// How many columns standard output has, 0 if it does not say; `None` if it is not a terminal.
pub fn stdout_width() -> Option<usize> {
    rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col.into())
}

/// Whether a terminal of this system understands colours.
pub fn colours() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
