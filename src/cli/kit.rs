//! `sonobuoy images kit` and `images push KIT`: everything that a version's conformance tests need in one file, and
//! its transfer into a registry.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ArgMatches;

use super::image_call::{self, Lists, Push, REMEDY, dry};
use super::{output, transfers};
use crate::causes;
use crate::image::conformance::Tests;
use crate::image::kit::{self, Kit};
use crate::names::VERSION;
use base::oci::{self, Descriptor, Reference, Store, Stored};
use base::temp;

/// The name of the own image's archive in a release kit.
const OWN_ARCHIVE: &str = "sonobuoy-image.tar";
/// The default file with the locations of test images.
const REGISTRIES: &str = "registries.yaml";

/// Creates a kit. An interrupted call is resumed by the next one.
pub(super) fn make(matches: &ArgMatches) -> Result<()> {
    let (wanted, mut kit) = image_call::chosen(matches, true)?;
    let named = matches.get_one::<String>("output").map(PathBuf::from);
    let out = named.unwrap_or_else(|| {
        let version = if kit.kubernetes_version.is_empty() { VERSION } else { &kit.kubernetes_version };
        PathBuf::from(format!("kit-{version}.tar"))
    });
    let conformance = wanted.conformance().map(str::to_owned);
    let mut images: Vec<String> = wanted.without_tests().into_iter().collect();
    if images.iter().filter(|image| dry(matches, &format!("put {image} into the kit"))).count() > 0 {
        return output::print(&format!("{}\n", out.display()));
    }
    let folder = out.with_extension("blobs");
    let store = Store::open(&folder)?;
    let own = own_image(matches, &store)?;
    kit.sonobuoy_image = own.first().map(|own| own.name.to_string()).unwrap_or_default();
    images.retain(|image| !causes::is_local_image(image));
    let stored = RefCell::new(own);
    let (client, platform) = (image_call::client(matches)?, image_call::platform(matches)?);
    let pull = |images: &[String]| {
        transfers::each("download images", false, images, |image, transfers| {
            let watch = |part: &Descriptor, done| transfers.watch(part, done);
            let pulled = store.pull(&client, &Reference::parse(image)?, &platform, &watch);
            stored.borrow_mut().push(pulled.with_context(|| image.clone())?);
            Ok(())
        })
    };
    pull(&images)?;
    kit.plugin_images = images;
    if let Some(conformance) = &conformance {
        let unconfined = image_call::unconfined(matches);
        let lists = match matches.get_one::<String>("images-from") {
            Some(path) => image_call::from_file(path, &[], unconfined)?,
            None => ask(&store, &stored.borrow(), conformance, unconfined).context(REMEDY)?,
        };
        kit.tests = lists.tests;
        let (never, images) = lists.images.into_iter().partition(|image| kit::is_never_pulled(image));
        for image in never {
            log::info!("{image} is not in the kit: tests try what happens if it cannot be pulled");
        }
        kit.test_images = images;
        pull(&kit.test_images)?;
    }
    let stored = stored.into_inner();
    oci::write_archive(&store, &stored, &kit.files()?, &out)?;
    let _ = std::fs::remove_dir_all(&folder);
    log::info!(
        "{} images and the names of {} tests; inside: `sonobuoy images push {} --custom-registry REGISTRY`",
        stored.len(),
        kit.tests.len(),
        out.display()
    );
    output::print(&format!("{}\n", out.display()))
}

/// Queries the conformance image, which is in the store.
fn ask(store: &Store, stored: &[Stored], conformance: &str, unconfined: bool) -> Result<Lists> {
    let name = Reference::parse(conformance)?;
    let image = stored.iter().find(|stored| stored.name == name);
    let image = image.context("the conformance image is missing")?;
    Lists::ask(&Tests::of_stored(store, image, unconfined)?, &[])
}

/// The own image, which is in no registry: from the given archive, or from that of the program's release kit.
fn own_image(matches: &ArgMatches, store: &Store) -> Result<Vec<Stored>> {
    const REMEDY: &str = "name the archive of Sonobuoy's image with --sonobuoy-image FILE: `make image` builds it as target/sonobuoy-image.tar, \
                          and the kit of `make kit` contains it";
    let named = matches.get_one::<String>("sonobuoy-image").map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(OWN_ARCHIVE));
    let path = named.or_else(|| beside().filter(|path| path.exists())).context(REMEDY)?;
    oci::read_archive(&path, store).context(REMEDY)
}

/// Pushes a kit to the registry that its tests use, and writes the tests' registry list.
pub(super) fn push(matches: &ArgMatches, archive: &Path, kit: &Kit, registry: &str) -> Result<()> {
    let named = matches.get_one::<String>("output").map_or(REGISTRIES, String::as_str);
    let text = kit::repositories(registry);
    let known = std::fs::read_to_string(named).ok();
    ensure!(
        known.is_none_or(|known| known == text),
        "`{named}` exists, and says something else; name another file with -o"
    );
    let (client, work) = (image_call::client(matches)?, image_call::work()?);
    let store = Store::open(&work)?;
    let stored = oci::read_archive(archive, &store)?;
    let places = kit::Places::new(registry);
    let mut targets = BTreeMap::<String, &Stored>::new();
    for image in &stored {
        let target = places.apply(&image.name.to_string());
        if let Some(other) = targets.insert(target.clone(), image).filter(|other| other.root != image.root) {
            bail!("`{}` and `{}` would both be `{target}`", other.name, image.name);
        }
    }
    let names: Vec<&String> = targets.keys().collect();
    let push = Push { matches, client: &client, store: &store };
    transfers::each("push images", matches.get_flag("dry-run"), &names, |target, transfers| {
        push.one(targets[*target], target, transfers)
    })?;
    if dry(matches, &format!("write `{named}`")) {
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
