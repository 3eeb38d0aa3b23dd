//! Tests that need what a machine may lack: who says so, and where that is not accepted.
//!
//! A skip names what is missing by one word: a program (`kubectl`) or an ability of the machine (`root`). It is always
//! printed. Under `SONOBUOY_TESTS=strict` it fails the test, unless `SONOBUOY_TESTS_MISSING` has that word among others
//! parted by blanks. `.ci/run` sets both: what it could not install may be missing, nothing else.

use std::path::PathBuf;

/// Says that a test, or a part of it, does not run here since `missing` is missing, and why that is known.
///
/// Where everybody sees it: what goes through `eprintln!` is shown of failed tests only.
#[track_caller]
pub fn skipped(missing: &str, why: &str) {
    use std::io::Write as _;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}: {why}");
    let variable = |name| std::env::var(name).unwrap_or_default();
    assert!(
        accepted(missing, &variable("SONOBUOY_TESTS"), &variable("SONOBUOY_TESTS_MISSING")),
        "SONOBUOY_TESTS=strict, and SONOBUOY_TESTS_MISSING does not name `{missing}`: {why}"
    );
}

fn accepted(missing: &str, mode: &str, known: &str) -> bool {
    mode != "strict" || known.split_whitespace().any(|word| word == missing)
}

/// Where a program is; without it the test is skipped.
#[track_caller]
pub fn program(name: &str) -> Option<PathBuf> {
    any_program(&[name])
}

/// Where one of several programs is that are equally good; without all of them the test is skipped for want of the first.
#[track_caller]
pub fn any_program(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<_> =
        std::env::var_os("PATH").iter().flat_map(|path| std::env::split_paths(path)).collect();
    let found = names
        .iter()
        .map(|name| format!("{name}{}", std::env::consts::EXE_SUFFIX))
        .flat_map(|name| folders.iter().map(move |folder| folder.join(&name)))
        .find(|path| path.is_file());
    if found.is_none() {
        skipped(names[0], "it is not installed");
    }
    found
}

#[test]
fn a_strict_run_accepts_only_what_is_known_to_be_missing() {
    for (mode, known, expected) in [
        ("", "", true),
        ("lax", "", true),
        ("strict", "", false),
        ("strict", "kubectl", true),
        ("strict", "fish  kubectl\nzsh", true),
        ("strict", "kubectl-neat", false),
    ] {
        assert_eq!(accepted("kubectl", mode, known), expected, "{mode:?} {known:?}");
    }
}
