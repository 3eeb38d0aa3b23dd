//! Measures a real connection: an aggregator in a pod, and on some nodes a pod that connects to it
//! as a worker does.
//!
//! Owns the pods, and the findings from their output or their silence. A pod writes its
//! measurements to its termination message, which arrives even if the network drops everything.
//! Only the server in the pod starts threads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::Subject;
use super::finding::Check;
use super::trial_namespace::{TrialNamespace, pin};
use crate::deploy;
use base::json::json;
use base::stop::Stop;
use http::{Response, Server};
use kube::{Client, Error, Object as _, Resource};
use model::config::Grace;
use model::item::{self, Item};
use model::names::{self, env};
use run::backplane::{Authority, server_config};
use run::driver::{self, PodVerdict};

/// Time for pod start, image pull and result.
const POD_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline of the pods, in case they are not deleted.
const POD_SECONDS: u64 = 120;
const CONTAINER: &str = "echo";
/// Networks of workers: that of the pods, and that of the node, the default for a DaemonSet's pods.
const NETWORKS: [&str; 2] = ["pods", "node"];

/// Maximum size of a request.
const MAX_ECHO_BYTES: u64 = 1 << 20;

/// Measures from `nodes`. If no node accepts the aggregator, according to `placed`, it runs on the
/// first one.
pub(super) fn check(
    client: &Client,
    subject: &Subject<'_>,
    trial_namespace: &TrialNamespace,
    nodes: &[&str],
    placed: bool,
) -> Check {
    let mut check = Check::new("echo");
    if let Err(error) = (Echo {
        client,
        subject,
        trial_namespace,
    })
    .measure(nodes, placed, &mut check)
    {
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
    fn measure(&self, nodes: &[&str], placed: bool, check: &mut Check) -> Result<()> {
        let authority = Authority::new(Duration::from_secs(POD_SECONDS))?;
        let name = self.trial_namespace.account_name();
        let mut server = self.server(&name, &authority.to_pem());
        if !placed {
            pin(&mut server, nodes[0]);
        }
        if let Err((why, remedy)) = self.create(&server) {
            check.fail(
                format!("the aggregator does not start: {why}"),
                remedy.as_deref(),
            );
            return Ok(());
        }
        let address = match self
            .follow(&BTreeSet::from([name.clone()]), listens)?
            .remove(&name)
        {
            Some(Ok(address)) => address,
            why => bail!(
                "the aggregator does not start: {}",
                why.and_then(Result::err).unwrap_or_default()
            ),
        };
        let identity = authority.client("doctor")?;
        let env = json!([
            {"name": client::env::AGGREGATOR_URL, "value": format!("https://{}", SocketAddr::new(address, self.port()))},
            {"name": client::env::CA_CERT, "value": authority.certificate_pem()},
            {"name": client::env::CLIENT_CERT, "value": identity.cert_pem},
            {"name": client::env::CLIENT_KEY, "value": identity.key_pem},
        ]);
        // Node and network of each pod, by name.
        let (mut pods, mut found) = (BTreeMap::new(), Vec::new());
        let mut used: BTreeSet<bool> = self
            .subject
            .pods()
            .map(|pod| pod["spec"]["hostNetwork"] == true)
            .collect();
        if used.is_empty() {
            used.insert(false);
        }
        for network in used
            .into_iter()
            .map(|of_node| NETWORKS[usize::from(of_node)])
        {
            for (number, node) in nodes.iter().enumerate() {
                let name = format!("{name}-{}{number}", &network[..1]);
                let mut pod = self.worker(&name, network, &env);
                pin(&mut pod, node);
                match self.create(&pod) {
                    Ok(()) => drop(pods.insert(name, ((*node).to_owned(), network))),
                    Err((why, remedy)) => found.push(((*node).to_owned(), why, remedy)),
                }
            }
        }
        let mut failed_legs = BTreeSet::new();
        for (name, outcome) in self.follow(&pods.keys().cloned().collect(), findings_of)? {
            let Some((node, network)) = pods.remove(&name) else {
                continue;
            };
            let legs = match outcome {
                Ok(item) => item.items,
                Err(why) => {
                    found.push((node, why, None));
                    continue;
                }
            };
            let measured = check
                .measured
                .entry(node.clone())
                .or_insert_with(|| json!({}));
            for leg in legs {
                let text = |key: &str| {
                    leg.details
                        .get(key)
                        .and_then(Value::as_str)
                        .map(str::to_owned)
                };
                // From both networks, a leg of a node mostly fails for one cause.
                if leg.status == item::FAILED
                    && failed_legs.insert((node.clone(), leg.name.clone()))
                {
                    let why = text("error").unwrap_or_else(|| format!("{} failed", leg.name));
                    found.push((node.clone(), why, text(item::REMEDY)));
                }
                measured[network][leg.name] = json!(leg.details);
            }
        }
        check.add_all(("nodes", nodes.len()), found);
        let measured = &check.measured;
        check.seen = format!(
            "{} of {} nodes measured{}",
            measured.len(),
            nodes.len(),
            slowest(measured)
        );
        Ok(())
    }

    /// Creates a pod, or returns cause and remedy of the rejection, as for the run's own objects.
    fn create(&self, pod: &Value) -> Result<(), (String, Option<String>)> {
        self.client
            .create(&Resource::PODS, &self.trial_namespace.namespace, pod)
            .map(drop)
            .map_err(|error| {
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
        let aggregator_spec = &self.subject.aggregator().unwrap_or(&Value::Null)["spec"];
        for key in ["nodeSelector", "tolerations", "affinity"] {
            pod["spec"][key] = aggregator_spec[key].clone();
        }
        pod["spec"]["containers"][0]["resources"] =
            aggregator_spec["containers"][0]["resources"].clone();
        pod
    }

    fn port(&self) -> u16 {
        u16::try_from(self.subject.run.server.bind_port)
            .ok()
            .filter(|port| *port > 0)
            .unwrap_or(names::AGGREGATOR_PORT)
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
        pod["spec"]["hostNetwork"] = json!(network == NETWORKS[1]);
        pod["spec"]["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        pod
    }

    /// A pod with this container, the run's image and its settings.
    fn pod(&self, name: &str, mut container: Value) -> Value {
        let run = &self.subject.run;
        container["name"] = json!(CONTAINER);
        container["image"] = json!(run.worker_image);
        // A container that cannot start reports the cause nowhere else.
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        container["imagePullPolicy"] = json!(run.image_pull_policy);
        let mut pod =
            self.trial_namespace
                .pod(name, vec![container], run.security_context_mode != "none");
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
        let mut outcomes = BTreeMap::new();
        if names.is_empty() {
            return Ok(outcomes);
        }
        self.trial_namespace
            .watch(self.client, POD_TIMEOUT, |pod| {
                let name = pod.name();
                if names.contains(name)
                    && !outcomes.contains_key(name)
                    && let Some(outcome) = look(pod).map(Ok).or_else(|| pod_problem(pod).map(Err))
                {
                    outcomes.insert(name.to_owned(), outcome);
                }
                outcomes.len() < names.len()
            })?;
        let namespace = &self.trial_namespace.namespace;
        for name in names {
            outcomes.entry(name.clone()).or_insert_with(|| {
                let pod = json!({"metadata": {"name": name}});
                let why = match self.client.delay(namespace, &pod) {
                    Ok(Some(delay)) => format!(": {delay}"),
                    Ok(None) | Err(_) => String::new(),
                };
                Err(format!(
                    "its pod did not get ready within {} s{why}",
                    POD_TIMEOUT.as_secs()
                ))
            });
        }
        Ok(outcomes)
    }
}

/// Address on which an aggregator listens.
fn listens(pod: &Value) -> Option<IpAddr> {
    let running = pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
    pod["status"]["podIP"]
        .text()
        .parse()
        .ok()
        .filter(|_| running)
}

/// Measurements from a worker's termination message.
fn findings_of(pod: &Value) -> Option<Item> {
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    let value = base::json::from_slice(ended["message"].as_str()?.as_bytes()).ok()?;
    serde_json::from_value(value).ok()
}

/// Why a pod does not succeed. Judges the first attempt, without waiting for another.
fn pod_problem(pod: &Value) -> Option<String> {
    match driver::judge(pod, CONTAINER, None, SystemTime::now(), &Grace::default()) {
        PodVerdict::Fine => None,
        PodVerdict::Quiet(why, _)
        | PodVerdict::Trouble(why, _)
        | PodVerdict::Failed(why)
        | PodVerdict::Lost(why) => Some(why),
    }
}

/// The longest round trip and the smallest path MTU, for display.
fn slowest(measured: &BTreeMap<String, Value>) -> String {
    let legs = measured
        .values()
        .flat_map(|node| node.as_object().into_iter().flatten())
        .map(|(_, legs)| &legs["aggregator"]);
    let trip = legs
        .clone()
        .filter_map(|leg| leg["round_trip_ms"].as_f64())
        .reduce(f64::max);
    let mtu = legs
        .filter_map(|leg| leg["path_mtu"].as_f64())
        .reduce(f64::min);
    trip.map(|trip| format!(", round trip up to {trip:.1} ms"))
        .into_iter()
        .chain(mtu.map(|mtu| format!(", path MTU {mtu}")))
        .collect()
}

/// The aggregator of an echo, in a pod: serves with the run's TLS until `stop`; a response is as
/// long as its request.
pub(crate) fn serve(stop: &Stop) -> Result<()> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("`{name}` is not set"));
    let authority = Authority::from_pem(&variable(env::ECHO_AUTHORITY)?)?;
    let identity = authority.server(&variable(env::ADVERTISE_IP)?)?;
    let port = variable(env::ECHO_PORT)?;
    let server = Server::bind(&format!("0.0.0.0:{port}"))?.tls(server_config(
        &authority.certificate_pem(),
        &identity,
        false,
    )?);
    log::info!("answering at port {port}");
    server.run(stop, |request| match request.read(MAX_ECHO_BYTES) {
        Ok(bytes) => Response::bytes(200, "application/octet-stream", bytes),
        Err(response) => response,
    })
}
