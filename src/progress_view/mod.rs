//! Live progress: on a terminal a board redrawn in place, else a line per change or JSON events.
//!
//! Owns the presentation and its rate: at most ten redraws per second, never more lines than the
//! window has; at most one change per second, and a heartbeat every minute. Progress is passed in
//! as a [`Scene`], a plain value; `lines` turns it into the board and `events` into lines and JSON,
//! both pure. Does not know where a scene comes from (except for the status of a run, which
//! [`of_run`] converts), never writes to standard output by itself, and does not decide whether to
//! draw a board: `cli` does. Names of tasks and causes of troubles are untrusted; all drawn
//! text has passed through `base::visible`. Starts the thread `board`, and joins it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use base::live;
use base::stop::{Stop, StopOnDrop};
use model::status;

mod events;
mod lines;
mod run;

pub(crate) use base::live::possible;
pub(crate) use events::{archive_event, comparison_event, report_event};
pub(crate) use lines::{sentence, span};
pub(crate) use run::{About, of_run, running, troubles};

/// Changes within this interval are reported together.
const MERGE_INTERVAL: Duration = Duration::from_secs(1);
/// Silence after which a heartbeat is written.
const SILENCE: Duration = Duration::from_secs(60);

/// How progress is reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ProgressOutput {
    /// One line per change: the requested output.
    Plain,
    /// One line per change, in the log, since standard output carries the result.
    Log,
    /// A board, redrawn in place.
    Board,
    /// One event per change.
    Json,
    /// Only heartbeats.
    Quiet,
}

/// The progress to show.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Scene {
    /// The subject.
    pub title: String,
    /// The state in a word; the final word differs from the initial one.
    pub state: String,
    /// The tasks, in display order.
    pub tasks: Vec<Task>,
    /// The problems.
    pub troubles: Vec<Trouble>,
    /// What is waited for, and what the user can do.
    pub footer: Vec<String>,
    /// The product, once available.
    pub product: Option<String>,
    /// When the work began, if before the board.
    pub began: Option<SystemTime>,
    /// When the work ended, if known.
    pub ended: Option<SystemTime>,
}

/// One of several tasks.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Task {
    /// The task's name.
    pub name: String,
    /// The unit of its counts.
    pub unit: Unit,
    /// Number done, failed ones included.
    pub done: u64,
    /// The total; 0 if unknown.
    pub total: u64,
    /// Number failed.
    pub failed: u64,
    /// A finer count within the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// The current activity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Duration of a step in an earlier run, if known.
    #[serde(skip)]
    pub per_step: Option<Duration>,
    /// Whether the task has ended.
    pub over: bool,
    /// The outcome in a word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
}

/// What a task counts internally.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// The unit of the count.
    pub unit: Unit,
    /// Number done, failed ones included.
    pub done: u64,
    /// The total; 0 if unknown.
    pub total: u64,
    /// Number failed.
    pub failed: u64,
}

/// The unit of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// Nodes of a cluster.
    #[default]
    Nodes,
    /// A single thing, done or not.
    Once,
    /// Results of plugins.
    Results,
    /// Units defined by the plugin.
    Steps,
    /// Tests.
    Tests,
    /// Container images.
    Images,
    /// Bytes.
    Bytes,
}

/// A problem and every place with the same cause.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// The task's name.
    pub task: String,
    /// The places.
    pub places: Vec<String>,
    /// The cause.
    pub cause: String,
}

/// A scene with its times.
struct Shown {
    scene: Scene,
    elapsed: Duration,
    times: Vec<TaskTimes>,
}

/// The times of a task, where known.
#[derive(Default)]
struct TaskTimes {
    /// Elapsed time.
    took: Option<Duration>,
    /// Estimated time left.
    left: Option<Duration>,
}

/// Shows scenes while [`with`] runs.
pub(crate) struct Board {
    shared: Mutex<Shared>,
    stop: Stop,
}

struct Shared {
    scene: Scene,
    /// When the work began or was first shown, whichever is earlier.
    began: Start,
    tasks: HashMap<String, TaskHistory>,
}

/// The observed history of a task.
struct TaskHistory {
    /// When it began, if known.
    began: Option<Start>,
    ended: Option<Instant>,
    /// When it was first seen, and its progress then.
    seen: Instant,
    first: u64,
}

/// The start of work that may precede the earliest [`Instant`] of this machine.
#[derive(Clone, Copy)]
struct Start {
    seen: Instant,
    /// Elapsed time when it was seen.
    before: Duration,
}

impl Start {
    fn elapsed(self, until: Instant) -> Duration {
        self.before + until.saturating_duration_since(self.seen)
    }
}

impl Board {
    /// Shows a scene from now on.
    pub(crate) fn show(&self, scene: Scene) {
        let mut shared = self.lock();
        let now = Instant::now();
        let start = Start {
            seen: now,
            before: Duration::ZERO,
        };
        // A task that is running when the watch begins has been running since the start.
        let mut before = None;
        if let Some(began) = scene.began {
            let took = scene
                .ended
                .unwrap_or_else(SystemTime::now)
                .duration_since(began)
                .unwrap_or_default();
            if took > shared.began.elapsed(now) {
                shared.began = Start {
                    before: took,
                    ..start
                };
            }
            before = Some(shared.began).filter(|_| shared.scene == Scene::default());
        }
        for task in &scene.tasks {
            let fresh = || {
                let began = before.map_or(Some(start), |before| (!task.over).then_some(before));
                TaskHistory {
                    began,
                    ended: None,
                    seen: now,
                    first: task.finest().done,
                }
            };
            let state = shared.tasks.entry(task.name.clone()).or_insert_with(fresh);
            state.ended = task.over.then(|| state.ended.unwrap_or(now));
        }
        shared.scene = scene;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        base::lock(&self.shared)
    }

    /// Reports news, as often as permitted, until the work is over.
    fn run(&self, output: ProgressOutput, say: Say<'_>) {
        let mut reporter = Reporter::new(output, say);
        loop {
            let over = self.stop.wait(live::INTERVAL);
            let snapshot = self.lock().snapshot();
            reporter.tell(&snapshot, over);
            if over {
                return;
            }
        }
    }
}

impl Shared {
    fn snapshot(&self) -> Shown {
        let now = Instant::now();
        let times = self.scene.tasks.iter().map(|task| {
            let Some(known) = self.tasks.get(&task.name) else {
                return Default::default();
            };
            let until = known.ended.unwrap_or(now);
            TaskTimes {
                took: known.began.map(|began| began.elapsed(until)),
                left: task.time_left(known.first, until.saturating_duration_since(known.seen)),
            }
        });
        let times = times.collect();
        Shown {
            scene: self.scene.clone(),
            elapsed: self.began.elapsed(now),
            times,
        }
    }
}

impl Task {
    fn own_steps(&self) -> Steps {
        Steps {
            unit: self.unit,
            done: self.done,
            total: self.total,
            failed: self.failed,
        }
    }

    fn finest(&self) -> Steps {
        self.steps.unwrap_or(self.own_steps())
    }

    /// The state of a task with a count of one.
    fn word(&self) -> &'static str {
        match self.over {
            false => "at work",
            true if self.failed > 0 => status::FAILED,
            true => "done",
        }
    }

    /// The coarsest count, skipping a count of one.
    fn coarsest(&self) -> Steps {
        self.steps
            .filter(|_| self.unit == Unit::Once)
            .unwrap_or(self.own_steps())
    }

    /// Estimated time left at the current rate, for steps that run one after the other; at the rate
    /// of an earlier run until enough steps were seen.
    fn time_left(&self, first: u64, took: Duration) -> Option<Duration> {
        let least = if self.unit == Unit::Bytes { 2 } else { 30 };
        let Steps {
            unit, done, total, ..
        } = self.coarsest();
        let steps_seen = done.checked_sub(first)?;
        let steps_left = total.checked_sub(done)?;
        if self.over || unit == Unit::Nodes {
            return None;
        }
        if took.as_secs() < least || steps_seen == 0 || steps_seen * 20 < total {
            return self
                .per_step
                .filter(|_| total > 0)
                .map(|each| each.saturating_mul(steps_left.try_into().unwrap_or(u32::MAX)));
        }
        Some(Duration::from_secs(
            took.as_secs().saturating_mul(steps_left) / steps_seen,
        ))
    }
}

/// Takes a line that remains.
type Say<'a> = &'a (dyn Fn(&str) + Sync);

struct Reporter<'a> {
    output: ProgressOutput,
    say: Say<'a>,
    reported: events::Reported,
    /// When news was last reported.
    news: Instant,
    /// The last scene that was reported, and the time in seconds that the board shows.
    drawn: (Scene, u64),
}

impl<'a> Reporter<'a> {
    fn new(output: ProgressOutput, say: Say<'a>) -> Self {
        let reported = events::Reported::new(output);
        Self {
            output,
            say,
            reported,
            news: Instant::now(),
            drawn: (Scene::default(), 0),
        }
    }

    /// Reports news, unless that has to wait.
    fn tell(&mut self, shown: &Shown, over: bool) {
        let mut new = Vec::new();
        let quiet = self.news.elapsed();
        match self.output {
            ProgressOutput::Board if over => {
                live::draw(Vec::new());
                new = events::closing(shown);
            }
            // Nothing is known yet.
            ProgressOutput::Board if shown.scene == Scene::default() => return,
            ProgressOutput::Board => {
                let seconds = shown.elapsed.as_secs();
                if self.drawn.0 != shown.scene || self.drawn.1 != seconds {
                    self.drawn = (shown.scene.clone(), seconds);
                    live::draw(lines::BoardTerminal::detect().lines(shown));
                }
                return;
            }
            ProgressOutput::Quiet => {}
            _ if over || quiet >= MERGE_INTERVAL && self.drawn.0 != shown.scene => {
                self.drawn.0 = shown.scene.clone();
                new = self.reported.news(shown, over);
            }
            _ => {}
        }
        if new.is_empty() && !over && quiet >= SILENCE {
            new.push(self.reported.alive(shown));
        }
        if !new.is_empty() {
            self.news = Instant::now();
        }
        new.iter().for_each(|line| (self.say)(line));
    }
}

/// Runs `work` with a board; `say` takes the lines that remain.
pub(crate) fn with<T>(output: ProgressOutput, say: Say<'_>, work: impl FnOnce(&Board) -> T) -> T {
    let (scene, tasks) = (Scene::default(), HashMap::new());
    let shared = Shared {
        scene,
        began: Start {
            seen: Instant::now(),
            before: Duration::ZERO,
        },
        tasks,
    };
    let board = Board {
        shared: Mutex::new(shared),
        stop: Stop::new(),
    };
    thread::scope(|scope| {
        let over = StopOnDrop(&board.stop);
        let painter = base::thread("board");
        if let Err(error) = painter.spawn_scoped(scope, || board.run(output, say)) {
            log::warn!("progress is not shown: {error}");
        }
        let worked = work(&board);
        drop(over);
        worked
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_output_is_heartbeats_alone() {
        let task = |over| Task {
            name: "x".into(),
            done: 1,
            total: 1,
            over,
            ..Task::default()
        };
        for (output, lines) in [(ProgressOutput::Quiet, 0), (ProgressOutput::Plain, 2)] {
            let told = Mutex::new(Vec::new());
            let say = |line: &str| told.lock().unwrap().push(line.to_owned());
            let shown = |over| Scene {
                state: "s".into(),
                tasks: vec![task(over)],
                ..Scene::default()
            };
            with(output, &say, |board| {
                board.show(shown(false));
                board.show(shown(true));
            });
            assert_eq!(
                told.lock().unwrap().len(),
                lines,
                "{output:?}: {:?}",
                told.lock().unwrap()
            );
        }
        let scene = Scene {
            tasks: vec![task(false)],
            ..Scene::default()
        };
        let say = Mutex::new(Vec::new());
        let tell = |line: &str| say.lock().unwrap().push(line.to_owned());
        let mut reporter = Reporter::new(ProgressOutput::Quiet, &tell);
        reporter.news = Instant::now().checked_sub(SILENCE).unwrap();
        let shown = Shown {
            scene,
            elapsed: SILENCE,
            times: vec![TaskTimes::default()],
        };
        reporter.tell(&shown, false);
        assert_eq!(
            say.lock().unwrap()[..],
            ["still at work after 1:00: x: 1 of 1 node done"]
        );
    }

    #[test]
    fn earlier_run_estimates_the_duration() {
        let seconds = Duration::from_secs;
        let of = |done, per_step| {
            let steps = Steps {
                unit: Unit::Tests,
                done,
                total: 100,
                failed: 0,
            };
            Task {
                unit: Unit::Once,
                total: 1,
                steps: Some(steps),
                per_step,
                ..Task::default()
            }
        };
        let earlier = Some(seconds(10));
        assert_eq!(of(0, None).time_left(0, seconds(600)), None);
        assert_eq!(
            of(0, earlier).time_left(0, seconds(5)),
            Some(seconds(1_000))
        );
        assert_eq!(
            of(2, earlier).time_left(0, seconds(600)),
            Some(seconds(980)),
            "too little was seen"
        );
        assert_eq!(
            of(50, earlier).time_left(0, seconds(100)),
            Some(seconds(100))
        );
        assert_eq!(
            Task {
                over: true,
                ..of(50, earlier)
            }
            .time_left(0, seconds(100)),
            None
        );
    }

    #[test]
    fn elapsed_time_counts_from_the_start_of_the_run() {
        let hour = Duration::from_secs(3_600);
        let began = SystemTime::now().checked_sub(hour);
        let task = |name: &str, over| Task {
            name: name.into(),
            total: 9,
            over,
            ..Task::default()
        };
        let scene = |began, tasks: &[Task]| Scene {
            began,
            tasks: tasks.to_vec(),
            ..Scene::default()
        };
        let long = |took: Option<Duration>| took.map(|took| took >= hour);
        let check = |began, elapsed, took: [Option<bool>; 3]| {
            with(ProgressOutput::Plain, &|_| (), |board| {
                let (open, over) = (task("open", false), task("over", true));
                board.show(scene(began, &[open.clone(), over.clone()]));
                // A later task begins when first seen.
                let later = scene(began, &[open, over, task("later", false)]);
                board.show(later);
                let shown = board.lock().snapshot();
                assert_eq!(long(Some(shown.elapsed)), Some(elapsed));
                let times: Vec<_> = shown.times.iter().map(|times| long(times.took)).collect();
                assert_eq!(times, took);
            });
        };
        check(began, true, [Some(true), None, Some(false)]);
        check(None, false, [Some(false), Some(false), Some(false)]);
    }
}
