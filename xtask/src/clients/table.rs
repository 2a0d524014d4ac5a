//! The table of the results.

use super::list::{Client, Suite};
use std::fmt::Write;

pub(super) struct Row {
    client: String,
    suite: String,
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    /// The reasons of the failures, with their counts.
    pub(super) reasons: Vec<(String, usize)>,
    /// Why the client did not run.
    not_run: Option<String>,
}

impl Row {
    pub(super) fn new(name: &str, client: &Client, suite: &Suite) -> Self {
        Self {
            client: format!("{name} {}", client.version),
            suite: suite.name.clone(),
            passed: 0,
            failed: 0,
            skipped: 0,
            reasons: Vec::new(),
            not_run: None,
        }
    }

    pub(super) fn not_run(name: &str, client: &Client, why: &str) -> Self {
        Self {
            client: format!("{name} {}", client.version),
            suite: "all".to_owned(),
            passed: 0,
            failed: 0,
            skipped: 0,
            reasons: Vec::new(),
            not_run: Some(why.to_owned()),
        }
    }

    fn why(&self) -> String {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut text = String::new();
        for (reason, count) in reasons {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{count} × {reason}");
        }
        text
    }
}

/// Returns the table in Markdown.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "| client | suite | passed | failed | skipped | why |\n|---|---|--:|--:|--:|---|\n",
    );
    for row in rows {
        let _ = match &row.not_run {
            Some(why) => writeln!(text, "| {} | {} | | | | {why} |", row.client, row.suite),
            None => writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.client,
                row.suite,
                row.passed,
                row.failed,
                row.skipped,
                row.why()
            ),
        };
    }
    text
}
