//! Differences between operating systems behind one interface: files, processes, sockets, the
//! terminal.
//!
//! No module outside this folder depends on the target system, except modules specific to Linux.
//! `unix` contains the code shared by Linux and macOS, `linux` and `macos` their differences,
//! `windows` the rest. Does not know the purpose of files and processes. Starts the thread
//! `signals` to listen for signals, and one for the time limit of a program.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(all(target_os = "linux", feature = "program"))]
mod linux;
#[cfg(all(target_os = "macos", feature = "program"))]
mod macos;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as family;
#[cfg(windows)]
use windows as family;

#[cfg(feature = "program")]
mod ask;
mod beneath;
mod name;
#[cfg(feature = "program")]
mod sockets;

#[cfg(feature = "program")]
pub use ask::{CREDENTIALS_TIMEOUT, ask, ask_for_credentials};
pub use beneath::{Entry, Folder, Opened, Version};
#[cfg(feature = "program")]
pub use family::program::{
    Group, INHERITED, OPENER, adopt_strays, colours, create_private_files, end_strays,
    ended_by_signal, host_name, kill_bearing, kill_group, on_signal, raise_open_files,
    shows_unicode, survive_file_limit, terminal_size, withhold_inherited_files,
};
pub use family::{
    bytes_of, dir_builder, exposed, file_name, free_bytes, free_inodes, is_runnable, mode, owner,
    path, read_at, set_mode, stdin_file, symlink, sync_folder, try_lock, unnamed,
};
#[cfg(feature = "program")]
pub use sockets::{
    Poller, finish_connecting, keep_alive, listen, listen_at_all, socket, stop_listening,
};

/// Lets other threads and processes go first from now on: on Linux this thread, on other systems
/// the whole process.
pub fn yield_to_others() {
    #[cfg(unix)]
    let _ = rustix::process::nice(19);
}

/// The value of an environment variable; `None` if it is absent or empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether text has colours, on a terminal or elsewhere: variables decide, else the terminal. The
/// wish for none wins.
#[cfg(feature = "program")]
pub fn wants_colours(is_terminal: bool) -> bool {
    // Also prepares the console of Windows.
    let draws_colours = is_terminal && colours();
    decide_colours(draws_colours, &variable)
}

#[cfg(feature = "program")]
fn decide_colours(draws_colours: bool, variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let is_on = |name| variable(name).is_some_and(|value| value != "0");
    if variable("NO_COLOR").is_some() {
        return false;
    }
    if is_on("FORCE_COLOR") || is_on("CLICOLOR_FORCE") {
        return true;
    }
    draws_colours && variable("CLICOLOR").is_none_or(|value| value != "0")
}

/// Candidates for the user's home folder, most likely first; on Windows in the order of Kubernetes'
/// own programs.
pub fn homes(variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut candidates = vec![variable("HOME")];
    if cfg!(windows) {
        let on_drive = variable("HOMEDRIVE")
            .zip(variable("HOMEPATH"))
            .map(|(drive, path)| drive + &path);
        candidates.extend([on_drive, variable("USERPROFILE")]);
    }
    candidates
        .into_iter()
        .flatten()
        .filter(|home| !home.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// Finds a program: `name` itself if it is a path, else the first match in the folders of `search`.
pub fn find_program(name: &Path, search: Option<&OsStr>, folder: &Path) -> Option<PathBuf> {
    let runnable = |path: PathBuf| {
        family::program_names(&path)
            .into_iter()
            .find(|name| is_runnable(name))
    };
    if name
        .as_os_str()
        .to_string_lossy()
        .contains(std::path::is_separator)
    {
        return runnable(folder.join(name));
    }
    std::env::split_paths(search?).find_map(|folder| runnable(folder.join(name)))
}

/// A configured command as the system starts it: on Windows, scripts are also found without their
/// extension.
pub fn program(name: &Path) -> PathBuf {
    if cfg!(windows) {
        let path = std::env::var_os("PATH");
        find_program(name, path.as_deref(), Path::new("")).unwrap_or_else(|| name.to_owned())
    } else {
        name.to_owned()
    }
}

/// Whether this system supports a file of that name, with `/` as the only separator.
pub fn can_have(name: &str) -> bool {
    name.split('/')
        .all(|part| *bytes_of(&file_name(part.as_bytes())) == *part.as_bytes())
}

/// Options for opening files, in addition to the standard library's portable ones.
pub trait Open {
    /// Permissions of a new file; on Windows, which has no modes, those of its folder apply.
    fn mode(&mut self, mode: u32) -> &mut Self;
    /// Refuses to open what a symbolic link points to.
    fn no_follow(&mut self) -> &mut Self;
}

/// Reason why other users may access a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exposed {
    /// Owned by another user.
    Owner,
    /// Readable or writable by others.
    Mode,
}

/// A request to end the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signal {
    /// The terminal was closed.
    Hangup,
    /// Ctrl-C.
    Interrupt,
    /// Sent by a process manager.
    Terminate,
}

/// Syncs a whole tree. A tree can have a million files; one call for the file system is cheaper
/// than one per file.
#[cfg(target_os = "linux")]
pub fn sync_tree(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Syncs a whole tree, file by file: the system has no call for a file system.
#[cfg(not(target_os = "linux"))]
pub fn sync_tree(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            File::options()
                .append(true)
                .open(entry.path())?
                .sync_all()?;
        }
    }
    sync_folder(path)
}

/// Makes the system begin to write a part of a file to the disk, without waiting for the end of it.
#[cfg(target_os = "linux")]
pub fn start_write_back(file: &File, offset: u64, length: u64) {
    // Pages that are still to be written are written first, and stay in memory. Best effort.
    let length = std::num::NonZeroU64::new(length);
    let _ = rustix::fs::fadvise(file, offset, length, rustix::fs::Advice::DontNeed);
}

/// Does nothing: other systems have no call for it.
#[cfg(not(target_os = "linux"))]
pub fn start_write_back(_file: &File, _offset: u64, _length: u64) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "program")]
    fn variables_decide_about_colours() {
        for (draws_colours, set, expected) in [
            (true, &[][..], true),
            (false, &[], false),
            (true, &[("NO_COLOR", "1")], false),
            (false, &[("FORCE_COLOR", "1")], true),
            (false, &[("CLICOLOR_FORCE", "1")], true),
            (false, &[("CLICOLOR_FORCE", "0")], false),
            (false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
            (true, &[("CLICOLOR", "0")], false),
            (true, &[("CLICOLOR", "0"), ("FORCE_COLOR", "1")], true),
        ] {
            let variable = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(
                decide_colours(draws_colours, &variable),
                expected,
                "{draws_colours} {set:?}"
            );
        }
    }

    #[test]
    fn home_is_found_like_kubernetes() {
        let set = |known: &'static [(&str, &str)]| {
            homes(&move |name| {
                known
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            })
        };
        let (first, others) = (
            PathBuf::from("H:\\"),
            ["D:\\me", "C:\\me"].map(PathBuf::from),
        );
        let others = if cfg!(windows) { &others[..] } else { &[] };
        assert_eq!(
            set(&[("USERPROFILE", "C:\\me")]),
            others.get(1..).unwrap_or_default()
        );
        let all = [
            ("HOME", "H:\\"),
            ("HOMEDRIVE", "D:"),
            ("HOMEPATH", "\\me"),
            ("USERPROFILE", "C:\\me"),
        ];
        let all: &'static [(&str, &str)] = Box::leak(Box::new(all));
        assert_eq!(set(all), [&[first], others].concat());
        assert!(set(&[("HOME", "")]).is_empty());
        assert!(set(&[]).is_empty());
    }
}
