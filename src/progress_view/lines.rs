//! The lines of a board: a scene, its times and the size of a window in, lines that fit out. Pure.
//!
//! What does not fit is omitted, least important first: notes, bars, units, finished tasks,
//! troubles. The line that names what is waited for always remains.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Shown, Steps, Task, TaskTimes, Trouble, Unit};
use base::live::{self, Line, Size};
use base::{sys, visible};
use model::status::FAILED;

/// Longer bars carry no more information.
const MAX_BAR: usize = 24;
/// Shorter bars carry no information.
const MIN_BAR: usize = 6;
/// Notes cut shorter than this are unreadable.
const MIN_NOTE: usize = 12;

/// Maximum lines per trouble if the window is high enough.
const MAX_TROUBLE_LINES: usize = 3;
/// Columns of such a line that are indentation, or too few for the next word.
const UNUSED_COLUMNS: usize = 12;

/// The terminal's codes of styles.
const PLAIN: u8 = 0;
const GOOD: u8 = 32;
const BAD: u8 = 31;
const FAINT: u8 = 2;

/// Splits `left` lines between tasks and troubles: tasks come first, but troubles always get some,
/// plus the remainder.
fn shares(left: usize, tasks: usize, troubles: usize) -> (usize, usize) {
    let wanted = troubles.min(left / 3);
    let tasks = tasks.min(left - wanted);
    (tasks, left - tasks)
}

/// A terminal: the room for a board, and what it can draw.
#[derive(Clone, Copy)]
pub(super) struct BoardTerminal {
    width: usize,
    rows: usize,
    colour: bool,
    unicode: bool,
}

impl BoardTerminal {
    /// This terminal; a column and a row of the window remain free, to avoid wrapping and
    /// scrolling.
    pub(super) fn detect() -> Self {
        let Size { columns, rows } = live::size();
        Self {
            width: columns.saturating_sub(1),
            rows: rows.saturating_sub(1),
            colour: sys::wants_colours(true),
            unicode: sys::shows_unicode(),
        }
    }

    /// The lines of the board.
    pub(super) fn lines(&self, shown: &Shown) -> Vec<Line> {
        if self.width == 0 || self.rows == 0 {
            return Vec::new();
        }
        let scene = &shown.scene;
        let footer = self.footer(&scene.footer);
        let (title, state) = (visible::line(&scene.title), visible::line(&scene.state));
        let head = format!("{title}: {state}  {}", time(shown.elapsed));
        let mut out = vec![self.line(vec![(PLAIN, head)])];
        let rows_left = self.rows.saturating_sub(1 + footer.len());
        let (tasks, troubles) = shares(rows_left, scene.tasks.len(), scene.troubles.len());
        out.extend(self.tasks(shown, tasks));
        out.extend(self.troubles(&scene.troubles, troubles));
        out.extend(footer);
        // In a window with few rows, the footer matters most.
        out.drain(..out.len().saturating_sub(self.rows));
        out
    }

    /// All parts on one line if they fit, else one line per part.
    fn footer(&self, parts: &[String]) -> Vec<Line> {
        let faint = |text: String| self.line(vec![(FAINT, text)]);
        let parts: Vec<_> = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| visible::line(part))
            .collect();
        let text = parts.join(" · ");
        let text = if self.unicode {
            text
        } else {
            text.replace('·', "|")
        };
        match parts.len() {
            0 => Vec::new(),
            _ if columns(&text) <= self.width => vec![faint(text)],
            _ => parts
                .into_iter()
                .map(|part| faint(part.into_owned()))
                .collect(),
        }
    }

    fn tasks(&self, shown: &Shown, rows: usize) -> Vec<Line> {
        let all = &shown.scene.tasks;
        let mut visible_tasks: Vec<_> = all.iter().zip(&shown.times).collect();
        if rows < all.len() {
            // Running tasks matter more than finished ones.
            visible_tasks.sort_by_key(|(task, _)| task.over);
            visible_tasks.truncate(rows.saturating_sub(1));
        }
        let left_out = all.len() - visible_tasks.len();
        let narrow = self.width < 60;
        let cells: Vec<Cells> = visible_tasks
            .iter()
            .map(|(task, times)| Cells::of(task, times, narrow))
            .collect();
        let widest = |of: &dyn Fn(&Cells) -> usize| cells.iter().map(of).max().unwrap_or(0);
        let name = widest(&|cells| columns(&cells.name)).min(self.width / 3);
        let widths: [usize; 3] =
            std::array::from_fn(|at| widest(&|cells| columns(&cells.counts[at])));
        let fixed: usize = widths
            .iter()
            .filter(|width| **width > 0)
            .map(|width| width + 2)
            .sum();
        let room = self.width.saturating_sub(2 + name + fixed);
        // If both fit, notes are sized first.
        let noted = cells.iter().any(|cells| !cells.note.is_empty());
        let note = if noted && room >= MIN_BAR + MIN_NOTE + 4 {
            MIN_NOTE + 2
        } else {
            0
        };
        let bar = if room >= MIN_BAR + 2 {
            (room - 2 - note).min(MAX_BAR)
        } else {
            0
        };
        let mut out: Vec<Line> = (cells.iter())
            .map(|cells| {
                let text = clip(&cells.name, name, self.unicode);
                let mut parts = vec![(
                    PLAIN,
                    format!("  {text}{}", " ".repeat(name - columns(&text))),
                )];
                if bar > 0 {
                    parts.extend(self.bar(cells.bar, bar - 2));
                }
                for ((text, width), style) in
                    cells.counts.iter().zip(widths).zip([PLAIN, BAD, FAINT])
                {
                    if width > 0 {
                        parts.push((
                            style,
                            format!("  {}{text}", " ".repeat(width - columns(text))),
                        ));
                    }
                }
                let used: usize = parts.iter().map(|(_, text)| columns(text)).sum();
                if !cells.note.is_empty() && self.width.saturating_sub(used + 2) >= MIN_NOTE {
                    parts.push((FAINT, format!("  {}", cells.note)));
                }
                self.line(parts)
            })
            .collect();
        if left_out > 0 && rows > 0 {
            let over = all.iter().filter(|task| task.over).count();
            let more = format!("  and {left_out} more, {over} of {} are done", all.len());
            out.push(self.line(vec![(FAINT, more)]));
        }
        out
    }

    fn troubles(&self, troubles: &[Trouble], rows: usize) -> Vec<Line> {
        let bad = |text: String| self.line(vec![(BAD, text)]);
        let all: Vec<String> = troubles
            .iter()
            .map(|trouble| sentence(trouble, 3))
            .collect();
        let lines: Vec<String> = all.iter().flat_map(|text| self.wrapped(text)).collect();
        if lines.len() <= rows {
            return lines.into_iter().map(bad).collect();
        }
        let number = if rows < all.len() {
            rows.saturating_sub(1)
        } else {
            all.len()
        };
        let mut out: Vec<Line> = all
            .into_iter()
            .take(number)
            .map(|text| bad(format!("  {text}")))
            .collect();
        if number < troubles.len() && rows > 0 {
            let more = format!("  and {} more that are in trouble", troubles.len() - number);
            out.push(bad(more));
        }
        out
    }

    /// A trouble in at most [`MAX_TROUBLE_LINES`] lines, which end with its remedy.
    fn wrapped(&self, trouble: &str) -> Vec<String> {
        let lines = broken(trouble, self.width, MAX_TROUBLE_LINES);
        if lines.iter().all(|line| columns(line) <= self.width) {
            return lines;
        }
        // Each line is indented, and ends before a word that does not fit.
        let room = MAX_TROUBLE_LINES * self.width.saturating_sub(UNUSED_COLUMNS);
        let mut shortened = visible::cut_before_advice(trouble, room);
        if !self.unicode {
            shortened = shortened.replace('…', ".");
        }
        broken(&shortened, self.width, MAX_TROUBLE_LINES)
    }

    /// Segments in proportion to what is done well, has failed and is open; one failure is visible
    /// among many.
    fn bar(
        &self,
        Steps {
            done,
            total,
            failed,
            ..
        }: Steps,
        width: usize,
    ) -> [(u8, String); 3] {
        let part = |count: u64| {
            let part = u128::from(count.min(total)) * width as u128 / u128::from(total.max(1));
            usize::try_from(part).unwrap_or(width)
        };
        let bad = part(failed).max(usize::from(failed > 0));
        let good = part(done).saturating_sub(bad);
        let [begin, full, open, end] = if self.unicode {
            ["▕", "█", "░", "▏"]
        } else {
            ["[", "#", "-", "]"]
        };
        [
            (GOOD, format!("  {begin}{}", full.repeat(good))),
            (BAD, full.repeat(bad)),
            (FAINT, format!("{}{end}", open.repeat(width - good - bad))),
        ]
    }

    /// Joins coloured parts, cut to the width.
    fn line(&self, parts: Vec<(u8, String)>) -> Line {
        let mut line = Line::default();
        for (style, text) in parts {
            let text = clip(&text, self.width - line.width, self.unicode);
            line.width += columns(&text);
            if style == PLAIN || !self.colour || text.is_empty() {
                line.text.push_str(&text);
            } else {
                let _ = write!(line.text, "\x1b[{style}m{text}\x1b[0m");
            }
        }
        line
    }
}

/// The columns of a task.
struct Cells {
    name: String,
    bar: Steps,
    /// What is done, what has failed, and the elapsed time.
    counts: [String; 3],
    note: String,
}

impl Cells {
    fn of(task: &Task, &TaskTimes { took, left }: &TaskTimes, narrow: bool) -> Self {
        let Steps {
            unit,
            done,
            total,
            failed,
        } = task.coarsest();
        let count = match unit {
            _ if total == 0 => String::new(),
            Unit::Once => task.word().to_owned(),
            Unit::Bytes => format!("{} of {}", bytes(done), bytes(total)),
            _ if narrow => format!("{done}/{total}"),
            _ => format!("{done}/{total} {}", unit.word(total)),
        };
        let mut notes = Vec::new();
        notes.extend(left.map(|left| format!("about {} left", rough(left))));
        let minutes = took
            .filter(|took| unit == Unit::Tests && !task.over && took.as_secs() >= 60 && done > 0);
        notes.extend(minutes.map(|took| format!("{}/min", (done * 60).div_ceil(took.as_secs()))));
        // What has failed has a column, since notes are cut first.
        let mut failures = Vec::new();
        if failed > 0 && unit != Unit::Once {
            failures.push(format!("{failed} failed"));
        }
        if let Some(inner) = task.steps.filter(|_| task.unit != Unit::Once) {
            let unit = inner.unit.word(inner.total);
            notes.push(format!("{}/{} {unit}", inner.done, inner.total));
            if inner.failed > 0 {
                let unit = inner.unit.word(inner.failed);
                failures.push(format!("{} {unit} failed", inner.failed));
            }
        }
        notes.push(if task.over && count != task.result {
            task.result.clone()
        } else if task.over {
            String::new()
        } else {
            visible::line(&task.note).into_owned()
        });
        notes.retain(|note| !note.is_empty());
        let bar = Steps {
            unit,
            done,
            total,
            failed: failed.max(u64::from(task.result == FAILED)),
        };
        Self {
            name: visible::line(&task.name).into_owned(),
            bar: if total == 0 && task.over {
                Steps {
                    done: 1,
                    total: 1,
                    ..bar
                }
            } else {
                bar
            },
            counts: [
                count,
                failures.join(", "),
                took.map(time).unwrap_or_default(),
            ],
            note: notes.join("  "),
        }
    }
}

impl Unit {
    pub(super) fn word(self, count: u64) -> &'static str {
        let many = match self {
            Self::Nodes => "nodes",
            Self::Once => "once",
            Self::Results => "results",
            Self::Steps => "steps",
            Self::Tests => "tests",
            Self::Images => "images",
            Self::Bytes => "bytes",
        };
        if count == 1 {
            many.trim_end_matches('s')
        } else {
            many
        }
    }
}

/// A trouble and its places, naming at most `max` of them.
pub(crate) fn sentence(trouble: &Trouble, max: usize) -> String {
    let Trouble {
        task,
        places,
        cause,
    } = trouble;
    let (named, others) = places.split_at(places.len().min(max));
    let text = match (named.join(", "), others.len()) {
        (named, 0) if named.is_empty() => format!("{task}: {cause}"),
        (named, 0) => format!("{task} on {named}: {cause}"),
        (named, more) => format!("{task} on {named} and {more} more: {cause}"),
    };
    visible::line(&visible::without_codes(&text)).into_owned()
}

/// `0:12`, `12:03`, `1:02:03`.
pub(super) fn time(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds / 3_600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// A duration in the notation of the flags: `6h`, `90m`, `1h30m`, `45s`.
pub(crate) fn span(span: Duration) -> String {
    let text = base::clock::duration(Duration::from_secs(span.as_secs()));
    let text = text
        .strip_suffix("m0s")
        .map_or_else(|| text.clone(), |rest| format!("{rest}m"));
    text.strip_suffix("h0m")
        .map_or_else(|| text.clone(), |rest| format!("{rest}h"))
}

/// An estimated duration, rounded.
fn rough(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..5_400 => format!("{}m", seconds.div_ceil(60)),
        seconds => format!("{}h", seconds.div_ceil(3_600)),
    }
}

/// `512 B`, `1.5 MiB`.
pub(super) fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let Some(power) = (1..=units.len())
        .rev()
        .find(|power| count >> (10 * power) > 0)
    else {
        return format!("{count} B");
    };
    let tenths = (u128::from(count) * 10) >> (10 * power);
    format!("{}.{} {}", tenths / 10, tenths % 10, units[power - 1])
}

/// Maximum columns of a character: East Asian characters and emoji take two.
fn column(c: char) -> usize {
    let wide = matches!(u32::from(c),
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xa960..=0xa97c | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f
        | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f000..=0x1faff | 0x2_0000..=0x3_fffd);
    if wide { 2 } else { 1 }
}

fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// Text wrapped into indented lines; the last line may be too long.
fn broken(text: &str, width: usize, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let count = lines.len();
        match lines.last_mut() {
            Some(line) if count == max || columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("    {word}")),
            None => lines.push(format!("  {word}")),
        }
    }
    lines
}

/// The start of a text, marked where it is cut.
fn clip(text: &str, width: usize, unicode: bool) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mark = if unicode { "…" } else { "." };
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        if used + column(c) + 1 > width {
            break;
        }
        used += column(c);
        out.push(c);
    }
    if width > 0 {
        out.push_str(mark);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    const ASCII: BoardTerminal = BoardTerminal {
        width: 0,
        rows: 0,
        colour: false,
        unicode: false,
    };

    fn task(name: &str, done: u64, total: u64, failed: u64) -> Task {
        Task {
            name: name.into(),
            done,
            total,
            failed,
            over: done == total,
            ..Task::default()
        }
    }

    fn drawn(scene: &Scene, columns: usize, rows: usize, look: BoardTerminal) -> Vec<Line> {
        let took = Some(Duration::from_secs(72));
        let times = scene
            .tasks
            .iter()
            .map(|_| TaskTimes { took, left: None })
            .collect();
        let shown = Shown {
            scene: scene.clone(),
            elapsed: Duration::from_secs(3_723),
            times,
        };
        BoardTerminal {
            width: columns.saturating_sub(1),
            rows: rows.saturating_sub(1),
            ..look
        }
        .lines(&shown)
    }

    #[track_caller]
    fn check(scene: &Scene, columns: usize, rows: usize, expected: &[&str]) {
        let lines = drawn(scene, columns, rows, ASCII);
        assert_eq!(
            lines
                .iter()
                .map(|line| line.text.as_str())
                .collect::<Vec<_>>(),
            expected
        );
    }

    fn scene() -> Scene {
        let steps = Steps {
            unit: Unit::Tests,
            done: 57,
            total: 412,
            failed: 4,
        };
        let e2e = Task {
            unit: Unit::Once,
            steps: Some(steps),
            note: "Pods".into(),
            ..task("e2e", 0, 1, 0)
        };
        Scene {
            title: "a run".into(),
            state: "running".into(),
            tasks: vec![e2e, task("systemd-logs", 28, 30, 1)],
            troubles: vec![Trouble {
                task: "systemd-logs".into(),
                places: vec!["n1".into(), "n2".into()],
                cause: "no image".into(),
            }],
            footer: vec!["waiting for e2e".into(), "time limit 6h".into()],
            ..Scene::default()
        }
    }

    #[test]
    fn board_fits_every_window() {
        check(
            &scene(),
            80,
            24,
            &[
                "a run: running  1:02:03",
                "  e2e           [##---------------]  57/412 tests  4 failed  1:12  48/min  Pods",
                "  systemd-logs  [###############--]   28/30 nodes  1 failed  1:12",
                "  systemd-logs on n1, n2: no image",
                "waiting for e2e | time limit 6h",
            ],
        );
        check(
            &scene(),
            40,
            24,
            &[
                "a run: running  1:02:03",
                "  e2e           57/412  4 failed  1:12",
                "  systemd-logs   28/30  1 failed  1:12",
                "  systemd-logs on n1, n2: no image",
                "waiting for e2e | time limit 6h",
            ],
        );
        check(
            &scene(),
            24,
            6,
            &[
                "a run: running  1:02:03",
                "  e2e      57/412  4 f.",
                "  system.   28/30  1 f.",
                "waiting for e2e",
                "time limit 6h",
            ],
        );
        let mut long = scene();
        long.tasks.clear();
        long.troubles[0].cause =
            "it could not do what it was for, and said no more than this about it".into();
        check(
            &long,
            40,
            24,
            &[
                "a run: running  1:02:03",
                "  systemd-logs on n1, n2: it could not",
                "    do what it was for, and said no",
                "    more than this about it",
                "waiting for e2e | time limit 6h",
            ],
        );
        check(
            &long,
            40,
            5,
            &[
                "a run: running  1:02:03",
                "  systemd-logs on n1, n2: it could not.",
                "waiting for e2e | time limit 6h",
            ],
        );
        long.troubles[0].cause = "it could not do what it was for, said so many times, and gave \
                                  no reason; plug it in"
            .into();
        check(
            &long,
            40,
            24,
            &[
                "a run: running  1:02:03",
                "  systemd-logs on n1, n2: it could not",
                "    do what it was for, said so m.;",
                "    plug it in",
                "waiting for e2e | time limit 6h",
            ],
        );
        check(&scene(), 80, 2, &["waiting for e2e | time limit 6h"]);
        check(&scene(), 80, 1, &[]);
        check(&scene(), 1, 24, &[]);
        check(
            &Scene {
                state: "x".into(),
                ..Scene::default()
            },
            80,
            24,
            &[": x  1:02:03"],
        );
    }

    #[test]
    fn number_of_failed_steps_is_never_cut() {
        let steps = Steps {
            unit: Unit::Steps,
            done: 92,
            total: 120,
            failed: 17,
        };
        let task = Task {
            steps: Some(steps),
            note: "checks the disk of the node".into(),
            ..task("conformance-of-storage", 1, 3, 0)
        };
        let scene = Scene {
            title: "a run".into(),
            state: "running".into(),
            tasks: vec![task],
            ..Scene::default()
        };
        check(
            &scene,
            80,
            24,
            &[
                "a run: running  1:02:03",
                "  conformance-of-storage  [#####------------]  1/3 nodes  17 steps failed  1:12",
            ],
        );
        check(
            &scene,
            50,
            24,
            &[
                "a run: running  1:02:03",
                "  conformance-of-.  1/3  17 steps failed  1:12",
            ],
        );
    }

    #[test]
    fn every_scene_fits_every_size() {
        let mut crowd = scene();
        crowd
            .tasks
            .extend((0..300).map(|number| task(&format!("plugin-{number}"), number % 2, 1, 0)));
        crowd.troubles = vec![crowd.troubles[0].clone(); 50];
        crowd.troubles[0].cause = "日本語 🦀 wide\nand \u{1b}[2J evil".repeat(9);
        for columns in (1..12).chain((12..220).step_by(13)) {
            for rows in [1, 2, 3, 5, 24, 60] {
                for look in [
                    ASCII,
                    BoardTerminal {
                        colour: true,
                        unicode: true,
                        ..ASCII
                    },
                ] {
                    for scene in [&scene(), &crowd] {
                        let lines = drawn(scene, columns, rows, look);
                        assert!(
                            lines.len() < rows.max(1),
                            "{} lines in {rows} rows",
                            lines.len()
                        );
                        for line in lines {
                            assert!(line.width < columns, "{columns}: {line:?}");
                            let plain = line.text.replace("\x1b[31m", "").replace("\x1b[32m", "");
                            let plain = plain.replace("\x1b[2m", "").replace("\x1b[0m", "");
                            assert_eq!(super::columns(&plain), line.width, "{plain}");
                            assert!(!plain.contains(char::is_control), "{plain:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn running_tasks_precede_finished_ones() {
        let mut crowd = scene();
        crowd.tasks = (0..10)
            .map(|number| task(&format!("p{number}"), u64::from(number < 8), 1, 0))
            .collect();
        crowd.troubles.clear();
        let text: Vec<String> = drawn(&crowd, 60, 7, ASCII)
            .into_iter()
            .map(|line| line.text)
            .collect();
        assert!(
            text[1].starts_with("  p8") && text[2].starts_with("  p9"),
            "{text:?}"
        );
        assert_eq!(text[4], "  and 7 more, 8 of 10 are done");
    }

    #[test]
    fn sizes_and_times_are_short() {
        for (count, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (314_572_800, "300.0 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
        for (seconds, short, long) in [
            (0, "0s", "0:00"),
            (61, "2m", "1:01"),
            (5_400, "2h", "1:30:00"),
            (86_400, "24h", "24:00:00"),
        ] {
            assert_eq!(
                (
                    &*rough(Duration::from_secs(seconds)),
                    &*time(Duration::from_secs(seconds))
                ),
                (short, long)
            );
        }
        for (seconds, expected) in [
            (21_600, "6h"),
            (5_400, "1h30m"),
            (90, "1m30s"),
            (120, "2m"),
            (0, "0s"),
            (86_400, "24h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }
}
