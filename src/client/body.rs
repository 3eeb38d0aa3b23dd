//! The body of a submission: a file, a packed folder or bytes, with name, type, length and digest.
//!
//! A file is digested while it is sent, so that it is read only once: the aggregator responds with
//! the SHA-256 of the stored bytes, which is compared. Retries announce the digest beforehand, and
//! so do bytes, and folders, which are digested while packed. A change of a file is detected before
//! its last bytes are sent, and one of a folder when it has been packed, so that a mixture of two
//! versions is never accepted as a result.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use ring::digest::{Context, Digest, SHA256};

use super::Error;
use crate::protocol::GZIP;
use base::Hashing;
use base::archive::{self, PackError, Survey};
use base::retry::patiently;
use base::sys::{Folder, Version};
use base::temp;

/// Buffer size; larger buffers are not faster.
const BUFFER: usize = 64 * 1024;
/// Interval of messages about a long upload.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);
/// Prefix of a SHA-256 in `Repr-Digest`.
const SHA256_KIND: &str = "sha-256=";
/// The name of a packed folder.
const PACKED_NAME: &str = "results.tar.gz";

/// A body that can be read again for each attempt.
pub(super) struct Source<'a> {
    /// The file name to send.
    pub(super) name: String,
    kind: Kind<'a>,
    /// SHA-256 of that version, if it is known.
    digest: Option<Sent>,
}

enum Kind<'a> {
    Bytes(&'a [u8]),
    /// Opened once, so that later changes of its name have no effect. A packed folder no longer has
    /// a name.
    File(PathBuf, File),
}

/// Why the file of a body could not be read to its end.
pub(super) enum Trouble {
    /// Another program is writing it.
    Changed(&'static str),
    /// The system reports an error.
    Unreadable(io::Error),
}

impl<'a> Source<'a> {
    pub(super) fn bytes(name: &str, bytes: &'a [u8]) -> Self {
        let version = Version {
            length: bytes.len() as u64,
            modified: None,
        };
        let digest = Some((version, digest_text(base::sha256(bytes))));
        Self {
            name: name.into(),
            kind: Kind::Bytes(bytes),
            digest,
        }
    }

    pub(super) fn file(path: &Path) -> Result<Self, Error> {
        // Opening a pipe would wait for a writer.
        Self::regular(path, &path.metadata().map_err(Error::file(path))?)?;
        Self::opened(path, File::open(path).map_err(Error::file(path))?)
    }

    /// The file that was opened as `path`.
    pub(super) fn opened(path: &Path, file: File) -> Result<Self, Error> {
        Self::regular(path, &file.metadata().map_err(Error::file(path))?)?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Self {
            name,
            kind: Kind::File(path.into(), file),
            digest: None,
        })
    }

    fn regular(path: &Path, metadata: &Metadata) -> Result<(), Error> {
        if metadata.is_file() {
            return Ok(());
        }
        Err(Error::file(path)(io::Error::other("not a regular file")))
    }

    /// Packs a folder into a file that is unlinked before it is filled: nothing is left behind
    /// after a crash, and no archive contains itself. The file is created in the folder, which
    /// in a pod is the volume with space, or in the next one above it, if a plugin of another user
    /// has made the folder; or else in the system's folder for temporary files, if the volume is
    /// full or read-only.
    pub(super) fn directory(path: &Path, folder: &Folder) -> Result<Self, PackError> {
        let pack = |file: File| {
            let inner = BufWriter::with_capacity(BUFFER, file);
            // After the file was created, which changes the folder.
            let survey = Survey::take(folder, path)?;
            let (inner, digest) =
                archive::pack_open(folder, path, &survey, Hashing::new(inner))?.finish();
            let file = inner
                .into_inner()
                .map_err(|error| PackError::Output(error.into_error()))?;
            Ok((file, digest))
        };
        let pack_elsewhere = || pack(temp::file(temp::dir()).map_err(PackError::Output)?);
        // On Windows a file in the folder would still be listed.
        let in_volume = match cfg!(windows) {
            true => None,
            false => path.ancestors().find_map(|above| temp::file(above).ok()),
        };
        let (file, digest) = match in_volume.map(pack) {
            None => pack_elsewhere()?,
            Some(Err(PackError::Output(error))) => {
                pack_elsewhere().map_err(|_| PackError::Output(error))?
            }
            Some(packed) => packed?,
        };
        let mut source = Self {
            name: PACKED_NAME.into(),
            kind: Kind::File(path.into(), file),
            digest: None,
        };
        let version = source.file_version().map_err(PackError::Output)?;
        source.digest = Some((version, digest_text(digest)));
        Ok(source)
    }

    /// The path of its file, for messages.
    pub(super) fn path(&self) -> &Path {
        match &self.kind {
            Kind::File(path, _) => path,
            Kind::Bytes(_) => Path::new(&self.name),
        }
    }

    /// The value of `Repr-Digest`, if it is known before sending: for bytes, or a file that has not
    /// changed since.
    pub(super) fn digest(&self) -> Option<&str> {
        let (of, text) = self.digest.as_ref()?;
        self.version().is_ok_and(|now| now == *of).then_some(text)
    }

    /// Stores the digest of the sent bytes, for a retry.
    pub(super) fn keep(&mut self, sent: Sent) {
        self.digest = Some(sent);
    }

    /// Whether a `Repr-Digest` contradicts the sent bytes. A missing one, or another algorithm,
    /// does not.
    pub(super) fn differs((_, sent): &Sent, stored: &str) -> bool {
        let members = stored.split(',').map(str::trim);
        let is_sha256 = |member: &&str| {
            member
                .get(..SHA256_KIND.len())
                .is_some_and(|kind| kind.eq_ignore_ascii_case(SHA256_KIND))
        };
        members
            .filter(is_sha256)
            .any(|member| member[SHA256_KIND.len()..] != sent[SHA256_KIND.len()..])
    }

    /// Whether the file has changed since its digest was taken, or was removed.
    pub(super) fn changed(&self) -> bool {
        self.digest.is_some() && self.digest().is_none()
    }

    /// Its bytes, from the beginning.
    pub(super) fn body(&self) -> Result<Body<'_>, Error> {
        let version = self.version()?;
        let inner: Box<dyn Read + '_> = match &self.kind {
            Kind::Bytes(bytes) => Box::new(*bytes),
            Kind::File(path, file) => {
                let mut file = file;
                file.seek(SeekFrom::Start(0)).map_err(Error::file(path))?;
                Box::new(file)
            }
        };
        let (left, digest) = (version.length, Context::new(&SHA256));
        Ok(Body {
            source: self,
            inner,
            version,
            left,
            digest,
            trouble: None,
            told: Instant::now(),
        })
    }

    /// `Content-Disposition` as the original writes it, unquoted, if the name is a token; otherwise
    /// quoted or percent-encoded, as its parser requires.
    pub(super) fn disposition(&self) -> String {
        let name = &self.name;
        let token = |byte: u8| byte.is_ascii_graphic() && !br#"()<>@,;:\"/[]?="#.contains(&byte);
        if name.is_empty() {
            "attachment".into()
        } else if name.bytes().all(token) {
            format!("attachment;filename={name}")
        } else if name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' ')
        {
            format!(
                "attachment;filename=\"{}\"",
                name.replace('\\', "\\\\").replace('"', "\\\"")
            )
        } else {
            format!(
                "attachment;filename*=utf-8''{}",
                base::percent_encoded(name)
            )
        }
    }

    /// The content type for the name's extension; only that of `.gz` means anything to the
    /// aggregator.
    pub(super) fn content_type(&self) -> Option<&'static str> {
        let (_, extension) = self.name.rsplit_once('.')?;
        Some(match extension.to_ascii_lowercase().as_str() {
            "gz" => GZIP,
            "json" => "application/json",
            "xml" => "text/xml; charset=utf-8",
            "yaml" | "yml" => "application/yaml",
            "txt" | "log" => "text/plain; charset=utf-8",
            "htm" | "html" => "text/html; charset=utf-8",
            "csv" => "text/csv; charset=utf-8",
            "tar" => "application/x-tar",
            "zip" => "application/zip",
            _ => return None,
        })
    }

    fn version(&self) -> Result<Version, Error> {
        self.file_version().map_err(Error::file(self.path()))
    }

    fn file_version(&self) -> io::Result<Version> {
        match &self.kind {
            Kind::Bytes(bytes) => Ok(Version {
                length: bytes.len() as u64,
                modified: None,
            }),
            Kind::File(_, file) => file.metadata().map(|metadata| Version::of(&metadata)),
        }
    }
}

fn digest_text(digest: Digest) -> String {
    format!(
        "{SHA256_KIND}:{}:",
        base64::engine::general_purpose::STANDARD.encode(digest)
    )
}

/// The body of one attempt: exactly the announced length, digested on the way. Excess bytes are cut
/// off; a shortfall is an error, because the HTTP client would wait for the rest forever, in a busy
/// loop.
pub(super) struct Body<'s> {
    source: &'s Source<'s>,
    inner: Box<dyn Read + 's>,
    version: Version,
    left: u64,
    digest: Context,
    /// The reason for an early end, if any.
    pub(super) trouble: Option<Trouble>,
    /// When its progress was last logged.
    told: Instant,
}

/// A version of a complete body, and its digest.
pub(super) type Sent = (Version, String);

impl Body<'_> {
    pub(super) fn length(&self) -> u64 {
        self.version.length
    }

    /// Whether only a part of it was sent.
    pub(super) fn is_cut(&self) -> bool {
        (1..self.version.length).contains(&self.left)
    }

    /// The complete body, if all of it was sent.
    pub(super) fn sent(self) -> Option<Sent> {
        (self.left == 0).then(|| (self.version, digest_text(self.digest.finish())))
    }

    fn end(&mut self, change: &'static str) -> io::Error {
        self.trouble = Some(Trouble::Changed(change));
        io::Error::new(io::ErrorKind::UnexpectedEof, change)
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let (inner, left) = (&mut self.inner, self.left);
        let count = patiently(|| inner.by_ref().take(left).read(buffer)).map_err(|error| {
            let kind = error.kind();
            self.trouble = Some(Trouble::Unreadable(error));
            io::Error::from(kind)
        })?;
        if count == 0 {
            return Err(self.end("was truncated while it was sent"));
        }
        if count as u64 == self.left && !self.source.version().is_ok_and(|now| now == self.version)
        {
            return Err(self.end("changed while it was sent"));
        }
        self.digest.update(&buffer[..count]);
        self.left -= count as u64;
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            let (sent, total) = (self.version.length - self.left, self.version.length);
            log::info!("`{}`: {sent} of {total} bytes were sent", self.source.name);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn names_are_encoded_for_the_original() {
        let check = |name: &str, expected: &str| {
            assert_eq!(Source::bytes(name, b"").disposition(), expected);
        };
        check("results.tar.gz", "attachment;filename=results.tar.gz");
        check("", "attachment");
        check(
            "my report (1).xml",
            r#"attachment;filename="my report (1).xml""#,
        );
        check(r#"a"b\c"#, r#"attachment;filename="a\"b\\c""#);
        check("größe", "attachment;filename*=utf-8''gr%C3%B6%C3%9Fe");
        check("a\nb", "attachment;filename*=utf-8''a%0Ab");
    }

    #[test]
    fn only_gz_is_gzip() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(Source::bytes(name, b"").content_type(), expected, "{name}");
        };
        check("a.tar.gz", Some("application/gzip"));
        check("A.GZ", Some("application/gzip"));
        check("a.tgz", None);
        check("gz", None);
        check("a.json", Some("application/json"));
        check("junit.xml", Some("text/xml; charset=utf-8"));
    }

    #[test]
    fn digest_follows_the_rfc() {
        let source = Source::bytes("a", b"{\"hello\": \"world\"}");
        let digest = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
        assert_eq!(source.digest(), Some(digest));
        let path = std::env::temp_dir().join(format!("sonobuoy-digest-{}", std::process::id()));
        std::fs::write(&path, "{\"hello\": \"world\"}").unwrap();
        for source in [source, Source::file(&path).unwrap()] {
            let mut body = source.body().unwrap();
            io::copy(&mut body, &mut io::sink()).unwrap();
            let sent = body.sent().unwrap();
            for (stored, differs) in [
                (digest.to_owned(), false),
                (
                    format!("sha-512=:AA==:, {}", digest.replace("sha", "SHA")),
                    false,
                ),
                (format!("{digest}, crc-32=:AQIDBA==:"), false),
                ("sha-512=:AA==:".into(), false),
                (String::new(), false),
                (digest.replace("X48", "X49"), true),
                (format!("{digest}, {}", digest.replace("X48", "X49")), true),
            ] {
                assert_eq!(Source::differs(&sent, &stored), differs, "{stored}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn file_is_hashed_while_sent_and_a_changed_one_fails() {
        let path = std::env::temp_dir().join(format!("sonobuoy-body-{}", std::process::id()));
        let check = |change: &dyn Fn(), trouble: Option<&str>| {
            std::fs::write(&path, "abcdef").unwrap();
            let mut source = Source::file(&path).unwrap();
            assert_eq!((source.digest(), source.changed()), (None, false));
            let mut body = source.body().unwrap();
            let mut buffer = [0; 3];
            body.read_exact(&mut buffer).unwrap();
            change();
            let rest = body.read_to_end(&mut Vec::new());
            let found = match &body.trouble {
                Some(Trouble::Changed(change)) => Some(*change),
                Some(Trouble::Unreadable(error)) => panic!("{error}"),
                None => None,
            };
            assert_eq!((rest.is_err(), found), (trouble.is_some(), trouble));
            let sent = body.sent();
            assert_eq!(sent.is_some(), trouble.is_none());
            if let Some(sent) = sent {
                source.keep(sent);
                assert!(source.digest().is_some() && !source.changed());
                let later = SystemTime::now() + Duration::from_secs(9);
                File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_modified(later)
                    .unwrap();
                assert!(source.digest().is_none() && source.changed());
            }
        };
        let write = |text: &'static str| {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(text.len() as u64).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(text.len() as u64))
                .unwrap();
        };
        check(&|| {}, None);
        check(&|| write("abc"), Some("was truncated while it was sent"));
        check(&|| write("xyzxyz"), Some("changed while it was sent"));
        check(
            &|| write("longer than before"),
            Some("changed while it was sent"),
        );
        // Replacing the file does not affect the open one.
        let replace = || {
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, "another").unwrap();
        };
        let source = Source::file(&path).unwrap();
        replace();
        let mut text = String::new();
        source.body().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text.len(), 18);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn error_of_the_disk_is_passed_on_with_its_reason() {
        struct Broken(u32);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 -= 1;
                if self.0 > 0 {
                    Err(io::Error::from_raw_os_error(5))
                } else {
                    Ok(buffer.len())
                }
            }
        }
        let source = Source::bytes("a", b"123");
        for (failures, is_broken) in [(0, false), (2, false), (9, true)] {
            let mut body = source.body().unwrap();
            body.inner = Box::new(Broken(failures + 1));
            let read = body.read_to_end(&mut Vec::new());
            assert_eq!(read.is_err(), is_broken, "{failures} failures");
            assert_eq!(
                matches!(body.trouble, Some(Trouble::Unreadable(_))),
                is_broken,
                "{failures} failures"
            );
        }
    }

    #[test]
    fn folder_on_a_full_disk_is_packed_elsewhere() {
        let disk = std::env::temp_dir().join(format!("sonobuoy-full-{}", std::process::id()));
        std::fs::create_dir(&disk).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            std::process::Command::new(program)
                .args(arguments)
                .arg(&disk)
                .output()
                .is_ok_and(|o| o.status.success())
        };
        let mounted = run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
        if mounted {
            let mut noise = vec![0; 768 << 10];
            ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut noise).unwrap();
            std::fs::write(disk.join("noise"), noise).unwrap();
            let packed = Source::directory(&disk, &Folder::open(&disk).unwrap());
            let length = packed.map(|source| source.body().map_or(0, |body| body.length()));
            assert!(run("umount", &[]));
            assert!(length.unwrap() > 768 << 10);
        } else {
            base::testing::skipped("mount", "only root can mount a small disk");
        }
        std::fs::remove_dir(&disk).unwrap();
    }

    #[test]
    fn folders_and_missing_paths_are_no_files() {
        assert!(matches!(
            Source::file(Path::new("/")),
            Err(Error::File { .. })
        ));
        assert!(matches!(
            Source::file(Path::new("/does/not/exist")),
            Err(Error::File { .. })
        ));
    }
}
