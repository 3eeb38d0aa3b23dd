//! Why a pod does not start, from its events: its status rarely says more than `ContainerCreating`.
//!
//! Owns the choice among the events of an object. Reads one page per call; starts no thread.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::client::Client;
use super::error::Error;
use super::request::{Object as _, Request, Resource, Selector};
use base::Joined as _;
use base::clock;

/// Time in which a pod usually starts; only later its events are worth a request.
const USUAL_START_TIME: Duration = Duration::from_secs(15);
/// Maximum events read of one object: servers combine repeated ones.
const MAX_EVENTS: usize = 200;
/// Added by the API server to repeated events.
const COMBINED: &str = "(combined from similar events): ";
/// Start of the message that repeats, every two minutes, that a volume is missing, without the
/// reason.
const SUMMARY: &str = "Unable to attach or mount volumes";
/// Progress of a container, which proves that volumes and network are there.
const PROGRESS: [&str; 4] = ["Pulling", "Pulled", "Created", "Started"];
/// Warnings that delay nothing: pods start in spite of them.
const HARMLESS: [&str; 4] = [
    "DNSConfigForming",
    "FailedToRetrieveImagePullSecret",
    "MissingClusterDNS",
    "Unhealthy",
];
/// The warning of the scheduler, which says nothing about a pod that has a node by now.
const UNSCHEDULED: &str = "FailedScheduling";

/// Why an object does not get on.
#[derive(Clone, Debug, PartialEq)]
pub enum Delay {
    /// Its newest warning.
    Warning {
        /// One word for machines, such as `FailedMount`.
        reason: String,
        /// The message, on one line.
        message: String,
    },
    /// The account may not read its events.
    Unreadable,
}

impl Delay {
    /// Whether only the scheduler is awaited: a node may still be added.
    pub fn is_unscheduled(&self) -> bool {
        matches!(self, Self::Warning { reason, .. } if reason == UNSCHEDULED)
    }

    fn newest(events: &[Value], object: &Value) -> Option<Self> {
        let progress = events
            .iter()
            .filter(|event| PROGRESS.contains(&event["reason"].text()))
            .filter_map(time)
            .max();
        let has_node = !object["spec"]["nodeName"].text().is_empty();
        let counts = |event: &&Value| {
            let reason = event["reason"].text();
            let is_outdated = has_node && reason == UNSCHEDULED;
            event["type"] == "Warning"
                && !event["message"].text().is_empty()
                && !HARMLESS.contains(&reason)
                && !is_outdated
                && time(event) >= progress
        };
        let newest = events
            .iter()
            .filter(counts)
            .max_by_key(|event| (!event["message"].text().starts_with(SUMMARY), time(event)))?;
        let message = newest["message"].text().trim_start_matches(COMBINED);
        Some(Self::Warning {
            reason: newest["reason"].text().to_owned(),
            message: message.split_whitespace().joined(" "),
        })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Warning { reason, message } if reason.is_empty() => f.write_str(message),
            Self::Warning { reason, message } => write!(f, "{reason}: {message}"),
            Self::Unreadable => {
                f.write_str("its events, which say why, may not be read: allow `list` for `events`")
            }
        }
    }
}

/// Whether a pod has waited longer than usual for its first container.
pub fn is_delayed(pod: &Value, now: SystemTime) -> bool {
    let phase = pod["status"]["phase"].text();
    if pod.is_terminating() || !["", "Pending"].contains(&phase) {
        return false;
    }
    let created = pod["metadata"]["creationTimestamp"].text();
    // A machine whose clock is wrong asks too early instead of never.
    clock::parse_rfc3339(created)
        .and_then(|created| now.duration_since(created).ok())
        .is_none_or(|waited| waited >= USUAL_START_TIME)
}

/// When an event was last observed.
fn time(event: &Value) -> Option<SystemTime> {
    [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ]
    .into_iter()
    .filter_map(|time| clock::parse_rfc3339(time.as_str()?))
    .max()
}

impl Client {
    /// Why an object does not get on, if its events say so; identified by its uid, or without one
    /// by its name.
    pub fn delay(&self, namespace: &str, object: &Value) -> Result<Option<Delay>, Error> {
        let of = match object["metadata"]["uid"].text() {
            "" => format!("involvedObject.name={}", object.name()),
            uid => format!("involvedObject.uid={uid}"),
        };
        let request = Request::list(&Resource::EVENTS, namespace, &Selector::fields(of))
            .query("limit", MAX_EVENTS.to_string());
        let mut events = Vec::new();
        let page = self.page(&Resource::EVENTS, &request, "", &mut |event| {
            // A server may ignore the limit.
            if events.len() < MAX_EVENTS {
                events.push(event);
            }
            Ok(())
        });
        match page {
            Ok(_) => Ok(Delay::newest(&events, object)),
            Err(error) if error.is_forbidden() => Ok(Some(Delay::Unreadable)),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}Z")
    }

    fn event(second: u32, kind: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "reason": reason, "message": message, "lastTimestamp": at(second)})
    }

    fn warning(second: u32, reason: &str, message: &str) -> Value {
        event(second, "Warning", reason, message)
    }

    #[test]
    fn newest_warning_is_the_cause() {
        let normal = |second, reason| event(second, "Normal", reason, "fine");
        let mount = || warning(3, "FailedMount", "secret \"x\"\n not found");
        let scheduling = || warning(1, "FailedScheduling", "0/3 nodes");
        let combined = warning(
            4,
            "FailedCreatePodSandBox",
            &format!("{COMBINED}no network"),
        );
        let mut series = warning(1, "FailedAttachVolume", "in use");
        series["series"] = json!({"lastObservedTime": "2026-01-01T00:00:09.000001Z"});
        let mut new_kind = warning(0, "FailedMount", "of the new API");
        new_kind["lastTimestamp"] = Value::Null;
        new_kind["eventTime"] = json!("2026-01-01T00:00:05.000000Z");
        let cases = [
            (vec![], "-"),
            (vec![normal(1, "Scheduled")], "-"),
            (
                vec![mount(), scheduling()],
                "FailedMount: secret \"x\" not found",
            ),
            (vec![scheduling()], "-"),
            (
                vec![combined, mount()],
                "FailedCreatePodSandBox: no network",
            ),
            (vec![mount(), series], "FailedAttachVolume: in use"),
            (vec![mount(), new_kind], "FailedMount: of the new API"),
            (
                vec![
                    mount(),
                    warning(9, "FailedMount", &format!("{SUMMARY}: timed out")),
                ],
                "FailedMount: secret \"x\" not found",
            ),
            (
                vec![mount(), warning(9, "DNSConfigForming", "limits")],
                "FailedMount: secret \"x\" not found",
            ),
            (
                vec![mount(), normal(3, "Pulling")],
                "FailedMount: secret \"x\" not found",
            ),
            (vec![mount(), normal(4, "Pulling")], "-"),
            // A sandbox that is made again is no progress.
            (
                vec![mount(), normal(4, "SandboxChanged")],
                "FailedMount: secret \"x\" not found",
            ),
            (
                vec![normal(4, "Pulling"), warning(5, "Failed", "no image")],
                "Failed: no image",
            ),
        ];
        let pod = json!({"spec": {"nodeName": "n"}});
        for (events, expected) in cases {
            let found = Delay::newest(&events, &pod);
            let found = found.map_or("-".to_owned(), |delay| delay.to_string());
            assert_eq!(found, expected, "{events:?}");
        }
        let unscheduled = Delay::newest(&[scheduling()], &json!({})).unwrap();
        assert_eq!(unscheduled.to_string(), "FailedScheduling: 0/3 nodes");
        assert!(unscheduled.is_unscheduled());
    }

    #[test]
    fn pod_is_delayed_after_the_usual_time() {
        let now = clock::parse_rfc3339(&at(20)).unwrap();
        let pod = |phase: &str, created: &str| json!({"metadata": {"creationTimestamp": created}, "status": {"phase": phase}});
        for (pod, expected) in [
            (pod("Pending", &at(6)), false),
            (pod("Pending", &at(5)), true),
            (pod("", &at(5)), true),
            (pod("Running", &at(5)), false),
            (pod("Failed", &at(5)), false),
            // The clock of this machine is behind.
            (pod("Pending", &at(40)), true),
        ] {
            assert_eq!(is_delayed(&pod, now), expected, "{pod}");
        }
        let mut ending = pod("Pending", &at(5));
        ending["metadata"]["deletionTimestamp"] = json!(at(6));
        assert!(!is_delayed(&ending, now));
    }
}
