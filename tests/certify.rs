//! `certify`: certifiable archives, each with one defect at a time.

use std::path::Path;
use std::process::Command;

use crate::support::api_server::ExecAnswer;
use crate::support::cluster::{aggregator_pod, namespace, status, untouched};
use crate::support::command::Done;
use crate::support::{Folder, Sonobuoy, fixture_text};

const DEFINITION: &str = "plugins/e2e/definition.json";
const LOG: &str = "plugins/e2e/results/global/e2e.log";
const JUNIT: &str = "plugins/e2e/results/global/junit_01.xml";
const SERVER: &str = "serverversion.json";
const PRODUCT: &str = "vendor: V\nname: Fine Clusters\nversion: v1.0\ntype: distribution\ndescription: D\n\
    website_url: https://a.example\ndocumentation_url: https://a.example/docs\ncontact_email_address: a@b.example\n";

/// The files of a certifiable archive: three tests, two of them required.
const GOOD: [(&str, &str); 4] = [
    (
        DEFINITION,
        r#"{"Definition": {"spec": {"image": "reg.local:5000/k8s/conformance:v1.33.1"}}}"#,
    ),
    (LOG, include_str!("fixtures/certify/v1.33.log")),
    (
        JUNIT,
        r#"<testsuites><testsuite name="Kubernetes e2e suite" tests="5"><properties><property name="RandomSeed" value="7"></property>
<property name="FocusStrings" value="\[Conformance\]"></property><property name="SkipStrings" value=""></property>
<property name="DryRun" value="false"></property><property name="ParallelTotal" value="1"></property></properties>
<testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>
<testcase name="[It] [sig-a] a works [Conformance]" status="passed"></testcase>
<testcase name="[It] [sig-b] b works [Conformance]" status="passed"></testcase>
<testcase name="[It] [sig-c] c" status="skipped"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>"#,
    ),
    (
        SERVER,
        r#"{"major": "1", "minor": "33", "gitVersion": "v1.33.2"}"#,
    ),
];

/// The command in a folder with the unpacked archive `run`, each file passed through `change`.
fn archived(words: &str, change: impl Fn(&str, &str) -> String) -> Sonobuoy {
    GOOD.iter()
        .fold(Sonobuoy::new(words), |run, (name, content)| {
            run.file(&format!("run/{name}"), change(name, content))
        })
}

/// As above, with `from` replaced by `to` in `file`.
fn certify(words: &str, file: &str, from: &str, to: &str) -> Sonobuoy {
    let change = |name: &str, content: &str| {
        assert!(name != file || content.contains(from), "{file}: {from}");
        if name == file {
            content.replacen(from, to, 1)
        } else {
            content.to_owned()
        }
    };
    archived(words, change).file("product.yaml", change("product.yaml", PRODUCT))
}

const ALL: &str = "certify run --product product.yaml -o out";

#[test]
fn submission_has_four_files_and_overwrites_none() {
    let done = certify(ALL, "", "", "")
        .stdout("2 of 2 conformance tests of v1.33 passed\nout/README.md\nout/e2e.log\nout/junit_01.xml\nout/PRODUCT.yaml\n")
        .stderr_has("as v1.33/<product>/ in a pull request whose title names v1.33 and Fine Clusters")
        .run();
    let mut names = Folder::names_of(&done.folder.join("out"));
    names.sort();
    assert_eq!(
        names,
        ["PRODUCT.yaml", "README.md", "e2e.log", "junit_01.xml"]
    );
    assert_eq!(done.folder.read("out/PRODUCT.yaml"), PRODUCT);
    assert_eq!(done.folder.read("out/e2e.log"), GOOD[1].1);
    assert_eq!(done.folder.read("out/junit_01.xml"), GOOD[2].1);
    assert!(
        done.folder
            .read("out/README.md")
            .contains("All 2 conformance tests of v1.33 ran")
    );
    assert_eq!(
        done.folder
            .names()
            .iter()
            .filter(|name| name.starts_with(".sonobuoy-"))
            .count(),
        0
    );
    certify(ALL, "", "", "")
        .file("out/mine", "x")
        .status(1)
        .stderr_has("`out` is not empty; name a new folder")
        .run();
}

#[cfg(target_os = "linux")] // its full device
#[test]
fn no_reader_of_the_output_changes_the_exit_code_or_the_submission() {
    use crate::support::reader::Reader;
    for reader in Reader::EVERY {
        let read = certify(ALL, "", "", "").read_by(reader);
        assert_eq!(
            read.code,
            Some(reader.expected(0)),
            "{reader:?}: {}",
            read.stderr
        );
        let names = Folder::names_of(&read.folder.join("out"));
        assert_eq!(
            names,
            ["PRODUCT.yaml", "README.md", "e2e.log", "junit_01.xml"],
            "{reader:?}"
        );
        let read = certify(ALL, SERVER, "v1.33.2", "v1.34.0").read_by(reader);
        assert_eq!(
            read.code,
            Some(reader.expected(3)),
            "{reader:?}: {}",
            read.stderr
        );
    }
}

#[test]
fn every_version_certifies_with_terse_and_verbose_logs() {
    for minor in 27..=36 {
        for form in ["", "-v"] {
            let log = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(format!("tests/fixtures/certify/v1.{minor}{form}.log"));
            let log = std::fs::read_to_string(log).unwrap();
            let version = format!("v1.{minor}");
            let of = |name: &str, content: &str| {
                if name == LOG {
                    log.clone()
                } else {
                    content.replace("v1.33", &version)
                }
            };
            archived("certify run", of)
                .stdout(&format!("2 of 2 conformance tests of {version} passed\nReady for certification: write the submission with --product FILE -o DIR\n"))
                .stderr_has("it has no seal beside it")
                .run();

            // A verbose log may contradict the other files.
            let of = |name: &str, content: &str| {
                if name == LOG {
                    log.clone()
                } else {
                    content.replace("v1.33", "v1.26")
                }
            };
            let other = archived("certify run", of);
            if form.is_empty() {
                other.run_any();
            } else {
                let told = |who| {
                    format!("e2e.log: states {version} for the {who}, but the cluster is v1.26")
                };
                let other = other
                    .status(3)
                    .stdout_has(&told("tests"))
                    .stdout_has(&told("server"));
                other.stderr_has("it has no seal beside it").run();
            }

            // A verbose log states the test version if the image tag does not.
            let of = |name: &str, content: &str| match name {
                LOG => log.clone(),
                DEFINITION => content.replace("v1.33.1", "latest"),
                _ => content.replace("v1.33", &version),
            };
            archived("certify run", of)
                .status(if form.is_empty() { 3 } else { 0 })
                .run_any();
        }
    }
}

/// The files of v1.36 have more options, and a log with reports around the suite.
#[test]
fn options_of_the_suite_of_v1_36_certify_or_are_named() {
    let archive = |words: &str, form: &str, from: &str, to: &str| {
        let log = fixture_text(&format!("certify/v1.36{form}.log"));
        let junit = fixture_text("certify/v1.36.xml");
        assert!(junit.contains(from), "{from}");
        let junit = junit.replacen(from, to, 1);
        archived(words, move |name, content| match name {
            LOG => log.clone(),
            JUNIT => junit.clone(),
            _ => content.replace("v1.33", "v1.36"),
        })
    };
    for form in ["", "-v"] {
        archive("certify run", form, "", "")
            .stdout_has("2 of 2 conformance tests of v1.36 passed\nReady for certification")
            .run_any();
    }
    let reason = "\"SpecialSuiteFailureReason\" value=\"";
    archive(
        "certify run",
        "",
        reason,
        &format!("{reason}Suite Timeout Elapsed"),
    )
    .status(3)
    .stdout_has("the suite ended early, so tests may not have run: Suite Timeout Elapsed")
    .run_any();
}

/// The option permits retries; the programme judges whether a test was retried.
#[test]
fn permitted_retries_that_did_not_happen_are_certified() {
    certify(
        ALL,
        JUNIT,
        "<properties>",
        r#"<properties><property name="FlakeAttempts" value="10"/><property name="SuiteSucceeded"
            value="true"/><property name="SpecialSuiteFailureReason" value=""/>"#,
    )
    .stdout_has("2 of 2 conformance tests of v1.33 passed")
    .stderr_has("as v1.33/<product>/ in a pull request")
    .run();
}

#[test]
fn continued_run_is_not_certified() {
    let run =
        certify(ALL, "", "", "").file("run/meta/config.json", r#"{"UUID": "b", "Resumes": "a"}"#);
    run.status(3)
        .stdout_has("meta/config.json: the run continued another one")
        .run_any();
}

#[test]
fn tests_of_other_plugins_do_not_count() {
    for (name, words) in [
        (
            "e2e-retry-1",
            "plugins/e2e-retry-1/definition.json: failed tests were run again",
        ),
        (
            "e2e-part-2",
            "plugins/e2e-part-2/definition.json: tests ran in several parts",
        ),
    ] {
        let definition = r#"{"Definition": {"sonobuoy-config": {"part-of": "e2e"}}}"#;
        let run = certify(ALL, "", "", "")
            .file(&format!("run/plugins/{name}/definition.json"), definition);
        run.status(3).stdout_has(words).run_any();
    }
}

/// Waits for a run whose archive has `from` replaced in `file`, then certifies it.
fn in_one_go(file: &str, from: &str, to: &str, code: i32, says: &str) -> Done {
    let (api, _config, config) = untouched();
    let entry = serde_json::json!([{"plugin": "e2e", "node": "global", "status": "complete", "result-status": "passed"}]);
    aggregator_pod(
        &api,
        serde_json::json!({"phase": "Running"}),
        Some(&status("complete", &entry)),
    );
    namespace(&api);
    let done = certify("version", file, from, to)
        .file("run/meta/info.json", r#"{"plugins": ["e2e"]}"#)
        .file(
            "run/plugins/e2e/sonobuoy_results.yaml",
            "name: e2e\nstatus: passed\nmeta: {type: summary}\nitems: []\n",
        )
        .run_any();
    let name = "202611220000_sonobuoy_00000000-0000-0000-0000-000000000000.tar.gz";
    let words = ["-czf", name, "-C", "run", "."];
    assert!(
        Command::new("tar")
            .args(words)
            .current_dir(done.folder.path())
            .status()
            .unwrap()
            .success()
    );
    api.on_exec(move |exec| {
        let splat = Command::new(env!("CARGO_BIN_EXE_sonobuoy"))
            .arg("splat")
            .arg(done.folder.path())
            .args(&exec.command[3..])
            .output()
            .unwrap();
        ExecAnswer::ok(splat.stdout)
    });
    let words =
        format!("wait --kubeconfig {config} --rbac Enable --certify out --product product.yaml");
    Sonobuoy::new(&words)
        .file("product.yaml", PRODUCT)
        .status(code)
        .stdout_has(says)
        .run_any()
}

#[test]
fn certify_run_writes_submission_or_lists_problems() {
    let ready = "2 of 2 conformance tests of v1.33 passed\nout/README.md\n";
    let done = in_one_go("", "", "", 0, ready);
    assert_eq!(done.folder.read("out/e2e.log"), GOOD[1].1);
    let (passed, skipped) = (
        r#"a works [Conformance]" status="passed">"#,
        r#"a works [Conformance]"><skipped/>"#,
    );
    let done = in_one_go(
        JUNIT,
        passed,
        skipped,
        3,
        "1 of 2 required tests did not run",
    );
    assert!(!done.folder.join("out").exists());
}

#[test]
fn disqualifying_flags_are_reported_before_the_run() {
    for (words, file, expected) in [
        (
            "--certify out",
            "",
            "--certify: a submission describes a product; name its description by --product FILE",
        ),
        (
            "--certify out --product product.yaml",
            "",
            "certification requires `--mode certified-conformance`",
        ),
        (
            "--certify out --product product.yaml --mode quick",
            "",
            "certification requires `--mode certified",
        ),
        (
            "--certify out --product none.yaml --mode certified-conformance",
            "",
            "cannot read `none.yaml`",
        ),
        (
            "--certify out --product product.yaml --mode certified-conformance",
            "type: distro",
            "`product.yaml` does not describe a product",
        ),
        (
            "--certify run --product product.yaml --mode certified-conformance",
            "",
            "`run` is not empty; name a new folder",
        ),
        (
            "--certify out --product product.yaml --mode certified-conformance --retry-failed 1",
            "",
            "--retry-failed: certified conformance requires",
        ),
    ] {
        let product = if file.is_empty() {
            PRODUCT.to_owned()
        } else {
            PRODUCT.replace("type: distribution", file)
        };
        let run = Sonobuoy::new(&format!("run --kubeconfig none {words}"))
            .file("run/mine", "x")
            .file("product.yaml", product);
        run.status(1).stderr_has(expected).run_any();
    }
}

#[test]
fn archive_and_folder_certify_alike() {
    let done = certify("certify run", "", "", "").run_any();
    let words = ["-czf", "a.tar.gz", "-C", "run", "."];
    assert!(
        Command::new("tar")
            .args(words)
            .current_dir(done.folder.path())
            .status()
            .unwrap()
            .success()
    );
    Sonobuoy::new("certify")
        .arg(done.folder.join("a.tar.gz"))
        .stdout_has("2 of 2 conformance tests of v1.33 passed")
        .stderr_has("it has no seal beside it")
        .run();
}

#[test]
fn defects_are_named_and_no_file_is_written() {
    for (file, from, to, words) in [
        (
            DEFINITION,
            "v1.33.1",
            "v1.32.9",
            "definition.json: states v1.32 for the tests, but the cluster is v1.33",
        ),
        (
            DEFINITION,
            "v1.33.1",
            "latest",
            "definition.json: does not state the version of the tests: its image is `reg.local:5000/k8s/conformance:latest`",
        ),
        (
            SERVER,
            "v1.33.2",
            "v1.34.0",
            "definition.json: states v1.33 for the tests, but the cluster is v1.34",
        ),
        (
            SERVER,
            "gitVersion",
            "git",
            "serverversion.json: does not state the cluster's version",
        ),
        (
            JUNIT,
            r#"a works [Conformance]" status="passed">"#,
            r#"a works [Conformance]"><skipped/>"#,
            "1 of 2 required tests did not run\n    [sig-a] a works",
        ),
        (
            JUNIT,
            r#"a works [Conformance]" status="passed">"#,
            r#"a works [Conformance]"><failure/>"#,
            "1 of 2 required tests failed\n    [sig-a] a works",
        ),
        (
            JUNIT,
            r#"a works [Conformance]" status="passed">"#,
            r#"a works [Conformance]"><flakyFailure/>"#,
            "passed only when retried",
        ),
        (
            JUNIT,
            "[It] [sig-c] c",
            "[It] [sig-a] a works [Conformance]",
            "listed more than once",
        ),
        (
            JUNIT,
            "[It] [sig-a] a",
            "[BeforeSuite] a",
            "the suite has 3 tests, but the JUnit file lists 2",
        ),
        (
            JUNIT,
            r#""DryRun" value="false""#,
            r#""DryRun" value="true""#,
            "no test ran at all (DryRun is `true`)",
        ),
        (
            JUNIT,
            r#""SkipStrings" value="""#,
            r#""SkipStrings" value="Slow""#,
            "tests were skipped (SkipStrings is `Slow`)",
        ),
        (
            JUNIT,
            r#"value="\[Conformance\]""#,
            r#"value="Pods""#,
            "other tests were chosen (FocusStrings is `Pods`)",
        ),
        (
            JUNIT,
            r#""ParallelTotal" value="1""#,
            r#""ParallelTotal" value="4""#,
            "tests ran in parallel",
        ),
        (
            JUNIT,
            r#""RandomSeed" value="7""#,
            r#""RandomSeed" value="8""#,
            "their random seeds differ",
        ),
        (
            JUNIT,
            "<properties>",
            r#"<properties><property name="SemVerFilter" value=">= 1.36"/>"#,
            "tests were chosen by versions (SemVerFilter is `>= 1.36`)",
        ),
        (
            JUNIT,
            "<properties>",
            r#"<properties><property name="SuiteSucceeded" value="false"/>"#,
            "states that the suite did not succeed",
        ),
        (
            JUNIT,
            "<properties>",
            r#"<properties><property name="SuiteSucceeded" value="false"/><property
                name="SpecialSuiteFailureReason" value="Suite Timeout Elapsed"/>"#,
            "the suite ended early, so tests may not have run: Suite Timeout Elapsed",
        ),
        (
            JUNIT,
            "</testsuite></testsuites>",
            "",
            "junit_01.xml: cannot be read: ",
        ),
        (
            LOG,
            "Ran 2 of 3",
            "Ran 9 of 3",
            "9 tests ran, but the JUnit file says 2: they are not from the same run",
        ),
        (
            LOG,
            "Ran 2 of 3",
            "Ran 2 of 3 Specs\nRan 2 of 3",
            "contains the endings of 2 runs",
        ),
        (LOG, "Ran 2 of 3", "", "the tests did not finish"),
        (
            LOG,
            "Test Suite Passed",
            "",
            "the suite did not pass: 0 failed, 0 pending, 0 flaked",
        ),
        (
            LOG,
            "| 0 Pending",
            "| 1 Flaked | 0 Pending",
            "0 failed, 0 pending, 1 flaked",
        ),
        (
            "product.yaml",
            "vendor: V\n",
            "",
            "product.yaml: `vendor` is missing or empty",
        ),
        (
            "product.yaml",
            "distribution",
            "thing",
            "product.yaml: line 4, column 7: `type` is `thing`; write distribution",
        ),
    ] {
        let done = certify(ALL, file, from, to)
            .status(3)
            .stdout_has(words)
            .stdout_has("Not ready for certification:")
            .stderr_has("it has no seal beside it")
            .run();
        assert!(!done.folder.join("out").exists(), "{words}");
    }
}

#[test]
fn undecidable_input_is_an_error() {
    Sonobuoy::new("certify run")
        .file("run/meta/info.json", "{}")
        .status(1)
        .stderr_has("no results of the plugin `e2e`")
        .run();
    certify("certify run -o out", "", "", "")
        .status(1)
        .stderr_has("name its description by --product FILE")
        .run();
    certify("certify run", "", "", "")
        .file("run/plugins/e2e/results/global/junit_02.xml", "")
        .status(3)
        .stdout_has("there are 2 JUnit files")
        .stderr_has("it has no seal beside it")
        .run();
    certify("certify run --tests t", "", "", "")
        .file(
            "t",
            "[sig-a] a works [Conformance]\n[sig-z] z [Conformance]\nother\n",
        )
        .status(3)
        .stdout_has("1 required test of the list is missing\n    [sig-z] z")
        .stderr_has("it has no seal beside it")
        .run();
}
