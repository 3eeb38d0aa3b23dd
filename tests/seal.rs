//! Sealed archives: openssl and sha256sum accept them, and `verify` rejects everything else.

use std::path::Path;
use std::process::Command;

use crate::support::system::mode;
use crate::support::{Archive, Folder, Sonobuoy, skipped};

/// The archive of a local run, with its seal and the saved CA.
struct Sealed {
    folder: Folder,
    name: String,
}

impl Sealed {
    fn new() -> Self {
        let script = "echo x > $RESULTS_DIR/x; echo $RESULTS_DIR/x > $RESULTS_DIR/done";
        let definition = format!(
            "sonobuoy-config: {{plugin-name: p, driver: Job}}\nspec: {{name: c, command: [sh, -c], args: ['{script}']}}\n"
        );
        let run = Sonobuoy::new("run --local -p p.yaml").file("p.yaml", definition);
        let tmp = run.folder();
        let folder = run.env("TMPDIR", tmp).run_any().folder;
        let name = folder
            .names()
            .into_iter()
            .find(|name| name.ends_with(".tar.gz"))
            .unwrap();
        Self { folder, name }
    }

    fn run(&self) -> &str {
        self.name
            .split_once("_sonobuoy_")
            .unwrap()
            .1
            .strip_suffix(".tar.gz")
            .unwrap()
    }

    fn path(&self, ending: &str) -> std::path::PathBuf {
        self.folder.join(&format!("{}{ending}", self.name))
    }

    fn authority(&self) -> std::path::PathBuf {
        self.folder
            .join(&format!(".sonobuoy/authorities/{}.pem", self.run()))
    }

    /// Verifies this archive with the files that the run's owner has saved.
    fn verify(&self) -> Sonobuoy {
        Sonobuoy::new("verify")
            .arg(self.path(""))
            .env("SONOBUOY_DIR", self.folder.join(".sonobuoy"))
    }

    fn change(&self, ending: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.path(ending);
        let mut content = std::fs::read(&path).unwrap();
        change(&mut content);
        std::fs::write(path, content).unwrap();
    }

    fn copy(&self, from: &Path, ending: &str) {
        std::fs::copy(from, self.path(ending)).unwrap();
    }
}

/// Runs a program in a folder; `None` if this machine lacks it.
fn judge(folder: &Path, program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .output()
        .ok()?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{program} {args:?}: {text}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn seal_is_verified_by_openssl() {
    let sealed = Sealed::new();
    let (name, folder) = (&sealed.name, sealed.folder.path());
    sealed
        .verify()
        .stdout_has(&format!("{name}: OK, sealed by run {}", sealed.run()))
        .run();
    for path in [
        sealed.path(""),
        sealed.path(".sha256"),
        sealed.path(".sig"),
        sealed.authority(),
    ] {
        assert_eq!(mode(&path, 0o600), 0o600, "{}", path.display());
    }
    let authority = sealed.authority().display().to_string();
    let Some(key) = judge(
        folder,
        "openssl",
        &["x509", "-in", &authority, "-pubkey", "-noout"],
    ) else {
        return skipped("openssl", "it is not installed");
    };
    std::fs::write(folder.join("key.pem"), key).unwrap();
    let (statement, signature) = (format!("{name}.sha256"), format!("{name}.sig"));
    let args = [
        "dgst",
        "-sha256",
        "-verify",
        "key.pem",
        "-signature",
        &signature,
        &statement,
    ];
    assert_eq!(
        judge(folder, "openssl", &args).as_deref(),
        Some("Verified OK\n")
    );
    assert_eq!(
        judge(folder, "sha256sum", &["-c", &statement]),
        Some(format!("{name}: OK\n"))
    );
    let size = std::fs::metadata(sealed.path("")).unwrap().len();
    assert!(
        sealed
            .folder
            .read(&statement)
            .contains(&format!("# size {size}\n"))
    );
}

#[test]
fn defects_of_archive_and_seal_are_named() {
    let other = Sealed::new();
    let check = |words: &str, damage: fn(&Sealed, &Sealed)| {
        let sealed = Sealed::new();
        damage(&sealed, &other);
        sealed.verify().status(1).stderr_has(words).stdout("").run();
    };
    check("is not the one that was sealed", |own, _| {
        own.change("", |archive| archive[100] ^= 1);
    });
    check("is not the one that was sealed", |own, _| {
        own.change("", |archive| archive.push(0));
    });
    check("is not the one that was sealed", |own, _| {
        own.change("", Vec::clear);
    });
    check("is not that of this run's authority", |own, _| {
        own.change(".sig", |part| part.truncate(part.len() / 2));
    });
    check("is not that of this run's authority", |own, _| {
        own.change(".sig", Vec::clear);
    });
    check("is not that of this run's authority", |own, other| {
        own.copy(&other.path(".sig"), ".sig");
    });
    check("is not that of this run's authority", |own, other| {
        own.copy(&other.authority(), ".sig");
    });
    check("is not that of this run's authority", |own, _| {
        let size = format!("# size {}", std::fs::metadata(own.path("")).unwrap().len());
        let text = std::fs::read_to_string(own.path(".sha256"))
            .unwrap()
            .replace(&size, "# size 1");
        std::fs::write(own.path(".sha256"), text).unwrap();
    });
    check("does not describe an archive", |own, _| {
        own.change(".sha256", |part| part.truncate(60));
    });
    check("larger than", |own, _| {
        own.change(".sha256", |part| part.resize(1 << 20, b'x'));
    });
    check("larger than", |own, _| {
        own.change(".sig", |part| part.resize(1 << 20, 0));
    });
    // The complete seal of another run: the CA of the requested run decides.
    check("is named after run", |own, other| {
        own.copy(&other.path(".sha256"), ".sha256");
        own.copy(&other.path(".sig"), ".sig");
        let kept = own
            .folder
            .join(".sonobuoy/authorities")
            .join(other.authority().file_name().unwrap());
        std::fs::copy(other.authority(), kept).unwrap();
    });
    for part in [".sha256", ".sig"] {
        let sealed = Sealed::new();
        std::fs::remove_file(sealed.path(part)).unwrap();
        sealed
            .verify()
            .status(1)
            .stderr_has("a part of the seal")
            .run();
    }
    let sealed = Sealed::new();
    for (authority, words) in [
        (other.authority(), "is not that of this run's authority"),
        (sealed.path(""), "cannot read"),
        (sealed.path(".sha256"), "certificate cannot be read"),
        (sealed.path(".none"), "cannot read"),
    ] {
        sealed
            .verify()
            .arg("--authority")
            .arg(authority)
            .status(1)
            .stderr_has(words)
            .run();
    }
    sealed
        .verify()
        .arg("--authority")
        .arg(sealed.authority())
        .stdout_has(": OK, sealed by")
        .run();
}

#[test]
fn digest_alone_is_checked_only_on_request() {
    let sealed = Sealed::new();
    let alone = || Sonobuoy::new("verify").arg(sealed.path(""));
    let digest = || alone().arg("--digest-only");
    let checked = format!("{}: digest OK, seal not checked\n", sealed.name);
    alone()
        .status(1)
        .stdout("")
        .stderr_has("--authority")
        .stderr_has("--digest-only")
        .run();
    digest().stdout(&checked).run();
    for damage in [
        |part: &mut Vec<u8>| part.fill(0),
        |part: &mut Vec<u8>| part.clear(),
    ] {
        sealed.change(".sig", damage);
        sealed
            .verify()
            .status(1)
            .stderr_has("is not that of this run's authority")
            .run();
        digest().stdout(&checked).run();
    }
    std::fs::remove_file(sealed.path(".sig")).unwrap();
    sealed
        .verify()
        .status(1)
        .stderr_has("a part of the seal")
        .run();
    digest().stdout(&checked).run();
    sealed.change("", |archive| archive[100] ^= 1);
    digest()
        .status(1)
        .stderr_has("is not the one that was sealed")
        .run();
    std::fs::remove_file(sealed.path(".sha256")).unwrap();
    digest().status(1).stderr_has("a part of the seal").run();
}

/// An altered archive can state a matching digest, and name an unknown run.
#[test]
fn forged_archive_naming_another_run_is_rejected() {
    let sealed = Sealed::new();
    sealed.change("", |archive| archive.push(0));
    let content = std::fs::read(sealed.path("")).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &content);
    let digest: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let head = "# archive of a Sonobuoy run, sealed by the authority of that run";
    let forge = |run: &str| {
        let text = format!(
            "{head}\n# run {run}\n# size {}\n{digest}  {}\n",
            content.len(),
            sealed.name
        );
        std::fs::write(sealed.path(".sha256"), text).unwrap();
    };
    forge("11111111-2222-4333-8444-555555555555");
    let named = format!("named after run {}", sealed.run());
    sealed
        .verify()
        .status(1)
        .stdout("")
        .stderr_has(&named)
        .run();
    sealed
        .verify()
        .arg("--digest-only")
        .status(1)
        .stdout("")
        .stderr_has(&named)
        .run();
    forge(sealed.run());
    sealed
        .verify()
        .status(1)
        .stdout("")
        .stderr_has("is not that of this run's authority")
        .run();
    // The run is unknown under another name.
    forge("11111111-2222-4333-8444-555555555555");
    let mine = sealed.folder.join("mine.tar.gz");
    for ending in ["", ".sha256", ".sig"] {
        std::fs::rename(sealed.path(ending), format!("{}{ending}", mine.display())).unwrap();
    }
    let verify = Sonobuoy::new("verify")
        .arg(mine)
        .env("SONOBUOY_DIR", sealed.folder.join(".sonobuoy"));
    verify
        .status(1)
        .stdout("")
        .stderr_has(&format!("contains the results of run {}", sealed.run()))
        .run();
}

/// Another run on this machine is known, but its seal is worthless for this archive under any name.
#[test]
fn seal_of_a_known_run_is_valid_for_its_own_archive_alone() {
    let (sealed, other) = (Sealed::new(), Sealed::new());
    let known = sealed
        .folder
        .join(&format!(".sonobuoy/authorities/{}.pem", other.run()));
    std::fs::copy(other.authority(), known).unwrap();
    for ending in [".sha256", ".sig"] {
        sealed.copy(&other.path(ending), ending);
    }
    let path = sealed.path("").display().to_string();
    let dir = sealed.folder.join(".sonobuoy");
    let command = |words: &str| {
        Sonobuoy::new(words)
            .arg(&path)
            .env("SONOBUOY_DIR", &dir)
            .status(1)
    };
    command("verify")
        .stdout("")
        .stderr_has("is named after run")
        .run();
    command("certify").stderr_has("is named after run").run();
}

/// The run's identifier is a UUID of version 8, derived from the key: a planted authority proves
/// nothing.
#[test]
fn name_of_an_archive_verifies_its_authority() {
    let (sealed, other) = (Sealed::new(), Sealed::new());
    assert_eq!(sealed.run().as_bytes()[14], b'8', "{}", sealed.run());
    sealed
        .verify()
        .stdout_has("; authority learned from a run on this machine\n")
        .run();
    std::fs::copy(other.authority(), sealed.authority()).unwrap();
    let seal = |key: &rcgen::KeyPair| {
        let statement = std::fs::read(sealed.path(".sha256")).unwrap();
        std::fs::write(
            sealed.path(".sig"),
            rcgen::SigningKey::sign(key, &statement).unwrap(),
        )
        .unwrap();
    };
    let key = rcgen::KeyPair::generate().unwrap();
    seal(&key);
    let planted = rcgen::CertificateParams::new(Vec::new())
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .pem();
    std::fs::write(sealed.authority(), planted).unwrap();
    let words = "its identifier is derived from another key";
    sealed.verify().status(1).stdout("").stderr_has(words).run();
    sealed
        .verify()
        .arg("--authority")
        .arg(sealed.authority())
        .status(1)
        .stderr_has(words)
        .run();
}

#[test]
fn archive_commands_report_seal_verification() {
    let sealed = Sealed::new();
    let name = sealed.path("").display().to_string();
    let results = |words: &str| Sonobuoy::new(words).arg(&name);
    results("results").stdout_has("Status: passed").run();
    results("results")
        .env("SONOBUOY_DIR", sealed.folder.join(".sonobuoy"))
        .stdout_has("passed")
        .run();
    // The archive has no conformance tests, so certification is undecidable.
    let certify = || Sonobuoy::new("certify").arg(&name).status(1);
    certify()
        .stderr_has("the seal of `")
        .stderr_has("was not checked: the certificate")
        .run_any();
    let known = || certify().env("SONOBUOY_DIR", sealed.folder.join(".sonobuoy"));
    let done = known().run_any();
    assert!(!done.stderr.contains("seal"), "{}", done.stderr);
    sealed.change("", |archive| archive.push(0));
    let altered = "is not as it was sealed: the archive is not the one that was sealed";
    for words in ["results", "results --fail-on unknown"] {
        // The added byte also ends the report: it is no part of the gzip stream.
        results(words).status(1).stderr_has(altered).run_any();
    }
    results("results diff")
        .arg(&name)
        .status(1)
        .stderr_has(altered)
        .run_any();
    known()
        .stderr_has("is not the one that was sealed")
        .run_any();
    std::fs::remove_file(sealed.path(".sha256")).unwrap();
    std::fs::remove_file(sealed.path(".sig")).unwrap();
    certify()
        .stderr_has("was not checked: it has no seal beside it")
        .run_any();
}

#[test]
fn renamed_archive_is_verified_and_reported() {
    let sealed = Sealed::new();
    let mine = sealed.folder.join("mine.tar.gz");
    for ending in ["", ".sha256", ".sig"] {
        std::fs::rename(sealed.path(ending), format!("{}{ending}", mine.display())).unwrap();
    }
    let verify = Sonobuoy::new("verify")
        .arg(mine)
        .env("SONOBUOY_DIR", sealed.folder.join(".sonobuoy"));
    verify
        .stdout_has(&format!("mine.tar.gz, sealed as `{}`: OK", sealed.name))
        .run();
}

#[test]
fn archive_records_time_and_sender_of_each_result() {
    let sealed = Sealed::new();
    let list: serde_json::Value =
        serde_json::from_str(&Archive::only_one_in(sealed.folder.path()).text("meta/results.json"))
            .unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    let line = &list[0];
    for (key, value) in [("plugin", "p"), ("node", "global"), ("identity", "node")] {
        assert_eq!(line[key], value, "{line}");
    }
    assert!(
        line["worker"].as_str().unwrap().starts_with("sonobuoy/"),
        "{line}"
    );
    // The receipt names the file of the plugin.
    let digest = ring::digest::digest(&ring::digest::SHA256, b"x\n");
    let digest: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        (&line["size"], &line["attempts"], line["sha256"].as_str()),
        (&2.into(), &1.into(), Some(&*digest))
    );
    let time = |key: &str| {
        line[key]
            .as_str()
            .unwrap_or_else(|| panic!("{key}: {line}"))
            .to_owned()
    };
    assert!(
        time("started") <= time("first_heartbeat") && time("first_heartbeat") <= time("arrived"),
        "{line}"
    );
}
