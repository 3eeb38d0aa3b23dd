//! Permissions of plugins: accounts and roles that `run` and `gen` create, and rejections.

use serde_json::json;

use super::run::{cluster, created, run};
use super::support::Sonobuoy;
use super::support::cluster::AGGREGATOR;

#[test]
fn plugins_without_permissions_are_named_and_can_be_rejected() {
    let definition = |permissions: &str| {
        format!(
            "sonobuoy-config: {{driver: Job, plugin-name: p{permissions}}}\nspec: {{name: plugin, image: i}}\n"
        )
    };
    let silent = definition("");
    let start = |flags: &str, text: &str| {
        let (api, folder, config) = cluster();
        (run(&config, flags).file("p.yaml", text), api, folder)
    };
    let (silently, api, _folder) = start("", &silent);
    silently
        .stderr_has("`p` runs as cluster-admin: its definition does not say what it needs")
        .run();
    // A pod runs as the account in its spec, or as the default of its namespace.
    let (unnamed, _api, _folder) = start("", &format!("{silent}podSpec: {{containers: []}}\n"));
    unnamed
        .stderr_has(
            "`p` runs as the account `default` of its namespace: its definition does not say",
        )
        .run();
    let (named, _api, _folder) = start(
        "--skip-preflight=references",
        &format!("{silent}podSpec: {{containers: [], serviceAccountName: own}}\n"),
    );
    assert!(!named.run_any().stderr.contains("runs as"));
    let account = |name: &str| {
        api.get(&format!(
            "/api/v1/namespaces/sonobuoy/serviceaccounts/{name}"
        ))
    };
    assert!(account("sonobuoy-plugin-p").is_none() && account("sonobuoy-serviceaccount").is_some());
    assert_eq!(
        api.get(AGGREGATOR).unwrap()["spec"]["serviceAccountName"],
        "sonobuoy-aggregator"
    );

    let (refused, api, _folder) = start("--plugin-permissions declared", &silent);
    refused
        .status(1)
        .stderr_has("plugin `p` does not say what it needs")
        .stderr_has("`permissions`")
        .run();
    assert_eq!(created(&api), [""; 0]);

    let rules = definition(", permissions: [{apiGroups: [''], resources: [pods], verbs: [get]}]");
    let (declared, api, _folder) = start("--plugin-permissions=declared", &rules);
    let said = declared.run_any().stderr;
    assert!(!said.contains("does not say what it needs"), "{said}");
    let role = api
        .get("/apis/rbac.authorization.k8s.io/v1/clusterroles/sonobuoy-plugin-p-sonobuoy")
        .unwrap();
    assert_eq!(
        role["rules"][0],
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    );
    assert_eq!(
        role["metadata"]["labels"],
        json!({
            "component": "sonobuoy", "namespace": "sonobuoy", "app.kubernetes.io/name": "sonobuoy",
            "app.kubernetes.io/managed-by": "sonobuoy",
            "app.kubernetes.io/version": concat!("v", env!("CARGO_PKG_VERSION")),
        }),
        "for `delete`"
    );
    let account = |name: &str| {
        api.get(&format!(
            "/api/v1/namespaces/sonobuoy/serviceaccounts/{name}"
        ))
    };
    assert!(account("sonobuoy-plugin-p").is_some() && account("sonobuoy-serviceaccount").is_none());

    let none = definition(", permissions: none");
    for flags in ["--harden off", "--harden on"] {
        let (limited, api, _folder) = start(flags, &none);
        limited.run_any();
        assert!(
            api.get("/api/v1/namespaces/sonobuoy/serviceaccounts/sonobuoy-plugin-p")
                .is_some(),
            "{flags}"
        );
        let generated = Sonobuoy::new(&format!(
            "gen {flags} --kubernetes-version=v1.33.1 -p p.yaml"
        ));
        generated
            .file("p.yaml", &none)
            .stdout_has("  name: sonobuoy-plugin-p\n")
            .run_any();
    }
    let theirs = format!("{none}podSpec: {{serviceAccountName: theirs, containers: []}}\n");
    for (flags, text, words) in [
        (
            "--sonobuoy-image sonobuoy/sonobuoy:v0.57.5",
            &none,
            "starts every plugin with all rights of the run",
        ),
        ("", &theirs, "runs as the account `theirs`"),
    ] {
        for flags in [flags.to_owned(), format!("{flags} --harden off")] {
            let (refused, api, _folder) = start(&flags, text);
            refused
                .status(1)
                .stderr_has("plugin `p` has `permissions`")
                .stderr_has(words)
                .run();
            assert_eq!(created(&api), [""; 0]);
            let generated = Sonobuoy::new(&format!(
                "gen {flags} --kubernetes-version=v1.33.1 -p p.yaml"
            ));
            generated
                .file("p.yaml", text)
                .status(1)
                .stderr_has(words)
                .run_any();
        }
    }

    for (wrong, words) in [
        ("permissions: all", "none, read, admin or a list of rules"),
        (
            "permissions: [{verb: [get]}]",
            "`sonobuoy-config.permissions[0].verb` is not a field of a rule",
        ),
        ("permissions: [{resources: [pods]}]", "has no `verbs`"),
        (
            "worker: some",
            "`sonobuoy-config.worker` is `some`; write none",
        ),
    ] {
        let (refused, _api, _folder) = start("", &definition(&format!(", {wrong}")));
        refused.status(1).stderr_has(words).run();
    }
}

/// A binding under another name survives every run, and makes a plugin without permissions an
/// administrator.
#[test]
fn run_and_doctor_report_foreign_bindings() {
    let binding = json!({
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "sonobuoy-plugin-p", "namespace": "sonobuoy"}],
    });
    let definition =
        "sonobuoy-config: {driver: Job, plugin-name: p, permissions: none}\nspec: {image: i}\n";
    let report = "plugin `p` declares `permissions: none`, but the ClusterRoleBinding `stray`, which is not part of the run";
    let (api, folder, config) = cluster();
    folder.write("p.yaml", definition);
    api.put(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/stray",
        binding,
    );
    run(&config, "")
        .file("p.yaml", definition)
        .stderr_has(report)
        .run_any();
    // This cluster has other faults, too.
    let doctor = Sonobuoy::new("doctor --measure-from 0 --kubeconfig")
        .arg(config)
        .arg("-p");
    let (mut doctor, _folder) = doctor.arg(folder.join("p.yaml")).command();
    let output = doctor.output().unwrap();
    let findings = String::from_utf8_lossy(&output.stdout);
    assert!(
        findings.contains(report),
        "{findings}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
