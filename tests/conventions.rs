//! Habits of kubectl and gh: forms of output, namespaces, dry runs, names of the program.

use serde_json::{Value, json};

use crate::support::cluster::{aggregator_pod, namespace, status, untouched};
use crate::support::system::make_runnable;
use crate::support::{Folder, Sonobuoy};

const FORMS: [&str; 5] = ["json", "yaml", "wide", "name", "markdown"];

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn tables_have_the_forms_of_kubectl() {
    let call = |words: &str| Sonobuoy::new(words).run_any().stdout;
    let modes = parsed(&call("modes -o json"));
    assert!(
        modes
            .as_array()
            .unwrap()
            .iter()
            .any(|mode| mode["name"] == "quick" && mode["parallel"] == "false")
    );
    assert!(call("modes -o name").lines().any(|line| line == "quick"));
    assert!(call("modes -o yaml").contains("name: quick\n"));
    assert!(
        call("modes -o wide").starts_with("NAME "),
        "{}",
        call("modes -o wide")
    );
    assert!(call("modes -o markdown").starts_with("| name | description |"));
    assert_eq!(
        parsed(&call("version -o json"))["version"],
        concat!("v", env!("CARGO_PKG_VERSION"))
    );
    for form in FORMS {
        let listed = Sonobuoy::new(&format!("plugin list -o {form}"));
        let listed = listed.file(
            ".sonobuoy/mine.yaml",
            "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {image: x}\n",
        );
        assert!(listed.run_any().stdout.contains("mine"), "{form}");
    }
    let wrong = Sonobuoy::new("modes -o jsn").status(1).run_any();
    assert!(
        wrong.stderr.contains("json, yaml, wide, name, markdown"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn status_has_the_forms_of_kubectl() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let plugins = json!([{"plugin": "a", "node": "n1", "status": "running", "result-status": ""}]);
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &plugins)),
    );
    let call = |words: &str| {
        Sonobuoy::new(&format!("status --kubeconfig {config} {words}"))
            .run_any()
            .stdout
    };
    assert_eq!(parsed(&call("-o json")), parsed(&call("--json")));
    assert!(
        call("-o yaml").contains("status: running\n"),
        "{}",
        call("-o yaml")
    );
    assert_eq!(call("-o wide"), call("--show-all"));
    assert_eq!(call("-o name"), "a\n");
    assert_eq!(
        call("-o markdown").lines().nth(2),
        Some("| a | n1 | running |  |  |")
    );
    let wrong = Sonobuoy::new(&format!("status --kubeconfig {config} -w -o yaml"))
        .status(1)
        .run_any();
    assert!(
        wrong
            .stderr
            .contains("-o yaml: with --watch it must be one of"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn namespace_comes_from_flag_variable_or_context() {
    let (api, folder, config) = untouched();
    let pod = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods/sonobuoy");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut document: Value = serde_yaml::from_str(&text).unwrap();
    document["contexts"][0]["context"]["namespace"] = json!("team");
    folder.write("team.yaml", document.to_string());
    let add = |namespace: &str, state: &str| {
        let labels = json!({"component": "sonobuoy", "sonobuoy-component": "aggregator"});
        let annotations = json!({"sonobuoy.hept.io/status": status(state, &json!([]))});
        let metadata = json!({"labels": labels, "annotations": annotations});
        api.put(
            &pod(namespace),
            json!({"metadata": metadata, "status": {"phase": "Running"}}),
        );
    };
    add("team", "running");
    add("other", "post-processing");
    let config = folder.join("team.yaml");
    let call = |words: &str| {
        let call = Sonobuoy::new(&format!(
            "status --json --kubeconfig {} {words}",
            config.display()
        ));
        call.env("KUBECONFIG", "").run_any_status()
    };
    assert!(call("").1.contains("running"), "{:?}", call(""));
    assert!(call("-n other").1.contains("post-processing"));
    let by_variable = Sonobuoy::new(&format!("status --json --kubeconfig {}", config.display()));
    by_variable
        .env("SONOBUOY_NAMESPACE", "other")
        .stdout_has("post-processing")
        .run();
    // The run in the usual namespace takes precedence over the context.
    add("sonobuoy", "complete");
    assert!(call("").1.contains("complete"), "{:?}", call(""));
    let printed = Sonobuoy::new("gen -p plugins/hello.yaml").file(
        "plugins/hello.yaml",
        "sonobuoy-config: {driver: Job, plugin-name: hello}\nspec: {image: x}\n",
    );
    printed
        .env("SONOBUOY_NAMESPACE", "mine")
        .stdout_has("namespace: mine\n")
        .run_any();
}

#[test]
fn client_dry_run_prints_objects_and_needs_no_cluster() {
    let definition = "sonobuoy-config: {driver: Job, plugin-name: hello}\nspec: {image: x}\n";
    let printed = Sonobuoy::new("run --dry-run -p hello.yaml --kubernetes-version v1.33.1")
        .file("hello.yaml", definition);
    let text = printed.run_any().stdout;
    assert!(
        text.contains("kind: Namespace\n") && text.contains("kind: Pod\n"),
        "{text}"
    );
}

#[test]
fn server_dry_run_creates_nothing() {
    let (api, folder, config) = untouched();
    folder.write(
        "hello.yaml",
        "sonobuoy-config: {driver: Job, plugin-name: hello}\nspec: {image: x}\n",
    );
    let words = format!("run --dry-run=server --skip-preflight --kubeconfig {config} -p");
    let done = Sonobuoy::new(&words)
        .arg(folder.join("hello.yaml"))
        .run_any();
    assert!(
        done.stdout
            .contains("pod/sonobuoy created (server dry run)\n"),
        "{}{}",
        done.stdout,
        done.stderr
    );
    let created = api.requests().into_iter().filter(|line| {
        line.contains("POST") && !line.contains("dryRun=All") && !line.contains("selfsubject")
    });
    assert_eq!(created.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn kubectl_finds_the_program_and_its_completion() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new();
    let call = |name: &str, words: &[&str]| {
        let link = folder.join(name);
        let _ = symlink(env!("CARGO_BIN_EXE_sonobuoy"), &link);
        let output = std::process::Command::new(link)
            .args(words)
            .env("HOME", folder.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    assert!(call("kubectl-sonobuoy", &["logs", "--help"]).contains("Usage: kubectl sonobuoy logs"));
    let wrong = call("kubectl-sonobuoy", &["logs", "--none"]);
    assert!(
        wrong.contains("Run `kubectl sonobuoy logs --help`"),
        "{wrong}"
    );
    assert_eq!(
        call("kubectl_complete-sonobuoy", &["ret"]),
        "retrieve\tFetch the archive of a run; prints its file name\n:4\n"
    );
    assert!(call("sonobuoy", &["logs", "--help"]).contains("Usage: sonobuoy logs"));
}

#[test]
fn contexts_namespaces_and_archives_complete() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let ask = |words: &str| {
        let call = Sonobuoy::with(["__complete"].into_iter().chain(words.split(' ')));
        call.env("KUBECONFIG", &config)
            .file("202601010000_sonobuoy_a.tar.gz", "")
            .run_any()
            .stdout
    };
    let document: Value = serde_yaml::from_str(&std::fs::read_to_string(&config).unwrap()).unwrap();
    let context = document["contexts"][0]["name"].as_str().unwrap();
    assert!(ask("status --context ").lines().any(|line| line == context));
    assert!(
        ask("status -n so").contains("sonobuoy\n"),
        "{}",
        ask("status -n so")
    );
    let archives = ask("results diff la");
    assert!(archives.starts_with("latest\t"), "{archives}");
    assert!(ask("results 2026").starts_with("202601010000_sonobuoy_a.tar.gz\n"));
}

#[test]
fn results_come_from_the_cluster_and_leave_no_file() {
    let archive = std::fs::read(crate::support::fixture(
        "archives/results-quick-no-failures.tar.gz",
    ))
    .unwrap();
    let run = crate::retrieve::Finished::with(&archive);
    let done = run.results("-p e2e").run_any();
    assert!(
        done.stdout.starts_with("Plugin: e2e\nStatus: passed\n"),
        "{}{}",
        done.stdout,
        done.stderr
    );
    assert_eq!(done.folder.names(), [""; 0]);
    assert_eq!(
        parsed(&run.results("-o json").run_any().stdout)["status"],
        "passed"
    );
    let (_api, _folder, config) = untouched();
    Sonobuoy::new(&format!("results --from-cluster --kubeconfig {config}"))
        .status(1)
        .run_any();
    Sonobuoy::new("results --from-cluster latest")
        .status(1)
        .run_any();
}

#[test]
fn runs_of_all_namespaces_are_listed() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let call = |words: &str| Sonobuoy::new(&format!("status {words} --kubeconfig {config}"));
    call("-A")
        .stdout("NAMESPACE  STATUS  RESULTS  FAILED  MESSAGE\n")
        .stderr_has("no namespace of this cluster has a run")
        .run();
    let plugins = json!([
        {"plugin": "a", "node": "n1", "status": "complete", "result-status": "failed"},
        {"plugin": "a", "node": "n2", "status": "running", "result-status": ""},
    ]);
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &plugins)),
    );
    call("--all-namespaces")
        .stdout(concat!(
            "NAMESPACE  STATUS   RESULTS  FAILED  MESSAGE\n",
            "sonobuoy   running  1/2      1\n",
        ))
        .run();
    assert_eq!(
        parsed(&call("-A -o json").run_any().stdout)[0]["namespace"],
        "sonobuoy"
    );
    call("-o name").stdout("a\n").run();
}

#[test]
fn logs_of_what_does_not_exist_are_an_error() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let plugins =
        json!([{"plugin": "a", "node": "n1", "status": "complete", "result-status": "passed"}]);
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &plugins)),
    );
    for (words, expected) in [
        ("-n typo", "namespace `typo` does not exist"),
        ("-p none", "has no plugin `none`; it has a"),
    ] {
        Sonobuoy::new(&format!("logs {words} --kubeconfig {config}"))
            .status(1)
            .stderr_has(expected)
            .run();
    }
    // Its pods are gone with its result.
    Sonobuoy::new(&format!("logs -p a --kubeconfig {config}"))
        .stderr_has("their logs are in the archive")
        .run();
}

#[cfg(unix)]
#[test]
fn report_is_shown_in_a_browser() {
    let folder = crate::export::run();
    let browser = |script: &str| {
        let path = folder.write("browser", format!("#!/bin/sh\n{script}\n"));
        make_runnable(&path);
        crate::export::results(&folder, "--open")
            .env("BROWSER", path)
            .env("TMPDIR", folder.path())
    };
    let done = browser("cp \"$1\" \"$TMPDIR/seen.html\"").run_any();
    let page = folder.read(
        &done
            .stdout
            .trim()
            .replace(&format!("{}/", folder.path().display()), ""),
    );
    assert!(page.contains("<html"), "{}", done.stdout);
    assert_eq!(folder.read("seen.html"), page);
    let failed = browser("exit 3").status(1).run_any();
    assert!(
        failed
            .stderr
            .contains("cannot show the page: exit status: 3; open `"),
        "{}",
        failed.stderr
    );
}

#[test]
fn logs_take_the_flags_of_kubectl() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    aggregator_pod(&api, json!({"phase": "Running"}), None);
    let spec = json!({"spec": {"containers": [{"name": "kube-sonobuoy"}, {"name": "other"}]}});
    api.merge("/api/v1/namespaces/sonobuoy/pods/sonobuoy", &spec);
    let words =
        format!("logs --kubeconfig {config} -c kube-sonobuoy --tail 5 --since 10m --timestamps");
    Sonobuoy::new(&words).run_any_status();
    let asked: Vec<_> = api
        .requests()
        .into_iter()
        .filter(|line| line.contains("/log?"))
        .collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    for part in [
        "container=kube-sonobuoy",
        "tailLines=5",
        "sinceSeconds=600",
        "timestamps=true",
    ] {
        assert!(asked[0].contains(part), "{asked:?}");
    }
    Sonobuoy::new("logs --tail -1").status(1).run_any();
}

#[test]
fn colours_can_be_forced() {
    let folder = crate::export::run();
    let call = || crate::export::results(&folder, "--mode summary");
    assert!(!call().run_any().stdout.contains("\u{1b}["));
    for variable in ["FORCE_COLOR", "CLICOLOR_FORCE"] {
        let forced = call().env(variable, "1").run_any();
        assert!(forced.stdout.contains("\u{1b}["), "{variable}");
    }
    assert!(
        !call()
            .env("FORCE_COLOR", "1")
            .env("NO_COLOR", "1")
            .run_any()
            .stdout
            .contains("\u{1b}[")
    );
}
