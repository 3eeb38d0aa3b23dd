//! Requests to the API as plain values: built here, tested as text, sent by [`super::Client`].
//!
//! Owns paths and queries of the Kubernetes API. Does no I/O.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::time::Duration;

use serde_json::Value;
pub use ureq::http::Method;

use base::json::json;
use base::percent_encoded;
use base::visible::short;

/// A kind of object, as the API serves it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Cow<'static, str>,
    /// Such as `v1`.
    pub version: Cow<'static, str>,
    /// As in the path: `pods`.
    pub plural: Cow<'static, str>,
    /// As in a manifest: `Pod`.
    pub kind: Cow<'static, str>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

macro_rules! resources {
    ($($name:ident = $group:literal $version:literal $plural:literal $kind:literal $namespaced:literal;)*) => {
        $(
            #[doc = concat!("`", $plural, "` of `", $group, "/", $version, "`.")]
            pub const $name: Resource = Resource {
                group: Cow::Borrowed($group),
                version: Cow::Borrowed($version),
                plural: Cow::Borrowed($plural),
                kind: Cow::Borrowed($kind),
                namespaced: $namespaced,
            };
        )*
    };
}

impl Resource {
    resources! {
        PODS = "" "v1" "pods" "Pod" true;
        EVENTS = "" "v1" "events" "Event" true;
        VOLUME_CLAIMS = "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim" true;
        VOLUMES = "" "v1" "persistentvolumes" "PersistentVolume" false;
        NODES = "" "v1" "nodes" "Node" false;
        NAMESPACES = "" "v1" "namespaces" "Namespace" false;
        CONFIG_MAPS = "" "v1" "configmaps" "ConfigMap" true;
        SECRETS = "" "v1" "secrets" "Secret" true;
        SERVICES = "" "v1" "services" "Service" true;
        SERVICE_ACCOUNTS = "" "v1" "serviceaccounts" "ServiceAccount" true;
        RUNTIME_CLASSES = "node.k8s.io" "v1" "runtimeclasses" "RuntimeClass" false;
        DAEMON_SETS = "apps" "v1" "daemonsets" "DaemonSet" true;
        CLUSTER_ROLES = "rbac.authorization.k8s.io" "v1" "clusterroles" "ClusterRole" false;
        CLUSTER_ROLE_BINDINGS = "rbac.authorization.k8s.io" "v1" "clusterrolebindings" "ClusterRoleBinding" false;
        ROLES = "rbac.authorization.k8s.io" "v1" "roles" "Role" true;
        ROLE_BINDINGS = "rbac.authorization.k8s.io" "v1" "rolebindings" "RoleBinding" true;
        TOKEN_REVIEWS = "authentication.k8s.io" "v1" "tokenreviews" "TokenReview" false;
        RULES_REVIEWS = "authorization.k8s.io" "v1" "selfsubjectrulesreviews" "SelfSubjectRulesReview" false;
        ACCESS_REVIEWS = "authorization.k8s.io" "v1" "selfsubjectaccessreviews" "SelfSubjectAccessReview" false;
    }

    /// `v1` or `apps/v1`, as in a manifest.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// The path of the collection; an empty namespace means all namespaces.
    fn path(&self, namespace: &str) -> String {
        let scope = if self.namespaced && !namespace.is_empty() {
            format!("namespaces/{}/", segment(namespace))
        } else {
            String::new()
        };
        format!(
            "{}/{scope}{}",
            path_of(&self.group, &self.version),
            segment(&self.plural)
        )
    }
}

/// `v1` or `apps/v1`.
pub(super) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// `/api/v1` or `/apis/apps/v1`.
pub(super) fn path_of(group: &str, version: &str) -> String {
    let root = if group.is_empty() {
        "/api".to_owned()
    } else {
        format!("/apis/{}", segment(group))
    };
    format!("{root}/{}", segment(version))
}

/// Reads the fields of an object, none of which is certain to exist.
pub trait Object: Borrow<Value> {
    /// The text of a value; empty for anything else.
    fn text(&self) -> &str {
        self.borrow().as_str().unwrap_or_default()
    }

    /// The elements of a list; none for anything else.
    fn items(&self) -> std::slice::Iter<'_, Value> {
        self.borrow()
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter()
    }

    /// The name in an object's metadata.
    fn name(&self) -> &str {
        self.borrow()["metadata"]["name"].text()
    }

    /// The namespace in an object's metadata; empty for objects of the cluster.
    fn namespace(&self) -> &str {
        self.borrow()["metadata"]["namespace"].text()
    }

    /// Whether an object is being deleted.
    fn is_terminating(&self) -> bool {
        !self.borrow()["metadata"]["deletionTimestamp"].is_null()
    }

    /// The condition of this type in an object's status.
    fn condition(&self, kind: &str) -> Option<&Value> {
        self.borrow()["status"]["conditions"]
            .items()
            .find(|condition| condition["type"] == kind)
    }
}

impl Object for Value {}

/// Which objects of a collection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    /// Such as `app=x,tier!=y`.
    pub labels: String,
    /// Such as `spec.nodeName=n`.
    pub fields: String,
}

impl Selector {
    /// All objects.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those with these labels.
    pub fn labels(labels: impl Into<String>) -> Self {
        Self {
            labels: labels.into(),
            ..Self::default()
        }
    }

    /// Those with these fields.
    pub fn fields(fields: impl Into<String>) -> Self {
        Self {
            fields: fields.into(),
            ..Self::default()
        }
    }

    /// The one object with this name.
    pub fn name(name: &str) -> Self {
        Self::fields(format!("metadata.name={name}"))
    }
}

/// Names in lower case, and values.
pub(super) type Headers = Vec<(&'static str, String)>;

/// One request, complete except for the server's address and the credentials.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What it does.
    pub method: Method,
    /// Percent-encoded, below the server's address.
    pub path: String,
    /// Not yet encoded.
    pub query: Vec<(String, String)>,
    /// In addition to those of every request.
    pub headers: Headers,
    /// Sent unchanged.
    pub body: Option<Vec<u8>>,
}

impl Request {
    /// Any path of the API, already percent-encoded.
    pub fn raw(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
        }
    }

    /// Reads one object.
    pub fn get(resource: &Resource, namespace: &str, name: &str) -> Self {
        Self::raw(
            Method::GET,
            format!("{}/{}", resource.path(namespace), segment(name)),
        )
    }

    /// Lists a collection; an empty namespace means all of them.
    pub fn list(resource: &Resource, namespace: &str, selector: &Selector) -> Self {
        let mut request = Self::raw(Method::GET, resource.path(namespace));
        for (name, value) in [
            ("labelSelector", &selector.labels),
            ("fieldSelector", &selector.fields),
        ] {
            if !value.is_empty() {
                request = request.query(name, value.clone());
            }
        }
        request
    }

    /// Watches the collection that this lists, from a resource version onwards; the server ends it
    /// after `seconds`.
    pub fn watch(self, version: &str, seconds: u64) -> Self {
        self.query("watch", "true")
            .query("allowWatchBookmarks", "true")
            .query("resourceVersion", version)
            .query("timeoutSeconds", seconds.to_string())
    }

    /// Creates an object.
    pub fn create(resource: &Resource, namespace: &str, object: &Value) -> Self {
        Self::raw(Method::POST, resource.path(namespace)).json("application/json", object)
    }

    /// Removes an object; what it owns is removed in the background.
    pub fn delete(resource: &Resource, namespace: &str, name: &str) -> Self {
        Self {
            method: Method::DELETE,
            ..Self::get(resource, namespace, name)
        }
        .json("application/json", &delete_options())
    }

    /// Removes all selected objects.
    pub fn delete_collection(resource: &Resource, namespace: &str, selector: &Selector) -> Self {
        Self {
            method: Method::DELETE,
            ..Self::list(resource, namespace, selector)
        }
        .json("application/json", &delete_options())
    }

    /// Merges `patch` into an object (RFC 7386).
    pub fn merge_patch(resource: &Resource, namespace: &str, name: &str, patch: &Value) -> Self {
        Self {
            method: Method::PATCH,
            ..Self::get(resource, namespace, name)
        }
        .json("application/merge-patch+json", patch)
    }

    /// Merges `patch` into an object of Kubernetes' own kinds: a list whose elements have a key,
    /// such as the type of a condition, is merged element by element.
    pub fn strategic_patch(
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Self {
        Self {
            method: Method::PATCH,
            ..Self::get(resource, namespace, name)
        }
        .json("application/strategic-merge-patch+json", patch)
    }

    /// Addresses a subresource: `log`, `exec`, `status`.
    pub fn subresource(mut self, name: &str) -> Self {
        self.path.push('/');
        self.path.push_str(name);
        self
    }

    /// Adds a query parameter; it may be given more than once.
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The server checks everything, admission included, and stores nothing.
    pub fn dry_run(self) -> Self {
        if self.method == Method::DELETE {
            // A deletion has its options in its body, and then the server ignores the query.
            return self.delete_option("dryRun", json!(["All"]));
        }
        self.query("dryRun", "All")
    }

    /// Time for the containers of deleted pods to end, instead of their own. It also shortens the
    /// time of pods that are ending already, and never extends it.
    pub fn grace_period(self, period: Duration) -> Self {
        self.delete_option("gracePeriodSeconds", json!(period.as_secs()))
    }

    /// Deletes only the object with this uid, not another one that has taken its name.
    pub fn only_uid(self, uid: &Value) -> Self {
        self.delete_option("preconditions", json!({"uid": uid}))
    }

    /// Adds an option to the body of a deletion.
    fn delete_option(mut self, name: &str, value: Value) -> Self {
        let body = self.body.as_deref().unwrap_or_default();
        let mut options = serde_json::from_slice(body).unwrap_or_else(|_| delete_options());
        options[name] = value;
        self.body = Some(options.to_string().into_bytes());
        self
    }

    /// Whether sending it twice has the same effect as once.
    pub fn idempotent(&self) -> bool {
        self.method != Method::POST || self.query.iter().any(|(name, _)| name == "dryRun")
    }

    /// Path and query, as in the request line.
    pub fn target(&self) -> String {
        let mut target = self.path.clone();
        for (index, (name, value)) in self.query.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            target += &format!(
                "{separator}{}={}",
                percent_encoded(name),
                percent_encoded(value)
            );
        }
        target
    }

    fn json(mut self, kind: &'static str, body: &Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self.header("content-type", kind)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_str(), short(&self.target()))
    }
}

/// One path segment: nothing in it can end the segment or climb out of it.
fn segment(text: &str) -> String {
    if text == "." || text == ".." {
        text.replace('.', "%2E")
    } else {
        percent_encoded(text)
    }
}

fn delete_options() -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})
}

#[cfg(test)]
mod tests {
    use super::super::{Client, Config};
    use super::*;
    use base::stop::Stop;

    #[test]
    fn long_request_is_shortened_in_messages() {
        let request = Request::get(&Resource::PODS, "ns", &"p".repeat(100_000)).query("a", "b");
        let client =
            Client::new("test/1", Config::plain("http://127.0.0.1:1"), &Stop::new()).unwrap();
        for text in [
            request.to_string(),
            client.address(&request),
            client.send(&request).unwrap_err().to_string(),
        ] {
            assert!(
                text.contains("/namespaces/ns/pods/ppp") && text.contains('…') && text.len() < 400,
                "{text}"
            );
        }
    }

    #[test]
    fn requests_as_text() {
        let check = |request: Request, text: &str| assert_eq!(request.to_string(), text);
        let labels = Selector::labels("a=b,c!=d");
        check(
            Request::get(&Resource::PODS, "ns", "p"),
            "GET /api/v1/namespaces/ns/pods/p",
        );
        check(
            Request::get(&Resource::NODES, "ns", "n"),
            "GET /api/v1/nodes/n",
        );
        check(
            Request::get(&Resource::PODS, "a/b", ".."),
            "GET /api/v1/namespaces/a%2Fb/pods/%2E%2E",
        );
        check(
            Request::get(&Resource::PODS, "ns", "p")
                .subresource("log")
                .query("container", "c d"),
            "GET /api/v1/namespaces/ns/pods/p/log?container=c%20d",
        );
        check(
            Request::list(&Resource::PODS, "", &Selector::all()),
            "GET /api/v1/pods",
        );
        check(
            Request::list(&Resource::DAEMON_SETS, "ns", &labels),
            "GET /apis/apps/v1/namespaces/ns/daemonsets?labelSelector=a%3Db%2Cc%21%3Dd",
        );
        check(
            Request::list(&Resource::PODS, "ns", &Selector::name("p")).watch("7", 290),
            "GET /api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Dp&watch=true&\
             allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=290",
        );
        check(
            Request::create(&Resource::NAMESPACES, "", &json!({})).dry_run(),
            "POST /api/v1/namespaces?dryRun=All",
        );
        check(
            Request::delete_collection(&Resource::CLUSTER_ROLES, "", &labels),
            "DELETE /apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=a%3Db%2Cc%21%3Dd",
        );
        let removal = Request::delete(&Resource::PODS, "ns", "p").dry_run();
        assert!(
            String::from_utf8_lossy(removal.body.as_deref().unwrap())
                .contains(r#""dryRun":["All"]"#)
        );
        check(removal, "DELETE /api/v1/namespaces/ns/pods/p");
        let patch = Request::merge_patch(&Resource::PODS, "ns", "p", &json!({"a": 1}));
        assert_eq!(
            patch.headers,
            [("content-type", "application/merge-patch+json".into())]
        );
        assert_eq!(patch.body.as_deref(), Some(&br#"{"a":1}"#[..]));
        check(patch, "PATCH /api/v1/namespaces/ns/pods/p");
    }
}
