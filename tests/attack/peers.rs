//! Connections to the aggregator: unauthenticated clients, old protocols, a plugin that targets
//! another's result, smuggled requests.

use std::io::{Read as _, Write as _};

use crate::channel::{Aggregator, put, with_aggregator};
use crate::support::peer::Peer;
use sonobuoy::outside::Limits;

pub(super) const CASES: usize = HELLOS.len() + STRANGERS + PATHS.len() + SMUGGLED.len() + FLOODS;
const STRANGERS: usize = 4;
const FLOODS: usize = 6;

/// First bytes of unsupported protocols.
const HELLOS: &[(&str, &[u8])] = &[
    (
        "HTTP without TLS",
        b"PUT /api/v1/results/by-node/n/p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nfalse",
    ),
    (
        "SSL 2",
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x07\x00\xc0",
    ),
    ("a record of nothing", b"\x16\x03\x01\x00\x00"),
    ("a record that is too long", b"\x16\x03\x01\xff\xff"),
    ("application data first", b"\x17\x03\x03\x00\x05false"),
    ("an alert first", b"\x15\x03\x03\x00\x02\x02\x28"),
    ("SSH", b"SSH-2.0-OpenSSH_9.0\r\n"),
    (
        "HTTP/2 by prior knowledge",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
    ("a proxy's header", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"),
    ("zeros", &[0; 64]),
];

/// Spellings of another plugin's result path, or of paths outside the plugin's own folder; none may
/// be stored.
const PATHS: &[&str] = &[
    "/api/v1/results/by-node/n/q",
    "/api/v1/results/global/q",
    "/api/v1/results/by-node/n/%71",
    "/api/v1/results/by-node/n/p%2f..%2fq",
    "/api/v1/results/by-node/n/p/../q",
    "/api/v1/results/by-node/n/p%00",
    "/api/v1/results/by-node/n/p%2500",
    "/api/v1/results/by-node/n/P",
    "/api/v1/results/by-node/n//p",
    "//api/v1/results/by-node/n/p",
    "/api/v1/results/by-node/n/p/",
    "/api/v1/results/by-node/n/.%2fp",
    "/api/v1/results/by-node/..%2f..%2fq%2fresults%2fn/p",
    "/api/v1/results/by-node/%2e%2e/p",
    "/api/v1/results/by-node/n%5c..%5cx/p",
    "/api/v1/results/by-node/\u{ff0e}\u{ff0e}/p",
    "/api/v1/results/by-node/%c0%ae%c0%ae/p",
    "/api/v1/results/by-node/n/p;x=/q",
    "/api/v1/results/by-node/nowhere/p",
    "/api/v1/results/by-node//p",
    "/API/v1/results/by-node/n/p",
    "/api/v1/../v1/results/by-node/n/p",
    "http://elsewhere/api/v1/results/by-node/n/q",
    "*",
];

/// Ambiguous framing; bytes behind it are never a separate request.
const SMUGGLED: &[&str] = &[
    "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "Transfer-Encoding: identity, chunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding:\x0bchunked\r\n",
    " Transfer-Encoding: chunked\r\n",
    "X: y\r\n Transfer-Encoding: chunked\r\n",
    "Content-Length: 0\r\nContent-Length: 40\r\n",
    "Content-Length: 0,40\r\n",
    "Content-Length: 0x0\r\n",
    "Content-Length: \u{660}\r\n",
    "Content-Length: 0\rX: y\r\n",
    "Content-Length: 0\nTransfer-Encoding: chunked\r\n",
];

fn nothing_stored(aggregator: &Aggregator<'_>, what: &str) {
    assert_eq!(
        crate::channel::files(&aggregator.results),
        0,
        "{what}: something was stored"
    );
    let plugins = aggregator.results.parent().unwrap().parent().unwrap();
    let names: Vec<_> = std::fs::read_dir(plugins)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(names.iter().all(|name| name == "p"), "{what}: {names:?}");
}

/// The hello of a client that speaks at most this version; 0x0301 is TLS 1.0.
fn old_hello(version: u16) -> Vec<u8> {
    let mut hello = vec![1, 0, 0, 0];
    hello.extend(version.to_be_bytes());
    hello.extend([7; 32]);
    // No session, three old suites, no compression.
    hello.extend([0, 0, 6, 0xc0, 0x09, 0xc0, 0x13, 0x00, 0x2f, 1, 0]);
    let length = u8::try_from(hello.len() - 4).unwrap();
    hello[3] = length;
    [&[0x16, 3, 1, 0, length + 4][..], &hello].concat()
}

#[test]
fn other_protocols_are_rejected() {
    let limits = Limits {
        handshake: std::time::Duration::from_millis(300),
        ..Limits::default()
    };
    with_aggregator(limits, |aggregator| {
        let old = [
            ("TLS 1.0", old_hello(0x0301)),
            ("TLS 1.1", old_hello(0x0302)),
        ];
        let others = HELLOS.iter().map(|(name, bytes)| (*name, bytes.to_vec()));
        for (name, bytes) in others.chain(old) {
            let mut socket = aggregator.worker.plain();
            socket.write_all(&bytes).unwrap();
            let mut answer = Vec::new();
            // A reset connection has no response either.
            let _ = socket.read_to_end(&mut answer);
            let text = String::from_utf8_lossy(&answer);
            assert!(!text.contains("HTTP/1.1 2"), "{name}: {text}");
            if name.starts_with("TLS") {
                // A fatal alert: protocol version, or no suite in common.
                assert!(
                    answer.starts_with(&[0x15, 3]) && [70, 40].contains(&answer[6]),
                    "{name}: {answer:?}"
                );
            }
            nothing_stored(aggregator, name);
        }
        aggregator.takes_a_result();
    });
}

#[test]
fn foreign_certificates_are_rejected() {
    with_aggregator(Limits::default(), |aggregator| {
        let (url, authority) = (
            &aggregator.access.aggregator_url,
            &aggregator.access.ca_cert,
        );
        let request = put("Content-Length: 5\r\n", "false");
        let key = rcgen::KeyPair::generate().unwrap();
        let other = sonobuoy::outside::Authority::new(std::time::Duration::from_secs(60)).unwrap();
        let foreign = other.client("p").unwrap();
        let own = rcgen::CertificateParams::new(vec!["p".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let stolen = other.server("127.0.0.1").unwrap();
        for (name, pair) in [
            ("none", None),
            ("one of its own", Some((own.pem(), key.serialize_pem()))),
            (
                "one of another run",
                Some((foreign.cert_pem.clone(), foreign.key_pem.clone())),
            ),
            (
                "a server's",
                Some((stolen.cert_pem.clone(), stolen.key_pem.clone())),
            ),
        ] {
            let pair = pair
                .as_ref()
                .map(|(certificate, key)| (certificate.as_str(), key.as_str()));
            let answer = Peer::new(url, authority, pair).say(&request);
            assert!(answer.contains("alert"), "{name}: {answer}");
            nothing_stored(aggregator, name);
        }
        aggregator.takes_a_result();
    });
}

#[test]
fn path_spellings_never_reach_another_result() {
    with_aggregator(Limits::default(), |aggregator| {
        for path in PATHS {
            let answer = aggregator.worker.say(format!(
                "PUT {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nfalse"
            ));
            let code = answer.split(' ').nth(1).unwrap_or_default();
            assert!(
                ["301", "400", "403", "404"].contains(&code),
                "{path}: {answer}"
            );
            nothing_stored(aggregator, path);
        }
        aggregator.takes_a_result();
    });
}

#[test]
fn request_smuggling_is_rejected() {
    with_aggregator(Limits::default(), |aggregator| {
        for lines in SMUGGLED {
            let hidden = put("Content-Length: 5\r\n", "false");
            for body in [format!("0\r\n\r\n{hidden}"), hidden.clone()] {
                let answer = aggregator.worker.say(format!(
                    "GET /api/v1/health/by-node/n/p HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}"
                ));
                assert!(answer.starts_with("HTTP/1.1 400 "), "{lines:?}: {answer}");
                assert_eq!(
                    answer.matches("HTTP/1.1 ").count(),
                    1,
                    "{lines:?}: {answer}"
                );
                nothing_stored(aggregator, lines);
            }
        }
        aggregator.takes_a_result();
    });
}

#[test]
fn floods_in_one_request_end_that_request_alone() {
    with_aggregator(Limits::default(), |aggregator| {
        let chunked = |body: &str| put("Transfer-Encoding: chunked\r\n", body);
        let floods: [(&str, String); FLOODS] = [
            (
                "extensions",
                chunked(&format!("1;{}\r\nx\r\n", "a=b;".repeat(5_000))),
            ),
            (
                "trailers",
                chunked(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(50_000))),
            ),
            (
                "a size of many zeros",
                chunked(&format!("{}5\r\nwhole\r\n0\r\n\r\n", "0".repeat(5_000))),
            ),
            ("a size beyond all", chunked("7fffffffffffffff\r\nx")),
            ("headers", put(&"A: b\r\n".repeat(5_000), "")),
            ("empty lines", "\r\n".repeat(100_000)),
        ];
        for (name, request) in floods {
            let mut talk = aggregator.worker.connect();
            // May be rejected halfway.
            let _ = talk.begin(&request);
            let answer = talk.leave(true);
            assert!(!answer.contains("HTTP/1.1 2"), "{name}: {answer}");
            nothing_stored(aggregator, name);
        }
        // One byte per chunk is slow but legitimate.
        let tiny = "1\r\nx\r\n".repeat(20_000);
        let answer = aggregator.worker.say(chunked(&format!("{tiny}0\r\n\r\n")));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(aggregator.stored().map(|text| text.len()), Some(20_000));
    });
}
