//! Tables of facts of a few nodes: marks, sentences and output.

use super::super::terminal::{Look, TextOutput};
use super::comparison::{MAX_VALUES, VOLATILE_PARTS, ValueCounts};
use super::*;
use base::json::json;
use model::item::FAILED;

fn facts(kernels: &[&str]) -> FactTables {
    let mut facts = FactTables::new(true);
    for (at, kernel) in kernels.iter().enumerate() {
        let document = json!({"ansible_facts": {
            "ansible_distribution": "Debian", "ansible_distribution_version": "12", "ansible_kernel": kernel,
            "ansible_processor_vcpus": 4, "ansible_memtotal_mb": 16_000, "ansible_uptime_seconds": at * 100,
            "sonobuoy_node_info": {"kubeletVersion": "v1.34.2, \"x\""},
        }});
        facts.add_file(
            &format!("n{at}"),
            model::layout::HOST_FACTS,
            document.to_string().as_bytes(),
        );
    }
    facts.complete();
    facts.whole = false;
    facts
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn text(facts: &FactTables) -> String {
    written(|out| {
        facts.write_text(&mut TextOutput {
            look: Look::default(),
            out,
        })
    })
}

#[test]
fn rare_values_are_marked() {
    let text = text(&facts(&["6.1", "6.1", "5.4", "6.1"]));
    assert!(
        text.starts_with("NODE  OS         KERNEL  ARCH  CPUS  MEMORY"),
        "{text}"
    );
    assert!(
        text.contains("\nn2    Debian 12  5.4 *   -     4     16 GiB"),
        "{text}"
    );
    assert!(
        text.ends_with("\n\n* differs from most nodes:\n1 of 4 nodes runs kernel 5.4: n2\n"),
        "{text}"
    );
    // Without a majority nothing is odd, and uptimes never are.
    assert!(!super::tests::text(&facts(&["6.1", "5.4"])).contains('*'));
    assert!(FactTables::default().json().is_err());
}

#[test]
fn numbers_for_programs_have_no_noise() {
    for (number, expected) in [
        (-0.357_532_024_383_544_9, "-0.358"),
        (4.0, "4"),
        (-0.000_1, "0"),
    ] {
        assert_eq!(rounded(number), expected);
    }
}

#[test]
fn facts_are_machine_readable() {
    let mut facts = facts(&["6.1", "6.1", "5.4"]);
    let csv = written(|out| facts.write_csv(out));
    assert_eq!(
        csv.lines().next(),
        Some("node,os,kernel,arch,cpus,memory_gib,disk_gib,runtime,kubelet,clock_s,uptime_s")
    );
    assert_eq!(
        csv.lines().nth(1),
        Some("n0,Debian 12,6.1,,4,16,,,\"v1.34.2, \"\"x\"\"\",,0")
    );
    facts.whole = true;
    let json = facts.json().unwrap();
    let host = &json["facts"]["host-facts"];
    assert_eq!(
        (&host["nodes"]["n2"]["kernel"], &host["odd"][0]["nodes"]),
        (&json!("5.4"), &json!(["n2"]))
    );
    assert_eq!(host["differences"][0]["key"], "ansible_kernel");
    assert_eq!(host["notCompared"], json!(["ansible_uptime_seconds"]));
    let csv = written(|out| facts.write_csv(out));
    assert_eq!(
        csv.lines().nth(2),
        Some("host-facts,ansible_kernel,5.4,1,n2"),
        "{csv}"
    );
    let text = text(&facts);
    assert!(
        text.contains("\n  ansible_kernel: 6.1 on 2 nodes; 5.4 on 1 node: n2\n"),
        "{text}"
    );
    assert!(
        text.contains("always differ (times, counters, addresses): ansible_uptime_seconds\n"),
        "{text}"
    );
}

#[test]
fn changed_facts_of_a_node_differ() {
    let changes = facts(&["6.1", "6.1"]).changes(&facts(&["6.1", "6.2", "7"]));
    assert_eq!(changes, ["n1: kernel 6.1 -> 6.2"]);
}

fn see(facts: &mut FactTables, plugin: &str, node: &str, file: &str, text: &str) {
    let found = Delivered {
        plugin,
        node,
        file,
        is_result: true,
    };
    facts.see(found, &mut text.as_bytes()).unwrap();
}

#[test]
fn connectivity_and_logs_are_tables() {
    let mut facts = FactTables::new(false);
    for (node, connect, offset, errors) in [
        ("n1", 1.0, 0.01, 5),
        ("n2", 2.0, -0.02, 0),
        ("n3", 400.0, 341.2, 900),
    ] {
        let status = if offset > 1.0 { FAILED } else { "passed" };
        see(
            &mut facts,
            "network",
            node,
            "results/x/network.yaml",
            &format!(
                "name: network\nstatus: {status}\nitems:\n- name: dns\n  status: passed\n  \
                 details:\n    servers:\n    - latency_ms: 1.5\n    - latency_ms: 2.5\n- name: \
                 api\n  status: passed\n  details:\n    connect_ms: {connect}\n    handshake_ms: \
                 2\n- name: clock\n  status: {status}\n  details:\n    offset_seconds: {offset}\n"
            ),
        );
        see(
            &mut facts,
            "logs",
            node,
            "results/x/systemd-logs/log-summary.yaml",
            &format!(
                "name: log-summary\nstatus: passed\ndetails:\n  entries: 1000\n  priorities:\n    \
                 err: {errors}\nitems:\n- name: trouble\n  status: passed\n  items:\n  - name: \
                 oom-kill\n    status: {}\n- name: units-with-errors\n  status: passed\n  \
                 items:\n  - name: a.service\n    status: passed\n    details:\n      errors: \
                 {errors}\n",
                if errors > 800 { FAILED } else { "passed" }
            ),
        );
    }
    facts.complete();
    let text = text(&facts);
    for line in [
        "What the nodes reach, and how fast (network)\n\nNODE  FAILED   DNS     API         \
         AGGREGATOR  PEERS  PEER LATENCY  PEER MTU  CLOCK\n",
        "\nn3    clock *  2.5 ms  402.0 ms *  -           -      -             -         +341.2 s *\n",
        "\nAPI: median 4.0 ms, highest 402.0 ms (n3)\n",
        "\nClock: median 0 s, furthest +341.2 s (n3)\n",
        "\n1 of 3 nodes fails at: clock: n3\n1 of 3 nodes is slow to reach the API server: n3\n",
        "\n1 of 3 nodes has a clock that is off: n3\n",
        "\nn3    oom-kill *  1,000    0         900 *   0         1      a.service (900)\n",
        "\n1 of 3 nodes logs trouble: oom-kill: n3\n1 of 3 nodes logs many errors: n3\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let error = facts.write_csv(&mut Vec::new()).unwrap_err().to_string();
    assert_eq!(
        error,
        "CSV is one table; choose with --plugin one of network, systemd-logs"
    );
}

#[test]
fn naturally_varying_facts_are_not_compared() {
    assert!(VOLATILE_PARTS.is_sorted(), "searched by halves");
    let mut keys = ValueCounts::default();
    for (node, swap) in [("n1", 60), ("n2", 60), ("n3", 10)] {
        let mount = |name: &str| json!({"mount": name, "size_available": swap, "fstype": "ext4"});
        keys.add(
            node,
            &json!({
                "ansible_uptime_seconds": swap, "ansible_ssh_host_key_rsa_public": node,
                "ansible_veth0a1b2c10d4": {"mtu": swap}, "ansible_veth07680169": {"mtu": swap},
                "sonobuoy_sysctl": {"vm.swappiness": swap, "vm.overcommit": 1},
                "ansible_mounts": [mount("/"), mount("/data")],
                "list": ["a", node],
            }),
        );
    }
    let volatile: Vec<_> = keys.volatile.iter().map(String::as_str).collect();
    assert_eq!(
        volatile,
        [
            "ansible_mounts[/].size_available",
            "ansible_mounts[/data].size_available",
            "ansible_ssh_host_key_rsa_public",
            "ansible_uptime_seconds",
            "ansible_veth*",
        ]
    );
    let differences = keys.differences();
    let told: Vec<_> = differences
        .iter()
        .map(|difference| (&*difference.key, difference.values.len()))
        .collect();
    assert_eq!(
        told,
        [("sonobuoy_sysctl[\"vm.swappiness\"]", 2), ("list", 3)]
    );
    assert_eq!(differences[0].values[1].nodes, ["n3"]);
}

#[test]
fn many_values_are_bounded() {
    let mut keys = ValueCounts::default();
    let only = |node: i32| if node == 7 { json!(true) } else { json!({}) };
    for node in 0..100 {
        keys.add(
            &format!("n{node}"),
            &json!({"errors": node, "only": only(node)}),
        );
    }
    let differences = keys.differences();
    assert_eq!(differences[0].key, "only");
    assert_eq!(
        (
            differences[0].values[0].value.as_deref(),
            differences[0].values[0].count
        ),
        (None, 99)
    );
    let errors = &differences[1];
    assert_eq!((errors.values.len(), errors.others), (MAX_VALUES, 92));
}
