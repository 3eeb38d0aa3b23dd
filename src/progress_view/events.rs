//! What is new in a scene, as lines for display or as JSON events, one per line. Pure.
//!
//! An event has `time`, `event` and `elapsed` (whole seconds). `state` has `title`, `state` and, at
//! the end, `product`; `task` has `name`, `unit`, `done`, `total`, `failed`, `over`, and `steps`,
//! `note`, `result` where there are some; `trouble` has `task`, `places`, `cause`; `alive` has
//! nothing more; `archive`, without `elapsed`, has `path`. Fields are only ever added.

use std::collections::HashMap;
use std::time::Duration;

use super::lines::{bytes, sentence, time};
use super::{ProgressOutput, Scene, Shown, Steps, Task, TaskTimes, Trouble, Unit};
use base::Joined as _;
use base::clock;
use base::json::{self, json};
use base::visible;
use model::status::FAILED;
use serde::Deserialize as _;
use serde_json::Value;

/// A task is reported again after each such part of its total.
const PARTS: u64 = 20;
/// Maximum number of places to name for one trouble.
const MAX_PLACES: usize = 5;

/// What has been reported so far.
#[derive(Default)]
pub(super) struct Reported {
    json: bool,
    state: String,
    tasks: HashMap<String, Task>,
    troubles: HashMap<(String, String), usize>,
}

impl Reported {
    pub(super) fn new(output: ProgressOutput) -> Self {
        Self {
            json: output == ProgressOutput::Json,
            ..Self::default()
        }
    }

    /// What has not been reported yet.
    pub(super) fn news(&mut self, shown: &Shown, over: bool) -> Vec<String> {
        let scene = &shown.scene;
        let mut lines = Vec::new();
        let state = format!("{}: {}", scene.title, scene.state);
        let mut news = None;
        if self.state != state && !scene.state.is_empty() {
            news = Some(if self.json {
                state_event(shown)
            } else {
                visible::line(&state).into_owned()
            });
            self.state = state;
        }
        // The end of a run is reported after its last tasks.
        let ends = over || scene.tasks.iter().all(|task| task.over) && !scene.tasks.is_empty();
        lines.extend(news.take_if(|_| !ends));
        let may_wait = !over && !self.json;
        for (task, TaskTimes { took, .. }) in scene.tasks.iter().zip(&shown.times) {
            let begins =
                task.done == 0 && task.steps.is_none() || task.unit == Unit::Bytes && !task.over;
            let is_news = match self.tasks.get(&task.name) {
                Some(before) => before != task && (!may_wait || is_newsworthy(before, task)),
                None => !may_wait || !begins,
            };
            if !is_news {
                continue;
            }
            self.tasks.insert(task.name.clone(), task.clone());
            lines.push(if self.json {
                event("task", shown.elapsed, json!(task))
            } else {
                task_line(task, *took)
            });
        }
        for trouble in &scene.troubles {
            let reported_places = self
                .troubles
                .entry((trouble.task.clone(), trouble.cause.clone()))
                .or_default();
            let places = trouble.places.len().max(1);
            if places > *reported_places {
                *reported_places = places;
                lines.push(if self.json {
                    event("trouble", shown.elapsed, json!(trouble))
                } else {
                    trouble_line(trouble)
                });
            }
        }
        lines.extend(news);
        lines
    }

    /// A heartbeat.
    pub(super) fn alive(&self, shown: &Shown) -> String {
        if self.json {
            return event("alive", shown.elapsed, json!({}));
        }
        let tasks = shown
            .scene
            .tasks
            .iter()
            .filter(|task| !task.over)
            .map(count);
        let at = match tasks.take(3).joined("; ") {
            none if none.is_empty() => shown.scene.state.clone(),
            at => at,
        };
        visible::line(&format!(
            "still at work after {}: {at}",
            time(shown.elapsed)
        ))
        .into_owned()
    }
}

/// The lines that remain when a board is removed.
pub(super) fn closing(shown: &Shown) -> Vec<String> {
    shown
        .scene
        .tasks
        .iter()
        .zip(&shown.times)
        .map(|(task, times)| task_line(task, times.took))
        .chain(shown.scene.troubles.iter().map(trouble_line))
        .collect()
}

fn state_event(shown: &Shown) -> String {
    let scene = &shown.scene;
    let mut fields = json!({"title": scene.title, "state": scene.state});
    if let Some(product) = &scene.product {
        fields["product"] = json!(product);
    }
    event("state", shown.elapsed, fields)
}

fn trouble_line(trouble: &Trouble) -> String {
    format!("in trouble: {}", sentence(trouble, MAX_PLACES))
}

impl Scene {
    /// Adopts an event that another process has reported; false for any other line.
    pub(crate) fn adopt(&mut self, line: &str) -> bool {
        let Ok(event) = base::json::from_slice(line.as_bytes()) else {
            return false;
        };
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let Some(kind) = event["event"].as_str() else {
            return false;
        };
        match kind {
            "state" => self.state = text("state"),
            "archive" => self.product = Some(text("path")),
            "trouble" => {
                let Ok(trouble) = Trouble::deserialize(&event) else {
                    return false;
                };
                self.troubles.retain(|known| known.cause != trouble.cause);
                self.troubles.push(trouble);
            }
            "task" => {
                let Ok(task) = Task::deserialize(&event) else {
                    return false;
                };
                match self.tasks.iter_mut().find(|known| known.name == task.name) {
                    Some(known) => *known = task,
                    None => self.tasks.push(task),
                }
            }
            _ => {}
        }
        true
    }

    /// A run as one task among several: its results, and the steps of its first plugin that is at
    /// work.
    pub(crate) fn as_task(&self, name: &str) -> Task {
        let sum = |of: fn(&Task) -> u64| self.tasks.iter().map(of).fold(0, u64::saturating_add);
        let working = self.tasks.iter().find(|task| !task.over);
        let note = working.map_or_else(
            || self.state.clone(),
            |task| match task.steps {
                Some(Steps {
                    unit, done, total, ..
                }) => {
                    format!("{} {done}/{total} {}", task.name, unit.word(total))
                }
                None => task.name.clone(),
            },
        );
        let (done, total, failed) = (
            sum(|task| task.done),
            sum(|task| task.total),
            sum(|task| task.failed),
        );
        Task {
            name: name.to_owned(),
            unit: Unit::Results,
            done,
            total,
            failed,
            note,
            ..Task::default()
        }
    }
}

/// Whether a task has progressed enough for another line.
fn is_newsworthy(before: &Task, task: &Task) -> bool {
    let (was, is) = (before.finest(), task.finest());
    let step =
        |was: u64, done: u64, total: u64| done.saturating_sub(was) >= total.div_ceil(PARTS).max(1);
    before.over != task.over
        || before.result != task.result
        || before.failed != task.failed
        || was.failed != is.failed
        || before.steps.is_some() != task.steps.is_some()
        // Bytes arrive steadily: only the end is news; the heartbeat shows the rest.
        || task.unit != Unit::Bytes && (step(was.done, is.done, is.total) || step(before.done, task.done, task.total))
}

/// `28 of 30 nodes done, 1 failed`.
fn count(task: &Task) -> String {
    let mut parts = Vec::new();
    match task.unit {
        Unit::Bytes if task.total == 0 || task.over && task.done == task.total => {
            parts.push(bytes(task.done));
        }
        Unit::Bytes => parts.push(format!("{} of {}", bytes(task.done), bytes(task.total))),
        Unit::Once if task.steps.is_some() => {}
        Unit::Once => parts.push(task.word().to_owned()),
        unit => {
            parts.push(format!(
                "{} of {} {} done",
                task.done,
                task.total,
                unit.word(task.total)
            ));
            if task.failed > 0 {
                parts.push(format!("{} failed", task.failed));
            }
        }
    }
    if let Some(Steps {
        unit,
        done,
        total,
        failed,
    }) = task.steps
    {
        parts.push(match total {
            0 => format!("{done} {}", unit.word(done)),
            _ => format!("{done} of {total} {} done", unit.word(total)),
        });
        if failed > 0 {
            parts.push(format!("{failed} {} failed", unit.word(failed)));
        }
    }
    format!("{}: {}", task.name, parts.join(", "))
}

fn task_line(task: &Task, took: Option<Duration>) -> String {
    let mut line = count(task);
    let steps = task.steps.is_some_and(|steps| steps.failed > 0);
    let has_failure_count =
        steps || task.failed > 0 && (task.unit != Unit::Once || task.steps.is_none());
    if task.over && !task.result.is_empty() && !(has_failure_count && task.result == FAILED) {
        line = format!("{line}, {}", task.result);
    }
    if task.over {
        line.extend(took.map(|took| format!(", after {}", time(took))));
    } else if !task.note.is_empty() {
        line = format!("{line}: {}", task.note);
    }
    visible::line(&line).into_owned()
}

/// Reports the archive's path to programs.
pub(crate) fn archive_event(path: &str) -> String {
    dated("archive", json!({"path": path}))
}

/// Reports on several clusters to programs.
pub(crate) fn report_event(report: &Value) -> String {
    dated("report", json!({"report": report}))
}

/// Reports the comparison with a baseline to programs.
pub(crate) fn comparison_event(comparison: &Value) -> String {
    dated("comparison", json!({"comparison": comparison}))
}

fn event(name: &str, elapsed: Duration, mut fields: Value) -> String {
    fields["elapsed"] = json!(elapsed.as_secs());
    dated(name, fields)
}

/// An event with the time of day.
fn dated(name: &str, mut fields: Value) -> String {
    fields["event"] = json!(name);
    fields["time"] = json!(clock::now());
    json::line(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(done: u64, failed: u64) -> Task {
        Task {
            name: "p".into(),
            done,
            total: 30,
            failed,
            over: done == 30,
            ..Task::default()
        }
    }

    fn news(told: &mut Reported, scene: &Scene, over: bool) -> Vec<String> {
        let times = scene
            .tasks
            .iter()
            .map(|_| TaskTimes {
                took: Some(Duration::from_secs(9)),
                left: None,
            })
            .collect();
        told.news(
            &Shown {
                scene: scene.clone(),
                elapsed: Duration::from_secs(9),
                times,
            },
            over,
        )
    }

    fn running(tasks: Vec<Task>) -> Scene {
        Scene {
            title: "a run".into(),
            state: "running".into(),
            tasks,
            ..Scene::default()
        }
    }

    #[test]
    fn every_change_is_printed_once() {
        let mut told = Reported::new(ProgressOutput::Plain);
        let mut check = |task: Task, over: bool, expected: &[&str]| {
            assert_eq!(news(&mut told, &running(vec![task]), over), expected);
        };
        check(nodes(0, 0), false, &["a run: running"]);
        check(nodes(1, 0), false, &["p: 1 of 30 nodes done"]);
        check(nodes(2, 0), false, &[]);
        check(nodes(3, 0), false, &["p: 3 of 30 nodes done"]);
        check(nodes(3, 0), false, &[]);
        check(nodes(28, 1), false, &["p: 28 of 30 nodes done, 1 failed"]);
        check(
            nodes(30, 1),
            false,
            &["p: 30 of 30 nodes done, 1 failed, after 0:09"],
        );
        check(nodes(30, 1), true, &[]);
    }

    #[test]
    fn small_steps_are_merged_and_the_last_is_printed() {
        let mut told = Reported::new(ProgressOutput::Plain);
        let at = |done| {
            let steps = Steps {
                unit: Unit::Tests,
                done,
                total: 1000,
                failed: 0,
            };
            let task = Task {
                name: "e2e".into(),
                unit: Unit::Once,
                total: 1,
                steps: Some(steps),
                ..Task::default()
            };
            running(vec![task])
        };
        let lines: Vec<String> = (0..=200)
            .flat_map(|done| news(&mut told, &at(done), false))
            .collect();
        assert_eq!(lines.len(), 1 + 1 + 200 / 50, "{lines:?}");
        assert_eq!(
            news(&mut told, &at(201), true),
            ["e2e: 201 of 1000 tests done"]
        );
    }

    #[test]
    fn growing_troubles_are_printed_again() {
        let mut told = Reported::new(ProgressOutput::Plain);
        let trouble = |places: &[&str]| Scene {
            troubles: vec![Trouble {
                task: "p".into(),
                places: places.iter().map(|&place| place.into()).collect(),
                cause: "no\nimage".into(),
            }],
            ..Scene::default()
        };
        assert_eq!(
            news(&mut told, &trouble(&["a"]), false),
            [r"in trouble: p on a: no\nimage"]
        );
        assert!(news(&mut told, &trouble(&["a"]), false).is_empty());
        let seven = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(
            news(&mut told, &trouble(&seven), false),
            [r"in trouble: p on a, b, c, d, e and 2 more: no\nimage"]
        );
    }

    #[test]
    fn events_have_the_documented_fields() {
        let mut told = Reported::new(ProgressOutput::Json);
        let mut scene = running(vec![nodes(30, 1)]);
        scene.tasks[0].steps = Some(Steps {
            unit: Unit::Steps,
            done: 4,
            total: 8,
            failed: 1,
        });
        scene.tasks[0].note = "half\nway".into();
        scene.troubles.push(Trouble {
            task: "p".into(),
            places: vec!["a".into()],
            cause: "no".into(),
        });
        scene.state = "complete".into();
        scene.product = Some("a.tar.gz".into());
        let events: Vec<Value> = (news(&mut told, &scene, false).iter())
            .map(|line| {
                let mut event: Value = serde_json::from_str(line).unwrap();
                assert!(
                    event["time"].take().is_string() && !line.contains('\n'),
                    "{line}"
                );
                event
            })
            .collect();
        assert_eq!(
            events,
            [
                json!({"event": "task", "time": null, "elapsed": 9, "name": "p", "unit": "nodes", "done": 30, "total": 30,
                    "failed": 1, "over": true, "note": "half\nway",
                    "steps": {"unit": "steps", "done": 4, "total": 8, "failed": 1}}),
                json!({"event": "trouble", "time": null, "elapsed": 9, "task": "p", "places": ["a"], "cause": "no"}),
                json!({"event": "state", "time": null, "elapsed": 9, "title": "a run", "state": "complete",
                    "product": "a.tar.gz"}),
            ]
        );
        assert!(archive_event("x").contains(r#""path":"x""#));
    }

    #[test]
    fn heartbeat_names_the_running_plugins() {
        let told = Reported::new(ProgressOutput::Plain);
        let scene = running(vec![
            nodes(28, 1),
            Task {
                over: true,
                ..nodes(1, 0)
            },
        ]);
        let shown = Shown {
            scene,
            elapsed: Duration::from_secs(60),
            times: Vec::new(),
        };
        assert_eq!(
            told.alive(&shown),
            "still at work after 1:00: p: 28 of 30 nodes done, 1 failed"
        );
    }
}
