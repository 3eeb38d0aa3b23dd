//! Attacks: what anybody who can connect, a plugin with its certificate, a server that answers us and an archive from
//! elsewhere may try, each as one line of a table. Every one of them is refused or harmless, and what is honest
//! beside it goes on.
//!
//! Limits that take minutes to reach are those of the benchmarks; the parsers are fuzzed, see `fuzz/`.

mod archives;
mod budgets;
mod peers;
#[cfg(unix)]
mod runs;
mod screen;
mod servers;
mod texts;

/// The suite shall not shrink unnoticed.
#[test]
fn there_are_a_hundred_of_them() {
    #[cfg(unix)]
    let runs = runs::CASES;
    #[cfg(not(unix))]
    let runs = 0;
    let cases = runs
        + archives::CASES
        + budgets::CASES
        + peers::CASES
        + screen::CASES
        + servers::CASES
        + texts::CASES;
    assert!(cases >= 100, "{cases}");
}
