//! `sonobuoy images`: lists the images that plugins need, and transfers them.
//!
//! Talks to registries directly. The docker program is started only for docker's own images (`pull`, `delete`), and
//! to run a conformance image that docker has or that cannot be run here.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::flag::Args;
use super::image_args::{Local, all, client, destination, translated, translation, wanted, work};
use super::transfers::each;
use super::{form, image_kit, output, shown, verify_images};
use crate::image::docker;
use crate::image::kit::Kit;
use crate::names::VERSION;
use crate::plugin::builtin;
use crate::remedies;
use base::oci::{self, Reference, Stored};

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    let (name, args) = args.subcommand().unwrap_or(("list", args));
    shown::exit_on_signal()?;
    match name {
        "pull" => {
            let images = translated(wanted(args, false)?.0, args)?;
            each(args, name, &images, String::clone, |image, transfers| {
                if docker::is_here(image) || in_no_registry(image) {
                    return Ok(());
                }
                docker::pull(image, transfers.drawn)
            })
        }
        "push" => push(args),
        "download" => download(args),
        "delete" => {
            let images = translated(wanted(args, false)?.0, args)?;
            each(args, name, &images, String::clone, |image, transfers| {
                if remedies::is_local_image(image) && !docker::is_here(image) {
                    return Ok(());
                }
                docker::remove(image, transfers.drawn)
            })
        }
        "kit" => image_kit::make(args),
        "inspect" => inspect(args),
        "verify" => verify_images::run(args),
        _ => {
            let images = all(wanted(args, false)?.0, args)?;
            let rows: Vec<_> = images.iter().map(|image| [image.to_string()]).collect();
            let shown = form::table(args, ["image"], &rows);
            output::print(&shown.unwrap_or_else(|| rows.iter().map(|[image]| format!("{image}\n")).collect()))
        }
    }?;
    Ok(0)
}

/// Copies between registries, or from an archive; existing layers are not sent.
fn push(args: Args) -> Result<()> {
    let archive = args.text("kit").or(args.text("archive")).map(Path::new);
    if let Some((archive, registry)) = archive.zip(args.text("custom-registry"))
        && let Some(kit) = Kit::read(archive)?
    {
        return image_kit::push(args, archive, &kit, registry);
    }
    let Some(translate) = translation(args)? else {
        // The original requires one only because of e2e, and its own images are never moved.
        if archive.is_none() && args.all("plugin").all(|name| name == builtin::SYSTEMD_LOGS) {
            log::warn!("no registry was named: nothing is pushed");
            return Ok(());
        }
        bail!("no registry to push to; name one with --custom-registry, or several with --e2e-repo-config");
    };
    let work = work()?;
    let local = Local::open(args, &work)?;
    let describe = |(name, target): &(Reference, String)| format!("{name} to {target}");
    if let Some(archive) = archive {
        let images = oci::read_archive(archive, &local.store)?;
        let targets =
            images.iter().map(|image| (image.name.clone(), translate.apply(&image.name.to_string())));
        let targets: Vec<_> = targets.collect();
        return each(args, "push", &targets, describe, |(name, target), transfers| {
            let stored = images.iter().find(|stored| stored.name == *name);
            stored.map_or(Ok(()), |stored| local.push(stored, target, transfers))
        });
    }
    let mut targets = Vec::new();
    for image in all(wanted(args, false)?.0, args)? {
        let target = translate.apply(&image);
        if !in_no_registry(&image) && target != image {
            targets.push((Reference::parse(&image)?, target));
        }
    }
    each(args, "push", &targets, describe, |(name, target), transfers| {
        let stored = local.pull(name, transfers).or_else(|error| held_by_docker(&local, name, error))?;
        local.push(&stored, target, transfers)
    })
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
    let mut images = translated(wanted, args)?;
    images.retain(|image| args.on("dry-run") || !in_no_registry(image));
    if args.on("dry-run") {
        images.iter().for_each(|image| log::info!("would download {image}"));
        return output::line(out.display());
    }
    let local = Local::open(args, &folder)?;
    local.download(&images)?;
    local.archive(&[], &out)
}

fn inspect(args: Args) -> Result<()> {
    let client = client(args)?;
    let mut missing = 0;
    for image in translated(wanted(args, false)?.0, args)? {
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

/// Whether the image is the own one, which is built or loaded and never pulled.
fn in_no_registry(image: &str) -> bool {
    let local = remedies::is_local_image(image);
    if local {
        log::warn!(
            "{image} is not in any registry: its archive comes with the kit or from `make image`, for `images push --archive` and runtimes"
        );
    }
    local
}
