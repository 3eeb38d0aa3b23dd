//! `sonobuoy status`: the state of a run, once or after each change.

use std::collections::HashSet;

use anyhow::{Result, bail};

use super::flag::Args;
use super::shown::{self, Plain};
use super::{access, cluster, error, form, output, run_args, status_table, wait};
use crate::board::{About, Board};
use crate::remote::seal::Authorities;
use crate::remote::state::{RunState, StatusSource};
use crate::remote::whole_status;
use crate::{layout, status};
use base::json::{self, json};
use base::stop::Stop;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    let namespace = &cluster::namespace_of_run(args)?;
    let watched = args.on("watch");
    let word = args.text("output").filter(|_| !watched);
    if let Some(word) = args.text("output").filter(|word| watched && !shown::WORDS.contains(word)) {
        let words = shown::WORDS.join(", ");
        return Err(error::usage(format!("-o {word}: with --watch it must be one of {words}")));
    }
    let form = StatusForm {
        all: args.on("show-all") || args.on("all") || word == Some("wide"),
        json: args.on("json") && !args.on("show-all") || word == Some("json"),
    };
    let service = access::service(args, namespace, false)?;
    let source = access::source(args, service.as_ref(), watched, &Stop::new())?;
    // A missing run is an error, also with `--watch`.
    let mut state = source.read(namespace)?;
    if let (RunState::Told(run), Some(client)) = (&mut state, source.cluster())
        && run.truncated
        && args.on("all")
    {
        *run = status::Run { started: run.started, ..whole_status(client, namespace)? };
    }
    if watched {
        shown::stop_on_interrupt(source.stop())?;
        let per_test = args.text("estimate-from").map(|archive| run_args::per_test(archive, &|_| true));
        let about = About {
            title: format!("run in namespace {namespace}"),
            hint: "Ctrl-C ends the watch, not the run".into(),
            per_test: per_test.transpose()?,
            ..About::default()
        };
        let shown = |board: Option<&Board>| watch(&source, namespace, form, board, &about);
        return match shown::or_original(args) {
            Some(output) if !form.json => shown::with(output, Plain::Stdout, |board| shown(Some(board))),
            _ => shown(None),
        };
    }
    let told = match (word, &state) {
        (Some("yaml"), state) => Some(form::document("yaml", &json!(state.document()))),
        (Some("name" | "markdown"), RunState::Told(run)) => {
            form::table(args, status_table::HEAD, &status_table::rows(run))
        }
        _ => None,
    };
    output::print(&told.map_or_else(|| form.text(&state), Ok)?)?;
    match &state {
        RunState::Silent { no_image: Some(said), .. } => log::error!("unable to pull sonobuoy image: {said}"),
        RunState::Silent { phase, .. } if matches!(&**phase, "Failed" | "Unknown") => {
            log::error!("sonobuoy aggregator is in the '{phase}' state");
        }
        RunState::Silent { message, .. } if state.has_failed() => log::error!("{message}"),
        RunState::Told(run) => learn(args, &source, namespace, run),
        _ => {}
    }
    Ok(code(&state))
}

/// Stores the certificate of the run's authority, unless the name of its archive shows that it is stored.
fn learn(args: Args, source: &StatusSource, namespace: &str, run: &status::Run) {
    let Ok(kept) = Authorities::of_user() else { return };
    if layout::run_of_archive(&run.archive.name).and_then(|uuid| kept.of(uuid)).is_some() {
        return;
    }
    let client = source.cluster().map_or_else(|| cluster::client(args), |client| Ok(client.clone()));
    client.map(|client| kept.learn(&client.under(source.stop()), namespace)).ok();
}

#[derive(Clone, Copy)]
struct StatusForm {
    all: bool,
    json: bool,
}

impl StatusForm {
    fn text(self, state: &RunState) -> Result<String> {
        if self.json {
            return Ok(format!("{}\n", json::line(&state.document())));
        }
        let run = match state {
            RunState::Told(run) => run,
            RunState::Silent { phase, message, no_image, .. } => {
                let sentence = status_table::silent_sentence(phase, no_image.as_deref());
                return Ok(format!("{sentence}\n{message}\n"));
            }
            RunState::Lost(message) => return Ok(format!("{message}\n")),
            RunState::Absent => return Ok("the aggregator no longer exists\n".into()),
        };
        Ok(status_table::whole(run, self.all))
    }
}

/// 1 for a run that failed or delivered no results, or whose aggregator cannot continue.
fn code(state: &RunState) -> u8 {
    match state {
        RunState::Told(run) if run.brought_nothing() => 1,
        state if state.has_failed() => 1,
        _ => 0,
    }
}

/// Shows every change until the run is over: on a board, else one after the other.
fn watch(
    source: &StatusSource,
    namespace: &str,
    form: StatusForm,
    board: Option<&Board>,
    about: &About,
) -> Result<u8> {
    let (mut shown, mut printed, mut outcome, mut last) = (String::new(), HashSet::new(), Ok(()), None);
    source.follow(namespace, |state| {
        let Some(state) = state else { return true };
        outcome = match board {
            Some(board) => board.show(wait::scene(&state, about)),
            None => form.text(&state).and_then(|text| match form.json {
                true if text == shown => Ok(()),
                true => {
                    shown.clone_from(&text);
                    output::print(&text)
                }
                false => output::print(&status_table::news(&text, &mut printed)),
            }),
        };
        let over = state.is_over() || state == RunState::Absent;
        last = Some(state);
        outcome.is_ok() && !over
    })?;
    outcome?;
    match last {
        _ if source.stop().stopped() => Err(error::interrupted(format!(
            "the watch was interrupted; the run continues: `sonobuoy status --watch -n {namespace}` watches it again"
        ))),
        Some(RunState::Absent) => bail!("the run in namespace `{namespace}` is gone"),
        Some(state) => Ok(code(&state)),
        None => bail!("the watch was interrupted"),
    }
}
