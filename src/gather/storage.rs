//! Block devices, their partitions, udev's links to them, and mounted file systems with their free
//! space. Starts a thread for each network file system, since it may never answer; a thread that
//! hangs is abandoned and the mount reports it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde_json::Value;

use super::NodeFiles;
use base::json::{json, list};

/// Kinds of links by device name, as in `/dev/disk`.
type Links = BTreeMap<&'static str, BTreeMap<String, Vec<String>>>;

/// Bytes per sector in the sizes that the kernel reports, independent of the device's sector size.
const SECTOR: u64 = 512;

/// Facts that are the text of a file of a device.
const TEXTS: &[(&str, &str)] = &[
    ("vendor", "device/vendor"),
    ("model", "device/model"),
    ("sas_address", "device/sas_address"),
    ("sas_device_handle", "device/sas_device_handle"),
    ("removable", "removable"),
    ("support_discard", "queue/discard_granularity"),
    ("rotational", "queue/rotational"),
];

/// Timeout for the server of a network file system.
const STAT_TIMEOUT: Duration = Duration::from_millis(200);

/// Network file systems, whose server may be unreachable.
const REMOTE: &[&str] = &[
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "ceph",
    "glusterfs",
    "9p",
    "lustre",
    "afs",
    "gpfs",
    "beegfs",
    "virtiofs",
];

type Sizes = BTreeMap<&'static str, u64>;

pub(super) fn devices(node: &NodeFiles) -> Value {
    let links = links(node);
    let devices: BTreeMap<_, _> = node
        .list("/sys/block")
        .into_iter()
        .map(|name| (name.clone(), device(node, &name, &links)))
        .collect();
    if devices.is_empty() {
        return Value::Null;
    }
    json!({ "ansible_devices": devices, "ansible_device_links": links })
}

fn links(node: &NodeFiles) -> Links {
    let mut all = Links::new();
    for (kind, folder) in [
        ("ids", "by-id"),
        ("uuids", "by-uuid"),
        ("labels", "by-label"),
    ] {
        let links = all.entry(kind).or_default();
        for name in node.list(&format!("/dev/disk/{folder}")) {
            if let Some(device) = node.link_name(&format!("/dev/disk/{folder}/{name}")) {
                links.entry(device).or_default().push(name);
            }
        }
    }
    let masters = all.entry("masters").or_default();
    for block in node.list("/sys/block") {
        for slave in node.list(&format!("/sys/block/{block}/slaves")) {
            masters.entry(slave).or_default().push(block.clone());
        }
    }
    all
}

fn device(node: &NodeFiles, name: &str, links: &Links) -> Value {
    let folder = format!("/sys/block/{name}");
    let read = |file: &str| node.text(&format!("{folder}/{file}"));
    let mut partitions = BTreeMap::new();
    let is_partition = |entry: &String| node.exists(&format!("{folder}/{entry}/partition"));
    for part in node.list(&folder).into_iter().filter(is_partition) {
        let mut value = volume(node, &format!("{folder}/{part}"), &part, links);
        value["start"] = read(&format!("{part}/start")).map_or(json!(0), Value::from);
        value["uuid"] = json!(links["uuids"].get(&part).and_then(|all| all.last()));
        partitions.insert(part, value);
    }
    let mut device = volume(node, &folder, name, links);
    device["virtual"] = 1.into();
    device["host"] = "".into();
    device["scheduler_mode"] = node
        .chosen(&format!("{folder}/queue/scheduler"))
        .unwrap_or_default()
        .into();
    device["partitions"] = json!(partitions);
    for (key, file) in TEXTS {
        device[key] = read(file).into();
    }
    if let Some(serial) = read("device/serial") {
        device["serial"] = serial.into();
    }
    let mut ids = links["ids"].get(name).into_iter().flatten().rev();
    if let Some(wwn) = ids.find_map(|id| id.strip_prefix("wwn-")) {
        device["wwn"] = wwn.into();
    }
    device
}

/// The facts that devices and partitions share.
fn volume(node: &NodeFiles, folder: &str, name: &str, links: &Links) -> Value {
    let bytes = node
        .number(&format!("{folder}/size"))
        .unwrap_or(0)
        .saturating_mul(SECTOR);
    // A string as the kernel reports it, else a number, as in Ansible.
    let size = node.first(
        ["logical_block_size", "hw_sector_size"].map(|file| format!("{folder}/queue/{file}")),
    );
    let sector = size
        .as_ref()
        .and_then(|text| text.parse().ok())
        .filter(|size| *size > 0)
        .unwrap_or(SECTOR);
    let device_links = links
        .iter()
        .map(|(kind, known)| (kind, known.get(name).cloned().unwrap_or_default()));
    let holders = node
        .list(&format!("{folder}/holders"))
        .into_iter()
        .filter(|name| name.starts_with("dm-"));
    let holders = holders.map(|name| {
        node.text(&format!("{folder}/holders/{name}/dm/name"))
            .unwrap_or(name)
    });
    json!({
        "links": device_links.collect::<BTreeMap<_, _>>(),
        "sectorsize": size.map_or(json!(SECTOR), Value::from),
        "size": human(bytes),
        "sectors": bytes / sector,
        "holders": list(holders),
    })
}

/// `256.00 GB`, in powers of 1024.
fn human(bytes: u64) -> String {
    let power = bytes.max(1).ilog2() / 10;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let amount = bytes as f64 / (1_u64 << (10 * power)) as f64;
    format!(
        "{amount:.2} {}",
        ["Bytes", "KB", "MB", "GB", "TB", "PB", "EB"][power as usize]
    )
}

pub(super) fn mounts(node: &NodeFiles) -> Value {
    // A container's own mounts are not the node's; those of the first process are.
    let Some(table) = node.first(["/proc/1/mounts", "/proc/self/mounts", "/etc/mtab"]) else {
        return Value::Null;
    };
    let bound = bind_mounts(&node.text("/proc/1/mountinfo").unwrap_or_default());
    json!({ "ansible_mounts": list(table.lines().filter_map(|line| mount(node, line, &bound))) })
}

fn mount(node: &NodeFiles, line: &str, bound: &[String]) -> Option<Value> {
    let words: Vec<String> = line.split_whitespace().map(unescape).collect();
    let [device, mount, fstype, options, rest @ ..] = &words[..] else {
        return None;
    };
    let on_a_device = device.starts_with(['/', '\\']) || device.contains(":/");
    if !on_a_device || fstype == "none" {
        return None;
    }
    let is_told = options.split(',').any(|option| option == "bind");
    let bind = if bound.contains(mount) && !is_told {
        ",bind"
    } else {
        ""
    };
    let number = |index: usize| {
        rest.get(index)
            .and_then(|word| word.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let mut facts = json!({
        "mount": mount, "device": device, "fstype": fstype, "options": options.clone() + bind,
        "uuid": uuid(node, device).unwrap_or_else(|| "N/A".into()),
        "dump": number(0), "passno": number(1),
    });
    match node
        .resolve(mount, true)
        .map_or(Some(Sizes::new()), |path| room(&path, fstype))
    {
        Some(sizes) => sizes
            .into_iter()
            .for_each(|(name, size)| facts[name] = size.into()),
        None => facts["note"] = "Could not get extra information due to timeout".into(),
    }
    Some(facts)
}

/// The sizes of a mount, empty if they are unknown; `None` after a timeout.
fn room(path: &Path, fstype: &str) -> Option<Sizes> {
    if !REMOTE.iter().any(|kind| fstype.starts_with(kind)) {
        return Some(sizes(path).unwrap_or_default());
    }
    let (tell, answer) = sync_channel(1);
    let path = path.to_owned();
    base::thread("mount")
        .spawn(move || tell.send(sizes(&path).unwrap_or_default()))
        .ok()?;
    answer.recv_timeout(STAT_TIMEOUT).ok()
}

/// Sizes in bytes, blocks and inodes.
pub(super) fn sizes(path: &Path) -> Option<Sizes> {
    let statistics = rustix::fs::statvfs(path).ok()?;
    Some(Sizes::from([
        ("size_total", statistics.f_frsize * statistics.f_blocks),
        ("size_available", statistics.f_frsize * statistics.f_bavail),
        ("block_size", statistics.f_bsize),
        ("block_total", statistics.f_blocks),
        ("block_available", statistics.f_bavail),
        (
            "block_used",
            statistics.f_blocks.saturating_sub(statistics.f_bavail),
        ),
        ("inode_total", statistics.f_files),
        ("inode_available", statistics.f_favail),
        (
            "inode_used",
            statistics.f_files.saturating_sub(statistics.f_favail),
        ),
    ]))
}

/// Mount points of a folder of a file system instead of its root.
fn bind_mounts(mountinfo: &str) -> Vec<String> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (root, point) = (words.get(3)?, words.get(4)?);
            let source = words.iter().skip_while(|word| **word != "-").nth(2)?;
            (*root != "/" && source.starts_with('/')).then(|| unescape(point))
        })
        .collect()
}

fn uuid(node: &NodeFiles, device: &str) -> Option<String> {
    // A mapped device is mounted by its name but linked by its number.
    let names = [
        device.rsplit('/').next().map(str::to_owned),
        node.link_name(device),
    ];
    let leads_here = |uuid: &String| {
        let target = node.link_name(&format!("/dev/disk/by-uuid/{uuid}"));
        target.is_some() && names.contains(&target)
    };
    node.list("/dev/disk/by-uuid").into_iter().find(leads_here)
}

/// Decodes what mount tables escape.
fn unescape(word: &str) -> String {
    let escapes = [
        (r"\040", " "),
        (r"\011", "\t"),
        (r"\012", "\n"),
        (r"\043", "#"),
        (r"\134", r"\"),
    ];
    escapes.iter().fold(word.to_owned(), |word, (code, text)| {
        word.replace(code, text)
    })
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn partitions_sizes_and_links() {
        let files = [
            ("sys/block/sda/size", "536870912\n"),
            (
                "sys/block/sda/queue/scheduler",
                "none [mq-deadline] kyber\n",
            ),
            ("sys/block/sda/sda1/partition", "1\n"),
            ("sys/block/sda/sda1/size", "2048\n"),
            ("sys/block/sda/sda1/start", "2048\n"),
            ("sys/block/sda/sdaq/size", "1\n"),
        ];
        let (scratch, node) = Scratch::node(&files);
        std::fs::create_dir_all(scratch.0.join("dev/disk/by-uuid")).unwrap();
        std::os::unix::fs::symlink("../../sda1", scratch.0.join("dev/disk/by-uuid/AB-CD")).unwrap();
        let facts = devices(&node);
        let sda = &facts["ansible_devices"]["sda"];
        assert_eq!(
            (&sda["size"], &sda["scheduler_mode"]),
            (&json!("256.00 GB"), &json!("mq-deadline"))
        );
        assert_eq!(sda["partitions"].as_object().unwrap().len(), 1);
        assert_eq!(sda["partitions"]["sda1"]["uuid"], "AB-CD");
        assert_eq!(sda["partitions"]["sda1"]["size"], "1.00 MB");
        assert_eq!(
            facts["ansible_device_links"]["uuids"]["sda1"],
            json!(["AB-CD"])
        );
    }

    #[test]
    fn sizes_in_words() {
        for (sectors, expected) in [
            (0, "0.00 Bytes"),
            (1, "512.00 Bytes"),
            (3, "1.50 KB"),
            (u64::MAX / 1024, "8.00 EB"),
        ] {
            assert_eq!(human(sectors * SECTOR), expected);
        }
    }

    #[test]
    fn only_device_mounts_are_listed() {
        let table = "proc /proc proc rw 0 0\n/dev/sda1 / ext4 rw,relatime 0 1\n/dev/sda1 \
                     /mnt/with\\040blank ext4 rw 0 0\nserver:/share /absent nfs4 rw 0 0\nbroken \
                     line\n";
        let info = "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 29 8:1 /srv /mnt/with\\040blank rw \
                    shared:1 - ext4 /dev/sda1 rw\n";
        let (_scratch, node) =
            Scratch::node(&[("proc/1/mounts", table), ("proc/1/mountinfo", info)]);
        let found = mounts(&node)["ansible_mounts"].as_array().unwrap().clone();
        let points: Vec<&Value> = found.iter().map(|mount| &mount["mount"]).collect();
        assert_eq!(points, ["/", "/mnt/with blank", "/absent"]);
        assert_eq!(
            (&found[0]["passno"], &found[0]["options"]),
            (&json!(1), &json!("rw,relatime"))
        );
        assert_eq!(found[1]["options"], "rw,bind");
        assert!(
            found[0]["size_total"].as_u64().unwrap() > 0,
            "the root is really there"
        );
        assert!(found[2].get("size_total").is_none());
    }
}
