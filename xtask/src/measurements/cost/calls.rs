//! The driver functions that an operation calls, from the output of callgrind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The number of calls of each driver function.
pub(super) type Calls = BTreeMap<String, f64>;

/// Returns the driver calls in a callgrind file. The file has, for each object and function, a line for
/// each executed instruction with its address and the number of executions. The first instruction of a
/// function runs once per call. callgrind's own call counts are not used, because they include calls
/// that were not collected.
pub(super) fn of(text: &str) -> Calls {
    let mut calls = Calls::new();
    let (mut in_driver, mut function) = (false, None);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            in_driver = object.contains("libcuda");
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = in_driver.then_some(name).filter(|it| it.starts_with("cu"));
        } else if let Some(name) = function.filter(|_| line.starts_with("0x")) {
            let times = line.split(' ').nth(2).and_then(|times| times.parse().ok());
            *calls.entry(name.to_owned()).or_default() += times.unwrap_or(0.0);
            function = None;
        }
    }
    calls.retain(|_, times| *times > 0.0);
    calls
}

/// Returns the table of the calls of each layer for one operation.
pub(super) fn table<'a>(
    columns: &[&str],
    rows: impl Iterator<Item = (&'a str, &'a BTreeMap<String, Calls>)>,
) -> String {
    let mut text = format!("| operation | {} |\n", columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    for (operation, layers) in rows {
        let _ = write!(text, "| {operation} |");
        for column in columns {
            let cell = layers.get(*column).map_or("-".to_owned(), cell);
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

/// Formats the calls of an operation. Calls that occur only occasionally, for example during a warm-up,
/// are left out.
fn cell(calls: &Calls) -> String {
    let often = calls.iter().map(|(name, times)| (name, times.round()));
    let texts = often.filter(|(_, times)| *times > 0.0).map(|(name, times)| {
        let name = name.trim_start_matches("cu");
        match times {
            1.0 => name.to_owned(),
            times => format!("{times} × {name}"),
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Calls, of, table};
    use std::collections::BTreeMap;

    const FILE: &str = "\
ob=/driver/libcuda-null.so
fl=???
fn=cuCtxGetCurrent
0x10 0 8
0x13 0 8

ob=/bench
fn=work
0x99 12 100
cfn=cuCtxGetCurrent
calls=7 0x10 0
0x9c 13 999
ob=/driver/libcuda-null.so
fn=_init
0x1 3 5
";

    #[test]
    fn the_first_instruction_of_a_function_counts_its_calls() {
        assert_eq!(of(FILE), Calls::from([("cuCtxGetCurrent".to_owned(), 8.0)]));
    }

    #[test]
    fn a_cell_has_what_is_called_and_how_often() {
        let calls = [("cuA", 2.0), ("cuB", 0.99), ("cuC", 0.01)];
        let calls: Calls = calls.map(|(name, times)| (name.to_owned(), times)).into();
        let layers = BTreeMap::from([("C".to_owned(), calls)]);
        let text = table(&["C", "D"], std::iter::once(("one", &layers)));
        assert!(text.ends_with("| one | 2 × A, B | - |\n"), "{text}");
    }
}
