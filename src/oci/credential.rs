//! Credentials for a registry: docker's config.json and the credential helpers that it names.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use base::at::At as _;
use base::{small, sys};

/// Maximum bytes of docker's config.json: hundreds of registries.
const MAX_CONFIG_BYTES: u64 = 4 << 20;
/// Maximum bytes of a helper's response, a name and a secret.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// A user and password, or a token that is exchanged for others.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Credential {
    /// For basic authentication and for fetching tokens.
    Password(String, String),
    /// An OAuth identity token.
    Token(String),
}

/// The credential that docker would send to `registry`, if any.
pub(super) fn find(registry: &str) -> Result<Option<Credential>> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let homes = sys::homes(&sys::variable);
    let Some(path) = folder
        .or_else(|| homes.first().map(|home| home.join(".docker")))
        .map(|folder| folder.join("config.json"))
    else {
        return Ok(None);
    };
    if !path.exists() {
        return Ok(None);
    }
    let file = path.display();
    let text = small::read(&path, MAX_CONFIG_BYTES).at("cannot read", &path)?;
    let config: Value =
        serde_json::from_slice(&text).with_context(|| format!("`{file}` is not JSON"))?;
    in_config(&config, registry)
        .with_context(|| format!("credentials for `{registry}` in `{file}`"))
}

pub(super) fn in_config(config: &Value, registry: &str) -> Result<Option<Credential>> {
    let names = names(registry);
    let helper = names
        .iter()
        .find_map(|name| config["credHelpers"][name].as_str());
    let helper = helper.or_else(|| config["credsStore"].as_str());
    let answer =
        helper.and_then(|helper| names.iter().find_map(|name| ask(helper, name).transpose()));
    if let Some(found) = answer {
        return found.map(Some);
    }
    for name in &names {
        let entry = &config["auths"][name];
        if let Some(token) = entry["identitytoken"]
            .as_str()
            .filter(|token| !token.is_empty())
        {
            return Ok(Some(Credential::Token(token.into())));
        }
        if let (Some(user), Some(password)) =
            (entry["username"].as_str(), entry["password"].as_str())
        {
            return Ok(Some(Credential::Password(user.into(), password.into())));
        }
        if let Some(auth) = entry["auth"].as_str().filter(|auth| !auth.is_empty()) {
            let bytes = STANDARD.decode(auth).context("`auth` is not base64")?;
            let text = String::from_utf8(bytes).context("`auth` is not text")?;
            let (user, password) = text.split_once(':').context("`auth` has no colon")?;
            return Ok(Some(Credential::Password(
                user.into(),
                password.trim_end_matches('\0').into(),
            )));
        }
    }
    Ok(None)
}

/// The keys that versions of docker have used for a registry.
fn names(registry: &str) -> Vec<String> {
    let mut names = vec![
        registry.to_owned(),
        format!("https://{registry}"),
        format!("https://{registry}/v1/"),
        format!("https://{registry}/v2/"),
    ];
    if registry == "docker.io" {
        names.push("https://index.docker.io/v1/".into());
        names.push("index.docker.io".into());
    }
    names
}

fn ask(helper: &str, server: &str) -> Result<Option<Credential>> {
    let program = format!("docker-credential-{helper}");
    let mut command = Command::new(sys::program(program.as_ref()));
    command.arg("get").stderr(Stdio::null());
    let (input, interactive) = (Some(server.as_bytes()), std::io::stdin().is_terminal());
    let limit = sys::CREDENTIALS_TIMEOUT;
    let answer =
        sys::ask_for_credentials(&mut command, input, MAX_ANSWER_BYTES, interactive, limit);
    let (output, status) = answer.with_context(|| format!("`{program}` failed"))?;
    if !status.success() {
        // The response of a helper to an unknown server.
        return Ok(None);
    }
    let answer: Value = base::json::from_slice(&output)
        .with_context(|| format!("the output of `{program}` is not JSON"))?;
    let field = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let (user, secret) = (field("Username"), field("Secret"));
    ensure!(!secret.is_empty(), "`{program}` returned no secret");
    Ok(Some(if user == "<token>" {
        Credential::Token(secret)
    } else {
        Credential::Password(user, secret)
    }))
}

#[cfg(test)]
mod tests {
    use base::json::json;

    use super::*;

    #[test]
    fn every_form_of_a_credential_is_parsed() {
        let config = json!({"auths": {
            "a.example": {"auth": STANDARD.encode("me:se:cret")},
            "https://b.example/v1/": {"username": "you", "password": "pass"},
            "c.example": {"identitytoken": "tok"},
            "https://index.docker.io/v1/": {"auth": STANDARD.encode("hub:pw")},
            "d.example": {},
            "e.example": {"auth": "%%%"},
        }});
        let password =
            |user: &str, password: &str| Some(Credential::Password(user.into(), password.into()));
        for (registry, expected) in [
            ("a.example", password("me", "se:cret")),
            ("b.example", password("you", "pass")),
            ("c.example", Some(Credential::Token("tok".into()))),
            ("docker.io", password("hub", "pw")),
            ("d.example", None),
            ("f.example", None),
        ] {
            assert_eq!(
                in_config(&config, registry).unwrap(),
                expected,
                "{registry}"
            );
        }
        assert!(in_config(&config, "e.example").is_err());
    }
}
