//! Block devices, their partitions, and udev's links to them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Facts, Node};
use base::json::json;

/// Kinds of links by device name, as in `/dev/disk`.
type Links = BTreeMap<&'static str, BTreeMap<String, Vec<String>>>;

/// Bytes per sector in the sizes that the kernel reports, independent of the device's sector size.
const SECTOR: u64 = 512;

pub(super) fn gather(node: &Node, facts: &mut Facts) {
    let links = links(node);
    let mut devices = Map::new();
    for name in node.list("/sys/block") {
        devices.insert(name.clone(), device(node, &name, &links));
    }
    if !devices.is_empty() {
        facts.set("devices", devices);
        facts.set("device_links", json!(links));
    }
}

fn links(node: &Node) -> Links {
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

fn device(node: &Node, name: &str, links: &Links) -> Value {
    let folder = format!("/sys/block/{name}");
    let read = |file: &str| node.some(&format!("{folder}/{file}"));
    let sectors = read("size");
    let mut partitions = Map::new();
    for part in node.list(&folder).into_iter().filter(|entry| is_partition(name, entry)) {
        let value = partition(node, &format!("{folder}/{part}"), &part, links);
        partitions.insert(part, value);
    }
    let size = sector_size(node, &folder);
    let mut device = json!({
        "virtual": 1,
        "links": links_of(name, links),
        "vendor": read("device/vendor"),
        "model": read("device/model"),
        "sas_address": read("device/sas_address"),
        "sas_device_handle": read("device/sas_device_handle"),
        "removable": read("removable"),
        "support_discard": read("queue/discard_granularity"),
        "rotational": read("queue/rotational"),
        "scheduler_mode": node.chosen(&format!("{folder}/queue/scheduler")).unwrap_or_default(),
        "sectorsize": size,
        "size": human(&sectors),
        "sectors": count(&sectors, &size),
        "host": "",
        "holders": holders(node, &folder),
        "partitions": partitions,
    });
    if let Some(serial) = read("device/serial") {
        device["serial"] = serial.into();
    }
    let wwn =
        links.get("ids").and_then(|ids| ids.get(name)?.iter().rev().find_map(|id| id.strip_prefix("wwn-")));
    if let Some(wwn) = wwn {
        device["wwn"] = wwn.into();
    }
    device
}

/// `sda1` of `sda`, `nvme0n1p1` of `nvme0n1`.
fn is_partition(device: &str, entry: &str) -> bool {
    let rest = entry.strip_prefix(device).map(|rest| rest.strip_prefix('p').unwrap_or(rest));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn partition(node: &Node, folder: &str, name: &str, links: &Links) -> Value {
    let read = |file: &str| node.some(&format!("{folder}/{file}"));
    let sectors = read("size");
    let size = sector_size(node, folder);
    let uuid = links.get("uuids").and_then(|uuids| uuids.get(name)?.last());
    json!({
        "links": links_of(name, links),
        "start": read("start").map_or(json!(0), Value::from),
        "sectorsize": size,
        "size": human(&sectors),
        "sectors": count(&sectors, &size),
        "uuid": uuid,
        "holders": holders(node, folder),
    })
}

/// A string as the kernel reports it, else a number, as in Ansible.
fn sector_size(node: &Node, folder: &str) -> Value {
    let told = ["logical_block_size", "hw_sector_size"]
        .iter()
        .find_map(|file| node.some(&format!("{folder}/queue/{file}")));
    told.map_or(json!(SECTOR), Value::from)
}

/// Number of sectors of the given size; the kernel counts in sectors of 512 bytes.
fn count(sectors: &Option<String>, size: &Value) -> u64 {
    let told = size.as_str().and_then(|text| text.parse::<u64>().ok()).filter(|size| *size > 0);
    let sectors = sectors.as_deref().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    sectors.saturating_mul(SECTOR) / told.unwrap_or(SECTOR)
}

fn links_of(name: &str, links: &Links) -> Value {
    let of = |kind: &str| links.get(kind).and_then(|known| known.get(name)).cloned().unwrap_or_default();
    json!({ "ids": of("ids"), "uuids": of("uuids"), "labels": of("labels"), "masters": of("masters") })
}

fn holders(node: &Node, folder: &str) -> Vec<String> {
    let holders = node.list(&format!("{folder}/holders")).into_iter().filter(|name| name.starts_with("dm-"));
    holders.map(|name| node.some(&format!("{folder}/holders/{name}/dm/name")).unwrap_or(name)).collect()
}

/// `256.00 GB`, in powers of 1024.
fn human(sectors: &Option<String>) -> String {
    let bytes =
        sectors.as_deref().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0).saturating_mul(SECTOR);
    let units = ["Bytes", "KB", "MB", "GB", "TB", "PB", "EB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let amount = bytes as f64 / 1024_f64.powi(i32::try_from(power).unwrap_or(0));
    format!("{amount:.2} {}", units[power.min(units.len() - 1)])
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
            assert_eq!(human(&Some(sectors.to_string())), expected);
        }
    }
}
