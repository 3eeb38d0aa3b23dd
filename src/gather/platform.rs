//! The running system: names, kernel, command line, uptime, load, init.

use std::fs;

use serde_json::{Map, Value};

use super::{Facts, Node, Source};
use base::json::json;

pub(crate) struct Platform;

impl Source for Platform {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        facts.set("system", "Linux");
        facts.set_some("kernel", node.text("/proc/sys/kernel/osrelease"));
        facts.set_some("kernel_version", node.text("/proc/sys/kernel/version"));
        names(node, facts);
        machine(node, facts);
        facts.set_some(
            "machine_id",
            node.some("/etc/machine-id").or_else(|| node.some("/var/lib/dbus/machine-id")),
        );
        if let Some(line) = node.text("/proc/cmdline") {
            facts.set("cmdline", command_line(&line, false));
            facts.set("proc_cmdline", command_line(&line, true));
        }
        let uptime = node.text("/proc/uptime");
        facts.set_some(
            "uptime_seconds",
            uptime.as_deref().and_then(|text| text.split('.').next()?.parse::<u64>().ok()),
        );
        loadavg(node, facts);
        facts.set("is_chroot", is_chroot(node));
        facts.set_some("service_mgr", service_manager(node));
        if facts.text("service_mgr") == "systemd" {
            facts.set_some("systemd", systemd(node));
        }
        facts.set("iscsi_iqn", initiator(node));
        facts.set("hostnqn", node.text("/etc/nvme/hostnqn").unwrap_or_default());
        let ports = node.list("/sys/class/fc_host");
        let names =
            ports.iter().filter_map(|host| node.some(&format!("/sys/class/fc_host/{host}/port_name")));
        let names: Vec<String> = names.map(|name| name.trim_start_matches("0x").to_owned()).collect();
        facts.set("fibre_channel_wwn", names);
    }
}

fn names(node: &Node, facts: &mut Facts) {
    let Some(name) = node.some("/proc/sys/kernel/hostname").or_else(|| node.some("/etc/hostname")) else {
        return;
    };
    let hosts = node.text("/etc/hosts").unwrap_or_default();
    let full = full_name(&name, &hosts);
    facts.set("hostname", name.split('.').next().unwrap_or(&name));
    facts.set("domain", full.split_once('.').map_or("", |(_, domain)| domain));
    facts.set("fqdn", full);
    facts.set("nodename", name);
}

/// The name that `/etc/hosts` has for the first address of `name`. Does not query name servers, which may not respond.
fn full_name(name: &str, hosts: &str) -> String {
    let lines: Vec<Vec<&str>> = hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().split_whitespace().collect())
        .filter(|words: &Vec<&str>| words.len() > 1)
        .collect();
    let address = lines.iter().find(|words| words[1..].contains(&name)).map(|words| words[0]);
    let named: Vec<&str> = lines
        .iter()
        .filter(|words| Some(words[0]) == address)
        .flat_map(|words| words[1..].iter().copied())
        .collect();
    let dotted = named.iter().find(|name| name.contains('.'));
    (*dotted.or_else(|| named.first()).unwrap_or(&name)).to_owned()
}

fn machine(node: &Node, facts: &mut Facts) {
    let running = rustix::system::uname().machine().to_string_lossy().into_owned();
    let machine = node.some("/proc/sys/kernel/arch").or_else(|| node.live().then_some(running));
    let bits = ["/usr/bin/env", "/bin/sh", "/sbin/init", "/usr/bin/kubelet"]
        .iter()
        .find_map(|path| elf_bits(node, path));
    let bits = bits.or_else(|| machine.as_ref().map(|name| if name.contains("64") { 64 } else { 32 }));
    if let (Some(machine), Some(bits)) = (&machine, bits) {
        let user = if machine == "x86_64" && bits == 32 { "i386" } else { machine };
        facts.set("userspace_architecture", user);
        facts.set("userspace_bits", bits.to_string());
    }
    let plain = |name: &str| {
        if matches!(name, "i486" | "i586" | "i686") { "i386".to_owned() } else { name.to_owned() }
    };
    facts.set_some("architecture", machine.as_deref().map(plain));
    facts.set_some("machine", machine);
}

fn elf_bits(node: &Node, path: &str) -> Option<u32> {
    use std::io::Read;
    let mut head = [0; 5];
    let path = node.resolve(path, true).ok().filter(|path| path.is_file())?;
    fs::File::open(path).ok()?.read_exact(&mut head).ok()?;
    match (&head[..4], head[4]) {
        (b"\x7fELF", 1) => Some(32),
        (b"\x7fELF", 2) => Some(64),
        _ => None,
    }
}

/// Words of the kernel's command line; a word without `=` is `true`. Repeated words yield the last value or, with `all`, a
/// list.
fn command_line(line: &str, all: bool) -> Value {
    let mut words = Map::new();
    for word in split_quoted(line) {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), Value::from(value)),
            None => (word, Value::Bool(true)),
        };
        match words.get_mut(&key) {
            Some(Value::Array(values)) if all => values.push(value),
            Some(before) if all => *before = json!([before.take(), value]),
            _ => drop(words.insert(key, value)),
        }
    }
    Value::Object(words)
}

/// Splits at blanks outside double quotes; keeps the quotes.
fn split_quoted(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        quoted ^= c == '"';
        match words.last_mut() {
            Some(word) if quoted || !c.is_whitespace() => word.push(c),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn loadavg(node: &Node, facts: &mut Facts) {
    // The system call is more precise than the two digits in the kernel's file; Ansible uses it, too.
    let fine = rustix::system::sysinfo()
        .loads
        .map(|load| f64::from(u32::try_from(load).unwrap_or(u32::MAX)) / 65_536.0);
    let text = node.text("/proc/loadavg").unwrap_or_default();
    let told: Vec<f64> = text.split_whitespace().take(3).filter_map(|word| word.parse().ok()).collect();
    let loads = if node.live() { fine.to_vec() } else { told };
    if let [one, five, fifteen] = loads[..] {
        facts.set("loadavg", json!({ "1m": one, "5m": five, "15m": fifteen }));
    }
}

/// Whether the root differs from that of the first process. False for a node seen through a folder.
fn is_chroot(node: &Node) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |path: &str| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let first = place("/proc/1/root/.");
    node.root() == std::path::Path::new("/") && first.is_some() && place("/") != first
}

fn service_manager(node: &Node) -> Option<String> {
    let first = node.text("/proc/1/comm")?;
    let runs_systemd =
        ["/run/systemd/system", "/dev/.run/systemd", "/dev/.systemd"].iter().any(|path| node.exists(path));
    Some(match first.as_str() {
        "runit-init" => "runit".into(),
        "svscan" => "svc".into(),
        "openrc-init" => "openrc".into(),
        "init" | "systemd" | "bash" | "sh" if runs_systemd || first == "systemd" => "systemd".into(),
        "init" | "bash" | "sh" if node.exists("/sbin/openrc") => "openrc".into(),
        "init" | "bash" | "sh" if node.is_dir("/etc/init.d") => "sysvinit".into(),
        "bash" | "sh" => "service".into(),
        _ => first,
    })
}

/// The output of `systemctl --version`, read from the name and content of a library without running a program.
fn systemd(node: &Node) -> Option<Value> {
    let folders = ["/usr/lib", "/usr/lib64", "/lib", "/run/current-system/systemd/lib"].map(str::to_owned);
    let of_machine = |name: String| name.contains("-linux-gnu").then(|| format!("/usr/lib/{name}"));
    let more = node.list("/usr/lib").into_iter().filter_map(of_machine);
    let mut libraries = folders.into_iter().chain(more).flat_map(|folder| {
        let folder = format!("{folder}/systemd");
        node.list(&folder).into_iter().map(move |name| (folder.clone(), name))
    });
    libraries.find_map(|(folder, name)| {
        let version = name.strip_prefix("libsystemd-shared-")?.strip_suffix(".so")?;
        let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
        let version: u64 = version[..end].parse().ok()?;
        let bytes = node.bytes(&format!("{folder}/{name}"))?;
        let is_list = |text: &&[u8]| text.starts_with(b"+PAM ") || text.starts_with(b"-PAM ");
        let features = std::str::from_utf8(bytes.split(|byte| *byte == 0).find(is_list)?).ok()?;
        Some(json!({ "features": features, "version": version }))
    })
}

fn initiator(node: &Node) -> String {
    let text = node.text("/etc/iscsi/initiatorname.iscsi").unwrap_or_default();
    let mut names = text.lines().filter_map(|line| line.trim().strip_prefix("InitiatorName="));
    names.next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn the_command_line_keeps_quotes_and_collects_what_repeats() {
        let line = "quiet console=tty0 console=ttyS0,115200 dyndbg=\"file a.c +p\" root=UUID=1-2";
        let last = json!({"quiet": true, "console": "ttyS0,115200", "dyndbg": "\"file a.c +p\"", "root": "UUID=1-2"});
        assert_eq!(command_line(line, false), last);
        assert_eq!(command_line(line, true)["console"], json!(["tty0", "ttyS0,115200"]));
        assert_eq!(command_line("", true), json!({}));
    }

    #[test]
    fn systemd_says_its_version_and_features_in_its_library() {
        let path = "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.4-1.fc.so";
        let (_scratch, node) = Scratch::node(&[(path, "\u{7f}ELF\0-PAM\0+PAM -AUDIT x=unified\0+PAM\0")]);
        let expected = json!({"features": "+PAM -AUDIT x=unified", "version": 252});
        assert_eq!(systemd(&node), Some(expected));
        // The same as in this machine's library.
        let this = Node::open("/".as_ref()).unwrap();
        let told = std::process::Command::new("systemctl").arg("--version").output();
        if let (Some(found), Ok(told)) = (systemd(&this), told) {
            let told = String::from_utf8(told.stdout).unwrap();
            assert_eq!(found["features"], told.lines().nth(1).unwrap());
            assert_eq!(found["version"].to_string(), told.split(' ').nth(1).unwrap());
        }
    }

    #[test]
    fn the_full_name_is_the_dotted_one_of_the_same_address() {
        for (hosts, expected) in [
            ("127.0.0.1 localhost\n10.0.0.7 n7.example.org n7\n", "n7.example.org"),
            ("127.0.0.1 localhost\n127.0.0.1 n7 # me\n", "localhost"),
            ("127.0.0.1 localhost\n", "n7"),
            ("", "n7"),
        ] {
            assert_eq!(full_name("n7", hosts), expected, "{hosts:?}");
        }
    }
}
