//! `run --local`: a complete run on this machine.
//!
//! Prints progress to stderr and the outcome to stdout. The first Ctrl-C, SIGTERM or SIGHUP ends
//! the plugins, keeps arrived results and still creates the archive; a second one, at least a
//! second later, exits at once without an archive.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::afterwards::{OutputFiles, prune, report, upload};
use super::flag::{Args, usage_error};
use super::output::{self, INTERRUPTED};
use super::run::check_local;
use super::run_args::RunArgs;
use super::wait::{DAY, verdict};
use crate::pipeline::{self, LocalRun};
use crate::progress_view::{self, About, ProgressOutput};
use crate::remote::seal::Authorities;
use base::at::At as _;
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
pub(super) fn run(args: Args, request: RunArgs) -> Result<u8> {
    if args.all("plugin").next().is_none() {
        bail!("--local needs a plugin whose command is on this machine; name it with `-p FILE`");
    }
    let limit = args.duration("wait");
    if !limit.is_zero() && limit != DAY {
        return Err(usage_error(
            "--wait: a run on this machine is always waited for to its end; limit it with \
             `--timeout`",
        ));
    }
    let per_test = request.per_test()?;
    let plan = request.plan(None)?;
    let definitions = plan.prepared()?;
    check_local(
        args,
        definitions
            .iter()
            .any(|definition| definition.whole() == builtin::E2E),
    )?;
    let mut local = LocalRun {
        definitions: &definitions,
        config: plan.run,
        nodes: usize::try_from(args.number("local-nodes"))?,
        out: PathBuf::from(args.text("retrieve").unwrap_or(".")),
        program: std::env::current_exe().context("cannot find this program's own file")?,
        worker_env: worker_env(),
        authority: None,
    };
    let work = local.prepare()?;
    let uuid = local.config.uuid.clone();
    std::fs::create_dir_all(&local.out).at("cannot create", &local.out)?;
    // Check the folder before hours of work.
    temp::file(&local.out).with_context(|| {
        format!(
            "cannot write an archive to `{}`; name another folder with `--retrieve DIR`",
            local.out.display()
        )
    })?;

    let out = local.out.clone();
    let outputs = OutputFiles::open(args)?;
    let upload = upload(args, false)?;

    let stop = Stop::new();
    let asked = stop.clone();
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
            asked.stop_because("it was interrupted");
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
    let output = output::or_log(args);
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
    let kept = Authorities::of_user()
        .and_then(|authorities| authorities.keep(&uuid, &ended.authority, "a run on this machine"));
    if let Err(error) = kept {
        log::warn!(
            "the archive's seal can be checked only where its authority is known: {error:#}"
        );
    }
    let mut unsent = false;
    if let Some(url) = upload
        && let Err(error) =
            pipeline::upload(std::slice::from_ref(&ended.archive), url, &Stop::new())
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
    // Without a cluster there is nothing to show about its health.
    let code = report(args, &outputs, &ended.archive, Some(&names), true)?;
    prune(args, &out, std::slice::from_ref(&ended.archive))?;
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
