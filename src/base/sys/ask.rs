//! Runs a program and reads its output, with limits on time and size.
//!
//! Starts the thread `program output` for each. It is joined, unless the time is over: then a
//! descendant that left the group may hold the output open for ever, so the thread is left to end
//! with the output.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::Group;

/// Timeout of a program that issues credentials and cannot interact with the user.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a program that issues credentials. A program that may interact with the user has no
/// timeout, and the terminal; any other is killed after `limit`.
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
    let output = Exchange::with(&mut child, input, max_bytes).run();
    if output.is_err() {
        // It might never end.
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok((output?, status))
}

/// Runs a program in a separate process group, and returns its standard output and exit status. Its
/// standard input is `input`, which must be short, or empty. After `limit` kills the group, calls
/// `late`, for processes that have left the group, and returns whether or not they still hold the
/// output open.
pub fn ask(
    command: &mut Command,
    input: Option<&[u8]>,
    max_bytes: u64,
    limit: Duration,
    late: &(dyn Fn() + Sync),
) -> io::Result<(Vec<u8>, ExitStatus)> {
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let (group, mut child) = Group::spawn(command.stdin(stdin).stdout(Stdio::piped()))?;
    let exchange = Exchange::with(&mut child, input, max_bytes);
    let (sender, receiver) = channel();
    // The receiver is gone if the time is over.
    let reader =
        crate::thread("program output").spawn(move || drop(sender.send(exchange.run())))?;
    let output = receiver.recv_timeout(limit);
    if output.is_err() {
        group.kill();
        // It may have left its group.
        let _ = child.kill();
        late();
    } else {
        let _ = reader.join();
    }
    drop(group);
    let status = child.wait();
    match output {
        Ok(output) => Ok((output?, status?)),
        Err(RecvTimeoutError::Timeout) => {
            let message = format!("it took more than {} s", limit.as_secs());
            Err(io::Error::new(ErrorKind::TimedOut, message))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("its output could not be read"))
        }
    }
}

/// The standard input and output of a program.
struct Exchange {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    input: Vec<u8>,
    max_bytes: u64,
}

impl Exchange {
    /// Takes them from a program.
    fn with(child: &mut Child, input: Option<&[u8]>, max_bytes: u64) -> Self {
        let stdin = input.and_then(|_| child.stdin.take());
        let input = input.unwrap_or_default().to_vec();
        Self {
            stdin,
            stdout: child.stdout.take(),
            input,
            max_bytes,
        }
    }

    /// Writes the input and reads the output to its end.
    fn run(self) -> io::Result<Vec<u8>> {
        if let Some(mut stdin) = self.stdin {
            // The program may ignore its input.
            let _ = stdin.write_all(&self.input);
        }
        let mut bytes = Vec::new();
        if let Some(stdout) = self.stdout {
            stdout.take(self.max_bytes + 1).read_to_end(&mut bytes)?;
        }
        if bytes.len() as u64 > self.max_bytes {
            let why = format!("it printed more than {} bytes", self.max_bytes);
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        Ok(bytes)
    }
}

#[cfg(all(test, unix))]
#[path = "tests_ask.rs"]
mod tests;
