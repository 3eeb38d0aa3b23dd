//! `run --local`: complete runs with real processes and the real channel.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use base::stop::Stop;

#[cfg(target_os = "linux")]
use super::support::skipped;
use super::support::watchdog::Watchdog;
use super::support::{Archive, Folder, Sonobuoy, program};

/// A definition: fields of `sonobuoy-config` next to the name, and the container's script.
fn plugin(name: &str, config: &str, script: &str) -> String {
    let script = script.trim_end().replace('\n', "\n      ");
    format!(
        "sonobuoy-config:\n  plugin-name: {name}\n  {config}\nspec:\n  name: plugin\n  command: [sh, -c]\n  args:\n  - |\n      {script}\n"
    )
}

/// A run of `definition` with its temporary files in its own folder.
fn local(definition: &str) -> Sonobuoy {
    let run = Sonobuoy::new("run --local -p plugin.yaml").file("plugin.yaml", definition);
    within(run)
}

fn within(run: Sonobuoy) -> Sonobuoy {
    let tmp = run.folder().join("tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    run.env("TMPDIR", tmp)
}

/// Runs the command, checks that only the archive is left, and reads it.
#[track_caller]
fn archive(run: Sonobuoy) -> (Archive, String) {
    let done = run.run_any();
    let tmp = std::fs::read_dir(done.folder.join("tmp")).unwrap().count();
    assert_eq!(tmp, 0, "temporary files are left");
    (Archive::only_one_in(done.folder.path()), done.stderr)
}

/// As above, for a run in which every result is an error.
#[track_caller]
fn archive_of_errors(run: Sonobuoy) -> (Archive, String) {
    archive(run.status(1).stderr_has("no plugin has delivered a result"))
}

/// Whether a process that wrote its ID into a file still runs. In scripts its own ID is `$$$$`: as
/// in a pod, `$$` is `$`.
fn runs(file: &Path) -> bool {
    let number: u32 = std::fs::read_to_string(file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    Path::new("/proc").join(number.to_string()).exists()
}

#[test]
fn hello_runs_in_any_folder_and_delivers_its_result() {
    let run = within(Sonobuoy::new("run --local -p hello")).stdout_has("hello");
    let (archive, _) = archive(run);
    assert!(
        archive
            .text("plugins/hello/sonobuoy_results.yaml")
            .contains("status: passed")
    );
    assert!(
        archive
            .text("plugins/hello/results/global/hello.yaml")
            .contains("greeting")
    );
    assert_eq!(archive.text("meta/info.json"), r#"{"plugins":["hello"]}"#);
    assert!(archive.text("meta/config.json").contains("\"UUID\":"));
    assert!(archive.text("meta/run.log").contains("starting plugins"));
    assert!(
        archive
            .text("plugins/hello/definition.json")
            .contains("\"SessionID\"")
    );
}

#[test]
fn container_restarts_only_on_failure() {
    let script = |failures: u32| {
        format!(
            "echo x >> \"$RESULTS_DIR/starts\"\n[ $(wc -l < \"$RESULTS_DIR/starts\") -gt {failures} ] || exit 7\n\
             printf %s \"$RESULTS_DIR/starts\" > \"$RESULTS_DIR/done\""
        )
    };
    let on_failure = "podSpec: {containers: [], restartPolicy: OnFailure}\n";
    let starts = |archive: &Archive| {
        archive
            .text("plugins/p/results/global/starts")
            .lines()
            .count()
    };
    let restarted = plugin("p", "driver: Job", &script(5)) + on_failure;
    let (results, said) = archive(local(&restarted));
    assert_eq!(
        (starts(&results), said.matches("is started again").count()),
        (6, 5),
        "{said}"
    );
    for definition in [
        plugin("p", "driver: Job", &script(6)) + on_failure,
        plugin("p", "driver: Job", &script(1)),
    ] {
        let (errors, _) = archive_of_errors(local(&definition));
        let error = errors.text("plugins/p/errors/global/error.json");
        assert!(error.contains("ended with exit code 7"), "{error}");
    }
    // An init container, too, before the others start.
    let first = "podSpec:\n  containers: []\n  restartPolicy: OnFailure\n  initContainers:\n  - name: first\n    command: [sh, -c]\n    \
                 args: ['echo x >> \"$RESULTS_DIR/first\"; [ $(wc -l < \"$RESULTS_DIR/first\") -gt 2 ]']\n";
    let second = "printf %s \"$RESULTS_DIR/first\" > \"$RESULTS_DIR/done\"";
    let (results, _) = archive(local(&(plugin("p", "driver: Job", second) + first)));
    assert_eq!(
        results
            .text("plugins/p/results/global/first")
            .lines()
            .count(),
        3
    );
}

#[test]
fn configuration_selects_plugins() {
    let write = "echo 1 > \"$RESULTS_DIR/r\"; printf %s \"$RESULTS_DIR/r\" > \"$RESULTS_DIR/done\"";
    let run = |config: &str| {
        within(Sonobuoy::new(
            "run --local --config c.json -p a.yaml -p b.yaml",
        ))
        .file("c.json", config)
        .file("a.yaml", plugin("a", "driver: Job", write))
        .file("b.yaml", plugin("b", "driver: Job", write))
    };
    let (results, _) = archive(run(r#"{"Plugins": [{"name": "b"}]}"#));
    assert_eq!(results.text("meta/info.json"), r#"{"plugins":["b"]}"#);
    run(r#"{"Plugins": [{"name": "c"}]}"#)
        .status(1)
        .stderr_has("plugin `c` is selected by `Plugins`")
        .run();
}

#[test]
fn curl_and_openssl_submit_results() {
    for tool in ["curl", "openssl"] {
        let Some(_) = program(tool) else { return };
    }
    let definition = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins.d/by-itself.yaml");
    let run = within(Sonobuoy::new("run --local -p").arg(definition)).stdout_has("by-itself");
    let (archive, _) = archive(run);
    assert!(
        archive
            .text("plugins/by-itself/sonobuoy_results.yaml")
            .contains("status: passed")
    );
    assert!(
        archive
            .text("plugins/by-itself/results/global/by-itself.yaml")
            .contains("greeting from")
    );
}

#[test]
fn exited_plugin_without_worker_and_result_fails_at_once() {
    for (script, words) in [
        (
            "echo nothing to say",
            "left no result; its last output:\\nnothing to say",
        ),
        ("echo broken; exit 3", "its last output:\\nbroken"),
    ] {
        let (archive, _) = archive_of_errors(local(&plugin(
            "mute",
            "driver: Job\n  worker: none",
            script,
        )));
        let error = archive.text("plugins/mute/errors/global/error.json");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn process_environments_contain_no_keys() {
    let script = "for process in /proc/[0-9]*/environ; do\n\
                    if tr '\\0' '\\n' < $process 2> /dev/null | grep -q '^RESULT_TYPE=snoop$'; then\n\
                      tr '\\0' '\\n' < $process >> $RESULTS_DIR/worker\n\
                    fi\n\
                  done\n\
                  ls -l $SONOBUOY_RESULTS_DIR/../token > $RESULTS_DIR/token\n\
                  echo $RESULTS_DIR > $RESULTS_DIR/done";
    let (archive, _) = archive(local(&plugin("snoop", "driver: Job", script)));
    let worker = archive.text("plugins/snoop/results/global/worker");
    assert!(
        worker.contains("SONOBUOY_TOKEN_FILE=") && !worker.contains("PRIVATE KEY"),
        "{worker}"
    );
    let token = archive.text("plugins/snoop/results/global/token");
    assert!(token.starts_with("-rw------- "), "{token}");
}

#[test]
fn one_command_writes_reports_and_a_verdict() {
    let script = r#"printf 'name: s\nstatus: failed\nitems: [{name: "a <b>", status: failed}]\n' > $RESULTS_DIR/r.yaml
echo $RESULTS_DIR/r.yaml > $RESULTS_DIR/done"#;
    let definition = plugin("suite", "driver: Job\n  result-format: manual", script);
    let files = " --retrieve=out --junit=out/junit.xml --html=out/page.html --fail-on=failed";
    let run = Sonobuoy::new(&format!("run --local -p plugin.yaml{files}"))
        .file("plugin.yaml", &definition);
    let done = within(run)
        .status(3)
        .stdout_has("Status: failed")
        .stdout_has("Archive: out/")
        .run_any();
    Archive::only_one_in(&done.folder.join("out"));
    assert!(done.folder.read("out/junit.xml").contains("a &lt;b&gt;"));
    assert!(done.folder.read("out/page.html").contains("a &lt;b&gt;"));
    local(&definition)
        .status(0)
        .stdout_has("Status: failed")
        .run_any();
}

#[cfg(unix)]
#[test]
fn reports_are_as_readable_as_the_umask_permits_and_archives_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        plugin(
            "p",
            "driver: Job",
            "echo a > $RESULTS_DIR/a\necho $RESULTS_DIR/a > $RESULTS_DIR/done",
        ),
    );
    let command = "umask 027; exec \"$0\" run --local -p p.yaml --retrieve=out --junit=j.xml \
                   --html=p.html";
    let done = std::process::Command::new("sh")
        .args(["-c", command, env!("CARGO_BIN_EXE_sonobuoy")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for name in ["j.xml", "p.html"] {
        assert_eq!(mode(&folder.join(name)), 0o640, "{name}");
    }
    let archives = std::fs::read_dir(folder.join("out")).unwrap();
    let archive = archives
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().ends_with(".tar.gz"));
    assert_eq!(mode(&archive.unwrap()), 0o600);
}

#[test]
fn kept_archives_include_that_of_the_run() {
    let script = "echo $RESULTS_DIR > $RESULTS_DIR/a\necho $RESULTS_DIR/a > $RESULTS_DIR/done";
    let out = Folder::new();
    // Of another machine, whose clock is ahead.
    let later = "299901010000_sonobuoy_a.tar.gz";
    out.write(later, "");
    for others in 0..3 {
        let run = Sonobuoy::new("run --local -p plugin.yaml --keep 2 --retrieve").arg(out.path());
        let done = within(run.file("plugin.yaml", plugin("p", "driver: Job", script))).run_any();
        let path = done
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("Archive: "))
            .unwrap()
            .to_owned();
        assert!(
            Path::new(&path).exists(),
            "{others} runs before: {path}: {:?}",
            out.names()
        );
        let archives = out
            .names()
            .into_iter()
            .filter(|name| name.ends_with(".tar.gz"))
            .count();
        assert_eq!(
            (archives, out.names().len()),
            (2, 4),
            "the seals of removed archives: {:?}",
            out.names()
        );
        assert!(out.join(later).exists());
    }
}

#[test]
fn local_run_is_waited_for_without_a_limit() {
    let definition = plugin("p", "driver: Job", "echo $RESULTS_DIR > $RESULTS_DIR/a");
    let run = |words: &str| {
        within(
            Sonobuoy::new(&format!("run --local -p plugin.yaml {words}"))
                .file("plugin.yaml", &definition),
        )
    };
    run("--wait=3s")
        .status(1)
        .stderr_has("limit it with `--timeout`")
        .run_any();
    run("--wait").run_any();
}

#[test]
fn daemon_set_runs_once_per_node() {
    let script = "echo \"$NODE_NAME $SONOBUOY\" > $RESULTS_DIR/node.txt\necho $RESULTS_DIR/node.txt > $RESULTS_DIR/done";
    let run = local(&plugin("each", "driver: DaemonSet", script)).arg("--local-nodes=3");
    let (archive, _) = archive(run);
    let nodes: Vec<_> = archive
        .names()
        .filter(|name| name.ends_with("node.txt"))
        .collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    for name in nodes {
        let node = name.split('/').nth(3).unwrap();
        assert_eq!(archive.text(name), format!("{node} true\n"), "{name}");
    }
}

#[test]
fn job_goes_on_until_all_results_are_in_and_then_has_time_to_clean_up() {
    let marks = Folder::new();
    let mark = marks.join("went-on").display().to_string();
    let done = "echo x > $RESULTS_DIR/x\necho $RESULTS_DIR/x > $RESULTS_DIR/done";
    // Its result is accepted within the second.
    let cleaning = format!(
        "{done}\ntrap 'echo cleaned up; exit 1' TERM\nsleep 1\necho went on\ntouch {mark}\nsleep 600 &\nwait"
    );
    let waiting = format!("until [ -e {mark} ]; do sleep 0.05; done\n{done}");
    let run = Sonobuoy::new("run --local -p a.yaml -p b.yaml")
        .file("a.yaml", plugin("a", "driver: Job", &cleaning))
        .file("b.yaml", plugin("b", "driver: Job", &waiting));
    let (archive, _) = archive(within(run.args("--timeout 30")));
    let log = archive
        .names()
        .find(|name| name.contains("-a-job-") && name.ends_with("/plugin.txt"))
        .unwrap();
    assert_eq!(archive.text(log), "went on\ncleaned up\n");
    assert!(!archive.names().any(|name| name.contains("/errors/")));
}

#[test]
fn later_groups_wait_for_earlier_results() {
    let order = Folder::new();
    let script = |name: &str| {
        format!(
            "echo {name} >> {}\necho x > $RESULTS_DIR/x\necho $RESULTS_DIR/x > $RESULTS_DIR/done",
            order.join("log").display()
        )
    };
    let both = |name: &str, order: i32| {
        plugin(
            name,
            &format!("driver: Job\n  order: {order}"),
            &script(name),
        )
    };
    let run = Sonobuoy::new("run --local -p a.yaml -p b.yaml -p c.yaml")
        .file("a.yaml", both("a", 7))
        .file("b.yaml", both("b", -1))
        .file("c.yaml", both("c", 0));
    archive(within(run));
    assert_eq!(order.read("log"), "b\nc\na\n");
}

#[test]
fn hanging_test_is_named_at_the_time_limit() {
    let log = "Will run 2 of 9 specs\\n----------\\n[sig-a] a hangs [sig-a]\\n";
    let script = format!("printf '{log}' > $RESULTS_DIR/e2e.log\nsleep 3600");
    let (archive, _) =
        archive_of_errors(local(&plugin("slow", "driver: Job", &script)).arg("--timeout=10"));
    let error = archive.text("plugins/slow/errors/global/error.json");
    assert!(
        error.contains("within the time limit of 10s, while it ran [sig-a] a hangs"),
        "{error}"
    );
}

#[test]
fn timed_out_plugin_ends_with_its_descendants() {
    let pids = Folder::new();
    let script = format!(
        "sleep 3600 & echo $! > {}\nsetsid sh -c 'echo $$$$ > {}; sleep 3600' &\necho $$$$ > {}\nwait",
        pids.join("child").display(),
        pids.join("session").display(),
        pids.join("shell").display()
    );
    let (archive, _) =
        archive_of_errors(local(&plugin("slow", "driver: Job", &script)).arg("--timeout=1"));
    assert!(
        archive
            .text("plugins/slow/errors/global/error.json")
            .contains("timeout")
    );
    assert!(
        archive
            .text("plugins/slow/sonobuoy_results.yaml")
            .contains("status: failed")
    );
    for name in pids.names() {
        assert!(!runs(&pids.join(&name)), "`{name}` is left");
    }
    assert_eq!(pids.names().len(), 3);
}

#[test]
fn failed_plugin_reports_its_cause_at_once() {
    let script = "echo first\necho the disk is on fire >&2\nexit 3";
    let (archive, stderr) = archive_of_errors(local(&plugin("bad", "driver: Job", script)));
    let error = archive.text("plugins/bad/errors/global/error.json");
    assert!(
        error.contains("the disk is on fire") && error.contains("\"exit-code\":3"),
        "{error}"
    );
    assert!(stderr.contains("exit code 3"), "{stderr}");
    let log = archive.named("/logs/plugin.txt");
    assert_eq!(archive.text(&log), "first\nthe disk is on fire\n");
}

#[test]
fn unsupported_plugin_is_rejected_before_the_run() {
    let check = |spec: &str, words: &str| {
        let definition =
            format!("sonobuoy-config: {{driver: Job, plugin-name: p}}\nspec: {spec}\n");
        let done = local(&definition).status(1).stderr_has(words).run_any();
        assert!(
            !done
                .folder
                .names()
                .iter()
                .any(|name| name.contains("_sonobuoy_")),
            "{spec}"
        );
        assert_eq!(
            std::fs::read_dir(done.folder.join("tmp")).unwrap().count(),
            0,
            "{spec}"
        );
    };
    check(
        "{name: c, command: [no-such-command]}",
        "`no-such-command` of container `c` is not on this machine",
    );
    check(
        "{name: c, image: busybox}",
        "container `c` has no `command`",
    );
    check(
        "{name: c, command: [sh], workingDir: /no/such}",
        "`/no/such` is not a folder",
    );
    check(
        "{name: c, command: [sh], env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}",
        "`A` of container `c` comes from a cluster",
    );
}

#[test]
fn results_folder_is_sent_after_success_without_a_done_file() {
    let script = "mkdir $RESULTS_DIR/sub\necho one > $RESULTS_DIR/sub/one.txt";
    let (archive, _) = archive(local(&plugin("quiet", "driver: Job", script)));
    assert_eq!(
        archive.text("plugins/quiet/results/global/sub/one.txt"),
        "one\n"
    );
}

#[test]
fn done_file_may_name_a_folder_or_an_archive() {
    let script = "mkdir $RESULTS_DIR/out\necho 1 > $RESULTS_DIR/out/one.txt\nprintf $RESULTS_DIR/out > $RESULTS_DIR/done";
    let (folder, _) = archive(local(&plugin("folder", "driver: Job", script)));
    assert_eq!(folder.text("plugins/folder/results/global/one.txt"), "1\n");

    let script = "cd $RESULTS_DIR\necho 2 > two.txt\ntar czf results.tar.gz two.txt\necho $RESULTS_DIR/results.tar.gz > done";
    let (tar, _) = archive(local(&plugin("tar", "driver: Job", script)));
    assert_eq!(tar.text("plugins/tar/results/global/two.txt"), "2\n");
}

#[test]
fn empty_done_file_is_a_plugin_error() {
    let script = "echo $RESULTS_DIR/none > $RESULTS_DIR/done";
    let (missing, _) = archive_of_errors(local(&plugin("missing", "driver: Job", script)));
    assert!(
        missing
            .text("plugins/missing/errors/global/error.json")
            .contains("/none`, which cannot be read")
    );

    let script = ": > $RESULTS_DIR/done";
    let (empty, _) = archive_of_errors(local(&plugin("empty", "driver: Job", script)));
    assert!(
        empty
            .text("plugins/empty/errors/global/error.json")
            .contains("done file is empty")
    );

    let script = "echo text > $RESULTS_DIR/a.gz\necho $RESULTS_DIR/a.gz > $RESULTS_DIR/done";
    let (damaged, _) = archive_of_errors(local(&plugin("damaged", "driver: Job", script)));
    assert!(
        damaged
            .text("plugins/damaged/errors/global/error.json")
            .contains("gzip")
    );
}

#[test]
fn result_over_the_configured_limit_is_rejected() {
    let script =
        "echo 12345678 > $RESULTS_DIR/report\necho $RESULTS_DIR/report > $RESULTS_DIR/done";
    let run = Sonobuoy::new("run --local --config run.json -p plugin.yaml")
        .file("plugin.yaml", plugin("p", "driver: Job", script))
        .file("run.json", r#"{"Limits": {"Results": {"Bytes": 8}}}"#);
    let (archive, _) = archive_of_errors(within(run));
    let error = archive.text("plugins/p/errors/global/error.json");
    assert!(
        error.contains("the result is too large: more than 8 bytes"),
        "{error}"
    );
}

#[test]
fn config_maps_init_containers_and_sidecars_work_as_in_a_pod() {
    let definition = r#"
sonobuoy-config: {driver: Job, plugin-name: full}
config-map: {settings.yaml: "level: 3"}
podSpec:
  initContainers:
  - {name: first, command: [sh, -c, "echo prepared > $RESULTS_DIR/first.txt; mkfifo $RESULTS_DIR/raw"]}
  containers:
  - name: processor
    command: [sh, -c]
    args:
    - |
      cat $RESULTS_DIR/first.txt $RESULTS_DIR/raw > $RESULTS_DIR/processed.txt
      echo $RESULTS_DIR/processed.txt > $RESULTS_DIR/done
spec:
  name: plugin
  command: [sh, -c]
  args: ["{ cat $(SONOBUOY_CONFIG_DIR)/settings.yaml; echo $(WHERE); } > $(RESULTS_DIR)/raw"]
  env:
  - {name: WHERE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
"#;
    let (archive, _) = archive(local(definition));
    let text = archive.text("plugins/full/results/global/processed.txt");
    assert_eq!(text, "prepared\nlevel: 3sonobuoy\n");
}

#[test]
fn failed_init_container_fails_the_plugin() {
    let definition = r#"
sonobuoy-config: {driver: Job, plugin-name: p}
podSpec: {initContainers: [{name: first, command: [sh, -c, "echo no licence; exit 9"]}]}
spec: {name: plugin, command: [sh, -c, "echo never > $RESULTS_DIR/never"]}
"#;
    let (archive, _) = archive_of_errors(local(definition));
    let error = archive.text("plugins/p/errors/global/error.json");
    assert!(
        error.contains("`first` ended with exit code 9") && error.contains("no licence"),
        "{error}"
    );
}

#[test]
fn each_pod_has_its_own_progress_port() {
    // /dev/tcp of bash is the client.
    if program("bash").is_none() {
        return;
    }
    let fifos = Folder::new();
    let script = r#"
mkfifo FIFOS/$NODE_NAME
body='{"msg":"half way","total":4,"completed":2}'
exec 3<>/dev/tcp/127.0.0.1/$SONOBUOY_PROGRESS_PORT
printf 'POST /progress HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' ${#body} "$body" >&3
cat <&3 > $RESULTS_DIR/answer.txt
# Its progress has been seen when this is read.
cat FIFOS/$NODE_NAME
echo $RESULTS_DIR/answer.txt > $RESULTS_DIR/done"#;
    let script = script.replace("FIFOS", fifos.path().to_str().unwrap());
    let definition =
        plugin("talker", "driver: DaemonSet", &script).replace("[sh, -c]", "[bash, -c]");
    let (mut command, folder) = local(&definition).arg("--local-nodes=2").command();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let watchdog = Watchdog::over(&child);
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let words = "talker: 0 of 2 nodes done, 4 of 8 steps done: half way";
    assert!(
        lines.any(|line| line.contains(words)),
        "the progress of both nodes, summed"
    );
    fifos
        .names()
        .iter()
        .for_each(|name| std::fs::write(fifos.join(name), "").unwrap());
    let rest: Vec<_> = lines.collect();
    assert!(child.wait().unwrap().success() && !watchdog.bit());
    assert!(
        rest.iter()
            .any(|line| line.contains("talker: 2 of 2 nodes done")),
        "{rest:?}"
    );
    let archive = Archive::only_one_in(folder.path());
    for name in archive.names().filter(|name| name.ends_with("answer.txt")) {
        assert!(
            archive.text(name).starts_with("HTTP/1.1 200"),
            "{}",
            archive.text(name)
        );
    }
}

#[test]
fn simultaneous_runs_are_independent() {
    let script =
        "echo $NAME > $RESULTS_DIR/name.txt\necho $RESULTS_DIR/name.txt > $RESULTS_DIR/done";
    let runs: Vec<_> = ["one", "two"]
        .map(|name| {
            let definition = plugin("twin", "driver: DaemonSet", &script.replace("$NAME", name));
            std::thread::spawn(move || archive(local(&definition).arg("--local-nodes=3")).0)
        })
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    for (archive, name) in runs.iter().zip(["one\n", "two\n"]) {
        let files: Vec<_> = archive
            .names()
            .filter(|name| name.ends_with("name.txt"))
            .collect();
        assert_eq!(files.len(), 3);
        assert!(files.iter().all(|file| archive.text(file) == name));
    }
}

fn make_fifo(path: &Path) {
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path)
            .status()
            .unwrap()
            .success()
    );
}

/// A run that lasts until it is interrupted, and the moment when its plugin runs.
fn endless(script: &str) -> (Child, Folder) {
    let fifo = Folder::new();
    let path = fifo.join("started");
    make_fifo(&path);
    let quick = "echo 1 > $RESULTS_DIR/one.txt\necho $RESULTS_DIR/one.txt > $RESULTS_DIR/done";
    let run = Sonobuoy::new("run --local -p quick.yaml -p slow.yaml")
        .file(
            "quick.yaml",
            plugin("quick", "driver: Job\n  order: -1", quick),
        )
        .file(
            "slow.yaml",
            plugin(
                "slow",
                "driver: Job",
                &script.replace("STARTED", path.to_str().unwrap()),
            ),
        );
    let (mut command, folder) = within(run).command();
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Blocks until the plugin has opened it, too.
    std::fs::write(folder.join("pid"), std::fs::read(&path).unwrap()).unwrap();
    (child, folder)
}

#[test]
fn terminated_worker_is_not_awaited() {
    // The other child of the run.
    let script = "for child in $(cat /proc/$PPID/task/*/children); do\n[ $child = $$$$ ] || kill -TERM $child\ndone\nsleep 3600";
    let (archive, _) = archive_of_errors(local(&plugin("p", "driver: Job", script)));
    let error = archive.text("plugins/p/errors/global/error.json");
    assert!(
        error.contains("the worker ended with exit code 1 and left no result"),
        "{error}"
    );
    assert!(error.contains("asked to stop"), "{error}");
}

#[test]
fn interrupt_stops_the_run_and_keeps_received_results() {
    use rustix::process::Signal;
    // Several signals at once, as `timeout` sends them to a program and then to its group, are one
    // request.
    for signals in [
        &[Signal::INT][..],
        &[Signal::TERM],
        &[Signal::TERM, Signal::INT, Signal::HUP],
    ] {
        // The plugin ignores termination.
        let script = "trap '' TERM INT\necho $$$$ > STARTED\nwhile :; do sleep 1; done";
        let (mut child, folder) = endless(script);
        let pid = rustix::process::Pid::from_child(&child);
        signals
            .iter()
            .for_each(|signal| rustix::process::kill_process(pid, *signal).unwrap());
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
        assert!(!runs(&folder.join("pid")), "the plugin is left");
        let archive = Archive::only_one_in(folder.path());
        assert_eq!(archive.text("plugins/quick/results/global/one.txt"), "1\n");
        let error = archive.text("plugins/slow/errors/global/error.json");
        assert!(error.contains("interrupted"), "{error}");
        assert_eq!(std::fs::read_dir(folder.join("tmp")).unwrap().count(), 0);
    }
}

#[test]
fn second_interrupt_ends_at_once_and_leaves_no_process() {
    let script = "trap '' TERM INT\necho $$$$ > STARTED\nwhile :; do sleep 1; done";
    let (mut child, folder) = endless(script);
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let pid = rustix::process::Pid::from_child(&child);
    // Repeated interrupts, until one is late enough.
    let code = loop {
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        Stop::new().wait(Duration::from_millis(100));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
    };
    // No writer is left.
    let said = stderr
        .lines()
        .map(Result::unwrap)
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(code, Some(130), "{said}");
    assert!(!runs(&folder.join("pid")), "the plugin is left");
    let left = std::fs::read_dir(folder.join("tmp"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in left {
        assert!(
            said.contains(&format!("remains in `{}`", path.display())),
            "{said}"
        );
    }
}

#[test]
fn killed_run_ends_its_plugins() {
    for config in ["driver: Job", "driver: Job\n  worker: none"] {
        let fifo = Folder::new();
        let path = fifo.join("alive");
        make_fifo(&path);
        // Every descendant of the plugin holds the other end open, even outside its process group.
        let script = format!(
            "exec 3> {}\nsetsid sleep 3600 &\necho up >&3\nsleep 3600 & wait",
            path.display()
        );
        let (mut command, _folder) = local(&plugin("p", config, &script)).command();
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut alive = BufReader::new(std::fs::File::open(&path).unwrap());
        let mut line = String::new();
        alive.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        child.kill().unwrap();
        child.wait().unwrap();
        // Returns when the last descendant has ended.
        alive.read_line(&mut line).unwrap();
    }
}

#[test]
fn progress_is_printed_during_the_run() {
    let (mut child, _folder) = endless("echo $$$$ > STARTED\nsleep 3600");
    let lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let line = lines.into_iter().find(|line| line.contains("quick: done"));
    assert!(line.is_some());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    child.wait().unwrap();
}

#[test]
fn run_without_results_explains_why() {
    let script = "echo dial tcp 10.0.0.1:443: connect: no route to host >&2\nexit 3";
    let done = local(&plugin("lost", "driver: Job", script))
        .status(1)
        .run_any();
    let archive = Archive::only_one_in(done.folder.path());
    let why: serde_json::Value = serde_json::from_str(&archive.text("meta/why.json")).unwrap();
    assert_eq!(
        (&why["results"], &why["first"]["plugin"]),
        (&1.into(), &"lost".into())
    );
    assert!(
        why["causes"][0]["remedy"]
            .as_str()
            .unwrap()
            .contains("routes"),
        "{why}"
    );
    let file = std::fs::read_dir(done.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let file = file
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .unwrap();
    let results = |words: &str| {
        Sonobuoy::new("results")
            .arg(&file)
            .args(words)
            .run_any()
            .stdout
    };
    let told = "The run failed as a whole: its only result did not arrive.";
    assert!(
        results("--mode summary").contains(told),
        "{}",
        results("--mode summary")
    );
    let page = results("--format html");
    assert!(
        page.contains(told) && page.contains("It began with lost on global at"),
        "{page}"
    );
    let json: serde_json::Value = serde_json::from_str(&results("--format json")).unwrap();
    assert_eq!(json["why"], why);

    // CI systems show tests, and no other text.
    let junit = results("--format junit");
    let error = format!("<error type=\"run\" message=\"{told}\">{told}\n1 x: ");
    assert!(
        junit.contains("<testsuites name=\"sonobuoy\" tests=\"2\" failures=\"1\" errors=\"1\""),
        "{junit}"
    );
    assert!(
        junit.contains(&error) && junit.contains("It began with lost on global at"),
        "{junit}"
    );

    // With one result, the run does not count as empty.
    let good = local(&plugin(
        "found",
        "driver: Job",
        "echo x >$RESULTS_DIR/x\necho -n $RESULTS_DIR/x >$RESULTS_DIR/done",
    ));
    let (archive, _) = self::archive(good);
    assert!(!archive.names().any(|name| name == "meta/why.json"));
}

/// Makes a folder, and those in it, accessible to all users.
#[cfg(target_os = "linux")]
fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    for entry in path.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            open_to_all(&path);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn process_of_another_user_does_not_hold_the_run() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        skipped("root", "only root can give a program to another user");
        return;
    }
    let Some(setpriv) = program("setpriv") else {
        return;
    };
    for (case, before, after) in [
        ("the container", "exec", ""),
        (
            "a stray",
            "setsid",
            "& echo x > r; echo $RESULTS_DIR/r > $RESULTS_DIR/done; sleep 1",
        ),
    ] {
        let run = within(Sonobuoy::new("run --local -p plugin.yaml --timeout 3"));
        let helper = run.folder().join("helper");
        let script = format!(
            "cd $RESULTS_DIR; {before} {} --reuid=0 sleep 60 {after}",
            helper.display()
        );
        let run = run.file("plugin.yaml", plugin("p", "driver: Job", &script));
        // As sudo does, it becomes a process of root.
        std::fs::copy(&setpriv, &helper).unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o4755)).unwrap();
        open_to_all(&run.folder());
        let (command, folder) = run.command();
        let mut unprivileged = std::process::Command::new(&setpriv);
        unprivileged
            .args(["--reuid=65533", "--regid=65534", "--clear-groups"])
            .arg(command.get_program());
        unprivileged
            .args(command.get_args())
            .current_dir(folder.path())
            .env_clear();
        unprivileged.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let begun = std::time::Instant::now();
        let output = unprivileged.output().unwrap();
        let elapsed = begun.elapsed();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let line = stderr
            .lines()
            .find(|line| line.contains("cannot be ended"))
            .unwrap_or_default();
        let number = line
            .split("process ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next()?.parse().ok());
        let process = number.and_then(rustix::process::Pid::from_raw);
        let process = process.unwrap_or_else(|| panic!("{case}: no process is named: {stderr}"));
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        assert!(line.contains("sleep 60"), "{case}: {line}");
        assert!(elapsed < Duration::from_secs(40), "{case}: {elapsed:?}");
        assert_eq!(
            output.status.code(),
            Some(i32::from(case == "the container")),
            "{case}: {stderr}"
        );
        assert_eq!(
            folder
                .names()
                .iter()
                .filter(|name| name.ends_with(".tar.gz"))
                .count(),
            1,
            "{case}"
        );
    }
}
