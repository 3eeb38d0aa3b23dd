//! `sonobuoy wait`: attaches to a running run, and waits for its end; so does `run --wait`.
//!
//! Starts the thread `watch`, which follows the state of the run, and joins it. Outages of the API server are
//! tolerated within the limit.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::afterwards::{Afterwards, upload};
use super::flag::Args;
use super::run_args::{Purpose, RunArgs};
use super::shown::{self, Plain, time};
use super::{cluster, mistake, output, status_table};
use crate::board::{self, About, Board, Output, Scene, Trouble};
use crate::deploy;
use crate::remote::authority::Authorities;
use crate::remote::state::{Source, State};
use crate::status;
use base::kube::Resource;
use base::stop::{Stop, StopOnDrop};
use base::{clock, sys};

/// The timeout of a bare `--wait` in minutes: a day.
pub(crate) const DAY: i64 = 1_440;
/// Silence after which a heartbeat is printed, as the original does at each poll.
const NEWS_INTERVAL: Duration = Duration::from_secs(20);
/// Maximum interval of heartbeats, which become rarer in a log file.
const MAX_NEWS_INTERVAL: Duration = Duration::from_secs(300);

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    let request = RunArgs::new(args, Purpose::Print)?;
    let afterwards = Afterwards::asked(args, upload(args, false)?)?;
    let stop = Stop::new();
    let per_test = request.per_test()?;
    let namespace = request.config.namespace;
    let service = super::status::service(args, &namespace, false)?;
    let source = super::status::source(args, service.as_ref(), true, &stop)?;
    let client = match source.cluster() {
        Some(client) => Some(client.clone()),
        // The status service has the archive; only a deletion needs the cluster.
        None => args.on("delete").then(|| cluster::client(args, &stop)).transpose()?,
    };
    if let Some(client) = source.cluster()
        && client.get(&Resource::NAMESPACES, "", &namespace).is_err_and(|error| error.is_not_found())
    {
        bail!("namespace `{namespace}` does not exist; name the namespace of the run with `-n`");
    }
    if args.on("recover") {
        let Some(client) = source.cluster() else { bail!("--recover needs access to the cluster") };
        deploy::recover(client, &namespace)?;
    }
    // The original's limit is 0 here, which ends every wait at once.
    let run = Wait::asked(args, DAY, per_test)?.map(|wait| wait.wait(&source, &namespace)).transpose()?;
    let code = afterwards.run(client.as_ref(), &namespace, run.as_ref(), service.as_ref(), &stop)?;
    Ok(run.map_or(code, |run| conclude(&run, code, &namespace)))
}

/// The timeout and the output of a wait.
pub(crate) struct Wait {
    limit: Duration,
    style: OutputStyle,
    per_test: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputStyle {
    Silent,
    /// Lines of a table, as in the original.
    Table,
    Board(Output),
}

impl Wait {
    /// Reads the flags; `None` without a wait. `default` is the limit in minutes without the flag.
    pub(crate) fn asked(args: Args, default: i64, per_test: Option<Duration>) -> Result<Option<Self>> {
        let minutes = Some(args.number("wait")).filter(|minutes| *minutes != 0).unwrap_or(default);
        let minutes =
            u64::try_from(minutes).map_err(|_| mistake::error("--wait is negative; write minutes"))?;
        // The original's spinner is useless in a log; a table is more informative.
        let silent = args.text("wait-output") != Some("Progress") || !progress_is_on(&sys::variable);
        let style = match shown::or_original(args) {
            Some(Output::Board) | None if silent => OutputStyle::Silent,
            Some(output) => OutputStyle::Board(output),
            None => OutputStyle::Table,
        };
        let limit = Duration::from_secs(minutes.saturating_mul(60));
        Ok((minutes > 0).then_some(Self { limit, style, per_test }))
    }

    /// Waits until the run is complete. Fails if it failed, was deleted, or timed out.
    pub(crate) fn wait(&self, source: &Source, namespace: &str) -> Result<status::Run> {
        shown::stop_on_interrupt(source.stop())?;
        match self.style {
            OutputStyle::Board(output) => {
                shown::with(output, Plain::Stdout, |board| self.follow(source, namespace, Some(board)))
            }
            _ => self.follow(source, namespace, None),
        }
    }

    fn follow(&self, source: &Source, namespace: &str, board: Option<&Board>) -> Result<status::Run> {
        let over = source.stop().child();
        let narrow = source.under(&over);
        let (sender, states) = sync_channel(16);
        thread::scope(|scope| {
            let watch = thread::Builder::new().name("watch".into()).spawn_scoped(scope, move || {
                let mut learning = Authorities::of_user().ok();
                narrow.follow(namespace, |state| {
                    // The earlier the certificate is stored, the less time for tampering.
                    if let (State::Told(_), Some(kept), Some(client)) = (&state, &learning, narrow.cluster())
                        && kept.learn(client, namespace)
                    {
                        learning = None;
                    }
                    sender.send(state).is_ok()
                })
            });
            let watch = watch.context("cannot start a thread")?;
            // Always ends the watch, since this thread joins it.
            let (states, over) = (states, StopOnDrop(&over));
            let outcome = Follower { board, ..Follower::new(self, namespace) }.follow(&states);
            drop((states, over));
            let watched = watch.join().unwrap_or_else(|_| bail!("the watch panicked"));
            match outcome? {
                Some(run) => Ok(run),
                None if source.stop().stopped() => Err(shown::Interrupted(format!(
                    "the wait was interrupted; the run goes on: `sonobuoy wait -n {namespace}` waits for it again, `sonobuoy delete -n {namespace}` ends it"
                ))
                .into()),
                None => watched.and_then(|()| bail!("the wait was interrupted")),
            }
        })
    }
}

/// The exit code for a complete run, given that of the steps after it: a run in which every plugin only reported
/// errors has failed its purpose.
pub(crate) fn verdict(run: &status::Run, code: u8) -> u8 {
    if !run.brought_nothing() {
        return code;
    }
    log::error!("no plugin has delivered a result");
    code.max(1)
}

/// The exit code for a run in a cluster; a terminal also gets the results in a line.
pub(crate) fn conclude(run: &status::Run, code: u8, namespace: &str) -> u8 {
    if std::io::stderr().is_terminal() {
        let tasks = board::of_run(run, &About::default()).tasks;
        let results = tasks.iter().map(|task| match task.result.as_str() {
            "" => format!("{} without a result", task.name),
            result => format!("{} {result}", task.name),
        });
        let results = results.collect::<Vec<_>>().join(", ");
        log::info!("the run in namespace `{namespace}` is complete: {results}");
    }
    verdict(run, code)
}

/// On, unless its variable says otherwise.
fn progress_is_on(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    variable("SONOBUOY_WAIT_PROGRESS").is_none_or(|value| !value.eq_ignore_ascii_case("false"))
}

struct Follower<'a> {
    wait: &'a Wait,
    namespace: &'a str,
    board: Option<&'a Board>,
    printed: HashSet<String>,
    latest: State,
    seen: bool,
    /// Deadline for a stuck aggregator.
    stuck: Option<Instant>,
    began: Instant,
    quiet: Duration,
}

impl<'a> Follower<'a> {
    fn new(wait: &'a Wait, namespace: &'a str) -> Self {
        Self {
            wait,
            namespace,
            board: None,
            printed: HashSet::new(),
            latest: State::Absent,
            seen: false,
            stuck: None,
            began: Instant::now(),
            quiet: NEWS_INTERVAL,
        }
    }

    /// Handles states until the run is over; `None` if the states end.
    fn follow(&mut self, states: &Receiver<State>) -> Result<Option<status::Run>> {
        let end = self.began + self.wait.limit;
        let mut heartbeat = Instant::now() + self.quiet;
        loop {
            let now = Instant::now();
            if now >= end {
                let limit = clock::duration(self.wait.limit);
                let state = match &self.latest {
                    State::Told(run) => format!("it is {}", run.status),
                    other => words(other).to_owned(),
                };
                bail!(
                    "the run in namespace `{0}` was not over within {limit}: {state}; it is still running, see `sonobuoy status -n {0}`",
                    self.namespace
                );
            }
            if self.stuck.is_some_and(|until| now >= until) {
                bail!("{}; see `sonobuoy status -n {}`", words(&self.latest), self.namespace);
            }
            let next = end.min(heartbeat).min(self.stuck.unwrap_or(end));
            match states.recv_timeout(next.saturating_duration_since(now)) {
                Ok(state) => {
                    if self.tell(&state)? {
                        self.quiet = NEWS_INTERVAL;
                        heartbeat = Instant::now() + self.quiet;
                    }
                    if let Some(run) = self.take(state)? {
                        return Ok(Some(run));
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= heartbeat => {
                    self.sign_of_life()?;
                    heartbeat = Instant::now() + self.quiet;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// The run, if complete; an error if it cannot complete.
    fn take(&mut self, state: State) -> Result<Option<status::Run>> {
        let namespace = self.namespace;
        self.stuck = match &state {
            State::Silent { stuck: Some(limit), .. } => {
                self.stuck.or_else(|| Instant::now().checked_add(*limit))
            }
            _ => None,
        };
        match &state {
            State::Told(run) if run.status == status::COMPLETE && run.is_over() => {
                return Ok(Some(run.clone()));
            }
            State::Told(run) if run.status == status::FAILED => {
                let error = run.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                bail!("the run has failed{error}; see `sonobuoy logs -n {namespace}`")
            }
            State::Told(_) => self.seen = true,
            State::Lost(message) => bail!("{message}"),
            State::Absent if self.seen => {
                bail!("the aggregator of the run in namespace `{namespace}` is gone, and its results with it")
            }
            State::Silent { message, .. } if state.is_over() => {
                bail!("{message}; see `sonobuoy logs -n {namespace}`");
            }
            _ => {}
        }
        self.latest = state;
        Ok(None)
    }

    /// Reports news; returns whether there was any.
    fn tell(&mut self, state: &State) -> Result<bool> {
        if let Some(board) = self.board {
            let about = About {
                title: format!("run in namespace {}", self.namespace),
                limit: format!("at most {}", board::span(self.wait.limit)),
                hint: "Ctrl-C ends the wait, not the run".into(),
                per_test: self.wait.per_test,
            };
            board.show(scene(state, &about))?;
            return Ok(true);
        }
        let text = match state {
            State::Told(run) => status_table::whole(run, true),
            State::Lost(message) => format!("{message}\n"),
            State::Silent { message, .. } => format!(
                "Waiting for the aggregator status to become Running. Currently the status is {message}"
            ),
            State::Absent => "Waiting for the aggregator to get tagged with its current status...".into(),
        };
        let new = status_table::news(&text, &mut self.printed);
        if self.wait.style == OutputStyle::Table {
            output::print(&new)?;
        }
        Ok(!new.is_empty())
    }

    fn sign_of_life(&mut self) -> Result<()> {
        if self.wait.style != OutputStyle::Table {
            return Ok(());
        }
        if std::io::stdout().is_terminal() {
            return output::print("...\n");
        }
        self.quiet = (self.quiet * 2).min(MAX_NEWS_INTERVAL);
        let since = clock::duration(Duration::from_secs(self.began.elapsed().as_secs()));
        let State::Told(run) = &self.latest else {
            return output::print(&format!("{} ... waiting for {since}\n", time()));
        };
        let (mut done, mut all) = (0, 0);
        for entry in run.plugins.iter().flatten() {
            let count = entry.count.unwrap_or(1);
            all += count;
            done += if entry.status == status::RUNNING { 0 } else { count };
        }
        output::print(&format!("{} ... {done} of {all} results after {since}\n", time()))
    }
}

fn words(state: &State) -> &str {
    match state {
        State::Absent => "there is no aggregator yet",
        State::Lost(message) | State::Silent { message, .. } => message,
        State::Told(run) => &run.status,
    }
}

/// The scene of a run in a cluster.
pub(crate) fn scene(state: &State, about: &About) -> Scene {
    let mut scene = board::of_run(&state.document(), about);
    match state {
        // The remedy is too long for the line with the state.
        State::Silent { message, stuck: Some(_), .. } => {
            scene.state = "waiting for the aggregator".into();
            let cause = message.lines().map(str::trim).collect::<Vec<_>>().join("; ");
            scene.troubles.push(Trouble { task: "aggregator".into(), places: Vec::new(), cause });
        }
        State::Silent { .. } | State::Absent | State::Lost(_) => scene.state = words(state).into(),
        State::Told(run) => {
            let trouble = |cause| Trouble { task: "aggregator".into(), places: Vec::new(), cause };
            scene.troubles.extend(run.message.clone().map(trouble));
        }
    }
    scene
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_switched_off_by_its_own_variable() {
        let check = |own: Option<&str>, expected| {
            let variable = |name: &str| (name == "SONOBUOY_WAIT_PROGRESS").then_some(own?.to_owned());
            assert_eq!(progress_is_on(&variable), expected, "{own:?}");
        };
        check(None, true);
        check(Some("true"), true);
        check(Some("false"), false);
    }

    fn follower(wait: &Wait) -> Follower<'_> {
        Follower::new(wait, "ns")
    }

    #[test]
    fn only_a_complete_run_is_a_success() {
        let wait = Wait { limit: Duration::from_secs(60), style: OutputStyle::Silent, per_test: None };
        let run = |status: &str| State::Told(status::Run { status: status.into(), ..status::Run::default() });
        let mut fresh = follower(&wait);
        assert!(fresh.take(State::Absent).unwrap().is_none(), "it may still come");
        assert!(fresh.take(run("running")).unwrap().is_none());
        assert!(fresh.take(run("complete")).unwrap().is_some());
        assert!(fresh.take(run("failed")).is_err());
        assert!(fresh.take(State::Absent).unwrap_err().to_string().contains("gone"));
    }

    #[test]
    fn lines_are_told_once_whatever_their_columns() {
        let wait = Wait { limit: Duration::from_secs(60), style: OutputStyle::Silent, per_test: None };
        let mut follower = follower(&wait);
        let entry =
            |node: &str| status::Entry { plugin: "p".into(), node: node.into(), ..status::Entry::default() };
        let mut run = status::Run { plugins: Some(vec![entry("a")]), ..status::Run::default() };
        assert!(follower.tell(&State::Told(run.clone())).unwrap());
        assert!(!follower.tell(&State::Told(run.clone())).unwrap());
        run.plugins.as_mut().unwrap().push(entry("a-node-with-a-long-name"));
        let before = follower.printed.len();
        assert!(follower.tell(&State::Told(run)).unwrap());
        assert_eq!(follower.printed.len(), before + 1);
    }

    #[test]
    fn the_time_is_over_with_the_last_state_in_the_message() {
        let wait = Wait { limit: Duration::ZERO, style: OutputStyle::Silent, per_test: None };
        let (_sender, states) = sync_channel(1);
        let mut late = follower(&wait);
        late.latest = State::Told(status::Run::default());
        let error = late.follow(&states).unwrap_err().to_string();
        assert!(error.contains("was not over within 0s: it is running"), "{error}");
    }

    #[test]
    fn an_aggregator_that_is_stuck_gets_time_to_be_repaired() {
        let wait = Wait { limit: Duration::from_secs(3_600), style: OutputStyle::Silent, per_test: None };
        let stuck = State::Silent {
            phase: "Pending".into(),
            message: "no image".into(),
            lost: false,
            stuck: Some(Duration::from_secs(300)),
            no_image: Some(String::new()),
        };
        let mut follower = follower(&wait);
        assert!(follower.take(stuck.clone()).unwrap().is_none());
        let until = follower.stuck;
        assert!(until.is_some());
        assert!(follower.take(stuck).unwrap().is_none());
        assert_eq!(follower.stuck, until, "the time counts from the first");
        follower.stuck = Some(Instant::now());
        let (_sender, states) = sync_channel(1);
        assert!(follower.follow(&states).unwrap_err().to_string().contains("no image"));
        follower.take(State::Told(status::Run::default())).unwrap();
        assert_eq!(follower.stuck, None);
    }
}
