//! `sonobuoy run`: starts a run in a cluster, and waits for its end with `--wait`.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, bail};

use super::afterwards::{Afterwards, check_upload};
use super::clusters;
use super::flag::{Filled as _, usage_error};
use super::manifest::{checks, objects, read_given, skipped};
use super::run_args::{DryRun, RunArgs};
use super::run_flags::StatusServiceKind;
use super::run_plan::{Purpose, RunRequest};
use super::wait::{self, DAY, StartedRun, Wait, WaitArgs, conclude, report_end};
use super::{doctor, load, local, output};
use crate::deploy;
use crate::remote::seal::Authorities;
use crate::remote::service::{self, Service};
use crate::remote::state::StatusSource;
use base::tls;
use kube::{Client, Object as _};
use model::names;
use model::plugin::focus::CERTIFIED;
use model::timings::{self, Stopwatch};

/// Runs the command in one cluster or in several.
pub(crate) fn dispatch(args: RunArgs, level: &str) -> Result<u8> {
    if let Some(fleet) = args.fleet() {
        return clusters::run(&fleet);
    }
    let only_waits = args.clusters.only_waits();
    let args = args.narrowed();
    if only_waits {
        return wait::run(&WaitArgs::for_run(args), level);
    }
    run(&args, level)
}

/// Runs the command.
pub(super) fn run(args: &RunArgs, level: &str) -> Result<u8> {
    let flags = &args.run;
    let certifies = args.afterwards.certify.filled().is_some();
    let names_product = args.afterwards.product.filled().is_some();
    if certifies && names_product && !flags.is_certified() {
        return Err(usage_error(format!(
            "--certify: certification requires `--mode {CERTIFIED}`"
        )));
    }
    let nodes = Some(&args.nodes);
    if args.local.local {
        // Whether `e2e` is among the plugins is known once they are read.
        local::check_flags(args, true)?;
        return local::run(args, RunRequest::new(Purpose::Local, flags, nodes, level)?);
    }
    let mut stopwatch = Stopwatch::start();
    let rbac = args.before.rbac_mode(flags);
    let request = RunRequest::new(Purpose::Run, flags, nodes, level)?.with_rbac(rbac);
    warn_of_idle_flags(args);
    let file = flags.run.file.filled();
    // The holder of the archive sends it.
    let by_aggregator = args.afterwards.retrieve.filled().or(file).is_none();
    let url = check_upload(args.afterwards.upload.filled(), by_aggregator)?;
    let afterwards = Afterwards::prepare(
        &args.afterwards,
        args.progress.output,
        url.filter(|_| !by_aggregator),
        flags.images.kit.filled(),
        || rbac.has_rbac(&flags.cluster),
    )?;
    // Steps after the run imply waiting for it.
    let default = if afterwards.is_asked() || args.before.timings {
        DAY
    } else {
        Duration::ZERO
    };
    let wait = Wait::requested(
        &flags.waiting,
        &args.progress,
        default,
        request.per_test(args.progress.estimate.estimate_from.filled())?,
        afterwards.has_product(),
    );
    let skip = skipped(&flags.preflight)?;
    let manifest = read_given(file)?;
    let image = request.config.worker_image.clone();
    let service = status_service(flags.run.status_service, manifest.is_some())?;
    let access = flags.access();
    let credentials = access.credentials_file();
    let streamed = credentials.as_os_str() == service::STREAM;
    let mut file = match &service {
        Some(_) if !streamed => Some(service::reserve(&credentials)?),
        _ => None,
    };
    // Report problems of plugins even without a cluster.
    let (objects, namespace) = objects(request, manifest, |plan| {
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
    let dry_run = args.before.dry_run;
    if dry_run == DryRun::Client {
        output::data(&format!("{}\n", deploy::to_yaml(&objects)));
        return Ok(0);
    }
    let client = flags.cluster.client()?;
    let pull_secret = flags.images.image_pull_secret.filled();
    let checks = checks(&flags.preflight, pull_secret, &objects, &namespace, &skip);
    if args.before.doctor {
        doctor::examine_before(&client, &objects, &checks)?;
    } else if let Some((last, others)) = checks.failures(&client).split_last() {
        log::error!("Preflight checks failed");
        others.iter().for_each(|failure| log::error!("{failure}"));
        bail!("{last}")
    } else {
        let bindings = deploy::foreign_bindings(&client, &objects, &namespace);
        bindings.iter().for_each(|binding| log::warn!("{binding}"));
    }
    if args.before.load.load.is_some() {
        load::load_image(&args.before.load, &flags.cluster, &client, &image)?;
    }
    let is_server_dry_run = dry_run == DryRun::Server;
    stopwatch.end(timings::VALIDATION);
    deploy::apply(&client, &objects, &namespace, is_server_dry_run)?;
    if is_server_dry_run {
        for object in &objects {
            let (kind, name) = (object["kind"].text().to_lowercase(), object.name());
            output::line(format!("{kind}/{name} created (server dry run)"));
        }
        return Ok(0);
    }
    stopwatch.end(timings::OBJECTS);
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
        let content = service
            .credentials(client, &namespace)
            .map(|content| match learn() {
                Some((authority, run)) => content.with_authority(&run, authority),
                None => content,
            });
        let written = content.and_then(|content| match file.take() {
            None => content.to_text().map(|text| output::data(&text)),
            Some(file) => content.write(file),
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
    let mut source = StatusSource::pod(client.clone());
    if let Some(pod) = deploy::aggregator_pod(&objects) {
        source = source.of_created_pod(pod.name());
    }
    let run = std::thread::scope(|scope| {
        let helper = base::thread("credentials").spawn_scoped(scope, || show_way(&until_then));
        let waited = helper
            .map_err(Into::into)
            .and_then(|_| wait.wait(&source, &namespace));
        over.stop();
        waited
    })?;
    stopwatch.end_at(timings::AGGREGATOR_POD, wait.first_status());
    let measured = run.timings.clone().unwrap_or_default();
    stopwatch.end_with(&measured, timings::STATUS);
    let service = if streamed {
        None
    } else {
        access.service(Some(&namespace), true)?
    };
    report_end(&run);
    let code = afterwards.run(
        Some(&client),
        &namespace,
        Some(&run),
        service.as_ref(),
        &mut stopwatch,
        client.stop(),
    )?;
    if args.before.timings {
        output::error(&stopwatch.timings(kube::sent_requests()).table());
    }
    Ok(conclude(&run, code, &namespace, &afterwards))
}

/// The requested status service.
fn status_service(kind: StatusServiceKind, has_manifest: bool) -> Result<Option<Service>> {
    let Some(service_type) = kind.service_type() else {
        return Ok(None);
    };
    if has_manifest {
        bail!(
            "--status-service adds to a generated manifest, but the manifest of --file is used as \
             it is"
        )
    }
    Service::new(service_type).map(Some)
}

/// Warns of flags that have no effect in combination with others.
fn warn_of_idle_flags(args: &RunArgs) {
    if args.local.local_nodes.is_some() {
        log::warn!("--local-nodes does nothing without --local");
    }
    let (waiting, after) = (&args.run.waiting, &args.afterwards);
    let uploads_itself = after.upload.is_some() && args.run.run.file.is_some();
    let waits = !waiting.wait.is_zero()
        || after.asks_for_report()
        || after.certify.is_some()
        || after.delete
        || after.verdict.min_success.is_some()
        || args.before.timings
        || uploads_itself;
    let idle: Vec<&str> = [
        ("--output", args.progress.output.is_some()),
        ("--wait-output", waiting.wait_output.is_some()),
    ]
    .into_iter()
    .filter_map(|(flag, is_given)| is_given.then_some(flag))
    .collect();
    if !waits && !idle.is_empty() {
        log::warn!(
            "nothing is waited for without --wait: {} does nothing",
            idle.join(" and ")
        );
    }
}
