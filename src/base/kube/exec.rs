//! Commands in containers, and connections to their ports, over WebSocket.
//!
//! Owns the channels of `v5.channel.k8s.io` and `v4.channel.k8s.io` and the status at their end. Knows nothing of
//! frames ([`super::websocket`]). Starts no thread.

use std::io::{self, Read, Write};
use std::time::Duration;

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
/// What a command complains is kept up to here; the end says most.
const LARGEST_COMPLAINT: usize = 64 << 10;

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit status; -1 when it could not be started.
    pub code: i32,
    /// What the server says of the end; empty after a success.
    pub message: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Exit {
    /// Whether it ended with status 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

impl Client {
    /// Runs a command and hands its standard output to `sink` as it comes. A stream that breaks off before the
    /// status is an error; a command that fails is not. `silence` bounds the time without output.
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
        while let Some(message) = socket.message(silence)? {
            match message.split_first() {
                Some((&OUTPUT, bytes)) => sink(bytes).map_err(Error::Sink)?,
                Some((&ERRORS, bytes)) => {
                    stderr.extend_from_slice(bytes);
                    let excess = stderr.len().saturating_sub(LARGEST_COMPLAINT);
                    stderr.drain(..excess);
                }
                Some((&STATUS, bytes)) => {
                    let stderr = String::from_utf8_lossy(&stderr).into_owned();
                    return Ok(Exit { stderr, ..exit(bytes) });
                }
                _ => {}
            }
        }
        Err(broken(&socket))
    }

    /// Opens a connection to a port of a pod.
    #[allow(dead_code, reason = "part of the client, tried against real servers, without a caller yet")]
    pub fn forward(&self, namespace: &str, pod: &str, port: u16) -> Result<Forward, Error> {
        let request = Request::get(&Resource::PODS, namespace, pod)
            .subresource("portforward")
            .query("ports", port.to_string());
        let socket = self.upgrade(&request, &["v4.channel.k8s.io"])?;
        Ok(Forward { socket, greeted: [false; 2], pending: Vec::new(), start: 0 })
    }
}

/// Reads the `Status` at the end of a command.
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

/// A connection to a port of a pod: one writer and reader, on one thread.
pub struct Forward {
    socket: Socket,
    /// Each channel begins with the number of its port.
    greeted: [bool; 2],
    pending: Vec<u8>,
    start: usize,
}

impl Read for Forward {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.start == self.pending.len() {
            let Some(message) = self.socket.message(None).map_err(io::Error::other)? else { return Ok(0) };
            match message.split_first() {
                Some((channel @ 0..=1, _)) if !self.greeted[usize::from(*channel)] => {
                    self.greeted[usize::from(*channel)] = true;
                }
                Some((0, bytes)) => {
                    self.pending = bytes.to_vec();
                    self.start = 0;
                }
                Some((1, bytes)) if !bytes.is_empty() => {
                    return Err(io::Error::other(String::from_utf8_lossy(bytes).trim().to_owned()));
                }
                _ => {}
            }
        }
        let length = buffer.len().min(self.pending.len() - self.start);
        buffer[..length].copy_from_slice(&self.pending[self.start..self.start + length]);
        self.start += length;
        Ok(length)
    }
}

impl Write for Forward {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(32 << 10)];
        self.socket.send(&[&[0], part].concat()).map_err(io::Error::other)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
