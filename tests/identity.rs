//! Identity of result senders in a run with per-worker certificates, and plugins that submit by
//! themselves.

#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::api_server::Fault;
use crate::support::cluster::{Aggregator, Asker, Cluster, Worker};
#[cfg(target_os = "linux")]
use crate::support::peer::Peer;

const REVIEWS: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";

/// A run of one plugin on the nodes `a` and `b`, and a client on `a` with the path of its pod.
fn asked() -> (Cluster, Aggregator, Asker, String) {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "")
        .by_node();
    let aggregator = cluster.start("");
    let pod = cluster.pod_on("p", "a");
    let path = cluster.path(pod["metadata"]["name"].as_str().unwrap());
    let asker = cluster.asker(&pod, "sonobuoy-worker");
    (cluster, aggregator, asker, path)
}

#[test]
fn worker_certificate_is_valid_for_its_node_alone() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("each", "DaemonSet", "")
        .plugin(
            "once",
            "Job",
            "podSpec: {terminationGracePeriodSeconds: 7}\n",
        )
        .by_node();
    let aggregator = cluster.start("");
    let (a, b) = (
        cluster.certified("each", "a"),
        cluster.certified("each", "b"),
    );
    let once = cluster.certified("once", "global");
    let secrets = cluster.api.list("/api/v1/namespaces/sonobuoy/secrets");
    assert!(secrets.is_empty(), "{secrets:?}");
    for pod in [cluster.pods("each"), cluster.pods("once")].concat() {
        let text = pod.to_string();
        assert!(
            !text.contains("CLIENT_KEY") && !text.contains("PRIVATE KEY"),
            "{text}"
        );
        let [plugin, worker] =
            [0, 1].map(|at| pod["spec"]["containers"][at]["volumeMounts"].to_string());
        assert!(worker.contains("/var/run/secrets/sonobuoy"), "{worker}");
        assert!(
            !plugin.contains("/var/run/secrets/sonobuoy"),
            "the token is the worker's: {plugin}"
        );
    }
    assert_eq!(
        [a.send("b"), a.send("nowhere"), b.send("a"), once.send("a")],
        [403; 4]
    );
    assert_eq!(
        [a.send("a"), a.send("a"), b.send("b"), once.send("global")],
        [200, 409, 200, 200]
    );
    aggregator.ends_well();
    let status = cluster.status();
    for entry in status["plugins"].as_array().unwrap() {
        assert_eq!(entry["identity"], "node", "{entry}");
    }
    assert_eq!(
        cluster.archive().text("plugins/each/results/b/r.txt"),
        "of b\n"
    );
}

#[test]
fn token_is_valid_for_its_run_and_pod_alone() {
    let (cluster, _aggregator, asker, path) = asked();
    let api = &cluster.api;
    let pod = api.get(&path).unwrap();
    let stranger = cluster.path("stranger");
    let mut likeness =
        json!({"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]});
    api.put(&stranger, likeness.clone());
    api.put("/api/v1/namespaces/default/pods/stranger", likeness.take());
    let gone = cluster.path("gone");
    api.put(&gone, api.get(&path).unwrap());
    let issue = |pod: &str| api.issue_token(pod, &asker.audience);
    let ended = issue(&path);
    api.end_token(&ended);
    let of_gone = issue(&gone);
    api.remove(&gone);
    let made_up = issue(&path).replace(".token-", ".made-up-");
    for (token, code, words) in [
        (made_up, 401, "invalid bearer token"),
        (
            api.issue_token(&path, "https://kubernetes.default.svc"),
            401,
            "not for this run",
        ),
        (
            api.issue_token(&path, "sonobuoy-00000000-0000-4000-8000-000000000000"),
            401,
            "not for this run",
        ),
        (ended, 401, "expired"),
        (of_gone, 401, "deleted"),
        (
            issue("/api/v1/namespaces/default/pods/stranger"),
            403,
            "namespace `sonobuoy`",
        ),
        (
            issue(&cluster.path("sonobuoy")),
            403,
            "does not belong to this run",
        ),
    ] {
        let (got, answer, _) = asker.ask(&token);
        assert_eq!(got, code, "{words}: {answer}");
        assert!(answer.contains(words), "{words}: {answer}");
    }
    // Labels alone do not make a pod part of the run.
    let (code, answer, _) = asker.ask(&issue(&stranger));
    assert_eq!(
        (code, answer.contains("does not belong to this run")),
        (403, true),
        "{answer}"
    );
    assert_eq!(
        asker.ask(&issue(&path)).0,
        200,
        "failures bar no other pod at this address"
    );
}

#[test]
fn token_whose_claims_are_not_its_pods_is_rejected() {
    let (cluster, _aggregator, asker, path) = asked();
    for (claim, value, words) in [
        ("node-name", "b", "for another node than `a`"),
        ("pod-uid", "another-uid", "is gone"),
    ] {
        let token = cluster
            .api
            .issue_untrue_token(&path, &asker.audience, claim, value);
        let (code, answer, _) = asker.ask(&token);
        assert_eq!(code, 403, "{claim}: {answer}");
        assert!(answer.contains(words), "{claim}: {answer}");
    }
    assert_eq!(
        asker
            .ask(&cluster.api.issue_token(&path, &asker.audience))
            .0,
        200
    );
}

#[test]
fn refused_token_costs_one_review() {
    let (cluster, _aggregator, asker, path) = asked();
    let before = cluster.api.count(REVIEWS);
    let forged = cluster
        .api
        .issue_token(&path, &asker.audience)
        .replace(".token-", ".made-up-");
    for _ in 0..5 {
        assert_eq!(asker.ask(&forged).0, 401);
    }
    assert_eq!(cluster.api.count(REVIEWS), before + 1);
}

#[test]
fn exhausted_token_costs_no_more_reviews() {
    let (cluster, _aggregator, asker, path) = asked();
    let before = cluster.api.count(REVIEWS);
    let token = cluster.api.issue_token(&path, &asker.audience);
    let codes: Vec<u16> = (0..12).map(|_| asker.ask(&token).0).collect();
    assert_eq!(codes, [[200; 8].as_slice(), &[429; 4]].concat());
    assert_eq!(
        cluster.api.count(REVIEWS),
        before + 9,
        "eight certificates and one refusal"
    );
}

#[test]
fn ninth_simultaneous_request_of_one_address_has_to_try_again() {
    let (cluster, _aggregator, asker, path) = asked();
    let tokens: Vec<_> = (0..9)
        .map(|_| cluster.api.issue_token(&path, &asker.audience))
        .collect();
    cluster
        .api
        .fault(Fault::on(REVIEWS).times(9).slow(Duration::from_secs(5)));
    let codes = std::thread::scope(|scope| {
        let asked: Vec<_> = tokens
            .iter()
            .map(|token| scope.spawn(|| asker.ask(token).0))
            .collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(
        codes.iter().filter(|code| **code == 429).count(),
        1,
        "{codes:?}"
    );
    assert_eq!(
        codes.iter().filter(|code| **code == 200).count(),
        8,
        "{codes:?}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn forged_tokens_of_three_addresses_delay_no_worker() {
    let (cluster, _aggregator, asker, path) = asked();
    let token = cluster.api.issue_token(&path, &asker.audience);
    let peer = Peer::new(&asker.url, &asker.authority, None);
    let (asked, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (hostile, asked, is_over) = (peer.clone().at(1 + number % 3), &asked, &is_over);
            let (asker, token) = (&asker, &token);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Another token each time, since a rejected one costs no review.
                    let forged = format!("{token}{}", asked.fetch_add(1, Ordering::Relaxed));
                    assert_ne!(asker.ask_as(&hostile, &forged).0, 200);
                }
            });
        }
        let answers: Vec<_> = (0..3)
            .map(|_| {
                let token = cluster.api.issue_token(&path, &asker.audience);
                let begun = Instant::now();
                let (code, answer, _) = asker.ask_as(&peer.clone().at(200), &token);
                (code, begun.elapsed(), answer)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        for (code, took, answer) in answers {
            assert_eq!(code, 200, "{answer}");
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    });
    assert!(asked.into_inner() > 6, "the flood went on meanwhile");
}

#[test]
fn second_authorization_header_is_rejected() {
    let (cluster, _aggregator, asker, path) = asked();
    let token = cluster.api.issue_token(&path, &asker.audience);
    let (code, answer, _) = asker.ask(&format!("{token}\r\nauthorization: Bearer {token}"));
    assert_eq!(code, 400, "{answer}");
}

#[test]
fn pods_of_plugins_get_little_time_to_end_or_what_their_definition_says() {
    let cluster = Cluster::new(&["a"])
        .daemon_sets()
        .plugin("each", "DaemonSet", "")
        .plugin(
            "once",
            "Job",
            "podSpec: {terminationGracePeriodSeconds: 7}\n",
        )
        .by_node();
    let aggregator = cluster.start("");
    assert_eq!(cluster.certified("each", "a").send("a"), 200);
    assert_eq!(cluster.certified("once", "global").send("global"), 200);
    aggregator.ends_well();
    let deletions = cluster.api.deletions("/api/v1/namespaces/sonobuoy/pods");
    let mut seconds: Vec<_> = deletions
        .iter()
        .map(|options| options["gracePeriodSeconds"].as_u64())
        .collect();
    seconds.sort();
    assert_eq!(seconds, [Some(2), Some(7)]);
}

#[test]
fn token_from_another_pod_is_rejected() {
    let (cluster, _aggregator, asker, path) = asked();
    let other = cluster.pod_on("p", "b");
    let other = cluster.path(other["metadata"]["name"].as_str().unwrap());
    let address = |pod: &str, ip: &str| cluster.api.merge(pod, &json!({"status": {"podIP": ip}}));
    // This test's own address is that of the pod on b.
    address(&path, "10.0.0.7");
    address(&other, "127.0.0.1");
    let from_b = cluster.api.issue_token(&other, &asker.audience);
    let seen = || asker.ask(&from_b).0 == 200;
    assert!(seen());
    let from_a = cluster.api.issue_token(&path, &asker.audience);
    let (code, answer, _) = asker.ask(&from_a);
    assert_eq!(code, 403, "{answer}");
    assert!(answer.contains("another pod's"), "{answer}");
}

#[test]
fn failing_review_is_retried_and_shown_in_status() {
    let (cluster, _aggregator, asker, path) = asked();
    let token = cluster.api.issue_token(&path, &asker.audience);
    cluster.api.fault(
        Fault::on(REVIEWS)
            .times(1)
            .status(500, "InternalError", "no etcd"),
    );
    cluster
        .api
        .fault(Fault::on(REVIEWS).times(1).slow(Duration::from_secs(11)));
    for words in ["no etcd", "does not review tokens"] {
        let (code, answer, _) = asker.ask(&token);
        assert_eq!(code, 503, "{answer}");
        assert!(answer.to_lowercase().contains("retry-after: 2"), "{answer}");
        assert!(answer.contains(words), "{answer}");
    }
    cluster.wait_for_status(|status| {
        let message = status["plugins"][0]["message"].as_str().unwrap_or_default();
        message.contains("certificate") && message.contains("does not review tokens")
    });
    assert_eq!(
        asker.worker(&token).send("a"),
        200,
        "failures of the server do not count against a client"
    );
    cluster.wait_for_status(|status| status["plugins"][1]["message"].is_null());
}

#[test]
fn certificates_survive_an_aggregator_restart() {
    let (cluster, mut aggregator, asker, path) = asked();
    let before = cluster.certified("p", "a");
    aggregator.child.kill().unwrap();
    aggregator.child.wait().unwrap();
    let aggregator = cluster.start("");
    let token = cluster.api.issue_token(&path, &asker.audience);
    cluster
        .api
        .wait(|_| std::net::TcpStream::connect(asker.url.trim_start_matches("https://")).is_ok());
    assert_eq!(before.send("a"), 200);
    asker.worker(&token);
    assert_eq!(cluster.certified("p", "b").send("b"), 200);
    aggregator.ends_well();
}

#[test]
fn late_permissions_are_awaited() {
    let cluster = Cluster::new(&["a"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "")
        .by_node();
    cluster.api.forbid("list", "nodes");
    cluster.api.forbid("create", "tokenreviews");
    let aggregator = cluster.start("");
    cluster.api.wait(|api| api.count("GET /api/v1/nodes") >= 2);
    cluster.api.forbid_nothing();
    assert_eq!(cluster.certified("p", "a").send("a"), 200);
    aggregator.ends_well();
    assert_eq!(cluster.status()["plugins"][0]["identity"], "node");
}

#[test]
fn plugin_certificate_replaces_forbidden_reviews() {
    let cluster = Cluster::new(&["a"]).plugin("p", "Job", "").by_node();
    cluster.api.forbid("create", "tokenreviews");
    let aggregator = cluster.start("");
    assert_eq!(cluster.worker("p").send("global"), 200);
    assert!(
        aggregator.said().contains("may not review tokens"),
        "{}",
        aggregator.said()
    );
    aggregator.ends_well();
    assert_eq!(cluster.status()["plugins"][0]["identity"], "plugin");

    let cluster = Cluster::new(&["a"])
        .plugin("p", "Job", "")
        .by_node()
        .set("Identity", json!("node"));
    cluster.api.forbid("create", "tokenreviews");
    let (code, said) = cluster.start("").end();
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("tokenreviews.authentication.k8s.io"),
        "{said}"
    );
    assert_eq!(cluster.status()["status"], "failed");
}

#[test]
fn foreign_worker_images_get_the_classic_protocol() {
    for (identity, image, expected) in [
        ("auto", "other:1", "plugin"),
        ("plugin", "worker:1", "plugin"),
        ("node", "other:1", "node"),
    ] {
        let cluster = Cluster::new(&["a"])
            .plugin("p", "Job", "")
            .by_node()
            .set("Identity", json!(identity))
            .set("WorkerImage", json!(image));
        let aggregator = cluster.start("");
        let sent = match expected {
            "node" => cluster.certified("p", "global").send("global"),
            _ => cluster.worker("p").send("global"),
        };
        assert_eq!(sent, 200, "{identity}");
        aggregator.ends_well();
        assert_eq!(
            cluster.status()["plugins"][0]["identity"],
            expected,
            "{identity}"
        );
    }
}

/// The variables of a container, by name.
fn env(container: &Value, name: &str) -> Option<String> {
    let found = container["env"]
        .as_array()?
        .iter()
        .find(|entry| entry["name"] == name)?;
    found["value"].as_str().map(str::to_owned)
}

#[test]
fn plugin_without_a_worker_receives_all_credentials() {
    let cluster = Cluster::new(&["a"])
        .daemon_sets()
        .plugin("each", "DaemonSet", "  worker: none\n")
        .plugin("once", "Job", "  worker: none\n")
        .by_node();
    let aggregator = cluster.start("");
    for (plugin, node, result) in [
        ("each", "a", "by-node/$(NODE_NAME)/each"),
        ("once", "global", "global/once"),
    ] {
        let pod = cluster.pod_on(plugin, node);
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1, "no worker: {pod}");
        let url = env(&containers[0], "AGGREGATOR_URL").unwrap();
        for (variable, kind) in [
            ("SONOBUOY_RESULT_URL", "results"),
            ("SONOBUOY_PROGRESS_URL", "progress"),
        ] {
            assert_eq!(
                env(&containers[0], variable),
                Some(format!("{url}/api/v1/{kind}/{result}"))
            );
        }
        let token = env(&containers[0], "SONOBUOY_TOKEN_FILE");
        assert_eq!(token.as_deref(), Some("/var/run/secrets/sonobuoy/token"));
        assert!(
            containers[0]["volumeMounts"]
                .to_string()
                .contains("/var/run/secrets/sonobuoy")
        );
        let asker = cluster.asker(&pod, "plugin");
        let path = cluster.path(pod["metadata"]["name"].as_str().unwrap());
        let worker = asker.worker(&cluster.api.issue_token(&path, &asker.audience));
        assert_eq!(worker.send(node), 200);
    }
    aggregator.ends_well();
}

#[test]
fn silent_worker_fails_with_its_log() {
    check_silent_worker("node", |cluster| cluster.certified("p", "b"));
}

#[test]
fn silent_worker_fails_with_its_log_although_certificates_are_shared() {
    check_silent_worker("plugin", |cluster| cluster.worker("p"));
}

fn check_silent_worker(identity: &str, healthy: impl Fn(&Cluster) -> Worker) {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "")
        .by_node()
        .set("Identity", json!(identity))
        .set("Graces", json!({"Silence": "6s"}));
    let aggregator = cluster.start("");
    assert_eq!(healthy(&cluster).send("b"), 200);
    let pod = cluster.pod_on("p", "a");
    let name = pod["metadata"]["name"].as_str().unwrap();
    let said = "time=\"t\" level=error msg=\"cannot reach the aggregator: `https://x:1`: Connection refused\"\n";
    cluster.api.log("sonobuoy", name, "sonobuoy-worker", said);
    let now = base::clock::rfc3339(std::time::SystemTime::now());
    let running = json!({"name": "sonobuoy-worker", "state": {"running": {"startedAt": now}}});
    cluster.api.merge(
        &cluster.path(name),
        &json!({"status": {"phase": "Running", "containerStatuses": [running]}}),
    );
    // Named long before the failure is final.
    cluster.wait_for_status(|status| {
        let message = status["plugins"][0]["message"].as_str().unwrap_or_default();
        message.contains("Connection refused; ") && message.contains("network policy")
    });
    aggregator.ends_well();
    let error = cluster.error("p", "a");
    assert!(
        error.contains("nothing was heard from it in 6s") && error.contains("Connection refused"),
        "{error}"
    );
    assert_eq!(
        cluster.archive().text("plugins/p/results/b/r.txt"),
        "of b\n"
    );
}

#[test]
fn worker_without_heartbeats_fails_until_its_result_arrives() {
    let cluster = Cluster::new(&["a", "b"])
        .daemon_sets()
        .plugin("p", "DaemonSet", "")
        .plugin("original", "Job", "")
        .set("Graces", json!({"Silent": "30s"}));
    let aggregator = cluster.start("");
    let (p, original) = (cluster.worker("p"), cluster.worker("original"));
    let beat = |node: &str, agent: &str| {
        let place = if node == "global" {
            "global/original"
        } else {
            &*format!("by-node/{node}/p")
        };
        let peer = if node == "global" {
            &original.peer
        } else {
            &p.peer
        };
        let head =
            format!("GET /api/v1/health/{place} HTTP/1.1\r\nhost: x\r\nuser-agent: {agent}\r\n");
        assert!(
            peer.say(head + "connection: close\r\n\r\n")
                .starts_with("HTTP/1.1 200")
        );
    };
    // Only a second heartbeat of a worker of ours promises a third one.
    for (node, agent) in [
        ("a", "sonobuoy/0.60.0"),
        ("global", "curl/8"),
        ("global", "curl/8"),
    ] {
        beat(node, agent);
    }
    beat("b", "sonobuoy/0.60.0");
    beat("b", "sonobuoy/0.60.0");
    let entry = |status: &Value, plugin: &str, node: &str| {
        let of = |entry: &&Value| entry["plugin"] == plugin && entry["node"] == node;
        status["plugins"]
            .as_array()
            .and_then(|all| all.iter().find(of).cloned())
            .unwrap_or_default()
    };
    cluster.wait_for_status(|status| entry(status, "p", "b")["status"] == "failed");
    let status = cluster.status();
    let message = entry(&status, "p", "b")["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.starts_with("worker on `b` stopped reporting at "),
        "{message}"
    );
    // Others are awaited, with shared certificates, too.
    for (plugin, node) in [("p", "a"), ("original", "global")] {
        assert_eq!(entry(&status, plugin, node)["status"], "running");
    }
    assert_eq!(
        (p.send("b"), p.send("a"), original.send("global")),
        (200, 200, 200)
    );
    let log = aggregator.log.clone();
    aggregator.ends_well();
    let archive = cluster.archive();
    assert_eq!(archive.text("plugins/p/results/b/r.txt"), "of b\n");
    assert!(archive.names().all(|name| !name.contains("errors/")));
    let said = std::fs::read_to_string(log).unwrap();
    assert_eq!(
        said.matches("received its result, 5 bytes").count(),
        2,
        "{said}"
    );
}

#[test]
fn rejected_sender_is_logged_a_few_times() {
    let cluster = Cluster::new(&["a"]).plugin("p", "Job", "");
    let aggregator = cluster.start("");
    let p = cluster.worker("p");
    let refused = |line: &str, body: &str| {
        let length = body.len();
        let answer = p.peer.say(format!(
            "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(refused("PUT /api/v1/results/global/other", "x"), "403");
    assert_eq!(refused("POST /api/v1/progress/global/p", "{"), "400");
    assert_eq!(refused(&format!("GET /{}", "x".repeat(2_000)), ""), "404");
    for _ in 0..20 {
        assert_eq!(refused("GET /none", ""), "404");
    }
    let damaged = "PUT /api/v1/results/global/p HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                   content-type: application/gzip\r\ncontent-length: 4\r\n\r\nnone";
    assert_eq!(p.peer.say(damaged).split(' ').nth(1), Some("500"));
    assert_eq!(p.send("global"), 200);
    aggregator.ends_well();
    let log = cluster.archive().text("meta/run.log");
    for words in [
        "other from 127.",
        "does not cover `other/global`",
        "was refused with 403",
        "was refused with 400 the progress is malformed: EOF while parsing an object",
        "was refused with 500",
    ] {
        assert!(log.contains(words), "no `{words}`: {log}");
    }
    let refusals: Vec<_> = log
        .lines()
        .filter(|line| line.contains("was refused with"))
        .collect();
    assert!(
        refusals.len() < 10 && refusals.iter().all(|line| line.len() < 1_000),
        "{refusals:#?}"
    );
}
