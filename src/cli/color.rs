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
    /// Colours and width on a terminal only, unless the flag says otherwise; `NO_COLOR` disables
    /// colours.
    pub(crate) fn resolve(self) -> Look {
        let width = sys::terminal_size(io::stdout()).map(|(columns, _)| columns);
        let colour = match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let forced = sys::variable("FORCE_COLOR").is_some_and(|value| value != "0");
                let drawn = forced || width.is_some() && sys::colours();
                sys::variable("NO_COLOR").is_none() && drawn
            }
        };
        Look {
            colour,
            width: width.filter(|width| *width > 0),
        }
    }
}
