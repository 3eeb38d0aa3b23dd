//! The outcome of a run in one sentence, for the text report and the page.

use super::overview::{Overview, Verdict, columns};
use super::words::{count, number};

/// The outcome in one sentence.
pub(crate) fn headline(overview: &Overview<'_>) -> String {
    let [(_, failed), (_, unknown), (_, flaky), (_, passed), (_, other), (_, skipped)] =
        columns(&overview.counts());
    let ran = failed + unknown + flaky + passed + other;
    let unread = overview.plugins.iter().filter(|plugin| plugin.error.is_some()).count() as u64;
    let aside = [(flaky, "flaky"), (skipped, "skipped")].into_iter().filter(|(count, _)| *count > 0);
    let aside: Vec<String> = aside.map(|(count, word)| format!("{} {word}", number(count))).collect();
    let rest = if aside.is_empty() { String::new() } else { format!(" ({})", aside.join(", ")) };
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
