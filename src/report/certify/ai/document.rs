//! The form that checklists and PRODUCT.yaml share: metadata, and requirements by category. Does
//! not judge.

use serde::Deserialize;

use yaml::{Error, Node, typed};

/// A checklist, or what a vendor filled in.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// The members of `metadata` as they are spelt, without null.
    pub metadata: Vec<(String, String)>,
    /// The categories of `spec`, in order.
    pub categories: Vec<Category>,
}

/// A category of requirements.
#[derive(Debug)]
pub(super) struct Category {
    pub name: String,
    pub requirements: Vec<Requirement>,
}

/// A requirement of a checklist with what was filled in.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename = "requirement", default)]
pub(super) struct Requirement {
    pub id: String,
    pub description: String,
    pub level: String,
    pub status: String,
    pub evidence: Vec<String>,
    pub notes: String,
}

impl Document {
    /// Reads a document; an error names all problems with their places.
    pub(super) fn read(text: &str) -> Result<Self, Vec<String>> {
        let broken = |error: Error| vec![error.to_string()];
        let node = yaml::document(text).map_err(broken)?;
        let mut document = Self::default();
        let mut wrong = Vec::new();
        for (key, value) in typed::entries("the document", &node).map_err(broken)? {
            let read = match key.text.as_str() {
                "metadata" => document.read_metadata(value, &mut wrong),
                "spec" => document.read_spec(value, &mut wrong),
                other => Err(key
                    .position
                    .error(format!("`{other}` is unknown; use metadata and spec"))),
            };
            wrong.extend(read.err().map(|error| error.to_string()));
        }
        if wrong.is_empty() {
            Ok(document)
        } else {
            Err(wrong)
        }
    }

    fn read_metadata(&mut self, node: &Node, wrong: &mut Vec<String>) -> Result<(), Error> {
        for (key, value) in typed::entries("metadata", node)? {
            if value.is_null() {
                continue;
            }
            match typed::text(&format!("metadata.{}", key.text), value) {
                Ok(text) => self
                    .metadata
                    .push((key.text.clone(), text.trim().to_owned())),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        Ok(())
    }

    fn read_spec(&mut self, node: &Node, wrong: &mut Vec<String>) -> Result<(), Error> {
        for (key, value) in typed::entries("spec", node)? {
            let path = format!("spec.{}", key.text);
            match typed::list(&path, value, typed::read::<Requirement>) {
                Ok(requirements) => self.categories.push(Category {
                    name: key.text.clone(),
                    requirements,
                }),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        Ok(())
    }

    /// The value of a member of `metadata` that is written as `name`, or in snake case.
    pub(super) fn member(&self, name: &str) -> Option<&str> {
        let snake_name = snake_case(name);
        let (_, value) = self
            .metadata
            .iter()
            .find(|(key, _)| key == name || *key == snake_name)?;
        Some(value)
    }

    /// A category.
    pub(super) fn category(&self, name: &str) -> Option<&Category> {
        self.categories
            .iter()
            .find(|category| category.name == name)
    }

    /// A requirement of a category.
    pub(super) fn requirement(&self, category: &str, id: &str) -> Option<&Requirement> {
        let requirements = &self.category(category)?.requirements;
        requirements.iter().find(|requirement| requirement.id == id)
    }

    /// The text, in the order and with the quotes of the programme's checklists.
    pub(super) fn text(&self) -> String {
        let members = self
            .metadata
            .iter()
            .map(|(key, value)| format!("  {}: {}", yaml::key_text(key), quoted(value)));
        let mut lines = vec!["metadata:".to_owned()];
        lines.extend(members);
        lines.push("\nspec:".to_owned());
        for category in &self.categories {
            lines.push(format!("  {}:", yaml::key_text(&category.name)));
            lines.extend(category.requirements.iter().flat_map(Requirement::lines));
        }
        lines.join("\n") + "\n"
    }
}

impl Requirement {
    /// The lines of an entry of a category.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("    - id: {}", yaml::key_text(&self.id)),
            format!("      description: {}", quoted(&self.description)),
            format!("      level: {}", yaml::key_text(&self.level)),
            format!("      status: {}", quoted(&self.status)),
        ];
        if self.evidence.is_empty() {
            lines.push("      evidence: []".to_owned());
        } else {
            let entries = self.evidence.iter();
            lines.push("      evidence:".to_owned());
            lines.extend(entries.map(|entry| format!("        - {}", quoted(entry))));
        }
        lines.push(format!("      notes: {}", quoted(&self.notes)));
        lines
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", yaml::escaped(text))
}

/// `k8s_conformance_url` of `k8sConformanceUrl`.
pub(super) fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "metadata:\n  kubernetesVersion: v1.37\n  vendor_name: \"V: 1\"\n  repoUrl:\n\
        spec:\n  security:\n    - id: a\n      description: \"say \\\"x\\\"\"\n      level: MUST\n      \
        status: \"\"\n      evidence: []\n      notes: \"\"\n    - id: b\n      level: SHOULD\n      \
        status: N/A\n      evidence: [e2e.log]\n      notes: |\n        two\n        lines\n";

    #[test]
    fn document_that_was_written_reads_the_same() {
        let document = Document::read(TEXT).unwrap();
        assert_eq!(document.member("vendorName"), Some("V: 1"));
        assert_eq!(document.member("repoUrl"), None);
        let second = document.requirement("security", "b").unwrap();
        assert_eq!(second.notes, "two\nlines\n");
        assert_eq!(second.evidence, ["e2e.log"]);
        let again = Document::read(&document.text()).unwrap();
        assert_eq!(again.metadata, document.metadata);
        let requirements = |document: &Document| document.categories[0].requirements.clone();
        assert_eq!(requirements(&again), requirements(&document));
    }

    #[test]
    fn mistakes_have_their_places() {
        for (from, to, words) in [
            (
                "v1.37",
                "1.37",
                "line 2, column 22: `metadata.kubernetesVersion` must be text",
            ),
            ("status: N/A", "state: N/A", "`spec.security[1].state`"),
            (
                "evidence: [e2e.log]",
                "evidence: e2e.log",
                "must be a list, not text",
            ),
            (
                "spec:",
                "specs:",
                "`specs` is unknown; use metadata and spec",
            ),
            ("metadata:", "metadata: [", "line"),
        ] {
            let wrong = Document::read(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(wrong.concat().contains(words), "{wrong:?}");
        }
    }

    #[test]
    fn names_of_metadata_have_two_spellings() {
        assert_eq!(snake_case("k8sConformanceUrl"), "k8s_conformance_url");
        assert_eq!(snake_case("kubernetesVersion"), "kubernetes_version");
    }
}
