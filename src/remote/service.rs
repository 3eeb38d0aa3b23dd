//! The status service of a run: what it adds to the manifest, where it is reached, and the file with the way in.
//!
//! The file holds a private key: it is made for its owner alone, and one that somebody else may have made is neither
//! written nor believed.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write as _};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backplane::{Authority, Identity};
use crate::names::{self, STATUS_PORT, STATUS_SERVICE};
use base::clock;
use base::json::json;
use base::kube::{self, Client, Resource, Selector, Trust};
use base::sys::{self, Exposed, Open as _};

/// Where the file is, unless told otherwise.
pub(crate) const FILE: &str = "/tmp/sonobuoy.json";
/// What stands for standard output, or standard input, in place of a file.
pub(crate) const STREAM: &str = "-";
/// The kind that clouds bring.
const BALANCER: &str = "LoadBalancer";
/// Files that are older are those of runs that are long over.
const MAX_FILE_AGE: Duration = Duration::from_secs(48 * 3_600);
/// Certificates are valid beyond any use of the file.
const CERTIFICATE_VALIDITY: Duration = MAX_FILE_AGE;
/// Clouds take minutes to give a load balancer its address.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(180);
/// Between two looks for it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The file is a few certificates.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A status service that a run is to have.
#[derive(Clone)]
pub(crate) struct Service {
    kind: String,
    authority: String,
    server: Identity,
    client: Identity,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The way in, as it stands in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// `https://HOST:STATUS_PORT/`.
    pub host_address: String,
    /// When, RFC 3339.
    pub created_at: String,
    /// Whom to believe.
    pub ca_cert: String,
    /// Our certificate.
    pub client_cert: String,
    /// Its key.
    pub client_key: String,
    /// The name that the server's certificate has.
    #[serde(default)]
    pub server_name: String,
    /// The namespace of the run.
    #[serde(default)]
    pub namespace: String,
}

impl Service {
    /// Makes authority and certificates for a service of this kind: `ClusterIP`, `NodePort` or `LoadBalancer`.
    pub(crate) fn new(kind: &str) -> Result<Self> {
        let authority = Authority::new(CERTIFICATE_VALIDITY)?;
        Ok(Self {
            kind: kind.to_owned(),
            authority: authority.certificate_pem(),
            server: authority.server(STATUS_SERVICE)?,
            client: authority.client("status")?,
        })
    }

    /// The secret that the aggregator's pod mounts.
    pub(crate) fn secret(&self, namespace: &str) -> Value {
        let data = |text: &str| BASE64.encode(text);
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"labels": names::labels(), "name": STATUS_SERVICE, "namespace": namespace},
            "data": {
                "ca.crt": data(&self.authority),
                "tls.crt": data(&self.server.cert_pem),
                "tls.key": data(&self.server.key_pem),
            },
        })
    }

    /// The way to it.
    pub(crate) fn service(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"labels": names::labels(), "name": STATUS_SERVICE, "namespace": namespace},
            "spec": {
                "ports": [{"name": "status", "port": STATUS_PORT, "protocol": "TCP", "targetPort": STATUS_PORT}],
                "selector": {(names::LABEL_PART): names::AGGREGATOR},
                "type": self.kind,
            },
        })
    }

    /// Gives the aggregator's pod its certificates.
    pub(crate) fn mount(pod: &mut Value) {
        let spec = &mut pod["spec"];
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.push(json!({"name": STATUS_SERVICE, "secret": {"secretName": STATUS_SERVICE}}));
        }
        if let Some(mounts) = spec["containers"][0]["volumeMounts"].as_array_mut() {
            mounts.push(json!({"mountPath": names::STATUS_DIR, "name": STATUS_SERVICE, "readOnly": true}));
        }
    }

    /// Looks up where the service is reached, and says what belongs into the file.
    pub(crate) fn credentials(&self, client: &Client, namespace: &str) -> Result<Credentials> {
        let address = self.address(client, namespace, ADDRESS_TIMEOUT)?;
        Ok(Credentials {
            host_address: format!("https://{address}/"),
            created_at: clock::now(),
            ca_cert: self.authority.clone(),
            client_cert: self.client.cert_pem.clone(),
            client_key: self.client.key_pem.clone(),
            server_name: STATUS_SERVICE.into(),
            namespace: namespace.to_owned(),
        })
    }

    /// Where the service is reached, as soon as the cluster says it.
    fn address(&self, client: &Client, namespace: &str, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        let mut told = false;
        loop {
            let service = client.get(&Resource::SERVICES, namespace, STATUS_SERVICE)?;
            if let Some(address) = address(&self.kind, client, &service)? {
                return Ok(address);
            }
            if Instant::now() > end {
                // Every load balancer stands before a port of the nodes.
                let port = (self.kind == BALANCER).then(|| address("NodePort", client, &service));
                let way = port.transpose()?.flatten().with_context(|| {
                    let kind = &self.kind;
                    format!("the service `{STATUS_SERVICE}` got no address; the cluster may have no {kind}")
                })?;
                log::warn!(
                    "the cluster gives the service `{STATUS_SERVICE}` no {BALANCER}; a node's port is used instead"
                );
                return Ok(way);
            }
            if !std::mem::replace(&mut told, true) {
                log::info!(
                    "the run has begun; waiting up to {} for the address of its status service",
                    clock::duration(limit)
                );
            }
            if client.stop().wait(POLL_INTERVAL) {
                bail!("the service `{STATUS_SERVICE}` had no address until now");
            }
        }
    }
}

impl Credentials {
    /// Makes the file anew, for its owner alone. One of an earlier run goes; anything else stays, and is an error.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let describe = || format!("cannot write `{}`", path.display());
        clear(path).with_context(describe)?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(describe)?;
        file.write_all(self.to_text()?.as_bytes()).with_context(describe)
    }

    /// What the file holds.
    pub(crate) fn to_text(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// Reads the file; none if there is none, if it is not fresh, or if it is that of another namespace.
    pub(crate) fn read(path: &Path, namespace: &str) -> Result<Option<Self>> {
        let describe = || format!("cannot read `{}`", path.display());
        let file = match OpenOptions::new().read(true).no_follow().open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            file => file.with_context(describe)?,
        };
        let about = file.metadata().with_context(describe)?;
        trusted(&about).with_context(describe)?;
        Self::take(file, namespace).with_context(describe)
    }

    /// Reads them from wherever they come; none if they are not fresh, or those of another namespace.
    pub(crate) fn take(from: impl Read, namespace: &str) -> Result<Option<Self>> {
        let mut text = String::new();
        from.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
        let read: Self = serde_json::from_str(&text)?;
        let made = clock::parse_rfc3339(&read.created_at).context("`created_at` is not a time")?;
        let fresh = SystemTime::now().duration_since(made).is_ok_and(|age| age < MAX_FILE_AGE);
        let same = read.namespace.is_empty() || read.namespace == namespace;
        Ok((fresh && same && !read.host_address.is_empty()).then_some(read))
    }

    /// A client for the service.
    pub(crate) fn client(&self, limit: Duration, stop: &base::stop::Stop) -> Result<Client> {
        let identity = kube::Identity::default();
        identity
            .set(self.client_cert.as_bytes(), self.client_key.as_bytes())
            .map_err(|why| anyhow!("{why}"))?;
        let config = kube::Config {
            server_name: Some(self.server_name.clone()).filter(|name| !name.is_empty()),
            trust: Trust::Authorities(self.ca_cert.clone().into_bytes()),
            identity,
            request_timeout: Some(limit),
            ..kube::Config::plain(self.host_address.trim_end_matches('/'))
        };
        Ok(Client::new(config, stop)?)
    }
}

/// Where a service of a kind is reached; none if that is not known yet.
fn address(kind: &str, client: &Client, service: &Value) -> Result<Option<String>> {
    let at = |host: &str, port: i64| {
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    };
    let known =
        |value: &Value| value.as_str().filter(|host| !host.is_empty() && *host != "None").map(str::to_owned);
    Ok(match kind {
        "NodePort" => {
            let Some(port) = service["spec"]["ports"][0]["nodePort"].as_i64() else { return Ok(None) };
            let nodes = client
                .list(&Resource::NODES, "", &Selector::all())
                .context("looking for a node's address")?;
            let addresses =
                || nodes.iter().flat_map(|node| node["status"]["addresses"].as_array().into_iter().flatten());
            let of = |kind: &str| {
                addresses().find(|address| address["type"] == kind).and_then(|found| known(&found["address"]))
            };
            of("ExternalIP").or_else(|| of("InternalIP")).map(|host| at(&host, port))
        }
        BALANCER => {
            let ingress = &service["status"]["loadBalancer"]["ingress"][0];
            known(&ingress["ip"])
                .or_else(|| known(&ingress["hostname"]))
                .map(|host| at(&host, STATUS_PORT.into()))
        }
        _ => known(&service["spec"]["clusterIP"]).map(|host| at(&host, STATUS_PORT.into())),
    })
}

/// Whether the file can be made: before anything else is.
pub(crate) fn clear(path: &Path) -> Result<()> {
    let about = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        about => about?,
    };
    trusted(&about)?;
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    if serde_json::from_str::<Credentials>(&text).is_err() {
        bail!(
            "the file exists but does not contain credentials of a status service; name another file with --credentials"
        );
    }
    Ok(fs::remove_file(path)?)
}

/// A file that is ours alone.
fn trusted(about: &fs::Metadata) -> Result<()> {
    if !about.is_file() {
        bail!("it is not a plain file; links are not followed, name another with --credentials");
    }
    match sys::exposed(about) {
        None => Ok(()),
        Some(Exposed::Owner) => bail!("it belongs to somebody else; name another file with --credentials"),
        Some(Exposed::Mode) => {
            bail!("others may read or write it; remove it, or restrict it to its owner with `chmod 600`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::ApiServer;
    use base::stop::Stop;

    #[test]
    fn without_a_load_balancer_the_port_of_a_node_is_the_way_in() {
        let api = ApiServer::start();
        let client = Client::new(kube::Config::plain(api.url()), &Stop::new()).unwrap();
        let balanced = Service::new(BALANCER).unwrap();
        let reached = || balanced.address(&client, "ns", Duration::ZERO);
        let path = format!("/api/v1/namespaces/ns/services/{STATUS_SERVICE}");
        api.put("/api/v1/namespaces/ns", json!({}));
        api.put(&path, json!({"spec": {"type": BALANCER}}));
        let error = format!("{:#}", reached().unwrap_err());
        assert!(error.contains("the cluster may have no LoadBalancer"), "{error}");

        api.merge(&path, &json!({"spec": {"ports": [{"port": STATUS_PORT, "nodePort": 30_443}]}}));
        let addresses =
            json!([{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "fd00::7"}]);
        api.put("/api/v1/nodes/n", json!({"status": {"addresses": addresses}}));
        assert_eq!(reached().unwrap(), "[fd00::7]:30443");

        api.merge(&path, &json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}}));
        assert_eq!(reached().unwrap(), "lb.example:8443");
    }

    fn credentials() -> Credentials {
        Credentials {
            host_address: "https://10.0.0.1:8443/".into(),
            created_at: clock::now(),
            ca_cert: "a".into(),
            client_cert: "c".into(),
            client_key: "k".into(),
            server_name: STATUS_SERVICE.into(),
            namespace: "ns".into(),
        }
    }

    #[test]
    fn the_file_is_for_its_owner_alone_and_links_are_refused() {
        let folder = base::temp::Folder::new().unwrap();
        let path = folder.join("f.json");
        assert_eq!(Credentials::read(&path, "ns").unwrap(), None);
        credentials().write(&path).unwrap();
        assert_eq!(sys::mode(&fs::metadata(&path).unwrap()) & 0o777, 0o600);
        credentials().write(&path).unwrap();
        assert!(Credentials::read(&path, "ns").unwrap().is_some());
        assert!(Credentials::read(&path, "other").unwrap().is_none());
        let old = Credentials { created_at: "2024-01-01T00:00:00Z".into(), ..credentials() };
        old.write(&path).unwrap();
        assert!(Credentials::read(&path, "ns").unwrap().is_none(), "long over");
        sys::set_mode(&path, 0o644).unwrap();
        assert!(Credentials::read(&path, "ns").is_err(), "others may have read it");
        let link = folder.join("link.json");
        sys::symlink(&path, &link).unwrap();
        assert!(credentials().write(&link).is_err());
        assert!(Credentials::read(&link, "ns").is_err());
        let other = folder.join("other.json");
        fs::write(&other, "{}").unwrap();
        sys::set_mode(&other, 0o600).unwrap();
        assert!(credentials().write(&other).is_err(), "what is not ours stays");
        assert!(other.exists());
    }
}
