//! Streamed responses: watches, logs, and the WebSocket side of exec.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use tiny_http::{Header, Request, Response};

use super::ApiServer;
use super::answer::{Call, bad_request, not_found};
use super::store::{Place, selected};

/// A command to run in a container.
#[derive(Clone, Debug)]
pub struct Exec {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub command: Vec<String>,
}

/// Result of a command.
pub struct ExecAnswer {
    stdout: Box<dyn Read + Send>,
    stderr: Vec<u8>,
    exit: i32,
    protocol: &'static str,
}

impl ExecAnswer {
    /// Success with this output.
    pub fn ok(stdout: impl Into<Vec<u8>>) -> Self {
        Self::stream(std::io::Cursor::new(stdout.into()))
    }

    /// Success with this output, streamed.
    pub fn stream(stdout: impl Read + Send + 'static) -> Self {
        Self {
            stdout: Box::new(stdout),
            stderr: Vec::new(),
            exit: 0,
            protocol: "v5.channel.k8s.io",
        }
    }

    /// Failure with this exit code and stderr.
    pub fn failed(exit: i32, stderr: impl Into<Vec<u8>>) -> Self {
        Self {
            exit,
            stderr: stderr.into(),
            ..Self::ok("")
        }
    }

    /// Limits the server to the older protocol.
    pub fn v4(mut self) -> Self {
        self.protocol = "v4.channel.k8s.io";
        self
    }
}

/// Chunked by hand: tiny_http delays chunks.
struct Chunks(Box<dyn Write + Send>);

impl Chunks {
    fn start(request: Request, kind: &str) -> Self {
        let mut writer = request.into_writer();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let _ = writer
            .write_all(head.as_bytes())
            .and_then(|()| writer.flush());
        Self(writer)
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let framed = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        bytes.is_empty()
            || self
                .0
                .write_all(&framed)
                .and_then(|()| self.0.flush())
                .is_ok()
    }

    fn end(mut self) {
        let _ = self.0.write_all(b"0\r\n\r\n").and_then(|()| self.0.flush());
    }
}

pub(super) fn watch(api: &ApiServer, call: &Call, place: &Place, request: Request) {
    let peer = request.remote_addr().copied();
    let mut seen: u64 = call.get("resourceVersion").parse().unwrap_or(0);
    let seconds = call.get("timeoutSeconds").parse().unwrap_or(3600);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (labels, fields) = (
        call.get("labelSelector").to_owned(),
        call.get("fieldSelector").to_owned(),
    );
    let (mut bookmarks, drops) = {
        let state = api.lock();
        (state.bookmarks, state.watch_drops)
    };
    let mut sent = 0;
    let mut chunks = Chunks::start(request, "application/json");
    loop {
        let mut lines = Vec::new();
        {
            let state = api.lock();
            if state.closing || state.watch_drops != drops {
                break;
            }
            if seen < state.store.oldest {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": format!("too old resource version: {seen}"), "reason": "Expired", "code": 410,
                });
                lines.push(json!({"type": "ERROR", "object": status}));
                seen = u64::MAX;
            } else {
                for change in state.store.since(seen) {
                    if place.holds(&change.place) && selected(&change.object, &labels, &fields) {
                        lines.push(json!({"type": change.kind, "object": change.object}));
                    }
                }
                seen = state.store.version;
                if state.bookmarks != bookmarks {
                    bookmarks = state.bookmarks;
                    let object = json!({"metadata": {"resourceVersion": seen.to_string()}});
                    lines.push(json!({"type": "BOOKMARK", "object": object}));
                }
            }
        }
        for line in &lines {
            let text = format!("{line}\n");
            sent += text.len();
            if call.cut.is_some_and(|cut| sent > cut) {
                chunks.send(&text.as_bytes()[..text.len() / 2]);
                peer.into_iter().for_each(|peer| api.shared.wire.end(&peer));
                return;
            }
            if !chunks.send(text.as_bytes()) {
                return;
            }
        }
        if seen == u64::MAX || Instant::now() >= end {
            break;
        }
        let state = api.lock();
        if state.store.version == seen {
            let _ = api
                .shared
                .changed
                .wait_timeout(state, Duration::from_millis(200))
                .unwrap();
        }
    }
    chunks.end();
}

/// Sends the line until the client disconnects.
pub(super) fn endless(request: Request, line: &str) {
    let mut chunks = Chunks::start(request, "text/plain");
    while chunks.send(line.repeat(100).as_bytes()) {}
}

/// Whether a container is still being created and has no log, unless one exists already.
fn waits(api: &ApiServer, place: &Place, key: &(String, String, String)) -> bool {
    let state = api.lock();
    let pod = state.store.get(place).unwrap_or_default();
    let statuses = pod["status"]["containerStatuses"].as_array();
    let waiting = statuses.into_iter().flatten().any(|status| {
        status["name"] == key.2.as_str()
            && status["state"]["waiting"]["reason"] == "ContainerCreating"
    });
    waiting && !state.logs.contains_key(key)
}

pub(super) fn log(api: &ApiServer, call: &Call, place: &Place, request: Request) {
    let key = (
        place.namespace.clone(),
        place.name.clone(),
        call.get("container").to_owned(),
    );
    if api.lock().store.get(place).is_none() {
        return not_found(request, &format!("pods \"{}\" not found", place.name));
    }
    if waits(api, place, &key) {
        let why = format!(
            "container \"{}\" in pod \"{}\" is waiting to start",
            key.2, place.name
        );
        return bad_request(request, why);
    }
    let peer = request.remote_addr().copied();
    let number = |name: &str| call.get(name).parse::<usize>().ok();
    let follow = call.get("follow") == "true";
    let limit = number("limitBytes").unwrap_or(usize::MAX);
    let mut sent = 0;
    let mut from = number("tailLines")
        .map(|lines| {
            let text = api
                .lock()
                .logs
                .get(&key)
                .map(|(text, _)| text.clone())
                .unwrap_or_default();
            let starts: Vec<usize> = text
                .split_inclusive(|b| *b == b'\n')
                .scan(0, |at, line| {
                    let start = *at;
                    *at += line.len();
                    Some(start)
                })
                .collect();
            if lines == 0 {
                text.len()
            } else {
                starts
                    .get(starts.len().saturating_sub(lines))
                    .copied()
                    .unwrap_or(0)
            }
        })
        .unwrap_or(0);
    let mut chunks = Chunks::start(request, "text/plain");
    loop {
        let (new, over) = {
            let state = api.lock();
            let (text, ended) = state.logs.get(&key).cloned().unwrap_or_default();
            let gone = state.store.get(place).is_none() || state.closing;
            (
                text[from.min(text.len())..].to_vec(),
                ended || gone || !follow,
            )
        };
        from += new.len();
        let new = &new[..new.len().min(limit - sent)];
        sent += new.len();
        if !chunks.send(new) {
            return;
        }
        if call.cut.is_some_and(|cut| sent >= cut) {
            peer.into_iter().for_each(|peer| api.shared.wire.end(&peer));
            return;
        }
        if over || sent >= limit {
            break;
        }
        let state = api.lock();
        let _ = api
            .shared
            .changed
            .wait_timeout(state, Duration::from_millis(50))
            .unwrap();
    }
    chunks.end();
}

pub(super) fn upgrade(api: &ApiServer, call: &Call, request: Request) {
    let header = |name: &'static str| {
        let found = request
            .headers()
            .iter()
            .find(|header| header.field.equiv(name));
        found
            .map(|header| header.value.as_str().to_owned())
            .unwrap_or_default()
    };
    let Some(place) = super::store::parse(&call.path) else {
        return not_found(request, "no such pod");
    };
    if api.lock().store.get(&place).is_none() {
        return not_found(request, &format!("pods \"{}\" not found", place.name));
    }
    let offered = header("sec-websocket-protocol");
    let salted = header("sec-websocket-key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, salted.as_bytes());
    let accept = BASE64_STANDARD.encode(digest);
    let open = |request: Request, protocol: &str| {
        assert!(
            offered.contains(protocol),
            "`{protocol}` was not offered, only `{offered}`"
        );
        let response = Response::empty(101)
            .with_header(Header::from_bytes("Sec-WebSocket-Accept", accept.as_bytes()).unwrap())
            .with_header(Header::from_bytes("Sec-WebSocket-Protocol", protocol).unwrap());
        request.upgrade("websocket", response)
    };
    let executor = api.lock().executor.clone();
    let Some(executor) = executor.filter(|_| place.sub == "exec") else {
        return not_found(request, "nothing can be executed");
    };
    let exec = Exec {
        namespace: place.namespace.clone(),
        pod: place.name.clone(),
        container: call.get("container").to_owned(),
        command: call.all("command"),
    };
    let peer = request.remote_addr().copied();
    let mut answer = executor(&exec);
    let mut socket = open(request, answer.protocol);
    let _ = socket.write_all(&frame(9, b"are you there"));
    let mut buffer = vec![1; 32 << 10];
    let mut sent = 0;
    while let Ok(length @ 1..) = answer.stdout.read(&mut buffer[1..]) {
        sent += length;
        if socket.write_all(&frame(2, &buffer[..=length])).is_err() {
            return;
        }
        if call.cut.is_some_and(|cut| sent >= cut) {
            let _ = socket.flush();
            peer.into_iter().for_each(|peer| api.shared.wire.end(&peer));
            // Closing a socket with unread data, such as the reply to a ping, discards sent data.
            let _ = std::io::copy(&mut socket, &mut std::io::sink());
            return;
        }
    }
    let status: Value = match answer.exit {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    };
    for (channel, bytes) in [(2, answer.stderr), (3, status.to_string().into_bytes())] {
        if !bytes.is_empty() {
            let _ = socket.write_all(&frame(2, &[vec![channel], bytes].concat()));
        }
    }
    let _ = socket
        .write_all(&frame(8, &1000_u16.to_be_bytes()))
        .and_then(|()| socket.flush());
    // Closing at once could discard data that the client has not read yet.
    let _ = socket.read(&mut [0; 1024]);
}

/// An unmasked frame, as servers send it.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => out.push(u8::try_from(length).unwrap()),
        length @ 126..0x1_0000 => {
            out.push(126);
            out.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend(payload);
    out
}
