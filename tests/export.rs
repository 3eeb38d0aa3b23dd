//! Results for programs: JSON, JUnit, tables, and differences between archives.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{self, Folder, Sonobuoy, fixture};

/// An unpacked archive with one example of every outcome.
pub fn run() -> Folder {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["e2e","check","gone"]}"#);
    folder.write(
        "meta/config.json",
        r#"{"Version":"v0.60.0","UUID":"run-1"}"#,
    );
    folder.write(
        "meta/run.log",
        "{\"time\":\"2026-01-01T00:00:00Z\"}\n{\"time\":\"2026-01-01T01:02:03Z\"}\n",
    );
    folder.write("serverversion.json", r#"{"gitVersion":"v1.34.2"}"#);
    folder.write(
        "meta/clusterhealth.json",
        r#"{"error_summary":{"Errors":{"podlogs/ns/sonobuoy-e2e-job-1/logs/e2e.txt":2}}}"#,
    );
    folder.write(
        "podlogs/ns/sonobuoy-e2e-job-1/logs/e2e.txt",
        "E1 </pre><script>document.title='owned'</script>\n",
    );
    folder.write(
        "plugins/e2e/sonobuoy_results.yaml",
        "name: e2e\nstatus: failed\nmeta: {type: summary}\nitems:\n- name: junit.xml\n  status: failed\n  \
         meta: {file: results/global/junit.xml, type: file}\n  items:\n  - name: suite\n    status: failed\n    items:\n    \
         - name: \"<b>bold</b> & 'quoted' \\\"name\\\"\"\n      status: failed\n      details:\n        \
         failure: \"one\\ntwo <img src=x onerror=document.title='owned'>\\e[31m\"\n        system-out: out\n    \
         - {name: fine, status: passed}\n    - {name: not run, status: skipped}\n",
    );
    let node = |name: &str, status: &str| {
        format!(
            "- name: {name}\n  status: {status}\n  meta: {{type: node}}\n  items:\n  - {{name: dns, status: {status}}}\n  \
             - {{name: disk, status: complete, details: {{free: 5}}}}\n"
        )
    };
    let nodes: String = ["n1", "n2", "n3"]
        .iter()
        .map(|name| node(name, "passed"))
        .collect();
    folder.write(
        "plugins/check/sonobuoy_results.yaml",
        format!(
            "name: check\nstatus: failed\nitems:\n{nodes}{}",
            node("n4", "unknown")
        ),
    );
    folder
}

pub fn results(folder: &Folder, words: &str) -> Sonobuoy {
    words
        .split_whitespace()
        .fold(Sonobuoy::new("results").arg(folder.path()), Sonobuoy::arg)
}

#[test]
fn json_report_is_complete() {
    let folder = run();
    let json: Value =
        serde_json::from_str(&results(&folder, "--format json").run_any().stdout).unwrap();
    let about = [
        "schemaVersion",
        "version",
        "runId",
        "kubernetesVersion",
        "started",
        "ended",
        "status",
    ];
    assert_eq!(
        about.map(|key| json[key].clone()),
        [
            json!(1),
            json!("v0.60.0"),
            json!("run-1"),
            json!("v1.34.2"),
            json!("2026-01-01T00:00:00Z"),
            json!("2026-01-01T01:02:03Z"),
            json!("failed")
        ]
    );
    let names: Vec<_> = json["plugins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plugin| plugin["name"].as_str())
        .collect();
    assert_eq!(names, [Some("e2e"), Some("check"), Some("gone")]);
    let [e2e, check, gone] = [0, 1, 2].map(|at| &json["plugins"][at]);
    assert_eq!(
        e2e["counts"],
        json!({"failed": 1, "passed": 1, "skipped": 1, "timeout": 0, "unknown": 0})
    );
    assert_eq!(
        e2e["tests"][1],
        json!({"name": "fine", "status": "passed", "path": ["junit.xml", "suite"], "file": "results/global/junit.xml"})
    );
    assert_eq!(check["oddNodes"], json!(["n4"]));
    assert_eq!(check["nodes"][3]["counts"]["unknown"], 1);
    assert_eq!(
        check["tests"][1],
        json!({"name": "disk", "status": "complete", "node": "n1", "path": ["n1"], "details": {"free": 5}})
    );
    assert!(
        gone["error"]
            .as_str()
            .unwrap()
            .contains("failed to find file")
    );
    let only: Value = serde_json::from_str(
        &results(&folder, "--format json -p check -n n4")
            .run_any()
            .stdout,
    )
    .unwrap();
    assert_eq!(
        (&only["plugins"][0]["total"], &only["status"]),
        (&json!(2), &json!("unknown"))
    );
}

/// An archive whose files and receipts contain durations.
fn timed() -> Folder {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["e2e","clock"]}"#);
    folder.write(
        "meta/run.log",
        "{\"time\":\"2026-01-01T00:00:10Z\"}\n{\"time\":\"2026-01-01T00:00:10Z\"}\n",
    );
    folder.write(
        "meta/results.json",
        r#"[{"plugin":"e2e","node":"global","started":"2026-01-01T00:00:10Z","first_heartbeat":null,"arrived":"2026-01-01T00:05:10Z","size":5},
            {"plugin":"clock","node":"n1","started":"2026-01-01T00:00:11Z","arrived":"2026-01-01T00:00:15Z"}]"#,
    );
    folder.write(
        "plugins/e2e/results/global/junit_01.xml",
        "<testsuite timestamp='2025-12-31T23:59:00'><testcase name='a &amp; b' time='12.25'/><testcase name='c' time='0'/>\
         <testcase name='d' time='1_0'/><testcase name='a &amp; b' time='7'/><testcase name='e' time='0.1'/></testsuite><",
    );
    let leaf = |name: &str| format!("    - {{name: {name}, status: passed}}\n");
    folder.write(
        "plugins/e2e/sonobuoy_results.yaml",
        format!(
            "name: e2e\nstatus: passed\nitems:\n- name: junit_01.xml\n  status: passed\n  meta: {{file: results/global/junit_01.xml}}\n  \
             items:\n  - name: suite\n    status: passed\n    items:\n{}",
            ["'a & b'", "c", "d", "e"].map(leaf).concat()
        ),
    );
    folder.write(
        "plugins/clock/sonobuoy_results.yaml",
        "name: clock\nstatus: passed\nitems:\n- name: n1\n  status: passed\n  meta: {type: node}\n  items:\n  \
         - {name: offset, status: passed, details: {duration: 1.5}}\n  - {name: drift, status: passed, details: {duration: 250ms}}\n",
    );
    folder
}

#[test]
fn durations_are_in_json_and_junit() {
    let folder = timed();
    let json: Value =
        serde_json::from_str(&results(&folder, "--format json").run_any().stdout).unwrap();
    assert_eq!(
        (&json["started"], &json["ended"]),
        (
            &json!("2026-01-01T00:00:10Z"),
            &json!("2026-01-01T00:05:10Z")
        )
    );
    assert_eq!(json["duration"], 300.0);
    let [e2e, clock] = [0, 1].map(|at| &json["plugins"][at]);
    assert_eq!(
        (
            &e2e["duration"],
            &clock["duration"],
            &clock["nodes"][0]["duration"]
        ),
        (&json!(300.0), &json!(4.0), &json!(4.0))
    );
    assert_eq!(clock["arrivals"][0]["node"], "n1");
    let seconds = |plugin: &Value| {
        plugin["tests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|test| test["duration"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        seconds(e2e),
        [json!(12.25), json!(null), json!(null), json!(0.1)]
    );
    assert_eq!(seconds(clock), [json!(1.5), json!(0.25)]);
    let xml = results(&folder, "--format junit").run_any().stdout;
    for part in [
        "errors=\"0\" time=\"300\">",
        "skipped=\"0\" time=\"12.35\" timestamp=\"2025-12-31T23:59:00\">",
        "<testcase name=\"a &amp; b\" classname=\"e2e.junit_01.xml.suite\" time=\"12.25\">",
        "<testsuite name=\"clock/n1\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"0\" time=\"1.75\" \
         timestamp=\"2026-01-01T00:00:11\" hostname=\"n1\">",
    ] {
        assert!(xml.contains(part), "{part}\n{xml}");
    }
    assert!(
        results(&folder, "--format html")
            .run_any()
            .stdout
            .contains("5 min 0 s")
    );
}

#[test]
fn plugins_are_found_without_a_list() {
    let archive = fixture("archives/testResultsOutput.tar.gz");
    let done = Sonobuoy::with([
        "results".as_ref(),
        archive.as_os_str(),
        "--format".as_ref(),
        "json".as_ref(),
    ])
    .run_any();
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(json["plugins"].as_array().unwrap().len(), 8);
}

#[test]
fn junit_output_is_read_back() {
    let folder = run();
    let xml = results(&folder, "--format junit").run_any().stdout;
    assert!(
        xml.contains("<testsuite name=\"check/n4\" tests=\"2\" failures=\"0\" errors=\"1\" skipped=\"1\" hostname=\"n4\">"),
        "{xml}"
    );
    assert!(
        xml.contains(
            "<testsuites name=\"sonobuoy\" tests=\"12\" failures=\"1\" errors=\"2\" time=\"3723\">"
        ),
        "{xml}"
    );
    // Our own JUnit reader must produce the same tree.
    let again = Folder::new();
    again.write(
        "plugins/p/definition.json",
        r#"{"Definition":{"sonobuoy-config":{"driver":"Job","plugin-name":"p","result-format":"junit"}}}"#,
    );
    again.write("plugins/p/results/global/all.xml", &xml);
    Sonobuoy::new("post-process")
        .arg(again.path())
        .stdout("p: failed\n")
        .run();
    let tree: Value = serde_yaml::from_str(&again.read("plugins/p/sonobuoy_results.yaml")).unwrap();
    let suites = tree["items"][0]["items"].as_array().unwrap();
    let names: Vec<_> = suites
        .iter()
        .map(|suite| suite["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "e2e", "check/n1", "check/n2", "check/n3", "check/n4", "gone"
        ]
    );
    let failed = &suites[0]["items"][0];
    assert_eq!(failed["name"], "<b>bold</b> & 'quoted' \"name\"");
    assert!(
        failed["details"]["failure"]
            .as_str()
            .unwrap()
            .contains("two <img src=x"),
        "{failed}"
    );
    assert_eq!(failed["details"]["system-out"], "out");
    if let Some(xmllint) = support::program("xmllint") {
        let path = again.join("plugins/p/results/global/all.xml");
        assert!(
            Command::new(xmllint)
                .arg("--noout")
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    }
}

#[test]
fn exit_codes_follow_fail_on() {
    let folder = run();
    for (words, code) in [
        ("--format json", 0),
        ("--format json --fail-on never", 0),
        ("--format json --fail-on failed", 3),
        ("--format junit --fail-on unknown", 3),
        ("-p check --fail-on failed", 3),
        ("-p check -n n4 --fail-on failed", 0),
        ("-p check -n n4 --fail-on unknown", 4),
        ("-p check -n n1 --fail-on unknown", 0),
        ("-p absent --fail-on failed", 1),
        ("-p absent --format json", 1),
        ("-n absent --format json", 1),
    ] {
        results(&folder, words).status(code).run_any();
    }
}

#[test]
fn last_line_explains_the_exit_code() {
    let folder = run();
    for (words, line) in [
        ("-p e2e --fail-on failed", "exit 3: 1 test failed in e2e"),
        (
            "--format json --fail-on incomplete",
            "exit 3: 1 test failed in e2e",
        ),
        (
            "-p check -n n4 --fail-on unknown",
            "exit 4: 1 test is unknown in check",
        ),
    ] {
        let code = line.as_bytes()[5] - b'0';
        let done = results(&folder, words).status(i32::from(code)).run_any();
        assert_eq!(done.stderr.lines().last(), Some(line), "{words}");
    }
}

#[test]
fn text_report_begins_with_verdict_and_groups_by_cause() {
    let folder = run();
    let node = |name: &str, text: &str| {
        format!(
            "- name: {name}\n  status: failed\n  meta: {{type: node}}\n  items:\n  - name: reach\n    status: failed\n    \
                 details:\n      failure: 'dial tcp {text}:443: i/o timeout'\n"
        )
    };
    let nodes = node("n1", "10.0.0.1") + &node("n2", "10.0.0.2") + &node("n3", "10.9.0.3");
    folder.write(
        "plugins/net/sonobuoy_results.yaml",
        format!("name: net\nstatus: failed\nitems:\n{nodes}"),
    );
    let text = results(&folder, "--mode summary --color never")
        .run_any()
        .stdout;
    assert!(
        text.starts_with(
            "FAILED  4 failed of 13 that ran (1 skipped) · 1 h 2 min · Kubernetes v1.34.2\n\n"
        ),
        "{text}"
    );
    for line in [
        "  PLUGIN   STATUS   PASSED  FAILED  SKIPPED  NODES  DURATION\n",
        "  net      failed        0       3        0      3         -\n",
        "\n  3 x dial tcp 10.0.0.1:443: i/o timeout  (1 test on 3 nodes, values differ)\n       net\n       x reach on n1, n2, n3\n       -> look",
        "The results of gone cannot be read: failed to find file",
        "\nNext:\n  sonobuoy run --rerun-failed ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let colour = results(&folder, "--mode summary --color always")
        .run_any()
        .stdout;
    assert!(
        colour.starts_with("\u{1b}[1;31mFAILED\u{1b}[0m  4 failed"),
        "{colour}"
    );
    assert_eq!(
        colour.matches("[31m").count(),
        3 + 1,
        "only ours and the escaped one of a test: {colour}"
    );
    // A pipe gets no styling.
    results(&folder, "-p net")
        .stdout_has("Plugin: net\nStatus: failed\nTotal: 3\n")
        .run();
    let json: Value =
        serde_json::from_str(&results(&folder, "--format json").run_any().stdout).unwrap();
    assert_eq!(json["causes"][0]["cause"], "dial tcp <ip>:443: i/o timeout");
    assert_eq!(
        (&json["causes"][0]["count"], &json["causes"][0]["nodes"]),
        (&json!(3), &json!(3))
    );
}

#[test]
fn several_archives_are_a_table_and_a_folder_means_its_newest() {
    let (one, other) = (run(), timed());
    let both = Sonobuoy::new("results").arg(one.path()).arg(other.path());
    let text = both.arg("--color=never").run_any().stdout;
    for line in [
        "PLUGIN  1         2\n",
        "all     failed    passed\n",
        "e2e     1 failed  passed\n",
        "  x.  e2e: <b>bold</b>",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json = Sonobuoy::new("results")
        .arg(one.path())
        .arg(other.path())
        .arg("--format=json")
        .run_any()
        .stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["archives"][0]["plugins"]["e2e"]["failed"], 1);
    assert_eq!(json["failed"][0]["statuses"], json!(["failed", null]));
    let archive = std::fs::read(fixture("archives/results-quick-no-failures.tar.gz")).unwrap();
    for word in ["latest", "."] {
        Sonobuoy::new(&format!("results {word} -p e2e"))
            .file("202601010000_sonobuoy_a.tar.gz", "cut off")
            .file("202601020000_sonobuoy_b.tar.gz", &archive)
            .stdout_has("Plugin: e2e\nStatus: passed\n")
            .run();
    }
    Sonobuoy::new("results latest")
        .stdout("")
        .stderr_has("sonobuoy retrieve")
        .status(1)
        .run();
}

#[test]
fn diff_compares_facts_and_durations() {
    let archive = |kernel: &str, seconds: &str| {
        let folder = timed();
        let node = |name: &str, kernel: &str| {
            let facts =
                json!({"ansible_facts": {"ansible_kernel": kernel, "ansible_processor_vcpus": 4}});
            folder.write(
                &format!("plugins/host-facts/results/{name}/host-facts.json"),
                facts.to_string(),
            );
        };
        node("n1", "6.1");
        node("n2", kernel);
        node("n3", "6.1");
        let path = "plugins/clock/sonobuoy_results.yaml";
        let tree = folder.read(path).replace("duration: 1.5", seconds);
        folder.write(path, tree);
        folder
    };
    let (before, after) = (
        archive("6.1", "duration: 1.5"),
        archive("5.4", "duration: 6s"),
    );
    results(&after, "--facts")
        .stdout_has("\nn2    -   5.4 *   -     4")
        .stdout_has("1 of 3 nodes runs kernel 5.4: n2\n")
        .run();
    results(&after, "--facts --format csv")
        .stdout_has("\nn2,,5.4,,4,,,,,,\n")
        .run();
    let diff = Sonobuoy::new("results diff")
        .arg(before.path())
        .arg(after.path());
    diff.stdout_has("Much slower: 1\n  clock (1.5 s -> 6.0 s): offset on n1\n")
        .stdout_has("Facts of nodes that changed: 1\n  n2: kernel 6.1 -> 5.4\n")
        .run();
    results(&after, "--facts=all")
        .stdout_has("\nEvery key that differs between nodes: 1\n  ansible_kernel: 6.1 on 2 nodes; 5.4 on 1 node: n2\n")
        .run();
    let page = results(&after, "--format html").run_any().stdout;
    for part in [
        "<a href=\"#facts-host-facts\">What the nodes are made of</a>",
        "<li><b>1 of 3 nodes runs kernel 5.4</b>: n2</li>",
        "<tr><th scope=\"row\">n2<td>–<td><mark>5.4</mark><td>–<td>4<td>–",
        "<tr><td>ansible_kernel<td>6.1 on 2 nodes; 5.4 on 1 node: n2",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Node facts of the snapshot; the gatherer's own facts take precedence.
    let info = |version: &str| json!({"kubeletVersion": version, "containerRuntimeVersion": "containerd://2"});
    let node = |name: &str, info| json!({"metadata": {"name": name}, "status": {"nodeInfo": info}});
    let nodes = json!({"kind": "NodeList", "items": [node("n1", info("v1.1")), node("n2", info("v1.2")), {}]});
    after.write("resources/cluster/core_v1_nodes.json", nodes.to_string());
    let asked = json!({"ansible_facts": {"sonobuoy_node_info": {"kubeletVersion": "v1.3"}}});
    after.write(
        "plugins/host-facts/results/n1/host-facts.json",
        asked.to_string(),
    );
    results(&after, "--facts --format csv")
        .stdout_has("\nn1,,,,,,,containerd://2,v1.3,,\n")
        .stdout_has("\nn2,,5.4,,4,,,containerd://2,v1.2,,\n")
        .run();
    after.write("resources/cluster/core_v1_nodes.json", "{\"items\": [{");
    results(&after, "--facts --format csv")
        .stdout_has("\nn2,,5.4,,4,,,,,,\n")
        .run();
    results(&timed(), "--facts")
        .stdout("")
        .stderr_has("sonobuoy run -p host-facts")
        .status(1)
        .run();
    // CSV numbers have no units; medians of even counts are averages.
    let facts = json!({"ansible_facts": {
        "ansible_memtotal_mb": 24_100, "ansible_uptime_seconds": 90_000, "sonobuoy_clock_offset": {"seconds": -1.0},
    }});
    after.write(
        "plugins/host-facts/results/n1/host-facts.json",
        facts.to_string(),
    );
    results(&after, "--facts --format csv")
        .stdout_has("node,os,kernel,arch,cpus,memory_gib,disk_gib,runtime,kubelet,clock_s,uptime_s\nn1,,,,,24,,,,-1,90000\n")
        .run();
    results(&after, "--facts")
        .stdout_has("24 GiB")
        .stdout_has("Clock: median -1.0 s, furthest -1.0 s (n1)\n")
        .run();
    for (node, connect, status) in [
        ("n1", 1.0, "failed"),
        ("n2", 2.0, "failed"),
        ("n3", 4.0, "failed"),
        ("n4", 3_586.0, "passed"),
    ] {
        let tree = format!(
            "name: network\nstatus: {status}\nitems:\n- {{name: dns, status: {status}}}\n- name: api\n  status: passed\n  \
             details: {{connect_ms: {connect}}}\n"
        );
        after.write(
            &format!("plugins/network/results/{node}/network.yaml"),
            tree,
        );
    }
    results(&after, "--facts -p network")
        .stdout_has("API: median 3.0 ms, highest 3.6 s (n4)\n")
        .stdout_has("\n1 of 4 nodes does not fail: n4\n")
        .run();
    if cfg!(target_os = "linux") {
        Sonobuoy::new("gather host-facts --format table")
            .stdout_has("NODE")
            .stdout_has("KERNEL")
            .run();
        Sonobuoy::new("gather network --format table")
            .stdout_has("NODE")
            .stdout_has("DNS")
            .run_any();
        Sonobuoy::new("gather log-summary --format csv")
            .stdout_has("node,")
            .run_any();
    }
}

#[test]
fn diff_compares_versions_and_durations() {
    let archive = |version: &str, ended: &str| {
        let folder = timed();
        folder.write(
            "serverversion.json",
            json!({"gitVersion": version}).to_string(),
        );
        let image = json!({"Definition": {"spec": {"image": format!("conformance:{version}")}}});
        folder.write("plugins/e2e/definition.json", image.to_string());
        folder.write(
            "meta/results.json",
            folder.read("meta/results.json").replace("00:05:10", ended),
        );
        folder
    };
    let (before, after) = (
        archive("v1.33.0", "00:05:10"),
        archive("v1.34.0", "00:15:10"),
    );
    let diff = |words: &str| {
        let command = Sonobuoy::new("results diff")
            .arg(before.path())
            .arg(after.path());
        words.split_whitespace().fold(command, Sonobuoy::arg)
    };
    diff("")
        .stdout_has("Versions that changed: 2\n  Kubernetes: v1.33.0 -> v1.34.0\n  image of e2e: conformance:v1.33.0 -> ")
        .stdout_has("Durations that changed: 2\n  the run: 5 min 0 s -> 15 min 0 s\n  e2e: 5 min 0 s -> 15 min 0 s\n")
        .run();
    let json: Value = serde_json::from_str(&diff("--format json").run_any().stdout).unwrap();
    assert_eq!(
        json["versions"][0],
        json!({"name": "Kubernetes", "before": "v1.33.0", "after": "v1.34.0"})
    );
    assert_eq!(
        json["durations"][2],
        json!({"plugin": "e2e", "before": 300.0, "after": 900.0})
    );
    let page = diff("--format html").run_any().stdout;
    assert!(
        page.contains("<td>v1.33.0</td><td><mark>v1.34.0</mark></td>"),
        "{page}"
    );
    let both = Sonobuoy::new("results")
        .arg(before.path())
        .arg(after.path())
        .run_any()
        .stdout;
    assert!(
        both.contains("\n\nVERSION       1  ") && both.contains("\nKubernetes    v1.33.0"),
        "{both}"
    );
}

#[test]
fn diff_names_changes() {
    let (before, after) = (run(), run());
    let path = "plugins/check/sonobuoy_results.yaml";
    let text = after.read(path).replace(
        "{name: dns, status: unknown}",
        "{name: dns, status: failed}",
    );
    after.write(path, text.replace("disk", "disk space"));
    let e2e = after
        .read("plugins/e2e/sonobuoy_results.yaml")
        .replace("status: skipped", "status: timeout");
    after.write(
        "plugins/e2e/sonobuoy_results.yaml",
        e2e.replace(
            "status: failed\n      details",
            "status: passed\n      details",
        )
        .replace("junit.xml", "other.xml"),
    );
    let diff = |words: &str| {
        let command = Sonobuoy::new("results diff")
            .arg(before.path())
            .arg(after.path());
        words.split_whitespace().fold(command, Sonobuoy::arg)
    };
    let json: Value = serde_json::from_str(&diff("--format json").run_any().stdout).unwrap();
    assert_eq!(
        json["newlyFailing"],
        json!([{"plugin": "check", "node": "n4", "test": "dns", "before": "unknown", "after": "failed"},
               {"plugin": "e2e", "test": "not run", "before": "skipped", "after": "timeout"}])
    );
    assert_eq!(json["fixed"][0]["test"], "<b>bold</b> & 'quoted' \"name\"");
    let count = |kind: &str| json[kind].as_array().unwrap().len();
    assert_eq!(
        ["stillFailing", "vanished", "appeared", "changed"].map(count),
        [0, 4, 4, 0]
    );
    assert_eq!(json["unchanged"], 4);
    diff("")
        .stdout_has("Newly failing: 2\n  check (unknown -> failed): dns on n4\n")
        .run();
    diff("-p e2e")
        .stdout_has("e2e: 1 newly failing, 1 fixed\nUnchanged: 1\n")
        .run();
    diff("--fail-on failed")
        .stdout_has("Newly failing: 2\n")
        .stderr_has("exit 3: 2 tests newly failing\n")
        .status(3)
        .run();
    let page = diff("--format html").run_any().stdout;
    for part in [
        "<h1>2 newly failing, 1 fixed, 4 vanished</h1>",
        "<h2>Newly failing: 2</h2>",
        "<summary>not run <i>skipped → timeout</i></summary>",
        "<summary>dns <i>on n4 · unknown → failed</i></summary>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    for link in page.split("href=\"#").skip(1) {
        assert!(
            page.contains(&format!("id=\"{}\"", link.split('"').next().unwrap())),
            "{link}"
        );
    }
    diff("-p absent")
        .stderr_has("neither archive has results of the plugin `absent`")
        .status(1)
        .run();
    Sonobuoy::new("results diff").arg(before.path()).arg(before.path()).arg("--fail-on=failed").stdout("Both archives are of the same run.\n\nStill failing: 1\n  e2e: <b>bold</b> & 'quoted' \"name\"\n\ne2e: 1 still failing\nUnchanged: 10\n").run();
}

#[test]
fn archives_of_the_original_are_compared() {
    let [quick, failed] = ["results-quick-no-failures", "testResultsOutput"]
        .map(|name| fixture(&format!("archives/{name}.tar.gz")));
    let done = Sonobuoy::new("results diff")
        .arg(&quick)
        .arg(&failed)
        .stdout_has("Newly failing: 3\n")
        .run_any();
    assert!(done.stderr.is_empty(), "{}", done.stderr);
}

#[test]
fn junit_keeps_classes_messages_and_skip_reasons() {
    let suite = "<testsuite name=\"s\"><testcase name=\"a\" classname=\"my.Class\" file=\"src/a.rs\" time=\"1.5\"/>\
        <testcase name=\"b\" classname=\"my.Class\"><failure message=\"no disk\">at disk.rs:3\nat main.rs:1</failure></testcase>\
        <testcase name=\"c\"><failure>first\nsecond</failure></testcase>\
        <testcase name=\"d\" classname=\"other\"><skipped message=\"needs a &lt;GPU>\"/></testcase>\
        <testcase name=\"e\"><skipped>no zone</skipped></testcase><testcase name=\"f\"><skipped/></testcase></testsuite>";
    let run = Folder::new();
    run.write("plugins/p/results/global/junit.xml", suite);
    run.write("plugins/p/definition.json", "{}");
    run.write("run.yaml", "");
    let tree = "name: p\nstatus: failed\nmeta: {type: summary}\nitems:\n- name: junit.xml\n  status: failed\n  meta: {file: results/global/junit.xml, type: file}\n  \
        items:\n  - name: s\n    status: failed\n    items:\n    - {name: a, status: passed}\n    - {name: b, status: failed, details: {failure: \"no disk at disk.rs:3\\nat main.rs:1\"}}\n    \
        - {name: c, status: failed, details: {failure: \"first\\nsecond\"}}\n    - {name: d, status: skipped}\n    - {name: e, status: skipped}\n    - {name: f, status: skipped}\n";
    run.write("plugins/p/sonobuoy_results.yaml", tree);
    let junit = results(&run, "--format junit").run_any().stdout;
    for case in [
        "<testcase name=\"a\" classname=\"my.Class\" time=\"1.5\" file=\"src/a.rs\"></testcase>\n",
        "<testcase name=\"b\" classname=\"my.Class\" time=\"0\"><failure type=\"failed\" message=\"no disk\">at disk.rs:3\nat main.rs:1</failure></testcase>\n",
        "<testcase name=\"c\" classname=\"p.junit.xml.s\" time=\"0\"><failure type=\"failed\" message=\"first\">first\nsecond</failure></testcase>\n",
        "<testcase name=\"d\" classname=\"other\" time=\"0\"><skipped message=\"needs a &lt;GPU&gt;\"/></testcase>\n",
        "<testcase name=\"e\" classname=\"p.junit.xml.s\" time=\"0\"><skipped message=\"no zone\"/></testcase>\n",
        "<testcase name=\"f\" classname=\"p.junit.xml.s\" time=\"0\"><skipped/></testcase>\n",
    ] {
        assert!(junit.contains(case), "{case}\n{junit}");
    }
}

#[test]
fn nodes_without_results_are_named_once() {
    let run = run();
    let error = |name: &str, error: &str| json!({"queryobj": "Nodes", "namespace": "", "name": name, "error": error});
    let errors = json!([
        error("n1/configz", "503"),
        error("n1/metrics/resource", "504"),
        error("n2", "silent")
    ]);
    run.write("meta/query-errors.json", errors.to_string());
    let result = |node: &str, end: &str| json!({"plugin": "check", "node": node, "started": "2026-01-01T00:00:10Z", "arrived": null, end: "2026-01-01T00:01:00Z"});
    let received = [
        result("n1", "arrived"),
        result("n2", "arrived"),
        result("n3", "failed"),
        result("n4", "arrived"),
    ];
    run.write("meta/results.json", json!(received).to_string());
    let health = json!({"error_summary": {"Errors": {"podlogs/sonobuoy/p/logs/sonobuoy-worker.txt": 2}, "Warnings": {
        "podlogs/sonobuoy/sonobuoy/logs/kube-sonobuoy.txt": 3, "podlogs/ns/p/logs/c.txt": 1,
    }}});
    run.write("meta/clusterhealth.json", health.to_string());
    let json: Value =
        serde_json::from_str(&results(&run, "--format json").run_any().stdout).unwrap();
    assert_eq!(
        json["leftOut"],
        json!([{"node": "n1", "error": "configz: 503; metrics/resource: 504"}, {"node": "n2", "error": "silent"}])
    );
    assert_eq!(
        json["plugins"][1]["arrivals"][2]["failed"],
        "2026-01-01T00:01:00Z"
    );
    let page = results(&run, "--format html").run_any().stdout;
    for (node, class) in [
        ("n1", "f-node"),
        ("n2", "f-node"),
        ("n3", "f-failed"),
        ("n4", "f-node"),
    ] {
        let bar = page
            .lines()
            .find(|line| line.contains(&format!("<title>{node}: 50 s</title>")))
            .unwrap();
        assert!(bar.contains(&format!("<rect class=\"{class}\"")), "{bar}");
    }
    assert!(page.contains("<h3>Warnings in logs</h3>") && page.contains("podlogs/ns/p/logs/c.txt"));
    assert!(
        !page.contains("<h3>Errors in logs</h3>") && !page.contains("kube-sonobuoy.txt"),
        "own logs"
    );
}

#[test]
fn metadata_files_of_archives_are_bounded() {
    let run = run();
    // A definition may be as large as its config map.
    let definition =
        json!({"Definition": {"spec": {"image": "i:1"}, "config-map": {"f": "x".repeat(2 << 20)}}});
    run.write("plugins/e2e/definition.json", definition.to_string());
    let twice = Sonobuoy::new("results")
        .arg(run.path())
        .arg(run.path())
        .arg("--format=json");
    twice.stdout_has("\"image of e2e\": \"i:1\"").run();
    for name in ["serverversion.json", "meta/config.json", "meta/info.json"] {
        let before = run.read(name);
        run.write(name, format!("[{}0]", "{\"\":0},".repeat(200_000)));
        results(&run, "--format json")
            .stderr_has(&format!("`{name}` is larger than 1 MiB"))
            .status(1)
            .run_any();
        run.write(name, before);
    }
}

/// A short text can describe a long list or a large tree.
#[test]
fn lists_of_archives_are_bounded_in_memory() {
    let run = run();
    let many = format!("[{}{{}}]", "{},".repeat(50_000));
    let logs: Vec<_> = (0..100_000).map(|at| format!("\"{at}\":1")).collect();
    let health = "meta/clusterhealth.json";
    for (content, error) in [
        (
            format!("{{\"node_health\":{{\"details\":{many}}}}}"),
            "a list has more than 50000 entries",
        ),
        (
            format!(
                "{{\"error_summary\":{{\"Errors\":{{{}}}}}}}",
                logs.join(",")
            ),
            "it takes too much memory",
        ),
    ] {
        run.write(health, content);
        results(&run, "")
            .stderr_has(&format!("`{health}`: {error}"))
            .status(1)
            .run_any();
    }
    run.write(health, "{\"api_version\":\"v1.33.0\"} ignored");
    for name in [
        "meta/query-errors.json",
        "meta/results.json",
        "meta/run.log",
    ] {
        let content = format!("[{}{{}}]", "{},".repeat(2_000_000));
        run.write(name, content);
    }
    if cfg!(target_os = "linux") {
        let (command, _folder) = Sonobuoy::new("").command();
        let limited = Command::new("sh")
            .args([
                "-c",
                "ulimit -v 100000; exec \"$0\" results --format json \"$1\"",
            ])
            .args([command.get_program(), run.path().as_os_str()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&limited.stderr);
        assert!(
            limited.status.success() && !limited.stdout.is_empty(),
            "{:?}: {said}",
            limited.status
        );
    }
}

/// The values between two texts, in order.
fn between<'t>(text: &'t str, start: &'t str, end: &'t str) -> Vec<&'t str> {
    let parts = text.split(start).skip(1);
    parts.map(|part| part.split(end).next().unwrap()).collect()
}

/// A run whose plugins, causes and nodes are stored in another order than they are shown.
fn run_in_another_order() -> Folder {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["good","some","bad"]}"#);
    let tree = |name: &str, items: &str| {
        let text = format!("name: {name}\nstatus: failed\nitems:\n{items}");
        folder.write(&format!("plugins/{name}/sonobuoy_results.yaml"), text);
    };
    folder.write(
        "plugins/good/sonobuoy_results.yaml",
        "name: good\nstatus: passed\nitems:\n- {name: fine, status: passed}\n",
    );
    tree(
        "some",
        "- {name: alone, status: failed, details: {failure: 'no disk a.go:1: no disk'}}\n",
    );
    let mut nodes = String::new();
    let suite = "<testsuite name=\"s\"><testcase name=\"reach\">\
                 <failure message=\"refused\">at b.go:2: refused</failure></testcase></testsuite>";
    for node in ["vm-10", "vm-2", "vm-1"] {
        nodes.push_str(&format!(
            "- name: {node}\n  status: failed\n  meta: {{type: node, file: results/{node}/j.xml}}\n  items:\n  \
             - {{name: reach, status: failed, details: {{failure: \"refused at b.go:2: refused\"}}}}\n"
        ));
        folder.write(&format!("plugins/bad/results/{node}/j.xml"), suite);
    }
    tree("bad", &nodes);
    folder
}

#[test]
fn every_report_says_the_same_in_the_same_order() {
    let folder = run_in_another_order();
    let report = |words: &str| results(&folder, words).run_any().stdout;
    let json: Value = serde_json::from_str(&report("--format json")).unwrap();
    let text = report("--mode summary --color never");
    let markdown = report("--format markdown");
    let page = report("--format html");
    let junit = report("--format junit");

    let list = |value: &Value, key: &str| -> Vec<String> {
        let elements = value.as_array().unwrap().iter();
        elements
            .map(|element| element[key].as_str().unwrap().to_owned())
            .collect()
    };
    let plugins = list(&json["plugins"], "name");
    assert_eq!(plugins, ["some", "bad", "good"]);
    let table: Vec<_> = text.lines().skip(3).take(3).collect();
    let rows = table
        .iter()
        .map(|row| row.split_whitespace().next().unwrap());
    assert_eq!(rows.collect::<Vec<_>>(), plugins, "{text}");
    let rows = markdown.lines().filter_map(|line| {
        let name = line.strip_prefix("| ")?.split(' ').next()?;
        plugins.iter().find(|plugin| *plugin == name)
    });
    assert_eq!(rows.collect::<Vec<_>>(), plugins.iter().collect::<Vec<_>>());
    assert_eq!(between(&page, "href=\"#plugin-", "\"")[..3], plugins);
    let mut suites: Vec<_> = between(&junit, "<testsuite name=\"", "\"")
        .into_iter()
        .map(|name| name.split('/').next().unwrap())
        .collect();
    suites.dedup();
    assert_eq!(suites, plugins);

    let causes = list(&json["causes"], "cause");
    assert_eq!(causes, ["refused", "no disk"]);
    let of_text = text.lines().filter_map(|line| {
        let (count, cause) = line.strip_prefix("  ")?.split_once(" x ")?;
        count.parse::<u32>().ok()?;
        cause.split("  (").next()
    });
    assert_eq!(of_text.take(2).collect::<Vec<_>>(), causes, "{text}");
    let of_markdown = between(&markdown, " × ", "**");
    assert_eq!(of_markdown, causes, "{markdown}");
    let of_page = between(&page, "<span class=\"message\">", "</span>");
    assert_eq!(of_page, causes);
    // JUnit has each failure, in the order of the tests.
    let messages = between(&junit, "message=\"", "\"");
    assert_eq!(messages, ["no disk", "refused", "refused", "refused"]);
    let tests = json["plugins"].as_array().unwrap().iter();
    let of_json: Vec<_> = tests
        .flat_map(|plugin| plugin["tests"].as_array().unwrap())
        .filter_map(|test| test["message"].as_str())
        .collect();
    assert_eq!(of_json, messages);

    let nodes = "reach on vm-1, vm-2, vm-10";
    assert!(text.contains(nodes) && markdown.contains(nodes), "{text}");
    assert_eq!(between(&page, "class=\"chips\">", "</p>").len(), 1);
    let chips = between(between(&page, "class=\"chips\">", "</p>")[0], "\">", "</a>");
    assert_eq!(chips, ["vm-1", "vm-2", "vm-10"]);
    let names = list(&json["plugins"][1]["nodes"], "name");
    assert_eq!(names, ["vm-1", "vm-2", "vm-10"]);
}

#[test]
fn forty_failures_of_two_tests_are_a_short_diff() {
    let archive = |status: &str| {
        let folder = Folder::new();
        folder.write("meta/info.json", r#"{"plugins":["net"]}"#);
        let mut tree = String::from("name: net\nitems:\n");
        for number in 1..=20 {
            tree.push_str(&format!(
                "- name: vm-{number}\n  status: {status}\n  meta: {{type: node}}\n  items:\n  \
                 - {{name: reach, status: {status}}}\n  - {{name: resolve, status: {status}}}\n"
            ));
        }
        folder.write("plugins/net/sonobuoy_results.yaml", tree);
        folder
    };
    let (before, after) = (archive("passed"), archive("failed"));
    let on = "on vm-1, vm-2, vm-3, vm-4, vm-5 and 15 more";
    Sonobuoy::new("results diff")
        .arg(before.path())
        .arg(after.path())
        .stdout(&format!(
            "Newly failing: 40\n  net (passed -> failed): reach {on}\n  \
             net (passed -> failed): resolve {on}\n\nnet: 40 newly failing\nUnchanged: 0\n"
        ))
        .run();
}

#[test]
fn cause_of_a_crashed_program_is_its_exception_in_every_report() {
    let folder = Folder::new();
    folder.write("meta/info.json", r#"{"plugins":["p"]}"#);
    // The program wrote `starting` first, and flushed it last.
    let error = "it ended; its last output:\nTraceback (most recent call last):\n  \
                 File \"a.py\", line 3\nKeyError: 'URL'\nstarting";
    let item = json!({
        "name": error, "status": "failed", "details": {"error": error},
        "meta": {"file": "errors/global/error.json"},
    });
    let tree = json!({"name": "p", "status": "failed", "items": [item]});
    folder.write("plugins/p/sonobuoy_results.yaml", tree.to_string());
    let message = "it ended; its last output: KeyError: 'URL'";
    let report = |words: &str| results(&folder, words).run_any().stdout;
    let json: Value = serde_json::from_str(&report("--format json")).unwrap();
    assert_eq!(json["causes"][0]["cause"], message);
    assert_eq!(json["plugins"][0]["tests"][0]["message"], message);
    let junit = report("--format junit");
    assert!(junit.contains(&format!("message=\"{message}\"")), "{junit}");
    assert!(junit.contains("<testcase name=\"it ended; its last output:\""));
    for words in ["--mode summary", "--format markdown"] {
        let text = report(words);
        assert!(text.replace("\\_", "_").contains(message), "{text}");
    }
    let page = report("--format html").replace("&#39;", "'");
    let summary = format!("<summary><b>p</b><span class=\"message\">{message}</span>");
    assert!(page.contains(&summary), "{page}");
}
