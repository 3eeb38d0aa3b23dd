//! The console.

/// How many columns standard output has, 0 if it does not say; `None` if it is not a terminal.
pub fn stdout_width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into())
}

/// Whether a console of this system understands colours; it has to be told to.
pub fn colours() -> bool {
    anstyle_query::windows::enable_ansi_colors() == Some(true)
}
