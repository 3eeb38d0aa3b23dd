//! A result file of any bytes: one sound tree comes out.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run gojson fuzz/corpus/gojson tests/fixtures/fuzz/gojson`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::file("gojson", bytes));
