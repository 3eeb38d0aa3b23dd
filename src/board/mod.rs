//! What goes on, shown while it goes on: on a terminal a board that is drawn anew in place, else a line for each change,
//! or an event in JSON.
//!
//! Owns how it looks and how often it is told: at most ten redraws a second, never more lines than the window has; a
//! change at most each second, a sign of life each minute. What happens is handed in as a [`Scene`], a plain value;
//! `lines` makes the board of it and `events` the lines and the JSON, both pure. Refuses to know where a scene comes
//! from (but for the status of a run, which [`of_run`] turns into one), to write to standard output by itself, and to
//! decide whether there is a board: `cli` does. The names of tasks and what is wrong with them may be anybody's text;
//! whatever is drawn has gone through `base::visible`. Starts the thread `board`, and joins it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;

use crate::status;
use base::live;
use base::stop::{Stop, StopOnDrop};
use base::sys;

mod events;
mod lines;
mod run;

pub(crate) use events::archive_event;
pub(crate) use lines::{sentence, span};
pub(crate) use run::{About, of_run, running, troubles};

/// Changes that come faster are told together.
const MERGE_INTERVAL: Duration = Duration::from_secs(1);
/// After so long without news there is a sign of life.
const SILENCE: Duration = Duration::from_secs(60);

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A line for each change.
    Plain,
    /// Drawn in place.
    Board,
    /// An event for each change.
    Json,
    /// Nothing but signs of life.
    Quiet,
}

/// What goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scene {
    /// What it is about.
    pub title: String,
    /// How it stands, in a word; the end is another word than the beginning.
    pub state: String,
    /// What is worked on, in the order in which it is shown.
    pub tasks: Vec<Task>,
    /// What is wrong.
    pub troubles: Vec<Trouble>,
    /// What is waited for, and what the user can do.
    pub footer: Vec<String>,
    /// What came of it, once there is something.
    pub product: Option<String>,
    /// When it began, if that was before anybody watched.
    pub began: Option<SystemTime>,
    /// When it ended, if that is known.
    pub ended: Option<SystemTime>,
}

/// One of several things that are worked on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Task {
    /// What it is called.
    pub name: String,
    /// What is counted.
    pub unit: Unit,
    /// How many are done, those that failed among them.
    pub done: u64,
    /// Of how many; 0 if nobody knows.
    pub total: u64,
    /// How many failed.
    pub failed: u64,
    /// What it counts inside, finer than that.
    pub steps: Option<Steps>,
    /// What it is at.
    pub note: String,
    /// How long one of its steps took before, if that is known.
    pub per_step: Option<Duration>,
    /// Whether it has ended.
    pub over: bool,
    /// What came of it, in a word.
    pub result: String,
}

/// What a task counts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    /// What they are.
    pub unit: Unit,
    /// How many are done, those that failed among them.
    pub done: u64,
    /// Of how many; 0 if nobody knows.
    pub total: u64,
    /// How many failed.
    pub failed: u64,
}

/// What a task is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nodes of a cluster.
    #[default]
    Nodes,
    /// There is one of it, and it is done or not.
    Once,
    /// Whatever a plugin counts.
    Steps,
    /// Tests.
    Tests,
    /// Container images.
    Images,
    /// Bytes.
    Bytes,
}

/// Something wrong, wherever it is the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trouble {
    /// Whose.
    pub task: String,
    /// Where.
    pub places: Vec<String>,
    /// What.
    pub cause: String,
}

/// A scene with the times that belong to it.
struct Shown<'a> {
    scene: &'a Scene,
    elapsed: Duration,
    times: Vec<Times>,
}

/// The times of a task, where they can be told.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// How long it has taken.
    took: Option<Duration>,
    /// How long it may still take.
    left: Option<Duration>,
}

/// Shows scenes for as long as [`with`] runs.
pub(crate) struct Board {
    shared: Mutex<Shared>,
    stop: Stop,
}

struct Shared {
    scene: Scene,
    changed: bool,
    began: Instant,
    /// How long it had been going on by then, once that is known.
    before: Option<Duration>,
    tasks: HashMap<String, Seen>,
    /// Why nothing can be told any more.
    error: Option<anyhow::Error>,
}

/// What is known of the past of a task.
struct Seen {
    began: Instant,
    /// How long it had been at work by then; none for one that was over already.
    before: Option<Duration>,
    ended: Option<Instant>,
    /// How far it was when it was seen first.
    first: u64,
}

impl Board {
    /// Shows a scene from now on. An error is that nobody reads any more.
    pub(crate) fn show(&self, scene: Scene) -> Result<()> {
        let mut shared = self.lock();
        if let Some(error) = shared.error.take() {
            return Err(error);
        }
        let now = Instant::now();
        let watched = now.saturating_duration_since(shared.began);
        let is_first = shared.scene == Scene::default();
        if let (None, Some(began)) = (shared.before, scene.began) {
            let now = scene.ended.unwrap_or_else(SystemTime::now);
            let whole = now.duration_since(began).unwrap_or_default();
            shared.before = Some(whole.saturating_sub(watched));
        }
        // What is at work when the watch begins has been so all the time.
        let before = shared.before.filter(|_| is_first).map(|before| before + watched);
        for task in &scene.tasks {
            let first = task.finest().done;
            let fresh = || {
                let before = before.map_or(Some(Duration::ZERO), |before| (!task.over).then_some(before));
                Seen { began: now, before, ended: None, first }
            };
            let seen = shared.tasks.entry(task.name.clone()).or_insert_with(fresh);
            if !task.over {
                seen.ended = None;
            } else if seen.ended.is_none() {
                seen.ended = Some(now);
            }
        }
        shared.changed |= shared.scene != scene;
        shared.scene = scene;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what is new each time that it is allowed to, until it is over.
    fn run(&self, output: Output, say: &(dyn Fn(&str) -> Result<()> + Sync)) {
        let mut teller = Teller { output, say, told: events::Told::new(output), news: None, seconds: 0 };
        loop {
            let over = self.stop.wait(live::INTERVAL);
            let mut shared = self.lock();
            let scene = shared.scene.clone();
            let changed = std::mem::take(&mut shared.changed);
            let shown = shared.shown(&scene);
            drop(shared);
            let told = teller.tell(&shown, changed, over);
            match told {
                Ok(true) => {}
                // Not yet: it is still a change when the time has come.
                Ok(false) => self.lock().changed = true,
                Err(error) => self.lock().error = Some(error),
            }
            if over {
                return;
            }
        }
    }
}

impl Shared {
    fn shown<'s>(&self, scene: &'s Scene) -> Shown<'s> {
        let now = Instant::now();
        let times = scene.tasks.iter().map(|task| {
            let Some(seen) = self.tasks.get(&task.name) else { return Default::default() };
            let watched = seen.ended.unwrap_or(now).saturating_duration_since(seen.began);
            Times { took: seen.before.map(|before| before + watched), left: task.left(seen.first, watched) }
        });
        let elapsed = now.saturating_duration_since(self.began) + self.before.unwrap_or_default();
        Shown { scene, elapsed, times: times.collect() }
    }
}

impl Task {
    /// What is counted most finely.
    fn finest(&self) -> Steps {
        let own = Steps { unit: self.unit, done: self.done, total: self.total, failed: self.failed };
        self.steps.unwrap_or(own)
    }

    /// How something stands of which there is one.
    fn word(&self) -> &'static str {
        match self.over {
            false => "at work",
            true if self.failed > 0 => status::FAILED,
            true => "done",
        }
    }

    /// What it is counted in first: there is no point in telling that there is one of it.
    fn coarsest(&self) -> Steps {
        let steps = self.steps.filter(|_| self.unit == Unit::Once);
        steps.unwrap_or(Steps { unit: self.unit, done: self.done, total: self.total, failed: self.failed })
    }

    /// How long it may still take, if it goes on as it did: only of what comes one after the other; before a good part of it
    /// was seen, as it did in an earlier run.
    fn left(&self, first: u64, took: Duration) -> Option<Duration> {
        let least = if self.unit == Unit::Bytes { 2 } else { 30 };
        let Steps { unit, done, total, .. } = self.coarsest();
        let seen = done.checked_sub(first)?;
        let left = total.checked_sub(done)?;
        if self.over || unit == Unit::Nodes {
            return None;
        }
        if took.as_secs() < least || seen == 0 || seen * 20 < total {
            return self
                .per_step
                .filter(|_| total > 0)
                .map(|each| each.saturating_mul(left.try_into().unwrap_or(u32::MAX)));
        }
        Some(Duration::from_secs(took.as_secs().saturating_mul(left) / seen))
    }
}

struct Teller<'a> {
    output: Output,
    say: &'a (dyn Fn(&str) -> Result<()> + Sync),
    told: events::Told,
    /// When something was told last.
    news: Option<Instant>,
    seconds: u64,
}

impl Teller<'_> {
    /// Tells what is new; false if that has to wait.
    fn tell(&mut self, shown: &Shown<'_>, changed: bool, over: bool) -> Result<bool> {
        if self.output == Output::Board {
            let seconds = shown.elapsed.as_secs();
            if over {
                live::draw(Vec::new());
                return self.told.closing(shown).iter().try_for_each(|line| (self.say)(line)).map(|()| true);
            }
            if changed || seconds != self.seconds {
                self.seconds = seconds;
                live::draw(lines::lines(shown, live::size(), lines::Look::here()));
            }
            return Ok(true);
        }
        let quiet = self.news.map_or(Duration::MAX, |news| news.elapsed());
        if self.output == Output::Quiet && (over || self.news.is_none()) {
            self.news = Some(Instant::now());
            return Ok(true);
        }
        if self.output != Output::Quiet && ((changed && quiet >= MERGE_INTERVAL) || over) {
            let new = self.told.news(shown, over);
            if !new.is_empty() {
                self.news = Some(Instant::now());
            }
            return new.iter().try_for_each(|line| (self.say)(line)).map(|()| true);
        }
        if quiet >= SILENCE && self.news.is_some() {
            self.news = Some(Instant::now());
            return (self.say)(&self.told.alive(shown)).map(|()| true);
        }
        Ok(!changed)
    }
}

/// Runs `work` with a board; `say` takes the lines that stay. An error of `work` comes before one of the board.
pub(crate) fn with<T>(
    output: Output,
    say: &(dyn Fn(&str) -> Result<()> + Sync),
    work: impl FnOnce(&Board) -> Result<T>,
) -> Result<T> {
    let shared = Shared {
        scene: Scene::default(),
        changed: false,
        began: Instant::now(),
        before: None,
        tasks: HashMap::new(),
        error: None,
    };
    let board = Board { shared: Mutex::new(shared), stop: Stop::new() };
    let worked = thread::scope(|scope| {
        let over = StopOnDrop(&board.stop);
        let painter = thread::Builder::new().name("board".into());
        if let Err(error) = painter.spawn_scoped(scope, || board.run(output, say)) {
            log::warn!("progress is not shown: cannot start a thread: {error}");
        }
        let worked = work(&board);
        drop(over);
        worked
    })?;
    let error = board.lock().error.take();
    error.map_or(Ok(worked), Err)
}

/// Whether a board can be drawn here.
pub(crate) fn possible() -> bool {
    live::possible()
}

impl lines::Look {
    /// What this terminal shows.
    fn here() -> Self {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colour, unicode: sys::shows_unicode() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quiet_tells_nothing_but_that_it_lives() {
        let task = |over| Task { name: "x".into(), done: 1, total: 1, over, ..Task::default() };
        for (output, lines) in [(Output::Quiet, 0), (Output::Plain, 2)] {
            let told = Mutex::new(Vec::new());
            let say = |line: &str| {
                told.lock().unwrap().push(line.to_owned());
                Ok(())
            };
            let shown = |over| Scene { state: "s".into(), tasks: vec![task(over)], ..Scene::default() };
            with(output, &say, |board| board.show(shown(false)).and_then(|()| board.show(shown(true))))
                .unwrap();
            assert_eq!(told.lock().unwrap().len(), lines, "{output:?}: {:?}", told.lock().unwrap());
        }
        let scene = Scene { tasks: vec![task(false)], ..Scene::default() };
        let say = Mutex::new(Vec::new());
        let tell = |line: &str| {
            say.lock().unwrap().push(line.to_owned());
            Ok(())
        };
        let told = events::Told::new(Output::Quiet);
        let mut teller = Teller { output: Output::Quiet, say: &tell, told, news: None, seconds: 0 };
        let shown = Shown { scene: &scene, elapsed: SILENCE, times: vec![Times::default()] };
        teller.news = Instant::now().checked_sub(SILENCE);
        teller.tell(&shown, true, false).unwrap();
        assert_eq!(say.lock().unwrap()[..], ["still at work after 1:00: x: 1 of 1 node done"]);
    }

    #[test]
    fn an_earlier_run_tells_how_long_until_this_one_does() {
        let seconds = Duration::from_secs;
        let of = |done, per_step| {
            let steps = Steps { unit: Unit::Tests, done, total: 100, failed: 0 };
            Task { unit: Unit::Once, total: 1, steps: Some(steps), per_step, ..Task::default() }
        };
        let earlier = Some(seconds(10));
        assert_eq!(of(0, None).left(0, seconds(600)), None);
        assert_eq!(of(0, earlier).left(0, seconds(5)), Some(seconds(1_000)));
        assert_eq!(of(2, earlier).left(0, seconds(600)), Some(seconds(980)), "too little was seen");
        assert_eq!(of(50, earlier).left(0, seconds(100)), Some(seconds(100)));
        assert_eq!(Task { over: true, ..of(50, earlier) }.left(0, seconds(100)), None);
    }

    #[test]
    fn what_began_before_anybody_watched_counts_from_its_beginning() {
        let hour = Duration::from_secs(3_600);
        let began = SystemTime::now().checked_sub(hour);
        let task = |name: &str, over| Task { name: name.into(), total: 9, over, ..Task::default() };
        let scene = |began, tasks: &[Task]| Scene { began, tasks: tasks.to_vec(), ..Scene::default() };
        let long = |took: Option<Duration>| took.map(|took| took >= hour);
        let check = |began, elapsed, took: [Option<bool>; 3]| {
            with(Output::Plain, &|_| Ok(()), |board| {
                let (open, over) = (task("open", false), task("over", true));
                board.show(scene(began, &[open.clone(), over.clone()]))?;
                // What comes later begins then.
                let later = scene(began, &[open, over, task("later", false)]);
                board.show(later.clone())?;
                let shared = board.lock();
                let shown = shared.shown(&later);
                assert_eq!(long(Some(shown.elapsed)), Some(elapsed));
                let times: Vec<_> = shown.times.iter().map(|times| long(times.took)).collect();
                assert_eq!(times, took);
                Ok(())
            })
            .unwrap();
        };
        check(began, true, [Some(true), None, Some(false)]);
        check(None, false, [Some(false), Some(false), Some(false)]);
    }
}
