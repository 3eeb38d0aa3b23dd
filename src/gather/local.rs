//! Custom facts: `*.fact` files, JSON or INI, of the node's `/etc/ansible/facts.d` and of the
//! plugin's config map.
//!
//! Executable facts run only with `--run-facts`: the plugin is privileged, so they run as root of
//! the node, while users expect gathering facts to be read-only. Without the flag they are listed
//! in `sonobuoy_unread`. The node's own programs run only if no user but root can write them. They
//! get an empty environment, a separate process group and a short timeout. The plugin's own files
//! take precedence.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{NodeFiles, journal};
use base::json::json;
use base::sys;
use kube::Object as _;
use model::names::env;

/// Folder of facts on a node.
const FOLDER: &str = "/etc/ansible/facts.d";
/// File extension of facts.
const ENDING: &str = ".fact";
/// Maximum bytes that a program may print.
const MAX_FACT_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 100;
/// Timeout of one program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
const PROGRAMS_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for killed processes that a program left behind.
const STRAYS_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn gather(node: &NodeFiles) -> Value {
    let end = Instant::now() + PROGRAMS_TIMEOUT;
    let mut local = Map::new();
    add(node, FOLDER, node, end, &mut local);
    if let (Some(folder), Ok(mut own)) = (
        sys::variable(env::CONFIG_DIR),
        NodeFiles::open(Path::new("/")),
    ) {
        own.programs = node.programs;
        add(&own, &folder, node, end, &mut local);
    }
    json!({ "ansible_local": local })
}

/// Adds the facts in a folder of the node or of this container, and notes the others of the node.
fn add(
    files: &NodeFiles,
    folder: &str,
    node: &NodeFiles,
    end: Instant,
    local: &mut Map<String, Value>,
) {
    for name in files
        .list(folder)
        .into_iter()
        .filter(|name| name.ends_with(ENDING))
        .take(MAX_FILES)
    {
        let path = format!("{folder}/{name}");
        match fact(files, &path, end) {
            Ok(value) => drop(local.insert(name.replace(ENDING, ""), value)),
            Err(why) => node.note(&path, why),
        }
    }
}

/// The fact in a file, or in the output of a program if these are enabled; else the reason for its
/// absence.
fn fact(files: &NodeFiles, path: &str, end: Instant) -> Result<Value, String> {
    let text = files.text(path).unwrap_or_default();
    // Text may have the executable bit, too.
    let is_program = text.starts_with("#!") || text.starts_with("\u{7f}ELF");
    let is_runnable = || {
        files
            .resolve(path, true)
            .is_ok_and(|file| sys::is_runnable(&file))
    };
    if !(is_program || files.programs && is_runnable()) {
        return Ok(read(path, &text));
    }
    if !files.programs {
        return Err("it is a program, and is run only with `--run-facts`".into());
    }
    if path.starts_with(FOLDER)
        && let Some(why) = [FOLDER, path]
            .iter()
            .find_map(|path| open_to_others(files, path))
    {
        return Err(why);
    }
    let time_left = end
        .saturating_duration_since(Instant::now())
        .min(PROGRAM_TIMEOUT);
    if time_left.is_zero() {
        return Err(format!(
            "the {} s for all programs were used up",
            PROGRAMS_TIMEOUT.as_secs()
        ));
    }
    // Orphans of the program must not hold its output open.
    let _ = sys::adopt_strays();
    let end_strays = || sys::end_strays(STRAYS_TIMEOUT);
    let output = sys::ask(
        &mut journal::command(files, path),
        None,
        MAX_FACT_BYTES,
        time_left,
        &end_strays,
    );
    end_strays();
    match output {
        Ok((text, status)) if status.success() => Ok(read(path, &String::from_utf8_lossy(&text))),
        Ok((_, status)) => Err(format!("it ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Why a user other than root and the current one can write a file, if so.
fn open_to_others(node: &NodeFiles, path: &str) -> Option<String> {
    let about = node.resolve(path, true).and_then(std::fs::metadata).ok()?;
    let trusted_users = [0, rustix::process::geteuid().as_raw().into()];
    let others = !trusted_users.contains(&sys::owner(&about).0) || sys::mode(&about) & 0o022 != 0;
    others.then(|| format!("it is not run, since others than root may write to `{path}`"))
}

/// Parses a file as JSON, else INI; yields an error text if it is neither, as Ansible does.
fn read(path: &str, text: &str) -> Value {
    base::json::from_slice(text.as_bytes())
        .ok()
        .or_else(|| ini(text))
        .unwrap_or_else(|| {
            format!("error loading facts as JSON or ini - please check content: {path}").into()
        })
}

/// Parses sections with lower-case option names; an indented line continues the previous value.
fn ini(text: &str) -> Option<Value> {
    let mut sections = json!({});
    let (mut section, mut option) = (None, String::new());
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = content
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            sections[name] = json!({});
            section = Some(name);
            option.clear();
        } else if line.starts_with([' ', '\t']) && !option.is_empty() {
            let value = &mut sections[section?][&option];
            *value = format!("{}\n{content}", value.text()).into();
        } else {
            let (name, value) = content.split_once(['=', ':'])?;
            option = name.trim().to_lowercase();
            sections[section?][&option] = value.trim().into();
        }
    }
    Some(sections)
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::Scratch;
    use super::*;

    #[test]
    fn fact_files_are_json_or_ini_and_programs_opt_in() {
        let (_scratch, node) = Scratch::node(&[
            ("etc/ansible/facts.d/a.fact", "{\"rack\": [1, \"b\"]}"),
            (
                "etc/ansible/facts.d/b.fact",
                "# why\n[General]\nOwner = me\nlong: one\n two\n[empty]\n",
            ),
            ("etc/ansible/facts.d/c.fact", "neither\n"),
            ("etc/ansible/facts.d/d.fact", "#!/bin/sh\necho {}\n"),
            ("etc/ansible/facts.d/e.txt", "{}"),
        ]);
        let local = &gather(&node)["ansible_local"];
        assert_eq!(local["a"], json!({"rack": [1, "b"]}));
        assert_eq!(
            local["b"],
            json!({"General": {"owner": "me", "long": "one\ntwo"}, "empty": {}})
        );
        assert!(
            local["c"]
                .as_str()
                .unwrap()
                .starts_with("error loading facts as JSON or ini"),
            "{local}"
        );
        assert_eq!(local.as_object().unwrap().len(), 3);
        assert!(node.unread().contains_key("/etc/ansible/facts.d/d.fact"));
    }

    #[test]
    fn config_map_adds_local_facts() {
        let (_scratch, node) = Scratch::node(&[
            ("etc/ansible/facts.d/rack.fact", "{}"),
            ("own/rack.fact", "[place]\nrow=7\n"),
            ("own/other.yaml", "a: b"),
        ]);
        let mut local = Map::new();
        add(&node, FOLDER, &node, Instant::now(), &mut local);
        add(&node, "/own", &node, Instant::now(), &mut local);
        assert_eq!(
            Value::Object(local),
            json!({"rack": {"place": {"row": "7"}}}),
            "the own one takes precedence"
        );
    }
}
