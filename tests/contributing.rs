//! Contributor documentation: its commands exist, and CI runs them.

use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The minimum Rust version of the manifest.
fn oldest_rust() -> String {
    let manifest = text("Cargo.toml");
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap();
    line.trim_matches('"').to_owned()
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// All functions of the program with their modules:
/// `http::tests::attack::slow_upload_is_replaced`.
fn functions() -> String {
    let (mut sources, mut all) = (Vec::new(), String::new());
    files(&root().join("src"), "rs", &mut sources);
    for source in sources {
        let module = source
            .strip_prefix(root().join("src"))
            .unwrap()
            .with_extension("");
        let module = module.to_str().unwrap().replace(['/', '\\'], "::");
        for line in std::fs::read_to_string(&source).unwrap().lines() {
            if let Some((name, _)) = line
                .trim()
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once('('))
            {
                all.push_str(&format!("{module}::{name}\n"));
            }
        }
    }
    all
}

#[test]
fn forms_and_workflows_have_required_keys() {
    let mut found = Vec::new();
    files(&root().join(".github"), "yml", &mut found);
    assert!(found.len() >= 5, "{found:?}");
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let document: Value = serde_yaml::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let wanted: &[&str] = match path
            .parent()
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
        {
            Some("workflows") => &["name", "on", "permissions", "jobs"],
            Some("ISSUE_TEMPLATE") if !path.ends_with("config.yml") => {
                &["name", "description", "body"]
            }
            _ => &[],
        };
        for key in wanted {
            assert!(!document[*key].is_null(), "{}: no `{key}`", path.display());
        }
    }
}

#[test]
fn minimum_rust_version_is_consistent() {
    let oldest = oldest_rust();
    let workflow: Value = serde_yaml::from_str(&text(".github/workflows/ci.yml")).unwrap();
    let versions = &workflow["jobs"]["linux"]["strategy"]["matrix"]["rust"];
    assert_eq!(versions, &serde_json::json!(["stable", oldest]));
    assert!(
        text("CONTRIBUTING.md").contains(&format!("Rust {oldest} or")),
        "CONTRIBUTING.md: not Rust {oldest}"
    );
}

#[test]
fn documented_commands_exist() {
    let makefile = text("Makefile");
    for page in ["README.md", "CONTRIBUTING.md"] {
        let text = text(page);
        let commands: Vec<_> = text.split('`').skip(1).step_by(2).collect();
        for command in commands {
            let word = command.split(' ').next().unwrap_or_default();
            if let Some(target) = command.strip_prefix("make ") {
                assert!(
                    makefile.contains(&format!("\n{target}:")),
                    "{page}: no target `{target}`"
                );
            }
            if word.starts_with("./") || word.starts_with(".ci/") || word.starts_with("tests/") {
                assert!(root().join(word).exists(), "{page}: no `{word}`");
            }
        }
    }
}

#[test]
fn changelog_has_a_section_for_the_version() {
    let changelog = text("CHANGELOG.md");
    let sections: Vec<_> = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert_eq!(sections.first(), Some(&"[Unreleased]"));
    let version = format!("[{}] - ", env!("CARGO_PKG_VERSION"));
    let dated = sections[1..]
        .iter()
        .filter(|section| section.starts_with(&version))
        .count();
    assert_eq!(dated, 1, "a section `## {version}DATE`: {sections:?}");
}

/// A filter without matches runs no test and succeeds.
#[test]
fn test_filters_of_scripts_match_tests() {
    let (functions, mut seen) = (functions(), 0);
    for script in ["scripts/test", "scripts/ci/machines"] {
        for word in text(script)
            .split("--skip ")
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next())
        {
            assert!(
                functions.contains(word),
                "{script}: no test matches `--skip {word}`"
            );
        }
        for word in text(script).split_whitespace() {
            let Some((module, prefix)) = word.split_once("::") else {
                continue;
            };
            let Ok(tests) = std::fs::read_to_string(root().join(format!("tests/{module}.rs")))
            else {
                continue;
            };
            assert!(
                tests.contains(&format!("#[test]\nfn {prefix}")),
                "{script}: no test matches `{word}`"
            );
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
}
