//! Sentences of the original that scripts depend on, byte for byte, at each place where the program
//! prints them.

use serde_json::{Value, json};

use crate::images;
use crate::run;
use crate::support::api_server::ExecAnswer;
use crate::support::cluster::{aggregator_pod, namespace, status, untouched};
use crate::support::registry::{Habits, Registry};
use crate::support::{Folder, Sonobuoy};

/// Text on stdout that the original's scripts search for: the state of the run.
const SENTENCES: &[(&str, &str, i32)] = &[
    (
        "running",
        "Sonobuoy is still running. Runs can take 60 minutes or more depending on cluster and plugin configuration.",
        0,
    ),
    (
        "failed",
        "Sonobuoy has failed. You can see what happened with `sonobuoy logs`.",
        1,
    ),
    (
        "complete",
        "Sonobuoy has completed. Use `sonobuoy retrieve` to get results.",
        0,
    ),
    (
        "post-processing",
        "Sonobuoy plugins have completed. Preparing results for download.",
        0,
    ),
    (
        "x",
        "Sonobuoy is in unknown state \"x\". Please report a bug in sonobuoy v0.60.0",
        0,
    ),
];

/// The same for an aggregator without a published status: its pod's phase, and the reason why its
/// container waits.
const SILENT_SENTENCES: &[(&str, &str, &str, i32)] = &[
    (
        "Running",
        "",
        "The Sonobuoy aggregator is running but is unable to obtain the plugin status information.\n\nIf this state \
         persists, use kubectl to debug further.",
        0,
    ),
    (
        "Pending",
        "ErrImagePull",
        "The Sonobuoy aggregator is in the 'Pending' state and the container seems unable to pull the image.\n\nPod has the \
         attached message: no such image",
        1,
    ),
    (
        "Pending",
        "ImagePullBackOff",
        "The Sonobuoy aggregator is in the 'Pending' state and the container seems unable to pull the image.\n\nPod has the \
         attached message: no such image",
        1,
    ),
    (
        "Pending",
        "ContainerCreating",
        "The Sonobuoy aggregator is in the 'Pending' state. This is normal as the pod is created and begins to run, but if \
         this state persists, use kubectl to debug further.",
        0,
    ),
    (
        "Succeeded",
        "",
        "The Sonobuoy aggregator ran successfully but has stopped. If you didn't intend for this to happen, please report a \
         bug in sonobuoy v0.60.0.",
        1,
    ),
    (
        "Failed",
        "",
        "The Sonobuoy aggregator is in the 'Failed' state. Use kubectl to debug further.",
        1,
    ),
    (
        "Unknown",
        "",
        "The Sonobuoy aggregator is in the 'Unknown' state. Use kubectl to debug further.",
        1,
    ),
];

#[test]
fn status_prints_the_sentences_of_the_original() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let ask = |words: &str| Sonobuoy::new(&format!("status --kubeconfig {config} {words}"));
    for (state, sentence, code) in SENTENCES {
        aggregator_pod(
            &api,
            json!({"phase": "Running"}),
            Some(&status(state, &json!([]))),
        );
        let table = "   PLUGIN   STATUS   RESULT   COUNT   PROGRESS\n";
        ask("")
            .status(*code)
            .stdout(&format!("{table}\n{sentence}\n"))
            .run();
        let line = format!("\n{sentence}\n");
        ask("--show-all").status(*code).stdout_has(&line).run();
    }
    for (phase, reason, sentence, code) in SILENT_SENTENCES {
        let waiting = json!({"reason": reason, "message": "no such image"});
        let state = if reason.is_empty() {
            json!({})
        } else {
            json!({"waiting": waiting})
        };
        let containers = json!([{"name": "kube-sonobuoy", "image": "worker:1", "state": state}]);
        aggregator_pod(
            &api,
            json!({"phase": phase, "containerStatuses": containers}),
            None,
        );
        let done = ask("").status(*code).run_any();
        assert!(
            done.stdout.starts_with(&format!("{sentence}\n")),
            "{phase}: {}",
            done.stdout
        );
        assert_eq!(
            done.stderr.contains("level=error"),
            *code != 0,
            "{}",
            done.stderr
        );
    }
    // Additional information follows on separate lines.
    let mut run: Value = serde_json::from_str(&status("failed", &json!([]))).unwrap();
    run["error"] = "no space".into();
    aggregator_pod(&api, json!({"phase": "Running"}), Some(&run.to_string()));
    ask("")
        .status(1)
        .stdout_has("`sonobuoy logs`.\nThe run has failed: no space.\n")
        .run();
}

/// Printed by long-running commands, which the tests in these files start.
const LONG_RUNNING: &[(&str, &str)] = &[
    (
        include_str!("worker.rs"),
        "Results transmitted to aggregator.  Sleeping forever.",
    ),
    (
        include_str!("worker.rs"),
        "Results transmitted to aggregator. Sleeping for 1 seconds",
    ),
    (
        include_str!("aggregator.rs"),
        "no-exit was specified, sonobuoy is now blocking",
    ),
];

#[test]
fn long_running_commands_are_tested_for_their_sentences() {
    for (test, sentence) in LONG_RUNNING {
        assert!(test.contains(sentence), "{sentence}");
    }
}

#[test]
fn retrieve_begins_with_the_sentences_of_the_original() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &json!([]))),
    );
    api.on_exec(|_| ExecAnswer::failed(1, "there is no finished archive"));
    let retrieve = |code| {
        Sonobuoy::new(&format!("retrieve --kubeconfig {config}"))
            .status(code)
            .run_any()
            .stderr
    };
    let told = retrieve(1);
    assert!(
        told.starts_with("Results not ready yet. Check `sonobuoy status` for status.\n"),
        "{told}"
    );
    api.remove("/api/v1/namespaces/sonobuoy/pods/sonobuoy");
    let told = retrieve(2);
    assert!(told.starts_with("error retrieving results: "), "{told}");
}

#[test]
fn plugin_and_version_print_the_lines_of_the_original() {
    let text = "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {image: i, name: box}\n";
    let installed = Sonobuoy::new("plugin install saved p.yaml")
        .file("p.yaml", text)
        .run_any();
    let path = installed
        .folder
        .path()
        .join(".sonobuoy")
        .join("saved.yaml")
        .display()
        .to_string();
    assert_eq!(
        installed.stdout,
        format!("Installed plugin box into file {path} from source p.yaml\n")
    );
    let removed = Sonobuoy::new("plugin uninstall saved")
        .env("HOME", installed.folder.path())
        .run_any();
    assert_eq!(removed.stdout, format!("Uninstalled plugin file {path}\n"));

    let (_api, _folder, config) = run::cluster();
    for (words, last) in [
        (
            "version",
            "API Version check skipped due to missing `--kubeconfig` or other error",
        ),
        (
            &*format!("version --kubeconfig {config}"),
            "API Version:  v1.31.2",
        ),
    ] {
        let done = Sonobuoy::new(words).run_any();
        let lines: Vec<_> = done.stdout.lines().collect();
        let names = [
            "Sonobuoy Version",
            "MinimumKubeVersion",
            "MaximumKubeVersion",
            "GitSHA",
            "GoVersion",
            "Platform",
        ];
        assert_eq!(lines.len(), names.len() + 1, "{}", done.stdout);
        for (line, name) in lines.iter().zip(names) {
            assert!(line.starts_with(&format!("{name}: ")), "{line}");
        }
        assert_eq!(lines.last(), Some(&last));
    }
}

#[test]
fn results_prints_the_headings_of_the_original() {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["p"]}"#);
    folder.write(
        "plugins/p/sonobuoy_results.yaml",
        "name: p\nstatus: failed\nitems:\n- {name: a, status: failed}\n",
    );
    folder.write(
        "meta/clusterhealth.json",
        r#"{"node_health":{"total_nodes":2,"healthy_nodes":1,"details":[{"name":"n","healthy":false,"ready":"False"}]},
            "pod_health":{"total_nodes":2,"healthy_nodes":1,"details":[{"name":"p","namespace":"n","healthy":false,"ready":"False"}]},
            "api_version":"v1.2.3","error_summary":{"Errors":{"x":2}}}"#,
    );
    let told = Sonobuoy::new("results").arg(folder.path()).run_any().stdout;
    for sentence in [
        "Plugin: p",
        "Status: failed",
        "Total: 1",
        "Passed: 0",
        "Failed: 1",
        "Skipped: 0",
        "Failed tests:",
        "Run Details:",
        "API Server version: v1.2.3",
        "Node health: 1/2 (50%)",
        "Details for failed nodes:",
        "Pods health: 1/2 (50%)",
        "Details for failed pods:",
        "Errors detected in files:",
    ] {
        assert!(
            told.lines().any(|line| line == sentence),
            "{sentence}: {told}"
        );
    }
}

#[test]
fn run_delete_and_images_log_the_messages_of_the_original() {
    let (api, _folder, config) = run::cluster();
    namespace(&api);
    let message = |words: &str, sentence: &str| {
        let call = Sonobuoy::new(&format!("{words} --kubeconfig {config}"));
        call.stderr_has(&format!("level=info msg=\"{sentence}\""))
            .run_any()
            .stderr
    };
    let create = "run --rbac Enable --skip-preflight=existingnamespace";
    let told = message(create, "create request issued");
    assert!(
        told.contains("msg=\"object already exists\" name=sonobuoy namespace= resource=namespaces"),
        "{told}"
    );
    assert!(
        told.contains("name=sonobuoy namespace=sonobuoy resource=pods"),
        "{told}"
    );
    message("delete", "delete request issued");
    message("delete", "already deleted");
    Sonobuoy::new(&format!("delete --all --wait --kubeconfig {config}"))
        .stdout(
            "\nNamespace \"sonobuoy\" has been deleted\n\nDeleted all ClusterRoles and ClusterRoleBindings.\n\nAll E2E \
             namespaces deleted\n",
        )
        .run_any();
    let registry = Registry::start(Habits::default());
    images::fill(&registry, "tool", false);
    Sonobuoy::new("images inspect -p p.yaml")
        .file(
            "p.yaml",
            images::plugin(&format!("{}/tool:1", registry.host())),
        )
        .stderr_has("level=info msg=\"configured images available\"")
        .run_any();
    for command in [
        "",
        "list",
        "pull",
        "push --custom-registry r",
        "download",
        "delete",
        "inspect",
    ] {
        Sonobuoy::new(&format!(
            "images {command} --dry-run -p e2e --kubernetes-version v1.33"
        ))
        .stderr_has("level=info msg=\"e2e image to be used: registry.k8s.io/conformance:v1.33.0\"")
        .run_any();
    }
}
