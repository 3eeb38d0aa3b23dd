//! The variables that say where the aggregator is, who may speak, and of which result.

/// `https://host:port` of the aggregator.
pub const AGGREGATOR_URL: &str = "AGGREGATOR_URL";
/// The certificate of the run's authority, PEM.
pub const CA_CERT: &str = "CA_CERT";
/// The certificate of the plugin, PEM.
pub const CLIENT_CERT: &str = "CLIENT_CERT";
/// Its key, PEM.
pub const CLIENT_KEY: &str = "CLIENT_KEY";
/// The name of the plugin.
pub const RESULT_TYPE: &str = "RESULT_TYPE";
/// The name of the node, for a plugin that has a result on each node; not set for one that has a single result.
pub const NODE_NAME: &str = "NODE_NAME";
/// The file with the token by which a certificate is asked for, where there is none yet.
pub const TOKEN_FILE: &str = "SONOBUOY_TOKEN_FILE";
/// Where progress is posted, of a plugin without a worker: its path says which result is expected of it.
pub const PROGRESS_URL: &str = "SONOBUOY_PROGRESS_URL";
