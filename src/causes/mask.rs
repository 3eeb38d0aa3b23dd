//! Masks the variable parts of failures: numbers, addresses, identifiers, times, names of nodes.

use std::collections::HashSet;

use super::frame;

/// Ports from here on are assigned by the system, and masked.
const EPHEMERAL: u32 = 10_000;

/// A line with its variable parts masked.
pub(super) fn mask(line: &str, nodes: &HashSet<String>) -> String {
    let mut out = String::with_capacity(line.len());
    let mut token = String::new();
    let mut before = String::new();
    for c in line.trim().chars().chain(std::iter::once(' ')) {
        if c.is_alphanumeric() || ".:-_/+%@".contains(c) {
            token.push(c);
            continue;
        }
        if !token.is_empty() {
            one(&token, &before, nodes, &mut out);
            before = std::mem::take(&mut token);
        }
        let c = if c.is_whitespace() || c.is_control() { ' ' } else { c };
        if c != ' ' || !out.ends_with(' ') {
            out.push(c);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Words after which a number is significant.
const TELLING: [&str; 7] = ["code", "status", "http", "answered", "signal", "port", "exit"];

fn one(token: &str, before: &str, nodes: &HashSet<String>, out: &mut String) {
    let bare = token.trim_end_matches(['.', ':', '-']);
    let tail = &token[bare.len()..];
    if nodes.contains(bare) {
        out.push_str("<node>");
    } else if is_time(bare) {
        out.push_str("<time>");
    } else {
        for (at, part) in bare.split('/').enumerate() {
            if at > 0 {
                out.push('/');
            }
            let before = if at == 0 { before } else { "/" };
            piece(part, before, nodes, out);
        }
    }
    out.push_str(tail);
}

fn piece(part: &str, before: &str, nodes: &HashSet<String>, out: &mut String) {
    if part.parse::<std::net::Ipv6Addr>().is_ok() && part != "::" {
        return out.push_str("<ip>");
    }
    // An IPv6 address precedes this token.
    let mut host = out.ends_with("<ip>]");
    for (at, word) in part.split(':').enumerate() {
        if at > 0 {
            out.push(':');
        }
        let number = word.parse::<u32>().ok();
        match number {
            Some(port) if at > 0 && host => {
                if port < EPHEMERAL {
                    out.push_str(word);
                } else {
                    out.push_str("<port>");
                }
            }
            _ if word.is_empty() => {}
            _ => {
                let before = if at == 0 { before } else { "" };
                host = piece_of(word, before, nodes, out);
            }
        }
    }
}

/// Masks the text between colons; returns whether a port may follow.
fn piece_of(word: &str, before: &str, nodes: &HashSet<String>, out: &mut String) -> bool {
    let telling = TELLING.contains(&before.trim_end_matches(':').to_ascii_lowercase().as_str());
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    if nodes.contains(word) {
        out.push_str("<node>");
        return true;
    } else if word.parse::<std::net::Ipv4Addr>().is_ok() {
        out.push_str("<ip>");
        return true;
    } else if digits == 0 && !hex {
        out.push_str(word);
        return word == "localhost" || word.contains('.') && !frame(word);
    } else if telling && digits == word.len() {
        out.push_str(word);
    } else if is_uuid(word) {
        out.push_str("<id>");
    } else if hex && word.len() >= 12 && digits > 0
        || word.strip_prefix("0x").is_some_and(|rest| rest.len() > 4)
    {
        out.push_str("<hash>");
    } else if word.ends_with(|c: char| c.is_ascii_alphabetic()) && base::clock::parse_duration(word).is_some()
    {
        out.push_str("<duration>");
    } else if word.trim_end_matches('%').parse::<f64>().is_ok_and(f64::is_finite) {
        out.push_str("<n>");
    } else {
        segments(word, out);
        return word.contains('.') && !frame(word);
    }
    false
}

/// Masks runs of digits and Kubernetes' random suffixes in a name.
fn segments(word: &str, out: &mut String) {
    let all: Vec<&str> = word.split('-').collect();
    for (at, segment) in all.iter().enumerate() {
        if at > 0 {
            out.push('-');
        }
        let last_two = at > 0 && at + 2 >= all.len();
        let made_up = last_two
            && ((segment.len() == 5
                && segment.bytes().all(random)
                && segment.bytes().any(|b| b.is_ascii_digit()))
                || (at + 1 == all.len() && segment.len() == 5 && segment.bytes().all(random))
                || ((8..=16).contains(&segment.len())
                    && segment.bytes().all(|b| random(b) || b.is_ascii_hexdigit())
                    && segment.bytes().any(|b| b.is_ascii_digit())));
        if made_up {
            out.push_str("<id>");
        } else if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            out.push_str("<n>");
        } else {
            for (at, part) in segment.split('_').enumerate() {
                if at > 0 {
                    out.push('_');
                }
                let number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
                out.push_str(if number { "<n>" } else { part });
            }
        }
    }
}

/// Whether Kubernetes uses a character in random suffixes.
fn random(byte: u8) -> bool {
    b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)
}

fn is_uuid(word: &str) -> bool {
    let lengths = word.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && word.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// A date, a time of day or both: groups of digits between `-`, `:` and `T`.
fn is_time(word: &str) -> bool {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let begins = |shape: &str, with: &str| shape.starts_with(with);
    begins(&shape, "0000-00-00") || begins(&shape, "00:00:00") || begins(&shape, "0000/00/00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_one_failure_to_the_next_is_masked() {
        let nodes = HashSet::from(["node-3".to_owned(), "worker7.example.com".to_owned()]);
        for (line, masked) in [
            ("dial tcp 10.0.0.1:443: i/o timeout", "dial tcp <ip>:443: i/o timeout"),
            (
                "read tcp 10.1.2.3:49152->10.0.0.1:443: i/o timeout",
                "read tcp <ip>:<port>-><ip>:443: i/o timeout",
            ),
            ("dial tcp [fd00::12]:6443: connect", "dial tcp [<ip>]:6443: connect"),
            ("lookup foo.svc on 10.96.0.10:53: no such host", "lookup foo.svc on <ip>:53: no such host"),
            (
                "https://10.0.0.1:6443/api/v1/namespaces/pods-4711/pods",
                "https://<ip>:6443/api/v1/namespaces/pods-<n>/pods",
            ),
            ("pod web-5d8f7c9b64-x2x7q is not ready", "pod web-<id>-<id> is not ready"),
            ("pod netserver-0 on node-3 took 5m0s", "pod netserver-<n> on <node> took <duration>"),
            ("worker7.example.com:10250 is not there", "<node>:<port> is not there"),
            ("uid 6ba7b810-9dad-11d1-80b4-00c04fd430c8", "uid <id>"),
            ("2026-01-02T03:04:05.678Z it  broke\t12 times", "<time> it broke <n> times"),
            ("at 03:04:05.678901 it broke", "at <time> it broke"),
            ("the server answered 403", "the server answered 403"),
            ("exit code 137 after 12.5s", "exit code 137 after <duration>"),
            ("image repo/x@sha256:0123456789abcdef0123 gone", "image repo/x@sha256:<hash> gone"),
            ("main.go:123: got 5, want 7", "main.go:<n>: got <n>, want <n>"),
            ("used 93.5% of 12GiB on e2e v1.34", "used <n> of 12GiB on e2e v1.34"),
            ("errors.errorString | 0xc000a1b2c3", "errors.errorString | <hash>"),
            ("a\u{1b}[31mred", "a [31mred"),
        ] {
            assert_eq!(mask(line, &nodes), masked, "{line}");
        }
    }
}
