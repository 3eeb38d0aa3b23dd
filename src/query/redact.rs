//! Hides secrets before they reach a file.
//!
//! Owns the rules: values of environment variables whose names suggest a secret, on their own, in words such as
//! `--token=x` and in the files of config maps, the values of Secrets, copies of all of them in
//! `last-applied-configuration`, and bearer tokens and private keys in logs. The run's configuration adds rules. Hidden
//! text is replaced by [`HIDDEN`] and counted by rule.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use regex::{Captures, Match, Regex};
use serde_json::Value;

use crate::config::{Field, Redaction};
use base::json::json;
use base::kube::Resource;
use base::{Joined as _, lock, pattern, yaml};

const HIDDEN: &str = "***HIDDEN***";
/// Names of variables with secrets, unless the name only points to one, such as `TOKEN_FILE`.
const ENV: &str = concat!(
    r"(?i)((^|[_.-])(pass|pwd|auth|creds?)|passw(or)?d|passphrase|secret|token|credentials?",
    r"|(api|access|private|client|signing|encryption|ssh|master|session|license|account)[_-]?key)",
    r"([_-]?(value|data|string|b64|base64|key|id|\d+))?$",
);
/// Names with such an ending that contain a directory of the shell instead.
const NO_SECRETS: [&str; 2] = ["PWD", "OLDPWD"];
/// Values that are switches and never secrets.
const SWITCHES: [&str; 8] = ["", "true", "false", "yes", "no", "on", "off", "none"];
/// The rule for bearer tokens, which must contain a digit: "bearer authentication-failed" is prose.
const BEARER: &str = "bearer tokens";
/// Tokens in headers, JSON web tokens, and passwords in URLs.
const TEXT: [(&str, &str); 4] = [
    (
        "authorization headers",
        r#"(?i)\bauthorization["']?\s*[:=]\s*["']?(?:bearer|basic|token)\s+([^\s"',;]+)"#,
    ),
    (BEARER, r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)"),
    ("web tokens", r"\b(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"),
    ("passwords in addresses", r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*:([^\s:/@]+)@"),
];
/// A variable or flag with its value, in words or scripts, unless the shell expands the value.
const ASSIGNMENT: &str = r#"(?:^|[\s"';&(])-{0,2}([A-Za-z][\w.-]*)=("[^"]*"|'[^']*'|[^\s"'$;&)][^\s"';&)]*)"#;
const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
/// Fields of secrets that are hidden entirely.
const FIELDS: [&str; 2] = ["data.*", "stringData.*"];
/// Names of the other rules.
const SECRETS: &str = "values of secrets";
const VARIABLES: &str = "environment variables";
const COPIES: &str = "last applied configurations";
const KEYS: &str = "private keys";
/// Occurs in every private key; cheap to search.
const KEY: &str = "PRIVATE KEY";
const KEY_BEGIN: &str = "-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";
const KEY_END: &str = "-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";
/// Maximum lines of a key; an unterminated key must not hide the rest of a log.
const KEY_LINES: u32 = 200;

/// Rules, and counts of their applications. Shared by all threads of a snapshot.
pub(crate) struct Redactor {
    env: Vec<Regex>,
    /// A rule hides the first group; without groups, as in all rules from files, the whole match.
    text: Vec<(String, Regex)>,
    /// Fields by the name of their rule.
    fields: Vec<(String, Field)>,
    assignment: Regex,
    key_begin: Regex,
    key_end: Regex,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Redactor {
    /// Built-in and configured rules; `None` if nothing should be hidden.
    pub(crate) fn new(asked: &Redaction) -> anyhow::Result<Option<Self>> {
        if asked.off {
            return Ok(None);
        }
        let compile = |pattern: &String| pattern::compile(pattern).map_err(anyhow::Error::msg);
        let mut env = vec![Regex::new(ENV)?];
        for pattern in &asked.env {
            env.push(compile(pattern)?);
        }
        let mut text = Vec::new();
        for (name, pattern) in TEXT {
            text.push((name.to_owned(), Regex::new(pattern)?));
        }
        for name in &asked.text {
            text.push((name.clone(), compile(name)?));
        }
        let of_secrets =
            |path: &str| (SECRETS.to_owned(), Field { kind: "Secret".into(), path: path.into() });
        let mut fields: Vec<_> = FIELDS.map(of_secrets).into();
        fields.extend(
            asked.fields.iter().map(|field| (format!("{}: {}", field.kind, field.path), field.clone())),
        );
        let names = text
            .iter()
            .map(|(name, _)| name)
            .chain(fields.iter().map(|(name, _)| name))
            .cloned()
            .chain([VARIABLES, COPIES, KEYS].map(str::to_owned));
        Ok(Some(Self {
            env,
            counts: Mutex::new(names.map(|name| (name, 0)).collect()),
            text,
            fields,
            assignment: Regex::new(ASSIGNMENT)?,
            key_begin: Regex::new(KEY_BEGIN)?,
            key_end: Regex::new(KEY_END)?,
        }))
    }

    /// Applications of each rule.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        lock(&self.counts).clone()
    }

    fn count(&self, rule: &str) {
        lock(&self.counts).get_mut(rule).into_iter().for_each(|count| *count += 1);
    }

    /// Filters the lines of one log.
    pub(crate) fn lines(&self) -> Lines<'_> {
        Lines { rules: self, key_lines: 0 }
    }

    /// Hides secrets in an object; returns whether there were any.
    pub(crate) fn object(&self, resource: &Resource, object: &mut Value) -> bool {
        let mut hidden = resource.plural == "configmaps" && self.files(object.get_mut("data"));
        let is_of_kind = |(_, field): &&(String, Field)| field.kind.eq_ignore_ascii_case(&resource.kind);
        for (name, field) in self.fields.iter().filter(is_of_kind) {
            hidden |= self.field(name, object, &field.path.split('.').collect::<Vec<_>>());
        }
        hidden |= self.walk(object, false);
        if hidden && let Some(copy) = object.pointer_mut(LAST_APPLIED) {
            *copy = json!(HIDDEN);
            self.count(COPIES);
        }
        hidden
    }

    /// Hides secrets in a document of the run, such as a definition with its config map; returns whether there were
    /// any.
    pub(crate) fn document(&self, value: &mut Value) -> bool {
        let files = self.files(value.pointer_mut("/Definition/config-map"));
        self.walk(value, false) || files
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
            Value::Array(list) => {
                key.parse::<usize>().ok().and_then(|index| list.get_mut(index)).into_iter().collect()
            }
            _ => Vec::new(),
        };
        inner.into_iter().fold(false, |hidden, value| hidden | self.field(rule, value, rest))
    }

    /// Hides secrets in the files of a config map: a file whose name suggests one, and such keys in YAML or JSON.
    fn files(&self, files: Option<&mut Value>) -> bool {
        files.and_then(Value::as_object_mut).into_iter().flatten().fold(false, |hidden, (name, file)| {
            let is_secret = self.is_secret(name);
            hidden | (if is_secret { self.hide(file) } else { self.file(file) })
        })
    }

    fn file(&self, file: &mut Value) -> bool {
        let Value::String(text) = file else { return false };
        let word = |c: char| !(c.is_alphanumeric() || "_.-".contains(c));
        if !text.split(word).any(|word| self.is_secret(word)) {
            return false;
        }
        let Ok(mut documents) = yaml::parse_all(text) else { return false };
        let mut hidden = false;
        for one in &mut documents {
            // A definition in a config map has a config map itself.
            hidden |= self.files(one.get_mut("config-map"));
            hidden |= self.walk(one, true);
        }
        if hidden {
            let is_json = text.trim_start().starts_with('{');
            let written =
                documents.iter().map(|one| if is_json { one.to_string() } else { yaml::write(one) });
            *text = written.joined("---\n");
        }
        hidden
    }

    /// Hides at any depth (pods, templates, custom resources): variables, words after flags, and texts that contain keys or
    /// tokens; with `by_key`, also values of keys whose names suggest a secret.
    fn walk(&self, value: &mut Value, by_key: bool) -> bool {
        let is_variable = value["name"].as_str().is_some_and(|name| self.is_secret(name));
        let mut hidden = is_variable && value.get_mut("value").is_some_and(|value| self.hide(value));
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    hidden |= by_key && self.is_secret(key) && self.hide(value) || self.walk(value, by_key);
                }
            }
            Value::Array(list) => {
                let mut is_value = false;
                for value in list {
                    hidden |= is_value && self.hide(value) || self.walk(value, by_key);
                    let flag = value.as_str().and_then(|word| word.strip_prefix("--"));
                    is_value = flag.is_some_and(|flag| self.is_secret(flag));
                }
            }
            Value::String(text) => {
                let unquoted = |value: &str| value.trim_matches(['"', '\'']).to_owned();
                let assigned = substitute(text, &self.assignment, |found| {
                    let value = found.get(2)?;
                    let is_secret = self.is_secret(&found[1]) && is_value(&unquoted(value.as_str()));
                    is_secret.then(|| self.count(VARIABLES)).map(|()| value)
                });
                let mut lines = self.lines();
                let clean: String = assigned.split_inclusive('\n').map(|line| lines.line(line)).collect();
                if clean != *text {
                    *text = clean;
                    hidden = true;
                }
            }
            _ => {}
        }
        hidden
    }

    /// Hides a text that may be a secret.
    fn hide(&self, value: &mut Value) -> bool {
        let hidden = value.as_str().is_some_and(is_value);
        if hidden {
            *value = json!(HIDDEN);
            self.count(VARIABLES);
        }
        hidden
    }

    fn is_secret(&self, name: &str) -> bool {
        !NO_SECRETS.contains(&name) && self.env.iter().any(|env| env.is_match(name))
    }

    /// Applies the rules for single lines.
    fn plain<'a>(&self, line: &'a str) -> Cow<'a, str> {
        self.text.iter().fold(Cow::Borrowed(line), |text, (name, pattern)| {
            let clean = substitute(&text, pattern, |found| {
                let part = found.get(1).or_else(|| found.get(0))?;
                let is_token = name != BEARER || part.as_str().bytes().any(|byte| byte.is_ascii_digit());
                (is_token && part.as_str() != HIDDEN).then(|| self.count(name)).map(|()| part)
            });
            if let Cow::Owned(clean) = clean { clean.into() } else { text }
        })
    }
}

/// Whether a value may be a secret.
fn is_value(text: &str) -> bool {
    text != HIDDEN && !SWITCHES.contains(&text.to_lowercase().as_str())
}

/// Hides what `secret` returns of each match.
fn substitute<'t>(
    text: &'t str,
    pattern: &Regex,
    secret: impl Fn(&Captures<'t>) -> Option<Match<'t>>,
) -> Cow<'t, str> {
    let (mut out, mut last) = (String::new(), 0);
    for part in pattern.captures_iter(text).filter_map(|found| secret(&found)) {
        out.extend([&text[last..part.start()], HIDDEN]);
        last = part.end();
    }
    if last == 0 { Cow::Borrowed(text) } else { Cow::Owned(out + &text[last..]) }
}

/// Hides secrets in the lines of one log; a private key spans several.
pub(crate) struct Lines<'a> {
    rules: &'a Redactor,
    /// Maximum remaining lines of a key.
    key_lines: u32,
}

impl Lines<'_> {
    /// Returns the line without secrets.
    pub(crate) fn line<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        if self.key_lines > 0 {
            self.key_lines -= 1;
            let Some(end) = self.rules.key_end.find(line) else { return Cow::Borrowed("") };
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
                    if line.ends_with('\n') { "\n".into() } else { String::new() }
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
            let mut object =
                json!({"spec": {"template": {"containers": [{"env": [{"name": name, "value": "v"}]}]}}});
            assert_eq!(redactor().object(&Resource::PODS, &mut object), hidden, "{name}");
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
        assert_eq!(object["spec"]["env"][0]["valueFrom"]["secretKeyRef"]["key"], "k");
        assert_eq!(object["metadata"]["annotations"], json!({NAME: HIDDEN, "other": "kept"}));
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
        assert_eq!(secret, json!({"data": {"user": HIDDEN, "pin": HIDDEN}, "type": "Opaque"}));
        let mut empty = json!({"type": "Opaque"});
        assert!(!redactor().object(&Resource::SECRETS, &mut empty));
        assert_eq!(empty, json!({"type": "Opaque"}));
    }

    fn check_lines(lines: &[&str], expected: &[&str]) {
        let redactor = redactor();
        let mut filter = redactor.lines();
        let out: Vec<_> = lines.iter().map(|line| filter.line(line).into_owned()).collect();
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
        check_lines(&["authorization: Basic dXNlcjpwYXNz, x\n"], &["authorization: Basic ***HIDDEN***, x\n"]);
        check_lines(&["to postgres://u:geheim@db/x\n"], &["to postgres://u:***HIDDEN***@db/x\n"]);
        check_lines(&["t=eyJhbGciOiJI.eyJzdWIiOiIx.c2ln end"], &["t=***HIDDEN*** end"]);
        check_lines(
            &["a -----BEGIN EC PRIVATE KEY-----\n", "MHcC\n", "-----END EC PRIVATE KEY-----\n", "b\n"],
            &["a ***HIDDEN***\n", "", "", "b\n"],
        );
        check_lines(
            &[r"k=-----BEGIN PRIVATE KEY-----\nMHcC\n-----END PRIVATE KEY----- b"],
            &["k=***HIDDEN*** b"],
        );
        check_lines(
            &["-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "x\n", "-----END PGP PRIVATE KEY BLOCK----- c\n"],
            &["***HIDDEN***\n", "", " c\n"],
        );
        check_lines(&["-----BEGIN CERTIFICATE-----\n"], &["-----BEGIN CERTIFICATE-----\n"]);
        let cut = ["-----BEGIN PRIVATE KEY-----\n"].into_iter().chain(["x\n"; 300]).collect::<Vec<_>>();
        let redactor = redactor();
        let mut filter = redactor.lines();
        let left = cut.iter().filter(|line| !filter.line(line).is_empty()).count();
        assert_eq!(left, 101, "a key without an end hides its beginning and 200 lines");
    }

    #[test]
    fn rules_add_to_the_built_in_ones() {
        let mut rules = Redaction::default();
        rules.add("env: [^PIN$]\ntext: ['card=\\d+']\nfields:\n- {kind: ConfigMap, path: data.*}\n- {kind: Pod, path: spec.hosts.1}\n").unwrap();
        let redactor = Redactor::new(&rules).unwrap().unwrap();
        let mut map = json!({"data": {"a": "b"}, "other": "card=12"});
        redactor.object(&Resource::CONFIG_MAPS, &mut map);
        assert_eq!(map, json!({"data": {"a": HIDDEN}, "other": "***HIDDEN***"}));
        let mut pod = json!({"spec": {"hosts": ["a", "b"], "env": [{"name": "PIN", "value": "1"}]}});
        redactor.object(&Resource::PODS, &mut pod);
        assert_eq!(pod, json!({"spec": {"hosts": ["a", HIDDEN], "env": [{"name": "PIN", "value": HIDDEN}]}}));
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
        let mut document =
            json!({"Definition": definition, "CustomAnnotations": {"a": format!("TOKEN={SECRET}")}});
        assert!(redactor.document(&mut document));
        let text = document.to_string();
        assert!(!text.contains(SECRET), "{text}");
        for kept in ["user: me", "plugin-name", "DB_PASSWORD", "--api-token=", "curl"] {
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

    #[test]
    fn ordinary_values_are_kept() {
        for text in ["--token=$TOKEN", "--token-file=/x", "TOKEN=true", "tokens and secrets", "a=b"] {
            let mut value = json!({"args": [text], "env": [{"name": "TOKEN_FILE", "value": "/x"}]});
            let before = value.clone();
            assert!(!redactor().document(&mut value), "{text}");
            assert_eq!(value, before);
        }
    }
}
