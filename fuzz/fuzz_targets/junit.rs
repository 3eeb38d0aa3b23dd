//! A result file of any bytes: one sound tree comes out.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run junit fuzz/corpus/junit tests/fixtures/fuzz/junit`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::file("junit", bytes));
