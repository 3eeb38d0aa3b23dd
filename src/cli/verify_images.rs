//! `sonobuoy images verify`: checks that every image can be pulled, from registries, an archive, or by nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::flag::Args;
use super::transfers::work;
use super::wanted::translated;
use super::{cluster, output, run_args, shown};
use crate::doctor::{self, Nodes, Pulled};
use crate::image::verify::{self, Availability};
use crate::remedies;
use base::at::At as _;
use base::oci::{self, ImageInfo, Platform, Store};

/// Large images take minutes.
const PULL_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<()> {
    if let Some(path) = args.text("archive") {
        std::fs::metadata(path).at("cannot read", path)?;
    }
    // The images of `run`, not those of `gen`: a kit without the original's systemd-logs image is complete.
    let images = translated(args, true)?;
    if args.on("dry-run") {
        images.iter().for_each(|image| log::info!("would verify {image}"));
        return Ok(());
    }
    let run = run_args::configuration(args)?;
    let stop = shown::stop_on_signal()?;
    let kube = cluster::client(args).map(|kube| kube.under(&stop));
    let nodes = kube.and_then(|kube| Ok((Nodes::read(&kube)?, kube)));
    let architectures = architectures(args, nodes.as_ref().map(|(nodes, _)| nodes))?;
    let mut rows = Vec::new();
    let mut trouble: BTreeMap<String, String> = BTreeMap::new();
    let head = if args.on("on-nodes") {
        let (nodes, kube) = nodes.context("`--on-nodes` needs the cluster")?;
        let credentials = doctor::credentials(&kube, &run);
        let pulled = doctor::pull(&kube, &nodes, &images, &run, credentials.as_ref(), PULL_TIMEOUT)?;
        for ((architecture, node), found) in pulled {
            for (image, pulled) in found {
                let (word, why) = match pulled {
                    Pulled::Here => ("pulled", None),
                    Pulled::Failed(why) => ("failed", Some(why)),
                    Pulled::Waiting => {
                        ("waiting", Some(format!("not pulled within {} min", PULL_TIMEOUT.as_secs() / 60)))
                    }
                };
                trouble.extend(why.map(|why| (image.clone(), why)));
                rows.push([image, word.to_owned(), format!("linux/{architecture}"), node.clone()]);
            }
        }
        rows.sort();
        ["image", "status", "platform", "node"]
    } else {
        let credentials = nodes.as_ref().ok().and_then(|(_, kube)| doctor::credentials(kube, &run));
        let found = match args.text("archive") {
            Some(path) => in_archive(path.as_ref(), &images)?,
            None => in_registries(args, &images, credentials)?,
        };
        for (image, found) in found {
            let why = found.trouble(&image, &architectures);
            let (word, why, info) = match found {
                Availability::Here(info) if why.is_some() => ("wrong platform", why, info),
                Availability::Here(info) => ("found", None, info),
                Availability::Missing => ("missing", why, ImageInfo::default()),
                Availability::Refused(_) => ("refused", why, ImageInfo::default()),
                Availability::Unknown(why) => ("unknown", Some(why), ImageInfo::default()),
            };
            trouble.extend(why.map(|why| (image.clone(), why)));
            rows.push([image, word.to_owned(), info.platforms.join(","), info.digest]);
        }
        ["image", "status", "platforms", "digest"]
    };
    output::print(&output::table(head, &rows, false))?;
    judge(&trouble)
}

/// The required architectures of images: from a flag, else from the nodes, if accessible.
fn architectures(args: Args, nodes: Result<&Nodes, &anyhow::Error>) -> Result<BTreeSet<String>> {
    Ok(match args.text("platform").map(Platform::parse).transpose()? {
        Some(Platform(platforms)) => {
            let architecture = |platform: String| Some(platform.split_once('/')?.1.to_owned());
            platforms.into_iter().filter_map(architecture).collect()
        }
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
    args: Args,
    images: &[String],
    credentials: Option<serde_json::Value>,
) -> Result<Vec<(String, Availability)>> {
    let mut registries = run_args::registries(args)?;
    if let Some(config) = credentials {
        registries = registries.credentials(config);
    }
    let asked = images.iter().filter(|image| !remedies::is_local_image(image));
    Ok(asked.map(|image| (image.clone(), verify::ask(&registries, image))).collect())
}

/// The images of a run, matched with those in an archive.
fn in_archive(path: &Path, images: &[String]) -> Result<Vec<(String, Availability)>> {
    let work = work()?;
    let store = Store::open(&work)?;
    let stored = oci::read_archive(path, &store)?;
    let named: BTreeMap<String, _> = stored.iter().map(|image| (image.name.to_string(), image)).collect();
    let found = |image: &String| {
        let name = oci::Reference::parse(image)?.to_string();
        let found = named.get(&name).map(|stored| store.look(stored)).transpose()?;
        Ok((image.clone(), found.map_or(Availability::Missing, Availability::Here)))
    };
    let found: Vec<_> = images.iter().map(found).collect::<Result<_>>()?;
    // Sonobuoy's image is loaded into nodes, if it is not in the archive.
    Ok(found
        .into_iter()
        .filter(|(image, found)| *found != Availability::Missing || !remedies::is_local_image(image))
        .collect())
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
