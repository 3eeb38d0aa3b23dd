//! Attacks by any client, by a plugin with its certificate, by a hostile server and by a foreign
//! archive, each as one row of a table. Every attack is rejected or harmless, and honest clients
//! continue beside it.
//!
//! Limits that take minutes to reach are those of the benchmarks; the parsers are fuzzed, see
//! `fuzz/`.

mod archives;
mod budgets;
mod peers;
#[cfg(unix)]
mod runs;
mod screen;
mod servers;
mod texts;

/// The suite must not shrink unnoticed.
#[test]
fn at_least_a_hundred_attacks() {
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
