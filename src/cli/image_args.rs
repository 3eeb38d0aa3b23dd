//! Arguments of image commands: the images, their names, the platform; and images in a local store.

use std::cell::RefCell;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::flag::Args;
use super::transfers::{self, Transfers};
use super::{output, run_args, shown};
use crate::image::conformance::Tests;
use crate::image::kit::Kit;
use crate::image::{PluginImages, Translation, docker, is_conformance};
use crate::plugin::{self, builtin};
use crate::{config, names};
use base::at::At as _;
use base::oci::{self, Beside, Client, Descriptor, Platform, Reference, Store, Stored};
use base::stop::Stop;
use base::{sys, temp, yaml};

/// Larger than any list of images.
const MAX_LIST_BYTES: u64 = 1 << 20;
pub(super) const REMEDY: &str = "only the conformance image knows the images of its tests; name a list of them, or an archive with that \
                                 image, with --images-from FILE, or leave them out with --dry-run or a list of plugins without e2e (-p)";

/// Lists from the conformance image.
pub(super) struct Lists {
    pub(super) images: Vec<String>,
    pub(super) tests: Vec<String>,
}

impl Lists {
    pub(super) fn ask(tests: &Tests, env: &[(String, String)]) -> Result<Self> {
        Ok(Self { images: tests.images(env)?, tests: tests.names()? })
    }
}

/// The requested images, with the lists of a kit. With the default of `run`, a built-in plugin can be the variant
/// that needs only the own image.
pub(super) fn wanted(args: Args, own_images: bool) -> Result<(PluginImages, Kit)> {
    let run = config::Run::standard();
    let mut wanted = PluginImages::new(&run.worker_image);
    let mut kit = Kit::default();
    let installed = plugin::Installed::by_name(&sys::variable);
    let folders = run.plugin_search_path.unwrap_or_default();
    for name in args.all("plugin") {
        for mut found in plugin::find(name, installed.as_ref().ok(), &folders)? {
            let name = found.definition.name().to_owned();
            if own_images
                && found.built_in
                && let Some(ours) = builtin::without_image(&name)
            {
                found.definition = ours;
            }
            kit.built_in.extend(found.built_in.then(|| name.clone()));
            kit.plugins.insert(name, found.definition.to_yaml());
            wanted.add(found, &run.worker_image, || run_args::kubernetes_version(args, false))?;
        }
    }
    if let Some(conformance) = wanted.conformance() {
        log::info!("e2e image to be used: {conformance}");
    }
    kit.kubernetes_version = wanted.version.clone().unwrap_or_default();
    Ok((wanted, kit))
}

/// The names of all requested images, those of the tests included.
pub(super) fn all(wanted: PluginImages, args: Args) -> Result<Vec<String>> {
    let images = if args.on("dry-run") {
        if let Some(conformance) = wanted.conformance() {
            log::warn!(
                "--dry-run leaves out the images of the e2e tests, which only {conformance} lists; `sonobuoy images list` asks it"
            );
        }
        wanted.without_tests()
    } else {
        // `--plugin-env e2e.NAME=VALUE`
        let env = args.all("plugin-env").filter_map(|text| text.strip_prefix("e2e.")?.split_once('='));
        let env: Vec<_> = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        wanted.all(|conformance| match args.text("images-from") {
            Some(path) => Ok(from_file(path, &env, args)?.images),
            None => of_tests(conformance, &env, args),
        })?
    };
    Ok(images.into_iter().collect())
}

/// The images listed in a file, or known to a kit or the conformance image in an archive.
pub(super) fn from_file(path: &str, env: &[(String, String)], args: Args) -> Result<Lists> {
    let mut head = Vec::new();
    let mut file = std::fs::File::open(path).at("cannot read", path)?;
    file.by_ref().take(MAX_LIST_BYTES).read_to_end(&mut head).at("cannot read", path)?;
    if !head.contains(&0) {
        let text = String::from_utf8(head).map_err(|_| anyhow!("`{path}` is not a list of images"))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let images = lines
            .map(|line| Reference::parse(line).map(|_| line.to_owned()).with_context(|| format!("`{path}`")))
            .collect::<Result<Vec<_>>>()?;
        ensure!(!images.is_empty(), "`{path}` lists no images");
        return Ok(Lists { images, tests: Vec::new() });
    }
    if let Some(kit) = Kit::read(path.as_ref())? {
        return Ok(Lists { images: kit.test_images, tests: kit.tests });
    }
    let folder = work()?;
    let store = Store::open(&folder)?;
    let images = oci::read_archive(path.as_ref(), &store)?;
    let image = images.iter().find(|image| is_conformance(&image.name));
    let image = image.with_context(|| format!("`{path}` has no conformance image"))?;
    Lists::ask(&Tests::of_stored(&store, image, args.on("unconfined"))?, env)
}

/// The lists of the conformance image: from docker if the image is present there, else from its registry.
fn of_tests(image: &str, env: &[(String, String)], args: Args) -> Result<Vec<String>> {
    if docker::is_here(image) {
        return docker::test_images(image, env).context(REMEDY);
    }
    let asked = client(args)
        .and_then(|client| Tests::fetch(&client, image, args.on("unconfined")))
        .and_then(|tests| tests.images(env));
    asked.or_else(|error| {
        log::debug!("{error:#}; trying docker");
        // Docker's error, such as a missing program, would hide the original cause.
        if docker::pull(image, false).is_err() {
            return Err(error.context(REMEDY));
        }
        docker::test_images(image, env).context(REMEDY)
    })
}

/// All images under the names expected by this call.
pub(super) fn translated(wanted: PluginImages, args: Args) -> Result<Vec<String>> {
    let (translate, mut images) = (translation(args)?, all(wanted, args)?);
    if let Some(translate) = translate {
        images.iter_mut().for_each(|image| *image = translate.apply(image));
    }
    Ok(images)
}

pub(super) fn translation(args: Args) -> Result<Option<Translation>> {
    if let Some(registry) = args.text("custom-registry").or(args.text("e2e-repo")) {
        return Ok(Some(Translation::Registry(registry.to_owned())));
    }
    let Some(path) = args.text("e2e-repo-config") else { return Ok(None) };
    let document = yaml::parse(&run_args::read_text(path)?).map_err(|error| anyhow!("`{path}`, {error}"))?;
    Ok(Some(Translation::of_document(&document)))
}

pub(super) fn client(args: Args) -> Result<Client> {
    Client::new(names::USER_AGENT, args.on("plain-http"), &Stop::new())
}

fn platform(args: Args) -> Result<Platform> {
    args.text("platform").map_or_else(|| Ok(Platform::here()), Platform::parse)
}

/// A temporary folder for blobs.
pub(super) fn work() -> Result<temp::Folder> {
    shown::exit_on_signal()?;
    temp::Folder::new().context("cannot create a temporary folder")
}

/// Images in a folder, and access to their registries.
pub(super) struct Local<'a> {
    args: Args<'a>,
    client: Client,
    platform: Platform,
    pub(super) folder: &'a Path,
    pub(super) store: Store,
    pub(super) images: RefCell<Vec<Stored>>,
}

impl<'a> Local<'a> {
    pub(super) fn open(args: Args<'a>, folder: &'a Path) -> Result<Self> {
        let store = Store::open(folder)?;
        let images = RefCell::default();
        Ok(Self { args, client: client(args)?, platform: platform(args)?, folder, store, images })
    }

    pub(super) fn pull(&self, name: &Reference, transfers: &Transfers<'_>) -> Result<Stored> {
        let watch = |layer: &Descriptor, done| transfers.watch(layer, done);
        self.store.pull(&self.client, name, &self.platform, &watch)
    }

    pub(super) fn push(&self, stored: &Stored, target: &str, transfers: &Transfers<'_>) -> Result<()> {
        let target = Reference::parse(target)?;
        let watch = |layer: &Descriptor, done| transfers.watch(layer, done);
        let sent = self.store.push(&self.client, stored, &target, &watch)?;
        let level = if transfers.drawn { log::Level::Debug } else { log::Level::Info };
        log::log!(level, "{target}: {sent} new blobs, {}", stored.root.digest);
        output::line(target)
    }

    /// Pulls images that exist in registries.
    pub(super) fn download(&self, images: &[String]) -> Result<()> {
        transfers::each(self.args, "download", images, String::clone, |image, transfers| {
            let pulled = self.pull(&Reference::parse(image)?, transfers).with_context(|| image.clone())?;
            self.images.borrow_mut().push(pulled);
            Ok(())
        })
    }

    /// Moves all images into an archive.
    pub(super) fn archive(&self, files: &[Beside], out: &Path) -> Result<()> {
        oci::write_archive(&self.store, &self.images.borrow(), files, out)?;
        let _ = std::fs::remove_dir_all(self.folder);
        output::line(out.display())
    }
}

/// The file of `--output`, and the folder next to it, with which the next call resumes an interrupted download.
pub(super) fn destination(args: Args, default: String) -> (PathBuf, PathBuf) {
    let out = args.text("output").map_or_else(|| default.into(), PathBuf::from);
    let folder = out.with_extension("blobs");
    (out, folder)
}
