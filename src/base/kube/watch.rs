//! Watches the changes of a collection.
//!
//! Owns resuming: a watch that ends, breaks or expires continues, visible to its reader only as another [`Event::Synced`].
//! Starts no thread: [`Watch::next`] blocks until an event arrives or the client is stopped.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;

use anyhow::anyhow;
use serde_json::Value;

use super::client::{Body, Client, transport};
use super::error::Error;
use super::request::{Object as _, Request, Resource, Selector};
use crate::retry::Backoff;

/// The server ends a watch after this long; a new one continues from there.
const WATCH_SECONDS: u64 = 290;
/// A watch must end, or report something, shortly after that.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS + 40);
/// Maximum bytes of one event, which holds one object.
const MAX_EVENT_BYTES: u64 = 16 << 20;
/// Pauses between attempts to reach the server.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(10) };

/// A change of the collection, or of the watch itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The whole collection is listed anew; objects that do not appear before the next [`Event::Synced`] are gone.
    Restarted,
    /// A new or changed object.
    Applied(Value),
    /// A deleted object in its last state.
    Deleted(Value),
    /// All existing objects have been listed.
    Synced,
}

/// A watch over a collection. It starts with [`Event::Restarted`], the existing objects, [`Event::Synced`].
pub struct Watch {
    client: Client,
    resource: Resource,
    namespace: String,
    selector: Selector,
    /// Reduces objects before they are held.
    shrink: fn(&mut Value),
    /// The last version seen; `None` before the list.
    version: Option<String>,
    stream: Option<BufReader<Body>>,
    ready: VecDeque<Event>,
    /// Consecutive streams that delivered nothing.
    failures: u32,
}

impl Client {
    /// Watches a collection; an empty namespace means all namespaces.
    pub fn watch(&self, resource: &Resource, namespace: &str, selector: &Selector) -> Watch {
        Watch {
            client: self.clone(),
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            selector: selector.clone(),
            shrink: forget_managers,
            version: None,
            stream: None,
            ready: VecDeque::new(),
            failures: 0,
        }
    }
}

impl Iterator for Watch {
    type Item = Result<Event, Error>;

    /// `None` after a stop. An error only ends this call: the next one continues, after a pause if the server was
    /// unreachable. Returns only permanent errors, such as missing permissions.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.client.stop().stopped() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let step = match (&mut self.stream, &self.version) {
                (None, None) => self.list(),
                (None, Some(version)) => {
                    let version = version.clone();
                    self.open(&version)
                }
                (Some(_), _) => self.read(),
            };
            match step {
                Ok(()) => {}
                Err(Error::Stopped) => return None,
                Err(error) => {
                    self.stream = None;
                    self.rest();
                    if error.is_gone() {
                        self.version = None;
                    } else if error.is_passing() {
                        log::debug!("watch of {}: {error}; retrying", self.resource.plural);
                    } else {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

impl Watch {
    /// Reduces each object with `shrink` before it is held; for large collections.
    pub fn shrink(mut self, shrink: fn(&mut Value)) -> Self {
        self.shrink = shrink;
        self
    }

    fn list(&mut self) -> Result<(), Error> {
        let (items, meta) =
            self.client.collect(&self.resource, &self.namespace, &self.selector, self.shrink)?;
        self.ready.push_back(Event::Restarted);
        self.ready.extend(items.into_iter().map(Event::Applied));
        self.ready.push_back(Event::Synced);
        self.version = Some(meta.version);
        Ok(())
    }

    fn open(&mut self, version: &str) -> Result<(), Error> {
        let request = Request::watch(&self.resource, &self.namespace, &self.selector, version, WATCH_SECONDS);
        self.stream =
            Some(BufReader::with_capacity(16 << 10, self.client.stream(&request, Some(SILENCE_TIMEOUT))?));
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut line = Vec::new();
        let what = format!("watch of {}", self.resource.plural);
        let length = stream
            .by_ref()
            .take(MAX_EVENT_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|why| transport(&what, why))?;
        // A line without its end was cut off: the watch continues from the last complete one.
        if !line.ends_with(b"\n") && (length as u64) < MAX_EVENT_BYTES {
            self.stream = None;
            self.rest();
            return Ok(());
        }
        self.failures = 0;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let event = crate::json::from_slice(&line).map_err(|why| anyhow!("{what}: {why}"))?;
        self.take(event, &what)
    }

    fn take(&mut self, mut event: Value, what: &str) -> Result<(), Error> {
        let mut object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let kind = match event["type"].text() {
            "ERROR" => return Err(Error::from_status(&object, what)),
            "ADDED" | "MODIFIED" => Some(Event::Applied as fn(_) -> _),
            "DELETED" => Some(Event::Deleted as fn(_) -> _),
            "BOOKMARK" => None,
            other => return Err(anyhow!("{what}: unknown event `{other}`").into()),
        };
        if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
            self.version = Some(version.to_owned());
        }
        (self.shrink)(&mut object);
        self.ready.extend(kind.map(|kind| kind(object)));
        Ok(())
    }

    fn rest(&mut self) {
        self.failures += 1;
        self.client.stop().wait(BACKOFF.pause(self.failures));
    }
}

/// Removes the managed fields: they are half of many objects, and useless to readers.
pub fn forget_managers(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
}
