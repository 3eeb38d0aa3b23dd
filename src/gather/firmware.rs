//! Firmware facts: BIOS, board, chassis and product.

use super::{Facts, Node, Source};

pub(crate) struct Firmware;

/// Ansible's name, and the file below /sys/class/dmi/id.
const FIELDS: &[(&str, &str)] = &[
    ("bios_date", "bios_date"),
    ("bios_vendor", "bios_vendor"),
    ("bios_version", "bios_version"),
    ("board_asset_tag", "board_asset_tag"),
    ("board_name", "board_name"),
    ("board_serial", "board_serial"),
    ("board_vendor", "board_vendor"),
    ("board_version", "board_version"),
    ("chassis_asset_tag", "chassis_asset_tag"),
    ("chassis_serial", "chassis_serial"),
    ("chassis_vendor", "chassis_vendor"),
    ("chassis_version", "chassis_version"),
    ("product_name", "product_name"),
    ("product_serial", "product_serial"),
    ("product_uuid", "product_uuid"),
    ("product_version", "product_version"),
    ("system_vendor", "sys_vendor"),
];

/// The chassis types of the SMBIOS specification, from number 0.
const CHASSIS: &[&str] = &[
    "Unknown",
    "Other",
    "Unknown",
    "Desktop",
    "Low Profile Desktop",
    "Pizza Box",
    "Mini Tower",
    "Tower",
    "Portable",
    "Laptop",
    "Notebook",
    "Hand Held",
    "Docking Station",
    "All In One",
    "Sub Notebook",
    "Space-saving",
    "Lunch Box",
    "Main Server Chassis",
    "Expansion Chassis",
    "Sub Chassis",
    "Bus Expansion Chassis",
    "Peripheral Chassis",
    "RAID Chassis",
    "Rack Mount Chassis",
    "Sealed-case PC",
    "Multi-system",
    "CompactPCI",
    "AdvancedTCA",
    "Blade",
    "Blade Enclosure",
    "Tablet",
    "Convertible",
    "Detachable",
    "IoT Gateway",
    "Embedded PC",
    "Mini PC",
    "Stick PC",
];

/// Ansible's value for a field that is missing or not readable.
const ABSENT: &str = "NA";

impl Source for Firmware {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        let folder = "/sys/devices/virtual/dmi/id";
        for (name, file) in FIELDS {
            facts.set(name, node.some(&format!("{folder}/{file}")).unwrap_or_else(|| ABSENT.into()));
        }
        let chassis = node.text(&format!("{folder}/chassis_type"));
        let shape = chassis.map(|number| {
            let known = number.parse::<usize>().ok().and_then(|index| CHASSIS.get(index));
            known.map_or_else(|| format!("unknown ({number})"), ToString::to_string)
        });
        facts.set("form_factor", shape.unwrap_or_else(|| ABSENT.into()));
    }
}
