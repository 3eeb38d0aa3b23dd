//! A pattern of any bytes: compiled or refused, and never slow.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run pattern fuzz/corpus/pattern tests/fixtures/fuzz/pattern`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::pattern(bytes));
