//! Connections: every TLS setting of a kubeconfig, and proxies.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use super::{Client, Config, Error, Identity, Trust};
use base::proxy::Proxy;
use base::stop::Stop;

struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

fn authority(name: &str) -> Authority {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority {
        issuer: rcgen::Issuer::new(params, key),
        pem,
    }
}

impl Authority {
    /// Chain and key in PEM (PKCS#8).
    fn issue(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (
            params.signed_by(&key, &self.issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    }
}

/// Answers every request with `{}`; requires a client certificate from `clients` if given.
fn server(authority: &Authority, name: &str, clients: Option<&str>) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(pem) => {
            let mut roots = rustls::RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
                .unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = authority.issue(name);
    let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
    let config = Arc::new(
        builder
            .with_single_cert(
                chain,
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for peer in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || {
                let connection = rustls::ServerConnection::new(config).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, peer);
                while base::dial::read_head(&mut stream).is_ok() {
                    if stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn ask(config: Config) -> Result<(), Error> {
    let client = Client::new("test/1", config, &Stop::new())?;
    client.version()?;
    // The second request reuses the connection.
    client.version().map(|_| ())
}

fn config(server: SocketAddr, trust: Trust) -> Config {
    Config {
        trust,
        ..Config::plain(format!("https://{server}"))
    }
}

fn trust(authority: &Authority) -> Trust {
    Trust::Authorities(authority.pem.clone().into_bytes())
}

#[test]
fn server_is_trusted_only_with_authority_and_name() {
    let (ours, foreign) = (authority("ours"), authority("foreign"));
    let (by_address, by_name) = (
        server(&ours, "127.0.0.1", None),
        server(&ours, "kubernetes", None),
    );
    let named = |name: &str| Config {
        server_name: Some(name.into()),
        ..config(by_name, trust(&ours))
    };
    ask(config(by_address, trust(&ours))).unwrap();
    ask(named("kubernetes")).unwrap();
    ask(config(by_name, Trust::Anybody)).unwrap();
    let check = |config: Config, says: &str| {
        let started = Instant::now();
        let error = ask(config).unwrap_err();
        assert!(
            !error.is_passing() && error.to_string().contains(says),
            "{error}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "it is not tried again"
        );
    };
    check(
        config(by_address, trust(&foreign)),
        "its authority is not the one in the kubeconfig",
    );
    check(config(by_address, Trust::System), "UnknownIssuer");
    check(config(by_name, trust(&ours)), "set `tls-server-name`");
    check(named("other"), "set `tls-server-name`");
}

#[test]
fn client_certificates_work_with_any_form_of_key() {
    let (ours, foreign) = (authority("ours"), authority("foreign"));
    let address = server(&ours, "127.0.0.1", Some(&ours.pem));
    let with = |chain: &str, key: &str| {
        let identity = Identity::default();
        identity.set(chain.as_bytes(), key.as_bytes()).unwrap();
        ask(Config {
            identity,
            ..config(address, trust(&ours))
        })
    };
    let (chain, pkcs8) = ours.issue("client");
    with(&chain, &pkcs8).unwrap();
    let (stranger, key) = foreign.issue("client");
    let error = with(&stranger, &key).unwrap_err();
    assert!(
        !error.is_passing()
            && error
                .to_string()
                .contains("rejected the client certificate"),
        "{error}"
    );
    let error = ask(config(address, trust(&ours))).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rejected the client certificate"),
        "{error}"
    );
    let mismatch = Identity::default()
        .set(chain.as_bytes(), key.as_bytes())
        .unwrap_err()
        .to_string();
    assert!(
        mismatch.contains("client certificate and key"),
        "{mismatch}"
    );

    if Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    let folder = base::temp::Folder::new().unwrap();
    let openssl = |words: &str| {
        let output = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    std::fs::write(folder.join("pkcs8"), &pkcs8).unwrap();
    openssl("ec -in pkcs8 -out sec1");
    assert!(read("sec1").contains("BEGIN EC PRIVATE KEY"));
    with(&chain, &read("sec1")).unwrap();
    openssl("pkcs8 -topk8 -in pkcs8 -passout pass:x -out sealed");
    let sealed = Identity::default()
        .set(chain.as_bytes(), read("sealed").as_bytes())
        .unwrap_err()
        .to_string();
    assert!(sealed.contains("it is encrypted"), "{sealed}");

    // An RSA key in PKCS#1, as in older clusters, under an authority of openssl.
    openssl("genrsa -traditional -out rsa 2048");
    assert!(read("rsa").contains("BEGIN RSA PRIVATE KEY"));
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=rsa -days 1");
    openssl("req -new -key rsa -subj /CN=client -out request");
    std::fs::write(
        folder.join("v3"),
        "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n",
    )
    .unwrap();
    openssl(
        "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile v3 -out \
         client.pem",
    );
    let identity = Identity::default();
    identity
        .set(read("client.pem").as_bytes(), read("rsa").as_bytes())
        .unwrap();
    let rsa = server(&ours, "127.0.0.1", Some(&read("ca.pem")));
    ask(Config {
        identity,
        ..config(rsa, trust(&ours))
    })
    .unwrap();
}

/// A proxy with one fixed target; `greet` speaks its protocol and returns whether it agreed.
fn proxy(target: SocketAddr, greet: fn(&mut TcpStream) -> bool) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for mut peer in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            if !greet(&mut peer) {
                continue;
            }
            let target = TcpStream::connect(target).unwrap();
            for (mut from, mut to) in [
                (peer.try_clone().unwrap(), target.try_clone().unwrap()),
                (target, peer),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (address, count)
}

#[test]
fn proxies_are_used() {
    let ours = authority("ours");
    let address = server(&ours, "api.test", None);
    // Only the proxy resolves this name.
    let through = |url: String| {
        let proxy = Some(Proxy::parse(&url).unwrap());
        ask(Config {
            proxy,
            trust: trust(&ours),
            ..Config::plain("https://api.test:6443")
        })
    };
    let (connect, used) = proxy(address, |peer| {
        let head = String::from_utf8(base::dial::read_head(peer).unwrap()).unwrap();
        let known = head.starts_with("CONNECT api.test:6443 HTTP/1.1\r\n")
            && head.contains("\r\nProxy-Authorization: Basic dTpw\r\n");
        let answer = if known {
            "HTTP/1.1 200 Established\r\n\r\n"
        } else {
            "HTTP/1.1 407 Who are you\r\n\r\n"
        };
        peer.write_all(answer.as_bytes()).unwrap();
        known
    });
    through(format!("http://u:p@{connect}")).unwrap();
    assert_eq!(
        used.load(Ordering::SeqCst),
        1,
        "one connection for both requests"
    );
    let error = through(format!("http://{connect}"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("proxy `127.0.0.1:") && error.contains("407 Who are you"),
        "{error}"
    );
    let (socks, _) = proxy(address, |peer| {
        let mut hello = [0; 3];
        peer.read_exact(&mut hello).unwrap();
        assert_eq!(hello, [5, 1, 0]);
        peer.write_all(&[5, 0]).unwrap();
        let mut wish = [0; 4 + 1 + 8 + 2];
        peer.read_exact(&mut wish).unwrap();
        assert_eq!(&wish[..5], [5, 1, 0, 3, 8]);
        assert_eq!(
            (&wish[5..13], &wish[13..]),
            (&b"api.test"[..], &6443_u16.to_be_bytes()[..])
        );
        peer.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        true
    });
    through(format!("socks5://{socks}")).unwrap();
    let (refusing, _) = proxy(address, |peer| {
        let _ = peer.read(&mut [0; 3]);
        peer.write_all(&[5, 0xFF]).unwrap();
        false
    });
    let error = through(format!("socks5://{refusing}"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("offers no supported login method"),
        "{error}"
    );
}

#[test]
fn stop_ends_an_unanswered_connection() {
    // A listener that accepts nothing: the TLS handshake waits forever.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stop = Stop::new();
    let config = config(listener.local_addr().unwrap(), Trust::Anybody);
    let client = Client::new("test/1", config, &stop).unwrap();
    let started = Instant::now();
    let thread = std::thread::spawn(move || client.version());
    let (mut peer, _) = listener.accept().unwrap();
    peer.read_exact(&mut [0; 5]).unwrap();
    stop.stop();
    assert!(matches!(thread.join().unwrap(), Err(Error::Stopped)));
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn requests_name_the_program() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Config::plain(format!("http://{}", listener.local_addr().unwrap()));
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = base::dial::read_head(&mut stream).unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(answer).unwrap();
        head
    });
    let client = Client::new("program/1", server, &Stop::new()).unwrap();
    client.version().unwrap();
    let head = String::from_utf8_lossy(&served.join().unwrap()).to_lowercase();
    assert!(head.contains("\r\nuser-agent: program/1\r\n"), "{head}");
}
