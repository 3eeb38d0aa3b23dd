//! The receipts of all results, kept with their state: what is noted as they come, and the list in `meta/results.json`.
//!
//! Knows no files: the journal carries receipts over a restart.

use serde::Serialize;

use super::digests::Sha256;
use super::receipt::{Receipt, Sender};
use super::state::{Standing, State};
use base::{clock, hex};
use client::protocol::ResultId;

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Received {
    pub(crate) plugin: String,
    pub(crate) node: String,
    #[serde(flatten)]
    receipt: Receipt,
    /// Why the result is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl State {
    /// The list, in the order of what is expected.
    pub(super) fn received(&self) -> Vec<Received> {
        let known = self.ids().filter_map(|id| Some((id, self.receipt(id)?)));
        known
            .map(|(id, receipt)| {
                let (plugin, node) = (id.plugin.clone(), id.node.clone());
                let mut receipt = receipt.clone();
                let error = match self.standing(id) {
                    Some(Standing::Accepted { .. }) => {
                        // A result that came after all is no failure.
                        receipt.failed = None;
                        None
                    }
                    Some(Standing::Failed { error, .. } | Standing::Refused { reason: error, .. }) => {
                        Some(error.clone())
                    }
                    Some(Standing::Awaited) | None => Some("no result arrived".into()),
                };
                Received { plugin, node, receipt, error }
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

    /// The results whose file is the body that arrived, with its SHA-256.
    pub(super) fn arrived(&self) -> impl Iterator<Item = (ResultId, String)> {
        let known = self.ids().filter(|id| matches!(self.standing(id), Some(Standing::Accepted { .. })));
        let known = known.filter_map(|id| Some((id.clone(), self.receipt(id)?)));
        let known = known.filter(|(_, receipt)| !receipt.unpacked && !receipt.sha256.is_empty());
        known.map(|(id, receipt)| (id, receipt.sha256.clone()))
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
    pub(super) fn receipt_of(&self, id: &ResultId, sender: &Sender, size: u64, digest: &Sha256) -> Receipt {
        let known = self.receipt(id).cloned().unwrap_or_default();
        let (arrived, sha256) = (Some(clock::now()), hex(digest));
        Receipt { arrived, size, sha256, sender: sender.clone(), ..known }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// SHA-256 of nothing.
    const EMPTY: [u8; 32] = [
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
        0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
    ];

    #[test]
    fn the_list_says_of_each_result_what_became_of_it() {
        let ids = [ResultId::on_node("p", "a"), ResultId::on_node("p", "b"), ResultId::global("q")];
        let mut state = State::new(ids.to_vec(), 1 << 20);
        state.started("p", "t0");
        state.started("p", "t9");
        state.hear(&ids[0], Instant::now());
        let sender = Sender::new(Some("plugin"), Some("w/1"));
        state.attempted(&ids[0], &sender);
        state.attempted(&ids[0], &sender);
        let receipt = state.receipt_of(&ids[0], &sender, 7, &EMPTY);
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
            ("sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("identity", "plugin"),
            ("worker", "w/1"),
        ] {
            assert_eq!(first[key], value, "{first}");
        }
        assert_eq!((&first["size"], &first["attempts"]), (&7.into(), &2.into()));
        assert_eq!(
            list[2].to_string(),
            r#"{"arrived":null,"attempts":0,"error":"no result arrived","first_heartbeat":null,"identity":"","node":"global","plugin":"q","sha256":"","size":0,"started":null,"worker":""}"#
        );
    }
}
