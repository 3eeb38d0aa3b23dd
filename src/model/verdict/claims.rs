//! What a file of results claims about itself, against what was read of it: whoever reads less than
//! was written does not pass.
//!
//! Tools count differently: an outer suite may sum up the inner ones or not, skipped tests may be
//! counted or not, and a test that fails twice may count twice. So a claim is only refuted if it
//! exceeds every way of counting what was read.

use base::words::count;

/// The attributes of a `<testsuite>` or `<testsuites>` that are numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuiteClaims {
    /// `tests`.
    pub tests: u64,
    /// `failures` and `errors` together.
    pub failures: u64,
    /// `skipped`, `disabled` and similar ones together: tests that may be counted without being
    /// listed.
    pub not_run: u64,
}

/// What was read of a suite, with the suites inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuiteContent {
    /// Number of test cases.
    pub tests: u64,
    /// Number of failures and errors; a test may have several.
    pub failures: u64,
    /// Number of test cases that did not run.
    pub not_run: u64,
}

impl SuiteContent {
    /// Adds the content of a suite inside this one.
    pub fn add(&mut self, inner: Self) {
        self.tests += inner.tests;
        self.failures += inner.failures;
        self.not_run += inner.not_run;
    }

    /// What the suite claims beyond its content, with both numbers; the content then counts as
    /// claimed, so that outer suites do not report the same.
    pub fn refute(&mut self, claims: &SuiteClaims) -> Option<String> {
        let unlisted = claims.not_run.saturating_sub(self.not_run);
        let mut missing = Vec::new();
        if claims.failures > self.failures {
            missing.push(format!(
                "{}, of which {} can be read",
                failures(claims.failures),
                self.failures
            ));
            self.failures = claims.failures;
        }
        // A test that passes and whose cleanup fails counts twice in some tools.
        if claims.tests > self.tests + unlisted + self.failures {
            missing.push(format!(
                "{}, of which {} can be read",
                count(claims.tests, "test"),
                self.tests
            ));
            self.tests = claims.tests;
        }
        (!missing.is_empty()).then(|| format!("the suite claims {}", missing.join("; and ")))
    }
}

fn failures(number: u64) -> String {
    count(number, "failure or error").replace("failure or errors", "failures and errors")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests, failures and tests that did not run: claimed, and read.
    fn check(claims: [u64; 3], content: [u64; 3], expected: Option<&str>) {
        let [tests, failures, not_run] = claims;
        let claims = SuiteClaims {
            tests,
            failures,
            not_run,
        };
        let [tests, failures, not_run] = content;
        let mut content = SuiteContent {
            tests,
            failures,
            not_run,
        };
        assert_eq!(
            content.refute(&claims).as_deref(),
            expected,
            "{claims:?} {content:?}"
        );
        assert_eq!(content.refute(&claims), None, "it is reported once");
    }

    #[test]
    fn claims_beyond_the_content_are_refuted() {
        let failures = "the suite claims 2 failures and errors, of which 0 can be read";
        check([0, 2, 0], [3, 0, 0], Some(failures));
        check(
            [0, 1, 0],
            [3, 0, 0],
            Some("the suite claims 1 failure or error, of which 0 can be read"),
        );
        check(
            [5, 0, 0],
            [3, 0, 0],
            Some("the suite claims 5 tests, of which 3 can be read"),
        );
        check(
            [5, 0, 1],
            [3, 0, 0],
            Some("the suite claims 5 tests, of which 3 can be read"),
        );
        check(
            [5, 0, 2],
            [3, 0, 2],
            Some("the suite claims 5 tests, of which 3 can be read"),
        );
        check(
            [9, 2, 0],
            [3, 0, 0],
            Some(&format!("{failures}; and 9 tests, of which 3 can be read")),
        );
    }

    #[test]
    fn other_ways_of_counting_are_accepted() {
        check([0, 0, 0], [3, 1, 1], None);
        check([3, 1, 1], [3, 1, 1], None);
        check([2, 1, 1], [5, 2, 1], None);
        check([5, 0, 2], [3, 0, 0], None);
        check([2, 1, 0], [1, 1, 0], None);
    }
}
