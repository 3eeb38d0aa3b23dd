//! Credentials for the API server: tokens, passwords, and programs that issue credentials.
//!
//! Owns the protocol of exec credential plugins (`client.authentication.k8s.io`) and when to renew credentials. Knows
//! nothing about requests. Runs the program as a child process, starts no thread.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use crate::at::At as _;
use crate::clock;
use crate::json::json;
use crate::lock;
use crate::tls::Identity;
use crate::{small, sys};

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
    /// The header's value. Runs a program only when its last credentials have expired; a certificate goes to `identity`.
    pub fn authorization(&self, identity: &Identity) -> Result<Option<String>> {
        Ok(match self {
            Self::None => None,
            Self::Basic(user, password) => {
                Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
            }
            Self::Token(token) => Some(format!("Bearer {token}")),
            Self::TokenFile(path) => {
                let token = small::read_regular(path, MAX_NAMED_BYTES).and_then(small::text);
                let token = token.at("token file", path)?;
                ensure!(!token.trim().is_empty(), "token file `{}` is empty", path.display());
                Some(format!("Bearer {}", token.trim()))
            }
            Self::Program(program) => program.token(identity)?.map(|token| format!("Bearer {token}")),
        })
    }

    /// Whether new credentials may be available after a rejection.
    pub fn renew(&self) -> bool {
        match self {
            Self::Program(program) => {
                *program.answer() = None;
                true
            }
            Self::TokenFile(_) => true,
            _ => false,
        }
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
    pub place: String,
    /// Name or path; a path with a slash is relative to the kubeconfig.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to this process's environment.
    pub env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `/v1beta1`.
    pub api_version: String,
    /// Hint for the user if it is not installed.
    pub install_hint: String,
    /// Whether it may interact with the user.
    pub interactive: Interactive,
    /// Description of the cluster for the program, if requested.
    pub cluster: Option<Value>,
    /// Its last output.
    pub last: Mutex<Option<Issued>>,
}

/// Whether a program may interact with the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interactive {
    /// Never.
    Never,
    /// If there is a terminal.
    IfAvailable,
    /// It needs a terminal.
    Always,
}

/// What a program returned.
pub struct Issued {
    token: Option<String>,
    expires: Option<SystemTime>,
}

/// Maximum bytes of a file that a kubeconfig names: certificates, a key, a token.
pub(super) const MAX_NAMED_BYTES: u64 = 4 << 20;
/// Maximum bytes of a program's output, a token or two certificates.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// Credentials are renewed early, so that they do not expire in transit.
const RENEWAL_MARGIN: Duration = Duration::from_secs(10);

impl Program {
    fn token(&self, identity: &Identity) -> Result<Option<String>> {
        // Held while the program runs, so that concurrent requests run it once.
        let mut last = self.answer();
        let fresh = last.as_ref().is_some_and(|answer| {
            answer.expires.is_none_or(|expires| {
                SystemTime::now().checked_add(RENEWAL_MARGIN).is_some_and(|then| then < expires)
            })
        });
        if !fresh {
            let answer = self.run(identity, sys::CREDENTIALS_TIMEOUT);
            *last = Some(answer.with_context(|| self.place.clone())?);
        }
        Ok(last.as_ref().and_then(|answer| answer.token.clone()))
    }

    fn answer(&self) -> std::sync::MutexGuard<'_, Option<Issued>> {
        lock(&self.last)
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
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", wish.to_string());
        let asked = sys::ask_for_credentials(&mut command, None, MAX_ANSWER_BYTES, interactive, limit);
        let (output, ended) = asked.map_err(|why| match why.kind() {
            ErrorKind::FileTooLarge => anyhow!("`{name}` printed more than 1 MiB"),
            ErrorKind::TimedOut => {
                anyhow!("`{name}` was ended: {why}; run it by hand to see what it waits for{}", self.hint())
            }
            ErrorKind::NotFound => anyhow!("`{name}` is not installed{}", self.hint()),
            _ => anyhow!("cannot start `{name}`: {why}{}", self.hint()),
        })?;
        ensure!(ended.success(), "`{name}` failed ({ended}){}", self.hint());
        self.read(&output, identity).with_context(|| format!("invalid output of `{name}`"))
    }

    fn read(&self, output: &[u8], identity: &Identity) -> Result<Issued> {
        let answer: Value = serde_json::from_slice(output).context("not JSON")?;
        ensure!(answer["kind"] == "ExecCredential", "kind is not `ExecCredential`");
        let version = &answer["apiVersion"];
        ensure!(*version == *self.api_version, "apiVersion is {version} instead of `{}`", self.api_version);
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
        Ok(Issued { token, expires: text("expirationTimestamp").map(time).transpose()? })
    }

    fn hint(&self) -> String {
        match self.install_hint.trim() {
            "" => String::new(),
            hint => format!("; {}", hint.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }
}

#[cfg(all(test, unix))]
#[path = "tests_credential.rs"]
mod tests;
