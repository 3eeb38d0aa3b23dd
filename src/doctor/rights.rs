//! Checks the account's permissions, and each object of the run in a dry run.

use serde_json::Value;

use super::Subject;
use super::finding::{Check, Severity};
use super::place::Place;
use crate::deploy::{Preflight, Refused, Trial};
use base::kube::{Client, Resource};

/// Permissions that commands need beyond creating the run: verb, resource, whether in its namespace, purpose, and
/// severity.
const LATER: &[(&str, &str, &str, bool, &str, Severity)] = &[
    ("get", "", "pods", true, "status, wait", Severity::Fails),
    ("watch", "", "pods", true, "wait", Severity::Warns),
    ("get", "", "pods/log", true, "logs", Severity::Warns),
    ("create", "", "pods/exec", true, "retrieve", Severity::Fails),
    ("delete", "", "pods", true, "delete", Severity::Warns),
];

/// Checks permissions, and tries objects in `place`.
pub(super) fn check(client: &Client, subject: &Subject<'_>, place: Option<&Place>) -> [Check; 2] {
    let (mut rights, mut objects) = (Check::new("rights"), Check::new("objects"));
    let account = place.map(Place::account_name).unwrap_or_default();
    let tried = client.discover().map_err(Into::into).and_then(|known| {
        let stand_in = place.and_then(|place| place.stand_in(&account));
        Trial::new(client, &known, &subject.with_pods(), subject.namespace, stand_in)
    });
    let trial = match tried {
        Ok(trial) => trial,
        Err(error) => {
            objects.add(Severity::Fails, format!("{error:#}"), None);
            return [Check::skipped("rights", "the objects of the run are not known"), objects];
        }
    };
    let create =
        trial.kinds.into_iter().map(|(kind, namespace)| ("create", kind, namespace, "run", Severity::Fails));
    let later = LATER.iter().map(|(verb, group, plural, namespaced, what, severity)| {
        let resource = Resource { group: (*group).into(), plural: (*plural).into(), ..Resource::PODS };
        let namespace = if *namespaced { subject.namespace } else { "" };
        (*verb, resource, namespace.to_owned(), *what, *severity)
    });
    let mut asked = 0;
    let mut missing: Vec<(Severity, String, String)> = Vec::new();
    for (verb, resource, namespace, what, severity) in create.chain(later) {
        asked += 1;
        match client.allowed(verb, &resource, &namespace) {
            Ok(true) => {}
            Ok(false) => {
                let within =
                    if namespace.is_empty() { String::new() } else { format!(" in namespace `{namespace}`") };
                let right = format!("{verb} {}", resource.plural);
                let cause = format!("your account may not {right}{within}, which `sonobuoy {what}` does");
                missing.push((severity, right, cause));
            }
            Err(error) => rights.skipped = Some(format!("the server does not tell rights: {error}")),
        }
    }
    let remedy = Some("ask for that right, or see `--aggregator-permissions`");
    match &missing[..] {
        [] => {}
        [(severity, _, cause)] => rights.add(*severity, cause.clone(), remedy),
        several => {
            let fails = several.iter().any(|(severity, ..)| *severity == Severity::Fails);
            let names: Vec<&str> = several.iter().map(|(_, right, _)| right.as_str()).collect();
            let cause = format!("your account lacks {} of {asked} rights: {}", names.len(), names.join(", "));
            rights.add(if fails { Severity::Fails } else { Severity::Warns }, cause, remedy);
        }
    }
    rights.seen = format!("{} of {asked}", asked - missing.len());
    let total = subject.with_pods().len();
    objects.seen = format!("{} of {total} objects would be created", total - trial.refused.len());
    // The prefix names the object.
    let why = |why: String| {
        why.split_once(" is forbidden: ").map_or_else(|| why.clone(), |(_, why)| why.to_owned())
    };
    // Refusals for lack of permission were reported with the permissions.
    let all = trial.refused.len();
    // Without a namespace to try them in, every object is rejected for that reason.
    let told = |refused: &Refused| !missing.is_empty() && (refused.lacks_right.is_some() || place.is_none());
    let refused: Vec<Refused> = trial.refused.into_iter().filter(|refused| !told(refused)).collect();
    if refused.len() < all {
        objects.skipped =
            Some(format!("{} of {total} objects cannot be tried without these rights", all - refused.len()));
    }
    let refused = refused
        .into_iter()
        .map(|refused| (refused.object.unwrap_or_default(), why(refused.why), refused.remedy));
    objects.add_all(Severity::Fails, ("objects", total), refused);
    [rights, objects]
}

/// Makes the checks of `run` before it creates anything.
pub(super) fn preflight(client: &Client, preflight: &Preflight<'_>) -> Check {
    let mut check = Check::new("preflight");
    for failure in preflight.failures(client) {
        // A colon follows the check's name; the message includes the remedy.
        check.findings.push(super::finding::Finding {
            severity: Severity::Fails,
            cause: failure,
            extent: None,
            remedy: None,
        });
    }
    check.seen = "name service, version, namespace".into();
    check
}

/// Whether an object is the pod of an aggregator.
pub(super) fn is_aggregator(object: &Value) -> bool {
    object["kind"] == "Pod"
        && object["metadata"]["labels"][crate::names::LABEL_PART] == crate::names::AGGREGATOR
}
