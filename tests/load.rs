//! `run --load`: our image in nodes that no registry serves.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::api_server::ApiServer;
use crate::support::cluster::untouched;
use crate::support::{Folder, Sonobuoy};

const IMAGE: &str = "localhost/sonobuoy:load-test";
/// The image of the pods that load.
const WITH: &str = "--load-with registry.example/busybox:1";

/// An archive of the image, with a small file as the program.
fn archive(folder: &Folder) -> String {
    folder.write("bin/sonobuoy-amd64", "#!/bin/sh\n");
    let path = folder.join("image.tar");
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/image");
    let made = Command::new(script)
        .arg(&path)
        .envs([("ARCHES", "amd64"), ("IMAGE", IMAGE), ("CA_BUNDLE", "")])
        .env("BINARIES", folder.join("bin"))
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    folder.write(
        "p.yaml",
        "sonobuoy-config: {driver: Job, plugin-name: p, permissions: none}\nspec: {image: x}\n",
    );
    path.display().to_string()
}

fn node(api: &ApiServer, name: &str, images: &[&str]) {
    let images: Vec<_> = images
        .iter()
        .map(|image| json!({"names": [image], "sizeBytes": 1}))
        .collect();
    api.put(
        &format!("/api/v1/nodes/{name}"),
        json!({"status": {"images": images}}),
    );
}

fn run(folder: &Folder, config: &str, archive: &str, more: &str) -> Sonobuoy {
    let words = format!(
        "run --skip-preflight --dry-run=server --sonobuoy-image {IMAGE} --kubeconfig {config} --load={archive} {more} -p"
    );
    Sonobuoy::new(&words).arg(folder.join("p.yaml"))
}

/// Images with names that a search for `busybox` would find belong to whoever may start a pod.
#[test]
fn no_image_is_chosen_from_those_of_a_node() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    node(
        &api,
        "n1",
        &[
            "registry.tenant.example/mallory/rootkit-alpine-busybox:latest",
            "busybox:1",
        ],
    );
    let done = run(&folder, &config, &archive, "").status(1).run_any();
    for part in [
        "--load-with registry.k8s.io/",
        "push it to a registry",
        &archive,
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    let posts = api
        .requests()
        .into_iter()
        .filter(|request| request.starts_with("POST"));
    assert!(
        posts.into_iter().all(|request| request.contains("dryRun")),
        "{:?}",
        api.requests()
    );
}

#[test]
fn image_and_digest_are_printed_before_the_pod_starts() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    let digest = format!("docker.io/library/busybox@sha256:{}", "1".repeat(64));
    let images = json!([{"names": [digest, "docker.io/library/busybox:1"]}]);
    api.put("/api/v1/nodes/n1", json!({"status": {"images": images}}));
    node(&api, "n2", &["registry.tenant.example/busybox:1"]);
    let pods = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let created = std::sync::Arc::clone(&pods);
    api.controller(move |api, change| {
        if change.path.contains("/pods/load-") && change.object["status"]["phase"] != "Succeeded" {
            let container = &change.object["spec"]["containers"][0];
            created
                .lock()
                .unwrap()
                .push(container["image"].as_str().unwrap_or_default().to_owned());
            api.merge(&change.path, &json!({"status": {"phase": "Succeeded"}}));
        }
    });
    let done = run(&folder, &config, &archive, "--load-with busybox:1").run_any();
    let image = "docker.io/library/busybox:1";
    for line in [
        format!(
            "a privileged pod runs `{image}`, which is there with the digest sha256:{}, on n1",
            "1".repeat(64)
        ),
        format!(
            "a privileged pod runs `{image}`, which is not listed there and will be pulled, on n2"
        ),
    ] {
        assert!(done.stderr.contains(&line), "{line}: {}", done.stderr);
    }
    assert!(
        done.stderr.find("a privileged pod runs") < done.stderr.find("a privileged pod on each")
    );
    assert_eq!(*pods.lock().unwrap(), [image, image]);
}

#[test]
fn pod_on_each_node_gets_the_whole_archive() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    node(&api, "n1", &["registry.example/busybox:1"]);
    node(&api, "n2", &["other:1", "docker.io/library/debian:12"]);
    api.controller(|api, change| {
        if change.path.contains("/pods/load-") && change.object["status"]["phase"] != "Succeeded" {
            api.merge(&change.path, &json!({"status": {"phase": "Succeeded"}}));
        }
    });
    let done = run(&folder, &config, &archive, WITH).run_any();
    assert!(
        done.stderr
            .contains("a privileged pod on each of 2 nodes loaded"),
        "{}",
        done.stderr
    );
    let created = api.requests();
    assert!(
        created
            .iter()
            .any(|line| line.starts_with("DELETE /api/v1/namespaces/sonobuoy-load-")),
        "{created:?}"
    );
}

#[test]
fn node_that_refuses_the_image_is_named() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    node(&api, "n1", &["busybox:1"]);
    api.controller(|api, change| {
        if change.path.contains("/pods/load-") && change.object["status"]["phase"] != "Failed" {
            let state = json!({"terminated": {"message": "the node has no ctr and no k3s\n"}});
            api.merge(
                &change.path,
                &json!({"status": {"phase": "Failed", "containerStatuses": [{"state": state}]}}),
            );
        }
    });
    let done = run(&folder, &config, &archive, WITH).status(1).run_any();
    let told = "loaded into 0 of 1 nodes; node `n1`: the node has no ctr and no k3s";
    assert!(done.stderr.contains(told), "{}", done.stderr);
    assert_eq!(
        api.count("POST /api/v1/namespaces/sonobuoy/pods"),
        0,
        "the run did not start"
    );
}

#[test]
fn parts_in_the_cluster_are_the_archive() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    node(&api, "n1", &["busybox:1"]);
    let found = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeMap::new()));
    let kept = std::sync::Arc::clone(&found);
    api.controller(move |api, change| {
        if change.path.contains("/configmaps/part-") && !change.object.is_null() {
            let data = change.object["binaryData"]["part"]
                .as_str()
                .unwrap_or_default();
            let data = base64::engine::general_purpose::STANDARD
                .decode(data)
                .unwrap();
            kept.lock().unwrap().insert(change.path.to_string(), data);
        }
        if change.path.contains("/pods/load-") && change.object["status"]["phase"] != "Succeeded" {
            api.merge(&change.path, &json!({"status": {"phase": "Succeeded"}}));
        }
    });
    run(&folder, &config, &archive, WITH).run_any();
    let found = found
        .lock()
        .unwrap()
        .values()
        .flatten()
        .copied()
        .collect::<Vec<u8>>();
    assert!(
        found == std::fs::read(&archive).unwrap(),
        "{} bytes",
        found.len()
    );
}

#[test]
fn nodes_that_have_the_image_are_left_alone() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    node(&api, "n1", &[IMAGE]);
    let done = run(&folder, &config, &archive, "").run_any();
    assert!(
        done.stderr.contains("already; nothing was loaded"),
        "{}",
        done.stderr
    );
    assert_eq!(
        api.count("POST /api/v1/namespaces?"),
        api.count("POST /api/v1/namespaces?dryRun"),
        "{:?}",
        api.requests()
    );
}

#[test]
fn kind_loads_into_its_own_cluster() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    node(&api, "n1", &[]);
    let mut document: Value =
        serde_yaml::from_str(&std::fs::read_to_string(&config).unwrap()).unwrap();
    document["contexts"][0]["name"] = json!("kind-demo");
    document["current-context"] = json!("kind-demo");
    let config = folder
        .write("kind.yaml", document.to_string())
        .display()
        .to_string();
    let done = run(&folder, &config, &archive, "")
        .env("PATH", "")
        .status(1)
        .run_any();
    assert!(
        done.stderr
            .contains("the context `kind-demo` needs the program `kind`"),
        "{}",
        done.stderr
    );
    let kind = folder.write(
        "tools/kind",
        format!(
            "#!/bin/sh\necho \"$@\" > {}\n",
            folder.join("called").display()
        ),
    );
    std::fs::set_permissions(kind, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/bin:/usr/bin", folder.join("tools").display());
    let done = run(&folder, &config, &archive, "")
        .env("PATH", path)
        .run_any();
    assert_eq!(
        folder.read("called"),
        format!("load image-archive {archive} --name demo\n"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("into the nodes"), "{}", done.stderr);
}

#[test]
fn unsuitable_archives_and_nodes_are_reported() {
    let (api, folder, config) = untouched();
    let archive = archive(&folder);
    node(&api, "n1", &["nothing:1"]);
    for (words, told) in [
        ("--load-with BusyBox", "--load-with: image `BusyBox`"),
        ("--load=/nope.tar", "/nope.tar"),
        (
            "--sonobuoy-image localhost/sonobuoy:other",
            "add --sonobuoy-image localhost/sonobuoy:load-test",
        ),
    ] {
        let done = run(&folder, &config, &archive, words).status(1).run_any();
        assert!(done.stderr.contains(told), "{words}: {}", done.stderr);
    }
}
