//! Common causes of failures, and their remedies.

use super::{LOOKED_AT, head};

/// A known cause and its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The cause.
    pub title: &'static str,
    /// The remedy.
    pub remedy: &'static str,
    /// Lower-case texts that indicate it; `a&b` needs both.
    needles: &'static [&'static str],
}

/// The known causes; the first match counts, so specific ones precede general ones.
const KNOWN: &[Known] = &[
    Known {
        title: "a result cannot be read",
        remedy: "look at the file that the plugin wrote: it is truncated, or not in the format that `result-format` says",
        needles: &["xml syntax error", "scanner error", "eof while parsing", "unexpected end of json"],
    },
    Known {
        title: "large packets are lost",
        remedy: "the MTU of the pods' network seems to be larger than what the nodes' network lets through: lower it in the network plugin's settings (VXLAN takes 50 bytes, WireGuard 60 or more), and let ICMP `fragmentation needed` pass",
        needles: &["small packets arrive"],
    },
    Known {
        title: "workers cannot reach the aggregator",
        remedy: "a network policy or firewall seems to be in the way: allow TCP from the plugins' pods to the aggregator's, port 8080 unless `Server.bindport` says otherwise",
        needles: &[
            "cannot reach the aggregator&refused",
            "cannot reach the aggregator&timed out",
            "cannot reach the aggregator&timeout",
            "cannot reach the aggregator&unreachable",
            "cannot reach the aggregator&no route",
            "cannot reach the aggregator&reset",
        ],
    },
    Known {
        title: "an image cannot be pulled",
        remedy: "check the image's name and tag, the registry and the pull secret; `sonobuoy images` lists what a run needs",
        needles: &[
            "imagepullbackoff",
            "errimagepull",
            "errimageneverpull",
            "pull access denied",
            "manifest unknown",
            "toomanyrequests",
            "failed to pull image",
            "failed to pull and unpack",
        ],
    },
    Known {
        title: "the image is for another architecture",
        remedy: "use an image that is built for the architecture of every node",
        needles: &["exec format error", "no match for platform"],
    },
    Known {
        title: "a name cannot be resolved",
        remedy: "check that the cluster's DNS pods are running, that pods can reach them, and the name servers of the node",
        needles: &[
            "no such host",
            "server misbehaving",
            "name resolution",
            "nxdomain",
            "servfail",
            "lookup &i/o timeout",
            "name server&did not answer",
            "name server&does not know",
            "no way to name server",
        ],
    },
    Known {
        title: "the clock of a node is wrong",
        remedy: "let NTP or chrony keep the node's clock; `sonobuoy run -p network` measures it",
        needles: &["clock skew", "not yet valid", "not valid yet", "clock is", "clock offset"],
    },
    Known {
        title: "the credentials are rejected",
        remedy: "log in again, or use a kubeconfig whose token or certificate has not expired",
        needles: &["credentials were rejected"],
    },
    Known {
        title: "a certificate is not trusted",
        remedy: "check the certificate's names, its dates and the authorities that the client trusts",
        needles: &[
            "x509:",
            "invalid peer certificate",
            "certificate has expired",
            "certificate verify failed",
            "unknown authority",
        ],
    },
    Known {
        title: "nothing listens there",
        remedy: "check that the service has ready endpoints, and that the port is right",
        needles: &["connection refused"],
    },
    Known {
        title: "there is no route to it",
        remedy: "check routes, network policies and firewalls between the node and the address",
        needles: &["no route to host", "network is unreachable", "host is unreachable"],
    },
    Known {
        title: "a connection was cut",
        remedy: "look for a proxy, firewall or load balancer in between that closes connections",
        needles: &["connection reset", "broken pipe", "unexpected eof"],
    },
    Known {
        title: "no place for a pod",
        remedy: "check the nodes' free CPU and memory, their taints and the pod's node selector",
        needles: &[
            "unschedulable",
            "insufficient cpu",
            "insufficient memory",
            "untolerated taint",
            "nodes are available",
            "no pod was scheduled",
        ],
    },
    Known {
        title: "a quota is used up",
        remedy: "raise the namespace's ResourceQuota, or ask for less in the plugin's resources",
        needles: &["exceeded quota"],
    },
    Known {
        title: "Pod Security refused a pod",
        remedy: "give the namespace the Pod Security level that the plugin needs",
        needles: &["violates podsecurity", "podsecurity \""],
    },
    Known {
        title: "an admission webhook refused it",
        remedy: "read the webhook's message; change the object, or the policy behind the webhook",
        needles: &["admission webhook"],
    },
    Known {
        title: "memory ran out",
        remedy: "raise the container's memory limit, or find what uses the node's memory",
        needles: &["oomkilled", "out of memory", "exit code 137", "cannot allocate memory"],
    },
    Known {
        title: "the disk for results is full",
        remedy: "free space on it, or use a larger one: in a cluster with `--results-pvc`, with `--local` by TMPDIR; workers try again for an hour",
        needles: &["results disk is full"],
    },
    Known {
        title: "a disk is full",
        remedy: "free space on the node's disk, or move what fills it",
        needles: &["no space left", "disk pressure", "diskpressure", "quota exceeded"],
    },
    Known {
        title: "too many files are open",
        remedy: "raise the limit on open files or inotify watches on the node",
        needles: &["too many open files"],
    },
    Known {
        title: "a permission is missing",
        remedy: "give the service account the rights it lacks, or check the file's owner and the security context",
        needles: &[
            "is forbidden",
            "forbidden:",
            "permission denied",
            "unauthorized",
            "operation not permitted",
            "cannot list resource",
            "cannot get resource",
        ],
    },
    Known {
        title: "a program is missing",
        remedy: "check the command of the container and what the image contains",
        needles: &["executable file not found", "command not found", "exec: &no such file or directory"],
    },
    Known {
        title: "a file is missing",
        remedy: "check the path that the message names, and the volume or image that should contain it",
        needles: &["no such file or directory"],
    },
    Known {
        title: "the node went away",
        remedy: "look at the node's state and its kubelet; run the plugin again once it is ready",
        needles: &["node is not ready", "nodenotready", "node was deleted", "nodelost", "node deleted"],
    },
    Known {
        title: "a plugin took too long",
        remedy: "look at what it waited for: pods that do not become ready, a slow network or an overloaded node; `--timeout` gives more time",
        needles: &["no result within the time limit"],
    },
    Known {
        title: "something took too long",
        remedy: "look at what it waited for: pods that do not become ready, a slow network or an overloaded node",
        needles: &["i/o timeout", "deadline exceeded", "timed out", "timeout"],
    },
];

/// The known cause that a text indicates.
pub(super) fn find(text: &str) -> Option<&'static Known> {
    let text = head(text, LOOKED_AT).to_lowercase();
    let tells = |needle: &&str| needle.split('&').all(|part| text.contains(part));
    KNOWN.iter().find(|known| known.needles.iter().any(&tells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_causes_have_a_remedy() {
        for (text, title) in [
            (
                "cannot reach the aggregator: `https://a`: Connection refused",
                "workers cannot reach the aggregator",
            ),
            ("cannot reach the aggregator: no such host", "a name cannot be resolved"),
            ("Back-off: ImagePullBackOff", "an image cannot be pulled"),
            ("lookup x on 10.0.0.1:53: read udp: i/o timeout", "a name cannot be resolved"),
            ("dial tcp 1.2.3.4:1: connect: connection refused", "nothing listens there"),
            ("pods is forbidden: User cannot list resource", "a permission is missing"),
            ("context deadline exceeded", "something took too long"),
            ("XML syntax error on line 1: unexpected EOF", "a result cannot be read"),
            ("name server 10.0.0.1, asked for `x`: did not answer: timed out", "a name cannot be resolved"),
            (
                "cannot reach the aggregator: small packets arrive, but 64 KiB do not: timed out",
                "large packets are lost",
            ),
            (
                "Unauthorized: the credentials were rejected; they may have expired",
                "the credentials are rejected",
            ),
            ("TLS: invalid peer certificate: Expired", "a certificate is not trusted"),
            ("x509: certificate has expired or is not yet valid", "the clock of a node is wrong"),
            ("the clock is 340 s ahead", "the clock of a node is wrong"),
            (
                "invalid peer certificate: certificate not valid yet: verification time 1",
                "the clock of a node is wrong",
            ),
            ("0/3 nodes are available: 3 Insufficient cpu", "no place for a pod"),
            ("admission webhook \"w\" denied the request: no", "an admission webhook refused it"),
            (
                "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\"",
                "Pod Security refused a pod",
            ),
            ("stat /nope: no such file or directory", "a file is missing"),
            ("exec: \"/run.sh\": stat /run.sh: no such file or directory", "a program is missing"),
            ("timeout: no result within the time limit of 10s", "a plugin took too long"),
        ] {
            assert_eq!(find(text).map(|known| known.title), Some(title), "{text}");
        }
        assert_eq!(find("expected 5 to equal 7"), None);
        for known in KNOWN {
            let in_small_letters = |needle: &&str| **needle == needle.to_lowercase();
            assert!(known.needles.iter().all(in_small_letters), "{}", known.title);
        }
    }
}
