//! Malformed definitions, configurations, flags and patterns: one line with place and remedy, and
//! no file written.

use crate::generate::VERSION;
use crate::support::Sonobuoy;

#[test]
fn malformed_definitions_are_rejected_in_one_line() {
    let odd = |body: &str| format!("sonobuoy-config: {{driver: Job, plugin-name: p}}\n{body}");
    for (words, content, expected) in [
        ("-p bad", "a: b: c\n", &["`./bad`, line 1, column 5"][..]),
        (
            "-p bad",
            "a:\n\t- b\n",
            &["`./bad`, line 2, column 1", "indent with spaces"],
        ),
        (
            "-p bad",
            "",
            &["`./bad`, line 1", "there is no plugin definition"],
        ),
        ("-p bad", "{\"a\": }", &["`./bad`, line 1"]),
        (
            "-p bad",
            "\u{1}",
            &["`./bad`, line 1, column 1", "control characters"],
        ),
        (
            "-p bad",
            "sonobuoy-config: {driver: Pod, plugin-name: p}\n",
            &["line 1, column 27", "write Job, DaemonSet or Nodes"],
        ),
        (
            "-p bad",
            "sonobuoy-config: {plugin-name: p}\n",
            &["driver` is missing"],
        ),
        (
            "-p bad",
            "sonobuoy-config: {driver: Job}\n",
            &["no name", "plugin-name"],
        ),
        (
            "-p bad",
            "sonobuoy-config: {driver: Job, plugin-name: sonobuoy}\n",
            &["reserved"],
        ),
        (
            "-p bad",
            "sonobuoy-config: {driver: Job, plugin-name: A_b}\n",
            &["`A_b` cannot be used", "as in `-p ./bad@newname`"],
        ),
        (
            "-p .",
            "sonobuoy-config: {driver: Job, plugin-name: A_b}\n",
            &["`A_b` cannot be used", "change `plugin-name` in its file"],
        ),
        (
            "-p bad -p bad",
            "sonobuoy-config: {driver: Job, plugin-name: p}\n",
            &["two plugins are called `p`"],
        ),
        (
            "-p bad@B",
            "sonobuoy-config: {driver: Job, plugin-name: p}\n",
            &["`B` cannot be used"],
        ),
        ("-p e2e@x", "", &["cannot be renamed"]),
        ("-p ./@x", "", &["a folder of plugins cannot be renamed"]),
        (
            "-p none.yaml",
            "",
            &[
                "plugin `none.yaml`",
                "no installed plugin, built-in plugin, file or folder",
            ],
        ),
        ("-p ftp://host/x", "", &["only http and https"]),
        (
            "-p bad",
            &odd("spec: {env: [{name: A, value: 3}]}\n"),
            &["line 2, column 31", "quote it, as in \"3\""],
        ),
        (
            "-p bad",
            &odd("spec: {args: x}\n"),
            &["line 2, column 14", "must be a list"],
        ),
        (
            "-p bad",
            &odd("config-map: {a.yaml: '['}\n"),
            &["`a.yaml` in its config-map, line "],
        ),
        (
            "-p bad",
            "apiVersion: v1\nkind: Pod\n",
            &["line 1, column 13", "`sonobuoy/v0` or absent"],
        ),
        (
            "--config bad",
            "{\"UUID\": 3}",
            &["configuration `bad`, line 1, column 10", "quote it"],
        ),
        ("--config bad", "{", &["configuration `bad`, line 1"]),
        (
            "--config bad",
            "{\"Filters\": {\"Namespaces\": \"(?=x)\"}}",
            &["line 1, column 28", "RE2"],
        ),
        (
            "--config bad",
            "{\"Redaction\": {\"env\": [\"(\"]}}",
            &["line 1, column 24", "`Redaction.env[0]`"],
        ),
        (
            "--redact bad",
            "text:\n- '['\n",
            &["redaction rules `bad`, line 2, column 3", "`text[0]`"],
        ),
        (
            "--redact bad",
            "text: ['x*']\n",
            &["line 1, column 8", "matches the empty string"],
        ),
        (
            "--redact bad",
            "{\"off\": true}",
            &["line 1, column 9", "`off` is not a rule"],
        ),
        ("--redact none", "", &["cannot read `none`"]),
        ("--config none", "", &["cannot read `none`"]),
        ("--config .", "", &["cannot read `.`"]),
        (
            "--aggregator-permissions all",
            "",
            &["`all` are unknown", "clusterRead"],
        ),
        (
            "--plugin-env other.A=1",
            "",
            &["no plugin of this run has that name", "e2e, systemd-logs"],
        ),
        ("--e2e-repo-config none", "", &["cannot read `none`"]),
        ("--e2e-repo-config bad", "a: b: c", &["config-map"]),
        ("--ssh-key none", "", &["cannot read `none`"]),
        ("--e2e-docker-config-file none", "", &["cannot read `none`"]),
    ] {
        let words = words.replace("-p bad", "-p ./bad");
        // Files of the config map are recognized by the suffix of YAML.
        let words = words.replace("--e2e-repo-config bad", "--e2e-repo-config bad.yaml");
        let done = Sonobuoy::new(&format!("gen {VERSION} {words}"))
            .file("bad", content)
            .file("bad.yaml", content)
            .status(1)
            .run_any();
        assert_eq!(done.stdout, "", "{words}: nothing is written");
        let last = done
            .stderr
            .lines()
            .last()
            .unwrap_or_default()
            .replace("\\\"", "\"");
        assert_eq!(done.stderr.lines().count(), 1, "{words}: {}", done.stderr);
        for part in expected {
            assert!(last.contains(part), "{words}: no {part:?} in {last}");
        }
    }
    for (words, expected) in [
        ("--plugin-env A=1", "write PLUGIN.NAME=VALUE"),
        ("--plugin-env e2e", "write PLUGIN.NAME=VALUE"),
        ("--plugin-image e2e", "write PLUGIN:IMAGE"),
        ("--aggregator-node-selector a:", "write KEY:VALUE"),
        ("--e2e-focus (", "unclosed group"),
        ("--e2e-skip a**", "repeats a repetition"),
        ("--kubernetes-version 1.30", "write it as v1.31.2"),
        ("--timeout=-1", "negative"),
    ] {
        let done = Sonobuoy::new(&format!("gen {VERSION} {words}"))
            .status(1)
            .run_any();
        assert!(
            done.stdout.is_empty() && done.stderr.contains(expected),
            "{words}: {}",
            done.stderr
        );
    }
    Sonobuoy::new("gen")
        .env("KUBECONFIG", "none")
        .status(1)
        .stderr_has("--kubernetes-version")
        .run();
}

#[test]
fn unknown_words_are_warnings() {
    Sonobuoy::new(&format!(
        "gen {VERSION} --image-pull-policy Sometimes --security-context-mode all"
    ))
    .stdout_has("imagePullPolicy: Sometimes")
    .stderr_has("--image-pull-policy `Sometimes` is not one of")
    .stderr_has("--security-context-mode `all` is not one of")
    .run();
}

#[test]
fn unknown_result_format_is_rejected_before_the_run() {
    let list = "use one of raw, junit, gojson, manual, e2e";
    Sonobuoy::new("gen plugin -n a -i b -f tap")
        .stdout("")
        .stderr_has("unknown result format `tap`")
        .stderr_has(list)
        .status(1)
        .run();
    let plugin = "sonobuoy-config: {driver: Job, plugin-name: p, result-format: xml}\nspec: {name: plugin, command: [/bin/true]}\n";
    for words in [
        format!("gen {VERSION} -p p.yaml"),
        "run --local -p p.yaml".to_owned(),
    ] {
        Sonobuoy::new(&words)
            .file("p.yaml", plugin)
            .stdout("")
            .stderr_has("unknown result format `xml`")
            .stderr_has(list)
            .status(1)
            .run();
    }
}

#[test]
fn yaml_parser_panic_is_an_error() {
    let done = Sonobuoy::new(&format!("gen {VERSION} -p ./bad"))
        .file("bad", "a: [!x,]\n")
        .status(1)
        .run_any();
    assert!(
        done.stderr
            .contains("`./bad`, line 1, column 5: cannot be read"),
        "{}",
        done.stderr
    );
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
}
