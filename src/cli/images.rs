//! `sonobuoy images`: lists the images that plugins and tests need, under the names that flags give
//! them; checks and transfers them, and packs kits: everything that a version's conformance tests
//! need, in one file.
//!
//! Talks to registries directly. Transfers images one after the other, and continues after the
//! failure of one: a board on a terminal, lines and heartbeats elsewhere. Only the conformance
//! image knows the images of its tests; the docker program is started only for docker's own images
//! (`pull`, `delete`), and to run a conformance image that docker has or that cannot be run here.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::cluster::ClusterFlags;
use super::e2e::IsolationFlag;
use super::file::read_text;
use super::flag::{Filled as _, examples, parse_version};
use super::load::usual_archive;
use super::output::{self, TableFormFlag};
use super::run_flags::{
    KUBERNETES_VERSION_HELP, PLUGIN_ENV_HELP, RepositoryFlags, read_configuration,
};
use super::run_plan::{self, registries};
use crate::doctor::{self, Nodes, Pulled};
use crate::image::conformance::Tests;
use crate::image::kit::{self, Kit};
use crate::image::verify::{Availability, ask};
use crate::image::{PluginImages, Translation, docker, is_conformance};
use crate::progress_view::{Board, ProgressOutput, Scene, Task, Unit};
use base::at::At as _;
use base::temp;
use model::config;
use model::names::VERSION;
use model::plugin::{self, builtin};
use model::remedies;
use oci::{self, Beside, Client, Descriptor, ImageInfo, Platform, Reference, Store, Stored};

/// The default file with the locations of test images.
const REGISTRIES: &str = "registries.yaml";
/// Large images take minutes.
const PULL_TIMEOUT: Duration = Duration::from_secs(600);
/// Larger than any list of images.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// What to do without the conformance image.
const REMEDY: &str = "only the conformance image knows the images of its tests; name a list of \
                      them, or an archive with that image, with --images-from FILE, or leave them \
                      out with --dry-run or a list of plugins without e2e (-p)";

/// A note on listing images.
const EXECUTES: &str = "\
Only the conformance image knows the images of its tests: listing them
executes that image's program, isolated from this machine, or not at all.
--images-from takes a list instead, and -p plugins without e2e.";

/// The container images that plugins need
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = format!(
        "{EXECUTES}\n\n{}",
        examples(&[
            (
                "Copy what a run needs",
                "sonobuoy images push --custom-registry registry.local --kubernetes-version \
                 v1.33.1",
            ),
            (
                "Save all of it in one file",
                "sonobuoy images download --kubernetes-version v1.33.1",
            ),
        ])
    )
)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    command: Option<ImagesCommand>,
    #[command(flatten)]
    list: ListImagesArgs,
}

#[derive(clap::Subcommand)]
enum ImagesCommand {
    /// List the images (what `images` alone does)
    #[command(after_help = EXECUTES)]
    List(ListImagesArgs),
    /// Pull the images to this machine
    Pull(LocalImagesArgs),
    Push(PushArgs),
    #[command(visible_alias = "bundle")]
    Download(DownloadArgs),
    Kit(KitArgs),
    /// Remove the images from this machine
    Delete(LocalImagesArgs),
    Verify(VerifyImagesArgs),
    Inspect(InspectArgs),
}

/// The images to work with
#[derive(clap::Args)]
struct WantedFlags {
    #[arg(
        long,
        value_name = "VERSION",
        value_parser = parse_version,
        help = KUBERNETES_VERSION_HELP
    )]
    kubernetes_version: Option<String>,
    /// Plugins whose images to use: built-in names or files
    #[arg(
        short,
        long = "plugin",
        value_name = "NAME,...",
        value_delimiter = ',',
        default_values = builtin::DEFAULT
    )]
    plugins: Vec<String>,
    /// List of the tests' images, or archive with the conformance image, instead of asking its
    /// registry
    #[arg(long, value_name = "FILE")]
    images_from: Option<String>,
    #[command(flatten)]
    isolation: IsolationFlag,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// List the images
#[derive(clap::Args)]
struct ListImagesArgs {
    #[command(flatten)]
    wanted: WantedFlags,
    #[arg(long, value_name = "PLUGIN.NAME=VALUE", help = PLUGIN_ENV_HELP)]
    plugin_env: Vec<String>,
    #[command(flatten)]
    form: TableFormFlag,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Pull or remove images of this machine
#[derive(clap::Args)]
struct LocalImagesArgs {
    #[command(flatten)]
    wanted: WantedFlags,
    #[command(flatten)]
    repositories: RepositoryFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// How images are transferred
#[derive(clap::Args)]
struct TransferFlags {
    #[arg(
        long,
        value_name = "OS/ARCH,...",
        help = "Platforms of the images, or `all` [default: this machine's]"
    )]
    platform: Option<String>,
    #[command(flatten)]
    plain_http: PlainHttpFlag,
}

/// The protocol of registries
#[derive(Clone, Copy, clap::Args)]
struct PlainHttpFlag {
    /// Use HTTP instead of HTTPS for registries
    #[arg(long)]
    plain_http: bool,
}

/// Copy the images to another registry
#[derive(clap::Args)]
struct PushArgs {
    #[command(flatten)]
    wanted: WantedFlags,
    #[command(flatten)]
    repositories: RepositoryFlags,
    /// Registry to push to; images keep the last part of their name
    #[arg(long, value_name = "REGISTRY")]
    custom_registry: Option<String>,
    /// Kit whose images to push
    #[arg(
        value_name = "KIT",
        conflicts_with_all = ["archive", "e2e_repo", "e2e_repo_config"]
    )]
    kit: Option<String>,
    /// Push the images in this archive instead of those in their registries
    #[arg(long, value_name = "FILE")]
    archive: Option<String>,
    #[arg(
        short,
        long,
        value_name = "FILE",
        help = "With a kit: file to write for --e2e-repo-config [default: registries.yaml]"
    )]
    output: Option<String>,
    #[command(flatten)]
    transfer: TransferFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Save the images in one file
#[derive(clap::Args)]
struct DownloadArgs {
    #[command(flatten)]
    wanted: WantedFlags,
    #[command(flatten)]
    repositories: RepositoryFlags,
    #[arg(
        short,
        long,
        value_name = "FILE",
        help = "File to write [default: kubernetes_e2e_images_VERSION.tar]"
    )]
    output: Option<String>,
    #[command(flatten)]
    transfer: TransferFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Save everything that a version's conformance tests need in one file
#[derive(clap::Args)]
struct KitArgs {
    #[command(flatten)]
    wanted: WantedFlags,
    #[arg(
        short,
        long,
        value_name = "FILE",
        help = "File to write [default: kit-VERSION.tar]"
    )]
    output: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        help = "Archive of Sonobuoy's image [default: sonobuoy-image.tar next to this program]"
    )]
    sonobuoy_image: Option<String>,
    #[command(flatten)]
    transfer: TransferFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Check that every image can be pulled, for the architectures of the nodes
#[derive(clap::Args)]
struct VerifyImagesArgs {
    #[command(flatten)]
    wanted: WantedFlags,
    #[command(flatten)]
    repositories: RepositoryFlags,
    #[command(flatten)]
    complete_registry: CompleteRegistryFlag,
    /// Look into this archive instead of registries
    #[arg(long, value_name = "FILE")]
    archive: Option<String>,
    /// Run configuration (JSON), for its namespace and pull secret
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Have a node of each architecture pull them
    #[arg(long)]
    on_nodes: bool,
    #[arg(
        long,
        value_name = "OS/ARCH,...",
        help = "Platforms to check, or `all` [default: those of the nodes]"
    )]
    platform: Option<String>,
    #[command(flatten)]
    plain_http: PlainHttpFlag,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Check which images exist in their registries
#[derive(clap::Args)]
struct InspectArgs {
    #[command(flatten)]
    wanted: WantedFlags,
    #[command(flatten)]
    repositories: RepositoryFlags,
    #[command(flatten)]
    complete_registry: CompleteRegistryFlag,
    #[command(flatten)]
    plain_http: PlainHttpFlag,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// A registry to check
#[derive(clap::Args)]
struct CompleteRegistryFlag {
    /// Registry that should have all images
    #[arg(long, value_name = "REGISTRY")]
    custom_registry: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &ImagesArgs) -> Result<()> {
    output::exit_on_signal()?;
    match &args.command {
        None => list(&args.list),
        Some(ImagesCommand::List(args)) => list(args),
        Some(ImagesCommand::Pull(args)) => pull(args),
        Some(ImagesCommand::Push(args)) => push(args),
        Some(ImagesCommand::Download(args)) => download(args),
        Some(ImagesCommand::Kit(args)) => make_kit(args),
        Some(ImagesCommand::Delete(args)) => delete(args),
        Some(ImagesCommand::Verify(args)) => verify(args),
        Some(ImagesCommand::Inspect(args)) => inspect(args),
    }
}

fn list(args: &ListImagesArgs) -> Result<()> {
    // `--plugin-env e2e.NAME=VALUE`
    let env: Vec<(String, String)> = args
        .plugin_env
        .iter()
        .filter_map(|text| text.strip_prefix("e2e.")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let (wanted, _) = args.wanted.find(&args.cluster, false)?;
    let rows: Vec<_> = args
        .wanted
        .names(wanted, &env)?
        .into_iter()
        .map(|image| [image])
        .collect();
    output::print_rows(args.form, ["image"], &rows);
    Ok(())
}

fn pull(args: &LocalImagesArgs) -> Result<()> {
    let images = args.names()?;
    each(
        args.wanted.dry_run,
        "pull",
        &images,
        String::clone,
        |image, transfer| {
            if docker::is_here(image) || in_no_registry(image) {
                return Ok(());
            }
            docker::pull(image, transfer.drawn)
        },
    )
}

fn delete(args: &LocalImagesArgs) -> Result<()> {
    let images = args.names()?;
    each(
        args.wanted.dry_run,
        "delete",
        &images,
        String::clone,
        |image, transfer| {
            if remedies::is_local_image(image) && !docker::is_here(image) {
                return Ok(());
            }
            docker::remove(image, transfer.drawn)
        },
    )
}

impl LocalImagesArgs {
    /// The names of the images in the registries that flags name.
    fn names(&self) -> Result<Vec<String>> {
        let (wanted, _) = self.wanted.find(&self.cluster, false)?;
        let images = self.wanted.names(wanted, &[])?;
        Ok(translated(
            images,
            translation(None, &self.repositories)?.as_ref(),
        ))
    }
}

/// Copies between registries, or from an archive or kit; existing layers are not sent. A kit is
/// pushed to the registry that its tests use, and the tests' registry list is written.
fn push(args: &PushArgs) -> Result<()> {
    let archive = args.kit.filled().or(args.archive.filled()).map(Path::new);
    let registry = args.custom_registry.filled().unwrap_or_default();
    let kit = archive
        .filter(|_| !registry.is_empty())
        .map(Kit::read)
        .transpose()?
        .flatten();
    let file = args.output.filled().unwrap_or(REGISTRIES);
    let translation = if kit.is_some() {
        let existing = std::fs::read_to_string(file).ok();
        ensure!(
            existing.is_none_or(|existing| existing == kit::repositories(registry)),
            "`{file}` exists, and says something else; name another file with -o"
        );
        Translation::Kit(registry.to_owned())
    } else if let Some(translation) =
        translation(args.custom_registry.filled(), &args.repositories)?
    {
        translation
    } else if archive.is_none()
        && args
            .wanted
            .plugins
            .iter()
            .all(|name| name == builtin::SYSTEMD_LOGS)
    {
        // The original requires a registry only because of e2e, and its own images are never moved.
        log::warn!("no registry was named: nothing is pushed");
        return Ok(());
    } else {
        bail!(
            "no registry to push to; name one with --custom-registry, or several with \
             --e2e-repo-config"
        );
    };
    let work = temp::Folder::new()?;
    let local = ImageFolder::open(&args.transfer, &work)?;
    let is_dry_run = args.wanted.dry_run;
    let Some(archive) = archive else {
        let mut targets = Vec::new();
        let (wanted, _) = args.wanted.find(&args.cluster, false)?;
        for image in args.wanted.names(wanted, &[])? {
            let target = translation.apply(&image);
            if !in_no_registry(&image) && target != image {
                targets.push((target, Reference::parse(&image)?));
            }
        }
        let describe = |(target, name): &(String, Reference)| format!("{name} to {target}");
        return each(
            is_dry_run,
            "push",
            &targets,
            describe,
            |(target, name), transfer| {
                let stored = local
                    .pull(name, transfer)
                    .or_else(|error| held_by_docker(&local, name, error))?;
                local.push(&stored, target, transfer)
            },
        );
    };
    let stored = oci::read_archive(archive, &local.store)?;
    let mut targets = BTreeMap::<String, &Stored>::new();
    for image in &stored {
        let target = translation.apply(&image.name.to_string());
        if let Some(other) = targets
            .insert(target.clone(), image)
            .filter(|other| other.root != image.root)
        {
            bail!(
                "`{}` and `{}` would both be `{target}`",
                other.name,
                image.name
            );
        }
    }
    let targets: Vec<_> = targets.into_iter().collect();
    let describe = |(target, image): &(String, &Stored)| format!("{} to {target}", image.name);
    each(
        is_dry_run,
        "push",
        &targets,
        describe,
        |(target, image), transfer| local.push(image, target, transfer),
    )?;
    let Some(kit) = kit else { return Ok(()) };
    if is_dry_run {
        log::info!("would write `{file}`");
        return Ok(());
    }
    temp::write(Path::new(file), 0o666, kit::repositories(registry)).at("cannot write", file)?;
    log::info!(
        "`{file}` is for --e2e-repo-config; `sonobuoy run --kit {} --registry {registry}` needs \
         no other flag{}",
        archive.display(),
        if kit.kubernetes_version.is_empty() {
            ""
        } else {
            " for the conformance tests"
        }
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
    let images = oci::read_archive(&path, &local.store)
        .with_context(|| format!("docker's copy of {text}"))?;
    let root = images
        .into_iter()
        .next()
        .with_context(|| format!("docker's copy of {text} is empty"))?
        .root;
    Ok(Stored {
        name: name.clone(),
        root,
    })
}

/// Downloads all images into one file.
fn download(args: &DownloadArgs) -> Result<()> {
    let (wanted, _) = args.wanted.find(&args.cluster, false)?;
    let (out, folder) = destination(args.output.filled(), "kubernetes_e2e_images_", &wanted);
    let images = args.wanted.names(wanted, &[])?;
    let mut images = translated(images, translation(None, &args.repositories)?.as_ref());
    if args.wanted.dry_run {
        announce("download", &images);
        output::line(out.display());
        return Ok(());
    }
    images.retain(|image| !in_no_registry(image));
    let mut local = ImageFolder::open(&args.transfer, &folder)?;
    local.download(&images)?;
    local.archive(&[], &out)
}

/// Creates a kit.
fn make_kit(args: &KitArgs) -> Result<()> {
    let (wanted, mut kit) = args.wanted.find(&args.cluster, true)?;
    let (out, folder) = destination(args.output.filled(), "kit-", &wanted);
    let mut images: Vec<String> = wanted.images.into_iter().collect();
    if args.wanted.dry_run {
        announce("pack", &images);
        output::line(out.display());
        return Ok(());
    }
    let mut local = ImageFolder::open(&args.transfer, &folder)?;
    let own_images = own_image(args.sonobuoy_image.filled(), &local.store)?;
    kit.sonobuoy_image = own_images
        .first()
        .map(|image| image.name.to_string())
        .unwrap_or_default();
    local.images = own_images;
    images.retain(|image| !remedies::is_local_image(image));
    local.download(&images)?;
    kit.plugin_images = images;
    if let Some(conformance) = &wanted.conformance {
        let is_unconfined = args.wanted.isolation.unconfined;
        let lists = match args.wanted.images_from.filled() {
            Some(path) => from_file(path, &[], is_unconfined)?,
            None => {
                // Unless it is there, its download has failed.
                let name = Reference::parse(conformance)?;
                lists(
                    is_unconfined,
                    &local.store,
                    &local.images,
                    |image| *image == name,
                    &[],
                )
                .context(REMEDY)?
            }
        };
        kit.tests = lists.tests;
        let (never, images) = lists
            .images
            .into_iter()
            .partition(|image| kit::is_never_pulled(image));
        for image in never {
            log::info!("{image} is not in the kit: tests try what happens if it cannot be pulled");
        }
        kit.test_images = images;
        local.download(&kit.test_images)?;
    }
    log::info!(
        "{} images and the names of {} tests; inside: `sonobuoy images push {} --custom-registry \
         REGISTRY`",
        local.images.len(),
        kit.tests.len(),
        out.display()
    );
    local.archive(&kit.files()?, &out)
}

/// Sonobuoy's image, which is in no registry: from the given archive, or from that in the release
/// kit of this program.
fn own_image(archive: Option<&str>, store: &Store) -> Result<Vec<Stored>> {
    const REMEDY: &str = "name the archive of Sonobuoy's image with --sonobuoy-image FILE: `make \
                          image` builds it as target/sonobuoy-image.tar, and the kit of `make \
                          kit` contains it";
    let archive = archive.map(PathBuf::from).or_else(usual_archive);
    oci::read_archive(&archive.context(REMEDY)?, store).context(REMEDY)
}

/// Whether the image is Sonobuoy's, which is built or loaded and never pulled.
fn in_no_registry(image: &str) -> bool {
    let local = remedies::is_local_image(image);
    if local {
        log::warn!(
            "{image} is not in any registry: its archive comes with the kit or from `make image`, \
             for `images push --archive` and runtimes"
        );
    }
    local
}

fn inspect(args: &InspectArgs) -> Result<()> {
    let client = registries(args.plain_http.plain_http)?;
    let mut missing = 0;
    let (wanted, _) = args.wanted.find(&args.cluster, false)?;
    let registry = args.complete_registry.custom_registry.filled();
    let translation = translation(registry, &args.repositories)?;
    let mut images = translated(args.wanted.names(wanted, &[])?, translation.as_ref());
    images.retain(|image| !in_no_registry(image));
    if args.wanted.dry_run {
        announce("inspect", &images);
        return Ok(());
    }
    for image in images {
        let word = match Reference::parse(&image).and_then(|name| client.exists(&name)) {
            Ok(Some(digest)) => format!("found {digest}"),
            other => {
                missing += 1;
                other.map_or_else(
                    |error| format!("unknown: {error:#}"),
                    |_| "missing".to_owned(),
                )
            }
        };
        output::line(format!("{image} {word}").trim_end());
    }
    if missing > 0 {
        bail!("{missing} of the images were not found");
    }
    log::info!("configured images available");
    Ok(())
}

/// Images in a folder, and access to their registries.
struct ImageFolder<'a> {
    client: Client,
    platform: Platform,
    folder: &'a Path,
    store: Store,
    images: Vec<Stored>,
}

impl<'a> ImageFolder<'a> {
    fn open(flags: &TransferFlags, folder: &'a Path) -> Result<Self> {
        let client = registries(flags.plain_http.plain_http)?;
        let store = Store::open(folder)?;
        let platform = flags
            .platform
            .filled()
            .map_or_else(|| Ok(Platform::local()), Platform::parse)?;
        Ok(Self {
            client,
            platform,
            folder,
            store,
            images: Vec::new(),
        })
    }

    fn pull(&self, name: &Reference, transfer: &Transfer<'_>) -> Result<Stored> {
        self.store
            .pull(&self.client, name, &self.platform, &|layer, done| {
                transfer.watch(layer, done);
            })
    }

    fn push(&self, stored: &Stored, target: &str, transfer: &Transfer<'_>) -> Result<()> {
        let target = Reference::parse(target)?;
        let watch = |layer: &Descriptor, done| transfer.watch(layer, done);
        let sent = self.store.push(&self.client, stored, &target, &watch)?;
        let level = if transfer.drawn {
            log::Level::Debug
        } else {
            log::Level::Info
        };
        log::log!(level, "{target}: {sent} new blobs, {}", stored.root.digest);
        output::line(target);
        Ok(())
    }

    /// Pulls images that exist in registries.
    fn download(&mut self, images: &[String]) -> Result<()> {
        let mut pulled = Vec::new();
        each(
            false,
            "download",
            images,
            String::clone,
            |image, transfer| {
                let name = Reference::parse(image)?;
                pulled.push(self.pull(&name, transfer).with_context(|| image.clone())?);
                Ok(())
            },
        )?;
        self.images.extend(pulled);
        Ok(())
    }

    /// Moves all images into an archive.
    fn archive(&self, files: &[Beside], out: &Path) -> Result<()> {
        oci::write_archive(&self.store, &self.images, files, out)?;
        let _ = std::fs::remove_dir_all(self.folder);
        output::line(out.display());
        Ok(())
    }
}

/// The file of `--output`, by default named after the version, and the folder next to it, with
/// which the next call resumes an interrupted download.
fn destination(output: Option<&str>, name: &str, wanted: &PluginImages) -> (PathBuf, PathBuf) {
    let version = wanted.version.as_deref().unwrap_or(VERSION);
    let out = output.map_or_else(|| format!("{name}{version}.tar").into(), PathBuf::from);
    let folder = out.with_extension("blobs");
    (out, folder)
}

/// Lists from the conformance image.
struct Lists {
    images: Vec<String>,
    tests: Vec<String>,
}

/// Queries the conformance image, one of those in the store.
fn lists(
    is_unconfined: bool,
    store: &Store,
    images: &[Stored],
    is_wanted: impl Fn(&Reference) -> bool,
    env: &[(String, String)],
) -> Result<Lists> {
    let image = images
        .iter()
        .find(|image| is_wanted(&image.name))
        .context("there is no conformance image")?;
    let tests = Tests::of_stored(store, image, is_unconfined)?;
    Ok(Lists {
        images: tests.images(env)?,
        tests: tests.names()?,
    })
}

impl WantedFlags {
    /// The requested images, with the lists of a kit. With `own_images`, a built-in plugin is the
    /// variant that needs only Sonobuoy's image, as in `run`.
    fn find(&self, cluster: &ClusterFlags, own_images: bool) -> Result<(PluginImages, Kit)> {
        let run = config::Run::standard();
        let mut wanted = PluginImages {
            images: [run.worker_image.clone()].into(),
            ..PluginImages::default()
        };
        let mut kit = Kit::default();
        let installed = plugin::Installed::by_name();
        let folders = run.plugin_search_path.unwrap_or_default();
        for name in &self.plugins {
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
                wanted.add(&found, &run.worker_image, || {
                    let flag = self.kubernetes_version.filled();
                    run_plan::kubernetes_version(flag, cluster, false)
                })?;
            }
        }
        if let Some(conformance) = &wanted.conformance {
            log::info!("e2e image to be used: {conformance}");
        }
        kit.kubernetes_version = wanted.version.clone().unwrap_or_default();
        Ok((wanted, kit))
    }

    /// The names of all requested images, those of the tests with these variables included.
    fn names(&self, wanted: PluginImages, env: &[(String, String)]) -> Result<Vec<String>> {
        let mut images = wanted.images;
        if let Some(conformance) = wanted.conformance {
            let is_unconfined = self.isolation.unconfined;
            match self.images_from.filled() {
                _ if self.dry_run => log::warn!(
                    "--dry-run leaves out the images of the e2e tests, which only {conformance} \
                     lists; `sonobuoy images list` asks it"
                ),
                Some(path) => images.extend(from_file(path, env, is_unconfined)?.images),
                None => images.extend(of_tests(&conformance, env, is_unconfined)?),
            }
        }
        Ok(images.into_iter().collect())
    }
}

/// The images listed in a file, or known to a kit or the conformance image in an archive.
fn from_file(path: &str, env: &[(String, String)], is_unconfined: bool) -> Result<Lists> {
    let mut head = Vec::new();
    let mut file = std::fs::File::open(path).at("cannot read", path)?;
    file.by_ref()
        .take(MAX_LIST_BYTES)
        .read_to_end(&mut head)
        .at("cannot read", path)?;
    if !head.contains(&0) {
        let text =
            String::from_utf8(head).map_err(|_| anyhow!("`{path}` is not a list of images"))?;
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let images = lines
            .map(|line| {
                Reference::parse(line)
                    .map(|_| line.to_owned())
                    .with_context(|| format!("`{path}`"))
            })
            .collect::<Result<Vec<_>>>()?;
        ensure!(!images.is_empty(), "`{path}` lists no images");
        return Ok(Lists {
            images,
            tests: Vec::new(),
        });
    }
    if let Some(kit) = Kit::read(path.as_ref())? {
        return Ok(Lists {
            images: kit.test_images,
            tests: kit.tests,
        });
    }
    let folder = temp::Folder::new()?;
    let store = Store::open(&folder)?;
    let images = oci::read_archive(path.as_ref(), &store)?;
    lists(is_unconfined, &store, &images, is_conformance, env).with_context(|| format!("`{path}`"))
}

/// The lists of the conformance image: from docker if the image is present there, else from its
/// registry.
fn of_tests(image: &str, env: &[(String, String)], is_unconfined: bool) -> Result<Vec<String>> {
    if docker::is_here(image) {
        return docker::test_images(image, env).context(REMEDY);
    }
    let listed = registries(false)
        .and_then(|client| Tests::fetch(&client, image, is_unconfined))
        .and_then(|tests| tests.images(env));
    listed.or_else(|error| {
        log::debug!("{error:#}; trying docker");
        // Docker's error, such as a missing program, would hide the original cause.
        if docker::pull(image, false).is_err() {
            return Err(error.context(REMEDY));
        }
        docker::test_images(image, env).context(REMEDY)
    })
}

/// The images under the names that this call expects.
fn translated(mut images: Vec<String>, translation: Option<&Translation>) -> Vec<String> {
    if let Some(translation) = translation {
        images
            .iter_mut()
            .for_each(|image| *image = translation.apply(image));
    }
    images
}

/// How flags rename images; `registry` is that of `--custom-registry`.
fn translation(
    registry: Option<&str>,
    repositories: &RepositoryFlags,
) -> Result<Option<Translation>> {
    if let Some(registry) = registry.or(repositories.e2e_repo.filled()) {
        return Ok(Some(Translation::Registry(registry.to_owned())));
    }
    let Some(path) = repositories.e2e_repo_config.filled() else {
        return Ok(None);
    };
    let document = yaml::parse(&read_text(path)?).map_err(|error| anyhow!("`{path}`, {error}"))?;
    Ok(Some(Translation::of_document(&document)))
}

/// Checks that every image can be pulled: from registries, an archive, or by nodes.
fn verify(args: &VerifyImagesArgs) -> Result<()> {
    let archive = args.archive.filled();
    if let Some(path) = archive {
        std::fs::metadata(path).at("cannot read", path)?;
    }
    // The images of `run`, not those of `gen`: a kit without the original's systemd-logs image is
    // complete.
    let (wanted, _) = args.wanted.find(&args.cluster, true)?;
    let registry = args.complete_registry.custom_registry.filled();
    let translation = translation(registry, &args.repositories)?;
    let images = translated(args.wanted.names(wanted, &[])?, translation.as_ref());
    if args.wanted.dry_run {
        announce("verify", &images);
        return Ok(());
    }
    let run = read_configuration(args.config.filled())?;
    let stop = output::stop_on_signal()?;
    let kube = args.cluster.client().map(|kube| kube.under(&stop));
    let nodes = kube.and_then(|kube| Ok((Nodes::read(&kube)?, kube)));
    let architectures = architectures(
        args.platform.filled(),
        nodes.as_ref().map(|(nodes, _)| nodes),
    )?;
    let mut rows = Vec::new();
    let mut trouble: BTreeMap<String, String> = BTreeMap::new();
    let head = if args.on_nodes {
        let (nodes, kube) = nodes.context("`--on-nodes` needs the cluster")?;
        let credentials = doctor::credentials(&kube, &run);
        let pulled = doctor::pull(
            &kube,
            &nodes,
            &images,
            &run,
            credentials.as_ref(),
            PULL_TIMEOUT,
        )?;
        for ((architecture, node), found) in pulled {
            for (image, pulled) in found {
                let (word, why) = match pulled {
                    Pulled::Here => ("pulled", None),
                    Pulled::Failed(why) => ("failed", Some(why)),
                    Pulled::Waiting => (
                        "waiting",
                        Some(format!(
                            "not pulled within {} min",
                            PULL_TIMEOUT.as_secs() / 60
                        )),
                    ),
                };
                trouble.extend(why.map(|why| (image.clone(), why)));
                rows.push([
                    image,
                    word.to_owned(),
                    format!("linux/{architecture}"),
                    node.clone(),
                ]);
            }
        }
        rows.sort();
        ["image", "status", "platform", "node"]
    } else {
        let credentials = nodes
            .as_ref()
            .ok()
            .and_then(|(_, kube)| doctor::credentials(kube, &run));
        let availabilities = match archive {
            Some(path) => in_archive(path.as_ref(), &images)?,
            None => in_registries(args.plain_http.plain_http, &images, credentials)?,
        };
        for (image, availability) in availabilities {
            let why = availability.trouble(&image, &architectures);
            let (word, why, info) = match availability {
                Availability::Here(info) if why.is_some() => ("wrong platform", why, info),
                Availability::Here(info) => ("found", None, info),
                Availability::Missing => ("missing", why, ImageInfo::default()),
                Availability::Refused(_) => ("refused", why, ImageInfo::default()),
                Availability::Unknown(why) => ("unknown", Some(why), ImageInfo::default()),
            };
            trouble.extend(why.map(|why| (image.clone(), why)));
            rows.push([
                image,
                word.to_owned(),
                info.platforms.join(","),
                info.digest,
            ]);
        }
        ["image", "status", "platforms", "digest"]
    };
    output::print(&output::table(head, &rows, false));
    judge(&trouble)
}

/// The required architectures of images: from a flag, else from the nodes, if accessible.
fn architectures(
    platform: Option<&str>,
    nodes: Result<&Nodes, &anyhow::Error>,
) -> Result<BTreeSet<String>> {
    Ok(match platform.map(Platform::parse).transpose()? {
        Some(Platform(platforms)) => platforms
            .iter()
            .filter_map(|platform| Some(platform.split_once('/')?.1.to_owned()))
            .collect(),
        None => nodes.map_or_else(
            |error| {
                log::info!("the nodes' architectures are unknown and not compared: {error:#}");
                BTreeSet::new()
            },
            Nodes::architectures,
        ),
    })
}

fn in_registries(
    plain_http: bool,
    images: &[String],
    credentials: Option<serde_json::Value>,
) -> Result<Vec<(String, Availability)>> {
    let mut registries = registries(plain_http)?;
    if let Some(config) = credentials {
        registries = registries.credentials(config);
    }
    let mut availabilities = Vec::new();
    for image in images {
        if !remedies::is_local_image(image) {
            availabilities.push((image.clone(), ask(&registries, image)));
        }
    }
    Ok(availabilities)
}

/// The images of a run, matched with those in an archive.
fn in_archive(path: &Path, images: &[String]) -> Result<Vec<(String, Availability)>> {
    output::exit_on_signal()?;
    let work = temp::Folder::new()?;
    let store = Store::open(&work)?;
    let stored = oci::read_archive(path, &store)?;
    let mut stored_by_name = BTreeMap::new();
    for image in &stored {
        stored_by_name.insert(image.name.to_string(), image);
    }
    let mut availabilities = Vec::new();
    for image in images {
        let name = Reference::parse(image)?.to_string();
        match stored_by_name.get(&name) {
            Some(stored) => {
                let info = store.image_info(stored)?;
                availabilities.push((image.clone(), Availability::Here(info)));
            }
            // Sonobuoy's image is loaded into nodes, if it is not in the archive.
            None if remedies::is_local_image(image) => {}
            None => availabilities.push((image.clone(), Availability::Missing)),
        }
    }
    Ok(availabilities)
}

/// Reports the problem of each image, and a remedy.
fn judge(trouble: &BTreeMap<String, String>) -> Result<()> {
    for (image, why) in trouble {
        log::error!("{image}: {}", remedies::advised(why));
    }
    match trouble.len() {
        0 => Ok(()),
        1 => bail!("one image cannot be pulled, or could not be checked"),
        count => bail!("{count} images cannot be pulled, or could not be checked"),
    }
}

/// The transfer of one image.
struct Transfer<'a> {
    board: &'a Board,
    /// Whether a board is drawn, which other programs' progress output would garble.
    drawn: bool,
    /// The board without this transfer.
    scene: &'a Scene,
    name: &'a str,
    /// Size and transferred bytes of each layer, by digest.
    layers: RefCell<HashMap<String, (u64, u64)>>,
}

/// Says what a dry run would do.
fn announce(verb: &str, images: &[String]) {
    images
        .iter()
        .for_each(|image| log::info!("would {verb} {image}"));
}

/// Calls `step` for each image, described by `name`; a dry run only says what would be done.
fn each<T>(
    is_dry_run: bool,
    verb: &str,
    images: &[T],
    name: impl Fn(&T) -> String,
    mut step: impl FnMut(&T, &Transfer<'_>) -> Result<()>,
) -> Result<()> {
    let names: Vec<_> = images.iter().map(name).collect();
    if is_dry_run {
        announce(verb, &names);
        return Ok(());
    }
    let output = output::or_log(None);
    output::with_board(output, |board| {
        let total = images.len() as u64;
        let all = Task {
            name: "all".into(),
            unit: Unit::Images,
            total,
            ..Task::default()
        };
        let mut scene = Scene {
            title: format!("{verb} images"),
            state: "at work".into(),
            tasks: vec![all],
            footer: vec!["Ctrl-C stops the transfer; the same command resumes it".into()],
            ..Scene::default()
        };
        for (image, name) in images.iter().zip(&names) {
            let transfer = Transfer {
                board,
                drawn: output == ProgressOutput::Board,
                scene: &scene,
                name: name.rsplit('/').next().unwrap_or_default(),
                layers: RefCell::default(),
            };
            transfer.show();
            let ended = step(image, &transfer);
            if let Err(error) = &ended {
                log::error!("{error:#}");
            }
            let all = &mut scene.tasks[0];
            all.done += 1;
            all.failed += u64::from(ended.is_err());
            if all.done == total {
                all.over = true;
                scene.state = "done".into();
            }
            board.show(scene.clone());
        }
        let failed = scene.tasks[0].failed;
        ensure!(
            failed == 0,
            "failed with {failed} image{}",
            if failed == 1 { "" } else { "s" }
        );
        Ok(())
    })
}

impl Transfer<'_> {
    /// Records the progress of a layer.
    fn watch(&self, layer: &Descriptor, done: u64) {
        let progress = (layer.size, done);
        let mut layers = self.layers.borrow_mut();
        let before = layers.insert(layer.digest.clone(), progress);
        drop(layers);
        if before != Some(progress) {
            self.show();
        }
    }

    fn show(&self) {
        let layers = self.layers.borrow();
        let (unit, total) = match layers.is_empty() {
            true => (Unit::Once, 1),
            false => (Unit::Bytes, layers.values().map(|(size, _)| size).sum()),
        };
        let done = layers.values().map(|(_, done)| done).sum();
        let mut scene = self.scene.clone();
        scene.tasks.push(Task {
            name: self.name.into(),
            unit,
            done,
            total,
            ..Task::default()
        });
        self.board.show(scene);
    }
}
