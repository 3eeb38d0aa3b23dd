//! The documentation is correct: its commands run, links have targets, flags and messages exist.

use std::path::{Path, PathBuf};

use crate::support::{Folder, Sonobuoy};

fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ]
    .map(|name| root.join(name))
    .to_vec();
    let docs = std::fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// Requirements of a command block: its first line is `# needs: WHAT`; the block is then parsed
/// instead of run.
const NEEDS: &[&str] = &[
    "a checkout",
    "a cluster",
    "a cluster and a bastion",
    "a cluster and a dead node",
    "a cluster and a registry",
    "a cluster and a release",
    "a cluster and a run",
    "a cluster and helm",
    "a cluster and the AI conformance image",
    "a cluster and the conformance image",
    "a container runtime",
    "a kit",
    "a release",
    "the internet",
    "the variables of a worker",
];
/// Programs in blocks that a machine may lack.
const PROGRAMS: &[&str] = &["jq", "make", "openssl", "python3", "sha256sum"];

/// A fenced block of a page.
struct Block {
    language: String,
    text: String,
    /// The name in "Save this as `NAME`" above the block.
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
                let saved_as = above
                    .split("Save this as `")
                    .nth(1)
                    .and_then(|rest| rest.split('`').next());
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
fn code_blocks_have_a_known_language_and_are_valid() {
    for (path, page) in pages() {
        for Block { language, text, .. } in blocks(&page) {
            let story = || format!("{}: ```{language}\n{text}```", path.display());
            match &*language {
                // Other tests run these programs.
                "sh" | "powershell" | "text" | "toml" | "rust" | "go" | "python" => {}
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

/// The folder that the documentation assumes: an empty one, with the program in PATH.
#[cfg(unix)]
fn workplace() -> Folder {
    let folder = Folder::new();
    folder.write("bin/none", "");
    let program = folder.join("bin/sonobuoy");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sonobuoy"), program).unwrap();
    folder
}

#[cfg(unix)]
#[test]
fn code_blocks_run_in_page_order() {
    use crate::support::watchdog::Watchdog;
    use std::process::{Command, Stdio};
    let mut seen = 0;
    for (page, text) in pages() {
        let place = workplace();
        let path = format!(
            "{}:{}",
            place.join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        for block in blocks(&text) {
            if let Some(name) = block.saved_as {
                place.write(&name, &block.text);
                continue;
            }
            if block.language != "sh" || block.needs().is_some() {
                continue;
            }
            let uses = |program: &&&str| {
                block
                    .text
                    .split([' ', '\n', '|', '('])
                    .any(|word| word == **program)
            };
            if PROGRAMS
                .iter()
                .filter(uses)
                .any(|program| crate::support::program(program).is_none())
            {
                continue;
            }
            let mut command = Command::new("sh");
            command
                .args(["-e", "-c", &block.text])
                .current_dir(place.path())
                .env("PATH", &path)
                .env("HOME", place.path());
            let child = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let watchdog = Watchdog::over(&child);
            let output = child.wait_with_output().unwrap();
            let [stdout, stderr] =
                [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
            let story = format!(
                "{}:\n{}--- stdout\n{stdout}--- stderr\n{stderr}---",
                page.display(),
                block.text
            );
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

/// Maximum words in a cell of a table: a reader of a narrow window scrolls sideways for more.
const MAX_CELL_WORDS: usize = 25;

/// Cells of the tables of a page, outside of code.
fn cells(page: &str) -> Vec<String> {
    let prose = page.split("\n```").step_by(2);
    let rows = prose
        .flat_map(str::lines)
        .filter(|line| line.starts_with('|'));
    // A bar after a backslash is a character of the cell.
    rows.flat_map(|row| {
        let row = row.replace("\\|", "\0");
        row.split('|').map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn cells_of_tables_are_short() {
    for (path, page) in pages() {
        for cell in cells(&page) {
            let words = cell.split_whitespace().count();
            assert!(
                words <= MAX_CELL_WORDS,
                "{}: write a paragraph instead of a cell of {words} words:\n{cell}",
                path.display()
            );
        }
    }
}

#[test]
fn first_command_leaves_nothing_that_git_calls_untracked() {
    let Some(git) = crate::support::program("git") else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let first = calls(&readme).swap_remove(0);
    let ignored = std::fs::read(root.join(".gitignore")).unwrap();
    let home = Folder::new();
    let done = Sonobuoy::with(words(&first))
        .env("HOME", home.path())
        .file(".gitignore", ignored)
        .run_any();
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new(&git);
        let output = command.args(words).current_dir(done.folder.path()).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert!(done.stdout.contains("Archive: "), "{}", done.stdout);
    git(&["init", "--quiet"]);
    git(&["add", ".gitignore"]);
    let changes = git(&["status", "--porcelain"]);
    assert_eq!(changes, "A  .gitignore\n");
}

/// Invocations of the program in shell blocks, without comments, pipes and redirections.
fn calls(page: &str) -> Vec<String> {
    let mut calls = Vec::new();
    for block in blocks(page).iter().filter(|block| block.language == "sh") {
        assert!(
            block.needs().is_none_or(|what| NEEDS.contains(&what)),
            "{}",
            block.text
        );
        for line in block.text.replace("\\\n", " ").lines() {
            let line = line.trim_start();
            let call = line.strip_prefix("sonobuoy ");
            if let Some(call) = call {
                let end = [" #", " |", " >", " &&", ";"]
                    .iter()
                    .filter_map(|end| call.find(end))
                    .min();
                calls.push(call[..end.unwrap_or(call.len())].trim().to_owned());
            }
        }
    }
    calls
}

/// Splits at blanks outside quotes; a `$(…)` substitution is one word.
fn words(call: &str) -> Vec<String> {
    let mut call = call.to_owned();
    while let Some(start) = call.find("$(") {
        let end = call[start..]
            .find(')')
            .map_or(call.len(), |length| start + length + 1);
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

/// The call with `--help`, before the words of another program.
fn asking_for_help(call: &str) -> Sonobuoy {
    let mut words = words(call);
    let end = words.iter().position(|word| word == "--");
    words.insert(end.unwrap_or(words.len()), "--help".to_owned());
    Sonobuoy::with(words)
}

#[test]
fn documented_command_lines_parse() {
    let mut seen = 0;
    for (path, page) in pages() {
        for call in calls(&page) {
            let done = asking_for_help(&call).run_any();
            assert!(
                done.stdout.contains("Usage:"),
                "{}: `sonobuoy {call}`",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} calls found");
}

#[test]
fn documentation_links_resolve() {
    for (path, page) in pages() {
        let links = page
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let pictures = ["src=\"", "srcset=\""]
            .into_iter()
            .flat_map(|key| page.split(key).skip(1));
        for link in links.chain(pictures.filter_map(|rest| rest.split('"').next())) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                continue;
            }
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.parent().unwrap().join(file)
            };
            assert!(target.exists(), "{}: no `{file}`", path.display());
            if !section.is_empty() {
                let page = std::fs::read_to_string(&target).unwrap();
                let known = page
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|title| anchor(title) == section)
                    || page.contains(&format!("<a id=\"{section}\">"));
                assert!(
                    known,
                    "{}: no section `{section}` in `{}`",
                    path.display(),
                    target.display()
                );
            }
        }
    }
}

/// GitHub's anchor for a title.
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
fn documented_flags_exist() {
    let done = Sonobuoy::new("gen cli flags").run_any();
    let mut known = String::new();
    for page in std::fs::read_dir(done.folder.join("flags")).unwrap() {
        known += &std::fs::read_to_string(page.unwrap().path()).unwrap();
    }
    // Hidden, or flags of `load`, docker, Ginkgo and the e2e tests.
    let others = [
        "--ignore-missing",
        "--raw",
        "--set",
        "--debug",
        "--logtostderr",
        "--kind",
        "--list",
        "--manifest",
        "--repo",
        "--push",
        "--build-arg",
        "--list-tests",
        "--poll-progress-after",
        "--poll-progress-interval",
        "--progress-report-url",
        "--allowed-not-ready-nodes",
    ];
    let is_flag = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    for (path, page) in pages()
        .into_iter()
        .filter(|(path, _)| path.starts_with(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")))
    {
        let prose: String = page.split("```").step_by(2).collect();
        for flag in prose
            .split(|c| !is_flag(c))
            .filter(|flag| flag.starts_with("--") && flag.len() > 3)
        {
            let flag = flag.trim_end_matches('-');
            assert!(
                known.contains(flag) || others.contains(&flag),
                "{}: {flag}",
                path.display()
            );
        }
    }
}

#[test]
fn reference_of_commands_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    assert!(
        std::fs::read_to_string(path).unwrap() == crate::man::reference(),
        "run `make docs`: the table of commands has changed"
    );
}

/// Titles of level two, outside of code.
fn titles(page: &str) -> Vec<&str> {
    let prose = page.split("\n```").step_by(2);
    prose
        .flat_map(str::lines)
        .filter(|line| line.starts_with("## "))
        .collect()
}

#[test]
fn long_pages_begin_with_their_contents() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut seen = 0;
    for (path, page) in pages()
        .into_iter()
        .filter(|(path, _)| path.starts_with(&docs))
    {
        let titles = titles(&page);
        if titles.len() < 4 {
            continue;
        }
        let contents = page.split("\n## ").next().unwrap();
        for title in titles
            .iter()
            .filter(|title| !title.starts_with("## sonobuoy"))
        {
            let link = format!("](#{})", anchor(title));
            assert!(
                contents.contains(&link),
                "{}: the contents lack {title}",
                path.display()
            );
        }
        seen += 1;
    }
    assert!(seen > 10, "only {seen} pages");
}

/// Addresses in attributes of a page.
fn addresses(page: &str) -> impl Iterator<Item = &str> {
    let parts = ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|key| page.split(key).skip(1));
    parts.filter_map(|rest| rest.split('"').next())
}

#[cfg(unix)]
#[test]
fn site_has_every_page_and_its_links_resolve() {
    if crate::support::program("python3").is_none() {
        return;
    }
    let folder = Folder::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/release/site");
    let output = std::process::Command::new(script)
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let site = folder.join(concat!("v", env!("CARGO_PKG_VERSION")));
    let files = Folder::names_of(&site);
    assert_eq!(
        files.iter().filter(|name| name.ends_with(".html")).count(),
        pages().len()
    );
    for file in files.iter().filter(|name| name.ends_with(".html")) {
        let page = std::fs::read_to_string(site.join(file)).unwrap();
        assert!(!page.contains("```") && page.contains("<h1"), "{file}");
        for link in
            addresses(&page).filter(|link| !link.contains("://") && !link.starts_with("data:"))
        {
            let (name, section) = link.split_once('#').unwrap_or((link, ""));
            let target = if name.is_empty() {
                site.join(file)
            } else {
                site.join(name)
            };
            assert!(target.exists(), "{file}: {link}");
            let target = std::fs::read(target).unwrap();
            let has = || String::from_utf8_lossy(&target).contains(&format!("id=\"{section}\""));
            assert!(section.is_empty() || has(), "{file}: {link}");
        }
    }
    assert!(
        std::fs::read_to_string(folder.join("index.html"))
            .unwrap()
            .contains("/index.html")
    );
}

/// The first cells of the rows of the troubleshooting page.
#[test]
fn troubleshooting_page_quotes_real_messages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("src")];
    let mut sources = String::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            // A literal may continue on the next line.
            let text = std::fs::read_to_string(path).unwrap();
            sources.extend(text.split("\\\n").map(str::trim_start));
        }
    }
    let page = std::fs::read_to_string(root.join("docs/troubleshooting.md")).unwrap();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let mut seen = 0;
    for row in rows.filter(|row| *row != "message" && !row.starts_with("---")) {
        for words in row
            .split(['…', ',', ':', '`'])
            .map(str::trim)
            .filter(|words| words.len() > 9)
        {
            assert!(sources.contains(words), "no message of ours says {words:?}");
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} found");
}

#[test]
fn man_page_command_lines_parse() {
    let mut seen = 0;
    for (name, page) in crate::man::pages().unwrap() {
        let text = page.replace("\\-", "-");
        for title in [".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", ".SH FILES"] {
            assert!(text.contains(title), "{name}: no {title}");
        }
        let shown = text
            .split(".nf\n")
            .skip(1)
            .filter_map(|rest| rest.split(".fi").next());
        let calls = shown
            .flat_map(str::lines)
            .filter_map(|line| line.strip_prefix("  sonobuoy "));
        for call in calls {
            let done = asking_for_help(call).run_any();
            assert!(done.stdout.contains("Usage:"), "{name}: `sonobuoy {call}`");
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} calls found");
}
