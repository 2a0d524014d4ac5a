//! Compares the engine with the recorded results.

use std::collections::HashSet;

use crate::data::{self, Outcome, Recording};
use crate::engine;
use crate::exceptions;
use crate::form::{Bound, Form, Kind};
use crate::kernel;
use crate::record::RUN;

/// The number of differences of a form that are printed.
const SHOWN: usize = 3;

/// Replays forms and prints the differences. Returns whether there are none.
pub(crate) fn replay(forms: &[Form], recording: &Recording, filter: &str) -> bool {
    println!("recorded on {}", recording.origin);
    let known: HashSet<&String> = forms.iter().map(|form| &form.name).collect();
    let forms = forms.iter().enumerate().filter(|(_, form)| form.name.contains(filter));
    let (mut cases, mut same, mut rejected, mut refused, mut unpredictable) = (0, 0, 0, 0, 0);
    let mut different = Vec::new();
    for (number, form) in forms {
        match one(number, form, recording) {
            Ok(Played::Same(count)) => {
                same += 1;
                cases += count;
            }
            Ok(Played::Rejected) => rejected += 1,
            Ok(Played::Refused) => refused += 1,
            Ok(Played::Unpredictable) => unpredictable += 1,
            Err(report) => {
                println!("{number} {}: {report}", form.name);
                different.push(&form.name);
            }
        }
    }
    for name in recording.records.keys().filter(|name| !known.contains(name)) {
        println!("{name} is recorded and is no form");
        different.push(name);
    }
    println!(
        "{cases} cases; {same} forms are the same, {} differ, {refused} are refused, {unpredictable} have \
         unpredictable results, {rejected} are rejected by the compiler",
        different.len(),
    );
    different.is_empty()
}

/// Prints the recorded results of forms with their operands.
pub(crate) fn show(forms: &[Form], recording: &Recording, filter: &str) {
    for form in forms.iter().filter(|form| form.name.contains(filter)) {
        println!("{}: {}", form.name, form.code.replace('\n', " "));
        let (rows, input, _) = data::operands(form);
        let results = match recording.records.get(&form.name).map(|record| &record.outcome) {
            Some(Outcome::Results(results)) => results,
            Some(Outcome::Rejected(error)) => {
                println!("  rejected: {error}");
                continue;
            }
            None => continue,
        };
        let (results, texels) = data::parts(form, results);
        let results =
            data::unpack(form, results, kernel::threads(form, &input)).unwrap_or_default();
        if !texels.is_empty() {
            println!("  texels: {texels:02x?}");
        }
        for (thread, results) in results.iter().enumerate() {
            let operands = rows.get(thread).map_or(&[][..], Vec::as_slice);
            let operands = hexadecimal(&form.operands, operands);
            println!("  {operands} -> {}", hexadecimal(&form.results, results));
        }
    }
}

/// A form without differences.
enum Played {
    /// The results are the same, in this number of cases.
    Same(usize),
    /// The compiler rejected the form.
    Rejected,
    /// The engine refuses the form, as it must.
    Refused,
    /// The results cannot be compared.
    Unpredictable,
}

/// The start of the name of an error of the driver.
const ERROR: &str = "CUDA_ERROR_";

/// Runs a form on the engine. Returns the results as the kernel writes them, and the other memory that it may write.
fn run(number: usize, form: &Form, input: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let ptx = kernel::module([(number, form)]);
    engine::parse(&ptx)?;
    let threads = kernel::threads(form, input);
    let shape = kernel::shape(form, threads);
    let length = 8 * form.results.len() * threads;
    engine::run_on_engine(form, &ptx, &kernel::name(number), shape, input, length)
}

fn one(number: usize, form: &Form, recording: &Recording) -> Result<Played, String> {
    let (rows, input, hash) = data::operands(form);
    let record = recording.records.get(&form.name).ok_or("not recorded")?;
    if record.hash != hash {
        return Err("the code or the operands are not those of the recording".to_owned());
    }
    let results = match &record.outcome {
        Outcome::Results(results) => results,
        Outcome::Rejected(error) if error.starts_with(RUN) && error.contains(ERROR) => {
            let recorded = error.split_once(ERROR).and_then(|(_, rest)| rest.split(' ').next());
            let found = run(number, form, &input).err().unwrap_or("no error".to_owned());
            return match found.split(": ").next() == recorded {
                true => Ok(Played::Same(1)),
                false => Err(format!("the error of the GPU is {recorded:?}, got {found}")),
            };
        }
        Outcome::Rejected(_) => {
            let accepts =
                engine::verdict(&kernel::module([(number, form)])).0 == engine::Verdict::Accepted;
            return match (accepts, exceptions::is_accepted(&form.name)) {
                (true, false) => Err("the compiler rejects it, and the engine does not".to_owned()),
                (false, true) => Err("the engine rejects it".to_owned()),
                _ => Ok(Played::Rejected),
            };
        }
    };
    let threads = kernel::threads(form, &input);
    let (results, texels) = data::parts(form, results);
    let expected = data::unpack(form, results, threads);
    let expected = expected.ok_or("the number of recorded bytes is not that of the results")?;
    let (memory, found) = match run(number, form, &input) {
        Ok(found) => found,
        Err(error) => {
            return match exceptions::refusal(&form.name) {
                Some(_)
                    if [
                        "not supported",
                        "no such texture",
                        "not multiples of",
                        "of shared memory",
                    ]
                    .iter()
                    .any(|text| error.contains(text)) =>
                {
                    Ok(Played::Refused)
                }
                _ => Err(error),
            };
        }
    };
    if let Some(reason) = exceptions::refusal(&form.name) {
        return Err(format!("not refused, but {reason}"));
    }
    if exceptions::is_unpredictable(&form.name) || exceptions::is_unknown(&form.name) {
        return Ok(Played::Unpredictable);
    }
    let got = data::unpack(form, &data::pack(form, &memory), threads);
    let got = got.ok_or("the output has another length")?;
    let mut report = String::new();
    let mut count = 0;
    for (thread, (expected, got)) in expected.iter().zip(&got).enumerate() {
        let operands = rows.get(thread).map_or(&[][..], Vec::as_slice);
        let results = form.results.iter().zip(expected.iter().zip(got));
        let near = |(kind, (expected, got)): (&Kind, (&u64, &u64))| {
            close(*kind, form.bound, operands, *expected, *got)
        };
        if !results.into_iter().all(near) {
            count += 1;
            if count <= SHOWN {
                let operands = hexadecimal(&form.operands, operands);
                let [expected, got] = [expected, got].map(|row| hexadecimal(&form.results, row));
                report += &format!("\n  thread {thread}: {operands} gives {expected}, got {got}");
            }
        }
    }
    if let Some(at) = texels.iter().zip(&found).position(|(expected, got)| expected != got) {
        let end = (at + 16).min(texels.len()).min(found.len());
        report += &format!(
            "\n  the memory differs at byte {at}: {:02x?}, got {:02x?}",
            &texels[at..end],
            &found[at..end]
        );
        count += 1;
    }
    match count {
        0 => Ok(Played::Same(threads)),
        _ => Err(format!("{count} of {threads} cases differ{report}")),
    }
}

fn hexadecimal(kinds: &[Kind], values: &[u64]) -> String {
    let digits =
        |(kind, value): (&Kind, &u64)| format!("{value:0width$x}", width = 2 * kind.bytes());
    kinds.iter().zip(values).map(digits).collect::<Vec<_>>().join(" ")
}

/// Returns whether a result is the recorded one, or within the bound of an approximation.
pub(crate) fn close(kind: Kind, bound: Bound, operands: &[u64], expected: u64, got: u64) -> bool {
    if expected == got {
        return true;
    }
    let single = match kind {
        Kind::F16x2 => Kind::F16,
        Kind::Bf16x2 => Kind::Bf16,
        _ => return bound != Bound::Exact && close_one(kind, bound, operands, expected, got),
    };
    let half = |shift: u32| {
        let [expected, got] = [expected, got].map(|value| value >> shift & 0xffff);
        expected == got
            || bound != Bound::Exact && close_one(single, bound, operands, expected, got)
    };
    half(0) && half(16)
}

/// Compares two different values of a float type.
fn close_one(kind: Kind, bound: Bound, operands: &[u64], expected: u64, got: u64) -> bool {
    let [value, other] = [expected, got].map(|bits| float(kind, bits));
    let ulps = ordered(kind, expected).abs_diff(ordered(kind, got));
    if value.is_nan() || other.is_nan() || value == other {
        return false;
    }
    // A result is rounded once more than the bound says.
    let next = float(kind, if expected & 1 == 0 { expected + 1 } else { expected - 1 });
    let rounding = (next - value).abs();
    let within = |bound: f64| (value - other).abs() <= bound + rounding;
    match bound {
        Bound::Exact => false,
        Bound::Ulp(most) => ulps <= most,
        Bound::Relative(most) => within(most * value.abs()),
        Bound::Absolute(most) => within(most),
        Bound::Either(absolute, relative) => within(absolute.max(relative * value.abs())),
        Bound::Circular => {
            let angle = float(kind, operands[0]).abs();
            match angle / std::f64::consts::PI {
                turns if turns <= 2.0 => within(2f64.powf(-20.5)),
                turns if turns <= 100.0 => within(2f64.powf(-14.7)),
                _ => other.abs() <= 1.0,
            }
        }
    }
}

/// Returns the value of a float's bits.
fn float(kind: Kind, bits: u64) -> f64 {
    let (mantissa, exponents) = match kind {
        Kind::F64 => return f64::from_bits(bits),
        Kind::F32 => return f64::from(f32::from_bits(bits as u32)),
        Kind::Bf16 => return f64::from(f32::from_bits((bits as u32) << 16)),
        _ => (10, 5),
    };
    let sign = if bits >> (mantissa + exponents) & 1 == 1 { -1.0 } else { 1.0 };
    let fraction = (bits & 0x3ff) as f64 / 1024.0;
    sign * match bits >> mantissa & 0x1f {
        0 => fraction * 2f64.powi(-14),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1.0 + fraction) * 2f64.powi(exponent as i32 - 15),
    }
}

/// Returns a number that grows by one from each value of a float type to the next.
fn ordered(kind: Kind, bits: u64) -> i64 {
    let top = 1u64 << (8 * kind.bytes() - 1);
    match bits & top {
        0 => bits as i64,
        _ => -((bits ^ top) as i64),
    }
}
