//! What must hold of what an API server or a kubeconfig may say; called by the fuzzers and, with their corpus, by a test.

use super::{Config, Options, websocket};

/// A stream of any bytes means the same in pieces of every size, and holds no more than was sent.
pub fn frames(bytes: &[u8]) {
    let whole = websocket::frames(bytes, usize::MAX);
    let held: usize = whole.0.iter().map(Vec::len).sum();
    assert!(held <= bytes.len());
    for piece in [1, 3, 64] {
        assert_eq!(websocket::frames(bytes, piece), whole, "in pieces of {piece}");
    }
}

/// A kubeconfig of any bytes is taken or refused in words that are not empty.
pub fn kubeconfig(bytes: &[u8]) {
    let shm = std::path::Path::new("/dev/shm");
    let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let id = (std::process::id(), std::thread::current().id());
    let path = base.join(format!("sonobuoy-fuzz-{}-{:?}", id.0, id.1));
    std::fs::write(&path, bytes).expect("a file");
    let read = Config::load(&Options { path: Some(path.clone()), ..Options::default() });
    std::fs::remove_file(&path).expect("the file");
    match read {
        Ok(config) => assert!(!config.server.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_fuzzers_found_stays_sound() {
        crate::testing::corpus("websocket").for_each(|bytes| super::frames(&bytes));
        crate::testing::corpus("kubeconfig").for_each(|bytes| super::kubeconfig(&bytes));
    }
}
