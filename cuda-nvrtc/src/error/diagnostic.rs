//! Errors in the compiler's log.

/// An error in a source text, as the compiler's log describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The name of the program, or of a header.
    pub file: String,
    /// The line, counted from one.
    pub line: u32,
    /// The compiler's message.
    pub message: String,
    /// The text of the line without white space at its ends, if the log or the program has it.
    pub source: Option<String>,
}

impl Diagnostic {
    /// Returns the first error of a log. The log has errors as `k.cu(3): error: message`. Since CUDA 12, the line
    /// of the source and a line that marks the position follow. Otherwise `text_of` returns the text of a file.
    pub(crate) fn first_error<'a>(
        log: &str,
        text_of: impl FnOnce(&str) -> Option<&'a str>,
    ) -> Option<Self> {
        let mut lines = log.lines();
        while let Some(line) = lines.next() {
            let Some((file, number, message)) = split(line) else {
                continue;
            };
            let in_log = lines.next().filter(|source| source.starts_with("  "));
            let in_text = || text_of(file)?.lines().nth(number.checked_sub(1)? as usize);
            let source = in_log.map(str::to_owned).or_else(|| in_text().map(str::to_owned));
            return Some(Self {
                file: file.to_owned(),
                line: number,
                message: message.to_owned(),
                source: source.map(|source| source.trim().to_owned()),
            });
        }
        None
    }
}

/// Splits the first line of an error into file, line and message.
#[inline]
fn split(line: &str) -> Option<(&str, u32, &str)> {
    let at = line.find("): error: ").or_else(|| line.find("): catastrophic error: "))?;
    let (place, rest) = line.split_at(at);
    let (file, number) = place.rsplit_once('(')?;
    let (_, message) = rest.split_once("error: ")?;
    Some((file, number.parse().ok()?, message))
}

#[cfg(test)]
mod tests {
    use super::Diagnostic;

    #[test]
    fn the_first_error_is_found_behind_warnings() {
        let log = "k.cu(1): warning #1105-D: #warning directive: hi\n  #warning hi\n   ^\n\n\
                   k.cu(2): error: identifier \"nope\" is undefined\n      int x = H;\n          ^\n\n\
                   1 error detected in the compilation of \"k.cu\".\n";
        let first = Diagnostic::first_error(log, |_| None).expect("an error");
        assert_eq!((first.file.as_str(), first.line), ("k.cu", 2));
        assert_eq!(first.message, "identifier \"nope\" is undefined");
        assert_eq!(first.source.as_deref(), Some("int x = H;"));
    }

    #[test]
    fn a_missing_header_is_an_error_with_a_line() {
        let log = "a (1).cu(7): catastrophic error: cannot open source file \"h.h\"\n";
        let first = Diagnostic::first_error(log, |_| None).expect("an error");
        assert_eq!((first.file.as_str(), first.line), ("a (1).cu", 7));
        assert_eq!(first.message, "cannot open source file \"h.h\"");
        assert_eq!(first.source, None);
    }

    #[test]
    fn a_line_that_the_log_does_not_have_is_taken_from_the_program() {
        let text = |file: &str| (file == "k.cu").then_some("first\n  second;\n");
        for (log, expected) in [
            ("k.cu(2): error: x\n\n1 error\n", Some("second;")),
            ("k.cu(3): error: x\n", None),
            ("k.cu(0): error: x\n", None),
            ("other.h(2): error: x\n", None),
        ] {
            let first = Diagnostic::first_error(log, text).expect("an error");
            assert_eq!(first.source.as_deref(), expected, "{log}");
        }
    }

    #[test]
    fn a_log_without_a_place_has_no_first_error() {
        for log in ["", "nvrtc: error: unrecognized option --foo found\n", "k.cu(x): error: y"] {
            assert_eq!(Diagnostic::first_error(log, |_| None), None);
        }
    }
}
