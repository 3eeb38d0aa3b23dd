//! Failing disks, files, threads and connections: the run ends, and exits with 0 only if every
//! expected result is in the archive, intact.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::channel::with_aggregator;
use super::support::watchdog::Watchdog;
use super::support::{Archive, Folder, Sonobuoy, any_program, fixture, program, skipped};
use base::stop::Stop;
use client::protocol::ResultId;
use sonobuoy::outside::Limits;

const SEEDS: u64 = 400;
/// Simultaneous runs; each mostly waits.
const AT_ONCE: usize = 6;
const NODES: usize = 3;

/// Each node sends a file with its name many times.
const FILE_SCRIPT: &str = "yes $NODE_NAME | head -n 2000 > out; ls -d $RESULTS_DIR/out > done";
/// Each node sends a folder with that file and others.
const FOLDER_SCRIPT: &str = "mkdir -p tree/sub; yes $NODE_NAME | head -n 2000 > tree/out
      for part in 1 2 3; do yes $NODE_NAME | head -n 2000 > tree/sub/$part; done
      ls -d $RESULTS_DIR/tree > done";
/// Files of such a folder.
const FOLDER_FILES: [&str; 4] = ["out", "sub/1", "sub/2", "sub/3"];

/// What each node sends.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    File,
    Folder,
}

impl Sent {
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::File => &FOLDER_FILES[..1],
            Self::Folder => &FOLDER_FILES,
        }
    }

    /// The definition of a plugin whose workers have this environment.
    fn definition(self, worker_env: &[(&str, String)]) -> String {
        let script = if self == Self::Folder {
            FOLDER_SCRIPT
        } else {
            FILE_SCRIPT
        };
        let variable =
            |(name, value): &(&str, String)| format!("{{name: {name}, value: \"{value}\"}}");
        let env: Vec<String> = worker_env.iter().map(variable).collect();
        format!(
            "sonobuoy-config: {{driver: DaemonSet, plugin-name: p, result-format: raw}}
spec:
  name: plugin
  env: [{}]
  command: [sh, -c]
  args:
  - |
      set -e; cd $RESULTS_DIR; {script}
",
            env.join(", ")
        )
    }
}

/// A run of `nodes` nodes that send files, with temporary files, home and archive in one folder.
fn run(nodes: usize) -> (Command, Folder) {
    let words = "run --local --fail-on incomplete --timeout 4 -p plugin.yaml --retrieve archive --local-nodes";
    let run = Sonobuoy::new(words)
        .arg(nodes.to_string())
        .file("plugin.yaml", Sent::File.definition(&[]));
    let run = run.file("tmp/keep", "");
    let tmp = run.folder().join("tmp");
    let run = run
        .env("TMPDIR", tmp)
        .env("SONOBUOY_DONE_FILE_DELAY", "0")
        .env("SONOBUOY_UPLOAD_LIMIT", "2s");
    run.command()
}

/// Waits for the end of a run and checks its archive.
#[track_caller]
fn check(case: &str, command: Command, folder: &Folder, nodes: usize) -> ExitStatus {
    check_sent(case, command, folder, nodes, Sent::File)
}

/// Like [`check`], for any results.
#[track_caller]
fn check_sent(
    case: &str,
    mut command: Command,
    folder: &Folder,
    nodes: usize,
    sent: Sent,
) -> ExitStatus {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let watchdog = Watchdog::over(&child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!watchdog.bit(), "{case}: still running: {said}");
    assert!(!said.contains("this is a bug"), "{case}: {said}");
    let out = folder.join("archive");
    let names = if out.is_dir() {
        Folder::names_of(&out)
    } else {
        Vec::new()
    };
    assert!(
        !names.iter().any(|name| name.starts_with('.')),
        "{case}: {names:?}: {said}"
    );
    if output.status.success() || names.iter().any(|name| name.ends_with(".tar.gz")) {
        let archive = Archive::only_one_in(&out);
        assert_eq!(names.len(), 3, "{case}: an archive has a seal: {names:?}");
        let complete = (1..=nodes).all(|number| is_intact(&archive, number, sent));
        assert!(
            complete || !output.status.success(),
            "{case}: exit code 0: {said}"
        );
        let tree = "plugins/p/sonobuoy_results.yaml";
        let passed = archive.names().any(|name| name == tree)
            && archive.text(tree).contains("\nstatus: passed");
        assert!(complete || !passed, "{case}: passed");
    }
    output.status
}

/// Whether the archive has all files of a node as the plugin wrote them.
fn is_intact(archive: &Archive, number: usize, sent: Sent) -> bool {
    let is_node = |name: &str| match name.rsplit_once('-') {
        Some((_, last)) if last.parse::<usize>().is_ok() => last == number.to_string(),
        _ => number == 1,
    };
    let folders = archive
        .names()
        .filter_map(|name| name.strip_prefix("plugins/p/results/"));
    let Some(node) = folders
        .filter_map(|name| Some(name.split_once('/')?.0))
        .find(|node| is_node(node))
    else {
        return false;
    };
    let content = format!("{node}\n").repeat(2_000);
    sent.files().iter().all(|file| {
        let path = format!("plugins/p/results/{node}/{file}");
        archive.names().any(|name| name == path) && archive.text(&path) == content
    })
}

/// The compiled injector; `None` without a compiler.
pub fn injector(folder: &Folder) -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        skipped("LD_PRELOAD", "this system has no such variable");
        return None;
    }
    let compiler = any_program(&["cc", "gcc", "clang"])?;
    let library = folder.join("faults.so");
    let built = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-w", "-o"])
        .arg(&library)
        .arg(fixture("faults.c"))
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Some(library)
}

/// A fault to inject, and where.
struct Fault {
    /// In the injector's syntax.
    request: String,
    /// In a worker instead of the aggregator.
    in_worker: bool,
    sent: Sent,
}

impl Fault {
    fn of(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut pick = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        let calls = [
            ("write", 60),
            ("sync", 25),
            ("rename", 12),
            ("create", 40),
            ("mkdir", 30),
            ("open", 60),
            ("list", 40),
            ("thread", 30),
            // Twice as often, since they have more errors.
            ("read", 60),
            ("read", 60),
            ("write", 60),
        ];
        let (call, most) = calls[usize::try_from(pick(calls.len() as u64)).unwrap()];
        // EIO, ENOSPC, EMFILE, EACCES, EDQUOT; for transfers EIO, EIO, a short one, EINTR, ENOSPC
        let errors = if matches!(call, "read" | "write") {
            [5, 5, 0, 4, 28]
        } else {
            [5, 28, 24, 13, 122]
        };
        let error = errors[usize::try_from(pick(5)).unwrap()];
        let mut count = [1, 2, 5, 0, -1][usize::try_from(pick(5)).unwrap()];
        if error == 4 && count == 0 {
            // Nothing is interrupted for ever.
            count = 20;
        }
        let in_worker = pick(2) == 1;
        let sent = if pick(2) == 1 {
            Sent::Folder
        } else {
            Sent::File
        };
        // A worker makes few calls.
        let most = if in_worker { most / 3 } else { most };
        // Every first call would be every call.
        let first = pick(most) + if count == -1 { 2 } else { 1 };
        Self {
            request: format!("{call} {first} {count} {error}"),
            in_worker,
            sent,
        }
    }

    /// The environment of a disturbed process, of which files in `below` are concerned.
    fn env(&self, library: &Path, below: &Path, hit: &Path) -> [(&'static str, String); 5] {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        [
            ("LD_PRELOAD", text(library)),
            ("FAULTS", self.request.clone()),
            ("FAULTS_BELOW", text(below)),
            ("FAULTS_HIT", text(hit)),
            ("FAULTS_IN", "sonobuoy".into()),
        ]
    }
}

#[test]
fn no_injected_fault_makes_an_incomplete_run_pass() {
    let folder = Folder::new();
    let Some(library) = injector(&folder) else {
        return;
    };
    // Another starting seed is another set of faults.
    let from = std::env::var("SONOBUOY_FAULTS_FROM")
        .ok()
        .and_then(|from| from.parse().ok())
        .unwrap_or(0);
    let (next, hits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let seed @ 0..SEEDS = next.fetch_add(1, Ordering::Relaxed) as u64 {
                    let fault = Fault::of(from + seed);
                    let (mut command, own) = run(NODES);
                    let hit = folder.join(&format!("hit-{seed}"));
                    let env = fault.env(&library, own.path(), &hit);
                    let (worker_env, our_env) = if fault.in_worker {
                        (&env[..], &[][..])
                    } else {
                        (&[][..], &env[..])
                    };
                    own.write("plugin.yaml", fault.sent.definition(worker_env));
                    command.envs(our_env.iter().cloned());
                    let side = if fault.in_worker {
                        "worker"
                    } else {
                        "aggregator"
                    };
                    let case = format!("seed {}: {} in the {side}", from + seed, fault.request);
                    check_sent(&case, command, &own, NODES, fault.sent);
                    hits.fetch_add(usize::from(hit.exists()), Ordering::Relaxed);
                }
            });
        }
    });
    let hits = hits.into_inner() as u64;
    assert!(hits > SEEDS / 2, "only {hits} faults were met");
}

/// A run of one node whose worker meets this fault at paths with this end. Returns its outcome and
/// messages.
fn run_with_fault_at(end: &str, request: &str, sent: Sent) -> Option<(ExitStatus, Archive)> {
    let (mut command, folder) = run(1);
    let library = injector(&folder)?;
    let fault = Fault {
        request: request.into(),
        in_worker: true,
        sent,
    };
    let hit = folder.join("hit");
    let mut env = fault.env(&library, folder.path(), &hit).to_vec();
    env.push(("FAULTS_AT", end.into()));
    folder.write("plugin.yaml", sent.definition(&env));
    // The last one of two counts.
    command.args(["--timeout", "60"]);
    let status = check_sent(request, command, &folder, 1, sent);
    assert!(hit.exists(), "{request} at {end} was not met");
    Some((status, Archive::only_one_in(&folder.join("archive"))))
}

#[test]
fn failing_result_file_is_reported_at_once() {
    for (end, sent) in [("/results/out", Sent::File), ("/sub/2", Sent::Folder)] {
        let Some((status, archive)) = run_with_fault_at(end, "read 1 0 5", sent) else {
            return;
        };
        assert!(!status.success());
        let error = archive.text(&archive.named("/error.json"));
        assert!(
            error.contains("cannot read `") && error.contains("Input/output error"),
            "{error}"
        );
        assert!(error.contains(end) && !error.contains("timeout"), "{error}");
    }
}

#[test]
fn passing_error_of_the_disk_loses_no_result() {
    let cases = [
        ("/results/out", "read 1 2 5", Sent::File),
        ("/results/out", "read 1 9 4", Sent::File),
        ("/sub/2", "read 1 2 5", Sent::Folder),
        ("/results/done", "open 1 1 5", Sent::File),
        ("/results/done", "read 1 1 5", Sent::File),
    ];
    for (end, request, sent) in cases {
        let Some((status, _)) = run_with_fault_at(end, request, sent) else {
            return;
        };
        assert!(status.success(), "{request} at {end}");
    }
}

/// Runs the command under shell limits.
fn limited(command: &Command, folder: &Folder, limits: &str, before: &[&str]) -> Command {
    let mut words = before.iter().copied().chain(["sh", "-c"]);
    let mut limited = Command::new(words.next().unwrap());
    limited
        .args(words)
        .arg(format!("{limits}; exec \"$0\" \"$@\""))
        .arg(command.get_program());
    limited
        .args(command.get_args())
        .current_dir(folder.path())
        .env_clear();
    limited.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    limited
}

#[test]
fn exhausted_files_and_threads_fail_nodes_without_hanging() {
    for limit in ["ulimit -n 26", "ulimit -n 40", "ulimit -f 1", "ulimit -f 8"] {
        let (command, folder) = run(8);
        let command = limited(&command, &folder, limit, &[]);
        check(limit, command, &folder, 8);
    }
    // Root has no limit of processes.
    let is_root = rustix::process::geteuid().is_root();
    if is_root && program("setpriv").is_none() {
        return;
    }
    for count in [12, 20, 40] {
        let (command, folder) = run(8);
        let limit = format!("ulimit -u {count}");
        let nobody = [
            "setpriv",
            "--reuid=65533",
            "--regid=65534",
            "--clear-groups",
        ];
        if is_root {
            open_to_all(folder.path());
        }
        let command = limited(
            &command,
            &folder,
            &limit,
            if is_root { &nobody } else { &[] },
        );
        check(&limit, command, &folder, 8);
    }
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    for entry in path.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            open_to_all(&path);
        }
    }
}

#[test]
fn read_only_home_is_a_warning() {
    let (mut command, folder) = run(2);
    command.env("HOME", "/proc/self");
    assert!(check("read-only home", command, &folder, 2).success());
}

/// A small separate disk.
struct Disk(Folder);

impl Disk {
    /// `None` without permission to mount one.
    fn new(size: &str) -> Option<Self> {
        let folder = Folder::new();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            skipped("root", "a full disk is mounted by root alone");
            return None;
        }
        Some(Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
    }
}

#[test]
fn temporarily_full_disk_loses_no_result_silently() {
    for stage in 0..10 {
        let Some(disk) = Disk::new("100m") else {
            return;
        };
        let (mut command, folder) = run(NODES);
        command.env("TMPDIR", disk.0.path());
        let full = Duration::from_millis(100 * stage);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Stop::new().wait(full);
                let path = disk.0.join("filling");
                if let Ok(mut file) = std::fs::File::create(&path) {
                    let block = vec![1; 1 << 20];
                    while file.write_all(&block).is_ok() {}
                    Stop::new().wait(Duration::from_millis(600));
                }
                let _ = std::fs::remove_file(path);
            });
            check(&format!("full after {full:?}"), command, &folder, NODES);
        });
    }
}

#[test]
fn full_disk_keeps_the_previous_page() {
    let Some(disk) = Disk::new("64k") else { return };
    let page = disk.0.write("page.html", "the page of before");
    disk.0.write("filling", vec![1; 56 << 10]);
    let (mut command, folder) = run(1);
    let status = check(
        "page",
        {
            command.arg("--html").arg(&page);
            command
        },
        &folder,
        1,
    );
    assert_eq!(status.code(), Some(1));
    assert_eq!(disk.0.read("page.html"), "the page of before");
    assert_eq!(disk.0.names(), ["filling", "page.html"]);
}

#[test]
fn archive_without_room_for_its_seal_is_not_kept() {
    let mut ends = std::collections::BTreeSet::new();
    for pages in 1..6 {
        let Some(disk) = Disk::new(&format!("{}k", 4 * pages)) else {
            return;
        };
        let (command, folder) = run(1);
        std::os::unix::fs::symlink(disk.0.path(), folder.join("archive")).unwrap();
        let status = check(&format!("{pages} pages"), command, &folder, 1);
        let names = disk.0.names();
        assert_eq!(
            names.len(),
            if status.success() { 3 } else { 0 },
            "{names:?}"
        );
        ends.insert((status.success(), names.len()));
    }
    assert_eq!(ends.len(), 2, "no disk was too small, or all were");
}

#[test]
fn archive_and_seal_stay_together_when_a_sync_fails() {
    let folder = Folder::new();
    let Some(library) = injector(&folder) else {
        return;
    };
    let mut failures = 0;
    // Three files are synced, each with its folder; a failed archive is packed once more.
    for number in 1..=6 {
        let (mut command, own) = run(1);
        command
            .env("LD_PRELOAD", &library)
            .env("FAULTS", format!("sync {number} 1 5"));
        command
            .env("FAULTS_BELOW", own.join("archive"))
            .env("FAULTS_HIT", folder.join("hit"));
        let status = check(&format!("sync {number}"), command, &own, 1);
        failures += u32::from(!status.success());
        let files = own.join("archive").read_dir().unwrap().count();
        assert!(
            files == 3 || files == 0 && !status.success(),
            "sync {number}: {files} files"
        );
    }
    assert!(failures > 0, "no sync failed");
}

/// Forwards connections to `to`. On the first one, the aggregator receives at most `bytes` and then
/// end of stream, while the worker can send everything.
fn half_closing(to: String, bytes: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, worker) in listener.incoming().enumerate() {
            let (mut worker, aggregator) = (worker.unwrap(), TcpStream::connect(&to).unwrap());
            let (mut answers, mut back) =
                (aggregator.try_clone().unwrap(), worker.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || {
                let most = if number == 0 { bytes } else { u64::MAX };
                let _ = std::io::copy(&mut (&worker).take(most), &mut &aggregator);
                let _ = aggregator.shutdown(Shutdown::Write);
                let _ = std::io::copy(&mut worker, &mut std::io::sink());
            });
        }
    });
    address
}

#[test]
fn half_closed_connection_is_retried() {
    for size in [3_000_usize, 300_000, 5_000_000] {
        for bytes in [2_500, 200_000, 1_000_000] {
            with_aggregator(Limits::default(), |aggregator| {
                let mut access = aggregator.access.clone();
                let to = access
                    .aggregator_url
                    .strip_prefix("https://")
                    .unwrap()
                    .to_owned();
                access.aggregator_url = format!("https://{}", half_closing(to, bytes));
                let client = client::Client::new(&access, ResultId::on_node("p", "n")).unwrap();
                let content = vec![b'x'; size];
                let sent = client.submit_bytes("result", &content);
                assert!(
                    matches!(sent, Ok(client::Submitted::Accepted)),
                    "{size} {bytes}: {sent:?}"
                );
                assert_eq!(aggregator.stored().map(String::into_bytes), Some(content));
            });
        }
    }
}

#[test]
fn relative_tmpdir_works_and_an_empty_one_is_ignored() {
    for given in ["tmp", "./tmp/../tmp", ""] {
        let (mut command, folder) = run(1);
        command.env("TMPDIR", given);
        assert!(check(given, command, &folder, 1).success());
        assert_eq!(
            folder.names(),
            [".sonobuoy", "archive", "plugin.yaml", "tmp"],
            "{given:?}"
        );
        assert_eq!(Folder::names_of(&folder.join("tmp")), ["keep"]);
    }
}

/// Runs `script`, which ends without a result, and returns the error that is reported in place of
/// it.
#[track_caller]
fn reported_error(script: &str, limit: u32) -> String {
    let definition = format!(
        "sonobuoy-config: {{driver: Job, plugin-name: p}}\nspec: {{name: plugin, command: [sh, -c, '{script}']}}\n"
    );
    let words = format!("run --local -p plugin.yaml --timeout {limit}");
    let run = Sonobuoy::new(&words).file("plugin.yaml", definition);
    let done = run.env("SONOBUOY_DONE_FILE_DELAY", "0").status(1).run_any();
    Archive::only_one_in(done.folder.path()).text("plugins/p/errors/global/error.json")
}

const GROWING_FILE: &str =
    "cd $RESULTS_DIR; head -c 20000000 /dev/zero > r; ls -d $RESULTS_DIR/r > done;
    while :; do echo line >> r; done";

#[test]
fn growing_file_is_reported_with_the_reason() {
    let error = reported_error(GROWING_FILE, 60);
    assert!(
        error.contains("it changed while it was sent, 5 times"),
        "{error}"
    );
}

#[test]
fn change_of_a_result_explains_a_time_limit() {
    let error = reported_error(GROWING_FILE, 6);
    assert!(
        error.contains("`r` changed while it was sent; timeout: no result within"),
        "{error}"
    );
}

#[test]
fn compressed_file_that_is_no_archive_is_an_error() {
    let script = "cd $RESULTS_DIR; echo line | gzip > log.gz; ls -d $RESULTS_DIR/log.gz > done";
    let error = reported_error(script, 60);
    assert!(error.contains("the gzip tar is damaged"), "{error}");
}

#[test]
fn growing_folder_is_reported_with_the_file() {
    let script = "cd $RESULTS_DIR; mkdir -p d/sub; head -c 20000000 /dev/urandom > d/sub/r; ls -d $RESULTS_DIR/d > done;
        while :; do echo line >> d/sub/r; done";
    let error = reported_error(script, 90);
    assert!(
        error.contains("/d/sub/r`: it changed while it was packed, 5 times"),
        "{error}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn folder_that_changes_once_arrives_as_it_is_afterwards() {
    // The second part of the script waits until the packing has begun: it creates a nameless file.
    let script = "cd $RESULTS_DIR; mkdir d; head -c 60000000 /dev/urandom > d/r; mkdir d/many
        for part in 1 2 3 4 5 6 7 8; do echo $part > d/many/$part; done
        ls -d $RESULTS_DIR/d > done
        until ls -l /proc/*/fd 2>/dev/null | grep -q \"$RESULTS_DIR/d/.sonobuoy-\"; do :; done
        echo shorter > d/r; rm d/many/8";
    let definition = format!(
        "sonobuoy-config: {{driver: Job, plugin-name: p, result-format: raw}}
spec:
  name: plugin
  command: [sh, -c]
  args:
  - |
      {script}
"
    );
    let run = Sonobuoy::new("run --local -p plugin.yaml --timeout 90 --fail-on unknown")
        .file("plugin.yaml", definition);
    let done = run.env("SONOBUOY_DONE_FILE_DELAY", "0").run_any();
    let archive = Archive::only_one_in(done.folder.path());
    assert_eq!(archive.text("plugins/p/results/global/r"), "shorter\n");
    let many = archive
        .names()
        .filter(|name| name.starts_with("plugins/p/results/global/many/"))
        .count();
    assert_eq!(many, 7);
}

#[test]
fn worker_runtime_errors_print_no_usage() {
    let worker = Sonobuoy::new("worker global")
        .status(1)
        .stderr_has("not set in the environment");
    assert!(!worker.run_any().stderr.contains("Usage"));
}
