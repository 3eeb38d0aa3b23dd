//! `run --local`: a complete run on this machine.
//!
//! Prints progress to stderr and the outcome to stdout. The first Ctrl-C, SIGTERM or SIGHUP ends
//! the plugins, keeps arrived results and still creates the archive; a second one, at least a
//! second later, exits at once without an archive.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::afterwards::{AfterwardsFlags, Reporter, check_upload, prepare_archive_folder, prune};
use super::cluster::ClusterFlags;
use super::clusters::{ClustersFlags, MAX_CLUSTERS_AT_ONCE};
use super::flag::{Filled as _, usage_error};
use super::load::LoadFlags;
use super::output::{self, INTERRUPTED};
use super::run_args::{BeforeRunFlags, DryRun, RunArgs};
use super::run_flags::{
    DNS_NAMESPACE, DNS_POD_LABELS, E2eFlags, Harden, ImageFlags, NodeFlags, PluginFlags,
    PreflightFlags, RbacMode, RepositoryFlags, RunFlags, SettingFlags, StatusServiceKind,
};
use super::run_plan::RunRequest;
use super::transfer;
use super::wait::{DAY, report_end, verdict};
use crate::pipeline::LocalRun;
use crate::progress_view::{self, About, ProgressOutput};
use crate::remote::seal::Authorities;
use base::stop::Stop;
use base::sys::{self, Signal};
use base::temp;
use model::names::env;
use model::plugin::builtin;
use model::status;
use model::verdict::code_after_error;

/// Signals within this time count as one: `timeout`, for example, signals a program and then its
/// whole group.
const SIGNAL_MERGE_TIME: Duration = Duration::from_secs(1);
/// Time for killed processes to end before an exit at once.
const STRAYS_TIMEOUT: Duration = Duration::from_millis(200);

/// A complete run on this machine. The first signal ends the plugins; a second one exits at once.
pub(super) fn run(args: &RunArgs, request: RunRequest) -> Result<u8> {
    if args.run.plugins.plugins.is_empty() {
        bail!("--local needs a plugin whose command is on this machine; name it with `-p FILE`");
    }
    let limit = args.run.waiting.wait;
    if !limit.is_zero() && limit != DAY {
        return Err(usage_error(
            "--wait: a run on this machine is always waited for to its end; limit it with \
             `--timeout`",
        ));
    }
    let per_test = request.per_test(args.progress.estimate.estimate_from.filled())?;
    let plan = request.plan(None)?;
    let definitions = plan.prepared()?;
    check_flags(
        args,
        definitions
            .iter()
            .any(|definition| definition.results_plugin() == builtin::E2E),
    )?;
    let mut local = LocalRun {
        definitions: &definitions,
        config: plan.run,
        nodes: args.local.local_nodes.unwrap_or(1),
        out: PathBuf::from(args.afterwards.retrieve.filled().unwrap_or(".")),
        program: std::env::current_exe().context("cannot find this program's own file")?,
        worker_env: worker_env(),
        authority: None,
    };
    let work = local.prepare()?;
    let uuid = local.config.uuid.clone();
    prepare_archive_folder(&local.out)?;

    let out = local.out.clone();
    let kit = args.run.images.kit.filled();
    let reporter = Reporter::open(&args.afterwards, args.progress.output, kit)?;
    let upload = check_upload(args.afterwards.upload.filled(), false)?;

    let stop = Stop::new();
    let handler_stop = stop.clone();
    let mut first: Option<Instant> = None;
    output::on_signal(
        &[Signal::Hangup, Signal::Interrupt, Signal::Terminate],
        move || {
            if first.get_or_insert_with(Instant::now).elapsed() >= SIGNAL_MERGE_TIME {
                log::warn!(
                    "ended without an archive; the unfinished run remains in `{}`",
                    work.display()
                );
                sys::end_strays(STRAYS_TIMEOUT);
                temp::exit(i32::from(INTERRUPTED));
            }
            log::warn!(
                "interrupted: stopping the plugins and packing what has arrived; interrupt again \
                 to exit at once, without an archive"
            );
            handler_stop.stop_because("it was interrupted");
        },
    )?;
    let about = About {
        title: "run on this machine".into(),
        limit: match local.config.server.timeout_seconds {
            0 => String::new(),
            seconds => {
                format!(
                    "time limit {}",
                    progress_view::span(Duration::from_secs(seconds.unsigned_abs()))
                )
            }
        },
        hint: "Ctrl-C keeps what has arrived".into(),
        per_test,
    };
    let output = match args.afterwards.is_shown_by_caller {
        true => ProgressOutput::Quiet,
        false => output::or_log(args.progress.output),
    };
    let mut complete = status::Run::default();
    let ended = output::with_board(output, |board| {
        let watch = |status: &status::Run| {
            if status.status == status::COMPLETE {
                complete.clone_from(status);
            }
            let mut scene = progress_view::of_run(status, &about);
            if output == ProgressOutput::Board && status.status != status::RUNNING {
                // The report has more detail.
                scene.troubles.clear();
            }
            board.show(scene);
        };
        local.run(watch, &stop)
    })?;
    let stored = Authorities::of_user()
        .and_then(|authorities| authorities.keep(&uuid, &ended.authority, "a run on this machine"));
    if let Err(error) = stored {
        log::warn!(
            "the archive's seal can be checked only where its authority is known: {error:#}"
        );
    }
    let mut unsent = false;
    if let Some(url) = upload
        && let Err(error) = transfer::upload(
            args.progress.output,
            std::slice::from_ref(&ended.archive),
            url,
            &Stop::new(),
        )
    {
        log::error!("{error:#}; the archive is `{}`", ended.archive.display());
        unsent = true;
    }
    let wholes = definitions
        .iter()
        .filter(|definition| definition.config.part_of.is_none());
    let names: Vec<_> = wholes
        .map(|definition| definition.name().to_owned())
        .collect();
    if !stop.stopped() {
        report_end(&complete);
    }
    // Without a cluster there is nothing to show about its health.
    let code = if args.afterwards.is_shown_by_caller {
        0
    } else {
        reporter.report(&ended.archive, Some(&names), true)?
    };
    prune(
        args.afterwards.keep,
        &out,
        std::slice::from_ref(&ended.archive),
    )?;
    if stop.stopped() {
        return Ok(INTERRUPTED);
    }
    let code = if ended.errors == 0 && !unsent {
        code
    } else {
        code_after_error(code)
    };
    Ok(verdict(&complete, code))
}

/// Rejects flags that a run on this machine would ignore; some take effect only with the plugin
/// `e2e`.
pub(super) fn check_flags(args: &RunArgs, has_e2e: bool) -> Result<()> {
    let ignored = ignored_flags(args, has_e2e);
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

/// A flag, and whether it is given.
type GivenFlag = (&'static str, bool);

/// The given flags that a run on this machine would ignore, with or without the plugin `e2e`; a
/// flag with its default is none. The patterns name every flag of `run`: a new one does not compile
/// before it is decided here whether it has an effect.
fn ignored_flags(args: &RunArgs, has_e2e: bool) -> Vec<&'static str> {
    let RunArgs {
        run,
        progress: _,
        clusters,
        nodes,
        afterwards,
        before,
        local: _,
    } = args;
    let RunFlags {
        plugins,
        e2e,
        images,
        run,
        waiting: _,
        preflight,
        cluster,
    } = run;
    let mut flags = ignored_of_plugins(plugins);
    flags.extend(ignored_of_e2e(e2e, has_e2e));
    flags.extend(ignored_of_images(images));
    flags.extend(ignored_of_settings(run));
    flags.extend(ignored_of_cluster(preflight, cluster, clusters));
    flags.extend(ignored_of_nodes(nodes));
    flags.extend(ignored_around(afterwards, before));
    flags
        .into_iter()
        .filter_map(|(flag, is_given)| is_given.then_some(flag))
        .collect()
}

fn ignored_of_plugins(flags: &PluginFlags) -> Vec<GivenFlag> {
    let PluginFlags {
        plugins: _,
        plugin_env: _,
        plugin_permissions,
        plugin_image,
        default_pod_spec,
    } = flags;
    let shows_pod_spec = default_pod_spec.show_default_pod_spec;
    vec![
        ("--plugin-permissions", plugin_permissions.is_some()),
        ("--plugin-image", !plugin_image.is_empty()),
        ("--show-default-podspec", shows_pod_spec),
    ]
}

fn ignored_of_e2e(flags: &E2eFlags, has_e2e: bool) -> Vec<GivenFlag> {
    let E2eFlags {
        mode,
        e2e_focus,
        e2e_skip,
        e2e_parallel,
        rerun_failed,
        resume,
        split: _,
        tests: _,
        retry_failed: _,
        repositories,
        e2e_docker_config_file,
        ssh_key,
        ssh_user,
    } = flags;
    let RepositoryFlags {
        e2e_repo,
        e2e_repo_config,
    } = repositories;
    // These set variables of the e2e tests.
    let of_variables = [
        ("--mode", mode.is_some()),
        ("--e2e-focus", e2e_focus.is_some()),
        ("--e2e-skip", e2e_skip.is_some()),
        ("--e2e-parallel", e2e_parallel.is_some()),
        ("--rerun-failed", rerun_failed.is_some()),
        ("--resume", resume.is_some()),
        ("--e2e-repo", e2e_repo.is_some()),
        ("--e2e-repo-config", e2e_repo_config.is_some()),
    ];
    let mut flags = Vec::new();
    if !has_e2e {
        flags.extend(of_variables);
    }
    flags.extend([
        ("--e2e-docker-config-file", e2e_docker_config_file.is_some()),
        ("--ssh-key", ssh_key.is_some()),
        ("--ssh-user", ssh_user.is_some()),
    ]);
    flags
}

fn ignored_of_images(flags: &ImageFlags) -> Vec<GivenFlag> {
    let ImageFlags {
        kubernetes_version: _,
        kube_conformance_image,
        systemd_logs_image,
        sonobuoy_image,
        registry,
        kit,
        image_pull_policy,
        force_image_pull_policy,
        image_pull_secret,
    } = flags;
    let is_forced = force_image_pull_policy.is_some_and(|is_forced| is_forced.value);
    vec![
        ("--kube-conformance-image", kube_conformance_image.is_some()),
        ("--systemd-logs-image", systemd_logs_image.is_some()),
        ("--sonobuoy-image", sonobuoy_image.is_some()),
        ("--registry", registry.is_some()),
        ("--kit", kit.is_some()),
        ("--image-pull-policy", image_pull_policy.is_some()),
        ("--force-image-pull-policy", is_forced),
        ("--image-pull-secret", image_pull_secret.is_some()),
    ]
}

fn ignored_of_settings(flags: &SettingFlags) -> Vec<GivenFlag> {
    let SettingFlags {
        config: _,
        file,
        namespace: _,
        timeout: _,
        rbac,
        aggregator_permissions,
        aggregator_node_selector: labels,
        security_context_mode,
        service_account_name,
        existing_service_account: account,
        namespace_psa_enforce_level: psa_level,
        identity,
        harden,
        redaction: _,
        no_snapshot: _,
        mark_nodes,
        results_pvc,
        status_service,
        credentials,
    } = flags;
    let has_account = account.is_some_and(|exists| exists.value);
    let serves_status = *status_service != StatusServiceKind::None;
    vec![
        ("--file", file.is_some()),
        ("--rbac", rbac.rbac != RbacMode::Detect),
        ("--aggregator-permissions", aggregator_permissions.is_some()),
        ("--aggregator-node-selector", !labels.is_empty()),
        ("--security-context-mode", security_context_mode.is_some()),
        ("--service-account-name", service_account_name.is_some()),
        ("--existing-service-account", has_account),
        ("--namespace-psa-enforce-level", psa_level.is_some()),
        ("--identity", identity.is_some()),
        ("--harden", harden.harden != Harden::On),
        ("--mark-nodes", mark_nodes.is_some()),
        ("--results-pvc", results_pvc.is_some()),
        ("--status-service", serves_status),
        ("--credentials", credentials.credentials.is_some()),
    ]
}

fn ignored_of_cluster(
    preflight: &PreflightFlags,
    cluster: &ClusterFlags,
    clusters: &ClustersFlags,
) -> Vec<GivenFlag> {
    let PreflightFlags {
        skip_preflight,
        dns_namespace,
        dns_pod_labels,
    } = preflight;
    let ClusterFlags {
        kubeconfig,
        context,
        as_user,
        as_groups,
        request_timeout,
    } = cluster;
    vec![
        ("--skip-preflight", !skip_preflight.is_empty()),
        ("--dns-namespace", dns_namespace != DNS_NAMESPACE),
        ("--dns-pod-labels", *dns_pod_labels != DNS_POD_LABELS),
        ("--kubeconfig", kubeconfig.is_some()),
        ("--context", context.is_some()),
        ("--as", as_user.is_some()),
        ("--as-group", !as_groups.is_empty()),
        ("--request-timeout", request_timeout.is_some()),
        // The other flags of this group never get here: `run` in several clusters is not local.
        ("--parallel", clusters.parallel != MAX_CLUSTERS_AT_ONCE),
    ]
}

fn ignored_of_nodes(flags: &NodeFlags) -> Vec<GivenFlag> {
    let NodeFlags {
        nodes,
        sample,
        per_zone,
        joined,
        max_parallel,
    } = flags;
    vec![
        ("--nodes", nodes.is_some()),
        ("--sample", sample.is_some()),
        ("--per-zone", per_zone.is_some()),
        ("--joined", joined.is_some()),
        ("--max-parallel", max_parallel.is_some()),
    ]
}

fn ignored_around(afterwards: &AfterwardsFlags, before: &BeforeRunFlags) -> Vec<GivenFlag> {
    let AfterwardsFlags {
        retrieve: _,
        keep: _,
        upload: _,
        junit: _,
        html: _,
        baseline: _,
        certify: _,
        product: _,
        delete,
        verdict: _,
        is_shown_by_caller: _,
    } = afterwards;
    let BeforeRunFlags {
        dry_run,
        load: LoadFlags { load, load_with },
        doctor,
        timings,
    } = before;
    vec![
        ("--delete", *delete),
        ("--dry-run", *dry_run != DryRun::None),
        ("--load", load.is_some()),
        ("--load-with", load_with.is_some()),
        ("--doctor", *doctor),
        ("--timings", *timings),
    ]
}

/// Worker settings that apply to the whole run.
fn worker_env() -> Vec<(String, String)> {
    // A local disk needs no delay for slow volumes.
    [
        (env::DONE_FILE_DELAY, Some("250ms")),
        (env::UPLOAD_LIMIT, None),
    ]
    .into_iter()
    .filter_map(|(name, usual)| {
        Some((
            name.to_owned(),
            std::env::var(name).ok().or(usual.map(str::to_owned))?,
        ))
    })
    .collect()
}
