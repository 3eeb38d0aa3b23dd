//! `run --baseline`: a run and its comparison with an earlier one in one command.

use serde_json::Value;

use crate::support::{Folder, Sonobuoy};

/// A local run whose plugin reports these tests, `name=status` each, with these flags.
fn run(tests: &str, flags: &str, folder: &Folder) -> Sonobuoy {
    let items: String = tests
        .split(' ')
        .filter_map(|test| test.split_once('='))
        .map(|(name, status)| format!("- {{name: {name}, status: {status}}}\\n"))
        .collect();
    let script = format!(
        "printf 'name: s\\nitems:\\n{items}' > $RESULTS_DIR/r.yaml; echo $RESULTS_DIR/r.yaml > $RESULTS_DIR/done"
    );
    let plugin = format!(
        "sonobuoy-config: {{driver: Job, plugin-name: p, result-format: manual}}\nspec:\n  name: plugin\n  command: [sh, -c, {script:?}]\n"
    );
    Sonobuoy::new(&format!("run --local -p p.yaml {flags} --retrieve"))
        .arg(folder.path())
        .file("p.yaml", plugin)
        .env("SONOBUOY_DONE_FILE_DELAY", "0s")
}

/// The folder with the archive of a run with these tests.
fn baseline(tests: &str) -> Folder {
    let folder = Folder::new();
    run(tests, "", &folder).run_any();
    folder
}

/// The exit code and the output of a run that is compared with `before`.
#[track_caller]
fn compared(before: &Folder, tests: &str, flags: &str) -> (i32, String, String) {
    run(
        tests,
        &format!("{flags} --baseline {}", before.path().display()),
        &Folder::new(),
    )
    .run_any_status()
}

#[test]
fn exit_code_is_that_of_what_became_worse() {
    let before = baseline("a=passed b=failed c=passed");
    for (tests, flags, code, reason) in [
        ("a=passed b=failed c=passed", "", 0, ""),
        ("a=passed b=passed c=passed", "", 0, ""),
        (
            "a=failed b=failed c=passed",
            "",
            3,
            "exit 3: 1 test newly failing",
        ),
        ("a=passed b=failed", "", 4, "exit 4: 1 test vanished"),
        (
            "a=unknown b=failed c=passed",
            "",
            4,
            "exit 4: 1 test newly unknown",
        ),
        ("a=unknown b=failed c=passed", "--fail-on failed", 0, ""),
        ("a=failed b=failed c=passed", "--fail-on never", 0, ""),
        (
            "a=flaky b=failed c=passed",
            "--fail-on flaky",
            3,
            "exit 3: 1 test newly flaky",
        ),
    ] {
        let (found, _, stderr) = compared(&before, tests, flags);
        assert_eq!((tests, flags, found), (tests, flags, code), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
}

#[test]
fn report_is_followed_by_the_comparison() {
    let before = baseline("a=passed b=failed");
    let (_, stdout, _) = compared(&before, "a=failed b=failed", "");
    let head = format!(
        "\nCompared with `{}`:\n\nNewly failing: 1",
        before.path().display()
    );
    let report = stdout.find("Plugin: p\n");
    assert!(report.is_some() && report < stdout.find(&head), "{stdout}");
    assert!(stdout.contains("Still failing: 1"), "{stdout}");
    let (_, stdout, _) = compared(&before, "a=failed b=failed", "--output json");
    let events = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events: Vec<Value> = events
        .filter(|event| event["event"] == "comparison")
        .collect();
    assert_eq!(events.len(), 1, "{stdout}");
    assert_eq!(events[0]["comparison"]["newlyFailing"][0]["test"], "a");
}

#[test]
fn word_for_the_newest_archive_means_that_before_the_run() {
    let folder = baseline("a=passed");
    let before = folder.path().display().to_string();
    // Into the same folder.
    let (code, stdout, stderr) =
        run("a=failed", &format!("--baseline {before}"), &folder).run_any_status();
    assert_eq!(code, 3, "{stderr}");
    assert!(!stdout.contains("same run"), "{stdout}");
}

#[test]
fn baseline_that_proves_nothing_is_rejected_before_the_run() {
    let check = |before: &str, reason: &str| {
        let folder = Folder::new();
        let (code, _, stderr) =
            run("a=passed", &format!("--baseline {before}"), &folder).run_any_status();
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
        assert_eq!(folder.names(), [""; 0], "nothing has run");
    };
    check("absent.tar.gz", "--baseline absent.tar.gz: ");
    let folder = baseline("a=passed");
    let names = folder.names();
    let archive = names.iter().find(|name| name.ends_with(".tar.gz")).unwrap();
    let other = baseline("a=failed");
    let others = other.names();
    let content = others
        .iter()
        .find(|name| name.ends_with(".tar.gz"))
        .unwrap();
    std::fs::copy(other.join(content), folder.join(archive)).unwrap();
    check(
        &folder.path().display().to_string(),
        "is not as it was sealed",
    );
    Sonobuoy::new("run --local -p hello --baseline x --min-success 90%")
        .status(1)
        .stderr_has("--min-success")
        .run_any();
}
