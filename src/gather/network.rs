//! Interfaces with their addresses, default routes, and name resolution.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::SockaddrStorage;
use serde_json::Value;

use super::{NodeFiles, without_nulls};
use base::json::{json, list, list_in};

/// Internet addresses that Ansible uses to find the default route; nothing is sent to them.
const PROBE_ADDRESSES: [(&str, &str, &str); 2] = [
    ("ansible_default_ipv4", "0.0.0.0:0", "8.8.8.8:53"),
    (
        "ansible_default_ipv6",
        "[::]:0",
        "[2404:6800:400a:800::1012]:53",
    ),
];

/// Ansible's names for numbers in /sys/class/net/*/type.
const KINDS: &[(i64, &str)] = &[
    (1, "ether"),
    (32, "infiniband"),
    (512, "ppp"),
    (772, "loopback"),
    (65_534, "tunnel"),
];

/// Facts that are the text of a file of an interface.
const TEXTS: &[(&str, &str)] = &[
    ("id", "bridge/bridge_id"),
    ("mode", "bonding/mode"),
    ("miimon", "bonding/miimon"),
    ("lacp_rate", "bonding/lacp_rate"),
    ("primary", "bonding/primary"),
    ("perm_macaddress", "bonding_slave/perm_hwaddr"),
];

/// Facts of interfaces, by name.
type Interfaces = BTreeMap<String, Value>;

/// One address of an interface.
struct Address {
    /// The interface, or an alias such as `eth0:1`.
    name: String,
    address: IpAddr,
    /// In Ansible's form.
    facts: Value,
}

impl Address {
    fn interface(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }
}

/// Addresses of all interfaces from the kernel; no file lists them.
fn addresses() -> io::Result<Vec<Address>> {
    Ok(getifaddrs()?.filter_map(read_address).collect())
}

/// The IP address of an interface; `None` for a hardware address.
fn read_address(entry: InterfaceAddress) -> Option<Address> {
    let address = ip(&entry.address?)?;
    // An interface without a broadcast address names its own.
    let broadcast = entry.broadcast.as_ref().and_then(ip);
    let broadcast = broadcast.filter(|broadcast| *broadcast != address);
    let facts = described(address, ip(&entry.netmask?)?, broadcast)?;
    Some(Address {
        name: entry.interface_name,
        address,
        facts,
    })
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    if let Some(four) = address.as_sockaddr_in() {
        return Some(four.ip().into());
    }
    Some(address.as_sockaddr_in6()?.ip().into())
}

/// An address in Ansible's form.
fn described(address: IpAddr, mask: IpAddr, broadcast: Option<IpAddr>) -> Option<Value> {
    match (address, mask) {
        (IpAddr::V4(four), IpAddr::V4(mask)) => Some(json!({
            "address": four,
            "broadcast": broadcast.map(|broadcast| broadcast.to_string()).unwrap_or_default(),
            "netmask": mask,
            "network": four & mask,
            "prefix": mask.to_bits().count_ones().to_string(),
        })),
        (IpAddr::V6(six), IpAddr::V6(mask)) => {
            let scope = match six.segments()[0] {
                _ if six.is_loopback() => "host",
                0xfe80..=0xfebf => "link",
                0xfec0..=0xfeff => "site",
                _ => "global",
            };
            let prefix = mask.to_bits().count_ones().to_string();
            Some(json!({ "address": six, "prefix": prefix, "scope": scope }))
        }
        _ => None,
    }
}

pub(super) fn gather(node: &NodeFiles) -> Value {
    // A `/sys` shows the network namespace of its mount. That of this process matches the addresses
    // from the kernel; the node's may belong to another namespace, such as that of the host
    // around the node.
    let own_files = NodeFiles::open(Path::new("/")).ok().filter(|_| node.live);
    let files = own_files.as_ref().unwrap_or(node);
    let addresses = if node.live {
        addresses()
    } else {
        Err(io::Error::other(
            "the node is not the running system, so its addresses are unknown",
        ))
    };
    let addresses = addresses
        .map_err(|why| node.note("addresses", why.to_string()))
        .unwrap_or_default();
    // Files that are beside the interfaces' folders describe none.
    let names = files
        .list("/sys/class/net")
        .into_iter()
        .filter(|name| files.exists(&format!("/sys/class/net/{name}/mtu")));
    let interfaces: Interfaces = names
        .map(|name| (name.clone(), interface(files, &name, &addresses)))
        .collect();
    let (four, six): (Vec<_>, Vec<_>) = addresses
        .iter()
        .map(|found| found.address)
        .partition(IpAddr::is_ipv4);
    let others =
        |addresses: &[IpAddr]| list(addresses.iter().filter(|address| !address.is_loopback()));
    let mut facts = json!({
        "ansible_dns": resolver(&node.text("/etc/resolv.conf").unwrap_or_default()),
        "ansible_all_ipv4_addresses": others(&four),
        "ansible_all_ipv6_addresses": others(&six),
        "ansible_interfaces": list(interfaces.keys()),
    });
    for (name, any, far) in PROBE_ADDRESSES {
        let route = default_route(files, any, far, &interfaces, &addresses);
        facts[name] = route.unwrap_or_else(|| json!({}));
    }
    if node.live {
        let networks = local_networks(&files.text("/proc/net/fib_trie").unwrap_or_default());
        let six: BTreeSet<_> = six.iter().collect();
        facts["ansible_locally_reachable_ips"] = json!({ "ipv4": networks, "ipv6": six });
    }
    for (name, interface) in interfaces {
        // Ansible replaces dashes, so that names work in templates.
        facts[format!("ansible_{}", name.replace('-', "_"))] = interface;
    }
    facts
}

fn interface(node: &NodeFiles, name: &str, addresses: &[Address]) -> Value {
    let folder = format!("/sys/class/net/{name}");
    let read = |file: &str| node.text(&format!("{folder}/{file}"));
    let number = |file: &str| read(file)?.parse::<i64>().ok();
    let flags =
        read("flags").and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let mut interface = json!({
        "device": name,
        "macaddress": read("address").filter(|mac| mac != "00:00:00:00:00:00"),
        "mtu": number("mtu"),
        "active": read("operstate").map(|state| state != "down"),
        "module": node.link_name(&format!("{folder}/device/driver/module")),
        "type": number("type").map(|kind| KINDS.iter().find(|(known, _)| *known == kind).map_or("unknown", |(_, name)| name)),
        "pciid": node.link_name(&format!("{folder}/device")),
        "speed": number("speed"),
        "promisc": flags.map(|flags| flags & 0x100 != 0),
    });
    for (key, file) in TEXTS {
        // `active-backup 1`: the number repeats the word.
        interface[key] = read(file)
            .and_then(|text| text.split_whitespace().next().map(Value::from))
            .into();
    }
    if node.exists(&format!("{folder}/bridge")) {
        interface["type"] = "bridge".into();
        interface["interfaces"] = node.list(&format!("{folder}/brif")).into();
        interface["stp"] = read("bridge/stp_state").map(|state| state == "1").into();
    }
    if node.exists(&format!("{folder}/bonding")) {
        interface["type"] = "bonding".into();
        interface["slaves"] = read("bonding/slaves")
            .unwrap_or_default()
            .split_whitespace()
            .collect();
    }
    let (four, six): (Vec<_>, Vec<_>) = addresses
        .iter()
        .filter(|address| address.interface() == name)
        .partition(|address| address.address.is_ipv4());
    // For Ansible, an alias such as eth0:1 is an interface; its address is also a secondary one of
    // the device.
    let first = four.iter().position(|address| address.name == name);
    let facts =
        |list: Vec<&Address>| -> Vec<Value> { list.iter().map(|one| one.facts.clone()).collect() };
    let (mut four, six) = (facts(four), facts(six));
    interface["ipv4"] = first.map(|first| four.remove(first)).into();
    for (key, list) in [("ipv4_secondaries", four), ("ipv6", six)] {
        interface[key] = Some(list).filter(|list| !list.is_empty()).into();
    }
    without_nulls(interface)
}

fn default_route(
    node: &NodeFiles,
    any: &str,
    far: &str,
    interfaces: &Interfaces,
    addresses: &[Address],
) -> Option<Value> {
    // Connecting a datagram socket chooses a route and sends nothing.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    let source = socket.local_addr().ok()?.ip();
    let source_address = addresses.iter().find(|address| address.address == source)?;
    let name = source_address.interface();
    let interface = interfaces.get(name)?;
    let mut route = source_address.facts.clone();
    route["interface"] = name.into();
    route["gateway"] = gateway(node, name, source.is_ipv4()).into();
    for key in ["macaddress", "mtu", "type"] {
        route[key] = interface[key].clone();
    }
    route["alias"] = source.is_ipv4().then_some(&*source_address.name).into();
    Some(without_nulls(route))
}

/// The gateway of the default route through an interface.
fn gateway(node: &NodeFiles, interface: &str, four: bool) -> Option<String> {
    let table = node.text(if four {
        "/proc/net/route"
    } else {
        "/proc/net/ipv6_route"
    })?;
    table.lines().find_map(
        |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, "00000000", gateway, ..]
                if four && name == interface && gateway != "00000000" =>
            {
                Some(
                    Ipv4Addr::from(u32::from_str_radix(gateway, 16).ok()?.to_ne_bytes())
                        .to_string(),
                )
            }
            [_, "00", _, _, gateway, .., name] if !four && name == interface => {
                let gateway = Ipv6Addr::from(u128::from_str_radix(gateway, 16).ok()?);
                (!gateway.is_unspecified()).then(|| gateway.to_string())
            }
            _ => None,
        },
    )
}

/// IPv4 destinations on this machine, addresses and networks such as `127.0.0.0/8`, in the kernel's
/// order.
fn local_networks(trie: &str) -> Vec<String> {
    let (mut found, mut address) = (Vec::new(), "");
    for line in trie
        .lines()
        .skip_while(|line| *line != "Local:")
        .skip(1)
        .take_while(|line| line.starts_with(' '))
    {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["|--", next] => address = next,
            ["/32", "host", "LOCAL"] => found.push(address.to_owned()),
            [prefix, "host", "LOCAL"] => found.push(format!("{address}{prefix}")),
            _ => {}
        }
    }
    found
}

/// `/etc/resolv.conf` in Ansible's form.
pub(super) fn resolver(text: &str) -> Value {
    let mut facts = json!({});
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default() {
            "nameserver" => list_in(&mut facts, "nameservers").extend(words.map(Value::from)),
            "domain" => facts["domain"] = words.next().into(),
            key @ ("search" | "sortlist") => facts[key] = words.collect(),
            "options" => {
                let options = words.map(|option| match option.split_once(':') {
                    Some((name, value)) => (name, Value::from(value)),
                    None => (option, Value::Bool(true)),
                });
                facts["options"] = options.collect();
            }
            _ => {}
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn resolver_configuration_is_parsed() {
        let text = "# by hand\nnameserver 10.0.0.10\nnameserver 10.0.0.11\nsearch a.example \
                    b.example\noptions ndots:5 edns0\n";
        let expected = json!({
            "nameservers": ["10.0.0.10", "10.0.0.11"],
            "search": ["a.example", "b.example"],
            "options": {"ndots": "5", "edns0": true},
        });
        assert_eq!(resolver(text), expected);
    }

    fn four(last: u8, name: &str) -> Address {
        let address = [10, 1, 2, last].into();
        let facts = described(
            address,
            [255, 255, 240, 0].into(),
            Some([10, 1, 15, 255].into()),
        )
        .unwrap();
        Address {
            name: name.into(),
            address,
            facts,
        }
    }

    #[test]
    fn loopback_address_is_reported() {
        let all = addresses().unwrap();
        let loopback = all
            .iter()
            .find(|address| address.address == IpAddr::from([127, 0, 0, 1]))
            .unwrap();
        assert_eq!(
            (loopback.interface(), &loopback.facts["prefix"]),
            ("lo", &json!("8"))
        );
    }

    #[test]
    fn aliases_and_further_addresses_are_secondaries() {
        let own = [four(5, "eth0:1"), four(3, "eth0"), four(4, "eth0")];
        let (_scratch, node) = Scratch::node(&[("sys/class/net/eth0/mtu", "1500")]);
        let interface = interface(&node, "eth0", &own);
        assert_eq!(
            (&interface["ipv4"]["network"], &interface["mtu"]),
            (&json!("10.1.0.0"), &json!(1500))
        );
        assert_eq!(interface["ipv4"]["netmask"], "255.255.240.0");
        assert_eq!(interface["ipv4"]["address"], "10.1.2.3");
        assert_eq!(interface["ipv4_secondaries"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn extreme_netmasks_are_formatted() {
        let network = |mask: [u8; 4]| {
            let facts = described([10, 1, 2, 1].into(), mask.into(), None).unwrap();
            ["network", "prefix"].map(|key| facts[key].as_str().unwrap().to_owned())
        };
        assert_eq!(network([0; 4]), ["0.0.0.0", "0"]);
        assert_eq!(network([255; 4]), ["10.1.2.1", "32"]);
    }

    #[test]
    fn local_networks_are_read_from_the_local_table() {
        let (_scratch, node) = Scratch::node(&[
            (
                "proc/net/route",
                "Iface Destination\neth0 000200C0 00000000 0001\neth0 00000000 010200C0 0003\n",
            ),
            (
                "proc/net/ipv6_route",
                "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                 fd000000000000000000000000000001 00000400 3 0 3 eth0\n",
            ),
        ]);
        if cfg!(target_endian = "little") {
            assert_eq!(gateway(&node, "eth0", true).as_deref(), Some("192.0.2.1"));
        }
        assert_eq!(gateway(&node, "eth0", false).as_deref(), Some("fd00::1"));
        assert_eq!(gateway(&node, "eth1", false), None);
        let trie = "Main:\n  |-- 9.9.9.9\n     /32 host LOCAL\nLocal:\n  +-- 0.0.0.0/0 3 0 5\n     |-- \
             127.0.0.0\n        /8 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n     \
             |-- 127.255.255.255\n        /32 link BROADCAST\nId 100:\n  |-- 0.0.0.0\n     /0 \
             host LOCAL\n";
        assert_eq!(local_networks(trie), ["127.0.0.0/8", "127.0.0.1"]);
    }
}
