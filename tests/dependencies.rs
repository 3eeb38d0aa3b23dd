//! Dependencies comply with the lists of deny.toml: licences, duplicate crates, sources. cargo-deny
//! checks more of the same lists where it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::support::skipped;

/// A crate that some build of the project compiles or links.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
    license: String,
}

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// All crates of one system's build, or of any system's; `None` if some are not on this machine.
fn tree(target: &[&str]) -> Option<BTreeSet<Crate>> {
    let words = [
        "tree",
        "--locked",
        "--offline",
        "--workspace",
        "--edges=all",
        "--prefix=none",
        "--format={p}|{l}",
    ];
    let tree = Command::new(env!("CARGO"))
        .args(words)
        .args(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let lines = String::from_utf8(tree.stdout).unwrap();
    // Workspace crates have a path.
    let others = lines
        .lines()
        .filter(|line| line.contains('|') && !line.contains(" (/"));
    let read = |line: &str| {
        let (package, license) = line.trim_end_matches(" (*)").split_once('|').unwrap();
        let (name, version) = package.split_once(' ').unwrap();
        let version = version
            .split(' ')
            .next()
            .unwrap()
            .trim_start_matches('v')
            .to_owned();
        Crate {
            name: name.into(),
            version,
            license: license.into(),
        }
    };
    tree.status.success().then(|| others.map(read).collect())
}

fn crates() -> BTreeSet<Crate> {
    let crates = tree(&["--target=all"]).unwrap_or_else(|| {
        skipped(
            "crates",
            "those for other systems have not been fetched; `cargo fetch` does",
        );
        tree(&[]).expect("what was built is there")
    });
    assert!(crates.len() > 50, "{} crates", crates.len());
    crates
}

/// The lines of a list in deny.toml.
fn list<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("\n{name} = [\n");
    let list = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("no list `{name}`"))
        .1;
    list.split("\n]").next().unwrap().lines().collect()
}

/// The quoted value after `key = `, or the first quoted value.
fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_once(key)?.1.split('"').nth(1)
}

/// Whether the allowed licences satisfy an SPDX expression; adds the required ones to `used`.
fn allows<'a>(expression: &'a str, allowed: &[&str], used: &mut BTreeSet<&'a str>) -> bool {
    if let Some((open, rest)) = expression.split_once('(') {
        // No crate nests deeper: an inner expression is one operand of the outer one.
        let (inside, after) = rest.split_once(')').unwrap();
        let outside = [open.trim(), after.trim()]
            .into_iter()
            .filter(|part| !part.is_empty());
        let outside: Vec<_> = outside
            .map(|part| part.trim_start_matches("AND ").trim_end_matches(" AND"))
            .collect();
        assert!(
            !outside.iter().any(|part| part.contains("OR")),
            "{expression}"
        );
        return allows(inside, allowed, used)
            && outside.iter().all(|part| allows(part, allowed, used));
    }
    let choices = expression
        .split(" OR ")
        .flat_map(|choice| choice.split('/'));
    for choice in choices {
        let all: Vec<_> = choice.split(" AND ").map(str::trim).collect();
        if all.iter().all(|license| allowed.contains(license)) {
            used.extend(all);
            return true;
        }
    }
    false
}

#[test]
fn licence_expressions_are_parsed() {
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("Unlicense/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND ISC", true),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("ISC AND (GPL-3.0 OR MIT)", true),
        ("(GPL-3.0 OR MIT) AND GPL-2.0", false),
        ("MIT WITH extra", false),
        ("", false),
    ] {
        assert_eq!(
            allows(expression, &["MIT", "ISC"], &mut BTreeSet::new()),
            expected,
            "{expression}"
        );
    }
}

#[test]
fn licences_are_allowed_and_each_entry_is_used() {
    let deny = file("deny.toml");
    let allowed: Vec<_> = list(&deny, "allow")
        .into_iter()
        .filter_map(|line| quoted(line, ""))
        .collect();
    let clarified: BTreeMap<_, _> = deny
        .split("[[licenses.clarify]]")
        .skip(1)
        .map(|entry| {
            (
                quoted(entry, "name =").unwrap(),
                quoted(entry, "expression =").unwrap(),
            )
        })
        .collect();
    let crates = crates();
    let mut used = BTreeSet::new();
    for Crate {
        name,
        version,
        license,
    } in &crates
    {
        let expression = clarified.get(name.as_str()).copied().unwrap_or(license);
        assert!(
            allows(expression, &allowed, &mut used),
            "{name} {version}: `{license}` is not allowed"
        );
    }
    let vain: Vec<_> = allowed
        .iter()
        .filter(|license| !used.contains(*license))
        .collect();
    assert!(vain.is_empty(), "no dependency needs {vain:?}");
}

#[test]
fn duplicate_crate_versions_have_a_reason() {
    let deny = file("deny.toml");
    let excused: Vec<_> = list(&deny, "skip")
        .into_iter()
        .map(|line| {
            assert!(
                line.contains("}, # "),
                "deny.toml: why is it accepted? {line}"
            );
            (
                quoted(line, "name =").unwrap(),
                quoted(line, "version =").unwrap(),
            )
        })
        .collect();
    let crates = crates();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Crate { name, version, .. } in &crates {
        if !excused
            .iter()
            .any(|(other, beginning)| other == name && version.starts_with(beginning))
        {
            versions.entry(name).or_default().push(version);
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(
        versions.is_empty(),
        "give a reason in deny.toml, or get rid of one: {versions:?}"
    );
}

#[test]
fn every_crate_is_locked_to_a_registry_checksum() {
    let lock = file("Cargo.lock");
    for package in lock.split("[[package]]\n").skip(1) {
        let source = quoted(package, "source =");
        let name = quoted(package, "name =").unwrap();
        match source {
            None => assert!(name.starts_with("sonobuoy"), "`{name}` has no source"),
            Some(source) => {
                assert_eq!(
                    source, "registry+https://github.com/rust-lang/crates.io-index",
                    "{name}"
                );
                assert!(
                    quoted(package, "checksum =").is_some(),
                    "`{name}` has no checksum"
                );
            }
        }
    }
}
