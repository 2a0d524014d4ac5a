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

/// Returns the first difference between the transcripts of a program.
pub(crate) fn difference(real: &Program, software: &Program) -> Option<Difference> {
    let is_misuse = |line: &&String| line.starts_with("misuse ");
    let results: Vec<&String> = software.lines.iter().filter(|line| !is_misuse(line)).collect();
    for (index, line) in real.lines.iter().filter(|line| !is_misuse(line)).enumerate() {
        let other = results.get(index).map_or("nothing", |line| line.as_str());
        if line == other {
            continue;
        }
        let split = |line: &str| match line.split_once(" -> ") {
            Some((call, result)) => (call.to_owned(), result.to_owned()),
            None => (String::new(), line.to_owned()),
        };
        let ((call, real_result), (other_call, software_result)) = (split(line), split(other));
        let has_crashed = real_result.starts_with("crash") || real_result == "hang";
        // Where the driver crashes, the software driver reports a misuse and goes on.
        if has_crashed && software.lines.iter().any(|line| is_misuse(&line)) {
            return None;
        }
        let call = if call.is_empty() { other_call } else { call };
        let mut lines = slice(&real.lines[..index], &call);
        lines.push(format!("{call} -> real: {real_result}, software: {software_result}"));
        let name = call.split(' ').nth(1).unwrap_or_default().to_owned();
        return Some(Difference {
            call: name,
            real: real_result,
            software: software_result,
            lines,
        });
    }
    None
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
pub(crate) fn report(
    real: &[Program],
    software: &[Program],
    rules: &[Rule],
    shown: usize,
) -> usize {
    let mut groups: BTreeMap<String, Vec<(usize, Difference)>> = BTreeMap::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, (real, software)) in real.iter().zip(software).enumerate() {
        let Some(difference) = difference(real, software) else {
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
        println!("{} programs, {group}", its.len());
        let shortest = its.iter().min_by_key(|(_, its)| its.lines.len());
        for (index, difference) in shortest.into_iter().take(shown) {
            println!("  program {}", real[*index].seed);
            difference.lines.iter().for_each(|line| println!("    {line}"));
        }
    }
    for (reason, count) in known {
        println!("{count} programs, known: {reason}");
    }
    let calls: usize = real.iter().map(|program| program.lines.len()).sum();
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
        match difference(&first, second) {
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
