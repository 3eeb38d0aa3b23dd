//! A namespace for trial objects: a temporary one, or the run's if it exists; all objects are
//! deleted afterwards.
//!
//! Ensures the cleanup on every path, errors and stops included. Starts a thread that ends a watch.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::deploy::StandIn;
use base::json::json;
use base::stop::Stop;
use kube::{Client, Error, Event, Request, Resource, Selector};
use model::names::{DOCTOR, LABEL_ALL, LABEL_PART, SONOBUOY};

/// Time limit of a request during cleanup.
const CLEARING_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for pods to disappear; Kubernetes empties a namespace 5 seconds after its deletion.
const GONE_TIMEOUT: Duration = Duration::from_secs(10);
const GONE_INTERVAL: Duration = Duration::from_millis(500);

/// A namespace for trial objects.
pub(super) struct TrialNamespace {
    /// Name of the namespace.
    pub namespace: String,
    /// Label value of the trial objects.
    id: String,
    /// Whether the namespace is temporary.
    is_created: bool,
    client: Client,
    /// Whether the creation was refused, so that there is nothing to delete.
    refused: bool,
}

impl TrialNamespace {
    /// Uses an existing namespace, or creates a temporary one with `labels`.
    pub(super) fn create(
        client: &Client,
        existing: Option<&str>,
        labels: Value,
    ) -> Result<Self, Error> {
        let id = model::config::new_uuid()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(8)
            .collect();
        let is_created = existing.is_none();
        let namespace = existing.map_or_else(|| format!("{DOCTOR}-{id}"), str::to_owned);
        // Dropping the namespace deletes what may have been created, even after the stop of the
        // command.
        let client = client.under(&Stop::new()).within(CLEARING_TIMEOUT);
        let mut trial_namespace = Self {
            namespace,
            id,
            is_created,
            client,
            refused: false,
        };
        let created = if is_created {
            trial_namespace.create_namespace(labels)
        } else {
            trial_namespace.create_account()
        };
        if let Err(error) = created {
            trial_namespace.refused = matches!(error, Error::Api(_)) && !error.is_passing();
            return Err(error);
        }
        if is_created {
            trial_namespace.create_account()?;
        }
        Ok(trial_namespace)
    }

    fn create_namespace(&self, mut labels: Value) -> Result<Value, Error> {
        labels[LABEL_ALL] = json!(SONOBUOY);
        labels[LABEL_PART] = json!(DOCTOR);
        let metadata = json!({"name": self.namespace, "labels": labels});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        self.client.create(&Resource::NAMESPACES, "", &namespace)
    }

    /// Creates an account without permissions, so that pods need not wait for the default one.
    fn create_account(&self) -> Result<Value, Error> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(&self.account_name()),
            "automountServiceAccountToken": false,
        });
        self.client
            .create(&Resource::SERVICE_ACCOUNTS, &self.namespace, &account)
    }

    /// Name of the account.
    pub(super) fn account_name(&self) -> String {
        format!("{DOCTOR}-{}", self.id)
    }

    /// Metadata of a trial object.
    pub(super) fn metadata(&self, name: &str) -> Value {
        let labels = json!({LABEL_ALL: SONOBUOY, LABEL_PART: DOCTOR, DOCTOR: self.id});
        json!({"name": name, "namespace": self.namespace, "labels": labels})
    }

    /// A trial pod, which passes the strictest level of Pod Security if `is_restricted`.
    pub(super) fn pod(&self, name: &str, mut containers: Vec<Value>, is_restricted: bool) -> Value {
        let mut spec = json!({
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "serviceAccountName": self.account_name(),
        });
        if is_restricted {
            spec["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 3000, "seccompProfile": {"type": "RuntimeDefault"}});
            for container in &mut containers {
                container["securityContext"] =
                    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
            }
        }
        spec["containers"] = json!(containers);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(name), "spec": spec})
    }

    fn selector(&self) -> Selector {
        Selector::labels(format!("{DOCTOR}={}", self.id))
    }

    /// Watches the trial pods until `see` returns false, for at most `limit`.
    pub(super) fn watch(
        &self,
        client: &Client,
        limit: Duration,
        mut see: impl FnMut(&Value) -> bool,
    ) -> anyhow::Result<()> {
        client.stop().within(limit, |over| {
            for event in
                client
                    .under(over)
                    .watch(&Resource::PODS, &self.namespace, &self.selector())
            {
                match event {
                    Ok(Event::Applied(pod)) if !see(&pod) => break,
                    Err(error) => log::debug!("{error}"),
                    _ => {}
                }
            }
        })?;
        anyhow::ensure!(!client.stop().stopped(), "interrupted");
        Ok(())
    }

    /// Whether no trial pod is left. Without permission to list, there is nothing to wait for.
    fn is_empty(&self) -> bool {
        let pods = self
            .client
            .list(&Resource::PODS, &self.namespace, &self.selector());
        pods.map_or(true, |pods| pods.is_empty())
    }

    /// Replacement for the run's namespace, if this one is temporary.
    pub(super) fn stand_in(&self) -> Option<StandIn> {
        self.is_created.then(|| StandIn {
            namespace: self.namespace.clone(),
            account: self.account_name(),
        })
    }
}

impl Drop for TrialNamespace {
    /// Deletes everything, and waits a little until the pods are gone.
    fn drop(&mut self) {
        if self.refused {
            return;
        }
        let (client, namespace, account) = (&self.client, &self.namespace, self.account_name());
        let outcomes = if self.is_created {
            vec![(
                format!("namespace `{namespace}`"),
                client.delete(&Resource::NAMESPACES, "", namespace),
            )]
        } else {
            let pods = Request::delete_collection(&Resource::PODS, namespace, &self.selector());
            let what = format!(
                "pods with the label `{DOCTOR}={}` in namespace `{namespace}`",
                self.id
            );
            let removed = client.delete(&Resource::SERVICE_ACCOUNTS, namespace, &account);
            vec![
                (what, client.send(&pods).map(drop)),
                (
                    format!("account `{account}` in namespace `{namespace}`"),
                    removed,
                ),
            ]
        };
        let mut failed = false;
        for (what, outcome) in outcomes {
            if let Err(error) = outcome {
                log::error!("{what} cannot be removed, remove it by hand: {error}");
                failed = true;
            }
        }
        let end = Instant::now() + GONE_TIMEOUT;
        while !failed && !self.is_empty() {
            if Instant::now() > end {
                log::warn!("namespace `{namespace}`: what was made there is still being removed");
                break;
            }
            client.stop().wait(GONE_INTERVAL);
        }
    }
}

/// Labels, including the Pod Security level, of the namespace that a run creates or finds.
pub(super) fn labels(namespace: &Value) -> Value {
    let mut labels = namespace["metadata"]["labels"].clone();
    for key in ["kubernetes.io/metadata.name", LABEL_PART] {
        labels.as_object_mut().and_then(|labels| labels.remove(key));
    }
    labels
}

/// Assigns a pod to a node, bypassing scheduler and taints.
pub(super) fn pin(pod: &mut Value, node: &str) {
    pod["spec"]["nodeName"] = json!(node);
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
}
