//! Measures a real connection: an aggregator in a pod, and on some nodes a pod that connects to it as a worker does.
//!
//! Owns the pods, and the findings from their output or their silence. A pod writes its measurements to its
//! termination message, which arrives even if the network drops everything. Only the server in the pod starts threads.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::Subject;
use super::finding::Check;
use super::trial_namespace::{TrialNamespace, pin};
use crate::backplane::{Authority, server_config};
use crate::config::Grace;
use crate::deploy;
use crate::driver::{self, PodVerdict};
use crate::item::{self, Item};
use crate::names::{self, env};
use base::http::{Response, Server};
use base::json::json;
use base::kube::{Client, Error, Object as _, Resource, Selector};
use base::stop::Stop;

/// Time for pod start, image pull and result.
const POD_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline of the pods, in case they are not deleted.
const POD_SECONDS: u64 = 120;
const CONTAINER: &str = "echo";
/// Plugin name in the certificates.
const PLUGIN: &str = "doctor";
/// Networks of workers: that of the pods, and that of the node, the default for a DaemonSet's pods.
const NETWORKS: [&str; 2] = ["pods", "node"];
/// Parts of the measurements.
const PARTS: [&str; 4] = ["dns", "api", "aggregator", "clock"];

/// Maximum size of a request.
const MAX_ECHO_BYTES: u64 = 1 << 20;

/// Node and network of each pod, by name.
type Pods = BTreeMap<String, (String, &'static str)>;

/// Measures from `nodes`. If no node accepts the aggregator, according to `placed`, it runs on the first one.
pub(super) fn check(
    client: &Client,
    subject: &Subject<'_>,
    trial_namespace: &TrialNamespace,
    nodes: &[String],
    placed: bool,
) -> Check {
    let mut check = Check::new("echo");
    if let Err(error) = (Echo { client, subject, trial_namespace }).measure(nodes, placed, &mut check) {
        check.fail(format!("{error:#}"), None);
    }
    check
}

struct Echo<'a> {
    client: &'a Client,
    subject: &'a Subject<'a>,
    trial_namespace: &'a TrialNamespace,
}

impl Echo<'_> {
    fn measure(&self, nodes: &[String], placed: bool, check: &mut Check) -> Result<()> {
        let authority = Authority::new(Duration::from_secs(POD_SECONDS))?;
        let name = self.trial_namespace.account_name();
        let mut server = self.server(&name, &authority.to_pem());
        if !placed {
            pin(&mut server, &nodes[0]);
        }
        if let Err((why, remedy)) = self.create(&server) {
            check.fail(format!("the aggregator does not start: {why}"), remedy.as_deref());
            return Ok(());
        }
        let address = match self.follow(&BTreeSet::from([name.clone()]), listens)?.remove(&name) {
            Some(Ok(address)) => address,
            why => bail!("the aggregator does not start: {}", why.and_then(Result::err).unwrap_or_default()),
        };
        let identity = authority.client(PLUGIN)?;
        let host = if address.contains(':') { format!("[{address}]") } else { address };
        let env = json!([
            {"name": client::env::AGGREGATOR_URL, "value": format!("https://{host}:{}", self.port())},
            {"name": client::env::CA_CERT, "value": authority.certificate_pem()},
            {"name": client::env::CLIENT_CERT, "value": identity.cert_pem},
            {"name": client::env::CLIENT_KEY, "value": identity.key_pem},
        ]);
        let (mut pods, mut refused) = (Pods::new(), Vec::new());
        let used: BTreeSet<bool> =
            self.subject.pods().map(|pod| pod["spec"]["hostNetwork"] == true).collect();
        for network in if used.is_empty() { BTreeSet::from([false]) } else { used } {
            let network = NETWORKS[usize::from(network)];
            for (number, node) in nodes.iter().enumerate() {
                let name = format!("{name}-{}{number}", &network[..1]);
                let mut pod = self.worker(&name, network, &env);
                pin(&mut pod, node);
                match self.create(&pod) {
                    Ok(()) => drop(pods.insert(name, (node.clone(), network))),
                    Err((why, remedy)) => refused.push((node.clone(), why, remedy)),
                }
            }
        }
        let outcomes = self.follow(&pods.keys().cloned().collect(), findings_of)?;
        check.add_all(("nodes", nodes.len()), refused);
        report(check, &pods, outcomes, nodes.len());
        Ok(())
    }

    /// Creates a pod, or returns cause and remedy of the rejection, as for the run's own objects.
    fn create(&self, pod: &Value) -> Result<(), (String, Option<String>)> {
        self.client.create(&Resource::PODS, &self.trial_namespace.namespace, pod).map(drop).map_err(|error| {
            let remedy = deploy::remedy(&error, &Resource::PODS, self.subject.namespace);
            let why = match error {
                Error::Api(refusal) => refusal.message,
                other => other.to_string(),
            };
            (why, remedy)
        })
    }

    /// A pod like the run's aggregator: same placement, image and limits.
    fn server(&self, name: &str, authority: &str) -> Value {
        let mut pod = self.pod(
            name,
            json!({
                "command": ["/sonobuoy", "aggregator", "--echo"],
                "env": [
                    {"name": env::ADVERTISE_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    // Signs only this connection, and is discarded with the pods.
                    {"name": env::ECHO_AUTHORITY, "value": authority},
                    {"name": env::ECHO_PORT, "value": self.port().to_string()},
                ],
            }),
        );
        if let Some(given) = self.subject.aggregator() {
            for key in ["nodeSelector", "tolerations", "affinity"] {
                if let Some(value) = given["spec"].get(key) {
                    pod["spec"][key] = value.clone();
                }
            }
            if let Some(resources) = given["spec"]["containers"][0].get("resources") {
                pod["spec"]["containers"][0]["resources"] = resources.clone();
            }
        }
        pod
    }

    fn port(&self) -> i64 {
        let port = self.subject.run.server.bind_port;
        if port > 0 { port } else { names::AGGREGATOR_PORT.into() }
    }

    fn worker(&self, name: &str, network: &str, env: &Value) -> Value {
        let mut pod = self.pod(name, json!({
            "command": ["/sonobuoy", "gather", "echo"],
            "env": env,
            "volumeMounts": [
                {"name": "cluster", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
            ],
        }));
        // The API server's authority, without a service account.
        let map = json!({
            "name": "kube-root-ca.crt", "optional": true, "items": [{"key": "ca.crt", "path": "ca.crt"}],
        });
        pod["spec"]["volumes"] = json!([{"name": "cluster", "configMap": map}]);
        if network == NETWORKS[1] {
            pod["spec"]["hostNetwork"] = json!(true);
            pod["spec"]["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        }
        pod
    }

    /// A pod with this container, the run's image and its settings.
    fn pod(&self, name: &str, mut container: Value) -> Value {
        let run = &self.subject.run;
        container["name"] = json!(CONTAINER);
        container["image"] = json!(run.worker_image);
        // A container that cannot start reports the cause nowhere else.
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        if !run.image_pull_policy.is_empty() {
            container["imagePullPolicy"] = json!(run.image_pull_policy);
        }
        let mut pod = self.trial_namespace.pod(name, vec![container], run.security_context_mode != "none");
        pod["spec"]["activeDeadlineSeconds"] = json!(POD_SECONDS);
        if !run.image_pull_secrets.is_empty() {
            pod["spec"]["imagePullSecrets"] = json!([{"name": run.image_pull_secrets}]);
        }
        pod
    }

    /// Waits until `look` returns a value for each of these pods.
    fn follow<T>(
        &self,
        names: &BTreeSet<String>,
        look: fn(&Value) -> Option<T>,
    ) -> Result<BTreeMap<String, Result<T, String>>> {
        let (mut found, mut last) = (BTreeMap::new(), BTreeMap::new());
        if names.is_empty() {
            return Ok(found);
        }
        self.trial_namespace.watch(self.client, POD_TIMEOUT, |pod| {
            let name = pod.name().to_owned();
            if names.contains(&name) && !found.contains_key(&name) {
                let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
                if let Some(outcome) = look(pod).map(Ok).or_else(|| hopeless(pod).map(Err)) {
                    found.insert(name, outcome);
                } else if let Some(reason) = waiting.as_str() {
                    last.insert(name, reason.to_owned());
                }
            }
            found.len() < names.len()
        })?;
        for name in names {
            found.entry(name.clone()).or_insert_with(|| {
                let said = self.warning(name).or_else(|| last.remove(name));
                let why = said.map(|said| format!(": {said}")).unwrap_or_default();
                Err(format!("its pod did not get ready within {} s{why}", POD_TIMEOUT.as_secs()))
            });
        }
        Ok(found)
    }

    /// Latest warning event of a pod.
    fn warning(&self, pod: &str) -> Option<String> {
        let of = Selector::fields(format!("involvedObject.name={pod}"));
        let events = self.client.list(&Resource::EVENTS, &self.trial_namespace.namespace, &of).ok()?;
        let warning = events.iter().rev().find(|event| event["type"] == "Warning")?;
        Some(format!("{}: {}", warning["reason"].as_str()?, warning["message"].as_str()?))
    }
}

/// Address on which an aggregator listens.
fn listens(pod: &Value) -> Option<String> {
    let running = pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
    pod["status"]["podIP"].as_str().filter(|address| running && !address.is_empty()).map(str::to_owned)
}

/// Measurements from a worker's termination message.
fn findings_of(pod: &Value) -> Option<Item> {
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    base::json::from_slice(ended["message"].as_str()?.as_bytes())
        .ok()
        .and_then(|value| serde_json::from_value(value).ok())
}

/// Why a pod cannot succeed. Judges the first attempt, without waiting for another.
fn hopeless(pod: &Value) -> Option<String> {
    let none = Duration::ZERO;
    let grace =
        Grace { unschedulable: none, image_pull: none, creation: none, terminated: none, ..Grace::default() };
    match driver::judge(pod, CONTAINER, SystemTime::now(), &grace) {
        PodVerdict::Failed(why) => Some(why),
        _ => None,
    }
}

/// Cause, remedy and networks of a problem with one part of a node's measurements.
type Problem = (String, Option<String>, BTreeSet<&'static str>);

/// Derives findings from the pods' outcomes.
fn report(check: &mut Check, pods: &Pods, outcomes: BTreeMap<String, Result<Item, String>>, total: usize) {
    let both = pods.values().map(|(_, network)| network).collect::<BTreeSet<_>>().len() > 1;
    let mut wrong: BTreeMap<(&str, &str), Problem> = BTreeMap::new();
    let mut measured = BTreeSet::new();
    for (name, outcome) in outcomes {
        let Some((node, network)) = pods.get(&name) else { continue };
        let mut add = |part, why, remedy| {
            wrong.entry((node, part)).or_insert((why, remedy, BTreeSet::new())).2.insert(network);
        };
        let legs = match outcome {
            Ok(found) => found.items,
            Err(why) => {
                add("pod", why, None);
                continue;
            }
        };
        measured.insert(node);
        for leg in legs {
            let part = PARTS.into_iter().find(|part| *part == leg.name).unwrap_or("other");
            let text = |key: &str| leg.details.get(key).and_then(Value::as_str).map(str::to_owned);
            if leg.status == item::FAILED {
                add(part, text("error").unwrap_or_else(|| format!("{part} failed")), text(item::REMEDY));
            }
            let of_node = check.measured.entry(node.clone()).or_insert_with(|| json!({}));
            of_node[network][part] = json!(leg.details);
        }
    }
    let found = wrong.into_iter().map(|((node, _), (why, remedy, networks))| {
        let from = match networks.first() {
            Some(&"pods") if both && networks.len() == 1 => " (from pods)",
            Some(_) if both && networks.len() == 1 => " (from the node's own network)",
            _ => "",
        };
        (node.to_owned(), why + from, remedy)
    });
    check.add_all(("nodes", total), found);
    check.seen = format!("{} of {total} nodes measured{}", measured.len(), slowest(&check.measured));
}

/// The longest round trip and the smallest path MTU, for display.
fn slowest(measured: &BTreeMap<String, Value>) -> String {
    let of = |key: &str| {
        let legs = measured.values().flat_map(|node| node.as_object().into_iter().flatten());
        legs.filter_map(|(_, legs)| legs["aggregator"][key].as_f64()).collect::<Vec<f64>>()
    };
    let trip = of("round_trip_ms").into_iter().reduce(f64::max);
    let mtu = of("path_mtu").into_iter().reduce(f64::min);
    let trip = trip.map_or_else(String::new, |trip| format!(", round trip up to {trip:.1} ms"));
    trip + &mtu.map_or_else(String::new, |mtu| format!(", path MTU {mtu}"))
}

/// The aggregator of an echo, in a pod: serves with the run's TLS until `stop`; a response is as long as its request.
pub(crate) fn serve(stop: &Stop) -> Result<()> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("`{name}` is not set"));
    let authority = Authority::from_pem(&variable(env::ECHO_AUTHORITY)?)?;
    let own = authority.server(&variable(env::ADVERTISE_IP)?)?;
    let port = variable(env::ECHO_PORT)?;
    let server = Server::bind(&format!("0.0.0.0:{port}"))?.tls(server_config(
        &authority.certificate_pem(),
        &own,
        false,
    )?);
    log::info!("answering at port {port}");
    server.run(stop, |request| {
        let mut bytes = Vec::new();
        match request.body().take(MAX_ECHO_BYTES).read_to_end(&mut bytes) {
            Ok(_) => Response::bytes(200, "application/octet-stream", bytes),
            Err(error) => Response::text(400, error),
        }
    })
}
