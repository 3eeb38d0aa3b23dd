//! `sonobuoy images`: lists the images that plugins need, transfers them, and packs kits: everything that a version's
//! conformance tests need, in one file.
//!
//! Talks to registries directly. The docker program is started only for docker's own images (`pull`, `delete`), and
//! to run a conformance image that docker has or that cannot be run here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::flag::Args;
use super::transfers::{Transfers, each, work};
use super::wanted::{self, Lists, all, from_file, translate, translated, translation, wanted};
use super::{form, load, output, run_args, shown, verify_images};
use crate::image::conformance::Tests;
use crate::image::kit::{self, Kit};
use crate::image::{Translation, docker};
use crate::names::VERSION;
use crate::plugin::builtin;
use crate::remedies;
use base::at::At as _;
use base::oci::{self, Beside, Client, Descriptor, Platform, Reference, Store, Stored};
use base::temp;

/// The default file with the locations of test images.
const REGISTRIES: &str = "registries.yaml";

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    let (name, args) = args.subcommand().unwrap_or(("list", args));
    shown::exit_on_signal()?;
    match name {
        "push" => push(args),
        "download" => download(args),
        "kit" => make_kit(args),
        "inspect" => inspect(args),
        "verify" => verify_images::run(args),
        "list" => {
            let images = all(wanted(args, false)?.0, args)?;
            form::print(args, ["image"], &images.into_iter().map(|image| [image]).collect::<Vec<_>>())
        }
        // `pull` and `delete`
        _ => each(args, name, &translated(args, false)?, String::clone, |image, transfers| match name {
            "pull" if docker::is_here(image) || in_no_registry(image) => Ok(()),
            "pull" => docker::pull(image, transfers.drawn),
            _ if remedies::is_local_image(image) && !docker::is_here(image) => Ok(()),
            _ => docker::remove(image, transfers.drawn),
        }),
    }?;
    Ok(0)
}

/// Copies between registries, or from an archive or kit; existing layers are not sent. A kit is pushed to the registry
/// that its tests use, and the tests' registry list is written.
fn push(args: Args) -> Result<()> {
    let archive = args.text("kit").or(args.text("archive")).map(Path::new);
    let registry = args.text("custom-registry").unwrap_or_default();
    let kit = archive.filter(|_| !registry.is_empty()).map(Kit::read).transpose()?.flatten();
    let file = args.text("output").unwrap_or(REGISTRIES);
    let translation = match kit {
        Some(_) => Some(Translation::Kit(registry.to_owned())),
        None => translation(args)?,
    };
    let target = |image: &str| {
        translation.as_ref().map_or_else(|| image.to_owned(), |translation| translation.apply(image))
    };
    if kit.is_some() {
        let known = std::fs::read_to_string(file).ok();
        ensure!(
            known.is_none_or(|known| known == kit::repositories(registry)),
            "`{file}` exists, and says something else; name another file with -o"
        );
    } else if translation.is_none() {
        // The original requires one only because of e2e, and its own images are never moved.
        if archive.is_none() && args.all("plugin").all(|name| name == builtin::SYSTEMD_LOGS) {
            log::warn!("no registry was named: nothing is pushed");
            return Ok(());
        }
        bail!("no registry to push to; name one with --custom-registry, or several with --e2e-repo-config");
    }
    let work = work()?;
    let local = ImageFolder::open(args, &work)?;
    let Some(archive) = archive else {
        let mut targets = Vec::new();
        for image in all(wanted(args, false)?.0, args)? {
            let target = target(&image);
            if !in_no_registry(&image) && target != image {
                targets.push((target, Reference::parse(&image)?));
            }
        }
        let describe = |(target, name): &(String, Reference)| format!("{name} to {target}");
        return each(args, "push", &targets, describe, |(target, name), transfers| {
            let stored = local.pull(name, transfers).or_else(|error| held_by_docker(&local, name, error))?;
            local.push(&stored, target, transfers)
        });
    };
    let stored = oci::read_archive(archive, &local.store)?;
    let mut targets = BTreeMap::<String, &Stored>::new();
    for image in &stored {
        let target = target(&image.name.to_string());
        if let Some(other) = targets.insert(target.clone(), image).filter(|other| other.root != image.root) {
            bail!("`{}` and `{}` would both be `{target}`", other.name, image.name);
        }
    }
    let targets: Vec<_> = targets.into_iter().collect();
    let describe = |(target, image): &(String, &Stored)| format!("{} to {target}", image.name);
    each(args, "push", &targets, describe, |(target, image), transfers| {
        local.push(image, target, transfers)
    })?;
    let Some(kit) = kit else { return Ok(()) };
    if args.on("dry-run") {
        log::info!("would write `{file}`");
        return Ok(());
    }
    temp::write(Path::new(file), 0o666, kit::repositories(registry)).at("cannot write", file)?;
    log::info!(
        "`{file}` is for --e2e-repo-config; `sonobuoy run --kit {} --registry {registry}` needs no other flag{}",
        archive.display(),
        if kit.kubernetes_version.is_empty() { "" } else { " for the conformance tests" }
    );
    Ok(())
}

/// Takes the image from docker after its registry failed with `error`.
fn held_by_docker(local: &ImageFolder, name: &Reference, error: anyhow::Error) -> Result<Stored> {
    let text = name.to_string();
    if !docker::is_here(&text) {
        return Err(error);
    }
    log::warn!("{error:#}; docker's own copy is pushed");
    let path = local.folder.join("docker.tar");
    docker::save(&text, &path)?;
    let images =
        oci::read_archive(&path, &local.store).with_context(|| format!("docker's copy of {text}"))?;
    let root = images.into_iter().next().with_context(|| format!("docker's copy of {text} is empty"))?.root;
    Ok(Stored { name: name.clone(), root })
}

/// Downloads all images into one file.
fn download(args: Args) -> Result<()> {
    let (wanted, _) = wanted(args, false)?;
    let version = wanted.version.as_deref().unwrap_or(VERSION);
    let (out, folder) = destination(args, format!("kubernetes_e2e_images_{version}.tar"));
    let mut images = translate(all(wanted, args)?, args)?;
    if args.on("dry-run") {
        images.iter().for_each(|image| log::info!("would download {image}"));
        return output::line(out.display());
    }
    images.retain(|image| !in_no_registry(image));
    let local = ImageFolder::open(args, &folder)?;
    local.download(&images)?;
    local.archive(&[], &out)
}

/// Creates a kit.
fn make_kit(args: Args) -> Result<()> {
    let (wanted, mut kit) = wanted(args, true)?;
    let version = if kit.kubernetes_version.is_empty() { VERSION } else { &kit.kubernetes_version };
    let (out, folder) = destination(args, format!("kit-{version}.tar"));
    let mut images: Vec<String> = wanted.images.into_iter().collect();
    if args.on("dry-run") {
        images.iter().for_each(|image| log::info!("would put {image} into the kit"));
        return output::line(out.display());
    }
    let local = ImageFolder::open(args, &folder)?;
    let own = own_image(args, &local.store)?;
    kit.sonobuoy_image = own.first().map(|own| own.name.to_string()).unwrap_or_default();
    local.images.replace(own);
    images.retain(|image| !remedies::is_local_image(image));
    local.download(&images)?;
    kit.plugin_images = images;
    if let Some(conformance) = &wanted.conformance {
        let lists = match args.text("images-from") {
            Some(path) => from_file(path, &[], args)?,
            None => ask(&local, conformance, args.on("unconfined")).context(wanted::REMEDY)?,
        };
        kit.tests = lists.tests;
        let (never, images) = lists.images.into_iter().partition(|image| kit::is_never_pulled(image));
        for image in never {
            log::info!("{image} is not in the kit: tests try what happens if it cannot be pulled");
        }
        kit.test_images = images;
        local.download(&kit.test_images)?;
    }
    log::info!(
        "{} images and the names of {} tests; inside: `sonobuoy images push {} --custom-registry REGISTRY`",
        local.images.borrow().len(),
        kit.tests.len(),
        out.display()
    );
    local.archive(&kit.files()?, &out)
}

/// Queries the conformance image, which is in the store.
fn ask(local: &ImageFolder, conformance: &str, unconfined: bool) -> Result<Lists> {
    let name = Reference::parse(conformance)?;
    let images = local.images.borrow();
    let image = images.iter().find(|image| image.name == name).context("the conformance image is missing")?;
    Lists::ask(&Tests::of_stored(&local.store, image, unconfined)?, &[])
}

/// Sonobuoy's image, which is in no registry: from the given archive, or from that in the release kit of this program.
fn own_image(args: Args, store: &Store) -> Result<Vec<Stored>> {
    const REMEDY: &str = "name the archive of Sonobuoy's image with --sonobuoy-image FILE: `make image` builds it as target/sonobuoy-image.tar, \
                          and the kit of `make kit` contains it";
    let named = args.text("sonobuoy-image").map(PathBuf::from);
    oci::read_archive(&named.or_else(load::usual_archive).context(REMEDY)?, store).context(REMEDY)
}

/// Whether the image is Sonobuoy's, which is built or loaded and never pulled.
fn in_no_registry(image: &str) -> bool {
    let local = remedies::is_local_image(image);
    if local {
        log::warn!(
            "{image} is not in any registry: its archive comes with the kit or from `make image`, for `images push --archive` and runtimes"
        );
    }
    local
}

fn inspect(args: Args) -> Result<()> {
    let client = run_args::registries(args)?;
    let mut missing = 0;
    for image in translated(args, false)? {
        if in_no_registry(&image) {
            continue;
        }
        if args.on("dry-run") {
            log::info!("would inspect {image}");
            continue;
        }
        let word = match Reference::parse(&image).and_then(|name| client.exists(&name)) {
            Ok(Some(digest)) => format!("found {digest}"),
            other => {
                missing += 1;
                other.map_or_else(|error| format!("unknown: {error:#}"), |_| "missing".to_owned())
            }
        };
        output::line(format!("{image} {word}").trim_end())?;
    }
    if missing > 0 {
        bail!("{missing} of the images were not found");
    }
    if !args.on("dry-run") {
        log::info!("configured images available");
    }
    Ok(())
}

fn platform(args: Args) -> Result<Platform> {
    args.text("platform").map_or_else(|| Ok(Platform::here()), Platform::parse)
}

/// Images in a folder, and access to their registries.
struct ImageFolder<'a> {
    args: Args<'a>,
    client: Client,
    platform: Platform,
    folder: &'a Path,
    store: Store,
    images: RefCell<Vec<Stored>>,
}

impl<'a> ImageFolder<'a> {
    fn open(args: Args<'a>, folder: &'a Path) -> Result<Self> {
        let store = Store::open(folder)?;
        let images = RefCell::default();
        Ok(Self {
            args,
            client: run_args::registries(args)?,
            platform: platform(args)?,
            folder,
            store,
            images,
        })
    }

    fn pull(&self, name: &Reference, transfers: &Transfers<'_>) -> Result<Stored> {
        let watch = |layer: &Descriptor, done| transfers.watch(layer, done);
        self.store.pull(&self.client, name, &self.platform, &watch)
    }

    fn push(&self, stored: &Stored, target: &str, transfers: &Transfers<'_>) -> Result<()> {
        let target = Reference::parse(target)?;
        let watch = |layer: &Descriptor, done| transfers.watch(layer, done);
        let sent = self.store.push(&self.client, stored, &target, &watch)?;
        let level = if transfers.drawn { log::Level::Debug } else { log::Level::Info };
        log::log!(level, "{target}: {sent} new blobs, {}", stored.root.digest);
        output::line(target)
    }

    /// Pulls images that exist in registries.
    fn download(&self, images: &[String]) -> Result<()> {
        each(self.args, "download", images, String::clone, |image, transfers| {
            let pulled = self.pull(&Reference::parse(image)?, transfers).with_context(|| image.clone())?;
            self.images.borrow_mut().push(pulled);
            Ok(())
        })
    }

    /// Moves all images into an archive.
    fn archive(&self, files: &[Beside], out: &Path) -> Result<()> {
        oci::write_archive(&self.store, &self.images.borrow(), files, out)?;
        let _ = std::fs::remove_dir_all(self.folder);
        output::line(out.display())
    }
}

/// The file of `--output`, and the folder next to it, with which the next call resumes an interrupted download.
fn destination(args: Args, default: String) -> (PathBuf, PathBuf) {
    let out = args.text("output").map_or_else(|| default.into(), PathBuf::from);
    let folder = out.with_extension("blobs");
    (out, folder)
}
