//! Tests of credential plugins, whose programs are shell scripts.

use super::*;

fn program(script: &str) -> Program {
    Program {
        place: "kubeconfig `k`: users `u`: exec".into(),
        command: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("EXTRA".into(), "added".into())],
        api_version: "client.authentication.k8s.io/v1".into(),
        install_hint: "get it\n from the shop".into(),
        interactive: Interactive::Never,
        cluster: Some(json!({"server": "https://x"})),
        last: Mutex::new(None),
    }
}

fn says(status: &str) -> String {
    format!(
        r#"printf '%s' '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'"#
    )
}

#[test]
fn credential_program_runs_again_only_after_expiry_or_refusal() {
    let folder = base::temp::Folder::new().unwrap();
    for (expires, asked) in [("2999-01-01T00:00:00Z", 2), ("2001-01-01T00:00:00Z", 3)] {
        let log = folder.join(format!("asked-{asked}"));
        let script = format!(
            "echo $EXTRA >> {}; {}",
            log.display(),
            says(&format!(
                r#"{{"token":"t","expirationTimestamp":"{expires}"}}"#
            ))
        );
        let credential = Credential::Program(Arc::new(program(&script)));
        let identity = Identity::default();
        for _ in 0..2 {
            assert_eq!(
                credential.authorization(&identity).unwrap().as_deref(),
                Some("Bearer t")
            );
        }
        assert!(credential.renew());
        credential.authorization(&identity).unwrap();
        assert_eq!(
            std::fs::read_to_string(&log).unwrap(),
            "added\n".repeat(asked),
            "{expires}"
        );
    }
}

#[test]
fn credential_program_receives_the_request() {
    let script = format!(
        r#"case $KUBERNETES_EXEC_INFO in *'"cluster":{{"server":"https://x"}},"interactive":false'*) {};; esac"#,
        says(r#"{"token":"t"}"#)
    );
    assert!(program(&script).token(&Identity::default()).is_ok());
}

#[test]
fn credential_errors_name_file_program_and_remedy() {
    let check = |program: Program, says: &str| {
        let error = format!("{:#}", program.token(&Identity::default()).err().unwrap());
        assert!(
            error.starts_with("kubeconfig `k`: users `u`: exec: ") && error.contains(says),
            "{error}"
        );
    };
    check(
        program("exit 3"),
        "`sh` failed (exit status: 3); get it from the shop",
    );
    check(
        Program {
            command: "/nowhere/aws".into(),
            ..program("")
        },
        "is not installed; get it from the shop",
    );
    check(program("echo hello"), "not JSON");
    check(program(&says("{}")), "neither `token` nor");
    check(program(&says(r#"{"clientKeyData":"x"}"#)), "only one of");
    check(
        program(&says(
            r#"{"clientCertificateData":"x","clientKeyData":"x"}"#,
        )),
        "client certificate",
    );
    check(
        program(&says(r#"{"token":"t","expirationTimestamp":"soon"}"#)),
        "`soon` is not an RFC 3339 time",
    );
    check(
        program(r#"echo '{"kind":"ExecCredential","apiVersion":"v0"}'"#),
        r#"apiVersion is "v0" instead of"#,
    );
    check(program("yes"), "more than 1 MiB");
    if !std::io::stdin().is_terminal() {
        check(
            Program {
                interactive: Interactive::Always,
                ..program("")
            },
            "needs a terminal",
        );
    }
}

#[test]
fn hanging_credential_program_ends_with_its_descendants() {
    let hangs = program("sleep 600 & sleep 600");
    let error = hangs
        .run(&Identity::default(), Duration::ZERO)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("`sh` was ended: it took more than 0 s; ")
            && error.ends_with("; get it from the shop")
    );
}

#[test]
fn token_file_is_reread() {
    let folder = base::temp::Folder::new().unwrap();
    let path = folder.join("token");
    let credential = Credential::TokenFile(path.clone());
    let check = || credential.authorization(&Identity::default());
    for token in ["one", "two"] {
        std::fs::write(&path, format!("{token}\n")).unwrap();
        assert_eq!(check().unwrap(), Some(format!("Bearer {token}")));
    }
    std::fs::write(&path, "\n").unwrap();
    assert!(check().unwrap_err().to_string().ends_with("is empty"));
    std::fs::remove_file(&path).unwrap();
    assert!(check().is_err());
}
