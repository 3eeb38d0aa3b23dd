//! The plugins' pods as the watches see them: each pod's result, node and addresses.
//!
//! Decides whether a pod belongs to this run. Shared by the drivers, which fill it, and by the check of tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::pod::Launch;
use crate::names::LABEL_SESSION;

/// A pod of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Session, which identifies plugin and run.
    pub session: String,
    /// Name of the pod.
    pub name: String,
    /// Node; empty before scheduling.
    pub node: String,
    /// Addresses of the pod and of its node.
    pub addresses: Vec<String>,
}

/// Pods by uid.
#[derive(Clone, Default)]
pub(crate) struct Roster(Arc<Mutex<HashMap<String, Seat>>>);

impl Seat {
    /// Reads a pod's seat and uid; `None` for pods of other runs.
    pub(crate) fn of(pod: &Value) -> Option<(String, Self)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let meta = &pod["metadata"];
        let lists = ["podIPs", "hostIPs"].map(|key| pod["status"][key].as_array());
        let listed = lists.into_iter().flatten().flatten().filter_map(|entry| text(&entry["ip"]));
        let single = ["podIP", "hostIP"].map(|key| text(&pod["status"][key]));
        let seat = Self {
            session: text(&meta["labels"][LABEL_SESSION])?,
            name: text(&meta["name"])?,
            node: text(&pod["spec"]["nodeName"]).unwrap_or_default(),
            addresses: single.into_iter().flatten().chain(listed).collect(),
        };
        Some((text(&meta["uid"])?, seat))
    }
}

/// Whether a pod was created by this launch, directly or by its DaemonSet's controller. Labels alone prove nothing:
/// any pod may have them.
pub(crate) fn is_own(owner: &Value, object_name: &str, aggregator_uid: &str) -> bool {
    let references = owner.as_array().into_iter().flatten();
    references.into_iter().any(|reference| {
        reference["uid"] == *aggregator_uid && reference["kind"] == "Pod"
            || reference["kind"] == "DaemonSet" && reference["name"] == *object_name
    })
}

impl Roster {
    /// The pod with this uid.
    pub(crate) fn seat(&self, uid: &str) -> Option<Seat> {
        self.lock().get(uid).cloned()
    }

    /// Whether the address belongs to another pod than `uid`, and not to this one.
    pub(crate) fn is_elsewhere(&self, uid: &str, own: &Seat, address: &str) -> bool {
        let has = |seat: &Seat| seat.addresses.iter().any(|known| known == address);
        !has(own) && self.lock().iter().any(|(other, seat)| other != uid && has(seat))
    }

    pub(super) fn enter(&self, launch: &Launch<'_>, pod: &Value) {
        if is_own(&pod["metadata"]["ownerReferences"], &launch.object_name(), launch.owner.1)
            && let Some((uid, seat)) = Seat::of(pod)
        {
            self.lock().insert(uid, seat);
        }
    }

    pub(super) fn leave(&self, pod: &Value) {
        if let Some(uid) = pod["metadata"]["uid"].as_str() {
            self.lock().remove(uid);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seat>> {
        // Each change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
