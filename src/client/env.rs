//! The environment variables that say where the aggregator is, who is calling, and about which result.

/// `https://host:port` of the aggregator.
pub const AGGREGATOR_URL: &str = "AGGREGATOR_URL";
/// The run's certificate authority, PEM.
pub const CA_CERT: &str = "CA_CERT";
/// The plugin's certificate, PEM.
pub const CLIENT_CERT: &str = "CLIENT_CERT";
/// Its private key, PEM.
pub const CLIENT_KEY: &str = "CLIENT_KEY";
/// The name of the plugin.
pub const RESULT_TYPE: &str = "RESULT_TYPE";
/// The name of the node that the plugin runs on, whether or not its result belongs to that node.
pub const NODE_NAME: &str = "NODE_NAME";
/// The file with the token that authorizes a request for a certificate.
pub const TOKEN_FILE: &str = "SONOBUOY_TOKEN_FILE";
/// Where a plugin without a worker puts its result; the path says which result is expected of it.
pub const RESULT_URL: &str = "SONOBUOY_RESULT_URL";
/// Where such a plugin posts its progress.
pub const PROGRESS_URL: &str = "SONOBUOY_PROGRESS_URL";
