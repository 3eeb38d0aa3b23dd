//! Suggests remedies for objects that a cluster refuses, based on the server's message.

use base::kube::{Error, Obstacle, Resource};

/// Remedy for a refusal, if known.
pub(crate) fn remedy(error: &Error, resource: &Resource, namespace: &str) -> Option<String> {
    let Error::Api(refusal) = error else { return None };
    let plural = &resource.plural;
    let text = match (error.obstacle(), refusal.code) {
        (Some(Obstacle::PodSecurity), _) => format!(
            "the Pod Security level of namespace `{namespace}` forbids it: label the namespace \
             `pod-security.kubernetes.io/enforce=privileged` or use another with `-n`"
        ),
        (Some(Obstacle::Quota), _) => {
            format!("raise the quota of namespace `{namespace}`, or use another namespace with `-n`")
        }
        (Some(Obstacle::LimitRange), _) => format!(
            "the limit range of namespace `{namespace}` forbids it: change that, use another namespace with `-n`, or leave \
             requests and limits to it with `--harden off`"
        ),
        (Some(Obstacle::WebhookAway), _) => {
            "the webhook does not answer: repair it, or take this namespace out of its configuration".into()
        }
        (Some(Obstacle::Policy), _) => {
            "a policy of the cluster forbids it: ask its owners for an exception for this namespace".into()
        }
        (Some(Obstacle::NamespaceEnds), _) => {
            format!(
                "namespace `{namespace}` is being deleted: wait with `sonobuoy delete -n {namespace} --wait`, then try again"
            )
        }
        (Some(Obstacle::Escalation), _) => {
            "your account may only pass on rights that it has: choose fewer with `--aggregator-permissions`, or ask an administrator to create an account, and name it with `--rbac Disable --existing-service-account --service-account-name`"
                .into()
        }
        (None, 403) => format!(
            "your account may not create {plural}{}: ask for that right, or see `--aggregator-permissions`, \
             `--rbac Disable` and `--existing-service-account`",
            if resource.namespaced { format!(" in namespace `{namespace}`") } else { String::new() }
        ),
        (None, 409) if error.already_exists() => format!(
            "it exists already, from an earlier run or somebody else: remove it with `sonobuoy delete -n \
             {namespace} --wait`, or use another namespace with `-n`"
        ),
        (None, 404) if resource.namespaced => {
            format!(
                "namespace `{namespace}` may not exist: create it with `kubectl create namespace {namespace}`"
            )
        }
        (None, 400 | 422) => "the manifest is at fault: correct the field that the server names".into(),
        (None, 429) => "the server is overloaded: try again later".into(),
        _ => return None,
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obstacle_has_a_remedy() {
        let check = |code: u16, reason: &str, message: &str, part: &str| {
            let body = base::json::json!({"kind": "Status", "reason": reason, "message": message});
            let error = Error::from_answer(code, None, body.to_string().as_bytes(), "POST /x");
            let found = remedy(&error, &Resource::PODS, "ns").unwrap_or_default();
            assert!(found.contains(part), "{message}: {found}");
        };
        check(
            403,
            "Forbidden",
            r#"pods "sonobuoy" is forbidden: violates PodSecurity "restricted:latest": x"#,
            "enforce=privileged",
        );
        check(403, "Forbidden", "pods is forbidden: exceeded quota: q", "raise the quota");
        check(
            403,
            "Forbidden",
            "maximum memory usage per Container is 256Mi, but limit is 512Mi",
            "limit range",
        );
        check(500, "InternalError", "Internal error occurred: failed calling webhook \"w\"", "repair it");
        check(403, "Forbidden", "admission webhook \"w\" denied the request: no", "policy of the cluster");
        check(
            403,
            "Forbidden",
            "unable to create new content in namespace ns because it is being terminated",
            "wait",
        );
        check(
            403,
            "Forbidden",
            "user is attempting to grant RBAC permissions not currently held",
            "--existing-service-account",
        );
        check(
            403,
            "Forbidden",
            "User \"u\" cannot create resource \"pods\"",
            "may not create pods in namespace `ns`",
        );
        check(409, "AlreadyExists", "pods \"sonobuoy\" already exists", "sonobuoy delete -n ns");
        check(422, "Invalid", "spec.containers: required", "the field that the server names");
    }
}
