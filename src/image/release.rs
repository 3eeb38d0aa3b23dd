//! Kubernetes versions as in image tags and test lists: `v1.31.2`, `v1.32.0-rc.1`.

use base::Joined as _;

/// The release behind a server's `version`: vendors' additions are dropped; alpha, beta and rc are
/// kept.
pub(crate) fn of_server(version: &str) -> Option<String> {
    let (numbers, rest) = numbers(version.strip_prefix('v').unwrap_or(version))?;
    let before = rest
        .strip_prefix('-')
        .map(|rest| rest.split('+').next().unwrap_or_default());
    match before {
        Some(before)
            if ["alpha", "beta", "rc"]
                .iter()
                .any(|word| before.starts_with(word)) =>
        {
            Some(format!("v{numbers}-{before}"))
        }
        _ => Some(format!("v{numbers}")),
    }
}

/// Normalises a user's `version`: starts with `v`, and missing numbers are 0. It becomes the tag of
/// an image.
pub(crate) fn parse(version: &str) -> Result<String, String> {
    let wrong = || format!("`{version}` is not a Kubernetes version; write it as v1.31.2");
    let (numbers, rest) = version
        .strip_prefix('v')
        .and_then(numbers)
        .ok_or_else(wrong)?;
    if rest.contains('+') {
        return Err(format!(
            "`{version}`: a tag cannot contain `+`; write v{numbers}"
        ));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if !rest.bytes().all(fits) {
        return Err(wrong());
    }
    Ok(format!("v{numbers}{rest}"))
}

/// Three numbers at the start of `text`, and the rest.
fn numbers(text: &str) -> Option<(String, &str)> {
    let (head, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let mut parts = head
        .split('.')
        .map(str::parse)
        .collect::<Result<Vec<u64>, _>>()
        .ok()?;
    if parts.len() > 3 {
        return None;
    }
    parts.resize(3, 0);
    Some((parts.iter().map(u64::to_string).joined("."), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_are_dropped_and_prereleases_are_kept() {
        for (server, release) in [
            ("v1.31.2", Some("v1.31.2")),
            ("v1.31.2+k3s1", Some("v1.31.2")),
            ("v1.30.5-gke.1014001", Some("v1.30.5")),
            ("v1.29.0-eks-a5565ad", Some("v1.29.0")),
            ("v1.32.0-rc.1", Some("v1.32.0-rc.1")),
            ("v1.32.0-alpha.1.77+0d3c5a7c", Some("v1.32.0-alpha.1.77")),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(of_server(server).as_deref(), release, "{server}");
        }
    }

    #[test]
    fn version_needs_the_v_and_may_omit_numbers() {
        for (given, meant) in [
            ("v1", Some("v1.0.0")),
            ("v1.31", Some("v1.31.0")),
            ("v123.456.789", Some("v123.456.789")),
            ("v01.031.00", Some("v1.31.0")),
            ("v1.32.0-rc.1", Some("v1.32.0-rc.1")),
            ("v1.11+", None),
            ("v1.31.2+k3s1", None),
            ("v1.32.0-rc/1", None),
            ("1.31", None),
            ("v", None),
            ("v1.2.3.4", None),
            ("v1.x", None),
        ] {
            assert_eq!(parse(given).ok().as_deref(), meant, "{given}");
        }
    }
}
