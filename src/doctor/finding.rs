//! Checks and their findings: one finding for each cause, with the names of the affected objects.
//!
//! Pure. `causes` decides which texts are equivalent.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::causes::{self, Causes, Failure};

/// Maximum names listed per finding.
const MAX_NAMES: usize = 3;

/// A check.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Summary.
    pub seen: String,
    /// Why it was skipped, in whole or in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Problems found.
    pub findings: Vec<Finding>,
    /// Measurements by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, Value>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// A run, or one of its plugins, will fail.
    Fails,
    /// A run may fail.
    Warns,
}

/// A problem.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Cause.
    pub cause: String,
    /// Affected objects, if it concerns a subset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extent: Option<Extent>,
    /// Remedy.
    pub remedy: Option<String>,
}

/// Number of affected objects.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Extent {
    /// Affected.
    pub count: usize,
    /// Total.
    pub of: usize,
    /// `nodes`, `objects`, `images`, `rights`.
    pub unit: &'static str,
    /// Names of the first ones.
    pub names: Vec<String>,
}

impl Check {
    /// A check without findings.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// A skipped check.
    pub(crate) fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, skipped: Some(why.into()), ..Self::default() }
    }

    /// Adds a finding about the whole. The cause provides the default remedy.
    pub(crate) fn add(&mut self, severity: Severity, cause: impl Into<String>, remedy: Option<&str>) {
        let cause = cause.into();
        let remedy = remedy.or_else(|| causes::remedy(&cause)).map(str::to_owned);
        self.findings.push(Finding { severity, cause, extent: None, remedy });
    }

    /// Adds one finding for each cause among `found`: affected object, problem, and remedy; the cause provides the
    /// default remedy.
    pub(crate) fn add_all(
        &mut self,
        severity: Severity,
        (unit, of): (&'static str, usize),
        found: impl IntoIterator<Item = (String, String, Option<String>)>,
    ) {
        let found: Vec<_> = found.into_iter().collect();
        let masked = Causes::new(found.iter().map(|(name, ..)| name.as_str()));
        let first = self.findings.len();
        let mut places: Vec<(String, usize)> = Vec::new();
        for (name, text, remedy) in found {
            let key = masked.name(&Failure { text: essence(&text), ..Failure::default() });
            let known = places.iter().find(|(other, _)| *other == key).map(|(_, place)| *place);
            let place = known.unwrap_or(self.findings.len());
            if known.is_none() {
                places.push((key, place));
                let remedy = remedy.or_else(|| causes::remedy(&text).map(str::to_owned));
                let extent = Extent { count: 0, of, unit, names: Vec::new() };
                self.findings.push(Finding { severity, cause: text, extent: Some(extent), remedy });
            }
            if let Some(extent) = &mut self.findings[place].extent
                && !extent.names.contains(&name)
            {
                extent.count += 1;
                extent.names.push(name);
            }
        }
        for extent in self.findings[first..].iter_mut().filter_map(|finding| finding.extent.as_mut()) {
            extent.names.truncate(MAX_NAMES);
        }
    }

    /// `passed`, `warned`, `failed` or `skipped`.
    pub(crate) fn status(&self) -> &'static str {
        let any = |wanted| self.findings.iter().any(|finding| finding.severity == wanted);
        if any(Severity::Fails) {
            "failed"
        } else if any(Severity::Warns) {
            "warned"
        } else if self.skipped.is_some() {
            "skipped"
        } else {
            "passed"
        }
    }
}

impl Finding {
    /// One line for display, without the remedy.
    pub(crate) fn line(&self) -> String {
        match &self.extent {
            None => self.cause.clone(),
            Some(Extent { count, of, unit, names }) => {
                let more = if *count > names.len() { ", …" } else { "" };
                format!("{count} of {of} {unit}: {} ({}{more})", self.cause, names.join(", "))
            }
        }
    }
}

/// Part of a text that identifies its cause: pods violate a level in different fields and containers.
fn essence(text: &str) -> &str {
    let level =
        text.find("violates PodSecurity \"").and_then(|at| text[at..].find("\":").map(|end| at + end));
    level.map_or(text, |end| &text[..end])
}

/// Removes findings that an earlier check has reported with the same remedy.
pub(crate) fn once(earlier: &[Check], check: &mut Check) {
    let remedies: Vec<&String> =
        earlier.iter().flat_map(|check| &check.findings).filter_map(|one| one.remedy.as_ref()).collect();
    let told = |finding: &Finding| {
        remedies
            .iter()
            .any(|remedy| finding.remedy.as_ref() == Some(*remedy) || finding.cause.contains(&**remedy))
    };
    let before = check.findings.len();
    check.findings.retain(|finding| !told(finding));
    if check.findings.is_empty() && before > 0 && check.seen.is_empty() {
        check.skipped = Some("not possible, for a reason above".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_with_one_cause_are_one_finding_with_a_count_and_examples() {
        let mut check = Check::new("echo");
        let refused = |node: u8| {
            let text = format!(
                "cannot reach the aggregator: no connection to 10.0.0.{node}:8080: Connection refused"
            );
            (format!("node-{node}"), text, None)
        };
        let odd = ("node-9".to_owned(), "odd".to_owned(), Some("look".to_owned()));
        check.add_all(Severity::Fails, ("nodes", 40), (1..6).map(refused).chain([odd]));
        let lines: Vec<_> = check.findings.iter().map(Finding::line).collect();
        assert_eq!(
            lines,
            [
                "5 of 40 nodes: cannot reach the aggregator: no connection to 10.0.0.1:8080: Connection refused \
                 (node-1, node-2, node-3, …)",
                "1 of 40 nodes: odd (node-9)",
            ]
        );
        assert!(check.findings[0].remedy.as_ref().unwrap().contains("network policy"));
        assert_eq!(check.findings[1].remedy.as_deref(), Some("look"));
        assert_eq!(check.status(), "failed");
    }

    #[test]
    fn pods_that_violate_one_level_are_one_finding() {
        let mut check = Check::new("objects");
        let refused = |pod: &str, field: &str| {
            (pod.to_owned(), format!("violates PodSecurity \"baseline:latest\": {field}"), None)
        };
        check.add_all(Severity::Fails, ("objects", 9), [refused("a", "hostPID"), refused("b", "privileged")]);
        let [only] = &check.findings[..] else { panic!("{check:?}") };
        assert_eq!(only.line(), "2 of 9 objects: violates PodSecurity \"baseline:latest\": hostPID (a, b)");
    }

    #[test]
    fn a_cause_is_told_where_it_was_met_first() {
        let mut first = Check::new("images");
        first.add(Severity::Fails, "`x:1` is missing", Some("push it"));
        let mut second = Check::new("echo");
        second.add(Severity::Fails, "ErrImagePull", Some("push it"));
        second.add(Severity::Fails, "no image; push it", None);
        second.add(Severity::Warns, "slow", None);
        let repeated = [first];
        once(&repeated, &mut second);
        assert_eq!((second.findings.len(), second.status()), (1, "warned"));
        let mut third = Check::new("nodes");
        third.add(Severity::Fails, "ErrImagePull", Some("push it"));
        once(&repeated, &mut third);
        assert_eq!(third.status(), "skipped");
    }
}
