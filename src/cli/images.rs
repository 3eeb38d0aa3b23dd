//! `sonobuoy images`: which images plugins need, and bringing them to where they are needed.
//!
//! Registries are spoken to directly. The docker program is started only for what is about its own images (`pull`,
//! `delete`) and to ask the conformance image which test images it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ArgMatches;
use serde_json::Value;

use super::{generate, output, request};
use crate::config;
use crate::names;
use crate::plugin::{self, Definition, builtin};
use base::oci::{self, Client, Platform, Reference, Store, Stored};
use base::stop::Stop;
use base::sys::{self, Signal};
use base::yaml;

/// Where images are that no registry has.
const LOCAL: &str = "localhost/";

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
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
    each(Translation::all(matches)?, |image| {
        if dry(matches, &format!("pull {image}")) || is_here(&image) || in_no_registry(&image) {
            return Ok(());
        }
        twice(|| docker(&["pull", &image], Show::Progress)).map(drop)
    })
}

fn delete(matches: &ArgMatches) -> Result<()> {
    each(Translation::all(matches)?, |image| {
        let absent = || image.starts_with(LOCAL) && !is_here(&image);
        if dry(matches, &format!("delete {image}")) || absent() {
            return Ok(());
        }
        twice(|| docker(&["rmi", &image], Show::Progress)).map(drop)
    })
}

/// Whether the daemon has an image.
fn is_here(image: &str) -> bool {
    docker(&["inspect", "--type=image", image], Show::Nothing).is_ok()
}

/// What fails with one image does not keep the others from their way.
fn each<T>(images: impl IntoIterator<Item = T>, step: impl Fn(T) -> Result<()>) -> Result<()> {
    let failed = images
        .into_iter()
        .filter_map(|image| step(image).err())
        .inspect(|error| log::error!("{error:#}"))
        .count();
    ensure!(failed == 0, "failed with {failed} image{}", if failed == 1 { "" } else { "s" });
    Ok(())
}

/// Copies from registry to registry, or out of an archive; layers that are there already are not sent.
fn push(matches: &ArgMatches) -> Result<()> {
    let translate = Translation::read(matches)?;
    let archive = matches.get_one::<String>("archive").map(PathBuf::from);
    let Some(translate) = translate else {
        // The original asks for one because of e2e alone, and its own images stay where they are.
        let mut plugins = matches.get_many::<String>("plugin").into_iter().flatten();
        if archive.is_none() && plugins.all(|name| name == builtin::SYSTEMD_LOGS) {
            log::warn!("no registry is named: nothing is pushed");
            return Ok(());
        }
        bail!("where to? name a registry with --custom-registry, or registries with --e2e-repo-config");
    };
    let (client, work) = (client(matches)?, Work::new()?);
    let store = Store::open(&work.0)?;
    if let Some(archive) = archive {
        let images = oci::read_archive(&archive, &store)?;
        return each(images, |stored| push_one(matches, &client, &store, &stored, &translate));
    }
    let platform = platform(matches)?;
    each(Wanted::read(matches)?.all(matches)?, |text| {
        let target = translate.apply(&text);
        if in_no_registry(&text) || target == text || dry(matches, &format!("push {text} to {target}")) {
            return Ok(());
        }
        let stored = store.pull(&client, &Reference::parse(&text)?, &platform)?;
        push_one(matches, &client, &store, &stored, &translate)
    })
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
    let version = wanted.version.clone().unwrap_or_else(|| crate::VERSION.to_owned());
    let named = matches.get_one::<String>("output").map(PathBuf::from);
    let out = named.unwrap_or_else(|| PathBuf::from(format!("kubernetes_e2e_images_{version}.tar")));
    let images = Translation::among(wanted, matches)?;
    if images.iter().filter(|image| dry(matches, &format!("download {image}"))).count() > 0 {
        return output::print(&format!("{}\n", out.display()));
    }
    let client = client(matches)?;
    let folder = out.with_extension("blobs");
    let store = Store::open(&folder)?;
    let mut stored = Vec::new();
    for image in &images {
        let name = Reference::parse(image)?;
        if in_no_registry(image) {
            continue;
        }
        log::info!("downloading {name}");
        stored.push(store.pull(&client, &name, &platform(matches)?)?);
    }
    oci::write_archive(&store, &stored, &out)?;
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
    for image in Translation::all(matches)? {
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
        let installed = plugin::Installed::by_name(&|name| std::env::var(name).ok());
        for name in matches.get_many::<String>("plugin").into_iter().flatten() {
            for found in plugin::find(name, installed.as_ref().ok())? {
                let e2e = found.built_in && found.definition.name() == builtin::E2E;
                for image in images_of(found.definition) {
                    let mut image = if image == names::OWN_IMAGE { own.clone() } else { image };
                    if image.contains(names::VERSION_PLACEHOLDER) {
                        let version = match &wanted.version {
                            Some(version) => version.clone(),
                            None => request::kubernetes_version(matches)?,
                        };
                        image = image.replace(names::VERSION_PLACEHOLDER, &version);
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
            if !is_here(&conformance) {
                twice(|| docker(&["pull", &conformance], Show::Progress)).context(why)?;
            }
            let mut words: Vec<String> =
                ["run", "--rm", "--entrypoint=e2e.test"].map(ToOwned::to_owned).into();
            for (name, value) in e2e_env(matches) {
                words.push(format!("--env={name}={value}"));
            }
            words.extend([conformance, "--list-images".to_owned()]);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let listed = docker(&words, Show::Errors).context(why)?;
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

    /// The images that a call is about, under the names that they have where it looks for them.
    fn all(matches: &ArgMatches) -> Result<Vec<String>> {
        Self::among(Wanted::read(matches)?, matches)
    }

    fn among(wanted: Wanted, matches: &ArgMatches) -> Result<Vec<String>> {
        let translate = Self::read(matches)?;
        let images = wanted.all(matches)?.into_iter();
        Ok(match translate {
            Some(translate) => images.map(|image| translate.apply(&image)).collect(),
            None => images.collect(),
        })
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
    Client::new(
        concat!("sonobuoy/v", env!("CARGO_PKG_VERSION")),
        matches.get_flag("plain-http"),
        &Stop::new(),
    )
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

/// What is seen of docker.
#[derive(PartialEq)]
enum Show {
    /// All that it says, on stderr.
    Progress,
    /// What it says there itself; the rest is handed back.
    Errors,
    Nothing,
}

fn docker(words: &[&str], show: Show) -> Result<String> {
    let mut command = Command::new("docker");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    if show == Show::Progress {
        command.stdout(std::io::stderr());
    }
    command.stderr(if show == Show::Nothing { Stdio::null() } else { Stdio::inherit() });
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
        // Who interrupts does not want gigabytes left behind.
        let gone = path.clone();
        sys::on_signal(&[Signal::Interrupt, Signal::Terminate], move || {
            let _ = std::fs::remove_dir_all(&gone);
            std::process::exit(130)
        })?;
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
