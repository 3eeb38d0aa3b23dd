//! Block devices, their partitions, and udev's links to them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Facts, NodeFiles};
use base::json::json;

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

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    let links = links(node);
    let names = node.list("/sys/block").into_iter();
    let devices: BTreeMap<_, _> = names.map(|name| (name.clone(), device(node, &name, &links))).collect();
    if !devices.is_empty() {
        facts.set("devices", devices);
        facts.set("device_links", links);
    }
}

fn links(node: &NodeFiles) -> Links {
    let mut all = Links::new();
    for (kind, folder) in [("ids", "by-id"), ("uuids", "by-uuid"), ("labels", "by-label")] {
        let found = all.entry(kind).or_default();
        for name in node.list(&format!("/dev/disk/{folder}")) {
            if let Some(device) = node.link_name(&format!("/dev/disk/{folder}/{name}")) {
                found.entry(device).or_default().push(name);
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
    let read = |file: &str| node.some(&format!("{folder}/{file}"));
    let mut partitions = BTreeMap::new();
    for part in node.list(&folder).into_iter().filter(|entry| is_partition(name, entry)) {
        let mut value = volume(node, &format!("{folder}/{part}"), &part, links);
        value["start"] = read(&format!("{part}/start")).map_or(json!(0), Value::from);
        value["uuid"] = json!(links["uuids"].get(&part).and_then(|all| all.last()));
        partitions.insert(part, value);
    }
    let mut device = volume(node, &folder, name, links);
    device["virtual"] = 1.into();
    device["host"] = "".into();
    device["scheduler_mode"] = node.chosen(&format!("{folder}/queue/scheduler")).unwrap_or_default().into();
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

/// `sda1` of `sda`, `nvme0n1p1` of `nvme0n1`.
fn is_partition(device: &str, entry: &str) -> bool {
    let rest = entry.strip_prefix(device).map(|rest| rest.strip_prefix('p').unwrap_or(rest));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The facts that devices and partitions share.
fn volume(node: &NodeFiles, folder: &str, name: &str, links: &Links) -> Value {
    let bytes = node.number::<u64>(&format!("{folder}/size")).unwrap_or(0).saturating_mul(SECTOR);
    // A string as the kernel reports it, else a number, as in Ansible.
    let size =
        node.first(["logical_block_size", "hw_sector_size"].map(|file| format!("{folder}/queue/{file}")));
    let sector = size.as_ref().and_then(|text| text.parse().ok()).filter(|size| *size > 0).unwrap_or(SECTOR);
    let own = links.iter().map(|(kind, known)| (kind, known.get(name).cloned().unwrap_or_default()));
    let holders = node.list(&format!("{folder}/holders")).into_iter().filter(|name| name.starts_with("dm-"));
    let holders = holders.map(|name| node.some(&format!("{folder}/holders/{name}/dm/name")).unwrap_or(name));
    json!({
        "links": own.collect::<BTreeMap<_, _>>(),
        "sectorsize": size.map_or(json!(SECTOR), Value::from),
        "size": human(bytes),
        "sectors": bytes / sector,
        "holders": holders.collect::<Vec<_>>(),
    })
}

/// `256.00 GB`, in powers of 1024.
fn human(bytes: u64) -> String {
    let power = bytes.max(1).ilog2() / 10;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let amount = bytes as f64 / (1_u64 << (10 * power)) as f64;
    format!("{amount:.2} {}", ["Bytes", "KB", "MB", "GB", "TB", "PB", "EB"][power as usize])
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn partitions_sizes_and_links() {
        let files = [
            ("sys/block/sda/size", "536870912\n"),
            ("sys/block/sda/queue/scheduler", "none [mq-deadline] kyber\n"),
            ("sys/block/sda/sda1/size", "2048\n"),
            ("sys/block/sda/sda1/start", "2048\n"),
            ("sys/block/sda/sdaq/size", "1\n"),
        ];
        let (scratch, node) = Scratch::node(&files);
        std::fs::create_dir_all(scratch.0.join("dev/disk/by-uuid")).unwrap();
        std::os::unix::fs::symlink("../../sda1", scratch.0.join("dev/disk/by-uuid/AB-CD")).unwrap();
        let mut facts = Facts::default();
        gather(&node, &mut facts);
        let sda = &facts.get("devices").unwrap()["sda"];
        assert_eq!((&sda["size"], &sda["scheduler_mode"]), (&json!("256.00 GB"), &json!("mq-deadline")));
        assert_eq!(sda["partitions"].as_object().unwrap().len(), 1);
        assert_eq!(sda["partitions"]["sda1"]["uuid"], "AB-CD");
        assert_eq!(sda["partitions"]["sda1"]["size"], "1.00 MB");
        assert_eq!(facts.get("device_links").unwrap()["uuids"]["sda1"], json!(["AB-CD"]));
    }

    #[test]
    fn sizes_in_words() {
        for (sectors, expected) in
            [(0, "0.00 Bytes"), (1, "512.00 Bytes"), (3, "1.50 KB"), (u64::MAX / 1024, "8.00 EB")]
        {
            assert_eq!(human(sectors * SECTOR), expected);
        }
    }
}
