//! The kit: everything that a version's conformance tests and other plugins need, in one image
//! archive.
//!
//! Owns the files other than images: the description, the lists of images and tests, the plugins, a
//! script that loads the kit. They precede the images, so that reading them does not require
//! reading gigabytes. Knows neither registries nor flags.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::all_registries;
use base::archive::{Kind, Limits, Reader};
use base::at::At as _;
use oci::Beside;

/// Description of the kit, its first file.
const ABOUT: &str = "kit.json";
const IMAGES: &str = "images.txt";
const TESTS: &str = "tests.txt";
const LOAD: &str = "load";
/// The folder of the plugins' definitions.
const PLUGINS: &str = "definitions/";
/// The checksums, which follow the files.
const SUMS: &str = "SHA256SUMS";
/// Maximum bytes of the files before the images: lists of one or two MiB, and a definition of each
/// plugin.
const MAX_FILES_BYTES: u64 = 64 << 20;

/// Images that tests expect to be unavailable.
const NEVER_PULLED: [&str; 3] = [
    "invalid.registry.k8s.io/",
    "gcr.io/authenticated-image-pulling/",
    "gcr.io/k8s-authenticated-test/",
];

/// The kit's files other than images.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kit {
    /// The version of Kubernetes, as `v1.33.1`; empty without conformance tests.
    pub kubernetes_version: String,
    /// The image of this program.
    pub sonobuoy_image: String,
    /// The plugins that are built into the program.
    pub built_in: Vec<String>,
    /// The images of the plugins.
    pub plugin_images: Vec<String>,
    /// The images of the tests.
    #[serde(skip)]
    pub test_images: Vec<String>,
    /// The names of the tests.
    #[serde(skip)]
    pub tests: Vec<String>,
    /// The plugins' definitions, by name.
    #[serde(skip)]
    pub plugins: BTreeMap<String, String>,
}

impl Kit {
    /// Reads a kit's files other than images; `None` if this is an image archive, but not a kit.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let broken = || format!("`{}` is not a kit, or it is damaged", path.display());
        let file = File::open(path).at("cannot read", path)?;
        let mut reader = Reader::new(BufReader::new(file), Limits::default());
        let (mut files, mut left) = (BTreeMap::new(), MAX_FILES_BYTES);
        loop {
            let entry = match reader.next_entry() {
                // Other inputs need not be a tar.
                Ok(None) | Err(_) if files.is_empty() => return Ok(None),
                entry => entry.with_context(broken)?.with_context(broken)?,
            };
            let name = String::from_utf8_lossy(&entry.name)
                .trim_start_matches("./")
                .to_owned();
            if files.is_empty() && name != ABOUT {
                return Ok(None);
            }
            if name == SUMS {
                break;
            }
            let is_new = !files.contains_key(&name);
            ensure!(entry.kind == Kind::File && is_new, "{}: `{name}`", broken());
            ensure!(
                entry.size <= left,
                "{}: its lists have more than {MAX_FILES_BYTES} bytes",
                broken()
            );
            left -= entry.size;
            let mut text = Vec::new();
            reader.read_to_end(&mut text).with_context(broken)?;
            files.insert(name, String::from_utf8_lossy(&text).into_owned());
        }
        let mut kit: Self = serde_json::from_str(&files[ABOUT]).with_context(broken)?;
        let lines = |name| {
            files
                .get(name)
                .into_iter()
                .flat_map(|text| text.lines())
                .map(str::to_owned)
                .collect()
        };
        (kit.test_images, kit.tests) = (lines(IMAGES), lines(TESTS));
        let plugin = |(name, text): (String, String)| {
            Some((
                name.strip_prefix(PLUGINS)?
                    .strip_suffix(".yaml")?
                    .to_owned(),
                text,
            ))
        };
        kit.plugins = files.into_iter().filter_map(plugin).collect();
        Ok(Some(kit))
    }

    /// The files of the kit other than images.
    pub(crate) fn files(&self) -> Result<Vec<Beside>> {
        let lines = |lines: &[String]| {
            lines
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        let load = include_str!("../../scripts/load-kit").replace("@IMAGE@", &self.sonobuoy_image);
        let fixed = [
            (ABOUT.to_owned(), serde_json::to_string_pretty(self)? + "\n"),
            (IMAGES.to_owned(), lines(&self.test_images)),
            (TESTS.to_owned(), lines(&self.tests)),
            (LOAD.to_owned(), load),
        ];
        let plugins = self
            .plugins
            .iter()
            .map(|(name, text)| (format!("{PLUGINS}{name}.yaml"), text.clone()));
        let file = |(name, content): (String, String)| Beside {
            is_program: name == LOAD,
            name,
            content: content.into_bytes(),
        };
        Ok(fixed.into_iter().chain(plugins).map(file).collect())
    }
}

/// Whether tests expect an image to be unavailable.
pub(crate) fn is_never_pulled(image: &str) -> bool {
    NEVER_PULLED.iter().any(|place| image.starts_with(place))
}

/// The file for `--e2e-repo-config` that makes the tests use `registry`.
pub(crate) fn repositories(registry: &str) -> String {
    let registry = registry.trim_end_matches('/');
    yaml::write(&all_registries().map(|(key, _)| (key, registry)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_images_are_found_where_a_kit_is_pushed() {
        let places = crate::image::Translation::Kit("reg.local:5000/mirror/".into());
        for (image, expected) in [
            (
                "registry.k8s.io/e2e-test-images/agnhost:2.53",
                "agnhost:2.53",
            ),
            (
                "registry.k8s.io/e2e-test-images/volume/nfs:1.4",
                "volume/nfs:1.4",
            ),
            ("registry.k8s.io/etcd:3.5.21-0", "etcd:3.5.21-0"),
            ("registry.k8s.io/conformance:v1.33.1", "conformance:v1.33.1"),
            ("docker.io/library/busybox:1", "busybox:1"),
            ("docker.io/sonobuoy/systemd-logs:v0.4", "systemd-logs:v0.4"),
            ("localhost/sonobuoy:v1", "sonobuoy:v1"),
        ] {
            assert_eq!(
                places.apply(image),
                format!("reg.local:5000/mirror/{expected}")
            );
        }
        let file = repositories("reg.local:5000/mirror/");
        assert!(
            file.contains("promoterE2eRegistry: reg.local:5000/mirror\n"),
            "{file}"
        );
    }

    #[test]
    fn broken_kit_is_an_error_and_other_files_are_none() {
        let folder = base::temp::Folder::new().unwrap();
        let path = folder.join("kit.tar");
        let pack = |files: &[(&str, &str)]| {
            let mut tar = tar::Builder::new(Vec::new());
            for (name, content) in files {
                let mut header = tar::Header::new_ustar();
                header.set_size(content.len() as u64);
                tar.append_data(&mut header, name, content.as_bytes())
                    .unwrap();
            }
            tar.into_inner().unwrap()
        };
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Kit::read(&path)
        };
        let check = |files: &[(&str, &str)]| read(&pack(files));
        let about = r#"{"kubernetesVersion": "v1.33.1", "sonobuoyImage": "a", "builtIn": [], "pluginImages": []}"#;
        let files = [
            (ABOUT, about),
            (TESTS, "a\nb\n"),
            ("definitions/p.yaml", "x"),
            (SUMS, ""),
            (IMAGES, "c"),
        ];
        let kit = check(&files).unwrap().unwrap();
        assert_eq!(
            (
                kit.kubernetes_version.as_str(),
                kit.tests.len(),
                kit.test_images.len()
            ),
            ("v1.33.1", 2, 0)
        );
        assert_eq!(kit.plugins["p"], "x");
        assert_eq!(
            check(&[files[0], files[2], files[1], files[3]]).unwrap(),
            Some(kit),
            "in another order"
        );
        assert_eq!(check(&[("blobs/x", ""), (ABOUT, about)]).unwrap(), None);
        assert!(check(&[(ABOUT, "{}")]).is_err());
        for twice in &files[..3] {
            assert!(
                check(&[files[0], files[1], files[2], *twice, files[3]]).is_err(),
                "{} twice",
                twice.0
            );
        }
        // The archive of four files, each with a header and a block, is cut before the checksums.
        let whole = pack(&files);
        for end in 1..whole.len().min(6 * 512) {
            assert!(
                read(&whole[..end]).is_ok_and(|kit| kit.is_none())
                    || end >= 512 && read(&whole[..end]).is_err(),
                "{end}"
            );
        }
        let large = "x".repeat(40 << 20);
        assert!(
            check(&[
                files[0],
                ("definitions/a.yaml", &large),
                ("definitions/b.yaml", &large),
                files[3]
            ])
            .is_err()
        );
        let mut sparse = pack(&files);
        sparse[1024 + 156] = b'S';
        let sum: u32 = sparse[1024..1536]
            .iter()
            .enumerate()
            .map(|(at, byte)| {
                if (148..156).contains(&at) {
                    32
                } else {
                    u32::from(*byte)
                }
            })
            .sum();
        sparse[1024 + 148..1024 + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let error = format!("{:#}", read(&sparse).unwrap_err());
        assert!(error.contains("sparse"), "{error}");
        std::fs::write(&path, "no tar at all").unwrap();
        assert_eq!(Kit::read(&path).unwrap(), None);
    }
}
