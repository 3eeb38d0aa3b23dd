//! The aggregator by itself on loopback, for programs that measure or attack it from outside.
//!
//! Nothing of a run but the channel: no plugin is started, no status published, no archive packed.

use std::path::Path;
use std::sync::mpsc::sync_channel;

use super::{Aggregator, Settings};
use crate::backplane::{plugin_of, server_config};
use base::http::{Limits, Server};
use base::stop::Stop;
use client::Access;
use client::protocol::ResultId;

/// Takes results in under `run_dir` until `stop`. Once it listens, `ready` is given what the workers of `plugin`
/// would get.
pub fn serve_alone(
    run_dir: &Path,
    plugin: &str,
    nodes: &[String],
    limits: Option<Limits>,
    ready: impl FnOnce(Access),
    stop: &Stop,
) -> anyhow::Result<()> {
    let expected: Vec<ResultId> = nodes.iter().map(|node| ResultId::on_node(plugin, node)).collect();
    let aggregator = Aggregator::open(run_dir, &expected, Settings::default())?;
    let authority = aggregator.authority();
    let tls = server_config(&authority.certificate_pem(), &authority.server("127.0.0.1")?)?;
    let server =
        Server::bind("127.0.0.1:0")?.tls(tls).principal(plugin_of).limits(limits.unwrap_or_default());
    let client = authority.client(plugin)?;
    ready(Access {
        aggregator_url: format!("https://{}", server.local_addr()),
        ca_cert: authority.certificate_pem(),
        client_cert: client.cert_pem,
        client_key: client.key_pem,
        ..Access::default()
    });
    let (_failures, receiver) = sync_channel(1);
    aggregator.serve(&server, receiver, stop)
}
