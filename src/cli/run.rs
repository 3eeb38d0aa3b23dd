//! `sonobuoy run`: starts a run in a cluster, and waits for its end with `--wait`; with `--load`, it brings Sonobuoy's image to
//! nodes without a registry for it. `run --local`: a complete run on this machine. And `sonobuoy doctor`: checks that the
//! cluster and access to it are ready for a run.
//!
//! `run --local` prints progress to stderr and the outcome to stdout. The first Ctrl-C, SIGTERM or SIGHUP ends the plugins,
//! keeps arrived results and still creates the archive; a second one, at least a second later, exits at once without an
//! archive.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::afterwards::{Afterwards, OutputFiles, report, upload};
use super::cluster::{self, credentials};
use super::flag::{Args, interrupted, invalid, usage_error};
use super::output::{self, INTERRUPTED};
use super::run_args::{Purpose, RunArgs};
use super::status::{DAY, Wait, conclude, verdict};
use crate::board::{self, About, ProgressOutput};
use crate::deploy::{self, CHECKS, Plan, Preflight, load};
use crate::doctor::{self, Check, Subject};
use crate::names::{self, env};
use crate::pipeline::{self, LocalRun};
use crate::plugin::focus::CERTIFIED;
use crate::remote::seal::Authorities;
use crate::remote::service::{self, Service};
use crate::remote::state::StatusSource;
use crate::status;
use base::at::At as _;
use base::kube::{Client, Config};
use base::oci::{self, Store};
use base::stop::Stop;
use base::sys::{self, Signal};
use base::{small, temp, tls};

/// Larger than any manifest that a cluster accepts.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// The value of `--load` without an archive.
pub(super) const DEFAULT_ARCHIVE: &str = "default";
/// The usual places of the archive: beside the program, and where `make image` writes it.
const ARCHIVE_NAME: &str = "sonobuoy-image.tar";
/// Maximum size of the archive.
const MAX_ARCHIVE_BYTES: u64 = 256 << 20;
/// Tools of clusters on one machine: the beginning of their contexts, the program, and the words after it; `A` is the
/// archive, `C` the cluster.
const TOOLS: [(&str, &str, &[&str]); 3] = [
    ("kind-", "kind", &["load", "image-archive", "A", "--name", "C"]),
    ("k3d-", "k3d", &["image", "import", "A", "--cluster", "C"]),
    ("minikube", "minikube", &["image", "load", "A", "--profile", "minikubeC"]),
];

/// Signals within this time count as one: `timeout`, for example, signals a program and then its whole group.
const SIGNAL_MERGE_TIME: Duration = Duration::from_secs(1);

/// Exit code if a run would fail.
const NOT_READY: u8 = 3;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<u8> {
    if args.text("certify").and(args.text("product")).is_some() && args.word("mode") != CERTIFIED {
        return Err(usage_error(format!("--certify: certification requires `--mode {CERTIFIED}`")));
    }
    let is_local = args.on("local");
    let request = RunArgs::new(args, if is_local { Purpose::Local } else { Purpose::Run })?;
    warn_of_idle_flags(args);
    if is_local {
        return run_locally(args, request);
    }
    // The holder of the archive sends it.
    let by_aggregator = args.text("retrieve").or(args.text("file")).is_none();
    let url = upload(args, by_aggregator)?;
    let afterwards = Afterwards::asked(args, url.filter(|_| !by_aggregator))?;
    // Steps after the run imply waiting for it.
    let wait = Wait::asked(args, if afterwards.is_asked() { DAY } else { 0 }, request.per_test()?)?;
    let skip = skipped(args)?;
    let given = read_given(args)?;
    let image = request.config.worker_image.clone();
    let service = service(args, given.is_some())?;
    let credentials = credentials(args);
    let streamed = credentials.as_os_str() == service::STREAM;
    let mut file = match &service {
        Some(_) if !streamed => Some(service::reserve(&credentials)?),
        _ => None,
    };
    // Report problems of plugins even without a cluster.
    let (objects, namespace) = objects(request, given, |plan| {
        if let Some(service) = &service {
            plan.run.server.status_port = names::STATUS_PORT.into();
            plan.status_service = Some(service.clone());
        }
        if let Some(url) = url.filter(|_| by_aggregator) {
            plan.upload = Some(url.to_owned());
            plan.upload_authorities = tls::named()?;
        }
        plan.notes()?.iter().for_each(|note| log::warn!("{note}"));
        Ok(())
    })?;
    let dry = args.word("dry-run");
    if dry == "client" {
        output::data(&format!("{}\n", deploy::to_yaml(&objects)))?;
        return Ok(0);
    }
    let client = cluster::client(args)?;
    let checks = checks(args, &objects, &namespace, &skip);
    if args.on("doctor") {
        examine_before(&client, &objects, &checks)?;
    } else if let Some((last, others)) = checks.failures(&client).split_last() {
        log::error!("Preflight checks failed");
        others.iter().for_each(|failure| log::error!("{failure}"));
        bail!("{last}")
    }
    if args.given("load") {
        load_image(args, &client, &image)?;
    }
    deploy::apply(&client, &objects, &namespace, dry == "server")?;
    if dry == "server" {
        for object in &objects {
            let name = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
            output::print(&format!("{kind}/{} created (server dry run)\n", name("name")))?;
        }
        return Ok(0);
    }
    let is_terminal = std::io::stderr().is_terminal();
    if is_terminal {
        log::info!("the run in namespace `{namespace}` was created: {} objects", objects.len());
    }
    // The run exists, and its annotation has the status as well.
    let mut show_way = |client: &Client| {
        let Some(service) = &service else { return };
        let written = service.credentials(client, &namespace).and_then(|found| match file.take() {
            None => output::data(&found.to_text()?),
            Some(file) => found.write(file),
        });
        match written {
            Ok(()) if streamed => {}
            Ok(()) => log::info!("the run serves its status; credentials are in `{}`", credentials.display()),
            Err(error) => log::warn!("the status service cannot be used: {error:#}"),
        }
    };
    let Some(wait) = wait else {
        show_way(&client);
        if let Ok(kept) = Authorities::of_user() {
            kept.learn_soon(&client, &namespace);
        }
        if is_terminal {
            log::info!("`sonobuoy status --watch -n {namespace}` watches it");
        }
        return Ok(0);
    };
    // A load balancer may take longer than the run.
    let over = client.stop().child();
    let until_then = client.under(&over);
    let source = StatusSource::pod(client.clone());
    let run = std::thread::scope(|scope| {
        let shown = std::thread::Builder::new()
            .name("credentials".into())
            .spawn_scoped(scope, || show_way(&until_then));
        let waited = shown.context("cannot start a thread").and_then(|_| wait.wait(&source, &namespace));
        over.stop();
        waited
    })?;
    let service = if streamed { None } else { cluster::service(args, &namespace, true)? };
    let code = afterwards.run(Some(&client), &namespace, Some(&run), service.as_ref(), client.stop())?;
    Ok(conclude(&run, code, &namespace))
}

/// The requested status service.
fn service(args: Args, given: bool) -> Result<Option<Service>> {
    match args.text("status-service") {
        None | Some("none") => Ok(None),
        _ if given => {
            bail!(
                "--status-service adds to a generated manifest, but the manifest of --file is used as it is"
            )
        }
        Some(kind) => Service::new(kind).map(Some),
    }
}

/// Flags about clusters, which have no effect on this machine.
const OF_CLUSTERS: &[&str] = &[
    "kubeconfig",
    "context",
    "as",
    "as-group",
    "request-timeout",
    "namespace",
    "file",
    "delete",
    "doctor",
    "skip-preflight",
    "dns-namespace",
    "dns-pod-labels",
    "rbac",
    "aggregator-permissions",
    "aggregator-node-selector",
    "security-context-mode",
    "service-account-name",
    "existing-service-account",
    "namespace-psa-enforce-level",
    "identity",
    "harden",
    "results-pvc",
    "status-service",
    "credentials",
    "plugin-permissions",
    "plugin-image",
    "kube-conformance-image",
    "systemd-logs-image",
    "sonobuoy-image",
    "registry",
    "kit",
    "image-pull-policy",
    "force-image-pull-policy",
    "image-pull-secret",
    "load",
    "load-with",
    "dry-run",
    "show-default-podspec",
    "ssh-key",
    "ssh-user",
    "e2e-docker-config-file",
    "redact",
    "no-redact",
];
/// Flags about the e2e plugin, which needs a cluster unless another plugin has that name.
const OF_TESTS: &[&str] =
    &["mode", "e2e-focus", "e2e-skip", "e2e-repo", "e2e-repo-config", "rerun-failed", "resume"];

/// Warns of flags that have no effect in combination with others.
fn warn_of_idle_flags(args: Args) {
    let named = |flags: &[&str]| -> Vec<String> {
        flags.iter().filter(|flag| args.given(flag)).map(|flag| format!("--{flag}")).collect()
    };
    if args.on("local") {
        let mut idle = named(OF_CLUSTERS);
        if !args.all("plugin").any(|name| name.contains("e2e")) {
            idle.extend(named(OF_TESTS));
        }
        if !idle.is_empty() {
            log::warn!("--local uses no cluster, so these flags do nothing: {}", idle.join(", "));
        }
        return;
    }
    if args.given("local-nodes") {
        log::warn!("--local-nodes does nothing without --local");
    }
    let waits = ["wait", "retrieve", "junit", "html", "certify", "delete", "fail-on", "min-success"];
    let idle = named(&["output", "wait-output"]);
    let waits = !named(&waits).is_empty() || args.given("upload") && args.given("file");
    if !waits && !idle.is_empty() {
        log::warn!("nothing is waited for without --wait: {} does nothing", idle.join(" and "));
    }
}

/// The objects to create, and the namespace of their run: those of a given manifest, else of a plan.
fn objects(
    request: RunArgs,
    given: Option<Vec<Value>>,
    adjust: impl FnOnce(&mut Plan) -> Result<()>,
) -> Result<(Vec<Value>, String)> {
    if let Some(objects) = given {
        // Objects without a namespace can be created all the same.
        let home = deploy::home(&objects).map_or(request.config.namespace, str::to_owned);
        return Ok((objects, home));
    }
    let mut plan = request.plan(None)?;
    plan.check_selection()?;
    adjust(&mut plan)?;
    Ok((plan.manifest()?, plan.run.namespace))
}

/// The manifest of `--file`.
fn read_given(args: Args) -> Result<Option<Vec<Value>>> {
    let Some(file) = args.text("file") else { return Ok(None) };
    if file == "-" && std::io::stdin().is_terminal() {
        bail!("`-f -` reads a manifest from standard input, and that is a terminal; pipe a manifest into it");
    }
    let objects =
        deploy::from_yaml(&read_manifest(file)?).with_context(|| format!("`{}`", file_name(file)))?;
    if objects.iter().any(|object| object.get("sonobuoy-config").is_some()) {
        bail!("`{}` is a plugin definition and not a manifest; run it with `-p {file}`", file_name(file));
    }
    Ok(Some(objects))
}

/// The text of a manifest; `-` is standard input.
pub(super) fn read_manifest(file: &str) -> Result<String> {
    let read = match file {
        "-" => small::read_from(std::io::stdin(), MAX_MANIFEST_BYTES),
        _ => small::read(file.as_ref(), MAX_MANIFEST_BYTES),
    };
    read.and_then(small::text).with_context(|| format!("cannot read `{}`", file_name(file)))
}

fn file_name(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// The checks that `--skip-preflight` disables.
fn skipped(args: Args) -> Result<Vec<String>> {
    const ID: &str = "skip-preflight";
    let words = args.all(ID).map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.collect();
    let is_known = |word: &str| CHECKS.contains(&word) || ["true", "false", "*"].contains(&word);
    if let Some(word) = words.iter().find(|word| !is_known(word)) {
        return Err(invalid(ID, word, &format!("it must be one of {}", CHECKS.join(", "))));
    }
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let skipped = CHECKS.iter().filter(|check| !has("false") && (has("true") || has("*") || has(check)));
    Ok(skipped.map(|&check| check.to_owned()).collect())
}

/// The checks before anything is created.
fn checks<'a>(args: Args<'a>, objects: &[Value], namespace: &'a str, skip: &'a [String]) -> Preflight<'a> {
    Preflight {
        namespace,
        makes_namespace: deploy::makes_namespace(objects, namespace),
        dns_namespace: args.word("dns-namespace"),
        dns_labels: args.all("dns-pod-labels").map(str::to_owned).collect(),
        pull_secret: args.text("image-pull-secret"),
        skip,
    }
}

/// Loads `image` unless every node has it, and reports what was done.
fn load_image(args: Args, client: &Client, image: &str) -> Result<()> {
    if load::is_everywhere(client, image).unwrap_or(false) {
        log::info!("every node has the image {image} already; nothing was loaded");
        return Ok(());
    }
    let archive = archive(args)?;
    check_archive(&archive, image)?;
    let context = Config::context(&cluster::options(args)).unwrap_or_default();
    for (prefix, program, words) in TOOLS {
        let Some(name) = context.strip_prefix(prefix) else { continue };
        let path = archive.display().to_string();
        let words = words.iter().map(|word| match *word {
            "A" => path.clone(),
            word => word.replace('C', name),
        });
        let words: Vec<_> = words.collect();
        let output = Command::new(program).args(&words).output();
        let output = output
            .with_context(|| format!("--load: the context `{context}` needs the program `{program}`"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "`{program} {}` failed: {}",
            words.join(" "),
            base::visible::line(said.trim())
        );
        log::info!("`{program} {}` loaded {image} into the nodes", words.join(" "));
        return Ok(());
    }
    let bytes = small::read(&archive, MAX_ARCHIVE_BYTES).at("cannot read", &archive)?;
    let count = load::load(client, &bytes, args.text("load-with")).with_context(|| {
        format!("--load: {image} is not in all nodes; load `{}` with the tools of the cluster, or push it to a registry", archive.display())
    })?;
    log::info!("a privileged pod on each of {count} nodes loaded {image} from `{}`", archive.display());
    Ok(())
}

/// The archive to load.
fn archive(args: Args) -> Result<PathBuf> {
    let named = args.text("load").filter(|name| *name != DEFAULT_ARCHIVE).map(PathBuf::from);
    named.or_else(usual_archive).context(
        "--load: there is no `sonobuoy-image.tar` beside this program or in `target`; `make image` builds it, kits and releases have it; \
         name it with --load=ARCHIVE",
    )
}

/// The archive of Sonobuoy's image in a usual place.
pub(super) fn usual_archive() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(ARCHIVE_NAME));
    beside.into_iter().chain([Path::new("target").join(ARCHIVE_NAME)]).find(|path| path.exists())
}

/// Checks that the archive has the image by this name.
fn check_archive(archive: &Path, image: &str) -> Result<()> {
    let work = temp::Folder::new()?;
    let stored = oci::read_archive(archive, &Store::open(&work)?)?;
    let names: Vec<_> = stored.iter().map(|stored| stored.name.to_string()).collect();
    if names.iter().any(|name| name == image) {
        return Ok(());
    }
    match &names[..] {
        [] => bail!("`{}` has no image", archive.display()),
        names => bail!(
            "--load: `{}` has {}, and the run uses {image}; add --sonobuoy-image {}",
            archive.display(),
            names.join(", "),
            names[0]
        ),
    }
}

/// A complete run on this machine. The first signal ends the plugins; a second one exits at once.
fn run_locally(args: Args, request: RunArgs) -> Result<u8> {
    if args.all("plugin").next().is_none() {
        bail!("--local needs a plugin whose command is on this machine; name it with `-p FILE`");
    }
    let per_test = request.per_test()?;
    let plan = request.plan(None)?;
    let definitions = plan.prepared()?;
    let mut local = LocalRun {
        definitions: &definitions,
        config: plan.run,
        nodes: usize::try_from(args.number("local-nodes"))?,
        out: PathBuf::from(args.text("retrieve").unwrap_or(".")),
        program: std::env::current_exe().context("cannot find this program's own file")?,
        worker_env: worker_env(),
    };
    let work = local.prepare()?;
    let uuid = local.config.uuid.clone();
    std::fs::create_dir_all(&local.out).at("cannot create", &local.out)?;
    // Check the folder before hours of work.
    temp::file(&local.out).with_context(|| {
        format!(
            "cannot write an archive to `{}`; name another folder with `--retrieve DIR`",
            local.out.display()
        )
    })?;

    let outputs = OutputFiles::open(args)?;
    let upload = upload(args, false)?;

    let stop = Stop::new();
    let asked = stop.clone();
    let mut first: Option<Instant> = None;
    sys::on_signal(&[Signal::Hangup, Signal::Interrupt, Signal::Terminate], move || {
        if first.get_or_insert_with(Instant::now).elapsed() >= SIGNAL_MERGE_TIME {
            log::warn!("ended without an archive; the unfinished run remains in `{}`", work.display());
            sys::end_strays();
            temp::exit(i32::from(INTERRUPTED));
        }
        log::warn!(
            "interrupted: stopping the plugins and packing what has arrived; interrupt again to exit at once, without an archive"
        );
        asked.stop_because("it was interrupted");
    })?;
    let about = About {
        title: "run on this machine".into(),
        limit: match local.config.server.timeout_seconds {
            0 => String::new(),
            seconds => format!("time limit {}", board::span(Duration::from_secs(seconds.unsigned_abs()))),
        },
        hint: "Ctrl-C keeps what has arrived".into(),
        per_test,
    };
    let output = output::or_log(args);
    let mut complete = status::Run::default();
    let ended = output::with_board(output, |board| {
        // A closed output does not stop the run.
        let watch = |status: &status::Run| {
            if status.status == status::COMPLETE {
                complete.clone_from(status);
            }
            let mut scene = board::of_run(status, &about);
            if output == ProgressOutput::Board && status.status != status::RUNNING {
                // The report has more detail.
                scene.troubles.clear();
            }
            drop(board.show(scene));
        };
        local.run(watch, &stop)
    })?;
    let kept = Authorities::of_user().and_then(|kept| kept.keep(&uuid, &ended.authority));
    if let Err(error) = kept {
        log::warn!("the archive's seal can be checked only where its authority is known: {error:#}");
    }
    let mut unsent = false;
    if let Some(url) = upload
        && let Err(error) = pipeline::upload(std::slice::from_ref(&ended.archive), url, &Stop::new())
    {
        log::error!("{error:#}; the archive is `{}`", ended.archive.display());
        unsent = true;
    }
    let wholes = definitions.iter().filter(|definition| definition.config.part_of.is_none());
    let names: Vec<String> = wholes.map(|definition| definition.name().to_owned()).collect();
    // Without a cluster there is nothing to show about its health.
    let code = report(args, &outputs, &ended.archive, Some(&names), true)?;
    if stop.stopped() {
        return Ok(INTERRUPTED);
    }
    let code = if ended.errors == 0 && !unsent { code } else { code.max(1) };
    Ok(verdict(&complete, code))
}

/// Worker settings that apply to the whole run.
fn worker_env() -> Vec<(String, String)> {
    // A local disk needs no delay for slow volumes.
    [(env::DONE_FILE_DELAY, Some("250ms")), (env::UPLOAD_LIMIT, None)]
        .into_iter()
        .filter_map(|(name, usual)| {
            Some((name.to_owned(), std::env::var(name).ok().or(usual.map(str::to_owned))?))
        })
        .collect()
}

/// Runs `doctor`.
pub(crate) fn doctor(args: Args) -> Result<u8> {
    let request = RunArgs::new(args, Purpose::Run)?;
    let stop = output::stop_on_signal()?;
    let client = cluster::client(args)?.under(&stop);
    let format = args.word("format");
    let tell = |check: &Check| match format {
        "text" => output::print(&check.lines()),
        _ => Ok(()),
    };
    let checks = match doctor::reach(&client) {
        (server, true) => {
            let (objects, namespace) = objects(request, read_given(args)?, |_| Ok(()))?;
            let skip = skipped(args)?;
            let preflight = checks(args, &objects, &namespace, &skip);
            examine(&client, server, &objects, &preflight, &args.all("nodes").collect::<Vec<_>>(), &tell)?
        }
        (server, false) => {
            tell(&server)?;
            vec![server]
        }
    };
    output::print(&match format {
        "text" => doctor::verdict(&checks),
        _ => doctor::show(&checks, format),
    })?;
    Ok(if doctor::is_ready(&checks) { 0 } else { NOT_READY })
}

/// Checks the cluster for `run --doctor`.
fn examine_before(client: &Client, objects: &[Value], preflight: &Preflight) -> Result<()> {
    let tell = |check: &Check| {
        check.lines().lines().for_each(|line| log::info!("{line}"));
        Ok(())
    };
    let checks = examine(client, doctor::reach(client).0, objects, preflight, &[doctor::SAMPLE], &tell)?;
    log::info!("{}", doctor::verdict(&checks).trim_end());
    if !doctor::is_ready(&checks) {
        bail!("`--doctor` found something that would fail: nothing was created");
    }
    Ok(())
}

fn examine(
    client: &Client,
    server: Check,
    objects: &[Value],
    preflight: &Preflight,
    nodes: &[&str],
    tell: &dyn Fn(&Check) -> Result<()>,
) -> Result<Vec<Check>> {
    let subject = Subject::new(objects, preflight.namespace)?;
    let checks = doctor::examine(client, server, &subject, preflight, nodes, tell)?;
    if client.stop().stopped() {
        let said = "interrupted; everything that was created for the checks has been removed";
        return Err(interrupted(said));
    }
    Ok(checks)
}
