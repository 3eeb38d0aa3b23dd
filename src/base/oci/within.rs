//! Extracts one file from an image, without unpacking anything else.
//!
//! Searches layers from the last to the first, so that the result is the file a container would see. Missing layers are
//! fetched, and verified by their digests, only until the file is found. Layers are untrusted: only the content of that one
//! file is extracted, with a size limit.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Client, Descriptor, Platform, Reference, Store, Stored};
use crate::archive::{Gunzip, Kind, Limits, Reader};

impl Store {
    /// Copies the file at `path` (without a leading slash) of an image in a registry to `out`; false if the image lacks it.
    pub fn fetch_file(
        &self,
        client: &Client,
        name: &Reference,
        path: &str,
        limit: u64,
        out: &mut File,
    ) -> Result<bool> {
        let (_, bytes) = self.chosen(client, name, &Platform::here())?;
        let manifest = serde_json::from_slice(&bytes)?;
        self.file_in(&manifest, name, Some(client), path, limit, out)
    }

    /// Copies the file at `path` of an image in the store.
    pub fn file(&self, image: &Stored, path: &str, limit: u64, out: &mut File) -> Result<bool> {
        let single =
            self.single(&image.root)?.with_context(|| format!("`{}` has no platform", image.name))?;
        self.file_in(&self.manifest(&single)?, &image.name, None, path, limit, out)
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
        for layer in manifest["layers"].as_array().into_iter().flatten().rev() {
            let layer = Descriptor::read(layer)
                .with_context(|| format!("`{name}`: a broken entry in its manifest"))?;
            let blob = self.path(&layer.digest)?;
            if let Some(client) = client.filter(|_| std::fs::metadata(&blob).is_err()) {
                client.download(name, &layer, &blob, &|_, _| ())?;
            }
            match look(&blob, path, limit, out)
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

fn look(blob: &Path, path: &str, limit: u64, out: &mut File) -> Result<LayerEntry> {
    let mut file = File::open(blob)?;
    let mut head = [0; 4];
    let length = file.read(&mut head)?;
    file.rewind()?;
    let file = BufReader::with_capacity(128 << 10, file);
    let input: Box<dyn Read> = match head[..length] {
        [0x1f, 0x8b, ..] => Box::new(Gunzip::new(file)),
        [0x28, 0xb5, 0x2f, 0xfd] => bail!("its compression, zstd, is unsupported"),
        _ => Box::new(file),
    };
    let removed = match path.rsplit_once('/') {
        Some((folder, file)) => format!("{folder}/.wh.{file}"),
        None => format!(".wh.{path}"),
    };
    let mut found = LayerEntry::Nothing;
    let mut reader = Reader::new(input, Limits::default());
    while let Some(entry) = reader.next_entry()? {
        let name = String::from_utf8_lossy(&entry.name);
        let name = name.trim_start_matches("./").trim_start_matches('/');
        if name == removed {
            found = LayerEntry::Removed;
        } else if name == path {
            ensure!(entry.kind == Kind::File, "`/{path}` is not a file");
            ensure!(entry.size <= limit, "`/{path}` has {} bytes, more than {limit}", entry.size);
            out.set_len(0)?;
            out.rewind()?;
            let copied = io::copy(&mut reader.by_ref().take(limit), out)?;
            ensure!(copied == entry.size, "`/{path}` is cut after {copied} of {} bytes", entry.size);
            found = LayerEntry::File;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp;

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
            tar.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    #[test]
    fn a_file_is_found_removed_or_not_there() {
        let folder = temp::Folder::new().unwrap();
        let (blob, out) = (folder.join("layer"), folder.join("out"));
        let check = |entries: &[(&str, Option<&str>)], expected: Result<LayerEntry, &str>| {
            std::fs::write(&blob, layer(entries)).unwrap();
            let mut file =
                File::options().create(true).truncate(true).read(true).write(true).open(&out).unwrap();
            match (look(&blob, "bin/x", 5, &mut file), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{entries:?}"),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{entries:?}: {found:?}"),
            }
        };
        check(&[], Ok(LayerEntry::Nothing));
        check(&[("bin/y", Some("1")), ("x", Some("2"))], Ok(LayerEntry::Nothing));
        check(&[("bin/.wh.x", Some(""))], Ok(LayerEntry::Removed));
        check(&[("bin/x", None)], Err("is not a file"));
        check(&[("bin/x", Some("123456"))], Err("has 6 bytes, more than 5"));
        check(&[("a", Some("1")), ("bin/x", Some("12345")), ("b", Some("2"))], Ok(LayerEntry::File));
        assert_eq!(std::fs::read(&out).unwrap(), b"12345");
        let whole = std::fs::read(&blob).unwrap();
        std::fs::write(&blob, &whole[..700]).unwrap();
        assert!(look(&blob, "bin/x", 5, &mut File::create(&out).unwrap()).is_err(), "a layer that is cut");
        std::fs::write(&blob, [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
        assert!(look(&blob, "bin/x", 5, &mut File::create(&out).unwrap()).is_err());
    }
}
