//! Hides secrets before they reach a file.
//!
//! Owns the rules: values whose names suggest a secret (`names`) in variables, fields, annotations,
//! flags and files, also in JSON and YAML inside a text, and patterns in texts (`texts`); the
//! values of Secrets, copies of all of them in `last-applied-configuration`, and bearer tokens and
//! private keys in logs. The run's configuration adds rules. Hidden text is replaced by [`HIDDEN`]
//! and counted by rule. Time and memory are proportional to the object: text inside text is read to
//! a fixed depth.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use regex::Regex;
use serde_json::{Map, Value};

use self::names::Names;
use self::texts::{Kind, Texts};
use base::json::json;
use base::{Joined as _, lock, pattern};
use kube::Resource;
use model::config::{Field, Redaction};

mod names;
mod texts;

const HIDDEN: &str = "***HIDDEN***";
const LAST_APPLIED: &str =
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
/// Fields of secrets that are hidden entirely.
const FIELDS: [&str; 2] = ["data.*", "stringData.*"];
/// Names of the rules that are not patterns.
const SECRETS: &str = "values of secrets";
const VARIABLES: &str = "environment variables";
const COPIES: &str = "last applied configurations";
const KEYS: &str = "private keys";
/// Fields with scripts or settings, in addition to all lists of words.
const SCRIPT_FIELDS: [&str; 5] = ["value", "command", "script", "source", "run"];
/// JSON or YAML inside a text is read to this depth of texts inside texts, so that time is bounded.
const MAX_TEXT_DEPTH: u32 = 4;
/// Occurs in every private key; cheap to search.
const KEY: &str = "PRIVATE KEY";
const KEY_BEGIN: &str = "-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";
const KEY_END: &str = "-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";
/// Maximum lines of a key; an unterminated key must not hide the rest of a log.
const KEY_LINES: u32 = 200;

/// Rules, and counts of their applications. Shared by all threads of a snapshot.
pub struct Redactor {
    names: Names,
    texts: Texts,
    /// A rule hides the first group; without groups, as in all rules from files, the whole match.
    nameless: Vec<(String, Regex)>,
    /// Fields by the name of their rule.
    fields: Vec<(String, Field)>,
    key_begin: Regex,
    key_end: Regex,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Redactor {
    /// Built-in and configured rules; `None` if nothing should be hidden.
    pub fn new(settings: &Redaction) -> anyhow::Result<Option<Self>> {
        if settings.off {
            return Ok(None);
        }
        let compile = |pattern: &String| pattern::compile(pattern).map_err(anyhow::Error::msg);
        let mut nameless = Vec::new();
        for (name, pattern) in texts::NAMELESS {
            nameless.push((name.to_owned(), Regex::new(pattern)?));
        }
        for name in &settings.text {
            nameless.push((name.clone(), compile(name)?));
        }
        let mut fields = Vec::new();
        for path in FIELDS {
            let field = Field {
                kind: "Secret".into(),
                path: path.into(),
            };
            fields.push((SECRETS.to_owned(), field));
        }
        for field in &settings.fields {
            let rule = format!("{}: {}", field.kind, field.path);
            fields.push((rule, field.clone()));
        }
        // Also rules that are never applied are counted.
        let mut counts = BTreeMap::new();
        for (rule, _) in &nameless {
            counts.insert(rule.clone(), 0);
        }
        for (rule, _) in &fields {
            counts.insert(rule.clone(), 0);
        }
        for rule in [VARIABLES, COPIES, KEYS] {
            counts.insert(rule.to_owned(), 0);
        }
        let names: anyhow::Result<_> = settings.env.iter().map(compile).collect();
        Ok(Some(Self {
            counts: Mutex::new(counts),
            names: Names::new(names?)?,
            texts: Texts::new()?,
            nameless,
            fields,
            key_begin: Regex::new(KEY_BEGIN)?,
            key_end: Regex::new(KEY_END)?,
        }))
    }

    /// Applications of each rule.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        lock(&self.counts).clone()
    }

    fn count(&self, rule: &str) {
        if let Some(count) = lock(&self.counts).get_mut(rule) {
            *count += 1;
        }
    }

    /// Filters the lines of one log.
    pub fn lines(&self) -> Lines<'_> {
        Lines {
            rules: self,
            key_lines: 0,
        }
    }

    /// Hides secrets in an object; returns whether there were any.
    pub fn object(&self, resource: &Resource, object: &mut Value) -> bool {
        let mut hidden = false;
        for (rule, field) in &self.fields {
            if field.kind.eq_ignore_ascii_case(&resource.kind) {
                let path: Vec<_> = field.path.split('.').collect();
                hidden |= self.field(rule, object, &path);
            }
        }
        // Two parts have rules of their own, and are taken out while the rest is searched: the copy
        // of the object that `kubectl apply` keeps in an annotation, and the files of a config map.
        let copy = object.pointer_mut(LAST_APPLIED).map(Value::take);
        let mut files = None;
        if resource.plural == "configmaps" {
            files = object.get_mut("data").map(Value::take);
            hidden |= self.files(files.as_mut(), 0);
            hidden |= self.binary_files(object.get_mut("binaryData"));
        }
        hidden |= self.walk(object, Kind::Prose, 0);
        if let (Some(files), Some(place)) = (files, object.get_mut("data")) {
            *place = files;
        }
        if let (Some(mut copy), Some(place)) = (copy, object.pointer_mut(LAST_APPLIED)) {
            if hidden {
                // The copy contains what was just hidden, in its own spelling.
                copy = json!(HIDDEN);
                self.count(COPIES);
            }
            hidden |= self.walk(&mut copy, Kind::Prose, 0);
            *place = copy;
        }
        hidden
    }

    /// Hides secrets in a document of the run, such as a definition with its config map, or of a
    /// node; returns whether there were any.
    pub fn document(&self, value: &mut Value) -> bool {
        let files = self.files(value.pointer_mut("/Definition/config-map"), 0);
        self.walk(value, Kind::Prose, 0) || files
    }

    /// Hides what is at a path.
    fn field(&self, rule: &str, value: &mut Value, path: &[&str]) -> bool {
        let [key, rest @ ..] = path else {
            if !value.is_null() {
                *value = json!(HIDDEN);
                self.count(rule);
            }
            return !value.is_null();
        };
        let inner: Vec<&mut Value> = match value {
            Value::Object(map) if *key == "*" => map.values_mut().collect(),
            Value::Array(list) if *key == "*" => list.iter_mut().collect(),
            Value::Object(map) => map.get_mut(*key).into_iter().collect(),
            Value::Array(list) => key
                .parse::<usize>()
                .ok()
                .and_then(|index| list.get_mut(index))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        };
        let mut hidden = false;
        for value in inner {
            hidden |= self.field(rule, value, rest);
        }
        hidden
    }

    /// Hides secrets in the files of a config map: a file whose name suggests one, and what rules
    /// find in others.
    fn files(&self, files: Option<&mut Value>, depth: u32) -> bool {
        let mut hidden = false;
        for (name, file) in files.and_then(Value::as_object_mut).into_iter().flatten() {
            let is_secret = self.names.is_secret(name) && self.hide(name, file);
            hidden |= is_secret || self.walk(file, Kind::Script, depth);
        }
        hidden
    }

    /// Hides secrets in the files of a config map that are encoded in base64.
    fn binary_files(&self, files: Option<&mut Value>) -> bool {
        let mut hidden = false;
        for (name, file) in files.and_then(Value::as_object_mut).into_iter().flatten() {
            if self.names.is_secret(name) && self.hide(name, file) {
                hidden = true;
                continue;
            }
            let text = file.as_str().unwrap_or_default();
            let Ok(content) = BASE64_STANDARD.decode(text) else {
                continue;
            };
            match String::from_utf8(content) {
                Ok(mut text) => {
                    if self.text(&mut text, Kind::Script, 0) {
                        *file = json!(BASE64_STANDARD.encode(text));
                        hidden = true;
                    }
                }
                Err(error) if self.has_key(error.as_bytes()) => {
                    self.count(KEYS);
                    *file = json!(HIDDEN);
                    hidden = true;
                }
                Err(_) => {}
            }
        }
        hidden
    }

    fn has_key(&self, content: &[u8]) -> bool {
        self.key_begin.is_match(&String::from_utf8_lossy(content))
    }

    /// Hides at any depth (pods, templates, custom resources): values of names that suggest a
    /// secret, words after flags, and what rules find in texts.
    fn walk(&self, value: &mut Value, kind: Kind, depth: u32) -> bool {
        match value {
            Value::Object(map) => self.map(map, kind, depth),
            Value::Array(list) => self.list(list, depth),
            Value::String(text) => self.text(text, kind, depth),
            _ => false,
        }
    }

    fn map(&self, map: &mut Map<String, Value>, kind: Kind, depth: u32) -> bool {
        let mut hidden = false;
        // Variables, headers and parameters are lists of pairs.
        let name = ["name", "key"]
            .iter()
            .find_map(|key| map.get(*key)?.as_str())
            .map(str::to_owned);
        if let Some(name) = name
            && self.names.is_secret(&name)
            && let Some(value) = map.get_mut("value")
        {
            hidden |= self.hide(&name, value);
        }
        for (key, value) in map {
            let is_script = SCRIPT_FIELDS.contains(&key.as_str());
            let kind = if is_script { Kind::Script } else { kind };
            hidden |= self.hide_by_name(key, value) || self.walk(value, kind, depth);
        }
        hidden
    }

    /// Hides a text, or the texts of a list, whose name suggests a secret.
    fn hide_by_name(&self, name: &str, value: &mut Value) -> bool {
        match value {
            Value::String(_) => self.names.is_secret(name) && self.hide(name, value),
            Value::Array(list) if self.names.may_list_secrets(name) => {
                let mut hidden = false;
                list.iter_mut()
                    .for_each(|value| hidden |= self.hide(name, value));
                hidden
            }
            _ => false,
        }
    }

    /// Words, of which one may be a flag with a secret as the next.
    fn list(&self, list: &mut [Value], depth: u32) -> bool {
        let mut hidden = self.arguments(list);
        let mut flag: Option<String> = None;
        for value in list {
            let is_word = value.as_str().is_some_and(|word| !word.starts_with('-'));
            let is_hidden = match flag.take() {
                Some(flag) if is_word => self.hide(&flag, value),
                _ => false,
            };
            hidden |= is_hidden || self.walk(value, Kind::Script, depth);
            let word = value.as_str().unwrap_or_default();
            let name = word.trim_start_matches('-');
            if word.starts_with('-') && self.names.is_secret(name) {
                flag = Some(name.to_owned());
            }
        }
        hidden
    }

    /// Hides secrets after flags of one letter, where the program and its arguments are words of a
    /// list.
    fn arguments(&self, list: &mut [Value]) -> bool {
        const SHORT_FLAGS: [&str; 3] = ["-p", "-a", "-u"];
        let is_flag = |word: &Value| {
            word.as_str()
                .is_some_and(|word| SHORT_FLAGS.iter().any(|flag| word.starts_with(flag)))
        };
        if !list.iter().any(is_flag) || !list.iter().all(Value::is_string) {
            return false;
        }
        // A blank to the patterns that occurs in no word.
        const BORDER: &str = "\u{2028}";
        let words = list.iter().filter_map(Value::as_str);
        let line = words.joined(BORDER);
        let Cow::Owned(clean) = self.hide_arguments(&line) else {
            return false;
        };
        let words: Vec<&str> = clean.split(BORDER).collect();
        if words.len() != list.len() {
            return false;
        }
        for (value, word) in list.iter_mut().zip(words) {
            *value = json!(word);
        }
        true
    }

    fn hide_arguments<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.texts.hide_arguments(text, |value| {
            let hides = self.names.may_hide("password", value);
            if hides {
                self.count(VARIABLES);
            }
            hides
        })
    }

    /// Hides what the rules find in a text, which may contain a whole document.
    fn text(&self, text: &mut String, kind: Kind, depth: u32) -> bool {
        let mut hidden = false;
        let named = self.names.may_occur_in(text);
        if named && depth < MAX_TEXT_DEPTH {
            hidden = self.document_in(text, kind, depth);
        }
        let mut clean = Cow::Borrowed(text.as_str());
        if named {
            clean = self.texts.hide_named(text, kind, |name, value| {
                let hides = self.names.is_secret(name) && self.names.may_hide(name, value);
                if hides {
                    self.count(VARIABLES);
                }
                hides
            });
        }
        if kind == Kind::Script
            && let Cow::Owned(changed) = self.hide_arguments(&clean)
        {
            clean = Cow::Owned(changed);
        }
        clean = self.texts.hide_encoded_keys(clean, |encoded| {
            let encoded: String = encoded.split_whitespace().collect();
            // An incomplete end is cut off.
            let unpadded = encoded.trim_end_matches('=');
            let content = BASE64_STANDARD.decode(&unpadded[..unpadded.len() / 4 * 4]);
            let is_key = content.is_ok_and(|content| self.has_key(&content));
            if is_key {
                self.count(KEYS);
            }
            is_key
        });
        let mut lines = self.lines();
        let clean: String = clean
            .split_inclusive('\n')
            .map(|line| lines.line(line))
            .collect();
        if clean != *text {
            *text = clean;
            hidden = true;
        }
        hidden
    }

    /// Hides secrets by name in a text that is JSON, or in scripts and files also YAML.
    fn document_in(&self, text: &mut String, kind: Kind, depth: u32) -> bool {
        let is_json = text.trim_start().starts_with(['{', '[']);
        if !is_json && (kind == Kind::Prose || !text.contains(':')) || !self.names.occur_in(text) {
            return false;
        }
        let mut documents = match base::json::from_slice(text.as_bytes()) {
            Ok(document) => vec![document],
            Err(_) if kind == Kind::Prose => return false,
            Err(_) => yaml::parse_all(text).unwrap_or_default(),
        };
        let mut hidden = false;
        for document in documents
            .iter_mut()
            .filter(|value| value.is_object() || value.is_array())
        {
            // A definition in a config map has a config map itself.
            hidden |= self.files(document.get_mut("config-map"), depth + 1);
            hidden |= self.walk(document, Kind::Script, depth + 1);
        }
        if hidden {
            let written = documents.iter().map(|document| match is_json {
                true => document.to_string(),
                false => yaml::write(document),
            });
            *text = written.joined("---\n");
        }
        hidden
    }

    /// Hides a text that may be a secret, given its name.
    fn hide(&self, name: &str, value: &mut Value) -> bool {
        let hidden = value
            .as_str()
            .is_some_and(|text| self.names.may_hide(name, text));
        if hidden {
            *value = json!(HIDDEN);
            self.count(VARIABLES);
        }
        hidden
    }

    /// Applies the rules for single lines.
    fn plain<'a>(&self, line: &'a str) -> Cow<'a, str> {
        self.nameless
            .iter()
            .fold(Cow::Borrowed(line), |text, (name, pattern)| {
                texts::substitute(text, pattern, |found| {
                    let part = found.get(1).or_else(|| found.get(0))?;
                    let is_token = name != texts::BEARER
                        || part.as_str().bytes().any(|byte| byte.is_ascii_digit());
                    (is_token && part.as_str() != HIDDEN).then(|| {
                        self.count(name);
                        part.range()
                    })
                })
            })
    }
}

/// Hides secrets in the lines of one log; a private key spans several.
pub struct Lines<'a> {
    rules: &'a Redactor,
    /// Maximum remaining lines of a key.
    key_lines: u32,
}

impl Lines<'_> {
    /// Returns the line without secrets.
    pub fn line<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        if self.key_lines > 0 {
            self.key_lines -= 1;
            let Some(end) = self.rules.key_end.find(line) else {
                return Cow::Borrowed("");
            };
            self.key_lines = 0;
            let tail = &line[end.end()..];
            return Cow::Borrowed(if tail.trim().is_empty() { "" } else { tail });
        }
        if line.contains(KEY)
            && let Some(begin) = self.rules.key_begin.find(line)
        {
            self.rules.count(KEYS);
            let (before, rest) = (&line[..begin.start()], &line[begin.end()..]);
            // A key on one line, with newlines escaped as \n, also ends there.
            let tail = match self.rules.key_end.find(rest) {
                Some(end) => self.line(&rest[end.end()..]).into_owned(),
                None => {
                    self.key_lines = KEY_LINES;
                    if line.ends_with('\n') {
                        "\n".into()
                    } else {
                        String::new()
                    }
                }
            };
            return Cow::Owned(format!("{}{HIDDEN}{tail}", self.rules.plain(before)));
        }
        self.rules.plain(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "kubectl.kubernetes.io/last-applied-configuration";

    fn redactor() -> Redactor {
        Redactor::new(&Redaction::default()).unwrap().unwrap()
    }

    #[test]
    fn variables_with_secret_names_are_hidden_at_any_depth() {
        for (name, hidden) in [
            ("DB_PASSWORD", true),
            ("password", true),
            ("API_KEY", true),
            ("AWS_SECRET_ACCESS_KEY", true),
            ("GITHUB_TOKEN", true),
            ("TOKEN_FILE", false),
            ("SECRET_NAME", false),
            ("CLIENT_KEY", true),
            ("COMPASS", false),
            ("dbPassword", true),
            ("DB_PASS", true),
            ("KEY", false),
            ("E2E_FOCUS", false),
            ("PWD", false),
            ("MYSQL_PWD", true),
            ("PGPASSWORD", true),
            ("NPM_TOKEN", true),
            ("AWS_ACCESS_KEY_ID", true),
            ("TOKEN_TTL_SECONDS", false),
            ("SSH_KEY", true),
            ("CLIENT_ID", false),
            ("AUTHOR", false),
            ("BASIC_AUTH", true),
        ] {
            let mut object = json!({"spec": {"template": {"containers": [{"env": [{"name": name, "value": "v"}]}]}}});
            assert_eq!(
                redactor().object(&Resource::PODS, &mut object),
                hidden,
                "{name}"
            );
            assert_eq!(object.to_string().contains(HIDDEN), hidden, "{object}");
        }
    }

    #[test]
    fn references_are_kept_and_copies_of_secrets_hidden() {
        let annotations = json!({NAME: r#"{"value":"v"}"#, "other": "kept"});
        let mut object = json!({"metadata": {"annotations": annotations}, "spec": {"env": [
            {"name": "A_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "B_TOKEN", "value": "v"}]}});
        let redactor = redactor();
        redactor.object(&Resource::PODS, &mut object);
        assert_eq!(
            object["spec"]["env"][0]["valueFrom"]["secretKeyRef"]["key"],
            "k"
        );
        assert_eq!(
            object["metadata"]["annotations"],
            json!({NAME: HIDDEN, "other": "kept"})
        );
        assert_eq!(redactor.counts()["last applied configurations"], 1);
        let untouched = json!({"metadata": {"annotations": {NAME: "{}"}}});
        let mut object = untouched.clone();
        assert!(!redactor.object(&Resource::PODS, &mut object));
        assert_eq!(object, untouched);
    }

    #[test]
    fn secrets_keep_their_keys() {
        let mut secret = json!({"data": {"user": "YQ==", "pin": "Yg=="}, "type": "Opaque"});
        redactor().object(&Resource::SECRETS, &mut secret);
        assert_eq!(
            secret,
            json!({"data": {"user": HIDDEN, "pin": HIDDEN}, "type": "Opaque"})
        );
        let mut empty = json!({"type": "Opaque"});
        assert!(!redactor().object(&Resource::SECRETS, &mut empty));
        assert_eq!(empty, json!({"type": "Opaque"}));
    }

    fn check_lines(lines: &[&str], expected: &[&str]) {
        let redactor = redactor();
        let mut filter = redactor.lines();
        let out: Vec<_> = lines
            .iter()
            .map(|line| filter.line(line).into_owned())
            .collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn logs_contain_no_tokens_or_keys() {
        check_lines(
            &["Authorization: Bearer abcdefghijklmnop1234\n"],
            &["Authorization: Bearer ***HIDDEN***\n"],
        );
        for kept in [
            "bearer of news\n",
            "bearer authentication-configured\n",
            "basic configuration-of-things\n",
            "http://host:80/a@b\n",
        ] {
            check_lines(&[kept], &[kept]);
        }
        check_lines(
            &["authorization: Basic dXNlcjpwYXNz, x\n"],
            &["authorization: Basic ***HIDDEN***, x\n"],
        );
        check_lines(
            &["to postgres://u:geheim@db/x\n"],
            &["to postgres://u:***HIDDEN***@db/x\n"],
        );
        check_lines(
            &["t=eyJhbGciOiJI.eyJzdWIiOiIx.c2ln end"],
            &["t=***HIDDEN*** end"],
        );
        check_lines(
            &[
                "a -----BEGIN EC PRIVATE KEY-----\n",
                "MHcC\n",
                "-----END EC PRIVATE KEY-----\n",
                "b\n",
            ],
            &["a ***HIDDEN***\n", "", "", "b\n"],
        );
        check_lines(
            &[r"k=-----BEGIN PRIVATE KEY-----\nMHcC\n-----END PRIVATE KEY----- b"],
            &["k=***HIDDEN*** b"],
        );
        check_lines(
            &[
                "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
                "x\n",
                "-----END PGP PRIVATE KEY BLOCK----- c\n",
            ],
            &["***HIDDEN***\n", "", " c\n"],
        );
        check_lines(
            &["-----BEGIN CERTIFICATE-----\n"],
            &["-----BEGIN CERTIFICATE-----\n"],
        );
        let cut = ["-----BEGIN PRIVATE KEY-----\n"]
            .into_iter()
            .chain(["x\n"; 300])
            .collect::<Vec<_>>();
        let redactor = redactor();
        let mut filter = redactor.lines();
        let left = cut
            .iter()
            .filter(|line| !filter.line(line).is_empty())
            .count();
        assert_eq!(
            left, 101,
            "a key without an end hides its beginning and 200 lines"
        );
    }

    #[test]
    fn rules_add_to_the_built_in_ones() {
        let mut rules = Redaction::default();
        rules
            .add(
                "env: [^PIN$]\ntext: ['card=\\d+']\nfields:\n- {kind: ConfigMap, path: data.*}\n- \
                 {kind: Pod, path: spec.hosts.1}\n",
            )
            .unwrap();
        let redactor = Redactor::new(&rules).unwrap().unwrap();
        let mut map = json!({"data": {"a": "b"}, "other": "card=12"});
        redactor.object(&Resource::CONFIG_MAPS, &mut map);
        assert_eq!(map, json!({"data": {"a": HIDDEN}, "other": "***HIDDEN***"}));
        let mut pod =
            json!({"spec": {"hosts": ["a", "b"], "env": [{"name": "PIN", "value": "1"}]}});
        redactor.object(&Resource::PODS, &mut pod);
        assert_eq!(
            pod,
            json!({"spec": {"hosts": ["a", HIDDEN], "env": [{"name": "PIN", "value": HIDDEN}]}})
        );
        assert_eq!(redactor.counts()["ConfigMap: data.*"], 1);
    }

    #[test]
    fn definitions_keep_no_secret() {
        const SECRET: &str = "hunter2-and-more";
        let env = json!([{"name": "DB_PASSWORD", "value": SECRET}]);
        let container = |name: &str| {
            json!({"name": name, "image": format!("https://me:{SECRET}@reg/i"), "env": env,
                "command": ["run", "--password", SECRET, format!("--api-token={SECRET}")],
                "args": [format!("API_KEY='{SECRET}' curl -H 'Authorization: Basic {SECRET}'")]})
        };
        let key = format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n");
        let definition = json!({
            "sonobuoy-config": {
                "plugin-name": "p", "driver": "Job", "result-format": "raw", "result-files": [format!("token={SECRET}")],
                "source-url": format!("https://me:{SECRET}@host/p.yaml"), "description": format!("Bearer {SECRET}"),
                "permissions": [{"apiGroups": [format!("https://a:{SECRET}@b")], "verbs": ["get"]}],
                "part-of": format!("TOKEN={SECRET}"),
            },
            "spec": container("main"),
            "podSpec": {
                "containers": [container("side")], "initContainers": [container("init")],
                "hostAliases": [{"hostnames": [format!("secret={SECRET}")]}],
            },
            "extra-volumes": [{"name": "v", "csi": {"volumeAttributes": {"url": format!("nfs://u:{SECRET}@h")}}}],
            "config-map": {
                "a.yaml": format!("user: me\npassword: {SECRET}\nenv: [{{name: X_TOKEN, value: {SECRET}}}]\n"),
                "b.json": format!("{{\"auths\": {{\"reg\": {{\"auth\": \"{SECRET}\"}}}}}}"),
                "c.env": format!("API_TOKEN={SECRET}\n"),
                "password": SECRET,
                "key.pem": key,
            },
        });
        let redactor = redactor();
        let mut document = json!({"Definition": definition, "CustomAnnotations": {"a": format!("TOKEN={SECRET}")}});
        assert!(redactor.document(&mut document));
        let text = document.to_string();
        assert!(!text.contains(SECRET), "{text}");
        for kept in [
            "user: me",
            "plugin-name",
            "DB_PASSWORD",
            "--api-token=",
            "curl",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        let counts = redactor.counts();
        assert!(counts.values().sum::<u64>() > 20, "{counts:?}");
        assert!(!redactor.document(&mut document), "once");
        assert_eq!(redactor.counts(), counts);
        // The same in the config map that carries it to the aggregator.
        let mut map = json!({"data": {"plugin-0.yaml": yaml::write(&definition)}});
        assert!(redactor.object(&Resource::CONFIG_MAPS, &mut map));
        assert!(!map.to_string().contains(SECRET), "{map}");
    }

    /// Redacts an object that contains `value`; returns it, and whether it has changed.
    fn redacted(resource: &Resource, value: &Value) -> (Value, bool) {
        let mut object = value.clone();
        let hidden = redactor().object(resource, &mut object);
        assert_eq!(hidden, object != *value, "{object}");
        (object, hidden)
    }

    #[test]
    fn secrets_are_hidden_by_key_in_every_object() {
        const S: &str = "hunter2-and-more";
        for value in [
            json!({"spec": {"password": S, "nested": [{"adminToken": S}]}}),
            json!({"parameters": {"adminPassword": S}, "provisioner": "x"}),
            json!({"spec": {"csi": {"volumeAttributes": {"secretKey": S, "user": "u"}}}}),
            json!({"spec": {"flexVolume": {"options": {"password": S}}}}),
            json!({"metadata": {"annotations": {"vault.io/token": S}}}),
            json!({"httpGet": {"httpHeaders": [{"name": "Authorization", "value": format!("Basic {S}")}]}}),
            json!({"httpHeaders": [{"name": "X-API-Key", "value": S}]}),
            json!({"params": [{"key": "password", "value": S}]}),
            json!({"env": [{"name": "API_TOKENS", "value": S}, {"name": "DB_PASSWORDS", "value": S}]}),
            json!({"spec": {"tokens": [S, format!("{S}2")]}}),
            json!({"env": [{"name": "CONFIG", "value": format!(r#"{{"a":[{{"password":"{S}"}}]}}"#)}]}),
            json!({"env": [{"name": "CONFIG", "value": format!("user: me\ndb:\n  password: {S}\n")}]}),
            json!({"env": [{"name": "CONFIG", "value": format!("{{user: me, password: {S}}}")}]}),
            json!({"args": [format!(r#"--config={{"token": "{S}"}}"#), "x"]}),
            json!({"args": ["sh", "-c", format!("login --password {S} --user me")]}),
            json!({"args": ["sh", "-c", format!("login --password '{S} {S}' && true")]}),
            json!({"command": ["mysqladmin", "-uroot", format!("-p{S}"), "ping"]}),
            json!({"command": ["sh", "-c", format!("mysql -u root -p{S} -e 'select 1'")]}),
            json!({"command": ["sshpass", "-p", S, "ssh", "host"]}),
            json!({"command": ["curl", "-u", format!("me:{S}"), "https://host"]}),
            json!({"args": [format!("https://host/x?access_token={S}&y=1")]}),
            json!({"note": format!(r#"{{"inner": "{{\"password\": \"{S}\"}}"}}"#)}),
            json!({"spec": {"key": BASE64_STANDARD.encode(format!(
                "-----BEGIN EC PRIVATE KEY-----\n{S}\n-----END EC PRIVATE KEY-----\n"))}}),
            json!({"spec": {"template": format!("<server><password>{S}</password></server>")}}),
        ] {
            let (object, hidden) = redacted(&Resource::PODS, &value);
            assert!(
                hidden && object.to_string().contains(HIDDEN),
                "{value}: {object}"
            );
            let encoded = BASE64_STANDARD.encode("-----BEGIN EC PRIV");
            assert!(!object.to_string().contains(S), "{object}");
            assert!(!object.to_string().contains(&encoded), "{object}");
        }
    }

    #[test]
    fn references_and_harmless_names_are_kept_in_every_object() {
        for value in [
            json!({"secretName": "s", "secretRef": {"name": "s", "namespace": "n"}, "publicKey": "k"}),
            json!({"valueFrom": {"secretKeyRef": {"name": "s", "key": "password", "optional": true}}}),
            json!({"automountServiceAccountToken": true, "tokenExpirationSeconds": 3607}),
            json!({"serviceAccountToken": {"path": "token", "audience": "a"}}),
            json!({"items": [{"key": "password", "path": "password"}]}),
            json!({"imagePullSecrets": [{"name": "s"}], "secrets": [{"name": "t"}, "u"]}),
            json!({"spec": {"hard": {"secrets": "10", "count/secrets": "5"}}}),
            json!({"rules": [{"resources": ["secrets", "tokenreviews"], "verbs": ["get"]}]}),
            json!({"passwordFile": "/x/y", "tokenFile": "/z", "authorization-mode": "Node"}),
            json!({"command": ["kube-apiserver", "--authorization-mode=Node,RBAC",
                "--kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key",
                "--enable-bootstrap-token-auth=true", "--anonymous-auth=false",
                "--service-account-key-file=/etc/kubernetes/pki/sa.pub", "--token-auth-file=/x"]}),
            json!({"args": ["login", "--password-stdin", "me", "--token", "--verbose", "-p8080:80"]}),
            json!({"metadata": {"annotations": {"nginx.ingress.kubernetes.io/auth-secret": "n/s",
                "nginx.ingress.kubernetes.io/auth-type": "basic"}}}),
            json!({"properties": {"password": {"type": "string", "description": "Password of the user."}}}),
            json!({"description": "Token is the bearer token; use --token to pass it, or a password: none."}),
            json!({"env": [{"name": "MAX_TOKENS", "value": "4096"}, {"name": "A_PASSWORD", "value": "$(B)"}]}),
            json!({"env": [{"name": "CONFIG", "value": "a: 1 # keep\nsecretName: x\n"}]}),
            json!({"message": "waiting for token: not ready", "tolerations": [{"key": "token", "effect": "x"}]}),
            json!({"spec": {"certificate": BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nx\n")}}),
        ] {
            let (object, hidden) = redacted(&Resource::PODS, &value);
            assert!(!hidden, "{value}: {object}");
        }
    }

    #[test]
    fn files_of_config_maps_keep_no_secret_in_any_format() {
        const S: &str = "hunter2-and-more";
        for (name, text, kept) in [
            (
                "a.ini",
                format!("# a comment\n[db]\nuser = me\npassword = {S}\n"),
                "# a comment",
            ),
            (
                "a.conf",
                format!("user: me %\n{{{{ broken\npassword: {S}\n"),
                "user: me %",
            ),
            (
                "a.properties",
                format!("db.password={S}\ndb.user=me\n"),
                "db.user=me",
            ),
            (
                "netrc",
                format!("machine host\n  login me\n  password {S}\n"),
                "login me",
            ),
            (
                ".netrc",
                format!("machine host login me password {S}\n"),
                "machine host",
            ),
            (
                "run.sh",
                format!("#!/bin/sh\nexport A_TOKEN=\"{S}\"\nx --password {S}\n"),
                "#!/bin/sh",
            ),
            (
                "settings.xml",
                format!("<server><id>i</id><password>{S}</password></server>"),
                "<id>i</id>",
            ),
            (
                ".npmrc",
                format!("//registry/:_authToken={S}\nalways-auth=true\n"),
                "always-auth=true",
            ),
            (
                "a.yaml",
                format!(
                    "k: |\n  inner:\n    - password: {S}\nenv: [{{name: A_PASSWORD, value: \
                     {S}}}]\n"
                ),
                "inner",
            ),
            (
                "a.json",
                format!(r#"{{"auths":{{"reg":{{"auth":"{S}"}}}}}}"#),
                "auths",
            ),
        ] {
            let (object, _) = redacted(&Resource::CONFIG_MAPS, &json!({"data": {name: text}}));
            let clean = object["data"][name].as_str().unwrap();
            assert!(
                !clean.contains(S) && clean.contains(HIDDEN) && clean.contains(kept),
                "{name}: {clean}"
            );
            let encoded = json!({"binaryData": {name: BASE64_STANDARD.encode(&text)}});
            let (object, _) = redacted(&Resource::CONFIG_MAPS, &encoded);
            let content = BASE64_STANDARD
                .decode(object["binaryData"][name].as_str().unwrap())
                .unwrap();
            assert_eq!(
                String::from_utf8(content).unwrap(),
                clean,
                "the same as in data"
            );
        }
        let key = b"\xff\n-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n";
        let pem = BASE64_STANDARD.encode(&key[2..]);
        let binary = json!({"password": "eA==", "tls.key": pem, "bundle": BASE64_STANDARD.encode(key),
            "picture": BASE64_STANDARD.encode(b"\xff\xd8")});
        let (object, _) = redacted(&Resource::CONFIG_MAPS, &json!({"binaryData": binary}));
        let files = &object["binaryData"];
        assert_eq!(
            (&files["password"], &files["bundle"]),
            (&json!(HIDDEN), &json!(HIDDEN))
        );
        assert_eq!(files["picture"], "/9g=");
        let key = BASE64_STANDARD
            .decode(files["tls.key"].as_str().unwrap())
            .unwrap();
        assert_eq!(String::from_utf8(key).unwrap(), format!("{HIDDEN}\n"));
    }

    /// The texts that differ, with their places.
    fn changes(place: &str, before: &Value, after: &Value, found: &mut Vec<(String, String)>) {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => {
                for (key, value) in before {
                    changes(&format!("{place}/{key}"), value, &after[key], found);
                }
            }
            (Value::Array(before), Value::Array(after)) => {
                for (before, after) in before.iter().zip(after) {
                    changes(place, before, after, found);
                }
            }
            (before, after) if before != after => found.push((place.to_owned(), after.to_string())),
            _ => {}
        }
    }

    #[test]
    fn snapshots_of_real_clusters_lose_nothing_but_secrets() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/archives");
        let mut found = Vec::new();
        let mut objects = 0;
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let file = std::fs::File::open(entry.path()).unwrap();
            let mut archive = tar::Archive::new(flate2::read::MultiGzDecoder::new(file));
            for entry in archive.entries().unwrap() {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                let Ok(before) = base::json::from_reader(&mut entry) else {
                    continue;
                };
                let resource = match path.contains("configmaps") {
                    true => &Resource::CONFIG_MAPS,
                    false => &Resource::PODS,
                };
                let items = before["items"]
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![before]);
                for before in items {
                    let mut after = before.clone();
                    redactor().object(resource, &mut after);
                    changes(&path, &before, &after, &mut found);
                    objects += 1;
                }
            }
        }
        assert!(objects > 100, "{objects}");
        assert_eq!(found, []);
    }

    #[test]
    fn hostile_nesting_costs_little_time() {
        let started = std::time::Instant::now();
        // JSON in JSON, where each level doubles the escapes, beyond the depth that is read.
        let mut text = r#"{"password":"hunter2"}"#.to_owned();
        for _ in 0..12 {
            text = json!({"a": text, "token": {}}).to_string();
        }
        let (object, _) = redacted(&Resource::PODS, &json!({"x": text}));
        assert!(!object.to_string().contains("hunter2"));
        for hostile in [
            "[".repeat(100_000) + "password",
            r#"{"a":"#.repeat(20_000) + "token",
            "mysql ".repeat(16_000),
            "a='".repeat(6_000) + "password",
            "password: ".repeat(10_000),
            "- ".repeat(40_000) + "token",
            "machine a login b ".repeat(5_000),
            "<password ".repeat(10_000),
            r#"\"token\":\"x\\"#.repeat(6_000),
            format!("token: &a [x]\nb: [{}]", "*a,".repeat(20_000)),
        ] {
            redacted(&Resource::CONFIG_MAPS, &json!({"data": {"a": hostile}}));
        }
        assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    }

    #[test]
    fn ordinary_values_are_kept() {
        for text in [
            "--token=$TOKEN",
            "--token-file=/x",
            "TOKEN=true",
            "tokens and secrets",
            "a=b",
        ] {
            let mut value = json!({"args": [text], "env": [{"name": "TOKEN_FILE", "value": "/x"}]});
            let before = value.clone();
            assert!(!redactor().document(&mut value), "{text}");
            assert_eq!(value, before);
        }
    }
}
