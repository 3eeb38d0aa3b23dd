//! Log messages for terminals and log collectors: `log` to stderr, in the original's format.
//!
//! A terminal gets coloured `INFO[0000] message`, anything else logfmt. Fields passed to the macros
//! of `log` (`info!(name = "x"; "created")`) follow in alphabetical order. [`tee`] also writes
//! every line as JSON to a file, which becomes `meta/run.log`. Starts no thread; a closed stderr
//! loses messages without stopping anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use log::kv::{Key, Value, VisitSource};
use log::{Level, LevelFilter, Metadata, Record};

use crate::{clock, live, lock, sys, visible, workflow};

/// The values of `--level`.
pub const LEVELS: [&str; 8] = [
    "trace", "debug", "info", "warn", "warning", "error", "fatal", "panic",
];

static STYLE: OnceLock<Style> = OnceLock::new();
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
static OURS_ALONE: AtomicBool = AtomicBool::new(false);
static TOLD_ELSEWHERE: Mutex<&[&str]> = Mutex::new(&[]);
static TEE: Mutex<Option<Tee>> = Mutex::new(None);
/// Maximum bytes of the log file: peers influence its content, and results need the disk.
const MAX_FILE_BYTES: u64 = 64 << 20;

struct Logger;

/// The file of [`tee`].
struct Tee {
    file: File,
    bytes_left: u64,
}

impl Tee {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let bytes_left = MAX_FILE_BYTES.saturating_sub(file.metadata()?.len());
        Ok(Self { file, bytes_left })
    }

    fn write(&mut self, line: &str) {
        if self.bytes_left == 0 {
            return;
        }
        self.bytes_left = self.bytes_left.saturating_sub(line.len() as u64);
        let _ = match self.bytes_left {
            0 => {
                let full = "this log is full; what follows is not in it";
                let full = Entry {
                    level: Level::Warn,
                    text: full,
                    fields: BTreeMap::new(),
                };
                let full = full.json(SystemTime::now());
                self.file.write_all(full.as_bytes())
            }
            _ => self.file.write_all(line.as_bytes()),
        };
    }
}

#[derive(Clone, Copy)]
enum Style {
    Logfmt,
    Terminal { colour: bool },
}

/// Starts logging messages of `level` and above; called once, by `cli`. Unknown levels mean `info`.
pub fn init(level: &str) {
    let terminal = std::io::stderr().is_terminal();
    // Needed without colours, too: consoles of some systems must be prepared for cursor movement.
    sys::colours();
    let colour = sys::wants_colours(terminal);
    STYLE.get_or_init(|| {
        if terminal {
            Style::Terminal { colour }
        } else {
            Style::Logfmt
        }
    });
    LazyLock::force(&START);
    log::set_max_level(filter(level));
    // Only a second call fails, and then the logger is already set.
    let _ = log::set_logger(&Logger);
}

/// Silences libraries from now on, regardless of the level: for a program that is always started
/// with `--level=trace`.
pub fn ours_alone() {
    OURS_ALONE.store(true, Ordering::Relaxed);
}

/// From now on, sends messages of these modules only to the file of [`tee`], except errors: another
/// output reports them better.
pub fn told_elsewhere(modules: &'static [&'static str]) {
    *lock(&TOLD_ELSEWHERE) = modules;
}

/// The level of repetitive messages that scripts look for: shown on a terminal only at a higher
/// level of detail.
pub fn detail() -> Level {
    match STYLE.get() {
        Some(Style::Terminal { .. }) => Level::Debug,
        _ => Level::Info,
    }
}

/// Whether a message goes only to the file.
fn is_told_elsewhere(record: &Record) -> bool {
    let modules = *lock(&TOLD_ELSEWHERE);
    // Debugging shows everything.
    let looks = log::max_level() >= LevelFilter::Debug;
    !looks && record.level() > Level::Error && modules.contains(&record.target())
}

/// From now on also writes every message to `path`, one JSON object per line.
pub fn tee(path: &Path) -> std::io::Result<()> {
    *lock(&TEE) = Some(Tee::open(path)?);
    Ok(())
}

/// Lets `edit`, which must not log, replace the file at `path` while every other thread's messages
/// wait.
pub fn edit(path: &Path, edit: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
    let mut tee = lock(&TEE);
    // Windows replaces no open file, and elsewhere the old file would receive all later messages.
    let open = tee.take().is_some();
    let edited = edit();
    if open {
        *tee = Some(Tee::open(path)?);
    }
    edited
}

/// Stops writing to the file of [`tee`].
pub fn untee() {
    *lock(&TEE) = None;
}

fn filter(level: &str) -> LevelFilter {
    match level.to_ascii_lowercase().as_str() {
        "warning" => LevelFilter::Warn,
        // An error is the most severe message, and the only trace of why a program failed.
        "fatal" | "panic" => LevelFilter::Error,
        level => level.parse().unwrap_or(LevelFilter::Info),
    }
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // Libraries log only when debugging, and never traces: the HTTP client's traces are the
        // bytes on the wire, including secrets and whole results.
        metadata.target().starts_with("sonobuoy")
            || (metadata.level() <= Level::Debug
                && log::max_level() >= LevelFilter::Debug
                && !OURS_ALONE.load(Ordering::Relaxed))
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        let text = &visible::without_codes(&text);
        let mut entry = Entry {
            level: record.level(),
            text,
            fields: BTreeMap::new(),
        };
        // `Entry` accepts every pair, so this cannot fail.
        let _ = record.key_values().visit(&mut entry);
        let now = SystemTime::now();
        let line = match STYLE.get().unwrap_or(&Style::Logfmt) {
            Style::Logfmt => entry.logfmt(now),
            Style::Terminal { colour } => entry.terminal(START.elapsed(), *colour),
        };
        // A single write, so that lines from several threads and processes do not mix.
        if !is_told_elsewhere(record) {
            let line = workflow::safe_lines(&line);
            let _ = live::around(|| std::io::stderr().write_all(line.as_bytes()));
        }
        if let Some(tee) = &mut *lock(&TEE) {
            tee.write(&entry.json(now));
        }
    }

    fn flush(&self) {}
}

/// A message with its level and fields.
struct Entry<'a> {
    level: Level,
    text: &'a str,
    fields: BTreeMap<String, String>,
}

impl<'kvs> VisitSource<'kvs> for Entry<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        self.fields.insert(key.to_string(), value.to_string());
        Ok(())
    }
}

impl Entry<'_> {
    fn logfmt(&self, now: SystemTime) -> String {
        let mut line = format!(
            "time=\"{}\" level={} msg={}",
            seconds(now),
            name(self.level),
            quoted(self.text)
        );
        for (key, value) in &self.fields {
            let _ = write!(line, " {key}={}", quoted(value));
        }
        line.push('\n');
        line
    }

    fn terminal(&self, since: Duration, colour: bool) -> String {
        let code = match self.level {
            Level::Error => 31,
            Level::Warn => 33,
            Level::Info => 36,
            Level::Debug | Level::Trace => 37,
        };
        let paint = |text: &str| {
            if colour {
                format!("\x1b[{code}m{text}\x1b[0m")
            } else {
                text.to_owned()
            }
        };
        // Peers and clusters determine parts of messages: their control characters must not reach
        // the terminal, and text after a line feed must not look like a separate message.
        let message = visible::text(self.text).replace('\n', "\n           ");
        let mut line = format!(
            "{}[{:04}] ",
            paint(&self.level.as_str()[..4]),
            since.as_secs()
        );
        if self.fields.is_empty() {
            line.push_str(&message);
        } else {
            let _ = write!(line, "{message:<44}");
        }
        for (key, value) in &self.fields {
            let _ = write!(line, " {}={}", paint(key), quoted(value));
        }
        line.push('\n');
        line
    }

    fn json(&self, now: SystemTime) -> String {
        let mut object = serde_json::Map::new();
        for (key, value) in &self.fields {
            // These three names are reserved, as in the original.
            let key = if ["level", "msg", "time"].contains(&key.as_str()) {
                format!("fields.{key}")
            } else {
                key.clone()
            };
            object.insert(key, value.as_str().into());
        }
        object.insert("level".into(), name(self.level).into());
        object.insert("msg".into(), self.text.into());
        object.insert("time".into(), seconds(now).into());
        format!("{}\n", serde_json::Value::Object(object))
    }
}

/// The name of a level, as the original writes it.
fn name(level: Level) -> String {
    if level == Level::Warn {
        "warning".to_owned()
    } else {
        level.as_str().to_lowercase()
    }
}

fn seconds(now: SystemTime) -> String {
    let text = clock::rfc3339(now);
    text.split_once('.')
        .map_or_else(|| text.clone(), |(whole, _)| format!("{whole}Z"))
}

/// The message of the last line of a log; a line that the logger has not written is its own
/// message.
pub fn message(log: &str) -> String {
    let line = log.lines().next_back().unwrap_or_default();
    let message = line
        .split_once(" msg=")
        .map_or(line, |(_, message)| message);
    let Some(quoted) = message.strip_prefix('"') else {
        return message.to_owned();
    };
    let (mut text, mut letters) = (String::new(), quoted.chars());
    while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
        match letter {
            '\\' => match letters.next() {
                Some(quoted @ ('"' | '\\')) => text.push(quoted),
                other => text.extend(['\\'].into_iter().chain(other)),
            },
            letter => text.push(letter),
        }
    }
    text
}

/// A value in logfmt: quoted if it contains more than letters, digits and a few other characters.
fn quoted(value: &str) -> String {
    if value
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-._/@^+".contains(c))
    {
        return value.to_owned();
    }
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for c in value.chars() {
        let escape = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            c if c.is_ascii_control() => &format!("\\x{:02x}", u32::from(c)),
            c => {
                text.push(c);
                continue;
            }
        };
        text.push_str(escape);
    }
    text.push('"');
    visible::line(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn logfmt_equals_that_of_the_original() {
        let check = |message, pairs: &[(&str, &str)], expected: &str| {
            let entry = Entry {
                level: Level::Warn,
                text: message,
                fields: fields(pairs),
            };
            let line = entry.logfmt(UNIX_EPOCH);
            assert_eq!(
                line,
                format!("time=\"1970-01-01T00:00:00Z\" level=warning msg={expected}\n")
            );
            let shown = message.replace('\n', "\\n").replace('\u{1}', "\\x01");
            assert!(
                !message.is_ascii()
                    || !pairs.is_empty()
                    || super::message(line.trim_end()) == shown,
                "{line}"
            );
        };
        check("done", &[], "done");
        check("two words", &[], "\"two words\"");
        check("a\"b\\\n\u{1}", &[], r#""a\"b\\\n\x01""#);
        check("\u{202e}\u{9b}", &[], r#""\u202e\u009b""#);
        check(
            "x",
            &[("name", "a/b"), ("dry-run", "false"), ("z", "")],
            "x dry-run=false name=a/b z=",
        );
    }

    #[test]
    fn terminal_output_has_short_levels_and_no_control_characters() {
        let text = "evil\u{1b}[2J\nINFO[0000] fine";
        let line = Entry {
            level: Level::Info,
            text,
            fields: fields(&[]),
        }
        .terminal(Duration::from_secs(7), false);
        assert_eq!(
            line,
            "INFO[0007] evil\\u001b[2J\n           INFO[0000] fine\n"
        );
        let entry = Entry {
            level: Level::Error,
            text: "x",
            fields: fields(&[("a", "b c")]),
        };
        let line = entry.terminal(Duration::ZERO, true);
        assert!(line.starts_with("\x1b[31mERRO\x1b[0m[0000] x "), "{line}");
        assert!(line.ends_with("\x1b[31ma\x1b[0m=\"b c\"\n"), "{line}");
    }

    #[test]
    fn json_lines_separate_fields_from_reserved_names() {
        let fields = fields(&[("msg", "x"), ("node", "n")]);
        let line = Entry {
            level: Level::Info,
            text: "m\n",
            fields,
        }
        .json(UNIX_EPOCH);
        let expected = r#"{"fields.msg":"x","level":"info","msg":"m\n","node":"n","time":"1970-01-01T00:00:00Z"}"#;
        assert_eq!(line, format!("{expected}\n"));
    }

    #[test]
    fn full_log_is_reported_once() {
        let folder = crate::temp::Folder::new().unwrap();
        let path = folder.join("log");
        let mut tee = Tee {
            file: File::create(&path).unwrap(),
            bytes_left: 25,
        };
        ["0123456789\n"; 5].iter().for_each(|line| tee.write(line));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("0123456789\n0123456789\n{") && text.lines().count() == 3,
            "{text}"
        );
    }

    #[test]
    fn both_spellings_of_warn_are_accepted() {
        assert_eq!(filter("WARN"), LevelFilter::Warn);
        assert_eq!(filter("warning"), LevelFilter::Warn);
    }

    #[test]
    fn errors_are_shown_at_the_most_severe_levels() {
        assert_eq!(filter("fatal"), LevelFilter::Error);
        assert_eq!(filter("panic"), LevelFilter::Error);
    }
}
