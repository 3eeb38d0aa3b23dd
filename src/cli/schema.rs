//! `sonobuoy schema`: JSON Schemas of the files that users write.

use super::flag::Args;
use super::output;
use crate::config::Run;
use crate::plugin;

/// Prints one schema.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let schema = if args.text("name") == Some("config") { Run::schema() } else { plugin::schema() };
    output::print(&format!("{}\n", serde_json::to_string_pretty(&schema)?))?;
    Ok(0)
}
