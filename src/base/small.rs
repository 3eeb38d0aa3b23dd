//! Files that somebody names, of which nobody expects much: read whole, within a bound.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// All of a file; an error of the kind `FileTooLarge` if it has more than `limit` bytes. What never ends, such as a device,
/// is not read to its end.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        let why = format!("it is larger than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_is_too_large() {
        let folder = crate::temp::Folder::new().unwrap();
        let path = folder.join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let error = read(&path, 4).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it is larger than 4 bytes")
        );
        assert!(read(&folder.join("missing"), 4).is_err());
    }
}
