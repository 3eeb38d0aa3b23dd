//! The clusters of `--contexts` and `--kubeconfigs`: their names, folders and credentials.
//!
//! Reports unknown contexts, absent files and clusters named twice, before anything starts. Other problems of a cluster
//! are reported by its process. Opens no connection.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use super::super::flag::Args;
use super::super::{cluster, error};
use base::at::At as _;
use base::kube::{Config, Options};
use base::{near, percent_encoded, sys};

/// The word for all contexts.
const ALL: &str = "all";

/// One cluster.
pub(super) struct SelectedCluster {
    /// Its context, or the name of its kubeconfig without an extension.
    pub(super) name: String,
    /// The name of its folder.
    pub(super) folder: String,
    /// The flag that selects it, with its value.
    pub(super) flag: (&'static str, PathBuf),
}

/// The clusters of a call.
pub(super) fn clusters(args: Args) -> Result<Vec<SelectedCluster>> {
    let options = cluster::options(args)?;
    let named: Vec<&str> = args.all("contexts").filter(|name| !name.is_empty()).collect();
    let all = named.contains(&ALL);
    let found = match named.is_empty() {
        true => kubeconfigs(args.all("kubeconfigs"))?,
        false => contexts(&options, &named, all)?,
    };
    let mut seen = BTreeMap::<String, String>::new();
    let mut chosen = Vec::new();
    for cluster in found {
        let (flag, value) = &cluster.flag;
        let mut options = options.clone();
        match *flag {
            "context" => options.context = Some(cluster.name.clone()),
            _ => options.path = Some(value.clone()),
        }
        // A tunnel may give several clusters the same address.
        let server = Config::find(&options).map(|config| format!("{} {:?}", config.server, config.proxy));
        let keys = server.into_iter().chain([cluster.folder.to_lowercase()]);
        let twins: Vec<_> = keys.filter_map(|key| seen.insert(key, cluster.name.clone())).collect();
        let Some(other) = twins.first() else {
            chosen.push(cluster);
            continue;
        };
        let problem = format!("`{other}` and `{}` are the same cluster, or share a folder", cluster.name);
        ensure!(all, error::usage(format!("{problem}; name one of them")));
        log::warn!("{problem}: `{}` is left out", cluster.name);
    }
    Ok(chosen)
}

fn contexts(options: &Options, named: &[&str], all: bool) -> Result<Vec<SelectedCluster>> {
    let known = Config::contexts(options);
    if known.is_empty() {
        // Says what is wrong with the kubeconfig.
        Config::find(options)?;
        bail!("the kubeconfig has no contexts");
    }
    let known_words = || known.iter().map(String::as_str);
    let unknown = |name: &&&str| **name != ALL && !known_words().any(|known| known == **name);
    if let Some(name) = named.iter().find(unknown) {
        let (names, hint) = (known.join(", "), near::hint(name, known_words()));
        return Err(error::invalid("contexts", name, &format!("the kubeconfig has {names}{hint}")));
    }
    let chosen: Vec<&str> = if all { known_words().collect() } else { named.to_vec() };
    let cluster = |name: &str| SelectedCluster::new(name.to_owned(), ("context", name.into()));
    Ok(chosen.into_iter().map(cluster).collect())
}

/// The files, those in a folder, and those of `FOLDER/*`, for shells that leave it as it is.
fn kubeconfigs<'a>(paths: impl Iterator<Item = &'a str>) -> Result<Vec<SelectedCluster>> {
    let mut files = Vec::new();
    for path in paths {
        let path = Path::new(path);
        let folder = if path.ends_with("*") { path.parent().unwrap_or(path) } else { path };
        if fs::metadata(folder).at("cannot read", folder)?.is_dir() {
            let entries = fs::read_dir(folder).at("cannot read", folder)?;
            let inside = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
            let start = files.len();
            files.extend(inside);
            files[start..].sort();
        } else {
            files.push(path.to_owned());
        }
    }
    ensure!(!files.is_empty(), "--kubeconfigs: the folder is empty");
    let cluster = |path: PathBuf| {
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        SelectedCluster::new(name, ("kubeconfig", path))
    };
    Ok(files.into_iter().map(cluster).collect())
}

impl SelectedCluster {
    fn new(name: String, flag: (&'static str, PathBuf)) -> Self {
        Self { folder: folder(&name), name, flag }
    }
}

/// The name of a cluster's folder: characters that not every system allows are written as `%XX`, which is unambiguous.
fn folder(name: &str) -> String {
    let text = percent_encoded(name);
    let text = text.strip_prefix('.').map_or_else(|| text.clone(), |rest| format!("%2E{rest}"));
    // Windows has names that mean devices, and drops dots at the end.
    if sys::can_have(&text) && !text.ends_with('.') { text } else { format!("{text}%") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_contexts_are_valid_and_distinct() {
        for (name, expected) in [
            ("kind-a", "kind-a"),
            ("arn:aws:eks:eu-west-1:1:cluster/a", "arn%3Aaws%3Aeks%3Aeu-west-1%3A1%3Acluster%2Fa"),
            ("admin@a.example", "admin%40a.example"),
            (".", "%2E"),
            ("..", "%2E.%"),
            ("../../etc", "%2E.%2F..%2Fetc"),
            ("a%2Fb", "a%252Fb"),
            ("a b\n", "a%20b%0A"),
            ("ü", "%C3%BC"),
        ] {
            assert_eq!(folder(name), expected);
        }
    }
}
