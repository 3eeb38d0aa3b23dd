//! `--retry-failed`: failed tests run again within the same run, and tests that pass then are
//! flaky.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::board::at_terminal;
use super::support::cluster::{Aggregator, Cluster, Worker};
use super::support::{Archive, Folder, Sonobuoy};

/// The tests of [`suite`].
const TESTS: [&str; 4] = [
    "[sig-a] is (fine)",
    "[sig-a] fails once",
    "[sig-b] fails twice",
    "[sig-b] is broken",
];

/// A plugin with a suite like Ginkgo's: runs tests that match `E2E_FOCUS` and not `E2E_SKIP`, lists
/// all of them in its JUnit file, and records the variables of each start in `state`. Each test
/// fails in its first N starts.
pub(super) fn junit_suite(name: &str, state: &str, tests: &[(&str, u32)]) -> String {
    let script = r#"
out=$RESULTS_DIR/junit_01.xml
number=0; until mkdir STATE/lock-$number 2> /dev/null; do number=$((number + 1)); done
echo "$E2E_FOCUS" > STATE/start-$number
echo '<testsuite name="suite"><testcase name="[BeforeSuite]"/>' > $out
run() {
  id=$(echo "$1" | tr -c 'a-z\n' _)
  if ! echo "suite $1" | grep -qE "$E2E_FOCUS" || { [ -n "$E2E_SKIP" ] && echo "suite $1" | grep -qE "$E2E_SKIP"; }; then
    echo "<testcase name=\"[It] $1\"><skipped/></testcase>" >> $out
    return
  fi
  starts=0; while [ -e STATE/of-$id-$starts ]; do starts=$((starts + 1)); done
  echo > STATE/of-$id-$starts
  if [ $starts -ge $2 ]; then
    echo "<testcase name=\"[It] $1\" time=\"1\"/>" >> $out
  else
    echo "<testcase name=\"[It] $1\"><failure message=\"no luck\">start $starts</failure></testcase>" >> $out
  fi
}
TESTS
echo '</testsuite>' >> $out
echo $out > $RESULTS_DIR/done"#;
    let tests: Vec<String> = tests
        .iter()
        .map(|(name, starts)| format!("run '{name}' {starts}"))
        .collect();
    let script = script
        .replace("TESTS", &tests.join("\n"))
        .replace("STATE", state);
    let script = script.replace('$', "$$").replace('\n', "\n    ");
    format!(
        "sonobuoy-config:\n  plugin-name: {name}\n  driver: Job\n  result-format: junit\nspec:\n  name: plugin\n  \
         command: [sh, -c]\n  args:\n  - |{script}\n  env:\n  - {{name: E2E_FOCUS, value: sig}}\n  - {{name: E2E_PARALLEL, value: 'true'}}\n"
    )
}

fn suite(state: &str) -> String {
    let starts = [0, 1, 2, 99];
    junit_suite(
        "suite",
        state,
        &TESTS.into_iter().zip(starts).collect::<Vec<_>>(),
    )
}

/// A run of a suite on this machine, and its state folder.
pub(super) fn local_of(suite: impl Fn(&str) -> String, words: &str) -> (Sonobuoy, Folder) {
    let state = Folder::new();
    let run = Sonobuoy::new(&format!("run --local -p suite.yaml {words}"));
    let definition = suite(&state.path().display().to_string());
    let tmp = run.folder().join("tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    (run.file("suite.yaml", definition).env("TMPDIR", tmp), state)
}

fn local(words: &str) -> (Sonobuoy, Folder) {
    local_of(suite, words)
}

/// The variables of each start.
pub(super) fn starts(state: &Folder) -> Vec<String> {
    let mut names: Vec<String> = state
        .names()
        .into_iter()
        .filter(|name| name.starts_with("start-"))
        .collect();
    names.sort();
    names.iter().map(|name| state.read(name)).collect()
}

#[test]
fn test_passing_on_retry_is_flaky_with_all_attempts() {
    let (run, state) = local("--retry-failed 2 --junit out.xml --html out.html --fail-on failed");
    let done = run.status(3).stdout_has("Flaky tests:").run_any();
    assert_eq!(starts(&state).len(), 3);
    let quoted = |names: &[&str]| {
        let names = names
            .iter()
            .map(|name| name.replace('[', r"\[").replace(']', r"\]"));
        format!("(^| )({})$\n", names.collect::<Vec<_>>().join("|"))
    };
    assert_eq!(state.read("start-1"), quoted(&TESTS[1..]));
    assert_eq!(state.read("start-2"), quoted(&TESTS[2..]));

    let archive = Archive::only_one_in(done.folder.path());
    assert_eq!(archive.text("meta/info.json"), r#"{"plugins":["suite"]}"#);
    assert!(
        archive
            .text("meta/config.json")
            .contains(r#""RetryFailed":2"#)
    );
    let tree = archive.text("plugins/suite/sonobuoy_results.yaml");
    assert_eq!(tree.matches("status: flaky").count(), 2, "{tree}");
    for attempt in ["suite-retry-1", "suite-retry-2"] {
        let definition = archive.text(&format!("plugins/{attempt}/definition.json"));
        assert!(
            definition.contains(r#""part-of":"suite""#) && definition.contains("fails twice"),
            "{definition}"
        );
        assert!(
            definition.contains(r#"{"name":"E2E_PARALLEL","value":"false"}"#),
            "{definition}"
        );
        assert!(
            archive
                .text(&format!("plugins/{attempt}/results/global/junit_01.xml"))
                .contains("[sig-a]")
        );
        assert!(
            !archive
                .names()
                .any(|name| name == format!("plugins/{attempt}/sonobuoy_results.yaml"))
        );
    }
    let junit = done.folder.read("out.xml");
    let flaky = |name: &str, starts: &[u32]| {
        let failed = |start: &u32| {
            format!(
                r#"<flakyFailure type="failed" message="no luck start {start}">no luck start {start}</flakyFailure>"#
            )
        };
        let inside = starts.iter().map(failed).collect::<String>();
        let head = format!(
            r#"<testcase name="[It] {name}" classname="suite.junit_01.xml.suite" time="0">"#
        );
        format!("{head}{inside}</testcase>")
    };
    assert!(
        junit.contains(&flaky(TESTS[1], &[0])) && junit.contains(&flaky(TESTS[2], &[0, 1])),
        "{junit}"
    );
    assert_eq!(junit.matches("<rerunFailure ").count(), 2, "{junit}");
    assert!(junit.contains(r#"tests="5" failures="1""#), "{junit}");
    assert!(done.folder.read("out.html").contains("<b>2</b> flaky"));
}

#[test]
fn reports_mark_flaky_tests_and_strict_mode_fails() {
    let (run, _state) = local("--retry-failed 2 --plugin-env suite.E2E_FOCUS=fails --retrieve out");
    let done = run.stdout_has("flaky: 2").run_any();
    let archive = done.folder.join("out");
    let archive = std::fs::read_dir(archive)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let archive = archive
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "gz"))
        .unwrap();
    let results = |words: &str| Sonobuoy::new("results").arg(&archive).arg(words);
    results("--fail-on=unknown").run_any();
    results("--fail-on=flaky")
        .status(3)
        .stderr_has("2 tests are flaky in suite")
        .run_any();
    results("--format=json")
        .stdout_has(r#""flaky":2"#)
        .stdout_has(r#""attempts":[{"failure":"no luck start 0""#)
        .run_any();
    let read = Sonobuoy::new("results")
        .arg(&archive)
        .env("NO_COLOR", "1")
        .env("TERM", "xterm");
    let (shown, _) = at_terminal(read, 120, 50);
    assert!(
        shown.contains("passed, 2 flaky") && shown.contains("suite: [sig-b] fails twice"),
        "{shown}"
    );
}

#[test]
fn durations_come_from_an_earlier_archive() {
    let (run, _state) = local_of(
        |state| junit_suite("e2e", state, &TESTS.map(|name| (name, 0))),
        "--retrieve out",
    );
    let done = run.run_any();
    let path = std::fs::read_dir(done.folder.join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = path
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "gz"))
        .unwrap();
    let (run, _state) = local("--estimate-from");
    run.arg(&path).run_any();
    let (run, state) = local("--estimate-from");
    run.arg("missing")
        .status(1)
        .stderr_has("--estimate-from missing")
        .run_any();
    assert!(starts(&state).is_empty());
}

#[test]
fn passing_plugins_are_not_retried() {
    let (run, state) = local("--retry-failed 3 --plugin-env suite.E2E_FOCUS=fine");
    run.run_any();
    assert_eq!(starts(&state).len(), 1);
    let (run, state) = local("--plugin-env suite.E2E_FOCUS=sig");
    run.run_any();
    assert_eq!(starts(&state).len(), 1);
}

#[test]
fn plugin_without_results_is_not_retried() {
    let (run, state) = local_of(
        |_| junit_suite("suite", "/nowhere/else", &[("a", 0)]),
        "--retry-failed 2",
    );
    let definition = std::fs::read_to_string(run.folder().join("suite.yaml")).unwrap();
    let broken = definition.replace("    out=$", "    exit 7\n    out=$");
    assert_ne!(definition, broken);
    let done = run.file("suite.yaml", broken).status(1).run_any();
    let archive = Archive::only_one_in(done.folder.path());
    assert!(
        archive
            .text("plugins/suite/errors/global/error.json")
            .contains("exit code 7")
    );
    assert!(!archive.names().any(|name| name.contains("suite-retry")) && state.names().is_empty());
}

#[test]
fn impossible_retry_is_rejected_before_the_run() {
    for (words, expected) in [
        (
            "--retry-failed 11",
            "for \"--retry-failed\": write a number from 0 to 10",
        ),
        (
            "--retry-failed=-1",
            "for \"--retry-failed\": write a number from 0 to 10",
        ),
        (
            "-p e2e --retry-failed 1 --mode certified-conformance",
            "certified conformance requires tests that pass the first time",
        ),
        (
            "--retry-failed 1 --plugin-env suite.E2E_FOCUS",
            "no plugin of this run can be told which tests to run",
        ),
    ] {
        let (run, state) = local(words);
        run.status(1).stderr_has(expected).run_any();
        assert!(state.names().is_empty(), "{words}");
    }
}

#[test]
fn retry_without_results_keeps_the_failures() {
    let (run, state) = local("--retry-failed 3 --fail-on failed");
    // From its second start on, the plugin ends without a result.
    let definition = std::fs::read_to_string(run.folder().join("suite.yaml")).unwrap();
    let broken = definition.replace(
        "    echo '<testsuite",
        "    [ $$number = 0 ] || exit 7\n    echo '<testsuite",
    );
    assert_ne!(definition, broken);
    let done = run.file("suite.yaml", broken).status(3).run_any();
    let archive = Archive::only_one_in(done.folder.path());
    let tree = archive.text("plugins/suite/sonobuoy_results.yaml");
    assert_eq!(tree.matches("no luck start 0").count(), 3, "{tree}");
    assert!(
        archive
            .text("plugins/suite-retry-1/errors/global/error.json")
            .contains("exit code 7")
    );
    // Every attempt is made, since a later one may succeed.
    assert_eq!(starts(&state).len(), 4);
}

/// The results of a suite of three tests: `.` passed, `F` failed, `-` did not run.
fn sent(outcomes: &str) -> String {
    let cases = ["a", "b", "c"]
        .into_iter()
        .zip(outcomes.chars())
        .map(|(name, outcome)| {
            let inside = match outcome {
                'F' => "<failure message='no'>no</failure>",
                '-' => "<skipped/>",
                _ => "",
            };
            format!("<testcase name='[It] {name}'>{inside}</testcase>")
        });
    format!("<testsuite>{}</testsuite>", cases.collect::<String>())
}

/// The same run, resumed by another process.
fn restarted(cluster: &Cluster, mut aggregator: Aggregator) -> Aggregator {
    aggregator.child.kill().unwrap();
    aggregator.child.wait().unwrap();
    let aggregator = cluster.start("");
    let server = &cluster.settings["Server"]["advertiseaddress"];
    cluster
        .api
        .wait(|_| TcpStream::connect(server.as_str().unwrap()).is_ok());
    aggregator
}

#[test]
fn restarted_aggregator_resumes_its_attempt() {
    let definition = "sonobuoy-config: {driver: Job, plugin-name: suite, result-format: junit}\n\
                      spec: {name: plugin, image: i, env: [{name: E2E_FOCUS, value: all}]}\n";
    let cluster = Cluster::new(&["a"]).set("RetryFailed", json!(2));
    cluster.folder.write("plugins.d/suite.yaml", definition);
    let focus = |plugin: &str| {
        let pod = cluster.pod_on(plugin, "global");
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let env = containers
            .iter()
            .find(|one| one["name"] == "plugin")
            .unwrap()["env"]
            .as_array()
            .unwrap();
        let focus = env.iter().find(|one| one["name"] == "E2E_FOCUS").unwrap();
        focus["value"].as_str().unwrap().to_owned()
    };
    let pods = |attempt: &str| -> Vec<Value> {
        cluster
            .pods(attempt)
            .iter()
            .map(|pod| pod["metadata"]["uid"].clone())
            .collect()
    };
    let send =
        |worker: &Worker, outcomes: &str| worker.send_file("global", "junit.xml", &sent(outcomes));

    let aggregator = cluster.start("");
    assert_eq!(send(&cluster.worker("suite"), "FF."), 200);
    let first = cluster.worker("suite-retry-1");
    assert_eq!(focus("suite-retry-1"), "(^| )(a|b)$");
    let started = pods("suite-retry-1");
    let aggregator = restarted(&cluster, aggregator);
    // The same attempt, with a worker unaware of the restart.
    assert_eq!(send(&first, ".F-"), 200);
    let second = cluster.worker("suite-retry-2");
    assert_eq!(
        (pods("suite-retry-1"), started.len()),
        (started, 1),
        "the attempt is not started twice"
    );
    assert_eq!(focus("suite-retry-2"), "(^| )(b)$");
    let aggregator = restarted(&cluster, aggregator);
    assert_eq!(send(&first, "FF-"), 409, "it has been taken");
    assert_eq!(send(&second, "-.-"), 200);
    aggregator.ends_well();

    let archive = cluster.archive();
    let focused = |attempt: &str| {
        let path = format!("plugins/{attempt}/definition.json");
        let definition: Value = serde_json::from_str(&archive.text(&path)).unwrap();
        definition["Definition"]["spec"]["env"][0]["value"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        ["suite-retry-1", "suite-retry-2"].map(focused),
        ["(^| )(a|b)$", "(^| )(b)$"]
    );
    let tree = archive.text("plugins/suite/sonobuoy_results.yaml");
    let attempts = |name: &str| {
        let test = tree
            .split(&format!("[It] {name}'"))
            .nth(1)
            .unwrap_or_else(|| panic!("{tree}"));
        let test = test.split("- name").next().unwrap();
        assert_eq!(test.contains("status: flaky"), name != "c", "{test}");
        ["status: failed", "status: passed"].map(|status| test.matches(status).count())
    };
    assert_eq!(
        ["a", "b", "c"].map(attempts),
        [[1, 1], [2, 1], [0, 1]],
        "{tree}"
    );
    for (attempt, outcomes) in [("suite-retry-1", ".F-"), ("suite-retry-2", "-.-")] {
        assert_eq!(
            archive.text(&format!("plugins/{attempt}/results/global/junit.xml")),
            sent(outcomes)
        );
    }
}
