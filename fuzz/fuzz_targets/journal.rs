//! A journal of any bytes: its whole records are read.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run journal fuzz/corpus/journal tests/fixtures/fuzz/journal`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::journal(bytes));
