//! Queries a node's kubelet about itself, through the API server.
//!
//! Owns `hosts/<node>/`: `configz.json`, `healthz.json`, `metrics-resource.txt`. A node that refuses one query still
//! gets the others; a silent or unreachable node does not.

use std::time::Duration;

use super::kubelets::{Kubelets, UNREACHABLE};
use super::{FailedQuery, Fault, MAX_TEXT_BYTES, Query, QueryOutcome, component, keep};
use crate::layout::{HOSTS, KUBELET_CONFIG, KUBELET_HEALTH, KUBELET_METRICS};
use base::json::json;
use base::kube::{Error, Request, Resource};

/// Timeout of a response; a healthy kubelet responds within a second.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for retries; short, since the API server detects an unreachable kubelet at once.
const RETRY_TIMEOUT: Duration = Duration::from_secs(3);

/// Queries one node.
pub(super) fn fetch(query: &Query<'_>, kubelets: &Kubelets, node: &str) -> Result<QueryOutcome, Fault> {
    let mut answer = QueryOutcome::default();
    let client = query.client.clone().within(ANSWER_TIMEOUT).patience(RETRY_TIMEOUT).hopeless(UNREACHABLE);
    let folder = query.folder.join(HOSTS).join(component(node));
    let ask = |path: &str| Request::get(&Resource::NODES, "", node).subresource("proxy").subresource(path);
    let mut failed = |what: &str, error: &Error| {
        if kubelets.failed(node, error) {
            return Err(Fault::LeftOut);
        }
        answer.troubles.push(FailedQuery::new("Nodes", "", &format!("{node}/{what}"), error.to_string()));
        Ok(())
    };
    match client.send(&ask("configz")) {
        Ok(settings) => {
            kubelets.answered(node);
            keep(&folder.join(KUBELET_CONFIG), settings.to_string().as_bytes())?;
        }
        Err(error) => failed("configz", &error)?,
    }
    // Only the status matters, and that of an unhealthy node is valid too; missing permissions are not.
    let healthz = client.text(&ask("healthz"), MAX_TEXT_BYTES).map(|_| 200);
    match healthz.or_else(|error| error.code().filter(|code| !matches!(code, 401 | 403)).ok_or(error)) {
        Ok(status) => keep(&folder.join(KUBELET_HEALTH), json!({"status": status}).to_string().as_bytes())?,
        Err(error) => failed("healthz", &error)?,
    }
    match client.text(&ask("metrics/resource"), MAX_TEXT_BYTES) {
        Ok(metrics) => keep(&folder.join(KUBELET_METRICS), metrics.as_bytes())?,
        // Available since 1.18, but not from every virtual kubelet.
        Err(error) if error.is_not_found() => {}
        Err(error) => failed("metrics/resource", &error)?,
    }
    Ok(answer)
}
