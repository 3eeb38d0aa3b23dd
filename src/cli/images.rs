//! `sonobuoy images`: which images plugins need, and bringing them to where they are needed.
//!
//! Registries are spoken to directly. The docker program is started only for what is about its own images (`pull`,
//! `delete`) and to ask the conformance image which test images it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use serde_json::Value;

use super::{generate, output, request};
use crate::image::{self, Client, Platform, Reference, Store, Stored};
use crate::plugin::{self, Definition, builtin};
use crate::stop::Stop;
use crate::{config, yaml};

/// Stands in images for the version of the cluster.
const VERSION_VARIABLE: &str = "$SONOBUOY_K8S_VERSION";

/// Runs the command.
pub fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let (name, matches) = matches.subcommand().unwrap_or(("list", matches));
    match name {
        "pull" => pull(matches),
        "push" => push(matches),
        "download" => download(matches),
        "delete" => delete(matches),
        "inspect" => inspect(matches),
        _ => list(matches),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn list(matches: &ArgMatches) -> Result<()> {
    let images = Wanted::read(matches)?.all(matches)?;
    let lines: Vec<String> = images.into_iter().map(|image| format!("{image}\n")).collect();
    output::print(&lines.concat())
}

fn pull(matches: &ArgMatches) -> Result<()> {
    let translate = Translation::read(matches)?;
    for image in Wanted::read(matches)?.all(matches)? {
        let image = translate.as_ref().map_or_else(|| image.clone(), |translate| translate.apply(&image));
        if dry(matches, &format!("pull {image}"))
            || docker(&["inspect", "--type=image", &image], Quiet::All).is_ok()
        {
            continue;
        }
        twice(|| docker(&["pull", &image], Quiet::No))?;
    }
    Ok(())
}

fn delete(matches: &ArgMatches) -> Result<()> {
    let translate = Translation::read(matches)?;
    for image in Wanted::read(matches)?.all(matches)? {
        let image = translate.as_ref().map_or_else(|| image.clone(), |translate| translate.apply(&image));
        if !dry(matches, &format!("delete {image}")) {
            twice(|| docker(&["rmi", &image], Quiet::No))?;
        }
    }
    Ok(())
}

/// Copies from registry to registry, or out of an archive; layers that are there already are not sent.
fn push(matches: &ArgMatches) -> Result<()> {
    let translate = Translation::read(matches)?;
    let archive = matches.get_one::<String>("archive").map(PathBuf::from);
    let Some(translate) = translate else {
        bail!("where to? name a registry with --custom-registry, or registries with --e2e-repo-config");
    };
    let (client, work) = (client(matches)?, Work::new()?);
    let store = Store::open(&work.0)?;
    if let Some(archive) = archive {
        for stored in image::read_archive(&archive, &store)? {
            push_one(matches, &client, &store, &stored, &translate)?;
        }
        return Ok(());
    }
    for text in Wanted::read(matches)?.all(matches)? {
        let target = translate.apply(&text);
        if in_no_registry(&text) || target == text || dry(matches, &format!("push {text} to {target}")) {
            continue;
        }
        let stored = store.pull(&client, &Reference::parse(&text)?, &platform(matches)?)?;
        push_one(matches, &client, &store, &stored, &translate)?;
    }
    Ok(())
}

fn push_one(
    matches: &ArgMatches,
    client: &Client,
    store: &Store,
    stored: &Stored,
    translate: &Translation,
) -> Result<()> {
    let target = Reference::parse(&translate.apply(&stored.name.to_string()))?;
    if dry(matches, &format!("push {} to {target}", stored.name)) {
        return Ok(());
    }
    let sent = store.push(client, stored, &target)?;
    log::info!("{target}: {sent} new blobs, {}", stored.root.digest);
    output::print(&format!("{target}\n"))
}

/// Everything in one file. What is cut goes on when it is called again.
fn download(matches: &ArgMatches) -> Result<()> {
    let wanted = Wanted::read(matches)?;
    let translate = Translation::read(matches)?;
    let version = wanted.version.clone().unwrap_or_else(|| crate::VERSION.to_owned());
    let named = matches.get_one::<String>("output").map(PathBuf::from);
    let out = named.unwrap_or_else(|| PathBuf::from(format!("kubernetes_e2e_images_{version}.tar")));
    let images: Vec<String> = wanted.all(matches)?.into_iter().collect();
    let translated =
        |image: &String| translate.as_ref().map_or_else(|| image.clone(), |translate| translate.apply(image));
    let images: Vec<String> = images.iter().map(translated).collect();
    if images.iter().filter(|image| dry(matches, &format!("download {image}"))).count() > 0 {
        return Ok(());
    }
    let client = client(matches)?;
    let folder = out.with_extension("blobs");
    let store = Store::open(&folder)?;
    let mut stored = Vec::new();
    for image in &images {
        let name = Reference::parse(image)?;
        if name.registry == "localhost" {
            log::warn!(
                "{name} is in no registry: it is in the archive that `make image` writes, or in the kit"
            );
            continue;
        }
        log::info!("downloading {name}");
        stored.push(store.pull(&client, &name, &platform(matches)?)?);
    }
    image::write_archive(&store, &stored, &out)?;
    let _ = std::fs::remove_dir_all(&folder);
    output::print(&format!("{}\n", out.display()))
}

/// Our own image is built or loaded, and pulled from nowhere.
fn in_no_registry(image: &str) -> bool {
    let local = image.starts_with("localhost/");
    if local {
        log::warn!(
            "{image} is in no registry: `make image` writes its archive, for `images push --archive` and runtimes"
        );
    }
    local
}

fn inspect(matches: &ArgMatches) -> Result<()> {
    let client = client(matches)?;
    let translate = Translation::read(matches)?;
    let mut missing = 0;
    for image in Wanted::read(matches)?.all(matches)? {
        let image = translate.as_ref().map_or_else(|| image.clone(), |translate| translate.apply(&image));
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
    if missing > 0 { Err(anyhow!("{missing} images are not there")) } else { Ok(()) }
}

/// The images that a call is about.
struct Wanted {
    images: BTreeSet<String>,
    conformance: Option<String>,
    version: Option<String>,
}

impl Wanted {
    /// From definitions; a cluster is asked for its version only if an image depends on it.
    fn read(matches: &ArgMatches) -> Result<Self> {
        let own = config::Run::default().worker_image;
        let mut wanted = Self { images: BTreeSet::from([own.clone()]), conformance: None, version: None };
        let installed = plugin::Installed::open(&|name| std::env::var(name).ok());
        for name in matches.get_many::<String>("plugin").into_iter().flatten() {
            for found in plugin::find(name, installed.as_ref().ok())? {
                let e2e = found.built_in && found.definition.name() == builtin::E2E;
                for image in images_of(found.definition) {
                    let mut image = if image == builtin::OWN_IMAGE { own.clone() } else { image };
                    if image.contains(VERSION_VARIABLE) {
                        let version = match &wanted.version {
                            Some(version) => version.clone(),
                            None => request::kubernetes_version(matches)?,
                        };
                        image = image.replace(VERSION_VARIABLE, &version);
                        wanted.version = Some(version);
                    }
                    if e2e {
                        wanted.conformance = Some(image.clone());
                    }
                    wanted.images.insert(image);
                }
            }
        }
        Ok(wanted)
    }

    /// With the images that the tests use, which only the conformance image knows.
    fn all(self, matches: &ArgMatches) -> Result<BTreeSet<String>> {
        let mut images = self.images;
        if let Some(conformance) = self.conformance.filter(|_| !matches.get_flag("dry-run")) {
            let why = "only the conformance image knows the images of its tests, and docker starts it; \
                       --dry-run leaves them out, and so does a list of plugins without e2e (-p)";
            twice(|| docker(&["pull", &conformance], Quiet::Out)).context(why)?;
            let mut words: Vec<String> =
                ["run", "--rm", "--entrypoint=e2e.test"].map(ToOwned::to_owned).into();
            for (name, value) in e2e_env(matches) {
                words.push(format!("--env={name}={value}"));
            }
            words.extend([conformance, "--list-images".to_owned()]);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let listed = docker(&words, Quiet::No).context(why)?;
            images
                .extend(listed.lines().map(str::trim).filter(|line| !line.is_empty()).map(ToOwned::to_owned));
        }
        Ok(images)
    }
}

fn images_of(mut definition: Definition) -> Vec<String> {
    let inits = definition.pod_spec.as_ref().map(|pod| pod["initContainers"].clone()).unwrap_or_default();
    let inits = inits.as_array().cloned().unwrap_or_default();
    let containers = definition.containers_mut().map(|container| container.clone());
    let all: Vec<Value> = containers.chain(inits).collect();
    all.iter().filter_map(|container| container["image"].as_str().map(ToOwned::to_owned)).collect()
}

/// `--plugin-env e2e.NAME=VALUE`.
fn e2e_env(matches: &ArgMatches) -> Vec<(String, String)> {
    let given = matches.try_get_many::<String>("plugin-env").ok().flatten();
    let pairs = given.into_iter().flatten().filter_map(|text| text.strip_prefix("e2e.")?.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Where images are to come from or go to.
enum Translation {
    /// All into one registry, under their last name.
    Registry(String),
    /// From one registry to another.
    Registries(BTreeMap<String, String>),
}

impl Translation {
    fn read(matches: &ArgMatches) -> Result<Option<Self>> {
        let text =
            |name: &str| matches.try_get_one::<String>(name).ok().flatten().filter(|text| !text.is_empty());
        if let Some(registry) = text("custom-registry").or_else(|| text("e2e-repo")) {
            return Ok(Some(Self::Registry(registry.clone())));
        }
        let Some(path) = text("e2e-repo-config") else { return Ok(None) };
        let document =
            yaml::parse(&request::read_text(path)?).map_err(|error| anyhow!("`{path}`, {error}"))?;
        let known = generate::registries();
        let pairs =
            known.as_object().into_iter().flatten().filter_map(|(key, from)| {
                Some((from.as_str()?.to_owned(), document[key].as_str()?.to_owned()))
            });
        Ok(Some(Self::Registries(pairs.collect())))
    }

    fn apply(&self, image: &str) -> String {
        match self {
            Self::Registry(registry) => plugin::relocated(image, registry),
            Self::Registries(known) => {
                let (place, last) = image.rsplit_once('/').unwrap_or(("docker.io/library", image));
                known
                    .get(place)
                    .map_or_else(|| image.to_owned(), |to| format!("{}/{last}", to.trim_end_matches('/')))
            }
        }
    }
}

fn client(matches: &ArgMatches) -> Result<Client> {
    Client::new(matches.get_flag("plain-http"), &Stop::new())
}

fn platform(matches: &ArgMatches) -> Result<Platform> {
    matches.get_one::<String>("platform").map_or_else(|| Ok(Platform::here()), |text| Platform::parse(text))
}

/// Says what would be done; true if nothing else is to be.
fn dry(matches: &ArgMatches, what: &str) -> bool {
    let dry = matches.get_flag("dry-run");
    if dry {
        log::info!("would {what}");
    }
    dry
}

#[derive(PartialEq)]
enum Quiet {
    /// Progress goes to stderr.
    No,
    /// Only errors do.
    Out,
    /// Nothing does.
    All,
}

fn docker(words: &[&str], quiet: Quiet) -> Result<String> {
    let mut command = Command::new("docker");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(if quiet == Quiet::All { Stdio::null() } else { Stdio::inherit() });
    let output = command
        .output()
        .with_context(|| format!("cannot start `docker {}`; is docker installed?", words.join(" ")))?;
    if !output.status.success() {
        bail!("`docker {}` failed ({})", words.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn twice(step: impl Fn() -> Result<String>) -> Result<String> {
    step().or_else(|error| {
        log::warn!("{error:#}; trying once more");
        step()
    })
}

/// A folder for blobs on their way, gone at the end.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("sonobuoy-images-{}", std::process::id()));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make `{}`", Path::new(&path).display()))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_move_to_other_registries() {
        let one = Translation::Registry("reg.local:5000/mirror/".into());
        assert_eq!(
            one.apply("registry.k8s.io/conformance:v1.30.0"),
            "reg.local:5000/mirror/conformance:v1.30.0"
        );
        let some = Translation::Registries(BTreeMap::from([(
            "registry.k8s.io/e2e-test-images".into(),
            "reg.local/e2e".into(),
        )]));
        for (image, expected) in [
            ("registry.k8s.io/e2e-test-images/agnhost:2.47", "reg.local/e2e/agnhost:2.47"),
            ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
            ("busybox:1", "busybox:1"),
        ] {
            assert_eq!(some.apply(image), expected);
        }
    }
}
