//! `gather`: facts of a node, from folders that simulate nodes and from this machine.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::support::{Folder, Sonobuoy, program, skipped};

/// A small node: absent files must be missing from the facts, not fail the result.
fn node(call: Sonobuoy) -> Sonobuoy {
    call.file(
        "node/etc/os-release",
        "NAME=\"Rocky Linux\"\nID=rocky\nVERSION_ID=\"9.2\"\n",
    )
    .file(
        "node/etc/redhat-release",
        "Rocky Linux release 9.2 (Blue Onyx)\n",
    )
    .file(
        "node/proc/meminfo",
        "MemTotal: 4194304 kB\nMemFree: 1048576 kB\n",
    )
    .file("node/proc/sys/kernel/hostname", "n7\n")
    .file("node/sys/class/net/eth0/mtu", "1450\n")
}

fn facts(text: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap();
    document["ansible_facts"].clone()
}

#[test]
fn facts_are_read_below_another_root() {
    let done = node(Sonobuoy::new("gather host-facts --chroot node"))
        .stdout_has("ansible_facts")
        .run();
    let facts = facts(&done.stdout);
    assert_eq!(facts["ansible_distribution"], "Rocky");
    assert_eq!(facts["ansible_os_family"], "RedHat");
    assert_eq!(facts["ansible_memtotal_mb"], 4096);
    assert_eq!(facts["ansible_nodename"], "n7");
    assert_eq!(facts["ansible_eth0"]["mtu"], 1450);
    assert_eq!(
        facts["ansible_default_ipv4"],
        serde_json::json!({}),
        "addresses are this machine's, not the node's"
    );
    assert!(facts["sonobuoy_unread"]["addresses"].is_string());
}

#[test]
fn plugin_mode_leaves_the_result_for_the_worker() {
    let call = node(Sonobuoy::new("gather host-facts"))
        .env("CHROOT_DIR", "node")
        .file("out/keep", "");
    let out = call.folder().join("out");
    let done = call.env("RESULTS_DIR", &out).run();
    let named = done.folder.read("out/done");
    assert_eq!(Path::new(&named), out.join("host-facts.json"), "no newline");
    assert_eq!(
        facts(&done.folder.read("out/host-facts.json"))["ansible_distribution_version"],
        "9.2"
    );
    assert_eq!(done.folder.names(), ["node", "out"]);
}

#[test]
fn invalid_chroot_is_an_error_result() {
    for chroot in ["absent", "out", "file"] {
        let call = Sonobuoy::new("gather host-facts --output out")
            .file("out/keep", "")
            .file("file", "");
        let done = call
            .arg("--chroot")
            .arg(chroot)
            .status(1)
            .stderr_has(chroot)
            .run();
        let result: Value = serde_json::from_str(&done.folder.read("out/host-facts.json")).unwrap();
        assert_eq!(
            (&result["status"], &result["failed"]),
            (&"failed".into(), &true.into())
        );
        assert!(result["msg"].as_str().unwrap().contains(chroot), "{result}");
        assert!(done.folder.read("out/done").ends_with("host-facts.json"));
    }
}

#[test]
fn missing_proc_is_reported() {
    let done = Sonobuoy::new("gather host-facts --chroot node")
        .file("node/etc/hostname", "n8\n")
        .stdout_has("n8")
        .run();
    let facts = facts(&done.stdout);
    assert_eq!(facts["ansible_hostname"], "n8");
    assert!(facts["sonobuoy_unread"]["/proc"].is_string());
    assert!(
        facts
            .as_object()
            .unwrap()
            .values()
            .all(|fact| !fact.is_null()),
        "{facts}"
    );
}

#[test]
fn unreadable_files_are_named_beside_other_facts() {
    // Root can read any file, but neither a link to itself nor a folder.
    let call =
        node(Sonobuoy::new("gather host-facts --chroot node")).file("node/proc/cpuinfo/x", "");
    std::fs::remove_file(call.folder().join("node/proc/meminfo")).unwrap();
    std::os::unix::fs::symlink("meminfo", call.folder().join("node/proc/meminfo")).unwrap();
    let done = call.stdout_has("ansible_facts").run();
    let facts = facts(&done.stdout);
    assert_eq!(facts["ansible_distribution"], "Rocky");
    for file in ["/proc/meminfo", "/proc/cpuinfo"] {
        assert!(
            facts["sonobuoy_unread"][file].is_string(),
            "{file}: {}",
            facts["sonobuoy_unread"]
        );
    }
}

#[test]
fn pipes_and_endless_files_do_not_block() {
    let call = Sonobuoy::new("gather host-facts --chroot node").file("node/etc/keep", "");
    let pipe = call.folder().join("node/etc/os-release");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let done = call.stdout_has("not a regular file").run();
    assert_eq!(facts(&done.stdout)["ansible_distribution"], "Linux");
}

#[test]
fn unwritable_results_are_an_error() {
    Sonobuoy::new("gather host-facts --chroot / --output absent")
        .status(1)
        .stderr_has("absent")
        .run();
    // A shell's file size limit behaves like a full disk.
    let call = Sonobuoy::new("gather host-facts --chroot / --output out").file("out/keep", "");
    let (command, folder) = call.command();
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    let done = limited.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.code() == Some(1) && said.contains("File too large"),
        "{said}"
    );
    assert_eq!(folder.names(), ["out"]);
    assert_eq!(
        Folder::names_of(&folder.join("out")),
        ["keep"],
        "nothing partial stays"
    );
}

/// The process would sleep forever, and the run would wait for a result that cannot arrive.
#[test]
fn gatherer_exits_without_a_result_folder() {
    for kind in [
        "host-facts",
        "network",
        "systemd-logs --gzip --summary",
        "log-summary",
    ] {
        let call = Sonobuoy::new(&format!("gather {kind} --sleep=-1 --output absent"));
        call.status(1)
            .stderr_has("cannot write results to `absent`")
            .run();
    }
}

#[test]
fn built_in_plugins_run_locally() {
    let call =
        Sonobuoy::new("run --local -p host-facts -p network -p systemd-logs --local-nodes 2");
    let done = call.env("SONOBUOY_DONE_FILE_DELAY", "0").run_any();
    for plugin in ["host-facts", "network", "systemd-logs"] {
        let ended = format!("{plugin}: 2 of 2 nodes done, passed");
        assert!(
            done.stderr.contains(&ended),
            "{plugin}:\n{}\n{}",
            done.stdout,
            done.stderr
        );
        assert!(
            done.stdout.contains(&format!("Plugin: {plugin}\n")),
            "{}",
            done.stdout
        );
    }
}

#[test]
fn logs_are_packed_truncated_and_counted() {
    let log = "kernel: Out of memory: Killed process 7 (java)\n".repeat(100);
    let call = Sonobuoy::new(
        "gather systemd-logs --chroot node --output out --gzip --summary --max-size 5K",
    );
    let call = call
        .file("node/var/log/messages", log)
        .file("node/etc/keep", "")
        .file("out/keep", "");
    let done = call.stderr_has("there is no journal (").run();
    assert!(
        done.folder.read("out/done").ends_with("/out/systemd-logs"),
        "a folder, since a bare .gz is taken for a tar"
    );
    let summary = done.folder.read("out/systemd-logs/log-summary.yaml");
    assert!(
        summary.contains("status: failed") && summary.contains("truncated: true"),
        "{summary}"
    );
    assert!(
        done.folder
            .join("out/systemd-logs/systemd_logs.gz")
            .exists()
    );
}

#[test]
fn summary_without_a_folder_goes_to_stdout() {
    let call = Sonobuoy::new("gather log-summary --chroot node")
        .file("node/etc/keep", "")
        .file("node/var/log/kern.log", "eth0: Link is Down\n");
    let done = call
        .stderr_has("there is no journal (")
        .stdout_has("name: link-flap\n    status: failed")
        .run();
    assert!(
        done.stdout
            .starts_with("name: log-summary\nstatus: failed\n"),
        "{}",
        done.stdout
    );
}

#[test]
fn unavailable_logs_are_an_error_result() {
    let call = Sonobuoy::new("gather systemd-logs --chroot node --output out")
        .file("node/etc/keep", "")
        .file("out/keep", "");
    let done = call.status(1).stderr_has("no log is available").run();
    assert!(
        done.folder
            .read("out/systemd_logs")
            .contains("no log is available")
    );
    assert!(done.folder.read("out/done").ends_with("/out/systemd_logs"));
    Sonobuoy::new("gather systemd-logs --output absent")
        .status(1)
        .stderr_has("absent")
        .run();
    Sonobuoy::new("gather systemd-logs")
        .status(1)
        .stderr_has("--output")
        .run();
    Sonobuoy::new("gather systemd-logs --output . --max-size much")
        .status(1)
        .stderr_has("--max-size much")
        .run();
}

/// A program that runs below another root, which requires root.
fn busybox() -> Option<Vec<u8>> {
    if !Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n")
    {
        skipped("root", "another root folder is for root alone");
        return None;
    }
    let busybox = std::fs::read(program("busybox")?).unwrap();
    if String::from_utf8_lossy(&busybox).contains("/ld-linux") {
        skipped("busybox", "it is not a static one");
        return None;
    }
    Some(busybox)
}

/// A file with these permissions.
fn moded(call: Sonobuoy, name: &str, content: impl AsRef<[u8]>, mode: u32) -> Sonobuoy {
    let call = call.file(name, content);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(call.folder().join(name), permissions).unwrap();
    call
}

#[test]
fn fact_programs_run_on_request_below_the_node_root() {
    let Some(busybox) = busybox() else { return };
    let says = "#!/bin/busybox sh\necho [seen]; echo \"files = $(echo /etc/ansible/facts.d/*)\"; echo \"key = <$CLIENT_KEY>\"\n";
    let call = |flags: &str| {
        let call = moded(
            node(Sonobuoy::new("gather host-facts")),
            "node/bin/busybox",
            &busybox,
            0o755,
        );
        let call = moded(call, "node/etc/ansible/facts.d/says.fact", says, 0o755);
        let call = moded(
            call,
            "node/etc/ansible/facts.d/fails.fact",
            "#!/bin/busybox sh\nexit 3\n",
            0o755,
        );
        let call = moded(call, "node/etc/ansible/facts.d/open.fact", says, 0o777);
        let call = moded(
            call,
            "own/rack.fact",
            "#!/bin/sh\necho \"{\\\"row\\\": \\\"7$CLIENT_KEY\\\"}\"\n",
            0o755,
        );
        let (root, own) = (call.folder().join("node"), call.folder().join("own"));
        let call = call
            .env("CHROOT_DIR", root)
            .env("SONOBUOY_CONFIG_DIR", own)
            .env("CLIENT_KEY", "secret");
        facts(&call.args(flags).run_any().stdout)
    };
    let asked = call("--run-facts");
    let seen = "/etc/ansible/facts.d/fails.fact /etc/ansible/facts.d/open.fact /etc/ansible/facts.d/says.fact";
    let expected =
        serde_json::json!({"says": {"seen": {"files": seen, "key": "<>"}}, "rack": {"row": "7"}});
    assert_eq!(asked["ansible_local"], expected);
    let unread =
        |name: &str| asked["sonobuoy_unread"][format!("/etc/ansible/facts.d/{name}.fact")].clone();
    assert_eq!(unread("fails"), "it ended with exit status: 3");
    assert!(
        unread("open")
            .as_str()
            .unwrap()
            .contains("others than root may write to"),
        "{asked}"
    );
    let unasked = call("");
    assert_eq!(unasked["ansible_local"], serde_json::json!({}));
    assert!(
        unasked["sonobuoy_unread"]
            .to_string()
            .matches("only with `--run-facts`")
            .count()
            == 4
    );
}

/// The node's own `journalctl` runs below the node's root, as root, without other files.
#[test]
fn journal_is_read_below_another_root() {
    let Some(busybox) = busybox() else { return };
    let call = |script: &str| {
        let call = Sonobuoy::new("gather systemd-logs --unit a --unit b --priority err")
            .file("out/keep", "");
        let script = format!("#!/bin/busybox sh\n{script}\n");
        let call = moded(call, "node/usr/bin/journalctl", script, 0o755);
        let call = moded(call, "node/bin/busybox", &busybox, 0o755);
        let (node, out) = (call.folder().join("node"), call.folder().join("out"));
        call.env("CHROOT_DIR", node)
            .env("RESULTS_DIR", out)
            .env("LOG_MINUTES", "5")
    };
    let arguments = r#"printf '{"MESSAGE":"%s"}\n' "$*""#;
    let expected = "-o json -a --no-pager --since 5 minutes ago --unit=a --unit=b --priority=err";
    let expected = format!("{{\"MESSAGE\":\"{expected}\"}}\n");
    let done = call(arguments).run();
    assert_eq!(done.folder.read("out/systemd_logs"), expected);

    // An unread stderr would block a program after 64 KiB.
    let complaining =
        "i=0; while [ $i -lt 9999 ]; do echo 'a file is damaged, ignored' >&2; i=$((i+1)); done";
    let done = call(&format!("{complaining}; {arguments}")).run();
    assert_eq!(done.folder.read("out/systemd_logs"), expected);

    let done = call(&format!(
        "{arguments}; printf '{{\"MESS'; echo disk gone >&2; exit 3"
    ))
    .stderr_has("`journalctl` broke off (exit status: 3: disk gone)")
    .run();
    let kept = done.folder.read("out/systemd_logs");
    assert!(
        kept.starts_with(&expected) && kept.lines().last().unwrap().contains("broke off"),
        "{kept}"
    );

    // No matching entry in an existing journal is not an error; a missing journal is.
    let journal = "node/var/log/journal/0123456789abcdef/system.journal";
    let done = call("exit 0").file(journal, "").stderr("").run();
    assert_eq!(done.folder.read("out/systemd_logs"), "");
    call("exit 0")
        .status(1)
        .stderr_has("no log is available")
        .run();
    call("echo unreadable >&2")
        .file(journal, "")
        .status(1)
        .stderr_has("unreadable")
        .run();
}

/// Facts that change from second to second, or differ for the reasons in docs/host-facts.md.
const MOVING: &[&str] = &[
    "ansible_date_time",
    "ansible_loadavg",
    "ansible_uptime_seconds",
    "ansible_memfree_mb",
    "ansible_memory_mb",
    "ansible_swapfree_mb",
];

#[test]
fn facts_equal_ansibles() {
    let Some(ansible) = program("ansible") else {
        return;
    };
    let mut ansible = Command::new(ansible);
    let ansible = ansible
        .args(["localhost", "-m", "setup"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(ansible.stdout).unwrap();
    let theirs = facts(text.split_once("=>").unwrap().1);
    let ours = facts(
        &Sonobuoy::new("gather host-facts")
            .stdout_has("{")
            .run()
            .stdout,
    );
    let documented = include_str!("../docs/host-facts.md");
    for (key, theirs) in theirs.as_object().unwrap() {
        match ours.get(key) {
            None => assert!(
                documented.contains(&format!("`{key}`")),
                "`{key}` is missing and not explained"
            ),
            Some(ours) if MOVING.contains(&key.as_str()) => {
                assert_eq!(shape(ours), shape(theirs), "{key}");
            }
            Some(ours) => assert_eq!(settled(key, ours), settled(key, theirs), "{key}"),
        }
    }
}

/// The names inside a value.
fn shape(value: &Value) -> Vec<String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, inner)| format!("{name} {:?}", shape(inner)))
        .collect()
}

/// Before version 2.19, sectors were text.
fn numbers(value: &mut Value) {
    for (key, inner) in value.as_object_mut().into_iter().flatten() {
        if key == "sectors"
            && let Some(count) = inner.as_str().and_then(|text| text.parse::<u64>().ok())
        {
            *inner = count.into();
        }
        numbers(inner);
    }
}

/// Without the order that Ansible leaves to chance, and free space of file systems in use.
fn settled(key: &str, value: &Value) -> Value {
    let mut value = value.clone();
    numbers(&mut value);
    if let Some(interface) = value
        .as_object_mut()
        .filter(|facts| facts.contains_key("device"))
    {
        for name in [
            "features",
            "timestamping",
            "hw_timestamp_filters",
            "phc_index",
        ] {
            interface.remove(name);
        }
    }
    if let Some(list) = value.as_array_mut().filter(|_| key != "ansible_processor") {
        for mount in list.iter_mut().filter_map(Value::as_object_mut) {
            for name in [
                "size_available",
                "block_available",
                "block_used",
                "inode_available",
                "inode_used",
                "dump",
                "passno",
            ] {
                mount.remove(name);
            }
        }
        // Sorted after removal of volatile facts: free blocks must not decide the order.
        list.sort_by_key(ToString::to_string);
    }
    value
}
