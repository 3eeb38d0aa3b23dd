//! How workers prove who they are.

use serde::Serialize;

/// What a run's configuration says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Identity {
    /// By a certificate of their own where that can be had, else by their plugin's.
    #[default]
    Auto,
    /// Each by a certificate of its own.
    Node,
    /// All of a plugin by one certificate.
    Plugin,
}

impl Identity {
    /// The words of flag and configuration.
    pub(crate) const WORDS: [&'static str; 3] = ["node", "plugin", "auto"];

    /// Reads one of them.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Node, Self::Plugin, Self::Auto];
        Self::WORDS.iter().zip(all).find(|(word, _)| **word == text).map(|(_, identity)| identity)
    }
}
