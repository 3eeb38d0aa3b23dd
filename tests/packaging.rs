//! Scripts for image and kit, with small files instead of binaries: building real ones takes
//! minutes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::folder::Folder;

fn script(name: &str, out: &Path, binaries: &Path, arches: &str) -> String {
    make(name, out, binaries, arches, "")
}

/// Man pages and completions, for packages.
fn extras(folder: &Folder) -> PathBuf {
    for (name, page) in super::man::pages().unwrap() {
        folder.write(&format!("extras/man/{name}"), page);
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = super::support::Sonobuoy::new(&format!("completion {shell}"))
            .run_any()
            .stdout;
        folder.write(&format!("extras/completion.{shell}"), script);
    }
    folder.join("extras")
}

/// What `scripts/release/packages` can build on this machine.
fn formats() -> &'static str {
    match super::support::program("rpmbuild") {
        Some(_) => "deb rpm krew homebrew scoop winget",
        None => "deb krew homebrew scoop winget",
    }
}

/// Where the files of the tests' releases will be.
const DOWNLOAD_URL: &str = "https://code.example/releases";

/// A release in `folder/files`, signed if a key is given.
fn release(folder: &Folder, formats: &str, key: &str) -> PathBuf {
    let out = folder.join("files");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    text(
        Command::new(root.join("scripts/release/build"))
            .arg(&out)
            .env("BINARIES", binaries(folder))
            .env("EXTRAS", extras(folder))
            .env("FORMATS", formats)
            .env("CA_BUNDLE", "")
            .env("DOWNLOAD_URL", DOWNLOAD_URL)
            .env("SOURCE_DATE_EPOCH", "1700000000"),
    );
    if !key.is_empty() {
        text(
            Command::new(root.join("scripts/release/sign"))
                .arg(&out)
                .env("SIGNING_KEY", key),
        );
    }
    out
}

/// The output of a script; the image has its default name unless another one is given.
fn make(name: &str, out: &Path, binaries: &Path, arches: &str, image: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("scripts").join(name))
        .arg(out)
        .env("BINARIES", binaries)
        .env("ARCHES", arches)
        .env("CA_BUNDLE", "")
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("IMAGE", image)
        .env("SOURCE_URL", "https://code.example/sonobuoy")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Placeholder binaries with a given modification time.
fn binaries(folder: &Folder) -> PathBuf {
    folder.write("bin/sonobuoy-amd64", "#!/bin/sh\necho amd64\n");
    for name in [
        "arm64",
        "armv7",
        "386",
        "ppc64le",
        "s390x",
        "riscv64",
        "darwin-arm64",
        "darwin-amd64",
        "windows-amd64.exe",
    ] {
        folder.write(
            &format!("bin/sonobuoy-{name}"),
            format!("#!/bin/sh\necho {name}\n"),
        );
    }
    folder.join("bin")
}

fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn equal_files_make_equal_images() {
    let (one, two) = (Folder::new(), Folder::new());
    for arches in ["amd64", "amd64 arm64", "all"] {
        let made = [&one, &two].map(|folder| {
            script(
                "image",
                &folder.join("image.tar"),
                &binaries(folder),
                arches,
            );
            std::fs::read(folder.join("image.tar")).unwrap()
        });
        assert!(made[0] == made[1], "{arches}");
    }
}

#[test]
fn other_tools_read_the_image() {
    let folder = Folder::new();
    let archive = folder.join("image.tar");
    let said = script("image", &archive, &binaries(&folder), "amd64");
    assert!(said.contains("localhost/sonobuoy:v"), "{said}");
    let layer = text(
        Command::new("sh")
            .args([
                "-c",
                "tar xOf \"$0\" manifest.json | sed 's/.*Layers\":\\[\"\\([^\"]*\\).*/\\1/'",
            ])
            .arg(&archive),
    );
    let listed = text(
        Command::new("sh")
            .args(["-c", "tar xOf \"$0\" \"$1\" | tar tvzf - --numeric-owner"])
            .arg(&archive)
            .arg(layer.trim()),
    );
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("-rwxr-xr-x 0/0") && line.ends_with(" sonobuoy")),
        "{listed}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("drwxrwxrwt 0/0") && line.ends_with(" tmp/")),
        "{listed}"
    );
    assert!(
        lines.iter().any(|line| line.ends_with(" etc/passwd")),
        "{listed}"
    );
    if let Some(skopeo) = super::support::program("skopeo") {
        for kind in ["oci-archive", "docker-archive"] {
            let place = format!("{kind}:{}", archive.display());
            let found = text(Command::new(&skopeo).args(["inspect", "--config", &place]));
            let config: serde_json::Value = serde_json::from_str(&found).unwrap();
            assert_eq!(config["config"]["User"], "65532:65532");
            let command = ["aggregator", "--no-exit", "-v", "3", "--logtostderr"];
            assert_eq!(
                config["config"]["Entrypoint"],
                serde_json::json!(["/sonobuoy"])
            );
            assert_eq!(config["config"]["Cmd"], serde_json::json!(command));
            assert!(config["config"]["Labels"]["org.opencontainers.image.version"].is_string());
        }
    }
}

#[test]
fn image_has_all_linux_platforms() {
    let folder = Folder::new();
    let archive = folder.join("image.tar");
    script("image", &archive, &binaries(&folder), "all");
    let blob = |place: &str| text(Command::new("tar").arg("xOf").arg(&archive).arg(place));
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let place = |digest: &str| format!("blobs/{}", digest.replace(':', "/"));
    let outer = read(&blob("index.json"));
    let index = read(&blob(&place(
        outer["manifests"][0]["digest"].as_str().unwrap(),
    )));
    let mut platforms = Vec::new();
    for entry in index["manifests"].as_array().unwrap() {
        let told = &entry["platform"];
        assert_eq!(told["os"], "linux");
        let manifest = read(&blob(&place(entry["digest"].as_str().unwrap())));
        let config = read(&blob(&place(
            manifest["config"]["digest"].as_str().unwrap(),
        )));
        for field in ["architecture", "variant"] {
            assert_eq!(config[field], told[field], "{entry}");
        }
        let variant = told["variant"].as_str().unwrap_or_default();
        let labels = &config["config"]["Labels"];
        let label = |name: &str| {
            labels[format!("org.opencontainers.image.{name}")]
                .as_str()
                .unwrap_or_default()
        };
        assert_eq!(
            [label("source"), label("url")],
            ["https://code.example/sonobuoy"; 2]
        );
        assert_eq!(label("licenses"), "Apache-2.0");
        assert!(label("documentation").ends_with("/docs"), "{labels}");
        platforms.push(format!(
            "{}{variant}",
            told["architecture"].as_str().unwrap()
        ));
    }
    assert_eq!(
        platforms,
        [
            "amd64", "arm64", "armv7", "386", "ppc64le", "s390x", "riscv64"
        ]
    );
    if let Some(skopeo) = super::support::program("skopeo") {
        let place = format!("oci-archive:{}", archive.display());
        for (arch, variant) in [("s390x", ""), ("riscv64", ""), ("arm", "v7")] {
            let mut inspect = Command::new(&skopeo);
            inspect.args(["--override-arch", arch]);
            if !variant.is_empty() {
                inspect.args(["--override-variant", variant]);
            }
            let config = read(&text(inspect.args(["inspect", "--config", &place])));
            assert_eq!(config["architecture"], arch);
        }
    }
}

#[test]
fn release_is_reproducible_and_named_like_the_original() {
    if super::support::program("python3").is_none() {
        return;
    }
    let formats = formats();
    let made = [Folder::new(), Folder::new()].map(|folder| {
        let out = release(&folder, formats, "");
        text(
            Command::new("sh")
                .args(["-c", "sha256sum --quiet -c *_checksums.txt"])
                .current_dir(&out),
        );
        let names = Folder::names_of(&out);
        let files: Vec<_> = names
            .iter()
            .map(|name| std::fs::read(out.join(name)).unwrap())
            .collect();
        if let Some(zip) = names.iter().find(|name| name.ends_with(".zip")) {
            let listed = text(
                Command::new("python3")
                    .args(["-m", "zipfile", "-l", zip])
                    .current_dir(&out),
            );
            assert!(
                listed.contains("sonobuoy.exe") && listed.contains("LICENSE"),
                "{listed}"
            );
        }
        let packed = names
            .iter()
            .find(|name| name.ends_with("linux_s390x.tar.gz"))
            .unwrap();
        let listed = text(Command::new("tar").args(["tzf", packed]).current_dir(&out));
        assert_eq!(listed, "LICENSE\nsonobuoy\n");
        let parts: serde_json::Value = serde_json::from_slice(
            &std::fs::read(
                out.join(
                    names
                        .iter()
                        .find(|name| name.ends_with("cdx.json"))
                        .unwrap(),
                ),
            )
            .unwrap(),
        )
        .unwrap();
        let has = |name: &str| {
            parts["components"]
                .as_array()
                .unwrap()
                .iter()
                .any(|part| part["name"] == name)
        };
        assert!(
            has("rustls") && has("win32job") && !has("tiny_http"),
            "what is linked, and not what only tests use"
        );
        (names, files)
    });
    assert!(made[0] == made[1], "two releases of the same files differ");
    let version = env!("CARGO_PKG_VERSION");
    let systems = [
        "darwin_amd64.tar.gz",
        "darwin_arm64.tar.gz",
        "linux_386.tar.gz",
        "linux_amd64.tar.gz",
        "linux_arm64.tar.gz",
        "linux_armv7.tar.gz",
        "linux_ppc64le.tar.gz",
        "linux_riscv64.tar.gz",
        "linux_s390x.tar.gz",
        "windows_amd64.tar.gz",
        "windows_amd64.zip",
    ];
    let mut expected: Vec<_> = systems
        .iter()
        .map(|system| format!("sonobuoy_{version}_{system}"))
        .collect();
    expected.extend([
        format!("sonobuoy_{version}_checksums.txt"),
        format!("sonobuoy_{version}_image.tar"),
        format!("sonobuoy-kit-v{version}.tar"),
        format!("sonobuoy_{version}_sbom.cdx.json"),
        format!("sonobuoy_{version}_provenance.json"),
    ]);
    let arches = [
        "amd64", "arm64", "armhf", "i386", "ppc64el", "riscv64", "s390x",
    ];
    expected.extend(arches.map(|arch| format!("sonobuoy_{version}_{arch}.deb")));
    if formats.contains("rpm") {
        let arches = [
            "aarch64", "armv7hl", "i686", "ppc64le", "riscv64", "s390x", "x86_64",
        ];
        expected.extend(arches.map(|arch| format!("sonobuoy-{version}-1.{arch}.rpm")));
    }
    let manifests = [
        "sonobuoy.json",
        "sonobuoy.rb",
        "sonobuoy.yaml",
        "Sonobuoy.Sonobuoy.yaml",
    ];
    expected.extend(manifests.map(str::to_owned));
    expected
        .extend(["installer", "locale.en-US"].map(|part| format!("Sonobuoy.Sonobuoy.{part}.yaml")));
    expected.sort();
    assert_eq!(made[0].0, expected);
}

#[test]
fn packages_and_manifests_pass_their_linters() {
    if super::support::program("python3").is_none() {
        return;
    }
    let folder = Folder::new();
    let out = release(&folder, formats(), "");
    let version = env!("CARGO_PKG_VERSION");
    // Placeholders instead of programs, and no key of a distribution; rpmlint 2.4 compares programs
    // with sections of the manual.
    let settings = "CompressExtension = \"gz\"\nValidLicenses = [\"Apache-2.0\"]\nFilters = [\"no-signature\", \"no-binary\", \"no-manual-page\", \"package-with-huge-docs\"]\n";
    let settings = folder.write("rpmlint.toml", settings);
    let (deb, rpm) = (
        format!("sonobuoy_{version}_amd64.deb"),
        format!("sonobuoy-{version}-1.x86_64.rpm"),
    );
    let settings = settings.display().to_string();
    let long = "{extends: default, rules: {line-length: {max: 160}}}";
    let linters: [(&str, &[&str], &str); 5] = [
        (
            "lintian",
            &["--allow-root", "--fail-on", "error,warning", &deb],
            "",
        ),
        ("rpmlint", &["-c", &settings, &rpm], "0 errors, 0 warnings"),
        ("ruby", &["-c", "sonobuoy.rb"], "Syntax OK"),
        ("yamllint", &["-s", "-d", long, "."], ""),
        (
            "validate-krew-manifest",
            &["-manifest", "sonobuoy.yaml", "-skip-install"],
            "",
        ),
    ];
    for (program, words, expected) in linters {
        if !out.join(words.last().unwrap()).exists()
            && words.iter().any(|word| word.ends_with(".rpm"))
        {
            continue;
        }
        let Some(program) = super::support::program(program) else {
            continue;
        };
        let said = text(Command::new(program).args(words).current_dir(&out));
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    let scoop: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("sonobuoy.json")).unwrap()).unwrap();
    let sums =
        std::fs::read_to_string(out.join(format!("sonobuoy_{version}_checksums.txt"))).unwrap();
    let zip = format!(
        "{}  sonobuoy_{version}_windows_amd64.zip\n",
        scoop["architecture"]["64bit"]["hash"].as_str().unwrap()
    );
    assert!(sums.contains(&zip), "{zip}{sums}");
    if let Some(dpkg) = super::support::program("dpkg-deb") {
        let target = folder.join("unpacked");
        text(
            Command::new(dpkg)
                .arg("-x")
                .arg(out.join(&deb))
                .arg(&target),
        );
        let started = text(&mut Command::new(target.join("usr/bin/kubectl-sonobuoy")));
        assert_eq!(started, "amd64\n");
        for file in [
            "share/man/man1/sonobuoy-run.1.gz",
            "share/bash-completion/completions/sonobuoy",
        ] {
            assert!(target.join("usr").join(file).exists(), "{file}");
        }
    }
}

/// Without compiling it again: the checks of the registry's client, and the files in the package.
#[test]
fn client_crate_can_be_published() {
    let publish = [
        "publish",
        "--locked",
        "--dry-run",
        "--no-verify",
        "--allow-dirty",
        "-p",
        "sonobuoy-base",
        "-p",
        "sonobuoy-client",
    ];
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(publish).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success()
        && ["failed to fetch", "download of", "Could not resolve"]
            .iter()
            .any(|words| said.contains(words))
    {
        super::support::skipped("crates", &said);
        return;
    }
    assert!(
        output.status.success() && !said.contains("has no documentation"),
        "{said}"
    );
    let listed = text(Command::new(env!("CARGO")).args([
        "package",
        "--list",
        "--allow-dirty",
        "-p",
        "sonobuoy-client",
    ]));
    assert!(listed.lines().any(|file| file == "README.md"), "{listed}");
}

#[test]
fn signatures_cover_the_checksums_and_the_provenance() {
    let tools = ["python3", "openssl", "base64"].map(super::support::program);
    if tools.iter().any(Option::is_none) {
        return;
    }
    let folder = Folder::new();
    let shell = |script: &str| {
        let output = Command::new("sh")
            .args(["-euc", script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (_, key) = shell("openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1");
    let out = release(&folder, "scoop", &key);
    let version = env!("CARGO_PKG_VERSION");
    let verify = "openssl dgst -sha256 -verify files/sonobuoy.pub -signature signature";
    let sums = format!("files/sonobuoy_{version}_checksums.txt");
    let check = format!("base64 -d {sums}.sig > signature; {verify} {sums}");
    assert!(shell(&check).0);
    // The envelope signs the length of each part, too.
    let envelope =
        std::fs::read_to_string(out.join(format!("sonobuoy_{version}_provenance.intoto.jsonl")))
            .unwrap();
    let envelope: serde_json::Value = serde_json::from_str(&envelope).unwrap();
    folder.write("payload.64", envelope["payload"].as_str().unwrap());
    folder.write(
        "signature.64",
        envelope["signatures"][0]["sig"].as_str().unwrap(),
    );
    let (_, statement) = shell("base64 -d payload.64");
    let kind = envelope["payloadType"].as_str().unwrap();
    folder.write(
        "signed",
        format!(
            "DSSEv1 {} {kind} {} {statement}",
            kind.len(),
            statement.len()
        ),
    );
    assert!(
        shell(&format!(
            "base64 -d signature.64 > signature; {verify} signed"
        ))
        .0
    );
    let statement: serde_json::Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let listed = std::fs::read_to_string(folder.join(&sums)).unwrap();
    let subjects = statement["subject"].as_array().unwrap();
    assert!(subjects.len() > 10);
    for subject in subjects {
        let line = format!(
            "{}  {}\n",
            subject["digest"]["sha256"].as_str().unwrap(),
            subject["name"].as_str().unwrap()
        );
        assert!(listed.contains(&line), "{line}");
    }
    folder.write(&sums, listed + "0\n");
    assert!(!shell(&check).0, "changed checksums are not accepted");
}

/// Where a daemon is reachable; `podman` needs none.
#[test]
fn docker_and_podman_load_the_image() {
    let folder = Folder::new();
    let archive = folder.join("image.tar");
    let image = format!("localhost/sonobuoy-test:{}", std::process::id());
    for arches in ["amd64", "amd64 arm64"] {
        make("image", &archive, &binaries(&folder), arches, &image);
        for program in ["docker", "podman"] {
            let call = |words: &[&str]| Command::new(program).args(words).output();
            let answers = call(&["info"]).is_ok_and(|output| output.status.success());
            if !answers {
                super::support::skipped(program, "none answers on this machine");
                continue;
            }
            text(Command::new(program).args(["load", "-i"]).arg(&archive));
            let format = "{{.Config.User}} {{.Config.Entrypoint}} {{.Architecture}}";
            let told = text(Command::new(program).args(["inspect", "--format", format, &image]));
            assert_eq!(told.trim(), "65532:65532 [/sonobuoy] amd64", "{program}");
            text(Command::new(program).args(["rmi", &image]));
        }
    }
}

#[test]
fn damaged_kit_is_detected() {
    let folder = Folder::new();
    script("kit", &folder.join("kit.tar"), &binaries(&folder), "amd64");
    text(
        Command::new("tar")
            .arg("xf")
            .arg(folder.join("kit.tar"))
            .current_dir(folder.path()),
    );
    let name = folder
        .names()
        .into_iter()
        .find(|name| name.starts_with("sonobuoy-v"))
        .unwrap();
    let kit = folder.join(&name);
    text(
        Command::new("sha256sum")
            .args(["--quiet", "-c", "SHA256SUMS"])
            .current_dir(&kit),
    );
    for file in [
        "sonobuoy",
        "sonobuoy-image.tar",
        "load",
        "plugins.d/host-facts.yaml",
        "docs/air-gap.md",
        "LICENSE",
    ] {
        assert!(kit.join(file).exists(), "{file}");
    }
    let pages = Folder::names_of(&kit).into_iter();
    let docs = Folder::names_of(&kit.join("docs")).into_iter();
    let pages = pages.chain(docs.map(|name| format!("docs/{name}")));
    for page in pages.filter(|name| name.ends_with(".md")) {
        let text = std::fs::read_to_string(kit.join(&page)).unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            let target = kit.join(&page).parent().unwrap().join(link);
            assert!(target.exists(), "{page}: the kit lacks {link}");
        }
    }
    folder.write(&format!("{name}/plugins.d/hello.yaml"), "damaged");
    let output = Command::new("./load").current_dir(&kit).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("the kit is damaged"));
}

#[test]
fn manifests_need_the_address_of_the_release() {
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("scripts/release/build"))
        .arg(folder.join("files"))
        .env("BINARIES", binaries(&folder))
        .env_remove("DOWNLOAD_URL")
        .env_remove("GITHUB_REPOSITORY")
        .env_remove("FORMATS")
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("set DOWNLOAD_URL"));
    assert!(!folder.join("files").exists());
}
