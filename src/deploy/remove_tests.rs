//! Tests removing runs from the fake cluster: own and foreign namespaces, waiting, delayed
//! deletion.

use super::*;
use base::json::json;
use base::stop::Stop;
use fake_api_server::{ApiServer, Fault};
use kube::Config;

const LIMIT: Duration = Duration::from_secs(30);

fn client(api: &ApiServer) -> Client {
    Client::new("test/1", Config::plain(api.url()), &Stop::new()).unwrap()
}

fn removal(namespace: &str) -> Removal {
    Removal {
        namespace: namespace.into(),
        rbac: true,
        all: false,
        dry_run: false,
    }
}

/// A run in a namespace created `age` seconds earlier.
fn run(api: &ApiServer, namespace: &str, age: u64, permissions: &str) {
    let time = |seconds| {
        clock::rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds))
    };
    let root = format!("/api/v1/namespaces/{namespace}");
    let labelled = |more: Value| {
        let mut object = json!({"metadata": {"labels": {"component": "sonobuoy"}, "creationTimestamp": time(age)}});
        object
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        object
    };
    api.put(
        &root,
        json!({"status": {"phase": "Active"}, "metadata": {"creationTimestamp": time(0)}}),
    );
    api.put(
        &format!("{root}/serviceaccounts/sonobuoy-serviceaccount"),
        labelled(json!({})),
    );
    let settings = json!({"AggregatorPermissions": permissions}).to_string();
    api.put(
        &format!("{root}/configmaps/sonobuoy-config-cm"),
        labelled(json!({"data": {"config.json": settings}})),
    );
    let plugin =
        "sonobuoy-config:\n  driver: Job\n  plugin-name: a\nspec:\n  name: plugin\n  image: x\n";
    api.put(
        &format!("{root}/configmaps/sonobuoy-plugins-cm"),
        labelled(json!({"data": {"plugin-0.yaml": plugin}})),
    );
    api.put(&format!("{root}/configmaps/plugin-a-cm"), json!({}));
    api.put(
        &format!("{root}/services/sonobuoy-aggregator"),
        labelled(json!({})),
    );
    api.put(
        &format!("{root}/pods/sonobuoy"),
        labelled(json!({"status": {"phase": "Running"}})),
    );
    for kind in ["clusterroles", "clusterrolebindings"] {
        let role =
            json!({"metadata": {"labels": {"component": "sonobuoy", "namespace": namespace}}});
        api.put(
            &format!(
                "/apis/rbac.authorization.k8s.io/v1/{kind}/sonobuoy-serviceaccount-{namespace}"
            ),
            role,
        );
    }
}

fn names(api: &ApiServer, path: &str) -> String {
    api.list(path)
        .iter()
        .map(Object::name)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn run_is_deleted_with_its_namespace_alone() {
    let api = ApiServer::start();
    run(&api, "one", 1, "clusterAdmin");
    run(&api, "two", 1, "clusterAdmin");
    let left = removal("one").issue(&client(&api)).unwrap();
    left.wait(&client(&api), LIMIT, &mut |_| {}).unwrap();
    assert_eq!(names(&api, "/api/v1/namespaces"), "default kube-system two");
    assert_eq!(
        names(&api, "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        "sonobuoy-serviceaccount-two"
    );
    assert_eq!(names(&api, "/api/v1/pods"), "sonobuoy");
    // A repeated removal finds nothing and succeeds.
    removal("one")
        .issue(&client(&api))
        .unwrap()
        .wait(&client(&api), LIMIT, &mut |_| {})
        .unwrap();
}

#[test]
fn pods_get_little_time_to_end_with_and_without_their_namespace() {
    for (age, namespace_remains) in [(1, false), (86_400, true)] {
        let api = ApiServer::start();
        run(&api, "one", age, "clusterAdmin");
        let pod = "/api/v1/namespaces/one/pods/sonobuoy";
        api.merge(pod, &json!({"spec": {"terminationGracePeriodSeconds": 30}}));
        removal("one").issue(&client(&api)).unwrap();
        let graces: Vec<_> = api
            .deletions("/api/v1/namespaces/one/pods")
            .iter()
            .map(|options| options["gracePeriodSeconds"].clone())
            .collect();
        assert_eq!(graces, [2], "{age}");
        assert_eq!(
            api.get("/api/v1/namespaces/one").is_some(),
            namespace_remains
        );
    }
}

#[test]
fn namespace_is_deleted_although_its_pods_may_not_be() {
    let api = ApiServer::start();
    run(&api, "one", 1, "clusterAdmin");
    api.forbid("deletecollection", "pods");
    removal("one").issue(&client(&api)).unwrap();
    assert!(api.get("/api/v1/namespaces/one").is_none());
}

#[test]
fn earlier_namespace_keeps_foreign_objects() {
    for (age, permissions) in [
        (86_400, "clusterAdmin"),
        (1, "namespaceAdmin"),
        (1, "clusterRead"),
    ] {
        let api = ApiServer::start();
        run(&api, "shared", age, permissions);
        api.put("/api/v1/namespaces/shared/configmaps/other", json!({}));
        api.put("/api/v1/namespaces/shared/pods/other", json!({}));
        let left = removal("shared").issue(&client(&api)).unwrap();
        left.wait(&client(&api), LIMIT, &mut |_| {}).unwrap();
        for kind in ["configmaps", "pods", "services", "serviceaccounts"] {
            let kept = if matches!(kind, "configmaps" | "pods") {
                "other"
            } else {
                ""
            };
            assert_eq!(
                names(&api, &format!("/api/v1/namespaces/shared/{kind}")),
                kept,
                "{permissions}: {kind}"
            );
        }
        Removal {
            all: true,
            ..removal("shared")
        }
        .issue(&client(&api))
        .unwrap();
        assert_eq!(
            names(&api, "/api/v1/namespaces"),
            "default kube-system",
            "told to, it goes"
        );
    }
}

#[test]
fn namespace_of_another_program_stays() {
    let of = |manager: &str| json!({"metadata": {"managedFields": [{"manager": manager}]}});
    for (namespace, settings, stays) in [
        ("kubectl-create", "sonobuoy", true),
        ("sonobuoy", "sonobuoy", false),
        (
            "kubectl-client-side-apply",
            "kubectl-client-side-apply",
            false,
        ),
        ("", "sonobuoy", false),
    ] {
        let api = ApiServer::start();
        run(&api, "one", 1, "clusterAdmin");
        api.merge("/api/v1/namespaces/one", &of(namespace));
        api.merge(
            "/api/v1/namespaces/one/configmaps/sonobuoy-config-cm",
            &of(settings),
        );
        removal("one").issue(&client(&api)).unwrap();
        assert_eq!(
            api.get("/api/v1/namespaces/one").is_some(),
            stays,
            "{namespace}, {settings}"
        );
    }
}

#[test]
fn all_removes_leftovers_and_spares_living_runs() {
    let api = ApiServer::start();
    for namespace in ["one", "two", "three"] {
        run(&api, namespace, 1, "clusterAdmin");
    }
    let aggregator = json!({"component": "sonobuoy", "sonobuoy-component": "aggregator"});
    for namespace in ["one", "three"] {
        let path = format!("/api/v1/namespaces/{namespace}/pods/sonobuoy");
        api.merge(&path, &json!({"metadata": {"labels": aggregator}}));
    }
    api.put(
        "/api/v1/namespaces/e2e-1",
        json!({"metadata": {"labels": {"e2e-framework": "x", "e2e-run": "y"}}}),
    );
    api.put(
        "/api/v1/namespaces/e2e-2",
        json!({"metadata": {"labels": {"e2e-framework": "x"}}}),
    );
    Removal {
        all: true,
        ..removal("one")
    }
    .issue(&client(&api))
    .unwrap();
    assert_eq!(
        names(&api, "/api/v1/namespaces"),
        "default e2e-1 e2e-2 kube-system three two"
    );
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(names(&api, bindings), "sonobuoy-serviceaccount-three");
    Removal {
        all: true,
        ..removal("three")
    }
    .issue(&client(&api))
    .unwrap();
    assert_eq!(
        names(&api, "/api/v1/namespaces"),
        "default e2e-2 kube-system two"
    );
    assert_eq!(names(&api, bindings), "");
}

#[test]
fn dry_run_and_disabled_rbac_delete_nothing() {
    let api = ApiServer::start();
    run(&api, "one", 1, "clusterAdmin");
    Removal {
        dry_run: true,
        all: true,
        ..removal("one")
    }
    .issue(&client(&api))
    .unwrap();
    assert_eq!(names(&api, "/api/v1/namespaces"), "default kube-system one");
    Removal {
        rbac: false,
        ..removal("one")
    }
    .issue(&client(&api))
    .unwrap();
    assert_eq!(
        names(&api, "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        "sonobuoy-serviceaccount-one"
    );
}

#[test]
fn hanging_namespace_is_reported_with_its_finalizers() {
    let api = ApiServer::start();
    run(&api, "stuck", 1, "clusterAdmin");
    let why = json!([{"type": "NamespaceContentRemaining", "status": "True", "message": "1 pod remains"}]);
    let patch =
        json!({"metadata": {"finalizers": ["example.com/slow"]}, "status": {"conditions": why}});
    api.merge("/api/v1/namespaces/stuck", &patch);
    let client = client(&api);
    let left = removal("stuck").issue(&client).unwrap();
    let mut seen = Vec::new();
    let error = left
        .wait(&client, Duration::from_millis(300), &mut |state| {
            seen.push(state.to_owned());
        })
        .unwrap_err();
    let says = "namespace stuck: stuck is Terminating, 1 pod remains, held by the finalizer \
                `example.com/slow`";
    assert_eq!(error.to_string(), format!("not gone within 300ms: {says}"));
    assert_eq!(seen, [says]);

    // The finalizer is removed while the client waits.
    let waiting = std::thread::spawn(move || left.wait(&client, LIMIT, &mut |_| {}));
    api.wait(|api| {
        api.count("GET /api/v1/namespaces?fieldSelector=metadata.name=stuck&watch") >= 2
    });
    api.merge(
        "/api/v1/namespaces/stuck",
        &json!({"metadata": {"finalizers": null}}),
    );
    waiting.join().unwrap().unwrap();
}

#[test]
fn refusals_are_reported_after_all_attempts() {
    let api = ApiServer::start();
    run(&api, "one", 1, "clusterAdmin");
    api.forbid("deletecollection", "clusterroles");
    api.fault(Fault::on("DELETE /api/v1/namespaces/one").status(409, "Conflict", "being deleted"));
    let error = removal("one").issue(&client(&api)).unwrap_err().to_string();
    assert!(
        error.contains("clusterroles") && error.contains("cannot deletecollection"),
        "{error}"
    );
    assert_eq!(
        names(
            &api,
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        ),
        ""
    );
}

#[test]
fn unreadable_namespace_is_kept_without_a_guess() {
    for (may_read, words) in [
        (true, "the run did not make the namespace one"),
        (
            false,
            "this account may not read the namespace one, so it is not known whether the run made \
             it",
        ),
    ] {
        let api = ApiServer::start();
        run(&api, "one", 3_600, "clusterAdmin");
        if !may_read {
            api.fault(Fault::on("GET /api/v1/namespaces/one").status(
                403,
                "Forbidden",
                "namespaces is forbidden",
            ));
        }
        let run = RunObjects::read(&client(&api), "one").unwrap();
        assert!(run.is_foreign);
        let why = removal("one").why_kept(&run);
        assert!(why.starts_with(words), "{why}");
    }
}

#[test]
fn unreadable_objects_of_a_run_allow_no_guess_about_its_namespace() {
    let api = ApiServer::start();
    run(&api, "one", 1, "clusterAdmin");
    api.forbid("get", "configmaps");
    let found = RunObjects::read(&client(&api), "one").unwrap();
    let why = removal("one").why_kept(&found);
    assert!(why.starts_with("this account may not read"), "{why}");
}

#[test]
fn namespace_without_a_run_is_named_as_such() {
    let api = ApiServer::start();
    api.put("/api/v1/namespaces/other", json!({}));
    let found = RunObjects::read(&client(&api), "other").unwrap();
    let why = removal("other").why_kept(&found);
    assert_eq!(why, "namespace other has no run, and is kept");
}

#[test]
fn only_the_very_object_is_removed_without_grace() {
    let api = ApiServer::start();
    let pods = "/api/v1/namespaces/default/pods";
    let lost = api.put(
        &format!("{pods}/a"),
        json!({"status": {"phase": "Running"}}),
    );
    api.remove(&format!("{pods}/a"));
    let other = api.put(
        &format!("{pods}/a"),
        json!({"status": {"phase": "Running"}}),
    );
    let error = client(&api)
        .delete_now(&Resource::PODS, "default", &lost)
        .unwrap_err();
    assert_eq!(error.code(), Some(409), "{error}");
    assert_eq!(names(&api, pods), "a", "another object has taken the name");
    client(&api)
        .delete_now(&Resource::PODS, "default", &other)
        .unwrap();
    assert_eq!(names(&api, pods), "");
    assert_eq!(api.deletions(pods)[0]["gracePeriodSeconds"], 0);
}
