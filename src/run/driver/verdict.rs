//! Classifies the state of a plugin's pod: fine, a problem that may pass, or failed.
//!
//! Owns the classification and its wording; always includes the kubelet's own message. Pure: pod,
//! time and grace periods are arguments. Whether a pod exists at all is the caller's concern.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use base::clock;
use base::visible::tail;
use client::protocol::ContainersEnd;
use kube::{Delay, Object};
use model::config::Grace;
use model::names::LABEL_PLUGIN;
use model::plugin::MAX_FAILURES;
use model::remedies::{self, ImageUser};

/// Time for a node to pull a missing image: two attempts, as kubelets do.
const MISSING_IMAGE_GRACE: Duration = Duration::from_secs(30);

/// Time limit for a worker to notice the result of a failed plugin and to start sending it.
pub(super) const FAILED_GRACE: Duration = Duration::from_secs(15);

/// Reasons that runtimes give for a command that could not be started.
const NEVER_BEGAN: [&str; 2] = ["StartError", "ContainerCannotRun"];

/// Reasons that kubelets and controllers give for pods that they end.
const LOST_PODS: [&str; 6] = [
    "Evicted",
    "NodeLost",
    "NodeShutdown",
    "Preempting",
    "Shutdown",
    "Terminated",
];
/// Reasons that kubelets give for containers that ended with the node's power or its runtime.
const LOST_CONTAINERS: [&str; 2] = ["ContainerStatusUnknown", "Unknown"];

/// Maximum bytes of a container's last output in a message.
const MAX_OUTPUT_BYTES: usize = 500;
const MAX_OUTPUT_LINES: usize = 5;

/// State of a pod.
#[derive(PartialEq)]
pub enum PodVerdict {
    /// No problem.
    Fine,
    /// No problem yet, but a failure if unchanged at the given time.
    Quiet(String, SystemTime),
    /// A problem that becomes a failure at the given time, unless it passes.
    Trouble(String, SystemTime),
    /// No result is expected any more.
    Failed(String),
    /// The same, through no fault of the plugin: its node ended the pod, or it was evicted or
    /// preempted.
    Lost(String),
}

/// Judges `pod`, whose container `worker` submits results, at the time `now`; `delay` is what its
/// events say while it does not start.
pub fn judge(
    pod: &Value,
    worker: &str,
    delay: Option<&Delay>,
    now: SystemTime,
    grace: &Grace,
) -> PodVerdict {
    let verdicts = verdicts(pod, worker, delay, grace).into_iter();
    let verdicts: Vec<_> = verdicts
        .map(|verdict| match verdict {
            PodVerdict::Quiet(reason, fatal) | PodVerdict::Trouble(reason, fatal)
                if fatal <= now =>
            {
                PodVerdict::Failed(reason)
            }
            other => other,
        })
        .collect();
    let reasons = together(&verdicts);
    // The worst one; of equal ones the first.
    let worst = verdicts.into_iter().min_by_key(|verdict| match verdict {
        PodVerdict::Failed(_) | PodVerdict::Lost(_) => (0, None),
        PodVerdict::Trouble(_, fatal) => (1, Some(*fatal)),
        PodVerdict::Quiet(_, fatal) => (2, Some(*fatal)),
        PodVerdict::Fine => (3, None),
    });
    match worst.unwrap_or(PodVerdict::Fine) {
        PodVerdict::Failed(reason) => PodVerdict::Failed(reasons.unwrap_or(reason)),
        PodVerdict::Trouble(reason, fatal) => PodVerdict::Trouble(reasons.unwrap_or(reason), fatal),
        other => other,
    }
}

/// The problems of several containers in one text, in their order, so that none hides another; the
/// first one of each.
fn together(verdicts: &[PodVerdict]) -> Option<String> {
    let reasons = verdicts.iter().filter_map(|verdict| match verdict {
        PodVerdict::Failed(reason) | PodVerdict::Lost(reason) | PodVerdict::Trouble(reason, _) => {
            Some(reason.as_str())
        }
        PodVerdict::Quiet(..) | PodVerdict::Fine => None,
    });
    let (mut known, mut texts) = (Vec::new(), Vec::new());
    for reason in reasons {
        // What concerns the whole pod says enough.
        let container = reason.strip_prefix("Container ")?.split(' ').next();
        if !known.contains(&container) {
            known.push(container);
            texts.push(reason);
        }
    }
    (texts.len() > 1).then(|| texts.join(", and "))
}

fn verdicts(pod: &Value, worker: &str, delay: Option<&Delay>, grace: &Grace) -> Vec<PodVerdict> {
    let status = &pod["status"];
    let failed = if is_lost(status) {
        PodVerdict::Lost
    } else {
        PodVerdict::Failed
    };
    let (first, together) = (
        status["initContainerStatuses"].items(),
        status["containerStatuses"].items(),
    );
    let mut out = Vec::new();
    if status["phase"] == "Failed" {
        // First, since it says most: evicted, killed with its node, or every container ended.
        let mut reason = format!("Pod failed{}", detail(status));
        for container in first.clone().chain(together.clone()) {
            let ended = &container["state"]["terminated"];
            if is_unwell(ended) {
                reason += &format!(
                    "; container {}{}",
                    container["name"].text(),
                    exit_details(ended)
                );
            }
        }
        out.push(failed(reason));
    }
    for condition in status["conditions"]
        .items()
        .filter(|condition| condition["reason"] == "Unschedulable")
    {
        let since = time(&condition["lastTransitionTime"])
            .or_else(|| time(&pod["metadata"]["creationTimestamp"]));
        let message = condition["message"].text();
        // No new node helps.
        let grace = if message.contains("persistentvolumeclaim \"") && message.contains("not found")
        {
            grace.creation.min(grace.unschedulable)
        } else {
            grace.unschedulable
        };
        out.push(after(
            since,
            grace,
            format!("Can't schedule pod: {message}"),
        ));
    }
    for container in first {
        out.extend(restarting(pod, container, grace));
        out.extend(waiting(pod, container, worker, grace));
    }
    for container in together {
        out.extend(restarting(pod, container, grace));
        out.extend(waiting(pod, container, worker, grace));
        if container["state"]["terminated"].is_object() {
            out.push(ended(pod, container, worker, grace, failed));
        }
    }
    // What the status says is about the containers themselves, and at least as new.
    if let Some(delay) = delay.filter(|_| out.is_empty() && is_pending(status)) {
        out.push(delayed(pod, delay, grace));
    }
    out
}

/// Whether no container of a pod has ever started.
fn is_pending(status: &Value) -> bool {
    ["", "Pending"].contains(&status["phase"].text())
}

/// Judges a pod whose status does not say why it does not start.
fn delayed(pod: &Value, delay: &Delay, grace: &Grace) -> PodVerdict {
    let reason = format!("Pod cannot start: {delay}");
    let created = time(&pod["metadata"]["creationTimestamp"]);
    let accepted = time(&pod["status"]["startTime"]).or(created);
    match delay {
        Delay::Unreadable => {
            PodVerdict::Trouble(format!("Pod has not started; {delay}"), far_future())
        }
        _ if delay.is_unscheduled() => after(created, grace.unschedulable, reason),
        Delay::Warning { .. } => after(accepted, grace.creation, reason),
    }
}

fn restarting(pod: &Value, container: &Value, grace: &Grace) -> Option<PodVerdict> {
    let restarts = container["restartCount"].as_u64().unwrap_or_default();
    // A pod with a restart policy tolerates more restarts.
    let on_failure = pod["spec"]["restartPolicy"] == "OnFailure";
    let limit = if on_failure {
        grace.restarts.max(MAX_FAILURES.into())
    } else {
        grace.restarts
    };
    let (name, last) = (
        container["name"].text(),
        exit_details(&container["lastState"]["terminated"]),
    );
    let reason = || format!("Container {name} has restarted unsuccessfully {restarts} times{last}");
    (restarts > limit).then(|| PodVerdict::Failed(reason()))
}

fn waiting(pod: &Value, container: &Value, worker: &str, grace: &Grace) -> Option<PodVerdict> {
    let started = time(&pod["status"]["startTime"]);
    let (name, image) = (container["name"].text(), container["image"].text());
    let waiting = &container["state"]["waiting"];
    let message = detail(waiting);
    Some(match waiting["reason"].text() {
        "ImagePullBackOff" | "ErrImagePull" => {
            match remedies::missing_image(image, image_user(pod, name, worker), &message) {
                Some(remedy) => {
                    let reason = format!(
                        "Failed to pull image `{image}` for container {name}; {remedy}{message}"
                    );
                    after(started, grace.image_pull.min(MISSING_IMAGE_GRACE), reason)
                }
                None => after(
                    started,
                    grace.image_pull,
                    format!("Failed to pull image for container {name}{message}"),
                ),
            }
        }
        "ErrImageNeverPull" | "InvalidImageName" => {
            PodVerdict::Failed(format!("Image of container {name} cannot be used{message}"))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => after(
            started,
            grace.creation,
            format!("Container {name} cannot be created{message}"),
        ),
        "CrashLoopBackOff" => {
            let last = &container["lastState"]["terminated"];
            if is_for_another_machine(last) {
                return Some(PodVerdict::Failed(format!(
                    "Container {name} cannot be started{}",
                    exit_details(last)
                )));
            }
            // The limit of restarts decides; until then this is only displayed.
            PodVerdict::Trouble(
                format!("Container {name} keeps ending{}", exit_details(last)),
                far_future(),
            )
        }
        _ => return None,
    })
}

/// Who uses the image of a container of this name.
fn image_user<'a>(pod: &'a Value, container: &str, worker: &str) -> ImageUser<'a> {
    if container == worker {
        return ImageUser::Run;
    }
    match pod["metadata"]["labels"][LABEL_PLUGIN].text() {
        "" => ImageUser::Plugin("PLUGIN"),
        plugin => ImageUser::Plugin(plugin),
    }
}

/// Judges a container that has ended.
fn ended(
    pod: &Value,
    container: &Value,
    worker: &str,
    grace: &Grace,
    failed: fn(String) -> PodVerdict,
) -> PodVerdict {
    let state = &container["state"]["terminated"];
    let (name, unwell) = (container["name"].text(), is_unwell(state));
    // The same words as between two starts.
    let is_repeated = unwell && container["restartCount"].as_u64() > Some(0);
    let reason = if is_repeated {
        format!("Container {name} keeps ending{}", exit_details(state))
    } else {
        format!(
            "Container {name} is in a terminated state{}",
            exit_details(state)
        )
    };
    let statuses = pod["status"]["containerStatuses"].items();
    let plugin_states: Vec<&Value> = statuses
        .filter(|container| container["name"] != worker)
        .map(|container| &container["state"]["terminated"])
        .collect();
    // A pod that is never restarted cannot send anything without its worker.
    let never_again = pod["spec"]["restartPolicy"] == "Never";
    // If no container of the plugin has ever started, the worker has nothing to wait for.
    let none_began = !plugin_states.is_empty() && plugin_states.iter().all(|s| never_began(s));
    let cannot_send = name == worker && unwell || none_began;
    // If all have ended, the result exists or never will.
    let all_ended = plugin_states.iter().all(|state| state.is_object());
    let is_over = never_again && name != worker && unwell && all_ended;
    let grace = if is_over {
        grace.terminated.min(FAILED_GRACE)
    } else {
        grace.terminated
    };
    match after(time(&state["finishedAt"]), grace, reason) {
        PodVerdict::Trouble(reason, _) if never_again && cannot_send => failed(reason),
        // A plugin's container may end when done; the worker then sends its results.
        PodVerdict::Trouble(reason, fatal) if !unwell => PodVerdict::Quiet(reason, fatal),
        other => other,
    }
}

/// Whether a container ended before its program ran.
fn never_began(state: &Value) -> bool {
    NEVER_BEGAN.contains(&state["reason"].text()) || is_for_another_machine(state)
}

/// How all containers but `worker` have ended, if each has succeeded, now or before its last start.
/// Init and ephemeral containers do not count.
pub(super) fn containers_end(pod: &Value, worker: &str) -> Option<ContainersEnd> {
    let statuses = pod["status"]["containerStatuses"].items();
    let mut others = statuses
        .filter(|status| status["name"] != worker)
        .peekable();
    others.peek()?;
    let has_succeeded = |status: &Value| {
        ["lastState", "state"]
            .iter()
            .any(|state| status[state]["terminated"]["exitCode"] == 0)
    };
    if !others.all(has_succeeded) {
        return None;
    }
    Some(match pod["spec"]["restartPolicy"].text() {
        "Never" | "OnFailure" => ContainersEnd::SucceededForGood,
        _ => ContainersEnd::Succeeded,
    })
}

fn is_unwell(ended: &Value) -> bool {
    ended["exitCode"].as_i64().unwrap_or_default() != 0
}

/// Why the control plane ends a pod: drained, preempted, tainted.
pub(super) fn disruption(status: &Value) -> Option<&str> {
    let mut conditions = status["conditions"].items();
    let disruption = conditions.find(|condition| {
        condition["type"] == "DisruptionTarget" && condition["status"] == "True"
    })?;
    Some(disruption["message"].text())
}

/// Whether a pod failed because of its node, rather than by itself.
fn is_lost(status: &Value) -> bool {
    let containers = status["containerStatuses"].items();
    let mut ended = containers.map(|container| container["state"]["terminated"]["reason"].text());
    LOST_PODS.contains(&status["reason"].text())
        || disruption(status).is_some()
        || ended.any(|reason| LOST_CONTAINERS.contains(&reason))
}

/// Whether a container ended because its program is built for another architecture, judging by its
/// last output.
fn is_for_another_machine(state: &Value) -> bool {
    state["message"].text().contains("exec format error")
}

/// A problem since `since` that is fatal `grace` later; not fatal while its start is unknown.
fn after(since: Option<SystemTime>, grace: Duration, reason: String) -> PodVerdict {
    PodVerdict::Trouble(
        reason,
        since
            .and_then(|since| since.checked_add(grace))
            .unwrap_or_else(far_future),
    )
}

fn far_future() -> SystemTime {
    // The year 2169: later than any run, earlier than any overflow.
    SystemTime::UNIX_EPOCH + Duration::from_secs(200 * 365 * 86_400)
}

/// ` (exit code 1, reason "Error", message "...")` of a terminated state; empty for any other.
fn exit_details(state: &Value) -> String {
    if !state.is_object() {
        return String::new();
    }
    let mut out = format!(
        " (exit code {}",
        state["exitCode"].as_i64().unwrap_or_default()
    );
    for (key, text) in [
        ("reason", state["reason"].text().trim()),
        ("message", last_lines(state["message"].text())),
    ] {
        if !text.is_empty() {
            out += &format!(", {key} {text:?}");
        }
    }
    out + ")"
}

/// The last lines of a container's termination message, which may be all of its log that Kubernetes
/// keeps.
fn last_lines(message: &str) -> &str {
    let message = message.trim();
    let newlines = message.rmatch_indices('\n');
    let line_starts = newlines.map(|(at, _)| at + 1).chain([0]);
    let mut start = None;
    for at in line_starts.take(MAX_OUTPUT_LINES) {
        if message.len() - at > MAX_OUTPUT_BYTES {
            break;
        }
        start = Some(at);
    }
    match start {
        Some(start) => &message[start..],
        // The last line alone is too long.
        None => tail(message, MAX_OUTPUT_BYTES),
    }
}

/// `: reason: message`, omitting empty parts.
fn detail(state: &Value) -> String {
    let parts = ["reason", "message"]
        .map(|key| state[key].text())
        .into_iter();
    parts
        .filter(|part| !part.is_empty())
        .map(|part| format!(": {part}"))
        .collect()
}

fn time(value: &Value) -> Option<SystemTime> {
    clock::parse_rfc3339(value.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_other_containers_must_have_succeeded() {
        let (good, bad) = (
            json!({"terminated": {"exitCode": 0}}),
            json!({"terminated": {"exitCode": 1}}),
        );
        let (worker, running) = (
            json!({"name": "w", "state": {"running": {}}}),
            json!({"running": {}}),
        );
        let (always, never) = (
            Some(ContainersEnd::Succeeded),
            Some(ContainersEnd::SucceededForGood),
        );
        for (policy, statuses, expected) in [
            (
                "Never",
                json!([worker, {"name": "a", "state": good}]),
                never,
            ),
            (
                "OnFailure",
                json!([worker, {"name": "a", "state": good}]),
                never,
            ),
            (
                "Always",
                json!([worker, {"name": "a", "state": good}]),
                always,
            ),
            (
                "Always",
                json!([worker, {"name": "a", "state": running, "lastState": good}]),
                always,
            ),
            (
                "Never",
                json!([worker, {"name": "a", "state": good}, {"name": "b", "state": bad}]),
                None,
            ),
            (
                "Never",
                json!([worker, {"name": "a", "state": running}]),
                None,
            ),
            ("Never", json!([worker]), None),
            ("Never", json!(null), None),
        ] {
            let pod = json!({"spec": {"restartPolicy": policy}, "status": {"containerStatuses": statuses}});
            assert_eq!(containers_end(&pod, "w"), expected, "{pod}");
        }
    }
    use base::json::json;

    const START: &str = "2024-01-01T00:00:00Z";

    fn after_start(seconds: u64) -> SystemTime {
        clock::parse_rfc3339(START).unwrap() + Duration::from_secs(seconds)
    }

    fn check(status: Value, seconds: u64, expected: &str) {
        let pod = json!({"spec": {"restartPolicy": "Never"}, "status": status});
        let verdict = match judge(
            &pod,
            "worker",
            None,
            after_start(seconds),
            &Grace::default(),
        ) {
            PodVerdict::Fine => "fine".to_owned(),
            PodVerdict::Quiet(reason, _) => format!("quiet: {reason}"),
            PodVerdict::Trouble(reason, _) => format!("trouble: {reason}"),
            PodVerdict::Failed(reason) => format!("failed: {reason}"),
            PodVerdict::Lost(reason) => format!("lost: {reason}"),
        };
        assert_eq!(verdict, expected);
    }

    fn waiting(reason: &str) -> Value {
        json!({"startTime": START, "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": reason, "message": "m"}}}]})
    }

    fn ended(name: &str, code: i64) -> Value {
        json!({"startTime": START, "containerStatuses": [
            {"name": name, "state": {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": START}}}]})
    }

    #[test]
    fn running_pod_has_no_finding() {
        check(
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 2, "state": {"running": {}}}]}),
            0,
            "fine",
        );
    }

    #[test]
    fn restart_policy_extends_the_restarts() {
        let failed = |policy: &str, restarts: u64| {
            let running =
                json!([{"name": "c", "restartCount": restarts, "state": {"running": {}}}]);
            let pod = json!({"spec": {"restartPolicy": policy}, "status": {"containerStatuses": running}});
            matches!(
                judge(&pod, "worker", None, after_start(0), &Grace::default()),
                PodVerdict::Failed(_)
            )
        };
        let cases = [
            ("Always", 2),
            ("Always", 3),
            ("OnFailure", 5),
            ("OnFailure", 6),
        ];
        assert_eq!(
            cases.map(|(policy, restarts)| failed(policy, restarts)),
            [false, true, false, true]
        );
    }

    #[test]
    fn unschedulable_pod_has_time() {
        let status = json!({"conditions": [{"reason": "Unschedulable", "message": "0/1 nodes", "lastTransitionTime": START}]});
        check(
            status.clone(),
            299,
            "trouble: Can't schedule pod: 0/1 nodes",
        );
        check(status, 300, "failed: Can't schedule pod: 0/1 nodes");
        let message = r#"0/3 nodes: persistentvolumeclaim "x" not found"#;
        let status = json!({"conditions": [{"reason": "Unschedulable", "message": message, "lastTransitionTime": START}]});
        check(
            status,
            60,
            &format!("failed: Can't schedule pod: {message}"),
        );
    }

    #[test]
    fn transient_image_errors_have_time() {
        check(
            waiting("ErrImagePull"),
            10,
            "trouble: Failed to pull image for container c: ErrImagePull: m",
        );
        check(
            waiting("ImagePullBackOff"),
            300,
            "failed: Failed to pull image for container c: ImagePullBackOff: m",
        );
        check(
            waiting("InvalidImageName"),
            0,
            "failed: Image of container c cannot be used: InvalidImageName: m",
        );
        check(
            waiting("ErrImageNeverPull"),
            0,
            "failed: Image of container c cannot be used: ErrImageNeverPull: m",
        );
        check(waiting("ContainerCreating"), 9_999, "fine");
    }

    #[test]
    fn unreachable_conformance_image_fails_at_once() {
        let status = |said: &str| {
            let waiting = json!({"reason": "ErrImagePull", "message": said});
            let container = json!({"name": "e2e", "image": "r/conformance:v1.30.0", "state": {"waiting": waiting}});
            json!({"startTime": START, "containerStatuses": [container]})
        };
        let remedy = remedies::missing_image(
            "r/conformance:v1.30.0",
            ImageUser::Plugin("e2e"),
            "no such host",
        )
        .unwrap();
        let reason = format!(
            "Failed to pull image `r/conformance:v1.30.0` for container e2e; {remedy}: \
             ErrImagePull: lookup r: no such host"
        );
        check(
            status("lookup r: no such host"),
            2,
            &format!("trouble: {reason}"),
        );
        check(
            status("lookup r: no such host"),
            30,
            &format!("failed: {reason}"),
        );
        let passing = "trouble: Failed to pull image for container e2e: ErrImagePull: 503";
        check(status("503"), 299, passing);
    }

    #[test]
    fn missing_config_map_is_awaited_a_minute() {
        check(
            waiting("CreateContainerConfigError"),
            59,
            "trouble: Container c cannot be created: CreateContainerConfigError: m",
        );
        check(
            waiting("CreateContainerConfigError"),
            60,
            "failed: Container c cannot be created: CreateContainerConfigError: m",
        );
    }

    #[test]
    fn events_explain_only_what_the_status_does_not() {
        let warning = |reason: &str| Delay::Warning {
            reason: reason.into(),
            message: "m".into(),
        };
        let pending = json!({"phase": "Pending", "startTime": START});
        let creating =
            json!([{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]);
        let no_image = json!([{"name": "c", "state": {"waiting": {"reason": "ErrImagePull"}}}]);
        let mount = warning("FailedMount");
        let readable = "Pod cannot start: FailedMount: m";
        let unscheduled = "Pod cannot start: FailedScheduling: m";
        let pull = "Failed to pull image for container c: ErrImagePull";
        for (statuses, phase, delay, seconds, expected) in [
            (
                &creating,
                "Pending",
                &mount,
                59,
                format!("trouble: {readable}"),
            ),
            (
                &creating,
                "Pending",
                &mount,
                60,
                format!("failed: {readable}"),
            ),
            (
                &json!([]),
                "Pending",
                &warning("FailedScheduling"),
                299,
                format!("trouble: {unscheduled}"),
            ),
            (
                &json!([]),
                "Pending",
                &warning("FailedScheduling"),
                300,
                format!("failed: {unscheduled}"),
            ),
            (&no_image, "Pending", &mount, 60, format!("trouble: {pull}")),
            (&creating, "Running", &mount, 60, "fine: ".into()),
            (
                &creating,
                "Pending",
                &Delay::Unreadable,
                9_999,
                format!("trouble: Pod has not started; {}", Delay::Unreadable),
            ),
        ] {
            let mut pod = json!({"metadata": {"creationTimestamp": START}, "status": pending});
            pod["status"]["phase"] = json!(phase);
            pod["status"]["containerStatuses"] = statuses.clone();
            let now = after_start(seconds);
            let verdict = match judge(&pod, "worker", Some(delay), now, &Grace::default()) {
                PodVerdict::Fine => "fine: ".into(),
                PodVerdict::Trouble(reason, _) => format!("trouble: {reason}"),
                PodVerdict::Failed(reason) => format!("failed: {reason}"),
                PodVerdict::Quiet(reason, _) | PodVerdict::Lost(reason) => reason,
            };
            assert_eq!(verdict, expected, "{pod}");
        }
    }

    #[test]
    fn restarts_are_counted_in_init_containers_too() {
        let status = json!({"initContainerStatuses": [{"name": "i", "restartCount": 3, "lastState": {"terminated": {"exitCode": 7}}}]});
        check(
            status,
            0,
            "failed: Container i has restarted unsuccessfully 3 times (exit code 7)",
        );
    }

    #[test]
    fn ended_container_has_time_and_ended_worker_none() {
        check(
            ended("c", 0),
            299,
            r#"quiet: Container c is in a terminated state (exit code 0, reason "Error")"#,
        );
        check(
            ended("c", 0),
            300,
            r#"failed: Container c is in a terminated state (exit code 0, reason "Error")"#,
        );
        check(
            ended("worker", 1),
            0,
            r#"failed: Container worker is in a terminated state (exit code 1, reason "Error")"#,
        );
        check(
            ended("worker", 0),
            0,
            r#"quiet: Container worker is in a terminated state (exit code 0, reason "Error")"#,
        );
    }

    #[test]
    fn failed_plugin_is_given_seconds_for_its_result() {
        let with_worker = |state: Value, restarts: u64, last: Value| {
            json!({"startTime": START, "containerStatuses": [
                {"name": "worker", "state": {"running": {}}},
                {"name": "c", "restartCount": restarts, "state": state, "lastState": last},
            ]})
        };
        let failed = |message: &str| json!({"terminated": {"exitCode": 1, "reason": "Error", "message": message, "finishedAt": START}});
        let words = r#"Container c is in a terminated state (exit code 1, reason "Error", message "no disk")"#;
        let status = with_worker(failed("no disk"), 0, json!({}));
        check(status.clone(), 14, &format!("trouble: {words}"));
        check(status, 15, &format!("failed: {words}"));
        let wrong = "exec /app: exec format error";
        let words = format!(r#"(exit code 1, reason "Error", message "{wrong}")"#);
        check(
            with_worker(failed(wrong), 0, json!({})),
            0,
            &format!("failed: Container c is in a terminated state {words}"),
        );
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        check(
            with_worker(waiting.clone(), 1, failed(wrong)),
            0,
            &format!("failed: Container c cannot be started {words}"),
        );
        check(
            with_worker(waiting, 1, failed("x")),
            9,
            r#"trouble: Container c keeps ending (exit code 1, reason "Error", message "x")"#,
        );
    }

    #[test]
    fn missing_command_fails_at_once() {
        let ended = |name: &str, reason: &str| json!({"name": name, "state": {"terminated": {"exitCode": 128, "reason": reason, "finishedAt": START}}});
        let running = |name: &str| json!({"name": name, "state": {"running": {}}});
        let (typo, worker) = (ended("c", "StartError"), running("worker"));
        let words = r#"Container c is in a terminated state (exit code 128, reason "StartError")"#;
        let other = |reason: &str, code: u8| {
            format!(
                ", and Container d is in a terminated state (exit code {code}, reason {reason:?})"
            )
        };
        for (containers, verdict, more) in [
            (vec![typo.clone(), worker.clone()], "failed", String::new()),
            (
                vec![
                    worker.clone(),
                    typo.clone(),
                    ended("d", "ContainerCannotRun"),
                ],
                "failed",
                other("ContainerCannotRun", 128),
            ),
            // The other containers may still write results.
            (
                vec![typo.clone(), running("d"), worker.clone()],
                "trouble",
                String::new(),
            ),
            (
                vec![typo, ended("d", "Error"), worker],
                "trouble",
                other("Error", 128),
            ),
        ] {
            let status = json!({"startTime": START, "containerStatuses": containers});
            check(status, 0, &format!("{verdict}: {words}{more}"));
        }
    }

    #[test]
    fn container_that_keeps_ending_is_described_once() {
        let last = json!({"terminated": {"exitCode": 2, "reason": "Error", "finishedAt": START}});
        let container = |name: &str, restarts: u64, state: &Value| json!({"name": name, "restartCount": restarts, "state": state, "lastState": last});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let end = r#"(exit code 2, reason "Error")"#;
        let words = format!("Container a keeps ending {end}, and Container b keeps ending {end}");
        for states in [[&waiting, &last], [&last, &waiting]] {
            let statuses = json!([container("a", 1, states[0]), container("b", 2, states[1])]);
            let pod = json!({"status": {"startTime": START, "containerStatuses": statuses}});
            let verdict = judge(&pod, "worker", None, after_start(0), &Grace::default());
            assert!(matches!(verdict, PodVerdict::Trouble(reason, _) if reason == words));
        }
        let statuses = json!([container("a", 3, &waiting)]);
        let words = format!("Container a has restarted unsuccessfully 3 times {end}");
        check(
            json!({"startTime": START, "containerStatuses": statuses}),
            0,
            &format!("failed: {words}"),
        );
    }

    #[test]
    fn failure_repeats_the_end_of_the_output() {
        let long = "x".repeat(600);
        let many = "1\n2\n3\n4\n5\n6\n";
        let cases = [
            ("", ""),
            (" one \n", "one"),
            (many, "2\n3\n4\n5\n6"),
            (&format!("{long}\nlast"), "last"),
            (&long, &long[..MAX_OUTPUT_BYTES]),
        ];
        for (said, repeated) in cases {
            assert_eq!(last_lines(said), repeated);
        }
        assert!(last_lines(&"ü".repeat(400)).len() <= MAX_OUTPUT_BYTES);
    }

    #[test]
    fn evicted_pod_is_lost_at_once() {
        check(
            json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}),
            0,
            "lost: Pod failed: Evicted: disk",
        );
    }
}
