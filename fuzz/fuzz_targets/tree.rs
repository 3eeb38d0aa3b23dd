//! A stored tree of any bytes: read or refused.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run tree fuzz/corpus/tree tests/fixtures/fuzz/tree`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::tree(bytes));
