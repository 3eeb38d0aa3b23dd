//! Certificate requests of workers and foreign clients to a running aggregator, over real TLS.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::fixture::Scratch;
use super::server::{Connection, Running, access, certifying, serving};
use crate::aggregator::{AggregatorSettings, Holder, ReviewError, Reviewer};
use crate::backplane::Authority;
use client::protocol::ResultId;
use client::{Access, Client, Error, Retry, Submitted};

/// Accepts tokens that name their holder: `N.p` for the pod of `p` on node N. Other tokens name the
/// failure.
#[derive(Default)]
struct ByWord {
    asked: Arc<AtomicU32>,
    /// Reviews that fail first.
    away: AtomicU32,
}

impl Reviewer for ByWord {
    fn may_know(&self, token: &str) -> bool {
        token != "junk"
    }

    fn review(&self, token: &str, _: IpAddr) -> Result<Holder, ReviewError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self
            .away
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
        {
            return Err(ReviewError::Unavailable(
                "the API server does not answer".into(),
            ));
        }
        match token.split_once('.') {
            Some((node, plugin)) => Ok(Holder {
                id: ResultId::on_node(plugin, node),
                pod: token.to_owned(),
            }),
            None if token == "stranger" => {
                Err(ReviewError::Stranger("not a pod of this run".into()))
            }
            None => Err(ReviewError::Unknown("the token was rejected".into())),
        }
    }
}

fn node(name: &str) -> ResultId {
    ResultId::on_node("p", name)
}

/// Environment of a worker without a certificate.
fn asking(running: &Running<'_>, scratch: &Scratch, token: &str) -> Access {
    let path = scratch.run().with_file_name(format!("token-{token}"));
    std::fs::write(&path, format!("{token}\n")).unwrap();
    Access {
        aggregator_url: format!("https://{}", running.address),
        ca_cert: running.aggregator.authority().certificate_pem(),
        token_file: path.display().to_string(),
        ..Access::default()
    }
}

fn quick(limit: Duration) -> Retry {
    Retry {
        limit,
        first: Duration::from_millis(10),
        max: Duration::from_millis(50),
    }
}

fn request() -> String {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let names = rcgen::CertificateParams::new(["n2.p".to_owned()]).unwrap();
    names.serialize_request(&key).unwrap().pem().unwrap()
}

/// Response to a request without certificate.
fn ask(running: &Running<'_>, line: &str, headers: &str, body: &str) -> (u16, String) {
    let authority = running.aggregator.authority().certificate_pem();
    let mut connection = Connection::guest(&authority, running.address).unwrap();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: \
         {length}\r\n{headers}\r\n"
    );
    connection.write(head.as_bytes());
    connection.write(body.as_bytes());
    connection.answer()
}

const POST: &str = "POST /api/v1/certificate";

#[test]
fn certified_worker_speaks_for_its_node_alone() {
    let scratch = Scratch::new();
    let ids = [node("n1"), node("n2")];
    let reviewer = ByWord::default();
    let asked = Arc::clone(&reviewer.asked);
    certifying(&scratch.run(), &ids, reviewer, |running| {
        let client = Client::new(&asking(running, &scratch, "n1.p"), node("n1")).unwrap();
        client.heartbeat().unwrap();
        client.heartbeat().unwrap();
        assert_eq!(client.submit_bytes("a", b"1").unwrap(), Submitted::Accepted);
        assert_eq!(asked.load(Ordering::Relaxed), 1, "one certificate does");

        let neighbour = Client::new(&asking(running, &scratch, "n1.p"), node("n2")).unwrap();
        let refused = neighbour
            .with_retry(quick(Duration::ZERO))
            .submit_bytes("a", b"2");
        assert!(
            matches!(&refused, Err(Error::Refused { status: 403, .. })),
            "{refused:?}"
        );
        assert_eq!(running.aggregator.outstanding(), [node("n2")]);

        // A plugin certificate issued before a restart with other settings stays valid.
        assert_eq!(
            running.client(&node("n2")).submit_bytes("a", b"2").unwrap(),
            Submitted::Accepted
        );
        let told = running.aggregator.status().plugins.unwrap();
        let told: Vec<_> = told.iter().map(|entry| entry.identity.as_deref()).collect();
        assert_eq!(told, [Some("node"), Some("plugin")]);
    });
    // Receipts survive the aggregator.
    serving(
        &scratch.run(),
        &ids,
        AggregatorSettings::default(),
        |running| {
            let told = running.aggregator.status().plugins.unwrap();
            assert_eq!(told[0].identity.as_deref(), Some("node"));
        },
    );
}

#[test]
fn anonymous_clients_receive_nothing_else() {
    let scratch = Scratch::new();
    certifying(
        &scratch.run(),
        &[node("n1")],
        ByWord::default(),
        |running| {
            for line in [
                "PUT /api/v1/results/by-node/n1/p",
                "POST /api/v1/progress/by-node/n1/p",
                "GET /api/v1/health/by-node/n1/p",
                "GET /api/v1/certificate",
                "GET /",
            ] {
                let (status, text) = ask(running, line, "", "");
                assert_eq!(status, 401, "{line}: {text}");
            }
            assert_eq!(running.aggregator.outstanding(), [node("n1")]);
            let other = Authority::new(Duration::from_secs(60)).unwrap();
            let mut foreign = access(&other, running.address, "p");
            foreign.ca_cert = running.aggregator.authority().certificate_pem();
            let mut connection = Connection::open(&foreign, running.address).unwrap();
            connection.write(b"GET /api/v1/health/by-node/n1/p HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(
                connection.answer().0,
                0,
                "a foreign certificate does not make a guest"
            );
        },
    );
    serving(
        &scratch.run(),
        &[node("n1")],
        AggregatorSettings::default(),
        |running| {
            assert_eq!(running.ask("p", POST, "", b"").0, 404, "no signing here");
            let authority = running.aggregator.authority().certificate_pem();
            let mut guest = Connection::guest(&authority, running.address).unwrap();
            guest.write(
                b"POST /api/v1/certificate HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            );
            assert_eq!(
                guest.answer().0,
                0,
                "without signing, certificates are required"
            );
        },
    );
}

#[test]
fn bad_requests_are_refused_with_reason_and_bar_nobody() {
    let scratch = Scratch::new();
    let good = request();
    let bearer = "Authorization: Bearer n1.p\r\n";
    let damaged = good.replacen("MI", "AA", 1);
    for (headers, body, expected, words) in [
        ("", good.as_str(), 401, "Bearer"),
        ("Authorization: Bearer unknown\r\n", &good, 401, "rejected"),
        (
            "Authorization: Bearer junk\r\n",
            &good,
            401,
            "not for this run",
        ),
        (
            "Authorization: Bearer stranger\r\n",
            &good,
            403,
            "not a pod of this run",
        ),
        (
            "Authorization: Bearer n9.p\r\n",
            &good,
            403,
            "expects nothing from `p/n9`",
        ),
        (
            "Authorization: Bearer n1.q\r\n",
            &good,
            403,
            "expects nothing from `q/n1`",
        ),
        (bearer, "", 400, "PEM certificate request"),
        (bearer, &damaged, 400, "damaged"),
        (bearer, &"x".repeat(1 << 20), 413, "16384"),
    ] {
        let reviewer = ByWord::default();
        certifying(&scratch.run(), &[node("n1")], reviewer, |running| {
            let (status, text) = ask(running, POST, headers, body);
            assert_eq!(status, expected, "{headers}: {text}");
            assert!(text.contains(words), "{words}: {text}");
            let tries: Vec<_> = (0..20)
                .map(|_| ask(running, POST, headers, body).0)
                .collect();
            assert!(tries.iter().all(|status| *status == expected), "{tries:?}");
            assert_eq!(
                ask(running, POST, bearer, &good).0,
                200,
                "a neighbour at the same address"
            );
        });
    }
}

#[test]
fn foreign_tokens_cost_no_review() {
    let scratch = Scratch::new();
    let reviewer = ByWord::default();
    let asked = Arc::clone(&reviewer.asked);
    certifying(&scratch.run(), &[node("n1")], reviewer, |running| {
        for (token, reviews) in [("junk", 0), ("unknown", 1)] {
            let (status, text) = ask(
                running,
                POST,
                &format!("Authorization: Bearer {token}\r\n"),
                &request(),
            );
            assert_eq!(
                (status, asked.load(Ordering::Relaxed)),
                (401, reviews),
                "{token}: {text}"
            );
        }
    });
}

#[test]
fn certificate_names_the_holder_of_the_token() {
    let scratch = Scratch::new();
    certifying(
        &scratch.run(),
        &[node("n1"), node("n2")],
        ByWord::default(),
        |running| {
            let (status, text) = ask(running, POST, "Authorization: Bearer n1.p\r\n", &request());
            assert_eq!(status, 200, "{text}");
            assert!(
                text.to_lowercase().contains("x-sonobuoy-renew-after: 2400"),
                "{text}"
            );
            let pem = &text[text.find("-----BEGIN").unwrap()..];
            let der =
            <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(
                pem.as_bytes(),
            );
            let holder = crate::backplane::Caller::of(&der.unwrap()).unwrap();
            assert_eq!(holder, crate::backplane::Caller::Result(node("n1")));
            let more: Vec<_> = (0..8)
                .map(|_| ask(running, POST, "Authorization: Bearer n1.p\r\n", &request()).0)
                .collect();
            assert_eq!((more[6], more[7]), (200, 429), "one pod needs few");
            assert_eq!(
                ask(running, POST, "Authorization: Bearer n2.p\r\n", &request()).0,
                200,
                "others get theirs"
            );
        },
    );
}

#[test]
fn failing_review_is_retried_and_reported() {
    let scratch = Scratch::new();
    let reviewer = ByWord {
        away: AtomicU32::new(2),
        ..ByWord::default()
    };
    certifying(&scratch.run(), &[node("n1")], reviewer, |running| {
        running.aggregator.store.launched("p");
        let client = Client::new(&asking(running, &scratch, "n1.p"), node("n1")).unwrap();
        assert!(client.heartbeat().is_err());
        let told = running
            .aggregator
            .status()
            .plugins
            .unwrap()
            .remove(0)
            .message
            .unwrap();
        assert!(
            told.contains("certificate") && told.contains("the API server does not answer"),
            "{told}"
        );
        let client = client.with_retry(quick(Duration::from_secs(60)));
        assert_eq!(client.submit_bytes("a", b"1").unwrap(), Submitted::Accepted);
        assert_eq!(
            running.aggregator.status().plugins.unwrap()[0].message,
            None
        );
    });
}

#[test]
fn rejected_certificate_is_replaced() {
    let scratch = Scratch::new();
    let reviewer = ByWord::default();
    let asked = Arc::clone(&reviewer.asked);
    certifying(&scratch.run(), &[node("n1")], reviewer, |running| {
        let access = asking(running, &scratch, "n1.p");
        let client = Client::new(&access, node("n1")).unwrap();
        client.heartbeat().unwrap();
        // A temporarily missing token does not matter while the certificate is valid.
        std::fs::remove_file(&access.token_file).unwrap();
        client.heartbeat().unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn certificate_takes_less_than_a_millisecond() {
    let authority = Authority::new(Duration::from_secs(3600)).unwrap();
    let key = crate::backplane::SigningRequest::from_pem(request().as_bytes()).unwrap();
    let rounds = 500_u32;
    let started = Instant::now();
    for number in 0..rounds {
        authority
            .certify(&node(&format!("n{number}")), &key, Duration::from_secs(60))
            .unwrap();
    }
    let each = started.elapsed() / rounds;
    // Unoptimized code on a busy machine stays far below this.
    assert!(each < Duration::from_millis(10), "{each:?}");
}
