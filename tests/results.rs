//! `sonobuoy results`: output for humans and pipelines.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::{Folder, Sonobuoy, fixture, fixture_text, program};

const OLD: &str = "testResultsOutput.tar.gz";
const QUICK: &str = "results-quick-no-failures.tar.gz";

fn results(archive: &str, words: &str) -> Sonobuoy {
    let path = fixture(&format!("archives/{archive}"));
    let mut command = Sonobuoy::new("results").arg(path);
    for word in words.split_whitespace() {
        command = command.arg(word);
    }
    command
}

#[test]
fn stored_examples_print_equal_results() {
    results(OLD, "--plugin=e2e")
        .stdout(&fixture_text("results/results-example_default.txt"))
        .run();
    results(QUICK, "")
        .stdout(&fixture_text("results/quick-all-report.txt"))
        .run();
    results(OLD, "--plugin tarresultsds --mode detailed --node out1")
        .stdout(&fixture_text(
            "results/results-example_pluginDetailedNode.txt",
        ))
        .run();
}

#[test]
fn modes_print_the_tree() {
    results(OLD, "-p tarresultsds -m detailed")
        .stdout("tarresultsds|kind-control-plane|out0 hello world\ntarresultsds|kind-control-plane|out1 hello world pt2\n")
        .run();
    results(OLD, "-p tarresultsds -m detailed -s")
        .stdout("hello world\nhello world pt2\n")
        .run();
    results(OLD, "-p custom-status -m detailed -n another-output-file")
        .stdout(
            "{\"name\":\"Another test item with complete status\",\"status\":\"complete\",\"meta\":{\"path\":\"another-output-file\"}}\n\
             {\"name\":\"Another test item with custom status\",\"status\":\"custom\",\"meta\":{\"path\":\"another-output-file\"}}\n",
        )
        .run();
    results(OLD, "-p custom-status -n another-output-file")
        .stdout("Plugin: another-output-file\nStatus: failed\nTotal: 2\nPassed: 0\nFailed: 0\nSkipped: 0\ncomplete: 1\ncustom: 1\n")
        .run();
    let stored = "name: tar\nstatus: passed\nitems:\n- name: out0\n  status: passed\n  meta:\n    file: results/global/out0\n  \
        file: results/global/out0\n- name: out1\n  status: passed\n  meta:\n    file: results/global/out1\n  file: results/global/out1\n";
    for mode in ["dump", "readable"] {
        results(OLD, &format!("-p tar -n ignored -m {mode}"))
            .stdout(stored)
            .run();
    }
    results(OLD, "-p tar -m detail")
        .stdout("")
        .stderr_has("detailed")
        .status(1)
        .run();
}

/// An unpacked archive with one plugin `p` and its tree.
fn folder(tree: &str) -> Folder {
    let folder = Folder::new();
    folder.write("meta/info.json", "{\"plugins\":[\"p\"]}");
    folder.write("plugins/p/sonobuoy_results.yaml", tree);
    folder
}

fn show(folder: &Folder, words: &str) -> Sonobuoy {
    words
        .split_whitespace()
        .fold(Sonobuoy::new("results").arg(folder.path()), Sonobuoy::arg)
}

#[test]
fn detailed_mode_prints_gos_json_lines() {
    let folder = folder(
        "name: p\nstatus: failed\nitems:\n- name: '[It] <a> & b'\n  status: failed\n  meta: {z: 1, a: b}\n  \
         details:\n    failure: \"line\\nend\"\n    f: 1.0\n    o: {b: [1, x], a: true, c: yes}\n",
    );
    show(&folder, "-p p -m detailed")
        .stdout(
            "{\"name\":\"[It] \\u003ca\\u003e \\u0026 b\",\"status\":\"failed\",\"meta\":{\"a\":\"b\",\"path\":\"p\",\"z\":\"1\"},\
             \"details\":{\"f\":1,\"failure\":\"line\\nend\",\"o\":{\"a\":true,\"b\":[1,\"x\"],\"c\":\"yes\"}}}\n",
        )
        .run();
    show(&folder, "-p p -m readable")
        .stdout_has("failure: \"line\nend\"\n")
        .run();
    show(&folder, "-p p")
        .stdout_has("\n\nFailed tests:\n <a> & b\n")
        .run();
}

#[test]
fn cluster_health_is_listed_beside_plugins() {
    let folder = folder("name: p\nstatus: passed\nitems:\n- {name: a, status: passed}\n");
    let plugin = "Plugin: p\nStatus: passed\nTotal: 1\nPassed: 1\nFailed: 0\nSkipped: 0\n";
    folder.write(
        "meta/clusterhealth.json",
        r#"{"node_health":{"total_nodes":3,"healthy_nodes":1,"details":[
            {"name":"b","healthy":false,"ready":"False","reason":"R","message":"M"},{"name":"ok","healthy":true,"ready":"True"},
            {"name":"a","healthy":false,"ready":"Unknown"}]},
            "pod_health":{"total_nodes":2,"healthy_nodes":1,"details":[{"name":"p","namespace":"n","healthy":false,"ready":"False","reason":"R","message":"M"}]},
            "api_version":"v1.2.3","error_summary":{"Warnings":{"w":3},"Errors":{"x":2,"y":10,"a":2}}}"#,
    );
    let health = "Run Details:\nAPI Server version: v1.2.3\nNode health: 1/3 (33%)\nDetails for failed nodes:\n\
        a Ready:Unknown: : \nb Ready:False: R: M\n\nPods health: 1/2 (50%)\nDetails for failed pods:\nn/p Ready:False: R: M\n\
        Errors detected in files:\nErrors:\n10 y\n 2 a\n 2 x\nWarnings:\n3 w\n";
    show(&folder, "")
        .stdout(&format!("{plugin}\n{health}"))
        .run();
    show(&folder, "-p p").stdout(plugin).run();
    show(&folder, "-p sonobuoy").stdout(health).run();
    show(&folder, "-p sonobuoy -m detailed")
        .stdout(&folder.read("meta/clusterhealth.json"))
        .run();
    show(&folder, "-p sonobuoy -m dump")
        .stdout_has("node_health:\n  total_nodes: 3\n  healthy_nodes: 1\n")
        .run();
}

#[test]
fn cluster_health_equals_the_originals() {
    let folder = folder("name: p\nstatus: passed\n");
    let path = format!("podlogs/{}/p2/logs/c.txt", "n".repeat(110));
    let health = serde_json::json!({
        "node_health": {"total_nodes": 1, "healthy_nodes": 1, "details": [{"name": "n", "healthy": true, "ready": "True"}]},
        "pod_health": {"total_nodes": 3, "healthy_nodes": 1, "details": [
            {"name": "x", "namespace": "a-b", "healthy": false, "ready": "False", "reason": "Unschedulable",
             "message": "0/3 nodes are available: 1 node(s) had untolerated taint, 2 Insufficient cpu. preemption: none."},
            {"name": "y", "namespace": "a", "healthy": false, "ready": "", "reason": "", "message": "one\\ntwo"},
        ]},
        "api_version": "1.30",
        "error_summary": {"Errors": {path.as_str(): 1, "p10": 2, "p9": 3}, "None": {}},
    });
    folder.write("meta/clusterhealth.json", format!("{health} and more"));
    show(&folder, "-p sonobuoy")
        .stdout_has("(33%)\nDetails for failed pods:\na/y Ready:: : one\\ntwo\na-b/x Ready:False: Unschedulable: 0/3 ")
        .run();
    let yaml = format!(
        "node_health:\n  total_nodes: 1\n  healthy_nodes: 1\n  details:\n  - name: \"n\"\n    healthy: true\n    ready: \"True\"\n\
         pod_health:\n  total_nodes: 3\n  healthy_nodes: 1\n  details:\n  - name: x\n    healthy: false\n    ready: \"False\"\n    \
         reason: Unschedulable\n    message: '0/3 nodes are available: 1 node(s) had untolerated taint, 2 Insufficient\n      \
         cpu. preemption: none.'\n    namespace: a-b\n  - name: \"y\"\n    healthy: false\n    ready: \"\"\n    \
         message: one\\ntwo\n    namespace: a\napi_version: \"1.30\"\nerror_summary:\n  Errors:\n    \
         p9: 3\n    p10: 2\n    ? {path}\n    : 1\n  None: {{}}\n\n",
    );
    show(&folder, "-p sonobuoy -m dump").stdout(&yaml).run();
    show(&folder, "-p sonobuoy -m readable")
        .stdout(&yaml.replace("one\\ntwo", "one\ntwo"))
        .run();
    folder.write("meta/clusterhealth.json", "null");
    show(&folder, "-p sonobuoy")
        .stdout("Run Details:\nAPI Server version: \nNode health: 0/0\n")
        .run();
}

#[test]
fn links_in_archives_are_empty_files() {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    let leaf = |name: &str| format!("- {{name: {name}, status: passed, meta: {{file: {name}}}}}\n");
    let tree = format!(
        "name: p\nstatus: passed\nitems:\n{}{}",
        leaf("link"),
        leaf("file")
    );
    let mut add = |name: &str, content: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    };
    add("plugins/p/sonobuoy_results.yaml", &tree);
    add("plugins/p/file", "content\n");
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    archive
        .append_link(&mut link, "plugins/p/link", "file")
        .unwrap();
    let bytes = archive.into_inner().unwrap().finish().unwrap();
    Sonobuoy::new("results a.tar.gz -p p -m detailed")
        .file("a.tar.gz", bytes)
        .stdout("p|link p|file content\n")
        .run();
}

fn fails(command: Sonobuoy, reason: &str) {
    command
        .stderr_has("could not process archive: ")
        .stderr_has(reason)
        .status(1)
        .run();
}

#[test]
fn missing_plugins_and_files_are_named() {
    fails(
        Sonobuoy::new("results absent.tar.gz"),
        "stat absent.tar.gz: no such file or directory",
    );
    fails(
        Sonobuoy::new("results a.txt").file("a.txt", "text"),
        "could not make a gzip reader: gzip: invalid header",
    );
    fails(
        results(OLD, ""),
        "no plugins specified by either the --plugin flag or tarball metadata",
    );
    fails(
        results(OLD, "-p absent"),
        "failed to find file \\\"plugins/absent/sonobuoy_results.yaml\\\" in archive; it has results of arbitrary-details, ",
    );
    fails(
        results(OLD, "-p e2e -n absent"),
        "node named \\\"absent\\\" not found",
    );
    fails(
        results(QUICK, "-p sonobuoy -m detailed"),
        "failed to find file \\\"meta/clusterhealth.json\\\"",
    );
    let tree = folder(
        "name: p\nstatus: passed\nitems:\n- {name: a, status: passed, meta: {file: results\\x\\a}}\n",
    );
    fails(
        show(&tree, "-p p -m detailed"),
        "failed to find file \\\"plugins/p/results/x/a\\\"",
    );
    tree.write("plugins/p/results/x/a", "content");
    show(&tree, "-p p -m detailed").stdout("p|a content").run();
}

#[test]
fn unknown_node_is_reported_once_with_known_ones() {
    let tree = |name: &str, node: &str| {
        format!(
            "name: {name}\nstatus: passed\nitems:\n- name: {node}\n  status: passed\n  meta: {{type: node}}\n  items: [{{name: a, status: passed}}]\n"
        )
    };
    let folder = folder(&tree("p", "n1"));
    folder.write("meta/info.json", "{\"plugins\":[\"p\",\"q\"]}");
    folder.write("plugins/q/sonobuoy_results.yaml", tree("q", "n2"));
    let done = show(&folder, "-n n3")
        .stderr_has("nodes are n1, n2: node named")
        .status(1)
        .run_any();
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    show(&folder, "-n n2")
        .stdout_has("Plugin: n2\nStatus: passed\nTotal: 1\n")
        .run();
}

#[test]
fn failing_plugin_does_not_stop_others() {
    let folder = folder("name: p\nstatus: passed\n");
    folder.write("meta/info.json", "{\"plugins\":[\"gone\",\"p\"]}");
    show(&folder, "")
        .stdout_has("\nPlugin: p\nStatus: passed\nTotal: 1\n")
        .stdout_has("Run Details:")
        .stderr_has("plugins/gone/")
        .status(1)
        .run();
}

#[test]
fn damaged_archives_are_one_line() {
    let whole = std::fs::read(fixture(&format!("archives/{QUICK}"))).unwrap();
    let command = |bytes: &[u8]| Sonobuoy::new("results a.tar.gz").file("a.tar.gz", bytes);
    for end in [1, 5, 1000, whole.len() / 2, whole.len() - 3] {
        let done = command(&whole[..end]).status(1).stdout("").run_any();
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
    let mut damaged = whole.clone();
    damaged[5000] ^= 0xff;
    command(&damaged).status(1).stdout("").run_any();
}

#[test]
fn damaged_trees_are_one_line() {
    let deep = format!(
        "name: p\n{}",
        (0..200)
            .map(|n| format!("{}items:\n{0}- name: x\n", "  ".repeat(n)))
            .collect::<String>()
    );
    let wide = format!("name: p\ndetails:\n  a: {}\n", "x".repeat(60 << 20));
    for (tree, reason) in [
        ("name: '", "end of stream"),
        ("[1, 2]", "not a map"),
        ("name: \u{0}", "control"),
        ("items: &a [*a]", "anchors"),
        (&deep, "deeper than 100"),
        (&wide, "more than 32 MiB"),
    ] {
        let done = show(&folder(tree), "-p p")
            .status(1)
            .stdout("")
            .stderr_has(reason)
            .run_any();
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
}

#[test]
fn results_reads_standard_input() {
    let bytes = std::fs::read(fixture(&format!("archives/{OLD}"))).unwrap();
    Sonobuoy::new("results - -p tar -m detailed")
        .stdin(bytes)
        .stdout("tar|out0 hello world\ntar|out1 hello world pt 2\n")
        .run();
}

#[test]
fn every_command_rejects_other_files() {
    let place = Folder::new();
    place.write("foreign/readme.txt", "nothing");
    place.write("unpacked/meta/readme.txt", "nothing");
    let out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(out);
    tar.append_dir_all("etc", place.join("foreign")).unwrap();
    place.write(
        "foreign.tar.gz",
        tar.into_inner().unwrap().finish().unwrap(),
    );
    let run = |words: &str, status: i32, says: &str| {
        let words = words.replace('@', &format!("{}/", place.path().display()));
        Sonobuoy::new(&words)
            .stdout("")
            .stderr_has(says)
            .status(status)
            .run();
    };
    let archives = "no `*_sonobuoy_*.tar.gz` in `";
    for words in [
        "results @foreign",
        "results diff @foreign @foreign",
        "verify @foreign",
        "certify @foreign",
        "verify latest",
    ] {
        run(words, 1, archives);
    }
    for words in [
        "results latest",
        "results diff latest latest",
        "certify latest",
    ] {
        run(words, 1, "no `*_sonobuoy_*.tar.gz` in `.`");
    }
    for what in ["unpacked", "foreign.tar.gz"] {
        run(
            &format!("results @{what}"),
            1,
            "tarball metadata; it is not a Sonobuoy archive",
        );
        for words in [
            "results --mode summary @",
            "results --format json @",
            "results diff @foreign.tar.gz @",
        ] {
            run(
                &format!("{words}{what}"),
                1,
                "neither results nor a snapshot of a cluster; it is not a Sonobuoy archive",
            );
        }
    }
    run(
        "results @foreign/readme.txt",
        1,
        "gzip: invalid header; it is not a Sonobuoy archive",
    );
    run(
        "results latst",
        1,
        "stat latst: no such file or directory; did you mean `latest`?",
    );
    run(
        "verify @unpacked",
        1,
        "is an unpacked archive; only the packed one is sealed",
    );
}

#[test]
fn unknown_node_lists_known_ones() {
    let nodes = "- {name: n1, status: passed, meta: {type: node}}\n- {name: n2, status: passed, meta: {type: node}}\n";
    let folder = folder(&format!("name: p\nstatus: passed\nitems:\n{nodes}"));
    for words in ["-n nope", "-n nope --mode summary", "-n nope --format json"] {
        show(&folder, words)
            .stderr_has("no item of that name; nodes are n1, n2: ")
            .status(1)
            .run_any();
    }
}

#[test]
fn folder_and_latest_mean_the_newest_archive() {
    let folder = Folder::new();
    let names = [
        "202601010000_sonobuoy_a.tar.gz",
        "202602010000_sonobuoy_b.tar.gz",
    ];
    for name in names {
        folder.write(
            name,
            std::fs::read(fixture(&format!("archives/{QUICK}"))).unwrap(),
        );
    }
    folder.write("202603010000_other.tar.gz", "");
    let path = folder.path().display();
    for words in [
        format!("results {path} --format json"),
        format!("results diff {path} {path} --format json"),
    ] {
        let done = Sonobuoy::new(&words).run_any();
        assert!(
            done.stdout.contains(names[1]) && !done.stdout.contains(names[0]),
            "{}",
            done.stdout
        );
    }
    Sonobuoy::new(&format!("certify {path}"))
        .stdout_has("conformance tests")
        .status(3)
        .run_any();
    Sonobuoy::new(&format!("verify {path}"))
        .stderr_has(&format!("{}.sha256", names[1]))
        .status(1)
        .run();
}

#[test]
fn newest_archive_of_a_minute_is_the_last_written() {
    let folder = Folder::new();
    let content = std::fs::read(fixture(&format!("archives/{QUICK}"))).unwrap();
    // By name, the last one written is in the middle.
    let names = ["b", "c", "a"].map(|run| format!("202601010000_sonobuoy_{run}.tar.gz"));
    for (age, name) in names.iter().enumerate() {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        std::io::Write::write_all(&mut &file, &content).unwrap();
        let seconds = std::time::Duration::from_secs(10 + (age as u64 + 1) % 3);
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + seconds)
            .unwrap();
    }
    // An earlier minute, written later.
    folder.write("202512310000_sonobuoy_z.tar.gz", &content);
    let done = Sonobuoy::new("results --format json")
        .arg(folder.path())
        .run_any();
    assert!(done.stdout.contains(&names[1]), "{}", done.stdout);
}

#[test]
fn empty_name_of_an_archive_is_an_unset_variable() {
    for words in ["results", "results diff latest", "verify", "certify"] {
        let call = Sonobuoy::new(words).arg("");
        call.status(1)
            .stderr_has("the name of an archive is empty: is a variable unset?")
            .run_any();
    }
}

#[cfg(unix)]
#[test]
fn pipe_is_not_an_archive() {
    let folder = Folder::new();
    let pipe = folder.join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let call = Sonobuoy::new("results").arg(&pipe);
    call.status(1)
        .stderr_has("it is neither a file nor a folder; `-` reads an archive")
        .run();
}

#[test]
fn duplicate_plugins_are_shown_once_and_bounded() {
    let folder = folder("name: p\nstatus: passed\nitems:\n- {name: a, status: passed}\n");
    for words in ["", "--format json"] {
        folder.write("meta/info.json", "{\"plugins\":[\"p\"]}");
        let (_, once, _) = show(&folder, words).run_any_status();
        folder.write("meta/info.json", "{\"plugins\":[\"p\",\"p\",\"p\"]}");
        show(&folder, words).stdout(&once).run();
        let many: Vec<String> = (0..10_001).map(|number| format!("\"p{number}\"")).collect();
        folder.write(
            "meta/info.json",
            format!("{{\"plugins\":[{}]}}", many.join(",")),
        );
        show(&folder, words)
            .stdout("")
            .stderr_has("names more than 10000 plugins")
            .status(1)
            .run();
    }
}

#[test]
fn impossible_path_is_rejected() {
    let folder = Folder::new();
    for (length, accepted) in [(4_096, true), (4_097, false)] {
        let out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(out);
        let long = "n/".repeat(length / 2) + &"n".repeat(length % 2);
        let tree = "name: p\nstatus: passed\nitems:\n- {name: a, status: passed}\n";
        for (name, text) in [
            (&*long, ""),
            ("meta/info.json", "{\"plugins\":[\"p\"]}"),
            ("plugins/p/sonobuoy_results.yaml", tree),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        std::fs::write(
            folder.join("a.tar.gz"),
            tar.into_inner().unwrap().finish().unwrap(),
        )
        .unwrap();
        for words in ["", "--format json"] {
            let shown = words
                .split_whitespace()
                .fold(Sonobuoy::new("results"), Sonobuoy::arg);
            let shown = shown.arg(folder.join("a.tar.gz"));
            if accepted {
                shown.stdout_has("p").run();
            } else {
                let says = "cannot read the archive: a name in it has 4097 bytes, but at most 4096 are possible";
                shown.stdout("").stderr_has(says).status(1).run();
            }
        }
    }
}

#[test]
fn impossible_health_numbers_are_shown() {
    let folder = folder("name: p\nstatus: passed\nitems:\n- {name: a, status: passed}\n");
    let part = format!("{{\"total_nodes\": -1, \"healthy_nodes\": {}}}", i64::MIN);
    folder.write(
        "meta/clusterhealth.json",
        format!("{{\"node_health\": {part}, \"pod_health\": {part}}}"),
    );
    show(&folder, "")
        .stdout_has("Node health: -9223372036854775808/-1 ")
        .run();
}

#[test]
fn archives_are_metrics_that_promtool_accepts() {
    let lines = |command: Sonobuoy| command.arg("--format").arg("openmetrics").run_any().stdout;
    let one = lines(results(OLD, ""));
    assert!(
        one.starts_with("# HELP sonobuoy_run_info ") && one.ends_with("\n# EOF\n"),
        "{one}"
    );
    assert!(one.contains("\nsonobuoy_run_passed 0\n"), "{one}");
    assert!(
        one.contains("\nsonobuoy_plugin_passed{plugin=\"tar\"} 1\n"),
        "{one}"
    );
    let two = lines(results(OLD, "").arg(fixture(&format!("archives/{QUICK}"))));
    let quick = two
        .lines()
        .filter(|line| line.contains(QUICK) && line.starts_with("sonobuoy_run_passed{archive="));
    assert_eq!(quick.count(), 1, "{two}");
    let Some(promtool) = program("promtool") else {
        return;
    };
    for text in [one, two] {
        let mut checked = Command::new(&promtool);
        let checked = checked
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut checked = checked.unwrap();
        checked
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let ended = checked.wait_with_output().unwrap();
        assert!(
            ended.status.success(),
            "{}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
}
