//! `sonobuoy run`: puts a run into a cluster, and with `--wait` sees it through.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;
use serde_json::Value;

use super::afterwards::Afterwards;
use super::status::credentials;
use super::waiting::{DAY, Wait, verdict};
use super::{cluster, doctor, local, output, request, usage};
use crate::deploy::{self, CHECKS, Preflight};
use crate::names;
use crate::remote::authority::Authorities;
use crate::remote::service::{self, Service};
use base::kube::Client;
use base::stop::Stop;

/// No manifest that a cluster takes is larger.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    if matches.get_flag("local") {
        return local::run(matches);
    }
    let afterwards = Afterwards::asked(matches)?;
    // Whoever wants something done afterwards wants to wait for it.
    let wait = Wait::asked(matches, if afterwards.is_asked() { DAY } else { 0 })?;
    let skip = skipped(matches)?;
    let given = given(matches)?;
    let service = service(matches, given.is_some())?;
    let credentials = credentials(matches);
    let streamed = credentials.as_os_str() == service::STREAM;
    if service.is_some() && !streamed {
        service::clear(&credentials).with_context(|| format!("cannot write `{}`", credentials.display()))?;
    }
    // What is wrong with plugins is said whether there is a cluster or not.
    let (objects, namespace) = match given {
        Some(objects) => at_home(matches, objects)?,
        None => {
            let mut plan = request::plan(matches, None)?;
            if let Some(service) = &service {
                plan.run.server.status_port = names::STATUS_PORT.into();
                plan.status_service = Some(service.clone());
            }
            for note in plan.notes()? {
                log::warn!("{note}");
            }
            (plan.manifest()?, plan.run.namespace)
        }
    };
    let client = cluster::client(matches, &Stop::new())?;
    if matches.get_flag("doctor") {
        doctor::before(matches, &client, &objects, &namespace)?;
    } else {
        preflight(matches, &client, &objects, &namespace, &skip)?;
    }
    deploy::apply(&client, &objects, &namespace)?;
    // The run is there, and tells its status by its annotation as well.
    let show_way = |client: &Client| {
        let Some(service) = &service else { return };
        let written = service.credentials(client, &namespace).and_then(|found| match streamed {
            true => output::data(&found.to_text()?),
            false => found.write(&credentials),
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
        return Ok(ExitCode::SUCCESS);
    };
    // A load balancer may take longer than the run.
    let over = client.stop().child();
    let until_then = client.under(&over);
    let run = std::thread::scope(|scope| {
        let shown = std::thread::Builder::new()
            .name("credentials".into())
            .spawn_scoped(scope, || show_way(&until_then));
        let waited = shown.context("start a thread").and_then(|_| wait.wait(&client, &namespace));
        over.stop();
        waited
    })?;
    Ok(verdict(&run, afterwards.run(&client, &namespace)?))
}

/// The status service that was asked for.
fn service(matches: &ArgMatches, given: bool) -> Result<Option<Service>> {
    let kind = matches.get_one::<String>("status-service").map_or("none", String::as_str);
    if kind == "none" {
        return Ok(None);
    }
    if given {
        bail!("--status-service adds to a manifest that is made; a manifest of --file is taken as it is");
    }
    Service::new(kind).map(Some)
}

/// The manifest of `--file`.
pub(super) fn given(matches: &ArgMatches) -> Result<Option<Vec<Value>>> {
    let Some(file) = matches.get_one::<String>("file").filter(|file| !file.is_empty()) else {
        return Ok(None);
    };
    let mut text = String::new();
    let (name, read) = if file == "-" {
        if std::io::stdin().is_terminal() {
            bail!(
                "`-f -` reads a manifest from standard input, and that is a terminal; pipe a manifest into it"
            );
        }
        ("standard input", std::io::stdin().take(MAX_MANIFEST_BYTES).read_to_string(&mut text))
    } else {
        let read = std::fs::File::open(file)
            .and_then(|file| file.take(MAX_MANIFEST_BYTES).read_to_string(&mut text));
        (&**file, read)
    };
    read.with_context(|| format!("cannot read `{name}`"))?;
    deploy::from_yaml(&text).with_context(|| format!("`{name}`")).map(Some)
}

/// Which checks `--skip-preflight` leaves out.
pub(super) fn skipped(matches: &ArgMatches) -> Result<Vec<String>> {
    let given = matches.get_many::<String>("skip-preflight").into_iter().flatten();
    let words: Vec<String> =
        given.map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty()).collect();
    let all = || CHECKS.iter().map(|&check| check.to_owned()).collect();
    let unknown =
        |word: &&String| !CHECKS.contains(&word.as_str()) && !["true", "false", "*"].contains(&word.as_str());
    if let Some(word) = words.iter().find(unknown) {
        return Err(usage::error(format!(
            "invalid argument {word:?} for \"--skip-preflight\": there are {}",
            CHECKS.join(", ")
        )));
    }
    if words.iter().any(|word| word == "false") {
        return Ok(Vec::new());
    }
    Ok(if words.iter().any(|word| word == "true" || word == "*") { all() } else { words })
}

/// The objects of a manifest that was given, and the namespace of its run.
pub(super) fn at_home(matches: &ArgMatches, objects: Vec<Value>) -> Result<(Vec<Value>, String)> {
    // What lives in no namespace can be created all the same.
    let home = match deploy::home(&objects) {
        Some(home) => home.to_owned(),
        None => request::settings(matches)?.namespace,
    };
    Ok((objects, home))
}

/// What is looked at before anything is created.
pub(super) fn checks<'a>(
    matches: &'a ArgMatches,
    objects: &[Value],
    namespace: &'a str,
    dns_labels: &'a [String],
    skip: &'a [String],
) -> Preflight<'a> {
    Preflight {
        namespace,
        makes_namespace: deploy::makes_namespace(objects, namespace),
        dns_namespace: matches.get_one::<String>("dns-namespace").map_or("kube-system", String::as_str),
        dns_labels,
        skip,
    }
}

fn preflight(
    matches: &ArgMatches,
    client: &Client,
    objects: &[Value],
    namespace: &str,
    skip: &[String],
) -> Result<()> {
    let labels: Vec<String> = matches.get_many("dns-pod-labels").unwrap_or_default().cloned().collect();
    let failures = checks(matches, objects, namespace, &labels, skip).failures(client);
    let Some((last, others)) = failures.split_last() else { return Ok(()) };
    log::error!("Preflight checks failed");
    others.iter().for_each(|failure| log::error!("{failure}"));
    bail!("{last}")
}
