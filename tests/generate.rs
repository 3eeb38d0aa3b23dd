//! Output of `gen`: the original's own outputs, every flag, definitions of every form, and
//! rejections.

use serde_json::{Value, json};

use crate::support::{Sonobuoy, diff::assert_same, fixture, fixture_text, program};

pub const VERSION: &str = "--kubernetes-version=v1.30.0";

/// The objects that `gen` prints with these arguments, read by an independent YAML reader.
#[track_caller]
pub fn objects(call: Sonobuoy) -> Vec<Value> {
    documents(&call.run_any().stdout)
}

pub fn documents(text: &str) -> Vec<Value> {
    use serde::Deserialize as _;
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|value| !value.is_null())
        .collect()
}

#[track_caller]
fn generated(words: &str) -> Vec<Value> {
    objects(Sonobuoy::new(&format!("gen {VERSION} {words}")))
}

#[track_caller]
pub fn named<'v>(objects: &'v [Value], kind: &str, name: &str) -> &'v Value {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// A plugin's definition within the manifest.
#[track_caller]
pub fn definition(objects: &[Value], plugin: &str) -> Value {
    let data = named(objects, "ConfigMap", "sonobuoy-plugins-cm")["data"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let all: Vec<Value> = data
        .values()
        .map(|text| serde_yaml::from_str(text.as_str().unwrap()).unwrap())
        .collect();
    let found = all
        .iter()
        .find(|value| value["sonobuoy-config"]["plugin-name"] == plugin);
    found
        .unwrap_or_else(|| panic!("no plugin {plugin}"))
        .clone()
}

/// The value of a variable of a plugin's container.
pub fn env<'v>(container: &'v Value, name: &str) -> Option<&'v str> {
    let env = container["env"].as_array()?;
    env.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

fn configuration(objects: &[Value]) -> Value {
    let data = &named(objects, "ConfigMap", "sonobuoy-config-cm")["data"]["config.json"];
    serde_json::from_str(data.as_str().unwrap()).unwrap()
}

#[test]
fn gen_prints_rejected_names_with_a_warning() {
    // As in the original's documentation.
    let done = Sonobuoy::new("gen plugin -n myPlugin -i i")
        .stderr_has("run it under another name")
        .run_any();
    assert!(
        done.stdout.contains("plugin-name: myPlugin"),
        "{}",
        done.stdout
    );
}

#[test]
fn gen_output_equals_the_originals() {
    let config = fixture("gen/static-config.json");
    Sonobuoy::new("gen --kubernetes-version=v123.456.789 --config")
        .arg(&config)
        .stdout_golden("gen/gen-static.golden")
        .run();
    Sonobuoy::new("gen plugin e2e --kubernetes-version=v123.456.789")
        .stdout_golden("gen/gen-plugin-e2e.golden")
        .run();
    let done =
        Sonobuoy::new("gen --aggregator-permissions=clusterRead --kubernetes-version=ignore")
            .run_any();
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    let ours = done
        .stdout
        .replace(&version, "*STATIC_FOR_TESTING*")
        .replace("localhost/sonobuoy", "sonobuoy/sonobuoy");
    assert_same(
        "clusterRead",
        &fixture_text("gen/gen-aggregator-permissions-clusterRead.golden"),
        &ours,
    );
}

/// Whether `came` contains everything in `given`, apart from values that change with every run.
#[track_caller]
#[test]
fn flags_override_the_configuration_file() {
    let text = r#"{"namespace": "ours", "Server": {"timeoutseconds": 5, "bindport": 9090}, "ImagePullSecrets": "s",
        "CustomAnnotations": {"a": "b"}, "AggregatorTolerations": [{"key": "k", "operator": "Equal", "value": "v"}],
        "ProgressUpdatesPort": "1234", "ResultsDir": "/r", "WorkerImage": "w", "SkipPlugins": false}"#;
    let call = Sonobuoy::new(&format!(
        "gen {VERSION} --config c.json --timeout 7 --sonobuoy-image mine"
    ));
    let objects = objects(call.file("c.json", text));
    let config = configuration(&objects);
    assert_eq!(config["Namespace"], "ours");
    assert_eq!(
        config["Server"],
        json!({
            "bindaddress": "0.0.0.0", "bindport": 9090, "advertiseaddress": "", "timeoutseconds": 7,
        })
    );
    let pod = named(&objects, "Pod", "sonobuoy");
    assert_eq!(pod["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(pod["spec"]["containers"][0]["image"], "mine");
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
    assert_eq!(
        pod["spec"]["tolerations"][1],
        json!({"key": "k", "operator": "Equal", "value": "v"})
    );
    assert_eq!(
        named(&objects, "Service", "sonobuoy-aggregator")["spec"]["ports"][0]["port"],
        9090
    );
    assert_eq!(
        named(&objects, "ClusterRole", "sonobuoy-serviceaccount-ours")["metadata"]["labels"]["namespace"],
        "ours"
    );
    let e2e = definition(&objects, "e2e");
    assert_eq!(env(&e2e["spec"], "SONOBUOY_PROGRESS_PORT"), Some("1234"));
    assert_eq!(
        env(&e2e["spec"], "E2E_EXTRA_ARGS"),
        Some("--progress-report-url=http://localhost:1234/progress")
    );
    assert_eq!(env(&e2e["spec"], "RESULTS_DIR"), Some("/r"));
    assert_eq!(e2e["spec"]["volumeMounts"][0]["mountPath"], "/r");

    let done = Sonobuoy::new("gen config --config c.json -n flag")
        .file("c.json", text)
        .run_any();
    assert_eq!(
        serde_json::from_str::<Value>(&done.stdout).unwrap()["Namespace"],
        "flag"
    );
    assert_eq!(done.stdout.lines().count(), 1);

    let odd = r#"{"AggregatorTolerations": [{"operator": "Exists", "tolerationSeconds": "5"}], "ImagePullPolicy": "",
        "ForceImagePullPolicy": true}"#;
    let unforced = generated_with("c.json", odd, "--config c.json");
    assert_eq!(
        named(&unforced, "Pod", "sonobuoy")["spec"]["tolerations"][1],
        json!({"operator": "Exists"})
    );
    assert_eq!(
        definition(&unforced, "e2e")["spec"].get("imagePullPolicy"),
        None
    );

    let none = generated_with("c.json", r#"{"SkipPlugins": true}"#, "--config c.json");
    assert_eq!(
        named(&none, "ConfigMap", "sonobuoy-plugins-cm").get("data"),
        None
    );
}

fn generated_with(name: &str, content: &str, words: &str) -> Vec<Value> {
    objects(Sonobuoy::new(&format!("gen {VERSION} {words}")).file(name, content))
}

#[test]
fn aggregator_manifest_follows_flags() {
    let objects = generated(
        "--aggregator-node-selector kubernetes.io/os:windows --security-context-mode none --level WARN \
         --plugin-env sonobuoy.B=2 --plugin-env sonobuoy.A=1 --plugin-env sonobuoy.C= --image-pull-policy Always \
         --namespace-psa-enforce-level baseline -n ns --service-account-name robot --existing-service-account",
    );
    let pod = &named(&objects, "Pod", "sonobuoy")["spec"];
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "windows"}));
    assert_eq!(pod.get("securityContext"), None);
    assert_eq!(pod["serviceAccountName"], "robot");
    let container = &pod["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "aggregator",
            "--no-exit",
            "--level=warn",
            "-v=3",
            "--alsologtostderr"
        ])
    );
    assert_eq!(container["imagePullPolicy"], "Always");
    let names: Vec<_> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|env| env["name"].clone())
        .collect();
    assert_eq!(names, ["A", "B", "SONOBUOY_ADVERTISE_IP"]);
    let own = generated("--plugin-env sonobuoy.SONOBUOY_ADVERTISE_IP=host");
    let env = &named(&own, "Pod", "sonobuoy")["spec"]["containers"][0]["env"];
    assert_eq!(
        env,
        &json!([{"name": "SONOBUOY_ADVERTISE_IP", "value": "host"}])
    );
    let labels = &named(&objects, "Namespace", "ns")["metadata"]["labels"];
    assert_eq!(
        labels,
        &json!({"pod-security.kubernetes.io/enforce": "baseline"})
    );
    assert!(
        !objects
            .iter()
            .any(|object| object["kind"] == "ServiceAccount")
    );
    let binding = named(&objects, "ClusterRoleBinding", "sonobuoy-serviceaccount-ns");
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "ns"}])
    );
    assert_eq!(
        definition(&objects, "e2e")["podSpec"]["serviceAccountName"],
        "robot"
    );
    assert_eq!(
        definition(&objects, "e2e")["spec"]["imagePullPolicy"],
        "Always"
    );
}

#[test]
fn permissions_select_the_roles() {
    let kinds = |words: &str| -> Vec<String> {
        generated(words)
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    let rest = ["ConfigMap", "ConfigMap", "Pod", "Service"];
    for (words, first) in [
        (
            "",
            &[
                "Namespace",
                "ServiceAccount",
                "ClusterRoleBinding",
                "ClusterRole",
            ][..],
        ),
        ("--rbac disable", &["Namespace", "ServiceAccount"]),
        (
            "--aggregator-permissions namespaceAdmin",
            &["ServiceAccount", "RoleBinding", "Role"],
        ),
        (
            "--aggregator-permissions clusterRead",
            &[
                "ServiceAccount",
                "ClusterRoleBinding",
                "ClusterRole",
                "RoleBinding",
                "Role",
            ],
        ),
    ] {
        assert_eq!(kinds(words), [first, &rest[..]].concat(), "{words}");
    }
}

#[test]
fn modes_and_flags_select_the_tests() {
    let e2e = |words: &str| {
        let spec = definition(&generated(&format!("-p e2e {words}")), "e2e")["spec"].clone();
        ["E2E_FOCUS", "E2E_SKIP", "E2E_PARALLEL"].map(|name| env(&spec, name).map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    let skip = some(r"\[Disruptive\]|NoExecuteTaintManager");
    for (words, expected) in [
        ("", [some(r"\[Conformance\]"), skip.clone(), some("false")]),
        (
            "--mode Quick",
            [
                some("Pods should be submitted and removed"),
                None,
                some("false"),
            ],
        ),
        (
            "-m certified-conformance",
            [some(r"\[Conformance\]"), None, some("false")],
        ),
        ("--e2e-focus x", [some("x"), skip.clone(), some("false")]),
        (
            "--e2e-skip=",
            [some(r"\[Conformance\]"), None, some("false")],
        ),
        (
            "--e2e-parallel y --e2e-skip z",
            [some(r"\[Conformance\]"), some("z"), some("y")],
        ),
        (
            "--plugin-env e2e.E2E_SKIP --plugin-env e2e.E2E_FOCUS=a=b",
            [some("a=b"), None, some("false")],
        ),
        (
            "--plugin-env e2e.E2E_FOCUS=a --e2e-focus b",
            [some("b"), skip.clone(), some("false")],
        ),
        (
            "--e2e-focus b --plugin-env e2e.E2E_FOCUS=a",
            [some("a"), skip, some("false")],
        ),
    ] {
        assert_eq!(e2e(words), expected, "{words}");
    }
    let archive = |name: &str| {
        format!(
            "--rerun-failed {}",
            fixture(&format!("archives/{name}.tar.gz")).display()
        )
    };
    let [focus, skip, _] = e2e(&archive("testResultsOutput"));
    assert!(focus.unwrap().starts_with(r"\[sig-storage\] CSI Volumes") && skip.is_none());
    let tree = "name: e2e\nitems:\n- {name: '[It] a (b)', status: failed}\n- {name: c, status: timeout}\n\
                - {name: d, status: passed}\n- {name: '', status: failed}\n- {name: c, status: failed}\n";
    let call = Sonobuoy::new(&format!("gen plugin e2e {VERSION} --rerun-failed old"))
        .file("old/meta/info.json", r#"{"plugins": ["e2e"]}"#)
        .file("old/meta/config.json", r#"{"Version": "v0.57.5"}"#)
        .file("old/plugins/e2e/sonobuoy_results.yaml", tree);
    assert_eq!(
        env(&objects(call)[0]["spec"], "E2E_FOCUS"),
        Some(r" a \(b\)|c|c")
    );
    for (words, expected) in [
        (archive("results-quick-no-failures"), "no e2e test failed"),
        ("--rerun-failed none".into(), "--rerun-failed none: "),
        ("--rerun-failed .".into(), "--rerun-failed .: "),
    ] {
        Sonobuoy::new(&format!("gen {VERSION} {words}"))
            .status(1)
            .stderr_has(expected)
            .run();
    }
    let lite = e2e("--mode conformance-lite");
    assert!(
        lite[1]
            .as_ref()
            .unwrap()
            .starts_with("Serial|Slow|Disruptive|")
            && lite[2] == some("true")
    );
}

#[test]
fn image_flags_apply_in_order() {
    let image =
        |plugin: &str, words: &str| definition(&generated(words), plugin)["spec"]["image"].clone();
    for (plugin, words, expected) in [
        ("e2e", "", "registry.k8s.io/conformance:v1.30.0"),
        ("e2e", "--kube-conformance-image mine:1", "mine:1"),
        (
            "e2e",
            "--plugin-image e2e:reg:5000/a:$SONOBUOY_K8S_VERSION",
            "reg:5000/a:v1.30.0",
        ),
        (
            "e2e",
            "--kube-conformance-image a --plugin-image e2e:b",
            "b",
        ),
        (
            "e2e",
            "--kube-conformance-image a --kubernetes-version v1.31",
            "registry.k8s.io/conformance:v1.31.0",
        ),
        (
            "e2e",
            "--registry reg:5000/x",
            "reg:5000/x/conformance:v1.30.0",
        ),
        (
            "e2e",
            "--registry reg:5000/x/ --plugin-image e2e:reg:5000/x/deep/c:1",
            "reg:5000/x/deep/c:1",
        ),
        (
            "e2e",
            "--registry reg:5000/x --plugin-image e2e:reg:5000/xy/deep/c:1",
            "reg:5000/x/c:1",
        ),
        ("systemd-logs", "--systemd-logs-image logs", "logs"),
        ("systemd-logs", "--registry r", "r/systemd-logs:v0.4"),
    ] {
        assert_eq!(image(plugin, words), expected, "{words}");
    }
    let file = "sonobuoy-config: {driver: job, plugin-name: e2e}\nspec: {image: 'a:$SONOBUOY_K8S_VERSION', env: [{name: E2E_FOCUS, value: mine}]}\n";
    let own = definition(&generated_with("p.yaml", file, "-p p.yaml"), "e2e");
    assert_eq!(
        (&own["spec"]["image"], env(&own["spec"], "E2E_FOCUS")),
        (&json!("a:v1.30.0"), Some("mine"))
    );
    assert_eq!(own["sonobuoy-config"]["driver"], "job", "as it was written");
    assert_eq!(own["spec"].get("imagePullPolicy"), None);
    let forced = generated_with(
        "p.yaml",
        file,
        "-p p.yaml --force-image-pull-policy --image-pull-policy Never",
    );
    assert_eq!(
        definition(&forced, "e2e")["spec"]["imagePullPolicy"],
        "Never"
    );
}

#[test]
fn plugins_receive_the_configured_port() {
    let objects = generated("-p systemd-logs -p host-facts -p e2e -p network");
    let port = |plugin: &str| {
        env(
            &definition(&objects, plugin)["spec"],
            "SONOBUOY_PROGRESS_PORT",
        )
        .map(str::to_owned)
    };
    let ports =
        ["e2e", "host-facts", "network", "systemd-logs"].map(|plugin| port(plugin).unwrap());
    assert_eq!(
        ports, ["8099"; 4],
        "in the network of a node the aggregator chooses another"
    );
}

#[test]
fn e2e_files_are_part_of_the_manifest() {
    let call = Sonobuoy::new(&format!(
        "gen {VERSION} --e2e-docker-config-file d/config.json --e2e-repo-config repos.yaml --ssh-key key --ssh-user me"
    ));
    let call = call
        .file("d/config.json", r#"{"auths": {}}"#)
        .file("repos.yaml", "gcRegistry: x\n")
        .file("key", "secret\n");
    let objects = objects(call);
    let e2e = definition(&objects, "e2e");
    let config = "/tmp/sonobuoy/config";
    for (name, value) in [
        ("KUBE_TEST_REPO_LIST", format!("{config}/repos.yaml")),
        (
            "E2E_EXTRA_ARGS",
            "--progress-report-url=http://localhost:8099/progress --e2e-docker-config-file=/tmp/sonobuoy/credentials/config.json".into(),
        ),
        ("LOCAL_SSH_KEY", "id_rsa".into()),
        ("AWS_SSH_KEY", "/root/.ssh/id_rsa".into()),
        ("KUBE_SSH_KEY", "id_rsa".into()),
        ("KUBE_SSH_USER", "me".into()),
    ] {
        assert_eq!(env(&e2e["spec"], name), Some(value.as_str()), "{name}");
    }
    let files = json!({"repos.yaml": "gcRegistry: x\n"});
    assert_eq!(e2e["config-map"], files);
    assert_eq!(named(&objects, "ConfigMap", "plugin-e2e-cm")["data"], files);
    assert_eq!(
        e2e["extra-volumes"],
        json!([
            {"name": "sshkey-vol", "secret": {"secretName": "ssh-key", "defaultMode": 256}},
            {"name": "sonobuoy-credentials-vol", "secret": {"secretName": "auth-repo-cred",
                "items": [{"key": ".dockerconfigjson", "path": "config.json"}]}},
            {"name": "sonobuoy-e2e-vol", "configMap": {"name": "plugin-e2e-cm"}},
        ])
    );
    let mounts: Vec<_> = e2e["spec"]["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["mountPath"].clone())
        .collect();
    assert_eq!(
        mounts,
        [
            "/root/.ssh",
            "/tmp/sonobuoy/credentials",
            config,
            "/tmp/sonobuoy/results"
        ]
    );
    let docker = named(&objects, "Secret", "auth-repo-cred");
    assert_eq!(
        (&docker["type"], &docker["metadata"]["namespace"]),
        (&json!("kubernetes.io/dockerconfigjson"), &json!("sonobuoy"))
    );
    assert_eq!(
        docker["data"],
        json!({".dockerconfigjson": "eyJhdXRocyI6IHt9fQ=="})
    );
    let key = named(&objects, "Secret", "ssh-key");
    assert_eq!(
        (&key["data"], &key["metadata"]["namespace"]),
        (&json!({"id_rsa": "c2VjcmV0Cg=="}), &json!("sonobuoy"))
    );
    let run = configuration(&objects);
    assert_eq!(
        (&run["ImagePullSecrets"], &run["E2EDockerConfigFile"]),
        (&json!("auth-repo-cred"), &json!("d/config.json"))
    );
    assert_eq!(
        named(&objects, "Pod", "sonobuoy")["spec"]["imagePullSecrets"],
        json!([{"name": "auth-repo-cred"}])
    );
    assert_eq!(
        env(
            &definition(&generated("--e2e-repo r"), "e2e")["spec"],
            "KUBE_TEST_REPO"
        ),
        Some("r")
    );
}

#[test]
fn generated_definition_can_be_used_again() {
    let first = Sonobuoy::new(&format!(
        "gen plugin e2e {VERSION} --e2e-repo-config repos.yaml"
    ))
    .file("repos.yaml", "gcRegistry: x\n")
    .run_any()
    .stdout;
    assert!(first.starts_with("config-map:"), "{first}");
    let again = definition(&generated_with("e2e.yaml", &first, "-p e2e.yaml"), "e2e");
    assert_eq!(again, documents(&first)[0], "nothing is there twice");
    let plain = Sonobuoy::new(&format!("gen plugin e2e {VERSION} --configmap f.txt"))
        .file("f.txt", "x")
        .run_any();
    assert_eq!(
        documents(&plain.stdout)[0]["config-map"],
        json!({"f.txt": "x"})
    );
}

#[test]
fn new_definitions_follow_their_flags() {
    Sonobuoy::new("gen plugin -n hello -i hello:v9")
        .stdout(
            "sonobuoy-config:\n  driver: Job\n  plugin-name: hello\n  result-format: raw\nspec:\n  command:\n  - ./run.sh\n  \
             image: hello:v9\n  name: plugin\n\n",
        )
        .run();
    let call = Sonobuoy::with(
        "gen plugin --name x --image i -t DAEMONSET -f junit -c a -c b -a 1 -e Z=1 -e a=true -e gone --node-selector os=linux \
         --configmap n.txt -D about -u https://host/x"
            .split_whitespace(),
    );
    let done = call.file("n.txt", "no\n").run_any();
    assert!(done.stdout.contains("value: \"true\""), "{}", done.stdout);
    let expected = json!({
        "config-map": {"n.txt": "no\n"},
        "podSpec": {"containers": null, "nodeSelector": {"os": "linux"}},
        "sonobuoy-config": {
            "description": "about", "driver": "DaemonSet", "plugin-name": "x", "result-format": "junit",
            "source-url": "https://host/x",
        },
        "spec": {
            "args": ["1"], "command": ["a", "b"], "image": "i", "name": "plugin",
            "env": [{"name": "a", "value": "true"}, {"name": "Z", "value": "1"}],
        },
    });
    assert_eq!(documents(&done.stdout), [expected]);
    let call = Sonobuoy::new(
        "gen plugin -n x -i= -e EMPTY= -e GONE=1 -e GONE --node-selector os=linux --show-default-podspec",
    );
    let done = documents(&call.run_any().stdout).remove(0);
    assert_eq!(
        done["spec"],
        json!({"command": ["./run.sh"], "env": [{"name": "EMPTY"}], "name": "plugin"})
    );
    assert_eq!(done["podSpec"]["nodeSelector"], json!({"os": "linux"}));
    let shown = definition(
        &generated_with(
            "p.yaml",
            &plugin("p", "Job"),
            "-p p.yaml --show-default-podspec",
        ),
        "p",
    );
    assert_eq!(shown["podSpec"]["restartPolicy"], "Never");
}

#[test]
fn ineffective_flags_are_still_checked() {
    for (words, error) in [
        ("gen config -p ./none", "there is no such file or folder"),
        ("gen config --plugin-env e2e", "write PLUGIN.NAME=VALUE"),
        ("gen config --aggregator-node-selector a", "write KEY:VALUE"),
        (
            "gen plugin systemd-logs --kubernetes-version=v1.30.0 -p ./none",
            "there is no such file or folder",
        ),
    ] {
        Sonobuoy::new(words).status(1).stderr_has(error).run();
    }
    let other =
        "gen plugin e2e --kubernetes-version=v1.30.0 --plugin-env systemd-logs.LOG_MINUTES=5";
    Sonobuoy::new(other).stdout_has("plugin-name: e2e").run();
    let done = Sonobuoy::new("gen config --e2e-docker-config-file d.json")
        .file("d.json", "{}")
        .run_any();
    let config: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&config["E2EDockerConfigFile"], &config["ImagePullSecrets"]),
        (&json!("d.json"), &json!(""))
    );
}

pub fn plugin(name: &str, driver: &str) -> String {
    format!("sonobuoy-config:\n  driver: {driver}\n  plugin-name: {name}\nspec:\n  image: i\n")
}

#[test]
fn existing_manifest_is_printed_unchanged() {
    let text = "# mine\na:   1\n";
    Sonobuoy::new("gen -f m.yaml")
        .file("m.yaml", text)
        .stdout(text)
        .run();
    Sonobuoy::new("gen --file -").stdin(text).stdout(text).run();
    Sonobuoy::new("gen -f none")
        .status(1)
        .stderr_has("cannot read `none`")
        .run();
    Sonobuoy::new("gen default-image-config")
        .stdout_has("promoterE2eRegistry: registry.k8s.io/e2e-test-images")
        .run();
}

#[test]
fn kubectl_reads_every_document() {
    let Some(kubectl) = program("kubectl") else {
        return;
    };
    let text = Sonobuoy::new(&format!(
        "gen {VERSION} --aggregator-permissions clusterRead"
    ))
    .run_any()
    .stdout;
    // `create --dry-run` needs a server's list of kinds; `label --local` reads the same documents
    // with the same code.
    let mut child = std::process::Command::new(kubectl)
        .args(["label", "--local", "-f", "-", "-o", "name", "read=yes"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let names = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(names.lines().count(), documents(&text).len(), "{names}");
}

#[test]
fn objects_of_run_have_recommended_labels_and_those_of_the_original_do_not() {
    let plugin = "sonobuoy-config: {driver: Job, plugin-name: a}\nspec: {image: i}\n";
    for (words, expected) in [("", false), ("--harden on", true)] {
        let gen_call = Sonobuoy::new(&format!(
            "gen -p a.yaml --kubernetes-version ignore {words}"
        ));
        let text = gen_call.file("a.yaml", plugin).run_any().stdout;
        let objects = text.matches("\nkind: ").count() + usize::from(text.starts_with("kind: "));
        let labels = text.matches("app.kubernetes.io/name: sonobuoy").count();
        assert!(objects > 5);
        assert_eq!(labels, if expected { objects } else { 0 }, "{text}");
        assert_eq!(
            text.contains("app.kubernetes.io/component: aggregator"),
            expected
        );
    }
}
