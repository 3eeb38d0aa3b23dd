//! The scripts that make image and kit, with small stand-ins for the binary: building a real one takes minutes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::folder::Folder;

fn script(name: &str, out: &Path, binaries: &Path, arches: &str) -> String {
    make(name, out, binaries, arches, "")
}

/// The output of a script; the image has its own name unless another one is given.
fn make(name: &str, out: &Path, binaries: &Path, arches: &str, image: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("scripts").join(name))
        .arg(out)
        .env("BINARIES", binaries)
        .env("ARCHES", arches)
        .env("CA_BUNDLE", "")
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("IMAGE", image)
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Stand-ins for binaries, of one time or another.
fn binaries(folder: &Folder) -> PathBuf {
    folder.write("bin/sonobuoy-amd64", "#!/bin/sh\necho amd64\n");
    folder.write("bin/sonobuoy-arm64", "#!/bin/sh\necho arm64\n");
    folder.join("bin")
}

fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_same_files_make_the_same_image() {
    let (one, two) = (Folder::new(), Folder::new());
    for arches in ["amd64", "amd64 arm64"] {
        let made = [&one, &two].map(|folder| {
            script("image", &folder.join("image.tar"), &binaries(folder), arches);
            std::fs::read(folder.join("image.tar")).unwrap()
        });
        assert!(made[0] == made[1], "{arches}");
    }
}

#[test]
fn others_read_the_image() {
    let folder = Folder::new();
    let archive = folder.join("image.tar");
    let said = script("image", &archive, &binaries(&folder), "amd64");
    assert!(said.contains("localhost/sonobuoy:v"), "{said}");
    let layer = text(
        Command::new("sh")
            .args(["-c", "tar xOf \"$0\" manifest.json | sed 's/.*Layers\":\\[\"\\([^\"]*\\).*/\\1/'"])
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
        lines.iter().any(|line| line.starts_with("-rwxr-xr-x 0/0") && line.ends_with(" sonobuoy")),
        "{listed}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("drwxrwxrwt 0/0") && line.ends_with(" tmp/")),
        "{listed}"
    );
    assert!(lines.iter().any(|line| line.ends_with(" etc/passwd")), "{listed}");
    if let Some(skopeo) = super::support::program("skopeo") {
        for kind in ["oci-archive", "docker-archive"] {
            let place = format!("{kind}:{}", archive.display());
            let found = text(Command::new(&skopeo).args(["inspect", "--config", &place]));
            let config: serde_json::Value = serde_json::from_str(&found).unwrap();
            assert_eq!(config["config"]["User"], "65532:65532");
            assert_eq!(config["config"]["Entrypoint"][0], "/sonobuoy");
            assert!(config["config"]["Labels"]["org.opencontainers.image.version"].is_string());
        }
    }
}

/// Where a daemon answers; `podman` needs none.
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
fn a_kit_is_whole_and_says_when_it_is_not() {
    let folder = Folder::new();
    script("kit", &folder.join("kit.tar"), &binaries(&folder), "amd64");
    text(Command::new("tar").arg("xf").arg(folder.join("kit.tar")).current_dir(folder.path()));
    let name = folder.names().into_iter().find(|name| name.starts_with("sonobuoy-v")).unwrap();
    let kit = folder.join(&name);
    text(Command::new("sha256sum").args(["--quiet", "-c", "SHA256SUMS"]).current_dir(&kit));
    for file in
        ["sonobuoy", "sonobuoy-image.tar", "load", "plugins.d/host-facts.yaml", "docs/air-gap.md", "LICENSE"]
    {
        assert!(kit.join(file).exists(), "{file}");
    }
    folder.write(&format!("{name}/plugins.d/hello.yaml"), "damaged");
    let output = Command::new("./load").current_dir(&kit).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("the kit is damaged"));
}
