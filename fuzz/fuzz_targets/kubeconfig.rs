//! A kubeconfig of any bytes: taken or refused.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run kubeconfig fuzz/corpus/kubeconfig tests/fixtures/fuzz/kubeconfig`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sonobuoy::fuzzing::kubeconfig(bytes));
