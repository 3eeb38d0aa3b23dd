//! The aggregator by itself on loopback, for programs that measure or attack it from outside.
//!
//! Nothing of a run but the channel: no plugin is started, no status published, no archive packed.

use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use crate::aggregator::{
    Aggregator, AggregatorSettings, Holder, ReviewError, Reviewer, connections,
};
use crate::backplane::{plugin_of, server_config};
use base::stop::Stop;
use client::Access;
use client::protocol::ResultId;
use http::{Limits, Server};
use model::config;

/// Takes results in under `run_dir` until `stop`. Once it listens, `ready` is given what the
/// workers of `plugin` would get.
pub fn serve_alone(
    run_dir: &Path,
    plugin: &str,
    nodes: &[String],
    limits: Option<Limits>,
    ready: impl FnOnce(Access),
    stop: &Stop,
) -> anyhow::Result<()> {
    let aggregator = open(run_dir, &[plugin], nodes)?;
    let server = server(&aggregator)?.limits(limits.unwrap_or_default());
    ready(access(&aggregator, &server, plugin)?);
    let (_failures, receiver) = sync_channel(1);
    aggregator.serve(&server, receiver, stop)
}

/// The same for several plugins, with the limits of a run; `publish` is given the status document,
/// JSON, as it changes.
pub fn serve_shared(
    run_dir: &Path,
    plugins: &[&str],
    nodes: &[String],
    ready: impl FnOnce(Vec<Access>),
    mut publish: impl FnMut(String) + Send,
    stop: &Stop,
) -> anyhow::Result<()> {
    let aggregator = open(run_dir, plugins, nodes)?;
    let limits = connections(&config::Connections::default());
    let server = server(&aggregator)?.limits(limits);
    ready(
        plugins
            .iter()
            .map(|plugin| access(&aggregator, &server, plugin))
            .collect::<Result<_, _>>()?,
    );
    let (_failures, receiver) = sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            aggregator.publish(stop, |status| {
                let status = model::annotation::shorten(status.clone());
                publish(serde_json::to_string(&status)?);
                Ok(())
            });
        });
        aggregator.serve(&server, receiver, stop)
    })
}

fn server(aggregator: &Aggregator) -> anyhow::Result<Server> {
    let authority = aggregator.authority();
    let tls = server_config(
        &authority.certificate_pem(),
        &authority.server("127.0.0.1")?,
        false,
    )?;
    Ok(Server::bind("127.0.0.1:0")?.tls(tls).principal(plugin_of))
}

fn access(aggregator: &Aggregator, server: &Server, plugin: &str) -> anyhow::Result<Access> {
    let client = aggregator.authority().client(plugin)?;
    Ok(Access {
        client_cert: client.cert_pem,
        client_key: client.key_pem,
        ..address(aggregator, server)
    })
}

/// The same for workers that ask for certificates: `node_of` tells on which node the pod with a
/// token runs, as a review by the API server would.
pub fn serve_certifying(
    run_dir: &Path,
    plugin: &str,
    nodes: &[String],
    node_of: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ready: impl FnOnce(Access),
    stop: &Stop,
) -> anyhow::Result<()> {
    let aggregator = open(run_dir, &[plugin], nodes)?;
    let aggregator = aggregator.with_certifier(Box::new(Told {
        plugin: plugin.to_owned(),
        node_of,
    }));
    let authority = aggregator.authority();
    let tls = server_config(
        &authority.certificate_pem(),
        &authority.server("127.0.0.1")?,
        true,
    )?;
    let server = Server::bind("127.0.0.1:0")?.tls(tls).principal(plugin_of);
    ready(address(&aggregator, &server));
    let (_failures, receiver) = sync_channel(1);
    aggregator.serve(&server, receiver, stop)
}

fn open(run_dir: &Path, plugins: &[&str], nodes: &[String]) -> anyhow::Result<Aggregator> {
    let of = |plugin: &&str| {
        nodes
            .iter()
            .map(|node| ResultId::on_node(*plugin, node))
            .collect::<Vec<_>>()
    };
    let expected: Vec<ResultId> = plugins.iter().flat_map(of).collect();
    Aggregator::open(run_dir, &expected, AggregatorSettings::default())
}

fn address(aggregator: &Aggregator, server: &Server) -> Access {
    Access {
        aggregator_url: format!("https://{}", server.local_addr()),
        ca_cert: aggregator.authority().certificate_pem(),
        ..Access::default()
    }
}

/// Trusts `node_of` about tokens.
struct Told<F> {
    plugin: String,
    node_of: F,
}

impl<F: Fn(&str) -> Option<String> + Send + Sync> Reviewer for Told<F> {
    fn review(&self, token: &str, _: IpAddr) -> Result<Holder, ReviewError> {
        let node = (self.node_of)(token)
            .ok_or_else(|| ReviewError::Unknown("the token was rejected".into()))?;
        Ok(Holder {
            id: ResultId::on_node(&self.plugin, node),
            pod: token.to_owned(),
        })
    }
}
