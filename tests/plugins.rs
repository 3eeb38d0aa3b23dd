//! Plugin definitions: search path, published and old ones, installation.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::generate::{VERSION, definition, documents, env, named, objects, plugin};
use crate::support::cluster::{AGGREGATOR, namespace};
use crate::support::web::serve;
use crate::support::{Sonobuoy, fixture};

#[test]
fn plugins_are_found_in_the_originals_places() {
    let names = |call: Sonobuoy| -> Vec<String> {
        let objects = objects(call);
        let data = named(&objects, "ConfigMap", "sonobuoy-plugins-cm")["data"]
            .as_object()
            .unwrap()
            .clone();
        let name = |text: &Value| {
            let value: Value = serde_yaml::from_str(text.as_str().unwrap()).unwrap();
            value["sonobuoy-config"]["plugin-name"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        data.values().map(name).collect()
    };
    let call = |words: &str| {
        Sonobuoy::new(&format!("gen {VERSION} {words}"))
            .file("a.yaml", plugin("a", "Job"))
            .file("x.yaml", plugin("local", "Job"))
            .file("dir/b.yaml", plugin("b", "DaemonSet"))
            .file("dir/c.yaml", plugin("c", "Job"))
            .file("dir/no.yml", "[")
            .file("dir/deeper/no.yaml", "[")
            .file(".sonobuoy/x.yaml", plugin("installed", "Job"))
            .file(".sonobuoy/plugins.d/old.yaml", plugin("of-old", "Job"))
            .file(".sonobuoy/e2e.yaml", plugin("own-e2e", "Job"))
            .file("other/y.yaml", plugin("other", "Job"))
            .file("plugins.d/q.yaml", plugin("of-folder", "Job"))
            .file("plugins.d/broken.yaml", "[")
            .file("set/s.yaml", plugin("of-setting", "Job"))
            .file("config.json", r#"{"PluginSearchPath": ["./set"]}"#)
    };
    for (words, expected) in [
        ("-p a.yaml", &["a"][..]),
        ("-p a.yaml@z -p dir", &["b", "c", "z"]),
        ("-p x", &["installed"]),
        ("-p x.yaml@y", &["y"]),
        ("-p a.yaml@", &["a"]),
        ("-p ./x.yaml", &["local"]),
        ("-p e2e -p systemd-logs", &["own-e2e", "systemd-logs"]),
        // Names and folders of the first releases.
        ("-p systemd_logs", &["systemd-logs"]),
        ("-p old", &["of-old"]),
        ("-p of-old", &["of-old"]),
        // The search path, by name of the plugin or of its file.
        ("-p of-folder -p q@r", &["of-folder", "r"]),
        ("--config config.json -p of-setting", &["of-setting"]),
    ] {
        assert_eq!(names(call(words)), expected, "{words}");
    }
    assert_eq!(names(call("-p y").env("SONOBUOY_DIR", "other")), ["other"]);
    assert_eq!(
        names(call("-p x.yaml").env("SONOBUOY_PLUGIN_INSTALLATION", "false")),
        ["local"]
    );
    call("-p x")
        .env("SONOBUOY_PLUGIN_INSTALLATION", "false")
        .status(1)
        .stderr_has("plugin `x`")
        .run();
}

#[test]
fn old_definitions_are_converted_with_a_note() {
    let old = "name: systemd_logs\ndriver: DaemonSet\nresultType: systemd_logs\nspec:\n  containers:\n  - name: logs\n    image: l\n  \
               - name: worker\n    command: [sh, -c, /sonobuoy worker single-node -v 5 --logtostderr && sleep 3600]\n  volumes:\n  \
               - name: config\n    configMap: {name: __SONOBUOY_CONFIGMAP__}\n";
    let wrapped = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: cm}}\ndata:\n  a.yaml: |\n{}  b.yaml: |\n{}",
        indented(old),
        indented(&plugin("p", "Job")),
    );
    let done = Sonobuoy::new(&format!(
        "gen {VERSION} -p old.yaml -p cm.yaml --plugin-env systemd-logs.A=1"
    ))
    .file("old.yaml", old.replace("systemd_logs", "first"))
    .file("cm.yaml", wrapped)
    .stderr_has("the definition of `first` uses the v0.8 format and was converted")
    .stderr_has("the plugin `systemd_logs` is now called `systemd-logs`")
    .stderr_has("taken from `b.yaml` of the ConfigMap `cm`")
    .run_any();
    let objects = documents(&done.stdout);
    let logs = definition(&objects, "systemd-logs");
    assert_eq!(
        (&logs["spec"]["name"], env(&logs["spec"], "A")),
        (&json!("logs"), Some("1"))
    );
    // As in v0.8, with all permissions of the run.
    assert_eq!(
        logs["podSpec"],
        json!({"containers": [], "serviceAccountName": "sonobuoy-serviceaccount"})
    );
    definition(&objects, "first");
    definition(&objects, "p");
}

#[test]
fn quick_start_of_v0_8_is_read_completely() {
    let config = r#"{"Plugins": [{"name": "systemd_logs"}], "PluginSearchPath": ["/plugins.d"]}"#;
    let old = "name: systemd_logs\ndriver: DaemonSet\nresultType: systemd_logs\nspec:\n  containers:\n  - name: logs\n    image: l\n    \
               volumeMounts:\n    - {name: config, mountPath: /etc/sonobuoy}\n  - name: worker\n    command: [/sonobuoy, worker, single-node]\n  \
               volumes:\n  - name: config\n    configMap: {name: __SONOBUOY_CONFIGMAP__}\n";
    let file = format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: heptio-sonobuoy}}\n---\napiVersion: v1\nkind: ConfigMap\n\
         metadata: {{name: settings}}\ndata:\n  config.json: |\n{}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: plugins}}\n\
         data:\n  systemdlogs.yaml: |\n{}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: sonobuoy}}\n---\n",
        indented(config),
        indented(old),
    );
    let done = Sonobuoy::new(&format!("gen {VERSION} -p quick.yaml"))
        .file("quick.yaml", file)
        .stderr_has("ignored, since they do not define a plugin: Namespace `heptio-sonobuoy`, ConfigMap `settings`, Pod `sonobuoy`")
        .stderr_has("the volume `config` of `__SONOBUOY_CONFIGMAP__`, mounted at `/etc/sonobuoy` was dropped")
        .run_any();
    let logs = definition(&documents(&done.stdout), "systemd-logs");
    let mounts = logs["spec"]["volumeMounts"].as_array().unwrap();
    assert_eq!(
        mounts
            .iter()
            .map(|mount| &mount["name"])
            .collect::<Vec<_>>(),
        ["results"]
    );
    Sonobuoy::new(&format!("gen {VERSION} -p two.yaml"))
        .file(
            "two.yaml",
            "kind: Namespace\napiVersion: v1\nmetadata: {name: a}\n---\nkind: Pod\napiVersion: v1\n",
        )
        .status(1)
        .stderr_has("there is no plugin definition; it has Namespace `a`, Pod ``")
        .run();
    Sonobuoy::new(&format!("gen {VERSION} -p bare.yaml"))
        .file("bare.yaml", "spec: {image: i}\n")
        .status(1)
        .stderr_has("put it beside `spec`, with `driver` (Job or DaemonSet) and `plugin-name`")
        .run();
}

#[test]
fn undefined_plugin_selection_is_rejected_before_the_run() {
    let gen_with = |config: &str| {
        Sonobuoy::new(&format!("gen {VERSION} --config c.json -p a.yaml"))
            .file("a.yaml", plugin("a-b", "Job"))
            .file("c.json", config)
    };
    gen_with(r#"{"Plugins": [{"name": "a-b"}]}"#).run_any();
    gen_with(r#"{"Plugins": [{"name": "a_b"}]}"#).run_any();
    gen_with(r#"{"Plugins": [{"name": "c"}], "PluginSearchPath": ["/elsewhere"]}"#).run_any();
    let unknown = r#"{"Plugins": [{"name": "a-b"}, {"name": "c"}]}"#;
    let words = "selects `c`, which is not defined; this run has a-b: add `-p c`";
    // The original prints it.
    gen_with(unknown)
        .stdout_has("plugin-name: a-b")
        .stderr_has(words)
        .stderr_has("`run` rejects it")
        .run();
    Sonobuoy::new(&format!(
        "run --rbac Enable {VERSION} --config c.json -p a.yaml"
    ))
    .file("a.yaml", plugin("a-b", "Job"))
    .file("c.json", unknown)
    .status(1)
    .stderr_has(words)
    .run();
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[test]
fn plugins_can_be_installed_shown_listed_and_removed() {
    let text = "sonobuoy-config:\n  driver: Job\n  plugin-name: p\n  description: about\nspec:\n  image: i\n  name: box\n";
    let installed = Sonobuoy::new("plugin install saved p.yaml")
        .file("p.yaml", text)
        .run_any();
    let folder = installed.folder.path().to_owned();
    let path = folder.join(".sonobuoy").join("saved.yaml");
    let path = path.display();
    assert_eq!(
        installed.stdout,
        format!("Installed plugin box into file {path} from source p.yaml\n")
    );
    let again = |words: &str| Sonobuoy::new(words).env("HOME", &folder);
    again("plugin list")
        .stdout_has(&format!(
            "Run as: saved\nFilename: {path}\nPlugin name (in aggregator): p\nSource URL: \nDescription: about\n---\n"
        ))
        .stdout_has("Run as: hello\nFilename: built in\nPlugin name (in aggregator): hello\n")
        .run();
    let shown = "sonobuoy-config:\n  description: about\n  driver: Job\n  plugin-name: p\nspec:\n  image: i\n  name: box\n  \
                 resources: {}\n\n";
    again("plugins show saved.yaml").stdout(shown).run();
    // Only the use by name is disabled.
    again("plugins show saved")
        .env("SONOBUOY_PLUGIN_INSTALLATION", "false")
        .stdout(shown)
        .run();
    std::fs::create_dir(folder.join(".sonobuoy/more")).unwrap();
    std::fs::copy(
        folder.join(".sonobuoy").join("saved.yaml"),
        folder.join(".sonobuoy/more/x.yaml"),
    )
    .unwrap();
    again("plugins show more/x").stdout(shown).run();
    again("plugins uninstall more/x")
        .stdout_has("Uninstalled")
        .run();
    std::fs::write(folder.join(".sonobuoy/bad.yaml"), "[").unwrap();
    again("plugin list")
        .stdout_has("Run as: saved")
        .stderr_has("bad.yaml`, line")
        .run();
    again("plugin install ../x p.yaml")
        .file("p.yaml", text)
        .status(1)
        .stderr_has("without `/`")
        .run();
    again("plugin install x p.yaml")
        .file("p.yaml", "a: b: c")
        .status(1)
        .stderr_has("line 1, column 5")
        .run();
    assert!(!folder.join(".sonobuoy/x.yaml").exists());
    again("plugin uninstall saved")
        .stdout(&format!("Uninstalled plugin file {path}\n"))
        .run();
    for words in [
        "plugin uninstall saved",
        "plugin show saved",
        "plugin show ../p",
    ] {
        again(words)
            .status(1)
            .stderr_has("plugin")
            .stderr_has("level=error")
            .run();
    }
    // The plugin can be renamed wherever it is used.
    again("plugin install x_y p.yaml")
        .file("p.yaml", text.replace("name: p\n", "name: A_b\n"))
        .stdout_has("Installed plugin box")
        .stderr_has("`A_b` cannot be used")
        .stderr_has("`-p x_y@newname`")
        .run();
    let objects = documents(
        &again(&format!("gen {VERSION} -p x_y@good"))
            .run_any()
            .stdout,
    );
    definition(&objects, "good");
    again(&format!("gen {VERSION} -p x_y"))
        .status(1)
        .stderr_has("as in `-p x_y@newname`")
        .run();
    Sonobuoy::new("plugin list")
        .without_env("HOME")
        .status(1)
        .stderr_has("SONOBUOY_DIR")
        .run();
}

#[test]
fn definitions_are_checked_without_a_cluster() {
    let valid = "sonobuoy-config: {driver: DaemonSet, plugin-name: p}\nspec: {image: i}\n";
    let check = |words: &str| Sonobuoy::new(&format!("plugin check {words}"));
    check("p.yaml")
        .file("p.yaml", valid)
        .stdout("p.yaml: plugin `p` is valid: driver DaemonSet, result-format raw\n")
        .stderr_has("container `plugin` has no `command`")
        .run();
    check("-")
        .stdin(valid)
        .stdout_has("-: plugin `p` is valid")
        .stderr_has("level=warning")
        .run();
    // Every definition is reported, whatever is wrong with others.
    for (words, expected) in [
        (
            "bad.yaml p.yaml",
            "unknown key `plugin_name` in `sonobuoy-config`",
        ),
        ("p.yaml p.yaml", "two plugins are called `p`"),
    ] {
        check(words)
            .file("p.yaml", valid)
            .file("bad.yaml", valid.replace("plugin-name", "plugin_name"))
            .status(1)
            .stdout_has("p.yaml: plugin `p` is valid")
            .stderr_has(expected)
            .run();
    }
}

#[test]
fn new_plugin_runs_from_standard_input() {
    let definition = Sonobuoy::new("plugin new --name mine").run_any().stdout;
    Sonobuoy::new("run --local -p -")
        .stdin(&definition)
        .stdout_has("Plugin: mine\nStatus: passed")
        .run_any();
    Sonobuoy::new("run -p - --contexts a,b --kubeconfig kube")
        .file("kube", "apiVersion: v1\nkind: Config\n")
        .stdin(definition)
        .status(1)
        .stderr_has("--plugin - cannot be used with several clusters")
        .run_any();
}

#[test]
fn published_definitions_are_kept_completely() {
    let folder = fixture("plugins");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let given: Value = serde_yaml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let name = given["sonobuoy-config"]["plugin-name"].as_str().unwrap();
        let line = format!("gen {VERSION} --rbac Disable -p");
        let objects = objects(Sonobuoy::new(&line).arg(&path));
        let came = definition(&objects, name);
        for (key, value) in given["sonobuoy-config"].as_object().unwrap() {
            if key != "source_url" {
                assert_eq!(&came["sonobuoy-config"][key], value, "{}", path.display());
            }
        }
        assert_eq!(
            came.get("config-map"),
            given.get("config-map"),
            "{}",
            path.display()
        );
        holds(&came["spec"], &given["spec"], name);
        if let Some(pod) = given.get("podSpec") {
            holds(&came["podSpec"], pod, name);
        }
        count += 1;
    }
    assert_eq!(count, 10);
}

fn holds(came: &Value, given: &Value, place: &str) {
    match given {
        Value::Object(map) => {
            for (key, value) in map {
                let place = format!("{place}.{key}");
                match key.as_str() {
                    "resources" if value == &json!({}) => {}
                    "mountPath" if given["name"] == "results" => {
                        assert_eq!(came[key], "/tmp/sonobuoy/results", "{place}");
                    }
                    "value"
                        if ["RESULTS_DIR", "SONOBUOY_K8S_VERSION"]
                            .iter()
                            .any(|name| given["name"] == *name) => {}
                    "image" => {
                        let image = value
                            .as_str()
                            .unwrap()
                            .replace("$SONOBUOY_K8S_VERSION", "v1.30.0");
                        let stock =
                            place.starts_with("e2e.") && image == "k8s.gcr.io/conformance:v1.30.0";
                        let image = if stock {
                            "registry.k8s.io/conformance:v1.30.0".into()
                        } else {
                            image
                        };
                        assert_eq!(came[key], image, "{place}");
                    }
                    _ => holds(&came[key], value, &place),
                }
            }
        }
        Value::Array(items) if items.iter().all(|item| item.get("name").is_some()) => {
            for item in items {
                let same = came
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|c| c["name"] == item["name"]);
                holds(
                    same.unwrap_or_else(|| panic!("{place}: no {}", item["name"])),
                    item,
                    place,
                );
            }
        }
        other => assert_eq!(came, other, "{place}"),
    }
}

#[test]
fn plugins_are_fetched_by_url() {
    let answer = |path: &str| match path {
        "/p.yaml" => (200, plugin("p", "Job")),
        "/bad.yaml" => (200, "a: b: c".into()),
        "/large.yaml" => (200, "x".repeat(5 << 20)),
        _ => (404, "no".into()),
    };
    let mut address = String::new();
    serve(answer, |url| {
        address = url.to_owned();
        let call = |path: &str| Sonobuoy::new(&format!("gen {VERSION} -p {url}{path}"));
        definition(&objects(call("/p.yaml")), "p");
        definition(&objects(call("/p.yaml@new")), "new");
        for (path, words) in [
            ("/none.yaml", "404"),
            ("/bad.yaml", "/bad.yaml`, line 1, column 5"),
            ("/large.yaml", "larger than"),
        ] {
            call(path).status(1).stderr_has(words).run();
        }
        let trusting = |content: &str| {
            call("/p.yaml")
                .file("ca.pem", content)
                .env("SSL_CERT_FILE", "ca.pem")
        };
        trusting("nothing")
            .status(1)
            .stderr_has("SSL_CERT_FILE")
            .run();
        Sonobuoy::new(&format!("plugin install p {url}/p.yaml"))
            .stdout_has("from source http://")
            .run();
    });
    Sonobuoy::new(&format!("gen {VERSION} -p {address}/p.yaml"))
        .status(1)
        .stderr_has("failed to fetch")
        .run();
}

/// Responds to every request with the definition over TLS, with a certificate signed by the CA or
/// with the CA's own certificate; returns the CA as PEM.
fn serve_tls(listener: TcpListener, itself: bool) -> (String, JoinHandle<()>) {
    let (mut key, ca_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let names = || CertificateParams::new(vec!["localhost".into()]).unwrap();
    let mut ca = names();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = ca.self_signed(&ca_key).unwrap();
    let authority = signed.pem();
    let issuer = Issuer::new(ca, &ca_key);
    let mut leaf = names().signed_by(&key, &issuer).unwrap();
    if itself {
        (leaf, key) = (signed, ca_key);
    }
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
    let config = Arc::new(config);
    let serving = std::thread::spawn(move || {
        // A plain-text word stops the server.
        for stream in listener.incoming().map(Result::unwrap) {
            let mut first = [0];
            if stream.peek(&mut first).is_ok() && &first == b"!" {
                return;
            }
            let mut talk = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
            let body = plugin("p", "Job");
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // A client that does not trust the certificate disconnects.
            let _ = talk
                .read(&mut [0; 4096])
                .and_then(|_| talk.write_all((head + &body).as_bytes()));
            talk.conn.send_close_notify();
            let _ = talk.flush();
        }
    });
    (authority, serving)
}

#[test]
fn private_ca_of_a_plugin_server_is_trusted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (authority, serving) = serve_tls(listener, false);
    let call = || {
        let call = Sonobuoy::new(&format!(
            "gen {VERSION} -p https://localhost:{}/p.yaml",
            address.port()
        ));
        call.file("ca.pem", &authority)
            .file("folder/company.crt", &authority)
            .file("folder/note", "none")
    };
    let said = call().status(1).stderr_has("UnknownIssuer").run().stderr;
    assert!(
        said.contains("set SSL_CERT_FILE to a PEM file with that authority"),
        "{said}"
    );
    definition(&objects(call().env("SSL_CERT_FILE", "ca.pem")), "p");
    definition(
        &objects(call().env(
            "SSL_CERT_DIR",
            std::env::join_paths(["absent", "folder"]).unwrap(),
        )),
        "p",
    );
    TcpStream::connect(address)
        .unwrap()
        .write_all(b"!")
        .unwrap();
    serving.join().unwrap();
}

#[test]
fn ca_certificate_used_by_a_server_is_explained() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (authority, serving) = serve_tls(listener, true);
    let call = Sonobuoy::new(&format!(
        "gen {VERSION} -p https://localhost:{}/p.yaml",
        address.port()
    ));
    let said = call
        .file("ca.pem", authority)
        .env("SSL_CERT_FILE", "ca.pem")
        .status(1)
        .run_any()
        .stderr;
    assert!(
        said.contains("is that of an authority (CA:TRUE)") && said.contains("CA:FALSE"),
        "{said}"
    );
    TcpStream::connect(address)
        .unwrap()
        .write_all(b"!")
        .unwrap();
    serving.join().unwrap();
}

#[test]
fn misspelt_key_is_rejected_and_unknown_keys_are_named() {
    let definition = |key: &str| {
        format!(
            "sonobuoy-config:\n  driver: Job\n  plugin-name: p\n  {key}: junit\nspec: {{name: c, image: i, command: [sh]}}\n"
        )
    };
    for command in ["gen -p p.yaml", "run --local -p p.yaml"] {
        Sonobuoy::new(command)
            .file("p.yaml", definition("resultformat"))
            .stdout("")
            .stderr_has("`-p p.yaml`, line 4, column 3: unknown key `resultformat` in `sonobuoy-config`; did you mean `result-format`?")
            .status(1)
            .run();
    }
    let note =
        "p.yaml`: line 4, column 3: unknown key `maintainer` in `sonobuoy-config`; it is ignored";
    Sonobuoy::new("gen -p p.yaml")
        .file("p.yaml", definition("maintainer"))
        .stdout_has("plugin-name: p")
        .stderr_has(note)
        .run_any();
    let done = Sonobuoy::new("gen -p p.yaml")
        .file("p.yaml", definition("source_url"))
        .run_any();
    assert!(!done.stderr.contains("unknown key"), "{}", done.stderr);
    Sonobuoy::new("plugin install p p.yaml")
        .file("p.yaml", definition("resultformat"))
        .stdout_has("Installed plugin c")
        .stderr_has("did you mean `result-format`?")
        .run();
}

#[test]
fn pull_secret_of_a_prepared_namespace_is_used() {
    let (api, _folder, config) = crate::run::cluster();
    let call = || {
        Sonobuoy::new(&format!(
            "run --kubeconfig {config} -p p.yaml --rbac Enable --image-pull-secret registry"
        ))
        .file("p.yaml", plugin("p", "Job"))
    };
    call()
        .status(1)
        .stderr_has("there is no namespace `sonobuoy`, and a run with these settings")
        .run();
    namespace(&api);
    call()
        .status(1)
        .stderr_has("there is no secret `registry` in namespace `sonobuoy`: create it")
        .run();
    assert!(api.get(AGGREGATOR).is_none());
    api.put(
        "/api/v1/namespaces/sonobuoy/secrets/registry",
        json!({"type": "kubernetes.io/dockerconfigjson"}),
    );
    call().run_any();
    assert_eq!(
        api.get(AGGREGATOR).unwrap()["spec"]["imagePullSecrets"],
        json!([{"name": "registry"}])
    );
    let map = api
        .get("/api/v1/namespaces/sonobuoy/configmaps/sonobuoy-config-cm")
        .unwrap();
    assert!(
        map["data"]["config.json"]
            .as_str()
            .unwrap()
            .contains(r#""ImagePullSecrets":"registry""#)
    );
}
