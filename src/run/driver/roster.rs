//! The plugins' pods of a run, which decide whether a token or an address belongs to it.
//!
//! Filled by the watches of [`super::cluster`]; read by the review of tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::pod::ClusterLaunch;
use base::lock;
use kube::Object as _;
use model::names::LABEL_SESSION;

/// A pod of a plugin.
#[derive(Clone)]
pub struct Seat {
    /// Session, which identifies plugin and run.
    pub session: String,
    /// Node; empty before scheduling.
    pub node: String,
    /// Addresses of the pod.
    pub addresses: Vec<String>,
    /// Addresses of its node, which connections from all its pods may have.
    pub host_addresses: Vec<String>,
}

/// The plugins' pods as the watches see them, by uid: shared by the drivers, which fill it, and by
/// the check of tokens.
#[derive(Clone, Default)]
pub struct Roster(Arc<Mutex<HashMap<String, Seat>>>);

impl Seat {
    /// Reads a pod's seat and uid; `None` for pods of other runs.
    pub fn of(pod: &Value) -> Option<(String, Self)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let meta = &pod["metadata"];
        let addresses = |single: &str, list: &str| {
            let listed = pod["status"][list].items();
            text(&pod["status"][single])
                .into_iter()
                .chain(listed.filter_map(|entry| text(&entry["ip"])))
                .collect()
        };
        let seat = Self {
            session: text(&meta["labels"][LABEL_SESSION])?,
            node: text(&pod["spec"]["nodeName"]).unwrap_or_default(),
            addresses: addresses("podIP", "podIPs"),
            host_addresses: addresses("hostIP", "hostIPs"),
        };
        Some((text(&meta["uid"])?, seat))
    }
}

/// Whether a pod was created by this launch, directly or by its DaemonSet's controller. Labels
/// alone prove nothing: any pod may have them.
pub fn is_own(owner: &Value, object_name: &str, aggregator_uid: &str) -> bool {
    let references = owner.items();
    references.into_iter().any(|reference| {
        reference["uid"] == *aggregator_uid && reference["kind"] == "Pod"
            || reference["kind"] == "DaemonSet" && reference["name"] == *object_name
    })
}

impl Roster {
    /// The pod with this uid.
    pub fn seat(&self, uid: &str) -> Option<Seat> {
        lock(&self.0).get(uid).cloned()
    }

    /// Whether the address belongs to another pod than `uid` or to another node, and not to this
    /// pod.
    pub fn is_elsewhere(&self, uid: &str, own: &Seat, address: &str) -> bool {
        let has = |addresses: &[String]| addresses.iter().any(|known| known == address);
        // A pod connects before its own status has any address.
        let elsewhere = |seat: &Seat| {
            if has(&seat.host_addresses) {
                seat.node != own.node
            } else {
                has(&seat.addresses)
            }
        };
        !has(&own.addresses)
            && !has(&own.host_addresses)
            && lock(&self.0)
                .iter()
                .any(|(other, seat)| other != uid && elsewhere(seat))
    }

    pub(super) fn enter(&self, launch: &ClusterLaunch<'_>, pod: &Value) {
        if is_own(
            &pod["metadata"]["ownerReferences"],
            &launch.object_name(),
            launch.owner.1,
        ) && let Some((uid, seat)) = Seat::of(pod)
        {
            lock(&self.0).insert(uid, seat);
        }
    }

    pub(super) fn leave(&self, pod: &Value) {
        if let Some(uid) = pod["metadata"]["uid"].as_str() {
            lock(&self.0).remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    #[test]
    fn address_of_the_own_node_is_not_that_of_another_pod() {
        let seat = |uid: &str, node: &str, status: Value| {
            let meta = json!({"uid": uid, "name": uid, "labels": {LABEL_SESSION: "s"}});
            Seat::of(&json!({"metadata": meta, "spec": {"nodeName": node}, "status": status}))
                .unwrap()
        };
        let roster = Roster::default();
        lock(&roster.0).extend([
            seat(
                "beside",
                "a",
                json!({"podIPs": [{"ip": "10.0.0.1"}], "hostIP": "1.1.1.1"}),
            ),
            seat(
                "in-host-network",
                "a",
                json!({"podIP": "1.1.1.1", "hostIPs": [{"ip": "1.1.1.1"}]}),
            ),
            seat(
                "away",
                "b",
                json!({"podIP": "10.0.0.2", "hostIP": "2.2.2.2"}),
            ),
        ]);
        let (uid, fresh) = seat("own", "a", json!({}));
        for (address, expected) in [
            ("1.1.1.1", false),
            ("10.0.0.1", true),
            ("10.0.0.2", true),
            ("2.2.2.2", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(
                roster.is_elsewhere(&uid, &fresh, address),
                expected,
                "{address}"
            );
        }
        let (uid, known) = seat(
            "away",
            "b",
            json!({"podIP": "10.0.0.2", "hostIP": "2.2.2.2"}),
        );
        assert!(
            ["10.0.0.2", "2.2.2.2"]
                .iter()
                .all(|address| !roster.is_elsewhere(&uid, &known, address))
        );
    }
}
