//! Writes one man page per command into a folder, and docs/commands.md: `cargo run --example man --
//! FOLDER [PAGE]`.
//!
//! The commands, their flags and examples are those of the help. Owns the sections that help lacks.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, SystemTime};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Exit codes, by command; the first entry is for all others.
const EXIT_STATUS: &[(&str, &[(&str, &str)])] = &[
    (
        "",
        &[
            ("0", "It succeeded."),
            ("1", "It failed; the last line on standard error says why."),
        ],
    ),
    (
        "sonobuoy run",
        &[
            (
                "0",
                "The run was started; with --wait, it is complete, regardless of test results.",
            ),
            (
                "1",
                "It could not be started, failed, did not finish in time, or delivered only \
                 errors.",
            ),
            ("2", "Its archive could not be fetched or uploaded."),
            (
                "3",
                "--fail-on found failed or missing results (with flaky, flaky ones, too), or \
                 --certify a run that is not ready.",
            ),
            ("4", "--fail-on found unknown results, but no failed ones."),
            ("130", "Ctrl-C ended the wait, or a run on this machine."),
        ],
    ),
    (
        "sonobuoy wait",
        &[
            ("0", "The run is complete, regardless of test results."),
            (
                "1",
                "The run does not exist, failed, did not finish in time, or delivered only errors.",
            ),
            ("2", "Its archive could not be fetched or uploaded."),
            (
                "3",
                "--fail-on found failed or missing results, or --certify a run that is not ready.",
            ),
            ("4", "--fail-on found unknown results, but no failed ones."),
            ("130", "Ctrl-C ended the wait."),
        ],
    ),
    (
        "sonobuoy status",
        &[
            (
                "0",
                "The run is in progress or complete, regardless of test results.",
            ),
            (
                "1",
                "There is no run, it has failed, its aggregator cannot continue, or it delivered \
                 only errors.",
            ),
            ("130", "Ctrl-C ended the watch."),
        ],
    ),
    (
        "sonobuoy retrieve",
        &[
            ("0", "The archive was fetched."),
            (
                "1",
                "The command line is wrong, or the cluster could not be queried.",
            ),
            (
                "2",
                "There is no run or no archive yet, or the transfer failed; a later attempt may \
                 succeed.",
            ),
        ],
    ),
    (
        "sonobuoy results",
        &[
            ("0", "The report was written."),
            ("1", "The archive could not be read."),
            (
                "3",
                "--fail-on found failed or missing results; with flaky, flaky ones, too.",
            ),
            ("4", "--fail-on found unknown results, but no failed ones."),
        ],
    ),
    (
        "sonobuoy results diff",
        &[
            ("0", "The difference was written."),
            ("1", "An archive could not be read."),
            ("3", "--fail-on found new failures."),
            (
                "4",
                "--fail-on found tests that are newly unknown or missing, but no new failures.",
            ),
        ],
    ),
    (
        "sonobuoy doctor",
        &[
            (
                "0",
                "Nothing was found that would make the run fail; there may be warnings.",
            ),
            (
                "1",
                "The command line, a plugin or the kubeconfig is wrong.",
            ),
            ("3", "Something would fail."),
            ("130", "Ctrl-C ended the checks."),
        ],
    ),
    (
        "sonobuoy certify",
        &[
            ("0", "The run is ready for certification."),
            (
                "1",
                "The archive or the product could not be read, or the submission could not be \
                 written.",
            ),
            ("3", "The run is not ready."),
        ],
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("KUBECONFIG", "Kubeconfig files, as for kubectl."),
    (
        "SONOBUOY_NAMESPACE",
        "Namespace of runs, unless a flag names one.",
    ),
    (
        "SONOBUOY_DIR",
        "Folder of installed plugins and of kept authorities, instead of ~/.sonobuoy.",
    ),
    ("HTTPS_PROXY, NO_PROXY", "Proxies, as for other programs."),
    (
        "NO_COLOR, FORCE_COLOR",
        "No colours, or colours also without a terminal, if not empty.",
    ),
    ("TERM", "With \"dumb\", nothing is drawn in place."),
];

const FILES: &[(&str, &str)] = &[
    ("~/.kube/config", "The kubeconfig, unless another is named."),
    (
        "~/.sonobuoy",
        "Installed plugins; authorities of runs, which the seals of archives are checked with.",
    ),
];

/// The file names and contents of all pages.
pub fn pages() -> io::Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    let mut commands = vec![sonobuoy::commands()];
    while let Some(command) = commands.pop() {
        commands.extend(
            command
                .get_subcommands()
                .filter(|inner| !inner.is_hide_set())
                .cloned(),
        );
        pages.push(page(command)?);
    }
    Ok(pages)
}

fn page(mut command: Command) -> io::Result<(String, String)> {
    let name = command.get_bin_name().unwrap_or("sonobuoy").to_owned();
    let usage = command.render_usage().to_string();
    let man = Man::new(
        command
            .clone()
            .override_usage(usage.trim_start_matches("Usage:").to_owned()),
    )
    .date(today())
    .source(concat!("sonobuoy v", env!("CARGO_PKG_VERSION")))
    .manual("Sonobuoy");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    let notes = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    for note in notes.split("\n\n").filter(|note| !note.is_empty()) {
        match note.split_once(":\n").filter(|(title, _)| title.len() < 20) {
            Some((title, lines)) => section(&mut roff, &title.to_uppercase(), lines),
            None => section(&mut roff, "NOTES", note),
        }
    }
    let status = EXIT_STATUS
        .iter()
        .find(|(command, _)| *command == name)
        .unwrap_or(&EXIT_STATUS[0])
        .1;
    for (title, rows) in [
        ("EXIT STATUS", status),
        ("ENVIRONMENT", ENVIRONMENT),
        ("FILES", FILES),
    ] {
        roff.control("SH", [title]);
        for (word, meaning) in rows {
            roff.control("TP", [])
                .text([bold(*word)])
                .text([roman(*meaning)]);
        }
    }
    if let Some((parent, _)) = name.rsplit_once(' ') {
        roff.control("SH", ["SEE ALSO"])
            .text([bold(parent.replace(' ', "-")), roman("(1)")]);
    }
    roff.to_writer(&mut page)?;
    Ok((
        man.get_filename(),
        String::from_utf8_lossy(&page).into_owned(),
    ))
}

/// The reference of all commands, in Markdown.
pub fn reference() -> String {
    let (mut contents, mut text) = (String::new(), String::new());
    let mut printed = HashMap::new();
    let mut commands = vec![sonobuoy::commands()];
    while let Some(mut command) = commands.pop() {
        let inner: Vec<_> = command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set())
            .cloned()
            .collect();
        commands.extend(inner.into_iter().rev());
        let name = command.get_bin_name().unwrap_or("sonobuoy").to_owned();
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        if name != "sonobuoy" {
            contents.push_str(&format!(
                "| [{name}](#{}) | {about} |\n",
                name.replace(' ', "-")
            ));
        }
        let help = command.render_help().to_string();
        let parts = help
            .split("\n\n")
            .filter(|part| name == "sonobuoy" || !part.starts_with("Global options:"))
            .map(|part| without_printed(part, &name, &mut printed));
        let help = parts.collect::<Vec<_>>().join("\n\n");
        text.push_str(&format!(
            "\n## {name}\n\n```text\n{}\n```\n",
            help.trim_end()
        ));
    }
    format!(
        "# Commands\n\nAll commands and flags, as `sonobuoy help COMMAND` prints them; `make \
         docs` writes this page. A flag that means\nthe same in several commands is explained \
         at the first; the others list its name. `--level` is accepted everywhere.\n\
         [configuration.md](configuration.md) lists settings, \
         [variables](configuration.md#environment-variables) and \
         [exit codes](configuration.md#exit-codes).\n\n| command | does |\n| --- | --- |\n{contents}{text}"
    )
}

/// Columns of a help text.
const HELP_COLUMNS: usize = 100;

/// A group of flags in which each that an earlier command has explained in the same words is only
/// named, below that command. Other parts of a help text, and its `Options:`, remain as they are.
fn without_printed(part: &str, command: &str, printed: &mut HashMap<String, String>) -> String {
    let Some((title, body)) = part.split_once(":\n") else {
        return part.to_owned();
    };
    if title == "Options" || !body.trim_start().starts_with('-') {
        return part.to_owned();
    }
    let mut text = format!("{title}:\n");
    let mut known: Vec<(String, Vec<String>)> = Vec::new();
    for flag in flags(body) {
        let words: Vec<&str> = flag.split_whitespace().collect();
        let first = printed
            .entry(format!("{title}: {}", words.join(" ")))
            .or_insert_with(|| command.to_owned());
        if first == command {
            text.push_str(&flag);
            continue;
        }
        let name = words.iter().find(|word| word.starts_with("--"));
        let name = name.unwrap_or(&words[0]);
        let name = name.split('[').next().unwrap_or(name).to_owned();
        match known.iter_mut().find(|(command, _)| command == first) {
            Some((_, names)) => names.push(name),
            None => known.push((first.clone(), vec![name])),
        }
    }
    for (command, names) in known {
        let mut line = format!("  as in `{command}`:");
        for name in names {
            if line.len() + name.len() >= HELP_COLUMNS {
                text.push_str(&format!("{line}\n"));
                line = "   ".to_owned();
            }
            line.push_str(&format!(" {name}"));
        }
        text.push_str(&format!("{line}\n"));
    }
    text.trim_end().to_owned()
}

/// The flags of a group, each with its explanation.
fn flags(body: &str) -> Vec<String> {
    let mut flags: Vec<String> = Vec::new();
    for line in body.lines() {
        let indent = line.len() - line.trim_start().len();
        if indent <= 6 && line.trim_start().starts_with('-') {
            flags.push(String::new());
        }
        if let Some(flag) = flags.last_mut() {
            flag.push_str(&format!("{line}\n"));
        }
    }
    flags
}

/// A section that keeps its lines.
fn section(roff: &mut Roff, title: &str, lines: &str) {
    roff.control("SH", [title]);
    if lines.contains('\n') {
        roff.control("nf", []);
    }
    for line in lines.lines() {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    if lines.contains('\n') {
        roff.control("fi", []);
    }
}

/// The date of a page; `SOURCE_DATE_EPOCH` overrides it for reproducible pages.
fn today() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let time = given.map_or_else(SystemTime::now, |seconds| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    });
    base::clock::rfc3339(time).chars().take(10).collect()
}

#[allow(dead_code, reason = "the tests need the pages alone")]
fn main() -> io::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let folder = std::path::PathBuf::from(args.next().unwrap_or_else(|| "target/man".into()));
    std::fs::create_dir_all(&folder)?;
    pages()?
        .into_iter()
        .try_for_each(|(name, page)| std::fs::write(folder.join(name), page))?;
    args.next()
        .map_or(Ok(()), |page| std::fs::write(page, reference()))
}
