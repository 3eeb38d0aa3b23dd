//! The kit of a version: collected from registries, pushed into another one, used by a run without
//! further flags.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::images::{conformance, fill, plugin};
use super::support::cluster::untouched;
use super::support::registry::{Habits, Registry, digest};
use super::support::{Folder, Sonobuoy};

/// A registry with the conformance image, our image, and test images.
struct Outside {
    registry: Registry,
    folder: Folder,
}

impl Outside {
    fn new(habits: Habits, tests: &str) -> Self {
        let registry = Registry::start(habits);
        let host = registry.host();
        let program = format!(
            "#!/bin/sh\ncase $1 in\n--list-images) {} ;;\n--list-tests) echo '  k8s.io/x/y.go:7: [sig-b] b [Conformance]'; \
             echo '  k8s.io/x/y.go:3: [sig-a] a' ;;\nesac\n",
            tests.replace("HOST", &host)
        );
        conformance(&registry, &[&[("usr/local/bin/e2e.test", &program)]]);
        fill(&registry, "team/sonobuoy", false);
        let folder = Folder::new();
        let own = Sonobuoy::new("images download -p p.yaml -o own.tar")
            .file("p.yaml", plugin(&format!("{host}/team/sonobuoy:1")))
            .run_any();
        folder.write(
            "own.tar",
            std::fs::read(own.folder.join("own.tar")).unwrap(),
        );
        let image = format!("{host}/conformance:$SONOBUOY_K8S_VERSION");
        let e2e = format!(
            "sonobuoy-config: {{driver: Job, plugin-name: e2e}}\nspec: {{name: e2e, image: '{image}'}}\n"
        );
        folder.write("e2e.yaml", e2e);
        Self { registry, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Checks the images of the default plugins.
    fn verify(&self) -> Sonobuoy {
        Sonobuoy::new("images verify --kubernetes-version v1.33.1 -p systemd-logs -p")
            .arg(self.path("e2e.yaml"))
            .arg("--images-from")
            .arg(self.path("kit.tar"))
    }

    /// Creates a kit.
    fn kit(&self) -> Sonobuoy {
        Sonobuoy::new("images kit --unconfined --kubernetes-version v1.33.1 -p")
            .arg(self.path("e2e.yaml"))
            .arg("--sonobuoy-image")
            .arg(self.path("own.tar"))
            .arg("-o")
            .arg(self.path("kit.tar"))
    }
}

const IMAGES: &str = "echo HOST/e2e/agnhost:1; echo invalid.registry.k8s.io/invalid/alpine:3.1";

/// The output of a program in a folder.
fn printed(program: &str, words: &[&str], folder: &Path) -> String {
    let output = Command::new(program)
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn kit_is_complete_and_resumable() {
    let outside = Outside::new(
        Habits {
            cut_after: Some(200_000),
            ..Habits::default()
        },
        IMAGES,
    );
    outside
        .kit()
        .status(1)
        .stderr_has("e2e/agnhost:1")
        .run_any();
    assert!(outside.path("kit.blobs").exists() && !outside.path("kit.tar").exists());
    let fetched = |outside: &Outside, what: &str| {
        let log = outside.registry.log();
        log.iter()
            .filter(|line| line.starts_with("GET") && line.contains(what))
            .count()
    };
    let layers = fetched(&outside, "conformance/blobs/");
    fill(&outside.registry, "e2e/agnhost", false);
    outside
        .kit()
        .stdout(&format!("{}\n", outside.path("kit.tar").display()))
        .stderr_has("3 images and the names of 2 tests")
        .run();
    assert_eq!(
        fetched(&outside, "conformance/blobs/"),
        layers,
        "what was there is not fetched again"
    );
    assert!(!outside.path("kit.blobs").exists());

    let unpacked = Folder::new();
    let tar = outside.path("kit.tar").display().to_string();
    let names = printed("tar", &["tf", &tar], unpacked.path());
    assert!(
        names.starts_with(
            "kit.json\nimages.txt\ntests.txt\nload\ndefinitions/e2e.yaml\nSHA256SUMS\nblobs/"
        ),
        "{names}"
    );
    printed("tar", &["xf", &tar], unpacked.path());
    printed(
        "sha256sum",
        &["--quiet", "-c", "SHA256SUMS"],
        unpacked.path(),
    );
    printed("sh", &["-n", "load"], unpacked.path());
    let host = outside.registry.host();
    assert_eq!(
        unpacked.read("images.txt"),
        format!("{host}/e2e/agnhost:1\n"),
        "unavailable images are left out"
    );
    assert_eq!(
        unpacked.read("tests.txt"),
        "[sig-a] a\n[sig-b] b [Conformance]\n"
    );
    let about: Value = serde_json::from_str(&unpacked.read("kit.json")).unwrap();
    let expected = json!({"kubernetesVersion": "v1.33.1", "sonobuoyImage": format!("{host}/team/sonobuoy:1"),
        "builtIn": [], "pluginImages": [format!("{host}/conformance:v1.33.1")]});
    assert_eq!(about, expected);
    // The kit's lists replace the image where it cannot run.
    Sonobuoy::new("e2e --input")
        .arg(outside.path("kit.tar"))
        .stdout("[sig-a] a\n[sig-b] b [Conformance]\n")
        .run();
    let list =
        Sonobuoy::new("images list --kubernetes-version v1.33.1 -p").arg(outside.path("e2e.yaml"));
    let list = list
        .arg("--images-from")
        .arg(outside.path("kit.tar"))
        .stdout_has("/e2e/agnhost:1\n");
    list.stderr_has("e2e image to be used: ").run();
    let verify = outside
        .verify()
        .arg("--archive")
        .arg(outside.path("kit.tar"));
    verify
        .stdout_has("/conformance:v1.33.1")
        .stderr_has("architectures are unknown")
        .run();
}

#[test]
fn kit_is_pushed_to_a_registry_for_runs() {
    let outside = Outside::new(Habits::default(), IMAGES);
    let (root, _) = fill(&outside.registry, "e2e/agnhost", false);
    outside.kit().arg("--platform=all").run_any();
    let inside = Registry::start(Habits::default());
    let to = format!("{}/mirror", inside.host());
    let push = || {
        Sonobuoy::new("images push")
            .arg(outside.path("kit.tar"))
            .arg("--custom-registry")
            .arg(&to)
    };
    let done = push()
        .stdout(&format!(
            "{to}/agnhost:1\n{to}/conformance:v1.33.1\n{to}/sonobuoy:1\n"
        ))
        .stderr_has("`registries.yaml` is for --e2e-repo-config")
        .run();
    assert_eq!(
        inside
            .manifest("mirror/agnhost", "1")
            .map(|bytes| digest(&bytes)),
        Some(root)
    );
    let verify = outside.verify().args("--custom-registry").arg(&to);
    // Sonobuoy's image has another tag in this registry.
    let found = verify
        .status(1)
        .stderr_has("one image cannot be pulled")
        .run_any()
        .stdout;
    assert!(
        found.contains(&format!("{to}/conformance:v1.33.1  found"))
            && !found.contains("systemd-logs"),
        "{found}"
    );
    let inspect = Sonobuoy::new("images inspect --kubernetes-version v1.33.1 -p")
        .arg(outside.path("e2e.yaml"));
    let inspect = inspect
        .arg("--images-from")
        .arg(outside.path("kit.tar"))
        .arg("--custom-registry")
        .arg(&to);
    inspect
        .status(1)
        .stdout_has(&format!("{to}/conformance:v1.33.1 found"))
        .run_any();
    let file = done.folder.read("registries.yaml");
    assert!(
        file.contains(&format!("promoterE2eRegistry: {to}\n")),
        "{file}"
    );
    push()
        .file("registries.yaml", "mine: x\n")
        .status(1)
        .stderr_has("`registries.yaml` exists")
        .run();
    push()
        .file("registries.yaml", &file)
        .stderr_has(": 0 new blobs")
        .run_any();

    let (api, _folder, config) = untouched();
    api.raw("/version", 200, r#"{"gitVersion": "v1.32.2"}"#);
    let kit = outside.path("kit.tar").display().to_string();
    Sonobuoy::new(&format!(
        "run --kubeconfig {config} --kit {kit} --registry {to} --rbac Enable --skip-preflight=true"
    ))
    .stderr_has("the kit is for Kubernetes v1.33.1, and the cluster is v1.32.2")
    .run_any();
    let made = |path: &str| {
        api.get(&format!("/api/v1/namespaces/sonobuoy/{path}"))
            .unwrap()
    };
    assert_eq!(
        made("pods/sonobuoy")["spec"]["containers"][0]["image"],
        format!("{to}/sonobuoy:1")
    );
    let plugins = made("configmaps/sonobuoy-plugins-cm")["data"].clone();
    let plugin = plugins
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        plugin.contains(&format!("image: {to}/conformance:v1.33.1")),
        "{plugin}"
    );
    assert!(
        plugin.contains("value: /tmp/sonobuoy/config/registries.yaml"),
        "{plugin}"
    );
    assert_eq!(
        made("configmaps/plugin-e2e-cm")["data"]["registries.yaml"],
        file
    );
}

#[test]
fn incomplete_and_invalid_kits_are_rejected() {
    let outside = Outside::new(Habits::default(), "echo HOST/e2e/agnhost:1");
    fill(&outside.registry, "e2e/agnhost", false);
    let without_own =
        Sonobuoy::new("images kit --kubernetes-version v1.33.1 -p").arg(outside.path("e2e.yaml"));
    without_own
        .status(1)
        .stderr_has("name the archive of Sonobuoy's image with --sonobuoy-image FILE")
        .run();
    Sonobuoy::new("gen --kit")
        .arg(outside.path("own.tar"))
        .arg("-p")
        .arg(outside.path("e2e.yaml"))
        .status(1)
        .stderr_has("is not a kit; `sonobuoy images kit` makes one")
        .run_any();
    // A truncated kit is not mistaken for a list of tests.
    let mut cut = vec![0; 1024];
    let about =
        b"{\"kubernetesVersion\": \"v1\", \"sonobuoyImage\": \"\", \"builtIn\": [], \"pluginImages\": []}";
    let mut header = tar::Header::new_ustar();
    header.set_path("kit.json").unwrap();
    header.set_size(about.len() as u64);
    header.set_cksum();
    cut[..512].copy_from_slice(header.as_bytes());
    cut[512..512 + about.len()].copy_from_slice(about);
    for words in [
        "e2e --input kit.tar",
        "images list --kubernetes-version v1.33.1 --images-from kit.tar",
    ] {
        let call = Sonobuoy::new(words).file("kit.tar", &cut);
        call.status(1)
            .stdout("")
            .stderr_has("`kit.tar` is not a kit, or it is damaged")
            .run();
    }
    Sonobuoy::new("images push kit.tar --archive kit.tar --custom-registry r")
        .status(1)
        .stderr_has("--archive")
        .run_any();
    Sonobuoy::new("images push missing.tar --custom-registry r")
        .status(1)
        .stderr_has("cannot read `missing.tar`")
        .run();
    // Two images that would get the same name.
    let mixed = Outside::new(
        Habits::default(),
        "echo HOST/e2e/agnhost:1; echo HOST/other/agnhost:1",
    );
    fill(&mixed.registry, "e2e/agnhost", false);
    fill(&mixed.registry, "other/agnhost", true);
    mixed.kit().run_any();
    Sonobuoy::new("images push")
        .arg(mixed.path("kit.tar"))
        .arg("--custom-registry=reg.local")
        .status(1)
        .stderr_has("would both be `reg.local/agnhost:1`")
        .run();
    for (tests, words) in [
        ("true", "lists no images"),
        ("echo '<html>'", "lists an image that is not one"),
    ] {
        Outside::new(Habits::default(), tests)
            .kit()
            .status(1)
            .stderr_has(words)
            .stderr_has("--images-from")
            .run_any();
    }
}

#[test]
fn kit_contains_only_the_named_platforms() {
    let (from, to) = (
        Registry::start(Habits::default()),
        Registry::start(Habits::default()),
    );
    fill(&from, "tool", false);
    // A third platform, whose image is that of the first.
    let mut index: Value = serde_json::from_slice(&from.manifest("tool", "1").unwrap()).unwrap();
    let mut third = index["manifests"][0].clone();
    third["platform"]["architecture"] = "s390x".into();
    index["manifests"].as_array_mut().unwrap().push(third);
    let media = index["mediaType"].as_str().unwrap().to_owned();
    from.put_manifest("tool", "3", &media, index.to_string().as_bytes());
    let image = format!("{}/tool:3", from.host());
    let download = |platform: &str, image: &str| {
        let call =
            Sonobuoy::new("images download -p p.yaml -o images.tar --platform").arg(platform);
        call.file("p.yaml", plugin(image))
    };
    let done = download("linux/arm64,s390x", &image)
        .stdout("images.tar\n")
        .run_any();
    let push = Sonobuoy::new("images push --archive").arg(done.folder.join("images.tar"));
    push.arg("--custom-registry")
        .arg(to.host())
        .stdout_has("/tool:3\n")
        .run_any();
    let pushed: Value = serde_json::from_slice(&to.manifest("tool", "3").unwrap()).unwrap();
    let entries = pushed["manifests"].as_array().unwrap();
    let platforms: Vec<_> = entries
        .iter()
        .map(|entry| entry["platform"]["architecture"].as_str().unwrap())
        .collect();
    assert_eq!(platforms, ["arm64", "s390x"]);
    for entry in entries {
        assert!(
            to.manifest("tool", entry["digest"].as_str().unwrap())
                .is_some(),
            "{entry}"
        );
    }
    download("arm64,riscv64", &image)
        .status(1)
        .stderr_has("is not available for linux/riscv64, only for")
        .run();
    let one = format!("{}/tool:amd64", from.host());
    download("amd64,arm64", &one)
        .status(1)
        .stderr_has("is for one platform only, and 2 are wanted")
        .run();
}
