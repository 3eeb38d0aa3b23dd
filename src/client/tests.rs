//! The client against the server of this crate, over mutual TLS.

#![allow(
    clippy::unwrap_used,
    reason = "clippy does not see that this is a test"
)]

use std::io::Read as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use http::{Request, Response, Server};
use run::backplane::{Authority, server_config};

/// Properties of one request.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    line: String,
    content_type: Option<String>,
    disposition: Option<String>,
    error: bool,
    digest: Option<String>,
    body: Vec<u8>,
}

fn seen(request: &mut Request<'_>) -> Seen {
    let header = |name: &str| request.headers.get(name).map(str::to_owned);
    let mut seen = Seen {
        line: format!("{} {}", request.method, request.path),
        content_type: header("content-type"),
        disposition: header("content-disposition"),
        error: header("x-sonobuoy-error").is_some(),
        digest: header("repr-digest"),
        body: Vec::new(),
    };
    request.body().read_to_end(&mut seen.body).unwrap();
    seen
}

fn quick() -> Retry {
    let millis = Duration::from_millis;
    Retry {
        limit: millis(5_000),
        first: millis(20),
        max: millis(100),
    }
}

/// Runs `work` with a client of a server that responds with `answer`.
fn with_server(answer: impl Fn(&mut Request<'_>) -> Response + Sync, work: impl FnOnce(&Client)) {
    let authority = Authority::new(Duration::from_secs(60)).unwrap();
    let identity = authority.server("127.0.0.1").unwrap();
    let config = server_config(&authority.certificate_pem(), &identity, false).unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap().tls(config);
    let access = access(&authority, &server.local_addr().to_string());
    let stop = Stop::new();
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&stop, &answer).unwrap());
        let client = Client::new(&access, ResultId::on_node("p", "n"))
            .unwrap()
            .with_retry(quick());
        // A failed check must end the server, too.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&client)));
        stop.stop();
        outcome.unwrap();
    });
}

fn access(authority: &Authority, address: &str) -> Access {
    let own = authority.client("p").unwrap();
    Access {
        aggregator_url: format!("https://{address}"),
        ca_cert: authority.certificate_pem(),
        client_cert: own.cert_pem,
        client_key: own.key_pem,
        ..Access::default()
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("sonobuoy-client-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn bytes_errors_progress_and_heartbeats_follow_the_protocol() {
    let log = Mutex::new(Vec::new());
    let answer = |request: &mut Request<'_>| {
        log.lock().unwrap().push(seen(request));
        Response::empty(200)
    };
    with_server(answer, |client| {
        assert_eq!(
            client.submit_bytes("a b.json", b"{}").unwrap(),
            Submitted::Accepted
        );
        client.submit_error("no result").unwrap();
        client
            .progress(&Progress {
                total: 2,
                ..Progress::default()
            })
            .unwrap();
        client.heartbeat().unwrap();
    });
    let log = log.into_inner().unwrap();
    assert_eq!(log[0].line, "PUT /api/v1/results/by-node/n/p");
    assert_eq!(log[0].content_type.as_deref(), Some("application/json"));
    assert_eq!(
        log[0].disposition.as_deref(),
        Some("attachment;filename=\"a b.json\"")
    );
    assert!(log[0].digest.as_deref().unwrap().starts_with("sha-256=:"));
    assert!(!log[0].error);
    assert!(log[1].error);
    assert_eq!(log[1].body, br#"{"error":"no result"}"#);
    assert_eq!(log[2].line, "POST /api/v1/progress/by-node/n/p");
    assert_eq!(log[3].line, "GET /api/v1/health/by-node/n/p");
}

#[test]
fn problem_is_reported_before_it_is_a_failure() {
    let log = Mutex::new(Vec::new());
    let answer = |request: &mut Request<'_>| {
        log.lock().unwrap().push((
            request.path.clone(),
            request.headers.get("x-sonobuoy-trouble").map(str::to_owned),
        ));
        Response::empty(200)
    };
    with_server(answer, |client| client.report_trouble("`ä` changed"));
    let path = "/api/v1/health/by-node/n/p".to_owned();
    assert_eq!(
        log.into_inner().unwrap(),
        [(path, Some("%60%C3%A4%60%20changed".to_owned()))]
    );
}

#[test]
fn folder_beyond_the_limit_is_refused_before_it_is_packed() {
    let dir = folder("large");
    std::fs::File::create(dir.join("sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let answer = |_: &mut Request<'_>| {
        Response::empty(200).header("x-sonobuoy-folder-limit", "1099511627775")
    };
    with_server(answer, |client| {
        let error = client.submit_directory(&dir).unwrap_err().to_string();
        assert!(
            error.contains("have 1099511627776 bytes, more than 1099511627775"),
            "{error}"
        );
        assert!(error.contains("sparse"), "{error}");
    });
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn folder_arrives_as_gzip_tar_and_leaves_no_file() {
    let dir = folder("pack");
    std::fs::write(dir.join("a.txt"), "text").unwrap();
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    let log = Mutex::new(Vec::new());
    let answer = |request: &mut Request<'_>| {
        log.lock().unwrap().push(seen(request));
        Response::empty(200)
    };
    with_server(answer, |client| {
        client.submit_directory(&dir).unwrap();
    });
    let log = log.into_inner().unwrap();
    assert_eq!(log[0].content_type.as_deref(), Some("application/gzip"));
    assert_eq!(
        log[0].disposition.as_deref(),
        Some("attachment;filename=results.tar.gz")
    );
    let mut tar = tar::Archive::new(flate2::read::MultiGzDecoder::new(log[0].body.as_slice()));
    let names: Vec<_> = tar
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().into_owned())
        .collect();
    assert_eq!(names, [Path::new("a.txt"), Path::new("sub")]);
    assert_eq!(
        std::fs::read_dir(&dir).unwrap().count(),
        2,
        "nothing new in the folder"
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn transient_errors_are_retried_after_the_requested_pause() {
    let count = AtomicU32::new(0);
    let answer = |request: &mut Request<'_>| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Response::text(503, "not yet"),
        1 => Response::text(429, "slow down").header("retry-after", "1"),
        _ => {
            assert_eq!(seen(request).body, b"x");
            Response::empty(200)
        }
    };
    let started = Instant::now();
    with_server(answer, |client| {
        assert_eq!(client.submit_bytes("a", b"x").unwrap(), Submitted::Accepted);
    });
    assert_eq!(count.into_inner(), 3);
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn existing_result_is_a_success_and_early_refusal_final() {
    let big = vec![7; 32 << 20];
    let answer = |request: &mut Request<'_>| match request.headers.get("content-length") {
        Some("1") => Response::text(409, "there"),
        _ => Response::text(403, "not yours"),
    };
    with_server(answer, |client| {
        assert_eq!(
            client.submit_bytes("a", b"x").unwrap(),
            Submitted::AlreadyThere
        );
        match client.submit_bytes("a", &big) {
            Err(Error::Refused {
                status: 403, text, ..
            }) => assert_eq!(text, "not yours"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn absent_server_is_awaited_until_the_limit() {
    let authority = Authority::new(Duration::from_secs(60)).unwrap();
    // A released port has no listener.
    let address = Server::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .to_string();
    let retry = Retry {
        limit: Duration::from_millis(300),
        ..quick()
    };
    let client = Client::new(&access(&authority, &address), ResultId::global("p"))
        .unwrap()
        .with_retry(retry);
    match client.submit_bytes("a", b"x") {
        Err(Error::GaveUp { attempts, .. }) => assert!(attempts > 2, "{attempts}"),
        other => panic!("{other:?}"),
    }
    let stop = Stop::new();
    stop.stop();
    assert!(matches!(
        client.with_stop(stop).submit_bytes("a", b"x"),
        Err(Error::Stopped { .. })
    ));
}

#[test]
fn server_of_another_authority_is_not_retried() {
    let answer = |_: &mut Request<'_>| Response::empty(200);
    let stranger = Authority::new(Duration::from_secs(60)).unwrap();
    with_server(answer, |client| {
        let address = client
            .channel
            .url("")
            .trim_start_matches("https://")
            .to_owned();
        let started = Instant::now();
        let other = Client::new(&access(&stranger, &address), ResultId::global("p")).unwrap();
        let result = other.submit_bytes("a", b"x");
        assert!(
            matches!(result, Err(Error::Certificate { .. })),
            "{result:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(5));
    });
}
