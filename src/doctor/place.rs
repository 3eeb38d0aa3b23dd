//! A namespace for trial objects: a temporary one, or the run's if it exists; all objects are deleted afterwards.
//!
//! Ensures the cleanup on every path, errors and stops included. Starts no thread.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::deploy::StandIn;
use crate::names::{self, DOCTOR, LABEL_ALL, LABEL_PART, SONOBUOY};
use base::json::json;
use base::kube::{Client, Error, Request, Resource, Selector};
use base::stop::Stop;

/// Time limit of a request during cleanup.
const CLEARING_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a namespace to disappear; Kubernetes empties it 5 seconds after the deletion.
const GONE_TIMEOUT: Duration = Duration::from_secs(10);
const GONE_INTERVAL: Duration = Duration::from_millis(500);

/// A namespace for trial objects.
pub(super) struct Place {
    /// Name of the namespace.
    pub namespace: String,
    /// Label value of the trial objects.
    pub id: String,
    /// Whether the namespace is temporary.
    own: bool,
    client: Client,
    cleared: bool,
}

impl Place {
    /// Creates a temporary namespace with `labels`.
    pub(super) fn new(client: &Client, id: &str, labels: &Value) -> Result<Self, Error> {
        let namespace = format!("{DOCTOR}-{id}");
        let mut labels = labels.clone();
        labels[LABEL_ALL] = json!(SONOBUOY);
        labels[LABEL_PART] = json!(DOCTOR);
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
        });
        // Dropping the place deletes a namespace that may have been created.
        let mut place = Self::within(client, id, &namespace, true);
        if let Err(error) = client.create(&Resource::NAMESPACES, "", &object) {
            place.cleared = matches!(error, Error::Api(_)) && !error.is_passing();
            return Err(error);
        }
        place.account()?;
        Ok(place)
    }

    /// Uses the existing namespace of the run.
    pub(super) fn existing(client: &Client, id: &str, namespace: &str) -> Result<Self, Error> {
        let mut place = Self::within(client, id, namespace, false);
        if let Err(error) = place.account() {
            place.cleared = matches!(error, Error::Api(_)) && !error.is_passing();
            return Err(error);
        }
        Ok(place)
    }

    fn within(client: &Client, id: &str, namespace: &str, own: bool) -> Self {
        // The stop of the command must not stop the cleanup.
        let client = client.under(&Stop::new()).within(CLEARING_TIMEOUT);
        Self { namespace: namespace.to_owned(), id: id.to_owned(), own, client, cleared: false }
    }

    /// Creates an account without permissions, so that pods need not wait for the default one.
    fn account(&self) -> Result<(), Error> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(&self.account_name()),
            "automountServiceAccountToken": false,
        });
        self.client.create(&Resource::SERVICE_ACCOUNTS, &self.namespace, &account).map(drop)
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

    /// Selects the trial pods.
    pub(super) fn selector(&self) -> Selector {
        Selector::labels(format!("{DOCTOR}={}", self.id))
    }

    /// Replacement for the run's namespace, if this one is temporary.
    pub(super) fn stand_in<'a>(&'a self, account: &'a str) -> Option<StandIn<'a>> {
        self.own.then_some(StandIn { namespace: &self.namespace, account })
    }

    /// Deletes everything, and waits a little until it is gone.
    pub(super) fn clear(mut self) {
        self.remove();
        let end = Instant::now() + GONE_TIMEOUT;
        while !self.is_gone() {
            if Instant::now() > end {
                log::warn!("namespace `{}`: what was made there is still being removed", self.namespace);
                break;
            }
            self.client.stop().wait(GONE_INTERVAL);
        }
    }

    fn is_gone(&self) -> bool {
        if self.own {
            return self
                .client
                .get(&Resource::NAMESPACES, "", &self.namespace)
                .is_err_and(|error| error.is_not_found());
        }
        // Without permission to list, there is nothing to wait for.
        let pods = self.client.list(&Resource::PODS, &self.namespace, &self.selector());
        pods.map_or(true, |pods| pods.is_empty())
    }

    fn remove(&mut self) {
        if std::mem::replace(&mut self.cleared, true) {
            return;
        }
        let failed = |what: &str, outcome: Result<Value, Error>| match outcome {
            Err(error) if !error.is_not_found() => {
                log::error!("{what} cannot be removed, remove it by hand: {error}");
            }
            _ => {}
        };
        if self.own {
            let outcome = self.client.delete(&Resource::NAMESPACES, "", &self.namespace);
            return failed(&format!("namespace `{}`", self.namespace), outcome);
        }
        let request = Request::delete_collection(&Resource::PODS, &self.namespace, &self.selector());
        let what = format!("pods with the label `{DOCTOR}={}` in namespace `{}`", self.id, self.namespace);
        failed(&what, self.client.send(&request));
        let account = self.account_name();
        let outcome = self.client.delete(&Resource::SERVICE_ACCOUNTS, &self.namespace, &account);
        failed(&format!("account `{account}` in namespace `{}`", self.namespace), outcome);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Labels, including the Pod Security level, of the namespace that a run creates or finds.
pub(super) fn labels(namespace: Option<&Value>) -> Value {
    let labels = namespace.and_then(|namespace| namespace["metadata"]["labels"].as_object());
    let own = |key: &str| key != "kubernetes.io/metadata.name" && key != names::LABEL_PART;
    labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| own(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
