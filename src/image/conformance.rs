//! What the conformance image of a version says of itself: the images of its tests, and their names.
//!
//! Only the program of the tests knows them, so it is taken out of the image and asked, in a folder of its own: without
//! our environment, without network where the system allows that, within bounds of time, memory and output. Nothing else
//! of the image is unpacked. Needs no container daemon; where the program cannot run, its caller is told why.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::lists::listed;
use base::at::At as _;
use base::oci::{Client, Reference, Store, Stored};
use base::sys;
use base::temp;

/// Where the program is in the image.
const PROGRAM: &str = "usr/local/bin/e2e.test";
/// It has 130 to 250 MiB.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;
/// What it may say; a list of all tests has one to two MiB.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// How long it may take; it takes a second.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Its address space in KiB: programs in Go reserve far more than they use.
const MEMORY_KIB: u32 = 8 << 20;

/// The program of the tests, taken out of an image.
pub(crate) struct Tests {
    folder: temp::Folder,
    image: String,
}

impl Tests {
    /// Takes it out of an image in a registry, of which it fetches no more than it needs.
    pub(crate) fn fetch(client: &Client, image: &str) -> Result<Self> {
        let name = Reference::parse(image)?;
        Self::extract(image, |store, out| store.fetch_file(client, &name, PROGRAM, MAX_PROGRAM_BYTES, out))
    }

    /// Takes it out of an image that is in a store.
    pub(crate) fn of_stored(store: &Store, image: &Stored) -> Result<Self> {
        Self::extract(&image.name.to_string(), |_, out| store.file(image, PROGRAM, MAX_PROGRAM_BYTES, out))
    }

    fn extract(image: &str, take: impl FnOnce(&Store, &mut File) -> Result<bool>) -> Result<Self> {
        let folder = temp::Folder::new().context("cannot create a temporary folder")?;
        let store = Store::open(&folder.join("image"))?;
        let path = folder.join("e2e.test");
        let mut out = File::create_new(&path).at("cannot write", &path)?;
        sys::set_mode(&path, 0o700)?;
        ensure!(take(&store, &mut out)?, "`{image}` is not a conformance image: it has no `/{PROGRAM}`");
        // The layers have done their work, and are large.
        let _ = std::fs::remove_dir_all(folder.join("image"));
        Ok(Self { folder, image: image.to_owned() })
    }

    /// The images that the tests use, sorted.
    pub(crate) fn images(&self, env: &[(String, String)]) -> Result<Vec<String>> {
        let text = self.ask("--list-images", env)?;
        let mut images: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        for image in &images {
            Reference::parse(image)
                .with_context(|| format!("`{}` lists an image that is not one", self.image))?;
        }
        images.sort();
        ensure!(!images.is_empty(), "`{}` lists no images", self.image);
        Ok(images)
    }

    /// The names of the tests, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let text = self.ask("--list-tests", &[])?;
        let mut names: Vec<String> = text.lines().filter_map(listed).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        ensure!(!names.is_empty(), "`{}` lists no tests", self.image);
        Ok(names)
    }

    fn ask(&self, word: &str, env: &[(String, String)]) -> Result<String> {
        let program = self.folder.join("e2e.test");
        let mut command = confined(&program);
        command.arg(word).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        command.env("HOME", &*self.folder).current_dir(&*self.folder);
        command.stderr(Stdio::null());
        let what = format!("`/{PROGRAM} {word}` of `{}`", self.image);
        let (text, status) = sys::ask(&mut command, None, MAX_OUTPUT_BYTES, TIMEOUT, &|| ())
            .with_context(|| format!("cannot run {what}"))?;
        if !status.success() && text.is_empty() {
            bail!("{what} failed ({status}); an image for another machine cannot be asked here");
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Starts a program without network and with bounded memory, as far as this machine has what that takes.
fn confined(program: &Path) -> Command {
    let alone = ["--user", "--map-current-user", "--net", "--ipc"];
    let is_possible = || {
        let mut probe = Command::new("unshare");
        let probe =
            probe.args(alone).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_KIB} -c 0 2>/dev/null; exec \"$@\""), "sh"]);
    if is_possible() {
        command.arg("unshare").args(alone);
    } else {
        log::debug!("the program of the tests is asked without a namespace of its own");
    }
    command.arg(program);
    command
}
