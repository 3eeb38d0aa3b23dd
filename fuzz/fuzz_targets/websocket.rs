//! What an API server streams: the same however it is cut, or refused.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run websocket fuzz/corpus/websocket tests/fixtures/fuzz/websocket`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::frames(bytes));
