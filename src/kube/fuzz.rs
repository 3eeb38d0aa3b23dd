//! What must hold for anything an API server or a kubeconfig may say; called by the fuzzers and,
//! with their corpus, by a test.

use super::exec::{Frame, Frames};
use super::{Config, Options};

/// A stream of any bytes means the same in pieces of any size, and yields no more than was sent.
pub fn frames(bytes: &[u8]) {
    let whole = messages(bytes, usize::MAX);
    let held: usize = whole.0.iter().map(Vec::len).sum();
    assert!(held <= bytes.len());
    for piece in [1, 3, 64] {
        assert_eq!(messages(bytes, piece), whole, "in pieces of {piece}");
    }
}

/// The messages of a stream that arrives in pieces of this size, and the error that ended it.
fn messages(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<&'static str>) {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        frames.feed(piece);
        loop {
            match frames.next() {
                Ok(Some(Frame::Message(message))) => found.push(message),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(why) => return (found, Some(why)),
            }
        }
    }
    (found, None)
}

/// Any bytes are accepted as a kubeconfig, or refused with a message.
pub fn kubeconfig(bytes: &[u8]) {
    let folder = base::temp::Folder::new().expect("a folder");
    let path = folder.join("config");
    std::fs::write(&path, bytes).expect("a file");
    let read = Config::load(&Options {
        path: Some(path),
        ..Options::default()
    });
    match read {
        Ok(config) => assert!(!config.server.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_findings_stay_fixed() {
        base::testing::corpus("websocket").for_each(|bytes| super::frames(&bytes));
        base::testing::corpus("kubeconfig").for_each(|bytes| super::kubeconfig(&bytes));
    }
}
