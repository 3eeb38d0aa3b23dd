//! Other nodes, which a plugin asks for by `peers` and the built-in plugin `network` probes.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::support::Sonobuoy;
use crate::support::cluster::Cluster;

/// The variable of a plugin's container with other nodes.
fn peers_of(pod: &Value) -> Option<Value> {
    let containers = pod["spec"]["containers"].as_array()?;
    let plugin = containers
        .iter()
        .find(|container| container["name"] == "plugin")?;
    let mut variables = plugin["env"].as_array()?.iter();
    let found = variables.find(|variable| variable["name"] == "SONOBUOY_PEERS")?;
    serde_json::from_str(found["value"].as_str()?).ok()
}

#[test]
fn each_pod_gets_the_next_nodes_of_a_ring() {
    let names = ["a", "b", "c", "d"];
    let cluster = Cluster::new(&names)
        .plugin("p", "Nodes", "  peers: 1\n")
        .plugin("q", "Nodes", "");
    for (number, name) in names.iter().enumerate() {
        let labels = json!({"topology.kubernetes.io/zone": "z"});
        let addresses = json!([{"type": "InternalIP", "address": format!("10.0.0.{number}")}]);
        let node = json!({"metadata": {"labels": labels}, "status": {"addresses": addresses}});
        cluster.api.merge(&format!("/api/v1/nodes/{name}"), &node);
    }
    let aggregator = cluster.start("");
    cluster
        .api
        .wait(|_| cluster.pods("p").len() == 4 && cluster.pods("q").len() == 4);
    let probed: BTreeSet<String> = cluster
        .pods("p")
        .iter()
        .map(|pod| {
            let peers = peers_of(pod).unwrap();
            assert_eq!(peers.as_array().unwrap().len(), 1, "{peers}");
            let peer = &peers[0];
            assert_eq!(
                (&peer["port"], &peer["zone"]),
                (&json!(10250), &json!("z")),
                "{peer}"
            );
            assert!(
                peer["address"].as_str().unwrap().starts_with("10.0.0."),
                "{peer}"
            );
            let own = pod
                .to_string()
                .contains(&format!("\"values\":[{}]", peer["node"]));
            assert!(!own, "a node is not its own peer: {pod}");
            peer["node"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        probed.into_iter().collect::<Vec<_>>(),
        names,
        "each node once"
    );
    assert!(cluster.pods("q").iter().all(|pod| peers_of(pod).is_none()));
    drop(aggregator);
}

/// Answers one request as a kubelet does that knows nobody: reads all of it, and refuses it.
fn kubelet() -> (u16, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["node".into()]).unwrap();
    let certificate = names.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut talk = StreamOwned::new(connection, stream);
        let (mut request, mut part) = (Vec::new(), [0; 16 << 10]);
        while request.len() <= 64 << 10 {
            let length = talk.read(&mut part).unwrap();
            request.extend_from_slice(&part[..length]);
        }
        talk.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        request.len()
    });
    (port, serving)
}

#[test]
fn network_names_the_peer_that_is_not_reached() {
    let (port, serving) = kubelet();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let peer = |node: &str, port: u16, zone: &str| json!({"node": node, "address": "127.0.0.1", "port": port, "zone": zone});
    let peers = json!([peer("n1", port, "a"), peer("n2", closed, "b")]);
    let item = Sonobuoy::new("gather network")
        .env("SONOBUOY_PEERS", peers.to_string())
        .run_any()
        .stdout;
    assert!(serving.join().unwrap() > 64 << 10);
    let item: Value = serde_yaml::from_str(&item).unwrap();
    let legs = item["items"].as_array().unwrap();
    let leg = legs.iter().find(|leg| leg["name"] == "peers").unwrap();
    assert_eq!(leg["status"], "failed", "{leg}");
    let details = &leg["details"];
    let error = details["error"].as_str().unwrap();
    assert!(
        error.starts_with("1 of 2 peers cannot be reached: `n2` (zone b): no connection to"),
        "{error}"
    );
    assert_eq!(
        (&details["reached"], &details["of"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(details["zones"]["b"]["reached"], 0);
    assert!(details["pairs"][0]["connect_ms"].is_number(), "{details}");
    assert!(details["path_mtu"].is_number(), "{details}");
}
