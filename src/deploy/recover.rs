//! Continues a run whose aggregator's pod was lost, in a new pod with the same volume claim.
//!
//! Decides whether the claim can be mounted on any node that is ready. Starts no thread.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::remote::state::{RunState, find, stored_pod};
use base::Joined as _;
use base::json::json;
use kube::{Client, Object as _, Resource, Selector};
use model::names::{bare, claim};
use model::status;
use run::driver::refusal;

/// Time for the server to remove the lost pod.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Replaces the aggregator's pod, if it is lost. Fails if nothing can continue the run.
pub(crate) fn recover(client: &Client, namespace: &str) -> Result<()> {
    let existing_pod = find(client, namespace).context("looking for the aggregator")?;
    if let Some(pod) = &existing_pod {
        match RunState::read_pod(client, pod) {
            RunState::Told(run) if run.status == status::COMPLETE => {
                bail!("the run is complete; `sonobuoy retrieve -n {namespace}` fetches its archive")
            }
            RunState::Told(status::Run { message: None, .. }) => {
                log::info!(
                    "the aggregator in namespace `{namespace}` runs; nothing has to be recovered"
                );
                return Ok(());
            }
            _ => {}
        }
    }
    let Some(pod) = existing_pod
        .as_ref()
        .map(bare)
        .or_else(|| stored_pod(client, namespace))
    else {
        bail!("there is no run in namespace `{namespace}` whose results are on a volume claim")
    };
    let Some(name) = claim(&pod) else {
        bail!(
            "the results of the run were in its pod only, so it cannot be continued; remove it \
             with `sonobuoy delete -n {namespace}`; `run --results-pvc CLAIM` keeps results on a \
             volume"
        )
    };
    mountable(client, namespace, name)?;
    if let Some(lost) = &existing_pod {
        remove(client, namespace, lost)?;
    }
    client
        .create(&Resource::PODS, namespace, &pod)
        .context("creating the aggregator's pod")?;
    log::info!(
        "the run in namespace `{namespace}` continues in a new pod, with the volume claim `{name}`"
    );
    Ok(())
}

/// Fails if no node that is ready can mount the claim.
fn mountable(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let claim = client
        .get(&Resource::VOLUME_CLAIMS, namespace, name)
        .with_context(|| format!("the volume claim `{name}` of the results"))?;
    let Some(volume) = claim["spec"]["volumeName"]
        .as_str()
        .filter(|volume| !volume.is_empty())
    else {
        bail!("the volume claim `{name}` has no volume, so it has no results")
    };
    // Without permission to read volumes, the scheduler reports what is wrong.
    let Ok(volume) = client.get(&Resource::VOLUMES, "", volume) else {
        return Ok(());
    };
    let required = &volume["spec"]["nodeAffinity"]["required"];
    if required.is_null() {
        return Ok(());
    }
    let spec = json!({
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"operator": "Exists"}],
    });
    let nodes = client
        .list(&Resource::NODES, "", &Selector::all())
        .context("listing the nodes")?;
    let is_ready = |node: &&Value| {
        node.condition("Ready")
            .is_some_and(|ready| ready["status"] == "True")
    };
    let fitting: Vec<_> = nodes
        .iter()
        .filter(|node| refusal(&spec, node).is_none())
        .collect();
    let names = fitting.iter().map(|node| node.name()).joined(", ");
    let places = if names.is_empty() {
        "nodes that are gone"
    } else {
        &names
    };
    ensure!(
        fitting.iter().any(is_ready),
        "the volume of the claim `{name}` can only be mounted on {places}, which is not ready: \
         the run can be continued once it is; a volume that is not local to a node has no such \
         limit"
    );
    Ok(())
}

/// Removes the lost pod without its node, which confirms nothing any more.
fn remove(client: &Client, namespace: &str, pod: &Value) -> Result<()> {
    let name = pod.name();
    client
        .delete_now(&Resource::PODS, namespace, pod)
        .context("removing the lost pod")?;
    let end = Instant::now() + REMOVAL_TIMEOUT;
    while client
        .get(&Resource::PODS, namespace, name)
        .is_ok_and(|found| found["metadata"]["uid"] == pod["metadata"]["uid"])
    {
        ensure!(
            Instant::now() < end && !client.stop().wait(POLL_INTERVAL),
            "the pod `{name}` is not removed"
        );
    }
    Ok(())
}
