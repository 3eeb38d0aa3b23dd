//! Formats a diagnosis as text, JSON and JUnit.

use std::fmt::Write as _;

use super::Diagnosis;
use super::finding::{Check, Finding, Severity};
use base::json::json;
use base::visible;
use base::xml;

/// Values of `--format`.
pub(crate) const FORMATS: &[&str] = &["text", "json", "junit"];

/// Formats a diagnosis in one of [`FORMATS`].
pub(crate) fn show(diagnosis: &Diagnosis, format: &str) -> String {
    match format {
        "json" => {
            let checks = diagnosis.checks.iter().map(|check| {
                let mut shown = json!(check);
                shown["status"] = json!(check.status());
                shown
            });
            let document = json!({"fit": diagnosis.is_fit(), "checks": checks.collect::<Vec<_>>()});
            format!("{document:#}\n")
        }
        "junit" => junit(diagnosis),
        _ => diagnosis.checks.iter().map(lines).collect::<String>() + &verdict(diagnosis),
    }
}

/// Formats a check as text, a line for each cause.
pub(crate) fn lines(check: &Check) -> String {
    let mut out = String::new();
    for finding in &check.findings {
        let word = if finding.severity == Severity::Fails { "FAIL" } else { "warn" };
        line(&mut out, word, check.name, &sentence(finding));
    }
    if let Some(why) = &check.skipped {
        line(&mut out, "skip", check.name, why);
    } else if check.findings.is_empty() {
        line(&mut out, "ok", check.name, &check.seen);
    }
    out
}

/// Last line of the text: the conclusion from all checks.
pub(crate) fn verdict(diagnosis: &Diagnosis) -> String {
    let count = |wanted: Severity| {
        let findings = diagnosis.checks.iter().flat_map(|check| &check.findings);
        findings.filter(|finding| finding.severity == wanted).count()
    };
    let verdict = match (count(Severity::Fails), count(Severity::Warns)) {
        (0, 0) => "fit for a run".to_owned(),
        (0, warnings) => format!("fit for a run; warnings: {warnings}"),
        (failures, _) => format!("not fit for a run; causes: {failures}"),
    };
    verdict + "\n"
}

fn line(out: &mut String, word: &str, name: &str, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{word:<4}  {name:<9}  {}", visible::line(&visible::without_codes(text)));
}

fn sentence(finding: &Finding) -> String {
    match &finding.remedy {
        Some(remedy) => format!("{}; {remedy}", finding.line()),
        None => finding.line(),
    }
}

fn junit(diagnosis: &Diagnosis) -> String {
    let of = |status: &str| diagnosis.checks.iter().filter(|check| check.status() == status).count();
    let counts = format!("tests=\"{}\" failures=\"{}\" errors=\"0\"", diagnosis.checks.len(), of("failed"));
    let mut out =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"sonobuoy\" {counts}>\n");
    let _ = writeln!(out, "<testsuite name=\"doctor\" {counts} skipped=\"{}\">", of("skipped"));
    for check in &diagnosis.checks {
        let _ = write!(out, "<testcase name=\"{}\" classname=\"doctor\">", check.name);
        out.push_str(&inside(check));
        out.push_str("</testcase>\n");
    }
    out + "</testsuite>\n</testsuites>\n"
}

fn inside(check: &Check) -> String {
    let lines: Vec<String> = check.findings.iter().map(sentence).collect();
    let escaped = |text: &str| xml::escape(text, false);
    let attribute = |text: &str| xml::escape(text, true);
    match check.status() {
        "failed" => {
            let first = check.findings.iter().find(|finding| finding.severity == Severity::Fails);
            let first = first.map(Finding::line).unwrap_or_default();
            format!("<failure message=\"{}\">{}</failure>", attribute(&first), escaped(&lines.join("\n")))
        }
        "skipped" => {
            format!("<skipped message=\"{}\"/>", attribute(check.skipped.as_deref().unwrap_or_default()))
        }
        _ => {
            let seen = [vec![check.seen.clone()], lines].concat().join("\n");
            format!("<system-out>{}</system-out>", escaped(&seen))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis() -> Diagnosis {
        let mut nodes = Check::new("nodes");
        nodes.add_all(
            Severity::Fails,
            ("nodes", 2),
            [("a".to_owned(), "not <ready>".to_owned(), Some("look".to_owned()))],
        );
        let mut server = Check::new("server");
        server.seen = "v1.33.4".into();
        Diagnosis { checks: vec![server, nodes, Check::skipped("echo", "no node")] }
    }

    #[test]
    fn people_get_a_line_for_each_cause() {
        assert_eq!(
            show(&diagnosis(), "text"),
            "ok    server     v1.33.4\n\
             FAIL  nodes      1 of 2 nodes: not <ready> (a); look\n\
             skip  echo       no node\n\
             not fit for a run; causes: 1\n"
        );
    }

    #[test]
    fn programs_get_the_same() {
        let json: serde_json::Value = serde_json::from_str(&show(&diagnosis(), "json")).unwrap();
        assert_eq!(json["fit"], false);
        assert_eq!(json["checks"][1]["status"], "failed");
        assert_eq!(
            json["checks"][1]["findings"][0]["extent"],
            json!({"count": 1, "of": 2, "unit": "nodes", "names": ["a"]})
        );
        let junit = show(&diagnosis(), "junit");
        assert!(
            junit.contains(r#"<testsuite name="doctor" tests="3" failures="1" errors="0" skipped="1">"#),
            "{junit}"
        );
        assert!(junit.contains(r#"<failure message="1 of 2 nodes: not &lt;ready&gt; (a)">"#), "{junit}");
    }
}
