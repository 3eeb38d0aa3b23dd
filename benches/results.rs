//! Cost of showing archives and building result trees: time as ratios to other tools within the
//! same run, and peak memory.
//!
//! Measures the program as built for this benchmark. All files are written below `BENCH_DIR`, by
//! default `/dev/shm`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for developers"
)]

mod place;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const ROUNDS: usize = 5;

fn main() {
    let base = place::base();
    let dir = base.join(format!("sonobuoy-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
    if wanted("tests") {
        many_tests();
    }
    if wanted("original") {
        beside_the_original();
    }
    if wanted("million") {
        million(&dir);
    }
    if wanted("logs") {
        many_logs(&dir);
    }
    if wanted("junit") {
        large_junit(&dir);
    }
    if wanted("pack") {
        pack(&dir);
    }
    fs::remove_dir_all(&dir).unwrap();
}

/// Time and peak memory of a command, output discarded.
struct Cost {
    time: Duration,
    kib: u64,
}

fn cost(command: &mut Command) -> Cost {
    let before = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut kib = 0;
    loop {
        // Peak memory so far, polled, since it disappears with the process.
        let peak = fs::read_to_string(&status).unwrap_or_default();
        let peak = peak
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap_or_default();
        kib = kib.max(peak.trim().trim_end_matches(" kB").parse().unwrap_or(0));
        if let Some(done) = child.try_wait().unwrap() {
            assert!(done.success(), "{command:?}");
            return Cost {
                time: before.elapsed(),
                kib,
            };
        }
        std::thread::yield_now();
    }
}

/// The fastest of several rounds.
fn best(mut command: impl FnMut() -> Command) -> Cost {
    (0..ROUNDS)
        .map(|_| cost(&mut command()))
        .min_by_key(|cost| cost.time)
        .unwrap()
}

fn sonobuoy(words: &[&str], path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sonobuoy"));
    command.arg(words[0]).arg(path).args(&words[1..]);
    command
}

fn say(what: &str, cost: &Cost) {
    println!(
        "{what:42} {:8.1} ms {:7.1} MiB",
        cost.time.as_secs_f64() * 1e3,
        cost.kib as f64 / 1024.0
    );
}

/// A real archive of 5,771 tests.
fn many_tests() {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/archives/results-quick-no-failures.tar.gz");
    println!("5,771 tests (goal: results under 60 ms)");
    for words in [
        &["results"] as &[&str],
        &["results", "-p", "e2e", "-m", "detailed"],
        &["results", "--format", "json"],
        &["results", "--format", "junit"],
        &["results", "--format", "html"],
    ] {
        say(&words.join(" "), &best(|| sonobuoy(words, &archive)));
    }
}

/// Features of the original, measured for both; `SONOBUOY_ORIGINAL` names its binary. The second
/// archive lists no plugins, so one is named.
fn beside_the_original() {
    let Some(original) = std::env::var_os("SONOBUOY_ORIGINAL") else {
        return println!("beside the original: skipped, since SONOBUOY_ORIGINAL names no program");
    };
    println!("beside the original (goal: a third of its time and memory)");
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/archives");
    for archive in [
        "results-quick-no-failures.tar.gz",
        "testResultsOutput.tar.gz",
    ] {
        let path = archives.join(archive);
        for mode in ["report", "detailed", "dump"] {
            let words = ["results", "-p", "e2e", "-m", mode];
            let ours = best(|| sonobuoy(&words, &path));
            let theirs = best(|| {
                let mut command = Command::new(&original);
                command
                    .arg(words[0])
                    .arg(&path)
                    .args(&words[1..])
                    .stderr(Stdio::null());
                command
            });
            say(&format!("{archive} {mode}"), &ours);
            println!(
                "{:42} {:8.2} of its time, {:.2} of its memory",
                "",
                ours.time.as_secs_f64() / theirs.time.as_secs_f64(),
                ours.kib as f64 / theirs.kib as f64
            );
        }
    }
}

/// A tree of a million tests, some of which fail.
fn million(dir: &Path) {
    println!("1,000,000 tests (goal: under 10 s and 64 MiB)");
    let folder = dir.join("million");
    fs::create_dir_all(folder.join("meta")).unwrap();
    fs::create_dir_all(folder.join("plugins/p")).unwrap();
    fs::write(folder.join("meta/info.json"), r#"{"plugins":["p"]}"#).unwrap();
    let mut tree =
        BufWriter::new(File::create(folder.join("plugins/p/sonobuoy_results.yaml")).unwrap());
    writeln!(tree, "name: p\nstatus: failed\nitems:").unwrap();
    for n in 0..1_000_000 {
        let (status, details) = match n {
            _ if n % 50_000 == 7 => (
                "failed",
                "\n  details:\n    failure: 'dial tcp 10.0.0.1:443: i/o timeout'",
            ),
            _ if n % 3 == 0 => ("passed", ""),
            _ => ("skipped", ""),
        };
        writeln!(
            tree,
            "- name: '[sig-node] test number {n:07} should pass'\n  status: {status}{details}"
        )
        .unwrap();
    }
    tree.flush().unwrap();
    for words in [
        &["results"] as &[&str],
        &["results", "-m", "detailed"],
        &["results", "-m", "summary"],
        &["results", "--format", "json"],
        &["results", "--format", "junit"],
        &["results", "--format", "html"],
    ] {
        say(&words.join(" "), &cost(&mut sonobuoy(words, &folder)));
    }
}

/// An archive of 1 GiB, most of it pod logs, compared with the time of its decompression.
fn many_logs(dir: &Path) {
    let path = dir.join("logs.tar.gz");
    let file = BufWriter::new(File::create(&path).unwrap());
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        file,
        flate2::Compression::fast(),
    ));
    let mut add = |name: &str, data: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, data).unwrap();
    };
    add("meta/info.json", br#"{"plugins":["p"]}"#);
    let log = text(4 * MIB);
    for pod in 0..256 {
        add(&format!("podlogs/ns{}/pod-{pod}/logs/c.txt", pod % 7), &log);
    }
    let leaves: String = (0..5771)
        .map(|n| format!("- name: test {n}\n  status: passed\n"))
        .collect();
    add(
        "plugins/p/sonobuoy_results.yaml",
        format!("name: p\nstatus: passed\nitems:\n{leaves}").as_bytes(),
    );
    tar.into_inner().unwrap().finish().unwrap().flush().unwrap();

    println!("1 GiB of pod logs (goal: under 48 MiB, at most 1.5 of `gzip -dc | wc -c`)");
    let gzip = best(|| {
        let mut command = Command::new("sh");
        command.arg("-c").arg("gzip -dc \"$0\" | wc -c").arg(&path);
        command
    });
    say("gzip -dc | wc -c", &gzip);
    for words in [
        &["results"] as &[&str],
        &["results", "--format", "json"],
        &["results", "--format", "html"],
    ] {
        let cost = best(|| sonobuoy(words, &path));
        say(&words.join(" "), &cost);
        println!(
            "{:42} {:8.2} of gzip",
            "",
            cost.time.as_secs_f64() / gzip.time.as_secs_f64()
        );
    }
    fs::remove_file(path).unwrap();
}

/// JUnit files of 200 MiB in three shapes.
fn large_junit(dir: &Path) {
    println!("200 MiB of JUnit (goal: under 64 MiB)");
    let output = String::from_utf8(text(4096)).unwrap();
    let failing = format!("<failure message=\"m\">f</failure><system-out>{output}</system-out>");
    let endless = String::from_utf8(text(200 * MIB)).unwrap();
    for (shape, test, count) in [
        (
            "failing tests with output",
            failing.as_str(),
            200 * MIB / (failing.len() + 60),
        ),
        ("tests without a word", "<skipped/>", 200 * MIB / 70),
        (
            "one test that prints it all",
            &format!("<system-out>{endless}</system-out>"),
            1,
        ),
    ] {
        let results = dir.join("plugins/p/results/global");
        fs::create_dir_all(&results).unwrap();
        let definition =
            r#"{"Definition":{"sonobuoy-config":{"driver":"Job","result-format":"junit"}}}"#;
        fs::write(dir.join("plugins/p/definition.json"), definition).unwrap();
        let mut xml = BufWriter::new(File::create(results.join("junit.xml")).unwrap());
        write!(xml, "<testsuites><testsuite name=\"s\">").unwrap();
        for n in 0..count {
            writeln!(
                xml,
                "<testcase name=\"[sig-node] test number {n:08}\">{test}</testcase>"
            )
            .unwrap();
        }
        write!(xml, "</testsuite></testsuites>").unwrap();
        xml.flush().unwrap();
        say(shape, &cost(&mut sonobuoy(&["post-process"], dir)));
        fs::remove_dir_all(dir.join("plugins")).unwrap();
    }
}

/// Packing, compared with the system's gzip tar.
fn pack(dir: &Path) {
    println!("packing 256 MiB of logs");
    let from = dir.join("from");
    fs::create_dir_all(&from).unwrap();
    let log = text(16 * MIB);
    for n in 0..16 {
        fs::write(from.join(format!("{n}.txt")), &log).unwrap();
    }
    let tar = cost(
        Command::new("tar")
            .arg("czf")
            .arg(dir.join("tar.tar.gz"))
            .arg("-C")
            .arg(&from)
            .arg("."),
    );
    say("tar czf", &tar);
    let before = Instant::now();
    let (file, packed) = sonobuoy::outside::pack_file(&from, &dir.join("ours.tar.gz")).unwrap();
    file.commit(true).unwrap();
    let time = before.elapsed();
    let theirs = fs::metadata(dir.join("tar.tar.gz")).unwrap().len();
    println!(
        "{:42} {:8.1} ms, {:.2} of tar's time, {:.2} of its size",
        "ours",
        time.as_secs_f64() * 1e3,
        time.as_secs_f64() / tar.time.as_secs_f64(),
        packed.size as f64 / theirs as f64
    );
}

/// Lines like those of a log, never identical.
fn text(size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(size + 100);
    let mut state = 1_u64;
    while out.len() < size {
        // Knuth's generator: enough for words.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let word = state >> 40;
        writeln!(
            out,
            "I1121 01:02:03.{:06} node-{} pod {word:x} is ready after {}",
            word % 1_000_000,
            word % 97,
            word % 13
        )
        .unwrap();
    }
    out.truncate(size);
    out
}
