//! The documentation is correct: its commands run, links have targets, flags and messages exist.

use std::path::{Path, PathBuf};

use crate::support::{Folder, Sonobuoy};

fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name)).to_vec();
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// What a block of commands may need: its first line is `# needs: WHAT` then, and it is parsed instead of run.
const NEEDS: &[&str] =
    &["a cluster", "a container runtime", "a kit", "a release", "the internet", "the variables of a worker"];
/// Programs of blocks that a machine may lack.
const PROGRAMS: &[&str] = &["jq", "make", "openssl", "python3", "sha256sum"];

/// A fenced block of a page.
struct Block {
    language: String,
    text: String,
    /// The name in "Save this as `NAME`" above it.
    saved_as: Option<String>,
}

impl Block {
    fn needs(&self) -> Option<&str> {
        self.text.lines().next()?.strip_prefix("# needs: ")
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut inside, mut above) = (false, "");
    for line in page.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(language) => {
                let saved_as = above.split("Save this as `").nth(1).and_then(|rest| rest.split('`').next());
                blocks.push(Block {
                    language: language.into(),
                    text: String::new(),
                    saved_as: saved_as.map(Into::into),
                });
                (inside, above) = (true, "");
            }
            None if inside => blocks.last_mut().unwrap().text += &format!("{line}\n"),
            None if !line.trim().is_empty() => above = line,
            None => {}
        }
    }
    blocks
}

#[test]
fn every_block_has_a_known_language_and_is_valid() {
    for (path, page) in pages() {
        for Block { language, text, .. } in blocks(&page) {
            let story = || format!("{}: ```{language}\n{text}```", path.display());
            match &*language {
                // Other tests run the programs.
                "sh" | "powershell" | "text" | "mermaid" | "toml" | "rust" | "go" | "python" => {}
                "json" => drop(
                    serde_json::from_str::<serde_json::Value>(&text)
                        .unwrap_or_else(|error| panic!("{}: {error}", story())),
                ),
                "yaml" => drop(
                    serde_yaml::from_str::<serde_json::Value>(&text)
                        .unwrap_or_else(|error| panic!("{}: {error}", story())),
                ),
                _ => panic!("{}", story()),
            }
        }
    }
}

/// A folder as the documentation assumes it: the program in PATH, `plugins.d` here, and commands that build as dry runs.
#[cfg(unix)]
fn workplace(root: &Path) -> Folder {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new();
    let script = |name: &str, text: String| {
        let path = folder.write(name, format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    let program = env!("CARGO_BIN_EXE_sonobuoy");
    script("bin/sonobuoy", format!("exec {program} \"$@\""));
    script("bin/cargo", format!("[ \"$1 $2\" = 'run --' ] && shift 2 && exec {program} \"$@\""));
    if let Some(make) = crate::support::program("make") {
        script(
            "bin/make",
            format!("exec {} --dry-run --silent --directory {} \"$@\"", make.display(), root.display()),
        );
    }
    for name in Folder::names_of(&root.join("scripts")) {
        script(&format!("scripts/{name}"), String::new());
    }
    symlink(root.join("plugins.d"), folder.join("plugins.d")).unwrap();
    folder
}

#[cfg(unix)]
#[test]
fn blocks_without_needs_run_in_the_order_of_their_page() {
    use crate::support::watchdog::Watchdog;
    use std::process::{Command, Stdio};
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for (page, text) in pages() {
        let place = workplace(root);
        let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
        for block in blocks(&text) {
            if let Some(name) = block.saved_as {
                place.write(&name, &block.text);
                continue;
            }
            if block.language != "sh" || block.needs().is_some() {
                continue;
            }
            let uses =
                |program: &&&str| block.text.split([' ', '\n', '|', '(']).any(|word| word == **program);
            if PROGRAMS.iter().filter(uses).any(|program| crate::support::program(program).is_none()) {
                continue;
            }
            let mut command = Command::new("sh");
            command
                .args(["-e", "-c", &block.text])
                .current_dir(place.path())
                .env("PATH", &path)
                .env("HOME", place.path());
            let child =
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let watchdog = Watchdog::over(&child);
            let output = child.wait_with_output().unwrap();
            let [stdout, stderr] =
                [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
            let story =
                format!("{}:\n{}--- stdout\n{stdout}--- stderr\n{stderr}---", page.display(), block.text);
            assert!(!watchdog.bit(), "still running: {story}");
            assert!(
                output.status.success() && !stderr.contains("this is a bug"),
                "{}: {story}",
                output.status
            );
            seen += 1;
        }
    }
    assert!(seen > 15, "only {seen} blocks found");
}

/// The calls of the program in shell blocks, without comments, pipes and redirections.
fn calls(page: &str) -> Vec<String> {
    let mut calls = Vec::new();
    for block in blocks(page).iter().filter(|block| block.language == "sh") {
        assert!(block.needs().is_none_or(|what| NEEDS.contains(&what)), "{}", block.text);
        for line in block.text.replace("\\\n", " ").lines() {
            let line = line.trim_start();
            let call = line.strip_prefix("sonobuoy ").or_else(|| line.strip_prefix("cargo run -- "));
            if let Some(call) = call {
                let end = [" #", " |", " >", " &&", ";"].iter().filter_map(|end| call.find(end)).min();
                calls.push(call[..end.unwrap_or(call.len())].trim().to_owned());
            }
        }
    }
    calls
}

/// Splits at blanks outside quotes; what a shell would put in for `$(…)` is one word.
fn words(call: &str) -> Vec<String> {
    let mut call = call.to_owned();
    while let Some(start) = call.find("$(") {
        let end = call[start..].find(')').map_or(call.len(), |length| start + length + 1);
        call.replace_range(start..end, "inserted");
    }
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in call.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_call_in_the_documentation_is_one_that_the_program_takes() {
    let mut seen = 0;
    for (path, page) in pages() {
        for call in calls(&page) {
            let done = Sonobuoy::with(words(&call)).arg("--help").run_any();
            assert!(done.stdout.contains("Usage:"), "{}: `sonobuoy {call}`", path.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} calls found");
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    for (path, page) in pages() {
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: no `{file}`", path.display());
            if !section.is_empty() {
                let page = std::fs::read_to_string(&target).unwrap();
                let known =
                    page.lines().filter(|line| line.starts_with('#')).any(|title| anchor(title) == section)
                        || page.contains(&format!("<a id=\"{section}\">"));
                assert!(known, "{}: no section `{section}` in `{}`", path.display(), target.display());
            }
        }
    }
}

/// As GitHub makes it of a title.
fn anchor(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    title
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn every_flag_in_the_documentation_exists() {
    let done = Sonobuoy::new("gen cli flags").run_any();
    let mut known = String::new();
    for page in std::fs::read_dir(done.folder.join("flags")).unwrap() {
        known += &std::fs::read_to_string(page.unwrap().path()).unwrap();
    }
    // Hidden, or flags of `load`, docker, Ginkgo and the e2e tests.
    let others = [
        "--debug",
        "--logtostderr",
        "--kind",
        "--push",
        "--build-arg",
        "--list-tests",
        "--poll-progress-after",
        "--poll-progress-interval",
        "--progress-report-url",
    ];
    let is_flag = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    for (path, page) in pages()
        .into_iter()
        .filter(|(path, _)| path.starts_with(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")))
    {
        let prose: String = page.split("```").step_by(2).collect();
        for flag in prose.split(|c| !is_flag(c)).filter(|flag| flag.starts_with("--") && flag.len() > 3) {
            let flag = flag.trim_end_matches('-');
            assert!(known.contains(flag) || others.contains(&flag), "{}: {flag}", path.display());
        }
    }
}

/// What the page that people search for a message begins its rows with.
#[test]
fn the_messages_of_the_troubleshooting_page_are_ours() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("src")];
    let mut sources = String::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            // A literal goes on in the next line.
            let text = std::fs::read_to_string(path).unwrap();
            sources.extend(text.split("\\\n").map(str::trim_start));
        }
    }
    let page = std::fs::read_to_string(root.join("docs/troubleshooting.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let mut seen = 0;
    for row in rows.filter(|row| *row != "message" && !row.starts_with("---")) {
        for words in row.split(['…', ',', ':', '`']).map(str::trim).filter(|words| words.len() > 9) {
            assert!(sources.contains(words), "no message of ours says {words:?}");
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} found");
}

#[test]
fn the_calls_of_the_man_pages_are_some_that_the_program_takes() {
    let done = Sonobuoy::new("man pages").run_any();
    let mut seen = 0;
    for page in std::fs::read_dir(done.folder.join("pages")).unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&page).unwrap().replace("\\-", "-");
        for title in [".SH EXIT STATUS", ".SH ENVIRONMENT", ".SH FILES"] {
            assert!(text.contains(title), "{}: no {title}", page.display());
        }
        let shown = text.split(".nf\n").skip(1).filter_map(|rest| rest.split(".fi").next());
        for call in shown.flat_map(str::lines).filter_map(|line| line.strip_prefix("sonobuoy ")) {
            let done = Sonobuoy::with(words(call)).arg("--help").run_any();
            assert!(done.stdout.contains("Usage:"), "{}: `sonobuoy {call}`", page.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} calls found");
}
