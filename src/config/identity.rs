//! Authentication of workers.

use serde::Serialize;

/// The mode of authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Identity {
    /// Each worker with a separate certificate if possible, else with the plugin's.
    #[default]
    Auto,
    /// Each worker with a separate certificate.
    Node,
    /// All workers of a plugin with one certificate.
    Plugin,
}

impl Identity {
    /// The values of flag and configuration.
    pub(crate) const WORDS: [&'static str; 3] = ["node", "plugin", "auto"];

    /// Its value in the configuration.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Node => Self::WORDS[0],
            Self::Plugin => Self::WORDS[1],
            Self::Auto => Self::WORDS[2],
        }
    }

    /// Parses a value.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Node, Self::Plugin, Self::Auto];
        Self::WORDS.iter().zip(all).find(|(word, _)| **word == text).map(|(_, identity)| identity)
    }
}
