//! Where things are tried: a namespace of our own, or the run's if it exists, and what is left there is taken away.
//!
//! Owns the promise that nothing stays behind, whatever happens and however it ends. Starts no thread.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::deploy::StandIn;
use crate::names::{self, DOCTOR, LABEL_ALL, LABEL_PART, SONOBUOY};
use base::json::json;
use base::kube::{Client, Error, Request, Resource, Selector};
use base::stop::Stop;

/// What clears up gets so long for a request.
const CLEARING_TIMEOUT: Duration = Duration::from_secs(10);
/// Kubernetes empties a namespace 5 seconds after it was told to.
const GONE_TIMEOUT: Duration = Duration::from_secs(10);
const GONE_INTERVAL: Duration = Duration::from_millis(500);

/// A namespace in which objects may be made.
pub(super) struct Place {
    /// Its name.
    pub namespace: String,
    /// What tells our objects from those of others.
    pub id: String,
    /// Whether the namespace is ours.
    own: bool,
    client: Client,
    cleared: bool,
}

impl Place {
    /// A namespace with `labels`, of its own.
    pub(super) fn new(client: &Client, id: &str, labels: &Value) -> Result<Self, Error> {
        let namespace = format!("{DOCTOR}-{id}");
        let mut labels = labels.clone();
        labels[LABEL_ALL] = json!(SONOBUOY);
        labels[LABEL_PART] = json!(DOCTOR);
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
        });
        // Cleared already where nothing comes about, else in any case.
        let mut place = Self::within(client, id, &namespace, true);
        if let Err(error) = client.create(&Resource::NAMESPACES, "", &object) {
            place.cleared = matches!(error, Error::Api(_)) && !error.is_passing();
            return Err(error);
        }
        place.account()?;
        Ok(place)
    }

    /// The namespace of the run, which exists.
    pub(super) fn existing(client: &Client, id: &str, namespace: &str) -> Result<Self, Error> {
        let mut place = Self::within(client, id, namespace, false);
        if let Err(error) = place.account() {
            place.cleared = matches!(error, Error::Api(_)) && !error.is_passing();
            return Err(error);
        }
        Ok(place)
    }

    fn within(client: &Client, id: &str, namespace: &str, own: bool) -> Self {
        // What ends everything else must not end this.
        let client = client.under(&Stop::new()).within(CLEARING_TIMEOUT);
        Self { namespace: namespace.to_owned(), id: id.to_owned(), own, client, cleared: false }
    }

    /// An account without any right, so that pods need not wait for the one that every namespace gets.
    fn account(&self) -> Result<(), Error> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(&self.account_name()),
            "automountServiceAccountToken": false,
        });
        self.client.create(&Resource::SERVICE_ACCOUNTS, &self.namespace, &account).map(drop)
    }

    /// The account's name.
    pub(super) fn account_name(&self) -> String {
        format!("{DOCTOR}-{}", self.id)
    }

    /// What every object here is known by.
    pub(super) fn metadata(&self, name: &str) -> Value {
        let labels = json!({LABEL_ALL: SONOBUOY, LABEL_PART: DOCTOR, DOCTOR: self.id});
        json!({"name": name, "namespace": self.namespace, "labels": labels})
    }

    /// Selects our pods.
    pub(super) fn selector(&self) -> Selector {
        Selector::labels(format!("{DOCTOR}={}", self.id))
    }

    /// What stands in for a run's namespace, if this one is ours.
    pub(super) fn stand_in<'a>(&'a self, account: &'a str) -> Option<StandIn<'a>> {
        self.own.then_some(StandIn { namespace: &self.namespace, account })
    }

    /// Takes everything away, and waits a little until it is gone.
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
        // Whoever may not look cannot wait.
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

/// The Pod Security level, and all else that is set by labels, of the namespace that a run makes or finds.
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
