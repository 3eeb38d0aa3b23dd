//! `each`: the command on this machine, its outputs in each form, and the run in a fake cluster.

use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::support::api_server::{ApiServer, ExecAnswer};
use crate::support::cluster::{STATUS, complete};
use crate::support::{Folder, Sonobuoy};

/// A call on this machine; `script` is one word.
fn local(flags: &str, script: &str) -> Sonobuoy {
    Sonobuoy::new(&format!("each --local {flags} -- sh -c")).arg(script)
}

/// The first line of a text, which names the node, and the rest.
fn split_head(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap()
}

#[test]
fn output_is_shown_below_its_node() {
    let done = local("", "echo one; echo two").run_any();
    let (head, outputs) = split_head(&done.stdout);
    assert!(head.starts_with("1 node: "), "{head}");
    assert_eq!(outputs, "  one\n  two\n\n");
    assert_eq!(done.stderr, "");
}

#[test]
fn exit_code_is_3_if_the_command_failed() {
    let (code, stdout, stderr) = local("", "echo no >&2; exit 7").run_any_status();
    let (head, outputs) = split_head(&stdout);
    assert_eq!(code, 3, "{stderr}");
    assert!(
        head.starts_with("1 node, exit code 7: "),
        "{head}\n{stderr}"
    );
    assert_eq!(outputs, "  stderr: no\n\n");
    assert!(
        stderr.starts_with("exit 3: the command failed on 1 node: "),
        "{stderr}"
    );
}

#[test]
fn quiet_prints_nothing() {
    let (code, stdout, stderr) = local("--quiet", "echo text; exit 1").run_any_status();
    assert_eq!((code, &*stdout, &*stderr), (3, "", ""));
}

#[test]
fn wide_has_a_row_per_node() {
    let done = local("-o wide", "echo; echo first; echo second").run_any();
    let (head, row) = split_head(&done.stdout);
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["NODE", "END", "OUTPUT"]
    );
    assert!(row.ends_with("exit code 0  first\n"), "{row}");
}

#[test]
fn control_sequences_are_harmless_in_text() {
    let done = local("", r"printf '\033[31mred\033[0m\n'").run_any();
    assert!(done.stdout.contains(r"\u001b[31mred"), "{}", done.stdout);
    assert!(!done.stdout.contains('\u{1b}'));
}

#[test]
fn json_has_the_exact_output() {
    let line = |script: &str| -> Value {
        serde_json::from_str(&local("-o json", script).run_any().stdout).unwrap()
    };
    let text = line(r"printf '\033[1m\t\n'");
    assert_eq!(text["stdout"], "\u{1b}[1m\t\n");
    assert_eq!(text["status"], "passed");
    assert_eq!(text["code"], 0);
    let binary = line(r"printf '\377\000'");
    assert_eq!(binary["stdoutBase64"], "/wA=");
    assert_eq!(binary["stdout"], Value::Null);
    assert_eq!(binary["stdoutBytes"], 2);
}

#[test]
fn long_output_is_cut_with_a_mark() {
    let done = local("", "head -c 3000000 /dev/zero | tr '\\0' a").run_any();
    assert!(
        done.stdout
            .ends_with("  [cut: 1048576 of 3000000 bytes]\n\n"),
        "{}",
        &done.stdout[done.stdout.len() - 100..]
    );
}

#[test]
fn endless_command_is_killed() {
    let (code, stdout, _) = local("--timeout 1", "echo begun; sleep 1000").run_any_status();
    assert_eq!(code, 3);
    assert!(stdout.contains("did not end within 1 s"), "{stdout}");
    assert!(stdout.contains("  begun\n"), "{stdout}");
}

#[test]
fn missing_program_is_a_result() {
    let (code, stdout, _) = Sonobuoy::new("each --local -- no-such-program").run_any_status();
    assert_eq!(code, 3);
    assert!(stdout.contains("exit code 127"), "{stdout}");
    assert!(
        stdout.contains("stderr: cannot start `no-such-program`"),
        "{stdout}"
    );
}

#[test]
fn variables_reach_the_shell() {
    let done = local("", "A=b; echo $A $(echo c) $$A | cut -c -4").run_any();
    assert!(done.stdout.contains("\n  b c \n"), "{}", done.stdout);
}

#[test]
fn place_of_the_command_has_to_be_named() {
    Sonobuoy::new("each -- uname -r")
        .status(1)
        .stderr_has("--host runs the command of each node itself")
        .run();
    Sonobuoy::new("each --host --")
        .arg("")
        .status(1)
        .stderr_has("the command is empty")
        .run();
}

/// The answers of three nodes, of which the last has another output, and `failed` fails there.
fn archive_of(failed: bool) -> Folder {
    let folder = Folder::new();
    let (status, end, code) = match failed {
        true => ("failed", "exit code 2", 2),
        false => ("passed", "exit code 0", 0),
    };
    let record = |status: &str, end: &str, code: u8| {
        let details = json!({"end": end, "code": code, "stdoutBytes": 2, "stderrBytes": 0});
        json!({"name": "command", "status": status, "details": details}).to_string()
    };
    let script = [
        "mkdir $RESULTS_DIR/each; cd $RESULTS_DIR/each; : > stderr".to_owned(),
        format!(
            "case $NODE_NAME in *3) echo b > stdout; echo '{}' > each.json;; *) echo a > stdout; \
             echo '{}' > each.json;; esac",
            record(status, end, code),
            record("passed", "exit code 0", 0),
        ),
        "echo $RESULTS_DIR/each > ../done".to_owned(),
    ]
    .join("; ");
    let plugin = json!({
        "sonobuoy-config": {
            "driver": "Nodes", "plugin-name": "each", "result-format": "manual",
            "result-files": ["each.json"],
        },
        "spec": {"name": "command", "command": ["sh", "-c", script]},
    });
    Sonobuoy::new("run --local --local-nodes 3 -p each.yaml --retrieve")
        .arg(folder.path())
        .file("each.yaml", plugin.to_string())
        .env("SONOBUOY_DONE_FILE_DELAY", "0s")
        .run_any();
    folder
}

static PASSED: LazyLock<Folder> = LazyLock::new(|| archive_of(false));
static FAILED: LazyLock<Folder> = LazyLock::new(|| archive_of(true));

/// A cluster in which the run ends at once, with the archive in `folder`.
fn cluster(folder: &'static Folder) -> ApiServer {
    let api = ApiServer::start();
    api.raw("/version", 200, r#"{"gitVersion": "v1.31.2"}"#);
    let mut names = folder.names().into_iter();
    let name = names.find(|name| name.ends_with(".tar.gz")).unwrap();
    let content = std::fs::read(folder.join(&name)).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &content);
    let mut status: Value =
        serde_json::from_str(&complete(&name, digest.as_ref(), content.len())).unwrap();
    status["plugins"] = json!([
        {"plugin": "each", "node": "a", "status": "complete", "result-status": "passed"}
    ]);
    api.controller(move |api, change| {
        if change.path.ends_with("/pods/sonobuoy") && change.kind == "ADDED" {
            let annotations = json!({(STATUS): status.to_string()});
            let running = json!({
                "metadata": {"annotations": annotations}, "status": {"phase": "Running"},
            });
            api.merge(&change.path, &running);
        }
    });
    api.on_exec(|exec| {
        let splat = Command::new(env!("CARGO_BIN_EXE_sonobuoy"))
            .arg("splat")
            .arg(folder.path())
            .args(&exec.command[3..])
            .output()
            .unwrap();
        ExecAnswer::ok(splat.stdout)
    });
    api
}

fn call(api: &ApiServer, words: &str) -> Sonobuoy {
    let call = Sonobuoy::new(words);
    let kubeconfig = api.kubeconfig(&call.folder());
    call.env("KUBECONFIG", kubeconfig)
}

#[test]
fn equal_outputs_are_shown_once_and_the_odd_one_is_marked() {
    let api = cluster(&PASSED);
    let done = call(&api, "each --host -- uname -r").run_any();
    let groups: Vec<_> = done.stdout.split("\n\n").collect();
    assert!(groups[0].starts_with("2 of 3 nodes: "), "{}", done.stdout);
    assert!(groups[0].ends_with("\n  a"), "{}", done.stdout);
    assert!(
        groups[1].starts_with("1 of 3 nodes, unlike most: "),
        "{}",
        done.stdout
    );
}

#[test]
fn failed_nodes_are_first() {
    let api = cluster(&FAILED);
    let (code, stdout, stderr) = call(&api, "each --image i -- true").run_any_status();
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stdout.starts_with("1 of 3 nodes, unlike most, exit code 2: "),
        "{stdout}"
    );
}

#[test]
fn nothing_remains_of_a_run() {
    let api = cluster(&PASSED);
    call(&api, "each --host -- uname -r").run_any();
    assert!(api.list("/api/v1/namespaces").iter().all(|namespace| {
        !namespace["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("sonobuoy-each")
    }),);
    let pods = api.deletions("/api/v1/namespaces/sonobuoy-each");
    let is_at_once = |options: &Value| options["gracePeriodSeconds"] == 0;
    assert!(pods.iter().any(is_at_once), "{pods:?}");
}

#[test]
fn roles_belong_to_the_namespace_of_the_run() {
    let api = cluster(&PASSED);
    api.controller(|api, change| {
        // The uid of the namespace, for later.
        if change.kind == "ADDED" && change.path.contains("clusterrole") {
            api.put("/api/v1/namespaces/kept", json!({"role": change.object}));
        }
    });
    call(&api, "each --host -- uname -r").run_any();
    let role = api.get("/api/v1/namespaces/kept").unwrap()["role"].clone();
    let owner = &role["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "Namespace");
    assert_ne!(owner["uid"], "new", "the server's");
}

#[test]
fn missing_permissions_are_told_before_anything_is_created() {
    let api = cluster(&PASSED);
    api.forbid("delete", "namespaces");
    call(&api, "each --host -- uname -r")
        .status(1)
        .stderr_has("your account may not delete namespaces")
        .run_any();
    assert_eq!(api.count("POST /api/v1/namespaces"), 0);
}

#[test]
fn host_is_explained_once() {
    let api = cluster(&PASSED);
    let home = Folder::new();
    let note = "the command runs as root on each node";
    for is_first in [true, false] {
        let done = call(&api, "each --host -- uname -r")
            .env("SONOBUOY_DIR", home.path())
            .run_any();
        assert_eq!(done.stderr.contains(note), is_first, "{}", done.stderr);
    }
}

#[test]
fn lines_of_several_clusters_name_their_cluster() {
    let (a, b) = (cluster(&PASSED), cluster(&FAILED));
    let call = Sonobuoy::new("each -o json --kubeconfigs a.yaml b.yaml --image i -- true");
    for (name, api) in [("a.yaml", &a), ("b.yaml", &b)] {
        let text = std::fs::read_to_string(api.kubeconfig(&call.folder())).unwrap();
        std::fs::write(call.folder().join(name), text).unwrap();
    }
    let (code, stdout, stderr) = call.run_any_status();
    assert_eq!(code, 3, "{stderr}");
    let lines: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 6, "{stdout}");
    let failed: Vec<_> = lines
        .iter()
        .filter(|line| line["status"] == "failed")
        .collect();
    assert_eq!(failed.len(), 1, "{stdout}");
    assert_eq!(failed[0]["cluster"], "b");
}

/// The definition of the plugin of a call, and the Pod Security level of its namespace.
fn created(api: &ApiServer, words: &str) -> (String, String) {
    api.controller(|api, change| {
        let object = &change.object;
        if change.kind == "ADDED" && change.path.ends_with("/configmaps/sonobuoy-plugins-cm") {
            api.put("/api/v1/namespaces/kept", object["data"].clone());
        }
        let labels = &object["metadata"]["labels"];
        if let Some(level) = labels["pod-security.kubernetes.io/enforce"].as_str() {
            api.put("/api/v1/namespaces/level", json!({"level": level}));
        }
    });
    call(api, words).run_any_status();
    let kept = |name: &str| api.get(&format!("/api/v1/namespaces/{name}")).unwrap();
    (
        kept("kept")["plugin-0.yaml"].as_str().unwrap().to_owned(),
        kept("level")["level"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn pods_are_privileged_only_for_commands_of_the_node() {
    for (words, expected) in [
        ("each --host -- true", true),
        ("each -- /bin/true", true),
        ("each --image i -- /bin/true", false),
    ] {
        let (definition, level) = created(&cluster(&PASSED), words);
        assert_eq!(definition.contains("privileged: true"), expected, "{words}");
        assert_eq!(definition.contains("hostPath"), expected, "{words}");
        assert!(!definition.contains("$SONOBUOY_IMAGE"), "{definition}");
        assert_eq!(level == "privileged", expected, "{words}");
    }
}
