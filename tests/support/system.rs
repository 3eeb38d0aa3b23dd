//! System functions for tests, implemented per family of operating systems.

use std::ffi::OsString;
use std::path::Path;

/// Kills a process at once; its parent still waits for it.
#[cfg(unix)]
pub fn kill(id: u32) {
    let id = rustix::process::Pid::from_raw(id.try_into().unwrap()).unwrap();
    let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
}

#[cfg(windows)]
pub fn kill(id: u32) {
    let _ = std::process::Command::new("taskkill")
        .args(["/F", "/T", "/PID", &id.to_string()])
        .output();
}

/// The permissions of a file in Unix notation; `wanted` where those of its folder apply instead.
#[cfg(unix)]
pub fn mode(path: &Path, _wanted: u32) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[cfg(windows)]
pub fn mode(path: &Path, wanted: u32) -> u32 {
    assert!(path.exists(), "{}", path.display());
    wanted
}

/// Makes a file executable.
#[cfg(unix)]
pub fn make_runnable(path: &Path) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).unwrap();
}

#[cfg(windows)]
pub fn make_runnable(_path: &Path) {}

/// Creates a symbolic link to a file; skips the rest of the test if this user may not.
#[cfg(unix)]
pub fn symlink(target: impl AsRef<Path>, path: impl AsRef<Path>) -> bool {
    std::os::unix::fs::symlink(target, path).unwrap();
    true
}

#[cfg(windows)]
#[track_caller]
pub fn symlink(target: impl AsRef<Path>, path: impl AsRef<Path>) -> bool {
    let made = std::os::windows::fs::symlink_file(target, &path);
    // Wine claims success without creating one.
    let made = made.is_ok() && path.as_ref().symlink_metadata().is_ok();
    if !made {
        super::skipped("links", "this user may not make them");
    }
    made
}

/// A word that is not valid text, between two valid parts.
#[cfg(unix)]
pub fn no_text(before: &str, after: &str) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    OsString::from_vec([before.as_bytes(), b"\xff", after.as_bytes()].concat())
}

#[cfg(windows)]
pub fn no_text(before: &str, after: &str) -> OsString {
    use std::os::windows::ffi::OsStringExt as _;
    let half_of_a_pair = std::iter::once(0xd83d);
    let words: Vec<u16> = before
        .encode_utf16()
        .chain(half_of_a_pair)
        .chain(after.encode_utf16())
        .collect();
    OsString::from_wide(&words)
}
