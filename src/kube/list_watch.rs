//! Lists of any length, object by object: in pages, decoded while they arrive. Watches of their
//! changes.
//!
//! Owns paging and its recovery: a page that breaks off is read again without delivering anything
//! twice, and a `continue` token that has expired is replaced. Memory holds one object, and one
//! number for each object seen; a watch holds one page. A watch that ends, breaks or expires
//! continues, visible to its reader only as another [`Event::Synced`]. Starts no thread:
//! [`Watch::next`] blocks until an event arrives or the client is stopped.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufRead as _, BufReader, Read};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use serde::Deserialize;
use serde::de::{DeserializeSeed as _, Error as _};
use serde_json::Value;

use super::client::{BACKOFF, Body, Client, MAX_OBJECT_BYTES, decoding, oversized, transport};
use super::error::Error;
use super::request::{Object as _, Request, Resource, Selector};
use base::json::{Page, weight};

/// Objects in one page: small enough for the server, large enough for speed.
const PAGE: usize = 500;
/// Maximum restarts; a list that exceeds them changes faster than it can be read.
const MAX_RESTARTS: u32 = 5;
/// Maximum objects of a list, and maximum consecutive pages without any, so that every list ends.
const MAX_OBJECTS: usize = 5_000_000;
const MAX_EMPTY_PAGES: u32 = 1_000;
/// Maximum memory of a list that is held.
const MAX_LIST_BYTES: usize = if cfg!(test) { 4 << 20 } else { 512 << 20 };

/// The metadata of a list.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Meta {
    /// Where a watch continues.
    #[serde(default, rename = "resourceVersion")]
    pub version: String,
    /// The next page, if there is one.
    #[serde(default, rename = "continue")]
    pub(super) next: String,
}

/// Receives one object; its error ends the list.
type Sink<'a> = dyn FnMut(Value) -> anyhow::Result<()> + 'a;

impl Client {
    /// Passes every object to `sink`, in the server's order. Servers name kind and version once for
    /// a whole list: this adds them to each object.
    pub fn each(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &Selector,
        sink: &mut Sink<'_>,
    ) -> Result<Meta, Error> {
        let (hasher, mut seen) = (RandomState::new(), HashSet::new());
        let first = Request::list(resource, namespace, selector).query("limit", PAGE.to_string());
        let (mut restarts, mut empty, mut next) = (0, 0, String::new());
        loop {
            let before = seen.len();
            let mut once = |item: Value| {
                // By name: an object that changes while a page is read again has another version.
                let meta = &item["metadata"];
                if !seen
                    .insert(hasher.hash_one((meta["namespace"].as_str(), meta["name"].as_str())))
                {
                    return Ok(());
                }
                ensure!(
                    seen.len() <= MAX_OBJECTS,
                    "the list has more than {MAX_OBJECTS} objects"
                );
                sink(item)
            };
            let meta = match self.page(resource, &first, &next, &mut once) {
                Ok(meta) => meta,
                Err(Error::Api(refusal)) if refusal.code == 410 && restarts < MAX_RESTARTS => {
                    restarts += 1;
                    // The server's own token continues where this one ended, in a newer state;
                    // without it, the list starts over without delivering any object twice.
                    next = refusal.resume;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if meta.next.is_empty() {
                return Ok(meta);
            }
            empty = if seen.len() > before { 0 } else { empty + 1 };
            if empty > MAX_EMPTY_PAGES {
                return Err(
                    anyhow!("`{first}`: {empty} pages in a row contained nothing new").into(),
                );
            }
            next = meta.next;
        }
    }

    /// All objects at once, for lists known to be short.
    pub fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &Selector,
    ) -> Result<Vec<Value>, Error> {
        let mut held = Held::new(MAX_LIST_BYTES);
        self.each(resource, namespace, selector, &mut |item| {
            held.add(resource, item)
        })?;
        Ok(held.items)
    }

    /// Passes the objects of one page to `sink`, with kind and version: of the page `next`, or of
    /// the first if that is empty.
    pub(super) fn page(
        &self,
        resource: &Resource,
        first: &Request,
        next: &str,
        sink: &mut Sink<'_>,
    ) -> Result<Meta, Error> {
        let mut request = first.clone();
        if !next.is_empty() {
            request = request.query("continue", next);
        }
        let version = resource.api_version();
        let mut complete = |mut item: Value| {
            if let Value::Object(fields) = &mut item {
                for (field, value) in [("kind", &*resource.kind), ("apiVersion", &*version)] {
                    fields.entry(field).or_insert_with(|| value.into());
                }
            }
            sink(item)
        };
        self.call(&request, &mut |body| decode(&request, body, &mut complete))
    }
}

/// Objects held in memory, up to a limit.
struct Held {
    items: Vec<Value>,
    bytes: usize,
    max: usize,
}

impl Held {
    fn new(max: usize) -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
            max,
        }
    }

    fn add(&mut self, resource: &Resource, item: Value) -> anyhow::Result<()> {
        self.bytes += weight(&item);
        let (name, max) = (&resource.plural, self.max >> 20);
        ensure!(
            self.bytes <= self.max,
            "the list of {name} takes more than {max} MiB of memory"
        );
        self.items.push(item);
        Ok(())
    }
}

/// The body of a page, which may have any length, but no more bytes without an object than the
/// largest object has.
struct Between<'a> {
    body: Body,
    left: &'a Cell<u64>,
}

impl Read for Between<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.body.by_ref().take(self.left.get()).read(buffer)?;
        self.left.set(self.left.get() - count as u64);
        Ok(count)
    }
}

/// Reads one page, passing on its items as they arrive.
fn decode(request: &Request, body: Body, sink: &mut Sink<'_>) -> Result<Meta, Error> {
    let mut failed = None;
    let bytes_left = Cell::new(MAX_OBJECT_BYTES);
    let mut take = |item| {
        bytes_left.set(MAX_OBJECT_BYTES);
        sink(item).map_err(|why| failed = Some(why)).is_ok()
    };
    let body = Between {
        body,
        left: &bytes_left,
    };
    let mut reader =
        serde_json::Deserializer::from_reader(BufReader::with_capacity(32 << 10, body));
    let page = meta(&mut reader, &mut take).and_then(|meta| reader.end().map(|()| meta));
    match (page, failed) {
        (_, Some(why)) => Err(Error::Sink(why)),
        (Ok(meta), None) => Ok(meta),
        (Err(_), None) if bytes_left.get() == 0 => Err(oversized(request)),
        (Err(why), None) => Err(decoding(request, &why)),
    }
}

fn meta<'de, R: serde_json::de::Read<'de>>(
    reader: &mut serde_json::Deserializer<R>,
    take: &mut dyn FnMut(Value) -> bool,
) -> serde_json::Result<Meta> {
    match Page(take).deserialize(reader)? {
        (Some(meta), true) => Meta::deserialize(meta),
        _ => Err(serde_json::Error::custom("not a list")),
    }
}

/// Objects that a watch holds at once while it lists, and their maximum memory.
const WATCHED_PAGE: usize = 200;
const MAX_PAGE_BYTES: usize = if cfg!(test) { 4 << 20 } else { 256 << 20 };
/// The server ends a watch after this long; a new one continues from there.
const WATCH_SECONDS: u64 = 290;
/// A watch must end, or report something, shortly after that.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS + 40);

/// A change of the collection, or of the watch itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The whole collection is listed anew; objects that do not appear before the next
    /// [`Event::Synced`] are gone.
    Restarted,
    /// A new or changed object.
    Applied(Value),
    /// A deleted object in its last state.
    Deleted(Value),
    /// All existing objects have been listed.
    Synced,
}

/// A watch over a collection. It starts with [`Event::Restarted`], the existing objects,
/// [`Event::Synced`].
pub struct Watch {
    client: Client,
    resource: Resource,
    /// Lists the collection.
    collection: Request,
    /// Reduces objects before they are held.
    shrink: fn(&mut Value),
    /// The next page of the list; empty for the first.
    page: String,
    /// The last version seen; `None` until the list is complete.
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
            collection: Request::list(resource, namespace, selector),
            shrink: forget_managers,
            page: String::new(),
            version: None,
            stream: None,
            ready: VecDeque::new(),
            failures: 0,
        }
    }
}

impl Iterator for Watch {
    type Item = Result<Event, Error>;

    /// `None` after a stop. An error only ends this call: the next one continues, after a pause if
    /// the server was unreachable. Returns only permanent errors, such as missing permissions.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.client.stop().stopped() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let step = match (&self.stream, &self.version) {
                (None, None) => self.list(),
                (None, Some(version)) => {
                    let request = self.collection.clone().watch(version, WATCH_SECONDS);
                    self.open(&request)
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
                        self.page.clear();
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
        let first = self
            .collection
            .clone()
            .query("limit", WATCHED_PAGE.to_string());
        let mut held = Held::new(MAX_PAGE_BYTES);
        let meta = self
            .client
            .page(&self.resource, &first, &self.page, &mut |mut item| {
                (self.shrink)(&mut item);
                held.add(&self.resource, item)
            })?;
        if self.page.is_empty() {
            self.ready.push_back(Event::Restarted);
        }
        self.ready
            .extend(held.items.into_iter().map(Event::Applied));
        self.page = meta.next;
        if self.page.is_empty() {
            self.ready.push_back(Event::Synced);
            self.version = Some(meta.version);
        }
        Ok(())
    }

    fn open(&mut self, request: &Request) -> Result<(), Error> {
        let body = self.client.stream(request, Some(SILENCE_TIMEOUT))?;
        self.stream = Some(BufReader::with_capacity(16 << 10, body));
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        let mut line = Vec::new();
        let what = format!("watch of {}", self.resource.plural);
        stream
            .by_ref()
            .take(MAX_OBJECT_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|why| transport(&what, why))?;
        // A line without its end was cut off: the watch continues from the last complete one.
        if !line.ends_with(b"\n") && (line.len() as u64) < MAX_OBJECT_BYTES {
            self.stream = None;
            self.rest();
            return Ok(());
        }
        self.failures = 0;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let event = base::json::from_slice(&line).map_err(|why| anyhow!("{what}: {why}"))?;
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

#[cfg(test)]
mod tests {
    use base::json::json;

    use super::*;

    fn read(text: &str) -> (Vec<Value>, Result<Meta, String>) {
        let mut items = Vec::new();
        let mut take = |item: Value| {
            items.push(item);
            true
        };
        let meta = meta(&mut serde_json::Deserializer::from_str(text), &mut take);
        (items, meta.map_err(|why| why.to_string()))
    }

    #[test]
    fn page_is_returned_item_by_item() {
        let (items, meta) = read(
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t","remainingItemCount":3},
                "extra":[1],"items":[{"metadata":{"name":"a"}},{"kind":"Own","metadata":{"name":"b"}}]}"#,
        );
        assert_eq!(
            meta,
            Ok(Meta {
                version: "7".into(),
                next: "t".into()
            })
        );
        assert_eq!(
            items,
            [
                json!({"metadata": {"name": "a"}}),
                json!({"kind": "Own", "metadata": {"name": "b"}})
            ]
        );
    }

    #[test]
    fn empty_list_may_be_null_and_missing_list_is_an_error() {
        assert_eq!(
            read(r#"{"kind":"PodList","metadata":{},"items":null}"#),
            (Vec::new(), Ok(Meta::default()))
        );
        for (text, says) in [
            (r#"{"kind":"Pod","metadata":{}}"#, "not a list"),
            (r#"[]"#, "a list"),
            (r#"{"items":{}}"#, "not a list"),
            (r#"{"items":[{"a":1},"#, "EOF"),
        ] {
            let error = read(text).1.unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
