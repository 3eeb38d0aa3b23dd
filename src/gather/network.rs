//! Interfaces with their addresses, default routes, and name resolution.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde_json::{Map, Value};

use super::netlink::{self, Address};
use super::{Facts, Node, Source};
use base::json::json;

pub(crate) struct Network;

/// Internet addresses that Ansible uses to find the default route; nothing is sent to them.
const PROBE_ADDRESSES: [(&str, [u16; 8]); 2] = [
    ("ipv4", [0, 0, 0, 0, 0, 0xffff, 0x0808, 0x0808]),
    ("ipv6", [0x2404, 0x6800, 0x400a, 0x800, 0, 0, 0, 0x1012]),
];

/// Ansible's names for numbers in /sys/class/net/*/type.
const KINDS: &[(&str, &str)] =
    &[("1", "ether"), ("32", "infiniband"), ("512", "ppp"), ("772", "loopback"), ("65534", "tunnel")];

impl Source for Network {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        facts.set("dns", resolver(&node.text("/etc/resolv.conf").unwrap_or_default()));
        // A `/sys` shows the network namespace of its mount. That of this process matches the addresses from the kernel; the
        // node's may belong to another namespace, such as that of the host around the node.
        let ours = if node.live() { Node::open(Path::new("/")).ok() } else { None };
        let seen = ours.as_ref().filter(|ours| !ours.list("/sys/class/net").is_empty()).unwrap_or(node);
        let names: Vec<String> = seen
            .list("/sys/class/net")
            .into_iter()
            .filter(|name| seen.is_dir(&format!("/sys/class/net/{name}")))
            .collect();
        let addresses = if node.live() { netlink::addresses() } else { Ok(Vec::new()) };
        let addresses = addresses.unwrap_or_else(|error| {
            node.note("addresses", error.to_string());
            Vec::new()
        });
        if !node.live() {
            node.note("addresses", "the node is not the running system, so its addresses are unknown");
        }
        let mut interfaces: BTreeMap<String, (Option<u32>, Map<String, Value>)> = BTreeMap::new();
        for name in &names {
            let index: Option<u32> = seen.number(&format!("/sys/class/net/{name}/ifindex"));
            let mut interface = interface(seen, name);
            let own: Vec<&Address> =
                addresses.iter().filter(|address| Some(address.index) == index).collect();
            give_addresses(&mut interface, name, &own);
            interfaces.insert(name.clone(), (index, interface));
        }
        for (name, far) in PROBE_ADDRESSES {
            let default = if node.live() { default_way(far, &interfaces, &addresses) } else { Map::new() };
            facts.set(&format!("default_{name}"), default);
        }
        let all = |four: bool| -> Vec<String> {
            let wanted = addresses
                .iter()
                .filter(|found| found.address.is_ipv4() == four && !found.address.is_loopback());
            wanted.map(|found| found.address.to_string()).collect()
        };
        if node.live() {
            let reached = |four| netlink::local_networks(four).unwrap_or_default();
            facts.set("locally_reachable_ips", json!({"ipv4": reached(true), "ipv6": reached(false)}));
        }
        facts.set("all_ipv4_addresses", all(true));
        facts.set("all_ipv6_addresses", all(false));
        facts.set("interfaces", interfaces.keys().map(|name| name.replace(':', "_")).collect::<Vec<_>>());
        for (name, (_, interface)) in interfaces {
            facts.set(&name.replace(':', "_"), interface);
        }
    }
}

fn interface(node: &Node, name: &str) -> Map<String, Value> {
    let folder = format!("/sys/class/net/{name}");
    let read = |file: &str| node.some(&format!("{folder}/{file}"));
    let mut found = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            found.insert(key.into(), value);
        }
    };
    set("device", Some(name.into()));
    set("macaddress", read("address").filter(|mac| mac != "00:00:00:00:00:00").map(Value::from));
    set("mtu", node.number::<i64>(&format!("{folder}/mtu")).map(Value::from));
    set("active", read("operstate").map(|state| (state != "down").into()));
    set("module", node.link_name(&format!("{folder}/device/driver/module")).map(Value::from));
    let number = read("type");
    let kind = number
        .map(|number| KINDS.iter().find(|(known, _)| *known == number).map_or("unknown", |(_, kind)| kind));
    set("type", kind.map(Value::from));
    set("pciid", node.link_name(&format!("{folder}/device")).map(Value::from));
    set("speed", node.number::<i64>(&format!("{folder}/speed")).map(Value::from));
    let flags = read("flags").and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    set("promisc", flags.map(|flags| (flags & 0x100 != 0).into()));
    if node.is_dir(&format!("{folder}/bridge")) {
        set("type", Some("bridge".into()));
        set("interfaces", Some(node.list(&format!("{folder}/brif")).into()));
        set("id", read("bridge/bridge_id").map(Value::from));
        set("stp", read("bridge/stp_state").map(|state| (state == "1").into()));
    }
    if node.is_dir(&format!("{folder}/bonding")) {
        let word = |file: &str| read(file).and_then(|text| text.split_whitespace().next().map(Value::from));
        set("type", Some("bonding".into()));
        let slaves = read("bonding/slaves").unwrap_or_default();
        set("slaves", Some(slaves.split_whitespace().collect::<Vec<_>>().into()));
        set("mode", word("bonding/mode"));
        set("miimon", word("bonding/miimon"));
        set("lacp_rate", word("bonding/lacp_rate"));
        set("primary", word("bonding/primary"));
    }
    if node.is_dir(&format!("{folder}/bonding_slave")) {
        set("perm_macaddress", read("bonding_slave/perm_hwaddr").map(Value::from));
    }
    found
}

fn give_addresses(interface: &mut Map<String, Value>, name: &str, own: &[&Address]) {
    let mut secondaries = Vec::new();
    let mut six = Vec::new();
    for address in own {
        match address.address {
            IpAddr::V4(four) => {
                // For Ansible, an alias such as eth0:1 is an interface; its address is also a secondary one of the device.
                let alias = address.label.as_deref().is_some_and(|label| label != name);
                let value = four_facts(four, address);
                if address.secondary || alias || interface.contains_key("ipv4") {
                    secondaries.push(value);
                } else {
                    interface.insert("ipv4".into(), value);
                }
            }
            IpAddr::V6(_) => six.push(six_facts(address)),
        }
    }
    if !secondaries.is_empty() {
        interface.insert("ipv4_secondaries".into(), secondaries.into());
    }
    if !six.is_empty() {
        interface.insert("ipv6".into(), six.into());
    }
}

fn four_facts(four: Ipv4Addr, address: &Address) -> Value {
    let mask = u32::MAX.checked_shl(32 - u32::from(address.prefix.min(32))).unwrap_or(0);
    json!({
        "address": four.to_string(),
        "broadcast": address.broadcast.map(|broadcast| broadcast.to_string()).unwrap_or_default(),
        "netmask": Ipv4Addr::from(mask).to_string(),
        "network": Ipv4Addr::from(u32::from(four) & mask).to_string(),
        "prefix": address.prefix.to_string(),
    })
}

fn six_facts(address: &Address) -> Value {
    json!({ "address": address.address.to_string(), "prefix": address.prefix.to_string(), "scope": scope(address.scope) })
}

fn scope(number: u8) -> String {
    match number {
        0 => "global".into(),
        200 => "site".into(),
        253 => "link".into(),
        254 => "host".into(),
        other => other.to_string(),
    }
}

fn default_way(
    far: [u16; 8],
    interfaces: &BTreeMap<String, (Option<u32>, Map<String, Value>)>,
    addresses: &[Address],
) -> Map<String, Value> {
    let far = IpAddr::from(far);
    let Ok(route) = netlink::route(far.to_canonical()) else { return Map::new() };
    let mut found = Map::new();
    if let Some(gateway) = route.gateway {
        found.insert("gateway".into(), gateway.to_string().into());
    }
    let Some((name, (_, interface))) = interfaces.iter().find(|(_, (index, _))| *index == route.index) else {
        return found;
    };
    found.insert("interface".into(), name.as_str().into());
    let Some(source) = route.source else { return found };
    found.insert("address".into(), source.to_string().into());
    let Some(address) = addresses.iter().find(|address| address.address == source) else { return found };
    let details = match source {
        IpAddr::V4(four) => four_facts(four, address),
        IpAddr::V6(_) => six_facts(address),
    };
    if let Value::Object(details) = details {
        found.extend(details);
    }
    for key in ["macaddress", "mtu", "type"] {
        found.extend(interface.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    if source.is_ipv4() {
        found.insert("alias".into(), address.label.clone().unwrap_or_else(|| name.clone()).into());
    }
    found
}

/// `/etc/resolv.conf` in Ansible's form.
fn resolver(text: &str) -> Value {
    let mut found = Map::new();
    let list = |words: &[&str]| Value::from(words.iter().map(|word| Value::from(*word)).collect::<Vec<_>>());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["nameserver", ref servers @ ..] => {
                if let Value::Array(known) = found.entry("nameservers").or_insert_with(|| json!([])) {
                    known.extend(servers.iter().map(|server| Value::from(*server)));
                }
            }
            ["domain", domain, ..] => drop(found.insert("domain".into(), domain.into())),
            ["search", ref domains @ ..] => drop(found.insert("search".into(), list(domains))),
            ["sortlist", ref pairs @ ..] => drop(found.insert("sortlist".into(), list(pairs))),
            ["options", ref options @ ..] => {
                let pairs = options.iter().map(|option| match option.split_once(':') {
                    Some((name, value)) => (name.to_owned(), Value::from(value)),
                    None => ((*option).to_owned(), Value::Bool(true)),
                });
                found.insert("options".into(), Value::Object(pairs.collect()));
            }
            _ => {}
        }
    }
    Value::Object(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolver_is_read_line_by_line() {
        let text = "# by hand\nnameserver 10.0.0.10\nnameserver 10.0.0.11\nsearch a.example b.example\noptions ndots:5 edns0\n";
        let expected = json!({
            "nameservers": ["10.0.0.10", "10.0.0.11"],
            "search": ["a.example", "b.example"],
            "options": {"ndots": "5", "edns0": true},
        });
        assert_eq!(resolver(text), expected);
    }

    #[test]
    fn an_alias_and_a_second_address_are_secondaries() {
        let address = |last: u8, secondary: bool, label: &str| Address {
            index: 2,
            address: [10, 1, 2, last].into(),
            prefix: 20,
            broadcast: Some([10, 1, 15, 255].into()),
            scope: 0,
            secondary,
            label: Some(label.into()),
        };
        let own = [address(3, false, "eth0"), address(4, true, "eth0"), address(5, false, "eth0:1")];
        let mut interface = Map::new();
        give_addresses(&mut interface, "eth0", &own.iter().collect::<Vec<_>>());
        assert_eq!(interface["ipv4"]["network"], "10.1.0.0");
        assert_eq!(interface["ipv4"]["netmask"], "255.255.240.0");
        assert_eq!(interface["ipv4_secondaries"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn the_widest_and_the_narrowest_masks() {
        let address = |prefix| Address {
            index: 1,
            address: [10, 0, 0, 1].into(),
            prefix,
            broadcast: None,
            scope: 0,
            secondary: false,
            label: None,
        };
        assert_eq!(four_facts([10, 0, 0, 1].into(), &address(0))["netmask"], "0.0.0.0");
        assert_eq!(four_facts([10, 0, 0, 1].into(), &address(32))["network"], "10.0.0.1");
    }
}
