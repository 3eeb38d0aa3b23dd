//! The programme's rules, read from a file that can be compared with the programme.

use regex::Regex;
use serde::Deserialize;

use yaml::typed;

/// The rules as of the newest version that was compared.
pub(super) const BUILT_IN: &str = include_str!("../../../../docs/ai-conformance-rules.yaml");

/// All rules; the file explains each.
#[derive(Debug, Deserialize)]
#[serde(rename = "rule")]
pub(super) struct Rules {
    pub plugin: String,
    pub log: String,
    pub events: String,
    pub junit: String,
    pub metadata: Vec<Member>,
    pub placeholder: String,
    pub categories: Vec<String>,
    pub statuses: Vec<String>,
    pub explained: Vec<String>,
    pub levels: Vec<Level>,
    pub conditional: Vec<Conditional>,
    pub proves: String,
    pub tests: Vec<Proof>,
}

/// A member of `metadata`.
#[derive(Debug, Deserialize)]
#[serde(rename = "member")]
pub(super) struct Member {
    pub name: String,
    #[serde(default)]
    pub optional: bool,
    #[serde(default)]
    pub form: Option<String>,
    #[serde(default)]
    pub link: Option<String>,
    #[serde(default)]
    pub write: Option<String>,
}

/// A level of requirements.
#[derive(Debug, Deserialize)]
#[serde(rename = "level")]
pub(super) struct Level {
    pub name: String,
    pub statuses: Vec<String>,
    #[serde(default)]
    pub optional: bool,
}

/// A requirement that may not apply.
#[derive(Debug, Deserialize)]
#[serde(rename = "conditional requirement")]
pub(super) struct Conditional {
    pub requirement: String,
    pub statuses: Vec<String>,
}

/// A test that proves a requirement.
#[derive(Debug, Deserialize)]
#[serde(rename = "proof")]
pub(super) struct Proof {
    pub test: String,
    pub requirement: String,
}

impl Rules {
    /// Reads rules; an error says where they are wrong.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let rules: Self = yaml::document(text)
            .and_then(|node| typed::read("rules", &node))
            .map_err(|error| error.to_string())?;
        let forms = rules
            .metadata
            .iter()
            .flat_map(|member| [&member.form, &member.link]);
        for pattern in forms.flatten().chain([&rules.placeholder]) {
            Regex::new(pattern).map_err(|_| format!("`{pattern}` is no regular expression"))?;
        }
        Ok(rules)
    }

    /// The files that are made from the suite's result.
    pub(super) fn artifacts(&self) -> [&str; 3] {
        [&self.log, &self.events, &self.junit]
    }

    /// The test that proves a requirement.
    pub(super) fn test_of(&self, requirement: &str) -> Option<&str> {
        let proof = self
            .tests
            .iter()
            .find(|proof| proof.requirement == requirement)?;
        Some(&proof.test)
    }

    /// A level by its name.
    pub(super) fn level(&self, name: &str) -> Option<&Level> {
        self.levels.iter().find(|level| level.name == name)
    }

    /// Whether a conditional requirement may have this status.
    pub(super) fn may_not_apply(&self, requirement: &str, status: &str) -> bool {
        self.conditional.iter().any(|conditional| {
            conditional.requirement == requirement
                && conditional.statuses.iter().any(|allowed| allowed == status)
        })
    }

    /// What is wrong with a member of `metadata`.
    pub(super) fn mistake(&self, member: &Member, value: &str) -> Option<String> {
        let fits = |pattern: &str| Regex::new(pattern).is_ok_and(|regex| regex.is_match(value));
        let name = &member.name;
        if fits(&self.placeholder) {
            let or = if member.optional {
                ", or remove it"
            } else {
                ""
            };
            return Some(format!(
                "`{name}` is still the placeholder `{value}`: fill it in{or}"
            ));
        }
        let is_link = value.starts_with("http");
        let forms = [
            member.form.as_deref(),
            member.link.as_deref().filter(|_| is_link),
        ];
        if forms.into_iter().flatten().all(fits) {
            return None;
        }
        let write = member.write.as_deref().unwrap_or("another value");
        Some(format!("`{name}` is `{value}`; write {write}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_rules_name_each_requirement_once() {
        let rules = Rules::read(BUILT_IN).unwrap();
        for (at, proof) in rules.tests.iter().enumerate() {
            let before = &rules.tests[..at];
            assert!(
                before
                    .iter()
                    .all(|other| other.requirement != proof.requirement && other.test != proof.test),
                "{proof:?}"
            );
        }
        let known = |status: &String| rules.statuses.contains(status);
        assert!(
            rules
                .levels
                .iter()
                .all(|level| level.statuses.iter().all(known))
        );
        assert!(rules.explained.iter().all(known) && known(&rules.proves));
    }

    #[test]
    fn values_of_metadata_are_compared_with_their_forms() {
        let rules = Rules::read(BUILT_IN).unwrap();
        for (name, value, expected) in [
            ("platformName", "Fine", ""),
            ("platformName", "[Platform Name]", "still the placeholder"),
            ("repoUrl", "[Repository URL]", "fill it in, or remove it"),
            ("productLogoUrl", "https://a.example/l.SVG", ""),
            ("productLogoUrl", "see the landscape", ""),
            (
                "productLogoUrl",
                "https://a.example/l.png",
                "an SVG, EPS or AI file",
            ),
            (
                "k8sConformanceUrl",
                "https://github.com/cncf/k8s-conformance/tree/main/v1.37/fine",
                "",
            ),
            (
                "k8sConformanceUrl",
                "https://a.example/v1.37/fine",
                "tree/master/vX.Y/PRODUCT",
            ),
        ] {
            let member = rules
                .metadata
                .iter()
                .find(|member| member.name == name)
                .unwrap();
            let mistake = rules.mistake(member, value).unwrap_or_default();
            assert_eq!(
                mistake.is_empty(),
                expected.is_empty(),
                "{value}: {mistake}"
            );
            assert!(mistake.contains(expected), "{mistake}");
        }
    }

    #[test]
    fn rules_that_cannot_be_applied_are_refused() {
        for (from, to, words) in [
            ("plugin: ai-conformance\n", "", "has no `plugin`"),
            (
                "placeholder: '^\\[.*\\]$'",
                "placeholder: '['",
                "`[` is no regular expression",
            ),
            (
                "proves: Implemented\n",
                "proves: Implemented\nproof: x\n",
                "`rules.proof`",
            ),
        ] {
            assert!(BUILT_IN.contains(from), "{from}");
            let error = Rules::read(&BUILT_IN.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
