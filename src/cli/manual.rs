//! What man pages have beyond the table of flags: examples, exit status, environment, files.
//!
//! Owns these words. The calls of the examples are run by a test as those of all pages are.

/// Calls that people copy, by command.
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
            ("sonobuoy results latest", "Report on the newest archive here:"),
            ("sonobuoy results latest --format html", "A page to open in a browser:"),
            ("sonobuoy results diff before.tar.gz after.tar.gz", "What has changed between two runs:"),
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
            ("sonobuoy images download --kubernetes-version v1.33.1", "All of it in one file:"),
        ],
    ),
    ("sonobuoy delete", &[("sonobuoy delete --wait", "Leave the cluster as it was:")]),
    ("sonobuoy logs", &[("sonobuoy logs -p disk --follow", "Follow what a plugin prints:")]),
];

/// What the exit status means, by command; the first is for all others.
const EXIT_STATUS: &[(&str, &[(&str, &str)])] = &[
    ("", &[("0", "It succeeded."), ("1", "It failed; the last line on standard error says why.")]),
    (
        "sonobuoy run",
        &[
            ("0", "The run was started; with --wait, it is complete, whatever its tests say."),
            ("1", "It could not be started, failed, or did not finish in time."),
            ("2", "Its archive could not be fetched."),
            ("3, 4", "--fail-on found failed or missing results (3), or unknown ones (4)."),
            ("130", "Ctrl-C ended the waiting, or a run on this machine."),
        ],
    ),
    (
        "sonobuoy status",
        &[
            ("0", "The run is still going on, or complete."),
            ("1", "The run has failed, its aggregator cannot continue, or there is no run."),
            ("130", "Ctrl-C ended the watching."),
        ],
    ),
    (
        "sonobuoy retrieve",
        &[
            ("0", "The archive is here."),
            ("1", "There is none yet, or the cluster could not be asked."),
            ("2", "The transfer failed."),
        ],
    ),
    (
        "sonobuoy results",
        &[
            ("0", "The report was written."),
            ("1", "The archive could not be read."),
            ("3, 4", "--fail-on found failed or missing results (3), or unknown ones (4)."),
        ],
    ),
    (
        "sonobuoy results diff",
        &[
            ("0", "The archives were compared."),
            ("1", "An archive could not be read."),
            ("3, 4", "--fail-on found tests that newly fail (3), or are newly unknown or vanished (4)."),
        ],
    ),
];

/// What the environment changes.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("KUBECONFIG", "Kubeconfig files, as for kubectl."),
    ("SONOBUOY_DIR", "Folder of installed plugins and of kept authorities, instead of ~/.sonobuoy."),
    ("HTTPS_PROXY, NO_PROXY", "How servers are reached, as for other programs."),
    ("NO_COLOR", "No colours, if it is not empty."),
    ("TERM", "With \"dumb\", nothing is drawn in place."),
];

/// Where things are.
const FILES: &[(&str, &str)] = &[
    ("~/.kube/config", "The kubeconfig, unless another is named."),
    ("~/.sonobuoy", "Installed plugins; authorities of runs, which the seals of archives are checked with."),
];

fn of<'t, T>(table: &'t [(&str, &'t [T])], name: &str) -> Option<&'t [T]> {
    table.iter().find(|(command, _)| *command == name).map(|(_, rows)| *rows)
}

/// The examples of a command: the calls, and what each is for.
pub(crate) fn examples(name: &str) -> &'static [(&'static str, &'static str)] {
    of(EXAMPLES, name).unwrap_or_default()
}

/// The sections that follow the flags, but for examples: titles with rows.
pub(crate) fn sections(name: &str) -> [(&'static str, &'static [(&'static str, &'static str)]); 3] {
    let name = if name == "sonobuoy wait" { "sonobuoy run" } else { name };
    let status = of(EXIT_STATUS, name).or_else(|| of(EXIT_STATUS, "")).unwrap_or_default();
    [("EXIT STATUS", status), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)]
}
