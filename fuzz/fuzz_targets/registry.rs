//! What a registry answers: read or refused.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run registry fuzz/corpus/registry tests/fixtures/fuzz/registry`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::registry(bytes));
