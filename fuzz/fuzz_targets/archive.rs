//! An archive of any bytes: unpacked inside its folder or refused.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run archive fuzz/corpus/archive tests/fixtures/fuzz/archive`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::archive(bytes));
