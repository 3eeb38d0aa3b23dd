//! The node's files: everything is read below one root, as if it were `/`.
//!
//! Owns the root, the confinement of links to it, read limits, and the list of unreadable files.
//! Does not interpret files. Starts no thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use super::between;
use base::small;

/// Maximum bytes of a file, which covers libraries with facts.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Maximum links followed, as in the kernel.
const MAX_LINKS: usize = 40;

/// A node's file system, at `/` or below the folder where a container has it mounted.
pub struct NodeFiles {
    /// Its `/`, as seen by this process.
    pub root: PathBuf,
    /// Whether it is the system of this process, so that system calls describe it, too.
    pub live: bool,
    /// Whether executable facts are enabled.
    pub programs: bool,
    unread: RefCell<BTreeMap<String, String>>,
}

impl NodeFiles {
    /// The node below `root`; an error if that is not the root of a system.
    pub fn open(root: &Path) -> Result<Self> {
        let given_root = root.display();
        let root = root
            .canonicalize()
            .with_context(|| format!("cannot look at `{given_root}`, the node's root"))?;
        ensure!(
            root.is_dir(),
            "`{given_root}` is not a directory, so it cannot be a node's root"
        );
        let exists = |name: &&str| root.join(name).symlink_metadata().is_ok();
        ensure!(
            ["etc", "proc", "usr"].iter().any(exists),
            "`{given_root}` is not the root of a system: it has none of `etc`, `proc` and `usr`; mount \
             the node's `/` there or name the right folder with --chroot"
        );
        let boot =
            |root: &Path| fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).ok();
        let live = root == Path::new("/")
            || boot(&root).is_some_and(|id| boot(Path::new("/")) == Some(id));
        Ok(Self {
            root,
            live,
            programs: false,
            unread: RefCell::default(),
        })
    }

    /// The trimmed text of a file; `None` if it is empty or does not exist. Records a file that
    /// exists but cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(['\0', ' ', '\n', '\t', '\r']);
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The first text of several files.
    pub fn first(&self, paths: impl IntoIterator<Item = impl AsRef<str>>) -> Option<String> {
        paths.into_iter().find_map(|path| self.text(path.as_ref()))
    }

    /// The word in brackets, by which the kernel marks the chosen one of several.
    pub fn chosen(&self, path: &str) -> Option<String> {
        between(&self.text(path)?, '[', ']').map(str::to_owned)
    }

    /// The number with which a file begins.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?
            .split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    }

    /// The content of a file.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        // Opening a pipe or device in place of a file would block forever.
        self.resolve(path, true)
            .and_then(|path| small::read_regular(&path, MAX_FILE_BYTES))
            .map_err(|error| self.note_error(path, &error))
            .ok()
    }

    /// The names in a folder, sorted; empty if it does not exist.
    pub fn list(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .resolve(path, true)
            .and_then(fs::read_dir)
            .map_err(|error| self.note_error(path, &error))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The target of a link, unresolved; `None` if it is not a link.
    pub fn link(&self, path: &str) -> Option<PathBuf> {
        fs::read_link(self.resolve(path, false).ok()?).ok()
    }

    /// The last component of a link's target, which is what matters in `/sys` and `/dev/disk`.
    pub fn link_name(&self, path: &str) -> Option<String> {
        Some(self.link(path)?.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether a file or folder exists.
    pub fn exists(&self, path: &str) -> bool {
        self.resolve(path, true).is_ok_and(|path| path.exists())
    }

    /// Records a path that could not be read, and the reason.
    pub fn note(&self, path: &str, why: impl Into<String>) {
        self.unread.borrow_mut().insert(path.to_owned(), why.into());
    }

    /// Unreadable paths so far, and the reasons.
    pub fn unread(&self) -> BTreeMap<String, String> {
        self.unread.borrow().clone()
    }

    /// The path of a node's file for this process; follows links only inside the root.
    pub fn resolve(&self, path: &str, follow_last: bool) -> io::Result<PathBuf> {
        if self.root == Path::new("/") && follow_last {
            return Ok(path.into());
        }
        let mut components_left = components(Path::new(path));
        let mut resolved = PathBuf::new();
        let mut links = 0;
        while let Some(name) = components_left.pop() {
            if name == ".." {
                resolved.pop();
                continue;
            }
            let next = resolved.join(name);
            let is_kept = components_left.is_empty() && !follow_last;
            let Some(target) = fs::read_link(self.root.join(&next))
                .ok()
                .filter(|_| !is_kept)
            else {
                resolved = next;
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::other("too many links"));
            }
            if target.is_absolute() {
                resolved = PathBuf::new();
            }
            components_left.extend(components(&target));
        }
        Ok(self.root.join(resolved))
    }

    fn note_error(&self, path: &str, error: &io::Error) {
        // Absence is not an error, nor are the codes of drivers for attributes that a device does
        // not support.
        match Errno::from_io_error(error) {
            Some(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::INVAL
                | Errno::NODEV
                | Errno::OPNOTSUPP
                | Errno::SRCH,
            ) => {}
            _ => self.note(path, error.to_string()),
        }
    }
}

/// Names and `..` in a path, the last one first.
fn components(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder for one test, removed at its end.
    pub struct Scratch(pub base::temp::Folder);

    impl Default for Scratch {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Scratch {
        pub fn new() -> Self {
            Self(base::temp::Folder::new().unwrap())
        }

        /// A node with the given files.
        pub fn node(files: &[(&str, &str)]) -> (Self, NodeFiles) {
            let scratch = Self::new();
            fs::create_dir_all(scratch.0.join("etc")).unwrap();
            for (path, text) in files {
                let path = scratch.0.join(path.trim_start_matches('/'));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let node = NodeFiles::open(&scratch.0).unwrap();
            (scratch, node)
        }
    }

    #[test]
    fn links_stay_below_the_root() {
        let (scratch, node) = Scratch::node(&[("run/real", "inside\n")]);
        let at = |name: &str| scratch.0.join(name);
        symlink("/run/real", at("etc/absolute")).unwrap();
        symlink("../../../../../run/real", at("etc/upwards")).unwrap();
        symlink("/run", at("var")).unwrap();
        symlink("loop", at("etc/loop")).unwrap();
        symlink("/etc/hostname", at("etc/outside")).unwrap();
        for (path, expected) in [
            ("/etc/absolute", Some("inside")),
            ("/etc/upwards", Some("inside")),
            ("/var/real", Some("inside")),
            ("/etc/../run/./real", Some("inside")),
            ("/etc/loop", None),
            ("/etc/outside", None),
            ("/etc", None),
        ] {
            assert_eq!(node.text(path).as_deref(), expected, "{path}");
        }
        assert!(node.unread().contains_key("/etc/loop"));
        assert!(
            !node.unread().contains_key("/etc/outside"),
            "absent is not unreadable"
        );
        assert!(!node.live);
    }

    #[test]
    fn invalid_root_is_refused() {
        let scratch = Scratch::new();
        let says = |path: &Path| format!("{:#}", NodeFiles::open(path).err().unwrap());
        assert!(says(&scratch.0).contains("is not the root of a system"));
        assert!(says(&scratch.0.join("absent")).contains("cannot look at"));
        fs::write(scratch.0.join("file"), "").unwrap();
        assert!(says(&scratch.0.join("file")).contains("is not a directory"));
    }
}
