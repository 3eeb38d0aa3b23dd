//! Live output during a run: the board at a terminal, plain lines in a pipe.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty;
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use super::images::{fill, plugin};
use super::retrieve::{Finished, noise};
use super::support::Sonobuoy;
use super::support::cluster::{AGGREGATOR, STATUS, aggregator_pod, namespace, status, untouched};
use super::support::registry::{Habits, Registry};
use super::support::watchdog::Watchdog;

/// A plugin on five nodes; the second one fails.
const PLUGIN: &str = r#"
sonobuoy-config: {driver: DaemonSet, plugin-name: probe}
spec:
  command: [sh, -c]
  args: ['case $NODE_NAME in *-2) echo no disk here >&2; exit 3;; esac; echo x > $RESULTS_DIR/x; echo $RESULTS_DIR/x > $RESULTS_DIR/done']
"#;

fn local(words: &str) -> Sonobuoy {
    let run = Sonobuoy::new(&format!(
        "run --local -p plugin.yaml --local-nodes=5 {words}"
    ));
    let folder: PathBuf = run.folder();
    run.file("plugin.yaml", PLUGIN).env("TMPDIR", folder)
}

/// Runs at a terminal of this size; returns everything printed and the exit code.
pub(super) fn at_terminal(run: Sonobuoy, columns: u16, rows: u16) -> (String, Option<i32>) {
    let master = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
    pty::grantpt(&master).unwrap();
    pty::unlockpt(&master).unwrap();
    let name = pty::ptsname(&master, Vec::new()).unwrap();
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).unwrap();
    let (mut command, _folder) = run.command();
    command
        .stdout(Stdio::from(slave.try_clone().unwrap()))
        .stderr(Stdio::from(slave));
    let mut child = command.spawn().unwrap();
    // The command's copies of the terminal would keep the reader open.
    drop(command);
    let watchdog = Watchdog::over(&child);
    let (mut sent, mut piece) = (Vec::new(), [0; 4096]);
    let mut master = File::from(master);
    // Linux reports a closed peer as an error.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        sent.extend_from_slice(&piece[..count]);
    }
    let code = child.wait().unwrap().code();
    assert!(!watchdog.bit());
    (String::from_utf8(sent).unwrap(), code)
}

/// The number of lines that each frame moves up.
fn moves(sent: &str) -> Vec<usize> {
    let starts = sent.split("\x1b[").filter_map(|rest| rest.split_once('A'));
    starts
        .filter_map(|(number, _)| number.parse().ok())
        .collect()
}

#[test]
fn board_redraws_in_place_and_ends_as_plain_lines() {
    for (columns, rows) in [(80, 24), (40, 8), (200, 60)] {
        let (sent, _) = at_terminal(local("").env("TERM", "xterm"), columns, rows);
        let moves = moves(&sent);
        assert!(!moves.is_empty(), "{sent}");
        assert!(
            moves.iter().all(|up| *up < usize::from(rows)),
            "{moves:?} in {rows} rows"
        );
        // Text after the last erasure is permanent.
        let stays = sent.rsplit("\x1b[J").next().unwrap();
        assert!(
            stays.contains("probe: 5 of 5 nodes done, 1 failed, after 0:0"),
            "{stays}"
        );
        assert!(stays.contains("FAILED"), "{stays}");
        assert_eq!(
            sent.matches("WARN").count(),
            0,
            "the board shows the failure: {sent}"
        );
    }
}

#[test]
fn board_is_off_without_a_terminal_or_on_request() {
    for (term, words) in [
        ("dumb", ""),
        ("xterm", "--output=plain"),
        ("dumb", "--output=board"),
    ] {
        let (sent, _) = at_terminal(local(words).env("TERM", term).env("NO_COLOR", "1"), 80, 24);
        assert!(!sent.contains('\x1b'), "{sent}");
        assert!(
            sent.contains("probe: 5 of 5 nodes done, 1 failed"),
            "{sent}"
        );
        assert_eq!(
            sent.contains("--output board needs a terminal"),
            words.ends_with("board"),
            "{sent}"
        );
    }
    let (sent, _) = at_terminal(local("").env("TERM", "xterm").env("NO_COLOR", "1"), 80, 24);
    assert!(
        !moves(&sent).is_empty()
            && ["\x1b[31m", "\x1b[32m", "\x1b[2m"]
                .iter()
                .all(|colour| !sent.contains(colour)),
        "{sent}"
    );
}

#[test]
fn stdout_contains_only_events() {
    let done = local("--output json --retrieve out").run_any();
    let events: Vec<Value> = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(kinds.last(), Some(&"archive"), "{kinds:?}");
    let last = events
        .iter()
        .rfind(|event| event["event"] == "task")
        .unwrap();
    assert_eq!(
        (&last["done"], &last["total"], &last["failed"]),
        (&5.into(), &5.into(), &1.into())
    );
    let trouble = events
        .iter()
        .find(|event| event["event"] == "trouble")
        .unwrap();
    assert!(
        trouble["cause"].as_str().unwrap().contains("no disk here"),
        "{trouble}"
    );
    let end = events
        .iter()
        .rfind(|event| event["event"] == "state")
        .unwrap();
    assert_eq!(end["state"], "complete");
    let path = events.last().unwrap()["path"].as_str().unwrap();
    assert!(
        done.folder.join(path).exists() && path.ends_with(end["product"].as_str().unwrap()),
        "{path}"
    );
}

#[test]
fn transfers_show_progress_and_end_as_a_line() {
    let (from, to) = (
        Registry::start(Habits::default()),
        Registry::start(Habits::default()),
    );
    fill(&from, "team/tool", true);
    let image = format!("{}/team/tool:1", from.host());
    let words = "images push -p p.yaml --platform all --custom-registry";
    let push = || {
        Sonobuoy::new(words)
            .arg(to.host())
            .file("p.yaml", plugin(&image))
            .env("TERM", "xterm")
    };
    let (sent, code) = at_terminal(push(), 100, 24);
    assert_eq!(code, Some(0), "{sent}");
    assert!(
        !moves(&sent).is_empty() && sent.contains("tool:1") && sent.contains(" of 40.0 MiB"),
        "{sent}"
    );
    let stays = sent.rsplit("\x1b[J").next().unwrap();
    assert!(
        stays.contains("all: 1 of 1 image done, after 0:0"),
        "{stays}"
    );
    // Without a terminal: a line per change, and the usual stdout.
    let name = format!("{}/tool:1\n", to.host());
    push()
        .stdout(&name)
        .stderr_has("all: 1 of 1 image done")
        .run();

    let run = Finished::with(&noise(3 << 20));
    let (sent, code) = at_terminal(run.retrieve("").env("TERM", "xterm"), 80, 24);
    assert_eq!(code, Some(0), "{sent}");
    assert!(sent.contains("archive: 3.0 MiB, after 0:0"), "{sent}");
    assert!(sent.trim_end().ends_with(".tar.gz"), "{sent}");
}

#[test]
fn board_of_three_hundred_nodes_fits_the_window() {
    let (api, folder, config) = untouched();
    namespace(&api);
    let entries = |done: u64| -> Vec<Value> {
        let entry = |node: u64| {
            let (state, result) = if node < done {
                ("complete", "passed")
            } else {
                ("running", "")
            };
            let mut entry = json!({"plugin": "probe", "node": format!("node-{node}"), "status": state,
                "result-status": result, "result-counts": null});
            if node % 10 == 7 {
                entry["message"] = json!(format!(
                    "Failed to pull image on `node-{node}`: {}",
                    "no way ".repeat(30)
                ));
            }
            entry
        };
        (0..300).map(entry).collect()
    };
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&status("running", &json!(entries(100)))),
    );
    std::thread::scope(|scope| {
        let watch = Sonobuoy::new(&format!("status --watch --kubeconfig {config}"));
        let watch = scope.spawn(|| at_terminal(watch.env("TERM", "xterm"), 80, 24));
        api.wait(|api| api.count("GET /api/v1/namespaces/sonobuoy/pods") > 2);
        let complete = status("complete", &json!(entries(300)));
        api.merge(
            AGGREGATOR,
            &json!({"metadata": {"annotations": {(STATUS): complete}}}),
        );
        let (sent, code) = watch.join().unwrap();
        assert_eq!(code, Some(0), "{sent}");
        assert!(moves(&sent).iter().all(|up| *up < 24), "{sent}");
        let stays = sent.rsplit("\x1b[J").next().unwrap();
        assert!(
            stays.contains("probe: 300 of 300 nodes done, passed"),
            "{stays}"
        );
        assert!(stays.lines().count() < 24, "{stays}");
    });
    drop(folder);
}

#[test]
fn failed_plugin_is_not_reported_as_done() {
    let plugin = |script: &str| {
        let text = format!(
            "sonobuoy-config: {{driver: Job, plugin-name: acceptance, result-format: junit}}\nspec: {{command: [sh, -c], args: ['{script}']}}\n"
        );
        // A passing plugin, so that the run has a result.
        let other = "sonobuoy-config: {driver: Job, plugin-name: other}\nspec: {command: [sh, -c, 'echo x > $RESULTS_DIR/x; echo $RESULTS_DIR/x > $RESULTS_DIR/done']}\n";
        Sonobuoy::new("run --local -p plugin.yaml -p other.yaml")
            .file("plugin.yaml", text)
            .file("other.yaml", other)
    };
    let done = plugin("exit 1").arg("--output").arg("plain").run_any();
    assert!(
        done.stderr.contains("acceptance: failed, after ")
            && !done.stderr.contains("acceptance: done"),
        "{}",
        done.stderr
    );
    let broken = || {
        plugin(
            "echo \"<testsuites><x\" > $RESULTS_DIR/a.xml; echo $RESULTS_DIR/a.xml > $RESULTS_DIR/done",
        )
    };
    let done = broken().arg("--output").arg("plain").run_any();
    let warned = "cannot read the result";
    assert!(
        done.stderr.contains(warned) && done.stderr.contains("level=warning"),
        "{}",
        done.stderr
    );
    let (sent, _) = at_terminal(broken(), 120, 40);
    let line = sent
        .lines()
        .find(|line| line.contains(warned))
        .unwrap_or_else(|| panic!("{sent}"));
    assert!(line.contains("WARN") && !line.contains("level="), "{line}");
}

#[test]
fn elapsed_time_stops_with_the_archive() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let mut run: Value = serde_json::from_str(&status("complete", &json!([]))).unwrap();
    run["tar-info"]["created"] = "2024-01-01T00:00:37Z".into();
    run["tar-info"]["name"] = "x.tar.gz".into();
    aggregator_pod(&api, json!({"phase": "Running"}), Some(&run.to_string()));
    let watch = format!("status --watch --output json --kubeconfig {config}");
    let done = Sonobuoy::new(&watch).run_any();
    let event: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert!(
        (37..60).contains(&event["elapsed"].as_u64().unwrap()),
        "{event}"
    );
}

#[test]
fn wait_for_an_archive_prints_its_path_or_the_report() {
    let archive = super::support::fixture("archives/results-quick-no-failures.tar.gz");
    let run = Finished::with(&std::fs::read(archive).unwrap());
    for words in ["", "--output plain"] {
        let done = run.wait(&format!("--retrieve out {words}")).run_any();
        let [path] = done.stdout.lines().collect::<Vec<_>>()[..] else {
            panic!("{words}: {}", done.stdout)
        };
        assert!(done.folder.join(path).exists(), "{path}");
        assert!(done.stderr.contains("complete"), "{words}: {}", done.stderr);
    }
    // Without an archive, the lines are data, as in the original.
    let done = run.wait("").run_any();
    assert!(
        done.stdout.contains("Sonobuoy has completed."),
        "{}",
        done.stdout
    );

    let (sent, _) = at_terminal(run.wait("--retrieve out").env("TERM", "xterm"), 80, 24);
    let stays = sent.rsplit("\x1b[J").next().unwrap();
    assert!(
        stays.contains("Next:") && stays.contains("Archive: out/"),
        "{stays}"
    );
    let (sent, _) = at_terminal(run.wait("").env("TERM", "xterm"), 80, 24);
    assert!(
        sent.contains("`sonobuoy results --from-cluster --namespace sonobuoy` reports on it"),
        "{sent}"
    );
}

#[test]
fn upload_shows_the_bytes_that_were_sent() {
    super::upload::store(
        |_, _| 200,
        |url, _| {
            let run = local("").arg("--upload").arg(format!("{url}/runs/"));
            let (sent, _) = at_terminal(run.env("TERM", "xterm"), 80, 24);
            let line = sent.lines().find(|line| line.contains("archive: "));
            let line = line.unwrap_or_else(|| panic!("{sent}"));
            assert!(line.contains(" KiB, after 0:0"), "{line}");
        },
    );
}
