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

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::Value;

use super::tls::Identity;
use crate::clock;
use crate::json::json;
use crate::lock;
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
    pub fn authorization(&self, identity: &Identity) -> Result<Option<String>, String> {
        Ok(match self {
            Self::None => None,
            Self::Basic(user, password) => {
                Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
            }
            Self::Token(token) => Some(format!("Bearer {token}")),
            Self::TokenFile(path) => {
                let token = small::read_regular(path, MAX_NAMED_BYTES)
                    .and_then(small::text)
                    .map_err(|why| format!("token file `{}`: {why}", path.display()))?;
                match token.trim() {
                    "" => return Err(format!("token file `{}` is empty", path.display())),
                    token => Some(format!("Bearer {token}")),
                }
            }
            Self::Program(program) => program.token(identity)?.map(|token| format!("Bearer {token}")),
        })
    }

    /// Whether new credentials may be available after a rejection.
    pub fn renew(&self) -> bool {
        match self {
            Self::Program(program) => {
                *lock(&program.last) = None;
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

/// A configured exec credential plugin.
pub struct Program {
    /// Where it is defined, for messages: file and field.
    pub place: String,
    /// Its definition.
    pub exec: Exec,
    /// Description of the cluster for the program, if requested.
    pub cluster: Option<Value>,
    /// The token of its last output, and when that expires.
    pub last: Mutex<Option<Issued>>,
}

/// A token, and when it expires.
type Issued = (Option<String>, Option<SystemTime>);

/// An exec credential plugin, as a kubeconfig describes it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exec {
    /// Name or path.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Variables added to this process's environment.
    pub env: Option<Vec<Variable>>,
    /// `client.authentication.k8s.io/v1` or `/v1beta1`.
    pub api_version: String,
    /// Hint for the user if it is not installed.
    pub install_hint: Option<String>,
    /// Whether it may interact with the user.
    pub interactive_mode: Option<Interactive>,
    /// Whether it requests a description of the cluster.
    #[serde(default)]
    pub provide_cluster_info: bool,
}

/// A variable of a program's environment.
#[derive(Clone, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Whether a program may interact with the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Interactive {
    /// Never.
    Never,
    /// If there is a terminal.
    IfAvailable,
    /// It needs a terminal.
    Always,
}

/// Maximum bytes of a file that a kubeconfig names: certificates, a key, a token.
pub(super) const MAX_NAMED_BYTES: u64 = 4 << 20;
/// Maximum bytes of a program's output, a token or two certificates.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// Credentials are renewed early, so that they do not expire in transit.
const RENEWAL_MARGIN: Duration = Duration::from_secs(10);

impl Program {
    fn token(&self, identity: &Identity) -> Result<Option<String>, String> {
        // Held while the program runs, so that concurrent requests run it once.
        let mut last = lock(&self.last);
        let soon = SystemTime::now() + RENEWAL_MARGIN;
        let token = match &*last {
            Some((token, expires)) if expires.is_none_or(|expires| soon < expires) => token.clone(),
            _ => {
                let answer = self.run(identity, sys::CREDENTIALS_TIMEOUT);
                let answer = answer.map_err(|why| format!("{}: {why}", self.place))?;
                last.insert(answer).0.clone()
            }
        };
        Ok(token)
    }

    fn run(&self, identity: &Identity, limit: Duration) -> Result<Issued, String> {
        let exec = &self.exec;
        let name = exec.command.display();
        let terminal = std::io::stdin().is_terminal();
        if exec.interactive_mode == Some(Interactive::Always) && !terminal {
            return Err(format!(
                "`{name}` needs a terminal (interactiveMode Always), and standard input is not one"
            ));
        }
        let interactive = terminal && exec.interactive_mode != Some(Interactive::Never);
        let mut wish = json!({
            "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": {"interactive": interactive},
        });
        if let Some(cluster) = &self.cluster {
            wish["spec"]["cluster"] = cluster.clone();
        }
        let mut command = Command::new(sys::program(&exec.command));
        command
            .args(exec.args.iter().flatten())
            .envs(exec.env.iter().flatten().map(|Variable { name, value }| (name, value)))
            .env("KUBERNETES_EXEC_INFO", wish.to_string());
        let asked = sys::ask_for_credentials(&mut command, None, MAX_ANSWER_BYTES, interactive, limit);
        let (output, ended) = asked.map_err(|why| match why.kind() {
            ErrorKind::FileTooLarge => format!("`{name}` printed more than 1 MiB"),
            ErrorKind::TimedOut => {
                format!("`{name}` was ended: {why}; run it by hand to see what it waits for{}", self.hint())
            }
            ErrorKind::NotFound => format!("`{name}` is not installed{}", self.hint()),
            _ => format!("cannot start `{name}`: {why}{}", self.hint()),
        })?;
        if !ended.success() {
            return Err(format!("`{name}` failed ({ended}){}", self.hint()));
        }
        self.read(&output, identity).map_err(|why| format!("invalid output of `{name}`: {why}"))
    }

    fn read(&self, output: &[u8], identity: &Identity) -> Result<Issued, String> {
        let answer: Value = serde_json::from_slice(output).map_err(|why| format!("not JSON: {why}"))?;
        if answer["kind"] != "ExecCredential" {
            return Err("kind is not `ExecCredential`".into());
        }
        if answer["apiVersion"] != self.exec.api_version.as_str() {
            return Err(format!(
                "apiVersion is {} instead of `{}`",
                answer["apiVersion"], self.exec.api_version
            ));
        }
        let status = &answer["status"];
        let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
        let token = text("token").map(str::to_owned);
        match (text("clientCertificateData"), text("clientKeyData")) {
            (Some(chain), Some(key)) => identity.set(chain.as_bytes(), key.as_bytes())?,
            (None, None) if token.is_some() => {}
            (None, None) => return Err("status has neither `token` nor `clientCertificateData`".into()),
            _ => return Err("status has only one of `clientCertificateData` and `clientKeyData`".into()),
        }
        let time = |time: &str| {
            let wrong = || format!("expirationTimestamp `{time}` is not an RFC 3339 time");
            clock::parse_rfc3339(time).ok_or_else(wrong)
        };
        Ok((token, text("expirationTimestamp").map(time).transpose()?))
    }

    fn hint(&self) -> String {
        let hint = self.exec.install_hint.iter().flat_map(|hint| hint.split_whitespace());
        let hint = hint.collect::<Vec<_>>().join(" ");
        if hint.is_empty() { hint } else { format!("; {hint}") }
    }
}

#[cfg(all(test, unix))]
#[path = "tests_credential.rs"]
mod tests;
