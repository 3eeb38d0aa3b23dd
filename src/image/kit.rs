//! The kit: all that a version's conformance tests and other plugins need, in one image archive.
//!
//! Owns what stands in it beside images: what it is for, the lists of images and tests, the plugins, a script that loads it.
//! They come first, so that nobody has to read gigabytes to know. Knows neither registries nor flags.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::translation::{self, Translation};
use base::at::At as _;
use base::oci::Beside;

/// What the kit is for; its first file.
const ABOUT: &str = "kit.json";
const IMAGES: &str = "images.txt";
const TESTS: &str = "tests.txt";
const LOAD: &str = "load";
/// The folder of the plugins' definitions.
const PLUGINS: &str = "definitions/";
/// A list of all tests of a version has one or two MiB.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The files before the images; there is one for each plugin.
const MAX_FILES: usize = 1_000;

/// Images that tests want to fail with: nobody can pull them, and that is what is tested.
const NEVER_PULLED: [&str; 3] =
    ["invalid.registry.k8s.io/", "gcr.io/authenticated-image-pulling/", "gcr.io/k8s-authenticated-test/"];

/// What stands beside the images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kit {
    /// The version of Kubernetes, as `v1.33.1`; empty without conformance tests.
    pub kubernetes_version: String,
    /// Our own image.
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
    /// Reads what stands beside the images; none if this is an image archive, but no kit.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let broken = || format!("`{}` is not a kit, or it is damaged", path.display());
        let file = File::open(path).at("cannot read", path)?;
        let mut archive = tar::Archive::new(BufReader::new(file));
        let mut kit = None::<Self>;
        let entries = archive.entries().with_context(broken)?;
        for entry in entries.take(MAX_FILES) {
            let Ok(entry) = entry else {
                // What is no tar at all may be something else that is looked for.
                return if kit.is_none() { Ok(None) } else { bail!(broken()) };
            };
            let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
            if kit.is_none() && name != ABOUT || name.starts_with("blobs/") {
                break;
            }
            let mut text = Vec::new();
            entry.take(MAX_FILE_BYTES).read_to_end(&mut text).with_context(broken)?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines = || text.lines().map(str::to_owned).collect();
            match (&mut kit, name.as_str()) {
                (None, _) => kit = Some(serde_json::from_str(&text).with_context(broken)?),
                (Some(kit), IMAGES) => kit.test_images = lines(),
                (Some(kit), TESTS) => kit.tests = lines(),
                (Some(kit), name) => {
                    let plugin = name.strip_prefix(PLUGINS).and_then(|name| name.strip_suffix(".yaml"));
                    if let Some(plugin) = plugin {
                        kit.plugins.insert(plugin.to_owned(), text);
                    }
                }
            }
        }
        Ok(kit)
    }

    /// Whether a kit is in this file.
    pub(crate) fn is_there(path: &str) -> bool {
        Self::read(Path::new(path)).is_ok_and(|kit| kit.is_some())
    }

    /// The files beside the images.
    pub(crate) fn files(&self) -> Result<Vec<Beside>> {
        let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let load = include_str!("../../scripts/load-kit").replace("@IMAGE@", &self.sonobuoy_image);
        let fixed = [
            (ABOUT.to_owned(), serde_json::to_string_pretty(self)? + "\n"),
            (IMAGES.to_owned(), lines(&self.test_images)),
            (TESTS.to_owned(), lines(&self.tests)),
            (LOAD.to_owned(), load),
        ];
        let plugins = self.plugins.iter().map(|(name, text)| (format!("{PLUGINS}{name}.yaml"), text.clone()));
        let file = |(name, content): (String, String)| Beside {
            is_program: name == LOAD,
            name,
            content: content.into_bytes(),
        };
        Ok(fixed.into_iter().chain(plugins).map(file).collect())
    }
}

/// Whether an image is meant not to be pulled.
pub(crate) fn is_never_pulled(image: &str) -> bool {
    NEVER_PULLED.iter().any(|place| image.starts_with(place))
}

/// Where the images of a kit are in a registry: the tests' own ones under what follows the part of their name that a file for
/// `--e2e-repo-config` replaces, all others under the last part.
pub(crate) struct Places<'a> {
    registry: &'a str,
    known: Vec<String>,
}

impl<'a> Places<'a> {
    /// The places in `registry`.
    pub(crate) fn new(registry: &'a str) -> Self {
        let known = translation::all_registries();
        let mut known: Vec<String> = known.values().filter_map(|v| v.as_str().map(str::to_owned)).collect();
        // The longest that fits is the one that is replaced.
        known.sort_by_key(|place| std::cmp::Reverse(place.len()));
        Self { registry: registry.trim_end_matches('/'), known }
    }

    /// The name of an image.
    pub(crate) fn apply(&self, image: &str) -> String {
        let rest = self.known.iter().find_map(|place| image.strip_prefix(place)?.strip_prefix('/'));
        match rest {
            Some(rest) => format!("{}/{rest}", self.registry),
            None => Translation::Registry(self.registry.to_owned()).apply(image),
        }
    }
}

/// The file for `--e2e-repo-config` by which the tests find their images in `registry`.
pub(crate) fn repositories(registry: &str) -> String {
    let registry = registry.trim_end_matches('/');
    let keys = translation::all_registries();
    let all: Map<String, Value> = keys.into_iter().map(|(key, _)| (key, registry.into())).collect();
    base::yaml::write(&Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_find_their_images_where_a_kit_is_pushed() {
        let places = Places::new("reg.local:5000/mirror/");
        for (image, expected) in [
            ("registry.k8s.io/e2e-test-images/agnhost:2.53", "agnhost:2.53"),
            ("registry.k8s.io/e2e-test-images/volume/nfs:1.4", "volume/nfs:1.4"),
            ("registry.k8s.io/etcd:3.5.21-0", "etcd:3.5.21-0"),
            ("registry.k8s.io/conformance:v1.33.1", "conformance:v1.33.1"),
            ("docker.io/library/busybox:1", "busybox:1"),
            ("docker.io/sonobuoy/systemd-logs:v0.4", "systemd-logs:v0.4"),
            ("localhost/sonobuoy:v1", "sonobuoy:v1"),
        ] {
            assert_eq!(places.apply(image), format!("reg.local:5000/mirror/{expected}"));
        }
        let file = repositories("reg.local:5000/mirror/");
        assert!(file.contains("promoterE2eRegistry: reg.local:5000/mirror\n"), "{file}");
    }

    #[test]
    fn what_is_not_a_kit_is_none_and_a_broken_one_is_an_error() {
        let folder = base::temp::Folder::new().unwrap();
        let path = folder.join("kit.tar");
        let check = |files: &[(&str, &str)]| {
            let mut tar = tar::Builder::new(File::create(&path).unwrap());
            for (name, content) in files {
                let mut header = tar::Header::new_ustar();
                header.set_size(content.len() as u64);
                tar.append_data(&mut header, name, content.as_bytes()).unwrap();
            }
            tar.finish().unwrap();
            Kit::read(&path)
        };
        let about =
            r#"{"kubernetesVersion": "v1.33.1", "sonobuoyImage": "a", "builtIn": [], "pluginImages": []}"#;
        let kit = check(&[
            (ABOUT, about),
            (TESTS, "a\nb\n"),
            ("definitions/p.yaml", "x"),
            ("blobs/x", ""),
            (IMAGES, "c"),
        ]);
        let kit = kit.unwrap().unwrap();
        assert_eq!(
            (kit.kubernetes_version.as_str(), kit.tests.len(), kit.test_images.len()),
            ("v1.33.1", 2, 0)
        );
        assert_eq!(kit.plugins["p"], "x");
        assert_eq!(check(&[("blobs/x", ""), (ABOUT, about)]).unwrap(), None);
        assert!(check(&[(ABOUT, "{}")]).is_err());
        std::fs::write(&path, "no tar at all").unwrap();
        assert_eq!(Kit::read(&path).unwrap(), None);
    }
}
