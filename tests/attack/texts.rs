//! Texts of plugins and users: expanding XML and YAML, endless nesting, confusing definitions. Each
//! is read in bounded memory, or rejected with a reason.

use serde_json::json;

use crate::support::{Folder, Sonobuoy, bounded};

pub(super) const CASES: usize = RESULTS + DEFINITIONS;
const RESULTS: usize = 22;
const DEFINITIONS: usize = 14;

fn laughs(entity: &str, first: &str) -> String {
    let mut text = format!("<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY {entity}0 \"{first}\">");
    for level in 1..30 {
        let inner = format!("&{entity}{};", level - 1).repeat(10);
        text.push_str(&format!("<!ENTITY {entity}{level} \"{inner}\">"));
    }
    text + &format!(
        "]><testsuite name=\"&{entity}29;\"><testcase name=\"&{entity}29;\"/></testsuite>"
    )
}

fn aliases() -> String {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..30 {
        text.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{}", level - 1); 10].join(",")
        ));
    }
    text
}

fn results() -> Vec<(&'static str, &'static str, String)> {
    let outside = "<!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><testsuite><testcase name=\"a\"><failure>&e;</failure></testcase></testsuite>";
    let parameter = "<!DOCTYPE x [<!ENTITY % p SYSTEM \"file:///etc/passwd\"> %p;]><testsuite/>";
    let case =
        |inside: &str| format!("<testsuite><testcase name=\"a\">{inside}</testcase></testsuite>");
    let attributes: String = (0..50_000)
        .map(|number| format!(" a{number}=\"x\""))
        .collect();
    vec![
        ("XML that unfolds", "junit", laughs("l", "ha")),
        ("XML that reads a file", "junit", outside.into()),
        (
            "XML that reads a file as its rules",
            "junit",
            parameter.into(),
        ),
        (
            "XML nested without end",
            "junit",
            "<testsuite>".repeat(200_000),
        ),
        (
            "XML with many attributes",
            "junit",
            format!("<testsuite{attributes}/>"),
        ),
        (
            "XML with a name of 8 MiB",
            "junit",
            case(&"x".repeat(8 << 20))
                .replace("name=\"a\"", &format!("name=\"{}\"", "n".repeat(8 << 20))),
        ),
        (
            "XML whose comment does not end",
            "junit",
            format!("<testsuite><!--{}", "-".repeat(1 << 20)),
        ),
        (
            "XML whose CDATA does not end",
            "junit",
            format!("<testsuite><![CDATA[{}", "]".repeat(1 << 20)),
        ),
        ("XML of half-open tags", "junit", "<".repeat(1 << 20)),
        (
            "XML of references",
            "junit",
            case(&"&#0;&#x110000;&#55296;&none;".repeat(10_000)),
        ),
        (
            "XML in UTF-16 by its word alone",
            "junit",
            "<?xml version=\"1.0\" encoding=\"UTF-16\"?><testsuite/>".into(),
        ),
        ("YAML that unfolds", "manual", aliases()),
        (
            "YAML that holds itself",
            "manual",
            "name: a\nitems: &i\n- name: b\n  items: *i\n".into(),
        ),
        ("YAML nested without end", "manual", "[".repeat(200_000)),
        (
            "YAML nested by lines",
            "manual",
            (0..5_000)
                .map(|level| format!("{}items:\n", " ".repeat(level)))
                .collect(),
        ),
        (
            "YAML of documents",
            "manual",
            "---\nname: a\n".repeat(20_000),
        ),
        (
            "YAML with tags that run",
            "manual",
            "!!python/object/apply:os.system ['touch evil']".into(),
        ),
        (
            "YAML with a key of 4 MiB",
            "manual",
            format!("? {}\n: x\n", "k".repeat(4 << 20)),
        ),
        (
            "JSON nested without end",
            "gojson",
            format!("{{\"Test\":{}", "[".repeat(200_000)),
        ),
        (
            "JSON of one endless line",
            "gojson",
            format!("{{\"Output\":\"{}", "x".repeat(8 << 20)),
        ),
        (
            "JSON with keys that differ",
            "gojson",
            (0..50_000).map(|n| format!("{{\"k{n}\":1}}\n")).collect(),
        ),
        (
            "JSON with endless tests",
            "gojson",
            (0..20_000)
                .map(|n| format!("{{\"Action\":\"run\",\"Test\":\"t{n}\"}}\n"))
                .collect(),
        ),
    ]
}

#[test]
fn expanding_results_are_read_in_bounded_memory_and_time() {
    let cases = results();
    assert_eq!(cases.len(), RESULTS);
    for (name, format, text) in cases {
        let folder = Folder::new();
        let config = json!({"driver": "Job", "plugin-name": "p", "result-format": format});
        let definition = json!({"Definition": {"sonobuoy-config": config}}).to_string();
        folder.write("plugins/p/definition.json", definition);
        let ending = if format == "junit" {
            "xml"
        } else if format == "manual" {
            "yaml"
        } else {
            "json"
        };
        folder.write(&format!("plugins/p/results/global/r.{ending}"), text);
        let done = bounded(
            &["post-process".as_ref(), folder.path().as_os_str()],
            folder.path(),
        );
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
        let tree = folder.read("plugins/p/sonobuoy_results.yaml");
        assert!(tree.starts_with("name: p\n"), "{name}");
        assert!(
            !tree.contains("root:"),
            "{name}: it holds a file of this machine"
        );
        assert!(!folder.join("evil").exists(), "{name}");
    }
}

#[test]
fn confusing_definitions_are_rejected_with_reason() {
    let with = |key: &str, value: &str| {
        format!(
            "sonobuoy-config: {{driver: Job, plugin-name: p, {key}: {value}}}\nspec: {{name: x, image: i}}\n"
        )
    };
    let named = |name: &str| {
        format!(
            "sonobuoy-config: {{driver: Job, plugin-name: \"{name}\"}}\nspec: {{name: x, image: i}}\n"
        )
    };
    let cases: [(&str, String, i32); DEFINITIONS] = [
        (
            "aliases that unfold",
            format!(
                "{}sonobuoy-config: {{driver: Job, plugin-name: p}}\n",
                aliases()
            ),
            1,
        ),
        ("nesting", format!("spec: {}", "[".repeat(100_000)), 1),
        ("a name that climbs", named("../../etc"), 1),
        ("a name with a line feed", named("p\\nkind: Secret"), 1),
        ("a name with an escape", named("\\u001b[2J"), 1),
        ("a name turned round", named("p\\u202eq"), 1),
        ("a name of 64 KiB", named(&"p".repeat(64 << 10)), 1),
        ("an invalid driver", with("driver", "Pod"), 1),
        (
            "a time that overflows",
            with("timeout", "9999999999999999999h"),
            1,
        ),
        (
            "an order that overflows",
            with("order", "99999999999999999999"),
            1,
        ),
        (
            "a flag that is a map",
            with("results-anywhere", "{a: b}"),
            1,
        ),
        ("NULs", "sonobuoy-config:\0\0\0".into(), 1),
        (
            "a byte order mark in the middle",
            "sonobuoy-config: {driver: Job,\u{feff} plugin-name: p\u{0}}".into(),
            1,
        ),
        (
            "a merge of itself",
            "a: &a {<<: *a}\nsonobuoy-config: *a\n".into(),
            1,
        ),
    ];
    for (name, text, code) in cases {
        let folder = Folder::new();
        folder.write("bad.yaml", text);
        let done = bounded(
            &["gen", "-p", "./bad.yaml", "--kubernetes-version", "v1.30.0"].map(AsRef::as_ref),
            folder.path(),
        );
        assert_eq!(done.code, Some(code), "{name}: {done:?}");
        assert!(done.stdout.is_empty(), "{name}: {done:?}");
        assert!(
            done.stderr.contains("bad.yaml") && !done.stderr.contains("this is a bug"),
            "{name}: {done:?}"
        );
        let obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!done.stderr.contains(obeyed), "{name}: {done:?}");
    }
    // Correct ones beside them are accepted.
    Sonobuoy::new("gen -p ok.yaml --kubernetes-version v1.30.0")
        .file("ok.yaml", named("p"))
        .stdout_has("plugin-name: p")
        .run_any();
}

#[cfg(unix)]
#[test]
fn endless_files_are_rejected() {
    let folder = Folder::new();
    for words in [
        "status --kubeconfig /dev/zero",
        "gen -f /dev/zero",
        "run -f /dev/zero",
        "gen -p /dev/zero",
        "e2e --input /dev/zero",
    ] {
        let words: Vec<_> = words.split(' ').map(AsRef::as_ref).collect();
        let done = bounded(&words, folder.path());
        assert_eq!(done.code, Some(1), "{words:?}: {done:?}");
        let says = ["is larger than", "has more than"]
            .iter()
            .any(|says| done.stderr.contains(says));
        assert!(
            says && done.stderr.contains("/dev/zero"),
            "{words:?}: {done:?}"
        );
    }
}
