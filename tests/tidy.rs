//! The house rules that a compiler does not know: rows of the map, headers, sizes, words.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files longer than this are two files.
const LONGEST: usize = 600;
/// Words that have no place in what is published: leftovers of work. Spelled in halves, so that they are not here either.
const LEFTOVERS: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("X", "XX:"),
    ("H", "ACK"),
    ("/wo", "rk/"),
    ("/tm", "p/w/"),
    ("un", "wrap_unchecked"),
    ("the br", "ief"),
    ("house", ".md"),
    ("cli", ".md"),
    ("core", ".md"),
    ("mtls", ".md"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn rust_files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root().join(folder), &mut found);
    found
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// The row of each module, 0 the uppermost, as the docs of `src/lib.rs` draw it.
fn rows() -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let block = text.split("//! ```text\n").nth(1).expect("the map").split("//! ```").next().unwrap();
    let mut rows = BTreeMap::new();
    for (row, line) in block.lines().enumerate() {
        for name in line.trim_start_matches("//!").split_whitespace().filter(|word| *word != "|") {
            assert_eq!(rows.insert(name.to_owned(), row), None, "`{name}` stands twice in the map");
        }
    }
    rows
}

/// The part of a file before its tests: tests may look anywhere.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

/// The top-level modules of this crate that a text names by path.
fn imports(text: &str) -> Vec<String> {
    let code: String = without_tests(text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut names = Vec::new();
    for after in code.split("crate::").skip(1) {
        if let Some(group) = after.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        names.push(std::mem::take(&mut word));
                        continue;
                    }
                    _ => {}
                }
                if depth == 0 {
                    word.push(c);
                }
            }
            names.push(word);
        } else {
            names.push(after.to_owned());
        }
    }
    names
        .iter()
        .map(|name| {
            name.trim().split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap().to_owned()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

fn module_of(file: &str) -> Option<String> {
    let inner = file.strip_prefix("src/")?;
    let first = inner.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main"].contains(&name)).then(|| name.to_owned())
}

#[test]
fn every_module_stands_in_the_map_and_the_map_names_no_other() {
    let rows = rows();
    let mut modules: Vec<_> = rust_files("src").iter().filter_map(|(file, _)| module_of(file)).collect();
    modules.sort();
    modules.dedup();
    assert_eq!(rows.into_keys().collect::<Vec<_>>(), modules, "the map in src/lib.rs and the files in src/");
}

#[test]
fn imports_go_down_the_rows() {
    let rows = rows();
    let mut wrong = Vec::new();
    for (file, text) in rust_files("src") {
        let Some(module) = module_of(&file) else { continue };
        for import in imports(&text) {
            if import == module {
                continue;
            }
            match rows.get(&import) {
                Some(row) if *row <= rows[&module] => {
                    wrong.push(format!("{file}: `{module}` imports `{import}`"));
                }
                // Items of the crate's root, such as VERSION, belong to everybody.
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "only from rows below:\n{}", wrong.join("\n"));
}

#[test]
fn the_test_of_imports_sees_them() {
    let text = "use crate::kube::Client;\nuse crate::{clock, http::{Server, Response}, stop::Stop};\n// crate::no\n\
                fn f() { crate::logger::init() }\n#[cfg(test)]\nmod tests { use crate::cli; }";
    assert_eq!(imports(text), ["kube", "clock", "http", "stop", "logger"]);
}

#[test]
fn every_file_says_what_it_is_and_is_short_enough() {
    let mut wrong = Vec::new();
    for (file, text) in ["src", "tests"].iter().flat_map(|folder| rust_files(folder)) {
        if !text.starts_with("//!") {
            wrong.push(format!("{file}: no `//!` header"));
        }
        let lines = text.lines().count();
        if lines > LONGEST {
            wrong.push(format!("{file}: {lines} lines, more than {LONGEST}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_waiting_goes_through_stop() {
    let call = ["thread", "::sleep"].concat();
    for (file, text) in ["src", "tests"].iter().flat_map(|folder| rust_files(folder)) {
        assert!(!text.contains(&call), "{file}: wait through `stop::Stop`, or on what is waited for");
    }
}

#[test]
fn nothing_is_left_over() {
    let mut found = Vec::new();
    for folder in ["src", "tests", "docs", "plugins.d", "scripts", ".ci"] {
        if root().join(folder).is_dir() {
            files(&root().join(folder), &mut found);
        }
    }
    for name in ["README.md", "CHANGELOG.md", "Makefile", "Cargo.toml"] {
        found.push(root().join(name));
    }
    let mut wrong = Vec::new();
    for path in found.iter().filter(|path| !path.starts_with(root().join("tests/fixtures"))) {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        for (number, line) in text.lines().enumerate() {
            for word in LEFTOVERS.iter().map(|(one, two)| format!("{one}{two}")) {
                if line.contains(&word) {
                    wrong.push(format!("{}:{}: `{word}`", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_dependency_has_its_reason() {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = text.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    for line in section.lines().filter(|line| line.contains(" = ")) {
        assert!(line.contains(" # "), "Cargo.toml: what would have to be written without it? {line}");
    }
}
