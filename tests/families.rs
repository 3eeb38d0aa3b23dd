//! An IPv6-only machine: a run needs no IPv4.

use std::process::Command;

use crate::support::{Archive, Sonobuoy, skipped};

/// Runs a command where the only address is `::1`.
const IPV6_ALONE: &str =
    "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec \"$0\" \"$@\"";

fn alone() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", IPV6_ALONE]);
    command
}

#[test]
fn run_works_on_an_ipv6_only_machine() {
    let there = alone()
        .args(["sh", "-c", "ip -4 -o addr; ip -6 -o addr"])
        .output();
    match there {
        Ok(output) if output.status.success() => {
            let addresses = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                addresses.contains("::1") && !addresses.contains("127.0.0.1"),
                "{addresses}"
            );
        }
        _ => {
            return skipped(
                "root",
                "network namespaces with IPv6 need it, `unshare` and `ip`",
            );
        }
    }
    let definition = "sonobuoy-config: {plugin-name: p, driver: DaemonSet}\nspec:\n  name: plugin\n  command: [sh, -c]\n  \
        args: ['echo $SONOBUOY_AGGREGATOR_URL > $RESULTS_DIR/url; echo $RESULTS_DIR/url > $RESULTS_DIR/done']\n";
    let (run, folder) = Sonobuoy::new("run --local -p p.yaml --local-nodes=2")
        .file("p.yaml", definition)
        .command();
    let mut command = alone();
    command
        .arg(run.get_program())
        .args(run.get_args())
        .current_dir(folder.path())
        .env_clear();
    command
        .envs(
            run.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("TMPDIR", folder.path());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let archive = Archive::only_one_in(folder.path());
    let urls: Vec<_> = archive
        .names()
        .filter(|name| name.ends_with("/url"))
        .collect();
    assert_eq!(urls.len(), 2);
    for url in urls {
        assert!(
            archive.text(url).starts_with("https://[::1]:"),
            "{}",
            archive.text(url)
        );
    }
}
