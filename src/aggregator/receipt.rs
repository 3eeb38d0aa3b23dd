//! What is kept about the arrival of each result: when its plugin was started and first heard of, what came when,
//! from whom. `meta/results.json` is the list of all.
//!
//! Knows no files: the journal carries it over a restart.

use serde::{Deserialize, Serialize};

use super::state::{Standing, State};
use base::clock;
use client::protocol::ResultId;

/// No worker's name for itself is kept any longer.
const MAX_WORKER_BYTES: usize = 64;

/// Who sent a body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sender {
    /// How closely it is known, as [`Caller::kind`](crate::backplane::Caller::kind) says; empty if that is not known.
    pub(super) identity: String,
    /// What it calls itself, program and version.
    pub(super) worker: String,
}

impl Sender {
    /// One with this certificate, which calls itself so.
    pub(super) fn new(identity: Option<&str>, worker: Option<&str>) -> Self {
        let shown = worker.unwrap_or_default().chars().filter(|c| c.is_ascii_graphic() || *c == ' ');
        Self { identity: identity.unwrap_or_default().into(), worker: shown.take(MAX_WORKER_BYTES).collect() }
    }
}

/// What is known of one result so far; times are RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Receipt {
    /// When its plugin was started.
    pub(super) started: Option<String>,
    /// When its worker was first heard of.
    pub(super) first_heartbeat: Option<String>,
    /// When the result was in place.
    pub(super) arrived: Option<String>,
    /// When an error took its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
    /// Bytes of the body.
    pub(super) size: u64,
    /// SHA-256 of the body as it was sent.
    pub(super) sha256: String,
    /// Who sent it.
    #[serde(flatten)]
    pub(super) sender: Sender,
    /// How many bodies were sent for it, this one included.
    pub(super) attempts: u64,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Received {
    plugin: String,
    node: String,
    #[serde(flatten)]
    receipt: Receipt,
}

impl State {
    /// The list, in the order of what is expected.
    pub(super) fn received(&self) -> Vec<Received> {
        let known = self.ids().filter_map(|id| Some((id, self.receipt(id)?)));
        known
            .map(|(id, receipt)| {
                let (plugin, node) = (id.plugin.clone(), id.node.clone());
                let mut receipt = receipt.clone();
                // A result that came after all is no failure.
                if matches!(self.standing(id), Some(Standing::Accepted { .. })) {
                    receipt.failed = None;
                }
                Received { plugin, node, receipt }
            })
            .collect()
    }

    /// Notes when `plugin` was started, unless that is known.
    pub(super) fn started(&mut self, plugin: &str, at: &str) {
        self.receipts(plugin).for_each(|receipt| {
            receipt.started.get_or_insert_with(|| at.to_owned());
        });
    }

    /// Notes that a body is being sent for `id`, by whom.
    pub(super) fn attempted(&mut self, id: &ResultId, sender: &Sender) {
        if let Some(receipt) = self.receipt_mut(id) {
            receipt.attempts += 1;
            receipt.sender = sender.clone();
        }
    }

    /// Takes in all that is known of the arrival of `id`.
    pub(super) fn keep(&mut self, id: &ResultId, receipt: Receipt) {
        if let Some(kept) = self.receipt_mut(id) {
            *kept = receipt;
        }
    }

    /// Notes when an error took the place of `id`.
    pub(super) fn failed_at(&mut self, id: &ResultId, at: String) {
        if let Some(receipt) = self.receipt_mut(id) {
            receipt.failed = Some(at);
        }
    }

    /// Notes that the result of `id`, which had come, is gone.
    pub(super) fn lost(&mut self, id: &ResultId) {
        if let Some(receipt) = self.receipt_mut(id) {
            let started = receipt.started.take();
            *receipt = Receipt { started, ..Receipt::default() };
        }
    }

    /// The receipt of a body that is about to be in place.
    pub(super) fn receipt_of(&self, id: &ResultId, sender: &Sender, size: u64, sha256: String) -> Receipt {
        let known = self.receipt(id).cloned().unwrap_or_default();
        Receipt { arrived: Some(clock::now()), size, sha256, sender: sender.clone(), ..known }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_a_worker_calls_itself_is_bounded_and_printable() {
        for (worker, kept) in [
            (None, String::new()),
            (Some("sonobuoy/0.60.0"), "sonobuoy/0.60.0".into()),
            (Some("a\u{1b}[31m\r\nb é"), "a[31mb ".into()),
            (Some(&*"x".repeat(1_000)), "x".repeat(MAX_WORKER_BYTES)),
        ] {
            assert_eq!(Sender::new(Some("plugin"), worker).worker, kept);
        }
    }

    #[test]
    fn the_list_says_of_each_result_what_became_of_it() {
        let ids = [ResultId::on_node("p", "a"), ResultId::on_node("p", "b"), ResultId::global("q")];
        let mut state = State::new(ids.to_vec());
        state.started("p", "t0");
        state.started("p", "t9");
        state.hear(&ids[0], Instant::now());
        let sender = Sender::new(Some("plugin"), Some("w/1"));
        state.attempted(&ids[0], &sender);
        state.attempted(&ids[0], &sender);
        let receipt = state.receipt_of(&ids[0], &sender, 7, "00".into());
        state.keep(&ids[0], receipt);
        state.settle(&ids[0], Standing::Accepted { identity: None });
        let list = serde_json::to_value(state.received()).unwrap();
        let (first, heard) = (&list[0], &list[0]["first_heartbeat"]);
        assert!(clock::parse_rfc3339(heard.as_str().unwrap()).is_some(), "{heard}");
        assert!(clock::parse_rfc3339(first["arrived"].as_str().unwrap()).is_some(), "{first}");
        for (key, value) in [
            ("plugin", "p"),
            ("node", "a"),
            ("started", "t0"),
            ("sha256", "00"),
            ("identity", "plugin"),
            ("worker", "w/1"),
        ] {
            assert_eq!(first[key], value, "{first}");
        }
        assert_eq!((&first["size"], &first["attempts"]), (&7.into(), &2.into()));
        assert_eq!(
            list[2].to_string(),
            r#"{"arrived":null,"attempts":0,"first_heartbeat":null,"identity":"","node":"global","plugin":"q","sha256":"","size":0,"started":null,"worker":""}"#
        );
    }
}
