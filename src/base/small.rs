//! Reads small user-named files, with a size limit, and files that may be missing; names paths in
//! errors of the system.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a whole file; an error of the kind `FileTooLarge` if it has more than `limit` bytes, which
/// also covers endless files such as devices.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(path)?, limit)
}

/// Like [`read`], for an open file such as standard input.
pub fn read_from(input: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    input.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        let why = format!("it is larger than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(content)
}

/// Like [`read`], but only a regular file or a link to one, since opening a pipe may block forever.
/// For names from a file or a folder; names on the command line may be pipes.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    read(path, limit)
}

/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The content as text.
pub fn text(content: Vec<u8>) -> io::Result<String> {
    String::from_utf8(content).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let reason = match error.as_bytes().starts_with(&GZIP) {
            true => "it is a compressed file and not text".to_owned(),
            false => format!("it is not text: byte {place} is not UTF-8"),
        };
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

/// Puts the path in front of an error, which the system's message lacks.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// The result of an access to a file or folder; `None` if it does not exist.
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_other_than_text_is_described() {
        assert_eq!(text(b"a".to_vec()).unwrap(), "a");
        for (content, expected) in [
            (&b"ab\xff"[..], "it is not text: byte 2 is not UTF-8"),
            (b"\x1f\x8b\x08", "it is a compressed file and not text"),
        ] {
            assert_eq!(text(content.to_vec()).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn file_is_read_completely_or_too_large() {
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

    #[test]
    #[cfg(unix)]
    fn device_is_read_up_to_the_limit_and_is_not_regular() {
        let zeros = Path::new("/dev/zero");
        assert_eq!(
            read(zeros, 4).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert_eq!(
            read_regular(zeros, 4).unwrap_err().to_string(),
            "it is not a regular file"
        );
        let folder = crate::temp::Folder::new().unwrap();
        std::fs::write(folder.join("f"), "1234").unwrap();
        std::os::unix::fs::symlink("f", folder.join("link")).unwrap();
        assert_eq!(
            read_regular(&folder.join("link"), 4)
                .and_then(text)
                .unwrap(),
            "1234"
        );
        assert!(text(vec![0xff]).unwrap_err().to_string().contains("UTF-8"));
    }
}
