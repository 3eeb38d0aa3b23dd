//! A text of any bytes: read with its place, or refused.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run yaml fuzz/corpus/yaml tests/fixtures/fuzz/yaml`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::yaml(bytes));
