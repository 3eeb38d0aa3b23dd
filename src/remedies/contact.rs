//! A worker's log message about an unreachable aggregator, written and parsed.

use base::logger;

const UNREACHED: &str = "cannot reach the aggregator: ";

/// Formats the message.
pub(crate) fn unreached(why: &str) -> String {
    format!("{UNREACHED}{why}")
}

/// The last reason in a log with this message.
pub(crate) fn why_unreached(log: &str) -> Option<String> {
    let mut reasons = log.lines().rev().filter_map(|line| {
        Some(logger::message(line).split_once(UNREACHED)?.1.to_owned()).filter(|why| !why.is_empty())
    });
    reasons.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_contact_is_read_back() {
        let log = format!(
            "time=\"t\" level=error msg=\"{}\"\ntime=\"t\" level=error msg=\"{}\"\nlevel=info msg=\"x\"\n",
            unreached("first"),
            unreached("`https://a:1`: \\\"quoted\\\" timeout")
        );
        assert_eq!(why_unreached(&log).as_deref(), Some("`https://a:1`: \"quoted\" timeout"));
        for nothing in ["", "cannot reach the aggregator: ", "else"] {
            assert_eq!(why_unreached(nothing), None, "{nothing}");
        }
    }
}
