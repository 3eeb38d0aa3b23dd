//! Custom facts: `*.fact` files, JSON or INI, of the node's `/etc/ansible/facts.d` and of the plugin's config map.
//!
//! Executable facts run only with `--run-facts`: the plugin is privileged, so they run as root of the node, while users
//! expect gathering facts to be read-only. Without the flag they are listed in `sonobuoy_unread`. The node's own programs
//! run only if no user but root can write them. They get an empty environment, a separate process group and a short timeout.
//! The plugin's own files take precedence.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{Facts, NodeFiles, journal};
use crate::names::env;
use base::{small, sys};

/// Folder of facts on a node.
const FOLDER: &str = "/etc/ansible/facts.d";
/// File extension of facts.
const ENDING: &str = ".fact";
/// Maximum bytes of one fact file.
const MAX_FACT_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 100;
/// Timeout of one program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
const PROGRAMS_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn gather(node: &NodeFiles, facts: &mut Facts) {
    let end = Instant::now() + PROGRAMS_TIMEOUT;
    let names = node.list(FOLDER).into_iter().filter(|name| name.ends_with(ENDING)).take(MAX_FILES);
    let of_node = names.map(|name| {
        let path = format!("{FOLDER}/{name}");
        let text = node.text(&path).unwrap_or_default();
        (path, text, true)
    });
    let own = sys::variable(env::CONFIG_DIR);
    let own = own.iter().flat_map(|folder| files(Path::new(folder)));
    let mut local = Map::new();
    for (path, text, of_node) in of_node.chain(own.map(|(path, text)| (path, text, false))) {
        match fact(node, end, &path, &text, of_node) {
            Ok(value) => {
                local.insert(path.rsplit('/').next().unwrap_or(&path).replace(ENDING, ""), value);
            }
            Err(why) => node.note(&path, why),
        }
    }
    facts.set("local", local);
}

/// The fact in a file of the node or of this container, or in the output of a program if these are enabled; else the reason
/// for its absence.
fn fact(node: &NodeFiles, end: Instant, path: &str, text: &str, of_node: bool) -> Result<Value, String> {
    let file = if of_node { node.resolve(path, true).unwrap_or_default() } else { path.into() };
    // Text may have the executable bit, too.
    let is_program = text.starts_with("#!") || text.starts_with("\u{7f}ELF");
    if !(is_program || node.programs && sys::is_runnable(&file)) {
        return Ok(read(path, text));
    }
    if !node.programs {
        return Err("it is a program, and is run only with `--run-facts`".into());
    }
    let mut command = if of_node {
        if let Some(why) = [FOLDER, path].iter().find_map(|path| open_to_others(node, path)) {
            return Err(why);
        }
        journal::command(node, path)
    } else {
        let mut command = Command::new(path);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
    };
    let left = end.saturating_duration_since(Instant::now()).min(PROGRAM_TIMEOUT);
    if left.is_zero() {
        return Err(format!("the {} s for all programs were used up", PROGRAMS_TIMEOUT.as_secs()));
    }
    // Orphans of the program must not hold its output open.
    let _ = sys::adopt_strays();
    let said = sys::ask(&mut command, None, MAX_FACT_BYTES, left, &sys::end_strays);
    sys::end_strays();
    match said {
        Ok((text, status)) if status.success() => Ok(read(path, &String::from_utf8_lossy(&text))),
        Ok((_, status)) => Err(format!("it ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Why a user other than root and the current one can write a file, if so.
fn open_to_others(node: &NodeFiles, path: &str) -> Option<String> {
    let about = node.resolve(path, true).and_then(std::fs::metadata).ok()?;
    let known = [0, rustix::process::geteuid().as_raw().into()];
    let others = !known.contains(&sys::owner(&about).0) || sys::mode(&about) & 0o022 != 0;
    others.then(|| format!("it is not run, since others than root may write to `{path}`"))
}

/// The `*.fact` files of a folder of this container, sorted: path and text.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| entry.ok()?.path().into_os_string().into_string().ok());
    let paths: BTreeSet<String> = paths.filter(|path| path.ends_with(ENDING)).take(MAX_FILES).collect();
    let text = |path: String| {
        let bytes = small::read(Path::new(&path), MAX_FACT_BYTES).ok()?;
        Some((path, String::from_utf8(bytes).ok()?))
    };
    paths.into_iter().filter_map(text).collect()
}

/// Parses a file as JSON, else INI; yields an error text if it is neither, as Ansible does.
fn read(path: &str, text: &str) -> Value {
    base::json::from_slice(text.as_bytes()).ok().or_else(|| ini(text)).unwrap_or_else(|| {
        format!("error loading facts as JSON or ini - please check content: {path}").into()
    })
}

/// Parses sections with lower-case option names; an indented line continues the previous value.
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
    fn fact_files_are_json_or_ini_and_programs_opt_in() {
        let (_scratch, node) = Scratch::node(&[
            ("etc/ansible/facts.d/a.fact", "{\"rack\": [1, \"b\"]}"),
            ("etc/ansible/facts.d/b.fact", "# why\n[General]\nOwner = me\nlong: one\n two\n[empty]\n"),
            ("etc/ansible/facts.d/c.fact", "neither\n"),
            ("etc/ansible/facts.d/d.fact", "#!/bin/sh\necho {}\n"),
            ("etc/ansible/facts.d/e.txt", "{}"),
        ]);
        let mut facts = Facts::default();
        gather(&node, &mut facts);
        let local = facts.get("local").unwrap();
        assert_eq!(local["a"], json!({"rack": [1, "b"]}));
        assert_eq!(local["b"], json!({"General": {"owner": "me", "long": "one\ntwo"}, "empty": {}}));
        assert!(local["c"].as_str().unwrap().starts_with("error loading facts as JSON or ini"), "{local}");
        assert_eq!(local.as_object().unwrap().len(), 3);
        assert!(node.unread().contains_key("/etc/ansible/facts.d/d.fact"));
    }

    #[test]
    fn config_map_adds_local_facts() {
        let folder = base::temp::Folder::new().unwrap();
        std::fs::write(folder.join("rack.fact"), "[place]\nrow=7\n").unwrap();
        std::fs::write(folder.join("other.yaml"), "a: b").unwrap();
        let found = files(&folder);
        let [(path, text)] = &found[..] else { panic!("{found:?}") };
        assert!(path.ends_with("/rack.fact"), "{path}");
        assert_eq!(read("x", text), json!({"place": {"row": "7"}}));
    }
}
