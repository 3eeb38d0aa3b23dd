//! What each principal may take of the aggregator, in one table: a connection, a plugin, one result, the whole run.
//!
//! | what | of whom | how much | beyond that |
//! | --- | --- | --- | --- |
//! | connections without a certificate | all strangers together | `Connections.Strangers` | who has kept us waiting longest goes, of the address that holds most |
//! | handshakes under way; bytes of one | all together; a connection | [`http::Limits`] | the next waits its turn; the connection ends |
//! | connections between requests | all together, guests a quarter | `Connections.Known` | who is in the middle of a request goes, of an address that holds many, for one that holds few; then who waits longest of a plugin with more than its part; then who idles longest |
//! | small requests at once | a plugin | its part of `Connections.Small` | it waits; what dawdles meanwhile: [`Hit::Dawdled`] |
//! | uploads at once | a plugin | its part of `Connections.Uploads` | it waits; what dawdles meanwhile: [`Hit::Dawdled`] |
//! | uploads that wait; any request of guests that waits | a plugin; guests an eighth | its part of `Connections.Waiting` | [`Hit::Waiting`] |
//! | uploads under way | a result | one | [`Hit::Uploading`] |
//! | requests for certificates | an address, a pod, the run | `certify` | 429 with Retry-After |
//! | bytes of a progress update | a request | `Progress.Bytes` | [`Hit::Update`] |
//! | updates and error reports being read | a plugin; the run | a quarter of `Progress.ReadingBytes`, at least one update; all of it, the last quarter only for small ones | [`Hit::Reading`] |
//! | a text in progress | a request | [`TEXT`] | it is cut, with a mark |
//! | progress kept | a result | its part of `Progress.KeptBytes`, at most [`PROGRESS_OF_ONE`] | [`Hit::Kept`], the list ends with a mark |
//! | bytes as sent; bytes and entries unpacked | a result | `Results` | [`Hit::Sent`], [`Hit::Unpacked`]; recorded as its failure |
//! | bytes and inodes of the disk | a plugin | `Plugin`; by default an equal part, and what nobody else can need | [`Hit::Plugin`], [`Hit::Share`] |
//! | bytes of results | the run | half of `Run.Bytes` | [`Hit::Run`] |
//! | bytes and inodes that stay free | the run | `Results.FreeBytes`, `Results.FreeInodes` | [`Hit::Disk`] |
//! | an error report | a result | [`ERROR_REPORT`], its sentence [`SENTENCE`] | cut |
//! | processing: memory, time | a plugin | `Processing` | its failure, with the reason |
//!
//! Names in code without a path are those of `Limits` in the configuration. What is kept in memory stays below the limit
//! of the pod, whatever the number of plugins and nodes. Owns sizes, the arithmetic of shares, and what is said to who is
//! beyond one, which `status` repeats; who is asked is decided where the request is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config;
use base::http;

/// One text of a progress update.
pub(super) const TEXT: usize = 2 << 10;
/// What is kept of the progress of one result at most.
pub(super) const PROGRESS_OF_ONE: usize = 1 << 20;
/// What may be kept of the progress of one result however many there are.
const PROGRESS_LEAST: usize = 1 << 10;
/// A worker's report that there is no result; a pod description is some tens of KiB.
pub(super) const ERROR_REPORT: u64 = 1 << 20;
/// What is kept in memory of the sentence in such a report.
pub(super) const SENTENCE: usize = 4 << 10;

/// A limit that somebody ran into.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Hit {
    /// Others were waiting, and this request brought next to nothing.
    Dawdled,
    /// Too many requests of its plugin wait.
    Waiting,
    /// Another upload of the same result is under way.
    Uploading,
    /// A progress update has more than so many bytes.
    Update(u64),
    /// Too much is being read at once.
    Reading,
    /// So many bytes are kept of the progress of one result.
    Kept(usize),
    /// More than so many bytes were sent.
    Sent(u64),
    /// The archive is too large, in words.
    Unpacked(String),
    /// The plugin's own limit: how much of what.
    Plugin(u64, Unit),
    /// The plugin has its equal part of the disk, and the rest may be needed by others.
    Share(u64, Unit),
    /// The results of the run have so many bytes.
    Run(u64),
    /// So much is left of the disk, and so much stays in reserve.
    Disk(u64, u64, Unit),
}

/// What a disk has less of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Inodes,
}

impl Hit {
    /// What the request is answered.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Dawdled | Self::Waiting | Self::Uploading | Self::Reading => 503,
            Self::Update(_) | Self::Sent(_) | Self::Unpacked(_) | Self::Plugin(..) => 413,
            Self::Share(..) | Self::Run(_) | Self::Disk(..) => 507,
            Self::Kept(_) => 200,
        }
    }

    /// Whether trying again is of no use.
    pub(super) fn is_final(&self) -> bool {
        self.code() == 413
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dawdled => f.write_str("others were waiting and this one sent next to nothing; try again"),
            Self::Waiting => f.write_str("too many uploads of this plugin at once; try again"),
            Self::Uploading => f.write_str("another upload of this result is under way; try again"),
            Self::Update(most) => write!(f, "progress is larger than {most} bytes (`Limits.Progress.Bytes`)"),
            Self::Reading => {
                f.write_str("too much is being read at once (`Limits.Progress.ReadingBytes`); try again")
            }
            Self::Kept(share) => write!(
                f,
                "its progress is shown in part: {share} bytes are kept for each result (`Limits.Progress.KeptBytes`)"
            ),
            Self::Sent(most) => {
                write!(f, "the result is too large: more than {most} bytes (`Limits.Results.Bytes`)")
            }
            Self::Unpacked(what) => write!(f, "the result is too large: {what} (`Limits.Results`)"),
            Self::Plugin(most, unit) => {
                write!(
                    f,
                    "the results of its plugin are too large: more than {most} {unit} (`Limits.Plugin`)"
                )
            }
            Self::Share(share, unit) => write!(
                f,
                "the results disk is full: its plugin has used its share of {share} {unit}, and others may need the rest (`Limits.Plugin`)"
            ),
            Self::Run(most) => write!(
                f,
                "the results disk is full: the results of the run may take {most} bytes (half of `Limits.Run.Bytes`)"
            ),
            Self::Disk(left, reserve, unit) => {
                write!(
                    f,
                    "the results disk is full: {left} {unit} are left, of which {reserve} stay in reserve"
                )
            }
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Inodes => "inodes",
        })
    }
}

/// What connections may take, where so many plugins share it alike.
pub(crate) fn connections(limits: &config::Connections, plugins: usize) -> http::Limits {
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX).max(1);
    http::Limits {
        strangers: count(limits.strangers),
        known: count(limits.known),
        small: count(limits.small),
        large: count(limits.uploads),
        parked: count(limits.waiting),
        principals: plugins,
        ..http::Limits::default()
    }
}

/// What one result's progress may take of `kept`, where `plugins` share alike and this plugin has so many `results`.
pub(super) fn progress_share(kept: u64, plugins: usize, results: usize) -> usize {
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    (kept / plugins.max(1) / results.max(1)).clamp(PROGRESS_LEAST, PROGRESS_OF_ONE)
}

/// `text` cut after `most` bytes at a character, with a mark.
pub(super) fn cut(text: String, most: usize) -> String {
    if text.len() <= most { text } else { beginning(&text, most).into_owned() }
}

/// As above, of a text that is not ours.
pub(super) fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let at = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned([&text[..at], "…"].concat())
}

/// A body of so many bytes is small: a heartbeat of progress, a usual error report.
const SMALL_BODY: u64 = 64 << 10;

/// Memory for bodies being read, which plugins take from at once. Of one plugin no more than its part is held, and
/// small bodies have a reserve that larger ones leave alone.
pub(super) struct Pool {
    amount: u64,
    part: u64,
    reserve: u64,
    held: Mutex<HashMap<String, u64>>,
}

/// Part of a pool, given back when it is dropped.
pub(super) struct Share<'a> {
    pool: &'a Pool,
    plugin: String,
    amount: u64,
}

impl Pool {
    /// A pool of `amount` in which one body of `largest` fits, if it is not larger than all of it.
    pub(super) fn new(amount: u64, largest: u64) -> Self {
        let quarter = amount / 4;
        Self {
            amount,
            part: quarter.max(largest).min(amount),
            reserve: quarter.min(amount.saturating_sub(largest)),
            held: Mutex::default(),
        }
    }

    /// Takes `amount` for `plugin`, if so much is left and within its part.
    pub(super) fn take(&self, plugin: &str, amount: u64) -> Option<Share<'_>> {
        let mut held = self.held();
        let own = held.get(plugin).copied().unwrap_or(0).checked_add(amount)?;
        let all = held.values().sum::<u64>().checked_add(amount)?;
        let reserve = if amount <= SMALL_BODY { 0 } else { self.reserve };
        if own > self.part || all > self.amount - reserve {
            return None;
        }
        held.insert(plugin.to_owned(), own);
        Some(Share { pool: self, plugin: plugin.to_owned(), amount })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        // Numbers alone: whatever a panic left is a number, too.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut held = self.pool.held();
        if let Some(own) = held.get_mut(&self.plugin) {
            *own = own.saturating_sub(self.amount);
        }
        held.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_connections_stand_in_one_place() {
        let configured = connections(&config::Connections::default(), 0);
        assert_eq!(format!("{configured:?}"), format!("{:?}", http::Limits::default()));
    }

    #[test]
    fn shares_add_up_to_no_more_than_there_is() {
        const KEPT: u64 = 24 << 20;
        for (plugins, results) in [(1, 1), (2, 1), (2, 5_000), (40, 100), (1, 20_000)] {
            let share = progress_share(KEPT, plugins, results);
            assert!((share * plugins * results) as u64 <= KEPT, "{plugins} {results}: {share}");
        }
        assert_eq!(
            progress_share(KEPT, 2, 1),
            PROGRESS_OF_ONE,
            "a suite beside a plugin of many nodes is told whole"
        );
    }

    #[test]
    fn a_pool_gives_what_it_has_and_takes_it_back() {
        let pool = Pool::new(10, 10);
        let first = pool.take("p", 6).unwrap();
        assert!(pool.take("q", 5).is_none());
        let second = pool.take("p", 4).unwrap();
        drop(first);
        assert!(pool.take("q", 6).is_some());
        drop(second);
        assert!(pool.take("q", 10).is_some());
        assert!(pool.take("q", u64::MAX).is_none() && pool.held().is_empty());
    }

    #[test]
    fn no_plugin_holds_the_room_of_others_and_small_bodies_have_a_reserve() {
        const LARGE: u64 = 4 << 20;
        let pool = Pool::new(4 * LARGE, LARGE);
        let _evil = pool.take("evil", LARGE).unwrap();
        assert!(pool.take("evil", 1).is_none());
        let _others = ["a", "b"].map(|plugin| pool.take(plugin, LARGE).unwrap());
        assert!(pool.take("honest", LARGE).is_none(), "that is the reserve");
        let small: Vec<_> = (0..64).map_while(|_| pool.take("honest", SMALL_BODY)).collect();
        assert_eq!(small.len(), 64);
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(cut("äöü".into(), 6), "äöü");
        assert_eq!(cut("äöü".into(), 5), "äö…");
    }
}
