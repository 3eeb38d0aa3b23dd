//! Checks the account's permissions, and each object of the run in a dry run.

use super::Subject;
use super::finding::{Check, CheckFinding, Severity};
use super::trial_namespace::TrialNamespace;
use crate::deploy::{Preflight, Refused, Trial};
use base::kube::{Client, Resource};

/// Permissions that commands need in the run's namespace, beyond creating the run: verb, resource, purpose, and severity.
const LATER: [(&str, &str, &str, Severity); 5] = [
    ("get", "pods", "status, wait", Severity::Fails),
    ("watch", "pods", "wait", Severity::Warns),
    ("get", "pods/log", "logs", Severity::Warns),
    ("create", "pods/exec", "retrieve", Severity::Fails),
    ("delete", "pods", "delete", Severity::Warns),
];

/// Checks permissions, and tries objects in `trial_namespace`.
pub(super) fn check(
    client: &Client,
    subject: &Subject<'_>,
    trial_namespace: Option<&TrialNamespace>,
) -> [Check; 2] {
    let (mut rights, mut objects) = (Check::new("rights"), Check::new("objects"));
    let account = trial_namespace.map(TrialNamespace::account_name).unwrap_or_default();
    let all = subject.with_pods();
    let tried = client.discover().map_err(Into::into).and_then(|known| {
        let stand_in = trial_namespace.and_then(|trial_namespace| trial_namespace.stand_in(&account));
        Trial::new(client, &known, &all, subject.namespace, stand_in)
    });
    let trial = match tried {
        Ok(trial) => trial,
        Err(error) => {
            let rights = Check::skipped("rights", "the objects of the run are not known");
            return [rights, Check::failed("objects", format!("{error:#}"))];
        }
    };
    let create =
        trial.kinds.into_iter().map(|(kind, namespace)| ("create", kind, namespace, "run", Severity::Fails));
    let later = LATER.map(|(verb, plural, what, severity)| {
        let resource = Resource { plural: plural.into(), ..Resource::PODS };
        (verb, resource, subject.namespace.to_owned(), what, severity)
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
    let cause = match &missing[..] {
        [(.., cause)] => cause.clone(),
        several => {
            let names: Vec<&str> = several.iter().map(|(_, right, _)| right.as_str()).collect();
            format!("your account lacks {} of {asked} rights: {}", names.len(), names.join(", "))
        }
    };
    let fails = missing.iter().any(|(severity, ..)| *severity == Severity::Fails);
    if !missing.is_empty() {
        let remedy = Some("ask for that right, or see `--aggregator-permissions`");
        rights.add(if fails { Severity::Fails } else { Severity::Warns }, cause, remedy);
    }
    rights.seen = format!("{} of {asked}", asked - missing.len());
    let (total, rejected) = (all.len(), trial.refused.len());
    objects.seen = format!("{} of {total} objects would be created", total - rejected);
    // Refusals for lack of permission were reported with the permissions. Without a namespace to try them in, every object
    // is rejected for that reason.
    let told = |refused: &Refused| {
        !missing.is_empty() && (refused.lacks_right.is_some() || trial_namespace.is_none())
    };
    let refused: Vec<_> = trial.refused.into_iter().filter(|refused| !told(refused)).collect();
    if refused.len() < rejected {
        let number = rejected - refused.len();
        objects.skipped = Some(format!("{number} of {total} objects cannot be tried without these rights"));
    }
    let refused = refused.into_iter().map(|Refused { object, why, remedy, .. }| {
        // The prefix names the object.
        let essential = why.split_once(" is forbidden: ").map_or(&*why, |(_, why)| why);
        (object.unwrap_or_default(), essential.to_owned(), remedy)
    });
    objects.add_all(("objects", total), refused);
    [rights, objects]
}

/// Makes the checks of `run` before it creates anything.
pub(super) fn preflight(client: &Client, preflight: &Preflight<'_>) -> Check {
    // A colon follows the check's name; the message includes the remedy.
    let finding = |cause| CheckFinding { severity: Severity::Fails, cause, extent: None, remedy: None };
    Check {
        findings: preflight.failures(client).into_iter().map(finding).collect(),
        seen: "name service, version, namespace".into(),
        ..Check::new("preflight")
    }
}
