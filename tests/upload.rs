//! `--upload`: archives uploaded to a store, by this machine and by the aggregator, and the
//! messages about it. The URL is a secret and appears nowhere.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tiny_http::{Response, Server};

use crate::support::Sonobuoy;
use crate::support::cluster::{
    AGGREGATOR, Cluster, STATUS, aggregator_pod, complete, namespace, untouched,
};

/// The secret part of each URL.
const SIGNATURE: &str = "signature=0123456789";

/// Requests received by the store.
pub(super) struct Came {
    line: String,
    body: Vec<u8>,
    digest: Option<String>,
}

/// A store with a status for request N, from 1, for this path; 0 disconnects without a response
/// when the test ends.
pub(super) fn store(
    answer: impl Fn(usize, &str) -> u16 + Send + Sync,
    test: impl FnOnce(&str, &Receiver<Came>),
) {
    let server = Server::http("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.server_addr());
    let (sender, came) = channel();
    let serve = |sender: Sender<Came>| {
        let mut held = Vec::new();
        for (at, mut request) in server.incoming_requests().enumerate() {
            let mut body = Vec::new();
            request.as_reader().read_to_end(&mut body).unwrap();
            let digest = request
                .headers()
                .iter()
                .find(|header| header.field.equiv("repr-digest"));
            let digest = digest.map(|header| header.value.to_string());
            let line = format!("{} {}", request.method(), request.url());
            match answer(at + 1, request.url()) {
                0 => held.push(request),
                code => drop(request.respond(Response::empty(code))),
            }
            let _ = sender.send(Came { line, body, digest });
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| serve(sender));
        struct End<'a>(&'a Server);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.unblock();
            }
        }
        let _end = End(&server);
        test(&url, &came);
    });
}

fn lines(came: &Receiver<Came>) -> Vec<String> {
    came.try_iter().map(|one| one.line).collect()
}

/// The value of `Repr-Digest` for a file, and the file.
fn digest(path: &Path) -> (Option<String>, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let digest = BASE64.encode(ring::digest::digest(&ring::digest::SHA256, &bytes));
    (Some(format!("sha-256=:{digest}:")), bytes)
}

/// The archive and its seal in a folder, by name.
fn left(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_str().unwrap().to_owned())
        .collect();
    names.retain(|name| name.contains(".tar.gz"));
    names.sort();
    names
}

#[test]
fn archive_and_seal_are_uploaded_with_retries() {
    let script = "echo x >$RESULTS_DIR/x; echo -n $RESULTS_DIR/x >$RESULTS_DIR/done";
    let plugin = format!(
        "sonobuoy-config: {{plugin-name: p, driver: Job}}\nspec: {{name: plugin, command: [sh, -c], args: ['{script}']}}\n"
    );
    let local = |url: String| {
        Sonobuoy::new("run --local -p p.yaml --upload")
            .arg(url)
            .file("p.yaml", &plugin)
    };
    let code = |at, path: &str| match at {
        1 => 503,
        _ if path.contains("moved") => 307,
        _ if path.contains("no-entry") => 403,
        _ => 200,
    };
    store(code, |url, came| {
        let done = local(format!("{url}/runs/")).run_any();
        let names = left(done.folder.path());
        let [archive, statement, signature] = &names[..] else {
            panic!("{names:?}")
        };
        let all: Vec<Came> = came.try_iter().collect();
        let expected =
            [archive, archive, statement, signature].map(|name| format!("PUT /runs/{name}"));
        assert_eq!(
            all.iter().map(|one| one.line.as_str()).collect::<Vec<_>>(),
            expected
        );
        let (digest, bytes) = digest(&done.folder.join(archive));
        assert!(
            all[1].body == bytes && all[1].digest == digest,
            "the second attempt brought all of it"
        );

        // A signed URL is a secret, and is valid for one file.
        let signed = local(format!("{url}/one?{SIGNATURE}"));
        let done = signed
            .stderr_has("the archive's seal is not uploaded")
            .run_any();
        assert!(
            !done.stderr.contains(SIGNATURE) && done.stderr.contains(url),
            "{}",
            done.stderr
        );
        assert_eq!(lines(came), [format!("PUT /one?{SIGNATURE}")]);
        for (path, why) in [
            ("no-entry", "403 Forbidden"),
            ("moved", "307 Temporary Redirect"),
        ] {
            let refused = local(format!("{url}/{path}?{SIGNATURE}")).status(1);
            let done = refused
                .stderr_has(&format!("`{url}`: the server answered {why}"))
                .run_any();
            assert!(!done.stderr.contains(SIGNATURE), "{}", done.stderr);
        }
        let other = local("http://store.example/x".into()).status(1);
        other.stderr_has("begins with https://").run_any();
    });
}

/// A run without plugins, whose aggregator uploads to this URL.
fn uploading(url: &str) -> Cluster {
    let mut cluster = Cluster::new(&["a"])
        .set("Resources", json!(["secrets"]))
        .set("Redaction", json!({"Off": true}));
    cluster.env.insert("SONOBUOY_UPLOAD_URL".into(), url.into());
    // A snapshot with all secrets unredacted.
    for (name, value) in [("sonobuoy-upload", url), ("other", "plain")] {
        let secret = json!({"data": {"url": BASE64.encode(value)}});
        cluster.api.put(
            &format!("/api/v1/namespaces/sonobuoy/secrets/{name}"),
            secret,
        );
    }
    cluster
}

/// Checks that no file of a run contains the URL.
fn keeps_the_secret(cluster: &Cluster, said: &str) {
    let archive = cluster.archive();
    let files: Vec<String> = archive.names().map(|name| archive.text(name)).collect();
    let secrets = archive.text(&archive.named("v1_secrets.json"));
    assert!(
        secrets.contains(&BASE64.encode("plain")) && !secrets.contains("sonobuoy-upload"),
        "{secrets}"
    );
    let pod = cluster
        .api
        .get(&cluster.path("sonobuoy"))
        .unwrap()
        .to_string();
    for text in files.iter().map(String::as_str).chain([said, &pod]) {
        assert!(
            !text.contains(SIGNATURE) && !text.contains("/runs/mine"),
            "{text}"
        );
    }
}

#[test]
fn aggregator_uploads_the_archive_and_reports_it() {
    for (refused, state) in [(false, "complete"), (true, "failed")] {
        let code = |at, _: &str| match at {
            1 => 503,
            _ if refused => 403,
            _ => 200,
        };
        store(code, |url, came| {
            let cluster = uploading(&format!("{url}/runs/mine?{SIGNATURE}"));
            let (code, said) = cluster.start("--level=trace").end();
            assert_eq!(code, i32::from(refused), "{said}");
            let status = cluster.status();
            assert_eq!(
                (&status["status"], &status["upload"]),
                (&json!("complete"), &json!(state))
            );
            let why = format!("failed to upload to `{url}`: the server answered 403 Forbidden");
            assert_eq!(
                status["error"],
                if refused { json!(why) } else { Value::Null }
            );
            let all: Vec<Came> = came.try_iter().collect();
            let name = status["tar-info"]["name"].as_str().unwrap();
            let (digest, bytes) = digest(&cluster.folder.join(&format!("runs/{name}")));
            assert!(
                all.len() == 2
                    && all
                        .iter()
                        .all(|one| one.body == bytes && one.digest == digest)
            );
            keeps_the_secret(&cluster, &said);
        });
    }
}

#[test]
fn restarted_aggregator_repeats_the_upload() {
    let code = |at, _: &str| if at == 1 { 0 } else { 200 };
    store(code, |url, came| {
        let cluster = uploading(&format!("{url}/runs/mine?{SIGNATURE}"));
        let aggregator = cluster.start("");
        let first = came.recv().unwrap();
        cluster.wait_for_status(|status| {
            status["status"] == "complete" && status["upload"] == "running"
        });
        // Killed.
        drop(aggregator);
        let (code, said) = cluster.start("").end();
        assert_eq!(code, 0, "{said}");
        assert!(
            came.recv().unwrap().body == first.body && lines(came).is_empty(),
            "once, and the same"
        );
        assert_eq!(cluster.status()["upload"], "complete");
        keeps_the_secret(&cluster, &said);

        // After another restart, no upload is left.
        cluster.start("").ends_well();
        assert_eq!(lines(came).len(), 0);
    });
}

#[test]
fn upload_url_is_passed_in_a_secret() {
    let (api, _folder, config) = untouched();
    let plugin = "sonobuoy-config: {driver: Job, plugin-name: p}\nspec: {name: plugin, image: i}\n";
    let words = "--rbac Enable --skip-preflight -p p.yaml --kubernetes-version v1.33.0 --upload";
    let run = |words: &str, url: &str| {
        Sonobuoy::new(&format!("run --kubeconfig {config} {words}"))
            .arg(url)
            .file("p.yaml", plugin)
    };
    let url = format!("https://store.example/runs/mine?{SIGNATURE}");
    run(
        &format!("--sonobuoy-image sonobuoy/sonobuoy:v0.57.3 {words}"),
        &url,
    )
    .status(1)
    .stderr_has("cannot upload archives; add `--retrieve DIR`")
    .run_any();
    // Only this machine could reach that address.
    run(words, "http://127.0.0.1/x")
        .status(1)
        .stderr_has("begins with https://")
        .run_any();
    let store = KeyPair::generate().unwrap();
    let authority = CertificateParams::default()
        .self_signed(&store)
        .unwrap()
        .pem();
    let trusting = |content: &str| {
        run(words, &url)
            .file("ca.pem", content)
            .env("SSL_CERT_FILE", "ca.pem")
    };
    trusting("nothing")
        .status(1)
        .stderr_has("certificates in `ca.pem` (SSL_CERT_FILE): it contains none")
        .run_any();
    trusting(&authority.repeat(2000))
        .status(1)
        .stderr_has("which is too large for a Secret")
        .run_any();
    assert!(api.get("/api/v1/namespaces/sonobuoy").is_none());
    let done = trusting(&(store.serialize_pem() + &authority)).run_any();
    assert!(!done.stderr.contains(SIGNATURE) && !done.stdout.contains(SIGNATURE));
    let found = |path: &str| {
        api.get(&format!("/api/v1/namespaces/sonobuoy/{path}"))
            .unwrap()
    };
    let secret = found("secrets/sonobuoy-upload");
    let authority = BASE64.encode(authority.replace("\r\n", "\n"));
    assert_eq!(
        secret["data"],
        json!({"url": BASE64.encode(&url), "ca.crt": authority})
    );
    assert_eq!(secret["metadata"]["labels"]["component"], "sonobuoy");
    let env = found("pods/sonobuoy")["spec"]["containers"][0]["env"].clone();
    let from = json!({"secretKeyRef": {"name": "sonobuoy-upload", "key": "url"}});
    assert!(
        env.as_array()
            .unwrap()
            .contains(&json!({"name": "SONOBUOY_UPLOAD_URL", "valueFrom": from}))
    );
    let folder = "/etc/sonobuoy-upload";
    assert!(
        env.as_array()
            .unwrap()
            .contains(&json!({"name": "SSL_CERT_DIR", "value": folder}))
    );
    let spec = found("pods/sonobuoy")["spec"].clone();
    let volume = json!({"name": "sonobuoy-upload", "secret": {"secretName": "sonobuoy-upload"}});
    let mount = json!({"mountPath": folder, "name": "sonobuoy-upload", "readOnly": true});
    assert!(spec["volumes"].as_array().unwrap().contains(&volume));
    assert!(
        spec["containers"][0]["volumeMounts"]
            .as_array()
            .unwrap()
            .contains(&mount)
    );
    for path in [
        "configmaps/sonobuoy-config-cm",
        "configmaps/sonobuoy-plugins-cm",
        "pods/sonobuoy",
    ] {
        assert!(!found(path).to_string().contains("store.example"), "{path}");
    }
}

#[test]
fn wait_includes_the_upload_and_protects_the_run() {
    let (api, _folder, config) = untouched();
    namespace(&api);
    let says = |upload: &str, error: Value| {
        let mut status: Value = serde_json::from_str(&complete("x.tar.gz", &[], 1)).unwrap();
        status["upload"] = upload.into();
        status["error"] = error;
        status.to_string()
    };
    let wait = || {
        Sonobuoy::new(&format!(
            "wait --kubeconfig {config} --delete --rbac Disable"
        ))
    };
    let status = || Sonobuoy::new(&format!("status --kubeconfig {config}"));
    aggregator_pod(
        &api,
        json!({"phase": "Running"}),
        Some(&says("running", Value::Null)),
    );
    status()
        .stdout_has("`sonobuoy retrieve` to get results.\nIts archive is being uploaded.")
        .run_any();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let told = "the aggregator could not upload the archive: no route; the run is kept, try `sonobuoy retrieve";
            wait().status(2).stderr_has(told).run_any()
        });
        api.wait(|api| {
            api.requests()
                .iter()
                .any(|request| request.contains("watch="))
        });
        let failed = says("failed", json!("no route"));
        api.merge(
            AGGREGATOR,
            &json!({"metadata": {"annotations": {(STATUS): failed}}}),
        );
        waiting.join().unwrap();
    });
    assert!(
        api.get(AGGREGATOR).is_some(),
        "its archive exists nowhere else"
    );
    status()
        .stdout_has("Its archive could not be uploaded: no route.")
        .run_any();
    let arrived = says("complete", Value::Null);
    api.merge(
        AGGREGATOR,
        &json!({"metadata": {"annotations": {(STATUS): arrived}}}),
    );
    status().stdout_has("Its archive was uploaded.").run_any();
    wait().run_any();
    assert!(api.get(AGGREGATOR).is_none());
}

#[test]
fn upload_host_is_that_of_its_url() {
    for url in [
        "http://127.0.0.1:x@example.invalid:5077/",
        "http://localhost@example.invalid/",
        "http://example.invalid/",
        "ftp://127.0.0.1/",
    ] {
        let call = Sonobuoy::new("wait --upload").arg(url);
        call.status(1).stderr_has("--upload").run_any();
        let call = Sonobuoy::new("run --local -p host-facts --upload").arg(url);
        call.status(1).stderr_has("--upload").run_any();
    }
}
