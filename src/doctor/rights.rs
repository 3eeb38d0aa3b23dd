//! What the account may do, and what the server would say to each object of the run.

use serde_json::Value;

use super::Subject;
use super::finding::{Check, Severity};
use super::place::Place;
use crate::deploy::{Preflight, Trial};
use base::kube::{Client, Resource};

/// What commands need beyond creating the run: verb, resource, whether in its namespace, for what, and how bad it is
/// not to have it.
const LATER: &[(&str, &str, &str, bool, &str, Severity)] = &[
    ("get", "", "pods", true, "status, wait", Severity::Fails),
    ("watch", "", "pods", true, "wait", Severity::Warns),
    ("get", "", "pods/log", true, "logs", Severity::Warns),
    ("create", "", "pods/exec", true, "retrieve", Severity::Fails),
    ("delete", "", "pods", true, "delete", Severity::Warns),
];

/// Rights, and objects tried in `place`.
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
    let (mut asked, mut missing) = (0, 0);
    for (verb, resource, namespace, what, severity) in create.chain(later) {
        asked += 1;
        match client.allowed(verb, &resource, &namespace) {
            Ok(true) => {}
            Ok(false) => {
                missing += 1;
                let within =
                    if namespace.is_empty() { String::new() } else { format!(" in namespace `{namespace}`") };
                let cause = format!(
                    "your account may not {verb} {}{within}, which `sonobuoy {what}` does",
                    resource.plural
                );
                rights.add(severity, cause, Some("ask for that right, or see `--aggregator-permissions`"));
            }
            Err(error) => rights.skipped = Some(format!("the server does not tell rights: {error}")),
        }
    }
    rights.seen = format!("{} of {asked}", asked - missing);
    let total = subject.with_pods().len();
    objects.seen = format!("{} of {total} objects would be created", total - trial.refused.len());
    // What stands before that names the object.
    let why = |why: String| {
        why.split_once(" is forbidden: ").map_or_else(|| why.clone(), |(_, why)| why.to_owned())
    };
    // What is for want of a right was told with the rights.
    let refused = trial.refused.into_iter().filter(|refused| missing == 0 || !refused.lacks_right);
    let refused =
        refused.map(|refused| (refused.object.unwrap_or_default(), why(refused.why), refused.remedy));
    objects.add_all(Severity::Fails, ("objects", total), refused);
    [rights, objects]
}

/// What `run` looks at before it creates anything.
pub(super) fn preflight(client: &Client, preflight: &Preflight<'_>) -> Check {
    let mut check = Check::new("preflight");
    for failure in preflight.failures(client) {
        // A colon stands behind the check's name, and what to do is part of what it says.
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
