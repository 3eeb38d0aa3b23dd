//! The images that a call of `images` is about: those of its plugins and tests, under the names that its flags give them.
//!
//! Asks docker or a registry for the conformance image, which alone knows the images of its tests. Transfers nothing else.

use std::io::Read as _;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::flag::Args;
use super::run_args;
use super::transfers::work;
use crate::config;
use crate::image::conformance::Tests;
use crate::image::kit::Kit;
use crate::image::{PluginImages, Translation, docker, is_conformance};
use crate::plugin::{self, builtin};
use base::at::At as _;
use base::oci::{self, Reference, Store};
use base::yaml;

/// Larger than any list of images.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// What to do without the conformance image.
pub(super) const REMEDY: &str = "only the conformance image knows the images of its tests; name a list of them, or an archive with that image, with --images-from FILE, or leave them out with --dry-run or a list of plugins without e2e (-p)";

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

/// The requested images, with the lists of a kit. With `own_images`, a built-in plugin is the variant that needs only
/// Sonobuoy's image, as in `run`.
pub(super) fn wanted(args: Args, own_images: bool) -> Result<(PluginImages, Kit)> {
    let run = config::Run::standard();
    let mut wanted = PluginImages { images: [run.worker_image.clone()].into(), ..PluginImages::default() };
    let mut kit = Kit::default();
    let installed = plugin::Installed::by_name();
    let folders = run.plugin_search_path.unwrap_or_default();
    for name in args.all("plugin") {
        for mut found in plugin::find(name, installed.as_ref(), &folders)? {
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
pub(super) fn all(wanted: PluginImages, args: Args) -> Result<Vec<String>> {
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
    let asked = run_args::registries(args)
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

pub(super) fn translate(mut images: Vec<String>, args: Args) -> Result<Vec<String>> {
    if let Some(translation) = translation(args)? {
        images.iter_mut().for_each(|image| *image = translation.apply(image));
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
