//! `sonobuoy logs`: prints the logs of a run's pods; and `sonobuoy get pod`: their names.
//!
//! Threads with `--follow`: one per container that has run, and a printer; the pods are watched on
//! the calling thread, so a container is read as soon as it runs. Ends when interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::cluster::{ClusterFlags, NamespaceFlag, RunAccess, check_namespace};
use super::flag::{Filled as _, examples, parse_seconds, within};
use super::output::{self, TableFormFlag};
use crate::remote::state::{self, RunState};
use base::Joined as _;
use base::retry::Attempts;
use base::visible;
use kube::{Client, Error, Event, Object as _, Request, Resource, Selector};
use model::names;

/// Maximum lines queued for printing.
const MAX_QUEUED_LINES: usize = 256;
/// Longer lines are printed in pieces.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Small stacks: a large cluster has one reading thread per container.
const STACK: usize = 256 << 10;
/// Maximum number of logs to follow: enough for the largest clusters.
const MAX_FOLLOWED: usize = 10_000;
/// Maximum pause within a log that is not followed.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 60_000 });

/// The container of a log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LogContainer {
    namespace: String,
    pod: String,
    container: String,
}

/// The part of the logs to print.
struct LogRequest<'a> {
    plugin: Option<&'a str>,
    container: Option<&'a str>,
    query: Vec<(&'static str, String)>,
}

/// Print the logs of a run's pods
#[derive(clap::Args)]
#[command(after_help = examples(&[
    ("Follow what a plugin prints", "sonobuoy logs -p disk --follow"),
]))]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    namespace: NamespaceFlag,
    /// Keep printing new lines
    #[arg(short, long)]
    follow: bool,
    /// Only this plugin's pods; `sonobuoy` is the aggregator
    #[arg(short, long, value_name = "NAME")]
    plugin: Option<String>,
    /// Only containers of this name
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Only this many lines from the end of each log
    #[arg(long, value_name = "LINES", value_parser = within::<i64>(0..=i64::MAX))]
    tail: Option<i64>,
    /// Only lines newer than this (seconds, or a duration such as 10m)
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    since: Option<i64>,
    /// Print the time of each line
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Print parts of a run
#[derive(clap::Args)]
pub(crate) struct GetArgs {
    #[command(subcommand)]
    part: GetPart,
}

#[derive(clap::Subcommand)]
enum GetPart {
    #[command(aliases = ["pods", "po"])]
    Pod(GetPodArgs),
}

/// Print the names of plugin pods
#[derive(clap::Args)]
struct GetPodArgs {
    #[command(flatten)]
    namespace: NamespaceFlag,
    /// Only this plugin's pods
    #[arg(short, long, value_name = "NAME")]
    plugin: Option<String>,
    #[command(flatten)]
    form: TableFormFlag,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// The namespace of the run whose pods are meant.
fn find_namespace(cluster: &ClusterFlags, flag: &NamespaceFlag) -> Result<String> {
    let access = RunAccess {
        cluster,
        namespace: flag.namespace.as_deref(),
        credentials: None,
    };
    access.find_namespace()
}

/// Runs the command.
pub(crate) fn run(args: &LogsArgs) -> Result<()> {
    let client = args.cluster.client()?;
    let namespace = find_namespace(&args.cluster, &args.namespace)?;
    let selector = match args.plugin.filled() {
        None => Selector::all(),
        Some(names::SONOBUOY) => Selector::labels(names::AGGREGATOR_SELECTORS[0]),
        Some(plugin) => Selector::labels(format!("{}={plugin}", names::LABEL_PLUGIN)),
    };
    let mut query = Vec::new();
    for (key, number) in [("tailLines", args.tail), ("sinceSeconds", args.since)] {
        query.extend(number.map(|number| (key, number.to_string())));
    }
    if args.timestamps {
        query.push(("timestamps", "true".to_owned()));
    }
    let log_request = LogRequest {
        plugin: args.plugin.filled(),
        container: args.container.filled(),
        query,
    };
    output::stream(|out| {
        let printer = Printer::new(out);
        if args.follow {
            follow(&client, &namespace, &selector, &log_request, printer)
        } else {
            print(&client, &namespace, &selector, &log_request, printer)
        }
    })
}

/// Runs `get pod`: prints the names of plugin pods, one per line.
pub(crate) fn get(args: &GetArgs) -> Result<()> {
    let GetPart::Pod(args) = &args.part;
    let client = args.cluster.client()?;
    let labels = names::plugin_selector(args.plugin.filled());
    let pods = client.list(
        &Resource::PODS,
        &find_namespace(&args.cluster, &args.namespace)?,
        &Selector::labels(labels),
    )?;
    let rows = pods.iter().map(|pod| {
        let (about, plugin) = (
            &pod["metadata"],
            &pod["metadata"]["labels"][names::LABEL_PLUGIN],
        );
        [
            &about["name"],
            &about["namespace"],
            plugin,
            &pod["spec"]["nodeName"],
            &pod["status"]["phase"],
        ]
        .map(|value| value.text().to_owned())
    });
    let rows: Vec<_> = rows.filter(|row| !row[0].is_empty()).collect();
    output::print_rows(
        args.form,
        ["name", "namespace", "plugin", "node", "phase"],
        &rows,
    );
    Ok(())
}

/// Fails if the run in the namespace is known to have no such plugin.
fn check_plugin(client: &Client, namespace: &str, plugin: Option<&str>) -> Result<()> {
    let Some(plugin) = plugin else { return Ok(()) };
    let Some(pod) = state::find(client, namespace)? else {
        return Ok(());
    };
    let run = RunState::of(&pod).document();
    let entries = run.plugins.iter().flatten();
    let plugins: BTreeSet<_> = entries.map(|entry| entry.plugin.as_str()).collect();
    ensure!(
        plugins.is_empty() || plugins.contains(plugin) || plugin == names::SONOBUOY,
        "the run in namespace `{namespace}` has no plugin `{plugin}`; it has {}",
        plugins.into_iter().joined(", ")
    );
    Ok(())
}

/// Prints the existing logs. An unreadable log is reported and the others follow; fails if none is
/// readable.
fn print(
    client: &Client,
    namespace: &str,
    selector: &Selector,
    log_request: &LogRequest<'_>,
    mut printer: Printer,
) -> Result<()> {
    let pods = client.list(&Resource::PODS, namespace, selector)?;
    if pods.is_empty() {
        check_namespace(client, namespace)?;
    }
    if pods.is_empty() && selector.labels.is_empty() {
        log::warn!("namespace `{namespace}` has no pods");
    } else if pods.is_empty() {
        check_plugin(client, namespace, log_request.plugin)?;
        log::warn!(
            "no pod of namespace `{namespace}` matches: pods of plugins are removed when their \
             results are in; their logs are in the archive, below `podlogs/`, which `sonobuoy \
             retrieve -n {namespace}` fetches"
        );
    }
    let (mut read, mut failed) = (0, 0);
    for source in pods.iter().flat_map(|pod| log_request.containers(pod)) {
        match client.stream(&log_request.request(&source), Some(SILENCE_TIMEOUT)) {
            Ok(body) => {
                read += 1;
                lines(body, &mut |line| printer.line(&source, line))
                    .with_context(|| format!("reading the log of {}", source.path()))?;
            }
            Err(error) => {
                failed += 1;
                log::warn!("no log of {}: {error}", source.path());
            }
        }
    }
    printer.break_line()?;
    printer.out.flush()?;
    if failed > 0 && read == 0 {
        bail!("none of the {failed} logs can be read");
    }
    Ok(())
}

fn follow(
    client: &Client,
    namespace: &str,
    selector: &Selector,
    log_request: &LogRequest<'_>,
    mut printer: Printer,
) -> Result<()> {
    let (sender, receiver) = sync_channel(MAX_QUEUED_LINES);
    let stop = client.stop();
    std::thread::scope(|scope| {
        let printing = base::thread("print").spawn_scoped(scope, move || {
            let outcome =
                receiver
                    .into_iter()
                    .try_for_each(|(source, line): (LogContainer, Vec<u8>)| {
                        printer.line(&source, &line)?;
                        Ok(printer.out.flush()?)
                    });
            // Nobody reads the output any more: stop all readers.
            stop.stop();
            outcome
        })?;
        let mut followed = Followed::default();
        for event in client.watch(&Resource::PODS, namespace, selector) {
            let pod = match event.inspect_err(|_| stop.stop())? {
                Event::Applied(pod) => pod,
                Event::Deleted(pod) => {
                    log_request
                        .containers(&pod)
                        .for_each(|source| drop(followed.known.remove(&source)));
                    continue;
                }
                _ => continue,
            };
            for source in log_request.containers(&pod) {
                let start = instance(&pod, &source.container).unwrap_or_default();
                let Some(reading) = followed.begin(&source, start) else {
                    continue;
                };
                let sender = sender.clone();
                base::thread("follow")
                    .stack_size(STACK)
                    .spawn_scoped(scope, move || {
                        read_along(client, &source, log_request, &sender);
                        drop(reading);
                    })
                    .inspect_err(|_| stop.stop())?;
            }
        }
        drop(sender);
        printing.join().unwrap_or(Ok(()))
    })
}

/// The logs being read, so that no server can make the command exceed the limit.
#[derive(Default)]
struct Followed {
    /// The last start of each container; empty before the first.
    known: BTreeMap<LogContainer, String>,
    /// The reference count minus one is the number of logs being read.
    reading: Arc<()>,
    omits: bool,
}

impl Followed {
    /// A guard to hold while the log of this start of a container is read; `None` if it must not be
    /// read: it is being read already, has not begun, or exceeds the limit.
    fn begin(&mut self, source: &LogContainer, start: String) -> Option<Arc<()>> {
        let last_start = self.known.get(source);
        if last_start.is_some_and(|last_start| start.is_empty() || *last_start == start) {
            return None;
        }
        if last_start.is_none() && self.known.len() >= MAX_FOLLOWED
            || Arc::strong_count(&self.reading) > MAX_FOLLOWED
        {
            if !std::mem::replace(&mut self.omits, true) {
                log::warn!(
                    "only {MAX_FOLLOWED} logs are followed, which is the limit; choose a plugin \
                     with `-p`"
                );
            }
            return None;
        }
        if start.is_empty() {
            log::info!("{} is not running yet: waiting", source.path());
        }
        let has_begun = !start.is_empty();
        // A restarted container has a separate log.
        self.known.insert(source.clone(), start);
        has_begun.then(|| Arc::clone(&self.reading))
    }
}

/// Reads one log to its end, and resumes it after interruptions.
fn read_along(
    client: &Client,
    source: &LogContainer,
    log_request: &LogRequest<'_>,
    sender: &SyncSender<(LogContainer, Vec<u8>)>,
) {
    let mut attempts = Attempts::new(u32::MAX, client.stop());
    let mut last_output: Option<Instant> = None;
    loop {
        let request = match last_output {
            None => log_request.request(source),
            // Repeating a line is better than losing one.
            Some(last_output) => source.request().query(
                "sinceSeconds",
                (last_output.elapsed().as_secs() + 1).to_string(),
            ),
        };
        let before = last_output;
        let stream = client.stream(&request.query("follow", "true"), None);
        let outcome = stream.map_err(anyhow::Error::from).and_then(|body| {
            lines(body, &mut |line| {
                last_output = Some(Instant::now());
                Ok(sender.send((source.clone(), line.to_vec()))?)
            })
        });
        match outcome {
            Ok(()) => return,
            Err(_) if client.stop().stopped() => return,
            Err(error)
                if error
                    .downcast_ref::<Error>()
                    .is_some_and(Error::is_not_found) =>
            {
                return;
            }
            Err(error) => {
                log::info!(
                    "the log of {} was cut off: {error:#}; trying again",
                    source.path()
                );
            }
        }
        if !attempts.wait_to_retry(last_output != before) {
            return;
        }
    }
}

/// Passes on lines; the last may lack its line feed.
fn lines(body: impl std::io::Read, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut reader = BufReader::new(body);
    let mut line = Vec::new();
    while reader
        .by_ref()
        .take(MAX_LINE_BYTES)
        .read_until(b'\n', &mut line)?
        > 0
    {
        sink(&line)?;
        line.clear();
    }
    Ok(())
}

/// Standard output with a header whenever the source changes.
struct Printer {
    out: BufWriter<Box<dyn Write + Send>>,
    last: Option<LogContainer>,
    /// Whether the last line is complete.
    whole: bool,
}

impl Printer {
    fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out: BufWriter::new(out),
            last: None,
            whole: true,
        }
    }

    fn line(&mut self, source: &LogContainer, line: &[u8]) -> Result<()> {
        if self.last.as_ref() != Some(source) {
            self.break_line()?;
            writeln!(self.out, "{source}")?;
            self.last = Some(source.clone());
        }
        self.out.write_all(line)?;
        self.whole = line.ends_with(b"\n");
        Ok(())
    }

    fn break_line(&mut self) -> Result<()> {
        if !self.whole {
            self.whole = true;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

impl LogRequest<'_> {
    /// The wanted containers of a pod, in the order of its spec.
    fn containers(&self, pod: &Value) -> impl Iterator<Item = LogContainer> {
        let all = pod["spec"]["containers"].items();
        let wanted =
            all.filter(|container| self.container.is_none_or(|name| container["name"] == name));
        wanted.map(move |container| LogContainer {
            namespace: pod.namespace().to_owned(),
            pod: pod.name().to_owned(),
            container: container["name"].text().to_owned(),
        })
    }

    fn request(&self, source: &LogContainer) -> Request {
        self.query
            .iter()
            .fold(source.request(), |request, (key, value)| {
                request.query(*key, value)
            })
    }
}

impl LogContainer {
    /// The source in messages.
    fn path(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.pod, self.container)
    }

    fn request(&self) -> Request {
        Request::get(&Resource::PODS, &self.namespace, &self.pod)
            .subresource("log")
            .query("container", &self.container)
    }
}

impl std::fmt::Display for LogContainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            namespace,
            pod,
            container,
        } = self;
        let text = format!("namespace=\"{namespace}\" pod=\"{pod}\" container=\"{container}\"");
        f.write_str(&visible::line(&text))
    }
}

/// The identity of a container's last start; `None` before the first.
fn instance(pod: &Value, container: &str) -> Option<String> {
    let status = pod["status"]["containerStatuses"]
        .items()
        .find(|status| status["name"] == container)?;
    let state = &status["state"];
    if state["running"].is_null() && state["terminated"].is_null() {
        return None;
    }
    let restarts = status["restartCount"].as_u64().unwrap_or_default();
    Some(format!("{}/{restarts}", pod["metadata"]["uid"].text()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use base::stop::Stop;
    use kube::Config;

    use super::*;

    #[test]
    fn no_more_logs_are_followed_than_the_limit() {
        let source = |number| LogContainer {
            namespace: "n".into(),
            pod: format!("p{number}"),
            container: "c".into(),
        };
        let mut followed = Followed::default();
        assert!(
            followed.begin(&source(0), String::new()).is_none(),
            "it has not begun"
        );
        let mut reading: Vec<_> = (0..MAX_FOLLOWED + 2)
            .filter_map(|number| followed.begin(&source(number), "first".into()))
            .collect();
        assert_eq!((reading.len(), followed.omits), (MAX_FOLLOWED, true));
        assert!(
            followed.begin(&source(0), "first".into()).is_none(),
            "it is being read"
        );
        assert!(
            followed.begin(&source(0), "second".into()).is_none(),
            "none has ended"
        );
        reading.pop();
        assert!(followed.begin(&source(0), "second".into()).is_some());
        assert!(
            followed
                .begin(&source(MAX_FOLLOWED), "first".into())
                .is_none(),
            "too many are known"
        );
        followed.known.remove(&source(1));
        assert!(
            followed
                .begin(&source(MAX_FOLLOWED), "first".into())
                .is_some()
        );
    }

    /// Answers a list with one pod, and a log with one line followed by silence.
    fn silent(listener: &TcpListener) {
        let mut held = Vec::new();
        for mut socket in listener.incoming().map_while(Result::ok) {
            let mut head = String::new();
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
            }
            let body = match head.split(' ').nth(1).unwrap_or_default() {
                "/end" => return,
                log if log.contains("/log") => {
                    "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nline\n"
                }
                _ => {
                    "HTTP/1.1 200 OK\r\nConnection: \
                     close\r\n\r\n{\"kind\":\"PodList\",\"items\":[{\"metadata\":{\"namespace\":\"\
                     n\",\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":\"c\"}]}}]}"
                }
            };
            socket.write_all(body.as_bytes()).unwrap();
            held.extend(body.contains("line").then_some(socket));
        }
    }

    #[test]
    fn silent_log_is_abandoned() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| silent(&listener));
            let client = Client::new(
                "test/1",
                Config::plain(format!("http://{address}")),
                &Stop::new(),
            )
            .unwrap();
            let log_request = LogRequest {
                plugin: None,
                container: None,
                query: Vec::new(),
            };
            let printer = Printer::new(Box::new(std::io::sink()));
            let outcome = print(&client, "n", &Selector::all(), &log_request, printer);
            TcpStream::connect(address)
                .unwrap()
                .write_all(b"GET /end HTTP/1.1\r\n\r\n")
                .unwrap();
            assert!(
                outcome
                    .unwrap_err()
                    .to_string()
                    .contains("reading the log of n/p/c")
            );
        });
    }
}
