//! A second server, which gives status and archive to any client with the run's status credentials.
//!
//! The server computes the status document for each request, so that it depends neither on the
//! annotation nor on the API server. Serves `GET /status`, `GET /metrics`, `GET /results` with
//! ranges, the two parts of the archive's seal, and `GET /results/partial`. Knows nothing about
//! workers: they have another authority, so certificates of one server do not work with the other.
//! The metrics have one series for each plugin, never for each node, so that a run of any size
//! costs a monitoring system the same. Runs on its caller's thread; starts the thread `partial` for
//! each archive of an unfinished run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Result, bail};
use serde_json::Value;

use super::partial::pack_partial;
use base::at::At as _;
use base::json::json;
use base::openmetrics::{self, Metrics, Sample};
use base::stop::Stop;
use base::{lock, temp};
use client::protocol::GZIP;
use http::{Request, Response, Server};
use model::layout;
use model::names::{PARTIAL_RESULTS, VERSION};
use model::status::{self, Run};
use run::backplane::{Identity, server_config};

/// What a path names.
enum Route {
    Status,
    Metrics,
    Archive,
    /// A part of the seal, by the ending of its file.
    Seal(&'static str),
    /// The results so far.
    Partial,
}

impl Route {
    fn parse(path: &str) -> Option<Self> {
        match path {
            "/status" => return Some(Self::Status),
            "/metrics" => return Some(Self::Metrics),
            _ => {}
        }
        match path.strip_prefix("/results")? {
            "" => Some(Self::Archive),
            PARTIAL_RESULTS => Some(Self::Partial),
            ending => {
                let mut endings = layout::SEAL.into_iter();
                endings.find(|known| *known == ending).map(Self::Seal)
            }
        }
    }
}

type CurrentStatus = Box<dyn Fn() -> Run + Send>;

/// The server and what it serves.
pub(crate) struct StatusService {
    server: Server,
    /// Folder of archives.
    folder: PathBuf,
    source: Mutex<CurrentStatus>,
}

impl StatusService {
    /// Listens on `port` with the certificates in `certificates`.
    pub(crate) fn open(certificates: &Path, port: i64, folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = certificates.join(name);
            std::fs::read_to_string(&path).at("cannot read", &path)
        };
        let identity = Identity {
            cert_pem: read("tls.crt")?,
            key_pem: read("tls.key")?,
        };
        let tls = server_config(&read("ca.crt")?, &identity, false)?;
        let server = Server::bind(&format!("[::]:{port}"))?.tls(tls);
        let source = Mutex::new(Box::new(Run::default) as CurrentStatus);
        Ok(Self {
            server,
            folder: folder.to_owned(),
            source,
        })
    }

    /// Sets the source of the status.
    pub(crate) fn show(&self, source: impl Fn() -> Run + Send + 'static) {
        *lock(&self.source) = Box::new(source);
    }

    /// Serves until `stop`.
    pub(crate) fn serve(&self, stop: &Stop) -> Result<()> {
        self.server.run(stop, |request| self.answer(request))
    }

    fn answer(&self, request: &Request<'_>) -> Response {
        let Some(route) = Route::parse(&request.path) else {
            return Response::text(
                404,
                "no such path; there are /status, /metrics, /results and /results/partial",
            );
        };
        if !["GET", "HEAD"].contains(&&*request.method) {
            return Response::text(405, "this service takes GET and HEAD")
                .header("allow", "GET, HEAD");
        }
        let status = lock(&self.source)();
        match route {
            Route::Status => {
                Response::json(200, &document(&status)).header("cache-control", "no-store")
            }
            Route::Metrics => Response::bytes(200, openmetrics::CONTENT_TYPE, metrics(&status)),
            Route::Partial => self
                .partial()
                .unwrap_or_else(|error| Response::text(404, format_args!("{error:#}"))),
            Route::Archive | Route::Seal(_)
                if status.status != status::COMPLETE || status.archive.name.is_empty() =>
            {
                Response::text(404, "the run has no archive yet")
            }
            Route::Seal(ending) => self.seal(&status.archive, ending),
            Route::Archive => self.archive(&status.archive, request),
        }
    }

    /// A part of the archive's seal.
    fn seal(&self, archive: &status::Archive, ending: &str) -> Response {
        let path = self.folder.join(format!("{}{ending}", archive.name));
        match std::fs::read(path) {
            Ok(part) => Response::bytes(200, "application/octet-stream", part),
            Err(error) => Response::text(404, format_args!("the archive has no seal: {error}")),
        }
    }

    fn archive(&self, archive: &status::Archive, request: &Request<'_>) -> Response {
        let tag = format!("\"{}\"", archive.sha256);
        let headers = &request.headers;
        // A range from a different archive would be useless.
        let is_same = headers.get("if-range").is_none_or(|wanted| wanted == tag);
        let range = headers.get("range").filter(|_| is_same);
        let opened = File::open(self.folder.join(&archive.name));
        match opened.and_then(|file| Response::file(file, GZIP, range)) {
            Ok(response) => response.header("etag", tag).header(
                "content-disposition",
                format!("attachment; filename=\"{}\"", archive.name),
            ),
            Err(error) => Response::text(
                500,
                format_args!("`{}` cannot be read: {error}", archive.name),
            ),
        }
    }

    /// The results so far, by way of a file without a name, since their packed size is unknown.
    /// Packed in a thread that ends: its priority stays low.
    fn partial(&self) -> Result<Response> {
        let pack = || pack_partial(&self.folder, temp::file(&self.folder)?);
        let mut file = std::thread::scope(|scope| {
            let packing = base::thread("partial").spawn_scoped(scope, pack)?;
            packing
                .join()
                .unwrap_or_else(|_| bail!("the thread that packs panicked"))
        })?;
        file.rewind()?;
        Ok(Response::file(file, GZIP, None)?.header("cache-control", "no-store"))
    }
}

/// The status document with this service's historical names in addition to those of the annotation.
fn document(status: &Run) -> Value {
    let mut document = json!(status);
    if document["percent_complete"].is_null() {
        document["percent_complete"] = json!(0.0);
    }
    for entry in document["plugins"].as_array_mut().into_iter().flatten() {
        entry["name"] = entry["plugin"].clone();
    }
    document
}

/// The results of a plugin in numbers.
#[derive(Default)]
struct PluginCounts {
    expected: u64,
    received: u64,
    failed: u64,
    /// Age in seconds of the oldest last heartbeat of awaited results.
    silence: Option<u64>,
}

/// The document of a status.
fn metrics(run: &Run) -> String {
    let mut plugins = BTreeMap::<&str, PluginCounts>::new();
    for entry in run.plugins.iter().flatten() {
        let results = plugins.entry(&entry.plugin).or_default();
        let count = entry.count.unwrap_or(1);
        results.expected += count;
        match entry.status.as_str() {
            status::COMPLETE => results.received += count,
            status::FAILED => results.failed += count,
            _ => results.silence = results.silence.max(entry.last_heartbeat),
        }
    }
    let each = |of: &dyn Fn(&PluginCounts) -> Option<u64>| -> Vec<Sample> {
        let numbers = plugins
            .iter()
            .filter_map(|(name, results)| Some((*name, of(results)?)));
        numbers
            .map(|(name, number)| (vec![("plugin", name.to_owned())], number as f64))
            .collect()
    };
    let states = [
        status::RUNNING,
        status::POST_PROCESSING,
        status::COMPLETE,
        status::FAILED,
    ];
    let mut metrics = Metrics::default();
    let mut gauge =
        |name: &str, help: &str, samples| metrics.gauge(&format!("sonobuoy_{name}"), help, samples);
    gauge(
        "run_info",
        "Version of the aggregator.",
        vec![(vec![("version", VERSION.into())], 1.0)],
    );
    let state = |state: &str| {
        (
            vec![("state", state.into())],
            f64::from(u8::from(run.status == state)),
        )
    };
    gauge(
        "run_state",
        "1 for the state of the run.",
        states.map(state).into(),
    );
    gauge(
        "results_expected",
        "Results that the run expects.",
        each(&|of| Some(of.expected)),
    );
    gauge(
        "results_received",
        "Results that have arrived.",
        each(&|of| Some(of.received)),
    );
    gauge(
        "results_failed",
        "Results that will not arrive.",
        each(&|of| Some(of.failed)),
    );
    let help = "Longest silence of a worker whose result is awaited.";
    gauge("heartbeat_age_seconds", help, each(&|of| of.silence));
    gauge(
        "received_bytes",
        "Bytes of the results that have arrived.",
        vec![(vec![], run.received_bytes as f64)],
    );
    gauge(
        "archive_bytes",
        "Size of the archive; 0 until it is complete.",
        vec![(vec![], run.archive.size as f64)],
    );
    metrics.counter(
        "sonobuoy_refusals",
        "Requests of workers that were refused.",
        [(vec![], run.refusals as f64)],
    );
    metrics.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::{self, Method};
    use run::backplane::Authority;

    #[test]
    fn both_names_of_a_plugin_are_printed() {
        let entry = status::Entry {
            plugin: "e2e".into(),
            node: "global".into(),
            ..status::Entry::default()
        };
        let told = document(&Run {
            plugins: Some(vec![entry]),
            ..Run::default()
        });
        assert_eq!(told["plugins"][0]["name"], "e2e");
        assert_eq!(told["plugins"][0]["plugin"], "e2e");
        assert_eq!(told["percent_complete"], 0.0);
        assert!(told["tar-info"].is_object());
    }

    /// A client with a certificate from `authority` that trusts `trusted`.
    fn client(authority: &Authority, trusted: &Authority, port: u16) -> kube::Client {
        let own = authority.client("status").unwrap();
        let identity = kube::Identity::default();
        identity
            .set(own.cert_pem.as_bytes(), own.key_pem.as_bytes())
            .unwrap();
        let config = kube::Config {
            server_name: Some("status".into()),
            trust: kube::Trust::Authorities(trusted.certificate_pem().into_bytes()),
            identity,
            ..kube::Config::plain(format!("https://127.0.0.1:{port}"))
        };
        kube::Client::new("test/1", config, &Stop::new()).unwrap()
    }

    #[test]
    fn status_and_archive_are_served_to_own_clients_alone() {
        let folder = base::temp::Folder::new().unwrap();
        let valid = std::time::Duration::from_secs(3_600);
        let (authority, stranger) = (
            Authority::new(valid).unwrap(),
            Authority::new(valid).unwrap(),
        );
        let server = authority.server("status").unwrap();
        for (name, text) in [
            ("ca.crt", authority.certificate_pem()),
            ("tls.crt", server.cert_pem),
            ("tls.key", server.key_pem),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        std::fs::write(folder.join("a.tar.gz"), "0123456789").unwrap();
        let status_service = StatusService::open(&folder, 0, &folder).unwrap();
        let port = status_service.server.local_addr().port();
        let stop = Stop::new();
        std::thread::scope(|scope| {
            scope.spawn(|| status_service.serve(&stop).unwrap());
            let own = client(&authority, &authority, port);
            let get = |path: &str| kube::Request::raw(Method::GET, path);
            let text =
                |request: &kube::Request| own.text(request, 100).map_err(|error| error.code());
            assert_eq!(own.send(&get("/status")).unwrap()["status"], "running");
            let metrics = own.text(&get("/metrics"), 10_000).unwrap();
            assert!(
                metrics.contains("sonobuoy_run_state{state=\"running\"} 1\n"),
                "{metrics}"
            );
            assert!(metrics.ends_with("# EOF\n"), "{metrics}");
            assert_eq!(
                text(&get("/results")),
                Err(Some(404)),
                "there is no archive yet"
            );
            assert_eq!(text(&get("/else")), Err(Some(404)));
            assert_eq!(
                text(&get("/results/partial")),
                Err(Some(404)),
                "there is no run"
            );
            let result = folder.join("run/plugins/p/results/global");
            std::fs::create_dir_all(folder.join("run/meta")).unwrap();
            std::fs::create_dir_all(&result).unwrap();
            std::fs::write(result.join("r.txt"), "so far").unwrap();
            let unpacked = folder.join("unpacked");
            let partial = own.stream(&get("/results/partial"), None).unwrap();
            base::archive::unpack(partial, &unpacked, &base::archive::Limits::default()).unwrap();
            assert_eq!(
                std::fs::read_to_string(unpacked.join("plugins/p/results/global/r.txt")).unwrap(),
                "so far"
            );
            assert!(
                unpacked.join(layout::PARTIAL).exists(),
                "it is marked as unfinished"
            );
            assert_eq!(
                text(&kube::Request::raw(Method::DELETE, "/status")),
                Err(Some(405))
            );
            let archive = status::Archive {
                name: "a.tar.gz".into(),
                sha256: "d".into(),
                ..status::Archive::default()
            };
            let complete = Run {
                status: status::COMPLETE.into(),
                archive,
                ..Run::default()
            };
            status_service.show(move || complete.clone());
            let range = |range: &'static str| get("/results").header("range", range);
            assert_eq!(text(&get("/results")).as_deref(), Ok("0123456789"));
            assert_eq!(text(&range("bytes=3-5")).as_deref(), Ok("345"));
            assert_eq!(text(&range("bytes=7-")).as_deref(), Ok("789"));
            assert_eq!(text(&range("bytes=10-")), Err(Some(416)));
            assert_eq!(
                text(&range("bytes=3-5").header("if-range", "\"d\"")).as_deref(),
                Ok("345")
            );
            assert_eq!(
                text(&range("bytes=3-5").header("if-range", "\"e\"")).as_deref(),
                Ok("0123456789")
            );
            assert!(
                client(&stranger, &authority, port)
                    .send(&get("/status"))
                    .is_err(),
                "another run's certificate"
            );
            assert!(
                client(&authority, &stranger, port)
                    .send(&get("/status"))
                    .is_err(),
                "another run's server"
            );
            stop.stop();
        });
    }

    #[test]
    fn results_are_counted_by_plugin_with_the_longest_silence() {
        let entry = |plugin: &str, status: &str, last_heartbeat, count| status::Entry {
            plugin: plugin.into(),
            status: status.into(),
            last_heartbeat,
            count,
            ..status::Entry::default()
        };
        let plugins = vec![
            entry("a", status::RUNNING, Some(4), None),
            entry("a", status::RUNNING, Some(40), None),
            entry("a", status::COMPLETE, Some(400), Some(7)),
            entry("b", status::FAILED, None, None),
        ];
        let run = Run {
            plugins: Some(plugins),
            received_bytes: 12,
            refusals: 2,
            ..Run::default()
        };
        let text = super::metrics(&run);
        for line in [
            "sonobuoy_run_state{state=\"running\"} 1",
            "sonobuoy_run_state{state=\"complete\"} 0",
            "sonobuoy_results_expected{plugin=\"a\"} 9",
            "sonobuoy_results_received{plugin=\"a\"} 7",
            "sonobuoy_results_failed{plugin=\"b\"} 1",
            "sonobuoy_heartbeat_age_seconds{plugin=\"a\"} 40",
            "sonobuoy_received_bytes 12",
            "sonobuoy_refusals_total 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(
            !text.contains("heartbeat_age_seconds{plugin=\"b\"}"),
            "{text}"
        );
    }
}
