//! A Kubernetes API server for tests: objects in memory, watches, logs, exec, and injected faults.
//!
//! Built on `tiny_http`; shares no type with the crate, so that both sides cannot share a mistake.
//! Add objects, pass [`ApiServer::kubeconfig`] to the program, check the requests.
//!
//! ```text
//! let api = ApiServer::start();
//! api.put("/api/v1/namespaces/default/pods/p", json!({"status": {"phase": "Pending"}}));
//! api.controller(|api, change| { … });            what a kubelet or controller would do, on every change
//! api.fault(Fault::on("GET /api/v1/nodes").times(2).status(429, "TooManyRequests", "slow down").retry_after(1));
//! api.wait(|api| api.count("DELETE ") == 3);      blocks until it is so; fails the test after a minute
//! ```
//!
//! Like a real server: resource versions, pages, label and field selectors, bookmarks, dry run,
//! finalizers, owner references, the end of a namespace with all its objects, status subresources,
//! both forms of discovery, access and token reviews, node proxies (as raw responses). Unsupported:
//! validation, defaults, patches other than merge, consistency of pages.

#![allow(missing_docs, clippy::unwrap_used, reason = "only tests use it")]

mod answer;
mod fault;
mod store;
mod stream;
mod token;
mod wire;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use fault::Fault;
pub use store::Change;
use store::{Store, parse};
pub use stream::{Exec, ExecAnswer};
use wire::Wire;

/// Longer than any test needs, so that only a missing event fails it.
const LIMIT: Duration = Duration::from_secs(60);

type Controller = dyn Fn(&ApiServer, &Change) + Send + Sync;
type Executor = dyn Fn(&Exec) -> ExecAnswer + Send + Sync;
/// Rejects an object with status, reason, message.
type Admission = dyn Fn(&str, &Value) -> Option<(u16, String, String)> + Send + Sync;

/// A running server; dropping it ends it.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
    /// Only the test's own handle ends the server.
    _owner: Option<Arc<Owner>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wire: Wire,
    server: tiny_http::Server,
}

struct Owner(Arc<Shared>);

#[derive(Default)]
struct State {
    store: Store,
    requests: Vec<String>,
    faults: Vec<Fault>,
    logs: BTreeMap<(String, String, String), (Vec<u8>, bool)>,
    raw: BTreeMap<String, (u16, Vec<u8>)>,
    token: Option<String>,
    tokens: Vec<token::Token>,
    deletions: Vec<(String, Value)>,
    denied: Vec<(String, String)>,
    plain_discovery: bool,
    kinds: Vec<store::Kind>,
    stale: Vec<String>,
    executor: Option<Arc<Executor>>,
    admission: Option<Arc<Admission>>,
    controllers: Vec<Arc<Controller>>,
    bookmarks: u64,
    watch_drops: u64,
    closing: bool,
}

impl ApiServer {
    /// Starts an empty server with the namespaces `default` and `kube-system`.
    pub fn start() -> Self {
        let server = tiny_http::Server::http("127.0.0.1:0").unwrap();
        let inner = server.server_addr().to_ip().unwrap();
        let state = State {
            kinds: store::kinds(),
            ..State::default()
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            wire: Wire::start(inner),
            server,
        });
        let api = Self {
            _owner: Some(Arc::new(Owner(shared.clone()))),
            shared,
        };
        for name in ["default", "kube-system"] {
            api.put(
                &format!("/api/v1/namespaces/{name}"),
                json!({"status": {"phase": "Active"}}),
            );
        }
        let served = api.inside();
        std::thread::spawn(move || {
            while let Ok(request) = served.shared.server.recv() {
                let api = served.clone();
                std::thread::spawn(move || answer::answer(&api, request));
            }
        });
        api
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.wire.address)
    }

    /// Writes a kubeconfig for this server into `folder`, with the token if required.
    pub fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let path = folder.join("kubeconfig");
        let user = match &self.lock().token {
            Some(token) => json!({"token": token}),
            None => json!({}),
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": self.url()}}],
            "users": [{"name": "test", "user": user}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Puts an object at its path, new or not; kind, name, namespace, uid and versions are filled
    /// in.
    pub fn put(&self, path: &str, object: Value) -> Value {
        let place = parse(path).unwrap_or_else(|| panic!("no object's path: {path}"));
        let mut state = self.lock();
        let kind = state
            .kinds
            .iter()
            .find(|kind| kind.serves(&place))
            .map(|kind| kind.kind.clone());
        let kind = kind.unwrap_or_else(|| panic!("no such kind: {path}"));
        let (stored, changes) = state.store.put(&place, &kind, object);
        drop(state);
        self.tell(changes);
        stored
    }

    /// Merges into an existing object, as a controller or kubelet does.
    pub fn merge(&self, path: &str, patch: &Value) -> Value {
        let place = parse(path).unwrap();
        let changed = self.lock().store.merge(&place, patch);
        let (object, changes) = changed.unwrap_or_else(|| panic!("nothing at {path}"));
        self.tell(changes);
        object
    }

    /// The object at a path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.lock().store.get(&parse(path)?)
    }

    /// All objects of a collection; without a namespace those of all namespaces.
    pub fn list(&self, path: &str) -> Vec<Value> {
        self.lock().store.list(&parse(path).unwrap())
    }

    /// Removes an object and its dependents, ignoring finalizers.
    pub fn remove(&self, path: &str) {
        let changes = self.lock().store.remove(&parse(path).unwrap());
        self.tell(changes);
    }

    /// Adds a kind, as a custom resource definition does. `group/version` or `v1`.
    pub fn add_kind(&self, group_version: &str, plural: &str, kind: &str, namespaced: bool) {
        self.lock()
            .kinds
            .push(store::Kind::new(group_version, plural, kind, namespaced));
    }

    /// Appends to the log of a container.
    pub fn log(&self, namespace: &str, pod: &str, container: &str, text: impl AsRef<[u8]>) {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.lock()
            .logs
            .entry(key)
            .or_default()
            .0
            .extend_from_slice(text.as_ref());
        self.shared.changed.notify_all();
    }

    /// Ends the log of a container, and the streams that follow it.
    pub fn end_log(&self, namespace: &str, pod: &str, container: &str) {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.lock().logs.entry(key).or_default().1 = true;
        self.shared.changed.notify_all();
    }

    /// Responds to GET of exactly this path with these bytes.
    pub fn raw(&self, path: &str, code: u16, body: impl Into<Vec<u8>>) {
        self.lock().raw.insert(path.to_owned(), (code, body.into()));
    }

    /// Sets the result of exec; without it every exec is an internal error.
    pub fn on_exec(&self, executor: impl Fn(&Exec) -> ExecAnswer + Send + Sync + 'static) {
        self.lock().executor = Some(Arc::new(executor));
    }

    /// Runs after every change, on the thread that caused it: a kubelet, a controller.
    pub fn controller(&self, controller: impl Fn(&Self, &Change) + Send + Sync + 'static) {
        self.lock().controllers.push(Arc::new(controller));
    }

    /// May reject created objects: a webhook, a quota, Pod Security. Receives plural and object.
    pub fn admission(
        &self,
        judge: impl Fn(&str, &Value) -> Option<(u16, String, String)> + Send + Sync + 'static,
    ) {
        self.lock().admission = Some(Arc::new(judge));
    }

    /// Requires this bearer token from now on; `None` requires none.
    pub fn demand_token(&self, token: Option<&str>) {
        self.lock().token = token.map(Into::into);
    }

    /// Forbids a verb (`list`, `create`, … or `*`) on a plural, for requests and for access
    /// reviews.
    pub fn forbid(&self, verb: &str, plural: &str) {
        self.lock().denied.push((verb.into(), plural.into()));
    }

    /// Removes all prohibitions.
    pub fn forbid_nothing(&self) {
        self.lock().denied.clear();
    }

    /// Serves discovery as servers before 1.27 did.
    pub fn plain_discovery(&self) {
        self.lock().plain_discovery = true;
    }

    /// Makes the server behind a `group/version` unavailable.
    pub fn break_group(&self, group_version: &str) {
        self.lock().stale.push(group_version.to_owned());
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Drops the history: older resource versions and `continue` tokens get 410.
    pub fn compact(&self) {
        self.lock().store.compact();
        self.shared.changed.notify_all();
    }

    /// Sends a bookmark to every watch.
    pub fn bookmark(&self) {
        self.lock().bookmarks += 1;
        self.shared.changed.notify_all();
    }

    /// Ends every watch, like a restarting server.
    pub fn drop_watches(&self) {
        self.lock().watch_drops += 1;
        self.shared.changed.notify_all();
    }

    /// Cuts every connection, and refuses new ones while `away` runs.
    pub fn away<T>(&self, away: impl FnOnce() -> T) -> T {
        self.shared.wire.refuse(true);
        let outcome = away();
        self.shared.wire.refuse(false);
        outcome
    }

    /// Number of connections refused meanwhile.
    pub fn refusals(&self) -> u64 {
        self.shared.wire.refused()
    }

    /// Cuts every connection to a client after this many bytes; 0 means never.
    pub fn cut_every(&self, bytes: u64) {
        self.shared.wire.cut_every(bytes);
    }

    /// All requests so far: `GET /api/v1/pods?limit=500`.
    pub fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    /// The options of each deletion below this path.
    pub fn deletions(&self, beginning: &str) -> Vec<Value> {
        let state = self.lock();
        let below = state
            .deletions
            .iter()
            .filter(|(path, _)| path.starts_with(beginning));
        below.map(|(_, options)| options.clone()).collect()
    }

    /// Number of requests with this prefix.
    pub fn count(&self, beginning: &str) -> usize {
        self.lock()
            .requests
            .iter()
            .filter(|request| request.starts_with(beginning))
            .count()
    }

    /// Blocks until `ready` returns true, checking after every request and change.
    pub fn wait(&self, ready: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !ready(self) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "it did not come to pass; requests:\n{}",
                self.requests().join("\n")
            );
            let state = self.lock();
            // Changes between `ready` and here would be missed, hence the short timeout.
            let _ = self
                .shared
                .changed
                .wait_timeout(state, left.min(Duration::from_millis(20)))
                .unwrap();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn inside(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            _owner: None,
        }
    }

    /// Wakes watchers and notifies controllers of changes.
    fn tell(&self, changes: Vec<Change>) {
        self.shared.changed.notify_all();
        let controllers = self.lock().controllers.clone();
        for change in &changes {
            for controller in &controllers {
                controller(&self.inside(), change);
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .closing = true;
        self.0.changed.notify_all();
        self.0.server.unblock();
        self.0.wire.refuse(true);
    }
}
