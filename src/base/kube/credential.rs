//! Credentials for the API server: tokens, passwords, and programs that issue credentials.
//!
//! Owns the protocol of exec credential plugins (`client.authentication.k8s.io`) and when to renew credentials. Knows
//! nothing about requests. Runs the program as a child process, starts no thread.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::tls::Identity;
use crate::clock;
use crate::json::json;
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
    pub last: Mutex<Option<Answer>>,
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
pub struct Answer {
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
    fn token(&self, identity: &Identity) -> Result<Option<String>, String> {
        // Held while the program runs, so that concurrent requests run it once.
        let mut last = self.answer();
        let fresh = last.as_ref().is_some_and(|answer| {
            answer.expires.is_none_or(|expires| {
                SystemTime::now().checked_add(RENEWAL_MARGIN).is_some_and(|then| then < expires)
            })
        });
        if !fresh {
            *last = Some(
                self.run(identity, sys::CREDENTIALS_TIMEOUT)
                    .map_err(|why| format!("{}: {why}", self.place))?,
            );
        }
        Ok(last.as_ref().and_then(|answer| answer.token.clone()))
    }

    fn answer(&self) -> std::sync::MutexGuard<'_, Option<Answer>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, identity: &Identity, limit: Duration) -> Result<Answer, String> {
        let name = self.command.display();
        let terminal = std::io::stdin().is_terminal();
        if self.interactive == Interactive::Always && !terminal {
            return Err(format!(
                "`{name}` needs a terminal (interactiveMode Always), and standard input is not one"
            ));
        }
        let interactive = terminal && self.interactive != Interactive::Never;
        let mut spec = json!({"interactive": interactive});
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let wish = json!({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec});
        let mut command = Command::new(sys::program(&self.command));
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", wish.to_string());
        let asked = sys::ask_for_credentials(&mut command, None, MAX_ANSWER_BYTES, interactive, limit);
        let (output, ended) = asked.map_err(|why| match why.kind() {
            ErrorKind::FileTooLarge => format!("`{name}` printed more than 1 MiB"),
            ErrorKind::TimedOut => {
                format!("`{name}` was ended: {why}; run it by hand to see what it waits for{}", self.hint())
            }
            _ => self.not_started(&why),
        })?;
        if !ended.success() {
            return Err(format!("`{name}` failed ({ended}){}", self.hint()));
        }
        self.read(&output, identity).map_err(|why| format!("invalid output of `{name}`: {why}"))
    }

    fn read(&self, output: &[u8], identity: &Identity) -> Result<Answer, String> {
        let answer: Value = serde_json::from_slice(output).map_err(|why| format!("not JSON: {why}"))?;
        if answer["kind"] != "ExecCredential" {
            return Err("kind is not `ExecCredential`".into());
        }
        if answer["apiVersion"] != self.api_version.as_str() {
            return Err(format!("apiVersion is {} instead of `{}`", answer["apiVersion"], self.api_version));
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
        let expires = match text("expirationTimestamp") {
            Some(time) => Some(
                clock::parse_rfc3339(time)
                    .ok_or_else(|| format!("expirationTimestamp `{time}` is not an RFC 3339 time"))?,
            ),
            None => None,
        };
        Ok(Answer { token, expires })
    }

    fn not_started(&self, why: &std::io::Error) -> String {
        let name = self.command.display();
        match why.kind() {
            ErrorKind::NotFound => format!("`{name}` is not installed{}", self.hint()),
            _ => format!("cannot start `{name}`: {why}{}", self.hint()),
        }
    }

    fn hint(&self) -> String {
        match self.install_hint.trim() {
            "" => String::new(),
            hint => format!("; {}", hint.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }
}

/// A command with a slash (or the system's separator) is relative to its kubeconfig; any other is looked up in PATH.
pub(super) fn command(text: &str, folder: &Path) -> PathBuf {
    if text.contains(std::path::is_separator) { folder.join(text) } else { PathBuf::from(text) }
}

// Their programs are shell scripts.
#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn program(script: &str) -> Program {
        Program {
            place: "kubeconfig `k`: users `u`: exec".into(),
            command: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("EXTRA".into(), "added".into())],
            api_version: "client.authentication.k8s.io/v1".into(),
            install_hint: "get it\n from the shop".into(),
            interactive: Interactive::Never,
            cluster: Some(json!({"server": "https://x"})),
            last: Mutex::new(None),
        }
    }

    fn says(status: &str) -> String {
        format!(
            r#"printf '%s' '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'"#
        )
    }

    #[test]
    fn a_program_is_asked_again_only_when_its_answer_expired_or_was_refused() {
        let folder = crate::temp::Folder::new().unwrap();
        for (expires, asked) in [("2999-01-01T00:00:00Z", 2), ("2001-01-01T00:00:00Z", 3)] {
            let log = folder.join(format!("asked-{asked}"));
            let script = format!(
                "echo $EXTRA >> {}; {}",
                log.display(),
                says(&format!(r#"{{"token":"t","expirationTimestamp":"{expires}"}}"#))
            );
            let credential = Credential::Program(Arc::new(program(&script)));
            let identity = Identity::default();
            for _ in 0..2 {
                assert_eq!(credential.authorization(&identity).unwrap().as_deref(), Some("Bearer t"));
            }
            assert!(credential.renew());
            credential.authorization(&identity).unwrap();
            assert_eq!(std::fs::read_to_string(&log).unwrap(), "added\n".repeat(asked), "{expires}");
        }
    }

    #[test]
    fn a_program_is_told_what_is_wanted() {
        let script = format!(
            r#"case $KUBERNETES_EXEC_INFO in *'"cluster":{{"server":"https://x"}},"interactive":false'*) {};; esac"#,
            says(r#"{"token":"t"}"#)
        );
        assert!(program(&script).token(&Identity::default()).is_ok());
    }

    #[test]
    fn what_goes_wrong_names_place_program_and_remedy() {
        let check = |program: Program, says: &str| {
            let error = program.token(&Identity::default()).unwrap_err();
            assert!(
                error.starts_with("kubeconfig `k`: users `u`: exec: ") && error.contains(says),
                "{error}"
            );
        };
        check(program("exit 3"), "`sh` failed (exit status: 3); get it from the shop");
        check(
            Program { command: "/nowhere/aws".into(), ..program("") },
            "is not installed; get it from the shop",
        );
        check(program("echo hello"), "not JSON");
        check(program(&says("{}")), "neither `token` nor");
        check(program(&says(r#"{"clientKeyData":"x"}"#)), "only one of");
        check(program(&says(r#"{"clientCertificateData":"x","clientKeyData":"x"}"#)), "client certificate");
        check(
            program(&says(r#"{"token":"t","expirationTimestamp":"soon"}"#)),
            "`soon` is not an RFC 3339 time",
        );
        check(
            program(r#"echo '{"kind":"ExecCredential","apiVersion":"v0"}'"#),
            r#"apiVersion is "v0" instead of"#,
        );
        check(program("yes"), "more than 1 MiB");
        if !std::io::stdin().is_terminal() {
            check(Program { interactive: Interactive::Always, ..program("") }, "needs a terminal");
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        let hangs = program("sleep 600 & sleep 600");
        let error = hangs.run(&Identity::default(), Duration::ZERO).err().unwrap();
        assert!(
            error.starts_with("`sh` was ended: it took more than 0 s; ")
                && error.ends_with("; get it from the shop")
        );
    }

    #[test]
    fn a_token_file_is_read_again() {
        let folder = crate::temp::Folder::new().unwrap();
        let path = folder.join("token");
        let credential = Credential::TokenFile(path.clone());
        let check = || credential.authorization(&Identity::default());
        for token in ["one", "two"] {
            std::fs::write(&path, format!("{token}\n")).unwrap();
            assert_eq!(check().unwrap(), Some(format!("Bearer {token}")));
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(check().unwrap_err().ends_with("is empty"));
        std::fs::remove_file(&path).unwrap();
        assert!(check().is_err());
    }
}
