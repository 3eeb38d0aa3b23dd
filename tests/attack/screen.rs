//! Foreign text on the user's screen: no control sequence is obeyed, no text forges a line, and
//! none reverses the text beside it.

use serde_json::json;

use crate::support::api_server::ApiServer;
use crate::support::{Folder, Sonobuoy};

pub(super) const CASES: usize = EVIL.len() * 5;

const EVIL: &[&str] = &[
    "\u{1b}[2J\u{1b}[1;1Hall passed",
    "\u{1b}]0;title\u{7}",
    "\u{1b}]8;;http://evil\u{1b}\\here",
    "\u{1b}P+q\u{1b}\\",
    "\u{9b}31m",
    "a\rPlugin: b",
    "a\nPlugin: forged\nStatus: passed",
    "a\u{8}\u{8}\u{8}b",
    "a\u{7f}b",
    "\u{202e}dessap\u{202c}",
    "\u{2066}x\u{2069}",
    "a\u{2028}b",
];

fn obeyed(c: char) -> bool {
    c.is_control() && c != '\n' || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks that no control sequence and no forged line remain, and that the text is still printed.
fn is_plain(what: &str, text: &str) {
    assert!(!text.contains(obeyed), "{what}: {text:?}");
    assert!(
        !text
            .lines()
            .any(|line| line.trim_start().starts_with("Plugin: forged")),
        "{what}: {text}"
    );
}

/// An archive in which every name, status and message is `evil`.
fn archive(evil: &str) -> Folder {
    let folder = Folder::new();
    // YAML supports these escapes, too.
    let escaped = |c: char| {
        if c.is_ascii_graphic() {
            c.to_string()
        } else {
            format!("\\u{:04x}", u32::from(c))
        }
    };
    let text: String = evil.replace('\\', "\\\\").chars().map(escaped).collect();
    let text = format!("\"{text}\"");
    folder.write("meta/info.json", json!({"plugins": ["p"]}).to_string());
    let tree = format!(
        "name: {text}\nstatus: {text}\nitems:\n- name: {text}\n  status: failed\n- name: {text}\n  status: {text}\n  details: {{failure: {text}}}\n"
    );
    folder.write("plugins/p/sonobuoy_results.yaml", tree);
    let detail = json!({"name": evil, "namespace": evil, "healthy": false, "ready": evil, "reason": evil, "message": evil});
    let part = json!({"total_nodes": 1, "healthy_nodes": 0, "details": [detail]});
    let health = json!({"node_health": part, "pod_health": part, "api_version": evil, "error_summary": {(evil): {(evil): 1}}});
    folder.write("meta/clusterhealth.json", health.to_string());
    folder
}

#[test]
fn reports_show_control_characters_visibly() {
    for evil in EVIL {
        let folder = archive(evil);
        for words in ["", "--format html", "--format json"] {
            let mut call = Sonobuoy::new("results").arg(folder.path());
            for word in words.split_whitespace() {
                call = call.arg(word);
            }
            let done = call.run_any();
            match words {
                "" => is_plain(evil, &done.stdout),
                "--format json" => {
                    drop(serde_json::from_str::<serde_json::Value>(&done.stdout).unwrap());
                }
                // A line feed in the page's text does not start a line.
                _ => assert!(!done.stdout.contains(obeyed), "{evil:?} on the page"),
            }
            is_plain(evil, &done.stderr);
        }
        let other = archive("plain");
        let diff = Sonobuoy::with([
            "results".as_ref(),
            "diff".as_ref(),
            folder.path(),
            other.path(),
        ])
        .run_any();
        is_plain(&format!("{evil:?} diff"), &diff.stdout);
    }
}

#[test]
fn status_shows_control_characters_visibly() {
    for evil in EVIL {
        let (api, home) = (ApiServer::start(), Folder::new());
        let progress = json!({"name": evil, "node": evil, "timestamp": "2024-01-01T00:00:00Z", "msg": evil, "failures": [evil]});
        let entry = json!({"plugin": evil, "node": evil, "status": evil, "result-status": evil, "message": evil, "progress": progress});
        let status = json!({"plugins": [entry], "status": "failed", "error": evil});
        api.put(
            "/api/v1/namespaces/sonobuoy",
            json!({"status": {"phase": "Active"}}),
        );
        api.put(
            "/api/v1/namespaces/sonobuoy/pods/sonobuoy",
            json!({
                "metadata": {"labels": {"sonobuoy-component": "aggregator"},
                    "annotations": {"sonobuoy.hept.io/status": status.to_string()}},
                "status": {"phase": "Running"},
            }),
        );
        let kubeconfig = api.kubeconfig(home.path());
        for words in ["status", "status --show-all", "status --json"] {
            let done = Sonobuoy::new(words)
                .arg("--kubeconfig")
                .arg(&kubeconfig)
                .status(1)
                .run_any();
            is_plain(&format!("{evil:?} {words}"), &done.stdout);
            is_plain(&format!("{evil:?} {words}"), &done.stderr);
        }
    }
}
