//! The program as the child that reads the results of one plugin, see `process`; no command for people.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use crate::process;
use base::logger;

/// Whether the program was started as that child.
pub(crate) fn is_call(word: &OsStr) -> bool {
    word == process::COMMAND
}

/// Reads the results in the folder that is named, by the rules on stdin.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    logger::init("info");
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let call = match words {
        [dir, memory, time] => process::limits(&text(memory), &text(time)).map(|limits| (dir, limits)),
        _ => None,
    };
    let Some((dir, limits)) = call else {
        log::error!("`{}` needs a folder, bytes of memory and milliseconds", process::COMMAND);
        return ExitCode::FAILURE;
    };
    match process::child(Path::new(dir), &limits, std::io::stdin(), std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
