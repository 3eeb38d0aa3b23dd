//! The distribution: its name, family, version and package manager.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{NodeFiles, between, pairs};
use base::json::json;

/// Ansible's families and its names of their distributions; any other distribution is its own
/// family.
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
    (
        "Suse",
        &[
            "SuSE",
            "SLES",
            "SLED",
            "SLES_SAP",
            "openSUSE",
            "openSUSE Tumbleweed",
            "openSUSE Leap",
        ],
    ),
    ("Archlinux", &["Archlinux", "Manjaro"]),
    ("Gentoo", &["Gentoo", "Funtoo"]),
];

/// Release files of the Red Hat family with the name of the variety, the most specific first, and
/// Alpine's.
const RELEASE_FILES: &[(&str, &str)] = &[
    ("/etc/alpine-release", "Alpine"),
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

pub(super) fn gather(node: &NodeFiles) -> Value {
    let paths = ["/etc/os-release", "/usr/lib/os-release"];
    let path = paths
        .into_iter()
        .find(|path| node.text(path).is_some())
        .unwrap_or(paths[0]);
    let release = assignments(node.text(path));
    let release_names = release_file(node).unwrap_or_else(|| by_os_release(node, path, &release));
    let family = FAMILIES
        .iter()
        .find(|(_, members)| members.contains(&&*release_names.name))
        .map(|(family, _)| *family);
    let or_na = |text: String| if text.is_empty() { "NA".into() } else { text };
    let version = or_na(release_names.version);
    let mut numbers = version.split('.');
    let major = numbers.next();
    let minor = match (release_names.variety, numbers.next()) {
        ("Debian" | "Amazon", Some(minor)) if release_names.name != "Ubuntu" => Some(minor),
        ("Amazon", None) => Some("NA"),
        _ => None,
    };
    json!({
        "ansible_distribution": release_names.name,
        "ansible_distribution_version": version,
        "ansible_distribution_major_version": major,
        "ansible_distribution_minor_version": minor,
        "ansible_distribution_release": or_na(release_names.release),
        "ansible_distribution_file_path": release_names.path,
        "ansible_distribution_file_variety": release_names.variety,
        "ansible_distribution_file_parsed": true,
        "ansible_os_family": family.unwrap_or(&release_names.name),
        "ansible_lsb": lsb(node, &release),
        "ansible_pkg_mgr": package_manager(node, family),
        "sonobuoy_os_release": release,
    })
}

struct Release {
    name: String,
    version: String,
    release: String,
    path: &'static str,
    variety: &'static str,
}

/// Variables by name.
type Assignments = BTreeMap<String, String>;

/// Parses a file of assignments such as os-release.
fn assignments(text: Option<String>) -> Assignments {
    let text = text.unwrap_or_default();
    pairs(&text, '=')
        .filter(|(key, _)| !key.starts_with('#'))
        .map(|(key, value)| (key.to_owned(), value.trim_matches(['"', '\'']).to_owned()))
        .collect()
}

/// Parses release files such as `Rocky Linux release 9.2 (Blue Onyx)` and Alpine's bare version.
fn release_file(node: &NodeFiles) -> Option<Release> {
    let (path, variety, text) = RELEASE_FILES
        .iter()
        .find_map(|(path, variety)| Some((*path, *variety, node.text(path)?)))?;
    let name = match text.split_whitespace().next()? {
        _ if variety == "Alpine" => variety,
        "Red" => "RedHat",
        "Oracle" => "OracleLinux",
        name => name,
    };
    let version = text
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    // 7.9.2009 is known as 7.9.
    let parts = if variety == "Alpine" { usize::MAX } else { 2 };
    let version: Vec<&str> = version.unwrap_or_default().split('.').take(parts).collect();
    let release = between(&text, '(', ')').unwrap_or_default().into();
    Some(Release {
        name: name.into(),
        version: version.join("."),
        release,
        path,
        variety,
    })
}

fn by_os_release(node: &NodeFiles, path: &'static str, release: &Assignments) -> Release {
    let field = |key: &str| release.get(key).cloned().unwrap_or_default();
    let (id, name, mut version) = (field("ID"), field("NAME"), field("VERSION_ID"));
    if ["suse", "sles", "sled"]
        .iter()
        .any(|name| id.contains(name))
        || field("ID_LIKE").contains("suse")
    {
        let no_minor = if id.contains("opensuse") { "" } else { "0" };
        let release = version
            .split_once('.')
            .map_or(no_minor, |(_, minor)| minor)
            .to_owned();
        return Release {
            name,
            release,
            version,
            path,
            variety: "SUSE",
        };
    }
    let (name, variety) = match BY_ID.iter().find(|(known, ..)| *known == id) {
        Some((_, name, variety)) => ((*name).to_owned(), *variety),
        None if name.is_empty() => ("Linux".into(), "NA"),
        None => (name, "NA"),
    };
    // Debian's os-release has only the major number.
    if let Some(exact) = node.text("/etc/debian_version")
        && name == "Debian"
        && exact.starts_with(|c: char| c.is_ascii_digit())
    {
        version = exact;
    }
    let release = if id == "flatcar" {
        let text = node.first(["/etc/flatcar/update.conf", "/usr/share/flatcar/update.conf"]);
        assignments(text).remove("GROUP").unwrap_or_default()
    } else {
        field("VERSION_CODENAME")
    };
    Release {
        name,
        version,
        release,
        path,
        variety,
    }
}

fn lsb(node: &NodeFiles, release: &Assignments) -> Assignments {
    let lsb_release = assignments(node.text("/etc/lsb-release"));
    // Without its own file, what `lsb_release` would print if it is installed.
    let is_program = lsb_release.is_empty() && node.exists("/usr/bin/lsb_release");
    let names = [
        ("id", "DISTRIB_ID", "NAME"),
        ("description", "DISTRIB_DESCRIPTION", "PRETTY_NAME"),
        ("release", "DISTRIB_RELEASE", "VERSION_ID"),
        ("codename", "DISTRIB_CODENAME", "VERSION_CODENAME"),
    ];
    let mut values: Assignments = names
        .into_iter()
        .filter_map(|(name, key, of_program)| {
            let value = if is_program {
                release.get(of_program)
            } else {
                lsb_release.get(key)
            };
            Some((name.to_owned(), value?.clone()))
        })
        .collect();
    if let Some(id) = values.get_mut("id").filter(|_| is_program) {
        id.truncate(id.find(' ').unwrap_or(id.len()));
    }
    if let Some(release) = values.get("release") {
        let major = release.split('.').next().unwrap_or_default().to_owned();
        values.insert("major_release".into(), major);
    }
    values
}

fn package_manager(node: &NodeFiles, family: Option<&str>) -> &'static str {
    if node.exists("/run/ostree-booted") {
        return "atomic_container";
    }
    // Debian may have dnf as a package, but uses apt all the same.
    if family == Some("Debian") && node.exists("/usr/bin/apt-get") {
        return "apt";
    }
    PACKAGE_MANAGERS
        .iter()
        .rfind(|(program, _)| node.exists(program))
        .map_or("unknown", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    fn check(name: &str, files: &[(&str, &str)], expected: [&str; 6]) {
        let (_scratch, node) = Scratch::node(files);
        let facts = gather(&node);
        let keys = [
            "distribution",
            "distribution_version",
            "distribution_major_version",
            "distribution_release",
            "os_family",
            "distribution_file_variety",
        ];
        assert_eq!(
            keys.map(|key| facts[format!("ansible_{key}")].as_str().unwrap()),
            expected,
            "{name}"
        );
    }

    #[test]
    fn distributions_are_named_like_ansible() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian \
                      GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        check(
            "debian",
            &[
                ("etc/os-release", debian),
                ("etc/debian_version", "12.11\n"),
            ],
            ["Debian", "12.11", "12", "bookworm", "Debian", "Debian"],
        );
        let ubuntu = "NAME=\"Ubuntu\"\nVERSION_ID=\"22.04\"\nVERSION_CODENAME=jammy\nID=ubuntu\n\
                      ID_LIKE=debian\n";
        check(
            "ubuntu",
            &[
                ("etc/os-release", ubuntu),
                ("etc/debian_version", "bookworm/sid\n"),
            ],
            ["Ubuntu", "22.04", "22", "jammy", "Debian", "Debian"],
        );
        check(
            "rocky",
            &[(
                "etc/redhat-release",
                "Rocky Linux release 9.2 (Blue Onyx)\n",
            )],
            ["Rocky", "9.2", "9", "Blue Onyx", "RedHat", "RedHat"],
        );
        check(
            "centos",
            &[(
                "etc/centos-release",
                "CentOS Linux release 7.9.2009 (Core)\n",
            )],
            ["CentOS", "7.9", "7", "Core", "RedHat", "CentOS"],
        );
        check(
            "rhel",
            &[(
                "etc/redhat-release",
                "Red Hat Enterprise Linux release 8.8 (Ootpa)\n",
            )],
            ["RedHat", "8.8", "8", "Ootpa", "RedHat", "RedHat"],
        );
        check(
            "alpine",
            &[("etc/alpine-release", "3.18.2\n")],
            ["Alpine", "3.18.2", "3", "NA", "Alpine", "Alpine"],
        );
        let sles = "NAME=\"SLES\"\nVERSION_ID=\"15.4\"\nID=\"sles\"\nID_LIKE=\"suse\"\n";
        check(
            "sles",
            &[("etc/os-release", sles)],
            ["SLES", "15.4", "15", "4", "Suse", "SUSE"],
        );
        let talos = "NAME=\"Talos\"\nID=talos\nVERSION_ID=v1.7.0\n";
        check(
            "talos",
            &[("usr/lib/os-release", talos)],
            ["Talos", "v1.7.0", "v1", "NA", "Talos", "NA"],
        );
        check("nothing", &[], ["Linux", "NA", "NA", "NA", "Linux", "NA"]);
    }
}
