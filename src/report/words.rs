//! Numbers, sizes and lists of names in the words of all views.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// `1 test`, `2,000 tests`.
pub(crate) fn count(count: impl TryInto<u64>, one: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{} {one}{}", number(count), if count == 1 { "" } else { "s" })
}

/// 12,345.
pub(crate) fn number(count: impl TryInto<u64>) -> String {
    let digits = count.try_into().unwrap_or(u64::MAX).to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Maximum names in a sentence.
const NAMED: usize = 5;

/// Some of `all` names, and the number of others: `n1, n2 and 3 more`.
pub(crate) fn named<N: Borrow<str>>(names: &[N], all: u64) -> String {
    let listed = names.len().min(NAMED);
    let shown = names[..listed].join(", ");
    match all.saturating_sub(listed as u64) {
        0 => shown,
        more => format!("{shown} and {} more", number(more)),
    }
}

/// The value of more than half, if any.
pub(crate) fn majority<V: Ord>(values: impl ExactSizeIterator<Item = V>) -> Option<V> {
    let half = values.len() / 2;
    let mut counts = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_insert(0) += 1);
    counts.into_iter().find(|(_, count)| *count > half).map(|(value, _)| value)
}

/// 12 KiB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
