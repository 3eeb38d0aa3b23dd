//! `sonobuoy wait`, and the wait of `run --wait`: follows a run to its end. Outages of the API
//! server are tolerated within the limit.

use std::io::IsTerminal as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::afterwards::{Afterwards, AfterwardsFlags, check_upload};
use super::cluster::{ClusterFlags, CredentialsFlag, check_namespace};
use super::clusters::{self, ClustersFlags, Fleet};
use super::flag::{Filled as _, Variation, Varied, examples, interrupted, is_of};
use super::output::{self, TableForm};
use super::run_args::RunArgs;
use super::run_flags::{
    ConfigFlag, ProgressFlags, RbacFlag, RunFlags, RunNamespaceFlag, WaitOutput, WaitingFlags,
};
use super::run_plan::{Purpose, RunRequest};
use super::status::{News, text};
use crate::deploy;
use crate::progress_view::{self, About, Board, ProgressOutput};
use crate::remote::seal::Authorities;
use crate::remote::state::{RunState, StatusSource};
use base::Joined as _;
use base::stop::Stop;
use base::{clock, sys};
use model::status::Run;
use model::timings::Stopwatch;
use model::verdict::{RunEnd, code_after_error};

/// The timeout of a bare `--wait`.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Silence after which a heartbeat is printed, as the original does at each poll.
const NEWS_INTERVAL: Duration = Duration::from_secs(60);

/// Wait for a run to end
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Wait for a run that was started elsewhere", "sonobuoy wait --wait=2h --retrieve ."),
    ("Continue a run whose aggregator was lost with its node", "sonobuoy wait --recover"),
]))]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    run: Varied<RunFlags, OfWait>,
    #[command(flatten)]
    progress: ProgressFlags,
    #[command(flatten)]
    clusters: ClustersFlags,
    #[command(flatten)]
    afterwards: AfterwardsFlags,
    #[command(flatten, next_help_heading = None)]
    recovery: RecoveryFlag,
}

/// The recovery of a run
#[derive(clap::Args)]
struct RecoveryFlag {
    /// Start the aggregator again if its pod or node is lost; needs --results-pvc
    #[arg(long)]
    recover: bool,
}

/// Hides the flags of `run` that are accepted, as in the original, but have no effect on `wait`.
struct OfWait;

impl Variation for OfWait {
    fn change(arg: clap::Arg) -> clap::Arg {
        let has_effect = is_of::<ConfigFlag>(&arg)
            || is_of::<RunNamespaceFlag>(&arg)
            || is_of::<RbacFlag>(&arg)
            || is_of::<CredentialsFlag>(&arg)
            || is_of::<WaitingFlags>(&arg)
            || is_of::<ClusterFlags>(&arg);
        arg.hide(!has_effect)
    }
}

impl WaitArgs {
    /// The wait in one of several clusters for a run that `run` has started.
    pub(crate) fn for_run(args: RunArgs) -> Self {
        Self {
            run: args.run.into(),
            progress: args.progress,
            clusters: args.clusters,
            afterwards: args.afterwards,
            recovery: RecoveryFlag { recover: false },
        }
    }

    /// The wait in several clusters, if several are named.
    pub(crate) fn fleet(&self) -> Option<Fleet<'_>> {
        let flags = &self.run.flags;
        let mut fleet = Fleet::new(
            "wait",
            &self.clusters,
            &flags.cluster,
            flags.access().namespace,
        )?;
        fleet.refuse_streams(flags);
        fleet.refuse("--certify", self.afterwards.certify.is_some());
        fleet.refuse("--baseline", self.afterwards.baseline.is_some());
        fleet.progress = self.progress.output;
        fleet.has_events = true;
        let retrieve = self.afterwards.retrieve.filled();
        fleet.folder = retrieve;
        if self.has_report() {
            let resumed = flags.e2e.resume.filled();
            fleet.reports = Some(&self.afterwards);
            fleet.folder = resumed.or(retrieve);
            fleet.resumes = resumed.is_some();
        }
        Some(fleet)
    }

    /// Whether several clusters need one report.
    fn has_report(&self) -> bool {
        self.afterwards.asks_for_report() || self.run.flags.e2e.resume.is_some()
    }

    /// The arguments for one of several clusters, whose results are reported as a whole.
    pub(crate) fn narrowed(self) -> Self {
        let Some(folder) = self.clusters.one_folder().map(str::to_owned) else {
            return self;
        };
        let has_report = self.has_report();
        Self {
            run: self.run.flags.narrowed().into(),
            progress: self.progress.narrowed(),
            clusters: self.clusters.narrowed(),
            afterwards: self
                .afterwards
                .narrowed(Some(folder).filter(|_| has_report)),
            recovery: self.recovery,
        }
    }
}

/// Runs the command in one cluster or in several.
pub(crate) fn dispatch(args: WaitArgs, level: &str) -> Result<u8> {
    if let Some(fleet) = args.fleet() {
        return clusters::run(&fleet);
    }
    run(&args.narrowed(), level)
}

/// Runs the command.
pub(super) fn run(args: &WaitArgs, level: &str) -> Result<u8> {
    let flags = &args.run.flags;
    let request = RunRequest::new(Purpose::Print, flags, None, level)?;
    let afterwards = Afterwards::prepare(
        &args.afterwards,
        args.progress.output,
        check_upload(args.afterwards.upload.filled(), false)?,
        flags.images.kit.filled(),
        || flags.run.rbac.rbac.has_rbac(&flags.cluster),
    )?;
    let stop = Stop::new();
    let per_test = request.per_test(args.progress.estimate.estimate_from.filled())?;
    let access = flags.access();
    let (namespace, service) = access.run_of(|| Ok(request.config.namespace))?;
    let source = access.source(service.as_ref(), true, &stop)?;
    let client = match source.cluster() {
        Some(client) => Some(client.clone()),
        // The status service has the archive; only a deletion needs the cluster.
        None => args
            .afterwards
            .delete
            .then(|| flags.cluster.client())
            .transpose()?,
    };
    if args.recovery.recover {
        let Some(client) = source.cluster() else {
            bail!("--recover needs access to the cluster")
        };
        deploy::recover(client, &namespace)?;
    }
    // The original's limit is 0 here, which ends every wait at once.
    let has_product = afterwards.has_product();
    let run = Wait::requested(&flags.waiting, &args.progress, DAY, per_test, has_product)
        .map(|wait| wait.wait(&source, &namespace))
        .transpose()?;
    run.iter().for_each(report_end);
    let code = afterwards.run(
        client.as_ref(),
        &namespace,
        run.as_ref(),
        service.as_ref(),
        &mut Stopwatch::start(),
        &stop,
    )?;
    Ok(run.map_or(code, |run| conclude(&run, code, &namespace, &afterwards)))
}

/// The timeout and the output of a wait.
pub(crate) struct Wait {
    limit: Duration,
    output: Option<ProgressOutput>,
    /// Without `output`: whether to print lines of a table, as the original does.
    prints: bool,
    /// Whether standard output is for what follows the wait, as for `ARCHIVE=$(…)`: then these
    /// lines are not data.
    has_product: bool,
    per_test: Option<Duration>,
    /// The run whose authority is to be stored while waiting.
    started: Option<StartedRun>,
    /// When the aggregator's first status was seen.
    first_status: OnceLock<Instant>,
}

/// A run that this command has started.
pub(crate) struct StartedRun {
    /// Its identifier, unless the aggregator chooses it.
    pub id: Option<String>,
}

impl Wait {
    /// Reads the flags; `None` without a wait. `default` is the limit without the flag,
    /// `has_product` whether standard output is for what follows the wait.
    pub(crate) fn requested(
        flags: &WaitingFlags,
        progress: &ProgressFlags,
        default: Duration,
        per_test: Option<Duration>,
        has_product: bool,
    ) -> Option<Self> {
        let limit = Some(flags.wait)
            .filter(|limit| !limit.is_zero())
            .unwrap_or(default);
        // The original's spinner is useless in a log; a table is more informative.
        let is_off = sys::variable("SONOBUOY_WAIT_PROGRESS")
            .is_some_and(|on| on.eq_ignore_ascii_case("false"));
        let is_progress = flags.wait_output.unwrap_or(WaitOutput::Progress) == WaitOutput::Progress;
        let prints = is_progress && !is_off;
        let output = output::or_original(progress.output, has_product)
            .filter(|output| prints || *output != ProgressOutput::Board);
        (!limit.is_zero()).then_some(Self {
            limit,
            output,
            prints,
            has_product,
            per_test,
            started: None,
            first_status: OnceLock::new(),
        })
    }

    /// Also stores the certificate of the authority of the run that this command has started.
    pub(crate) fn learning_authority(self, run: StartedRun) -> Self {
        Self {
            started: Some(run),
            ..self
        }
    }

    /// Prints lines as the original does, beside the data.
    fn print(&self, text: &str) {
        if self.has_product {
            output::error(text);
        } else {
            output::print(text);
        }
    }

    /// When the aggregator's first status was seen.
    pub(crate) fn first_status(&self) -> Option<Instant> {
        self.first_status.get().copied()
    }

    /// Waits until the run is complete. Fails if it failed, was deleted, or timed out.
    pub(crate) fn wait(&self, source: &StatusSource, namespace: &str) -> Result<Run> {
        output::stop_on_interrupt(source.stop())?;
        let follow = |board: Option<&Board>| self.follow(source, namespace, board);
        match self.output {
            Some(output) => output::with_board(output, |board| follow(Some(board))),
            None => follow(None),
        }
    }

    fn follow(&self, source: &StatusSource, namespace: &str, board: Option<&Board>) -> Result<Run> {
        let mut follower = Follower::new(self, namespace, board);
        let mut unlearned = self.started.as_ref().zip(Authorities::of_user().ok());
        let mut outcome = Ok(None);
        source.stop().within(self.limit, |over| {
            let source = source.under(over);
            if self.started.is_none() {
                // Nobody shall wait for a run in it.
                source
                    .cluster()
                    .map_or(Ok(()), |client| check_namespace(client, namespace))?;
            }
            source.follow(namespace, |state| {
                if matches!(state, Some(RunState::Told(_))) {
                    self.first_status.get_or_init(Instant::now);
                }
                // The earlier the certificate is stored, the less time for tampering.
                if let (Some(RunState::Told(_)), Some((run, authorities)), Some(client)) =
                    (&state, &unlearned, source.cluster())
                    && authorities
                        .learn(client, namespace, run.id.as_deref())
                        .is_some()
                {
                    unlearned = None;
                }
                outcome = match state {
                    Some(state) => follower.take(state),
                    None => follower.tick().map(|()| None),
                };
                matches!(outcome, Ok(None))
            })
        })??;
        match outcome? {
            Some(run) => Ok(run),
            None if source.stop().stopped() => Err(interrupted(format!(
                "the wait was interrupted; the run continues: `sonobuoy wait -n {namespace}` \
                 waits for it again, `sonobuoy delete -n {namespace}` ends it"
            ))),
            None => Err(follower.timeout()),
        }
    }
}

/// Reports that a run has ended without any result, or without the marks of some nodes. The steps
/// that follow end with the reason of the exit code.
pub(crate) fn report_end(run: &Run) {
    if RunEnd::of(run) == RunEnd::Nothing {
        log::error!("no plugin has delivered a result");
    }
    if let Some(reason) = &run.not_marked {
        log::warn!("{reason}");
    }
}

/// The exit code for a run that has ended, given that of the steps after it.
pub(crate) fn verdict(run: &Run, code: u8) -> u8 {
    let code = match run.not_marked {
        Some(_) => code_after_error(code),
        None => code,
    };
    RunEnd::of(run).exit_code(code)
}

/// The exit code for a run in a cluster. A terminal without a report gets the results in a line,
/// and the command that reports on them.
pub(crate) fn conclude(run: &Run, code: u8, namespace: &str, afterwards: &Afterwards<'_>) -> u8 {
    if std::io::stderr().is_terminal() && !afterwards.shows_report() {
        let tasks = progress_view::of_run(run, &About::default()).tasks;
        let results = tasks.iter().map(|task| match task.result.as_str() {
            "" => format!("{} without a result", task.name),
            result => format!("{} {result}", task.name),
        });
        log::info!(
            "the run in namespace `{namespace}` is complete: {}",
            results.joined(", ")
        );
        if !afterwards.deletes() {
            log::info!("`sonobuoy results --from-cluster --namespace {namespace}` reports on it");
        }
    }
    verdict(run, code)
}

struct Follower<'a> {
    wait: &'a Wait,
    namespace: &'a str,
    news: News<'a>,
    /// The last state; none before the first answer.
    latest: Option<RunState>,
    seen: bool,
    /// Deadline for a stuck aggregator.
    stuck: Option<Instant>,
    /// When something was last printed.
    printed: Instant,
}

impl<'a> Follower<'a> {
    fn new(wait: &'a Wait, namespace: &'a str, board: Option<&'a Board>) -> Self {
        let about = About {
            title: format!("run in namespace {namespace}"),
            limit: format!("at most {}", progress_view::span(wait.limit)),
            hint: "Ctrl-C ends the wait, not the run".into(),
            per_test: wait.per_test,
        };
        Self {
            wait,
            namespace,
            news: News::new(Some(TableForm::Wide), board, about),
            latest: None,
            seen: false,
            stuck: None,
            printed: Instant::now(),
        }
    }

    /// Reports a state. Returns the run, if complete; an error if it cannot complete.
    fn take(&mut self, state: RunState) -> Result<Option<Run>> {
        if self.tell(&state) {
            self.printed = Instant::now();
        }
        let namespace = self.namespace;
        self.stuck = match &state {
            RunState::Silent {
                stuck: Some(limit), ..
            } => self.stuck.or_else(|| Instant::now().checked_add(*limit)),
            _ => None,
        };
        match &state {
            RunState::Told(run) => match RunEnd::of(run) {
                RunEnd::Running => self.seen = true,
                RunEnd::Delivered | RunEnd::Nothing => return Ok(Some(run.clone())),
                RunEnd::Failed => {
                    let error = run
                        .error
                        .as_ref()
                        .map(|error| format!(": {error}"))
                        .unwrap_or_default();
                    bail!("the run has failed{error}; see `sonobuoy logs -n {namespace}`")
                }
            },
            RunState::Lost(message) => bail!("{message}"),
            RunState::Absent if self.seen => {
                bail!(
                    "the aggregator of the run in namespace `{namespace}` is gone, and its \
                     results with it"
                )
            }
            RunState::Silent { message, .. } if state.is_over() => {
                bail!("{message}; see `sonobuoy logs -n {namespace}`");
            }
            _ => {}
        }
        self.latest = Some(state);
        Ok(None)
    }

    /// Prints a heartbeat if one is due. Fails if the aggregator has been stuck for too long.
    fn tick(&mut self) -> Result<()> {
        if self.stuck.is_some_and(|until| Instant::now() >= until) {
            let summary = self
                .latest
                .as_ref()
                .map(RunState::summary)
                .unwrap_or_default();
            bail!("{summary}; see `sonobuoy status -n {}`", self.namespace);
        }
        if !self.wait.prints || self.news.board.is_some() || self.printed.elapsed() < NEWS_INTERVAL
        {
            return Ok(());
        }
        self.printed = Instant::now();
        self.wait.print("...\n");
        Ok(())
    }

    fn timeout(&self) -> anyhow::Error {
        let (limit, namespace) = (clock::duration(self.wait.limit), self.namespace);
        let Some(latest) = &self.latest else {
            return anyhow::anyhow!(
                "the state of the run in namespace `{namespace}` is unknown: there was no answer \
                 within {limit}; check the address in the kubeconfig, VPN, proxy and firewall"
            );
        };
        let late = format!("the run in namespace `{namespace}` was not over within {limit}");
        match latest {
            RunState::Told(run) => anyhow::anyhow!(
                "{late}: it is {} and goes on, see `sonobuoy status -n {namespace}`",
                run.status
            ),
            state => anyhow::anyhow!(
                "{late}: {}; see `sonobuoy status -n {namespace}`",
                state.summary()
            ),
        }
    }

    /// Reports news; returns whether there was any.
    fn tell(&mut self, state: &RunState) -> bool {
        let new = self.news.of(state, || match state {
            RunState::Silent { message, .. } => format!(
                "Waiting for the aggregator status to become Running. Currently the status is \
                 {message}"
            ),
            RunState::Absent => {
                "Waiting for the aggregator to get tagged with its current status...".into()
            }
            state => text(Some(TableForm::Wide), state),
        });
        if self.wait.prints {
            self.wait.print(&new);
        }
        !new.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::status::Entry;

    fn wait(limit: Duration) -> Wait {
        Wait {
            limit,
            output: None,
            prints: false,
            has_product: false,
            per_test: None,
            started: None,
            first_status: OnceLock::new(),
        }
    }

    fn follower(wait: &Wait) -> Follower<'_> {
        Follower::new(wait, "ns", None)
    }

    #[test]
    fn only_a_complete_run_is_a_success() {
        let wait = wait(Duration::from_secs(60));
        let run = |status: &str| {
            RunState::Told(Run {
                status: status.into(),
                ..Run::default()
            })
        };
        let mut fresh = follower(&wait);
        assert!(
            fresh.take(RunState::Absent).unwrap().is_none(),
            "it may still come"
        );
        assert!(fresh.take(run("running")).unwrap().is_none());
        assert!(fresh.take(run("complete")).unwrap().is_some());
        assert!(fresh.take(run("failed")).is_err());
        assert!(
            fresh
                .take(RunState::Absent)
                .unwrap_err()
                .to_string()
                .contains("gone")
        );
    }

    #[test]
    fn lines_are_printed_once_at_any_width() {
        let wait = wait(Duration::from_secs(60));
        let mut follower = follower(&wait);
        let entry = |node: &str| Entry {
            plugin: "p".into(),
            node: node.into(),
            ..Entry::default()
        };
        let mut run = Run {
            plugins: Some(vec![entry("a")]),
            ..Run::default()
        };
        assert!(follower.tell(&RunState::Told(run.clone())));
        assert!(!follower.tell(&RunState::Told(run.clone())));
        run.plugins
            .as_mut()
            .unwrap()
            .push(entry("a-node-with-a-long-name"));
        let before = follower.news.printed.len();
        assert!(follower.tell(&RunState::Told(run)));
        assert_eq!(follower.news.printed.len(), before + 1);
    }

    #[test]
    fn timeout_names_the_last_state() {
        let wait = wait(Duration::ZERO);
        let mut late = follower(&wait);
        assert!(
            late.timeout()
                .to_string()
                .contains("unknown: there was no answer within 0s")
        );
        for (state, expected) in [
            (
                RunState::Told(Run::default()),
                "was not over within 0s: it is running and goes on",
            ),
            (
                RunState::Absent,
                "was not over within 0s: no aggregator exists yet; see",
            ),
        ] {
            late.latest = Some(state);
            let error = late.timeout().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn stuck_aggregator_has_time_for_repair() {
        let wait = wait(Duration::from_secs(3_600));
        let stuck = RunState::Silent {
            phase: "Pending".into(),
            message: "no image".into(),
            stuck: Some(Duration::from_secs(300)),
            no_image: Some(String::new()),
        };
        let mut follower = follower(&wait);
        assert!(follower.take(stuck.clone()).unwrap().is_none());
        let until = follower.stuck;
        assert!(until.is_some());
        follower.tick().unwrap();
        assert!(follower.take(stuck).unwrap().is_none());
        assert_eq!(follower.stuck, until, "the time counts from the first");
        follower.stuck = Some(Instant::now());
        assert!(
            follower
                .tick()
                .unwrap_err()
                .to_string()
                .contains("no image")
        );
        follower.take(RunState::Told(Run::default())).unwrap();
        assert_eq!(follower.stuck, None);
    }
}
