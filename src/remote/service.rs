//! The status service of a run: its objects, its address, and the credentials file.
//!
//! The file contains a private key: only its owner may read it, and a file that another user may
//! have written is neither replaced nor trusted. Starts no thread.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seal::KnownAuthority;
use super::state::StatusSource;
use base::at::At as _;
use base::clock;
use base::json::json;
use base::proxy::authority;
use base::stop::Stop;
use base::sys::{self, Exposed, Open as _};
use base::temp::NewFile;
use kube::{self, Client, Object as _, Resource, Selector, Trust};
use model::names::{self, STATUS_PORT, STATUS_SERVICE};
use run::backplane::{Authority, Identity, ensure_authority};

/// Default path of the credentials file.
pub(crate) const FILE: &str = "/tmp/sonobuoy.json";
/// Standard output, or standard input, instead of a file.
pub(crate) const STREAM: &str = "-";
/// Service type with a load balancer of the cloud.
const BALANCER: &str = "LoadBalancer";
/// Maximum age of a file, and validity of its certificates: longer than any run.
const MAX_FILE_AGE: Duration = Duration::from_secs(48 * 3_600);
/// Tolerated difference between the clocks of the machines that write and read a file.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(300);
/// Time for a cloud to assign an address to a load balancer.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(180);
/// Interval between two looks for the address.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of the file, a few certificates.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Time limit of one request, except for the archive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A status service to be created with a run.
#[derive(Clone)]
pub(crate) struct Service {
    kind: String,
    server: Identity,
    /// Without the address and the namespace, which the cluster and the run determine.
    credentials: Credentials,
}

/// Credentials for the service, as in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// `https://HOST:STATUS_PORT/`.
    pub host_address: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Trusted authority.
    pub ca_cert: String,
    /// Client certificate.
    pub client_cert: String,
    /// Key of the client certificate.
    pub client_key: String,
    /// Name in the server's certificate.
    #[serde(default)]
    pub server_name: String,
    /// The namespace of the run.
    #[serde(default)]
    pub namespace: String,
    /// The run that is sealed by `authority`; older files name none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Certificate of the run's authority, PEM, as learned when the run started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub authority: String,
    /// The file from which they were read.
    #[serde(skip)]
    pub path: PathBuf,
}

impl Service {
    /// Creates the authority and certificates of a service of this type: `ClusterIP`, `NodePort` or
    /// `LoadBalancer`.
    pub(crate) fn new(kind: &str) -> Result<Self> {
        let authority = Authority::new(MAX_FILE_AGE)?;
        let client = authority.client("status")?;
        let credentials = Credentials {
            host_address: String::new(),
            created_at: clock::now(),
            ca_cert: authority.certificate_pem(),
            client_cert: client.cert_pem,
            client_key: client.key_pem,
            server_name: STATUS_SERVICE.into(),
            namespace: String::new(),
            run: String::new(),
            authority: String::new(),
            path: PathBuf::new(),
        };
        Ok(Self {
            kind: kind.to_owned(),
            server: authority.server(STATUS_SERVICE)?,
            credentials,
        })
    }

    /// Secret mounted by the aggregator's pod.
    pub(crate) fn secret(&self, namespace: &str) -> Value {
        let data = |text: &str| BASE64.encode(text);
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"labels": names::labels(), "name": STATUS_SERVICE, "namespace": namespace},
            "data": {
                "ca.crt": data(&self.credentials.ca_cert),
                "tls.crt": data(&self.server.cert_pem),
                "tls.key": data(&self.server.key_pem),
            },
        })
    }

    /// Service object.
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

    /// Looks up the address of the service, and returns the credentials for the file.
    pub(crate) fn credentials(&self, client: &Client, namespace: &str) -> Result<Credentials> {
        let address = self.address(client, namespace, ADDRESS_TIMEOUT)?;
        Ok(Credentials {
            host_address: format!("https://{address}/"),
            namespace: namespace.to_owned(),
            ..self.credentials.clone()
        })
    }

    /// Waits until the cluster reports an address of the service.
    fn address(&self, client: &Client, namespace: &str, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        let mut is_announced = false;
        loop {
            let service = client.get(&Resource::SERVICES, namespace, STATUS_SERVICE)?;
            if let Some(address) = address(&self.kind, client, &service)? {
                return Ok(address);
            }
            if Instant::now() > end {
                // A load balancer always has a node port, too.
                let port = (self.kind == BALANCER).then(|| address("NodePort", client, &service));
                let way = port.transpose()?.flatten().with_context(|| {
                    let kind = &self.kind;
                    format!(
                        "the service `{STATUS_SERVICE}` got no address; the cluster may have no \
                         {kind}"
                    )
                })?;
                log::warn!(
                    "the cluster gives the service `{STATUS_SERVICE}` no {BALANCER}; a node's \
                     port is used instead"
                );
                return Ok(way);
            }
            if !std::mem::replace(&mut is_announced, true) {
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
    /// Content of the file.
    pub(crate) fn to_text(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// Writes the reserved file and renames it.
    pub(crate) fn write(&self, mut file: NewFile) -> Result<()> {
        let path = file.path().to_owned();
        let text = self.to_text()?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.commit(true))
            .at("cannot write", path)
    }

    /// Reads the file; `None` if it does not exist. A rejected file is an error that says why.
    pub(crate) fn read(path: &Path, namespace: Option<&str>) -> Result<Option<Self>> {
        let read =
            open(path).and_then(|file| file.map(|file| Self::take(file, namespace)).transpose());
        let read = read.at("cannot use", path)?;
        Ok(read.map(|credentials| Self {
            path: path.to_owned(),
            ..credentials
        }))
    }

    /// Reads credentials of the run in `namespace`, or of any run.
    pub(crate) fn take(from: impl Read, namespace: Option<&str>) -> Result<Self> {
        let read: Self = serde_json::from_reader(from.take(MAX_FILE_BYTES))?;
        let created = &read.created_at;
        let time = clock::parse_rfc3339(created).context("`created_at` is not a time")?;
        match SystemTime::now().duration_since(time) {
            Ok(age) if age >= MAX_FILE_AGE => bail!(
                "its credentials were created at {created} and expired after {} hours; start a \
                 new run",
                MAX_FILE_AGE.as_secs() / 3_600
            ),
            Err(ahead) if ahead.duration() > MAX_CLOCK_SKEW => bail!(
                "its credentials were created at {created}, which is in the future; check the \
                 clock of this machine"
            ),
            _ => {}
        }
        let run_namespace = &read.namespace;
        if let Some(namespace) =
            namespace.filter(|name| !run_namespace.is_empty() && run_namespace != name)
        {
            bail!(
                "its credentials belong to the run in namespace `{run_namespace}`, not \
                 `{namespace}`; add `-n {run_namespace}`"
            );
        }
        if read.host_address.is_empty() {
            bail!("`host_address` is empty");
        }
        Ok(read)
    }

    /// Adds the authority of the run, so that seals can be checked where the run was not started.
    #[must_use]
    pub(crate) fn with_authority(self, run: &str, authority: KnownAuthority) -> Self {
        Self {
            run: run.to_owned(),
            authority: authority.certificate,
            ..self
        }
    }

    /// The authority of `run`, if the file has it.
    pub(crate) fn authority(&self, run: &str) -> Option<KnownAuthority> {
        let is_of_run = !self.authority.is_empty()
            && self.run == run
            && ensure_authority(run, &self.authority).is_ok();
        is_of_run.then(|| KnownAuthority {
            path: self.path.clone(),
            certificate: self.authority.clone(),
            server: None,
        })
    }

    /// The service as a source, without connecting.
    pub(crate) fn source(&self, stop: &Stop) -> Result<StatusSource> {
        let identity = kube::Identity::default();
        identity.set(self.client_cert.as_bytes(), self.client_key.as_bytes())?;
        let config = kube::Config {
            server_name: Some(self.server_name.clone()).filter(|name| !name.is_empty()),
            trust: Trust::Authorities(self.ca_cert.clone().into_bytes()),
            identity,
            ..kube::Config::plain(self.host_address.trim_end_matches('/'))
        };
        let client = Client::new(names::USER_AGENT, config, stop)?.once(REQUEST_TIMEOUT);
        Ok(StatusSource::service(
            client,
            clock::parse_rfc3339(&self.created_at),
        ))
    }
}

/// Reserves a credentials file, which replaces the old one when it is written. Fails if the path is
/// not writable, or holds anything but credentials of this user.
pub(crate) fn reserve(path: &Path) -> Result<NewFile> {
    create_file(path).at("cannot write", path)
}

fn create_file(path: &Path) -> Result<NewFile> {
    if let Some(file) = open(path)? {
        let read = serde_json::from_reader::<_, Credentials>(file);
        ensure!(
            read.is_ok(),
            "the file exists but does not contain credentials of a status service; name another \
             file with --credentials"
        );
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    // The parent of a bare file name is empty.
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    ensure!(folder.is_dir(), "`{}` is not a folder", folder.display());
    Ok(NewFile::create(path, 0o600)?)
}

/// Address of a service; none if unknown yet.
fn address(kind: &str, client: &Client, service: &Value) -> Result<Option<String>> {
    let (mut port, status) = (
        i64::from(STATUS_PORT),
        &service["status"]["loadBalancer"]["ingress"][0],
    );
    let host = match kind {
        "NodePort" => {
            let Some(number) = service["spec"]["ports"][0]["nodePort"].as_i64() else {
                return Ok(None);
            };
            port = number;
            let nodes = client
                .list(&Resource::NODES, "", &Selector::all())
                .context("looking for a node's address")?;
            node_address(&nodes, "ExternalIP").or_else(|| node_address(&nodes, "InternalIP"))
        }
        BALANCER => host_in(&status["ip"]).or_else(|| host_in(&status["hostname"])),
        _ => host_in(&service["spec"]["clusterIP"]),
    };
    Ok(host.map(|host| authority(&host, port)))
}

/// The first address of a kind that a node has.
fn node_address(nodes: &[Value], kind: &str) -> Option<String> {
    let mut addresses = nodes
        .iter()
        .flat_map(|node| node["status"]["addresses"].items());
    let address = addresses.find(|address| address["type"] == kind)?;
    host_in(&address["address"])
}

/// The host in a field; a service without an address has `None` there.
fn host_in(value: &Value) -> Option<String> {
    let host = value.as_str()?;
    let is_known = !host.is_empty() && host != "None";
    is_known.then(|| host.to_owned())
}

/// Opens a file that only this user can have written; `None` if it does not exist.
fn open(path: &Path) -> Result<Option<impl Read>> {
    let Some(about) = base::if_exists(fs::symlink_metadata(path))? else {
        return Ok(None);
    };
    trusted(&about)?;
    let file = OpenOptions::new().read(true).no_follow().open(path)?;
    trusted(&file.metadata()?)?;
    Ok(Some(file.take(MAX_FILE_BYTES)))
}

/// Rejects files that another user can have read or written.
fn trusted(about: &fs::Metadata) -> Result<()> {
    if !about.is_file() {
        bail!("it is not a plain file; links are not followed, name another with --credentials");
    }
    match sys::exposed(about) {
        None => Ok(()),
        Some(Exposed::Owner) => {
            bail!("it belongs to another user; name another file with --credentials")
        }
        Some(Exposed::Mode) => {
            bail!(
                "others may read or write it; remove it, or restrict it to its owner with `chmod \
                 600`"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_api_server::ApiServer;

    #[test]
    fn node_port_replaces_a_missing_load_balancer() {
        let api = ApiServer::start();
        let client = Client::new("test/1", kube::Config::plain(api.url()), &Stop::new()).unwrap();
        let balanced = Service::new(BALANCER).unwrap();
        let reached = || balanced.address(&client, "ns", Duration::ZERO);
        let path = format!("/api/v1/namespaces/ns/services/{STATUS_SERVICE}");
        api.put("/api/v1/namespaces/ns", json!({}));
        api.put(&path, json!({"spec": {"type": BALANCER}}));
        let error = format!("{:#}", reached().unwrap_err());
        assert!(
            error.contains("the cluster may have no LoadBalancer"),
            "{error}"
        );

        api.merge(
            &path,
            &json!({"spec": {"ports": [{"port": STATUS_PORT, "nodePort": 30_443}]}}),
        );
        let addresses = json!([{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "fd00::7"}]);
        api.put(
            "/api/v1/nodes/n",
            json!({"status": {"addresses": addresses}}),
        );
        assert_eq!(reached().unwrap(), "[fd00::7]:30443");

        api.merge(
            &path,
            &json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}}),
        );
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
            run: String::new(),
            authority: String::new(),
            path: PathBuf::new(),
        }
    }

    fn write(credentials: &Credentials, path: &Path) -> Result<()> {
        credentials.write(reserve(path)?)
    }

    /// The credentials of a file as they were written.
    fn read(path: &Path) -> Result<Option<Credentials>> {
        let read = Credentials::read(path, Some("ns"))?;
        Ok(read.map(|credentials| Credentials {
            path: PathBuf::new(),
            ..credentials
        }))
    }

    #[test]
    fn authority_is_used_for_its_run_only() {
        let authority = Authority::new(MAX_FILE_AGE).unwrap();
        let (run, certificate) = (authority.run(), authority.certificate_pem());
        let known = |certificate: &str| KnownAuthority {
            path: PathBuf::new(),
            certificate: certificate.to_owned(),
            server: None,
        };
        let own = credentials().with_authority(&run, known(&certificate));
        assert_eq!(own.authority(&run), Some(known(&certificate)));
        assert_eq!(own.authority("other"), None);
        assert_eq!(credentials().authority(""), None, "an older file");
        let forged = Authority::new(MAX_FILE_AGE).unwrap().certificate_pem();
        let forged = credentials().with_authority(&run, known(&forged));
        assert_eq!(
            forged.authority(&run),
            None,
            "the run is derived from another key"
        );
    }

    #[cfg(unix)] // its links and modes
    #[test]
    fn credentials_file_must_belong_to_the_user() {
        let folder = base::temp::Folder::new().unwrap();
        let (path, own) = (folder.join("f.json"), credentials());
        assert_eq!(read(&path).unwrap(), None);
        write(&own, &path).unwrap();
        assert_eq!(sys::mode(&fs::metadata(&path).unwrap()) & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), Some(own));
        sys::set_mode(&path, 0o644).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("others may read or write it"), "{error}");
        let link = folder.join("link.json");
        sys::symlink(&path, &link).unwrap();
        assert!(write(&credentials(), &link).is_err());
        assert!(read(&link).is_err());
        let other = folder.join("other.json");
        fs::write(&other, "{}").unwrap();
        sys::set_mode(&other, 0o600).unwrap();
        assert!(
            write(&credentials(), &other).is_err(),
            "a file of another kind is kept"
        );
        assert_eq!(fs::read_to_string(&other).unwrap(), "{}");
    }

    #[test]
    fn credentials_file_is_replaced_atomically() {
        let folder = base::temp::Folder::new().unwrap();
        let (path, own) = (folder.join("f.json"), credentials());
        write(&own, &path).unwrap();
        let newer = Credentials {
            host_address: "https://10.0.0.2:8443/".into(),
            ..credentials()
        };
        let file = reserve(&path).unwrap();
        assert_eq!(read(&path).unwrap(), Some(own));
        newer.write(file).unwrap();
        assert_eq!(read(&path).unwrap(), Some(newer));
        drop(reserve(&path).unwrap());
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "an unused reservation leaves no file"
        );
        let missing = folder.join("missing/f.json");
        let error = reserve(&missing)
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default();
        assert!(
            error.contains("missing` is not a folder") && !folder.join("missing").exists(),
            "{error}"
        );
    }

    #[test]
    fn rejected_credentials_are_explained() {
        let at = |seconds: i64| {
            let offset = Duration::from_secs(seconds.unsigned_abs());
            let now = SystemTime::now();
            let created_at = clock::rfc3339(if seconds < 0 {
                now - offset
            } else {
                now + offset
            });
            serde_json::to_string(&Credentials {
                created_at,
                ..credentials()
            })
            .unwrap()
        };
        let empty = serde_json::to_string(&Credentials {
            host_address: String::new(),
            ..credentials()
        })
        .unwrap();
        for (text, namespace, words) in [
            (at(0), "ns", ""),
            (at(-47 * 3_600), "ns", ""),
            (at(240), "ns", ""),
            (at(-48 * 3_600), "ns", "expired after 48 hours"),
            (at(400), "ns", "in the future; check the clock"),
            (
                at(0),
                "other",
                "belong to the run in namespace `ns`, not `other`; add `-n ns`",
            ),
            (empty, "ns", "`host_address` is empty"),
            ("{}".into(), "ns", "missing field `host_address`"),
        ] {
            match Credentials::take(text.as_bytes(), Some(namespace)) {
                Ok(_) => assert_eq!(words, "", "{text}"),
                Err(error) => assert!(
                    !words.is_empty() && error.to_string().contains(words),
                    "{error:#}"
                ),
            }
        }
    }
}
