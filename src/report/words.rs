//! How the report for people and the page say things: the run in one sentence, numbers, sizes, spans.

use super::overview::{Overview, Verdict, columns};

/// The run in one sentence.
pub(crate) fn headline(overview: &Overview<'_>) -> String {
    let [(_, failed), (_, unknown), (_, passed), (_, other), (_, skipped)] = columns(&overview.counts());
    let ran = failed + unknown + passed + other;
    let unread = overview.plugins.iter().filter(|plugin| plugin.error.is_some()).count() as u64;
    let rest = if skipped > 0 { format!(" ({} skipped)", number(skipped)) } else { String::new() };
    match overview.verdict() {
        Verdict::Failed if failed == 0 => "Failed".into(),
        Verdict::Failed => format!("{} failed of {} that ran{rest}", number(failed), number(ran)),
        Verdict::Unknown if unread > 0 => "Not all results could be read".into(),
        Verdict::Unknown if ran + skipped == 0 => "No results".into(),
        Verdict::Unknown => format!("{} of {} unknown{rest}", number(unknown), count(ran, "test")),
        Verdict::Passed if ran == 0 => format!("Nothing ran{rest}"),
        Verdict::Passed if other > 0 => format!("Nothing failed of {} that ran{rest}", number(ran)),
        Verdict::Passed if ran == 1 => format!("The one test that ran passed{rest}"),
        Verdict::Passed => format!("All {} that ran passed{rest}", number(ran)),
    }
}

/// `1 test`, `2,000 tests`.
pub(crate) fn count(count: u64, one: &str) -> String {
    format!("{} {one}{}", number(count), if count == 1 { "" } else { "s" })
}

/// 12,345.
pub(crate) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// 12 KiB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
