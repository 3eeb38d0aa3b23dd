//! One kind of object, listed in pages and streamed into files, one file per namespace.
//!
//! Owns the layout `resources/cluster/…` and `resources/ns/<namespace>/…`. Holds one object at a time. Every server that
//! uses etcd returns the objects of a kind sorted by namespace, so only one file is open; a server that mixes namespaces
//! costs reopening files, not memory.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use regex::Regex;
use serde_json::Value;

use super::{FailedQuery, Fault, Query, QueryOutcome, component};
use crate::{layout, names};
use base::at::At as _;
use base::json::json;
use base::kube::{Object as _, Resource, Selector, forget_managers};

/// Maximum namespaces named that refuse a list.
const MAX_REFUSED_NAMED: usize = 10;

/// Lists one kind.
pub(super) struct Listing {
    pub(super) resource: Resource,
    /// If all are listed: the namespaces to keep.
    pub(super) only: Option<Arc<SelectedNamespaces>>,
    pub(super) selector: Selector,
}

/// The selected namespaces.
pub(super) struct SelectedNamespaces {
    /// By name; one created in the meantime is selected, too.
    pub(super) wanted: Regex,
    /// Those that existed at the start.
    pub(super) known: BTreeSet<String>,
}

impl Listing {
    /// Lists the objects in `namespace`; empty for all of them and for cluster-scoped objects.
    pub(super) fn fetch(&self, query: &Query<'_>, namespace: &str) -> Result<QueryOutcome, Fault> {
        match (self.list(query, namespace), &self.only) {
            // Without permission to list everywhere, listing some namespaces may still be allowed.
            (Err(Fault::Forbidden(why)), Some(scope)) => self.piecemeal(query, scope, why),
            (found, _) => found,
        }
    }

    fn piecemeal(
        &self,
        query: &Query<'_>,
        scope: &SelectedNamespaces,
        why: String,
    ) -> Result<QueryOutcome, Fault> {
        let mut answer = QueryOutcome::default();
        let mut refused = Vec::new();
        for namespace in &scope.known {
            match self.list(query, namespace) {
                Ok(part) => answer.health.add(part.health),
                Err(Fault::Forbidden(_)) => refused.push(namespace.as_str()),
                Err(Fault::Refused(error)) => {
                    answer.troubles.push(FailedQuery::new(&self.resource.plural, namespace, "", error));
                }
                Err(fault) => return Err(fault),
            }
        }
        let (number, all) = (refused.len(), scope.known.len());
        if number == all {
            return Err(Fault::Forbidden(why));
        }
        if number > 0 {
            refused.truncate(MAX_REFUSED_NAMED);
            let why = format!("{why}; not listed in {number} of {all} namespaces: {}", refused.join(", "));
            answer.troubles.push(FailedQuery::new(&self.resource.plural, "", "", why));
        }
        Ok(answer)
    }

    fn list(&self, query: &Query<'_>, namespace: &str) -> Result<QueryOutcome, Fault> {
        let mut answer = QueryOutcome::default();
        let mut files =
            KindFiles { folder: query.folder, resource: &self.resource, open: None, begun: BTreeSet::new() };
        let mut take = |mut object: Value| {
            let place = object.namespace().to_owned();
            let is_left_out = self.only.as_ref().is_some_and(|scope| !scope.wanted.is_match(&place));
            // A secret of this run alone, which permits replacing the archive.
            let is_own = self.resource.plural == "secrets" && object.name() == names::UPLOAD_SECRET;
            if is_left_out || is_own {
                return Ok(());
            }
            answer.health.see(&self.resource, &object);
            if let Some(redactor) = query.redactor {
                redactor.object(&self.resource, &mut object);
            }
            files.add(&place, object)
        };
        let listed = query.client.each(&self.resource, namespace, &self.selector, &mut take);
        let version = listed.as_ref().map(|meta| meta.version.clone()).unwrap_or_default();
        // The first part of an interrupted list is worth keeping; the error says that it is incomplete.
        files.finish(&version)?;
        listed?;
        Ok(answer)
    }
}

/// The files of one kind.
struct KindFiles<'a> {
    folder: &'a Path,
    resource: &'a Resource,
    open: Option<(PathBuf, BufWriter<File>)>,
    begun: BTreeSet<PathBuf>,
}

impl KindFiles<'_> {
    fn path(&self, namespace: &str) -> PathBuf {
        let Resource { group, version, plural, namespaced, .. } = self.resource;
        let group = if group.is_empty() { "core" } else { group };
        let namespace = namespaced.then(|| component(namespace));
        let name = component(&format!("{group}_{version}_{plural}")) + ".json";
        self.folder.join(layout::resources(namespace.as_deref())).join(name)
    }

    fn add(&mut self, namespace: &str, mut object: Value) -> Result<()> {
        forget_managers(&mut object);
        let path = self.path(namespace);
        let is_new = !self.begun.contains(&path);
        let mut writer = match self.open.take() {
            Some((current, writer)) if current == path => writer,
            other => {
                close(other)?;
                super::create_parent(&path)?;
                let mut options = OpenOptions::new();
                let file = options.create(true).write(true).truncate(is_new).append(!is_new).open(&path);
                BufWriter::new(file.at("cannot write", &path)?)
            }
        };
        let begin = match is_new {
            true => format!(r#"{{"apiVersion":{},"items":["#, json!(self.resource.api_version())),
            false => ",".to_owned(),
        };
        writer.write_all(begin.as_bytes()).at("cannot write", &path)?;
        serde_json::to_writer(&mut writer, &object).at("cannot write", &path)?;
        self.begun.insert(path.clone());
        self.open = Some((path, writer));
        Ok(())
    }

    fn finish(self, version: &str) -> Result<()> {
        close(self.open)?;
        let kind = json!(format!("{}List", self.resource.kind));
        let tail = format!(r#"],"kind":{kind},"metadata":{}}}"#, json!({"resourceVersion": version}));
        for path in &self.begun {
            let mut file = OpenOptions::new().append(true).open(path).at("cannot write", path)?;
            writeln!(file, "{tail}").at("cannot write", path)?;
        }
        Ok(())
    }
}

fn close(open: Option<(PathBuf, BufWriter<File>)>) -> Result<()> {
    open.map_or(Ok(()), |(path, mut file)| file.flush().at("cannot write", path))
}
