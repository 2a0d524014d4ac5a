//! Compares transcripts of a real driver with those of the software driver.

use super::workers::Program;
use std::collections::BTreeMap;

/// A difference that is known, with its reason. `call` is the function, `real` and `software` are the
/// beginnings of the results.
pub(crate) struct Rule {
    pub(crate) call: &'static str,
    pub(crate) real: &'static str,
    pub(crate) software: &'static str,
    pub(crate) reason: &'static str,
}

/// The first difference of a program.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) call: String,
    pub(crate) real: String,
    pub(crate) software: String,
    /// The lines that the call depends on, and the call.
    pub(crate) lines: Vec<String>,
}

/// How two transcripts of a program compare.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The number of calls that were compared.
    pub(crate) calls: usize,
    /// Whether the program misuses the driver, after which its results are not defined.
    pub(crate) has_misuse: bool,
    pub(crate) difference: Option<Difference>,
}

/// Compares the transcripts of a program up to the first difference, or the first misuse that a driver
/// accepts.
pub(crate) fn compare(real: &Program, software: &Program) -> Comparison {
    let mut result = Comparison { calls: 0, has_misuse: false, difference: None };
    let mut others = software.lines.iter().peekable();
    let is_misuse = |line: &str| line.starts_with("misuse ");
    for (index, line) in real.lines.iter().filter(|line| !is_misuse(line)).enumerate() {
        let other = others.next().map_or("nothing", String::as_str);
        result.calls += 1;
        let (call, results) = split(line);
        // Calls with pinned memory of a destroyed context are skipped, but not in the oldest transcripts.
        let mut has_misuse = split(other).1 == "skipped";
        while others.next_if(|line| is_misuse(line)).is_some() {
            has_misuse = true;
        }
        // The driver may accept a misuse, refuse it, or crash.
        if has_misuse && (line != other || results.starts_with('0')) {
            result.has_misuse = true;
            return result;
        }
        if line != other {
            let mut lines = slice(&real.lines[..index], call);
            let software = split(other).1;
            lines.push(format!("{call} -> real: {results}, software: {software}"));
            result.difference = Some(Difference {
                call: call.split(' ').nth(1).unwrap_or_default().to_owned(),
                real: results.to_owned(),
                software: software.to_owned(),
                lines,
            });
            return result;
        }
    }
    result
}

/// Splits a line into the call and its results.
fn split(line: &str) -> (&str, &str) {
    line.split_once(" -> ").unwrap_or(("", line))
}

/// Returns the lines that concern the objects of a call, and the objects that these need.
fn slice(before: &[String], call: &str) -> Vec<String> {
    let names = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| !c.is_alphanumeric());
        let is_object = |word: &&str| {
            word.ends_with(|c: char| c.is_ascii_digit())
                && word.starts_with(|c: char| c.is_ascii_lowercase())
                && !word.starts_with("cu")
                && word.len() > 2
        };
        words.filter(is_object).map(str::to_owned).collect()
    };
    let mut wanted = names(call);
    let mut kept = Vec::new();
    for line in before.iter().rev() {
        let its = names(line.split(" -> ").next().unwrap_or_default());
        if its.iter().any(|name| wanted.contains(name)) {
            wanted.extend(its);
            kept.push(line.clone());
        }
    }
    kept.reverse();
    kept
}

/// Prints the differences by group, and returns the number of those without a rule.
pub(crate) fn report(real: &[Program], software: &[Program], rules: &[Rule]) -> usize {
    let mut groups: BTreeMap<String, Vec<(usize, Difference)>> = BTreeMap::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut calls, mut misuses) = (0, 0);
    for (index, (real, software)) in real.iter().zip(software).enumerate() {
        let comparison = compare(real, software);
        calls += comparison.calls;
        let Some(difference) = comparison.difference else {
            misuses += usize::from(comparison.has_misuse);
            continue;
        };
        let rule = rules.iter().find(|rule| {
            rule.call == difference.call
                && difference.real.starts_with(rule.real)
                && difference.software.starts_with(rule.software)
        });
        if let Some(rule) = rule {
            *known.entry(rule.reason).or_default() += 1;
            continue;
        }
        let first = |result: &str| result.split(' ').next().unwrap_or_default().to_owned();
        let group = match (first(&difference.real), first(&difference.software)) {
            (real, software) if real == software => format!("{}: values differ", difference.call),
            (real, software) => format!("{}: {real}, software {software}", difference.call),
        };
        groups.entry(group).or_default().push((index, difference));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, its)| std::cmp::Reverse(its.len()));
    for (group, its) in &groups {
        let seeds: Vec<String> =
            its.iter().map(|(index, _)| real[*index].seed.to_string()).collect();
        println!("{} programs, {group}: {}", its.len(), seeds.join(", "));
        if let Some((_, shortest)) = its.iter().min_by_key(|(_, its)| its.lines.len()) {
            shortest.lines.iter().for_each(|line| println!("    {line}"));
        }
    }
    for (reason, count) in known {
        println!("{count} programs, known: {reason}");
    }
    println!("{misuses} programs misuse the driver, and were compared up to there");
    let unknown: usize = groups.iter().map(|(_, its)| its.len()).sum();
    println!("{} programs, {calls} calls, {unknown} differences without a rule", real.len());
    unknown
}

/// Removes the programs whose transcripts differ between two runs of the same driver, and prints the
/// calls at which they differ.
pub(crate) fn stable(first: Vec<Program>, second: &[Program]) -> Vec<Program> {
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    let mut stable = Vec::new();
    for (first, second) in first.into_iter().zip(second) {
        match compare(&first, second).difference {
            Some(its) => {
                let first = |text: &str| text.chars().take(40).collect::<String>();
                let (one, other) = (first(&its.real), first(&its.software));
                let results = format!("{}: {one} and {other}", its.call);
                *calls.entry(results).or_default() += 1;
            }
            None => stable.push(first),
        }
    }
    for (call, count) in calls {
        println!("{count} programs are not repeatable: {call}");
    }
    stable
}
