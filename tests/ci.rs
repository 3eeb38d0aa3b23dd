//! What CI systems get: Markdown, the summary and the annotations of GitHub Actions, the composite
//! action.

use crate::export::results;
use crate::support::{Folder, Sonobuoy};

/// An archive whose plugins can all be read.
fn run() -> Folder {
    let folder = crate::export::run();
    folder.write("meta/info.json", r#"{"plugins":["e2e","check"]}"#);
    folder
}

#[test]
fn markdown_report_has_verdict_table_causes_and_no_markup_of_others() {
    let folder = run();
    let text = results(&folder, "--format markdown").run_any().stdout;
    for part in [
        "## ❌ Sonobuoy: 1 failed of 10 that ran (1 skipped)\n\n1 h 2 min · Kubernetes v1.34.2 · ",
        "\n| plugin | status | passed | failed | skipped | nodes | duration |\n",
        "\n| e2e | failed | 1 | 1 | 1 | - | - |\n",
        "\n### Why it failed\n\n* **1 × one** (1 test; e2e)\n  * &lt;b&gt;bold&lt;/b&gt; &amp; 'quoted' \"name\"\n",
        "\n### Could not be read\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("<img") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn slowest_tests_are_in_the_markdown_report() {
    let folder = Folder::new();
    let item = |name: &str, seconds: u32| {
        format!("- {{name: {name}, status: passed, details: {{duration: {seconds}}}}}\n")
    };
    let items: String = (1..=7)
        .map(|number| item(&format!("t{number}"), number))
        .collect();
    folder.write(
        "plugins/p/sonobuoy_results.yaml",
        format!("name: p\nstatus: passed\nitems:\n{items}"),
    );
    folder.write("meta/info.json", r#"{"plugins":["p"]}"#);
    let text = results(&folder, "--format markdown").run_any().stdout;
    assert!(
        text.contains("### The slowest\n\n| took | test |\n| ---: | --- |\n| 7.0 s | p: t7 |\n"),
        "{text}"
    );
    assert!(
        text.contains("| 3.0 s | p: t3 |\n") && !text.contains("p: t2"),
        "{text}"
    );
}

#[test]
fn github_gets_a_summary_and_an_annotation_per_cause() {
    let folder = run();
    folder.write("summary.md", "before\n");
    let plain = results(&folder, "--fail-on failed").status(3).run_any();
    assert!(!plain.stderr.contains("::error"), "{}", plain.stderr);
    let in_github = |words: &str| {
        let call = results(&folder, words).env("GITHUB_ACTIONS", "true");
        call.env("GITHUB_STEP_SUMMARY", folder.join("summary.md"))
            .status(3)
            .run_any()
    };
    let done = in_github("--fail-on failed");
    assert_eq!(done.stdout, plain.stdout, "stdout is data");
    let expected = "::error title=1 × e2e::one (1 test)%0A<b>bold</b> & 'quoted' \"name\"\n";
    assert!(done.stderr.contains(expected), "{}", done.stderr);
    assert!(
        done.stderr.contains("::warning title=1 × check::"),
        "{}",
        done.stderr
    );
    let summary = folder.read("summary.md");
    assert!(
        summary.starts_with("before\n## ❌ Sonobuoy: 1 failed of 10"),
        "{summary}"
    );
    let off = in_github("--fail-on failed --annotations off");
    assert!(!off.stderr.contains("::error"), "{}", off.stderr);
    assert_eq!(folder.read("summary.md"), summary);
    for format in ["json", "junit", "html", "markdown"] {
        let before = folder.read("summary.md").len();
        let done = in_github(&format!("--format {format} --fail-on failed"));
        assert!(
            done.stderr.contains("::error") && !done.stdout.contains("::error"),
            "{format}"
        );
        assert!(folder.read("summary.md").len() > before, "{format}");
    }
}

#[test]
fn names_of_tests_are_no_commands_of_github() {
    let names = [
        "::set-output name=verdict::passed",
        "  ::stop-commands::x",
        "##[error]x",
        "a ##[group]x",
        "::add-mask::passed",
        "safe",
    ];
    let folder = Folder::new();
    let item = |name: &&str| {
        format!(
            "- {{name: '{name}', status: failed, details: {{failure: \"::warning::x\\n ##[debug]y\"}}}}\n"
        )
    };
    let items: String = names.iter().map(item).collect();
    folder.write(
        "plugins/p/sonobuoy_results.yaml",
        format!("name: p\nstatus: failed\nitems:\n{items}"),
    );
    folder.write("meta/info.json", r#"{"plugins":["p"]}"#);
    folder.write("meta/clusterhealth.json", "{}");
    let is_command = |line: &str| line.trim_start().starts_with("::") || line.contains("##[");
    let modes = [
        "--mode report",
        "--mode detailed",
        "--mode dump",
        "--mode readable",
    ];
    let formats =
        ["text", "json", "yaml", "junit", "html", "markdown"].map(|word| format!("-o {word}"));
    let mut seen = 0;
    for words in modes.map(str::to_owned).into_iter().chain(formats) {
        for annotated in ["github", "off"] {
            let words = format!("{words} --annotations {annotated} --fail-on failed");
            let call = results(&folder, &words).env("GITHUB_ACTIONS", "true");
            let done = call.status(3).run_any();
            let commands: Vec<_> = done
                .stdout
                .lines()
                .filter(|line| is_command(line))
                .collect();
            assert!(commands.is_empty(), "{words}: {commands:?}");
            let is_own = |line: &str| annotated == "github" && line.starts_with("::error title=");
            let foreign: Vec<_> = done
                .stderr
                .lines()
                .filter(|line| is_command(line) && !is_own(line))
                .collect();
            assert!(foreign.is_empty(), "{words}: {foreign:?}");
            seen += usize::from(done.stdout.contains(r"\u003aset-output name=verdict"));
            if words.contains("-o json") || words.contains("-o yaml") {
                serde_yaml::from_str::<serde_json::Value>(&done.stdout).unwrap();
            }
            if words.contains("-o json") {
                let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
                assert!(
                    report.to_string().contains("\"##[error]x\""),
                    "the same document"
                );
            }
        }
    }
    assert!(seen > 0, "some output begins lines with names");
    let elsewhere = results(&folder, "--mode detailed").run_any().stdout;
    assert!(!elsewhere.contains(r"\u00"), "{elsewhere}");
}

#[test]
fn annotations_elsewhere_need_the_flag_and_no_summary() {
    let done = results(&run(), "--annotations github").run_any();
    assert!(
        done.stderr.contains("::error title=1 × e2e::one"),
        "{}",
        done.stderr
    );
    let done = results(&run(), "--annotations nowhere").status(1).run_any();
    assert!(done.stderr.contains("auto, github, off"), "{}", done.stderr);
}

#[test]
fn unwritable_summary_is_reported_and_keeps_the_exit_code() {
    let folder = run();
    for (words, code) in [("--fail-on failed", 3), ("", 0)] {
        let call = results(&folder, words).env("GITHUB_ACTIONS", "true");
        let done = call
            .env("GITHUB_STEP_SUMMARY", folder.join("none/summary.md"))
            .status(code)
            .run_any();
        assert!(
            done.stderr
                .contains("cannot write the summary of the job to"),
            "{}",
            done.stderr
        );
    }
}

#[cfg(unix)]
#[test]
fn composite_action_runs_plugins_and_passes_the_exit_code_on() {
    use std::os::unix::fs::symlink;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join(".github/actions/run/action.yml")).unwrap();
    let action: serde_json::Value = serde_yaml::from_str(&text).unwrap();
    let steps = action["runs"]["steps"].as_array().unwrap();
    let folder = Folder::new();
    folder.write("bin/none", "");
    symlink(env!("CARGO_BIN_EXE_sonobuoy"), folder.join("bin/sonobuoy")).unwrap();
    folder.write(
        "fails.yaml",
        "sonobuoy-config: {driver: Job, plugin-name: fails}\nspec:\n  command: [sh, -c, 'echo odd >&2; exit 1']\n",
    );
    let path = format!(
        "{}:{}",
        folder.join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    for (plugin, code) in [
        (root.join("plugins.d/hello.yaml"), 0),
        (folder.join("fails.yaml"), 3),
    ] {
        for step in steps.iter().filter(|step| step["run"].is_string()) {
            let mut command = std::process::Command::new("bash");
            command.args([
                "--noprofile",
                "--norc",
                "-e",
                "-o",
                "pipefail",
                "-c",
                step["run"].as_str().unwrap(),
            ]);
            command
                .current_dir(folder.path())
                .env("PATH", &path)
                .env("HOME", folder.path());
            for name in step["env"].as_object().unwrap().keys() {
                let input = name.to_lowercase().replace('_', "-");
                let value = action["inputs"][&input]["default"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                let value = if input == "args" {
                    format!("--local -p {}", plugin.display())
                } else {
                    value
                };
                command.env(name, value);
            }
            command
                .env("GITHUB_ACTIONS", "true")
                .env("GITHUB_ACTION_PATH", root.join(".github/actions/run"));
            command.env("LOAD", "false");
            for name in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_PATH"] {
                command.env(name, folder.join(name));
            }
            let output = command.output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let is_run = step["id"] == "run";
            // Nothing but errors is 1, whatever `--fail-on` says.
            let code = if is_run { code.min(1) * 3 } else { 0 };
            assert_eq!(
                output.status.code(),
                Some(code),
                "{}: {stderr}",
                step["name"]
            );
            assert_eq!(stderr.contains("::error"), is_run && code > 0, "{stderr}");
        }
        let kept = Folder::names_of(&folder.join("sonobuoy-results"));
        assert!(
            kept.iter().any(|name| name == "junit.xml")
                && kept.iter().any(|name| name == "report.html"),
            "{kept:?}"
        );
    }
    assert!(
        folder
            .read("GITHUB_OUTPUT")
            .starts_with("archive=sonobuoy-results/")
    );
    assert_eq!(
        folder
            .read("GITHUB_STEP_SUMMARY")
            .matches(" Sonobuoy: ")
            .count(),
        2
    );
}

#[test]
fn local_run_in_github_writes_the_summary() {
    let call = Sonobuoy::new("run --local -p ok.yaml").file(
        "ok.yaml",
        "sonobuoy-config: {driver: Job, plugin-name: ok}\nspec:\n  command: [sh, -c, 'echo fine > $RESULTS_DIR/a; echo $RESULTS_DIR/a > $RESULTS_DIR/done']\n",
    );
    let done = call
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", "summary.md")
        .run_any();
    assert!(
        done.folder
            .read("summary.md")
            .starts_with("## ✅ Sonobuoy: "),
        "{}",
        done.stderr
    );
}

#[test]
fn actions_are_pinned_and_secrets_confined() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let mut pinned = 0;
    for entry in std::fs::read_dir(root.join(".github/workflows"))
        .unwrap()
        .flatten()
    {
        let text = std::fs::read_to_string(entry.path()).unwrap()
            + &read(".github/actions/run/action.yml");
        for (line, action) in text
            .lines()
            .filter_map(|line| Some((line, line.split_once("uses: ")?.1)))
        {
            let (commit, tag) = action
                .split_once('@')
                .unwrap()
                .1
                .split_once(" # v")
                .expect(line);
            let is_commit =
                commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit && tag.split('.').count() == 3, "{line}");
            pinned += 1;
        }
        for line in text.lines().filter(|line| line.contains("cargo install")) {
            assert!(
                line.contains(" --version ") && line.contains(" --locked"),
                "{line}"
            );
        }
    }
    assert!(pinned > 5);
    let release: serde_json::Value =
        serde_yaml::from_str(&read(".github/workflows/release.yml")).unwrap();
    let steps = release["jobs"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|job| job["steps"].as_array().unwrap());
    let with_key: Vec<_> = steps
        .filter(|step| step.to_string().contains("secrets.SIGNING_KEY"))
        .collect();
    assert_eq!(with_key.len(), 1, "{with_key:?}");
    assert_eq!(with_key[0]["name"], "Sign");
    assert_eq!(
        read(".github/workflows/release.yml")
            .matches("SIGNING_KEY: ")
            .count(),
        1
    );
    let zig = read("scripts/release/zig");
    assert!(
        zig.contains("--require-hashes") && zig.contains("--hash=sha256:"),
        "{zig}"
    );
}
