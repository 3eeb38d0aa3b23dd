//! The terminal.

/// Columns of standard output, 0 if unknown; `None` if it is not a terminal.
pub fn stdout_width() -> Option<usize> {
    rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col.into())
}

/// Columns and rows of standard error, 0 where unknown; `None` if it is not a terminal.
pub fn stderr_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// Whether terminals of this system support colours.
pub fn colours() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether the terminal shows more than ASCII, according to the user's locale.
pub fn shows_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(std::env::var_os);
    let first = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
    first.to_string_lossy().to_lowercase().replace('-', "").contains("utf8")
}
