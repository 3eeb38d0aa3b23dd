//! `retrieve` and `splat` over the fake API server's exec: complete archives over unreliable
//! connections, from servers that cannot resume, with only file names on stdout.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
#[cfg(unix)]
use std::process::Stdio;

use rcgen::{CertificateParams, KeyPair, SigningKey as _};
use serde_json::json;

use crate::support::api_server::{ApiServer, Exec, ExecAnswer, Fault};
use crate::support::cluster::{aggregator_pod, complete, namespace, status};
use crate::support::system::{mode, symlink};
use crate::support::{Folder, Sonobuoy, program};

/// The note about an unsealed archive.
const UNSEALED: &str = "has no seal, and was not checked against one";

const NAME: &str = "202401010000_sonobuoy_11111111-2222-4333-8444-555555555555.tar.gz";
const EXEC: &str = "GET /api/v1/namespaces/sonobuoy/pods/sonobuoy/exec";

/// A finished run with the archives in `there`.
pub struct Finished {
    api: ApiServer,
    there: Folder,
    home: Folder,
}

impl Finished {
    /// With one archive of this content.
    pub fn with(content: &[u8]) -> Self {
        let (api, there, home) = (ApiServer::start(), Folder::new(), Folder::new());
        there.write(NAME, content);
        namespace(&api);
        let finished = Self { api, there, home };
        finished.promise(content);
        let folder = finished.there.path().to_owned();
        finished.api.on_exec(move |exec| splat(exec, &folder));
        finished
    }

    /// Makes the status name this content.
    fn promise(&self, content: &[u8]) {
        let digest = ring::digest::digest(&ring::digest::SHA256, content);
        let says = complete(NAME, digest.as_ref(), content.len());
        aggregator_pod(&self.api, json!({"phase": "Running"}), Some(&says));
    }

    /// Removes the archive from the status, as in old versions.
    fn promise_nothing(&self) {
        let pod = "/api/v1/namespaces/sonobuoy/pods/sonobuoy";
        let annotations =
            json!({"sonobuoy.hept.io/status": r#"{"plugins": [], "status": "complete"}"#});
        self.api
            .merge(pod, &json!({"metadata": {"annotations": annotations}}));
    }

    /// `wait` for the run, which is over.
    #[cfg_attr(windows, allow(dead_code, reason = "only tests of Unix call it"))]
    pub fn wait(&self, words: &str) -> Sonobuoy {
        let config = self.api.kubeconfig(self.home.path());
        Sonobuoy::new(&format!("wait {words}"))
            .arg("--kubeconfig")
            .arg(config)
    }

    /// `results` of the run in the cluster.
    #[cfg_attr(windows, allow(dead_code, reason = "only tests of Unix call it"))]
    pub fn results(&self, words: &str) -> Sonobuoy {
        let config = self.api.kubeconfig(self.home.path());
        Sonobuoy::new(&format!("results --from-cluster {words}"))
            .arg("--kubeconfig")
            .arg(config)
    }

    /// Puts a seal for this content next to the archive; returns its key and certificate.
    fn seal(&self, content: &[u8]) -> (KeyPair, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(Vec::new())
            .unwrap()
            .self_signed(&key)
            .unwrap()
            .pem();
        let run = NAME
            .split_once("_sonobuoy_")
            .unwrap()
            .1
            .strip_suffix(".tar.gz")
            .unwrap();
        let statement = format!(
            "# archive of a Sonobuoy run, sealed by the authority of that run\n# run {run}\n# size {}\n{}  {NAME}\n",
            content.len(),
            digest(content)
        );
        self.there.write(
            &format!("{NAME}.sig"),
            key.sign(statement.as_bytes()).unwrap(),
        );
        self.there.write(&format!("{NAME}.sha256"), statement);
        (key, certificate)
    }

    /// Publishes a certificate as that of the run's CA in the namespace.
    fn show(&self, certificate: &str) {
        let run = NAME
            .split_once("_sonobuoy_")
            .unwrap()
            .1
            .strip_suffix(".tar.gz")
            .unwrap();
        let data = json!({"authority.crt": certificate, "run": run});
        self.api.put(
            "/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-authority",
            json!({"data": data}),
        );
    }

    pub fn retrieve(&self, words: &str) -> Sonobuoy {
        Sonobuoy::new(&format!("retrieve {} {words}", self.home.path().display()))
            .arg("--kubeconfig")
            .arg(self.api.kubeconfig(self.there.path()))
    }

    /// The downloaded file names; none is partial.
    fn came(&self) -> Vec<String> {
        self.home.names()
    }
}

fn digest(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The command of the container: the real `splat`, on another folder.
fn splat(exec: &Exec, folder: &Path) -> ExecAnswer {
    assert_eq!(
        (exec.container.as_str(), &exec.command[..2]),
        ("kube-sonobuoy", &["/sonobuoy".into(), "splat".into()][..])
    );
    let output = Command::new(env!("CARGO_BIN_EXE_sonobuoy"))
        .arg("splat")
        .arg(folder)
        .args(&exec.command[3..])
        .output()
        .unwrap();
    match output.status.code() {
        Some(0) => ExecAnswer::ok(output.stdout),
        code => ExecAnswer::failed(code.unwrap_or(1), output.stderr),
    }
}

/// Incompressible bytes.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn archive_is_downloaded_and_stdout_is_its_name() {
    let content = noise(300_000);
    for protocol in ["v5", "v4"] {
        let run = Finished::with(&content);
        if protocol == "v4" {
            let folder = run.there.path().to_owned();
            run.api.on_exec(move |exec| splat(exec, &folder).v4());
        }
        run.retrieve("")
            .stdout(&format!("{}\n", run.home.join(NAME).display()))
            .stderr_has(UNSEALED)
            .run();
        assert_eq!(run.came(), [NAME]);
        assert!(
            std::fs::read(run.home.join(NAME)).unwrap() == content,
            "{protocol}"
        );
    }
}

#[test]
fn oversized_stream_is_rejected_with_its_limit() {
    let tar = |ending: &str, entries: usize, size: usize| {
        let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(packed);
        for number in 0..entries {
            let mut head = tar::Header::new_gnu();
            head.set_size(size as u64);
            head.set_mode(0o644);
            head.set_cksum();
            let name = format!("{number}{ending}");
            tar.append_data(&mut head, name, std::io::repeat(0).take(size as u64))
                .unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    };
    for (stream, words) in [
        (tar(".tar.gz", 1, 80 << 20), "more than 16 times its size"),
        // Skipped entries and entries without content count, too.
        (tar(".sh", 8, 10 << 20), "more than 16 times its size"),
        (
            tar(&"/long".repeat(200_000), 120, 0),
            "more than 16 times its size",
        ),
        (tar(".tar.gz", 1_001, 0), "more than 1000 entries"),
        (tar(".sh", 1_001, 0), "more than 1000 entries"),
    ] {
        let run = Finished::with(b"x");
        run.promise_nothing();
        run.api.on_exec(move |_| ExecAnswer::ok(stream.clone()));
        run.retrieve("").status(2).stderr_has(words).run();
        assert_eq!(run.came(), [""; 0], "nothing is left of it");
        let asked = run
            .api
            .requests()
            .iter()
            .filter(|request| request.contains("/exec"))
            .count();
        assert_eq!(asked, 1, "it is not asked for again");
    }
}

#[test]
fn download_survives_repeated_disconnects() {
    let content = noise(500_000);
    let run = Finished::with(&content);
    run.api.cut_every(120_000);
    run.retrieve("")
        .stdout(&format!("{}\n", run.home.join(NAME).display()))
        .stderr_has("resuming there")
        .run();
    assert!(std::fs::read(run.home.join(NAME)).unwrap() == content);
    let offsets = run
        .api
        .requests()
        .iter()
        .filter(|request| request.contains("--offset"))
        .count();
    assert!(offsets >= 4, "{offsets} continuations");
    assert_eq!(run.came(), [NAME]);
}

#[test]
fn download_restarts_where_resuming_is_unsupported() {
    let content = noise(300_000);
    let run = Finished::with(&content);
    let folder = run.there.path().to_owned();
    run.api.on_exec(
        move |exec| match exec.command.iter().any(|word| word == "--offset") {
            true => ExecAnswer::failed(1, "Error: unknown flag: --offset"),
            false => splat(exec, &folder),
        },
    );
    run.api.fault(Fault::on(EXEC).cut(100_000));
    run.retrieve("")
        .stdout(&format!("{}\n", run.home.join(NAME).display()))
        .stderr_has("fetching everything again")
        .run();
    assert!(std::fs::read(run.home.join(NAME)).unwrap() == content);
}

#[test]
fn altered_archive_is_rejected() {
    let run = Finished::with(b"what is there");
    run.promise(b"what was promised");
    run.retrieve("")
        .status(2)
        .stderr_has("is not what the aggregator packed")
        .run();
    assert!(run.came().is_empty(), "{:?}", run.came());
}

#[test]
fn unfinished_run_is_not_ready() {
    let run = Finished::with(b"x");
    std::fs::remove_file(run.there.join(NAME)).unwrap();
    let says = "error retrieving results: no valid entries in result: the run is not finished; wait for it with `sonobuoy wait -n sonobuoy`";
    run.retrieve("").status(2).stderr_has(says).run();
    let entry =
        |plugin: &str, status: &str| json!({"plugin": plugin, "node": "n", "status": status});
    let plugins = json!([
        entry("a", "complete"),
        entry("b", "complete"),
        entry("b", "running"),
        entry("c", "failed")
    ]);
    aggregator_pod(
        &run.api,
        json!({"phase": "Running"}),
        Some(&status("running", &plugins)),
    );
    run.retrieve("")
        .status(2)
        .stderr_has("the run is not finished (2 of 3 plugins)")
        .run();
    // An earlier aggregator reports this by its exit code.
    run.api
        .on_exec(move |_| ExecAnswer::failed(1, "there is no finished archive"));
    let done = run
        .retrieve("")
        .status(1)
        .stderr_has("the results are not ready")
        .run();
    assert!(
        done.stderr
            .starts_with("Results not ready yet. Check `sonobuoy status` for status.\n"),
        "{}",
        done.stderr
    );
    let line = b"time=\"t\" level=error msg=\"there is no \\\"unfinished\\\" run\"\n";
    run.api.on_exec(move |_| ExecAnswer::failed(1, line));
    let done = run
        .retrieve("--partial")
        .status(1)
        .stderr_has("parts: there is no \\\"unfinished\\\" run")
        .run();
    assert_eq!(done.stderr.matches("level=").count(), 1, "{}", done.stderr);
    // The line that the program prints in the aggregator's container.
    let (code, _, line) = Sonobuoy::new("splat . --partial").run_any_status();
    run.api
        .on_exec(move |_| ExecAnswer::failed(code, line.clone()));
    let says = "parts: no unfinished run in `.`; fetch a finished one without --partial";
    let done = run.retrieve("--partial").status(1).stderr_has(says).run();
    assert_eq!(done.stderr.matches("level=").count(), 1, "{}", done.stderr);
    assert!(run.came().is_empty());
    // The original's command line accepts an archive without entries.
    let done = Sonobuoy::new("splat .")
        .stderr_has("no finished archive in `.`")
        .run_any();
    assert!(done.stdout.len() > 20);
}

#[test]
fn forbidden_exec_is_reported_with_a_workaround() {
    let run = Finished::with(b"x");
    let exec = "GET /api/v1/namespaces/sonobuoy/pods/sonobuoy/exec";
    run.api
        .fault(Fault::on(exec).status(403, "Forbidden", "pods/exec is forbidden"));
    run.retrieve("")
        .status(2)
        .stderr_has("commands cannot be run")
        .stderr_has("pods/exec is forbidden")
        .stderr_has("`--status-service` can be fetched without commands")
        .run();
    assert!(run.came().is_empty());
}

#[test]
fn missing_run_is_one_line() {
    let run = Finished::with(b"x");
    run.api.remove("/api/v1/namespaces/sonobuoy/pods/sonobuoy");
    run.retrieve("")
        .status(2)
        .stderr_has("namespace `sonobuoy` has no aggregator")
        .run();
}

#[test]
fn several_archives_are_numbered_under_a_given_name() {
    let run = Finished::with(b"first");
    run.promise_nothing();
    run.there.write("202401020000_sonobuoy_b.tar.gz", b"second");
    let path = |name: &str| run.home.join(name).display().to_string();
    run.retrieve("-f mine.tar.gz")
        .stdout(&format!(
            "{}\n{}\n",
            path("mine.tar.gz"),
            path("mine.tar-01.gz")
        ))
        .stderr_has(UNSEALED)
        .run();
    assert_eq!(
        (
            run.home.read("mine.tar.gz"),
            run.home.read("mine.tar-01.gz")
        ),
        ("first".into(), "second".into())
    );
}

#[test]
fn given_name_may_include_a_folder() {
    let run = Finished::with(b"first");
    let path = |name: &str| run.home.join(name).display().to_string();
    for (name, expected) in [
        ("new/r.tgz", "new/r.tgz"),
        ("/tmp/r.tgz", "tmp/r.tgz"),
        ("new/../r", "r"),
    ] {
        run.retrieve(&format!("-f {name}"))
            .stdout(&format!("{}\n", path(expected)))
            .stderr_has(UNSEALED)
            .run();
        assert_eq!(run.home.read(expected), "first", "{name}");
    }
}

#[test]
fn archives_of_tar_are_accepted() {
    let run = Finished::with(b"x");
    run.promise_nothing();
    let sent = packed(&[("./a.tar.gz", b"a"), ("c.tar.gz", b"c")]);
    run.api.on_exec(move |_| ExecAnswer::ok(sent.clone()));
    let path = |name: &str| run.home.join(name).display().to_string();
    run.retrieve("")
        .stdout(&format!("{}\n{}\n", path("a.tar.gz"), path("c.tar.gz")))
        .stderr_has(UNSEALED)
        .run();
    assert_eq!(run.home.read("c.tar.gz"), "c");
}

#[test]
fn archive_is_unpacked_on_request() {
    let run = Finished::with(&packed(&[
        ("meta/info.json", b"{}"),
        ("plugins/p/r.txt", b"text"),
    ]));
    run.retrieve("-x").stderr_has(UNSEALED).run();
    assert_eq!(run.home.read("plugins/p/r.txt"), "text");
    assert!(!run.home.join(NAME).exists());
}

#[cfg(unix)]
#[test]
fn unpacked_files_and_the_users_folder_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut content = Vec::new();
    {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
            &mut content,
            flate2::Compression::fast(),
        ));
        for (name, kind, mode) in [
            ("meta/info.json", tar::EntryType::Regular, 0o666),
            ("meta/", tar::EntryType::Directory, 0o777),
            ("plugins/", tar::EntryType::Directory, 0o755),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(0);
            header.set_cksum();
            tar.append_data(&mut header, name, std::io::empty())
                .unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
    }
    let run = Finished::with(&content);
    run.retrieve("-x").stderr_has(UNSEALED).run();
    for name in ["meta", "plugins"] {
        assert_eq!(
            super::query::exposed(&run.home.join(name)),
            [] as [std::path::PathBuf; 0]
        );
    }
    let folder = Folder::new();
    let call = Sonobuoy::new("plugin list")
        .env("HOME", folder.path())
        .env("SONOBUOY_DIR", "");
    call.run_any();
    let mode = folder
        .join(".sonobuoy")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn only_archive_names_are_accepted() {
    let evil = [
        "../evil.tar.gz",
        "/evil.tar.gz",
        "below/evil.tar.gz",
        ".bashrc",
        ".ssh/authorized_keys",
        ".evil.tar.gz",
        "evil.sh",
        "-evil.tar.gz",
        "evil.tar.gz.sig",
    ];
    for promised in [true, false] {
        let run = Finished::with(b"good");
        if !promised {
            run.promise_nothing();
        }
        let mut sent: Vec<(&str, &[u8])> = evil.iter().map(|name| (*name, &b"evil"[..])).collect();
        sent.push((NAME, b"good"));
        let sent = packed(&sent);
        run.api.on_exec(move |_| ExecAnswer::ok(sent.clone()));
        let mut retrieve = run
            .retrieve("")
            .stdout(&format!("{}\n", run.home.join(NAME).display()));
        for name in evil {
            retrieve = retrieve.stderr_has(&format!("skipped `{name}`"));
        }
        retrieve.run();
        assert_eq!(run.came(), [NAME]);
        assert!(
            !run.home
                .path()
                .parent()
                .unwrap()
                .join("evil.tar.gz")
                .exists()
        );
    }
}

#[test]
fn only_the_archive_named_by_the_status_is_downloaded() {
    let run = Finished::with(b"good");
    run.there.write("202401020000_sonobuoy_b.tar.gz", b"other");
    run.retrieve("")
        .stdout(&format!("{}\n", run.home.join(NAME).display()))
        .stderr_has(&format!(
            "skipped `202401020000_sonobuoy_b.tar.gz`: the archive of the run is `{NAME}`"
        ))
        .run();
    assert_eq!(run.came(), [NAME]);
    // A folder means its contents.
    std::fs::remove_file(run.home.join(NAME)).unwrap();
    run.retrieve("--retrieve-path=/tmp/sonobuoy/earlier")
        .stdout_has("_b.tar.gz")
        .stderr_has(UNSEALED)
        .run();
    assert_eq!(run.came().len(), 2);
}

#[test]
fn existing_file_is_replaced_only_with_force() {
    let run = Finished::with(b"new");
    let line = format!("{}\n", run.home.join(NAME).display());
    for old in ["old", "an older one"] {
        run.home.write(NAME, old);
        let refused = run
            .retrieve("")
            .status(2)
            .stderr_has(&format!("{NAME}` exists and contains something else"));
        refused.stderr_has("--force").run();
        assert_eq!(
            (run.home.read(NAME).as_str(), run.came()),
            (old, vec![NAME.to_owned()])
        );
    }
    run.retrieve("--force")
        .stdout(&line)
        .stderr_has(UNSEALED)
        .run();
    assert_eq!(run.home.read(NAME), "new");
    // Scripts that repeat the command get the same output.
    run.retrieve("").stdout(&line).stderr_has(UNSEALED).run();
    assert_eq!(
        (
            run.home.read(NAME).as_str(),
            mode(&run.home.join(NAME), 0o600)
        ),
        ("new", 0o600)
    );
    // Links are not followed, even with --force.
    std::fs::remove_file(run.home.join(NAME)).unwrap();
    run.there.write("precious", "precious");
    if !symlink(run.there.join("precious"), run.home.join(NAME)) {
        return;
    }
    run.retrieve("")
        .status(2)
        .stderr_has("exists and contains something else")
        .run();
    run.retrieve("--force")
        .stdout(&line)
        .stderr_has(UNSEALED)
        .run();
    assert_eq!(
        (run.home.read(NAME), run.there.read("precious")),
        ("new".into(), "precious".into())
    );
    assert_eq!(run.came(), [NAME]);
}

#[test]
fn seal_is_downloaded_and_verified() {
    let content = noise(100_000);
    let run = Finished::with(&content);
    let (_, certificate) = run.seal(&content);
    run.show(&certificate);
    let parts = [
        NAME.to_owned(),
        format!("{NAME}.sha256"),
        format!("{NAME}.sig"),
    ];
    let line = format!("{}\n", run.home.join(NAME).display());
    let kept = Folder::new();
    let own = || run.retrieve("").env("SONOBUOY_DIR", kept.path());
    own()
        .stdout(&line)
        .stderr_has("is sealed by the authority of run 11111111")
        .run();
    assert_eq!(run.came(), parts);
    assert_eq!(mode(&run.home.join(&parts[2]), 0o600), 0o600);
    Sonobuoy::new("verify")
        .arg(run.home.join(NAME))
        .env("SONOBUOY_DIR", kept.path())
        .stdout_has(": OK, sealed by run 11111111")
        .stdout_has(&format!(
            "authority learned from {} (not encrypted)",
            run.api.url()
        ))
        .run();
    // The saved certificate takes precedence over a later one in the namespace.
    let (_, other) = Finished::with(b"").seal(b"");
    run.show(&other);
    own()
        .stdout(&line)
        .stderr_has("is sealed by the authority of run 11111111")
        .run();
    // Without a saved one, the seal's own statements are compared.
    run.api
        .remove("/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-authority");
    run.retrieve("")
        .stdout(&line)
        .stderr_has("was not checked: the certificate")
        .run();
}

/// A seal that names another run than the archive is rejected, whether or not the authority of
/// either is known.
#[test]
fn seal_of_another_run_is_rejected() {
    let content = noise(1_000);
    for known in [false, true] {
        let run = Finished::with(&content);
        let (key, certificate) = run.seal(&content);
        if known {
            run.show(&certificate);
        }
        let path = run.there.join(&format!("{NAME}.sha256"));
        let statement = std::fs::read_to_string(&path)
            .unwrap()
            .replace("# run 1111", "# run 2222");
        run.there.write(
            &format!("{NAME}.sig"),
            key.sign(statement.as_bytes()).unwrap(),
        );
        std::fs::write(path, statement).unwrap();
        run.retrieve("")
            .status(2)
            .stderr_has("and the seal beside it is for run 2222")
            .run();
        assert!(run.came().is_empty(), "{:?}", run.came());
    }
}

/// A cluster that publishes the authority of a run that is not retrieved cannot make it trusted
/// here.
#[test]
fn authority_of_another_run_cannot_be_planted() {
    const OTHER: &str = "99999999-9999-4999-8999-999999999999";
    let content = noise(1_000);
    let run = Finished::with(&content);
    let (_, certificate) = run.seal(&content);
    let data = json!({"authority.crt": certificate, "run": OTHER});
    run.api.put(
        "/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-authority",
        json!({"data": data}),
    );
    let home = Folder::new();
    let config = run.api.kubeconfig(run.there.path());
    for words in ["status", "wait", "status --json"] {
        Sonobuoy::new(words)
            .arg("--kubeconfig")
            .arg(&config)
            .env("SONOBUOY_DIR", home.path())
            .run_any();
    }
    run.retrieve("")
        .env("SONOBUOY_DIR", home.path())
        .stderr_has("was not checked: the certificate")
        .run_any();
    assert!(home.names().is_empty(), "{:?}", home.names());
}

#[test]
fn archive_with_invalid_or_missing_seal_is_rejected() {
    let content = noise(1_000);
    let check = |words: &str, damage: fn(&Finished, &KeyPair)| {
        let run = Finished::with(&content);
        run.promise_nothing();
        let (key, certificate) = run.seal(&content);
        run.show(&certificate);
        damage(&run, &key);
        run.retrieve("").status(2).stderr_has(words).run();
        assert!(run.came().is_empty(), "{words}: {:?}", run.came());
    };
    check("is not the one that was sealed", |run, _| {
        let mut archive = std::fs::read(run.there.join(NAME)).unwrap();
        archive[500] ^= 1;
        run.there.write(NAME, archive);
    });
    check("is not that of this run's authority", |run, _| {
        let path = run.there.join(&format!("{NAME}.sig"));
        let signature = std::fs::read(&path).unwrap();
        std::fs::write(path, &signature[..signature.len() - 1]).unwrap();
    });
    check("is not that of this run's authority", |run, _| {
        // Sealed by the CA of another run.
        run.seal(&std::fs::read(run.there.join(NAME)).unwrap());
    });
    check("arrived with the seal of another archive", |run, key| {
        let path = run.there.join(&format!("{NAME}.sha256"));
        let statement = std::fs::read_to_string(&path)
            .unwrap()
            .replace("  2024", "  2023");
        run.there.write(
            &format!("{NAME}.sig"),
            key.sign(statement.as_bytes()).unwrap(),
        );
        std::fs::write(path, statement).unwrap();
    });
    check("does not describe an archive", |run, _| {
        run.there.write(&format!("{NAME}.sha256"), "nonsense");
    });
    check("arrived without its seal", |run, _| {
        for part in ["sha256", "sig"] {
            std::fs::remove_file(run.there.join(&format!("{NAME}.{part}"))).unwrap();
        }
    });
}

#[cfg(unix)]
#[test]
fn full_disk_is_reported_and_leaves_no_file() {
    let run = Finished::with(&noise(400_000));
    let (command, _held) = run.retrieve("").command();
    // A limit of 100 KiB per file, which the program handles like a full disk.
    let limited = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&limited.stderr);
    assert_eq!(limited.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write"), "{said}");
    assert!(
        limited.stdout.is_empty() && run.came().is_empty(),
        "{:?}",
        run.came()
    );
    assert_eq!(run.api.count(EXEC), 1, "trying again would not help");
}

#[cfg(unix)]
#[test]
fn interrupted_download_exits_with_130_and_leaves_nothing() {
    use rustix::process::{Pid, Signal, kill_process};
    for words in ["retrieve", "wait --retrieve out", "results --from-cluster"] {
        let run = Finished::with(b"x");
        // The container does not answer before the end of the test.
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(0);
        let ended = std::sync::Mutex::new(ended);
        run.api.on_exec(move |_| {
            let _ = ended.lock().unwrap().recv();
            ExecAnswer::ok(Vec::new())
        });
        let call = Sonobuoy::new(words)
            .arg("--kubeconfig")
            .arg(run.api.kubeconfig(run.there.path()));
        let call = call.file("tmp/keep", "").file("out/keep", "");
        let tmp = call.folder().join("tmp");
        let (mut command, folder) = call.env("TMPDIR", tmp).command();
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        run.api.wait(|api| api.count(EXEC) > 0);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{words}: {said}");
        assert!(
            said.contains("the transfer was interrupted"),
            "{words}: {said}"
        );
        assert_eq!(
            (folder.names(), Folder::names_of(&folder.join("tmp"))),
            (
                vec!["out".to_owned(), "tmp".to_owned()],
                vec!["keep".to_owned()]
            ),
            "{words}"
        );
        assert_eq!(Folder::names_of(&folder.join("out")), ["keep"], "{words}");
        drop(end);
    }
}

#[test]
fn partial_results_can_be_downloaded() {
    let Some(_) = program("tar") else { return };
    let run = Finished::with(b"x");
    std::fs::remove_file(run.there.join(NAME)).unwrap();
    run.there.write(
        "11111111-2222-4333-8444-555555555555/meta/run.log",
        "so far",
    );
    run.retrieve("--partial -f part.tar.gz")
        .stdout(&format!("{}\n", run.home.join("part.tar.gz").display()))
        .run();
    let unpacked = Folder::new();
    let done = Command::new("tar")
        .arg("-xzf")
        .arg(run.home.join("part.tar.gz"))
        .arg("-C")
        .arg(unpacked.path())
        .status();
    assert!(done.unwrap().success());
    assert_eq!(unpacked.read("meta/run.log"), "so far");
}

/// Nobody may create a file in this folder, not even root.
#[cfg(target_os = "linux")]
#[test]
fn folder_that_cannot_be_written_is_reported_before_the_run() {
    for words in [
        "run -p hello --retrieve /proc/self",
        "run --local -p hello --retrieve /proc/self",
        "wait --retrieve /proc/self",
    ] {
        Sonobuoy::new(words)
            .status(1)
            .stderr_has("cannot write an archive to `/proc/self`")
            .stderr_has("name another folder with `--retrieve DIR`")
            .run();
    }
}

/// A gzip tar with these files, whatever their names.
fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    let mut gzip = tar.into_inner().unwrap();
    gzip.flush().unwrap();
    gzip.finish().unwrap()
}
