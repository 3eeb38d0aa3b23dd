//! `sonobuoy images`: lists the images that plugins need, transfers them, and packs kits: everything that a version's
//! conformance tests need, in one file.
//!
//! Talks to registries directly. The docker program is started only for docker's own images (`pull`, `delete`), and
//! to run a conformance image that docker has or that cannot be run here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::flag::Args;
use super::transfers::{Transfers, each};
use super::{form, load, output, run_args, shown, verify_images};
use crate::image::conformance::Tests;
use crate::image::kit::{self, Kit};
use crate::image::{PluginImages, Translation, docker, is_conformance};
use crate::names::{self, VERSION};
use crate::plugin::{self, builtin};
use crate::{config, remedies};
use base::at::At as _;
use base::oci::{self, Beside, Client, Descriptor, Platform, Reference, Store, Stored};
use base::stop::Stop;
use base::{sys, temp, yaml};

/// Larger than any list of images.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// The default file with the locations of test images.
const REGISTRIES: &str = "registries.yaml";
const REMEDY: &str = "only the conformance image knows the images of its tests; name a list of them, or an archive with that image, with --images-from FILE, or leave them out with --dry-run or a list of plugins without e2e (-p)";

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
    let places = kit.as_ref().map(|_| kit::Places::new(registry));
    let translation = translation(args)?;
    let target = |image: &str| match (&places, &translation) {
        (Some(places), _) => places.apply(image),
        (None, Some(translation)) => translation.apply(image),
        (None, None) => image.to_owned(),
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
    let local = Local::open(args, &work)?;
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
fn held_by_docker(local: &Local, name: &Reference, error: anyhow::Error) -> Result<Stored> {
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
    let local = Local::open(args, &folder)?;
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
    let local = Local::open(args, &folder)?;
    let own = own_image(args, &local.store)?;
    kit.sonobuoy_image = own.first().map(|own| own.name.to_string()).unwrap_or_default();
    local.images.replace(own);
    images.retain(|image| !remedies::is_local_image(image));
    local.download(&images)?;
    kit.plugin_images = images;
    if let Some(conformance) = &wanted.conformance {
        let lists = match args.text("images-from") {
            Some(path) => from_file(path, &[], args)?,
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

/// Sonobuoy's image, which is in no registry: from the given archive, or from that in the release kit of this program.
fn own_image(args: Args, store: &Store) -> Result<Vec<Stored>> {
    const REMEDY: &str = "name the archive of Sonobuoy's image with --sonobuoy-image FILE: `make image` builds it as target/sonobuoy-image.tar, \
                          and the kit of `make kit` contains it";
    let named = args.text("sonobuoy-image").map(PathBuf::from);
    oci::read_archive(&named.or_else(load::usual_archive).context(REMEDY)?, store).context(REMEDY)
}

fn inspect(args: Args) -> Result<()> {
    let client = client(args)?;
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

/// Lists from the conformance image.
struct Lists {
    images: Vec<String>,
    tests: Vec<String>,
}

impl Lists {
    fn ask(tests: &Tests, env: &[(String, String)]) -> Result<Self> {
        Ok(Self { images: tests.images(env)?, tests: tests.names()? })
    }
}

/// The requested images, with the lists of a kit. With `own_images`, a built-in plugin is the variant that needs only
/// Sonobuoy's image, as in `run`.
fn wanted(args: Args, own_images: bool) -> Result<(PluginImages, Kit)> {
    let run = config::Run::standard();
    let mut wanted = PluginImages { images: [run.worker_image.clone()].into(), ..PluginImages::default() };
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
            wanted.add(&found, &run.worker_image, || run_args::kubernetes_version(args, false))?;
        }
    }
    if let Some(conformance) = &wanted.conformance {
        log::info!("e2e image to be used: {conformance}");
    }
    kit.kubernetes_version = wanted.version.clone().unwrap_or_default();
    Ok((wanted, kit))
}

/// The names of all requested images, those of the tests included.
fn all(wanted: PluginImages, args: Args) -> Result<Vec<String>> {
    let mut images = wanted.images;
    if let Some(conformance) = wanted.conformance {
        // `--plugin-env e2e.NAME=VALUE`
        let env = args.all("plugin-env").filter_map(|text| text.strip_prefix("e2e.")?.split_once('='));
        let env: Vec<_> = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        match args.text("images-from") {
            _ if args.on("dry-run") => log::warn!(
                "--dry-run leaves out the images of the e2e tests, which only {conformance} lists; `sonobuoy images list` asks it"
            ),
            Some(path) => images.extend(from_file(path, &env, args)?.images),
            None => images.extend(of_tests(&conformance, &env, args)?),
        }
    }
    Ok(images.into_iter().collect())
}

/// The images listed in a file, or known to a kit or the conformance image in an archive.
fn from_file(path: &str, env: &[(String, String)], args: Args) -> Result<Lists> {
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

/// All images under the names that this call expects.
pub(super) fn translated(args: Args, own_images: bool) -> Result<Vec<String>> {
    translate(all(wanted(args, own_images)?.0, args)?, args)
}

fn translate(mut images: Vec<String>, args: Args) -> Result<Vec<String>> {
    if let Some(translation) = translation(args)? {
        images.iter_mut().for_each(|image| *image = translation.apply(image));
    }
    Ok(images)
}

fn translation(args: Args) -> Result<Option<Translation>> {
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
struct Local<'a> {
    args: Args<'a>,
    client: Client,
    platform: Platform,
    folder: &'a Path,
    store: Store,
    images: RefCell<Vec<Stored>>,
}

impl<'a> Local<'a> {
    fn open(args: Args<'a>, folder: &'a Path) -> Result<Self> {
        let store = Store::open(folder)?;
        let images = RefCell::default();
        Ok(Self { args, client: client(args)?, platform: platform(args)?, folder, store, images })
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
