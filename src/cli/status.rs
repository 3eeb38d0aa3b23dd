//! `sonobuoy status`: the state of a run, once or after each change.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ArgMatches;

use super::flag::value;
use super::shown::{self, Plain};
use super::{cluster, output, request, status_table, waiting};
use crate::board::{About, Board};
use crate::remote::authority::Authorities;
use crate::remote::service::{self, Credentials};
use crate::remote::state::{Source, State};
use crate::{layout, status};
use base::json;
use base::stop::Stop;
use base::sys;

/// Timeout after which the status service is not used.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let namespace = value(matches, "namespace").unwrap_or_default();
    let form = Form { all: matches.get_flag("show-all"), json: matches.get_flag("json") };
    let watched = matches.get_flag("watch");
    let source = source(matches, service(matches, namespace)?.as_ref(), watched, &Stop::new())?;
    // A missing run is an error, also with `--watch`.
    let state = source.read(namespace)?;
    if watched {
        shown::stop_on_interrupt(source.stop())?;
        let about = About {
            title: format!("run in namespace {namespace}"),
            hint: "Ctrl-C ends the watch, not the run".into(),
            per_test: waiting::per_test(matches)?,
            ..About::default()
        };
        let shown = |board: Option<&Board>| watch(&source, namespace, form, board, &about);
        return match shown::or_original(matches) {
            Some(output) if !form.json => shown::with(output, Plain::Stdout, |board| shown(Some(board))),
            _ => shown(None),
        };
    }
    output::print(&form.text(&state)?)?;
    match &state {
        State::Silent { no_image: Some(said), .. } => log::error!("unable to pull sonobuoy image: {said}"),
        State::Silent { phase, lost: true, .. } => {
            log::error!("sonobuoy aggregator is in the '{phase}' state");
        }
        State::Silent { message, .. } if state.has_failed() => log::error!("{message}"),
        _ => {}
    }
    if let State::Told(run) = &state {
        learn(matches, &source, namespace, run);
    }
    Ok(code(&state))
}

/// Stores the certificate of the run's authority, unless the name of its archive shows that it is stored.
fn learn(matches: &ArgMatches, source: &Source, namespace: &str, run: &status::Run) {
    let Ok(kept) = Authorities::of_user() else { return };
    if layout::run_of_archive(&run.archive.name).and_then(|uuid| kept.of(uuid)).is_some() {
        return;
    }
    match source {
        Source::Cluster(client) => drop(kept.learn(client, namespace)),
        Source::Service(client) => {
            let cluster = cluster::client(matches, client.stop());
            cluster.map(|cluster| kept.learn(&cluster, namespace)).ok();
        }
    }
}

/// The file with the credentials of a run's status service.
pub(crate) fn credentials(matches: &ArgMatches) -> PathBuf {
    let named = value(matches, "credentials").map(str::to_owned);
    named.or_else(|| sys::variable("SONOBUOY_CREDENTIALS")).unwrap_or_else(|| service::FILE.into()).into()
}

/// The credentials of the run's status service, if they are usable. A named file that does not exist is an error.
pub(crate) fn service(matches: &ArgMatches, namespace: &str) -> Result<Option<Credentials>> {
    let path = credentials(matches);
    let is_run = request::is_run(matches);
    if path.as_os_str() != service::STREAM {
        let found = Credentials::read(&path, namespace);
        // `run` writes the file, and says so if that failed.
        if matches!(found, Ok(None)) && named(matches) && !is_run {
            bail!(
                "--credentials: `{}` does not exist; name the file that `sonobuoy run --status-service` wrote",
                path.display()
            );
        }
        return Ok(usable(matches, found).flatten());
    }
    if is_run {
        // `run` writes them there.
        return Ok(None);
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        log::warn!("`--credentials -` reads them from standard input, which is a terminal");
        return Ok(None);
    }
    Ok(usable(matches, Credentials::take(stdin.lock(), namespace).context("standard input")))
}

/// The source of the status: the service if it responds, else the cluster. The default credentials file is only used
/// for a single read, since watching the cluster reports more: pods that do not start, and deleted pods.
pub(crate) fn source(
    matches: &ArgMatches,
    service: Option<&Credentials>,
    follows: bool,
    stop: &Stop,
) -> Result<Source> {
    let client = service.map(|found| found.client(stop));
    let client = client.and_then(|client| usable(matches, client));
    let asked = client.as_ref().filter(|_| named(matches) || !follows);
    let answer = asked.map(|client| client.status_within(ANSWER_TIMEOUT));
    match (answer, client) {
        (Some(Ok(_)), Some(client)) => Ok(Source::Service(client)),
        (answer, client) => match (cluster::client(matches, stop), answer, client) {
            (Err(_), Some(Err(error)), _) if !follows => {
                Err(error.context("the run's status service cannot be asked"))
            }
            (Err(_), _, Some(client)) => Ok(Source::Service(client)),
            (cluster, answer, _) => {
                usable(matches, answer.transpose());
                cluster.map(Source::Cluster)
            }
        },
    }
}

fn named(matches: &ArgMatches) -> bool {
    matches.contains_id("credentials")
}

/// Logs why the service is not used. A named file must be valid; the default one may belong to another run.
fn usable<T>(matches: &ArgMatches, found: Result<T>) -> Option<T> {
    let level = if named(matches) { log::Level::Warn } else { log::Level::Debug };
    found.inspect_err(|error| log::log!(level, "the status service was not asked: {error:#}")).ok()
}

#[derive(Clone, Copy)]
struct Form {
    all: bool,
    json: bool,
}

impl Form {
    fn text(self, state: &State) -> Result<String> {
        if self.json && !self.all {
            return Ok(format!("{}\n", json::line(&state.document())));
        }
        let run = match state {
            State::Told(run) => run,
            State::Silent { phase, message, no_image, .. } => {
                let sentence = status_table::silent_sentence(phase, no_image.as_deref());
                return Ok(format!("{sentence}\n{message}\n"));
            }
            State::Absent => return Ok("there is no aggregator any more\n".into()),
        };
        let table = if self.all { status_table::all(run) } else { status_table::summary(run) };
        let mut text = format!("{table}\n{}\n", status_table::sentence(run));
        for line in status_table::notes(run) {
            text.push_str(&format!("{line}\n"));
        }
        Ok(text)
    }
}

/// 1 for a run that failed or delivered no results, or whose aggregator cannot continue.
fn code(state: &State) -> ExitCode {
    match state {
        State::Told(run) if run.brought_nothing() => ExitCode::FAILURE,
        state if state.has_failed() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Shows every change until the run is over: on a board, else one after the other.
fn watch(
    source: &Source,
    namespace: &str,
    form: Form,
    board: Option<&Board>,
    about: &About,
) -> Result<ExitCode> {
    let (mut shown, mut outcome, mut last) = (String::new(), Ok(()), None);
    source.follow(namespace, |state| {
        outcome = match board {
            Some(board) => board.show(waiting::scene(&state, about)),
            None => form.text(&state).and_then(|text| {
                let new = text != shown;
                let printed = match form.json {
                    _ if !new => Ok(()),
                    true => output::print(&text),
                    false => output::print(&stamped(&shown, &text)),
                };
                shown = text;
                printed
            }),
        };
        let over = state.is_over() || state == State::Absent;
        last = Some(state);
        outcome.is_ok() && !over
    })?;
    outcome?;
    match last {
        _ if source.stop().stopped() => Err(shown::Interrupted(format!(
            "the watch was interrupted; the run goes on: `sonobuoy status --watch -n {namespace}` watches it again"
        ))
        .into()),
        Some(State::Absent) => bail!("the run in namespace `{namespace}` is gone"),
        Some(state) => Ok(code(&state)),
        None => bail!("the watch was interrupted"),
    }
}

/// The lines of `text` that are not in `before`, each with the time.
fn stamped(before: &str, text: &str) -> String {
    let known: std::collections::HashSet<Vec<&str>> =
        before.lines().map(|line| line.split_whitespace().collect()).collect();
    let time = shown::time();
    let new = text.lines().filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        !words.is_empty() && !known.contains(&words)
    });
    new.map(|line| format!("{time} {}\n", line.trim_end())).collect()
}
