//! Converts the flags that `run`, `wait` and `gen` share to settings and a plan.
//!
//! Flags of one kind may be in any order and the later one wins, so flags that change plugins are applied in order.
//! Reads the files named by flags; queries the cluster's version only if necessary.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;

use super::flag::value;
use super::{choice, cluster, overrides, usage};
use crate::config;
use crate::deploy::{Change, Plan};
use crate::image::kit::{self, Kit};
use crate::image::{CONFORMANCE, CONFORMANCE_LATEST, release};
use crate::names::{self, PLUGIN_CONFIG_DIR};
use crate::plugin::focus::{FOCUS, PARALLEL, SKIP};
use crate::plugin::mode::Mode;
use crate::plugin::{self, Definition, Installed, builtin};
use crate::report;
use base::at::At as _;
use base::kube::{Method, Request};
use base::pattern;
use base::small;
use base::stop::Stop;
use base::sys;

/// The URL with the name of the newest build.
const LATEST: &str = "https://storage.googleapis.com/k8s-release-dev/ci/latest.txt";
/// The default pull secret for `--e2e-docker-config-file`.
const PULL_SECRET: &str = "auth-repo-cred";
/// Maximum size of files named by flags: keys, registry lists, credentials.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The configuration file over the defaults.
pub(super) fn configuration(matches: &ArgMatches) -> Result<config::Run> {
    let mut run = config::Run::default();
    if let Some(path) = value(matches, "config") {
        let file = read_text(path)?;
        run.overlay(&file).map_err(|error| match file.trim_start().starts_with('{') {
            true => anyhow!("configuration `{path}`, {error}"),
            false => anyhow!("configuration `{path}` is not JSON; `sonobuoy gen config` prints an example"),
        })?;
    }
    Ok(run)
}

/// The run's settings: the configuration file over the defaults, flags over both.
pub(crate) fn settings(matches: &ArgMatches) -> Result<config::Run> {
    let mut run = configuration(matches)?;
    overrides::apply(matches, &mut run)?;
    redaction(matches, &mut run)?;
    overrides::check(&run, is_run(matches))?;
    Ok(run)
}

/// Redaction rules of the snapshot: those of a file add to those of the configuration.
pub(crate) fn redaction(matches: &ArgMatches, run: &mut config::Run) -> Result<()> {
    if matches.value_source("no-redact") == Some(ValueSource::CommandLine) {
        run.redaction.off = matches.get_flag("no-redact");
    }
    if let Some(path) = value(matches, "redact") {
        let rules = read_text(path)?;
        run.redaction.add(&rules).map_err(|error| anyhow!("redaction rules `{path}`, {error}"))?;
    }
    Ok(())
}

/// Checks the flags that are not settings, so that an error in one is found by the first command that reads it.
pub(crate) fn check(matches: &ArgMatches, run: &config::Run) -> Result<()> {
    ordered(matches)?;
    node_selector(matches)?;
    selected(matches, run).map(drop)
}

/// The complete plan. `only` selects one built-in plugin.
pub(crate) fn plan(matches: &ArgMatches, only: Option<&str>) -> Result<Plan> {
    assemble(matches, only, Place::Cluster)
}

/// The complete plan of a run on this machine. Queries no cluster: a flag sets the version.
pub(crate) fn local_plan(matches: &ArgMatches) -> Result<Plan> {
    assemble(matches, None, Place::Here)
}

/// The location of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Cluster,
    Here,
}

fn assemble(matches: &ArgMatches, only: Option<&str>, place: Place) -> Result<Plan> {
    let mut run = settings(matches)?;
    let kit = value(matches, "kit").map(kit).transpose()?;
    if let Some(kit) = kit.as_ref().filter(|_| run.worker_image == config::Run::default().worker_image) {
        run.worker_image.clone_from(&kit.sonobuoy_image);
    }
    if !run.e2e_docker_config_file.is_empty() && run.image_pull_secrets.is_empty() {
        run.image_pull_secrets = PULL_SECRET.into();
    }
    let ours = kit.as_ref().map_or_else(config::default_image, |kit| kit.sonobuoy_image.clone());
    if let Some(registry) = value(matches, "registry")
        && run.worker_image == ours
    {
        // A registry for all images also has the own image.
        run.worker_image = plugin::relocated(&run.worker_image, registry);
    }
    let (mut env, mut changes) = ordered(matches)?;
    let found = match only {
        Some(name) => {
            let others: Vec<_> = selected(matches, &run)?.into_iter().flatten().collect();
            let is_other = |env: &String| others.iter().any(|other| other.definition.name() == env);
            env.retain(|plugin, _| plugin == name || !is_other(plugin));
            vec![plugin::find(name, None, &[])?]
        }
        None => {
            match kit.as_ref().filter(|_| matches.get_many::<String>("plugin").is_none() && !run.skip_plugins)
            {
                Some(kit) => vec![of_kit(kit)?],
                None => selected(matches, &run)?,
            }
        }
    };
    let mut found: Vec<plugin::Found> = found.into_iter().flatten().collect();
    if let (Place::Here, Some(chosen)) = (place, &run.plugins) {
        // In a cluster, the aggregator does this.
        let chosen: Vec<String> = chosen.iter().map(|plugin| plugin.name.clone()).collect();
        plugin::select(&mut found, &chosen, |found| found.definition.name()).map_err(|name| {
            anyhow!("plugin `{name}` is selected by `Plugins` of --config but not by `-p`")
        })?;
    }
    let has_tests = found.iter().any(|found| found.definition.name() == builtin::E2E);
    if let Some(registry) = value(matches, "registry").filter(|_| has_tests && is_run(matches)) {
        test_images(registry, &mut env, &mut changes);
    }
    let has_ours = found.iter().any(|found| found.built_in && found.definition.name() == builtin::E2E);
    if !has_ours {
        // Only the built-in definition takes its image from the version.
        changes.retain(|change| !is_version_image(change));
    }
    let harden = value(matches, "harden") == Some("on");
    let own_logs = place == Place::Here || harden && is_run(matches) && !names_image_of_logs(&changes);
    let plugins: Vec<Definition> =
        found.into_iter().map(|found| adopt(found, &run, own_logs, harden)).collect();
    if let Some(archive) = value(matches, "resume") {
        let before = interrupted(archive)?;
        (run.resumes, run.resumed_tests) = (before.run, before.ran);
    }
    let ssh_key = value(matches, "ssh-key").map(read_file).transpose()?;
    if let Some(user) = value(matches, "ssh-user") {
        env.entry(builtin::E2E.into()).or_default().insert("KUBE_SSH_USER".into(), user.into());
    }
    let kubernetes_version = match place {
        Place::Here if version_flag(matches) == "auto" => String::new(),
        Place::Cluster if version_flag(matches) == "auto" && kit.is_some() => {
            of_version(matches, kit.as_ref())?
        }
        // `run` and plugins that need the version fail without it; otherwise a warning suffices.
        _ if is_run(matches) || plugins.iter().any(needs_version) => kubernetes_version(matches)?,
        _ => kubernetes_version(matches).unwrap_or_else(|error| {
            log::warn!("plugins are not told the version of the cluster: {error:#}");
            String::new()
        }),
    };
    if has_ours && is_run(matches) {
        choice::name_tests(matches, env.entry(builtin::E2E.into()).or_default(), &kubernetes_version);
    }
    let split = choice::split(matches, kit.as_ref(), &kubernetes_version)?;
    let docker_config = match run.e2e_docker_config_file.as_str() {
        "" => None,
        path => {
            check_docker_config_version(&kubernetes_version)?;
            Some(read_text(path)?.into_bytes())
        }
    };
    if docker_config.is_some() {
        let name = base_name(&run.e2e_docker_config_file)?;
        let word = format!("--e2e-docker-config-file={}/{name}", names::CREDENTIALS_DIR);
        changes.push(Change::Credentials {
            plugin: builtin::E2E.into(),
            secret: run.image_pull_secrets.clone(),
            name,
        });
        changes.push(Change::Word { plugin: builtin::E2E.into(), variable: "E2E_EXTRA_ARGS".into(), word });
    }
    if let Some(registry) = value(matches, "registry") {
        changes.push(Change::Registry(registry.into()));
    }
    Ok(Plan {
        rbac: place == Place::Cluster && rbac(matches)?,
        node_selector: node_selector(matches)?,
        show_default_pod_spec: matches.get_flag("show-default-podspec"),
        level: value(matches, "level").unwrap_or("info").to_lowercase(),
        harden,
        declared_only: value(matches, "plugin-permissions") == Some("declared"),
        status_service: None,
        upload: None,
        upload_authorities: String::new(),
        results_pvc: value(matches, "results-pvc").unwrap_or_default().to_owned(),
        split,
        run,
        plugins,
        changes,
        env,
        kubernetes_version,
        ssh_key,
        docker_config,
    })
}

fn kit(path: &str) -> Result<Kit> {
    let kit = Kit::read(Path::new(path))?;
    kit.with_context(|| format!("`{path}` is not a kit; `sonobuoy images kit` makes one"))
}

/// The plugins of a kit: built-in ones in their built-in form, which flags apply to.
fn of_kit(kit: &Kit) -> Result<Vec<plugin::Found>> {
    let found = kit.plugins.iter().map(|(name, text)| {
        match builtin::named(name).filter(|_| kit.built_in.contains(name)) {
            Some(definition) => Ok(plugin::Found { definition, built_in: true, notes: Vec::new() }),
            None => {
                let loaded =
                    plugin::read(text).map_err(|error| anyhow!("the plugin `{name}` of the kit, {error}"))?;
                Ok(plugin::Found { definition: loaded.definition, built_in: false, notes: loaded.notes })
            }
        }
    });
    found.collect()
}

/// The version of a kit; warns about a cluster of another minor version.
fn of_version(matches: &ArgMatches, kit: Option<&Kit>) -> Result<String> {
    let version = kit.map(|kit| kit.kubernetes_version.clone()).unwrap_or_default();
    if version.is_empty() {
        return kubernetes_version(matches);
    }
    let minor = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
    match kubernetes_version(matches) {
        Ok(cluster) if minor(&cluster) != minor(&version) => {
            log::warn!("the kit is for Kubernetes {version}, and the cluster is {cluster}");
        }
        Err(error) if is_run(matches) => return Err(error),
        _ => {}
    }
    Ok(version)
}

/// Points tests to the registry of all other images, unless set otherwise.
fn test_images(registry: &str, env: &mut Env, changes: &mut Vec<Change>) {
    const FILE: &str = "registries.yaml";
    const LIST: &str = "KUBE_TEST_REPO_LIST";
    let env = env.entry(builtin::E2E.into()).or_default();
    if env.contains_key(LIST) || env.contains_key("KUBE_TEST_REPO") {
        return;
    }
    env.insert(LIST.into(), format!("{PLUGIN_CONFIG_DIR}/{FILE}"));
    let text = kit::repositories(registry);
    changes.push(Change::File { plugin: builtin::E2E.into(), name: FILE.into(), text });
}

/// Whether a flag has a value, given or by default. False for a flag that the command lacks: clap reports an error
/// for it when built with assertions, and otherwise the same as for an absent one.
pub(super) fn has_value(matches: &ArgMatches, flag: &str) -> bool {
    matches.try_contains_id(flag).unwrap_or(false)
}

/// Whether the command is `run`, which creates what `gen` only prints, or `doctor`, which checks the same: the
/// default of a flag distinguishes them.
pub(crate) fn is_run(matches: &ArgMatches) -> bool {
    ["local", "nodes"].iter().any(|flag| has_value(matches, flag))
}

fn names_image_of_logs(changes: &[Change]) -> bool {
    let named =
        |change: &Change| matches!(change, Change::Image { plugin, .. } if plugin == builtin::SYSTEMD_LOGS);
    changes.iter().any(named)
}

/// Whether a plugin depends on the version of Kubernetes other than through its environment.
fn needs_version(plugin: &Definition) -> bool {
    plugin.name() == builtin::E2E || plugin.to_value().to_string().contains(names::VERSION_PLACEHOLDER)
}

/// The plugins of `-p`, or the default ones.
fn selected(matches: &ArgMatches, run: &config::Run) -> Result<Vec<Vec<plugin::Found>>> {
    if run.skip_plugins {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = match matches.get_many::<String>("plugin") {
        Some(values) => values.map(String::as_str).collect(),
        None => builtin::DEFAULT.to_vec(),
    };
    let installed = Installed::by_name(&sys::variable);
    let path = run.plugin_search_path.clone().unwrap_or_default();
    names.into_iter().map(|name| plugin::find(name, installed.as_ref().ok(), &path)).collect()
}

/// Applies the settings to built-in definitions; notes about others are logged.
fn adopt(found: plugin::Found, run: &config::Run, own_logs: bool, harden: bool) -> Definition {
    for note in &found.notes {
        log::warn!("{note}");
    }
    let mut definition = found.definition;
    if let Some(spec) = &mut definition.pod_spec
        && spec["serviceAccountName"] == names::SERVICE_ACCOUNT
    {
        spec["serviceAccountName"] = run.service_account_name.clone().into();
    }
    if !found.built_in {
        return definition;
    }
    // The own image is present already, while the original's has to be pulled.
    if own_logs && let Some(own) = builtin::without_image(definition.name()) {
        definition = own;
    }
    definition.set_pull_policy(&run.image_pull_policy);
    if harden && definition.name() == builtin::SYSTEMD_LOGS {
        // The original's output lacks the field; the plugin only reads its node's journal.
        definition.config.permissions = Some(plugin::Permissions::None);
    }
    if definition.name() == builtin::E2E && !run.progress_updates_port.is_empty() {
        let url = format!("--progress-report-url=http://localhost:{}/progress", run.progress_updates_port);
        definition.set_env(&[("E2E_EXTRA_ARGS".to_owned(), url)].into());
    }
    definition
}

type Env = BTreeMap<String, BTreeMap<String, String>>;

/// The flags that change plugins, in command-line order.
fn ordered(matches: &ArgMatches) -> Result<(Env, Vec<Change>)> {
    const FLAGS: &[&str] = &[
        "plugin-env",
        "plugin-image",
        "mode",
        "e2e-focus",
        "e2e-skip",
        "e2e-parallel",
        "e2e-repo",
        "e2e-repo-config",
        "kubernetes-version",
        "kube-conformance-image-version",
        "kube-conformance-image",
        "systemd-logs-image",
        "sonobuoy-image",
        "ssh-key",
        "configmap",
        "rerun-failed",
        "resume",
    ];
    let mut given: Vec<(usize, &str, &str)> = Vec::new();
    for id in FLAGS {
        // `--configmap` exists in one command only.
        let Ok(Some(values)) = matches.try_get_many::<String>(id) else { continue };
        let places = matches.indices_of(id).into_iter().flatten();
        given.extend(places.zip(values).map(|(place, value)| (place, *id, value.as_str())));
    }
    given.sort_unstable();
    let mut env = Env::new();
    let mut changes = Vec::new();
    for (_, id, value) in given {
        let mut set = |plugin: &str, name: &str, value: &str| {
            env.entry(plugin.to_owned()).or_default().insert(name.to_owned(), value.to_owned());
        };
        let e2e = || builtin::E2E.to_owned();
        let image = |plugin: &str, image: &str| Change::Image { plugin: plugin.into(), image: image.into() };
        match id {
            "plugin-env" => {
                let (plugin, name, value) = variable(value)?;
                set(plugin, name, value);
            }
            "plugin-image" => match value.split_once(':') {
                Some((plugin, name)) if !plugin.is_empty() && !name.is_empty() => {
                    changes.push(image(plugin, name));
                }
                _ => return Err(wrong(id, value, "write PLUGIN:IMAGE")),
            },
            "mode" => {
                let mode =
                    Mode::named(value).ok_or_else(|| wrong(id, value, "`sonobuoy modes` lists them"))?;
                set(builtin::E2E, FOCUS, mode.focus);
                set(builtin::E2E, SKIP, &mode.skip());
                set(builtin::E2E, PARALLEL, if mode.parallel { "true" } else { "false" });
            }
            "e2e-focus" | "e2e-skip" => {
                pattern::compile(value).map_err(|error| usage::error(format!("--{id}: {error}")))?;
                set(builtin::E2E, if id == "e2e-focus" { FOCUS } else { SKIP }, value);
            }
            "rerun-failed" => {
                set(builtin::E2E, FOCUS, &failed_tests(value)?);
                set(builtin::E2E, SKIP, "");
            }
            "resume" => {
                let before = interrupted(value)?;
                let skip =
                    [before.skip.as_str(), &choice::had(&before).map_err(|why| wrong(id, value, &why))?];
                let skip: Vec<&str> = skip.into_iter().filter(|skip| !skip.is_empty()).collect();
                set(builtin::E2E, FOCUS, &before.focus);
                set(builtin::E2E, SKIP, &skip.join("|"));
            }
            "e2e-parallel" => set(builtin::E2E, PARALLEL, value),
            "e2e-repo" => set(builtin::E2E, "KUBE_TEST_REPO", value),
            "e2e-repo-config" if !value.is_empty() => {
                let name = base_name(value)?;
                set(builtin::E2E, "KUBE_TEST_REPO_LIST", &format!("{PLUGIN_CONFIG_DIR}/{name}"));
                changes.push(Change::File { plugin: e2e(), name, text: read_text(value)? });
            }
            "kubernetes-version" | "kube-conformance-image-version" => {
                let repository = if value == "latest" { CONFORMANCE_LATEST } else { CONFORMANCE };
                changes.push(image(builtin::E2E, &version_image(repository)));
            }
            "kube-conformance-image" | "systemd-logs-image" | "sonobuoy-image"
                if value.starts_with(['/', ':']) =>
            {
                return Err(wrong(id, value, "it names no registry or repository; is a variable unset?"));
            }
            "kube-conformance-image" if !value.is_empty() => changes.push(image(builtin::E2E, value)),
            "systemd-logs-image" if !value.is_empty() => changes.push(image(builtin::SYSTEMD_LOGS, value)),
            "ssh-key" if !value.is_empty() => changes.push(Change::SshKey { plugin: e2e() }),
            "configmap" => {
                let name = base_name(value)?;
                changes.push(Change::File { plugin: e2e(), name, text: read_text(value)? });
            }
            _ => {}
        }
    }
    Ok((env, changes))
}

/// A filter for tests selected by the flags of a run; a command without such flags selects all.
pub(super) fn chosen(matches: &ArgMatches) -> Result<impl Fn(&str) -> bool> {
    // The flag has a default in every command that can select tests.
    let is_known = has_value(matches, "harden");
    let (env, _) = ordered(matches)?;
    let mut e2e = builtin::named(builtin::E2E).context("the built-in e2e")?;
    e2e.set_env(env.get(builtin::E2E).unwrap_or(&BTreeMap::new()));
    let of = |variable| {
        let text = e2e.env(variable).filter(|text| is_known && !text.is_empty());
        text.map(pattern::compile).transpose().map_err(|why| usage::error(format!("{variable}: {why}")))
    };
    let (focus, skip) = (of(FOCUS)?, of(SKIP)?);
    Ok(move |name: &str| {
        focus.as_ref().is_none_or(|one| one.is_match(name))
            && !skip.as_ref().is_some_and(|one| one.is_match(name))
    })
}

/// The interrupted run of `--resume`.
fn interrupted(archive: &str) -> Result<report::Interrupted> {
    report::interrupted(archive, builtin::E2E).with_context(|| format!("--resume {archive}"))
}

/// A pattern of the e2e tests that failed in an archive.
fn failed_tests(archive: &str) -> Result<String> {
    let names = report::failed(archive, builtin::E2E).with_context(|| format!("--rerun-failed {archive}"))?;
    if names.is_empty() {
        bail!("--rerun-failed {archive}: no e2e test failed in this archive");
    }
    Ok(names.iter().map(|name| pattern::quote(name)).collect::<Vec<_>>().join("|"))
}

fn version_image(repository: &str) -> String {
    format!("{repository}:{}", names::VERSION_PLACEHOLDER)
}

fn is_version_image(change: &Change) -> bool {
    let Change::Image { image, .. } = change else { return false };
    [CONFORMANCE, CONFORMANCE_LATEST].iter().any(|repository| *image == version_image(repository))
}

/// Parses `PLUGIN.NAME=VALUE`; without a value the variable is removed.
fn variable(text: &str) -> Result<(&str, &str, &str)> {
    let (plugin, rest) = text.split_once('.').unwrap_or(("", ""));
    let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
    if plugin.is_empty() || plugin.contains('=') || name.is_empty() {
        return Err(wrong("plugin-env", text, "write PLUGIN.NAME=VALUE, or PLUGIN.NAME to remove it"));
    }
    Ok((plugin, name, value))
}

fn node_selector(matches: &ArgMatches) -> Result<BTreeMap<String, String>> {
    let given = matches.get_many::<String>("aggregator-node-selector").into_iter().flatten();
    given
        .map(|label| match label.split_once(':') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.into(), value.into())),
            _ => Err(wrong("aggregator-node-selector", label, "write KEY:VALUE")),
        })
        .collect()
}

/// The value of the last version flag.
fn version_flag(matches: &ArgMatches) -> &str {
    let given = ["kubernetes-version", "kube-conformance-image-version"]
        .iter()
        // Not every command with the flag has its old name.
        .filter(|id| has_value(matches, id))
        .filter_map(|id| Some((matches.indices_of(id)?.next_back()?, value(matches, id)?)))
        .max();
    given.map_or("auto", |(_, version)| version)
}

/// The Kubernetes version of images. Only `auto` needs a cluster.
pub(crate) fn kubernetes_version(matches: &ArgMatches) -> Result<String> {
    match version_flag(matches) {
        "auto" => {
            let client = cluster::client(matches, &Stop::new());
            if is_run(matches) {
                return cluster::release(&client?).context("cannot ask the cluster for its version");
            }
            client.and_then(|client| cluster::release(&client)).map_err(|error| {
                anyhow!(
                    "cannot ask the cluster for its version: {error:#}; without a cluster, name it with --kubernetes-version"
                )
            })
        }
        "ignore" => Ok("ignore".into()),
        "latest" => {
            let answer = base::fetch::fetch(LATEST, MAX_FILE_BYTES)
                .context("looking for the newest build of Kubernetes")?;
            let version = String::from_utf8_lossy(&answer).trim().replacen('+', "_", 1);
            if version.starts_with('v') {
                Ok(version)
            } else {
                bail!("`{LATEST}` does not name a version of Kubernetes")
            }
        }
        version => {
            release::parse(version).map_err(|error| usage::error(format!("--kubernetes-version: {error}")))
        }
    }
}

fn check_docker_config_version(version: &str) -> Result<()> {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u64>);
    if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next())
        && (major, minor) < (1, 27)
    {
        bail!("--e2e-docker-config-file needs Kubernetes 1.27 or later, and this is {version}");
    }
    Ok(())
}

/// Whether to create roles and bindings; `Detect` queries the cluster's API groups.
pub(crate) fn rbac(matches: &ArgMatches) -> Result<bool> {
    match value(matches, "rbac") {
        Some("Disable") => Ok(false),
        Some("Detect") => {
            let ask = || -> Result<bool> {
                let client = cluster::client(matches, &Stop::new())?;
                let groups = client.send(&Request::raw(Method::Get, "/apis"))?;
                let groups = groups["groups"].as_array().cloned().unwrap_or_default();
                Ok(groups
                    .iter()
                    .any(|group| group["preferredVersion"]["groupVersion"] == "rbac.authorization.k8s.io/v1"))
            };
            ask().context("cannot ask the cluster whether it has RBAC; say so with --rbac Enable or Disable")
        }
        _ => Ok(true),
    }
}

fn wrong(id: &str, value: &str, remedy: &str) -> anyhow::Error {
    usage::error(format!("invalid argument {value:?} for \"--{id}\": {remedy}"))
}

/// The last part of a path.
pub(crate) fn base_name(path: &str) -> Result<String> {
    match Path::new(path).file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(name.to_owned()),
        None => bail!("`{path}` does not name a file"),
    }
}

/// The text of a file named by a flag.
pub(crate) fn read_text(path: &str) -> Result<String> {
    let bytes = read_file(path)?;
    String::from_utf8(bytes).map_err(|error| {
        anyhow!("`{path}` is not text: byte {} is not UTF-8", error.utf8_error().valid_up_to())
    })
}

fn read_file(path: &str) -> Result<Vec<u8>> {
    match small::read(Path::new(path), MAX_FILE_BYTES) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            bail!(
                "`{path}` has more than {} KiB, which is more than a ConfigMap can hold",
                MAX_FILE_BYTES >> 10
            )
        }
        read => read.at("cannot read", path),
    }
}
