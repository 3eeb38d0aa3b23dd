//! `results --format html`: an archive as one self-contained page. It works from `file://`, on a
//! phone, in print, dark and light, and without its script, which only searches, copies links and
//! unfolds.
//!
//! Sections are functions from values of the report to [`Html`], in which only literals are markup:
//! text of the archive is escaped, and a value that does not exist does not compile. `digest` reads
//! all tests once and holds a bounded number of them; `sections` are those of one run, `compare`
//! those of several runs.

mod compare;
mod digest;
mod html;
mod sections;

use std::io::Write;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::diff::{ChangeKind, Diff, tests};
use super::many::Many;
use super::run::{Counts, PluginReport, Report, column};
use super::words::{minute, number, spoken};
use base::Joined as _;
use digest::Digest;
use html::{Html, anchor, each, html, text};
use model::item::{FLAKY, OTHER, PASSED};
use model::names;
use model::remedies::Why;
use model::verdict::Outcome;

/// What surrounds the sections of a page.
struct Frame {
    /// The line above the headline.
    kind: &'static str,
    headline: String,
    /// The class of the outcome.
    class: &'static str,
    /// The last sentence.
    closing: &'static str,
    /// What follows the headline.
    about: Html,
    links: Vec<Link>,
    filters: Vec<Filter>,
    /// Number of tests that are only in the archive.
    unlisted: u64,
    sections: Html,
}

/// A link to a section.
struct Link {
    anchor: String,
    /// Its dot has the colour of this class, if any.
    class: Option<&'static str>,
    text: String,
    number: Option<String>,
}

/// A box that hides the rows of a class.
struct Filter {
    class: &'static str,
    label: &'static str,
}

/// Writes the page; `earlier` are the runs of its trend, this one included.
pub fn write(report: &Report<'_>, earlier: Option<&Many>, out: &mut dyn Write) -> Result<()> {
    let digest = Digest::read(report)?;
    let logs = sections::logs(report)?;
    let mut page = Html::default();
    sections::why(&mut page, report.why.iter().flat_map(Why::sentences));
    let mut main = Html::default();
    for group in &digest.groups {
        group.write(&mut main, report);
    }
    if let Some(many) = earlier {
        compare::trend(&mut main, many);
    }
    sections::nodes(&mut main, report);
    sections::plugins(&mut main, report, &digest.lists);
    for table in report.opened.facts.tables.values() {
        sections::facts(&mut main, table);
    }
    let unlisted = report.plugins.iter().zip(&digest.lists);
    let unlisted = unlisted.map(|(plugin, list)| plugin.total.saturating_sub(list.rows()));
    let unlisted = unlisted.sum();
    sections::time(&mut main, report, digest.slowest);
    sections::health(&mut main, report);
    sections::left_out(&mut main, report);
    html!(main, &logs);
    let frame = Frame {
        kind: "Sonobuoy results",
        headline: report.headline(),
        class: report.status.word(),
        closing: "The archive holds every file in full.",
        about: about_run(report),
        links: links(report, !logs.is_empty()),
        filters: report
            .counts
            .shares()
            .map(|(class, _)| Filter {
                class,
                label: class,
            })
            .collect(),
        unlisted,
        sections: main,
    };
    frame.write(&page, out)
}

/// Writes the page of the changes between two runs.
pub fn write_diff(diff: &Diff, out: &mut dyn Write) -> Result<()> {
    let kinds: Vec<_> = diff.kinds().collect();
    let headline = kinds
        .iter()
        .take(3)
        .map(|(kind, changes)| {
            format!(
                "{} {}",
                number(tests(*changes)),
                kind.title().to_lowercase()
            )
        })
        .joined(", ");
    let is_failing = kinds
        .first()
        .is_some_and(|(kind, _)| *kind == ChangeKind::NewlyFailing);
    let mut links = vec![Link {
        anchor: "runs".into(),
        class: None,
        text: "The two runs".into(),
        number: None,
    }];
    links.extend(kinds.iter().map(|(kind, changes)| Link {
        anchor: kind.id().into(),
        class: Some(kind.class()),
        text: kind.title().into(),
        number: Some(number(tests(*changes))),
    }));
    let filter = |class, label| Filter { class, label };
    let mut sections = Html::default();
    compare::two_runs(&mut sections, diff);
    compare::changes(&mut sections, diff)?;
    let frame = Frame {
        kind: "Sonobuoy, two runs compared",
        headline: if headline.is_empty() {
            "No test changed".into()
        } else {
            headline
        },
        class: if is_failing { "failed" } else { "passed" },
        closing: "The two archives hold everything in full.",
        about: Html::default(),
        links,
        filters: vec![
            filter("failed", "failing"),
            filter("unknown", "slower"),
            filter("passed", "fixed"),
            filter("other", "others"),
        ],
        unlisted: 0,
        sections,
    };
    let mut remark = Html::default();
    sections::why(&mut remark, diff.remark());
    frame.write(&remark, out)
}

/// Writes the page of several archives: a row for each, and what differs.
pub fn write_many(many: &Many, out: &mut dyn Write) -> Result<()> {
    let mut sections = Html::default();
    compare::matrix(&mut sections, many);
    let worst = many.columns.iter().map(|column| column.status).max();
    let frame = Frame {
        kind: "Sonobuoy, several runs compared",
        headline: many.headline(),
        class: worst.unwrap_or_default().word(),
        closing: "The archives hold everything in full.",
        about: Html::default(),
        links: Vec::new(),
        filters: Vec::new(),
        unlisted: 0,
        sections,
    };
    frame.write(&Html::default(), out)
}

/// Times, versions and the file of a run, and a bar of its tests.
fn about_run(report: &Report<'_>) -> Html {
    let archive = report.archive.rsplit('/').next().unwrap_or_default();
    let archive = if archive.is_empty() {
        report.archive
    } else {
        archive
    };
    // Names of archives contain the id of the run.
    let run = Some(&*report.run_id).filter(|id| !archive.contains(id));
    let entries = [
        (
            "Started",
            report.started.as_deref().map(minute).unwrap_or_default(),
        ),
        (
            "Took",
            report
                .duration
                .map(|span| spoken(span.seconds()))
                .unwrap_or_default(),
        ),
        ("Kubernetes", report.kubernetes_version.clone()),
        ("Sonobuoy", report.version.clone()),
        ("Archive", archive.to_owned()),
        ("Run", run.unwrap_or_default().to_owned()),
        ("Continues run", report.resumes.clone()),
    ];
    let filled = entries.iter().filter(|(_, value)| !value.is_empty());
    let mut about = Html::default();
    html!(
        about,
        "<dl>",
        each(filled, |about, (term, value)| {
            let file = if ["Archive", "Run"].contains(term) {
                " class=\"file\""
            } else {
                ""
            };
            html!(
                about,
                "\n<div",
                file,
                "><dt>",
                *term,
                "</dt><dd>",
                text(value),
                "</dd></div>",
            );
        }),
        "\n</dl>",
        &bar(&report.counts.shares().collect::<Vec<_>>()),
    );
    about
}

/// A number of tests of a status, with the class of its colour.
type Share<'a> = (&'a str, u64);

/// A bar of shares, and their legend.
fn bar(shares: &[Share<'_>]) -> Html {
    let mut bar = Html::default();
    html!(
        bar,
        "\n<div class=\"bar\" aria-hidden=\"true\">",
        each(shares, |bar, (status, count)| {
            let class = column(status);
            html!(
                bar,
                "<i class=\"s-",
                class,
                "\" style=\"flex:",
                text(count),
                "\"></i>"
            );
        }),
        "</div>\n<ul class=\"legend\">",
        each(shares, |bar, (status, count)| {
            html!(
                bar,
                "<li><span class=\"dot s-",
                column(status),
                "\"></span> <b>",
                text(number(count)),
                "</b> ",
                text(status),
                "</li>",
            );
        }),
        "</ul>",
    );
    bar
}

fn links(report: &Report<'_>, has_logs: bool) -> Vec<Link> {
    let mut links = Vec::new();
    for plugin in &report.plugins {
        let failed = plugin.counts.of("failed");
        links.push(Link {
            anchor: plugin_anchor(plugin),
            class: Some(plugin_class(plugin)),
            text: plugin.name.to_owned(),
            number: (failed > 0).then(|| number(failed)),
        });
    }
    let section = |anchor: String, title: &str| Link {
        anchor,
        class: None,
        text: title.to_owned(),
        number: None,
    };
    for table in report.opened.facts.tables.values() {
        links.push(section(facts_anchor(table.kind.plugin), table.kind.title));
    }
    if report.health.is_some() {
        links.push(section("health".into(), "Cluster health"));
    }
    if has_logs {
        links.push(section("logs".into(), "Pod logs"));
    }
    links
}

fn plugin_anchor(plugin: &PluginReport<'_>) -> String {
    anchor("plugin", &[plugin.name])
}

fn facts_anchor(plugin: &str) -> String {
    anchor("facts", &[plugin])
}

fn plugin_class(plugin: &PluginReport<'_>) -> &'static str {
    class_of(plugin.outcome(), &plugin.counts)
}

/// The class of an outcome; a custom status is neither good nor bad.
fn class_of(outcome: Outcome, counts: &Counts) -> &'static str {
    let special = [OTHER, FLAKY]
        .into_iter()
        .find(|column| counts.of(column) > 0);
    match special {
        Some(column) if outcome == Outcome::Passed => column,
        _ => outcome.word(),
    }
}

/// The name of an element with this text, which begins on its second line, in the page's policy.
fn content_hash(content: &str) -> String {
    let digest = base::sha256(format!("\n{content}"));
    format!("sha256-{}", BASE64_STANDARD.encode(digest))
}

impl Frame {
    /// Writes the whole page; `remark` precedes everything that can be searched.
    fn write(&self, remark: &Html, out: &mut dyn Write) -> Result<()> {
        let style = include_str!("page.css");
        let script = include_str!("page.js");
        let mut page = Html::default();
        html!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src '",
            text(content_hash(style)),
            "'; style-src-attr 'unsafe-inline'; script-src '",
            text(content_hash(script)),
            "'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n<title>",
            text(&self.headline),
            " · Sonobuoy</title>\n<style>\n",
            style,
            "</style>\n</head>\n<body>\n<header class=\"",
            self.class,
            "\"><div>\n<p class=\"soft\">",
            self.kind,
            "</p>\n<h1>",
            text(&self.headline),
            "</h1>\n",
            &self.about,
        );
        self.write_links(&mut page);
        html!(page, "\n</div></header>\n<main>\n", remark);
        self.write_tools(&mut page);
        html!(
            page,
            &self.sections,
            "\n</main>\n<footer>Made by sonobuoy ",
            names::VERSION,
            ". ",
            self.closing,
            "</footer>\n<script>\n",
            script,
            "</script>\n</body>\n</html>\n",
        );
        Ok(out.write_all(page.as_str().as_bytes())?)
    }

    fn write_links(&self, page: &mut Html) {
        html!(page, "\n<nav aria-label=\"Contents\">");
        for link in &self.links {
            html!(page, "<a");
            if let Some(class) = link.class {
                html!(page, " class=\"", class, "\"");
            }
            html!(page, " href=\"#", text(&link.anchor), "\">");
            if link.class.is_some() {
                html!(page, "<span class=\"dot\"></span>");
            }
            html!(page, text(&link.text));
            if let Some(number) = &link.number {
                html!(page, " <b>", text(number), "</b>");
            }
            html!(page, "</a>");
        }
        html!(page, "</nav>");
    }

    fn write_tools(&self, page: &mut Html) {
        html!(
            page,
            "\n<div class=\"tools\" role=\"search\" data-unlisted=\"",
            text(self.unlisted),
            "\" hidden><input type=\"search\" id=\"q\" \
             placeholder=\"Search tests, nodes, failures  ( / )\" \
             aria-label=\"Search tests, nodes and failures\" autocomplete=\"off\">",
            each(&self.filters, |page, filter| {
                html!(
                    page,
                    "<label><input type=\"checkbox\" value=\"",
                    filter.class,
                    "\" checked><span class=\"dot s-",
                    filter.class,
                    "\"></span>",
                    filter.label,
                    "</label>",
                );
            }),
            "<span id=\"count\" class=\"soft\" role=\"status\"></span></div>\n\
             <p id=\"empty\" class=\"soft\" hidden>Nothing matches. \
             <button type=\"button\" class=\"copy\">Clear the search</button></p>\n\
             <aside id=\"node\" aria-live=\"polite\" hidden></aside>",
        );
    }
}

/// Whether a status counts as neither good nor bad.
fn is_custom(status: &str) -> bool {
    column(status) == OTHER && status != PASSED
}
