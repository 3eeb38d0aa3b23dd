//! `sonobuoy schema`: what an editor's language server makes of the schemas.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::support::{self, Folder, Sonobuoy, fixture};

/// yaml-language-server, as npm installs it: `npm install --no-save yaml-language-server`.
fn installed() -> Option<PathBuf> {
    let folder = std::env::var_os("YAML_LANGUAGE_SERVER").map(PathBuf::from);
    let program = folder
        .unwrap_or_else(|| "node_modules/yaml-language-server".into())
        .join("bin/yaml-language-server");
    if !program.is_file() {
        support::skipped(
            "yaml-language-server",
            "neither YAML_LANGUAGE_SERVER nor node_modules has it",
        );
        return None;
    }
    support::program("node").map(|_| program)
}

/// A running language server; each document gets the diagnostics that an editor would underline.
struct Server {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
    settings: Value,
}

impl Server {
    fn start(program: &Path, schema: &Path) -> Self {
        let mut child = Command::new("node")
            .arg(program)
            .arg("--stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let schemas = json!({format!("file://{}", schema.display()): "*.yaml"});
        let settings = json!({"validate": true, "hover": true, "schemas": schemas, "schemaStore": {"enable": false}});
        let mut server = Self {
            child,
            answers,
            settings,
        };
        server.send(&json!({"id": 1, "method": "initialize", "params": {"processId": null, "rootUri": null, "capabilities": {}}}));
        server.receive(|message| message["id"] == 1);
        server.send(&json!({"method": "initialized", "params": {}}));
        server.send(
            &json!({"method": "workspace/didChangeConfiguration", "params": {"settings": null}}),
        );
        server
    }

    fn send(&mut self, message: &Value) {
        let mut message = message.clone();
        message["jsonrpc"] = json!("2.0");
        let text = message.to_string();
        let input = self.child.stdin.as_mut().unwrap();
        write!(input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        input.flush().unwrap();
    }

    fn receive(&mut self, is_meant: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                assert!(
                    self.answers.read_line(&mut line).unwrap() > 0,
                    "the language server ended"
                );
                match line.trim_end().split_once(": ") {
                    Some(("Content-Length", digits)) => length = digits.parse().unwrap(),
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            self.answers.read_exact(&mut body).unwrap();
            let message: Value = serde_json::from_slice(&body).unwrap();
            if is_meant(&message) {
                return message;
            }
            // The server asks for its settings section by section.
            if message["method"] == "workspace/configuration" {
                let asked = message["params"]["items"].as_array().unwrap().iter();
                let settings = asked.map(|item| {
                    if item["section"] == "yaml" {
                        self.settings.clone()
                    } else {
                        json!({})
                    }
                });
                self.send(&json!({"id": message["id"], "result": settings.collect::<Vec<_>>()}));
            }
        }
    }

    /// Line and message of each problem in a document.
    fn problems(&mut self, name: &str, text: &str) -> Vec<String> {
        let uri = format!("file:///{name}");
        let document = json!({"uri": uri, "languageId": "yaml", "version": 1, "text": text});
        self.send(&json!({"method": "textDocument/didOpen", "params": {"textDocument": document}}));
        let published = self.receive(|message| {
            message["method"] == "textDocument/publishDiagnostics"
                && message["params"]["uri"] == uri
        });
        let problems = published["params"]["diagnostics"]
            .as_array()
            .unwrap()
            .iter();
        let told = |problem: &Value| {
            let line = problem["range"]["start"]["line"].as_u64().unwrap() + 1;
            format!(
                "{line}: {}",
                problem["message"]
                    .as_str()
                    .unwrap()
                    .lines()
                    .next()
                    .unwrap_or_default()
            )
        };
        problems.map(told).collect()
    }

    /// What an editor shows for a place.
    fn hover(&mut self, name: &str, line: u64, character: u64) -> String {
        let place = json!({"textDocument": {"uri": format!("file:///{name}")}, "position": {"line": line, "character": character}});
        self.send(&json!({"id": 2, "method": "textDocument/hover", "params": place}));
        self.receive(|message| message["id"] == 2)["result"]["contents"]["value"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with a schema of the program.
fn server(folder: &Folder, name: &str) -> Option<Server> {
    let program = installed()?;
    let schema = folder.write(
        "schema.json",
        Sonobuoy::new(&format!("schema {name}")).run_any().stdout,
    );
    Some(Server::start(&program, &schema))
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "yaml") {
            files.push(path);
        }
    }
    files
}

#[test]
fn language_server_accepts_our_own_and_published_definitions() {
    let folder = Folder::new();
    let Some(mut server) = server(&folder, "plugin") else {
        return;
    };
    let mut files = yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins.d"));
    files.extend(yaml_files(&fixture("plugins")));
    let mut definitions = 0;
    for (at, path) in files.iter().enumerate() {
        let text = std::fs::read_to_string(path).unwrap();
        if !text.contains("sonobuoy-config:") {
            continue;
        }
        definitions += 1;
        assert_eq!(
            server.problems(&format!("{at}.yaml"), &text),
            [""; 0],
            "{}",
            path.display()
        );
    }
    assert!(definitions > 10, "{definitions}");
    for language in ["shell", "python", "go", "rust"] {
        let text = Sonobuoy::new(&format!("gen plugin --example {language}"))
            .run_any()
            .stdout;
        assert_eq!(
            server.problems(&format!("{language}.yaml"), &text),
            [""; 0],
            "{language}"
        );
    }
}

#[test]
fn language_server_marks_mistakes_and_shows_descriptions() {
    let folder = Folder::new();
    let Some(mut server) = server(&folder, "plugin") else {
        return;
    };
    let text = "\
sonobuoy-config:
  driver: Deployment
  plugin-name: 12
  result-formt: junit
  timeout: 5
  waves: {order: size}
spec:
  image: [a]
  env:
  - {name: a, value: 3}
  volumes: []
podSpec:
  hostPID: 'yes'
";
    let mut lines: Vec<_> = server
        .problems("wrong.yaml", text)
        .into_iter()
        .map(|problem| problem.split(':').next().unwrap().to_owned())
        .collect();
    lines.sort_by_key(|line| line.parse::<u64>().unwrap());
    assert_eq!(lines, ["2", "3", "4", "5", "6", "8", "10", "11", "13"]);
    let shown = server.hover("wrong.yaml", 4, 4);
    assert!(shown.contains("time limit, such as 90m"), "{shown}");
    assert_eq!(
        server.problems(
            "right.yaml",
            "sonobuoy-config: {driver: daemonset, plugin-name: a, permissions: none}\nspec: {command:}\n"
        ),
        [""; 0]
    );
}

#[test]
fn language_server_accepts_configuration_files() {
    let folder = Folder::new();
    let Some(mut server) = server(&folder, "config") else {
        return;
    };
    let ours = Sonobuoy::new("gen config").run_any().stdout;
    let original = support::fixture_text("gen/static-config.json");
    for (name, text) in [("ours.yaml", &ours), ("original.yaml", &original)] {
        assert_eq!(server.problems(name, text), [""; 0], "{text}");
    }
    let wrong = "{\"UUID\": 3,\n\"Graces\": {\"Image\": \"5m\"},\n\"Limits\": {\"Run\": {\"Bytes\": \"1\"}},\n\"Identity\": \"pod\"}";
    let lines = server.problems("wrong.yaml", wrong).len();
    assert_eq!(lines, 4);
}

#[test]
fn every_key_of_a_configuration_is_described() {
    fn missing(path: &str, schema: &Value, found: &mut Vec<String>) {
        match schema["properties"].as_object() {
            Some(keys) => {
                keys.iter()
                    .for_each(|(key, schema)| missing(&format!("{path}.{key}"), schema, found));
            }
            None if schema["description"].is_string() => {}
            None => found.push(path.to_owned()),
        }
    }
    let schema: Value =
        serde_json::from_str(&Sonobuoy::new("schema config").run_any().stdout).unwrap();
    let mut found = Vec::new();
    missing("", &schema, &mut found);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(
        schema["properties"]["Server"]["properties"]["timeoutseconds"]["description"],
        "time limit of the run; 0 for none"
    );
    assert_eq!(
        schema["properties"]["Graces"]["properties"]["Ended"]["description"],
        "all containers have succeeded and the result has not arrived"
    );
}
