//! Arguments of image commands: the images, their names, the platform; and how to push one.

use std::collections::BTreeSet;
use std::io::Read as _;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::ArgMatches;

use super::transfers::Transfers;
use super::{output, request, shown};
use crate::config;
use crate::image::conformance::Tests;
use crate::image::kit::Kit;
use crate::image::{Translation, Wanted, docker, is_conformance};
use crate::names;
use crate::plugin::{self, builtin};
use base::at::At as _;
use base::oci::{self, Client, Descriptor, Platform, Reference, Store, Stored};
use base::stop::Stop;
use base::sys;
use base::temp;
use base::yaml;

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

/// The requested images.
pub(super) fn wanted(matches: &ArgMatches) -> Result<Wanted> {
    Ok(chosen(matches, false)?.0)
}

/// The requested images, with the lists of a kit. With the default of `run`, a built-in plugin can be the variant
/// that needs only the own image.
pub(super) fn chosen(matches: &ArgMatches, own_images: bool) -> Result<(Wanted, Kit)> {
    let own = config::Run::default().worker_image;
    let mut wanted = Wanted::new(&own);
    let mut kit = Kit::default();
    let installed = plugin::Installed::by_name(&sys::variable);
    let folders = config::Run::default().plugin_search_path.unwrap_or_default();
    for name in matches.get_many::<String>("plugin").into_iter().flatten() {
        for mut found in plugin::find(name, installed.as_ref().ok(), &folders)? {
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

pub(super) fn all(wanted: Wanted, matches: &ArgMatches) -> Result<Vec<String>> {
    let images = set(wanted, matches)?;
    Ok(images.into_iter().collect())
}

fn set(wanted: Wanted, matches: &ArgMatches) -> Result<BTreeSet<String>> {
    if matches.get_flag("dry-run") {
        if let Some(conformance) = wanted.conformance() {
            log::warn!(
                "--dry-run leaves out the images of the e2e tests, which only {conformance} lists; `sonobuoy images list` asks it"
            );
        }
        return Ok(wanted.without_tests());
    }
    let env = e2e_env(matches);
    wanted.all(|conformance| match matches.get_one::<String>("images-from") {
        Some(path) => Ok(from_file(path, &env, unconfined(matches))?.images),
        None => of_tests(conformance, &env, matches),
    })
}

/// The images listed in a file, or known to a kit or the conformance image in an archive.
pub(super) fn from_file(path: &str, env: &[(String, String)], unconfined: bool) -> Result<Lists> {
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
    Lists::ask(&Tests::of_stored(&store, image, unconfined)?, env)
}

/// The lists of the conformance image: from docker if the image is present there, else from its registry.
fn of_tests(image: &str, env: &[(String, String)], matches: &ArgMatches) -> Result<Vec<String>> {
    if docker::is_here(image) {
        return docker::test_images(image, env).context(REMEDY);
    }
    let asked = client(matches)
        .and_then(|client| Tests::fetch(&client, image, unconfined(matches)))
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

/// Whether the image's program may run with the user's permissions.
pub(super) fn unconfined(matches: &ArgMatches) -> bool {
    matches.get_flag("unconfined")
}

/// The images under the names expected by this call.
pub(super) fn translated(wanted: Wanted, matches: &ArgMatches) -> Result<Vec<String>> {
    let (translate, images) = (translation(matches)?, all(wanted, matches)?.into_iter());
    Ok(match translate {
        Some(translate) => images.map(|image| translate.apply(&image)).collect(),
        None => images.collect(),
    })
}

pub(super) fn translation(matches: &ArgMatches) -> Result<Option<Translation>> {
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

/// Prints what would be done; true for a dry run.
pub(super) fn dry(matches: &ArgMatches, what: &str) -> bool {
    let dry = matches.get_flag("dry-run");
    if dry {
        log::info!("would {what}");
    }
    dry
}

/// A temporary folder for blobs.
pub(super) fn work() -> Result<temp::Folder> {
    shown::exit_on_signal()?;
    temp::Folder::new().context("cannot create a temporary folder")
}

/// Arguments of a push.
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
