//! A result file of any bytes: one sound tree comes out.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run manual fuzz/corpus/manual tests/fixtures/fuzz/manual`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::file("manual", bytes));
