//! The running system: names, kernel, command line, uptime, load, init, and its security features.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::{Map, Value};

use super::{Facts, NodeFiles, field};
use base::json::json;

/// Service managers by the name of process 1 and the first of these paths that exists; an empty path always matches.
const SERVICE_MANAGERS: &[(&[&str], &str, &str)] = &[
    (&["runit-init"], "", "runit"),
    (&["svscan"], "", "svc"),
    (&["openrc-init"], "", "openrc"),
    (&["systemd"], "", "systemd"),
    (&["init", "bash", "sh"], "/run/systemd/system", "systemd"),
    (&["init", "bash", "sh"], "/dev/.run/systemd", "systemd"),
    (&["init", "bash", "sh"], "/dev/.systemd", "systemd"),
    (&["init", "bash", "sh"], "/sbin/openrc", "openrc"),
    (&["init", "bash", "sh"], "/etc/init.d", "sysvinit"),
    (&["bash", "sh"], "", "service"),
];

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    facts.set("system", "Linux");
    facts.set_some("kernel", node.text("/proc/sys/kernel/osrelease"));
    facts.set_some("kernel_version", node.text("/proc/sys/kernel/version"));
    facts.set_some("machine_id", node.first(["/etc/machine-id", "/var/lib/dbus/machine-id"]));
    names(node, facts);
    machine(node, facts);
    if let Some(line) = node.text("/proc/cmdline") {
        facts.set("cmdline", command_line(&line, false));
        facts.set("proc_cmdline", command_line(&line, true));
    }
    let uptime = node.text("/proc/uptime").unwrap_or_default();
    facts.set_some("uptime_seconds", uptime.split('.').next().and_then(|text| text.parse::<u64>().ok()));
    loadavg(node, facts);
    // A node below a folder is not a chroot.
    let place = |path: &str| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let first = place("/proc/1/root/.");
    facts.set("is_chroot", node.root.parent().is_none() && first.is_some() && place("/") != first);
    if let Some(first) = node.text("/proc/1/comm") {
        let manager = SERVICE_MANAGERS.iter().find(|(names, path, _)| {
            names.contains(&first.as_str()) && (path.is_empty() || node.exists(path))
        });
        let manager = manager.map_or(first.as_str(), |(.., manager)| manager);
        facts.set("service_mgr", manager);
        facts.set_some("systemd", systemd(node).filter(|_| manager == "systemd"));
    }
    let initiator = node.text("/etc/iscsi/initiatorname.iscsi").unwrap_or_default();
    facts.set("iscsi_iqn", field(&initiator, '=', "InitiatorName").unwrap_or_default());
    facts.set("hostnqn", node.text("/etc/nvme/hostnqn").unwrap_or_default());
    let ports = node.list("/sys/class/fc_host").into_iter();
    let ports = ports.filter_map(|host| node.some(&format!("/sys/class/fc_host/{host}/port_name")));
    let ports = ports.map(|name| name.trim_start_matches("0x").to_owned());
    facts.set("fibre_channel_wwn", ports.collect::<Vec<_>>());
    security(node, facts);
}

fn names(node: &NodeFiles, facts: &mut Facts) {
    let Some(name) = node.first(["/proc/sys/kernel/hostname", "/etc/hostname"]) else { return };
    let full = full_name(&name, &node.text("/etc/hosts").unwrap_or_default());
    facts.set("hostname", name.split('.').next());
    facts.set("domain", full.split_once('.').map_or("", |(_, domain)| domain));
    facts.set("fqdn", full);
    facts.set("nodename", name);
}

/// The name that `/etc/hosts` has for the first address of `name`. Does not query name servers, which may not respond.
fn full_name(name: &str, hosts: &str) -> String {
    let words = |line| str::split(line, '#').next().unwrap_or_default().split_whitespace();
    let address = hosts.lines().find(|line| words(line).skip(1).any(|word| word == name));
    let address = address.and_then(|line| words(line).next());
    let same = hosts.lines().filter(|line| address.is_some() && words(line).next() == address);
    let named: Vec<&str> = same.flat_map(|line| words(line).skip(1)).collect();
    let dotted = named.iter().find(|name| name.contains('.'));
    (*dotted.or(named.first()).unwrap_or(&name)).to_owned()
}

fn machine(node: &NodeFiles, facts: &mut Facts) {
    let running = || node.live.then(|| rustix::system::uname().machine().to_string_lossy().into_owned());
    let Some(machine) = node.some("/proc/sys/kernel/arch").or_else(running) else { return };
    let programs = ["/usr/bin/env", "/bin/sh", "/sbin/init", "/usr/bin/kubelet"];
    let bits = programs.iter().find_map(|path| match node.bytes(path)?.get(..5)? {
        b"\x7fELF\x01" => Some("32"),
        b"\x7fELF\x02" => Some("64"),
        _ => None,
    });
    let bits = bits.unwrap_or(if machine.contains("64") { "64" } else { "32" });
    facts.set("userspace_bits", bits);
    let is_mixed = machine == "x86_64" && bits == "32";
    facts.set("userspace_architecture", if is_mixed { "i386" } else { &machine });
    let is_old = matches!(machine.as_str(), "i486" | "i586" | "i686");
    facts.set("architecture", if is_old { "i386" } else { &machine });
    facts.set("machine", machine);
}

/// Words of the kernel's command line; a word without `=` is `true`. Repeated words yield the last value or, with `all`, a
/// list.
fn command_line(line: &str, all: bool) -> Value {
    let mut words = Map::new();
    let mut quoted = false;
    // Blanks between double quotes belong to the word.
    let mut ends = |c: char| {
        quoted ^= c == '"';
        !quoted && c.is_whitespace()
    };
    for word in line.split(&mut ends).filter(|word| !word.is_empty()) {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Value::from(value)),
            None => (word, Value::Bool(true)),
        };
        match words.get_mut(key) {
            Some(Value::Array(values)) if all => values.push(value),
            Some(before) if all => *before = json!([before.take(), value]),
            _ => drop(words.insert(key.to_owned(), value)),
        }
    }
    Value::Object(words)
}

fn loadavg(node: &NodeFiles, facts: &mut Facts) {
    // The system call is more precise than the two digits in the kernel's file; Ansible uses it, too.
    let loads = if node.live {
        let loads = rustix::system::sysinfo().loads;
        loads.map(|load| f64::from(u32::try_from(load).unwrap_or(u32::MAX)) / 65_536.0).to_vec()
    } else {
        let text = node.text("/proc/loadavg").unwrap_or_default();
        text.split_whitespace().take(3).filter_map(|word| word.parse().ok()).collect()
    };
    if let [one, five, fifteen] = loads[..] {
        facts.set("loadavg", json!({ "1m": one, "5m": five, "15m": fifteen }));
    }
}

/// The output of `systemctl --version`, read from the name and content of a library without running a program.
fn systemd(node: &NodeFiles) -> Option<Value> {
    let folders = ["/usr/lib", "/usr/lib64", "/lib", "/run/current-system/systemd/lib"].map(str::to_owned);
    let of_machine = |name: String| name.contains("-linux-gnu").then(|| format!("/usr/lib/{name}"));
    let more = node.list("/usr/lib").into_iter().filter_map(of_machine);
    let mut libraries = folders.into_iter().chain(more).flat_map(|folder| {
        let folder = format!("{folder}/systemd");
        node.list(&folder).into_iter().map(move |name| (folder.clone(), name))
    });
    libraries.find_map(|(folder, name)| {
        let version = name.strip_prefix("libsystemd-shared-")?.strip_suffix(".so")?;
        let version: u64 = version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        let bytes = node.bytes(&format!("{folder}/{name}"))?;
        let is_list = |text: &&[u8]| text.starts_with(b"+PAM ") || text.starts_with(b"-PAM ");
        let features = std::str::from_utf8(bytes.split(|byte| *byte == 0).find(is_list)?).ok()?;
        Some(json!({ "features": features, "version": version }))
    })
}

fn security(node: &NodeFiles, facts: &mut Facts) {
    facts.set("fips", node.text("/proc/sys/crypto/fips_enabled").as_deref() == Some("1"));
    let apparmor = if node.is_dir("/sys/kernel/security/apparmor") { "enabled" } else { "disabled" };
    facts.set("apparmor", json!({ "status": apparmor }));
    facts.set("selinux", selinux(node));
    for kind in ["dsa", "rsa", "ecdsa", "ed25519"] {
        let files = ["/etc/ssh", "/etc/openssh", "/etc"].map(|at| format!("{at}/ssh_host_{kind}_key.pub"));
        let text = node.first(files).unwrap_or_default();
        if let [keytype, key, ..] = text.split_whitespace().collect::<Vec<_>>()[..] {
            facts.set(&format!("ssh_host_key_{kind}_public"), key);
            facts.set(&format!("ssh_host_key_{kind}_public_keytype"), keytype);
        }
    }
    let lockdown = node.chosen("/sys/kernel/security/lockdown");
    let modules = node.text("/sys/kernel/security/lsm");
    facts.set_own("security", json!({ "lockdown": lockdown, "modules": modules }));
}

fn selinux(node: &NodeFiles) -> Value {
    let Some(enforcing) = node.text("/sys/fs/selinux/enforce") else {
        return json!({ "status": "disabled" });
    };
    let config = node.text("/etc/selinux/config").unwrap_or_default();
    let field = |name| field(&config, '=', name).map_or_else(|| "unknown".into(), str::to_lowercase);
    let version = node.number::<u64>("/sys/fs/selinux/policyvers");
    json!({
        "status": "enabled",
        "mode": if enforcing == "1" { "enforcing" } else { "permissive" },
        "config_mode": field("SELINUX"),
        "type": field("SELINUXTYPE"),
        "policyvers": version.map_or_else(|| "unknown".into(), Value::from),
    })
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn kernel_command_line_keeps_quotes_and_collects_repetitions() {
        let line = "quiet console=tty0 console=ttyS0,115200 dyndbg=\"file a.c +p\" root=UUID=1-2";
        let last = json!({"quiet": true, "console": "ttyS0,115200", "dyndbg": "\"file a.c +p\"", "root": "UUID=1-2"});
        assert_eq!(command_line(line, false), last);
        assert_eq!(command_line(line, true)["console"], json!(["tty0", "ttyS0,115200"]));
        assert_eq!(command_line("", true), json!({}));
    }

    #[test]
    fn systemd_version_and_features_are_read_from_its_library() {
        let path = "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.4-1.fc.so";
        let (_scratch, node) = Scratch::node(&[(path, "\u{7f}ELF\0-PAM\0+PAM -AUDIT x=unified\0+PAM\0")]);
        let expected = json!({"features": "+PAM -AUDIT x=unified", "version": 252});
        assert_eq!(systemd(&node), Some(expected));
        // The same as in this machine's library.
        let this = NodeFiles::open("/".as_ref()).unwrap();
        let told = std::process::Command::new("systemctl").arg("--version").output();
        if let (Some(found), Ok(told)) = (systemd(&this), told) {
            let told = String::from_utf8(told.stdout).unwrap();
            assert_eq!(found["features"], told.lines().nth(1).unwrap());
            assert_eq!(found["version"].to_string(), told.split(' ').nth(1).unwrap());
        }
    }

    #[test]
    fn fqdn_is_the_dotted_name_of_the_same_address() {
        for (hosts, expected) in [
            ("127.0.0.1 localhost\n10.0.0.7 n7.example.org n7\n", "n7.example.org"),
            ("127.0.0.1 localhost\n127.0.0.1 n7 # me\n", "localhost"),
            ("127.0.0.1 localhost\n", "n7"),
            ("", "n7"),
        ] {
            assert_eq!(full_name("n7", hosts), expected, "{hosts:?}");
        }
    }

    #[test]
    fn selinux_is_read_from_the_kernel_and_its_config() {
        let files = [
            ("sys/fs/selinux/enforce", "0"),
            ("sys/fs/selinux/policyvers", "33"),
            ("etc/selinux/config", "# mode\nSELINUX=enforcing\nSELINUXTYPE=targeted\n"),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let expected = json!({"status": "enabled", "mode": "permissive", "config_mode": "enforcing", "type": "targeted", "policyvers": 33});
        assert_eq!(selinux(&node), expected);
    }
}
