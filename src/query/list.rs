//! One kind of object, listed in pages and streamed into files, one file per namespace.
//!
//! Owns the layout `resources/cluster/…` and `resources/ns/<namespace>/…`. Holds one object at a time. Every server that
//! uses etcd returns the objects of a kind sorted by namespace, so only one file is open; a server that mixes namespaces
//! costs reopening files, not memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use regex::Regex;
use serde_json::Value;

use super::{Answer, Fault, Query, Trouble, component};
use crate::{layout, names};
use base::at::At as _;
use base::json::json;
use base::kube::{Resource, Selector, forget_managers};

/// Lists one kind.
pub(super) struct Listing {
    pub(super) resource: Resource,
    /// The namespace to list; empty for all of them and for cluster-scoped objects.
    pub(super) namespace: String,
    /// If all are listed: the namespaces to keep.
    pub(super) only: Option<Arc<Scope>>,
    pub(super) selector: Selector,
}

/// The selected namespaces.
pub(super) struct Scope {
    /// By name; one created in the meantime is selected, too.
    pub(super) wanted: Regex,
    /// Those that existed at the start.
    pub(super) known: BTreeSet<String>,
}

impl Listing {
    pub(super) fn fetch(&self, query: &Query<'_>) -> Result<Answer, Fault> {
        match (self.list(query, &self.namespace), &self.only) {
            // Without permission to list everywhere, listing some namespaces may still be allowed.
            (Err(Fault::Forbidden(why)), Some(scope)) => self.piecemeal(query, scope, why),
            (found, _) => found,
        }
    }

    fn piecemeal(&self, query: &Query<'_>, scope: &Scope, why: String) -> Result<Answer, Fault> {
        let mut answer = Answer::default();
        let (mut allowed, mut refused) = (false, Vec::new());
        let mut troubles = Vec::new();
        let mut trouble = |namespace: &str, error: String| {
            troubles.push(Trouble {
                queryobj: self.resource.plural.to_string(),
                namespace: namespace.to_owned(),
                name: String::new(),
                error,
            });
        };
        for namespace in &scope.known {
            match self.list(query, namespace) {
                Ok(part) => {
                    allowed = true;
                    answer.health.add(part.health);
                }
                Err(Fault::Forbidden(_)) => refused.push(namespace.as_str()),
                Err(Fault::Refused(error)) => trouble(namespace, error),
                Err(fault) => return Err(fault),
            }
        }
        if !allowed && refused.len() == scope.known.len() {
            return Err(Fault::Forbidden(why));
        }
        if !refused.is_empty() {
            let (number, all) = (refused.len(), scope.known.len());
            refused.truncate(10);
            trouble("", format!("{why}; not listed in {number} of {all} namespaces: {}", refused.join(", ")));
        }
        answer.troubles = troubles;
        Ok(answer)
    }

    fn list(&self, query: &Query<'_>, namespace: &str) -> Result<Answer, Fault> {
        let mut answer = Answer::default();
        let mut files = Files::new(query.folder, &self.resource);
        let mut take = |mut object: Value| {
            // Only a list of all namespaces needs the objects' own.
            let place = match namespace {
                "" => object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
                asked => asked.to_owned(),
            };
            let everywhere = self.resource.namespaced && namespace.is_empty();
            if everywhere && self.only.as_ref().is_some_and(|scope| !scope.wanted.is_match(&place)) {
                return Ok(());
            }
            // A secret of this run alone, which permits replacing the archive.
            if self.resource.plural == "secrets" && object["metadata"]["name"] == names::UPLOAD_SECRET {
                return Ok(());
            }
            answer.health.see(&self.resource, &object);
            if let Some(redactor) = query.redactor {
                redactor.object(&self.resource, &mut object);
            }
            files.add(&place, object).map_err(|error| format!("{error:#}"))
        };
        let listed = query.client.each(&self.resource, namespace, &self.selector, &mut take);
        let version = listed.as_ref().map(|meta| meta.version.clone()).unwrap_or_default();
        // The first part of an interrupted list is worth keeping; the error says that it is incomplete.
        files.finish(&version).map_err(Fault::Disk)?;
        listed?;
        Ok(answer)
    }
}

/// The files of one kind.
struct Files<'a> {
    folder: &'a Path,
    resource: &'a Resource,
    open: Option<(String, BufWriter<File>)>,
    begun: BTreeMap<String, PathBuf>,
}

impl<'a> Files<'a> {
    fn new(folder: &'a Path, resource: &'a Resource) -> Self {
        Self { folder, resource, open: None, begun: BTreeMap::new() }
    }

    fn path(&self, namespace: &str) -> PathBuf {
        let group = if self.resource.group.is_empty() { "core" } else { &self.resource.group };
        let name =
            component(&format!("{group}_{}_{}", self.resource.version, self.resource.plural)) + ".json";
        let namespace = self.resource.namespaced.then(|| component(namespace));
        self.folder.join(layout::resources(namespace.as_deref())).join(name)
    }

    fn add(&mut self, namespace: &str, mut object: Value) -> anyhow::Result<()> {
        forget_managers(&mut object);
        let path = self.path(namespace);
        let context = || format!("cannot write `{}`", path.display());
        if self.open.as_ref().is_none_or(|(current, _)| current != namespace) {
            self.close()?;
            let new = !self.begun.contains_key(namespace);
            let file = if new {
                let parent = path.parent().unwrap_or(self.folder);
                fs::create_dir_all(parent).with_context(context)?;
                File::create(&path).with_context(context)?
            } else {
                OpenOptions::new().append(true).open(&path).with_context(context)?
            };
            let mut writer = BufWriter::new(file);
            let begin = if new {
                format!(r#"{{"apiVersion":{},"items":["#, json!(self.resource.api_version()))
            } else {
                ",".into()
            };
            writer.write_all(begin.as_bytes()).with_context(context)?;
            self.begun.insert(namespace.to_owned(), path.clone());
            self.open = Some((namespace.to_owned(), writer));
        } else if let Some((_, writer)) = &mut self.open {
            writer.write_all(b",").with_context(context)?;
        }
        if let Some((_, writer)) = &mut self.open {
            serde_json::to_writer(writer, &object).with_context(context)?;
        }
        Ok(())
    }

    fn close(&mut self) -> anyhow::Result<()> {
        if let Some((namespace, mut writer)) = self.open.take() {
            writer.flush().at("cannot write", self.path(&namespace))?;
        }
        Ok(())
    }

    fn finish(mut self, version: &str) -> anyhow::Result<()> {
        self.close()?;
        let tail = format!(
            r#"],"kind":{},"metadata":{}}}"#,
            json!(format!("{}List", self.resource.kind)),
            json!({"resourceVersion": version})
        );
        for path in self.begun.values() {
            let mut file = OpenOptions::new().append(true).open(path).at("cannot write", path)?;
            writeln!(file, "{tail}").at("cannot write", path)?;
        }
        Ok(())
    }
}
