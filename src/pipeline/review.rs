//! Identifies the holder of a token: by the API server in a cluster; by a table on one machine.
//!
//! Owns the requirements for a token: issued only for this run, to a pod that this run created for
//! one of its plugins and
//! that runs on the node of the result. Knows nothing about certificates.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use base::hex;
use base::json::json;
use client::protocol::ResultId;
use kube::{self, Resource};
use model::config;
use model::plugin::Definition;
use run::aggregator::{Holder, ReviewError, Reviewer};
use run::backplane::random;
use run::driver::cluster::object_name;
use run::driver::roster::{Roster, Seat, is_own};
use run::driver::session;

/// Short, since the worker waits and retries.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The prefix of accounts in user names.
const ACCOUNT: &str = "system:serviceaccount:";
const EXTRA: &str = "authentication.kubernetes.io/";

/// Has tokens reviewed by the API server.
pub(super) struct ClusterReviewer {
    /// Waits and retries little, since the worker does.
    pub client: kube::Client,
    /// Settings of the run.
    pub config: config::Run,
    /// All plugins, with their attempts.
    pub definitions: Vec<Definition>,
    /// UID of the aggregator's pod.
    pub owner: String,
    pub roster: Roster,
}

/// The audience of the tokens of a run's pods.
pub(super) fn audience(config: &config::Run) -> String {
    format!("sonobuoy-{}", config.uuid)
}

impl ClusterReviewer {
    /// Pod that holds a token, from the watches, else from the server.
    fn seat(&self, claims: &Claims) -> Result<Seat, ReviewError> {
        if let Some(seat) = self
            .roster
            .seat(&claims.uid)
            .filter(|seat| !seat.node.is_empty())
        {
            return Ok(seat);
        }
        let gone = || ReviewError::Stranger(format!("the pod `{}` is gone", claims.pod));
        let pod = match self
            .client
            .get(&Resource::PODS, &self.config.namespace, &claims.pod)
        {
            Ok(pod) => pod,
            Err(error) if error.is_not_found() => return Err(gone()),
            Err(error) => {
                return Err(ReviewError::Unavailable(format!(
                    "cannot look up a pod: {error}"
                )));
            }
        };
        let (uid, seat) = Seat::of(&pod).ok_or_else(|| self.stranger(claims))?;
        if uid != claims.uid {
            return Err(gone());
        }
        let object = object_name(self.plugin(&seat, claims)?, &seat.session);
        let is_own = is_own(&pod["metadata"]["ownerReferences"], &object, &self.owner);
        if is_own {
            Ok(seat)
        } else {
            Err(self.stranger(claims))
        }
    }

    fn plugin(&self, seat: &Seat, claims: &Claims) -> Result<&Definition, ReviewError> {
        let mut all = self.definitions.iter();
        let definition =
            all.find(|definition| session(&self.config, definition.name()) == seat.session);
        definition.ok_or_else(|| self.stranger(claims))
    }

    fn stranger(&self, claims: &Claims) -> ReviewError {
        ReviewError::Stranger(format!(
            "the pod `{}` in `{}` does not belong to this run",
            claims.pod, self.config.namespace
        ))
    }
}

impl Reviewer for ClusterReviewer {
    fn may_know(&self, token: &str) -> bool {
        is_for(token, &audience(&self.config))
    }

    fn review(&self, token: &str, address: IpAddr) -> Result<Holder, ReviewError> {
        let audience = audience(&self.config);
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        });
        let answer = self
            .client
            .create(&Resource::TOKEN_REVIEWS, "", &review)
            .map_err(|error| {
                ReviewError::Unavailable(format!("the API server does not review tokens: {error}"))
            })?;
        let claims = Claims::read(&answer["status"], &audience, &self.config.namespace)?;
        let seat = self.seat(&claims)?;
        let plugin = self.plugin(&seat, &claims)?;
        if claims.node.as_ref().is_some_and(|node| *node != seat.node) {
            let why = format!(
                "the token of the pod `{}` is for another node than `{}`",
                claims.pod, seat.node
            );
            return Err(ReviewError::Stranger(why));
        }
        // An unknown address may be that of a tunnel; an address of another pod cannot be this
        // pod's.
        let address = address.to_canonical().to_string();
        if self.roster.is_elsewhere(&claims.uid, &seat, &address) {
            let why = format!(
                "the token of the pod `{}` came from {address}, which is another pod's",
                claims.pod
            );
            return Err(ReviewError::Stranger(why));
        }
        let id = match plugin.config.driver.is_per_node() {
            true => ResultId::on_node(plugin.name(), &seat.node),
            false => ResultId::global(plugin.name()),
        };
        Ok(Holder {
            id,
            pod: claims.uid,
        })
    }
}

/// Whether a token claims `audience`. Only its issuer can confirm that.
fn is_for(token: &str, audience: &str) -> bool {
    let claims = token
        .split('.')
        .nth(1)
        .and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let claims = claims
        .and_then(|claims| serde_json::from_slice::<Value>(&claims).ok())
        .unwrap_or_default();
    match &claims["aud"] {
        Value::Array(list) => list.iter().any(|known| known == audience),
        one => one == audience,
    }
}

/// Claims that the API server confirms.
#[derive(Debug, PartialEq)]
struct Claims {
    pod: String,
    uid: String,
    /// Absent in servers before v1.30.
    node: Option<String>,
}

impl Claims {
    fn read(status: &Value, audience: &str, namespace: &str) -> Result<Self, ReviewError> {
        if status["authenticated"] != true {
            let why = status["error"]
                .as_str()
                .unwrap_or("it has ended, or its pod is gone");
            return Err(ReviewError::Unknown(format!(
                "the token was rejected: {why}"
            )));
        }
        // A server without support for audiences would accept a token issued for any.
        if !status["audiences"]
            .as_array()
            .is_some_and(|list| list.iter().any(|known| known == audience))
        {
            return Err(ReviewError::Unknown(format!(
                "the token is not for `{audience}`"
            )));
        }
        let user = &status["user"];
        let name = user["username"].as_str().unwrap_or_default();
        let account = name
            .strip_prefix(ACCOUNT)
            .and_then(|account| account.split_once(':'));
        if account.is_none_or(|(of, _)| of != namespace) {
            return Err(ReviewError::Stranger(format!(
                "`{name}` is not an account of namespace `{namespace}`"
            )));
        }
        let extra = |key: &str| match user["extra"][format!("{EXTRA}{key}")]
            .as_array()
            .map(Vec::as_slice)
        {
            Some([only]) => only
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
            _ => None,
        };
        match (extra("pod-name"), extra("pod-uid")) {
            (Some(pod), Some(uid)) => Ok(Self {
                pod,
                uid,
                node: extra("node-name"),
            }),
            _ => Err(ReviewError::Stranger(
                "the token is not one of a pod".into(),
            )),
        }
    }
}

/// A new token for each result, for the pods of one machine.
pub(super) fn tokens(
    ids: impl Iterator<Item = ResultId>,
) -> anyhow::Result<BTreeMap<ResultId, String>> {
    ids.map(|id| Ok((id, hex(random::<[u8; 32]>()?)))).collect()
}

/// The tokens that were created here.
pub(super) struct KnownTokens(pub BTreeMap<ResultId, String>);

impl Reviewer for KnownTokens {
    fn may_know(&self, token: &str) -> bool {
        self.0.values().any(|known| known == token)
    }

    fn review(&self, token: &str, _: IpAddr) -> Result<Holder, ReviewError> {
        let entry = self.0.iter().find(|(_, known_token)| *known_token == token);
        let (id, _) = entry
            .ok_or_else(|| ReviewError::Unknown("the token does not belong to this run".into()))?;
        Ok(Holder {
            id: id.clone(),
            pod: id.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(change: impl Fn(&mut Value)) -> Value {
        let mut status = json!({
            "authenticated": true,
            "audiences": ["sonobuoy-1"],
            "user": {
                "username": "system:serviceaccount:ns:plugins",
                "extra": {
                    "authentication.kubernetes.io/pod-name": ["pod"],
                    "authentication.kubernetes.io/pod-uid": ["uid"],
                    "authentication.kubernetes.io/node-name": ["n1"],
                },
            },
        });
        change(&mut status);
        status
    }

    #[test]
    fn token_is_checked_before_its_review() {
        for (claims, expected) in [
            (r#"{"aud":["a","sonobuoy-1"]}"#, true),
            (r#"{"aud":"sonobuoy-1"}"#, true),
            (r#"{"aud":["sonobuoy-2"]}"#, false),
            (r#"{"aud":"sonobuoy-12"}"#, false),
            (r#"{"sub":"sonobuoy-1"}"#, false),
            (r#"["sonobuoy-1"]"#, false),
            ("", false),
            ("{", false),
        ] {
            let token = format!("e30.{}.signature", URL_SAFE_NO_PAD.encode(claims));
            assert_eq!(is_for(&token, "sonobuoy-1"), expected, "{claims}");
        }
        for token in ["", ".", "..", "sonobuoy-1", "a.&.b", "a.b"] {
            assert!(!is_for(token, "sonobuoy-1"), "{token}");
        }
    }

    #[test]
    fn token_is_valid_for_a_pod_of_this_run_alone() {
        let read = |change: &dyn Fn(&mut Value)| Claims::read(&status(change), "sonobuoy-1", "ns");
        let claims = |node: Option<&str>| Claims {
            pod: "pod".into(),
            uid: "uid".into(),
            node: node.map(str::to_owned),
        };
        let key = |name: &str| format!("authentication.kubernetes.io/{name}");
        assert_eq!(read(&|_| {}), Ok(claims(Some("n1"))));
        assert_eq!(
            read(&|status| status["user"]["extra"][key("node-name")] = json!(null)),
            Ok(claims(None))
        );
        for (words, change) in [
            (
                "rejected: expired",
                &(|status: &mut Value| {
                    *status = json!({"authenticated": false, "error": "expired"});
                }) as &dyn Fn(&mut Value),
            ),
            ("rejected", &|status| *status = json!({})),
            ("not for `sonobuoy-1`", &|status| {
                status["audiences"] = json!(["https://kubernetes.default.svc"]);
            }),
            ("not for `sonobuoy-1`", &|status| {
                status["audiences"] = json!(null);
            }),
            ("namespace `ns`", &|status| {
                status["user"]["username"] = json!("system:serviceaccount:other:plugins");
            }),
            ("namespace `ns`", &|status| {
                status["user"]["username"] = json!("system:node:n1");
            }),
            ("namespace `ns`", &|status| {
                status["user"]["username"] = json!("admin");
            }),
            ("not one of a pod", &|status| {
                status["user"]["extra"] = json!(null);
            }),
            ("not one of a pod", &|status| {
                status["user"]["extra"][key("pod-uid")] = json!(["a", "b"]);
            }),
            ("not one of a pod", &|status| {
                status["user"]["extra"][key("pod-name")] = json!([""]);
            }),
        ] {
            let doubt = read(change).unwrap_err();
            let (ReviewError::Unknown(why)
            | ReviewError::Stranger(why)
            | ReviewError::Unavailable(why)) = &doubt;
            assert!(why.contains(words), "{words}: {doubt:?}");
        }
    }

    #[test]
    fn local_tokens_are_valid_for_one_result() {
        let ids = [
            ResultId::global("a"),
            ResultId::on_node("b", "n1"),
            ResultId::on_node("b", "n2"),
        ];
        let tokens = tokens(ids.iter().cloned()).unwrap();
        let known = KnownTokens(tokens.clone());
        let here = IpAddr::from([127, 0, 0, 1]);
        for id in &ids {
            assert_eq!(known.review(&tokens[id], here).unwrap().id, *id);
        }
        assert!(matches!(
            known.review("", here),
            Err(ReviewError::Unknown(_))
        ));
    }
}
