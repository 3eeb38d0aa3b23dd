//! Stores the node's log as a result: compressed, limited in size, with counts of the problems in
//! it.
//!
//! Owns the names and the format of the result, and the words that indicate problems. Does not know
//! the sources of lines (`journal`). Starts no thread.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use super::journal::{self, LogQuery};
use super::{NodeFiles, Outbox};
use base::at::At as _;
use base::clock;
use base::json::json;
use base::temp::NewFile;
use model::item::{FAILED, FAILURE, Item, LINK, PASSED, REMEDY};
use model::layout::LOG_SUMMARY;

/// The original plugin's name for the log.
const NAME: &str = "systemd_logs";

/// The folder of a result that consists of more than the log itself.
const FOLDER: &str = "systemd-logs";

/// How to store the log.
#[derive(Default)]
pub struct LogFormat {
    /// Compressed on the fly.
    pub gzip: bool,
    /// With a summary.
    pub summary: bool,
    /// Maximum bytes before compression, cut at the end of a line.
    pub max_size: Option<u64>,
}

/// Writes the log to `outbox` and names it in `done`. On failure the result describes the error.
///
/// A plain log is the same file as the original plugin's. A compressed log, or one with a summary,
/// is in a folder: the aggregator takes a bare `.gz` for an archive and would reject it.
pub fn keep(
    node: Result<NodeFiles>,
    wanted: &LogQuery,
    form: &LogFormat,
    outbox: &Outbox,
) -> Result<()> {
    let in_folder = form.gzip || form.summary;
    let folder = outbox.path(FOLDER);
    if in_folder {
        fs::create_dir_all(&folder).at("cannot create", &folder)?;
    }
    let prefix = if in_folder {
        format!("{FOLDER}/")
    } else {
        String::new()
    };
    let log = outbox.path(&format!(
        "{prefix}{}",
        if form.gzip { "systemd_logs.gz" } else { NAME }
    ));
    let summary = write(node, wanted, form, &log);
    let note = match &summary {
        Ok(summary) => form.summary.then(|| (LOG_SUMMARY, text(summary))),
        Err(error) if form.summary => Some((LOG_SUMMARY, text(&no_log(error)))),
        Err(error) => Some((
            NAME,
            format!("{}\n", journal::note_entry(3, &format!("{error:#}"))),
        )),
    };
    if let Some((name, content)) = note {
        outbox.write_file(&format!("{prefix}{name}"), content.as_bytes())?;
    }
    outbox.done(if in_folder { &folder } else { &log })?;
    summary.map(drop)
}

/// Reads the log as long as `store` takes it, and counts the problems in what it took, if `counts`.
pub fn summarise(
    node: Result<NodeFiles>,
    wanted: &LogQuery,
    counts: bool,
    mut store: impl FnMut(&[u8]) -> Result<bool>,
) -> Result<Item> {
    let mut summary = LogSummary::default();
    let origin = journal::read(&node?, wanted, &mut |piece| {
        let is_kept = store(piece)?;
        if is_kept && counts {
            summary.add(piece);
        }
        Ok(is_kept)
    })?;
    Ok(summary.item(origin))
}

/// A result in the `manual` format, with the fields of each item in reading order.
pub fn text(item: &Item) -> String {
    let mut out = format!(
        "name: {}\nstatus: {}\n",
        yaml::key_text(&item.name),
        yaml::key_text(&item.status)
    );
    if !item.details.is_empty() {
        out += &format!(
            "details:\n{}",
            indented(&yaml::write(&json!(item.details)), "  ")
        );
    }
    if !item.items.is_empty() {
        out += "items:\n";
    }
    for child in &item.items {
        out += &indented(&text(child), "- ");
    }
    out
}

/// Text whose first line begins with `first`, and the others with blanks.
fn indented(text: &str, first: &str) -> String {
    let line = |(number, line)| format!("{}{line}\n", if number == 0 { first } else { "  " });
    text.lines().enumerate().map(line).collect()
}

/// Streams the log into a file; returns a summary.
fn write(
    node: Result<NodeFiles>,
    wanted: &LogQuery,
    form: &LogFormat,
    path: &Path,
) -> Result<Item> {
    let mut file = BufWriter::new(NewFile::create(path, 0o666).at("cannot write", path)?);
    // Logs shrink to a tenth at any level; the fastest one saves the node's CPU.
    let mut gzip = form
        .gzip
        .then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let mut bytes_left = form.max_size.unwrap_or(u64::MAX);
    let mut truncated = false;
    let mut summary = summarise(node, wanted, form.summary, |piece| {
        truncated = piece.len() as u64 > bytes_left;
        if truncated {
            return Ok(false);
        }
        bytes_left -= piece.len() as u64;
        let written = match &mut gzip {
            Some(gzip) => gzip
                .write_all(piece)
                .and_then(|()| file.write_all(&std::mem::take(gzip.get_mut()))),
            None => file.write_all(piece),
        };
        written.at("cannot write", path).map(|()| true)
    })?;
    let rest = gzip
        .map(GzEncoder::finish)
        .transpose()
        .at("cannot write", path)?
        .unwrap_or_default();
    let file = file.write_all(&rest).and_then(|()| Ok(file.into_inner()?));
    file.and_then(|file| file.commit(true))
        .at("cannot write", path)?;
    if truncated {
        log::warn!("the log is longer than --max-size and was cut; the newest entries are missing");
        summary = summary.with("truncated", true);
    }
    Ok(summary)
}

/// Parses `500M`, `2Gi`, `1000000` as bytes, with powers of 1024.
pub fn size(text: &str) -> Option<u64> {
    let (amount, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let unit = unit.trim_end_matches(['i', 'B']);
    let power = ["", "K", "M", "G", "T"]
        .iter()
        .position(|known| known.eq_ignore_ascii_case(unit))?;
    amount.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

/// Problems: name, meaning, remedy, a link to more, which may be empty, and the lower-case words
/// that indicate one in a message of any case. Each event logs exactly one line with them, so that
/// events are counted. An item fails if its problem occurred at all; errors of units are counted
/// but not judged, since many units log harmless errors.
const PROBLEMS: &[(&str, &str, &str, &str, &[&str])] = &[
    (
        "oom-kill",
        "a process was killed for lack of memory",
        "raise the memory limit of the pod that was killed, or move work off the node",
        "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        &["out of memory: kill"],
    ),
    (
        "disk-error",
        "a disk or its file system is failing",
        "back the disk up and replace it; `smartctl -a` says how bad it is",
        "",
        &[
            "i/o error",
            "critical medium error",
            "unrecovered read error",
            "ext4-fs error",
            "metadata corruption detected",
            "btrfs error",
            "btrfs critical",
            "timeout, aborting",
            "timeout, reset controller",
        ],
    ),
    (
        "read-only-remount",
        "a file system was made read-only after an error",
        "find the disk error before it in the log, check the file system with `fsck`, then \
         restart the node",
        "",
        &[
            "remounting filesystem read-only",
            "forced shutdown of filesystem",
            "forced readonly",
        ],
    ),
    (
        "disk-full",
        "there was no space left to write",
        "free space on the file system that is full, or enlarge it",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",
        &["no space left on device", "disk quota exceeded"],
    ),
    (
        "hardware-error",
        "processor or memory reports errors",
        "drain the node and have its memory and processor tested",
        "",
        &[
            "[hardware error]: machine check",
            "machine check events logged",
            "edac mc",
        ],
    ),
    (
        "kernel-fault",
        "the kernel faulted or was stuck",
        "update the kernel; the trace in the node's log names the driver",
        "https://docs.kernel.org/admin-guide/bug-hunting.html",
        &[
            "kernel panic - not syncing",
            "bug: unable to handle",
            "bug: kernel null pointer",
            "general protection fault",
            "soft lockup - cpu",
            "hard lockup on cpu",
            "detected stalls on cpu",
            "self-detected stall on cpu",
        ],
    ),
    (
        "hung-task",
        "a task waited for minutes, mostly for a disk",
        "look at the disks and network file systems that the tasks wait for",
        "",
        &["blocked for more than"],
    ),
    (
        "link-flap",
        "a network link went away",
        "check cable, switch port and driver of the interface",
        "",
        &["link is down", "lost carrier", "link becomes down"],
    ),
    (
        "conntrack-full",
        "connections were dropped because too many were open",
        "raise `net.netfilter.nf_conntrack_max`, or find what opens so many connections",
        "https://docs.kernel.org/networking/nf_conntrack-sysctl.html",
        &["nf_conntrack: table full"],
    ),
    (
        "kubelet-restart",
        "the kubelet ended and was started again",
        "look at what the kubelet logged last before it ended",
        "https://kubernetes.io/docs/tasks/debug/debug-cluster/",
        &[
            "kubelet.service: scheduled restart job",
            "k3s.service: scheduled restart job",
        ],
    ),
    (
        "runtime-restart",
        "the container runtime ended and was started again",
        "look at what the container runtime logged last before it ended",
        "https://kubernetes.io/docs/tasks/debug/debug-cluster/",
        &[
            "containerd.service: scheduled restart job",
            "crio.service: scheduled restart job",
            "docker.service: scheduled restart job",
        ],
    ),
    (
        "runtime-unhealthy",
        "the kubelet found the runtime not ready",
        "look at the container runtime's log and the load of the node",
        "https://kubernetes.io/docs/tasks/debug/debug-cluster/",
        &[
            "pleg is not healthy",
            "container runtime is down",
            "container runtime network not ready",
        ],
    ),
    (
        "eviction",
        "the kubelet ran short of something and evicted pods",
        "give the node more of what it ran short of, or set requests that say what pods need",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",
        &[
            "eviction manager: attempting to reclaim",
            "eviction manager: must evict pod",
        ],
    ),
    (
        "clock-step",
        "the clock was set in a jump",
        "let one time service keep the clock, and find out why it was off",
        "",
        &[
            "time has been changed",
            "clock was stepped",
            "time jump detected",
        ],
    ),
];

/// The priorities of syslog, from number 0.
const PRIORITIES: [&str; 8] = [
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
];

/// Least severe priority that counts as an error.
const ERROR: usize = 3;

/// Maximum units listed individually.
const MAX_UNITS: usize = 200;

/// Maximum length of an example.
const EXAMPLE: usize = 300;

/// Counts, updated with every piece of a log.
#[derive(Default)]
struct LogSummary {
    /// By the number of the problem.
    seen: [Occurrences; PROBLEMS.len()],
    units: BTreeMap<String, Occurrences>,
    /// Number of entries per priority.
    priorities: [u64; PRIORITIES.len()],
    entries: u64,
    unreadable: u64,
    /// Whether the next piece continues an entry.
    continues: bool,
}

#[derive(Default)]
struct Occurrences {
    count: u64,
    first: Option<String>,
    last: Option<String>,
    example: String,
}

impl Occurrences {
    fn add(&mut self, message: &str, time: Option<&str>) {
        self.count += 1;
        if self.count == 1 {
            let visible = message
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c });
            self.example = visible.take(EXAMPLE).collect();
            self.first = time.map(str::to_owned);
        }
        self.last = time.map(str::to_owned);
    }
}

impl LogSummary {
    /// Counts the entry that a piece of the log begins, by the piece alone.
    fn add(&mut self, piece: &[u8]) {
        let continues = std::mem::replace(&mut self.continues, !piece.ends_with(b"\n"));
        if continues || piece == b"\n" {
            return;
        }
        self.entries += 1;
        let Ok(entry) = serde_json::from_slice::<Map<String, Value>>(piece) else {
            self.unreadable += 1;
            return;
        };
        // A message that is not text is an array of bytes.
        let field = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let message = field("MESSAGE");
        let time = time(field("__REALTIME_TIMESTAMP"));
        let lower = message.to_ascii_lowercase();
        for ((.., words), seen) in PROBLEMS.iter().zip(&mut self.seen) {
            if words.iter().any(|word| lower.contains(word)) {
                seen.add(message, time.as_deref());
            }
        }
        let priority = field("PRIORITY").parse().unwrap_or(usize::MAX);
        if let Some(count) = self.priorities.get_mut(priority) {
            *count += 1;
        }
        if priority <= ERROR {
            let names = [
                field("_SYSTEMD_UNIT"),
                field("SYSLOG_IDENTIFIER"),
                "unnamed",
            ];
            let name = names
                .into_iter()
                .find(|name| !name.is_empty())
                .unwrap_or_default();
            // Any process can choose its identifier, so their number is unbounded.
            let is_listed = self.units.len() < MAX_UNITS || self.units.contains_key(name);
            let name = if is_listed { name } else { "others" };
            self.units
                .entry(name.to_owned())
                .or_default()
                .add(message, time.as_deref());
        }
    }

    /// The result: one item for each kind of trouble, one for each unit that logged errors.
    fn item(self, origin: &str) -> Item {
        let mut status = PASSED;
        let mut troubles = Vec::new();
        for ((name, meaning, remedy, link, _), seen) in PROBLEMS.iter().zip(self.seen) {
            let mut item = Item::new(*name, PASSED).with("count", seen.count);
            if seen.count > 0 {
                status = FAILED;
                item.status = status.into();
                // The cause is derived from what failures have in common.
                item = item.with(FAILURE, format!("{meaning}\n{}", seen.example));
                item = item.with(REMEDY, *remedy);
                let link = (!link.is_empty()).then(|| (*link).to_owned());
                let texts = [("first", seen.first), ("last", seen.last), (LINK, link)];
                let texts = texts
                    .into_iter()
                    .filter_map(|(key, text)| Some((key.to_owned(), text?.into())));
                item.details.extend(texts);
            }
            troubles.push(item);
        }
        let units: Vec<Item> = self
            .units
            .into_iter()
            .map(|(name, unit)| {
                Item::new(name, PASSED)
                    .with("errors", unit.count)
                    .with("example", unit.example)
            })
            .collect();
        let counts: Value = PRIORITIES
            .iter()
            .zip(self.priorities)
            .filter(|(_, count)| *count > 0)
            .map(|(priority, count)| (*priority, count))
            .collect();
        let mut all = Item::new("log-summary", status)
            .with("entries", self.entries)
            .with("priorities", counts)
            .with("origin", origin);
        if self.unreadable > 0 {
            all = all.with("unreadable", self.unreadable);
        }
        all.items.push(Item {
            items: troubles,
            ..Item::new("trouble", status)
        });
        if !units.is_empty() {
            all.items.push(Item {
                items: units,
                ..Item::new("units-with-errors", PASSED)
            });
        }
        all
    }
}

/// The result without any log.
pub fn no_log(error: &anyhow::Error) -> Item {
    let why = format!("{error:#}");
    let remedy = super::remedy(&why);
    Item::new("log-summary", FAILED)
        .with("error", why)
        .with(REMEDY, remedy)
}

/// Formats microseconds since 1970 as RFC 3339.
fn time(micros: &str) -> Option<String> {
    let span = Duration::from_micros(micros.parse().ok()?);
    Some(clock::rfc3339(UNIX_EPOCH.checked_add(span)?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::path::PathBuf;

    use super::super::node::tests::Scratch;
    use super::*;

    fn wanted() -> LogQuery {
        LogQuery {
            since: "60".into(),
            units: Vec::new(),
            priority: None,
        }
    }

    fn logs() -> (Scratch, Scratch, Outbox, NodeFiles) {
        let text = "eth0: Link is Down\n".repeat(5_000);
        let (scratch, node) = Scratch::node(&[("var/log/messages", &text)]);
        let out = Scratch::new();
        let outbox = Outbox::open(&out.0).unwrap();
        (scratch, out, outbox, node)
    }

    fn done(outbox: &Outbox) -> PathBuf {
        fs::read_to_string(outbox.path("done")).unwrap().into()
    }

    #[test]
    fn plain_log_is_one_file() {
        let (_node, _out, outbox, node) = logs();
        keep(Ok(node), &wanted(), &LogFormat::default(), &outbox).unwrap();
        assert_eq!(done(&outbox), outbox.path("systemd_logs"));
        assert_eq!(
            fs::read_to_string(done(&outbox)).unwrap().lines().count(),
            5_001
        );
    }

    #[test]
    fn compressed_log_with_summary_is_a_folder() {
        let (_node, _out, outbox, node) = logs();
        let form = LogFormat {
            gzip: true,
            summary: true,
            max_size: Some(100_000),
        };
        keep(Ok(node), &wanted(), &form, &outbox).unwrap();
        let folder = done(&outbox);
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(folder.join("systemd_logs.gz")).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert!(
            text.len() <= 100_000 && text.len() > 99_000 && text.ends_with("}\n"),
            "{} bytes",
            text.len()
        );
        let summary: Item = serde_json::from_value(
            yaml::parse(&fs::read_to_string(folder.join(LOG_SUMMARY)).unwrap()).unwrap(),
        )
        .unwrap();
        assert_eq!(
            (summary.status.as_str(), &summary.details["truncated"]),
            ("failed", &json!(true))
        );
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            2,
            "nothing partial stays"
        );
    }

    #[test]
    fn missing_log_is_an_error_result() {
        for form in [
            LogFormat::default(),
            LogFormat {
                summary: true,
                ..LogFormat::default()
            },
        ] {
            let (_scratch, node) = Scratch::node(&[]);
            let out = Scratch::new();
            let outbox = Outbox::open(&out.0).unwrap();
            assert!(keep(Ok(node), &wanted(), &form, &outbox).is_err());
            let place = if form.summary {
                done(&outbox).join(LOG_SUMMARY)
            } else {
                done(&outbox)
            };
            assert!(
                fs::read_to_string(place)
                    .unwrap()
                    .contains("no log is available")
            );
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("5", Some(5)),
            ("2K", Some(2_048)),
            ("3Mi", Some(3 << 20)),
            ("1GB", Some(1 << 30)),
            ("x", None),
            ("5Q", None),
            ("99999999999T", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }

    fn summary(log: impl Read) -> Item {
        let mut summary = LogSummary::default();
        let add = |piece: &[u8]| {
            summary.add(piece);
            Ok(true)
        };
        journal::pieces(log, journal::MAX_ENTRY_BYTES, add).unwrap();
        summary.item("a test")
    }

    fn trouble<'a>(item: &'a Item, name: &str) -> &'a Item {
        item.items[0]
            .items
            .iter()
            .find(|trouble| trouble.name == name)
            .unwrap()
    }

    fn check(message: &str, expected: &[&str]) {
        let item = summary(format!("{}\n", json!({ "MESSAGE": message })).as_bytes());
        let found = item.items[0]
            .items
            .iter()
            .filter(|trouble| trouble.status == FAILED);
        assert_eq!(
            found
                .map(|trouble| trouble.name.as_str())
                .collect::<Vec<_>>(),
            expected,
            "{message}"
        );
    }

    #[test]
    fn problems_are_recognized_by_their_words() {
        check(
            "Out of memory: Killed process 123 (java) total-vm:1kB",
            &["oom-kill"],
        );
        check(
            "blk_update_request: I/O error, dev sda, sector 5",
            &["disk-error"],
        );
        check(
            "EXT4-fs (sda1): Remounting filesystem read-only",
            &["read-only-remount"],
        );
        check("eth0: Link is Down", &["link-flap"]);
        check(
            "kubelet.service: Scheduled restart job, restart counter is at 4.",
            &["kubelet-restart"],
        );
        check(
            "containerd.service: Scheduled restart job, restart counter is at 1.",
            &["runtime-restart"],
        );
        check(
            "INFO: task jbd2:1 blocked for more than 120 seconds.",
            &["hung-task"],
        );
        check(
            "nf_conntrack: nf_conntrack: table full, dropping packet",
            &["conntrack-full"],
        );
        check("Started Session 4 of user root.", &[]);
        check("eth0: Link is Up - 1Gbps", &[]);
    }

    #[test]
    fn entries_may_be_split_anywhere() {
        let line = r#"{"MESSAGE":"x: I/O error","PRIORITY":"3","_SYSTEMD_UNIT":"a.service","__REALTIME_TIMESTAMP":"1795226400000000"}"#;
        let text =
            format!("{line}\n{line}\nbroken\n{{\"MESSAGE\":[1,2],\"PRIORITY\":\"2\"}}\n{line}");
        let whole = summary(text.as_bytes());
        for cut in (0..text.len()).step_by(7) {
            let (first, second) = text.as_bytes().split_at(cut);
            assert_eq!(summary(first.chain(second)), whole, "cut at {cut}");
        }
        assert_eq!(
            (&whole.details["entries"], &whole.details["unreadable"]),
            (&json!(5), &json!(1))
        );
        assert_eq!(whole.details["priorities"], json!({"crit": 1, "err": 3}));
        let disk = trouble(&whole, "disk-error");
        assert_eq!(
            (&disk.details["count"], &disk.details["last"]),
            (&json!(3), &json!("2026-11-21T02:00:00.000Z"))
        );
        assert_eq!(
            disk.details[FAILURE],
            json!("a disk or its file system is failing\nx: I/O error")
        );
        assert!(disk.details[REMEDY].as_str().unwrap().contains("smartctl"));
        let units: Vec<_> = whole.items[1]
            .items
            .iter()
            .map(|unit| (unit.name.as_str(), &unit.details["errors"]))
            .collect();
        assert_eq!(units, [("a.service", &json!(3)), ("unnamed", &json!(1))]);
        assert_eq!(whole.status, FAILED);
    }

    #[test]
    fn endless_lines_and_endless_names_stay_bounded() {
        let endless = [b'x'; 64 << 10].repeat(64);
        let pieces = |piece: &[u8]| {
            assert!(piece.len() as u64 <= journal::MAX_ENTRY_BYTES);
            Ok(true)
        };
        journal::pieces(&*endless, journal::MAX_ENTRY_BYTES, pieces).unwrap();
        let whole = summary(&*endless);
        assert_eq!(
            (&whole.details["entries"], &whole.details["unreadable"]),
            (&json!(1), &json!(1))
        );
        let mut summary = LogSummary::default();
        for name in 0..1_000 {
            summary.add(
                format!("{{\"PRIORITY\":\"1\",\"SYSLOG_IDENTIFIER\":\"n{name}\"}}\n").as_bytes(),
            );
        }
        assert!(summary.units.len() <= MAX_UNITS + 1);
    }
}
