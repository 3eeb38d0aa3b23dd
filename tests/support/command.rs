//! Runs the program: a builder for its input and the expected output.
//!
//! The program gets a new folder as working directory and HOME, and no environment except PATH and
//! variables that its system requires. A program that exceeds the time limit is killed and fails
//! the test. `SONOBUOY_TEST_PROGRAM` names another build, with its runner: `qemu-s390x-static
//! /path/sonobuoy`; `SONOBUOY_TEST_AGGREGATOR` and `SONOBUOY_TEST_WORKER` do so for one command.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::diff::{assert_golden, assert_same};
use super::folder::Folder;
use super::watchdog::{LIMIT, Watchdog};

/// Settings of wine and qemu, and variables that every program on Windows requires.
const ALWAYS: &[&str] = &[
    "WINEPREFIX",
    "WINEDEBUG",
    "QEMU_LD_PREFIX",
    "SystemRoot",
    "SystemDrive",
    "TEMP",
    "TMP",
    "COMSPEC",
];

/// One call of the program.
#[must_use = "nothing runs before `.run()`"]
pub struct Sonobuoy {
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    stdin: Vec<u8>,
    folder: Folder,
    checks: Vec<Check>,
    status: i32,
}

enum Check {
    Stdout(String),
    StdoutGolden(String),
    StdoutHas(String),
    Stderr(String),
    StderrHas(String),
}

/// Result of a call.
pub struct Done {
    pub stdout: String,
    pub stderr: String,
    pub folder: Folder,
}

impl Sonobuoy {
    /// A call with these arguments, as a shell would split them at blanks.
    pub fn new(words: &str) -> Self {
        Self::with(words.split_whitespace())
    }

    /// A call with exactly these arguments.
    pub fn with<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        Self {
            args: args
                .into_iter()
                .map(|arg| arg.as_ref().to_owned())
                .collect(),
            env: Vec::new(),
            stdin: Vec::new(),
            folder: Folder::new(),
            checks: Vec::new(),
            status: 0,
        }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments, split at blanks.
    pub fn args(mut self, words: &str) -> Self {
        self.args.extend(words.split_whitespace().map(Into::into));
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.into(), Some(value.as_ref().to_owned())));
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.env.push((name.into(), None));
        self
    }

    pub fn stdin(mut self, content: impl AsRef<[u8]>) -> Self {
        self.stdin = content.as_ref().to_owned();
        self
    }

    /// A file in the working directory.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.folder.write(name, content);
        self
    }

    /// The working directory.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Expects this stdout. Without any check stdout must be empty, unless `.run_any()` is used.
    pub fn stdout(self, expected: &str) -> Self {
        self.check(Check::Stdout(expected.into()))
    }

    /// Expects the stdout in a file below tests/fixtures.
    pub fn stdout_golden(self, name: &str) -> Self {
        self.check(Check::StdoutGolden(name.into()))
    }

    pub fn stdout_has(self, part: &str) -> Self {
        assert!(!part.is_empty(), "every text has this part");
        self.check(Check::StdoutHas(part.into()))
    }

    /// Expects this stderr. Without any check stderr must be empty, unless `.run_any()` is used.
    pub fn stderr(self, expected: &str) -> Self {
        self.check(Check::Stderr(expected.into()))
    }

    pub fn stderr_has(self, part: &str) -> Self {
        assert!(!part.is_empty(), "every text has this part");
        self.check(Check::StderrHas(part.into()))
    }

    /// Expects this exit code instead of 0.
    pub fn status(mut self, code: i32) -> Self {
        self.status = code;
        self
    }

    fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    /// The plain command, for tests that need the process itself; keep the folder while it runs.
    pub fn command(self) -> (Command, Folder) {
        let role = self
            .args
            .first()
            .map(|arg| arg.to_string_lossy().to_uppercase())
            .unwrap_or_default();
        let other = std::env::var(format!("SONOBUOY_TEST_{role}"))
            .or_else(|_| std::env::var("SONOBUOY_TEST_PROGRAM"))
            .unwrap_or_default();
        let mut words = other.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or(env!("CARGO_BIN_EXE_sonobuoy")));
        command
            .args(words)
            .args(&self.args)
            .current_dir(self.folder.path())
            .env_clear();
        command.env("HOME", self.folder.path());
        // Another run may have left credentials in the default place.
        command.env("SONOBUOY_CREDENTIALS", "sonobuoy.json");
        for name in ALWAYS {
            command.envs(std::env::var_os(name).map(|value| (*name, value)));
        }
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        (command, self.folder)
    }

    /// Runs it without checking the exit code; returns the code, stdout and stderr.
    #[track_caller]
    pub fn run_any_status(self) -> (i32, String, String) {
        let (mut command, _folder) = self.command();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.expect("the program starts");
        let watchdog = Watchdog::over(&child);
        let output = child.wait_with_output().unwrap();
        assert!(!watchdog.bit(), "still running after {LIMIT:?}");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (
            output.status.code().unwrap_or(-1),
            text(output.stdout),
            text(output.stderr),
        )
    }

    /// Runs it and checks everything, including that unchecked streams are empty.
    #[track_caller]
    pub fn run(mut self) -> Done {
        let mentions = |wanted: fn(&Check) -> bool| self.checks.iter().any(wanted);
        let no_stdout = !mentions(|c| {
            matches!(
                c,
                Check::Stdout(_) | Check::StdoutGolden(_) | Check::StdoutHas(_)
            )
        });
        let no_stderr = !mentions(|c| matches!(c, Check::Stderr(_) | Check::StderrHas(_)));
        if no_stdout {
            self.checks.push(Check::Stdout(String::new()));
        }
        if no_stderr {
            self.checks.push(Check::Stderr(String::new()));
        }
        self.run_any()
    }

    /// Runs it and checks only the given expectations.
    #[track_caller]
    pub fn run_any(mut self) -> Done {
        let words = self
            .args
            .iter()
            .map(|arg| arg.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ");
        let checks = std::mem::take(&mut self.checks);
        let expected = self.status;
        let stdin = std::mem::take(&mut self.stdin);
        let (mut command, folder) = self.command();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let watchdog = Watchdog::over(&child);
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            // The program may end without reading all of its input.
            let _ = input.write_all(&stdin);
        });
        let output = child.wait_with_output().unwrap();
        let hung = watchdog.bit();
        writer.join().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let story = format!("`sonobuoy {words}`\n--- stdout\n{stdout}--- stderr\n{stderr}---");
        assert!(!hung, "still running after {LIMIT:?}: {story}");
        assert!(!stderr.contains("this is a bug"), "a panic: {story}");
        // Windows has other path separators, which these tests do not check.
        let paths = |text: &str| {
            if cfg!(windows) {
                text.replace('\\', "/")
            } else {
                text.to_owned()
            }
        };
        for check in &checks {
            match check {
                Check::Stdout(text) => {
                    assert_same(&format!("stdout of {story}"), &paths(text), &paths(&stdout));
                }
                Check::StdoutGolden(name) => assert_golden(name, &stdout),
                Check::StdoutHas(part) => {
                    assert!(stdout.contains(part), "no {part:?} on stdout of {story}");
                }
                Check::Stderr(text) => assert_same(&format!("stderr of {story}"), text, &stderr),
                Check::StderrHas(part) => {
                    assert!(stderr.contains(part), "no {part:?} on stderr of {story}");
                }
            }
        }
        assert_eq!(output.status.code(), Some(expected), "exit code of {story}");
        Done {
            stdout,
            stderr,
            folder,
        }
    }
}
