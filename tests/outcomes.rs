//! The exit code of every outcome with every `--fail-on`, and the requested files, whatever happens
//! to standard output.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::json;

use crate::support::api_server::{ApiServer, ExecAnswer};
use crate::support::cluster::{self, aggregator_pod, namespace, untouched};
use crate::support::reader::{Read, Reader};
use crate::support::{Archive, Folder, Sonobuoy};

/// Values of `--fail-on`, in the order of the exit codes below.
const LIMITS: [&str; 4] = ["never", "failed", "incomplete", "unknown"];

/// What a plugin may bring.
struct Outcome {
    name: &'static str,
    format: &'static str,
    script: &'static str,
    /// Exit codes of the values of [`LIMITS`].
    codes: [i32; 4],
    /// The status of its only result in the cluster.
    status: &'static str,
    /// A part of the JUnit file.
    junit: &'static str,
}

const SUITE: &str = r#"printf '<testsuite name="s" tests="1"><testcase name="t">%s</testcase></testsuite>' "$BODY" > $RESULTS_DIR/a.xml
echo $RESULTS_DIR/a.xml > $RESULTS_DIR/done"#;

const OUTCOMES: [Outcome; 5] = [
    Outcome {
        name: "passed",
        format: "junit",
        script: "",
        codes: [0, 0, 0, 0],
        status: "complete",
        junit: "name=\"t\"",
    },
    Outcome {
        name: "failed",
        format: "junit",
        script: "BODY='<failure/>'",
        codes: [0, 3, 3, 3],
        status: "complete",
        junit: "<failure",
    },
    Outcome {
        name: "unreadable",
        format: "junit",
        script: "BODY='<failure'",
        codes: [0, 0, 4, 4],
        status: "complete",
        junit: "testsuite",
    },
    Outcome {
        name: "empty",
        format: "junit",
        script: "exit 0",
        codes: [0, 0, 4, 4],
        status: "complete",
        junit: "testsuite",
    },
    Outcome {
        name: "timeout",
        format: "junit",
        script: "sleep 600",
        codes: [1, 3, 3, 3],
        status: "failed",
        junit: "timeout",
    },
];

impl Outcome {
    /// A run that ends this way.
    fn run(&self, words: &str) -> Sonobuoy {
        let Self {
            name,
            format,
            script,
            ..
        } = self;
        let script = format!("{script}\n{SUITE}").replace('\n', "\n      ");
        let limit = if *name == "timeout" { "1" } else { "60" };
        Sonobuoy::new(&format!("run --local -p plugin.yaml --timeout {limit} --retrieve out {words}")).file(
            "plugin.yaml",
            format!(
                "sonobuoy-config: {{driver: Job, plugin-name: {name}, result-format: {format}}}\nspec:\n  name: plugin\n  \
                 command: [sh, -c]\n  args:\n  - |\n      {script}\n"
            ),
        )
    }

    /// The exit code of `results`, which does not know whether a run has failed its purpose.
    fn code_of_results(&self, limit: usize) -> i32 {
        if limit == 0 { 0 } else { self.codes[limit] }
    }

    /// Publishes the status of a run that has ended this way, or is `running`.
    fn publish_status(&self, api: &ApiServer, run: &str) {
        let status = if run == "running" { run } else { self.status };
        let entry =
            json!({"plugin": self.name, "node": "global", "status": status, "result-status": ""});
        let document = cluster::status(run, &json!([entry]));
        aggregator_pod(api, json!({"phase": "Running"}), Some(&document));
    }

    /// Makes a fake cluster in which a run with this archive has ended.
    fn publish(&self, archive: &Path) -> (ApiServer, Folder) {
        let (api, config, _) = untouched();
        namespace(&api);
        self.publish_status(&api, "complete");
        let folder = archive.parent().unwrap().to_owned();
        api.on_exec(move |exec| {
            let splat = Command::new(env!("CARGO_BIN_EXE_sonobuoy"))
                .arg("splat")
                .arg(&folder)
                .args(&exec.command[3..])
                .output()
                .unwrap();
            ExecAnswer::ok(splat.stdout)
        });
        (api, config)
    }

    #[track_caller]
    fn check(&self, read: &Read, reader: Reader, limit: &str, code: i32) {
        let Read {
            code: found,
            stderr,
            ..
        } = read;
        let expected = reader.expected(code);
        let name = self.name;
        assert_eq!(
            *found,
            Some(expected),
            "{name}, --fail-on {limit}, {reader:?}: {stderr}"
        );
        let reports_output = stderr.contains("cannot write to standard output: ");
        assert_eq!(
            reports_output,
            reader == Reader::FullDevice,
            "{name}, {reader:?}: {stderr}"
        );
    }

    /// The requested files are complete.
    #[track_caller]
    fn check_files(&self, folder: &Path) {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let (junit, page) = (read("out/j.xml"), read("out/p.html"));
        assert!(
            junit.contains(self.junit) && junit.ends_with("</testsuites>\n"),
            "{}: {junit}",
            self.name
        );
        assert!(
            page.contains(self.name) && page.trim_end().ends_with("</html>"),
            "{}: page",
            self.name
        );
        Archive::only_one_in(&folder.join("out"));
    }
}

const FILES: &str = "--junit out/j.xml --html out/p.html";

/// Calls `check` with each of the cases, two at a time.
fn each<'a, T: Sync>(cases: &'a [T], check: impl Fn(&'a T) + Sync) {
    let left = Mutex::new(cases.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = { left.lock().unwrap().next() } {
                    check(case);
                }
            });
        }
    });
}

#[test]
fn no_reader_of_a_local_run_changes_its_exit_code_or_files() {
    // A run takes a second, so that usually each reader has another limit, and every limit some
    // reader. `SONOBUOY_OUTCOMES=all` tries all combinations.
    let all = std::env::var("SONOBUOY_OUTCOMES").is_ok_and(|which| which == "all");
    let mut cases = Vec::new();
    for outcome in &OUTCOMES {
        for (number, reader) in Reader::EVERY.into_iter().enumerate() {
            let limits = 0..LIMITS.len();
            let chosen = limits.filter(|limit| all || *limit == number % LIMITS.len());
            cases.extend(chosen.map(|limit| (outcome, reader, limit)));
        }
    }
    each(&cases, |(outcome, reader, limit)| {
        let run = outcome.run(&format!("{FILES} --fail-on {}", LIMITS[*limit]));
        let read = run.read_by(*reader);
        outcome.check(&read, *reader, LIMITS[*limit], outcome.codes[*limit]);
        outcome.check_files(read.folder.path());
    });
}

#[test]
fn no_reader_of_an_archive_changes_the_exit_code_or_files() {
    let made = Mutex::new(Vec::new());
    each(&OUTCOMES, |outcome| {
        let read = outcome.run("").read_by(Reader::Whole);
        outcome.check(&read, Reader::Whole, "never", outcome.codes[0]);
        let name = read
            .folder
            .names()
            .into_iter()
            .find(|name| name == "out")
            .unwrap();
        let folder = read.folder.join(&name);
        let archive = Folder::names_of(&folder)
            .into_iter()
            .find(|name| name.ends_with(".tar.gz"))
            .unwrap();
        made.lock()
            .unwrap()
            .push((outcome, folder.join(archive), read.folder));
    });
    let made = made.into_inner().unwrap();
    let mut cases: Vec<(&Outcome, &PathBuf, Reader, usize)> = Vec::new();
    for (outcome, archive, _) in &made {
        for reader in Reader::EVERY {
            cases.extend((0..LIMITS.len()).map(|limit| (*outcome, archive, reader, limit)));
        }
    }
    each(&cases, |(outcome, archive, reader, limit)| {
        let words = format!("--fail-on {}", LIMITS[*limit]);
        let mode = ["report", "dump", "detailed", "summary"][*limit];
        let results = Sonobuoy::new(&format!("results {words} --mode {mode}")).arg(archive);
        outcome.check(
            &results.read_by(*reader),
            *reader,
            LIMITS[*limit],
            outcome.code_of_results(*limit),
        );
    });
    each(&cases, |(outcome, archive, reader, limit)| {
        let (_api, config) = outcome.publish(archive);
        let words = format!("wait --retrieve out {FILES} --fail-on {}", LIMITS[*limit]);
        let wait = Sonobuoy::new(&words)
            .arg("--kubeconfig")
            .arg(config.join("kubeconfig"));
        let read = wait.read_by(*reader);
        outcome.check(&read, *reader, LIMITS[*limit], outcome.codes[*limit]);
        outcome.check_files(read.folder.path());
    });
}

#[test]
fn file_that_cannot_be_written_hides_no_verdict() {
    let failed = OUTCOMES.iter().find(|outcome| outcome.name == "failed");
    let outcome = failed.unwrap();
    for (limit, code) in [("never", 1), ("failed", 3)] {
        for flag in ["--junit", "--html"] {
            let run = outcome.run(&format!("{flag} /dev/full --fail-on {limit}"));
            let read = run.read_by(Reader::Whole);
            assert_eq!(read.code, Some(code), "{flag}: {}", read.stderr);
            let stderr = &read.stderr;
            assert!(stderr.contains("cannot write `/dev/full`"), "{stderr}");
            assert_eq!(
                code == 3,
                stderr.contains("exit 3: 1 test failed"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn wait_outlives_its_reader() {
    let outcome = OUTCOMES
        .iter()
        .find(|outcome| outcome.name == "timeout")
        .unwrap();
    for reader in Reader::EVERY {
        let (api, _folder, config) = untouched();
        namespace(&api);
        outcome.publish_status(&api, "running");
        let read = std::thread::scope(|scope| {
            let wait = scope
                .spawn(|| Sonobuoy::new(&format!("wait --kubeconfig {config}")).read_by(reader));
            api.wait(|api| {
                api.requests()
                    .iter()
                    .any(|request| request.contains("watch=true"))
            });
            outcome.publish_status(&api, "complete");
            wait.join().unwrap()
        });
        outcome.check(&read, reader, "never", 1);
    }
}
