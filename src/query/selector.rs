//! Checks label selectors. An invalid one would fail every list, so it is reported once and ignored.

use std::sync::LazyLock;

use regex::Regex;

const NAME: &str = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";

static SELECTOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let key = format!("(?:[a-z0-9][-a-z0-9.]*/)?{NAME}");
    let value = format!("(?:{NAME})?");
    let compared = format!(
        r"\s*(?:==?|!=)\s*{value}|\s*[<>]\s*-?[0-9]+|\s+(?:not)?in\s*\(\s*{value}(?:\s*,\s*{value})*\s*\)"
    );
    let term = format!(r"\s*(?:!\s*{key}|{key}(?:{compared})?)\s*");
    Regex::new(&format!(r"^(?:\s*|{term}(?:,{term})*)$")).ok()
});

/// The selector, or an empty one with a warning.
pub(super) fn checked(setting: &str, selector: &str) -> String {
    if SELECTOR.as_ref().is_none_or(|pattern| pattern.is_match(selector)) {
        return selector.trim().to_owned();
    }
    log::warn!("`{setting}`: `{selector}` is not a label selector; it is ignored");
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_recognized() {
        for good in [
            "",
            "a",
            "!a",
            "a=b",
            "a==b,c!=d",
            "a=",
            "app.kubernetes.io/name in (x, y),tier notin (z)",
            "n>1",
            " a = b ",
        ] {
            assert_eq!(checked("s", good), good.trim());
        }
        for bad in ["a=b=c", "a in x", "=b", "a,,b", "a b", "-a", "a in (", "a=b,", "é=1"] {
            assert_eq!(checked("s", bad), "", "{bad}");
        }
    }
}
