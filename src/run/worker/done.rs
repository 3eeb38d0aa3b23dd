//! Waits for the done file: when it appears, when it counts, which path it names.
//!
//! A plugin writes the path of its result into `done`, in one piece or several; a sidecar may
//! delete the file within the delay and write another one later. The watch is armed before the
//! first look. Arming before looking leaves no gap; each wait is at most [`POLL`], so lost events,
//! exhausted inotify limits and file systems without events cost at most a second.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecursiveMode, Watcher as _};

use base::retry::patiently;
use base::stop::Stop;
use base::sys::{self, Opened};
use client::protocol::{ContainersEnd, DONE_FILE};

/// Maximum interval between two looks.
const POLL: Duration = Duration::from_secs(1);
/// Time for a sidecar to delete the done file again and post-process the plugin's results.
pub(super) const DONE_DELAY: Duration = Duration::from_secs(5);
/// Time after which a path without a newline counts as complete.
const SETTLED: Duration = Duration::from_millis(500);
/// Time after which an empty file or a path that does not exist counts as an error.
const SETTLED_WRONG: Duration = Duration::from_secs(2);
/// Maximum bytes read from a done file.
const CONTENT_LIMIT: u64 = 64 * 1024;
/// Maximum characters of a done file quoted in a message.
const QUOTED: usize = 200;
/// Free bytes below which a disk is full: a block, which the path of a result needs.
const MIN_FREE_BYTES: u64 = 4 << 10;

/// How a worker learns that all other containers of its pod have succeeded.
#[derive(Clone, Default)]
pub(super) struct Others {
    /// Stopped when all of them have succeeded at least once.
    well: Stop,
    /// Stopped when none of them will be started again, so that the result can no longer change.
    for_good: Stop,
    /// File that exists when they have succeeded for good, if they run on the worker's machine.
    marker: Option<PathBuf>,
}

impl Others {
    pub(super) fn new(marker: Option<PathBuf>) -> Self {
        Self {
            marker,
            ..Self::default()
        }
    }

    /// Notes their end, as the aggregator knows it.
    pub(super) fn note(&self, end: ContainersEnd) {
        if end == ContainersEnd::SucceededForGood {
            self.for_good.stop();
        }
        self.well.stop();
    }

    /// How they have ended.
    fn end(&self) -> Option<ContainersEnd> {
        if self.for_good.stopped() || self.marker.as_ref().is_some_and(|file| file.exists()) {
            return Some(ContainersEnd::SucceededForGood);
        }
        self.well.stopped().then_some(ContainersEnd::Succeeded)
    }
}

/// Outcome of waiting.
#[derive(Debug, PartialEq)]
pub(super) enum DoneOutcome {
    /// Result that the done file names.
    Result(Named),
    /// The done file names nothing that could be sent.
    Unusable(String),
    /// No done file, but all other containers have succeeded.
    OthersEnded,
    /// Stopped before.
    Stopped,
}

/// A file or directory that a done file names.
#[derive(Debug, PartialEq)]
pub(super) struct Named {
    /// Path as written by the plugin.
    pub path: PathBuf,
    /// Parent of the results directory and relative path, both without links; where any path is
    /// allowed, the path itself and nothing.
    at: (PathBuf, PathBuf),
}

impl Named {
    /// Opens it; fails if a component has become a link since the check.
    pub(super) fn open(&self) -> std::io::Result<Opened> {
        let (folder, relative) = &self.at;
        patiently(|| Opened::beneath(folder, relative))
    }
}

/// Location of a plugin's results.
#[derive(Debug)]
pub struct ResultsDir {
    /// Directory of the done file.
    pub dir: PathBuf,
    /// Mount path of that directory in the plugin's container.
    pub mount: Option<PathBuf>,
    /// Whether the done file may name paths outside it.
    pub anywhere: bool,
}

/// Waits until the plugin is done. A done file counts `delay` after its first appearance, with its
/// content at that time, or as soon as all containers have ended for good. After a short delay, a
/// result that still changes is waited for, at most as long as the original waits.
pub(super) fn wait(
    place: &ResultsDir,
    delay: Duration,
    others: &Others,
    stop: &Stop,
) -> DoneOutcome {
    let (wake, woken) = mpsc::sync_channel(1);
    let hook = |told: &Stop| {
        let wake = wake.clone();
        told.on_stop(move || {
            let _ = wake.try_send(());
        })
    };
    let _hooks = [stop, &others.well, &others.for_good].map(hook);
    let files: Vec<_> = others
        .marker
        .iter()
        .cloned()
        .chain([place.dir.join(DONE_FILE)])
        .collect();
    // Watching before looking leaves no gap.
    let _watcher = watch(&files, &wake)
        .inspect_err(|error| {
            // Typical causes: a missing directory, or inotify limits, which all containers of a
            // node share.
            log::info!("no file events ({error}), checking every {POLL:?} instead");
        })
        .ok();
    let mut done_file: Option<ObservedDoneFile> = None;
    loop {
        // Before the look: the last container may write the file just before it ends.
        let end = others.end();
        let last = end == Some(ContainersEnd::SucceededForGood);
        done_file = place.read_done_file().map(|look| {
            let result = look.as_ref().ok().and_then(|text| place.result_state(text));
            ObservedDoneFile::new(look, result, done_file.take())
        });
        let pause = match &done_file {
            Some(done_file) => {
                match done_file.judge(place, if last { Duration::ZERO } else { delay }, last) {
                    Ok(found) => return found,
                    Err(pause) => pause.min(POLL),
                }
            }
            None if end.is_some() => return DoneOutcome::OthersEnded,
            None => POLL,
        };
        let _ = woken.recv_timeout(pause);
        if stop.stopped() {
            return DoneOutcome::Stopped;
        }
    }
}

/// Size and time of the last change of a result.
type ResultState = (u64, Option<SystemTime>);

/// A done file at its latest look.
struct ObservedDoneFile {
    /// First appearance of any done file.
    first: Instant,
    /// Time of the last change.
    since: Instant,
    /// Its content, or the reason why it cannot be read.
    look: Result<Vec<u8>, String>,
    /// The result that it names, if that exists.
    result: Option<ResultState>,
    /// Time when the result was first seen in this state.
    result_since: Instant,
}

impl ObservedDoneFile {
    /// What was seen now, after what was seen `before`.
    fn new(
        look: Result<Vec<u8>, String>,
        result: Option<ResultState>,
        before: Option<Self>,
    ) -> Self {
        let now = Instant::now();
        let same_content = before.as_ref().filter(|before| before.look == look);
        let same_result = before.as_ref().filter(|before| before.result == result);
        Self {
            first: before.as_ref().map_or(now, |before| before.first),
            since: same_content.map_or(now, |before| before.since),
            result_since: same_result.map_or(now, |before| before.result_since),
            look,
            result,
        }
    }

    /// Time for which the result must stay as it is.
    fn time_to_stay(&self, delay: Duration) -> Duration {
        let to_stay = delay.min(SETTLED);
        let time_left = to_stay.saturating_sub(self.result_since.elapsed());
        time_left.min(DONE_DELAY.saturating_sub(self.first.elapsed()))
    }

    /// Returns the outcome, or the time to wait before the next look.
    fn judge(
        &self,
        place: &ResultsDir,
        delay: Duration,
        last: bool,
    ) -> Result<DoneOutcome, Duration> {
        let time_left = delay.saturating_sub(self.first.elapsed());
        let time_left = time_left.max(self.time_to_stay(delay));
        if !time_left.is_zero() {
            return Err(time_left);
        }
        let (found, settled) = match &self.look {
            Err(why) => (DoneOutcome::Unusable(why.clone()), SETTLED_WRONG),
            Ok(content) => match place.named(content) {
                Ok(named) if content.ends_with(b"\n") => return Ok(DoneOutcome::Result(named)),
                Ok(named) => (DoneOutcome::Result(named), SETTLED),
                Err(why) => (DoneOutcome::Unusable(why), SETTLED_WRONG),
            },
        };
        let time_left = settled.saturating_sub(self.since.elapsed());
        // An error of the disk may pass even when nothing can change any more.
        let is_final = last && matches!(found, DoneOutcome::Result(_));
        if is_final || time_left.is_zero() {
            Ok(found)
        } else {
            Err(time_left)
        }
    }
}

impl ResultsDir {
    /// The content of the done file, if there is one, or the reason why it cannot be read.
    fn read_done_file(&self) -> Option<Result<Vec<u8>, String>> {
        let path = self.dir.join(DONE_FILE);
        let read = || {
            // Opening a pipe blocks until it has a writer.
            if !path.metadata()?.is_file() {
                return Err(std::io::Error::other("it is not a regular file"));
            }
            self.check_is_no_link()?;
            // Messages quote the content, which must not be a secret file.
            if !self.anywhere && self.inside(&path)?.is_none() {
                return Err(std::io::Error::other(
                    "it is a link to a file outside the results folder",
                ));
            }
            let mut content = Vec::new();
            File::open(&path)?
                .take(CONTENT_LIMIT)
                .read_to_end(&mut content)?;
            Ok(content)
        };
        let why = |error| format!("the done file `{}` cannot be read: {error}", path.display());
        base::if_exists(read()).map_err(why).transpose()
    }

    /// State of the result that the content of a done file names.
    fn result_state(&self, content: &[u8]) -> Option<ResultState> {
        let result = self.named(content).ok()?.path.metadata().ok()?;
        Some((result.len(), result.modified().ok()))
    }

    /// Path in a done file, if it exists and may be sent. A relative path is resolved in the
    /// results directory first, then in the current one.
    fn named(&self, content: &[u8]) -> Result<Named, String> {
        let text = std::str::from_utf8(content)
            .map_err(|_| "the done file does not contain text".to_owned())?
            .trim();
        if text.is_empty() {
            return Err(why_empty(&self.dir, sys::free_bytes(&self.dir)));
        }
        let (given, beside) = (self.local_path(text), self.dir.join(text));
        let quoted = base::visible::cut(text, QUOTED);
        let path = match given.metadata() {
            _ if given.is_relative() && beside.exists() => beside,
            Ok(_) => given,
            Err(error) => {
                return Err(format!(
                    "the done file names `{quoted}`, which cannot be read: {error}"
                ));
            }
        };
        if self.anywhere {
            return Ok(Named {
                at: (path.clone(), PathBuf::new()),
                path,
            });
        }
        match self.inside(&path) {
            Ok(Some(inside)) => Ok(Named { path, at: inside }),
            Ok(None) => Err(format!(
                "the done file names `{quoted}`, which lies outside the results folder `{}`; \
                 leave the result there, or set `results-anywhere: true` in the definition's \
                 `sonobuoy-config`",
                self.dir.display()
            )),
            Err(error) => Err(format!(
                "the done file names `{quoted}`, which cannot be read: {error}"
            )),
        }
    }

    /// Maps a path of the plugin's container to this one.
    fn local_path(&self, text: &str) -> PathBuf {
        let path = Path::new(text);
        let mount = self.mount.as_ref().filter(|_| !path.starts_with(&self.dir));
        match mount.and_then(|mount| path.strip_prefix(mount).ok()) {
            Some(below) => self.dir.join(below),
            None => path.into(),
        }
    }

    /// Parent of the results directory and relative path of `path` from there, with all links
    /// resolved except that of the directory itself; `None` if it is outside.
    fn inside(&self, path: &Path) -> std::io::Result<Option<(PathBuf, PathBuf)>> {
        let (parent, name) = self.parent_and_name()?;
        let (dir, path) = (parent.join(&name), path.canonicalize()?);
        let relative = path.strip_prefix(&dir).map(|relative| name.join(relative));
        Ok(relative.ok().map(|relative| (parent, relative)))
    }

    fn parent_and_name(&self) -> std::io::Result<(PathBuf, PathBuf)> {
        let dir = std::path::absolute(&self.dir)?;
        match (dir.parent(), dir.file_name()) {
            (Some(parent), Some(name)) => Ok((parent.canonicalize()?, name.into())),
            _ => Ok((dir.canonicalize()?, PathBuf::new())),
        }
    }

    /// Fails if a plugin has replaced the directory by a link, which may lead anywhere.
    fn check_is_no_link(&self) -> std::io::Result<()> {
        if !self.dir.symlink_metadata()?.is_symlink() {
            return Ok(());
        }
        let why = "the results folder was replaced by a link";
        Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
    }

    /// Opens the directory itself.
    pub(super) fn open(&self) -> std::io::Result<Opened> {
        self.check_is_no_link()?;
        let (parent, name) = self.parent_and_name()?;
        // Fails on a link that is new.
        patiently(|| Opened::beneath(&parent, &name))
    }
}

/// The error for an empty done file, which a program leaves that cannot write to a full disk.
fn why_empty(dir: &Path, free_bytes: u64) -> String {
    if free_bytes >= MIN_FREE_BYTES {
        return "the done file is empty; it must contain the path of the result".into();
    }
    format!(
        "the done file is empty because the disk of the results folder `{}` is full; free space \
         on the node's disk, or raise the `sizeLimit` of the volume `results`",
        dir.display()
    )
}

/// Signals `wake` at every event of `files`.
fn watch(files: &[PathBuf], wake: &SyncSender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let (names, wake, handler) = (files.to_vec(), wake.clone(), Arc::new(()));
    let running = Arc::downgrade(&handler);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let _ = &handler;
        if event.map_or(true, |event| matters(&event, &names)) {
            // A full channel already holds a signal.
            let _ = wake.try_send(());
        }
    })?;
    if running.strong_count() == 0 {
        // The handler is gone because its thread could not start; using or dropping the watcher
        // would panic.
        std::mem::forget(watcher);
        return Err(notify::Error::generic("its thread could not start"));
    }
    for folder in files.iter().filter_map(|file| file.parent()) {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// Opening a file is an event, too, which must not cause the next look.
fn matters(event: &notify::Event, files: &[PathBuf]) -> bool {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    event.paths.is_empty()
        || event.need_rescan()
        || event.paths.iter().any(|path| files.contains(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Temporary directory of one test.
    struct Folder(base::temp::Folder);

    impl Folder {
        fn new() -> Self {
            Self(base::temp::Folder::new().unwrap())
        }
    }

    fn wait(dir: &Path, delay: Duration, others: &Others, stop: &Stop) -> DoneOutcome {
        super::wait(
            &ResultsDir {
                dir: dir.to_owned(),
                mount: None,
                anywhere: false,
            },
            delay,
            others,
            stop,
        )
    }

    impl Named {
        /// Absolute path.
        fn real(&self) -> PathBuf {
            let (folder, relative) = &self.at;
            folder.join(relative)
        }
    }

    fn result(dir: &Path, relative: &str) -> DoneOutcome {
        let name = Path::new(dir.file_name().unwrap());
        let at = (dir.parent().unwrap().to_owned(), name.join(relative));
        let path = if relative.is_empty() {
            dir.to_owned()
        } else {
            dir.join(relative)
        };
        DoneOutcome::Result(Named { path, at })
    }

    /// Checks the outcome when `content` is written before the look.
    fn check(
        name: &str,
        content: &str,
        expected: impl FnOnce(&Path) -> Result<PathBuf, &'static str>,
    ) {
        let folder = Folder::new();
        fs::write(folder.0.join("report.txt"), "x").unwrap();
        let content = content.replace("DIR", folder.0.to_str().unwrap());
        fs::write(folder.0.join(DONE_FILE), content).unwrap();
        let found = wait(&folder.0, Duration::ZERO, &Others::default(), &Stop::new());
        match (found, expected(&folder.0)) {
            (DoneOutcome::Result(named), Ok(expected)) => {
                assert_eq!(named.real(), expected, "{name}");
            }
            (DoneOutcome::Unusable(why), Err(expected)) => {
                assert!(why.contains(expected), "{name}: {why}");
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }

    #[test]
    fn done_file_is_trimmed() {
        check("newline", "DIR/report.txt\n", |dir| {
            Ok(dir.join("report.txt"))
        });
        check("none", "DIR/report.txt", |dir| Ok(dir.join("report.txt")));
        check("space", " \tDIR/report.txt \r\n\n", |dir| {
            Ok(dir.join("report.txt"))
        });
        check("folder", "DIR\n", |dir| Ok(dir.to_owned()));
        check("relative", "report.txt\n", |dir| Ok(dir.join("report.txt")));
    }

    #[test]
    fn only_a_readable_done_file_counts_at_once_when_all_have_ended() {
        let folder = Folder::new();
        fs::write(folder.0.join("report.txt"), "x").unwrap();
        let place = ResultsDir {
            dir: folder.0.to_path_buf(),
            mount: None,
            anywhere: false,
        };
        for (look, is_final) in [
            (Ok(b"report.txt".to_vec()), true),
            (Ok(Vec::new()), false),
            (Ok(b"missing.txt".to_vec()), false),
            (Err("cannot be read: Input/output error".into()), false),
        ] {
            let seen = ObservedDoneFile::new(look, None, None);
            let judged = seen.judge(&place, Duration::ZERO, true);
            assert_eq!(judged.is_ok(), is_final, "{:?}", seen.look);
        }
    }

    #[test]
    fn results_folder_replaced_by_a_link_is_an_error() {
        let outer = Folder::new();
        let dir = outer.0.join("results");
        let place = ResultsDir {
            dir: dir.clone(),
            mount: None,
            anywhere: false,
        };
        fs::create_dir_all(&dir).unwrap();
        assert!(matches!(place.open(), Ok(Opened::Folder(_))));
        fs::create_dir(outer.0.join("other")).unwrap();
        fs::write(outer.0.join("other/r"), "x").unwrap();
        fs::write(dir.join("r"), "x").unwrap();
        let named = place.named(b"r").unwrap();
        fs::remove_file(dir.join("r")).unwrap();
        fs::remove_dir(&dir).unwrap();
        base::sys::symlink(&outer.0.join("other"), &dir).unwrap();
        let error = place.open().unwrap_err().to_string();
        assert_eq!(error, "the results folder was replaced by a link");
        named.open().unwrap_err();
        assert!(
            place
                .named(b"r")
                .unwrap_err()
                .contains("outside the results folder")
        );
        fs::write(dir.join(DONE_FILE), "r\n").unwrap();
        let look = place.read_done_file().unwrap().unwrap_err();
        assert!(look.contains("was replaced by a link"), "{look}");
    }

    #[test]
    fn empty_done_file_is_explained() {
        check("empty", "", |_| Err("is empty"));
        check("blank", " \n", |_| Err("is empty"));
        check("missing", "DIR/none\n", |_| {
            Err("/none`, which cannot be read")
        });
    }

    #[test]
    fn full_disk_explains_an_empty_done_file() {
        for (free_bytes, words) in [
            (0, "is full; free space"),
            (4_095, "is full"),
            (4_096, "must contain the path"),
        ] {
            let why = why_empty(Path::new("/results"), free_bytes);
            assert!(why.contains(words), "{free_bytes}: {why}");
        }
    }

    #[test]
    fn path_outside_the_results_folder_is_a_plugin_error() {
        let symlink = |target: &str, path: PathBuf| base::sys::symlink(Path::new(target), &path);
        let outer = Folder::new();
        let dir = outer.0.join("results");
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::create_dir_all(outer.0.join("results-of-others")).unwrap();
        // A file of this name also exists in the tests' working directory.
        for file in [
            "secret",
            "results/inner",
            "results/Cargo.toml",
            "results-of-others/x",
        ] {
            fs::write(outer.0.join(file), "x").unwrap();
        }
        symlink("../secret", dir.join("link")).unwrap();
        symlink("..", dir.join("sub/up")).unwrap();
        symlink("../..", dir.join("sub/out")).unwrap();
        for (text, inside) in [
            ("DIR/inner", true),
            ("DIR/sub/../inner", true),
            ("DIR/sub/up/inner", true),
            ("inner", true),
            ("Cargo.toml", true),
            ("/old/inner", true),
            ("/old/sub/../inner", true),
            ("/old", true),
            ("/old/link", false),
            ("/old/../secret", false),
            ("/old/sub/out", false),
            ("DIR/link", false),
            ("link", false),
            ("DIR/../secret", false),
            ("DIR/sub/out/secret", false),
            ("DIR/sub/out", false),
            ("DIR-of-others/x", false),
            ("DIR/..", false),
            ("/", false),
            ("/etc/passwd", false),
            ("/proc/self/environ", false),
        ] {
            let text = text.replace("DIR", dir.to_str().unwrap());
            fs::write(dir.join(DONE_FILE), format!("{text}\n")).unwrap();
            let found = |anywhere| {
                let place = ResultsDir {
                    dir: dir.clone(),
                    mount: Some("/old".into()),
                    anywhere,
                };
                super::wait(&place, Duration::ZERO, &Others::default(), &Stop::new())
            };
            match found(false) {
                DoneOutcome::Result(named) => assert!(inside && named.open().is_ok(), "{text}"),
                DoneOutcome::Unusable(why) => {
                    assert!(
                        !inside && why.contains("outside the results folder"),
                        "{why}"
                    );
                }
                other => panic!("{text}: {other:?}"),
            }
            if text.starts_with('/') {
                assert!(matches!(found(true), DoneOutcome::Result(_)), "{text}");
            }
        }
        // The content of another file is neither taken for a path nor quoted.
        fs::remove_file(dir.join(DONE_FILE)).unwrap();
        symlink("../secret", dir.join(DONE_FILE)).unwrap();
        let found = wait(&dir, Duration::ZERO, &Others::default(), &Stop::new());
        assert!(
            matches!(&found, DoneOutcome::Unusable(why) if why.contains("a link to a file outside")),
            "{found:?}"
        );
    }

    #[test]
    fn result_replaced_by_a_link_is_not_followed() {
        let folder = Folder::new();
        fs::create_dir_all(folder.0.join("out/reports")).unwrap();
        fs::write(folder.0.join("out/report"), "x").unwrap();
        for (text, elsewhere) in [("out/report\n", "/etc/passwd"), ("out/reports\n", "/etc")] {
            fs::write(folder.0.join(DONE_FILE), text).unwrap();
            let found = wait(&folder.0, Duration::ZERO, &Others::default(), &Stop::new());
            let DoneOutcome::Result(named) = found else {
                panic!("{found:?}")
            };
            let path = folder.0.join(text.trim());
            fs::rename(&path, folder.0.join("away")).unwrap();
            base::sys::symlink(Path::new(elsewhere), &path).unwrap();
            named.open().unwrap_err();
            // Neither is a link in a parent component.
            fs::remove_file(&path).unwrap();
            fs::rename(folder.0.join("away"), &path).unwrap();
            named.open().unwrap();
            fs::rename(folder.0.join("out"), folder.0.join("moved")).unwrap();
            base::sys::symlink(Path::new("moved"), &folder.0.join("out")).unwrap();
            named.open().unwrap_err();
            fs::remove_file(folder.0.join("out")).unwrap();
            fs::rename(folder.0.join("moved"), folder.0.join("out")).unwrap();
        }
    }

    #[test]
    fn incomplete_done_file_is_not_read() {
        let folder = Folder::new();
        let (dir, done) = (folder.0.to_path_buf(), folder.0.join(DONE_FILE));
        fs::write(dir.join("report.txt"), "x").unwrap();
        // The first half names the directory, which exists.
        fs::write(&done, dir.to_str().unwrap()).unwrap();
        let whole = dir.join("report.txt");
        let writer = {
            let (done, text) = (done.clone(), format!("{}\n", whole.display()));
            std::thread::spawn(move || {
                Stop::new().wait(Duration::from_millis(200));
                fs::write(done, text).unwrap();
            })
        };
        assert_eq!(
            wait(&dir, Duration::ZERO, &Others::default(), &Stop::new()),
            result(&dir, "report.txt")
        );
        writer.join().unwrap();
    }

    #[test]
    fn done_file_may_change_within_the_delay() {
        let folder = Folder::new();
        let (dir, done) = (folder.0.to_path_buf(), folder.0.join(DONE_FILE));
        for name in ["first", "second", "third"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        let write =
            |name: &str| fs::write(&done, format!("{}\n", dir.join(name).display())).unwrap();
        write("first");
        let waiter = {
            let dir = dir.clone();
            std::thread::spawn(move || {
                wait(
                    &dir,
                    Duration::from_millis(600),
                    &Others::default(),
                    &Stop::new(),
                )
            })
        };
        let pause = |millis| Stop::new().wait(Duration::from_millis(millis));
        pause(200);
        write("second");
        pause(200);
        // A sidecar takes over.
        fs::remove_file(&done).unwrap();
        pause(800);
        assert!(!waiter.is_finished(), "what was taken away does not count");
        write("third");
        assert_eq!(waiter.join().unwrap(), result(&folder.0, "third"));
    }

    #[test]
    fn result_that_changes_after_a_short_delay_is_waited_for() {
        let look = || Ok(b"report.txt\n".to_vec());
        let ago = |seconds| {
            Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .unwrap()
        };
        let folder = Folder::new();
        fs::write(folder.0.join("report.txt"), "x").unwrap();
        let place = ResultsDir {
            dir: folder.0.to_path_buf(),
            mount: None,
            anywhere: false,
        };
        let short = Duration::from_millis(500);
        for (first, state_before, delay, is_ready) in [
            (1, 1, short, true),
            (1, 2, short, false),
            (6, 2, short, true),
            (6, 2, DONE_DELAY, true),
            (1, 2, Duration::ZERO, true),
        ] {
            let mut before = ObservedDoneFile::new(look(), Some((state_before, None)), None);
            (before.first, before.since, before.result_since) = (ago(first), ago(1), ago(1));
            let seen = ObservedDoneFile::new(look(), Some((1, None)), Some(before));
            let judged = seen.judge(&place, delay, false);
            assert_eq!(
                judged.is_ok(),
                is_ready,
                "{first}, {state_before}, {delay:?}"
            );
        }
    }

    #[test]
    fn end_of_containers_counts_only_without_done_file() {
        let folder = Folder::new();
        let marker = folder.0.join("ended");
        fs::write(&marker, "").unwrap();
        let dir = folder.0.join("results");
        fs::create_dir(&dir).unwrap();
        let others = Others::new(Some(marker));
        let wait = || wait(&dir, Duration::ZERO, &others, &Stop::new());
        assert_eq!(wait(), DoneOutcome::OthersEnded);
        fs::write(dir.join(DONE_FILE), format!("{}\n", dir.display())).unwrap();
        assert_eq!(wait(), result(&dir, ""));
        // The delay applies only while the result may change.
        let found = super::tests::wait(&dir, Duration::from_secs(3600), &others, &Stop::new());
        assert_eq!(found, result(&dir, ""));
    }

    #[test]
    fn end_of_the_wait_is_reported() {
        let folder = Folder::new();
        let dir = folder.0.to_path_buf();
        let waiter = |delay: u64| {
            let (dir, others) = (dir.clone(), Others::default());
            let noted = others.clone();
            let wait = move || wait(&dir, Duration::from_secs(delay), &others, &Stop::new());
            (std::thread::spawn(wait), noted)
        };
        let (waiting, others) = waiter(0);
        others.note(ContainersEnd::Succeeded);
        assert_eq!(waiting.join().unwrap(), DoneOutcome::OthersEnded);

        fs::write(dir.join(DONE_FILE), format!("{}\n", dir.display())).unwrap();
        let (waiting, others) = waiter(3600);
        others.note(ContainersEnd::Succeeded);
        Stop::new().wait(Duration::from_millis(300));
        assert!(
            !waiting.is_finished(),
            "what may be started again may change it"
        );
        others.note(ContainersEnd::SucceededForGood);
        assert_eq!(waiting.join().unwrap(), result(&dir, ""));
    }

    #[test]
    fn stop_ends_waiting_for_a_missing_folder() {
        let stop = Stop::new();
        let waiter = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                wait(
                    Path::new("/does/not/exist"),
                    Duration::ZERO,
                    &Others::default(),
                    &stop,
                )
            })
        };
        stop.stop();
        assert_eq!(waiter.join().unwrap(), DoneOutcome::Stopped);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pipe_as_done_file_is_unusable_without_blocking() {
        let folder = Folder::new();
        let (pipe, mode) = (
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
        );
        rustix::fs::mknodat(rustix::fs::CWD, folder.0.join(DONE_FILE), pipe, mode, 0).unwrap();
        let found = wait(&folder.0, Duration::ZERO, &Others::default(), &Stop::new());
        assert!(
            matches!(&found, DoneOutcome::Unusable(why) if why.contains("not a regular file")),
            "{found:?}"
        );
    }
}
