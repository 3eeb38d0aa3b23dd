//! The images and names of the tests in a conformance image.
//!
//! Only its test program knows both, so listing executes it: extracted from the image, and isolated
//! from the machine ("A hostile image" in SECURITY.md). Nothing else of the image is unpacked.
//! Needs no container daemon; without isolation the program runs only if the caller permits it.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::lists::image_names;
use base::at::At as _;
use base::sys;
use base::temp;
use model::plugin::focus::listed_test;
use oci::{Client, Reference, Store, Stored};

/// Path of the program in the image.
const PROGRAM: &str = "usr/local/bin/e2e.test";
/// Maximum bytes of the program; it has 130 to 250 MiB.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;
/// Maximum bytes of its output; a list of all tests has one to two MiB.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// Timeout of a listing, which takes a second.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Runs a program isolated.
const ISOLATE: &str = include_str!("../../scripts/isolate");

/// The test program, extracted from an image.
pub(crate) struct Tests {
    folder: temp::Folder,
    image: String,
    unconfined: bool,
}

impl Tests {
    /// Extracts the program of an image in a registry, fetching only the layers that it needs. An
    /// `unconfined` program runs with the rights of the user.
    pub(crate) fn fetch(client: &Client, image: &str, unconfined: bool) -> Result<Self> {
        let name = Reference::parse(image)?;
        let take = |store: &Store, out: &mut File| {
            store.fetch_file(client, &name, PROGRAM, MAX_PROGRAM_BYTES, out)
        };
        Self::extract(image, unconfined, take)
    }

    /// Extracts the program of an image in a store.
    pub(crate) fn of_stored(store: &Store, image: &Stored, unconfined: bool) -> Result<Self> {
        let take = |_: &Store, out: &mut File| store.file(image, PROGRAM, MAX_PROGRAM_BYTES, out);
        Self::extract(&image.name.to_string(), unconfined, take)
    }

    fn extract(
        image: &str,
        unconfined: bool,
        take: impl FnOnce(&Store, &mut File) -> Result<bool>,
    ) -> Result<Self> {
        let folder = temp::Folder::new()?;
        let store = Store::open(&folder.join("image"))?;
        let root = folder.join("root");
        std::fs::create_dir(&root).at("cannot create", &root)?;
        let path = root.join("e2e.test");
        let mut out = File::create_new(&path).at("cannot write", &path)?;
        ensure!(
            take(&store, &mut out)?,
            "`{image}` is not a conformance image: it has no `/{PROGRAM}`"
        );
        // Executed as another user, who cannot open the parent folder.
        [&root, &path]
            .into_iter()
            .try_for_each(|path| sys::set_mode(path, 0o755))?;
        // The layers are large and no longer needed.
        let _ = std::fs::remove_dir_all(folder.join("image"));
        Ok(Self {
            folder,
            image: image.to_owned(),
            unconfined,
        })
    }

    /// The images that the tests use, sorted.
    pub(crate) fn images(&self, env: &[(String, String)]) -> Result<Vec<String>> {
        let mut images = image_names(&self.ask("--list-images", env)?, &self.image)?;
        images.sort();
        ensure!(!images.is_empty(), "`{}` lists no images", self.image);
        Ok(images)
    }

    /// The names of the tests, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = self
            .ask("--list-tests", &[])?
            .lines()
            .filter_map(listed_test)
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        ensure!(!names.is_empty(), "`{}` lists no tests", self.image);
        Ok(names)
    }

    fn ask(&self, word: &str, env: &[(String, String)]) -> Result<String> {
        let root = self.folder.join("root");
        let mut command = if self.unconfined {
            Command::new(root.join("e2e.test"))
        } else {
            require_isolation()?;
            isolated(&root, "/e2e.test")
        };
        command.arg(word).env_clear().envs(env.iter().cloned());
        command
            .envs(sys::variable("PATH").map(|path| ("PATH", path)))
            .env("HOME", "/")
            .current_dir(&root);
        command.stderr(Stdio::null());
        let what = format!("`/{PROGRAM} {word}` of `{}`", self.image);
        let (text, status) = sys::ask(&mut command, None, MAX_OUTPUT_BYTES, TIMEOUT, &|| ())
            .with_context(|| format!("cannot run {what}"))?;
        if !status.success() && text.is_empty() {
            bail!("{what} failed ({status}); only a static program for this machine can run here");
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// A command that runs a program isolated, with `root` as its root folder.
fn isolated(root: &Path, program: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", ISOLATE, "sh", &std::process::id().to_string()])
        .arg(root)
        .arg(program);
    command
}

/// Tries the isolation with a program of this machine.
fn require_isolation() -> Result<()> {
    let why = match isolated(Path::new("/"), "true")
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    bail!(
        "the image's program cannot be isolated here, and was not run ({why}); isolation takes \
         Linux, util-linux 2.38 or later, and root or user namespaces (sysctl \
         `user.max_user_namespaces`); `--unconfined` of `sonobuoy images` and `sonobuoy e2e` runs \
         the program with your rights"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a script prints in isolation, as the user of the tests and, if that is root, as another
    /// one, too.
    fn printed(script: &str, limit: Duration) -> Vec<std::io::Result<String>> {
        // Tasks are counted per user: a test that uses all of them must not run beside another.
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let users: &[&[&str]] = &[
            &[],
            &["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"],
        ];
        let is_root = sys::owner(&std::fs::metadata("/proc/self").unwrap()).0 == 0;
        users[..if is_root { 2 } else { 1 }]
            .iter()
            .map(|user| {
                let inner = isolated(Path::new("/"), "sh");
                let mut words = user
                    .iter()
                    .map(std::ffi::OsStr::new)
                    .chain([inner.get_program()])
                    .chain(inner.get_args());
                let mut command = Command::new(words.next().unwrap());
                command.args(words).args(["-c", script]).current_dir("/");
                let (bytes, _) = sys::ask(&mut command, None, 1 << 20, limit, &|| ())?;
                Ok(String::from_utf8(bytes).unwrap())
            })
            .collect()
    }

    #[test]
    fn isolated_program_has_no_privileges_network_or_processes() {
        if let Err(error) = require_isolation() {
            return base::testing::skipped("unshare", &format!("{error:#}"));
        }
        let script = "[ $(id -u) -ge 65534 ] && echo other user; echo pid $$; grep -E \
                      '^(CapEff|NoNewPrivs)' /proc/thread-self/status; tail -n +3 \
                      /proc/thread-self/net/dev | cut -d: -f1; ulimit -f; cat \
                      /proc/self/oom_score_adj";
        for said in printed(script, TIMEOUT) {
            let expected =
                "other user\npid 2\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n    lo\n0\n1000\n";
            assert_eq!(said.unwrap(), expected);
        }
    }

    #[test]
    fn descendants_of_an_isolated_program_end_with_it() {
        if let Err(error) = require_isolation() {
            return base::testing::skipped("unshare", &format!("{error:#}"));
        }
        // Another process in between is not the one whose end is awaited, as after the end of that
        // one.
        let isolated = isolated(Path::new("/"), "true");
        let mut orphan = Command::new("sh");
        orphan
            .args(["-c", "\"$@\"; exit $?", "sh"])
            .arg(isolated.get_program())
            .args(isolated.get_args());
        assert_eq!(
            orphan.status().unwrap().code(),
            Some(1),
            "it does not start without its parent"
        );
        // What still runs holds the output open.
        for said in printed("setsid sleep 600 & echo started", TIMEOUT) {
            assert_eq!(said.unwrap(), "started\n");
        }
        for said in printed(
            "setsid sleep 600 & setsid --wait sleep 600",
            Duration::from_secs(1),
        ) {
            assert_eq!(said.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        }
        let bomb = "i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i + 1)); done; echo all";
        for said in printed(bomb, TIMEOUT) {
            assert_eq!(said.unwrap(), "", "300 processes are too many");
        }
    }
}
