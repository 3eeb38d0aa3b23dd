//! Certificates of this module as seen by other programs: OpenSSL, and TLS on both sides.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use client::Credentials;
use client::protocol::ResultId;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The plugin of a certificate's holder.
fn plugin_of(certificate: &CertificateDer<'_>) -> Option<String> {
    Caller::of(certificate).map(|caller| match caller {
        Caller::Plugin(plugin) => plugin,
        Caller::Result(id) => id.to_string(),
    })
}

/// A certificate for a key that its holder generated, and that key.
fn certified(authority: &Authority, id: &ResultId, valid: Duration) -> Identity {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let request = rcgen::CertificateParams::new(["somebody.else".into()]).unwrap();
    let request = request.serialize_request(&key).unwrap().pem().unwrap();
    let request = SigningRequest::from_pem(request.as_bytes()).unwrap();
    Identity {
        cert_pem: authority.certify(id, &request, valid).unwrap(),
        key_pem: key.serialize_pem(),
    }
}

/// A clock with an offset, forwards or backwards.
#[derive(Debug)]
struct Skewed {
    forwards: Duration,
    backwards: Duration,
}

impl rustls::time_provider::TimeProvider for Skewed {
    fn current_time(&self) -> Option<UnixTime> {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        Some(UnixTime::since_unix_epoch(
            now + self.forwards - self.backwards,
        ))
    }
}

/// A client without a certificate.
#[derive(Debug)]
struct Nothing;

impl rustls::client::ResolvesClientCert for Nothing {
    fn resolve(
        &self,
        _: &[&[u8]],
        _: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Both sides of a handshake in memory.
struct Handshake {
    server: rustls::ServerConfig,
    client: rustls::ClientConfig,
}

impl Handshake {
    fn new(trusted: &Authority, server: &Identity, client: &Identity) -> Self {
        let server = server_config(&trusted.certificate_pem(), server, false).unwrap();
        let credentials = Credentials::read(
            &trusted.certificate_pem(),
            &client.cert_pem,
            &client.key_pem,
        )
        .unwrap();
        Self {
            server: (*server).clone(),
            client: credentials.client_config().unwrap(),
        }
    }

    fn server_clock(mut self, forwards: Duration, backwards: Duration) -> Self {
        self.server.time_provider = Arc::new(Skewed {
            forwards,
            backwards,
        });
        self
    }

    /// The plugin that the server sees, or the side that rejected the handshake and the reason.
    fn shake(self, name: &str) -> Result<Option<String>, String> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(self.client), name).unwrap();
        let mut server = rustls::ServerConnection::new(Arc::new(self.server)).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server
                .process_new_packets()
                .map_err(|e| format!("server: {e}"))?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client
                .process_new_packets()
                .map_err(|e| format!("client: {e}"))?;
        }
        Ok(server
            .peer_certificates()
            .and_then(|chain| plugin_of(&chain[0])))
    }
}

/// A folder that is removed on drop.
struct Folder(base::temp::Folder);

impl Folder {
    fn new() -> Self {
        Self(base::temp::Folder::new().unwrap())
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// The output of openssl for these arguments, or `None` if it is not installed.
fn openssl(words: &[&str], file: &Path) -> Option<Result<String, String>> {
    let output = Command::new("openssl").args(words).arg(file).output();
    let Ok(output) = output else {
        base::testing::skipped("openssl", "it is not on this machine");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Some(if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    })
}

#[test]
fn both_sides_authenticate_on_any_host() {
    let authority = Authority::new(HOUR).unwrap();
    let client = authority.client("e2e").unwrap();
    for (host, name) in [
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.3.4:8080", "1.2.3.4"),
        ("[1.2.3.4]:8080", "1.2.3.4"),
        ("[fd00::1]:8080", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("fd00::1", "fd00::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("localhost", "localhost"),
        (
            "sonobuoy-aggregator.ns.svc:8080",
            "sonobuoy-aggregator.ns.svc",
        ),
        ("my_host.example.:1", "my_host.example"),
    ] {
        let server = authority.server(host).unwrap();
        let shaken = Handshake::new(&authority, &server, &client).shake(name);
        assert_eq!(shaken, Ok(Some("e2e".into())), "{host}");
        let refused = Handshake::new(&authority, &server, &client)
            .shake("other")
            .unwrap_err();
        assert!(refused.contains("client: "), "{refused}");
    }
    for host in [
        "",
        ":8080",
        "a b",
        "http://x",
        "[]:1",
        "[1.2.3.4",
        "h:x",
        "ä.example",
    ] {
        assert!(authority.server(host).is_err(), "{host:?}");
    }
}

#[test]
fn every_plugin_name_fits_a_certificate() {
    let authority = Authority::new(HOUR).unwrap();
    let server = authority.server("h").unwrap();
    for name in [
        "e2e",
        "systemd_logs",
        &"x".repeat(64),
        &"long.".repeat(80),
        "a b/ä%",
        "-",
        ".",
    ] {
        let client = authority.client(name).unwrap();
        let shaken = Handshake::new(&authority, &server, &client).shake("h");
        assert_eq!(shaken, Ok(Some(name.into())), "{name}");
    }
    assert!(authority.client("").is_err());
}

#[test]
fn foreign_clients_are_refused() {
    let (authority, other) = (Authority::new(HOUR).unwrap(), Authority::new(HOUR).unwrap());
    let (server, client) = (
        authority.server("h").unwrap(),
        authority.client("p").unwrap(),
    );
    let (other_server, other_client) = (other.server("h").unwrap(), other.client("p").unwrap());
    let far = Duration::from_secs(60 * 24 * 3600);
    let zero = Duration::ZERO;
    for (case, handshake, expected) in [
        (
            "a foreign client",
            Handshake::new(&authority, &server, &other_client),
            "server: invalid peer certificate",
        ),
        (
            "a foreign server",
            Handshake::new(&authority, &other_server, &client),
            "client: invalid peer certificate",
        ),
        (
            "the server as a client",
            Handshake::new(&authority, &server, &server),
            "server: invalid peer certificate",
        ),
        (
            "a client as the server",
            Handshake::new(&authority, &client, &client),
            "client: invalid peer certificate",
        ),
        (
            "an expired client",
            Handshake::new(&authority, &server, &client).server_clock(far, zero),
            "server: invalid peer certificate: certificate expired",
        ),
        (
            "a client of tomorrow",
            Handshake::new(&authority, &server, &client).server_clock(zero, DAY + HOUR),
            "server: invalid peer certificate: certificate not valid yet",
        ),
    ] {
        let refused = handshake.shake("h").unwrap_err();
        assert!(refused.starts_with(expected), "{case}: {refused}");
    }
    let mut handshake = Handshake::new(&authority, &server, &client);
    handshake.client.client_auth_cert_resolver = Arc::new(Nothing);
    assert_eq!(
        handshake.shake("h"),
        Err("server: peer sent no certificates".into())
    );
}

#[test]
fn certificates_outlast_the_run_and_tolerate_clock_skew() {
    for limit in [Duration::ZERO, HOUR, DAY * 30, Duration::MAX] {
        let authority = Authority::new(limit).unwrap();
        let (server, client) = (
            authority.server("h").unwrap(),
            authority.client("p").unwrap(),
        );
        let checked = limit.min(DAY * 365 * 50);
        for (forwards, backwards) in [
            (Duration::ZERO, DAY - HOUR),
            (checked + DAY, Duration::ZERO),
            (checked, Duration::ZERO),
        ] {
            let handshake =
                Handshake::new(&authority, &server, &client).server_clock(forwards, backwards);
            assert_eq!(
                handshake.shake("h"),
                Ok(Some("p".into())),
                "{limit:?} {forwards:?} {backwards:?}"
            );
        }
    }
}

#[test]
fn authority_survives_writing_and_reading() {
    let first = Authority::new(DAY * 20).unwrap();
    let again = Authority::from_pem(&first.to_pem()).unwrap();
    assert_eq!(first.to_pem(), again.to_pem());
    let (server, client) = (first.server("h").unwrap(), again.client("p").unwrap());
    let handshake = Handshake::new(&first, &server, &client).server_clock(DAY * 21, Duration::ZERO);
    assert_eq!(
        handshake.shake("h"),
        Ok(Some("p".into())),
        "made again, they last as long as before"
    );

    let other = Authority::new(HOUR).unwrap().to_pem();
    let mixed = first.certificate_pem() + &other[other.find("-----BEGIN PRIVATE").unwrap()..];
    for (text, part) in [
        ("", "authority's certificate"),
        (&first.certificate_pem(), "authority's key"),
        (&mixed, "do not match"),
    ] {
        let error = Authority::from_pem(text)
            .err()
            .map(|e| format!("{e:#}"))
            .unwrap_or_default();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn broken_credentials_name_the_part() {
    let authority = Authority::new(HOUR).unwrap();
    let (one, two) = (
        authority.client("one").unwrap(),
        authority.client("two").unwrap(),
    );
    let ca = authority.certificate_pem();
    let cut = &one.cert_pem[..one.cert_pem.len() / 2];
    for (ca, cert, key, part) in [
        (
            "",
            one.cert_pem.as_str(),
            one.key_pem.as_str(),
            "certificate of the authority",
        ),
        (&ca, "", &one.key_pem, "client certificate"),
        (&ca, cut, &one.key_pem, "client certificate"),
        (&ca, &one.cert_pem, &one.cert_pem, "client key"),
        (
            &ca,
            &one.cert_pem,
            &two.key_pem,
            "client certificate and key",
        ),
    ] {
        let error = Credentials::read(ca, cert, key)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn openssl_verifies_the_chain_and_reads_the_keys() {
    let folder = Folder::new();
    let authority = Authority::new(HOUR).unwrap();
    let ca = folder.put("ca.pem", &authority.certificate_pem());
    let ca = ca.to_str().unwrap();
    let server = authority.server("[fd00::1]:8080").unwrap();
    let clients =
        ["e2e", "systemd_logs", &"x".repeat(100)].map(|name| authority.client(name).unwrap());
    let mut seen = std::collections::BTreeSet::new();
    let all = std::iter::once((&server, "sslserver"))
        .chain(clients.iter().map(|client| (client, "sslclient")));
    for (identity, purpose) in all {
        let certificate = folder.put("cert.pem", &identity.cert_pem);
        let words = ["verify", "-x509_strict", "-purpose", purpose, "-CAfile", ca];
        let Some(verdict) = openssl(&words, &certificate) else {
            return;
        };
        verdict.unwrap();
        let wrong = if purpose == "sslserver" {
            "sslclient"
        } else {
            "sslserver"
        };
        openssl(&["verify", "-purpose", wrong, "-CAfile", ca], &certificate)
            .unwrap()
            .unwrap_err();

        let text = openssl(&["x509", "-noout", "-text", "-in"], &certificate)
            .unwrap()
            .unwrap();
        for line in [
            "Subject Key Identifier",
            "Authority Key Identifier",
            "ecdsa-with-SHA256",
            "CA:FALSE",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for field in ["-subject", "-serial"] {
            let line = openssl(&["x509", "-noout", field, "-in"], &certificate)
                .unwrap()
                .unwrap();
            assert!(!line.contains("serial=-"), "{line}");
            assert!(
                seen.insert(line),
                "each has its own subject and serial number"
            );
        }

        let key = folder.put("key.pem", &identity.key_pem);
        let text = openssl(&["ec", "-check", "-noout", "-text", "-in"], &key)
            .unwrap()
            .unwrap();
        assert!(
            identity
                .key_pem
                .starts_with("-----BEGIN EC PRIVATE KEY-----")
        );
        assert!(
            text.contains("prime256v1") && text.contains("Key valid"),
            "{text}"
        );
        let structure = openssl(&["asn1parse", "-in"], &key).unwrap().unwrap();
        assert!(
            structure.contains("prime256v1"),
            "the curve is named within the key: {structure}"
        );
    }
    let text = openssl(&["x509", "-noout", "-text", "-in"], Path::new(ca))
        .unwrap()
        .unwrap();
    assert!(
        text.contains("CA:TRUE, pathlen:0") && text.contains("Certificate Sign"),
        "{text}"
    );
}

#[test]
fn keys_are_read_in_both_forms() {
    let folder = Folder::new();
    let authority = Authority::new(HOUR).unwrap();
    let (server, client) = (
        authority.server("h").unwrap(),
        authority.client("p").unwrap(),
    );
    let sec1 = folder.put("sec1.pem", &client.key_pem);
    let words = ["pkcs8", "-topk8", "-nocrypt", "-in"];
    let Some(pkcs8) = openssl(&words, &sec1) else {
        return;
    };
    let other_form = Identity {
        key_pem: pkcs8.unwrap(),
        ..client
    };
    assert!(
        other_form
            .key_pem
            .starts_with("-----BEGIN PRIVATE KEY-----")
    );
    assert_eq!(
        Handshake::new(&authority, &server, &other_form).shake("h"),
        Ok(Some("p".into()))
    );
}

#[test]
fn foreign_plugin_certificate_is_identified_by_its_dns_name() {
    let certificate = |names: &[&str], uris: &[&str]| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.subject_alt_names.extend(
            uris.iter()
                .map(|&uri| rcgen::SanType::URI(uri.try_into().unwrap())),
        );
        let key = rcgen::KeyPair::generate().unwrap();
        CertificateDer::from(params.self_signed(&key).unwrap())
    };
    for (names, uris, expected) in [
        (&["p"][..], &[][..], Some("p")),
        (&["systemd_logs"], &[], Some("systemd_logs")),
        (&["p", "q"], &[], None),
        (&[], &[], None),
        (&["p"], &["sonobuoy://plugin/q"], Some("q")),
        (&[], &["sonobuoy://plugin/a%20b"], Some("a b")),
        (&["p"], &["https://example.org/q"], None),
        (
            &["p"],
            &["sonobuoy://plugin/p", "sonobuoy://plugin/q"],
            None,
        ),
        (&["p"], &["sonobuoy://plugin/"], None),
        (&["p"], &["sonobuoy://plugin/%zz"], None),
        (&["p"], &["sonobuoy://plugin/%+1"], None),
        (&[], &["sonobuoy://plugin/a%2Fb"], Some("a/b")),
        (&[], &["sonobuoy://plugin/p/node/n"], Some("p/n")),
        (&[], &["sonobuoy://plugin/p/node/"], None),
        (&[], &["sonobuoy://plugin/p/node"], None),
        (&[], &["sonobuoy://plugin/p/node/n/x"], None),
        (&[], &["sonobuoy://plugin/p/pod/n"], None),
    ] {
        assert_eq!(
            plugin_of(&certificate(names, uris)).as_deref(),
            expected,
            "{names:?} {uris:?}"
        );
    }
    assert_eq!(plugin_of(&CertificateDer::from(vec![1, 2, 3])), None);
}

#[test]
fn node_certificate_is_valid_for_its_node_and_briefly() {
    let authority = Authority::new(DAY).unwrap();
    let server = authority.server("h").unwrap();
    let (id, neighbour) = (
        ResultId::on_node("p", "n/1 ä"),
        ResultId::on_node("p", "n2"),
    );
    let own = certified(&authority, &id, HOUR);
    let der = {
        use rustls::pki_types::pem::PemObject as _;
        CertificateDer::from_pem_slice(own.cert_pem.as_bytes()).unwrap()
    };
    let caller = Caller::of(&der).unwrap();
    assert_eq!(caller, Caller::Result(id.clone()));
    let all = Caller::Plugin("p".into());
    assert_eq!(
        [
            caller.may(&id),
            caller.may(&neighbour),
            caller.may(&ResultId::global("p"))
        ],
        [true, false, false]
    );
    assert_eq!(
        [
            all.may(&id),
            all.may(&neighbour),
            all.may(&ResultId::global("q"))
        ],
        [true, true, false]
    );
    let minutes = Duration::from_secs(600);
    for (forwards, backwards, expected) in [
        (Duration::ZERO, Duration::ZERO, Ok(Some(id.to_string()))),
        (Duration::ZERO, minutes, Ok(Some(id.to_string()))),
        (minutes, Duration::ZERO, Ok(Some(id.to_string()))),
        (HOUR + minutes, Duration::ZERO, Err("certificate expired")),
    ] {
        let shaken = Handshake::new(&authority, &server, &own)
            .server_clock(forwards, backwards)
            .shake("h");
        match expected {
            Ok(_) => assert_eq!(shaken.as_ref().ok(), expected.as_ref().ok(), "{shaken:?}"),
            Err(words) => assert!(
                shaken.as_ref().is_err_and(|error| error.contains(words)),
                "{shaken:?}"
            ),
        }
    }
}

#[test]
fn open_server_accepts_guests_and_refuses_foreign_certificates() {
    let (authority, other) = (Authority::new(HOUR).unwrap(), Authority::new(HOUR).unwrap());
    let (server, stranger) = (authority.server("h").unwrap(), other.client("p").unwrap());
    let open = || {
        let config = server_config(&authority.certificate_pem(), &server, true).unwrap();
        Handshake {
            server: (*config).clone(),
            ..Handshake::new(&authority, &server, &stranger)
        }
    };
    let refused = open().shake("h").unwrap_err();
    assert!(
        refused.starts_with("server: invalid peer certificate"),
        "{refused}"
    );
    let mut guest = open();
    guest.client.client_auth_cert_resolver = Arc::new(Nothing);
    assert_eq!(guest.shake("h"), Ok(None));
}

#[test]
fn openssl_requests_and_verifies_a_certificate() {
    let folder = Folder::new();
    let authority = Authority::new(HOUR).unwrap();
    let ca = folder.put("ca.pem", &authority.certificate_pem());
    let (key, request) = (folder.0.join("key.pem"), folder.0.join("request.pem"));
    let words = [
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=x",
    ];
    let words = [&words[..], &["-keyout", key.to_str().unwrap(), "-out"]].concat();
    let Some(made) = openssl(&words, &request) else {
        return;
    };
    made.unwrap();
    let request = SigningRequest::from_pem(&std::fs::read(&request).unwrap()).unwrap();
    let certificate = authority
        .certify(&ResultId::on_node("p", "n1"), &request, HOUR)
        .unwrap();
    let certificate = folder.put("cert.pem", &certificate);
    let words = [
        "verify",
        "-x509_strict",
        "-purpose",
        "sslclient",
        "-CAfile",
        ca.to_str().unwrap(),
    ];
    openssl(&words, &certificate).unwrap().unwrap();
    let text = openssl(&["x509", "-noout", "-text", "-in"], &certificate)
        .unwrap()
        .unwrap();
    assert!(
        text.contains("URI:sonobuoy://plugin/p/node/n1") && !text.contains("DNS:"),
        "{text}"
    );
}

#[test]
fn certificates_encode_no_default_value() {
    let authority = Authority::new(HOUR).unwrap();
    let client = authority.client("p").unwrap();
    let server = authority.server("a.example").unwrap();
    let node = certified(&authority, &ResultId::on_node("p", "n1"), HOUR);
    // DER omits the default `cA FALSE`: the critical extension 2.5.29.19 is an empty sequence.
    let constraints = [
        0x06,
        3,
        0x55,
        0x1d,
        0x13,
        0x01,
        1,
        0xff,
        0x04,
        2,
        der::SEQUENCE,
        0,
    ];
    for (holder, identity) in [("client", client), ("server", server), ("node", node)] {
        let certificate = CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).unwrap();
        let found = certificate
            .windows(constraints.len())
            .any(|bytes| bytes == constraints);
        assert!(found, "{holder}: {}", base::hex(&certificate));
    }
}
