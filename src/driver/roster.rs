//! The plugins' pods as the watches see them: which pod brings which result, on which node, from which addresses.
//!
//! Owns the question whether a pod belongs to this run. Shared by the drivers that write it and by whoever has to know
//! whose a token is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::pod::Launch;
use crate::names::LABEL_SESSION;

/// One pod of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Its session, which tells plugin and run.
    pub session: String,
    /// Its name.
    pub name: String,
    /// Where it runs; empty before that is decided.
    pub node: String,
    /// Its addresses and its node's.
    pub addresses: Vec<String>,
}

/// All of them by uid.
#[derive(Clone, Default)]
pub(crate) struct Roster(Arc<Mutex<HashMap<String, Seat>>>);

impl Seat {
    /// What a pod is to the run; with its uid.
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

/// Whether a pod was made by this launch: by us, or by the controller of our DaemonSet. Labels alone can be put on any.
pub(crate) fn is_own(owner: &Value, object_name: &str, aggregator_uid: &str) -> bool {
    let references = owner.as_array().into_iter().flatten();
    references.into_iter().any(|reference| {
        reference["uid"] == *aggregator_uid && reference["kind"] == "Pod"
            || reference["kind"] == "DaemonSet" && reference["name"] == *object_name
    })
}

impl Roster {
    /// The pod of that uid.
    pub(crate) fn seat(&self, uid: &str) -> Option<Seat> {
        self.lock().get(uid).cloned()
    }

    /// Whether another pod than that of `uid` is known to have this address, and that one is known not to.
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
