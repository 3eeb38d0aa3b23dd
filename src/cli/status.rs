//! `sonobuoy status`: how a run stands, once or each time that it changes.

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
use crate::remote::state::{self, State};
use crate::{layout, status};
use base::kube::{Method, Request};
use base::stop::Stop;
use base::{json, kube};

/// The status service answers within this, or the annotation is read.
const ANSWER: Duration = Duration::from_secs(3);

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let client = cluster::client(matches, &Stop::new())?;
    let namespace = matches.get_one::<String>("namespace").map(String::as_str).unwrap_or_default();
    let form = Form { all: matches.get_flag("show-all"), json: matches.get_flag("json") };
    let told = if matches.get_flag("watch") { None } else { by_service(matches, namespace, client.stop()) };
    // No run at all is an error, whether somebody watches or not.
    let state = match told {
        Some(run) => State::Told(run),
        None => state::read(&client, namespace)?,
    };
    if matches.get_flag("watch") {
        shown::stop_on_interrupt(client.stop())?;
        let about = About {
            title: format!("run in namespace {namespace}"),
            hint: "Ctrl-C ends the watch, not the run".into(),
            per_test: waiting::per_test(matches)?,
            ..About::default()
        };
        let shown = |board: Option<&Board>| watch(&client, namespace, form, board, &about);
        return match shown::or_original(matches) {
            Some(output) if !form.json => shown::with(output, Plain::Stdout, |board| shown(Some(board))),
            _ => shown(None),
        };
    }
    if let State::Told(run) = &state {
        learn(&client, namespace, run);
    }
    output::print(&form.text(&state)?)?;
    if let State::Silent { message, failed: true, .. } = &state {
        log::error!("{message}");
    }
    Ok(code(&state))
}

/// Keeps the certificate of the run's authority, unless the name of its archive tells that it is kept.
fn learn(client: &kube::Client, namespace: &str, run: &status::Run) {
    let Ok(kept) = Authorities::of_user() else { return };
    if layout::run_of_archive(&run.archive.name).and_then(|uuid| kept.of(uuid)).is_none() {
        kept.learn(client, namespace);
    }
}

/// The file with the credentials of a run's status service.
pub(crate) fn credentials(matches: &ArgMatches) -> PathBuf {
    PathBuf::from(value(matches, "credentials").unwrap_or(service::FILE))
}

/// The way to the run's own status service, if it has one and the file is right.
pub(crate) fn service(matches: &ArgMatches, namespace: &str) -> Option<Credentials> {
    let path = credentials(matches);
    if path.as_os_str() != service::STREAM {
        return or_say(matches, Credentials::read(&path, namespace));
    }
    if request::is_run(matches) {
        // It writes them there.
        return None;
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        log::warn!("`--credentials -` reads them from standard input, and that is a terminal");
        return None;
    }
    or_say(matches, Credentials::take(stdin.lock(), namespace).context("standard input"))
}

/// What the run's own service says, if there is one and it answers at once.
fn by_service(matches: &ArgMatches, namespace: &str, stop: &Stop) -> Option<status::Run> {
    let credentials = service(matches, namespace)?;
    let ask = || -> Result<Option<status::Run>> {
        let answer = credentials.client(ANSWER, stop)?.send(&Request::raw(Method::Get, "/status"))?;
        Ok(Some(serde_json::from_value(answer)?))
    };
    or_say(matches, ask())
}

/// What was found; a failure is told. A file that was named must be right; the usual one may be anybody's.
fn or_say<T>(matches: &ArgMatches, found: Result<Option<T>>) -> Option<T> {
    found.unwrap_or_else(|error| {
        let level = if matches.contains_id("credentials") { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "the status service was not asked: {error:#}");
        None
    })
}

/// What is printed.
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
            State::Silent { message, .. } => return Ok(format!("{message}\n")),
            State::Absent => return Ok("there is no aggregator any more\n".into()),
        };
        let table = if self.all { status_table::all(run) } else { status_table::summary(run) };
        let mut text = format!("{table}\n{}\n", status_table::sentence(run));
        for line in status_table::tests(run).into_iter().chain(status_table::troubles(run)) {
            text.push_str(&format!("{line}\n"));
        }
        Ok(text)
    }
}

/// 1 for a run that has failed or brought nothing, or whose aggregator cannot go on.
fn code(state: &State) -> ExitCode {
    match state {
        State::Silent { failed: true, .. } => ExitCode::FAILURE,
        State::Told(run) if run.status == status::FAILED || run.brought_nothing() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Shows every change until the run is over: on a board, else one below the other.
fn watch(
    client: &kube::Client,
    namespace: &str,
    form: Form,
    board: Option<&Board>,
    about: &About,
) -> Result<ExitCode> {
    let (mut shown, mut outcome, mut last) = (String::new(), Ok(()), None);
    state::follow(client, namespace, |state| {
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
        _ if client.stop().stopped() => Err(shown::Interrupted(format!(
            "the watch was interrupted; the run goes on: `sonobuoy status --watch -n {namespace}` watches it again"
        ))
        .into()),
        Some(State::Absent) => bail!("the run in namespace `{namespace}` is gone"),
        Some(state) => Ok(code(&state)),
        None => bail!("the watch was interrupted"),
    }
}

/// The lines of `text` that were not in `before`, each with the time.
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
