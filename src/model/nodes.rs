//! Which nodes a plugin of the driver Nodes runs on, how many at once, and in which order.
//!
//! Pure: works on API objects. Whether a node accepts the pod is the concern of `driver`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use base::{Joined as _, near};
use kube::Object as _;
use yaml::natural;

/// The label with the zone of a node.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Nodes at once, unless the definition or the run says otherwise; in large clusters
/// [`DEFAULT_PERCENT`].
const DEFAULT_COUNT: usize = 50;
const DEFAULT_PERCENT: usize = 10;

/// How many nodes run a plugin at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Parallel {
    /// A number of nodes.
    Count(usize),
    /// A share of the nodes.
    Percent(usize),
}

impl Parallel {
    /// Reads `50` or `10%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .ok()
                .filter(|number| *number > 0)
        };
        let parsed = match text.strip_suffix('%') {
            Some(share) => number(share)
                .filter(|share| *share <= 100)
                .map(Self::Percent),
            None => number(text).map(Self::Count),
        };
        parsed.ok_or_else(|| {
            format!("is `{text}`; write a number of nodes from 1, or a share from 1% to 100%")
        })
    }

    fn of(self, nodes: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(share) => nodes.saturating_mul(share).div_ceil(100),
        }
    }
}

impl From<Parallel> for Value {
    fn from(parallel: Parallel) -> Self {
        match parallel {
            Parallel::Count(count) => count.into(),
            Parallel::Percent(share) => format!("{share}%").into(),
        }
    }
}

impl TryFrom<Value> for Parallel {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        Self::parse(
            &value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        )
    }
}

/// `waves` of a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waves {
    /// Nodes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Parallel>,
    /// The order of nodes.
    pub order: Order,
}

/// The order in which nodes run a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// By name.
    #[default]
    Name,
    /// One zone after the other.
    Zone,
}

impl Waves {
    /// The number of `nodes` at once; `limit` is that of the run.
    pub fn size(&self, limit: Option<Parallel>, nodes: usize) -> usize {
        let limits = [self.parallel, limit]
            .into_iter()
            .flatten()
            .map(|parallel| parallel.of(nodes));
        let default = || DEFAULT_COUNT.max(Parallel::Percent(DEFAULT_PERCENT).of(nodes));
        limits.min().unwrap_or_else(default).max(1)
    }
}

/// Which nodes a run chooses, of those that accept a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Choice {
    /// Names or a label selector; empty for all.
    pub only: String,
    /// Number of nodes, at random; 0 for all.
    pub sample: u64,
    /// Number of nodes of each zone; 0 for all.
    pub per_zone: u64,
    /// Whether nodes that join during the run are taken.
    pub joined: Joined,
    /// The number of nodes at once, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<Parallel>,
}

/// The conditions of a node that Kubernetes itself writes and acts on.
const CONDITIONS_OF_KUBERNETES: [&str; 5] = [
    "Ready",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "NetworkUnavailable",
];
/// Maximum lengths of the two parts of a condition's type: a domain and a name.
const MAX_DOMAIN_BYTES: usize = 253;
const MAX_CONDITION_NAME_BYTES: usize = 63;

/// Checks the type of a condition that is to tell the verdict of a node: a qualified name, as the
/// API requires of conditions, and none of Kubernetes' own. The reason continues a sentence.
pub fn check_condition(text: &str) -> Result<(), String> {
    if CONDITIONS_OF_KUBERNETES.contains(&text) {
        return Err(format!(
            "is `{text}`, a condition that Kubernetes itself writes; choose another name, such as \
             example.com/DiskChecked"
        ));
    }
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    if domain.is_none_or(is_domain) && is_condition_name(name) {
        return Ok(());
    }
    Err(format!(
        "is `{text}`, which is not the type of a condition; write a name of at most 63 letters, \
         digits, `-`, `_` and `.`, optionally after a domain and `/`, such as \
         example.com/DiskChecked"
    ))
}

/// Whether a text is a DNS subdomain.
fn is_domain(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        part.bytes().all(|byte| fits(byte) || byte == b'-')
            && part.bytes().next().is_some_and(fits)
            && part.bytes().last().is_some_and(fits)
    };
    text.len() <= MAX_DOMAIN_BYTES && text.split('.').all(is_part)
}

fn is_condition_name(text: &str) -> bool {
    let is_at_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= MAX_CONDITION_NAME_BYTES
        && text.bytes().all(fits)
        && is_at_end(text.bytes().next())
        && is_at_end(text.bytes().last())
}

/// A node as others can reach it: the address and port of its kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub node: String,
    /// Its first address inside the cluster.
    pub address: String,
    /// The port of its kubelet.
    pub port: u16,
    /// Its zone; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
}

impl Peer {
    /// The usual port of a kubelet.
    const KUBELET_PORT: u16 = 10250;

    /// A node that is ready and has an address.
    fn of(node: &Value) -> Option<Self> {
        let is_ready = node
            .condition("Ready")
            .is_some_and(|ready| ready["status"] == "True");
        let mut addresses = node["status"]["addresses"].items();
        let address = addresses.find(|address| address["type"] == "InternalIP")?;
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        is_ready.then(|| Self {
            node: node.name().to_owned(),
            address: address["address"].text().to_owned(),
            port: port
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(Self::KUBELET_PORT),
            zone: zone(node).to_owned(),
        })
    }
}

/// The nodes of a cluster in a circle. If each probes the next few, all pairs of neighbours are
/// probed at a cost that grows with the nodes, not with their square. The order is that of a digest
/// of the names, so that neighbours are mostly in different zones and racks.
#[derive(Clone, Debug, Default)]
pub struct Ring(Vec<(u64, Peer)>);

impl Ring {
    /// The ring of these nodes.
    pub fn of<'n>(nodes: impl IntoIterator<Item = &'n Value>) -> Self {
        let peers = nodes.into_iter().filter_map(Peer::of);
        let mut ring: Vec<_> = peers.map(|peer| (base::digest(&peer.node), peer)).collect();
        ring.sort_by(|a, b| (a.0, &a.1.node).cmp(&(b.0, &b.1.node)));
        Self(ring)
    }

    /// The next `count` nodes after `node`, which need not be in the ring.
    pub fn peers(&self, node: &str, count: usize) -> Vec<&Peer> {
        let own_place = (base::digest(&node), node);
        let next = self
            .0
            .partition_point(|(place, peer)| (*place, peer.node.as_str()) <= own_place);
        let (before, after) = self.0.split_at(next);
        let others = after.iter().chain(before).map(|(_, peer)| peer);
        others
            .filter(|peer| peer.node != node)
            .take(count)
            .collect()
    }
}

/// What to do with nodes that join during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joined {
    /// Run plugins on them.
    #[default]
    Take,
    /// Ignore them.
    Ignore,
}

/// The zone of a node; empty if unknown.
pub fn zone(node: &Value) -> &str {
    node["metadata"]["labels"][ZONE].text()
}

/// Maximum nodes that a message lists.
const MAX_LISTED_NODES: usize = 20;

impl Choice {
    /// The settings that differ from the default: each with its flag and its key in a
    /// configuration.
    pub fn changed_settings(&self) -> Vec<(&'static str, &'static str)> {
        let default = Self::default();
        let settings = [
            ("nodes", "Nodes.Only", self.only != default.only),
            ("sample", "Nodes.Sample", self.sample != default.sample),
            (
                "per-zone",
                "Nodes.PerZone",
                self.per_zone != default.per_zone,
            ),
            ("joined", "Nodes.Joined", self.joined != default.joined),
            (
                "max-parallel",
                "Nodes.MaxParallel",
                self.max_parallel != default.max_parallel,
            ),
        ];
        let changed = settings.into_iter().filter(|(_, _, is_given)| *is_given);
        changed.map(|(flag, key, _)| (flag, key)).collect()
    }

    /// The parts of a list of names; none for a label selector.
    pub fn names(&self) -> Vec<&str> {
        match self.is_selector() {
            true => Vec::new(),
            false => self.parts().collect(),
        }
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.only
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
    }

    fn is_selector(&self) -> bool {
        self.only.contains(['=', '!'])
    }

    /// Why the choice excludes a node, whatever others it takes.
    fn excludes(&self, node: &Value) -> Option<String> {
        let only = self.only.trim();
        if only.is_empty() {
            return None;
        }
        let labels = &node["metadata"]["labels"];
        let takes = if self.is_selector() {
            // `key`, `!key`, `key=value`, `key==value` or `key!=value`.
            self.parts().all(|part| {
                let (key, value) = part
                    .split_once('=')
                    .map_or((part, None), |(key, value)| (key, Some(value)));
                let is_not = key.starts_with('!') || key.ends_with('!');
                let label = labels[key.trim_matches(['!', ' '])].as_str();
                let value = value.map(|value| value.trim_start_matches('=').trim());
                is_not != value.map_or(label.is_some(), |value| label == Some(value))
            })
        } else {
            self.parts().any(|part| part == node.name())
        };
        (!takes).then(|| format!("it is not among `{only}`"))
    }

    /// Whether a node that joined is taken; a sample is not extended.
    pub fn takes_joined(&self, node: &Value) -> bool {
        self.joined == Joined::Take
            && self.sample == 0
            && self.per_zone == 0
            && self.excludes(node).is_none()
    }

    /// The chosen nodes, and the reason for each other one. The same `seed` chooses the same
    /// sample.
    pub fn choose<'n>(
        &self,
        nodes: impl Iterator<Item = &'n Value>,
        seed: &str,
    ) -> (Vec<&'n Value>, BTreeMap<String, String>) {
        let mut chosen: Vec<_> = nodes.collect();
        chosen.sort_by_cached_key(|node| base::digest(&(seed, node.name())));
        let mut excluded = BTreeMap::new();
        let mut zones: BTreeMap<&str, u64> = BTreeMap::new();
        let mut chosen_count = 0;
        chosen.retain(|node| {
            let of_zone = zones.entry(zone(node)).or_default();
            let why = if let Some(why) = self.excludes(node) {
                why
            } else if self.per_zone > 0 && *of_zone >= self.per_zone {
                format!("zone `{}` has {} others", zone(node), self.per_zone)
            } else if self.sample > 0 && chosen_count >= self.sample {
                format!("it is not in the sample of {}", self.sample)
            } else {
                *of_zone += 1;
                chosen_count += 1;
                return true;
            };
            excluded.insert(node.name().to_owned(), why);
            false
        });
        if self.sample > chosen_count {
            log::warn!(
                "--sample {}: only {chosen_count} nodes are available",
                self.sample
            );
        }
        chosen.sort_by_key(|node| node.name());
        (chosen, excluded)
    }
}

/// Describes the named nodes that a cluster lacks, with the ones that it has.
pub fn unknown(named: &[&str], mut known: Vec<&str>) -> Option<String> {
    let unknown: Vec<&str> = named
        .iter()
        .copied()
        .filter(|name| !known.contains(name))
        .collect();
    let first = unknown.first()?;
    known.sort_by_cached_key(|name| natural(name));
    let more = match known.len().saturating_sub(MAX_LISTED_NODES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "no node of the cluster is called `{}`; it has {}{more}{}",
        unknown.join("` or `"),
        known.iter().copied().take(MAX_LISTED_NODES).joined(", "),
        near::hint(first, known.iter().copied())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::json::json;

    fn nodes() -> Vec<Value> {
        let node = |number: u32| {
            let zone = if number < 6 { "x" } else { "y" };
            json!({"metadata": {"name": format!("n{number}"), "labels": {(ZONE): zone, "gpu": "a"}}})
        };
        (0..10)
            .map(node)
            .chain([json!({"metadata": {"name": "plain"}})])
            .collect()
    }

    fn chosen(choice: &Choice) -> Vec<String> {
        let nodes = nodes();
        let (chosen, excluded) = choice.choose(nodes.iter(), "seed");
        assert_eq!(
            chosen.len() + excluded.len(),
            nodes.len(),
            "each node is chosen, or has a reason"
        );
        chosen
            .into_iter()
            .map(|node| node.name().to_owned())
            .collect()
    }

    #[test]
    fn unknown_nodes_are_named_with_the_known_ones() {
        let known = ["node-10", "node-2", "node-1"];
        assert_eq!(unknown(&["node-1", "node-10"], known.to_vec()), None);
        assert_eq!(
            unknown(&["node-1", "noed-2", "x"], known.to_vec()).unwrap(),
            "no node of the cluster is called `noed-2` or `x`; it has node-1, node-2, node-10; \
             did you mean `node-2`?"
        );
        let many: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
        let message = unknown(&["x"], many.iter().map(String::as_str).collect()).unwrap();
        assert!(message.ends_with(", n18, n19 and 980 more"), "{message}");
    }

    #[test]
    fn given_settings_and_names_are_known() {
        assert_eq!(Choice::default().changed_settings(), Vec::new());
        let choice = Choice {
            sample: 1,
            max_parallel: Some(Parallel::Count(2)),
            ..Choice::default()
        };
        assert_eq!(
            choice.changed_settings(),
            [
                ("sample", "Nodes.Sample"),
                ("max-parallel", "Nodes.MaxParallel")
            ]
        );
        let named = |only: &str| {
            Choice {
                only: only.into(),
                ..Choice::default()
            }
            .names()
            .join("+")
        };
        assert_eq!(
            (named("a, b,"), named("zone=a,b"), named("!gpu")),
            ("a+b".into(), String::new(), String::new())
        );
    }

    #[test]
    fn types_of_conditions_are_qualified_names_of_others() {
        let longest = format!("{}.com/{}", "a.".repeat(124) + "b", "N".repeat(63));
        for text in [
            "DiskChecked",
            "example.com/DiskChecked",
            "x-1.example.com/gpu.v2_ok",
            "a/b",
            &longest,
        ] {
            assert_eq!(check_condition(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "/x",
            "x/",
            "a/b/c",
            "Example.com/x",
            "-a.com/x",
            "a..com/x",
            "a.com/-x",
            "a.com/x_",
            "with space",
            "ä",
            &format!("x{longest}"),
            &"N".repeat(64),
        ] {
            let reason = check_condition(text).unwrap_err();
            assert!(
                reason.contains("is not the type of a condition"),
                "{reason}"
            );
        }
        for text in CONDITIONS_OF_KUBERNETES {
            let reason = check_condition(text).unwrap_err();
            assert!(reason.contains("Kubernetes itself writes"), "{reason}");
        }
    }

    #[test]
    fn every_node_is_the_peer_of_as_many_others_as_it_has_peers() {
        let node = |number: usize| {
            json!({
                "metadata": {"name": format!("n{number}"), "labels": {(ZONE): "z"}},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [
                        {"type": "Hostname", "address": "x"},
                        {"type": "InternalIP", "address": format!("10.0.0.{number}")},
                    ],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_000 + number}},
                },
            })
        };
        let nodes: Vec<_> = (0..100).map(node).collect();
        let ring = Ring::of(&nodes);
        let mut probed = BTreeMap::<&str, usize>::new();
        for node in &nodes {
            let peers = ring.peers(node.name(), 8);
            assert_eq!(peers.len(), 8);
            for peer in peers {
                assert_ne!(peer.node, node.name());
                *probed.entry(&peer.node).or_default() += 1;
            }
        }
        assert_eq!(probed.len(), 100);
        assert!(probed.values().all(|count| *count == 8), "{probed:?}");
        assert_eq!(ring.peers("that joined", 8).len(), 8);
        let expected = Peer {
            node: "n7".into(),
            address: "10.0.0.7".into(),
            port: 10_007,
            zone: "z".into(),
        };
        assert_eq!(Ring::of(&nodes[7..9]).peers("n8", 8), [&expected]);
        assert!(Ring::of(&nodes[7..8]).peers("n7", 8).is_empty());
        let mut lost = node(1);
        lost["status"]["conditions"][0]["status"] = json!("Unknown");
        assert!(Ring::of(&[lost]).peers("n2", 8).is_empty());
    }

    #[test]
    fn names_and_labels_choose_nodes() {
        let only = |only: &str| {
            chosen(&Choice {
                only: only.into(),
                ..Choice::default()
            })
        };
        assert_eq!(only("").len(), 11);
        assert_eq!(only("n1, n3,gone"), ["n1", "n3"]);
        assert_eq!(only("gpu=a,topology.kubernetes.io/zone!=x").len(), 4);
        assert_eq!(only("!gpu"), ["plain"]);
        assert_eq!(only("gpu=b"), Vec::<String>::new());
    }

    #[test]
    fn samples_are_repeatable_and_no_larger_than_the_cluster() {
        let sample = Choice {
            sample: 3,
            ..Choice::default()
        };
        assert_eq!(
            (chosen(&sample).len(), chosen(&sample)),
            (3, chosen(&sample))
        );
        assert_eq!(
            chosen(&Choice {
                sample: 99,
                ..Choice::default()
            })
            .len(),
            11
        );
        let per_zone = chosen(&Choice {
            per_zone: 2,
            ..Choice::default()
        });
        assert_eq!(per_zone.len(), 5, "{per_zone:?}");
    }

    #[test]
    fn waves_are_a_count_or_a_share() {
        for (text, of_30) in [("50", 50), ("1", 1), ("10%", 3), ("1%", 1), ("100%", 30)] {
            assert_eq!(
                Parallel::parse(text).map(|parallel| parallel.of(30)),
                Ok(of_30),
                "{text}"
            );
        }
        for text in ["0", "0%", "101%", "-1", "", "%", "x"] {
            assert!(
                Parallel::parse(text)
                    .unwrap_err()
                    .contains("from 1% to 100%"),
                "{text}"
            );
        }
        let waves = Waves {
            parallel: Some(Parallel::Count(7)),
            ..Waves::default()
        };
        assert_eq!(
            (
                waves.size(None, 30),
                waves.size(Some(Parallel::Percent(10)), 30)
            ),
            (7, 3)
        );
        assert_eq!(
            (
                Waves::default().size(None, 3),
                Waves::default().size(None, 15_000)
            ),
            (50, 1_500)
        );
    }
}
