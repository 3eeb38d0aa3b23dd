//! A whole run on this machine: real aggregator, real workers, real mutual TLS; only the pods are
//! processes.
//!
//! Combines the steps; starts no thread.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::conduct;
use super::context::RunContext;
use super::retry;
use super::{pack, review};
use base::at::At as _;
use base::logger;
use base::stop::Stop;
use base::sys;
use base::temp;
use client::protocol::ResultId;
use http::Server;
use model::names::VERSION;
use model::plugin::Definition;
use model::{config, status};
use run::aggregator::Aggregator;
use run::backplane::Authority;
use run::driver::{self, Driver as _};
use run::query::Redactor;

/// Where the aggregator listens: only for this machine, on any free port, with the available
/// address family.
const ADDRESSES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];
/// Short, since a user is watching.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);
/// Time for killed processes that plugins left behind.
const STRAYS_TIMEOUT: Duration = Duration::from_secs(3);

/// A run on this machine.
pub(crate) struct LocalRun<'a> {
    /// The plugins.
    pub definitions: &'a [Definition],
    /// Settings of the run; those about a cluster have no effect.
    pub config: config::Run,
    /// The number of nodes for plugins that run on each.
    pub nodes: usize,
    /// Directory of the archive.
    pub out: PathBuf,
    /// This program, which is also the worker.
    pub program: PathBuf,
    /// The environment of workers, unless the plugin overrides it.
    pub worker_env: Vec<(String, String)>,
    /// The authority that [`LocalRun::prepare`] creates, unless the configuration names the run.
    pub authority: Option<Authority>,
}

/// The outcome of a run.
pub(crate) struct Ended {
    /// The archive.
    pub archive: PathBuf,
    /// The number of plugins whose results could not be processed.
    pub errors: usize,
    /// The certificate of the run's authority, which sealed it.
    pub authority: String,
}

impl LocalRun<'_> {
    /// Checks that all plugins can run here, before anything is started or written. Returns the
    /// folder that the run will use.
    pub(crate) fn prepare(&mut self) -> anyhow::Result<PathBuf> {
        self.definitions.iter().try_for_each(driver::local::check)?;
        self.authority = conduct::name_run(&mut self.config, self.definitions)?;
        Ok(self.work_dir())
    }

    fn work_dir(&self) -> PathBuf {
        temp::dir().join(format!("sonobuoy-{}", self.config.uuid))
    }

    /// Runs everything, once prepared; `watch` receives each change of the status. A stop ends the
    /// plugins; results received before it are still processed and packed.
    pub(crate) fn run(
        mut self,
        watch: impl FnMut(&status::Run) + Send,
        stop: &Stop,
    ) -> anyhow::Result<Ended> {
        let started = SystemTime::now();
        self.config.version = VERSION.into();
        let work = self.work_dir();
        sys::dir_builder(0o700)
            .create(&work)
            .at("cannot create", &work)?;
        let authority = self.authority.take();
        let ended = self.run_in(&work, authority, started, watch, stop);
        logger::untee();
        let keep = self
            .definitions
            .iter()
            .any(|definition| definition.config.skip_cleanup);
        match &ended {
            Err(_) => log::warn!("the files of the run remain in `{}`", work.display()),
            Ok(_) if keep => {
                log::info!("a plugin asks to skip cleanup: `{}` stays", work.display());
            }
            Ok(_) => {
                if let Err(error) = fs::remove_dir_all(&work) {
                    log::warn!("cannot remove `{}`: {error}", work.display());
                }
            }
        }
        ended
    }

    fn run_in(
        &self,
        work: &Path,
        new_authority: Option<Authority>,
        started: SystemTime,
        mut watch: impl FnMut(&status::Run) + Send,
        stop: &Stop,
    ) -> anyhow::Result<Ended> {
        let run_dir = work.join(&self.config.uuid);
        conduct::begin(&run_dir, &self.config)?;

        let mut settings = conduct::settings(&self.config, self.definitions, new_authority);
        settings.publish_every = PUBLISH_EVERY;
        let nodes = nodes(self.nodes);
        let expected = |definition: &Definition| match definition.config.driver.is_per_node() {
            true => nodes
                .iter()
                .map(|node| ResultId::on_node(definition.name(), node.as_str()))
                .collect(),
            false => vec![ResultId::global(definition.name())],
        };
        let expected: Vec<Vec<ResultId>> = self.definitions.iter().map(expected).collect();
        let retry_definitions = retry::attempts(&self.config, self.definitions);
        let aggregator = Aggregator::open(&run_dir, &expected.concat(), settings)?;
        // Processes on one machine only have the tokens created here.
        let attempts = retry_definitions
            .iter()
            .map(|attempt| ResultId::global(attempt.name()));
        let all = expected.iter().flatten().cloned().chain(attempts);
        let tokens = review::tokens(all)?;
        let aggregator = aggregator.with_certifier(Box::new(review::KnownTokens(tokens.clone())));
        let authority = aggregator.authority();
        let server = Server::bind(ADDRESSES[0]).or_else(|_| Server::bind(ADDRESSES[1]))?;
        let host = server.local_addr().to_string();
        let hosts = [host.clone()];
        let server = conduct::server(server, &hosts, true, &aggregator, &self.config)?;
        let driver = driver::local::LocalDriver::new(driver::local::Machine {
            program: self.program.clone(),
            pods: work.join("pods"),
            run_dir: run_dir.clone(),
            aggregator: format!("https://{host}"),
            ca_cert: authority.certificate_pem(),
            config: self.config.clone(),
            tokens,
            node: nodes[0].clone(),
            worker_env: self.worker_env.clone(),
            interrupted: stop.clone(),
        });
        let context = RunContext {
            aggregator: &aggregator,
            run_dir: &run_dir,
            config: &self.config,
            plugins: retry::launches(self.definitions, expected),
            attempts: &retry_definitions,
        };

        if let Err(error) = sys::adopt_strays() {
            log::debug!("processes that plugins leave behind may not be found: {error}");
        }
        let publish = |status: &status::Run| {
            watch(status);
            Ok(())
        };
        let redactor = Redactor::new(&self.config.redaction)?;
        let redactor = redactor.as_ref();
        let finish = || {
            driver.end();
            sys::end_strays(STRAYS_TIMEOUT);
            conduct::give_up(&aggregator, stop);
            let packed = pack::pack(&context, redactor, &self.out, started)?;
            for plugin in context.to_remove() {
                driver.remove(plugin)?;
            }
            Ok(packed)
        };
        let (archive, errors) = conduct::run(&server, &driver, &context, publish, finish, stop)?;
        // A plugin that skips cleanup keeps the files of the run, but not the run's keys.
        aggregator.store.discard_state();
        Ok(Ended {
            archive,
            errors,
            authority: authority.certificate_pem(),
        })
    }
}

/// The names of `count` nodes: this machine's name, then the same with a number.
fn nodes(count: usize) -> Vec<String> {
    let name = sys::host_name().to_lowercase();
    let name = if name.is_empty() || name == "(none)" {
        "localhost".into()
    } else {
        name
    };
    (1..=count.max(1))
        .map(|number| {
            if number == 1 {
                name.clone()
            } else {
                format!("{name}-{number}")
            }
        })
        .collect()
}
