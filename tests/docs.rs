//! What is written for people holds: commands exist, links lead somewhere, flags are known.

use std::path::{Path, PathBuf};

use crate::support::Sonobuoy;

fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name)).to_vec();
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The lines of shell blocks that call the program, without comments, pipes and redirections.
fn calls(page: &str) -> Vec<String> {
    let mut calls = Vec::new();
    let mut inside = false;
    let page = page.replace("\\\n", " ");
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            inside = ["sh", "shell", "bash", "console"].contains(&language);
            continue;
        }
        let line = line.trim_start().trim_start_matches("$ ");
        let call = line.strip_prefix("sonobuoy ").or_else(|| line.strip_prefix("cargo run -- "));
        if let (true, Some(call)) = (inside, call) {
            let end = [" #", " |", " >", " &&", ";"].iter().filter_map(|end| call.find(end)).min();
            calls.push(call[..end.unwrap_or(call.len())].trim().to_owned());
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
    assert!(seen > 4, "only {seen} calls found");
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
fn the_compatibility_page_names_no_flag_that_is_not_there() {
    let page = pages().into_iter().find(|(path, _)| path.ends_with("docs/compatibility.md")).unwrap().1;
    let mut known = String::new();
    for command in [
        "run",
        "delete",
        "gather systemd-logs",
        "results",
        "certify",
        "images push",
        "gen plugin",
        "e2e",
        "get pod",
        "query",
        "logs",
        "retrieve",
        "status",
        "certify",
    ] {
        known += &Sonobuoy::new(&format!("{command} --help")).stdout_has("Usage").run().stdout;
    }
    // Hidden or of the original alone.
    let others = ["--debug", "--logtostderr"];
    for flag in page.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')) {
        if flag.starts_with("--") && flag.len() > 3 && !others.contains(&flag) {
            assert!(known.contains(flag), "{flag}");
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
