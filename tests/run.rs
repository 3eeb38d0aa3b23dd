//! `run` and `wait` against the fake API server: created objects, rejections with their remedies,
//! and waiting for the end of a run.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api_server::{ApiServer, Fault};
use crate::support::cluster::{AGGREGATOR, STATUS, aggregator_pod, namespace, status, untouched};
use crate::support::{Folder, Sonobuoy};

/// A cluster that accepts a run.
pub(super) fn cluster() -> (ApiServer, Folder, String) {
    let (api, folder, config) = untouched();
    api.raw("/version", 200, r#"{"gitVersion": "v1.31.2"}"#);
    api.put(
        "/api/v1/namespaces/kube-system/pods/dns",
        json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}, "status": {"phase": "Running"}}),
    );
    (api, folder, config)
}

/// A `run` command with one plugin.
pub(super) fn run(config: &str, words: &str) -> Sonobuoy {
    let plugin = "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {name: plugin, image: i}\n";
    Sonobuoy::new(&format!(
        "run --kubeconfig {config} -p p.yaml --rbac Enable {words}"
    ))
    .file("p.yaml", plugin)
}

fn entry(state: &str, result: &str) -> Value {
    json!([{"plugin": "p", "node": "global", "status": state, "result-status": result, "result-counts": null}])
}

fn annotate(api: &ApiServer, text: &str) {
    api.merge(
        AGGREGATOR,
        &json!({"metadata": {"annotations": {(STATUS): text}}, "status": {"phase": "Running"}}),
    );
}

/// An aggregator with this status.
fn aggregator(api: &ApiServer, text: &str) {
    namespace(api);
    aggregator_pod(api, json!({"phase": "Running"}), Some(text));
}

/// Actual creations, by the last part of their path.
pub(super) fn created(api: &ApiServer) -> Vec<String> {
    let requests = api.requests();
    let posts = requests
        .iter()
        .filter_map(|request| request.strip_prefix("POST "));
    let real = posts.filter(|path| !path.contains("dryRun") && !path.contains("reviews"));
    real.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn run_whose_pods_refer_to_missing_objects_is_refused() {
    let definition = "sonobuoy-config: {driver: Job, plugin-name: p}\n\
        podSpec:\n  volumes: [{name: v, secret: {secretName: s}}, {name: w, configMap: {name: m, optional: true}}]\n\
        spec: {name: plugin, image: i, envFrom: [{configMapRef: {name: c}}]}\n";
    let (api, _folder, config) = cluster();
    let start = |flags: &str| {
        let words = format!("run --kubeconfig {config} -p p.yaml --rbac Enable {flags}");
        Sonobuoy::new(&words).file("p.yaml", definition)
    };
    let missing = "need what does not exist: ConfigMap `c` (plugin `p`), Secret `s` (plugin `p`);";
    start("")
        .status(1)
        .stderr_has(missing)
        .stderr_has("create the namespace with `kubectl create namespace sonobuoy`")
        .run();
    namespace(&api);
    start("--skip-preflight=existingnamespace")
        .status(1)
        .stderr_has(missing)
        .stderr_has("or add `optional: true` there")
        .run();
    api.put("/api/v1/namespaces/sonobuoy/configmaps/c", json!({}));
    start("--skip-preflight=existingnamespace")
        .status(1)
        .stderr_has("does not exist: Secret `s` (plugin `p`);")
        .run();
    assert_eq!(created(&api), [""; 0]);
    start("--skip-preflight=existingnamespace,references")
        .stderr_has("create request issued")
        .run();
    assert!(created(&api).contains(&"pods".to_owned()));
}

#[test]
fn missing_runtime_class_is_not_looked_for_in_the_namespace() {
    let definition = "sonobuoy-config: {driver: Job, plugin-name: p}\n\
        podSpec: {runtimeClassName: none, containers: []}\nspec: {name: plugin, image: i}\n";
    let (api, _folder, config) = cluster();
    Sonobuoy::new(&format!(
        "run --kubeconfig {config} -p p.yaml --rbac Enable"
    ))
    .file("p.yaml", definition)
    .status(1)
    .stderr_has("need what does not exist: RuntimeClass `none` (plugin `p`); create it, correct")
    .run();
    assert_eq!(created(&api), [""; 0]);
}

#[test]
fn run_creates_the_objects_of_gen_after_a_dry_run() {
    let (api, _folder, config) = cluster();
    let done = run(&config, "").stderr_has("create request issued").run();
    let order = [
        "namespaces",
        "serviceaccounts",
        "serviceaccounts",
        // What is refused in the new namespace leaves nothing outside of it.
        "rolebindings",
        "roles",
        "configmaps",
        "configmaps",
        "services",
        "clusterrolebindings",
        "clusterroles",
        "clusterrolebindings",
        "clusterroles",
        "pods",
    ];
    assert_eq!(created(&api), order);
    assert_eq!(
        done.stderr.matches("create request issued").count(),
        order.len()
    );
    assert!(
        done.stderr
            .contains("name=sonobuoy namespace=sonobuoy resource=pods"),
        "{}",
        done.stderr
    );
    let requests = api.requests();
    let place = |beginning: &str| {
        requests
            .iter()
            .position(|request| request.starts_with(beginning))
            .unwrap()
    };
    assert!(
        place("POST /api/v1/namespaces/sonobuoy/pods?dryRun=All")
            < place("POST /api/v1/namespaces/sonobuoy/services"),
    );
    let pod = api.get(AGGREGATOR).unwrap();
    assert_eq!(pod["spec"]["restartPolicy"], "OnFailure");
    assert_eq!(
        pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"],
        "false"
    );
    assert_eq!(
        pod["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"],
        json!(["ALL"])
    );
}

/// Publishes a new certificate as that of this run's authority.
fn publish_authority(api: &ApiServer, run: &str) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new())
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .pem();
    let published = json!({"data": {"run": run, "authority.crt": certificate}});
    api.put(
        "/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-authority",
        published,
    );
}

#[test]
fn run_without_wait_saves_the_authority_of_its_own_run_alone() {
    const CONFIGURED: &str = r#"{"UUID": "11111111"}"#;
    const OTHER: &str = "99999999-9999-4999-8999-999999999999";
    for (settings, published, is_kept) in [
        (CONFIGURED, "11111111", true),
        (CONFIGURED, OTHER, false),
        // The aggregator chooses; only an identifier derived from the authority's key would be
        // known to be its own.
        ("{}", OTHER, false),
    ] {
        let (api, _folder, config) = cluster();
        publish_authority(&api, published);
        let started = run(&config, "--config settings.json").file("settings.json", settings);
        let done = started.stderr_has("create request issued").run();
        let path = done
            .folder
            .join(&format!(".sonobuoy/authorities/{published}.pem"));
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        let server = format!(
            "# learned from {} (not encrypted)\n-----BEGIN CERTIFICATE-----\n",
            api.url()
        );
        assert_eq!(
            kept.starts_with(&server),
            is_kept,
            "{settings} {published}: {kept}"
        );
        assert_eq!(kept.is_empty(), !is_kept, "{settings} {published}: {kept}");
    }

    // An aggregator without a node is not awaited.
    let (api, _folder, config) = cluster();
    let done = run(&config, "").stderr_has("create request issued").run();
    assert!(!done.folder.join(".sonobuoy/authorities").exists());
    assert!(
        api.requests()
            .iter()
            .any(|request| request.ends_with("/configmaps/sonobuoy-authority"))
    );
}

#[test]
fn original_pod_layout_is_available() {
    let (api, _folder, config) = cluster();
    run(&config, "--harden off")
        .stderr_has("create request issued")
        .run();
    let pod = api.get(AGGREGATOR).unwrap();
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert!(
        pod["spec"]["containers"][0]["resources"].is_null()
            && pod["metadata"]["annotations"].is_null()
    );

    let (api, _folder, config) = cluster();
    let original = "--sonobuoy-image sonobuoy/sonobuoy:v0.57.5 --results-pvc disk";
    run(&config, original)
        .status(1)
        .stderr_has("PersistentVolumeClaim `disk` (the aggregator)")
        .run();
    assert_eq!(created(&api), [""; 0]);
    namespace(&api);
    api.put(
        "/api/v1/namespaces/sonobuoy/persistentvolumeclaims/disk",
        json!({}),
    );
    run(
        &config,
        &format!("{original} --skip-preflight=existingnamespace"),
    )
    .stderr_has("create request issued")
    .run();
    let pod = api.get(AGGREGATOR).unwrap();
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert_eq!(
        pod["spec"]["volumes"][2]["persistentVolumeClaim"]["claimName"],
        "disk"
    );
}

#[test]
fn failed_checks_are_all_listed_and_no_object_is_created() {
    let (api, _folder, config) = cluster();
    api.remove("/api/v1/namespaces/kube-system/pods/dns");
    api.raw("/version", 200, r#"{"gitVersion": "v1.16.9"}"#);
    namespace(&api);
    run(&config, "--kubernetes-version v1.16.9")
        .status(1)
        .stderr_has("Preflight checks failed")
        .stderr_has("dnscheck: no pod in namespace")
        .stderr_has("versioncheck: the server is v1.16.9")
        .stderr_has("existingnamespace: namespace `sonobuoy` exists already")
        .run();
    assert_eq!(created(&api), [""; 0]);
    run(&config, "--skip-preflight")
        .stderr_has("create request issued")
        .run();
    run(&config, "--skip-preflight=nonsense")
        .status(1)
        .stderr_has("nonsense")
        .run();
}

#[test]
fn rejection_is_found_by_dry_run_with_remedy() {
    for (plural, code, reason, message, remedy) in [
        (
            "pods",
            403,
            "Forbidden",
            "violates PodSecurity \"restricted:latest\"",
            "enforce=privileged",
        ),
        (
            "pods",
            403,
            "Forbidden",
            "exceeded quota: small",
            "raise the quota",
        ),
        (
            "configmaps",
            403,
            "Forbidden",
            "admission webhook \"w\" denied the request",
            "a policy of the cluster",
        ),
        (
            "services",
            403,
            "Forbidden",
            "User \"u\" cannot create resource \"services\"",
            "may not create services",
        ),
        (
            "pods",
            422,
            "Invalid",
            "spec.x: wrong",
            "the field that the server names",
        ),
    ] {
        let (api, _folder, config) = cluster();
        // In an existing namespace, every object is tried before the first is created.
        namespace(&api);
        api.admission(move |kind, _| {
            (kind == plural).then(|| (code, reason.to_owned(), message.to_owned()))
        });
        run(&config, "--skip-preflight")
            .status(1)
            .stderr_has(remedy)
            .stderr_has("nothing was created")
            .run();
        assert_eq!(created(&api), [""; 0], "{message}");
    }
}

#[test]
fn new_namespace_checks_permissions_first() {
    let (api, _folder, config) = cluster();
    api.forbid("create", "pods");
    run(&config, "")
        .status(1)
        .stderr_has("may not create pods")
        .stderr_has("nothing was created")
        .run();
    assert_eq!(created(&api), [""; 0]);

    let (api, _folder, config) = cluster();
    api.admission(|kind, _| {
        (kind == "pods").then(|| {
            (
                403,
                "Forbidden".to_owned(),
                "violates PodSecurity".to_owned(),
            )
        })
    });
    run(&config, "")
        .status(1)
        .stderr_has("still exist: Namespace `sonobuoy`, ServiceAccount `sonobuoy-serviceaccount`")
        .stderr_has("sonobuoy delete -n sonobuoy --wait")
        .run();
    assert_eq!(
        created(&api),
        ["namespaces", "serviceaccounts", "serviceaccounts"]
    );
}

#[test]
fn second_run_in_a_namespace_is_rejected() {
    let (api, _folder, config) = cluster();
    aggregator(&api, &status("running", &entry("running", "")));
    run(&config, "--skip-preflight")
        .status(1)
        .stderr_has("there is a run in namespace `sonobuoy` already")
        .run();
    assert_eq!(created(&api), [""; 0]);
    // Another namespace is another run.
    run(&config, "-n other")
        .stderr_has("create request issued")
        .run();
    assert!(api.get("/api/v1/namespaces/other/pods/sonobuoy").is_some());
}

#[test]
fn terminating_namespace_is_reported_with_its_finalizers() {
    let (api, _folder, config) = cluster();
    api.put(
        "/api/v1/namespaces/sonobuoy",
        json!({
            "metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x/y"]},
            "status": {"phase": "Terminating", "conditions": [
                {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "finalizers remain: x/y"}]},
        }),
    );
    run(&config, "")
        .status(1)
        .stderr_has("`sonobuoy` is being deleted (finalizers remain: x/y)")
        .run();
    run(&config, "--skip-preflight")
        .status(1)
        .stderr_has("being deleted (finalizers remain: x/y)")
        .run();
}

#[test]
fn transient_server_errors_are_retried() {
    let (api, _folder, config) = cluster();
    api.fault(
        Fault::on("POST /api/v1/namespaces/sonobuoy/configmaps")
            .times(2)
            .status(429, "TooManyRequests", "slow")
            .retry_after(1),
    );
    api.fault(
        Fault::on("POST /api/v1/namespaces/sonobuoy/pods")
            .after(1)
            .dropped(),
    );
    api.fault(
        Fault::on("POST /api/v1/namespaces/sonobuoy/services")
            .after(1)
            .status(500, "InternalError", "etcd"),
    );
    run(&config, "").stderr_has("create request issued").run();
    assert!(
        api.get("/api/v1/namespaces/sonobuoy/services/sonobuoy-aggregator")
            .is_some()
    );
}

#[test]
fn objects_of_an_earlier_run_are_rejected() {
    let (api, _folder, config) = cluster();
    namespace(&api);
    api.put(
        "/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-config-cm",
        json!({}),
    );
    run(&config, "--skip-preflight")
        .status(1)
        .stderr_has("it exists already, from an earlier run or somebody else")
        .stderr_has("nothing was created")
        .run();
    assert_eq!(created(&api), [""; 0]);
}

#[test]
fn manifest_is_read_from_file_or_stdin() {
    let manifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mine}\n---\nnull\n---\napiVersion: v1\nkind: Pod\n\
                    metadata: {name: sonobuoy, namespace: mine, labels: {sonobuoy-component: aggregator}}\nspec: {}\n";
    let (api, _folder, config) = cluster();
    // Checks and waiting use the namespace of the file.
    namespace(&api);
    api.controller(|api, change| {
        if change.path.ends_with("/mine/pods/sonobuoy")
            && api.get(&change.path).is_some_and(|pod| pod["metadata"]["annotations"].is_null())
        {
            let text = status("complete", &entry("complete", "passed"));
            api.merge(
                &change.path,
                &json!({"metadata": {"annotations": {(STATUS): text}}, "status": {"phase": "Running"}}),
            );
        }
    });
    Sonobuoy::new(&format!("run --kubeconfig {config} --wait -f -"))
        .stdin(manifest)
        .stdout_has("Sonobuoy has completed")
        .stderr_has("create request issued")
        .run();
    assert_eq!(created(&api), ["namespaces", "pods"]);
    Sonobuoy::new(&format!("run --kubeconfig {config} -f m.yaml"))
        .file("m.yaml", manifest)
        .status(1)
        .stderr_has("namespace `mine` exists already")
        .run();
    for (text, complaint) in [
        ("", "it contains no objects"),
        ("a: [", "standard input"),
        (
            "apiVersion: x/v1\nkind: Odd\nmetadata: {name: x, namespace: mine}\n",
            "the cluster has no `Odd` in `x/v1`",
        ),
    ] {
        Sonobuoy::new(&format!("run --kubeconfig {config} --skip-preflight -f -"))
            .stdin(text)
            .status(1)
            .stderr_has(complaint)
            .run();
    }
}

#[test]
fn manifest_of_cluster_scoped_objects_is_created() {
    let (api, _folder, config) = cluster();
    Sonobuoy::new(&format!("run --kubeconfig {config} --skip-preflight -f -"))
        .stdin("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
        .stderr_has("create request issued")
        .run();
    assert_eq!(created(&api), ["namespaces"]);
}

#[test]
fn wait_prints_changes_and_ends_with_the_run() {
    let (api, _folder, config) = cluster();
    namespace(&api);
    let waiting =
        json!([{"name": "kube-sonobuoy", "state": {"waiting": {"reason": "ContainerCreating"}}}]);
    aggregator_pod(
        &api,
        json!({"phase": "Pending", "containerStatuses": waiting}),
        None,
    );
    let (mut command, _held) = Sonobuoy::new(&format!("wait --kubeconfig {config}")).command();
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut lines: Vec<String> = Vec::new();
    let mut until = |wanted: &str| loop {
        let mut line = String::new();
        assert!(
            output.read_line(&mut line).unwrap() > 0,
            "no {wanted:?} in {lines:?}"
        );
        let (time, words) = line.split_at(8);
        let digits = time.bytes().enumerate();
        assert!(
            digits.into_iter().all(|(at, byte)| if at % 3 == 2 {
                byte == b':'
            } else {
                byte.is_ascii_digit()
            }),
            "{line}"
        );
        lines.push(words.split_whitespace().collect::<Vec<_>>().join(" "));
        if lines.last().is_some_and(|line| line.contains(wanted)) {
            return lines.clone();
        }
    };
    until("the aggregator's pod is Pending: container kube-sonobuoy: ContainerCreating");
    annotate(&api, &status("running", &entry("running", "")));
    until("is still running");
    // An ended watch, an expired one, and an absent server all continue the same wait.
    api.drop_watches();
    annotate(
        &api,
        &status(
            "running",
            &json!([{"plugin": "p", "node": "a", "status": "running"}]),
        ),
    );
    until("p a running");
    api.compact();
    api.drop_watches();
    annotate(
        &api,
        &status(
            "running",
            &json!([{"plugin": "p", "node": "b", "status": "running"}]),
        ),
    );
    until("p b running");
    api.away(|| {
        let before = api.refusals();
        api.wait(|api| api.refusals() > before);
    });
    annotate(&api, &status("post-processing", &entry("complete", "")));
    until("Preparing results");
    annotate(&api, &status("complete", &entry("complete", "passed")));
    let lines = until("has completed");
    assert!(child.wait().unwrap().success());
    assert!(
        lines.contains(&"PLUGIN NODE STATUS RESULT PROGRESS".to_owned()),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"p global complete passed".to_owned()),
        "{lines:?}"
    );
    let mut once = lines.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), lines.len(), "no line comes twice: {lines:?}");
}

#[test]
fn failed_vanished_and_timed_out_runs_are_errors() {
    let wait =
        |config: &str| Sonobuoy::new(&format!("wait --wait-output silent --kubeconfig {config}"));
    let (api, _folder, config) = cluster();
    aggregator(
        &api,
        r#"{"plugins":null,"status":"failed","error":"no space"}"#,
    );
    wait(&config)
        .status(1)
        .stderr_has("the run has failed: no space")
        .run();

    api.merge(
        AGGREGATOR,
        &json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on disk"}}),
    );
    wait(&config)
        .status(1)
        .stderr_has("the aggregator's pod is Failed: Evicted: The node was low on disk")
        .run();

    let (api, _folder, config) = cluster();
    aggregator(&api, &status("running", &entry("running", "")));
    let (mut command, _held) = wait(&config).command();
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    api.wait(|api| api.count("GET /api/v1/namespaces/sonobuoy/pods?fieldSelector") >= 2);
    api.remove(AGGREGATOR);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is gone, and its results with it"));
}

#[test]
fn progress_can_be_switched_off() {
    let (api, _folder, config) = cluster();
    aggregator(&api, &status("complete", &entry("complete", "passed")));
    let wait = || Sonobuoy::new(&format!("wait --kubeconfig {config}"));
    wait().arg("--wait-output=SILENT").stdout("").run();
    wait()
        .env("SONOBUOY_WAIT_PROGRESS", "false")
        .stdout("")
        .run();
    wait().stdout_has("p   global   complete   passed").run();
}

#[test]
fn two_runs_in_two_namespaces_are_independent() {
    let (api, _folder, config) = cluster();
    std::thread::scope(|scope| {
        for namespace in ["one", "two"] {
            let config = &config;
            scope.spawn(move || {
                run(config, &format!("-n {namespace}"))
                    .stderr_has("create request issued")
                    .run()
            });
        }
    });
    for namespace in ["one", "two"] {
        assert!(
            api.get(&format!("/api/v1/namespaces/{namespace}/pods/sonobuoy"))
                .is_some()
        );
        let role = format!(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/sonobuoy-serviceaccount-{namespace}"
        );
        assert!(api.get(&role).is_some());
    }
    // A slow response of the server is awaited.
    api.fault(Fault::on("GET /api/v1/namespaces/one/pods").slow(Duration::from_millis(300)));
    run(&config, "-n one --skip-preflight")
        .status(1)
        .stderr_has("a run in namespace `one` already")
        .run();
}

#[cfg(unix)]
#[test]
fn one_command_for_a_pipeline() {
    // A real archive with a failed test, as the aggregator would serve it.
    let there = Folder::new();
    let script = "printf 'name: s\\nstatus: failed\\nitems: [{name: one, status: failed}]\\n' > $RESULTS_DIR/r.yaml; echo $RESULTS_DIR/r.yaml > $RESULTS_DIR/done";
    let plugin = format!(
        "sonobuoy-config: {{driver: Job, plugin-name: p, result-format: manual, result-files: [r.yaml]}}\nspec:\n  name: plugin\n  command: [sh, -c, {script:?}]\n"
    );
    Sonobuoy::new("run --local -p p.yaml --retrieve")
        .arg(there.path())
        .file("p.yaml", plugin)
        .env("SONOBUOY_DONE_FILE_DELAY", "0s")
        .run_any();
    let archives: Vec<_> = there
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".tar.gz"))
        .collect();
    let [name] = &archives[..] else {
        panic!("one archive, not {:?}", there.names())
    };

    let (api, _folder, config) = cluster();
    aggregator(&api, &status("complete", &entry("complete", "failed")));
    let folder = there.path().to_owned();
    api.on_exec(move |exec| {
        let splat = std::process::Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
        let output = { splat }
            .arg("splat")
            .arg(&folder)
            .args(&exec.command[3..])
            .output()
            .unwrap();
        crate::support::api_server::ExecAnswer::ok(output.stdout)
    });
    let done = Sonobuoy::new(&format!(
        "wait --kubeconfig {config} --retrieve out --junit j.xml --html h.html --delete --rbac Enable --fail-on failed"
    ))
    .status(3)
    .stdout_has(&format!("Archive: out/{name}"))
    .stderr_has("delete request issued")
    .run();
    assert_eq!(
        std::fs::read(done.folder.join("out").join(name)).unwrap(),
        std::fs::read(there.join(name)).unwrap()
    );
    assert!(
        done.folder.read("j.xml").contains("<failure"),
        "{}",
        done.folder.read("j.xml")
    );
    assert!(done.folder.read("h.html").contains("<html"));
    assert!(api.get(AGGREGATOR).is_none(), "the run is gone");

    // A run whose archive was not downloaded is not deleted.
    aggregator(&api, &status("complete", &entry("complete", "passed")));
    api.on_exec(|_| crate::support::api_server::ExecAnswer::failed(1, "no"));
    Sonobuoy::new(&format!(
        "wait --kubeconfig {config} --wait-output silent --retrieve out --delete --rbac Enable"
    ))
    .status(1)
    .stderr_has("the run is kept")
    .run();
    assert!(api.get(AGGREGATOR).is_some());
}

#[test]
fn redaction_rules_are_part_of_the_run() {
    let (api, _folder, config) = cluster();
    let call = |rules: &str| run(&config, "--redact rules.yaml").file("rules.yaml", rules);
    call("env: [A]\ntext: ['(?=x)']\n")
        .status(1)
        .stderr_has("redaction rules `rules.yaml`, line 2, column 8")
        .run();
    assert!(
        api.requests()
            .iter()
            .all(|request| request.starts_with("GET ")),
        "{:?}",
        api.requests()
    );
    call("text: ['card=\\d+']\n").run_any();
    let map = api
        .get("/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-config-cm")
        .unwrap();
    let settings: Value =
        serde_json::from_str(map["data"]["config.json"].as_str().unwrap()).unwrap();
    assert_eq!(settings["Redaction"], json!({"Text": ["card=\\d+"]}));
}

#[test]
fn pending_load_balancer_does_not_delay_a_run() {
    let complete =
        |api: &ApiServer| annotate(api, &status("complete", &entry("complete", "passed")));
    let call = |config: &str| run(config, "--status-service LoadBalancer --wait");

    // The run is over before the address is known.
    let (api, _folder, config) = cluster();
    api.controller(move |api, change| {
        // The pod is created after the services.
        if change.kind == "ADDED" && change.path.ends_with("/pods/sonobuoy") {
            complete(api);
        }
    });
    let done = call(&config)
        .arg("--credentials=c.json")
        .stderr_has("waiting up to 3m0s for the address of its status service")
        .stderr_has("the service `sonobuoy-status` had no address until now")
        .run_any();
    assert!(
        done.stdout.contains("Sonobuoy has completed"),
        "{}",
        done.stdout
    );
    assert!(!done.folder.join("c.json").exists());

    // The address appears during the run.
    let (api, folder, config) = cluster();
    let file = folder.join("c.json");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| call(&config).arg("--credentials").arg(&file).run_any());
        api.wait(|api| api.count("GET /api/v1/namespaces/sonobuoy/services/sonobuoy-status") > 0);
        assert!(!file.exists());
        api.merge(
            "/api/v1/namespaces/sonobuoy/services/sonobuoy-status",
            &json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}),
        );
        api.wait(|_| file.exists());
        complete(&api);
        let done = running.join().unwrap();
        assert!(
            done.stderr.contains("credentials are in"),
            "{}",
            done.stderr
        );
    });
    assert!(folder.read("c.json").contains("https://192.0.2.9:8443/"));
}
