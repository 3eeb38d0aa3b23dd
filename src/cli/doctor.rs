//! `sonobuoy doctor`, and the checks of `run --doctor`.

use anyhow::{Result, bail};
use serde_json::Value;

use super::flag::{Args, interrupted, usage_error};
use super::manifest::{checks, objects, read_given, skipped};
use super::run_args::{Purpose, RunArgs};
use super::{cluster, output};
use crate::deploy::Preflight;
use crate::doctor::{self, Check, Subject};
use kube::Client;

/// Exit code if a run would fail.
const NOT_READY: u8 = 3;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    check_nodes(args)?;
    let request = RunArgs::new(args, Purpose::Run)?;
    let stop = output::stop_on_signal()?;
    let client = cluster::client(args)?.under(&stop);
    let format = args.word("format");
    let tell = |check: &Check| {
        if format == "text" {
            output::print(&check.lines());
        }
    };
    let checks = match doctor::reach(&client) {
        (server, true) => {
            let (objects, namespace) = objects(request, read_given(args)?, |_| Ok(()))?;
            let skip = skipped(args)?;
            let preflight = checks(args, &objects, &namespace, &skip);
            examine(
                &client,
                server,
                &objects,
                &preflight,
                &args.all("measure-from").collect::<Vec<_>>(),
                &tell,
            )?
        }
        (server, false) => {
            tell(&server);
            vec![server]
        }
    };
    output::print(&match format {
        "text" => doctor::verdict(&checks),
        _ => doctor::show(&checks, format),
    });
    Ok(if doctor::is_ready(&checks) {
        0
    } else {
        NOT_READY
    })
}

/// Rejects a number of nodes, or all of them, which `--nodes` selected in version 0.60.0.
fn check_nodes(args: Args) -> Result<()> {
    let nodes = args.word("nodes");
    if nodes == "all" || nodes.parse::<u32>().is_ok() {
        return Err(usage_error(format!(
            "--nodes names the nodes of plugins, as in `run`; --measure-from {nodes} selects the \
             nodes to measure from"
        )));
    }
    Ok(())
}

/// Checks the cluster for `run --doctor`.
pub(super) fn examine_before(
    client: &Client,
    objects: &[Value],
    preflight: &Preflight,
) -> Result<()> {
    let tell = |check: &Check| check.lines().lines().for_each(|line| log::info!("{line}"));
    let checks = match doctor::reach(client) {
        (server, true) => examine(client, server, objects, preflight, &[doctor::SAMPLE], &tell)?,
        (server, false) => {
            tell(&server);
            vec![server]
        }
    };
    log::info!("{}", doctor::verdict(&checks).trim_end());
    if !doctor::is_ready(&checks) {
        bail!("`--doctor` found something that would fail: nothing was created");
    }
    Ok(())
}

fn examine(
    client: &Client,
    server: Check,
    objects: &[Value],
    preflight: &Preflight,
    nodes: &[&str],
    tell: &dyn Fn(&Check),
) -> Result<Vec<Check>> {
    let subject = Subject::new(objects, preflight.namespace)?;
    let checks = doctor::examine(client, server, &subject, preflight, nodes, tell)?;
    if client.stop().stopped() {
        return Err(interrupted(
            "interrupted; everything that was created for the checks has been removed",
        ));
    }
    Ok(checks)
}
