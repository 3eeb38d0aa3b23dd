//! Valid and broken kubeconfig files.

use super::*;

/// A folder with kubeconfig files, removed at the end.
struct Folder(base::temp::Folder);

impl Folder {
    fn new() -> Self {
        Self(base::temp::Folder::new().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }
}

fn text(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{{name: x, context: \
         {{cluster: c, user: u, namespace: space}}}}]\nclusters: [{{name: c, cluster: \
         {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

const SERVER: &str = "server: 'https://api:6443/base/'";

fn load(text: &str) -> Result<Config, String> {
    let folder = Folder::new();
    let options = Options {
        path: Some(folder.write("config", text)),
        ..Options::default()
    };
    Config::load(&options).map_err(|why| {
        why.to_string()
            .replace(&*folder.0.to_string_lossy(), "DIR")
            .replace("DIR\\", "DIR/")
    })
}

#[test]
fn insecure_settings_are_warnings() {
    let said = |cluster: &str, user: &str| {
        let config = load(&text(cluster, user)).unwrap();
        config
            .weaknesses()
            .iter()
            .filter_map(|said| said.split(':').next())
            .collect::<Vec<_>>()
            .join(",")
    };
    let skip = "server: 'https://api:6443', insecure-skip-tls-verify: true";
    let program = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}";
    for (cluster, user, expected) in [
        (SERVER, "token: secret", ""),
        (skip, "", "insecure-skip-tls-verify"),
        (skip, "token: secret", "insecure-skip-tls-verify"),
        ("server: 'http://api:6443'", "", ""),
        ("server: 'http://api:6443'", "token: secret", "server"),
        ("server: 'api:6443'", "tokenFile: secret", "server"),
        (
            "server: 'http://[fd00::1]'",
            "username: a, password: b",
            "server",
        ),
        ("server: 'http://10.0.0.1'", program, "server"),
        ("server: 'http://[::1]:8001'", "token: secret", ""),
        ("server: 'http://127.0.0.1:8001'", "token: secret", ""),
        ("server: 'http://localhost:8001'", "token: secret", ""),
        (
            "server: 'http://localhost', proxy-url: 'http://far:3128'",
            "token: secret",
            "server",
        ),
    ] {
        assert_eq!(said(cluster, user), expected, "{cluster} {user}");
    }
}

#[test]
fn context_selects_server_and_user() {
    let config = load(&text(SERVER, "token: secret")).unwrap();
    assert_eq!(
        (&*config.server, config.namespace.as_deref()),
        ("https://api:6443/base", Some("space"))
    );
    assert!(matches!(&config.credential, Credential::Token(token) if token == "secret"));
    assert!(
        !format!("{config:?}").contains("secret"),
        "secrets stay out of messages"
    );
    for (server, wanted) in [
        ("server: 'api:6443'", "http://api:6443"),
        (
            "server: 'api:6443', insecure-skip-tls-verify: true",
            "https://api:6443",
        ),
        ("server: 'https://[fd00::1]:6443'", "https://[fd00::1]:6443"),
    ] {
        assert_eq!(load(&text(server, "")).unwrap().server, wanted);
    }
    let kind = |user: &str| format!("{:?}", load(&text(SERVER, user)).unwrap().credential);
    assert_eq!(kind(""), "None");
    assert_eq!(kind("username: a, password: b"), "Basic");
    assert_eq!(kind("tokenFile: t, token: x"), "TokenFile");
    assert_eq!(
        kind("exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: c}"),
        "Program"
    );
    assert_eq!(
        kind("exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: c}, token: t"),
        "Token"
    );
}

/// This system's message for a missing file.
fn not_there() -> String {
    let error = std::fs::File::open("not-there").unwrap_err().to_string();
    error
        .split(['.', '('])
        .next()
        .unwrap()
        .trim_end()
        .to_owned()
}

#[test]
fn errors_name_file_and_field() {
    let check = |text: &str, says: &str| match load(text) {
        Ok(_) => panic!("{text} was accepted"),
        Err(why) => assert!(why.contains(says), "{text}\nsays {why}\nnot {says}"),
    };
    let place = "kubeconfig `DIR/config`: ";
    let user =
        |part: &str, says: &str| check(&text(SERVER, part), &format!("{place}users `u`: {says}"));
    let cluster = |part: &str, says: &str| {
        check(
            &text(&format!("{SERVER}, {part}"), ""),
            &format!("{place}clusters `c`: {says}"),
        );
    };
    check("a: b: c", &format!("{place}line 1"));
    check("[]", "not a kubeconfig");
    check("hello", "not a kubeconfig");
    check("clusters: {}", "clusters: must be a list");
    check(&text("", ""), "clusters `c`: server is not set");
    for (server, says) in [
        ("ftp://x", "server: `ftp://x` must start with"),
        ("https://", "server: `https://` is not a URL"),
        ("https://a b", "server: `https://a b` is not a URL"),
    ] {
        check(&text(&format!("server: '{server}'"), ""), says);
    }
    check(
        &text(SERVER, "").replace("current-context: x\n", ""),
        "current-context is not set; choose one with `--context`: x",
    );
    check(
        &text(SERVER, "").replace("current-context: x", "current-context: other"),
        "current-context: no context `other`",
    );
    check(
        &text(SERVER, "").replace("cluster: c,", "cluster: d,"),
        "contexts `x`: cluster: no `d`",
    );
    check(
        &text(SERVER, "").replace("cluster: c,", ""),
        "contexts `x`: cluster is not set",
    );
    check(
        &text(SERVER, "").replace("user: u", "user: v"),
        "contexts `x`: user: no `v` among the users",
    );
    cluster(
        "certificate-authority-data: '!'",
        "certificate-authority-data: not base64",
    );
    cluster(
        "certificate-authority-data: aGk=",
        "certificate-authority-data: it contains no PEM certificate",
    );
    let says = format!(
        "certificate-authority: cannot read `DIR/none.pem`: {}",
        not_there()
    );
    cluster("certificate-authority: none.pem", &says);
    cluster(
        "certificate-authority-data: aGk=, insecure-skip-tls-verify: true",
        "insecure-skip-tls-verify and",
    );
    cluster(
        "insecure-skip-tls-verify: 'yes!'",
        "insecure-skip-tls-verify: `\"yes!\"` must be true or false",
    );
    cluster(
        "tls-server-name: 'a b'",
        "tls-server-name: `a b` is neither",
    );
    cluster("proxy-url: 'ftp://p'", "proxy-url: proxy scheme `ftp`");
    user("token: 5", "token: `5` is not text");
    user("token: \"a\\nb\"", "token: it contains a character");
    user(
        "client-certificate-data: aGk=",
        "client-certificate is set, but client-key is not",
    );
    user(
        "client-key-data: aGk=",
        "client-key is set, but client-certificate is not",
    );
    user(
        "client-certificate-data: aGk=, client-key-data: aGk=",
        "client-certificate-data: client certificate: it contains",
    );
    user(
        "client-key: k, client-certificate-data: aGk=",
        "client-key: cannot read `DIR/k`",
    );
    user(
        "auth-provider: {name: gcp}",
        "auth-provider `gcp`: Kubernetes removed these",
    );
    user("exec: []", "exec: must be a map");
    user("exec: {apiVersion: v1}", "exec: command is not set");
    user("exec: {command: c}", "exec: apiVersion is not set");
    user(
        "exec: {command: c, apiVersion: client.authentication.k8s.io/v1alpha1}",
        "exec: unsupported apiVersion `client.authentication.k8s.io/v1alpha1`",
    );
    let exec = "command: c, apiVersion: client.authentication.k8s.io/v1";
    user(
        &format!("exec: {{{exec}}}"),
        "exec: interactiveMode is not set",
    );
    user(
        &format!("exec: {{{exec}, interactiveMode: Perhaps}}"),
        "exec: interactiveMode `Perhaps`",
    );
    user(
        &format!("exec: {{{exec}, interactiveMode: Never, args: [1]}}"),
        "exec: args: `1`",
    );
    user(
        &format!("exec: {{{exec}, interactiveMode: Never, args: 1}}"),
        "exec: args: must be a list",
    );
    user(
        &format!("exec: {{{exec}, interactiveMode: Never, env: [{{value: 1}}]}}"),
        "exec: env:",
    );
    let absent = Options {
        path: Some("/nowhere/config".into()),
        ..Options::default()
    };
    let why = Config::load(&absent).unwrap_err().to_string();
    assert!(why.starts_with("kubeconfig `/nowhere/config`: "), "{why}");
    let groups = Options {
        as_groups: vec!["g".into()],
        ..absent
    };
    assert!(Config::load(&groups).is_err());
}

#[test]
#[cfg(unix)]
fn endless_kubeconfig_is_refused_and_a_pipe_is_read() {
    let folder = Folder::new();
    let pipe = folder.0.join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let options = |path: PathBuf| Options {
        path: Some(path),
        ..Options::default()
    };
    let error = |options: Options| Config::load(&options).unwrap_err().to_string();
    assert_eq!(
        error(options("/dev/zero".into())),
        "kubeconfig `/dev/zero`: it is larger than 16777216 bytes"
    );
    for (field, named) in [
        ("client-certificate", "/dev/zero"),
        ("client-key", &pipe.to_string_lossy()),
    ] {
        let path = folder.write("config", &text(SERVER, &format!("{field}: '{named}'")));
        let why = error(options(path));
        assert!(
            why.ends_with(&format!(
                "{field}: cannot read `{named}`: it is not a regular file"
            )),
            "{why}"
        );
    }
    let path = folder.write(
        "config",
        &text(SERVER, &format!("tokenFile: '{}'", pipe.display())),
    );
    let config = Config::load(&options(path)).unwrap();
    let why = format!(
        "{:#}",
        config
            .credential
            .authorization(&config.identity)
            .unwrap_err()
    );
    assert!(why.ends_with("it is not a regular file"), "{why}");
    let config = std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&pipe, text(SERVER, "")).unwrap());
        Config::load(&options(pipe.clone())).unwrap()
    });
    assert_eq!(config.server, "https://api:6443/base");
}

#[test]
fn kubeconfig_files_are_merged_and_the_first_value_wins() {
    let folder = Folder::new();
    folder.write(
        "first",
        "clusters: [{name: c, cluster: {server: 'http://first'}}]",
    );
    folder.write("empty", "");
    std::fs::create_dir(folder.0.join("sub")).unwrap();
    folder.write(
        "sub/second",
        "current-context: x\nclusters: [{name: c, cluster: {server: 'http://second'}}]\ncontexts: \
         [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {tokenFile: token}}]",
    );
    folder.write(
        "third",
        "current-context: other\ncontexts: [{name: other, context: {cluster: c}}, {name: x, \
         context: {}}]",
    );
    let list = ["first", "missing", "empty", "sub/second", "third"].map(|name| folder.0.join(name));
    let list = std::env::join_paths(list).unwrap().into_string().unwrap();
    let resolve = |list: &str, context: Option<&str>| {
        let variable = |name: &str| (name == "KUBECONFIG").then(|| list.to_owned());
        let options = Options {
            context: context.map(Into::into),
            ..Options::default()
        };
        Files::find(&options, &variable).and_then(|files| files.resolve(&options))
    };
    let config = resolve(&list, None).unwrap().unwrap();
    assert_eq!(config.server, "http://first");
    let Credential::TokenFile(path) = &config.credential else {
        panic!("{config:?}")
    };
    assert_eq!(
        *path,
        folder.0.join("sub/token"),
        "relative to the file that says it"
    );
    assert!(matches!(
        resolve(&list, Some("other")).unwrap().unwrap().credential,
        Credential::None
    ));
    assert!(
        resolve(&list, Some("z"))
            .unwrap_err()
            .to_string()
            .contains("`--context`: no context `z`")
    );
    assert!(
        resolve("/nowhere/a:/nowhere/b", None)
            .unwrap_err()
            .to_string()
            .contains("none of the files in KUBECONFIG exists")
    );
    assert!(
        resolve(&folder.0.join("empty").display().to_string(), None)
            .unwrap()
            .is_none()
    );
}

#[test]
fn environment_precedes_home_and_pod() {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join(".kube")).unwrap();
    folder.write(".kube/config", &text("server: 'http://home'", ""));
    let home = |name: &str| (name == "HOME").then(|| folder.0.display().to_string());
    let config = Files::find(&Options::default(), &home)
        .unwrap()
        .resolve(&Options::default())
        .unwrap();
    assert_eq!(config.unwrap().server, "http://home");

    let pod = |name: &str| match name {
        "KUBERNETES_SERVICE_HOST" => Some("fd00::1".to_owned()),
        "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
        _ => None,
    };
    assert!(in_cluster(&folder.0, &|_| None).unwrap().is_none());
    assert!(
        in_cluster(&folder.0, &pod)
            .unwrap_err()
            .to_string()
            .contains("automountServiceAccountToken")
    );
    folder.write("token", "t");
    assert!(
        in_cluster(&folder.0, &pod)
            .unwrap_err()
            .to_string()
            .contains("ca.crt")
    );
    let authority = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
    folder.write("ca.crt", &authority.cert.pem());
    folder.write("namespace", "here\n");
    let config = in_cluster(&folder.0, &pod).unwrap().unwrap();
    assert_eq!(
        (&*config.server, config.namespace.as_deref()),
        ("https://[fd00::1]:443", Some("here"))
    );
}

#[test]
fn credential_program_receives_the_cluster_on_request() {
    let folder = Folder::new();
    let pem = rcgen::generate_simple_self_signed(["x".to_owned()])
        .unwrap()
        .cert
        .pem();
    folder.write("ca.pem", &pem);
    let cluster = "server: 'https://api', tls-server-name: name, certificate-authority: ca.pem, \
                   extensions: [{name: client.authentication.k8s.io/exec, extension: {a: 1}}]";
    let program = |more: &str| {
        let user = format!(
            "exec: {{command: bin/c, apiVersion: client.authentication.k8s.io/v1, \
             interactiveMode: Never{more}}}"
        );
        let path = folder.write("config", &text(cluster, &user));
        match Config::load(&Options {
            path: Some(path),
            ..Options::default()
        })
        .unwrap()
        .credential
        {
            Credential::Program(program) => program,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(program("").cluster, None);
    assert_eq!(program("").command, folder.0.join("bin/c"));
    let told = json!({
        "server": "https://api", "tls-server-name": "name", "config": {"a": 1},
        "certificate-authority-data": BASE64_STANDARD.encode(&pem),
    });
    assert_eq!(program(", provideClusterInfo: true").cluster, Some(told));
}
