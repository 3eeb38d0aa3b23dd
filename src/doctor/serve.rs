//! The aggregator of an echo: the run's own TLS, and a response as long as the request.
//!
//! Runs in a pod that `echo` creates. Starts the server's threads, and joins them.

use std::io::Read as _;

use anyhow::{Context as _, Result};

use crate::backplane::{Authority, server_config};
use crate::names::env;
use base::http::{Response, Server};
use base::stop::Stop;

/// Maximum size of a request.
const MAX_ECHO_BYTES: u64 = 1 << 20;

/// Serves until `stop`.
pub(crate) fn serve(stop: &Stop) -> Result<()> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("`{name}` is not set"));
    let authority = Authority::from_pem(&variable(env::ECHO_AUTHORITY)?)?;
    let own = authority.server(&variable(env::ADVERTISE_IP)?)?;
    let port = variable(env::ECHO_PORT)?;
    let server =
        Server::bind(&format!("0.0.0.0:{port}"))?.tls(server_config(&authority.certificate_pem(), &own)?);
    log::info!("answering at port {port}");
    server.run(stop, |request| {
        let mut bytes = Vec::new();
        match request.body().take(MAX_ECHO_BYTES).read_to_end(&mut bytes) {
            Ok(_) => Response::bytes(200, "application/octet-stream", bytes),
            Err(error) => Response::text(400, error),
        }
    })
}
