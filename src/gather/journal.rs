//! The node's log, line by line: the journal, read by the node's `journalctl`, else /var/log and the kernel's ring buffer.
//!
//! Owns the sources of lines and streams them: memory is a few buffers, whatever the size of the journal. Does not interpret
//! lines. While reading, starts the threads `journal`, which allows a timeout for a journal that hangs, and `stderr`.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};

use super::Node;
use base::json::json;

/// A journal that is silent for this long has hung.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// Bytes per read.
const CHUNK: usize = 64 << 10;

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
pub(crate) const INSIDE: &str = "inside";

/// Which part of the log to read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Start of the range.
    pub since: Since,
    /// Only these units; all units if empty.
    pub units: Vec<String>,
    /// Only this priority and above, in `journalctl`'s notation.
    pub priority: Option<String>,
}

/// A point in the past.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Since {
    /// Minutes before now.
    Minutes(u64),
    /// A time in `journalctl`'s notation: a date, `yesterday`, `-2h`.
    Words(String),
}

impl Since {
    /// Parses a number as minutes; passes any other text to `journalctl`.
    pub(crate) fn read(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Words(text.to_owned()), Self::Minutes)
    }

    fn words(&self) -> String {
        match self {
            Self::Minutes(minutes) => format!("{minutes} minutes ago"),
            Self::Words(words) => words.clone(),
        }
    }

    /// The point in time, or an approximation if only `journalctl` can parse it.
    fn moment(&self) -> SystemTime {
        let span = match self {
            Self::Minutes(minutes) => Some(Duration::from_secs(minutes.saturating_mul(60))),
            Self::Words(words) => words.strip_prefix('-').and_then(base::clock::parse_duration),
        };
        let ago = span.and_then(|span| SystemTime::now().checked_sub(span));
        let stated = || match self {
            Self::Words(words) => base::clock::parse_rfc3339(&words.replacen(' ', "T", 1)),
            Self::Minutes(_) => None,
        };
        ago.or_else(stated).unwrap_or(UNIX_EPOCH)
    }
}

/// Source of the lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Origin {
    /// The systemd journal.
    Journal,
    /// Files in /var/log and the kernel's ring buffer, without a journal.
    Files,
}

/// Passes every chunk of the log to `take`: JSON objects, each followed by a newline. Stops when `take` returns false.
pub(crate) fn read(
    node: &Node,
    wanted: &Wanted,
    take: &mut dyn FnMut(&[u8]) -> Result<bool>,
) -> Result<Origin> {
    let why = match journalctl(node, wanted) {
        Ok(mut child) => {
            // No exit status: the program was killed because `take` returned false.
            let Some(end) = drain(&mut child, take)? else { return Ok(Origin::Journal) };
            let well = end.status.success();
            if end.bytes > 0 && !well {
                let note = format!("`journalctl` broke off ({end}); entries after this point are missing");
                log::warn!("{note}");
                let entry = json!({ "SYSLOG_IDENTIFIER": "sonobuoy", "PRIORITY": "3", "MESSAGE": note });
                let begin = if end.last == b'\n' { "" } else { "\n" };
                take(format!("{begin}{entry}\n").as_bytes())?;
            }
            // A journal without any matching entry still exists.
            if end.bytes > 0 || well && end.complaint.is_empty() && has_journal(node) {
                return Ok(Origin::Journal);
            }
            format!("`journalctl` printed nothing ({end})")
        }
        Err(error) => format!("{error:#}"),
    };
    log::warn!("there is no journal ({why}); /var/log and the kernel's messages are used instead");
    files(node, wanted, &why, take)?;
    Ok(Origin::Files)
}

fn journalctl(node: &Node, wanted: &Wanted) -> Result<Child> {
    let program = PROGRAMS
        .iter()
        .find(|path| node.exists(path))
        .ok_or_else(|| anyhow!("the node has no `journalctl`"))?;
    let mut command = command(node, program);
    command.args(["-o", "json", "-a", "--no-pager", "--since", &wanted.since.words()]);
    for unit in &wanted.units {
        command.arg(format!("--unit={unit}"));
    }
    if let Some(priority) = &wanted.priority {
        command.arg(format!("--priority={priority}"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().with_context(|| format!("cannot start `{program}`"))
}

/// Prepares a command that runs a program of the node with an empty environment.
pub(super) fn command(node: &Node, program: &str) -> Command {
    let mut command = if node.root() == Path::new("/") {
        Command::new(program)
    } else {
        // The node's program needs the node's libraries, so the command first changes its root to the node.
        let mut command = Command::new("/proc/self/exe");
        command.args(["gather", INSIDE]).arg(node.root()).arg(program);
        command
    };
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    command
}

/// Executes `program` below `root`; returns only on failure.
pub(crate) fn inside(root: &Path, program: &str, args: &[String]) -> Result<()> {
    let shown = root.display();
    rustix::process::chroot(root)
        .with_context(|| format!("cannot make `{shown}` the root; that needs CAP_SYS_CHROOT"))?;
    std::env::set_current_dir("/").with_context(|| format!("cannot enter `{shown}`"))?;
    Err(Command::new(program).args(args).exec())
        .with_context(|| format!("cannot start `{program}` below `{shown}`"))
}

/// Whether the node keeps a journal, on disk or in memory.
fn has_journal(node: &Node) -> bool {
    let kept = |folder: String| node.list(&folder).iter().any(|name| name.ends_with(".journal"));
    ["/var/log/journal", "/run/log/journal"]
        .iter()
        .any(|root| node.list(root).iter().any(|machine| kept(format!("{root}/{machine}"))))
}

/// Exit of a program whose output was read to the end.
struct End {
    bytes: u64,
    last: u8,
    status: ExitStatus,
    complaint: String,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.complaint.lines().find(|line| !line.trim().is_empty());
        write!(f, "{}", self.status)?;
        line.map_or(Ok(()), |line| write!(f, ": {line}"))
    }
}

/// Passes on the child's output. Reads its stderr concurrently, so that the child never blocks on it.
fn drain(child: &mut Child, take: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<Option<End>> {
    let stdout = child.stdout.take().context("the journal has no output")?;
    let mut stderr = child.stderr.take().context("the journal has no complaints")?;
    let (sender, receiver) = mpsc::sync_channel(2);
    std::thread::scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        // Dropping this sender signals the end of stderr.
        let until = sender.clone();
        let complaints = named("complaints").spawn_scoped(scope, move || {
            let mut text = Vec::new();
            let _ = stderr.by_ref().take(4_096).read_to_end(&mut text);
            let _ = io::copy(&mut stderr, &mut io::sink());
            drop(until);
            String::from_utf8_lossy(&text).into_owned()
        })?;
        named("journal").spawn_scoped(scope, move || pump(stdout, &sender))?;
        let (mut bytes, mut last) = (0, b'\n');
        let outcome = loop {
            match receiver.recv_timeout(SILENCE_TIMEOUT) {
                Ok(Ok(chunk)) => {
                    bytes += chunk.len() as u64;
                    last = chunk.last().copied().unwrap_or(last);
                    match take(&chunk) {
                        Ok(true) => {}
                        Ok(false) => break Ok(None),
                        Err(error) => break Err(error),
                    }
                }
                Ok(Err(error)) => break Err(error).context("cannot read the journal"),
                Err(RecvTimeoutError::Disconnected) => {
                    let complaint = complaints.join().unwrap_or_default();
                    let status = child.wait().context("cannot tell how `journalctl` ended");
                    return status.map(|status| Some(End { bytes, last, status, complaint }));
                }
                Err(RecvTimeoutError::Timeout) => {
                    break Err(anyhow!(
                        "`journalctl` printed nothing for {} s and was stopped",
                        SILENCE_TIMEOUT.as_secs()
                    ));
                }
            }
        };
        // Ends both the reader and the program, even with output pending.
        drop(receiver);
        let _ = child.kill().and_then(|()| child.wait());
        outcome
    })
}

fn pump(mut from: ChildStdout, to: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let message = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => {
                chunk.truncate(length);
                Ok(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        if to.send(message).is_err() {
            return;
        }
    }
}

/// Lines of plain logs and of the kernel, each as a journal entry.
fn files(node: &Node, wanted: &Wanted, why: &str, take: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<()> {
    let mut entry = |fields: serde_json::Value| -> Result<bool> { take(format!("{fields}\n").as_bytes()) };
    let since = wanted.since.moment();
    let logs: Vec<String> =
        node.list("/var/log").into_iter().filter(|name| is_log(node, name, since)).collect();
    let ring = if node.live() { ring(node) } else { None };
    if logs.is_empty() && ring.is_none() {
        bail!(
            "no log is available: {why}; there are no logs in /var/log, and the kernel's messages cannot be read"
        );
    }
    let note = format!("{why}; lines of /var/log and the kernel's messages follow");
    let mut more = entry(json!({ "SYSLOG_IDENTIFIER": "sonobuoy", "PRIORITY": "4", "MESSAGE": note }))?;
    for name in logs {
        let path = format!("/var/log/{name}");
        let Ok(file) = node.resolve(&path, true).and_then(File::open) else { continue };
        let mut lines = BufReader::with_capacity(CHUNK, file);
        while more && let Some(line) = next_line(&mut lines)? {
            more = entry(json!({ "SYSLOG_IDENTIFIER": name, "_SOURCE_FILE": path, "MESSAGE": line }))?;
        }
    }
    if let Some(mut ring) = ring {
        let booted = booted(node);
        while more && let Some(record) = next_record(&mut ring) {
            let micros = booted + record.micros;
            if u128::from(micros) < since.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() {
                continue;
            }
            more = entry(json!({
                "SYSLOG_IDENTIFIER": "kernel", "_TRANSPORT": "kernel", "PRIORITY": record.priority.to_string(),
                "__REALTIME_TIMESTAMP": micros.to_string(), "MESSAGE": record.message,
            }))?;
        }
    }
    Ok(())
}

/// Whether a file is a recent plain-text log: not rotated, compressed or binary.
fn is_log(node: &Node, name: &str, since: SystemTime) -> bool {
    let plain =
        name.ends_with(".log") || ["syslog", "messages", "dmesg", "secure", "cron", "kern"].contains(&name);
    let meta = node.resolve(&format!("/var/log/{name}"), true).and_then(std::fs::metadata);
    plain && meta.is_ok_and(|meta| meta.is_file() && meta.modified().map_or(true, |time| time >= since))
}

fn next_line(lines: &mut BufReader<File>) -> Result<Option<String>> {
    use std::io::BufRead;
    let mut line = Vec::new();
    let length =
        lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).context("cannot read a log")?;
    Ok((length > 0).then(|| String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()))
}

/// The kernel's ring buffer, opened so that reading at its end does not block.
fn ring(node: &Node) -> Option<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let path = node.resolve("/dev/kmsg", true).ok()?;
    let mut options = File::options();
    options.read(true).custom_flags(i32::try_from(flags).ok()?).open(path).ok()
}

struct Record {
    priority: u64,
    micros: u64,
    message: String,
}

fn next_record(ring: &mut File) -> Option<Record> {
    // One read returns one record, whatever the buffer size.
    let mut bytes = [0; 8_192];
    loop {
        match ring.read(&mut bytes) {
            Ok(0) => return None,
            Ok(length) => {
                if let Some(record) = record(&String::from_utf8_lossy(&bytes[..length])) {
                    return Some(record);
                }
            }
            // Older records were overwritten in the meantime; the next one is still there.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(_) => return None,
        }
    }
}

/// `6,339,5140900,-;message`
fn record(text: &str) -> Option<Record> {
    let (head, message) = text.split_once(';')?;
    let mut fields = head.split(',');
    let level: u64 = fields.next()?.parse().ok()?;
    let micros = fields.nth(1)?.parse().ok()?;
    Some(Record {
        priority: level & 7,
        micros,
        message: message.lines().next().unwrap_or_default().to_owned(),
    })
}

/// When the node booted, in microseconds since 1970.
fn booted(node: &Node) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let uptime = node.text("/proc/uptime").unwrap_or_default();
    let up: f64 = uptime.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let started = now.saturating_sub(Duration::try_from_secs_f64(up).unwrap_or_default());
    u64::try_from(started.as_micros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    fn wanted(since: &str) -> Wanted {
        Wanted { since: Since::read(since), units: Vec::new(), priority: None }
    }

    fn lines(node: &Node, wanted: &Wanted) -> Result<Vec<serde_json::Value>> {
        let mut text = Vec::new();
        let origin = read(node, wanted, &mut |chunk| {
            text.extend_from_slice(chunk);
            Ok(true)
        })?;
        assert_eq!(origin, Origin::Files);
        Ok(text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect())
    }

    #[test]
    fn without_a_journal_the_plain_logs_are_taken() {
        let files = [
            ("var/log/syslog", "one\ntwo"),
            ("var/log/wtmp", "\0\0"),
            ("var/log/kubelet.log", "three\n"),
            ("var/log/syslog.1", "old\n"),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let found = lines(&node, &wanted("60")).unwrap();
        let messages: Vec<_> = found.iter().skip(1).map(|entry| entry["MESSAGE"].as_str().unwrap()).collect();
        assert_eq!(messages, ["three", "one", "two"]);
        assert!(found[0]["MESSAGE"].as_str().unwrap().contains("no `journalctl`"));
        assert!(lines(&node, &wanted("0")).is_err(), "all of them are older");
    }

    #[test]
    fn without_any_log_the_reason_is_told() {
        let (_scratch, node) = Scratch::node(&[]);
        let error = format!("{:#}", lines(&node, &wanted("60")).err().unwrap());
        assert!(error.contains("no log is available"), "{error}");
    }

    #[test]
    fn points_in_the_past() {
        assert_eq!(Since::read("90").words(), "90 minutes ago");
        assert_eq!(Since::read("yesterday").words(), "yesterday");
        assert_eq!(
            Since::read("2026-11-21 02:00:00Z").moment(),
            UNIX_EPOCH + Duration::from_secs(1_795_226_400)
        );
        assert!(Since::read("-2h").moment() > Since::read("180").moment());
    }

    #[test]
    fn records_of_the_kernel() {
        let found = record("30,339,5140900,-;eth0: link down\n SUBSYSTEM=net\n").unwrap();
        assert_eq!((found.priority, found.micros, found.message.as_str()), (6, 5_140_900, "eth0: link down"));
        assert!(record("nonsense").is_none());
    }
}
