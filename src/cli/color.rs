//! Whether a report has colours, and how wide it is.

use std::io;

use base::sys;
use report::Look;

/// Whether text has colours.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// Width on a terminal only; colours as the flag, variables or the terminal say.
    pub(crate) fn resolve(self) -> Look {
        let width = sys::terminal_size(io::stdout()).map(|(columns, _)| columns);
        let colour = match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => sys::wants_colours(width.is_some()),
        };
        Look {
            colour,
            width: width.filter(|width| *width > 0),
        }
    }
}
