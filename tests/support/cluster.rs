//! A whole run around the fake API server: the aggregator's own process, a controller of
//! DaemonSets, and workers with handwritten requests.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::api_server::{ApiServer, Change};
use super::peer::Peer;
use super::watchdog::Watchdog;
use super::{Archive, Folder, Sonobuoy};

/// Path of the aggregator's pod.
pub const AGGREGATOR: &str = "/api/v1/namespaces/sonobuoy/pods/sonobuoy";
/// Annotation of its pod with the status of the run.
pub const STATUS: &str = "sonobuoy.hept.io/status";

/// A fresh API server, and the path of its kubeconfig, which is in the folder.
pub fn untouched() -> (ApiServer, Folder, String) {
    let (api, folder) = (ApiServer::start(), Folder::new());
    let config = api.kubeconfig(folder.path()).display().to_string();
    (api, folder, config)
}

/// The namespace of a run, without a run.
pub fn namespace(api: &ApiServer) {
    api.put(
        "/api/v1/namespaces/sonobuoy",
        json!({"status": {"phase": "Active"}}),
    );
}

/// The pod of a run's aggregator in this state, with the status of the run.
pub fn aggregator_pod(api: &ApiServer, state: Value, says: Option<&str>) {
    let mut metadata =
        json!({"labels": {"component": "sonobuoy", "sonobuoy-component": "aggregator"}});
    if let Some(text) = says {
        metadata["annotations"] = json!({(STATUS): text});
    }
    api.put(AGGREGATOR, json!({"metadata": metadata, "status": state}));
}

/// The status of a run without an archive, as its aggregator writes it.
pub fn status(status: &str, plugins: &Value) -> String {
    let info = json!({"name": "", "created": "0001-01-01T00:00:00Z", "sha256": "", "size": 0});
    json!({"plugins": plugins, "status": status, "tar-info": info}).to_string()
}

/// The status of a complete run with this archive, as its aggregator writes it.
pub fn complete(name: &str, digest: &[u8], size: usize) -> String {
    let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let info =
        json!({"name": name, "created": "2024-01-01T00:00:00Z", "sha256": sha256, "size": size});
    json!({"plugins": [], "status": "complete", "tar-info": info}).to_string()
}

/// A loopback address that no other test uses, where the system has more than one: no other process
/// can take a port of it between the search for a free one and the start of the aggregator.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = (std::process::id() << 8) | (NEXT.fetch_add(1, Ordering::Relaxed) & 0x7f);
    let [_, b, c, d] = number.to_be_bytes();
    if cfg!(target_os = "linux") {
        [127, b | 1, c, d].into()
    } else {
        [127, 0, 0, 1].into()
    }
}

/// A port for a server on all addresses. The system gives no outgoing connection a port of this
/// range, so it stays free.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let free = |port: &u16| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let mut ports =
        std::iter::repeat_with(|| std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed));
    ports
        .by_ref()
        .map(|number| 10_000 + (number % 20_000) as u16)
        .find(free)
        .unwrap()
}

/// A cluster with the aggregator's pod and the aggregator's input files.
pub struct Cluster {
    pub api: ApiServer,
    pub folder: Folder,
    pub namespace: String,
    pub settings: Value,
    /// Additional variables of the aggregator.
    pub env: BTreeMap<String, String>,
}

impl Cluster {
    pub fn new(nodes: &[&str]) -> Self {
        Self::within(ApiServer::start(), "sonobuoy", nodes)
    }

    pub fn within(api: ApiServer, namespace: &str, nodes: &[&str]) -> Self {
        let folder = Folder::new();
        std::fs::create_dir_all(folder.join("plugins.d")).unwrap();
        api.kubeconfig(folder.path());
        api.put(
            &format!("/api/v1/namespaces/{namespace}"),
            json!({"status": {"phase": "Active"}}),
        );
        for node in nodes {
            let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            api.put(&format!("/api/v1/nodes/{node}"), json!({"status": ready}));
        }
        let settings = json!({
            "Namespace": namespace, "Resources": [], "WorkerImage": "worker:1",
            "PluginSearchPath": [folder.join("plugins.d")],
            "Server": {"timeoutseconds": 600},
        });
        let mut cluster = Self {
            api,
            folder,
            namespace: namespace.into(),
            settings,
            env: BTreeMap::new(),
        };
        cluster.listens_at(own_address());
        cluster.own_pod(json!({"sonobuoy-component": "aggregator"}));
        cluster
    }

    /// Makes the aggregator listen on this address, on a free port.
    pub fn listens_at(&mut self, address: Ipv4Addr) {
        let address = std::net::TcpListener::bind((address, 0))
            .unwrap()
            .local_addr()
            .unwrap();
        let server = &mut self.settings["Server"];
        server["bindaddress"] = address.ip().to_string().into();
        server["bindport"] = address.port().into();
        server["advertiseaddress"] = address.to_string().into();
    }

    pub fn own_pod(&self, labels: Value) {
        self.api.put(
            &self.path("sonobuoy"),
            json!({"metadata": {"labels": labels}, "status": {"phase": "Running"}}),
        );
    }

    /// Gives the aggregator the workers' image, so that each worker gets a certificate.
    pub fn by_node(self) -> Self {
        let spec = json!({"containers": [{"name": "kube-sonobuoy", "image": "worker:1"}]});
        self.api
            .merge(&self.path("sonobuoy"), &json!({"spec": spec}));
        self
    }

    pub fn path(&self, pod: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{pod}", self.namespace)
    }

    /// Starts a controller that creates the pods of DaemonSets, one on each node.
    pub fn daemon_sets(self) -> Self {
        self.api.controller(daemon_set_controller);
        self
    }

    pub fn plugin(self, name: &str, driver: &str, more: &str) -> Self {
        let text = format!(
            "sonobuoy-config:\n  driver: {driver}\n  plugin-name: {name}\n{more}spec:\n  name: plugin\n  image: i\n"
        );
        self.folder.write(&format!("plugins.d/{name}.yaml"), text);
        self
    }

    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.settings[key] = value;
        self
    }

    pub fn start(&self, flags: &str) -> Aggregator {
        let settings = self.folder.write("config.json", self.settings.to_string());
        let log = self.folder.join("stderr");
        let mut aggregator = Sonobuoy::new(&format!("aggregator {flags}"));
        for (name, value) in &self.env {
            aggregator = aggregator.env(name, value);
        }
        let (mut command, held) = aggregator
            .arg("--kubeconfig")
            .arg(self.folder.join("kubeconfig"))
            .env("SONOBUOY_CONFIG", settings)
            .env("SONOBUOY_AGGREGATOR_DIR", self.folder.join("runs"))
            .command();
        let stderr = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Aggregator {
            child,
            log,
            _held: held,
        }
    }

    /// The pods of a plugin.
    pub fn pods(&self, plugin: &str) -> Vec<Value> {
        let list = self
            .api
            .list(&format!("/api/v1/namespaces/{}/pods", self.namespace));
        list.into_iter()
            .filter(|pod| pod["metadata"]["labels"]["sonobuoy-plugin"] == plugin)
            .collect()
    }

    /// The environment that a kubelet gives to the worker of a pod: values, and the content of
    /// secrets.
    pub fn environment(&self, pod: &Value) -> BTreeMap<String, String> {
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let worker = containers
            .iter()
            .find(|container| container["name"] == "sonobuoy-worker")
            .unwrap();
        let value = |entry: &Value| {
            let Some(of) = entry["valueFrom"]["secretKeyRef"].as_object() else {
                return entry["value"].as_str().map(ToOwned::to_owned);
            };
            let (secret, key) = (of["name"].as_str().unwrap(), of["key"].as_str().unwrap());
            let path = format!("/api/v1/namespaces/{}/secrets/{secret}", self.namespace);
            let secret = self.api.get(&path).unwrap();
            let plain = || secret["stringData"][key].as_str().map(ToOwned::to_owned);
            let coded = || {
                String::from_utf8(
                    BASE64_STANDARD
                        .decode(secret["data"][key].as_str()?)
                        .unwrap(),
                )
                .ok()
            };
            plain().or_else(coded)
        };
        let entries = worker["env"].as_array().unwrap().iter();
        entries
            .filter_map(|entry| Some((entry["name"].as_str()?.to_owned(), value(entry)?)))
            .collect()
    }

    /// Waits for the pods of a plugin; returns a peer with their workers' certificate.
    pub fn worker(&self, plugin: &str) -> Worker {
        let pod = self.pod_on(plugin, "global");
        let env = self.environment(&pod);
        Worker {
            peer: Peer::new(
                &env["AGGREGATOR_URL"],
                &env["CA_CERT"],
                Some((&env["CLIENT_CERT"], &env["CLIENT_KEY"])),
            ),
            plugin: plugin.into(),
            session: pod["metadata"]["labels"]["sonobuoy-run"]
                .as_str()
                .unwrap()
                .into(),
        }
    }

    /// Waits for the pod of a plugin on a node, or the only one.
    pub fn pod_on(&self, plugin: &str, node: &str) -> Value {
        let fits = |pod: &Value| node == "global" || pod["spec"]["nodeName"] == node;
        self.api.wait(|_| self.pods(plugin).iter().any(fits));
        self.pods(plugin).into_iter().find(fits).unwrap()
    }

    /// The client of a container's environment that has no certificate yet.
    pub fn asker(&self, pod: &Value, container: &str) -> Asker {
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let env = containers
            .iter()
            .find(|found| found["name"] == container)
            .unwrap()["env"]
            .clone();
        let value = |name: &str| {
            let entry = env
                .as_array()
                .unwrap()
                .iter()
                .find(|entry| entry["name"] == name);
            entry.unwrap_or_else(|| panic!("{name} is not in {env}"))["value"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let token = volumes
            .iter()
            .find_map(|volume| volume["projected"]["sources"][0].get("serviceAccountToken"));
        Asker {
            url: value("AGGREGATOR_URL"),
            authority: value("CA_CERT"),
            plugin: value("RESULT_TYPE"),
            audience: token.unwrap()["audience"].as_str().unwrap().into(),
            session: pod["metadata"]["labels"]["sonobuoy-run"]
                .as_str()
                .unwrap()
                .into(),
        }
    }

    /// Waits for the pod of a plugin on a node; returns a peer with a certificate for its worker.
    pub fn certified(&self, plugin: &str, node: &str) -> Worker {
        let pod = self.pod_on(plugin, node);
        let asker = self.asker(&pod, "sonobuoy-worker");
        let token = self.api.issue_token(
            &self.path(pod["metadata"]["name"].as_str().unwrap()),
            &asker.audience,
        );
        asker.worker(&token)
    }

    pub fn status(&self) -> Value {
        let pod = self.api.get(&self.path("sonobuoy")).unwrap();
        let text = pod["metadata"]["annotations"][STATUS]
            .as_str()
            .unwrap_or("null")
            .to_owned();
        serde_json::from_str(&text).unwrap()
    }

    pub fn wait_for_status(&self, ready: impl Fn(&Value) -> bool) {
        self.api.wait(|_| ready(&self.status()));
    }

    pub fn archive(&self) -> Archive {
        Archive::only_one_in(&self.folder.join("runs"))
    }

    pub fn error(&self, plugin: &str, node: &str) -> String {
        self.archive()
            .text(&format!("plugins/{plugin}/errors/{node}/error.json"))
    }
}

pub fn daemon_set_controller(api: &ApiServer, change: &Change) {
    let set = &change.object;
    let make = |node: &Value| {
        let (set_name, node) = (
            set["metadata"]["name"].as_str().unwrap(),
            node["metadata"]["name"].as_str().unwrap(),
        );
        let namespace = set["metadata"]["namespace"].as_str().unwrap();
        let mut spec = set["spec"]["template"]["spec"].clone();
        spec["nodeName"] = node.into();
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": set_name, "uid": set["metadata"]["uid"]}]);
        api.put(
            &format!("/api/v1/namespaces/{namespace}/pods/{set_name}-{node}"),
            json!({
                "metadata": {"labels": set["spec"]["template"]["metadata"]["labels"], "ownerReferences": owner},
                "spec": spec, "status": {"phase": "Running"},
            }),
        );
    };
    if change.kind == "ADDED" && change.path.contains("/daemonsets/") {
        api.list("/api/v1/nodes").iter().for_each(make);
    }
}

/// The aggregator's process; tests wait for its end.
pub struct Aggregator {
    pub child: Child,
    pub log: std::path::PathBuf,
    _held: Folder,
}

impl Aggregator {
    /// Its exit code and output.
    pub fn end(mut self) -> (i32, String) {
        let watchdog = Watchdog::over(&self.child);
        let status = self.child.wait().unwrap();
        let hung = watchdog.bit();
        let said = std::fs::read_to_string(&self.log).unwrap();
        assert!(!hung, "still running: {said}");
        assert!(!said.contains("this is a bug"), "{said}");
        (status.code().unwrap_or(-1), said)
    }

    pub fn ends_well(self) {
        let (code, said) = self.end();
        assert_eq!(code, 0, "{said}");
    }

    #[cfg(unix)]
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .unwrap();
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that requests a certificate.
pub struct Asker {
    pub url: String,
    pub authority: String,
    pub plugin: String,
    pub audience: String,
    pub session: String,
}

impl Asker {
    /// Requests a certificate with a key and a request of another implementation; the status code,
    /// the response, and the key.
    pub fn ask(&self, token: &str) -> (u16, String, String) {
        self.ask_as(&Peer::new(&self.url, &self.authority, None), token)
    }

    /// Requests it as this peer.
    pub fn ask_as(&self, peer: &Peer, token: &str) -> (u16, String, String) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let request = rcgen::CertificateParams::new(["another".to_owned()]).unwrap();
        let request = request.serialize_request(&key).unwrap().pem().unwrap();
        let answer = peer.say(format!(
            "POST /api/v1/certificate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
             authorization: Bearer {token}\r\n\r\n{request}",
            request.len()
        ));
        let code = answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        (code, answer, key.serialize_pem())
    }

    /// Requests a certificate; returns a peer with it.
    pub fn worker(&self, token: &str) -> Worker {
        let (code, answer, key) = self.ask(token);
        assert_eq!(code, 200, "{answer}");
        let certificate = &answer[answer.find("-----BEGIN").unwrap()..];
        Worker {
            peer: Peer::new(&self.url, &self.authority, Some((certificate, &key))),
            plugin: self.plugin.clone(),
            session: self.session.clone(),
        }
    }
}

pub struct Worker {
    pub peer: Peer,
    pub plugin: String,
    pub session: String,
}

impl Worker {
    /// Sends a result; returns the status code of the response.
    pub fn send(&self, node: &str) -> u16 {
        self.send_file(node, "r.txt", &format!("of {node}\n"))
    }

    /// Sends a result as a file of this name.
    pub fn send_file(&self, node: &str, name: &str, body: &str) -> u16 {
        let plugin = &self.plugin;
        let place = if node == "global" {
            format!("global/{plugin}")
        } else {
            format!("by-node/{node}/{plugin}")
        };
        let answer = self.peer.say(format!(
            "PUT /api/v1/results/{place} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: text/plain\r\ncontent-disposition: attachment; filename=\"{name}\"\r\n\r\n{body}",
            body.len()
        ));
        answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("no answer: {answer}"))
    }
}
