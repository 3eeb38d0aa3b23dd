//! The modes of the e2e plugin: which tests `--mode` focuses on and skips.
//!
//! Owns only the data; the caller sets the environment variables. The tests that
//! `conformance-lite` skips are in `conformance-lite.txt`, one pattern per line.

/// Which e2e tests run, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Name for `--mode`.
    pub name: &'static str,
    /// Human-readable description.
    pub description: &'static str,
    /// `E2E_FOCUS`.
    pub focus: &'static str,
    /// `E2E_PARALLEL`.
    pub parallel: bool,
    /// Patterns of tests to skip, one per line.
    skip: &'static str,
}

/// Mode required for certification.
pub(crate) const CERTIFIED: &str = "certified-conformance";

/// The names of all modes, in order.
pub(crate) const NAMES: &[&str] = &[CERTIFIED, "conformance-lite", "non-disruptive-conformance", "quick"];

const CONFORMANCE: &str = r"\[Conformance\]";

/// All modes, by name.
pub(crate) const MODES: &[Mode] = &[
    Mode {
        name: CERTIFIED,
        description: "Certified conformance mode runs the entire conformance suite, even disruptive tests. This is \
            typically run in a dev environment to earn the CNCF Certified Kubernetes status.",
        focus: CONFORMANCE,
        skip: "",
        parallel: false,
    },
    Mode {
        name: "conformance-lite",
        description: "An unofficial mode of running the e2e tests which removes some of the longest running tests so \
            that your tests can complete in the fastest time possible while maximizing coverage.",
        focus: CONFORMANCE,
        skip: include_str!("conformance-lite.txt"),
        parallel: true,
    },
    Mode {
        name: "non-disruptive-conformance",
        description: "Non-destructive conformance mode runs all of the conformance tests except those that would \
            disrupt other cluster operations (e.g. tests that may cause nodes to be restarted or impact cluster \
            permissions).",
        focus: CONFORMANCE,
        skip: r"\[Disruptive\]|NoExecuteTaintManager",
        parallel: false,
    },
    Mode {
        name: "quick",
        description: "Quick mode runs a single test to create and destroy a pod. Fastest way to check basic cluster \
            operation.",
        focus: "Pods should be submitted and removed",
        skip: "",
        parallel: false,
    },
];

impl Mode {
    /// Finds a mode by name, ignoring case.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        MODES.iter().find(|mode| mode.name.eq_ignore_ascii_case(name))
    }

    /// `E2E_SKIP`; if empty, the variable must be unset.
    pub(crate) fn skip(&self) -> String {
        self.skip.lines().collect::<Vec<_>>().join("|")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_mode_and_every_skip_compiles() {
        assert_eq!(MODES.iter().map(|mode| mode.name).collect::<Vec<_>>(), NAMES);
        assert!(NAMES.is_sorted());
        assert!(Mode::named("non-disruptive-conformance").is_some());
        for mode in MODES {
            regex::Regex::new(&mode.skip()).unwrap();
            regex::Regex::new(mode.focus).unwrap();
        }
    }

    #[test]
    fn conformance_lite_skips_only_what_it_names() {
        let skip = regex::Regex::new(&Mode::named("Conformance-Lite").unwrap().skip()).unwrap();
        assert!(skip.is_match("[sig-apps] Job should delete a job [Conformance]"));
        assert!(skip.is_match(
            "[sig-node] Probing container should be restarted with a exec \"cat /tmp/health\" liveness probe \
             [NodeConformance] [Conformance]"
        ));
        assert!(
            !skip.is_match("[sig-node] Pods should be submitted and removed [NodeConformance] [Conformance]")
        );
    }
}
