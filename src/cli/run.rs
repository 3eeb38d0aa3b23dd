//! `sonobuoy run`: starts a run in a cluster, and waits for its end with `--wait`.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::afterwards::{Afterwards, upload};
use super::cluster::{self, credentials};
use super::flag::{Args, invalid, usage_error};
use super::output::{self};
use super::run_args::{Purpose, RunArgs};
use super::wait::{DAY, Wait, conclude};
use super::{doctor, load, local};
use crate::deploy::{self, CHECKS, Plan, Preflight};
use crate::names::{self};
use crate::plugin::focus::CERTIFIED;
use crate::remote::seal::Authorities;
use crate::remote::service::{self, Service};
use crate::remote::state::StatusSource;
use base::kube::Client;
use base::{small, tls};

/// Larger than any manifest that a cluster accepts.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    if args.text("certify").and(args.text("product")).is_some() && args.word("mode") != CERTIFIED {
        return Err(usage_error(format!("--certify: certification requires `--mode {CERTIFIED}`")));
    }
    let is_local = args.on("local");
    let request = RunArgs::new(args, if is_local { Purpose::Local } else { Purpose::Run })?;
    warn_of_idle_flags(args);
    if is_local {
        return local::run(args, request);
    }
    // The holder of the archive sends it.
    let by_aggregator = args.text("retrieve").or(args.text("file")).is_none();
    let url = upload(args, by_aggregator)?;
    let afterwards = Afterwards::asked(args, url.filter(|_| !by_aggregator))?;
    // Steps after the run imply waiting for it.
    let wait = Wait::asked(args, if afterwards.is_asked() { DAY } else { 0 }, request.per_test()?)?;
    let skip = skipped(args)?;
    let given = read_given(args)?;
    let image = request.config.worker_image.clone();
    let service = service(args, given.is_some())?;
    let credentials = credentials(args);
    let streamed = credentials.as_os_str() == service::STREAM;
    let mut file = match &service {
        Some(_) if !streamed => Some(service::reserve(&credentials)?),
        _ => None,
    };
    // Report problems of plugins even without a cluster.
    let (objects, namespace) = objects(request, given, |plan| {
        if let Some(service) = &service {
            plan.run.server.status_port = names::STATUS_PORT.into();
            plan.status_service = Some(service.clone());
        }
        if let Some(url) = url.filter(|_| by_aggregator) {
            plan.upload = Some(url.to_owned());
            plan.upload_authorities = tls::named()?;
        }
        plan.notes()?.iter().for_each(|note| log::warn!("{note}"));
        Ok(())
    })?;
    let dry = args.word("dry-run");
    if dry == "client" {
        output::data(&format!("{}\n", deploy::to_yaml(&objects)))?;
        return Ok(0);
    }
    let client = cluster::client(args)?;
    let checks = checks(args, &objects, &namespace, &skip);
    if args.on("doctor") {
        doctor::examine_before(&client, &objects, &checks)?;
    } else if let Some((last, others)) = checks.failures(&client).split_last() {
        log::error!("Preflight checks failed");
        others.iter().for_each(|failure| log::error!("{failure}"));
        bail!("{last}")
    }
    if args.given("load") {
        load::load_image(args, &client, &image)?;
    }
    deploy::apply(&client, &objects, &namespace, dry == "server")?;
    if dry == "server" {
        for object in &objects {
            let name = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
            output::print(&format!("{kind}/{} created (server dry run)\n", name("name")))?;
        }
        return Ok(0);
    }
    let is_terminal = std::io::stderr().is_terminal();
    if is_terminal {
        log::info!("the run in namespace `{namespace}` was created: {} objects", objects.len());
    }
    // The run exists, and its annotation has the status as well.
    let mut show_way = |client: &Client| {
        let Some(service) = &service else { return };
        let written = service.credentials(client, &namespace).and_then(|found| match file.take() {
            None => output::data(&found.to_text()?),
            Some(file) => found.write(file),
        });
        match written {
            Ok(()) if streamed => {}
            Ok(()) => log::info!("the run serves its status; credentials are in `{}`", credentials.display()),
            Err(error) => log::warn!("the status service cannot be used: {error:#}"),
        }
    };
    let Some(wait) = wait else {
        show_way(&client);
        if let Ok(kept) = Authorities::of_user() {
            kept.learn_soon(&client, &namespace);
        }
        if is_terminal {
            log::info!("`sonobuoy status --watch -n {namespace}` watches it");
        }
        return Ok(0);
    };
    // A load balancer may take longer than the run.
    let over = client.stop().child();
    let until_then = client.under(&over);
    let source = StatusSource::pod(client.clone());
    let run = std::thread::scope(|scope| {
        let shown = std::thread::Builder::new()
            .name("credentials".into())
            .spawn_scoped(scope, || show_way(&until_then));
        let waited = shown.context("cannot start a thread").and_then(|_| wait.wait(&source, &namespace));
        over.stop();
        waited
    })?;
    let service = if streamed { None } else { cluster::service(args, &namespace, true)? };
    let code = afterwards.run(Some(&client), &namespace, Some(&run), service.as_ref(), client.stop())?;
    Ok(conclude(&run, code, &namespace))
}

/// The requested status service.
fn service(args: Args, given: bool) -> Result<Option<Service>> {
    match args.text("status-service") {
        None | Some("none") => Ok(None),
        _ if given => {
            bail!(
                "--status-service adds to a generated manifest, but the manifest of --file is used as it is"
            )
        }
        Some(kind) => Service::new(kind).map(Some),
    }
}

/// Flags about clusters, which have no effect on this machine.
const OF_CLUSTERS: &[&str] = &[
    "kubeconfig",
    "context",
    "as",
    "as-group",
    "request-timeout",
    "namespace",
    "file",
    "delete",
    "doctor",
    "skip-preflight",
    "dns-namespace",
    "dns-pod-labels",
    "rbac",
    "aggregator-permissions",
    "aggregator-node-selector",
    "security-context-mode",
    "service-account-name",
    "existing-service-account",
    "namespace-psa-enforce-level",
    "identity",
    "harden",
    "results-pvc",
    "status-service",
    "credentials",
    "plugin-permissions",
    "plugin-image",
    "kube-conformance-image",
    "systemd-logs-image",
    "sonobuoy-image",
    "registry",
    "kit",
    "image-pull-policy",
    "force-image-pull-policy",
    "image-pull-secret",
    "load",
    "load-with",
    "dry-run",
    "show-default-podspec",
    "ssh-key",
    "ssh-user",
    "e2e-docker-config-file",
    "redact",
    "no-redact",
];
/// Flags about the e2e plugin, which needs a cluster unless another plugin has that name.
const OF_TESTS: &[&str] =
    &["mode", "e2e-focus", "e2e-skip", "e2e-repo", "e2e-repo-config", "rerun-failed", "resume"];

/// Warns of flags that have no effect in combination with others.
fn warn_of_idle_flags(args: Args) {
    let named = |flags: &[&str]| -> Vec<String> {
        flags.iter().filter(|flag| args.given(flag)).map(|flag| format!("--{flag}")).collect()
    };
    if args.on("local") {
        let mut idle = named(OF_CLUSTERS);
        if !args.all("plugin").any(|name| name.contains("e2e")) {
            idle.extend(named(OF_TESTS));
        }
        if !idle.is_empty() {
            log::warn!("--local uses no cluster, so these flags do nothing: {}", idle.join(", "));
        }
        return;
    }
    if args.given("local-nodes") {
        log::warn!("--local-nodes does nothing without --local");
    }
    let waits = ["wait", "retrieve", "junit", "html", "certify", "delete", "fail-on", "min-success"];
    let idle = named(&["output", "wait-output"]);
    let waits = !named(&waits).is_empty() || args.given("upload") && args.given("file");
    if !waits && !idle.is_empty() {
        log::warn!("nothing is waited for without --wait: {} does nothing", idle.join(" and "));
    }
}

/// The objects to create, and the namespace of their run: those of a given manifest, else of a plan.
pub(super) fn objects(
    request: RunArgs,
    given: Option<Vec<Value>>,
    adjust: impl FnOnce(&mut Plan) -> Result<()>,
) -> Result<(Vec<Value>, String)> {
    if let Some(objects) = given {
        // Objects without a namespace can be created all the same.
        let home = deploy::home(&objects).map_or(request.config.namespace, str::to_owned);
        return Ok((objects, home));
    }
    let mut plan = request.plan(None)?;
    plan.check_selection()?;
    adjust(&mut plan)?;
    Ok((plan.manifest()?, plan.run.namespace))
}

/// The manifest of `--file`.
pub(super) fn read_given(args: Args) -> Result<Option<Vec<Value>>> {
    let Some(file) = args.text("file") else { return Ok(None) };
    if file == "-" && std::io::stdin().is_terminal() {
        bail!("`-f -` reads a manifest from standard input, and that is a terminal; pipe a manifest into it");
    }
    let objects =
        deploy::from_yaml(&read_manifest(file)?).with_context(|| format!("`{}`", file_name(file)))?;
    if objects.iter().any(|object| object.get("sonobuoy-config").is_some()) {
        bail!("`{}` is a plugin definition and not a manifest; run it with `-p {file}`", file_name(file));
    }
    Ok(Some(objects))
}

/// The text of a manifest; `-` is standard input.
pub(super) fn read_manifest(file: &str) -> Result<String> {
    let read = match file {
        "-" => small::read_from(std::io::stdin(), MAX_MANIFEST_BYTES),
        _ => small::read(file.as_ref(), MAX_MANIFEST_BYTES),
    };
    read.and_then(small::text).with_context(|| format!("cannot read `{}`", file_name(file)))
}

fn file_name(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// The checks that `--skip-preflight` disables.
pub(super) fn skipped(args: Args) -> Result<Vec<String>> {
    const ID: &str = "skip-preflight";
    let words = args.all(ID).map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.collect();
    let is_known = |word: &str| CHECKS.contains(&word) || ["true", "false", "*"].contains(&word);
    if let Some(word) = words.iter().find(|word| !is_known(word)) {
        return Err(invalid(ID, word, &format!("it must be one of {}", CHECKS.join(", "))));
    }
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let skipped = CHECKS.iter().filter(|check| !has("false") && (has("true") || has("*") || has(check)));
    Ok(skipped.map(|&check| check.to_owned()).collect())
}

/// The checks before anything is created.
pub(super) fn checks<'a>(
    args: Args<'a>,
    objects: &[Value],
    namespace: &'a str,
    skip: &'a [String],
) -> Preflight<'a> {
    Preflight {
        namespace,
        makes_namespace: deploy::makes_namespace(objects, namespace),
        dns_namespace: args.word("dns-namespace"),
        dns_labels: args.all("dns-pod-labels").map(str::to_owned).collect(),
        pull_secret: args.text("image-pull-secret"),
        skip,
    }
}
