//! A connection of any bytes: it means one thing however it is split or cut, and never a panic.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run http fuzz/corpus/http tests/fixtures/fuzz/http`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::http(bytes));
