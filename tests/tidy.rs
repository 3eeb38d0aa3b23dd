//! Conventions that neither the compiler nor Cargo checks: layers within crates, prohibited imports,
//! headers, leftovers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Markers of unfinished work. Split in halves, so that this file does not contain them.
const LEFTOVERS: &[(&str, &str)] = &[("TO", "DO"), ("FIX", "ME"), ("X", "XX:"), ("H", "ACK")];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
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
            let name = path
                .strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// A block of the map in the docs of `src/lib.rs`, line by line.
fn block(kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let block = text
        .split(&format!("//! ```{kind}\n"))
        .nth(1)
        .expect("the map")
        .split("//! ```")
        .next()
        .unwrap();
    block
        .lines()
        .map(|line| line.trim_start_matches("//!").trim().to_owned())
        .collect()
}

/// The layer of each module; 0 is the top.
fn layers() -> BTreeMap<String, usize> {
    let mut layers = BTreeMap::new();
    for (layer, line) in block("text").iter().enumerate() {
        for name in line.split_whitespace().filter(|word| *word != "|") {
            let name = name.trim_end_matches('/').to_owned();
            assert_eq!(
                layers.insert(name.clone(), layer),
                None,
                "`{name}` is twice in the map"
            );
        }
    }
    layers
}

/// The part of a file before its tests: tests may import anything.
fn without_tests(text: &str) -> &str {
    // A condition of the system may stand between the two lines.
    let start = [
        "#[cfg(test)]\nmod tests",
        "#[cfg(test)]\n#[cfg(unix)]\nmod tests",
    ]
    .iter()
    .find_map(|line| text.find(line));
    start.map_or(text, |start| &text[..start])
}

/// Imports by crate path: `crate::x` and `base::x`, as `x` of that crate.
fn imports(text: &str, prefix: &str) -> Vec<String> {
    let code: String = without_tests(text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let after = &code[at + prefix.len()..];
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
            name.trim()
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
                .unwrap()
                .to_owned()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

/// Crates whose modules have layers; the others have one subject each.
const LAYERED_CRATES: &[&str] = &["base", "model", "run"];

/// The folder of a file's crate; empty for the program.
fn crate_of(file: &str) -> Option<&str> {
    let inner = file.strip_prefix("src/")?;
    let folder = inner.split('/').next()?;
    let has_manifest = root().join("src").join(folder).join("Cargo.toml").exists();
    Some(if has_manifest { folder } else { "" })
}

/// The module of a file in a crate with layers, as the map names it; `None` for crate roots.
fn module_of(file: &str) -> Option<String> {
    let folder = crate_of(file)?;
    let inner = file.strip_prefix("src/")?;
    let (prefix, inner) = match folder {
        "" => (String::new(), inner),
        _ if LAYERED_CRATES.contains(&folder) => (format!("{folder}/"), inner.split_once('/')?.1),
        _ => return None,
    };
    let first = inner.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main"].contains(&name)).then(|| format!("{prefix}{name}"))
}

/// Test files may import anything, like inline tests.
fn is_of_tests(file: &str) -> bool {
    file.contains("tests") || file.ends_with("fixture.rs")
}

/// Modules of its own crate that a file imports, as the map names them.
fn named(file: &str, text: &str, layers: &BTreeMap<String, usize>) -> Vec<String> {
    let prefix = match crate_of(file) {
        None | Some("") => String::new(),
        Some(folder) => format!("{folder}/"),
    };
    let mut found: Vec<String> = imports(text, "crate::")
        .into_iter()
        .map(|name| format!("{prefix}{name}"))
        .collect();
    found.retain(|name| layers.contains_key(name));
    found.sort();
    found.dedup();
    found
}

/// Imports that violate the layers, or are prohibited.
fn broken(
    layers: &BTreeMap<String, usize>,
    never: &[String],
    files: &[(String, String)],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in files {
        let Some(module) = module_of(file).filter(|_| !is_of_tests(file)) else {
            continue;
        };
        for import in named(file, text, layers) {
            if import != module && layers[&import] <= layers[&module] {
                wrong.push(format!(
                    "{file}: `{module}` imports `{import}`, which is not in a layer below"
                ));
            }
        }
        for (modules, crates) in never.iter().filter_map(|line| line.split_once(':')) {
            if !modules.split_whitespace().any(|name| name == module) {
                continue;
            }
            for name in crates.split_whitespace() {
                if !imports(text, &format!("{name}::")).is_empty() {
                    wrong.push(format!("{file}: `{module}` must never import `{name}`"));
                }
            }
        }
    }
    wrong
}

#[test]
fn map_lists_exactly_the_modules() {
    let layers = layers();
    let mut modules: Vec<_> = rust_files("src")
        .iter()
        .filter_map(|(file, _)| module_of(file))
        .collect();
    modules.sort();
    modules.dedup();
    assert_eq!(
        layers.keys().collect::<Vec<_>>(),
        modules.iter().collect::<Vec<_>>(),
        "the map and the files in src/"
    );
    for line in block("never") {
        let modules = line.split(':').next().unwrap_or_default();
        for name in modules.split_whitespace() {
            assert!(
                layers.contains_key(name),
                "the list of prohibited imports names `{name}`"
            );
        }
    }
}

#[test]
fn imports_follow_the_layers() {
    let wrong = broken(&layers(), &block("never"), &rust_files("src"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn broken_layers_are_detected() {
    let layers = BTreeMap::from([
        ("a".into(), 0),
        ("b".into(), 1),
        ("base/c".into(), 2),
        ("base/d".into(), 3),
    ]);
    let never = ["a b: kube".to_owned()];
    let check = |file: &str, text: &str, wrong: usize| {
        let found = broken(&layers, &never, &[(file.to_owned(), text.to_owned())]);
        assert_eq!(found.len(), wrong, "{file}: {text}: {found:?}");
    };
    check("src/a/x.rs", "use crate::b::Thing;", 0);
    check("src/a.rs", "use kube::Client;", 1);
    check("src/b/x.rs", "use crate::{a, b};", 1);
    check("src/client/x.rs", "use kube::Client;", 0);
    check("src/base/c.rs", "use crate::d::Thing;", 0);
    check("src/base/d.rs", "use crate::c::Thing;", 1);
    check("src/b.rs", "#[cfg(test)]\nmod tests { use crate::a; }", 0);
}

/// The names whose needs lead back to them, or to others that do.
fn circles(mut needs: BTreeMap<String, Vec<String>>) -> Vec<String> {
    loop {
        let is_free = |names: &Vec<String>| !names.iter().any(|name| needs.contains_key(name));
        let free: Vec<String> = needs
            .iter()
            .filter(|(_, names)| is_free(names))
            .map(|(name, _)| name.clone())
            .collect();
        if free.is_empty() {
            return needs.into_keys().collect();
        }
        for name in free {
            needs.remove(&name);
        }
    }
}

#[test]
fn no_two_files_of_commands_need_each_other() {
    let mut needs = BTreeMap::new();
    for (file, text) in rust_files("src/cli") {
        let name = Path::new(&file).file_stem().unwrap().to_string_lossy();
        needs.insert(name.into_owned(), imports(&text, "super::"));
    }
    assert!(needs.len() > 20 && needs["run"].contains(&"wait".to_owned()));
    assert_eq!(
        circles(needs),
        [""; 0],
        "move what they share to a file below"
    );
}

#[test]
fn circles_of_files_are_detected() {
    let needs = [
        ("a", vec!["b"]),
        ("b", vec!["c", "d"]),
        ("c", vec!["b"]),
        ("d", vec![]),
    ];
    let needs = needs.map(|(name, names)| {
        let names = names.into_iter().map(str::to_owned).collect();
        (name.to_owned(), names)
    });
    assert_eq!(circles(needs.into()), ["a", "b", "c"]);
}

#[test]
fn imports_are_parsed() {
    let text = "use crate::kube::Client;\nuse crate::{clock, http::{Server, Response}, stop::Stop};\n// crate::no\n\
                fn f() { crate::logger::init() }\n#[cfg(test)]\nmod tests { use crate::cli; }";
    assert_eq!(
        imports(text, "crate::"),
        ["kube", "clock", "http", "stop", "logger"]
    );
    assert_eq!(
        imports("use base::stop; some::base::no; database::no()", "base::"),
        ["stop"]
    );
}

/// String literals outside tests and comments.
fn literals(text: &str) -> Vec<String> {
    let code: String = without_tests(text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    code.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Crates that may know names and paths of Sonobuoy; the client has its own, which it publishes.
const KNOWS_SONOBUOY: &[&str] = &["", "model", "run", "report", "gather"];

/// Archive and run paths spelled out in a text: complete, as a prefix, or as an argument of `join`.
fn own_paths(text: &str, layout: &[String]) -> Vec<String> {
    let text = without_tests(text);
    let is_file =
        |word: &&String| word.contains('.') && !word.starts_with('.') || word.contains('/');
    let spelled = |word: &String| text.contains(&format!("\"{word}\""));
    let begun = |word: &String| text.contains(&format!("\"{word}/"));
    let joined = |word: &String| text.contains(&format!("join(\"{word}\")"));
    let plain = layout
        .iter()
        .filter(|word| !word.is_empty() && !word.contains(['{', '}']));
    plain
        .filter(|word| is_file(word) && spelled(word) || begun(word) || joined(word))
        .cloned()
        .collect()
}

#[test]
fn archive_paths_are_defined_in_layout() {
    let layout = literals(&std::fs::read_to_string(root().join("src/model/layout.rs")).unwrap());
    assert!(layout.len() > 20, "{layout:?}");
    let mut wrong = Vec::new();
    for (file, text) in rust_files("src") {
        let other_crate = !KNOWS_SONOBUOY.contains(&crate_of(&file).unwrap_or_default());
        if !other_crate && !is_of_tests(&file) && file != "src/model/layout.rs" {
            wrong.extend(
                own_paths(&text, &layout)
                    .into_iter()
                    .map(|word| format!("{file}: `{word}`")),
            );
        }
    }
    assert!(
        wrong.is_empty(),
        "`layout` says where things stand:\n{}",
        wrong.join("\n")
    );
    let broken = "fn f() { a.join(\"results\"); b(\"meta/info.json\"); format!(\"plugins/{x}\"); c(\"results\") }";
    assert_eq!(
        own_paths(broken, &layout),
        ["meta", "meta/info.json", "plugins", "results"]
    );
}

/// Only unmistakable literals: with a dash, a slash or the prefix of our variables.
#[test]
fn cluster_names_are_defined_in_names() {
    let mut names = literals(&std::fs::read_to_string(root().join("src/model/names.rs")).unwrap());
    names.retain(|name| {
        name.contains(['-', '/']) && !name.contains('{') || name.starts_with("SONOBUOY_")
    });
    assert!(names.len() > 20, "{names:?}");
    let mut wrong = Vec::new();
    let own_names = |text: &str| -> Vec<String> {
        literals(text)
            .into_iter()
            .filter(|literal| names.contains(literal))
            .collect()
    };
    for (file, text) in rust_files("src") {
        let other_crate = !KNOWS_SONOBUOY.contains(&crate_of(&file).unwrap_or_default());
        if !other_crate && !is_of_tests(&file) && file != "src/model/names.rs" {
            wrong.extend(
                own_names(&text)
                    .into_iter()
                    .map(|name| format!("{file}: `{name}`")),
            );
        }
    }
    assert!(
        wrong.is_empty(),
        "`names` says what things are called:\n{}",
        wrong.join("\n")
    );
    let broken =
        "// \"sonobuoy-plugin\"\nfn f() { label(\"sonobuoy-plugin\"); label(\"of-nobody\") }";
    assert_eq!(own_names(broken), ["sonobuoy-plugin"]);
}

#[test]
fn files_have_headers() {
    for (file, text) in ["src", "tests"]
        .iter()
        .flat_map(|folder| rust_files(folder))
    {
        assert!(text.starts_with("//!"), "{file}: no `//!` header");
    }
}

#[test]
fn waiting_uses_stop() {
    let call = ["thread", "::sleep"].concat();
    for (file, text) in ["src", "tests"]
        .iter()
        .flat_map(|folder| rust_files(folder))
    {
        assert!(
            !text.contains(&call),
            "{file}: wait through `stop::Stop`, or on what is waited for"
        );
    }
}

#[test]
fn no_leftover_markers() {
    let mut found = Vec::new();
    for folder in [
        "src",
        "tests",
        "docs",
        "plugins.d",
        "scripts",
        ".ci",
        ".github",
    ] {
        if root().join(folder).is_dir() {
            files(&root().join(folder), &mut found);
        }
    }
    for name in [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "Makefile",
        "Cargo.toml",
        "deny.toml",
    ] {
        found.push(root().join(name));
    }
    let mut wrong = Vec::new();
    for path in found
        .iter()
        .filter(|path| !path.starts_with(root().join("tests/fixtures")))
    {
        let Ok(text) = std::fs::read_to_string(path) else {
            continue;
        };
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
fn dependencies_have_reasons() {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = text
        .split("\n[workspace.dependencies]\n")
        .nth(1)
        .unwrap()
        .split("\n[")
        .next()
        .unwrap();
    for line in section.lines().filter(|line| line.contains(" = ")) {
        assert!(
            line.contains(" # "),
            "Cargo.toml: what would have to be written without it? {line}"
        );
    }
}

/// Text that only the system module may contain, in halves as above.
const SYSTEM: &[(&str, &str)] = &[
    ("cfg(un", "ix"),
    ("cfg(win", "dows"),
    ("target", "_os"),
    ("std::", "os::"),
    ("rus", "tix::"),
    ("signal", "_hook"),
    ("fs", "4::"),
    ("win32", "job"),
];

/// System-specific text in a file, unless permitted.
fn of_the_system(file: &str, text: &str) -> Vec<String> {
    let is_system_module = module_of(file).as_deref() == Some("base/sys");
    // The gatherer exists on Linux alone.
    if is_of_tests(file) || is_system_module || crate_of(file) == Some("gather") {
        return Vec::new();
    }
    // Whole modules are conditional; their contents need no conditions.
    let whole = |line: &str| line.starts_with("#[cfg(") && !line.starts_with("#[cfg(test");
    let mut lines = without_tests(text).lines().peekable();
    let mut wrong = Vec::new();
    while let Some(line) = lines.next() {
        let module = lines
            .peek()
            .is_some_and(|next| next.starts_with("mod ") || next.starts_with("#[path"));
        let said = SYSTEM
            .iter()
            .map(|(one, two)| format!("{one}{two}"))
            .find(|word| line.contains(word));
        if let Some(word) = said.filter(|_| !(whole(line) && module)) {
            wrong.push(format!(
                "{file}: `{word}` belongs into `base/sys`: {}",
                line.trim()
            ));
        }
    }
    wrong
}

#[test]
fn system_calls_are_in_one_module() {
    let wrong: Vec<_> = rust_files("src")
        .iter()
        .flat_map(|(file, text)| of_the_system(file, text))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let word = ["cfg(un", "ix)"].concat();
    assert_eq!(
        of_the_system("src/x.rs", &format!("fn f() {{ if {word} }}")).len(),
        1
    );
    assert_eq!(
        of_the_system("src/x.rs", &format!("#[{word}]\nmod here;\n")).len(),
        0
    );
    assert_eq!(
        of_the_system("src/x.rs", &format!("#[{word}]\nfn here() {{}}\n")).len(),
        1
    );
    assert_eq!(of_the_system("src/base/sys/mod.rs", &word).len(), 0);
}
