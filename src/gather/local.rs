//! Facts that others bring along: `*.fact` files, JSON or INI, of the node's `/etc/ansible/facts.d` and of the plugin's config map.
//!
//! Nothing of the node is run: a file that is a program is listed in `sonobuoy_unread`. What a plugin's own files say wins.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Facts, Node, Source};
use crate::names::env;
use base::small;

/// The folder of a node.
const FOLDER: &str = "/etc/ansible/facts.d";
/// How such files end.
const ENDING: &str = ".fact";
/// More than anybody says in one file; of how many files.
const MAX_FACT_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 100;

pub(crate) struct Local;

impl Source for Local {
    fn gather(&self, node: &Node, facts: &mut Facts) {
        let mut local = Map::new();
        let mut names: Vec<String> =
            node.list(FOLDER).into_iter().filter(|name| name.ends_with(ENDING)).collect();
        names.sort();
        for name in names.iter().take(MAX_FILES) {
            let path = format!("{FOLDER}/{name}");
            let text = node.text(&path).unwrap_or_default();
            if text.starts_with("#!") || text.starts_with("\u{7f}ELF") {
                node.note(&path, "it is a program, and nothing of the node is run");
                continue;
            }
            local.insert(key(name), read(&path, &text));
        }
        let own = std::env::var(env::CONFIG_DIR).ok().filter(|folder| !folder.is_empty());
        for (name, path, text) in own.iter().flat_map(|folder| files(Path::new(folder))) {
            local.insert(key(&name), read(&path, &text));
        }
        facts.set("local", local);
    }
}

/// The `*.fact` files of a folder of this container, sorted.
fn files(folder: &Path) -> Vec<(String, String, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ENDING)).take(MAX_FILES).collect();
    names.sort();
    let text = |name: String| {
        let path = folder.join(&name);
        let bytes = small::read(&path, MAX_FACT_BYTES).ok()?;
        Some((name, path.display().to_string(), String::from_utf8(bytes).ok()?))
    };
    names.into_iter().filter_map(text).collect()
}

fn key(name: &str) -> String {
    name.replace(ENDING, "")
}

/// What a file says: JSON, else INI; a sentence if it is neither, as Ansible has it.
fn read(path: &str, text: &str) -> Value {
    base::json::from_slice(text.as_bytes()).ok().or_else(|| ini(text)).unwrap_or_else(|| {
        format!("error loading facts as JSON or ini - please check content: {path}").into()
    })
}

/// Sections with options, whose names are in small letters; a line that begins with a blank goes on with the last value.
fn ini(text: &str) -> Option<Value> {
    let mut sections: Map<String, Value> = Map::new();
    let mut open: Option<(String, Option<String>)> = None;
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.insert(name.to_owned(), Map::new().into());
            open = Some((name.to_owned(), None));
            continue;
        }
        let (section, last) = open.as_mut()?;
        let options = sections.get_mut(section.as_str())?.as_object_mut()?;
        if line.starts_with([' ', '\t'])
            && let Some(last) = last
        {
            let known = options.get(last).and_then(Value::as_str)?;
            let longer = format!("{known}\n{content}");
            options.insert(last.clone(), longer.into());
            continue;
        }
        let at = content.find(['=', ':'])?;
        let option = content[..at].trim().to_lowercase();
        options.insert(option.clone(), content[at + 1..].trim().into());
        *last = Some(option);
    }
    Some(sections.into())
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;
    use base::json::json;

    #[test]
    fn files_are_json_or_ini_and_programs_are_not_run() {
        let (_scratch, node) = Scratch::node(&[
            ("etc/ansible/facts.d/a.fact", "{\"rack\": [1, \"b\"]}"),
            ("etc/ansible/facts.d/b.fact", "# why\n[General]\nOwner = me\nlong: one\n two\n[empty]\n"),
            ("etc/ansible/facts.d/c.fact", "neither\n"),
            ("etc/ansible/facts.d/d.fact", "#!/bin/sh\necho {}\n"),
            ("etc/ansible/facts.d/e.txt", "{}"),
        ]);
        let mut facts = Facts::default();
        Local.gather(&node, &mut facts);
        let local = facts.get("local").unwrap();
        assert_eq!(local["a"], json!({"rack": [1, "b"]}));
        assert_eq!(local["b"], json!({"General": {"owner": "me", "long": "one\ntwo"}, "empty": {}}));
        assert!(local["c"].as_str().unwrap().starts_with("error loading facts as JSON or ini"), "{local}");
        assert_eq!(local.as_object().unwrap().len(), 3);
        assert!(node.unread().contains_key("/etc/ansible/facts.d/d.fact"));
    }

    #[test]
    fn a_plugin_brings_facts_in_its_config_map() {
        let folder = base::temp::Folder::new().unwrap();
        std::fs::write(folder.join("rack.fact"), "[place]\nrow=7\n").unwrap();
        std::fs::write(folder.join("other.yaml"), "a: b").unwrap();
        let found = files(&folder);
        let [(name, _, text)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((key(name), read("x", text)), ("rack".into(), json!({"place": {"row": "7"}})));
    }
}
