//! The distribution: its name, family, version and package manager.

use std::collections::BTreeMap;

use super::{Facts, NodeFiles, between, pairs};
use base::json::json;

/// Ansible's families and its names of their distributions; any other distribution is its own family.
const FAMILIES: &[(&str, &[&str])] = &[
    (
        "RedHat",
        &[
            "RedHat",
            "Fedora",
            "CentOS",
            "Scientific",
            "CloudLinux",
            "OracleLinux",
            "Amazon",
            "Virtuozzo",
            "XenServer",
            "Alibaba",
            "EulerOS",
            "openEuler",
            "AlmaLinux",
            "Rocky",
            "TencentOS",
            "EuroLinux",
        ],
    ),
    (
        "Debian",
        &[
            "Debian",
            "Ubuntu",
            "Raspbian",
            "Linux Mint",
            "SteamOS",
            "Devuan",
            "Kali",
            "Cumulus Linux",
            "Pop!_OS",
            "Uos",
            "Deepin",
        ],
    ),
    ("Suse", &["SuSE", "SLES", "SLED", "SLES_SAP", "openSUSE", "openSUSE Tumbleweed", "openSUSE Leap"]),
    ("Archlinux", &["Archlinux", "Manjaro"]),
    ("Gentoo", &["Gentoo", "Funtoo"]),
];

/// Release files of the Red Hat family with the name of the variety, the most specific first.
const RELEASE_FILES: &[(&str, &str)] = &[
    ("/etc/oracle-release", "OracleLinux"),
    ("/etc/centos-release", "CentOS"),
    ("/etc/redhat-release", "RedHat"),
];

/// Distributions known only from os-release: its ID, Ansible's name, variety.
const BY_ID: &[(&str, &str, &str)] = &[
    ("debian", "Debian", "Debian"),
    ("raspbian", "Debian", "Debian"),
    ("ubuntu", "Ubuntu", "Debian"),
    ("linuxmint", "Linux Mint", "Debian"),
    ("kali", "Kali", "Debian"),
    ("devuan", "Devuan", "Debian"),
    ("amzn", "Amazon", "Amazon"),
    ("arch", "Archlinux", "Archlinux"),
    ("flatcar", "Flatcar", "Flatcar"),
    ("gentoo", "Gentoo", "Gentoo"),
];

/// Programs and their package managers; the last match wins.
const PACKAGE_MANAGERS: &[(&str, &str)] = &[
    ("/usr/bin/yum", "yum"),
    ("/usr/bin/apt-get", "apt"),
    ("/usr/bin/zypper", "zypper"),
    ("/usr/bin/pacman", "pacman"),
    ("/sbin/apk", "apk"),
    ("/usr/bin/apk", "apk"),
    ("/usr/bin/emerge", "portage"),
    ("/usr/bin/dnf", "dnf"),
    ("/usr/bin/dnf-3", "dnf"),
    ("/usr/bin/dnf5", "dnf5"),
    ("/usr/bin/swupd", "swupd"),
];

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    let paths = ["/etc/os-release", "/usr/lib/os-release"];
    let read = paths.into_iter().find_map(|path| Some((path, assignments(&node.some(path)?))));
    let (path, release) = read.unwrap_or((paths[0], BTreeMap::new()));
    let found = release_file(node).unwrap_or_else(|| by_os_release(node, path, &release));
    let family = FAMILIES.iter().find(|(_, members)| members.contains(&&*found.name));
    let family = family.map(|(family, _)| *family);
    let version = if found.version.is_empty() { "NA" } else { &found.version };
    let mut numbers = version.split('.');
    facts.set("distribution_major_version", numbers.next().unwrap_or("NA"));
    match (found.variety, numbers.next()) {
        ("Debian" | "Amazon", Some(minor)) if found.name != "Ubuntu" => {
            facts.set("distribution_minor_version", minor);
        }
        ("Amazon", None) => facts.set("distribution_minor_version", "NA"),
        _ => {}
    }
    facts.set("os_family", family.unwrap_or(&found.name));
    facts.set("distribution_version", version);
    facts.set("distribution_release", if found.release.is_empty() { "NA" } else { &found.release });
    facts.set("distribution_file_path", found.path);
    facts.set("distribution_file_variety", found.variety);
    facts.set("distribution_file_parsed", true);
    facts.set("lsb", lsb(node, &release));
    facts.set("pkg_mgr", package_manager(node, family));
    facts.set("distribution", found.name);
    facts.set_own("os_release", release);
}

struct Release {
    name: String,
    version: String,
    release: String,
    path: &'static str,
    variety: &'static str,
}

fn assignments(text: &str) -> BTreeMap<String, String> {
    let pairs = pairs(text, '=').filter(|(key, _)| !key.starts_with('#'));
    pairs.map(|(key, value)| (key.to_owned(), value.trim_matches(['"', '\'']).to_owned())).collect()
}

/// Parses release files such as `Rocky Linux release 9.2 (Blue Onyx)` and Alpine's bare version.
fn release_file(node: &NodeFiles) -> Option<Release> {
    if let Some(version) = node.some("/etc/alpine-release") {
        let (path, variety) = ("/etc/alpine-release", "Alpine");
        return Some(Release { name: variety.into(), version, release: String::new(), path, variety });
    }
    let (path, variety, text) =
        RELEASE_FILES.iter().find_map(|(path, variety)| Some((*path, *variety, node.some(path)?)))?;
    let name = match text.split_whitespace().next()? {
        "Red" => "RedHat",
        "Oracle" => "OracleLinux",
        name => name,
    };
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    // 7.9.2009 is known as 7.9.
    let version: Vec<&str> = version.unwrap_or_default().split('.').take(2).collect();
    let release = between(&text, '(', ')').unwrap_or_default().into();
    Some(Release { name: name.into(), version: version.join("."), release, path, variety })
}

fn by_os_release(node: &NodeFiles, path: &'static str, release: &BTreeMap<String, String>) -> Release {
    let field = |key: &str| release.get(key).cloned().unwrap_or_default();
    let (id, version) = (field("ID"), field("VERSION_ID"));
    if ["suse", "sles", "sled"].iter().any(|name| id.contains(name)) || field("ID_LIKE").contains("suse") {
        let minor = version
            .split_once('.')
            .map_or(if id.contains("opensuse") { "" } else { "0" }, |(_, minor)| minor);
        return Release { name: field("NAME"), release: minor.into(), version, path, variety: "SUSE" };
    }
    let known = BY_ID.iter().find(|(known, ..)| *known == id);
    let (name, variety) = match (known, field("NAME")) {
        (Some((_, name, variety)), _) => ((*name).to_owned(), *variety),
        (None, name) if name.is_empty() => ("Linux".into(), "NA"),
        (None, name) => (name, "NA"),
    };
    // Debian's os-release has only the major number.
    let exact = node
        .some("/etc/debian_version")
        .filter(|text| name == "Debian" && text.starts_with(|c: char| c.is_ascii_digit()));
    let release = if id == "flatcar" {
        let text = node.first(["/etc/flatcar/update.conf", "/usr/share/flatcar/update.conf"]);
        assignments(&text.unwrap_or_default()).remove("GROUP").unwrap_or_default()
    } else {
        field("VERSION_CODENAME")
    };
    Release { name, version: exact.unwrap_or(version), release, path, variety }
}

fn lsb(node: &NodeFiles, release: &BTreeMap<String, String>) -> serde_json::Value {
    let own = assignments(&node.text("/etc/lsb-release").unwrap_or_default());
    let names = [
        ("id", "DISTRIB_ID", "NAME"),
        ("description", "DISTRIB_DESCRIPTION", "PRETTY_NAME"),
        ("release", "DISTRIB_RELEASE", "VERSION_ID"),
        ("codename", "DISTRIB_CODENAME", "VERSION_CODENAME"),
    ];
    // Without its own file, what `lsb_release` would print if it is installed.
    let program = node.exists("/usr/bin/lsb_release");
    let mut facts: BTreeMap<&str, String> = BTreeMap::new();
    for (name, key, fallback) in names {
        if let Some(value) = own.get(key) {
            facts.insert(name, value.clone());
        } else if let Some(value) = release.get(fallback).filter(|_| program && own.is_empty()) {
            let id = value.split_whitespace().next().filter(|_| name == "id");
            facts.insert(name, id.unwrap_or(value).to_owned());
        }
    }
    if let Some(release) = facts.get("release") {
        let major = release.split('.').next().unwrap_or(release).to_owned();
        facts.insert("major_release", major);
    }
    json!(facts)
}

fn package_manager(node: &NodeFiles, family: Option<&str>) -> &'static str {
    if node.exists("/run/ostree-booted") {
        return "atomic_container";
    }
    // Debian may have dnf as a package, but uses apt all the same.
    if family == Some("Debian") && node.exists("/usr/bin/apt-get") {
        return "apt";
    }
    let found = PACKAGE_MANAGERS.iter().rfind(|(program, _)| node.exists(program));
    found.map_or("unknown", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    fn check(name: &str, files: &[(&str, &str)], expected: [&str; 6]) {
        let (_scratch, node) = Scratch::node(files);
        let mut facts = Facts::default();
        gather(&node, &mut facts);
        let keys = [
            "distribution",
            "distribution_version",
            "distribution_major_version",
            "distribution_release",
            "os_family",
            "distribution_file_variety",
        ];
        assert_eq!(keys.map(|key| facts.text(key)), expected, "{name}");
    }

    #[test]
    fn distributions_are_named_like_ansible() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        check(
            "debian",
            &[("etc/os-release", debian), ("etc/debian_version", "12.11\n")],
            ["Debian", "12.11", "12", "bookworm", "Debian", "Debian"],
        );
        let ubuntu =
            "NAME=\"Ubuntu\"\nVERSION_ID=\"22.04\"\nVERSION_CODENAME=jammy\nID=ubuntu\nID_LIKE=debian\n";
        check(
            "ubuntu",
            &[("etc/os-release", ubuntu), ("etc/debian_version", "bookworm/sid\n")],
            ["Ubuntu", "22.04", "22", "jammy", "Debian", "Debian"],
        );
        check(
            "rocky",
            &[("etc/redhat-release", "Rocky Linux release 9.2 (Blue Onyx)\n")],
            ["Rocky", "9.2", "9", "Blue Onyx", "RedHat", "RedHat"],
        );
        check(
            "centos",
            &[("etc/centos-release", "CentOS Linux release 7.9.2009 (Core)\n")],
            ["CentOS", "7.9", "7", "Core", "RedHat", "CentOS"],
        );
        check(
            "rhel",
            &[("etc/redhat-release", "Red Hat Enterprise Linux release 8.8 (Ootpa)\n")],
            ["RedHat", "8.8", "8", "Ootpa", "RedHat", "RedHat"],
        );
        check(
            "alpine",
            &[("etc/alpine-release", "3.18.2\n")],
            ["Alpine", "3.18.2", "3", "NA", "Alpine", "Alpine"],
        );
        let sles = "NAME=\"SLES\"\nVERSION_ID=\"15.4\"\nID=\"sles\"\nID_LIKE=\"suse\"\n";
        check("sles", &[("etc/os-release", sles)], ["SLES", "15.4", "15", "4", "Suse", "SUSE"]);
        let talos = "NAME=\"Talos\"\nID=talos\nVERSION_ID=v1.7.0\n";
        check("talos", &[("usr/lib/os-release", talos)], ["Talos", "v1.7.0", "v1", "NA", "Talos", "NA"]);
        check("nothing", &[], ["Linux", "NA", "NA", "NA", "Linux", "NA"]);
    }
}
