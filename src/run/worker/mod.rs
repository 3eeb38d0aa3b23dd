//! The worker: waits for a plugin's `done` file and submits the result that it names.
//!
//! Owns its settings, read from the environment, the submission, and the messages to the aggregator
//! until then: progress and heartbeats. Does not know Kubernetes: the answers to heartbeats tell
//! when the other containers have ended. Starts the threads `grace`, `heartbeat`, `relay` and
//! `suite`, and joins them.

mod done;
mod relay;
mod senders;
mod suite;

use std::fmt::Display;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::thread::{self, Scope as Threads};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use base::clock;
use base::stop::Stop;
use base::visible;
use client::protocol::{HEARTBEAT_INTERVAL, ResultId};
use client::{self, Access, Client, Error, Retry, env as var};
use done::{DONE_DELAY, DoneOutcome, Others, ResultsDir};
use model::names::{self, env};
use model::remedies;

/// Grace period after a termination request, as in a pod with a longer one than Kubernetes'
/// default; results often arrive within it.
const GRACE: Duration = Duration::from_secs(60);

/// Shortest pause between the heartbeats of a plugin's only worker.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Interval of connection attempts until the aggregator is reachable.
const PROBE_PERIOD: Duration = Duration::from_secs(3);
/// Connect timeout; longer silence indicates dropped packets.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a worker submits for the cluster or for its node.
pub enum Scope {
    /// One result of the plugin for the whole cluster.
    Global,
    /// One result of the plugin on this node.
    Node,
}

/// Settings of a worker.
#[derive(Debug)]
pub struct WorkerSettings {
    /// Address of the aggregator, and credentials.
    pub access: Access,
    /// Result to submit.
    pub id: ResultId,
    /// Location of the done file.
    pub results: ResultsDir,
    /// Loopback port for progress; 0 is any free port, `None` no port at all.
    pub progress_port: Option<u16>,
    /// Minimum age of a done file.
    pub done_delay: Duration,
    /// Time limit of a submission with retries.
    pub retry_limit: Duration,
    /// Grace period after a termination request.
    pub grace: Duration,
    /// File that exists when all other containers have succeeded, if they run on this machine.
    pub others_ended_file: Option<PathBuf>,
}

impl WorkerSettings {
    /// Reads the environment through `lookup`: empty equals unset; all missing variables are
    /// reported at once.
    pub fn read(scope: Scope, lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let (access, mut missing) = match Access::read(variable) {
            Ok(access) => (access, Vec::new()),
            Err(missing) => (Access::default(), missing),
        };
        let mut needed = |name| {
            variable(name).unwrap_or_else(|| {
                missing.push(name);
                String::new()
            })
        };
        let plugin = needed(var::RESULT_TYPE);
        let id = match scope {
            Scope::Global => ResultId::global(plugin),
            Scope::Node => ResultId::on_node(plugin, needed(var::NODE_NAME)),
        };
        if !missing.is_empty() {
            bail!("not set in the environment: {}", missing.join(", "));
        }
        let duration = |name: &str, default| match variable(name) {
            None => default,
            Some(text) => clock::parse_duration(&text).unwrap_or_else(|| {
                log::warn!("{name}: `{text}` is not a duration like `5s`, using {default:?}");
                default
            }),
        };
        Ok(Self {
            access,
            id,
            results: ResultsDir {
                dir: variable(env::RESULTS_DIR)
                    .unwrap_or_else(|| names::RESULTS_DIR.into())
                    .into(),
                mount: variable(env::RESULTS_MOUNT).map(PathBuf::from),
                anywhere: variable(env::RESULTS_ANYWHERE).as_deref() == Some("true"),
            },
            progress_port: match variable(env::PROGRESS_PORT) {
                None => Some(names::PROGRESS_PORT),
                Some(text) => text.parse().ok().or_else(|| {
                    log::warn!(
                        "{}: `{text}` is not a port, progress is not relayed",
                        env::PROGRESS_PORT
                    );
                    None
                }),
            },
            done_delay: duration(env::DONE_FILE_DELAY, DONE_DELAY),
            retry_limit: duration(env::UPLOAD_LIMIT, Retry::default().limit),
            grace: duration(env::SHUTDOWN_GRACE, GRACE),
            others_ended_file: variable(env::OTHERS_ENDED_FILE).map(PathBuf::from),
        })
    }
}

/// Waits for the result of this worker's plugin and submits it. After `term`, the worker continues
/// for the pod's grace period, so that a result that is almost ready still arrives; without one it
/// then ends, which is not an error. Returns whether the aggregator has the result.
pub fn run(settings: &WorkerSettings, term: &Stop) -> Result<bool> {
    let retry = Retry {
        limit: settings.retry_limit,
        ..Retry::default()
    };
    // `asked` and `over` end with this call, independently of `term`.
    let (asked, over) = (term.child(), Stop::new());
    let talk = Client::new(&settings.access, settings.id.clone())?;
    let client = talk.clone().with_retry(retry).with_stop(over.clone());
    let others = Others::new(settings.others_ended_file.clone());
    let relays = relay::listen(settings.progress_port);
    let senders = std::sync::Mutex::default();
    relay::announce(settings.progress_port, &relays)?;
    thread::scope(|scope| {
        let work = || {
            let (talk, senders, over) = (&talk, &senders, &over);
            base::thread("grace").spawn_scoped(scope, || {
                asked.wait_forever();
                if !over.stopped() {
                    match settings.grace {
                        Duration::ZERO => log::info!("asked to stop"),
                        grace => log::info!("asked to stop: continuing for {grace:?}"),
                    }
                    over.wait(settings.grace);
                    over.stop();
                }
            })?;
            let aggregator = &settings.access;
            base::thread("heartbeat")
                .spawn_scoped(scope, || send_heartbeats(talk, aggregator, &others, over))?;
            if let Some(port) = settings
                .progress_port
                .filter(|port| relays.is_empty() && *port > 0)
            {
                start_optional(scope, "relay", move || relay::share(port, talk, over));
            }
            for relay in relays {
                // Without its thread the socket is closed, so that no plugin waits for a response.
                start_optional(scope, "relay", move || {
                    relay::run(&relay, talk, senders, over);
                });
            }
            if settings.progress_port.is_some() {
                let folder = &settings.results.dir;
                start_optional(scope, "suite", move || {
                    suite::run(folder, talk, senders, over);
                });
            }
            wait_and_submit(settings, &client, &others, over)
        };
        let result = work();
        over.stop();
        asked.stop();
        talk.shutdown();
        result
    })
}

/// Starts a thread for progress, without which the result still arrives.
fn start_optional<'scope>(
    scope: &'scope Threads<'scope, '_>,
    name: &str,
    run: impl FnOnce() + Send + 'scope,
) {
    if let Err(error) = base::thread(name).spawn_scoped(scope, run) {
        log::warn!("progress of the plugin is not relayed: {error}");
    }
}

/// Sleeps after success, so that the pod is not restarted. Ends with `term`.
pub fn linger(seconds: i64, term: &Stop) {
    if term.stopped() {
        return;
    }
    // Scripts look for these sentences, spaces included.
    match u64::try_from(seconds) {
        Ok(0) => {}
        Ok(limit) => {
            log::info!("Results transmitted to aggregator. Sleeping for {limit} seconds");
            term.wait(Duration::from_secs(limit));
        }
        Err(_) => {
            log::info!("Results transmitted to aggregator.  Sleeping forever.");
            term.wait(Duration::MAX);
        }
    }
}

fn wait_and_submit(
    settings: &WorkerSettings,
    client: &Client,
    others: &Others,
    over: &Stop,
) -> Result<bool> {
    let dir = &settings.results.dir;
    let (path, opened) = match done::wait(&settings.results, settings.done_delay, others, over) {
        DoneOutcome::Result(named) => {
            log::info!(
                "the plugin is done, its result is `{}`",
                named.path.display()
            );
            (named.path.clone(), named.open())
        }
        DoneOutcome::OthersEnded => {
            log::info!(
                "all other containers have ended: submitting `{}`",
                dir.display()
            );
            (dir.clone(), settings.results.open())
        }
        DoneOutcome::Unusable(why) => return report(client, &why),
        DoneOutcome::Stopped => {
            log::warn!("stopped before the plugin was done: submitting nothing");
            return Ok(false);
        }
    };
    let opened = opened.map_err(|source| Error::File {
        path: path.clone(),
        source,
    });
    match opened.and_then(|opened| client.submit_opened(&path, opened)) {
        Ok(client::Submitted::Accepted) => log::info!("the aggregator has accepted the result"),
        Ok(client::Submitted::AlreadyThere) => log::info!("the aggregator already has this result"),
        Err(error @ Error::File { .. }) => return report(client, &error.to_string()),
        // The aggregator rejects the content: record that as the result.
        Err(
            error @ Error::Refused {
                status: 400 | 413 | 422 | 500,
                ..
            },
        ) => {
            return report(client, &error.to_string());
        }
        Err(error) => {
            return Err(error).context(format!("cannot submit the result of {}", client.id()));
        }
    }
    Ok(true)
}

/// Reports the error to the aggregator, which then stops waiting for the result; returns the same
/// error.
fn report(client: &Client, why: &str) -> Result<bool> {
    match client.submit_error(&visible::without_codes(why)) {
        Ok(_) => bail!("{why} (reported to the aggregator)"),
        Err(error) => bail!("{why} (and reporting it to the aggregator failed: {error})"),
    }
}

/// Pause until the next heartbeat. The only worker of a plugin asks in proportion to its age, so
/// that the end of a short plugin is known soon; the workers of many nodes would be too many.
fn next_pause(id: &ResultId, age: Duration) -> Duration {
    if id.is_global() {
        (age / 4).clamp(FIRST_PAUSE, HEARTBEAT_INTERVAL)
    } else {
        HEARTBEAT_INTERVAL
    }
}

/// Sends heartbeats to `aggregator` until `stop`. The first one follows at a random moment of the
/// first period, since the workers of a large cluster start together; the connection, which costs
/// little, is tried at once. An answer may tell that the other containers have ended.
fn send_heartbeats(client: &Client, aggregator: &Access, others: &Others, stop: &Stop) {
    let mut contact = Contact::default();
    let url = &aggregator.aggregator_url;
    while let Err(error) = probe(url, aggregator.service_address) {
        contact.failed(&format_args!("`{url}`: {error}"));
        if stop.wait(PROBE_PERIOD) {
            return;
        }
    }
    let begin = Instant::now();
    let share = RandomState::new().hash_one(0) % 1000;
    let mut pause = match client.id().is_global() {
        true => FIRST_PAUSE,
        false => HEARTBEAT_INTERVAL.mul_f64(share as f64 / 1000.0),
    };
    while !stop.wait(pause) {
        pause = next_pause(client.id(), begin.elapsed());
        match client.heartbeat() {
            Ok(containers) => {
                contact.made();
                containers.into_iter().for_each(|end| others.note(end));
            }
            Err(Error::Refused {
                status: 404 | 405, ..
            }) => {
                log::debug!("this aggregator does not support heartbeats");
                return;
            }
            // Reachable, but overloaded.
            Err(Error::Refused {
                status: 429 | 503,
                text,
                ..
            }) => log::debug!("{text}"),
            Err(error) => contact.failed(&error),
        }
    }
}

/// Whether the aggregator was ever reached, and the last error logged.
#[derive(Default)]
struct Contact {
    made: bool,
    said: String,
}

impl Contact {
    fn made(&mut self) {
        if !std::mem::replace(&mut self.made, true) && !self.said.is_empty() {
            log::info!("the aggregator is reachable");
        }
    }

    /// Logs the reason: without contact, the log is the only place to find it.
    fn failed(&mut self, why: &dyn Display) {
        let why = remedies::unreached(&why.to_string());
        if self.made {
            // Not an error: the next heartbeat follows soon, and the result is sent with retries.
            log::debug!("{why}");
        } else if self.said != why {
            log::error!("{why}");
            self.said = why;
        }
    }
}

/// Tries to connect to the host of `url`.
fn probe(url: &str, service: Option<SocketAddr>) -> io::Result<()> {
    let authority = url
        .strip_prefix("https://")
        .unwrap_or(url)
        .split('/')
        .next()
        .unwrap_or_default();
    let port = |text: &str| text.parse::<u16>().ok();
    let (host, port) = authority
        .rsplit_once(':')
        .and_then(|(host, text)| Some((host, port(text)?)))
        .unwrap_or((authority, 443));
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let addresses = (host.trim_matches(['[', ']']), port).to_socket_addrs();
    let addresses = match (addresses, service) {
        (Err(error), None) => return Err(error),
        (addresses, _) => addresses.into_iter().flatten(),
    };
    for address in addresses.chain(service) {
        match TcpStream::connect_timeout(&address, PROBE_TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn read(scope: Scope, pairs: &[(&str, &str)]) -> Result<WorkerSettings> {
        WorkerSettings::read(scope, |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    const NEEDED: [(&str, &str); 5] = [
        ("AGGREGATOR_URL", "https://10.0.0.1:8080"),
        ("CA_CERT", "ca"),
        ("CLIENT_CERT", "cert"),
        ("CLIENT_KEY", "key"),
        ("RESULT_TYPE", "e2e"),
    ];

    #[test]
    fn only_worker_asks_in_proportion_to_its_age() {
        let seconds = |id: &ResultId, age| next_pause(id, Duration::from_secs(age)).as_secs();
        for (age, only_worker) in [(0, 1), (4, 1), (20, 5), (60, 15), (86_400, 15)] {
            assert_eq!(seconds(&ResultId::global("p"), age), only_worker, "{age}");
            assert_eq!(seconds(&ResultId::on_node("p", "a"), age), 15, "{age}");
        }
    }

    #[test]
    fn missing_or_empty_settings_are_named_at_once() {
        let error = read(
            Scope::Node,
            &[("CA_CERT", "ca"), ("CLIENT_KEY", ""), ("RESULT_TYPE", "")],
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "not set in the environment: AGGREGATOR_URL, CLIENT_CERT, CLIENT_KEY, RESULT_TYPE, \
             NODE_NAME"
        );
    }

    #[test]
    fn absent_settings_have_defaults_and_old_names_are_ignored() {
        let mut pairs = NEEDED.to_vec();
        pairs.extend([
            ("RESULTS_DIR", "/old"),
            ("MASTER_URL", "https://old"),
            ("SONOBUOY_RESULTS_DIR", ""),
        ]);
        let settings = read(Scope::Global, &pairs).unwrap();
        assert_eq!(settings.results.dir, PathBuf::from("/tmp/sonobuoy/results"));
        assert_eq!(settings.progress_port, Some(8099));
        assert_eq!(settings.done_delay, Duration::from_secs(5));
        assert_eq!(settings.id, ResultId::global("e2e"));
        assert_eq!(settings.access.aggregator_url, "https://10.0.0.1:8080");
    }

    #[test]
    fn settings_are_parsed_and_nonsense_falls_back() {
        let mut pairs = NEEDED.to_vec();
        pairs.extend([
            ("NODE_NAME", "node-1"),
            ("SONOBUOY_RESULTS_DIR", "/r"),
            ("SONOBUOY_PROGRESS_PORT", "99999"),
            ("SONOBUOY_DONE_FILE_DELAY", "150ms"),
            ("SONOBUOY_UPLOAD_LIMIT", "soon"),
        ]);
        let settings = read(Scope::Node, &pairs).unwrap();
        assert_eq!(settings.id, ResultId::on_node("e2e", "node-1"));
        assert_eq!(settings.results.dir, PathBuf::from("/r"));
        assert_eq!(settings.progress_port, None);
        assert_eq!(settings.done_delay, Duration::from_millis(150));
        assert_eq!(settings.retry_limit, Duration::from_secs(3600));
    }

    #[test]
    fn route_to_the_aggregator_is_probed() {
        for host in ["127.0.0.1", "[::1]"] {
            let Ok(listener) = TcpListener::bind((host.trim_matches(['[', ']']), 0)) else {
                continue;
            };
            let url = format!(
                "https://{host}:{}/a/path",
                listener.local_addr().unwrap().port()
            );
            probe(&url, None).unwrap();
            drop(listener);
            assert_eq!(
                probe(&url, None).unwrap_err().kind(),
                io::ErrorKind::ConnectionRefused
            );
        }
        let unknown = "https://there-is-no.such-host.invalid:1";
        assert!(probe(unknown, None).is_err());
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        probe(unknown, service.local_addr().ok()).unwrap();
    }
}
