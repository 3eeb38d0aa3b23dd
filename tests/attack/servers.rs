//! Hostile servers: an API server and a registry.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::images::{fill, plugin};
use crate::support::registry::{Habits, Registry};
use crate::support::{Folder, Sonobuoy, bounded};

pub(super) const CASES: usize = API + REGISTRY;
const API: usize = 17;
const REGISTRY: usize = 8;

/// A server's response to every request: a head and then N repetitions of a text.
#[derive(Clone)]
struct Lie {
    head: String,
    text: &'static str,
    times: usize,
}

fn lie(head: &str, text: &'static str, times: usize) -> Lie {
    Lie {
        head: format!("HTTP/1.1 {head}\r\nConnection: close\r\n"),
        text,
        times,
    }
}

/// A document that begins with `begin` and continues with `text` until the reader stops.
fn json(begin: &'static str, text: &'static str, times: usize) -> Lie {
    let lie = lie("200 OK", text, times);
    Lie {
        head: format!("{}Content-Type: application/json\r\n\r\n{begin}", lie.head),
        ..lie
    }
}

/// Serves the lie; records the requests.
fn liar(lie: Lie) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (
        listener.local_addr().unwrap(),
        Arc::new(Mutex::new(Vec::new())),
    );
    let told = asked.clone();
    // The server ends with the tests: no client connects any more.
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let (lie, told) = (lie.clone(), told.clone());
            std::thread::spawn(move || {
                let _ = tell(socket, &lie, &told);
            });
        }
    });
    (address, asked)
}

fn tell(mut socket: TcpStream, lie: &Lie, told: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
        // Registries are contacted over TLS first.
        if head == [0x16] {
            return Ok(());
        }
    }
    told.lock()
        .unwrap()
        .push(String::from_utf8_lossy(&head).into_owned());
    socket.write_all(lie.head.as_bytes())?;
    let piece = lie.text.repeat((64 << 10) / lie.text.len().max(1));
    for _ in 0..lie.times {
        socket.write_all(piece.as_bytes())?;
    }
    socket.flush()
}

fn kubeconfig(folder: &Folder, server: SocketAddr) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}]\nusers: [{{name: u, user: {{token: geheim}}}}]\n"
    );
    folder.write("kubeconfig", text);
}

#[test]
fn hostile_api_server_costs_an_error_and_little_memory() {
    let elsewhere = liar(json("{}", "", 0));
    let redirect = |code: &str| {
        let lie = lie(code, "", 0);
        Lie {
            head: format!(
                "{}Location: http://{}/api\r\nContent-Length: 0\r\n\r\n",
                lie.head, elsewhere.0
            ),
            ..lie
        }
    };
    // More than 64 MiB each if repeated 1,100 times.
    let cases: [(&str, Lie); API] = [
        ("a tree of small maps", json("{\"items\":[{\"a\":[", "{\"\":0},", 300)),
        ("a list of small maps", json("{\"items\":[", "{\"a\":{\"b\":{}}},", 300)),
        ("one list of numbers", json("{\"x\":[", "0,", 300)),
        ("one text", json("{\"metadata\":{\"name\":\"", "aaaaaaaa", 300)),
        ("one key", json("{\"", "aaaaaaaa", 300)),
        ("one number", json("{\"a\":", "11111111", 300)),
        ("nesting", json("", "[", 10)),
        ("blanks", json("", "        ", 300)),
        ("no JSON", json("<html>", "x", 1)),
        ("a list that is a map", json("{\"kind\":\"PodList\",\"items\":{}}", "", 0)),
        ("a header without end", Lie { head: "HTTP/1.1 200 OK\r\nX: ".into(), text: "aaaaaaaa", times: 300 }),
        ("headers without end", Lie { head: "HTTP/1.1 200 OK\r\n".into(), text: "X: y\r\n", times: 300 }),
        ("no HTTP", Lie { head: "SSH-2.0-x\r\n\r\n".into(), text: "", times: 0 }),
        ("an error that is a terminal's order", Lie {
            head: "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n{\"kind\":\"Status\",\"message\":\"\\u001b[2J\\u202e\"}".into(),
            text: "", times: 0,
        }),
        ("a wish to be left alone for ever", lie("503 Service Unavailable\r\nRetry-After: 18446744073709551615\r\nContent-Length: 0\r\n", "", 0)),
        ("a redirect", redirect("302 Found")),
        ("a redirect that keeps the method", redirect("307 Temporary Redirect")),
    ];
    let try_one = |(name, lie): (&str, Lie)| {
        let (server, asked) = liar(lie);
        let folder = Folder::new();
        kubeconfig(&folder, server);
        let words = [
            "status",
            "--kubeconfig",
            "kubeconfig",
            "--request-timeout",
            "20s",
        ];
        let done = bounded(&words.map(AsRef::as_ref), folder.path());
        assert_eq!(done.code, Some(1), "{name}: {done:?}");
        assert!(
            !done.stderr.contains("this is a bug") && !done.stderr.contains("geheim"),
            "{name}: {done:?}"
        );
        let obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!done.stderr.contains(obeyed), "{name}: {done:?}");
        assert!(!asked.lock().unwrap().is_empty(), "{name}: it was asked");
    };
    // Some time out.
    std::thread::scope(|scope| {
        cases
            .into_iter()
            .for_each(|case| drop(scope.spawn(|| try_one(case))));
    });
    assert!(
        elsewhere.1.lock().unwrap().is_empty(),
        "no other server gets the token"
    );
}

#[test]
fn hostile_registry_costs_an_error_and_little_memory() {
    let elsewhere = liar(json("{}", "", 0));
    let with = |code: &str, lines: &str| {
        let lie = lie(code, "", 0);
        Lie {
            head: format!("{}{lines}Content-Length: 0\r\n\r\n", lie.head),
            ..lie
        }
    };
    let realm = "WWW-Authenticate: Bearer realm=\"file:///etc/passwd\",service=\"x\"\r\n";
    let cases: [(&str, Lie); REGISTRY] = [
        ("a manifest that unfolds", json("{\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[", "{\"\":0},", 300)),
        ("a manifest without end", json("{\"a\":\"", "aaaaaaaa", 300)),
        ("nesting", json("", "[", 10)),
        ("a manifest that is a list", json("[]", "", 0)),
        ("a manifest of nothing", json("{}", "", 0)),
        ("a realm that is a file", with("401 Unauthorized", realm)),
        ("an error that is a terminal's order", Lie {
            head: "HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n{\"errors\":[{\"message\":\"\\u001b[2J\\u202e\"}]}".into(),
            text: "", times: 0,
        }),
        ("a redirect to elsewhere and back", with("307 Temporary Redirect", "Location: /v2/\r\n")),
    ];
    for (name, lie) in cases {
        let (server, _) = liar(lie);
        let folder = Folder::new();
        let login = format!(
            "{{\"auths\":{{\"{server}\":{{\"username\":\"me\",\"password\":\"geheim\"}}}}}}"
        );
        folder.write(".docker/config.json", login);
        folder.write("p.yaml", format!("sonobuoy-config: {{driver: Job, plugin-name: p}}\nspec: {{name: x, image: '{server}/tool:1'}}\n"));
        let done = bounded(
            &["images", "download", "-p", "p.yaml", "-o", "images.tar"].map(AsRef::as_ref),
            folder.path(),
        );
        assert_eq!(done.code, Some(1), "{name}: {done:?}");
        assert!(
            !done.stderr.contains("this is a bug") && !done.stderr.contains("root:"),
            "{name}: {done:?}"
        );
        let obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!done.stderr.contains(obeyed), "{name}: {done:?}");
        assert!(!folder.join("images.tar").exists(), "{name}");
    }
    assert!(
        elsewhere.1.lock().unwrap().is_empty(),
        "no other server is contacted"
    );
}

#[test]
fn nested_image_indexes_end() {
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    let registry = Registry::start(Habits::default());
    let (root, _) = fill(&registry, "tool", false);
    let index = |tag: &str, inner: &[&str]| {
        let entry = |digest: &&str| {
            format!("{{\"mediaType\":\"{INDEX}\",\"digest\":\"{digest}\",\"size\":1}}")
        };
        let entries: Vec<String> = inner.iter().map(entry).collect();
        let text = format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"{INDEX}\",\"manifests\":[{}]}}",
            entries.join(",")
        );
        registry.put_manifest("tool", tag, INDEX, text.as_bytes())
    };
    let download = |tag: &str| {
        let image = format!("{}/tool:{tag}", registry.host());
        let call = Sonobuoy::new("images download -p p.yaml -o images.tar --platform all");
        call.file("p.yaml", plugin(&image))
    };
    // An object named a thousand times is fetched once.
    let many = index("many", &vec![&*root; 1_000]);
    download("many").stdout("images.tar\n").run_any();
    let asked = registry
        .log()
        .iter()
        .filter(|line| line.contains(&root))
        .count();
    assert_eq!(asked, 1, "{:?}", registry.log());
    index("deep", &[&index("deeper", &[&many])]);
    download("deep")
        .status(1)
        .stderr_has("its indexes are nested more than 2 deep")
        .run();
    let one = |number| {
        let text = format!("{{\"mediaType\":\"{INDEX}\",\"manifests\":[],\"number\":{number}}}");
        registry.put_manifest("tool", "one", INDEX, text.as_bytes())
    };
    let all: Vec<String> = (0..1_000).map(one).collect();
    index("wide", &all.iter().map(String::as_str).collect::<Vec<_>>());
    download("wide")
        .status(1)
        .stderr_has("has more than 1000 manifests")
        .run();
}
