//! `--split`: a plugin's tests in parallel parts; `--resume`: the remaining tests of an interrupted
//! run; and the names of running tests.

use std::path::{Path, PathBuf};

use super::retry::{junit_suite, local_of, starts};
use super::run::cluster;
use super::support::{Archive, Sonobuoy, program};

const NAMES: &str = "[sig-a] a [Conformance]\n[sig-a] b [Conformance]\n[sig-b] c [Conformance]\n[sig-b] d [Serial] [Conformance]\n[sig-b] e\n";

/// A suite of these tests, of which `c` fails at the first start of its part.
fn suite(state: &str) -> String {
    junit_suite(
        "e2e",
        state,
        &NAMES
            .lines()
            .map(|name| (name, if name.contains(" c ") { 1 } else { 0 }))
            .collect::<Vec<_>>(),
    )
    .replace("value: sig}", "value: Conformance}")
}

fn archive_in(folder: &Path) -> PathBuf {
    let path = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    path.into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "gz"))
        .unwrap()
}

#[test]
fn parallel_parts_become_one_result() {
    let (run, state) = local_of(
        suite,
        "--split 2 --tests names --retry-failed 1 --retrieve out --junit out.xml --fail-on unknown",
    );
    let done = run.file("names", NAMES).run_any();
    let focuses = starts(&state);
    let focused = |test: &str| focuses.iter().filter(|focus| focus.contains(test)).count();
    // `c` is in its part and in the attempt; unselected tests are in neither.
    assert_eq!(
        [" a ", " b ", " c ", " d ", " e"].map(focused),
        [1, 1, 2, 1, 0],
        "{focuses:?}"
    );
    assert_eq!(
        focuses.len(),
        4,
        "two parts, the one that runs alone, and the attempt"
    );
    let archive = Archive::only_one_in(&done.folder.join("out"));
    assert_eq!(archive.text("meta/info.json"), r#"{"plugins":["e2e"]}"#);
    for part in ["e2e", "e2e-part-2", "e2e-serial", "e2e-retry-1"] {
        assert!(
            archive
                .text(&format!("plugins/{part}/results/global/junit_01.xml"))
                .contains("<testsuite")
        );
    }
    let junit = done.folder.read("out.xml");
    assert_eq!(
        junit.matches("<testcase ").count(),
        6,
        "each test once, and what the suite begins with: {junit}"
    );
    assert_eq!(
        (
            junit.matches("<flakyFailure").count(),
            junit.matches("<skipped").count()
        ),
        (1, 1),
        "{junit}"
    );
    let log = archive.text("meta/run.log");
    assert!(
        log.contains("starting plugins of order 0: e2e, e2e-part-2")
            && log.contains("of order 1: e2e-serial")
    );
}

#[test]
fn unsplittable_plugin_is_rejected_before_the_run() {
    for (words, expected) in [
        (
            "--split 1 --tests names",
            "for \"--split\": write a number from 2 to 20",
        ),
        (
            "--split 21 --tests names",
            "for \"--split\": write a number from 2 to 20",
        ),
        ("--split 2 --tests missing", "cannot read `missing`"),
        ("--split 2 --tests empty", "`empty` lists no tests"),
        (
            "--split 2 --tests names --plugin-env e2e.E2E_FOCUS=Serial",
            "nothing to split",
        ),
        (
            "--split 2 --tests names --plugin-env e2e.E2E_FOCUS",
            "no plugin of this run can be told which tests to run",
        ),
        (
            "--split 2 --tests names --mode certified-conformance",
            "certified conformance requires tests that run one after the other",
        ),
    ] {
        let (run, state) = local_of(suite, words);
        run.file("names", NAMES)
            .file("empty", "\n")
            .status(1)
            .stderr_has(expected)
            .run_any();
        assert!(state.names().is_empty(), "{words}");
    }
}

#[test]
fn run_continues_the_tests_of_an_interrupted_one() {
    // /dev/tcp of bash sends progress.
    if program("bash").is_none() {
        return;
    }
    let lost = |state: &str, told: &str| {
        // The plugin is lost after some tests; only its progress remains.
        let script = r#"
for test in TOLD 'Suite goes on'; do
  body="{\"msg\":\"$test\",\"total\":4,\"completed\":1}"
  exec 3<>/dev/tcp/127.0.0.1/$SONOBUOY_PROGRESS_PORT
  printf 'POST /progress HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' ${#body} "$body" >&3
  cat <&3 > /dev/null
done
exit 9"#;
        let whole = suite(state);
        let (head, env) = (
            whole.split("  command:").next().unwrap(),
            whole.split("  env:").nth(1).unwrap(),
        );
        let script = script
            .replace("TOLD", told)
            .replace('$', "$$")
            .replace('\n', "\n    ");
        format!("{head}  command: [bash, -c]\n  args:\n  - |{script}\n  env:{env}")
    };
    let both = |state: &str| {
        lost(
            state,
            "'PASSED [sig-a] a [Conformance]' 'FAILED [sig-a] b [Conformance]'",
        )
    };
    let (run, _state) = local_of(both, "--retrieve out --plugin-env e2e.E2E_SKIP=nothing");
    let first = run.status(1).run_any();
    let archive = first.folder.join("out");
    let kept = Archive::only_one_in(&archive);
    assert_eq!(
        kept.text("meta/ran/e2e.txt"),
        "PASSED [sig-a] a [Conformance]\nFAILED [sig-a] b [Conformance]\n"
    );

    let path = archive_in(&archive);
    let resume = |words: &str| {
        let (run, state) = local_of(suite, words);
        (run.arg("--resume").arg(&path), state)
    };
    let (run, _state) = resume("--retrieve out --html out.html --junit out.xml");
    let done = run.run_any();
    let rest = Archive::only_one_in(&done.folder.join("out"));
    let definition = rest.text("plugins/e2e/definition.json");
    assert!(
        definition.contains(
            r#""E2E_SKIP","value":"nothing|(^| )(\\[sig-a\\] a \\[Conformance\\]|\\[sig-a\\] b"#
        ),
        "{definition}"
    );
    let before = kept.text("meta/config.json");
    let run = before
        .split(r#""UUID":""#)
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    assert!(
        rest.text("meta/config.json")
            .contains(&format!(r#""Resumes":"{run}""#))
    );
    assert!(
        done.folder
            .read("out.html")
            .contains(&format!("<dt>Continues run</dt><dd>{run}</dd>"))
    );
    // Tests in both runs are one result, with the statements of the first.
    let junit = done.folder.read("out.xml");
    let of_first =
        format!("<system-out>ran in run {run}, which this one continues</system-out></testcase>");
    let case = |name: &str| {
        let from = junit
            .split(&format!("<testcase name=\"[It] {name}\""))
            .nth(1)
            .unwrap_or_else(|| panic!("{junit}"));
        from.split_inclusive("</testcase>")
            .next()
            .unwrap()
            .to_owned()
    };
    assert!(
        case("[sig-a] a [Conformance]").ends_with(&format!(">{of_first}")),
        "{junit}"
    );
    assert!(
        case("[sig-a] b [Conformance]")
            .contains("<failure type=\"failed\" message=\"failed\">failed</failure>"),
        "{junit}"
    );
    assert!(
        case("[sig-a] b [Conformance]").ends_with(&of_first)
            && case("[sig-b] c [Conformance]").contains("no luck"),
        "{junit}"
    );
    assert_eq!(
        (
            junit.matches("<testcase ").count(),
            junit.matches("ran in run").count()
        ),
        (6, 2),
        "{junit}"
    );
    let tree = rest.text("plugins/e2e/sonobuoy_results.yaml");
    assert_eq!(
        tree.matches(&format!("resumed: {run}")).count(),
        2,
        "{tree}"
    );
    Sonobuoy::new("certify")
        .arg(archive_in(&done.folder.join("out")))
        .status(3)
        .stdout_has("but all tests must run in one: run without `--resume`")
        .stderr_has("was not checked: the certificate")
        .run();

    // A continued run that was interrupted, too, contains both.
    let (run, _state) = local_of(
        |state| lost(state, "'PASSED [sig-b] c [Conformance]'"),
        "--retrieve out",
    );
    let second = run.arg("--resume").arg(&path).status(1).run_any();
    let (run, _state) = local_of(suite, "--junit out.xml");
    let third = run
        .arg("--resume")
        .arg(archive_in(&second.folder.join("out")))
        .run_any();
    let junit = third.folder.read("out.xml");
    assert_eq!(
        (
            junit.matches("ran in run").count(),
            junit.matches("<failure").count()
        ),
        (3, 1),
        "{junit}"
    );

    let (again, _state) = resume("--e2e-focus x");
    again
        .status(1)
        .stderr_has("--e2e-focus and --resume cannot be used together")
        .run_any();
    // A completed run has no remaining tests.
    let end = archive_in(&done.folder.join("out"));
    Sonobuoy::new("run --local -p e2e.yaml --resume")
        .arg(end)
        .file("e2e.yaml", suite("/nowhere"))
        .status(1)
        .stderr_has("all of its tests have run; `--rerun-failed` runs the failed ones again")
        .run_any();
}

#[test]
fn running_tests_are_named_except_in_certified_runs() {
    let words = "-v --poll-progress-after=1m --poll-progress-interval=10m";
    for (flags, version, expected) in [
        ("", "v1.33.1", Some(words.to_owned())),
        (
            "--plugin-env e2e.E2E_EXTRA_ARGS_SEP=,",
            "v1.25.0",
            Some(words.replace(' ', ",")),
        ),
        (
            "--plugin-env e2e.E2E_EXTRA_GINKGO_ARGS=--seed=7",
            "v1.33.1",
            Some("--seed=7".to_owned()),
        ),
        ("--plugin-env e2e.E2E_EXTRA_GINKGO_ARGS=", "v1.33.1", None),
        ("--mode Certified-Conformance", "v1.33.1", None),
        ("", "v1.24.17", None),
    ] {
        let (api, _folder, config) = cluster();
        api.raw("/version", 200, format!(r#"{{"gitVersion": "{version}"}}"#));
        let run = Sonobuoy::new(&format!(
            "run --kubeconfig {config} --rbac Enable -p e2e {flags}"
        ));
        run.stderr_has("create request issued").run();
        let plugins = api
            .get("/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-plugins-cm")
            .unwrap();
        let definition = plugins["data"]["plugin-0.yaml"].as_str().unwrap();
        let name = definition.find("name: E2E_EXTRA_GINKGO_ARGS");
        let value = name.map(|at| {
            definition[at..]
                .split("value: ")
                .nth(1)
                .unwrap()
                .lines()
                .next()
                .unwrap()
        });
        assert_eq!(
            value.map(str::to_owned),
            expected,
            "{flags} {version}: {definition}"
        );
    }
}
