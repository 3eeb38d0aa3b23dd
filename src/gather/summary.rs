//! Counts problems of a node while its log streams by.
//!
//! Owns the words that indicate problems. An item fails if its problem occurred at all; errors of units are counted but not
//! judged, since many units log harmless errors. Starts no thread.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value};

use crate::item::{self, Item};
use base::clock;
use base::json::json;

/// A kind of problem: its name, its meaning, its remedy, a link to more, which may be empty, and the lower-case words that
/// indicate it in a message of any case. Each event logs exactly one line with them, so that events are counted.
type Problem = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const PROBLEMS: &[Problem] = &[
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
        "find the disk error before it in the log, check the file system with `fsck`, then restart the node",
        "",
        &["remounting filesystem read-only", "forced shutdown of filesystem", "forced readonly"],
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
        &["[hardware error]: machine check", "machine check events logged", "edac mc"],
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
        &["kubelet.service: scheduled restart job", "k3s.service: scheduled restart job"],
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
        &["pleg is not healthy", "container runtime is down", "container runtime network not ready"],
    ),
    (
        "eviction",
        "the kubelet ran short of something and evicted pods",
        "give the node more of what it ran short of, or set requests that say what pods need",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",
        &["eviction manager: attempting to reclaim", "eviction manager: must evict pod"],
    ),
    (
        "clock-step",
        "the clock was set in a jump",
        "let one time service keep the clock, and find out why it was off",
        "",
        &["time has been changed", "clock was stepped", "time jump detected"],
    ),
];

/// The priorities of syslog, from number 0.
const PRIORITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Least severe priority that counts as an error.
const ERROR: usize = 3;

/// Maximum units listed individually.
const MAX_UNITS: usize = 200;

/// Maximum length of an example.
const EXAMPLE: usize = 300;

/// Counts, updated with every piece of a log.
#[derive(Default)]
pub(crate) struct LogSummary {
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
    fn add(&mut self, message: &str) {
        self.count += 1;
        if self.count == 1 {
            let visible = message.chars().map(|c| if c.is_control() { ' ' } else { c });
            self.example = visible.take(EXAMPLE).collect();
        }
    }
}

impl LogSummary {
    /// Counts the entry that a piece of the log begins, by the piece alone.
    pub(crate) fn add(&mut self, piece: &[u8]) {
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
        let lower = message.to_ascii_lowercase();
        for ((.., words), seen) in PROBLEMS.iter().zip(&mut self.seen) {
            if words.iter().any(|word| lower.contains(word)) {
                let time = time(field("__REALTIME_TIMESTAMP"));
                seen.add(message);
                if seen.count == 1 {
                    seen.first.clone_from(&time);
                }
                seen.last = time.or(seen.last.take());
            }
        }
        let priority = field("PRIORITY").parse().unwrap_or(usize::MAX);
        if let Some(count) = self.priorities.get_mut(priority) {
            *count += 1;
        }
        if priority <= ERROR {
            let names = [field("_SYSTEMD_UNIT"), field("SYSLOG_IDENTIFIER"), "unnamed"];
            let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
            // Any process can choose its identifier, so their number is unbounded.
            let is_listed = self.units.len() < MAX_UNITS || self.units.contains_key(name);
            let name = if is_listed { name } else { "others" };
            self.units.entry(name.to_owned()).or_default().add(message);
        }
    }

    /// The result: one item for each kind of trouble, one for each unit that logged errors.
    pub(crate) fn item(self, details: BTreeMap<String, Value>) -> Item {
        let troubles = PROBLEMS.iter().zip(&self.seen).map(|((name, meaning, remedy, link, _), seen)| {
            let item = Item::new(*name, item::PASSED).with("count", seen.count);
            if seen.count == 0 {
                return item;
            }
            let mut item = Item { status: item::FAILED.into(), ..item }
                // The cause is derived from what failures have in common.
                .with(item::FAILURE, format!("{meaning}\n{}", seen.example))
                .with(item::REMEDY, *remedy);
            let link = Some(*link).filter(|link| !link.is_empty());
            for (key, text) in
                [("first", seen.first.as_deref()), ("last", seen.last.as_deref()), (item::LINK, link)]
            {
                item.details.extend(text.map(|text| (key.to_owned(), text.into())));
            }
            item
        });
        let troubles: Vec<Item> = troubles.collect();
        let units = self.units.into_iter().map(|(name, unit)| {
            Item::new(name, item::PASSED).with("errors", unit.count).with("example", unit.example)
        });
        let units: Vec<Item> = units.collect();
        let failed = troubles.iter().any(|trouble| trouble.status == item::FAILED);
        let status = if failed { item::FAILED } else { item::PASSED };
        let counts = PRIORITIES.iter().zip(self.priorities).filter(|(_, count)| *count > 0);
        let counts: BTreeMap<_, _> = counts.collect();
        let mut all =
            Item::new("log-summary", status).with("entries", self.entries).with("priorities", json!(counts));
        all.details.extend(details);
        if self.unreadable > 0 {
            all = all.with("unreadable", self.unreadable);
        }
        all.items.push(Item { items: troubles, ..Item::new("trouble", status) });
        if !units.is_empty() {
            all.items.push(Item { items: units, ..Item::new("units-with-errors", item::PASSED) });
        }
        all
    }
}

/// The result without any log.
pub(crate) fn no_log(why: &str) -> Item {
    Item::new("log-summary", item::FAILED).with("error", why).with(item::REMEDY, super::remedy(why))
}

/// Formats microseconds since 1970 as RFC 3339.
fn time(micros: &str) -> Option<String> {
    let span = Duration::from_micros(micros.parse().ok()?);
    Some(clock::rfc3339(UNIX_EPOCH.checked_add(span)?))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::journal;
    use super::*;

    fn summary(log: impl Read) -> Item {
        let mut summary = LogSummary::default();
        let add = |piece: &[u8]| {
            summary.add(piece);
            Ok(true)
        };
        journal::pieces(log, journal::MAX_ENTRY_BYTES, add).unwrap();
        summary.item(BTreeMap::new())
    }

    fn trouble<'a>(item: &'a Item, name: &str) -> &'a Item {
        item.items[0].items.iter().find(|trouble| trouble.name == name).unwrap()
    }

    fn check(message: &str, expected: &[&str]) {
        let item = summary(format!("{}\n", json!({ "MESSAGE": message })).as_bytes());
        let found = item.items[0].items.iter().filter(|trouble| trouble.status == item::FAILED);
        assert_eq!(found.map(|trouble| trouble.name.as_str()).collect::<Vec<_>>(), expected, "{message}");
    }

    #[test]
    fn problems_are_recognized_by_their_words() {
        check("Out of memory: Killed process 123 (java) total-vm:1kB", &["oom-kill"]);
        check("blk_update_request: I/O error, dev sda, sector 5", &["disk-error"]);
        check("EXT4-fs (sda1): Remounting filesystem read-only", &["read-only-remount"]);
        check("eth0: Link is Down", &["link-flap"]);
        check("kubelet.service: Scheduled restart job, restart counter is at 4.", &["kubelet-restart"]);
        check("containerd.service: Scheduled restart job, restart counter is at 1.", &["runtime-restart"]);
        check("INFO: task jbd2:1 blocked for more than 120 seconds.", &["hung-task"]);
        check("nf_conntrack: nf_conntrack: table full, dropping packet", &["conntrack-full"]);
        check("Started Session 4 of user root.", &[]);
        check("eth0: Link is Up - 1Gbps", &[]);
    }

    #[test]
    fn entries_may_be_split_anywhere() {
        let line = r#"{"MESSAGE":"x: I/O error","PRIORITY":"3","_SYSTEMD_UNIT":"a.service","__REALTIME_TIMESTAMP":"1795226400000000"}"#;
        let text = format!("{line}\n{line}\nbroken\n{{\"MESSAGE\":[1,2],\"PRIORITY\":\"2\"}}\n{line}");
        let whole = summary(text.as_bytes());
        for cut in (0..text.len()).step_by(7) {
            let (first, second) = text.as_bytes().split_at(cut);
            assert_eq!(summary(first.chain(second)), whole, "cut at {cut}");
        }
        assert_eq!((&whole.details["entries"], &whole.details["unreadable"]), (&json!(5), &json!(1)));
        assert_eq!(whole.details["priorities"], json!({"crit": 1, "err": 3}));
        let disk = trouble(&whole, "disk-error");
        assert_eq!(
            (&disk.details["count"], &disk.details["last"]),
            (&json!(3), &json!("2026-11-21T02:00:00.000Z"))
        );
        assert_eq!(disk.details[item::FAILURE], json!("a disk or its file system is failing\nx: I/O error"));
        assert!(disk.details[item::REMEDY].as_str().unwrap().contains("smartctl"));
        let units: Vec<_> =
            whole.items[1].items.iter().map(|unit| (unit.name.as_str(), &unit.details["errors"])).collect();
        assert_eq!(units, [("a.service", &json!(3)), ("unnamed", &json!(1))]);
        assert_eq!(whole.status, item::FAILED);
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
        assert_eq!((&whole.details["entries"], &whole.details["unreadable"]), (&json!(1), &json!(1)));
        let mut summary = LogSummary::default();
        for name in 0..1_000 {
            summary.add(format!("{{\"PRIORITY\":\"1\",\"SYSLOG_IDENTIFIER\":\"n{name}\"}}\n").as_bytes());
        }
        assert!(summary.units.len() <= MAX_UNITS + 1);
    }
}
