//! Address and credentials of the API server, with kubectl's rules.
//!
//! Owns finding and merging kubeconfig files, contexts, a pod's account, the protocol of exec
//! credential plugins (`client.authentication.k8s.io`), and when to renew credentials. Every error
//! names the file and the field. Opens no connection; reads the environment; runs plugins as child
//! processes.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;
use ureq::http::Uri;

use super::error::{Error, NoCluster};
use super::request::Object as _;
use base::at::At as _;
use base::json::json;
use base::proxy::Proxy;
use base::sys::{self, variable};
use base::tls::{self, Identity, Trust};
use base::{Joined as _, clock, lock, small};

/// Choices on the command line.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only this file, instead of KUBECONFIG and `~/.kube/config`.
    pub path: Option<PathBuf>,
    /// A context other than the current one.
    pub context: Option<String>,
    /// The user to act as.
    pub as_user: Option<String>,
    /// The groups to act as a member of.
    pub as_groups: Vec<String>,
    /// The timeout of one request; `None` and zero mean that the user sets no limit.
    pub request_timeout: Option<Duration>,
}

/// Everything a client needs.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The server's address without a trailing slash.
    pub server: String,
    /// The name that its certificate must have, if not the one in the address.
    pub server_name: Option<String>,
    /// Trusted authorities.
    pub trust: Trust,
    /// Client certificate.
    pub identity: Identity,
    /// Token or password.
    pub credential: Credential,
    /// The proxy that the kubeconfig names.
    pub proxy: Option<Proxy>,
    /// The user to act as.
    pub as_user: Option<String>,
    /// The groups to act as a member of.
    pub as_groups: Vec<String>,
    /// The timeout of one request.
    pub request_timeout: Option<Duration>,
    /// The namespace of the context, or of this process's pod.
    pub namespace: Option<String>,
    /// Source of the settings.
    pub source: String,
}

/// A kubeconfig; those of a thousand clusters have some megabytes.
const MAX_KUBECONFIG_BYTES: u64 = 16 << 20;
/// Files with a pod's credentials.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Config {
    /// Finds the settings: the chosen file, KUBECONFIG, `~/.kube/config`, or the account of this
    /// process's pod.
    pub fn load(options: &Options) -> Result<Self, Error> {
        let config = Self::find(options)?;
        config
            .weaknesses()
            .iter()
            .for_each(|weakness| log::warn!("{}: {weakness}", config.source));
        Ok(config)
    }

    /// As [`Self::load`], without warnings.
    pub fn find(options: &Options) -> Result<Self, Error> {
        let files = Files::find(options, &variable)?;
        let config = match files.resolve(options)? {
            None => in_cluster(Path::new(ACCOUNT), &variable)?,
            config => config,
        };
        let mut config = config.ok_or_else(|| anyhow::Error::new(NoCluster(files.sources())))?;
        config.as_user.clone_from(&options.as_user);
        config.as_groups.clone_from(&options.as_groups);
        config.request_timeout = options.request_timeout.filter(|limit| !limit.is_zero());
        if config.as_user.is_none() && !config.as_groups.is_empty() {
            return Err(
                anyhow!("`--as-group` needs `--as`: a group cannot be impersonated alone").into(),
            );
        }
        Ok(config)
    }

    /// The name of the context in use; `None` in a pod.
    pub fn context(options: &Options) -> Option<String> {
        let files = Files::find(options, &variable).unwrap_or_default();
        options
            .context
            .clone()
            .or_else(|| files.current().map(|(_, name)| name.to_owned()))
    }

    /// The names of all contexts; none if the kubeconfig cannot be read.
    pub fn contexts(options: &Options) -> Vec<String> {
        let files = Files::find(options, &variable).unwrap_or_default();
        files
            .names("contexts")
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// Settings that let an attacker on the network impersonate the server or read credentials.
    fn weaknesses(&self) -> Vec<&'static str> {
        let uri: Uri = self.server.parse().unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_local = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        // Data sent to a proxy leaves this machine, whatever the address.
        let plain = uri.scheme_str() == Some("http") && (!is_local || self.proxy.is_some());
        let mut weaknesses = Vec::new();
        if matches!(self.trust, Trust::Anybody) && uri.scheme_str() == Some("https") {
            weaknesses.push(
                "insecure-skip-tls-verify: anybody can pose as the API server; set \
                 certificate-authority",
            );
        }
        if plain && !matches!(self.credential, Credential::None) {
            weaknesses.push(
                "server: it starts with http://, so the token or password can be read in transit; use https://",
            );
        }
        weaknesses
    }

    /// A plain address without credentials, as `kubectl proxy` serves it.
    pub fn plain(server: impl Into<String>) -> Self {
        let server = server.into();
        Self {
            source: server.clone(),
            server,
            ..Self::default()
        }
    }
}

/// The files that count, in order; the first that names something wins.
#[derive(Default)]
struct Files(Vec<(Value, PathBuf)>);

/// One named entry, and the file that has it.
struct Entry<'a> {
    file: &'a Path,
    place: String,
    value: &'a Value,
}

impl Files {
    fn find(options: &Options, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let paths: Vec<PathBuf> = match (&options.path, variable("KUBECONFIG")) {
            (Some(path), _) => vec![path.clone()],
            (None, Some(list)) => {
                let existing_files: Vec<_> = std::env::split_paths(&list)
                    .filter(|path| path.exists())
                    .collect();
                ensure!(
                    !existing_files.is_empty(),
                    "none of the files in KUBECONFIG exists: `{list}`"
                );
                existing_files
            }
            // Windows has several home folders; use the one with a kubeconfig.
            (None, None) => {
                let mut candidates = sys::homes(variable)
                    .into_iter()
                    .map(|home| home.join(".kube").join("config"));
                candidates.find(|path| path.exists()).into_iter().collect()
            }
        };
        let read = |path: PathBuf| Ok((read(&path).at("kubeconfig", &path)?, path));
        paths.into_iter().map(read).collect::<Result<_>>().map(Self)
    }

    fn current(&self) -> Option<(&Path, &str)> {
        self.0.iter().find_map(|(value, file)| {
            let name = value["current-context"]
                .as_str()
                .filter(|name| !name.is_empty())?;
            Some((file.as_path(), name))
        })
    }

    /// `None` if nothing is configured at all.
    fn resolve(&self, options: &Options) -> Result<Option<Config>> {
        let contexts = || self.names("contexts").join(", ");
        let (place, name) = match (&options.context, self.current()) {
            (Some(name), _) if self.0.is_empty() => bail!(
                "`--context {name}`: there is no kubeconfig that could have it; name one with \
                 `--kubeconfig`"
            ),
            (Some(name), _) => ("`--context`".to_owned(), name.as_str()),
            (None, Some((file, name))) => (
                format!("kubeconfig `{}`: current-context", file.display()),
                name,
            ),
            (None, None)
                if ["clusters", "contexts", "users"]
                    .iter()
                    .all(|list| self.names(list).is_empty()) =>
            {
                return Ok(None);
            }
            (None, None) => bail!(
                "kubeconfig `{}`: current-context is not set; choose one with `--context`: {}",
                self.sources(),
                contexts()
            ),
        };
        let context = self.entry("contexts", "context", name).with_context(|| {
            format!(
                "{place}: no context `{name}` in `{}`; it has: {}",
                self.sources(),
                contexts()
            )
        })?;
        self.read_context(&context).map(Some)
    }

    fn read_context(&self, context: &Entry<'_>) -> Result<Config> {
        let place = || context.place.clone();
        let cluster = self
            .referred(context, "clusters", "cluster")
            .with_context(place)?;
        let cluster = cluster.context("cluster is not set").with_context(place)?;
        let mut config = read_cluster(&cluster).with_context(|| cluster.place.clone())?;
        config.source.clone_from(&cluster.place);
        if let Some(user) = self
            .referred(context, "users", "user")
            .with_context(place)?
        {
            read_user(&user, &cluster, &mut config).with_context(|| user.place.clone())?;
        }
        config.namespace = context
            .text("namespace")
            .with_context(place)?
            .map(str::to_owned);
        Ok(config)
    }

    fn sources(&self) -> String {
        self.0
            .iter()
            .map(|(_, file)| file.display().to_string())
            .joined(":")
    }

    fn names(&self, list: &str) -> Vec<&str> {
        let entries = self
            .0
            .iter()
            .filter_map(|(value, _)| value[list].as_array())
            .flatten();
        entries.filter_map(|entry| entry["name"].as_str()).collect()
    }

    fn entry<'a>(&'a self, list: &str, key: &str, name: &str) -> Option<Entry<'a>> {
        self.0.iter().find_map(|(value, file)| {
            let named_entry = value[list]
                .as_array()?
                .iter()
                .find(|entry| entry["name"] == name)?;
            let place = format!("kubeconfig `{}`: {list} `{name}`", file.display());
            Some(Entry {
                file,
                place,
                value: &named_entry[key],
            })
        })
    }

    /// The entry of a list that a field of the same name as its value refers to.
    fn referred<'a>(
        &'a self,
        from: &Entry<'_>,
        list: &str,
        key: &str,
    ) -> Result<Option<Entry<'a>>> {
        let Some(name) = from.text(key)? else {
            return Ok(None);
        };
        let missing = || {
            format!(
                "{key}: no `{name}` among the {list} of `{}`",
                self.sources()
            )
        };
        self.entry(list, key, name).with_context(missing).map(Some)
    }
}

impl<'a> Entry<'a> {
    /// A text that exists and is not empty.
    fn text(&self, field: &str) -> Result<Option<&'a str>> {
        match &self.value[field] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            other => bail!("{field}: `{other}` is not text"),
        }
    }

    fn flag(&self, field: &str) -> Result<bool> {
        match &self.value[field] {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            other => bail!("{field}: `{other}` must be true or false"),
        }
    }

    fn list(&self, field: &str) -> Result<&'a [Value]> {
        match &self.value[field] {
            Value::Null => Ok(&[]),
            Value::Array(items) => Ok(items),
            _ => bail!("{field}: must be a list"),
        }
    }

    /// A file name, relative to the kubeconfig.
    fn path(&self, field: &str) -> Result<Option<PathBuf>> {
        Ok(self.text(field)?.map(|path| self.folder().join(path)))
    }

    fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// `field-data` in base64, else the file that `field` names; also returns which of the two it
    /// was.
    fn data(&self, field: &str) -> Result<Option<(Vec<u8>, String)>> {
        let inline = format!("{field}-data");
        if let Some(text) = self.text(&inline)? {
            let compact: String = text.split_whitespace().collect();
            let bytes = BASE64_STANDARD
                .decode(compact)
                .with_context(|| format!("{inline}: not base64"))?;
            return Ok(Some((bytes, inline)));
        }
        let Some(path) = self.path(field)? else {
            return Ok(None);
        };
        let bytes = small::read_regular(&path, MAX_NAMED_BYTES)
            .with_context(|| format!("{field}: cannot read `{}`", path.display()))?;
        Ok(Some((bytes, field.to_owned())))
    }
}

fn read(path: &Path) -> Result<Value> {
    // It may be a pipe, as the shell makes one for `--kubeconfig <(...)`.
    let text = small::read(path, MAX_KUBECONFIG_BYTES).and_then(small::text)?;
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    let value: Value = yaml::parse(&text)?;
    ensure!(
        value.is_object() || value.is_null(),
        "not a kubeconfig: it must be a map with clusters, users and contexts"
    );
    for list in ["clusters", "contexts", "users"] {
        ensure!(
            value[list].is_null() || value[list].is_array(),
            "{list}: must be a list"
        );
    }
    Ok(value)
}

fn read_cluster(cluster: &Entry<'_>) -> Result<Config> {
    let server = cluster.text("server")?.context("server is not set")?;
    let insecure = cluster.flag("insecure-skip-tls-verify")?;
    let trust = match (insecure, cluster.data("certificate-authority")?) {
        (true, Some(_)) => {
            bail!("insecure-skip-tls-verify and certificate-authority contradict each other")
        }
        (true, None) => Trust::Anybody,
        (false, Some((pem, field))) => {
            let trust = Trust::Authorities(pem);
            tls::client_config(&trust, &Identity::default()).context(field)?;
            trust
        }
        (false, None) => Trust::System,
    };
    let server_name = cluster.text("tls-server-name")?.map(str::to_owned);
    if let Some(name) = &server_name {
        tls::server_name(name).context("tls-server-name")?;
    }
    let proxy = cluster
        .text("proxy-url")?
        .map(Proxy::parse)
        .transpose()
        .context("proxy-url")?;
    let server = address(server, !matches!(trust, Trust::System)).context("server")?;
    Ok(Config {
        server,
        server_name,
        trust,
        proxy,
        ..Config::default()
    })
}

/// An address without a scheme means HTTPS if there is something to verify it with, as for kubectl.
fn address(text: &str, secure: bool) -> Result<String> {
    let text = text.trim();
    let scheme = if secure { "https" } else { "http" };
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("{scheme}://{text}")
    };
    let uri: Uri = with_scheme
        .parse()
        .with_context(|| format!("`{text}` is not a URL"))?;
    match (uri.scheme_str(), uri.host(), uri.query()) {
        (Some("http" | "https"), Some(host), None) if !host.is_empty() => {
            Ok(with_scheme.trim_end_matches('/').to_owned())
        }
        (Some("http" | "https"), ..) => bail!("`{text}` is not a server address"),
        _ => bail!("`{text}` must start with http:// or https://"),
    }
}

fn read_user(user: &Entry<'_>, cluster: &Entry<'_>, config: &mut Config) -> Result<()> {
    match (user.data("client-certificate")?, user.data("client-key")?) {
        (Some((chain, field)), Some((key, _))) => {
            config.identity.set(&chain, &key).context(field)?;
        }
        (Some(_), None) => bail!("client-certificate is set, but client-key is not"),
        (None, Some(_)) => bail!("client-key is set, but client-certificate is not"),
        (None, None) => {}
    }
    if let Some(provider) = user.value["auth-provider"]["name"].as_str() {
        bail!(
            "auth-provider `{provider}`: Kubernetes removed these in 1.26; have your cloud's tool \
             write an `exec` entry instead"
        );
    }
    let token_file = user.path("tokenFile")?;
    let token = user.text("token")?;
    let basic = user.text("username")?;
    config.credential = match (token_file, token, basic) {
        // The file wins, since it is renewed.
        (Some(file), ..) => Credential::TokenFile(file),
        (None, Some(token), _) if !token.trim().bytes().all(|byte| byte.is_ascii_graphic()) => {
            bail!("token: it contains a character that is not allowed in a token")
        }
        (None, Some(token), _) => Credential::Token(token.trim().to_owned()),
        (None, None, Some(name)) => Credential::Basic(
            name.to_owned(),
            user.text("password")?.unwrap_or_default().to_owned(),
        ),
        (None, None, None) if !user.value["exec"].is_null() => {
            let place = format!("{}: exec", user.place);
            let exec = Entry {
                file: user.file,
                place,
                value: &user.value["exec"],
            };
            Credential::Program(Arc::new(read_program(&exec, cluster).context("exec")?))
        }
        (None, None, None) => Credential::None,
    };
    Ok(())
}

fn read_program(exec: &Entry<'_>, cluster: &Entry<'_>) -> Result<Program> {
    ensure!(exec.value.is_object(), "must be a map");
    let command = exec.text("command")?.context("command is not set")?;
    let api_version = exec.text("apiVersion")?.context("apiVersion is not set")?;
    let newest = api_version == "client.authentication.k8s.io/v1";
    ensure!(
        newest || api_version == "client.authentication.k8s.io/v1beta1",
        "unsupported apiVersion `{api_version}`; use client.authentication.k8s.io/v1 or /v1beta1"
    );
    let interactive = match exec.text("interactiveMode")? {
        Some("Never") => Interactive::Never,
        Some("IfAvailable") => Interactive::IfAvailable,
        Some("Always") => Interactive::Always,
        Some(other) => bail!("interactiveMode `{other}` must be Never, IfAvailable or Always"),
        None if newest => {
            bail!("interactiveMode is not set, but apiVersion `{api_version}` requires it")
        }
        None => Interactive::IfAvailable,
    };
    let word = |arg: &Value| {
        arg.as_str()
            .map(str::to_owned)
            .with_context(|| format!("args: `{arg}` is not text"))
    };
    let args = exec.list("args")?.iter().map(word).collect::<Result<_>>()?;
    let variable = |variable: &Value| {
        let name = variable["name"]
            .as_str()
            .filter(|name| !name.is_empty() && !name.contains(['=', '\0']));
        let name = name.context("env: an entry has no usable name")?;
        Ok((name.to_owned(), variable["value"].text().to_owned()))
    };
    let env = exec
        .list("env")?
        .iter()
        .map(variable)
        .collect::<Result<_>>()?;
    Ok(Program {
        // A command with a slash (or the system's separator) is relative to its kubeconfig; any
        // other is looked up in PATH.
        command: match command.contains(std::path::is_separator) {
            true => exec.folder().join(command),
            false => command.into(),
        },
        args,
        env,
        api_version: api_version.to_owned(),
        install_hint: exec.text("installHint")?.unwrap_or_default().to_owned(),
        interactive,
        cluster: if exec.flag("provideClusterInfo")? {
            Some(cluster_info(cluster)?)
        } else {
            None
        },
        last: Mutex::new(None),
        place: exec.place.clone(),
    })
}

/// Description of the cluster for a program.
fn cluster_info(cluster: &Entry<'_>) -> Result<Value> {
    let mut info = json!({});
    for field in ["server", "tls-server-name", "proxy-url"] {
        if let Some(text) = cluster.text(field)? {
            info[field] = text.into();
        }
    }
    if cluster.flag("insecure-skip-tls-verify")? {
        info["insecure-skip-tls-verify"] = true.into();
    }
    if let Some((pem, _)) = cluster.data("certificate-authority")? {
        info["certificate-authority-data"] = BASE64_STANDARD.encode(pem).into();
    }
    let mut extensions = cluster.value["extensions"].items();
    if let Some(found) = extensions.find(|e| e["name"] == "client.authentication.k8s.io/exec") {
        info["config"] = found["extension"].clone();
    }
    Ok(info)
}

/// The account of this process's pod; `None` outside a pod.
fn in_cluster(account: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Config>> {
    let (Some(host), Some(port)) = (
        variable("KUBERNETES_SERVICE_HOST"),
        variable("KUBERNETES_SERVICE_PORT"),
    ) else {
        return Ok(None);
    };
    let token = account.join("token");
    ensure!(
        token.exists(),
        "this pod has no account for the API server: `{}` does not exist; check \
         `automountServiceAccountToken`",
        token.display()
    );
    let path = account.join("ca.crt");
    let trust =
        Trust::Authorities(small::read_regular(&path, MAX_NAMED_BYTES).at("cannot read", &path)?);
    tls::client_config(&trust, &Identity::default())
        .with_context(|| format!("`{}`", path.display()))?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let namespace =
        small::read_regular(&account.join("namespace"), MAX_NAMED_BYTES).and_then(small::text);
    Ok(Some(Config {
        server: format!("https://{host}:{port}"),
        trust,
        credential: Credential::TokenFile(token),
        namespace: namespace.ok().map(|name| name.trim().to_owned()),
        source: "the account of this pod".into(),
        ..Config::default()
    }))
}

/// Source of the `Authorization` header.
#[derive(Clone, Default)]
pub enum Credential {
    /// Nothing: no authentication, or a client certificate.
    #[default]
    None,
    /// User and password.
    Basic(String, String),
    /// A fixed token.
    Token(String),
    /// A token file that is renewed externally; read for each request.
    TokenFile(PathBuf),
    /// A program that issues tokens or certificates.
    Program(Arc<Program>),
}

impl Credential {
    /// The header's value. Runs a program only when its last credentials have expired; a
    /// certificate goes to `identity`.
    pub fn authorization(&self, identity: &Identity) -> Result<Option<String>> {
        Ok(match self {
            Self::None => None,
            Self::Basic(user, password) => Some(format!(
                "Basic {}",
                BASE64_STANDARD.encode(format!("{user}:{password}"))
            )),
            Self::Token(token) => Some(format!("Bearer {token}")),
            Self::TokenFile(path) => {
                let token = small::read_regular(path, MAX_NAMED_BYTES).and_then(small::text);
                let token = token.at("token file", path)?;
                ensure!(
                    !token.trim().is_empty(),
                    "token file `{}` is empty",
                    path.display()
                );
                Some(format!("Bearer {}", token.trim()))
            }
            Self::Program(program) => program
                .token(identity)?
                .map(|token| format!("Bearer {token}")),
        })
    }

    /// Whether new credentials may be available after a rejection.
    pub fn renew(&self) -> bool {
        if let Self::Program(program) = self {
            *lock(&program.last) = None;
        }
        matches!(self, Self::Program(_) | Self::TokenFile(_))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keep secrets out of messages.
        f.write_str(match self {
            Self::None => "None",
            Self::Basic(..) => "Basic",
            Self::Token(_) => "Token",
            Self::TokenFile(_) => "TokenFile",
            Self::Program(_) => "Program",
        })
    }
}

/// An exec credential plugin, as a kubeconfig describes it.
pub struct Program {
    /// Where it is defined, for messages: file and field.
    place: String,
    /// Name or path; a path with a slash is relative to the kubeconfig.
    command: PathBuf,
    /// Its arguments.
    args: Vec<String>,
    /// Variables added to this process's environment.
    env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `/v1beta1`.
    api_version: String,
    /// Hint for the user if it is not installed.
    install_hint: String,
    /// Whether it may interact with the user.
    interactive: Interactive,
    /// Description of the cluster for the program, if requested.
    cluster: Option<Value>,
    /// Its last output.
    last: Mutex<Option<Issued>>,
}

/// Whether a program may interact with the user.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Interactive {
    /// Never.
    Never,
    /// If there is a terminal.
    IfAvailable,
    /// It needs a terminal.
    Always,
}

/// What a program returned.
struct Issued {
    token: Option<String>,
    expires: Option<SystemTime>,
}

/// Maximum bytes of a file that a kubeconfig names: certificates, a key, a token.
const MAX_NAMED_BYTES: u64 = 4 << 20;
/// Maximum bytes of a program's output, a token or two certificates.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// Credentials are renewed early, so that they do not expire in transit.
const RENEWAL_MARGIN: Duration = Duration::from_secs(10);

impl Program {
    fn token(&self, identity: &Identity) -> Result<Option<String>> {
        // Held while the program runs, so that concurrent requests run it once.
        let mut last = lock(&self.last);
        let soon = SystemTime::now().checked_add(RENEWAL_MARGIN);
        last.take_if(|answer| {
            answer
                .expires
                .is_some_and(|expires| soon.is_none_or(|soon| expires <= soon))
        });
        if last.is_none() {
            let answer = self.run(identity, sys::CREDENTIALS_TIMEOUT);
            *last = Some(answer.with_context(|| self.place.clone())?);
        }
        Ok(last.as_ref().and_then(|answer| answer.token.clone()))
    }

    fn run(&self, identity: &Identity, limit: Duration) -> Result<Issued> {
        let name = self.command.display();
        let terminal = std::io::stdin().is_terminal();
        ensure!(
            terminal || self.interactive != Interactive::Always,
            "`{name}` needs a terminal (interactiveMode Always), and standard input is not one"
        );
        let interactive = terminal && self.interactive != Interactive::Never;
        let mut wish = json!({
            "apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": interactive},
        });
        if let Some(cluster) = &self.cluster {
            wish["spec"]["cluster"] = cluster.clone();
        }
        let mut command = Command::new(sys::program(&self.command));
        command
            .args(&self.args)
            .envs(self.env.iter().cloned())
            .env("KUBERNETES_EXEC_INFO", wish.to_string());
        let answer =
            sys::ask_for_credentials(&mut command, None, MAX_ANSWER_BYTES, interactive, limit);
        let (output, ended) = answer.map_err(|why| match why.kind() {
            ErrorKind::FileTooLarge => anyhow!("`{name}` printed more than 1 MiB"),
            ErrorKind::TimedOut => {
                anyhow!(
                    "`{name}` was ended: {why}; run it by hand to see what it waits for{}",
                    self.hint()
                )
            }
            ErrorKind::NotFound => anyhow!("`{name}` is not installed{}", self.hint()),
            _ => anyhow!("cannot start `{name}`: {why}{}", self.hint()),
        })?;
        ensure!(ended.success(), "`{name}` failed ({ended}){}", self.hint());
        self.read(&output, identity)
            .with_context(|| format!("invalid output of `{name}`"))
    }

    fn read(&self, output: &[u8], identity: &Identity) -> Result<Issued> {
        let answer: Value = serde_json::from_slice(output).context("not JSON")?;
        ensure!(
            answer["kind"] == "ExecCredential",
            "kind is not `ExecCredential`"
        );
        let version = &answer["apiVersion"];
        ensure!(
            *version == *self.api_version,
            "apiVersion is {version} instead of `{}`",
            self.api_version
        );
        let status = &answer["status"];
        let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
        let token = text("token").map(str::to_owned);
        match (text("clientCertificateData"), text("clientKeyData")) {
            (Some(chain), Some(key)) => identity.set(chain.as_bytes(), key.as_bytes())?,
            (None, None) if token.is_some() => {}
            (None, None) => bail!("status has neither `token` nor `clientCertificateData`"),
            _ => bail!("status has only one of `clientCertificateData` and `clientKeyData`"),
        }
        let time = |time: &str| {
            let wrong = || format!("expirationTimestamp `{time}` is not an RFC 3339 time");
            clock::parse_rfc3339(time).with_context(wrong)
        };
        Ok(Issued {
            token,
            expires: text("expirationTimestamp").map(time).transpose()?,
        })
    }

    fn hint(&self) -> String {
        match self.install_hint.trim() {
            "" => String::new(),
            hint => format!("; {}", hint.split_whitespace().joined(" ")),
        }
    }
}

#[cfg(all(test, unix))]
#[path = "tests_credential.rs"]
mod credential_tests;

#[cfg(test)]
#[path = "tests_kubeconfig.rs"]
mod tests;
