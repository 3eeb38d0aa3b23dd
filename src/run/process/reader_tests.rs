//! What files of results claim, and what is read of them: no reader turns a failure into a pass.

use super::*;

/// Outcome, counts and tree of a plugin with one file.
fn read(format: &str, name: &str, text: &str) -> (String, String, String) {
    let dir = base::temp::Folder::new().unwrap();
    let folder = dir.join(RESULTS).join("global");
    fs::create_dir_all(&folder).unwrap();
    if !name.is_empty() {
        fs::write(folder.join(name), text).unwrap();
    }
    let rules = ReadingRules {
        name: "p".into(),
        format: format.into(),
        ..ReadingRules::default()
    };
    let outcome = process(&dir, &rules).unwrap();
    let counts = outcome
        .counts
        .iter()
        .map(|(status, count)| format!("{status}={count}"))
        .joined(" ");
    (
        outcome.status,
        counts,
        fs::read_to_string(dir.join(TREE)).unwrap(),
    )
}

fn check(format: &str, name: &str, text: &str, expected: [&str; 2], contains: &[&str]) {
    let (status, counts, tree) = read(format, name, text);
    assert_eq!([&*status, &*counts], expected, "{text}\n{tree}");
    // Long texts are folded.
    let tree = tree.split_whitespace().joined(" ");
    for part in contains {
        assert!(tree.contains(part), "{text}\nwithout `{part}`:\n{tree}");
    }
}

fn junit(text: &str, expected: [&str; 2], contains: &[&str]) {
    check("junit", "a.xml", text, expected, contains);
}

#[test]
fn nested_suites_are_read() {
    let nested = "<testsuites><testsuite name='outer'><testsuite name='inner'><testcase \
                  name='one'><failure message='no'/></testcase></testsuite><testcase \
                  name='two'/></testsuite></testsuites>";
    junit(
        nested,
        ["failed", "failed=1 passed=1"],
        &["name: outer", "name: inner", "name: one"],
    );
    let lists = "<testsuites><testsuites><testsuite><testcase \
                 name='a'><error/></testcase></testsuite></testsuites></testsuites>";
    junit(lists, ["failed", "failed=1"], &[]);
    let deep = format!(
        "{}{}",
        "<testsuite>".repeat(200),
        "</testsuite>".repeat(200)
    );
    junit(
        &deep,
        ["unknown", "unknown=1"],
        &["suites are nested deeper than 90"],
    );
}

#[test]
fn worst_element_decides_a_test() {
    let test =
        |inside: &str| format!("<testsuite><testcase name='a'>{inside}</testcase></testsuite>");
    for (inside, expected) in [
        ("", ["passed", "passed=1"]),
        ("<skipped/>", ["passed", "skipped=1"]),
        ("<skipped/><failure/>", ["failed", "failed=1"]),
        ("<error/><skipped/>", ["failed", "failed=1"]),
        ("<flakyFailure message='m'/>", ["passed", "flaky=1"]),
        ("<failure/><rerunFailure/>", ["failed", "failed=1"]),
    ] {
        junit(&test(inside), expected, &[]);
    }
}

#[cfg(unix)]
#[test]
fn link_to_a_file_of_the_result_counts_once() {
    use std::os::unix::fs::symlink;

    let suite = "<testsuite><testcase name='a'/></testsuite>";
    for (format, expected) in [("junit", [1, 0]), ("raw", [5, 0])] {
        let dir = base::temp::Folder::new().unwrap();
        let folder = dir.join(RESULTS).join("global");
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("sub/a.xml"), suite).unwrap();
        fs::write(folder.join("sub/unread.txt"), suite).unwrap();
        symlink("sub/a.xml", folder.join("b.xml")).unwrap();
        symlink("sub", folder.join("c.xml")).unwrap();
        symlink(".", folder.join("d.xml")).unwrap();
        let rules = ReadingRules {
            name: "p".into(),
            format: format.into(),
            ..ReadingRules::default()
        };
        let outcome = process(&dir, &rules).unwrap();
        let count = |status: &str| outcome.counts.get(status).copied().unwrap_or_default();
        assert_eq!([PASSED, UNKNOWN].map(count), expected, "{format}");
    }
    // A file that is read by no other name is.
    let dir = base::temp::Folder::new().unwrap();
    let folder = dir.join(RESULTS).join("global");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("suite.txt"), suite).unwrap();
    symlink("suite.txt", folder.join("a.xml")).unwrap();
    let rules = ReadingRules {
        name: "p".into(),
        format: "junit".into(),
        ..ReadingRules::default()
    };
    assert_eq!(process(&dir, &rules).unwrap().counts[PASSED], 1);
}

#[test]
fn log_that_claims_more_than_its_junit_file_is_unknown() {
    let suite = "<testsuite><testcase name='a'/><testcase name='b'><skipped/></testcase><testcase \
                 name='c'><failure/></testcase></testsuite>";
    let more = "the suite claims 2 failures and errors, of which 1 can be read";
    for (log, expected) in [
        ("", None),
        (
            "Ran 2 of 3 Specs in 1.0 seconds\nFAIL! -- 1 Passed | 1 Failed\n",
            None,
        ),
        // The suite of before.
        ("Ran 9 of 9 Specs\nRan 2 of 3 Specs", None),
        (
            "Ran 9 of 9 Specs",
            Some("the suite claims 9 tests, of which 2 can be read"),
        ),
        ("Ran 4 of 9 Specs\nFAIL! -- 1 Passed | 2 Failed", Some(more)),
    ] {
        let dir = base::temp::Folder::new().unwrap();
        for (folder, log) in [("global", log), ("global/other", "Ran 9 of 9 Specs")] {
            let folder = dir.join(RESULTS).join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("e2e.log"), log).unwrap();
        }
        fs::write(dir.join(RESULTS).join("global/a.xml"), suite).unwrap();
        let rules = ReadingRules {
            name: "p".into(),
            format: "e2e".into(),
            ..ReadingRules::default()
        };
        let outcome = process(&dir, &rules).unwrap();
        let unknown = outcome.counts.get(UNKNOWN).copied();
        assert_eq!(unknown, expected.map(|_| 1), "{log}");
        let tree = fs::read_to_string(dir.join(TREE)).unwrap();
        let tree = tree.split_whitespace().joined(" ");
        assert!(tree.contains(expected.unwrap_or_default()), "{log}: {tree}");
    }
}

#[test]
fn suites_that_claim_more_than_they_list_are_unknown() {
    let one = "<testcase name='a'/>";
    junit(
        &format!("<testsuite name='s' tests='5' failures='2'>{one}</testsuite>"),
        ["unknown", "passed=1 unknown=1"],
        &[
            "the suite claims 2 failures and errors, of which 0 can be read; and 5 tests, of \
             which 1 can be read",
        ],
    );
    junit(
        "<testsuites tests='5'/>",
        ["unknown", "unknown=1"],
        &["5 tests, of which 0"],
    );
    // Outer suites may or may not sum up the inner ones.
    let inner =
        "<testsuite tests='2' failures='1'><testcase/><testcase><failure/></testcase></testsuite>";
    for outer in ["", "tests='2' failures='1'", "tests='0' failures='0'"] {
        let text =
            format!("<testsuites {outer}><testsuite {outer}>{inner}</testsuite></testsuites>");
        junit(&text, ["failed", "failed=1 passed=1"], &[]);
    }
    // One claim is reported once.
    let claim = "tests='9'";
    let text = format!("<testsuites {claim}><testsuite {claim}>{one}</testsuite></testsuites>");
    junit(&text, ["unknown", "passed=1 unknown=1"], &[]);
    // Tests that did not run may be counted without being listed.
    junit(
        &format!("<testsuite tests='3' skipped='2'>{one}</testsuite>"),
        ["passed", "passed=1"],
        &[],
    );
    // pytest counts subtests without listing them.
    let suites = "<testsuites name='pytest tests'><testsuite name='own'";
    junit(
        &format!("{suites} tests='6'>{one}</testsuite></testsuites>"),
        ["passed", "passed=1"],
        &[],
    );
    junit(
        &format!("<testsuite name='pytest' tests='6'>{one}</testsuite>"),
        ["passed", "passed=1"],
        &[],
    );
    junit(
        "<testsuite name='pytest' tests='6'/>",
        ["unknown", "unknown=1"],
        &["claims 1 test, of which 0"],
    );
    junit(
        &format!("<testsuite tests='-1' errors='x'>{one}</testsuite>"),
        ["passed", "passed=1"],
        &[],
    );
}

#[test]
fn suite_fails_outside_its_tests() {
    let text = "<testsuite name='s'><error message='no database'/><testcase name='a'/></testsuite>";
    junit(
        text,
        ["failed", "failed=1 passed=1"],
        &["failure: no database"],
    );
    let text = "<testsuite name='s'><properties><property name='SuiteSucceeded' \
                value='false'/></properties><testcase name='a'/></testsuite>";
    junit(
        text,
        ["failed", "failed=1 passed=1"],
        &["did not succeed, but none of its tests failed"],
    );
}

const TIMED_OUT: &str = "<testsuite name='e2e' time='7200.4'><properties><property name='SuiteSucceeded' \
     value='false'/><property name='SpecialSuiteFailureReason' value='Suite Timeout \
     Elapsed'/><property name='FocusStrings' value='\\[Conformance\\]'/><property \
     name='SkipStrings' value='Slow'/></properties><testcase name='[It] a [Conformance]' \
     time='3'/><testcase name='[It] b [Conformance]' time='9'><failure message='A suite timeout \
     occurred'/></testcase><testcase name='[It] c [Conformance]' time='0'><skipped \
     message='skipped'/></testcase><testcase name='[It] d [Conformance]' time='0'><skipped \
     message='skipped'/></testcase><testcase name='[It] e [Conformance] Slow' time='0'><skipped \
     message='skipped'/></testcase><testcase name='[It] f [Conformance]' time='1'><skipped \
     message='skipped - no GPU'/></testcase><testcase name='[It] g' time='0'><skipped \
     message='skipped'/></testcase></testsuite>";

#[test]
fn suite_that_ran_out_of_time_is_one_cause() {
    let cause = "the suite ended after 2h0m0s: 2 selected tests did not run";
    junit(
        TIMED_OUT,
        ["failed", "failed=2 passed=1 skipped=5"],
        &["E2E_EXTRA_GINKGO_ARGS=--timeout"],
    );
    let (.., tree) = read("junit", "a.xml", TIMED_OUT);
    assert_eq!(
        tree.matches(cause).count(),
        2,
        "the suite and the test that was running:\n{tree}"
    );
    assert_eq!(tree.matches("not-run: true").count(), 2, "{tree}");
    let again = report::failed_in(tree.as_bytes()).unwrap();
    assert_eq!(
        again,
        [" b [Conformance]", " c [Conformance]", " d [Conformance]"]
    );
    // With labels, the file does not say which tests were selected.
    let labels = TIMED_OUT.replace("SkipStrings", "LabelFilter");
    junit(
        &labels,
        ["failed", "failed=2 passed=1 skipped=5"],
        &["not all of its tests may have run"],
    );
}

#[test]
fn streams_of_go_test_end_with_a_verdict() {
    let event = |action: &str, test: &str| {
        let test = if test.is_empty() {
            String::new()
        } else {
            format!(r#","Test":"{test}""#)
        };
        format!(r#"{{"Action":"{action}","Package":"p"{test}}}"#) + "\n"
    };
    let [start, run, pass] = [event("start", ""), event("run", "T"), event("pass", "T")];
    let [passed, failed] = [event("pass", ""), event("fail", "")];
    for (events, expected, contains) in [
        (
            format!("{start}{run}{pass}{passed}"),
            ["passed", "passed=1"],
            "",
        ),
        (format!("{run}{pass}"), ["passed", "passed=1"], ""),
        (
            format!("{start}{run}{}{pass}{passed}", event("attr", "T")),
            ["passed", "passed=1"],
            "",
        ),
        (
            format!("{start}{run}{pass}{failed}"),
            ["failed", "failed=1 passed=1"],
            "none of its tests",
        ),
        (
            format!("{start}{run}{}{failed}", event("fail", "T")),
            ["failed", "failed=1"],
            "",
        ),
        (
            format!("{start}{run}{pass}"),
            ["unknown", "passed=1 unknown=1"],
            "the package began",
        ),
        (
            format!("{run}{pass}{}", event("run", "U")),
            ["unknown", "passed=1 unknown=1"],
            "the test began",
        ),
        (
            format!("{run}{pass}{{\"Action\":"),
            ["unknown", "passed=1 unknown=1"],
            "unexpected EOF",
        ),
        (String::new(), ["unknown", "unknown=1"], "the file is empty"),
        (" ".into(), ["unknown", "unknown=1"], "no event of"),
    ] {
        check("gojson", "a.json", &events, expected, &[contains]);
    }
}

#[test]
fn item_with_an_error_has_not_passed() {
    for (text, expected) in [
        (
            "items: [{name: a, status: passed, meta: {error: cut}}]",
            ["unknown", "unknown=1"],
        ),
        (
            "items: [{name: a, meta: {error: cut}, items: [{name: b, status: passed}]}]",
            ["unknown", "passed=1"],
        ),
        (
            "items: [{name: a, meta: {error: cut}, items: [{name: b, status: failed}]}]",
            ["failed", "failed=1"],
        ),
    ] {
        check("manual", "a.yaml", text, expected, &["error: cut"]);
    }
}

#[test]
fn nothing_is_unknown_without_a_reason() {
    let unknown = ["unknown", "unknown=1"];
    let wrong =
        "error: 'no *.xml in the result (found `a.json`); `result-format: junit` reads *.xml'";
    check("junit", "a.json", "{}", unknown, &[wrong]);
    check("junit", "", "", unknown, &["the result contains no file"]);
    check("junit", "a.xml", "", unknown, &["the file is empty"]);
    check("raw", "", "", unknown, &["the result contains no file"]);
    check(
        "manual",
        "a.yaml",
        "nam: x\nstate: passed\n",
        unknown,
        &["it has no `status`, but `nam`, `state`: a result has `name`, `status`"],
    );
}

#[test]
fn manual_results_in_json_have_the_meaning_of_json() {
    let text = r#"{"name": "x", "status": "passed", "details": {"a": "\ud83d\ude00", "b": "c\u007f", "n": 1}}"#;
    check(
        "manual",
        "a.yaml",
        text,
        ["passed", "passed=1"],
        &["\\U0001F600"],
    );
    check(
        "manual",
        "a.yaml",
        "{status: passed}",
        ["passed", "passed=1"],
        &[],
    );
}

#[test]
fn excerpts_of_the_oldest_ginkgo_are_read_as_they_are() {
    let excerpt = |counts: &str| {
        format!("<testsuite tests='204' {counts}><testcase name='a' time='0'/></testsuite>")
    };
    junit(
        &excerpt("failures='0' time='0.05'"),
        ["passed", "passed=1"],
        &[],
    );
    let unread_failure = "the suite claims 1 failure or error, of which 0 can be read";
    junit(
        &excerpt("failures='1' time='0.05'"),
        ["unknown", "passed=1 unknown=1"],
        &[unread_failure],
    );
    let unread_tests = "the suite claims 204 tests, of which 1 can be read";
    junit(
        &excerpt("failures='0'"),
        ["unknown", "passed=1 unknown=1"],
        &[unread_tests],
    );
}
