//! Removes the condition that runs have written to nodes, with or without a run.

use anyhow::{Context as _, Result, bail};

use base::Joined as _;
use base::json::json;
use base::words::count;
use kube::{Client, Object as _, Request, Resource, Selector};

/// Maximum nodes that an error names.
const MAX_NAMED_NODES: usize = 3;

/// Removes the condition of this type from all nodes; returns the names of the nodes that had it.
/// Tries all before it returns an error.
pub(crate) fn unmark_nodes(client: &Client, condition: &str, dry_run: bool) -> Result<Vec<String>> {
    let mut marked = Vec::new();
    let list = client.each(&Resource::NODES, "", &Selector::all(), &mut |node| {
        if node.condition(condition).is_some() {
            marked.push(node.name().to_owned());
        }
        Ok(())
    });
    list.context("listing the nodes")?;
    let patch = json!({"status": {"conditions": [{"type": condition, "$patch": "delete"}]}});
    let mut failures = Vec::new();
    for node in &marked {
        let request = Request::strategic_patch(&Resource::NODES, "", node, &patch);
        let request = request.subresource("status");
        let request = if dry_run { request.dry_run() } else { request };
        match client.send(&request) {
            Err(error) if !error.is_not_found() => failures.push(format!("`{node}`: {error}")),
            // A node that is gone has no condition.
            _ => {}
        }
    }
    if failures.is_empty() {
        return Ok(marked);
    }
    let more = match failures.len().saturating_sub(MAX_NAMED_NODES) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let failed = failures.len();
    bail!(
        "{failed} of {} keep the condition `{condition}`: {}{more}",
        count(marked.len(), "node"),
        failures.into_iter().take(MAX_NAMED_NODES).joined("; ")
    )
}
