//! Sums the progress that several processes of one plugin report, each for its own part.
//!
//! A parallel test suite has many processes that count separately. Each is a sender, identified by
//! its `sender` field or else by its exclusive connection; a closed connection is continued by one
//! whose counts follow. The updates of a single sender are forwarded unchanged. Pure except for the
//! clock; knows neither sockets nor the aggregator, and starts no thread.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use base::json::{self, json};

/// Maximum senders that are distinguished.
const MAX_SENDERS: usize = 64;
/// Maximum bytes of failure names, as in the aggregator.
const MAX_FAILURE_BYTES: usize = 1 << 20;
/// Time within which a client may open another connection before it notices that one is idle.
const CLIENT_PAUSE: Duration = Duration::from_millis(20);
/// Fields that are summed.
const COUNTS: [&str; 4] = ["total", "completed", "failed", "skipped"];
/// Fields that are united.
const LISTS: [&str; 2] = ["failures", "errors"];
/// Fields that are increments already.
const APPENDING: [&str; 3] = ["appendtotals", "appendcompleted", "appendfailing"];

/// All senders of this plugin, the update from the log of its tests, and whether its port is
/// shared.
#[derive(Default)]
pub(super) struct Senders {
    all: Vec<Sender>,
    /// The update derived from the log of the tests.
    log: Option<Vec<u8>>,
    /// Whether another plugin on the node was given the same port.
    pub shared: bool,
}

struct Sender {
    id: Option<String>,
    connections: Vec<Connection>,
    latest: Update,
}

struct Connection {
    alive: Weak<()>,
    /// When its last response was sent; none while the client waits for it.
    free: Option<Instant>,
    /// Latest update received over it.
    latest: Update,
}

#[derive(Clone, Default)]
struct Update {
    counts: [i64; 4],
    lists: [Vec<String>; 2],
}

impl Senders {
    /// Processes an update from `connection`; returns the sum to forward, or `None` to forward the
    /// update unchanged.
    pub(super) fn take(&mut self, connection: &Arc<()>, body: &[u8]) -> Option<Vec<u8>> {
        let Ok(Value::Object(fields)) = json::from_slice(body) else {
            return None;
        };
        let mut fields: Map<String, Value> = fields
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        if APPENDING
            .iter()
            .any(|name| fields.get(*name).is_some_and(|value| !value.is_null()))
        {
            return None;
        }
        let update = Update::read(&fields)?;
        if let Some(seen) = self.log.as_ref().filter(|_| update.done() == 0) {
            // An update without counts, while the log has some.
            return Some(seen.clone());
        }
        let id = fields
            .get("sender")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty())
            .map(str::to_owned);
        let mut at = self.find(connection, id.as_deref(), &update);
        if id.is_none() && self.all[at].differs(connection, &update) {
            at = self.split(at, connection, &update);
        }
        let alone = self.all.len() == 1;
        let sender = &mut self.all[at];
        sender.id = id.or(sender.id.take());
        sender.note(connection, update.clone());
        // Received later, but sent earlier.
        let is_older =
            sender.latest.counts[0] == update.counts[0] && update.done() < sender.latest.done();
        if sender.id.is_some() || alone || !is_older {
            sender.latest = update;
        }
        if alone {
            return None;
        }
        let sum = self.sum();
        for (name, count) in COUNTS.iter().zip(sum.counts) {
            fields.insert((*name).to_owned(), json!(count));
        }
        for (name, list) in LISTS.iter().zip(sum.lists) {
            fields.insert((*name).to_owned(), json!(list));
        }
        serde_json::to_vec(&fields).ok()
    }

    /// Adopts the progress derived from the test log unless a sender reports finished tests;
    /// returns whether it did.
    pub(super) fn stands_in(&mut self, update: &[u8]) -> bool {
        let is_needed = self.all.iter().all(|sender| sender.latest.done() == 0);
        self.log = is_needed.then(|| update.to_vec());
        is_needed
    }

    /// Records that the response of a connection is being sent.
    pub(super) fn answered(&mut self, connection: &Arc<()>) {
        for sender in &mut self.all {
            for one in sender
                .connections
                .iter_mut()
                .filter(|one| one.is(connection))
            {
                one.free = Some(Instant::now());
            }
        }
    }

    /// Sender of an update; a new one if none matches.
    fn find(&mut self, connection: &Arc<()>, id: Option<&str>, update: &Update) -> usize {
        let index = match id {
            Some(_) => self
                .all
                .iter()
                .position(|sender| sender.id.as_deref() == id),
            None => self
                .all
                .iter()
                .position(|sender| sender.connections.iter().any(|one| one.is(connection))),
        };
        if let Some(at) = index {
            return at;
        }
        if id.is_none() {
            // A client with an idle connection opens no other.
            let gone = |sender: &Sender| sender.id.is_none() && !sender.is_idle();
            let continued = (self.all.iter().enumerate())
                .filter(|(_, sender)| gone(sender) && sender.latest.leads_to(update))
                .max_by_key(|(_, sender)| {
                    let done = sender.latest.done();
                    // A lower count more likely belongs to a predecessor than to a repetition.
                    (done < update.done(), done)
                });
            if let Some((at, _)) = continued {
                return at;
            }
            if self
                .all
                .iter()
                .all(|sender| sender.id.is_none() && !sender.is_alive())
            {
                // Without other senders, a restart or any other count is accepted.
                self.all.clear();
            }
        }
        if self.all.len() < MAX_SENDERS {
            self.all.push(Sender {
                id: None,
                connections: Vec::new(),
                latest: update.clone(),
            });
        }
        self.all.len() - 1
    }

    /// Splits a connection off a sender: two processes started at the same moment.
    fn split(&mut self, at: usize, connection: &Arc<()>, update: &Update) -> usize {
        if self.all.len() >= MAX_SENDERS {
            return at;
        }
        let sender = &mut self.all[at];
        sender.connections.retain(|one| !one.is(connection));
        let others = sender.connections.iter().map(|one| &one.latest);
        if let Some(furthest) = others.max_by_key(|latest| latest.done()) {
            sender.latest = furthest.clone();
        }
        self.all.push(Sender {
            id: None,
            connections: Vec::new(),
            latest: update.clone(),
        });
        self.all.len() - 1
    }

    fn sum(&self) -> Update {
        let mut sum = Update::default();
        let mut texts: [HashSet<&str>; 2] = Default::default();
        let mut room = MAX_FAILURE_BYTES;
        for sender in &self.all {
            for (all, one) in sum.counts.iter_mut().zip(sender.latest.counts) {
                *all = all.saturating_add(one);
            }
            for ((all, texts), list) in sum
                .lists
                .iter_mut()
                .zip(&mut texts)
                .zip(&sender.latest.lists)
            {
                for text in list {
                    if texts.insert(text) && text.len() <= room {
                        room -= text.len();
                        all.push(text.clone());
                    }
                }
            }
        }
        sum
    }
}

impl Sender {
    fn note(&mut self, connection: &Arc<()>, latest: Update) {
        self.connections
            .retain(|one| one.is_open() && !one.is(connection));
        self.connections.push(Connection {
            alive: Arc::downgrade(connection),
            free: None,
            latest,
        });
    }

    /// Whether the updates of one connection continue its own counts and not those of the sender's
    /// other connections.
    fn differs(&self, connection: &Arc<()>, update: &Update) -> bool {
        let same_connection = self.connections.iter().find(|one| one.is(connection));
        let shared = self
            .connections
            .iter()
            .any(|one| one.is_open() && !one.is(connection));
        shared
            && same_connection
                .is_some_and(|same_connection| same_connection.latest.leads_to(update))
            && !self.latest.leads_to(update)
    }

    fn is_alive(&self) -> bool {
        self.connections.iter().any(Connection::is_open)
    }

    /// Whether an idle connection would be reused.
    fn is_idle(&self) -> bool {
        let free = |one: &Connection| one.free.is_some_and(|since| since.elapsed() > CLIENT_PAUSE);
        self.connections
            .iter()
            .any(|one| one.is_open() && free(one))
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        self.alive.strong_count() > 0
    }

    fn is(&self, connection: &Arc<()>) -> bool {
        std::ptr::eq(self.alive.as_ptr(), Arc::as_ptr(connection))
    }
}

impl Update {
    fn read(fields: &Map<String, Value>) -> Option<Self> {
        let mut update = Self::default();
        for (count, name) in update.counts.iter_mut().zip(COUNTS) {
            *count = match fields.get(name) {
                None | Some(Value::Null) => 0,
                Some(Value::Number(number)) => number.as_i64()?,
                // The aggregator ignores these fields.
                Some(_) if name == "failed" || name == "skipped" => 0,
                Some(_) => return None,
            };
        }
        let mut room = MAX_FAILURE_BYTES;
        for (list, name) in update.lists.iter_mut().zip(LISTS) {
            let texts = match fields.get(name) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(texts)) => texts,
                Some(_) => return None,
            };
            for text in texts {
                let text = text.as_str().unwrap_or_default();
                if text.len() <= room {
                    room -= text.len();
                    list.push(text.to_owned());
                }
            }
        }
        Some(update)
    }

    fn done(&self) -> i64 {
        self.counts[1].saturating_add(self.lists[0].len() as i64)
    }

    /// Whether the same process may report `next` later.
    fn leads_to(&self, next: &Self) -> bool {
        let [total, completed, _, skipped] = self.counts;
        total == next.counts[0]
            && completed <= next.counts[1]
            && skipped <= next.counts[3]
            && next.lists[0].starts_with(&self.lists[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forwarded total, completed and failures.
    fn told(senders: &mut Senders, connection: &Arc<()>, body: &str) -> (i64, i64, usize) {
        let passed = senders
            .take(connection, body.as_bytes())
            .unwrap_or_else(|| body.as_bytes().to_vec());
        let fields: Value = serde_json::from_slice(&passed).unwrap();
        let count = |name: &str| fields[name].as_i64().unwrap_or(0);
        (
            count("total"),
            count("completed"),
            fields["failures"].as_array().map_or(0, Vec::len),
        )
    }

    fn body(total: i64, completed: i64, failures: &[&str]) -> String {
        json!({"msg": "", "total": total, "completed": completed, "failures": failures}).to_string()
    }

    /// Marks every response as long sent.
    fn settle(senders: &mut Senders) {
        for one in senders
            .all
            .iter_mut()
            .flat_map(|sender| &mut sender.connections)
        {
            one.free = Instant::now().checked_sub(CLIENT_PAUSE * 2);
        }
    }

    #[test]
    fn processes_of_one_suite_are_summed() {
        // Only the first process of the suite knows the number of tests.
        let (mut senders, [one, two, three]) = (Senders::default(), [(); 3].map(Arc::new));
        for (connection, update, expected) in [
            (&one, body(111, 0, &[]), (111, 0, 0)),
            (&two, body(0, 1, &[]), (111, 1, 0)),
            (&one, body(111, 1, &[]), (111, 2, 0)),
            (&three, body(0, 0, &["a"]), (111, 2, 1)),
            (&two, body(0, 2, &["b"]), (111, 3, 2)),
            (&three, body(0, 5, &["a"]), (111, 8, 2)),
            // The last update of the first process does not change the others' counts.
            (&one, body(111, 57, &[]), (111, 64, 2)),
        ] {
            assert_eq!(
                told(&mut senders, connection, &update),
                expected,
                "{update}"
            );
            settle(&mut senders);
        }
    }

    #[test]
    fn simultaneous_processes_are_distinguished() {
        let (mut senders, [one, two]) = (Senders::default(), [(); 2].map(Arc::new));
        for (connection, update, expected) in [
            (&one, body(0, 1, &[]), (0, 1, 0)),
            (&two, body(0, 1, &[]), (0, 1, 0)),
            (&one, body(0, 2, &[]), (0, 2, 0)),
            (&one, body(0, 3, &[]), (0, 3, 0)),
            (&two, body(0, 1, &["x"]), (0, 4, 1)),
            (&two, body(0, 2, &["x"]), (0, 5, 1)),
            (&one, body(0, 4, &[]), (0, 6, 1)),
        ] {
            assert_eq!(
                told(&mut senders, connection, &update),
                expected,
                "{update}"
            );
        }
    }

    #[test]
    fn reconnecting_sender_is_recognized() {
        let (mut senders, one) = (Senders::default(), Arc::new(()));
        told(&mut senders, &one, &body(10, 1, &[]));
        settle(&mut senders);
        let two = Arc::new(());
        assert_eq!(told(&mut senders, &two, &body(0, 4, &["x"])), (10, 5, 1));
        settle(&mut senders);
        drop(two);
        let again = Arc::new(());
        assert_eq!(told(&mut senders, &again, &body(0, 5, &["x"])), (10, 6, 1));
        assert_eq!(senders.all.len(), 2);
    }

    #[test]
    fn single_sender_is_forwarded_unchanged() {
        let mut senders = Senders::default();
        for update in [
            body(10, 3, &[]),
            body(10, 5, &["x"]),
            body(12, 1, &[]),
            r#"{"Completed":2}"#.into(),
        ] {
            let connection = Arc::new(());
            assert_eq!(
                senders.take(&connection, update.as_bytes()),
                None,
                "{update}"
            );
        }
        // Two connections at once, before the first response: still one process.
        let (one, two) = (Arc::new(()), Arc::new(()));
        assert_eq!(senders.take(&one, body(5, 0, &[]).as_bytes()), None);
        assert_eq!(senders.take(&two, body(5, 0, &[]).as_bytes()), None);
        senders.answered(&one);
        assert_eq!(senders.take(&two, body(5, 1, &[]).as_bytes()), None);
    }

    #[test]
    fn named_sender_needs_no_own_connection() {
        let mut senders = Senders::default();
        let say = |senders: &mut Senders, id: &str, completed: i64| {
            let update = json!({"sender": id, "total": 10, "completed": completed}).to_string();
            told(senders, &Arc::new(()), &update)
        };
        assert_eq!(say(&mut senders, "a", 3), (10, 3, 0));
        assert_eq!(say(&mut senders, "b", 4), (20, 7, 0));
        // Counts may decrease: the sender is known by name.
        assert_eq!(say(&mut senders, "a", 1), (20, 5, 0));
        let many: Vec<_> = (0..1_000)
            .map(|number| say(&mut senders, &number.to_string(), 1))
            .collect();
        assert!(senders.all.len() <= MAX_SENDERS && many.len() == 1_000);
    }

    #[test]
    fn unreadable_updates_are_forwarded() {
        let (mut senders, [one, two]) = (Senders::default(), [(); 2].map(Arc::new));
        told(&mut senders, &one, &body(10, 1, &[]));
        settle(&mut senders);
        told(&mut senders, &two, &body(10, 1, &[]));
        for update in [
            r#"{"appendtotals":true,"appendcompleted":3}"#,
            r#"{"total":"many"}"#,
            r#"{"failures":"x"}"#,
            "[]",
            "",
            "null",
        ] {
            assert_eq!(senders.take(&one, update.as_bytes()), None, "{update}");
        }
        let odd = r#"{"Total":10,"COMPLETED":2,"failures":[null,"é"],"msg":"m","other":{}}"#;
        let sum = senders.take(&one, odd.as_bytes()).unwrap();
        let sum: Value = serde_json::from_slice(&sum).unwrap();
        assert_eq!(
            (&sum["total"], &sum["completed"], &sum["msg"]),
            (&20.into(), &3.into(), &"m".into())
        );
        assert_eq!(sum["failures"], json!(["", "é"]));
    }
}
