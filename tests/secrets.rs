//! Secrets in a plugin's definition, and the archive of its run.

use std::io::Read as _;

use crate::support::{Archive, Sonobuoy};

#[test]
fn archives_contain_no_secret_of_a_definition() {
    const SECRET: &str = "hunter2-and-more";
    let script = "echo x > $RESULTS_DIR/x; echo $RESULTS_DIR/x > $RESULTS_DIR/done";
    let definition = format!(
        "sonobuoy-config: {{plugin-name: p, driver: Job, source-url: 'https://me:{SECRET}@host/p.yaml'}}\n\
         spec:\n  name: c\n  command: [sh, -c, '{script}', --password, {SECRET}, '--token={SECRET}']\n  \
         env: [{{name: DB_PASSWORD, value: {SECRET}}}]\n\
         config-map:\n  settings.yaml: |\n    user: me\n    password: {SECRET}\n  api.env: |\n    API_KEY={SECRET}\n"
    );
    let run =
        Sonobuoy::new("run --local -p p.yaml --plugin-env").arg(format!("p.API_TOKEN={SECRET}"));
    let folder = run.file("p.yaml", definition).run_any().folder;
    let name = folder
        .names()
        .into_iter()
        .find(|name| name.ends_with(".tar.gz"))
        .unwrap();
    let mut content = Vec::new();
    let file = std::fs::File::open(folder.join(&name)).unwrap();
    flate2::read::MultiGzDecoder::new(file)
        .read_to_end(&mut content)
        .unwrap();
    let text = String::from_utf8_lossy(&content);
    assert!(text.contains("API_TOKEN"), "the definition is there");
    assert!(!text.contains(SECRET));
    let archive = Archive::only_one_in(folder.path());
    let counts: serde_json::Value =
        serde_json::from_str(&archive.text("meta/redactions.json")).unwrap();
    assert_eq!(counts["environment variables"], 6, "{counts}");
    assert_eq!(counts["passwords in addresses"], 1, "{counts}");
}
