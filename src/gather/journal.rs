//! The node's log, line by line: the journal, read by the node's `journalctl`, else /var/log and
//! the kernel's ring buffer.
//!
//! Owns the sources of lines and streams them: memory is a few buffers, whatever the size of the
//! journal. Does not interpret lines. Starts no thread.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use serde_json::Value;

use super::{NodeFiles, field};
use base::clock;
use base::json::json;

/// A journal that is silent for so many seconds has hung.
const SILENCE_SECONDS: i64 = 120;

/// Maximum bytes kept of what `journalctl` writes to its stderr.
const MAX_STDERR_BYTES: u64 = 4_096;

/// Bytes per read.
const CHUNK: usize = 64 << 10;

/// Maximum bytes of a piece of an entry of the journal.
pub(super) const MAX_ENTRY_BYTES: u64 = 256 << 10;

/// Maximum bytes of a line of a plain log; longer lines are split.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Paths of `journalctl` on nodes.
const PROGRAMS: &[&str] = &[
    "/usr/bin/journalctl",
    "/bin/journalctl",
    "/usr/local/bin/journalctl",
    "/run/current-system/sw/bin/journalctl",
];

/// Name of the hidden command with which this process executes a program of the node.
const INSIDE: &str = "inside";

/// Which part of the log to read.
pub struct LogQuery {
    /// Start of the range: minutes before now, or a time in `journalctl`'s notation, such as a
    /// date, `yesterday`, `-2h`.
    pub since: String,
    /// Only these units; all units if empty.
    pub units: Vec<String>,
    /// Only this priority and above, in `journalctl`'s notation.
    pub priority: Option<String>,
}

/// A point in the past in `journalctl`'s notation; a bare number counts minutes.
fn words(since: &str) -> String {
    if since.parse::<u64>().is_ok() {
        format!("{since} minutes ago")
    } else {
        since.to_owned()
    }
}

/// The same point in time, or an approximation if only `journalctl` can parse it.
fn moment(since: &str) -> SystemTime {
    let minutes = since
        .parse::<u64>()
        .map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    let ago = minutes
        .ok()
        .or_else(|| clock::parse_duration(since.strip_prefix('-')?));
    let moment = match ago {
        Some(ago) => SystemTime::now().checked_sub(ago),
        None => clock::parse_rfc3339(&since.replacen(' ', "T", 1)),
    };
    moment.unwrap_or(UNIX_EPOCH)
}

/// Sources of lines.
const JOURNAL: &str = "journal";
const FILES: &str = "/var/log and the kernel's messages, since there is no journal";

/// Passes every entry of the log to `take`: a JSON object and a newline, a long one in several
/// pieces. Stops when `take` returns false. Returns the source of the lines.
pub fn read(
    node: &NodeFiles,
    wanted: &LogQuery,
    take: &mut dyn FnMut(&[u8]) -> Result<bool>,
) -> Result<&'static str> {
    let why = match journalctl(node, wanted) {
        Ok((mut child, mut messages)) => {
            let stdout = child.stdout.take().context("the journal has no output")?;
            let drained = pieces(Awaited(stdout), MAX_ENTRY_BYTES, &mut *take);
            if !matches!(drained, Ok((true, _))) {
                let _ = child.kill();
            }
            let status = child.wait().context("cannot tell how `journalctl` ended")?;
            let (is_whole, last) = drained?;
            if !is_whole {
                return Ok(JOURNAL);
            }
            let mut stderr = Vec::new();
            messages
                .rewind()
                .and_then(|()| messages.take(MAX_STDERR_BYTES).read_to_end(&mut stderr))?;
            let stderr = String::from_utf8_lossy(&stderr);
            let line = stderr.lines().find(|line| !line.trim().is_empty());
            let end = line.map_or_else(|| status.to_string(), |line| format!("{status}: {line}"));
            if let (Some(last), false) = (last, status.success()) {
                let note =
                    format!("`journalctl` broke off ({end}); entries after this point are missing");
                log::warn!("{note}");
                let begin = if last == b'\n' { "" } else { "\n" };
                take(format!("{begin}{}\n", note_entry(3, &note)).as_bytes())?;
            }
            // A journal without any matching entry still exists.
            if last.is_some() || status.success() && stderr.is_empty() && has_journal(node) {
                return Ok(JOURNAL);
            }
            format!("`journalctl` printed nothing ({end})")
        }
        Err(error) => format!("{error:#}"),
    };
    log::warn!("there is no journal ({why}); /var/log and the kernel's messages are used instead");
    files(node, moment(&wanted.since), &why, take)?;
    Ok(FILES)
}

/// Starts the program; its stderr is a file in memory.
fn journalctl(node: &NodeFiles, wanted: &LogQuery) -> Result<(Child, File)> {
    let program = PROGRAMS
        .iter()
        .find(|path| node.exists(path))
        .context("the node has no `journalctl`")?;
    let mut command = command(node, program);
    command.args([
        "-o",
        "json",
        "-a",
        "--no-pager",
        "--since",
        &words(&wanted.since),
    ]);
    for unit in &wanted.units {
        command.arg(format!("--unit={unit}"));
    }
    if let Some(priority) = &wanted.priority {
        command.arg(format!("--priority={priority}"));
    }
    let messages = File::from(rustix::fs::memfd_create("stderr", MemfdFlags::CLOEXEC)?);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(messages.try_clone()?);
    Ok((
        command
            .spawn()
            .with_context(|| format!("cannot start `{program}`"))?,
        messages,
    ))
}

/// Prepares a command that runs a program of the node with an empty environment.
pub(super) fn command(node: &NodeFiles, program: &str) -> Command {
    let mut command = if node.root == Path::new("/") {
        Command::new(program)
    } else {
        // The node's program needs the node's libraries, so the command first changes its root to
        // the node.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["gather", INSIDE])
            .arg(&node.root)
            .arg(program);
        command
    };
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8");
    command
}

/// Executes `program` below `root`; returns only on failure.
pub fn inside(root: &Path, program: &str, args: &[String]) -> Result<()> {
    let root_name = root.display();
    rustix::process::chroot(root).with_context(|| {
        format!("cannot make `{root_name}` the root; that needs CAP_SYS_CHROOT")
    })?;
    std::env::set_current_dir("/").with_context(|| format!("cannot enter `{root_name}`"))?;
    Err(Command::new(program).args(args).exec())
        .with_context(|| format!("cannot start `{program}` below `{root_name}`"))
}

/// Whether the node keeps a journal, on disk or in memory.
fn has_journal(node: &NodeFiles) -> bool {
    ["/var/log/journal", "/run/log/journal"]
        .iter()
        .any(|folder| !node.list(folder).is_empty())
}

/// A journal entry of this program.
pub(super) fn note_entry(priority: u8, message: &str) -> Value {
    json!({ "SYSLOG_IDENTIFIER": "sonobuoy", "PRIORITY": priority.to_string(), "MESSAGE": message })
}

/// The output of `journalctl`; silence for too long is an error.
struct Awaited(ChildStdout);

impl Read for Awaited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut pipe = [PollFd::new(&self.0, PollFlags::IN)];
        let silence = Timespec {
            tv_sec: SILENCE_SECONDS,
            tv_nsec: 0,
        };
        if rustix::io::retry_on_intr(|| poll(&mut pipe, Some(&silence)))? == 0 {
            let why =
                format!("`journalctl` printed nothing for {SILENCE_SECONDS} s and was stopped");
            return Err(io::Error::other(why));
        }
        self.0.read(buffer)
    }
}

/// Passes each line with its newline to `take`, a longer one than `limit` in several pieces:
/// whether `take` wanted all of them, and the last byte, if any.
pub(super) fn pieces(
    input: impl Read,
    limit: u64,
    mut take: impl FnMut(&[u8]) -> Result<bool>,
) -> Result<(bool, Option<u8>)> {
    let mut input = BufReader::with_capacity(CHUNK, input);
    let (mut piece, mut last) = (Vec::new(), None);
    while input
        .by_ref()
        .take(limit)
        .read_until(b'\n', &mut piece)
        .context("cannot read a log")?
        > 0
    {
        last = piece.last().copied();
        if !take(&piece)? {
            return Ok((false, last));
        }
        piece.clear();
    }
    Ok((true, last))
}

/// Lines of plain logs and of the kernel, each as a journal entry.
fn files(
    node: &NodeFiles,
    since: SystemTime,
    why: &str,
    take: &mut dyn FnMut(&[u8]) -> Result<bool>,
) -> Result<()> {
    let mut entry = |fields: Value| take(format!("{fields}\n").as_bytes());
    let logs: Vec<String> = node
        .list("/var/log")
        .into_iter()
        .filter(|name| is_log(node, name, since))
        .collect();
    let mut ring = if node.live { ring(node) } else { None };
    ensure!(
        !logs.is_empty() || ring.is_some(),
        "no log is available: {why}; /var/log contains no logs, and the kernel's messages cannot \
         be read"
    );
    if !entry(note_entry(
        4,
        &format!("{why}; lines of /var/log and the kernel's messages follow"),
    ))? {
        return Ok(());
    }
    for name in logs {
        let path = format!("/var/log/{name}");
        let Ok(file) = node.resolve(&path, true).and_then(File::open) else {
            continue;
        };
        let (is_whole, _) = pieces(file, MAX_LINE_BYTES, |line| {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
            entry(json!({ "SYSLOG_IDENTIFIER": name, "_SOURCE_FILE": path, "MESSAGE": line }))
        })?;
        if !is_whole {
            return Ok(());
        }
    }
    let stat = node.text("/proc/stat").unwrap_or_default();
    let booted = field(&stat, ' ', "btime")
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(0);
    let booted = Duration::from_secs(booted);
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    // One read returns one record, whatever the buffer size.
    let mut bytes = [0; 8_192];
    while let Some(ring) = &mut ring {
        let length = match ring.read(&mut bytes) {
            // Older records were overwritten in the meantime; the next one is still there.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => continue,
            read => read.unwrap_or(0),
        };
        if length == 0 {
            break;
        }
        let Some((priority, micros, message)) = record(&String::from_utf8_lossy(&bytes[..length]))
        else {
            continue;
        };
        let time = booted.saturating_add(Duration::from_micros(micros));
        let record = json!({
            "SYSLOG_IDENTIFIER": "kernel", "_TRANSPORT": "kernel", "PRIORITY": priority.to_string(),
            "__REALTIME_TIMESTAMP": time.as_micros().to_string(), "MESSAGE": message,
        });
        if time >= since && !entry(record)? {
            break;
        }
    }
    Ok(())
}

/// Whether a file is a recent plain-text log: not rotated, compressed or binary.
fn is_log(node: &NodeFiles, name: &str, since: SystemTime) -> bool {
    let plain = name.ends_with(".log")
        || ["syslog", "messages", "dmesg", "secure", "cron", "kern"].contains(&name);
    let meta = node
        .resolve(&format!("/var/log/{name}"), true)
        .and_then(std::fs::metadata);
    plain
        && meta
            .is_ok_and(|meta| meta.is_file() && meta.modified().map_or(true, |time| time >= since))
}

/// The kernel's ring buffer, opened so that reading at its end does not block.
fn ring(node: &NodeFiles) -> Option<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let path = node.resolve("/dev/kmsg", true).ok()?;
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(i32::try_from(flags).ok()?)
        .open(path)
        .ok()
}

/// Priority, microseconds since the boot, and message of a record of the kernel:
/// `6,339,5140900,-;message`.
fn record(text: &str) -> Option<(u64, u64, String)> {
    let (head, message) = text.split_once(';')?;
    let fields: Vec<&str> = head.split(',').collect();
    let [level, _, micros, ..] = fields[..] else {
        return None;
    };
    let message = message.lines().next().unwrap_or_default().to_owned();
    Some((
        level.parse::<u64>().ok()? & 7,
        micros.parse().ok()?,
        message,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    fn wanted(since: &str) -> LogQuery {
        LogQuery {
            since: since.to_owned(),
            units: Vec::new(),
            priority: None,
        }
    }

    fn lines(node: &NodeFiles, wanted: &LogQuery) -> Result<Vec<Value>> {
        let mut text = Vec::new();
        let origin = read(node, wanted, &mut |chunk| {
            text.extend_from_slice(chunk);
            Ok(true)
        })?;
        assert_eq!(origin, FILES);
        Ok(text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect())
    }

    #[test]
    fn plain_logs_replace_a_missing_journal() {
        let files = [
            ("var/log/syslog", "one\ntwo"),
            ("var/log/wtmp", "\0\0"),
            ("var/log/kubelet.log", "three\n"),
            ("var/log/syslog.1", "old\n"),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let found = lines(&node, &wanted("60")).unwrap();
        let messages: Vec<_> = found
            .iter()
            .skip(1)
            .map(|entry| entry["MESSAGE"].as_str().unwrap())
            .collect();
        assert_eq!(messages, ["three", "one", "two"]);
        assert!(
            found[0]["MESSAGE"]
                .as_str()
                .unwrap()
                .contains("no `journalctl`")
        );
        assert!(lines(&node, &wanted("0")).is_err(), "all of them are older");
    }

    #[test]
    fn missing_logs_are_reported_with_reason() {
        let (_scratch, node) = Scratch::node(&[]);
        let error = format!("{:#}", lines(&node, &wanted("60")).err().unwrap());
        assert!(error.contains("no log is available"), "{error}");
    }

    #[test]
    fn points_in_the_past() {
        assert_eq!(words("90"), "90 minutes ago");
        assert_eq!(words("yesterday"), "yesterday");
        assert_eq!(
            moment("2026-11-21 02:00:00Z"),
            UNIX_EPOCH + Duration::from_secs(1_795_226_400)
        );
        assert!(moment("-2h") > moment("180"));
    }

    #[test]
    fn records_of_the_kernel() {
        let found = record("30,339,5140900,-;eth0: link down\n SUBSYSTEM=net\n").unwrap();
        assert_eq!(found, (6, 5_140_900, "eth0: link down".to_owned()));
        assert!(record("nonsense").is_none());
    }
}
