//! `results --format junit`: one JUnit file from the results of any plugin. A plugin is a suite, or a suite per node.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use super::diff::{Change, Diff, KINDS, Kind};
use super::leaf::Leaf;
use super::overview::{Counts, Overview, Plugin, columns};
use super::survey::Told;
use crate::item::{ATTEMPTS, FAILED, FAILURE, FLAKY, Item, PASSED, RESUMED, SKIPPED, TIMEOUT, UNKNOWN};
use base::xml::escape;
use client::protocol::GLOBAL;

/// Writes one document.
pub(crate) fn write(overview: &Overview<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    let broken = overview.plugins.iter().filter(|plugin| plugin.error.is_some()).count() as u64;
    let all =
        Suite { seconds: overview.times.whole().map(|span| span.length().as_secs_f64()), ..Suite::default() };
    let mut counts = overview.counts();
    if overview.why.is_some() {
        *counts.entry(UNKNOWN.into()).or_default() += 1;
    }
    let counts = sums(&counts, broken, "");
    writeln!(out, "<testsuites name=\"sonobuoy\"{counts}{}>", all.attributes())?;
    if let Some(why) = &overview.why {
        write_why(&why.sentences(), out)?;
    }
    for plugin in &overview.plugins {
        write_plugin(overview, plugin, out)?;
    }
    Ok(writeln!(out, "</testsuites>")?)
}

/// Writes the changes between two archives: a suite per plugin and node. New failures are failures, removed or newly
/// unknown tests are errors, all others pass or are skipped, with the kind of change.
pub(crate) fn write_diff(diff: &Diff, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut suites = BTreeMap::<(&str, &str), Vec<&Change>>::new();
    for change in diff.changes() {
        let node = change.node.as_deref().unwrap_or_default();
        suites.entry((&change.plugin, node)).or_default().push(change);
    }
    let status = |change: &Change| match change.kind {
        Kind::NewlyFailing => FAILED,
        Kind::Vanished => UNKNOWN,
        Kind::Appeared | Kind::Changed if change.after.as_deref() == Some(UNKNOWN) => UNKNOWN,
        Kind::Fixed | Kind::Appeared | Kind::Slower => PASSED,
        Kind::StillFailing | Kind::Changed => SKIPPED,
    };
    let counts = |changes: &mut dyn Iterator<Item = &Change>| {
        changes.fold(Counts::new(), |mut counts, change| {
            *counts.entry(status(change).to_owned()).or_default() += 1;
            counts
        })
    };
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    let all = sums(&counts(&mut diff.changes().iter()), 0, "");
    writeln!(out, "<testsuites name=\"sonobuoy results diff\"{all}>")?;
    for ((plugin, node), changes) in suites {
        let name = if node.is_empty() { plugin.to_owned() } else { format!("{plugin}/{node}") };
        let sums = sums(&counts(&mut changes.iter().copied()), 0, SKIPPED);
        writeln!(out, "<testsuite name=\"{}\"{sums}>", attribute(&name))?;
        for change in changes {
            let kind = KINDS.iter().find(|(kind, ..)| *kind == change.kind).map_or("", |(_, _, title)| title);
            let statuses =
                [&change.before, &change.after].map(|status| status.as_deref().unwrap_or("absent"));
            let message = attribute(&format!("{kind}: {} -> {}", statuses[0], statuses[1]));
            let (test, plugin) = (attribute(&change.test), attribute(plugin));
            write!(out, "<testcase name=\"{test}\" classname=\"{plugin}\" time=\"0\">")?;
            match status(change) {
                FAILED => {
                    let why = content(&change.why);
                    write!(out, "<failure type=\"failed\" message=\"{message}\">{why}</failure>")?;
                }
                UNKNOWN => write!(out, "<error type=\"unknown\" message=\"{message}\"/>")?,
                SKIPPED => write!(out, "<skipped message=\"{message}\"/>")?,
                _ => write!(out, "<system-out>{message}</system-out>")?,
            }
            writeln!(out, "</testcase>")?;
        }
        writeln!(out, "</testsuite>")?;
    }
    Ok(writeln!(out, "</testsuites>")?)
}

/// Writes the failure of the whole run as a suite with one test: CI systems show nothing except tests.
fn write_why(told: &[String], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "<testsuite name=\"sonobuoy\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\">")?;
    write!(out, "<testcase name=\"the run brings results\" classname=\"sonobuoy\" time=\"0\">")?;
    let message = attribute(told.first().map(String::as_str).unwrap_or_default());
    writeln!(
        out,
        "<error type=\"run\" message=\"{message}\">{}</error></testcase>",
        content(&told.join("\n"))
    )?;
    Ok(writeln!(out, "</testsuite>")?)
}

fn write_plugin(overview: &Overview<'_>, plugin: &Plugin, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(error) = &plugin.error {
        writeln!(
            out,
            "<testsuite name=\"{}\"{}>",
            attribute(&plugin.name),
            sums(&plugin.counts, 1, SKIPPED)
        )?;
        let name = attribute(&plugin.name);
        writeln!(
            out,
            "<testcase name=\"{name}\" classname=\"{name}\"><error message=\"{}\"/></testcase>",
            attribute(error)
        )?;
        return Ok(writeln!(out, "</testsuite>")?);
    }
    let mut suites = Suite::all(overview, plugin)?.into_iter();
    // `Some(None)` is the suite of results without a node.
    let mut open = None::<Option<String>>;
    let mut items = plugin.node_items.iter();
    let untold = Told::default();
    overview.leaves(plugin, |leaf| {
        if open.as_ref().is_none_or(|open| open.as_deref() != leaf.node) {
            if open.is_some() {
                writeln!(out, "</testsuite>")?;
            }
            open = Some(leaf.node.map(str::to_owned));
            // A node that also reported an error is in the tree twice, and so are its suites.
            let of_node = leaf.node.and_then(|_| items.next());
            let name =
                leaf.node.map_or_else(|| plugin.name.clone(), |node| format!("{}/{node}", plugin.name));
            let counts = of_node.unwrap_or(&plugin.counts);
            let about = suites.next().unwrap_or_default().attributes();
            writeln!(out, "<testsuite name=\"{}\"{}{about}>", attribute(&name), sums(counts, 0, SKIPPED))?;
        }
        let told = leaf.told(&plugin.name, &overview.opened.survey);
        write_test(&plugin.name, leaf, told.unwrap_or(&untold), out)
    })?;
    if open.is_some() {
        writeln!(out, "</testsuite>")?;
    }
    Ok(())
}

/// The attributes of a suite other than its sums.
#[derive(Default)]
struct Suite {
    node: Option<String>,
    seconds: Option<f64>,
    began: Option<String>,
}

impl Suite {
    /// The suites of a plugin, in order.
    fn all(overview: &Overview<'_>, plugin: &Plugin) -> anyhow::Result<Vec<Self>> {
        let mut suites = Vec::<Self>::new();
        overview.leaves(plugin, |leaf| {
            if suites.last().is_none_or(|suite| suite.node.as_deref() != leaf.node) {
                let stamp = leaf.file.and_then(|file| {
                    overview.opened.survey.stamps.get(&(plugin.name.clone(), file.to_owned())).cloned()
                });
                let began = || {
                    let span = overview.times.of(&plugin.name, Some(leaf.node.unwrap_or(GLOBAL)))?;
                    Some(base::clock::rfc3339(span.from))
                };
                let node = leaf.node.map(str::to_owned);
                suites.push(Self { node, seconds: None, began: stamp.or_else(began) });
            }
            if let (Some(suite), Some(seconds)) = (suites.last_mut(), leaf.duration) {
                *suite.seconds.get_or_insert_default() += seconds;
            }
            Ok(())
        })?;
        Ok(suites)
    }

    fn attributes(&self) -> String {
        // To the millisecond: schemas allow no more digits in a suite.
        let whole = |seconds: f64| (seconds * 1e3).round() / 1e3;
        let mut text =
            self.seconds.map(|seconds| format!(" time=\"{}\"", whole(seconds))).unwrap_or_default();
        // In UTC and without a zone, as readers of JUnit expect.
        if let Some(stamp) = self.began.as_deref().and_then(moment) {
            let stamp = base::clock::rfc3339(stamp);
            text.push_str(&format!(" timestamp=\"{}\"", stamp.get(..19).unwrap_or(&stamp)));
        }
        if let Some(node) = &self.node {
            text.push_str(&format!(" hostname=\"{}\"", attribute(node)));
        }
        text
    }
}

/// A timestamp in the formats of JUnit files, with or without a zone.
fn moment(text: &str) -> Option<std::time::SystemTime> {
    base::clock::parse_rfc3339(text).or_else(|| base::clock::parse_rfc3339(&format!("{text}Z")))
}

/// Seconds without rounding noise.
fn time(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// The sums of a suite, or of all suites: the latter have no `skipped` in schemas.
fn sums(counts: &Counts, broken: u64, skipped_as: &str) -> String {
    let [(_, failed), (_, unknown), _, _, (_, other), (_, skipped)] = columns(counts);
    let total = counts.values().sum::<u64>() + broken;
    let mut text = format!(" tests=\"{total}\" failures=\"{failed}\" errors=\"{}\"", unknown + broken);
    if !skipped_as.is_empty() {
        text.push_str(&format!(" {skipped_as}=\"{}\"", skipped + other));
    }
    text
}

fn write_test(plugin: &str, leaf: &Leaf<'_>, told: &Told, out: &mut dyn Write) -> anyhow::Result<()> {
    let item = leaf.item;
    let place = || {
        let group: Vec<&str> =
            std::iter::once(plugin).chain(leaf.group().iter().map(String::as_str)).collect();
        group.join(".")
    };
    let class = if told.class.is_empty() { place() } else { told.class.to_string() };
    write!(
        out,
        "<testcase name=\"{}\" classname=\"{}\" time=\"{}\">",
        attribute(&item.name),
        attribute(&class),
        time(leaf.duration.unwrap_or_default())
    )?;
    let status = leaf.status();
    let text = leaf.complaint();
    match status {
        PASSED => {}
        SKIPPED if told.skipped.is_empty() => write!(out, "<skipped/>")?,
        SKIPPED => write!(out, "<skipped message=\"{}\"/>", attribute(&told.skipped))?,
        FAILED | TIMEOUT => {
            let (message, text) = match text.split_at_checked(told.message as usize) {
                Some((message, rest)) if told.message > 0 => (message, rest.trim_start()),
                _ => (text.lines().next().unwrap_or_default(), text.as_str()),
            };
            let (message, text) = (attribute(message), content(text));
            write!(out, "<failure type=\"{status}\" message=\"{message}\">{text}</failure>")?;
            attempts(item, "rerunFailure", 1, out)?;
        }
        FLAKY => attempts(item, "flakyFailure", 0, out)?,
        UNKNOWN => {
            let reason = item.meta.get("error").map_or("the result is unknown", String::as_str);
            write!(
                out,
                "<error type=\"unknown\" message=\"{}\">{}</error>",
                attribute(reason),
                content(&text)
            )?;
        }
        // Neither good nor bad, which JUnit cannot express.
        custom => write!(out, "<skipped message=\"{}\"/>", attribute(&format!("status: {custom}")))?,
    }
    if let Some(run) = item.details.get(RESUMED).and_then(Value::as_str) {
        write!(out, "<system-out>ran in run {}, which this one continues</system-out>", content(run))?;
    }
    for name in ["system-out", "system-err"] {
        if let Some(text) = item.details.get(name).and_then(Value::as_str) {
            write!(out, "<{name}>{}</{name}>", content(text))?;
        }
    }
    Ok(writeln!(out, "</testcase>")?)
}

/// Writes the failed attempts of a test, without the first ones, in the form of Surefire.
fn attempts(item: &Item, element: &str, first: usize, out: &mut dyn Write) -> anyhow::Result<()> {
    let attempts = item.details.get(ATTEMPTS).and_then(Value::as_array).into_iter().flatten();
    for attempt in attempts.skip(first).filter(|attempt| attempt["status"] != PASSED) {
        let text = |key: &str| attempt[key].as_str().unwrap_or_default();
        let message = attribute(text(FAILURE).lines().next().unwrap_or_default());
        let kind = attribute(text("status"));
        let inside = content(text(FAILURE));
        write!(out, "<{element} type=\"{kind}\" message=\"{message}\">{inside}</{element}>")?;
    }
    Ok(())
}

/// Escapes text between tags.
fn content(text: &str) -> String {
    escape(text, false)
}

/// Escapes text between double quotes; line ends are encoded so that readers preserve them.
fn attribute(text: &str) -> String {
    escape(text, true)
}
