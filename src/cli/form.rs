//! `-o`: a table in the forms of kubectl, and in Markdown.

use serde_json::Value;

use super::flag::Args;
use super::output;
use crate::report::markdown_text;
use base::json::json;
use base::yaml;

/// Values of `-o` for a table.
pub(super) const WORDS: &[&str] = &["json", "yaml", "wide", "name", "markdown"];

/// Prints a table in the requested form, by default the first column.
pub(super) fn print<const N: usize>(args: Args, head: [&str; N], rows: &[[String; N]]) -> anyhow::Result<()> {
    output::print(&table(args, head, rows).unwrap_or_else(|| first_column(rows)))
}

fn first_column<const N: usize>(rows: &[[String; N]]) -> String {
    rows.iter().map(|row| format!("{}\n", row[0])).collect()
}

/// The text of a table in the requested form; `None` without `-o`. `wide` is the table with all columns, `name` its first column.
pub(super) fn table<const N: usize>(args: Args, head: [&str; N], rows: &[[String; N]]) -> Option<String> {
    let word = args.text("output")?;
    let objects = || {
        let one = |row: &[String; N]| {
            head.iter().zip(row).map(|(key, cell)| ((*key).into(), json!(cell))).collect()
        };
        Value::Array(rows.iter().map(|row| Value::Object(one(row))).collect())
    };
    let markdown = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    Some(match word {
        "json" | "yaml" => document(word, &objects()),
        "name" => first_column(rows),
        "markdown" => {
            let cells = rows.iter().map(|row| markdown(&row.each_ref().map(|cell| markdown_text(cell))));
            markdown(&head.map(str::to_owned))
                + &markdown(&head.map(|_| "---".to_owned()))
                + &cells.collect::<String>()
        }
        _ => output::table(head, rows, false),
    })
}

/// A document as JSON or YAML.
pub(super) fn document(word: &str, value: &Value) -> String {
    if word == "yaml" { yaml::write(value) + "\n" } else { format!("{value:#}\n") }
}
