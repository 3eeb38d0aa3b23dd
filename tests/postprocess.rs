//! Results of a plugin become the tree of items that readers of the original expect.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::system::symlink;
use crate::support::{Folder, Sonobuoy, fixture};

/// A plugin in an unpacked archive, and its items.
struct Plugin {
    folder: Folder,
    name: String,
    unreadable: Vec<&'static str>,
}

impl Plugin {
    fn new(name: &str, driver: &str, format: &str, files: &[&str]) -> Self {
        let folder = Folder::new();
        let config = json!({"driver": driver, "plugin-name": name, "result-format": format, "result-files": files});
        let definition = json!({"Definition": {"sonobuoy-config": config}}).to_string();
        folder.write(&format!("plugins/{name}/definition.json"), definition);
        Self {
            folder,
            name: name.to_owned(),
            unreadable: Vec::new(),
        }
    }

    fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.folder
            .write(&format!("plugins/{}/{path}", self.name), content);
        self
    }

    /// A warning will mention this unreadable file.
    fn unreadable(mut self, path: &'static str) -> Self {
        self.unreadable.push(path);
        self
    }

    fn items(&self) -> Value {
        process(&self.folder, &self.unreadable);
        items(&self.folder.join(&format!("plugins/{}", self.name)))
    }

    /// The only item below the root.
    fn item(&self) -> Value {
        let mut root = self.items();
        assert_eq!(root["items"].as_array().unwrap().len(), 1, "{root}");
        root["items"][0].take()
    }
}

/// Processes the results; expects a warning per unreadable file and no others.
#[track_caller]
fn process(folder: &Folder, unreadable: &[&str]) {
    let call = Sonobuoy::with([Path::new("post-process"), folder.path()]);
    let stderr = call.stdout_has(": ").run_any().stderr;
    let warnings: Vec<_> = stderr.lines().collect();
    assert_eq!(warnings.len(), unreadable.len(), "{stderr}");
    for (warning, path) in warnings.iter().zip(unreadable) {
        assert!(
            warning.contains("level=warning") && warning.contains(path),
            "no `{path}`: {warning}"
        );
    }
}

fn items(plugin: &Path) -> Value {
    let text = fs::read_to_string(plugin.join("sonobuoy_results.yaml")).unwrap();
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

#[test]
fn stored_examples_produce_equal_trees() {
    for entry in fs::read_dir(fixture("postprocess")).unwrap() {
        let from = entry.unwrap().path();
        let name = from.file_name().unwrap().to_str().unwrap().to_owned();
        let driver = if name.starts_with("ds-") {
            "DaemonSet"
        } else {
            "Job"
        };
        let format = ["junit", "raw", "manual"]
            .into_iter()
            .find(|format| name.contains(format))
            .unwrap_or("junit");
        let plugin = Plugin::new(&name, driver, format, &[]);
        copy(&from, &plugin.folder.join(&format!("plugins/{name}")));
        let golden = fs::read_to_string(from.join(format!("{name}.golden.json"))).unwrap();
        assert_eq!(
            plugin.items(),
            serde_json::from_str::<Value>(&golden).unwrap(),
            "{name}"
        );
    }
}

fn unpacked(archive: &str) -> Folder {
    let folder = Folder::new();
    let file = fs::File::open(fixture(&format!("archives/{archive}"))).unwrap();
    tar::Archive::new(flate2::read::GzDecoder::new(file))
        .unpack(folder.path())
        .unwrap();
    folder
}

#[test]
fn real_archive_is_reprocessed_item_by_item() {
    let folder = unpacked("results-quick-no-failures.tar.gz");
    let plugins = ["e2e", "systemd-logs"].map(|name| folder.join(&format!("plugins/{name}")));
    let stored = plugins.clone().map(|plugin| items(&plugin));
    process(&folder, &[]);
    let tests = stored[0]["items"][0]["items"][0]["items"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(tests, 5771);
    for (plugin, stored) in plugins.iter().zip(stored) {
        assert!(items(plugin) == stored, "{}", plugin.display());
    }
}

#[test]
fn older_archive_gives_the_same_items() {
    fn leaves(item: &Value, out: &mut Vec<Value>) {
        match item["items"].as_array() {
            Some(items) => items.iter().for_each(|item| leaves(item, out)),
            None => out.push(json!([item["name"], item["status"], item["meta"]["file"]])),
        }
    }
    let folder = unpacked("testResultsOutput.tar.gz");
    // The trees of its other plugins were edited by hand.
    let plugins = ["singlefile", "singlefileds", "tar", "tarresultsds"];
    let all = || {
        plugins.map(|name| {
            let mut out = Vec::new();
            leaves(&items(&folder.join(&format!("plugins/{name}"))), &mut out);
            out
        })
    };
    let stored = all();
    process(&folder, &[]);
    assert_eq!(all(), stored);
}

#[test]
fn junit_keeps_names_messages_and_output() {
    let xml = "<testsuites><testsuite tests='2' failures='' time=' 0.5 '>\
        <testcase name='a\nb &lt;x&gt;'><failure message='line one\nline two'>text</failure><skipped/></testcase>\
        <testcase name='yes'><error message='m'/><system-out>  out\n</system-out><system-err></system-err></testcase>\
        <testcase name='quiet'><failure/></testcase>\
        <testsuite><testcase name='nested'/></testsuite></testsuite>\
        <testsuite name='empty'/></testsuites>";
    let item = Plugin::new("p", "Job", "junit", &[])
        .file("results/global/a.xml", xml)
        .item();
    let expected = json!({
        "name": "a.xml", "status": "failed", "meta": {"file": "results/global/a.xml", "type": "file"},
        "items": [
            {"name": "testsuite-001", "status": "failed", "items": [
                {"name": "a\nb <x>", "status": "failed", "details": {"failure": "line one\nline two text"}},
                {"name": "yes", "status": "failed", "details": {"error": "m", "system-out": "  out\n"}},
                {"name": "quiet", "status": "failed"},
                {"name": "testsuite-001", "status": "passed", "items": [{"name": "nested", "status": "passed"}]},
            ]},
            {"name": "empty", "status": "passed"},
        ],
    });
    assert_eq!(item, expected);
}

#[test]
fn unreadable_file_is_unknown_with_the_reason() {
    let lol: String = (1..10)
        .map(|n| format!("<!ENTITY l{n} '{}'>", format!("&l{};", n - 1).repeat(10)))
        .collect();
    let bomb = format!(
        "<!DOCTYPE a [<!ENTITY l0 'lol'>{lol}]><testsuite><testcase name='&l9;'/></testsuite>"
    );
    for (name, content, reason) in [
        ("a.xml", b"" as &[u8], "EOF: the file is empty"),
        ("a.xml", b" ", "EOF"),
        (
            "a.xml",
            b"<html/>",
            "expected element type <testsuite> but have <html>",
        ),
        (
            "a.xml",
            b"<testsuite tests='many'/>",
            "strconv.ParseInt: parsing \"many\": invalid syntax",
        ),
        (
            "a.xml",
            b"<testsuite time='1,5'/>",
            "strconv.ParseFloat: parsing \"1,5\": invalid syntax",
        ),
        (
            "a.xml",
            b"<testsuite time='1e999'/>",
            "strconv.ParseFloat: parsing \"1e999\": value out of range",
        ),
        (
            "a.xml",
            b"<testsuite time='1__2'/>",
            "strconv.ParseFloat: parsing \"1__2\": invalid syntax",
        ),
        (
            "a.xml",
            b"<testsuite><testcase name='a'/>",
            "XML syntax error on line 1: unexpected EOF",
        ),
        (
            "a.xml",
            b"<testsuite><testcase name='\xff'/></testsuite>",
            "invalid UTF-8",
        ),
        (
            "a.xml",
            b"<?xml version='1.0' encoding='latin1'?><testsuite/>",
            "latin1",
        ),
        ("a.xml", bomb.as_bytes(), "invalid character entity &l9;"),
        ("a.yaml", b"a: [", ""),
        ("a.yaml", b"- a list", ""),
        ("a.yaml", b"items: 5", ""),
        ("a.yaml", b"name: \xff", ""),
        ("a.yaml", b"status: !!int many", ""),
        ("a.yaml", b"", ""),
    ] {
        let format = if name == "a.xml" { "junit" } else { "manual" };
        let plugin =
            Plugin::new("p", "Job", format, &[]).file(&format!("results/global/{name}"), content);
        let item = plugin.unreadable(name).item();
        assert_eq!(
            (item["name"].as_str(), item["status"].as_str()),
            (Some(name), Some("unknown")),
            "{reason}"
        );
        assert_eq!(item["meta"]["type"], "file", "{reason}");
        // The original's items of manual results have no reason.
        let error = item["meta"]
            .get("error")
            .map_or("", |error| error.as_str().unwrap());
        assert!(
            error.contains(reason) && error.len() < 200,
            "{error} instead of {reason}"
        );
        assert!(!error.is_empty(), "no reason: {format}");
        assert_eq!(item.get("items"), None, "{reason}");
    }
}

#[test]
fn doctype_is_ignored() {
    let xml = "<!DOCTYPE testsuite [ <!-- don't > --> <!ELEMENT testsuite (testcase*)> ]>\
        <testsuite name='s' time='1_000.5'><testcase name='a'/></testsuite> what follows is not read <";
    let item = Plugin::new("p", "Job", "junit", &[])
        .file("results/global/a.xml", xml)
        .item();
    assert_eq!(
        item["items"],
        json!([{"name": "s", "status": "passed", "items": [{"name": "a", "status": "passed"}]}])
    );
}

#[test]
fn go_test_events_are_read() {
    let events = r#"{"Action":"run","Test":"T1"} {"action":"pass","TEST":"T1","Elapsed":0.1}
        {"Action":"output","Test":"T2","Output":"=== RUN   T2\n"}
        {"Action":"output","Test":"T2","Output":"    a_test.go:7: got 1\n"}{"Action":"output","Test":"T2","Output":"    want 2\n"}
        {"Action":"output","Test":"T2","Output":"--- FAIL: T2 (2.50s)\n"}{"Action":"fail","Test":"T2","Elapsed":2.5,"Time":"2021-01-01T00:00:00Z"}
        null {"Action":"skip","Test":"T3"} {"Action":"odd","Test":"T4"} {"Action":"pass","Package":"p"}"#;
    let plugin = |events: &str| {
        Plugin::new("p", "Job", "gojson", &[])
            .file("results/global/a.json", events)
            .item()
    };
    let leaf = |name: &str, status: &str| json!({"name": name, "status": status});
    let item = plugin(events);
    assert_eq!(
        item["items"],
        json!([
            {"name": "T1", "status": "passed", "details": {"duration": 0.1}},
            {"name": "T2", "status": "failed", "details": {"failure": "a_test.go:7: got 1\n    want 2", "duration": 2.5}},
            leaf("T3", "skipped"),
            leaf("T4", "unknown"),
        ])
    );
    assert_eq!(item["status"], "failed");
    let cut = plugin(r#"{"Action":"pass","Test":"T1"} {"Action":"#);
    assert_eq!(
        cut["status"], "unknown",
        "what follows the error is unknown"
    );
    assert_eq!(
        cut["items"][0],
        leaf("T1", "passed"),
        "what was read before the error counts"
    );
    assert_eq!(cut["items"][1]["status"], "unknown");
    assert!(
        cut["meta"]["error"].as_str().unwrap().contains("EOF"),
        "{cut}"
    );
    assert_eq!(plugin("no json")["status"], "unknown");
    for (events, reason) in [
        (
            "=== RUN   T1\n",
            "invalid character '=' looking for beginning of value",
        ),
        (
            "\0",
            "invalid character '\\x00' looking for beginning of value",
        ),
        (
            "{\"Action\":\"pass\",\"Test\":\"T1\",}",
            "invalid character '}' looking for beginning of object key string",
        ),
        (
            "{\"Action\" \"pass\"}",
            "invalid character '\"' after object key",
        ),
        ("{\"Test\":\"T1\"", "unexpected EOF"),
        ("{\"Test\":\"T1\",\"Output\":5}", "invalid type"),
    ] {
        let error = plugin(events)["meta"]["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with(reason), "{events}: {error}");
    }
    let bytes = [
        &b"{\"Action\":\"pass\",\"Test\":\"T\xff\",\"Output\":\"\xe4\"}"[..],
        b"{}",
    ]
    .concat();
    let item = Plugin::new("p", "Job", "gojson", &[])
        .file("results/global/a.json", bytes)
        .item();
    assert_eq!(item["items"], json!([leaf("T\u{fffd}", "passed")]));
    let utf16: Vec<u8> = std::iter::once(0xfeff)
        .chain("{}".encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let item = Plugin::new("p", "Job", "gojson", &[])
        .file("results/global/a.json", utf16)
        .item();
    assert_eq!(
        item["meta"]["error"],
        "invalid character 'ÿ' looking for beginning of value"
    );
}

#[test]
fn manual_results_keep_their_source_text() {
    let yaml = "items:\n- {name: 123, status: yes, meta: {n: 0644, yes: no}, details: {i: 0x10, b: yes, q: \"1\", l: [1.5, ~], 5: x}}\n\
        - name: &n shared\n  status: ''\n- {name: *n, status: passed}\nname: own\nstatus: own\n---\nname: another document\n";
    let item = Plugin::new("p", "Job", "manual", &[])
        .file("results/x/a.yml", yaml)
        .item();
    assert_eq!(item["items"][2]["name"], "shared", "anchors are followed");
    let simple = yaml.replace("&n ", "").replace("*n", "shared");
    let item = Plugin::new("p", "Job", "manual", &[])
        .file("results/x/a.yml", simple)
        .item();
    let expected = json!({
        "name": "a.yml", "status": "passed: 1, unknown: 1, yes: 1",
        "meta": {"file": "results/x/a.yml", "type": "file"},
        "items": [
            {"name": "123", "status": "yes", "meta": {"n": "0644", "yes": "no"},
             "details": {"i": 16, "b": true, "q": "1", "l": [1.5, null], "5": "x"}},
            {"name": "shared", "status": "unknown"},
            {"name": "shared", "status": "passed"},
        ],
    });
    assert_eq!(item, expected);
    let leaf = "name: own\nmeta: {a: b}\ndetails: {why: because}\nstatus: odd";
    let item = Plugin::new("p", "Job", "manual", &[])
        .file("results/x/a.yml", leaf)
        .item();
    let meta = json!({"file": "results/x/a.yml", "type": "file"});
    let expected =
        json!({"name": "a.yml", "status": "odd", "meta": meta, "details": {"why": "because"}});
    assert_eq!(item, expected);
}

#[test]
fn manual_results_may_be_utf_16_and_tag_their_values() {
    let yaml = "status: passed\nitems:\n- name: first\nitems:\n- name: !!binary aGVsbG8=\n  status: failed\n  details: \
        {~: x, a: !!int '5', b: !!binary aGVsbG8=, c: {0x1f: !!bool yes}}\n- name: 😀";
    let expected = json!([
        {"name": "hello", "status": "failed", "details": {"": "x", "a": 5, "b": "hello", "c": {"31": true}}},
        {"name": "😀", "status": "unknown"},
    ]);
    let marked = || std::iter::once(0xfeff).chain(yaml.encode_utf16());
    let little: Vec<u8> = marked().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = marked().flat_map(u16::to_be_bytes).collect();
    for bytes in [yaml.as_bytes(), &little, &big] {
        let item = Plugin::new("p", "Job", "manual", &[])
            .file("results/x/a.yml", bytes)
            .item();
        assert_eq!(item["items"], expected);
    }
}

// Valid names differ between systems.
#[cfg(target_os = "linux")]
#[test]
fn file_names_need_not_be_utf8() {
    let plugin = Plugin::new("p", "Job", "raw", &[]).file("results/a/x", "");
    fs::write(
        plugin
            .folder
            .join("plugins/p/results/a")
            .join(crate::support::system::no_text("caf", "")),
        "",
    )
    .unwrap();
    let root = plugin.items();
    let name = "caf\u{fffd}";
    let file = format!("results/a/{name}");
    assert_eq!(
        root["items"][0],
        json!({"name": name, "status": "passed", "meta": {"file": file}})
    );
}

#[test]
fn dangling_link_is_not_a_result() {
    let link = |plugin: &Plugin, path: &str| {
        symlink("absent", plugin.folder.join(&format!("plugins/p/{path}")))
    };
    let plugin = Plugin::new("p", "Job", "raw", &[])
        .file("results/global/a", "")
        .file("errors/global/other", "");
    if !link(&plugin, "results/global/b") || !link(&plugin, "errors/global/error.json") {
        return;
    }
    let root = plugin.items();
    assert_eq!(root["status"], "failed");
    let items = root["items"].as_array().unwrap();
    let seen: Vec<_> = items
        .iter()
        .map(|i| (i["name"].as_str().unwrap(), i["status"].as_str().unwrap()))
        .collect();
    assert_eq!(
        seen,
        [("a", "passed"), ("b", "failed"), ("error.json", "unknown")]
    );
    for item in &items[1..] {
        assert!(
            item["meta"]["error"]
                .as_str()
                .unwrap()
                .contains("No such file"),
            "{item}"
        );
    }
}

#[test]
fn files_are_selected_by_name_or_format() {
    let names = |plugin: Plugin| -> Vec<String> {
        let plugin = plugin
            .file("results/global/a.xml", "<testsuite/>")
            .file("results/global/b/c.txt", "");
        let plugin = plugin
            .file("results/a.XML", "")
            .file("errors/global/other.json", "{}");
        let root = plugin.items();
        let items = root["items"].as_array().cloned().unwrap_or_default();
        items
            .iter()
            .map(|item| item["meta"]["file"].as_str().unwrap_or("-").to_owned())
            .collect()
    };
    assert_eq!(
        names(Plugin::new("p", "Job", "junit", &[])),
        ["results/global/a.xml"]
    );
    assert_eq!(
        names(Plugin::new("p", "job", "e2e", &["c.txt"]).unreadable("c.txt")),
        ["results/global/b/c.txt"]
    );
    assert_eq!(
        names(Plugin::new("p", "Job", "", &[])),
        [
            "results/a.XML",
            "results/global/a.xml",
            "results/global/b/c.txt"
        ]
    );
    let plugin = Plugin::new("p", "Daemonset", "raw", &[])
        .file("results/n1/x", "")
        .file("results/n2/d/y", "");
    let plugin = plugin
        .file("results/plain", "")
        .file("errors/n1/error.json", "{\"error\":\"e\"}");
    fs::create_dir_all(plugin.folder.join("plugins/p/results/n0")).unwrap();
    let root = plugin.items();
    let nodes: Vec<_> = root["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| (n["name"].clone(), n["status"].clone()))
        .collect();
    assert_eq!(
        nodes,
        [
            ("n0", "unknown"),
            ("n1", "passed"),
            ("n2", "passed"),
            ("n1", "failed")
        ]
        .map(|(n, s)| (json!(n), json!(s)))
    );
    assert_eq!(root["status"], "failed");
}

#[test]
fn plugin_without_files_is_unknown() {
    let root = Plugin::new("p", "Job", "junit", &[]).items();
    assert_eq!(
        root,
        json!({"name": "p", "status": "unknown", "meta": {"type": "summary"}})
    );
}

#[cfg(unix)]
#[test]
fn links_and_pipes_are_not_followed() {
    let plugin = Plugin::new("p", "Job", "manual", &[]).file("results/global/x", "");
    symlink(
        "/etc/passwd",
        plugin.folder.join("plugins/p/results/global/a.yaml"),
    );
    let pipe = plugin.folder.join("plugins/p/results/global/b.yaml");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let root = plugin.unreadable("a.yaml").unreadable("b.yaml").items();
    for (at, reason) in [(0, "leads out"), (1, "not a regular file")] {
        assert!(
            root["items"][at]["meta"]["error"]
                .as_str()
                .unwrap()
                .contains(reason),
            "{root}"
        );
    }
}

#[cfg(unix)]
#[test]
fn linked_folder_is_not_processed() {
    let call = Sonobuoy::new("post-process archive")
        .file("elsewhere/p/results/r.txt", "x")
        .file("archive/x", "");
    std::os::unix::fs::symlink("../elsewhere", call.folder().join("archive/plugins")).unwrap();
    let done = call.status(1).stderr_has("is a link").run();
    assert!(
        !done
            .folder
            .join("elsewhere/p/sonobuoy_results.yaml")
            .exists()
    );
}
