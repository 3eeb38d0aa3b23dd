//! The frame of every page: head with style and policy, search bar, script.

use std::io::Write;

use super::escape::escape;
use crate::names::VERSION;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Starts a page and leaves its header open; `class` colours it.
pub(super) fn begin(above: &str, headline: &str, class: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let headline = escape(headline);
    Ok(writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{headline} · Sonobuoy</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header class=\"{class}\"><div>\n<p class=\"soft\">{above}</p>\n<h1>{headline}</h1>"
    )?)
}

/// Writes the search bar with a box for each class of rows; hidden if scripts are disabled.
pub(super) fn tools<'w>(
    boxes: impl IntoIterator<Item = (&'w str, &'w str)>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    write!(
        out,
        "<div class=\"tools\" role=\"search\" hidden><input type=\"search\" id=\"q\" placeholder=\"Search tests, nodes, failures  ( / )\" \
         aria-label=\"Search tests, nodes and failures\" autocomplete=\"off\">"
    )?;
    for (class, word) in boxes {
        write!(
            out,
            "<label><input type=\"checkbox\" value=\"{class}\" checked><span class=\"dot s-{class}\"></span>{word}</label>"
        )?;
    }
    Ok(writeln!(out, "<span id=\"count\" class=\"soft\" role=\"status\"></span></div>")?)
}

/// Ends a page.
pub(super) fn end(more: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    Ok(writeln!(
        out,
        "</main>\n<footer>Made by sonobuoy {VERSION}. {more}</footer>\n<script>\n{SCRIPT}</script>\n</body>\n</html>"
    )?)
}
