//! Compares results with the list of failures.

use super::list::{Client, Failure, Suite};
use super::table::Row;
use super::{Test, Verdict};
use std::collections::BTreeMap;

pub(super) struct Judge<'a> {
    name: &'a str,
    client: &'a Client,
    entries: Vec<Entry<'a>>,
    wrong: Vec<String>,
}

/// One test id of one `[[failure]]`, or a prefix of ids.
struct Entry<'a> {
    test: &'a str,
    failure: &'a Failure,
    /// Tests that failed.
    failed: usize,
    /// Tests that passed or were skipped.
    others: usize,
}

impl Entry<'_> {
    fn matches(&self, id: &str) -> bool {
        match self.test.strip_suffix('*') {
            Some(prefix) => id.starts_with(prefix),
            None => id == self.test,
        }
    }
}

impl<'a> Judge<'a> {
    pub(super) fn new(name: &'a str, client: &'a Client) -> Self {
        let mut entries = Vec::new();
        for failure in &client.failure {
            for test in failure.tests() {
                entries.push(Entry { test, failure, failed: 0, others: 0 });
            }
        }
        // The longest prefix decides.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.test.len()));
        Self { name, client, entries, wrong: Vec::new() }
    }

    /// Counts the tests of a suite.
    pub(super) fn suite(&mut self, suite: &Suite, tests: &[Test]) -> Row {
        let mut row = Row::new(self.name, self.client, suite);
        let mut reasons = BTreeMap::new();
        for test in tests {
            let entry = self.entries.iter_mut().find(|entry| entry.matches(&test.id));
            match (&test.verdict, entry) {
                (Verdict::Failed(_), Some(entry)) => {
                    row.failed += 1;
                    entry.failed += 1;
                    *reasons.entry(entry.failure.reason.as_str()).or_insert(0) += 1;
                }
                (Verdict::Failed(why), None) => {
                    row.failed += 1;
                    *reasons.entry("NOT LISTED").or_insert(0) += 1;
                    let id = &test.id;
                    let text = format!("{}: {id} fails without an entry: {why}", self.name);
                    self.wrong.push(text);
                }
                (verdict, entry) => {
                    if *verdict == Verdict::Passed {
                        row.passed += 1;
                    } else {
                        row.skipped += 1;
                    }
                    if let Some(entry) = entry {
                        entry.others += 1;
                    }
                }
            }
        }
        if row.passed < suite.at_least {
            self.wrong.push(format!(
                "{}: {} tests of {} passed; at least {} must pass",
                self.name, row.passed, suite.name, suite.at_least
            ));
        }
        row.reasons =
            reasons.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect();
        row
    }

    /// Returns what differs from the list. With `all`, all suites ran, so each entry must have a test.
    pub(super) fn finish(mut self, all: bool) -> Vec<String> {
        for entry in &self.entries {
            let what = match (entry.failed, entry.others) {
                (0, 0) if all => "names no test that ran",
                (0, 1..) => "has no test that fails any more",
                _ => continue,
            };
            self.wrong.push(format!("{}: the entry {:?} {what}; remove it", self.name, entry.test));
        }
        self.wrong
    }
}
