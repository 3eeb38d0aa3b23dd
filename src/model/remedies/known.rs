//! Common causes of failures, and their remedies; among them images that nodes cannot pull: the
//! conformance image without internet access, and images in no registry, such as this program's own
//! before it is pushed.

use super::{MAX_TEXT_BYTES, without_source};
use base::Joined as _;
use base::visible::head;

/// Remedies of known causes, and lower-case texts that indicate the cause; `a&b` needs both. The
/// first match counts, so specific causes precede general ones.
const REMEDIES: &[(&str, &[&str])] = &[
    // A result cannot be read.
    (
        "look at the file that the plugin wrote: it is truncated, or not in the format that \
         `result-format` says",
        &[
            "xml syntax error",
            "scanner error",
            "eof while parsing",
            "unexpected end of json",
        ],
    ),
    (
        "a file in gzip that `done` names has to be a gzipped tar; put any other compressed file \
         into a folder, and name the folder",
        &["the gzip tar is damaged"],
    ),
    // Large packets are lost.
    (
        "the MTU of the pods' network seems to be larger than what the nodes' network lets \
         through: lower it in the network plugin's settings (VXLAN takes 50 bytes, WireGuard 60 \
         or more), and let ICMP `fragmentation needed` pass",
        &["small packets arrive"],
    ),
    // A node cannot reach the kubelets of others.
    (
        "look at firewalls, security groups and routes between these nodes: each node needs port \
         10250 of the others",
        &["peers cannot be reached", "peer cannot be reached"],
    ),
    // Workers cannot reach the aggregator.
    (
        "a network policy or firewall seems to be in the way: allow TCP from the plugins' pods to \
         the aggregator's, port 8080 unless `Server.bindport` says otherwise",
        &[
            "cannot reach the aggregator&refused",
            "cannot reach the aggregator&timed out",
            "cannot reach the aggregator&timeout",
            "cannot reach the aggregator&unreachable",
            "cannot reach the aggregator&no route",
            "cannot reach the aggregator&reset",
        ],
    ),
    // A pod needs an object that the namespace lacks.
    (
        "create it in the run's namespace before the run, or correct its name in the definition; \
         `sonobuoy doctor -p` lists what is missing",
        &[
            "secret \"&not found",
            "configmap \"&not found",
            "persistentvolumeclaim \"&not found",
            "serviceaccount \"&not found",
        ],
    ),
    (
        "name a runtime class that the cluster and this node have in `runtimeClassName`; \
         `kubectl get runtimeclasses` lists them",
        &["runtimeclass \"&not found", "no runtime for "],
    ),
    // A volume cannot be mounted.
    (
        "correct `path` and `type` of the `hostPath` volume: this node has nothing of that type \
         there",
        &["hostpath type check failed"],
    ),
    (
        "look at the volume in the definition, and at the storage behind it",
        &["failedmount", "failedattachvolume"],
    ),
    // A node cannot create a pod.
    (
        "look at the network plugin (CNI) and the container runtime of the node",
        &["failedcreatepodsandbox", "network plugin is not ready"],
    ),
    // An image cannot be pulled.
    (
        "check the image's name and tag, the registry and the pull secret; `sonobuoy images` \
         lists what a run needs",
        &[
            "imagepullbackoff",
            "errimagepull",
            "errimageneverpull",
            "pull access denied",
            "manifest unknown",
            "toomanyrequests",
            "failed to pull image",
            "failed to pull and unpack",
        ],
    ),
    // The image is for another architecture.
    (
        "use an image that is built for the architecture of every node",
        &["exec format error", "no match for platform"],
    ),
    // A name cannot be resolved.
    (
        "check that the cluster's DNS pods are running, that pods can reach them, and the name \
         servers of the node",
        &[
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
    ),
    // The clock of a node is wrong.
    (
        "let NTP or chrony keep the node's clock; `sonobuoy run -p network` measures it",
        &[
            "clock skew",
            "not yet valid",
            "not valid yet",
            "clock is",
            "clock offset",
        ],
    ),
    // The credentials are rejected.
    (
        "log in again, or use a kubeconfig whose token or certificate has not expired",
        &["credentials were rejected"],
    ),
    // A certificate is not trusted.
    (
        "check the certificate's names, its dates and the authorities that the client trusts",
        &[
            "x509:",
            "invalid peer certificate",
            "certificate has expired",
            "certificate verify failed",
            "unknown authority",
        ],
    ),
    // Nothing listens there.
    (
        "check that the service has ready endpoints, and that the port is right",
        &["connection refused"],
    ),
    // The address is unreachable.
    (
        "check routes, network policies and firewalls between the node and the address",
        &[
            "no route to host",
            "network is unreachable",
            "host is unreachable",
        ],
    ),
    // A connection was cut.
    (
        "look for a proxy, firewall or load balancer in between that closes connections",
        &["connection reset", "broken pipe", "unexpected eof"],
    ),
    // No place for a pod.
    (
        "check the nodes' free CPU and memory, their taints and the pod's node selector",
        &[
            "unschedulable",
            "insufficient cpu",
            "insufficient memory",
            "untolerated taint",
            "nodes are available",
            "no pod was scheduled",
        ],
    ),
    // A quota counts what a container does not state.
    (
        "give each container of the definition `resources` with the requests and limits that the \
         quota counts, or the namespace a LimitRange with defaults",
        &["failed quota"],
    ),
    // A quota is used up.
    (
        "raise the namespace's ResourceQuota, or ask for less in the plugin's `resources` and in \
         `WorkerResources` of the configuration",
        &["exceeded quota"],
    ),
    // Pod Security refused a pod.
    (
        "give the namespace the Pod Security level that the plugin needs",
        &["violates podsecurity", "podsecurity \""],
    ),
    // An admission webhook refused it.
    (
        "read the webhook's message; change the object, or the policy behind the webhook",
        &["admission webhook"],
    ),
    // Memory ran out.
    (
        "raise the container's memory limit, or find what uses the node's memory",
        &[
            "oomkilled",
            "out of memory",
            "exit code 137",
            "cannot allocate memory",
        ],
    ),
    // The disk for results is full.
    (
        "free space on it, or use a larger one: in a cluster with `--results-pvc`, with `--local` \
         by TMPDIR; workers try again for an hour",
        &["results disk is full"],
    ),
    // A disk is full.
    (
        "free space on the node's disk, or move what fills it",
        &[
            "no space left",
            "disk pressure",
            "diskpressure",
            "quota exceeded",
        ],
    ),
    // Too many files are open.
    (
        "raise the limit on open files or inotify watches on the node",
        &["too many open files"],
    ),
    // A permission is missing.
    (
        "give the service account the rights it lacks, or check the file's owner and the security \
         context",
        &[
            "is forbidden",
            "forbidden:",
            "permission denied",
            "unauthorized",
            "operation not permitted",
            "cannot list resource",
            "cannot get resource",
        ],
    ),
    // A program is missing.
    (
        "check the command of the container and what the image contains",
        &[
            "executable file not found",
            "command not found",
            "exec: &no such file or directory",
        ],
    ),
    // A file is missing.
    (
        "check the path that the message names, and the volume or image that should contain it",
        &["no such file or directory"],
    ),
    // The node went away.
    (
        "look at the node's state and its kubelet; run the plugin again once it is ready",
        &[
            "node is not ready",
            "nodenotready",
            "` was lost at ",
            "nodelost",
            "node deleted",
        ],
    ),
    // A plugin took too long.
    (
        "look at what it waited for: pods that do not become ready, a slow network or an \
         overloaded node; `--timeout` gives more time",
        &["no result within the time limit"],
    ),
    // Something took too long.
    (
        "look at what it waited for: pods that do not become ready, a slow network or an \
         overloaded node",
        &["i/o timeout", "deadline exceeded", "timed out", "timeout"],
    ),
];

/// The remedy for the cause that a text indicates, if known.
pub fn remedy(text: &str) -> Option<&'static str> {
    let text = without_source(head(text, MAX_TEXT_BYTES)).to_lowercase();
    let tells = |needle: &&str| needle.split('&').all(|part| text.contains(part));
    REMEDIES
        .iter()
        .find(|(_, needles)| needles.iter().any(&tells))
        .map(|(remedy, _)| *remedy)
}

/// Texts that indicate an unreachable registry, which is not temporary.
const UNREACHABLE: &[&str] = &[
    "no such host",
    "server misbehaving",
    "name resolution",
    "connection refused",
    "no route to host",
    "network is unreachable",
    "i/o timeout",
    "deadline exceeded",
    "timed out",
];
/// Texts that indicate a reachable registry without the image.
const UNKNOWN: &[&str] = &["not found", "manifest unknown"];

/// Prefix of images that are loaded into nodes and never pulled.
const LOCAL: &str = "localhost/";

/// Whether an image is in no registry.
pub fn is_local_image(image: &str) -> bool {
    image.starts_with(LOCAL)
}

/// Who uses an image, and so by which flag another one is named.
#[derive(Clone, Copy)]
pub enum ImageUser<'a> {
    /// The aggregator and the workers.
    Run,
    /// The plugin of this name.
    Plugin(&'a str),
}

/// The commands that load an image of the run without a registry into nodes, one per line.
pub fn load_commands(image: &str) -> String {
    ways_to_load(image, ImageUser::Run, "\n  ", "\n  ")
}

/// An introduction and the commands: the first after `before`, the others after `between`.
fn ways_to_load(image: &str, user: ImageUser<'_>, before: &str, between: &str) -> String {
    let name = image.strip_prefix(LOCAL).unwrap_or(image);
    let (own, flag) = match user {
        ImageUser::Run => (
            Some("sonobuoy run --load".to_owned()),
            "--sonobuoy-image ".to_owned(),
        ),
        ImageUser::Plugin(plugin) => (None, format!("--plugin-image {plugin}:")),
    };
    let commands = [
        format!("kind load docker-image {image}"),
        format!("docker save {image} | sudo k3s ctr images import -"),
        format!("docker save {image} | sudo ctr -n k8s.io images import -"),
        format!(
            "docker tag {image} REGISTRY/{name} && docker push REGISTRY/{name}, then run with \
             {flag}REGISTRY/{name}"
        ),
    ];
    let ways = own.into_iter().chain(commands).joined(between);
    format!(
        "`{image}` is in no registry and has to be loaded into every node, for example by one \
         of:{before}{ways}"
    )
}

/// The remedy for a missing image known to this program, unless the node's error is likely
/// temporary.
pub fn missing_image(image: &str, user: ImageUser<'_>, message: &str) -> Option<String> {
    if is_local_image(image) {
        return Some(ways_to_load(image, user, " ", "; "));
    }
    let last = image.rsplit('/').next()?;
    let (name, tag) = last.split_once(':')?;
    if name != "conformance" || tag.contains('@') {
        return None;
    }
    let message = message.to_lowercase();
    let tells = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if tells(UNREACHABLE) {
        return Some(format!(
            "where there is internet access, `sonobuoy images download -p e2e \
             --kubernetes-version {tag} -o images.tar` fetches it with the images of its tests; \
             here, `sonobuoy images push --archive images.tar --custom-registry REGISTRY` brings \
             them in, for `sonobuoy run --e2e-repo REGISTRY --kube-conformance-image \
             REGISTRY/{last}`"
        ));
    }
    tells(UNKNOWN).then(|| {
        format!(
            "its registry has no `{last}`: name another version by `--kubernetes-version`, or an \
             image by `--kube-conformance-image`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_causes_have_a_remedy() {
        for (text, begin) in [
            (
                "1 of 2 peers cannot be reached: `n2`: no connection to 10.0.0.2:10250: connection \
                 timed out",
                "look at firewalls, security groups and routes",
            ),
            (
                "cannot reach the aggregator: `https://a`: Connection refused",
                "a network policy or firewall seems to",
            ),
            (
                "cannot reach the aggregator: no such host",
                "check that the cluster's DNS pods are",
            ),
            (
                "Back-off: ImagePullBackOff",
                "check the image's name and tag, the",
            ),
            (
                "lookup x on 10.0.0.1:53: read udp: i/o timeout",
                "check that the cluster's DNS pods are",
            ),
            (
                "dial tcp 1.2.3.4:1: connect: connection refused",
                "check that the service has ready",
            ),
            (
                "pods is forbidden: User cannot list resource",
                "give the service account the rights it",
            ),
            (
                "context deadline exceeded",
                "look at what it waited for: pods that",
            ),
            (
                "XML syntax error on line 1: unexpected EOF",
                "look at the file that the plugin wrote:",
            ),
            (
                "name server 10.0.0.1, asked for `x`: did not answer: timed out",
                "check that the cluster's DNS pods are",
            ),
            (
                "cannot reach the aggregator: small packets arrive, but 64 KiB do not: timed out",
                "the MTU of the pods' network seems to",
            ),
            (
                "Unauthorized: the credentials were rejected; they may have expired",
                "log in again, or use a kubeconfig whose",
            ),
            (
                "TLS: invalid peer certificate: Expired",
                "check the certificate's names, its",
            ),
            (
                "x509: certificate has expired or is not yet valid",
                "let NTP or chrony keep the node's",
            ),
            (
                "the clock is 340 s ahead",
                "let NTP or chrony keep the node's",
            ),
            (
                "invalid peer certificate: certificate not valid yet: verification time 1",
                "let NTP or chrony keep the node's",
            ),
            (
                "0/3 nodes are available: 3 Insufficient cpu",
                "check the nodes' free CPU and memory,",
            ),
            (
                "pods \"p\" is forbidden: failed quota: q: must specify limits.cpu for: p",
                "give each container",
            ),
            (
                "pods \"p\" is forbidden: exceeded quota: q, used: pods=1",
                "raise the namespace's ResourceQuota",
            ),
            (
                "admission webhook \"w\" denied the request: no",
                "read the webhook's message; change the",
            ),
            (
                "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\"",
                "give the namespace the Pod Security",
            ),
            (
                "FailedMount: MountVolume.SetUp failed for volume \"s\": secret \"x\" not found",
                "create it in the run's namespace before",
            ),
            (
                "0/3 nodes are available: persistentvolumeclaim \"x\" not found.",
                "create it in the run's namespace before",
            ),
            (
                "pods \"p-\" is forbidden: error looking up service account n/x: serviceaccount \
                 \"x\" not found",
                "create it in the run's namespace before",
            ),
            (
                "pod rejected: RuntimeClass \"x\" not found",
                "name a runtime class that the cluster",
            ),
            (
                "FailedMount: hostPath type check failed: /etc is not a file",
                "correct `path` and `type` of the",
            ),
            (
                "the aggregator refused the result with status 500: `gz/global`: the gzip tar is \
                 damaged: the archive is truncated",
                "a file in gzip that `done` names",
            ),
            (
                "FailedAttachVolume: Multi-Attach error",
                "look at the volume in the definition",
            ),
            (
                "FailedCreatePodSandBox: plugin type=\"calico\" failed: i/o timeout",
                "look at the network plugin (CNI)",
            ),
            (
                "stat /nope: no such file or directory",
                "check the path that the message names,",
            ),
            (
                "exec: \"/run.sh\": stat /run.sh: no such file or directory",
                "check the command of the container and",
            ),
            (
                "timeout: no result within the time limit of 10s",
                "look at what it waited for: pods that",
            ),
            (
                "node `n` was lost at 11:55:54: Kubelet stopped posting node status",
                "look at the node's state and its kubelet",
            ),
        ] {
            assert!(
                remedy(text).unwrap_or_default().starts_with(begin),
                "{text}: {:?}",
                remedy(text)
            );
        }
        assert_eq!(remedy("expected 5 to equal 7"), None);
        for (remedy, needles) in REMEDIES {
            assert!(
                needles
                    .iter()
                    .all(|needle| *needle == needle.to_lowercase()),
                "{remedy}"
            );
        }
    }

    #[test]
    fn remedy_for_a_local_image_names_the_flag_of_its_user() {
        let image = "localhost/x:1";
        let of_plugin = missing_image(image, ImageUser::Plugin("p"), "").unwrap();
        assert!(of_plugin.ends_with("then run with --plugin-image p:REGISTRY/x:1"));
        assert!(!of_plugin.contains("--load"), "{of_plugin}");
        let of_run = load_commands(image);
        assert!(of_run.ends_with("then run with --sonobuoy-image REGISTRY/x:1"));
        assert!(of_run.contains("\n  sonobuoy run --load\n"), "{of_run}");
    }

    #[test]
    fn load_commands_are_named_where_they_help() {
        let ours = "registry.k8s.io/conformance:v1.30.0";
        for (image, said, expected) in [
            (
                ours,
                "dial tcp: lookup registry.k8s.io: No such host",
                Some("images download -p e2e --kubernetes-version v1.30.0"),
            ),
            (
                ours,
                "dial tcp 1.2.3.4:443: i/o timeout",
                Some("REGISTRY/conformance:v1.30.0`"),
            ),
            (
                ours,
                "failed to resolve reference: not found",
                Some("its registry has no `conformance:v1.30.0`"),
            ),
            (ours, "429 Too Many Requests", None),
            (ours, "", None),
            ("example.org/other:v1.30.0", "no such host", None),
            ("localhost:5000/conformance", "no such host", None),
            (
                "localhost/sonobuoy:v1",
                "connection refused",
                Some(": kind load docker-image localhost/sonobuoy:v1; "),
            ),
        ] {
            let found = missing_image(image, ImageUser::Plugin("p"), said);
            assert_eq!(found.is_some(), expected.is_some(), "{image}: {said}");
            assert!(
                found
                    .unwrap_or_default()
                    .contains(expected.unwrap_or_default()),
                "{image}: {said}"
            );
        }
    }
}
