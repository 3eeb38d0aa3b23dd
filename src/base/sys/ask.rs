//! Runs a program and reads its output, with limits on time and size.
//!
//! Starts the thread `time limit` for each, and joins it.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::Group;

/// Timeout of a program that issues credentials and cannot interact with the user.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a program that issues credentials. A program that may interact with the user has no timeout, and the terminal; any
/// other is killed after `limit`.
pub fn ask_for_credentials(
    command: &mut Command,
    input: Option<&[u8]>,
    max_bytes: u64,
    interactive: bool,
    limit: Duration,
) -> io::Result<(Vec<u8>, ExitStatus)> {
    if !interactive {
        return ask(command, input, max_bytes, limit, &|| {});
    }
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = tell_and_read(&mut child, input, max_bytes);
    if output.is_err() {
        // It might never end.
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok((output?, status))
}

/// Runs a program in a separate process group, and returns its standard output and exit status. Its standard input is
/// `input`, which must be short, or empty. After `limit` kills the group, then calls `late`, for processes that have left
/// the group and still hold the output open.
pub fn ask(
    command: &mut Command,
    input: Option<&[u8]>,
    max_bytes: u64,
    limit: Duration,
    late: &(dyn Fn() + Sync),
) -> io::Result<(Vec<u8>, ExitStatus)> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let (group, mut child) = Group::spawn(command.stdin(stdin).stdout(Stdio::piped()))?;
    let (over, waiting) = channel::<()>();
    let (output, is_late) = std::thread::scope(|scope| {
        let group = &group;
        let timer = crate::thread("time limit").spawn_scoped(scope, move || {
            let is_late = waiting.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_late {
                group.kill();
                late();
            }
            is_late
        });
        let output = tell_and_read(&mut child, input, max_bytes);
        drop(over);
        timer.map(|timer| (output, timer.join().unwrap_or(false)))
    })?;
    drop(group);
    let status = child.wait();
    if is_late {
        return Err(io::Error::new(ErrorKind::TimedOut, format!("it took more than {} s", limit.as_secs())));
    }
    Ok((output?, status?))
}

/// Writes a program's standard input and reads its standard output.
fn tell_and_read(child: &mut Child, input: Option<&[u8]>, max_bytes: u64) -> io::Result<Vec<u8>> {
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // The program may ignore its input.
        let _ = stdin.write_all(input);
    }
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(max_bytes + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > max_bytes {
        let why = format!("it printed more than {max_bytes} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

#[cfg(all(test, unix))]
#[path = "tests_ask.rs"]
mod tests;
