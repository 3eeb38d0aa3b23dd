//! `sonobuoy worker`: the container next to a plugin.
//!
//! Starts the thread `containers` in a pod, and joins it: it watches for the end of the other containers.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use super::flag::Args;
use crate::driver::process::hold_lifeline;
use crate::names::{self, env};
use crate::worker::{self, End, Others, Scope, WorkerSettings};
use base::kube::{Client, Config, Event, Object as _, Options, Resource, Selector};
use base::logger;
use base::stop::Stop;
use base::sys::{self, Signal, variable};

/// Poll interval for an account that may read its pod but not watch it.
const ASK: Duration = Duration::from_secs(5);

/// Runs `worker global` or `worker single-node`.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    // Manifests of every version start workers with `--level=trace`, and their logs go into the archive.
    logger::ours_alone();
    let (scope, sleep) = match args.subcommand() {
        Some(("single-node", args)) => (Scope::Node, args.number("sleep")),
        _ => (Scope::Global, 0),
    };
    if let Some((how, results)) = variable(env::LIFELINE).zip(variable(env::RESULTS_DIR)) {
        hold_lifeline(&how, results)?;
    }
    let term = Stop::new();
    let asked = term.clone();
    sys::on_signal(&[Signal::Terminate], move || asked.stop())?;
    let outcome = work(scope, &variable, &term);
    if let (Err(error), Some(_)) = (&outcome, variable(env::PLUGIN_POD)) {
        // The termination log reports the error even if the network blocks all traffic.
        leave(names::TERMINATION_LOG.as_ref(), error);
    }
    outcome?;
    worker::linger(sleep, &term);
    Ok(0)
}

/// Writes the error to the container's termination log, if Kubernetes reads it.
fn leave(place: &Path, error: &anyhow::Error) {
    let file = std::fs::OpenOptions::new().write(true).open(place);
    let left = file.and_then(|mut file| write!(file, "{error:#}"));
    if let Err(error) = left {
        log::debug!("cannot write `{}`: {error}", place.display());
    }
}

fn work(scope: Scope, variable: &dyn Fn(&str) -> Option<String>, term: &Stop) -> anyhow::Result<()> {
    let settings = WorkerSettings::read(scope, |name| std::env::var(name).ok())?;
    // Without Kubernetes, the operator names a file that is created after all other processes succeeded.
    if let Some(path) = variable(env::OTHERS_ENDED_FILE) {
        let submitted = worker::run(&settings, &Others::Marker(path.into()), term)?;
        // The other processes wait for the result; Kubernetes detects its absence without them.
        ensure!(submitted, "asked to stop before there was a result");
    } else {
        // Ends after the worker, not with `term`: within a pod's grace period others may still end.
        let over = Stop::new();
        match OwnPod::read(variable, &over) {
            Some(pod) => beside(&pod, &over, |others| worker::run(&settings, others, term))?,
            None => worker::run(&settings, &Others::Unknown, term)?,
        };
    }
    Ok(())
}

/// The worker's own pod.
struct OwnPod {
    client: Client,
    namespace: String,
    name: String,
    /// The worker's container.
    worker: String,
}

impl OwnPod {
    /// Reads the pod; `None` outside a pod, or without an account that may read it.
    fn read(variable: &dyn Fn(&str) -> Option<String>, stop: &Stop) -> Option<Self> {
        let (namespace, name) = (variable(env::NAMESPACE)?, variable(env::PLUGIN_POD)?);
        let client = Config::load(&Options::default()).and_then(|config| Client::new(config, stop));
        match client {
            Ok(client) => {
                let worker =
                    variable(env::WORKER_CONTAINER).unwrap_or_else(|| names::WORKER_CONTAINER.into());
                // Most results end with a done file: an unavailable API server only costs the convenience.
                Some(Self { client: client.patience(ASK * 12), namespace, name, worker })
            }
            Err(error) => {
                // A plugin with `permissions: none` has no account.
                log::debug!(
                    "only a done file ends this plugin, since its containers cannot be watched: {error}"
                );
                None
            }
        }
    }

    /// Reports when all other containers have succeeded.
    fn watch(&self, end: &End) {
        for event in self.client.watch(&Resource::PODS, &self.namespace, &Selector::name(&self.name)) {
            match event {
                Ok(Event::Applied(pod)) if self.tell(&pod, end) => return,
                Ok(_) => {}
                Err(error) if error.is_forbidden() => return self.poll(end),
                Err(error) => log::warn!("cannot watch the containers of `{}`: {error}", self.name),
            }
        }
    }

    fn poll(&self, end: &End) {
        let mut told = false;
        loop {
            match self.client.get(&Resource::PODS, &self.namespace, &self.name) {
                Ok(pod) if self.tell(&pod, end) => return,
                // On thousands of nodes, repeated requests would burden the API server.
                Err(error) if error.is_forbidden() => {
                    return log::debug!("only a done file ends this plugin: {error}");
                }
                Err(error) if !told => {
                    told = true;
                    log::warn!("cannot tell whether the containers of `{}` have ended: {error}", self.name);
                }
                _ => {}
            }
            if self.client.stop().wait(ASK) {
                return;
            }
        }
    }

    fn tell(&self, pod: &Value, end: &End) -> bool {
        let ended = ended(pod, &self.worker);
        if ended {
            // In a pod that is always restarted, containers run again.
            if pod["spec"]["restartPolicy"] != "Always" {
                end.for_good.stop();
            }
            end.well.stop();
        }
        ended
    }
}

/// Runs `work` while the other containers are watched.
fn beside<T>(
    pod: &OwnPod,
    over: &Stop,
    work: impl FnOnce(&Others) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let end = End::default();
    std::thread::scope(|scope| {
        let watch = || pod.watch(&end);
        base::thread("containers").spawn_scoped(scope, watch)?;
        let outcome = work(&Others::Told(end.clone()));
        over.stop();
        outcome
    })
}

/// Whether every container but the worker's has ended with status 0, now or before its last start. Init and ephemeral
/// containers do not count.
fn ended(pod: &Value, worker: &str) -> bool {
    let statuses = pod["status"]["containerStatuses"].items();
    let mut others = statuses.filter(|status| status["name"] != worker).peekable();
    others.peek().is_some()
        && others.all(|status| {
            ["lastState", "state"].iter().any(|state| status[state]["terminated"]["exitCode"] == 0)
        })
}

#[cfg(test)]
mod tests {
    use base::json::json;

    use super::*;

    #[test]
    fn termination_message_is_written_if_its_file_exists() {
        let folder = base::temp::Folder::new().unwrap();
        let place = folder.join("log");
        let error = anyhow::anyhow!("connection refused").context("cannot submit the result");
        leave(&place, &error);
        assert!(!place.exists(), "it is Kubernetes that makes the place");
        std::fs::write(&place, "").unwrap();
        leave(&place, &error);
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "cannot submit the result: connection refused");
    }

    #[test]
    fn all_other_containers_must_have_succeeded() {
        let (good, bad) = (json!({"terminated": {"exitCode": 0}}), json!({"terminated": {"exitCode": 1}}));
        let running = json!({"running": {}});
        let check = |wanted: bool, statuses: Value| {
            assert_eq!(ended(&json!({"status": {"containerStatuses": statuses}}), "w"), wanted, "{statuses}");
        };
        let worker = json!({"name": "w", "state": running});
        check(true, json!([worker, {"name": "a", "state": good}]));
        check(true, json!([worker, {"name": "a", "state": running, "lastState": good}]));
        check(false, json!([worker, {"name": "a", "state": good}, {"name": "b", "state": bad}]));
        check(false, json!([worker, {"name": "a", "state": running}]));
        check(false, json!([worker]));
        check(false, json!(null));
    }
}
