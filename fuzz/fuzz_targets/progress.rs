//! An update of any bytes: taken within its budget or refused.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run progress fuzz/corpus/progress tests/fixtures/fuzz/progress`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::progress(bytes));
