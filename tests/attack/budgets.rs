//! Excessive use: each limit of the configuration, and the response to clients that exceed it.

use std::fmt::Write as _;

use crate::channel::{put, with_aggregator};
use crate::support::peer::Peer;
use crate::support::{Archive, Sonobuoy};
use sonobuoy::outside::Limits;

pub(super) const CASES: usize = RUNS.len() + 6;

/// Name, limits, the plugin's actions before it is done with `out`, and the expected message.
const RUNS: &[(&str, &str, &str, &str)] = &[
    (
        "a result that is too large",
        r#"{"Results": {"Bytes": 1000}}"#,
        "head -c 2000 /dev/zero > out",
        "more than 1000 bytes (`Limits.Results.Bytes`)",
    ),
    (
        "a folder that unpacks to too much",
        r#"{"Results": {"UnpackedBytes": 100000}}"#,
        "mkdir out; head -c 200000 /dev/zero > out/a",
        "more than 100000 (`Limits.Results`)",
    ),
    (
        "a folder of too many files",
        r#"{"Results": {"Entries": 20}}"#,
        "mkdir out; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir out/$n; echo x > out/$n/x; done",
        "more than 20 entries (`Limits.Results`)",
    ),
    (
        "more than the plugin may have",
        r#"{"Plugin": {"Bytes": 100000}}"#,
        "head -c 200000 /dev/zero > out",
        "more than 100000 bytes (`Limits.Plugin`)",
    ),
    (
        "more files than the plugin may have",
        r#"{"Plugin": {"Inodes": 10}}"#,
        "mkdir out; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo x > out/$n; done",
        "more than 10 inodes (`Limits.Plugin`)",
    ),
    (
        "a report that takes long to read",
        r#"{"Processing": {"Time": "1ms"}}"#,
        "{ printf '<testsuite>'; yes '<testcase name=\"a\"/>' | head -n 200000; printf '</testsuite>'; } > out",
        "reading them took more than 1ms (`Limits.Processing.Time`)",
    ),
];

#[test]
fn exceeded_limit_fails_its_plugin_alone() {
    for (name, limits, script, words) in RUNS {
        let plugin = |name: &str, script: &str| {
            let mut text = format!(
                "sonobuoy-config: {{driver: Job, plugin-name: {name}, result-format: junit}}\n"
            );
            write!(
                text,
                "spec:\n  name: plugin\n  command: [sh, -c]\n  args:\n  - |\n      cd $RESULTS_DIR\n"
            )
            .unwrap();
            write!(
                text,
                "      {script}\n      case $(ls) in out) mv out out.xml 2>/dev/null || true; esac\n"
            )
            .unwrap();
            text + "      [ -d out.xml ] && mv out.xml out; ls -d $RESULTS_DIR/out* > done\n"
        };
        let run = Sonobuoy::new("run --local --config run.json -p evil.yaml -p honest.yaml")
            .file("evil.yaml", plugin("evil", script))
            .file(
                "honest.yaml",
                plugin(
                    "honest",
                    "echo '<testsuite><testcase name=\"a\"/></testsuite>' > out",
                ),
            )
            .file("run.json", format!("{{\"Limits\": {limits}}}"));
        // Incomplete processing is an error of the run.
        let code = i32::from(limits.contains("Processing"));
        let done = run.status(code).run_any();
        let archive = Archive::only_one_in(done.folder.path());
        let tree = archive
            .text("plugins/evil/sonobuoy_results.yaml")
            .replace("\n", " ");
        let tree = tree.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            tree.contains(words) && tree.contains("status: failed"),
            "{name}: {tree}"
        );
        if !limits.contains("Processing") {
            let honest = archive.text("plugins/honest/sonobuoy_results.yaml");
            assert!(honest.contains("status: passed"), "{name}: {honest}");
        }
    }
}

#[test]
fn decompression_bomb_costs_no_other_result() {
    let definition = "sonobuoy-config: {driver: DaemonSet, plugin-name: zeros, result-format: raw}\n\
        spec:\n  name: plugin\n  command: [sh, -c]\n  args:\n  - |\n      \
        cd $RESULTS_DIR; mkdir out; mib=1; case $NODE_NAME in *-2) mib=7;; *) sleep 3; esac\n      \
        head -c ${mib}M /dev/zero > out/zeros; echo $RESULTS_DIR/out > done\n";
    let run =
        Sonobuoy::new("run --local --config run.json --local-nodes 3 --timeout 10 -p zeros.yaml")
            .file("zeros.yaml", definition)
            .file("run.json", r#"{"Limits": {"Run": {"Bytes": 16777216}}}"#);
    let done = run.run_any();
    let tree = Archive::only_one_in(done.folder.path()).text("plugins/zeros/sonobuoy_results.yaml");
    assert!(tree.contains("-2\n  status: failed\n"), "{tree}");
    assert_eq!(tree.matches("\n  status: passed\n").count(), 2, "{tree}");
    assert!(
        done.stderr.contains("was refused with 507"),
        "{}",
        done.stderr
    );
}

#[test]
fn excess_progress_and_uploads_are_rejected_with_reason() {
    with_aggregator(Limits::default(), |aggregator| {
        let update = |lines: &str, body: &str| {
            format!(
                "POST /api/v1/progress/by-node/n/p HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n{body}"
            )
        };
        let large = update(&format!("Content-Length: {}\r\n", (1 << 20) + 1), "");
        let answer = aggregator.worker.say(large);
        assert!(
            answer.starts_with("HTTP/1.1 413 ") && answer.contains("Limits.Progress.Bytes"),
            "{answer}"
        );
        let endless = format!(
            "{:x}\r\n{}\r\n0\r\n\r\n",
            (1 << 20) + 1,
            " ".repeat((1 << 20) + 1)
        );
        let answer = aggregator
            .worker
            .say(update("Transfer-Encoding: chunked\r\n", &endless));
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");

        // Four of the largest are the plugin's share of body memory. A short one needs no permit.
        let held: Vec<_> = (0..4)
            .map(|_| {
                let mut held = aggregator.worker.connect();
                let head = format!("Expect: 100-continue\r\nContent-Length: {}\r\n", 1 << 20);
                assert!(held.begin(update(&head, "")) && held.hears("HTTP/1.1 100 Continue"));
                held
            })
            .collect();
        let answer = aggregator
            .worker
            .say(update("Content-Length: 90000\r\n", &" ".repeat(90_000)));
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"),
            "{answer}"
        );
        assert!(answer.contains("Limits.Progress.ReadingBytes"), "{answer}");
        let answer = aggregator.worker.say(update("Content-Length: 2\r\n", "{}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        drop(held);

        // A fast sender keeps its connection.
        let mut first = aggregator.worker.connect();
        assert!(first.begin(put(
            "Expect: 100-continue\r\nContent-Length: 100000000\r\n",
            ""
        )));
        assert!(
            first.hears("HTTP/1.1 100 Continue"),
            "the result is being uploaded"
        );
        let answer = std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                aggregator
                    .worker
                    .say(put("Content-Length: 70000\r\n", &"x".repeat(70_000)))
            });
            while !second.is_finished() {
                assert!(first.begin([b'x'; 1_000]));
                base::stop::Stop::new().wait(std::time::Duration::from_millis(5));
            }
            second.join().unwrap()
        });
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("another upload of this result"),
            "{answer}"
        );
        first.leave(false);
        aggregator.takes_a_result();
    });
}

#[test]
fn expired_certificate_is_rejected() {
    use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
    with_aggregator(Limits::default(), |aggregator| {
        let state = aggregator
            .results
            .ancestors()
            .nth(3)
            .unwrap()
            .with_extension("state");
        let pem = std::fs::read_to_string(state.join("authority.pem")).unwrap();
        let key = pem[pem.find("-----BEGIN PRIVATE KEY").unwrap()..].to_owned();
        let key = KeyPair::from_pem(&key).unwrap();
        // Signed like the run's CA, whose name is derived from its key.
        let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key_raw());
        let name: String = digest.as_ref()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut authority = CertificateParams::default();
        authority.distinguished_name = rcgen::DistinguishedName::new();
        authority
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "Sonobuoy");
        authority
            .distinguished_name
            .push(rcgen::DnType::CommonName, format!("run authority {name}"));
        let issuer = Issuer::new(authority, key);
        for (years, good) in [
            ((2020, 2021), false),
            ((2020, 2099), true),
            ((2098, 2099), false),
        ] {
            let own = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.subject_alt_names =
                vec![SanType::URI("sonobuoy://plugin/p".try_into().unwrap())];
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            params.use_authority_key_identifier_extension = true;
            (params.not_before, params.not_after) = (
                rcgen::date_time_ymd(years.0, 1, 1),
                rcgen::date_time_ymd(years.1, 1, 1),
            );
            let certificate = params.signed_by(&own, &issuer).unwrap().pem();
            let key = own.serialize_pem();
            let (url, authority) = (
                &aggregator.access.aggregator_url,
                &aggregator.access.ca_cert,
            );
            let peer = Peer::new(url, authority, Some((&certificate, &key)));
            let answer = peer.say(
                "GET /api/v1/health/by-node/n/p HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            );
            assert_eq!(
                answer.starts_with("HTTP/1.1 200 "),
                good,
                "{years:?}: {answer}"
            );
            assert_eq!(answer.contains("alert"), !good, "{years:?}: {answer}");
        }
        aggregator.takes_a_result();
    });
}
