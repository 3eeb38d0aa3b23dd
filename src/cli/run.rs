//! `sonobuoy run`: starts a run in a cluster, and waits for its end with `--wait`.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, bail};

use super::afterwards::{Afterwards, upload};
use super::cluster::{self, credentials};
use super::flag::{Args, usage_error};
use super::manifest::{checks, objects, read_given, skipped};
use super::run_args::{Purpose, RunArgs};
use super::wait::{DAY, StartedRun, Wait, conclude};
use super::{doctor, load, local, output, table};
use crate::deploy;
use crate::remote::seal::Authorities;
use crate::remote::service::{self, Service};
use crate::remote::state::StatusSource;
use base::tls;
use kube::{Client, Object as _};
use model::names;
use model::plugin::focus::CERTIFIED;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    if args.text("certify").and(args.text("product")).is_some() && args.word("mode") != CERTIFIED {
        return Err(usage_error(format!(
            "--certify: certification requires `--mode {CERTIFIED}`"
        )));
    }
    let is_local = args.on("local");
    if is_local {
        // Whether `e2e` is among the plugins is known once they are read.
        check_local(args, true)?;
        return local::run(args, RunArgs::new(args, Purpose::Local)?);
    }
    let request = RunArgs::new(args, Purpose::Run)?;
    warn_of_idle_flags(args);
    // The holder of the archive sends it.
    let by_aggregator = args.text("retrieve").or(args.text("file")).is_none();
    let url = upload(args, by_aggregator)?;
    let afterwards = Afterwards::asked(args, url.filter(|_| !by_aggregator))?;
    // Steps after the run imply waiting for it.
    let default = if afterwards.is_asked() {
        DAY
    } else {
        Duration::ZERO
    };
    let wait = Wait::asked(args, default, request.per_test()?);
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
        output::data(&format!("{}\n", deploy::to_yaml(&objects)));
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
    } else {
        let bindings = deploy::foreign_bindings(&client, &objects, &namespace);
        bindings.iter().for_each(|binding| log::warn!("{binding}"));
    }
    if args.given("load") {
        load::load_image(args, &client, &image)?;
    }
    deploy::apply(&client, &objects, &namespace, dry == "server")?;
    if dry == "server" {
        for object in &objects {
            let (kind, name) = (object["kind"].text().to_lowercase(), object.name());
            output::line(format!("{kind}/{name} created (server dry run)"));
        }
        return Ok(0);
    }
    let is_terminal = std::io::stderr().is_terminal();
    if is_terminal {
        log::info!(
            "the run in namespace `{namespace}` was created: {} objects",
            objects.len()
        );
    }
    let run_id = deploy::configured_run(&objects);
    let authorities = Authorities::of_user().ok();
    // The run exists, and its annotation has the status as well.
    let mut show_way = |client: &Client| {
        let Some(service) = &service else { return };
        let learn = || {
            let authorities = authorities.as_ref()?;
            let run = authorities.learn_soon(client, &namespace, run_id.as_deref())?;
            Some((authorities.of(&run)?, run))
        };
        let found = service
            .credentials(client, &namespace)
            .map(|found| match learn() {
                Some((authority, run)) => found.with_authority(&run, authority),
                None => found,
            });
        let written = found.and_then(|found| match file.take() {
            None => found.to_text().map(|text| output::data(&text)),
            Some(file) => found.write(file),
        });
        match written {
            Ok(()) if streamed => {}
            Ok(()) => log::info!(
                "the run serves its status; credentials are in `{}`",
                credentials.display()
            ),
            Err(error) => log::warn!("the status service cannot be used: {error:#}"),
        }
    };
    let Some(wait) = wait else {
        show_way(&client);
        if let (Some(authorities), None) = (&authorities, &service) {
            authorities.learn_soon(&client, &namespace, run_id.as_deref());
        }
        if is_terminal {
            log::info!("`sonobuoy status --watch -n {namespace}` watches it");
        }
        return Ok(0);
    };
    let wait = wait.learning_authority(StartedRun { id: run_id.clone() });
    // A load balancer may take longer than the run.
    let over = client.stop().child();
    let until_then = client.under(&over);
    let source = StatusSource::pod(client.clone());
    let run = std::thread::scope(|scope| {
        let shown = base::thread("credentials").spawn_scoped(scope, || show_way(&until_then));
        let waited = shown
            .map_err(Into::into)
            .and_then(|_| wait.wait(&source, &namespace));
        over.stop();
        waited
    })?;
    let service = if streamed {
        None
    } else {
        cluster::service(args, Some(&namespace), true)?
    };
    let code = afterwards.run(
        Some(&client),
        &namespace,
        Some(&run),
        service.as_ref(),
        client.stop(),
    )?;
    Ok(conclude(&run, code, &namespace))
}

/// The requested status service.
fn service(args: Args, given: bool) -> Result<Option<Service>> {
    match args.word("status-service") {
        "none" => Ok(None),
        _ if given => {
            bail!(
                "--status-service adds to a generated manifest, but the manifest of --file is \
                 used as it is"
            )
        }
        kind => Service::new(kind).map(Some),
    }
}

/// Rejects flags that a run on this machine would ignore; some take effect only with the plugin
/// `e2e`.
pub(super) fn check_local(args: Args, has_e2e: bool) -> Result<()> {
    let ignored = table::ignored_locally(args, has_e2e);
    if !ignored.is_empty() {
        return Err(usage_error(format!(
            "--local runs the plugins on this machine, where {} would do nothing; leave out \
             --local, or {}",
            ignored.join(" and "),
            if ignored.len() == 1 {
                "that flag"
            } else {
                "those flags"
            }
        )));
    }
    Ok(())
}

/// Warns of flags that have no effect in combination with others.
fn warn_of_idle_flags(args: Args) {
    let named = |flags: &[&str]| -> Vec<String> {
        flags
            .iter()
            .filter(|flag| args.given(flag))
            .map(|flag| format!("--{flag}"))
            .collect()
    };
    if args.given("local-nodes") {
        log::warn!("--local-nodes does nothing without --local");
    }
    let waits = [
        "wait",
        "retrieve",
        "junit",
        "html",
        "certify",
        "delete",
        "fail-on",
        "min-success",
    ];
    let idle = named(&["output", "wait-output"]);
    let waits = !named(&waits).is_empty() || args.given("upload") && args.given("file");
    if !waits && !idle.is_empty() {
        log::warn!(
            "nothing is waited for without --wait: {} does nothing",
            idle.join(" and ")
        );
    }
}
