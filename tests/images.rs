//! `images`: lists from definitions, and images on their way between registries and archives.

use super::support::Sonobuoy;
use super::support::registry::{Habits, Registry, digest};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A definition with one image.
fn plugin(image: &str) -> String {
    format!("sonobuoy-config: {{driver: Job, plugin-name: p}}\nspec: {{name: p, image: '{image}'}}\n")
}

/// An image for two platforms, with a layer that is larger than one piece of an upload when `large`.
fn fill(registry: &Registry, repository: &str, large: bool) -> (String, Vec<u8>) {
    let size = if large { 40 << 20 } else { 300_000 };
    let layer: Vec<u8> =
        (0..size as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
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
    let index =
        format!("{{\"schemaVersion\":2,\"mediaType\":\"{INDEX}\",\"manifests\":[{}]}}", entries.join(","));
    (registry.put_manifest(repository, "1", INDEX, index.as_bytes()), layer)
}

fn here() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

#[test]
fn the_list_comes_from_definitions() {
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "localhost/sonobuoy:v{version}\nregistry.k8s.io/conformance:v1.30.0\nsonobuoy/systemd-logs:v0.4\n"
    );
    for words in ["images --dry-run", "images list --dry-run"] {
        Sonobuoy::new(words).arg("--kubernetes-version=v1.30.0").stdout(&expected).run();
    }
    let own = format!("localhost/sonobuoy:v{version}\n");
    Sonobuoy::new("images list -p host-facts,network").stdout(&own).run();
    let own = format!("{own}reg.local/x:2\n");
    Sonobuoy::new("images list -p p.yaml").file("p.yaml", plugin("reg.local/x:2")).stdout(&own).run();
    Sonobuoy::new("images list -p nothing").status(1).stderr_has("nothing").run();
}

#[test]
fn a_download_that_is_cut_goes_on_and_is_pushed_elsewhere() {
    let from = Registry::start(Habits { cut_after: Some(100_000), ..Habits::default() });
    let (_, layer) = fill(&from, "team/tool", false);
    let image = format!("{}/team/tool:1", from.host());
    let call = Sonobuoy::new("images download -p p.yaml -o images.tar").file("p.yaml", plugin(&image));
    let done = call.stderr_has("in no registry").stdout("images.tar\n").run();
    assert!(from.log().iter().filter(|line| line.contains(&digest(&layer))).count() >= 3, "{:?}", from.log());
    assert!(!done.folder.join("images.blobs").exists());

    let login = Some(("me".to_owned(), "secret".to_owned()));
    let to = Registry::start(Habits { login, ..Habits::default() });
    let config =
        format!("{{\"auths\":{{\"{}\":{{\"username\":\"me\",\"password\":\"secret\"}}}}}}", to.host());
    let push = || {
        Sonobuoy::new("images push --archive images.tar --custom-registry")
            .arg(format!("{}/mirror", to.host()))
            .file("images.tar", std::fs::read(done.folder.join("images.tar")).unwrap())
    };
    push().status(1).stderr_has("401").run();
    let name = format!("{}/mirror/tool:1\n", to.host());
    push().file(".docker/config.json", &config).stdout(&name).stderr_has("2 new blobs").run();
    assert_eq!(to.manifest("mirror/tool", "1"), from.manifest("team/tool", here()));
    assert_eq!(to.blob(&digest(&layer)), Some(layer));
    push().file(".docker/config.json", &config).stdout(&name).stderr_has(": 0 new blobs").run();
}

#[test]
fn every_platform_goes_from_registry_to_registry() {
    let (from, to) =
        (Registry::start(Habits::default()), Registry::start(Habits { lose_pieces: 2, ..Habits::default() }));
    let (root, layer) = fill(&from, "a/b/tool", true);
    let image = format!("{}/a/b/tool:1", from.host());
    let call = Sonobuoy::new("images push -p p.yaml --platform all --custom-registry").arg(to.host());
    call.file("p.yaml", plugin(&image)).stdout_has("/tool:1\n").run_any();
    assert_eq!(to.manifest("tool", "1").map(|bytes| digest(&bytes)), Some(root));
    assert!(to.blob(&digest(&layer)).is_some_and(|blob| blob == layer), "pieces that were lost came again");
}

#[test]
fn what_is_spoiled_absent_or_no_archive_is_refused() {
    let registry = Registry::start(Habits { spoil: true, ..Habits::default() });
    fill(&registry, "tool", false);
    let download = |image: &str| {
        let image = format!("{}/{image}", registry.host());
        Sonobuoy::new("images download -p p.yaml -o images.tar").file("p.yaml", plugin(&image)).status(1)
    };
    let done = download("tool:1").stderr_has("with the digest").run();
    assert!(!done.folder.join("images.tar").exists());
    download("tool:2").stderr_has("not there").run();
    download("tool:1").arg("--platform=riscv64").stderr_has("it is for linux/amd64, linux/arm64").run();
    let push = || Sonobuoy::new("images push --archive a.tar --custom-registry 127.0.0.1:1").status(1);
    push().file("a.tar", "no tar").stderr_has("`a.tar`").run();
    push().stderr_has("`a.tar`").run();
    Sonobuoy::new("images push -p host-facts").status(1).stderr_has("--custom-registry").run();
}

#[test]
fn inspect_says_what_is_there() {
    let registry = Registry::start(Habits::default());
    let (root, _) = fill(&registry, "tool", false);
    let host = registry.host();
    let call = |image: &str| Sonobuoy::new("images inspect -p p.yaml").file("p.yaml", plugin(image));
    call(&format!("{host}/tool:1"))
        .stdout(&format!("{host}/tool:1 found {root}\n"))
        .stderr_has("in no registry")
        .run();
    let missing = format!("{host}/tool:9");
    call(&missing)
        .status(1)
        .stdout(&format!("{missing} missing\n"))
        .stderr_has("1 images are not there")
        .run();
}
