//! Tokens of service accounts, bound to pods, and their review.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{ApiServer, parse};

/// An issued token.
#[derive(Clone)]
pub(super) struct Token {
    text: String,
    audience: String,
    /// The path of its pod, and the pod's uid at that time.
    pod: (String, Value),
    /// Claims that differ from what is true of its pod.
    claims: Vec<(String, String)>,
    ended: bool,
}

impl ApiServer {
    /// Issues a token of a pod's account for this audience, as requested by the kubelet.
    pub fn issue_token(&self, pod: &str, audience: &str) -> String {
        let found = self.get(pod).unwrap_or_else(|| panic!("no pod at {pod}"));
        let mut state = self.lock();
        let claims = URL_SAFE_NO_PAD.encode(json!({"aud": [audience]}).to_string());
        let text = format!("e30.{claims}.token-{}", state.tokens.len());
        let pod = (pod.to_owned(), found["metadata"]["uid"].clone());
        state.tokens.push(Token {
            text: text.clone(),
            audience: audience.into(),
            pod,
            claims: Vec::new(),
            ended: false,
        });
        text
    }

    /// Issues a token of a pod with a claim that is untrue, such as `node-name`.
    pub fn issue_untrue_token(
        &self,
        pod: &str,
        audience: &str,
        claim: &str,
        value: &str,
    ) -> String {
        let text = self.issue_token(pod, audience);
        let mut state = self.lock();
        let token = state.tokens.last_mut().expect("it was just issued");
        token.claims.push((claim.into(), value.into()));
        text
    }

    /// Makes a token expire.
    pub fn end_token(&self, text: &str) {
        let mut state = self.lock();
        state
            .tokens
            .iter_mut()
            .filter(|token| token.text == text)
            .for_each(|token| token.ended = true);
    }

    /// The status of a review.
    pub(super) fn review_token(&self, spec: &Value) -> Value {
        let refused = |why: &str| json!({"authenticated": false, "user": {}, "error": why});
        let found = self
            .lock()
            .tokens
            .iter()
            .find(|token| spec["token"] == *token.text)
            .cloned();
        let Some(token) = found else {
            return refused("invalid bearer token");
        };
        if token.ended {
            return refused("token has expired");
        }
        if !spec["audiences"]
            .as_array()
            .unwrap()
            .contains(&json!(token.audience))
        {
            return refused("token audiences are invalid for the target audiences");
        }
        let Some(pod) = self
            .get(&token.pod.0)
            .filter(|pod| pod["metadata"]["uid"] == token.pod.1)
        else {
            return refused("pod has been deleted");
        };
        let place = parse(&token.pod.0).unwrap();
        let account = pod["spec"]["serviceAccountName"]
            .as_str()
            .unwrap_or("default");
        let extra = |name: &str, value: &Value| {
            (
                format!("authentication.kubernetes.io/{name}"),
                json!([value]),
            )
        };
        let mut known = vec![
            extra("pod-name", &json!(place.name)),
            extra("pod-uid", &token.pod.1),
        ];
        if pod["spec"]["nodeName"].is_string() {
            known.push(extra("node-name", &pod["spec"]["nodeName"]));
        }
        // Later entries replace earlier ones.
        known.extend(
            token
                .claims
                .iter()
                .map(|(name, value)| extra(name, &json!(value))),
        );
        json!({
            "authenticated": true,
            "audiences": [token.audience],
            "user": {
                "username": format!("system:serviceaccount:{}:{account}", place.namespace),
                "extra": known.into_iter().collect::<serde_json::Map<_, _>>(),
            },
        })
    }
}
