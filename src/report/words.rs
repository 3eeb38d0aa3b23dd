//! Numbers, sizes, times and lists of names in the words of all views.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use base::clock::{parse_rfc3339, rfc3339};
pub(crate) use base::words::{count, number};
use model::remedies::MAX_NAMED;
use yaml::natural;

/// The first of `all` names in natural order, and the number of others: `n1, n2 and 3 more`.
pub(crate) fn named<N: Borrow<str>>(names: &[N], all: u64) -> String {
    let mut sorted: Vec<&str> = names.iter().map(Borrow::borrow).collect();
    sorted.sort_by_cached_key(|name| natural(name));
    sorted.truncate(MAX_NAMED);
    let list = sorted.join(", ");
    match all.saturating_sub(sorted.len() as u64) {
        0 => list,
        more => format!("{list} and {} more", number(more)),
    }
}

/// The value of more than half, if any.
pub(crate) fn majority<V: Ord>(values: impl ExactSizeIterator<Item = V>) -> Option<V> {
    let half = values.len() / 2;
    let mut counts = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_insert(0) += 1);
    counts
        .into_iter()
        .find(|(_, count)| *count > half)
        .map(|(value, _)| value)
}

/// 12 KiB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A timestamp to the minute, in UTC; empty for any other text.
pub(crate) fn minute(moment: &str) -> String {
    parse_rfc3339(moment)
        .map(rfc3339)
        .unwrap_or_default()
        .get(..16)
        .map(|minute| format!("{} UTC", minute.replace('T', " ")))
        .unwrap_or_default()
}

/// Formats a duration: `0.4 s`, `12 s`, `3 min 5 s`, `1 h 2 min`, `3 d 4 h`.
pub(crate) fn spoken(seconds: f64) -> String {
    let rounded = seconds.round() as u64;
    match (rounded / 3600, rounded / 60 % 60, rounded % 60) {
        (0, 0, _) if seconds < 0.000_5 => "0 s".into(),
        (0, 0, _) if seconds < 0.1 => format!("{:.0} ms", seconds * 1e3),
        (0, 0, _) if seconds < 9.95 => format!("{seconds:.1} s"),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours @ ..48, minutes, _) => format!("{hours} h {minutes} min"),
        (hours, ..) => format!("{} d {} h", hours / 24, hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_formatted_for_people() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.004, "4 ms"),
            (0.44, "0.4 s"),
            (9.96, "10 s"),
            (59.4, "59 s"),
            (185.2, "3 min 5 s"),
            (3725.0, "1 h 2 min"),
            (7_795_800.0, "90 d 5 h"),
        ] {
            assert_eq!(spoken(seconds), text);
        }
    }
}
