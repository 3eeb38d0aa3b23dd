//! `sonobuoy run`: starts a run in a cluster, and waits for its end with `--wait`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;
use serde_json::Value;

use super::afterwards::Afterwards;
use super::manifest::{checks, read_given, skipped, with_namespace};
use super::status::{self, credentials};
use super::waiting::{DAY, Wait, conclude};
use super::{cluster, doctor, local, output, request, upload};
use crate::deploy;
use crate::names;
use crate::remote::authority::Authorities;
use crate::remote::service::{self, CredentialsFile, Service};
use crate::remote::state::Source;
use base::kube::Client;
use base::stop::Stop;
use base::tls;

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    if matches.get_flag("local") {
        return local::run(matches);
    }
    let afterwards = Afterwards::asked(matches)?;
    // Steps after the run imply waiting for it.
    let wait = Wait::asked(matches, if afterwards.is_asked() { DAY } else { 0 })?;
    let skip = skipped(matches)?;
    let given = read_given(matches)?;
    let service = service(matches, given.is_some())?;
    let credentials = credentials(matches);
    let streamed = credentials.as_os_str() == service::STREAM;
    let mut file = match &service {
        Some(_) if !streamed => Some(CredentialsFile::create(&credentials)?),
        _ => None,
    };
    // Report problems of plugins even without a cluster.
    let (objects, namespace) = match given {
        Some(objects) => with_namespace(matches, objects)?,
        None => {
            let mut plan = request::plan(matches, None)?;
            if let Some(service) = &service {
                plan.run.server.status_port = names::STATUS_PORT.into();
                plan.status_service = Some(service.clone());
            }
            if let Some(url) = upload::from_aggregator(matches)? {
                plan.upload = Some(url.to_owned());
                plan.upload_authorities = tls::named()?;
            }
            plan.check_selection()?;
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
    if std::io::stderr().is_terminal() {
        log::info!("the run in namespace `{namespace}` was created: {} objects", objects.len());
    }
    // The run exists, and its annotation has the status as well.
    let mut show_way = |client: &Client| {
        let Some(service) = &service else { return };
        let written = service.credentials(client, &namespace).and_then(|found| match file.take() {
            None => output::data(&found.to_text()?),
            Some(file) => file.write(&found),
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
        if std::io::stderr().is_terminal() {
            log::info!("`sonobuoy status --watch -n {namespace}` watches it");
        }
        return Ok(ExitCode::SUCCESS);
    };
    // A load balancer may take longer than the run.
    let over = client.stop().child();
    let until_then = client.under(&over);
    let source = Source::Cluster(client.clone());
    let run = std::thread::scope(|scope| {
        let shown = std::thread::Builder::new()
            .name("credentials".into())
            .spawn_scoped(scope, || show_way(&until_then));
        let waited = shown.context("cannot start a thread").and_then(|_| wait.wait(&source, &namespace));
        over.stop();
        waited
    })?;
    let service = status::service(matches, &namespace)?;
    let code = afterwards.run(Some(&client), &namespace, Some(&run), service.as_ref(), client.stop())?;
    Ok(conclude(&run, code, &namespace))
}

/// The requested status service.
fn service(matches: &ArgMatches, given: bool) -> Result<Option<Service>> {
    let kind = matches.get_one::<String>("status-service").map_or("none", String::as_str);
    if kind == "none" {
        return Ok(None);
    }
    if given {
        bail!("--status-service adds to a generated manifest, but the manifest of --file is used as it is");
    }
    Service::new(kind).map(Some)
}

fn preflight(
    matches: &ArgMatches,
    client: &Client,
    objects: &[Value],
    namespace: &str,
    skip: &[String],
) -> Result<()> {
    let failures = checks(matches, objects, namespace, skip).failures(client);
    let Some((last, others)) = failures.split_last() else { return Ok(()) };
    log::error!("Preflight checks failed");
    others.iter().for_each(|failure| log::error!("{failure}"));
    bail!("{last}")
}
