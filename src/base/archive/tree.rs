//! A digest of a folder with everything in it, which can be computed while its files are written,
//! in any order.
//!
//! Each entry has a SHA-256 of its path, kind and content; the digest is their sum. Memory is
//! constant, and an entry that is replaced is subtracted. A random salt is part of each SHA-256:
//! sums of hashes can be forged by whoever can compute them while choosing files, and a plugin does
//! not know the salt while it runs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ring::digest::{Context, Digest, SHA256};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::MAX_OPEN_LEVELS;
use crate::retry::patiently;
use crate::small::at;
use crate::sys::{self, Entry, Folder};

const SALT_BYTES: usize = 16;
const SUM_BYTES: usize = 32;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 128 << 10;

/// The digest of a folder.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeDigest {
    salt: [u8; SALT_BYTES],
    /// The most significant byte is the first.
    sum: [u8; SUM_BYTES],
}

impl TreeDigest {
    /// The digest of an empty folder.
    pub fn new() -> io::Result<Self> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new()
            .fill(&mut salt)
            .map_err(|_| io::Error::other("no random numbers"))?;
        Ok(Self {
            salt,
            sum: [0; SUM_BYTES],
        })
    }

    /// Reads what [`text`](Self::text) has written.
    pub fn parse(text: &str) -> Option<Self> {
        let (salt, sum) = text.split_once(':')?;
        Some(Self {
            salt: bytes_of_hex(salt)?,
            sum: bytes_of_hex(sum)?,
        })
    }

    /// Salt and sum in hexadecimal.
    pub fn text(&self) -> String {
        format!("{}:{}", crate::hex(self.salt), crate::hex(self.sum))
    }

    /// Whether the folder at `dir` has this digest. Reads all of it.
    pub fn matches(&self, dir: &Path) -> io::Result<bool> {
        let mut digest = Self {
            salt: self.salt,
            sum: [0; SUM_BYTES],
        };
        let folder = Folder::open(dir).map_err(at(dir))?;
        digest.add_content(&folder, dir, Path::new(""), 1, &mut vec![0; PIECE_BYTES])?;
        Ok(digest == *self)
    }

    /// Adds a file whose content has this SHA-256.
    pub(super) fn add_file(&mut self, path: &Path, content: &[u8]) {
        let entry = self.entry(b"file", path, content);
        self.add(entry);
    }

    /// Removes a file that is about to be replaced.
    pub(super) fn remove_file(&mut self, path: &Path, content: &[u8]) {
        let mut entry = self.entry(b"file", path, content);
        // The two's complement.
        entry.iter_mut().for_each(|byte| *byte = !*byte);
        self.add(entry);
        let mut unit = [0; SUM_BYTES];
        unit[SUM_BYTES - 1] = 1;
        self.add(unit);
    }

    pub(super) fn add_folder(&mut self, path: &Path) {
        let entry = self.entry(b"folder", path, b"");
        self.add(entry);
    }

    pub(super) fn add_link(&mut self, path: &Path, target: &Path) {
        let entry = self.entry(b"link", path, &sys::bytes_of(target.as_os_str()));
        self.add(entry);
    }

    fn add(&mut self, entry: [u8; SUM_BYTES]) {
        let mut carry = 0;
        for (sum, byte) in self.sum.iter_mut().zip(entry).rev() {
            let next = u16::from(*sum) + u16::from(byte) + carry;
            *sum = next.to_be_bytes()[1];
            carry = next >> 8;
        }
    }

    fn entry(&self, kind: &[u8], path: &Path, content: &[u8]) -> [u8; SUM_BYTES] {
        let mut digest = Context::new(&SHA256);
        digest.update(&self.salt);
        // Where the file system ignores case, a folder keeps the name of its first mention.
        let path = path
            .iter()
            .map(|part| part.to_string_lossy().to_lowercase());
        for part in path {
            digest.update(part.as_bytes());
            digest.update(b"/");
        }
        digest.update(b"\0");
        digest.update(kind);
        digest.update(b"\0");
        digest.update(content);
        let mut bytes = [0; SUM_BYTES];
        bytes.copy_from_slice(digest.finish().as_ref());
        bytes
    }

    fn add_content(
        &mut self,
        folder: &Folder,
        dir: &Path,
        name: &Path,
        level: usize,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        for file_name in patiently(|| folder.names()).map_err(at(dir))? {
            let (path, name) = (dir.join(&file_name), name.join(&file_name));
            match patiently(|| folder.entry(&file_name)).map_err(at(&path))? {
                Some(Entry::Folder(inner, _)) if level < MAX_OPEN_LEVELS => {
                    self.add_folder(&name);
                    self.add_content(&inner, &path, &name, level + 1, buffer)?;
                }
                Some(Entry::File(file, _)) => {
                    let content = sha256(&file, buffer).map_err(at(&path))?;
                    self.add_file(&name, content.as_ref());
                }
                Some(Entry::Link(target)) => self.add_link(&name, &target),
                // Nothing that was unpacked: the sum is another one.
                _ => {
                    let entry = self.entry(b"special", &name, b"");
                    self.add(entry);
                }
            }
        }
        Ok(())
    }
}

/// The SHA-256 of a file.
fn sha256(mut file: &File, buffer: &mut [u8]) -> io::Result<Digest> {
    let mut digest = Context::new(&SHA256);
    loop {
        match patiently(|| file.read(buffer))? {
            0 => return Ok(digest.finish()),
            count => digest.update(&buffer[..count]),
        }
    }
}

fn bytes_of_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn content(text: &str) -> Digest {
        crate::sha256(text)
    }

    /// The folder `d` with the file `f`, and a digest of it.
    fn folder() -> (crate::temp::Folder, TreeDigest) {
        let root = crate::temp::Folder::new().unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "text").unwrap();
        fs::write(root.join("g"), "").unwrap();
        let mut digest = TreeDigest::new().unwrap();
        digest.add_file(Path::new("d/f"), content("old").as_ref());
        digest.add_file(Path::new("g"), content("").as_ref());
        digest.remove_file(Path::new("d/f"), content("old").as_ref());
        digest.add_folder(Path::new("d"));
        digest.add_file(Path::new("d/f"), content("text").as_ref());
        (root, digest)
    }

    #[test]
    fn order_and_replaced_files_do_not_matter() {
        let (root, digest) = folder();
        assert!(digest.matches(&root).unwrap());
        assert_eq!(TreeDigest::parse(&digest.text()), Some(digest));
        assert_ne!(
            TreeDigest::new().unwrap().text(),
            TreeDigest::new().unwrap().text()
        );
        for bad in [
            "",
            ":",
            "00:00",
            &"0".repeat(97),
            &format!("{}:{}", "g".repeat(32), "0".repeat(64)),
        ] {
            assert_eq!(TreeDigest::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_alteration_is_noticed() {
        let changes: [&dyn Fn(&Path); 7] = [
            &|root| fs::write(root.join("d/f"), "texT").unwrap(),
            &|root| fs::write(root.join("d/f"), "text ").unwrap(),
            &|root| fs::remove_file(root.join("g")).unwrap(),
            &|root| fs::write(root.join("new"), "").unwrap(),
            &|root| fs::create_dir(root.join("new")).unwrap(),
            &|root| fs::rename(root.join("g"), root.join("h")).unwrap(),
            &|root| fs::rename(root.join("g"), root.join("d/g")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let (root, digest) = folder();
            change(&root);
            assert!(!digest.matches(&root).unwrap(), "{number}");
        }
    }
}
