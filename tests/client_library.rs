//! The client library without the command line: a separate program that reports without a worker.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::support::receiver::Certificates;
use super::support::{Archive, Folder, Sonobuoy, program};

#[test]
fn client_library_submits_without_the_program() {
    // Next to the other build output, with the locked versions of the project.
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_BIN_EXE_sonobuoy"))
        .ancestors()
        .nth(2)
        .unwrap();
    let (example, copy) = (
        project.join("tests/client-example"),
        target.join("client-example"),
    );
    std::fs::create_dir_all(copy.join("src/bin")).unwrap();
    let manifest = std::fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("../..", project.to_str().unwrap());
    write_new(&copy.join("Cargo.toml"), manifest.as_bytes());
    write_new(
        &copy.join("src/main.rs"),
        &std::fs::read(example.join("src/main.rs")).unwrap(),
    );
    write_new(
        &copy.join("src/bin/documented.rs"),
        documented("rust").as_bytes(),
    );
    std::fs::copy(project.join("Cargo.lock"), copy.join("Cargo.lock")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline"])
        .current_dir(&copy)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let program = target.join("debug/client-example");
    let submitted = by_itself(&[target.join("debug/documented").to_str().unwrap()]);
    assert_eq!(submitted, ["global"; 1]);

    let certificates = Certificates::new();
    let folder = Folder::new();
    let file = folder.write("report.json", "{}");
    for (argument, body) in [
        (Some(file.as_path()), Some(&b"{}"[..])),
        (Some(folder.path()), None),
        (None, Some(br#"{"error":"no result was named"}"#)),
    ] {
        let aggregator = certificates.serve("127.0.0.1:0".parse().unwrap(), &[]);
        let output = Command::new(&program)
            .args(argument)
            .env_clear()
            .envs(certificates.env(aggregator.address, "own"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.stdout, b"Accepted\n");
        assert_eq!(aggregator.next().line, "POST /api/v1/progress/global/own");
        let got = aggregator.next();
        assert_eq!(got.line, "PUT /api/v1/results/global/own");
        match body {
            Some(body) => assert_eq!(got.body, body),
            None => assert_eq!(got.headers["content-type"], "application/gzip"),
        }
        assert_eq!(
            got.headers.contains_key("x-sonobuoy-error"),
            argument.is_none()
        );
    }

    // The same in a run: the program requests its certificate, and no worker runs.
    for (driver, node) in [("Job", Some("global")), ("DaemonSet", None)] {
        let definition = format!(
            "sonobuoy-config: {{driver: {driver}, plugin-name: own, worker: none}}\n\
             spec: {{name: plugin, command: [{}, {}]}}\n",
            program.display(),
            file.display()
        );
        let run =
            Sonobuoy::new("run --local --local-nodes=2 -p own.yaml").file("own.yaml", &definition);
        let done = run.run_any();
        let archive = Archive::only_one_in(done.folder.path());
        match node {
            Some(node) => assert_eq!(
                archive.text(&format!("plugins/own/results/{node}/report.json")),
                "{}"
            ),
            None => assert_eq!(
                archive
                    .names()
                    .filter(|name| name.ends_with("/report.json"))
                    .count(),
                2
            ),
        }
        assert!(
            !archive
                .names()
                .any(|name| name.ends_with("/sonobuoy-worker.txt")),
            "there is no worker"
        );
    }

    let output = Command::new(&program).env_clear().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("AGGREGATOR_URL, CA_CERT, CLIENT_CERT, CLIENT_KEY"),
        "{said}"
    );
}

/// The program in a language, or the last shell block, of the protocol page.
fn documented(language: &str) -> String {
    let page = include_str!("../docs/protocol.md");
    let block = page.rsplit(&format!("```{language}\n")).next().unwrap();
    block.split("```").next().unwrap().to_owned()
}

/// The nodes from which `command`, a plugin without a worker, submitted `report.json` in a local
/// run.
fn by_itself(command: &[&str]) -> Vec<String> {
    let folder = Folder::new();
    let report = folder.write("report.json", "{}");
    let script = format!("cd {} && \"$@\"", folder.path().display());
    let command = ["sh", "-euc", &script, "sh"]
        .into_iter()
        .chain(command.iter().copied());
    let spec = json!({"name": "plugin", "command": command.collect::<Vec<_>>()});
    let definition = json!({
        "sonobuoy-config": {"driver": "Job", "plugin-name": "own", "worker": "none"}, "spec": spec,
    });
    let run = Sonobuoy::new("run --local -p own.yaml").file("own.yaml", definition.to_string());
    let path = std::env::var("PATH").unwrap();
    let done = run.env("PATH", path).run_any();
    let archive = Archive::only_one_in(done.folder.path());
    drop(report);
    let results = archive
        .names()
        .filter_map(|name| name.strip_prefix("plugins/own/results/"));
    let files = results.filter_map(|name| name.strip_suffix("/report.json"));
    files.map(ToOwned::to_owned).collect()
}

#[test]
fn documented_clients_submit_without_a_worker() {
    if let [Some(_), Some(_)] = ["curl", "openssl"].map(program) {
        let folder = Folder::new();
        let script = folder.write("client.sh", documented("sh"));
        let script = script.to_str().unwrap();
        let prepare =
            "export SONOBUOY_RESULTS_DIR=$PWD/results; mkdir results; cp report.json results; . ";
        assert_eq!(
            by_itself(&["sh", "-euc", &format!("{prepare}{script}")]),
            ["global"]
        );
    }
    if let [Some(python), Some(_)] = ["python3", "openssl"].map(program) {
        let folder = Folder::new();
        let script = folder.write("client.py", documented("python"));
        let words = [
            python.to_str().unwrap(),
            script.to_str().unwrap(),
            "report.json",
        ];
        assert_eq!(by_itself(&words), ["global"]);
    }
    if let Some(go) = program("go") {
        let folder = Folder::new();
        folder.write("client.go", documented("go"));
        let target = Path::new(env!("CARGO_BIN_EXE_sonobuoy"))
            .ancestors()
            .nth(2)
            .unwrap();
        let built = Command::new(go)
            .args(["build", "-o", "client", "client.go"])
            .current_dir(folder.path())
            .env("GOCACHE", target.join("go-cache"))
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0")
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        assert_eq!(
            by_itself(&[folder.join("client").to_str().unwrap(), "report.json"]),
            ["global"]
        );
    }
}

/// Writes a file only if its content differs: a newer one would be rebuilt.
fn write_new(path: &Path, content: &[u8]) {
    if std::fs::read(path).ok().as_deref() != Some(content) {
        std::fs::write(path, content).unwrap();
    }
}
