//! `certify --program ai`: a complete run of the suite with its checklist and its product, each
//! with one defect at a time; and the plugin that makes such runs.

#[cfg(unix)]
use crate::support::Archive;
#[cfg(unix)]
use crate::support::system::make_runnable;
use crate::support::{Folder, Sonobuoy};

const RESULTS: &str = "plugins/ai-conformance/results/global";
const CHECKLIST: &str = "AIConformance-1.37.yaml";
const PRODUCT: &str = "product.yaml";
const ALL: &str = "certify run --program ai --checklist AIConformance-1.37.yaml --product \
    product.yaml -o out";

/// The requirements of the checklist: category, name, level.
const REQUIREMENTS: [(&str, &str, &str); 8] = [
    ("accelerators", "driver_runtime_management", "SHOULD"),
    ("networking", "ai_inference", "MUST"),
    ("schedulingOrchestration", "gang_scheduling", "MUST"),
    ("schedulingOrchestration", "cluster_autoscaling", "MUST"),
    ("observability", "ai_service_metrics", "SHOULD"),
    ("security", "secure_accelerator_access", "MUST"),
    ("security", "workload_sandboxing", "SHOULD"),
    ("operator", "robust_controller", "MUST"),
];

/// The tests of the suite: name, end, last line of output.
const TESTS: [(&str, &str, &str); 5] = [
    ("TestSecureAcceleratorAccess", "pass", "a.go:1: verified"),
    ("TestGangScheduling", "pass", "b.go:1: all or nothing"),
    (
        "TestAcceleratorClusterAutoscaling",
        "skip",
        "c.go:1: set -autoscaler-node-pool-label",
    ),
    ("TestParse/empty", "pass", ""),
    ("TestParse", "pass", ""),
];

/// What the product's file answers, in the form of the checklist.
const ANSWERS: &str = "metadata:
  platformName: Fine Clusters
  platformVersion: v1.0
  vendor_name: V
  websiteUrl: https://a.example
  documentationUrl: https://a.example/docs
  productLogoUrl: https://a.example/logo.svg
  description: D
  contactEmailAddress: a@b.example
  k8sConformanceUrl: https://github.com/cncf/k8s-conformance/tree/master/v1.37/fine
spec:
  networking:
  - {id: ai_inference, status: Implemented, evidence: [https://a.example/gateway]}
  schedulingOrchestration:
  - {id: cluster_autoscaling, status: N/A, notes: the platform has no autoscaler}
  operator:
  - {id: robust_controller, status: Implemented, evidence: [operator.md]}
";

fn checklist() -> String {
    let mut text =
        "metadata:\n  kubernetesVersion: v1.37\n  platformName: \"[Platform Name]\"\nspec:\n"
            .to_owned();
    let mut last_category = "";
    for (category, id, level) in REQUIREMENTS {
        if category != last_category {
            text += &format!("  {category}:\n");
            last_category = category;
        }
        text += &format!(
            "  - id: {id}\n    description: \"The platform: {id}.\"\n    level: {level}\n    status: \"\"\n    \
             evidence: []\n    notes: \"\"\n"
        );
    }
    text
}

fn events(tests: &[(&str, &str, &str)]) -> String {
    let package = "github.com/kubernetes-sigs/ai-conformance/test";
    let event = |action: &str, test: &str, output: &str| {
        serde_json::json!({"Action": action, "Package": package, "Test": test, "Output": output})
            .to_string()
            + "\n"
    };
    let mut stream = event("start", "", "");
    for (name, end, output) in tests {
        stream += &event("run", name, "");
        stream += &event("output", name, &format!("    {output}\n"));
        stream += &event(end, name, "");
    }
    let end = if tests.iter().any(|(_, end, _)| *end == "fail") {
        "fail"
    } else {
        "pass"
    };
    stream + &event(end, "", "")
}

fn log(tests: &[(&str, &str, &str)]) -> String {
    let lines = tests.iter().map(|(name, end, output)| {
        let end = end.to_uppercase();
        format!("=== RUN   {name}\n    {output}\n--- {end}: {name} (0.01s)\n")
    });
    lines.chain(["PASS\n".to_owned()]).collect()
}

fn tree(tests: &[(&str, &str, &str)]) -> String {
    let items = tests.iter().map(|(name, end, _)| {
        let status = match *end {
            "pass" => "passed",
            "skip" => "skipped",
            _ => "failed",
        };
        format!("- {{name: {name}, status: {status}}}\n")
    });
    let head = "name: ai-conformance\nstatus: passed\nmeta: {type: summary}\nitems:\n".to_owned();
    std::iter::once(head).chain(items).collect()
}

/// The command in a folder with a complete run of these tests, each file passed through `change`.
fn certify_tests(
    words: &str,
    tests: &[(&str, &str, &str)],
    change: impl Fn(&str, String) -> String,
) -> Sonobuoy {
    let files = [
        (format!("run/{RESULTS}/e2e.log"), log(tests)),
        (format!("run/{RESULTS}/results.json"), events(tests)),
        (
            "run/plugins/ai-conformance/sonobuoy_results.yaml".to_owned(),
            tree(tests),
        ),
        (
            "run/meta/info.json".to_owned(),
            r#"{"plugins": ["ai-conformance"]}"#.to_owned(),
        ),
        (
            "run/serverversion.json".to_owned(),
            r#"{"gitVersion": "v1.37.2"}"#.to_owned(),
        ),
        (CHECKLIST.to_owned(), checklist()),
        (PRODUCT.to_owned(), ANSWERS.to_owned()),
        ("operator.md".to_owned(), "The operator ran.\n".to_owned()),
    ];
    files
        .into_iter()
        .fold(Sonobuoy::new(words), |run, (name, content)| {
            let content = change(&name, content);
            run.file(&name, content)
        })
}

/// As above, with `from` replaced by `to` in the file whose name ends in `file`.
fn certify(words: &str, file: &str, from: &str, to: &str) -> Sonobuoy {
    certify_tests(words, &TESTS, |name, content| {
        if file.is_empty() || !name.ends_with(file) {
            return content;
        }
        assert!(content.contains(from), "{name}: {from}");
        content.replacen(from, to, 1)
    })
}

#[test]
fn complete_submission_has_the_checklist_filled_in_and_the_results() {
    let done = certify(ALL, "", "", "")
        .stdout(
            "5 tests of the AI conformance suite, v1.37: 4 passed, 0 failed, 1 skipped
Proven by tests:
  schedulingOrchestration/gang_scheduling: TestGangScheduling
  security/secure_accelerator_access: TestSecureAcceleratorAccess
To answer by a person, with status, evidence and notes in the product's file:
  1. accelerators/driver_runtime_management (SHOULD)
    The platform: driver_runtime_management.
    TestAcceleratorDriverRuntimeManagement did not run
  2. observability/ai_service_metrics (SHOULD)
    The platform: ai_service_metrics.
    TestAIServiceMetrics did not run
  3. security/workload_sandboxing (SHOULD)
    The platform: workload_sandboxing.
    TestWorkloadSandboxing did not run
Accepted, but reviewers will ask:
  `schedulingOrchestration/cluster_autoscaling` is MUST and `N/A`: reviewers check the reason in its
    `notes`
out/PRODUCT.yaml
out/e2e.log
out/results.json
out/junit.xml
out/operator.md
",
        )
        .stderr_has("as v1.37/<product>/ in a pull request")
        .run();
    let mut names = Folder::names_of(&done.folder.join("out"));
    names.sort();
    assert_eq!(
        names,
        [
            "PRODUCT.yaml",
            "e2e.log",
            "junit.xml",
            "operator.md",
            "results.json"
        ]
    );
    assert_eq!(done.folder.read("out/e2e.log"), log(&TESTS));
    assert_eq!(done.folder.read("out/results.json"), events(&TESTS));
    let junit = done.folder.read("out/junit.xml");
    for (name, ..) in TESTS {
        assert!(
            junit.contains(&format!("<testcase name=\"{name}\"")),
            "{name}: {junit}"
        );
    }
    let product = done.folder.read("out/PRODUCT.yaml");
    assert!(product.starts_with(
        "metadata:\n  kubernetesVersion: \"v1.37\"\n  platformName: \"Fine Clusters\"\n"
    ));
    assert!(product.contains(
        "    - id: gang_scheduling
      description: \"The platform: gang_scheduling.\"
      level: MUST
      status: \"Implemented\"
      evidence:
        - \"e2e.log\"
        - \"results.json\"
        - \"junit.xml\"
      notes: \"\"
    - id: cluster_autoscaling
      description: \"The platform: cluster_autoscaling.\"
      level: MUST
      status: \"N/A\"
      evidence: []
      notes: \"the platform has no autoscaler\"
"
    ));
}

/// A draft that a person completes: what the tests prove is filled in, the rest is open.
#[test]
fn submission_without_an_answer_to_a_must_is_a_draft() {
    let done = certify(
        ALL,
        PRODUCT,
        "status: N/A, notes: the platform has no autoscaler",
        "status: ''",
    )
    .status(3)
    .stdout_has(
        "  2. schedulingOrchestration/cluster_autoscaling (MUST)\n    The platform: \
            cluster_autoscaling.\n    TestAcceleratorClusterAutoscaling was skipped: c.go:1: set \
            -autoscaler-node-pool-label\n",
    )
    .stdout_has(
        "Not ready for certification: the answers to MUST are not complete\nout/PRODUCT.yaml\n",
    )
    .run_any();
    let draft = done.folder.read("out/PRODUCT.yaml");
    assert!(draft.contains("- id: cluster_autoscaling"), "{draft}");
}

#[test]
fn draft_that_was_completed_is_read_as_the_product() {
    let words = "certify run --program ai --checklist AIConformance-1.37.yaml";
    certify(words, "", "", "")
        .status(3)
        .stdout_has("Proven by tests:")
        .run_any();
    let done = certify(ALL, "", "", "").run_any();
    let draft = done.folder.read("out/PRODUCT.yaml");
    certify(ALL, "", "", "")
        .file(PRODUCT, draft)
        .stdout_has("out/PRODUCT.yaml")
        .run_any();
}

#[test]
fn failed_test_makes_the_submission_not_ready() {
    let mut tests = TESTS;
    tests[3].1 = "fail";
    let done = certify_tests(ALL, &tests, |_, content| content)
        .status(3)
        .stdout_has("results.json: 1 test failed\n    TestParse/empty\n")
        .run_any();
    assert!(!done.folder.join("out").exists());
}

#[test]
fn skipped_test_is_no_evidence() {
    let claim = "status: Implemented, evidence: [e2e.log]";
    certify(ALL, PRODUCT, "status: N/A", claim)
        .status(3)
        .stdout_has(
            "product.yaml: the evidence of `schedulingOrchestration/cluster_autoscaling`: \
             `TestAcceleratorClusterAutoscaling` was skipped, which is no evidence that it is \
             `Implemented`",
        )
        .run_any();
}

/// Each defect of the run, of the checklist and of the product, and what is said about it.
#[test]
fn every_defect_is_found() {
    let second = |name: &str| format!("run/{RESULTS}/{name}");
    for (file, from, to, code, words) in [
        (
            CHECKLIST,
            "v1.37",
            "v1.36",
            3,
            "is the checklist of v1.36, but the cluster is v1.37",
        ),
        (
            CHECKLIST,
            "  security:",
            "  safety:",
            1,
            "the category `security` is missing",
        ),
        (
            CHECKLIST,
            "status: \"\"",
            "status: Done",
            1,
            "is filled in, which the product's file is for",
        ),
        (
            CHECKLIST,
            "level: MUST",
            "level: MAY",
            1,
            "is `MAY`, which is unknown",
        ),
        (
            CHECKLIST,
            "spec:",
            "spec: [",
            1,
            "is no checklist of the programme: line",
        ),
        (
            PRODUCT,
            "status: N/A",
            "status: Done",
            3,
            "is `Done`; write one of Implemented, Not Implemented",
        ),
        (
            PRODUCT,
            "status: N/A",
            "status: Not Implemented",
            3,
            "is MUST and must be Implemented, but is",
        ),
        (
            PRODUCT,
            "notes: the",
            "evidence: [https://a.example], x: the",
            3,
            "`spec.schedulingOrchestration[0].x`",
        ),
        (
            PRODUCT,
            ", notes: the platform has no autoscaler",
            "",
            3,
            "which its `notes` must explain",
        ),
        (
            PRODUCT,
            "Fine Clusters",
            "'[Platform Name]'",
            3,
            "still the placeholder `[Platform Name]`",
        ),
        (
            PRODUCT,
            "  description: D\n",
            "",
            3,
            "`metadata.description` is missing or empty",
        ),
        (
            PRODUCT,
            "v1.0",
            "1.0",
            3,
            "`metadata.platformVersion` must be text",
        ),
        (
            PRODUCT,
            "networking:",
            "networks:",
            3,
            "the checklist has no category `networks`",
        ),
        (
            PRODUCT,
            "id: ai_inference",
            "id: inference",
            3,
            "the checklist has no `networking/inference`",
        ),
        (
            PRODUCT,
            "operator.md",
            "missing.md",
            3,
            "there is no file `missing.md`",
        ),
        (
            PRODUCT,
            "operator.md",
            "../run",
            3,
            "leads out of the folder",
        ),
        (
            "serverversion.json",
            "v1.37.2",
            "",
            3,
            "does not state the cluster's version",
        ),
        (
            "results.json",
            "\"Action\":\"pass\"",
            "\"Action\":\"fail\"",
            3,
            "1 test failed",
        ),
        (
            "e2e.log",
            "--- PASS: TestGang",
            "--- FAIL: TestGang",
            3,
            "ended otherwise than in `results.json`",
        ),
    ] {
        let run = certify(ALL, file, from, to).status(code);
        let done = run.run_any();
        let output = done.stdout.clone() + &done.stderr;
        assert!(output.contains(words), "{file}, {to}: {output}");
    }
    let cut = |file: &'static str, keep: usize| {
        certify_tests(ALL, &TESTS, move |name, content| {
            let kept = if name.ends_with(file) {
                content.len() - keep
            } else {
                content.len()
            };
            content[..kept].to_owned()
        })
    };
    cut("results.json", 9)
        .status(3)
        .stdout_has("it is cut: it ends within an event")
        .run_any();
    let line = events(&TESTS).lines().last().unwrap().len() + 1;
    cut("results.json", line)
        .status(3)
        .stdout_has("has no end: the stream is cut")
        .run_any();
    let ginkgo =
        "Running Suite: Kubernetes e2e suite\nWill run 5 of 9 specs\n\nTest Suite Passed\n";
    certify(ALL, "", "", "")
        .file(&second("e2e.log"), ginkgo)
        .status(3)
        .stdout_has("is a log of Ginkgo, but must be the text of `go test -v`")
        .run_any();
    certify(ALL, "", "", "")
        .file(&second("results.json"), events(&TESTS).repeat(2))
        .status(3)
        .stdout_has("ran more than once: results of two runs are mixed")
        .run_any();
    certify(ALL, "", "", "")
        .file(&second("other/results.json"), events(&TESTS))
        .status(3)
        .stdout_has("holds 2 results of suites")
        .run_any();
}

#[test]
fn flags_of_one_programme_are_refused_with_the_other() {
    for (words, error) in [
        ("certify run --program ai", "by --checklist FILE"),
        (
            "certify run --checklist AIConformance-1.37.yaml",
            "--checklist is for --program ai",
        ),
        (
            "certify run --program ai --checklist AIConformance-1.37.yaml --tests t",
            "--tests is for --program kubernetes",
        ),
    ] {
        certify(words, "", "", "")
            .status(1)
            .stderr_has(error)
            .run_any();
    }
}

/// Rules are data: a test that is added to the suite needs another file, not another program.
#[test]
fn rules_can_be_given() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/ai-conformance-rules.yaml"
    );
    let rules = std::fs::read_to_string(path).unwrap();
    let rules = rules.replacen("TestRobustCRDControllerOperation", "TestParse", 1);
    let words = format!("{ALL} --rules rules.yaml");
    certify(&words, "", "", "")
        .file("rules.yaml", rules)
        .stdout_has("  operator/robust_controller: TestParse\n")
        .run_any();
}

/// The plugin with stand-ins for the suite and for Go's converter.
#[cfg(unix)]
#[test]
fn plugin_keeps_the_log_and_the_events_of_the_suite() {
    let definition = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins.d/ai-conformance.yaml");
    let run = Sonobuoy::new("run --local -p")
        .arg(definition)
        .args("--plugin-env ai-conformance.SUITE_ACCELERATOR_TYPE=x --plugin-env ai-conformance.GOTEST_RUN=TestA|TestB")
        .file(
            "bin/ai-conformance.test",
            "#!/bin/sh\nprintf '\\026=== RUN   TestA\\n    %s\\nno end' \"$*\"\nprintf '\\026--- PASS: TestA (0.00s)\\nPASS\\n'\n",
        )
        .file(
            "bin/test2json",
            "#!/bin/sh\necho \"{\\\"Action\\\":\\\"run\\\",\\\"Test\\\":\\\"TestA\\\",\\\"Package\\\":\\\"$3\\\"}\"\n\
             echo \"{\\\"Action\\\":\\\"pass\\\",\\\"Test\\\":\\\"TestA\\\",\\\"Package\\\":\\\"$3\\\"}\"\n\
             echo \"{\\\"Action\\\":\\\"pass\\\",\\\"Package\\\":\\\"$3\\\"}\"\ncat > /dev/null\n",
        );
    let folder = run.folder();
    for name in ["ai-conformance.test", "test2json"] {
        make_runnable(&folder.join("bin").join(name));
    }
    let path = format!(
        "{}:{}",
        folder.join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let done = run.env("PATH", path).run_any();
    let archive = Archive::only_one_in(done.folder.path());
    assert_eq!(
        archive.text(&format!("{RESULTS}/e2e.log")),
        "=== RUN   TestA\n    -test.v=test2json -test.paniconexit0 -test.run=TestA|TestB -test.timeout=3h \
         -accelerator-type=x\nno end\n--- PASS: TestA (0.00s)\nPASS\n"
    );
    let events = archive.text(&format!("{RESULTS}/results.json"));
    assert!(
        events.contains("github.com/kubernetes-sigs/ai-conformance/test"),
        "{events}"
    );
    let tree = archive.text("plugins/ai-conformance/sonobuoy_results.yaml");
    assert!(
        tree.contains("name: TestA") && tree.contains("status: passed"),
        "{tree}"
    );
}
