//! Commands in containers, over WebSocket.
//!
//! Owns the channels of `v5.channel.k8s.io` and `v4.channel.k8s.io` and the final status. Knows nothing about frames
//! ([`super::websocket`]). Starts no thread.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::Client;
use super::error::{Error, Stage};
use super::request::{Request, Resource};
use super::websocket::Socket;

/// Newer first; without standard input they are the same.
const CHANNELS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const STATUS: u8 = 3;
/// Maximum bytes kept of a command's stderr, from its end.
const MAX_STDERR_BYTES: usize = 64 << 10;

/// Result of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit status; -1 if it could not be started.
    pub code: i32,
    /// The server's description of the failure; empty after a success.
    pub message: String,
    /// The command's standard error.
    pub stderr: String,
}

impl Exit {
    /// Whether it ended with status 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

impl Client {
    /// Runs a command and passes its standard output to `sink` as it arrives. A stream that breaks off before the status is
    /// an error; a command that fails is not. `silence` limits the time without standard output; nothing else counts.
    pub fn exec(
        &self,
        (namespace, pod, container): (&str, &str, &str),
        command: &[&str],
        silence: Option<Duration>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<Exit, Error> {
        let mut request = Request::get(&Resource::PODS, namespace, pod)
            .subresource("exec")
            .query("container", container)
            .query("stdout", "true")
            .query("stderr", "true");
        for word in command {
            request = request.query("command", *word);
        }
        let mut socket = self.upgrade(&request, &CHANNELS)?;
        let mut stderr = Vec::new();
        let due = || silence.map(|silence| Instant::now() + silence);
        let mut deadline = due();
        while let Some(message) = socket.message(deadline)? {
            match message.split_first() {
                Some((&OUTPUT, bytes)) if !bytes.is_empty() => {
                    sink(bytes).map_err(Error::Sink)?;
                    deadline = due();
                }
                Some((&ERRORS, bytes)) => {
                    stderr.extend_from_slice(bytes);
                    let excess = stderr.len().saturating_sub(MAX_STDERR_BYTES);
                    stderr.drain(..excess);
                }
                Some((&STATUS, bytes)) => {
                    let stderr = String::from_utf8_lossy(&stderr).into_owned();
                    return Ok(Exit { stderr, ..exit(bytes) });
                }
                _ => {}
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(socket.overdue());
            }
        }
        Err(broken(&socket))
    }
}

/// Parses the `Status` at the end of a command.
fn exit(status: &[u8]) -> Exit {
    let status: Value = crate::json::from_slice(status).unwrap_or_default();
    if status["status"] == "Success" {
        return Exit::default();
    }
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let code = causes
        .filter(|cause| cause["reason"] == "ExitCode")
        .find_map(|cause| cause["message"].as_str()?.parse().ok())
        .filter(|code| *code != 0)
        .unwrap_or(-1);
    let message = status["message"].as_str().unwrap_or("the server did not say why").to_owned();
    Exit { code, message, stderr: String::new() }
}

fn broken(socket: &Socket) -> Error {
    let why = "the stream ended before the command did".into();
    Error::Transport { what: socket.what().to_owned(), why, stage: Stage::Sent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_at_the_end_is_read() {
        let check = |status: &str, code: i32, message: &str| {
            assert_eq!(
                exit(status.as_bytes()),
                Exit { code, message: message.into(), stderr: String::new() }
            );
        };
        check(r#"{"status":"Success"}"#, 0, "");
        let causes = r#""details":{"causes":[{"reason":"ExitCode","message":"3"}]}"#;
        check(&format!(r#"{{"status":"Failure","message":"m",{causes}}}"#), 3, "m");
        check(
            r#"{"status":"Failure","message":"no such file","reason":"InternalError"}"#,
            -1,
            "no such file",
        );
        check("garbage", -1, "the server did not say why");
    }
}
