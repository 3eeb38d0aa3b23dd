//! The console.

/// How many columns standard output has, 0 if it does not say; `None` if it is not a terminal.
pub fn stdout_width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into())
}

/// How many columns and rows standard error has, 0 for what it does not say; `None` if it is not a terminal.
pub fn stderr_size() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(std::io::stderr())?;
    Some((width.0.into(), height.0.into()))
}

/// Whether a console of this system understands colours; it has to be told to.
pub fn colours() -> bool {
    anstyle_query::windows::enable_ansi_colors() == Some(true)
}

/// Whether it shows more than ASCII: it is written to in UTF-16.
pub fn shows_unicode() -> bool {
    true
}
