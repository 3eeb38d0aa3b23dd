//! Creates the objects of a run, in the order of their manifest.
//!
//! Ensures that nothing is created if a refusal is predictable: each object is first sent to the
//! server as a dry run. Objects of a namespace that does not exist yet can be tried only once it
//! does; until then the account's rules replace the dry run. The pods are tried next; everything
//! else in such a namespace is created before anything outside of it. Every error lists what was
//! created and how to remove it. Starts threads for dry runs, and joins them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use super::rights::UID_OF_NEW_OWNER;
use crate::remote::state;
use base::{Joined as _, logger, visible};
use kube::{
    self, Client, Discovery, Error, Object as _, Obstacle, Request, Resource, Rules, Selector,
};
use model::{names, remedies, status};

/// Kinds that grant permissions to an account.
const RIGHTS: [Resource; 4] = [
    Resource::CLUSTER_ROLE_BINDINGS,
    Resource::CLUSTER_ROLES,
    Resource::ROLE_BINDINGS,
    Resource::ROLES,
];
/// Time limit for retries of one creation while the server is unavailable.
const DEFAULTING_TIMEOUT: Duration = Duration::from_secs(30);
/// Dry runs at once: each needs a connection.
const MAX_DRY_RUNS: usize = 4;
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The end of remedies for an account without the rights to create a run.
const FEWER_RIGHTS: &str =
    "see `--aggregator-permissions`, `--rbac Disable` and `--existing-service-account`";

/// An object to create.
pub(super) struct NewObject<'a> {
    value: &'a Value,
    pub resource: Resource,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    name: &'a str,
}

/// Objects of a manifest; expands lists and skips empty documents.
pub(crate) fn from_yaml(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in yaml::parse_all(text)? {
        match &document {
            Value::Null => {}
            Value::Object(map) if map.is_empty() => {}
            Value::Object(_) if document["kind"] == "List" => {
                let items = document["items"]
                    .as_array()
                    .context("a List without items")?;
                objects.extend_from_slice(items);
            }
            Value::Object(_) => objects.push(document),
            other => bail!("document {} is not an object: {other}", objects.len() + 1),
        }
    }
    if objects.is_empty() {
        bail!("it contains no objects");
    }
    Ok(objects)
}

/// Namespace of the run in a manifest: that of its first namespaced object.
pub(crate) fn run_namespace(objects: &[Value]) -> Option<&str> {
    objects
        .iter()
        .map(kube::Object::namespace)
        .find(|name| !name.is_empty())
}

/// Whether a manifest contains this namespace.
pub(crate) fn makes_namespace(objects: &[Value], namespace: &str) -> bool {
    objects
        .iter()
        .any(|object| object["kind"] == "Namespace" && object.name() == namespace)
}

/// Checks all of `objects`, and creates them unless it is a dry run. Namespaced objects without a
/// namespace go to `namespace`.
pub(crate) fn apply(
    client: &Client,
    objects: &[Value],
    namespace: &str,
    is_dry: bool,
) -> Result<()> {
    let kinds = client
        .discover()
        .context("asking the cluster for its kinds of objects")?;
    let objects = resolve(&kinds, objects, namespace)?;
    let mut work = Creation {
        client,
        objects: &objects,
        made: Vec::new(),
        uids: BTreeMap::new(),
    };
    let coming = work.absent_namespaces()?;
    let is_alone = refuse_second_run(client, &objects, &coming)?;
    if is_dry {
        return stop_at(&work.refusals(&coming));
    }
    let cleared = is_alone.then_some(namespace);
    work.create(cleared, &coming)
        .map_err(|error| match work.made.is_empty() {
            true => error.context("nothing was created"),
            false => error.context(Leftovers(format!(
                "these objects were created and still exist: {}; remove them with `sonobuoy \
                 delete -n {namespace} --wait`",
                work.made.join(", ")
            ))),
        })
}

/// The sentence about what an incomplete creation has left behind.
#[derive(Debug)]
struct Leftovers(String);

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error of [`apply()`], for a caller that has removed what was created.
pub(crate) fn without_leftovers(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Leftovers>() {
        Some(_) => anyhow!(
            "{}",
            error.chain().skip(1).map(ToString::to_string).joined(": ")
        ),
        None => error,
    }
}

pub(super) fn resolve<'a>(
    kinds: &Discovery,
    objects: &'a [Value],
    home: &str,
) -> Result<Vec<NewObject<'a>>> {
    let resolved = objects
        .iter()
        .map(|object| resolve_object(kinds, object, home));
    resolved.collect()
}

fn resolve_object<'a>(kinds: &Discovery, value: &'a Value, home: &str) -> Result<NewObject<'a>> {
    let version = value["apiVersion"].text();
    let kind = value["kind"].text();
    let name = value.name();
    if version.is_empty() || kind.is_empty() || name.is_empty() {
        bail!(
            "an object has no apiVersion, kind or metadata.name: {}",
            visible::short(&value.to_string())
        );
    }
    let Some(discovered) = kinds.find(version, kind) else {
        match kinds.failures.iter().find(|(group, _)| group == version) {
            Some((_, why)) => bail!("{kind} `{name}`: `{version}` cannot be queried: {why}"),
            None => bail!(
                "{kind} `{name}`: the cluster has no `{kind}` in `{version}`; install what defines \
                 it, or correct the manifest"
            ),
        }
    };
    let resource = discovered.resource.clone();
    let namespace = match (resource.namespaced, value.namespace()) {
        (false, _) => "",
        (true, "") => home,
        (true, namespace) => namespace,
    };
    Ok(NewObject {
        value,
        resource,
        namespace: namespace.to_owned(),
        name,
    })
}

/// Rejects a second run in the namespace. Returns whether the objects are a run, and known to be
/// the only one, as in a namespace that is `coming`.
fn refuse_second_run(
    client: &Client,
    objects: &[NewObject<'_>],
    coming: &BTreeSet<&str>,
) -> Result<bool> {
    let aggregator = objects.iter().find(|object| {
        object.resource == Resource::PODS
            && object.value["metadata"]["labels"][names::LABEL_PART] == names::AGGREGATOR
    });
    let Some(NewObject { namespace, .. }) = aggregator else {
        return Ok(false);
    };
    if coming.contains(&**namespace) {
        return Ok(true);
    }
    let stands = match state::find(client, namespace) {
        Ok(None) => return Ok(true),
        // An account without permission to list may still create; the server decides.
        Err(error) if error.is_forbidden() => return Ok(false),
        Err(error) => return Err(error).context("looking for another run"),
        Ok(Some(pod)) => match state::RunState::of(&pod) {
            state::RunState::Told(run) if run.status == status::COMPLETE => "is complete",
            state::RunState::Told(run) if run.status == status::FAILED => "has failed",
            _ => "is not over",
        },
    };
    bail!(
        "there is a run in namespace `{namespace}` already, and it {stands}: fetch its results \
         with `sonobuoy retrieve -n {namespace}`, remove it with `sonobuoy delete -n {namespace} \
         --wait`, or use another namespace with `-n`"
    )
}

/// Refusals of the objects, found by dry runs.
pub(super) fn refusals(client: &Client, objects: &[NewObject<'_>]) -> Vec<Refused> {
    Creation {
        client,
        objects,
        made: Vec::new(),
        uids: BTreeMap::new(),
    }
    .refusals(&BTreeSet::new())
}

struct Creation<'a> {
    client: &'a Client,
    /// All objects of the manifest.
    objects: &'a [NewObject<'a>],
    /// Objects created so far.
    made: Vec<String>,
    /// The uid of each namespace among them, which may own others.
    uids: BTreeMap<String, Value>,
}

impl<'a> Creation<'a> {
    /// Refusals of the objects, found by dry runs; the rules of the account replace those in
    /// namespaces that are `coming`, which the server cannot judge yet.
    fn refusals(&self, coming: &BTreeSet<&str>) -> Vec<Refused> {
        let rules: BTreeMap<&str, Rules> = coming
            .iter()
            .map(|namespace| (*namespace, self.client.rules(namespace)))
            .collect();
        let mut examined_kinds = BTreeSet::new();
        let examined: Vec<_> = self
            .objects
            .iter()
            .filter(|object| match rules.get(&*object.namespace) {
                None => true,
                Some(rules) => {
                    !rules.allow("create", &object.resource)
                        && examined_kinds.insert((&object.resource, &object.namespace))
                }
            })
            .collect();
        let refusals = base::in_parallel("dry run", MAX_DRY_RUNS, &examined, |object| {
            if coming.contains(&*object.namespace) {
                self.missing_right(object)
            } else {
                self.refusal(object)
            }
        });
        refusals.into_iter().flatten().collect()
    }

    /// Creates all objects, after the permissions that earlier runs left in the namespace `cleared`
    /// are removed.
    fn create(&mut self, cleared: Option<&str>, coming: &BTreeSet<&str>) -> Result<()> {
        stop_at(&self.refusals(coming))?;
        cleared.map_or(Ok(()), |namespace| self.clear(namespace, coming))?;
        // First the missing namespaces and their accounts, which pods need in a dry run.
        let later = |object: &&NewObject<'_>| coming.contains(&*object.namespace);
        let (first, mut rest): (Vec<_>, Vec<_>) = self.objects.iter().partition(|object| {
            object.resource == Resource::NAMESPACES && coming.contains(object.name)
                || object.resource == Resource::SERVICE_ACCOUNTS && later(object)
        });
        first
            .into_iter()
            .try_for_each(|object| self.create_object(object))?;
        let is_late_pod = |object: &&NewObject<'_>| {
            coming.contains(&*object.namespace) && object.resource == Resource::PODS
        };
        let pods = rest.iter().copied().filter(is_late_pod);
        let refused: Vec<_> = pods.filter_map(|pod| self.refusal(pod)).collect();
        stop_at(&refused)?;
        // What may still be refused leaves nothing outside of its new namespace.
        rest.sort_by_key(|object| !later(object) || is_late_pod(object));
        // If the server requires it, a binding is created after its role.
        let mut postponed = Vec::new();
        for object in rest {
            match self.try_create_object(object) {
                Err(error) if error.is_not_found() && self.has_role_of(object) => {
                    postponed.push(object);
                }
                outcome => self.report(object, outcome)?,
            }
        }
        postponed
            .into_iter()
            .try_for_each(|object| self.create_object(object))
    }

    /// Removes permissions that earlier runs granted to accounts of this namespace, which this run
    /// would inherit.
    fn clear(&self, home: &str, coming: &BTreeSet<&str>) -> Result<()> {
        let selector = Selector::labels(format!("{},namespace={home}", names::SELECTOR));
        // A new namespace is empty.
        let kinds = if coming.contains(home) {
            2
        } else {
            RIGHTS.len()
        };
        for (resource, namespace) in RIGHTS.iter().zip(["", "", home, home]).take(kinds) {
            let remaining = match self.client.list(resource, namespace, &selector) {
                Ok(remaining) => remaining,
                // An account without this permission may still run plugins in its namespace.
                Err(error) if error.is_forbidden() => continue,
                Err(error) => return Err(error).context("looking for the rights of earlier runs"),
            };
            if !remaining.is_empty() {
                let names = remaining.iter().map(kube::Object::name).joined(", ");
                let what = format!("{} of an earlier run: {names}", resource.plural);
                log::info!("removing {what}");
                self.client
                    .send(&Request::delete_collection(resource, namespace, &selector))
                    .with_context(|| format!("removing {what}"))?;
            }
        }
        Ok(())
    }

    /// Whether the role or binding of this name does not belong to a run in this namespace, whose
    /// leftovers [`Creation::clear`] removes.
    fn is_foreign(&self, object: &NewObject<'_>) -> bool {
        let labels = |value: &Value| {
            [names::LABEL_ALL, "namespace"].map(|label| value["metadata"]["labels"][label].clone())
        };
        let existing = self
            .client
            .get(&object.resource, "", object.name)
            .unwrap_or_default();
        RIGHTS.contains(&object.resource)
            && (labels(&existing) != labels(object.value)
                || labels(&existing)[0] != names::SONOBUOY)
    }

    /// Namespaces of the manifest that do not exist yet. Fails for a terminating namespace, or a
    /// missing one that the manifest does not contain.
    fn absent_namespaces(&self) -> Result<BTreeSet<&'a str>> {
        let objects = self.objects;
        let mut absent = BTreeSet::new();
        let used: BTreeSet<&str> = objects
            .iter()
            .filter(|object| object.resource.namespaced)
            .map(|object| &*object.namespace)
            .collect();
        for namespace in used {
            match self.client.find(&Resource::NAMESPACES, "", namespace) {
                Ok(Some(found)) if found.is_terminating() => {
                    bail!(being_deleted(namespace, &found))
                }
                Ok(None) if self.makes(&Resource::NAMESPACES, "", namespace) => {
                    absent.insert(namespace);
                }
                Ok(None) => bail!(
                    "there is no namespace `{namespace}`, and this manifest does not create it: \
                     create it with `kubectl create namespace {namespace}`"
                ),
                Err(error) if !error.is_forbidden() => {
                    return Err(error)
                        .with_context(|| format!("looking for namespace `{namespace}`"));
                }
                _ => {}
            }
        }
        Ok(absent)
    }

    /// Refusal of a creation, if the server rejects it.
    fn refusal(&self, object: &NewObject<'_>) -> Option<Refused> {
        let attempt = |value: &Value| {
            self.client
                .send(&Request::create(&object.resource, &object.namespace, value).dry_run())
        };
        let mut outcome = attempt(object.value);
        if let Some(without) = self.with_default_account(object)
            && matches!(&outcome, Err(Error::Api(refusal)) if refusal.message.contains("service account"))
        {
            outcome = attempt(&without);
        }
        match outcome {
            Ok(_) => None,
            Err(error)
                if error.already_exists()
                    && !object.resource.namespaced
                    && !self.is_foreign(object) =>
            {
                None
            }
            Err(error) if error.is_not_found() && self.has_role_of(object) => None,
            Err(Error::Api(refusal)) if refusal.message.contains("does not support dry run") => {
                log::debug!(
                    "{} cannot be tried: {}",
                    object.described(),
                    refusal.message
                );
                None
            }
            Err(error) => Some(object.refused(&error)),
        }
    }

    /// Missing permission to create an object whose namespace does not exist yet.
    fn missing_right(&self, object: &NewObject<'_>) -> Option<Refused> {
        let NewObject {
            resource,
            namespace,
            ..
        } = object;
        match self.client.allowed("create", resource, namespace) {
            Ok(false) => Some(Refused {
                why: format!(
                    "your account may not create {} in namespace `{namespace}`",
                    resource.plural
                ),
                lacks_right: Some(resource.plural.to_string()),
                remedy: Some("ask for that right, or see `--aggregator-permissions`".into()),
                ..Refused::default()
            }),
            Ok(true) => None,
            Err(error) => {
                log::debug!("{}: {error}", resource.plural);
                None
            }
        }
    }

    /// Whether the objects include this one.
    fn makes(&self, resource: &Resource, namespace: &str, name: &str) -> bool {
        self.objects.iter().any(|object| {
            object.resource == *resource && object.namespace == namespace && object.name == name
        })
    }

    /// Whether the role that a binding names is one of the objects.
    fn has_role_of(&self, object: &NewObject<'_>) -> bool {
        let role = &object.value["roleRef"];
        self.objects
            .iter()
            .any(|other| role["kind"] == *other.resource.kind && role["name"] == other.name)
    }

    /// A copy of a pod whose account is one of the objects, with the namespace's default account
    /// instead.
    fn with_default_account(&self, object: &NewObject<'_>) -> Option<Value> {
        let account = object.value["spec"]["serviceAccountName"].as_str()?;
        if !self.makes(&Resource::SERVICE_ACCOUNTS, &object.namespace, account) {
            return None;
        }
        let mut without = object.value.clone();
        without["spec"]["serviceAccountName"] = "default".into();
        Some(without)
    }

    fn create_object(&mut self, object: &NewObject<'_>) -> Result<()> {
        let outcome = self.try_create_object(object);
        self.report(object, outcome)
    }

    /// Creates an object, and returns it unless it exists. Retries while the server is unavailable:
    /// an object found after an attempt without response is that attempt's, since none existed
    /// before.
    fn try_create_object(&self, object: &NewObject<'_>) -> Result<Option<Value>, Error> {
        let end = Instant::now() + DEFAULTING_TIMEOUT;
        let mut unsure = false;
        let (resource, namespace) = (&object.resource, &object.namespace);
        let value = self.with_owner(object.value);
        loop {
            match self.client.create(resource, namespace, &value) {
                Ok(created) => return Ok(Some(created)),
                Err(error) if error.already_exists() && unsure => {
                    return self.client.get(resource, namespace, object.name).map(Some);
                }
                Err(error)
                    if error.already_exists()
                        && !object.resource.namespaced
                        && !RIGHTS.contains(&object.resource) =>
                {
                    return Ok(None);
                }
                Err(error) if error.is_passing() && Instant::now() < end => {
                    unsure |= !error.is_unsent();
                    log::warn!("{error}; trying again");
                    if self.client.stop().wait(POLL_INTERVAL) {
                        return Err(Error::Stopped);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The object with the uid of its owner, if that is among those created.
    fn with_owner<'v>(&self, value: &'v Value) -> Cow<'v, Value> {
        let owner = &value["metadata"]["ownerReferences"][0];
        let uid = self.uids.get(owner["name"].text());
        match uid.filter(|_| owner["uid"] == UID_OF_NEW_OWNER) {
            None => Cow::Borrowed(value),
            Some(uid) => {
                let mut value = value.clone();
                value["metadata"]["ownerReferences"][0]["uid"] = uid.clone();
                Cow::Owned(value)
            }
        }
    }

    fn report(
        &mut self,
        object: &NewObject<'_>,
        outcome: Result<Option<Value>, Error>,
    ) -> Result<()> {
        let (name, namespace, resource) =
            (object.name, &*object.namespace, &*object.resource.plural);
        let created = outcome.map_err(|error| anyhow!("{}", object.refused(&error)))?;
        let words = match created {
            Some(_) => "create request issued",
            None => "object already exists",
        };
        log::log!(logger::detail(), name = name, namespace = namespace, resource = resource; "{words}");
        if let Some(created) = created {
            self.made.push(object.described());
            if object.resource == Resource::NAMESPACES {
                let uid = created["metadata"]["uid"].clone();
                self.uids.insert(name.to_owned(), uid);
            }
        }
        Ok(())
    }
}

impl NewObject<'_> {
    fn described(&self) -> String {
        format!("{} `{}`", self.resource.kind, self.name)
    }

    fn refused(&self, error: &Error) -> Refused {
        let why = match error {
            Error::Api(refusal) if !refusal.message.is_empty() => refusal.message.clone(),
            _ => error.to_string(),
        };
        let remedy = match error.already_exists() && !self.resource.namespaced {
            true => Some(format!(
                "it is not of a run in this namespace; unless something else needs it, remove it \
                 with `kubectl delete {} {}`",
                self.resource.kind.to_lowercase(),
                self.name
            )),
            false => remedy(error, &self.resource, &self.namespace),
        };
        let lacks_right = error
            .lacks_right()
            .then(|| self.resource.plural.to_string());
        Refused {
            object: Some(self.described()),
            why,
            lacks_right,
            remedy,
        }
    }
}

/// Why an object cannot be created.
#[derive(Default)]
pub(crate) struct Refused {
    /// Kind and name, if the refusal is about one object.
    pub object: Option<String>,
    /// Message of the server, or the missing prerequisite.
    pub why: String,
    /// Resource that the account may not create, if that is the reason.
    pub lacks_right: Option<String>,
    /// Suggested remedy.
    pub remedy: Option<String>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        let remedy = self
            .remedy
            .iter()
            .flat_map(|remedy| ["; ", remedy])
            .collect::<String>();
        write!(f, "{}{remedy}", self.why)
    }
}

fn stop_at(refused: &[Refused]) -> Result<()> {
    let lacking: BTreeSet<&str> = refused
        .iter()
        .filter_map(|one| one.lacks_right.as_deref())
        .collect();
    if lacking.len() > 1 {
        refused
            .iter()
            .filter(|one| one.lacks_right.is_none())
            .for_each(|why| log::error!("{why}"));
        bail!(
            "your account may not create {}: ask for these rights, or {FEWER_RIGHTS}",
            lacking.into_iter().joined(", ")
        );
    }
    match refused {
        [] => Ok(()),
        [only] => bail!("{only}"),
        [others @ .., last] => {
            others.iter().for_each(|why| log::error!("{why}"));
            bail!(
                "the cluster refuses {} objects; the last is {last}",
                refused.len()
            )
        }
    }
}

/// What delays the deletion of a namespace, from its conditions.
pub(super) fn delays(namespace: &Value) -> Vec<&str> {
    namespace["status"]["conditions"]
        .items()
        .filter(|condition| condition["status"] == "True")
        .filter_map(|condition| condition["message"].as_str())
        .collect()
}

/// The message about a terminating namespace; `found` is the object, if it is known.
pub(super) fn being_deleted(namespace: &str, found: &Value) -> String {
    let delays = delays(found).join(", ");
    let delays = if delays.is_empty() {
        String::new()
    } else {
        format!(" ({delays})")
    };
    format!(
        "namespace `{namespace}` is being deleted{delays}: wait with `sonobuoy delete -n \
         {namespace} --wait`, then try again"
    )
}

/// Remedy for a refusal, if known.
pub(crate) fn remedy(error: &Error, resource: &Resource, namespace: &str) -> Option<String> {
    let Error::Api(refusal) = error else {
        return None;
    };
    let text = match error.obstacle() {
        Some(Obstacle::PodSecurity) => {
            "the Pod Security level of namespace `NAMESPACE` forbids it: label the namespace \
             `pod-security.kubernetes.io/enforce=privileged` or use another with `-n`"
        }
        Some(Obstacle::Quota) => {
            "raise the quota of namespace `NAMESPACE`, or use another namespace with `-n`"
        }
        Some(Obstacle::LimitRange) => {
            "the limit range of namespace `NAMESPACE` forbids it: change that, use another \
             namespace with `-n`, or leave requests and limits to it with `--harden off`"
        }
        Some(Obstacle::WebhookAway) => {
            "the webhook does not answer: repair it, or take this namespace out of its \
             configuration"
        }
        Some(Obstacle::Policy) => {
            "a policy of the cluster forbids it: ask its owners for an exception for this namespace"
        }
        Some(Obstacle::NamespaceEnds) => return Some(being_deleted(namespace, &Value::Null)),
        Some(Obstacle::Escalation) => {
            "your account may only pass on rights that it has: choose fewer with \
             `--aggregator-permissions`, or ask an administrator to create an account, and name it \
             with `--rbac Disable --existing-service-account --service-account-name`"
        }
        None => match refusal.code {
            403 if error.lacks_right() => {
                let within = if resource.namespaced {
                    format!(" in namespace `{namespace}`")
                } else {
                    String::new()
                };
                let kinds = &resource.plural;
                return Some(format!(
                    "your account may not create {kinds}{within}: ask for that right, or \
                     {FEWER_RIGHTS}"
                ));
            }
            403 => remedies::remedy(&refusal.message)?,
            409 if error.already_exists() => {
                "it exists already, from an earlier run or somebody else: remove it with `sonobuoy \
                 delete -n NAMESPACE --wait`, or use another namespace with `-n`"
            }
            404 if resource.namespaced => {
                "namespace `NAMESPACE` may not exist: create it with `kubectl create namespace \
                 NAMESPACE`"
            }
            400 | 422 => "the manifest is at fault: correct the field that the server names",
            429 => "the server is overloaded: try again later",
            _ => return None,
        },
    };
    Some(text.replace("NAMESPACE", namespace))
}

#[cfg(test)]
mod tests {
    use base::json::json;
    use base::stop::Stop;
    use fake_api_server::{ApiServer, Fault};
    use kube::Config;

    use super::*;

    /// What a run consists of, as far as the order of its creation matters.
    fn small_run() -> Vec<Value> {
        let namespaced = |kind: &str, version: &str, more: Value| {
            let mut object = json!({"kind": kind, "apiVersion": version, "metadata": {"name": "x", "namespace": "new"}});
            for (key, value) in more.as_object().unwrap() {
                object[key] = value.clone();
            }
            object
        };
        vec![
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "new"}}),
            json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "x"}}),
            namespaced("Pod", "v1", json!({})),
            namespaced("ConfigMap", "v1", json!({"data": {}})),
        ]
    }

    fn apply_to(api: &ApiServer, objects: &[Value]) -> Result<()> {
        let client = Client::new("test/1", Config::plain(api.url()), &Stop::new()).unwrap();
        apply(&client, objects, "new", false)
    }

    #[test]
    fn refusal_in_a_new_namespace_leaves_nothing_outside_of_it() {
        for refused in ["configmaps", "pods"] {
            let api = ApiServer::start();
            let path = format!("POST /api/v1/namespaces/new/{refused}");
            api.fault(Fault::on(&path).status(422, "Invalid", "too long"));
            let error = apply_to(&api, &small_run()).unwrap_err();
            assert!(format!("{error:#}").contains("too long"), "{error:#}");
            assert!(api.get("/api/v1/namespaces/new").is_some());
            let roles = api.list("/apis/rbac.authorization.k8s.io/v1/clusterroles");
            assert!(roles.iter().all(|role| role.name() != "x"), "{refused}");
        }
    }

    #[test]
    fn new_namespace_costs_few_requests() {
        let api = ApiServer::start();
        apply_to(&api, &small_run()).unwrap();
        for (request, count) in [
            (
                "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                0,
            ),
            (
                "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                1,
            ),
            ("POST /api/v1/namespaces/new/pods?dryRun", 1),
            ("POST /api/v1/namespaces/new/configmaps", 1),
            ("GET /api/v1/namespaces/new/pods", 0),
        ] {
            assert_eq!(api.count(request), count, "{request}");
        }
    }

    #[test]
    fn rights_are_reviewed_where_rules_say_too_little() {
        let api = ApiServer::start();
        api.forbid("create", "configmaps");
        let error = apply_to(&api, &small_run()).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.starts_with("nothing was created"), "{message}");
        assert!(message.contains("may not create configmaps"), "{message}");
        assert!(api.get("/api/v1/namespaces/new").is_none());
    }

    #[test]
    fn every_obstacle_has_a_remedy() {
        let check = |code: u16, reason: &str, message: &str, part: &str| {
            let body = base::json::json!({"kind": "Status", "reason": reason, "message": message});
            let error = Error::from_answer(code, None, body.to_string().as_bytes(), "POST /x");
            let found = remedy(&error, &Resource::PODS, "ns").unwrap_or_default();
            assert!(found.contains(part), "{message}: {found}");
        };
        check(
            403,
            "Forbidden",
            r#"pods "sonobuoy" is forbidden: violates PodSecurity "restricted:latest": x"#,
            "enforce=privileged",
        );
        check(
            403,
            "Forbidden",
            "pods is forbidden: exceeded quota: q",
            "raise the quota",
        );
        check(
            403,
            "Forbidden",
            "maximum memory usage per Container is 256Mi, but limit is 512Mi",
            "limit range",
        );
        check(
            500,
            "InternalError",
            "Internal error occurred: failed calling webhook \"w\"",
            "repair it",
        );
        check(
            403,
            "Forbidden",
            "admission webhook \"w\" denied the request: no",
            "policy of the cluster",
        );
        check(
            403,
            "Forbidden",
            "unable to create new content in namespace ns because it is being terminated",
            "wait",
        );
        check(
            403,
            "Forbidden",
            "user is attempting to grant RBAC permissions not currently held",
            "--existing-service-account",
        );
        check(
            403,
            "Forbidden",
            "User \"u\" cannot create resource \"pods\"",
            "may not create pods in namespace `ns`",
        );
        check(
            403,
            "Forbidden",
            "pods \"p\" is forbidden: pod rejected: RuntimeClass \"none\" not found",
            "`kubectl get runtimeclasses` lists them",
        );
        check(
            409,
            "AlreadyExists",
            "pods \"sonobuoy\" already exists",
            "sonobuoy delete -n ns",
        );
        check(
            422,
            "Invalid",
            "spec.containers: required",
            "the field that the server names",
        );
    }
}
