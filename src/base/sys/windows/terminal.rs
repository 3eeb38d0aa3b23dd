//! The console.

/// Columns of standard output, 0 if unknown; `None` if it is not a terminal.
pub fn stdout_width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into())
}

/// Columns and rows of standard error, 0 where unknown; `None` if it is not a terminal.
pub fn stderr_size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(std::io::stderr())?;
    Some((width.0.into(), height.0.into()))
}

/// Whether the console supports colours; enables them.
pub fn colours() -> bool {
    anstyle_query::windows::enable_ansi_colors() == Some(true)
}

/// Whether the console shows more than ASCII: its output is UTF-16.
pub fn shows_unicode() -> bool {
    true
}
