//! What is sent: a file, a packed folder or bytes, with name, type, length and digest.
//!
//! The digest has to stand in the head of the request, before the body, so it takes a pass of its own over a
//! file. That pass costs a fraction of sending (SHA-256 runs at 1 to 2 GiB/s where the processor helps), the file
//! was mostly just written and is read from memory, and it is what tells the aggregator that a file changed
//! while it was sent. A trailer would spare the pass but needs chunked coding, which is 15 to 20 % slower on both
//! sides. A folder is digested while it is packed.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Cursor, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use ring::digest::{Context, SHA256};

use super::Error;
use crate::protocol::GZIP;
use base::archive;

/// One 64 KiB buffer is as fast as larger ones.
const BUFFER: usize = 64 * 1024;
/// What a packed folder is called.
const PACKED_NAME: &str = "results.tar.gz";

/// Something to send, which can be opened again for each attempt.
pub(super) struct Source<'a> {
    name: String,
    kind: Kind<'a>,
    digest: Option<(Version, String)>,
}

enum Kind<'a> {
    Bytes(&'a [u8]),
    File(PathBuf),
    /// A packed folder; the file has no name any more, so nothing is left behind.
    Packed(File),
}

/// By what a change of a file is noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    length: u64,
    modified: Option<SystemTime>,
}

impl<'a> Source<'a> {
    pub(super) fn bytes(name: &str, bytes: &'a [u8]) -> Self {
        Self { name: name.into(), kind: Kind::Bytes(bytes), digest: None }
    }

    pub(super) fn file(path: &Path) -> Result<Self, Error> {
        let metadata = path.metadata().map_err(|source| Error::file(path, source))?;
        if !metadata.is_file() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            return Err(Error::file(path, source));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, kind: Kind::File(path.into()), digest: None })
    }

    /// Packs a folder into a file that has lost its name before it is filled: nothing is left behind, whatever
    /// happens, and no archive ends up inside itself. It lies in the folder, which in a pod is the volume with
    /// room, or among temporary files if that is full or nothing may be written there.
    pub(super) fn directory(path: &Path) -> Result<Self, Error> {
        let pack = |place: &Path| {
            let inner = BufWriter::with_capacity(BUFFER, nameless(place)?);
            let out = Digesting { inner, context: Context::new(&SHA256) };
            let Digesting { inner, context } = archive::pack(path, None, out)?;
            Ok((inner.into_inner().map_err(io::IntoInnerError::into_error)?, context))
        };
        let packed = pack(path).or_else(|error: io::Error| pack(&std::env::temp_dir()).map_err(|_| error));
        let (file, context) = packed.map_err(|source| Error::file(path, source))?;
        let mut source = Self { name: PACKED_NAME.into(), kind: Kind::Packed(file), digest: None };
        source.digest = Some((source.version()?, digest_text(context)));
        Ok(source)
    }

    /// The name of what is sent.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The value of `Repr-Digest`, taken again only when the file is not the one it was taken of.
    pub(super) fn digest(&mut self) -> Result<String, Error> {
        let version = self.version()?;
        if let Some((of, text)) = &self.digest
            && *of == version
        {
            return Ok(text.clone());
        }
        let mut context = Context::new(&SHA256);
        let (_, mut reader) = self.open()?;
        let mut buffer = vec![0; BUFFER];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => context.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::file(&self.path(), error)),
            }
        }
        drop(reader);
        let text = digest_text(context);
        self.digest = Some((version, text.clone()));
        Ok(text)
    }

    /// Whether it is another one than its digest was taken of; what is gone has changed, too.
    pub(super) fn changed(&self) -> bool {
        match (&self.digest, self.version()) {
            (Some((of, _)), Ok(now)) => *of != now,
            _ => true,
        }
    }

    /// Its length and its bytes from the beginning.
    pub(super) fn open(&self) -> Result<(u64, Box<dyn Read + '_>), Error> {
        let wrong = |source| Error::file(&self.path(), source);
        match &self.kind {
            Kind::Bytes(bytes) => Ok((bytes.len() as u64, Box::new(Cursor::new(*bytes)))),
            Kind::File(path) => {
                let file = File::open(path).map_err(wrong)?;
                let length = file.metadata().map_err(wrong)?.len();
                Ok((length, Box::new(file)))
            }
            Kind::Packed(file) => {
                let mut file = file;
                file.seek(SeekFrom::Start(0)).map_err(wrong)?;
                Ok((file.metadata().map_err(wrong)?.len(), Box::new(file)))
            }
        }
    }

    /// `Content-Disposition` as the original writes it, unquoted, where the name is a token; quoted or
    /// percent-encoded where its parser would refuse that.
    pub(super) fn disposition(&self) -> String {
        let name = &self.name;
        let token = |byte: u8| byte.is_ascii_graphic() && !br#"()<>@,;:\"/[]?="#.contains(&byte);
        if name.is_empty() {
            "attachment".into()
        } else if name.bytes().all(token) {
            format!("attachment;filename={name}")
        } else if name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            format!("attachment;filename=\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
        } else {
            format!("attachment;filename*=utf-8''{}", percent_encoded(name))
        }
    }

    /// The type by the name's extension; only `.gz` has a meaning for the aggregator.
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
        let metadata = match &self.kind {
            Kind::Bytes(bytes) => return Ok(Version { length: bytes.len() as u64, modified: None }),
            Kind::File(path) => path.metadata(),
            Kind::Packed(file) => file.metadata(),
        };
        let metadata = metadata.map_err(|source| Error::file(&self.path(), source))?;
        Ok(Version { length: metadata.len(), modified: metadata.modified().ok() })
    }

    fn path(&self) -> Cow<'_, Path> {
        match &self.kind {
            Kind::File(path) => Cow::Borrowed(path),
            _ => Cow::Owned(PathBuf::from(&self.name)),
        }
    }
}

/// An empty file, open for reading and writing, that is in no folder any more.
fn nameless(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!(".sonobuoy-{}-{}.tar.gz", std::process::id(), random()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Something that no other thread uses in a name at this moment.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

fn digest_text(context: Context) -> String {
    format!("sha-256=:{}:", base64::engine::general_purpose::STANDARD.encode(context.finish()))
}

fn percent_encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Hands on what is written and digests it on the way.
struct Digesting<W> {
    inner: W,
    context: Context,
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.context.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A reader of exactly the announced length: longer is cut off, shorter is an error. The HTTP client would wait
/// for the missing rest for ever, at full speed.
pub(super) struct Exactly<R> {
    inner: R,
    left: u64,
    cut: bool,
}

impl<R: Read> Exactly<R> {
    pub(super) fn new(inner: R, length: u64) -> Self {
        Self { inner, left: length, cut: false }
    }

    /// Whether the source ended early.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if room == 0 {
            return Ok(0);
        }
        let count = self.inner.read(&mut buffer[..room])?;
        if count == 0 {
            self.cut = true;
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the source ended early"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_so_that_the_original_reads_them() {
        let check = |name: &str, expected: &str| {
            assert_eq!(Source::bytes(name, b"").disposition(), expected);
        };
        check("results.tar.gz", "attachment;filename=results.tar.gz");
        check("", "attachment");
        check("my report (1).xml", r#"attachment;filename="my report (1).xml""#);
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
    fn the_digest_is_that_of_the_rfc() {
        let digest = Source::bytes("a", b"{\"hello\": \"world\"}").digest().unwrap();
        assert_eq!(digest, "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:");
    }

    #[test]
    fn a_short_source_is_an_error_and_a_long_one_is_cut() {
        let mut text = Vec::new();
        Exactly::new(&b"abcdef"[..], 4).read_to_end(&mut text).unwrap();
        assert_eq!(text, b"abcd");
        let mut short = Exactly::new(&b"abc"[..], 4);
        assert!(short.read_to_end(&mut text).is_err());
        assert!(short.cut());
    }

    #[test]
    fn a_folder_on_a_full_disk_is_packed_elsewhere() {
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
            let length = Source::directory(&disk).and_then(|source| Ok(source.open()?.0));
            assert!(run("umount", &[]));
            assert!(length.unwrap() > 768 << 10);
        } else {
            base::testing::skipped("a small disk can be mounted only by root");
        }
        std::fs::remove_dir(&disk).unwrap();
    }

    #[test]
    fn a_folder_or_nothing_is_no_file() {
        assert!(matches!(Source::file(Path::new("/")), Err(Error::File { .. })));
        assert!(matches!(Source::file(Path::new("/does/not/exist")), Err(Error::File { .. })));
    }
}
