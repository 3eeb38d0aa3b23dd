//! Downloads the archive of a run from its status service, which needs no permission to run commands in pods.
//!
//! Requests the remainder after a broken connection. The service announces size and digest, and the download is
//! verified
//! against them. Starts no thread.

use std::io::Read;

use anyhow::{Context as _, Result, bail};

use super::partial::PartialFile;
use super::received::{ReceivedArchive, archive_name};
use super::service::{Credentials, StatusClient};
use super::wanted::Retrieval;
use super::{IDLE_LIMIT, SILENCE_TIMEOUT};
use crate::backplane::{MAX_SIGNATURE_BYTES, MAX_STATEMENT_BYTES, Seal};
use crate::{layout, status};
use base::retry::Attempts;
use base::stop::Stop;

/// Downloads the archive to its destination, with its seal, if it has one.
pub(super) fn download(
    credentials: &Credentials,
    wanted: &Retrieval<'_>,
    stop: &Stop,
) -> Result<(ReceivedArchive, Option<Seal>)> {
    let client = credentials.client(stop)?;
    let archive = client.status().context("the run's status service does not answer")?.archive;
    if archive.name.is_empty() {
        bail!("the run has no archive yet");
    }
    let Some(own) = archive_name(&archive.name) else {
        bail!("`{}` is not a name for an archive", archive.name)
    };
    let mut file = PartialFile::create(wanted.into, wanted.name.unwrap_or(own), wanted.force)?;
    rest(&client, &archive, &mut file, wanted.watch, stop)?;
    file.verify(&archive)?;
    let part = |ending, most| -> Result<Vec<u8>> {
        let mut content = Vec::new();
        client.results(ending, None, SILENCE_TIMEOUT)?.take(most).read_to_end(&mut content)?;
        Ok(content)
    };
    let [statement, signature] = layout::SEAL;
    let statement = part(statement, MAX_STATEMENT_BYTES);
    let signature = part(signature, MAX_SIGNATURE_BYTES);
    let seal = match (statement, signature) {
        (Ok(statement), Ok(signature)) => Some(Seal { statement, signature }),
        (Err(error), _) | (_, Err(error)) => {
            log::debug!("the status service provides no seal: {error:#}");
            None
        }
    };
    Ok((ReceivedArchive { name: own.to_owned(), file }, seal))
}

/// Appends the missing bytes of `file`, over as many connections as necessary.
fn rest(
    client: &StatusClient,
    archive: &status::Archive,
    file: &mut PartialFile,
    watch: &dyn Fn(u64, u64),
    stop: &Stop,
) -> Result<()> {
    let mut attempts = Attempts::new(IDLE_LIMIT, stop);
    while file.size() < archive.size {
        let before = file.size();
        let why = match client.results("", Some((before, &archive.sha256)), SILENCE_TIMEOUT) {
            Ok(body) => take(body, archive, file, watch)?,
            Err(error) if error.code().is_some_and(|code| code < 500) => return Err(error.into()),
            Err(error) => error.to_string(),
        };
        if file.size() >= archive.size {
            break;
        }
        let again = attempts.again(file.size() > before);
        if stop.stopped() {
            bail!("interrupted");
        }
        if !again {
            bail!("the transfer was cut and could not be resumed: {why}");
        }
        log::warn!("the transfer was cut after {} bytes, resuming there: {why}", file.size());
    }
    Ok(())
}

/// Appends a response to the file, at most up to the archive's size; returns why it ended.
fn take(
    body: impl Read,
    archive: &status::Archive,
    file: &mut PartialFile,
    watch: &dyn Fn(u64, u64),
) -> Result<String> {
    let mut body = body.take(archive.size - file.size());
    let mut piece = vec![0; 64 << 10];
    loop {
        match body.read(&mut piece) {
            Ok(0) => return Ok("it ended early".into()),
            Ok(count) => {
                file.write(&piece[..count])?;
                watch(file.size(), archive.size);
            }
            Err(error) => return Ok(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::api_server::{ApiServer, Fault};
    use crate::backplane::{Authority, Statement, server_config};
    use crate::names::STATUS_SERVICE as NAME;
    use crate::remote::Failure;
    use base::clock;
    use base::http::{Response, Server};
    use base::json::json;
    use base::kube;
    use client::protocol::GZIP;

    /// Fetches where commands are forbidden, from a service that sends `content`, truncating this many responses
    /// first, and announces this digest; returns the files in the directory afterwards.
    fn fetch(
        content: &[u8],
        cuts: u64,
        promised: &[u8],
    ) -> (Result<Vec<PathBuf>, Failure>, BTreeMap<String, Vec<u8>>) {
        let folder = base::temp::Folder::new().unwrap();
        let (there, home) = (folder.join("there"), folder.join("home"));
        std::fs::create_dir_all(&there).unwrap();

        let api = ApiServer::start();
        api.put("/api/v1/namespaces/ns", json!({}));
        api.put(
            "/api/v1/namespaces/ns/pods/p",
            json!({"metadata": {"labels": {"sonobuoy-component": "aggregator"}}}),
        );
        let exec = "/api/v1/namespaces/ns/pods/p/exec";
        api.fault(Fault::on(&format!("GET {exec}")).status(403, "Forbidden", "pods/exec is forbidden"));

        let authority = Authority::new(Duration::from_secs(3_600)).unwrap();
        let tls = server_config(&authority.certificate_pem(), &authority.server(NAME).unwrap()).unwrap();
        let server = Server::bind("127.0.0.1:0").unwrap().tls(tls);
        let own = authority.client("status").unwrap();
        let credentials = Credentials {
            host_address: format!("https://{}/", server.local_addr()),
            created_at: clock::now(),
            ca_cert: authority.certificate_pem(),
            client_cert: own.cert_pem,
            client_key: own.key_pem,
            server_name: NAME.into(),
            namespace: "ns".into(),
        };
        let sha256: String = ring::digest::digest(&ring::digest::SHA256, promised)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let archive =
            json!({"name": "a.tar.gz", "created": clock::now(), "sha256": sha256, "size": promised.len()});
        let (run, size) = ("r".to_owned(), promised.len() as u64);
        let statement = Statement { run, name: "a.tar.gz".into(), size, sha256: sha256.clone() };
        let seal = authority.seal(&statement).unwrap();
        let answers = AtomicU64::new(0);
        let stop = Stop::new();
        let fetched = std::thread::scope(|scope| {
            scope.spawn(|| {
                server.run(&stop, |request| {
                    if request.path == "/status" {
                        return Response::json(200, &json!({"status": "complete", "tar-info": archive}));
                    }
                    for (ending, part) in layout::SEAL.iter().zip([&seal.statement, &seal.signature]) {
                        if request.path.ends_with(ending) {
                            return Response::bytes(200, GZIP, part.as_slice());
                        }
                    }
                    let answer = answers.fetch_add(1, Ordering::Relaxed);
                    let path = there.join(answer.to_string());
                    std::fs::write(&path, content).unwrap();
                    let range = request.headers.get("range");
                    let response = Response::file(File::open(&path).unwrap(), GZIP, range).unwrap();
                    if answer < cuts {
                        // Truncated in the middle of the file.
                        let left = content.len() as u64 * (answer + 1) / (cuts + 1);
                        File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
                    }
                    response
                })
            });
            let client = kube::Client::new(kube::Config::plain(api.url()), &Stop::new()).unwrap();
            let retrieval = Retrieval {
                client: Some(&client),
                namespace: "ns",
                from: "/x",
                into: &home,
                name: None,
                partial: false,
                service: Some(&credentials),
                force: false,
                keep_seal: true,
                watch: &|_, _| (),
            };
            let fetched = retrieval.fetch(&Stop::new());
            stop.stop();
            fetched
        });
        let came = std::fs::read_dir(&home).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
        });
        let came = came.collect();
        (fetched, came)
    }

    #[test]
    fn where_commands_are_forbidden_the_status_service_brings_the_archive() {
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        for cuts in [0, 3] {
            let (fetched, came) = fetch(&content, cuts, &content);
            assert_eq!(fetched.unwrap()[0].file_name().unwrap(), "a.tar.gz");
            assert!(came["a.tar.gz"] == content, "after {cuts} cuts");
            let names: Vec<_> = came.keys().map(String::as_str).collect();
            assert_eq!(names, ["a.tar.gz", "a.tar.gz.sha256", "a.tar.gz.sig"]);
        }
    }

    #[test]
    fn what_is_not_what_was_promised_leaves_nothing() {
        let (fetched, came) = fetch(b"something", 0, b"else");
        assert!(
            matches!(fetched, Err(Failure::Transfer(error)) if error.to_string().contains("is not what"))
        );
        assert!(came.is_empty(), "{came:?}");
        let (fetched, came) = fetch(b"some", 0, b"more than there is");
        assert!(fetched.is_err() && came.is_empty(), "{came:?}");
    }
}
