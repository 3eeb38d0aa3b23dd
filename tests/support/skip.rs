//! Skips tests whose requirements this machine lacks, and fails them where skipping is not allowed.
//!
//! A skip names the missing requirement by one word: a program (`kubectl`) or an ability of the
//! machine (`root`). It is always printed. Under `SONOBUOY_TESTS=strict` it fails the test, unless
//! `SONOBUOY_TESTS_MISSING`, a list separated by blanks, contains that word. `.ci/run` sets both,
//! and lists only programs that it could not install.

use std::path::PathBuf;

/// Reports that a test, or a part of it, is skipped since `missing` is missing, and the evidence.
///
/// Writes to stderr directly: output of `eprintln!` is shown only for failed tests.
#[track_caller]
pub fn skipped(missing: &str, why: &str) {
    use std::io::Write as _;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {missing}: {why}");
    let variable = |name| std::env::var(name).unwrap_or_default();
    assert!(
        accepted(
            missing,
            &variable("SONOBUOY_TESTS"),
            &variable("SONOBUOY_TESTS_MISSING")
        ),
        "SONOBUOY_TESTS=strict, and SONOBUOY_TESTS_MISSING does not name `{missing}`: {why}"
    );
}

fn accepted(missing: &str, mode: &str, known: &str) -> bool {
    mode != "strict" || known.split_whitespace().any(|word| word == missing)
}

/// The path of a program; skips the test without it.
#[track_caller]
pub fn program(name: &str) -> Option<PathBuf> {
    any_program(&[name])
}

/// The path of one of several equivalent programs; without all of them the test is skipped, naming
/// the first.
#[track_caller]
pub fn any_program(names: &[&str]) -> Option<PathBuf> {
    let folders: Vec<_> = std::env::var_os("PATH")
        .iter()
        .flat_map(|path| std::env::split_paths(path))
        .collect();
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
        assert_eq!(
            accepted("kubectl", mode, known),
            expected,
            "{mode:?} {known:?}"
        );
    }
}
