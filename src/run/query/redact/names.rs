//! Which names suggest a secret, and which values of such names are none.

use regex::Regex;

use super::HIDDEN;

/// Names of variables, fields, files and flags with secrets, unless the name only points to one,
/// such as `TOKEN_FILE` or `secretName`.
const SECRET_NAMES: &str = concat!(
    r"(?i)((^|[_./-])(pass|pwd|auth|creds?|(proxy[_-]?)?authorization|(set[_-]?)?cookie)",
    r"|(?-i:[a-z](Pass|Pwd))|passw(or)?d|pgpass|passphrase|passcode|secret|token|credential",
    r"|(api|access|private|client|signing|encryption|ssh|master|session|license|account|shared)",
    r"[_-]?key)s?([_-]?(value|data|string|b64|base64|key|id|\d+)s?)?$",
);
/// Occurs in each of these names: most texts of a cluster are searched for nothing else.
const SECRET_WORDS: &str = "(?i)pass|pwd|auth|cred|cookie|secret|token|key";
/// Names with such an ending that contain something else: a directory of the shell, or the name of
/// an object of the kind `Secret`.
const HARMLESS_NAMES: &str =
    r"(?i)^(old)?pwd$|(^|[a-z_./-])pull[_-]?secrets?$|(^|[./-])auth(-tls|-proxy)?-secret$";
/// Values that are switches and never secrets.
const SWITCHES: [&str; 11] = [
    "", "true", "false", "yes", "no", "on", "off", "none", "null", "enabled", "disabled",
];
/// Values that only refer to a secret: variables and templates that something expands later, and
/// files. A random text in base64 may begin with a slash, but contains no dot.
const REFERENCES: &str = concat!(
    r"(?s)^(\$\(.*\)|\$\{.*\}|\$\w+|\{\{.*\}\}",
    r"|/(etc|home|mnt|opt|root|run|srv|tmp|usr|var)(/[\w.+-]+)+|(/[\w.+-]+)+\.[a-z]\w{1,4})$",
);

/// The rules about names.
pub(super) struct Names {
    secret: Vec<Regex>,
    /// Without it no name is secret; none if there are other patterns than the built-in ones.
    words: Option<Regex>,
    harmless: Regex,
    references: Regex,
}

impl Names {
    /// The built-in rules, and patterns of other names.
    pub(super) fn new(more: Vec<Regex>) -> anyhow::Result<Self> {
        let words = more
            .is_empty()
            .then(|| Regex::new(SECRET_WORDS))
            .transpose()?;
        let mut secret = vec![Regex::new(SECRET_NAMES)?];
        secret.extend(more);
        Ok(Self {
            secret,
            words,
            harmless: Regex::new(HARMLESS_NAMES)?,
            references: Regex::new(REFERENCES)?,
        })
    }

    /// Whether a name suggests that its value is secret.
    pub(super) fn is_secret(&self, name: &str) -> bool {
        self.secret.iter().any(|pattern| pattern.is_match(name)) && !self.harmless.is_match(name)
    }

    /// Whether a text may contain such a name; without one, no rule about names applies to it.
    pub(super) fn may_occur_in(&self, text: &str) -> bool {
        self.words.as_ref().is_none_or(|words| words.is_match(text))
    }

    /// Whether a word of a text is such a name.
    pub(super) fn occur_in(&self, text: &str) -> bool {
        let is_border = |c: char| !(c.is_alphanumeric() || "_.-/".contains(c));
        text.split(is_border).any(|word| self.is_secret(word))
    }

    /// Whether the value of a secret name may be a secret itself.
    pub(super) fn may_hide(&self, name: &str, value: &str) -> bool {
        // The plural with a number counts something: tokens of a model, Secrets of a quota.
        let is_count =
            name.ends_with(['s', 'S']) && value.bytes().all(|byte| byte.is_ascii_digit());
        let is_switch = SWITCHES.contains(&value.to_lowercase().as_str());
        value != HIDDEN && !is_switch && !is_count && !self.references.is_match(value)
    }

    /// Whether a list of texts with this name may contain secrets; `secrets` lists names of
    /// objects.
    pub(super) fn may_list_secrets(&self, name: &str) -> bool {
        self.is_secret(name) && !name.to_lowercase().ends_with("secrets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_told_from_names_that_only_mention_one() {
        let names = Names::new(Vec::new()).unwrap();
        for name in [
            "password",
            "adminPassword",
            "spec.adminToken",
            "DB_PASSWORDS",
            "API_TOKENS",
            "apiKeys",
            "vault.io/token",
            "Authorization",
            "Proxy-Authorization",
            "X-API-Key",
            "X-Auth-Token",
            "Cookie",
            "secretKey",
            "clientSecret",
            "dbPass",
            "example.com/auth",
            "_authToken",
            ".pgpass",
            "htpasswd",
            "passphrase",
            "tokens",
        ] {
            assert!(names.is_secret(name) && names.may_occur_in(name), "{name}");
        }
        for name in [
            "secretName",
            "secretKeyRef",
            "secretRef",
            "nodePublishSecretRef",
            "TOKEN_FILE",
            "passwordFile",
            "tokenReview",
            "publicKey",
            "imagePullSecrets",
            "ImagePullSecrets",
            "imagePullSecret",
            "nginx.ingress.kubernetes.io/auth-secret",
            "nginx.ingress.kubernetes.io/auth-tls-secret",
            "nginx.ingress.kubernetes.io/auth-type",
            "authorization-mode",
            "credentialBundlePath",
            "tokenExpirationSeconds",
            "compass",
            "bypass",
            "author",
            "key",
            "tokenizer",
            "passthrough",
            "PWD",
            "OLDPWD",
        ] {
            assert!(!names.is_secret(name), "{name}");
        }
    }

    #[test]
    fn references_counts_and_switches_are_no_secrets() {
        let names = Names::new(Vec::new()).unwrap();
        for (name, value, secret) in [
            ("token", "x", true),
            ("password", "1234", true),
            ("secrets", "10", false),
            ("MAX_TOKENS", "4096", false),
            ("API_TOKENS", "a1,b2", true),
            ("token", "True", false),
            ("auth", "disabled", false),
            ("password", "$(DB_PASSWORD)", false),
            ("password", "${DB_PASSWORD}", false),
            ("password", "{{ .Values.password }}", false),
            ("client-key", "/etc/kubernetes/pki/client.key", false),
            ("token", "/var/run/secrets/token", false),
            ("token", "/x/y.pem", false),
            ("token", "/Ab3x/zQ9+kk0dPq", true),
            ("password", "$ecret!", true),
        ] {
            assert_eq!(names.may_hide(name, value), secret, "{name}: {value}");
        }
    }
}
