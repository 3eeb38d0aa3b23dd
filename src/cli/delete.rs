//! `sonobuoy delete`: removes the objects of a run from the cluster.

use anyhow::Result;

use super::flag::Args;
use super::{cluster, output, run_args};
use crate::deploy::Removal;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<()> {
    let client = cluster::client(args)?;
    let removal = Removal {
        namespace: cluster::namespace(args)?,
        rbac: run_args::rbac(args)?,
        all: args.on("all"),
        dry_run: args.on("dry-run"),
    };
    let left = removal.issue(&client)?;
    let limit = args.duration("wait");
    if !limit.is_zero() && !removal.dry_run {
        let shown = args.word("wait-output") == "Progress";
        left.wait(&client, limit, &mut |state| {
            // The original prints it to standard output.
            if shown {
                output::print(&format!("\n{state}\n"));
            }
        })?;
    }
    Ok(())
}
