//! Texts of an iterator as one text.

use std::borrow::Borrow;

/// Any iterator of texts.
pub trait Joined: Iterator + Sized {
    /// The texts with a separator between them.
    fn joined(self, separator: &str) -> String
    where
        Self::Item: Borrow<str>,
    {
        self.collect::<Vec<_>>().join(separator)
    }
}

impl<I: Iterator> Joined for I {}
