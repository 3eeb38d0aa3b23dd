//! `results diff`: what counts as worse, and how many tests are summarized.

use serde_json::Value;

use crate::support::{Folder, Sonobuoy};

/// An unpacked archive with these trees by plugin.
fn archive(trees: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    for (plugin, tree) in trees {
        folder.write(&format!("plugins/{plugin}/sonobuoy_results.yaml"), tree);
    }
    folder
}

fn diff(before: &Folder, after: &Folder, words: &str) -> Sonobuoy {
    Sonobuoy::new("results diff")
        .arg(before.path())
        .arg(after.path())
        .args(words)
}

/// A suite with these tests: name and status.
fn suite(tests: &[(&str, &str)]) -> String {
    let items: String = tests
        .iter()
        .map(|(name, status)| format!("- {{name: {name}, status: {status}}}\n"))
        .collect();
    format!("name: p\nstatus: failed\nitems:\n{items}")
}

const WORDS: [&str; 6] = [
    "failed",
    "unknown",
    "incomplete",
    "vanished",
    "flaky",
    "never",
];

#[track_caller]
fn exits(before: &str, after: &str, codes: [i32; 6]) {
    let (before, after) = (archive(&[("p", before)]), archive(&[("p", after)]));
    for (word, code) in WORDS.into_iter().zip(codes) {
        let words = format!("--format json --fail-on {word}");
        let (found, _, stderr) = diff(&before, &after, &words).run_any_status();
        assert_eq!((word, found), (word, code), "{stderr}");
        assert_eq!(
            stderr.starts_with(&format!("exit {code}: ")),
            code != 0,
            "{stderr}"
        );
    }
}

#[test]
fn fail_on_words_count_different_changes() {
    let was = suite(&[("a", "passed"), ("b", "failed"), ("c", "passed")]);
    exits(&was, &was, [0; 6]);
    exits(
        &was,
        &suite(&[("a", "failed"), ("b", "failed"), ("c", "passed")]),
        [3, 3, 3, 0, 3, 0],
    );
    exits(
        &was,
        &suite(&[("a", "unknown"), ("b", "passed"), ("c", "passed")]),
        [0, 4, 0, 0, 4, 0],
    );
    exits(
        &was,
        &suite(&[("a", "passed"), ("b", "failed")]),
        [0, 4, 4, 4, 4, 0],
    );
    exits(
        &was,
        &suite(&[("a", "flaky"), ("b", "failed"), ("c", "passed")]),
        [0, 0, 0, 0, 3, 0],
    );
    exits(
        &was,
        &suite(&[("a", "failed"), ("b", "failed")]),
        [3, 3, 3, 4, 3, 0],
    );
}

#[test]
fn truncated_suite_is_never_green() {
    let names = ["a", "b", "c", "d", "e", "f"].map(|name| (name, "passed"));
    let cut = "name: p\nstatus: unknown\nitems:\n- name: junit.xml\n  status: unknown\n  items:\n  - {name: a, status: passed}\n  \
               - {name: junit.xml, status: unknown, meta: {error: unexpected EOF}}\n";
    exits(&suite(&names), cut, [0, 4, 4, 4, 4, 0]);
    let (before, after) = (archive(&[("p", &suite(&names))]), archive(&[("p", cut)]));
    diff(&before, &after, "--fail-on unknown")
        .stderr("exit 4: 5 tests vanished\n")
        .status(4)
        .run_any();
}

const NODE: &str = "- name: n1\n  status: passed\n  meta: {type: node}\n  items:\n";

/// A plugin's tree for two nodes; the second has tests or an error.
fn nodes(crashed: bool) -> String {
    let tests = "  - {name: a, status: passed}\n  - {name: b, status: passed}\n";
    let error = "  - {name: it ended with exit code 3, status: failed, meta: {file: errors/n2/error.json}}\n";
    let second = NODE.replace("n1", "n2");
    format!(
        "name: p\nstatus: passed\nitems:\n{NODE}{tests}{second}{}",
        if crashed { error } else { tests }
    )
}

#[test]
fn crashed_node_is_one_failure_and_fixed_when_it_passes() {
    let (good, bad) = (
        archive(&[("p", &nodes(false))]),
        archive(&[("p", &nodes(true))]),
    );
    diff(&bad, &good, "--fail-on unknown")
        .stdout(
            "Fixed: 1\n  p (failed -> passed): it ended with exit code 3 on n2\n\np: 1 fixed\nUnchanged: 2\n",
        )
        .run();
    diff(&good, &bad, "--fail-on unknown")
        .stdout(
            "Newly failing: 1\n  p (failed): it ended with exit code 3 on n2\n\nVanished: 2\n  p: all 2 tests on n2\n\n\
             p: 1 newly failing, 2 vanished\nUnchanged: 2\n",
        )
        .stderr("exit 3: 1 test newly failing\n")
        .status(3)
        .run();
    let other = nodes(true).replace("code 3", "code 4");
    diff(&bad, &archive(&[("p", &other)]), "--fail-on unknown")
        .stdout_has("Still failing: 1\n")
        .run();
}

#[test]
fn plugin_of_one_run_is_one_line() {
    let many: Vec<String> = (0..1_200).map(|number| format!("test {number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "passed")).collect();
    let both = archive(&[("p", &suite(&[("a", "passed")])), ("q", &suite(&many))]);
    let one = archive(&[("p", &suite(&[("a", "passed")]))]);
    diff(&both, &one, "--fail-on vanished")
        .stdout("Vanished: 1200\n  q: all 1,200 tests\n\nq: 1200 vanished\nUnchanged: 1\n")
        .stderr("exit 4: 1,200 tests vanished\n")
        .status(4)
        .run();
    diff(&one, &both, "--fail-on unknown")
        .stdout("Appeared: 1200\n  q: all 1,200 tests\n\nq: 1200 appeared\nUnchanged: 1\n")
        .run();
    let json: Value =
        serde_json::from_str(&diff(&both, &one, "--format json").run_any().stdout).unwrap();
    assert_eq!(
        json["vanished"],
        serde_json::json!([{"plugin": "q", "test": "all 1,200 tests", "tests": 1200}])
    );
    let page = diff(&both, &one, "--format html").run_any().stdout;
    assert!(
        page.contains("<h1>1,200 vanished</h1>") && page.contains("all 1,200 tests"),
        "{page}"
    );
}

#[test]
fn diff_is_written_as_junit() {
    let before = suite(&[
        ("a <1>", "passed"),
        ("b", "failed"),
        ("c", "passed"),
        ("d", "failed"),
        ("e", "passed"),
    ]);
    let after = before.replace(
        "a <1>, status: passed",
        "a <1>, status: failed, details: {failure: no & disk}",
    );
    let after = after
        .replace("b, status: failed", "b, status: passed")
        .replace("- {name: c, status: passed}\n", "");
    let after = after.replace("e, status: passed", "e, status: unknown");
    let case = |name: &str, rest: &str| {
        format!("<testcase name=\"{name}\" classname=\"p\" time=\"0\">{rest}</testcase>\n")
    };
    let expected = [
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned(),
        "<testsuites name=\"sonobuoy results diff\" tests=\"5\" failures=\"1\" errors=\"2\">\n"
            .to_owned(),
        "<testsuite name=\"p\" tests=\"5\" failures=\"1\" errors=\"2\" skipped=\"1\">\n".to_owned(),
        case(
            "a &lt;1&gt;",
            "<failure type=\"failed\" message=\"Newly failing: passed -&gt; failed\">no &amp; disk</failure>",
        ),
        case(
            "d",
            "<skipped message=\"Still failing: failed -&gt; failed\"/>",
        ),
        case("b", "<system-out>Fixed: failed -&gt; passed</system-out>"),
        case(
            "c",
            "<error type=\"unknown\" message=\"Vanished: passed -&gt; absent\"/>",
        ),
        case(
            "e",
            "<error type=\"unknown\" message=\"Changed otherwise: passed -&gt; unknown\"/>",
        ),
        "</testsuite>\n</testsuites>\n".to_owned(),
    ];
    diff(
        &archive(&[("p", &before)]),
        &archive(&[("p", &after)]),
        "--format junit",
    )
    .stdout(&expected.concat())
    .run();
}
