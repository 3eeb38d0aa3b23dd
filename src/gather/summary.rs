//! Counts problems of a node while its log streams by.
//!
//! Owns the words that indicate problems. An item fails if its problem occurred at all; errors of units are counted but not
//! judged, since many units log harmless errors. Starts no thread.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use aho_corasick::AhoCorasick;
use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::causes;
use crate::item::{self, Item};
use base::clock;
use base::json::json;

/// One kind of problem.
struct Trouble {
    name: &'static str,
    meaning: &'static str,
    /// Remedy, with a pointer to further documentation.
    remedy: &'static str,
    link: Option<&'static str>,
    /// Words that indicate the problem, ignoring case. Each event logs exactly one line with them, so that events are
    /// counted.
    words: &'static [&'static str],
}

const TROUBLES: &[Trouble] = &[
    Trouble {
        name: "oom-kill",
        meaning: "a process was killed for lack of memory",
        remedy: "raise the memory limit of the pod that was killed, or move work off the node",
        link: Some("https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/"),
        words: &["out of memory: kill"],
    },
    Trouble {
        name: "disk-error",
        meaning: "a disk or its file system is failing",
        remedy: "back the disk up and replace it; `smartctl -a` says how bad it is",
        link: None,
        words: &[
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
    },
    Trouble {
        name: "read-only-remount",
        meaning: "a file system was made read-only after an error",
        remedy: "find the disk error before it in the log, check the file system with `fsck`, then restart the node",
        link: None,
        words: &["remounting filesystem read-only", "forced shutdown of filesystem", "forced readonly"],
    },
    Trouble {
        name: "disk-full",
        meaning: "there was no space left to write",
        remedy: "free space on the file system that is full, or enlarge it",
        link: Some("https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/"),
        words: &["no space left on device", "disk quota exceeded"],
    },
    Trouble {
        name: "hardware-error",
        meaning: "processor or memory reports errors",
        remedy: "drain the node and have its memory and processor tested",
        link: None,
        words: &["[hardware error]: machine check", "machine check events logged", "edac mc"],
    },
    Trouble {
        name: "kernel-fault",
        meaning: "the kernel faulted or was stuck",
        remedy: "update the kernel; the trace in the node's log names the driver",
        link: Some("https://docs.kernel.org/admin-guide/bug-hunting.html"),
        words: &[
            "kernel panic - not syncing",
            "bug: unable to handle",
            "bug: kernel null pointer",
            "general protection fault",
            "soft lockup - cpu",
            "hard lockup on cpu",
            "detected stalls on cpu",
            "self-detected stall on cpu",
        ],
    },
    Trouble {
        name: "hung-task",
        meaning: "a task waited for minutes, mostly for a disk",
        remedy: "look at the disks and network file systems that the tasks wait for",
        link: None,
        words: &["blocked for more than"],
    },
    Trouble {
        name: "link-flap",
        meaning: "a network link went away",
        remedy: "check cable, switch port and driver of the interface",
        link: None,
        words: &["link is down", "lost carrier", "link becomes down"],
    },
    Trouble {
        name: "conntrack-full",
        meaning: "connections were dropped because too many were open",
        remedy: "raise `net.netfilter.nf_conntrack_max`, or find what opens so many connections",
        link: Some("https://docs.kernel.org/networking/nf_conntrack-sysctl.html"),
        words: &["nf_conntrack: table full"],
    },
    Trouble {
        name: "kubelet-restart",
        meaning: "the kubelet ended and was started again",
        remedy: "look at what the kubelet logged last before it ended",
        link: Some("https://kubernetes.io/docs/tasks/debug/debug-cluster/"),
        words: &["kubelet.service: scheduled restart job", "k3s.service: scheduled restart job"],
    },
    Trouble {
        name: "runtime-restart",
        meaning: "the container runtime ended and was started again",
        remedy: "look at what the container runtime logged last before it ended",
        link: Some("https://kubernetes.io/docs/tasks/debug/debug-cluster/"),
        words: &[
            "containerd.service: scheduled restart job",
            "crio.service: scheduled restart job",
            "docker.service: scheduled restart job",
        ],
    },
    Trouble {
        name: "runtime-unhealthy",
        meaning: "the kubelet found the runtime not ready",
        remedy: "look at the container runtime's log and the load of the node",
        link: Some("https://kubernetes.io/docs/tasks/debug/debug-cluster/"),
        words: &["pleg is not healthy", "container runtime is down", "container runtime network not ready"],
    },
    Trouble {
        name: "eviction",
        meaning: "the kubelet ran short of something and evicted pods",
        remedy: "give the node more of what it ran short of, or set requests that say what pods need",
        link: Some("https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/"),
        words: &["eviction manager: attempting to reclaim", "eviction manager: must evict pod"],
    },
    Trouble {
        name: "clock-step",
        meaning: "the clock was set in a jump",
        remedy: "let one time service keep the clock, and find out why it was off",
        link: None,
        words: &["time has been changed", "clock was stepped", "time jump detected"],
    },
];

/// The priorities of syslog, and their form in journal entries.
const PRIORITIES: [(&str, &str); 8] = [
    ("emerg", r#""priority":"0""#),
    ("alert", r#""priority":"1""#),
    ("crit", r#""priority":"2""#),
    ("err", r#""priority":"3""#),
    ("warning", r#""priority":"4""#),
    ("notice", r#""priority":"5""#),
    ("info", r#""priority":"6""#),
    ("debug", r#""priority":"7""#),
];

/// Least severe priority that counts as an error.
const ERROR: usize = 3;

/// Maximum units listed individually.
const MAX_UNITS: usize = 200;

/// Maximum bytes examined of an entry.
const MAX_LINE_BYTES: usize = 256 << 10;

/// Maximum length of an example.
const EXAMPLE: usize = 300;

/// Counts, updated with every chunk of a log.
pub(crate) struct Summary {
    /// Matches words of problems, then priorities.
    words: AhoCorasick,
    /// The problem that each word indicates.
    troubles: Vec<usize>,
    seen: Vec<Seen>,
    units: BTreeMap<String, Unit>,
    /// Number of entries per priority.
    priorities: [u64; PRIORITIES.len()],
    entries: u64,
    unreadable: u64,
    carry: Vec<u8>,
}

#[derive(Clone, Default)]
struct Seen {
    count: u64,
    first: Option<String>,
    last: Option<String>,
    example: String,
}

#[derive(Default)]
struct Unit {
    errors: u64,
    example: String,
}

/// The relevant fields of a journal entry. A message that is not text is an array of bytes.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(rename = "MESSAGE", borrow, default)]
    message: Option<Text<'a>>,
    #[serde(rename = "PRIORITY", borrow, default)]
    priority: Option<Text<'a>>,
    #[serde(rename = "_SYSTEMD_UNIT", borrow, default)]
    unit: Option<Text<'a>>,
    #[serde(rename = "SYSLOG_IDENTIFIER", borrow, default)]
    identifier: Option<Text<'a>>,
    #[serde(rename = "__REALTIME_TIMESTAMP", borrow, default)]
    time: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text<'a> {
    Plain(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

impl Text<'_> {
    fn str(text: Option<&Text>) -> String {
        match text {
            Some(Text::Plain(text)) => text.clone().into_owned(),
            _ => String::new(),
        }
    }
}

impl Summary {
    /// An empty summary.
    pub(crate) fn new() -> Result<Self> {
        let words = TROUBLES.iter().enumerate();
        let words = words.flat_map(|(index, trouble)| trouble.words.iter().map(move |word| (index, *word)));
        let (troubles, words): (Vec<usize>, Vec<&str>) = words.unzip();
        let all = words.into_iter().chain(PRIORITIES.map(|(_, look)| look));
        let words =
            AhoCorasick::builder().ascii_case_insensitive(true).build(all).context("words are broken")?;
        let seen = vec![Seen::default(); TROUBLES.len()];
        Ok(Self {
            words,
            troubles,
            seen,
            units: BTreeMap::new(),
            priorities: [0; PRIORITIES.len()],
            entries: 0,
            unreadable: 0,
            carry: Vec::new(),
        })
    }

    /// Counts the entries in a chunk; an entry may continue in the next one.
    pub(crate) fn add(&mut self, mut chunk: &[u8]) {
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            if self.carry.is_empty() {
                self.line(&chunk[..end]);
            } else {
                self.keep(&chunk[..end]);
                let line = std::mem::take(&mut self.carry);
                self.line(&line);
            }
            chunk = &chunk[end + 1..];
        }
        self.keep(chunk);
    }

    fn keep(&mut self, part: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.carry.len());
        self.carry.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        self.entries += 1;
        let (mut priority, mut told) = (None, false);
        for found in self.words.find_iter(line) {
            match found.pattern().as_usize().checked_sub(self.troubles.len()) {
                Some(level) => priority = priority.or(Some(level)),
                None => told = true,
            }
        }
        if let Some(level) = priority {
            self.priorities[level] += 1;
        }
        // Parsing JSON is the most expensive part, and nearly all entries are irrelevant.
        let whole = line.first() == Some(&b'{') && line.last() == Some(&b'}');
        if whole && !told && priority.is_none_or(|level| level > ERROR) {
            return;
        }
        let Ok(entry) = serde_json::from_slice::<Entry>(line) else {
            self.unreadable += 1;
            return;
        };
        let message = Text::str(entry.message.as_ref());
        let told =
            self.words.find_iter(&*message).filter_map(|found| self.troubles.get(found.pattern().as_usize()));
        for index in told.copied().collect::<BTreeSet<usize>>() {
            let seen = &mut self.seen[index];
            let time = time(&Text::str(entry.time.as_ref()));
            seen.count += 1;
            if seen.count == 1 {
                seen.example = short(&message);
                seen.first.clone_from(&time);
            }
            seen.last = time.or(seen.last.take());
        }
        let priority = Text::str(entry.priority.as_ref()).parse::<usize>();
        if priority.is_ok_and(|priority| priority <= ERROR) {
            let unit = Text::str(entry.unit.as_ref());
            let name = if unit.is_empty() { Text::str(entry.identifier.as_ref()) } else { unit };
            let name = if name.is_empty() { "unnamed".to_owned() } else { name };
            // Any process can choose its identifier, so their number is unbounded.
            let name = if self.units.len() < MAX_UNITS || self.units.contains_key(&name) {
                name
            } else {
                "others".to_owned()
            };
            let unit = self.units.entry(name).or_default();
            unit.errors += 1;
            if unit.errors == 1 {
                unit.example = short(&message);
            }
        }
    }

    /// The result: one item for each kind of trouble, one for each unit that logged errors.
    pub(crate) fn item(mut self, details: BTreeMap<String, Value>) -> Item {
        let rest = std::mem::take(&mut self.carry);
        self.line(&rest);
        let patterns = TROUBLES.iter().zip(&self.seen).map(|(trouble, seen)| {
            let mut details = BTreeMap::from([("count".to_owned(), json!(seen.count))]);
            if seen.count > 0 {
                // The cause is derived from what failures have in common.
                let failure = format!("{}\n{}", trouble.meaning, seen.example);
                details.insert(item::FAILURE.into(), json!(failure));
                details.insert(item::REMEDY.into(), json!(trouble.remedy));
                details.extend(trouble.link.map(|link| (item::LINK.to_owned(), json!(link))));
                details.extend(seen.first.iter().map(|time| ("first".to_owned(), json!(time))));
                details.extend(seen.last.iter().map(|time| ("last".to_owned(), json!(time))));
            }
            leaf(trouble.name, if seen.count > 0 { item::FAILED } else { item::PASSED }, details)
        });
        let troubles: Vec<Item> = patterns.collect();
        let units = self.units.into_iter().map(|(name, unit)| {
            let details = BTreeMap::from([
                ("errors".to_owned(), json!(unit.errors)),
                ("example".to_owned(), json!(unit.example)),
            ]);
            leaf(&name, item::PASSED, details)
        });
        let units: Vec<Item> = units.collect();
        let failed = troubles.iter().any(|trouble| trouble.status == item::FAILED);
        let status = if failed { item::FAILED } else { item::PASSED };
        let mut all = details;
        all.insert("entries".into(), json!(self.entries));
        let counted = PRIORITIES.iter().zip(self.priorities).filter(|(_, count)| *count > 0);
        let counts = counted.map(|((name, _), count)| ((*name).to_owned(), json!(count)));
        all.insert("priorities".into(), Value::Object(counts.collect()));
        if self.unreadable > 0 {
            all.insert("unreadable".into(), json!(self.unreadable));
        }
        let mut items =
            vec![Item { name: "trouble".into(), status: status.into(), items: troubles, ..Item::default() }];
        if !units.is_empty() {
            items.push(Item {
                name: "units-with-errors".into(),
                status: item::PASSED.into(),
                items: units,
                ..Item::default()
            });
        }
        Item { name: "log-summary".into(), status: status.into(), details: all, items, ..Item::default() }
    }
}

/// The result without any log.
pub(crate) fn no_log(why: &str) -> Item {
    let remedy = causes::remedy(why).unwrap_or(
        "mount the root of the node's file system, and name it with `--chroot` or `CHROOT_DIR`, as the plugin does",
    );
    let details = [("error".to_owned(), json!(why)), (item::REMEDY.to_owned(), json!(remedy))];
    leaf("log-summary", item::FAILED, details.into())
}

fn leaf(name: &str, status: &str, details: BTreeMap<String, Value>) -> Item {
    Item { name: name.into(), status: status.into(), details, ..Item::default() }
}

/// Formats microseconds since 1970 as RFC 3339.
fn time(micros: &str) -> Option<String> {
    let span = Duration::from_micros(micros.parse().ok()?);
    Some(clock::rfc3339(UNIX_EPOCH.checked_add(span)?))
}

fn short(message: &str) -> String {
    message.chars().take(EXAMPLE).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(chunks: &[&str]) -> Item {
        let mut summary = Summary::new().unwrap();
        for chunk in chunks {
            summary.add(chunk.as_bytes());
        }
        summary.item(BTreeMap::new())
    }

    fn trouble<'a>(item: &'a Item, name: &str) -> &'a Item {
        item.items[0].items.iter().find(|trouble| trouble.name == name).unwrap()
    }

    fn check(message: &str, expected: &[&str]) {
        let item = summary(&[&format!("{}\n", json!({ "MESSAGE": message }))]);
        let found = item.items[0].items.iter().filter(|trouble| trouble.status == item::FAILED);
        assert_eq!(found.map(|trouble| trouble.name.as_str()).collect::<Vec<_>>(), expected, "{message}");
    }

    #[test]
    fn trouble_is_known_by_its_words() {
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
    fn entries_may_be_cut_anywhere() {
        let line = r#"{"MESSAGE":"x: I/O error","PRIORITY":"3","_SYSTEMD_UNIT":"a.service","__REALTIME_TIMESTAMP":"1795226400000000"}"#;
        let text = format!("{line}\n{line}\nbroken\n{{\"MESSAGE\":[1,2],\"PRIORITY\":\"2\"}}\n{line}");
        let whole = summary(&[&text]);
        for cut in (0..text.len()).step_by(7) {
            assert_eq!(summary(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
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
        let mut summary = Summary::new().unwrap();
        for _ in 0..64 {
            summary.add(&[b'x'; 64 << 10]);
        }
        assert!(summary.carry.len() <= MAX_LINE_BYTES);
        summary.add(b"\n");
        for name in 0..1_000 {
            summary.add(format!("{{\"PRIORITY\":\"1\",\"SYSLOG_IDENTIFIER\":\"n{name}\"}}\n").as_bytes());
        }
        assert!(summary.units.len() <= MAX_UNITS + 1);
    }
}
