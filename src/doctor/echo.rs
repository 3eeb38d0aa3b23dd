//! Measures a real connection: an aggregator in a pod, and on some nodes a pod that connects to it as a worker does.
//!
//! Owns the pods, and the findings from their output or their silence. A pod writes its measurements to its
//! termination message, which arrives even if the network drops everything. Starts a thread that ends the waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde_json::Value;

use super::Subject;
use super::finding::{Check, Severity};
use super::place::Place;
use crate::backplane::{Authority, Identity};
use crate::config::Grace;
use crate::deploy;
use crate::driver::{self, Verdict};
use crate::item::{self, Item};
use crate::names::{self, env};
use base::json::json;
use base::kube::{Client, Error, Event, Resource, Selector};
use base::stop::Stop;

/// Time for pod start, image pull and result.
const POD_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline of the pods, in case they are not deleted.
const POD_SECONDS: u64 = 120;
const CONTAINER: &str = "echo";
/// Plugin name in the certificates.
const PLUGIN: &str = "doctor";

/// Networks of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Network {
    /// Pod network.
    Pods,
    /// Network of the node, the default for a DaemonSet's pods.
    Node,
}

impl Network {
    fn from(self) -> &'static str {
        match self {
            Self::Pods => "from pods",
            Self::Node => "from the node's own network",
        }
    }
}

/// Node and network of each pod, by name.
type Pods = BTreeMap<String, (String, Network)>;

/// Measures from `nodes`. If no node accepts the aggregator, according to `placed`, it runs on the first one.
pub(super) fn check(
    client: &Client,
    subject: &Subject<'_>,
    place: &Place,
    nodes: &[String],
    placed: bool,
) -> Check {
    let mut check = Check::new("echo");
    let echo = Echo { client, subject, place };
    if let Err(error) = echo.measure(nodes, placed, &mut check) {
        check.add(Severity::Fails, format!("{error:#}"), None);
    }
    check
}

struct Echo<'a> {
    client: &'a Client,
    subject: &'a Subject<'a>,
    place: &'a Place,
}

impl Echo<'_> {
    fn measure(&self, nodes: &[String], placed: bool, check: &mut Check) -> Result<()> {
        let authority = Authority::new(Duration::from_secs(POD_SECONDS))?;
        let mut server = self.server(&authority.to_pem());
        if !placed {
            pin(&mut server, &nodes[0]);
        }
        let name = server["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let Err(error) = self.client.create(&Resource::PODS, &self.place.namespace, &server) {
            let (why, remedy) = self.refused(&error);
            check.add(Severity::Fails, format!("the aggregator does not start: {why}"), remedy.as_deref());
            return Ok(());
        }
        let address = match self.follow(&BTreeSet::from([name.clone()]), listens)?.remove(&name) {
            Some(Ok(address)) => address,
            Some(Err(why)) => {
                check.add(Severity::Fails, format!("the aggregator does not start: {why}"), None);
                return Ok(());
            }
            None => return Ok(()),
        };
        let identity = authority.client(PLUGIN)?;
        let mut pods = Pods::new();
        let mut refused = Vec::new();
        for network in self.networks() {
            for (number, node) in nodes.iter().enumerate() {
                let name = format!("{name}-{}{number}", if network == Network::Pods { 'p' } else { 'n' });
                let pod =
                    self.worker(&name, node, network, (&authority.certificate_pem(), &identity, &address));
                match self.client.create(&Resource::PODS, &self.place.namespace, &pod) {
                    Ok(_) => drop(pods.insert(name, (node.clone(), network))),
                    Err(error) => {
                        let (why, remedy) = self.refused(&error);
                        refused.push((node.clone(), why, remedy));
                    }
                }
            }
        }
        let outcomes = self.follow(&pods.keys().cloned().collect(), findings_of)?;
        check.add_all(Severity::Fails, ("nodes", nodes.len()), refused);
        report(check, &pods, outcomes, nodes.len());
        Ok(())
    }

    /// Cause and remedy of a rejected pod, as for the run's own objects.
    fn refused(&self, error: &Error) -> (String, Option<String>) {
        let why = match error {
            Error::Api(refusal) => refusal.message.clone(),
            other => other.to_string(),
        };
        (why, deploy::remedy(error, &Resource::PODS, self.subject.namespace))
    }

    /// Networks of the run's workers.
    fn networks(&self) -> BTreeSet<Network> {
        let mut networks: BTreeSet<_> = self
            .subject
            .pods()
            .map(|pod| if pod["spec"]["hostNetwork"] == true { Network::Node } else { Network::Pods })
            .collect();
        if networks.is_empty() {
            networks.insert(Network::Pods);
        }
        networks
    }

    /// A pod like the run's aggregator: same placement, image and limits.
    fn server(&self, authority: &str) -> Value {
        let own = json!({"fieldRef": {"fieldPath": "status.podIP"}});
        let mut pod = self.pod(&self.place.account_name());
        let spec = &mut pod["spec"];
        let given = self.subject.aggregator().map(|pod| &pod["spec"]);
        for field in ["nodeSelector", "tolerations", "affinity"] {
            if let Some(value) = given.map(|given| &given[field]).filter(|value| !value.is_null()) {
                spec[field] = value.clone();
            }
        }
        let container = &mut spec["containers"][0];
        if let Some(resources) =
            given.map(|given| &given["containers"][0]["resources"]).filter(|r| !r.is_null())
        {
            container["resources"] = resources.clone();
        }
        container["command"] = json!(["/sonobuoy", "aggregator", "--echo"]);
        container["env"] = json!([
            {"name": env::ADVERTISE_IP, "valueFrom": own},
            // Signs only this connection, and is discarded with the pods.
            {"name": env::ECHO_AUTHORITY, "value": authority},
            {"name": env::ECHO_PORT, "value": self.port().to_string()},
        ]);
        pod
    }

    fn port(&self) -> i64 {
        let port = self.subject.run.server.bind_port;
        if port > 0 { port } else { names::AGGREGATOR_PORT.into() }
    }

    fn worker(
        &self,
        name: &str,
        node: &str,
        network: Network,
        (authority, identity, address): (&str, &Identity, &str),
    ) -> Value {
        use client::env as var;
        let mut pod = self.pod(name);
        let spec = &mut pod["spec"];
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let container = &mut spec["containers"][0];
        container["command"] = json!(["/sonobuoy", "gather", "echo"]);
        container["env"] = [
            (var::AGGREGATOR_URL, format!("https://{host}:{}", self.port())),
            (var::CA_CERT, authority.to_owned()),
            (var::CLIENT_CERT, identity.cert_pem.clone()),
            (var::CLIENT_KEY, identity.key_pem.clone()),
            (var::NODE_NAME, node.to_owned()),
        ]
        .map(|(name, value)| json!({"name": name, "value": value}))
        .into_iter()
        .collect();
        // The API server's authority, without a service account.
        let account = "/var/run/secrets/kubernetes.io/serviceaccount";
        container["volumeMounts"] = json!([{"name": "cluster", "mountPath": account, "readOnly": true}]);
        let items = json!([{"key": "ca.crt", "path": "ca.crt"}]);
        spec["volumes"] = json!([{
            "name": "cluster", "configMap": {"name": "kube-root-ca.crt", "optional": true, "items": items},
        }]);
        if network == Network::Node {
            spec["hostNetwork"] = json!(true);
            spec["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        }
        pin(&mut pod, node);
        pod
    }

    /// Common fields of all pods, which pass the strictest level of Pod Security.
    fn pod(&self, name: &str) -> Value {
        let run = &self.subject.run;
        let mut spec = json!({
            "restartPolicy": "Never",
            "activeDeadlineSeconds": POD_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "serviceAccountName": self.place.account_name(),
            "containers": [{
                "name": CONTAINER, "image": run.worker_image,
                // A container that cannot start reports the cause nowhere else.
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }],
        });
        if !run.image_pull_policy.is_empty() {
            spec["containers"][0]["imagePullPolicy"] = json!(run.image_pull_policy);
        }
        if !run.image_pull_secrets.is_empty() {
            spec["imagePullSecrets"] = json!([{"name": run.image_pull_secrets}]);
        }
        if run.security_context_mode != "none" {
            spec["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 3000, "seccompProfile": {"type": "RuntimeDefault"}});
            spec["containers"][0]["securityContext"] =
                json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": self.place.metadata(name), "spec": spec})
    }

    /// Waits until `look` returns a value for each of these pods.
    fn follow<T>(
        &self,
        names: &BTreeSet<String>,
        look: fn(&Value) -> Option<T>,
    ) -> Result<BTreeMap<String, Result<T, String>>> {
        let mut found = BTreeMap::new();
        let mut last: BTreeMap<String, String> = BTreeMap::new();
        self.client.stop().within(POD_TIMEOUT, |over| {
            if !names.is_empty() {
                self.watch(names, look, over, &mut found, &mut last);
            }
        })?;
        if self.client.stop().stopped() {
            anyhow::bail!("interrupted");
        }
        for name in names.iter().filter(|name| !found.contains_key(*name)).cloned().collect::<Vec<_>>() {
            let said = self.events(&name).or_else(|| last.remove(&name));
            let why = said.map_or_else(String::new, |said| format!(": {said}"));
            let why = format!("its pod did not get ready within {} s{why}", POD_TIMEOUT.as_secs());
            found.insert(name, Err(why));
        }
        Ok(found)
    }

    fn watch<T>(
        &self,
        names: &BTreeSet<String>,
        look: fn(&Value) -> Option<T>,
        over: &Stop,
        found: &mut BTreeMap<String, Result<T, String>>,
        last: &mut BTreeMap<String, String>,
    ) {
        let narrow = self.client.under(over);
        for event in narrow.watch(&Resource::PODS, &self.place.namespace, &self.place.selector()) {
            let pod = match event {
                Ok(Event::Applied(pod)) => pod,
                Ok(_) => continue,
                Err(error) => {
                    log::debug!("{error}");
                    continue;
                }
            };
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if !names.contains(&name) || found.contains_key(&name) {
                continue;
            }
            if let Some(told) = look(&pod) {
                found.insert(name, Ok(told));
            } else if let Some(why) = hopeless(&pod) {
                found.insert(name, Err(why));
            } else if let Some(reason) =
                pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str()
            {
                last.insert(name, reason.to_owned());
            }
            if found.len() == names.len() {
                return;
            }
        }
    }

    /// Latest warning event of a pod.
    fn events(&self, pod: &str) -> Option<String> {
        let of = Selector::fields(format!("involvedObject.name={pod}"));
        let events = self.client.list(&Resource::EVENTS, &self.place.namespace, &of).ok()?;
        let warning = events.iter().rev().find(|event| event["type"] == "Warning")?;
        Some(format!("{}: {}", warning["reason"].as_str()?, warning["message"].as_str()?))
    }
}

/// Assigns a pod to a node, bypassing scheduler and taints.
pub(super) fn pin(pod: &mut Value, node: &str) {
    pod["spec"]["nodeName"] = json!(node);
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
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
        Verdict::Failed(why) => Some(why),
        _ => None,
    }
}

/// Problem in one part of the measurements.
struct Trouble {
    why: String,
    remedy: Option<String>,
    networks: BTreeSet<Network>,
}

/// Derives findings from the pods' outcomes.
fn report(check: &mut Check, pods: &Pods, outcomes: BTreeMap<String, Result<Item, String>>, total: usize) {
    let both = pods.values().map(|(_, network)| network).collect::<BTreeSet<_>>().len() > 1;
    // By node and part.
    let mut wrong: BTreeMap<(&str, &str), Trouble> = BTreeMap::new();
    let mut measured = BTreeSet::new();
    let outcomes = outcomes.into_iter().filter_map(|(name, outcome)| Some((pods.get(&name)?, outcome)));
    for ((node, network), outcome) in outcomes {
        let mut add = |part, why, remedy| {
            let networks = BTreeSet::new();
            wrong.entry((node, part)).or_insert(Trouble { why, remedy, networks }).networks.insert(*network);
        };
        let found = match outcome {
            Ok(found) => found,
            Err(why) => {
                add("pod", why, None);
                continue;
            }
        };
        measured.insert(node.clone());
        for leg in found.items {
            let part = LEGS.iter().find(|known| **known == leg.name).copied().unwrap_or("other");
            let text = |key: &str| leg.details.get(key).and_then(Value::as_str).map(str::to_owned);
            if leg.status == item::FAILED {
                add(part, text("error").unwrap_or_else(|| format!("{part} failed")), text(item::REMEDY));
            }
            let place = check.measured.entry(node.clone()).or_insert_with(|| json!({}));
            place[if *network == Network::Node { "node" } else { "pods" }][part] = json!(leg.details);
        }
    }
    let found = wrong.into_iter().map(|((node, _), Trouble { why, remedy, networks })| {
        let from = networks.first().filter(|_| both && networks.len() == 1);
        let from = from.map_or_else(String::new, |network| format!(" ({})", network.from()));
        (node.to_owned(), format!("{why}{from}"), remedy)
    });
    check.add_all(Severity::Fails, ("nodes", total), found);
    check.seen = format!("{} of {total} nodes measured{}", measured.len(), slowest(&check.measured));
}

/// Parts of the measurements.
const LEGS: [&str; 4] = ["dns", "api", "aggregator", "clock"];

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

/// A name that is unique in a cluster.
pub(super) fn new_id() -> String {
    crate::config::new_uuid().chars().filter(char::is_ascii_alphanumeric).take(8).collect()
}
