//! Masks the variable parts of failures: numbers, addresses, identifiers, times, names of nodes.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::frame;
use base::Joined as _;

/// Ports from here on are assigned by the system, and masked.
const EPHEMERAL: u32 = 10_000;

/// Tokens, the first match counts: numbers that matter after such a word; times; UUIDs; hashes;
/// addresses and words, each with its port.
static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    const HOST: &str = concat!(
        r"(?:(?<ip>\b\d{1,3}(?:\.\d{1,3}){3}\b|H(?::H){7}\b|H(?::H)*::(?:H(?::H)*)?\b|::H(?::H)*\b)",
        r"|(?<word>\w+(?:[.-]+\w+)*%?))(?<close>\]?)(?::(?<port>\d+)\b)?",
    );
    let tokens = [
        r"(?<keep>(?i:\b(?:code|status|http|answered|signal|port|exit)):*[^\w.:/+%@-]+\d+\b)",
        r"(?<time>\d{4}[-/]\d\d[-/]\d\d(?:[\w.:+-]*\w)?|\b\d\d:\d\d:\d\d(?:[\w.:+-]*\w)?)",
        r"(?<id>\b[[:xdigit:]]{8}(?:-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}\b)",
        r"(?<hash>\b0x[[:xdigit:]]{5,}\b|\b[[:xdigit:]]{12,}\b)",
        &HOST.replace('H', "[[:xdigit:]]{1,4}"),
    ];
    Regex::new(&tokens.join("|")).expect("a valid pattern")
});

/// Suffixes of a run's own pods: plugin and run, and node; and Kubernetes' random ones: the hash of
/// a template, a pod's own, or both.
static SUFFIX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"-[[:xdigit:]]{16}\b(?:-[[:xdigit:]]{10}\b)?|-R{8,10}\b(?:-R{5}\b)?|-R{5}\b"
            .replace('R', "[b-df-hj-np-tv-xz24-9]")
            .as_str(),
    )
    .expect("a valid pattern")
});

/// A line with its variable parts masked.
pub(super) fn mask(line: &str, nodes: &HashSet<String>) -> String {
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let line = line
        .split(blank)
        .filter(|word| !word.is_empty())
        .joined(" ");
    let masked = TOKENS.replace_all(&line, |token: &Captures<'_>| mask_token(token, nodes));
    masked.into_owned()
}

fn mask_token(token: &Captures<'_>, nodes: &HashSet<String>) -> String {
    let group = |name| token.name(name).map(|part| part.as_str());
    for name in ["time", "id", "hash"] {
        if group(name).is_some() {
            return format!("<{name}>");
        }
    }
    let Some(host) = group("ip").or_else(|| group("word")) else {
        return token[0].to_owned();
    };
    let masked_host = match host {
        _ if nodes.contains(host) => "<node>".to_owned(),
        _ if group("ip").is_some() => "<ip>".to_owned(),
        _ => word(host),
    };
    // After a name that is no host, such as that of a file, stands the number of a line.
    let has_port = matches!(&*masked_host, "<node>" | "<ip>")
        || host == "localhost"
        || host.contains('.') && !frame(host);
    let port = match group("port") {
        None => String::new(),
        Some(_) if !has_port => ":<n>".to_owned(),
        Some(port) => match port.parse::<u32>() {
            Ok(number) if number < EPHEMERAL => format!(":{port}"),
            _ => ":<port>".to_owned(),
        },
    };
    format!("{masked_host}{}{port}", group("close").unwrap_or_default())
}

/// Masks a duration, a number, or the numbers and random suffixes of a name.
fn word(word: &str) -> String {
    if word.ends_with(|c: char| c.is_ascii_alphabetic())
        && base::clock::parse_duration(word).is_some()
    {
        return "<duration>".into();
    }
    if word
        .trim_end_matches('%')
        .parse::<f64>()
        .is_ok_and(f64::is_finite)
    {
        return "<n>".into();
    }
    let digits = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    let masked = SUFFIX.replace(word, |found: &Captures<'_>| match &found[0] {
        suffix if digits(suffix) => "-<id>".repeat(suffix.matches('-').count()),
        other => other.to_owned(),
    });
    let part = |part: &str| {
        let bare = part.trim_end_matches(['-', '_']);
        let number = digits(bare)
            && bare
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.');
        format!(
            "{}{}",
            if number { "<n>" } else { bare },
            &part[bare.len()..]
        )
    };
    masked.split_inclusive(['-', '_']).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varying_parts_of_failures_are_masked() {
        let nodes = HashSet::from(["node-3".to_owned(), "worker7.example.com".to_owned()]);
        for (line, masked) in [
            (
                "dial tcp 10.0.0.1:443: i/o timeout",
                "dial tcp <ip>:443: i/o timeout",
            ),
            (
                "read tcp 10.1.2.3:49152->10.0.0.1:443: i/o timeout",
                "read tcp <ip>:<port>-><ip>:443: i/o timeout",
            ),
            (
                "dial tcp [fd00::12]:6443: connect",
                "dial tcp [<ip>]:6443: connect",
            ),
            (
                "lookup foo.svc on 10.96.0.10:53: no such host",
                "lookup foo.svc on <ip>:53: no such host",
            ),
            (
                "https://10.0.0.1:6443/api/v1/namespaces/pods-4711/pods",
                "https://<ip>:6443/api/v1/namespaces/pods-<n>/pods",
            ),
            (
                "pod web-5d8f7c9b64-x2x7q is not ready",
                "pod web-<id>-<id> is not ready",
            ),
            (
                "pod netserver-0 on node-3 took 5m0s",
                "pod netserver-<n> on <node> took <duration>",
            ),
            (
                "worker7.example.com:10250 is not there",
                "<node>:<port> is not there",
            ),
            ("uid 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "uid <id>"),
            (
                "2026-01-02T03:04:05.678Z it  broke\t12 times",
                "<time> it broke <n> times",
            ),
            ("at 03:04:05.678901 it broke", "at <time> it broke"),
            ("the server answered 403", "the server answered 403"),
            (
                "exit code 137 after 12.5s",
                "exit code 137 after <duration>",
            ),
            (
                "image repo/x@sha256:0123456789abcdef0123 gone",
                "image repo/x@sha256:<hash> gone",
            ),
            (
                "main.go:123: got 5, want 7",
                "main.go:<n>: got <n>, want <n>",
            ),
            (
                "used 93.5% of 12GiB on e2e v1.34",
                "used <n> of 12GiB on e2e v1.34",
            ),
            (
                "errors.errorString | 0xc000a1b2c3",
                "errors.errorString | <hash>",
            ),
            ("a\u{1b}[31mred", "a [31mred"),
        ] {
            assert_eq!(mask(line, &nodes), masked, "{line}");
        }
    }
}
