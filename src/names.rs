//! What this program calls things in a cluster: objects, labels, annotations, ports, folders inside pods.
//!
//! Every name that two rooms must agree on stands here once. Knows no object's shape.

/// The aggregator's pod.
pub(crate) const AGGREGATOR_POD: &str = "sonobuoy";
