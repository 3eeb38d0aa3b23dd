//! Sections of man pages other than flags: examples, exit status, environment, files.
//!
//! Owns these texts. A test parses the commands of the examples.

/// Example calls, by command.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "sonobuoy run",
        &[
            ("sonobuoy run --local -p disk.yaml --local-nodes 3", "Try a plugin on this machine:"),
            ("sonobuoy run --wait --mode quick", "One conformance test, to see whether it works:"),
            (
                "sonobuoy run --wait --retrieve . --junit report.xml --delete --fail-on unknown",
                "Everything a pipeline needs:",
            ),
            (
                "sonobuoy run --wait=2h --timeout 90m -p disk.yaml --output json",
                "Events for another program:",
            ),
        ],
    ),
    (
        "sonobuoy wait",
        &[("sonobuoy wait --wait=2h --retrieve .", "Wait for a run that was started elsewhere:")],
    ),
    (
        "sonobuoy status",
        &[
            ("sonobuoy status --watch", "Watch a run until it is over:"),
            ("sonobuoy status --json", "Print the whole status once:"),
        ],
    ),
    (
        "sonobuoy retrieve",
        &[
            ("sonobuoy retrieve", "Fetch the archive; its name is printed:"),
            ("sonobuoy retrieve --partial", "Look at what has arrived so far:"),
        ],
    ),
    (
        "sonobuoy results",
        &[
            ("sonobuoy results latest", "Report on the newest archive in this folder:"),
            ("sonobuoy results latest --format html", "A page to open in a browser:"),
            ("sonobuoy results diff before.tar.gz after.tar.gz", "Compare two runs:"),
        ],
    ),
    (
        "sonobuoy gen plugin",
        &[
            ("sonobuoy gen plugin --example python", "An example that works as it is:"),
            (
                "sonobuoy gen plugin --name disk --image registry.local/disk:v1 --type DaemonSet",
                "From an image:",
            ),
        ],
    ),
    (
        "sonobuoy images",
        &[
            (
                "sonobuoy images push --custom-registry registry.local --kubernetes-version v1.33.1",
                "Copy what a run needs:",
            ),
            ("sonobuoy images download --kubernetes-version v1.33.1", "Save all of it in one file:"),
        ],
    ),
    (
        "sonobuoy doctor",
        &[
            ("sonobuoy doctor -p disk.yaml", "Check whether this run would succeed:"),
            (
                "sonobuoy doctor --nodes all --format junit",
                "Measure the network of every node, for a pipeline:",
            ),
        ],
    ),
    (
        "sonobuoy certify",
        &[(
            "sonobuoy certify run.tar.gz --product product.yaml -o submission",
            "Check a run and write its submission:",
        )],
    ),
    ("sonobuoy delete", &[("sonobuoy delete --wait", "Clean up:")]),
    ("sonobuoy logs", &[("sonobuoy logs -p disk --follow", "Follow what a plugin prints:")]),
];

/// Exit codes, by command; the first entry is for all others.
const EXIT_STATUS: &[(&str, &[(&str, &str)])] = &[
    ("", &[("0", "It succeeded."), ("1", "It failed; the last line on standard error says why.")]),
    (
        "sonobuoy run",
        &[
            ("0", "The run was started; with --wait, it is complete, regardless of test results."),
            ("1", "It could not be started, failed, did not finish in time, or delivered only errors."),
            ("2", "Its archive could not be fetched or uploaded."),
            (
                "3",
                "--fail-on found failed or missing results (with flaky, flaky ones, too), or --certify a run that is not ready.",
            ),
            ("4", "--fail-on found unknown results, but no failed ones."),
            ("130", "Ctrl-C ended the wait, or a run on this machine."),
        ],
    ),
    (
        "sonobuoy wait",
        &[
            ("0", "The run is complete, regardless of test results."),
            ("1", "The run does not exist, failed, did not finish in time, or delivered only errors."),
            ("2", "Its archive could not be fetched or uploaded."),
            ("3", "--fail-on found failed or missing results, or --certify a run that is not ready."),
            ("4", "--fail-on found unknown results, but no failed ones."),
            ("130", "Ctrl-C ended the wait."),
        ],
    ),
    (
        "sonobuoy status",
        &[
            ("0", "The run is in progress or complete, regardless of test results."),
            (
                "1",
                "There is no run, it has failed, its aggregator cannot continue, or it delivered only errors.",
            ),
            ("130", "Ctrl-C ended the watch."),
        ],
    ),
    (
        "sonobuoy retrieve",
        &[
            ("0", "The archive was fetched."),
            ("1", "The command line is wrong, or the cluster could not be queried."),
            ("2", "There is no run or no archive yet, or the transfer failed; a later attempt may succeed."),
        ],
    ),
    (
        "sonobuoy results",
        &[
            ("0", "The report was written."),
            ("1", "The archive could not be read."),
            ("3", "--fail-on found failed or missing results; with flaky, flaky ones, too."),
            ("4", "--fail-on found unknown results, but no failed ones."),
        ],
    ),
    (
        "sonobuoy results diff",
        &[
            ("0", "The difference was written."),
            ("1", "An archive could not be read."),
            ("3", "--fail-on found new failures."),
            ("4", "--fail-on found tests that are newly unknown or missing, but no new failures."),
        ],
    ),
    (
        "sonobuoy doctor",
        &[
            ("0", "Nothing was found that would make the run fail; there may be warnings."),
            ("1", "The command line, a plugin or the kubeconfig is wrong."),
            ("3", "Something would fail."),
            ("130", "Ctrl-C ended the checks."),
        ],
    ),
    (
        "sonobuoy certify",
        &[
            ("0", "The run is ready for certification."),
            ("1", "The archive or the product could not be read, or the submission could not be written."),
            ("3", "The run is not ready."),
        ],
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("KUBECONFIG", "Kubeconfig files, as for kubectl."),
    ("SONOBUOY_DIR", "Folder of installed plugins and of kept authorities, instead of ~/.sonobuoy."),
    ("HTTPS_PROXY, NO_PROXY", "Proxies, as for other programs."),
    ("NO_COLOR", "No colours, if it is not empty."),
    ("TERM", "With \"dumb\", nothing is drawn in place."),
];

const FILES: &[(&str, &str)] = &[
    ("~/.kube/config", "The kubeconfig, unless another is named."),
    ("~/.sonobuoy", "Installed plugins; authorities of runs, which the seals of archives are checked with."),
];

fn of<'t, T>(table: &'t [(&str, &'t [T])], name: &str) -> Option<&'t [T]> {
    table.iter().find(|(command, _)| *command == name).map(|(_, rows)| *rows)
}

/// The examples of a command: calls and their purposes.
pub(crate) fn examples(name: &str) -> &'static [(&'static str, &'static str)] {
    of(EXAMPLES, name).unwrap_or_default()
}

/// The sections after the flags except for examples: titles with rows.
pub(crate) fn sections(name: &str) -> [(&'static str, &'static [(&'static str, &'static str)]); 3] {
    let status = of(EXIT_STATUS, name).or_else(|| of(EXIT_STATUS, "")).unwrap_or_default();
    [("EXIT STATUS", status), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)]
}
