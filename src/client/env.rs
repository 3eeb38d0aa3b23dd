//! Environment variables with the aggregator's address, the client's identity, and its result.

/// `https://host:port` of the aggregator.
pub const AGGREGATOR_URL: &str = "AGGREGATOR_URL";
/// Host and port of the aggregator's Service, which Kubernetes adds to the environment of pods in
/// its namespace. Unlike the aggregator's own address, it outlives the restart of a node.
pub const SERVICE_HOST: &str = "SONOBUOY_AGGREGATOR_SERVICE_HOST";
/// See [`SERVICE_HOST`].
pub const SERVICE_PORT: &str = "SONOBUOY_AGGREGATOR_SERVICE_PORT";
/// The run's certificate authority, PEM.
pub const CA_CERT: &str = "CA_CERT";
/// The plugin's certificate, PEM.
pub const CLIENT_CERT: &str = "CLIENT_CERT";
/// Its private key, PEM.
pub const CLIENT_KEY: &str = "CLIENT_KEY";
/// The name of the plugin.
pub const RESULT_TYPE: &str = "RESULT_TYPE";
/// The name of the plugin's node, even if its result belongs to the cluster.
pub const NODE_NAME: &str = "NODE_NAME";
/// The file with the token that authorizes a request for a certificate.
pub const TOKEN_FILE: &str = "SONOBUOY_TOKEN_FILE";
/// URL to PUT the result to, for a plugin without a worker; its path identifies the expected
/// result.
pub const RESULT_URL: &str = "SONOBUOY_RESULT_URL";
/// URL to POST progress to, for such a plugin.
pub const PROGRESS_URL: &str = "SONOBUOY_PROGRESS_URL";
