//! The objects of a run, tried one by one by the server: everything is checked, admission included, and nothing is created.
//!
//! What lives in a namespace that does not exist cannot be tried there; another takes its place. Starts no thread.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use super::apply::{Refused, refusals, resolve};
use base::kube::{Client, Discovery, Resource};

/// A namespace that takes the place of the run's, and an account in it that takes the place of the run's accounts.
#[derive(Clone, Copy)]
pub(crate) struct StandIn<'a> {
    /// Its name.
    pub namespace: &'a str,
    /// The account's.
    pub account: &'a str,
}

/// What a run would create, and what the server would refuse of that.
pub(crate) struct Trial {
    /// Kinds of objects, and where they would be created.
    pub kinds: BTreeSet<(Resource, String)>,
    /// What does not pass.
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
        let Some(other) = stand_in else {
            return Ok(Self { kinds, refused: refusals(client, &resolve(known, objects, home)?, home) });
        };
        let moved: Vec<Value> = objects.iter().map(|object| moved(object, home, other)).collect();
        let mut refused = refusals(client, &resolve(known, &moved, other.namespace)?, other.namespace);
        for refused in &mut refused {
            let texts = [Some(&mut refused.why), refused.remedy.as_mut()];
            texts.into_iter().flatten().for_each(|text| *text = text.replace(other.namespace, home));
        }
        Ok(Self { kinds, refused })
    }
}

fn moved(object: &Value, home: &str, other: StandIn<'_>) -> Value {
    let mut object = object.clone();
    if object["metadata"]["namespace"] == home {
        object["metadata"]["namespace"] = other.namespace.into();
        if object["kind"] == "Pod" {
            object["spec"]["serviceAccountName"] = other.account.into();
        }
    }
    object
}
