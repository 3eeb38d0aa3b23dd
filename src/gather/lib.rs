//! Gathers a node's facts, logs and connectivity, and leaves results for a worker.
//!
//! Owns the list of sources and the format of the facts. Each source is a function in a file about
//! its subject; adding one takes a line in [`SOURCES`]. No source runs a program, except [`local`]
//! on request, and none blocks: unreadable files are listed in `sonobuoy_unread`. Does not know how
//! results are submitted.

// It reads `/proc`, `/sys` and the journal: on other systems the crate is empty.
#![cfg(target_os = "linux")]
#![allow(
    missing_docs,
    rustdoc::private_intra_doc_links,
    reason = "an internal crate: names and headers say it"
)]

pub mod command;
mod distribution;
mod hardware;
pub mod journal;
mod kubernetes;
mod local;
pub mod logs;
mod network;
pub mod node;
mod platform;
pub mod reach;
mod storage;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use base::at::At as _;
use base::json::json;
use base::temp;
use model::names::VERSION;
use model::{item, remedies};

pub use node::NodeFiles;

/// All sources of facts. A fact's name begins with `ansible_` if Ansible's setup module has it,
/// else with `sonobuoy_`; one that does not exist is missing or null.
const SOURCES: &[fn(&NodeFiles) -> Value] = &[
    platform::kernel,
    platform::names,
    platform::architecture,
    platform::services,
    platform::storage_names,
    platform::security,
    platform::clock,
    distribution::gather,
    hardware::firmware,
    hardware::processors,
    hardware::memory,
    hardware::virtualization,
    storage::devices,
    storage::mounts,
    network::gather,
    kubernetes::gather,
    kubernetes::processes,
    local::gather,
];

/// The facts of a node in the format of Ansible's setup module, `{"ansible_facts": {...},
/// "changed": false}`.
///
/// Also a valid result in the `manual` format: `status` tells whether facts exist, `details` which
/// ones are missing. Consumers of Ansible's format ignore both.
pub fn host_facts(node: &NodeFiles) -> Value {
    let mut facts = json!({});
    for source in SOURCES {
        if let Value::Object(found) = source(node) {
            found
                .into_iter()
                .for_each(|(name, fact)| facts[name] = fact);
        }
    }
    for folder in ["/proc", "/sys"] {
        if node.list(folder).is_empty() {
            node.note(folder, "it is empty: mount the node's own");
        }
    }
    if node.live {
        let around = reach::Destinations::read();
        let skew = around.skew().map(|skew| json!(skew));
        for (name, fact) in [("clock_offset", skew), ("node_info", around.node_info())] {
            match fact {
                Ok(fact) => facts[format!("sonobuoy_{name}")] = fact,
                Err(error) => node.note(&name.replace('_', " "), format!("{error:#}")),
            }
        }
    }
    let unread = node.unread();
    facts["sonobuoy_unread"] = json!(unread);
    facts["sonobuoy_version"] = VERSION.into();
    facts["gather_subset"] = json!(["all"]);
    facts["module_setup"] = true.into();
    let details = if unread.is_empty() {
        json!({})
    } else {
        json!({ "unread": unread })
    };
    json!({
        "ansible_facts": without_nulls(facts), "changed": false,
        "name": "host-facts", "status": item::PASSED, "details": details,
    })
}

/// The document without facts, in the same format.
pub fn no_facts(why: &str) -> Value {
    json!({
        "ansible_facts": {}, "changed": false, "failed": true, "msg": why,
        "name": "host-facts", "status": item::FAILED, "details": { "error": why, "remedy": remedy(why) },
    })
}

/// The remedy for a node that cannot be read.
fn remedy(why: &str) -> &'static str {
    remedies::remedy(why).unwrap_or(
        "mount the root of the node's file system, and name it with `--chroot` or `CHROOT_DIR`, \
         as the plugin does",
    )
}

/// The entries of an object that are not null.
fn without_nulls(mut object: Value) -> Value {
    object
        .as_object_mut()
        .into_iter()
        .for_each(|entries| entries.retain(|_, value| !value.is_null()));
    object
}

/// Splits `key: value` lines, as in many files of /proc.
fn pairs(text: &str, separator: char) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(move |line| {
        let (key, value) = line.split_once(separator)?;
        Some((key.trim(), value.trim()))
    })
}

/// The values of a key in such lines.
fn values<'t>(text: &'t str, separator: char, name: &str) -> impl Iterator<Item = &'t str> {
    pairs(text, separator)
        .filter(move |(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// The first value of a key in such lines.
fn field<'t>(text: &'t str, separator: char, name: &str) -> Option<&'t str> {
    values(text, separator, name).next()
}

fn between(text: &str, open: char, close: char) -> Option<&str> {
    Some(text.split_once(open)?.1.split_once(close)?.0)
}

/// A folder for results, which a worker watches, and the `done` file in it. A result is complete
/// before `done` names it; `done` appears atomically and without a newline, so that workers of
/// every version can read it.
pub struct Outbox {
    folder: PathBuf,
}

impl Outbox {
    /// Opens an existing folder: in a pod it is a volume, and a missing one was not mounted.
    pub fn open(folder: &Path) -> Result<Self> {
        // Resolves links once, so that the path in `done` stays valid.
        let folder = folder.canonicalize().with_context(|| {
            format!(
                "cannot write results to `{}`: create it, or name another folder with --output",
                folder.display()
            )
        })?;
        // A previous container may have been killed.
        temp::clean(&folder, "").at("cannot read", &folder)?;
        Ok(Self { folder })
    }

    /// Path of an entry of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file completely or not at all.
    pub fn write_file(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        temp::write(&path, 0o666, content).at("cannot write", &path)?;
        Ok(path)
    }

    /// Reports the resulting file or folder to the worker.
    pub fn done(&self, result: &Path) -> Result<()> {
        self.write_file("done", result.as_os_str().as_encoded_bytes())
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::node::tests::Scratch;
    use super::*;

    #[test]
    fn done_names_the_result_without_a_newline() {
        let scratch = Scratch::new();
        let outbox = Outbox::open(&scratch.0).unwrap();
        let path = outbox.write_file("facts.json", b"{}").unwrap();
        outbox.done(&path).unwrap();
        let done = fs::read_to_string(outbox.path("done")).unwrap();
        assert_eq!(Path::new(&done), path);
        assert_eq!(
            fs::read_dir(&scratch.0).unwrap().count(),
            2,
            "nothing partial stays"
        );
    }

    #[test]
    fn missing_folder_is_named() {
        let scratch = Scratch::new();
        let error = Outbox::open(&scratch.0.join("absent")).err().unwrap();
        assert!(format!("{error:#}").contains("absent`"), "{error:#}");
        fs::create_dir_all(scratch.0.join("facts.json")).unwrap();
        let outbox = Outbox::open(&scratch.0).unwrap();
        assert!(
            outbox.write_file("facts.json", b"{}").is_err(),
            "a folder in the way"
        );
    }
}
