//! What is hidden in a snapshot beyond the built-in rules: as a run's configuration carries it, or a file of rules.

use serde::Serialize;

use super::{is_zero, read};
use base::yaml::Error;

/// Rules that add to the built-in ones, or the wish to see everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Redaction {
    /// Nothing at all is hidden.
    #[serde(skip_serializing_if = "is_zero")]
    pub off: bool,
    /// Patterns of names of environment variables.
    #[serde(skip_serializing_if = "is_zero")]
    pub env: Vec<String>,
    /// Patterns in logs and in all texts of objects.
    #[serde(skip_serializing_if = "is_zero")]
    pub text: Vec<String>,
    /// Whole values of objects.
    #[serde(skip_serializing_if = "is_zero")]
    pub fields: Vec<Field>,
}

/// The values of objects of a kind that are hidden whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Field {
    /// The kind, in any case.
    pub kind: String,
    /// Keys and indices with dots between; `*` stands for any.
    pub path: String,
}

impl Redaction {
    /// Adds the rules of a file, YAML or JSON. Whoever names rules wants something hidden.
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
    fn rules_of_a_file_are_added_and_wrong_ones_are_named_with_their_place() {
        let mut rules = Redaction { off: true, env: vec!["A".into()], ..Redaction::default() };
        rules.add("env: [^PIN$]\nfields:\n- {kind: Pod, path: spec.hosts.1}\n").unwrap();
        rules.add(r#"{"Text": ["card=\\d+"]}"#).unwrap();
        let field = Field { kind: "Pod".into(), path: "spec.hosts.1".into() };
        let text = vec!["card=\\d+".into()];
        let expected =
            Redaction { off: false, env: vec!["A".into(), "^PIN$".into()], text, fields: vec![field] };
        assert_eq!(rules, expected);
        for (text, line, column, words) in [
            ("env: []\nevn: []", 2, 6, "`evn` is not a rule; there are env, text and fields"),
            ("{\"off\": true}", 1, 9, "`off` is not a rule"),
            ("env: x", 1, 6, "`env` is text, a list is needed"),
            ("text: [a, 5]", 1, 11, "`text[1]` is a number, text in quotes is needed"),
            ("text: ['(']", 1, 8, "`text[0]`: `(` is not a pattern: missing closing `)`"),
            ("text: ['x*']", 1, 8, "`text[0]`: `x*` matches the empty text, thus everything"),
            ("fields: [{kind: Pod}]", 1, 10, "`fields[0]` needs a kind and a path"),
            ("fields: [data]", 1, 10, "`fields[0]` is text, an object is needed"),
            ("[]", 1, 1, "`the rules` is a list, an object is needed"),
            ("", 1, 1, "`the rules` is null, an object is needed"),
        ] {
            let error = rules.add(text).expect_err(text);
            assert!(error.message.contains(words), "{text}: {error}");
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        }
        assert_eq!(rules, expected, "what is wrong adds nothing");
    }
}
