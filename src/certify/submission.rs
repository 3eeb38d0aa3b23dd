//! The folder to submit: the run's log and JUnit file, the description of the product, and how to reproduce the run.
//!
//! Atomic: created under a temporary name and renamed. Overwrites nothing. The description has known keys with valid values,
//! and becomes part of the submission unmodified; no network access.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use regex::Regex;

use super::Candidate;
use base::at::At as _;
use base::yaml::{self, Content, Error, Node, typed};

/// File names of a submission.
const FILES: [&str; 4] = ["README.md", "e2e.log", "junit_01.xml", "PRODUCT.yaml"];

/// Writes the submission into the folder `into`, which must not exist or be empty; returns the paths of its files.
pub(crate) fn write(candidate: &Candidate, product: &Product, into: &Path) -> anyhow::Result<Vec<PathBuf>> {
    check(into)?;
    let shown = || format!("cannot write `{}`", into.display());
    let above = into.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(above).with_context(shown)?;
    let beside = base::temp::Folder::inside(above).with_context(shown)?;
    let making = beside.join("submission");
    fs::create_dir(&making).with_context(shown)?;
    let [readme, log, junit, description] = FILES.map(|name| making.join(name));
    for (path, of) in [(log, &candidate.log), (junit, &candidate.junit)] {
        let mut content = candidate.files.open(of).with_context(|| format!("`{of}` is missing"))?;
        let mut file = File::create_new(path).with_context(shown)?;
        io::copy(&mut content, &mut file).with_context(shown)?;
    }
    fs::write(description, &product.text).with_context(shown)?;
    let text = include_str!("submission.md")
        .replace("@PRODUCT@", &product.name)
        .replace("@VERSION@", &candidate.version)
        .replace("@REQUIRED@", &candidate.required.0.to_string());
    fs::write(readme, text).with_context(shown)?;
    if into.exists() {
        fs::remove_dir(into).with_context(shown)?;
    }
    fs::rename(&making, into).with_context(shown)?;
    Ok(FILES.map(|name| into.join(name)).to_vec())
}

/// Fails if `into` has content that would be overwritten.
pub(crate) fn check(into: &Path) -> anyhow::Result<()> {
    let first =
        base::found(fs::read_dir(into)).at("cannot use", into)?.and_then(|mut entries| entries.next());
    ensure!(first.is_none(), "`{}` is not empty; name a new folder", into.display());
    Ok(())
}

/// Keys, and whether a value is required.
const KEYS: [(&str, bool); 10] = [
    ("vendor", true),
    ("name", true),
    ("version", true),
    ("type", true),
    ("description", true),
    ("website_url", true),
    ("documentation_url", true),
    ("contact_email_address", true),
    ("repo_url", false),
    ("product_logo_url", false),
];
/// Forms of values: end of the key, pattern, problem with other values. A link without an extension, such as that of a shared
/// drive, may lead to a logo.
const FORMS: [(&str, &str, &str); 4] = [
    (
        "type",
        "^(?:distribution|hosted platform|installer)$",
        " is `{}`; write distribution, hosted platform or installer",
    ),
    ("contact_email_address", r"^[^@ ,]+@[^. ,][^ ,]*\.[^ ,]*$", ": `{}` is not an e-mail address"),
    ("_url", r"^https?://[^/?#\s]*\.[^/?#\s]*(?:[/?#]\S*)?$", ": `{}` is not a URL; write it with https://"),
    (
        "product_logo_url",
        r"(?i)^[^?#]*/(?:[^/?#.]*|[^/?#]*\.(?:svg|ai|eps))(?:[?#]|$)",
        ": `{}` is not an SVG, AI or EPS file",
    ),
];

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
            let checked = if KEYS.iter().any(|(known, _)| *known == name) {
                plain(name, value).and_then(|said| {
                    problem(name, &said).map_or(Ok(()), |why| Err(value.position.error(why)))
                })
            } else {
                let known = KEYS.map(|(key, _)| key).join(", ");
                Err(key.position.error(format!("`{name}` is unknown; use {known}")))
            };
            wrong.extend(checked.err().map(|error| error.to_string()));
        }
        let said =
            |key: &str| node.get(key).map(|value| plain(key, value).unwrap_or_else(|_| key.to_owned()));
        let missing =
            KEYS.iter().filter(|(key, required)| *required && said(key).is_none_or(|text| text.is_empty()));
        wrong.extend(missing.map(|(key, _)| format!("`{key}` is missing or empty")));
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Self { name: said("name").unwrap_or_default(), text })
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
    let fits = |pattern: &str| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(value));
    let broken = FORMS.iter().find(|(end, pattern, _)| key.ends_with(end) && !fits(pattern));
    let (.., problem) = broken.filter(|_| !value.is_empty())?;
    Some(format!("`{key}`{}", problem.replace("{}", value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "vendor: V\nname: Fine\nversion: v1.0\ntype: distribution\ndescription: D\nwebsite_url: https://a.example\n\
        documentation_url: https://a.example/docs\ncontact_email_address: a@b.example\n";

    #[test]
    fn complete_description_is_accepted() {
        let text = format!("{GOOD}product_logo_url: https://a.example/l.SVG?x\nrepo_url: ~\n");
        let product = Product::read(text.clone()).unwrap();
        assert_eq!((product.name.as_str(), product.text), ("Fine", text));
        assert!(Product::read(GOOD.replace("v1.0", "1.0")).is_ok());
        assert!(
            Product::read(format!("{GOOD}product_logo_url: https://a.example/file/1/view?usp=x\n")).is_ok()
        );
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
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
