//! The client against the fake API server, with injected faults.

use std::io::Read as _;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde_json::Value;

use super::{Client, Config, Error, Event, Request, Resource, Selector};
use base::json::json;
use base::stop::Stop;
use fake_api_server::{ApiServer, ExecAnswer, Fault};

fn client(api: &ApiServer) -> Client {
    Client::new("test/1", Config::plain(api.url()), &Stop::new()).unwrap()
}

fn pods(api: &ApiServer, count: usize) {
    for index in 0..count {
        let object = json!({"metadata": {"labels": {"even": (index % 2 == 0).to_string()}}});
        api.put(
            &format!("/api/v1/namespaces/default/pods/p{index:04}"),
            object,
        );
    }
}

fn names(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn objects_are_created_read_changed_and_deleted() {
    let api = ApiServer::start();
    let client = client(&api);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}});
    let made = client
        .send(&Request::create(&Resource::CONFIG_MAPS, "default", &map).dry_run())
        .unwrap();
    assert_eq!(made["data"]["a"], "1");
    assert!(
        api.get("/api/v1/namespaces/default/configmaps/c").is_none(),
        "a dry run stores nothing"
    );
    client
        .create(&Resource::CONFIG_MAPS, "default", &map)
        .unwrap();
    assert!(
        client
            .create(&Resource::CONFIG_MAPS, "default", &map)
            .unwrap_err()
            .already_exists()
    );
    client
        .merge_patch(
            &Resource::CONFIG_MAPS,
            "default",
            "c",
            &json!({"data": {"a": null, "b": "2"}}),
        )
        .unwrap();
    assert_eq!(
        client.get(&Resource::CONFIG_MAPS, "default", "c").unwrap()["data"],
        json!({"b": "2"})
    );
    client
        .delete(&Resource::CONFIG_MAPS, "default", "c")
        .unwrap();
    let error = client
        .get(&Resource::CONFIG_MAPS, "default", "c")
        .unwrap_err();
    assert!(
        error.is_not_found() && error.to_string().contains("configmaps \"c\" not found"),
        "{error}"
    );
    pods(&api, 4);
    let even = Selector::labels("even=true");
    client
        .send(&Request::delete_collection(
            &Resource::PODS,
            "default",
            &even,
        ))
        .unwrap();
    assert_eq!(names(&api.list("/api/v1/pods")), ["p0001", "p0003"]);
}

#[test]
fn paged_lists_survive_changes_between_pages() {
    let api = ApiServer::start();
    let client = client(&api);
    pods(&api, 1200);
    let all = || names(&client.list(&Resource::PODS, "", &Selector::all()).unwrap()).join(" ");
    let wanted = names(&api.list("/api/v1/pods")).join(" ");
    assert_eq!(all(), wanted);
    assert_eq!(api.count("GET /api/v1/pods?limit=500&continue="), 2);
    for (fault, what) in [
        (
            Fault::on("GET /api/v1/pods?limit=500&continue=").cut(10_000),
            "cut in the second page",
        ),
        (
            Fault::on("GET /api/v1/pods").cut(10_000),
            "cut in the first page",
        ),
        (
            Fault::on("GET /api/v1/pods?limit=500&continue=").gone(),
            "410 with a token",
        ),
        (
            Fault::on("GET /api/v1/pods?limit=500&continue=").status(410, "Expired", "old"),
            "410 without",
        ),
        (
            Fault::on("GET /api/v1/pods")
                .times(3)
                .status(503, "", "away"),
            "503",
        ),
        (
            Fault::on("GET /api/v1/pods").dropped().after(1),
            "no answer",
        ),
    ] {
        api.fault(fault);
        assert_eq!(all(), wanted, "{what}");
    }
    let filled = client
        .list(&Resource::PODS, "default", &Selector::labels("even=true"))
        .unwrap();
    assert_eq!((filled.len(), &filled[0]["kind"]), (600, &json!("Pod")));
    let full = client
        .each(&Resource::PODS, "", &Selector::all(), &mut |_| {
            Err(anyhow!("disk full"))
        })
        .unwrap_err();
    assert!(matches!(full, Error::Sink(why) if why.to_string() == "disk full"));
}

#[test]
fn transient_errors_are_retried_and_lasting_ones_reported() {
    let api = ApiServer::start();
    let client = client(&api);
    client.get(&Resource::NAMESPACES, "", "default").unwrap();
    let get = || client.get(&Resource::NAMESPACES, "", "default").map(|_| ());
    let check = |fault: Fault, passes: bool, requests: usize| {
        let before = api.requests().len();
        let text = format!("{fault:?}");
        api.fault(fault);
        assert_eq!(get().is_ok(), passes, "{text}");
        assert_eq!(api.requests().len() - before, requests, "{text}");
    };
    let on = || Fault::on("GET /api/v1/namespaces/default");
    check(
        on().status(429, "TooManyRequests", "slow down")
            .retry_after(0),
        true,
        2,
    );
    check(on().status(500, "InternalError", "etcd"), true, 2);
    check(on().times(2).dropped(), true, 3);
    check(on().cut(5), true, 2);
    check(on().slow(Duration::from_millis(5)), true, 1);
    check(on().status(403, "Forbidden", "no"), false, 1);
    check(on().garbage("<html>"), false, 1);
    let started = Instant::now();
    check(
        on().status(429, "TooManyRequests", "slow down")
            .retry_after(1),
        true,
        2,
    );
    assert!(
        started.elapsed() >= Duration::from_secs(1),
        "Retry-After is kept"
    );
    check(
        on().status(503, "", "for ever").retry_after(u64::MAX),
        false,
        1,
    );

    // A creation is repeated only if the server definitely did not start it.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let create = || client.create(&Resource::CONFIG_MAPS, "default", &map);
    let on = || Fault::on("POST /api/v1/namespaces/default/configmaps");
    api.fault(on().dropped());
    let error = create().unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    api.fault(on().status(500, "InternalError", "webhook"));
    assert_eq!(create().unwrap_err().code(), Some(500));
    api.fault(
        on().status(429, "TooManyRequests", "slow down")
            .retry_after(0),
    );
    create().unwrap();
    assert_eq!(api.count("POST"), 4);
}

#[test]
fn absent_server_is_awaited_only_after_first_contact() {
    let api = ApiServer::start();
    let client = client(&api);
    let absent = Client::new("test/1", Config::plain("http://127.0.0.1:1"), &Stop::new()).unwrap();
    let error = absent.version().unwrap_err().to_string();
    assert!(
        error.starts_with("cannot reach `http://127.0.0.1:1`: Connection refused"),
        "{error}"
    );
    client.version().unwrap();
    let waiting = api.away(|| {
        let client = client.clone();
        let thread = std::thread::spawn(move || client.version());
        api.wait(|api| api.refusals() >= 2);
        thread
    });
    assert!(waiting.join().unwrap().is_ok());
}

#[cfg(unix)] // its script
#[test]
fn expired_credentials_are_renewed() {
    let api = ApiServer::start();
    let folder = base::temp::Folder::new().unwrap();
    let (token, path) = (folder.join("token"), folder.join("config"));
    let script = format!(
        r#"printf '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"%s"}}}}' "$(cat {})""#,
        token.display()
    );
    let config = json!({
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": api.url()}}],
        "users": [{"name": "x", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "interactiveMode": "Never",
        }}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    std::fs::write(&token, "first").unwrap();
    api.demand_token(Some("first"));
    let options = super::Options {
        path: Some(path),
        ..super::Options::default()
    };
    let client = Client::new("test/1", Config::load(&options).unwrap(), &Stop::new()).unwrap();
    client.version().unwrap();
    api.demand_token(Some("second"));
    std::fs::write(&token, "second").unwrap();
    client.version().unwrap();
    assert_eq!(api.count("GET /version"), 3, "one refusal, one renewal");
    pods(&api, 1);
    api.on_exec(|_| ExecAnswer::ok(""));
    api.demand_token(Some("fourth"));
    std::fs::write(&token, "fourth").unwrap();
    let seconds = Duration::from_secs(30);
    assert!(
        client
            .exec(("default", "p0000", "c"), &["x"], seconds, &mut |_| Ok(()))
            .unwrap()
            .code
            == 0
    );
    api.demand_token(Some("third"));
    assert_eq!(client.version().unwrap_err().code(), Some(401));
}

#[test]
fn watch_reports_existing_objects_and_changes() {
    let api = ApiServer::start();
    let client = client(&api);
    pods(&api, 2);
    let mut watch = client.watch(&Resource::PODS, "default", &Selector::all());
    let mut next = || match watch.next().unwrap().unwrap() {
        Event::Applied(pod) => format!(
            "+{}{}",
            pod["metadata"]["name"].as_str().unwrap(),
            pod["status"]["phase"].as_str().unwrap_or("")
        ),
        Event::Deleted(pod) => format!("-{}", pod["metadata"]["name"].as_str().unwrap()),
        other => format!("{other:?}"),
    };
    let mut take = |count: usize| (0..count).map(|_| next()).collect::<Vec<_>>().join(" ");
    let path = |index: usize| format!("/api/v1/namespaces/default/pods/p{index:04}");
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    assert_eq!(take(4), "Restarted +p0000 +p0001 Synced");
    api.merge(&path(0), &phase("Running"));
    api.remove(&path(1));
    assert_eq!(take(2), "+p0000Running -p0001");

    // After the server ends the watch, it resumes.
    let lists = api.count("GET /api/v1/namespaces/default/pods?limit");
    api.drop_watches();
    api.merge(&path(0), &phase("Succeeded"));
    assert_eq!(take(1), "+p0000Succeeded");
    api.fault(Fault::on("GET /api/v1/namespaces/default/pods?watch").cut(0));
    api.drop_watches();
    api.merge(&path(0), &phase("Failed"));
    assert_eq!(take(1), "+p0000Failed", "cut within a line");
    api.fault(Fault::on("GET /api/v1/namespaces/default/pods?watch").status(500, "", "no"));
    api.drop_watches();
    api.merge(&path(0), &phase("Running"));
    assert_eq!(take(1), "+p0000Running", "refused once");
    assert_eq!(
        api.count("GET /api/v1/namespaces/default/pods?limit"),
        lists,
        "nothing was listed again"
    );

    // Without history every object is reported anew.
    api.drop_watches();
    api.compact();
    assert_eq!(take(3), "Restarted +p0000Running Synced");

    // A bookmark prevents the second listing.
    api.bookmark();
    api.put(&path(7), json!({}));
    assert_eq!(take(1), "+p0007");
}

#[test]
fn missing_permissions_end_a_watch_with_an_error() {
    let api = ApiServer::start();
    api.forbid("list", "pods");
    let client = client(&api);
    let mut watch = client.watch(&Resource::PODS, "default", &Selector::all());
    assert!(watch.next().unwrap().unwrap_err().is_forbidden());
}

#[test]
fn stop_ends_blocking_requests() {
    let api = ApiServer::start();
    pods(&api, 1);
    let stop = Stop::new();
    let client = Client::new("test/1", Config::plain(api.url()), &stop).unwrap();
    let narrow = stop.child();
    let mut watch = client
        .under(&narrow)
        .watch(&Resource::PODS, "default", &Selector::all());
    let thread = std::thread::spawn(move || watch.by_ref().map(Result::unwrap).count());
    api.wait(|api| api.count("GET /api/v1/namespaces/default/pods?watch") == 1);
    narrow.stop();
    assert_eq!(thread.join().unwrap(), 3);
    client.version().unwrap();

    let log = super::Request::get(&Resource::PODS, "default", "p0000")
        .subresource("log")
        .query("follow", "true");
    let mut body = client.stream(&log, None).unwrap();
    let thread = std::thread::spawn(move || body.read_to_end(&mut Vec::new()));
    stop.stop();
    assert!(thread.join().unwrap().is_err());
    assert!(matches!(client.version().unwrap_err(), Error::Stopped));
}

#[test]
fn kinds_are_found_in_both_forms_of_discovery() {
    for plain in [false, true] {
        let api = ApiServer::start();
        if plain {
            api.plain_discovery();
        }
        api.add_kind("metrics.k8s.io/v1beta1", "pods", "PodMetrics", true);
        api.add_kind("example.com/v2", "things", "Thing", false);
        api.add_kind("example.com/v1", "things", "Thing", false);
        api.add_kind("example.com/v1", "relics", "Relic", true);
        api.break_group("metrics.k8s.io/v1beta1");
        let found = client(&api)
            .rate(50.0, 50)
            .retry_timeout(Duration::ZERO)
            .discover()
            .unwrap();
        assert_eq!(found.failures.len(), 1, "{:?}", found.failures);
        assert_eq!(found.failures[0].0, "metrics.k8s.io/v1beta1");
        let pod = found.find("v1", "Pod").unwrap();
        assert!(pod.resource == Resource::PODS && pod.can("list") && !pod.can("proxy"));
        assert_eq!(
            found.find("apps/v1", "DaemonSet").unwrap().resource,
            Resource::DAEMON_SETS
        );
        assert_eq!(
            found
                .find("example.com/v1", "Thing")
                .unwrap()
                .resource
                .plural,
            "things"
        );
        assert!(found.find("v1", "Thing").is_none());
        let own = found
            .preferred()
            .filter(|kind| kind.resource.group == "example.com");
        let own: Vec<String> = own
            .map(|k| format!("{}/{}", k.resource.version, k.resource.plural))
            .collect();
        assert_eq!(own, ["v2/things", "v1/relics"]);
    }
}

#[test]
fn permissions_are_reviewed() {
    let api = ApiServer::start();
    api.forbid("create", "pods");
    let client = client(&api);
    assert!(
        !client
            .allowed("create", &Resource::PODS, "default")
            .unwrap()
    );
    assert!(client.allowed("list", &Resource::PODS, "").unwrap());
}

#[test]
fn commands_run_in_containers() {
    let api = ApiServer::start();
    pods(&api, 1);
    let client = client(&api);
    let run = |command: &[&str]| {
        let mut stdout = Vec::new();
        let place = ("default", "p0000", "c");
        let exit = client.exec(place, command, Duration::from_secs(30), &mut |bytes| {
            stdout.extend_from_slice(bytes);
            Ok(())
        });
        exit.map(|exit| (stdout, exit))
    };
    api.on_exec(|exec| {
        assert_eq!(
            (&*exec.namespace, &*exec.pod, &*exec.container),
            ("default", "p0000", "c")
        );
        match exec
            .command
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["echo", words] => ExecAnswer::ok(*words),
            ["old"] => ExecAnswer::ok("old").v4(),
            ["large"] => ExecAnswer::stream(std::io::repeat(7).take(3 << 20)),
            _ => ExecAnswer::failed(3, "it is broken"),
        }
    });
    assert_eq!(run(&["echo", "a b&c=ü"]).unwrap().0, "a b&c=ü".as_bytes());
    assert_eq!(run(&["old"]).unwrap().0, b"old");
    assert_eq!(run(&["large"]).unwrap().0, vec![7; 3 << 20]);
    let (_, exit) = run(&["false"]).unwrap();
    assert_eq!((exit.code, &*exit.stderr), (3, "it is broken"));
    assert!(exit.message.contains("exit status 3"), "{}", exit.message);
    api.fault(Fault::on("GET /api/v1/namespaces/default/pods/p0000/exec").cut(100_000));
    assert!(
        matches!(run(&["large"]).unwrap_err(), Error::Transport { .. }),
        "a stream that broke off is not a success"
    );
    let absent = client
        .exec(
            ("default", "absent", "c"),
            &["x"],
            Duration::from_secs(30),
            &mut |_| Ok(()),
        )
        .unwrap_err();
    assert!(
        absent.is_not_found() && absent.to_string().contains("\"absent\" not found"),
        "{absent}"
    );
    let full = client.exec(
        ("default", "p0000", "c"),
        &["large"],
        Duration::from_secs(30),
        &mut |_| Err(anyhow!("disk full")),
    );
    assert!(matches!(full.unwrap_err(), Error::Sink(_)));
}

#[test]
fn interrupted_log_is_an_error() {
    let api = ApiServer::start();
    pods(&api, 1);
    api.log("default", "p0000", "c", "line\n".repeat(1000));
    let read = || {
        let request = super::Request::get(&Resource::PODS, "default", "p0000")
            .subresource("log")
            .query("container", "c");
        let mut text = String::new();
        client(&api)
            .stream(&request, None)
            .unwrap()
            .read_to_string(&mut text)
            .map(|length| (length, text))
    };
    assert_eq!(read().unwrap().0, 5000);
    api.fault(Fault::on("GET /api/v1/namespaces/default/pods/p0000/log").cut(100));
    assert!(read().is_err());
}

#[test]
fn watch_rejects_an_oversized_list() {
    let api = ApiServer::start();
    let first = |client: &Client| {
        client
            .watch(&Resource::CONFIG_MAPS, "default", &Selector::all())
            .next()
    };
    for number in 0..2 {
        assert!(
            matches!(first(&client(&api)), Some(Ok(Event::Restarted))),
            "with {number} objects"
        );
        let map = json!({"data": {"a": "x".repeat(2 << 20)}});
        api.put(
            &format!("/api/v1/namespaces/default/configmaps/c{number}"),
            map,
        );
    }
    let error = first(&client(&api)).unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "the list of configmaps takes more than 4 MiB of memory"
    );
}

#[test]
fn port_without_a_server_is_refused() {
    for (server, accepted) in [
        ("https://api:65535", true),
        ("https://api:", true),
        ("https://user:word@api", true),
        ("https://[fd00::1]:6443", true),
        ("https://api:65536", false),
        ("https://api:99999/base", false),
        ("http://[::1]:99999", false),
    ] {
        let error = Client::new("test/1", Config::plain(server), &Stop::new())
            .err()
            .map(|error| error.to_string());
        let says = format!("`{server}`: its port must be a number up to 65535");
        assert_eq!(error.is_none(), accepted, "{server}: {error:?}");
        assert!(error.is_none_or(|error| error.ends_with(&says)), "{server}");
    }
}
