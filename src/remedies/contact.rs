//! A worker's log message about an unreachable aggregator, written and parsed.

const UNREACHED: &str = "cannot reach the aggregator: ";

/// Formats the message.
pub(crate) fn unreached(why: &str) -> String {
    format!("{UNREACHED}{why}")
}

/// The last reason in a log with this message, with or without the logger's quotes.
pub(crate) fn why_unreached(log: &str) -> Option<String> {
    let line = log.lines().rev().find_map(|line| Some(line.split_once(UNREACHED)?.1))?;
    let why = unquoted(line);
    (!why.is_empty()).then_some(why)
}

/// The last line of a log; only the message if the logger wrote it.
pub(crate) fn message(log: &str) -> String {
    let line = log.lines().last().unwrap_or_default();
    line.split_once(" msg=\"").map_or_else(|| line.to_owned(), |(_, rest)| unquoted(rest))
}

/// The text up to the closing quote.
fn unquoted(line: &str) -> String {
    let mut why = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => why.extend(letters.next()),
            letter => why.push(letter),
        }
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let log = format!(
            "time=\"t\" level=error msg=\"{}\"\ntime=\"t\" level=error msg=\"{}\"\nlevel=info msg=\"x\"\n",
            unreached("first"),
            unreached("`https://a:1`: \\\"quoted\\\" timeout")
        );
        assert_eq!(why_unreached(&log).as_deref(), Some("`https://a:1`: \"quoted\" timeout"));
        assert_eq!(message("x\ntime=\"t\" level=error msg=\"no \\\"run\\\"\" a=b\n"), "no \"run\"");
        assert_eq!(message("splat: no"), "splat: no");
        for nothing in ["", "cannot reach the aggregator: ", "cannot reach the aggregator: \"", "else"] {
            assert_eq!(why_unreached(nothing), None, "{nothing}");
        }
    }
}
