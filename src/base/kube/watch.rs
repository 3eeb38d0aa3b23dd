//! What changes in a collection, as it changes, for as long as somebody wants to know.
//!
//! Owns resuming: a watch that ends, breaks or becomes too old goes on without its reader noticing more than a
//! fresh [`Event::Synced`]. Starts no thread: [`Watch::next`] blocks until something happens or the client's stop.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;

use serde_json::Value;

use super::client::{Body, Client, transport};
use super::error::Error;
use super::request::{Request, Resource, Selector};

/// The server ends a watch after this long; a new one goes on from there.
const LENGTH: u64 = 290;
/// A watch must end, or say something, a little after that at the latest.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(LENGTH + 40);
/// One event holds one object.
const LARGEST_EVENT: u64 = 16 << 20;
/// Objects that are held at once while the collection is told for the first time.
const PAGE: usize = 200;
/// Between two tries to reach a server that is away.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Something about a collection.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The whole collection is told anew; what is not applied before the next [`Event::Synced`] is gone.
    Restarted,
    /// This object is there, new or changed.
    Applied(Value),
    /// This object is gone; its last state.
    Deleted(Value),
    /// All that was there has been told.
    Synced,
}

/// A watch over a collection. It begins with [`Event::Restarted`], the objects that are there, [`Event::Synced`].
pub struct Watch {
    client: Client,
    resource: Resource,
    namespace: String,
    selector: Selector,
    /// Makes objects smaller before they are held.
    shrink: fn(&mut Value),
    /// The next page of the list; empty for the first.
    page: String,
    /// The state that was seen last; `None` until the list is complete.
    version: Option<String>,
    stream: Option<BufReader<Body>>,
    ready: VecDeque<Event>,
    pause: Duration,
    /// Whether the stream that ended had said anything: else asking again at once would be a tight loop.
    heard: bool,
}

impl Client {
    /// Watches a collection; an empty namespace means all of them.
    pub fn watch(&self, resource: &Resource, namespace: &str, selector: &Selector) -> Watch {
        Watch {
            client: self.clone(),
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            selector: selector.clone(),
            shrink: |_| {},
            page: String::new(),
            version: None,
            stream: None,
            ready: VecDeque::new(),
            pause: SHORTEST_PAUSE,
            heard: false,
        }
    }
}

impl Iterator for Watch {
    type Item = Result<Event, Error>;

    /// `None` after a stop. An error is final only for this call: asking again goes on, after a pause when the
    /// server was away. Only errors that will not pass by themselves are told, such as missing rights.
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
                    if error.is_gone() {
                        self.version = None;
                        self.page.clear();
                        self.rest();
                        continue;
                    }
                    if !error.is_passing() {
                        self.rest();
                        return Some(Err(error));
                    }
                    log::debug!("watch of {}: {error}; trying again", self.resource.plural);
                    self.rest();
                }
            }
        }
    }
}

impl Watch {
    /// Has each object made smaller by `shrink` before it is held; for large collections.
    pub fn shrink(mut self, shrink: fn(&mut Value)) -> Self {
        self.shrink = shrink;
        self
    }

    fn list(&mut self) -> Result<(), Error> {
        let mut request =
            Request::list(&self.resource, &self.namespace, &self.selector).query("limit", PAGE.to_string());
        let mut events = VecDeque::new();
        if self.page.is_empty() {
            events.push_back(Event::Restarted);
        } else {
            request = request.query("continue", self.page.clone());
        }
        let meta = self.client.page(&self.resource, &request, &mut |mut item| {
            reduce(&mut item, self.shrink);
            events.push_back(Event::Applied(item));
            Ok(())
        })?;
        self.ready = events;
        self.page = meta.next;
        if self.page.is_empty() {
            self.ready.push_back(Event::Synced);
            self.version = Some(meta.version);
        }
        Ok(())
    }

    fn open(&mut self, version: &str) -> Result<(), Error> {
        let request = Request::watch(&self.resource, &self.namespace, &self.selector, version, LENGTH);
        self.stream =
            Some(BufReader::with_capacity(16 << 10, self.client.stream(&request, Some(SILENCE_TIMEOUT))?));
        self.heard = false;
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut line = Vec::new();
        let what = format!("watch of {}", self.resource.plural);
        let length = stream
            .by_ref()
            .take(LARGEST_EVENT)
            .read_until(b'\n', &mut line)
            .map_err(|why| transport(&what, &why))?;
        if length == 0 {
            self.stream = None;
            if !self.heard {
                self.rest();
            }
            return Ok(());
        }
        self.heard = true;
        self.pause = SHORTEST_PAUSE;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let event: Value = match crate::json::from_slice(&line) {
            Ok(event) => event,
            // A line without its end was cut off: the watch goes on from the last whole one.
            Err(_) if !line.ends_with(b"\n") && (length as u64) < LARGEST_EVENT => {
                self.stream = None;
                return Ok(());
            }
            Err(why) => return Err(Error::Decode(format!("{what}: {why}"))),
        };
        self.take(event, &what)
    }

    fn take(&mut self, mut event: Value, what: &str) -> Result<(), Error> {
        let mut object = event.get_mut("object").map(Value::take).unwrap_or_default();
        match event["type"].as_str() {
            Some("ERROR") => return Err(Error::from_status(&object, what)),
            Some("ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK") => {}
            other => {
                return Err(Error::Decode(format!("{what}: unknown event `{}`", other.unwrap_or_default())));
            }
        }
        if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
            self.version = Some(version.to_owned());
        }
        reduce(&mut object, self.shrink);
        match event["type"].as_str() {
            Some("DELETED") => self.ready.push_back(Event::Deleted(object)),
            Some("BOOKMARK") => {}
            _ => self.ready.push_back(Event::Applied(object)),
        }
        Ok(())
    }

    fn rest(&mut self) {
        self.client.stop().wait(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Who set which field is half of many objects, and no watcher asks.
fn reduce(object: &mut Value, shrink: fn(&mut Value)) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    shrink(object);
}
