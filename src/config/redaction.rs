//! Redaction rules in addition to the built-in ones: from a run's configuration or a file of rules.

use serde::{Deserialize, Serialize};

use super::read;
use base::json::is_default;
use base::yaml::Error;

/// Additional rules, or no redaction at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "rule", rename_all = "PascalCase", default)]
pub(crate) struct Redaction {
    /// Disables redaction.
    #[serde(skip_serializing_if = "is_default")]
    pub off: bool,
    /// Patterns for names of environment variables.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "read::patterns")]
    pub env: Vec<String>,
    /// Patterns in logs and in any text of an object.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "read::text_patterns")]
    pub text: Vec<String>,
    /// Whole values of objects.
    #[serde(skip_serializing_if = "is_default")]
    pub fields: Vec<Field>,
}

/// Values to hide entirely, in objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Field {
    /// The kind; case does not matter.
    #[serde(deserialize_with = "read::text")]
    pub kind: String,
    /// Keys and indices separated by dots; `*` matches any.
    #[serde(deserialize_with = "read::text")]
    pub path: String,
}

impl Redaction {
    /// Adds the rules of a YAML or JSON file, and enables redaction.
    pub(crate) fn add(&mut self, file: &str) -> Result<(), Error> {
        let more = read::rules(file)?;
        self.off = false;
        self.env.extend(more.env);
        self.text.extend(more.text);
        self.fields.extend(more.fields);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_file_are_added_and_mistakes_located() {
        let mut rules = Redaction { off: true, env: vec!["A".into()], ..Redaction::default() };
        rules.add("env: [^PIN$]\nfields:\n- {kind: Pod, path: spec.hosts.1}\n").unwrap();
        rules.add(r#"{"Text": ["card=\\d+"]}"#).unwrap();
        let field = Field { kind: "Pod".into(), path: "spec.hosts.1".into() };
        let text = vec!["card=\\d+".into()];
        let expected =
            Redaction { off: false, env: vec!["A".into(), "^PIN$".into()], text, fields: vec![field] };
        assert_eq!(rules, expected);
        for (text, line, column, words) in [
            (
                "env: []\nevn: []",
                2,
                6,
                "`evn` is not a rule; did you mean `Env`?; valid keys are Off, Env, Text and Fields",
            ),
            ("{\"off\": true}", 1, 9, "`off` is not a rule"),
            ("env: x", 1, 6, "`env` must be a list, not text"),
            ("text: [a, 5]", 1, 11, "`text[1]` must be text, not a number: quote it"),
            ("text: ['(']", 1, 8, "`text[0]`: `(` is not a valid pattern: unclosed group"),
            ("text: ['x*']", 1, 8, "`text[0]`: `x*` matches the empty string, and so everything"),
            ("fields: [{kind: Pod}]", 1, 10, "`fields[0]` has no `Path`"),
            ("fields: [data]", 1, 10, "`fields[0]` must be a map, not text"),
            ("[]", 1, 1, "`the rules` must be a map, not a list"),
            ("", 1, 1, "`the rules` must be a map, not null"),
        ] {
            let error = rules.add(text).expect_err(text);
            assert!(error.message.contains(words), "{text}: {error}");
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        }
        assert_eq!(rules, expected, "what is wrong adds nothing");
    }
}
