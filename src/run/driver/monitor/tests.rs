//! What the events of watches and the passing of time lead to.

use super::*;
use base::json::json;
use client::protocol::ContainersEnd;
use model::names::WORKER_CONTAINER;

const NONE: [&str; 0] = [];

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn monitor(placement: Placement, max_relaunches: u64, expected: BTreeSet<String>) -> Monitor {
    let settings = MonitorSettings {
        plugin: "p".into(),
        placement,
        grace: Grace::default(),
        max_relaunches,
        contact_timeout: None,
    };
    Monitor::new(settings, expected, at(0))
}

fn single_pod(max_relaunches: u64) -> Monitor {
    monitor(Placement::Single, max_relaunches, BTreeSet::new())
}

fn once() -> Monitor {
    single_pod(0)
}

fn on_nodes(names: &[&str]) -> Monitor {
    let expected = names.iter().map(|&name| name.to_owned()).collect();
    let mut monitor = monitor(Placement::Controlled(json!({})), 0, expected);
    for name in names {
        monitor.record(node(name, "True"), at(0));
    }
    assert_eq!(monitor.check(at(0)), []);
    monitor
}

fn node(name: &str, ready: &str) -> WatchEvent {
    let conditions = json!([{"type": "Ready", "status": ready}]);
    WatchEvent::Node(Event::Applied(
        json!({"metadata": {"name": name}, "status": {"conditions": conditions}}),
    ))
}

const LISTING: WatchEvent = WatchEvent::Pod(Event::Restarted);
const LISTED: WatchEvent = WatchEvent::Pod(Event::Synced);

fn applied(pod: Value) -> WatchEvent {
    WatchEvent::Pod(Event::Applied(pod))
}

fn deleted_pod(pod: Value) -> WatchEvent {
    WatchEvent::Pod(Event::Deleted(pod))
}

fn deleted_node(name: &str) -> WatchEvent {
    WatchEvent::Node(Event::Deleted(json!({"metadata": {"name": name}})))
}

fn pod(uid: &str, node: &str, status: Value) -> Value {
    let spec = json!({"nodeName": node, "restartPolicy": "Never"});
    json!({"metadata": {"uid": uid, "name": uid.replace('u', "pod-")}, "spec": spec, "status": status})
}

fn see(monitor: &mut Monitor, seen: WatchEvent, seconds: u64) -> Vec<Finding> {
    monitor.record(seen, at(seconds));
    monitor.check(at(seconds))
}

fn check(findings: &[Finding], expected: &[impl AsRef<str>]) {
    let shown: Vec<_> = findings
        .iter()
        .map(|finding| match finding {
            Finding::Failure(failure) => format!("{}: {}", failure.id, failure.error()),
            Finding::Trouble(id, text) => {
                format!("{id}? {}", text.as_deref().unwrap_or("passed"))
            }
            Finding::Expect(id) => format!("{id}+"),
            Finding::Lost(id, lost) => format!("{id}! {}", lost.node),
            Finding::Ended(id, end) => {
                format!("{id}. {}", end.map_or("runs", ContainersEnd::name))
            }
        })
        .collect();
    assert_eq!(shown.len(), expected.len(), "{shown:?}");
    for (shown, expected) in shown.iter().zip(expected) {
        let expected = expected.as_ref();
        assert!(
            shown.starts_with(expected),
            "{shown:?} does not begin with {expected:?}"
        );
    }
}

#[test]
fn vanished_job_pod_fails_at_once() {
    let mut monitor = once();
    check(
        &see(
            &mut monitor,
            applied(pod("u", "n", json!({"phase": "Running"}))),
            1,
        ),
        &NONE,
    );
    check(
        &see(&mut monitor, deleted_pod(pod("u", "n", json!({}))), 2),
        &["p/global! n", "p/global: the plugin's pod was deleted"],
    );
    check(&monitor.check(at(9)), &NONE);
}

#[test]
fn job_pod_missing_from_a_list_is_gone() {
    let mut monitor = once();
    monitor.record(applied(pod("u", "n", json!({}))), at(1));
    check(&see(&mut monitor, LISTED, 1), &NONE);
    monitor.record(LISTING, at(2));
    let deleted = |node| {
        [
            format!("p/global! {node}"),
            "p/global: the plugin's pod was deleted".into(),
        ]
    };
    check(&see(&mut monitor, LISTED, 2), &deleted("n"));
    check(&see(&mut once(), LISTED, 1), &deleted(""));
}

#[test]
fn expected_node_missing_from_a_list_is_gone() {
    let expected = ["a", "b"].map(str::to_owned).into();
    let mut monitor = monitor(Placement::Controlled(json!({})), 0, expected);
    let synced = || WatchEvent::Node(Event::Synced);
    monitor.record(node("b", "True"), at(1));
    check(
        &see(&mut monitor, synced(), 1),
        &["p/a: skipped: node deleted"],
    );
    monitor.record(WatchEvent::Node(Event::Restarted), at(2));
    check(
        &see(&mut monitor, synced(), 2),
        &["p/b: skipped: node deleted"],
    );
}

#[test]
fn job_fails_with_its_node() {
    let mut monitor = once();
    monitor.record(applied(pod("u", "n", json!({"phase": "Running"}))), at(1));
    check(&see(&mut monitor, deleted_node("other"), 2), &NONE);
    check(
        &see(&mut monitor, deleted_node("n"), 2),
        &[
            "p/global! n",
            "p/global: node `n` was lost at 13:46:42: it was deleted with the plugin's pod on \
             it",
        ],
    );
}

#[test]
fn unready_node_is_trouble_that_may_pass() {
    let mut monitor = once();
    monitor.record(applied(pod("u", "n", json!({"phase": "Running"}))), at(1));
    monitor.record(LISTED, at(1));
    check(
        &see(&mut monitor, node("n", "Unknown"), 10),
        &["p/global? node `n` is not ready"],
    );
    check(
        &see(&mut monitor, node("n", "True"), 20),
        &["p/global? passed"],
    );
    check(
        &see(&mut monitor, node("n", "False"), 30),
        &["p/global? node"],
    );
    check(&monitor.check(at(149)), &NONE);
    check(
        &monitor.check(at(150)),
        &[
            "p/global! n",
            "p/global: node `n` was lost at 13:47:10: the node is not",
        ],
    );
}

fn down(name: &str, since: u64) -> WatchEvent {
    let condition = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": clock::rfc3339(at(since)),
        "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."});
    WatchEvent::Node(Event::Applied(
        json!({"metadata": {"name": name}, "status": {"conditions": [condition]}}),
    ))
}

#[test]
fn lost_node_has_time_and_message_of_its_condition() {
    let mut monitor = on_nodes(&["a", "b"]);
    monitor.record(applied(pod("u", "a", json!({"phase": "Running"}))), at(1));
    let said = "13:46:50: Kubelet stopped posting node status";
    // The node counts although it has no pod.
    check(
        &see(&mut monitor, down("b", 10), 60),
        &[format!("p/b? node `b` is not ready since {said}")],
    );
    check(
        &see(&mut monitor, down("a", 10), 60),
        &[format!("p/a? node `a` is not ready since {said}")],
    );
    let findings = monitor.check(at(130));
    let lost = |node| {
        [
            format!("p/{node}! {node}"),
            format!("p/{node}: node `{node}` was lost at {said}"),
        ]
    };
    check(&findings, &[lost("a"), lost("b")].concat());
    let Finding::Failure(failure) = &findings[1] else {
        panic!("{findings:?}")
    };
    assert_eq!(
        (failure.kind, &failure.report["lost"]["node"]),
        (FailureKind::NodeLost, &json!("a"))
    );
    check(&monitor.check(at(9_999)), &NONE);
}

#[test]
fn grace_of_zero_disables_node_loss() {
    let grace = Grace {
        node_not_ready: Duration::ZERO,
        ..Grace::default()
    };
    let mut monitor = Monitor { grace, ..once() };
    monitor.record(applied(pod("u", "n", json!({"phase": "Running"}))), at(1));
    monitor.record(LISTED, at(1));
    check(
        &see(&mut monitor, down("n", 10), 20),
        &["p/global? node `n` is not ready since"],
    );
    check(&monitor.check(at(99_999)), &NONE);
}

#[test]
fn job_is_judged_by_all_its_pods() {
    let mut monitor = single_pod(1);
    monitor.record(LISTING, at(1000));
    monitor.record(
        applied(pod("u1", "n", json!({"phase": "Running"}))),
        at(1000),
    );
    check(&see(&mut monitor, down("n", 10), 1000), &NONE);
    let mut second = pod("u2", "m", json!({"phase": "Running"}));
    second["metadata"]["name"] = json!("pod-u-2");
    monitor.record(applied(second), at(1000));
    check(&see(&mut monitor, LISTED, 1000), &NONE);
}

fn retried() -> Monitor {
    let mut monitor = single_pod(1);
    monitor.record(applied(pod("u1", "n", json!({"phase": "Running"}))), at(1));
    check(&see(&mut monitor, LISTED, 1), &NONE);
    monitor
}

#[test]
fn single_pod_is_restarted_once() {
    let mut monitor = retried();
    let again = "p/global? node `n` was lost at 13:46:50: Kubelet stopped posting node \
                 status; it is started again";
    check(
        &see(&mut monitor, down("n", 10), 130),
        &["p/global! n", again],
    );
    assert_eq!(monitor.take_relaunches(), ["global"]);
    assert_eq!(
        (monitor.attempt("global"), monitor.lost_nodes()),
        (2, vec!["n".to_owned()])
    );
    let failed = json!({"phase": "Failed", "reason": "NodeLost"});
    check(
        &see(&mut monitor, applied(pod("u1", "n", failed)), 131),
        &NONE,
    );
    check(
        &see(
            &mut monitor,
            applied(pod("u2", "m", json!({"phase": "Running"}))),
            132,
        ),
        &NONE,
    );
    check(
        &see(&mut monitor, deleted_pod(pod("u1", "n", json!({}))), 133),
        &NONE,
    );
    let ended = json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"});
    check(
        &see(&mut monitor, applied(pod("u2", "m", ended)), 140),
        &["p/global! m", "p/global: Pod failed: Evicted: low on disk"],
    );
    assert_eq!(monitor.take_relaunches(), NONE);
}

#[test]
fn loss_precedes_the_failure_of_the_pod() {
    let mut monitor = retried();
    check(
        &see(&mut monitor, deleted_pod(pod("u1", "n", json!({}))), 2),
        &["p/global! n", "p/global? the plugin's"],
    );
    assert_eq!(
        (monitor.take_relaunches(), monitor.lost_nodes()),
        (vec!["global".into()], vec!["n".into()])
    );
    let unscheduled = json!({"conditions": [{"reason": "Unschedulable", "message": "0/1 nodes", "lastTransitionTime": clock::rfc3339(at(0))}]});
    check(
        &see(&mut monitor, applied(pod("u2", "", unscheduled)), 3),
        &["p/global? Can't schedule pod"],
    );
    check(
        &monitor.check(at(300)),
        &[
            "p/global: the plugin's pod was deleted before its result arrived; it was started \
             again; Can't schedule pod",
        ],
    );
}

#[test]
fn drained_pod_is_lost() {
    let mut monitor = retried();
    let ended = json!({"terminated": {"exitCode": 143, "finishedAt": clock::rfc3339(at(2))}});
    let status = json!({
        "phase": "Failed", "containerStatuses": [{"name": WORKER_CONTAINER, "state": ended}],
        "conditions": [{"type": "DisruptionTarget", "status": "True", "message": "Eviction API: evicting"}],
    });
    let mut drained = pod("u1", "n", status);
    drained["metadata"]["deletionTimestamp"] = json!(clock::rfc3339(at(2)));
    check(
        &see(&mut monitor, applied(drained.clone()), 3),
        &["p/global? the pod is being deleted: Eviction API: evicting"],
    );
    let findings = see(&mut monitor, deleted_pod(drained), 32);
    check(
        &findings,
        &[
            "p/global! n",
            "p/global? the plugin's pod was deleted before its result arrived: Eviction API",
        ],
    );
}

#[test]
fn evicted_daemon_set_pod_may_be_replaced() {
    let mut monitor = on_nodes(&["a"]);
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"});
    check(
        &see(&mut monitor, applied(pod("u1", "a", evicted)), 10),
        &["p/a? Pod failed: Evicted"],
    );
    check(&monitor.check(at(69)), &NONE);
    monitor.record(deleted_pod(pod("u1", "a", json!({}))), at(70));
    check(
        &see(
            &mut monitor,
            applied(pod("u2", "a", json!({"phase": "Running"}))),
            70,
        ),
        &["p/a? passed"],
    );
    check(&monitor.check(at(9_999)), &NONE);
}

#[test]
fn recreated_node_is_lost_once() {
    let mut monitor = on_nodes(&["a"]);
    monitor.record(applied(pod("u1", "a", json!({"phase": "Running"}))), at(1));
    check(
        &see(&mut monitor, deleted_node("a"), 2),
        &["p/a! a", "p/a: node `a` was lost"],
    );
    check(&see(&mut monitor, node("a", "True"), 3), &["p/a+"]);
    monitor.record(applied(pod("u2", "a", json!({"phase": "Running"}))), at(4));
    check(&see(&mut monitor, deleted_node("a"), 5), &NONE);
}

#[test]
fn trouble_becomes_failure_with_the_pod_in_the_report() {
    let mut monitor = once();
    let status = json!({"conditions": [{"reason": "Unschedulable", "message": "m", "lastTransitionTime": base::clock::rfc3339(at(0))}]});
    monitor.record(applied(pod("u", "", status)), at(1));
    check(&see(&mut monitor, LISTED, 1), &["p/global? Can't schedule"]);
    check(&monitor.check(at(299)), &NONE);
    let findings = monitor.check(at(300));
    check(&findings, &["p/global: Can't schedule"]);
    let Finding::Failure(failure) = &findings[0] else {
        panic!("{findings:?}")
    };
    assert_eq!(failure.report["pod"]["metadata"]["uid"], "u");
}

#[test]
fn failure_waits_for_a_result_in_transfer() {
    let mut monitor = once();
    let ended = |since| {
        let state =
            json!({"terminated": {"exitCode": 1, "finishedAt": base::clock::rfc3339(at(since))}});
        let mut pod = pod(
            "u",
            "n",
            json!({"containerStatuses": [{"name": "plugin", "state": state}]}),
        );
        pod["spec"]["restartPolicy"] = "Never".into();
        applied(pod)
    };
    monitor.record(ended(0), at(1));
    check(
        &see(&mut monitor, LISTED, 1),
        &["p/global? Container plugin is in a terminated state"],
    );
    monitor.suspend_failures(&|_| true, at(15));
    check(&monitor.check(at(15)), &NONE);
    check(&see(&mut monitor, ended(0), 20), &NONE);
    monitor.suspend_failures(&|_| false, at(30));
    check(
        &monitor.check(at(30)),
        &["p/global: Container plugin is in a terminated state (exit code 1)"],
    );
}

#[test]
fn end_of_containers_is_reported_once_and_withdrawn_for_the_next_pod() {
    let mut monitor = on_nodes(&["a"]);
    let good = json!({"terminated": {"exitCode": 0}});
    let of = |uid: &str, containers: Value| {
        let mut pod = pod(
            uid,
            "a",
            json!({"phase": "Running", "containerStatuses": containers}),
        );
        pod["spec"]["restartPolicy"] = "Always".into();
        pod
    };
    let (running, ended) = (json!([]), json!([{"name": "plugin", "state": good}]));
    check(
        &see(&mut monitor, applied(of("u1", running.clone())), 1),
        &NONE,
    );
    check(
        &see(&mut monitor, applied(of("u1", ended.clone())), 2),
        &["p/a. succeeded"],
    );
    check(
        &see(&mut monitor, applied(of("u1", ended.clone())), 3),
        &NONE,
    );
    let mut deleted = of("u1", running.clone());
    deleted["metadata"]["deletionTimestamp"] = json!(clock::rfc3339(at(4)));
    check(
        &see(&mut monitor, applied(deleted), 4),
        &["p/a? the pod is being deleted"],
    );
    check(
        &see(&mut monitor, applied(of("u2", running)), 5),
        &["p/a. runs"],
    );
}

#[test]
fn daemon_set_still_creating_pods_is_no_failure() {
    let mut monitor = on_nodes(&["a", "b", "c"]);
    check(&see(&mut monitor, LISTED, 0), &NONE);
    monitor.record(applied(pod("u1", "a", json!({}))), at(50));
    check(&monitor.check(at(64)), &NONE);
    check(
        &see(&mut monitor, applied(pod("u2", "b", json!({}))), 100),
        &NONE,
    );
    check(&monitor.check(at(120)), &["p/c? no pod on the node yet"]);
    check(
        &monitor.check(at(160)),
        &["p/c: No pod was scheduled on node c within 60 s"],
    );
    check(&monitor.check(at(999)), &NONE);
}

#[test]
fn joining_and_leaving_nodes_are_followed() {
    let mut monitor = on_nodes(&["a"]);
    check(&see(&mut monitor, node("b", "True"), 5), &["p/b+"]);
    check(
        &see(&mut monitor, deleted_node("a"), 6),
        &["p/a: skipped: node deleted"],
    );
    check(&see(&mut monitor, deleted_node("zzz"), 6), &NONE);
}

#[test]
fn unsuitable_node_without_a_pod_is_skipped() {
    let mut monitor = on_nodes(&["a"]);
    let tainted = json!({"metadata": {"name": "a"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    check(
        &see(&mut monitor, WatchEvent::Node(Event::Applied(tainted)), 5),
        &["p/a: skipped: taint `k:NoExecute` is not tolerated"],
    );
}

#[test]
fn pending_daemon_set_pod_belongs_to_its_node() {
    let mut monitor = on_nodes(&["a"]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}});
    let waiting = json!({"metadata": {"uid": "u"}, "spec": {"affinity": affinity},
        "status": {"conditions": [{"reason": "Unschedulable", "message": "no cpu", "lastTransitionTime": base::clock::rfc3339(at(0))}]}});
    check(
        &see(&mut monitor, applied(waiting), 1),
        &["p/a? Can't schedule pod: no cpu"],
    );
    check(
        &monitor.check(at(300)),
        &["p/a: Can't schedule pod: no cpu"],
    );
}

#[test]
fn events_of_a_waiting_pod_are_read_ever_more_rarely() {
    let mut monitor = once();
    let mut waiting = pod("u", "n", json!({"phase": "Pending"}));
    waiting["metadata"]["creationTimestamp"] = json!(clock::rfc3339(at(0)));
    monitor.record(applied(waiting), at(0));
    let mut reads = Vec::new();
    for second in 0..150 {
        for pod in monitor.take_delayed_pods(at(second)) {
            reads.push(second);
            // The second read fails.
            if reads.len() != 2 {
                monitor.explain_delay(&pod, None, at(second));
            }
        }
    }
    assert_eq!(reads, [15, 20, 25, 30, 35, 45, 65, 105]);
    monitor.record(LISTED, at(150));
    check(&monitor.check(at(150)), &NONE);
    let pod = monitor.pods.object("u").unwrap().clone();
    let delay = Delay::Warning {
        reason: "FailedMount".into(),
        message: "m".into(),
    };
    monitor.explain_delay(&pod, Some(delay), at(20));
    check(
        &monitor.check(at(20)),
        &["p/global? Pod cannot start: FailedMount: m"],
    );
    check(
        &monitor.check(at(60)),
        &["p/global: Pod cannot start: FailedMount: m"],
    );
}

#[test]
fn events_of_many_pods_are_read_in_turn() {
    let names: Vec<_> = (0..20).map(|number| format!("n{number:02}")).collect();
    let mut monitor = on_nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        let mut waiting = pod(name, name, json!({"phase": "Pending"}));
        waiting["metadata"]["creationTimestamp"] = json!(clock::rfc3339(at(0)));
        monitor.record(applied(waiting), at(1));
    }
    let read = [15, 16, 17, 18].map(|second| monitor.take_delayed_pods(at(second)).len());
    assert_eq!(read, [8, 8, 4, 0]);
}

#[test]
fn monitor_of_five_thousand_pods_is_small() {
    let names: Vec<_> = (0..5_000).map(|n| format!("n{n}")).collect();
    let mut monitor = on_nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        monitor.record(applied(pod(name, name, json!({"phase": "Running"}))), at(1));
    }
    check(&monitor.check(at(1)), &NONE);
    assert!(names.iter().all(|name| monitor.pods.object(name).is_none()));
    check(&monitor.check(at(9_999)), &NONE);
}
