//! Checks access to the cluster: whether the API server responds, expiry of certificates, clock
//! skew, the account's permissions, and each object of the run in a dry run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Subject;
use super::finding::Severity::{self, Fails, Warns};
use super::finding::{Check, CheckFinding};
use super::trial_namespace::TrialNamespace;
use crate::deploy::{Preflight, Refused, Trial, foreign_bindings};
use base::{Joined as _, clock};
use kube::{Client, Error, Resource, Stage};
use run::backplane::not_after;

/// Remaining validity below which a certificate is reported.
const ENDS_SOON: Duration = Duration::from_secs(7 * 24 * 3600);
/// Skew at which tokens and leases start to fail.
const MAX_SKEW_SECONDS: f64 = 5.0;

/// Checks the server; returns whether it responds, without which other checks make no sense.
pub(crate) fn reach(client: &Client) -> (Check, bool) {
    let mut check = Check::new("server");
    let config = client.config();
    let version = match client.version() {
        Ok(version) => version,
        Err(error) => {
            let is_silent =
                matches!(&error, Error::Transport { stage, .. } if *stage != Stage::Distrusted);
            let remedy =
                is_silent.then_some("check the address in the kubeconfig, VPN, proxy and firewall");
            check.fail(format!("{error} ({})", config.source), remedy);
            return (check, false);
        }
    };
    let mut observations = vec![format!(
        "{} at {}",
        version["gitVersion"]
            .as_str()
            .unwrap_or("an unnamed version"),
        config.server
    )];
    let of = [
        (
            "the server's certificate",
            "renew the certificates of the control plane",
        ),
        ("your certificate", "renew the kubeconfig"),
    ];
    for (certificate, (whose, remedy)) in client.certificates().unwrap_or_default().iter().zip(of) {
        let Some(end) = certificate
            .as_ref()
            .and_then(not_after)
            .map(|since| UNIX_EPOCH + since)
        else {
            continue;
        };
        let day = clock::rfc3339(end)[..10].to_owned();
        match end.duration_since(SystemTime::now()) {
            Ok(left) if left > ENDS_SOON => observations.push(format!("{whose} until {day}")),
            Ok(_) => check.add(Warns, format!("{whose} ends on {day}"), Some(remedy)),
            Err(_) => check.fail(format!("{whose} ended on {day}"), Some(remedy)),
        }
    }
    if let Ok(Some((offset, doubt))) = client.clock() {
        if offset.abs() - doubt > MAX_SKEW_SECONDS {
            let way = if offset > 0.0 { "ahead of" } else { "behind" };
            let cause = format!(
                "the clock is wrong: this machine's is {:.0} s {way} the API server's",
                offset.abs()
            );
            let remedy = "let NTP or chrony keep both clocks";
            check.add(Warns, cause, Some(remedy));
        } else {
            observations.push("clocks agree".into());
        }
    }
    check.seen = observations.join(", ");
    (check, true)
}

/// Permissions that commands need in the run's namespace, beyond creating the run: verb, resource,
/// purpose, and severity.
const LATER: [(&str, &str, &str, Severity); 5] = [
    ("get", "pods", "status, wait", Fails),
    ("watch", "pods", "wait", Warns),
    ("get", "pods/log", "logs", Warns),
    ("create", "pods/exec", "retrieve", Fails),
    ("delete", "pods", "delete", Warns),
];

/// Checks permissions, and tries objects in `trial_namespace`.
pub(super) fn rights(
    client: &Client,
    subject: &Subject<'_>,
    trial_namespace: Option<&TrialNamespace>,
) -> [Check; 2] {
    let (mut rights, mut objects) = (Check::new("rights"), Check::new("objects"));
    // The pods of controllers count, too.
    let all: Vec<_> = subject
        .objects
        .iter()
        .cloned()
        .chain(subject.pods())
        .collect();
    let stand_in = trial_namespace.and_then(TrialNamespace::stand_in);
    let trial = match Trial::new(client, &all, subject.namespace, stand_in) {
        Ok(trial) => trial,
        Err(error) => {
            let rights = Check::skipped("rights", "the objects of the run are not known");
            return [rights, Check::failed("objects", format!("{error:#}"))];
        }
    };
    let create = trial
        .kinds
        .into_iter()
        .map(|(kind, namespace)| ("create", kind, namespace, "run", Fails));
    let later = LATER.map(|(verb, plural, what, severity)| {
        let resource = Resource {
            plural: plural.into(),
            ..Resource::PODS
        };
        (verb, resource, subject.namespace.to_owned(), what, severity)
    });
    let wanted: Vec<_> = create.chain(later).collect();
    let count = wanted.len();
    let mut missing: Vec<(Severity, String, String)> = Vec::new();
    for (verb, resource, namespace, what, severity) in wanted {
        match client.allowed(verb, &resource, &namespace) {
            Ok(true) => {}
            Ok(false) => {
                let within = if namespace.is_empty() {
                    String::new()
                } else {
                    format!(" in namespace `{namespace}`")
                };
                let right = format!("{verb} {}", resource.plural);
                let cause =
                    format!("your account may not {right}{within}, which `sonobuoy {what}` does");
                missing.push((severity, right, cause));
            }
            Err(error) => {
                rights.skipped = Some(format!("the server does not tell rights: {error}"));
            }
        }
    }
    if let Some(severity) = missing.iter().map(|(severity, ..)| *severity).min() {
        let cause = match &missing[..] {
            [(.., cause)] => cause.clone(),
            several => {
                let names = several
                    .iter()
                    .map(|(_, right, _)| right.as_str())
                    .joined(", ");
                format!(
                    "your account lacks {} of {count} rights: {names}",
                    several.len()
                )
            }
        };
        rights.add(
            severity,
            cause,
            Some("ask for that right, or see `--aggregator-permissions`"),
        );
    }
    for cause in foreign_bindings(client, subject.objects, subject.namespace) {
        rights.add(Warns, cause, None);
    }
    rights.seen = format!("{} of {count}", count - missing.len());
    let total = all.len();
    objects.seen = format!(
        "{} of {total} objects would be created",
        total - trial.refused.len()
    );
    // Refusals for lack of permission were reported with the permissions. Without a namespace to
    // try them in, every object is rejected for that reason.
    let (told, refused): (Vec<_>, Vec<_>) = trial.refused.into_iter().partition(|refused| {
        !missing.is_empty() && (refused.lacks_right.is_some() || trial_namespace.is_none())
    });
    if !told.is_empty() {
        let number = told.len();
        objects.skipped = Some(format!(
            "{number} of {total} objects cannot be tried without these rights"
        ));
    }
    let refused = refused.into_iter().map(
        |Refused {
             object,
             why,
             remedy,
             ..
         }| {
            // The prefix names the object.
            let essential = why
                .split_once(" is forbidden: ")
                .map_or(&*why, |(_, why)| why);
            (object.unwrap_or_default(), essential.to_owned(), remedy)
        },
    );
    objects.add_all(("objects", total), refused);
    [rights, objects]
}

/// Makes the checks of `run` before it creates anything.
pub(super) fn preflight(client: &Client, preflight: &Preflight<'_>) -> Check {
    // A colon follows the check's name; the message includes the remedy.
    let finding = |cause| CheckFinding {
        severity: Fails,
        cause,
        extent: None,
        remedy: None,
    };
    Check {
        findings: preflight
            .failures(client)
            .into_iter()
            .map(finding)
            .collect(),
        seen: "name service, version, namespace".into(),
        ..Check::new("preflight")
    }
}
