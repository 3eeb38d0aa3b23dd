//! `sonobuoy images`: lists the images that plugins need, and transfers them.
//!
//! Talks to registries directly. The docker program is started only for docker's own images (`pull`, `delete`), and
//! to run a conformance image that docker has or that cannot be run here.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;

use super::image_call::{Push, all, client, dry, platform, translated, translation, wanted, work};
use super::{kit, output, shown, transfers, verify_images};
use crate::causes;
use crate::image::docker;
use crate::image::kit::Kit;
use crate::names::VERSION;
use crate::plugin::builtin;
use base::oci::{self, Descriptor, Reference, Store, Stored};

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let (name, matches) = matches.subcommand().unwrap_or(("list", matches));
    shown::exit_on_signal()?;
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
            let absent = || causes::is_local_image(image) && !docker::is_here(image);
            if dry(matches, &format!("delete {image}")) || absent() {
                return Ok(());
            }
            docker::remove(image, transfers.drawn)
        },
    )
}

/// Copies between registries, or from an archive; existing layers are not sent.
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
        // The original requires one only because of e2e, and its own images are never moved.
        let mut plugins = matches.get_many::<String>("plugin").into_iter().flatten();
        if archive.is_none() && plugins.all(|name| name == builtin::SYSTEMD_LOGS) {
            log::warn!("no registry was named: nothing is pushed");
            return Ok(());
        }
        bail!("no registry to push to; name one with --custom-registry, or several with --e2e-repo-config");
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

/// Takes the image from docker after its registry failed with `error`.
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

/// Downloads all images into one file. An interrupted download is resumed by the next call.
fn download(matches: &ArgMatches) -> Result<()> {
    let wanted = wanted(matches)?;
    let version = wanted.version.clone().unwrap_or_else(|| VERSION.to_owned());
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
    if missing > 0 {
        bail!("{missing} of the images were not found");
    }
    if !matches.get_flag("dry-run") {
        log::info!("configured images available");
    }
    Ok(())
}

/// Whether the image is the own one, which is built or loaded and never pulled.
fn in_no_registry(image: &str) -> bool {
    let local = causes::is_local_image(image);
    if local {
        log::warn!(
            "{image} is not in any registry: its archive comes with the kit or from `make image`, for `images push --archive` and runtimes"
        );
    }
    local
}
