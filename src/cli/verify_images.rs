//! `sonobuoy images verify`: checks that every image can be pulled, from registries, an archive, or by nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;

use super::flag::value;
use super::image_call::{chosen, client, translated, work};
use super::{cluster, output, request, shown};
use crate::causes;
use crate::doctor::{self, Nodes, Pulled};
use crate::image::verify::{self, Found};
use base::at::At as _;
use base::oci::{self, Platform, Store};
use base::visible;

/// Large images take minutes.
const PULL_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    if let Some(path) = value(matches, "archive") {
        std::fs::metadata(path).at("cannot read", path)?;
    }
    // The images of `run`, not those of `gen`: a kit without the original's systemd-logs image is complete.
    let (wanted, _) = chosen(matches, true)?;
    let images = translated(wanted, matches)?;
    if matches.get_flag("dry-run") {
        images.iter().for_each(|image| log::info!("would verify {image}"));
        return Ok(());
    }
    let run = request::configuration(matches)?;
    let stop = shown::stop_on_signal()?;
    let kube = cluster::client(matches, &stop);
    let nodes = kube.and_then(|kube| Ok((Nodes::read(&kube)?, kube)));
    let architectures = architectures(matches, nodes.as_ref().map(|(nodes, _)| nodes))?;
    let mut rows = Vec::new();
    let mut trouble: BTreeMap<String, String> = BTreeMap::new();
    if matches.get_flag("on-nodes") {
        let (nodes, kube) = nodes.context("`--on-nodes` needs the cluster")?;
        let credentials = doctor::credentials(&kube, &run);
        let pulled = doctor::pull(&kube, &nodes, &images, &run, credentials.as_ref(), PULL_TIMEOUT)?;
        for ((architecture, node), found) in pulled {
            for (image, pulled) in found {
                let word = match pulled {
                    Pulled::Here => "pulled",
                    Pulled::Failed(why) => {
                        trouble.insert(image.clone(), why);
                        "failed"
                    }
                    Pulled::Waiting => {
                        let why = format!("not pulled within {} min", PULL_TIMEOUT.as_secs() / 60);
                        trouble.insert(image.clone(), why);
                        "waiting"
                    }
                };
                rows.push([image, word.to_owned(), format!("linux/{architecture}"), node.clone()]);
            }
        }
        rows.sort();
        print(["IMAGE", "STATUS", "PLATFORM", "NODE"], &rows)?;
    } else {
        let credentials = nodes.as_ref().ok().and_then(|(_, kube)| doctor::credentials(kube, &run));
        let found = match value(matches, "archive") {
            Some(path) => in_archive(path.as_ref(), &images)?,
            None => in_registries(matches, &images, credentials)?,
        };
        for (image, found) in found {
            let (word, platforms, digest) = shown(&found);
            let why = found.trouble(&image, &architectures);
            let word = if why.is_some() && word == "found" { "wrong platform" } else { word };
            if let Found::Unknown(why) = &found {
                trouble.insert(image.clone(), why.clone());
            }
            trouble.extend(why.map(|why| (image.clone(), why)));
            rows.push([image, word.to_owned(), platforms, digest]);
        }
        print(["IMAGE", "STATUS", "PLATFORMS", "DIGEST"], &rows)?;
    }
    judge(&trouble)
}

/// The required architectures of images: from a flag, else from the nodes, if accessible.
fn architectures(matches: &ArgMatches, nodes: Result<&Nodes, &anyhow::Error>) -> Result<BTreeSet<String>> {
    Ok(match value(matches, "platform").map(Platform::parse).transpose()? {
        Some(Platform::Of(platforms)) => {
            platforms.into_iter().map(|(_, architecture)| architecture).collect()
        }
        Some(Platform::All) => BTreeSet::new(),
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
    matches: &ArgMatches,
    images: &[String],
    credentials: Option<serde_json::Value>,
) -> Result<Vec<(String, Found)>> {
    let mut registries = client(matches)?;
    if let Some(config) = credentials {
        registries = registries.credentials(config);
    }
    let asked = images.iter().filter(|image| !causes::is_local_image(image));
    Ok(asked.map(|image| (image.clone(), verify::ask(&registries, image))).collect())
}

/// The images of a run, matched with those in an archive.
fn in_archive(path: &Path, images: &[String]) -> Result<Vec<(String, Found)>> {
    let work = work()?;
    let store = Store::open(&work)?;
    let stored = oci::read_archive(path, &store)?;
    let named: BTreeMap<String, _> = stored.iter().map(|image| (image.name.to_string(), image)).collect();
    let found = |image: &String| {
        let name = oci::Reference::parse(image)?.to_string();
        let found = named.get(&name).map(|stored| store.look(stored)).transpose()?;
        Ok((image.clone(), found.map_or(Found::Missing, Found::Here)))
    };
    let found: Vec<_> = images.iter().map(found).collect::<Result<_>>()?;
    // The own image is loaded into nodes, if it is not in the archive.
    Ok(found
        .into_iter()
        .filter(|(image, found)| *found != Found::Missing || !causes::is_local_image(image))
        .collect())
}

fn shown(found: &Found) -> (&'static str, String, String) {
    let nothing = |word| (word, String::new(), String::new());
    match found {
        Found::Here(look) => ("found", look.platforms.join(","), look.digest.clone()),
        Found::Missing => nothing("missing"),
        Found::Refused(_) => nothing("refused"),
        Found::Unknown(_) => nothing("unknown"),
    }
}

fn print(head: [&str; 4], rows: &[[String; 4]]) -> Result<()> {
    let rows: Vec<[String; 4]> = std::iter::once(head.map(str::to_owned))
        .chain(rows.iter().cloned())
        .map(|row| row.map(|cell| visible::line(&cell).into_owned()))
        .collect();
    let width = |column: usize| visible::width(rows.iter().map(|row| &*row[column]));
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for [image, status, platforms, last] in &rows {
        let line =
            format!("{image:0$}  {status:1$}  {platforms:2$}  {last}", widths[0], widths[1], widths[2]);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    output::print(&text)
}

/// Reports the problem of each image, and a remedy.
fn judge(trouble: &BTreeMap<String, String>) -> Result<()> {
    for (image, why) in trouble {
        log::error!("{image}: {}", causes::advised(why));
    }
    match trouble.len() {
        0 => Ok(()),
        1 => bail!("one image cannot be pulled, or could not be checked"),
        count => bail!("{count} images cannot be pulled, or could not be checked"),
    }
}
