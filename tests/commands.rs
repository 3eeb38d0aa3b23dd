//! The command line as a whole: help, errors, exit codes, streams, and commands without input.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::Stdio;

use crate::support::system::no_text;
use crate::support::web::serve;
use crate::support::{Folder, Sonobuoy, fixture_text};

#[test]
fn help_goes_to_stdout_and_exits_0() {
    for line in [
        "",
        "help",
        "-h",
        "--help",
        "plugin",
        "get",
        "worker",
        "gather",
        "--level debug plugin",
    ] {
        Sonobuoy::new(line).stdout_has("Usage: sonobuoy").run();
    }
    for line in [
        "run -h",
        "gen plugin e2e --help",
        "help gen plugin e2e",
        "splat -h",
        "images push -h",
    ] {
        Sonobuoy::new(line)
            .stdout_has("Usage: sonobuoy")
            .stdout_has("Options:")
            .run();
    }
    // Internal commands are hidden.
    let help = Sonobuoy::new("help").run_any().stdout;
    for hidden in ["aggregator", "splat", "worker", "logtostderr"] {
        assert!(!help.contains(&format!("  {hidden}")), "{hidden}");
    }
}

#[test]
fn summary_of_help_fits_on_a_screen() {
    const MAX_LINES: usize = 50;
    let mut commands = vec![sonobuoy::commands()];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let name = command.get_bin_name().unwrap_or_default();
        let words = name.split(' ').skip(1);
        let help = Sonobuoy::with(words).arg("-h").run_any().stdout;
        let lines = help.lines().count();
        assert!(lines <= MAX_LINES, "`{name} -h` has {lines} lines");
    }
}

#[test]
fn summary_of_help_leads_to_all_flags() {
    let summary = Sonobuoy::new("run -h").run_any().stdout;
    assert!(summary.contains("see more with '--help'"), "{summary}");
    assert!(!summary.contains("--security-context-mode"), "{summary}");
    let whole = Sonobuoy::new("run --help").run_any().stdout;
    assert!(whole.contains("--security-context-mode"), "{whole}");
}

#[test]
fn invalid_command_line_prints_error_usage_and_one_log_line() {
    let done = Sonobuoy::new("runn")
        .status(1)
        .stderr_has("Error: unknown command \"runn\" for \"sonobuoy\"")
        .run();
    assert!(
        done.stderr.contains("did you mean `run`?") && done.stderr.contains("Usage: sonobuoy"),
        "{}",
        done.stderr
    );
    let last = done.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("time=\"2") && last.contains("level=error msg=\"unknown command"),
        "{last}"
    );
    assert!(
        done.stderr.contains("\n\ntime="),
        "a blank line before the log line: {}",
        done.stderr
    );
    for line in [
        "plugin bogus",
        "plugin show",
        "plugin install one",
        "run extra",
        "results",
        "results diff a",
        "help bogus",
    ] {
        Sonobuoy::new(line)
            .status(1)
            .stderr_has("Error: ")
            .stderr_has("Usage: sonobuoy")
            .run();
    }
}

#[test]
fn path_of_the_program_in_its_image_may_precede_the_command() {
    for line in [
        "version --short",
        "/sonobuoy version --short",
        "/sonobuoy.exe version --short",
    ] {
        Sonobuoy::new(line).stdout("v0.60.0\n").run();
    }
    Sonobuoy::new("/sonobuoy /sonobuoy version")
        .status(1)
        .stderr_has("unknown command")
        .run();
}

#[test]
fn errors_are_printed_at_every_level() {
    for level in ["error", "fatal", "panic"] {
        let line = format!("results missing.tar.gz --level={level}");
        Sonobuoy::new(&line)
            .status(1)
            .stderr_has("level=error msg=")
            .run();
    }
}

#[test]
fn non_utf8_arguments_are_rejected() {
    Sonobuoy::with(["e2e"])
        .arg(no_text("--focus=", ""))
        .status(1)
        .stderr_has("Error: ")
        .run();
    Sonobuoy::new("")
        .arg(no_text("", ""))
        .status(1)
        .stderr_has("Error: ")
        .run();
    Sonobuoy::new("")
        .arg("")
        .status(1)
        .stderr_has("unknown command \"\"")
        .run();
}

#[test]
fn version_works_without_a_home() {
    let version = format!("v{}\n", env!("CARGO_PKG_VERSION"));
    Sonobuoy::new("version --short").stdout(&version).run();
    Sonobuoy::new("version --short")
        .without_env("HOME")
        .without_env("PATH")
        .stdout(&version)
        .run();
    let done = Sonobuoy::new("version")
        .stdout_has("API Version check skipped")
        .run();
    let keys: Vec<_> = done
        .stdout
        .lines()
        .take(6)
        .map(|line| line.split(':').next().unwrap())
        .collect();
    let expected = [
        "Sonobuoy Version",
        "MinimumKubeVersion",
        "MaximumKubeVersion",
        "GitSHA",
        "GoVersion",
        "Platform",
    ];
    assert_eq!(keys, expected);
    // An unreachable cluster is reported and is not a failure.
    Sonobuoy::new("version --kubeconfig none")
        .stdout_has("check skipped")
        .stderr_has("level=error")
        .run();
}

#[test]
fn modes_equal_the_originals() {
    Sonobuoy::new("modes")
        .stdout_golden("gen/modes.golden")
        .run();
    let done = Sonobuoy::new("modes --verbose")
        .stdout_has("impact cluster permissions).")
        .run();
    assert!(!done.stdout.contains("truncated"));
    assert_eq!(
        done.stdout.lines().count(),
        fixture_text("gen/modes.golden").lines().count()
    );
}

#[track_caller]
fn has_all(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "no {part:?}: {page}");
    }
}

#[test]
fn every_command_has_a_man_page() {
    let pages: BTreeMap<_, _> = crate::man::pages().unwrap().into_iter().collect();
    assert!(pages.len() > 30, "{} pages", pages.len());
    has_all(
        &pages["sonobuoy-gen-plugin.1"],
        &[
            ".TH sonobuoy-gen-plugin 1 ",
            " \"sonobuoy v",
            ".SH NAME\nsonobuoy\\-gen\\-plugin \\- Print a new plugin definition\n",
            ".SH SYNOPSIS\n\\fBsonobuoy gen plugin\\fR",
            ".TP\n\\fB\\-i\\fR, \\fB\\-\\-image\\fR \\fI<IMAGE>\\fR\nImage of its container\n.TP",
            "[default: Job]\n",
            "DaemonSet\n",
            "[default: ./run.sh]\n",
            ".SH SUBCOMMANDS\n.TP\nsonobuoy\\-gen\\-plugin\\-e2e(1)\n",
            ".SH EXAMPLES\n.nf\nAn example that works as it is:\n  sonobuoy gen plugin \\-\\-example python\n",
            ".SH \"SEE ALSO\"\n\\fBsonobuoy\\-gen\\fR(1)\n",
        ],
    );
    let page = &pages["sonobuoy-run.1"];
    has_all(
        page,
        &[
            "\\fB\\-\\-wait\\fR[=\\fI<MINUTES>\\fR]\n",
            "\\\\[Conformance\\\\]]\n",
            "aggregator\\*(Aqs",
            "`sonobuoy modes`",
        ],
    );
    assert!(
        !page.contains("logtostderr") && !page.contains("SH SUBCOMMANDS"),
        "{page}"
    );
    assert!(pages["sonobuoy.1"].contains("\\-\\-local \\-p FILE "));
    let done = Sonobuoy::new("gen cli pages").run();
    assert!(
        done.folder
            .read("pages/sonobuoy_gen_plugin.md")
            .contains("--node-selector")
    );
    Sonobuoy::new("gen cli file/below")
        .file("file", "")
        .status(1)
        .stderr_has("file/below")
        .run();
}

#[test]
fn man_pages_pass_mandoc_and_groff() {
    // Style is up to the library that writes the pages.
    let judges: &[&[&str]] = &[
        &["mandoc", "-Tlint", "-Werror"],
        &["groff", "-man", "-ww", "-Tutf8", "-z"],
    ];
    let folder = Folder::new();
    for judge in judges {
        let Some(program) = crate::support::program(judge[0]) else {
            continue;
        };
        // One page at a time: groff treats several as one document.
        for (name, page) in crate::man::pages().unwrap() {
            folder.write(&name, page);
            let path = folder.join(&name);
            let judged = std::process::Command::new(&program)
                .args(&judge[1..])
                .arg(path)
                .output()
                .unwrap();
            let said = [judged.stdout, judged.stderr].concat();
            assert!(
                judged.status.success() && said.is_empty(),
                "{}",
                String::from_utf8_lossy(&said)
            );
        }
    }
}

#[test]
fn closed_stdout_ends_the_program_quietly() {
    for line in ["modes --verbose", "help run", "completion zsh"] {
        let (mut command, _folder) = Sonobuoy::new(line).command();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!(stderr, "", "{line}");
        assert!(child.wait().unwrap().success(), "{line}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_behind_stdout_is_an_error() {
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        return crate::support::skipped("/dev/full", "this machine has none");
    };
    let (mut command, _folder) = Sonobuoy::new("modes").command();
    let done = command.stdin(Stdio::null()).stdout(full).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("No space left"));
}

const LIST: &str =
    "[sig-b] second [Conformance] [Slow]\n[sig-a] first [Conformance]\n[sig-a] third\n";

#[test]
fn e2e_lists_tests_from_stdin() {
    let call = |flags: &str| Sonobuoy::new(&format!("e2e -i - {flags}")).stdin(LIST);
    call("").stdout(LIST).run();
    call("-f Conformance -s Slow")
        .stdout("[sig-a] first [Conformance]\n")
        .run();
    call("-m tags")
        .stdout("[Conformance]\n[Slow]\n[sig-a]\n[sig-b]\n")
        .run();
    call("--mode=tagCounts")
        .stdout("[Conformance]:2\n[Slow]:1\n[sig-a]:2\n[sig-b]:1\n")
        .run();
    call("-m other")
        .stdout(LIST)
        .stderr_has("level=warning")
        .run();
    call("-f nothing")
        .stdout("\n")
        .stderr_has("no test matches")
        .run();
    call("-f nothing -m tags")
        .stdout("")
        .stderr_has("no test matches")
        .run();
    call("-f [").status(1).stderr_has("Error: --focus").run();
    // Each line is one item, unchanged.
    let odd = " a \n\n#b\n[x] c \n";
    Sonobuoy::new("e2e -i -").stdin(odd).stdout(odd).run();
    Sonobuoy::new("e2e -i -")
        .stdin("#../../etc\n+x\n")
        .status(1)
        .stderr_has("is not a Kubernetes version")
        .run();
    Sonobuoy::new("e2e -i -")
        .stdin(b"\xff\xfe\n")
        .status(1)
        .stderr_has("is not a list of tests")
        .run();
    Sonobuoy::new("e2e -i -")
        .stdin("#v1.2.3\n+x\n")
        .status(1)
        .stderr_has("--url")
        .run();
}

#[test]
fn e2e_reads_plain_and_compressed_files() {
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    Sonobuoy::new("e2e -i list")
        .file("list", LIST)
        .stdout(LIST)
        .run();
    Sonobuoy::new("e2e -i v1.30.1.gz")
        .file("v1.30.1.gz", gzip("#v1.30.0\n+new\n-[sig-a] third\n"))
        .file("v1.30.0.gz", gzip(LIST))
        .stdout("[sig-a] first [Conformance]\n[sig-b] second [Conformance] [Slow]\nnew\n")
        .run();
    // Tests with equal names are one line each.
    Sonobuoy::new("e2e -i v1.30.1.gz")
        .file("v1.30.1.gz", "#v1.30.0\n+b\n-a\n")
        .file("v1.30.0.gz", "a\na\n")
        .stdout("a\nb\n")
        .run();
    Sonobuoy::new("e2e -i none")
        .status(1)
        .stderr_has("`none`")
        .run();
    Sonobuoy::new("e2e -i v1.1.0.gz")
        .file("v1.1.0.gz", gzip("#v1.1.0\n"))
        .status(1)
        .stderr_has("more than 32")
        .run();
    Sonobuoy::new("e2e -i cut.gz")
        .file("cut.gz", &gzip(LIST)[..30])
        .status(1)
        .stderr_has("failed to unpack `cut.gz`")
        .run();
    // The original's documentation uses this form. The lists come from the conformance image here.
    Sonobuoy::new("e2e --input=offline --kube-conformance-image 127.0.0.1:1/conformance:v1.30.0")
        .status(1)
        .stderr_has("no lists are built into this program: asking the conformance image")
        .stderr_has("and use it with `--input FILE`")
        .run();
}

#[test]
fn e2e_fetches_lists_and_reports_missing_versions() {
    let answer = |path: &str| match path {
        "/v1.30.0.gz" => (200, LIST.to_owned()),
        "/v1.30.1.gz" => (200, "#v1.30.0\n-[sig-a] third\n".to_owned()),
        _ => (404, String::new()),
    };
    serve(answer, |url| {
        let call = |version: &str| Sonobuoy::new(&format!("e2e --url {url}/ --version {version}"));
        call("v1.30").stdout(LIST).run();
        call("v1.30.1")
            .stdout("[sig-a] first [Conformance]\n[sig-b] second [Conformance] [Slow]\n")
            .run();
        call("v1.99.0")
            .status(1)
            .stderr_has("there is no list for Kubernetes v1.99.0")
            .run();
        call("1.30").status(1).stderr_has("Error: --version").run();
        // The original asks for a list of that name.
        call("ignore")
            .status(1)
            .stderr_has("there is no list for Kubernetes ignore")
            .run();
    });
    // Port 0 accepts no connections: an unreachable server does not mean a missing list.
    let away = "e2e --url http://127.0.0.1:0/ --version v1.30.0";
    Sonobuoy::new(away)
        .status(1)
        .stderr_has("failed to get the list for Kubernetes v1.30.0")
        .run();
}

#[test]
fn working_directory_stays_clean() {
    let folder: Folder = Sonobuoy::new("modes").run_any().folder;
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}
