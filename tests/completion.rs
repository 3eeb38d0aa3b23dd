//! Completion of command lines: responses of `__complete`, and the behaviour of three shells.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::support::system::no_text;
use crate::support::watchdog::Watchdog;
use crate::support::{Folder, Sonobuoy, program, skipped};

/// The response lines for blank-separated words; the last word may be empty.
fn answer(line: &str) -> Vec<String> {
    let done = Sonobuoy::with(["__complete"].into_iter().chain(line.split(' ')))
        .file(".sonobuoy/mine.yaml", "")
        .file(".sonobuoy/a:b.yaml", "")
        .file(".sonobuoy/$(reboot).yaml", "")
        .file(".sonobuoy/not.txt", "")
        .stdout_has(":")
        .run();
    done.stdout.lines().map(str::to_owned).collect()
}

/// Checks that the candidates without descriptions, and the directive, are exactly these.
#[track_caller]
fn check(line: &str, expected: &[&str], end: &str) {
    let mut lines = answer(line);
    assert_eq!(lines.pop().as_deref(), Some(end), "{line:?}: {lines:?}");
    let found: BTreeSet<_> = lines
        .iter()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert_eq!(found, expected.iter().copied().collect(), "{line:?}");
}

/// Checks that candidates include `there` and exclude `absent`.
#[track_caller]
fn check_some(line: &str, there: &[&str], absent: &[&str]) {
    let lines = answer(line);
    let found: BTreeSet<_> = lines
        .iter()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    for word in there {
        assert!(found.contains(word), "{line:?} lacks {word:?}: {found:?}");
    }
    for word in absent {
        assert!(!found.contains(word), "{line:?} has {word:?}: {found:?}");
    }
}

#[test]
fn commands_complete_where_a_command_is_expected() {
    check("ret", &["retrieve"], ":4");
    check_some(
        "",
        &["run", "status", "help"],
        &[
            "aggregator",
            "worker",
            "splat",
            "man",
            "__complete",
            "--help",
        ],
    );
    check("gen ", &["config", "default-image-config", "plugin"], ":4");
    check("--level debug gen p", &["plugin"], ":4");
    check("-p gen run --rba", &["--rbac"], ":4");
    check(
        "help gen plugin ",
        &[
            "e2e",
            "hello",
            "host-facts",
            "network",
            "systemd-logs",
            "systemd-logs-native",
        ],
        ":4",
    );
    check("help none ", &[], ":4");
    check("worker ", &["global", "single-node"], ":4");
    check("plugins sh", &["show"], ":4");
    check("nothing ", &["--help", "--level"], ":4");
    assert_eq!(
        answer("ret")[0],
        "retrieve\tFetch the archive of a run; prints its file name"
    );
}

#[test]
fn flags_complete_with_their_values() {
    check("run --mod", &["--mode"], ":4");
    check_some(
        "run -",
        &["--mode", "--level", "--help"],
        &["--v", "--logtostderr", "--debug", "--e2e-parallel"],
    );
    check_some("modes ", &["--verbose", "--help"], &[]);
    check("run -p", &["-p"], ":4");
    check("run --none", &[], ":4");
    check("run --mode q", &["quick"], ":4");
    // A shell prints the part of `--mode=QU` up to `=`; case is ignored.
    check("run --mode=QU", &["quick"], ":4");
    check("run -mqu", &["-mquick"], ":4");
    check(
        "run --wait-output ",
        &["Silent", "Spinner", "Progress"],
        ":4",
    );
    check("status --watch=", &["true", "false"], ":4");
    check("status --watch retr", &[], ":4");
    check(
        "run --skip-preflight=dnscheck,v",
        &["dnscheck,versioncheck"],
        ":4",
    );
    check("results -m r", &["report", "readable"], ":4");
    check(
        "results --format ",
        &[
            "text",
            "json",
            "junit",
            "html",
            "markdown",
            "csv",
            "openmetrics",
            "yaml",
        ],
        ":4",
    );
    check(
        "gen plugin -f ",
        &["raw", "junit", "gojson", "manual"],
        ":4",
    );
    check("e2e --mode=tag", &["tags", "tagCounts"], ":4");
    check("completion ", &["bash", "zsh", "fish", "powershell"], ":4");
    check("run --context ", &[], ":4");
    // This flag takes its value only after `=`, so the next word is separate.
    check("run --wait --rbac=d", &["Disable", "Detect"], ":4");
    assert_eq!(
        answer("modes --v")[0],
        "--verbose\tDo not truncate long lines"
    );
}

#[test]
fn paths_are_completed_by_the_shell() {
    check("run -f ", &[], ":0");
    check("run --config=x", &[], ":0");
    check("results ", &["diff", "latest"], ":0");
    check("results -- ", &["latest"], ":0");
    check("results diff one ", &["latest"], ":0");
    check("retrieve ", &[], ":16");
    check("run --retrieve=", &[], ":16");
    check("retrieve . -x", &["-x"], ":4");
    check_some("retrieve one ", &["--extract", ":4"], &[]);
}

#[test]
fn plugin_names_complete() {
    let built_in = [
        "e2e",
        "systemd-logs",
        "hello",
        "host-facts",
        "network",
        "systemd-logs-native",
    ];
    check("run -p ", &[&built_in[..], &["a:b", "mine"]].concat(), ":0");
    check("images --plugin e2e,mi", &["e2e,mine"], ":0");
    check("images -p=e2e,mi", &["e2e,mine"], ":0");
    check("results -p sono", &["sonobuoy"], ":4");
    check("plugin show ", &["a:b", "mine"], ":4");
    check("plugin install ", &[], ":4");
    check("plugin install name ", &[], ":0");
    let done = Sonobuoy::with(["__complete", "plugin", "show", ""])
        .stdout(":4\n")
        .run();
    assert!(
        done.folder.names().is_empty(),
        "completing makes no folder: {:?}",
        done.folder.names()
    );
    Sonobuoy::with(["__complete", "run", "-p", "mi"])
        .file("elsewhere/mine.yaml", "")
        .env("SONOBUOY_DIR", "elsewhere")
        .stdout("mine\tinstalled plugin\n:0\n")
        .run();
    let off = Sonobuoy::with(["__complete", "plugin", "show", ""]).file(".sonobuoy/mine.yaml", "");
    off.env("SONOBUOY_PLUGIN_INSTALLATION", "false")
        .stdout(":4\n")
        .run();
}

#[test]
fn arbitrary_input_completes_without_errors() {
    let odd = no_text("", "");
    Sonobuoy::with(["__complete"])
        .arg(&odd)
        .arg(&odd)
        .stdout(":4\n")
        .run();
    Sonobuoy::with(["__complete", "run"])
        .arg(no_text("--", "="))
        .stdout(":4\n")
        .run();
    Sonobuoy::with(["__complete", "run", "-f"])
        .arg(&odd)
        .stdout(":0\n")
        .run();
    Sonobuoy::with(["__complete"])
        .without_env("HOME")
        .stdout_has("retrieve")
        .run();
    for line in [
        "-",
        "--",
        "---",
        "-=",
        "--=",
        "-é",
        "--é=",
        "é -- -",
        "run --mode=\u{fffd}",
        "-x=, =,",
        "run -p é,",
    ] {
        assert!(!answer(line).is_empty(), "{line}");
    }
}

#[test]
fn completion_protocol_of_the_original_is_supported() {
    Sonobuoy::with(["__completeNoDesc", "ret"])
        .stdout("retrieve\n:4\n")
        .run();
}

#[test]
fn completions_equal_the_help() {
    let mut paths = vec![String::new()];
    let mut seen = 0;
    while let Some(path) = paths.pop() {
        let help = Sonobuoy::new(&format!("help {path}"))
            .stdout_has("Usage:")
            .run()
            .stdout;
        for line in answer(&format!("{path}--")) {
            let flag = line.split('\t').next().unwrap();
            assert!(
                flag.starts_with(':') || help.contains(flag),
                "{path:?} has no {flag}: {help}"
            );
        }
        for name in answer(&format!("help {path}"))
            .iter()
            .filter_map(|line| line.split_once('\t'))
        {
            assert!(
                help.contains(&format!("\n  {} ", name.0)),
                "{path:?} has no {}: {help}",
                name.0
            );
            paths.push(format!("{path}{} ", name.0));
        }
        seen += 1;
    }
    assert!(seen > 30, "{seen} commands");
}

/// The shell's output for a script, in a folder with the completion script `completion`; `None`
/// without that shell.
fn shell(name: &str, flags: &[&str], script: &str) -> Option<String> {
    let shell = program(name)?;
    let folder = Folder::new();
    folder.write(
        "completion",
        Sonobuoy::new(&format!("completion {name}"))
            .stdout_has("__complete")
            .run()
            .stdout,
    );
    folder.write("my file.json", "");
    folder.write("folder/inner", "");
    folder.write(".sonobuoy/a:b.yaml", "");
    let file = folder.write("script", script);
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_sonobuoy"))
        .parent()
        .unwrap();
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(shell);
    command
        .args(flags)
        .arg(&file)
        .current_dir(folder.path())
        .env_clear();
    command
        .env("HOME", folder.path())
        .env("PATH", path)
        .env("TERM", "dumb")
        .env("LC_ALL", "C.UTF-8");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let watchdog = Watchdog::over(&child);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!watchdog.bit(), "{name} hangs: {stdout}{stderr}");
    assert!(
        output.status.success() && stderr.is_empty(),
        "{name}: {stdout}{stderr}"
    );
    Some(stdout)
}

#[test]
fn scripts_of_all_shells_parse() {
    for (shell, word) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef sonobuoy"),
        ("fish", "complete -c sonobuoy"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let done = Sonobuoy::new(&format!("completion {shell}"))
            .stdout_has(word)
            .stdout_has("__complete")
            .run();
        let Some(program) = program(shell) else {
            continue;
        };
        let script = done.folder.write("script", &done.stdout);
        let parsed = Command::new(program)
            .arg("-n")
            .arg(&script)
            .output()
            .unwrap();
        assert!(
            parsed.status.success(),
            "{shell}: {}",
            String::from_utf8_lossy(&parsed.stderr)
        );
    }
    Sonobuoy::new("completion tcsh")
        .status(1)
        .stderr_has("bash, zsh, fish, powershell")
        .run();
}

#[test]
fn bash_completes() {
    // Bash splits at = and :, and passes the word that it will replace.
    let script = r#"
        source <(sonobuoy completion bash)
        try() {
            COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
            local word=$2
            shift 2
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _sonobuoy sonobuoy "$word" ''
            echo "$COMP_LINE>$(printf ' [%s]' "${COMPREPLY[@]}")"
        }
        complete -p sonobuoy
        try 'sonobuoy ret' ret sonobuoy ret
        try 'sonobuoy  run --mode=' '' sonobuoy run --mode =
        try 'sonobuoy run --mode="qu' qu sonobuoy run --mode = '"qu'
        try 'sonobuoy plugin show a:' '' sonobuoy plugin show a :
        try 'sonobuoy run --image=a:b -m q' q sonobuoy run --image = a : b -m q
        try 'sonobuoy run --config=my' my sonobuoy run --config = my
        try 'sonobuoy results my\ f' 'my\ f' sonobuoy results 'my\ f'
        try 'sonobuoy retrieve ' '' sonobuoy retrieve ''
    "#;
    let Some(found) = shell("bash", &["--norc", "--noprofile"], script) else {
        return;
    };
    let expected = [
        "complete -F _sonobuoy sonobuoy",
        "sonobuoy ret> [retrieve]",
        "sonobuoy  run --mode=> [certified-conformance] [conformance-lite] [non-disruptive-conformance] [quick]",
        "sonobuoy run --mode=\"qu> [quick]",
        "sonobuoy plugin show a:> [b]",
        "sonobuoy run --image=a:b -m q> [quick]",
        "sonobuoy run --config=my> [my file.json]",
        "sonobuoy results my\\ f> [my file.json]",
        "sonobuoy retrieve > [folder] [.sonobuoy]",
    ];
    // Folders are completed as they exist on disk.
    let found: Vec<_> = found
        .lines()
        .map(|line| line.replace("[.sonobuoy] [folder]", "[folder] [.sonobuoy]"))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn fish_completes() {
    let lines = [
        "sonobuoy ret",
        "sonobuoy run --mode=qu",
        "sonobuoy plugin show a:",
        "sonobuoy run --config=my",
        "sonobuoy results my\\ f",
        "sonobuoy retrieve ",
        "./none/sonobuoy stat",
    ];
    let mut script = "sonobuoy completion fish | source\n".to_owned();
    for line in lines {
        script.push_str(&format!("complete -C '{}'\n", line.replace('\\', "\\\\")));
    }
    let Some(found) = shell("fish", &["--no-config"], &script) else {
        return;
    };
    let expected = [
        "retrieve\tFetch the archive of a run; prints its file name",
        "--mode=quick\tQuick mode runs a single test to create and destroy a pod",
        "a:b\tinstalled plugin",
        "--config=my file.json",
        "my file.json",
        "folder/",
        "status\tShow the status of a run",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn zsh_completes() {
    // A separate terminal, in which a key completes the line and prints the result.
    let script = r#"
        zmodload zsh/zpty || { echo skipped; exit }
        zpty z zsh -f -i
        zpty -w z 'PS1= PS2= RPS1=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -D -u'
        zpty -w z 'source <(sonobuoy completion zsh)'
        zpty -w z 'finish() { zle complete-word; print -r -- "<$BUFFER>"; BUFFER= }; zle -N finish; bindkey "^I" finish'
        zpty -w z 'print REA""DY'
        zpty -r z seen '*READY*'
        for line in 'ret' 'run --mode=qu' 'plugin show a' 'run --config=my' 'results my\ f' 'retrieve fo' '--level debug stat'; do
            zpty -wn z "sonobuoy $line"$'\t'
            zpty -r z seen '*<sonobuoy*>*'
            print -r -- "<${${seen##*<}%%>*}>"
        done
        zpty -wn z $'sonobuoy plugin \t'
        zpty -r z seen '*uninstall*'
        [[ $seen == *'Print an installed or'* ]] && print described
        zpty -d z
    "#;
    let Some(found) = shell("zsh", &["-f"], script) else {
        return;
    };
    if found == "skipped\n" {
        return skipped("zsh", "this system has no pseudo-terminals");
    }
    let expected = [
        "<sonobuoy retrieve >",
        "<sonobuoy run --mode=quick >",
        "<sonobuoy plugin show a:b >",
        "<sonobuoy run --config=my\\ file.json >",
        "<sonobuoy results my\\ file.json >",
        "<sonobuoy retrieve folder/>",
        "<sonobuoy --level debug status >",
        "described",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn zsh_autoloads_the_script() {
    let script = r#"
        mkdir functions && cp completion functions/_sonobuoy
        fpath=($PWD/functions $fpath)
        autoload -Uz compinit && compinit -D -u
        print -r -- $_comps[sonobuoy]
        source completion
        print -r -- $_comps[sonobuoy]
    "#;
    let Some(found) = shell("zsh", &["-f"], script) else {
        return;
    };
    assert_eq!(found, "_sonobuoy\n_sonobuoy\n");
}

#[test]
fn descriptions_can_be_omitted() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        Sonobuoy::new(&format!("completion {shell} --no-descriptions"))
            .stdout_has(" __completeNoDesc ")
            .run();
    }
    Sonobuoy::new("completion")
        .stdout_has("Usage: sonobuoy completion")
        .run();
}
