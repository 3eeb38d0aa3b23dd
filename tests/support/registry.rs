//! A container registry in memory, on a separate HTTP implementation. It can require tokens, cut
//! downloads short, and lose pieces of uploads.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex};

use tiny_http::{Header, Method, Request, Response, Server};

/// Faults of a registry.
#[derive(Clone, Default)]
pub struct Habits {
    /// Name and password required for a token.
    pub login: Option<(String, String)>,
    /// Only writing requires authentication.
    pub open: bool,
    /// Cuts each download after this many bytes.
    pub cut_after: Option<usize>,
    /// Number of pieces of uploads that fail with an error after half of each was received.
    pub lose_pieces: usize,
    /// Corrupts a byte of each blob.
    pub spoil: bool,
}

#[derive(Default)]
struct Content {
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, (String, Vec<u8>)>,
    uploads: BTreeMap<String, Vec<u8>>,
    log: Vec<String>,
    habits: Habits,
}

/// The registry; dropping it ends its thread.
pub struct Registry {
    server: Arc<Server>,
    content: Arc<Mutex<Content>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Registry {
    pub fn start(habits: Habits) -> Self {
        let server = Arc::new(Server::http("127.0.0.1:0").unwrap());
        let content = Arc::new(Mutex::new(Content {
            habits,
            ..Content::default()
        }));
        let (serving, kept, host) = (
            server.clone(),
            content.clone(),
            server.server_addr().to_string(),
        );
        let thread = std::thread::spawn(move || {
            for request in serving.incoming_requests() {
                answer(request, &mut kept.lock().unwrap(), &host);
            }
        });
        Self {
            server,
            content,
            thread: Some(thread),
        }
    }

    pub fn host(&self) -> String {
        self.server.server_addr().to_string()
    }

    pub fn put_blob(&self, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        self.content
            .lock()
            .unwrap()
            .blobs
            .insert(digest.clone(), bytes.to_vec());
        digest
    }

    /// Stores a manifest under its digest, and under a tag of `repository` if given.
    pub fn put_manifest(&self, repository: &str, tag: &str, kind: &str, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        let mut content = self.content.lock().unwrap();
        for name in [tag, &digest] {
            content.manifests.insert(
                format!("{repository}/{name}"),
                (kind.to_owned(), bytes.to_vec()),
            );
        }
        digest
    }

    pub fn manifest(&self, repository: &str, wanted: &str) -> Option<Vec<u8>> {
        self.content
            .lock()
            .unwrap()
            .manifests
            .get(&format!("{repository}/{wanted}"))
            .map(|(_, bytes)| bytes.clone())
    }

    pub fn blob(&self, digest: &str) -> Option<Vec<u8>> {
        self.content.lock().unwrap().blobs.get(digest).cloned()
    }

    /// Every request so far: method and path.
    pub fn log(&self) -> Vec<String> {
        self.content.lock().unwrap().log.clone()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The digest of bytes in the registries' notation.
pub fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).unwrap()
}

fn field<'a>(request: &'a Request, name: &'static str) -> Option<&'a str> {
    request
        .headers()
        .iter()
        .find(|header| header.field.equiv(name))
        .map(|header| header.value.as_str())
}

fn answer(request: Request, content: &mut Content, host: &str) {
    let url = request.url().to_owned();
    content.log.push(format!("{} {url}", request.method()));
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    if path == "/token" {
        let wanted = content
            .habits
            .login
            .as_ref()
            .map(|(user, password)| basic(user, password));
        let token = if field(&request, "Authorization") == wanted.as_deref() {
            "good"
        } else {
            "bad"
        };
        let _ = request.respond(Response::from_string(format!("{{\"token\":\"{token}\"}}")));
        return;
    }
    let free = content.habits.open && [Method::Get, Method::Head].contains(request.method());
    if content.habits.login.is_some()
        && !free
        && field(&request, "Authorization") != Some("Bearer good")
    {
        let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"test\"");
        let _ = request
            .respond(Response::empty(401).with_header(header("WWW-Authenticate", &challenge)));
        return;
    }
    let Some(rest) = path.strip_prefix("/v2/") else {
        return respond(request, 404);
    };
    if rest.is_empty() {
        return respond(request, 200);
    }
    if let Some((repository, wanted)) = rest.split_once("/manifests/") {
        return manifest(request, content, repository, wanted);
    }
    if let Some((repository, wanted)) = rest.split_once("/blobs/uploads/") {
        return upload(request, content, repository, wanted, query);
    }
    let Some((_, digest)) = rest.split_once("/blobs/") else {
        return respond(request, 404);
    };
    let Some(bytes) = content.blobs.get(digest) else {
        return respond(request, 404);
    };
    if *request.method() == Method::Head {
        return respond(request, 200);
    }
    let from = field(&request, "Range")
        .and_then(|range| {
            range
                .strip_prefix("bytes=")?
                .strip_suffix('-')?
                .parse()
                .ok()
        })
        .unwrap_or(0);
    let mut part = bytes[from..].to_vec();
    if content.habits.spoil {
        part[0] ^= 1;
    }
    let whole = part.len();
    part.truncate(content.habits.cut_after.unwrap_or(whole));
    let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
    let headers = if from > 0 {
        vec![header("Content-Range", &range)]
    } else {
        Vec::new()
    };
    let status = if from > 0 { 206 } else { 200 };
    // The declared length exceeds the data: the connection ends too early.
    let _ = request.respond(Response::new(
        status.into(),
        headers,
        Cursor::new(part),
        Some(whole),
        None,
    ));
}

fn manifest(mut request: Request, content: &mut Content, repository: &str, wanted: &str) {
    let name = format!("{repository}/{wanted}");
    if *request.method() == Method::Put {
        let kind = field(&request, "Content-Type")
            .unwrap_or_default()
            .to_owned();
        let mut bytes = Vec::new();
        request.as_reader().read_to_end(&mut bytes).unwrap();
        content.manifests.insert(
            format!("{repository}/{}", digest(&bytes)),
            (kind.clone(), bytes.clone()),
        );
        content.manifests.insert(name, (kind, bytes));
        return respond(request, 201);
    }
    match content.manifests.get(&name) {
        Some((kind, bytes)) => {
            let response = Response::from_data(bytes.clone())
                .with_header(header("Content-Type", kind))
                .with_header(header("Docker-Content-Digest", &digest(bytes)));
            let _ = request.respond(response);
        }
        None => respond(request, 404),
    }
}

fn upload(
    mut request: Request,
    content: &mut Content,
    repository: &str,
    wanted: &str,
    query: &str,
) {
    let method = request.method().clone();
    let place = |id: &str| {
        header(
            "Location",
            &format!("/v2/{repository}/blobs/uploads/{id}?state=x"),
        )
    };
    if method == Method::Post {
        let id = content.uploads.len().to_string();
        content.uploads.insert(id.clone(), Vec::new());
        let _ = request.respond(Response::empty(202).with_header(place(&id)));
        return;
    }
    let have = content.uploads.get(wanted).map_or(0, Vec::len);
    let range = |have: usize| header("Range", &format!("0-{}", have.saturating_sub(1)));
    if method == Method::Get {
        let _ = request.respond(
            Response::empty(204)
                .with_header(place(wanted))
                .with_header(range(have)),
        );
        return;
    }
    let mut bytes = Vec::new();
    request.as_reader().read_to_end(&mut bytes).unwrap();
    if method == Method::Patch && content.habits.lose_pieces > 0 {
        content.habits.lose_pieces -= 1;
        bytes.truncate(bytes.len() / 2);
        content.uploads.get_mut(wanted).unwrap().extend(bytes);
        return respond(request, 416);
    }
    let upload = content.uploads.get_mut(wanted).unwrap();
    upload.extend(bytes);
    if method == Method::Patch {
        let have = upload.len();
        let _ = request.respond(
            Response::empty(202)
                .with_header(place(wanted))
                .with_header(range(have)),
        );
        return;
    }
    let declared = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("digest="))
        .unwrap_or_default()
        .replace("%3A", ":");
    let bytes = upload.clone();
    if digest(&bytes) != declared {
        return respond(request, 400);
    }
    content.blobs.insert(declared, bytes);
    respond(request, 201);
}

fn respond(request: Request, status: u16) {
    let _ = request.respond(Response::empty(status));
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine;
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
    )
}
