//! `sonobuoy status`: the state of a run, once or after each change, as tables and sentences.
//!
//! Columns are right-aligned with three spaces before each, as scripts of the original expect.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::{Result, bail};

use super::cluster::{ClusterFlags, CredentialsFlag, NamespaceFlag, RunAccess};
use super::clusters::{self, ClustersFlags, Fleet, Printed, run_head, run_row};
use super::flag::{Filled as _, examples, interrupted, usage_error};
use super::output::{self, DocumentForm, ProgressForm, TableForm};
use super::run_flags::EstimateFlag;
use super::run_plan;
use crate::progress_view::{self, About, Board, Scene, Trouble};
use crate::remote::state::{self, RunState, StatusSource};
use crate::remote::whole_status;
use base::Joined as _;
use base::json::{self, json};
use base::stop::Stop;
use base::visible;
use client::protocol::Progress;
use model::names::VERSION;
use model::remedies;
use model::status::{self, COMPLETE, FAILED, POST_PROCESSING, RUNNING, Run};
use model::verdict::RunEnd;

/// Maximum lines of messages, and bytes of each, so that the table stays on the screen.
const MAX_NOTES: usize = 12;
const MAX_NOTE: usize = 440;
/// Maximum nodes to name for one message.
const MAX_PLACES: usize = 3;

/// Show the status of a run
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Watch a run until it is over", "sonobuoy status --watch"),
    ("List the runs of all namespaces", "sonobuoy status --all-namespaces"),
    ("Print the whole status once", "sonobuoy status --json"),
]))]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    namespace: NamespaceFlag,
    /// List the runs of all namespaces
    #[arg(
        short = 'A',
        long,
        conflicts_with_all = ["namespace", "watch", "credentials", "contexts", "kubeconfigs"]
    )]
    all_namespaces: bool,
    /// Show one line for each plugin and node
    #[arg(long)]
    show_all: bool,
    /// Print the status document as JSON
    #[arg(long)]
    json: bool,
    /// Show every node; with --json, also of a run whose status exceeds the size of an annotation
    #[arg(long)]
    all: bool,
    /// Keep showing changes until the run is over
    #[arg(short, long)]
    watch: bool,
    /// Form of the status; with --watch, how to show progress: plain, board or json
    #[arg(short, long, value_name = "WORD")]
    output: Option<StatusOutput>,
    #[command(flatten)]
    estimate: EstimateFlag,
    #[command(flatten)]
    credentials: CredentialsFlag,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    clusters: ClustersFlags,
}

/// The values of `-o`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StatusOutput {
    Json,
    Yaml,
    Wide,
    Name,
    Markdown,
    Plain,
    Board,
}

impl StatusOutput {
    /// The form of the progress, if it is one.
    fn progress(self) -> Option<ProgressForm> {
        match self {
            Self::Json => Some(ProgressForm::Json),
            Self::Plain => Some(ProgressForm::Plain),
            Self::Board => Some(ProgressForm::Board),
            Self::Yaml | Self::Wide | Self::Name | Self::Markdown => None,
        }
    }

    /// The form of the status, if it is one.
    fn table(self) -> Option<TableForm> {
        match self {
            Self::Json => Some(TableForm::Json),
            Self::Yaml => Some(TableForm::Yaml),
            Self::Wide => Some(TableForm::Wide),
            Self::Name => Some(TableForm::Name),
            Self::Markdown => Some(TableForm::Markdown),
            Self::Plain | Self::Board => None,
        }
    }
}

impl StatusArgs {
    /// The form of the status; `None` for the original's table.
    fn form(&self) -> Option<TableForm> {
        let form = self.output.filter(|_| !self.watch);
        if let Some(form) = form.and_then(StatusOutput::table) {
            return Some(form);
        }
        match (self.show_all, self.json, self.all) {
            (false, true, _) => Some(TableForm::Json),
            (true, ..) | (_, _, true) => Some(TableForm::Wide),
            (false, false, false) => None,
        }
    }

    fn progress(&self) -> Option<ProgressForm> {
        self.output.and_then(StatusOutput::progress)
    }

    /// The status of several clusters, if several are named.
    pub(crate) fn fleet(&self) -> Option<Fleet<'_>> {
        let mut fleet = Fleet::new(
            "status",
            &self.clusters,
            &self.cluster,
            self.namespace.namespace.as_deref(),
        )?;
        fleet.refuse_stream("--credentials -", &self.credentials.credentials);
        fleet.has_events = self.watch;
        fleet.is_quiet = !self.watch;
        fleet.progress = self.progress();
        fleet.printed = match self.output.and_then(StatusOutput::table) {
            _ if self.json => Printed::Documents(DocumentForm::Json),
            Some(TableForm::Json) => Printed::Documents(DocumentForm::Json),
            Some(TableForm::Yaml) => Printed::Documents(DocumentForm::Yaml),
            form => Printed::Status(form),
        };
        Some(fleet)
    }

    /// The arguments for one of several clusters, whose status is reported as a whole.
    pub(crate) fn narrowed(self) -> Self {
        if !self.clusters.is_one_of_several() {
            return self;
        }
        Self {
            output: Some(StatusOutput::Json),
            clusters: self.clusters.narrowed(),
            ..self
        }
    }
}

/// Runs `status` in one cluster or in several.
pub(crate) fn dispatch(args: StatusArgs) -> Result<u8> {
    if let Some(fleet) = args.fleet() {
        return clusters::run(&fleet);
    }
    run(&args.narrowed())
}

/// Runs `status`.
fn run(args: &StatusArgs) -> Result<u8> {
    let watched = args.watch;
    if let Some(output) = args.output
        && watched
        && output.progress().is_none()
    {
        let word = clap::ValueEnum::to_possible_value(&output);
        let word = word
            .as_ref()
            .map_or("", clap::builder::PossibleValue::get_name);
        return Err(usage_error(format!(
            "-o {word}: with --watch it must be one of plain, board, json"
        )));
    }
    let form = args.form();
    if args.all_namespaces {
        return list_runs(&args.cluster, form);
    }
    let access = RunAccess {
        cluster: &args.cluster,
        namespace: args.namespace.namespace.as_deref(),
        credentials: args.credentials.credentials.as_deref(),
    };
    let (namespace, service) = &access.run_of(|| access.find_namespace())?;
    let source = access.source(service.as_ref(), watched, &Stop::new())?;
    // A missing run is an error, also with `--watch`.
    let mut state = source.read(namespace)?;
    if let (RunState::Told(run), Some(client)) = (&mut state, source.cluster())
        && run.truncated
        && args.all
    {
        *run = status::Run {
            started: run.started,
            ..whole_status(client, namespace)?
        };
    }
    if watched {
        output::stop_on_interrupt(source.stop())?;
        let per_test = args
            .estimate
            .estimate_from
            .filled()
            .map(|archive| run_plan::per_test(archive, &|_| true));
        let about = About {
            title: format!("run in namespace {namespace}"),
            hint: "Ctrl-C ends the watch, not the run".into(),
            per_test: per_test.transpose()?,
            ..About::default()
        };
        let follow =
            |board: Option<&Board>| watch(&source, namespace, News::new(form, board, about));
        return match output::or_original(args.progress(), false) {
            Some(output) if form != Some(TableForm::Json) => {
                output::with_board(output, |board| follow(Some(board)))
            }
            _ => follow(None),
        };
    }
    output::print(&text(form, &state));
    match &state {
        RunState::Silent {
            no_image: Some(said),
            ..
        } => log::error!("unable to pull sonobuoy image: {said}"),
        RunState::Silent { phase, .. } if matches!(&**phase, "Failed" | "Unknown") => {
            log::error!("sonobuoy aggregator is in the '{phase}' state");
        }
        RunState::Silent { message, .. } if state.has_failed() => log::error!("{message}"),
        _ => {}
    }
    Ok(code(&state))
}

/// Lists the runs of a cluster, a row for each.
fn list_runs(cluster: &ClusterFlags, form: Option<TableForm>) -> Result<u8> {
    let rows: Vec<_> = state::find_all(&cluster.client()?)?
        .into_iter()
        .map(|(namespace, state)| run_row(&namespace, &state.document()))
        .collect();
    if rows.is_empty() {
        log::warn!("no namespace of this cluster has a run");
    }
    let head = run_head("namespace");
    output::print(&output::in_form(form, head, &rows, || {
        output::table(head, &rows, false)
    }));
    Ok(0)
}

/// The state in a form of `-o`, by default the table and sentences of the original.
pub(super) fn text(form: Option<TableForm>, state: &RunState) -> String {
    match (form, state) {
        (Some(TableForm::Json), _) => format!("{}\n", json::line(&state.document())),
        (Some(TableForm::Yaml), _) => {
            output::document(DocumentForm::Yaml, &json!(state.document()))
        }
        (Some(TableForm::Name), RunState::Told(run)) => {
            let entries = run.plugins.iter().flatten();
            let plugins: BTreeSet<_> = entries.map(|entry| &entry.plugin).collect();
            plugins.iter().map(|plugin| format!("{plugin}\n")).collect()
        }
        (Some(TableForm::Markdown), RunState::Told(run)) => {
            output::in_form(form, HEAD, &rows(run), String::new)
        }
        (_, RunState::Told(run)) => details(run, form == Some(TableForm::Wide)),
        (
            _,
            RunState::Silent {
                phase,
                message,
                no_image,
                ..
            },
        ) => {
            format!(
                "{}\n{message}\n",
                silent_sentence(phase, no_image.as_deref())
            )
        }
        (_, RunState::Lost(message)) => format!("{message}\n"),
        (_, RunState::Absent) => "the aggregator no longer exists\n".into(),
    }
}

/// 1 for a run that failed or delivered no results, or whose aggregator cannot continue.
fn code(state: &RunState) -> u8 {
    match state {
        RunState::Told(run) => RunEnd::of(run).exit_code(0),
        state => u8::from(state.has_failed()),
    }
}

/// What has become known about a run since the last look: on a board, as documents, or as lines.
pub(super) struct News<'a> {
    form: Option<TableForm>,
    pub(super) board: Option<&'a Board>,
    about: About,
    pub(super) printed: HashSet<String>,
    latest: String,
}

impl<'a> News<'a> {
    pub(super) fn new(form: Option<TableForm>, board: Option<&'a Board>, about: About) -> Self {
        Self {
            form,
            board,
            about,
            printed: HashSet::new(),
            latest: String::new(),
        }
    }

    /// Draws the state, or returns what of its `text` was not printed before.
    pub(super) fn of(&mut self, state: &RunState, text: impl FnOnce() -> String) -> String {
        if let Some(board) = self.board {
            board.show(scene(state, &self.about));
            return String::new();
        }
        let text = text();
        if self.form != Some(TableForm::Json) {
            let keys = match state {
                RunState::Told(run) => trouble_keys(run),
                _ => HashMap::new(),
            };
            return news(&text, &keys, &mut self.printed);
        }
        let is_new = text != self.latest;
        self.latest.clone_from(&text);
        if is_new { text } else { String::new() }
    }
}

/// The scene of a run in a cluster.
fn scene(state: &RunState, about: &About) -> Scene {
    let mut scene = progress_view::of_run(&state.document(), about);
    let mut trouble = |cause| {
        scene.troubles.push(Trouble {
            task: "aggregator".into(),
            places: Vec::new(),
            cause,
        });
    };
    match state {
        // The remedy is too long for the line with the state.
        RunState::Silent {
            message,
            stuck: Some(_),
            ..
        } => {
            trouble(message.lines().map(str::trim).joined("; "));
            scene.state = "waiting for the aggregator".into();
        }
        RunState::Told(run) => run.message.clone().into_iter().for_each(trouble),
        _ => scene.state = state.summary().into(),
    }
    scene
}

/// Shows every change until the run is over.
fn watch(source: &StatusSource, namespace: &str, mut news: News<'_>) -> Result<u8> {
    let mut last = None;
    let form = news.form;
    source.follow(namespace, |state| {
        let Some(state) = state else { return true };
        let new = news.of(&state, || text(form, &state));
        output::print(&new);
        let over = state.is_over() || state == RunState::Absent;
        last = Some(state);
        !over
    })?;
    match last {
        _ if source.stop().stopped() => Err(interrupted(format!(
            "the watch was interrupted; the run continues: `sonobuoy status --watch -n \
             {namespace}` watches it again"
        ))),
        Some(RunState::Absent) => bail!("the run in namespace `{namespace}` is gone"),
        Some(state) => Ok(code(&state)),
        None => bail!("the watch was interrupted"),
    }
}

/// A table of the run, the state in a sentence, and notes; with `all`, one row per plugin and node.
fn details(run: &Run, all: bool) -> String {
    let table = if all {
        output::table(HEAD, &rows(run), true)
    } else {
        summary(run)
    };
    format!(
        "{table}\n{}\n{}",
        sentence(run),
        notes(run)
            .into_iter()
            .map(|note| note + "\n")
            .collect::<String>()
    )
}

/// The lines of `text` that were not printed before, each with the time. Lines with a key are
/// compared by that.
fn news(text: &str, keys: &HashMap<String, String>, printed: &mut HashSet<String>) -> String {
    let mut new = String::new();
    for line in text.lines() {
        // Columns grow with others; that is not news.
        let words = line.split_whitespace().joined(" ");
        let key = keys.get(line).cloned().unwrap_or(words);
        if !key.is_empty() && printed.insert(key) {
            new.push_str(&format!("{} {}\n", output::time(), line.trim_end()));
        }
    }
    new
}

/// One row per plugin, status and result.
fn summary(run: &Run) -> String {
    let mut groups: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
    // Progress of several nodes does not fit into one cell.
    let mut only: BTreeMap<&str, Option<&Progress>> = BTreeMap::new();
    for entry in run.plugins.iter().flatten() {
        let count = entry.count.unwrap_or(1);
        only.entry(&entry.plugin)
            .and_modify(|only| *only = None)
            .or_insert(entry.progress.as_deref());
        *groups
            .entry((&entry.plugin, &entry.status, &entry.result_status))
            .or_default() += count;
    }
    let rows = groups.iter().map(|((plugin, status, result), count)| {
        let progress = cell(only.get(plugin).copied().flatten());
        [
            (*plugin).into(),
            (*status).into(),
            (*result).into(),
            count.to_string(),
            progress,
        ]
    });
    output::table(
        ["plugin", "status", "result", "count", "progress"],
        &rows.collect::<Vec<_>>(),
        true,
    )
}

/// The columns of [`rows`].
const HEAD: [&str; 5] = ["plugin", "node", "status", "result", "progress"];

/// One row per plugin and node.
fn rows(run: &Run) -> Vec<[String; 5]> {
    let rows = run.plugins.iter().flatten().map(|entry| {
        let node = match entry.count {
            Some(count) if count > 1 => format!("{count} nodes"),
            _ => entry.node.clone(),
        };
        let progress = cell(entry.progress.as_deref());
        [
            entry.plugin.clone(),
            node,
            entry.status.clone(),
            entry.result_status.clone(),
            progress,
        ]
    });
    rows.collect()
}

/// The state of the run in the original's words, which scripts look for.
fn sentence(run: &Run) -> String {
    match &*run.status {
        RUNNING => "Sonobuoy is still running. Runs can take 60 minutes or more depending on \
                    cluster and plugin configuration."
            .into(),
        FAILED => "Sonobuoy has failed. You can see what happened with `sonobuoy logs`.".into(),
        COMPLETE => "Sonobuoy has completed. Use `sonobuoy retrieve` to get results.".into(),
        POST_PROCESSING => {
            "Sonobuoy plugins have completed. Preparing results for download.".into()
        }
        other => format!(
            "Sonobuoy is in unknown state \"{}\". Please report a bug in sonobuoy {VERSION}",
            visible::line(other)
        ),
    }
}

/// The state for an aggregator that publishes no status, from the phase of its pod.
fn silent_sentence(phase: &str, no_image: Option<&str>) -> String {
    match (phase, no_image) {
        ("Running", _) => "The Sonobuoy aggregator is running but is unable to obtain the plugin \
                           status information.\n\nIf this state persists, use kubectl to debug \
                           further."
            .into(),
        ("Pending", Some(said)) => format!(
            "The Sonobuoy aggregator is in the 'Pending' state and the container seems unable to \
             pull the image.\n\nPod has the attached message: {}",
            visible::line(said)
        ),
        ("Pending", None) => "The Sonobuoy aggregator is in the 'Pending' state. This is normal \
                              as the pod is created and begins to run, but if this state \
                              persists, use kubectl to debug further."
            .into(),
        ("Succeeded", _) => format!(
            "The Sonobuoy aggregator ran successfully but has stopped. If you didn't intend for \
             this to happen, please report a bug in sonobuoy {VERSION}."
        ),
        (other, _) => format!(
            "The Sonobuoy aggregator is in the '{}' state. Use kubectl to debug further.",
            visible::line(other)
        ),
    }
}

/// Further notes on a run, one per line: why it failed, the fate of its archive, running tests,
/// problems of plugins. Limited to the height of a screen.
fn notes(run: &Run) -> Vec<String> {
    let error = run.error.as_deref().map(visible::line).unwrap_or_default();
    let run_note = match (&*run.status, run.upload.as_deref()) {
        (FAILED, _) if !error.is_empty() => Some(format!("The run has failed: {error}.")),
        (COMPLETE, Some(FAILED)) => Some(format!(
            "Its archive could not be uploaded: {}.",
            visible::line(run.not_uploaded().unwrap_or_default())
        )),
        (COMPLETE, Some(RUNNING)) => Some("Its archive is being uploaded.".into()),
        (COMPLETE, Some(COMPLETE)) => Some("Its archive was uploaded.".into()),
        _ => None,
    };
    let aggregator = run
        .message
        .as_deref()
        .map(|message| visible::line(message).into_owned());
    let mut lines: Vec<String> = run_note
        .into_iter()
        .chain(aggregator)
        .chain(running(run))
        .chain(troubles(run))
        .collect();
    if lines.len() > MAX_NOTES {
        let more = lines.len() - (MAX_NOTES - 1);
        lines.truncate(MAX_NOTES - 1);
        lines.push(format!(
            "and {more} more messages; `sonobuoy status --json` has all of them"
        ));
    }
    lines
}

/// Problems of plugins, a line of limited length per plugin and cause.
fn troubles(run: &Run) -> Vec<String> {
    let troubles = progress_view::troubles(run);
    troubles.iter().map(trouble_line).collect()
}

fn trouble_line(trouble: &Trouble) -> String {
    let sentence = progress_view::sentence(trouble, MAX_PLACES);
    visible::cut_before_advice(&sentence, MAX_NOTE)
}

/// What identifies the lines of problems: plugin and cause, so that each further node is no news.
fn trouble_keys(run: &Run) -> HashMap<String, String> {
    let entries = run.plugins.iter().flatten();
    let nodes: HashSet<String> = entries.map(|entry| entry.node.clone()).collect();
    let keyed = |trouble: Trouble| {
        let cause = remedies::cause_key(&trouble.cause, &nodes);
        (trouble_line(&trouble), format!("{}: {cause}", trouble.task))
    };
    progress_view::troubles(run)
        .into_iter()
        .map(keyed)
        .collect()
}

/// Running tests, one line per plugin that reports them.
fn running(run: &Run) -> Vec<String> {
    let open = run
        .plugins
        .iter()
        .flatten()
        .filter(|entry| entry.status == RUNNING);
    let tests = open.filter_map(|entry| {
        let test = progress_view::running(entry.progress.as_deref()?)?;
        Some(visible::line(&format!("{} on {} runs {test}", entry.plugin, entry.node)).into_owned())
    });
    tests.collect()
}

fn cell(progress: Option<&Progress>) -> String {
    let Some(progress) = progress else {
        return String::new();
    };
    let failed = i64::try_from(progress.failures.len()).unwrap_or(i64::MAX);
    let remaining = progress
        .total
        .saturating_sub(progress.completed)
        .saturating_sub(failed);
    let mut text = format!("Passed:{:3}, Failed:{failed:3}", progress.completed);
    if remaining >= 0 {
        text.push_str(&format!(", Remaining:{remaining:3}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::status::Entry;

    fn run() -> Run {
        let entry = |plugin: &str, node: &str, status: &str, result: &str| Entry {
            plugin: plugin.into(),
            node: node.into(),
            status: status.into(),
            result_status: result.into(),
            ..Entry::default()
        };
        let progress = Progress {
            total: 10,
            completed: 3,
            failures: vec!["x".into()],
            ..Progress::default()
        };
        Run {
            plugins: Some(vec![
                entry("logs", "n1", "complete", "passed"),
                entry("logs", "n2", "running", ""),
                entry("logs", "n3", "complete", "passed"),
                Entry {
                    progress: Some(progress.into()),
                    ..entry("e2e", "global", "running", "")
                },
            ]),
            ..Run::default()
        }
    }

    #[test]
    fn tables_equal_those_of_the_original() {
        assert_eq!(
            summary(&run()),
            concat!(
                "   PLUGIN     STATUS   RESULT   COUNT                                PROGRESS\n",
                "      e2e    running                1   Passed:  3, Failed:  1, Remaining:  6\n",
                "     logs   complete   passed       2                                        \n",
                "     logs    running                1                                        \n",
            )
        );
        assert_eq!(
            output::table(HEAD, &rows(&run()), true),
            concat!(
                "   PLUGIN     NODE     STATUS   RESULT                                PROGRESS\n",
                "     logs       n1   complete   passed                                        \n",
                "     logs       n2    running                                                 \n",
                "     logs       n3   complete   passed                                        \n",
                "      e2e   global    running            Passed:  3, Failed:  1, Remaining:  6\n",
            )
        );
    }

    #[test]
    fn names_and_messages_stay_in_their_cells() {
        let evil = "x\n   e2e   complete   passed\r\u{1b}[2J\u{202e}";
        let entry = Entry {
            plugin: evil.into(),
            node: evil.into(),
            status: evil.into(),
            result_status: evil.into(),
            message: Some(evil.into()),
            ..Entry::default()
        };
        let run = Run {
            plugins: Some(vec![entry]),
            status: evil.into(),
            ..Run::default()
        };
        let failed = Run {
            status: FAILED.into(),
            error: Some(evil.into()),
            ..Run::default()
        };
        let texts = [
            troubles(&run).concat(),
            sentence(&run),
            notes(&failed).concat(),
        ];
        for (text, lines) in [summary(&run), output::table(HEAD, &rows(&run), true)]
            .iter()
            .map(|text| (text, 2))
            .chain(texts.iter().map(|text| (text, 1)))
        {
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(
                text.contains(r"x\n   e2e") && text.contains(r"\r\u001b[2J\u202e"),
                "{text}"
            );
            assert!(
                !text
                    .trim_end()
                    .contains(|c: char| c.is_control() && c != '\n'),
                "{text:?}"
            );
        }
    }

    #[test]
    fn long_note_keeps_its_end_and_is_shorter() {
        let message = format!("{}; the remedy; or another", "é".repeat(240));
        let entry = Entry {
            plugin: "p".into(),
            node: "n".into(),
            status: FAILED.into(),
            message: Some(message),
            ..Entry::default()
        };
        let note = troubles(&Run {
            plugins: Some(vec![entry]),
            ..Run::default()
        })
        .concat();
        assert!(
            note.ends_with("…; the remedy; or another") && note.len() <= MAX_NOTE,
            "{} bytes: {note}",
            note.len()
        );
    }

    #[test]
    fn surplus_results_leave_no_negative_remainder() {
        let progress = Progress {
            total: 1,
            completed: 3,
            ..Progress::default()
        };
        assert_eq!(cell(Some(&progress)), "Passed:  3, Failed:  0");
    }
}
