//! `sonobuoy images kit` and `images push KIT`: everything that a version's conformance tests need in one file, and
//! its transfer into a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::flag::Args;
use super::image_args::{self, Lists, Local, REMEDY, destination, wanted, work};
use super::output;
use super::transfers::each;
use crate::image::conformance::Tests;
use crate::image::kit::{self, Kit};
use crate::names::VERSION;
use crate::remedies;
use base::oci::{self, Reference, Store, Stored};
use base::temp;

/// The name of the own image's archive in a release kit.
const OWN_ARCHIVE: &str = "sonobuoy-image.tar";
/// The default file with the locations of test images.
const REGISTRIES: &str = "registries.yaml";

/// Creates a kit.
pub(super) fn make(args: Args) -> Result<()> {
    let (wanted, mut kit) = wanted(args, true)?;
    let version = if kit.kubernetes_version.is_empty() { VERSION } else { &kit.kubernetes_version };
    let (out, folder) = destination(args, format!("kit-{version}.tar"));
    let conformance = wanted.conformance().map(str::to_owned);
    let mut images: Vec<String> = wanted.without_tests().into_iter().collect();
    if args.on("dry-run") {
        images.iter().for_each(|image| log::info!("would put {image} into the kit"));
        return output::line(out.display());
    }
    let local = Local::open(args, &folder)?;
    let own = own_image(args, &local.store)?;
    kit.sonobuoy_image = own.first().map(|own| own.name.to_string()).unwrap_or_default();
    local.images.replace(own);
    images.retain(|image| !remedies::is_local_image(image));
    local.download(&images)?;
    kit.plugin_images = images;
    if let Some(conformance) = &conformance {
        let lists = match args.text("images-from") {
            Some(path) => image_args::from_file(path, &[], args)?,
            None => ask(&local, conformance, args.on("unconfined")).context(REMEDY)?,
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
fn ask(local: &Local, conformance: &str, unconfined: bool) -> Result<Lists> {
    let name = Reference::parse(conformance)?;
    let images = local.images.borrow();
    let image = images.iter().find(|image| image.name == name).context("the conformance image is missing")?;
    Lists::ask(&Tests::of_stored(&local.store, image, unconfined)?, &[])
}

/// The own image, which is in no registry: from the given archive, or from that of the program's release kit.
fn own_image(args: Args, store: &Store) -> Result<Vec<Stored>> {
    const REMEDY: &str = "name the archive of Sonobuoy's image with --sonobuoy-image FILE: `make image` builds it as target/sonobuoy-image.tar, \
                          and the kit of `make kit` contains it";
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(OWN_ARCHIVE));
    let named = args.text("sonobuoy-image").map(PathBuf::from);
    let path = named.or_else(|| beside().filter(|path| path.exists())).context(REMEDY)?;
    oci::read_archive(&path, store).context(REMEDY)
}

/// Pushes a kit to the registry that its tests use, and writes the tests' registry list.
pub(super) fn push(args: Args, archive: &Path, kit: &Kit, registry: &str) -> Result<()> {
    let named = args.text("output").unwrap_or(REGISTRIES);
    let text = kit::repositories(registry);
    let known = std::fs::read_to_string(named).ok();
    ensure!(
        known.is_none_or(|known| known == text),
        "`{named}` exists, and says something else; name another file with -o"
    );
    let work = work()?;
    let local = Local::open(args, &work)?;
    let stored = oci::read_archive(archive, &local.store)?;
    let places = kit::Places::new(registry);
    let mut targets = BTreeMap::<String, &Stored>::new();
    for image in &stored {
        let target = places.apply(&image.name.to_string());
        if let Some(other) = targets.insert(target.clone(), image).filter(|other| other.root != image.root) {
            bail!("`{}` and `{}` would both be `{target}`", other.name, image.name);
        }
    }
    let targets: Vec<_> = targets.into_iter().collect();
    each(
        args,
        "push",
        &targets,
        |(target, image)| format!("{} to {target}", image.name),
        |(target, image), transfers| local.push(image, target, transfers),
    )?;
    if args.on("dry-run") {
        log::info!("would write `{named}`");
        return Ok(());
    }
    temp::write(Path::new(named), 0o666, text).with_context(|| format!("cannot write `{named}`"))?;
    log::info!(
        "`{named}` is for --e2e-repo-config; `sonobuoy run --kit {} --registry {registry}` needs no other flag{}",
        archive.display(),
        if kit.kubernetes_version.is_empty() { "" } else { " for the conformance tests" }
    );
    Ok(())
}
