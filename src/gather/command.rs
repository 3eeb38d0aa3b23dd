//! Runs one command on a node, and writes its output and exit code as the result: the container
//! side of `sonobuoy each`.
//!
//! The program starts the command itself, so that no image needs a shell, output may be binary, and
//! a command that cannot be started is a result like any other. A log of the pod would merge both
//! streams, and the container's status would say nothing about the output. With another root the
//! command is one of the node, with the node's libraries; the result stays outside that root. At
//! most [`MAX_OUTPUT_BYTES`] of each stream are stored; the rest is read and counted. Everything
//! that the command has started and not moved into another process group ends with it. Starts no
//! thread.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::{NodeFiles, Outbox, journal};
use base::at::At as _;
use base::json::json;

/// Maximum bytes stored of each stream.
pub const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// How often to look whether the command has ended while something else holds its streams open.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes per read.
const CHUNK: usize = 64 << 10;
/// Exit codes of a shell for a command that does not exist, or cannot be started.
const NOT_FOUND: i32 = 127;
const NOT_STARTED: i32 = 126;

/// The command, and its limits.
pub struct NodeCommand<'a> {
    /// Where the node's file system is; `/` runs the command of this container.
    pub root: &'a Path,
    pub words: &'a [String],
    pub timeout: Duration,
}

impl NodeCommand<'_> {
    /// Runs the command, and leaves its result for the worker.
    pub fn run(&self, outbox: &Outbox) -> Result<()> {
        let folder = outbox.path("each");
        fs::create_dir_all(&folder).at("cannot create", &folder)?;
        let inner = Outbox::open(&folder)?;
        let mut streams = [
            Stream::create(&inner.path("stdout"))?,
            Stream::create(&inner.path("stderr"))?,
        ];
        let end = self.execute(&mut streams)?;
        let [stdout, stderr] = streams.map(|stream| stream.total);
        let record = end.record(stdout, stderr).to_string();
        inner.write_file("each.json", record.as_bytes())?;
        outbox.done(&folder)
    }

    fn execute(&self, streams: &mut [Stream; 2]) -> Result<End> {
        let program = self.words.first().context("expected a command")?;
        let mut command = if self.root == Path::new("/") {
            Command::new(program)
        } else {
            journal::command(&NodeFiles::open(self.root)?, program)
        };
        command
            .args(&self.words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        match command.spawn() {
            Ok(child) => self.follow(child, streams),
            Err(error) => {
                writeln!(streams[1].file, "cannot start `{program}`: {error}")?;
                Ok(End::Exited(code_without_start(&error)))
            }
        }
    }

    /// Reads both streams until the command ends or its time is over, then ends its group.
    fn follow(&self, mut child: Child, streams: &mut [Stream; 2]) -> Result<End> {
        let pipes = (child.stdout.take(), child.stderr.take());
        let (Some(mut stdout), Some(mut stderr)) = pipes else {
            anyhow::bail!("the command has no output")
        };
        let deadline = Instant::now() + self.timeout;
        let mut ended = None;
        loop {
            let is_open = [!streams[0].is_over, !streams[1].is_over];
            // What is in the pipes of a command that has ended is its last output.
            let wait = match ended {
                Some(_) => Duration::ZERO,
                None => CHECK_INTERVAL,
            };
            let is_ready = readable([stdout.as_fd(), stderr.as_fd()], is_open, wait)?;
            if is_ready[0] {
                streams[0].take(&mut stdout)?;
            }
            if is_ready[1] {
                streams[1].take(&mut stderr)?;
            }
            if let (Some(status), [false, false]) = (ended, is_ready) {
                end_group(&child);
                return Ok(End::of(status));
            }
            if Instant::now() >= deadline {
                end_group(&child);
                // It may have left its group.
                let _ = child.kill();
                let status = child.wait().context("cannot tell how the command ended")?;
                return Ok(match ended {
                    Some(_) => End::of(status),
                    None => End::TimedOut(self.timeout),
                });
            }
            ended = child
                .try_wait()
                .context("cannot tell how the command ended")?;
        }
    }
}

/// The exit code of a shell for a command that could not be started.
pub fn code_without_start(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_STARTED,
    }
}

/// Ends what is left of the command.
fn end_group(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // There is no group if nothing is left of it.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Which of the open pipes have data, or have ended.
fn readable(pipes: [BorrowedFd<'_>; 2], is_open: [bool; 2], wait: Duration) -> Result<[bool; 2]> {
    let flags = is_open.map(|is_open| match is_open {
        true => PollFlags::IN,
        false => PollFlags::empty(),
    });
    let mut polled = [
        PollFd::new(&pipes[0], flags[0]),
        PollFd::new(&pipes[1], flags[1]),
    ];
    let wait_time = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    let open = match is_open {
        [true, true] => &mut polled[..],
        [true, false] => &mut polled[..1],
        [false, true] => &mut polled[1..],
        [false, false] => &mut polled[..0],
    };
    rustix::io::retry_on_intr(|| poll(open, Some(&wait_time)))?;
    let has_events = |at: usize| is_open[at] && !polled[at].revents().is_empty();
    Ok([has_events(0), has_events(1)])
}

/// A stream of the command: its beginning in a file, and its length.
struct Stream {
    file: File,
    total: u64,
    is_over: bool,
}

impl Stream {
    fn create(path: &Path) -> Result<Self> {
        Ok(Self {
            file: File::create(path).at("cannot write", path)?,
            total: 0,
            is_over: false,
        })
    }

    /// Reads once; the pipe has data, or has ended.
    fn take(&mut self, pipe: &mut impl Read) -> Result<()> {
        let mut buffer = [0; CHUNK];
        let count = match pipe.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            read => read.context("cannot read the command's output")?,
        };
        self.is_over = count == 0;
        let room = MAX_OUTPUT_BYTES.saturating_sub(self.total);
        let stored = usize::try_from(room).unwrap_or(count).min(count);
        self.file
            .write_all(&buffer[..stored])
            .context("cannot write the command's output")?;
        self.total += count as u64;
        Ok(())
    }
}

/// How the command ended.
enum End {
    Exited(i32),
    Killed(i32),
    TimedOut(Duration),
}

impl End {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, signal) => Self::Killed(signal.unwrap_or_default()),
        }
    }

    /// The result in the form of a `manual` item, with the length of both streams.
    fn record(&self, stdout: u64, stderr: u64) -> Value {
        let (status, end) = match self {
            Self::Exited(0) => ("passed", "exit code 0".to_owned()),
            Self::Exited(code) => ("failed", format!("exit code {code}")),
            Self::Killed(signal) => ("failed", format!("killed by signal {signal}")),
            Self::TimedOut(limit) => (
                "failed",
                format!("did not end within {} s", limit.as_secs()),
            ),
        };
        let code = match self {
            Self::Exited(code) => json!(code),
            _ => Value::Null,
        };
        json!({
            "name": "command",
            "status": status,
            "details": {
                "end": end, "code": code, "stdoutBytes": stdout, "stderrBytes": stderr,
                "failure": if status == "failed" { end.as_str() } else { "" },
            },
        })
    }
}

/// Copies this program into a folder, for a container of another image.
pub fn carry(folder: &Path) -> Result<()> {
    let path = folder.join("sonobuoy");
    // The copy keeps the permissions of the original.
    fs::copy("/proc/self/exe", &path)
        .map(drop)
        .at("cannot copy this program to", &path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::Scratch;

    /// What is left for the worker: the record, and both streams.
    fn run(words: &[&str], timeout: Duration) -> (Value, Vec<u8>, Vec<u8>) {
        let scratch = Scratch::new();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let outbox = Outbox::open(&scratch.0).unwrap();
        let command = NodeCommand {
            root: Path::new("/"),
            words: &words,
            timeout,
        };
        command.run(&outbox).unwrap();
        let folder = fs::read_to_string(outbox.path("done")).unwrap();
        let read = |name| fs::read(Path::new(&folder).join(name)).unwrap();
        let record = serde_json::from_slice(&read("each.json")).unwrap();
        (record, read("stdout"), read("stderr"))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn ends_are_told_apart() {
        let cases: &[(&[&str], &str, &str)] = &[
            (&["true"], "passed", "exit code 0"),
            (&["sh", "-c", "exit 7"], "failed", "exit code 7"),
            (&["sh", "-c", "kill -9 $$"], "failed", "killed by signal 9"),
            (&["/no/such/command"], "failed", "exit code 127"),
            (&["/"], "failed", "exit code 126"),
        ];
        for (words, status, end) in cases {
            let (record, _, _) = run(words, LONG);
            assert_eq!(record["status"], *status, "{words:?}");
            assert_eq!(record["details"]["end"], *end, "{words:?}");
        }
    }

    #[test]
    fn streams_are_separate_and_binary() {
        let (_, stdout, stderr) = run(&["sh", "-c", "printf '\\0\\377'; echo no >&2"], LONG);
        assert_eq!((&stdout[..], &stderr[..]), (&b"\0\xff"[..], &b"no\n"[..]));
    }

    #[test]
    fn long_output_is_counted_and_cut() {
        let (record, stdout, _) = run(&["head", "-c", "5000000", "/dev/zero"], LONG);
        assert_eq!(stdout.len() as u64, MAX_OUTPUT_BYTES);
        assert_eq!(record["details"]["stdoutBytes"], 5_000_000);
    }

    #[test]
    fn endless_command_ends_with_its_children() {
        let script = "echo begun; sleep 1000 & sleep 1000";
        let (record, stdout, _) = run(&["sh", "-c", script], Duration::from_secs(1));
        assert_eq!(record["details"]["end"], "did not end within 1 s");
        assert_eq!(stdout, b"begun\n");
    }

    #[test]
    fn background_process_does_not_delay_the_result() {
        let (record, _, _) = run(&["sh", "-c", "sleep 1000 & exit 3"], LONG);
        assert_eq!(record["details"]["end"], "exit code 3");
    }
}
