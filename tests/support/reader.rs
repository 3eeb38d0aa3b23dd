//! What may happen to the standard output of a call, and the exit code that is expected then.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use super::watchdog::{LIMIT, Watchdog};
use super::{Folder, Sonobuoy};

/// The reader of a standard output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reader {
    /// Reads everything.
    Whole,
    /// `| true`, where the reader has ended before the first byte.
    Nobody,
    /// `| head -1`
    FirstLine,
    /// `> /dev/full`
    FullDevice,
    /// `>&-`
    ClosedDescriptor,
}

impl Reader {
    /// All of them.
    pub const EVERY: [Self; 5] = [
        Self::Whole,
        Self::Nobody,
        Self::FirstLine,
        Self::FullDevice,
        Self::ClosedDescriptor,
    ];

    /// The exit code of a call that prints something and whose exit code is `code` if everything is
    /// read.
    pub fn expected(self, code: i32) -> i32 {
        if self == Self::FullDevice && code == 0 {
            1
        } else {
            code
        }
    }
}

/// Result of a call.
pub struct Read {
    pub code: Option<i32>,
    pub stderr: String,
    pub folder: Folder,
}

impl Sonobuoy {
    /// Runs it with this reader of its standard output.
    #[track_caller]
    pub fn read_by(self, reader: Reader) -> Read {
        let (command, folder) = self.command();
        let mut command = if reader == Reader::ClosedDescriptor {
            without_stdout(&command)
        } else {
            command
        };
        match reader {
            Reader::Whole | Reader::FirstLine => command.stdout(Stdio::piped()),
            Reader::Nobody => command.stdout(std::io::pipe().unwrap().1),
            Reader::FullDevice => {
                command.stdout(File::options().write(true).open("/dev/full").unwrap())
            }
            Reader::ClosedDescriptor => command.stdout(Stdio::null()),
        };
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The command holds the other end of a pipe.
        drop(command);
        let watchdog = Watchdog::over(&child);
        if let Some(stdout) = child.stdout.take() {
            let mut stdout = BufReader::with_capacity(1, stdout);
            let mut text = String::new();
            match reader {
                Reader::FirstLine => stdout.read_line(&mut text).unwrap(),
                _ => stdout.read_to_string(&mut text).unwrap(),
            };
        }
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        let code = child.wait().unwrap().code();
        assert!(!watchdog.bit(), "still running after {LIMIT:?}: {stderr}");
        Read {
            code,
            stderr,
            folder,
        }
    }
}

/// The same call by a shell that closes its standard output.
fn without_stdout(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "exec \"$0\" \"$@\" >&-"])
        .arg(command.get_program())
        .args(command.get_args());
    shell
        .current_dir(command.get_current_dir().unwrap())
        .env_clear();
    shell.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    shell
}
