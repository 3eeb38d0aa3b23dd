//! Parses the header `WWW-Authenticate` of a registry's 401 response.

use ureq::Body;
use ureq::http::Response;

/// The authentication that a registry requests; tokens if it offers several kinds.
pub(super) fn challenge(answer: &Response<Body>) -> Option<String> {
    let all = answer.headers().get_all("www-authenticate").iter().filter_map(|value| value.to_str().ok());
    let bearer = |text: &&str| text.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
    all.max_by_key(bearer).map(ToOwned::to_owned)
}

/// `realm="https://…",service="…"`; quotes may contain commas.
pub(super) fn fields(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        found.push((key.trim_matches([',', ' ']).to_ascii_lowercase(), value.to_owned()));
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_parsed() {
        let text =
            r#"realm="https://auth.example/token",service="reg, one",scope="repository:a:pull,push",error=x"#;
        let expected = [
            ("realm", "https://auth.example/token"),
            ("service", "reg, one"),
            ("scope", "repository:a:pull,push"),
            ("error", "x"),
        ];
        assert_eq!(fields(text), expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert!(fields("").is_empty());
    }
}
