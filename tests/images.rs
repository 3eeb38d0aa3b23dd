//! `images`: lists from definitions, and copies between registries and archives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;

use super::support::registry::{Habits, Registry, digest};
use super::support::{Folder, Sonobuoy, program};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A definition with one image.
pub fn plugin(image: &str) -> String {
    format!(
        "sonobuoy-config: {{driver: Job, plugin-name: p}}\nspec: {{name: p, image: '{image}'}}\n"
    )
}

/// An image for two platforms; if `large`, one layer exceeds one chunk of an upload.
pub fn fill(registry: &Registry, repository: &str, large: bool) -> (String, Vec<u8>) {
    let size = if large { 40 << 20 } else { 300_000 };
    let layer: Vec<u8> = (0..size as u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let layer_digest = registry.put_blob(&layer);
    let mut entries = Vec::new();
    for arch in ["amd64", "arm64"] {
        let config = format!("{{\"architecture\":\"{arch}\",\"os\":\"linux\"}}");
        let config_digest = registry.put_blob(config.as_bytes());
        let manifest = format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST}\",\"config\":{{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"{config_digest}\",\"size\":{}}},\"layers\":[{{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\",\"digest\":\"{layer_digest}\",\"size\":{}}}]}}",
            config.len(),
            layer.len(),
        );
        let digest = registry.put_manifest(repository, arch, MANIFEST, manifest.as_bytes());
        entries.push(format!(
            "{{\"mediaType\":\"{MANIFEST}\",\"digest\":\"{digest}\",\"size\":{},\"platform\":{{\"os\":\"linux\",\"architecture\":\"{arch}\"}}}}",
            manifest.len()
        ));
    }
    let index = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{INDEX}\",\"manifests\":[{}]}}",
        entries.join(",")
    );
    (
        registry.put_manifest(repository, "1", INDEX, index.as_bytes()),
        layer,
    )
}

fn here() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

#[test]
fn image_list_comes_from_definitions() {
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "localhost/sonobuoy:v{version}\nregistry.k8s.io/conformance:v1.30.0\nsonobuoy/systemd-logs:v0.4\n"
    );
    for words in ["images --dry-run", "images list --dry-run"] {
        Sonobuoy::new(words)
            .arg("--kubernetes-version=v1.30.0")
            .stdout(&expected)
            .stderr_has("leaves out the images of the e2e tests")
            .run();
    }
    // Scripts read the file name from this line.
    Sonobuoy::new("images download --dry-run --kubernetes-version=v1.30.0")
        .stdout("kubernetes_e2e_images_v1.30.0.tar\n")
        .stderr_has("would download registry.k8s.io/conformance:v1.30.0")
        .run();
    Sonobuoy::new("images push -p systemd-logs")
        .stderr_has("nothing is pushed")
        .run();
    Sonobuoy::new("images push --kubernetes-version=v1.30.0")
        .status(1)
        .stderr_has("no registry to push to")
        .run();
    let own = format!("localhost/sonobuoy:v{version}\n");
    Sonobuoy::new("images list -p host-facts,network")
        .stdout(&own)
        .run();
    let own = format!("{own}reg.local/x:2\n");
    Sonobuoy::new("images list -p p.yaml")
        .file("p.yaml", plugin("reg.local/x:2"))
        .stdout(&own)
        .run();
    Sonobuoy::new("images list -p nothing")
        .status(1)
        .stderr_has("nothing")
        .run();
}

#[test]
fn interrupted_download_resumes_and_is_pushed() {
    let from = Registry::start(Habits {
        cut_after: Some(100_000),
        ..Habits::default()
    });
    let (_, layer) = fill(&from, "team/tool", false);
    let image = format!("{}/team/tool:1", from.host());
    let call =
        Sonobuoy::new("images download -p p.yaml -o images.tar").file("p.yaml", plugin(&image));
    let done = call
        .stderr_has("not in any registry")
        .stdout("images.tar\n")
        .run();
    assert!(
        from.log()
            .iter()
            .filter(|line| line.contains(&digest(&layer)))
            .count()
            >= 3,
        "{:?}",
        from.log()
    );
    assert!(!done.folder.join("images.blobs").exists());

    let login = Some(("me".to_owned(), "secret".to_owned()));
    let to = Registry::start(Habits {
        login,
        ..Habits::default()
    });
    let config = format!(
        "{{\"auths\":{{\"{}\":{{\"username\":\"me\",\"password\":\"secret\"}}}}}}",
        to.host()
    );
    let push = || {
        Sonobuoy::new("images push --archive images.tar --custom-registry")
            .arg(format!("{}/mirror", to.host()))
            .file(
                "images.tar",
                std::fs::read(done.folder.join("images.tar")).unwrap(),
            )
    };
    push().status(1).stderr_has("401").run();
    let name = format!("{}/mirror/tool:1\n", to.host());
    push()
        .file(".docker/config.json", &config)
        .stdout(&name)
        .stderr_has("2 new blobs")
        .run();
    assert_eq!(
        to.manifest("mirror/tool", "1"),
        from.manifest("team/tool", here())
    );
    assert_eq!(to.blob(&digest(&layer)), Some(layer));
    push()
        .file(".docker/config.json", &config)
        .stdout(&name)
        .stderr_has(": 0 new blobs")
        .run();
}

#[test]
fn all_platforms_are_copied_between_registries() {
    let (from, to) = (
        Registry::start(Habits::default()),
        Registry::start(Habits {
            lose_pieces: 2,
            ..Habits::default()
        }),
    );
    let (root, layer) = fill(&from, "a/b/tool", true);
    let image = format!("{}/a/b/tool:1", from.host());
    let call =
        Sonobuoy::new("images push -p p.yaml --platform all --custom-registry").arg(to.host());
    call.file("p.yaml", plugin(&image))
        .stdout_has("/tool:1\n")
        .run_any();
    assert_eq!(
        to.manifest("tool", "1").map(|bytes| digest(&bytes)),
        Some(root)
    );
    assert!(
        to.blob(&digest(&layer)).is_some_and(|blob| blob == layer),
        "pieces that were lost came again"
    );
}

#[test]
fn damaged_missing_and_invalid_archives_are_rejected() {
    let registry = Registry::start(Habits {
        spoil: true,
        ..Habits::default()
    });
    fill(&registry, "tool", false);
    let download = |image: &str| {
        let image = format!("{}/{image}", registry.host());
        Sonobuoy::new("images download -p p.yaml -o images.tar")
            .file("p.yaml", plugin(&image))
            .status(1)
    };
    let done = download("tool:1").stderr_has("with the digest").run();
    assert!(!done.folder.join("images.tar").exists());
    download("tool:2").stderr_has("not found").run();
    download("tool:1")
        .arg("--platform=riscv64")
        .stderr_has("only for linux/amd64, linux/arm64")
        .run();
    let push =
        || Sonobuoy::new("images push --archive a.tar --custom-registry 127.0.0.1:1").status(1);
    push().file("a.tar", "no tar").stderr_has("`a.tar`").run();
    push().stderr_has("`a.tar`").run();
    Sonobuoy::new("images push -p host-facts")
        .status(1)
        .stderr_has("--custom-registry")
        .run();
}

#[test]
fn inspect_lists_the_contents() {
    let registry = Registry::start(Habits::default());
    let (root, _) = fill(&registry, "tool", false);
    let host = registry.host();
    let call =
        |image: &str| Sonobuoy::new("images inspect -p p.yaml").file("p.yaml", plugin(image));
    call(&format!("{host}/tool:1"))
        .stdout(&format!("{host}/tool:1 found {root}\n"))
        .stderr_has("not in any registry")
        .run();
    let missing = format!("{host}/tool:9");
    call(&missing)
        .status(1)
        .stdout(&format!("{missing} missing\n"))
        .stderr_has("1 of the images were not found")
        .run();
}

#[cfg(unix)]
#[test]
fn anonymous_reads_and_authenticated_writes_work_together() {
    let from = Registry::start(Habits::default());
    fill(&from, "tool", false);
    let login = Some(("me".to_owned(), "secret".to_owned()));
    let to = Registry::start(Habits {
        login,
        open: true,
        ..Habits::default()
    });
    let image = format!("{}/tool:1", from.host());
    let push = || {
        let call = Sonobuoy::new("images push -p p.yaml --custom-registry").arg(to.host());
        call.file("p.yaml", plugin(&image))
    };
    push().status(1).stderr_has("401").run();
    let auth = format!(
        "{{\"auths\":{{\"{}\":{{\"username\":\"me\",\"password\":\"secret\"}}}}}}",
        to.host()
    );
    push()
        .file(".docker/config.json", &auth)
        .stdout_has("/tool:1\n")
        .stderr_has("2 new blobs")
        .run();
    // A credential helper gives the same secret without a file.
    let helper = "#!/bin/sh\nread server\necho '{\"Username\":\"me\",\"Secret\":\"secret\"}'\n";
    let call = push().file(".docker/config.json", "{\"credsStore\":\"fake\"}");
    let path = programs(&call, &[("docker-credential-fake", helper)]);
    call.env("PATH", path)
        .stdout_has("/tool:1\n")
        .stderr_has(": 0 new blobs")
        .run();
    let call = push().file(".docker/config.json", "{\"credsStore\":\"fake\"}");
    let path = programs(
        &call,
        &[("docker-credential-fake", "#!/bin/sh\nexec yes\n")],
    );
    call.env("PATH", path)
        .status(1)
        .stderr_has("`docker-credential-fake` failed: it printed more than")
        .run();
}

/// Programs in a folder, and PATH with that folder first.
#[cfg(unix)]
pub(super) fn programs(call: &Sonobuoy, scripts: &[(&str, &str)]) -> String {
    let folder = call.folder().join("bin");
    std::fs::create_dir(&folder).unwrap();
    for (name, script) in scripts {
        std::fs::write(folder.join(name), script).unwrap();
        super::support::system::make_runnable(&folder.join(name));
    }
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// A file of an archive.
fn inside(folder: &Folder, archive: &str, name: &str) -> serde_json::Value {
    let tar = Command::new("tar")
        .arg("xOf")
        .arg(folder.join(archive))
        .arg(name)
        .output()
        .unwrap();
    serde_json::from_slice(&tar.stdout).unwrap()
}

#[test]
fn digest_references_are_kept_and_adapted_for_docker() {
    let Some(_) = program("tar") else { return };
    let registry = Registry::start(Habits::default());
    let (root, _) = fill(&registry, "tool", false);
    let host = registry.host();
    for (name, platform, tags) in [
        (
            format!("{host}/tool@{root}"),
            "amd64",
            serde_json::Value::Null,
        ),
        (
            format!("{host}/tool:1@{root}"),
            "amd64",
            [format!("{host}/tool:1")].as_slice().into(),
        ),
        (
            format!("{host}/tool:1"),
            "all",
            [format!("{host}/tool:1")].as_slice().into(),
        ),
    ] {
        let call = Sonobuoy::new("images download -p p.yaml -o i.tar --platform").arg(platform);
        let done = call
            .file("p.yaml", plugin(&name))
            .stdout("i.tar\n")
            .run_any();
        let index = inside(&done.folder, "i.tar", "index.json");
        assert_eq!(
            index["manifests"][0]["digest"], *root,
            "{name}: every platform"
        );
        assert_eq!(
            index["manifests"][0]["annotations"]["io.containerd.image.name"],
            *name
        );
        let docker = inside(&done.folder, "i.tar", "manifest.json");
        assert_eq!(docker[0]["RepoTags"], tags, "{name}");
        assert_eq!(
            docker[0]["Layers"].as_array().map(Vec::len),
            Some(1),
            "{name}"
        );
        let config = inside(&done.folder, "i.tar", docker[0]["Config"].as_str().unwrap());
        assert_eq!(config["architecture"], here());
    }
}

#[test]
fn archives_of_other_tools_are_pushed() {
    let Some(_) = program("tar") else { return };
    let (from, to) = (
        Registry::start(Habits::default()),
        Registry::start(Habits::default()),
    );
    fill(&from, "tool", false);
    let image = format!("{}/tool:1", from.host());
    let call = Sonobuoy::new("images download -p p.yaml -o i.tar").file("p.yaml", plugin(&image));
    let done = call.stdout("i.tar\n").run_any();
    let mut index = inside(&done.folder, "i.tar", "index.json");
    // As skopeo and podman write it.
    index["manifests"][0]["annotations"] =
        serde_json::json!({ "org.opencontainers.image.ref.name": image });
    std::fs::create_dir(done.folder.join("layout")).unwrap();
    let tar = |words: &[&str]| {
        let call = Command::new("tar")
            .args(words)
            .current_dir(done.folder.join("layout"))
            .status();
        assert!(call.unwrap().success(), "{words:?}");
    };
    tar(&["xf", "../i.tar"]);
    done.folder.write("layout/index.json", index.to_string());
    tar(&["cf", "../i.tar", "."]);
    tar(&["cf", "../old.tar", "manifest.json", "blobs"]);
    let push = |archive: &str| {
        let call = Sonobuoy::new("images push --archive a.tar --custom-registry").arg(to.host());
        call.file("a.tar", std::fs::read(done.folder.join(archive)).unwrap())
    };
    push("i.tar")
        .stdout(&format!("{}/tool:1\n", to.host()))
        .run_any();
    push("old.tar")
        .status(1)
        .stderr_has("not an OCI archive")
        .run();
}

/// The plain HTTP response of Go's servers to clients without TLS.
#[test]
fn local_registry_may_use_tls() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = server.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        loop {
            let mut stream = server.accept().unwrap().0;
            let mut bytes = [0; 4_096];
            let length = stream.read(&mut bytes).unwrap();
            match bytes[..length].first() {
                Some(b'G') => stream
                    .write_all(
                        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
                    )
                    .unwrap(),
                // Only a TLS connection attempt is expected: a handshake alert ends it.
                Some(0x16) => return stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    });
    let call =
        Sonobuoy::new("images inspect -p p.yaml").file("p.yaml", plugin(&format!("{host}/tool:1")));
    call.status(1)
        .stdout_has(&format!("no answer from `https://{host}/v2/`"))
        .run_any();
    thread.join().unwrap();
}

/// A conformance image whose test program is a script; its path and layer are what matters.
pub(super) fn conformance<T: AsRef<[u8]>>(registry: &Registry, layers: &[&[(&str, T)]]) -> String {
    let layers: Vec<String> = layers
        .iter()
        .map(|files| {
            let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
            for (name, content) in *files {
                let content = content.as_ref();
                let mut header = tar::Header::new_gnu();
                header.set_size(content.len() as u64);
                header.set_mode(0o755);
                tar.append_data(&mut header, name, content).unwrap();
            }
            let bytes = tar.into_inner().unwrap().finish().unwrap();
            let digest = registry.put_blob(&bytes);
            format!(
                "{{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"{digest}\",\"size\":{}}}",
                bytes.len()
            )
        })
        .collect();
    let config = registry.put_blob(b"{}");
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST}\",\"config\":{{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"{config}\",\"size\":2}},\"layers\":[{}]}}",
        layers.join(",")
    );
    for tag in ["v1", "v1.33.1"] {
        registry.put_manifest("conformance", tag, MANIFEST, manifest.as_bytes());
    }
    format!("{}/conformance:v1", registry.host())
}

/// The script of the test program.
const TESTS: &str = "#!/bin/sh
case $1 in
--list-images) echo reg.local/b:1; echo reg.local/a:1; [ -z \"$KUBE_TEST_REPO_LIST\" ] || echo reg.local/listed:1 ;;
--list-tests) echo 'These names:'; echo '    k8s.io/x/y.go:7: [sig-b] b'; echo '    k8s.io/x/y.go:3: [sig-a] a: works' ;;
esac
";

#[test]
fn conformance_image_is_listed_without_docker() {
    let registry = Registry::start(Habits::default());
    let old = "#!/bin/sh\necho reg.local/old:1\n";
    let image = conformance(
        &registry,
        &[
            &[("usr/local/bin/e2e.test", old)],
            &[("./usr/local/bin/e2e.test", TESTS)],
            &[("etc/x", "")],
        ],
    );
    let e2e = format!(
        "sonobuoy-config: {{driver: Job, plugin-name: e2e}}\nspec: {{name: e2e, image: '{image}'}}\n"
    );
    let own = format!("localhost/sonobuoy:v{}", env!("CARGO_PKG_VERSION"));
    let used = format!("msg=\"e2e image to be used: {image}\"\n");
    let list = |words: &str| {
        Sonobuoy::new(words)
            .file("e2e.yaml", &e2e)
            .stderr_has(&used)
    };
    list("images list --unconfined -p e2e.yaml")
        .stdout(&format!("{image}\n{own}\nreg.local/a:1\nreg.local/b:1\n"))
        .run();
    let blobs = registry
        .log()
        .iter()
        .filter(|line| line.starts_with("GET") && line.contains("/blobs/"))
        .count();
    assert_eq!(blobs, 2, "layers below the matching one are not fetched");
    list("images list --unconfined -p e2e.yaml --plugin-env e2e.KUBE_TEST_REPO_LIST=x")
        .stdout_has("reg.local/listed:1\n")
        .run();
    Sonobuoy::new("e2e --unconfined --input image --kube-conformance-image")
        .arg(&image)
        .stdout("[sig-a] a: works\n[sig-b] b\n")
        .run();
    // Lists and archives give the same result without a registry.
    list("images list -p e2e.yaml --images-from list")
        .file("list", "# mine\nreg.local/z:1\n")
        .stdout_has("reg.local/z:1\n")
        .run();
    let plain = format!(
        "sonobuoy-config: {{driver: Job, plugin-name: p}}\nspec: {{name: p, image: '{image}'}}\n"
    );
    let packed = Sonobuoy::new("images download -p p.yaml -o i.tar")
        .file("p.yaml", plain)
        .run_any();
    list("images list --unconfined -p e2e.yaml --images-from i.tar")
        .file("i.tar", std::fs::read(packed.folder.join("i.tar")).unwrap())
        .stdout_has("reg.local/a:1\nreg.local/b:1\n")
        .run();
}

#[test]
fn other_images_are_rejected_by_name() {
    let registry = Registry::start(Habits::default());
    for (files, words) in [
        (
            &[("usr/local/bin/other", "")][..],
            "is not a conformance image: it has no `/usr/local/bin/e2e.test`",
        ),
        (
            &[("usr/local/bin/.wh.e2e.test", "")],
            "is not a conformance image",
        ),
        (
            &[("usr/local/bin/e2e.test", "#!/bin/sh\n")],
            "lists no images",
        ),
        (
            &[("usr/local/bin/e2e.test", "#!/bin/sh\necho '<html>'\n")],
            "lists an image that is not one",
        ),
        (
            &[("usr/local/bin/e2e.test", "#!/bin/sh\nexit 3\n")],
            "failed (exit status: 3)",
        ),
    ] {
        let image = conformance(&registry, &[&[("usr/local/bin/e2e.test", TESTS)], files]);
        let image = if files[0].0.ends_with("other") {
            conformance(&registry, &[files])
        } else {
            image
        };
        let e2e = format!(
            "sonobuoy-config: {{driver: Job, plugin-name: e2e}}\nspec: {{name: e2e, image: '{image}'}}\n"
        );
        let call = Sonobuoy::new("images list --unconfined -p e2e.yaml").file("e2e.yaml", e2e);
        call.status(1)
            .stdout("")
            .stderr_has(words)
            .stderr_has("--images-from FILE")
            .run();
    }
}

/// Docker, replaced by a script that knows images by name.
#[cfg(unix)]
#[test]
fn docker_error_of_one_image_spares_the_others() {
    let docker = r#"#!/bin/sh
echo "$*" >> log
case "$*" in
*absent*) echo "no such image" >&2; exit 1 ;;
"inspect --type=image -- reg.local/here:1" | "inspect --type=image -- registry.k8s.io/conformance:v1.30.0") ;;
inspect*) exit 1 ;;
*--list-images) echo reg.local/of-the-tests:1 ;;
*) echo progress of docker ;;
esac
"#;
    let own = format!("localhost/sonobuoy:v{}", env!("CARGO_PKG_VERSION"));
    let call = |words: &str| {
        let mut call = Sonobuoy::new(words);
        for name in ["absent", "here", "other"] {
            call = call.file(
                &format!("{name}.yaml"),
                plugin(&format!("reg.local/{name}:1")),
            );
        }
        let path = programs(&call, &[("docker", docker)]);
        call.env("PATH", path)
    };
    let three = "-p absent.yaml,here.yaml,other.yaml";
    let done = call(&format!("images pull {three}"))
        .status(1)
        .stdout("")
        .stderr_has("failed with 1 image")
        .run();
    assert!(
        done.stderr.contains("progress of docker")
            && done
                .stderr
                .contains(&format!("{own} is not in any registry"))
    );
    let pulled = |done: &super::support::command::Done| {
        let log = done.folder.read("log");
        log.lines()
            .filter(|line| !line.starts_with("inspect"))
            .map(ToOwned::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        pulled(&done),
        [
            "pull -- reg.local/absent:1",
            "pull -- reg.local/absent:1",
            "pull -- reg.local/other:1"
        ]
    );
    let done = call(&format!("images delete {three}"))
        .status(1)
        .stdout("")
        .stderr_has("failed with 1 image")
        .run();
    assert_eq!(
        pulled(&done)[1..],
        [
            "rmi -- reg.local/absent:1",
            "rmi -- reg.local/here:1",
            "rmi -- reg.local/other:1"
        ]
    );
    // The local conformance image is queried without a registry.
    let done = call("images list -p e2e --kubernetes-version v1.30.0")
        .stdout_has("reg.local/of-the-tests:1\n")
        .stderr_has("e2e image to be used: registry.k8s.io/conformance:v1.30.0")
        .run();
    assert_eq!(
        pulled(&done),
        [
            "run --rm --network=none --read-only --cap-drop=ALL --security-opt=no-new-privileges --memory=2g \
          --pids-limit=256 --entrypoint=e2e.test -- registry.k8s.io/conformance:v1.30.0 --list-images"
        ]
    );
}

/// What a conformance image lists is no option of docker.
#[cfg(unix)]
#[test]
fn names_listed_by_an_image_never_are_options() {
    let docker =
        "#!/bin/sh\necho \"$*\" >> log\ncase \"$*\" in *--list-images) echo \"$LISTED\" ;; esac\n";
    for listed in ["--all-tags", "-v/:/host", "--all", "$(touch x)", "a b"] {
        for words in ["images list", "images pull", "images delete"] {
            let call = Sonobuoy::new(words)
                .arg("-p=e2e")
                .arg("--kubernetes-version=v1.30.0");
            let path = programs(&call, &[("docker", docker)]);
            let call = call
                .env("PATH", path)
                .env("LISTED", listed)
                .status(1)
                .stdout("");
            let done = call.stderr_has("lists an image that is not one").run();
            let log = done.folder.read("log");
            let is_harmless = |line: &str| line.starts_with("inspect ") || line.starts_with("run ");
            assert!(log.lines().all(is_harmless), "{log}");
        }
    }
}

/// Docker again, with images that no registry has.
#[cfg(unix)]
#[test]
fn images_in_docker_are_pushed_without_their_registry() {
    let (from, to) = (
        Registry::start(Habits::default()),
        Registry::start(Habits::default()),
    );
    fill(&from, "tool", false);
    let saved = Sonobuoy::new("images download -p p.yaml -o saved.tar")
        .file("p.yaml", plugin(&format!("{}/tool:1", from.host())))
        .run_any();
    let saved = saved.folder.join("saved.tar");
    let docker = format!(
        "#!/bin/sh\ncase \"$*\" in\n'inspect --type=image -- 127.0.0.1:1/tool:1') ;;\nsave*) [ $2 = --output ] && cp {} \"$3\" ;;\n*) exit 1 ;;\nesac\n",
        saved.display()
    );
    let push = |image: &str| {
        let call = Sonobuoy::new("images push -p p.yaml --custom-registry")
            .arg(format!("{}/mirror", to.host()))
            .file("p.yaml", plugin(&format!("127.0.0.1:1/{image}:1")));
        let path = programs(&call, &[("docker", &docker)]);
        call.env("PATH", path)
    };
    push("tool")
        .stdout(&format!("{}/mirror/tool:1\n", to.host()))
        .stderr_has("docker's own copy is pushed")
        .run();
    assert_eq!(
        to.manifest("mirror/tool", "1"),
        from.manifest("tool", here())
    );
    push("absent")
        .status(1)
        .stderr_has("127.0.0.1:1")
        .stderr_has("failed with 1 image")
        .run();
}

#[cfg(unix)]
#[test]
fn podman_replaces_a_missing_docker() {
    let podman = "#!/bin/sh\necho \"$*\" >> log\ncase $1 in inspect) exit 1 ;; esac\n";
    let call = Sonobuoy::new("images pull -p p.yaml").file("p.yaml", plugin("reg.local/a:1"));
    let path = programs(&call, &[("podman", podman)]);
    let only = path.split(':').next().unwrap().to_owned();
    let done = call.env("PATH", only).run_any();
    assert!(done.folder.read("log").ends_with("pull -- reg.local/a:1\n"));
    let call = Sonobuoy::new("images pull -p p.yaml").file("p.yaml", plugin("reg.local/a:1"));
    let nowhere = call.folder().join("nowhere");
    call.env("PATH", nowhere)
        .status(1)
        .stderr_has("is docker or podman installed?")
        .run();
}

#[cfg(unix)]
#[test]
fn interrupted_push_leaves_no_files() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("{}/tool:1", server.local_addr().unwrap());
    let call = Sonobuoy::new("images push -p p.yaml --plain-http --custom-registry reg.local")
        .file("p.yaml", plugin(&image))
        .file("tmp/keep", "");
    let tmp = call.folder().join("tmp");
    let (mut command, folder) = call.env("TMPDIR", &tmp).command();
    let mut child = command.spawn().unwrap();
    // The request was sent, so the folder exists; the response never arrives.
    let _asked = server.accept().unwrap();
    assert_eq!(std::fs::read_dir(folder.join("tmp")).unwrap().count(), 2);
    assert!(
        Command::new("kill")
            .arg(child.id().to_string())
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(folder.join("tmp")).unwrap().count(), 1);
}

/// As in Go programs: this machine is never behind a proxy.
#[test]
fn proxy_applies_to_remote_hosts_only() {
    let registry = Registry::start(Habits::default());
    fill(&registry, "tool", false);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", server.local_addr().unwrap());
    let call = |image: &str| {
        let call = Sonobuoy::new("images inspect -p p.yaml").file("p.yaml", plugin(image));
        call.env("HTTP_PROXY", &proxy).env("HTTPS_PROXY", &proxy)
    };
    call(&format!("{}/tool:1", registry.host()))
        .stdout_has("found")
        .run_any();
    let thread = std::thread::spawn(move || {
        let mut stream = server.accept().unwrap().0;
        let mut lines = BufReader::new(stream.try_clone().unwrap())
            .lines()
            .map_while(Result::ok);
        let asked = lines.next().unwrap();
        assert!(lines.any(|line| line.is_empty()));
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        // No TLS server is behind it.
        stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).unwrap();
        asked
    });
    call("reg.test/tool:1")
        .status(1)
        .stdout_has("reg.test/tool:1 unknown")
        .run_any();
    assert_eq!(thread.join().unwrap(), "CONNECT reg.test:443 HTTP/1.1");
}

#[test]
fn verify_reports_each_image_and_its_node_platforms() {
    let registry = Registry::start(Habits::default());
    let (digest, _) = fill(&registry, "tool", false);
    let verify = |words: &str, image: &str| {
        Sonobuoy::new("images verify -p p.yaml")
            .args(words)
            .file("p.yaml", plugin(image))
            .run_any_status()
    };
    let image = |name: &str| format!("{}/{name}:1", registry.host());
    let (code, out, _) = verify("", &image("tool"));
    let row = format!(
        "{}  found   linux/amd64,linux/arm64  {digest}\n",
        image("tool")
    );
    assert_eq!(
        (code, out.split_once('\n').unwrap().1),
        (0, row.as_str()),
        "{out}"
    );
    let (code, out, err) = verify("--platform linux/s390x", &image("tool"));
    assert!(code == 1 && out.contains("wrong platform"), "{out}{err}");
    assert!(
        err.contains("is built for linux/amd64, linux/arm64 and not for nodes with s390x"),
        "{err}"
    );
    let (code, out, err) = verify("", &image("none"));
    assert!(code == 1 && out.contains("missing"), "{out}{err}");
    assert!(err.contains("check the image's name and tag"), "{err}");

    // An archive, and a registry for its images.
    let call =
        Sonobuoy::new("images download -p p.yaml -o a.tar").file("p.yaml", plugin(&image("tool")));
    let archive = std::fs::read(call.stdout("a.tar\n").run_any().folder.join("a.tar")).unwrap();
    let within = |image: &str| {
        let call =
            Sonobuoy::new("images verify -p p.yaml --archive a.tar").file("p.yaml", plugin(image));
        call.file("a.tar", &archive).run_any_status()
    };
    let (code, out, _) = within(&image("tool"));
    assert!(
        code == 0 && out.contains(&format!("found   linux/{}", here())),
        "{out}"
    );
    let (code, out, _) = within(&image("other"));
    assert!(code == 1 && out.contains("missing"), "{out}");
    let (code, out, err) = verify(
        &format!("--custom-registry {}/mirror", registry.host()),
        &image("tool"),
    );
    assert!(
        code == 1 && out.contains(&format!("{}/mirror/tool:1", registry.host())),
        "{out}{err}"
    );
}

/// Nodes pull from their own store: the kubelet has one image and lacks the other.
#[test]
fn verify_pulls_on_nodes_on_request() {
    let (api, _folder, config) = super::support::cluster::untouched();
    let info = serde_json::json!({"operatingSystem": "linux", "architecture": "amd64"});
    let ready = serde_json::json!([{"type": "Ready", "status": "True"}]);
    let node = serde_json::json!({"status": {"nodeInfo": info, "conditions": ready}});
    api.put("/api/v1/nodes/n1", node);
    api.controller(|api, change| {
        if change.kind != "ADDED" || !change.path.contains("/pods/sonobuoy-doctor") {
            return;
        }
        let state = |container: &serde_json::Value| {
            let absent = container["image"] == "reg.local/absent:1";
            let pull =
                serde_json::json!({"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}});
            let start = serde_json::json!({"terminated": {"reason": "StartError", "exitCode": 128}});
            serde_json::json!({"name": container["name"], "state": if absent { pull } else { start }})
        };
        let containers = change.object["spec"]["containers"].as_array().unwrap();
        let states: Vec<_> = containers.iter().map(state).collect();
        api.merge(&change.path, &serde_json::json!({"status": {"containerStatuses": states}}));
    });
    let call = Sonobuoy::new("images verify -p p.yaml --on-nodes --kubeconfig").arg(&config);
    let (code, out, err) = call
        .file("p.yaml", plugin("reg.local/absent:1"))
        .run_any_status();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "IMAGE                       STATUS  PLATFORM     NODE\n\
         localhost/sonobuoy:v{version}  pulled  linux/amd64  n1\n\
         reg.local/absent:1          failed  linux/amd64  n1\n"
    );
    assert_eq!((code, out.as_str()), (1, expected.as_str()), "{err}");
    assert!(
        err.contains("reg.local/absent:1: ErrImagePull: manifest unknown; check the image's name"),
        "{err}"
    );
    assert!(api.list("/api/v1/namespaces").len() == 2 && api.list("/api/v1/pods").is_empty());
}
