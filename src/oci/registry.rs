//! Client of the OCI distribution API: manifests and blobs of registries, with authentication.
//!
//! Owns requests, tokens, retries. An interrupted download resumes and is verified by its hash.
//! Existing blobs are not uploaded again; large blobs are uploaded in pieces, and a failed piece is
//! retried. Starts no thread.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;
use ureq::http::{Request, Response, StatusCode};
use ureq::{Body, SendBody};

use super::credential::{self, Credential};
use super::{Descriptor, MAX_JSON_BYTES, Reference, Watch, digest_of, items, platform_of};
use base::at::At as _;
use base::lock;
use base::retry::{Attempts, Backoff, LeastRate, TRANSFER};
use base::{dial::Dialer, json, small, stop::Stop, tls, visible::short};

/// Every supported kind of manifest.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
                         application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.docker.distribution.manifest.v2+json";
/// Media type of a blob.
const BINARY: &str = "application/octet-stream";
/// Bytes of a piece; larger blobs are uploaded in pieces that are retried individually.
const PIECE_BYTES: u64 = 32 << 20;
/// Maximum consecutive attempts without progress.
const MAX_ATTEMPTS: u32 = 5;
/// Timeout of connecting, and until a response starts.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of one piece of a body; an interrupted transfer is resumed.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

/// Access to registries.
pub struct Client {
    program: &'static str,
    agent: ureq::Agent,
    /// Authorization headers by host, repository and access.
    known: Mutex<HashMap<(String, String, bool), String>>,
    /// TLS support of registries on this machine, by host.
    near: Mutex<HashMap<String, bool>>,
    plain: bool,
    stop: Stop,
    attempts: u32,
    backoff: Backoff,
    /// Credentials in the format of docker's config.json, in addition to those of this machine.
    config: Option<Value>,
}

impl Client {
    /// Access over HTTPS on behalf of a program (`name/version`); with `plain` over HTTP, which is
    /// also used for loopback addresses unless they want TLS.
    pub fn new(program: &'static str, plain: bool, stop: &Stop) -> Result<Self> {
        Ok(Self {
            program,
            agent: agent(program, RESPONSE_TIMEOUT, stop)?,
            known: Mutex::default(),
            near: Mutex::default(),
            plain,
            stop: stop.clone(),
            attempts: MAX_ATTEMPTS,
            backoff: TRANSFER,
            config: None,
        })
    }

    /// A manifest by its tag or digest, with its descriptor.
    pub fn manifest(&self, image: &Reference, wanted: &str) -> Result<(Descriptor, Vec<u8>)> {
        let url = self.url(image, &format!("manifests/{wanted}"));
        let (declared, bytes) = self.fetch(image, &url, &[("Accept", MANIFESTS)])?;
        let digest = digest_of(&base::sha256(&bytes));
        ensure!(
            !wanted.starts_with("sha256:") || wanted == digest,
            "`{url}`: the content has the digest {digest}"
        );
        let inner: Value =
            json::from_slice(&bytes).with_context(|| format!("`{url}` is not a manifest"))?;
        let media_type = inner["mediaType"]
            .as_str()
            .map_or(declared, ToOwned::to_owned);
        Ok((
            Descriptor {
                media_type,
                digest,
                size: bytes.len() as u64,
            },
            bytes,
        ))
    }

    /// Downloads a blob to `path`, resuming from what is already there under a temporary name.
    pub fn download(
        &self,
        image: &Reference,
        blob: &Descriptor,
        path: &Path,
        watch: Watch<'_>,
    ) -> Result<()> {
        let partial = &path.with_extension("partial");
        let url = self.url(image, &format!("blobs/{}", blob.digest));
        let length = || std::fs::metadata(partial).map_or(0, |meta| meta.len());
        self.persist_transfer(blob.size, length, || {
            self.transfer(image, &url, blob, partial, watch)
        })
        .with_context(|| format!("failed to download `{url}`"))?;
        std::fs::rename(partial, path).at("cannot write", path)
    }

    fn transfer(
        &self,
        image: &Reference,
        url: &str,
        blob: &Descriptor,
        partial: &Path,
        watch: Watch<'_>,
    ) -> Result<()> {
        let cannot_write = "cannot write";
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(partial)
            .at(cannot_write, partial)?;
        let mut have = file.metadata().at(cannot_write, partial)?.len();
        if have < blob.size || have == 0 {
            let range = format!("bytes={have}-");
            let ranged = [("Range", range.as_str())];
            let answer = self.call(
                "GET",
                image,
                false,
                url,
                if have > 0 { &ranged } else { &[] },
                None,
            )?;
            match answer.status() {
                StatusCode::PARTIAL_CONTENT => {
                    let begins = header(&answer, "content-range")
                        .is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
                    ensure!(begins, "the server did not resume at byte {have}");
                }
                StatusCode::OK => {
                    // The server ignored the range and starts from the beginning.
                    file.set_len(0).at(cannot_write, partial)?;
                    have = 0;
                }
                _ => return Err(refusal(answer, url)),
            }
            // One extra byte shows that the content is too long.
            let mut body = answer
                .into_body()
                .into_reader()
                .take(blob.size.saturating_sub(have) + 1);
            let mut piece = vec![0; 64 << 10];
            let mut rate = LeastRate::default();
            loop {
                let count = body
                    .read(&mut piece)
                    .context("the transfer was interrupted")?;
                if count == 0 {
                    break;
                }
                let written = file.write_all(&piece[..count]).at(cannot_write, partial);
                // Retrying does not help against a full disk.
                written.map_err(|error| Final(format!("{error:#}")))?;
                have += count as u64;
                watch(blob, have);
                rate.count(count as u64, Instant::now())
                    .context("the transfer was interrupted")?;
            }
        }
        ensure!(
            have >= blob.size,
            "interrupted after {have} of {} bytes",
            blob.size
        );
        // Of the whole file, a part of which may be from an earlier call of this program.
        let came = digest_of(&base::file_sha256(partial).at("cannot read", partial)?);
        if have != blob.size || came != blob.digest {
            let _ = std::fs::remove_file(partial);
            bail!(Final(format!(
                "received {have} bytes with the digest {came} instead of {} with {}",
                blob.size, blob.digest
            )));
        }
        file.sync_all().at(cannot_write, partial)
    }

    /// Sends a blob, unless the registry has it.
    pub fn upload(
        &self,
        image: &Reference,
        blob: &Descriptor,
        path: &Path,
        watch: Watch<'_>,
    ) -> Result<bool> {
        let url = self.url(image, &format!("blobs/{}", blob.digest));
        let status = self.persist(|| {
            let answer = self.call("HEAD", image, true, &url, &[], None)?;
            if is_busy(&answer) {
                Err(refusal(answer, &url))
            } else {
                Ok(answer.status())
            }
        })?;
        if status == StatusCode::OK {
            return Ok(false);
        }
        self.persist(|| self.send(image, blob, path, watch))
            .with_context(|| format!("failed to upload `{url}`"))?;
        Ok(true)
    }

    fn send(
        &self,
        image: &Reference,
        blob: &Descriptor,
        path: &Path,
        watch: Watch<'_>,
    ) -> Result<()> {
        let sent = |bytes| watch(blob, bytes);
        let url = self.url(image, "blobs/uploads/");
        let answer = self.call("POST", image, true, &url, &[("Content-Length", "0")], None)?;
        if answer.status() != StatusCode::ACCEPTED {
            return Err(refusal(answer, &url));
        }
        let mut place = self.place(image, &answer, &url)?;
        let mut from = 0;
        let mut attempts = self.attempts().transfer(0, blob.size);
        // A small blob needs one request; the pieces of a large one are retried individually.
        while blob.size > PIECE_BYTES && from < blob.size {
            let length = PIECE_BYTES.min(blob.size - from);
            let range = format!("{from}-{}", from + length - 1);
            let headers = [("Content-Type", BINARY), ("Content-Range", &*range)];
            let piece = Piece {
                path,
                from,
                length,
                sent: &sent,
            };
            match self.call("PATCH", image, true, &place, &headers, Some(piece)) {
                Ok(answer) if answer.status() == StatusCode::ACCEPTED => {
                    place = self.place(image, &answer, &place)?;
                    from += length;
                    continue;
                }
                Ok(answer) if answer.status() != StatusCode::RANGE_NOT_SATISFIABLE => {
                    return Err(refusal(answer, &place));
                }
                Ok(_) | Err(_) => {}
            }
            ensure!(
                attempts.wait_to_retry_at(from),
                "interrupted after {from} of {} bytes",
                blob.size
            );
            // Query the offset that the registry has received.
            let answer = self.call("GET", image, true, &place, &[], None)?;
            ensure!(
                answer.status() == StatusCode::NO_CONTENT,
                "the registry no longer knows the upload"
            );
            let range = header(&answer, "range").unwrap_or_default();
            let last = range
                .rsplit_once('-')
                .and_then(|(_, last)| last.parse::<u64>().ok());
            from = last.map_or(0, |last| last + 1).min(blob.size);
            place = self.place(image, &answer, &place)?;
        }
        // The location may have a query of its own, which carries the state of the upload.
        let separator = if place.contains('?') { '&' } else { '?' };
        let end = format!(
            "{place}{separator}digest={}",
            blob.digest.replace(':', "%3A")
        );
        let piece = Piece {
            path,
            from,
            length: blob.size - from,
            sent: &sent,
        };
        let answer = self.call(
            "PUT",
            image,
            true,
            &end,
            &[("Content-Type", BINARY)],
            Some(piece),
        )?;
        if answer.status() == StatusCode::CREATED {
            Ok(())
        } else {
            Err(refusal(answer, &end))
        }
    }

    /// Puts a manifest under a tag or its digest; the registry must have its blobs.
    pub fn put_manifest(
        &self,
        image: &Reference,
        wanted: &str,
        kind: &Descriptor,
        path: &Path,
    ) -> Result<()> {
        let url = self.url(image, &format!("manifests/{wanted}"));
        let headers = [("Content-Type", &*kind.media_type)];
        self.persist(|| {
            let piece = Piece {
                path,
                from: 0,
                length: kind.size,
                sent: &|_| (),
            };
            let answer = self.call("PUT", image, true, &url, &headers, Some(piece))?;
            if answer.status().is_success() {
                Ok(())
            } else {
                Err(refusal(answer, &url))
            }
        })
    }

    fn url(&self, image: &Reference, rest: &str) -> String {
        format!("{}/v2/{}/{rest}", self.base(image), image.repository)
    }

    fn base(&self, image: &Reference) -> String {
        let host = image.host();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let is_local = ["localhost", "127.0.0.1", "[::1]"].contains(&name);
        format!(
            "{}://{host}",
            if self.plain || is_local && !self.wants_tls(host) {
                "http"
            } else {
                "https"
            }
        )
    }

    /// Whether a server on this machine rejects plain HTTP; if it cannot be reached, plain HTTP is
    /// used.
    fn wants_tls(&self, host: &str) -> bool {
        let ask = || match self.agent.get(format!("http://{host}/v2/")).call() {
            Ok(answer) => answer.status() == StatusCode::BAD_REQUEST,
            Err(error) => !matches!(error, ureq::Error::Other(_) | ureq::Error::Timeout(_)),
        };
        *lock(&self.near).entry(host.to_owned()).or_insert_with(ask)
    }

    /// Where an upload continues; relative locations belong to the same registry.
    fn place(&self, image: &Reference, answer: &Response<Body>, url: &str) -> Result<String> {
        let place = header(answer, "location")
            .with_context(|| format!("`{url}`: the registry named no upload location"))?;
        Ok(if place.starts_with('/') {
            format!("{}{place}", self.base(image))
        } else {
            place
        })
    }

    /// Sends one request, with the authorization that the registry requests.
    fn call(
        &self,
        method: &str,
        image: &Reference,
        push: bool,
        url: &str,
        headers: &[(&str, &str)],
        body: Option<Piece<'_>>,
    ) -> Result<Response<Body>> {
        // Blobs may be stored on other hosts, which must not receive credentials.
        let is_same_registry = url
            .strip_prefix(&self.base(image))
            .is_some_and(|rest| rest.starts_with('/'));
        let key = (image.registry.clone(), image.repository.clone(), push);
        let mut authorisation = lock(&self.known)
            .get(&key)
            .cloned()
            .filter(|_| is_same_registry);
        // Once: a registry that rejects a fresh token would be asked forever.
        let mut may_ask = is_same_registry;
        loop {
            let mut request = Request::builder().method(method).uri(url);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(value) = authorisation.take() {
                request = request.header("Authorization", value);
            }
            let answer = match &body {
                Some(piece) => {
                    request = request.header("Content-Length", piece.length);
                    self.agent
                        .run(request.body(SendBody::from_reader(&mut piece.open()?))?)
                }
                None => self.agent.run(request.body(())?),
            };
            let answer =
                answer
                    .map_err(tls::explained)
                    .with_context(|| match is_same_registry {
                        true => format!("no answer from `{}/v2/`", self.base(image)),
                        false => format!("no answer from `{}`", short(url)),
                    })?;
            let is_refused = answer.status() == StatusCode::UNAUTHORIZED;
            let Some(challenge) = challenge(&answer).filter(|_| is_refused && may_ask) else {
                return Ok(answer);
            };
            may_ask = false;
            let value = self
                .answer_challenge(&challenge, image, push)
                .map_err(|error| {
                    // Retrying does not help against wrong credentials.
                    if error.is::<ureq::Error>() || error.is::<io::Error>() {
                        error
                    } else {
                        anyhow!(Final(format!("{error:#}")))
                    }
                })?;
            lock(&self.known).insert(key.clone(), value.clone());
            authorisation = Some(value);
        }
    }

    /// The authorization header for a challenge.
    fn answer_challenge(&self, challenge: &str, image: &Reference, push: bool) -> Result<String> {
        let registry = &image.registry;
        let credential = self.credential(registry)?;
        let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
        let basic = |user: &str, password: &str| {
            format!(
                "Basic {}",
                BASE64_STANDARD.encode(format!("{user}:{password}"))
            )
        };
        if scheme.eq_ignore_ascii_case("basic") {
            let Some(Credential::Password(user, password)) = credential else {
                bail!(Final(format!(
                    "registry `{registry}` requires a user and password; set them with `docker \
                     login {registry}` or in config.json"
                )));
            };
            return Ok(basic(&user, &password));
        }
        ensure!(
            scheme.eq_ignore_ascii_case("bearer"),
            "registry `{registry}` requires unsupported authentication: `{challenge}`"
        );
        let fields = fields(rest);
        let field = |name: &str| {
            fields
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        let realm = field("realm")
            .with_context(|| format!("registry `{registry}` does not say where to get tokens"))?;
        // Also after a redirect, a password must not leave the secure connections.
        let is_secure = self.base(image).starts_with("https:");
        ensure!(
            !is_secure
                || realm
                    .get(..6)
                    .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:")),
            "registry `{registry}` asks to get tokens from `{}`, which is not encrypted: no \
             credentials were sent; its operator has to configure a realm with https",
            short(realm)
        );
        let scope = format!(
            "repository:{}:{}",
            image.repository,
            if push { "pull,push" } else { "pull" }
        );
        let failed = || format!("failed to get a token for `{registry}` from `{realm}`");
        let answer = match &credential {
            Some(Credential::Token(token)) => {
                let service = field("service").unwrap_or_default();
                let form = [
                    ("grant_type", "refresh_token"),
                    ("refresh_token", token),
                    ("service", service),
                    ("scope", &scope),
                    (
                        "client_id",
                        self.program.split('/').next().unwrap_or_default(),
                    ),
                ];
                self.agent
                    .post(realm)
                    .config()
                    .https_only(is_secure)
                    .build()
                    .send_form(form)
            }
            other => {
                let request = self.agent.get(realm).config().https_only(is_secure).build();
                let mut request = request.query("scope", &scope);
                if let Some(service) = field("service") {
                    request = request.query("service", service);
                }
                if let Some(Credential::Password(user, password)) = other {
                    request = request.header("Authorization", basic(user, password));
                }
                request.call()
            }
        };
        let answer = answer.map_err(tls::explained).with_context(failed)?;
        if !answer.status().is_success() {
            return Err(refusal(answer, realm)).with_context(failed);
        }
        let text = body(answer).with_context(failed)?;
        let document: Value = json::from_slice(&text).with_context(failed)?;
        let token = document["token"]
            .as_str()
            .or_else(|| document["access_token"].as_str());
        Ok(format!("Bearer {}", token.with_context(failed)?))
    }

    /// The content of a URL, and its declared kind.
    fn fetch(
        &self,
        image: &Reference,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<(String, Vec<u8>)> {
        self.persist(|| {
            let answer = self.call("GET", image, false, url, headers, None)?;
            if answer.status() != StatusCode::OK {
                return Err(refusal(answer, url));
            }
            let kind = header(&answer, "content-type").unwrap_or_default();
            let bytes = body(answer).with_context(|| format!("failed to read `{url}`"))?;
            Ok((kind, bytes))
        })
    }

    /// Repeats a request until it succeeds, fails for good, or fails too often.
    fn persist<T>(&self, request: impl FnMut() -> Result<T>) -> Result<T> {
        self.persist_transfer(0, || 0, request)
    }

    /// Repeats a transfer of `total` bytes until it succeeds, fails for good, or fails too often
    /// without progress; `done` counts the bytes that have arrived.
    fn persist_transfer<T>(
        &self,
        total: u64,
        done: impl Fn() -> u64,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut attempts = self.attempts().transfer(done(), total);
        loop {
            let error = match work() {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let is_final = error.is::<Final>() || tls::is_distrust(&error);
            if is_final || !attempts.wait_to_retry_at(done()) {
                return Err(error);
            }
            log::info!("{error:#}; retrying");
        }
    }

    fn attempts(&self) -> Attempts<'_> {
        Attempts::new(self.attempts, &self.stop).backoff(self.backoff)
    }
}

/// An agent with `limit` as the timeout for connecting and until a response starts.
fn agent(program: &'static str, limit: Duration, stop: &Stop) -> Result<ureq::Agent> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(limit))
        .timeout_recv_response(Some(limit))
        .timeout_recv_body(Some(TRANSFER_TIMEOUT))
        .timeout_send_body(Some(TRANSFER_TIMEOUT))
        .http_status_as_error(false)
        .user_agent(program);
    Ok(Dialer::new(stop)?.agent(config))
}

/// An error that retrying would not change.
#[derive(Debug)]
struct Final(String);

impl fmt::Display for Final {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Final {}

fn header(answer: &Response<Body>, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

fn body(answer: Response<Body>) -> std::io::Result<Vec<u8>> {
    small::read_from(answer.into_body().into_reader(), MAX_JSON_BYTES)
}

/// Whether a registry may accept the same request later.
fn is_busy(answer: &Response<Body>) -> bool {
    answer.status().is_server_error() || answer.status() == StatusCode::TOO_MANY_REQUESTS
}

/// A registry's refusal as an error; final unless it is only busy.
fn refusal(answer: Response<Body>, url: &str) -> anyhow::Error {
    let (status, is_busy, url) = (answer.status(), is_busy(&answer), short(url));
    let document: Value = json::from_slice(&body(answer).unwrap_or_default()).unwrap_or_default();
    let message = document["errors"][0]["message"]
        .as_str()
        .or_else(|| document["errors"][0]["code"].as_str());
    let why = match (status, message) {
        (StatusCode::UNAUTHORIZED, message) => format!(
            "`{url}`: {status}: {}; use an account with access, by `docker login` or in \
             config.json",
            message.unwrap_or("not allowed")
        ),
        (_, Some(message)) => format!("`{url}`: {status}: {message}"),
        (StatusCode::NOT_FOUND, None) => format!("`{url}`: not found"),
        (_, None) => format!("`{url}`: the registry answered {status}"),
    };
    if is_busy {
        anyhow!(why)
    } else {
        anyhow!(Final(why))
    }
}

/// A registry's information about an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageInfo {
    /// Digest of its manifest, or of its index.
    pub digest: String,
    /// Platforms such as `linux/amd64`.
    pub platforms: Vec<String>,
}

impl Client {
    /// The same client with a single attempt per request, and `limit` as the timeout until a
    /// response starts.
    pub fn quick(mut self, limit: Duration) -> Result<Self> {
        self.agent = agent(self.program, limit, &self.stop)?;
        self.attempts = 1;
        Ok(self)
    }

    /// The same client with further credentials, in the format of docker's config.json and pull
    /// secrets.
    pub fn credentials(mut self, config: Value) -> Self {
        self.config = Some(config);
        self
    }

    fn credential(&self, registry: &str) -> Result<Option<Credential>> {
        // Credential helpers belong to this machine and must not run on behalf of credentials from
        // elsewhere.
        let auths = self
            .config
            .as_ref()
            .map(|config| json::json!({"auths": config["auths"]}));
        match auths
            .map(|auths| credential::in_config(&auths, registry))
            .transpose()?
            .flatten()
        {
            Some(found) => Ok(Some(found)),
            None => credential::find(registry),
        }
    }

    /// Checks that the registry has an image; returns its digest if the registry says so.
    pub fn exists(&self, image: &Reference) -> Result<Option<String>> {
        let url = self.url(image, &format!("manifests/{}", image.wanted()));
        self.persist(|| {
            let answer = self.call("HEAD", image, false, &url, &[("Accept", MANIFESTS)], None)?;
            match answer.status() {
                StatusCode::OK => Ok(Some(
                    header(&answer, "docker-content-digest").unwrap_or_default(),
                )),
                StatusCode::NOT_FOUND => Ok(None),
                _ => Err(refusal(answer, &url)),
            }
        })
    }

    /// The image that the registry has under a name, if any.
    pub fn find_image(&self, image: &Reference) -> Result<Option<ImageInfo>> {
        if self.exists(image)?.is_none() {
            return Ok(None);
        }
        let (root, bytes) = self.manifest(image, image.wanted())?;
        let manifest: Value =
            json::from_slice(&bytes).with_context(|| format!("the manifest of `{image}`"))?;
        ImageInfo::new(root, &manifest, |blob| self.settings(image, blob)).map(Some)
    }

    fn settings(&self, image: &Reference, blob: &Descriptor) -> Result<Value> {
        let url = self.url(image, &format!("blobs/{}", blob.digest));
        let (_, bytes) = self.fetch(image, &url, &[])?;
        json::from_slice(&bytes).with_context(|| format!("`{url}`"))
    }
}

impl ImageInfo {
    /// From the manifest or index of an image; `settings` reads the configuration blob of a single
    /// image.
    pub(super) fn new(
        root: Descriptor,
        manifest: &Value,
        settings: impl FnOnce(&Descriptor) -> Result<Value>,
    ) -> Result<Self> {
        let platforms = if root.is_index() {
            let all = items(&manifest["manifests"]).iter();
            all.filter_map(|entry| platform_of(&entry["platform"]))
                .collect()
        } else {
            let settings = Descriptor::read(&manifest["config"]).map(|blob| settings(&blob));
            platform_of(&settings.transpose()?.unwrap_or_default())
                .into_iter()
                .collect()
        };
        Ok(Self {
            digest: root.digest,
            platforms,
        })
    }
}

/// Whether the registry did not respond, as opposed to refusing.
pub fn is_unreached(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.is::<ureq::Error>() || cause.is::<std::io::Error>())
}

/// The authentication that a registry requests; tokens if it offers several kinds.
fn challenge(answer: &Response<Body>) -> Option<String> {
    let all = answer
        .headers()
        .get_all("www-authenticate")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let bearer = |text: &&str| {
        text.get(..6)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
    };
    all.max_by_key(bearer).map(ToOwned::to_owned)
}

/// `realm="https://…",service="…"`; quotes may contain commas.
pub(super) fn fields(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        pairs.push((
            key.trim_matches([',', ' ']).to_ascii_lowercase(),
            value.to_owned(),
        ));
        rest = after;
    }
    pairs
}

/// A part of a file being sent.
struct Piece<'a> {
    path: &'a Path,
    from: u64,
    length: u64,
    /// Receives the number of bytes sent of the file.
    sent: &'a dyn Fn(u64),
}

impl Piece<'_> {
    fn open(&self) -> Result<impl Read + '_> {
        let mut file = File::open(self.path).at("cannot read", self.path)?;
        file.seek(SeekFrom::Start(self.from))?;
        Ok(CountedReader {
            file: file.take(self.length),
            at: self.from,
            sent: self.sent,
        })
    }
}

/// Reports each read.
struct CountedReader<'a> {
    file: std::io::Take<File>,
    at: u64,
    sent: &'a dyn Fn(u64),
}

impl Read for CountedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.at += count as u64;
        (self.sent)(self.at);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_limited_to_loopback() {
        let client = Client::new("test/1", false, &Stop::new()).unwrap();
        for (image, base) in [
            ("localhost:5000/x", "http://localhost:5000"),
            ("127.0.0.1:5000/x", "http://127.0.0.1:5000"),
            ("localhost.example/x", "https://localhost.example"),
        ] {
            assert_eq!(client.base(&Reference::parse(image).unwrap()), base);
        }
    }
}

#[cfg(test)]
mod hostile_tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const NO_PAUSE: Backoff = Backoff {
        first: Duration::ZERO,
        max: Duration::ZERO,
    };
    /// More requests than any number that counts as bounded.
    const MAX_REQUESTS: u32 = 100;

    /// Answers each connection with one more byte of a blob of 300 MiB, then closes it.
    fn serve_bytes(listener: &TcpListener, requests: &AtomicU32) {
        for connection in listener.incoming().flatten() {
            let heads = BufReader::new(&connection).lines().map_while(Result::ok);
            let head: Vec<_> = heads.take_while(|line| !line.is_empty()).collect();
            if head.first().is_none_or(|line| line.starts_with("DELETE")) {
                return;
            }
            if !head[0].contains("/blobs/") {
                let _ = (&connection).write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                continue;
            }
            let from = requests.fetch_add(1, Ordering::Relaxed);
            // Ends a client that would never give up.
            let status = match from {
                0 => "200 OK",
                MAX_REQUESTS.. => "403 Forbidden",
                _ => "206 Partial Content",
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Range: bytes \
                 {from}-314572799/314572800\r\nContent-Length: {}\r\nConnection: close\r\n\r\nx",
                314_572_800 - from
            );
            let _ = (&connection).write_all(answer.as_bytes());
        }
    }

    #[test]
    fn registry_that_sends_a_byte_per_request_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, folder) = (AtomicU32::new(0), base::temp::Folder::new().unwrap());
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| serve_bytes(&listener, &requests));
            let client = Client {
                backoff: NO_PAUSE,
                ..Client::new("test/1", true, &Stop::new()).unwrap()
            };
            let image = Reference::parse(&format!("{address}/a:1")).unwrap();
            let digest = format!("sha256:{}", "0".repeat(64));
            let blob = Descriptor {
                media_type: BINARY.into(),
                digest,
                size: 300 << 20,
            };
            let outcome = client.download(&image, &blob, &folder.join("blob"), &|_, _| ());
            let _ = (&std::net::TcpStream::connect(address).unwrap())
                .write_all(b"DELETE / HTTP/1.1\r\n\r\n");
            outcome
        });
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.starts_with("failed to download"), "{error}");
        assert_eq!(requests.into_inner(), MAX_ATTEMPTS, "{error}");
    }

    #[test]
    fn password_is_never_sent_to_a_plain_realm_of_a_secure_registry() {
        let credentials = json::json!({"auths": {"registry.example": {"auth": BASE64_STANDARD.encode("user:secret")}}});
        let image = Reference::parse("registry.example/a:1").unwrap();
        let answer = |realm: &str, plain: bool| {
            let client = Client::new("test/1", plain, &Stop::new())
                .unwrap()
                .credentials(credentials.clone());
            let challenge = format!("Bearer realm=\"{realm}\",service=\"s\"");
            client
                .answer_challenge(&challenge, &image, false)
                .map_err(|error| format!("{error:#}"))
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap();
        for realm in [
            format!("http://{host}/token"),
            format!("HTTP://{host}/token"),
            "//x".into(),
            "".into(),
        ] {
            let error = answer(&realm, false).unwrap_err();
            assert!(
                error.contains("is not encrypted: no credentials were sent"),
                "{realm}: {error}"
            );
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nothing has connected");
        // A plain registry has no secrets to protect, and its realm is asked.
        drop(listener);
        let error = answer(&format!("http://{host}/token"), true).unwrap_err();
        assert!(error.contains("failed to get a token"), "{error}");
    }
}

#[cfg(test)]
mod challenge_tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let text = r#"realm="https://auth.example/token",service="reg, one",scope="repository:a:pull,push",error=x"#;
        let expected = [
            ("realm", "https://auth.example/token"),
            ("service", "reg, one"),
            ("scope", "repository:a:pull,push"),
            ("error", "x"),
        ];
        assert_eq!(
            fields(text),
            expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
        assert!(fields("").is_empty());
    }
}
