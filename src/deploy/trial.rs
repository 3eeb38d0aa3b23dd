//! Dry runs of a run's objects: the server checks each one, admission included, and creates nothing.
//!
//! Objects of a namespace that does not exist are tried in another one. Starts no thread.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use super::apply::{Refused, refusals, resolve};
use base::kube::{Client, Discovery, Object as _, Resource};

/// Replaces the run's namespace, and its accounts, in a dry run.
#[derive(Clone, Copy)]
pub(crate) struct StandIn<'a> {
    /// Its name.
    pub namespace: &'a str,
    /// Name of the account.
    pub account: &'a str,
}

/// Objects that a run would create, and those that the server would refuse.
pub(crate) struct Trial {
    /// Kinds of objects and their namespaces.
    pub kinds: BTreeSet<(Resource, String)>,
    /// Refused objects.
    pub refused: Vec<Refused>,
}

impl Trial {
    /// Tries `objects` of a run in the namespace `home`.
    pub(crate) fn new(
        client: &Client,
        known: &Discovery,
        objects: &[Value],
        home: &str,
        stand_in: Option<StandIn<'_>>,
    ) -> Result<Self> {
        let kinds = resolve(known, objects, home)?;
        let kinds = kinds.iter().map(|object| (object.resource.clone(), object.namespace.clone())).collect();
        let place = stand_in.map_or(home, |other| other.namespace);
        let moved = |object: &Value| stand_in.map_or(object.clone(), |other| moved(object, home, other));
        let moved: Vec<Value> = objects.iter().map(moved).collect();
        let mut refused = refusals(client, &resolve(known, &moved, place)?, place);
        for refused in &mut refused {
            let texts = [Some(&mut refused.why), refused.remedy.as_mut()];
            texts.into_iter().flatten().for_each(|text| *text = text.replace(place, home));
        }
        Ok(Self { kinds, refused })
    }
}

fn moved(object: &Value, home: &str, other: StandIn<'_>) -> Value {
    let mut object = object.clone();
    if object.namespace() == home {
        object["metadata"]["namespace"] = other.namespace.into();
        if object["kind"] == "Pod" {
            object["spec"]["serviceAccountName"] = other.account.into();
        }
    }
    object
}
