//! The running system: names, kernel, command line, uptime, load, init, its security features, the
//! time in its zone, as in Ansible, and its time service.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regex::Regex;
use serde_json::{Map, Value};
use time::{Date, Month, OffsetDateTime, UtcOffset, Weekday, format_description};

use super::{NodeFiles, field};
use base::json::{json, list};

/// Paths that reveal the service manager if process 1 is named `init`, `bash` or `sh`; the first
/// that exists counts.
const SERVICE_MANAGERS: &[(&str, &str)] = &[
    ("/run/systemd/system", "systemd"),
    ("/dev/.run/systemd", "systemd"),
    ("/dev/.systemd", "systemd"),
    ("/sbin/openrc", "openrc"),
    ("/etc/init.d", "sysvinit"),
];

pub(super) fn kernel(node: &NodeFiles) -> Value {
    let line = node.text("/proc/cmdline");
    let words = |all| line.as_ref().map(|line| command_line(line, all));
    // The system call is more precise than the two digits in the kernel's file; Ansible uses it,
    // too.
    let loads = if node.live {
        let loads = rustix::system::sysinfo().loads;
        loads
            .map(|load| f64::from(u32::try_from(load).unwrap_or(u32::MAX)) / 65_536.0)
            .to_vec()
    } else {
        let text = node.text("/proc/loadavg").unwrap_or_default();
        text.split(' ')
            .take(3)
            .filter_map(|load| load.parse().ok())
            .collect()
    };
    let loads = match loads[..] {
        [one, five, fifteen] => json!({ "1m": one, "5m": five, "15m": fifteen }),
        _ => Value::Null,
    };
    let place = |path: &str| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let first = place("/proc/1/root/.");
    json!({
        "ansible_system": "Linux",
        "ansible_kernel": node.text("/proc/sys/kernel/osrelease"),
        "ansible_kernel_version": node.text("/proc/sys/kernel/version"),
        "sonobuoy_boot_id": node.text("/proc/sys/kernel/random/boot_id"),
        "ansible_machine_id": node.first(["/etc/machine-id", "/var/lib/dbus/machine-id"]),
        "ansible_cmdline": words(false),
        "ansible_proc_cmdline": words(true),
        "ansible_uptime_seconds": node.number("/proc/uptime"),
        "ansible_loadavg": loads,
        // A node below a folder is not a chroot.
        "ansible_is_chroot": node.root.parent().is_none() && first.is_some() && place("/") != first,
    })
}

pub(super) fn services(node: &NodeFiles) -> Value {
    let Some(first) = node.text("/proc/1/comm") else {
        return Value::Null;
    };
    let by_path = || {
        SERVICE_MANAGERS
            .iter()
            .find(|(path, _)| node.exists(path))
            .map(|(_, name)| *name)
    };
    let manager = match &*first {
        "runit-init" => "runit",
        "svscan" => "svc",
        "openrc-init" => "openrc",
        "init" => by_path().unwrap_or("init"),
        "bash" | "sh" => by_path().unwrap_or("service"),
        other => other,
    };
    let systemd = systemd(node).filter(|_| manager == "systemd");
    json!({ "ansible_service_mgr": manager, "ansible_systemd": systemd })
}

/// The node's names in storage networks: iSCSI, NVMe, Fibre Channel.
pub(super) fn storage_names(node: &NodeFiles) -> Value {
    let initiator = node
        .text("/etc/iscsi/initiatorname.iscsi")
        .unwrap_or_default();
    let channels = node
        .list("/sys/class/fc_host")
        .into_iter()
        .filter_map(|host| {
            Some(
                node.text(&format!("/sys/class/fc_host/{host}/port_name"))?
                    .trim_start_matches("0x")
                    .to_owned(),
            )
        });
    json!({
        "ansible_iscsi_iqn": field(&initiator, '=', "InitiatorName").unwrap_or_default(),
        "ansible_hostnqn": node.text("/etc/nvme/hostnqn").unwrap_or_default(),
        "ansible_fibre_channel_wwn": list(channels),
    })
}

pub(super) fn names(node: &NodeFiles) -> Value {
    let Some(name) = node.first(["/proc/sys/kernel/hostname", "/etc/hostname"]) else {
        return Value::Null;
    };
    let full = full_name(&name, &node.text("/etc/hosts").unwrap_or_default());
    json!({
        "ansible_hostname": name.split('.').next(),
        "ansible_domain": full.split_once('.').map_or("", |(_, domain)| domain),
        "ansible_fqdn": full,
        "ansible_nodename": name,
    })
}

/// The name that `/etc/hosts` has for the first address of `name`. Does not query name servers,
/// which may not respond.
fn full_name(name: &str, hosts: &str) -> String {
    let lines = hosts.lines().map(|line| {
        line.split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
    });
    let address = lines
        .clone()
        .find(|words| words.clone().skip(1).any(|word| word == name))
        .and_then(|mut words| words.next());
    let named: Vec<&str> = lines
        .filter(|words| address.is_some() && words.clone().next() == address)
        .flat_map(|words| words.skip(1))
        .collect();
    let dotted = named.iter().find(|name| name.contains('.'));
    (*dotted.or(named.first()).unwrap_or(&name)).to_owned()
}

/// The kernel's name of the architecture.
pub(super) fn machine(node: &NodeFiles) -> Option<String> {
    let running = || {
        node.live.then(|| {
            rustix::system::uname()
                .machine()
                .to_string_lossy()
                .into_owned()
        })
    };
    node.text("/proc/sys/kernel/arch").or_else(running)
}

pub(super) fn architecture(node: &NodeFiles) -> Value {
    let Some(machine) = machine(node) else {
        return Value::Null;
    };
    let programs = ["/usr/bin/env", "/bin/sh", "/sbin/init", "/usr/bin/kubelet"];
    let is_32_bit = programs
        .iter()
        .find_map(|path| match node.bytes(path)?.get(..5)? {
            b"\x7fELF\x01" => Some(true),
            b"\x7fELF\x02" => Some(false),
            _ => None,
        })
        .unwrap_or(!machine.contains("64"));
    let is_mixed = machine == "x86_64" && is_32_bit;
    let is_old = matches!(machine.as_str(), "i486" | "i586" | "i686");
    json!({
        "ansible_userspace_bits": if is_32_bit { "32" } else { "64" },
        "ansible_userspace_architecture": if is_mixed { "i386" } else { &machine },
        "ansible_architecture": if is_old { "i386" } else { &machine },
        "ansible_machine": machine,
    })
}

/// Words of the kernel's command line; a word without `=` is `true`. Repeated words yield the last
/// value or, with `all`, a list.
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

/// The output of `systemctl --version`, read from the name and content of a library without running
/// a program.
fn systemd(node: &NodeFiles) -> Option<Value> {
    let multiarch = node
        .list("/usr/lib")
        .into_iter()
        .filter(|name| name.contains("-linux-gnu"))
        .map(|name| format!("/usr/lib/{name}"));
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/lib",
        "/run/current-system/systemd/lib",
    ]
    .map(str::to_owned);
    folders.into_iter().chain(multiarch).find_map(|folder| {
        let folder = format!("{folder}/systemd");
        node.list(&folder).into_iter().find_map(|name| {
            let version: u64 = name
                .strip_prefix("libsystemd-shared-")?
                .strip_suffix(".so")?
                .split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()?;
            let bytes = node.bytes(&format!("{folder}/{name}"))?;
            let is_list = |text: &&[u8]| text.starts_with(b"+PAM ") || text.starts_with(b"-PAM ");
            let features =
                std::str::from_utf8(bytes.split(|byte| *byte == 0).find(is_list)?).ok()?;
            Some(json!({ "features": features, "version": version }))
        })
    })
}

pub(super) fn security(node: &NodeFiles) -> Value {
    let apparmor = if node.exists("/sys/kernel/security/apparmor") {
        "enabled"
    } else {
        "disabled"
    };
    let mut facts = json!({
        "ansible_fips": node.text("/proc/sys/crypto/fips_enabled").as_deref() == Some("1"),
        "ansible_apparmor": { "status": apparmor },
        "ansible_selinux": selinux(node),
        "sonobuoy_security": {
            "lockdown": node.chosen("/sys/kernel/security/lockdown"),
            "modules": node.text("/sys/kernel/security/lsm"),
        },
    });
    for kind in ["dsa", "rsa", "ecdsa", "ed25519"] {
        let files =
            ["/etc/ssh", "/etc/openssh", "/etc"].map(|at| format!("{at}/ssh_host_{kind}_key.pub"));
        let text = node.first(files).unwrap_or_default();
        if let [keytype, key, ..] = text.split_whitespace().collect::<Vec<_>>()[..] {
            facts[format!("ansible_ssh_host_key_{kind}_public")] = key.into();
            facts[format!("ansible_ssh_host_key_{kind}_public_keytype")] = keytype.into();
        }
    }
    facts
}

fn selinux(node: &NodeFiles) -> Value {
    let Some(enforcing) = node.text("/sys/fs/selinux/enforce") else {
        return json!({ "status": "disabled" });
    };
    let config = node.text("/etc/selinux/config").unwrap_or_default();
    let field =
        |name| field(&config, '=', name).map_or_else(|| "unknown".into(), str::to_lowercase);
    let version = node.number("/sys/fs/selinux/policyvers");
    json!({
        "status": "enabled",
        "mode": if enforcing == "1" { "enforcing" } else { "permissive" },
        "config_mode": field("SELINUX"),
        "type": field("SELINUXTYPE"),
        "policyvers": version.map_or_else(|| "unknown".into(), Value::from),
    })
}

const NAME: &str = "(<[^>]+>|[A-Za-z]+)";
const TIME: &str = r"([-+]?\d{1,3}(?::\d\d){0,2})";
/// Month, week and weekday.
const DAY: &str = r"M(\d{1,2})\.([1-5])\.([0-6])";

/// Facts about a time, in the notation of the crate `time`; those that end in `Z` are in UTC.
const TIMES: &[(&str, &str)] = &[
    ("date", "[year]-[month]-[day]"),
    ("time", "[hour]:[minute]:[second]"),
    ("year", "[year]"),
    ("month", "[month]"),
    ("day", "[day]"),
    ("hour", "[hour]"),
    ("minute", "[minute]"),
    ("second", "[second]"),
    ("weekday", "[weekday]"),
    ("weekday_number", "[weekday repr:sunday one_indexed:false]"),
    ("weeknumber", "[week_number repr:monday]"),
    ("epoch", "[unix_timestamp]"),
    ("epoch_int", "[unix_timestamp]"),
    ("iso8601", "[year]-[month]-[day]T[hour]:[minute]:[second]Z"),
    (
        "iso8601_micro",
        "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z",
    ),
    (
        "iso8601_basic",
        "[year][month][day]T[hour][minute][second][subsecond digits:6]",
    ),
    (
        "iso8601_basic_short",
        "[year][month][day]T[hour][minute][second]",
    ),
    ("tz_offset", "[offset_hour sign:mandatory][offset_minute]"),
];

/// Files that exist while a time service keeps the clock.
const TIME_SERVICES: &[(&str, &str)] = &[
    ("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
    ("/run/chrony/chronyd.pid", "chrony"),
    ("/run/chronyd.pid", "chrony"),
    ("/run/chrony/chronyd.sock", "chrony"),
    ("/run/ntpd.pid", "ntpd"),
    ("/run/ptp4l", "ptp4l"),
];

pub(super) fn clock(node: &NodeFiles) -> Value {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let file = node.bytes("/etc/localtime").unwrap_or_default();
    let rule = file
        .rsplit(|byte| *byte == b'\n')
        .nth(1)
        .and_then(|rule| std::str::from_utf8(rule).ok());
    let zone = || {
        Some(
            node.link("/etc/localtime")?
                .to_str()?
                .split_once("zoneinfo/")?
                .1
                .to_owned(),
        )
    };
    let service = TIME_SERVICES.iter().find(|(path, _)| node.exists(path));
    json!({
        "ansible_date_time": date_time(since, rule.unwrap_or("UTC0")),
        "sonobuoy_clock": {
            "source": node.text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            "zone": node.text("/etc/timezone").or_else(zone),
            "synchronised_by": service.map(|(_, name)| *name),
        },
    })
}

/// Offset from UTC in seconds and name of a zone at a time, and its name in summer, by the last
/// line of a zone file (RFC 9636), the rule for the present: `CET-1CEST,M3.5.0,M10.5.0/3`.
fn offset(rule: &str, epoch: i64) -> Option<(i32, &str, &str)> {
    let turn = format!("{DAY}(?:/{TIME})?");
    let form = Regex::new(&format!("^{NAME}{TIME}(?:{NAME}{TIME}?,{turn},{turn})?$")).ok()?;
    let captures = form.captures(rule)?;
    let text = |index| captures.get(index).map(|part| part.as_str());
    let name = |index| Some(text(index)?.trim_matches(['<', '>']));
    let (winter, winter_name) = (-seconds(text(2)?), name(1)?);
    let Some(summer_name) = name(3) else {
        return Some((winter, winter_name, winter_name));
    };
    let summer = text(4).map_or(winter + 3_600, |west| -seconds(west));
    let year = OffsetDateTime::from_unix_timestamp(epoch + i64::from(winter))
        .ok()?
        .year();
    // The clock changes at a local time of the n-th such weekday of a month; the fifth is the last.
    let turn = |at: usize, offset: i32| {
        let number = |index| text(index)?.parse::<u8>().ok();
        let (month, week, weekday) = (number(at)?, number(at + 1)?, number(at + 2)?);
        let start = Date::from_calendar_date(year, Month::try_from(month).ok()?, 1).ok()?;
        let weekday = Weekday::Sunday.nth_next(weekday);
        let mut day = start.previous_day()?.nth_next_occurrence(weekday, week);
        if day.month() != start.month() {
            day = day.prev_occurrence(weekday);
        }
        let local = seconds(text(at + 3).unwrap_or("2"));
        Some(day.midnight().assume_utc().unix_timestamp() + i64::from(local - offset))
    };
    let (begin, end) = (turn(5, winter)?, turn(9, summer)?);
    // South of the equator, summer spans the new year.
    let is_summer = if begin < end {
        (begin..end).contains(&epoch)
    } else {
        !(end..begin).contains(&epoch)
    };
    let (offset, name) = if is_summer {
        (summer, summer_name)
    } else {
        (winter, winter_name)
    };
    Some((offset, name, summer_name))
}

/// Parses `-1`, `5:45`, `2:00:30`.
fn seconds(text: &str) -> i32 {
    let seconds: i32 = text
        .trim_start_matches(['-', '+'])
        .split(':')
        .zip([3_600, 60, 1])
        .map(|(part, unit)| part.parse::<i32>().unwrap_or(0) * unit)
        .sum();
    if text.starts_with('-') {
        -seconds
    } else {
        seconds
    }
}

fn date_time(since: Duration, rule: &str) -> Value {
    let utc = OffsetDateTime::from(UNIX_EPOCH + since);
    let (offset, name, summer_name) =
        offset(rule, utc.unix_timestamp()).unwrap_or((0, "UTC", "UTC"));
    let offset = UtcOffset::from_whole_seconds(offset).unwrap_or(UtcOffset::UTC);
    let local = utc.to_offset(offset);
    let mut facts = json!({ "tz": name, "tz_dst": summer_name });
    for (key, form) in TIMES {
        let time = if form.ends_with('Z') { utc } else { local };
        let form = format_description::parse_borrowed::<2>(form).ok();
        facts[key] = form.and_then(|form| time.format(&form).ok()).into();
    }
    facts
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
        assert_eq!(
            command_line(line, true)["console"],
            json!(["tty0", "ttyS0,115200"])
        );
        assert_eq!(command_line("", true), json!({}));
    }

    #[test]
    fn systemd_version_and_features_are_read_from_its_library() {
        let path = "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.4-1.fc.so";
        let (_scratch, node) =
            Scratch::node(&[(path, "\u{7f}ELF\0-PAM\0+PAM -AUDIT x=unified\0+PAM\0")]);
        let expected = json!({"features": "+PAM -AUDIT x=unified", "version": 252});
        assert_eq!(systemd(&node), Some(expected));
        // The same as in this machine's library.
        let this = NodeFiles::open("/".as_ref()).unwrap();
        let told = std::process::Command::new("systemctl")
            .arg("--version")
            .output();
        if let (Some(found), Ok(told)) = (systemd(&this), told) {
            let told = String::from_utf8(told.stdout).unwrap();
            assert_eq!(found["features"], told.lines().nth(1).unwrap());
            assert_eq!(
                found["version"].to_string(),
                told.split(' ').nth(1).unwrap()
            );
        }
    }

    #[test]
    fn fqdn_is_the_dotted_name_of_the_same_address() {
        for (hosts, expected) in [
            (
                "127.0.0.1 localhost\n10.0.0.7 n7.example.org n7\n",
                "n7.example.org",
            ),
            ("127.0.0.1 localhost\n127.0.0.1 n7 # me\n", "localhost"),
            ("127.0.0.1 localhost\n", "n7"),
            ("", "n7"),
        ] {
            assert_eq!(full_name("n7", hosts), expected, "{hosts:?}");
        }
    }

    #[test]
    fn host_keys_are_facts() {
        let key = (
            "etc/ssh/ssh_host_ed25519_key.pub",
            "ssh-ed25519 AAAA root@n7\n",
        );
        let (_scratch, node) = Scratch::node(&[key]);
        let facts = security(&node);
        assert_eq!(facts["ansible_ssh_host_key_ed25519_public"], "AAAA");
        assert_eq!(
            facts["ansible_ssh_host_key_ed25519_public_keytype"],
            "ssh-ed25519"
        );
    }

    #[test]
    fn selinux_is_read_from_the_kernel_and_its_config() {
        let files = [
            ("sys/fs/selinux/enforce", "0"),
            ("sys/fs/selinux/policyvers", "33"),
            (
                "etc/selinux/config",
                "# mode\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
            ),
        ];
        let (_scratch, node) = Scratch::node(&files);
        let expected = json!({"status": "enabled", "mode": "permissive", "config_mode": "enforcing", "type": "targeted", "policyvers": 33});
        assert_eq!(selinux(&node), expected);
    }

    fn check_date(epoch: u64, expected: [&str; 4]) {
        let found = date_time(Duration::new(epoch, 42_000), "UTC0");
        let keys = ["date", "weekday", "weeknumber", "iso8601_micro"];
        assert_eq!(
            keys.map(|key| found[key].as_str().unwrap().to_owned()),
            expected,
            "{epoch}"
        );
    }

    #[test]
    fn weeks_begin_on_monday() {
        check_date(
            1_795_228_849,
            [
                "2026-11-21",
                "Saturday",
                "46",
                "2026-11-21T02:40:49.000042Z",
            ],
        );
        check_date(
            1_704_067_200,
            ["2024-01-01", "Monday", "01", "2024-01-01T00:00:00.000042Z"],
        );
        check_date(
            1_672_531_200,
            ["2023-01-01", "Sunday", "00", "2023-01-01T00:00:00.000042Z"],
        );
        check_date(
            1_735_603_200,
            ["2024-12-31", "Tuesday", "53", "2024-12-31T00:00:00.000042Z"],
        );
    }

    #[test]
    fn daylight_saving_rules_work_on_both_hemispheres() {
        let check = |rule: &str, epoch: i64, expected: (i32, &str, &str)| {
            assert_eq!(offset(rule, epoch), Some(expected), "{rule} at {epoch}");
        };
        let paris = "CET-1CEST,M3.5.0,M10.5.0/3";
        check(paris, 1_711_846_799, (3_600, "CET", "CEST"));
        check(paris, 1_711_846_800, (7_200, "CEST", "CEST"));
        check(paris, 1_729_990_799, (7_200, "CEST", "CEST"));
        check(paris, 1_729_990_800, (3_600, "CET", "CEST"));
        let sydney = "AEST-10AEDT,M10.1.0,M4.1.0/3";
        check(sydney, 1_704_067_200, (39_600, "AEDT", "AEDT"));
        check(sydney, 1_719_792_000, (36_000, "AEST", "AEDT"));
        check("<+0545>-5:45", 1_719_792_000, (20_700, "+0545", "+0545"));
        check(
            "EST5EDT,M3.2.0,M11.1.0",
            1_719_792_000,
            (-14_400, "EDT", "EDT"),
        );
        check("UTC0", 0, (0, "UTC", "UTC"));
        for broken in [
            "",
            "TZif2\0",
            "CET",
            "CET-1CEST,J60,M10.5.0",
            "CET-9999999999",
        ] {
            assert_eq!(offset(broken, 0), None, "{broken}");
        }
    }
}
