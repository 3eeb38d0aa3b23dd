//! `sonobuoy images`: which images plugins need, and bringing them to where they are needed.
//!
//! Registries are spoken to directly. The docker program is started only for what is about its own images (`pull`,
//! `delete`), and to ask a conformance image that it has, or that cannot be asked here.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ArgMatches;

use super::transfers::{self, Transfers};
use super::{kit, output, request, verify_images};
use crate::config;
use crate::image::conformance::Tests;
use crate::image::kit::Kit;
use crate::image::{Translation, Wanted, docker, is_conformance};
use crate::names;
use crate::plugin::{self, builtin};
use base::oci::{self, Client, Descriptor, Platform, Reference, Store, Stored};
use base::stop::Stop;
use base::sys::{self, Signal};
use base::temp;
use base::yaml;

/// More than any list of images has.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// Where images are that no registry has.
pub(super) const LOCAL: &str = "localhost/";
pub(super) const REMEDY: &str = "only the conformance image knows the images of its tests; name a list of them, or an archive with that \
                                 image, by --images-from FILE, or leave them out by --dry-run or a list of plugins without e2e (-p)";

/// What the conformance image says of itself.
pub(super) struct Lists {
    pub(super) images: Vec<String>,
    pub(super) tests: Vec<String>,
}

impl Lists {
    pub(super) fn ask(tests: &Tests, env: &[(String, String)]) -> Result<Self> {
        Ok(Self { images: tests.images(env)?, tests: tests.names()? })
    }
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let (name, matches) = matches.subcommand().unwrap_or(("list", matches));
    match name {
        "pull" => pull(matches),
        "push" => push(matches),
        "download" => download(matches),
        "delete" => delete(matches),
        "kit" => kit::make(matches),
        "inspect" => inspect(matches),
        "verify" => verify_images::run(matches),
        _ => list(matches),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn list(matches: &ArgMatches) -> Result<()> {
    let images = all(wanted(matches)?, matches)?;
    let lines: Vec<String> = images.into_iter().map(|image| format!("{image}\n")).collect();
    output::print(&lines.concat())
}

fn pull(matches: &ArgMatches) -> Result<()> {
    transfers::each(
        "pull images",
        matches.get_flag("dry-run"),
        &translated(wanted(matches)?, matches)?,
        |image, transfers| {
            if dry(matches, &format!("pull {image}")) || docker::is_here(image) || in_no_registry(image) {
                return Ok(());
            }
            docker::pull(image, transfers.drawn)
        },
    )
}

fn delete(matches: &ArgMatches) -> Result<()> {
    transfers::each(
        "delete images",
        matches.get_flag("dry-run"),
        &translated(wanted(matches)?, matches)?,
        |image, transfers| {
            let absent = || image.starts_with(LOCAL) && !docker::is_here(image);
            if dry(matches, &format!("delete {image}")) || absent() {
                return Ok(());
            }
            docker::remove(image, transfers.drawn)
        },
    )
}

/// Copies from registry to registry, or out of an archive; layers that are there already are not sent.
fn push(matches: &ArgMatches) -> Result<()> {
    let translate = translation(matches)?;
    let archive = ["kit", "archive"].iter().find_map(|id| matches.get_one::<String>(id)).map(PathBuf::from);
    if let Some(archive) = &archive
        && let Some(registry) = matches.get_one::<String>("custom-registry")
        && let Some(kit) = Kit::read(archive)?
    {
        return kit::push(matches, archive, &kit, registry);
    }
    let Some(translate) = translate else {
        // The original asks for one because of e2e alone, and its own images stay where they are.
        let mut plugins = matches.get_many::<String>("plugin").into_iter().flatten();
        if archive.is_none() && plugins.all(|name| name == builtin::SYSTEMD_LOGS) {
            log::warn!("no registry is named: nothing is pushed");
            return Ok(());
        }
        bail!("where to? name a registry with --custom-registry, or registries with --e2e-repo-config");
    };
    let (client, work) = (client(matches)?, work()?);
    let store = Store::open(&work)?;
    if let Some(archive) = archive {
        let images = oci::read_archive(&archive, &store)?;
        let names: Vec<Reference> = images.iter().map(|stored| stored.name.clone()).collect();
        let push = Push { matches, client: &client, store: &store };
        return transfers::each("push images", matches.get_flag("dry-run"), &names, |name, transfers| {
            let stored = images.iter().find(|stored| stored.name == *name);
            let target = translate.apply(&name.to_string());
            stored.map_or(Ok(()), |stored| push.one(stored, &target, transfers))
        });
    }
    let platform = platform(matches)?;
    let push = Push { matches, client: &client, store: &store };
    transfers::each(
        "push images",
        matches.get_flag("dry-run"),
        &all(wanted(matches)?, matches)?,
        |text, transfers| {
            let target = translate.apply(text);
            if in_no_registry(text) || target == *text || dry(matches, &format!("push {text} to {target}")) {
                return Ok(());
            }
            let name = Reference::parse(text)?;
            let watch = |part: &Descriptor, done| transfers.watch(part, done);
            let stored = store
                .pull(&client, &name, &platform, &watch)
                .or_else(|error| held_by_docker(&work, &store, name, error))?;
            push.one(&stored, &target, transfers)
        },
    )
}

/// The image as docker has it, where its registry has failed with `error`.
fn held_by_docker(work: &Path, store: &Store, name: Reference, error: anyhow::Error) -> Result<Stored> {
    let text = name.to_string();
    if !docker::is_here(&text) {
        return Err(error);
    }
    log::warn!("{error:#}; docker's own copy is pushed");
    let path = work.join("docker.tar");
    docker::save(&text, &path)?;
    let images = oci::read_archive(&path, store).with_context(|| format!("docker's copy of {text}"))?;
    let root = images.into_iter().next().with_context(|| format!("docker's copy of {text} is empty"))?.root;
    Ok(Stored { name, root })
}

/// What sending images needs.
pub(super) struct Push<'a> {
    pub(super) matches: &'a ArgMatches,
    pub(super) client: &'a Client,
    pub(super) store: &'a Store,
}

impl Push<'_> {
    pub(super) fn one(&self, stored: &Stored, target: &str, transfers: &Transfers<'_>) -> Result<()> {
        let target = Reference::parse(target)?;
        if dry(self.matches, &format!("push {} to {target}", stored.name)) {
            return Ok(());
        }
        let watch = |part: &Descriptor, done| transfers.watch(part, done);
        let sent = self.store.push(self.client, stored, &target, &watch)?;
        let level = if transfers.drawn { log::Level::Debug } else { log::Level::Info };
        log::log!(level, "{target}: {sent} new blobs, {}", stored.root.digest);
        output::print(&format!("{target}\n"))
    }
}

/// Everything in one file. What is cut goes on when it is called again.
fn download(matches: &ArgMatches) -> Result<()> {
    let wanted = wanted(matches)?;
    let version = wanted.version.clone().unwrap_or_else(|| crate::VERSION.to_owned());
    let named = matches.get_one::<String>("output").map(PathBuf::from);
    let out = named.unwrap_or_else(|| PathBuf::from(format!("kubernetes_e2e_images_{version}.tar")));
    let images = translated(wanted, matches)?;
    if images.iter().filter(|image| dry(matches, &format!("download {image}"))).count() > 0 {
        return output::print(&format!("{}\n", out.display()));
    }
    let client = client(matches)?;
    let folder = out.with_extension("blobs");
    let store = Store::open(&folder)?;
    let stored = RefCell::new(Vec::new());
    transfers::each("download images", false, &images, |image, transfers| {
        let name = Reference::parse(image)?;
        if in_no_registry(image) {
            return Ok(());
        }
        let watch = |part: &Descriptor, done| transfers.watch(part, done);
        stored.borrow_mut().push(store.pull(&client, &name, &platform(matches)?, &watch)?);
        Ok(())
    })?;
    let stored = stored.into_inner();
    oci::write_archive(&store, &stored, &[], &out)?;
    let _ = std::fs::remove_dir_all(&folder);
    output::print(&format!("{}\n", out.display()))
}

/// Our own image is built or loaded, and pulled from nowhere.
fn in_no_registry(image: &str) -> bool {
    let local = image.starts_with(LOCAL);
    if local {
        log::warn!(
            "{image} is in no registry: `make image` and the kit have its archive, for `images push --archive` and runtimes"
        );
    }
    local
}

fn inspect(matches: &ArgMatches) -> Result<()> {
    let client = client(matches)?;
    let mut missing = 0;
    for image in translated(wanted(matches)?, matches)? {
        if in_no_registry(&image) || dry(matches, &format!("inspect {image}")) {
            continue;
        }
        let found = Reference::parse(&image).and_then(|name| client.exists(&name));
        let word = match &found {
            Ok(Some(digest)) => format!("found {digest}"),
            Ok(None) => "missing".to_owned(),
            Err(error) => format!("unknown: {error:#}"),
        };
        missing += usize::from(!matches!(found, Ok(Some(_))));
        output::print(format!("{image} {word}").trim_end())?;
        output::print("\n")?;
    }
    if missing > 0 { Err(anyhow!("{missing} of the images were not found")) } else { Ok(()) }
}

/// The images that a call is about.
pub(super) fn wanted(matches: &ArgMatches) -> Result<Wanted> {
    Ok(chosen(matches, false)?.0)
}

/// The same, with what a kit of them says. As `run` has it by default, a built-in plugin can come as the one that our own
/// image is enough for.
pub(super) fn chosen(matches: &ArgMatches, own_images: bool) -> Result<(Wanted, Kit)> {
    let own = config::Run::default().worker_image;
    let mut wanted = Wanted::new(&own);
    let mut kit = Kit::default();
    let installed = plugin::Installed::by_name(&|name| std::env::var(name).ok());
    for name in matches.get_many::<String>("plugin").into_iter().flatten() {
        for mut found in plugin::find(name, installed.as_ref().ok())? {
            let ours = builtin::without_image(found.definition.name());
            if let Some(ours) = ours.filter(|_| own_images && found.built_in) {
                found.definition = ours;
            }
            let name = found.definition.name().to_owned();
            kit.built_in.extend(found.built_in.then(|| name.clone()));
            kit.plugins.insert(name, found.definition.to_yaml());
            wanted.add(found, &own, || request::kubernetes_version(matches))?;
        }
    }
    kit.kubernetes_version = wanted.version.clone().unwrap_or_default();
    Ok((wanted, kit))
}

fn all(wanted: Wanted, matches: &ArgMatches) -> Result<Vec<String>> {
    let images = set(wanted, matches)?;
    Ok(images.into_iter().collect())
}

fn set(wanted: Wanted, matches: &ArgMatches) -> Result<BTreeSet<String>> {
    if matches.get_flag("dry-run") {
        return Ok(wanted.without_tests());
    }
    let env = e2e_env(matches);
    wanted.all(|conformance| match matches.get_one::<String>("images-from") {
        Some(path) => Ok(from_file(path, &env)?.images),
        None => of_tests(conformance, &env, matches),
    })
}

/// The images that a file lists, or that a kit or the conformance image in an archive knows.
pub(super) fn from_file(path: &str, env: &[(String, String)]) -> Result<Lists> {
    let mut head = Vec::new();
    let mut file = std::fs::File::open(path).with_context(|| format!("cannot read `{path}`"))?;
    file.by_ref()
        .take(MAX_LIST_BYTES)
        .read_to_end(&mut head)
        .with_context(|| format!("cannot read `{path}`"))?;
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
    let folder = temp::Folder::new().context("cannot make a temporary folder")?;
    let store = Store::open(&folder)?;
    let images = oci::read_archive(path.as_ref(), &store)?;
    let image = images.iter().find(|image| is_conformance(&image.name));
    let image = image.with_context(|| format!("`{path}` has no conformance image"))?;
    Lists::ask(&Tests::of_stored(&store, image)?, env)
}

/// What the conformance image says: asked in docker if it is there already, else taken from its registry.
fn of_tests(image: &str, env: &[(String, String)], matches: &ArgMatches) -> Result<Vec<String>> {
    if docker::is_here(image) {
        return docker::test_images(image, env).context(REMEDY);
    }
    let asked =
        client(matches).and_then(|client| Tests::fetch(&client, image)).and_then(|tests| tests.images(env));
    asked.or_else(|error| {
        log::debug!("{error:#}; trying docker");
        // What docker says of itself where it is not there would only hide why it was tried.
        if docker::pull(image, false).is_err() {
            return Err(error.context(REMEDY));
        }
        docker::test_images(image, env).context(REMEDY)
    })
}

/// Under the names that they have where the call looks for them.
pub(super) fn translated(wanted: Wanted, matches: &ArgMatches) -> Result<Vec<String>> {
    let (translate, images) = (translation(matches)?, all(wanted, matches)?.into_iter());
    Ok(match translate {
        Some(translate) => images.map(|image| translate.apply(&image)).collect(),
        None => images.collect(),
    })
}

fn translation(matches: &ArgMatches) -> Result<Option<Translation>> {
    let text =
        |name: &str| matches.try_get_one::<String>(name).ok().flatten().filter(|text| !text.is_empty());
    if let Some(registry) = text("custom-registry").or_else(|| text("e2e-repo")) {
        return Ok(Some(Translation::Registry(registry.clone())));
    }
    let Some(path) = text("e2e-repo-config") else { return Ok(None) };
    let document = yaml::parse(&request::read_text(path)?).map_err(|error| anyhow!("`{path}`, {error}"))?;
    Ok(Some(Translation::of_document(&document)))
}

/// `--plugin-env e2e.NAME=VALUE`.
fn e2e_env(matches: &ArgMatches) -> Vec<(String, String)> {
    let given = matches.try_get_many::<String>("plugin-env").ok().flatten();
    let pairs = given.into_iter().flatten().filter_map(|text| text.strip_prefix("e2e.")?.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub(super) fn client(matches: &ArgMatches) -> Result<Client> {
    Client::new(
        names::USER_AGENT,
        matches.try_get_one("plain-http").ok().flatten().copied().unwrap_or_default(),
        &Stop::new(),
    )
}

pub(super) fn platform(matches: &ArgMatches) -> Result<Platform> {
    matches.get_one::<String>("platform").map_or_else(|| Ok(Platform::here()), |text| Platform::parse(text))
}

/// Says what would be done; true if nothing else is to be.
pub(super) fn dry(matches: &ArgMatches, what: &str) -> bool {
    let dry = matches.get_flag("dry-run");
    if dry {
        log::info!("would {what}");
    }
    dry
}

/// A folder for blobs on their way, gone at the end.
pub(super) fn work() -> Result<temp::Folder> {
    let folder = temp::Folder::new().context("cannot make a temporary folder")?;
    // Who interrupts does not want gigabytes left behind.
    let gone = folder.to_owned();
    sys::on_signal(&[Signal::Interrupt, Signal::Terminate], move || {
        let _ = std::fs::remove_dir_all(&gone);
        std::process::exit(130)
    })?;
    Ok(folder)
}
