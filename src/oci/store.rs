//! Images on disk as an OCI layout: a folder of blobs by hash, single files of images, and archives
//! of images.
//!
//! Owns the traversal from an image to its blobs, for downloads and uploads. Existing blobs are not
//! fetched again, so that an interrupted transfer resumes. A file is searched in the layers from
//! the last to the first, so that the result is what a container would see; nothing else of a
//! layer, which is untrusted, is unpacked. An archive is the layout in a tar, with
//! docker's `manifest.json` for daemons without OCI support. Starts no thread.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tar::{Builder, Header};

use super::{
    Client, Descriptor, ImageInfo, MAX_JSON_BYTES, Reference, Watch, digest_of, hash_of, items,
    platform_of,
};
use base::archive::{Gunzip, Kind, Limits, Reader};
use base::at::At as _;
use base::json::{self, json};
use base::temp::{self, NewFile};
use base::{Hashing, sha256, small};

/// Indexes that contain indexes exist; deeper nesting is a mistake or an attack.
const MAX_DEPTH: usize = 3;
/// Maximum manifests of an image: one per platform, and perhaps a signature for each.
const MAX_MANIFESTS: usize = 1_000;

/// Selected platforms of an image, such as `linux/arm64`; none means all.
#[derive(Clone, Debug, PartialEq)]
pub struct Platform(pub Vec<String>);

impl Platform {
    /// Parses `linux/amd64`, `arm64`, several with commas between them, or `all`.
    pub fn parse(text: &str) -> Result<Self> {
        let parse_part = |part: &str| {
            let (os, arch) = part.split_once('/').unwrap_or(("linux", part));
            let is_one = !os.is_empty() && !arch.is_empty() && !arch.contains('/') && part != "all";
            ensure!(
                is_one,
                "`{part}` is not a platform; write linux/amd64, linux/arm64, both with a comma, \
                 or all"
            );
            Ok(format!("{os}/{arch}"))
        };
        match text {
            "all" => Ok(Self(Vec::new())),
            _ => text
                .split(',')
                .map(|part| parse_part(part.trim()))
                .collect::<Result<_>>()
                .map(Self),
        }
    }

    /// Whether an entry of an index is for one of these platforms.
    fn fits(&self, entry: &Value) -> bool {
        self.0.is_empty()
            || platform_of(&entry["platform"]).is_some_and(|one| self.0.contains(&one))
    }

    /// This machine's platform.
    pub fn local() -> Self {
        Self(vec![format!("linux/{}", architecture())])
    }
}

/// This machine's architecture, as images name it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An image in a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Its name.
    pub name: Reference,
    /// Its manifest or index.
    pub root: Descriptor,
}

/// A manifest and its content.
type Manifest = (Descriptor, Vec<u8>);

/// A traversal of the manifests of an image, from the innermost to the root, each once even if
/// several indexes list it.
struct Walk<'a> {
    name: &'a Reference,
    /// Reads what an entry of an index points to.
    read: &'a dyn Fn(&Descriptor) -> Result<Manifest>,
    visited: HashSet<String>,
}

impl Walk<'_> {
    /// Passes each manifest to `each`, with its content and its blobs, of which an index has none.
    fn visit(
        &mut self,
        (kind, bytes): &Manifest,
        depth: usize,
        each: &mut impl FnMut(&Descriptor, &[u8], Vec<Descriptor>) -> Result<()>,
    ) -> Result<()> {
        let name = self.name;
        ensure!(
            depth < MAX_DEPTH,
            "`{name}`: its indexes are nested more than {} deep",
            MAX_DEPTH - 1
        );
        self.visited.insert(kind.digest.clone());
        ensure!(
            self.visited.len() <= MAX_MANIFESTS,
            "`{name}` has more than {MAX_MANIFESTS} manifests"
        );
        let manifest = read_manifest(kind, bytes)?;
        let mut blobs = Vec::new();
        if kind.is_index() {
            for inner in items(&manifest["manifests"]) {
                let inner = descriptor(inner, name)?;
                if !self.visited.contains(&inner.digest) {
                    let inner = (self.read)(&inner)?;
                    self.visit(&inner, depth + 1, each)?;
                }
            }
        } else {
            blobs = parts(&manifest, name)?;
        }
        each(kind, bytes, blobs)
    }
}

fn read_manifest(blob: &Descriptor, bytes: &[u8]) -> Result<Value> {
    json::from_slice(bytes).with_context(|| format!("{} is not a manifest", blob.digest))
}

fn descriptor(entry: &Value, name: &Reference) -> Result<Descriptor> {
    Descriptor::read(entry).with_context(|| format!("`{name}`: invalid entry in its manifest"))
}

/// A folder of blobs.
pub struct Store {
    blobs: PathBuf,
}

impl Store {
    /// Opens a folder, which may already contain blobs.
    pub fn open(folder: &Path) -> Result<Self> {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).at("cannot create", &blobs)?;
        Ok(Self { blobs })
    }

    /// A blob's file.
    pub fn path(&self, digest: &str) -> Result<PathBuf> {
        Ok(self
            .blobs
            .join(hash_of(digest).with_context(|| format!("`{digest}` is not a digest"))?))
    }

    /// All blobs by the digits of their digests, sorted.
    pub fn blobs(&self) -> Result<Vec<(String, PathBuf)>> {
        let entries = fs::read_dir(&self.blobs).at("cannot read", &self.blobs)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut blobs: Vec<_> = names
            .filter(|name| hash_of(&format!("sha256:{name}")).is_some())
            .map(|name| (name.clone(), self.blobs.join(name)))
            .collect();
        blobs.sort();
        Ok(blobs)
    }

    /// A manifest.
    pub fn manifest(&self, blob: &Descriptor) -> Result<Value> {
        read_manifest(blob, &self.content(blob)?)
    }

    /// The content of a manifest, with its digest checked.
    fn content(&self, blob: &Descriptor) -> Result<Vec<u8>> {
        let path = self.path(&blob.digest)?;
        let bytes = small::read(&path, MAX_JSON_BYTES)
            .with_context(|| format!("the manifest {} cannot be read", blob.digest))?;
        let came = digest_of(&sha256(&bytes));
        ensure!(
            came == blob.digest,
            "`{}` has the digest {came}",
            path.display()
        );
        Ok(bytes)
    }

    /// The manifest of one platform: this machine's, else the first.
    pub(super) fn single(&self, root: &Descriptor) -> Result<Option<Descriptor>> {
        if !root.is_index() {
            return Ok(Some(root.clone()));
        }
        let index = self.manifest(root)?;
        let all = items(&index["manifests"]);
        let local = Platform::local();
        let chosen = all.iter().find(|entry| local.fits(entry)).or(all.first());
        Ok(chosen
            .and_then(Descriptor::read)
            .filter(|chosen| !chosen.is_index()))
    }

    /// Downloads a complete image.
    pub fn pull(
        &self,
        client: &Client,
        name: &Reference,
        platform: &Platform,
        watch: Watch<'_>,
    ) -> Result<Stored> {
        // An image named by a digest keeps that digest only with all its platforms.
        let root = match &name.digest {
            Some(_) => client.manifest(name, name.wanted())?,
            None => self.chosen(client, name, platform)?,
        };
        let mut each = |kind: &Descriptor, bytes: &[u8], blobs: Vec<Descriptor>| {
            blobs.iter().for_each(|blob| watch(blob, 0));
            for blob in blobs {
                let path = self.path(&blob.digest)?;
                if fs::metadata(&path).is_ok_and(|meta| meta.len() == blob.size) {
                    watch(&blob, blob.size);
                    continue;
                }
                client.download(name, &blob, &path, watch)?;
            }
            // Written last: a manifest in the store implies that all its blobs are.
            let path = self.path(&kind.digest)?;
            temp::write(&path, 0o666, bytes).at("cannot write", &path)
        };
        let read = |inner: &Descriptor| client.manifest(name, &inner.digest);
        Walk {
            name,
            read: &read,
            visited: HashSet::new(),
        }
        .visit(&root, 0, &mut each)?;
        Ok(Stored {
            name: name.clone(),
            root: root.0,
        })
    }

    /// The manifest of an image for a platform, or an index for several: with these alone, or its
    /// own for all.
    fn chosen(&self, client: &Client, name: &Reference, platform: &Platform) -> Result<Manifest> {
        let (root, bytes) = client.manifest(name, name.wanted())?;
        let Platform(wanted) = platform;
        if wanted.is_empty() || !root.is_index() {
            ensure!(
                wanted.len() < 2,
                "`{name}` is for one platform only, and {} are wanted",
                wanted.len()
            );
            return Ok((root, bytes));
        }
        let mut index: Value = json::from_slice(&bytes)?;
        let all = items(&index["manifests"]);
        let available: Vec<String> = all
            .iter()
            .filter_map(|entry| platform_of(&entry["platform"]))
            .collect();
        if let Some(missing) = wanted.iter().find(|name| !available.contains(name)) {
            bail!(
                "`{name}` is not available for {missing}, only for {}",
                available.join(", ")
            );
        }
        let chosen: Vec<Value> = all
            .iter()
            .filter(|entry| platform.fits(entry))
            .cloned()
            .collect();
        if let ([_], [first, ..]) = (&wanted[..], &chosen[..]) {
            return client.manifest(name, &descriptor(first, name)?.digest);
        }
        index["manifests"] = chosen.into();
        let bytes = index.to_string().into_bytes();
        let digest = digest_of(&sha256(&bytes));
        Ok((
            Descriptor {
                digest,
                size: bytes.len() as u64,
                ..root
            },
            bytes,
        ))
    }

    /// Uploads an image to `target`; returns the number of blobs that the registry did not have.
    pub fn push(
        &self,
        client: &Client,
        image: &Stored,
        target: &Reference,
        watch: Watch<'_>,
    ) -> Result<usize> {
        let mut sent = 0;
        let mut each = |kind: &Descriptor, _: &[u8], blobs: Vec<Descriptor>| {
            blobs.iter().for_each(|blob| watch(blob, 0));
            for blob in blobs {
                sent +=
                    usize::from(client.upload(target, &blob, &self.path(&blob.digest)?, watch)?);
                watch(&blob, blob.size);
            }
            let tag = target.tag.as_ref().filter(|_| *kind == image.root);
            client.put_manifest(
                target,
                tag.unwrap_or(&kind.digest),
                kind,
                &self.path(&kind.digest)?,
            )
        };
        let read = |inner: &Descriptor| Ok((inner.clone(), self.content(inner)?));
        let root = read(&image.root)?;
        Walk {
            name: target,
            read: &read,
            visited: HashSet::new(),
        }
        .visit(&root, 0, &mut each)?;
        Ok(sent)
    }
}

/// A manifest's configuration and layers, except layers that must not be copied.
pub(super) fn parts(manifest: &Value, name: &Reference) -> Result<Vec<Descriptor>> {
    let layers = items(&manifest["layers"]);
    let all = std::iter::once(&manifest["config"]).chain(layers);
    let own_parts = all.filter(|part| {
        !part["mediaType"]
            .as_str()
            .unwrap_or_default()
            .contains("foreign")
    });
    own_parts.map(|part| descriptor(part, name)).collect()
}

impl Store {
    /// Platforms of an image in the store.
    pub fn image_info(&self, image: &Stored) -> Result<ImageInfo> {
        ImageInfo::new(image.root.clone(), &self.manifest(&image.root)?, |blob| {
            self.manifest(blob)
        })
    }

    /// Copies the file at `path` (without a leading slash) of an image in a registry to `out`;
    /// false if the image lacks it.
    pub fn fetch_file(
        &self,
        client: &Client,
        name: &Reference,
        path: &str,
        limit: u64,
        out: &mut File,
    ) -> Result<bool> {
        let (_, bytes) = self.chosen(client, name, &Platform::local())?;
        let manifest = serde_json::from_slice(&bytes)?;
        self.file_in(&manifest, name, Some(client), path, limit, out)
    }

    /// Copies the file at `path` of an image in the store.
    pub fn file(&self, image: &Stored, path: &str, limit: u64, out: &mut File) -> Result<bool> {
        let single = self
            .single(&image.root)?
            .with_context(|| format!("`{}` has no platform", image.name))?;
        self.file_in(
            &self.manifest(&single)?,
            &image.name,
            None,
            path,
            limit,
            out,
        )
    }

    fn file_in(
        &self,
        manifest: &Value,
        name: &Reference,
        client: Option<&Client>,
        path: &str,
        limit: u64,
        out: &mut File,
    ) -> Result<bool> {
        for layer in items(&manifest["layers"]).iter().rev() {
            let layer = descriptor(layer, name)?;
            let blob = self.path(&layer.digest)?;
            if let Some(client) = client.filter(|_| std::fs::metadata(&blob).is_err()) {
                client.download(name, &layer, &blob, &|_, _| ())?;
            }
            match copy_from_layer(&blob, path, limit, out)
                .with_context(|| format!("`{name}`: layer {}", layer.digest))?
            {
                LayerEntry::File => return Ok(true),
                LayerEntry::Removed => return Ok(false),
                LayerEntry::Nothing => {}
            }
        }
        Ok(false)
    }
}

#[derive(Debug, PartialEq)]
enum LayerEntry {
    File,
    /// Removed by this layer.
    Removed,
    Nothing,
}

fn copy_from_layer(blob: &Path, path: &str, limit: u64, out: &mut File) -> Result<LayerEntry> {
    let mut file = BufReader::with_capacity(128 << 10, File::open(blob)?);
    let input: Box<dyn Read> = match file.fill_buf()? {
        [0x1f, 0x8b, ..] => Box::new(Gunzip::new(file)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => bail!("its compression, zstd, is unsupported"),
        _ => Box::new(file),
    };
    let (folder, file) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
    let removed = format!("{folder}.wh.{file}");
    let mut layer_entry = LayerEntry::Nothing;
    let mut reader = Reader::new(input, Limits::default());
    while let Some(entry) = reader.next_entry()? {
        let name = String::from_utf8_lossy(&entry.name);
        let name = name.trim_start_matches("./").trim_start_matches('/');
        if name == removed {
            layer_entry = LayerEntry::Removed;
        } else if name == path {
            ensure!(entry.kind == Kind::File, "`/{path}` is not a file");
            ensure!(
                entry.size <= limit,
                "`/{path}` has {} bytes, more than {limit}",
                entry.size
            );
            out.set_len(0)?;
            out.rewind()?;
            let copied = io::copy(&mut reader.by_ref().take(limit), out)?;
            ensure!(
                copied == entry.size,
                "`/{path}` is cut after {copied} of {} bytes",
                entry.size
            );
            layer_entry = LayerEntry::File;
        }
    }
    Ok(layer_entry)
}

/// Annotation with the name of the image for runtimes.
const NAME: &str = "io.containerd.image.name";

/// Checksums of all other files in an archive, in the format of `sha256sum -c`.
const SUMS: &str = "SHA256SUMS";

/// The layout's own annotation for a tag; some programs write the whole name.
const TAG: &str = "org.opencontainers.image.ref.name";

/// An additional file of an archive, stored before the images.
pub struct Beside {
    /// Path in the archive.
    pub name: String,
    /// Content of the file.
    pub content: Vec<u8>,
    /// Whether the file is executable.
    pub is_program: bool,
}

/// Writes images and everything in `store` to one file; equal images give equal bytes. If there are
/// files `beside` them, adds the checksums of all files.
///
/// Docker's own list has one platform of each image: this machine's, if available.
pub fn write_archive(
    store: &Store,
    images: &[Stored],
    beside: &[Beside],
    path: &Path,
) -> Result<()> {
    let write = || -> Result<()> {
        let mut tar = Builder::new(BufWriter::new(NewFile::create(path, 0o666)?));
        let documents = documents(store, images)?;
        let blobs = store.blobs()?;
        for file in beside {
            let mode = if file.is_program { 0o755 } else { 0o644 };
            append(
                &mut tar,
                &file.name,
                mode,
                file.content.len() as u64,
                &*file.content,
            )?;
        }
        if !beside.is_empty() {
            let sum = |content: &[u8]| base::hex(base::sha256(content));
            let files = beside
                .iter()
                .map(|file| format!("{}  {}\n", sum(&file.content), file.name));
            let all = blobs
                .iter()
                .map(|(hash, _)| format!("{hash}  blobs/sha256/{hash}\n"));
            let rest = documents
                .iter()
                .map(|(name, text)| format!("{}  {name}\n", sum(text.as_bytes())));
            let sums: String = files.chain(all).chain(rest).collect();
            append(&mut tar, SUMS, 0o644, sums.len() as u64, sums.as_bytes())?;
        }
        for (hash, file) in blobs {
            let size = fs::metadata(&file)?.len();
            let blob = File::open(&file)?;
            append(
                &mut tar,
                &format!("blobs/sha256/{hash}"),
                0o644,
                size,
                blob.take(size),
            )?;
        }
        for (name, text) in documents {
            append(&mut tar, name, 0o644, text.len() as u64, text.as_bytes())?;
        }
        Ok(tar.into_inner()?.into_inner()?.commit(true)?)
    };
    write().at("cannot write", path)
}

/// The lists of an archive's images: the layout's, and docker's.
fn documents(store: &Store, images: &[Stored]) -> Result<[(&'static str, String); 3]> {
    let mut docker = Vec::new();
    let mut index = Vec::new();
    for image in images {
        let mut entry = serde_json::to_value(&image.root)?;
        let tag = image.name.tag.as_deref().unwrap_or_default();
        entry["annotations"] = json!({ NAME: image.name.to_string(), TAG: tag });
        index.push(entry);
        if let Some(root) = store.single(&image.root)? {
            let all = parts(&store.manifest(&root)?, &image.name)?;
            // Docker accepts no name with a digest; without a tag, the image has no name there.
            let mut name = image.name.clone();
            let names = name.digest.take().is_none() || name.tag.is_some();
            let place = |blob: &Descriptor| {
                hash_of(&blob.digest).map(|hash| format!("blobs/sha256/{hash}"))
            };
            if let Some((config, layers)) = all.split_first() {
                docker.push(json!({
                    "Config": place(config),
                    "RepoTags": names.then(|| vec![name.to_string()]),
                    "Layers": layers.iter().map(place).collect::<Vec<_>>(),
                }));
            }
        }
    }
    let layout = json!({ "imageLayoutVersion": "1.0.0" });
    let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": index });
    let all = [
        ("index.json", index),
        ("manifest.json", Value::Array(docker)),
        ("oci-layout", layout),
    ];
    Ok(all.map(|(name, document)| (name, document.to_string())))
}

fn append(
    tar: &mut Builder<impl Write>,
    name: &str,
    mode: u32,
    size: u64,
    content: impl Read,
) -> std::io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    tar.append_data(&mut header, name, content)
}

/// Reads an archive into `store`, checking every blob against its name. Returns the images that
/// have a name.
pub fn read_archive(path: &Path, store: &Store) -> Result<Vec<Stored>> {
    let archive = path.display();
    let file = File::open(path).at("cannot read", path)?;
    let broken = || format!("`{archive}` is not an image archive, or it is damaged");
    let mut reader = Reader::new(BufReader::new(file), Limits::default());
    let mut index = None;
    while let Some(entry) = reader.next_entry().with_context(broken)? {
        let name = String::from_utf8_lossy(&entry.name);
        let name = name.trim_start_matches("./");
        let blob = name
            .strip_prefix("blobs/sha256/")
            .filter(|hash| !hash.is_empty());
        if name != "index.json" && blob.is_none() {
            continue;
        }
        ensure!(
            entry.kind == Kind::File,
            "{}: `{name}` is not a file",
            broken()
        );
        if let Some(hash) = blob {
            let blob = store.path(&format!("sha256:{hash}")).with_context(broken)?;
            keep(&mut reader, hash, &blob).with_context(broken)?;
        } else {
            let mut text = Vec::new();
            reader
                .by_ref()
                .take(MAX_JSON_BYTES)
                .read_to_end(&mut text)
                .with_context(broken)?;
            index = Some(json::from_slice(&text).with_context(broken)?);
        }
    }
    let index = index.with_context(|| {
        format!(
            "`{archive}` has no index.json: it is not an OCI archive; `skopeo copy docker-archive:… \
             oci-archive:…` converts docker's old format"
        )
    })?;
    let mut images = Vec::new();
    for entry in items(&index["manifests"]) {
        let root = Descriptor::read(entry).with_context(broken)?;
        let full_name = entry["annotations"][TAG]
            .as_str()
            .filter(|name| name.contains('/'));
        if let Some(name) = entry["annotations"][NAME].as_str().or(full_name) {
            images.push(Stored {
                name: Reference::parse(name)?,
                root,
            });
        }
    }
    ensure!(!images.is_empty(), "`{archive}` names no images");
    Ok(images)
}

fn keep(from: &mut impl Read, hash: &str, path: &Path) -> Result<()> {
    let mut file = Hashing::new(NewFile::create(path, 0o666).at("cannot write", path)?);
    std::io::copy(from, &mut file)?;
    let (file, came) = file.finish();
    let came = base::hex(came);
    ensure!(came == hash, "blob {hash} has the digest {came}");
    Ok(file.commit(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms() {
        let one = |os: &str, arch: &str| Platform(vec![format!("{os}/{arch}")]);
        assert_eq!(Platform::parse("all").unwrap(), Platform(Vec::new()));
        assert_eq!(Platform::parse("arm64").unwrap(), one("linux", "arm64"));
        assert_eq!(
            Platform::parse("linux/amd64").unwrap(),
            one("linux", "amd64")
        );
        let both = Platform(["linux/amd64", "windows/arm64"].map(str::to_owned).into());
        assert_eq!(Platform::parse("amd64, windows/arm64").unwrap(), both);
        for text in ["", "/", "a/b/c", "amd64,", "amd64,all"] {
            assert!(Platform::parse(text).is_err(), "{text}");
        }
    }
}

#[cfg(test)]
mod within_tests {
    use super::*;
    use base::temp;

    /// A layer with these files; `None` is a folder.
    fn layer(entries: &[(&str, Option<&str>)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content) in entries {
            let mut header = tar::Header::new_gnu();
            let content = content.map_or_else(
                || {
                    header.set_entry_type(tar::EntryType::Directory);
                    ""
                },
                |content| content,
            );
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            tar.append_data(&mut header, name, content.as_bytes())
                .unwrap();
        }
        tar.into_inner().unwrap()
    }

    #[test]
    fn files_are_found_removed_or_absent() {
        let folder = temp::Folder::new().unwrap();
        let (blob, out) = (folder.join("layer"), folder.join("out"));
        let check = |entries: &[(&str, Option<&str>)], expected: Result<LayerEntry, &str>| {
            std::fs::write(&blob, layer(entries)).unwrap();
            let mut file = File::options()
                .create(true)
                .truncate(true)
                .read(true)
                .write(true)
                .open(&out)
                .unwrap();
            match (copy_from_layer(&blob, "bin/x", 5, &mut file), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{entries:?}"),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{entries:?}: {found:?}"),
            }
        };
        check(&[], Ok(LayerEntry::Nothing));
        check(
            &[("bin/y", Some("1")), ("x", Some("2"))],
            Ok(LayerEntry::Nothing),
        );
        check(&[("bin/.wh.x", Some(""))], Ok(LayerEntry::Removed));
        check(&[("bin/x", None)], Err("is not a file"));
        check(
            &[("bin/x", Some("123456"))],
            Err("has 6 bytes, more than 5"),
        );
        check(
            &[("a", Some("1")), ("bin/x", Some("12345")), ("b", Some("2"))],
            Ok(LayerEntry::File),
        );
        assert_eq!(std::fs::read(&out).unwrap(), b"12345");
        let whole = std::fs::read(&blob).unwrap();
        std::fs::write(&blob, &whole[..700]).unwrap();
        assert!(
            copy_from_layer(&blob, "bin/x", 5, &mut File::create(&out).unwrap()).is_err(),
            "a layer that is cut"
        );
        std::fs::write(&blob, [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
        assert!(copy_from_layer(&blob, "bin/x", 5, &mut File::create(&out).unwrap()).is_err());
    }
}

#[cfg(test)]
mod archive_tests {
    use super::*;
    use base::temp;

    #[test]
    fn sparse_or_linked_blob_is_refused_before_writing() {
        let folder = temp::Folder::new().unwrap();
        let path = folder.join("i.tar");
        let name = format!("blobs/sha256/{}", "0".repeat(64));
        for (kind, words) in [
            (tar::EntryType::GNUSparse, "sparse"),
            (tar::EntryType::Symlink, "is not a file"),
            (tar::EntryType::Link, "is not a file"),
            (tar::EntryType::Char, "is not a file"),
        ] {
            let mut tar = Builder::new(Vec::new());
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_link_name("/etc/passwd").unwrap();
            tar.append_data(&mut header, &name, std::io::empty())
                .unwrap();
            fs::write(&path, tar.into_inner().unwrap()).unwrap();
            let store = Store::open(&folder.join("store")).unwrap();
            let error = format!("{:#}", read_archive(&path, &store).unwrap_err());
            assert!(error.contains(words), "{kind:?}: {error}");
            assert!(store.blobs().unwrap().is_empty());
        }
    }
}
