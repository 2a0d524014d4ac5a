//! Says why a program failed that a command ran.

use std::fmt::Display;
use std::process::ExitStatus;

use anyhow::{Result, bail};

/// The number of lines of a log that [`check_log`] shows.
const LAST: usize = 30;

/// Returns an error with `what` and the status of a program, unless it succeeded.
pub(crate) fn check(status: ExitStatus, what: impl Display) -> Result<()> {
    check_log(status, what, "")
}

/// As [`check`]. The error also has the last lines of the program's output.
pub(crate) fn check_log(status: ExitStatus, what: impl Display, log: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let lines: Vec<&str> = log.trim_end().lines().collect();
    match lines.len().saturating_sub(LAST) {
        _ if lines.is_empty() => bail!("{what} ({status})"),
        0 => bail!("{what} ({status}):\n{}", lines.join("\n")),
        left_out => bail!(
            "{what} ({status}); after {left_out} other lines:\n{}",
            lines[left_out..].join("\n")
        ),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::{LAST, check, check_log};
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn an_error_has_the_status_and_the_last_lines() {
        assert!(check(ExitStatus::from_raw(0), "a test").is_ok());
        let failed = ExitStatus::from_raw(3 << 8);
        let error = check(failed, "a test failed").expect_err("a status");
        assert_eq!(error.to_string(), "a test failed (exit status: 3)");
        let log: String = (0..LAST + 2).map(|line| format!("line {line}\n")).collect();
        let error = check_log(failed, "a test failed", &log).expect_err("a status");
        let text = error.to_string();
        assert!(text.contains("after 2 other lines:\nline 2\n"), "{text}");
        assert!(text.ends_with(&format!("line {}", LAST + 1)), "{text}");
        let killed = ExitStatus::from_raw(9);
        let error = check_log(killed, "it ended", "short\n").expect_err("a signal");
        assert!(error.to_string().contains("signal: 9"), "{error}");
        assert!(error.to_string().ends_with("short"), "{error}");
    }
}
