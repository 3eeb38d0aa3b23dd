//! The program of a conformance image: its abilities while it prints lists.

use std::process::Command;
use std::time::{Duration, Instant};

use super::images::{conformance, programs};
use super::support::registry::{Habits, Registry};
use super::support::{Folder, Sonobuoy, skipped};

/// Prints its abilities as image names.
const PROBE: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
int main(int argc, char **argv) {
    const char *mode = getenv("MODE");
    if (mode && !strncmp(mode, "pause", 5)) for (;;) pause();
    if (mode && !strcmp(mode, "flood")) for (;;) puts("reg.local/flood:1");
    if (mode && !strcmp(mode, "daemon")) {
        for (int i = 0; i < 400; i++) if (fork() == 0) { setsid(); for (;;) pause(); }
        puts("reg.local/started:1");
        return 0;
    }
    kill(1, SIGKILL);
    int entries = 0;
    DIR *root = opendir("/");
    while (readdir(root)) entries++;
    printf("reg.local/%s-user-entries-%d:1\n", getuid() >= 65534 ? "other" : "same", entries);
    if (chroot("/") && unshare(CLONE_NEWUSER)) puts("reg.local/stays-inside:1");
    if (fork() == 0) { setenv("MODE", "daemon", 1); execv("/bin/sh", argv); _exit(0); }
    int file = open("/file", O_CREAT | O_WRONLY, 0600);
    if (file < 0 || write(file, "x", 1) < 0) puts("reg.local/writes-nothing:1");
    int inherited = 0;
    for (int i = 3; i < 1024; i++) if (i != dirfd(root) && fcntl(i, F_GETFD) >= 0) inherited++;
    printf("reg.local/inherits-%d:1\n", inherited);
    void *shared = mmap(0, 3584UL << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) puts("reg.local/shares-little:1");
    if (shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) < 0) puts("reg.local/keeps-no-segment:1");
    return 0;
}
"#;

/// Processes with a word in their environment.
fn bearing(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let bears = |path: std::path::PathBuf| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    };
    all.filter(|entry| bears(entry.path())).count()
}

/// Whether the image's program itself runs with a word in its environment.
fn running(word: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let text = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        text("comm") == b"e2e.test\n"
            && text("environ")
                .windows(word.len())
                .any(|part| part == word.as_bytes())
    })
}

/// Waits until a condition holds.
fn wait_until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end);
    }
}

/// The probe as a static program, where this machine can compile and isolate it.
fn probe() -> Option<Vec<u8>> {
    let done = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let folder = Folder::new();
    folder.write("probe.c", PROBE);
    if !done(
        Command::new("cc")
            .args(["-static", "-o", "probe", "probe.c"])
            .current_dir(folder.path()),
    ) {
        skipped("cc", "a static program cannot be compiled");
        return None;
    }
    if !done(Command::new("unshare").args(["--user", "--mount", "true"])) {
        skipped("unshare", "namespaces are not available");
        return None;
    }
    Some(std::fs::read(folder.join("probe")).unwrap())
}

/// Lists the images of a conformance image with this program.
fn list(registry: &Registry, program: &[u8], mode: &str) -> Sonobuoy {
    let image = conformance(registry, &[&[("usr/local/bin/e2e.test", program)]]);
    let e2e = format!(
        "sonobuoy-config: {{driver: Job, plugin-name: e2e}}\nspec: {{name: e2e, image: '{image}'}}\n"
    );
    let call =
        Sonobuoy::new("images list -p e2e.yaml --plugin-env").arg(format!("e2e.MODE={mode}"));
    call.file("e2e.yaml", e2e)
}

#[test]
fn image_program_is_isolated_or_does_not_run() {
    let registry = Registry::start(Habits::default());
    let Some(program) = probe() else { return };
    let list = |program: &[u8], mode| list(&registry, program, mode);
    // The calling shell passes on a descriptor of the whole file system.
    let host = std::fs::File::open("/").unwrap();
    let passed = rustix::io::fcntl_dupfd_cloexec(&host, 11).unwrap();
    rustix::io::fcntl_setfd(&passed, rustix::io::FdFlags::empty()).unwrap();
    list(&program, "")
        .stdout_has(
            "reg.local/inherits-0:1\nreg.local/keeps-no-segment:1\nreg.local/other-user-entries-3:1\n\
             reg.local/shares-little:1\nreg.local/stays-inside:1\nreg.local/writes-nothing:1\n",
        )
        .stderr_has("e2e image to be used: ")
        .run();
    drop(passed);
    list(&program, "daemon")
        .stdout_has("reg.local/started:1\n")
        .stderr_has("e2e image to be used: ")
        .run();
    assert_eq!(
        bearing("MODE=daemon"),
        0,
        "everything that it started ended with it"
    );
    list(&program, "flood")
        .status(1)
        .stdout("")
        .stderr_has("it printed more than")
        .run();
    assert_eq!(bearing("MODE=flood"), 0);
    // The isolated program has neither a shell nor a dynamic linker.
    let folder = Folder::new();
    let wrote = folder.join("wrote");
    let script = format!(
        "#!/bin/sh\necho x > {}\necho reg.local/a:1\n",
        wrote.display()
    );
    list(script.as_bytes(), "")
        .status(1)
        .stdout("")
        .stderr_has("only a static program for this machine")
        .run();
    // Without isolation programs, the image's program runs only with --unconfined.
    let call = list(script.as_bytes(), "");
    let path = programs(
        &call,
        &[(
            "unshare",
            "#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1\n",
        )],
    );
    call.env("PATH", path)
        .status(1)
        .stdout("")
        .stderr_has("was not run (unshare failed: Operation not permitted)")
        .stderr_has("`--unconfined`")
        .run();
    assert!(!wrote.exists(), "the script did not run");
    list(script.as_bytes(), "")
        .arg("--unconfined")
        .stdout_has("reg.local/a:1\n")
        .stderr_has("e2e image to be used: ")
        .run();
    assert!(wrote.exists());
}

#[test]
fn interrupted_list_leaves_no_process_or_folder() {
    let registry = Registry::start(Habits::default());
    let Some(program) = probe() else { return };
    for (signal, code) in [
        ("TERM", Some(130)),
        ("INT", Some(130)),
        ("HUP", Some(130)),
        ("KILL", None),
    ] {
        let mark = format!("pause{signal}");
        let call = list(&registry, &program, &mark).file("tmp/keep", "");
        let tmp = call.folder().join("tmp");
        let (mut command, folder) = call.env("TMPDIR", &tmp).command();
        let mut child = command.spawn().unwrap();
        let word = format!("MODE={mark}");
        // Not only the launcher: the command's end must reach the program after set-up.
        wait_until(|| running(&word));
        assert!(
            Command::new("kill")
                .args(["-s", signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), code, "{signal}");
        wait_until(|| bearing(&word) == 0);
        if code.is_some() {
            assert_eq!(
                std::fs::read_dir(folder.join("tmp")).unwrap().count(),
                1,
                "{signal}"
            );
        }
    }
}

#[test]
fn closed_terminal_ends_a_command_unless_nohup_started_it() {
    let registry = Registry::start(Habits::default());
    let Some(program) = probe() else { return };
    for (trap, wanted) in [("", "SigCgt"), ("trap '' HUP; ", "SigIgn")] {
        let mark = format!("pause{wanted}");
        let (command, _folder) = list(&registry, &program, &mark).command();
        // As nohup does.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{trap}exec \"$@\""), "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        shell
            .current_dir(command.get_current_dir().unwrap())
            .env_clear();
        shell.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let mut child = shell.spawn().unwrap();
        wait_until(|| running(&format!("MODE={mark}")));
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let with_hangup = |name: &&str| {
            let mask = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            u64::from_str_radix(mask.trim_start_matches(':').trim(), 16).unwrap() & 1 == 1
        };
        let masks: Vec<_> = ["SigIgn", "SigCgt"]
            .into_iter()
            .filter(with_hangup)
            .collect();
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", "TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(masks, [wanted]);
    }
}
