//! The description of the certified product: its keys and their valid values.
//!
//! The text becomes part of the submission unmodified; no network access.

use base::yaml::{self, Content, Error, Node, typed};

/// Required keys, which must not be empty.
const NEEDED: [&str; 8] = [
    "vendor",
    "name",
    "version",
    "type",
    "description",
    "website_url",
    "documentation_url",
    "contact_email_address",
];
/// Optional keys.
const OPTIONAL: [&str; 2] = ["repo_url", "product_logo_url"];
/// Valid types of a product.
const TYPES: [&str; 3] = ["distribution", "hosted platform", "installer"];
/// File extensions of logos.
const LOGOS: [&str; 3] = [".svg", ".ai", ".eps"];

/// A valid description.
#[derive(Debug)]
pub(crate) struct Product {
    /// The product's name.
    pub name: String,
    /// The unmodified text.
    pub text: String,
}

impl Product {
    /// Reads a description; an error names all problems.
    pub(crate) fn read(text: String) -> Result<Self, Vec<String>> {
        let node = yaml::document(&text).map_err(|error| vec![error.to_string()])?;
        let entries = typed::entries("the description", &node).map_err(|error| vec![error.to_string()])?;
        let mut wrong = Vec::new();
        for (key, value) in entries {
            let name = key.text.as_str();
            if !NEEDED.contains(&name) && !OPTIONAL.contains(&name) {
                let known = [&NEEDED[..], &OPTIONAL[..]].concat().join(", ");
                wrong.push(key.place.error(format!("`{name}` is unknown; use {known}")).to_string());
            } else {
                match plain(name, value) {
                    Err(error) => wrong.push(error.to_string()),
                    Ok(said) => {
                        wrong.extend(problem(name, &said).map(|why| value.place.error(why).to_string()));
                    }
                }
            }
        }
        let said =
            |key: &str| node.get(key).map(|value| plain(key, value).unwrap_or_else(|_| key.to_owned()));
        let missing = NEEDED.iter().filter(|key| said(key).is_none_or(|text| text.is_empty()));
        wrong.extend(missing.map(|key| format!("`{key}` is missing or empty")));
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Self { name: said("name").unwrap_or_default(), text: text.clone() })
    }
}

/// The text of a scalar: `1.0` is equivalent to `"1.0"`.
fn plain(key: &str, value: &Node) -> Result<String, Error> {
    match &value.content {
        Content::Null => Ok(String::new()),
        Content::Number(number) => Ok(number.to_string()),
        Content::Bool(flag) => Ok(flag.to_string()),
        _ => typed::text(key, value).map(|text| text.trim().to_owned()),
    }
}

/// The problem with the value of a key, if any.
fn problem(key: &str, value: &str) -> Option<String> {
    if value.is_empty() {
        return None;
    }
    let is_address = || {
        value.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && host.contains('.') && !host.starts_with('.') && !value.contains([' ', ','])
        })
    };
    match key {
        "type" if !TYPES.contains(&value) => {
            Some(format!("`type` is `{value}`; write {}, {} or {}", TYPES[0], TYPES[1], TYPES[2]))
        }
        "contact_email_address" if !is_address() => {
            Some(format!("`{key}`: `{value}` is not an e-mail address"))
        }
        key if key.ends_with("_url") && !is_url(value) => {
            Some(format!("`{key}`: `{value}` is not a URL; write it with https://"))
        }
        "product_logo_url" => {
            let path = value.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
            // A link without an extension, such as that of a shared drive, may lead to one.
            let file = path.rsplit('/').next().unwrap_or_default();
            let fits = !file.contains('.') || LOGOS.iter().any(|ending| file.ends_with(ending));
            (!fits).then(|| format!("`{key}`: `{value}` is not an SVG, AI or EPS file"))
        }
        _ => None,
    }
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    host.is_some_and(|host| host.contains('.') && !text.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "vendor: V\nname: Fine\nversion: v1.0\ntype: distribution\ndescription: D\nwebsite_url: https://a.example\n\
        documentation_url: https://a.example/docs\ncontact_email_address: a@b.example\n";

    #[test]
    fn a_whole_description_is_taken_as_it_is() {
        let text = format!("{GOOD}product_logo_url: https://a.example/l.SVG?x\nrepo_url: ~\n");
        let product = Product::read(text.clone()).unwrap();
        assert_eq!((product.name.as_str(), product.text), ("Fine", text));
        assert!(Product::read(GOOD.replace("v1.0", "1.0")).is_ok());
        assert!(
            Product::read(format!("{GOOD}product_logo_url: https://a.example/file/1/view?usp=x\n")).is_ok()
        );
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let check = |from: &str, to: &str, words: &[&str]| {
            let wrong = Product::read(GOOD.replacen(from, to, 1)).unwrap_err();
            assert_eq!(wrong.len(), words.len(), "{wrong:?}");
            for (wrong, words) in wrong.iter().zip(words) {
                assert!(wrong.contains(words), "{wrong}");
            }
        };
        check("vendor: V\n", "", &["`vendor` is missing"]);
        check("vendor: V", "vendor: ' '", &["`vendor` is missing or empty"]);
        check("version: v1.0", "version: [1.0]", &["line 3, column 10: `version` must be text, not a list"]);
        check(
            "distribution",
            "Distro",
            &["`type` is `Distro`; write distribution, hosted platform or installer"],
        );
        check("https://a.example\n", "a.example\n", &["`website_url`: `a.example` is not a URL"]);
        check("a@b.example", "a at b", &["is not an e-mail address"]);
        check("vendor: V\n", "vendor: V\nlogo: x\n", &["line 2, column 1: `logo` is unknown"]);
        check(
            "vendor: V\n",
            "product_logo_url: https://a.example/l.png\n",
            &["is not an SVG", "`vendor` is missing"],
        );
        check(GOOD, "[]", &["the description` must be a map, not a list"]);
        check(GOOD, "a: [", &["line"]);
    }
}
