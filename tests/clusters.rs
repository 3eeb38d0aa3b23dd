//! `--contexts` and `--kubeconfigs`: one command in many fake clusters, with broken ones among
//! them.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::support::api_server::{ApiServer, ExecAnswer};
use crate::support::cluster::{AGGREGATOR, STATUS, complete};
use crate::support::{Folder, Sonobuoy};

const PLUGIN: &str =
    "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {name: plugin, image: i}\n";
/// A context whose name is not a valid file name.
const ARN: &str = "arn:aws:eks:eu-west-1:1:cluster/b";

/// Archives of a run that passed and of one that failed, as aggregators would serve them.
static ARCHIVES: LazyLock<[Folder; 2]> = LazyLock::new(|| {
    ["passed", "failed"].map(|status| {
        let there = Folder::new();
        let script = format!("printf 'name: s\\nstatus: {status}\\nitems: [{{name: one, status: {status}}}]\\n' > $RESULTS_DIR/r.yaml; echo $RESULTS_DIR/r.yaml > $RESULTS_DIR/done");
        let plugin = format!("sonobuoy-config: {{driver: Job, plugin-name: p, result-format: manual, result-files: [r.yaml]}}\nspec:\n  name: plugin\n  command: [sh, -c, {script:?}]\n");
        Sonobuoy::new("run --local -p p.yaml --retrieve")
            .arg(there.path())
            .file("p.yaml", plugin)
            .env("SONOBUOY_DONE_FILE_DELAY", "0s")
            .run_any();
        there
    })
});

/// The only archive of a folder.
fn archive(folder: &Folder) -> String {
    let names: Vec<_> = folder
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".tar.gz"))
        .collect();
    let [name] = &names[..] else {
        panic!("one archive, not {names:?}")
    };
    name.clone()
}

/// A cluster that accepts a run, and whose runs end at once.
fn cluster(failed: bool) -> ApiServer {
    let api = ApiServer::start();
    api.raw("/version", 200, r#"{"gitVersion": "v1.31.2"}"#);
    api.put(
        "/api/v1/namespaces/kube-system/pods/dns",
        json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "status": {"phase": "Running"}}),
    );
    let there = &ARCHIVES[usize::from(failed)];
    let content = std::fs::read(there.join(&archive(there))).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &content);
    let said = complete(&archive(there), digest.as_ref(), content.len());
    let mut said: Value = serde_json::from_str(&said).unwrap();
    let word = if failed { "failed" } else { "passed" };
    said["plugins"] =
        json!([{"plugin": "p", "node": "global", "status": "complete", "result-status": word}]);
    api.controller(move |api, change| {
        if change.path == AGGREGATOR && change.kind == "ADDED" {
            let annotations = json!({(STATUS): said.to_string()});
            api.merge(
                AGGREGATOR,
                &json!({"metadata": {"annotations": annotations}, "status": {"phase": "Running"}}),
            );
        }
    });
    let folder = there.path().to_owned();
    api.on_exec(move |exec| {
        let splat = Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
        let output = { splat }
            .arg("splat")
            .arg(&folder)
            .args(&exec.command[3..])
            .output()
            .unwrap();
        ExecAnswer::ok(output.stdout)
    });
    api
}

/// A kubeconfig with a context for each server.
fn kubeconfig(servers: &BTreeMap<String, String>) -> String {
    let entries = |key: &str, of: &dyn Fn(&str, &str) -> Value| -> Vec<Value> {
        servers
            .iter()
            .map(|(name, url)| json!({"name": name, (key): of(name, url)}))
            .collect()
    };
    json!({
        "apiVersion": "v1", "kind": "Config",
        "contexts": entries("context", &|name, _| json!({"cluster": name, "user": "u"})),
        "clusters": entries("cluster", &|_, url| json!({"server": url})),
        "users": [{"name": "u", "user": {}}],
    })
    .to_string()
}

fn urls<'a>(
    servers: impl IntoIterator<Item = (&'a str, &'a ApiServer)>,
) -> BTreeMap<String, String> {
    servers
        .into_iter()
        .map(|(name, api)| (name.to_owned(), api.url()))
        .collect()
}

fn call(words: &str, servers: &BTreeMap<String, String>) -> Sonobuoy {
    Sonobuoy::new(words)
        .arg("--kubeconfig=kc")
        .file("kc", kubeconfig(servers))
        .file("p.yaml", PLUGIN)
}

const RUN: &str = "run -p p.yaml --rbac Enable";

#[test]
fn every_cluster_has_a_folder_and_a_row() {
    let (a, b) = (cluster(false), cluster(true));
    let servers = urls([("a", &a), (ARN, &b)]);
    let done = call(
        &format!("{RUN} --contexts all --retrieve out --fail-on failed"),
        &servers,
    )
    .status(3)
    .stdout_has(&format!(
        "a                                  passed  passed\n{ARN}  failed  1 failed"
    ))
    .stderr_has(&format!("exit 3: {ARN}: 1 test failed in p"))
    .run_any();
    let folder = "arn%3Aaws%3Aeks%3Aeu-west-1%3A1%3Acluster%2Fb";
    for (folder, at) in [("a", 0), (folder, 1)] {
        let there = &ARCHIVES[at];
        let fetched = done.folder.join("out").join(folder).join(archive(there));
        assert_eq!(
            std::fs::read(fetched).unwrap(),
            std::fs::read(there.join(&archive(there))).unwrap()
        );
        assert!(
            !done
                .folder
                .join("out")
                .join(folder)
                .join("running")
                .exists()
        );
    }

    let seen = call("status --contexts all", &servers).run_any();
    assert_eq!(
        seen.stdout
            .lines()
            .next()
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["CLUSTER", "STATUS", "RESULTS", "FAILED", "MESSAGE"]
    );
    assert!(
        seen.stdout
            .contains(&format!("\n{ARN}  complete  1/1      1")),
        "{}",
        seen.stdout
    );
    let json = call("status --json --contexts all", &servers)
        .run_any()
        .stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["document"]["status"], "complete", "{json}");

    call(
        &format!("wait --contexts a,{ARN} --fail-on failed --delete --rbac Enable --output json"),
        &servers,
    )
    .status(3)
    .stdout_has(r#""event":"task""#)
    .run_any();
    assert!(
        a.get(AGGREGATOR).is_none() && b.get(AGGREGATOR).is_none(),
        "both runs are deleted"
    );
}

#[test]
fn each_cluster_gets_at_most_20_requests_a_second() {
    let apis: Vec<_> = (0..4).map(|_| cluster(false)).collect();
    let names = ["a", "b", "c", "d"];
    let begin = std::time::Instant::now();
    call(
        &format!("{RUN} --contexts all --retrieve out"),
        &urls(names.into_iter().zip(&apis)),
    )
    .run_any();
    let took = begin.elapsed().as_secs_f64();
    for api in &apis {
        let requests = api.requests().len();
        assert!(
            requests > 20 && (requests - 1) as f64 / took <= 20.0,
            "{requests} requests in {took} s"
        );
    }
}

#[test]
fn files_of_kubeconfigs_are_clusters() {
    let apis = [cluster(false), cluster(false)];
    let of = |at: usize| {
        let folder = Folder::new();
        std::fs::read_to_string(apis[at].kubeconfig(folder.path())).unwrap()
    };
    let with = |words: &str| {
        Sonobuoy::new(words)
            .file("kc/one.yaml", of(0))
            .file("kc/two.yaml", of(1))
            .file("p.yaml", PLUGIN)
    };
    with(&format!("{RUN} --kubeconfigs kc --parallel 1"))
        .stderr_has("one: done")
        .stderr_has("two: done")
        .run_any();
    assert!(apis.iter().all(|api| api.get(AGGREGATOR).is_some()));
    let done = with("retrieve there --kubeconfigs kc/one.yaml kc/two.yaml").run_any();
    let name = archive(&ARCHIVES[0]);
    assert_eq!(done.stdout, format!("there/one/{name}\nthere/two/{name}\n"));
    with("delete --kubeconfigs kc/* --wait --rbac Enable").run_any();
    assert!(apis.iter().all(|api| api.get(AGGREGATOR).is_none()));
    with("doctor --kubeconfigs kc --format json -p p.yaml --rbac Enable")
        .stdout_has(r#""cluster": "two""#)
        .run_any();
}

#[test]
fn broken_clusters_stop_no_other_and_are_resumed() {
    let apis: Vec<_> = (0..17).map(|_| cluster(false)).collect();
    let full = cluster(false);
    full.admission(|plural, _| {
        (plural == "pods").then(|| {
            (
                500,
                "InternalError".into(),
                "etcdserver: mvcc: database space exceeded".into(),
            )
        })
    });
    // Its backlog accepts connections without a response.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = format!("127.0.0.1:{}", crate::support::cluster::free_port());
    let mut servers: BTreeMap<_, _> = apis
        .iter()
        .enumerate()
        .map(|(at, api)| (format!("c{at:02}"), api.url()))
        .collect();
    servers.insert("full".into(), full.url());
    servers.insert(
        "hanging".into(),
        format!("http://{}", hanging.local_addr().unwrap()),
    );
    servers.insert("refusing".into(), format!("http://{refusing}"));
    let words = format!("{RUN} --contexts all --request-timeout 2s");
    let done = call(&format!("{words} --retrieve out"), &servers)
        .status(1)
        .stdout_has("c16       passed   passed")
        .stdout_has("hanging   unknown  -")
        .stdout_has("Without an archive:")
        .stdout_has("full: ")
        .stdout_has("database space exceeded")
        .stdout_has("refusing: ")
        .run_any();
    let requests: Vec<_> = apis.iter().map(|api| api.requests().len()).collect();

    // Only the three run again.
    let (more, mut healthy) = (["full", "hanging", "refusing"], servers);
    let again = more.map(|_| cluster(false));
    healthy.extend(urls(more.into_iter().zip(&again)));
    call(&words, &healthy)
        .arg("--resume")
        .arg(done.folder.join("out"))
        .stdout_has("refusing  passed  passed")
        .run_any();
    assert_eq!(
        apis.iter()
            .map(|api| api.requests().len())
            .collect::<Vec<_>>(),
        requests
    );
}

#[test]
fn contexts_of_one_server_differ_by_their_namespaces() {
    let api = ApiServer::start();
    let context = |namespace: &str| {
        let context = json!({"cluster": "c", "user": "u", "namespace": namespace});
        json!({"name": format!("at-{namespace}"), "context": context})
    };
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "contexts": [context("one"), context("two")],
        "clusters": [{"name": "c", "cluster": {"server": api.url()}}],
        "users": [{"name": "u", "user": {}}],
    });
    Sonobuoy::new("status --contexts at-one,at-two --kubeconfig kc")
        .file("kc", config.to_string())
        .status(1)
        .stdout_has("at-one")
        .stdout_has("at-two")
        .run_any();
    for namespace in ["one", "two"] {
        let path = format!("/namespaces/{namespace}/");
        let requests = api.requests();
        assert!(
            requests.iter().any(|request| request.contains(&path)),
            "{requests:?}"
        );
    }
    // With `--namespace`, both mean the same run.
    Sonobuoy::new("status --contexts at-one,at-two --kubeconfig kc --namespace one")
        .file("kc", config.to_string())
        .status(1)
        .stderr_has("`at-one` and `at-two` are the same cluster")
        .run_any();
}

#[test]
fn mistakes_are_found_before_anything_starts() {
    let (a, b) = (cluster(false), cluster(false));
    let twin = a.url();
    let mut servers = urls([("alpha", &a), ("beta", &b)]);
    servers.insert("twin".into(), twin);
    let check = |words: &str, expected: &str| {
        call(&format!("{RUN} {words}"), &servers)
            .status(1)
            .stderr_has(expected)
            .run_any();
    };
    check(
        "--contexts alpha,bta",
        "the kubeconfig has alpha, beta, twin; did you mean `beta`?",
    );
    check(
        "--contexts alpha,twin",
        "`alpha` and `twin` are the same cluster",
    );
    check(
        "--contexts alpha,alpha",
        "`alpha` and `alpha` are the same cluster",
    );
    check(
        "--contexts alpha --context beta",
        "--context cannot be used with several clusters",
    );
    check(
        "--contexts alpha --local",
        "--local cannot be used with several clusters",
    );
    check(
        "--contexts alpha --file -",
        "--file - cannot be used with several clusters",
    );
    check(
        "--contexts alpha --parallel 0",
        "write a number from 1 to 1000",
    );
    Sonobuoy::new("status --kubeconfigs none")
        .status(1)
        .stderr_has("cannot read `none`")
        .run_any();
    Sonobuoy::new("status --contexts all --kubeconfig none")
        .status(1)
        .stderr_has("kubeconfig `none`")
        .run_any();
    assert_eq!(a.requests().len() + b.requests().len(), 0);
    // Of all contexts, one for each server is used.
    call("status --contexts all", &servers)
        .status(1)
        .stderr_has("`twin` is left out")
        .run_any();
}

/// A cluster that accepts a run, which never ends.
fn endless() -> ApiServer {
    let api = ApiServer::start();
    api.raw("/version", 200, r#"{"gitVersion": "v1.31.2"}"#);
    api.put(
        "/api/v1/namespaces/kube-system/pods/dns",
        json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "status": {"phase": "Running"}}),
    );
    api.controller(|api, change| {
        if change.path == AGGREGATOR && change.kind == "ADDED" {
            let running = json!({"plugins": [{"plugin": "p", "node": "global", "status": "running"}], "status": "running"});
            let annotations = json!({(STATUS): running.to_string()});
            api.merge(AGGREGATOR, &json!({"metadata": {"annotations": annotations}, "status": {"phase": "Running"}}));
        }
    });
    api
}

#[test]
fn cluster_that_dies_during_the_run_is_in_the_merged_report() {
    let (alive, dies) = (cluster(false), endless());
    let servers = urls([("alive", &alive), ("dies", &dies)]);
    let words = format!("{RUN} --contexts all --retrieve out --wait=5s --output json");
    let done = std::thread::scope(|scope| {
        let call = scope.spawn(|| call(&words, &servers).status(1).run_any());
        dies.wait(|api| {
            api.requests()
                .iter()
                .any(|request| request.contains("/pods?") && request.contains("watch=true"))
        });
        dies.away(|| call.join().unwrap())
    });
    let last: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    let columns = &last["report"]["archives"];
    assert_eq!(
        (
            &last["event"],
            &columns[0]["archive"],
            &columns[1]["archive"]
        ),
        (&json!("report"), &json!("alive"), &json!("dies")),
        "{last}"
    );
    assert_eq!(columns[0]["error"], Value::Null);
    let error = columns[1]["error"].as_str().unwrap();
    assert!(error.contains("was not over within 5s"), "{error}");
}

#[cfg(unix)]
#[test]
fn interrupt_stops_every_cluster_and_resume_waits_for_their_runs() {
    let never = [endless(), endless()];
    let servers = urls([("a", &never[0]), ("b", &never[1])]);
    let (mut command, folder) =
        call(&format!("{RUN} --contexts all --retrieve out"), &servers).command();
    let log = folder.join("log");
    let child = command
        .stderr(std::fs::File::create(&log).unwrap())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mark = |name: &str| -> PathBuf { folder.join("out").join(name).join("running") };
    never[0].wait(|_| mark("a").exists() && mark("b").exists());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let status = { child }.wait().unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(
        said.contains("interrupted: 2 of 2 clusters are not done; `--resume out` continues"),
        "{said}"
    );
    let pods = || {
        never
            .iter()
            .map(|api| {
                api.requests()
                    .iter()
                    .filter(|r| {
                        r.starts_with("POST") && r.contains("/pods") && !r.contains("dryRun")
                    })
                    .count()
            })
            .sum::<usize>()
    };
    assert_eq!(pods(), 2);

    // The runs continue: they are awaited, not started again.
    for api in &never {
        let failed = json!({"plugins": null, "status": "failed", "error": "full"});
        api.merge(
            AGGREGATOR,
            &json!({"metadata": {"annotations": {(STATUS): failed.to_string()}}}),
        );
    }
    call(&format!("{RUN} --contexts all"), &servers)
        .arg("--resume")
        .arg(folder.join("out"))
        .status(1)
        .stdout_has("a: the run has failed: full")
        .run_any();
    assert_eq!(pods(), 2);
    assert!(!mark("a").exists());
}
