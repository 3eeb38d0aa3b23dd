//! Differences on Windows: homes, path lists, credential plugins, local runs, names in archives.
//! These tests run there, and under wine by `scripts/ci/machines`.

use serde_json::{Value, json};

use super::support::api_server::ApiServer;
use super::support::{Archive, Folder, Sonobuoy};

/// A cluster with a run, and its kubeconfig.
fn cluster() -> (ApiServer, Folder, Value) {
    let (api, folder) = (ApiServer::start(), Folder::new());
    api.put(
        "/api/v1/namespaces/sonobuoy",
        json!({"status": {"phase": "Active"}}),
    );
    let told = json!({"plugins": [], "status": "running"}).to_string();
    let metadata = json!({
        "labels": {"sonobuoy-component": "aggregator"}, "annotations": {"sonobuoy.hept.io/status": told},
    });
    api.put(
        "/api/v1/namespaces/sonobuoy/pods/sonobuoy",
        json!({"metadata": metadata, "status": {"phase": "Running"}}),
    );
    api.kubeconfig(folder.path());
    let config = serde_json::from_str(&folder.read("kubeconfig")).unwrap();
    (api, folder, config)
}

/// `status`, which has to find the kubeconfig.
fn status(words: &str) -> Sonobuoy {
    Sonobuoy::new(&format!("status --json {words}"))
        .without_env("HOME")
        .stdout_has("\"status\":\"running\"")
}

#[test]
fn kubeconfig_paths_of_windows_work() {
    let (_api, folder, config) = cluster();
    let path = folder.join("kubeconfig");
    status("--kubeconfig").arg(&path).run_any();
    let list = format!("{};{}", folder.join("absent").display(), path.display());
    status("").env("KUBECONFIG", list).run_any();
    folder.write(
        "home/.kube/config",
        format!("{config:#}").replace('\n', "\r\n"),
    );
    for home in ["HOME", "USERPROFILE"] {
        status("").env(home, folder.join("home")).run_any();
    }
    let (drive, rest) = folder.path().to_str().unwrap().split_at(2);
    status("")
        .env("HOMEDRIVE", drive)
        .env("HOMEPATH", format!("{rest}\\home"))
        .run_any();
}

#[test]
fn credential_plugin_may_be_a_batch_file() {
    let (api, folder, mut config) = cluster();
    api.demand_token(Some("from-cmd"));
    let answer = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-cmd"},
    });
    folder.write("tools/get-token.cmd", format!("@echo {answer}\r\n"));
    config["users"][0]["user"] = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "get-token", "interactiveMode": "Never",
    }});
    let path = folder.write("with-program", config.to_string());
    let tools = format!(
        "{};{}",
        folder.join("tools").display(),
        std::env::var("PATH").unwrap()
    );
    status("--kubeconfig")
        .arg(&path)
        .env("PATH", tools)
        .run_any();
}

#[test]
fn local_run_starts_and_ends_windows_commands() {
    let plugin = "sonobuoy-config:\n  plugin-name: here\n  driver: Job\nspec:\n  name: plugin\n  command: [cmd, /c, run.cmd]\n";
    let script = "@echo off\r\necho result of windows> %RESULTS_DIR%\\out.txt\r\necho %RESULTS_DIR%\\out.txt> %RESULTS_DIR%\\done\r\n";
    let run = Sonobuoy::new("run --local -p plugin.yaml")
        .file("plugin.yaml", plugin)
        .file("run.cmd", script);
    let done = run.run_any();
    let archive = Archive::only_one_in(done.folder.path());
    assert!(
        archive
            .text("plugins/here/sonobuoy_results.yaml")
            .contains("status: passed"),
        "{}",
        done.stderr
    );
    assert_eq!(
        archive
            .text("plugins/here/results/global/out.txt")
            .trim_end(),
        "result of windows"
    );
    let page = archive.text("meta/info.json");
    assert!(!page.contains('\r'), "{page:?}");
}

#[test]
fn gather_is_rejected_on_windows() {
    let done = Sonobuoy::new("gather host-facts").status(1).run_any();
    assert!(
        done.stderr
            .contains("of a Linux node; this machine runs windows"),
        "{}",
        done.stderr
    );
}
