//! Checks the API server: reachability, expiry of certificates, clock skew.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::finding::{Check, Severity};
use crate::backplane::not_after;
use base::clock;
use base::kube::{Client, Error, Stage};

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
            let is_silent = matches!(&error, Error::Transport { stage, .. } if *stage != Stage::Distrusted);
            let remedy = is_silent.then_some("check the address in the kubeconfig, VPN, proxy and firewall");
            check.fail(format!("{error} ({})", config.source), remedy);
            return (check, false);
        }
    };
    let mut seen = vec![format!(
        "{} at {}",
        version["gitVersion"].as_str().unwrap_or("an unnamed version"),
        config.server
    )];
    let of = [
        ("the server's certificate", "renew the certificates of the control plane"),
        ("your certificate", "renew the kubeconfig"),
    ];
    for (certificate, (whose, remedy)) in client.certificates().unwrap_or_default().iter().zip(of) {
        let Some(end) = certificate.as_ref().and_then(not_after).map(|since| UNIX_EPOCH + since) else {
            continue;
        };
        let day = clock::rfc3339(end)[..10].to_owned();
        match end.duration_since(SystemTime::now()) {
            Ok(left) if left > ENDS_SOON => seen.push(format!("{whose} until {day}")),
            Ok(_) => check.add(Severity::Warns, format!("{whose} ends on {day}"), Some(remedy)),
            Err(_) => check.fail(format!("{whose} ended on {day}"), Some(remedy)),
        }
    }
    if let Ok(Some((offset, doubt))) = client.clock() {
        if offset.abs() - doubt > MAX_SKEW_SECONDS {
            let way = if offset > 0.0 { "ahead of" } else { "behind" };
            let cause =
                format!("the clock is wrong: this machine's is {:.0} s {way} the API server's", offset.abs());
            let remedy = "let NTP or chrony keep both clocks";
            check.add(Severity::Warns, cause, Some(remedy));
        } else {
            seen.push("clocks agree".into());
        }
    }
    check.seen = seen.join(", ");
    (check, true)
}
