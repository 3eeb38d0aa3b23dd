//! Images in one file: an OCI layout in a tar, with docker's `manifest.json` for daemons without OCI support.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tar::{Builder, Header};

use super::store::{Store, Stored, parts};
use super::{Descriptor, MAX_JSON_BYTES, Reference, hash_of, items};
use crate::Hashing;
use crate::archive::{Kind, Limits, Reader};
use crate::at::At as _;
use crate::json::{self, json};
use crate::temp::NewFile;

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

/// Writes images and everything in `store` to one file; equal images give equal bytes. If there are files `beside` them,
/// adds the checksums of all files.
///
/// Docker's own list has one platform of each image: this machine's, if available.
pub fn write(store: &Store, images: &[Stored], beside: &[Beside], path: &Path) -> Result<()> {
    write_files(store, images, beside, path).at("cannot write", path)
}

fn write_files(store: &Store, images: &[Stored], beside: &[Beside], path: &Path) -> Result<()> {
    let mut tar = Builder::new(BufWriter::new(NewFile::create(path, 0o666)?));
    let documents = documents(store, images)?;
    let blobs = store.blobs()?;
    for file in beside {
        let mode = if file.is_program { 0o755 } else { 0o644 };
        append(&mut tar, &file.name, mode, file.content.len() as u64, &*file.content)?;
    }
    if !beside.is_empty() {
        let sum = |content: &[u8]| crate::hex(crate::sha256(content));
        let files = beside.iter().map(|file| format!("{}  {}\n", sum(&file.content), file.name));
        let all = blobs.iter().map(|(hash, _)| format!("{hash}  blobs/sha256/{hash}\n"));
        let rest = documents.iter().map(|(name, text)| format!("{}  {name}\n", sum(text.as_bytes())));
        let sums: String = files.chain(all).chain(rest).collect();
        append(&mut tar, SUMS, 0o644, sums.len() as u64, sums.as_bytes())?;
    }
    for (hash, file) in blobs {
        let size = fs::metadata(&file)?.len();
        let blob = File::open(&file)?;
        append(&mut tar, &format!("blobs/sha256/{hash}"), 0o644, size, blob.take(size))?;
    }
    for (name, text) in documents {
        append(&mut tar, name, 0o644, text.len() as u64, text.as_bytes())?;
    }
    Ok(tar.into_inner()?.into_inner()?.commit(true)?)
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
            let place = |blob: &Descriptor| hash_of(&blob.digest).map(|hash| format!("blobs/sha256/{hash}"));
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
    let all = [("index.json", index), ("manifest.json", Value::Array(docker)), ("oci-layout", layout)];
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

/// Reads an archive into `store`, checking every blob against its name. Returns the images that have a name.
pub fn read(path: &Path, store: &Store) -> Result<Vec<Stored>> {
    let shown = path.display();
    let file = File::open(path).at("cannot read", path)?;
    let broken = || format!("`{shown}` is not an image archive, or it is damaged");
    let mut reader = Reader::new(BufReader::new(file), Limits::default());
    let mut index = None;
    while let Some(entry) = reader.next_entry().with_context(broken)? {
        let name = String::from_utf8_lossy(&entry.name);
        let name = name.trim_start_matches("./");
        let blob = name.strip_prefix("blobs/sha256/").filter(|hash| !hash.is_empty());
        if name != "index.json" && blob.is_none() {
            continue;
        }
        ensure!(entry.kind == Kind::File, "{}: `{name}` is not a file", broken());
        if let Some(hash) = blob {
            let blob = store.path(&format!("sha256:{hash}")).with_context(broken)?;
            keep(&mut reader, hash, &blob).with_context(broken)?;
        } else {
            let mut text = Vec::new();
            reader.by_ref().take(MAX_JSON_BYTES).read_to_end(&mut text).with_context(broken)?;
            index = Some(json::from_slice(&text).with_context(broken)?);
        }
    }
    let index = index.with_context(|| {
        format!("`{shown}` has no index.json: it is not an OCI archive; `skopeo copy docker-archive:… oci-archive:…` converts docker's old format")
    })?;
    let mut images = Vec::new();
    for entry in items(&index["manifests"]) {
        let root = Descriptor::read(entry).with_context(broken)?;
        let whole = entry["annotations"][TAG].as_str().filter(|name| name.contains('/'));
        if let Some(name) = entry["annotations"][NAME].as_str().or(whole) {
            images.push(Stored { name: Reference::parse(name)?, root });
        }
    }
    ensure!(!images.is_empty(), "`{shown}` names no images");
    Ok(images)
}

fn keep(from: &mut impl Read, hash: &str, path: &Path) -> Result<()> {
    let mut file = Hashing::new(NewFile::create(path, 0o666).at("cannot write", path)?);
    std::io::copy(from, &mut file)?;
    let (file, came) = file.finish();
    let came = crate::hex(came);
    ensure!(came == hash, "blob {hash} has the digest {came}");
    Ok(file.commit(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp;

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
            tar.append_data(&mut header, &name, std::io::empty()).unwrap();
            fs::write(&path, tar.into_inner().unwrap()).unwrap();
            let store = Store::open(&folder.join("store")).unwrap();
            let error = format!("{:#}", read(&path, &store).unwrap_err());
            assert!(error.contains(words), "{kind:?}: {error}");
            assert!(store.blobs().unwrap().is_empty());
        }
    }
}
